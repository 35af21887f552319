"""The same rows with no engine around them: what the store itself can take, in Python, on this machine.

"bare-group" is the fair ceiling: as many coroutines as runs, each awaiting the durable commit of each of its
writes, and one writer thread that commits whatever queued up meanwhile, one executemany per table. "bare-bulk" is
the upper bound: the same rows in batches of 1,000, nobody waiting for any of them. Tables and indexes are the
migrations of Perdure's own store; the rows are those that a run of N plain steps leaves there: the run, its two
events, its steps, and the update when it ends. (The row that Perdure adds per commit is left out: one per batch.)
"""

import asyncio
import queue
import random
import socket
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from typing import Any, Final, NamedTuple

from benchmarks.common import (
    Order,
    Stopwatch,
    Values,
    all_of,
    new_file,
    percentile,
    run,
    table_counts,
)
from benchmarks.companions import companion, say_ready, until_told
from benchmarks.ledger_loads import make_app, reading_of
from benchmarks.perdure_loads import file_url
from perdure.model.records import RunRecord
from perdure.store.sql import load_migrations
from perdure.store.sqlite.liveness import SideLock

Row = tuple[Any, ...]
Write = tuple[str, Row]  # a statement and its values

_bulk_rows = 1000
_owner = "01BARE0000000000000000WORK"

_run_columns: Final = RunRecord.__struct_fields__
_step_columns: Final = (
    "run_id generation path name seq value started_at recorded_at kind state attempt superseded"
).split()
_event_columns: Final = (
    "position event_id type entity_type entity_id payload occurred_at recorded_at caused_by root_id depth"
).split()
_moved_columns: Final = (
    "status owner fence revision ready_at finished_at output error reason"
    " pause_requested cancel_requested published"
).split()


def _insert(table: str, columns: "tuple[str, ...] | list[str]") -> str:
    return f"insert into {table} ({', '.join(columns)}) values ({', '.join('?' * len(columns))})"


insert_run: Final = _insert("runs", _run_columns)
insert_step: Final = _insert("steps", _step_columns)
insert_event: Final = _insert("events", _event_columns)
move_run: Final = (
    f"update runs set {', '.join(f'{one} = ?' for one in _moved_columns)} where run_id = ?"
)


def connect(path: str) -> sqlite3.Connection:
    """A file with Perdure's schema, and a connection set as Perdure's writer sets its own."""
    connection = _connected(path)
    for migration in load_migrations("perdure.store.sqlite"):
        connection.executescript(migration.text)
    return connection


