"""What a run can wait for: signals, topics, queues, other runs, timers, and any of several with `|`.

These are definitions, free of any app: a `Signal` names a typed message to one run, a `Topic` the events of one type,
a `Queue` items of which each goes to one run, `timer` a span of time. They carry the codec of what they bring, so a
payload is checked before it is stored and decoded where it arrives.
"""

import functools
import hashlib
import inspect
from builtins import type as class_of  # `type` is also the name of a parameter here
from collections.abc import Callable, Sequence
from types import CellType, CodeType
from typing import Any, Generic, TypeVar, overload

import msgspec

from perdure.errors import BadExpression, InvalidPayload
from perdure.model import limits
from perdure.model.codec import BadPayload, Codec, codec_for
from perdure.model.duration import Duration, parse_duration
from perdure.model.events import Event
from perdure.model.limits import BadValue, check_entity, check_name
from perdure.model.policy import Retry
from perdure.model.records import (
    BufferPolicy,
    ChannelRecord,
    Condition,
    Deliver,
    OnEnd,
    Repeats,
    SignalEntry,
    Since,
)
from perdure.model.schema import schema_digest
from perdure.model.topics import check_topic

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")

# What JSON has for objects and lists. It may be sent where a type is declared, which it must fit when it is sent.
Plain = dict[str, Any] | list[Any]


@functools.lru_cache(maxsize=limits.codecs_kept_max)
def _schema_of(codec: Codec) -> str | None:
    schema = codec.schema()
    return schema_digest(schema) if schema else None


class TimedOut(msgspec.Struct, frozen=True):
    """The value of a wait that its timer ended."""


class Won(msgspec.Struct, Generic[T], frozen=True):
    """Which of the named conditions of `ctx.first` came first, and what it brought."""

    name: str
    value: T


class Clause(msgspec.Struct, frozen=True):
    """One condition of a wait with the codec of its value (None: a timer)."""

    condition: Condition
    codec: Codec | None
    signal: "Signal[Any] | None" = None
    channel: "Topic[Any] | Queue[Any] | None" = None
    # Asked of each payload; what it says no to is passed over.
    where: Callable[[Any], object] | None = None

    @property
    def asks_people(self) -> bool:
        return self.condition.kind == "approval"


class Waitable(Generic[T_co]):
    """Something a run can wait for. `a | b` waits for whichever comes first."""

    __slots__ = ()

    def clauses(self) -> tuple[Clause, ...]:
        """The conditions, in the order written."""
        raise TypeError(f"{type(self).__name__} is not something to wait for")

    def __or__(self, other: "Waitable[U]") -> "AnyOf[T_co | U]":
        if not isinstance(other, Waitable):
            return NotImplemented
        return AnyOf((self, other))

    def __repr__(self) -> str:
        return " | ".join(_words(one.condition) for one in self.clauses())


class _Fixed(Waitable[T_co]):
    """One whose conditions are made with it."""

    __slots__ = ("_clauses",)
    _clauses: tuple[Clause, ...]

    def clauses(self) -> tuple[Clause, ...]:
        return self._clauses


class AnyOf(_Fixed[T_co]):
    """Whichever of several comes first."""

    __slots__ = ()

    def __init__(self, parts: Sequence[Waitable[Any]]) -> None:
        clauses = tuple(clause for part in parts for clause in part.clauses())
        if len(clauses) > limits.conditions_per_wait_max:
            bound = limits.conditions_per_wait_max
            raise BadValue("wait", len(clauses), f"has too many conditions; at most {bound}")
        self._clauses = clauses


class _Typed(_Fixed[T]):
    """What brings payloads of a type, under a name."""

    __slots__ = ("codec", "name", "type")
    name: str
    type: Any
    codec: Codec

    def schema(self) -> str | None:
        """The fingerprint of its type's schema, by which a store knows what a payload was checked against."""
        return _schema_of(self.codec)

    def __repr__(self) -> str:
        shown = getattr(self.type, "__name__", self.type)
        return f"{type(self).__name__}({self.name!r}, {shown!s})"


