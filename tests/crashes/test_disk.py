"""A full disk: the write is refused and nothing has changed; when there is room again, everything goes on."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crashes import story
from crashes.fsck import check_state, copy_of, dump
from crashes.nursery import Nursery
from crashes.test_recovery import become
from perdure import App, Context, StoreRefused, step

MakeApp = Callable[[Path], App]


async def _allow_pages(app: App, pages: int | None) -> int:
    """Set the most pages the file may have, on the writer's own connection and thread; gives how many it has."""
    writer: Any = app._engine().store._writer  # type: ignore[attr-defined]

    def limit() -> int:
        connection: sqlite3.Connection = writer._sql.connection
        (used,) = connection.execute("pragma page_count").fetchone()
        connection.execute(f"pragma max_page_count = {pages or used}").fetchone()
        return int(used)

    used: int = await writer._ask(limit)
    return used


_roomy = 1_000_000
_large = "x" * 50_000


async def test_an_op_that_finds_the_disk_full_is_refused_and_changes_nothing(
    tmp_path: Path, app_on: MakeApp
) -> None:
    db = tmp_path / "runs.db"
    async with app_on(db) as app:
        await become(await app.start(story.waiter, 1, id="waits"), "waiting")
        with copy_of(db, in_use=True) as connection:
            before = dump(connection)
        await _allow_pages(app, None)
        with pytest.raises(StoreRefused, match="full"):
            await app.start(story.hanging, _large, id="big")
        with pytest.raises(StoreRefused, match="full"):
            await app.signal("waits", story.go, _large)
        with copy_of(db, in_use=True) as connection:
            assert dump(connection) == before
            check_state(connection)
        await _allow_pages(app, _roomy)
        await app.signal("waits", story.go, _large, key="k")
        assert await app.run("waits").result("5s") == _large


class _Refusals(logging.Handler):
    """Lets a test wait for the coordinator to say that the store refused something."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.set()


@pytest.fixture
def refusals() -> Iterator[_Refusals]:
    handler = _Refusals()
    logger = logging.getLogger("perdure.coordinator")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def test_a_step_that_ends_while_the_disk_is_full_is_recorded_when_there_is_room(
    tmp_path: Path, refusals: _Refusals
) -> None:
    """Its body is not run again: the result waits in memory for the store."""
    app = App(f"sqlite:///{tmp_path / 'runs.db'}")
    begun, gate = asyncio.Event(), asyncio.Event()
    bodies = 0

    @step
    async def produce() -> str:
        nonlocal bodies
        bodies += 1
        begun.set()
        await gate.wait()
        return _large

    @app.workflow
    async def producer(ctx: Context) -> str:
        return await ctx.step(produce)

    async with app:
        run = await app.start(producer)
        await begun.wait()
        await _allow_pages(app, None)
        gate.set()
        await refusals.heard.wait()
        await _allow_pages(app, _roomy)
        assert await run.result("10s") == _large
    assert bodies == 1


def test_a_file_that_may_not_grow_refuses_and_recovers(nursery: Nursery, tmp_path: Path) -> None:
    """The operating system itself says no, in the middle of SQLite's writing: RLIMIT_FSIZE."""
    db, effects = tmp_path / "runs.db", tmp_path / "effects.jsonl"
    child = nursery.fork(db=db, effects=effects, quiet=True)
    start = {"do": "start", "workflow": "waiter", "input": 1}
    assert child.ask(run="first", **start)["ok"] == {"created": True}
    while child.ask(run="first", do="status")["ok"] != "waiting":
        pass
    child.ask(do="limit", bytes=os.stat(f"{db}-wal").st_size + 1000)
    assert child.ask(run="second", **start)["error"] == "StoreRefused"
    sent = {"do": "signal", "signal": "go", "payload": _large, "key": "k"}
    assert child.ask(run="first", **sent)["error"] == "StoreRefused"
    with copy_of(db, in_use=True) as connection:
        check_state(connection)
        assert len(dump(connection)["runs"]) == 1
    child.ask(do="limit", bytes=0)
    assert child.ask(run="second", **start)["ok"] == {"created": True}
    assert child.ask(run="first", **sent)["ok"]["sent"] == "delivered"
    assert child.ask(do="result", run="first")["ok"] == _large
    assert child.close()
    with copy_of(db) as connection:
        check_state(connection)
