"""Schedules between processes: a tick starts one run, whoever else asks for it, ends its predecessor or changes it."""

from collections import Counter
from typing import Any

from racing import Race, assert_both

from perdure.model import ops
from perdure.model.outcomes import Filled, Fired
from perdure.model.records import ScheduleRecord
from perdure.testing.conformance.words import SECOND, WORKFLOW

MINUTE = 60 * SECOND


def schedule(race: Race, name: str = "s", **fields: Any) -> None:
    """One that ticks every minute."""
    row = ScheduleRecord(name=name, workflow=WORKFLOW, input="[]", interval_us=MINUTE, **fields)
    race.a.apply(ops.PutSchedule(schedule=row))


def fire(limit: int = 10) -> ops.FireSchedules:
    return ops.FireSchedules(limit=limit, workflows=((WORKFLOW, 1),))


def tick(race: Race) -> int:
    """A minute passes."""
    race.clock.set(race.clock.now() + MINUTE)
    return race.clock.now()


def row(race: Race, name: str = "s") -> ScheduleRecord:
    found: ScheduleRecord = race.b.do(race.b.d.scheduled(name))
    return found


def runs(race: Race) -> int:
    counts: dict[str, int] = race.b.do(race.b.store.counts())
    return counts.get("runs", 0)


def test_two_processes_ask_for_one_tick(race: Race) -> None:
    schedule(race, overlap="allow")
    winners: Counter[int] = Counter()
    for _ in range(race.rounds):
        now = tick(race)
        first, second = race.meet(fire(), fire())
        assert isinstance(first, Fired)
        assert sorted((first.count, second.count)) == [0, 1]
        assert first.next_at == second.next_at == now + MINUTE
        winners[first.count] += 1
    assert runs(race) == race.rounds
    assert_both(winners)


def test_two_processes_share_what_is_due(race: Race) -> None:
    """Each takes some of it, and all is taken once."""
    for number in range(6):
        schedule(race, f"s{number}", overlap="allow")
    few = max(2, race.rounds // 5)
    for _ in range(few):
        tick(race)
        taken = sum(one.count for one in race.meet(fire(3), fire(3)))
        while taken < 6:
            (again,) = race.a.apply(fire(3))
            assert again.count > 0
            taken += again.count
    assert runs(race) == 6 * few


def test_the_end_of_a_run_against_a_tick_that_has_to_wait_for_it(race: Race) -> None:
    """Whoever comes first: the tick starts, at once or because the end has made it due."""
    schedule(race, overlap="queue")
    tick(race)
    race.a.apply(fire())
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        living = row(race).last_run_id or ""
        tick(race)
        _, fired = race.meet(ops.Terminate(run_id=living), fire())
        assert fired.count == 1
        seen[runs(race) - number] += 1
        race.a.apply(fire())
        assert runs(race) == number + 2
        assert (row(race).queued, row(race).skipped) == ("[]", 0)
    assert_both(seen)


def test_the_end_of_a_run_against_a_tick_that_is_skipped_for_it(race: Race) -> None:
    """It starts or is skipped, never both, never neither."""
    schedule(race)
    seen: Counter[int] = Counter()
    for _ in range(race.rounds):
        before = runs(race) + row(race).skipped
        tick(race)
        living = row(race).last_run_id or "none"
        race.meet(ops.Terminate(run_id=living), fire())
        assert runs(race) + row(race).skipped == before + 1
        seen[row(race).skipping] += 1
    assert_both(seen)


def test_a_backfill_against_the_tick_itself(race: Race) -> None:
    schedule(race, overlap="allow")
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        now = tick(race)
        fill = ops.BackfillSchedule(
            name="s", workflow=WORKFLOW, version=1, after=now - 1, until=now, limit=10
        )
        filled, fired = race.meet(fill, fire())
        assert isinstance(filled, Filled)
        assert (filled.started + filled.existing, fired.count) == (1, 1)
        assert runs(race) == number + 1
        seen[filled.started] += 1
    assert_both(seen)


def test_a_pause_or_a_change_against_a_tick(race: Race) -> None:
    """What is committed after the pause starts nothing, and no change is lost."""
    schedule(race, overlap="allow")
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        before = runs(race)
        tick(race)
        pause = ops.SteerSchedule(name="s", paused=True, reason=str(number))
        _, fired = race.meet(pause, fire())
        assert runs(race) == before + fired.count
        assert (row(race).paused, row(race).reason) == (True, str(number))
        assert race.a.apply(fire()) == [Fired(0, None)]
        race.a.apply(ops.SteerSchedule(name="s", paused=False))
        seen[fired.count] += 1
    assert_both(seen)
