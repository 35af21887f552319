"""A durable call that code makes and never awaits: the run does not complete as if it had been done."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from perdure import App, Context, Queue, RunFailed, Signal, StepFailed, Topic, WaitTimeout, step

go = Signal("go", int)
told = Topic("told", int)
jobs = Queue("jobs", int)
Asks = Callable[[Context], object]

# Python itself warns of a coroutine that nobody awaits; that is not what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@step
async def charge(n: int) -> int:
    if n < 0:
        raise ValueError(n)
    return n


@pytest.fixture
def child(app: App) -> Any:
    @app.workflow
    async def child(ctx: Context) -> int:
        return 1

    return child


ASKS: dict[str, Asks] = {
    "step": lambda ctx: ctx.step(charge, 1),
    "sleep": lambda ctx: ctx.sleep("1h"),
    "wait": lambda ctx: ctx.wait(go),
    "first": lambda ctx: ctx.first(one=go),
    "signal": lambda ctx: ctx.signal("another", go, 1),
    "emit": lambda ctx: ctx.emit(told, 1),
    "emit_many": lambda ctx: ctx.emit_many([(told, 1)]),
    "put": lambda ctx: ctx.put(jobs, 1),
    "set": lambda ctx: ctx.set("n", 1),
    "publish": lambda ctx: ctx.publish("s", 1),
    "gather": lambda ctx: ctx.gather(ctx.step(charge, 1)),
    "map": lambda ctx: ctx.map(charge, [1]),
}


@pytest.mark.parametrize("asks", ASKS.values(), ids=ASKS)
async def test_a_run_that_forgets_to_await_fails(world: Any, app: App, asks: Asks) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        await ctx.step(charge, 7)
        asks(ctx)
        await ctx.step(charge, 8)
        return "done"

    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed) as failed:
            await run.result()
    assert failed.value.type == "NotAwaited"


async def test_it_says_which_call_and_where(
    world: Any, app: App, child: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        ctx.step(charge, 1)
        ctx.call(child)  # type: ignore[unused-coroutine]
        return "done"

    line = inspect.getsourcelines(flow.function)[1] + 2
    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed) as failed:
            await run.result()
    for told_in in (failed.value.message, caplog.text):
        assert f"{__file__}:{line}: `ctx.step(charge, 1)`" in told_in
        assert f"{__file__}:{line + 1}: `ctx.call(child)`" in told_in
    assert "await ctx.gather" in failed.value.message


async def test_one_that_is_kept_and_never_awaited_is_forgotten_too(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return "rich" if ctx.step(charge, 1) == 100 else "poor"  # type: ignore[comparison-overlap]

    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed, match="never awaited"):
            await run.result()


async def test_a_generation_does_not_go_on_either(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        if n == 2:
            return n
        ctx.set("n", n)
        return await ctx.continue_as(flow, n + 1)

    async with world(app) as w:
        run = await w.begin(flow, 1)
        with pytest.raises(RunFailed, match="never awaited"):
            await run.result()


async def test_a_branch_may_forget(world: Any, app: App) -> None:
    async def branch(ctx: Context, n: int) -> int:
        ctx.emit(told, n)
        return await ctx.step(charge, n)

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return await ctx.map(lambda n: branch(ctx, n), [1, 2])

    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed, match=r"emit\(told, n\)"):
            await run.result()


async def test_it_is_noticed_after_replay_as_well_and_a_retry_goes_on_with_mended_code(
    world: Any, app: App
) -> None:
    mended = False

    @app.workflow
    async def flow(ctx: Context) -> int:
        call = ctx.step(charge, 1)
        got = await ctx.wait(go)
        return got + (await call if mended else 0)

    async with world(app) as w:
        run = await w.begin(flow)
        await w.evict()
        await w.app.signal(run.id, go, 10)
        await w.settle()
        assert await run.status() == "failed"
        mended = True
        await run.retry()
        await w.settle()
        assert await run.result() == 11


# --- what is not to blame ---


async def stands(ctx: Context) -> int:
    """Made first and awaited later, by whomever."""
    one, two = ctx.step(charge, 1), ctx.step(charge, 2)
    three = [ctx.step(charge, n) for n in (3, 4)]

    async def sum_of(*calls: Awaitable[int]) -> int:
        return sum([await one for one in calls])

    total = sum(await ctx.gather(*three, sum_of(two, one)))
    return total + await ctx.step(charge, 90)


async def cut_off_by_a_failure(ctx: Context) -> int:
    later = ctx.step(charge, 1)
    try:
        await ctx.step(charge, -1)
        return await later
    except StepFailed:
        return 100


async def cut_off_by_a_timeout(ctx: Context) -> int:
    later = ctx.step(charge, 1)
    try:
        return await ctx.wait(go, timeout="1s") + await later
    except WaitTimeout:
        return 100


async def cut_off_with_a_sibling(ctx: Context) -> int:
    async def late(call: Awaitable[int]) -> int:
        await ctx.wait(go)
        return await call

    async def fails() -> int:
        await ctx.wait(go, timeout="1s")
        return 0

    try:
        await ctx.gather(late(ctx.step(charge, 1)), fails(), ctx.wait(go))
    except WaitTimeout:
        return 100
    return 0


async def raised_in_a_branch(ctx: Context) -> int:
    async def fails(held: Awaitable[int]) -> int:
        raise ValueError

    try:
        await ctx.gather(fails(ctx.step(charge, 1)), ctx.step(charge, 2))
    except ValueError:
        return 100
    return 0


async def nested(ctx: Context) -> int:
    (a, (b, c)) = await ctx.gather(
        ctx.step(charge, 50), ctx.gather(ctx.step(charge, 20), ctx.step(charge, 30))
    )
    return a + b + c


@pytest.mark.parametrize(
    "body",
    [
        stands,
        cut_off_by_a_failure,
        cut_off_by_a_timeout,
        cut_off_with_a_sibling,
        raised_in_a_branch,
        nested,
    ],
)
async def test_calls_that_are_awaited_later_or_cut_off_are_not_blamed(
    world: Any, app: App, body: Callable[[Context], Coroutine[Any, Any, int]]
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await body(ctx)

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("1s")
        assert await run.result() == 100


async def test_a_cancelled_run_is_cancelled_whatever_it_had_yet_to_await(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        later = ctx.step(charge, 1)
        await ctx.wait(go)
        return await later

    async with world(app) as w:
        run = await w.begin(flow)
        await run.cancel()
        await w.settle()
        assert await run.status() == "cancelled"


async def test_a_workflow_that_raises_fails_with_its_own_error(
    world: Any, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        ctx.step(charge, 1)
        raise ZeroDivisionError

    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed) as failed:
            await run.result()
    assert failed.value.type == "ZeroDivisionError"
    assert "`ctx.step(charge, 1)`" in caplog.text, "which may be why"


async def test_leaving_memory_blames_nobody(
    world: Any, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        later = ctx.step(charge, 1)
        try:
            return await ctx.wait(go) + await later
        finally:
            later = ctx.step(charge, 2)

    async with world(app) as w:
        await w.begin(flow)
        await w.evict()
    assert "never awaited" not in caplog.text
