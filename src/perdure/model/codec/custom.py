"""The closed table of registered leaf types, and the hooks by which msgspec reaches it.

Beside the tags of `tags.py`, the only way from a name found in data to code: to a converter that
this process has registered, never to a module or class looked up by that name. Entries come from
`register.py` alone. A hook gets what msgspec does not know; what is not in the table, and not a
plain leaf's subclass, it must refuse, never guess.
"""

import dataclasses
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Final


@dataclasses.dataclass(frozen=True)
class CustomType:
    """A leaf with a stable name, which is all that data ever says about it."""

    name: str
    cls: type
    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]


custom_by_name: Final[dict[str, CustomType]] = {}
custom_by_class: Final[dict[type, CustomType]] = {}


def custom_of(cls: Any) -> CustomType | None:
    # By base classes too: a Path is in truth a PosixPath.
    for base in getattr(cls, "__mro__", ()):
        if (custom := custom_by_class.get(base)) is not None:
            return custom
    return None


def to_plain_hook(value: Any) -> Any:
    """For msgspec, on a type it does not know: a registered leaf, or a subclass of a plain one."""
    custom = custom_of(type(value))
    return custom.to_json(value) if custom else _as_base(value)


def _as_base(value: Any) -> Any:
    # numpy.float64 is a float, pendulum's DateTime a datetime; their plain form compares equal.
    if isinstance(value, datetime):
        return datetime.combine(value.date(), value.timetz())
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(
        f"a {type(value).__name__} is not JSON; annotate it, or register_type() its class"
    )


def from_plain_hook(cls: type, plain: Any) -> Any:
    custom = custom_of(cls)
    if custom is None:
        raise ValueError(f"{cls.__name__} is not registered")
    try:
        return custom.from_json(plain)
    except Exception as error:
        # msgspec adds the place to a ValueError only.
        raise ValueError(f"not a {custom.name}: {error}") from error
