"""Whether a text is a date, a duration, a key of a type: as the engine that will read it says.

Where a schema is marked (`x-perdure`, written by `model/codec/marks.py` and `models.py`), it is decided as the codec
does it: by msgspec itself for its own types. Where it is not, it is pydantic's, or from before there were marks: then
by forms of our own. Loosely, if a codec has the last word; and `strict`, for one who has none to ask, only what
pydantic takes for sure. A format that is not here says nothing, as in the standard.
"""

import ipaddress
import math
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta

from perdure.model.limits import shown

# The keyword of what JSON Schema has no word for.
MARK: Final = "x-perdure"
# How numbers are written as keys of objects.
INT_KEY: Final = r"^-?(0|[1-9][0-9]*)$"
FLOAT_KEY: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_long_key: Final = 1000

Mark = dict[str, Any]


def mark_of(schema: dict[str, Any]) -> Mark:
    """What a form says beyond JSON Schema, as far as it can be decided here; nothing in most."""
    mark = schema.get(MARK)
    return mark if isinstance(mark, dict) and _is_sound(mark) else {}


def beyond_us(schema: dict[str, Any]) -> str | None:
    """The name of what a form is marked as, if that cannot be decided here."""
    mark = schema.get(MARK)
    if not isinstance(mark, dict) or "reads" not in mark:
        return None
    if mark["reads"] == "custom":
        return None if _converter(mark) is not None else shown(mark.get("name"))
    return None if _is_sound(mark) else shown(mark["reads"])


def _is_sound(mark: Mark) -> bool:
    """Whether it is one of ours: a schema may come from anywhere."""
    reads = mark.get("reads")
    if not isinstance(reads, str) or (reads not in _known and reads != "custom"):
        return False
    sizes = [mark[one] for one in ("min", "max", "digits", "places") if one in mark]
    return mark.get("tz") in (None, True, False) and all(type(one) is int for one in sizes)


def is_set(schema: dict[str, Any]) -> bool:
    """Whether a list is read as a set, which takes what is there twice for one."""
    return mark_of(schema).get("reads") == "set"


def text_problems(schema: dict[str, Any], value: str, strict: bool) -> Iterator[str]:
    """What format and mark of a form have against a text."""
    mark = mark_of(schema)
    reads = mark.get("reads")
    if reads in _by_msgspec:
        if not _msgspec_reads(reads, mark.get("tz"), value):
            zone = (
                ""
                if mark.get("tz") is None
                else " with a zone"
                if mark["tz"]
                else " without a zone"
            )
            yield f"{shown(value)} is not a {reads}{zone}"
    elif reads == "decimal key":
        if not _takes(_decimal_key, {value: 0}):
            yield f"{shown(value)} is not a decimal"
    elif reads == "base64":
        yield from _base64_problems(mark, value)
    elif reads == "base64url":
        if not _is_base64url(value):
            yield f"{shown(value)} is not base64"
    elif reads == "zone":
        yield from _form_problems(str(schema.get("format")), value, strict)
        if _has_zone(value) is not mark.get("tz"):
            yield f"{shown(value)} is a {schema.get('format')} {'without' if mark.get('tz') else 'with'} a zone"
    else:
        yield from _form_problems(str(schema.get("format")), value, strict)
        if schema.get("contentEncoding") == "base64" and _base64_size(value) is None:
            yield f"{shown(value)} is not base64"


def custom_problems(mark: Mark, value: Any) -> Iterator[str]:
    """What a registered type has against a value, if it is registered here; else the receiver decides."""
    convert = _converter(mark) if mark.get("reads") == "custom" else None
    if convert is None:
        return
    try:
        convert(value)
    except Exception as error:
        yield f"not a {mark.get('name')}: {error}"


def _converter(mark: Mark) -> Callable[[Any], Any] | None:
    from perdure.model.codec.custom import (
        custom_by_name,
    )  # it is above us, and has been imported where it counts

    custom = custom_by_name.get(str(mark.get("name")))
    return None if custom is None else custom.from_json


def stands_for_number(mark: Mark) -> bool:
    """Whether a text is read as a number, which is of the form `as`."""
    return mark.get("reads") in _number_texts


def text_number(mark: Mark, text: str) -> int | float | None:
    """The number that a text is read as; None if it is none."""
    if len(text) > _long_key:
        return None
    if mark.get("reads") == "decimal text":
        return _decimal_number(mark, text)
    is_whole = mark.get("reads") == "integer key"
    if re.fullmatch(INT_KEY if is_whole else FLOAT_KEY, text) is None:
        return None
    found = int(text) if is_whole else float(text)
    return found if math.isfinite(found) else None


