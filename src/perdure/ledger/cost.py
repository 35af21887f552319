"""What an expression may cost, known before it is evaluated.

The evaluator counts iterations and nothing else, and cannot be stopped from outside. Seen with cel-expr-python
0.1.3, all of it within 10,000 iterations: `map` over 10,000 numbers copies its list at each step (3 s, 1.6 GB);
`payload.a.replace('x', payload.a)` squares a text (20 kB become 400 MB); nested `[a + a + a].map(b, …)` multiplies
one level by level until the memory is gone; `==` on two long lists in a loop ran for 43 s. The package has no option
that bounds any of this.

So we walk the checked tree of the expression beforehand, with upper bounds in place of values, and add up what would
be copied or compared. One unit is about a byte copied: 2.5 ns. An estimate may be far too high, never far too low;
what is over `expression_work_max` is not evaluated. Pure: knows no evaluator, only the serialized tree.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from perdure.model import limits

# The evaluator's own budget, over the whole of an evaluation and its nested loops.
_iterations_max = 10_000
# Estimates stop growing here; squares of squares would only make the arithmetic slow.
_enough = 1 << 62
# Measured: an element of a list costs 32 bytes at each copy, visiting a node of the tree some 20 ns, comparing or
# converting a value 27 ns, a place of a regular expression 5 ns for each character that it is tried on.
_per_element = 32
_per_node = 8
_per_compared = 8
_per_regex_place = 2
# RE2 refuses to repeat anything more often than this, nested repetitions together.
_regex_repeat_max = 1000
# What `format` may write for one clause: it refuses a precision above 1,000.
_format_clause_max = 1100
# Names and ids of an event, see limits; the key is the longest.
_short_text = limits.key_bytes_max


class Facts(NamedTuple):
    """What is known of a payload: size of its JSON text, longest text in it, most elements of a container."""

    size: int = 0
    text: int = 0
    length: int = 0


def facts_of(payload: object, size: int) -> Facts:
    """Measure decoded JSON. Without recursion: how deep it nests is the business of others."""
    text = length = 0
    waiting = [payload]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            text = max(text, len(part))
        elif isinstance(part, list):
            length = max(length, len(part))
            waiting.extend(part)
        elif isinstance(part, dict):
            length = max(length, len(part))
            waiting.extend(part)
            waiting.extend(part.values())
    return Facts(size, text, length)


# --- the tree --------------------------------------------------------------------------------------


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


def read_tree(serialized: bytes) -> Node:
    """The tree of a checked expression, from its protobuf form (`cel.expr.CheckedExpr` inside an `Any`)."""
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


# --- the estimate ----------------------------------------------------------------------------------


class Shape(NamedTuple):
    """Upper bounds of a value: its length as a text, as a container, the same of anything in it, all of it."""

    text: int = 0
    length: int = 0
    inner_text: int = 0
    inner_length: int = 0
    deep: int = 1


_scalar = Shape()


def _element(of: Shape) -> Shape:
    return Shape(of.inner_text, of.inner_length, of.inner_text, of.inner_length, of.deep)


def _either(shapes: list[Shape]) -> Shape:
    return Shape(*map(max, zip(_scalar, *shapes, strict=True)))


def _text(length: int) -> Shape:
    length = min(length, _enough)
    return Shape(text=length, inner_text=length, deep=length + 1)


def _together(one: Shape, other: Shape) -> Shape:
    return Shape(
        min(one.text + other.text, _enough),
        min(one.length + other.length, _enough),
        max(one.inner_text, other.inner_text),
        max(one.inner_length, other.inner_length),
        min(one.deep + other.deep, _enough),
    )


def work_of(tree: Node, facts: Facts) -> int:
    """What evaluating it on such a payload may cost at most, in bytes copied."""
    estimate = _Estimate(facts)
    estimate.visit(tree, {}, 1)
    return estimate.work


def bytes_always_fine(tree: Node) -> int:
    """Payloads up to this size need no measuring, whatever they hold. 0: measure them all."""
    fine, size = 0, 64
    while size <= 2 * limits.payload_bytes_max:
        if work_of(tree, Facts(size, size, size // 2)) > limits.expression_work_max:
            break
        fine, size = size, size * 2
    return fine


def regex_places(pattern: str) -> int:
    """How large RE2's program for it may get: repetitions are written out, classes become ranges of bytes."""
    repeat = 1
    for least, most in re.findall(r"\{([0-9]+)(?:,([0-9]+))?", pattern):
        repeat = min(repeat * max(1, int(least), int(most or 0)), _regex_repeat_max)
    ranges = 100 if "\\p" in pattern or "\\P" in pattern else 4
    return (len(pattern) + 1) * repeat * ranges


_compares = frozenset("_<_ _<=_ _>_ _>=_ startsWith endsWith".split())
_gives_scalar = frozenset(
    "_&&_ _||_ !_ -_ _-_ _*_ _/_ _%_ size hasValue type bool int uint double "
    "@not_strictly_false timestamp duration getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours "
    "getMilliseconds getMinutes getMonth getSeconds".split()
)
# One of their arguments as it is.
_gives_argument = frozenset(
    "_?_:_ or orValue value dyn optional.of optional.ofNonZeroValue optional.none".split()
)
_gives_no_longer = frozenset("lowerAscii upperAscii trim substring charAt reverse".split())


