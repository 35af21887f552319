"""Decisions that rest on several looks, while time goes on."""

import asyncio

from servers.namespaces import Lent

from perdure import App, Context, Topic


async def test_an_event_about_something_reaches_those_who_wait_while_time_goes_on(
    postgres_url: str, lend_namespace: Lent
) -> None:
    """Whom to look for depends on the time of the event, and so must not change with each look."""
    news = Topic("told.news", int)
    app = App(postgres_url, namespace=lend_namespace())

    @app.workflow
    async def listening(ctx: Context) -> int:
        return await ctx.wait(news.about("show/1"))

    async with app:
        run = await app.start(listening)
        async with asyncio.timeout(30):
            while await run.status() != "waiting":  # noqa: ASYNC110 (nobody is told that a run parks)
                await asyncio.sleep(0.01)
        await app.emit(news, 7, entity="show/1")
        assert await run.result("30s") == 7
