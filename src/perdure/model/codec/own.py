"""Values by their own classes, for a reader whose type is not known here: what a run publishes, what a person decides.

Plain JSON is itself; lists, tuples, sets and dicts are looked into; an instance of a class that a codec knows is as
that class says. No tags: a reader with a type gets the value back, one without gets plain JSON. So it must not be used
where a value has to come back as it was for whoever reads it.
"""

from typing import Any

import msgspec

from perdure.model.codec.choose import codec_for
from perdure.model.codec.errors import BadHint, Place, Unencodable, place_text
from perdure.model.codec.text import plain_text, read_json, write_json
from perdure.model.limits import BadValue, check_payload


def own_text(value: Any) -> str:
    """The value as JSON text; raises `Unencodable`."""
    try:
        text = bytes(_own(value, ()))
        check_payload(text)
        return text.decode()
    except BadValue as over:
        raise Unencodable("$", str(over)) from None
    except RecursionError:
        raise Unencodable("$", "is nested too deeply") from None


def _own(value: Any, place: Place) -> msgspec.Raw:
    text = plain_text(value)
    if text is not None:
        return msgspec.Raw(text)
    kind = type(value)
    if kind is dict:
        return msgspec.Raw(write_json(_fields(value, place)))
    if kind in (list, tuple, set, frozenset):
        parts = [_own(one, (*place, index)) for index, one in enumerate(value)]
        ordered = parts if kind in (list, tuple) else sorted(parts, key=bytes)
        return msgspec.Raw(write_json(ordered))
    return msgspec.Raw(_of_class(value, place).encode())


def _fields(value: dict[Any, Any], place: Place) -> dict[str, msgspec.Raw]:
    found: dict[str, msgspec.Raw] = {}
    for key, one in value.items():
        name = _key(key, place)
        if name in found:
            raise Unencodable(place_text(place), f"two keys are {name!r} as a text")
        found[name] = _own(one, (*place, name))
    return found


def _key(key: Any, place: Place) -> str:
    """A text; or a number, a date or an enum as a key, as a reader with its type takes it."""
    plain = read_json(_of_class(key, place))
    if isinstance(plain, str):
        return plain
    if isinstance(plain, int | float) and not isinstance(plain, bool):
        return str(plain)
    reason = f"the key {key!r} is a {type(key).__name__}; JSON keys are texts: convert it"
    raise Unencodable(place_text(place), reason)


def _of_class(value: Any, place: Place) -> str:
    try:
        return codec_for(type(value)).encode(value)
    except BadHint as error:
        raise Unencodable(place_text(place), error.reason) from error
    except Unencodable as error:
        raise Unencodable(place_text(place) + error.place[1:], error.reason) from error
