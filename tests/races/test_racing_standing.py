"""What stands over a run, and debounced starts, between processes: whoever comes first, each happens once."""

from collections import Counter
from typing import Any

from racing import Race, assert_both

from perdure.model import ops
from perdure.model.outcomes import Advanced, Emitted, Fired, Started
from perdure.testing.conformance.words import SECOND, WORKFLOW

OFF = '[["order.off","order/1"]]'


def call(race: Race, number: int, input: str) -> ops.StartRun:
    """A debounced start; the key is that of the round."""
    return ops.StartRun(
        run_id=f"run-{number}-{input}",
        fresh=True,
        workflow=WORKFLOW,
        version=1,
        input=input,
        key=f"k{number}",
        debounce_us=5 * SECOND,
        debounce_max_us=50 * SECOND,
    )


def claim(race: Race) -> ops.ClaimRuns:
    return ops.ClaimRuns(
        worker_id=race.b.worker_id, fence=race.b.d.fence(), limit=10, workflows=((WORKFLOW, 1),)
    )


def advance(race: Race, seconds: int) -> None:
    race.clock.set(race.clock.now() + seconds * SECOND)


def emit(race: Race) -> ops.Emit:
    return race.a.d.emit_op("order.off", entity="order/1")


def fulfil(run_id: str, race: Race, **fields: Any) -> None:
    """A run that the second process holds, watched over."""
    race.b.do(race.b.d.start(run_id, owner=race.b.worker_id, **fields))


def test_a_call_against_the_claim_of_its_run(race: Race) -> None:
    """Either the input was replaced before the claim, or another run is made."""
    seen: Counter[bool] = Counter()
    for number in range(race.rounds // 2):
        race.a.apply(call(race, number, "1"))
        advance(race, 5)
        started, claimed = race.meet(call(race, number, "2"), claim(race))
        assert isinstance(started, Started)
        ran = {one.run_id: one.input for one in claimed.runs}
        if started.created:
            assert ran == {f"run-{number}-1": "1"}
            assert started.run.run_id == f"run-{number}-2"
        else:
            assert ran == {}
            assert race.run(f"run-{number}-1").input == "2"
        advance(race, 5)
        race.b.apply(claim(race))
        inputs = [race.run(f"run-{number}-1").input]
        inputs += [race.run(f"run-{number}-2").input] if started.created else []
        assert inputs == (["1", "2"] if started.created else ["2"])
        seen[started.created] += 1
    assert_both(seen)


def test_two_first_calls(race: Race) -> None:
    """They make one run, with the input of the one that came second."""
    seen: Counter[bool] = Counter()
    for number in range(race.rounds // 2):
        one, two = race.meet(call(race, number, "1"), call(race, number, "2"))
        assert sorted((one.created, two.created)) == [False, True]
        assert one.run.run_id == two.run.run_id
        assert race.run(one.run.run_id).input == ("2" if one.created else "1")
        seen[one.created] += 1
    assert_both(seen)


def test_two_calls_after_the_run_has_begun(race: Race) -> None:
    seen: Counter[bool] = Counter()
    for number in range(race.rounds // 2):
        race.a.apply(call(race, number, "0"))
        advance(race, 5)
        race.b.apply(claim(race))
        one, two = race.meet(call(race, number, "1"), call(race, number, "2"))
        assert sorted((one.created, two.created)) == [False, True]
        assert race.run(f"run-{number}-0").input == "0"
        seen[one.created] += 1
    assert_both(seen)


def test_a_deadline_against_the_end_of_its_run(race: Race) -> None:
    """The end is recorded, or the owner is told of the cancel and nothing is."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds // 2):
        run_id = f"r{number}"
        fulfil(run_id, race, deadline_us=SECOND)
        advance(race, 1)
        run = race.run(run_id)
        end = ops.Finish(run_id=run_id, fence=run.fence, revision=0, status="completed")
        fired, ended = race.meet(ops.FireTimers(limit=10), end)
        assert isinstance(fired, Fired)
        after = race.run(run_id)
        won = isinstance(ended, Advanced)
        assert (after.status, after.cancel_requested) == (
            ("completed", False) if won else ("running", True)
        )
        assert fired.count == (0 if won else 1)
        seen[after.status] += 1
        race.a.apply(ops.Terminate(run_id=run_id))
    assert_both(seen)


def test_two_processes_fire_one_deadline(race: Race) -> None:
    seen: Counter[int] = Counter()
    for number in range(race.rounds // 2):
        fulfil(f"r{number}", race, deadline_us=SECOND)
        advance(race, 1)
        one, two = race.meet(ops.FireTimers(limit=10), ops.FireTimers(limit=10))
        assert sorted((one.count, two.count)) == [0, 1]
        after = race.run(f"r{number}")
        assert (after.cancel_requested, after.reason, after.revision) == (True, "deadline", 1)
        seen[one.count] += 1
    assert_both(seen)


def test_an_event_against_the_start_of_what_it_cancels(race: Race) -> None:
    """It cancels the run or was there before it; no run is left that has missed a later event."""
    seen: Counter[bool] = Counter()
    for number in range(race.rounds // 2):
        run_id = f"r{number}"
        start = race.b.d.start_op(run_id, owner=None, cancel_on=OFF)
        (emitted,), _ = race.meet(emit(race), start)
        assert isinstance(emitted, Emitted)
        run = race.run(run_id)
        assert run.cancel_requested == (emitted.position > run.position)
        assert emitted.resumed == int(run.cancel_requested)
        seen[run.cancel_requested] += 1
        race.a.apply(ops.Terminate(run_id=run_id))
    assert_both(seen)


def test_an_event_against_a_cancel_and_a_deadline(race: Race) -> None:
    """Whoever comes first gives the reason, and the run is asked once."""
    seen: Counter[str | None] = Counter()
    for number in range(race.rounds // 2):
        run_id = f"r{number}"
        fulfil(run_id, race, cancel_on=OFF, deadline_us=SECOND)
        advance(race, 1)
        other: ops.Op[Any] = ops.Cancel(run_id=run_id, reason="by hand")
        race.meet(emit(race), other if number % 2 else ops.FireTimers(limit=10))
        run = race.run(run_id)
        assert (run.cancel_requested, run.revision) == (True, 1)
        seen["event" if (run.reason or "").startswith("order.off") else "other"] += 1
        race.a.apply(ops.Terminate(run_id=run_id))
    assert_both(seen)
