"""Typed JSON for every payload: inputs, results, signals, events.

A hint goes in once, at registration, and gives a `Codec`: msgspec owns the hint, or pydantic when
its tree mentions a pydantic type (never both: mixing them corrupts bytes silently), or the tagged
codec when there is no type. All type errors surface there. Text comes out canonical, so that equal
payloads are equal texts. What would not come back the same is refused at encode, never stored: the
workflow always works with decode(encode(value)). Nothing is pickled and no class is ever looked up
by a name found in data, except in the closed table of registered leaf types.
"""

import abc
import base64
import collections.abc
import dataclasses
import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from msgspec import inspect as hints

from perdure.model.limits import (
    BadValue,
    check_name,
    check_payload,
    codecs_kept_max,
    custom_types_max,
    int_max,
    int_min,
    payload_bytes_max,
    payload_depth_max,
    payload_errors_max,
    shown,
)
from perdure.model.root import PerdureError

codec_id: Final = "json/1"
missing: Final = inspect.Parameter.empty

T = TypeVar("T")
Place = tuple[str | int, ...]


class BadHint(PerdureError, TypeError):
    """A type that payloads cannot have, found at registration: where, and what to use instead."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(f"{where}: {reason}" if where else reason)


class Unencodable(PerdureError, ValueError):
    """A value that cannot be stored, or would come back as another: the place in it, and why."""

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(f"at {place}: {reason}")


class BadPayload(PerdureError, ValueError):
    """JSON text that does not fit: each of `errors` reads "at $.field: reason"."""

    def __init__(self, errors: list[str]) -> None:
        self.errors = errors[:payload_errors_max]
        super().__init__("; ".join(self.errors))


def place_text(place: Place, root: str = "$") -> str:
    """`$.lines[3].sku`; a key that is not a plain word is quoted."""
    text = root
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if part.isidentifier() else f"[{shown(part)}]"
    return text


# ------------------------------------------------------------------------------ the codec


class Codec(abc.ABC):
    """Values of one hint to JSON text and back. Made by `codec_for`; immutable and shared."""

    id: Final = codec_id

    def encode(self, value: Any) -> str:
        """Canonical JSON text. Raises `Unencodable` if the value would not come back as it is."""
        return self.roundtrip(value)[0]

    @abc.abstractmethod
    def roundtrip(self, value: Any) -> tuple[str, Any]:
        """The text, and what decoding it gives: a fresh value, equal to the one given."""

    def decode(self, text: str | bytes) -> Any:
        """The typed value. Limits are checked before parsing. Raises `BadPayload`."""
        raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
        try:
            check_payload(raw)
        except BadValue as over:
            raise BadPayload([f"at $: {over}"]) from None
        return self._parse(raw)

    def encode_lenient(self, value: Any) -> str:
        """For senders that hold an instance of the hint, or JSON builtins as HTTP gives them."""
        try:
            return self.roundtrip(value)[0]
        except Unencodable as refused:
            text = _plain_text(value)
            if text is None:
                raise
            typed = self.decode(text)
            try:
                return self.roundtrip(typed)[0]
            except Unencodable:
                raise refused from None

    @abc.abstractmethod
    def schema(self) -> dict[str, Any]:
        """JSON Schema 2020-12; `{}` when there is no type."""

    @abc.abstractmethod
    def _parse(self, raw: bytes) -> Any: ...


def codec_for(hint: Any = Any, where: str = "") -> Codec:
    """The codec of a hint, built once. Raises `BadHint`, naming `where`."""
    try:
        return _kept_codec(hint)
    except _Unfit as unfit:
        raise BadHint(where, str(unfit)) from unfit.__cause__
    except TypeError as unhashable:
        if "unhashable" not in str(unhashable):
            raise
    try:
        return _build(hint)
    except _Unfit as unfit:
        raise BadHint(where, str(unfit)) from unfit.__cause__


class _Unfit(Exception):
    """Why a hint has no codec; `codec_for` adds where it was met."""


@functools.lru_cache(maxsize=codecs_kept_max)
def _kept_codec(hint: Any) -> Codec:
    return _build(hint)


def _build(hint: Any) -> Codec:
    if hint is typing.NoReturn or hint is typing.Never:
        hint = None
    if hint is Any or hint is missing or hint is object:
        return UntypedCodec(None)
    if (container := _open_container(hint)) is not None:
        return UntypedCodec(container)
    mentioned = _mentions(hint)
    if "pydantic" in mentioned:
        return PydanticCodec(hint)
    if "annotated_types" in mentioned:
        raise _Unfit(
            "constraints of annotated_types work in pydantic models only; use msgspec.Meta"
        )
    return ScalarCodec(hint) if any(hint is one for one in _scalars) else MsgspecCodec(hint)


def _open_container(hint: Any) -> type | None:
    """dict or list, when the hint says nothing about what is inside."""
    if hint is dict or hint is list:
        return typing.cast(type, hint)
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (dict, collections.abc.Mapping) and inside in ((str, Any), (str, object)):
        return dict
    return list if origin is list and inside in ((Any,), (object,)) else None


# ------------------------------------------------------------------------------ encoding text


def _to_plain_hook(value: Any) -> Any:
    """For msgspec, on a type it does not know: a registered leaf, or a subclass of a plain one."""
    custom = _custom_of(type(value))
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


def _from_plain_hook(cls: type, plain: Any) -> Any:
    custom = _custom_of(cls)
    if custom is None:
        raise ValueError(f"{cls.__name__} is not registered")
    try:
        return custom.from_json(plain)
    except Exception as error:
        # msgspec adds the place to a ValueError only.
        raise ValueError(f"not a {custom.name}: {error}") from error


_encoder: Final = msgspec.json.Encoder(order="deterministic", enc_hook=_to_plain_hook)
_write = _encoder.encode
_read: Final = msgspec.json.Decoder().decode


def _write_unsortable(value: Any) -> bytes:
    """Canonical text of what msgspec cannot order: dicts with keys such as UUID, sets of enums."""
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_to_plain_hook)
    return _write(_sort_sets(value, plain))


def _sort_sets(value: Any, plain: Any) -> Any:
    """`plain` with each set's list sorted by text. Both iterate a set in the same order."""
    if isinstance(value, set | frozenset):
        return sorted(map(_sort_sets, value, plain), key=_write)
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


