"""The codec of payloads without a type: no hint, `Any`, or a bare dict or list.

Plain JSON goes straight through; what JSON lacks is written with a tag (`tags.py`, `custom.py`),
and whatever has no tag is refused, with the advice to annotate it. A dataclass or model must never
become a dict in passing, and data that looks like a tag must come back as the data it was.
"""

from collections.abc import Mapping
from typing import Any

from perdure.model.codec.base import Codec
from perdure.model.codec.custom import custom_by_name, custom_of
from perdure.model.codec.errors import BadPayload, Place, Unencodable, place_text, told
from perdure.model.codec.tags import group_tags, leaf_tags, tag_key, tag_readers
from perdure.model.codec.text import read_json, scalar_text, write_json
from perdure.model.codec.values import equal, refusal, refuse_difference, unsound_number
from perdure.model.limits import check_payload, payload_depth_max, shown


class UntypedCodec(Codec):
    """Plain JSON, with tags such as `{"$pd": "dt", "v": …}` for the leaves that JSON lacks.

    `container` is dict or list for a hint that asks for just that.
    """

    def __init__(self, container: type | None) -> None:
        self._container = container

    def schema(self) -> dict[str, Any]:
        kinds: Mapping[type | None, dict[str, Any]] = {
            dict: {"type": "object"},
            list: {"type": "array"},
        }
        return dict(kinds.get(self._container, {}))

    def roundtrip(self, value: Any) -> tuple[str, Any]:
        if self._container is not None and not isinstance(value, self._container):
            raise Unencodable("$", f"a {type(value).__name__}, not a {self._container.__name__}")
        try:
            text = scalar_text(value)
            if text is not None:
                return text, value
            return _plain_roundtrip(value) or self._tagged_roundtrip(value)
        except Exception as error:
            raise refusal(value, error) from error

    def _tagged_roundtrip(self, value: Any) -> tuple[str, Any]:
        raw = write_json(_tagged(value, ()))
        check_payload(raw)
        back = self._parse(raw)
        if not equal(value, back):
            refuse_difference(value, back)
        return raw.decode(), back

    def _parse(self, raw: bytes) -> Any:
        try:
            value = read_json(raw)
        except Exception as error:
            raise BadPayload([told(error)]) from error
        # The key may also be written with an escape, as \u0024pd.
        if b"$pd" in raw or b"\\u" in raw:
            value = _untagged(value, ())
        if self._container is not None and not isinstance(value, self._container):
            raise BadPayload(
                [f"at $: expected {self._container.__name__}, got {type(value).__name__}"]
            )
        return value


def _plain_roundtrip(value: Any) -> tuple[str, Any] | None:
    """The quick road of plain JSON: whatever comes back equal needed no tag."""
    try:
        raw = write_json(value)
    except TypeError:
        return None
    check_payload(raw)
    if b"$pd" in raw:
        return None
    back = read_json(raw)
    return (raw.decode(), back) if equal(value, back) else None


def _tagged(value: Any, place: Place) -> Any:
    """The value as JSON builtins; what JSON lacks becomes a tag, what nobody knows is refused."""
    if len(place) > payload_depth_max:
        raise RecursionError
    kind = type(value)
    if kind in (str, bool, type(None)):
        return value
    if found := (isinstance(value, int | float) and unsound_number(value)):
        raise Unencodable(place_text(place), found[1])
    if isinstance(value, dict):
        return _tagged_dict(value, place)
    if isinstance(value, list):
        return [_tagged(child, (*place, index)) for index, child in enumerate(value)]
    if kind in group_tags:
        children = [_tagged(child, (*place, index)) for index, child in enumerate(value)]
        return _tag(
            group_tags[kind], children if kind is tuple else sorted(children, key=write_json)
        )
    return value if kind in (int, float) else _tagged_leaf(value, place)


def _tag(name: str, plain: Any) -> dict[str, Any]:
    return {tag_key: name, "v": plain}


def _tagged_dict(value: dict[Any, Any], place: Place) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            kind = type(key).__name__
            advice = f"JSON keys are str: convert it, or annotate dict[{kind}, …]"
            raise Unencodable(place_text(place), f"the key {shown(key)} is a {kind}; {advice}")
    plain = {key: _tagged(child, (*place, key)) for key, child in value.items()}
    return _tag("map", plain) if tag_key in plain else plain


def _tagged_leaf(value: Any, place: Place) -> Any:
    try:
        if type(value) in leaf_tags:
            name, to_plain = leaf_tags[type(value)]
            return _tag(name, to_plain(value))
        if (custom := custom_of(type(value))) is not None:
            return _tag(custom.name, custom.to_json(value))
        plain = read_json(write_json(value))
    except UnicodeEncodeError:
        raise
    except Exception as error:
        raise Unencodable(place_text(place), str(error)) from error
    # An enum of str or a numpy float equals its plain form; a dataclass does not equal its dict.
    if equal(value, plain):
        return plain
    raise Unencodable(place_text(place), _needs_type(value))


def _needs_type(value: Any) -> str:
    kind = type(value).__name__
    lost = f"a {kind} in a place without a type would come back as plain JSON"
    return f"{lost}; annotate this place with {kind}"


def _untagged(value: Any, place: Place) -> Any:
    if isinstance(value, list):
        return [_untagged(child, (*place, index)) for index, child in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if tag_key not in value:
        return {key: _untagged(child, (*place, key)) for key, child in value.items()}
    return _read_tag(value, place)


def _read_tag(tagged: dict[str, Any], place: Place) -> Any:
    name = tagged[tag_key]
    custom = custom_by_name.get(name) if isinstance(name, str) else None
    read = custom.from_json if custom else tag_readers.get(name) if isinstance(name, str) else None
    if read is None or tagged.keys() != {tag_key, "v"}:
        known = (
            "register_type() its class in this process"
            if read is None
            else "it needs exactly '$pd' and 'v'"
        )
        raise BadPayload([f"at {place_text(place)}: unknown tag {shown(name)}; {known}"])
    plain = tagged["v"]
    if name == "map" and isinstance(plain, dict):
        # Its own keys are data, the tag key among them; only what it holds is read further.
        return {key: _untagged(child, (*place, key)) for key, child in plain.items()}
    if isinstance(plain, list) and custom is None:
        plain = _untagged(plain, place)
    try:
        return read(plain)
    except Exception as error:
        raise BadPayload([f"at {place_text(place)}: not a {name}: {error}"]) from error
