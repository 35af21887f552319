"""Cron expressions: five fields and a time zone in, the next tick out.

The calendar is cronsim's; here are the spelling, the refusals and the way to stored microseconds. A tick is a
function of expression, zone and time alone, so two processes that ask at different moments agree on it.

Daylight saving is treated as in Debian's cron. An expression whose minute and hour are both fixed ("30 2 * * *")
ticks once on every day: a time that the clocks jump over ticks at the end of the jump, a time that they show twice
ticks the first time. An expression with a star in either ("*/15 * * * *") follows the clock on the wall: all
quarters of an hour that there are, also those of the hour that comes twice.

Seconds are refused, though cronsim reads them: a sixth field switches its care for daylight saving off, so
"0 30 2 * * *" would tick twice in autumn. What has to be done within seconds is no schedule; live consumers and
timers do it.
"""

import functools
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from perdure.model.clock import from_datetime, to_datetime
from perdure.model.limits import BadValue, cron_chars_max, name_bytes_max

_aliases: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_fields: Final = 5
_forms: Final = (
    "give five fields (minute, hour, day of month, month, day of week), such as '*/5 * * * *' or "
    f"'30 9 * * MON-FRI', or one of {' '.join(_aliases)}"
)
# Any day would do to try an expression; this one keeps the answer the same in every year.
_tried_from = to_datetime(0)
_day = timedelta(days=1)
_second = timedelta(seconds=1)


