"""Approvals: a person answers a run.

`approval(…)` is something a run can wait for, as a signal or a timer is. What it asks stands in the inbox
(`app.approvals`) until somebody who may has decided (`app.decide`, or a link), and the wait gives the `Decision`. These
are definitions, free of any app; the verbs are in approving.py.
"""

from builtins import type as class_of  # `type` is also the name of a parameter here
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Generic, TypeVar, overload

import msgspec
from msgspec.structs import replace

from perdure.channels import Clause, Waitable
from perdure.errors import InvalidPayload
from perdure.model import limits
from perdure.model.approvals import (
    DEFAULT_CHOICES,
    GROUP,
    Asks,
    Verdict,
    approval_id,
    decode_asks,
    decode_verdict,
    encode_asks,
    has_expired,
)
from perdure.model.clock import from_datetime, to_datetime
from perdure.model.codec import BadHint, BadPayload, Codec, Unencodable, codec_for, own_text
from perdure.model.duration import Duration, parse_duration
from perdure.model.ids import is_ulid
from perdure.model.limits import BadValue, check_choice, check_name, check_person, check_words
from perdure.model.outcomes import Decided as Decided
from perdure.model.records import Condition, WatcherRecord

T = TypeVar("T")

# What says nothing of the type that it is of.
_builtins = frozenset({dict, list, tuple, set, frozenset, str, int, float, bool})

__all__ = ["Approval", "ApprovalInfo", "Decided", "Decision", "approval"]


