"""Events between processes: emitted, waited for, fanned out, recorded. None is lost, none counts twice."""

import asyncio
import threading
from collections import Counter

import pytest
from racing import Process, Race, assert_both

from perdure.model import limits, ops
from perdure.model.outcomes import Duplicate, Emitted
from perdure.model.records import EventRecord
from perdure.testing.conformance.driver import everything
from perdure.testing.conformance.words import signal, timer, topic, wait


def emit(number: int, *, type: str = "tick", process: str = "b") -> ops.Emit:
    """One event, with an id of its own."""
    new = ops.NewEvent(event_id=f"{process}-{type}-{number}", type=type, payload=str(number))
    return ops.Emit(events=(new,))


# --- emit against wait ---


@pytest.mark.parametrize("since", ["start", "ever", "now"])
def test_an_event_against_the_wait_that_opens_for_it(race: Race, since: str) -> None:
    """Early or in time, the wait gets it, once. Only one that begins now leaves alone what came before it."""
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        name = "tick" if since == "start" else f"tick{number}"
        race.start(run_id)
        suspend = race.turn(ops.Suspend, run_id, waits=(wait("w", topic(name, since=since)),))
        suspended, (told,) = race.meet(suspend, emit(number, type=name))
        step = race.step(run_id)
        if since == "now" and told.resumed == 0:
            assert (step.state, suspended.parked) == ("open", True)
            (watcher,) = race.a.do(race.a.d.watchers(run_id))
            assert watcher.after >= told.position
            seen[False] += 1
            continue
        assert (step.state, step.value, step.winner) == ("done", str(number), 0)
        assert told.resumed == int(suspended.parked)
        seen[suspended.parked] += 1
    assert_both(seen)


def test_an_event_against_two_waits_that_open_for_it(race: Race) -> None:
    """Each of them gets it, whatever the order of the three."""
    race.join("worker-c")  # the emitter
    for number in range(race.rounds):
        race.start(f"a{number}")
        race.start(f"b{number}", process=race.b)
        suspended = [
            race.turn(ops.Suspend, f"{one}{number}", waits=(wait("w", topic("tick")),))
            for one in "ab"
        ]
        first, second, (told,) = race.meet(*suspended, emit(number))
        assert [race.step(f"{one}{number}").value for one in "ab"] == [str(number)] * 2
        assert told.resumed == first.parked + second.parked


def test_an_event_of_a_run_against_the_wait_that_opens_for_it(race: Race) -> None:
    """What a run emits is a step of it, which says where the event came to stand."""
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        waiter, emitter = f"w{number}", f"e{number}"
        race.start(waiter)
        race.start(emitter, process=race.b)
        sent = {"path": "s", "name": "s", "kind": "emit", "send": emit(number)}
        suspended, answer = race.meet(
            race.turn(ops.Suspend, waiter, waits=(wait("w", topic("tick")),)),
            race.turn(ops.RecordSend, emitter, **sent),
        )
        assert race.step(waiter).value == str(number)
        (completion,) = answer.completions
        assert race.step(emitter, "s").value == completion.value
        event = race.a.do(race.a.store.event(f"b-tick-{number}"))
        assert f'"position":{event.position},' in completion.value
        seen[suspended.parked] += 1
    assert_both(seen)


def test_a_fact_against_the_wait_that_opens_for_it(race: Race) -> None:
    """The engine's own facts are waited for like any event."""
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        race.start(f"w{number}")
        started = topic("workflow.run_started", f"run/t{number}")
        suspended, _ = race.meet(
            race.turn(ops.Suspend, f"w{number}", waits=(wait("w", started),)),
            race.b.d.start_op(f"t{number}", owner="worker-b"),
        )
        fanned = race.a.do(race.a.d.fan_out_all())
        assert (race.step(f"w{number}").state, fanned) == ("done", int(suspended.parked))
        seen[suspended.parked] += 1
    assert_both(seen)


def test_an_event_against_the_deadline(race: Race) -> None:
    """At the deadline both are right; one of them wins and the other changes nothing."""
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", topic("tick"), timer("1s")))
        race.clock.set(race.clock.now() + 1_000_000)
        fired, (told,) = race.meet(ops.FireTimers(limit=10), emit(number))
        step = race.step(run_id)
        assert step.state == "done"
        assert (fired.count, told.resumed) == ((0, 1) if step.winner == 0 else (1, 0))
        assert race.run(run_id).revision == 1
        seen[step.winner] += 1
    assert_both(seen)


# --- what must not be said twice ---


def test_two_emits_with_one_key_have_one_effect(race: Race) -> None:
    for number in range(race.rounds):
        events = [
            ops.NewEvent(event_id=f"{one}{number}", type="tick", payload="1", key=f"k{number}")
            for one in "ab"
        ]
        (first,), (second,) = race.meet(*(ops.Emit(events=(one,)) for one in events))
        told = [one for one in (first, second) if isinstance(one, Emitted)]
        again = [one for one in (first, second) if isinstance(one, Duplicate)]
        assert [one.of for one in again] == told
    assert len(race.a.do(everything(race.a.store.events, type="tick"))) == race.rounds


