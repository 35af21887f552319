"""Whose connection a caller gives: known by the package of its class, without importing that.

The stand-ins answer as those of asyncpg 0.32 and SQLAlchemy 2.1 do; the tests of the Postgres store use the real ones.
"""

import sqlite3
import subprocess
import sys
from typing import Any

import pytest

from perdure import BadValue
from perdure.store.borrowing import execute_postgres

Executed = tuple[str, tuple[object, ...]]


class Asyncpg:
    """A connection of asyncpg, or what its pool lends."""

    __module__ = "asyncpg.connection"

    def __init__(self, in_transaction: bool = True) -> None:
        self.executed: list[Executed] = []
        self._in_transaction = in_transaction

    def is_in_transaction(self) -> bool:
        return self._in_transaction

    async def execute(self, statement: str, *values: object) -> None:
        self.executed.append((statement, values))


class Derived(Asyncpg):
    """Of the caller's own code."""


class Pool:
    __module__ = "asyncpg.pool"


class Raw:
    def __init__(self, autocommit: bool) -> None:
        self.dbapi_connection = self
        self.autocommit = autocommit


class AsyncConnection:
    __module__ = "sqlalchemy.ext.asyncio.engine"

    def __init__(self, dialect: str = "postgresql", driver: str = "asyncpg", **raw: bool) -> None:
        self.executed: list[Executed] = []
        self.dialect = self
        self.name, self.driver = dialect, driver
        self._raw = Raw(raw.get("autocommit", False))

    async def get_raw_connection(self) -> Raw:
        return self._raw

    async def exec_driver_sql(self, statement: str, values: tuple[object, ...]) -> None:
        self.executed.append((statement, values))


class AsyncSession:
    __module__ = "sqlalchemy.ext.asyncio.session"

    def __init__(self) -> None:
        self.sync_session = object()
        self.inner = AsyncConnection()

    @property
    def executed(self) -> list[Executed]:
        return self.inner.executed

    async def connection(self) -> AsyncConnection:
        return self.inner


class Synchronous:
    __module__ = "sqlalchemy.engine.base"


@pytest.mark.parametrize("make", [Asyncpg, Derived, AsyncConnection, AsyncSession])
async def test_a_statement_goes_through(make: Any) -> None:
    connection = make()
    await execute_postgres(connection, "insert into x values ($1, $2)", "a", 1)
    assert connection.executed == [("insert into x values ($1, $2)", ("a", 1))]


@pytest.mark.parametrize(
    ("connection", "problem"),
    [
        (Asyncpg(in_transaction=False), r"in no transaction.*connection\.transaction\(\)"),
        (Pool(), "acquire one"),
        (AsyncConnection(autocommit=True), "in no transaction.*AUTOCOMMIT"),
        (
            AsyncConnection("sqlite", "aiosqlite"),
            r"sqlite\+aiosqlite; postgresql\+asyncpg is needed",
        ),
        (Synchronous(), "not of SQLAlchemy's asyncio"),
        (object(), "none of asyncpg"),
        ("postgresql://", "none of asyncpg"),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_another_one_is_refused(connection: Any, problem: str) -> None:
    with pytest.raises(BadValue, match=problem):
        await execute_postgres(connection, "insert into x values ($1)", 1)
    assert getattr(connection, "executed", []) == []


async def test_a_connection_of_sqlite_is_none_of_postgres() -> None:
    with pytest.raises(BadValue, match="none of asyncpg"):
        await execute_postgres(sqlite3.connect(":memory:"), "select 1")


def test_nothing_of_theirs_is_imported() -> None:
    code = "import perdure, perdure.store.borrowing, sys; print({'asyncpg', 'sqlalchemy'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"
