"""What stays in memory: up to a bound, least recently used goes first; nothing depends on it."""

import asyncio
import gc
import tracemalloc
import weakref
from typing import Any

from perdure import App, Context, Signal, step

go = Signal("go", int, buffer="all")


async def test_at_most_so_many_waiting_runs_stay(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    async with world(app, resident=5) as w:
        runs = [await w.begin(flow, id=f"{n:02}") for n in range(20)]
        assert w.worker.resident_runs == 5
        assert set(w.worker._executions) == {f"{n:02}" for n in range(15, 20)}
        await w.app.signal_many([(run.id, go, 1) for run in runs])
        await w.settle()
        assert [await run.result() for run in runs] == [1] * 20
        assert w.worker.resident_runs == 0


async def test_the_least_recently_used_goes_first(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        while True:
            await ctx.wait(go)

    async with world(app, resident=3) as w:
        for name in ("a", "b", "c"):
            await w.begin(flow, id=name)
        await w.app.signal("a", go, 1)
        await w.settle()
        await w.begin(flow, id="d")
        assert set(w.worker._executions) == {"a", "c", "d"}


async def test_an_evicted_run_has_no_owner_and_comes_back(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go) + await ctx.wait(go)

    async with world(app) as w:
        await w.begin(flow, id="a")
        await w.evict()
        record = await w.store.run("a")
        assert (record.owner, record.status) == (None, "waiting")
        await w.app.signal("a", go, 1)
        await w.settle()
        await w.evict()
        await w.app.signal("a", go, 2)
        await w.settle()
        assert await w.app.run("a").result() == 3


async def test_a_resident_run_wakes_without_a_claim(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go) + await ctx.wait(go)

    async with world(app, resident=10) as w:
        await w.begin(flow, id="a")
        before = (await w.store.run("a")).fence
        await w.app.signal("a", go, 1)
        await w.settle()
        assert (await w.store.run("a")).fence == before != 0


async def test_finally_blocks_run_on_eviction_but_may_not_act(world: Any, app: App) -> None:
    """Each eviction unwinds the code: synchronous cleanup runs, durable calls in it do nothing."""
    unwound: list[str] = []
    ran: list[str] = []

    @step
    async def cleanup() -> None:
        ran.append("cleanup")

    @app.workflow
    async def flow(ctx: Context) -> int:
        try:
            return await ctx.wait(go)
        finally:
            unwound.append("finally")
            await ctx.step(cleanup)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.evict()
        assert unwound == ["finally"]
        assert ran == []
        assert (await run.history()).items
        await w.app.signal("a", go, 5)
        await w.settle()
        assert await run.result() == 5
        assert ran == ["cleanup"]


async def test_code_that_catches_everything_is_unwound_all_the_same(world: Any, app: App) -> None:
    """Each refused await comes back to the engine, which gives up; the code never spins by itself."""
    made, refused = 0, 0

    @app.workflow
    async def flow(ctx: Context) -> int:
        nonlocal made, refused
        while True:
            try:
                made += 1
                call = ctx.wait(go)
                return await call
            except BaseException:  # as bad code does
                refused += 1
                if refused > 100:
                    raise

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.evict()
        assert made == refused == 101
        await w.app.signal("a", go, 5)
        await w.settle()
        assert await run.result() == 5


async def test_eviction_unwinds_branches_from_the_inside(world: Any, app: App) -> None:
    unwound: list[str] = []

    async def branch(ctx: Context, name: str) -> int:
        try:
            return await ctx.wait(go, name=name)
        finally:
            unwound.append(name)

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        try:
            return list(await ctx.gather(branch(ctx, "one"), branch(ctx, "two")))
        finally:
            unwound.append("outer")

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.evict()
        assert unwound == ["one", "two", "outer"]
        await w.app.signal("a", go, 1, path="gather[0]/one")
        await w.app.signal("a", go, 2, path="gather[1]/two")
        await w.settle()
        assert await run.result() == [1, 2]


async def test_branches_in_cleanup_code_are_put_away_on_eviction(world: Any, app: App) -> None:
    """A coroutine that was made for a gather and never begun would warn; warnings are errors here."""
    undone: list[str] = []

    async def undo(ctx: Context, what: str) -> None:
        await ctx.sleep(0)
        undone.append(what)

    @app.workflow
    async def flow(ctx: Context) -> int:
        try:
            return await ctx.wait(go)
        finally:
            await ctx.gather(undo(ctx, "one"), undo(ctx, "two"))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.evict()
        gc.collect()
        assert undone == []
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await run.result() == 1
        assert undone == ["one", "two"]


async def test_a_signal_in_the_moment_of_eviction_is_not_lost(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return [await ctx.wait(go) for _ in range(20)]

    async with world(app, resident=1) as w:
        first = await w.begin(flow, id="a")
        second = await w.begin(flow, id="b")
        for n in range(20):
            await asyncio.gather(w.app.signal("a", go, n), w.app.signal("b", go, n))
        await w.settle()
        assert await first.result() == await second.result() == list(range(20))


async def test_more_runs_than_may_be_active_wait_their_turn(world: Any, app: App) -> None:
    busy, peak = 0, 0

    @step
    async def work(n: int) -> int:
        nonlocal busy, peak
        busy += 1
        peak = max(peak, busy)
        await asyncio.sleep(0)
        busy -= 1
        return n

    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        return await ctx.step(work, n)

    async with world(app, concurrency=4) as w:
        runs = [await w.app.start(flow, n) for n in range(30)]
        await w.settle()
        assert [await run.result() for run in runs] == list(range(30))
        assert peak <= 4


async def test_a_run_that_is_over_is_freed_without_the_garbage_collector(
    world: Any, app: App
) -> None:
    @step
    async def one() -> int:
        return 1

    @app.workflow
    async def flow(ctx: Context) -> int:
        first, second = await ctx.gather(ctx.step(one), ctx.step(one))
        return first + second + await ctx.wait(go)

    async with world(app, resident=10) as w:
        run = await w.begin(flow)
        execution = weakref.ref(w.worker._executions[run.id])
        gc.collect()
        gc.disable()
        try:
            await w.app.signal(run.id, go, 1)
            assert await run.result() == 3
            await w.settle()
            assert execution() is None
        finally:
            gc.enable()


async def test_memory_does_not_grow_with_finished_runs(world: Any, app: App) -> None:
    @step
    async def work(n: int) -> int:
        return n

    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        await ctx.step(work, n)
        return await ctx.wait(go)

    async with world(app) as w:

        async def round_of(count: int) -> None:
            for n in range(count):
                run = await w.begin(flow, n)
                await w.app.signal(run.id, go, 1)
            await w.settle()
            await w.app.prune(0)
            gc.collect()

        await w.advance("1s")
        await round_of(20)
        w.clock.set(w.clock.now() + 1_000_000)
        await w.app.prune(0)
        executions = _living_executions()
        tracemalloc.start()
        before = tracemalloc.take_snapshot()
        await round_of(60)
        grown = [
            one
            for one in tracemalloc.take_snapshot().compare_to(before, "filename")
            if "perdure/runtime" in str(one.traceback)
            or "perdure/coordinator" in str(one.traceback)
        ]
        tracemalloc.stop()
        assert w.worker.resident_runs == 0
        assert _living_executions() <= executions + 1
        assert sum(one.size_diff for one in grown) < 60 * 1024


def _living_executions() -> int:
    from perdure.runtime.turn import Execution

    gc.collect()
    return sum(isinstance(one, Execution) for one in gc.get_objects())
