"""A batch: the events that a handler is called with, and what it wants done about them.

What a handler starts, signals, emits or puts is checked at once and held; it happens in the commit that moves the
cursor past these events, or not at all. So a crash anywhere loses nothing and doubles nothing. Everything says which
event led to it: the one that `cause=` names, else the one the `for` loop stands at, else the deepest of the batch.
"""

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar, TypeVarTuple, overload

from msgspec.structs import replace

from perdure.channels import Plain, Queue, Signal, Topic
from perdure.errors import BatchClosed, Overloaded
from perdure.inputs import (
    Fact,
    encoded_input,
    find_dep,
    new_event,
    new_item,
    new_signal,
    new_start,
)
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.model.duration import Duration
from perdure.model.events import Cause, Event
from perdure.model.ids import Ids
from perdure.model.limits import BadValue
from perdure.observing.observation import Observation
from perdure.pools import Pool
from perdure.registry import Registry, Workflow

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

log = logging.getLogger("perdure.ledger")


class Closable(Protocol):
    """What a handler of the engine's own may keep open, such as connections."""

    async def aclose(self) -> None: ...


class Outside:
    """What handlers that reach out of the process work with: the time, the name of this ledger, what they keep open."""

    def __init__(self, clock: Clock, source: str) -> None:
        self.clock = clock
        self.source = source
        self.kept: dict[object, Closable] = {}

    async def close(self) -> None:
        """The app closes: so does what was kept open for it."""
        while self.kept:
            _, one = self.kept.popitem()
            try:
                await one.aclose()
            except Exception:
                log.warning("a connection was not closed well", exc_info=True)


class Desk(NamedTuple):
    """What batches of one app need to turn what a handler asks for into ops."""

    registry: Registry
    ids: Ids
    deps: tuple[object, ...]
    outside: Outside | None = None
    observed: Observation | None = None


class Batch(Sequence[Event]):
    """Events in the order of the ledger, and the sends that are committed together with the cursor."""

    def __init__(
        self,
        desk: Desk,
        consumer: str,
        events: Sequence[Event],
        *,
        replay: bool = False,
        key_suffix: str = "",
    ) -> None:
        self.consumer = consumer
        self.replay = replay
        self._desk = desk
        self._events = tuple(events)
        self._key_suffix = key_suffix  # of the starts of a replay that is to run again
        self._at: Event | None = None
        self._closed = False
        self._effects: list[ops.Effect] = []

    # --- the events ---

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Event]: ...
    def __getitem__(self, at: int | slice) -> Event | Sequence[Event]:
        return self._events[at]

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        for event in self._events:
            self._at = event
            yield event
        self._at = None

    def __repr__(self) -> str:
        return f"Batch({self.consumer!r}, {len(self)} events)"

    def dep(self, kind: type[T]) -> T:
        """What `App(deps=[…])` has of this type."""
        return find_dep(self._desk.deps, kind)

    # --- what is done about them ---

    def start(
        self,
        workflow: Workflow[Any, *Ts],
        *args: *Ts,
        id: str | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        cause: Event | None = None,
    ) -> str:
        """Start a run; gives its id, which is another if the key finds a run that exists."""
        event = self._led_by(cause)
        found = self._desk.registry.of(workflow)
        text, _ = encoded_input(found, args)
        made = new_start(
            *(self._desk.ids.ulid, found, text, id, key, tags, entity, deadline),
            *(pool, pool_key, priority, event.trace),
        )
        op = replace(
            made,
            key=None if made.key is None else made.key + self._key_suffix,
            event_id=event.event_id,
            root_id=event.root_id,
            depth=event.depth + 1,
        )
        self._hold(event, op)
        return op.run_id

    @overload
    def signal(
        self,
        run_id: str,
        signal: Signal[T],
        payload: T | Plain,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
        cause: Event | None = None,
    ) -> None: ...
    @overload
    def signal(
        self,
        run_id: str,
        signal: Signal[None] | str,
        payload: Any = None,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
        cause: Event | None = None,
    ) -> None: ...
    def signal(
        self,
        run_id: str,
        signal: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
        cause: Event | None = None,
    ) -> None:
        """Send a signal. A run that takes none any more leaves `ledger.effect_refused` on the ledger."""
        event = self._led_by(cause)
        signal_id = self._desk.ids.ulid()
        self._hold(event, new_signal(signal_id, run_id, signal, payload, key, path, buffer))

    @overload
    def emit(
        self,
        topic: Topic[T],
        payload: T | Plain,
        *,
        entity: str | None = None,
        key: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        cause: Event | None = None,
    ) -> str: ...
    @overload
    def emit(
        self,
        topic: Topic[None] | str,
        payload: Any = None,
        *,
        entity: str | None = None,
        key: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        cause: Event | None = None,
    ) -> str: ...
    def emit(
        self,
        topic: Any,
        payload: Any = None,
        *,
        entity: str | None = None,
        key: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        cause: Event | None = None,
    ) -> str:
        """Emit an event; gives its id."""
        event = self._led_by(cause)
        fact = Fact(
            topic=topic,
            payload=payload,
            entity=entity,
            key=key,
            event_id=event_id,
            occurred_at=occurred_at,
            caused_by=Cause(event_id=event.event_id, consumer=self.consumer, replay=self.replay),
            trace=event.trace,
        )
        new = new_event(self._desk.registry, fact, self._desk.ids.ulid())
        new = replace(new, root_id=event.root_id, depth=event.depth + 1)
        self._hold(event, ops.Emit(events=(new,)))
        return new.event_id

    @overload
    def put(
        self,
        queue: Queue[T],
        payload: T | Plain,
        *,
        key: str | None = None,
        cause: Event | None = None,
    ) -> None: ...
    @overload
    def put(
        self,
        queue: Queue[None] | str,
        payload: Any = None,
        *,
        key: str | None = None,
        cause: Event | None = None,
    ) -> None: ...
    def put(
        self,
        queue: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        cause: Event | None = None,
    ) -> None:
        """Put an item into a queue."""
        event = self._led_by(cause)
        ids = self._desk.ids
        self._hold(event, new_item(self._desk.registry, queue, payload, key, ids.ulid()))

    # --- for whoever called the handler ---

    @property
    def outside(self) -> Outside:
        """For handlers of the engine's own that reach out of the process."""
        assert self._desk.outside is not None
        return self._desk.outside

    def close(self) -> tuple[ops.Effect, ...]:
        """The handler has returned: what it wants done. From now on it can ask for nothing."""
        self._closed = True
        return tuple(self._effects)

    def _led_by(self, cause: Event | None) -> Event:
        if self._closed:
            raise BatchClosed(self.consumer)
        if cause is not None:
            if not isinstance(cause, Event) or not self._has(cause):
                raise BadValue("cause", cause, "is no event of this batch")
            return cause
        return self._at or max(self._events, key=_depth)

    def _has(self, event: Event) -> bool:
        return any(one.position == event.position for one in self._events)

    def _hold(self, event: Event, op: ops.StartRun | ops.SendSignal | ops.Emit | ops.Put) -> None:
        if len(self._effects) >= limits.effects_per_commit_max:
            raise Overloaded(
                f"consumer {self.consumer!r} asked for more than {limits.effects_per_commit_max} sends about one "
                "batch (effects_per_commit_max): give it a smaller batch="
            )
        self._effects.append(ops.Effect(op=op, position=event.position))


def _depth(event: Event) -> int:
    return event.depth
