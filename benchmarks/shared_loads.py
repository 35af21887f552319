"""Two processes on one SQLite file, on Perdure: what they get done together, and how soon one hears of the other."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from benchmarks import companions
from benchmarks.common import Order, Stopwatch, Values, all_of, new_file
from benchmarks.companions import companion, make_app, say_ready, until_told
from benchmarks.perdure_loads import check, file_url, left_in, one_step, run_to_end, warm_up
from perdure import App


async def shared(order: Order, watch: Stopwatch) -> Values:
    """Half of the runs by this process and half by another, at once; and before that all by one that is alone."""
    alone = Stopwatch()
    async with make_app(file_url(new_file(order.place))) as app:
        await warm_up(app, one_step, order.warm)
        with alone:
            await all_of(order.size, lambda number: run_to_end(app, one_step, number))
    url = file_url(new_file(order.place))
    async with make_app(url) as app:
        await warm_up(app, one_step, order.warm)
        async with companion(replace(order, job="shared-worker", database=url)) as other:
            other.go_on()
            with watch:
                await half(app, order)
                await other.line()
    values = {"runs_s": order.size / watch.seconds, "alone_runs_s": order.size / alone.seconds}
    return values | await left_in(url)


async def half(app: App, order: Order) -> None:
    runs = order.size // 2
    check(await all_of(runs, lambda number: run_to_end(app, one_step, number)), runs)


async def shared_worker(order: Order, watch: Stopwatch) -> Values:
    """Not a measurement: the other one."""
    assert order.database is not None
    async with make_app(order.database) as app:
        await warm_up(app, one_step, order.warm)
        say_ready()
        await until_told()
        await half(app, order)
        print("DONE", flush=True)
        await until_told()
    return {}


async def across(order: Order, watch: Stopwatch) -> Values:
    return await companions.across(replace(order, database=file_url(new_file(order.place))), watch)


jobs: dict[str, Callable[[Order, Stopwatch], Coroutine[Any, Any, Values]]] = {
    "shared": shared,
    "shared-worker": shared_worker,
    "across": across,
    "across-worker": companions.across_worker,
}
