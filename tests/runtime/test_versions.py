"""Versions of a workflow side by side: a run keeps its own, what is started anew takes the newest."""

from typing import Any

import pytest

from perdure import App, Conflict, Context, Signal, Topic, UnknownWorkflow

go = Signal("go", int)
placed = Topic("order.placed", int)


def app_with(*versions: int) -> App:
    """An app that has these versions of `flow`: each says which it is, once it is let go."""
    app = App("memory://")
    for version in versions:
        app.workflow(name="flow", version=version)(_says(version))

    @app.workflow
    async def parent(ctx: Context, given: int) -> str:
        return str(await ctx.call("flow", given))

    @app.workflow
    async def renews(ctx: Context, given: int) -> None:
        await ctx.wait(go)
        await ctx.continue_as("flow", given)

    return app


def _says(version: int) -> Any:
    async def flow(ctx: Context, given: int) -> str:
        return f"version {version}: {given} {await ctx.wait(go)}"

    return flow


async def test_versions_live_side_by_side(world: Any) -> None:
    app = app_with(1, 2)
    async with world(app) as w:
        old = app.registry.find("flow", 1)
        await w.begin(old, 1, id="old")
        await w.begin("flow", 2, id="newest")
        await w.evict()
        for run_id in ("old", "newest"):
            await w.app.signal(run_id, go, 7)
        await w.settle()
        assert await w.app.run("old").result() == "version 1: 1 7"
        assert await w.app.run("newest").result() == "version 2: 2 7"
        assert [(await w.app.run(one).info()).version for one in ("old", "newest")] == [1, 2]


async def test_a_run_keeps_its_version_when_a_newer_one_comes(world: Any) -> None:
    async with world(app_with(1)) as w:
        await w.begin("flow", 1, id="a")
    async with world(app_with(1, 2)) as w:
        await w.app.signal("a", go, 7)
        await w.settle()
        assert await w.app.run("a").result() == "version 1: 1 7"


async def test_a_run_waits_for_a_worker_that_has_its_version(world: Any) -> None:
    async with world(app_with(1)) as w:
        await w.begin("flow", 1, id="a")
    async with world(app_with(2)) as w:
        await w.app.signal("a", go, 7)
        await w.settle()
        assert await w.app.run("a").status() == "ready"
        (waiting,) = await w.app.run("a").waiting()
        assert waiting.kind == "worker" and "version 1 of 'flow'" in (waiting.reason or "")
    async with world(app_with(1, 2)) as w:
        await w.settle()
        assert await w.app.run("a").result() == "version 1: 1 7"


async def test_children_schedules_and_subscriptions_take_the_newest(world: Any) -> None:
    app = app_with(1, 3, 2)
    async with world(app) as w:
        await w.app.subscribe("order.placed", "flow", name="orders", map="payload")
        await w.app.schedule("1h", "flow", 5, name="hourly")
        await w.begin("parent", 4)
        await w.app.emit(placed, 6)
        await w.advance("1h")
        runs = (await w.app.runs(workflow="flow")).items
        assert sorted(one.version for one in runs) == [3, 3, 3]


async def test_continue_as_may_move_to_the_newest(world: Any) -> None:
    app = app_with(1)
    async with world(app) as w:
        await w.begin("renews", 8, id="a")
    app = app_with(1, 2)
    async with world(app) as w:
        for _ in range(2):
            await w.app.signal("a", go, 7)
            await w.settle()
        assert await w.app.run("a").result() == "version 2: 8 7"


async def test_what_is_not_registered_is_refused(world: Any) -> None:
    app = app_with(1)
    other = app_with(1, 2).registry.find("flow", 2)
    async with world(app) as w:
        with pytest.raises(UnknownWorkflow):
            await w.app.start(other, 1)
        with pytest.raises(UnknownWorkflow):
            await w.app.start("flaw", 1)
    with pytest.raises(Conflict, match="version 2"):
        twice = app_with(2)

        @twice.workflow(name="flow", version=2)
        async def again(ctx: Context) -> None: ...