def _plain_text(value: Any) -> bytes | None:
    """The text of JSON builtins; None if the value is, or holds, anything else."""
    try:
        text = _write(value)
        check_payload(text)
        return text if _read(text) == value else None
    except (TypeError, ValueError, RecursionError):
        return None


def _refusal(value: Any, error: Exception) -> Unencodable:
    """The reason, in our words, of an exception met while encoding a value."""
    if isinstance(error, Unencodable):
        return error
    # The text told only that there is such a number; the value tells where.
    if isinstance(error, BadValue | BadPayload) and (found := _unsound_number(value)):
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


# ------------------------------------------------------------------------------ walking values


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
    return {
        name: getattr(value, name) for name in _field_names(type(value)) if hasattr(value, name)
    }


def _field_names(cls: type) -> tuple[str, ...]:
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


# Leaves that hold no number; most of any payload, so the walk below passes them first.
_never_numbers: Final = frozenset(
    {str, bool, type(None), bytes, datetime, date, time, timedelta, UUID}
)


def _unsound_number(value: Any, place: Place = ()) -> tuple[Place, str] | None:
    """Where a value holds NaN, an infinity or an integer beyond 64 bits, and what to do."""
    if isinstance(value, float):
        return None if math.isfinite(value) else (place, _not_finite(value))
    if isinstance(value, int):
        return None if int_min <= value <= int_max else (place, _too_wide(value))
    if isinstance(value, Decimal):
        return None if value.is_finite() else (place, _not_finite(value))
    if len(place) > payload_depth_max:
        return None
    if isinstance(value, dict) and (found := _unsound_number(list(value), place)):
        return found
    for part, child in _children(value):
        if type(child) not in _never_numbers:
            if found := _unsound_number(child, (*place, part)):
                return found
    return None


def _not_finite(value: float | Decimal) -> str:
    return f"{value} is not a JSON number; use None, or a str"


def _too_wide(value: int) -> str:
    return f"{shown(value)} does not fit 64 bits; store it as a str"


_identity: Final[Any] = object.__eq__


def _first_difference(value: Any, back: Any, place: Place = ()) -> tuple[Place, str] | None:
    """Where, and how, what came back is not what went in; None if only equality is not defined."""
    if _equal(value, back) or len(place) > payload_depth_max:
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


def _equal(value: Any, back: Any) -> bool:
    try:
        return bool(value == back)
    except Exception:
        return False


# ------------------------------------------------------------------------------ scalars


