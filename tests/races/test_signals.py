"""Signals between processes: whoever comes first, the wait has one winner, the loser is told, nothing is lost."""

from collections import Counter

import pytest
from racing import Race, assert_both

from perdure.model import ops
from perdure.model.outcomes import Advanced, Buffered, Delivered, Duplicate, Moved, Refusal, Steered
from perdure.testing.conformance.words import signal, timer, wait


def test_a_signal_against_the_suspend_that_waits_for_it(race: Race) -> None:
    """Early or in time, the wait gets it: it is never parked beside it."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        suspend = race.turn(ops.Suspend, run_id, waits=(wait("w", signal("go")),))
        suspended, sent = race.meet(suspend, race.b.d.signal_op(run_id, "go", str(number)))
        step = race.step(run_id)
        assert (step.state, step.value, step.winner) == ("done", str(number), 0)
        assert race.b.do(race.b.d.payloads(run_id)) == []
        early = isinstance(sent, Buffered)
        assert early or isinstance(sent, Delivered)
        assert suspended.parked is not early
        # A run that was delivered to from elsewhere is for others to claim, at once or if its owner does not answer.
        assert (race.run(run_id).ready_at is None) is early
        seen[type(sent).__name__] += 1
    assert_both(seen)


def test_a_signal_of_a_run_against_the_suspend_that_waits_for_it(race: Race) -> None:
    """A send is a step of its run: it is recorded with its effect, wherever that takes place."""
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        waiter, sender = f"w{number}", f"s{number}"
        race.start(waiter)
        race.start(sender, process=race.b)
        send = race.b.d.signal_op(waiter, "go", str(number))
        suspended, sent = race.meet(
            race.turn(ops.Suspend, waiter, waits=(wait("w", signal("go")),)),
            race.turn(ops.RecordSend, sender, path="s", name="s", kind="signal", send=send),
        )
        assert race.step(waiter).value == str(number)
        (told,) = sent.completions
        assert race.step(sender, "s").value == told.value
        assert ("buffered" in told.value) is not suspended.parked
        seen[suspended.parked] += 1
    assert_both(seen)


def test_a_deadline_against_the_signal(race: Race) -> None:
    """At the deadline both are right; one of them wins and the other changes nothing."""
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", signal("go"), timer("1s")))
        race.clock.set(race.clock.now() + 1_000_000)
        fired, sent = race.meet(
            ops.FireTimers(limit=10), race.b.d.signal_op(run_id, "go", str(number))
        )
        step = race.step(run_id)
        assert step.state == "done"
        won = isinstance(sent, Delivered)
        assert (fired.count, step.winner) == ((0, 0) if won else (1, 1))
        assert race.a.do(race.a.d.payloads(run_id)) == ([] if won else [str(number)])
        # One decision, one revision: nobody was woken twice.
        assert race.run(run_id).revision == 1
        seen[step.winner] += 1
    assert_both(seen)


def test_two_that_fire_the_same_timers(race: Race) -> None:
    """Each wait ends once, whoever finds it."""
    for number in range(race.rounds // 4):
        run_ids = [f"r{number}-{at}" for at in range(6)]
        race.start_waiting(run_ids, wait("w", timer("1s")))
        race.clock.set(race.clock.now() + 1_000_000)
        fired = race.meet(ops.FireTimers(limit=4), ops.FireTimers(limit=4))
        left = race.a.apply(ops.FireTimers(limit=10))
        assert sum(one.count for one in (*fired, *left)) == 6
        for run_id in run_ids:
            assert (race.run(run_id).revision, race.step(run_id).winner) == (1, 0)


@pytest.mark.parametrize("waits", [True, False])
def test_two_senders_of_a_signal_of_which_the_first_counts(race: Race, waits: bool) -> None:
    winners: Counter[bool] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        if waits:
            race.start_waiting([run_id], wait("w", signal("go")))
        else:
            race.start(run_id)
        outcomes = race.meet(
            race.a.d.signal_op(run_id, "go", '"a"', policy="first", signal_id=f"a{number}"),
            race.b.d.signal_op(run_id, "go", '"b"', policy="first", signal_id=f"b{number}"),
        )
        taken = [one for one in outcomes if isinstance(one, Delivered | Buffered)]
        refused = [one for one in outcomes if isinstance(one, Refusal)]
        assert len(taken) == 1 and [one.code for one in refused] == ["taken"]
        kept = race.a.do(race.a.d.payloads(run_id))
        value = race.step(run_id).value if waits else kept[0]
        assert len(kept) == (0 if waits else 1)
        assert value == ('"a"' if taken[0] is outcomes[0] else '"b"')
        winners[taken[0] is outcomes[0]] += 1
    assert_both(winners)


def test_two_senders_with_one_key_have_one_effect(race: Race) -> None:
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        outcomes = race.meet(
            race.a.d.signal_op(run_id, "go", key="k", policy="all", signal_id=f"a{number}"),
            race.b.d.signal_op(run_id, "go", key="k", policy="all", signal_id=f"b{number}"),
        )
        (first,) = [one for one in outcomes if isinstance(one, Buffered)]
        (again,) = [one for one in outcomes if isinstance(one, Duplicate)]
        assert again == Duplicate(first)
        assert len(race.b.do(race.b.d.payloads(run_id))) == 1


def test_two_senders_to_one_buffer_both_arrive(race: Race) -> None:
    """A buffer that keeps all loses none, and has them in one order; one that keeps the latest has one of them."""
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        policy = "all" if number % 2 else "latest"
        outcomes = race.meet(
            race.a.d.signal_op(run_id, "go", '"a"', policy=policy, signal_id=f"a{number}"),
            race.b.d.signal_op(run_id, "go", '"b"', policy=policy, signal_id=f"b{number}"),
        )
        kept = race.a.do(race.a.d.payloads(run_id))
        if policy == "all":
            assert sorted(kept) == ['"a"', '"b"']
        else:
            replaced = [one.replaced for one in outcomes if one.replaced is not None]
            assert replaced == [f"b{number}" if kept == ['"a"'] else f"a{number}"]


def test_the_last_of_two_deliveries_wakes_a_run_that_waits_in_two_branches(race: Race) -> None:
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("x", signal("go")), wait("y", signal("stop")))
        outcomes = race.meet(
            race.a.d.signal_op(run_id, "go", '"a"', signal_id=f"a{number}"),
            race.b.d.signal_op(run_id, "stop", '"b"', signal_id=f"b{number}"),
        )
        assert all(isinstance(one, Delivered) for one in outcomes)
        now = race.run(run_id)
        # Its owner goes on at once if it came first at home; from elsewhere the run is made ready.
        assert now.revision == 2 and now.status in ("ready", "running")
        assert [race.step(run_id, path).value for path in "xy"] == ['"a"', '"b"']


def test_a_delivery_against_a_cancel(race: Race) -> None:
    """Both happen, in some order: the signal is in the wait, and the run knows that it is to end."""
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", signal("go")))
        sent, steered = race.meet(
            race.a.d.signal_op(run_id, "go", str(number)), ops.Cancel(run_id=run_id)
        )
        assert isinstance(sent, Delivered)
        now = race.run(run_id)
        assert steered == Steered(run_id, steered.status, True)
        assert (now.cancel_requested, now.revision) == (True, 2)
        assert race.step(run_id).value == str(number)
        # Of a run that the cancel has made ready nobody is told.
        seen[max((one.revision for one in race.a.d.heard[-1].wakes), default=2) or 2] += 1
    assert_both(seen)


def test_a_signal_against_a_terminate(race: Race) -> None:
    """It is delivered and the run ends, or it is told that the run has ended; never a row of a run that is over."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        sent, _ = race.meet(race.a.d.signal_op(run_id, "go"), ops.Terminate(run_id=run_id))
        assert race.run(run_id).status == "terminated"
        assert race.a.do(race.a.d.payloads(run_id)) == []
        seen[type(sent).__name__] += 1
    assert_both(seen)


