"""What a subscription asks of an event, and what it makes of it: where, map and key, and the start they lead to.

Each of the three is CEL or, for one that is declared in code, a Python function of the Event. Nothing here reads the
store or writes: an event and a rule go in, the start of a run comes out, or why there is none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.channels import is_plain
from perdure.errors import InvalidPayload, UnknownWorkflow
from perdure.fitting import misfits
from perdure.inputs import cancellers_of, cancellers_told, encoded_input, offered_input
from perdure.ledger.expressions import (
    Filter,
    Key,
    Mapper,
    compile_filter,
    compile_key,
    compile_mapper,
)
from perdure.model import limits, ops
from perdure.model.codec import codec_for
from perdure.model.events import Event
from perdure.model.ids import Ids
from perdure.model.limits import BadValue, check_key, check_payload
from perdure.model.records import (
    EventRecord,
    SubscriptionRecord,
    WorkflowRecord,
    entity_text,
)
from perdure.model.sameness import completed
from perdure.registry import Registry, Workflow

Function = Callable[[Event], Any]
_event_codec = codec_for(Event)
_encode = msgspec.json.encode
# What user code may raise that is not its own failure.
ENDS_THE_PROCESS = (KeyboardInterrupt, SystemExit)


class Rule:
    """Where, map and key of a subscription, ready to be asked."""

    __slots__ = ("key", "map", "where")

    def __init__(
        self,
        where: Filter | Function | None,
        map: Mapper | Function | None,
        key: Key | Function | None,
    ) -> None:
        self.where, self.map, self.key = where, map, key

    @property
    def is_code(self) -> bool:
        """Whether a process must have the code to ask it."""
        parts = (self.where, self.map, self.key)
        return any(one is not None and not isinstance(one, Filter | Mapper | Key) for one in parts)

    def text(self, part: str) -> str | None:
        """A part as its row shows it: CEL as it is, a function by its name."""
        found = getattr(self, part)
        if found is None:
            return None
        if isinstance(found, Filter | Mapper | Key):
            return found.text
        name = getattr(found, "__qualname__", type(found).__name__)
        return f"{name}()"[: limits.expression_bytes_max]

    def matches(self, record: EventRecord, event: Event) -> bool:
        if self.where is None:
            return True
        return (
            self.where.test(record) if isinstance(self.where, Filter) else bool(self.where(event))
        )

    def made(self, record: EventRecord, event: Event) -> Any:
        """What the run gets; only asked of a rule with a map."""
        assert self.map is not None
        return self.map.make(record) if isinstance(self.map, Mapper) else self.map(event)

    def key_of(self, record: EventRecord, event: Event) -> str:
        if self.key is None:
            return check_key(own_key(record) or record.event_id)
        return self.key.make(record) if isinstance(self.key, Key) else check_key(self.key(event))


def checked_rule(where: Any, map: Any, key: Any) -> Rule:
    """Expressions are compiled, functions looked at; raises BadExpression or BadValue."""
    return Rule(
        _part("where", where, compile_filter),
        _part("map", map, compile_mapper),
        _part("key", key, compile_key),
    )


def _part(name: str, given: Any, compile: Callable[[str], Any]) -> Any:
    if given is None:
        return None
    if isinstance(given, str):
        return compile(given)
    if not is_plain(given):
        raise BadValue(name, given, "is neither CEL nor a plain function of the event")
    return given


def rule_of(row: SubscriptionRecord) -> Rule:
    """The rule of a row whose parts are all expressions; those of functions are in code."""
    return checked_rule(row.where, row.map, row.key)


def own_key(record: EventRecord) -> str | None:
    """The key by which a producer says that two events are the same: the event's, or `payload.idempotency_key`."""
    if record.key is not None:
        return record.key
    if '"idempotency_key"' not in record.payload:
        return None
    payload = msgspec.json.decode(record.payload)
    found = payload.get("idempotency_key") if isinstance(payload, dict) else None
    return found if isinstance(found, str) and found else None


def takes_event(workflow: Workflow[Any, *tuple[Any, ...]]) -> bool:
    """Whether its first parameter can be the Event itself."""
    return workflow.args.params[0].hint in (Event, Any)


# --- the start it leads to ---------------------------------------------------------------------------


