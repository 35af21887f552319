"""A window of the ledger, fired anew: counted first, marked, paced, and nothing twice unless asked for."""

import asyncio
from typing import Any

import msgspec
import pytest

from perdure import App, BadValue, Batch, Context, Retry, UnknownConsumer


def collect(app: App, **options: Any) -> list[Any]:
    seen: list[Any] = []

    @app.consumer("c", "in.*", **options)
    async def c(batch: Batch) -> None:
        for event in batch:
            seen.append((event.payload, batch.replay))
            batch.emit("out.a", event.payload)

    return seen


def recorder(app: App) -> list[Any]:
    got: list[Any] = []

    @app.workflow
    async def flow(ctx: Context, given: Any) -> None:
        got.append(given)

    return got


async def test_into_a_consumer(world: Any, app: App) -> None:
    seen = collect(app)
    async with world(app) as w:
        events = [await w.emit("in.a" if n % 2 else "in.b", n) for n in range(4)]
        await w.emit("other")
        seen.clear()
        before = await w.app.consumers()
        dry = await w.app.replay("c")
        assert dry.dry_run and seen == []
        assert dry.events == 4 and dry.by_type == {"in.a": 2, "in.b": 2} and dry.starts is None
        done = await w.app.replay(
            "c", since=events[1].position, until=events[2].position, dry_run=False
        )
        assert not done.dry_run and done.events == 2
        assert seen == [(1, True), (2, True)]
        await w.settle()
        assert [one.name for one in await w.app.consumers()] == [one.name for one in before]
        assert before[0].position <= (await w.app.consumers())[0].position
        outs = [msgspec.json.decode(one.caused_by) for one in await w.facts("out.a")]
        assert [one.get("replay", False) for one in outs] == [False] * 4 + [True] * 2
        assert outs[-1] == {"event_id": events[2].event_id, "consumer": "c", "replay": True}


async def test_a_window_by_time_and_pattern(world: Any, app: App) -> None:
    seen = collect(app)
    async with world(app) as w:
        await w.emit("in.a", 1)
        await w.advance("1h")
        since = w.clock.moment
        await w.emit("in.a", 2)
        await w.emit("in.b", 3)
        await w.advance("1h")
        until = w.clock.moment
        await w.emit("in.a", 4)
        seen.clear()
        await w.app.replay("c", since=since, until=until, pattern="in.a", dry_run=False)
        assert seen == [(2, True)]
        for wrong in ({"since": "soon"}, {"until": -1}, {"rate": 0}, {"pattern": "a..b"}):
            with pytest.raises(BadValue):
                await w.app.replay("c", **wrong)


async def test_into_a_fresh_handler(world: Any, app: App) -> None:
    got: list[Any] = []

    async def backfill(batch: Batch) -> None:
        assert batch.replay
        got.extend(event.payload for event in batch)
        batch.put("jobs", len(batch))

    async def broken(batch: Batch) -> None:
        raise KeyError("x")

    async with world(app) as w:
        for n in range(3):
            await w.emit("in.a", n)
        assert (await w.app.replay(backfill)).events == 3
        await w.app.replay(backfill, dry_run=False, pattern="in.*")
        assert got == [0, 1, 2]
        assert await w.store.queues() == {"jobs": 1}
        with pytest.raises(KeyError):
            await w.app.replay(broken, dry_run=False)
        with pytest.raises(BadValue):
            await w.app.replay(lambda batch: None)  # type: ignore[arg-type,return-value]
        with pytest.raises(UnknownConsumer):
            await w.app.replay("nobody")


async def test_into_the_runner(world: Any, app: App) -> None:
    got = recorder(app)
    async with world(app) as w:
        await w.emit("a", {"n": 1})
        await w.app.subscribe("a", "flow", name="s", map="payload")
        await w.emit("a", {"n": 2})
        assert got == [{"n": 2}]
        dry = await w.app.replay("workflow_runner")
        assert (dry.starts, dry.existing, dry.failed) == (1, 1, 0)
        done = await w.app.replay("workflow_runner", dry_run=False)
        await w.settle()
        assert (done.starts, done.existing) == (1, 1)
        assert got == [{"n": 2}, {"n": 1}]
        again = await w.app.replay("workflow_runner", dry_run=False)
        assert (again.starts, again.existing) == (0, 2)
        anew = await w.app.replay("workflow_runner", dry_run=False, only_if_no_run=False)
        await w.settle()
        assert (anew.starts, anew.existing) == (2, 0)
        assert len(got) == 4