def _decimal_number(mark: Mark, text: str) -> int | float | None:
    try:
        found = Decimal(text)
        if not found.is_finite() or not has_digits(mark, found):
            return None
        return int(found) if found == found.to_integral_value() else float(found)
    except (InvalidOperation, OverflowError):
        return None


def has_digits(mark: Mark, number: Decimal) -> bool:
    """Whether a number has no more digits than pydantic is to take."""
    most, places = mark.get("digits"), mark.get("places")
    if most is None and places is None:
        return True
    _, digits, exponent = number.normalize().as_tuple()
    assert isinstance(exponent, int)  # of a finite number
    behind = max(-exponent, 0)
    whole = max(len(digits) + exponent, 0)
    if places is not None and behind > places:
        return False
    return most is None or (whole + behind <= most and whole <= most - (places or 0))


# --- as msgspec reads ---

_by_msgspec: Final[dict[str, Any]] = {
    "date-time": datetime,
    "time": time,
    "date": date,
    "duration": timedelta,
    "uuid": UUID,
    "decimal": Decimal,
}
_decoders: Final = {
    (reads, tz): msgspec.json.Decoder(hint if tz is None else Annotated[hint, Meta(tz=tz)])
    for reads, hint in _by_msgspec.items()
    for tz in ((None, True, False) if reads in ("date-time", "time") else (None,))
}
_number_texts: Final = ("integer key", "number key", "decimal text")
_known: Final = {
    *(*_by_msgspec, *_number_texts),
    *("base64", "base64url", "set", "number", "decimal key", "decimal number", "zone"),
}


def rewritten(mark: Mark, value: str) -> str:
    """A text that fits, as msgspec would write what it reads."""
    if mark.get("reads") not in _by_msgspec:
        return value
    decoder = _decoders[mark["reads"], mark.get("tz")]
    written: str = msgspec.to_builtins(decoder.decode(msgspec.json.encode(value)))
    return written


# As a key it is written as a number is, and nothing else.
_decimal_key: Final = msgspec.json.Decoder(dict[Decimal, int])


def _msgspec_reads(reads: str, tz: Any, value: str) -> bool:
    return _takes(_decoders[reads, tz if reads in ("date-time", "time") else None], value)


def _takes(decoder: msgspec.json.Decoder[Any], value: Any) -> bool:
    try:
        decoder.decode(msgspec.json.encode(value))
    except (ValueError, OverflowError):
        return False
    return True


_base64: Final = re.compile(r"[A-Za-z0-9+/]*+={0,2}")


def _base64_size(value: str) -> int | None:
    """How many bytes it stands for."""
    if len(value) % 4 or _base64.fullmatch(value) is None:
        return None
    return len(value) // 4 * 3 - value.count("=")


def _base64_problems(mark: Mark, value: str) -> Iterator[str]:
    size = _base64_size(value)
    least, most = mark.get("min", 0), mark.get("max")
    if size is None:
        yield f"{shown(value)} is not base64"
    elif size < least:
        yield f"{size} bytes, at least {least} wanted"
    elif most is not None and size > most:
        yield f"{size} bytes, at most {most} allowed"


# --- without a mark ---


def _form_problems(format: str, value: str, strict: bool) -> Iterator[str]:
    fits = (_strictly.get(format) if strict else None) or _loosely.get(format)
    if fits is not None and not fits(value):
        yield f"{shown(value)} is not a {format}"


def _matches(form: str) -> Callable[[str], bool]:
    compiled = re.compile(form)
    return lambda value: compiled.fullmatch(value) is not None


def _is_address(*kinds: Callable[[str], Any]) -> Callable[[str], bool]:
    def fits(value: str) -> bool:
        for kind in kinds:
            try:
                kind(value)
            except ValueError:
                continue
            return True
        return False

    return fits


def _has(character: str) -> Callable[[str], bool]:
    return lambda value: character in value


