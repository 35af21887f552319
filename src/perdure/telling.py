"""What an app tells and is told: events on the ledger, items in queues, and who waits for them.

The verbs of `App` about topics and queues; `App` is made of this and other parts. Each checks what it was given, asks
the engine, and gives its answer a public form.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal, TypeVar, overload

from msgspec.structs import replace

from perdure.channels import Plain, Queue, Topic
from perdure.engine import Engine
from perdure.errors import Conflict, LedgerRewound, PerdureError, refusal_error
from perdure.inputs import (
    Fact,
    as_fact,
    check_cause,
    checked_id,
    checked_limit,
    new_event,
    new_item,
)
from perdure.ledger import cloudevents
from perdure.model import limits, ops
from perdure.model.duration import Duration, parse_duration
from perdure.model.events import Cause, Event, event_of
from perdure.model.limits import BadValue, check_entity, check_name
from perdure.model.outcomes import Accepted, EmitOutcome, Refusal, Taken, Told
from perdure.model.records import DeadLetterRecord, EventRecord, SignalRecord
from perdure.model.topics import Pattern, check_topic, parse_pattern
from perdure.named import Catalogue, submit
from perdure.observing.traces import current_trace
from perdure.posting import post
from perdure.store.base import Store
from perdure.views import (
    Page,
    QueueItem,
    Refused,
    Waiting,
    decode_cursor,
    encode_cursor,
    page,
    queue_item,
    waiting,
    watcher_place,
)

T = TypeVar("T")

Order = Literal["position", "occurred_at"]

# Of emit_many: so many chunks of events go to the writer together, and are one commit at most.
_chunks_at_once = 8
# Events that a page with a pattern looks at before it gives what it has found so far.
_looked_at_max = 10_000


class Telling:
    """The verbs of an app about events and items."""

    _engine: Callable[[], Engine]

    @property
    @abstractmethod
    def source(self) -> str:
        """What CloudEvents of this app name as their source."""

    # --- events ---

    @overload
    async def emit(
        self,
        topic: Topic[T],
        payload: T | Plain,
        *,
        entity: str | None = None,
        key: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        caused_by: Event | Cause | str | None = None,
        trace: str | None = None,
        connection: None = None,
    ) -> Told: ...
    @overload
    async def emit(
        self,
        topic: Topic[None] | str,
        payload: Any = None,
        *,
        entity: str | None = None,
        key: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        caused_by: Event | Cause | str | None = None,
        trace: str | None = None,
        connection: None = None,
    ) -> Told: ...
    @overload
    async def emit(
        self,
        topic: Topic[T],
        payload: T | Plain,
        *,
        entity: str | None = None,
        key: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        caused_by: Event | Cause | str | None = None,
        trace: str | None = None,
        connection: Any,
    ) -> Accepted: ...
    @overload
    async def emit(
        self,
        topic: Topic[None] | str,
        payload: Any = None,
        *,
        entity: str | None = None,
        key: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        caused_by: Event | Cause | str | None = None,
        trace: str | None = None,
        connection: Any,
    ) -> Accepted: ...
    async def emit(
        self, topic: Any, payload: Any = None, *, connection: Any = None, **options: Any
    ) -> Told | Accepted:
        """Put an event on the ledger and resume every run that waits for it.

        The same key (within its topic, for a week) or event_id again gives Duplicate and changes nothing. Raises
        InvalidPayload, Conflict; nothing is stored then. With a `connection` of your own it is Accepted, and told
        once you commit, if you do.
        """
        engine = self._engine()
        fact = await _looked_up(engine, Fact(topic=topic, payload=payload, **options))
        trace = current_trace() if fact.trace is None else None
        if trace is not None:
            fact = replace(fact, trace=trace)
        new = _made(engine, fact)
        op = ops.Emit(events=(new,))
        if connection is not None:
            op = ops.Emit(events=(await Catalogue(engine.store).checked(new),))
            return await post(engine, connection, op, engine.clock.now())
        (outcome,) = await submit(engine.coordinator, engine.store, op)
        if isinstance(outcome, Refusal):
            raise refusal_error(outcome, new.type, "")
        return outcome

    async def emit_many(self, events: Iterable[Fact | tuple[Any, ...]]) -> list[Told | Refused]:
        """Put many events on the ledger, in their order; each has its own answer and none spoils another.

        An event is a `Fact`, or (topic, payload), or (topic, payload, entity).
        """
        engine = self._engine()
        made: list[ops.NewEvent | Refused] = []
        trace = current_trace()
        if not isinstance(events, Iterable):
            raise BadValue("events", events, "are not several: give a list of events")
        catalogue = Catalogue(engine.store)
        for given in events:
            try:
                fact = await _looked_up(engine, as_fact(given))
                if trace is not None and fact.trace is None:
                    fact = replace(fact, trace=trace)
                made.append(await catalogue.checked(_made(engine, fact)))
            except PerdureError as error:
                made.append(Refused(error))
        new = [one for one in made if isinstance(one, ops.NewEvent)]
        size = limits.events_per_op_max
        chunks = [tuple(new[at : at + size]) for at in range(0, len(new), size)]
        batches: list[Any] = []
        for at in range(0, len(chunks), _chunks_at_once):
            part = [ops.Emit(events=one) for one in chunks[at : at + _chunks_at_once]]
            batches += await engine.coordinator.submit_many(part)
        answers = iter(_answers(chunks, batches))
        return [one if isinstance(one, Refused) else next(answers) for one in made]

    async def emit_cloudevents(self, text: str | bytes) -> list[Told | Refused]:
        """Put CloudEvents 1.0 in JSON on the ledger: one, or a batch. Raises InvalidPayload if it is none."""
        return await self.emit_many(cloudevents.from_json(text))

    def as_cloudevents(self, *events: Event) -> str:
        """Events as CloudEvents 1.0 in JSON: one as itself, several as a batch."""
        for one in events:
            if not isinstance(one, Event):
                raise BadValue("event", one, "is no Event: give events, `as_cloudevents(*page)`")
        if len(events) == 1:
            return cloudevents.to_json(events[0], self.source)
        return cloudevents.to_batch_json(events, self.source)

    # --- reading the ledger ---

    async def events(
        self,
        pattern: str | Topic[Any] | None = None,
        *,
        entity: str | None = None,
        order: Order = "position",
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[Event]:
        """The ledger, oldest first, by position or by when things happened.

        With a pattern (`order.*`) a page may hold fewer than `limit` and still have a cursor: it looks at a bounded
        number of events.
        """
        if order not in ("position", "occurred_at"):
            raise BadValue("order", order, 'must be "position" or "occurred_at"')
        limit = checked_limit(limit)
        about = None if entity is None else check_entity(entity)
        name = pattern.name if isinstance(pattern, Topic) else pattern
        wanted = None if name is None else parse_pattern(name)
        read = self._by_position if order == "position" else self._by_time
        return await read(wanted, about, limit, after)

    async def timeline(
        self, entity: str, *, limit: int = limits.page_rows_default, after: str | None = None
    ) -> Page[Event]:
        """What happened to an entity, by when it happened."""
        return await self._by_time(None, check_entity(entity), checked_limit(limit), after)

    async def _by_position(
        self,
        pattern: Pattern | None,
        about: tuple[str, str] | None,
        limit: int,
        after: str | None,
    ) -> Page[Event]:
        store = self._engine().store
        place = decode_cursor(after, tuple[int]) if after is not None else (0,)

        def place_of(last: EventRecord) -> tuple[int]:
            return (last.position,)

        literal = None if pattern is None else pattern.literal
        if pattern is None or literal is not None:
            rows = await store.events(place[0], limit + 1, type=literal, entity=about)
            if not rows:
                await _check_end(store, place[0])
            return page(rows, limit, event_of, place_of)

        async def read(place: tuple[int], size: int) -> list[EventRecord]:
            return await store.events(place[0], size, entity=about)

        await _check_end(store, place[0])
        return await _filtered(read, pattern, place, limit, place_of)

    async def _by_time(
        self,
        pattern: Pattern | None,
        about: tuple[str, str] | None,
        limit: int,
        after: str | None,
    ) -> Page[Event]:
        store = self._engine().store
        place = decode_cursor(after, tuple[int, int]) if after is not None else None

        def place_of(last: EventRecord) -> tuple[int, int]:
            return last.occurred_at, last.position

        if pattern is None:
            rows = await store.events_by_time(place, limit + 1, entity=about)
            if not rows and place is not None:
                await _check_end(store, place[1])
            return page(rows, limit, event_of, place_of)

        async def read(place: tuple[int, int] | None, size: int) -> list[EventRecord]:
            return await store.events_by_time(place, size, entity=about)

        if place is not None:
            await _check_end(store, place[1])
        return await _filtered(read, pattern, place, limit, place_of)

    async def event(self, event_id: str) -> Event | None:
        """One event by its id."""
        found = await self._engine().store.event(checked_id("event id", event_id))
        return None if found is None else event_of(found)

    async def latest(self, topic: Topic[Any] | str, *, entity: str | None = None) -> Event | None:
        """The newest event of a topic, about one entity or any."""
        about = "" if entity is None else "/".join(check_entity(entity))
        found = await self._engine().store.latest(_topic_name(topic), about)
        return None if found is None else event_of(found)

    async def watchers(
        self,
        topic: Topic[Any] | str,
        *,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[Waiting]:
        """Who waits for a topic, longest waiting first."""
        limit = checked_limit(limit)
        seen = decode_cursor(after, tuple[int, str, str, int]) if after is not None else None
        rows = await self._engine().store.topic_watchers(_topic_name(topic), seen, limit + 1)
        return page(rows, limit, waiting, watcher_place)

    # --- queues ---

    @overload
    async def put(
        self,
        queue: Queue[T],
        payload: T | Plain,
        *,
        key: str | None = None,
        connection: None = None,
    ) -> Taken: ...
    @overload
    async def put(
        self,
        queue: Queue[None] | str,
        payload: Any = None,
        *,
        key: str | None = None,
        connection: None = None,
    ) -> Taken: ...
    @overload
    async def put(
        self, queue: Queue[T], payload: T | Plain, *, key: str | None = None, connection: Any
    ) -> Accepted: ...
    @overload
    async def put(
        self,
        queue: Queue[None] | str,
        payload: Any = None,
        *,
        key: str | None = None,
        connection: Any,
    ) -> Accepted: ...
    async def put(
        self, queue: Any, payload: Any = None, *, key: str | None = None, connection: Any = None
    ) -> Taken | Accepted:
        """Put an item into a queue: Delivered to the run that waits longest, else Queued until one takes it.

        With a `connection` of your own it is Accepted, and put there once you commit, if you do.
        """
        engine = self._engine()
        if isinstance(queue, Queue):
            _note(engine, queue)
        op = new_item(engine.registry, queue, payload, key, engine.ids.ulid(), by_name=True)
        if connection is not None:
            op = await Catalogue(engine.store).checked(op)
            return await post(engine, connection, op, engine.clock.now())
        outcome = await submit(engine.coordinator, engine.store, op)
        if isinstance(outcome, Refusal):
            raise refusal_error(outcome, op.queue, "")
        return outcome

    async def queue_items(
        self,
        queue: Queue[Any] | str,
        *,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[QueueItem]:
        """What is in a queue, oldest first."""
        limit = checked_limit(limit)
        seen = decode_cursor(after, tuple[int])[0] if after is not None else _before_all
        rows = await self._engine().store.queue_items(_queue_name(queue), seen, limit + 1)
        return page(rows, limit, queue_item, lambda last: (last.position,))

    async def queues(self) -> dict[str, int]:
        """How many items each queue holds; empty ones are left out."""
        return await self._engine().store.queues()

    async def purge(self, queue: Queue[Any] | str, *, older_than: Duration | None = None) -> int:
        """Delete what is in a queue, or what has been there for longer than this; gives how many."""
        engine = self._engine()
        # What comes while we delete stays: else a busy producer would keep us here for ever.
        before = engine.clock.now() + 1 if older_than is None else None
        if older_than is not None:
            before = engine.clock.now() - parse_duration(older_than, "older_than")
        count, more = 0, True
        while more:
            op = ops.PurgeQueue(
                queue=_queue_name(queue), put_before=before, limit=limits.batch_ops_max
            )
            purged = await engine.coordinator.submit(op)
            count, more = count + purged.count, purged.more
        return count


# Items that were given back stand before all others, at whatever position that is.
_before_all = -(2**62)


async def _looked_up(engine: Engine, fact: Fact) -> Fact:
    """Its own id is free, and its cause is the event itself for one who has only the id: it belongs to that chain."""
    if isinstance(fact.event_id, str):  # whether it is one at all is looked at with all the rest
        await _check_free(engine.store, checked_id("event_id", fact.event_id))
    if not isinstance(fact.caused_by, str):
        check_cause(fact.caused_by)
        return fact
    found = await engine.store.event(checked_id("caused_by", fact.caused_by))
    return fact if found is None else replace(fact, caused_by=event_of(found))


async def _check_free(store: Store, event_id: str) -> None:
    """The fact that tells what became of a signal has the id of the signal: it must not be taken by then."""
    if isinstance(await store.signal(event_id), SignalRecord | DeadLetterRecord):
        raise Conflict(f"event id {event_id!r} is that of a signal; nothing was stored")


def _made(engine: Engine, fact: Fact) -> ops.NewEvent:
    made = new_event(engine.registry, fact, engine.ids.ulid(), by_name=True)
    if isinstance(fact.topic, Topic):  # one that may not be emitted is not told of either
        _note(engine, fact.topic)
    return made


def _note(engine: Engine, channel: Topic[Any] | Queue[Any]) -> None:
    """Tell the catalogue of a topic or queue that is used and was not declared."""
    if engine.registry.note_channel(channel):
        declare = ops.Declare(channels=(channel.record(),), only_new=True)
        engine.coordinator.post(declare, lambda op, outcome, extra: None)


def _answers(
    chunks: list[tuple[ops.NewEvent, ...]], batches: list[Any]
) -> Iterable[Told | Refused]:
    for chunk, outcomes in zip(chunks, batches, strict=True):
        if isinstance(outcomes, PerdureError):
            yield from [Refused(outcomes)] * len(chunk)
        elif isinstance(outcomes, BaseException):
            raise outcomes
        else:
            for new, outcome in zip(chunk, outcomes, strict=True):
                yield _told(new, outcome)


def _told(new: ops.NewEvent, outcome: EmitOutcome) -> Told | Refused:
    if isinstance(outcome, Refusal):
        return Refused(refusal_error(outcome, new.type, ""))
    return outcome


async def _filtered(
    read: Callable[[Any, int], Any],
    pattern: Pattern,
    place: Any,
    limit: int,
    place_of: Callable[[EventRecord], tuple[int, ...]],
) -> Page[Event]:
    """The next events that match, of a bounded number that are looked at."""
    found: list[Event] = []
    left = _looked_at_max
    while left > 0:
        size = min(left, limits.page_rows_max)
        rows: list[EventRecord] = await read(place, size)
        for row in rows:
            if pattern.matches(row.type):
                if len(found) == limit:
                    return Page(found, encode_cursor(*place))
                found.append(event_of(row))
            place = place_of(row)
        if len(rows) < size:
            return Page(found, None)
        left -= size
    return Page(found, encode_cursor(*place))


def _topic_name(topic: Topic[Any] | str) -> str:
    return topic.name if isinstance(topic, Topic) else check_topic(topic)


def _queue_name(queue: Queue[Any] | str) -> str:
    return queue.name if isinstance(queue, Queue) else check_name("queue", queue)


async def _check_end(store: Store, seen: int) -> None:
    """Raises LedgerRewound for a cursor that has seen what is not there any more."""
    if seen > 0:
        _, last = await store.span()
        if seen > last:
            raise LedgerRewound(seen, last)
