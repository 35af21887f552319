"""Topics: every run that waits for an event goes on with it, once; early ones are kept; a loop misses none."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from worlds import Deadly

from perdure import (
    App,
    Buffered,
    Cause,
    Conflict,
    Context,
    Duplicate,
    Emitted,
    Fact,
    InvalidPayload,
    PerdureError,
    Queue,
    Refused,
    RunCancelled,
    RunFailed,
    Signal,
    TimedOut,
    Topic,
    WaitTimeout,
    Won,
    step,
    telling,
    timer,
)
from perdure.model import limits
from perdure.testing.conformance import check_invariants


@dataclass
class Arrival:
    quantity: int


arrived = Topic("stock.arrived", Arrival)
tick = Topic("tick", int)
tock = Topic("tock", int)
go = Signal("go", int)
jobs = Queue("jobs", int)


@pytest.fixture
def one(app: App) -> Any:
    """A run that waits for one tick."""

    @app.workflow
    async def one(ctx: Context) -> int:
        return await ctx.wait(tick)

    return one


@pytest.fixture
def three(app: App) -> Any:
    """A run that collects three ticks."""

    @app.workflow
    async def three(ctx: Context) -> list[int]:
        return [await ctx.wait(tick) for _ in range(3)]

    return three


# --- delivered -----------------------------------------------------------------------------------


async def test_an_event_ends_the_wait_with_its_typed_payload(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return (await ctx.wait(arrived)).quantity

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        (waits,) = await w.app.waiting("a")
        assert (waits.kind, waits.target, waits.entity) == ("topic", "stock.arrived", None)
        told = await w.app.emit(arrived, Arrival(4))
        assert isinstance(told, Emitted)
        assert (told.resumed, told.more) == (1, False)
        await w.settle()
        assert await run.result() == 4
        (entry,) = await run.history()
        assert (entry.status, entry.winner) == ("done", "topic:stock.arrived")
        assert await w.app.waiting("a") == []


async def test_every_run_that_waits_goes_on_and_none_twice(world: Any, app: App, one: Any) -> None:
    async with world(app) as w:
        runs = [await w.begin(one) for _ in range(5)]
        told = await w.app.emit(tick, 7)
        assert told.resumed == 5
        await w.settle()
        assert [await run.result() for run in runs] == [7] * 5
        assert (await w.app.emit(tick, 8)).resumed == 0


async def test_only_events_about_the_entity_count(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, sku: str) -> int:
        return await ctx.wait(tick.about(sku))

    async with world(app) as w:
        run = await w.begin(flow, "sku/7/blue")
        (waits,) = await run.waiting()
        assert waits.entity == "sku/7/blue"
        for entity in ("sku/7", "sku/8", None, "other/7/blue"):
            assert (await w.app.emit(tick, 1, entity=entity)).resumed == 0
        assert (await w.app.emit(tick, 2, entity="sku/7/blue")).resumed == 1
        await w.settle()
        assert await run.result() == 2


async def test_a_wait_without_an_entity_takes_events_about_any(
    world: Any, app: App, three: Any
) -> None:
    async with world(app) as w:
        run = await w.begin(three)
        for nth, entity in enumerate((None, "sku/7", "run/x")):
            await w.app.emit(tick, nth, entity=entity)
        await w.settle()
        assert await run.result() == [0, 1, 2]


async def test_an_event_of_another_topic_ends_nothing(world: Any, app: App, one: Any) -> None:
    async with world(app) as w:
        run = await w.begin(one)
        for name in ("tic", "ticks", "tick.tick"):
            assert (await w.app.emit(name, 1)).resumed == 0
        assert await run.status() == "waiting"


# --- early ---------------------------------------------------------------------------------------


async def test_an_event_after_the_start_and_before_the_wait_is_kept(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        await ctx.sleep("1h")
        return [await ctx.wait(tick), await ctx.wait(tick)]

    async with world(app) as w:
        await w.app.emit(tick, 0)  # before the run was: not for it
        run = await w.begin(flow)
        await w.app.emit(tick, 1)
        await w.app.emit(tick, 2)
        await w.advance("1h")
        assert await run.result() == [1, 2]


async def test_an_event_before_a_run_that_starts_later_is_kept(
    world: Any, app: App, one: Any
) -> None:
    async with world(app) as w:
        run = await w.begin(one, start_at="1h")
        await w.app.emit(tick, 1)
        await w.advance("1h")
        assert await run.result() == 1


async def test_a_loop_sees_each_event_once_and_in_order(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        seen = []
        for _ in range(6):
            seen.append(await ctx.wait(tick))
            await ctx.sleep("1s")  # events come while it is not waiting
        return seen

    async with world(app) as w:
        run = await w.begin(flow)
        for n in range(0, 6, 2):
            await w.app.emit(tick, n)
            await w.app.emit(tick, n + 1)
            await w.advance("1s")
        await w.advance("3s")
        assert await run.result() == list(range(6))


async def test_an_early_event_about_a_run_is_found(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.sleep("1s")
        return await ctx.wait(tick.about("run/x"))

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.emit(tick, 1, entity="run/y")
        await w.app.emit(tick, 2, entity="run/x")
        await w.advance("1s")
        assert await run.result() == 2


# --- since and deliver ---------------------------------------------------------------------------


async def test_since_says_where_a_wait_begins(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, since: Any) -> int:
        await ctx.sleep("1s")
        return await ctx.wait(tick.about(since=since))

    async with world(app) as w:
        await w.app.emit(tick, 0)
        runs = {since: await w.begin(flow, since) for since in ("ever", "start", "now")}
        await w.app.emit(tick, 1)
        await w.advance("1s")
        assert await runs["now"].status() == "waiting"
        await w.app.emit(tick, 2)
        await w.settle()
        results = {since: await run.result() for since, run in runs.items()}
        assert results == {"ever": 0, "start": 1, "now": 2}


async def test_since_now_misses_nothing_between_two_waits_of_a_loop(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        seen: list[Any] = []
        for _ in range(3):
            seen.append(await ctx.wait(tick.about(since="now") | timer("1s")))
            await ctx.sleep("1s")
        return [None if one == TimedOut() else one for one in seen]

    async with world(app) as w:
        await w.app.emit(tick, 0)
        run = await w.begin(flow)
        await w.advance("1500ms")  # the first wait ran out of time
        await w.app.emit(tick, 1)
        await w.app.emit(tick, 2)
        await w.advance("10s")
        assert await run.result() == [None, 1, 2]


async def test_latest_skips_to_the_newest_of_those_that_came_early(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        await ctx.sleep("1s")
        latest = tick.about(deliver="latest")
        return [await ctx.wait(latest), await ctx.wait(latest)]

    async with world(app) as w:
        run = await w.begin(flow)
        for n in range(4):
            await w.app.emit(tick, n)
        await w.advance("1s")
        await w.app.emit(tick, 9)
        await w.settle()
        assert await run.result() == [3, 9]


async def test_ever_and_latest_give_the_newest_there_is(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(tick.about("sku/7", since="ever", deliver="latest"))

    async with world(app) as w:
        for n, sku in enumerate(("sku/7", "sku/7", "sku/8")):
            await w.app.emit(tick, n, entity=sku)
        run = await w.begin(flow)
        assert await run.result() == 1


# --- which of several ----------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["go", "jobs", "tick", "child", "timer"])
async def test_a_union_ends_by_whatever_comes_first(world: Any, app: App, first: str) -> None:
    @app.workflow
    async def child(ctx: Context) -> str:
        await ctx.wait(Signal("end"))
        return "child"

    @app.workflow
    async def flow(ctx: Context) -> Any:
        started = await ctx.start(child, id="child")
        won = await ctx.wait(tick | go | jobs | started | timer("1h"))
        return "timer" if won == TimedOut() else won

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        match first:
            case "go":
                await w.app.signal("a", go, 1)
            case "jobs":
                await w.app.put(jobs, 1)
            case "tick":
                await w.app.emit(tick, 1)
            case "child":
                await w.app.signal("child", "end")
            case _:
                await w.advance("1h")
        await w.settle()
        assert await run.result() == (first if first in ("child", "timer") else 1)
        # The losers took nothing and watch nothing.
        assert (await w.app.emit(tick, 2)).resumed == 0
        await w.app.put(jobs, 2)
        assert await w.app.queues() == {"jobs": 1}


async def test_of_what_is_there_the_order_is_signal_run_queue_topic(world: Any, app: App) -> None:
    @app.workflow
    async def over(ctx: Context) -> str:
        return "run"

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        ended = await ctx.start(over)
        await ctx.sleep("1s")
        every = tick | jobs | go
        seen = [await ctx.wait(every | ended), await ctx.wait(every | ended)]
        return [*seen, await ctx.wait(every), await ctx.wait(every)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.emit(tick, 4)
        await w.app.put(jobs, 3)
        await w.app.signal("a", go, 1)
        await w.advance("1s")
        assert await run.result() == [1, "run", 3, 4]


async def test_of_several_topics_the_event_that_was_recorded_first_wins(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        await ctx.sleep("1s")
        won = [await ctx.first(a=tock, b=tick) for _ in range(3)]
        return [(one.name, one.value) for one in won]

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.emit(tick, 1)
        await w.app.emit(tock, 2)
        await w.app.emit(tick, 3)
        await w.advance("1s")
        assert await run.result() == [("b", 1), ("a", 2), ("b", 3)]


async def test_only_the_winners_cursor_moves(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        await ctx.wait(tick | go)
        return [await ctx.wait(tick), await ctx.wait(tick)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", go, 0)
        await w.app.emit(tick, 1)
        await w.app.emit(tick, 2)
        await w.settle()
        assert await run.result() == [1, 2]


async def test_a_topic_named_twice_in_a_wait_ends_it_once_by_its_first_mention(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        twice = {"own": tick.about("sku/7"), "any": tick}
        return [(await ctx.first(**twice)).name, (await ctx.first(**twice)).name]

    async with world(app) as w:
        run = await w.begin(flow)
        assert (await w.app.emit(tick, 1, entity="sku/7")).resumed == 1
        await w.settle()
        # For any entity that event is still to come: each mention has its own cursor.
        assert await run.result() == ["own", "any"]


async def test_first_says_which_topic_won(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        won = await ctx.first(t=tick, q=jobs, late=timer("1h"))
        assert won == Won("t", 5)
        return won.name

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.emit(tick, 5)
        await w.settle()
        assert await run.result() == "t"


# --- deadlines -----------------------------------------------------------------------------------


async def test_a_wait_for_a_topic_times_out(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.wait(tick, timeout="1h")
        except WaitTimeout:
            return f"late, then {await ctx.wait(tick)}"
        return "in time"

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("1h")
        assert (await w.app.emit(tick, 3)).resumed == 1
        await w.settle()
        assert await run.result() == "late, then 3"


async def test_an_event_at_the_deadline_wins(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> Any:
        return await ctx.wait(tick | timer("1h"))

    async with world(app) as w:
        run = await w.begin(flow)
        w.clock._now += 3600 * 1_000_000  # the hour is full and nobody has looked yet
        assert (await w.app.emit(tick, 3)).resumed == 1
        await w.advance("1s")
        assert await run.result() == 3


async def test_an_event_after_the_deadline_is_for_a_later_wait(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        first = await ctx.wait(tick | timer("1h"))
        return [first == TimedOut(), await ctx.wait(tick)]

    async with world(app) as w:
        run = await w.begin(flow)
        w.clock._now += 3600 * 1_000_000 + 1
        assert (await w.app.emit(tick, 3)).resumed == 0
        await w.advance("1s")
        assert await run.result() == [True, 3]


# --- branches ------------------------------------------------------------------------------------


async def test_each_branch_has_its_own_cursor(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[list[int]]:
        async def collect(count: int) -> list[int]:
            return [await ctx.wait(tick) for _ in range(count)]

        return list(await ctx.gather(collect(1), collect(3), collect(2)))

    async with world(app) as w:
        run = await w.begin(flow)
        for n in range(3):
            await w.app.emit(tick, n)
            await w.settle()
        assert await run.result() == [[0], [0, 1, 2], [0, 1]]


async def test_a_branch_inherits_what_its_parent_has_seen(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        seen: list[Any] = [await ctx.wait(tick)]

        async def flat() -> int:
            return await ctx.wait(tick)

        async def deep() -> list[Any]:
            return [await ctx.wait(tick), *await ctx.gather(flat(), flat())]

        seen += await ctx.gather(deep(), flat())
        return [*seen, await ctx.wait(tick)]  # what its branches have seen, it has not

    async with world(app) as w:
        run = await w.begin(flow)
        for n in range(3):
            await w.app.emit(tick, n)
        await w.settle()
        assert await run.result() == [0, [1, 2, 2], 1, 1]


async def test_an_event_resumes_several_branches_of_a_run_together(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return list(await ctx.gather(ctx.wait(tick), ctx.wait(tick.about("a/b")), ctx.wait(tick)))

    async with world(app) as w:
        run = await w.begin(flow)
        assert (await w.app.emit(tick, 5, entity="a/b")).resumed == 1  # run
        await w.settle()
        assert await run.result() == [5, 5, 5]


async def test_what_a_run_emits_reaches_its_own_branches(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        async def speak() -> int:
            await ctx.sleep("1s")
            told = await ctx.emit(tick, 5)
            return told.resumed  # type: ignore[union-attr]

        return list(await ctx.gather(ctx.wait(tick), speak(), ctx.wait(tick)))

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("1s")
        assert await run.result() == [5, 1, 5]


async def test_a_scope_is_no_branch(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        with ctx.scope("inner"):
            first = await ctx.wait(tick)
        return [first, await ctx.wait(tick)]

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.emit(tick, 1)
        await w.app.emit(tick, 2)
        await w.settle()
        assert await run.result() == [1, 2]


# --- generations ---------------------------------------------------------------------------------


async def test_continue_as_keeps_the_cursors(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, seen: list[int]) -> list[int]:
        seen = [*seen, await ctx.wait(tick), await ctx.wait(tick)]
        if len(seen) < 6:
            await ctx.continue_as(flow, seen)
        return seen

    async with world(app) as w:
        await w.app.emit(tick, 99)
        run = await w.begin(flow, [])
        for n in range(3):
            await w.app.emit(tick, n)
        await w.settle()
        await w.evict()
        for n in range(3, 6):
            await w.app.emit(tick, n)
            await w.settle()
        assert await run.result() == list(range(6))


async def test_a_new_generation_finds_what_came_before_it(world: Any, app: App) -> None:
    @app.workflow
    async def second(ctx: Context) -> int:
        return await ctx.wait(tick)

    @app.workflow
    async def first(ctx: Context) -> int:
        await ctx.wait(go)
        await ctx.continue_as(second)

    async with world(app) as w:
        run = await w.begin(first, id="a")
        await w.app.emit(tick, 1)
        await w.app.signal("a", go, 0)
        await w.settle()
        assert await w.app.run(run.id).result() == 1


# --- steering ------------------------------------------------------------------------------------


async def test_an_event_while_paused_waits_for_the_resume(world: Any, app: App, three: Any) -> None:
    async with world(app) as w:
        run = await w.begin(three)
        await w.app.emit(tick, 0)
        await w.settle()
        await run.pause()
        await w.settle()
        assert (await w.app.emit(tick, 1)).resumed == 0
        assert (await w.app.emit(tick, 2)).resumed == 0
        assert await run.status() == "paused"
        await run.resume()
        await w.settle()
        assert await run.result() == [0, 1, 2]


async def test_a_pause_keeps_the_deadline_and_what_came_before_it(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        seen = [await ctx.wait(tick | timer("1h")), await ctx.wait(tick | timer("1h"))]
        return [None if one == TimedOut() else one for one in seen]

    async with world(app) as w:
        run = await w.begin(flow)
        await run.pause()
        await w.settle()
        await w.app.emit(tick, 1)
        await w.advance("2h")
        await w.app.emit(tick, 2)  # too late for the first wait, in time for the second
        await run.resume()
        await w.settle()
        assert await run.result() == [1, 2]


async def test_since_now_does_not_begin_anew_at_a_resume(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(tick.about(since="now"))

    async with world(app) as w:
        run = await w.begin(flow)
        await run.pause()
        await w.settle()
        await w.app.emit(tick, 1)
        await run.resume()
        await w.settle()
        assert await run.result() == 1


async def test_a_cancelled_run_waits_no_more(world: Any, app: App) -> None:
    cleaned: list[int] = []

    @app.workflow
    async def flow(ctx: Context) -> None:
        try:
            await ctx.wait(tick)
        except asyncio.CancelledError:
            cleaned.append(await ctx.wait(tick))  # clean-up may wait as well
            raise

    async with world(app) as w:
        run = await w.begin(flow)
        await run.cancel()
        await w.settle()
        assert (await w.app.emit(tick, 1)).resumed == 1
        await w.settle()
        with pytest.raises(RunCancelled):
            await run.result()
        assert set(cleaned) == {1}
        assert (await w.app.emit(tick, 2)).resumed == 0


async def test_a_retried_run_sees_again_what_it_took_after_the_failure(
    world: Any, app: App
) -> None:
    broken = True

    @step
    async def work(n: int) -> int:
        if broken and n == 2:
            raise ValueError("no")
        return n

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return [await ctx.step(work, await ctx.wait(tick)) for _ in range(3)]

    async with world(app) as w:
        run = await w.begin(flow)
        for n in range(1, 4):
            await w.app.emit(tick, n)
            await w.settle()
        assert await run.status() == "failed"
        broken = False
        await run.retry()
        await w.settle()
        assert await run.result() == [1, 2, 3]


async def test_a_wait_that_timed_out_can_be_retried(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(tick, timeout="1h")

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("1h")
        assert await run.status() == "failed"
        await w.app.emit(tick, 1)
        await run.retry()
        await w.settle()
        assert await run.result() == 1


async def test_a_sibling_that_is_left_gives_its_event_back(world: Any, app: App) -> None:
    """Both branches are told in one commit; the first one fails, and the second has seen nothing."""

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        async def fails() -> None:
            await ctx.wait(tick)
            raise ValueError("no")

        async def loops() -> None:
            while True:
                await ctx.wait(tick)

        try:
            await ctx.gather(fails(), loops())
        except ValueError:
            return [await ctx.wait(tick), await ctx.wait(tick)]
        return []

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.emit(tick, 1)
        await w.app.emit(tick, 2)
        await w.settle()
        assert await run.result() == [1, 2]
        assert not await check_invariants(w.store)


# --- across restarts -----------------------------------------------------------------------------


async def test_a_restart_in_the_midst_of_waits_loses_nothing(
    world: Any, app: App, three: Any
) -> None:
    async with world(app) as w:
        await w.begin(three, id="a")
        await w.app.emit(tick, 0)
        await w.settle()
    client = App("memory://")
    async with world(client, worker=False) as w:
        await w.app.emit("tick", 1)
    async with world(app) as w:
        await w.app.emit(tick, 2)
        await w.settle()
        assert await w.app.run("a").result() == [0, 1, 2]


async def test_a_crash_in_the_midst_of_waits_loses_nothing(
    world: Any, app: App, three: Any
) -> None:
    async with world(app) as w:
        await w.begin(three, id="a")
        await w.app.emit(tick, 0)
        await w.settle()
        await w.app.emit(tick, 1)
        await w.crash()
    async with world(app) as w:
        await w.settle()
        await w.app.emit(tick, 2)
        await w.settle()
        assert await w.app.run("a").result() == [0, 1, 2]


@pytest.mark.parametrize("crash_after", range(4))
async def test_events_are_emitted_once_across_a_crash(
    world: Any, app: App, crash_after: int
) -> None:
    deadly = Deadly(crash_after)

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        positions: list[int] = []
        for n in range(4):
            told = await ctx.emit(tick, n, entity="sku/7")
            assert isinstance(told, Emitted)
            positions.append(told.position)
            many = await ctx.emit_many([(tock, n), (tock, n, "sku/7"), Fact(topic="x", payload=n)])
            positions += [one.position for one in many if isinstance(one, Emitted)]
            await ctx.step(deadly.work, n)
        return positions

    async with world(app) as w:
        await w.app.start(flow, id="a")
        await deadly.kill(w)
    async with world(app) as w:
        await w.settle()
        positions = await w.app.run("a").result()
        told = [one for one in await w.facts() if one.type in ("tick", "tock", "x")]
        assert [one.position for one in told] == positions
        assert [one.payload for one in told if one.type == "tick"] == ["0", "1", "2", "3"]
        assert len({one.event_id for one in told}) == 16


async def test_an_emit_is_not_repeated_by_a_replay(world: Any, app: App) -> None:
    answers: list[Any] = []

    @app.workflow
    async def flow(ctx: Context) -> None:
        answers.append(
            [
                await ctx.emit(tick, 1),
                await ctx.emit(tick, 2, key="k"),
                await ctx.emit(tick, 2, key="k"),
                await ctx.emit_many([]),
            ]
        )
        await ctx.wait(go)

    async with world(app) as w:
        await w.begin(flow, id="a")
        await w.evict()
        await w.app.signal("a", go, 1)
        await w.settle()
        assert answers[0] == answers[-1] and len(answers) > 1
        assert isinstance(answers[0][2], Duplicate)
        assert answers[0][2].of == answers[0][1]
        assert answers[0][3] == []
        assert len(await w.facts("tick")) == 2


# --- refusals ------------------------------------------------------------------------------------


async def test_a_refused_emit_is_recorded_and_raised_again(world: Any, app: App) -> None:
    told: list[list[str]] = []
    named = "01J0000000000000000000000A"
    app.add(arrived)

    @app.workflow
    async def flow(ctx: Context) -> None:
        heard: list[str] = []
        told.append(heard)
        calls = (
            lambda: ctx.emit(tick, 2, key="k"),
            lambda: ctx.emit("stock.arrived", {"quantity": "many"}, key="other"),
            lambda: ctx.emit(tick, 2, event_id=named),
            lambda: ctx.emit_many([(tock, 1), Fact(topic=tick, payload=2, key="k")]),
        )
        for call in calls:
            try:
                await call()
            except PerdureError as error:
                heard.append(f"{type(error).__name__}: {error}")
        await ctx.wait(go)

    async with world(app) as w:
        await w.app.emit(tick, 1, key="k")
        await w.app.emit(tick, 1, event_id=named)
        await w.begin(flow, id="a")
        await w.evict()
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await w.app.run("a").status() == "completed"
        assert told[0] == told[-1] and len(told) > 1
        kinds = [one.split(":")[0] for one in told[0]]
        assert kinds == ["Conflict", "InvalidPayload", "Conflict", "Conflict"]
        assert await w.facts("tock") == []  # all of them or none


async def test_events_of_one_step_that_contradict_each_other_are_none(world: Any, app: App) -> None:
    named = "01J0000000000000000000000B"

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        told = []
        for twice in (
            [Fact(topic=tick, payload=1, key="k"), Fact(topic=tick, payload=2, key="k")],
            [Fact(topic=tick, payload=n, event_id=named) for n in (1, 2)],
        ):
            try:
                await ctx.emit_many(twice)
            except Conflict as error:
                told.append(str(error))
        same = await ctx.emit_many([Fact(topic=tick, payload=3, key="s")] * 2)
        return [*told, *(type(one).__name__ for one in same)]

    async with world(app) as w:
        run = await w.begin(flow)
        told = await run.result()
        assert "'k'" in told[0] and named in told[1]
        assert told[2:] == ["Emitted", "Duplicate"]
        assert [one.payload for one in await w.facts("tick")] == ["3"]


async def test_each_of_many_events_has_its_own_answer(world: Any, app: App) -> None:
    async with world(app) as w:
        await w.app.emit(tick, 1, key="k")
        answers = await w.app.emit_many(
            [
                (tick, 1),
                (tick, "x"),
                Fact(topic=tick, payload=1, key="k"),
                Fact(topic=tick, payload=2, key="k"),
                (tick, 2, "sku/7"),
                ("workflow.run_failed", {}),
                5,  # type: ignore[list-item]
            ]
        )
        shown = [type(one.error if isinstance(one, Refused) else one).__name__ for one in answers]
        bad = ["BadValue", "BadValue"]
        assert shown == ["Emitted", "InvalidPayload", "Duplicate", "Conflict", "Emitted", *bad]
        assert len(await w.facts("tick")) == 3


async def test_many_events_are_emitted_in_their_order(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "events_per_op_max", 7)
    async with world(app) as w:
        answers = await w.app.emit_many([(tick, n) for n in range(100)])
        positions = [one.position for one in answers if isinstance(one, Emitted)]
        assert len(positions) == 100 and positions == sorted(positions)
        assert [int(one.payload) for one in await w.facts("tick")] == list(range(100))


# --- keys and ids --------------------------------------------------------------------------------


async def test_a_key_counts_once_within_its_topic_for_a_week(
    world: Any, app: App, one: Any
) -> None:
    async with world(app) as w:
        first = await w.app.emit(tick, 1, key="k", entity="sku/7")
        again = await w.app.emit(tick, 1, key="k", entity="sku/7")
        assert again == Duplicate(first)
        assert isinstance(await w.app.emit(tock, 1, key="k"), Emitted)  # another topic
        for payload, entity in ((2, "sku/7"), (1, "sku/8"), (1, None)):
            with pytest.raises(Conflict, match="key 'k'"):
                await w.app.emit(tick, payload, key="k", entity=entity)
        # Whether the key was used comes before what is wrong with the payload.
        with pytest.raises(Conflict):
            await w.app.emit(tick, "x", key="k")  # type: ignore[arg-type]
        with pytest.raises(InvalidPayload):
            await w.app.emit(tick, "x", key="fresh")  # type: ignore[arg-type]
        run = await w.begin(one)
        await w.app.emit(tick, 1, key="k", entity="sku/7")
        await w.settle()
        assert await run.status() == "waiting"  # a duplicate resumes nobody
        await w.advance("8d")
        assert isinstance(await w.app.emit(tick, 2, key="k"), Emitted)
        await w.settle()
        assert await run.result() == 2


async def test_the_id_of_a_signal_is_not_given_to_an_event(world: Any, app: App) -> None:
    """The fact that tells of its end could not be told, and so the run could not end."""

    @app.workflow
    async def waits(ctx: Context) -> Any:
        return await ctx.wait(Signal("go"))

    async with world(app) as w:
        await w.begin(waits, id="one")
        kept = await w.app.signal("one", "later")
        assert isinstance(kept, Buffered)
        with pytest.raises(Conflict, match="that of a signal"):
            await w.app.emit(tick, 1, event_id=kept.signal_id)
        (refused,) = await w.app.emit_many([Fact(topic=tick, payload=1, event_id=kept.signal_id)])
        assert isinstance(refused, Refused)
        await w.app.signal("one", "go", 5)
        await w.settle()
        assert await w.app.run("one").status() == "completed"
        status = await w.app.signal_status(kept.signal_id)
        assert status is not None
        with pytest.raises(Conflict):
            await w.app.emit(tick, 1, event_id=kept.signal_id)


async def test_an_event_id_counts_once(world: Any, app: App) -> None:
    named = "01J0000000000000000000000C"
    async with world(app) as w:
        first = await w.app.emit(tick, 1, event_id=named, entity="sku/7")
        assert isinstance(first, Emitted) and first.event_id == named
        again = await w.app.emit(tick, 1, event_id=named, entity="sku/7")
        assert again == Duplicate(Emitted(named, first.position))
        for topic, payload, entity in ((tick, 2, "sku/7"), (tock, 1, "sku/7"), (tick, 1, None)):
            with pytest.raises(Conflict, match=named):
                await w.app.emit(topic, payload, event_id=named, entity=entity)
        with pytest.raises(Conflict, match=named):  # it is looked at before the payload
            await w.app.emit(tick, "x", event_id=named, entity="sku/7")  # type: ignore[misc]
        with pytest.raises(InvalidPayload, match="Expected `int`"):
            await w.app.emit(tick, "x", event_id="01J0000000000000000000000D")  # type: ignore[misc]
        assert len(await w.facts("tick")) == 1
        found = await w.app.event(named)
        assert found is not None and (found.payload, found.entity) == (1, "sku/7")
        assert await w.app.event("01J0000000000000000000000D") is None
        assert await w.app.signal_status(named) is None  # it is none


# --- what an event says --------------------------------------------------------------------------


async def test_an_event_knows_its_times_cause_and_trace(world: Any, app: App) -> None:
    happened = datetime(2020, 2, 3, tzinfo=UTC)
    async with world(app) as w:
        told = await w.app.emit(tick, 1, occurred_at=happened, trace="00-ab-cd-01")
        event = await w.app.latest(tick)
        assert event is not None and told.position == event.position
        assert (event.occurred_at, event.recorded_at) == (happened, w.clock.moment)
        assert (event.caused_by, event.root_id, event.trace) == (
            None,
            event.event_id,
            "00-ab-cd-01",
        )
        await w.app.emit(tick, 2, caused_by=event)
        caused = await w.app.latest(tick)
        assert caused is not None and caused.caused_by == Cause(event_id=event.event_id)
        assert (caused.root_id, caused.depth) == (event.event_id, 1)
        await w.app.emit(tick, 3, caused_by=event.event_id)
        by_id = await w.app.latest(tick)
        assert by_id is not None and by_id.caused_by == Cause(event_id=event.event_id)
        assert (by_id.root_id, by_id.depth) == (event.event_id, 1)  # its chain goes on
        for begins in ("01J0000000000000000000000D", Cause(event_id=event.event_id, run_id="r")):
            await w.app.emit(tick, 4, caused_by=begins)  # an event that is not here, or any cause
            first = await w.app.latest(tick)
            assert first is not None and first.caused_by is not None
            assert (first.root_id, first.depth) == (first.event_id, 0)


async def test_a_page_with_wildcards_looks_at_a_bounded_number_of_events(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "_looked_at_max", 6)
    async with world(app) as w:
        await w.app.emit_many([("rare.a" if n in (1, 15) else "often", n) for n in range(20)])
        for order in ("position", "occurred_at"):
            found, pages, after = [], 0, None
            while pages == 0 or after is not None:
                page = await w.app.events("rare.*", order=order, limit=5, after=after)
                found += [event.payload for event in page]
                pages, after = pages + 1, page.cursor
            assert (found, pages) == ([1, 15], 4)  # the second of them is empty
            first = await w.app.events("*", order=order, limit=3)
            rest = await w.app.events("*", order=order, limit=3, after=first.cursor)
            assert [event.payload for event in (*first, *rest)] == [0, 1, 2, 3, 4, 5]


async def test_what_a_run_emits_names_the_run_as_its_cause(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        with ctx.scope("part"):
            await ctx.emit(tick, 1, entity="sku/7")
        await ctx.emit_many([(tick, 2)])

    async with world(app) as w:
        await w.begin(flow, id="a")
        page = await w.app.events(tick)
        assert [one.caused_by for one in page] == [
            Cause(run_id="a", path="part/emit.tick"),
            Cause(run_id="a", path="emit.many"),
        ]


async def test_latest_and_watchers(world: Any, app: App, one: Any) -> None:
    @app.workflow
    async def about(ctx: Context) -> int:
        return await ctx.wait(tick.about("sku/7") | timer("1h"))  # type: ignore[return-value]

    async with world(app) as w:
        assert await w.app.latest("tick") is None
        await w.app.emit(tick, 1, entity="sku/7")
        await w.app.emit(tick, 2)
        newest, own = await w.app.latest(tick), await w.app.latest("tick", entity="sku/7")
        assert newest and own and (newest.payload, own.payload) == (2, 1)
        await w.begin(one, id="c")
        await w.advance("1s")
        await w.begin(about, id="b")
        await w.advance("1s")
        await w.begin(one, id="a")
        first = await w.app.watchers(tick, limit=2)
        assert [(one.run_id, one.entity) for one in first] == [("c", None), ("b", "sku/7")]
        rest = await w.app.watchers("tick", after=first.cursor)
        assert [one.run_id for one in rest] == ["a"]
        assert rest.cursor is None


# --- types that do not fit -----------------------------------------------------------------------


async def test_an_event_that_does_not_fit_is_passed_over(world: Any, app: App) -> None:
    """Emitted by a name that nobody had declared when it came."""

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        await ctx.sleep("1s")
        return [(await ctx.wait(arrived)).quantity, (await ctx.wait(arrived)).quantity]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        bad = await w.app.emit("stock.arrived", "a lot")
        await w.app.emit("stock.arrived", {"quantity": 1})
        await w.advance("1s")
        (fact,) = await w.facts("signal.rejected")
        assert bad.event_id in fact.payload and '"a"' in fact.payload
        assert await run.status() == "waiting"
        # From then on the type is known to the catalogue.
        with pytest.raises(InvalidPayload):
            await w.app.emit("stock.arrived", "a lot")
        await w.app.emit("stock.arrived", {"quantity": 2})
        await w.settle()
        assert await run.result() == [1, 2]
        assert len(await w.app.dead_letters()) == 0  # it concerns others too: no letter


async def test_an_event_that_does_not_fit_leaves_the_deadline_as_it_was(
    world: Any, app: App
) -> None:
    loose = Topic("stock.arrived", Arrival, enforce=False)

    @app.workflow
    async def flow(ctx: Context) -> str:
        got = await ctx.wait(loose | timer("1h"))
        return type(got).__name__

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("59m")
        assert (await w.app.emit(loose, "no arrival")).resumed == 1  # type: ignore[arg-type]
        await w.settle()
        assert await run.status() == "waiting"
        await w.advance("1m")
        assert await run.result() == "TimedOut"


async def test_a_name_is_checked_by_what_any_app_declared(world: Any, app: App) -> None:
    app.add(arrived)
    async with world(app):
        pass
    async with world(App("memory://")) as w:
        with pytest.raises(InvalidPayload, match=r"stock\.arrived"):
            await w.app.emit("stock.arrived", {"quantity": "many"})
        assert await w.facts("stock.arrived") == []
        assert isinstance(await w.app.emit("stock.arrived", {"quantity": 1}), Emitted)


async def test_enforce_false_only_documents(world: Any, app: App) -> None:
    loose = Topic("loose", Arrival, enforce=False)
    app.add(loose)
    async with world(app) as w:
        assert isinstance(await w.app.emit(loose, "anything"), Emitted)  # type: ignore[arg-type]
        assert isinstance(await w.app.emit(loose, Arrival(1)), Emitted)
    async with world(App("memory://")) as w:
        assert isinstance(await w.app.emit("loose", [1]), Emitted)
        assert [one.payload for one in await w.facts("loose")] == [
            '"anything"',
            '{"quantity":1}',
            "[1]",
        ]


# --- repeats -------------------------------------------------------------------------------------


async def test_an_event_equal_to_the_last_about_its_entity_may_be_ignored(
    world: Any, app: App
) -> None:
    level = Topic("level", int, repeats="ignore")
    app.add(level)

    @app.workflow
    async def flow(ctx: Context, entity: str | None) -> list[int]:
        await ctx.sleep("1s")
        return [await ctx.wait(level.about(entity)) for _ in range(3)]

    async with world(app) as w:
        run = await w.begin(flow, "tank/1")
        for n in (5, 5):  # early
            await w.app.emit(level, n, entity="tank/1")
        await w.advance("1s")
        for n in (5, 6, 6, 5):  # while it waits
            await w.app.emit("level", n, entity="tank/1")  # by its name: the catalogue knows
            await w.app.emit(level, n, entity="tank/2")
            await w.settle()
        assert await run.result() == [5, 6, 5]
        assert len(await w.facts("level")) == 10  # recorded all the same


# --- engine facts --------------------------------------------------------------------------------


async def test_the_engines_own_facts_can_be_awaited(world: Any, app: App) -> None:
    failed: Topic[Any] = Topic("workflow.run_failed")

    @app.workflow
    async def fails(ctx: Context) -> None:
        raise ValueError("no")

    @app.workflow
    async def watch(ctx: Context, entity: str | None) -> str:
        fact = await ctx.wait(failed.about(entity))
        return f"{fact['run_id']} {fact['error']['type']}"

    async with world(app) as w:
        every, of_one = await w.begin(watch, None), await w.begin(watch, "run/second")
        await w.begin(fails, id="first")
        assert await every.result() == "first ValueError"
        assert await of_one.status() == "waiting"
        await w.begin(fails, id="second")
        assert await of_one.result() == "second ValueError"


async def test_a_run_may_wait_for_facts_about_itself(world: Any, app: App) -> None:
    delivered: Topic[Any] = Topic("signal.delivered")

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        told = delivered.about(f"run/{ctx.run_id}")
        fact, sent = await ctx.gather(ctx.wait(told), ctx.wait(go))
        return [fact["payload"], sent]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", go, 7)
        await w.settle()
        assert await run.result() == [7, 7]


async def test_nobody_else_emits_what_is_the_engines(world: Any, app: App) -> None:
    async with world(app) as w:
        for name in ("workflow.run_failed", "signal.delivered", "ledger.x", "anomaly.x"):
            with pytest.raises(PerdureError, match="only the engine"):
                await w.app.emit(name, {})
            with pytest.raises(PerdureError, match="only the engine"):
                await w.app.emit(Topic(name), {})


# --- other code ----------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["topic", "entity", "kind"])
async def test_a_recorded_wait_that_the_code_no_longer_asks_for_parks_the_run(
    world: Any, change: str
) -> None:
    def made(changed: bool) -> App:
        app = App("memory://")

        @app.workflow
        async def flow(ctx: Context) -> list[int]:
            asked: Any = tick.about("sku/7")
            if changed and change == "topic":
                asked = tock.about("sku/7")
            if changed and change == "entity":
                asked = tick.about("sku/8")
            if changed and change == "kind":
                asked = Signal("tick", int)
            return [await ctx.wait(asked, name="w"), await ctx.wait(go)]

        return app

    async with world(made(False)) as w:
        run = await w.begin(made_flow(w), id="a")
        await w.app.emit(tick, 1, entity="sku/7")
        await w.settle()
        assert await run.status() == "waiting"
    async with world(made(True)) as w:
        await w.app.signal("a", go, 2)
        await w.settle()
        info = await w.app.run("a").info()
        assert info.status == "paused"
        assert "topic tick sku/7" in (info.reason or "")
    async with world(made(False)) as w:
        await w.app.run("a").resume()
        await w.settle()
        assert await w.app.run("a").result() == [1, 2]


def made_flow(w: Any) -> Any:
    return w.app.registry.find("flow", 1)


async def test_an_open_wait_that_the_code_no_longer_asks_for_parks_the_run(world: Any) -> None:
    def made(topic: Any) -> App:
        app = App("memory://")

        @app.workflow
        async def flow(ctx: Context) -> int:
            value: int = await ctx.wait(topic, name="w")
            return value

        return app

    async with world(made(tick)) as w:
        await w.begin(made_flow(w), id="a")
    async with world(made(tock)) as w:
        await w.app.emit(tick, 1)
        await w.settle()
        assert await w.app.run("a").status() == "paused"
    async with world(made(tick)) as w:
        await w.app.run("a").resume()
        await w.settle()
        assert await w.app.run("a").result() == 1


# --- many ----------------------------------------------------------------------------------------


async def test_more_runs_than_one_commit_takes_are_resumed_in_chunks(
    world: Any, app: App, one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "resumed_per_commit_max", 20)
    async with world(app) as w:
        runs = [await w.app.start(one) for _ in range(150)]
        await w.settle()
        told = await w.app.emit(tick, 7)
        assert (told.resumed, told.more) == (20, True)
        await w.settle()
        assert {await run.result() for run in runs} == {7}
        assert (await w.store.counts())["fan_outs"] == 0
        assert len(await w.facts("workflow.run_completed")) == 150


@pytest.mark.parametrize(
    "meanwhile", ["event", "signal", "cancel", "pause", "timeout", "crash", "terminate"]
)
async def test_nobody_can_tell_that_an_event_came_in_chunks(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """Whatever reaches a run before the event does: the event was there first."""
    monkeypatch.setattr(limits, "resumed_per_commit_max", 2)

    @app.workflow
    async def flow(ctx: Context) -> Any:
        try:
            seen = [await ctx.wait(tick | go | timer("1h"))]
            if meanwhile == "event":
                seen.append(await ctx.wait(tick))
        except asyncio.CancelledError:
            return "cancelled before"
        return seen

    async with world(app) as w:
        ids = [f"r{n}" for n in range(9)]
        for run_id in ids:
            await w.app.start(flow, id=run_id)
        await w.settle()
        # No pump: what follows meets runs that the event has not reached.
        monkeypatch.setattr(w.worker, "_fan_out", lambda: None)
        told = await w.app.emit(tick, 1)
        assert told.more
        match meanwhile:
            case "event":
                await w.app.emit(tick, 2)
            case "signal":
                for run_id in ids[2:]:
                    await w.app.signal(run_id, go, 2)
            case "cancel":
                await w.app.run("r8").cancel()
            case "pause":
                await w.app.run("r8").pause()
                await w.app.run("r8").resume()
            case "timeout":
                await w.advance("1h")
            case "terminate":
                await w.app.run("r8").terminate()
            case _:
                await w.crash()
        if meanwhile != "crash":
            monkeypatch.undo()
            await w.settle()
            await _check_chunked(w, ids, meanwhile)
    if meanwhile == "crash":
        monkeypatch.undo()
        async with world(app) as w:
            await w.settle()
            await _check_chunked(w, ids, meanwhile)


async def _check_chunked(w: Any, ids: list[str], meanwhile: str) -> None:
    await w.advance("1s")
    for run_id in ids:
        if meanwhile == "cancel" and run_id == "r8":
            continue  # told of the cancel before its code could run: either is right
        if meanwhile == "terminate" and run_id == "r8":
            assert await w.app.run(run_id).status() == "terminated"
            continue
        assert await w.app.run(run_id).result() == ([1, 2] if meanwhile == "event" else [1])
    assert not await check_invariants(w.store)


async def test_two_events_at_once_reach_every_run_in_their_order(
    world: Any, app: App, three: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "resumed_per_commit_max", 3)
    async with world(app) as w:
        runs = [await w.app.start(three) for _ in range(10)]
        await w.settle()
        await asyncio.gather(*(w.app.emit(tick, n) for n in range(3)))
        await w.settle()
        for run in runs:
            assert await run.result() == [0, 1, 2]


async def test_a_failed_run_that_is_waited_for_beside_a_topic_raises(world: Any, app: App) -> None:
    @app.workflow
    async def fails(ctx: Context) -> None:
        await ctx.wait(go)
        raise ValueError("no")

    @app.workflow
    async def flow(ctx: Context) -> str:
        child = await ctx.start(fails, id="child")
        try:
            await ctx.wait(tick | child)
        except RunFailed as error:
            return error.type
        return "ticked"

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.signal("child", go, 1)
        await w.settle()
        assert await run.result() == "ValueError"


async def test_waits_that_a_gather_is_given_have_a_cursor_each(world: Any, app: App) -> None:
    """Early or late, each of them is a branch of its own and sees the first event."""

    @app.workflow
    async def both(ctx: Context, pause: bool) -> list[int]:
        if pause:
            await ctx.sleep("1m")
        first = await ctx.gather(ctx.wait(tick), ctx.wait(tick))
        return [*first, await ctx.wait(tick)]

    async with world(app) as w:
        late = await w.begin(both, False)
        early = await w.begin(both, True)
        await w.emit("tick", 1)
        await w.emit("tick", 2)
        await w.advance("1m")
        assert await late.result() == await early.result() == [1, 1, 1]


async def test_two_lambdas_of_one_workflow_have_a_cursor_each(world: Any, app: App) -> None:
    @app.workflow
    async def pick(ctx: Context) -> list[int]:
        large = await ctx.wait(tick.about(where=lambda n: n > 5))
        small = await ctx.wait(tick.about(where=lambda n: n < 5))
        return [large, small]

    async with world(app) as w:
        run = await w.begin(pick)
        for number in (1, 7, 2):
            await w.emit("tick", number)
        assert await run.result() == [7, 1]
