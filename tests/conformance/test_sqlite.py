"""The SQLite store keeps the contract."""

import itertools
from pathlib import Path

import pytest

from perdure.store.sqlite.store import SqliteStore
from perdure.testing.conformance import *  # noqa: F403


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:  # noqa: F405
    files = (str(tmp_path / f"{number}.db") for number in itertools.count())
    return lambda clock, ids, lifecycle: SqliteStore(
        next(files), clock=clock, ids=ids, synchronous="NORMAL", lifecycle=lifecycle
    )
