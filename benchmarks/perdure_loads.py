"""The workloads on Perdure. Each function does one measurement in a process of its own.

Workflows do next to nothing, so what is measured is the engine: op, commit, wake, turn.
"""

import asyncio
import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.common import (
    Order,
    Stopwatch,
    Values,
    all_of,
    new_file,
    percentile,
    ready_line,
    rss_bytes,
    spawn,
    table_counts,
)
from perdure import App, Buffered, Context, Delivered, RunHandle, Signal, Workflow, step, workflow

go = Signal("go", int)
gate = asyncio.Event()
stamps: dict[int, float] = {}

# Enough to keep the writer busy, few enough that the tasks themselves do not show in the memory.
_wave_runs = 500
_settle_s = 0.2
memory_path = "memory"  # only for profiling: memory:// instead of a file
_file_scheme = "sqlite:///"
_file_options = "?synchronous=FULL"
_patience_s = 600.0


@step
async def echo(value: int) -> int:
    return value


@step
async def held(value: int) -> int:
    await gate.wait()
    return value


@workflow
async def one_step(ctx: Context, value: int) -> int:
    return await ctx.step(echo, value)


@workflow
async def ten_steps(ctx: Context, value: int) -> int:
    for _ in range(10):
        value = await ctx.step(echo, value)
    return value


@workflow(signals=[go])
async def wait_once(ctx: Context, number: int) -> int:
    value = await ctx.wait(go)
    # Not a thing to do in a real workflow; here it is the very moment its code runs again.
    stamps[number] = time.perf_counter()
    return value


@workflow(signals=[go])
async def held_then_wait(ctx: Context, number: int) -> int:
    await ctx.step(held, number)
    return await ctx.wait(go)


def make_app(url: str, **options: Any) -> App:
    app = App(url, **options)
    for one in (one_step, ten_steps, wait_once, held_then_wait):
        app.add(one)
    return app


def store_url(order: Order) -> str:
    """The empty store of this measurement: a database, a new file, or memory."""
    if order.database is not None:
        return order.database
    return "memory://" if order.place == memory_path else file_url(new_file(order.place))


def file_url(path: str) -> str:
    return f"{_file_scheme}{path}{_file_options}"


async def left_in(url: str) -> Values:
    """What the workload left in the store, for those who must leave the same."""
    if url.startswith(_file_scheme):
        return table_counts(url.removeprefix(_file_scheme).removesuffix(_file_options))
    if url.startswith("postgresql:"):
        from benchmarks import postgres

        return await postgres.table_counts(url)
    return {}


async def run_to_end(app: App, flow: Workflow[int, int], number: int) -> int:
    run = await app.start(flow, number)
    return await run.result()


async def warm_up(app: App, flow: Workflow[int, int], runs: int) -> None:
    await asyncio.gather(*(run_to_end(app, flow, number) for number in range(runs)))


async def until_waiting(app: App, runs: int) -> None:
    """Until so many runs wait, and then a moment more, so that nothing moves."""
    store = app._engine().store
    deadline = time.monotonic() + _patience_s
    waiting = 0
    while time.monotonic() < deadline:
        waiting = (await store.counts()).get("runs.waiting", 0)
        if waiting >= runs:
            await asyncio.sleep(_settle_s)
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"only {waiting} of {runs} runs wait after {_patience_s} s")


def check(results: list[int], runs: int) -> None:
    if sorted(results) != list(range(runs)):
        raise AssertionError("the results are not those of the runs")


# --- W1, W2: throughput of steps -----------------------------------------------------------------


async def steps_at_once(
    order: Order, watch: Stopwatch, flow: Workflow[int, int], steps: int
) -> Values:
    """Start runs and await their results, a thousand at once."""
    url = store_url(order)
    async with make_app(url) as app:
        await warm_up(app, flow, order.warm)
        with watch:
            results = await all_of(order.size, lambda number: run_to_end(app, flow, number))
    check(results, order.size)
    values = {"runs_s": order.size / watch.seconds, "steps_s": order.size * steps / watch.seconds}
    return values | await left_in(url)


async def w1(order: Order, watch: Stopwatch) -> Values:
    return await steps_at_once(order, watch, one_step, 1)


async def w2(order: Order, watch: Stopwatch) -> Values:
    return await steps_at_once(order, watch, ten_steps, 10)


