"""continue_as: the same run, the next generation, a fresh history; what is kept and what begins anew."""

import asyncio
import gc
from typing import Any

import pytest

from perdure import App, Context, RunFailed, Signal, SignalTaken, step, step_info

go = Signal("go", int)
line = Signal("line", int, buffer="all")
claim = Signal("claim", str, buffer="first")


async def test_a_generation_ends_and_the_next_begins(world: Any, app: App) -> None:
    @app.workflow
    async def countdown(ctx: Context, left: int) -> str:
        await ctx.sleep("1h")
        if left == 0:
            return "lift-off"
        await ctx.continue_as(countdown, left - 1)

    async with world(app) as w:
        run = await w.begin(countdown, 3, id="a")
        for generation in range(4):
            assert (await run.info()).generation == generation
            await w.advance("1h")
        assert await run.result() == "lift-off"
        # The last generation and the one before it stay readable; an endless run does not grow.
        assert {one.generation for one in await run.history()} == {2, 3}
        assert len(await w.facts("workflow.run_continued")) == 3


async def test_a_thousand_generations_leave_few_rows(world: Any, app: App) -> None:
    @app.workflow
    async def loop(ctx: Context, n: int) -> int:
        await ctx.set("at", n)
        if n == 60:
            return n
        await ctx.continue_as(loop, n + 1)

    async with world(app) as w:
        run = await w.begin(loop, 0)
        assert await run.result() == 60
        assert (await w.store.counts())["steps"] <= 2


async def test_code_that_cleans_up_with_a_step_is_unwound_at_once(
    world: Any, app: App, recwarn: pytest.WarningsRecorder
) -> None:
    cleaned: list[int] = []
    unwound: list[int] = []

    @step
    async def clean(n: int) -> None:
        cleaned.append(n)

    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        try:
            if n < 2:
                await ctx.continue_as(flow, n + 1)
            return n
        finally:
            unwound.append(n)
            if n < 2:
                await ctx.step(clean, n)

    async with world(app) as w:
        run = await w.begin(flow, 0)
        assert await run.result() == 2
        gc.collect()  # what is left over would be complained of here
    assert unwound == [0, 1, 2]
    assert cleaned == []  # a generation that is over records nothing more
    assert [one.message for one in recwarn if "coroutine" in str(one.message)] == []


async def test_buffered_signals_are_kept(world: Any, app: App) -> None:
    @app.workflow
    async def taker(ctx: Context, seen: list[int]) -> list[int]:
        await ctx.sleep("1s")
        seen = [*seen, await ctx.wait(line)]
        if len(seen) == 3:
            return seen
        await ctx.continue_as(taker, seen)

    async with world(app) as w:
        run = await w.begin(taker, [], id="a")
        for n in range(3):
            await w.app.signal("a", line, n)
        await w.advance("10s")
        assert await run.result() == [0, 1, 2]


async def test_published_state_and_tags_are_kept(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, n: int) -> None:
        if n == 0:
            await ctx.set("phase", "first")
            await ctx.set("kept", [1, 2])
            await ctx.continue_as(flow, 1)
        await ctx.set("phase", "second")
        await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow, 0, tags={"team": "a"}, entity="order/7")
        assert await run.get("phase") == "second"
        assert await run.get("kept") == [1, 2]
        info = await run.info()
        assert (info.tags, info.entity, info.generation) == ({"team": "a"}, "order/7", 1)


async def test_first_claims_are_renewed(world: Any, app: App) -> None:
    @app.workflow
    async def rounds(ctx: Context, seen: list[str]) -> list[str]:
        seen = [*seen, await ctx.wait(claim)]
        if len(seen) == 2:
            return seen
        await ctx.continue_as(rounds, seen)

    async with world(app) as w:
        run = await w.begin(rounds, [], id="a")
        await w.app.signal("a", claim, "ann")
        await w.settle()
        await w.app.signal("a", claim, "bob")
        await w.settle()
        assert await run.result() == ["ann", "bob"]


