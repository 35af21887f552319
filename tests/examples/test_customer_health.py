"""Scores: incremental, without doubles, and the same when they are built anew."""

import random
from pathlib import Path

import pytest
from customer_health import STORY, WORTH, Scores, app, health_changed, rebuild

from perdure.testing import World


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/health.db"


async def test_the_story(url: str) -> None:
    scores = Scores()
    async with World(app, url, deps=[scores]) as world:
        for topic, payload, customer in STORY:
            await world.app.emit(topic, payload, entity=customer)
        await world.advance("4m59s")
        assert scores.all() == {}
        await world.advance("1s")
        assert scores.all() == {"customer/ada": 75, "customer/bob": 49}
        moved = [
            (one.entity, health_changed.read(one).after)
            for one in await world.app.events(health_changed)
        ]
        assert [after for who, after in moved if who == "customer/bob"] == [64, 59, 49]
        assert [after for who, after in moved if who == "customer/ada"] == [78, 83, 75]
    scores.close()


async def test_rewound_and_rebuilt_they_are_the_same(url: str) -> None:
    scores, chance = Scores(), random.Random(7)
    async with World(app, url, deps=[scores]) as world:
        for n in range(300):
            # Some have a key, and some of those come again under another topic.
            key = {"idempotency_key": f"k{chance.randrange(60)}"} if chance.random() < 0.5 else {}
            topic = chance.choice(sorted(WORTH))
            await world.app.emit(topic, {"n": n, **key}, entity=f"customer/{chance.randrange(5)}")
            if n % 20 == 0:
                await world.advance("5m")
        await world.advance("5m")
        first, told = scores.all(), len(await world.app.events(health_changed, limit=1000))
        assert len(first) == 5 and len(set(first.values())) > 1

        await world.app.rewind("customer_health", "beginning")
        await world.advance("5m")
        assert scores.all() == first

        await rebuild(world.app, scores)
        await world.settle()
        assert scores.all() == first
        assert len(await world.app.events(health_changed, limit=1000)) == told
        assert not await world.app.parked() and not await world.app.events("ledger.*")
    scores.close()
