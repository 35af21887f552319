"""The store on Redis and Valkey keeps the contract."""

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.model.records import OutboxRecord
from perdure.store.base import Store
from perdure.store.redis.store import RedisStore
from perdure.testing.conformance import *  # noqa: F403


@pytest.fixture
def make_store(redis_url: str, lend_redis_namespace: Callable[[], str]) -> MakeStore:  # noqa: F405
    def make(clock: Clock, ids: Ids, lifecycle: bool) -> RedisStore:
        namespace = lend_redis_namespace()
        store = RedisStore(
            redis_url, namespace=namespace, clock=clock, ids=ids, lifecycle=lifecycle
        )
        # As on the other stores; the tests of runs that stay with their owner set it themselves.
        store.sticky_us = 0
        return store

    return make


@pytest.fixture
def write_outbox(redis_url: str) -> WriteOutbox:  # noqa: F405
    async def write(store: Store, *rows: OutboxRecord, commit: bool = True) -> None:
        async with Redis.from_url(redis_url) as client:
            pipeline = client.pipeline(transaction=True)
            for one in rows:
                await store.write_outbox(pipeline, one)
            await (pipeline.execute() if commit else pipeline.reset())

    return write
