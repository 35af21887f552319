"""What an expression may cost, known before it is evaluated.

The evaluator counts iterations and nothing else, and cannot be stopped from outside. Seen with cel-expr-python
0.1.3, all of it within 10,000 iterations: `map` over 10,000 numbers copies its list at each step (3 s, 1.6 GB);
`payload.a.replace('x', payload.a)` squares a text (20 kB become 400 MB); nested `[a + a + a].map(b, …)` multiplies
one level by level until the memory is gone; `==` on two long lists in a loop ran for 43 s. The package has no option
that bounds any of this.

So we walk the checked tree of the expression beforehand, with upper bounds in place of values, and add up what would
be copied or compared. One unit is about a byte copied: 2.5 ns. An estimate may be far too high, never far too low;
what is over `expression_work_max` is not evaluated. Pure: knows no evaluator, only the tree.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from perdure.ledger.tree import Call, Constant, Container, Loop, Name, Node, Select
from perdure.model import limits

# The evaluator's own budget, over the whole of an evaluation and its nested loops.
_iterations_max = 10_000
# Estimates stop growing here; squares of squares would only make the arithmetic slow.
_enough = 1 << 62
# Measured: an element of a list costs 32 bytes at each copy, visiting a node of the tree some 20 ns, comparing or
# converting a value 20 to 50 ns, a place of a regular expression 5 ns for each character that it is tried on.
_per_element = 32
_per_node = 8
_per_compared = 16
_per_regex_place = 2
_compared_at_once = 64
# RE2 refuses to repeat anything more often than this, nested repetitions together.
_regex_repeat_max = 1000
# What `format` may write for one clause: it refuses a precision above 1,000.
_format_clause_max = 1100
# Names and ids of an event, see limits; the key is the longest.
_short_text = limits.key_bytes_max


# Sizes are told apart down to a field of an element of a list in the payload; below they count as that one.
_levels = 4


class Facts(NamedTuple):
    """What is known of a payload: the longest text in it, the most elements of a container, and the size of its
    largest value at each level, the whole payload first; deeper ones are no larger than the last.

    A size is what comparing costs: one for each value in it, and one for every 64 characters of a text.
    """

    text: int = 0
    length: int = 0
    sizes: tuple[int, ...] = (0,)


def facts_at_worst(size: int) -> Facts:
    """All that is known from the size of the JSON text alone."""
    return Facts(size, size // 2, (size // 2 + 1,))


def facts_of(payload: object) -> Facts:
    """Measure decoded JSON. Recursion is fine: stored payloads nest no deeper than payload_depth_max."""
    text = length = 0
    sizes = [0] * _levels

    def measure(part: object, level: int) -> int:
        nonlocal text, length
        size = 1
        if isinstance(part, str):
            text = max(text, len(part))
            size += len(part) // _compared_at_once
        elif isinstance(part, list | dict):
            length = max(length, len(part))
            inside = (part, part.values()) if isinstance(part, dict) else (part,)
            size += sum(measure(child, level + 1) for parts in inside for child in parts)
        at = min(level, _levels - 1)
        sizes[at] = max(sizes[at], size)
        return size

    measure(payload, 0)
    return Facts(text, length, tuple(sizes))


class Shape(NamedTuple):
    """Upper bounds of a value: its length as a text, as a container, the same of anything in it; and its size, then
    the size of what is in it, level by level (see Facts)."""

    text: int = 0
    length: int = 0
    inner_text: int = 0
    inner_length: int = 0
    sizes: tuple[int, ...] = (1,)

    @property
    def size(self) -> int:
        return self.sizes[0]


_scalar = Shape()


def _text(length: int) -> Shape:
    length = min(length, _enough)
    return Shape(text=length, inner_text=length, sizes=(length // _compared_at_once + 1,))


def _element(of: Shape) -> Shape:
    inner = of.sizes[1:] or of.sizes
    return Shape(of.inner_text, of.inner_length, of.inner_text, of.inner_length, inner)


def _either(shapes: list[Shape]) -> Shape:
    every = [_scalar, *shapes]
    return Shape(
        max(shape.text for shape in every),
        max(shape.length for shape in every),
        max(shape.inner_text for shape in every),
        max(shape.inner_length for shape in every),
        _largest([shape.sizes for shape in every]),
    )


def _largest(every: list[tuple[int, ...]]) -> tuple[int, ...]:
    levels = max(map(len, every))
    return tuple(
        max(sizes[min(level, len(sizes) - 1)] for sizes in every) for level in range(levels)
    )


def _together(one: Shape, other: Shape, times: int = 1) -> Shape:
    """One, and so many times the other behind it."""
    both = _either([one, other])
    return Shape(
        min(one.text + times * other.text, _enough),
        min(one.length + times * other.length, _enough),
        both.inner_text,
        both.inner_length,
        # Of a single level, the one behind is what may be inside.
        (min(one.size + times * other.size, _enough), *(both.sizes[1:] or both.sizes)),
    )


def work_of(tree: Node, facts: Facts) -> int:
    """What evaluating it on such a payload may cost at most, in bytes copied."""
    estimate = _Estimate(facts)
    estimate.visit(tree, {}, 1)
    return estimate.work


def exceeds_iterations(tree: Node) -> bool:
    """Whether its loops over written-out lists, nested ones multiplied, go past the evaluator's own budget.

    Such an expression fails on every event on which it does not stop early, so it is refused when registered. Loops
    over anything else depend on the event, and are left to the budget.
    """
    estimate = _Estimate(Facts())
    estimate.visit(tree, {}, 1)
    return estimate.rounds > _iterations_max


def bytes_always_fine(tree: Node) -> int:
    """Payloads up to this size need no measuring, whatever they hold. 0: measure them all."""
    fine, size = 0, 64
    while size <= 2 * limits.payload_bytes_max:
        if work_of(tree, facts_at_worst(size)) > limits.expression_work_max:
            break
        fine, size = size, size * 2
    return fine


_regex_part = re.compile(
    r"(?P<wide>\\[pP](?:\{[^}]*\}|.))|(?P<class>\\.|\.|\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|\{(?P<least>[0-9]+)(?:,(?P<most>[0-9]*))?\}|(?P<open>\()|(?P<close>\))|.",
    re.DOTALL,
)
# Instructions for a letter, a class of characters, a class of Unicode: the latter two are ranges of UTF-8 bytes.
_letter, _class, _wide = 2, 12, 400


def regex_places(pattern: str) -> int:
    """How large RE2's program for it may get: repetitions are written out, groups as a whole."""
    if "\\Q" in pattern:  # a quotation, in which a parenthesis closes nothing
        return (len(pattern) + 1) * _wide * _regex_repeat_max
    groups, last = [1], 0
    for part in _regex_part.finditer(pattern):
        match part.lastgroup:
            case "least" | "most":
                repeat = max(int(part["least"]), int(part["most"] or 0), 1)
                groups[-1] += last * (min(repeat, _regex_repeat_max) - 1)
                last *= min(repeat, _regex_repeat_max)
                continue
            case "open":
                groups.append(1)
                last = 0
                continue
            case "close" if len(groups) > 1:
                last = groups.pop()
            case "wide":
                last = _wide
            case "class":
                last = _wide if "\\p" in part[0] or "\\P" in part[0] else _class
            case _:
                last = _letter
        groups[-1] += last
    return min(sum(groups), _enough)


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
        # Iterations over written-out lists: all of them so far, and how often the place being visited is in one.
        self.rounds = 0
        self._nested = 1
        text, length, sizes = facts
        self._payload = Shape(text, length, text, length, sizes)
        about = 16 * _short_text
        self._event = Shape(0, 16, max(text, about), max(length, 16), (sizes[0] + about, *sizes))
        # Converted once an evaluation, when first referred to.
        self.spend(1, sizes[0] * _per_compared)

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
            sizes=(min(1 + sum(part.size for part in parts), _enough), *inside.sizes),
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
                self.spend(times, min(one.size, other.size) * _per_compared)
                return _scalar
            case "@in", [one, other]:
                self.spend(times, min(other.size, other.length * one.size) * _per_compared)
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
                return Shape(0, one.text + 1, one.text, 0, (one.text + 2,))
            case name, [one, *_] if name in _gives_no_longer:
                made = one
            case "replace", [one, _, new, *_]:
                made = _text(one.text + (one.text + 1) * new.text)
            case "join", [one, *separator]:
                between = separator[0].text if separator else 0
                made = _text(one.length * (one.inner_text + between))
            case "format", [one, given, *_]:
                made = _text(one.text * _format_clause_max + 8 * _compared_at_once * given.size)
            case _:
                made = _either([self._escaped(shape) for shape in shapes])
        self.spend(times, made.text + made.length * _per_element)
        return made

    @staticmethod
    def _escaped(shape: Shape) -> Shape:
        """Any other function gives a value no larger than what it takes, with escapes."""
        text, length, inner_text, inner_length, *sizes = (
            min(6 * bound + 64, _enough) for bound in (*shape[:4], *shape.sizes)
        )
        return Shape(text, length, inner_text, inner_length, tuple(sizes))

    @staticmethod
    def _regex(node: Node, shape: Shape) -> int:
        if isinstance(node, Constant):
            return regex_places(node.text)
        return (shape.text + 1) * _regex_repeat_max * _wide

    def _loop(self, node: Loop, names: Mapping[str, Shape], times: int) -> Shape:
        over = self.visit(node.over, names, times)
        start = self.visit(node.start, names, times)
        rounds = min(over.length, _iterations_max + 1)
        # The budget of iterations counts nested loops together, so no body runs more often than that.
        inside = min(times * rounds, _iterations_max + 1)
        within = {**names, **dict.fromkeys(node.variables, _element(over))}
        within[node.accumulator] = Shape(sizes=(0,))
        outside = self._nested
        if isinstance(node.over, Container):
            self._nested = min(outside * over.length, _enough)
            self.rounds = min(self.rounds + self._nested, _enough)
        self.visit(node.condition, within, inside)
        more = self.visit(node.step, within, inside)
        self._nested = outside
        # `map` and `filter` make a new list at each round, which is half full on average.
        self.spend(inside, rounds * more.length * _per_element // 2)
        grown = _together(start, more, rounds)
        return self.visit(node.result, {**names, node.accumulator: grown}, times)