def _connected(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    if connection.execute("pragma journal_mode = wal").fetchone()[0] != "wal":
        raise RuntimeError("SQLite refused WAL")
    connection.execute("pragma synchronous = full")
    connection.execute("pragma wal_autocheckpoint = 0")
    connection.execute("pragma cache_size = -65536")
    return connection


class Rows:
    """The rows of one run after the other, as the engine would write them."""

    def __init__(self, workflow: str, first: int = 1) -> None:
        self._workflow = workflow
        self._positions = count(first)
        self._numbers = count(first)

    def start(self, number: int) -> tuple[str, list[Write]]:
        now = time.time_ns() // 1000
        run_id = f"01BARE{next(self._numbers):020d}"
        record = RunRecord(
            run_id=run_id,
            workflow=self._workflow,
            version=1,
            status="running",
            input=f"[{number}]",
            created_at=now,
            owner=_owner,
            fence=now,
        )
        row = tuple(getattr(record, column) for column in _run_columns)
        return run_id, [(insert_run, row), self._event(run_id, "workflow.run_started", now)]

    def step(self, run_id: str, nth: int, number: int) -> list[Write]:
        now = time.time_ns() // 1000
        seq = now % 100_000_000  # as wide as the engine's
        row = (run_id, 0, f"echo#{nth}", "echo", seq, str(number), now, now, "step", "done", 1, 0)
        return [(insert_step, row)]

    def finish(self, run_id: str, number: int) -> list[Write]:
        now = time.time_ns() // 1000
        moved = ("completed", None, 0, 0, None, now, str(number), None, None, 0, 0, None, run_id)
        return [(move_run, moved), self._event(run_id, "workflow.run_completed", now)]

    def _event(self, run_id: str, type_: str, now: int) -> Write:
        position = next(self._positions)
        payload = f'{{"run_id":"{run_id}","workflow":"{self._workflow}"}}'
        event_id = f"01BARE{position:020d}"
        row = (position, event_id, type_, "run", run_id, payload, now, now, None, None, 0)
        return insert_event, row


def commit(connection: sqlite3.Connection, writes: list[Write]) -> None:
    """All of them in one transaction, one executemany per statement."""
    by_statement: dict[str, list[Row]] = defaultdict(list)
    for statement, row in writes:
        by_statement[statement].append(row)
    connection.execute("begin immediate")
    for statement, rows in by_statement.items():
        connection.executemany(statement, rows)
    connection.execute("commit")


# --- bare-group ----------------------------------------------------------------------------------


class Waiting(NamedTuple):
    writes: list[Write]
    future: "asyncio.Future[None]"


class GroupWriter:
    """One thread that commits what gathered while it was committing; the loop hands over, it answers."""

    def __init__(self, connection: sqlite3.Connection, lock: SideLock | None = None) -> None:
        self._connection = connection
        self._lock = lock  # that processes take turns at
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Waiting] = []
        self._busy = False
        self._batches: queue.SimpleQueue[list[Waiting] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="bare-writer", daemon=True)
        self._thread.start()
        self.commits = 0

    def write(self, writes: list[Write]) -> "asyncio.Future[None]":
        """Await it: then the writes are on the disk."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._gathered.append(Waiting(writes, future))
        if not self._busy:
            # In the next round of the loop, so that all coroutines that are ready now come along.
            self._busy = True
            self._loop.call_soon(self._hand_over)
        return future

    def close(self) -> None:
        self._batches.put(None)
        self._thread.join()

    def _hand_over(self) -> None:
        batch, self._gathered = self._gathered, []
        self._batches.put(batch)

    def _answer(self, batch: list[Waiting], error: BaseException | None) -> None:
        self.commits += 1
        for one in batch:
            if error is None:
                one.future.set_result(None)
            else:
                one.future.set_exception(error)
        self._busy = bool(self._gathered)
        if self._busy:
            self._hand_over()

    def _work(self) -> None:
        while (batch := self._batches.get()) is not None:
            error: BaseException | None = None
            try:
                with self._lock or nullcontext():
                    commit(self._connection, [write for one in batch for write in one.writes])
            except BaseException as raised:
                error = raised
            self._loop.call_soon_threadsafe(self._answer, batch, error)


async def _run_bare(writer: GroupWriter, rows: Rows, number: int, steps: int) -> None:
    run_id, writes = rows.start(number)
    await writer.write(writes)
    for nth in range(1, steps + 1):
        await writer.write(rows.step(run_id, nth, number))
    await writer.write(rows.finish(run_id, number))


async def _group(order: Order, watch: Stopwatch, workflow: str, steps: int) -> Values:
    path = new_file(order.place)
    connection = connect(path)
    writer, rows = GroupWriter(connection), Rows(workflow)
    await asyncio.gather(*(_run_bare(writer, rows, n, steps) for n in range(order.warm)))
    warm_commits = writer.commits
    with watch:
        await all_of(order.size, lambda n: _run_bare(writer, rows, n, steps))
    commits = writer.commits - warm_commits
    writer.close()
    connection.close()
    return _values(order, watch, steps) | {"commits": commits} | table_counts(path)


# --- bare-bulk -----------------------------------------------------------------------------------


def _all_writes(rows: Rows, runs: int, steps: int) -> Iterator[Write]:
    """All starts, then step by step over all runs, then all ends: the order in which the engine writes."""
    ids = []
    for number in range(runs):
        run_id, writes = rows.start(number)
        ids.append(run_id)
        yield from writes
    for nth in range(1, steps + 1):
        for number, run_id in enumerate(ids):
            yield from rows.step(run_id, nth, number)
    for number, run_id in enumerate(ids):
        yield from rows.finish(run_id, number)


def _bulk(order: Order, watch: Stopwatch, workflow: str, steps: int) -> Values:
    path = new_file(order.place)
    connection = connect(path)
    rows = Rows(workflow)
    commit(connection, list(_all_writes(rows, order.warm, steps)))
    writes = list(_all_writes(rows, order.size, steps))
    with watch:
        for first in range(0, len(writes), _bulk_rows):
            commit(connection, writes[first : first + _bulk_rows])
    connection.close()
    return _values(order, watch, steps) | table_counts(path)


def _values(order: Order, watch: Stopwatch, steps: int) -> Values:
    return {"runs_s": order.size / watch.seconds, "steps_s": order.size * steps / watch.seconds}


def group_w1(order: Order, watch: Stopwatch) -> Values:
    return run(_group(order, watch, "one_step", 1), uvloop=order.uvloop)


def group_w2(order: Order, watch: Stopwatch) -> Values:
    return run(_group(order, watch, "ten_steps", 10), uvloop=order.uvloop)


def bulk_w1(order: Order, watch: Stopwatch) -> Values:
    return _bulk(order, watch, "one_step", 1)


def bulk_w2(order: Order, watch: Stopwatch) -> Values:
    return _bulk(order, watch, "ten_steps", 10)


# --- events alone --------------------------------------------------------------------------------


async def _ledger(place: str) -> tuple[str, sqlite3.Connection]:
    """A file that Perdure has opened and closed: its tables, indexes and triggers, and what an empty store holds."""
    path = new_file(place)
    async with make_app(file_url(path)):
        pass
    return path, _connected(path)


class Readings:
    """The rows that Perdure's W7 and W8 leave, one after the other."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        last: int = connection.execute("select coalesce(max(position), 0) from events").fetchone()[
            0
        ]
        self._positions = count(last + 1)

    def row(self, number: int) -> Row:
        now = time.time_ns() // 1000
        position = next(self._positions)
        topic, payload, entity = reading_of(number)
        text = topic.codec.encode_lenient(payload)
        kind, _, id_ = entity.partition("/")
        event_id = f"01BARE{position:020d}"
        return (position, event_id, topic.name, kind, id_, text, now, now, None, None, 0)


