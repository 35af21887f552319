"""Schedules: ticks become runs, each once, however many workers see that it is time.

A tick is dealt with by the op that finds the row due: it starts the run, or says why not, and moves `next_at` on, in
one commit. Whoever comes second finds the row moved. The run of a tick has the name of the schedule and the tick for
its id, so that a backfill of the same window, or a schedule made anew under its name, starts none twice.

Ticks that cannot start yet stand in the row (`queued`) and start in order: by the next op if one commit has started
enough, or when the run that they wait for has ended, which the end of a run sees to (ending.py).
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.model import limits, ops
from perdure.model.limits import BadValue
from perdure.model.outcomes import Counted, Filled, Fired, Refusal, Started, Wake
from perdure.model.records import RunRecord, ScheduleRecord
from perdure.model.status import LIVE
from perdure.model.ticks import (
    NO_TICKS,
    Calendar,
    calendar_of,
    run_id_of,
    schedule_of,
    tags_of,
    tick_text,
)
from perdure.store.handlers.facts import refusal_of, tell_ledger
from perdure.store.handlers.owning import start_run
from perdure.store.tables import Tables

_decode_ticks = msgspec.json.Decoder(list[int]).decode
_decode_ids = msgspec.json.Decoder(list[str]).decode

# What a schedule has lived through, whatever it is changed to; and what belongs to its calendar.
_lived = (
    "paused",
    "reason",
    "last_at",
    "last_run_id",
    "queued",
    "living",
    "skipped",
    "skipping",
    "created_at",
)
_calendar = ("cron", "interval_us", "zone")


# --- rows ---


def put_schedule(tables: Tables, op: ops.PutSchedule) -> ScheduleRecord | Refusal:
    new = op.schedule
    known = tables.schedule(new.name)
    if known is not None and known.code and not new.code:
        return Refusal("conflict", f"schedule {new.name!r} is declared in code; change it there")
    if known is None:
        new = _begun(tables, replace(new, created_at=tables.now))
    else:
        new = replace(new, **_those(known, _lived))
        if _those(known, _calendar) == _those(new, _calendar):
            new = replace(new, anchor_at=known.anchor_at, next_at=known.next_at)
        else:
            new = _begun(tables, new)
    new = _set_due(tables, new)
    if new != known:
        _put(tables, new)
    return new


def _those(row: ScheduleRecord, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _begun(tables: Tables, row: ScheduleRecord) -> ScheduleRecord:
    """A calendar begins now. An interval does at a whole second, or its ticks would be hard to read."""
    row = replace(row, anchor_at=-(-tables.now // 1_000_000) * 1_000_000)
    begin = tables.now if row.interval_us is None else row.anchor_at
    return replace(row, next_at=calendar_of(row).after(begin))


def steer_schedule(tables: Tables, op: ops.SteerSchedule) -> ScheduleRecord | Refusal:
    row = tables.schedule(op.name)
    if row is None:
        return _no_schedule(op.name)
    new = replace(row, paused=op.paused, reason=op.reason if op.paused else None)
    if row.paused and not op.paused:
        try:
            new = replace(new, next_at=calendar_of(row).after(tables.now), skipping=False)
        except BadValue as error:
            return Refusal("conflict", f"schedule {op.name!r} cannot go on: {error}")
    new = _set_due(tables, new)
    if new != row:
        _put(tables, new)
    return new


def _no_schedule(name: str) -> Refusal:
    return Refusal("no_schedule", f"there is no schedule {name!r}")


def drop_schedule(tables: Tables, op: ops.DropSchedule) -> Counted:
    if tables.schedule(op.name) is None:
        return Counted(0)
    tables.delete_schedule(op.name)
    return Counted(1)


def _put(tables: Tables, row: ScheduleRecord) -> None:
    """Write a row that somebody has changed, and have workers learn when it is due."""
    tables.put_schedule(row)
    if row.due_at is not None:
        tables.wakes.append(Wake("schedule", row.name, at=row.due_at))


def _set_due(tables: Tables, row: ScheduleRecord) -> ScheduleRecord:
    """When the next worker has to look: at once, if a tick waits that nothing keeps from starting."""
    if row.paused:
        return replace(row, due_at=None)
    if row.queued != NO_TICKS and (row.overlap == "allow" or not _living(tables, row)):
        return replace(row, due_at=min(tables.now, row.next_at))
    return replace(row, due_at=row.next_at)


# --- ticks ---


def fire_schedules(tables: Tables, op: ops.FireSchedules) -> Fired:
    versions, pools = dict(op.workflows), dict(op.pools)
    room = limits.schedule_starts_per_commit
    count = 0
    for row in tables.due_schedules(versions, op.limit):
        if not room:
            break  # it stays due
        count += 1
        version, pool = versions[row.workflow], pools.get(row.workflow, "")
        room -= _fire(tables, row, version, pool, room)
    return Fired(count, tables.next_schedule_at(versions))


def _fire(tables: Tables, row: ScheduleRecord, version: int, pool: str, room: int) -> int:
    """Deal with all that is due of one schedule; gives how many runs were started, up to `room`."""
    try:
        row = _come_due(tables, row)
    except BadValue as error:
        # Its zone is not known here, or the calendar has ended. It must not keep the others from their ticks.
        row, started = _stopped(tables, row, str(error)), 0
    else:
        row, started = _start_queued(tables, row, version, pool, room)
    tables.put_schedule(_set_due(tables, row))
    return started


def _stopped(tables: Tables, row: ScheduleRecord, reason: str) -> ScheduleRecord:
    """What cannot go on waits for somebody to look at it; ticks that wait already are kept."""
    _tell(tables, row, "schedule.stopped", {"reason": reason})
    return replace(row, paused=True, reason=reason)


def _come_due(tables: Tables, row: ScheduleRecord) -> ScheduleRecord:
    """The ticks since the last look are queued or skipped, as the schedule says, and the next one is found."""
    first, now = row.next_at, tables.now
    if first > now:
        return row
    calendar = calendar_of(row)
    row = replace(row, next_at=calendar.after(now))
    ticks = _caught_up(row, calendar, first, now)
    if not ticks or ticks[0] > first:
        last = calendar.last(first, ticks[0] - 1 if ticks else now)
        count = calendar.count(first, last, limits.schedule_missed_max)
        row = _skip(tables, row, "missed", first, last, count)
    if not ticks:
        return row
    if _is_blocked(tables, row, ticks):
        return _skip_for_run(tables, row, "overlap", ticks)
    return _enqueue(tables, row, ticks)


def _caught_up(row: ScheduleRecord, calendar: Calendar, first: int, now: int) -> list[int]:
    """Which of the ticks from `first` to now are made up for: the newest, all, or it if it is hardly late."""
    if row.catch_up == "all":
        return calendar.newest(first, now, limits.schedule_missed_max)
    last = calendar.last(first, now)
    if row.catch_up == "none" and now - last > limits.schedule_late_us:
        return []
    return [last]


def _is_blocked(tables: Tables, row: ScheduleRecord, ticks: list[int]) -> bool:
    """Whether a tick is dropped because a run is still alive. Several are made up for one after the other instead."""
    if row.overlap != "skip" or len(ticks) > 1:
        return False
    return row.queued != NO_TICKS or bool(_living(tables, row))


def _skip_for_run(
    tables: Tables, row: ScheduleRecord, reason: str, ticks: list[int]
) -> ScheduleRecord:
    """A run lives too long for these. Told once, not for each tick: one that hangs for a day would fill the ledger."""
    if row.skipping:
        return replace(row, skipped=row.skipped + len(ticks))
    row = _skip(tables, row, reason, ticks[0], ticks[-1], len(ticks))
    return replace(row, skipping=True)


def _enqueue(tables: Tables, row: ScheduleRecord, ticks: list[int]) -> ScheduleRecord:
    queue = _decode_ticks(row.queued)
    new = [one for one in ticks if one not in queue]  # a backfill may have been quicker
    room = max(0, limits.schedule_queue_max - len(queue))
    row = replace(row, queued=_text([*queue, *new[:room]]))
    return _skip_for_run(tables, row, "full", new[room:]) if new[room:] else row


def _skip(
    tables: Tables, row: ScheduleRecord, reason: str, first: int, last: int, count: int
) -> ScheduleRecord:
    """Ticks that start nothing are counted, and told as one fact."""
    facts = {"reason": reason, "first": tick_text(first), "last": tick_text(last), "count": count}
    _tell(tables, row, "schedule.skipped", facts)
    return replace(row, skipped=row.skipped + count)


def _tell(tables: Tables, row: ScheduleRecord, type: str, facts: dict[str, Any]) -> None:
    about = ("schedule", row.name)
    told = {"schedule": row.name, "workflow": row.workflow, **facts}
    tell_ledger(tables, type, told, entity=about)


def _text(value: list[int] | list[str]) -> str:
    return msgspec.json.encode(value).decode()


# --- runs ---


def _start_queued(
    tables: Tables, row: ScheduleRecord, version: int, pool: str, room: int
) -> tuple[ScheduleRecord, int]:
    """Start what waits, in order: all of it, or one at a time."""
    queue = _decode_ticks(row.queued)
    living = _living(tables, row)
    row = replace(row, living=_text(living))
    alone = row.overlap != "allow"
    done = started = 0
    for tick in queue:
        if started == room or (alone and (living or started)):
            break
        if tables.run(run_id_of(row.name, tick)) is None:
            new = _start_tick(tables, row, version, pool, tick)
            if isinstance(new, Refusal):
                row = _stopped(tables, row, f"its runs are refused: {refusal_of(new)}")
                break
            row = new
            started += 1
        done += 1
    return replace(row, queued=_text(queue[done:])), started


def _living(tables: Tables, row: ScheduleRecord) -> list[str]:
    """Its runs that are alive."""
    runs = [tables.run(one) for one in _decode_ids(row.living)]
    return [one.run_id for one in runs if one is not None and one.status in LIVE]


def _start_tick(
    tables: Tables, row: ScheduleRecord, version: int, pool: str, tick: int
) -> ScheduleRecord | Refusal:
    """Make the run of a tick of the calendar."""
    new = _start(tables, row, run_id_of(row.name, tick), version, pool, tick)
    if isinstance(new, Refusal):
        return new
    return replace(new, last_at=max(tick, row.last_at or tick))


def _start(
    tables: Tables, row: ScheduleRecord, run_id: str, version: int, pool: str, tick: int
) -> ScheduleRecord | Refusal:
    """Make a run that is not there yet. Whichever worker claims it first runs it."""
    started = start_run(
        tables,
        ops.StartRun(
            run_id=run_id,
            workflow=row.workflow,
            version=version,
            input=row.input,
            fresh=True,
            tags=tags_of(row.name, tick),
            cancel_on=row.cancel_on,
            pool=pool,
        ),
    )
    if isinstance(started, Refusal):
        return started
    return replace(_with_living(row, run_id), last_run_id=run_id, skipping=False)


def _with_living(row: ScheduleRecord, run_id: str) -> ScheduleRecord:
    living = [*_decode_ids(row.living), run_id][-limits.schedule_runs_known_max :]
    return replace(row, living=_text(living))


def live_again(tables: Tables, run: RunRecord) -> None:
    """A run that had failed goes on: if it is a schedule's, ticks that may not overlap with it have to know."""
    name = schedule_of(run.tags)
    row = None if name is None else tables.schedule(name)
    # Tags are anybody's; the ids of its runs begin with its name.
    if row is None or not run.run_id.startswith(f"{name}@"):
        return
    if run.run_id not in _decode_ids(row.living):
        tables.put_schedule(_with_living(row, run.run_id))


