"""Events: append them, resume who waits for them, let the oldest go.

An event is checked like a signal: its key and id first, then its type and payload. Up to a bound the runs that wait
for it are resumed in its own commit; if there are more, its position is kept as a marker and the rest follow in
commits of their own. Whoever acts on such a run in between gives it the event first (`ending.catch_up`), so that
nobody can tell the difference.
"""

from typing import Any

from perdure.model import limits, ops
from perdure.model.keys import emit_scope
from perdure.model.outcomes import (
    Counted,
    Duplicate,
    EmitOutcome,
    Emitted,
    Refusal,
    Trimmed,
    Wake,
    decode_answer,
    encode_answer,
)
from perdure.model.records import (
    ChannelRecord,
    ConsumerRecord,
    EventRecord,
    RunRecord,
    WatcherRecord,
    can_end,
    entity_text,
)
from perdure.model.sameness import is_same, used_for, was_used_for
from perdure.store.handlers import ending, timing
from perdure.store.handlers.catalogue import as_declared, misfit, schema_of
from perdure.store.handlers.facts import Taker, resume_later
from perdure.store.handlers.keys import keep_key, used_key
from perdure.store.handlers.standing import reason_of
from perdure.store.tables import Tables


def emit(tables: Tables, op: ops.Emit) -> tuple[EmitOutcome, ...]:
    return tuple([_emit_one(tables, one) for one in op.events])


def _emit_one(tables: Tables, new: ops.NewEvent) -> EmitOutcome:
    told = _told_before(tables, new)
    if told is not None:
        return told
    channel = tables.channel("topic", new.type)
    refused = _refused(channel, new)
    if refused is not None:
        return refused
    new = as_declared(channel, new)
    repeated = _is_repeat(tables, channel, new)
    position = tables.append_event(
        new.type,
        new.payload,
        new.event_id,
        new.entity_type,
        new.entity_id,
        new.root_id,
        new.depth,
        new if _says_more(new) else None,
        repeated,
    )
    resumed, more = (0, False) if repeated else _resume(tables, new, position)
    emitted = Emitted(new.event_id, position, resumed, more)
    if new.key is not None:
        scope, answer = emit_scope(new.type), encode_answer(emitted)
        keep_key(tables, scope, new.key, limits.emit_key_us, _digest(tables, new), answer)
    return emitted


def _says_more(new: ops.NewEvent) -> bool:
    """Whether it has what most events have not; a plain one is cheaper to write."""
    return not (
        new.caused_by is None and new.key is None and new.trace is None and new.occurred_at is None
    )


def first_refusal(tables: Tables, events: tuple[ops.NewEvent, ...]) -> Refusal | None:
    """Why one of these events would be refused, if any would: by what is on record, or by one before it."""
    by_key: dict[tuple[str, str], ops.NewEvent] = {}
    by_id: dict[str, ops.NewEvent] = {}
    for new in events:
        told = _told_before(tables, new)
        if told is None:
            told = _refused(tables.channel("topic", new.type), new)
        if told is None and new.key is not None:
            first = by_key.setdefault((new.type, new.key), new)
            if first is not new:
                told = _other_key(tables, new, _digest(tables, first))
        if told is None and not new.fresh:
            told = _other_id(tables, new, by_id.setdefault(new.event_id, new))
        if isinstance(told, Refusal):
            return told
    return None


# --- whether it may be appended ---


def _told_before(tables: Tables, new: ops.NewEvent) -> Duplicate[Emitted] | Refusal | None:
    """The answer to a key or an id that was used before."""
    if new.key is not None:
        used = used_key(tables, emit_scope(new.type), new.key)
        if used is not None:
            return _other_key(tables, new, used.digest) or Duplicate(decode_answer(used.answer))
    if new.fresh:
        return None
    event = tables.event(new.event_id)
    if event is None:
        return None
    return _other_id(tables, new, event) or Duplicate(Emitted(event.event_id, event.position))


def _other_key(tables: Tables, new: ops.NewEvent, digest: str) -> Refusal | None:
    """The refusal of a key that was used for what has this digest, if that is something else."""
    if was_used_for(digest, new.payload, *_about(new), schema=_schema_of(tables, new)):
        return None
    problem = "with another payload or entity"
    return Refusal("conflict", f"key {new.key!r} was used for {new.type!r} {problem}")


