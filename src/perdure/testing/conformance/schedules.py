"""Schedules: each tick has its run once, or it is said why not; what is started by hand keeps to the same rule.

The clock of these tests begins on Monday, 2026-01-05, at 09:00 UTC.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from perdure.model import cron, limits, ops, ticks
from perdure.model.clock import from_datetime
from perdure.model.outcomes import Counted, Filled, Fired, Refusal, Started
from perdure.model.records import EventRecord, ScheduleRecord
from perdure.testing.conformance.driver import Driver, everything
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import HOUR, SECOND, WORKFLOW

MINUTE = 60 * SECOND
DAY = 24 * HOUR


def tick(time: str) -> str:
    """A tick of the first day, as runs show it."""
    return f"2026-01-05T{time}:00Z"


async def facts(d: Driver, type: str) -> list[EventRecord]:
    return [one for one in await everything(d.store.events) if one.type == type]


async def told(d: Driver) -> list[tuple[str, str, str, int]]:
    """What was skipped: why, from which tick to which, and how many."""
    payloads = [msgspec.json.decode(one.payload) for one in await facts(d, "schedule.skipped")]
    return [(one["reason"], one["first"], one["last"], one["count"]) for one in payloads]


async def end(d: Driver, run_id: str) -> None:
    """A worker claims the run, and it ends."""
    await d.claim()
    await d.finish(run_id)


class TestScheduleRows(Subject):
    async def test_it_is_kept_as_it_was_given(self, d: Driver) -> None:
        row = await d.schedule(
            "daily", "0 7 * * mon-fri", zone="Europe/Berlin", catch_up="all", overlap="queue"
        )
        assert isinstance(row, ScheduleRecord)
        assert await d.store.schedule("daily") == row
        assert (row.workflow, row.input, row.cron) == (WORKFLOW, "[]", "0 7 * * MON-FRI")
        assert (row.zone, row.catch_up, row.overlap) == ("Europe/Berlin", "all", "queue")
        assert (row.code, row.paused, row.created_at) == (False, False, d.clock.now())
        # At 7 in Berlin of the next morning, a Tuesday: 06:00 UTC.
        assert row.next_at == row.due_at == d.clock.now() + 21 * HOUR
        assert [(one.kind, one.at) for one in d.heard[-1].wakes] == [("schedule", row.due_at)]

    async def test_there_is_none_of_another_name(self, d: Driver) -> None:
        assert await d.store.schedule("none") is None
        assert await d.unschedule("none") == Counted(0)
        for answer in (
            await d.steer_schedule("none", True),
            await d.trigger("none", "r1"),
            await d.backfill("none", 0, 1),
        ):
            assert isinstance(answer, Refusal)
            assert answer.code == "no_schedule"

    async def test_an_interval_counts_from_the_whole_second(self, d: Driver) -> None:
        d.advance("1.5s")
        row = await d.schedule("often", "15m")
        assert isinstance(row, ScheduleRecord)
        assert row.anchor_at == d.clock.now() + SECOND // 2
        assert row.next_at == row.anchor_at + 15 * MINUTE

    async def test_they_are_listed_by_name_from_a_place_on(self, d: Driver) -> None:
        for name in ("b", "d", "a", "c"):
            await d.schedule(name)
        names = [one.name for one in await d.store.schedules("", 3)]
        rest = [one.name for one in await d.store.schedules("c", 3)]
        assert (names, rest) == (["a", "b", "c"], ["d"])

    async def test_the_same_again_changes_nothing(self, d: Driver) -> None:
        row = await d.schedule("often")
        d.advance("30s")
        assert await d.schedule("often") == row
        assert (await d.scheduled("often"), d.heard[-1].wakes) == (row, ())

    async def test_what_is_changed_keeps_its_ticks_if_the_calendar_stays(self, d: Driver) -> None:
        row = await d.schedule("often", "15m")
        assert isinstance(row, ScheduleRecord)
        d.advance("10m")
        changed = await d.schedule("often", "15m", overlap="allow", workflow="refunds")
        assert isinstance(changed, ScheduleRecord)
        assert (changed.overlap, changed.workflow) == ("allow", "refunds")
        assert (changed.anchor_at, changed.next_at) == (row.anchor_at, row.next_at)
        assert changed.created_at == row.created_at

    @pytest.mark.parametrize(
        ("every", "zone", "after"),
        [("20m", "UTC", 20 * MINUTE), ("0 12 * * *", "Europe/Berlin", 110 * MINUTE)],
    )
    async def test_another_calendar_begins_with_its_next_tick(
        self, d: Driver, every: str, zone: str, after: int
    ) -> None:
        await d.schedule("often", "15m")
        d.advance("10m")
        row = await d.schedule("often", every, zone=zone)
        assert isinstance(row, ScheduleRecord)
        assert row.next_at == row.due_at == d.clock.now() + after

    async def test_one_of_code_is_changed_by_code_alone(self, d: Driver) -> None:
        row = await d.schedule("often", code=True)
        refused = await d.schedule("often", "5m")
        assert isinstance(refused, Refusal)
        assert refused.code == "conflict"
        assert await d.scheduled("often") == row
        changed = await d.schedule("often", "5m", code=True)
        assert isinstance(changed, ScheduleRecord)
        assert changed.interval_us == 5 * MINUTE

    async def test_code_takes_one_over_that_was_made_at_run_time(self, d: Driver) -> None:
        await d.schedule("often")
        row = await d.schedule("often", "5m", code=True)
        assert isinstance(row, ScheduleRecord)
        assert (row.code, row.interval_us) == (True, 5 * MINUTE)

    async def test_whether_it_is_paused_is_the_operators_word(self, d: Driver) -> None:
        await d.schedule("often", code=True)
        await d.steer_schedule("often", True, "too much")
        row = await d.schedule("often", "5m", code=True)
        assert isinstance(row, ScheduleRecord)
        assert (row.paused, row.reason, row.due_at) == (True, "too much", None)

    async def test_a_paused_one_does_not_tick(self, d: Driver) -> None:
        await d.schedule("often")
        await d.steer_schedule("often", True)
        d.advance("5m")
        assert await d.fire_schedules() == Fired(0, None)
        assert await d.ticks("often") == []

    async def test_what_came_while_it_was_paused_does_not_count(self, d: Driver) -> None:
        await d.schedule("often", catch_up="all")
        await d.steer_schedule("often", True, "a moment")
        d.advance("150s")
        row = await d.steer_schedule("often", False)
        assert isinstance(row, ScheduleRecord)
        assert (row.paused, row.reason) == (False, None)
        assert [(one.kind, one.at) for one in d.heard[-1].wakes] == [("schedule", row.due_at)]
        await d.fire_schedules()
        d.advance("30s")
        await d.fire_schedules()
        assert await d.ticks("often") == [tick("09:03")]
        assert await told(d) == []

    async def test_to_resume_one_that_is_not_paused_changes_nothing(self, d: Driver) -> None:
        row = await d.schedule("often")
        d.advance("5m")
        assert await d.steer_schedule("often", False) == row

    async def test_one_that_is_gone_does_not_tick(self, d: Driver) -> None:
        await d.schedule("often")
        assert await d.unschedule("often") == Counted(1)
        d.advance("5m")
        assert await d.fire_schedules() == Fired(0, None)
        assert await d.store.schedules("", 10) == []

    async def test_a_look_says_when_the_first_is_due(self, d: Driver) -> None:
        async def at(*known: tuple[str, int]) -> int | None:
            return (await d.store.look(known or None)).schedule_at

        assert await at() is None
        now = d.clock.now()
        await d.schedule("slow", "2h")
        await d.schedule("quick", "10m", workflow="refunds")
        assert await at() == await at(("refunds", 7)) == now + 10 * MINUTE
        assert await at((WORKFLOW, 1)) == now + 2 * HOUR
        assert await at(("others", 1)) is None
        assert (await d.store.vitals(now)).schedule_at == now + 10 * MINUTE
        await d.steer_schedule("quick", True)
        assert await at() == now + 2 * HOUR


class TestTicks(Subject):
    async def test_a_tick_starts_a_run_that_anybody_may_claim(self, d: Driver) -> None:
        await d.schedule("often")
        d.advance("1m")
        now = d.clock.now()
        assert await d.fire_schedules(workflows=((WORKFLOW, 3),)) == Fired(1, now + MINUTE)
        run = await d.run(f"often@{tick('09:01')}")
        assert (run.workflow, run.version, run.input) == (WORKFLOW, 3, "[]")
        assert (run.status, run.owner, run.ready_at) == ("ready", None, now)
        assert msgspec.json.decode(run.tags or "") == {"schedule": "often", "tick": tick("09:01")}
        assert [one.kind for one in d.heard[-1].wakes] == ["ready"]
        row = await d.scheduled("often")
        assert (row.last_at, row.last_run_id, row.next_at) == (now, run.run_id, now + MINUTE)

    async def test_it_is_never_early(self, d: Driver) -> None:
        await d.schedule("often")
        at = d.clock.now() + MINUTE
        d.clock.set(at - 1)
        assert await d.fire_schedules() == Fired(0, at)
        d.clock.set(at)
        assert await d.fire_schedules() == Fired(1, at + MINUTE)

    async def test_who_comes_second_finds_nothing_to_do(self, d: Driver) -> None:
        await d.schedule("often", overlap="allow")
        d.advance("1m")
        fire = ops.FireSchedules(limit=10, workflows=((WORKFLOW, 1),))
        first, second = await d.batch(fire, fire)
        next_at = d.clock.now() + MINUTE
        assert (first, second) == (Fired(1, next_at), Fired(0, next_at))
        assert await d.fire_schedules() == Fired(0, next_at)
        assert await d.ticks("often") == [tick("09:01")]

    async def test_only_those_of_workflows_that_the_asker_knows(self, d: Driver) -> None:
        await d.schedule("ours")
        await d.schedule("theirs", workflow="refunds")
        d.advance("1m")
        assert (await d.fire_schedules()).count == 1
        assert await d.ticks("theirs") == []
        fired = await d.fire_schedules(workflows=(("refunds", 2), ("others", 1)))
        assert fired.count == 1
        assert await d.ticks("theirs") == [tick("09:01")]

    async def test_one_op_deals_with_a_bounded_number_and_says_that_more_are_due(
        self, d: Driver
    ) -> None:
        for number in range(5):
            await d.schedule(f"s{number}")
        d.advance("1m")
        now = d.clock.now()
        assert await d.fire_schedules(limit=2) == Fired(2, now)
        assert await d.fire_schedules(limit=2) == Fired(2, now)
        assert await d.fire_schedules(limit=2) == Fired(1, now + MINUTE)

    async def test_one_made_and_fired_in_the_same_batch(self, d: Driver) -> None:
        """What the batch itself has done to a row counts, not what an index says."""
        await d.schedule("often")
        d.advance("1m")
        fire = ops.FireSchedules(limit=10, workflows=((WORKFLOW, 1),))
        dropped, fired = await d.batch(ops.DropSchedule(name="often"), fire)
        assert (dropped, fired) == (Counted(1), Fired(0, None))
        assert await d.ticks("often") == []

    async def test_a_workflow_that_it_was_changed_to_counts(self, d: Driver) -> None:
        await d.schedule("often")
        d.advance("1m")
        await d.schedule("often", workflow="refunds")
        assert (await d.fire_schedules()).count == 0
        assert (await d.fire_schedules(workflows=(("refunds", 1),))).count == 1

    # --- what was missed ---

    async def test_by_default_the_newest_of_the_missed_ticks_is_made_up_for(
        self, d: Driver
    ) -> None:
        await d.schedule("often", "15m")
        d.advance("3h5m")
        assert await d.fire_schedules() == Fired(1, d.clock.now() + 10 * MINUTE)
        assert await d.ticks("often") == [tick("12:00")]
        assert await told(d) == [("missed", tick("09:15"), tick("11:45"), 11)]
        assert (await d.scheduled("often")).skipped == 11

    async def test_or_none(self, d: Driver) -> None:
        await d.schedule("often", "15m", catch_up="none")
        d.advance("3h5m")
        assert await d.fire_schedules() == Fired(1, d.clock.now() + 10 * MINUTE)
        assert await d.ticks("often") == []
        assert await told(d) == [("missed", tick("09:15"), tick("12:00"), 12)]
        assert (await d.scheduled("often")).last_at is None

    async def test_a_tick_that_is_hardly_late_was_not_missed(self, d: Driver) -> None:
        await d.schedule("often", "15m", catch_up="none")
        d.advance("15m")
        d.clock.set(d.clock.now() + limits.schedule_late_us)
        await d.fire_schedules()
        assert await d.ticks("often") == [tick("09:15")]
        assert await told(d) == []

    async def test_or_all_of_them(self, d: Driver) -> None:
        await d.schedule("often", "15m", catch_up="all", overlap="allow")
        d.advance("1h5m")
        await d.fire_schedules()
        assert await d.ticks("often") == [
            tick(f"{at}") for at in ("09:15", "09:30", "09:45", "10:00")
        ]
        assert await told(d) == []
        assert (await d.scheduled("often")).queued == "[]"

    async def test_all_are_the_newest_up_to_a_bound_and_start_in_several_commits(
        self, d: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "schedule_missed_max", 5)
        monkeypatch.setattr(limits, "schedule_starts_per_commit", 2)
        await d.schedule("often", "*/15 * * * *", catch_up="all", overlap="allow")
        d.advance("2h5m")
        now = d.clock.now()
        assert await d.fire_schedules() == Fired(1, now)
        assert await d.ticks("often") == [tick("10:00"), tick("10:15")]
        assert await told(d) == [("missed", tick("09:15"), tick("09:45"), 3)]
        assert await d.fire_schedules() == Fired(1, now)
        assert await d.fire_schedules() == Fired(1, now + 10 * MINUTE)
        assert await d.ticks("often") == [
            tick(f"{at}") for at in ("10:00", "10:15", "10:30", "10:45", "11:00")
        ]

    async def test_the_bound_on_starts_is_for_all_schedules_of_a_commit(
        self, d: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "schedule_starts_per_commit", 3)
        for name in ("a", "b"):
            await d.schedule(name, catch_up="all", overlap="allow")
        d.advance("2m")
        assert await d.fire_schedules() == Fired(2, d.clock.now())
        assert [len(await d.ticks(name)) for name in ("a", "b")] == [2, 1]
        assert (await d.fire_schedules()).count == 1
        assert [len(await d.ticks(name)) for name in ("a", "b")] == [2, 2]

    async def test_years_of_missed_ticks_cost_no_time(self, d: Driver) -> None:
        await d.schedule("minutely", "* * * * *")
        d.advance("1000d")
        await d.fire_schedules()
        assert len(await d.ticks("minutely")) == 1
        ((reason, first, _, count),) = await told(d)
        assert (reason, first, count) == ("missed", tick("09:01"), limits.schedule_missed_max)

    # --- when the last run still lives ---

    async def test_a_tick_is_skipped_while_the_last_run_lives(self, d: Driver) -> None:
        await d.schedule("often")
        for _ in range(4):
            d.advance("1m")
            await d.fire_schedules()
        assert await d.ticks("often") == [tick("09:01")]
        assert await told(d) == [("overlap", tick("09:02"), tick("09:02"), 1)], "told once"
        assert (await d.scheduled("often")).skipped == 3
        await end(d, f"often@{tick('09:01')}")
        d.advance("1m")
        await d.fire_schedules()
        d.advance("1m")
        await d.fire_schedules()
        assert await d.ticks("often") == [tick("09:01"), tick("09:05")]
        assert len(await told(d)) == 2, "it is told again of the next one that hangs"

    async def test_a_paused_run_lives_and_a_terminated_one_does_not(self, d: Driver) -> None:
        await d.schedule("often")
        d.advance("1m")
        await d.fire_schedules()
        await d.pause(f"often@{tick('09:01')}")
        d.advance("1m")
        await d.fire_schedules()
        await d.terminate(f"often@{tick('09:01')}")
        d.advance("1m")
        await d.fire_schedules()
        assert await d.ticks("often") == [tick("09:01"), tick("09:03")]

    @pytest.mark.parametrize("overlap", ["skip", "queue"])
    async def test_a_run_that_is_tried_again_lives_again(self, d: Driver, overlap: Any) -> None:
        await d.schedule("often", overlap=overlap)
        for failed in ("09:01", "09:02"):
            d.advance("1m")
            await d.fire_schedules()
            await d.claim()
            await d.fail(f"often@{tick(failed)}")
        await d.retry(f"often@{tick('09:01')}")
        d.advance("1m")
        await d.fire_schedules()
        assert await d.ticks("often") == [tick("09:01"), tick("09:02")]
        await end(d, f"often@{tick('09:01')}")
        d.advance("1m")
        await d.fire_schedules()
        assert len(await d.ticks("often")) == 3

    async def test_tags_of_a_users_own_make_no_run_of_a_schedule(self, d: Driver) -> None:
        row = await d.schedule("often")
        await d.start("mine", tags='{"schedule":"often","tick":"now"}')
        await d.fail("mine")
        await d.retry("mine")
        assert await d.scheduled("often") == row

    async def test_or_it_waits_until_that_has_ended(self, d: Driver) -> None:
        await d.schedule("often", overlap="queue")
        for _ in range(3):
            d.advance("1m")
            await d.fire_schedules()
        row = await d.scheduled("often")
        assert len(msgspec.json.decode(row.queued)) == 2
        assert row.due_at == row.next_at, "nothing to do until the next tick, or the end of the run"
        d.advance("10s")
        await end(d, f"often@{tick('09:01')}")
        assert ("schedule", d.clock.now()) in [(one.kind, one.at) for one in d.heard[-1].wakes]
        assert (await d.store.look()).schedule_at == d.clock.now()
        assert await d.fire_schedules() == Fired(1, row.next_at)
        assert await d.ticks("often") == [tick("09:01"), tick("09:02")]
        await d.terminate(f"often@{tick('09:02')}")
        assert (await d.fire_schedules()).count == 1
        assert await d.ticks("often") == [tick("09:01"), tick("09:02"), tick("09:03")]
        assert await told(d) == []

    async def test_what_waits_is_bounded_and_the_rest_is_skipped(
        self, d: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "schedule_queue_max", 2)
        await d.schedule("often", overlap="queue")
        for _ in range(6):
            d.advance("1m")
            await d.fire_schedules()
        assert await told(d) == [("full", tick("09:04"), tick("09:04"), 1)], "told once"
        assert (await d.scheduled("often")).skipped == 3
        await end(d, f"often@{tick('09:01')}")
        await d.fire_schedules()
        for _ in range(2):
            d.advance("1m")
            await d.fire_schedules()
        assert len(await told(d)) == 2, "it is told again of the next one that hangs"

    async def test_what_waits_stays_while_it_is_paused(self, d: Driver) -> None:
        await d.schedule("often", overlap="queue")
        for _ in range(2):
            d.advance("1m")
            await d.fire_schedules()
        await d.steer_schedule("often", True)
        await end(d, f"often@{tick('09:01')}")
        assert await d.fire_schedules() == Fired(0, None)
        row = await d.steer_schedule("often", False)
        assert isinstance(row, ScheduleRecord)
        assert row.due_at == d.clock.now()
        await d.fire_schedules()
        assert await d.ticks("often") == [tick("09:01"), tick("09:02")]

    async def test_or_runs_go_side_by_side(self, d: Driver) -> None:
        await d.schedule("often", overlap="allow")
        for _ in range(3):
            d.advance("1m")
            await d.fire_schedules()
        assert await d.ticks("often") == [tick("09:01"), tick("09:02"), tick("09:03")]

    async def test_all_that_was_missed_is_made_up_for_one_after_the_other(self, d: Driver) -> None:
        """Unless they may overlap: three days of a nightly job at once are what nobody asked for."""
        await d.schedule("often", catch_up="all")
        d.advance("3m")
        await d.fire_schedules()
        assert await d.ticks("often") == [tick("09:01")]
        await end(d, f"often@{tick('09:01')}")
        await d.fire_schedules()
        await end(d, f"often@{tick('09:02')}")
        await d.fire_schedules()
        assert await d.ticks("often") == [tick("09:01"), tick("09:02"), tick("09:03")]
        assert await told(d) == []

    async def test_a_schedule_that_cannot_be_understood_stops_and_keeps_nobody_up(
        self, d: Driver
    ) -> None:
        await d.schedule("fine")
        await d.schedule("bad", "* * * * *", zone="Europe/Berlin")
        d.advance("1m")
        parse = cron.parse_cron

        def refuse(text: str, zone: str = "UTC") -> Any:
            """As a process whose database of zones is older."""
            return parse(text, "Not/Known" if zone != "UTC" else zone)

        with pytest.MonkeyPatch.context() as without:
            without.setattr(ticks, "parse_cron", refuse)
            assert (await d.fire_schedules()).count == 2
        assert await d.ticks("fine") == [tick("09:01")]
        stopped = await d.scheduled("bad")
        assert (stopped.paused, stopped.due_at) == (True, None)
        assert "Not/Known" in (stopped.reason or "")
        (fact,) = await facts(d, "schedule.stopped")
        assert (fact.entity_type, fact.entity_id) == ("schedule", "bad")

    async def test_a_schedule_whose_pool_is_not_there_stops_and_loses_no_tick(
        self, d: Driver
    ) -> None:
        await d.schedule("often", overlap="allow", catch_up="all")
        d.advance("2m")
        fired = await d.fire_schedules(pools=((WORKFLOW, "gpuu"),))
        assert fired == Fired(1, None)
        row = await d.scheduled("often")
        assert (row.paused, row.last_run_id, row.last_at, row.living) == (True, None, None, "[]")
        assert "gpuu" in (row.reason or "")
        (fact,) = await facts(d, "schedule.stopped")
        assert (fact.entity_type, fact.entity_id) == ("schedule", "often")
        await d.set_pool("gpuu")
        await d.steer_schedule("often", False)
        await d.fire_schedules(pools=((WORKFLOW, "gpuu"),))
        assert await d.ticks("often") == [tick("09:01"), tick("09:02")]

    async def test_facts_about_it_are_on_its_own_timeline_also_without_a_life_cycle(
        self, quiet: Driver
    ) -> None:
        await quiet.schedule("often")
        quiet.advance("5m")
        await quiet.fire_schedules()
        (fact,) = await quiet.store.events(0, 10, entity=("schedule", "often"))
        assert fact.type == "schedule.skipped"


class TestTicksByHand(Subject):
    async def test_one_is_triggered_at_once_apart_from_the_calendar(self, d: Driver) -> None:
        before = await d.schedule("nightly", "0 3 * * *")
        assert isinstance(before, ScheduleRecord)
        started = await d.trigger("nightly", "nightly@now")
        assert isinstance(started, Started)
        assert (started.created, started.run.status) == (True, "ready")
        assert msgspec.json.decode(started.run.tags or "") == {
            "schedule": "nightly",
            "tick": tick("09:00"),
        }
        row = await d.scheduled("nightly")
        assert (row.next_at, row.last_run_id) == (before.next_at, "nightly@now")

    async def test_a_trigger_that_is_repeated_starts_nothing_more(self, d: Driver) -> None:
        await d.schedule("nightly", "0 3 * * *")
        await d.trigger("nightly", "nightly@now")
        again = await d.trigger("nightly", "nightly@now")
        assert isinstance(again, Started)
        assert not again.created

    async def test_also_while_a_run_lives_or_it_is_paused(self, d: Driver) -> None:
        await d.schedule("nightly", "0 3 * * *")
        await d.steer_schedule("nightly", True)
        for number in range(2):
            started = await d.trigger("nightly", f"nightly@{number}")
            assert isinstance(started, Started)
            assert started.created

    async def test_a_triggered_run_counts_as_one_that_lives(self, d: Driver) -> None:
        await d.schedule("often")
        await d.trigger("often", "often@one")
        await d.trigger("often", "often@two")
        await d.terminate("often@two")
        d.advance("1m")
        await d.fire_schedules()
        assert await told(d) == [("overlap", tick("09:01"), tick("09:01"), 1)]
        await d.terminate("often@one")
        d.advance("1m")
        await d.fire_schedules()
        assert (await d.scheduled("often")).last_run_id == f"often@{tick('09:02')}"

    async def test_a_pool_that_is_not_there_is_refused(self, d: Driver) -> None:
        row = await d.schedule("hourly", "0 * * * *", overlap="allow")
        now = d.clock.now()
        for answer in (
            await d.trigger("hourly", "hourly@now", pool="gpuu"),
            await d.backfill("hourly", now - HOUR, now, pool="gpuu"),
        ):
            assert isinstance(answer, Refusal)
            assert (answer.code, answer.detail) == ("no_pool", "gpuu")
        assert (await d.scheduled("hourly"), await d.ticks("hourly")) == (row, [])

    async def test_a_workflow_that_it_no_longer_starts_is_refused(self, d: Driver) -> None:
        await d.schedule("often", workflow="refunds")
        for answer in (await d.trigger("often", "r1"), await d.backfill("often", 0, 1)):
            assert isinstance(answer, Refusal)
            assert answer.code == "conflict"
        assert await d.store.run("r1") is None

    async def test_a_window_is_filled_once(self, d: Driver) -> None:
        await d.schedule("hourly", "0 * * * *", overlap="allow")
        now = d.clock.now()
        window = (now - 3 * HOUR, now)
        assert await d.backfill("hourly", *window) == Filled(3, 0, now)
        assert await d.ticks("hourly") == [tick("07:00"), tick("08:00"), tick("09:00")]
        assert await d.backfill("hourly", *window) == Filled(0, 3, now)
        row = await d.scheduled("hourly")
        assert (row.last_at, row.next_at) == (now, now + HOUR)

    async def test_in_parts(self, d: Driver) -> None:
        await d.schedule("hourly", "0 * * * *", overlap="allow")
        now = d.clock.now()
        first = await d.backfill("hourly", now - 3 * HOUR, now, limit=2)
        assert first == Filled(2, 0, now - HOUR)
        assert await d.backfill("hourly", now - HOUR, now, limit=2) == Filled(1, 0, now)
        assert await d.backfill("hourly", now, now, limit=2) == Filled(0, 0, None)

    async def test_never_early(self, d: Driver) -> None:
        await d.schedule("hourly", "0 * * * *", overlap="allow")
        now = d.clock.now()
        assert await d.backfill("hourly", now - HOUR, now + DAY) == Filled(1, 0, now)

    async def test_an_interval_has_ticks_before_its_beginning(self, d: Driver) -> None:
        await d.schedule("often", "15m", overlap="allow")
        now = d.clock.now()
        assert await d.backfill("often", now - 30 * MINUTE, now) == Filled(2, 0, now)
        assert await d.ticks("often") == [tick("08:45"), tick("09:00")]

    async def test_a_tick_that_was_filled_does_not_start_again(self, d: Driver) -> None:
        await d.schedule("often", overlap="allow", catch_up="all")
        d.advance("2m")
        now = d.clock.now()
        await d.backfill("often", now - MINUTE, now)
        await d.fire_schedules()
        assert await d.ticks("often") == [tick("09:01"), tick("09:02")]
        runs = [
            one for one in await everything(d.store.events) if one.type == "workflow.run_started"
        ]
        assert len(runs) == 2

    @pytest.mark.parametrize("overlap", ["skip", "queue"])
    async def test_one_after_the_other_where_runs_must_not_overlap(
        self, d: Driver, overlap: Any
    ) -> None:
        await d.schedule("hourly", "0 * * * *", overlap=overlap)
        now = d.clock.now()
        assert await d.backfill("hourly", now - 3 * HOUR, now) == Filled(3, 0, now)
        assert await d.ticks("hourly") == []
        assert (await d.store.look()).schedule_at == now
        assert await d.backfill("hourly", now - 3 * HOUR, now) == Filled(0, 3, now)
        for done in range(3):
            await d.fire_schedules()
            begun = await d.ticks("hourly")
            assert len(begun) == done + 1
            await end(d, f"hourly@{begun[-1]}")
        assert (await d.scheduled("hourly")).last_at == now

    @pytest.mark.parametrize("overlap", ["skip", "queue", "allow"])
    async def test_while_it_is_paused_nothing_starts(self, d: Driver, overlap: Any) -> None:
        await d.schedule("hourly", "0 * * * *", overlap=overlap)
        await d.steer_schedule("hourly", True)
        now = d.clock.now()
        assert await d.backfill("hourly", now - 2 * HOUR, now) == Filled(2, 0, now)
        assert await d.fire_schedules() == Fired(0, None)
        assert await d.ticks("hourly") == []
        await d.steer_schedule("hourly", False)
        await d.fire_schedules()
        assert len(await d.ticks("hourly")) == (2 if overlap == "allow" else 1)

    async def test_no_more_than_may_wait(self, d: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "schedule_queue_max", 2)
        await d.schedule("hourly", "0 * * * *")
        now = d.clock.now()
        filled = await d.backfill("hourly", now - 3 * HOUR, now)
        assert filled == Filled(2, 0, now - HOUR, full=True)

    async def test_a_day_of_the_autumn_has_its_tick_once(self, d: Driver) -> None:
        await d.schedule("early", "30 2 * * *", zone="Europe/Berlin", overlap="allow")
        d.advance("300d")
        # Midnight to midnight in Berlin on 25 October 2026, when 02:30 came twice.
        window = (_utc("2026-10-24T22:00:00"), _utc("2026-10-25T23:00:00"))
        assert await d.backfill("early", *window) == Filled(1, 0, _utc("2026-10-25T00:30:00"))


def _utc(text: str) -> int:
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=UTC))