# --- by hand ---


def trigger_schedule(tables: Tables, op: ops.TriggerSchedule) -> Started | Refusal:
    row = _asked_for(tables, op)
    if isinstance(row, Refusal):
        return row
    run = tables.run(op.run_id)
    if run is not None:
        return Started(run, False)
    row = replace(row, living=_text(_living(tables, row)))
    new = _start(tables, row, op.run_id, op.version, op.pool, tables.now)
    if isinstance(new, Refusal):
        return new
    tables.put_schedule(new)
    run = tables.run(op.run_id)
    assert run is not None
    return Started(run, True)


def backfill_schedule(tables: Tables, op: ops.BackfillSchedule) -> Filled | Refusal:
    row = _asked_for(tables, op)
    if isinstance(row, Refusal):
        return row
    queue = _decode_ticks(row.queued)
    waiting = set(queue)
    started = existing = 0
    reached: int | None = None
    full = False
    for nth, tick in enumerate(calendar_of(row).walk(op.after, min(op.until, tables.now)), 1):
        if tick in waiting or tables.run(run_id_of(row.name, tick)) is not None:
            existing += 1
        elif row.overlap == "allow" and not row.paused:
            new = _start_tick(tables, row, op.version, op.pool, tick)
            if isinstance(new, Refusal):
                return new  # the first one already: they differ in nothing that matters here
            row, started = new, started + 1
        elif len(queue) >= limits.schedule_queue_max:
            full = True
            break
        else:
            queue.append(tick)
            started += 1
        reached = tick
        if nth == op.limit:
            break
    if started:
        _put(tables, _set_due(tables, replace(row, queued=_text(queue))))
    return Filled(started, existing, reached, full)


def _asked_for(
    tables: Tables, op: ops.TriggerSchedule | ops.BackfillSchedule
) -> ScheduleRecord | Refusal:
    row = tables.schedule(op.name)
    if row is None:
        return _no_schedule(op.name)
    if row.workflow != op.workflow:
        return Refusal(
            "conflict", f"schedule {op.name!r} starts {row.workflow!r} by now; try again"
        )
    return row
