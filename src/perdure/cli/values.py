"""What is written on a command line, read: JSON, times, spans, tags. What cannot be read is a usage error (exit 2)."""

import re
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import typer

from perdure.model import limits
from perdure.model.duration import parse_duration

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
    """A span of time, kept as it was written."""
    parse_duration(text, "span")
    return text


def interval(text: str) -> float:
    """Seconds between two looks."""
    us = parse_duration(text, "--every")
    if us < limits.look_us_min:
        least = f"at least {limits.look_us_min // 1000}ms (look_us_min)"
        raise typer.BadParameter(f"{text!r} is too often: {least}", param_hint="--every")
    return us / 1_000_000


def moment(text: str) -> Any:
    """A time (of this machine's zone, if it names none), or a span such as 2h, as it is."""
    if not _time.match(text):
        return text
    return time(text)


def time(text: str) -> datetime:
    """A time such as 2030-01-31T09:00; of this machine's zone, if it names none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time such as 2030-01-31T09:00 or 2030-01-31T09:00:00+01:00"
        ) from None
    return found.astimezone() if found.tzinfo is None else found


def position(text: str) -> Any:
    """A position of the ledger, a time, or one of the words that stand for a place."""
    if _digits.fullmatch(text):
        return int(text)
    if text in ("beginning", "now"):
        return text
    if _time.match(text):
        return time(text)
    raise typer.BadParameter(
        f'{text!r} is neither a position, nor a time, nor "beginning" or "now"'
    )


def tags(given: list[str] | None) -> dict[str, str] | None:
    """`name=value`, several of them."""
    if not given:
        return None
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{one!r} is not name=value", param_hint="--tag")
        found[name] = value
    return found


def tag_filter(given: str | None) -> Any:
    """`name`, or `name=value`."""
    if given is None:
        return None
    name, equals, value = given.partition("=")
    return (name, value) if equals else name
