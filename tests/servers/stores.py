"""Postgres stores by the real clock, each with ids of its own, as that of a process would be."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.model.clock import SystemClock
from perdure.model.ids import Ids
from perdure.store.postgres.store import PostgresStore


def postgres_store(url: str, namespace: str | None = None) -> PostgresStore:
    """One that is not open yet."""
    clock = SystemClock()
    return PostgresStore(url, namespace=namespace, clock=clock, ids=Ids(clock, random.Random()))


@asynccontextmanager
async def opened(url: str, namespace: str) -> AsyncIterator[PostgresStore]:
    store = postgres_store(url, namespace)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
