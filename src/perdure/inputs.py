"""What callers hand over, checked and put into the form that is stored. The app and ctx take the same.

Whatever is wrong is refused here, before anything is written: the error names what, where, and what to do.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeGuard, TypeVar

import msgspec

from perdure.channels import Queue, Signal, Topic
from perdure.errors import InvalidPayload, Undecodable
from perdure.model import limits, ops
from perdure.model.clock import from_datetime
from perdure.model.codec import (
    BadPayload,
    Codec,
    Unencodable,
    UntypedCodec,
    codec_for,
    own_text,
)
from perdure.model.duration import Duration, parse_duration
from perdure.model.events import Cause, Event
from perdure.model.ids import is_ulid
from perdure.model.limits import (
    BadValue,
    check_entity,
    check_key,
    check_name,
    check_person,
    check_pool_key,
    check_priority,
    check_run_id,
    check_tags,
)
from perdure.model.records import CancelEntry, WorkflowRecord
from perdure.model.status import LIVE, TERMINAL, Status
from perdure.model.topics import check_emitted
from perdure.pools import Pool, checked_pool
from perdure.registry import Registry, Workflow

T = TypeVar("T")

_untyped = codec_for(Any)
_decode_entries = msgspec.json.Decoder(list[CancelEntry]).decode

# --- what is stored ---


def encoded_input(
    workflow: Workflow[Any, *tuple[Any, ...]], args: tuple[Any, ...]
) -> tuple[str, tuple[Any, ...]]:
    """A workflow's arguments as stored, and as a run reads them back; raises InvalidPayload."""
    try:
        return workflow.args.roundtrip(args)
    except BadPayload as error:
        raise InvalidPayload(f"the input of workflow {workflow.name!r}", error.errors) from error
    except Unencodable as error:
        raise InvalidPayload(f"the input of workflow {workflow.name!r}", [str(error)]) from error


def offered_input(
    workflow: Workflow[Any, *tuple[Any, ...]], args: tuple[Any, ...]
) -> tuple[str, tuple[Any, ...]]:
    """The same, of arguments that are values of their types, or JSON builtins as expressions and HTTP make them."""
    what = f"the input of workflow {workflow.name!r}"
    try:
        return workflow.args.roundtrip_lenient(args)
    except BadPayload as error:
        raise InvalidPayload(what, error.errors) from error
    except Unencodable as error:
        raise InvalidPayload(what, [str(error)]) from error


def encoded_item(what: str, value: Any) -> str:
    """What goes to readers outside, as stored; raises InvalidPayload. They say which type they take it for.

    Plain JSON, with tags for what JSON lacks: whoever says nothing gets the same value. What holds instances of classes
    that a codec knows is written as those say, and is plain JSON for one who says nothing.
    """
    try:
        return _untyped.encode(value)
    except Unencodable:
        pass
    try:
        return own_text(value)
    except Unencodable as error:
        raise InvalidPayload(what, [str(error)]) from error


def decoded_item(codec: Codec, what: str, text: str) -> Any:
    """Such a value as the reader's type; raises Undecodable."""
    try:
        if isinstance(codec, UntypedCodec) or "$pd" not in text:
            return codec.decode(text)
        return _typed_item(codec, text)
    except BadPayload as error:
        raise Undecodable(what, str(error), read_as=True) from error


def _typed_item(codec: Codec, text: str) -> Any:
    """One with tags: the value that was given, if the type knows it. What looks like one may be a field's own."""
    try:
        return codec.roundtrip(_untyped.decode(text))[1]
    except (BadPayload, Unencodable) as tagged:
        try:
            return codec.decode(text)
        except BadPayload:
            raise BadPayload([str(tagged)]) from tagged


def encoded_payload(codec: Codec, what: str, payload: Any) -> str:
    """A payload as stored; raises InvalidPayload. `what` it is: "the payload of signal 'go'"."""
    try:
        return codec.encode_lenient(payload)
    except BadPayload as error:
        raise InvalidPayload(what, error.errors) from error
    except Unencodable as error:
        raise InvalidPayload(what, [str(error)]) from error


