"""Writing canonical JSON: equal values are equal texts, whichever process wrote them.

`write_json` is msgspec's encoder and does nearly all of it; the rest is for what msgspec cannot
order. Text must never depend on the order in which a dict or set was filled. Nothing here knows
hints, and NaN is written as null: it is for the codecs to see whether a value comes back.
"""

import dataclasses
import math
from typing import Any, Final

import msgspec

from perdure.model.codec.custom import to_plain_hook
from perdure.model.limits import check_payload, int_max, int_min, payload_bytes_max

_encoder: Final = msgspec.json.Encoder(order="deterministic", enc_hook=to_plain_hook)
write_json = _encoder.encode
read_json: Final = msgspec.json.Decoder().decode


def scalar_text(value: Any) -> str | None:
    """Text of an exact plain scalar, which comes back as itself; None for anything else."""
    kind = type(value)
    if kind is str:
        # The escaped form of a character has at most six bytes.
        return write_json(value).decode() if len(value) * 6 < payload_bytes_max else None
    if kind is int:
        return str(value) if int_min <= value <= int_max else None
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return write_json(value).decode() if math.isfinite(value) else None
    return "null" if value is None else None


def plain_text(value: Any) -> bytes | None:
    """The text of JSON builtins; None if the value is, or holds, anything else."""
    try:
        text = write_json(value)
        check_payload(text)
        return text if read_json(text) == value else None
    except (TypeError, ValueError, RecursionError):
        return None


def write_unsortable(value: Any) -> bytes:
    """Canonical text of what msgspec cannot order: dicts with keys such as UUID, sets of enums."""
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=to_plain_hook)
    return write_json(_sort_sets(value, plain))


def _sort_sets(value: Any, plain: Any) -> Any:
    """`plain` with each set's list sorted by text. Both iterate a set in the same order."""
    if isinstance(value, set | frozenset):
        return sorted(map(_sort_sets, value, plain), key=write_json)
    if isinstance(value, dict):
        return dict(zip(plain, map(_sort_sets, value.values(), plain.values()), strict=True))
    if isinstance(value, list | tuple):
        return list(map(_sort_sets, value, plain))
    if isinstance(value, msgspec.Struct):
        names = [(field.name, field.encode_name) for field in msgspec.structs.fields(value)]
        return _sort_sets_of_fields(value, plain, names)
    if dataclasses.is_dataclass(value):
        names = [(field.name, field.name) for field in dataclasses.fields(value)]
        return _sort_sets_of_fields(value, plain, names)
    return plain


def _sort_sets_of_fields(value: Any, plain: Any, names: list[tuple[str, str]]) -> Any:
    if isinstance(plain, list):
        # An array-like Struct; a tag, if it has one, stands in front.
        tags = len(plain) - len(names)
        fields = (getattr(value, name) for name, _ in names)
        return plain[:tags] + list(map(_sort_sets, fields, plain[tags:]))
    for name, encoded_name in names:
        if encoded_name in plain:
            plain[encoded_name] = _sort_sets(getattr(value, name), plain[encoded_name])
    return plain
