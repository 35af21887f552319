"""What every test of the suite is given: an empty store in virtual time, and a driver for it.

After each test the store's invariants are checked; a test that leaves a broken store behind fails.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import pytest
import pytest_asyncio

from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.model.records import OutboxRecord
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.invariants import check_invariants
from perdure.testing.conformance.words import WORKER, YEAR


class MakeStore(Protocol):
    """Makes an empty store, not yet opened."""

    def __call__(self, clock: Clock, ids: Ids, lifecycle: bool) -> Store: ...


class WriteOutbox(Protocol):
    """Writes rows of the outbox of a store by a connection of one's own, and commits, or rolls back."""

    async def __call__(self, store: Store, *rows: OutboxRecord, commit: bool = True) -> None: ...


class Subject:
    """What the classes of tests have in common."""

    pytestmark = pytest.mark.asyncio


@pytest.fixture
def make_store() -> MakeStore:
    """To be overridden by the module that uses the suite."""
    raise pytest.UsageError("define a fixture make_store: (clock, ids, lifecycle) -> Store")


@pytest.fixture
def write_outbox() -> WriteOutbox:
    """To be overridden likewise."""
    raise pytest.UsageError("define a fixture write_outbox: (store, *rows, commit=True) -> None")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@asynccontextmanager
async def opened(make: MakeStore, clock: VirtualClock, lifecycle: bool) -> AsyncIterator[Driver]:
    """A driver on a fresh store with one live worker; the invariants are checked at the end."""
    store = make(clock, Ids(clock, random.Random(7)), lifecycle)
    await store.open()
    try:
        d = Driver(store, clock)
        await d.beat(WORKER, lease_us=100 * YEAR)
        yield d
        broken = await check_invariants(store)
        assert not broken, "\n".join(broken)
    finally:
        await store.close()


@pytest_asyncio.fixture
async def d(make_store: MakeStore, clock: VirtualClock) -> AsyncIterator[Driver]:
    """A driver on a fresh store."""
    async with opened(make_store, clock, True) as driver:
        yield driver


@pytest_asyncio.fixture
async def quiet(make_store: MakeStore, clock: VirtualClock) -> AsyncIterator[Driver]:
    """A driver on a fresh store that writes no life-cycle facts."""
    async with opened(make_store, clock, False) as driver:
        yield driver


@pytest.fixture
def store(d: Driver) -> Store:
    """The store that `d` drives."""
    return d.store
