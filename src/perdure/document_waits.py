"""Waits of a document: what they wait for, and what ended them, checked before a store opens them anew.

A wait that goes on is watched as its record says, an approval stands in the inbox with the words that it asks, and what
was decided is read by whoever asks what became of it. So nothing goes in here that the code of a run could not have
asked for. Pure: no store, no clock.
"""

from typing import Any, TypeVar

import msgspec

from perdure.approvals import check_asks
from perdure.errors import BadDocument
from perdure.model import limits
from perdure.model.approvals import Asks, Verdict
from perdure.model.clock import first_us, last_us
from perdure.model.records import Condition, WaitSpec

T = TypeVar("T")


def check_wait(wait: str, state: str, winner: int | None) -> Condition | None:
    """Refuse what is no wait; gives the condition that has ended it."""
    spec = decoded("wait", wait, WaitSpec)
    if not spec.on or len(spec.on) > limits.conditions_per_wait_max:
        raise BadDocument(f"waits for {len(spec.on)} conditions")
    _check_deadline(spec)
    if spec.after and len(spec.after) != len(spec.on):
        raise BadDocument("has an `after` that does not fit its conditions")
    if spec.branch:
        limits.check_path(spec.branch)
    for one in spec.on:
        _check_condition(one)
    if winner is not None and not 0 <= winner < len(spec.on):
        raise BadDocument("has a winner that is none of its conditions")
    if winner is not None and state == "open":
        raise BadDocument("is a wait that is open, and has a winner")
    if winner is None and state == "done":
        raise BadDocument("is a wait that is done, and has no winner")
    return None if winner is None else spec.on[winner]


def _check_deadline(spec: WaitSpec) -> None:
    ix = spec.deadline_ix
    if ix is not None and not 0 <= ix < len(spec.on):
        raise BadDocument("has a deadline_ix that is none of its conditions")
    if ix is not None and spec.on[ix].kind != "timer":
        raise BadDocument(f"has a deadline_ix that is a {spec.on[ix].kind}, not a timer")
    if (ix is None) != (spec.deadline_at is None):
        raise BadDocument(f"has the deadline_at {spec.deadline_at} with the deadline_ix {ix}")
    check_time("deadline_at", spec.deadline_at)


def _check_condition(condition: Condition) -> None:
    """It is opened anew where the run goes on, so its words must be such as a store keeps."""
    if condition.kind == "run":
        limits.check_run_id(condition.target)
    elif condition.target or condition.kind != "timer":
        limits.check_name(condition.kind, condition.target)
    if condition.entity:
        limits.check_entity(condition.entity)
    for text in (condition.filter, condition.code):
        if len(text) > limits.expression_bytes_max or "\0" in text:
            raise BadDocument("has a filter that is none")
    check_span("delay_us", condition.delay_us)
    check_time("until_at", condition.until_at)
    if condition.kind == "approval":
        _check_asks(condition)
    elif condition.asks:
        raise BadDocument(f"is a wait for a {condition.kind} that asks people")


def _check_asks(condition: Condition) -> None:
    limits.check_payload(condition.asks.encode())
    asks = decoded("asks", condition.asks, Asks)
    if asks.name != condition.target:
        raise BadDocument(f"asks {limits.shown(asks.name)} as {limits.shown(condition.target)}")
    check_asks(asks)
    for what in ("expires_at", "asked_at"):
        check_time(what, getattr(asks, what))
    for what, most in (("schema", dict), ("data", object)):
        text = getattr(asks, what)
        if text is not None:
            check_json(what, text, most)


def check_verdict(value: str) -> None:
    """Refuse what no decision leaves behind."""
    verdict = decoded("value", value, Verdict)
    payload = bytes(verdict.payload)
    if not payload:
        raise BadDocument("has a decision without a payload")
    check_json("the payload of the decision", payload.decode(), object)
    if verdict.choice is not None:
        limits.check_choice(verdict.choice)
    limits.check_person("by", verdict.by)
    if verdict.comment is not None:
        limits.check_words("comment", verdict.comment, limits.comment_bytes_max)
    if verdict.link_id is not None:
        limits.check_key(verdict.link_id)
    check_time("decided_at", verdict.decided_at)


# --- texts and numbers ---


def decoded(what: str, text: str, type: type[T]) -> T:
    """A text that is one of ours; however deep somebody has made it."""
    try:
        return msgspec.json.decode(text.encode(), type=type)
    except RecursionError as error:
        raise BadDocument(f"{what} nests too deeply") from error
    except msgspec.MsgspecError as error:
        raise BadDocument(f"{what} is no such JSON: {error}") from error


def check_json(what: str, text: str, type: Any) -> None:
    """Refuse a payload that is not the JSON that it must be, or more than one may be."""
    limits.check_payload(text.encode())
    decoded(what, text, Any if type is object else type)


def check_time(what: str, at: int | None) -> None:
    if at is not None and not first_us <= at <= last_us:
        raise BadDocument(f"has the {what} {limits.shown(at)}, outside the years 1 to 9999")


def check_span(what: str, us: int | None) -> None:
    if us is not None and not 0 <= us <= limits.duration_us_max:
        raise BadDocument(f"has the {what} {limits.shown(us)}, which is no timer")
