"""Filters of waits: in CEL, judged outside any transaction, and in Python, asked by the run's own code."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import (
    App,
    BadExpression,
    Context,
    Queue,
    Signal,
    StepFailed,
    TimedOut,
    Topic,
    WaitTimeout,
    timer,
)
from perdure.ledger.filters import Matcher
from perdure.testing.conformance import check_invariants

pytest.importorskip("cel_expr_python")

HOUR_US = 3600 * 1_000_000


@dataclass
class Arrival:
    quantity: int
    sku: str = ""


arrived = Topic("arrived", Arrival)
tick = Topic("tick", int)
tock = Topic("tock", int)
go = Signal("go", int)
jobs = Queue("jobs", int)


def is_large(arrival: Arrival) -> bool:
    return arrival.quantity > 5


# Both kinds say the same: more than five.
large = {"cel": "payload.quantity > 5", "python": is_large}
both = pytest.mark.parametrize("where", [pytest.param(one, id=name) for name, one in large.items()])


class Unjudged:
    """For as long as this is open, no filter is asked: as if the process that asks were far behind."""

    def __init__(self, w: Any) -> None:
        self.life = w.app._life
        self.clock = w.clock

    async def __aenter__(self) -> None:
        await self.life._engine.matcher.stop()
        self.life._engine = self.life._engine._replace(matcher=None)

    async def __aexit__(self, *error: object) -> None:
        engine = self.life._engine
        matcher = Matcher(engine.store, engine.coordinator, self.clock)
        self.life._engine = engine._replace(matcher=matcher)
        await matcher.start()


@pytest.fixture
def make(app: App) -> Any:
    """A workflow that collects so many quantities that pass a filter."""

    def made(where: Any, *, timeout: str | None = None) -> Any:
        @app.workflow
        async def flow(ctx: Context, count: int) -> list[int]:
            asked = arrived.about(where=where)
            return [(await ctx.wait(asked, timeout=timeout)).quantity for _ in range(count)]

        return flow

    return made


# --- what passes ---------------------------------------------------------------------------------


@both
async def test_only_an_event_that_passes_ends_the_wait(
    world: Any, app: App, make: Any, where: Any
) -> None:
    flow = make(where)
    async with world(app) as w:
        run = await w.begin(flow, 1)
        (waits,) = await run.waiting()
        assert (waits.kind, waits.target) == ("topic", "arrived")
        assert waits.where
        for n in (1, 5, 2):
            await w.app.emit(arrived, Arrival(n))
            await w.settle()
            assert await run.status() == "waiting"
        await w.app.emit(arrived, Arrival(6))
        await w.settle()
        assert await run.result() == [6]
        assert await w.facts("signal.rejected") == []  # passed over is not rejected


@both
async def test_early_events_are_judged_too(world: Any, app: App, where: Any) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        await ctx.sleep("1s")
        asked = arrived.about(where=where)
        return [(await ctx.wait(asked)).quantity for _ in range(3)]

    async with world(app) as w:
        run = await w.begin(flow)
        for n in (1, 7, 2, 8, 3):
            await w.app.emit(arrived, Arrival(n))
        await w.advance("1s")
        assert await run.status() == "waiting"
        await w.app.emit(arrived, Arrival(9))
        await w.settle()
        assert await run.result() == [7, 8, 9]


@both
async def test_many_events_at_once_are_seen_once_each_and_in_order(
    world: Any, app: App, make: Any, where: Any
) -> None:
    flow = make(where)
    async with world(app) as w:
        runs = [await w.begin(flow, 10) for _ in range(3)]
        await w.app.emit_many([(arrived, Arrival(n % 11)) for n in range(22)])
        await w.settle()
        for run in runs:
            assert await run.result() == [6, 7, 8, 9, 10] * 2


@both
async def test_many_waits_share_one_filter(world: Any, app: App, make: Any, where: Any) -> None:
    flow = make(where)
    async with world(app) as w:
        runs = [await w.app.start(flow, 1) for _ in range(60)]
        await w.settle()
        await w.app.emit(arrived, Arrival(1))
        await w.app.emit(arrived, Arrival(9))
        await w.settle()
        assert [await run.result() for run in runs] == [[9]] * 60


@both
async def test_an_entity_narrows_a_filter(world: Any, app: App, where: Any) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return (await ctx.wait(arrived.about("sku/7", where=where))).quantity

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.emit(arrived, Arrival(8), entity="sku/8")
        await w.app.emit(arrived, Arrival(1), entity="sku/7")
        await w.settle()
        assert await run.status() == "waiting"
        await w.app.emit(arrived, Arrival(7), entity="sku/7")
        await w.settle()
        assert await run.result() == 7


async def test_a_filter_knows_more_than_the_payload(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(tick.about(where="entity_type == 'sku' && key.startsWith('k')"))

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.emit(tick, 1, entity="sku/7")
        await w.app.emit(tick, 2, key="k1")
        await w.app.emit(tick, 3, entity="sku/7", key="k2")
        await w.settle()
        assert await run.result() == 3


async def test_an_event_that_lacks_what_a_filter_asks_for_does_not_pass(
    world: Any, app: App
) -> None:
    loose: Topic[Any] = Topic("loose")

    @app.workflow
    async def flow(ctx: Context) -> Any:
        return await ctx.wait(loose.about(where="payload.quantity > 5"))

    async with world(app) as w:
        run = await w.begin(flow)
        for payload in ({}, {"amount": 7}, [], None):
            await w.app.emit(loose, payload)
        await w.settle()
        assert await run.status() == "waiting"
        await w.app.emit(loose, {"quantity": 7})
        await w.settle()
        assert await run.result() == {"quantity": 7}


@both
async def test_an_event_that_passes_and_does_not_fit_the_type_is_passed_over(
    world: Any, app: App, where: Any
) -> None:
    named = Topic("arrived", Arrival, enforce=False)

    @app.workflow
    async def flow(ctx: Context) -> int:
        return (await ctx.wait(named.about(where=where))).quantity

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.emit(named, {"quantity": 6.5})  # type: ignore[arg-type]
        await w.settle()
        assert await run.status() == "waiting"
        assert len(await w.facts("signal.rejected")) == 1
        await w.app.emit(named, Arrival(7))
        await w.settle()
        assert await run.result() == 7


# --- which of several ----------------------------------------------------------------------------


@both
@pytest.mark.parametrize("first", ["go", "jobs", "tick", "arrived", "timer"])
async def test_a_union_with_a_filter_ends_by_whatever_comes_first(
    world: Any, app: App, where: Any, first: str
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        won = await ctx.first(
            arrived=arrived.about(where=where), go=go, jobs=jobs, tick=tick, timer=timer("1h")
        )
        return won.name

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.emit(arrived, Arrival(1))
        match first:
            case "go":
                await w.app.signal("a", go, 1)
            case "jobs":
                await w.app.put(jobs, 1)
            case "tick":
                await w.app.emit(tick, 1)
            case "arrived":
                await w.app.emit(arrived, Arrival(6))
            case _:
                await w.advance("1h")
                await w.advance("1s")
        await w.settle()
        assert await run.result() == first
        # What would have come later comes to nothing, also when the deadline passes.
        await w.app.emit(arrived, Arrival(7))
        await w.advance("2h")
        assert not await check_invariants(w.store)


async def winners(ctx: Context, count: int, **asked: Any) -> list[str]:
    """Which of several won, and with what, so many times over."""
    won = [await ctx.first(**asked) for _ in range(count)]
    return [f"{one.name} {one.value}" for one in won]


async def test_two_filters_in_one_wait_have_their_own_cursors(world: Any, app: App) -> None:
    even, high = tick.about(where="payload % 2 == 0"), tick.about(where="payload > 5")

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        return await winners(ctx, 3, even=even, high=high)

    async with world(app) as w:
        run = await w.begin(flow)
        for n in (1, 7, 3, 4):
            await w.app.emit(tick, n)
            await w.settle()
        await w.app.emit(tick, 8)
        await w.settle()
        assert await run.result() == ["high 7", "even 4", "even 8"]


async def test_of_two_filters_the_event_that_was_recorded_first_wins(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        await ctx.sleep("1s")
        positive = "payload > 0"
        asked = {"a": tock.about(where=positive), "b": tick.about(where=positive)}
        return await winners(ctx, 4, **asked)

    async with world(app) as w:
        run = await w.begin(flow)
        for topic, n in ((tick, 1), (tock, 2), (tock, 0), (tick, 3), (tock, 4)):
            await w.app.emit(topic, n)
        await w.advance("1s")
        assert await run.result() == ["b 1", "a 2", "b 3", "a 4"]


async def test_a_filter_in_each_branch(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        async def above(bound: int) -> int:
            return await ctx.wait(tick.about(where=f"payload > {bound}"))

        return list(await ctx.gather(*(above(n) for n in (1, 3, 2))))

    async with world(app) as w:
        run = await w.begin(flow)
        for n in (1, 2, 3, 4):
            await w.app.emit(tick, n)
            await w.settle()
        assert await run.result() == [2, 4, 3]


# --- deadlines -----------------------------------------------------------------------------------


@both
async def test_a_filtered_wait_times_out(world: Any, app: App, where: Any) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.wait(arrived.about(where=where), timeout="1h")
        except WaitTimeout:
            return "late"
        return "in time"

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.emit(arrived, Arrival(1))
        await w.advance("59m")
        assert await run.status() == "waiting"
        await w.advance("2m")
        assert await run.result() == "late"


async def test_an_event_before_the_deadline_that_is_judged_after_it_wins(
    world: Any, app: App, make: Any
) -> None:
    flow = make("payload.quantity > 5", timeout="1h")
    async with world(app) as w:
        run = await w.begin(flow, 1)
        async with Unjudged(w):
            await w.app.emit(arrived, Arrival(1))
            await w.app.emit(arrived, Arrival(6))
            await w.advance("2h")
            assert await run.status() == "waiting"  # time alone does not end it
        await w.settle()
        assert await run.result() == [6]


async def test_an_event_after_the_deadline_does_not_count(world: Any, app: App, make: Any) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        asked = arrived.about(where="payload.quantity > 5")
        first = await ctx.wait(asked | timer("1h"))
        return [first == TimedOut(), (await ctx.wait(asked)).quantity]

    async with world(app) as w:
        run = await w.begin(flow)
        async with Unjudged(w):
            w.clock._now += HOUR_US + 1
            await w.app.emit(arrived, Arrival(6))
        await w.advance("1s")
        assert await run.result() == [True, 6]


async def test_an_event_at_the_deadline_itself_wins(world: Any, app: App, make: Any) -> None:
    flow = make("payload.quantity > 5", timeout="1h")
    async with world(app) as w:
        run = await w.begin(flow, 1)
        w.clock._now += HOUR_US
        await w.app.emit(arrived, Arrival(6))
        await w.advance("1s")
        assert await run.result() == [6]


async def test_two_filters_and_a_deadline(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> bool:
        one, other = tick.about(where="payload > 5"), tock.about("a/b", where="payload > 5")
        return await ctx.wait(one | other | timer("1h")) == TimedOut()

    async with world(app) as w:
        run = await w.begin(flow)
        for topic in (tick, tock):
            await w.app.emit(topic, 1, entity="a/b")
        await w.advance("61m")
        assert await run.result() is True


@both
async def test_a_wait_that_a_signal_ended_leaves_no_deadline_behind(
    world: Any, app: App, where: Any
) -> None:
    """Its deadline comes later, and there is nothing to do then."""

    @app.workflow
    async def flow(ctx: Context) -> int:
        won = await ctx.first(a=arrived.about(where=where), g=go, t=timer("1h"))
        await ctx.wait(Signal("end"))
        return int(won.value)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.emit(arrived, Arrival(1))
        await w.app.signal("a", go, 7)
        await w.settle()
        async with asyncio.timeout(2):
            await w.advance("2h")
        await w.app.signal("a", "end")
        await w.settle()
        assert await run.result() == 7


# --- eviction, restarts, steering ----------------------------------------------------------------


@both
async def test_a_filtered_wait_survives_eviction_and_restart(
    world: Any, app: App, make: Any, where: Any
) -> None:
    flow = make(where)
    async with world(app) as w:
        await w.begin(flow, 3, id="a")
        await w.app.emit(arrived, Arrival(1))
        await w.app.emit(arrived, Arrival(6))
        await w.evict()
        await w.app.emit(arrived, Arrival(2))
        await w.settle()
    async with world(App("memory://"), worker=False) as w:
        await w.app.emit("arrived", {"quantity": 3, "sku": ""})
        await w.app.emit("arrived", {"quantity": 7, "sku": ""})
    async with world(app) as w:
        await w.settle()
        await w.app.emit(arrived, Arrival(4))
        await w.settle()
        await w.crash()
    async with world(app) as w:
        await w.app.emit(arrived, Arrival(8))
        await w.settle()
        assert await w.app.run("a").result() == [6, 7, 8]
        assert not await check_invariants(w.store)


async def test_a_deadline_that_passed_while_nobody_ran_counts_after_judging(
    world: Any, app: App, make: Any
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> bool:
        asked = arrived.about(where="payload.quantity > 5")
        return await ctx.wait(asked | timer("1h")) == TimedOut()

    async with world(app) as w:
        for run_id in "abcde":
            await w.begin(flow, id=run_id)
    w.clock._now += 2 * HOUR_US
    async with world(app) as w:
        await w.settle()
        # All that were found waiting are judged at once.
        for run_id in "abcde":
            run = w.app.run(run_id)
            assert (await run.status(), await run.result()) == ("completed", True)


@both
async def test_pause_and_resume_with_a_filter(world: Any, app: App, make: Any, where: Any) -> None:
    flow = make(where)
    async with world(app) as w:
        run = await w.begin(flow, 2)
        await w.app.emit(arrived, Arrival(1))
        await w.settle()
        await run.pause()
        await w.settle()
        for n in (2, 6, 3, 7):
            await w.app.emit(arrived, Arrival(n))
        await w.settle()
        assert await run.status() == "paused"
        await run.resume()
        await w.settle()
        assert await run.result() == [6, 7]


@both
async def test_a_cancelled_wait_is_judged_no_more(
    world: Any, app: App, make: Any, where: Any
) -> None:
    flow = make(where)
    async with world(app) as w:
        run = await w.begin(flow, 1)
        await run.cancel()
        await w.settle()
        await w.app.emit(arrived, Arrival(6))
        await w.settle()
        assert await run.status() == "cancelled"


@both
async def test_continue_as_keeps_the_cursor_of_a_filter(world: Any, app: App, where: Any) -> None:
    @app.workflow
    async def flow(ctx: Context, seen: list[int]) -> list[int]:
        seen = [*seen, (await ctx.wait(arrived.about(where=where))).quantity]
        if len(seen) < 4:
            await ctx.continue_as(flow, seen)
        return seen

    async with world(app) as w:
        run = await w.begin(flow, [])
        for n in (1, 6, 2, 7, 8):
            await w.app.emit(arrived, Arrival(n))
        await w.settle()
        await w.app.emit(arrived, Arrival(9))
        await w.settle()
        assert await run.result() == [6, 7, 8, 9]


async def test_filters_on_the_engines_own_facts(world: Any, app: App) -> None:
    ended: Topic[Any] = Topic("workflow.run_completed")

    @app.workflow
    async def quick(ctx: Context) -> None:
        return None

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        by_text = await ctx.wait(ended.about(where="payload.run_id == 'second'"))
        by_code = await ctx.wait(ended.about(where=lambda fact: fact["run_id"] == "second"))
        return [by_text["run_id"], by_code["run_id"]]

    async with world(app) as w:
        run = await w.begin(flow)
        await w.begin(quick, id="first")
        assert await run.status() == "waiting"
        await w.begin(quick, id="second")
        await w.settle()
        assert await run.result() == ["second", "second"]


# --- what is wrong -------------------------------------------------------------------------------


async def test_a_bad_expression_is_raised_where_the_wait_is_made(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        told = []
        for text in ("payload.quantity >", "nothing > 5", "1 + 1", "", " "):
            try:
                await ctx.wait(arrived.about(where=text), timeout="1s")
            except (BadExpression, WaitTimeout) as error:
                told.append(type(error).__name__)
        return told

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("10s")
        told = await run.result()
        assert told == ["BadExpression"] * 5


async def test_a_filter_that_fails_on_an_event_fails_the_wait(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        asked = tick.about(where="10 / payload > 4")
        seen: list[Any] = []
        for _ in range(3):
            try:
                seen.append(await ctx.wait(asked))
            except StepFailed as error:
                seen.append(error.type)
        return seen

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.emit(tick, 0)
        await w.settle()
        await w.evict()
        # The event that it fails on is behind it: a loop does not meet it for ever.
        assert await run.status() == "waiting"
        await w.app.emit(tick, 5)
        await w.app.emit(tick, 2)
        await w.app.emit(tick, 0)
        await w.settle()
        assert await run.result() == ["ExpressionFailed", 2, "ExpressionFailed"]


async def test_a_run_that_a_filter_failed_is_retried_from_that_event(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        asked = tick.about(where="10 / payload > 4")
        return [await ctx.wait(asked), await ctx.wait(asked)]

    async with world(app) as w:
        run = await w.begin(flow)
        for n in (1, 0, 2):
            await w.app.emit(tick, n)
        await w.settle()
        assert await run.status() == "failed"
        await run.retry()
        await w.settle()
        assert await run.status() == "failed"  # it is still there, and still fails


async def test_a_function_that_raises_raises_in_the_workflow(world: Any, app: App) -> None:
    def picky(n: int) -> bool:
        if n == 0:
            raise ValueError("zero")
        return n > 5

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        seen: list[Any] = []
        for _ in range(2):
            try:
                seen.append(await ctx.wait(tick.about(where=picky)))
            except ValueError as error:
                seen.append(str(error))
        return [*seen, await ctx.wait(go)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        for n in (1, 0, 2, 7):
            await w.app.emit(tick, n)
            await w.settle()
        await w.evict()
        await w.app.signal("a", go, 9)
        await w.settle()
        assert await run.result() == ["zero", 7, 9]


async def test_a_function_that_raises_fails_the_run_if_nobody_minds(world: Any, app: App) -> None:
    def broken(n: int) -> bool:
        raise ValueError("no")

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(tick.about(where=broken))

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.emit(tick, 1)
        await w.settle()
        assert await run.status() == "failed"


async def test_repeats_that_are_ignored_are_not_judged(world: Any, app: App) -> None:
    level = Topic("level", int, repeats="ignore")

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        asked = level.about(where="payload > 5")
        return [await ctx.wait(asked) for _ in range(2)]

    async with world(app) as w:
        run = await w.begin(flow)
        for n in (6, 6, 6, 7):
            await w.app.emit(level, n)
        await w.settle()
        assert await run.result() == [6, 7]
