"""CloudEvents 1.0 in JSON, out and in, one at a time (structured) or many (batch); and in by headers (binary).

Out, an `Event` becomes a dict or text that any CloudEvents reader takes; what has no attribute in the standard goes
as an extension. In, text becomes a `Fact` each, ready to be emitted, or an `InvalidPayload` that says which
attribute of which event is wrong. Text is measured before it is parsed. Nothing is stored here.

CloudEvents are one and the same when `source` and `id` are. An id that is a ULID is kept as the event's id; any
other is kept in the key, together with its source, so that a second delivery is still recognised. Position, cause
and root of another ledger are not taken over: here the event begins a chain. Other extensions are left out.

Data: `data` is the payload, whatever JSON it is. `data_base64` is parsed if `datacontenttype` says that it is JSON.
Otherwise it stays the base64 text that it is, which a payload declared as `bytes` reads back as those bytes.
"""

import base64
import binascii
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec

from perdure.errors import InvalidPayload
from perdure.inputs import Fact
from perdure.model.codec.text import write_json
from perdure.model.events import Cause, Event
from perdure.model.ids import is_ulid
from perdure.model.limits import (
    BadValue,
    check_cloudevents,
    check_entity,
    check_key,
    check_name,
    check_payload,
    cloudevent_attribute_bytes_max,
    cloudevents_per_batch_max,
    shown,
    unsaid,
)

STRUCTURED_TYPE: Final = "application/cloudevents+json"
BATCH_TYPE: Final = "application/cloudevents-batch+json"

_version: Final = "1.0"
_header: Final = "ce-"
# Everything else in an event is an attribute.
_data_names: Final = ("data", "data_base64")
_attribute_name = re.compile(r"[a-z0-9]+")
_json_type = re.compile(r"[^/;\s]+/(?:[^/;\s]+\+)?json\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)
_rfc3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)

_one = msgspec.json.Decoder(dict[str, msgspec.Raw])
_many = msgspec.json.Decoder(list[msgspec.Raw])
_any: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()

_Parsed = TypeVar("_Parsed")


# --- out -----------------------------------------------------------------------------------------


def to_cloudevent(event: Event, source: str) -> dict[str, Any]:
    """The event as a CloudEvent. `source` says which ledger it is of, such as `/perdure/shop`."""
    if not isinstance(source, str) or not source:
        raise BadValue("source", source, "is no URI reference; give text such as '/perdure/shop'")
    attributes = {
        "specversion": _version,
        "id": event.event_id,
        "source": source,
        "type": event.type,
        "subject": event.entity,
        "time": _time_text(event.occurred_at),
        "datacontenttype": "application/json",
        **_extensions(event),
    }
    given = {name: value for name, value in attributes.items() if value is not None}
    return {**given, "data": event.payload}


def to_json(event: Event, source: str) -> str:
    """The text of one event, of type `STRUCTURED_TYPE`."""
    return write_json(to_cloudevent(event, source)).decode()


def to_batch_json(events: Iterable[Event], source: str) -> str:
    """The text of any number of events, of type `BATCH_TYPE`."""
    return write_json([to_cloudevent(event, source) for event in events]).decode()


def _extensions(event: Event) -> dict[str, str | int | None]:
    cause = event.caused_by or Cause()
    return {
        # An Integer of CloudEvents has 32 bits and a position 64. It is text from the first event on:
        # a reader whose attribute changes its type after two thousand million events finds out too late.
        "position": str(event.position),
        "recordedtime": _time_text(event.recorded_at),
        "rootid": event.root_id,
        "depth": event.depth,
        "causeid": cause.event_id,
        "causerunid": cause.run_id,
        "causepath": cause.path,
        "causeconsumer": cause.consumer,
        "causereplay": cause.replay or None,
        "idempotencykey": event.key,
        "traceparent": event.trace,
    }


def _time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


# --- in ------------------------------------------------------------------------------------------


def from_json(text: str | bytes, content_type: str | None = None) -> list[Fact]:
    """The events of a text, in their order: of an object one, of an array as many as it holds.

    With the content type that came with it, the text must be what that promises: `BATCH_TYPE` an array,
    `STRUCTURED_TYPE` an object. One wrong event refuses them all, as nothing says which were wanted alone.
    """
    with _told_as("the text of CloudEvents"):
        raw = _measured(text)
        is_batch = raw.lstrip()[:1] == b"["
        _check_promise(content_type, is_batch)
    if not is_batch:
        return [_read(raw, "the CloudEvent")]
    with _told_as("the batch of CloudEvents"):
        parts = _parsed(_many, raw)
        if len(parts) > cloudevents_per_batch_max:
            bound = f"{cloudevents_per_batch_max} (cloudevents_per_batch_max)"
            problem = f"holds {len(parts)} events; at most {bound}; send fewer at once"
            raise BadValue("it", unsaid, problem)
    total = len(parts)
    return [_read(part, f"CloudEvent {number} of {total}") for number, part in enumerate(parts, 1)]


