"""Pools: what bounds the runs of one, as values, and the arithmetic of rates. Pure.

A rate is a token bucket, kept as one time (GCRA): when the next admission would come if all had come evenly. Up to
`count` may come at once after a pause; over any longer time there are no more than the rate says.
"""

import functools
import re
from collections.abc import Collection
from typing import Any

import msgspec

from perdure.model import limits
from perdure.model.clock import to_datetime
from perdure.model.duration import parse_duration
from perdure.model.limits import BadValue
from perdure.model.records import LineLook, PoolRecord, RunRecord

_rate = re.compile(r"\s*([0-9]{1,9})\s*/\s*(\S.*?)\s*")


class Rate(msgspec.Struct, frozen=True, gc=False):
    """So many within a span of time."""

    count: int
    period_us: int
    text: str  # as it was written

    @property
    def step_us(self) -> int:
        """The time between two, if they come evenly. Rounded up: never more than the rate says."""
        return -(-self.period_us // self.count)

    def held(self, tat: int, now: int) -> int:
        """Where a bucket stands that was left at `tat`: never further ahead than an empty one.

        It was left there by a slower rate, or before the clock was set back; neither binds those who come now.
        """
        return min(tat, now + self.count * self.step_us)

    def next_at(self, tat: int, now: int) -> int:
        """From when on the next one may come, if the bucket was left at `tat`."""
        return self.held(tat, now) - (self.count - 1) * self.step_us

    def taken(self, tat: int, now: int) -> int:
        """Where the bucket stands after one more."""
        return max(tat, now) + self.step_us


def parse_rate(what: str, text: str | None) -> Rate | None:
    """A rate such as "100/1m"; raises BadValue."""
    if text is None:
        return None
    form = 'must be "<how many>/<span of time>", such as "100/1m"'
    match = _rate.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise BadValue(what, text, form)
    try:
        count, period_us = int(match[1]), parse_duration(match[2])
    except BadValue:
        # Most likely "5/m": five a minute is "5/1m".
        raise BadValue(what, text, f"{form}: {match[2]!r} is no span of time") from None
    if count < 1 or period_us < count:
        raise BadValue(what, text, f"{form}: at least one, and no more than one in a microsecond")
    return Rate(count, period_us, f"{match[1]}/{match[2]}")


class PoolLimits(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What bounds a pool; None: nothing does."""

    limit: int | None = None
    per_key: int | None = None
    rate: Rate | None = None
    per_key_rate: Rate | None = None

    @property
    def are_none(self) -> bool:
        """Whether nothing is bounded: then there is no line."""
        return self == UNLIMITED

    def said(self) -> dict[str, Any]:
        """As users write them."""
        return {
            "limit": self.limit,
            "per_key": self.per_key,
            "rate": None if self.rate is None else self.rate.text,
            "per_key_rate": None if self.per_key_rate is None else self.per_key_rate.text,
        }


UNLIMITED = PoolLimits()


def checked_limits(
    limit: int | None = None,
    per_key: int | None = None,
    rate: str | None = None,
    per_key_rate: str | None = None,
) -> PoolLimits:
    """Limits as users write them; raises BadValue."""
    return PoolLimits(
        limit=_checked_slots("limit", limit),
        per_key=_checked_slots("per_key", per_key),
        rate=parse_rate("rate", rate),
        per_key_rate=parse_rate("per_key_rate", per_key_rate),
    )


def _checked_slots(what: str, value: int | None) -> int | None:
    if value is None:
        return None
    most = limits.pool_slots_max
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise BadValue(what, value, f"must be a whole number from 1 to {most} (pool_slots_max)")
    return value


def encode_limits(bounds: PoolLimits) -> str:
    return msgspec.json.encode(bounds).decode()


@functools.lru_cache(maxsize=1024)
def decode_limits(text: str) -> PoolLimits:
    return msgspec.json.decode(text, type=PoolLimits)


def limits_of(pool: PoolRecord | None) -> PoolLimits:
    """What bounds a pool now; one that is not there has no bounds."""
    return UNLIMITED if pool is None else decode_limits(pool.limits)


class LineState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How far the admissions of a pool have come: whose turn it was, and where its bucket stands."""

    turn: int = 0  # counts them
    key: str | None = None  # of the last one
    tat: int = 0


def encode_state(state: LineState) -> str:
    return msgspec.json.encode(state).decode()


def decode_state(text: str | None) -> LineState:
    return LineState() if text is None else msgspec.json.decode(text, type=LineState)


def line_scope() -> str:
    """Where the state of each pool's line is kept among the keys."""
    return "line"


def rate_scope(pool: str) -> str:
    """Where the buckets of the keys of a pool are kept among the keys."""
    return f"rate/{pool}"


def holds_slot(run: RunRecord) -> bool:
    """Whether a run takes a slot of its pool: ready to go or running."""
    return run.status in ("ready", "running") and run.line_at is None


def is_idle(
    run: RunRecord, pool: str, known: Collection[tuple[str, int]], since: int, now: int
) -> bool:
    """Whether a run holds a slot of this pool that it cannot use: see `Tables.idle_slots`."""
    if run.pool != pool or run.status != "ready" or run.ready_at is None:
        return False
    return run.ready_at > now or (
        run.ready_at <= since and (run.workflow, run.version) not in known
    )


def rank_of(run: RunRecord) -> tuple[bool, int, int, str]:
    """A run's place among those of its key: begun before new, higher priority first, then the oldest."""
    return not run.admitted, -run.priority, run.line_at or 0, run.run_id


def why(
    run: RunRecord,
    bounds: PoolLimits,
    taken: int,
    of_key: tuple[int, int | None],
    tat: int,
    now: int,
) -> str:
    """Why a run stands in line, in words. `of_key`: the slots that its key has taken, and where its bucket stands."""
    if run.line_at is not None and run.line_at > now:
        return f"starts at {_moment(run.line_at)}"
    if bounds.limit is not None and taken >= bounds.limit:
        return f"pool {run.pool}: {taken} of {bounds.limit} slots are taken"
    key_taken, key_tat = of_key
    whose = f"key {run.pool_key}" if run.pool_key else f"runs of pool {run.pool} without a key"
    if bounds.per_key is not None and key_taken >= bounds.per_key:
        return f"{whose}: {key_taken} of {bounds.per_key} slots are taken"
    if not run.admitted and bounds.rate is not None and bounds.rate.next_at(tat, now) > now:
        return f"rate {bounds.rate.text}: next at {_moment(bounds.rate.next_at(tat, now))}"
    key_rate = bounds.per_key_rate
    key_at = 0 if key_rate is None else key_rate.next_at(key_tat or 0, now)
    if not run.admitted and key_rate is not None and key_at > now:
        return f"{whose}: rate {key_rate.text}: next at {_moment(key_at)}"
    return "a slot is free: it is its turn soon, if a worker serves the pool and knows its workflow"


def _moment(at: int) -> str:
    return to_datetime(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def try_at(line: LineLook, now: int) -> int | None:
    """When it is worth asking for an admission, as far as a look can tell; None: not before a slot is given back."""
    bounds = limits_of(line.pool)
    if bounds.limit is not None and line.taken >= bounds.limit:
        return None
    at = line.oldest_at
    if bounds.rate is not None and not line.begun:
        at = max(at, bounds.rate.next_at(decode_state(line.state).tat, now))
    return at
