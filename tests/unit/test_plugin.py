"""The pytest plugin: its fixtures are there without any import, and work under any runner."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from perdure import App, Context
from perdure.testing import VirtualClock


def test_a_world_runs_an_app_in_virtual_time(
    perdure_world: Callable[..., Any], virtual_clock: VirtualClock
) -> None:
    app = App("sqlite:///never.db")

    @app.workflow
    async def flow(ctx: Context) -> timedelta:
        begun = ctx.now()
        await ctx.sleep("48h")
        return ctx.now() - begun

    async def late() -> timedelta:
        async with perdure_world(app) as world:
            assert world.clock is virtual_clock
            run = await world.app.start(flow)
            await world.advance("48h")
            slept: timedelta = await run.result()
            return slept

    assert asyncio.run(late()) == timedelta(hours=48)