def bulk_w7(order: Order, watch: Stopwatch) -> Values:
    """Transactions of a thousand rows, one executemany each. Making the rows is not timed."""
    path, connection = run(_ledger(order.place), uvloop=order.uvloop)
    readings = Readings(connection)
    commit(connection, [(insert_event, readings.row(n)) for n in range(order.warm)])
    rows = [readings.row(order.warm + n) for n in range(order.size)]
    with watch:
        for first in range(0, len(rows), _bulk_rows):
            connection.execute("begin immediate")
            connection.executemany(insert_event, rows[first : first + _bulk_rows])
            connection.execute("commit")
    connection.close()
    return {"events_s": order.size / watch.seconds} | table_counts(path)


async def _group_w8(order: Order, watch: Stopwatch) -> Values:
    path, connection = await _ledger(order.place)
    writer, readings = GroupWriter(connection), Readings(connection)

    async def emit(number: int) -> None:
        await writer.write([(insert_event, readings.row(number))])

    await all_of(order.warm, emit)
    with watch:
        await all_of(order.size, lambda number: emit(order.warm + number))
    writer.close()
    connection.close()
    return {"events_s": order.size / watch.seconds} | table_counts(path)


def group_w8(order: Order, watch: Stopwatch) -> Values:
    return run(_group_w8(order, watch), uvloop=order.uvloop)


# --- two processes on one file -------------------------------------------------------------------

# Rows of the other process are numbered from here on: nobody has to ask for the last one.
_first_of_other: Final = 1_000_000_000


async def _half(order: Order, path: str, first: int, go: Callable[[], Awaitable[None]]) -> None:
    """What one of the two does, each commit under the lock that Perdure's processes take turns at."""
    connection, lock = _connected(path), SideLock(path)
    writer, rows = GroupWriter(connection, lock), Rows("one_step", first)
    await all_of(order.warm, lambda n: _run_bare(writer, rows, n, 1))
    await go()
    await all_of(order.size // 2, lambda n: _run_bare(writer, rows, n, 1))
    writer.close()
    connection.close()


async def _shared(order: Order, watch: Stopwatch) -> Values:
    path = new_file(order.place)
    connect(path).close()
    async with companion(replace(order, job="shared-other", database=path)) as other:

        async def go() -> None:
            other.go_on()
            watch.__enter__()

        await _half(order, path, 1, go)
        await other.line()
        watch.__exit__(None, None, None)
    return {"runs_s": order.size / watch.seconds} | table_counts(path)


async def _shared_other(order: Order) -> Values:
    assert order.database is not None

    async def go() -> None:
        say_ready()
        await until_told()

    await _half(order, order.database, _first_of_other, go)
    print("DONE", flush=True)
    await until_told()
    return {}


async def _across(order: Order, watch: Stopwatch) -> Values:
    """One row under the lock and one datagram; the other reads it and says when it had it."""
    path = new_file(order.place)
    connection, lock = connect(path), SideLock(path)
    rows, read_ms = Rows("one_step"), []
    async with companion(replace(order, job="across-other", database=path)) as other:
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sender.connect(f"{path}-sock")
        for number in range(order.warm + order.size):
            await asyncio.sleep(random.uniform(0.005, 0.015))
            with watch:
                begun = time.perf_counter()
                run_id, writes = rows.start(number)
                with lock:
                    commit(connection, writes)
                sender.send(run_id.encode())
                _, read = (await other.line()).split()
            read_ms.append((float(read) - begun) * 1e3)
        sender.close()
    connection.close()
    return {
        "p50_ms": percentile(read_ms[order.warm :], 50),
        "p99_ms": percentile(read_ms[order.warm :], 99),
    }


def group_across_other(order: Order, watch: Stopwatch) -> Values:
    """Not a measurement: the process that reads. It has nothing else to do, and no loop."""
    assert order.database is not None
    connection = _connected(order.database)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    bound.bind(f"{order.database}-sock")
    say_ready()
    for _ in range(order.warm + order.size):
        run_id = bound.recv(100).decode()
        found = connection.execute("select input from runs where run_id = ?", (run_id,)).fetchone()
        print(found[0], time.perf_counter(), flush=True)
    return {}


def group_shared(order: Order, watch: Stopwatch) -> Values:
    return run(_shared(order, watch), uvloop=order.uvloop)


def group_shared_other(order: Order, watch: Stopwatch) -> Values:
    return run(_shared_other(order), uvloop=order.uvloop)


def group_across(order: Order, watch: Stopwatch) -> Values:
    return run(_across(order, watch), uvloop=order.uvloop)


Job = Callable[[Order, Stopwatch], Values]
group_jobs: dict[str, Job] = {
    "w1": group_w1,
    "w2": group_w2,
    "w8": group_w8,
    "shared": group_shared,
    "shared-other": group_shared_other,
    "across": group_across,
    "across-other": group_across_other,
}
bulk_jobs: dict[str, Job] = {"w1": bulk_w1, "w2": bulk_w2, "w7": bulk_w7}
