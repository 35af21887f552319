"""Who starts, owns, steers, ends and forgets a run, when two processes do so at once."""

from collections import Counter

from racing import Race, assert_both, claim

from perdure.model import ops
from perdure.model.outcomes import (
    Advanced,
    Fenced,
    Finished,
    Moved,
    NotFound,
    Refusal,
    Started,
    Steered,
)
from perdure.testing.conformance.words import done, run, signal, wait

# --- starting ---


def test_two_starts_of_one_id_make_one_run(race: Race) -> None:
    for number in range(race.rounds):
        starts = [
            process.d.start_op(f"r{number}", owner=process.worker_id)
            for process in (race.a, race.b)
        ]
        outcomes = race.meet(*starts)
        assert all(isinstance(one, Started) for one in outcomes)
        assert sorted(one.created for one in outcomes) == [False, True]
        owner = race.run(f"r{number}").owner
        assert {one.run.owner for one in outcomes} == {owner}


def test_two_starts_with_one_key_make_one_run(race: Race) -> None:
    """Under ids of their own: the key says that they mean the same."""
    winners: Counter[str] = Counter()
    for number in range(race.rounds):
        outcomes = race.meet(
            *(
                process.d.start_op(f"{one}{number}", owner=process.worker_id, key=f"k{number}")
                for one, process in (("a", race.a), ("b", race.b))
            )
        )
        assert sorted(one.created for one in outcomes) == [False, True]
        (run_id,) = {one.run.run_id for one in outcomes}
        assert race.run(run_id).key == f"k{number}"
        winners[run_id[0]] += 1
    assert race.a.do(race.a.store.counts())["runs"] == race.rounds
    assert_both(winners)


def test_a_start_against_a_start_that_brings_a_signal(race: Race) -> None:
    """One run, and it has the signal."""
    for number in range(race.rounds):
        run_id = f"r{number}"
        with_signal = ops.SignalWithStart(
            start=race.b.d.start_op(run_id, owner="worker-b"),
            signal=race.b.d.signal_op(run_id, "go", str(number)),
        )
        started, (found, _) = race.meet(race.a.d.start_op(run_id, owner="worker-a"), with_signal)
        assert sorted([started.created, found.created]) == [False, True]
        assert race.a.do(race.a.d.payloads(run_id)) == [str(number)]


# --- claiming ---