def from_binary(headers: Mapping[str, str], body: bytes) -> Fact:
    """The event of an HTTP message in binary mode: its attributes are headers (`ce-…`), the body is the data."""
    with _told_as("the CloudEvent"):
        check_cloudevents(body)
        event: dict[str, Any] = {
            name.removeprefix(_header): _header_text(name, text)
            for name, text in headers.items()
            if name.startswith(_header)
        }
        if "datacontenttype" in event:
            raise BadValue("header", "ce-datacontenttype", "is none: it is the Content-Type itself")
        content_type = headers.get("content-type")
        if content_type:
            event["datacontenttype"] = content_type
        if body and (content_type is None or _json_type.fullmatch(content_type)):
            event["data"] = _value("data", body)
        elif body:
            event["data_base64"] = base64.b64encode(body).decode()
        return _fact(event)


def _header_text(name: str, text: str) -> str:
    """What is not printable ASCII stands percent-encoded in a header."""
    with _blamed_on(name.removeprefix(_header)):
        if len(text) > cloudevent_attribute_bytes_max:
            bound = f"{cloudevent_attribute_bytes_max} (cloudevent_attribute_bytes_max)"
            raise BadValue("it", unsaid, f"is {len(text)} bytes; at most {bound}")
        try:
            return unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise BadValue("it", text, "is not percent-encoded UTF-8") from None


@contextmanager
def _told_as(where: str) -> Iterator[None]:
    """A refusal within says in which event it arose."""
    try:
        yield
    except BadValue as error:
        raise InvalidPayload(where, [str(error)]) from None


def _measured(text: str | bytes) -> bytes:
    """The text as bytes, once it is known not to be too much."""
    if not isinstance(text, str | bytes):
        raise BadValue("text", unsaid, f"is a {type(text).__name__}; give a str or bytes")
    try:
        raw = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise BadValue("text", text, "holds a lone surrogate; decode it properly") from None
    check_cloudevents(raw)
    return raw


def _check_promise(content_type: str | None, is_batch: bool) -> None:
    if content_type is None:
        return
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in (STRUCTURED_TYPE, BATCH_TYPE):
        known = f"give {STRUCTURED_TYPE} or {BATCH_TYPE}"
        raise BadValue("content type", content_type, f"is not read here; {known}")
    if media_type == BATCH_TYPE and not is_batch:
        raise BadValue("a batch", unsaid, f"is no JSON array; send one, or say {STRUCTURED_TYPE}")
    if media_type == STRUCTURED_TYPE and is_batch:
        raise BadValue("an event", unsaid, f"is no JSON object; send one, or say {BATCH_TYPE}")


def _read(raw: bytes | msgspec.Raw, where: str) -> Fact:
    with _told_as(where):
        parts = _parsed(_one, raw)
        return _fact({name: _value(name, bytes(part)) for name, part in parts.items()})


def _parsed(decoder: msgspec.json.Decoder[_Parsed], raw: bytes | msgspec.Raw) -> _Parsed:
    try:
        return decoder.decode(raw)
    except RecursionError:
        problem = "nests too deep (payload_depth_max); store a reference instead"
        raise BadValue("JSON text", unsaid, problem) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        problem = f"cannot be read: {error}; send valid JSON (it has no NaN or Infinity)"
        raise BadValue("JSON text", unsaid, problem) from None


def _value(name: str, text: bytes) -> Any:
    """The value of an attribute or of the data, parsed once its size is known."""
    with _blamed_on(name):
        if name in _data_names:
            check_payload(text)
        elif len(text) > cloudevent_attribute_bytes_max:
            bound = f"{cloudevent_attribute_bytes_max} (cloudevent_attribute_bytes_max)"
            problem = f"is {len(text)} bytes; at most {bound}; put it into data"
            raise BadValue("it", unsaid, problem)
        return _parsed(_any, text)


@contextmanager
def _blamed_on(name: str) -> Iterator[None]:
    """A refusal within says at which attribute."""
    try:
        yield
    except BadValue as error:
        raise BadValue(f"attribute {shown(name)}:", unsaid, str(error)) from None


