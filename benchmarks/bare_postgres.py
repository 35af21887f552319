"""The steps of W2 on Postgres with no engine around them (bare_steps.py): what the store could do at best.

ONE statement for all that gathered: it locks the rows of the runs, as whoever records a step must, and inserts the
steps, set-based. The tables are those that Perdure has made.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from benchmarks import postgres
from benchmarks.bare_steps import GroupWriter, bare_run, run_bare, steps
from benchmarks.common import Order, Stopwatch, Values, all_of, run
from benchmarks.perdure_loads import make_app, store_url
from perdure.model.records import StepRecord
from perdure.store.postgres.statements import filled

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


async def _make_runs(connection: Any, count: int) -> None:
    for first in range(0, count, _rows_per_insert):
        rows = [bare_run(number) for number in range(first, min(first + _rows_per_insert, count))]
        await connection.execute(_insert_runs, msgspec.json.encode(rows).decode())


async def _w2(order: Order, watch: Stopwatch) -> Values:
    url = store_url(order)
    async with make_app(url, worker=False):
        pass
    async with postgres.connected(url) as connection:
        await _make_runs(connection, order.warm + order.size)

        async def commit(rows: list[StepRecord]) -> None:
            run_ids = [row.run_id for row in rows]
            await connection.execute(_write, run_ids, msgspec.json.encode(rows).decode())

        writer = GroupWriter(commit)
        await all_of(order.warm, lambda number: run_bare(writer, number))
        warm_commits = writer.commits
        with watch:
            await all_of(order.size, lambda number: run_bare(writer, order.warm + number))
        commits = writer.commits - warm_commits
    rows = await postgres.table_counts(url, "runs", "steps")
    return {"steps_s": order.size * steps / watch.seconds, "commits": commits} | rows


def w2(order: Order, watch: Stopwatch) -> Values:
    return run(_w2(order, watch), uvloop=order.uvloop)


jobs: dict[str, Callable[[Order, Stopwatch], Values]] = {"w2": w2}