class Signal(_Typed[T]):
    """A typed message to one run, by name.

    buffer: what is kept of signals that come before the run waits: "latest" (one slot, the last one),
    "first" (one slot, the first one; later ones are refused: an atomic claim), "all" (in order).
    ttl: how long a buffered one stays valid. on_end: "dead_letter" keeps what a finished run never took.
    announce: tell the ledger, as `signal.waiting`, when a run begins to wait for it; a play always does.

    As a part of a play it has handlers: `on_receive(ctx, state, payload)`, tried again as `retry` says;
    `on_timeout(ctx, state)` after `timeout`, without which the play fails then; `condition(state)`, asked once, on the
    way in. They count in plays alone: code that awaits a signal does these things itself.
    """

    __slots__ = (
        "announce",
        "buffer",
        "condition",
        "on_end",
        "on_receive",
        "on_timeout",
        "retry",
        "timeout_us",
        "ttl_us",
    )

    @overload
    def __init__(
        self,
        name: str,
        type: class_of[T],
        *,
        buffer: BufferPolicy = "latest",
        ttl: Duration | None = None,
        on_end: OnEnd = "discard",
        announce: bool = False,
        on_receive: Callable[[Any, Any, T], object] | None = None,
        timeout: Duration | None = None,
        on_timeout: Callable[[Any, Any], object] | None = None,
        condition: Callable[..., object] | None = None,
        retry: Retry | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: "Signal[Any]",
        name: str,
        type: Any = ...,
        *,
        buffer: BufferPolicy = "latest",
        ttl: Duration | None = None,
        on_end: OnEnd = "discard",
        announce: bool = False,
        on_receive: Callable[[Any, Any, Any], object] | None = None,
        timeout: Duration | None = None,
        on_timeout: Callable[[Any, Any], object] | None = None,
        condition: Callable[..., object] | None = None,
        retry: Retry | None = None,
    ) -> None: ...

    def __init__(
        self,
        name: str,
        type: Any = Any,
        *,
        buffer: BufferPolicy = "latest",
        ttl: Duration | None = None,
        on_end: OnEnd = "discard",
        announce: bool = False,
        on_receive: Callable[[Any, Any, Any], object] | None = None,
        timeout: Duration | None = None,
        on_timeout: Callable[[Any, Any], object] | None = None,
        condition: Callable[..., object] | None = None,
        retry: Retry | None = None,
    ) -> None:
        self.name = check_name("signal", name)
        if buffer not in ("latest", "first", "all"):
            raise BadValue("buffer", buffer, 'must be "latest", "first" or "all"')
        if on_end not in ("discard", "dead_letter"):
            raise BadValue("on_end", on_end, 'must be "discard" or "dead_letter"')
        self.type = type
        self.codec = codec_for(type, where=f"the payload of signal {name!r}")
        self.buffer: BufferPolicy = buffer
        self.ttl_us = None if ttl is None else parse_duration(ttl, f"ttl of signal {name!r}")
        self.on_end: OnEnd = on_end
        if not isinstance(announce, bool):
            raise BadValue("announce", announce, "must be True or False")
        if retry is not None and not isinstance(retry, Retry):
            raise BadValue(
                f"retry of signal {name!r}", retry, "must be a policy: Retry(attempts=…)"
            )
        self.announce = announce
        self.on_receive = on_receive
        self.timeout_us = (
            None if timeout is None else parse_duration(timeout, f"timeout of signal {name!r}")
        )
        self.on_timeout = on_timeout
        self.condition = condition
        self.retry = retry
        self._clauses = (Clause(Condition("signal", name), self.codec, self),)

    def is_like(self, other: "Signal[Any]") -> bool:
        """Whether both say the same of their name, as when one is made anew inside a workflow."""
        return (
            self.type is other.type
            and self.buffer == other.buffer
            and self.ttl_us == other.ttl_us
            and self.on_end == other.on_end
        )

    def entry(self) -> SignalEntry:
        """The signal as the catalogue knows it."""
        schema = self.codec.schema() or None
        return SignalEntry(schema, self.buffer, self.ttl_us, self.on_end)


