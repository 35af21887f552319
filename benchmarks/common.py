"""What every measurement shares: its orders, a stopwatch, memory and files."""

import asyncio
import json
import math
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
Values = dict[str, float]

root = Path(__file__).resolve().parent.parent
ready_line = "READY"
at_once = 1_000


class NotAvailable(Exception):
    """The version that is measured cannot do this; no failure, but no figure either."""


@dataclass(frozen=True)
class Order:
    """What a child process is asked to measure."""

    engine: str
    job: str
    size: int
    place: str  # a directory to work in; for hold and build the file; "memory" when profiling
    uvloop: bool = False
    warm: int = 20
    # The URL of an empty Postgres database, or of the file that two processes share; without one, a file in the place.
    database: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Order":
        return cls(**json.loads(text))


class Stopwatch:
    """Times its `with` block. The profiler hooks itself in at both ends."""

    def __init__(
        self,
        on_start: Callable[[], None] | None = None,
        on_stop: Callable[[], None] | None = None,
    ) -> None:
        self._on_start = on_start
        self._on_stop = on_stop
        self.started = 0.0
        self.seconds = 0.0

    def __enter__(self) -> Self:
        if self._on_start is not None:
            self._on_start()
        self.started = time.perf_counter()
        return self

    def elapsed(self) -> float:
        """Seconds since it was started, while it runs."""
        return time.perf_counter() - self.started

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds += self.elapsed()
        if self._on_stop is not None:
            self._on_stop()


def run(main: Coroutine[Any, Any, T], *, uvloop: bool) -> T:
    """asyncio.run, on uvloop when asked."""
    if not uvloop:
        return asyncio.run(main)
    from uvloop import new_event_loop  # type: ignore[import-not-found,unused-ignore]

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


async def all_of(count: int, run: Callable[[int], Awaitable[T]]) -> list[T]:
    """So many runs, a thousand of them at once: whoever has its result starts the next."""
    numbers = iter(range(count))
    results: list[T] = []

    async def client() -> None:
        results.extend([await run(number) for number in numbers])

    await asyncio.gather(*(client() for _ in range(min(count, at_once))))
    return results


def child_command(order: Order) -> list[str]:
    return [sys.executable, "-m", "benchmarks.child", order.to_json()]


def spawn(order: Order, **options: Any) -> "subprocess.Popen[str]":
    """A fresh process for one order."""
    return subprocess.Popen(
        child_command(order), cwd=root, stdout=subprocess.PIPE, text=True, **options
    )


def new_file(place: str) -> str:
    """The path of a database file in a directory of its own."""
    return os.path.join(tempfile.mkdtemp(dir=place), "bench.db")


def percentile(values: list[float], percent: float) -> float:
    """The nearest-rank percentile."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]


def rss_bytes() -> int:
    """Memory of this process that is in RAM now (on systems without /proc: the most it ever was)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        scale = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    return pages * resource.getpagesize()


def table_counts(path: str) -> Values:
    """Rows of the tables that a plain run writes, and the file's size, after everything is closed."""
    counts: Values = {}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        for table in ("runs", "steps", "events"):
            counts[f"rows.{table}"] = connection.execute(
                f"select count(*) from {table}"
            ).fetchone()[0]
    counts["file_mb"] = os.stat(path).st_size / 1e6
    return counts