_scalars: Final = frozenset({int, str, bool, float, None, type(None)})


def _scalar_text(value: Any) -> str | None:
    """Text of an exact plain scalar, which comes back as itself; None for anything else."""
    kind = type(value)
    if kind is str:
        # The escaped form of a character has at most six bytes.
        return _write(value).decode() if len(value) * 6 < payload_bytes_max else None
    if kind is int:
        return str(value) if int_min <= value <= int_max else None
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return _write(value).decode() if math.isfinite(value) else None
    return "null" if value is None else None


# ------------------------------------------------------------------------------ typed codecs


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
        if not _equal(value, back):
            _refuse_difference(value, back)
        elif not self._trusts_equality and _may_hide_nan(raw):
            _refuse_unsound(value)
        return (self._write(back) if self._rewrites else raw).decode(), back

    def _refused(self, value: Any, error: Exception) -> Unencodable:
        return _refusal(value, error)

    @abc.abstractmethod
    def _write(self, value: Any) -> bytes: ...

    @abc.abstractmethod
    def _read_back(self, raw: bytes) -> Any: ...


def _refuse_difference(value: Any, back: Any) -> None:
    _refuse_unsound(value)
    if found := _first_difference(value, back):
        raise Unencodable(place_text(found[0]), found[1])


def _refuse_unsound(value: Any) -> None:
    if found := _unsound_number(value):
        raise Unencodable(place_text(found[0]), found[1])


def _may_hide_nan(raw: bytes) -> bool:
    return b"null" in raw or b"NaN" in raw or b"nan" in raw or b"inf" in raw or b"Inf" in raw


class MsgspecCodec(TypedCodec):
    def __init__(self, hint: Any) -> None:
        facts = _check_tree(hint)
        self._trusts_equality = facts.equality_sees_all
        self._orders_itself = facts.orders_itself
        self._rewrites = facts.promotes
        self._completes = facts.has_defaults
        self._read = msgspec.json.Decoder(hint, dec_hook=_from_plain_hook).decode
        self._schema = _msgspec_schema(hint)

    def schema(self) -> dict[str, Any]:
        return self._schema

    def _write(self, value: Any) -> bytes:
        if self._orders_itself:
            try:
                return _write(value)
            except TypeError:
                # A set of naive and aware datetimes, say: sortable by its type, but not in fact.
                return _write_unsortable(value)
        return _write_unsortable(value)

    def _parse(self, raw: bytes) -> Any:
        value = self._read_back(raw)
        if self._completes:
            _complete(value)
        return value

    def _read_back(self, raw: bytes) -> Any:
        try:
            return self._read(raw)
        except Exception as error:
            raise BadPayload([_told(error)]) from error


def _msgspec_schema(hint: Any) -> dict[str, Any]:
    try:
        # A registered leaf may be any JSON; msgspec wants at least a title for it.
        return msgspec.json.schema(hint, schema_hook=lambda cls: {"title": cls.__name__})
    except Exception as error:
        raise _Unfit(f"msgspec cannot describe this type: {_first_line(error)}") from error


def _told(error: Exception) -> str:
    """A msgspec error as "at $.place: reason"."""
    text = str(error) or type(error).__name__
    reason, found, place = text.rpartition(" - at `")
    return f"at {place.rstrip('`')}: {reason}" if found else f"at $: {text}"


def _complete(value: Any) -> None:
    """Give every dataclass in a decoded value the fields that its text left out.

    msgspec leaves plain defaults to the class, and later writes only what the instance itself has:
    equal values would have different texts, and one would follow a default that changes.
    """
    kind = type(value)
    if kind in _never_numbers or kind is int or kind is float:
        return
    if kind is list or kind is tuple:
        children = value
    elif kind is dict:
        children = value.values()
    else:
        children = _complete_fields(value, _field_names(kind))
    for child in children:
        _complete(child)


def _complete_fields(value: Any, names: tuple[str, ...]) -> list[Any]:
    children = [getattr(value, name, None) for name in names]
    own = getattr(value, "__dict__", None)
    if own is not None and len(own) < len(names) and dataclasses.is_dataclass(value):
        # Into the dict itself: the class may be frozen.
        own.update((name, getattr(value, name)) for name in names if hasattr(value, name))
    return children


