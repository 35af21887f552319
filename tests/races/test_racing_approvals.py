"""Approvals between processes: one decides, the others are told, and what was asked is closed once."""

from collections import Counter

from racing import Race, assert_both

from perdure.model import ops
from perdure.model.outcomes import Advanced, Decided, Delivered, Duplicate, Fired, Moved, Refusal
from perdure.testing.conformance.words import approval, signal, timer, wait


def facts(race: Race, run_id: str) -> list[str]:
    """What was told of the approvals of a run, in order."""
    found = race.a.do(race.a.store.events(0, 1000, entity=("run", run_id)))
    return [one.type.removeprefix("hitl.") for one in found if one.type.startswith("hitl.")]


def test_two_deciders(race: Race) -> None:
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", approval()))
        answers = race.meet(
            race.a.d.decide_op(run_id, "approve", by="anna"),
            race.b.d.decide_op(run_id, "reject", by="bob"),
        )
        (refused,) = [one for one in answers if isinstance(one, Refusal)]
        assert refused.code == "approval_closed"
        first = isinstance(answers[0], Decided)
        assert ('"anna"' if first else '"bob"') in race.step(run_id).value
        assert facts(race, run_id) == ["requested", "decided"]
        assert race.run(run_id).revision == 1
        seen[first] += 1
    assert_both(seen)


def test_two_that_decide_with_one_key(race: Race) -> None:
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", approval()))
        answers = race.meet(
            race.a.d.decide_op(run_id, key="k"), race.b.d.decide_op(run_id, key="k")
        )
        (first,) = [one for one in answers if isinstance(one, Decided)]
        assert [one.of for one in answers if isinstance(one, Duplicate)] == [first]


def test_a_decision_against_the_deadline(race: Race) -> None:
    """At the deadline both are right; one of them closes it."""
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", approval(), timer("1s")))
        race.clock.set(race.clock.now() + 1_000_000)
        fired, answer = race.meet(ops.FireTimers(limit=10), race.b.d.decide_op(run_id))
        won = isinstance(answer, Decided)
        step = race.step(run_id)
        assert (fired.count, step.winner) == ((0, 0) if won else (1, 1))
        assert facts(race, run_id) == ["requested", "decided" if won else "timed_out"]
        seen[step.winner] += 1
    assert_both(seen)


def test_a_decision_against_a_reminder(race: Race) -> None:
    """It is told or it is not, and never of what is closed."""
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", approval(every="1s")))
        race.clock.set(race.clock.now() + 1_000_000)
        fired, answer = race.meet(ops.FireTimers(limit=10), race.b.d.decide_op(run_id))
        assert isinstance(answer, Decided)
        reminded = ["reminded"] if fired.count else []
        assert facts(race, run_id) == ["requested", *reminded, "decided"]
        assert race.a.apply(ops.FireTimers(limit=10)) == [Fired(0, None)]
        seen[fired.count] += 1
    assert_both(seen)


def test_two_that_tell_the_same_reminder(race: Race) -> None:
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", approval(remind=["1s", "2s"], expires="3s")))
        for expected in (["reminded"], ["reminded"] * 2, ["reminded"] * 2 + ["expired"]):
            race.clock.set(race.clock.now() + 1_000_000)
            fired = race.meet(ops.FireTimers(limit=10), ops.FireTimers(limit=10))
            assert sum(one.count for one in fired) == 1
            assert facts(race, run_id) == ["requested", *expected]
        race.a.apply(ops.Terminate(run_id=run_id))


def test_a_decision_against_a_signal(race: Race) -> None:
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", approval(remind=["1h"]), signal("go")))
        sent, answer = race.meet(race.a.d.signal_op(run_id, "go"), race.b.d.decide_op(run_id))
        winner = race.step(run_id).winner
        assert isinstance(sent, Delivered) is (winner == 1)
        assert isinstance(answer, Decided) is (winner == 0)
        assert facts(race, run_id) == ["requested", "withdrawn" if winner else "decided"]
        seen[winner] += 1
    assert_both(seen)


def test_a_decision_against_a_pause(race: Race) -> None:
    """It was decided before the pause, or it is refused and the approval is kept for later."""
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", approval()))
        _, answer = race.meet(ops.Pause(run_id=run_id), race.b.d.decide_op(run_id))
        won = isinstance(answer, Decided)
        if not won:
            assert isinstance(answer, Refusal) and answer.code == "paused"
            race.a.apply(ops.Resume(run_id=run_id))
            (answer,) = race.b.apply(race.b.d.decide_op(run_id))
            assert isinstance(answer, Decided)
        assert facts(race, run_id) == ["requested", "decided"]
        seen[won] += 1
    assert_both(seen)


def test_a_decision_against_a_terminate(race: Race) -> None:
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", approval(remind=["1h"])))
        _, answer = race.meet(ops.Terminate(run_id=run_id), race.b.d.decide_op(run_id))
        won = isinstance(answer, Decided)
        assert facts(race, run_id) == ["requested", "decided" if won else "withdrawn"]
        assert race.run(run_id).status == "terminated"
        seen[won] += 1
    assert_both(seen)


def test_a_decision_against_the_turn_that_leaves_its_wait(race: Race) -> None:
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        race.a.apply(race.turn(ops.Suspend, run_id, waits=(wait("w", approval()),), park=False))
        leave = race.turn(ops.RecordStep, run_id, closed=("w",))
        _, answer = race.meet(leave, race.b.d.decide_op(run_id))
        won = isinstance(answer, Decided)
        assert facts(race, run_id) == ["requested", "decided" if won else "withdrawn"]
        assert race.step(run_id).state == "abandoned"
        seen[won] += 1
    assert_both(seen)


def test_a_decision_against_the_next_generation(race: Race) -> None:
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        race.a.apply(race.turn(ops.Suspend, run_id, waits=(wait("w", approval()),), park=False))
        renew = race.turn(ops.ContinueAs, run_id, workflow="orders", version=1, input="1")
        renewed, answer = race.meet(renew, race.b.d.decide_op(run_id))
        won = isinstance(answer, Decided)
        assert isinstance(renewed, Moved if won else Advanced)
        assert facts(race, run_id) == ["requested", "decided" if won else "withdrawn"]
        seen[won] += 1
    assert_both(seen)
