"""The working set against the specification: batches of random ops, on SQLite and in plain dicts.

The memory store applies the ops one by one; SQLite gets them in batches of random size: by one
process that remembers, by two that take turns, and with every row loaded alone. Answers, wakes and
all rows must be the same, but for the sequence numbers, which only have to stand in the same order.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import astuple, replace

from perdure.model import ops
from perdure.model.ids import Ids
from perdure.model.records import CANCEL_PATH, Condition, StepRecord, WaitSpec, WorkflowRecord
from perdure.store.base import Applied, RunFilter
from perdure.store.memory import MemoryStore
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.writer import Writer


class Clock:
    def __init__(self) -> None:
        self.us = 1_700_000_000_000_000

    def now(self) -> int:
        return self.us

    def monotonic(self) -> float:
        return self.us / 1e6


class Pair:
    """The same ops on both stores."""

    def __init__(self, path: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = Clock()
        self.ids = Ids(self.clock, random.Random(1))
        memory_ids = Ids(self.clock, random.Random(2))
        memory_ids.ulid()  # the one that SQLite gives to a new file
        self.memory = MemoryStore(clock=self.clock, ids=memory_ids)
        sqlite_ids = Ids(self.clock, random.Random(2))
        self.stores = [
            SqliteStore(path, clock=self.clock, ids=sqlite_ids, synchronous="NORMAL")
            for _ in range(2)
        ]
        self.sqlite = self.stores[0]
        for store in (self.memory, *self.stores):
            store.worker_id = "W"

    async def open(self, processes: int) -> None:
        del self.stores[processes:]
        for store in self.stores:
            await store.open()

    async def close(self) -> None:
        for store in self.stores:
            await store.close()

    async def batch(self, make: Callable[[], ops.Op[Any]], count: int) -> None:
        made, expected = [], []
        for _ in range(count):
            op = make()
            made.append(op)
            expected += await self.memory.apply(self.ids.ulid(), [op])
        store = self.random.choice(self.stores)
        found = await store.apply(self.ids.ulid(), made)
        for op, was, should in zip(made, found, expected, strict=True):
            assert _without_seq(was) == _without_seq(should), op

    async def assert_same_rows(self) -> None:
        memory, sqlite = self.memory, self.sqlite
        everything = RunFilter()
        runs = await memory.runs(everything, None, 10_000)
        assert await sqlite.runs(everything, None, 10_000) == runs
        seqs = _Seqs()
        for run in runs:
            run_id = run.run_id
            was, should = await sqlite.history(run_id), await memory.history(run_id)
            assert [_no_seq(one) for one in was] == [_no_seq(one) for one in should]
            seqs.add((one.seq for one in was), (one.seq for one in should))
            assert await sqlite.waiting(run_id) == await memory.waiting(run_id)
            kept, wanted = await sqlite.buffered(run_id), await memory.buffered(run_id)
            assert [replace(one, position=0) for one in kept] == [
                replace(one, position=0) for one in wanted
            ]
            seqs.add((one.position for one in kept), (one.position for one in wanted))
        seqs.check()
        assert await sqlite.events(0, 100_000) == await memory.events(0, 100_000)
        assert await sqlite.dead_letters(None, "", 1000) == await memory.dead_letters(
            None, "", 1000
        )
        counts, wanted_counts = await sqlite.counts(), await memory.counts()
        counts.pop("workers"), wanted_counts.pop("workers")  # SQLite clears the dead ones away
        assert counts == wanted_counts
        assert await sqlite.look() == await memory.look()


class _Seqs:
    """Numbers of both stores, which must stand in the same order."""

    def __init__(self) -> None:
        self.pairs: set[tuple[int, int]] = set()

    def add(self, was: Any, should: Any) -> None:
        self.pairs.update(zip(was, should, strict=True))

    def check(self) -> None:
        ordered = sorted(self.pairs)
        assert len({one for one, _ in ordered}) == len(ordered)
        assert [two for _, two in ordered] == sorted(two for _, two in ordered)


def _no_seq(step: StepRecord) -> StepRecord:
    value = None if step.kind == "retry" else step.value  # a retry mark holds a seq
    return replace(step, seq=min(step.seq, 1), value=value)


def _without_seq(one: Any) -> Any:
    if isinstance(one, Applied):
        return [_without_seq(one.outcome), _without_seq(one.wakes)]
    if isinstance(one, tuple):
        return [_without_seq(part) for part in one]
    if hasattr(one, "__struct_fields__"):
        fields = zip(one.__struct_fields__, astuple(one), strict=True)
        return [type(one), *(_without_seq(value) for name, value in fields if name != "seq")]
    return one


class Ops:
    """Random ops that mostly make sense, judged by the rows in memory."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.random = pair.random
        self.tables = pair.memory.tables
        self.made = 0
        self.run_ids = [f"run-{nth}" for nth in range(6)]

    def __call__(self) -> ops.Op[Any]:
        self.made += 1
        if self.random.random() < 0.1:
            self.run_ids = [*self.run_ids[-9:], f"run-{self.made}"]
        if not any(one.status == "running" for one in self.tables.runs_by_id.values()):
            return self.random.choice([self.start, self.start, self.claim])()
        makers: list[tuple[int, Callable[[], ops.Op[Any]]]] = [
            (14, self.start),
            (4, self.signal_with_start),
            (14, self.claim),
            (4, self.beat),
            (4, self.recover),
            (3, self.release),
            (24, self.record_step),
            (30, self.suspend),
            (12, self.record_send),
            (8, self.record_cancel),
            (6, self.reject),
            (6, self.finish),
            (5, self.continue_as),
            (2, self.park),
            (10, self.fire),
            (3, lambda: ops.Cancel(run_id=self.any_run(), reason="enough")),
            (1, lambda: ops.Terminate(run_id=self.any_run(), reason="stop \x00 'now'")),
            (4, lambda: ops.Pause(run_id=self.any_run())),
            (6, lambda: ops.Resume(run_id=self.any_run())),
            (10, self.retry),
            (36, self.send),
            (4, self.resend),
            (2, self.declare),
            (5, self.prune),
        ]
        weights = [weight for weight, _ in makers]
        return self.random.choices([make for _, make in makers], weights)[0]()

    def any_run(self) -> str:
        """Mostly a run that waits, for then something can happen to it."""
        waiting = [one for one, rows in self.tables.watchers_by_run.items() if rows]
        if waiting and self.random.random() < 0.6:
            return self.random.choice(waiting)
        return self.random.choice([*self.run_ids, "nobody"])

    def turn(self) -> dict[str, Any]:
        """Fence and revision as the owner of some running run knows them; sometimes stale."""
        running = [one for one in self.tables.runs_by_id.values() if one.status == "running"]
        if not running or self.random.random() < 0.05:
            return {"run_id": self.any_run(), "fence": 1, "revision": 0}
        run = self.random.choice(running)
        stale = self.random.random() < 0.05
        return {"run_id": run.run_id, "fence": run.fence, "revision": run.revision - stale}

    def steps(self, run_id: str) -> tuple[ops.StepDone, ...]:
        run = self.tables.run(run_id)
        if run is None:
            return ()
        retrying = [
            one
            for one in self.tables.steps(run_id, run.generation)
            if one.state == "retrying"
            and not any(w.path == one.path for w in self.tables.watchers(run_id))
        ]
        done = []
        for nth in range(self.random.choice([0, 1, 1, 2])):
            again = retrying.pop() if retrying else None
            state = self.random.choice(["done", "done", "done", "failed", "retrying"])
            done.append(
                ops.StepDone(
                    path=again.path if again else f"step#{self.made}.{nth}",
                    name="step",
                    state=state,
                    value='{"é": "\\u0000 \\" ☃"}' if state == "done" else None,
                    error='{"kind":"step","type":"E","message":"m"}' if state != "done" else None,
                    attempt=again.attempt + 1 if again else 1,
                    started_at=self.pair.clock.us,
                    recorded_at=self.pair.clock.us,
                    delay_us=1000,
                )
            )
        return tuple(done)

    def start(self) -> ops.StartRun:
        random = self.random
        owned = random.random() < 0.6
        return ops.StartRun(
            run_id=self.random.choice(self.run_ids),
            workflow=random.choice(["a", "b"]),
            version=1,
            input=random.choice(["1", "2"]),
            key=random.choice([None, None, "k1", "k2"]),
            tags=random.choice([None, '{"team":"x"}']),
            entity_type=random.choice([None, "order"]),
            entity_id="42",
            delay_us=random.choice([None, None, 5000]),
            parent_run_id=random.choice([None, None, *self.run_ids]),
            owner=random.choice(["W", "W", "V"]) if owned else None,
            fence=random.getrandbits(63) if owned else 0,
        )

    def signal_with_start(self) -> ops.SignalWithStart:
        start = self.start()
        return ops.SignalWithStart(start=start, signal=replace(self.send(), run_id=start.run_id))

    def claim(self) -> ops.ClaimRuns:
        worker = self.random.choice(["W", "W", "W", "V"])
        known = self.random.choice([(("a", 1), ("b", 1)), (("a", 1),), (("b", 2),)])
        return ops.ClaimRuns(
            worker_id=worker, fence=self.random.getrandbits(63), limit=3, workflows=known
        )

    def beat(self) -> ops.Beat:
        return ops.Beat(worker_id="V", lease_us=3000, stopping=self.random.random() < 0.2)

    def recover(self) -> ops.Recover:
        return ops.Recover(limit=2, suspects=tuple(self.random.sample(self.run_ids, 2)))

    def release(self) -> ops.Release:
        return ops.Release(**self.turn())

    def record_step(self) -> ops.RecordStep:
        turn = self.turn()
        return ops.RecordStep(**turn, steps=self.steps(turn["run_id"]), closed=self.closed(turn))

    def closed(self, turn: dict[str, Any]) -> tuple[str, ...]:
        run = self.tables.run(turn["run_id"])
        if run is None or self.random.random() < 0.9:
            return ()
        steps = self.tables.steps(run.run_id, run.generation)
        return tuple(one.path for one in steps if one.wait is not None)[-1:]

    def conditions(self) -> tuple[Condition, ...]:
        random = self.random
        many = [
            Condition("signal", "yes"),
            Condition("signal", "yes"),
            Condition("signal", "no"),
            Condition("run", random.choice([*self.run_ids, "nobody"])),
            Condition("timer", delay_us=random.choice([0, 2000, 9000])),
        ]
        return tuple(random.sample(many, random.choice([1, 1, 2, 3])))

    def suspend(self) -> ops.Suspend:
        turn = self.turn()
        waits = [
            ops.Wait(path=f"wait#{self.made}.{nth}", kind="wait", name="w", on=self.conditions())
            for nth in range(self.random.choice([0, 1, 1, 1, 2]))
        ]
        run = self.tables.run(turn["run_id"])
        if run is not None and self.random.random() < 0.5:
            steps = self.tables.steps(run.run_id, run.generation)
            again = [one for one in steps if one.wait is not None and one.superseded == 0][-1:]
            waits += [_reopened(one) for one in again]
        return ops.Suspend(
            **turn,
            steps=self.steps(turn["run_id"]),
            closed=self.closed(turn),
            waits=tuple(waits),
            park=self.random.random() < 0.8,
            release=self.random.random() < 0.3,
        )

    def record_send(self) -> ops.RecordSend:
        send = self.random.choice([None, self.send(), self.start()])
        return ops.RecordSend(
            **self.turn(),
            path=f"send#{self.made}",
            kind="set" if send is None else "signal",
            name="s",
            send=send,
            value='"published"',
        )

    def record_cancel(self) -> ops.Op[Any]:
        asked = [
            one
            for one in self.tables.runs_by_id.values()
            if one.status == "running"
            and one.cancel_requested
            and self.tables.step(one.run_id, one.generation, CANCEL_PATH) is None
        ]
        if not asked:
            return self.suspend()
        run = self.random.choice(asked)
        paths = [one.path for one in self.tables.steps(run.run_id, run.generation) if one.wait]
        return ops.RecordCancel(
            run_id=run.run_id, fence=run.fence, revision=run.revision, paths=tuple(paths[-2:])
        )

    def reject(self) -> ops.Op[Any]:
        turn = self.turn()
        run = self.tables.run(turn["run_id"])
        steps = [] if run is None else self.tables.steps(run.run_id, run.generation)
        done = [one for one in steps if one.wait and one.state == "done"]
        if not done:
            return self.record_step()
        step = self.random.choice(done)
        again = _reopened(step)
        return ops.RejectSignal(**turn, path=step.path, wait=again, reason="does not fit")

    def finish(self) -> ops.Finish:
        turn = self.turn()
        if self.random.random() < 0.5:
            return ops.Finish(**turn, status="completed", output='{"done":1}')
        run = self.tables.run(turn["run_id"])
        steps = [] if run is None else self.tables.steps(run.run_id, run.generation)
        failed = [one.path for one in steps if one.state == "failed"]
        path = f',"path":"{failed[-1]}"' if failed else ""
        error = '{"kind":"workflow","type":"E","message":"m"' + path + "}"
        return ops.Finish(**turn, status="failed", error=error)

    def continue_as(self) -> ops.ContinueAs:
        turn = self.turn()
        steps = self.steps(turn["run_id"])
        return ops.ContinueAs(**turn, steps=steps, workflow="b", version=1, input="3")

    def park(self) -> ops.Park:
        return ops.Park(**self.turn(), reason="other code")

    def fire(self) -> ops.FireTimers:
        return ops.FireTimers(limit=self.random.choice([1, 10]))

    def send(self) -> ops.SendSignal:
        random = self.random
        return ops.SendSignal(
            signal_id=self.pair.ids.ulid(),
            run_id=self.any_run(),
            name=random.choice(["yes", "no"]),
            payload=random.choice(['"x"', '"y"', '{"big": 9223372036854775807}']),
            policy=random.choice([None, "latest", "first", "all"]),
            on_end=random.choice(["discard", "dead_letter"]),
            ttl_us=random.choice([None, None, 4000]),
            path=random.choice([None, None, None, "wait#3.0"]),
            key=random.choice([None, None, "k1"]),
            buffer=random.random() < 0.9,
        )

    def retry(self) -> ops.Retry:
        failed = [one.run_id for one in self.tables.runs_by_id.values() if one.status == "failed"]
        return ops.Retry(run_id=self.random.choice(failed or self.run_ids))

    def resend(self) -> ops.Op[Any]:
        if not self.tables.letters:
            return self.send()
        letter = self.random.choice(sorted(self.tables.letters))
        to = self.random.choice([None, *self.run_ids])
        return ops.ResendDeadLetter(
            dead_letter_id=letter, signal_id=self.pair.ids.ulid(), run_id=to
        )

    def declare(self) -> ops.Declare:
        entry = '{"yes":{"schema":null,"buffer":"all","ttl_us":null,"on_end":"discard"}}'
        line = WorkflowRecord(
            name="b",
            version=1,
            input_schema="{}",
            output_schema="{}",
            signals=self.random.choice(["{}", entry]),
            strict_signals=False,
        )
        return ops.Declare(workflows=(line,))

    def prune(self) -> ops.Prune:
        return ops.Prune(finished_before=self.pair.clock.us - 5_000, limit=2)


def _reopened(step: StepRecord) -> ops.Wait:
    spec = msgspec.json.decode(step.wait or "", type=WaitSpec)
    return ops.Wait(path=step.path, kind="wait", name="w", on=spec.on, known=True)


@pytest.mark.parametrize(
    ("processes", "prefetching"),
    [(1, True), (2, True), (2, False)],
    ids=["remembered", "two processes", "row by row"],
)
@pytest.mark.parametrize("seed", range(10))
async def test_batches_do_what_single_ops_do_in_memory(
    tmp_path: Path,
    seed: int,
    processes: int,
    prefetching: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Writer, "prefetching", prefetching)
    pair = Pair(str(tmp_path / "one.db"), seed)
    await pair.open(processes)
    make = Ops(pair)
    await pair.sqlite.apply(pair.ids.ulid(), [ops.Beat(worker_id="W", lease_us=10**12)])
    await pair.memory.apply(pair.ids.ulid(), [ops.Beat(worker_id="W", lease_us=10**12)])
    for _ in range(20):
        await pair.batch(make, pair.random.choice([1, 2, 5, 20, 40]))
        pair.clock.us += pair.random.choice([0, 1000, 3000])
    await pair.assert_same_rows()
    await pair.close()