def test_a_claim_against_a_claim(race: Race) -> None:
    """Each run is claimed once."""
    for number in range(race.rounds // 4):
        run_ids = {f"r{number}-{at}" for at in range(6)}
        race.start(*run_ids, owner=None)
        first, second = race.meet(
            claim("worker-a", 2 * number + 1, 4), claim("worker-b", 2 * number + 2, 4)
        )
        claimed = [one.run_id for one in (*first.runs, *second.runs)]
        assert sorted(claimed) == sorted(run_ids)
        owners = {one.run_id: one.owner for one in (*first.runs, *second.runs)}
        for run_id in run_ids:
            assert race.run(run_id).owner == owners[run_id]


def test_four_that_claim_at_once(race: Race) -> None:
    """Nobody is given more than it asked for, nothing is given twice, and nothing stays behind."""
    race.join("worker-c")
    race.join("worker-d")
    workers = [one.worker_id for one in race.processes]
    for number in range(race.rounds // 8):
        run_ids = {f"r{number}-{at}" for at in range(10)}
        race.start(*run_ids, owner=None)
        claims = [claim(one, 10 * number + nth, 3) for nth, one in enumerate(workers, 1)]
        answers = race.meet(*claims)
        assert all(len(one.runs) <= 3 for one in answers)
        claimed = {one.run_id: one for answer in answers for one in answer.runs}
        assert sum(len(one.runs) for one in answers) == len(claimed) == 10
        for run_id, taken in claimed.items():
            now = race.run(run_id)
            assert (now.owner, now.fence) == (taken.owner, taken.fence)


def test_a_claim_against_a_cancel_of_what_is_ready(race: Race) -> None:
    """A claim that came first is told of the cancel; one that came second has it in its row."""
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id, owner=None)
        claimed, steered = race.meet(claim("worker-a", number + 1, 5), ops.Cancel(run_id=run_id))
        assert isinstance(steered, Steered) and steered.changed
        taken = {one.run_id: one for one in claimed.runs}
        # A claim steps over a row that somebody else is changing: then it has none.
        seen[-1 if run_id not in taken else taken[run_id].revision] += 1
        assert race.run(run_id).cancel_requested
        race.a.apply(claim("worker-a", number + 1, 5))
    assert {0, 1} <= set(seen), seen


def test_a_reclaim_against_the_step_of_the_former_owner(race: Race) -> None:
    """The owner was taken for dead: its result counts if it came first, and is refused if not."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id, owner="ghost")
        recorded, recovered = race.meet(
            race.turn(ops.RecordStep, run_id, steps=(done("s"),)), ops.Recover(limit=10)
        )
        assert recovered.count == 1
        history = race.a.do(race.a.store.history(run_id))
        if isinstance(recorded, Advanced):
            assert [one.path for one in history] == ["s"]
        else:
            assert recorded == Fenced(run_id, "ready")
            assert history == []
        seen[type(recorded).__name__] += 1
    assert_both(seen)


def test_an_owner_that_answers_late_against_a_claim(race: Race) -> None:
    """A run was delivered to from elsewhere: its owner goes on with it, or whoever claims it then; never both."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start_waiting([run_id], wait("w", signal("go")))
        record = race.turn(ops.RecordStep, run_id, steps=(done("s"),))
        race.b.apply(race.b.d.signal_op(run_id, "go"))
        race.clock.set(race.clock.now() + 1_000_000)
        recorded, claimed = race.meet(record, claim("worker-b", number + 1, 1))
        taken = [one.run_id for one in claimed.runs]
        history = [one.path for one in race.a.do(race.a.store.history(run_id))]
        if isinstance(recorded, Advanced):
            assert (taken, sorted(history)) == ([], ["s", "w"])
            assert (race.run(run_id).owner, race.run(run_id).ready_at) == ("worker-a", None)
        else:
            # A claim steps over a row that somebody is looking at: then nobody has it yet.
            assert taken in ([run_id], []) and history == ["w"]
            assert race.run(run_id).owner == ("worker-b" if taken else None)
            race.b.apply(claim("worker-b", number + 1, 1))
        seen[type(recorded).__name__] += 1
    # Where owners are not called, a delivery from elsewhere takes the run from its owner at once.
    assert set(seen) == ({"Advanced", "Fenced"} if race.b.store.sticky_us else {"Fenced"})


def test_two_that_recover_what_nobody_runs_any_more(race: Race) -> None:
    """Each run is made ready once: its revision moves by one."""
    for number in range(race.rounds // 4):
        run_ids = [f"r{number}-{at}" for at in range(4)]
        race.start(*run_ids, owner="ghost")
        recovered = race.meet(ops.Recover(limit=10), ops.Recover(limit=10))
        assert sum(one.count for one in recovered) == 4
        assert {race.run(one).revision for one in run_ids} == {1}


def test_a_result_of_the_owner_against_a_delivery_from_elsewhere(race: Race) -> None:
    """Their order is part of the run's history: whoever comes second has the greater number, whoever gives it.

    The owner's results do not touch the row of the run, and its numbers may be far ahead of those of the others.
    """
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        race.a.apply(race.turn(ops.Suspend, run_id, waits=(wait("w", signal("go")),), park=False))
        record = race.turn(ops.RecordStep, run_id, steps=(done("s"), done("t")))
        recorded, _ = race.meet(record, race.b.d.signal_op(run_id, "go"))
        wait_seq, first, last = (race.step(run_id, path).seq for path in "wst")
        assert first < last
        assert last < wait_seq if recorded.revision == 0 else wait_seq < first
        seen[recorded.revision] += 1
        # Now the one and now the other is ahead.
        ahead = (race.a, race.b)[number % 2]
        ahead.apply(ahead.d.put_op("ahead"), ahead.d.put_op("ahead"), ahead.d.put_op("ahead"))
    assert_both(seen)


# --- steering and ending ---


def test_a_finish_against_a_cancel(race: Race) -> None:
    """The run ends as completed, or it learns of the cancel; never both, never neither."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        finish = race.turn(ops.Finish, run_id, status="completed", output="7")
        finished, cancelled = race.meet(finish, ops.Cancel(run_id=run_id))
        now = race.run(run_id)
        if isinstance(finished, Advanced):
            assert cancelled == Finished(run_id, "completed")
            assert (now.status, now.cancel_requested) == ("completed", False)
        else:
            assert isinstance(finished, Moved)
            assert cancelled == Steered(run_id, "running", True)
            assert (now.status, now.cancel_requested) == ("running", True)
        seen[type(finished).__name__] += 1
    assert_both(seen)


def test_the_start_of_a_child_against_the_cancel_of_its_parent(race: Race) -> None:
    """A child that was there is cancelled too; one that is started afterwards is told at birth."""
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        parent, child = f"p{number}", f"c{number}"
        race.start(parent)
        start = race.a.d.start_op(child, owner="worker-a", parent_run_id=parent)
        _, cancelled = race.meet(
            race.turn(ops.RecordSend, parent, path="s", name="s", kind="start", send=start),
            ops.Cancel(run_id=parent),
        )
        assert cancelled == Steered(parent, "running", True)
        now = race.run(child)
        assert now.cancel_requested
        seen[now.revision > 0] += 1
        # The canceller's numbers are ahead of the owner's, so that they cannot tell it of the child.
        race.b.apply(*(race.b.d.put_op("ahead") for _ in range(5)))
    assert_both(seen)


def test_the_start_of_a_child_against_the_end_of_its_parent(race: Race) -> None:
    """Terminated with its parent, or started by a run that has ended: never one that lives on unseen."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        parent, child = f"p{number}", f"c{number}"
        race.start(parent)
        start = race.a.d.start_op(child, owner="worker-a", parent_run_id=parent)
        sent, _ = race.meet(
            race.turn(ops.RecordSend, parent, path="s", name="s", kind="start", send=start),
            ops.Terminate(run_id=parent),
        )
        found = race.a.do(race.a.store.run(child))
        assert (None if found is None else found.status) == (
            "terminated" if isinstance(sent, Advanced) else None
        )
        seen[type(sent).__name__] += 1
        race.b.apply(*(race.b.d.put_op("ahead") for _ in range(5)))
    assert_both(seen)


def test_the_end_of_a_run_against_the_wait_for_it(race: Race) -> None:
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        target, waiter = f"t{number}", f"w{number}"
        race.start(target)
        race.start(waiter, process=race.b)
        _, suspended = race.meet(
            race.turn(ops.Finish, target, status="completed", output="7"),
            race.turn(ops.Suspend, waiter, waits=(wait("w", run(target)),)),
        )
        step = race.step(waiter)
        assert (step.state, step.value) == ("done", "7")
        seen[suspended.parked] += 1
    assert_both(seen)


def test_a_pause_against_the_suspend(race: Race) -> None:
    """A paused run waits for nothing, one that waits is not paused; and it comes to be paused."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        suspend = race.turn(ops.Suspend, run_id, waits=(wait("w", signal("go")),))
        suspended, steered = race.meet(suspend, ops.Pause(run_id=run_id))
        if isinstance(suspended, Moved):
            assert (suspended.pause_requested, steered.status) == (True, "running")
            race.a.apply(race.turn(ops.Suspend, run_id, waits=(wait("w", signal("go")),)))
        assert race.run(run_id).status == "paused"
        seen[type(suspended).__name__] += 1
    assert_both(seen)


# --- forgetting ---


def test_a_prune_against_a_retry(race: Race) -> None:
    """The run is gone, or it lives and is whole; never a part of it."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        race.fail(run_id)
        race.clock.set(race.clock.now() + 1)
        pruned, retried = race.meet(
            ops.Prune(finished_before=race.clock.now(), limit=10), ops.Retry(run_id=run_id)
        )
        now = race.a.do(race.a.store.run(run_id))
        history = race.a.do(race.a.store.history(run_id))
        if isinstance(retried, Steered):
            assert (pruned.count, now.status, len(history)) == (0, "ready", 2)
        else:
            assert retried == NotFound(run_id)
            assert (pruned.count, now, history) == (1, None, [])
        seen[type(retried).__name__] += 1
    assert_both(seen)


def test_a_prune_against_those_who_refer_to_the_run(race: Race) -> None:
    """A run that has ended is gone for a child that is started, or stays for as long as the child lives."""
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        parent, child = f"p{number}", f"c{number}"
        race.start(parent)
        race.complete(parent)
        race.clock.set(race.clock.now() + 1)
        start = race.b.d.start_op(child, owner="worker-b", parent_run_id=parent, depth=7)
        race.meet(ops.Prune(finished_before=race.clock.now(), limit=10), start)
        there = race.a.do(race.a.store.run(parent)) is not None
        # Of a parent that it found the child is one deeper; else it has the depth that it was given.
        assert race.run(child).depth == (1 if there else 7)
        seen[there] += 1
        race.complete(child, process=race.b)
    assert_both(seen)


def test_two_prunes_forget_each_run_once(race: Race) -> None:
    for number in range(race.rounds // 4):
        run_ids = [f"r{number}-{at}" for at in range(6)]
        race.start(*run_ids)
        race.complete(*run_ids)
        race.clock.set(race.clock.now() + 1)
        prune = ops.Prune(finished_before=race.clock.now(), limit=4)
        pruned = [*race.meet(prune, prune), *race.a.apply(prune)]
        assert sum(one.count for one in pruned) == 6


def test_a_start_against_the_prune_of_the_run_of_that_id(race: Race) -> None:
    """It finds the old run, or makes a new one: it is never told of a run that is gone."""
    seen: Counter[bool] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        race.complete(run_id)
        race.clock.set(race.clock.now() + 1)
        start = race.b.d.start_op(run_id, owner="worker-b", key=f"k{number}")
        pruned, started = race.meet(ops.Prune(finished_before=race.clock.now(), limit=10), start)
        now = race.a.do(race.a.store.run(run_id))
        again = race.a.apply(race.a.d.start_op(f"other{number}", key=f"k{number}"))[0]
        assert not isinstance(again, Refusal)
        if started.created:
            assert (pruned.count, now.status, again.run.run_id) == (1, "running", run_id)
        else:
            # Found, and gone afterwards, with its key.
            assert (pruned.count, now, again.created) == (1, None, True)
        seen[started.created] += 1
    assert_both(seen)