# --- W3, W4: signals -----------------------------------------------------------------------------


async def signal_all(app: App, count: int) -> None:
    """A round of what is measured, to warm up."""
    runs = await asyncio.gather(*(app.start(wait_once, number) for number in range(count)))
    await until_waiting(app, count)
    await asyncio.gather(*(app.signal(run.id, go, 0) for run in runs))
    await asyncio.gather(*(run.result() for run in runs))


async def w3(order: Order, watch: Stopwatch) -> Values:
    """All runs wait; then one signal to each, all sends at once."""
    async with make_app(store_url(order)) as app:
        await signal_all(app, order.warm)
        runs = await asyncio.gather(*(app.start(wait_once, number) for number in range(order.size)))
        await until_waiting(app, order.size)
        with watch:
            begun = time.perf_counter()
            ends = [asyncio.ensure_future(run.result()) for run in runs]
            sent = await asyncio.gather(
                *(app.signal(run.id, go, number) for number, run in enumerate(runs))
            )
            sent_s = time.perf_counter() - begun
            results = await asyncio.gather(*ends)
    check(list(results), order.size)
    if not all(isinstance(one, Delivered) for one in sent):
        raise AssertionError("a signal to a waiting run was not delivered at once")
    return {"completed_s": order.size / watch.seconds, "sends_s": order.size / sent_s}


async def w3_latency(order: Order, watch: Stopwatch) -> Values:
    """One run at a time waits in an idle app; from before the send to the next line of its code."""
    resumed_ms: list[float] = []
    acknowledged_ms: list[float] = []
    async with make_app(store_url(order)) as app:
        await warm_up(app, one_step, order.warm)
        for number in range(order.size):
            run = await app.start(wait_once, number)
            await until_status(run, "waiting")
            await asyncio.sleep(random.uniform(0.005, 0.015))
            with watch:
                begun = time.perf_counter()
                await app.signal(run.id, go, number)
                acknowledged = time.perf_counter()
                await run.result()
            resumed_ms.append((stamps[number] - begun) * 1e3)
            acknowledged_ms.append((acknowledged - begun) * 1e3)
    return {
        "p50_ms": percentile(resumed_ms, 50),
        "p99_ms": percentile(resumed_ms, 99),
        "acknowledged_p50_ms": percentile(acknowledged_ms, 50),
    }


async def until_status(run: RunHandle[Any], status: str) -> None:
    for _ in range(10_000):
        if await run.status() == status:
            return
        await asyncio.sleep(0.001)
    raise TimeoutError(f"run {run.id} is still not {status}")


async def w4(order: Order, watch: Stopwatch) -> Values:
    """Start runs whose first step is held, signal them all, let go: every wait finds its signal."""
    async with make_app(store_url(order)) as app:
        await signal_early(app, order.warm)
        gate.clear()
        with watch:
            results = await signal_early(app, order.size)
    check(results, order.size)
    return {"runs_s": order.size / watch.seconds}


async def signal_early(app: App, count: int) -> list[int]:
    async def start_and_send(number: int) -> RunHandle[int]:
        run = await app.start(held_then_wait, number)
        sent = await app.signal(run.id, go, number)
        if not isinstance(sent, Buffered):
            raise AssertionError(f"the signal was not buffered: {sent}")
        return run

    runs = await asyncio.gather(*(start_and_send(number) for number in range(count)))
    gate.set()
    return list(await asyncio.gather(*(run.result() for run in runs)))


# --- W6: many waiting runs -----------------------------------------------------------------------


async def start_waiting(app: App, runs: int, first: int = 0) -> None:
    """Let the runs from `first` on wait, so that `runs` do in all; in waves, and no handle is kept."""
    for begin in range(first, runs, _wave_runs):
        end = min(begin + _wave_runs, runs)
        await asyncio.gather(*(app.start(wait_once, n, id=run_id(n)) for n in range(begin, end)))
    await until_waiting(app, runs)


def run_id(number: int) -> str:
    return f"waiting-{number:07d}"


