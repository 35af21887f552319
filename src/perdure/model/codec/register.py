"""`register_type`: the user's way to make a class of theirs a leaf of payloads.

It stands above `choose.py`, because a codec chosen before may be another now, and all are
forgotten. It must never let a name mean two things: names are stored with the values.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import inspect as hints

from perdure.model.codec.choose import kept_codec
from perdure.model.codec.custom import CustomType, custom_by_class, custom_by_name
from perdure.model.codec.tags import tag_readers
from perdure.model.limits import BadValue, check_name, custom_types_max

T = TypeVar("T")


def register_type(
    name: str, cls: type[T], to_json: Callable[[T], Any], from_json: Callable[[Any], T]
) -> None:
    """Let `cls` be a leaf of payloads. `to_json` gives JSON builtins, `from_json` takes them back.

    The name is stored with untyped values: choose it once and keep it.
    """
    check_name("custom type", name)
    known = custom_by_name.get(name)
    if name in tag_readers or (known is not None and known.cls is not cls):
        raise BadValue("custom type name", name, "is taken; choose another")
    if len(custom_by_name) >= custom_types_max:
        raise BadValue(
            "custom type", name, f"is one too many; at most {custom_types_max} (custom_types_max)"
        )
    if not isinstance(hints.type_info(cls), hints.CustomType):
        raise BadValue("custom type", cls, "has a JSON form already; use it as it is")
    custom = CustomType(name, cls, to_json, from_json)
    custom_by_name[name] = custom_by_class[cls] = custom
    kept_codec.cache_clear()
