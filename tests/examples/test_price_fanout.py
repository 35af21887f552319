"""One event resumes thousands, in chunks, each once; costs that are worth it start one repricing each."""

from pathlib import Path

import pytest
from price_fanout import Cost, Price, app, cost_changed, open_quotes, price_changed, waiting

from perdure import Emitted
from perdure.model import limits
from perdure.testing import World

MANY = 2500


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/fanout.db"


async def test_thousands_of_quotes_go_on(url: str) -> None:
    async with World(app, url) as world:
        quotes = await open_quotes(world.app, "7", MANY)
        others = await open_quotes(world.app, "8", 3)
        await world.settle()
        assert await waiting(world.app) == MANY + 3
        told = await world.app.emit(price_changed, Price(10), entity="sku/7")
        assert isinstance(told, Emitted)
        assert told.resumed == limits.resumed_per_commit_max and told.more
        await world.settle()
        totals = [await world.app.run(one).result() for one in quotes]
        assert totals == [10 * (n + 1) for n in range(MANY)]
        assert await waiting(world.app) == 3
        assert {await world.app.run(one).status() for one in others} == {"waiting"}

        completed = []
        cursor = None
        while True:
            page = await world.app.events("workflow.run_completed", limit=1000, after=cursor)
            completed += [one.payload["run_id"] for one in page]
            if (cursor := page.cursor) is None:
                break
        assert sorted(completed) == sorted(quotes)  # each once


async def test_costs_that_are_worth_it(url: str) -> None:
    async with World(app, url) as world:
        (last,) = await open_quotes(world.app, "9", 1)
        for old, new in ((100, 105), (100, 106), (100, 95), (100, 94), (100, 100)):
            await world.app.emit(cost_changed, Cost("1", old, new), entity="vendor/acme")
        again = Cost("9", 100, 200)
        for _ in range(2):
            await world.app.emit(cost_changed, again, entity="vendor/acme", key="letter-5")
        await world.settle()
        runs = await world.app.runs(workflow="reprice")
        assert sorted([await world.app.run(one.id).result() for one in runs]) == [141, 159, 300]
        assert {one.entity for one in runs} == {"vendor/acme"}
        assert await world.app.run(last).result() == 300
        assert not await world.app.parked()
