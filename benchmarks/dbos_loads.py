"""The same workloads on DBOS (PyPI: dbos), on SQLite or Postgres, with settings that serve it well.

They come from one or two trials each with dbos 3.3.0, on a busy machine: read differences under 1.5 as none.

- The file is put into WAL mode before DBOS opens it (it stays so). In every trial that was faster for it than the
  rollback journal it gets by itself. Synchronous is FULL, which is checked.
- Runs are started directly (`start_workflow`). W1 and W2 use one executor thread; 2, 4 and 16 threads, a queue
  polled every 10 ms, and async workflows were not faster. Where runs wait, each needs a thread, so it gets those.
  (Async workflows on few threads did W3 and W4 about as fast, at best 1.2 times: not enough to matter here.)
- Its listener polls: every 10 ms for the latency, where that is best, every 100 ms for W3. There a small number of runs
  is unfair to it, because it waits for a poll once; hence `--quick` says little about W3. W4 needs no listener.
- On Postgres it listens for notifications, its default, and polls for nothing that is measured. There W1 and W2 use
  16 threads: 4 and 32 were not faster, nor were shorter polls, nor a queue.
"""

import random
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
from dbos import DBOS, DBOSConfig

from benchmarks.common import Order, Stopwatch, Values, new_file, percentile

stamps: dict[int, float] = {}
gate = threading.Event()

_senders = 8
_patience_s = 300.0
_topic = "go"


@DBOS.step()
def echo(value: int) -> int:
    return value


@DBOS.step()
def held(value: int) -> int:
    gate.wait(_patience_s)
    return value


@DBOS.workflow()
def one_step(value: int) -> int:
    return echo(value)


@DBOS.workflow()
def ten_steps(value: int) -> int:
    for _ in range(10):
        value = echo(value)
    return value


@DBOS.workflow()
def wait_once(number: int) -> int:
    value: int = DBOS.recv(_topic, timeout_seconds=_patience_s)
    stamps[number] = time.perf_counter()
    return value


@DBOS.workflow()
def held_then_wait(number: int) -> int:
    held(number)
    value: int = DBOS.recv(_topic, timeout_seconds=_patience_s)
    return value


class OnFile:
    """A new file, and how to look into it beside DBOS."""

    steps_table = "operation_outputs"

    def __init__(self, order: Order) -> None:
        self._path = new_file(order.place)
        self.url = f"sqlite:///{self._path}"
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("pragma journal_mode = wal").fetchall()

    def connect(self) -> sqlite3.Connection:
        """A connection that sets nothing, as DBOS does not either: what it gets is what DBOS gets."""
        reader = sqlite3.connect(self._path)
        (mode,) = reader.execute("pragma journal_mode").fetchone()
        (synchronous,) = reader.execute("pragma synchronous").fetchone()
        if (mode, synchronous) != ("wal", 2):
            raise RuntimeError(f"journal_mode={mode}, synchronous={synchronous}: not comparable")
        return reader


class OnPostgres:
    """An empty database, likewise."""

    steps_table = "dbos.operation_outputs"

    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self) -> "psycopg.Connection[Any]":
        reader = psycopg.connect(self.url, autocommit=True)
        for name in ("fsync", "synchronous_commit"):
            ((setting,),) = reader.execute(f"show {name}").fetchall()
            if setting != "on":
                raise RuntimeError(f"{name}={setting}: not comparable")
        return reader


class Rival:
    """DBOS on a new store. It is a singleton; so is its process."""

    def __init__(self, order: Order, *, threads: int, poll_s: float = 1.0) -> None:
        store = OnFile(order) if order.database is None else OnPostgres(order.database)
        config: DBOSConfig = {
            "name": "bench",
            "system_database_url": store.url,
            "max_executor_threads": threads,
            "notification_listener_polling_interval_sec": poll_s,
            "log_level": "ERROR",
        }
        DBOS(config=config)
        DBOS.launch()
        self._reader = store.connect()
        self._count_waits = (
            f"select count(*) from {store.steps_table} where function_name = 'DBOS.sleep'"
        )

    def __enter__(self) -> "Rival":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        DBOS.destroy()

    def waits(self) -> int:
        """How often a run has begun to wait: recv records its time limit as a sleep."""
        ((count,),) = self._reader.execute(self._count_waits).fetchall()
        return int(count)

    def until_waits(self, number: int) -> None:
        deadline = time.monotonic() + _patience_s
        while self.waits() < number:
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {self.waits()} of {number} runs wait")
            time.sleep(0.005)


