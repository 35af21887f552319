"""Codecs of typed payloads: what both engines share, and msgspec's, which has nearly all hints.

`TypedCodec` encodes, checks the text, decodes it and compares; `MsgspecCodec` adds msgspec, and
`ScalarCodec` a short cut for plain scalars. This is the hot path of every step. A short cut must
never give other text, or accept another value, than the long way would.
"""

import abc
import dataclasses
from typing import Any, Final

import msgspec

from perdure.model.codec.base import Codec
from perdure.model.codec.custom import from_plain_hook
from perdure.model.codec.errors import BadPayload, Unencodable, Unfit, first_line, told
from perdure.model.codec.marks import marked
from perdure.model.codec.text import scalar_text, write_json, write_unsortable
from perdure.model.codec.trees import check_tree
from perdure.model.codec.values import (
    equal,
    field_names,
    never_numbers,
    refusal,
    refuse_difference,
    refuse_unsound,
)
from perdure.model.limits import check_payload, int_max, int_min


class TypedCodec(Codec):
    """What both engines share: encode, check the text, decode it, and compare.

    The comparison finds NaN (msgspec writes null), a datetime in a place typed Any (it comes back
    as str), a subclass's lost fields: whatever does not come back equal is looked at closely.
    """

    # False when some class in the tree defines equality itself, and so may overlook a field.
    _trusts_equality = False
    # True when 1 may stand where 1.0 is meant: equal, but another text.
    _rewrites = False

    def roundtrip(self, value: Any) -> tuple[str, Any]:
        try:
            raw = self._write(value)
            check_payload(raw)
            back = self._read_back(raw)
        except Exception as error:
            raise self._refused(value, error) from error
        if not equal(value, back):
            refuse_difference(value, back)
        elif not self._trusts_equality and _may_hide_nan(raw):
            refuse_unsound(value)
        return (self._write(back) if self._rewrites else raw).decode(), back

    def _refused(self, value: Any, error: Exception) -> Unencodable:
        return refusal(value, error)

    @abc.abstractmethod
    def _write(self, value: Any) -> bytes: ...

    @abc.abstractmethod
    def _read_back(self, raw: bytes) -> Any: ...


def _may_hide_nan(raw: bytes) -> bool:
    return b"null" in raw or b"NaN" in raw or b"nan" in raw or b"inf" in raw or b"Inf" in raw


class MsgspecCodec(TypedCodec):
    def __init__(self, hint: Any) -> None:
        facts = check_tree(hint)
        self._trusts_equality = facts.equality_sees_all
        self._orders_itself = facts.orders_itself
        self._rewrites = facts.promotes
        self._completes = facts.has_defaults
        self._read = msgspec.json.Decoder(hint, dec_hook=from_plain_hook).decode
        self._schema = _msgspec_schema(hint)

    def schema(self) -> dict[str, Any]:
        return self._schema

    def _write(self, value: Any) -> bytes:
        if self._orders_itself:
            try:
                return write_json(value)
            except TypeError:
                # A set of naive and aware datetimes, say: sortable by its type, but not in fact.
                return write_unsortable(value)
        return write_unsortable(value)

    def _parse(self, raw: bytes) -> Any:
        value = self._read_back(raw)
        if self._completes:
            _complete(value)
        return value

    def _read_back(self, raw: bytes) -> Any:
        try:
            return self._read(raw)
        except Exception as error:
            raise BadPayload([told(error)]) from error


def _msgspec_schema(hint: Any) -> dict[str, Any]:
    try:
        # A registered leaf may be any JSON; msgspec wants at least a title for it.
        return marked(
            hint, msgspec.json.schema(hint, schema_hook=lambda cls: {"title": cls.__name__})
        )
    except Exception as error:
        raise Unfit(f"msgspec cannot describe this type: {first_line(error)}") from error


def _complete(value: Any) -> None:
    """Give every dataclass in a decoded value the fields that its text left out.

    msgspec leaves plain defaults to the class, and later writes only what the instance itself has:
    equal values would have different texts, and one would follow a default that changes.
    """
    kind = type(value)
    if kind in never_numbers or kind is int or kind is float:
        return
    if kind is list or kind is tuple:
        children = value
    elif kind is dict:
        children = value.values()
    else:
        children = _complete_fields(value, field_names(kind))
    for child in children:
        _complete(child)


def _complete_fields(value: Any, names: tuple[str, ...]) -> list[Any]:
    children = [getattr(value, name, None) for name in names]
    own = getattr(value, "__dict__", None)
    if own is not None and len(own) < len(names) and dataclasses.is_dataclass(value):
        # Into the dict itself: the class may be frozen.
        own.update((name, getattr(value, name)) for name in names if hasattr(value, name))
    return children


scalar_hints: Final = frozenset({int, str, bool, float, None, type(None)})


class ScalarCodec(MsgspecCodec):
    """int, str, bool, float or None: most step results, so they skip the decode."""

    def __init__(self, hint: Any) -> None:
        super().__init__(hint)
        self._kind: type = type(None) if hint is None else hint

    def roundtrip(self, value: Any) -> tuple[str, Any]:
        kind = type(value)
        if kind is self._kind:
            if kind is int and int_min <= value <= int_max:
                return str(value), value
            try:
                text = scalar_text(value)
            except UnicodeEncodeError as error:
                raise refusal(value, error) from None
            if text is not None:
                return text, value
        return super().roundtrip(value)
