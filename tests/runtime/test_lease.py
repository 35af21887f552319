"""The worker's lease: taken before anything else, kept by the store, and never taken up again once it is lost."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from worlds import ELSEWHERE

from perdure import App, BadValue, Batch, Context, Signal
from perdure.model import ops
from perdure.store.base import BatchFailed
from perdure.store.sqlite import liveness

go = Signal("go", int)


@pytest.fixture
def app() -> App:
    return App("memory://")


@pytest.fixture
def flow(app: App) -> Any:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    return flow


def beats(world: Any, app: App, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """A world, and what its store is told about beats and ops."""
    stage = world(app, **options)
    make = stage.app._make_store
    told: list[Any] = []

    def listening(ids: Any) -> Any:
        store = make(ids)
        apply = store.apply

        async def applied(batch_id: str, batch: Any, *rest: Any) -> Any:
            told.extend(("beat", one.worker_id) for one in batch if isinstance(one, ops.Beat))
            return await apply(batch_id, batch, *rest)

        monkeypatch.setattr(store, "apply", applied)
        monkeypatch.setattr(store, "start_beating", lambda *args: told.append(("start", *args)))
        monkeypatch.setattr(store, "stop_beating", lambda: told.append(("stop",)))
        return store

    stage.app._make_store = listening
    return stage, told


async def test_beats_begin_after_the_first_and_end_before_the_farewell(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, told = beats(world, app, monkeypatch, lease="10s")
    async with stage as w:
        me = w.worker.worker_id
    # What a store does for itself when it is closed comes after that.
    assert told[:4] == [("beat", me), ("start", me, 10.0, 2.0), ("stop",), ("beat", me)]


async def test_a_lease_that_the_store_says_is_lost_is_taken_anew(
    world: Any, app: App, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, told = beats(world, app, monkeypatch)
    async with stage as w:
        run = await w.begin(flow)
        before = w.worker.worker_id
        told.clear()
        w.store.on_lost_lease()
        w.store.on_lost_lease()  # told twice, it is lost once
        assert w.worker.resident_runs == 0
        await w.settle()
        after = w.worker.worker_id
        assert after != before
        assert w.store.worker_id == after
        assert told == [("stop",), ("beat", before), ("beat", after), ("start", after, 30.0, 6.0)]
        assert (await w.store.look()).workers == {after}
        await w.app.signal(run.id, go, 5)
        await w.settle()
        assert await run.result() == 5


async def test_a_look_that_does_not_find_us_among_the_living_says_so_too(
    world: Any, app: App, flow: Any
) -> None:
    async with world(app) as w:
        run = await w.begin(flow)
        before = w.worker.worker_id
        await w.coordinator.submit(ops.Beat(worker_id=before, lease_us=0, stopping=True))
        await w.worker.recovery.look(thorough=False)
        await w.settle()
        assert w.worker.worker_id != before
        await w.app.signal(run.id, go, 5)
        await w.settle()
        assert await run.result() == 5


async def test_without_a_lease_nothing_is_claimed_and_nobody_is_born_here(
    world: Any, app: App, flow: Any
) -> None:
    async with world(app) as w:
        w.store.on_lost_lease()
        assert not w.worker.reserve()
        assert w.worker._claim_op().limit == 0
        run = await w.begin(flow)
        assert (await w.store.look()).workers == {w.worker.worker_id}
        await w.app.signal(run.id, go, 5)
        await w.settle()
        assert await run.result() == 5


async def test_whose_runs_are_taken_over_has_no_row_to_prolong(
    world: Any, app: App, flow: Any
) -> None:
    """It may only have stood still: by the missing row it learns that its runs are others'."""
    async with world(app) as w:
        claimed = ops.StartRun(
            run_id="r", workflow="flow", version=1, input="[]", owner=ELSEWHERE, fence=7
        )
        await w.coordinator.submit(ops.Beat(worker_id=ELSEWHERE, lease_us=1_000_000))
        await w.coordinator.submit(claimed)
        await w.worker.recovery.look(thorough=False)
        assert (await w.store.counts())["workers"] == 2
        await w.advance("2s")
        await w.worker.recovery.look(thorough=False)
        await w.settle()
        assert (await w.store.counts())["workers"] == 1
        await w.app.signal("r", go, 5)
        await w.settle()
        assert await w.app.run("r").result() == 5


