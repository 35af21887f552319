"""Durations as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.duration import parse_duration
from perdure.model.limits import BadValue, duration_us_max

second = 1_000_000


@pytest.mark.parametrize(
    ("value", "us"),
    [
        ("1h30m", 5400 * second),
        ("48h", 48 * 3600 * second),
        ("2d", 2 * 86400 * second),
        ("1w", 7 * 86400 * second),
        ("1.5s", 1_500_000),
        ("250ms", 250_000),
        ("5us", 5),
        ("3m5ms", 180_005_000),
        ("1w2d3h4m5s6ms7us", 788_645_006_007),
        (" 1h 30m ", 5400 * second),
        ("1.5 h", 5400 * second),
        ("0s", 0),
        ("0.0000001s", 0),
        (0, 0),
        (30, 30 * second),
        (0.25, 250_000),
        (1e-6, 1),
        (timedelta(days=1, microseconds=1), 86400 * second + 1),
        (timedelta(0), 0),
    ],
)
def test_accepted_forms(value: timedelta | int | float | str, us: int) -> None:
    assert parse_duration(value) == us


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "5",
        "h",
        "1x",
        "1mm",
        "1m1h",
        "1s1s",
        "-1s",
        "+1s",
        "1e3s",
        "1,5s",
        "1..5s",
        ".5s",
        "1h-30m",
        "1H",
        "\u0661s",
        "1h30",
        "inf",
        "nan",
        "1" * 100 + "s",
        "1s" * 100,
        -1,
        -0.5,
        float("nan"),
        float("inf"),
        float("-inf"),
        True,
        False,
        None,
        [1],
        b"1s",
        timedelta(days=-1),
        "11y",
        "99999999999999999999w",
        10**12,
        1e300,
        timedelta.max,
    ],
)
def test_everything_else_is_refused(value: object) -> None:
    with pytest.raises(BadValue, match="duration"):
        parse_duration(value)  # type: ignore[arg-type]


def test_the_refusal_says_which_forms_are_accepted() -> None:
    with pytest.raises(BadValue, match=r"'1h30m'.*units w d h m s ms us"):
        parse_duration("soon")


@given(st.integers(0, duration_us_max))
def test_microseconds_are_exact(us: int) -> None:
    assert parse_duration(f"{us}us") == us


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3650)))
def test_a_timedelta_is_exact(value: timedelta) -> None:
    assert timedelta(microseconds=parse_duration(value)) == value


@given(st.text(alphabet="0123456789.wdhmsu -", max_size=70))
def test_odd_text_gives_a_number_or_bad_value(text: str) -> None:
    try:
        assert 0 <= parse_duration(text) <= duration_us_max
    except BadValue:
        pass
