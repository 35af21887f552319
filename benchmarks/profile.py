"""`python -m benchmarks.profile W2`: where the time of one of our workloads goes. For tuning, not for figures.

First without a profiler: ops, batches, the time in the store, processor time per thread. Then under cProfile, once for
the thread of the event loop and once for the writer thread of the store (two runs: each slows the other down).
"""

import argparse
import cProfile
import os
import pstats
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import ledger_loads, perdure_loads
from benchmarks.common import Order, Stopwatch, Values, run
from benchmarks.plan import ours, workloads
from perdure.model.ops import Op
from perdure.store.base import Applied
from perdure.store.memory import MemoryStore

_writer_thread = "perdure-sqlite"
_views = ("ops", "loop", "writer")

Apply = Callable[..., Any]


class OpCosts:
    """What went to the store, counted at its door, and the processor time of every thread."""

    def __init__(self) -> None:
        self.counting = False
        self.kinds: Counter[str] = Counter()
        self.batches: list[tuple[int, float]] = []  # ops, seconds
        self.threads: dict[str, float] = {}
        self._cpu_before: dict[int, float] = {}

    def start(self) -> None:
        self.counting = True
        self._cpu_before = {id_: _cpu(id_) for id_ in _thread_names()}

    def stop(self) -> None:
        self.counting = False
        for id_, name in _thread_names().items():
            used = _cpu(id_) - self._cpu_before.get(id_, 0.0)
            self.threads[name] = self.threads.get(name, 0.0) + used

    def wrap(self, apply: Apply) -> Apply:
        async def counted(
            store: Any, batch_id: str, ops: Sequence[Op[Any]], *more: Any
        ) -> list[Applied]:
            begun = time.perf_counter()
            applied: list[Applied] = await apply(store, batch_id, ops, *more)
            if self.counting:
                self.batches.append((len(ops), time.perf_counter() - begun))
                self.kinds.update(type(op).__name__ for op in ops)
            return applied

        return counted

    def show(self, seconds: float) -> None:
        ops = sum(self.kinds.values())
        in_store = sum(took for _, took in self.batches)
        sizes = sorted(size for size, _ in self.batches)
        print(
            f"  wall            {seconds:8.3f} s     {seconds / max(ops, 1) * 1e6:8.1f} us per op"
        )
        print(
            f"  of it, in store {in_store:8.3f} s     {in_store / max(ops, 1) * 1e6:8.1f} us per op"
        )
        for name, used in sorted(self.threads.items(), key=lambda item: -item[1]):
            if used > 0.001:
                per_op = used / max(ops, 1) * 1e6
                print(f"  cpu of {name[:24]:<24} {used:8.3f} s {per_op:8.1f} us per op")
        if sizes:
            middle = sizes[len(sizes) // 2]
            print(f"  {ops} ops in {len(sizes)} batches: {sizes[0]} .. {middle} .. {sizes[-1]} ops")
        for kind, number in self.kinds.most_common():
            print(f"    {kind:<16} {number:8d}")


def _thread_names() -> dict[int, str]:
    return {one.ident: one.name for one in threading.enumerate() if one.ident is not None}


def _cpu(thread_id: int) -> float:
    if not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(thread_id))


def _store_class(order: Order) -> type:
    if order.place == perdure_loads.memory_path:
        return MemoryStore
    if order.database is None:
        from perdure.store.sqlite.store import SqliteStore

        return SqliteStore
    if order.database.startswith("postgresql:"):
        from perdure.store.postgres.store import PostgresStore

        return PostgresStore
    from perdure.store.redis.store import RedisStore

    return RedisStore


def _measure(order: Order, watch: Stopwatch) -> Values:
    jobs = perdure_loads.jobs | ledger_loads.jobs
    return run(jobs[order.job](order, watch), uvloop=order.uvloop)


def view_ops(order: Order) -> None:
    costs = OpCosts()
    store = _store_class(order)
    store.apply = costs.wrap(store.apply)  # type: ignore[attr-defined]
    watch = Stopwatch(costs.start, costs.stop)
    values = _measure(order, watch)
    _title("ops", order, values)
    costs.show(watch.seconds)


def view_loop(order: Order, sort: str, rows: int) -> None:
    profiler = cProfile.Profile()
    values = _measure(order, Stopwatch(profiler.enable, profiler.disable))
    _title("thread of the event loop", order, values)
    pstats.Stats(profiler).strip_dirs().sort_stats(sort).print_stats(rows)


def view_writer(order: Order, sort: str, rows: int) -> None:
    """The whole life of the writer thread: a profiler can only be switched on from inside."""
    profiler = cProfile.Profile()
    plain = threading.Thread.run

    def profiled(thread: threading.Thread) -> None:
        if not thread.name.startswith(_writer_thread):
            return plain(thread)
        profiler.enable()
        try:
            plain(thread)
        finally:
            profiler.disable()

    threading.Thread.run = profiled  # type: ignore[assignment,method-assign]
    values = _measure(order, Stopwatch())
    _title("writer thread of the store", order, values)
    pstats.Stats(profiler).strip_dirs().sort_stats(sort).print_stats(rows)


def _title(what: str, order: Order, values: Values) -> None:
    shown = "  ".join(f"{key} {value:,.1f}" for key, value in values.items() if "." not in key)
    print(f"\n--- {what}: {order.job}, {order.size} runs, {order.place}: {shown}\n")


def main() -> None:
    known = [
        job.name
        for one in workloads
        for job in one.jobs
        if job.engine == ours and one.store == "sqlite"
    ]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "workload", type=str.lower, choices=known, help="W1 to W4, W7 to W11, or a job of W6"
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--view", choices=_views, action="append", help="default: all three")
    parser.add_argument("--sort", default="tottime", help="tottime (default), cumtime, ncalls")
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument(
        "--memory", action="store_true", help="on memory://, to see the engine alone"
    )
    parser.add_argument(
        "--server", metavar="URL", help="on an empty Postgres or Valkey, which every view fills"
    )
    parser.add_argument("--uvloop", action="store_true")
    args = parser.parse_args()
    has_writer = not (args.memory or args.server)
    views = args.view or [one for one in _views if has_writer or one != "writer"]
    for view in views:
        _in_child(view, args)


def _in_child(view: str, args: argparse.Namespace) -> None:
    """Each view in a process of its own, so that none sees what another has patched."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _show(view, args)
            sys.stdout.flush()
            code = 0
        finally:
            os._exit(code)
    os.waitpid(child, 0)


def _show(view: str, args: argparse.Namespace) -> None:
    place = (
        perdure_loads.memory_path if args.memory else tempfile.mkdtemp(prefix="perdure-profile-")
    )
    order = Order(ours, args.workload, args.runs, place, args.uvloop, database=args.server)
    try:
        if view == "ops":
            view_ops(order)
        elif view == "loop":
            view_loop(order, args.sort, args.rows)
        else:
            view_writer(order, args.sort, args.rows)
    finally:
        if not args.memory:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
