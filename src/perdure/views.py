"""What reads give to people: plain values with datetimes and decoded payloads instead of stored rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, TypeVar, overload

import msgspec

from perdure.errors import PerdureError
from perdure.model import limits
from perdure.model.approvals import decode_asks
from perdure.model.clock import to_datetime
from perdure.model.cron import parse_cron
from perdure.model.limits import BadValue
from perdure.model.pools import decode_limits, decode_state, limits_of, why
from perdure.model.records import (
    BufferPolicy,
    CatchUp,
    ConsumerRecord,
    DeadLetterRecord,
    DeferredRecord,
    ErrorRecord,
    EventRecord,
    ItemRecord,
    Overlap,
    ParkedRecord,
    PoolRecord,
    RunRecord,
    ScheduleRecord,
    SignalRecord,
    StepRecord,
    SubscriptionRecord,
    WaitSpec,
    WatcherRecord,
    entity_text,
)
from perdure.model.status import Status
from perdure.model.ticks import calendar_of, interval_of
from perdure.store.base import Standing

T = TypeVar("T")
Row = TypeVar("Row")
Place = TypeVar("Place", bound=tuple[Any, ...])

# Of a cursor's text: the longest are paths of steps, which have a count behind.
_text_bytes_max = 2 * limits.path_bytes_max


class Page(Sequence[T], Generic[T]):
    """Part of a listing. Give `cursor` as `after=` to get the next part; None when this is the last."""

    __slots__ = ("cursor", "items")

    def __init__(self, items: list[T], cursor: str | None) -> None:
        self.items = items
        self.cursor = cursor

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        return self.items[at]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Page):
            return NotImplemented
        return self.items == other.items and self.cursor == other.cursor

    def __repr__(self) -> str:
        return f"Page({self.items!r}, cursor={self.cursor!r})"


def encode_cursor(*parts: int | str) -> str:
    return msgspec.json.encode(parts).hex()


def decode_cursor(text: str, kind: type[Place]) -> Place:
    """The inverse of `encode_cursor`; a cursor that is not one of ours is refused."""
    problem = "is not one that a listing gave: pass page.cursor"
    try:
        place: Place = msgspec.json.decode(bytes.fromhex(text), type=kind)
    except (ValueError, TypeError, AttributeError, msgspec.MsgspecError) as error:
        raise BadValue("cursor", text, problem) from error
    if not all(map(_may_be_stored, place)):
        raise BadValue("cursor", text, problem)
    return place


def _may_be_stored(one: Any) -> bool:
    """Whether a part of a cursor may stand in a row: a store is asked to compare with it."""
    if isinstance(one, int):
        return limits.int_min <= one <= limits.int_max
    return not isinstance(one, str) or limits.is_storable(one, _text_bytes_max)


def page(
    rows: Sequence[Row],
    limit: int,
    view: Callable[[Row], T],
    place: Callable[[Row], tuple[Any, ...]],
) -> Page[T]:
    """Rows as people see them, asked for with one more than `limit`: then the last one shown is the cursor."""
    shown = rows[:limit]
    cursor = encode_cursor(*place(shown[-1])) if len(rows) > limit else None
    return Page([view(one) for one in shown], cursor)


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run as listed."""

    id: str
    workflow: str
    version: int
    status: Status
    generation: int
    created_at: datetime
    finished_at: datetime | None
    starts_at: datetime | None
    reason: str | None
    tags: dict[str, str]
    entity: str | None
    parent_id: str | None
    event_id: str | None = None  # the event that a subscription started it for
    deadline_at: datetime | None = None  # it is cancelled then, if it has not ended
    pool: str | None = None
    pool_key: str | None = None
    priority: int = 0
    in_line_since: datetime | None = None  # for a slot of its pool; `app.waiting` says why
    trace: str | None = None  # W3C traceparent of what it was started in


def run_info(run: RunRecord) -> RunInfo:
    return RunInfo(
        id=run.run_id,
        workflow=run.workflow,
        version=run.version,
        status=run.status,
        generation=run.generation,
        created_at=to_datetime(run.created_at),
        finished_at=_moment(run.finished_at),
        starts_at=_moment(run.ready_at if run.line_at is None else run.line_at)
        if run.status == "ready"
        else None,
        reason=run.reason,
        tags=msgspec.json.decode(run.tags) if run.tags else {},
        entity=entity_text(run.entity_type, run.entity_id) or None,
        parent_id=run.parent_run_id,
        event_id=run.event_id,
        deadline_at=_moment(run.deadline_at),
        pool=run.pool or None,
        pool_key=run.pool_key or None,
        priority=run.priority,
        in_line_since=_moment(run.line_at),
        trace=run.trace,
    )


