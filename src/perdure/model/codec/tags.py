"""How untyped payloads spell the leaves and groups that JSON lacks: the names, and both directions.

This is a stored format, `{"$pd": "dt", "v": "2026-01-01T00:00:00"}`: a name must never change its
meaning or go away, for a database may hold it, and each new one is taken from the names that users
may register. Readers get data from outside; what they cannot read they must refuse, never repair.
"""

import base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from perdure.model.codec.values import not_finite

T = TypeVar("T")
tag_key: Final = "$pd"


def _expect(kind: type[T], plain: Any) -> T:
    if type(plain) is not kind:
        raise ValueError(f"expected {kind.__name__}, got {type(plain).__name__}")
    return plain


def _from_decimal(plain: Any) -> Decimal:
    value = Decimal(_expect(str, plain))
    if not value.is_finite():
        raise ValueError("not a finite number")
    return value


def _to_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError(not_finite(value))
    return str(value)


# Leaves by exact type: a datetime is also a date, so isinstance would choose wrongly.
leaf_tags: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    datetime: ("dt", datetime.isoformat),
    date: ("date", date.isoformat),
    time: ("time", time.isoformat),
    timedelta: ("td", msgspec.to_builtins),
    Decimal: ("dec", _to_decimal),
    UUID: ("uuid", str),
    bytes: ("b64", lambda value: base64.b64encode(value).decode()),
}
group_tags: Final[dict[type, str]] = {tuple: "tuple", set: "set", frozenset: "fset"}
# "map" is a plain dict that happens to have the tag key itself.
tag_readers: Final[dict[str, Callable[[Any], Any]]] = {
    "dt": lambda plain: datetime.fromisoformat(_expect(str, plain)),
    "date": lambda plain: date.fromisoformat(_expect(str, plain)),
    "time": lambda plain: time.fromisoformat(_expect(str, plain)),
    "td": lambda plain: msgspec.convert(_expect(str, plain), timedelta),
    "dec": _from_decimal,
    "uuid": lambda plain: UUID(_expect(str, plain)),
    "b64": lambda plain: base64.b64decode(_expect(str, plain), validate=True),
    "tuple": lambda plain: tuple(_expect(list, plain)),
    "set": lambda plain: set(_expect(list, plain)),
    "fset": lambda plain: frozenset(_expect(list, plain)),
    "map": lambda plain: _expect(dict, plain),
}
