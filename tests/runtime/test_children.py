"""Child runs: started once, waited for, failing and cancelled with their parent."""

import asyncio
from typing import Any

import pytest

from perdure import (
    App,
    Conflict,
    Context,
    RunCancelled,
    RunFailed,
    RunNotFound,
    Signal,
    TimedOut,
    WaitTimeout,
    ended,
    timer,
)

go = Signal("go", int)


async def test_call_starts_a_child_and_gives_its_result(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context, x: int) -> int:
        await ctx.sleep("1h")
        return 2 * x

    @app.workflow
    async def parent(ctx: Context) -> int:
        return await ctx.call(child, 21)

    async with world(app) as w:
        run = await w.begin(parent, id="p")
        assert await run.status() == "waiting"
        (made,) = await w.app.runs(parent="p")
        assert (made.workflow, made.parent_id) == ("child", "p")
        await w.advance("1h")
        assert await run.result() == 42
        assert [one.path for one in await run.history()] == ["child", "child.result"]


async def test_start_gives_something_to_wait_for(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context, x: int) -> int:
        return x + 1

    @app.workflow
    async def parent(ctx: Context) -> list[Any]:
        one = await ctx.start(child, 1, id="one", tags={"kind": "first"}, entity="order/1")
        two = await ctx.start(child, 2)
        results = await ctx.gather(ctx.wait(one), ctx.wait(two))
        return [one.run_id, *results]

    async with world(app) as w:
        run = await w.begin(parent)
        assert await run.result() == ["one", 2, 3]
        info = await w.app.run("one").info()
        assert (info.tags, info.entity) == ({"kind": "first"}, "order/1")


async def test_a_child_is_started_once_though_the_parent_replays(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context) -> None:
        await ctx.wait(go)

    @app.workflow
    async def parent(ctx: Context) -> str:
        handle = await ctx.start(child)
        await ctx.sleep("1m")
        await ctx.sleep("1m")
        return handle.run_id

    async with world(app) as w:
        run = await w.begin(parent)
        for _ in range(2):
            await w.evict()
            await w.advance("1m")
        made = await w.app.runs(workflow=child)
        assert [one.id for one in made] == [await run.result()]


async def test_the_failure_of_a_child_is_raised_as_run_failed(world: Any, app: App) -> None:
    seen: list[tuple[Any, ...]] = []

    async def bad() -> None:
        raise ValueError("no luck")

    @app.workflow
    async def child(ctx: Context) -> None:
        await ctx.step(bad)

    @app.workflow
    async def parent(ctx: Context) -> str:
        try:
            await ctx.call(child, id="kid")
        except RunFailed as error:
            seen.append((error.run_id, error.type, error.message, error.path))
        await ctx.wait(go)
        return "survived"

    async with world(app) as w:
        run = await w.begin(parent, id="p")
        await w.evict()
        await w.app.signal("p", go, 1)
        await w.settle()
        assert await run.result() == "survived"
        assert seen == [("kid", "ValueError", "no luck", "bad")] * 2


async def test_an_uncaught_failure_of_a_child_fails_the_parent(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context) -> None:
        raise ValueError("no luck")

    @app.workflow
    async def parent(ctx: Context) -> None:
        await ctx.call(child, id="kid")

    async with world(app) as w:
        run = await w.begin(parent)
        with pytest.raises(RunFailed, match="run 'kid' failed") as failed:
            await run.result()
        assert failed.value.type == "RunFailed"


@pytest.mark.parametrize("how", ["cancel", "terminate"])
async def test_a_child_that_was_ended_raises_run_cancelled(world: Any, app: App, how: str) -> None:
    @app.workflow
    async def child(ctx: Context) -> None:
        await ctx.wait(go)

    @app.workflow
    async def parent(ctx: Context) -> list[str]:
        try:
            await ctx.call(child, id="kid")
        except RunCancelled as error:
            return [error.run_id, error.status, error.reason]
        return []

    async with world(app) as w:
        run = await w.begin(parent)
        await getattr(w.app.run("kid"), how)("not needed")
        await w.settle()
        status = "cancelled" if how == "cancel" else "terminated"
        assert await run.result() == ["kid", status, "not needed"]


