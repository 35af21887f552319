"""W1 in tables that are full already and in empty ones, in turns, in one process: how much slower is it there?

The rows are made by the server, as copies of what the engine itself leaves of one run, so they have all that it writes.
Nobody analyses the tables: autovacuum is off for them, and for the empty ones too, since it would take a core while we
measure.
"""

import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import asyncpg

from benchmarks import postgres
from benchmarks.common import Order, Stopwatch, Values, all_of
from benchmarks.perdure_loads import (
    go,
    make_app,
    one_step,
    run_to_end,
    store_url,
    until_waiting,
    wait_once,
    warm_up,
)

_rounds: Final = 5
_round_runs_max: Final = 3_000
_round_runs_min: Final = 200
_finished: Final = "01FINISHED"
_waiting: Final = "01WAITING0"

# Run `n` of those that are made of one that the engine has left: what is its own. $1 is the id of the model.
_made_id: Final = "$3::text || lpad(n::text, 16, '0')"
_own: Final[dict[str, dict[str, str]]] = {
    "runs": {
        "run_id": _made_id,
        "created_at": "t.created_at - n * 1000",
        "finished_at": "t.finished_at - n * 1000",
    },
    "steps": {"run_id": _made_id},
    "watchers": {"run_id": _made_id},
}
# The facts about it on the ledger, of which the model has as many as `m` says, in their order.
_own_of_events: Final = {
    "position": "$4::bigint + (n - 1) * m.count + m.nth",
    "event_id": "'01EV' || lpad(($4::bigint + (n - 1) * m.count + m.nth)::text, 22, '0')",
    "entity_id": _made_id,
    "payload": f"replace(t.payload, $1, {_made_id})",
}


async def full(order: Order, watch: Stopwatch) -> Values:
    """As many runs have ended as the size says, and a tenth of it wait."""
    url = store_url(order)
    runs = max(_round_runs_min, min(_round_runs_max, order.size // 100))
    begun = time.perf_counter()
    await fill(url, order.size, order.size // 10)
    fill_s = time.perf_counter() - begun
    took: dict[str, list[float]] = {"full": [], "empty": []}
    for nth in range(_rounds):
        namespaces = {"full": None, "empty": f"empty_{nth}"}
        for state in took if nth % 2 == 0 else reversed(took):
            took[state].append(await one_round(url, namespaces[state], runs, order.warm, watch))
    await check_full(url, order.size // 10)
    slower = [a / b for a, b in zip(took["full"], took["empty"], strict=True)]
    return {
        "full_runs_s": runs / statistics.median(took["full"]),
        "empty_runs_s": runs / statistics.median(took["empty"]),
        "slower": statistics.median(slower),
        "slower_max": max(slower),
        "fill_s": fill_s,
    }


async def one_round(
    url: str, namespace: str | None, runs: int, warm: int, watch: Stopwatch
) -> float:
    async with make_app(url, namespace=namespace) as app:
        if namespace is not None:
            await stop_autovacuum(url, f"perdure_{namespace}")
        await warm_up(app, one_step, warm)
        begun = time.perf_counter()
        with watch:
            await all_of(runs, lambda number: run_to_end(app, one_step, number))
        return time.perf_counter() - begun


async def fill(url: str, finished: int, waiting: int) -> None:
    """Let the engine make one run of each kind, and the server as many copies of them."""
    async with make_app(url) as app:
        ends = await app.start(one_step, 0)
        await ends.result()
        waits = await app.start(wait_once, 0)
        await until_waiting(app, 1)
    await stop_autovacuum(url, "perdure")
    async with postgres.connected(url) as connection:
        await copy_run(connection, ends.id, finished, _finished)
        await copy_run(connection, waits.id, waiting, _waiting)
        try:
            # Else what was just made would be written out while we measure.
            await connection.execute("checkpoint")
        except asyncpg.InsufficientPrivilegeError as refused:
            print(f"no checkpoint after the tables were filled: {refused}", file=sys.stderr)


async def copy_run(connection: Any, model: str, count: int, prefix: str) -> None:
    for table, own in _own.items():
        names, values = await _columns(connection, table, own)
        await connection.execute(
            f"insert into {table} ({names}) select {values} from {table} as t, generate_series(1, $2::bigint) as n"
            " where t.run_id = $1",
            *(model, count, prefix),
        )
    names, values = await _columns(connection, "events", _own_of_events)
    head = await connection.fetchval("select position from ledger_head")
    await connection.execute(
        f"""
        with m as materialized (
            select position, row_number() over (order by position) as nth, count(*) over () as count
            from events where entity_type = 'run' and entity_id = $1
        )
        insert into events ({names}) select {values}
        from generate_series(1, $2::bigint) as n, m join events as t using (position)
        """,
        *(model, count, prefix, head),
    )
    await connection.execute("update ledger_head set position = (select max(position) from events)")


async def _columns(connection: Any, table: str, own: dict[str, str]) -> tuple[str, str]:
    """All columns of a table, and what a copy has in them."""
    rows = await connection.fetch(
        "select attname from pg_attribute where attrelid = $1::regclass and attnum > 0 and not attisdropped",
        table,
    )
    names = [row["attname"] for row in rows]
    values = [own.get(name, f't."{name}"') for name in names]
    return ", ".join(f'"{name}"' for name in names), ", ".join(values)


async def stop_autovacuum(url: str, schema: str) -> None:
    async with postgres.connected(url, search_path=schema) as connection:
        tables = await connection.fetch(
            "select tablename from pg_tables where schemaname = $1", schema
        )
        for row in tables:
            await connection.execute(
                f'alter table "{row["tablename"]}" set (autovacuum_enabled = off)'
            )


async def check_full(url: str, waiting: int) -> None:
    """The copies are runs like others: all still wait, and one that is sent its signal ends. Nothing was analysed."""
    async with make_app(url) as app:
        found = (await app._engine().store.counts())["runs.waiting"]
        if found != waiting + 1:
            raise AssertionError(f"{found} runs wait, not {waiting + 1}")
        copied = f"{_waiting}{waiting:016d}"
        await app.signal(copied, go, 7)
        if await app.run(copied).result() != 7:
            raise AssertionError("a copied run has another result than it was sent")
    async with postgres.connected(url) as connection:
        if await connection.fetchval(
            "select count(*) from pg_stat_user_tables where schemaname = 'perdure'"
            " and (last_analyze is not null or last_autoanalyze is not null)"
        ):
            raise AssertionError("tables were analysed while we measured")


jobs: dict[str, Callable[[Order, Stopwatch], Coroutine[Any, Any, Values]]] = {"full": full}
