"""What the Postgres store does with its connections and looks: nothing that the tests of all stores could see."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from servers.namespaces import Lent
from servers.stores import opened

from perdure.errors import StoreRefused
from perdure.model import ops
from perdure.store.optimistic.needs import Looks, Need
from perdure.store.postgres import opening
from perdure.store.postgres.fetching import Fetcher
from perdure.store.postgres.store import PostgresStore
from perdure.testing import VirtualClock
from perdure.testing.conformance import Driver
from perdure.testing.conformance.words import sleep


@pytest_asyncio.fixture
async def store(postgres_url: str, lend_namespace: Lent) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url, lend_namespace()) as store:
        yield store


@pytest_asyncio.fixture
async def outside(postgres_url: str) -> AsyncIterator[Any]:
    """A connection that is none of the store's."""
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def test_whoever_is_cancelled_while_going_alone_leaves_no_transaction_behind(
    store: PostgresStore, outside: Any
) -> None:
    """Or what is written next would be acknowledged in it, and never committed."""
    lock = (opening.lock_class(store.schema), -2)
    await outside.execute("select pg_advisory_lock_shared($1, $2)", *lock)

    async def go_alone() -> None:
        async with store.alone():
            raise AssertionError("somebody else has the lock")

    alone = asyncio.create_task(go_alone())
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    async with asyncio.timeout(20):
        while not await outside.fetchval(waiting):  # noqa: ASYNC110 (a row of the server)
            await asyncio.sleep(0.01)
    alone.cancel()
    await asyncio.wait((alone,))
    assert alone.cancelled()
    await outside.execute("select pg_advisory_unlock_shared($1, $2)", *lock)
    start = ops.StartRun(run_id="a", workflow="w", version=1, input="null", fence=0)
    await store.apply("batch", [start])
    assert await outside.fetchval(f"select count(*) from {store.schema}.runs") == 1


async def test_a_read_that_is_not_answered_ends(store: PostgresStore, outside: Any) -> None:
    await store.close()
    store.patience_s = 0.2
    await store.open()
    async with outside.transaction():
        await outside.execute(f"lock table {store.schema}.runs")
        with pytest.raises(StoreRefused, match="cannot be reached") as refused:
            await store.run("a")
    assert refused.value.passing
    assert await store.run("a") is None


async def test_firing_timers_reads_no_run_that_is_not_due(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = Driver(store, VirtualClock())
    for number in range(5):
        await d.start(f"r{number}")
        await d.suspend(f"r{number}", sleep("s", "1h"))
    store._decider.known.forget()
    asked: list[Need] = []
    fetch = Fetcher.fetch

    async def noted(self: Fetcher, connection: Any, looks: Looks, needs: Iterable[Need]) -> int:
        asked.extend(needs := tuple(needs))
        return await fetch(self, connection, looks, needs)

    monkeypatch.setattr(Fetcher, "fetch", noted)
    assert (await d.apply(ops.FireTimers(limit=2))).count == 0
    assert "deadlines" in {need[0] for need in asked}
    assert not {need[0] for need in asked} & {"run", "inside"}