def offered_payload(
    codec: Codec, what: str, payload: Any, key: str | None
) -> tuple[str, tuple[str, ...]]:
    """A payload as stored, and what is wrong with it; without a key InvalidPayload is raised instead.

    With one (or an id of the sender's own) the store is asked all the same: what was used before is answered first.
    """
    try:
        return encoded_payload(codec, what, payload), ()
    except InvalidPayload as error:
        if key is None:
            raise
        return _plain_text(payload), tuple(error.errors)


def _plain_text(payload: Any) -> str:
    """What no type can be asked about; nothing, if it is no JSON at all."""
    try:
        return _untyped.encode(payload)
    except Unencodable:
        return ""


def encoded_tags(tags: dict[str, str] | None) -> str | None:
    checked = check_tags(tags)
    return msgspec.json.encode(checked, order="deterministic").decode() if checked else None


# --- starts and signals ---


def new_start(
    new_id: Callable[[], str],
    workflow: Workflow[Any, *tuple[Any, ...]] | WorkflowRecord,
    input: str,
    id: str | None,
    key: str | None,
    tags: dict[str, str] | None,
    entity: str | None,
    deadline: datetime | Duration | None = None,
    pool: Pool | str | None = None,
    pool_key: str = "",
    priority: int = 0,
    trace: str | None = None,
) -> ops.StartRun:
    """A start as it is submitted: nobody owns the run yet. `new_id` is for one that is given no id."""
    entity_type, entity_id = (None, None) if entity is None else check_entity(entity)
    deadline_at, deadline_us = (None, None) if deadline is None else checked_deadline(deadline)
    in_pool = workflow.pool if pool is None else pool_name(pool)
    if not in_pool and (pool_key or priority):
        _refuse_place(workflow.name, pool_key, priority)
    return ops.StartRun(
        run_id=new_id() if id is None else check_run_id(id),
        workflow=workflow.name,
        version=workflow.version,
        input=input,
        fresh=id is None,
        key=None if key is None else check_key(key),
        tags=None if tags is None else encoded_tags(tags),
        entity_type=entity_type,
        entity_id=entity_id,
        deadline_at=deadline_at,
        deadline_us=deadline_us,
        cancel_on=cancellers(workflow, input, entity or "") if workflow.cancel_on else None,
        pool=in_pool,
        pool_key=pool_key and check_pool_key(pool_key),
        priority=priority and check_priority(priority),
        trace=None if trace is None else limits.check_trace(trace),
    )


def _refuse_place(workflow: str, pool_key: Any, priority: Any) -> NoReturn:
    """A place in no line: whoever gives one believes that it counts."""
    name, value = ("pool_key", pool_key) if pool_key else ("priority", priority)
    cure = f"give pool=, or @app.workflow(pool=…) to {workflow!r}"
    raise BadValue(name, value, f"says nothing without a pool: {cure}")


def checked_deadline(deadline: datetime | Duration) -> tuple[int | None, int | None]:
    """A time, or a duration: that becomes a time by the store's own clock."""
    if isinstance(deadline, datetime):
        return from_datetime(deadline, "deadline"), None
    deadline_us = parse_duration(deadline, "deadline")
    if not deadline_us:
        raise BadValue("deadline", deadline, "must be more than nothing")
    return None, deadline_us


def cancellers(
    workflow: Workflow[Any, *tuple[Any, ...]] | WorkflowRecord, input: str, entity: str
) -> str | None:
    """What cancels a run with this input, by the workflow's code or, if that is elsewhere, by the catalogue."""
    if isinstance(workflow, WorkflowRecord):
        return cancellers_told(workflow, entity)
    return cancellers_of(workflow, input, entity)


def cancellers_of(workflow: Workflow[Any, *tuple[Any, ...]], input: str, entity: str) -> str | None:
    """What cancels a run with this input, which is about `entity` ("": nothing), as it is stored."""
    entries: list[CancelEntry] = []
    for entry, function in workflow.cancel_on:
        if function is not None:
            found = function(*workflow.args.decode(input.encode()))
            entry = CancelEntry(entry.topic, "/".join(check_entity(found)))
        entries.append(entry)
    return _cancellers_text(workflow.name, entries, entity)


def cancellers_told(workflow: WorkflowRecord, entity: str) -> str | None:
    """The same, of what the catalogue tells of a workflow that only other apps have."""
    return _cancellers_text(workflow.name, _decode_entries(workflow.cancel_on or "[]"), entity)