class ScalarCodec(MsgspecCodec):
    """int, str, bool, float or None: most step results, so they skip the decode."""

    def __init__(self, hint: Any) -> None:
        super().__init__(hint)
        self._kind: type = type(None) if hint is None else hint

    def roundtrip(self, value: Any) -> tuple[str, Any]:
        if type(value) is self._kind:
            try:
                text = _scalar_text(value)
            except UnicodeEncodeError as error:
                raise _refusal(value, error) from None
            if text is not None:
                return text, value
        return super().roundtrip(value)


class PydanticCodec(TypedCodec):
    """The whole hint is pydantic's: a model in it would not survive msgspec's hooks unharmed."""

    def __init__(self, hint: Any) -> None:
        from pydantic import TypeAdapter

        try:
            self._adapter = TypeAdapter(hint)
            self._schema = self._adapter.json_schema()
            written = self._adapter.json_schema(mode="serialization")
        except Exception as error:
            raise _Unfit(f"pydantic cannot handle this type: {_first_line(error)}") from error
        # Aliases on the wire, unless pydantic would write other names than it reads.
        self._by_alias = _property_names(self._schema) <= _property_names(written)

    def schema(self) -> dict[str, Any]:
        return self._schema

    def _write(self, value: Any) -> bytes:
        return _write(
            self._adapter.dump_python(
                value, mode="json", warnings="error", round_trip=True, by_alias=self._by_alias
            )
        )

    def _parse(self, raw: bytes) -> Any:
        return self._read_back(raw)

    def _read_back(self, raw: bytes) -> Any:
        try:
            # pydantic reads NaN and 1e400, which are not JSON; msgspec refuses them.
            _read(raw)
            value = self._adapter.validate_json(raw, by_alias=True, by_name=True)
        except Exception as error:
            raise BadPayload(_pydantic_errors(error)) from error
        lowered = raw.lower()
        if (b"nan" in lowered or b"inf" in lowered) and (found := _unsound_number(value)):
            raise BadPayload([f"at {place_text(found[0])}: {found[1]}"])
        return value

    def _refused(self, value: Any, error: Exception) -> Unencodable:
        if isinstance(error, UnicodeDecodeError):
            advice = "set ser_json_bytes='base64' and val_json_bytes='base64' in its model_config"
            return Unencodable(
                "$", f"pydantic writes bytes as UTF-8 text, and these are not: {advice}"
            )
        if type(error).__name__ == "PydanticSerializationError":
            # The first line only announces the list of warnings.
            lines = [line.strip() for line in str(error).splitlines()]
            return Unencodable("$", lines[1] if len(lines) > 1 else lines[0])
        return super()._refused(value, error)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _pydantic_errors(error: Exception) -> list[str]:
    if type(error).__name__ != "ValidationError" or not hasattr(error, "errors"):
        return [_told(error)]
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [f"at {place_text(one['loc'])}: {one['msg']}" for one in found[:payload_errors_max]]


def _property_names(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_property_names, schema))
    if not isinstance(schema, dict):
        return set()
    named = schema.get("properties")
    own = set(named) if isinstance(named, dict) else set()
    return own.union(*map(_property_names, schema.values()))


# ------------------------------------------------------------------------------ what a hint holds


_sortable_kinds: Final = (
    hints.StrType,
    hints.IntType,
    hints.FloatType,
    hints.UUIDType,
    hints.DecimalType,
    hints.DateTimeType,
    hints.DateType,
    hints.TimeType,
    hints.TimeDeltaType,
    hints.BytesType,
)
_key_kinds: Final = (*_sortable_kinds, hints.AnyType, hints.EnumType, hints.LiteralType)


@dataclasses.dataclass
class _TreeFacts:
    # No class in the tree defines `==` itself, and no number is hidden from it.
    equality_sees_all: bool = True
    # msgspec can order every set and key in the tree.
    orders_itself: bool = True
    # A dataclass in the tree has defaults.
    has_defaults: bool = False
    # An int is read as the float or Decimal that the tree asks for.
    promotes: bool = False


def _check_tree(hint: Any) -> _TreeFacts:
    """Refuse, with advice, a type that cannot travel; tell what its encoding has to mind."""
    try:
        root = hints.type_info(hint)
        msgspec.json.Decoder(hint)
    except (TypeError, ValueError, NameError, AttributeError, RecursionError) as error:
        raise _Unfit(_advice(error)) from error
    facts, seen, open_nodes = _TreeFacts(), set[int](), [root]
    while open_nodes:
        node = open_nodes.pop()
        if id(node) not in seen:
            seen.add(id(node))
            _check_node(node)
            facts.equality_sees_all &= _compares_all(node)
            facts.orders_itself &= _is_ordered(node)
            facts.has_defaults |= _has_defaults(node)
            facts.promotes |= isinstance(node, hints.FloatType | hints.DecimalType)
            open_nodes.extend(_inner_types(node))
    return facts


