"""The ticks of a schedule: a cron expression in a time zone, or an interval from an anchor on.

Pure: which ticks there are depends on the calendar alone, so all processes agree on them. After a long silence the
newest ticks are wanted, and there may be half a million older ones: nothing here walks through those.

An interval is elapsed time. It knows no days and no clocks that are changed; a tick is the anchor plus so many times
the interval, before the anchor too.
"""

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from perdure.model.clock import to_datetime
from perdure.model.cron import Cron, parse_cron
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import BadValue, schedule_interval_us_min
from perdure.model.records import ScheduleRecord

_forms = (
    "give cron, such as '0 7 * * mon-fri' or '@daily', or an interval, such as '15m' or a timedelta"
)

NO_TICKS = "[]"  # how a row says that none waits

_decode_tags = msgspec.json.Decoder(dict[str, str]).decode


class Calendar(msgspec.Struct, frozen=True):
    """When a schedule ticks: by `cron`, or else every `interval_us` from `anchor_at` on. Times are microseconds."""

    cron: Cron | None
    interval_us: int = 0
    anchor_at: int = 0

    def after(self, at: int) -> int:
        """The first tick strictly after a time."""
        if self.cron is not None:
            return self.cron.after(at)
        passed = (at - self.anchor_at) // self.interval_us
        return self.anchor_at + (passed + 1) * self.interval_us

    def walk(self, after: int, until: int) -> Iterator[int]:
        """The ticks after the one time and not later than the other, in order."""
        tick = self.after(after)
        while tick <= until:
            yield tick
            tick = self.after(tick)

    def last(self, first: int, until: int) -> int:
        """The newest tick that is not later than `until`; `first` is a tick that is not."""
        tick, high = first, until
        # Between the tick and `high` lies the next one, or none is left; each turn halves that.
        while self.after(tick) <= until:
            middle = (tick + high) // 2
            found = self.after(middle)
            if found <= until:
                tick = found
            else:
                high = middle
        return tick

    def newest(self, first: int, until: int, limit: int) -> list[int]:
        """Up to `limit` ticks, the newest of those from the tick `first` up to `until`, in order."""
        last = self.last(first, until)
        if last == first:
            return [first]
        # As far back as so many ticks take at the pace of the last two, and twice as far if that was not enough.
        span = limit * (last - self.last(first, last - 1))
        while True:
            begin = max(first - 1, last - span)
            found = deque(self.walk(begin, last), maxlen=limit)
            if len(found) == limit or begin < first:
                return list(found)
            span *= 2

    def count(self, first: int, last: int, limit: int) -> int:
        """How many ticks there are from the tick `first` to the tick `last`; counted up to `limit`."""
        if self.cron is None:
            return min(limit, (last - first) // self.interval_us + 1)
        counted = 0
        for counted, _ in enumerate(self.walk(first - 1, last), 1):
            if counted == limit:
                break
        return counted


def calendar_of(row: ScheduleRecord) -> Calendar:
    """The calendar of a stored schedule; BadValue if this process does not know its time zone."""
    if row.cron is not None:
        return Calendar(parse_cron(row.cron, row.zone))
    return Calendar(None, row.interval_us or schedule_interval_us_min, row.anchor_at)


def parse_every(every: Duration, zone: str = "UTC") -> tuple[str | None, int | None]:
    """What a schedule was given: cron, with aliases written out, or an interval in microseconds. Else BadValue."""
    try:
        interval_us = parse_duration(every)
    except BadValue:
        if not isinstance(every, str):
            raise BadValue("schedule", every, f"is no interval; {_forms}") from None
        if not _is_meant_as_cron(every):
            problem = "is neither cron nor an interval"
            raise BadValue("schedule", every, f"{problem}; {_forms}") from None
        return parse_cron(every, zone).text, None
    if interval_us < schedule_interval_us_min:
        raise BadValue("interval", every, "is shorter than a second (schedule_interval_us_min)")
    if parse_cron("@daily", zone).zone != "UTC":
        raise BadValue(
            "time zone", zone, "plays no role for an interval; leave it out, or give cron"
        )
    return None, interval_us


def _is_meant_as_cron(text: str) -> bool:
    """Several fields, or signs that no interval has: what is wrong with it is told in the words of cron."""
    return len(text.split()) > 1 or any(sign in text for sign in "*@/,#")


def tick_text(at: int) -> str:
    """A tick as runs and facts show it: ISO 8601 in UTC."""
    return to_datetime(at).isoformat().replace("+00:00", "Z")


def tags_of(name: str, tick: int) -> str:
    """The tags of a run of a schedule, as they are stored."""
    return msgspec.json.encode({"schedule": name, "tick": tick_text(tick)}).decode()


def schedule_of(tags: str | None) -> str | None:
    """The name of a schedule in the tags of a run; perhaps one that a user has put there."""
    # Asked for at the end of every run: most have no tags at all.
    if tags is None or '"schedule"' not in tags:
        return None
    return _decode_tags(tags).get("schedule")


def tick_of(tags: str | None) -> datetime | None:
    """The tick in the tags of a run, if a schedule has put one there."""
    if schedule_of(tags) is None:
        return None
    try:
        return datetime.fromisoformat(_decode_tags(tags or "")["tick"])
    except (KeyError, ValueError):
        return None  # tags of a user's own


def interval_of(row: ScheduleRecord) -> timedelta | None:
    """The interval of a schedule that has one."""
    return None if row.interval_us is None else timedelta(microseconds=row.interval_us)


def run_id_of(name: str, tick: int) -> str:
    """The run of a tick: its id says whose it is, so that no tick has two."""
    return f"{name}@{tick_text(tick)}"
