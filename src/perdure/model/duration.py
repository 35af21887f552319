"""Durations as users write them, and as the engine keeps them: whole microseconds.

A timedelta, a number of seconds, or text such as "1h30m" comes in; an int goes out. Anything
ambiguous (a number without unit in text, a unit twice, a bool) is refused with the accepted forms
in the message.
"""

import functools
import math
import re
from datetime import timedelta
from fractions import Fraction

from perdure.model.limits import BadValue, duration_chars_max, duration_us_max

Duration = timedelta | int | float | str

_forms = (
    "give a timedelta, seconds, or text such as '1h30m', '2d', '1.5s', '250ms' "
    "(units w d h m s ms us)"
)
_unit_us = {
    "w": 7 * 86_400_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_number = r"[0-9]{1,20}(?:\.[0-9]{1,20})?"
# Each unit at most once and the larger first, so that "1m1h" is a typing error and not an hour. The
# look-ahead keeps "5ms" from being read as five minutes and a stray "s".
_text = re.compile("".join(rf"(?:({_number})\s?{unit}(?![a-z])\s?)?" for unit in _unit_us))


def parse_duration(value: Duration, what: str = "duration") -> int:
    """Whole microseconds; zero is allowed, a negative one and more than ten years are not. `what` an error names."""
    us = _microseconds(value, what)
    if us < 0:
        raise BadValue(what, value, f"is negative; {_forms}")
    if us > duration_us_max:
        raise BadValue(what, value, "is longer than ten years (duration_us_max)")
    return us


def _microseconds(value: Duration, what: str) -> int:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, str):
        return _parse_text(value, what)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(what, value, f"is a {type(value).__name__}; {_forms}")
    if isinstance(value, int):
        return value * 1_000_000
    if not math.isfinite(value):
        raise BadValue(what, value, f"is not finite; {_forms}")
    return round(Fraction(value) * 1_000_000)


# Programs write a handful of durations and use them all day.
@functools.lru_cache(maxsize=1024)
def _parse_text(text: str, what: str) -> int:
    if len(text) > duration_chars_max:
        raise BadValue(what, text, f"is longer than {duration_chars_max} characters; {_forms}")
    match = _text.fullmatch(text.strip())
    if match is None or match.lastindex is None:
        raise BadValue(what, text, f"is not understood; {_forms}")
    parts = zip(match.groups(), _unit_us.values(), strict=True)
    return round(sum(Fraction(number) * unit for number, unit in parts if number))
