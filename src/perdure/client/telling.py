"""The verbs of a client about events and queues."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from datetime import datetime
from typing import Any, Literal, TypeVar, overload

import msgspec

from perdure.channels import Plain, Queue, Topic
from perdure.client.batching import send_each, written
from perdure.client.transport import Transport
from perdure.client.wording import fact_fields, json_field, name_of, or_refused, read_answer
from perdure.http import wire
from perdure.http.routes import BY_VERB
from perdure.inputs import Fact, as_fact, checked_names
from perdure.model import limits
from perdure.model.duration import Duration
from perdure.model.events import Cause, Event
from perdure.model.limits import BadValue
from perdure.model.outcomes import Taken, Told
from perdure.views import (
    Page,
    QueueItem,
    Refused,
    RunInfo,
    Waiting,
)

T = TypeVar("T")


class Telling(Transport):
    """What a client can tell and read."""

    # --- the ledger ---

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
    ) -> Told: ...
    async def emit(self, topic: Any, payload: Any = None, **options: Any) -> Told:
        """Put an event on the ledger and resume every run that waits for it."""
        told: Told = await self._call(
            "emit", **fact_fields(Fact(topic=topic, payload=payload, **options))
        )
        return told

    async def emit_many(self, events: Iterable[Fact | tuple[Any, ...]]) -> list[Told | Refused]:
        """Put many events on the ledger, in their order; each has its own answer and none spoils another."""
        if not isinstance(events, Iterable):
            raise BadValue("events", events, "are not several: give a list of events")
        bodies = [written(wire.Emit, "event", _event_fields, one) for one in events]
        return await send_each(self, "emit_many", "events", bodies)

    async def emit_cloudevents(self, text: str | bytes) -> list[Told | Refused]:
        """Put CloudEvents 1.0 in JSON on the ledger: one, or a batch."""
        raw = text.encode() if isinstance(text, str) else text
        is_batch = raw.lstrip()[:1] == b"["
        kind = "application/cloudevents-batch+json" if is_batch else "application/cloudevents+json"
        route = BY_VERB["emit_cloudevents"]
        answer = await self._sent(route, route.path, None, raw, headers={"content-type": kind})
        told: wire.Listing[Any] = read_answer(route, answer)
        return [or_refused(one) for one in told.items]

    async def events(
        self,
        pattern: str | Topic[Any] | None = None,
        *,
        entity: str | None = None,
        order: Literal["position", "occurred_at"] = "position",
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[Event]:
        """The ledger, oldest first, by position or by when things happened."""
        return await self._page(
            "events", pattern=name_of(pattern), entity=entity, order=order, limit=limit, after=after
        )

    async def timeline(
        self, entity: str, *, limit: int = limits.page_rows_default, after: str | None = None
    ) -> Page[Event]:
        """What happened to an entity, by when it happened."""
        return await self._page("timeline", entity=entity, limit=limit, after=after)

    async def event(self, event_id: str) -> Event | None:
        """One event by its id."""
        found: Event | None = await self._value("event", event_id=event_id)
        return found

    async def latest(self, topic: Topic[Any] | str, *, entity: str | None = None) -> Event | None:
        """The newest event of a topic, about one entity or any."""
        found: Event | None = await self._value("latest", topic=name_of(topic), entity=entity)
        return found

    async def watchers(
        self,
        topic: Topic[Any] | str,
        *,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[Waiting]:
        """Who waits for a topic, longest waiting first."""
        return await self._page("watchers", topic=name_of(topic), limit=limit, after=after)

    async def follow(
        self,
        pattern: str | Topic[Any] | None = None,
        *,
        entity: str | None = None,
        after: int | None = None,
        runs: Iterable[str] = (),
    ) -> AsyncGenerator[Event | RunInfo, None]:
        """The ledger as it grows, after a position or from now on, and each change of these runs.

        A connection that breaks is made anew, where this one ended: no event is missed, and none comes twice.
        """
        query = {"pattern": name_of(pattern), "entity": entity, "run": checked_names("runs", runs)}
        route = BY_VERB["follow"]
        async with aclosing(self._messages(route, route.path, query, after)) as messages:
            async for name, data in messages:
                if name == "event":
                    yield msgspec.json.decode(data, type=Event)
                elif name == "run" and data != b"null":
                    yield msgspec.json.decode(data, type=RunInfo)

    # --- queues ---

    @overload
    async def put(
        self, queue: Queue[T], payload: T | Plain, *, key: str | None = None
    ) -> Taken: ...
    @overload
    async def put(
        self, queue: Queue[None] | str, payload: Any = None, *, key: str | None = None
    ) -> Taken: ...
    async def put(self, queue: Any, payload: Any = None, *, key: str | None = None) -> Taken:
        """Put an item into a queue: Delivered to the run that waits longest, else Queued until one takes it."""
        item = json_field(queue, f"the payload of queue {name_of(queue)!r}", payload)
        taken: Taken = await self._call("put", queue=name_of(queue), payload=item, key=key)
        return taken

    async def queue_items(
        self,
        queue: Queue[Any] | str,
        *,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[QueueItem]:
        """What is in a queue, oldest first."""
        return await self._page("queue_items", queue=name_of(queue), limit=limit, after=after)

    async def queues(self) -> dict[str, int]:
        """How many items each queue holds; empty ones are left out."""
        found: dict[str, int] = await self._value("queues")
        return found

    async def purge(self, queue: Queue[Any] | str, *, older_than: Duration | None = None) -> int:
        """Delete what is in a queue, or what has been there for longer than this; gives how many."""
        count: int = await self._value("purge", queue=name_of(queue), older_than=older_than)
        return count


def _event_fields(event: Any) -> dict[str, Any]:
    return fact_fields(as_fact(event))
