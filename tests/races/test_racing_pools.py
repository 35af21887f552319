"""Pools between processes: whoever admits, ends, starts or changes limits at the same time, no slot is given twice."""

from collections import Counter
from typing import Any

from msgspec.structs import replace
from racing import Race, assert_both

from perdure.model import limits, ops
from perdure.model.outcomes import Admitted, Started
from perdure.model.pools import checked_limits, encode_limits
from perdure.testing.conformance.words import WORKFLOW

POOL = "gpu"


def set_pool(**bounds: Any) -> ops.SetPool:
    text = encode_limits(checked_limits(**bounds))
    return ops.SetPool(name=POOL, limits=text, fields=("limit", "per_key", "rate", "per_key_rate"))


def start(race: Race, run_id: str, **fields: Any) -> ops.StartRun:
    op: ops.StartRun = race.a.d.start_op(run_id, owner=None, pool=POOL, **fields)
    return op


def admit(limit: int = 10) -> ops.AdmitRuns:
    return ops.AdmitRuns(pool=POOL, limit=limit, workflows=((WORKFLOW, 1),))


def holders(race: Race, *run_ids: str) -> list[str]:
    """Those of these runs that hold a slot."""
    runs = [race.b.do(race.b.store.run(one)) for one in run_ids]
    return [one.run_id for one in runs if one.status == "ready" and one.line_at is None]


def end(race: Race, *run_ids: str) -> None:
    race.a.apply(*(ops.Terminate(run_id=one) for one in run_ids))


def test_two_processes_admit_at_once(race: Race) -> None:
    race.a.apply(set_pool(limit=1))
    winners: Counter[int] = Counter()
    for number in range(race.rounds):
        runs = [f"{number}-{nth}" for nth in range(3)]
        race.a.apply(*(start(race, one) for one in runs))
        first, second = race.meet(admit(), admit())
        assert isinstance(first, Admitted)
        assert sorted((first.count, second.count)) == [0, 1]
        assert len(holders(race, *runs)) == 1
        winners[first.count] += 1
        end(race, *runs)
    assert_both(winners)


def test_two_processes_admit_runs_of_one_key(race: Race) -> None:
    race.a.apply(set_pool(per_key=1))
    for number in range(race.rounds):
        runs = [f"{number}-{key}{nth}" for key in "ab" for nth in range(2)]
        race.a.apply(*(start(race, one, pool_key=one[-2]) for one in runs))
        first, second = race.meet(admit(1), admit(1))
        # By turns: each gets a key, or both see each other's.
        assert first.count + second.count == 2
        assert sorted(one[-2] for one in holders(race, *runs)) == ["a", "b"]
        end(race, *runs)


def test_two_processes_admit_by_one_rate(race: Race) -> None:
    race.a.apply(set_pool(rate="1/1s"))
    winners: Counter[int] = Counter()
    for number in range(race.rounds):
        runs = [f"{number}-{nth}" for nth in range(2)]
        race.a.apply(*(start(race, one) for one in runs))
        first, second = race.meet(admit(), admit())
        assert sorted((first.count, second.count)) == [0, 1]
        winners[first.count] += 1
        end(race, *runs)
        race.clock.set(race.clock.now() + 1_000_000)
    assert_both(winners)


def test_a_slot_that_is_given_back_against_an_admission(race: Race) -> None:
    """It is given on once, at once or by the next admission."""
    race.a.apply(set_pool(limit=1), start(race, "first"), admit())
    holder = "first"
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        waiting = f"next-{number}"
        race.a.apply(start(race, waiting))
        _, admitted = race.meet(ops.Terminate(run_id=holder), admit())
        seen[admitted.count] += 1
        (again,) = race.a.apply(admit())
        assert admitted.count + again.count == 1
        assert holders(race, holder, waiting) == [waiting]
        holder = waiting
    assert_both(seen)


def test_lowered_limits_against_an_admission(race: Race) -> None:
    """What is let through after the change keeps to it."""
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        runs = [f"{number}-{nth}" for nth in range(3)]
        race.a.apply(set_pool(limit=3), *(start(race, one) for one in runs))
        _, admitted = race.meet(set_pool(limit=1), admit())
        assert admitted.count in (1, 3)
        assert len(holders(race, *runs)) == admitted.count
        assert race.a.apply(admit()) == [Admitted(0)]
        seen[admitted.count] += 1
        end(race, *runs)
    assert_both(seen)


def test_new_limits_against_a_start(race: Race) -> None:
    """It stands in line if the limits came first, and holds a slot that counts if it did."""
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        run_id, other = f"{number}-a", f"{number}-b"
        race.a.apply(set_pool())
        started, _ = race.meet(start(race, run_id), set_pool(limit=1))
        assert isinstance(started, Started)
        race.a.apply(start(race, other))
        (admitted,) = race.a.apply(admit())
        held = started.run.line_at is None
        assert admitted.count == (0 if held else 1)
        assert holders(race, run_id, other) == [run_id]
        seen[int(held)] += 1
        end(race, run_id, other)
    assert_both(seen)


def test_a_slot_that_is_taken_back_against_its_claim(race: Race) -> None:
    """Whoever comes first: the run is claimed and keeps its slot, or stands in line and cannot be claimed."""
    race.a.apply(set_pool(limit=1))
    gone = (("gone", 1),)
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        run_id, other = f"{number}-gone", f"{number}-known"
        race.a.apply(start(race, run_id, workflow="gone"), replace(admit(), workflows=gone))
        race.a.apply(start(race, other))
        race.clock.set(race.clock.now() + limits.slot_unclaimed_us)
        claim = ops.ClaimRuns(worker_id="w", fence=number + 1, limit=1, workflows=gone)
        claimed, admitted = race.meet(claim, replace(admit(), takes_back=True))
        assert len(claimed.runs) + admitted.count == 1
        assert holders(race, run_id, other) == ([] if claimed.runs else [other])
        seen[admitted.count] += 1
        end(race, run_id, other)
    assert_both(seen)
