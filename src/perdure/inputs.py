"""What callers hand over, checked and put into the form that is stored. The app and ctx take the same.

Whatever is wrong is refused here, before anything is written: the error names what, where, and what to do.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from perdure.channels import Signal
from perdure.errors import InvalidPayload
from perdure.model import limits
from perdure.model.clock import from_datetime
from perdure.model.codec import BadPayload, Unencodable, codec_for
from perdure.model.limits import BadValue, check_tags
from perdure.model.status import LIVE, TERMINAL, Status
from perdure.registry import Workflow

_untyped = codec_for(Any)

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


def encoded_payload(signal: Signal[Any], payload: Any) -> str:
    """A signal's payload as stored; raises InvalidPayload."""
    try:
        return signal.codec.encode_lenient(payload)
    except BadPayload as error:
        raise InvalidPayload(f"the payload of signal {signal.name!r}", error.errors) from error
    except Unencodable as error:
        raise InvalidPayload(f"the payload of signal {signal.name!r}", [str(error)]) from error


def offered_payload(
    signal: Signal[Any], payload: Any, key: str | None
) -> tuple[str, tuple[str, ...]]:
    """A signal's payload as stored, and what is wrong with it; without a key InvalidPayload is raised instead.

    With one the store is asked all the same: a key that was used before is answered first.
    """
    try:
        return encoded_payload(signal, payload), ()
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


# --- what is asked for ---


def checked_signal(signal: Any) -> Signal[Any]:
    """What a sender gave: a Signal, or the name of one."""
    if isinstance(signal, str):
        return Signal(signal)
    if not isinstance(signal, Signal):
        raise BadValue("signal", signal, "is neither a Signal nor a name")
    return signal


def checked_path(path: str | None) -> str | None:
    """A path to address: scopes, name and number, as `app.waiting` shows it."""
    if path is None:
        return None
    return limits.check_path(path)


def checked_moment(what: str, moment: Any) -> int:
    """An aware datetime as it is stored."""
    if not isinstance(moment, datetime):
        raise BadValue(what, moment, "takes a datetime with a time zone")
    return from_datetime(moment)


def at_least(name: str, value: int, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BadValue(name, value, f"must be a whole number from {least}")
    return value


def checked_limit(limit: int) -> int:
    if (
        not isinstance(limit, int)
        or isinstance(limit, bool)
        or not 1 <= limit <= limits.page_rows_max
    ):
        raise BadValue("limit", limit, f"must be from 1 to {limits.page_rows_max} (page_rows_max)")
    return limit


def checked_id(what: str, value: str) -> str:
    if not isinstance(value, str):
        raise BadValue(what, value, f"is a {type(value).__name__}; give the id that was answered")
    return value


def checked_time(what: str, moment: datetime | None) -> int | None:
    return None if moment is None else checked_moment(what, moment)


def checked_workflow_name(workflow: str | Workflow[Any, *tuple[Any, ...]] | None) -> str | None:
    if workflow is None or isinstance(workflow, str):
        return workflow
    if isinstance(workflow, Workflow):
        return workflow.name
    raise BadValue("workflow", workflow, "is neither a workflow nor the name of one")


def checked_tag(tag: str | tuple[str, str] | None) -> tuple[str, str | None] | None:
    if tag is None:
        return None
    if isinstance(tag, str):
        return tag, None
    if isinstance(tag, tuple) and len(tag) == 2 and all(isinstance(one, str) for one in tag):
        return tag
    raise BadValue("tag", tag, "is neither a name nor (name, value)")


def checked_statuses(status: Status | Iterable[Status] | None) -> tuple[str, ...]:
    if status is None:
        return ()
    one_only = isinstance(status, str) or not isinstance(status, Iterable)
    statuses: tuple[Any, ...] = (status,) if one_only else tuple(status)
    for one in statuses:
        if not isinstance(one, str) or one not in LIVE | TERMINAL:
            raise BadValue("status", one, f"is none of: {', '.join(sorted(LIVE | TERMINAL))}")
    return statuses
