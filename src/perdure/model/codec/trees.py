"""What a hint holds, found out once, at registration: may it travel, and what must its codec mind?

`mentions` tells which engine gets the hint; `check_tree` refuses, with advice, what msgspec cannot
carry, and gives the facts by which `MsgspecCodec` saves work on each value. In doubt it
must choose the slow way, for a wrong fact stores a changed value. It must never import pydantic: a
hint can mention it only if somebody else has imported it.
"""

import dataclasses
import sys
import typing
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect as hints

from perdure.model.codec.custom import custom_of
from perdure.model.codec.errors import Unfit, first_line

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
class TreeFacts:
    # No class in the tree defines `==` itself, and no number is hidden from it.
    equality_sees_all: bool = True
    # msgspec can order every set and key in the tree.
    orders_itself: bool = True
    # A dataclass in the tree has defaults.
    has_defaults: bool = False
    # An int is read as the float or Decimal that the tree asks for.
    promotes: bool = False


def check_tree(hint: Any) -> TreeFacts:
    """Refuse, with advice, a type that cannot travel; tell what its encoding has to mind."""
    try:
        root = hints.type_info(hint)
        msgspec.json.Decoder(hint)
    except (TypeError, ValueError, NameError, AttributeError, RecursionError) as error:
        raise Unfit(_advice(error)) from error
    facts, seen, open_nodes = TreeFacts(), set[int](), [root]
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
    if isinstance(node, hints.CustomType) and custom_of(node.cls) is None:
        raise Unfit(
            f"{_named(node.cls)} has no JSON form; use a dataclass, Struct, TypedDict, "
            "pydantic model or builtin, or register_type() it"
        )


def _check_key(key: hints.Type) -> None:
    for one in key.types if isinstance(key, hints.UnionType) else (key,):
        if not isinstance(one, _key_kinds):
            kind = type(one).__name__.removesuffix("Type").lower()
            raise Unfit(f"a {kind} cannot be a key of a JSON object; use a list of pairs")


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
    text = first_line(error)
    if "nion" in text:
        advice = "JSON cannot tell them apart: use msgspec.Struct with tag=True, or pydantic models"
        return f"{text}; {advice}"
    return text


def _named(cls: Any) -> str:
    module = getattr(cls, "__module__", "builtins")
    name = getattr(cls, "__qualname__", str(cls))
    return name if module == "builtins" else f"{module}.{name}"


def mentions(hint: Any) -> set[str]:
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
