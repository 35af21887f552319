"""Whether a text matches a regular expression, within work that is known beforehand.

Patterns come from users' types and texts from anybody, and Python's own matcher may backtrack for ages over a short
text. So only the plainest patterns are given to it. The others are read by Python's parser and then walked as states:
each character is looked at once for each state, whatever the pattern. What cannot be walked so (references back,
flags, looking behind) is not tried at all, and `search` says that it does not know.
"""

import functools
import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

# Longer ones are no patterns that a person wrote into a type.
pattern_chars_max = 1000
# `(a{1,99}){1,99}` has few characters and ten thousand states.
pattern_states_max = 2000
# Looks at a character, over all patterns and texts of one payload: a tenth of a second.
pattern_steps_max = 500_000

Test = Callable[[str], bool]


class Work:
    """How much may still be done for one payload."""

    __slots__ = ("left",)

    def __init__(self, left: int = pattern_steps_max) -> None:
        self.left = left

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork


class TooMuchWork(Exception):
    """The bound on work was reached."""


def can_tell(pattern: str) -> bool:
    """Whether `search` knows how to try it."""
    return _compiled(pattern) is not None


def search(pattern: str, text: str, work: Work) -> bool | None:
    """Whether the text has a match somewhere; None if that cannot be told in time."""
    found = _compiled(pattern)
    if found is None:
        return None
    try:
        if isinstance(found, re.Pattern):
            work.spend(1 + len(text) ** 2 // 64)  # one repeat, begun at each place
            return found.search(text) is not None
        return _walk(found, text, 0, work, anywhere=True)
    except TooMuchWork:
        return None


# --- reading a pattern ---

# With one repeat at most, and one way through it, there is nothing to multiply.
_repeat: Final = re.compile(r"[*+?{]")


class State(NamedTuple):
    """A place in a pattern: a test of one character, or of the place in the text, or nothing; and what comes next."""

    test: Test | None = None
    at: "Callable[[str, int, Work], bool] | None" = None
    next: tuple[int, ...] = ()
    cost: int = 1  # of its test


class _Unknown(Exception):
    """The pattern has something that is not walked."""


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> "re.Pattern[str] | Sequence[State] | None":
    """Python's own matcher for the plainest, states for others, None for what is not tried."""
    if len(pattern) > pattern_chars_max:
        return None
    try:
        plain = re.compile(pattern)
        if len(_repeat.findall(pattern)) <= 1 and "|" not in pattern:
            return plain
        return _Reader().read(importlib.import_module("re._parser").parse(pattern))
    except (re.error, _Unknown, RecursionError, OverflowError, ImportError, AttributeError):
        return None


class _Reader:
    """States of a parsed pattern. They are made from the end: each part is told where to go on."""

    def __init__(self) -> None:
        self._states: list[State] = []

    def read(self, parsed: Any) -> Sequence[State]:
        """All states; the first is the match, the last where it begins."""
        if parsed.state.flags != re.UNICODE:
            raise _Unknown
        end = self._add(State())
        self._add(State(next=(self._sequence(parsed, end),)))
        return tuple(self._states)

    def _add(self, state: State) -> int:
        if len(self._states) >= pattern_states_max:
            raise _Unknown
        self._states.append(state)
        return len(self._states) - 1

    def _sequence(self, parts: Any, then: int) -> int:
        for kind, value in reversed(list(parts)):
            then = self._part(str(kind), value, then)
        return then

    def _part(self, kind: str, value: Any, then: int) -> int:
        match kind:
            case "LITERAL" | "NOT_LITERAL" | "ANY":
                return self._add(State(test=_test(kind, value), next=(then,)))
            case "IN":
                return self._add(State(test=_one_of(value), next=(then,), cost=len(value)))
            case "BRANCH":
                ways = tuple(self._sequence(one, then) for one in value[1])
                return self._add(State(next=ways))
            case "SUBPATTERN":
                _, add_flags, del_flags, parts = value
                if add_flags or del_flags:
                    raise _Unknown
                return self._sequence(parts, then)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, parts = value
                return self._repeated(least, most, parts, then)
            case "AT":
                return self._add(State(at=_place(str(value)), next=(then,)))
            case "ASSERT" | "ASSERT_NOT" if value[0] == 1:
                ahead = _Reader()
                ahead._add(State())
                ahead._add(State(next=(ahead._sequence(value[1], 0),)))
                at = _looked_ahead(tuple(ahead._states), kind == "ASSERT")
                return self._add(State(at=at, next=(then,)))
        raise _Unknown

    def _repeated(self, least: int, most: Any, parts: Any, then: int) -> int:
        if str(most) == "MAXREPEAT":
            loop = self._add(State())
            body = self._sequence(parts, loop)
            self._states[loop] = State(next=(body, then))
            then = loop
        else:
            for _ in range(int(most) - least):
                then = self._add(State(next=(self._sequence(parts, then), then)))
        for _ in range(least):
            after, then = then, self._sequence(parts, then)
            if then == after:  # of nothing, however often
                break
        return then


def _test(kind: str, value: Any) -> Test:
    match kind:
        case "LITERAL":
            return chr(value).__eq__
        case "NOT_LITERAL":
            return chr(value).__ne__
        case "ANY":
            return "\n".__ne__
        case "RANGE":
            first, last = map(chr, value)
            return lambda one: first <= one <= last
        case "CATEGORY":
            return _category(str(value))
    raise _Unknown


def _one_of(items: Any) -> Test:
    negated = bool(items) and str(items[0][0]) == "NEGATE"
    tests = [_test(str(kind), value) for kind, value in items[negated:]]
    return lambda one: any(test(one) for test in tests) is not negated


def _category(name: str) -> Test:
    # The same as Python's own matcher asks.
    tests: dict[str, Test] = {"DIGIT": str.isdecimal, "SPACE": str.isspace, "WORD": _is_word}
    words = name.removeprefix("CATEGORY_")
    test = tests.get(words.removeprefix("NOT_"))
    if test is None:
        raise _Unknown
    return (lambda one: not test(one)) if words.startswith("NOT_") else test


def _is_word(one: str) -> bool:
    return one.isalnum() or one == "_"


def _place(name: str) -> Callable[[str, int, Work], bool]:
    match name:
        case "AT_BEGINNING" | "AT_BEGINNING_STRING":
            return lambda text, at, work: at == 0
        case "AT_END_STRING":
            return lambda text, at, work: at == len(text)
        case "AT_END":
            return lambda text, at, work: (
                at == len(text) or (at == len(text) - 1 and text[at] == "\n")
            )
        case "AT_BOUNDARY" | "AT_NON_BOUNDARY":
            return lambda text, at, work: _is_boundary(text, at) is (name == "AT_BOUNDARY")
    raise _Unknown


def _is_boundary(text: str, at: int) -> bool:
    before = at > 0 and _is_word(text[at - 1])
    return before is not (at < len(text) and _is_word(text[at]))


def _looked_ahead(states: Sequence[State], wanted: bool) -> Callable[[str, int, Work], bool]:
    return lambda text, at, work: _walk(states, text, at, work, anywhere=False) is wanted


# --- walking it ---


def _walk(states: Sequence[State], text: str, at: int, work: Work, *, anywhere: bool) -> bool:
    """Whether a match begins here, or anywhere from here on. Raises TooMuchWork."""
    begin = len(states) - 1
    entered = [begin]
    for place in range(at, len(text) + 1):
        reached = _reached(states, entered, text, place, work)
        if reached is None:
            return True
        if place == len(text):
            break
        one = text[place]
        entered = [
            after for state in reached if state.test and state.test(one) for after in state.next
        ]
        if anywhere:
            entered.append(begin)
        elif not entered:
            break
    return False


def _reached(
    states: Sequence[State], entered: list[int], text: str, place: int, work: Work
) -> list[State] | None:
    """The states with a test of a character that can be come to without one; None if the match is among them."""
    seen, waiting, found = set(entered), entered, []
    while waiting:
        number = waiting.pop()
        state = states[number]
        work.spend(state.cost)
        if number == 0:
            return None
        if state.test is not None:
            found.append(state)
            continue
        if state.at is not None and not state.at(text, place, work):
            continue
        for after in state.next:
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return found
