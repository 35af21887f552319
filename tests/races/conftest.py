"""The races are run on every store that processes can share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from racing import MakeStore, Race, rounds_of
from servers.namespaces import Lent

from perdure.store.postgres.store import PostgresStore
from perdure.store.redis.store import RedisStore
from perdure.store.sqlite.store import SqliteStore


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Opens the same store again and again."""
    if kind == "sqlite":
        path = str(tmp_path / "shared.db")
        return lambda clock, ids: SqliteStore(path, clock=clock, ids=ids, synchronous="NORMAL")
    if kind == "redis":
        url = request.getfixturevalue("redis_url")
        namespace = request.getfixturevalue("lend_redis_namespace")()
        return lambda clock, ids: RedisStore(url, namespace=namespace, clock=clock, ids=ids)
    # Asked for here, so that the races on files need no server.
    return on_postgres(
        request.getfixturevalue("postgres_url"), request.getfixturevalue("lend_namespace")
    )


def on_postgres(url: str, lend: Lent, **options: Any) -> MakeStore:
    namespace = lend()
    return lambda clock, ids: PostgresStore(
        url, namespace=namespace, clock=clock, ids=ids, **options
    )


@pytest.fixture
def race(kind: str, make_store: MakeStore) -> Iterator[Race]:
    race = Race(make_store, rounds_of(kind))
    try:
        yield race
        race.check()
    finally:
        race.end()
