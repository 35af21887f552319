"""The SQLite store keeps the contract."""

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from perdure.model.records import OutboxRecord
from perdure.store.base import Store
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.conformance import *  # noqa: F403
from perdure.testing.conformance.transactions import Notes, TestTransactions

__all__ = ["TestTransactions"]


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:  # noqa: F405
    files = (str(tmp_path / f"{number}.db") for number in itertools.count())
    return lambda clock, ids, lifecycle: SqliteStore(
        next(files), clock=clock, ids=ids, synchronous="NORMAL", lifecycle=lifecycle
    )


@pytest.fixture
def write_outbox() -> WriteOutbox:  # noqa: F405
    async def write(store: Store, *rows: OutboxRecord, commit: bool = True) -> None:
        assert isinstance(store, SqliteStore)
        with closing(sqlite3.connect(store.path)) as connection:
            for one in rows:
                await store.write_outbox(connection, one)
            if commit:
                connection.commit()
            else:
                connection.rollback()

    return write


class FileNotes:
    """Notes in a table of the store's own file."""

    def __init__(self, path: str) -> None:
        self._path = path
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("create table notes (number integer)")

    def adding(self, number: int, then: Callable[[], None]) -> Callable[[sqlite3.Connection], int]:
        def body(connection: sqlite3.Connection) -> int:
            connection.execute("insert into notes values (?)", (number,))
            then()
            return number

        return body

    async def kept(self) -> list[int]:
        with closing(sqlite3.connect(self._path)) as connection:
            return [one for (one,) in connection.execute("select number from notes order by 1")]


@pytest.fixture
def notes(d: Driver) -> Notes:  # noqa: F405
    assert isinstance(d.store, SqliteStore)
    return FileNotes(d.store.path)