class _Estimate:
    def __init__(self, facts: Facts) -> None:
        self.work = 0
        size, text, length = facts
        # Converted once an evaluation, when first referred to.
        self._payload = Shape(text, length, text, length, size + 1)
        wider = max(text, _short_text)
        self._event = Shape(0, 16, wider, max(length, 16), size + 16 * _short_text)
        self.spend(1, size * _per_compared)

    def spend(self, times: int, units: int) -> None:
        self.work = min(self.work + times * units, _enough)

    def visit(self, node: Node, names: Mapping[str, Shape], times: int) -> Shape:
        """The shape of its value; its cost is spent as many times as it is evaluated."""
        self.spend(times, _per_node)
        match node:
            case Constant():
                return _text(len(node.text))
            case Name():
                return self._named(node.name, names)
            case Select():
                return _element(self.visit(node.operand, names, times))
            case Container():
                return self._container(
                    [self.visit(part, names, times) for part in node.parts], times
                )
            case Call():
                return self._call(node, names, times)
            case Loop():
                return self._loop(node, names, times)

    def _named(self, name: str, names: Mapping[str, Shape]) -> Shape:
        # A leading dot reaches past the variables of loops.
        if name in names:
            return names[name]
        match name.lstrip(".").rpartition(".")[2]:
            case "payload":
                return self._payload
            case "event":
                return self._event
            case _:
                return _text(_short_text)

    def _container(self, parts: list[Shape], times: int) -> Shape:
        self.spend(times, len(parts) * _per_element)
        inside = _either(parts)
        return Shape(
            length=len(parts),
            inner_text=max(inside.text, inside.inner_text),
            inner_length=max(inside.length, inside.inner_length),
            deep=min(1 + sum(part.deep for part in parts), _enough),
        )

    def _call(self, node: Call, names: Mapping[str, Shape], times: int) -> Shape:
        shapes = [self.visit(argument, names, times) for argument in node.arguments]
        match node.function, shapes:
            case "_+_", [one, other]:
                whole = _together(one, other)
                self.spend(times, whole.text + whole.length * _per_element)
                return whole
            case (("_==_" | "_!=_"), [one, other]):
                # Both are walked side by side, so the smaller one ends it.
                self.spend(times, min(one.deep, other.deep) * _per_compared)
                return _scalar
            case "@in", [one, other]:
                self.spend(times, min(other.deep, other.length * one.deep) * _per_compared)
                return _scalar
            case name, [one, other] if name in _compares:
                self.spend(times, min(one.text, other.text))
                return _scalar
            case name, _ if name in _gives_scalar:
                self.spend(times, sum(shape.text for shape in shapes))
                return _scalar
            case (("_[_]" | "_?._" | "_[?_]"), [one, *_]):
                return _element(one)
            case name, _ if name in _gives_argument:
                return _either(shapes)
            case _:
                return self._text_function(node, shapes, times)

    def _text_function(self, node: Call, shapes: list[Shape], times: int) -> Shape:
        match node.function, shapes:
            case (("contains" | "indexOf" | "lastIndexOf"), [one, other, *_]):
                # A naive search, though of many bytes at once.
                self.spend(times, one.text + one.text * other.text // 64)
                return _scalar
            case "matches", [one, other]:
                places = self._regex(node.arguments[1], other)
                self.spend(times, (one.text + 64) * places * _per_regex_place)
                return _scalar
            case "split", [one, *_]:
                self.spend(times, (one.text + 1) * 2 * _per_element)
                return Shape(0, one.text + 1, one.text, 0, one.deep * 2)
            case name, [one, *_] if name in _gives_no_longer:
                made = one
            case "replace", [one, _, new, *_]:
                made = _text(one.text + (one.text + 1) * new.text)
            case "join", [one, *separator]:
                between = separator[0].text if separator else 0
                made = _text(one.length * (one.inner_text + between))
            case "format", [one, given, *_]:
                made = _text(one.text * _format_clause_max + 8 * given.deep)
            case _:
                made = _either([self._escaped(shape) for shape in shapes])
        self.spend(times, made.text + made.length * _per_element)
        return made

    @staticmethod
    def _escaped(shape: Shape) -> Shape:
        """Any other function gives a value no larger than what it takes, with escapes."""
        return Shape(*(min(6 * bound + 64, _enough) for bound in shape))

    @staticmethod
    def _regex(node: Node, shape: Shape) -> int:
        if isinstance(node, Constant):
            return regex_places(node.text)
        return (shape.text + 1) * _regex_repeat_max * 100

    def _loop(self, node: Loop, names: Mapping[str, Shape], times: int) -> Shape:
        over = self.visit(node.over, names, times)
        start = self.visit(node.start, names, times)
        rounds = min(over.length, _iterations_max + 1)
        # The budget of iterations counts nested loops together, so no body runs more often than that.
        inside = min(times * rounds, _iterations_max + 1)
        within = {**names, **dict.fromkeys(node.variables, _element(over))}
        within[node.accumulator] = Shape(deep=0)
        self.visit(node.condition, within, inside)
        more = self.visit(node.step, within, inside)
        # `map` and `filter` make a new list at each round, which is half full on average.
        self.spend(inside, rounds * more.length * _per_element // 2)
        grown = Shape(
            min(start.text + rounds * more.text, _enough),
            min(start.length + rounds * more.length, _enough),
            max(start.inner_text, more.inner_text),
            max(start.inner_length, more.inner_length),
            min(start.deep + rounds * more.deep, _enough),
        )
        return self.visit(node.result, {**names, node.accumulator: grown}, times)
