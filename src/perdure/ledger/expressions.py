"""Expressions as text: does an event match, what does a run get, which key has it.

They are CEL, evaluated by the C++ runtime of the CEL project (`cel-expr-python`, the extra `cel`). An expression is
checked when it is registered: syntax, names, overloads, the type of its result, its size and what it could cost. It
is fed the stored JSON of an event, never an object of the application, and gives JSON back. Text comes over HTTP as
well, so nothing here may run long or take much memory, whatever the expression and the payload.

Seen with cel-expr-python 0.1.3, which has no option for any limit (its defaults are those of cel-cpp):

- compile: 100,000 code points, recursion of 32 in parser and tree, 100,000 nodes once macros are expanded. All raise
  RuntimeError, as every error of compiling does; a lone surrogate or no str is a TypeError. A message is cut at a NUL.
- eval: 10,000 iterations, nested loops together; over it, and for a key twice in a map, it raises RuntimeError. Any
  other fault is returned, as a Value of type ERROR whose value is the text `CODE: words`. No bound of memory or time:
  see `cost`, which knows them before. Memory that runs out is a MemoryError.
- `matches` is RE2: linear in the text, program size bounded, repetitions at most 1,000; a bad one fails at run time.
- `type` is taken by the language, so ours is `perdure.type`, found first through the container `perdure`.
- Messages such as `google.protobuf.ListValue{…}` can be built; we refuse them.
- A text from Python is cut at its first NUL; integers beyond 64 bits are an ERROR.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

import msgspec

from perdure.errors import BadExpression, ExpressionFailed, ExpressionsUnavailable
from perdure.ledger.cost import Facts, bytes_always_fine, exceeds_iterations, facts_of, work_of
from perdure.ledger.tree import MessageBuilt, Node, read_tree
from perdure.model import limits
from perdure.model.clock import to_datetime
from perdure.model.limits import BadValue, check_key
from perdure.model.records import EventRecord

# Every variable an expression may use, by type. A payload may be any JSON, hence dyn.
VARIABLES = {
    "event": "map<string, dyn>",
    "payload": "dyn",
    "type": "string",
    "entity": "string",
    "entity_type": "string",
    "entity_id": "string",
    "event_id": "string",
    "key": "string",
    "position": "int",
    "depth": "int",
    "occurred_at": "timestamp",
    "recorded_at": "timestamp",
}
_container = "perdure"
# Names that the language has already; they are declared inside our container.
_taken = {"type": f"{_container}.type"}

_located = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): ([^\n]*)")
_status = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$|\(in container '[^']*'\)")
_problem_chars_max = 400
# The evaluator's words for what is not there: a key, a field of what has no fields, an element.
_missing = (
    "NOT_FOUND: Key not found in map",
    "INVALID_ARGUMENT: Applying SELECT to non-message type",
    "UNKNOWN: Index error: index=",
)


def compile_filter(text: str) -> "Filter":
    """An expression that says whether an event matches; raises BadExpression."""
    return Filter(_checked(text, "a filter", "true or false", _is_bool))


def compile_mapper(text: str) -> "Mapper":
    """An expression that makes what a run gets; raises BadExpression."""
    return Mapper(
        _checked(text, "a mapper", "a map such as {'id': payload.id}, or a list", _is_data)
    )


def compile_key(text: str) -> "Key":
    """An expression that makes an idempotency key; raises BadExpression."""
    return Key(_checked(text, "a key", "a string or an int", _is_key))


# --- what callers hold -----------------------------------------------------------------------------


class Filter:
    """Made by `compile_filter`."""

    def __init__(self, compiled: "_Compiled") -> None:
        self._compiled = compiled
        self.text = compiled.text

    def test(self, record: EventRecord) -> bool:
        """Whether the event matches. What is missing in it is no match; any other fault raises ExpressionFailed."""
        kind, value = self._compiled.evaluate(record)
        if kind == "BOOL":
            return value.value() is True
        if kind == "ERROR" and _fault(value).startswith(_missing):
            return False
        raise self._compiled.unfit(kind, value, "a filter gives true or false")


class Mapper:
    """Made by `compile_mapper`."""

    def __init__(self, compiled: "_Compiled") -> None:
        self._compiled = compiled
        self.text = compiled.text

    def make(self, record: EventRecord) -> object:
        """JSON data, within the bounds of a payload; raises ExpressionFailed."""
        kind, value = self._compiled.evaluate(record)
        if kind == "ERROR":
            raise self._compiled.unfit(kind, value, "")
        return _Plain(self.text).data(value, 1)


class Key:
    """Made by `compile_key`."""

    def __init__(self, compiled: "_Compiled") -> None:
        self._compiled = compiled
        self.text = compiled.text

    def make(self, record: EventRecord) -> str:
        """The key of the run or op that the event leads to; raises ExpressionFailed."""
        kind, value = self._compiled.evaluate(record)
        if kind not in ("STRING", "INT"):
            raise self._compiled.unfit(kind, value, "a key is a string or an int")
        try:
            return check_key(str(value.value()))
        except BadValue as problem:
            raise ExpressionFailed(self.text, str(problem)) from None


# --- compiling -------------------------------------------------------------------------------------


def _checked(text: object, what: str, allowed: str, fits: "Callable[[str], bool]") -> "_Compiled":
    compiled = _compile(_check_source(text))
    if not fits(compiled.gives):
        raise BadExpression(
            compiled.text, f"gives {compiled.gives.lower()}; {what} gives {allowed}"
        )
    return compiled


def _check_source(text: object) -> str:
    if not isinstance(text, str):
        raise BadExpression(text, f"is a {type(text).__name__}; give CEL as a str")
    if not text.strip():
        raise BadExpression(text, "is empty; give CEL, such as payload.amount > 100")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadExpression(text, "holds a lone surrogate, which is not text") from None
    if size > limits.expression_bytes_max:
        raise BadExpression(
            text,
            f"is {size} bytes; at most {limits.expression_bytes_max} (expression_bytes_max)",
        )
    if "\x00" in text:
        raise BadExpression(text, "holds a NUL character; write it as an escape, '\\x00'")
    return str.__str__(text)


@lru_cache(maxsize=limits.expressions_kept_max)
def _compile(text: str) -> "_Compiled":
    environment = _environment()
    try:
        program = environment.compile(text)
        tree = read_tree(program.serialize())
    except RuntimeError as error:
        raise _refusal(text, str(error)) from None
    except MessageBuilt as built:
        raise BadExpression(
            text, f"builds {built.name}; build maps and lists, {{…}} and […]"
        ) from None
    if work_of(tree, Facts()) > limits.expression_work_max:
        raise BadExpression(
            text,
            "could copy more than one evaluation may, whatever the payload "
            f"({limits.expression_work_max}, expression_work_max); nest and repeat less",
        )
    if exceeds_iterations(tree):
        raise BadExpression(
            text,
            "loops over its own lists more often than one evaluation may; nest fewer of them",
        )
    return _Compiled(text, program, program.return_type().name(), tree, bytes_always_fine(tree))


def _refusal(text: str, words: str) -> BadExpression:
    """The first problem of the compiler, in one line, with its place and what would be right."""
    found = _located.search(words)
    line, column, problem = found.groups() if found else ("-1", "-1", words)
    where = "" if line == "-1" else f"line {line}, column {column}"
    problem = _status.sub("", problem).strip()
    if "recursion" in problem:
        problem = "nests too deeply; at most 32 levels"
    elif "undeclared reference" in problem:
        problem += f"; the variables are {', '.join(VARIABLES)}; the functions are those of CEL"
    return BadExpression(text, problem[:_problem_chars_max], where)


def _is_bool(gives: str) -> bool:
    return gives in ("BOOL", "DYN")


def _is_data(gives: str) -> bool:
    return gives == "DYN" or gives.startswith(("LIST<", "MAP<STRING,", "MAP<DYN,"))


def _is_key(gives: str) -> bool:
    return gives in ("STRING", "INT", "DYN")


def _declared(name: str) -> str:
    return _taken.get(name, name)


@cache
def _environment() -> Any:
    """The one environment. No `cel.bind` and no list functions: what they add is mostly ways to grow."""
    cel, extensions = _load()
    types = {
        "map<string, dyn>": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
        "dyn": cel.Type.DYN,
        "string": cel.Type.STRING,
        "int": cel.Type.INT,
        "timestamp": cel.Type.TIMESTAMP,
    }
    return cel.NewEnv(
        variables={_declared(name): types[kind] for name, kind in VARIABLES.items()},
        container=_container,
        extensions=extensions,
    )


def _load() -> tuple[Any, list[Any]]:
    """Only when the first expression comes: the core does without it."""
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_math, ext_optional, ext_strings
    except ImportError as error:
        raise ExpressionsUnavailable(str(error)) from error
    return cel, [ext_math.ExtMath(), ext_optional.ExtOptional(), ext_strings.ExtStrings()]


# --- evaluating ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A checked expression; shared by all that have the same text."""

    text: str
    program: Any
    gives: str
    tree: Node
    bytes_fine: int

    def evaluate(self, record: EventRecord) -> tuple[str, Any]:
        """The name of the result's type, and the result."""
        bindings = _bindings(record)
        self._check_payload(bindings["payload"], record.payload)
        try:
            value = self.program.eval(data=bindings)
            return value.type().name(), value
        except MemoryError:
            raise ExpressionFailed(self.text, "it ran out of memory") from None
        except Exception as error:
            raise ExpressionFailed(self.text, _words(str(error))) from None

    def unfit(self, kind: str, value: Any, wanted: str) -> ExpressionFailed:
        if kind == "ERROR":
            return ExpressionFailed(self.text, _words(_fault(value)))
        return ExpressionFailed(self.text, f"it gave {kind.lower()}; {wanted}")

    def _check_payload(self, payload: object, text: str) -> None:
        # Cut texts would match what they are not, so such a payload is not evaluated at all.
        if "\\u0000" in text and any("\x00" in part for part in _texts(payload)):
            raise ExpressionFailed(self.text, "the payload holds a NUL character")
        if len(text) <= self.bytes_fine:
            return
        work = work_of(self.tree, facts_of(payload))
        if work > limits.expression_work_max:
            raise ExpressionFailed(
                self.text,
                f"on this payload it could copy {work} bytes; at most {limits.expression_work_max} "
                "(expression_work_max)",
            )


