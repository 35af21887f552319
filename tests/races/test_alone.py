"""A batch that others have overtaken too often goes alone: they wait, it gets on, and everything else is as ever.

Here one of the two processes always goes alone, against one that goes the quick way; and all of them at once.
"""

from typing import Any

import pytest
from racing import Race
from test_racing_queues import test_an_item_against_the_wait_that_opens_for_it as item_against_wait
from test_racing_topics import (
    test_an_event_against_the_wait_that_opens_for_it as event_against_wait,
)

from perdure.store.optimistic.deciding import Decider, Overtaken
from perdure.store.postgres.store import PostgresStore
from perdure.store.redis.store import RedisStore


@pytest.fixture(params=["postgres", "redis"])
def kind(request: pytest.FixtureRequest) -> Any:
    """Only there can anybody be overtaken."""
    return request.param


def go_alone(monkeypatch: pytest.MonkeyPatch, *stores: Any) -> list[str]:
    """Have every batch of these stores be overtaken until it goes alone; gives the batches that did."""
    deciders = [one._decider for one in stores if isinstance(one, PostgresStore | RedisStore)]
    assert len(deciders) == len(stores)
    write = Decider.write
    alone: list[str] = []

    async def overtaken_once(self: Decider, batch_id: str, *rest: Any) -> Any:
        if self in deciders and batch_id not in alone:
            alone.append(batch_id)
            raise Overtaken("by everybody")
        return await write(self, batch_id, *rest)

    monkeypatch.setattr(Decider, "write", overtaken_once)
    return alone


@pytest.mark.parametrize("who", [("a",), ("b",), ("a", "b")], ids="+".join)
def test_an_event_against_the_wait(
    race: Race, who: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = go_alone(monkeypatch, *(getattr(race, one).store for one in who))
    event_against_wait(race, "start")
    assert len(alone) >= race.rounds


@pytest.mark.parametrize("who", [("a",), ("b",), ("a", "b")], ids="+".join)
def test_an_item_against_the_wait(
    race: Race, who: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = go_alone(monkeypatch, *(getattr(race, one).store for one in who))
    item_against_wait(race)
    assert len(alone) >= race.rounds