def _other_id(
    tables: Tables, new: ops.NewEvent, known: EventRecord | ops.NewEvent
) -> Refusal | None:
    """The refusal of an id that an event has, if that says something else."""
    same = (known.type, known.entity_type, known.entity_id)
    if same == (new.type, new.entity_type, new.entity_id) and (
        known.payload == new.payload or is_same(known.payload, new.payload, _schema_of(tables, new))
    ):
        return None
    return Refusal("conflict", f"event {new.event_id!r} is on the ledger and says something else")


def _refused(channel: ChannelRecord | None, new: ops.NewEvent) -> Refusal | None:
    return misfit(channel, new, f"the payload of topic {new.type!r}")


def _digest(tables: Tables, new: ops.NewEvent) -> str:
    return used_for(new.payload, *_about(new), schema=_schema_of(tables, new))


def _about(new: ops.NewEvent) -> tuple[str, str]:
    return new.entity_type or "", new.entity_id or ""


def _schema_of(tables: Tables, new: ops.NewEvent) -> dict[str, Any] | None:
    return schema_of(tables.channel("topic", new.type))


def _is_repeat(tables: Tables, channel: ChannelRecord | None, new: ops.NewEvent) -> bool:
    repeats = new.repeats or ("deliver" if channel is None else channel.repeats)
    if repeats == "deliver":
        return False
    entity = entity_text(new.entity_type, new.entity_id)
    last = tables.next_event(new.type, entity, 0, newest=True, repeats=True)
    # Of an event about nothing in particular the last one may be about something: that is another fact.
    if last is None or last.entity_type != new.entity_type:
        return False
    return last.payload == new.payload or is_same(last.payload, new.payload, schema_of(channel))


# --- who waits for it ---


def _resume(tables: Tables, new: ops.NewEvent, position: int) -> tuple[int, bool]:
    """Resume who waits, as far as this commit takes it: how many did, and whether there are more."""
    if not tables.is_watched("topic", new.type):
        return 0, False
    event = EventRecord(
        position=position,
        event_id=new.event_id,
        type=new.type,
        entity_type=new.entity_type,
        entity_id=new.entity_id,
        payload=new.payload,
        occurred_at=new.occurred_at or tables.now,
        recorded_at=tables.now,
    )
    room = limits.resumed_per_commit_max - tables.fanned
    resumed, _, more = _deliver(tables, event, max(room, 0))
    if more:
        resume_later(tables, position)
    return resumed, more


def _deliver(
    tables: Tables, event: EventRecord, limit: int, taker: Taker | None = None
) -> tuple[int, int, bool]:
    """Resume up to `limit` waits: how many runs go on with the event, how many waits ended, whether there are more."""
    watchers = tables.topic_watchers(event, limit + 1)
    # A wait may name a topic twice, with an entity and without: its first mention wins.
    first_of: dict[tuple[str, str], WatcherRecord] = {}
    for watcher in watchers[:limit]:
        at = (watcher.run_id, watcher.path)
        known = first_of.get(at)
        if known is None or watcher.ix < known.ix:
            first_of[at] = watcher
    pending = tables.fan_outs()
    behind = bool(pending) and pending[0] < event.position
    resumed: set[str] = set()
    # Waits end before runs are cancelled: children of those are given first what is on its way to them, such as this.
    for watcher in sorted(first_of.values(), key=lambda one: one.is_standing):
        run = tables.run(watcher.run_id)
        if run is None:
            tables.delete_watchers(watcher.run_id)
        elif behind:
            run = ending.catch_up(tables, run)  # an earlier event may be on its way to it
            if _has_reached(tables, run, watcher, event):
                resumed.add(run.run_id)
        elif ending.deliver_event(tables, run, watcher, event, taker=taker):
            resumed.add(run.run_id)
    tables.fanned += len(first_of)
    return len(resumed), len(first_of), len(watchers) > limit


def _has_reached(
    tables: Tables, run: RunRecord, watcher: WatcherRecord, event: EventRecord
) -> bool:
    """Whether it was this event that ended the wait, or cancelled the run."""
    if watcher.is_standing:
        return run.cancel_requested and run.reason == reason_of(event)
    step = tables.step(run.run_id, run.generation, watcher.path)
    return step is not None and step.taken_id == event.event_id