def test_two_emits_of_one_id_have_one_effect(race: Race) -> None:
    for number in range(race.rounds):
        new = ops.NewEvent(event_id=f"e{number}", type="tick", payload="1", fresh=False)
        (first,), (second,) = race.meet(ops.Emit(events=(new,)), ops.Emit(events=(new,)))
        (told,) = [one for one in (first, second) if isinstance(one, Emitted)]
        (again,) = [one for one in (first, second) if isinstance(one, Duplicate)]
        assert again.of.position == told.position


def test_two_emits_that_say_the_same(race: Race) -> None:
    """Of a topic that drops repeats, the second is one, whoever it is."""
    for number in range(race.rounds):
        events = [
            ops.NewEvent(
                event_id=f"{one}{number}", type="state", payload=str(number), repeats="drop"
            )
            for one in "ab"
        ]
        race.meet(*(ops.Emit(events=(one,)) for one in events))
        told = [race.a.do(race.a.store.event(one.event_id)) for one in events]
        first, second = sorted(told, key=lambda one: one.position)
        assert (first.repeated, second.repeated) == (False, True)


# --- many who wait ---


def test_a_fan_out_from_both_sides_resumes_each_run_once(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "resumed_per_commit_max", 2)
    for number in range(race.rounds // 10):
        run_ids = [f"r{number}-{at}" for at in range(10 + number % 40)]
        race.start_waiting(run_ids, wait("w", topic(f"t{number}")))
        (told,) = race.a.apply(emit(number, type=f"t{number}", process="a"))[0]
        assert (told.resumed, told.more) == (2, True)
        resumed = told.resumed
        while race.a.do(race.a.store.look()).fan_out:
            counted = race.meet(ops.FanOut(limit=5), ops.FanOut(limit=5))
            resumed += sum(one.count for one in counted)
        assert resumed == len(run_ids)
        for run_id in run_ids:
            now = race.run(run_id)
            assert (now.revision, now.status in ("ready", "running")) == (1, True)


def test_a_fan_out_against_a_wait_that_opens_late(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opens a wait while an event is on its way to others takes it from the ledger, once."""
    monkeypatch.setattr(limits, "resumed_per_commit_max", 1)
    for number in range(race.rounds // 2):
        on = wait("w", topic(f"t{number}"))
        race.start(f"late{number}", process=race.b)
        race.start_waiting([f"{one}{number}" for one in "xyz"], on)
        race.a.apply(emit(number, type=f"t{number}", process="a"))
        late = race.turn(ops.Suspend, f"late{number}", waits=(on,))
        _, suspended = race.meet(ops.FanOut(limit=5), late)
        assert not suspended.parked
        race.a.do(race.a.d.fan_out_all())
        for name in ("x", "y", "z", "late"):
            assert race.step(f"{name}{number}").value == str(number)


def test_a_fan_out_against_a_signal_never_changes_the_winner(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event was recorded before the signal was sent, and has not reached the run yet."""
    monkeypatch.setattr(limits, "resumed_per_commit_max", 1)
    for number in range(race.rounds // 4):
        on = (topic(f"t{number}"), signal("go"))
        race.start_waiting([f"x{number}", f"y{number}"], wait("w", *on))
        race.a.apply(emit(number, type=f"t{number}", process="a"))
        race.meet(ops.FanOut(limit=5), race.b.d.signal_op(f"y{number}", "go"))
        for name in ("x", "y"):
            assert race.step(f"{name}{number}").winner == 0
        assert race.a.do(race.a.d.payloads(f"y{number}")) == ["null"]


def test_an_event_for_many_against_a_signal_to_one_of_them(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is recorded first wins the wait, also of a run that the event reaches only later."""
    monkeypatch.setattr(limits, "resumed_per_commit_max", 1)
    seen: Counter[int] = Counter()
    for number in range(race.rounds // 2):
        on = (topic(f"t{number}"), signal("go"))
        race.start_waiting([f"x{number}", f"y{number}"], wait("w", *on))
        (told,), _ = race.meet(
            emit(number, type=f"t{number}"),
            race.b.d.signal_op(f"y{number}", "go", signal_id=f"s{number}"),
        )
        race.a.do(race.a.d.fan_out_all())
        winner = race.step(f"y{number}").winner
        delivered = race.a.do(race.a.store.event(f"s{number}"))
        # A signal that found the wait over was buffered, and nothing is told of that.
        assert winner == (0 if delivered is None else 1)
        assert delivered is None or delivered.position < told.position
        seen[winner] += 1
    assert_both(seen)


# --- the ledger ---


def test_two_writers_of_facts_and_a_reader_that_follows(race: Race) -> None:
    """No late insert: a reader that moves its cursor to the newest position has missed nothing before it."""
    seen: list[EventRecord] = []
    stop = threading.Event()

    async def write(process: Process, name: str) -> None:
        for number in range(race.rounds):
            await process.d.apply(process.d.start_op(f"{name}{number}", owner=process.worker_id))

    async def follow(process: Process) -> None:
        while True:
            last = stop.is_set()
            after = seen[-1].position if seen else 0
            seen.extend(await process.store.events(after, 7))
            if last and len(seen) == 2 * race.rounds:
                return
            await asyncio.sleep(0)

    writers = [race.a.begin(write(race.a, "a")), race.b.begin(write(race.b, "b"))]
    reader = race.a.begin(follow(race.a))
    for one in writers:
        one.result(timeout=600)
    stop.set()
    reader.result(timeout=60)
    assert [one.position for one in seen] == list(range(1, 2 * race.rounds + 1))
    assert seen == race.b.do(everything(race.b.store.events))