# --- what an event says --------------------------------------------------------------------------


def _fact(event: Mapping[str, Any]) -> Fact:
    _check_attributes(event)
    _check_version(_needed(event, "specversion"))
    event_id, source = _needed(event, "id"), _needed(event, "source")
    return Fact(
        topic=_type(_needed(event, "type")),
        payload=_payload(event),
        entity=_entity(_text(event, "subject")),
        event_id=event_id if is_ulid(event_id) else None,
        key=_given_key(event) or (None if is_ulid(event_id) else _identity_key(source, event_id)),
        occurred_at=_time(_text(event, "time")),
        trace=_text(event, "traceparent"),
    )


def _check_attributes(event: Mapping[str, Any]) -> None:
    """Names and kinds of all of them, also of those that are left out: a wrong one was meant to be something."""
    for name, value in event.items():
        if name in _data_names:
            continue
        if not isinstance(name, str) or not _attribute_name.fullmatch(name):
            problem = "is no name for one; use lower-case letters and digits only"
            raise BadValue("attribute", name, problem)
        if not isinstance(value, str | bool | int | None):
            problem = f"is a {type(value).__name__}; give text, a whole number or a boolean"
            raise BadValue("attribute", name, problem)


def _check_version(version: str) -> None:
    if version != _version:
        problem = f"is {version!r}, which is not read here; send CloudEvents {_version}"
        raise BadValue("attribute", "specversion", problem)


def _needed(event: Mapping[str, Any], name: str) -> str:
    text = _text(event, name)
    if text is None:
        raise BadValue("attribute", name, "is missing; every CloudEvent has one")
    return text


def _text(event: Mapping[str, Any], name: str) -> str | None:
    """The text of an attribute; null is the same as none."""
    value = event.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadValue("attribute", name, f"is a {type(value).__name__}; give text")
    if not value:
        raise BadValue("attribute", name, "is empty; leave it out or give it a value")
    if not value.isprintable() and any(unicodedata.category(one) == "Cc" for one in value):
        raise BadValue("attribute", name, "holds a control character; remove it")
    return value


def _type(text: str) -> str:
    with _blamed_on("type"):
        return check_name("event type", text)


def _entity(subject: str | None) -> str | None:
    """A subject is anything; one that is no entity is kept as the id of an entity of type `subject`."""
    if subject is None:
        return None
    try:
        check_entity(subject)
        return subject
    except BadValue:
        with _blamed_on("subject"):
            check_entity(f"subject/{subject}")
        return f"subject/{subject}"


def _given_key(event: Mapping[str, Any]) -> str | None:
    key = _text(event, "idempotencykey")
    if key is None:
        return None
    with _blamed_on("idempotencykey"):
        return check_key(key)


def _identity_key(source: str, event_id: str) -> str:
    """Source and id as one key, and never the key of two: the last slash always parts them."""
    plain = f"{source}/{event_id.replace('%', '%25').replace('/', '%2F')}"
    try:
        return check_key(plain)
    except BadValue:
        # Too long for a key, or with white space at an end. No slash, so no plain one looks like it.
        return f"cloudevent:{hashlib.sha256(plain.encode()).hexdigest()}"


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        if _rfc3339.fullmatch(text.upper()):
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # such as the 31st of February, or an offset that leads out of the calendar
    problem = f"is {text!r}; give a time of RFC 3339, such as '2026-01-31T12:00:00Z'"
    raise BadValue("attribute", "time", problem)


def _payload(event: Mapping[str, Any]) -> Any:
    content_type = _text(event, "datacontenttype")
    encoded = _base64_text(event)
    if encoded is None:
        return event.get("data")
    if event.get("data") is not None:
        raise BadValue("attribute", "data_base64", "stands beside data; send one of the two")
    with _blamed_on("data_base64"):
        decoded = _decoded(encoded)
        if content_type is None or not _json_type.fullmatch(content_type):
            return encoded
        check_payload(decoded)
        return _parsed(_any, decoded)


def _base64_text(event: Mapping[str, Any]) -> str | None:
    encoded = event.get("data_base64")
    if encoded is not None and not isinstance(encoded, str):
        raise BadValue("attribute", "data_base64", f"is a {type(encoded).__name__}; give text")
    return encoded


def _decoded(encoded: str) -> bytes:
    check_payload(write_json(encoded))
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise BadValue("data", unsaid, "is not base64; encode it so, or send it as data") from None
