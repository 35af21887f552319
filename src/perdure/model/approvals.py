"""Approvals: what a run asks of people, as it is stored with its wait, and the rules that need nothing else.

`Asks` travels as JSON in the condition of a wait (model/records.py). The context gives it the id, from the place in the
run; the store stamps it when the wait opens, by its own clock; beside the open watcher it also says which reminders
were told. So all that the inbox shows, and all that a decision is judged by, is one row.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.model import limits
from perdure.model.ids import is_ulid
from perdure.model.limits import BadValue, check_run_id
from perdure.model.schema import check_schema

DEFAULT_CHOICES: Final = ("approve", "reject")
GROUP: Final = "group:"


class Asks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What is asked of whom. Texts of `schema` and `data` are JSON; without a schema it takes no payload."""

    name: str
    id: str = ""
    title: str = ""
    description: str = ""
    choices: tuple[str, ...] = ()
    schema: str | None = None
    data: str | None = None
    who: tuple[str, ...] = ()  # "anna", "group:finance"; none: anybody
    expires_us: int | None = None
    expires_at: int | None = None
    remind_us: tuple[int, ...] = ()  # after it was asked, each later than the one before
    every_us: int = 0  # or again and again

    # Stamped by the store.
    asked_at: int = 0
    workflow: str = ""
    before: tuple[str, ...] = ()  # ids it had before: withdrawn, and asked anew by a retry
    reminded: int = 0  # the number of the last reminder that was told, or is past
    expired: bool = False  # that was told


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """A decision as the completed wait stores it."""

    choice: str | None
    payload: msgspec.Raw
    by: str
    comment: str | None
    decided_at: int
    link_id: str | None


decode_asks = msgspec.json.Decoder(Asks).decode
decode_verdict = msgspec.json.Decoder(Verdict).decode


def encode_asks(asks: Asks) -> str:
    return msgspec.json.encode(asks).decode()


# --- ids ---


def approval_id(id: str, run_id: str) -> str:
    """The id that people are given: it names the run too, so nobody has to look for it."""
    return f"{id}.{run_id}"


def parse_approval_id(value: object) -> tuple[str, str]:
    """Its own part, and the run."""
    if isinstance(value, str):
        id, dot, run_id = str.__str__(value).partition(".")
        if dot and is_ulid(id):
            return id, check_run_id(run_id)
    raise BadValue(
        "approval id", value, "is none: give the id that app.approvals() or hitl.requested shows"
    )


# --- time ---


def remind_at(asks: Asks, number: int) -> int | None:
    """When the reminder of that number is due; None if there is none: nobody is reminded of what has expired."""
    if asks.every_us:
        after_us = asks.every_us * number if number <= limits.reminders_max else None
    else:
        after_us = asks.remind_us[number - 1] if number <= len(asks.remind_us) else None
    if after_us is None:
        return None
    at = asks.asked_at + after_us
    return at if asks.expires_at is None or at < asks.expires_at else None


def alarm_at(asks: Asks) -> int | None:
    """When there is something to tell next."""
    if asks.expired:
        return None
    reminder_at = remind_at(asks, asks.reminded + 1)
    return asks.expires_at if reminder_at is None else reminder_at


def reminders_past(asks: Asks, now: int) -> int:
    """The number of the last reminder that is due by now."""
    last_at = now if asks.expires_at is None else min(now, asks.expires_at - 1)
    passed_us = last_at - asks.asked_at
    if asks.every_us:
        number = min(passed_us // asks.every_us, limits.reminders_max)
    else:
        number = bisect_right(asks.remind_us, passed_us)
    return max(asks.reminded, number)


def has_expired(asks: Asks, now: int) -> bool:
    """At the very moment it is still in time, unless it was told that it is not."""
    return asks.expired or (asks.expires_at is not None and now > asks.expires_at)


# --- who and what ---


def may_answer(asks: Asks, people: Iterable[str]) -> bool:
    """Whether one of these, people or groups as `who` names them, may answer."""
    return not asks.who or not set(asks.who).isdisjoint(people)


def misfits(
    asks: Asks, choice: str | None, payload: str | None, schema: str | None = None
) -> list[str]:
    """What is wrong with an answer, in words for who gave it.

    What the very type that is asked for has written (`schema` is its own) fits: some write otherwise than their schema
    says that they read, and read that too.
    """
    wrong = _wrong_choice(asks, choice)
    if schema is not None and schema == asks.schema:
        return wrong
    return [*wrong, *_wrong_payload(asks, payload, schema)]


def _wrong_choice(asks: Asks, choice: str | None) -> list[str]:
    if choice in asks.choices or (choice is None and not asks.choices):
        return []
    if not asks.choices:
        return [f"it has no choices, and {limits.shown(choice)} was given: answer with a payload"]
    said = "none was given" if choice is None else f"not {limits.shown(choice)}"
    return [f"choose one of {', '.join(map(repr, asks.choices))}; {said}"]


def _wrong_payload(asks: Asks, payload: str | None, schema: str | None) -> list[str]:
    if asks.schema is None:
        return [] if payload is None else ["it takes no payload, and one was given"]
    text = "null" if payload is None else payload
    return check_schema(msgspec.json.decode(asks.schema), text, strict=schema is None)