def _is_ordered(node: hints.Type) -> bool:
    if isinstance(node, hints.DictType):
        return isinstance(node.key_type, hints.StrType | hints.AnyType)
    if isinstance(node, hints.SetType | hints.FrozenSetType):
        # Enums have no order, and that of frozensets is partial: no error, and any result.
        return isinstance(node.item_type, _sortable_kinds)
    return True


def _has_defaults(node: hints.Type) -> bool:
    return isinstance(node, hints.DataclassType) and not all(one.required for one in node.fields)


def _check_node(node: hints.Type) -> None:
    if isinstance(node, hints.DictType):
        _check_key(node.key_type)
    if isinstance(node, hints.CustomType) and _custom_of(node.cls) is None:
        raise _Unfit(
            f"{_named(node.cls)} has no JSON form; use a dataclass, Struct, TypedDict, "
            "pydantic model or builtin, or register_type() it"
        )


def _check_key(key: hints.Type) -> None:
    for one in key.types if isinstance(key, hints.UnionType) else (key,):
        if not isinstance(one, _key_kinds):
            kind = type(one).__name__.removesuffix("Type").lower()
            raise _Unfit(f"a {kind} cannot be a key of a JSON object; use a list of pairs")


def _compares_all(node: hints.Type) -> bool:
    if isinstance(node, hints.DictType):
        # A key that is an infinity comes back as one.
        return isinstance(node.key_type, hints.StrType)
    if isinstance(node, hints.StructType):
        cls = typing.get_origin(node.cls) or node.cls
        return bool(cls.__eq__ is msgspec.Struct.__eq__)
    if not isinstance(node, hints.DataclassType):
        return not isinstance(node, hints.DecimalType)
    cls = typing.get_origin(node.cls) or node.cls
    if not dataclasses.is_dataclass(cls) or not all(one.compare for one in dataclasses.fields(cls)):
        return False
    # A generated method has no source file. Without any, nothing is equal, and all is looked at.
    code = getattr(cls.__eq__, "__code__", None)
    return code is None or code.co_filename == "<string>"


def _inner_types(node: Any) -> Iterator[hints.Type]:
    for name in node.__struct_fields__:
        inner = getattr(node, name)
        for one in inner if isinstance(inner, tuple) else (inner,):
            if isinstance(one, hints.Field):
                yield one.type
            elif isinstance(one, hints.Type):
                yield one


def _advice(error: Exception) -> str:
    if isinstance(error, NameError):
        return f"{error}; its type must be defined, at module level, when it is registered"
    text = _first_line(error)
    if "nion" in text:
        advice = "JSON cannot tell them apart: use msgspec.Struct with tag=True, or pydantic models"
        return f"{text}; {advice}"
    return text


def _named(cls: Any) -> str:
    module = getattr(cls, "__module__", "builtins")
    name = getattr(cls, "__qualname__", str(cls))
    return name if module == "builtins" else f"{module}.{name}"


def _mentions(hint: Any) -> set[str]:
    """Which of pydantic and annotated_types the tree of a hint speaks of."""
    found, seen, open_hints = set[str](), set[int](), [hint]
    while open_hints:
        one = open_hints.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if typing.get_origin(one) is typing.Annotated:
            found.update(_library(type(mark)) for mark in one.__metadata__)
        if isinstance(one, type) and _is_pydantic(one):
            found.add("pydantic")
        open_hints.extend(_hints_inside(one))
    return found


