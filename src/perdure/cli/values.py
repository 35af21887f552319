"""What is written on a command line, read: JSON, times, spans, tags. What cannot be read is a usage error (exit 2).

Most are parsers of options: they say no before a store is opened, or a server asked.
"""

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from perdure.model import limits
from perdure.model.duration import parse_duration
from perdure.model.limits import BadValue
from perdure.model.status import LIVE, TERMINAL
from perdure.views import decode_cursor

_time = re.compile(r"\d{4}-\d\d-\d\d")
_digits = re.compile(r"\d{1,19}")


class Json(NamedTuple):
    """A value that was given as JSON; so that null is told from nothing."""

    value: Any


def json_value(text: str) -> Json:
    """JSON as it stands, of `@file`, or of the standard input (`-`)."""
    return Json(_decoded(_content(text), text))


def _content(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    if text.startswith("@"):
        try:
            return Path(text[1:]).read_bytes()
        except OSError as error:
            raise typer.BadParameter(
                f"{text[1:]} cannot be read: {error.strerror or error}"
            ) from None
    return text.encode(errors="surrogateescape")


def _decoded(content: bytes, text: str) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if text == "-" or text.startswith("@"):
            where = "the standard input" if text == "-" else text[1:]
            raise typer.BadParameter(f"{where} is not JSON: {error}") from None
        shown = text if len(text) <= 60 else text[:59] + "…"
        raise typer.BadParameter(
            f"{shown!r} is not JSON ({error}). A text is quoted, '\"like this\"'; or give @file.json, or - for the "
            "standard input"
        ) from None


def span(text: str) -> str:
    """A span of time such as 90s, as it is."""
    _us(text)
    return text


def _us(text: str) -> int:
    try:
        return parse_duration(text)
    except BadValue:
        raise typer.BadParameter(
            f"{text!r} is no span of time such as 90s, 1h30m or 2d, of at most ten years"
        ) from None


def _interval(text: str) -> float:
    """Seconds between two looks."""
    us = _us(text)
    if us < limits.look_us_min:
        least = f"at least {limits.look_us_min // 1000}ms (look_us_min)"
        raise typer.BadParameter(f"{text!r} is too often: {least}")
    return us / 1_000_000


Every = Annotated[
    Any, typer.Option("--every", parser=_interval, metavar="SPAN", help="How often to look")
]


def moment(text: str) -> Any:
    """A time (of this machine's zone, if it names none), or a span such as 2h, as it is."""
    return time(text) if _time.match(text) else span(text)


def time(text: str) -> datetime:
    """A time such as 2030-01-31T09:00; of this machine's zone, if it names none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time such as 2030-01-31T09:00 or 2030-01-31T09:00:00+01:00"
        ) from None
    return found.astimezone() if found.tzinfo is None else found


def past(text: str) -> datetime:
    """A time, or how long ago that was."""
    if _time.match(text):
        return time(text)
    try:
        return datetime.now(UTC) - timedelta(microseconds=parse_duration(text))
    except BadValue:
        raise typer.BadParameter(
            f"{text!r} is not a time such as 2030-01-31T09:00, nor a span such as 2h, which is that long ago"
        ) from None


def position(text: str) -> Any:
    """A position of the ledger, a time, how long ago, or one of the words that stand for a place."""
    if _digits.fullmatch(text):
        return int(text)
    if text in ("beginning", "now"):
        return text
    try:
        return past(text)
    except typer.BadParameter:
        raise typer.BadParameter(
            f'{text!r} is neither a position, nor a time, nor a span such as 2h ago, nor "beginning" or "now"'
        ) from None


def status(text: str) -> str:
    """A status of runs."""
    known = LIVE | TERMINAL
    if text not in known:
        raise typer.BadParameter(f"{text!r} is none of: {', '.join(sorted(known))}")
    return text


def cursor(text: str) -> str:
    """Where a listing ended, as it said itself."""
    try:
        decode_cursor(text, tuple[Any, ...])
    except BadValue:
        raise typer.BadParameter(
            f"{text!r} is no cursor: a listing that has more says with which --after it goes on"
        ) from None
    return text


def tags(given: list[str] | None) -> dict[str, str] | None:
    """Several of them, which were read already."""
    return dict(_tag(one) for one in given) if given else None


def tag(text: str) -> str:
    """`name=value`, as it is."""
    _tag(text)
    return text


def _tag(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not name=value")
    return name, value


def tag_filter(given: str | None) -> Any:
    """`name`, or `name=value`."""
    if given is None:
        return None
    name, equals, value = given.partition("=")
    return (name, value) if equals else name