def _fault(value: Any) -> str:
    """What a Value of type ERROR says. An optional has that type too, and then no value."""
    try:
        return str(value.value())
    except TypeError:
        return "it gave an optional, which JSON has not; end it by orValue(…)"


def _words(reason: str) -> str:
    return _status.sub("", reason).strip()[:_problem_chars_max]


def _texts(payload: object) -> Iterator[str]:
    waiting = [payload]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part)
            waiting.extend(part.values())


# The bindings of the last event: many subscriptions look at one event in turn. Not the evaluator's own Activation,
# which would keep whatever they all allocated.
_last: tuple[EventRecord, dict[str, Any]] | None = None


def _bindings(record: EventRecord) -> dict[str, Any]:
    global _last
    last = _last
    if last is not None and last[0] is record:
        return last[1]
    bindings = _bind(record)
    _last = (record, bindings)
    return bindings


def _bind(record: EventRecord) -> dict[str, Any]:
    entity_type, entity_id = record.entity_type or "", record.entity_id or ""
    values: dict[str, Any] = {
        "type": record.type,
        "entity": f"{entity_type}/{entity_id}" if record.entity_type else "",
        "entity_type": entity_type,
        "entity_id": entity_id,
        "event_id": record.event_id,
        "key": record.key or "",
        "position": record.position,
        "depth": record.depth,
        "payload": msgspec.json.decode(record.payload),
    }
    times = {
        "occurred_at": to_datetime(record.occurred_at),
        "recorded_at": to_datetime(record.recorded_at),
    }
    # A time inside a dyn value is refused by the evaluator; there it is the text that JSON has for it.
    event = values | {name: _time_text(moment) for name, moment in times.items()}
    event["root_id"] = record.root_id or record.event_id
    event["caused_by"] = None if record.caused_by is None else msgspec.json.decode(record.caused_by)
    bindings: dict[str, Any] = {**values, **times, "event": event}
    return {_declared(name): value for name, value in bindings.items()}


