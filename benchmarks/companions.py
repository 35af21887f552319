"""Two processes of ours on one store, of which one sends what the other waits for; on Postgres, and on a file.

A companion is a process of its own, that says when it is ready and goes on at a word.
"""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from benchmarks import perdure_loads
from benchmarks.common import (
    Order,
    Stopwatch,
    Values,
    all_of,
    child_command,
    percentile,
    ready_line,
)
from benchmarks.perdure_loads import go, run_id, store_url, until_waiting
from perdure import App, Context, workflow

_patience_s = 600.0


@workflow(signals=[go])
async def tell_resumed(ctx: Context, number: int) -> int:
    value = await ctx.wait(go)
    # Not a thing to do in a real workflow; here it is the very moment its code runs again.
    print(number, time.perf_counter(), flush=True)
    return value


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