async def test_a_claim_that_was_not_taken_still_counts_in_its_generation(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        await ctx.sleep("1s")
        return await ctx.wait(claim)

    async with world(app) as w:
        await w.begin(flow, id="a")
        await w.app.signal("a", claim, "ann")
        with pytest.raises(SignalTaken):
            await w.app.signal("a", claim, "bob")


async def test_idempotency_keys_and_paths_begin_anew(world: Any, app: App) -> None:
    keys: list[str] = []

    @step
    async def pay() -> None:
        keys.append(step_info().idempotency_key)

    @app.workflow
    async def flow(ctx: Context, n: int) -> list[str]:
        await ctx.step(pay)
        await ctx.step(pay)
        if n == 0:
            await ctx.continue_as(flow, 1)
        return [one.split("/", 1)[1] for one in keys]

    async with world(app) as w:
        run = await w.begin(flow, 0, id="a")
        assert await run.result() == ["0/pay", "0/pay#2", "1/pay", "1/pay#2"]


async def test_chance_differs_between_generations(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, seen: list[str]) -> list[str]:
        seen = [*seen, ctx.ulid(), str(ctx.random())]
        if len(seen) == 4:
            return seen
        await ctx.continue_as(flow, seen)

    async with world(app) as w:
        assert len(set(await (await w.begin(flow, [])).result())) == 4


async def test_continue_as_another_workflow(world: Any, app: App) -> None:
    @app.workflow
    async def second(ctx: Context, word: str) -> str:
        await ctx.sleep("1s")
        return f"second {word}"

    @app.workflow
    async def first(ctx: Context) -> str:
        await ctx.continue_as(second, "hello")

    async with world(app) as w:
        run = await w.begin(first)
        assert (await run.info()).workflow == "second"
        await w.advance("1s")
        assert await run.result() == "second hello"


async def test_a_run_waited_for_ends_with_its_last_generation(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context, n: int) -> int:
        await ctx.sleep("1s")
        if n == 3:
            return n
        await ctx.continue_as(child, n + 1)

    @app.workflow
    async def parent(ctx: Context) -> int:
        return await ctx.call(child, 0)

    async with world(app) as w:
        run = await w.begin(parent)
        await w.advance("10s")
        assert await run.result() == 3


async def test_other_branches_end_with_the_generation(world: Any, app: App) -> None:
    cut = asyncio.Event()
    begun = asyncio.Event()

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.set()
            raise

    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        if n == 1:
            return await ctx.wait(go)

        async def turn_over() -> None:
            await ctx.wait(go)
            await ctx.continue_as(flow, 1)

        await ctx.gather(ctx.step(slow), turn_over(), ctx.wait(line))
        return 0

    async with world(app) as w:
        run = await w.app.start(flow, 0, id="a")
        await begun.wait()
        await w.app.signal("a", go, 1)
        await cut.wait()
        await w.settle()
        assert [one.target for one in await run.waiting()] == ["go"]
        await w.app.signal("a", go, 2)
        await w.settle()
        assert await run.result() == 2


async def test_a_crash_right_after_continue_as(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        await ctx.wait(go)
        if n == 2:
            return n
        await ctx.continue_as(flow, n + 1)

    async with world(app) as w:
        await w.begin(flow, 0, id="a")
        await w.app.signal("a", go, 1)
        await w.settle()
        await w.crash()
    async with world(app) as w:
        for _ in range(2):
            await w.app.signal("a", go, 1)
            await w.settle()
        assert await w.app.run("a").result() == 2


async def test_cancel_reaches_a_later_generation(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        if n == 0:
            await ctx.continue_as(flow, 1)
        try:
            return await ctx.wait(go)
        except asyncio.CancelledError:
            await ctx.sleep("1s")
            raise

    async with world(app) as w:
        run = await w.begin(flow, 0)
        await run.cancel()
        await w.advance("1s")
        assert await run.status() == "cancelled"


async def test_a_cancelled_run_may_not_escape_by_continuing(world: Any, app: App) -> None:
    """The cancel was told in the generation that ended; the next one is told again, or ends."""

    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        try:
            return await ctx.wait(go)
        except asyncio.CancelledError:
            if n == 5:
                raise
            await ctx.continue_as(flow, n + 1)

    async with world(app) as w:
        run = await w.begin(flow, 0)
        await run.cancel()
        await w.settle()
        assert await run.status() == "cancelled"


async def test_bad_input_for_the_next_generation_is_raised_where_it_is_asked(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context, n: int) -> None:
        await ctx.continue_as(flow, "text")  # type: ignore[arg-type]

    async with world(app) as w:
        run = await w.begin(flow, 0)
        with pytest.raises(RunFailed, match="InvalidPayload"):
            await run.result()


async def test_start_with_the_same_id_finds_a_continued_run(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, n: int) -> None:
        if n == 0:
            await ctx.continue_as(flow, 1)
        await ctx.wait(go)

    async with world(app) as w:
        await w.begin(flow, 0, id="a")
        again = await w.app.start(flow, 0, id="a")
        assert not again.created
