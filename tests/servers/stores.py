"""Stores on servers by the real clock, each with ids of its own, as that of a process would be."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from perdure.model.clock import SystemClock
from perdure.model.ids import Ids
from perdure.store import open_store
from perdure.store.base import Store
from perdure.store.postgres.store import PostgresStore
from perdure.store.redis.store import RedisStore


class Shared(NamedTuple):
    """Where a server is, and a namespace there."""

    url: str
    namespace: str


def postgres_store(url: str, namespace: str | None = None) -> PostgresStore:
    """One that is not open yet."""
    clock = SystemClock()
    return PostgresStore(url, namespace=namespace, clock=clock, ids=Ids(clock, random.Random()))


def redis_store(url: str, namespace: str | None = None) -> RedisStore:
    """One that is not open yet."""
    clock = SystemClock()
    return RedisStore(url, namespace=namespace, clock=clock, ids=Ids(clock, random.Random()))


@asynccontextmanager
async def opened(url: str, namespace: str) -> AsyncIterator[PostgresStore]:
    store = postgres_store(url, namespace)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened_on(url: str, namespace: str) -> AsyncIterator[Store]:
    """A store of whichever kind the URL names."""
    clock = SystemClock()
    ids = Ids(clock, random.Random())
    store = open_store(url, namespace=namespace, clock=clock, ids=ids, lifecycle=True)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
