"""Queues: an item goes to exactly one run, the one that waits longest, or is kept in order."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from worlds import Deadly

from perdure import (
    App,
    Conflict,
    Context,
    Delivered,
    Duplicate,
    InvalidPayload,
    Queue,
    Queued,
    RunCancelled,
    Signal,
    TimedOut,
    Topic,
    WaitTimeout,
    step,
    timer,
)
from perdure.model import limits, ops
from perdure.model.records import Condition
from perdure.testing.conformance import Driver, check_invariants
from perdure.testing.conformance.words import wait


@dataclass
class Job:
    name: str


jobs = Queue("jobs", int)
typed = Queue("typed", Job)
others = Queue("others", int)
go = Signal("go", int)
line = Signal("jobs", int, buffer="all")  # of the same name as a queue: another thing
tick = Topic("tick", int)


@pytest.fixture
def clerk(app: App) -> Any:
    """A run that takes one job."""

    @app.workflow
    async def clerk(ctx: Context) -> int:
        return await ctx.wait(jobs)

    return clerk


@pytest.fixture
def busy(app: App) -> Any:
    """A run that takes so many jobs."""

    @app.workflow
    async def busy(ctx: Context, count: int) -> list[int]:
        return [await ctx.wait(jobs) for _ in range(count)]

    return busy


# --- put and taken -------------------------------------------------------------------------------


async def test_an_item_goes_to_the_run_that_waits_longest(world: Any, app: App, clerk: Any) -> None:
    async with world(app) as w:
        runs = []
        for name in ("c", "a", "b"):
            runs.append(await w.begin(clerk, id=name))
            await w.advance("1s")
        (waits,) = await w.app.waiting("c")
        assert (waits.kind, waits.target) == ("queue", "jobs")
        for n, name in enumerate(("c", "a", "b")):
            put = await w.app.put(jobs, n)
            assert isinstance(put, Delivered)
            assert (put.run_id, put.path) == (name, "jobs")
        await w.settle()
        assert [await run.result() for run in runs] == [0, 1, 2]
        assert isinstance(await w.app.put(jobs, 9), Queued)
        assert await w.app.queues() == {"jobs": 1}


async def test_items_are_taken_first_in_first_out(world: Any, app: App, busy: Any) -> None:
    async with world(app) as w:
        for n in range(5):
            assert isinstance(await w.app.put(jobs, n), Queued)
        run = await w.begin(busy, 7)
        assert await w.app.queues() == {}
        assert isinstance(await w.app.put(jobs, 5), Delivered)
        await w.settle()
        await w.app.put(jobs, 6)
        await w.settle()
        assert await run.result() == list(range(7))
        history = await run.history()
        assert {one.winner for one in history} == {"queue:jobs"}


async def test_an_item_that_is_there_is_taken_without_a_wait(
    world: Any, app: App, clerk: Any
) -> None:
    async with world(app) as w:
        await w.app.put(jobs, 1)
        run = await w.begin(clerk)
        assert await run.result() == 1
        counts = await w.store.counts()
        assert (counts["watchers"], counts["queue_items"]) == (0, 0)


async def test_each_item_goes_to_one_of_many_at_once(world: Any, app: App, clerk: Any) -> None:
    async with world(app) as w:
        starts = [w.app.start(clerk) for _ in range(30)]
        puts = [w.app.put(jobs, n) for n in range(30)]
        done = await asyncio.gather(
            *(one for pair in zip(starts, puts, strict=True) for one in pair)
        )
        await w.settle()
        taken = [await run.result() for run in done[::2]]
        assert sorted(taken) == list(range(30))
        assert await w.app.queues() == {}


async def test_branches_take_items_of_their_own(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return list(await ctx.gather(*(ctx.wait(jobs) for _ in range(3))))

    async with world(app) as w:
        await w.app.put(jobs, 0)
        run = await w.begin(flow)
        for n in (1, 2):
            put = await w.app.put(jobs, n)
            assert isinstance(put, Delivered)
            await w.settle()
        assert sorted(await run.result()) == [0, 1, 2]


async def test_queues_are_apart_from_each_other_and_from_signals(
    world: Any, app: App, clerk: Any
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(line)

    async with world(app) as w:
        listens = await w.begin(flow, id="a")
        takes = await w.begin(clerk)
        await w.app.put(others, 0)
        await w.app.put(jobs, 1)
        await w.app.signal("a", line, 2)
        await w.settle()
        assert (await takes.result(), await listens.result()) == (1, 2)
        assert await w.app.queues() == {"others": 1}


# --- which of several ----------------------------------------------------------------------------


async def test_a_signal_to_the_run_comes_before_an_item_for_anybody(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        await ctx.sleep("1s")
        return [await ctx.wait(jobs | go), await ctx.wait(jobs | go)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.put(jobs, 2)
        await w.app.signal("a", go, 1)
        await w.advance("1s")
        assert await run.result() == [1, 2]


async def test_of_several_queues_the_item_that_was_put_first_is_taken(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        won = [await ctx.first(o=others, j=jobs) for _ in range(3)]
        return [f"{one.name}{one.value}" for one in won]

    async with world(app) as w:
        await w.app.put(jobs, 1)
        await w.app.put(others, 2)
        await w.app.put(jobs, 3)
        run = await w.begin(flow)
        assert await run.result() == ["j1", "o2", "j3"]


async def test_a_wait_past_its_deadline_takes_nothing(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        got = await ctx.wait(jobs | timer("1h"))
        return "late" if got == TimedOut() else "in time"

    async with world(app) as w:
        run = await w.begin(flow)
        w.clock._now += 3600 * 1_000_000 + 1
        assert isinstance(await w.app.put(jobs, 1), Queued)
        await w.advance("1s")
        assert await run.result() == "late"
        assert await w.app.queues() == {"jobs": 1}


async def test_an_item_at_the_deadline_is_taken(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(jobs, timeout="1h")

    async with world(app) as w:
        run, late = await w.begin(flow), await w.begin(flow)
        w.clock._now += 3600 * 1_000_000
        assert isinstance(await w.app.put(jobs, 1), Delivered)
        await w.advance("1s")
        results = [await one.status() for one in (run, late)]
        assert sorted(results) == ["completed", "failed"]


async def test_a_timeout_leaves_the_next_item_to_others(world: Any, app: App, clerk: Any) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.wait(jobs, timeout="1h")
        except WaitTimeout:
            return "late"
        return "in time"

    async with world(app) as w:
        gone = await w.begin(flow)
        await w.advance("1h")
        assert await gone.result() == "late"
        stays = await w.begin(clerk)
        await w.app.put(jobs, 1)
        await w.settle()
        assert await stays.result() == 1


# --- types and keys ------------------------------------------------------------------------------


async def test_a_typed_queue_is_checked_before_anything_is_stored(world: Any, app: App) -> None:
    app.add(typed)

    @app.workflow
    async def flow(ctx: Context) -> str:
        return (await ctx.wait(typed)).name

    async with world(app) as w:
        with pytest.raises(InvalidPayload):
            await w.app.put(typed, {"name": 5})
        assert await w.app.queues() == {}
        await w.app.put(typed, Job("sweep"))
        assert await (await w.begin(flow)).result() == "sweep"
    async with world(App("memory://")) as w:  # by its name, from an app that has no such type
        with pytest.raises(InvalidPayload, match="typed"):
            await w.app.put("typed", {"name": 5})
        await w.app.put("typed", {"name": "wash"})
        assert await w.app.queues() == {"typed": 1}


async def test_an_item_that_does_not_fit_becomes_a_dead_letter(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return (await ctx.wait(typed)).name

    async with world(app) as w:
        bad = await w.app.put("typed", 5)
        await w.app.put("typed", {"name": "wash"})
        run = await w.begin(flow, id="a")
        assert await run.result() == "wash"
        (letter,) = await w.app.dead_letters()
        assert isinstance(bad, Queued)
        assert (letter.id, letter.kind, letter.name) == (bad.item_id, "item", "typed")
        assert letter.payload == 5
        (fact,) = await w.facts("signal.rejected")
        assert bad.item_id in fact.payload
        assert await w.app.queues() == {}


async def test_a_dead_letter_is_put_back_by_resend(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return (await ctx.wait(typed)).name

    @app.workflow
    async def reads_anything(ctx: Context) -> Any:
        return await ctx.wait(Queue("typed"))

    async with world(app) as w:
        await w.app.put("typed", 5)
        run = await w.begin(flow)
        (letter,) = await w.app.dead_letters()
        # Whoever waits for the queue takes it once more, and it is a letter again.
        assert isinstance(await w.app.resend(letter.id), Delivered)
        await w.settle()
        assert len(await w.app.dead_letters()) == 1
        await w.app.put("typed", {"name": "wash"})
        await w.settle()
        assert await run.result() == "wash"
        assert isinstance(await w.app.resend(letter.id), Queued)
        assert len(await w.app.dead_letters()) == 0
        assert await (await w.begin(reads_anything)).result() == 5


async def test_a_key_counts_once_within_its_queue_for_a_week(
    world: Any, app: App, busy: Any
) -> None:
    async with world(app) as w:
        run = await w.begin(busy, 2)
        first = await w.app.put(jobs, 1, key="k")
        assert isinstance(first, Delivered)
        assert await w.app.put(jobs, 1, key="k") == Duplicate(first)
        with pytest.raises(Conflict, match="'k'"):
            await w.app.put(jobs, 2, key="k")
        with pytest.raises(Conflict):
            await w.app.put(jobs, "x", key="k")
        assert isinstance(await w.app.put(others, 2, key="k"), Queued)
        await w.advance("8d")
        assert isinstance(await w.app.put(jobs, 2, key="k"), Delivered)
        await w.settle()
        assert await run.result() == [1, 2]


# --- from a workflow -----------------------------------------------------------------------------


@pytest.mark.parametrize("crash_after", range(3))
async def test_a_run_puts_each_item_once_across_a_crash(
    world: Any, app: App, clerk: Any, crash_after: int
) -> None:
    deadly = Deadly(crash_after)

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        told = []
        for n in range(3):
            told.append(type(await ctx.put(jobs, n, key=f"{n}")).__name__)
            await ctx.step(deadly.work, n)
        return told

    async with world(app) as w:
        await w.begin(clerk, id="clerk")
        await w.app.start(flow, id="a")
        await deadly.kill(w)
    async with world(app) as w:
        await w.settle()
        assert await w.app.run("a").result() == ["Delivered", "Queued", "Queued"]
        assert await w.app.run("clerk").result() == 0
        assert [one.payload for one in await w.app.queue_items(jobs)] == [1, 2]


async def test_a_refused_put_is_recorded_and_raised_again(world: Any, app: App) -> None:
    told: list[list[str]] = []
    app.add(typed)

    @app.workflow
    async def flow(ctx: Context) -> None:
        heard: list[str] = []
        told.append(heard)
        for call in (
            lambda: ctx.put(jobs, 2, key="k"),
            lambda: ctx.put("typed", 5, key="k"),
        ):
            try:
                await call()
            except (Conflict, InvalidPayload) as error:
                heard.append(f"{type(error).__name__}: {error}")
        heard.append(type(await ctx.put(jobs, 1, key="k")).__name__)
        await ctx.wait(go)

    async with world(app) as w:
        await w.app.put(jobs, 1, key="k")
        await w.begin(flow, id="a")
        await w.evict()
        await w.app.signal("a", go, 1)
        await w.settle()
        assert told[0] == told[-1] and len(told) > 1
        assert [one.split(":")[0] for one in told[0]] == ["Conflict", "InvalidPayload", "Duplicate"]


async def test_what_a_run_puts_may_go_to_its_own_branch(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        async def speak() -> str:
            await ctx.sleep("1s")
            return type(await ctx.put(jobs, 5)).__name__

        return list(await ctx.gather(ctx.wait(jobs), speak()))

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("1s")
        assert await run.result() == [5, "Delivered"]


# --- restarts and steering -----------------------------------------------------------------------


async def test_items_survive_a_restart(world: Any, app: App, busy: Any) -> None:
    async with world(app) as w:
        await w.begin(busy, 4, id="a")
        await w.app.put(jobs, 0)
        await w.settle()
        await w.app.run("a").pause()
        await w.settle()
        await w.app.put(jobs, 1)
    async with world(app) as w:
        await w.app.put(jobs, 2)
        await w.crash()
    async with world(app) as w:
        assert await w.app.queues() == {"jobs": 2}
        await w.app.run("a").resume()
        await w.settle()
        await w.app.put(jobs, 3)
        await w.settle()
        assert await w.app.run("a").result() == [0, 1, 2, 3]


async def test_a_paused_run_takes_nothing(world: Any, app: App, clerk: Any) -> None:
    async with world(app) as w:
        stopped, other = await w.begin(clerk), await w.begin(clerk)
        await stopped.pause()
        await w.settle()
        await w.app.put(jobs, 1)
        await w.settle()
        assert await other.result() == 1
        assert isinstance(await w.app.put(jobs, 2), Queued)
        await stopped.resume()
        await w.settle()
        assert await stopped.result() == 2


@pytest.mark.parametrize("waits", [True, False])
async def test_an_item_taken_in_the_moment_of_a_cancel_is_given_back(
    world: Any, app: App, clerk: Any, waits: bool
) -> None:
    """The item and the cancel come before the run's code has a turn."""
    async with world(app) as w:
        run = await w.begin(clerk)
        await w.app.put(others, 0)
        put, _, second = await asyncio.gather(w.app.put(jobs, 1), run.cancel(), w.app.put(jobs, 2))
        assert isinstance(put, Delivered) and isinstance(second, Queued)
        next_clerk = await w.app.start(clerk) if waits else None
        await w.settle()
        status = await run.status()
        if status == "cancelled":
            with pytest.raises(RunCancelled):
                await run.result()
            left = [1, 2]
        else:
            assert await run.result() == 1
            left = [2]
        if next_clerk is not None:
            assert await next_clerk.result() in left
            left.remove(await next_clerk.result())
        assert [one.payload for one in await w.app.queue_items(jobs)] == left
        assert not await check_invariants(w.store)