class Topic(_Typed[T]):
    """The events of one type, such as `order.paid`: facts on the ledger, addressed to nobody.

    enforce: whether an emitter's payload must fit the type; False only documents it. repeats: "ignore" if an event
    equal to the last one about its entity is to be recorded and to resume nobody.
    """

    __slots__ = ("enforce", "repeats")

    @overload
    def __init__(
        self,
        name: str,
        type: class_of[T],
        *,
        enforce: bool = True,
        repeats: Repeats = "deliver",
    ) -> None: ...

    @overload
    def __init__(
        self: "Topic[Any]",
        name: str,
        type: Any = ...,
        *,
        enforce: bool = True,
        repeats: Repeats = "deliver",
    ) -> None: ...

    def __init__(
        self,
        name: str,
        type: Any = Any,
        *,
        enforce: bool = True,
        repeats: Repeats = "deliver",
    ) -> None:
        self.name = check_topic(name)
        if repeats not in ("deliver", "ignore"):
            raise BadValue("repeats", repeats, 'must be "deliver" or "ignore"')
        self.type = type
        self.codec = codec_for(type, where=f"the payload of topic {name!r}")
        if not isinstance(enforce, bool):
            raise BadValue("enforce", enforce, "must be True or False")
        self.enforce = enforce
        self.repeats: Repeats = repeats
        self._clauses = (Clause(Condition("topic", name), self.codec, channel=self),)

    @overload
    def about(
        self,
        entity: str | None = None,
        *,
        where: str | Callable[[T], object] | None = None,
        since: Since = "start",
        deliver: Deliver = "next",
    ) -> "Waitable[T]": ...

    # Of one input first: for pyright the parameter of a lambda is Any only then.
    @overload
    def about(self, entity: Callable[[Any], str]) -> "AboutInput": ...

    @overload
    def about(self, entity: Callable[..., str]) -> "AboutInput": ...  # type: ignore[overload-cannot-match]

    def about(
        self,
        entity: str | Callable[..., str] | None = None,
        *,
        where: str | Callable[[T], object] | None = None,
        since: Since = "start",
        deliver: Deliver = "next",
    ) -> "Waitable[T] | AboutInput":
        """The events of this topic about one entity, or narrowed otherwise.

        where: CEL (`"payload.amount > 100"`), or a function that is asked of each payload. since: from the run's
        creation ("start"), from this wait ("now"), or from the oldest kept event ("ever"). deliver: "latest" skips
        to the newest of those that came early.

        For `cancel_on=` the entity may be a function of the workflow's input: `lambda order: f"order/{order.id}"`.
        """
        if since not in ("start", "now", "ever"):
            raise BadValue("since", since, 'must be "start", "now" or "ever"')
        if deliver not in ("next", "latest"):
            raise BadValue("deliver", deliver, 'must be "next" or "latest"')
        if where is not None and not isinstance(where, str) and not is_plain(where):
            raise BadValue("where", where, "is neither CEL nor a plain function of the payload")
        if where == "":
            raise BadExpression("", "is empty; leave it out, or give CEL")
        if where is not None and deliver == "latest":
            raise BadValue(
                "deliver",
                deliver,
                "cannot be had with where=: which event is the newest that fits is not known",
            )
        if entity is not None and not isinstance(entity, str) and is_plain(entity):
            if where is not None or since != "start" or deliver != "next":
                raise BadValue(
                    "entity", entity, "is a function, with which nothing else can be said"
                )
            return AboutInput(self, entity)
        code = None if where is None or isinstance(where, str) else where
        condition = Condition(
            "topic",
            self.name,
            entity="" if entity is None else "/".join(check_entity(entity)),
            since=since,
            deliver=deliver,
            filter=where if isinstance(where, str) else "",
            code="" if code is None else _name_of(code),
        )
        return _Part(Clause(condition, self.codec, channel=self, where=code))

    def read(self, event: Event) -> T:
        """The payload of an event of this topic, as its type; raises InvalidPayload if it does not fit."""
        if not isinstance(event, Event):
            raise BadValue("event", event, "is no Event")
        if event.type != self.name:
            raise BadValue("event", event.type, f"is of another topic than {self.name!r}")
        text = msgspec.json.encode(event.payload).decode()
        try:
            value: T = self.codec.decode(text)
        except BadPayload as error:
            what = f"the payload of event {event.event_id} of topic {self.name!r}"
            raise InvalidPayload(what, error.errors) from error
        return value

    def record(self) -> ChannelRecord:
        """The topic as the catalogue knows it."""
        return ChannelRecord(
            kind="topic",
            name=self.name,
            schema=_schema_text(self.codec),
            enforce=self.enforce,
            repeats=self.repeats,
        )


class Queue(_Typed[T]):
    """A named queue: each item goes to exactly one run that takes it, the one that waits longest."""

    __slots__ = ()

    @overload
    def __init__(self, name: str, type: class_of[T]) -> None: ...

    @overload
    def __init__(self: "Queue[Any]", name: str, type: Any = ...) -> None: ...

    def __init__(self, name: str, type: Any = Any) -> None:
        self.name = check_name("queue", name)
        self.type = type
        self.codec = codec_for(type, where=f"the payload of queue {name!r}")
        self._clauses = (Clause(Condition("queue", name), self.codec, channel=self),)

    def record(self) -> ChannelRecord:
        """The queue as the catalogue knows it."""
        return ChannelRecord(kind="queue", name=self.name, schema=_schema_text(self.codec))


class _Part(_Fixed[T_co]):
    """One condition, made for one wait."""

    __slots__ = ()

    def __init__(self, clause: Clause) -> None:
        self._clauses = (clause,)


