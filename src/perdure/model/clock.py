"""The two clocks everything is given, and the way between stored microseconds and datetimes.

`now` is wall time in whole microseconds since 1970 UTC, the only form in which a time is stored; it
may step back. `monotonic` is for measuring within this process. Code below the app never asks the
operating system.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from perdure.model.limits import BadValue

_epoch = datetime(1970, 1, 1, tzinfo=UTC)
_microsecond = timedelta(microseconds=1)
# What can be stored and shown again: the years 1 to 9999.
first_us = (datetime.min.replace(tzinfo=UTC) - _epoch) // _microsecond
last_us = (datetime.max.replace(tzinfo=UTC) - _epoch) // _microsecond


class Clock(Protocol):
    def now(self) -> int:
        """Microseconds since the epoch, UTC. May step back."""
        ...

    def monotonic(self) -> float:
        """Seconds since an unknown start. Never steps back."""
        ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()


def to_datetime(us: int) -> datetime:
    """The aware UTC datetime of stored microseconds, exact (no float in between)."""
    try:
        return _epoch + timedelta(microseconds=us)
    except OverflowError:
        raise BadValue("time", us, "lies outside the years 1 to 9999") from None


def from_datetime(moment: datetime, what: str = "datetime") -> int:
    """Stored microseconds of an aware datetime; a naive one is refused: its zone is a guess."""
    if moment.utcoffset() is None:
        raise BadValue(what, moment, "has no time zone; use datetime.now(UTC) or add tzinfo=")
    us = (moment - _epoch) // _microsecond
    # Its zone may lead over the edge: stored, it could not be read again.
    if not first_us <= us <= last_us:
        raise BadValue(what, moment, "lies outside the years 1 to 9999 in UTC")
    return us