def _cancellers_text(workflow: str, entries: list[CancelEntry], entity: str) -> str | None:
    """Raises BadValue if what is known is not enough."""
    found = []
    for entry in entries:
        if entry.code:
            raise BadValue(
                f"cancel_on of workflow {workflow!r}",
                entry.topic,
                "is told by its code, which this app does not have",
            )
        about = entity if entry.entity is None else entry.entity
        if entry.entity is None and not about:
            raise BadValue(
                f"cancel_on of workflow {workflow!r}",
                entry.topic,
                "means events about the run's own entity, and it has none: give entity=, or name one "
                "with topic.about(…); topic.about() is any",
            )
        found.append((entry.topic, about))
    return msgspec.json.encode(found).decode() if found else None


def pool_name(pool: Pool | str) -> str:
    """The name of a pool that a start names; "" for none."""
    found = checked_pool(pool)
    return "" if found is None else found.name


def new_signal(
    signal_id: str,
    run_id: str,
    signal: Signal[Any] | str,
    payload: Any,
    key: str | None,
    path: str | None,
    buffer: bool,
    declared: Signal[Any] | None = None,
    *,
    by_name: bool = False,
) -> ops.SendSignal:
    """A send as it is submitted. A mere name has the type of `declared`, if the sender knows it; the store judges.

    `by_name` says that the sender will check what the store cannot (see `named`).
    """
    run_id = check_run_id(run_id)
    known = checked_signal(signal)
    named = known is not signal
    typed = declared if named and declared is not None else known
    what = f"the payload of signal {typed.name!r}"
    text, errors = offered_payload(typed.codec, what, payload, key)
    return ops.SendSignal(
        signal_id=signal_id,
        run_id=run_id,
        name=known.name,
        payload=text,
        policy=None if named else known.buffer,
        on_end=known.on_end,
        ttl_us=known.ttl_us,
        path=checked_path(path),
        key=None if key is None else check_key(key),
        buffer=buffer,
        schema=typed.schema(),
        errors=errors,
        by_name=by_name and named,
    )


# --- events and items ---


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """An event to emit, for `emit_many`: the same as the arguments of `emit`."""

    topic: Topic[Any] | str
    payload: Any = None
    entity: str | None = None
    key: str | None = None
    event_id: str | None = None
    occurred_at: datetime | None = None
    caused_by: Event | Cause | str | None = None
    trace: str | None = None


def as_fact(given: Any) -> Fact:
    """What emit_many was given: a Fact, or (topic, payload), or (topic, payload, entity)."""
    if isinstance(given, Fact):
        return given
    if isinstance(given, tuple) and len(given) in (2, 3):
        entity = given[2] if len(given) == 3 else None
        return Fact(topic=given[0], payload=given[1], entity=entity)
    raise BadValue(
        "event", given, "is neither a Fact nor (topic, payload) nor (topic, payload, entity)"
    )


def new_event(
    registry: Registry, fact: Fact, fresh_id: str, *, by_name: bool = False
) -> ops.NewEvent:
    """An event as it is appended. `fresh_id` is for one that names no id of its own; `by_name` as in `new_signal`."""
    topic = checked_topic(registry, fact.topic)
    what = f"the payload of topic {topic.name!r}"
    if topic.enforce:
        known_by = fact.key if fact.event_id is None else fact.event_id
        text, errors = offered_payload(topic.codec, what, fact.payload, known_by)
    else:
        text, errors = _documented_payload(topic.codec, what, fact.payload), ()
    entity_type, entity_id = (None, None) if fact.entity is None else check_entity(fact.entity)
    caused_by, root_id, depth = _cause(fact.caused_by)
    return ops.NewEvent(
        event_id=fresh_id if fact.event_id is None else _checked_event_id(fact.event_id),
        fresh=fact.event_id is None,
        type=topic.name,
        payload=text,
        entity_type=entity_type,
        entity_id=entity_id,
        key=None if fact.key is None else check_key(fact.key),
        occurred_at=checked_time("occurred_at", fact.occurred_at),
        caused_by=caused_by,
        root_id=root_id,
        depth=depth,
        trace=None if fact.trace is None else limits.check_trace(fact.trace),
        repeats=None if isinstance(fact.topic, str) else topic.repeats,
        schema=topic.schema() if topic.enforce else None,
        errors=errors,
        by_name=by_name and isinstance(fact.topic, str),
    )


