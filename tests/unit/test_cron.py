"""Cron expressions: what is read, what is refused, and the two days on which clocks are changed."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.clock import from_datetime, to_datetime
from perdure.model.cron import Cron, parse_cron
from perdure.model.limits import BadValue, cron_chars_max

berlin = ZoneInfo("Europe/Berlin")
minute_us = 60_000_000


def at(text: str) -> int:
    """Microseconds of a time in UTC."""
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=UTC))


def ticks(cron: Cron, start: str, count: int) -> list[str]:
    """The next ticks after a time in UTC, each as UTC."""
    found, last = [], at(start)
    for _ in range(count):
        last = cron.after(last)
        found.append(to_datetime(last).strftime("%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("text", "start", "tick"),
    [
        ("*/5 * * * *", "2026-01-01 00:00", "2026-01-01 00:05"),
        ("*/5 * * * *", "2026-01-01 00:04:59.999999", "2026-01-01 00:05"),
        ("*/5 * * * *", "2026-01-01 00:05:00.000001", "2026-01-01 00:10"),
        ("30 9 * * MON-FRI", "2026-01-02 10:00", "2026-01-05 09:30"),
        ("30 9 * * mon-fri", "2026-01-02 10:00", "2026-01-05 09:30"),
        ("0 0 L * *", "2026-02-01 00:00", "2026-02-28 00:00"),
        ("0 0 * * 1#1", "2026-02-03 00:00", "2026-03-02 00:00"),
        ("0 0 29 2 *", "2026-01-01 00:00", "2028-02-29 00:00"),
        ("0 0 13 * 5", "2026-01-01 12:00", "2026-01-02 00:00"),
        ("  0\t0  1 1 *  ", "2026-01-01 00:00", "2027-01-01 00:00"),
        ("@hourly", "2026-01-01 00:00", "2026-01-01 01:00"),
        ("@daily", "2026-01-01 00:00", "2026-01-02 00:00"),
        ("@weekly", "2026-01-01 00:00", "2026-01-04 00:00"),
        ("@monthly", "2026-01-01 00:00", "2026-02-01 00:00"),
        ("@yearly", "2026-01-01 00:00", "2027-01-01 00:00"),
        ("@Daily", "1969-12-30 12:00", "1969-12-31 00:00"),
    ],
)
def test_the_next_tick_lies_strictly_after(text: str, start: str, tick: str) -> None:
    assert to_datetime(parse_cron(text).after(at(start))) == to_datetime(at(tick))


def test_equal_schedules_are_equal_values() -> None:
    assert parse_cron("@daily") == parse_cron(" 0 0  * * * ") == Cron("0 0 * * *")
    assert parse_cron("@daily", "Europe/Berlin") != parse_cron("@daily")
    assert len({parse_cron("@daily"), parse_cron("0 0 * * *")}) == 1
    with pytest.raises(AttributeError):
        parse_cron("@daily").text = "0 0 1 * *"  # type: ignore[misc]


def test_a_zone_moves_the_tick() -> None:
    daily = parse_cron("@daily", "Europe/Berlin")
    assert ticks(daily, "2026-01-01 12:00", 1) == ["01-01 23:00"]
    assert ticks(daily, "2026-07-01 12:00", 1) == ["07-01 22:00"]


def test_has_tick_counts_the_end_and_not_the_beginning() -> None:
    daily, midnight = parse_cron("@daily"), at("2026-01-02")
    assert daily.has_tick(midnight - 1, midnight)
    assert not daily.has_tick(midnight, midnight + 1)
    assert not daily.has_tick(midnight - 2, midnight - 1)
    assert not daily.has_tick(midnight, midnight)
    assert not daily.has_tick(midnight + 1, midnight - 1)
    assert daily.has_tick(at("2025-01-01"), midnight), "also when many were missed"


# --- daylight saving -----------------------------------------------------------------------------
# Berlin 2026: on 29 March 02:00 becomes 03:00 (01:00 UTC); on 25 October 03:00 becomes 02:00 (01:00 UTC).


def test_a_time_that_is_jumped_over_ticks_at_the_end_of_the_jump() -> None:
    half_past_two = parse_cron("30 2 * * *", "Europe/Berlin")
    assert ticks(half_past_two, "2026-03-28 00:00", 3) == [
        "03-28 01:30",
        "03-29 01:00",  # 03:00 in Berlin
        "03-30 00:30",
    ]


def test_a_time_that_comes_twice_ticks_the_first_time_only() -> None:
    half_past_two = parse_cron("30 2 * * *", "Europe/Berlin")
    assert ticks(half_past_two, "2026-10-24 12:00", 2) == ["10-25 00:30", "10-26 01:30"]


@pytest.mark.parametrize("asked", ["00:30", "00:45", "01:00", "01:29:59", "01:30", "01:45"])
def test_asking_within_the_hour_that_comes_twice_finds_the_next_day(asked: str) -> None:
    """A restart between the two must neither tick again nor answer with a time that has passed."""
    half_past_two = parse_cron("30 2 * * *", "Europe/Berlin")
    assert ticks(half_past_two, f"2026-10-25 {asked}", 1) == ["10-26 01:30"]


def test_quarters_follow_the_wall_through_the_hour_that_comes_twice() -> None:
    quarters = parse_cron("*/15 * * * *", "Europe/Berlin")
    hours = [
        f"10-25 {hour}:{minute}" for hour in ("00", "01") for minute in ("00", "15", "30", "45")
    ]
    assert ticks(quarters, "2026-10-24 23:45", 9) == [*hours, "10-25 02:00"]


def test_quarters_follow_the_wall_over_the_jump() -> None:
    quarters = parse_cron("*/15 * * * *", "Europe/Berlin")
    assert ticks(quarters, "2026-03-29 00:30", 3) == ["03-29 00:45", "03-29 01:00", "03-29 01:15"]


# Lord Howe Island 2026: on 5 April 02:00 becomes 01:30 (15:00 UTC the day before); on 4 October 02:30 (15:30 UTC).


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("45 * * * *", ["14:45", "15:15", "16:15"]),  # 01:45 twice, then 02:45
        ("*/15 2 * * *", ["15:30", "15:45", "16:00", "16:15"]),
        ("0 * * * *", ["14:00", "15:30", "16:30"]),  # 01:00, 02:00, 03:00
    ],
)
def test_clocks_that_are_put_back_by_half_an_hour(text: str, expected: list[str]) -> None:
    found = ticks(parse_cron(text, "Australia/Lord_Howe"), "2026-04-04 13:50", len(expected))
    assert found == [f"04-04 {one}" for one in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15 * * * *", ["14:45", "16:15"]),  # 01:15, then 03:15
        ("*/10 2 * * *", ["15:30", "15:40", "15:50"]),  # from 02:30 on
        ("15 2 * * *", ["15:30"]),
    ],
)
def test_clocks_that_are_put_forward_by_half_an_hour(text: str, expected: list[str]) -> None:
    found = ticks(parse_cron(text, "Australia/Lord_Howe"), "2026-10-03 13:50", len(expected))
    assert found == [f"10-03 {one}" for one in expected]


def test_a_day_that_has_no_midnight() -> None:
    """Santiago, 6 September 2026: at 00:00 it is 01:00 (04:00 UTC). It is a first Sunday all the same."""
    early = parse_cron("*/20 1 * * SUN#1", "America/Santiago")
    assert ticks(early, "2026-09-04 12:00", 3) == [
        f"09-06 {one}" for one in "04:00 04:20 04:40".split()
    ]


def test_a_day_that_did_not_come() -> None:
    """Samoa had no 30 December 2011: 10:00 UTC was midnight before and after it."""
    noon = parse_cron("0 12 * * *", "Pacific/Apia")
    assert ticks(noon, "2011-12-29 00:00", 3) == ["12-29 22:00", "12-30 10:00", "12-30 22:00"]
    hourly = parse_cron("0 */6 * * *", "Pacific/Apia")
    assert ticks(hourly, "2011-12-30 03:00", 3) == ["12-30 04:00", "12-30 10:00", "12-30 16:00"]


expressions = st.sampled_from(
    [
        "*/15 * * * *",
        "45 * * * *",
        "*/15 2 * * *",
        "30 2 * * *",
        "0,30 1-3 * * *",
        "@hourly",
        "@daily",
        "0 */2 * * *",
        "5 4 1 * *",
    ]
)
zones = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Asia/Kolkata",
        "America/Havana",
        "Australia/Lord_Howe",
    ]
)
# Around the changes of 2026 and on any other day.
moments = st.integers(at("2026-01-01"), at("2027-01-01")) | st.sampled_from(
    [
        "2026-03-29 01:00",
        "2026-10-25 01:00",
        "2026-03-08 07:00",
        "2026-11-01 06:00",
        "2026-04-04 15:00",
        "2026-10-03 15:30",
    ]
).flatmap(lambda day: st.integers(at(day) - 300 * minute_us, at(day) + 300 * minute_us))


@given(expressions, zones, moments, st.floats(0, 1))
def test_whoever_asks_before_a_tick_hears_the_same_tick(
    text: str, zone: str, start: int, share: float
) -> None:
    cron = parse_cron(text, zone)
    tick = cron.after(start)
    assert tick > start
    between = min(start + int((tick - start) * share), tick - 1)
    assert cron.after(between) == tick
    assert cron.has_tick(between, tick)
    assert not cron.has_tick(between, tick - 1)


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("0 30 2 * * *", "has six fields; seconds are not scheduled"),
        ("* * * * * * *", "has 7 fields"),
        ("60 * * * *", "has a bad minute"),
        ("* 24 * * *", "has a bad hour"),
        ("0 0 32 2 *", "has a bad day-of-month"),
        ("0 0 31 2 *", "never ticks"),
        ("0 0 31 4,6 *", "never ticks"),
        ("0 0 * 13 *", "has a bad month"),
        ("0 0 * * FOO", "has a bad day-of-week"),
        ("*/0 * * * *", "has a bad minute"),
        ("5-1 * * * *", "has a bad minute"),
        ("-1 * * * *", "has a bad minute"),
        ("1,,2 * * * *", "has a bad minute"),
        ("0 0 */30 2 MON#5", "never ticks"),
        ("@every 5m", "has 2 fields"),
        ("@reboot", "is no alias that is known"),
        ("\u0665 * * * *", "other than ASCII"),
        ("0 0 * * \u017fun", "other than ASCII"),
        ("1," * cron_chars_max + "1 * * * *", "cron_chars_max"),
        (None, "is a NoneType; give a str"),
        (5, "is a int; give a str"),
        (b"* * * * *", "is a bytes; give a str"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_forms(text: object, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_cron(text)  # type: ignore[arg-type]
    assert str(caught.value).startswith("cron ")
    assert words in str(caught.value)
    assert "give" in str(caught.value)


@pytest.mark.parametrize(
    "zone",
    ["", "Berlin", "Europe", "../etc/passwd", "/etc/localtime", "a\0b", "x" * 999, None, UTC],
)
def test_an_unknown_zone_is_refused(zone: object) -> None:
    with pytest.raises(BadValue, match=r"time zone .*give a"):
        parse_cron("@daily", zone)  # type: ignore[arg-type]


def test_after_the_end_of_the_calendar_there_is_no_tick() -> None:
    with pytest.raises(BadValue, match="no tick after 9999"):
        parse_cron("@daily").after(at("9999-12-31 12:00"))
    with pytest.raises(BadValue, match="9999"):
        parse_cron("@daily", "Europe/Berlin").after(at("9999-12-31 23:30"))


fields = st.text("0123456789*/,-#LW@MONJAFEB ", max_size=12)


@given(st.text(max_size=20) | st.lists(fields, min_size=5, max_size=5).map(" ".join))
def test_any_text_is_a_schedule_or_a_bad_value(text: str) -> None:
    try:
        cron = parse_cron(text)
    except BadValue:
        return
    assert cron.after(at("2026-01-01")) > at("2026-01-01")
    assert parse_cron(cron.text) == cron