class Cron(msgspec.Struct, frozen=True):
    """A schedule that was checked; made by `parse_cron`. Equal ones tick alike.

    `text` is the five fields with aliases written out, `zone` a name of the IANA database.
    """

    text: str
    zone: str = "UTC"

    def after(self, at_us: int) -> int:
        """The first tick strictly after a time; both in microseconds since the epoch, UTC."""
        # Ticks are whole seconds, so the part of a second plays no role.
        return _tick_after(self.text, self.zone, at_us // 1_000_000)

    def has_tick(self, after_us: int, until_us: int) -> bool:
        """Whether it ticks after the first time, and not later than the second."""
        return after_us < until_us and self.after(after_us) <= until_us


def parse_cron(text: str, zone: str = "UTC") -> Cron:
    """Five fields or an alias such as `@daily`, in the time of a zone; anything else is a `BadValue`."""
    for what, value in (("cron", text), ("time zone", zone)):
        if not isinstance(value, str):
            raise BadValue(what, value, f"is a {type(value).__name__}; give a str")
    return _parsed(str.__str__(text), str.__str__(zone))


# Whoever follows a schedule asks about its last tick again and again until the next one is due.
@functools.lru_cache(maxsize=4096)
def _tick_after(text: str, zone: str, at_s: int) -> int:
    moment = to_datetime(at_s * 1_000_000)
    place = _zone_of(zone)
    try:
        if place is UTC or _is_fixed(text):
            tick = _once_a_day(text, place, moment)
        else:
            tick = _on_the_wall(text, place, moment)
    except (OverflowError, ValueError):
        tick = None  # the calendar ends with the year 9999
    if tick is None:
        raise BadValue("cron", text, f"has no tick after {moment}; give an earlier time")
    return from_datetime(tick)


def _is_fixed(text: str) -> bool:
    minute, hour, *_ = text.split()
    return not (minute.startswith("*") or hour.startswith("*"))


def _once_a_day(text: str, zone: tzinfo, moment: datetime) -> datetime | None:
    """As cronsim has it, which treats a time that comes twice, or not at all, as said above."""
    for tick in CronSim(text, moment.astimezone(zone)):
        # An hour that comes twice is looked up by its face, so the first answer may lie behind.
        found = tick.astimezone(UTC)
        if found > moment:
            return found
    return None


def _on_the_wall(text: str, zone: tzinfo, moment: datetime) -> datetime | None:
    """Each time that the clock on the wall shows. Until it is next changed, it goes as a clock that never is.

    cronsim goes by whole hours and from midnight to midnight: it would lose ticks where clocks are changed by half an
    hour, and days on which midnight does not come.
    """
    begin = after = moment
    while True:
        wall = (after + _offset(zone, begin)).replace(tzinfo=None)
        tick = next(CronSim(text, wall), None)
        if tick is None:
            return None
        found = after + (tick - wall)
        change = _first_change(zone, begin, found)
        if change is None:
            return found
        # What the clock shows right after the change counts too.
        begin, after = change, change - _second


def _first_change(zone: tzinfo, begin: datetime, end: datetime) -> datetime | None:
    """When the clocks of a zone are next changed after `begin`, if that is not later than `end`."""
    offset = _offset(zone, begin)
    while begin < end:
        later = min(begin + _day, end)
        if _offset(zone, later) != offset:
            return _bisected(zone, begin, later)
        begin = later
    return None


def _bisected(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    offset = _offset(zone, before)
    while after - before > _second:
        middle = before + (after - before) // 2
        middle = middle.replace(microsecond=0)
        if _offset(zone, middle) == offset:
            before = middle
        else:
            after = middle
    return after


def _offset(zone: tzinfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


@functools.lru_cache(maxsize=1024)
def _parsed(text: str, zone: str) -> Cron:
    fields = _expanded(text)
    _zone_of(zone)
    if not _ticks(text, fields):
        raise BadValue("cron", text, f"never ticks: no such day comes; {_forms}")
    return Cron(fields, zone)


def _ticks(text: str, fields: str) -> bool:
    """Whether there is a day for it; BadValue if a field is wrong by itself."""
    try:
        # Some say nothing wrong in any one field and still have no day, such as the fifth Monday of a
        # February that has to be a 31st; only looking for it tells.
        return next(CronSim(fields, _tried_from), None) is not None
    except CronSimError as error:
        minute, hour, day, month, weekday = fields.split()
        if "day-of-month" in str(error) and month != "*":
            # cronsim says the same of a 31st of February; this refuses only what is a day of no month.
            _ticks(text, f"{minute} {hour} {day} * {weekday}")
            return False
        problem = str(error).replace("Bad ", "has a bad ").replace("Wrong", "has the wrong")
        raise BadValue("cron", text, f"{problem}; {_forms}") from None


def _expanded(text: str) -> str:
    """The five fields, one space between them; an alias written out."""
    if len(text) > cron_chars_max:
        raise BadValue(
            "cron",
            text,
            f"is {len(text)} characters; at most {cron_chars_max} (cron_chars_max); {_forms}",
        )
    # Capital letters are made before fields are read, and some letters become ASCII by that.
    if not text.isascii():
        raise BadValue("cron", text, f"holds letters or digits other than ASCII; {_forms}")
    fields = text.split()
    if len(fields) == 1 and fields[0].startswith("@"):
        return _alias(text, fields[0])
    if len(fields) == _fields + 1:
        raise BadValue("cron", text, f"has six fields; seconds are not scheduled: {_forms}")
    if len(fields) != _fields:
        raise BadValue("cron", text, f"has {len(fields)} fields; {_forms}")
    return " ".join(fields).upper()


def _alias(text: str, alias: str) -> str:
    try:
        return _aliases[alias.lower()]
    except KeyError:
        raise BadValue("cron", text, f"is no alias that is known; {_forms}") from None


@functools.lru_cache(maxsize=1024)
def _zone_of(name: str) -> tzinfo:
    # The plain UTC is the one that cronsim need not convert to and fro.
    if name == "UTC":
        return UTC
    if 0 < len(name) <= name_bytes_max and name.isascii():
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            # No such file; a name that leads out of the database; a directory or a file of another kind.
            pass
    raise BadValue(
        "time zone", name, "is not in the IANA database; give a name such as 'Europe/Berlin'"
    )