def test_a_signal_against_a_continue_as(race: Race) -> None:
    """It ends the wait, and the owner is to look again; or the next generation finds it in the buffer."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        race.a.apply(race.turn(ops.Suspend, run_id, waits=(wait("w", signal("go")),), park=False))
        renew = race.turn(ops.ContinueAs, run_id, workflow="orders", version=1, input="1")
        renewed, sent = race.meet(renew, race.b.d.signal_op(run_id, "go", str(number)))
        kept = race.a.do(race.a.d.payloads(run_id))
        if isinstance(sent, Delivered):
            assert isinstance(renewed, Moved)
            assert (race.run(run_id).generation, kept) == (0, [])
            assert race.step(run_id).value == str(number)
        else:
            assert isinstance(renewed, Advanced)
            assert (race.run(run_id).generation, kept) == (1, [str(number)])
        seen[type(sent).__name__] += 1
    assert_both(seen)


def test_a_signal_against_the_close_of_its_wait(race: Race) -> None:
    """The branch leaves the wait while a signal comes: it is buffered, or a dead letter; it never vanishes."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        race.a.apply(race.turn(ops.Suspend, run_id, waits=(wait("w", signal("go")),), park=False))
        record = race.turn(ops.RecordStep, run_id, closed=("w",))
        _, sent = race.meet(record, race.b.d.signal_op(run_id, "go", str(number)))
        letters = race.a.do(race.a.store.dead_letters(run_id, "", 10))
        kept = race.a.do(race.a.d.payloads(run_id))
        assert [one.payload for one in letters] + kept == [str(number)]
        assert bool(letters) is isinstance(sent, Delivered)
        seen[type(sent).__name__] += 1
    assert_both(seen)


def test_a_dead_letter_that_two_send_again(race: Race) -> None:
    """One of them does; the other is told that there is none."""
    winners: Counter[bool] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id, f"to{number}")
        send = race.a.d.signal_op(run_id, "go", on_end="dead_letter", signal_id=f"l{number}")
        race.a.apply(send)
        race.complete(run_id)
        outcomes = race.meet(
            *(
                ops.ResendDeadLetter(
                    dead_letter_id=f"l{number}", signal_id=f"{one}{number}", run_id=f"to{number}"
                )
                for one in "ab"
            )
        )
        assert sorted(type(one).__name__ for one in outcomes) == ["Buffered", "Refusal"]
        assert len(race.b.do(race.b.d.payloads(f"to{number}"))) == 1
        winners[isinstance(outcomes[0], Buffered)] += 1
    assert_both(winners)


def test_a_delivery_against_the_suspend_of_another_branch(race: Race) -> None:
    """Whoever parks has seen what was delivered, or is refused: nothing happens behind its back."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        race.a.apply(race.turn(ops.Suspend, run_id, waits=(wait("x", signal("go")),), park=False))
        suspend = race.turn(ops.Suspend, run_id, waits=(wait("y", signal("stop")),))
        parked, sent = race.meet(suspend, race.b.d.signal_op(run_id, "go", str(number)))
        assert isinstance(sent, Delivered)
        assert race.step(run_id, "x").value == str(number)
        assert isinstance(parked, Moved) or parked.parked
        assert (race.run(run_id).ready_at is None) is isinstance(parked, Moved)
        seen[type(parked).__name__] += 1
    assert_both(seen)
