"""The workloads that only a store shared by many processes has, on Perdure: each is a process of its own again.

One sends what another waits for; several share the work; one stands by and should cost next to nothing. All begin with
an empty database.
"""

import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import asyncpg

from benchmarks import perdure_loads, postgres
from benchmarks.common import (
    Order,
    Stopwatch,
    Values,
    all_of,
    child_command,
    percentile,
    ready_line,
)
from benchmarks.ledger_loads import opened, reading
from benchmarks.perdure_loads import (
    go,
    one_step,
    run_id,
    store_url,
    ten_steps,
    until_waiting,
    warm_up,
)
from perdure import App, Context, workflow

_patience_s = 600.0
# By then an app that had something to do has nothing left but to stand by.
_settle_s = 3.0


@workflow(signals=[go])
async def tell_resumed(ctx: Context, number: int) -> int:
    value = await ctx.wait(go)
    # Not a thing to do in a real workflow; here it is the very moment its code runs again.
    print(number, time.perf_counter(), flush=True)
    return value


@workflow
async def take_event(ctx: Context, event: Any) -> None:
    return None


def make_app(url: str, **options: Any) -> App:
    app = perdure_loads.make_app(url, **options)
    app.add(tell_resumed)
    return app


# --- another process of ours ---------------------------------------------------------------------


class Companion:
    """A process that has said that it is ready. It goes on at our word, and ends when it hears no more from us."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._said = process.stdout
        self._told = process.stdin

    async def line(self) -> str:
        """The next thing it says."""
        async with asyncio.timeout(_patience_s):
            line = await self._said.readline()
        if not line:
            raise RuntimeError(f"the other process ended: {await self._process.wait()}")
        return line.decode().strip()

    def go_on(self) -> None:
        self._told.write(b"\n")

    async def end(self) -> None:
        self._told.close()
        await self._process.wait()


@asynccontextmanager
async def companion(order: Order) -> AsyncIterator[Companion]:
    process = await asyncio.create_subprocess_exec(
        *child_command(order), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    other = Companion(process)
    try:
        if await other.line() != ready_line:
            raise RuntimeError("the other process did not say that it is ready")
        yield other
    finally:
        await other.end()


def say_ready() -> None:
    print(ready_line, flush=True)


async def until_told() -> None:
    await asyncio.to_thread(sys.stdin.readline)


# --- from one process to another -----------------------------------------------------------------


async def across(order: Order, watch: Stopwatch) -> Values:
    """Runs wait in another process, which does nothing else; from before the send here to their next line of code."""
    resumed_ms: list[float] = []
    acknowledged_ms: list[float] = []
    async with companion(replace(order, job="across-worker")) as worker:
        async with make_app(store_url(order), worker=False) as app:
            for number in range(order.warm + order.size):
                await asyncio.sleep(random.uniform(0.005, 0.015))
                with watch:
                    begun = time.perf_counter()
                    await app.signal(run_id(number), go, number)
                    acknowledged = time.perf_counter()
                    # Clocks of one machine, so the same for both processes.
                    told, resumed = (await worker.line()).split()
                if int(told) != number:
                    raise AssertionError(f"run {told} was resumed, not {number}")
                resumed_ms.append((float(resumed) - begun) * 1e3)
                acknowledged_ms.append((acknowledged - begun) * 1e3)
    return {
        "p50_ms": percentile(resumed_ms[order.warm :], 50),
        "p99_ms": percentile(resumed_ms[order.warm :], 99),
        "acknowledged_p50_ms": percentile(acknowledged_ms[order.warm :], 50),
    }


async def across_worker(order: Order, watch: Stopwatch) -> Values:
    """Not a measurement: the process in which the runs wait."""
    count = order.warm + order.size
    async with make_app(store_url(order)) as app:
        await all_of(count, lambda number: app.start(tell_resumed, number, id=run_id(number)))
        await until_waiting(app, count)
        say_ready()
        await until_told()
    return {}


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
