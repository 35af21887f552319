"""Looking into values of any type: what they hold, where two differ, where a number is unsound.

Used on the value that went in and the one that came back, so that what would change in storage is
refused with its place and with advice. Never changes the values it looks at, never trusts their
`==` not to raise, and never walks deeper than payloads may nest: a value may hold itself.
"""

import dataclasses
import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from perdure.model.codec.errors import BadPayload, Place, Unencodable, place_text
from perdure.model.limits import (
    BadValue,
    codecs_kept_max,
    int_max,
    int_min,
    payload_depth_max,
    shown,
)


def _children(value: Any) -> Iterator[tuple[str | int, Any]]:
    """What a value holds, by place; nothing for a leaf."""
    if isinstance(value, dict):
        return ((_key_text(key), child) for key, child in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return iter(enumerate(value))
    return iter(_fields(value).items())


def _key_text(key: Any) -> str:
    return key if isinstance(key, str) else str(key)


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a Struct, dataclass or pydantic model; none for anything else."""
    if hasattr(type(value), "__pydantic_fields__"):
        return dict(vars(value)) | (getattr(value, "__pydantic_extra__", None) or {})
    return {name: getattr(value, name) for name in field_names(type(value)) if hasattr(value, name)}


def field_names(cls: type) -> tuple[str, ...]:
    names = _kept_names.get(cls)
    if names is None:
        if len(_kept_names) >= codecs_kept_max:
            _kept_names.clear()
        names = _kept_names[cls] = _find_field_names(cls)
    return names


_kept_names: Final[dict[type, tuple[str, ...]]] = {}


def _find_field_names(cls: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(cls):
        return tuple(one.name for one in dataclasses.fields(cls))
    return tuple(getattr(cls, "__struct_fields__", ()))


# ------------------------------------------------------------------------------ comparing


def equal(value: Any, back: Any) -> bool:
    try:
        return bool(value == back)
    except Exception:
        return False


def refuse_difference(value: Any, back: Any) -> None:
    refuse_unsound(value)
    if found := _first_difference(value, back):
        raise Unencodable(place_text(found[0]), found[1])


_identity: Final[Any] = object.__eq__


def _first_difference(value: Any, back: Any, place: Place = ()) -> tuple[Place, str] | None:
    """Where, and how, what came back is not what went in; None if only equality is not defined."""
    if equal(value, back) or len(place) > payload_depth_max:
        return None
    if type(value) is not type(back) and not _alike(value, back):
        return place, _retyped(value, back)
    if isinstance(value, dict):
        if lost := [key for key in value if key not in back]:
            return place, f"the key {shown(lost[0])} would be lost: the type has no such key"
    elif isinstance(value, list | tuple) and len(value) != len(back):
        return place, f"{len(value)} items come back as {len(back)}"
    if isinstance(value, dict | list | tuple) or _fields(value):
        return _difference_inside(value, back, place)
    # Members of a set have no places to compare by; if they have equality, the sets do differ.
    leaves = value if isinstance(value, set | frozenset) else (value,)
    if any(type(leaf).__eq__ is _identity for leaf in leaves):
        return None
    return place, f"{shown(value)} comes back as {shown(back)}"


def _difference_inside(value: Any, back: Any, place: Place) -> tuple[Place, str] | None:
    pairs: list[tuple[str | int, Any, Any]]
    if isinstance(value, dict):
        pairs = [(_key_text(key), value[key], back[key]) for key in value]
    else:
        others = dict(_children(back))
        pairs = [(part, child, others.get(part)) for part, child in _children(value)]
    for part, child, other in pairs:
        if found := _first_difference(child, other, (*place, part)):
            return found
    return None


def _alike(value: Any, back: Any) -> bool:
    # A tuple fits `Sequence`, which msgspec gives back as a list. A dict's or list's subclass is
    # its data.
    kinds: tuple[tuple[type, type], ...] = ((list, list), (tuple, list), (dict, dict))
    return any(isinstance(value, kind) and type(back) is other for kind, other in kinds)


def _retyped(value: Any, back: Any) -> str:
    kind, other = type(value).__name__, type(back).__name__
    return f"a {kind} comes back as {other}: annotate this place with {kind}, or give a {other}"


# ------------------------------------------------------------------------------ numbers


# Leaves that hold no number; most of any payload, so the walk below passes them first.
never_numbers: Final = frozenset(
    {str, bool, type(None), bytes, datetime, date, time, timedelta, UUID}
)


def refuse_unsound(value: Any) -> None:
    if found := unsound_number(value):
        raise Unencodable(place_text(found[0]), found[1])


def unsound_number(value: Any, place: Place = ()) -> tuple[Place, str] | None:
    """Where a value holds NaN, an infinity or an integer beyond 64 bits, and what to do."""
    if isinstance(value, float):
        return None if math.isfinite(value) else (place, not_finite(value))
    if isinstance(value, int):
        return None if int_min <= value <= int_max else (place, _too_wide(value))
    if isinstance(value, Decimal):
        return None if value.is_finite() else (place, not_finite(value))
    if len(place) > payload_depth_max:
        return None
    if isinstance(value, dict) and (found := unsound_number(list(value), place)):
        return found
    for part, child in _children(value):
        if type(child) not in never_numbers:
            if found := unsound_number(child, (*place, part)):
                return found
    return None


def not_finite(value: float | Decimal) -> str:
    return f"{value} is not a JSON number; use None, or a str"


def _too_wide(value: int) -> str:
    return f"{shown(value)} does not fit 64 bits; store it as a str"


# ------------------------------------------------------------------------------ refusing


def refusal(value: Any, error: Exception) -> Unencodable:
    """The reason, in our words, of an exception met while encoding a value."""
    if isinstance(error, Unencodable):
        return error
    # The text told only that there is such a number; the value tells where.
    if isinstance(error, BadValue | BadPayload) and (found := unsound_number(value)):
        return Unencodable(place_text(found[0]), found[1])
    if isinstance(error, RecursionError):
        return Unencodable(
            "$", f"nests deeper than {payload_depth_max} (payload_depth_max), or holds itself"
        )
    if isinstance(error, UnicodeEncodeError):
        return Unencodable("$", f"{shown(error.object)} holds a lone surrogate, which is not text")
    if isinstance(error, BadPayload):
        place, _, reason = error.errors[0].removeprefix("at ").partition(": ")
        return Unencodable(place, reason)
    return Unencodable("$", str(error) or type(error).__name__)
