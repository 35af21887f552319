"""The Postgres store keeps the contract behind a transaction pooler too, where no session outlives a transaction.

A selection: batches of every kind, claims, transactions of steps, reads; the rest differs by no statement from what is
tested without one. All stores of the run share two connections to the server.
"""

import asyncio

import asyncpg
import pytest
from servers.namespaces import Lent
from servers.pooler import Pooler
from servers.stores import postgres_store
from test_postgres import notes, write_outbox

from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.store.postgres.store import PostgresStore
from perdure.testing.conformance import (
    MakeStore,
    TestBatches,
    TestClaiming,
    TestOutbox,
    TestOwners,
    TestReads,
    TestRecovery,
    clock,
    d,
    quiet,
    store,
)
from perdure.testing.conformance.transactions import TestTransactions

__all__ = [
    "TestBatches",
    "TestClaiming",
    "TestOutbox",
    "TestOwners",
    "TestReads",
    "TestRecovery",
    "TestTransactions",
    "clock",
    "d",
    "notes",
    "quiet",
    "store",
    "write_outbox",
]


@pytest.fixture
def make_store(postgres_pooler: Pooler, lend_namespace: Lent) -> MakeStore:
    def make(clock: Clock, ids: Ids, lifecycle: bool) -> PostgresStore:
        return PostgresStore(
            f"{postgres_pooler.url}?pgbouncer=1",
            namespace=lend_namespace(),
            clock=clock,
            ids=ids,
            lifecycle=lifecycle,
        )

    return make


# --- the pooler of the tests is one ------------------------------------------------------------


async def test_what_a_session_keeps_is_lost_behind_it(postgres_pooler: Pooler) -> None:
    connection = await asyncpg.connect(postgres_pooler.url)
    try:
        with pytest.raises(asyncpg.InvalidSQLStatementNameError, match="does not exist"):
            for _ in range(4):
                await connection.fetchval("select 1 + $1::int", 1)
    finally:
        connection.terminate()
    with pytest.raises(asyncpg.exceptions.ProtocolViolationError, match="enable_seqscan"):
        await asyncpg.connect(postgres_pooler.url, server_settings={"enable_seqscan": "off"})


async def test_many_stores_share_two_connections(
    postgres_pooler: Pooler, lend_namespace: Lent
) -> None:
    url, namespace = f"{postgres_pooler.url}?pgbouncer=1", lend_namespace()
    stores = [postgres_store(url, namespace) for _ in range(8)]
    await asyncio.gather(*(one.open() for one in stores))
    await asyncio.gather(*(one.counts() for one in stores for _ in range(5)))
    connections = postgres_pooler.connections
    given = postgres_pooler.transactions
    await asyncio.gather(*(one.counts() for one in stores for _ in range(5)))
    assert postgres_pooler.connections == connections
    assert postgres_pooler.transactions >= given + 40
    await asyncio.gather(*(one.close() for one in stores))
