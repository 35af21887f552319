"""The SQLite store keeps the contract."""

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.model.records import OutboxRecord
from perdure.store.base import Store
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.conformance import *  # noqa: F403


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