class AboutInput:
    """The events of a topic about what a workflow's input says, for `cancel_on=`. Nobody can wait for them."""

    __slots__ = ("entity", "topic")

    def __init__(self, topic: Topic[Any], entity: Callable[..., str]) -> None:
        self.topic = topic
        self.entity = entity

    def __repr__(self) -> str:
        return f"{self.topic!r}.about({_name_of(self.entity)})"


def is_plain(function: object) -> bool:
    """Whether it answers when it is called; a coroutine would count as yes, whatever it says."""
    return callable(function) and not inspect.iscoroutinefunction(function)


def _words(condition: Condition) -> str:
    """A condition as one would write it."""
    match condition.kind:
        case "timer" if condition.delay_us is not None:
            return f"timer('{condition.delay_us / 1_000_000:g}s')"
        case "timer":
            return "timer"
        case "topic":
            filter = condition.filter or condition.code
            parts = [repr(condition.entity)] if condition.entity else []
            parts += [f"where={filter!r}"] if filter else []
            parts += [f"since={condition.since!r}"] if condition.since != "start" else []
            parts += [f"deliver={condition.deliver!r}"] if condition.deliver != "next" else []
            about = f".about({', '.join(parts)})" if parts else ""
            return f"Topic({condition.target!r}){about}"
        case "run":
            return f"ended({condition.target!r})"
        case "approval":
            return f"approval({condition.target!r})"
        case "signal" | "queue":
            return f"{condition.kind.capitalize()}({condition.target!r})"


def _name_of(function: Callable[..., object]) -> str:
    """By which a run knows its filter again: the cursor of a wait is kept for each.

    Lambdas of one function have the same name, and one lambda may be made for many values: so what it does, and what
    it holds, is part of the name.
    """
    if isinstance(function, functools.partial):
        held = repr((_plain(function.args), _plain(sorted(function.keywords.items()))))
        return _marked(_name_of(function.func), held)
    name = str(getattr(function, "__qualname__", type(function).__qualname__))
    code = getattr(function, "__code__", None)
    cells = [_content(one) for one in getattr(function, "__closure__", None) or ()]
    given = (getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None))
    if code is None or ("<lambda>" not in name and not cells and not any(given)):
        return name[-limits.name_bytes_max :]
    does = _does(code) if "<lambda>" in name else ""
    return _marked(name, repr((does, _plain(cells), _plain(given))))


def _marked(name: str, held: str) -> str:
    mark = hashlib.blake2b(held.encode(errors="replace"), digest_size=6).hexdigest()
    return f"{name}:{mark}"[-limits.name_bytes_max :]


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _plain(value: object) -> object:
    """What is the same in every process: plain values as they are, of others the type."""
    match value:
        case None | bool() | int() | float() | str() | bytes():
            return value
        case list() | tuple():
            return [_plain(one) for one in value]
        case dict():
            return [(_plain(key), _plain(one)) for key, one in sorted(value.items(), key=repr)]
    return type(value).__qualname__


def _does(code: CodeType) -> str:
    """What a piece of code does, in words that are the same in every process."""
    consts = [
        _does(one)
        if isinstance(one, CodeType)
        else repr(sorted(map(repr, one)) if isinstance(one, frozenset) else one)
        for one in code.co_consts
    ]
    return repr((code.co_code, code.co_names, consts))


def _schema_text(codec: Codec) -> str | None:
    schema = codec.schema()
    return _encode_schema(schema).decode() if schema else None


_encode_schema = msgspec.json.Encoder(order="deterministic").encode


class Timer(_Fixed[TimedOut]):
    """A span of time, counted by the store's clock from when the wait opens."""

    __slots__ = ()

    def __init__(self, condition: Condition) -> None:
        self._clauses = (Clause(condition, None),)


def timer(delay: Duration) -> Timer:
    """Wait no longer than this: `ctx.wait(approval | timer("48h"))` gives TimedOut() then."""
    return Timer(Condition("timer", delay_us=parse_duration(delay, "timer")))


class RunEnd(Waitable[T_co]):
    """The end of a run: its result, or RunFailed / RunCancelled raised."""

    __slots__ = ("_codec", "run_id")

    def __init__(self, run_id: str, codec: Codec) -> None:
        self.run_id = run_id
        self._codec = codec

    def clauses(self) -> tuple[Clause, ...]:
        return (Clause(Condition("run", self.run_id), self._codec),)


def ended(run_id: str, type: Any = Any) -> RunEnd[Any]:
    """Wait for any run by its id, whoever started it."""
    return RunEnd(limits.check_run_id(run_id), codec_for(type, where=f"the result of {run_id!r}"))
