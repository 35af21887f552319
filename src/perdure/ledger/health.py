"""How the ledger's readers and the engine are doing, from what the store says.

A consumer is stalled when events wait for it and it has not moved, nor said that it is there, for over an hour; one
with a schedule, an hour after the tick that should have read them. Nothing here writes.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal

import msgspec

from perdure.model.clock import to_datetime
from perdure.model.cron import parse_cron
from perdure.model.pools import limits_of, try_at
from perdure.model.records import ConsumerRecord, LineLook, WorkerRecord
from perdure.store.base import Backlog, Store, merged_backlog

stalled_us = 3600 * 1_000_000
# A run that is ready and nobody takes for so long: no worker knows its workflow, or they are all busy.
_ready_us = 3600 * 1_000_000
# A schedule whose tick nobody deals with for so long: no worker that knows its workflow is there.
_overdue_us = 300 * 1_000_000


# Somebody who stands in line for so long though there is room: no worker serves the pool, or knows the workflow.
_line_us = 300 * 1_000_000


# A version that no live worker has, for so long: while workers are replaced, and before a new one has said what it
# executes, that is nothing to be alarmed about.
_unserved_us = 10 * 1_000_000
# Runs of one version, and of those in one line, that are looked at: enough to see that they are many.
_counted_max = 1000
_decode_workflows = msgspec.json.Decoder(list[tuple[str, int]]).decode


class Unserved(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that wait for a worker that has this version of their workflow; there is none. Counted up to a bound."""

    workflow: str
    version: int
    runs: int
    since: datetime


class ConsumerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One reader of the ledger. `lag` counts the events it has not read, `behind_s` how long the first one waits."""

    name: str
    position: int
    lag: int
    behind_s: float
    stalled: bool
    paused: bool
    reason: str | None
    owner: str | None
    error: str | None
    capped: int


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether somebody should look, and why. Counts stop at a bound of the store."""

    status: Literal["ok", "degraded"]
    reasons: list[str]
    consumers: list[ConsumerHealth]
    timers_due: int
    oldest_ready_s: float | None
    parked: int
    deferred: int
    dead_letters: int
    schedule_late_s: float | None  # how long the tick that is due longest waits to be dealt with
    in_line_s: dict[str, float]  # by pool, how long the first in its line waits for a slot
    unserved: list[Unserved]  # versions of workflows that have runs to execute, and no live worker


async def measure(store: Store, now: int, position_of: Callable[[str], int | None]) -> Health:
    """The health of everything on a store. `position_of` knows readers of this process better than their rows."""
    vitals = await store.vitals(now)
    consumers = await consumers_health(store, now, position_of)
    ready_at = vitals.oldest_ready_at
    oldest_us = None if ready_at is None else now - ready_at
    reasons = [_stall_reason(one) for one in consumers if one.stalled]
    if oldest_us is not None and oldest_us > _ready_us:
        reasons.append(f"a run is ready since {oldest_us // 1_000_000} s and no worker takes it")
    late_us = None if vitals.schedule_at is None else max(0, now - vitals.schedule_at)
    if late_us is not None and late_us > _overdue_us:
        reasons.append(
            f"a schedule is due since {late_us // 1_000_000} s and no worker starts its workflow"
        )
    lines = await store.lines()
    reasons += [words for one in lines if (words := _line_reason(one, now)) is not None]
    unserved = await _unserved(store, lines, now)
    reasons += [words for one in unserved if (words := _unserved_reason(one, now)) is not None]
    return Health(
        status="degraded" if reasons else "ok",
        reasons=reasons,
        consumers=consumers,
        timers_due=vitals.timers_due,
        oldest_ready_s=None if oldest_us is None else oldest_us / 1_000_000,
        parked=vitals.parked,
        deferred=vitals.deferred,
        dead_letters=vitals.dead_letters,
        schedule_late_s=late_us / 1_000_000 if late_us else None,
        in_line_s={one.name: max(0, now - one.oldest_at) / 1_000_000 for one in lines},
        unserved=[
            Unserved(
                workflow=one.workflow,
                version=one.version,
                runs=one.count,
                since=to_datetime(one.ready_at),
            )
            for one in unserved
        ],
    )


async def _unserved(store: Store, lines: list[LineLook], now: int) -> list[Backlog]:
    """Runs that could go on now if somebody had their code: those to be claimed, and the first in each line."""
    found = await store.backlog(now, _counted_max)
    for line in lines:
        for run in await store.line(line.name, None, _counted_max):
            if run.line_at is not None and run.line_at <= now:
                found.append(Backlog(run.workflow, run.version, 1, run.line_at))
    served = served_by(await store.workers())
    return [one for one in merged_backlog(found) if (one.workflow, one.version) not in served]


def served_by(workers: Iterable[WorkerRecord]) -> set[tuple[str, int]]:
    """The versions of workflows that these workers execute."""
    return {at for one in workers for at in _decode_workflows(one.workflows)}


def _unserved_reason(one: Backlog, now: int) -> str | None:
    waited_us = now - one.ready_at
    if waited_us <= _unserved_us:
        return None
    many = f"{one.count} runs of" if one.count > 1 else "a run of"
    return (
        f"{many} {one.workflow!r} version {one.version} can be executed since {waited_us // 1_000_000} s, and no live "
        "worker has that version"
    )


def _line_reason(line: LineLook, now: int) -> str | None:
    """What is wrong with a line: its first one waits for long, though a slot is free and no rate is in its way."""
    waited_us, free_at = now - line.oldest_at, try_at(line, now)
    bounds = limits_of(line.pool)
    by_key = bounds.per_key is not None or bounds.per_key_rate is not None
    if waited_us <= _line_us or free_at is None or free_at > now or by_key:
        return None
    return f"a run stands in line of pool {line.name!r} since {waited_us // 1_000_000} s, and slots are free"


async def consumers_health(
    store: Store, now: int, position_of: Callable[[str], int | None]
) -> list[ConsumerHealth]:
    """How each consumer is doing. One that has read everything costs nothing but its row."""
    _, last = await store.span()
    return [
        await _consumer_health(store, now, last, one, position_of(one.name))
        for one in await store.consumers()
    ]


async def _consumer_health(
    store: Store, now: int, last: int, row: ConsumerRecord, position: int | None
) -> ConsumerHealth:
    position = row.position if position is None else max(position, row.position)
    unread = await store.events(position, 1) if position < last else []
    since = unread[0].recorded_at if unread else now
    due = max(since, row.advanced_at)
    if unread and row.every is not None:
        due = parse_cron(row.every, row.zone).after(due)
    return ConsumerHealth(
        name=row.name,
        position=position,
        lag=max(0, last - position),
        behind_s=max(0, now - since) / 1_000_000,
        stalled=bool(unread) and now - due > stalled_us,
        paused=row.paused,
        reason=row.reason,
        owner=row.owner,
        error=row.error,
        capped=row.capped,
    )


def _stall_reason(one: ConsumerHealth) -> str:
    why = f": paused ({one.reason})" if one.paused else f": {one.error}" if one.error else ""
    return f"consumer {one.name!r} has not read {one.lag} events for {one.behind_s:.0f} s{why}"