async def test_cancelling_the_parent_cancels_its_children(world: Any, app: App) -> None:
    @app.workflow
    async def grandchild(ctx: Context) -> None:
        await ctx.wait(go)

    @app.workflow
    async def child(ctx: Context) -> None:
        await ctx.call(grandchild, id="grandkid")

    @app.workflow
    async def parent(ctx: Context) -> None:
        await ctx.call(child, id="kid")

    async with world(app) as w:
        run = await w.begin(parent)
        await run.cancel("enough")
        await w.settle()
        for run_id in (run.id, "kid", "grandkid"):
            assert await w.app.run(run_id).status() == "cancelled"
        reason = (await w.app.run("kid").info()).reason
        assert "its parent" in (reason or "")


async def test_terminating_the_parent_terminates_its_children(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context) -> None:
        await ctx.wait(go)

    @app.workflow
    async def parent(ctx: Context) -> None:
        await ctx.start(child, id="kid")
        await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(parent)
        await run.terminate()
        await w.settle()
        assert await w.app.run("kid").status() == "terminated"


async def test_children_outlive_a_parent_that_ends_by_itself(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context) -> int:
        return await ctx.wait(go)

    @app.workflow
    async def parent(ctx: Context) -> None:
        await ctx.start(child, id="kid")

    async with world(app) as w:
        await (await w.begin(parent)).result()
        await w.app.signal("kid", go, 5)
        await w.settle()
        assert await w.app.run("kid").result() == 5


async def test_a_wait_for_a_child_can_time_out_and_be_tried_again(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context) -> int:
        return await ctx.wait(go)

    @app.workflow
    async def parent(ctx: Context) -> list[Any]:
        handle = await ctx.start(child, id="kid")
        seen: list[Any] = []
        try:
            await ctx.wait(handle, timeout="1m")
        except WaitTimeout:
            seen.append("late")
        seen.append(await ctx.wait(handle | timer("1m")) == TimedOut())
        seen.append(await ctx.wait(handle))
        return seen

    async with world(app) as w:
        run = await w.begin(parent)
        await w.advance("2m")
        await w.app.signal("kid", go, 3)
        await w.settle()
        assert await run.result() == ["late", True, 3]


async def test_ended_waits_for_any_run_by_its_id(world: Any, app: App) -> None:
    @app.workflow
    async def other(ctx: Context) -> list[int]:
        return [await ctx.wait(go)]

    @app.workflow
    async def watcher(ctx: Context) -> Any:
        return await ctx.wait(ended("other", list[int]))

    async with world(app) as w:
        await w.begin(other, id="other")
        run = await w.begin(watcher)
        assert await run.status() == "waiting"
        await w.app.signal("other", go, 4)
        await w.settle()
        assert await run.result() == [4]
        late = await w.begin(watcher)
        assert await late.result() == [4]


async def test_ended_of_a_run_that_never_was(world: Any, app: App) -> None:
    @app.workflow
    async def watcher(ctx: Context) -> str:
        try:
            await ctx.wait(ended("nobody"))
        except RunNotFound as error:
            return str(error)
        return "no"

    async with world(app) as w:
        assert await (await w.begin(watcher)).result() == "there is no run 'nobody'"


async def test_many_runs_may_wait_for_one(world: Any, app: App) -> None:
    @app.workflow
    async def other(ctx: Context) -> int:
        return await ctx.wait(go)

    @app.workflow
    async def watcher(ctx: Context) -> int:
        return await ctx.wait(ended("other", int)) + 1

    async with world(app) as w:
        await w.begin(other, id="other")
        runs = [await w.app.start(watcher) for _ in range(10)]
        await w.settle()
        await w.app.signal("other", go, 1)
        await w.settle()
        assert [await one.result() for one in runs] == [2] * 10