def _time_text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


# --- results ---------------------------------------------------------------------------------------


class _Plain:
    """A result as JSON data, taken layer by layer, so that one which repeats a large part cannot fill the memory."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._nodes = 0
        self._chars = 0

    def data(self, value: Any, depth: int) -> object:
        self._count(0, depth)
        kind = value.type().name()
        match kind.partition("<")[0]:
            case "NULL":
                return None
            case "BOOL" | "STRING" | "INT" | "UINT" | "DOUBLE":
                return self._leaf(value.value())
            case "TIMESTAMP":
                return _time_text(value.value())
            case "LIST":
                return [self.data(part, depth + 1) for part in value.value()]
            case "MAP":
                return {
                    self._map_key(key): self.data(part, depth + 1)
                    for key, part in value.value().items()
                }
            case "ERROR":
                raise ExpressionFailed(self._text, _words(_fault(value)))
        raise ExpressionFailed(
            self._text,
            f"the result holds {kind.lower()}, which JSON has not; convert it, such as by string(…)",
        )

    def _leaf(self, leaf: bool | int | float | str) -> object:
        if isinstance(leaf, str):
            self._count(len(leaf), 0)
        elif isinstance(leaf, float) and not math.isfinite(leaf):
            raise ExpressionFailed(self._text, f"the result holds {leaf}, which JSON has not")
        elif isinstance(leaf, int) and leaf > limits.int_max:
            raise ExpressionFailed(self._text, f"the result holds {leaf}, beyond 64 bits")
        return leaf

    def _map_key(self, key: object) -> str:
        if not isinstance(key, str):
            raise ExpressionFailed(
                self._text, f"the result has the map key {limits.shown(key)}; JSON has text only"
            )
        self._count(len(key), 0)
        return key

    def _count(self, chars: int, depth: int) -> None:
        self._nodes += 1
        self._chars += chars
        if self._chars > limits.payload_bytes_max:
            raise self._over("payload_bytes_max")
        if self._nodes > limits.payload_nodes_max:
            raise self._over("payload_nodes_max")
        if depth > limits.payload_depth_max:
            raise self._over("payload_depth_max")

    def _over(self, bound: str) -> ExpressionFailed:
        return ExpressionFailed(self._text, f"the result is too large for a payload: over {bound}")