def _documented_payload(codec: Codec, what: str, payload: Any) -> str:
    """By the type if it fits, which is only a promise here; else as any JSON."""
    try:
        return codec.encode_lenient(payload)
    except (BadPayload, Unencodable):
        return encoded_payload(_untyped, what, payload)


def checked_topic(registry: Registry, topic: Any) -> Topic[Any]:
    """What an emitter gave: a Topic, or the name of one, typed if this app has declared it."""
    if isinstance(topic, Topic):
        check_emitted(topic.name)
        return topic
    if not isinstance(topic, str):
        raise BadValue("topic", topic, "is neither a Topic nor a name")
    # Also of one that is declared: to read the engine's own by their type is anybody's right, to tell them is not.
    name = check_emitted(topic)
    return registry.topic(name) or Topic(name)


def _checked_event_id(event_id: Any, what: str = "event_id") -> str:
    """Made by a producer, at the edge perhaps: a ULID, so that ids sort by time wherever they come from."""
    if not isinstance(event_id, str) or not is_ulid(event_id):
        raise BadValue(what, event_id, "is no ULID: 26 characters such as ctx.ulid() gives")
    return event_id


_encode_cause = msgspec.json.encode


def _cause(given: Any) -> tuple[str | None, str | None, int]:
    """What led to an event: as stored, with the first event of the chain and how long it is."""
    match given:
        case None:
            return None, None, 0
        case Event():
            cause = Cause(event_id=given.event_id)
            return _encode_cause(cause).decode(), given.root_id, given.depth + 1
        case Cause():
            return _encode_cause(given).decode(), None, 0
        case str():
            return _encode_cause(Cause(event_id=_checked_event_id(given))).decode(), None, 0
    raise BadValue("caused_by", given, "is neither an Event, a Cause nor an event id")


def check_cause(given: Any) -> None:
    """What a caller names as a cause, and may have made of whatever: on the ledger it is to be read for ever."""
    match given:
        case Event():
            _checked_event_id(given.event_id)
            _checked_event_id(given.root_id, "root_id")
            if at_least("depth", given.depth, 0) >= limits.int_max:
                raise BadValue("depth", given.depth, "is none that an event has")
        case Cause():
            _check_made(given)


def _check_made(cause: Cause) -> None:
    if cause.event_id is not None:
        _checked_event_id(cause.event_id)
    if cause.run_id is not None:
        check_run_id(cause.run_id)
    if cause.path is not None:
        limits.check_path(cause.path)
    if cause.consumer is not None:
        check_name("consumer", cause.consumer)
    checked_flag("replay", cause.replay)


def new_item(
    registry: Registry,
    queue: Any,
    payload: Any,
    key: str | None,
    item_id: str,
    *,
    by_name: bool = False,
) -> ops.Put:
    """An item as it is put; `by_name` as in `new_signal`."""
    named = isinstance(queue, str)
    if named:
        queue = registry.queue(queue) or Queue(check_name("queue", queue))
    if not isinstance(queue, Queue):
        raise BadValue("queue", queue, "is neither a Queue nor a name")
    what = f"the payload of queue {queue.name!r}"
    text, errors = offered_payload(queue.codec, what, payload, key)
    return ops.Put(
        item_id=item_id,
        queue=queue.name,
        payload=text,
        key=None if key is None else check_key(key),
        schema=queue.schema(),
        errors=errors,
        by_name=by_name and named,
    )


# --- what is asked for ---


def checked_signal(signal: Any) -> Signal[Any]:
    """What a sender gave: a Signal, or the name of one."""
    if isinstance(signal, str):
        return Signal(signal)
    if not isinstance(signal, Signal):
        raise BadValue("signal", signal, "is neither a Signal nor a name")
    return signal


def checked_deps(deps: Any) -> tuple[object, ...]:
    """What `App(deps=[…])` was given."""
    if not isinstance(deps, Iterable) or isinstance(deps, str):
        raise BadValue("deps", deps, "must be a list: App(deps=[pool])")
    return tuple(deps)