async def test_a_handle_from_outside_can_be_waited_for(world: Any, app: App) -> None:
    handles: list[Any] = []

    @app.workflow
    async def other(ctx: Context) -> int:
        return await ctx.wait(go)

    @app.workflow
    async def watcher(ctx: Context) -> int:
        won = await ctx.first(run=handles[0], late=timer("1d"))
        assert won.name == "run"
        return int(won.value)

    async with world(app) as w:
        handles.append(await w.begin(other, id="other"))
        run = await w.begin(watcher)
        await w.app.signal("other", go, 6)
        await w.settle()
        assert await run.result() == 6


async def test_starting_a_child_under_a_taken_id(world: Any, app: App) -> None:
    seen: list[str] = []

    @app.workflow
    async def child(ctx: Context, x: int) -> int:
        return x

    @app.workflow
    async def parent(ctx: Context) -> int:
        same = await ctx.start(child, 1, id="kid")
        again = await ctx.start(child, 1, id="kid")
        assert same.run_id == again.run_id
        try:
            await ctx.start(child, 2, id="kid")
        except Conflict as error:
            seen.append(str(error))
        await ctx.sleep(1)
        return await ctx.wait(again)

    async with world(app) as w:
        run = await w.begin(parent)
        await w.evict()
        await w.advance("1s")
        assert await run.result() == 1
        assert len(seen) == 2
        assert seen[0] == seen[1]
        assert "another input" in seen[0]


async def test_calls_in_branches(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context, x: int) -> int:
        await ctx.sleep(x)
        return x

    @app.workflow
    async def parent(ctx: Context) -> list[int]:
        return list(await ctx.gather(*(ctx.call(child, n) for n in (3, 1, 2))))

    async with world(app) as w:
        run = await w.begin(parent)
        await w.advance("3s")
        assert await run.result() == [3, 1, 2]


async def test_a_deep_chain_of_calls(world: Any, app: App) -> None:
    @app.workflow
    async def down(ctx: Context, n: int) -> int:
        if n == 0:
            return 0
        return 1 + await ctx.call(down, n - 1)

    async with world(app) as w:
        run = await w.begin(down, 20)
        assert await run.result() == 20


async def test_a_parent_paused_while_its_child_ends(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context) -> int:
        return await ctx.wait(go)

    @app.workflow
    async def parent(ctx: Context) -> int:
        return await ctx.call(child, id="kid")

    async with world(app) as w:
        run = await w.begin(parent)
        await run.pause()
        await w.app.signal("kid", go, 5)
        await w.settle()
        assert await run.status() == "paused"
        await run.resume()
        await w.settle()
        assert await run.result() == 5


async def test_a_child_that_is_retried_answers_a_later_wait(world: Any, app: App) -> None:
    healthy = False

    async def work() -> int:
        if not healthy:
            raise OSError("down")
        return 7

    @app.workflow
    async def child(ctx: Context) -> int:
        return await ctx.step(work)

    @app.workflow
    async def parent(ctx: Context) -> int:
        handle = await ctx.start(child, id="kid")
        try:
            return await ctx.wait(handle)
        except RunFailed:
            await ctx.wait(go)
        return await ctx.wait(handle)

    async with world(app) as w:
        run = await w.begin(parent, id="p")
        healthy = True
        await w.app.run("kid").retry()
        await w.settle()
        await w.app.signal("p", go, 1)
        await w.settle()
        assert await run.result() == 7


async def test_cancel_before_the_child_was_ever_claimed(world: Any, app: App) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.workflow
    async def child(ctx: Context) -> None:
        await ctx.step(work)

    @app.workflow
    async def parent(ctx: Context) -> None:
        await ctx.call(child, id="kid")

    async with world(app) as w:
        run = await w.app.start(parent)
        await begun.wait()
        await run.cancel()
        await w.settle()
        assert await w.app.run("kid").status() == "cancelled"
        assert await run.status() == "cancelled"
