"""`connection=` where code may wait: a send goes with the caller's transaction, through a connection of its thread."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from perdure import Accepted, App, BadValue, InvalidPayload, StoreRefused, SyncApp

from .shop import Order, approve, arrived, jobs, shop, workflow
from .waiting import until

TEA = Order("tea", 3)


class Opened:
    def __init__(self, app: App, path: Path) -> None:
        self.app, self.path = app, path
        self.sync: SyncApp = app.sync

    def send_all(self, connection: Any, key: str) -> list[Accepted]:
        """One of each kind."""
        sync, order = self.sync, workflow(self.app, "order")
        return [
            sync.start(order, TEA, id=f"o{key}", connection=connection),
            sync.signal(f"o{key}", approve, True, connection=connection),
            sync.emit(arrived, 1, entity=f"sku/{key}", connection=connection),
            sync.put(jobs, 1, connection=connection),
        ]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    path = tmp_path / "shop.db"
    app = shop(f"sqlite:///{path}")
    with app.sync:
        yield Opened(app, path)


def test_sends_go_with_the_transaction_of_the_thread(opened: Opened) -> None:
    """The driver refuses its connection to any thread but the one that made it."""
    with closing(sqlite3.connect(opened.path)) as rows:
        with rows:
            rows.execute("create table sold (sku text)")
            rows.execute("insert into sold values ('tea')")
            accepted = opened.send_all(rows, "1")
            assert rows.in_transaction
            assert [one.kind for one in accepted] == ["start", "signal", "emit", "put"]
            assert accepted[0].target == "o1"
        assert rows.execute("select count(*) from sold").fetchone() == (1,)
    until(lambda: len(opened.sync.runs()) == 1)
    assert opened.sync.run("o1").result(timeout="20s") == 3
    until(lambda: opened.sync.queues() == {"jobs": 1})
    until(lambda: opened.sync.latest(arrived, entity="sku/1") is not None)


def test_what_is_rolled_back_never_was(opened: Opened) -> None:
    with closing(sqlite3.connect(opened.path)) as rows:
        with pytest.raises(ZeroDivisionError), rows:
            opened.send_all(rows, "1")
            raise ZeroDivisionError
        assert rows.execute("select count(*) from outbox").fetchone() == (0,)
        with rows:
            opened.send_all(rows, "2")
    until(lambda: len(opened.sync.runs()) == 1)
    assert [one.id for one in opened.sync.runs()] == ["o2"]


def test_what_is_wrong_is_told_at_once_and_nothing_is_written(
    opened: Opened, tmp_path: Path
) -> None:
    start, double = opened.sync.start, workflow(opened.app, "double")
    with closing(sqlite3.connect(opened.path)) as rows, rows:
        with pytest.raises(InvalidPayload):
            start("double", "four", connection=rows)
        with pytest.raises(BadValue, match="debounce"):
            start(double, 4, debounce="1s", key="k", connection=rows)  # type: ignore[call-overload]
        assert not rows.in_transaction
    with closing(sqlite3.connect(opened.path, isolation_level=None)) as rows:
        with pytest.raises(BadValue, match="begin immediate"):
            start(double, 4, connection=rows)
        rows.execute("begin immediate")  # as Django's `atomic` does
        assert isinstance(start(double, 4, connection=rows), Accepted)
        rows.execute("rollback")
    with closing(sqlite3.connect(tmp_path / "other.db")) as rows:
        with pytest.raises(BadValue, match="but this store is"):
            start(double, 4, connection=rows)
    with pytest.raises(BadValue, match="no sqlite3"):
        start(double, 4, connection=object())
    assert opened.sync.runs().items == []


def test_each_thread_has_its_own_connection(opened: Opened) -> None:
    """Beside a loop that has the app open it is the same."""

    def sell(number: int) -> None:
        with closing(sqlite3.connect(opened.path, timeout=30)) as rows:
            rows.execute("begin immediate")
            opened.send_all(rows, str(number))
            rows.commit()

    threads = [threading.Thread(target=sell, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    until(lambda: len(opened.sync.runs()) == 8)
    for number in range(8):
        assert opened.sync.run(f"o{number}").result(timeout="20s") == 3


async def test_beside_a_loop_that_has_the_app_open(tmp_path: Path) -> None:
    app = shop(f"sqlite:///{tmp_path}/shop.db")

    def sell() -> None:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as rows, rows:
            app.sync.start("double", 2, id="d", connection=rows)

    async with app:
        await asyncio.to_thread(sell)
        await asyncio.to_thread(until, lambda: len(app.sync.runs()) == 1)
        assert await app.run("d").result(timeout="20s") == 4


def test_memory_is_no_database() -> None:
    with sqlite3.connect(":memory:") as rows, shop().sync as opened:
        with pytest.raises(StoreRefused, match="no database"):
            opened.start("double", 1, connection=rows)
    rows.close()


def test_on_postgres_a_connection_belongs_to_a_loop(
    postgres_url: str, postgres_namespace: str
) -> None:
    """Neither psycopg nor asyncpg can be used here; it is said before anything is sent."""
    app = shop(postgres_url, namespace=postgres_namespace)
    with sqlite3.connect(":memory:") as rows, app.sync as opened:
        with pytest.raises(BadValue, match=r"cannot be used by app\.sync.*with a key="):
            opened.start("double", 1, connection=rows)
        assert opened.runs().items == []
    rows.close()


def test_a_pipeline_of_redis_is_carried_out_by_its_thread(
    redis_url: str, lend_redis_namespace: Callable[[], str]
) -> None:
    namespace = lend_redis_namespace()
    app = shop(redis_url, namespace=namespace)
    with app.sync as opened, redis.Redis.from_url(redis_url) as client:
        with client.pipeline(transaction=True) as pipeline:
            pipeline.set(f"{namespace}-sold", 1)
            opened.start("double", 4, id="d", connection=pipeline)
            assert opened.runs().items == []
            pipeline.execute()
        until(lambda: len(opened.runs()) == 1)
        assert opened.run("d").result(timeout="20s") == 8
        client.delete(f"{namespace}-sold")
