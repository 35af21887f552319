"""Runs that answer with `ctx.reply`, as documents and as forks: what was answered is, and what was not still can be."""

import pytest
from worlds import Worlds

from perdure import App, Context, Signal
from perdure.testing import replay_check

question = Signal("question", int)


@pytest.fixture
def oracle(app: App) -> App:
    @app.workflow
    async def oracle(ctx: Context) -> list[int]:
        first = await ctx.wait(question)
        await ctx.reply(2 * first)
        second = await ctx.wait(question)
        await ctx.sleep("1h")
        await ctx.reply(2 * second)
        return [first, second]

    return app


async def test_a_run_that_has_replied_is_exported_imported_forked_and_checked(
    world: Worlds, oracle: App
) -> None:
    async with world(oracle) as w:
        run = await w.begin("oracle")
        assert await w.app.ask(run.id, question, 21) == 42
        await w.settle()
        document = await run.export()
        assert replay_check(oracle, document).count == 1
        copied = await w.app.import_run(document, id="copied")
        fork = await run.fork("question#2")
        for one in (run, copied, fork):
            await w.settle()
            await w.app.signal(one.id, question, 1)
        await w.advance("1h")
        for one in (run, copied, fork):
            assert await one.result() == [21, 1]


async def test_a_signal_that_is_not_answered_yet_is_answered_by_a_copy_too(
    world: Worlds, oracle: App
) -> None:
    async with world(oracle) as w:
        run = await w.begin("oracle")
        assert await w.app.ask(run.id, question, 21) == 42
        await w.app.signal(run.id, question, 1)
        await w.settle()
        copied = await w.app.import_run(await run.export(), id="copied")
        fork = await run.fork("sleep")
        await w.advance("1h")
        for one in (run, copied, fork):
            assert await one.result() == [21, 1]
