"""The store on Redis and Valkey keeps the contract."""

from collections.abc import Callable, Iterator

import pytest
from redis.asyncio import Redis
from servers.redis_indexes import drift
from servers.valkey import ValkeyAddress

from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.model.records import OutboxRecord
from perdure.store.base import Store
from perdure.store.redis import fetching, writing
from perdure.store.redis.layout import Layout
from perdure.store.redis.store import RedisStore
from perdure.testing.conformance import *  # noqa: F403


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that they are reached: walks go on in several calls, and versions are let go."""
    monkeypatch.setattr(fetching, "looked_max", 2)
    monkeypatch.setattr(writing, "units_max", 3)


@pytest.fixture
def make_store(
    valkey_server: ValkeyAddress, redis_url: str, lend_redis_namespace: Callable[[], str]
) -> Iterator[MakeStore]:  # noqa: F405
    """In the end every index must be what the rows make it."""
    lent: list[str] = []

    def make(clock: Clock, ids: Ids, lifecycle: bool) -> RedisStore:
        namespace = lend_redis_namespace()
        lent.append(namespace)
        store = RedisStore(
            redis_url, namespace=namespace, clock=clock, ids=ids, lifecycle=lifecycle
        )
        # As on the other stores; the tests of runs that stay with their owner set it themselves.
        store.sticky_us = 0
        return store

    yield make
    with valkey_server.client() as client:
        for namespace in lent:
            assert drift(client, Layout(namespace)) == []


@pytest.fixture
def write_outbox(redis_url: str) -> WriteOutbox:  # noqa: F405
    async def write(store: Store, *rows: OutboxRecord, commit: bool = True) -> None:
        async with Redis.from_url(redis_url) as client:
            pipeline = client.pipeline(transaction=True)
            for one in rows:
                await store.write_outbox(pipeline, one)
            await (pipeline.execute() if commit else pipeline.reset())

    return write
