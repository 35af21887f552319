"""Schedules: ticks become runs, each once, however many workers see that it is time.

A tick is dealt with by the op that finds the row due: it starts the run, or says why not, and moves `next_at` on, in
one commit. Whoever comes second finds the row moved. The run of a tick has the name of the schedule and the tick for
its id, so that a backfill of the same window, or a schedule made anew under its name, starts none twice.

Ticks that cannot start yet stand in the row (`queued`) and start in order: by the next op if one commit has started
enough, or when the run that they wait for has ended, which the handler of that end sees to (`start_next`).
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
    Calendar,
    calendar_of,
    run_id_of,
    schedule_of,
    tags_of,
    tick_text,
)
from perdure.store.handlers.facts import tell_ledger
from perdure.store.handlers.owning import start_run
from perdure.store.tables import Tables

_decode_ticks = msgspec.json.Decoder(list[int]).decode
_decode_ids = msgspec.json.Decoder(list[str]).decode
_none = "[]"

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
    if row.queued != _none and (row.overlap == "allow" or not _living(tables, row)):
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
        _stop(tables, row, str(error))
        return 0
    row, started = _start_queued(tables, row, version, pool, room)
    tables.put_schedule(_set_due(tables, row))
    return started


def _stop(tables: Tables, row: ScheduleRecord, reason: str) -> None:
    tables.put_schedule(replace(row, paused=True, reason=reason, due_at=None))
    _tell(tables, row, "schedule.stopped", {"reason": reason})


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
        return _skip_for_overlap(tables, row, ticks[0])
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
    return row.queued != _none or bool(_living(tables, row))


def _skip_for_overlap(tables: Tables, row: ScheduleRecord, tick: int) -> ScheduleRecord:
    """Told once, not for each tick: a run that hangs for a day would fill the ledger."""
    if row.skipping:
        return replace(row, skipped=row.skipped + 1)
    return replace(_skip(tables, row, "overlap", tick, tick, 1), skipping=True)


def _enqueue(tables: Tables, row: ScheduleRecord, ticks: list[int]) -> ScheduleRecord:
    queue = _decode_ticks(row.queued)
    new = [one for one in ticks if one not in queue]  # a backfill may have been quicker
    room = max(0, limits.schedule_queue_max - len(queue))
    row = replace(row, queued=_text([*queue, *new[:room]]))
    if new[room:]:
        row = _skip(tables, row, "full", new[room], new[-1], len(new) - room)
    return row


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
        done += 1
        if tables.run(run_id_of(row.name, tick)) is None:
            started += 1
            row = _start(tables, row, run_id_of(row.name, tick), version, pool, tick)
            row = replace(row, last_at=max(tick, row.last_at or tick))
    return replace(row, queued=_text(queue[done:])), started


def _living(tables: Tables, row: ScheduleRecord) -> list[str]:
    """Its runs that are alive."""
    runs = [tables.run(one) for one in _decode_ids(row.living)]
    return [one.run_id for one in runs if one is not None and one.status in LIVE]


def _start(
    tables: Tables, row: ScheduleRecord, run_id: str, version: int, pool: str, tick: int
) -> ScheduleRecord:
    """Make a run that is not there yet. Whichever worker claims it first runs it."""
    start_run(
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
    living = [*_decode_ids(row.living), run_id][-limits.schedule_runs_known_max :]
    return replace(row, living=_text(living), last_run_id=run_id, skipping=False)


def start_next(tables: Tables, run: RunRecord) -> None:
    """A run has ended: if it is of a schedule, a tick may have waited for it."""
    name = schedule_of(run.tags)
    row = None if name is None else tables.schedule(name)
    if row is None or row.queued == _none or row.paused:
        return
    _put(tables, replace(row, due_at=min(tables.now, row.next_at)))


# --- by hand ---


def trigger_schedule(tables: Tables, op: ops.TriggerSchedule) -> Started | Refusal:
    row = _asked_for(tables, op)
    if isinstance(row, Refusal):
        return row
    run = tables.run(op.run_id)
    if run is not None:
        return Started(run, False)
    row = replace(row, living=_text(_living(tables, row)))
    tables.put_schedule(_start(tables, row, op.run_id, op.version, op.pool, tables.now))
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
        run_id = run_id_of(row.name, tick)
        if tick in waiting or tables.run(run_id) is not None:
            existing += 1
        elif row.overlap == "allow":
            row, started = _start(tables, row, run_id, op.version, op.pool, tick), started + 1
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
