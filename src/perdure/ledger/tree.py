"""The tree of a checked expression, read from the protobuf message that the evaluator makes of it.

The few fields that we need are read from the wire: the package ships no classes for these messages, and a protobuf
runtime for a few of them would be one more thing to install.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Constant:
    text: str


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    operand: "Node"


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Container:
    """A list, or a map with its keys and values in a row."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Loop:
    """What every macro becomes. Users cannot name the accumulator of `map` and the like: `@result`."""

    variables: tuple[str, ...]
    over: "Node"
    accumulator: str
    start: "Node"
    condition: "Node"
    step: "Node"
    result: "Node"


Node: TypeAlias = Constant | Name | Select | Call | Container | Loop


class MessageBuilt(Exception):
    """The expression builds a protobuf message: no JSON, and each field is copied whole, uncounted."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)


def read_tree(serialized: bytes) -> Node:
    """The tree of a checked expression, from its protobuf form (`cel.expr.CheckedExpr` inside an `Any`).

    Raises MessageBuilt.
    """
    checked = dict(_fields(serialized))[2]
    return _node(_only(checked, 4))


def _node(message: bytes) -> Node:
    for number, value in _fields(message):
        match number:
            case 3:
                return Constant(_constant(value))
            case 4:
                return Name(_only(value, 1).decode())
            case 5:
                return Select(_node(_only(value, 1)))
            case 6:
                return _call(value)
            case 7:
                return Container(tuple(_node(part) for part in _all(value, 1)))
            case 8:
                return Container(tuple(_entries(value)))
            case 9:
                return _loop(value)
    return Constant("")


def _call(message: bytes) -> Call:
    arguments = [*_all(message, 1), *_all(message, 3)]
    return Call(_only(message, 2).decode(), tuple(map(_node, arguments)))


def _entries(message: bytes) -> Iterator[Node]:
    if name := _only(message, 1):
        raise MessageBuilt(name.decode())
    for entry in _all(message, 2):
        for number, value in _fields(entry):
            if number in (3, 4):
                yield _node(value)


def _loop(message: bytes) -> Loop:
    variables = [*_all(message, 1), *_all(message, 8)]
    over, start, condition, step, result = (_node(_only(message, n)) for n in (2, 4, 5, 6, 7))
    return Loop(
        tuple(name.decode() for name in variables),
        over,
        _only(message, 3).decode(),
        start,
        condition,
        step,
        result,
    )


def _constant(message: bytes) -> str:
    for number, value in _fields(message):
        if number in (6, 7):  # text, bytes
            return value.decode(errors="replace")
    return ""


def _only(message: bytes, wanted: int) -> bytes:
    return next(_all(message, wanted), b"")


def _all(message: bytes, wanted: int) -> Iterator[bytes]:
    return (value for number, value in _fields(message) if number == wanted)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message; of numbers only that they are there."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                _, at = _varint(message, at)
                length = 0
            case 1:
                length = 8
            case 2:
                length, at = _varint(message, at)
            case 5:
                length = 4
            case kind:
                raise ValueError(f"no such kind of field: {kind}")
        yield tag >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