class RunContents(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was given, what it shows (`ctx.set`), and what came of it; values as JSON has them.

    `failure` is the error of a failed run: its type, its message, the path it came from, its traceback.
    """

    workflow: str
    input: list[Any]
    published: dict[str, Any]
    output: Any
    failure: dict[str, Any] | None


def run_contents(run: RunRecord) -> RunContents:
    return RunContents(
        workflow=run.workflow,
        input=msgspec.json.decode(run.input),
        published=msgspec.json.decode(run.published or "{}"),
        output=None if run.output is None else msgspec.json.decode(run.output),
        failure=failure_of(run),
    )


def failure_of(run: RunRecord) -> dict[str, Any] | None:
    """What a failed run failed with; the error of one that was reopened since is history."""
    if run.error is None or run.status != "failed":
        return None
    found: dict[str, Any] = msgspec.to_builtins(msgspec.json.decode(run.error, type=ErrorRecord))
    return found


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a run's history. `winner` is the condition that ended a wait, as `kind:target`."""

    path: str
    kind: str
    name: str
    status: str
    attempt: int
    value: Any
    error: dict[str, Any] | None
    winner: str | None
    generation: int
    started_at: datetime | None
    recorded_at: datetime | None


def history_entry(step: StepRecord) -> HistoryEntry:
    return HistoryEntry(
        path=step.path,
        kind=step.kind,
        name=step.name,
        status=step.state,
        attempt=step.attempt,
        value=None if step.value is None else msgspec.json.decode(step.value),
        error=None if step.error is None else msgspec.json.decode(step.error),
        winner=_winner(step),
        generation=step.generation,
        started_at=_moment(step.started_at),
        recorded_at=_moment(step.recorded_at),
    )


def _winner(step: StepRecord) -> str | None:
    if step.wait is None or step.winner is None:
        return None
    won = msgspec.json.decode(step.wait, type=WaitSpec).on[step.winner]
    return won.kind if won.kind == "timer" else f"{won.kind}:{won.target}"


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What a run waits for, since when, until when."""

    run_id: str
    path: str
    kind: Literal["signal", "run", "timer", "retry", "topic", "queue", "slot", "approval", "worker"]
    target: str
    since: datetime
    until: datetime | None
    entity: str | None = None  # of a topic
    where: str | None = None  # the filter of a topic
    reason: str | None = None  # why a slot of its pool, or a worker, is not to be had


def waits(watchers: Iterable[WatcherRecord]) -> list[Waiting]:
    """What a run itself waits for: nothing that stands over it, or beside a wait."""
    return [waiting(one) for one in watchers if not one.is_standing and not one.is_beside]


def waiting(watcher: WatcherRecord) -> Waiting:
    kind: Any = "topic" if watcher.kind == "match" else watcher.kind
    return Waiting(
        run_id=watcher.run_id,
        path=watcher.path,
        kind=kind,
        target=decode_asks(watcher.asks).name if kind == "approval" else watcher.target,
        since=to_datetime(watcher.opened_at),
        until=_moment(watcher.deadline_at),
        entity=watcher.entity or None,
        where=watcher.filter or None,
    )


def watcher_place(watcher: WatcherRecord) -> tuple[int, str, str, int]:
    """Where it stands in a listing, longest waiting first."""
    return watcher.opened_at, watcher.run_id, watcher.path, watcher.ix


class PoolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A pool: its limits as they count now, slots that are taken, how many runs wait for one and since when.

    `declared` are the limits that code said last, if they differ: `reset_pool` sets them again.
    """

    name: str
    limit: int | None
    per_key: int | None
    rate: str | None
    per_key_rate: str | None
    taken: int
    waiting: int
    waiting_since: datetime | None
    next_at: datetime | None  # when its rate lets the next one begin, if that is still to come
    declared: dict[str, Any] | None


def pool_info(row: PoolRecord, standing: Standing, now: int) -> PoolInfo:
    bounds = limits_of(row)
    rate = bounds.rate
    next_at = 0 if rate is None else rate.next_at(decode_state(standing.state).tat, now)
    code = None if row.declared in (None, row.limits) else decode_limits(row.declared or "{}")
    return PoolInfo(
        name=row.name,
        **bounds.said(),
        taken=standing.taken,
        waiting=standing.waiting,
        waiting_since=_moment(standing.oldest_at),
        next_at=to_datetime(next_at) if next_at > now else None,
        declared=None if code is None else code.said(),
    )


class SlotWait(msgspec.Struct, frozen=True, kw_only=True):
    """A run that stands in the line of its pool: since when, and why. `begun` ones go before new ones."""

    run_id: str
    pool: str
    key: str | None
    priority: int
    begun: bool
    since: datetime
    reason: str


def slot_wait(run: RunRecord, row: PoolRecord, standing: Standing, now: int) -> SlotWait:
    tat = decode_state(standing.state).tat
    of_key = standing.keys.get(run.pool_key, (0, None))
    return SlotWait(
        run_id=run.run_id,
        pool=run.pool,
        key=run.pool_key or None,
        priority=run.priority,
        begun=run.admitted,
        since=to_datetime(run.line_at or 0),
        reason=why(run, limits_of(row), standing.taken, of_key, tat, now),
    )


def waiting_in_line(one: SlotWait) -> Waiting:
    """The same among what a run can wait for."""
    return Waiting(
        run_id=one.run_id,
        path="",
        kind="slot",
        target=one.pool,
        since=one.since,
        until=None,
        reason=one.reason,
    )


def waiting_for_worker(run: RunRecord) -> Waiting:
    """Of a run that could go on, if a live worker had the version that it is of."""
    return Waiting(
        run_id=run.run_id,
        path="",
        kind="worker",
        target=run.workflow,
        since=to_datetime(run.ready_at or 0),
        until=None,
        reason=f"no live worker has version {run.version} of {run.workflow!r}",
    )


class BufferedSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was accepted and not yet taken."""

    signal_id: str
    name: str
    path: str | None
    payload: Any
    policy: BufferPolicy
    received_at: datetime
    expires_at: datetime | None


def buffered_signal(signal: SignalRecord) -> BufferedSignal:
    return BufferedSignal(
        signal_id=signal.signal_id,
        name=signal.name,
        path=signal.path,
        payload=msgspec.json.decode(signal.payload),
        policy=signal.policy,
        received_at=to_datetime(signal.received_at),
        expires_at=_moment(signal.expires_at),
    )


class QueueItem(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a queue that no run has taken yet."""

    item_id: str
    queue: str
    payload: Any
    put_at: datetime


def queue_item(item: ItemRecord) -> QueueItem:
    return QueueItem(
        item_id=item.item_id,
        queue=item.queue,
        payload=msgspec.json.decode(item.payload),
        put_at=to_datetime(item.put_at),
    )


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A signal, or an item of a queue, that nobody could take any more: `app.resend(letter.id)` sends it again."""

    id: str
    run_id: str
    name: str
    path: str | None
    payload: Any
    reason: str
    received_at: datetime
    dead_at: datetime
    kind: Literal["signal", "item"] = "signal"


def dead_letter(letter: DeadLetterRecord) -> DeadLetter:
    return DeadLetter(
        id=letter.dead_letter_id,
        run_id=letter.run_id,
        name=letter.name,
        path=letter.path,
        payload=msgspec.json.decode(letter.payload),
        reason=letter.reason,
        received_at=to_datetime(letter.received_at),
        dead_at=to_datetime(letter.dead_at),
        kind=letter.kind,
    )


class StreamItem(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Something that a run has published. Positions of a stream are dense from 1; what is missing has gone.

    `path` and `attempt` are those of the step or call that published it: a step that is tried again publishes again.
    """

    position: int
    value: T
    path: str
    attempt: int
    published_at: datetime


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of a run: the positions of the oldest item that is kept, and of the newest."""

    name: str
    first: int
    last: int


class SignalStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a signal: buffered, dead_letter, or as the ledger tells: delivered, replaced, …"""

    signal_id: str
    state: str
    run_id: str
    name: str
    path: str | None


def signal_status(found: SignalRecord | DeadLetterRecord | EventRecord) -> SignalStatus | None:
    match found:
        case SignalRecord():
            return SignalStatus(
                signal_id=found.signal_id,
                state="buffered",
                run_id=found.run_id,
                name=found.name,
                path=found.path,
            )
        case DeadLetterRecord():
            return SignalStatus(
                signal_id=found.dead_letter_id,
                state="dead_letter",
                run_id=found.run_id,
                name=found.name,
                path=found.path,
            )
        case EventRecord():
            if not found.type.startswith("signal."):
                return None  # anybody's event
            facts = msgspec.json.decode(found.payload)
            if facts.get("signal_id") != found.event_id:
                return None  # of something else than a signal's fate
            return SignalStatus(
                signal_id=found.event_id,
                state=found.type.removeprefix("signal."),
                run_id=facts["run_id"],
                name=facts["name"],
                path=facts.get("path"),
            )


class Refused(msgspec.Struct, frozen=True):
    """One send of a batch was refused; `error` is what `app.signal` would have raised."""

    error: PerdureError


def _fields(row: msgspec.Struct, at: str) -> dict[str, Any]:
    """The columns of a row that users see as it is, but for the time it is of."""
    fields = msgspec.structs.asdict(row)
    return {**fields, at: to_datetime(fields[at])}


def _moment(at: int | None) -> datetime | None:
    return None if not at else to_datetime(at)


# --- readers of the ledger ---


class ConsumerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A reader of the ledger. Every event up to `position` is dealt with; `lag` counts those after it."""

    name: str
    patterns: list[str]
    position: int
    lag: int
    every: str | None
    zone: str
    next_tick: datetime | None
    paused: bool
    reason: str | None
    owner: str | None
    error: str | None
    capped: int
    created_at: datetime
    advanced_at: datetime


def consumer_info(row: ConsumerRecord, last: int, now: int) -> ConsumerInfo:
    tick = None if row.every is None else parse_cron(row.every, row.zone).after(now)
    return ConsumerInfo(
        name=row.name,
        patterns=msgspec.json.decode(row.patterns),
        position=row.position,
        lag=max(0, last - row.position),
        every=row.every,
        zone=row.zone,
        next_tick=_moment(tick),
        paused=row.paused,
        reason=row.reason,
        owner=row.owner,
        error=row.error,
        capped=row.capped,
        created_at=to_datetime(row.created_at),
        advanced_at=to_datetime(row.advanced_at),
    )


class SubscriptionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A rule: events of a pattern start a workflow. With `code`, `where`, `map` and `key` may name functions.
    One that code declares (`declared`) is changed there.

    Events after `position` count; those between `behind` and `until` are still to be caught up with.
    """

    name: str
    pattern: str
    workflow: str
    where: str | None
    map: str | None
    key: str | None
    code: bool
    declared: bool
    enabled: bool
    position: int
    behind: int | None
    until: int
    created_at: datetime


def subscription_info(row: SubscriptionRecord) -> SubscriptionInfo:
    return SubscriptionInfo(**_fields(row, "created_at"))


class ParkedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a consumer could not deal with: `app.refire(consumer, position, subscription)` tries again."""

    consumer: str
    position: int
    subscription: str
    event_id: str
    type: str
    reason: str
    attempts: int
    parked_at: datetime


def parked_event(row: ParkedRecord) -> ParkedEvent:
    return ParkedEvent(**_fields(row, "parked_at"))


class DeferredStart(msgspec.Struct, frozen=True, kw_only=True):
    """A start that a bound has put off: "fanout" and "code" go on by themselves, "root" and "depth" do not."""

    position: int
    subscription: str
    event_id: str
    reason: Literal["fanout", "root", "depth", "code"]
    deferred_at: datetime


def deferred_start(row: DeferredRecord) -> DeferredStart:
    return DeferredStart(**_fields(row, "deferred_at"))


# --- schedules ---

_ticks_shown = 3


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A calendar that starts a workflow: `every` is cron in the time of `zone`, or an interval.

    `next_ticks` are the first ones to come, none while it is paused. `waiting` ticks have come and start in their turn;
    `skipped` ones started nothing. `last_tick` and `last_run_id` are of the newest run, by its calendar and in all.
    """

    name: str
    workflow: str
    input: list[Any]
    every: str | timedelta
    zone: str
    catch_up: CatchUp
    overlap: Overlap
    code: bool
    paused: bool
    reason: str | None
    next_ticks: list[datetime]
    last_tick: datetime | None
    last_run_id: str | None
    waiting: int
    skipped: int
    created_at: datetime


def schedule_info(row: ScheduleRecord) -> ScheduleInfo:
    interval = interval_of(row)
    return ScheduleInfo(
        name=row.name,
        workflow=row.workflow,
        input=msgspec.json.decode(row.input),
        every=row.cron or "" if interval is None else interval,
        zone=row.zone,
        catch_up=row.catch_up,
        overlap=row.overlap,
        code=row.code,
        paused=row.paused,
        reason=row.reason,
        next_ticks=_next_ticks(row),
        last_tick=_moment(row.last_at),
        last_run_id=row.last_run_id,
        waiting=len(msgspec.json.decode(row.queued)),
        skipped=row.skipped,
        created_at=to_datetime(row.created_at),
    )


def _next_ticks(row: ScheduleRecord) -> list[datetime]:
    if row.paused:
        return []
    ticks = [row.next_at]
    try:
        calendar = calendar_of(row)
        while len(ticks) < _ticks_shown:
            ticks.append(calendar.after(ticks[-1]))
    except BadValue:
        pass  # a time zone that is not known here, or the end of the calendar
    return [to_datetime(one) for one in ticks]


class Backfilled(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a window: `started` ticks have a run now or wait for their turn, `existing` ones did before.

    `left` ones found no room to wait: call again when some have started.
    """

    ticks: int
    started: int
    existing: int
    left: int = 0
