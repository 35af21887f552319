"""What a client writes and reads: arguments as fields of a request, answers and problems as values and errors."""

import functools
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import msgspec

from perdure.approvals import json_text
from perdure.channels import Queue, Signal, Topic
from perdure.errors import (
    BadRequest,
    InvalidPayload,
    OutcomeUnknown,
    PerdureError,
    Undecodable,
)
from perdure.http import wire
from perdure.http.problems import CONTENT_TYPE, Problem, error_of, read_problem
from perdure.http.routes import BY_VERB, Route
from perdure.inputs import Fact, decoded_item, encoded_input, encoded_payload
from perdure.model import limits
from perdure.model.codec import BadPayload, Codec, codec_for
from perdure.model.codec.text import plain_text
from perdure.model.events import Cause, Event
from perdure.model.limits import BadValue, shown
from perdure.registry import Workflow
from perdure.views import (
    Refused,
    ScheduleInfo,
)

untyped = codec_for(Any)

# --- what is sent ---


def workflow_fields(workflow: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    """A workflow and its arguments: written by their types where those are here."""
    if isinstance(workflow, Workflow):
        text, _ = encoded_input(workflow, args)
        return {"workflow": workflow.name, "input": msgspec.Raw(text.encode())}
    what = f"the input of workflow {workflow!r}"
    return {"workflow": workflow, "input": json_field(None, what, list(args))}


def called_fields(workflow: Any, args: tuple[Any, ...], version: int | None) -> dict[str, Any]:
    """The same for what is to run now. Code that is here means its own version; the server may know a newer one."""
    if isinstance(workflow, Workflow):
        if version is not None:
            raise BadValue("version", version, "says nothing beside a workflow: give its name")
        version = workflow.version
    return {**workflow_fields(workflow, args), "version": version}


def codec_of(workflow: Any) -> Codec:
    """Of its result, as far as that is known here."""
    return workflow.codec if isinstance(workflow, Workflow) else untyped


def signal_fields(signal: Any, payload: Any) -> dict[str, Any]:
    what = f"the payload of signal {name_of(signal)!r}"
    return {"signal": name_of(signal), "payload": json_field(signal, what, payload)}


def json_field(channel: Any, what: str, payload: Any) -> msgspec.Raw:
    """A payload by the type of its signal, topic or queue; of a mere name it must be JSON as it stands."""
    if isinstance(channel, Signal | Topic | Queue):
        return msgspec.Raw(encoded_payload(channel.codec, what, payload).encode())
    text = plain_text(payload)
    if text is None:
        needs = "it holds what JSON has not, or is too large; give the signal, topic or queue with its type"
        raise InvalidPayload(what, [needs])
    return msgspec.Raw(text)


def own_field(what: str, value: Any) -> msgspec.Raw:
    """What nothing here says the type of: written by its own class, JSON as it stands."""
    return msgspec.Raw(json_text(what, value).encode())


def fact_fields(fact: Fact) -> dict[str, Any]:
    topic = fact.topic
    cause = fact.caused_by
    if isinstance(cause, Event | Cause):
        cause = cause.event_id
    given = {
        "topic": name_of(topic),
        "payload": json_field(topic, f"the payload of topic {name_of(topic)!r}", fact.payload),
        "entity": fact.entity,
        "key": fact.key,
        "event_id": fact.event_id,
        "occurred_at": fact.occurred_at,
        "caused_by": cause,
        "trace": fact.trace,
    }
    return {name: value for name, value in given.items() if value is not None}


def name_of(thing: Any) -> Any:
    """Of a workflow, signal, topic, queue or pool: the server knows it by that."""
    return getattr(thing, "name", thing)


def plain_field(value: Any) -> Any:
    """A duration in seconds; everything else as msgspec writes it."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def path_of(route: Route, given: dict[str, Any]) -> str:
    """The path, with what it takes out of what was given."""
    path = route.path
    for name in route.parameters:
        value = given.pop(name)
        if not isinstance(value, str) or not value:
            raise BadValue(name, value, "is no text")
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    return path


def asked(query: dict[str, Any] | None) -> list[tuple[str, str]]:
    """A query: what is None is not asked for, and a list is asked for several times."""
    pairs: list[tuple[str, str]] = []
    for name, value in (query or {}).items():
        values = value if isinstance(value, list | tuple) else (value,)
        pairs += [(name, _text(one)) for one in values if one is not None]
    return pairs


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return str(msgspec.to_builtins(value))
    return str(value)


# --- what is answered ---


@functools.lru_cache(limits.codecs_kept_max)
def _decoder(verb: str) -> Any:
    return msgspec.json.Decoder(BY_VERB[verb].answer)


def read_answer(route: Route, answer: Any) -> Any:
    """What a verb is told, or raises. Whatever the table does not promise was said by something between us."""
    if answer.status_code >= 400:
        raise _raised(route, answer)
    if answer.status_code not in route.statuses:
        raise _not_ours(route, answer)
    if answer.status_code == 204:
        return None
    if media_type(answer) != "application/json":
        raise _not_ours(route, answer)
    try:
        return _decoder(route.verb).decode(answer.content)
    except msgspec.MsgspecError as error:
        raise _unread(route, f"it has a form that this client does not know: {error}") from error


def read_end(route: Route, name: str, content: bytes) -> Any:
    """The last message of a stream that told that something goes on."""
    try:
        if name == "answer":
            return _decoder(route.verb).decode(content)
        error = error_of(msgspec.json.decode(content, type=Problem))
    except msgspec.MsgspecError as broken:
        raise _unread(route, f"it has a form that this client does not know: {broken}") from broken
    raise _as_raised(error)


def _as_raised(error: PerdureError) -> Exception:
    late = isinstance(error, BadRequest) and error.status == 504
    return TimeoutError(str(error)) if late else error


def media_type(answer: Any) -> str:
    kind: str = answer.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


def _raised(route: Route, answer: Any) -> Exception:
    error = read_problem(answer.content, answer.status_code)
    if not isinstance(error, BadRequest):
        return error
    if media_type(answer) == CONTENT_TYPE:
        return _as_raised(error)
    if answer.status_code >= 500 and route.method != "GET":
        return lost(route, str(error))
    return error


def _not_ours(route: Route, answer: Any) -> PerdureError:
    """Of a login page, of a proxy that sends us elsewhere: what came is named, without what may be a secret in it."""
    place = answer.headers.get("location", "").partition("?")[0]
    where = f" to {shown(place)}" if place else ""
    kind = media_type(answer) or "no type of content"
    return _unread(
        route, f"{answer.status_code}{where} ({kind}) is no answer of a Perdure server to this"
    )


def _unread(route: Route, reason: str) -> PerdureError:
    if route.method == "GET":
        return BadRequest(f"the answer to {route.verb} cannot be read: {reason}", 502)
    return lost(route, reason)


def lost(route: Route, reason: str) -> OutcomeUnknown:
    """Of a write: it may have been done."""
    if route.keyed:
        advice = "repeating it with the same key is safe"
    elif route.at_length:
        advice = "all of it may have been done, or a part; look before you repeat it"
    else:
        advice = "it may have been done; look before you repeat it"
    return OutcomeUnknown(f"{route.verb} was sent, and its answer was lost ({reason}): {advice}")


def or_refused(outcome: Any) -> Any:
    return Refused(error_of(outcome.problem)) if isinstance(outcome, wire.Refused) else outcome


def decoded(codec: Codec, value: Any, what: str) -> Any:
    try:
        return codec.decode(msgspec.json.encode(value))
    except BadPayload as error:
        raise Undecodable(what, str(error)) from error


def decoded_published(codec: Codec, value: Any, what: str) -> Any:
    """Something published or replied, which is read as the reader's type."""
    return decoded_item(codec, what, msgspec.json.encode(value).decode())


def schedule_info(line: wire.ScheduleLine) -> ScheduleInfo:
    fields = msgspec.structs.asdict(line)
    if isinstance(line.every, int | float):
        fields["every"] = timedelta(seconds=line.every)
    return ScheduleInfo(**fields)