def find_dep(deps: tuple[object, ...], kind: type[T]) -> T:
    """What the app was given of this type."""
    if not isinstance(kind, type):
        raise BadValue("dep", kind, "is no class: ask for what you gave by its type, dep(Pool)")
    for one in deps:
        if isinstance(one, kind):
            return one
    known = ", ".join(type(one).__name__ for one in deps) or "none"
    raise BadValue("dep", kind, f"is not among App(deps=[…]); there is: {known}")


def checked_path(path: str | None) -> str | None:
    """A path to address: scopes, name and number, as `app.waiting` shows it."""
    if path is None:
        return None
    return limits.check_path(path)


def checked_moment(what: str, moment: Any) -> int:
    """An aware datetime as it is stored."""
    if not isinstance(moment, datetime):
        raise BadValue(what, moment, "takes a datetime with a time zone")
    return from_datetime(moment, what)


def is_whole(value: object, least: int, most: int | None = None) -> TypeGuard[int]:
    """Whether it is a whole number within bounds. True is none, though Python counts with it."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return least <= value and (most is None or value <= most)


def at_least(name: str, value: int, least: int) -> int:
    if not is_whole(value, least):
        raise BadValue(name, value, f"must be a whole number from {least}")
    return value


def checked_flag(name: str, value: bool) -> bool:
    """A switch. Not whatever is true: "no" would be yes."""
    if not isinstance(value, bool):
        raise BadValue(name, value, "must be True or False")
    return value


def checked_limit(limit: int) -> int:
    if not is_whole(limit, 1, limits.page_rows_max):
        raise BadValue("limit", limit, f"must be from 1 to {limits.page_rows_max} (page_rows_max)")
    return limit


def checked_id(what: str, value: str) -> str:
    """What something is looked up by: any text that a store could hold, also one that nothing has."""
    if not isinstance(value, str):
        raise BadValue(what, value, f"is a {type(value).__name__}; give the id that was answered")
    return limits.check_words(what, value, limits.path_bytes_max, "path_bytes_max")


def checked_position(value: Any) -> int:
    """A place on the ledger, as an event or a listing shows it."""
    if not is_whole(value, 0, limits.int_max):
        raise BadValue("position", value, "must be a whole number from 0, as an event has it")
    return int(value)


def checked_time(what: str, moment: datetime | None) -> int | None:
    return None if moment is None else checked_moment(what, moment)


def checked_workflow_name(workflow: str | Workflow[Any, *tuple[Any, ...]] | None) -> str | None:
    if workflow is None:
        return None
    if isinstance(workflow, str):
        return check_name("workflow", workflow)
    if isinstance(workflow, Workflow):
        return workflow.name
    raise BadValue("workflow", workflow, "is neither a workflow nor the name of one")


def checked_tag(tag: str | tuple[str, str] | None) -> tuple[str, str | None] | None:
    if tag is None:
        return None
    if isinstance(tag, str):
        return checked_id("tag", tag), None
    if isinstance(tag, tuple) and len(tag) == 2 and all(isinstance(one, str) for one in tag):
        return checked_id("tag", tag[0]), checked_id("tag", tag[1])
    raise BadValue("tag", tag, "is neither a name nor (name, value)")


def checked_names(what: str, names: Any) -> list[Any]:
    """Several names; a single text is a list of letters to Python, and never meant so."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise BadValue(what, names, "must be a list of names")
    return list(names)


def checked_who(who: str | Sequence[str] | None) -> list[str] | None:
    """Whose approvals are asked for; None is everybody, and none at all is not."""
    people = (who,) if isinstance(who, str) else who
    if people is None:
        return None
    if not isinstance(people, Sequence):
        raise BadValue("who", who, 'must be a list, such as ["anna", "group:finance"]')
    return [check_person("who", one) for one in people]


def checked_statuses(status: Status | Iterable[Status] | None) -> tuple[str, ...]:
    if status is None:
        return ()
    one_only = isinstance(status, str) or not isinstance(status, Iterable)
    statuses: tuple[Any, ...] = (status,) if one_only else tuple(status)
    for one in statuses:
        if not isinstance(one, str) or one not in LIVE | TERMINAL:
            raise BadValue("status", one, f"is none of: {', '.join(sorted(LIVE | TERMINAL))}")
    return statuses
