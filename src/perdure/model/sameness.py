"""Whether two JSON texts are the same payload, and a payload as the codec of its type would have stored it.

Who has the code stores what its codec writes: fields in their order, defaults filled in, 1.0 for 1 where a float is
meant. Who has a name and JSON may say the same in other words. So what came by name is `completed` by the schema of
the catalogue before it is stored; and where the same id or key meets another text, the two are compared as values:
the order of keys does not count, 1 is 1.0 and true is not 1, and with a schema what was left out is filled in.
"""

from typing import Any, Final

import msgspec

from perdure.model.forms import is_set, mark_of, rewritten
from perdure.model.keys import digest
from perdure.model.limits import BadValue, check_payload
from perdure.model.schema import Chooser, Schema, whole

_depth_max: Final = 300
_encode: Final = msgspec.json.Encoder().encode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


def completed(schema: dict[str, Any], text: str) -> str:
    """A text that fits the schema, as the type's codec would have written it, as far as the schema tells."""
    try:
        made = _encode(_Shaping(schema, drops=False).shape(schema, msgspec.json.decode(text), 0))
        check_payload(made)
        return made.decode()
    except (ValueError, RecursionError, BadValue):
        return text


def plain(text: str, schema: dict[str, Any] | None = None) -> str:
    """The same text for all that are the same value; itself, if it is no JSON."""
    try:
        value = msgspec.json.decode(text)
        if schema is not None:
            value = _Shaping(schema, drops=True).shape(schema, value, 0)
        return _encode_sorted(whole(value)).decode()
    except (ValueError, RecursionError):
        return text


def is_same(text: str, other: str, schema: dict[str, Any] | None = None) -> bool:
    """Whether two payloads are the same value; of a type with this schema, if it is known."""
    if text == other or plain(text) == plain(other):
        return True
    return schema is not None and plain(text, schema) == plain(other, schema)


def used_for(payload: str, *others: str, schema: dict[str, Any] | None = None) -> str:
    """The fingerprint of what a key was used for."""
    return digest(plain(payload, schema), *others)


def was_used_for(
    known: str, payload: str, *others: str, schema: dict[str, Any] | None = None
) -> bool:
    """Whether that is what a key was used for. Once it was the fingerprint of the very text."""
    return known in (digest(payload, *others), used_for(payload, *others, schema=schema))


class _Shaping:
    """A walk over a value and its schema side by side."""

    def __init__(self, root: dict[str, Any], drops: bool) -> None:
        self._chooser = Chooser(root)
        self._drops = drops  # what no field is for: a codec would not see it

    def shape(self, form: Schema, value: Any, depth: int) -> Any:
        if depth > _depth_max:
            raise RecursionError
        if not isinstance(form, dict):
            return value
        chosen = self._chooser.chosen(form, value)
        if chosen is not form:
            return self.shape(chosen, value, depth + 1)
        if isinstance(value, dict):
            return self._object(form, value, depth + 1)
        if isinstance(value, list):
            return self._array(form, value, depth + 1)
        return _leaf(form, value)

    def _object(self, form: dict[str, Any], value: dict[str, Any], depth: int) -> dict[str, Any]:
        fields, others = form.get("properties"), form.get("additionalProperties", True)
        fields = fields if isinstance(fields, dict) else {}
        made: dict[str, Any] = {}
        for name, field in fields.items():
            if name in value:
                made[name] = self.shape(field, value[name], depth)
            elif isinstance(field, dict) and "default" in field:
                made[name] = self.shape(field, field["default"], depth)
        if self._drops and fields and not {"additionalProperties", "patternProperties"} & {*form}:
            return made
        for name in sorted(value.keys() - fields.keys()):
            made[name] = self.shape(others, value[name], depth)
        return made

    def _array(self, form: dict[str, Any], value: list[Any], depth: int) -> list[Any]:
        first, others = form.get("prefixItems"), form.get("items", True)
        first = first if isinstance(first, list) else []
        made = [
            self.shape(first[nth] if nth < len(first) else others, one, depth)
            for nth, one in enumerate(value)
        ]
        for one in first[len(value) :]:
            if not isinstance(one, dict) or "default" not in one:
                break
            made.append(self.shape(one, one["default"], depth))
        if not is_set(form):
            return made
        members = {_encode_sorted(whole(one)): one for one in made}
        return sorted(members.values(), key=_encode)


def _leaf(form: dict[str, Any], value: Any) -> Any:
    if isinstance(value, str):
        return rewritten(mark_of(form), value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if form.get("type") == "number":
            return float(value)
        if mark_of(form).get("reads") == "decimal":
            return _encode(value).decode()
    return value
