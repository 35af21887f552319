"""Races between processes that share a store: each is a store with connections of its own, in a thread with a loop of
its own. No coordinator orders them.

A round lets two ops meet: they wait at a barrier and are applied at once. How many rounds a race has is
PERDURE_RACE_ROUNDS, by default few enough for every run of the tests; `make races` asks for many.
"""

import asyncio
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from perdure.model import ops
from perdure.model.ids import Ids
from perdure.model.records import RunRecord
from perdure.store.base import Store
from perdure.testing import VirtualClock
from perdure.testing.conformance import Driver, check_invariants
from perdure.testing.conformance.words import WORKFLOW, YEAR, done, error

# A round costs several commits, and a commit on a server more than one in a file.
_rounds_by_kind: Final = {"sqlite": 100, "postgres": 20, "redis": 30}
# A hung round is found by the limit of the whole test; with `make races`, which has none, by this.
_patience_s: Final = 600
_asked = os.environ.get("PERDURE_RACE_ROUNDS")

MakeStore = Callable[[VirtualClock, Ids], Store]


def rounds_of(kind: str) -> int:
    """How many rounds a race has on a store of this kind."""
    return _rounds_by_kind[kind] if _asked is None else int(_asked)


class Process:
    """A store of its own in a thread of its own: what another process would be."""

    def __init__(self, make: MakeStore, clock: VirtualClock, worker_id: str, seed: int) -> None:
        self.worker_id = worker_id
        self.store = make(clock, Ids(clock, random.Random(seed)))
        self.store.worker_id = worker_id
        self.d = Driver(self.store, clock, first=seed * 1_000_000)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.do(self.store.open())
        self.do(self.d.beat(worker_id, lease_us=YEAR))

    def begin(self, awaited: Any) -> "Future[Any]":
        """Start something in this process; the answer comes later."""
        return asyncio.run_coroutine_threadsafe(awaited, self.loop)

    def do(self, awaited: Any) -> Any:
        return self.begin(awaited).result(timeout=_patience_s)

    def apply(self, *batch: ops.Op[Any]) -> list[Any]:
        """Ops as one batch, and their answers."""
        answers: list[Any] = self.do(self.d.batch(*batch))
        return answers

    def end(self) -> None:
        self.do(self.store.close())
        self.do(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Race:
    """Two processes on one store; more can join."""

    def __init__(self, make: MakeStore, rounds: int) -> None:
        self.clock = VirtualClock()
        self.rounds = rounds
        self._make = make
        self.processes: list[Process] = []
        self.a = self.join("worker-a")
        self.b = self.join("worker-b")
        self._chance = random.Random(3)
        self._met = 0
        self._born: dict[str, RunRecord] = {}  # runs that were started and not touched since

    def join(self, worker_id: str) -> Process:
        """One more process."""
        process = Process(self._make, self.clock, worker_id, len(self.processes) + 1)
        self.processes.append(process)
        return process

    def meet(self, *each: ops.Op[Any]) -> Sequence[Any]:
        """Apply one op in each process at once; their answers in the order of the arguments.

        Now and then one after the other, so that both orders are seen however the machine is loaded.
        """
        self._met += 1
        at_work = list(zip(self.processes, each, strict=False))
        if self._met % 10 == 0:
            return [process.apply(op)[0] for process, op in at_work]
        if self._met % 10 == 5:
            return [process.apply(op)[0] for process, op in reversed(at_work)][::-1]
        barrier = threading.Barrier(len(each))
        futures = [
            process.begin(_at_once(process, op, barrier, self._chance.random()))
            for process, op in at_work
        ]
        return [one.result(timeout=_patience_s) for one in futures]

    def run(self, run_id: str) -> RunRecord:
        """A run as it is now."""
        now: RunRecord = self.a.do(self.a.d.run(run_id))
        return now

    def step(self, run_id: str, path: str = "w") -> Any:
        """A living step, by default that of the wait."""
        return self.a.do(self.a.d.step(run_id, path))

    def start(self, *run_ids: str, process: Process | None = None, **fields: Any) -> list[Any]:
        """Start runs that a process (the first) owns, in one commit."""
        starter = process or self.a
        fields = {"owner": starter.worker_id, **fields}
        started = starter.apply(*(starter.d.start_op(one, **fields) for one in run_ids))
        self._born |= {one.run.run_id: one.run for one in started}
        return started

    def start_waiting(
        self, run_ids: Sequence[str], *waits: ops.Wait, process: Process | None = None
    ) -> None:
        """Start runs and park them, in two commits."""
        starter = process or self.a
        self.start(*run_ids, process=starter)
        starter.apply(*(self.turn(ops.Suspend, one, waits=waits) for one in run_ids))

    def complete(self, *run_ids: str, process: Process | None = None) -> None:
        """Have runs end well, in one commit of the process that owns them (the first)."""
        ended = {"status": "completed", "output": "1"}
        (process or self.a).apply(*(self.turn(ops.Finish, one, **ended) for one in run_ids))

    def fail(self, run_id: str) -> None:
        """Have a run of the first process fail after a step."""
        failed = {"status": "failed", "error": error("no", path="s")}
        self.a.apply(self.turn(ops.Finish, run_id, steps=(done("s"),), **failed))

    def turn(self, kind: Callable[..., ops.Op[Any]], run_id: str, /, **fields: Any) -> ops.Op[Any]:
        """An op of the run's owner, made before the race begins."""
        now = self._born.pop(run_id, None) or self.run(run_id)
        return kind(run_id=run_id, fence=now.fence, revision=now.revision, **fields)

    def check(self) -> None:
        """All invariants, as each of the processes sees them."""
        for process in self.processes:
            broken = process.do(check_invariants(process.store))
            assert not broken, broken

    def end(self) -> None:
        for process in self.processes:
            process.end()


async def _at_once(
    process: Process, op: ops.Op[Any], barrier: threading.Barrier, dawdle: float
) -> Any:
    barrier.wait(timeout=_patience_s)
    # A few turns of the loop, so that now the one and now the other comes first.
    for _ in range(int(dawdle * 8)):
        await asyncio.sleep(0)
    return await process.d.apply(op)


def assert_both(seen: Counter[Any], kinds: int = 2) -> None:
    """Each side came first at least once."""
    assert len(seen) == kinds, f"only one side ever came first: {seen}"


def claim(worker_id: str, fence: int, limit: int) -> ops.ClaimRuns:
    """A claim of runs of the one workflow that races have."""
    return ops.ClaimRuns(worker_id=worker_id, fence=fence, limit=limit, workflows=((WORKFLOW, 1),))