def _library(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _is_pydantic(cls: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return False
    return (
        issubclass(cls, pydantic.BaseModel)
        or "__is_pydantic_dataclass__" in vars(cls)
        or _library(cls) == "pydantic"
    )


def _hints_inside(hint: Any) -> list[Any]:
    if isinstance(hint, typing.NewType):
        return [hint.__supertype__]
    inside = list(typing.get_args(hint))
    if (origin := typing.get_origin(hint)) is not None:
        inside.append(origin)
    if isinstance(hint, type) and _has_fields(hint):
        try:
            inside.extend(typing.get_type_hints(hint, include_extras=True).values())
        except Exception:
            # The engine that gets the hint meets the same problem and tells it better.
            return inside
    return inside


def _has_fields(cls: type) -> bool:
    return (
        dataclasses.is_dataclass(cls)
        or typing.is_typeddict(cls)
        or issubclass(cls, msgspec.Struct)
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


# ------------------------------------------------------------------------------ custom leaf types


@dataclasses.dataclass(frozen=True)
class CustomType:
    """A leaf with a stable name, which is all that data ever says about it."""

    name: str
    cls: type
    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]


_custom_by_name: Final[dict[str, CustomType]] = {}
_custom_by_class: Final[dict[type, CustomType]] = {}


def register_type(
    name: str, cls: type[T], to_json: Callable[[T], Any], from_json: Callable[[Any], T]
) -> None:
    """Let `cls` be a leaf of payloads. `to_json` gives JSON builtins, `from_json` takes them back.

    The name is stored with untyped values: choose it once and keep it.
    """
    check_name("custom type", name)
    known = _custom_by_name.get(name)
    if name in _tags or (known is not None and known.cls is not cls):
        raise BadValue("custom type name", name, "is taken; choose another")
    if len(_custom_by_name) >= custom_types_max:
        raise BadValue(
            "custom type", name, f"is one too many; at most {custom_types_max} (custom_types_max)"
        )
    if not isinstance(hints.type_info(cls), hints.CustomType):
        raise BadValue("custom type", cls, "has a JSON form already; use it as it is")
    custom = CustomType(name, cls, to_json, from_json)
    _custom_by_name[name] = _custom_by_class[cls] = custom
    _kept_codec.cache_clear()


def _custom_of(cls: Any) -> CustomType | None:
    # By base classes too: a Path is in truth a PosixPath.
    for base in getattr(cls, "__mro__", ()):
        if (custom := _custom_by_class.get(base)) is not None:
            return custom
    return None


# ------------------------------------------------------------------------------ untyped values


_tag_key: Final = "$pd"


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
        raise ValueError(_not_finite(value))
    return str(value)


# Leaves by exact type: a datetime is also a date, so isinstance would choose wrongly.
_leaf_tags: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    datetime: ("dt", datetime.isoformat),
    date: ("date", date.isoformat),
    time: ("time", time.isoformat),
    timedelta: ("td", msgspec.to_builtins),
    Decimal: ("dec", _to_decimal),
    UUID: ("uuid", str),
    bytes: ("b64", lambda value: base64.b64encode(value).decode()),
}
_group_tags: Final[dict[type, str]] = {tuple: "tuple", set: "set", frozenset: "fset"}
# "map" is a plain dict that happens to have the tag key itself.
_tags: Final[dict[str, Callable[[Any], Any]]] = {
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
            text = _scalar_text(value)
            if text is not None:
                return text, value
            return _plain_roundtrip(value) or self._tagged_roundtrip(value)
        except Exception as error:
            raise _refusal(value, error) from error

    def _tagged_roundtrip(self, value: Any) -> tuple[str, Any]:
        raw = _write(_tagged(value, ()))
        check_payload(raw)
        back = self._parse(raw)
        if not _equal(value, back):
            _refuse_difference(value, back)
        return raw.decode(), back

    def _parse(self, raw: bytes) -> Any:
        try:
            value = _read(raw)
        except Exception as error:
            raise BadPayload([_told(error)]) from error
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
        raw = _write(value)
    except TypeError:
        return None
    check_payload(raw)
    if b"$pd" in raw:
        return None
    back = _read(raw)
    return (raw.decode(), back) if _equal(value, back) else None


def _tagged(value: Any, place: Place) -> Any:
    """The value as JSON builtins; what JSON lacks becomes a tag, what nobody knows is refused."""
    if len(place) > payload_depth_max:
        raise RecursionError
    kind = type(value)
    if kind in (str, bool, type(None)):
        return value
    if found := (isinstance(value, int | float) and _unsound_number(value)):
        raise Unencodable(place_text(place), found[1])
    if isinstance(value, dict):
        return _tagged_dict(value, place)
    if isinstance(value, list):
        return [_tagged(child, (*place, index)) for index, child in enumerate(value)]
    if kind in _group_tags:
        children = [_tagged(child, (*place, index)) for index, child in enumerate(value)]
        return _tag(_group_tags[kind], children if kind is tuple else sorted(children, key=_write))
    return value if kind in (int, float) else _tagged_leaf(value, place)


def _tag(name: str, plain: Any) -> dict[str, Any]:
    return {_tag_key: name, "v": plain}


def _tagged_dict(value: dict[Any, Any], place: Place) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            kind = type(key).__name__
            advice = f"JSON keys are str: convert it, or annotate dict[{kind}, …]"
            raise Unencodable(place_text(place), f"the key {shown(key)} is a {kind}; {advice}")
    plain = {key: _tagged(child, (*place, key)) for key, child in value.items()}
    return _tag("map", plain) if _tag_key in plain else plain


def _tagged_leaf(value: Any, place: Place) -> Any:
    try:
        if type(value) in _leaf_tags:
            name, to_plain = _leaf_tags[type(value)]
            return _tag(name, to_plain(value))
        if (custom := _custom_of(type(value))) is not None:
            return _tag(custom.name, custom.to_json(value))
        plain = _read(_write(value))
    except UnicodeEncodeError:
        raise
    except Exception as error:
        raise Unencodable(place_text(place), str(error)) from error
    # An enum of str or a numpy float equals its plain form; a dataclass does not equal its dict.
    if _equal(value, plain):
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
    if _tag_key not in value:
        return {key: _untagged(child, (*place, key)) for key, child in value.items()}
    return _read_tag(value, place)


def _read_tag(tagged: dict[str, Any], place: Place) -> Any:
    name = tagged[_tag_key]
    custom = _custom_by_name.get(name) if isinstance(name, str) else None
    read = custom.from_json if custom else _tags.get(name) if isinstance(name, str) else None
    if read is None or tagged.keys() != {_tag_key, "v"}:
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


# ------------------------------------------------------------------------------ arguments


@dataclasses.dataclass(frozen=True)
class Param:
    """A parameter that travels: its name, its hint (`Any` if none), its default if any."""

    name: str
    hint: Any = Any
    default: Any = missing


_read_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class ArgsCodec:
    """Positional arguments as one JSON array. Made by `args_codec`."""

    id: Final = codec_id

    def __init__(self, params: Sequence[Param], where: str) -> None:
        self.params = tuple(params)
        self.where = where
        self._codecs = [codec_for(one.hint, _of(one.name, where)) for one in params]
        self._required = sum(1 for one in params if one.default is missing)
        self._default_texts = list(map(_default_text, params, self._codecs))

    def encode(self, args: tuple[Any, ...]) -> str:
        """The text of these arguments and of the defaults of those left out."""
        return self._text([text for text, _ in self._each(args)])

    def roundtrip(self, args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """The text, and the arguments as a run will get them."""
        each = list(self._each(args))
        return self._text([text for text, _ in each]), self._filled([back for _, back in each])

    def decode(self, text: str | bytes) -> tuple[Any, ...]:
        """Typed arguments; those missing at the end get their defaults. Raises `BadPayload`."""
        raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
        try:
            check_payload(raw)
            items = _read_items(raw)
        except (ValueError, RecursionError) as error:
            raise BadPayload([_told(error)]) from error
        self._check_count(len(items))
        return self._filled([self._decode_one(index, item) for index, item in enumerate(items)])

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the array, one `prefixItems` entry for each parameter."""
        definitions: dict[str, Any] = {}
        items = []
        for param, codec in zip(self.params, self._codecs, strict=True):
            items.append({"title": param.name, **_hoisted(codec.schema(), param.name, definitions)})
        schema: dict[str, Any] = {
            "type": "array",
            "minItems": self._required,
            "maxItems": len(items),
        }
        if items:
            schema["prefixItems"] = items
        return schema | {"items": False} | ({"$defs": definitions} if definitions else {})

    def _each(self, args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
        self._check_count(len(args))
        for param, codec, value in zip(self.params, self._codecs, args, strict=False):
            try:
                yield codec.roundtrip(value)
            except Unencodable as refused:
                place = param.name + refused.place.removeprefix("$")
                raise Unencodable(place, refused.reason) from refused

    def _text(self, texts: list[str]) -> str:
        # Defaults are stored too: a run must not change its input because the code changed a
        # default.
        for text in self._default_texts[len(texts) :]:
            if text is None:
                break
            texts.append(text)
        whole = "[" + ",".join(texts) + "]"
        # Each fits alone; together they may not, and what is stored must be readable again.
        try:
            check_payload(whole.encode())
        except BadValue as over:
            raise Unencodable("$", str(over)) from None
        return whole

    def _decode_one(self, index: int, item: msgspec.Raw) -> Any:
        try:
            return self._codecs[index]._parse(bytes(item))
        except BadPayload as bad:
            name = self.params[index].name
            raise BadPayload(
                [f"at {name}{text.removeprefix('at $')}" for text in bad.errors]
            ) from bad

    def _filled(self, values: list[Any]) -> tuple[Any, ...]:
        return (*values, *(one.default for one in self.params[len(values) :]))

    def _check_count(self, given: int) -> None:
        if self._required <= given <= len(self.params):
            return
        names = ", ".join(one.name for one in self.params) or "none"
        most = len(self.params)
        wanted = str(most) if most == self._required else f"{self._required} to {most}"
        raise BadPayload(
            [f"at $: {_count(given)} given, {wanted} wanted ({names}){self._suffix()}"]
        )

    def _suffix(self) -> str:
        return f" by {self.where}" if self.where else ""


def args_codec(params: Sequence[Param], where: str = "") -> ArgsCodec:
    """The codec of a function's arguments; `where` is told in errors, e.g. "workflow 'fulfil'"."""
    return ArgsCodec(params, where)


def hints_of(
    function: Callable[..., Any],
    skip: int = 0,
    where: str = "",
    localns: dict[str, Any] | None = None,
) -> tuple[list[Param], Any]:
    """Parameters after the first `skip` (ctx), and the return hint, annotations resolved."""
    where = where or f"{getattr(function, '__qualname__', function)}()"
    signature = inspect.signature(function)
    taken = list(signature.parameters.values())[skip:]
    for one in taken:
        if one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
            raise BadHint(
                _of(str(one), where), "inputs are positional; make it an ordinary parameter"
            )
    names = [one.name for one in taken]
    resolved = _resolved(function, signature, [*names, "return"], where, localns)
    return [
        Param(one.name, resolved.get(one.name, Any), one.default) for one in taken
    ], resolved.get("return", Any)


def _resolved(
    function: Callable[..., Any],
    signature: inspect.Signature,
    names: list[str],
    where: str,
    localns: dict[str, Any] | None,
) -> dict[str, Any]:
    # Only what travels: the annotation of ctx may name what is imported for type checkers alone.
    annotations = {one.name: one.annotation for one in signature.parameters.values()}
    annotations["return"] = signature.return_annotation
    wanted = {name: annotations[name] for name in names if annotations[name] is not missing}
    holder = types.SimpleNamespace(__annotations__=wanted)
    inner = inspect.unwrap(getattr(function, "func", function))
    globalns = getattr(inner, "__globals__", None) or vars(sys.modules[type(inner).__module__])
    try:
        return typing.get_type_hints(holder, globalns, localns, include_extras=True)
    except Exception as error:
        reason = f"{error}; its type must be defined, at module level, when it is registered"
        raise BadHint(where, f"cannot resolve the annotations: {reason}") from error


def _of(name: str, where: str) -> str:
    return f"{name!r} of {where}" if where else f"{name!r}"


def _count(given: int) -> str:
    return f"{given} argument" if given == 1 else f"{given} arguments"


def _default_text(param: Param, codec: Codec) -> str | None:
    """Text of a default; None without one, or if it is not of its type (`n: int = None`)."""
    try:
        return None if param.default is missing else codec.encode(param.default)
    except Unencodable:
        return None


def _hoisted(schema: dict[str, Any], owner: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema without its `$defs`: they move to `definitions`, renamed if two clash."""
    renamed = {}
    for name, one in schema.get("$defs", {}).items():
        clash = name in definitions and definitions[name] != one
        renamed[name] = f"{owner}.{name}" if clash else name
    for name, one in schema.get("$defs", {}).items():
        definitions[renamed[name]] = _repointed(one, renamed)
    body = {key: part for key, part in schema.items() if key not in ("$defs", "title")}
    return typing.cast(dict[str, Any], _repointed(body, renamed))


def _repointed(schema: Any, renamed: dict[str, str]) -> Any:
    if isinstance(schema, list):
        return [_repointed(one, renamed) for one in schema]
    if isinstance(schema, dict):
        return {key: _repointed(one, renamed) for key, one in schema.items()}
    if isinstance(schema, str) and schema.startswith("#/$defs/"):
        name = schema.removeprefix("#/$defs/")
        return f"#/$defs/{renamed.get(name, name)}"
    return schema