async def fails(ctx: Context) -> None:
    await ctx.wait(go)
    raise ValueError("no")


async def takes(ctx: Context) -> int:
    return await ctx.wait(jobs)


async def test_an_item_that_a_left_branch_had_taken_is_the_first_again(
    world: Any, app: App
) -> None:
    """One branch fails over what it took; what its siblings took with it goes back, in order."""

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        await ctx.sleep("1s")
        try:
            await ctx.gather(fails(ctx), takes(ctx), takes(ctx), takes(ctx))
        except ValueError:
            return [await ctx.wait(jobs), await ctx.wait(jobs), await ctx.wait(jobs)]
        return []

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", go, 1)
        await w.app.put(jobs, 1)
        await w.app.put(jobs, 2)
        await w.advance("1s")
        assert await run.status() == "waiting"
        await w.app.put(jobs, 3)
        await w.settle()
        assert sorted(await run.result()) == [1, 2, 3]
        assert await w.app.queues() == {}
        assert not await check_invariants(w.store)


async def test_what_a_left_branch_gives_back_may_go_to_another_branch_of_the_run(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        async def inner() -> int:
            try:
                await ctx.gather(fails(ctx), takes(ctx))
            except ValueError:
                return await ctx.wait(Signal("end", int))
            return 0

        async def outer() -> int:
            await ctx.set("took", took := await takes(ctx))
            return took

        await ctx.sleep("1s")
        return list(await ctx.gather(inner(), outer()))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", go, 1)
        await w.app.put(jobs, 1)
        await w.advance("1s")
        # The item went from the one to the other, and the run went on with it at once.
        assert await run.get("took") == 1
        assert [one.target for one in await run.waiting()] == ["end"]
        assert not await check_invariants(w.store)
        await w.app.signal("a", "end", 2)
        await w.settle()
        assert await run.result() == [2, 1]
        assert await w.app.queues() == {}


async def test_a_turn_that_gives_an_item_to_another_branch_does_not_park_over_it(
    world: Any, app: App
) -> None:
    """The same in ops: the turn that leaves the wait wants to park the run and let it go."""
    async with world(app, worker=False) as w:
        d = Driver(w.store, w.clock)
        await d.start("r")
        await d.apply(ops.Put(item_id="i", queue="q", payload="1"))
        on = Condition("queue", "q")
        await d.suspend("r", wait("g[0]/x", on), wait("g[1]/x", on))
        left = {"closed": ("g[0]/x",), "release": True}
        advanced = await d.suspend("r", wait("end", Condition("signal", "end")), **left)
        run = await d.run("r")
        assert (run.status, run.revision) == ("running", 1)
        assert (advanced.parked, advanced.revision) == (False, 1)
        assert (await d.step("r", "g[1]/x")).value == "1"


async def test_a_retried_run_gives_back_what_it_took_after_the_failure(
    world: Any, app: App
) -> None:
    broken = True

    @step
    async def work(n: int) -> int:
        if broken:
            raise ValueError("no")
        return n

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        first = await ctx.wait(jobs)
        try:
            await ctx.step(work, first)
        finally:
            second = await ctx.wait(jobs)
        return [first, second]

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.put(jobs, 1)
        await w.app.put(jobs, 2)
        await w.settle()
        assert await run.status() == "failed"
        broken = False
        await w.app.put(jobs, 3)
        await run.retry()
        await w.settle()
        assert await run.result() == [1, 2]
        assert [one.payload for one in await w.app.queue_items(jobs)] == [3]


async def test_continue_as_goes_on_with_the_queue(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, seen: list[int]) -> list[int]:
        seen = [*seen, await ctx.wait(jobs)]
        if len(seen) < 4:
            await ctx.continue_as(flow, seen)
        return seen

    async with world(app) as w:
        await w.app.put(jobs, 0)
        await w.app.put(jobs, 1)
        run = await w.begin(flow, [])
        await w.app.put(jobs, 2)
        await w.settle()
        await w.app.put(jobs, 3)
        await w.settle()
        assert await run.result() == [0, 1, 2, 3]


# --- listing and purging -------------------------------------------------------------------------


async def test_a_queue_is_listed_in_pages(world: Any, app: App) -> None:
    async with world(app) as w:
        for n in range(5):
            await w.app.put(jobs, n)
        await w.app.put(others, 9)
        assert await w.app.queues() == {"jobs": 5, "others": 1}
        seen: list[int] = []
        after = None
        while True:
            page = await w.app.queue_items("jobs", limit=2, after=after)
            seen += [one.payload for one in page]
            after = page.cursor
            if after is None:
                break
        assert seen == list(range(5))
        (item,) = await w.app.queue_items(others)
        assert (item.queue, item.put_at) == ("others", w.clock.moment)
        assert len(await w.app.queue_items("empty")) == 0


async def test_a_queue_is_purged_of_all_or_of_what_is_old(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "batch_ops_max", 2)
    async with world(app) as w:
        for n in range(5):
            await w.app.put(jobs, n)
        await w.advance("2h")
        await w.app.put(jobs, 5)
        await w.app.put(others, 6)
        assert await w.app.purge(jobs, older_than="3h") == 0
        assert await w.app.purge(jobs, older_than=timedelta(hours=1)) == 5
        assert [one.payload for one in await w.app.queue_items(jobs)] == [5]
        assert await w.app.purge("jobs") == 1
        assert await w.app.purge("jobs") == 0
        assert await w.app.queues() == {"others": 1}


async def test_an_event_that_came_first_is_not_overtaken_by_an_item(
    world: Any, app: App, clerk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run waits for both; the event is on its way to it in a later commit when the item comes."""

    @app.workflow
    async def either(ctx: Context) -> str:
        won = await ctx.first(t=tick, q=jobs)
        return won.name

    async with world(app) as w:
        for n in range(4):
            await w.begin(either, id=f"r{n}")
        monkeypatch.setattr(limits, "resumed_per_commit_max", 1)
        monkeypatch.setattr(w.worker, "_fan_out", lambda: None)
        assert (await w.app.emit(tick, 1)).more
        assert isinstance(await w.app.put(jobs, 1), Queued)
        monkeypatch.undo()
        await w.settle()
        assert [await w.app.run(f"r{n}").result() for n in range(4)] == ["t"] * 4
        assert await w.app.queues() == {"jobs": 1}