def finish(handles: list[Any]) -> list[int]:
    return [handle.get_result() for handle in handles]


def warm_up(order: Order) -> None:
    finish([DBOS.start_workflow(one_step, number) for number in range(order.warm)])


def check(results: list[int], runs: int) -> None:
    if results != list(range(runs)):
        raise AssertionError("the results are not those of the runs")


def steps_at_once(order: Order, watch: Stopwatch, flow: Callable[[int], int], steps: int) -> Values:
    with Rival(order, threads=1 if order.database is None else 16):
        warm_up(order)
        with watch:
            results = finish([DBOS.start_workflow(flow, n) for n in range(order.size)])
    check(results, order.size)
    return {"runs_s": order.size / watch.seconds, "steps_s": order.size * steps / watch.seconds}


def w1(order: Order, watch: Stopwatch) -> Values:
    return steps_at_once(order, watch, one_step, 1)


def w2(order: Order, watch: Stopwatch) -> Values:
    return steps_at_once(order, watch, ten_steps, 10)


def w3(order: Order, watch: Stopwatch) -> Values:
    with Rival(order, threads=order.size + 8, poll_s=0.1) as rival:
        warm_up(order)
        handles = [DBOS.start_workflow(wait_once, number) for number in range(order.size)]
        rival.until_waits(order.size)
        time.sleep(0.3)

        def send(number: int) -> None:
            DBOS.send(handles[number].workflow_id, number, _topic)

        with watch:
            with ThreadPoolExecutor(_senders) as senders:
                list(senders.map(send, range(order.size)))
            sent_s = watch.elapsed()
            results = finish(handles)
    check(results, order.size)
    return {"completed_s": order.size / watch.seconds, "sends_s": order.size / sent_s}


def w3_latency(order: Order, watch: Stopwatch) -> Values:
    resumed_ms: list[float] = []
    acknowledged_ms: list[float] = []
    with Rival(order, threads=8, poll_s=0.01) as rival:
        warm_up(order)
        for number in range(order.size):
            handle = DBOS.start_workflow(wait_once, number)
            rival.until_waits(number + 1)
            time.sleep(random.uniform(0.005, 0.015))
            with watch:
                begun = time.perf_counter()
                DBOS.send(handle.workflow_id, number, _topic)
                acknowledged = time.perf_counter()
                handle.get_result()
            resumed_ms.append((stamps[number] - begun) * 1e3)
            acknowledged_ms.append((acknowledged - begun) * 1e3)
    return {
        "p50_ms": percentile(resumed_ms, 50),
        "p99_ms": percentile(resumed_ms, 99),
        "acknowledged_p50_ms": percentile(acknowledged_ms, 50),
    }


def w4(order: Order, watch: Stopwatch) -> Values:
    with Rival(order, threads=order.size + 8):
        signal_early(order.warm)
        gate.clear()
        with watch:
            results = signal_early(order.size)
    check(results, order.size)
    return {"runs_s": order.size / watch.seconds}


def signal_early(count: int) -> list[int]:
    handles = [DBOS.start_workflow(held_then_wait, number) for number in range(count)]
    for number, handle in enumerate(handles):
        DBOS.send(handle.workflow_id, number, _topic)
    gate.set()
    return finish(handles)


jobs: dict[str, Callable[[Order, Stopwatch], Values]] = {
    "w1": w1,
    "w2": w2,
    "w3": w3,
    "w3-latency": w3_latency,
    "w4": w4,
}