async def test_readers_read_on_under_the_new_id(world: Any, app: App) -> None:
    seen: list[Any] = []

    @app.consumer("c", "in.*")
    async def c(batch: Batch) -> None:
        seen.extend(one.payload for one in batch)

    async with world(app) as w:
        await w.emit("in.a", 1)
        w.store.on_lost_lease()
        await w.settle()
        await w.emit("in.a", 2)
        assert seen == [1, 2]
        assert {row.owner for row in await w.app.consumers()} == {w.worker.worker_id}


async def test_a_lease_that_is_lost_while_the_app_closes_changes_nothing(
    world: Any, app: App, flow: Any
) -> None:
    async with world(app) as w:
        await w.begin(flow)
        store, lose = w.store, w.store.on_lost_lease
    assert store.on_lost_lease is None
    lose()
    assert store.worker_id is None


@pytest.mark.parametrize("lease", ["999ms", 0, "0s"])
def test_a_lease_of_less_than_a_second_is_refused(lease: Any) -> None:
    with pytest.raises(BadValue, match="lease_us_min"):
        App("memory://", lease=lease)


async def test_on_sqlite_without_locks_the_lease_is_prolonged_beside_the_batches(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "has_flock", False)
    await beat_and_be_lost(app.copy(f"sqlite:///{tmp_path}/a.db", lease="1h"))


async def test_on_postgres_the_lease_is_prolonged_by_a_connection_of_its_own(
    app: App, postgres_url: str, lend_namespace: Any
) -> None:
    await beat_and_be_lost(app.copy(postgres_url, namespace=lend_namespace(), lease="1h"))


async def beat_and_be_lost(app: App) -> None:
    async with app:
        engine = app._engine()
        store: Any = engine.store
        waiting = store._beating  # its own first beat is minutes away
        before = (await store.look()).workers
        lease_until = await lease_of(app)
        assert await asyncio.to_thread(waiting.holds)
        assert await lease_of(app) > lease_until
        assert (await store.look()).workers == before
        farewell = ops.Beat(worker_id=store.worker_id, lease_us=0, stopping=True)
        await engine.coordinator.submit(farewell)
        assert not await asyncio.to_thread(waiting.holds)
        assert (await store.look()).workers == frozenset()
    assert store._beating is None


async def lease_of(app: App) -> int:
    """Until when the only worker is believed to live."""
    store: Any = app._engine().store
    asked = "select lease_until from {}workers"
    if store.url.startswith("sqlite"):
        (row,) = await store._read(lambda sql: sql.connection.execute(asked.format("")).fetchall())
        return int(row[0])
    found = await store._ask(lambda one: one.fetchval(asked.format(f"{store.schema}.")))
    return int(found)


async def test_a_recovery_that_is_refused_keeps_nobody_waiting(
    world: Any, app: App, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app) as w:
        claimed = ops.StartRun(
            run_id="r", workflow="flow", version=1, input="[]", owner=ELSEWHERE, fence=7
        )
        await w.coordinator.submit(ops.Beat(worker_id=ELSEWHERE, lease_us=1_000_000))
        await w.coordinator.submit(claimed)
        await w.advance("2s")
        apply = w.store.apply

        async def refusing(batch_id: str, batch: Any, *rest: Any) -> Any:
            if any(isinstance(one, ops.Recover) for one in batch):
                raise BatchFailed("a row is locked")
            return await apply(batch_id, batch, *rest)

        heard: list[bool] = []
        w.worker.recovery.hearers.append(lambda look, thorough: heard.append(look.orphaned))
        with monkeypatch.context() as patched:
            patched.setattr(w.store, "apply", refusing)
            await w.worker.recovery.look(thorough=False)
            assert heard == [True]
        await w.worker.recovery.look(thorough=False)
        await w.settle()
        assert await w.app.run("r").status() == "waiting"


async def test_a_search_for_lost_runs_does_not_revive_a_lease_that_others_took_away(
    world: Any, app: App, flow: Any
) -> None:
    async with world(app) as w:
        run = await w.begin(flow)
        before = w.worker.worker_id
        await w.coordinator.submit(ops.Beat(worker_id=before, lease_us=0, stopping=True))
        w.coordinator.on_unknown()
        await w.settle()
        assert before not in (await w.store.look()).workers
        await w.worker.recovery.look(thorough=False)
        await w.settle()
        assert w.worker.worker_id != before
        await w.app.signal(run.id, go, 5)
        await w.settle()
        assert await run.result() == 5
