"""The workloads that only a store shared by many processes has, on Perdure: each is a process of its own again.

One sends what another waits for; several share the work; one stands by and should cost next to nothing. All begin with
an empty database.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

import asyncpg

from benchmarks import postgres
from benchmarks.common import Order, Stopwatch, Values, all_of
from benchmarks.companions import (
    across,
    across_worker,
    companion,
    make_app,
    say_ready,
    until_told,
)
from benchmarks.ledger_loads import opened, reading
from benchmarks.perdure_loads import one_step, store_url, ten_steps, warm_up
from perdure import App, Context, workflow

_patience_s = 600.0
# By then an app that had something to do has nothing left but to stand by.
_settle_s = 3.0


@workflow
async def take_event(ctx: Context, event: Any) -> None:
    return None


# --- several processes that share the work -------------------------------------------------------

_processes: Final = (1, 2, 4)
# Of one process at once: so few that each gets its share, so many that commits are shared.
_shared_runs_at_once: Final = 100


async def processes(order: Order, watch: Stopwatch) -> Values:
    """Runs that are ready, and 1, 2 and 4 processes that work on them; then the other way round."""
    url = store_url(order)
    rates: dict[int, list[float]] = {number: [] for number in _processes}
    async with make_app(url, worker=False) as app:
        for number in (*_processes, *reversed(_processes)):
            rates[number].append(order.size / await shared_by(number, app, order, watch))
    found = {number: statistics.mean(rates[number]) for number in _processes}
    values = {f"steps_s_{number}": 10 * found[number] for number in _processes}
    return values | {f"gain_{number}": found[number] / found[1] for number in _processes[1:]}


async def shared_by(number: int, app: App, order: Order, watch: Stopwatch) -> float:
    """Seconds from the word to that many processes until all runs have ended."""
    url = store_url(order)
    async with AsyncExitStack() as stack:
        orders = [replace(order, job="processes-worker")] * number
        workers = await asyncio.gather(
            *(stack.enter_async_context(companion(one)) for one in orders)
        )
        before = await ended(url)
        await all_of(order.size, lambda number: app.start(ten_steps, number))
        begun = time.perf_counter()
        with watch:
            for worker in workers:
                worker.go_on()
            await until_ended(url, before + order.size)
        return time.perf_counter() - begun


async def ended(url: str) -> int:
    async with postgres.connected(url) as connection:
        return await _ended(connection)


async def _ended(connection: Any) -> int:
    found: int = await connection.fetchval(
        "select count(*) from runs where finished_at is not null"
    )
    return found


async def until_ended(url: str, number: int) -> None:
    async with postgres.connected(url) as connection, asyncio.timeout(_patience_s):
        # Others end them: nobody here could tell.
        while await _ended(connection) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def processes_worker(order: Order, watch: Stopwatch) -> Values:
    """Not a measurement: one of the processes. It warms up in a namespace of its own, where nobody disturbs it."""
    url = store_url(order)
    async with make_app(url, namespace=f"warm_{os.getpid()}") as app:
        await warm_up(app, ten_steps, order.warm)
    say_ready()
    await until_told()
    async with make_app(url, concurrency=_shared_runs_at_once):
        await until_told()
    return {}


# --- an app that stands by -----------------------------------------------------------------------


class Queries:
    """Counts what this process asks of the server, on all connections that are made from now on.

    Here and not on the server: that counts transactions for each database, those of autovacuum among them, and late.
    """

    def __init__(self) -> None:
        self.count = 0
        connect = asyncpg.connect

        async def counted(*args: Any, **options: Any) -> Any:
            connection = await connect(*args, **options)
            connection.add_query_logger(self._add)
            return connection

        asyncpg.connect = counted

    def _add(self, query: Any) -> None:
        self.count += 1


async def idle(order: Order, watch: Stopwatch) -> Values:
    """An app with a worker, a consumer and a subscription, and nothing to do for as many seconds as the size says."""
    queries = Queries()
    app = make_app(store_url(order))
    for one in (reading, opened, take_event):
        app.add(one)

    @app.consumer("noop", "bench.*")
    async def noop(batch: Any) -> None:
        return None

    async with app:
        await app.subscribe(opened, take_event, name="idle")
        await warm_up(app, one_step, order.warm)
        await app.emit(opened, 1)
        await asyncio.sleep(_settle_s)
        before = queries.count
        with watch:
            await asyncio.sleep(order.size)
        found = queries.count - before
    if not found:
        raise AssertionError("no query was seen, not even a sign of life: nothing is counted")
    return {"queries_s": found / watch.seconds}


jobs: dict[str, Callable[[Order, Stopwatch], Coroutine[Any, Any, Values]]] = {
    "across": across,
    "across-worker": across_worker,
    "processes": processes,
    "processes-worker": processes_worker,
    "idle": idle,
}
