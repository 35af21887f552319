"""The app from outside: start, signal, look, keep. Ids, keys, conflicts, listings and their pages."""

import asyncio
import functools
import os
import types
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    App,
    Buffered,
    Conflict,
    Context,
    Delivered,
    Duplicate,
    Finished,
    InvalidPayload,
    NotFound,
    Refused,
    RunFinished,
    RunNotFound,
    Signal,
    SignalTaken,
    TimedOut,
    UnknownWorkflow,
    step,
    timer,
    workflow,
)

go = Signal("go", int)
line = Signal("line", int, buffer="all")
claim = Signal("claim", str, buffer="first")
kept = Signal("kept", int, buffer="all", on_end="dead_letter")


@pytest.fixture
def waiter(app: App) -> Any:
    """A workflow that waits for a number and gives it back."""

    @app.workflow
    async def waiter(ctx: Context, x: int = 0) -> int:
        return x + await ctx.wait(go)

    return waiter


@pytest.fixture
def sleeper(app: App) -> Any:
    """A workflow that sleeps an hour and takes nothing."""

    @app.workflow
    async def sleeper(ctx: Context, x: int = 0) -> int:
        await ctx.sleep("1h")
        return x

    return sleeper


# --- start ---------------------------------------------------------------------------------------


async def test_start_makes_an_id_or_takes_one(world: Any, app: App, waiter: Any) -> None:
    async with world(app) as w:
        made = await w.app.start(waiter)
        given = await w.app.start(waiter, id="order 42/ü")
        assert len(made.id) == 26
        assert (given.id, made.created, given.created) == ("order 42/ü", True, True)


async def test_start_with_an_id_that_exists_finds_the_run(
    world: Any, app: App, waiter: Any, sleeper: Any
) -> None:
    async with world(app) as w:
        await w.begin(waiter, 1, id="a")
        again = await w.app.start(waiter, 1, id="a")
        assert not again.created
        await w.app.signal("a", go, 5)
        await w.settle()
        assert await again.result() == 6
        ended = await w.app.start(waiter, 1, id="a")
        assert not ended.created
        assert await ended.result() == 6
        before = await w.store.counts()
        with pytest.raises(Conflict, match="another input"):
            await w.app.start(waiter, 2, id="a")
        with pytest.raises(Conflict, match="of workflow 'waiter'"):
            await w.app.start(sleeper, 1, id="a")
        assert await w.store.counts() == before


async def test_start_with_a_key_once(world: Any, app: App, waiter: Any, sleeper: Any) -> None:
    async with world(app) as w:
        first = await w.app.start(waiter, 1, key="k")
        again = await w.app.start(waiter, 1, key="k")
        assert (again.id, again.created) == (first.id, False)
        with pytest.raises(Conflict, match="another input"):
            await w.app.start(waiter, 2, key="k")
        other = await w.app.start(sleeper, 1, key="k")  # a key counts within its workflow
        assert other.created


async def test_many_starts_at_once_under_one_id_make_one_run(
    world: Any, app: App, waiter: Any
) -> None:
    async with world(app) as w:
        handles = await asyncio.gather(*(w.app.start(waiter, 1, id="a") for _ in range(30)))
        assert sum(one.created for one in handles) == 1
        await w.settle()
        assert (await w.store.counts())["runs"] == 1


async def test_start_by_name(world: Any, app: App, waiter: Any) -> None:
    async with world(app) as w:
        run = await w.app.start("waiter", 1, id="a")
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await run.result() == 2


async def test_start_of_another_apps_workflow_is_unknown(world: Any, app: App, waiter: Any) -> None:
    other = App("memory://")

    @other.workflow(name="waiter")
    async def impostor(ctx: Context) -> None:
        return None

    async with world(app) as w:
        with pytest.raises(UnknownWorkflow):
            await w.app.start(impostor)