async def memory(order: Order, resident: int) -> Values:
    """Growth up to all waiting runs as it is, and the slope of its second half.

    The growth is never scaled: some of it (buffers, caches, what starting needs) is there for the first
    thousand runs already, and multiplied it would be a figure of nothing.
    """
    path = new_file(order.place)
    async with make_app(file_url(path), resident=resident):
        pass
    empty = os.stat(path).st_size
    half = order.size // 2
    async with make_app(file_url(path), resident=resident) as app:
        await warm_up(app, one_step, order.warm)
        before = collected_rss()
        await start_waiting(app, half)
        middle = collected_rss()
        await start_waiting(app, order.size, half)
        after = collected_rss()
        worker = app._engine().worker
        held_runs = 0 if worker is None else worker.resident_runs
    return {
        "memory_mb": (after - before) / 1e6,
        "slope_mb": (after - middle) / 1e6 * 10_000 / (order.size - half),
        "disk_mb": (os.stat(path).st_size - empty) / 1e6 * 10_000 / order.size,
        "resident_runs": held_runs,
    }


def collected_rss() -> int:
    gc.collect()
    return rss_bytes()


async def memory_evicted(order: Order, watch: Stopwatch) -> Values:
    return await memory(order, resident=0)


async def memory_resident(order: Order, watch: Stopwatch) -> Values:
    return await memory(order, resident=2 * order.size)


async def hold(order: Order, watch: Stopwatch) -> Values:
    """Not a measurement: runs that wait in the file that is named, until this process is killed."""
    async with make_app(file_url(order.place)) as app:
        await start_waiting(app, order.size)
        print(ready_line, flush=True)
        await asyncio.Event().wait()
    return {}


async def build(order: Order, watch: Stopwatch) -> Values:
    """Not a measurement: a file with so many waiting runs, closed properly."""
    async with make_app(file_url(order.place), resident=0) as app:
        await start_waiting(app, order.size)
    return {}


async def restart(order: Order, watch: Stopwatch) -> Values:
    """A process with waiting runs is killed; here its file is opened and every run is signalled."""
    path = new_file(order.place)
    kill_when_ready(Order("perdure", "hold", order.size, path, order.uvloop))
    with watch:
        async with make_app(file_url(path)) as app:
            opened_s = watch.elapsed()
            ids = [run_id(number) for number in range(order.size)]

            async def finish(number: int) -> Any:
                await app.signal(ids[number], go, number)
                return await app.run(ids[number]).result()

            results = await asyncio.gather(*(finish(number) for number in range(order.size)))
            done_s = watch.elapsed()
    check(list(results), order.size)
    return {"restart_s": done_s, "restart_open_s": opened_s}


def kill_when_ready(order: Order) -> None:
    victim = spawn(order)
    try:
        assert victim.stdout is not None
        for line in victim.stdout:
            if line.strip() == ready_line:
                return
        raise RuntimeError(f"the process to be killed ended by itself: {victim.wait()}")
    finally:
        victim.kill()  # SIGKILL, to this process alone
        victim.wait()
        if victim.stdout is not None:
            victim.stdout.close()


async def open_large(order: Order, watch: Stopwatch) -> Values:
    """Open a file with many waiting runs. It is built by the first repeat and used by all."""
    path = os.path.join(order.place, f"waiting-{order.size}.db")
    build_once(Order("perdure", "build", order.size, path, order.uvloop))
    app = make_app(file_url(path))
    with watch:
        await app.__aenter__()
    try:
        waiting = (await app._engine().store.counts()).get("runs.waiting", 0)
    finally:
        await app.__aexit__(None, None, None)
    if waiting != order.size:
        raise AssertionError(f"{waiting} runs wait in the file, not {order.size}")
    return {"open_ms": watch.seconds * 1e3, "file_mb": os.stat(path).st_size / 1e6}


def build_once(order: Order) -> None:
    built = Path(f"{order.place}.built")
    if built.exists():
        return
    builder = spawn(order)
    if builder.wait() != 0:
        raise subprocess.CalledProcessError(builder.returncode, "build")
    built.touch()
    print(f"built {order.place}", file=sys.stderr)


jobs: dict[str, Callable[[Order, Stopwatch], Coroutine[Any, Any, Values]]] = {
    "w1": w1,
    "w2": w2,
    "w3": w3,
    "w3-latency": w3_latency,
    "w4": w4,
    "memory-evicted": memory_evicted,
    "memory-resident": memory_resident,
    "restart": restart,
    "open": open_large,
    "hold": hold,
    "build": build,
}