class Unstartable(Exception):
    """The rule matches, and no run can be started: the reason, as it is parked with the event."""


@dataclass(frozen=True, slots=True)
class Known:
    """The workflows that can be started: those of this process, and the newest of the catalogue."""

    registry: Registry
    catalogue: dict[str, WorkflowRecord]


def asked(rule: Rule, record: EventRecord, event: Event) -> bool:
    """Whether the rule matches; raises Unstartable if it cannot be told."""
    try:
        return rule.matches(record, event)
    except ENDS_THE_PROCESS:
        raise
    except BaseException as error:  # whatever a function raises, the others go on
        raise Unstartable(f"where: {told(error)}") from error


def start_of(
    row: SubscriptionRecord, rule: Rule, record: EventRecord, event: Event, known: Known, ids: Ids
) -> ops.StartRun:
    """The start that a matching event asks for; raises Unstartable."""
    try:
        version, pool, text = _input(row, rule, record, event, known)
        cancel_on = _cancellers(row, record, text, known)
        key = rule.key_of(record, event)
    except (Unstartable, *ENDS_THE_PROCESS):
        raise
    except BaseException as error:
        raise Unstartable(told(error)) from error
    return ops.StartRun(
        run_id=ids.ulid(),
        fresh=True,
        workflow=row.workflow,
        version=version,
        input=text,
        # A name has no slash, so keys of two subscriptions never meet.
        key=f"{row.name}/{key}",
        entity_type=record.entity_type,
        entity_id=record.entity_id,
        event_id=record.event_id,
        root_id=event.root_id,
        depth=record.depth + 1,
        cancel_on=cancel_on,
        pool=pool,
        trace=record.trace,
    )


def told(error: BaseException) -> str:
    """An error as a reason that is stored, whatever its text does: a reason that fails would be asked for ever."""
    try:
        text = str(error)
    except Exception:
        text = "its text cannot be had"
    words = f"{type(error).__name__}: {text}" if text else type(error).__name__
    plain = limits.storable(words[: limits.error_message_chars_max])
    return plain[: limits.error_message_chars_max]


def _input(
    row: SubscriptionRecord, rule: Rule, record: EventRecord, event: Event, known: Known
) -> tuple[int, str, str]:
    """The version to start, its pool, and its input as stored."""
    try:
        workflow = known.registry.newest(row.workflow)
    except UnknownWorkflow:
        return _foreign_input(row, rule, record, event, known)
    if rule.map is not None:
        made, _ = offered_input(workflow, (rule.made(record, event),))
        return workflow.version, workflow.pool, made
    args: tuple[Any, ...] = (event,)
    if not workflow.args.params:
        args = ()
    elif workflow.args.params[0].hint is Any:
        args = (msgspec.to_builtins(event),)  # a place without a type holds plain JSON
    return workflow.version, workflow.pool, encoded_input(workflow, args)[0]


def _cancellers(
    row: SubscriptionRecord, record: EventRecord, input: str, known: Known
) -> str | None:
    """What cancels the run, which is about what the event is about."""
    entity = entity_text(record.entity_type, record.entity_id)
    if known.registry.has(row.workflow):
        return cancellers_of(known.registry.newest(row.workflow), input, entity)
    line = known.catalogue.get(row.workflow)
    return None if line is None else cancellers_told(line, entity)


def _foreign_input(
    row: SubscriptionRecord, rule: Rule, record: EventRecord, event: Event, known: Known
) -> tuple[int, str, str]:
    """For a workflow that only other processes have: JSON, checked by the schema in the catalogue."""
    line = known.catalogue.get(row.workflow)
    if line is None:
        raise Unstartable(f"no app has declared the workflow {row.workflow!r}")
    schema = msgspec.json.decode(line.input_schema)
    if rule.map is not None:
        made = _encode(rule.made(record, event)).decode()
    else:
        made = _event_codec.encode(event)
    text = "[]" if rule.map is None and schema.get("maxItems") == 0 else f"[{made}]"
    check_payload(text.encode())
    errors = misfits(f"the input of workflow {row.workflow!r}", schema, text)
    if errors:
        raise InvalidPayload(f"the input of workflow {row.workflow!r}", errors)
    return line.version, line.pool, completed(schema, text)