async def test_no_faster_than_asked(world: Any, app: App) -> None:
    seen = collect(app)
    async with world(app) as w:
        for n in range(10):
            await w.emit("in.a", n)
        seen.clear()
        replaying = asyncio.create_task(w.app.replay("c", dry_run=False, rate=2))
        for count in (2, 4, 6, 8, 10):
            await w.until(lambda count=count: _reached(seen, count))
            await w.advance("0.9s")
            assert len(seen) == count
            await w.advance("0.1s")
        assert (await replaying).events == 10


async def _reached(seen: list[Any], count: int) -> bool:
    return len(seen) >= count


async def test_dedupe_holds_unless_told_otherwise(world: Any, app: App) -> None:
    seen = collect(app, dedupe=True)
    async with world(app) as w:
        await w.emit("in.a", 1, key="k")
        await w.emit("in.a", 2)
        seen.clear()
        await w.app.replay("c", dry_run=False)
        assert seen == [(2, True)]
        await w.app.replay("c", dry_run=False, only_if_no_run=False)
        assert seen == [(2, True), (1, True), (2, True)]


@pytest.mark.parametrize("batch", [1, 500])
async def test_a_replay_of_everything_still_takes_equal_events_for_one(
    world: Any, app: App, batch: int
) -> None:
    seen = collect(app, dedupe=True, batch=batch)
    async with world(app) as w:
        await w.emit("in.a", 1, key="k")
        await w.emit("in.b", 2, key="k")
        await w.emit("in.a", 3)
        once = list(seen)
        assert [n for n, _ in once] == [1, 3]
        seen.clear()
        await w.app.replay("c", dry_run=False, only_if_no_run=False)
        assert [n for n, _ in seen] == [1, 3]


@pytest.mark.parametrize("first", ["live", "replay"])
async def test_a_key_is_dealt_with_once_by_a_replay_beside_its_consumer(
    world: Any, app: App, first: str
) -> None:
    gates = {"live": asyncio.Event(), "replay": asyncio.Event()}
    began: list[str] = []

    @app.consumer("c", "in.*", dedupe=True)
    async def c(batch: Batch) -> None:
        who = "replay" if batch.replay else "live"
        began.append(who)
        await gates[who].wait()
        for event in batch:
            batch.emit("out.a", event.payload)

    async with world(app) as w:
        await w.emit_only("in.a", 1, key="k")
        replaying = asyncio.create_task(w.app.replay("c", dry_run=False))
        await w.until(lambda: _reached(began, 2))
        gates[first].set()
        await w.until(lambda: _is_told(w, "out.a"))
        for gate in gates.values():
            gate.set()
        await replaying
        await w.emit("in.a", 2)
        assert [one.payload for one in await w.facts("out.a")] == ["1", "2"]


async def _is_told(w: Any, topic: str) -> bool:
    return bool(await w.facts(topic))


@pytest.mark.parametrize("fails", [False, True])
async def test_keys_of_a_replay_that_is_to_run_again_count_within_it_only(
    world: Any, app: App, fails: bool
) -> None:
    seen: list[Any] = []

    @app.consumer("c", "in.*", dedupe=True, retry=Retry(attempts=1))
    async def c(batch: Batch) -> None:
        if fails and batch.replay and any(event.payload == 2 for event in batch):
            raise ValueError
        seen.extend((event.payload, batch.replay) for event in batch)

    async with world(app) as w:
        await w.app.pause_consumer("c")
        await w.emit("in.a", 1, key="k")
        await w.emit("in.a", 2)
        await w.app.replay("c", dry_run=False, only_if_no_run=False)
        seen.clear()
        await w.app.resume_consumer("c")
        await w.settle()
        assert seen == [(1, False), (2, False)]


async def test_what_fails_is_parked(world: Any, app: App) -> None:
    bad: set[int] = set()

    @app.consumer("c", "in.*", retry=Retry(attempts=1))
    async def c(batch: Batch) -> None:
        for event in batch:
            if event.payload in bad:
                raise ValueError
            batch.emit("out.a", event.payload)

    async with world(app) as w:
        for n in range(3):
            await w.emit("in.a", n)
        bad.add(1)
        done = await w.app.replay("c", dry_run=False)
        assert done.failed == 1
        (parked,) = await w.app.parked()
        bad.clear()
        assert await w.app.refire("c", parked.position)
        assert [one.payload for one in await w.facts("out.a")] == ["0", "1", "2", "0", "2", "1"]
