"""Ticks of schedules: the newest ones are found without walking through all, and always the ones that a walk finds."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.clock import from_datetime
from perdure.model.limits import BadValue
from perdure.model.records import ScheduleRecord
from perdure.model.ticks import (
    Calendar,
    calendar_of,
    parse_every,
    run_id_of,
    tags_of,
    tick_of,
    tick_text,
)

SECOND = 1_000_000
DAY = 24 * 3600 * SECOND


def at(text: str) -> int:
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=UTC))


def calendar(every: Any, zone: str = "UTC", anchor: str = "2026-01-01 00:00") -> Calendar:
    cron, interval_us = parse_every(every, zone)
    return calendar_of(
        ScheduleRecord(
            name="s",
            workflow="w",
            input="[]",
            cron=cron,
            interval_us=interval_us,
            zone=zone,
            anchor_at=at(anchor),
        )
    )


calendars = st.builds(
    calendar,
    st.sampled_from(
        [
            "*/15 * * * *",
            "0 * * * *",
            "30 2 * * *",
            "0 */2 * * *",
            "0,1 0 * * *",
            "0 7 * * mon-fri",
            "0 0 1 * *",
        ]
    ),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
) | st.builds(calendar, st.sampled_from(["7m", "1h", "1d", 90, timedelta(hours=36)]))
# Around both changes of the clocks, north and south.
times = st.integers(at("2026-03-01"), at("2026-04-10")) | st.integers(
    at("2026-10-01"), at("2026-11-10")
)


@given(calendars, times, st.integers(0, 12 * DAY), st.integers(1, 40))
def test_the_newest_are_those_that_a_walk_finds(
    calendar: Calendar, after: int, span: int, limit: int
) -> None:
    walked = list(calendar.walk(after, after + span))
    assert walked == sorted(set(walked))
    assert all(after < one <= after + span for one in walked)
    if not walked:
        return
    assert calendar.last(walked[0], after + span) == walked[-1]
    assert calendar.newest(walked[0], after + span, limit) == walked[-limit:]
    assert calendar.count(walked[0], walked[-1], limit) == min(limit, len(walked))


@given(calendars, times, st.integers(0, 2 * DAY))
def test_who_asks_later_finds_no_earlier_tick(calendar: Calendar, asked: int, later: int) -> None:
    """By this the newest can be looked for by halves."""
    assert asked < calendar.after(asked) <= calendar.after(asked + later)


def test_thirty_years_of_minutes_are_not_walked_through() -> None:
    minutely = calendar("* * * * *", "Europe/Berlin")
    first, now = at("2000-01-01 00:01"), at("2030-01-01 00:00:30")
    began = time.process_time()
    assert minutely.last(first, now) == at("2030-01-01 00:00")
    assert len(minutely.newest(first, now, 1000)) == 1000
    assert minutely.count(first, now, 1000) == 1000
    assert time.process_time() - began < 2


def test_the_newest_of_a_month_long_ago() -> None:
    january = calendar("* * * 1 *")
    assert january.last(at("2026-01-01 00:01"), at("2026-12-31")) == at("2026-01-31 23:59")
    newest = january.newest(at("2026-01-01 00:01"), at("2026-12-31"), 3)
    assert newest == [at(f"2026-01-31 23:{minute}") for minute in (57, 58, 59)]


def test_an_interval_counts_from_its_anchor_to_both_sides() -> None:
    hours = calendar("36h", anchor="2026-03-29 00:30")
    assert hours.after(at("2026-03-29 00:30")) == at("2026-03-30 12:30")
    assert hours.after(at("2026-03-29 00:29")) == at("2026-03-29 00:30")
    assert hours.after(at("2026-03-27 00:00")) == at("2026-03-27 12:30")


@pytest.mark.parametrize(
    ("every", "cron", "interval_us"),
    [
        ("0 7 * * mon-fri", "0 7 * * MON-FRI", None),
        ("@daily", "0 0 * * *", None),
        ("15m", None, 900 * SECOND),
        ("1h 30m", None, 5400 * SECOND),
        ("1w 2d 3h 4m 5s", None, (9 * 86400 + 3 * 3600 + 4 * 60 + 5) * SECOND),
        (timedelta(seconds=1), None, SECOND),
        (1.5, None, 1_500_000),
    ],
)
def test_cron_and_intervals_are_told_apart(every: Any, cron: Any, interval_us: Any) -> None:
    assert parse_every(every) == (cron, interval_us)


@pytest.mark.parametrize(
    ("every", "words"),
    [
        ("0 7 * *", "has 4 fields"),
        ("*/5", "has 1 fields"),
        ("1 2", "has 2 fields"),
        ("@never", "no alias"),
        ("15x", "neither cron nor an interval; give cron"),
        ("-5m", "neither cron nor an interval"),
        (-5, "is no interval"),
        ([], "is no interval"),
        ("999ms", "shorter than a second"),
        ("100000w", "neither cron nor an interval"),
    ],
)
def test_what_is_neither_is_refused(every: Any, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        parse_every(every)


def test_a_tick_in_an_id_in_tags_and_back() -> None:
    tick = at("2026-01-06 06:00")
    assert tick_text(tick) == "2026-01-06T06:00:00Z"
    assert run_id_of("nightly", tick) == "nightly@2026-01-06T06:00:00Z"
    assert tick_text(tick + 500_000) == "2026-01-06T06:00:00.500000Z"
    assert tick_of(tags_of("nightly", tick)) == datetime(2026, 1, 6, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    "tags", [None, "{}", '{"a":"b"}', '{"schedule":"s"}', '{"schedule":"s","tick":"noon"}']
)
def test_tags_that_no_schedule_has_made_hold_no_tick(tags: str | None) -> None:
    assert tick_of(tags) is None
