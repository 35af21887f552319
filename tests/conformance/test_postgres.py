"""The Postgres store keeps the contract."""

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest
import pytest_asyncio
from servers.namespaces import Lent

from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.model.records import OutboxRecord
from perdure.store.base import Store
from perdure.store.postgres.store import PostgresStore
from perdure.testing.conformance import *  # noqa: F403
from perdure.testing.conformance.transactions import Notes, TestTransactions

__all__ = ["TestTransactions"]


@pytest.fixture
def make_store(postgres_url: str, lend_namespace: Lent) -> MakeStore:  # noqa: F405
    def make(clock: Clock, ids: Ids, lifecycle: bool) -> PostgresStore:
        store = PostgresStore(
            postgres_url, namespace=lend_namespace(), clock=clock, ids=ids, lifecycle=lifecycle
        )
        # As on the other stores; the tests of runs that stay with their owner set it themselves.
        store.sticky_us = 0
        return store

    return make


@pytest.fixture
def write_outbox(postgres_url: str) -> WriteOutbox:  # noqa: F405
    async def write(store: Store, *rows: OutboxRecord, commit: bool = True) -> None:
        connection = await asyncpg.connect(postgres_url)
        try:
            transaction = connection.transaction()
            await transaction.start()
            for one in rows:
                await store.write_outbox(connection, one)
            await (transaction.commit() if commit else transaction.rollback())
        finally:
            await connection.close()

    return write


class TableNotes:
    """Notes in a table beside the store's own schema."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", table: str) -> None:
        self._connection = connection
        self._table = table

    def adding(self, number: int, then: Callable[[], None]) -> Callable[..., Awaitable[int]]:
        async def body(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
            await connection.execute(f"insert into {self._table} values ($1)", number)
            then()
            return number

        return body

    async def kept(self) -> list[int]:
        rows = await self._connection.fetch(f"select number from {self._table} order by 1")
        return [row["number"] for row in rows]


@pytest_asyncio.fixture
async def notes(d: Driver, postgres_url: str) -> AsyncIterator[Notes]:  # noqa: F405
    assert isinstance(d.store, PostgresStore)
    table = f"notes_of_{d.store.schema}"
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(f"create table {table} (number bigint)")
    try:
        yield TableNotes(connection, table)
    finally:
        await connection.execute(f"drop table {table}")
        await connection.close()