def fan_out(tables: Tables, op: ops.FanOut) -> Counted:
    count = 0
    taker = None if op.claim is None else Taker(op.claim)
    for position in list(tables.fan_outs()):
        event = tables.event_at(position)
        more = False
        if event is not None:  # else retention took it
            _, ended, more = _deliver(tables, event, op.limit - count, taker)
            count += ended
        if more:
            break
        tables.delete_fan_out(position)
    more = bool(tables.fan_outs())
    if more:
        # Before those who go on now: the next chunk is to be written while they do.
        tables.wakes.insert(0, Wake("fan_out"))
    return Counted(count, more=more)


# --- what a filter decided ---


def resolve_wait(tables: Tables, op: ops.ResolveWait) -> Counted:
    run = tables.run(op.run_id)
    if run is None or run.generation != op.generation:
        return Counted(0)
    run = ending.catch_up(tables, run)
    watchers = [one for one in tables.watchers(run.run_id) if one.path == op.path]
    watcher = next((one for one in watchers if one.ix == op.ix and one.kind == "match"), None)
    if watcher is None:
        return Counted(0)
    if op.position is None:
        return Counted(int(_is_over(tables, run, watcher, watchers, op.examined)))
    event = tables.event_at(op.position)
    if event is None or not _is_for(watcher, event):
        return Counted(0)
    return Counted(int(ending.deliver_event(tables, run, watcher, event, op.error)))


def _is_for(watcher: WatcherRecord, event: EventRecord) -> bool:
    """Whether the event could end the wait at all: the matcher's word is taken only for what its filter says."""
    return event.type == watcher.target and not event.repeated and can_end(watcher, event)


def _is_over(
    tables: Tables,
    run: RunRecord,
    watcher: WatcherRecord,
    watchers: list[WatcherRecord],
    examined: int,
) -> bool:
    """End a wait by its deadline, once every event up to then was judged, by each of its filters."""
    if watcher.deadline_at is None or tables.now <= watcher.deadline_at:
        return False
    for one in watchers:
        after = examined if one.kind == "match" else one.after
        if one.kind in ("match", "topic") and tables.next_event(
            one.target, one.entity, after, recorded_by=one.deadline_at
        ):
            return False
    timing.time_out(tables, run, watcher, watchers)
    return True


# --- retention ---


def trim_ledger(tables: Tables, op: ops.TrimLedger) -> Trimmed:
    last = tables.last_position()
    first = tables.first_position()
    wanted = 0 if op.recorded_before is None else tables.position_at(op.recorded_before)
    if op.keep is not None:
        wanted = max(wanted, last - op.keep)
    allowed, held_by = _needed(tables, op, last)
    upto = min(wanted, allowed, last - 1)
    chunk = min(upto, first - 1 + op.limit)
    if chunk >= first:
        tables.trim_events(chunk)
    count = max(0, chunk - first + 1)
    return Trimmed(count, more=chunk < upto, held_by=held_by if allowed < wanted else None)


def _is_in_use(tables: Tables, consumer: ConsumerRecord, idle_before: int) -> bool:
    """Whether it moved lately, or had nothing to read until lately: the ledger itself may have been quiet."""
    if consumer.advanced_at >= idle_before:
        return True
    unread = tables.event_at(consumer.position + 1)
    return unread is not None and unread.recorded_at >= idle_before


def _needed(tables: Tables, op: ops.TrimLedger, last: int) -> tuple[int, str | None]:
    """Up to where nobody needs the ledger any more, and who needs what comes next."""
    # What is on its way to runs is not for an operator to force away: they were promised it.
    needed: list[tuple[int, str | None]] = [(one - 1, None) for one in tables.fan_outs()]
    needed.append((last, None))
    if not op.forced:
        needed += [
            (one.position, one.name)
            for one in tables.consumers()
            if _is_in_use(tables, one, op.idle_before)
        ]
        oldest = tables.oldest_needed(op.idle_before)
        if oldest is not None:
            needed.append((oldest[0] - 1, oldest[1]))
    return min(needed, key=lambda one: one[0])
