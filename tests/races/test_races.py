"""Races between two processes on one file, as two stores with a connection each: no coordinator orders them.

Each round lets two ops meet: two threads with a loop each wait at a barrier and apply at once. Whoever comes first,
there is one winner, the loser is told, and the invariants hold. Only stores that processes can share have races.
"""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from perdure.model import limits, ops
from perdure.model.ids import Ids
from perdure.model.outcomes import (
    Advanced,
    Buffered,
    Delivered,
    Duplicate,
    Emitted,
    Fenced,
    Finished,
    Moved,
    Refusal,
    Started,
    Steered,
)
from perdure.model.records import Condition, EventRecord
from perdure.store.sqlite.store import SqliteStore
from perdure.testing import VirtualClock
from perdure.testing.conformance import Driver, check_invariants
from perdure.testing.conformance.driver import everything
from perdure.testing.conformance.words import YEAR, done, run, signal, timer, wait

ROUNDS = 200


class Process:
    """A store of its own in a thread of its own: what another process would be."""

    def __init__(self, path: Path, clock: VirtualClock, worker_id: str, seed: int) -> None:
        self.worker_id = worker_id
        self.store = SqliteStore(
            str(path), clock=clock, ids=Ids(clock, random.Random(seed)), synchronous="NORMAL"
        )
        self.store.worker_id = worker_id
        self.d = Driver(self.store, clock, first=seed * 100_000)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.do(self.store.open())
        self.do(self.d.beat(worker_id, lease_us=YEAR))

    def begin(self, awaited: Any) -> "Future[Any]":
        """Start something in this process; the answer comes later."""
        return asyncio.run_coroutine_threadsafe(awaited, self.loop)

    def do(self, awaited: Any) -> Any:
        return self.begin(awaited).result(timeout=30)

    def end(self) -> None:
        self.do(self.store.close())
        self.do(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Race:
    """Two processes on one file."""

    def __init__(self, path: Path) -> None:
        self.clock = VirtualClock()
        self.a = Process(path, self.clock, "worker-a", 1)
        self.b = Process(path, self.clock, "worker-b", 2)
        self._chance = random.Random(3)
        self._met = 0

    def meet(self, one: ops.Op[Any], other: ops.Op[Any]) -> tuple[Any, Any]:
        """Apply one op in each process at once; their answers in the order of the arguments.

        Now and then one after the other, so that both orders are seen however the machine is loaded.
        """
        self._met += 1
        if self._met % 20 == 0:
            return self.a.do(self.a.d.apply(one)), self.b.do(self.b.d.apply(other))
        if self._met % 20 == 10:
            second = self.b.do(self.b.d.apply(other))
            return self.a.do(self.a.d.apply(one)), second
        barrier = threading.Barrier(2)
        dice = [self._chance.random() for _ in range(2)]
        futures = [
            process.begin(_at_once(process, op, barrier, dawdle))
            for process, op, dawdle in zip((self.a, self.b), (one, other), dice, strict=True)
        ]
        first, second = (one.result(timeout=30) for one in futures)
        return first, second

    def check(self) -> None:
        for process in (self.a, self.b):
            broken = process.do(check_invariants(process.store))
            assert not broken, broken

    def end(self) -> None:
        self.a.end()
        self.b.end()


async def _at_once(
    process: Process, op: ops.Op[Any], barrier: threading.Barrier, dawdle: float
) -> Any:
    barrier.wait(timeout=30)
    # A few turns of the loop, so that now the one and now the other comes first.
    for _ in range(int(dawdle * 8)):
        await asyncio.sleep(0)
    return await process.d.apply(op)


@pytest.fixture
def race(tmp_path: Path) -> Iterator[Race]:
    race = Race(tmp_path / "shared.db")
    yield race
    race.check()
    race.end()


def turn(race: Race, kind: Callable[..., ops.Op[Any]], run_id: str, **fields: Any) -> ops.Op[Any]:
    """An op of the run's owner, made before the race begins."""
    now = race.a.do(race.a.d.run(run_id))
    return kind(run_id=run_id, fence=now.fence, revision=now.revision, **fields)


def test_a_signal_against_the_suspend_that_waits_for_it(race: Race) -> None:
    """Early or in time, the wait gets it: it is never parked beside it."""
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        run_id = f"r{number}"
        race.a.do(race.a.d.start(run_id, owner="worker-a"))
        suspend = turn(race, ops.Suspend, run_id, waits=(wait("w", signal("go")),))
        suspended, sent = race.meet(suspend, race.b.d.signal_op(run_id, "go", str(number)))
        step = race.a.do(race.a.d.step(run_id, "w"))
        assert (step.state, step.value, step.winner) == ("done", str(number), 0)
        assert race.b.do(race.b.d.payloads(run_id)) == []
        early = isinstance(sent, Buffered)
        assert early or isinstance(sent, Delivered)
        assert suspended.parked is not early
        assert race.b.do(race.b.d.status(run_id)) == ("running" if early else "ready")
        seen[type(sent).__name__] += 1
    assert len(seen) == 2, f"only one side ever came first: {seen}"


def test_a_deadline_against_the_signal(race: Race) -> None:
    """At the deadline both are right; one of them wins and the other changes nothing."""
    seen: Counter[int] = Counter()
    for number in range(ROUNDS):
        run_id = f"r{number}"
        race.a.do(race.a.d.start_waiting(run_id, signal("go"), timer("1s"), owner="worker-a"))
        race.clock.set(race.clock.now() + 1_000_000)
        fired, sent = race.meet(
            ops.FireTimers(limit=10), race.b.d.signal_op(run_id, "go", str(number))
        )
        step = race.a.do(race.a.d.step(run_id, "w"))
        assert step.state == "done"
        won = isinstance(sent, Delivered)
        assert (fired.count, step.winner) == ((0, 0) if won else (1, 1))
        assert race.a.do(race.a.d.payloads(run_id)) == ([] if won else [str(number)])
        # One decision, one revision: nobody was woken twice.
        assert race.a.do(race.a.d.run(run_id)).revision == 1
        seen[step.winner] += 1
    assert len(seen) == 2, f"only one side ever came first: {seen}"


def test_a_claim_against_a_claim(race: Race) -> None:
    """Each run is claimed once."""
    for number in range(ROUNDS // 4):
        run_ids = {f"r{number}-{at}" for at in range(6)}
        for run_id in run_ids:
            race.a.do(race.a.d.start(run_id, owner=None))
        first, second = race.meet(
            *(
                ops.ClaimRuns(worker_id=one, fence=fence, limit=4, workflows=(("orders", 1),))
                for one, fence in (("worker-a", 2 * number + 1), ("worker-b", 2 * number + 2))
            )
        )
        claimed = [one.run_id for one in (*first.runs, *second.runs)]
        assert sorted(claimed) == sorted(run_ids)
        owners = {one.run_id: one.owner for one in (*first.runs, *second.runs)}
        for run_id in run_ids:
            assert race.a.do(race.a.d.run(run_id)).owner == owners[run_id]


def test_a_finish_against_a_cancel(race: Race) -> None:
    """The run ends as completed, or it learns of the cancel; never both, never neither."""
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        run_id = f"r{number}"
        race.a.do(race.a.d.start(run_id, owner="worker-a"))
        finish = turn(race, ops.Finish, run_id, status="completed", output="7")
        finished, cancelled = race.meet(finish, ops.Cancel(run_id=run_id))
        now = race.a.do(race.a.d.run(run_id))
        if isinstance(finished, Advanced):
            assert cancelled == Finished(run_id, "completed")
            assert (now.status, now.cancel_requested) == ("completed", False)
        else:
            assert isinstance(finished, Moved)
            assert cancelled == Steered(run_id, "running", True)
            assert (now.status, now.cancel_requested) == ("running", True)
        seen[type(finished).__name__] += 1
    assert len(seen) == 2, f"only one side ever came first: {seen}"


@pytest.mark.parametrize("waits", [True, False])
def test_two_senders_of_a_signal_of_which_the_first_counts(race: Race, waits: bool) -> None:
    winners: Counter[bool] = Counter()
    for number in range(ROUNDS):
        run_id = f"r{number}"
        race.a.do(race.a.d.start(run_id, owner="worker-a"))
        if waits:
            race.a.do(race.a.d.suspend(run_id, wait("w", signal("go"))))
        outcomes = race.meet(
            race.a.d.signal_op(run_id, "go", '"a"', policy="first", signal_id=f"a{number}"),
            race.b.d.signal_op(run_id, "go", '"b"', policy="first", signal_id=f"b{number}"),
        )
        taken = [one for one in outcomes if isinstance(one, Delivered | Buffered)]
        refused = [one for one in outcomes if isinstance(one, Refusal)]
        assert len(taken) == 1 and [one.code for one in refused] == ["taken"]
        kept = race.a.do(race.a.d.payloads(run_id))
        value = race.a.do(race.a.d.step(run_id, "w")).value if waits else kept[0]
        assert len(kept) == (0 if waits else 1)
        assert value == ('"a"' if taken[0] is outcomes[0] else '"b"')
        winners[taken[0] is outcomes[0]] += 1
    assert len(winners) == 2, f"only one side ever came first: {winners}"


def test_two_senders_with_one_key_have_one_effect(race: Race) -> None:
    for number in range(ROUNDS):
        run_id = f"r{number}"
        race.a.do(race.a.d.start(run_id, owner="worker-a"))
        outcomes = race.meet(
            race.a.d.signal_op(run_id, "go", key="k", policy="all", signal_id=f"a{number}"),
            race.b.d.signal_op(run_id, "go", key="k", policy="all", signal_id=f"b{number}"),
        )
        (first,) = [one for one in outcomes if isinstance(one, Buffered)]
        (again,) = [one for one in outcomes if isinstance(one, Duplicate)]
        assert again == Duplicate(first)
        assert len(race.b.do(race.b.d.payloads(run_id))) == 1


def test_two_starts_of_one_id_make_one_run(race: Race) -> None:
    for number in range(ROUNDS):
        starts = [
            process.d.start_op(f"r{number}", owner=process.worker_id)
            for process in (race.a, race.b)
        ]
        outcomes = race.meet(*starts)
        assert all(isinstance(one, Started) for one in outcomes)
        assert sorted(one.created for one in outcomes) == [False, True]
        owner = race.a.do(race.a.d.run(f"r{number}")).owner
        assert {one.run.owner for one in outcomes} == {owner}


def test_the_last_of_two_deliveries_wakes_a_run_that_waits_in_two_branches(race: Race) -> None:
    for number in range(ROUNDS):
        run_id = f"r{number}"
        race.a.do(race.a.d.start(run_id, owner="worker-a"))
        waits = (wait("x", signal("go")), wait("y", signal("stop")))
        race.a.do(race.a.d.suspend(run_id, *waits))
        outcomes = race.meet(
            race.a.d.signal_op(run_id, "go", '"a"', signal_id=f"a{number}"),
            race.b.d.signal_op(run_id, "stop", '"b"', signal_id=f"b{number}"),
        )
        assert all(isinstance(one, Delivered) for one in outcomes)
        now = race.a.do(race.a.d.run(run_id))
        # Its owner goes on at once if it came first at home; from elsewhere the run is made ready.
        assert now.revision == 2 and now.status in ("ready", "running")
        assert [race.a.do(race.a.d.step(run_id, path)).value for path in "xy"] == ['"a"', '"b"']


def test_a_reclaim_against_the_step_of_the_former_owner(race: Race) -> None:
    """The owner was taken for dead: its result counts if it came first, and is refused if not."""
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        run_id = f"r{number}"
        race.a.do(race.a.d.start(run_id, owner="ghost"))
        recorded, recovered = race.meet(
            turn(race, ops.RecordStep, run_id, steps=(done("s"),)), ops.Recover(limit=10)
        )
        assert recovered.count == 1
        history = race.a.do(race.a.store.history(run_id))
        if isinstance(recorded, Advanced):
            assert [one.path for one in history] == ["s"]
        else:
            assert recorded == Fenced(run_id, "ready")
            assert history == []
        seen[type(recorded).__name__] += 1
    assert len(seen) == 2, f"only one side ever came first: {seen}"


def test_the_end_of_a_run_against_the_wait_for_it(race: Race) -> None:
    seen: Counter[bool] = Counter()
    for number in range(ROUNDS):
        target, waiter = f"t{number}", f"w{number}"
        race.a.do(race.a.d.start(target, owner="worker-a"))
        race.b.do(race.b.d.start(waiter, owner="worker-b"))
        _, suspended = race.meet(
            turn(race, ops.Finish, target, status="completed", output="7"),
            turn(race, ops.Suspend, waiter, waits=(wait("w", run(target)),)),
        )
        step = race.a.do(race.a.d.step(waiter, "w"))
        assert (step.state, step.value) == ("done", "7")
        seen[suspended.parked] += 1
    assert len(seen) == 2, f"only one side ever came first: {seen}"


def test_two_writers_of_facts_and_a_reader_that_follows(race: Race) -> None:
    """No late insert: a reader that moves its cursor to the newest position has missed nothing before it."""
    seen: list[EventRecord] = []
    stop = threading.Event()

    async def write(process: Process, name: str) -> None:
        for number in range(ROUNDS):
            await process.d.apply(process.d.start_op(f"{name}{number}", owner=process.worker_id))

    async def follow(process: Process) -> None:
        while True:
            last = stop.is_set()
            after = seen[-1].position if seen else 0
            seen.extend(await process.store.events(after, 7))
            if last and len(seen) == 2 * ROUNDS:
                return
            await asyncio.sleep(0)

    writers = [race.a.begin(write(race.a, "a")), race.b.begin(write(race.b, "b"))]
    reader = race.a.begin(follow(race.a))
    for one in writers:
        one.result(timeout=60)
    stop.set()
    reader.result(timeout=30)
    assert [one.position for one in seen] == list(range(1, 2 * ROUNDS + 1))
    assert seen == race.b.do(everything(race.b.store.events))


# --- topics, queues, consumers ---


def emit(number: int, *, topic: str = "tick", process: str = "b") -> ops.Emit:
    """One event, with an id of its own."""
    new = ops.NewEvent(event_id=f"{process}-{topic}-{number}", type=topic, payload=str(number))
    return ops.Emit(events=(new,))


def topic(name: str = "tick") -> Condition:
    return Condition("topic", name)


def queue(name: str) -> Condition:
    return Condition("queue", name)


def test_an_event_against_the_wait_that_opens_for_it(race: Race) -> None:
    """Early or in time, the wait gets it."""
    seen: Counter[bool] = Counter()
    for number in range(ROUNDS):
        run_id = f"r{number}"
        race.a.do(race.a.d.start(run_id, owner="worker-a"))
        suspend = turn(race, ops.Suspend, run_id, waits=(wait("w", topic()),))
        suspended, (told,) = race.meet(suspend, emit(number))
        step = race.a.do(race.a.d.step(run_id, "w"))
        assert (step.state, step.value, step.winner) == ("done", str(number), 0)
        assert told.resumed == int(suspended.parked)
        seen[suspended.parked] += 1
    assert len(seen) == 2, f"only one side ever came first: {seen}"


def test_an_event_against_the_deadline(race: Race) -> None:
    """At the deadline both are right; one of them wins and the other changes nothing."""
    seen: Counter[int] = Counter()
    for number in range(ROUNDS):
        run_id = f"r{number}"
        race.a.do(race.a.d.start_waiting(run_id, topic(), timer("1s"), owner="worker-a"))
        race.clock.set(race.clock.now() + 1_000_000)
        fired, (told,) = race.meet(ops.FireTimers(limit=10), emit(number))
        step = race.a.do(race.a.d.step(run_id, "w"))
        assert step.state == "done"
        assert (fired.count, told.resumed) == ((0, 1) if step.winner == 0 else (1, 0))
        assert race.a.do(race.a.d.run(run_id)).revision == 1
        seen[step.winner] += 1
    assert len(seen) == 2, f"only one side ever came first: {seen}"


def test_an_item_against_two_takers(race: Race) -> None:
    """One of them has it, whoever comes first, and the other waits on."""
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        race.a.do(race.a.d.start(f"a{number}", owner="worker-a"))
        race.b.do(race.b.d.start(f"b{number}", owner="worker-b"))
        race.b.do(race.b.d.apply(ops.Put(item_id=f"i{number}", queue=f"q{number}", payload="1")))
        takes = [
            turn(race, ops.Suspend, run_id, waits=(wait("w", queue(f"q{number}")),))
            for run_id in (f"a{number}", f"b{number}")
        ]
        first, second = race.meet(*takes)
        steps = [race.a.do(race.a.d.step(f"{one}{number}", "w")) for one in "ab"]
        assert sorted(one.state for one in steps) == ["done", "open"]
        assert sorted((first.parked, second.parked)) == [False, True]
        seen[steps[0].state] += 1
    assert race.a.do(race.a.store.queues()) == {}
    assert len(seen) == 2, f"only one side ever came first: {seen}"


def test_an_item_against_the_wait_that_opens_for_it(race: Race) -> None:
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        run_id = f"r{number}"
        race.a.do(race.a.d.start(run_id, owner="worker-a"))
        suspend = turn(race, ops.Suspend, run_id, waits=(wait("w", queue("q")),))
        put = ops.Put(item_id=f"i{number}", queue="q", payload=str(number))
        _, outcome = race.meet(suspend, put)
        step = race.a.do(race.a.d.step(run_id, "w"))
        assert (step.state, step.value, step.taken_id) == ("done", str(number), f"i{number}")
        seen[type(outcome).__name__] += 1
    assert race.b.do(race.b.store.queues()) == {}
    assert len(seen) == 2, f"only one side ever came first: {seen}"


def test_two_puts_against_two_that_wait(race: Race) -> None:
    """Each run has one of them, and none is kept."""
    for number in range(ROUNDS // 2):
        for name, process in (("a", race.a), ("b", race.b)):
            owner = process.worker_id
            process.do(process.d.start_waiting(f"{name}{number}", queue("q"), owner=owner))
        outcomes = race.meet(
            *(ops.Put(item_id=f"{one}{number}", queue="q", payload="1") for one in "ab")
        )
        assert {one.run_id for one in outcomes} == {f"a{number}", f"b{number}"}
    assert race.a.do(race.a.store.queues()) == {}


def test_two_emits_with_one_key_have_one_effect(race: Race) -> None:
    for number in range(ROUNDS):
        events = [
            ops.NewEvent(event_id=f"{one}{number}", type="tick", payload="1", key=f"k{number}")
            for one in "ab"
        ]
        (first,), (second,) = race.meet(*(ops.Emit(events=(one,)) for one in events))
        told = [one for one in (first, second) if isinstance(one, Emitted)]
        again = [one for one in (first, second) if isinstance(one, Duplicate)]
        assert [one.of for one in again] == told
    assert len(race.a.do(everything(race.a.store.events, type="tick"))) == ROUNDS


def test_a_fan_out_from_both_sides_resumes_each_run_once(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "resumed_per_commit_max", 2)
    for number in range(ROUNDS // 10):
        run_ids = [f"r{number}-{at}" for at in range(9)]
        for run_id in run_ids:
            race.a.do(race.a.d.start_waiting(run_id, topic(f"t{number}"), owner="worker-a"))
        (told,) = race.a.do(race.a.d.apply(emit(number, topic=f"t{number}", process="a")))
        assert (told.resumed, told.more) == (2, True)
        resumed = told.resumed
        while race.a.do(race.a.store.look()).fan_out:
            counted = race.meet(ops.FanOut(limit=2), ops.FanOut(limit=2))
            resumed += sum(one.count for one in counted)
        assert resumed == 9
        for run_id in run_ids:
            now = race.b.do(race.b.d.run(run_id))
            assert (now.revision, now.status in ("ready", "running")) == (1, True)


def test_a_fan_out_against_a_signal_never_changes_the_winner(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event was recorded before the signal was sent, and has not reached the run yet."""
    monkeypatch.setattr(limits, "resumed_per_commit_max", 1)
    for number in range(ROUNDS // 4):
        on = (topic(f"t{number}"), signal("go"))
        for name in ("x", "y"):
            race.a.do(race.a.d.start_waiting(f"{name}{number}", *on, owner="worker-a"))
        race.a.do(race.a.d.apply(emit(number, topic=f"t{number}", process="a")))
        race.meet(ops.FanOut(limit=5), race.b.d.signal_op(f"y{number}", "go"))
        for name in ("x", "y"):
            assert race.a.do(race.a.d.step(f"{name}{number}", "w")).winner == 0
        assert race.a.do(race.a.d.payloads(f"y{number}")) == ["null"]


def test_two_claims_of_one_consumer(race: Race) -> None:
    """One reads; the other is told that somebody does."""
    winners: Counter[bool] = Counter()
    for number in range(ROUNDS):
        first, second = race.meet(
            *(
                ops.ClaimConsumer(
                    name=f"c{number}", worker_id=one, fence=fence, patterns='["**"]', start=0
                )
                for one, fence in (("worker-a", 2 * number + 1), ("worker-b", 2 * number + 2))
            )
        )
        refused = [one for one in (first, second) if isinstance(one, Refusal)]
        assert [one.code for one in refused] == ["owned"]
        winners[refused[0] is second] += 1
    assert len(winners) == 2, f"only one side ever came first: {winners}"


def test_two_advances_of_one_cursor(race: Race) -> None:
    """Their effects happen once: the second finds the cursor moved, and does nothing."""
    race.a.do(race.a.d.batch(*(emit(n, process="x") for n in range(ROUNDS))))
    claim = ops.ClaimConsumer(name="c", worker_id="worker-a", fence=7, patterns='["**"]', start=0)
    race.a.do(race.a.d.apply(claim))
    for number in range(ROUNDS):
        advances = [
            ops.AdvanceCursor(
                name="c",
                fence=7,
                seen=number,
                position=number + 1,
                effects=(
                    ops.Effect(
                        op=ops.Put(item_id=f"{one}{number}", queue="q", payload="1"),
                        position=number + 1,
                    ),
                ),
            )
            for one in "ab"
        ]
        outcomes = race.meet(*advances)
        kinds = sorted(type(one).__name__ for one in outcomes)
        assert kinds == ["CursorMoved", "Moved"]
    assert race.b.do(race.b.store.queues()) == {"q": ROUNDS}
    (consumer,) = race.b.do(race.b.store.consumers())
    assert consumer.position == ROUNDS
