"""The steps of W2 on Postgres with no engine around them: what the store could do at best.

As many coroutines as runs, each awaiting the durable commit of each of its steps, and one connection that commits
whatever gathered meanwhile by ONE statement: it locks the rows of the runs, as whoever records a step must, and inserts
the steps, set-based. The tables are those that Perdure has made, the rows those that a step leaves there. The runs
themselves are there before and are never moved, and no event is written: a run has ten steps, and only one start and
one end.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from benchmarks import postgres
from benchmarks.common import Order, Stopwatch, Values, all_of, run
from benchmarks.perdure_loads import make_app, store_url
from perdure.model.records import RunRecord, StepRecord
from perdure.store.postgres.statements import filled

_steps = 10
_owner = "01BARE0000000000000000WORK"
_rows_per_insert = 1_000

_insert_runs: Final = filled(
    "insert into runs ({run columns}, change, seq) select {run columns of r}, 1, 0 from {run rows $1::json} as r"
)
# The rows are counted because a part of a statement that nobody asks for anything is not carried out.
_write: Final = filled(
    """
    with locked as materialized (
        select run_id from runs where run_id = any ($1::text[]) order by run_id for no key update
    )
    insert into steps ({step columns}) select {step columns of s} from {step rows $2::json} as s
    where (select count(*) from locked) > 0
    """
)


class GroupWriter:
    """Commits what gathered while it was committing."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._gathered: list[tuple[StepRecord, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self.commits = 0

    def write(self, row: StepRecord) -> "asyncio.Future[None]":
        """Await it: then the row is on the disk."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._gathered.append((row, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all())
        return future

    async def _write_all(self) -> None:
        while self._gathered:
            batch, self._gathered = self._gathered, []
            error: BaseException | None = None
            try:
                await self._commit([row for row, _ in batch])
            except Exception as raised:
                error = raised
            for _, future in batch:
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
            # Whoever was answered now hands in its next row in this round of the loop, and comes along.
            await asyncio.sleep(0)

    async def _commit(self, rows: list[StepRecord]) -> None:
        run_ids = [row.run_id for row in rows]
        await self._connection.execute(_write, run_ids, msgspec.json.encode(rows).decode())
        self.commits += 1


def _run_id(number: int) -> str:
    return f"01BARE{number:020d}"


async def _make_runs(connection: Any, count: int) -> None:
    now = time.time_ns() // 1000
    for first in range(0, count, _rows_per_insert):
        rows = [
            RunRecord(
                run_id=_run_id(number),
                workflow="ten_steps",
                version=1,
                status="running",
                input=f"[{number}]",
                created_at=now,
                owner=_owner,
                fence=now,
            )
            for number in range(first, min(first + _rows_per_insert, count))
        ]
        await connection.execute(_insert_runs, msgspec.json.encode(rows).decode())


async def _run_bare(writer: GroupWriter, number: int) -> None:
    for nth in range(1, _steps + 1):
        now = time.time_ns() // 1000
        row = StepRecord(
            run_id=_run_id(number),
            generation=0,
            path=f"echo#{nth}",
            kind="step",
            name="echo",
            state="done",
            # As wide as the engine's.
            seq=now % 100_000_000,
            value=str(number),
            attempt=1,
            started_at=now,
            recorded_at=now,
        )
        await writer.write(row)


async def _w2(order: Order, watch: Stopwatch) -> Values:
    url = store_url(order)
    async with make_app(url, worker=False):
        pass
    async with postgres.connected(url) as connection:
        await _make_runs(connection, order.warm + order.size)
        writer = GroupWriter(connection)
        await all_of(order.warm, lambda number: _run_bare(writer, number))
        warm_commits = writer.commits
        with watch:
            await all_of(order.size, lambda number: _run_bare(writer, order.warm + number))
        commits = writer.commits - warm_commits
    rows = await postgres.table_counts(url, "runs", "steps")
    return {"steps_s": order.size * _steps / watch.seconds, "commits": commits} | rows


def w2(order: Order, watch: Stopwatch) -> Values:
    return run(_w2(order, watch), uvloop=order.uvloop)


jobs: dict[str, Callable[[Order, Stopwatch], Values]] = {"w2": w2}