async def test_start_at_waits_for_its_time(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return f"{ctx.now():%H:%M}"

    async with world(app) as w:
        after = await w.begin(flow, start_at="2h")
        at = await w.begin(flow, start_at=w.clock.moment + timedelta(hours=1))
        past = await w.begin(flow, start_at=w.clock.moment - timedelta(hours=1))
        assert await past.status() == "completed"
        assert (await at.info()).starts_at == w.clock.moment + timedelta(hours=1)
        await w.advance("1h")
        assert (await at.status(), await after.status()) == ("completed", "ready")
        await w.advance("1h")
        assert await after.status() == "completed"


async def test_start_at_survives_a_restart(world: Any, app: App, sleeper: Any) -> None:
    async with world(app) as w:
        await w.begin(sleeper, id="a", start_at="1h")
    async with world(app) as w:
        await w.advance("30m")
        assert await w.app.run("a").status() == "ready"
        await w.advance("30m")
        assert await w.app.run("a").status() == "sleeping"


async def test_defaults_of_the_input(world: Any, app: App, waiter: Any) -> None:
    async with world(app) as w:
        await w.begin(waiter, id="a")
        again = await w.app.start(waiter, 0, id="a")
        assert not again.created


# --- signals -------------------------------------------------------------------------------------


async def test_the_same_key_again_is_a_duplicate_with_the_first_answer(
    world: Any, app: App, waiter: Any, sleeper: Any
) -> None:
    async with world(app) as w:
        await w.begin(waiter, id="a")
        await w.begin(sleeper, id="b")
        first = await w.app.signal("a", go, 1, key="k")
        assert isinstance(first, Delivered)
        again = await w.app.signal("a", go, 1, key="k")
        assert again == Duplicate(first)
        await w.settle()
        ended = await w.app.signal("a", go, 1, key="k")  # the key is looked at before the end
        assert ended == Duplicate(first)
        with pytest.raises(Conflict, match="another payload"):
            await w.app.signal("a", go, 2, key="k")
        with pytest.raises(RunFinished):
            await w.app.signal("a", go, 1, key="other")
        buffered = await w.app.signal("b", line, 1, key="k")
        assert isinstance(buffered, Buffered)
        assert await w.app.signal("b", line, 1, key="k") == Duplicate(buffered)
        assert [one.payload for one in await w.app.buffered("b")] == [1]


async def test_a_key_is_looked_at_before_the_payload(
    world: Any, app: App, waiter: Any, sleeper: Any
) -> None:
    async with world(app) as w:
        await w.begin(waiter, id="a")
        first = await w.app.signal("a", go, 1, key="k")
        await w.settle()
        for payload in ("perhaps", object()):
            with pytest.raises(Conflict, match="another payload"):
                await w.app.signal("a", go, payload, key="k")
            with pytest.raises(RunFinished):
                await w.app.signal("a", go, payload, key="other")
        with pytest.raises(Conflict, match="another payload"):
            await w.app.signal_with_start(waiter, signal=go, payload="no", id="a", key="k")
        as_text = Signal("go", str)
        assert await w.app.signal("a", as_text, 1, key="k") == Duplicate(first)
        await w.begin(sleeper, id="b")
        with pytest.raises(InvalidPayload):
            await w.app.signal("b", go, "perhaps", key="k")
        assert isinstance(await w.app.signal("b", go, 1, key="k"), Buffered)


async def test_keys_are_scoped_by_run_and_name(world: Any, app: App, sleeper: Any) -> None:
    async with world(app) as w:
        for run_id in ("a", "b"):
            await w.begin(sleeper, id=run_id)
        sends = [("a", line), ("b", line), ("a", go)]
        for run_id, signal in sends:
            assert isinstance(await w.app.signal(run_id, signal, 1, key="k"), Buffered)


async def test_a_refused_send_does_not_use_up_its_key(world: Any, app: App, sleeper: Any) -> None:
    async with world(app) as w:
        with pytest.raises(RunNotFound):
            await w.app.signal("a", go, 1, key="k")
        await w.begin(sleeper, id="a")
        assert isinstance(await w.app.signal("a", go, 1, key="k"), Buffered)


async def test_a_crowd_with_one_key_has_one_effect(world: Any, app: App, sleeper: Any) -> None:
    async with world(app) as w:
        await w.begin(sleeper, id="a")
        sends = (w.app.signal("a", line, 1, key="k") for _ in range(30))
        answers = await asyncio.gather(*sends)
        assert sum(isinstance(one, Buffered) for one in answers) == 1
        assert sum(isinstance(one, Duplicate) for one in answers) == 29


async def test_signal_many_answers_each_on_its_own(
    world: Any, app: App, waiter: Any, sleeper: Any
) -> None:
    async with world(app) as w:
        await w.begin(waiter, id="waits")
        await w.begin(sleeper, id="sleeps")
        await (await w.begin(sleeper, id="over")).terminate()
        await w.app.signal("sleeps", claim, "ann")
        answers = await w.app.signal_many(
            [
                ("waits", go, 1),
                ("sleeps", "go", 2),
                ("nobody", go, 1),
                ("nobody", "go", 1),
                ("over", go, 1),
                ("sleeps", claim, "bob"),
                ("sleeps", go, "text"),
                ("", go, 1),
                ("sleeps", 5, 1),
            ]
        )
        kinds = [type(one) for one in answers]
        assert kinds[:2] == [Delivered, Buffered]
        assert kinds[2:5] == [NotFound, NotFound, Finished]
        assert kinds[5:] == [Refused] * 4
        refused = [type(one.error).__name__ for one in answers[5:]]  # type: ignore[union-attr]
        assert refused == ["SignalTaken", "InvalidPayload", "BadValue", "BadValue"]
        await w.settle()
        assert await w.app.run("waits").result() == 1


async def test_signal_many_of_nothing(world: Any, app: App, waiter: Any) -> None:
    async with world(app) as w:
        assert await w.app.signal_many([]) == []


async def test_signal_many_to_one_run_the_first_wins_the_wait(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return [await ctx.wait(line) for _ in range(5)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        answers = await w.app.signal_many([("a", line, n) for n in range(5)])
        assert isinstance(answers[0], Delivered)
        await w.settle()
        assert await run.result() == [0, 1, 2, 3, 4]


async def test_signal_with_start_starts_or_finds(world: Any, app: App, waiter: Any) -> None:
    async with world(app) as w:
        run, sent = await w.app.signal_with_start(waiter, 1, signal=line, payload=5, id="a")
        assert run.created
        assert isinstance(sent, Buffered)
        await w.settle()
        again, sent = await w.app.signal_with_start(waiter, 1, signal=go, payload=5, id="a")
        assert not again.created
        assert isinstance(sent, Delivered)
        await w.settle()
        assert await run.result() == 6
        with pytest.raises(RunFinished):
            await w.app.signal_with_start(waiter, 1, signal=go, payload=5, id="a")


async def test_a_refused_signal_with_start_starts_nothing(
    world: Any, app: App, waiter: Any
) -> None:
    async with world(app) as w:
        before = await w.store.counts()
        with pytest.raises(InvalidPayload):
            await w.app.signal_with_start(waiter, signal=go, payload="text", id="a")
        assert await w.store.counts() == before


async def test_signal_status_tells_every_fate(world: Any, app: App) -> None:
    brief = Signal("brief", int, ttl="1s", buffer="all")

    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.sleep("1m")
        return await ctx.wait(line)

    async def state(sent: Any) -> str:
        found = await w.app.signal_status(sent.signal_id)
        assert found is not None
        assert (found.signal_id, found.run_id) == (sent.signal_id, "a")
        return str(found.state)

    async with world(app) as w:
        await w.begin(flow, id="a")
        replaced = await w.app.signal("a", go, 1)
        discarded = await w.app.signal("a", go, 2)
        delivered = await w.app.signal("a", line, 1)
        letter = await w.app.signal("a", kept, 1)
        expired = await w.app.signal("a", brief, 1)
        assert await state(discarded) == "buffered"
        await w.advance("2s")
        assert await state(expired) == "expired"
        assert await state(replaced) == "replaced"
        await w.advance("1m")
        assert await state(delivered) == "delivered"
        assert await state(discarded) == "discarded"
        assert await state(letter) == "dead_letter"
        assert await w.app.signal_status("01ARZ3NDEKTSV4RRFFQ69G5FAV") is None


async def test_signal_status_tells_of_a_rejection(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.sleep("1h")
        return await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow)
        sent = await w.app.signal(run.id, "go", "perhaps")
        await w.advance("1h")
        status = await w.app.signal_status(sent.signal_id)
        assert (status.state, status.name, status.run_id) == ("dead_letter", "go", run.id)
        (letter,) = await w.app.dead_letters(run.id)
        assert letter.id == sent.signal_id


# --- dead letters --------------------------------------------------------------------------------


async def test_a_dead_letter_is_sent_again_to_another_run(
    world: Any, app: App, sleeper: Any
) -> None:
    @app.workflow
    async def heir(ctx: Context) -> int:
        return await ctx.wait(kept)

    async with world(app) as w:
        await w.begin(sleeper, id="a")
        await w.app.signal("a", kept, 7)
        await w.advance("1h")
        (letter,) = await w.app.dead_letters("a")
        assert (letter.run_id, letter.name, letter.payload) == ("a", "kept", 7)
        with pytest.raises(RunFinished):
            await w.app.resend(letter.id)
        run = await w.begin(heir, id="heir")
        sent = await w.app.resend(letter.id, run_id="heir")
        assert isinstance(sent, Delivered)
        await w.settle()
        assert await run.result() == 7
        assert list(await w.app.dead_letters()) == []
        with pytest.raises(Conflict, match="no dead letter"):
            await w.app.resend(letter.id, run_id="heir")


async def test_dead_letters_page(world: Any, app: App, sleeper: Any) -> None:
    async with world(app) as w:
        await w.begin(sleeper, id="a")
        for n in range(7):
            await w.app.signal("a", kept, n)
        await w.advance("1h")
        seen, after = [], None
        while True:
            page = await w.app.dead_letters(limit=3, after=after)
            seen += [one.payload for one in page]
            after = page.cursor
            if after is None:
                break
        assert seen == list(range(7))
        assert list(await w.app.dead_letters("nobody")) == []


# --- looking -------------------------------------------------------------------------------------


async def test_find_waiting(world: Any, app: App, waiter: Any, sleeper: Any) -> None:
    async with world(app) as w:
        for n in range(3):
            await w.begin(waiter, id=f"old-{n}")
        await w.advance("1h")
        await w.begin(waiter, id="new")
        await w.begin(sleeper, id="asleep")
        found = await w.app.find_waiting(go)
        assert [one.run_id for one in found] == ["old-0", "old-1", "old-2", "new"]
        older = await w.app.find_waiting("go", older_than="30m")
        assert [one.run_id for one in older] == ["old-0", "old-1", "old-2"]
        assert all(one.kind == "signal" and one.target == "go" for one in older)
        page = await w.app.find_waiting(go, limit=2)
        rest = await w.app.find_waiting(go, limit=2, after=page.cursor)
        assert [one.run_id for one in [*page, *rest]] == ["old-0", "old-1", "old-2", "new"]
        assert list(await w.app.find_waiting("nothing")) == []


async def test_runs_by_everything(world: Any, app: App, waiter: Any, sleeper: Any) -> None:
    async with world(app) as w:
        begun = w.clock.moment
        await w.begin(waiter, id="a", tags={"team": "red", "vip": "yes"}, entity="order/1")
        await w.advance("1m")
        await w.begin(waiter, id="b", tags={"team": "blue"}, entity="order/2/x")
        await w.advance("1m")
        await w.begin(sleeper, id="c")
        await (await w.begin(sleeper, id="d")).terminate()

        async def ids(**where: Any) -> list[str]:
            return [one.id for one in await w.app.runs(**where)]

        assert sorted(await ids()) == ["a", "b", "c", "d"]
        assert (await ids())[-2:] == ["b", "a"]
        assert await ids(workflow=waiter) == ["b", "a"]
        assert await ids(workflow="sleeper", status="sleeping") == ["c"]
        assert sorted(await ids(status=["terminated", "sleeping"])) == ["c", "d"]
        assert await ids(tag="vip") == ["a"]
        assert await ids(tag=("team", "blue")) == ["b"]
        assert await ids(tag=("team", "green")) == []
        assert await ids(entity="order/2/x") == ["b"]
        assert await ids(created_before=begun + timedelta(minutes=1)) == ["a"]
        assert "a" not in await ids(created_from=begun + timedelta(minutes=1))
        assert await ids(parent="a") == []


async def test_runs_page_without_gap_or_repeat(world: Any, app: App, sleeper: Any) -> None:
    async with world(app) as w:
        for n in range(5):
            await w.app.start(sleeper, id=f"same-moment-{n}")
        await w.advance("1s")
        for n in range(6):
            await w.app.start(sleeper, id=f"later-{n}")
        await w.settle()
        seen: list[str] = []
        after, pages = None, 0
        while True:
            page = await w.app.runs(limit=4, after=after)
            seen += [one.id for one in page]
            after, pages = page.cursor, pages + 1
            if after is None:
                break
        assert len(seen) == len(set(seen)) == 11
        assert pages == 3
        assert all(one.startswith("later") for one in seen[:6])


async def test_the_last_page_has_no_cursor_also_when_it_is_full(
    world: Any, app: App, sleeper: Any, waiter: Any
) -> None:
    async with world(app) as w:
        for n in range(4):
            await w.begin(waiter, id=f"waiter-{n}")
        failing = await w.begin(sleeper, id="sleeper")
        for n in range(4):
            await w.app.signal(failing.id, kept, n)
        await failing.terminate()
        listings = [
            functools.partial(w.app.runs, workflow="waiter"),
            functools.partial(w.app.find_waiting, go),
            w.app.dead_letters,
        ]
        for listing in listings:
            first = await listing(limit=2)
            last = await listing(limit=2, after=first.cursor)
            assert first.cursor is not None and len(first) == len(last) == 2
            assert last.cursor is None
            assert (await listing(limit=4)).cursor is None


async def test_info_tells_all(world: Any, app: App, waiter: Any) -> None:
    async with world(app) as w:
        run = await w.begin(waiter, id="a", tags={"x": "y"}, entity="order/42")
        info = await run.info()
        assert (info.id, info.workflow, info.version, info.status) == ("a", "waiter", 1, "waiting")
        assert (info.tags, info.entity, info.parent_id) == ({"x": "y"}, "order/42", None)
        assert (info.created_at, info.finished_at) == (w.clock.moment, None)
        await w.advance("1m")
        await w.app.signal("a", go, 1)
        await w.settle()
        assert (await run.info()).finished_at == w.clock.moment


async def test_history_tells_what_was_done_and_what_is_open(world: Any, app: App) -> None:
    @step
    async def add(x: int) -> int:
        return x + 1

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(add, 1)
        await ctx.set("k", 1)
        await ctx.wait(go | timer("1m"))
        await ctx.wait(line)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.advance("1m")
        entries = await run.history()
        assert [(one.path, one.kind, one.status) for one in entries] == [
            ("add", "step", "done"),
            ("set.k", "set", "done"),
            ("go", "wait", "done"),
            ("line", "wait", "open"),
        ]
        assert (entries[0].value, entries[2].winner) == (2, "timer")
        assert entries[2].recorded_at == w.clock.moment


async def test_result_with_a_timeout(world: Any, app: App, waiter: Any) -> None:
    async with world(app) as w:
        run = await w.begin(waiter, id="a")
        with pytest.raises(TimeoutError, match="run 'a' has not ended within 10ms"):
            await run.result(timeout="10ms")
        await w.app.signal("a", go, 1)
        assert await run.result(timeout="10s") == 1
        with pytest.raises(RunNotFound):
            await w.app.run("nobody").result(timeout="1s")


async def test_many_await_one_result(world: Any, app: App, waiter: Any) -> None:
    async with world(app) as w:
        run = await w.begin(waiter, id="a")
        awaiting = [asyncio.ensure_future(run.result()) for _ in range(5)]
        awaiting += [asyncio.ensure_future(w.app.run("a").result()) for _ in range(5)]
        gone = asyncio.ensure_future(run.result())
        await w.settle()
        gone.cancel()
        await w.app.signal("a", go, 3)
        assert await asyncio.gather(*awaiting) == [3] * 10


async def test_a_result_is_typed_by_the_workflow(world: Any, app: App) -> None:
    from dataclasses import dataclass

    @dataclass
    class Receipt:
        total: int

    @app.workflow
    async def flow(ctx: Context) -> Receipt:
        return Receipt(3)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert await run.result() == Receipt(3)
        assert await w.app.run("a").result() == {"total": 3}


async def test_a_result_that_cannot_be_stored_fails_the_run(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return "text"  # type: ignore[return-value]

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.status() == "failed"
        assert "Unencodable" in str(await _error(run))


async def _error(run: Any) -> BaseException:
    try:
        await run.result()
    except Exception as error:
        return error
    raise AssertionError("the run did not fail")


# --- keeping -------------------------------------------------------------------------------------


async def test_prune_deletes_what_ended_long_ago(
    world: Any, app: App, waiter: Any, sleeper: Any
) -> None:
    async with world(app) as w:
        await w.begin(waiter, id="lives")
        await w.begin(sleeper, id="old", key="k")
        await w.app.signal("old", kept, 1, key="s")
        await w.advance("2h")
        await w.begin(sleeper, id="young")
        await w.advance("2h")
        assert await w.app.prune("150m") == 1
        assert await w.app.prune("150m") == 0
        with pytest.raises(RunNotFound):
            await w.app.run("old").status()
        assert await w.app.run("young").status() == "completed"
        assert await w.app.run("lives").status() == "waiting"
        assert list(await w.app.dead_letters()) == []
        assert (await w.store.counts())["keys"] == 0
        assert (await w.app.start(sleeper, id="old", key="k")).created


async def test_prune_in_chunks(world: Any, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.upkeep._prune_runs", 3)

    @app.workflow
    async def quick(ctx: Context) -> None:
        return None

    async with world(app, keep="1h") as w:
        for _ in range(10):
            await w.app.start(quick)
        await w.advance("2h")
        assert await w.app.prune() == 10
        assert (await w.store.counts())["runs"] == 0


async def test_keep_prunes_while_the_app_is_open(
    world: Any, app: App, sleeper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.upkeep._prune_every_s", 0.005)
    async with world(app, keep="1h") as w:
        await w.begin(sleeper, id="old")
        await w.advance("1h")
        await w.advance("2h")

        async def gone() -> bool:
            return await w.store.run("old") is None

        await w.until(gone)


# --- definitions and copies ----------------------------------------------------------------------


async def test_add_takes_workflows_and_modules(world: Any) -> None:
    @workflow
    async def one(ctx: Context) -> int:
        return 1

    @workflow(name="second")
    async def two(ctx: Context) -> int:
        return await ctx.call(one) + 1

    module = types.ModuleType("flows")
    module.one, module.two = one, two  # type: ignore[attr-defined]
    app = App("memory://")
    app.add(module)
    app.add(step(lambda_free))
    async with world(app) as w:
        assert await (await w.begin(two)).result() == 2
        assert await (await w.begin("second")).result() == 2


async def lambda_free() -> None:
    return None


async def test_versions_live_side_by_side(world: Any) -> None:
    old, both = App("memory://"), App("memory://")

    @workflow(name="flow", version=1)
    async def first(ctx: Context) -> str:
        await ctx.wait(go)
        return "old code"

    @workflow(name="flow", version=2)
    async def second(ctx: Context) -> str:
        await ctx.wait(line)
        return "new code"

    old.add(first)
    both.add(first)
    both.add(second)
    async with world(old) as w:
        await w.begin(first, id="a")
    async with world(both) as w:
        fresh = await w.begin("flow", id="b")
        assert (await fresh.info()).version == 2
        await w.app.signal("a", go, 1)
        await w.app.signal("b", line, 1)
        await w.settle()
        assert await w.app.run("a").result() == "old code"
        assert await fresh.result() == "new code"


async def test_a_copy_has_the_same_workflows_on_another_store(
    app: App, waiter: Any, tmp_path: Path
) -> None:
    copies = [app.copy(f"sqlite:///{tmp_path}/{name}.db") for name in ("one", "two")]
    async with copies[0], copies[1]:
        for n, copy in enumerate(copies):
            run = await copy.start(waiter, n, id="same")
            assert run.created
        for copy in copies:
            await copy.signal("same", go, 10)
        assert [await copy.run("same").result() for copy in copies] == [10, 11]


async def test_namespaces_keep_apart(app: App, waiter: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    apps = []
    for name in (None, "eu", "us"):
        one = App(url, namespace=name)
        one.registry = app.registry
        apps.append(one)
    async with apps[0], apps[1], apps[2]:
        for one in apps:
            assert (await one.start(waiter, id="same")).created
        assert [len(await one.runs()) for one in apps] == [1, 1, 1]
    names = {one for one in os.listdir(tmp_path) if one.endswith(".db")}
    assert names == {"shop.db", "shop.eu.db", "shop.us.db"}


async def test_a_pure_client_starts_and_signals_but_runs_nothing(
    world: Any, app: App, waiter: Any
) -> None:
    async with world(app, worker=False) as client:
        run = await client.app.start(waiter, 1, id="a")
        await client.settle()
        assert await run.status() == "ready"
        assert isinstance(await client.app.signal("a", go, 1), Buffered)
    async with world(app) as w:
        await w.settle()
        assert await w.app.run("a").result() == 2


async def test_the_timeout_value_is_one_of_its_kind() -> None:
    assert TimedOut() == TimedOut()
    assert SignalTaken("x", "r").name == "x"