class Decision(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What somebody decided: a choice, or a payload of the type that was asked for, or both.

    `link_id` is set if it came by a link.
    """

    choice: str | None = None
    payload: T
    by: str
    comment: str | None = None
    decided_at: datetime
    link_id: str | None = None


class Approval(Waitable[Decision[T]]):
    """Something that people are asked, to be waited for: see `approval`."""

    __slots__ = ("_clauses", "name")

    def __init__(self, asks: Asks, codec: Codec) -> None:
        self.name = asks.name
        condition = Condition("approval", asks.name, asks=encode_asks(asks))
        self._clauses = (Clause(condition, _DecisionCodec(codec)),)

    def clauses(self) -> tuple[Clause, ...]:
        return self._clauses


@overload
def approval(
    name: str,
    *,
    title: str = "",
    description: str = "",
    choices: Sequence[str] | None = None,
    who: str | Sequence[str] = (),
    expires: Duration | datetime | None = None,
    remind: Duration | Sequence[Duration] | None = None,
    data: Any = None,
) -> Approval[None]: ...


@overload
def approval(
    name: str,
    *,
    type: class_of[T],
    title: str = "",
    description: str = "",
    choices: Sequence[str] | None = None,
    who: str | Sequence[str] = (),
    expires: Duration | datetime | None = None,
    remind: Duration | Sequence[Duration] | None = None,
    data: Any = None,
) -> Approval[T]: ...


@overload
def approval(
    name: str,
    *,
    type: Any,
    title: str = "",
    description: str = "",
    choices: Sequence[str] | None = None,
    who: str | Sequence[str] = (),
    expires: Duration | datetime | None = None,
    remind: Duration | Sequence[Duration] | None = None,
    data: Any = None,
) -> Approval[Any]: ...


def approval(
    name: str,
    *,
    type: Any = None,
    title: str = "",
    description: str = "",
    choices: Sequence[str] | None = None,
    who: str | Sequence[str] = (),
    expires: Duration | datetime | None = None,
    remind: Duration | Sequence[Duration] | None = None,
    data: Any = None,
) -> Approval[Any]:
    """Ask people: `await ctx.wait(approval("refund", title="Refund 120 EUR?") | timer("48h"))` gives a Decision.

    They choose one of `choices` (approve or reject, if you give neither choices nor a type), fill in a `type`, or both.
    who: who may answer, "anna" or "group:finance"; nobody named: anybody. expires: until when one may answer; the wait
    itself goes on until its own timeout. remind: so long after it was asked, for each of a list; a single duration
    again and again. Each reminder is told on the ledger, for whoever sends mails. data: JSON for those who show it.
    """
    checked = check_name("approval", name)
    codec = codec_for(type, where=f"the payload of approval {checked!r}")
    every_us, remind_us = _reminders(remind)
    asks = Asks(
        name=checked,
        title=check_words("title", title, *_bound("title")),
        description=check_words("description", description, *_bound("description")),
        choices=_choices(choices, type is not None),
        schema=None if type is None else _schema(codec, checked),
        data=None if data is None else _data(data, checked),
        who=_who(who),
        expires_us=None if expires is None or isinstance(expires, datetime) else _span(expires),
        expires_at=from_datetime(expires, "expires") if isinstance(expires, datetime) else None,
        every_us=every_us,
        remind_us=remind_us,
    )
    _check_in_time(asks)
    return Approval(asks, codec)


def with_id(condition: Condition, id: str) -> Condition:
    """An approval as it is asked at one place of one run."""
    return replace(condition, asks=encode_asks(replace(decode_asks(condition.asks), id=id)))


def check_asks(asks: Asks) -> None:
    """Refuse what no run could ask, nor a store have stamped; but for texts that are no JSON, and times."""
    check_name("approval", asks.name)
    for id in (asks.id, *asks.before):
        if id and not is_ulid(id):
            raise BadValue("approval id", id, "is none")
    for what in ("title", "description", "schema", "data"):
        text = getattr(asks, what)
        if text is not None:
            check_words(what, text, *_bound(what))
    _choices(asks.choices or None, asks.schema is not None)
    if not asks.choices and asks.schema is None:
        raise BadValue("choices", asks.choices, "are none, and no payload is taken either")
    _who(asks.who)
    if asks.workflow:
        check_name("workflow", asks.workflow)
    _check_spans(asks)


def _check_spans(asks: Asks) -> None:
    if asks.every_us and asks.remind_us:
        raise BadValue("remind", asks.remind_us, "are single reminders beside repeated ones")
    spans = (*asks.remind_us, *((asks.every_us,) if asks.every_us else ()))
    for what, each in (
        ("remind", spans),
        ("expires", () if asks.expires_us is None else (asks.expires_us,)),
    ):
        for us in each:
            if not 0 < us <= limits.duration_us_max:
                raise BadValue(what, us, "must be more than nothing, and at most duration_us_max")
    _check_number(asks.remind_us)
    _check_order(asks.remind_us, asks.remind_us)
    if not 0 <= asks.reminded <= limits.reminders_max:
        bound = f"must be from 0 to {limits.reminders_max} (reminders_max)"
        raise BadValue("reminded", asks.reminded, bound)
    if len(asks.before) > limits.approval_ids_before_max:
        raise BadValue("before", limits.unsaid, f"has {len(asks.before)} ids")
    _check_in_time(asks)


# --- what it is given ---


def _bound(what: str) -> tuple[int, str]:
    name = f"approval_{what}_bytes_max"
    return getattr(limits, name), name


def _span(expires: Any) -> int:
    us = parse_duration(expires, "expires")
    if not us:
        raise BadValue("expires", expires, "must be more than nothing")
    return us


def _choices(choices: Any, typed: bool) -> tuple[str, ...]:
    if choices is None:
        return () if typed else DEFAULT_CHOICES
    found = _texts("choices", choices, limits.choices_max, "choices_max", check_choice)
    if not found:
        raise BadValue("choices", choices, "are none; leave them out, or name some")
    return found


def _who(who: Any) -> tuple[str, ...]:
    listed = (who,) if isinstance(who, str) else who
    return _texts("who", listed, limits.approvers_max, "approvers_max", _checked_person)


def _checked_person(one: object) -> str:
    person = check_person("who", one)
    if person == GROUP:
        raise BadValue("who", one, "names no group; such as 'group:finance'")
    return person


def _texts(
    what: str, given: Any, most: int, bound: str, check: Callable[[object], str]
) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadValue(what, given, "must be a list of texts")
    if len(given) > most:
        raise BadValue(what, given, f"are {len(given)}; at most {most} ({bound})")
    found = tuple(map(check, given))
    if len(set(found)) < len(found):
        raise BadValue(what, given, "name one twice")
    return found


def _schema(codec: Codec, name: str) -> str:
    text = schema_text(codec)
    most, bound = _bound("schema")
    if (size := len(text.encode())) > most:
        problem = f"has a schema of {size} bytes; at most {most} ({bound})"
        raise BadValue(f"the type of approval {name!r}", limits.unsaid, problem)
    return text


def _data(data: Any, name: str) -> str:
    text = json_text(f"data of approval {name!r}", data)
    most, bound = _bound("data")
    if len(text.encode()) > most:
        problem = f"are {len(text.encode())} bytes; at most {most} ({bound}); give a reference"
        raise BadValue(f"data of approval {name!r}", limits.unsaid, problem)
    return text


def _reminders(remind: Any) -> tuple[int, tuple[int, ...]]:
    """How often again and again, or the single ones."""
    if remind is None:
        return 0, ()
    if isinstance(remind, str) or not isinstance(remind, Sequence):
        return _reminder(remind), ()
    _check_number(remind)
    spans = tuple(map(_reminder, remind))
    _check_order(remind, spans)
    return 0, spans


def _check_number(remind: Sequence[Any]) -> None:
    if len(remind) > limits.reminders_max:
        problem = f"are {len(remind)}; at most {limits.reminders_max} (reminders_max)"
        raise BadValue("remind", remind, problem)


def _check_order(remind: Sequence[Any], spans: Sequence[int]) -> None:
    if any(later <= one for one, later in pairwise(spans)):
        raise BadValue("remind", remind, "must be in order, each later than the one before")


def _reminder(remind: Any) -> int:
    us = parse_duration(remind, "remind")
    if not us:
        raise BadValue("remind", remind, "must be more than nothing")
    return us


def _check_in_time(asks: Asks) -> None:
    """A reminder of what has expired would never be told: whoever asks for one has mistaken something."""
    latest = asks.every_us or max(asks.remind_us, default=0)
    if asks.expires_us is not None and latest >= asks.expires_us:
        raise BadValue(
            "remind", f"{latest / 1_000_000:g}s", "comes when nobody may answer any more (expires=)"
        )


# --- payloads ---


def json_text(what: str, value: Any) -> str:
    """Plain JSON as it is, and instances of typed classes by their types; raises InvalidPayload."""
    try:
        return own_text(value)
    except Unencodable as error:
        problem = f"is neither JSON nor of a type with a codec: {error}"
        raise InvalidPayload(what, [problem]) from error


def own_schema(value: Any) -> str | None:
    """The schema of what has written it, if that is a class of its own."""
    if class_of(value) in _builtins:
        return None
    try:
        return schema_text(codec_for(class_of(value)))
    except BadHint:  # JSON after all, as a subclass of str is
        return None


def schema_text(codec: Codec) -> str:
    return msgspec.json.encode(codec.schema(), order="deterministic").decode()


class _DecisionCodec(Codec):
    """What a decided approval stores, as the code that waits gets it; the payload is by its own type."""

    def __init__(self, payload: Codec) -> None:
        self._payload = payload

    def roundtrip(self, value: Any) -> tuple[str, Any]:
        payload, read = self._payload.roundtrip(value.payload)
        decided_at = from_datetime(value.decided_at)
        raw = msgspec.Raw(payload.encode())
        verdict = Verdict(value.choice, raw, value.by, value.comment, decided_at, value.link_id)
        return msgspec.json.encode(verdict).decode(), replace(value, payload=read)

    def decode(self, text: str | bytes) -> Any:
        # What is around the payload is the store's own, and not for its bounds.
        return self._parse(text.encode() if isinstance(text, str) else text)

    def schema(self) -> dict[str, Any]:
        return self._payload.schema()

    def _parse(self, raw: bytes) -> Any:
        try:
            verdict = decode_verdict(raw)
        except msgspec.MsgspecError as error:
            raise BadPayload([f"at $: {error}"]) from error
        return Decision(
            choice=verdict.choice,
            payload=self._payload.decode(bytes(verdict.payload)),
            by=verdict.by,
            comment=verdict.comment,
            decided_at=to_datetime(verdict.decided_at),
            link_id=verdict.link_id,
        )


# --- the inbox ---


class ApprovalInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An approval that is open. `schema` is that of the payload it takes; None: it takes none.

    `reminded` counts the reminders that were due by the last one that was told. One that has expired is listed until
    its wait ends: nobody may answer it any more.
    """

    id: str
    run_id: str
    path: str
    workflow: str
    name: str
    title: str
    description: str
    choices: tuple[str, ...]
    schema: dict[str, Any] | None
    data: Any
    who: tuple[str, ...]
    opened_at: datetime
    expires_at: datetime | None
    deadline_at: datetime | None  # of the wait
    expired: bool
    reminded: int


def approval_info(watcher: WatcherRecord, now: int) -> ApprovalInfo:
    asks = decode_asks(watcher.asks)
    return ApprovalInfo(
        id=approval_id(asks.id, watcher.run_id),
        run_id=watcher.run_id,
        path=watcher.path,
        workflow=asks.workflow,
        name=asks.name,
        title=asks.title,
        description=asks.description,
        choices=asks.choices,
        schema=None if asks.schema is None else msgspec.json.decode(asks.schema),
        data=None if asks.data is None else msgspec.json.decode(asks.data),
        who=asks.who,
        opened_at=to_datetime(asks.asked_at),
        expires_at=None if asks.expires_at is None else to_datetime(asks.expires_at),
        deadline_at=None if watcher.deadline_at is None else to_datetime(watcher.deadline_at),
        expired=has_expired(asks, now),
        reminded=asks.reminded,
    )