_uuids: Final = ("uuid", "uuid1", "uuid3", "uuid4", "uuid5", "uuid6", "uuid7", "uuid8")
_uuid: Final = r"(urn:uuid:)?\{?[0-9A-Fa-f]{8}(-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}\}?"
# Loose on purpose, and possessive where a text may be long.
_forms: Final = {
    "date-time": r"\d{4}-\d\d-\d\d([Tt _]\d\d:?\d\d.{0,40})?",
    "date": r"\d{4}-\d\d-\d\d([Tt ].{0,40})?",
    "time": r"\d\d:\d\d.{0,40}",
    "duration": r"[+-]?[Pp][0-9DTHMSWYdthmswy.,+-]{1,80}",
    "decimal": r"[+-]?(?:[0-9_]++\.?[0-9_]*+|\.[0-9_]++)(?:[eE][+-]?[0-9]++)?",
    **{name: _uuid for name in _uuids},
}
_loosely: Final[dict[str, Callable[[str], bool]]] = {
    **{name: _matches(form) for name, form in _forms.items()},
    "email": _has("@"),
    "uri": _has(":"),
    "ipv4": _is_address(ipaddress.IPv4Address),
    "ipv6": _is_address(ipaddress.IPv6Address),
    "ipvanyaddress": _is_address(ipaddress.IPv4Address, ipaddress.IPv6Address),
}

_zone: Final = r"(?P<zone>[Zz]|[+-][0-9]{2}:?[0-9]{2})"
_clock: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(:(?P<second>[0-9]{2})(\.[0-9]{1,6})?)?"
_day: Final = r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
_date_time: Final = re.compile(rf"{_day}([Tt _]{_clock}{_zone}?)?")
_time: Final = re.compile(rf"{_clock}{_zone}?")
_parts: Final = ("years", "months", "weeks", "days", "hours", "minutes", "seconds")
_duration: Final = re.compile(
    r"[+-]?P(?=[0-9T])((?P<years>[0-9]{1,9})Y)?((?P<months>[0-9]{1,9})M)?((?P<weeks>[0-9]{1,9})W)?"
    r"((?P<days>[0-9]{1,9})D)?"
    r"(T(?=[0-9])((?P<hours>[0-9]{1,9})H)?((?P<minutes>[0-9]{1,9})M)?((?P<seconds>[0-9]{1,9})(\.[0-9]{1,6})?S)?)?"
)
_days_of: Final = {"years": 365.0, "months": 30.0, "weeks": 7.0, "days": 1.0} | {
    "hours": 1 / 24,
    "minutes": 1 / 1440,
    "seconds": 1 / 86400,
}
_days_max: Final = 999_999_990


def _is_date(value: str) -> bool:
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return len(value) == 10


def _is_clock(found: re.Match[str]) -> bool:
    if found["hour"] is not None:
        if int(found["hour"]) > 23 or int(found["minute"]) > 59 or int(found["second"] or 0) > 59:
            return False
    zone = found["zone"]
    return zone is None or len(zone) == 1 or (int(zone[1:3]) < 24 and int(zone[-2:]) < 60)


def _is_date_time(value: str) -> bool:
    found = _date_time.fullmatch(value)
    return found is not None and _is_date(found["day"]) and _is_clock(found)


def _is_time(value: str) -> bool:
    found = _time.fullmatch(value)
    return found is not None and _is_clock(found)


def _has_zone(value: str) -> bool:
    """Whether a time, or a date with one, ends with a zone."""
    return re.search(r":[0-9.]+([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$", value[-40:]) is not None


def _is_duration(value: str) -> bool:
    found = _duration.fullmatch(value)
    if found is None:
        return False
    return sum(int(found[one] or 0) * _days_of[one] for one in _parts) <= _days_max


def _is_decimal(value: str) -> bool:
    try:
        return len(value) <= _long_key and Decimal(value).is_finite()
    except InvalidOperation:
        return False


def _is_uuid(version: str) -> Callable[[str], bool]:
    whole = r"[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
    looks = _matches(rf"(urn:uuid:)?{whole}|\{{{whole}\}}|[0-9A-Fa-f]{{32}}")
    return lambda value: looks(value) and version in ("", str(UUID(value).version))


# Possessive: each part has one way to match.
_is_base64url: Final = _matches(
    r"(?:[A-Za-z0-9_-]{4})*+(?:[A-Za-z0-9_-][AQgw]==|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]=)?"
)
_strictly: Final[dict[str, Callable[[str], bool]]] = {
    "date": _is_date,
    "date-time": _is_date_time,
    "time": _is_time,
    "duration": _is_duration,
    "decimal": _is_decimal,
    "email": _matches(r"[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*@([A-Za-z0-9-]+\.)+[A-Za-z]{2,}"),
    "uri": _matches(r"[A-Za-z][A-Za-z0-9+.-]*:(//[A-Za-z0-9._~@:\[\]-]+)?([/?#].*|[^/].*)?"),
    **{name: _is_uuid(name.removeprefix("uuid")) for name in _uuids},
}
