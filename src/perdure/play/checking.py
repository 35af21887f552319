"""What is wrong with a play: all of it at once, when it is made, not at the third part of the first run.

Everything that can be known without running: names, callbacks and what they are called with, the ways of a cue, the
type of the state. `problems` gives the words; a play with none can be performed.
"""

import functools
import inspect
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from perdure.channels import Signal
from perdure.model import limits
from perdure.model.codec import BadHint, Codec
from perdure.model.duration import parse_duration
from perdure.model.limits import BadValue, check_name, shown
from perdure.model.policy import Retry
from perdure.model.records import HANDLING
from perdure.play.parts import Act, Call, Chorus, Cue, Part, Scene, Sleep, parts_in, walk, way_parts
from perdure.registry import Workflow

COMPENSATE = ".compensate"
CONDITION = ".condition"
DURATION = ".duration"
INPUT = ".input"
ASKED = (DURATION, INPUT)  # what a function of the state says before the part itself begins
RESULT = ".result"
_own_endings = (*HANDLING, *ASKED, COMPENSATE, CONDITION, RESULT)


def problems(parts: Any, state: Any, codec: Codec | BadHint, saga: Any) -> list[str]:
    """Everything that is wrong with a play of these parts over this state."""
    found = _of_state(state, codec)
    if not isinstance(saga, bool):
        found.append(f"saga={shown(saga)} must be True or False")
    if not isinstance(parts, list | tuple) or not parts:
        return [
            *found,
            "has no parts: give a list of Act, Signal, Scene, Chorus, Cue, Sleep or Call",
        ]
    if len(list(walk(parts))) > limits.play_parts_max:
        bound = f"at most {limits.play_parts_max} (play_parts_max)"
        return [*found, f"has {len(list(walk(parts)))} parts; {bound}"]
    for part in walk(parts):
        found += _of_part(part)
    found += _of_names([one.name for one in walk(parts) if isinstance(one, Part | Signal)])
    found += _of_compensations(parts, saga is True)
    return found


def _of_state(state: Any, codec: Codec | BadHint) -> list[str]:
    if isinstance(codec, BadHint):
        return [f"its state cannot be stored: {codec}"]
    schema = codec.schema()
    refers = schema.get("$ref", "").rpartition("/")[2]
    schema = schema.get("$defs", {}).get(refers, schema)
    if schema.get("type") != "object":
        words = "has no fields: give a dataclass, a pydantic model or a msgspec Struct"
        return [f"its state {shown(getattr(state, '__name__', state))} {words}"]
    return []


def _of_part(part: Any) -> list[str]:
    if not isinstance(part, Part | Signal):
        return [f"{shown(part)} is no part: use Act, Signal, Scene, Chorus, Cue, Sleep or Call"]
    found = _of_name(part)
    if part.condition is not None:
        found += _of_callback(part, "condition", part.condition, (1, 2), plain=True)
    match part:
        case Signal():
            found += _of_signal(part)
        case Act():
            found += _of_callback(part, "function", part.function, (2,))
            if part.compensate is not None:
                found += _of_callback(part, "compensate", part.compensate, (2,))
            found += _of_options(part, part.retry, part.timeout)
        case Scene() | Chorus():
            found += _of_inside(part)
        case Cue():
            found += _of_cue(part)
        case Sleep():
            found += _of_sleep(part)
        case Call():
            found += _of_call(part)
        case _:
            found.append(f"{part!r} is of a kind that no play knows")
    return found


def _of_name(part: Any) -> list[str]:
    try:
        name = check_name("part", part.name)
    except BadValue as bad:
        return [str(bad)]
    if "[" in name or "]" in name:
        return [f"{part!r}: its name contains a bracket, which numbers the branches of a path"]
    for ending in _own_endings:
        if name.endswith(ending):
            return [
                f"{part!r}: a name that ends with {ending!r} is that of a step of the play itself"
            ]
    return []


def _of_names(names: Iterable[Any]) -> list[str]:
    counts = Counter(one for one in names if isinstance(one, str))
    return [
        f"the name {name!r} is used {count} times: names are unique in a play"
        for name, count in counts.items()
        if count > 1
    ]


def _of_signal(part: Any) -> list[str]:
    found: list[str] = []
    if part.on_receive is not None:
        found += _of_callback(part, "on_receive", part.on_receive, (3,))
    if part.on_timeout is not None:
        found += _of_callback(part, "on_timeout", part.on_timeout, (2,))
        if part.timeout_us is None:
            found.append(f"{part!r}: on_timeout says nothing without timeout=")
    return found


def _of_options(part: Any, retry: Any, timeout: Any = None) -> list[str]:
    found = []
    if retry is not None and not isinstance(retry, Retry):
        found.append(f"{part!r}: retry={shown(retry)} must be a policy: Retry(attempts=…)")
    if timeout is not None:
        found += _of_duration(part, "timeout", timeout)
    return found


def _of_duration(part: Any, what: str, duration: Any) -> list[str]:
    try:
        parse_duration(duration, what)
    except BadValue as bad:
        return [f"{part!r}: {bad}"]
    return []


def _of_inside(part: Any) -> list[str]:
    if not isinstance(part.parts, list | tuple) or not part.parts:
        return [f"{part!r}: holds no parts; give a list"]
    if not isinstance(getattr(part, "saga", False), bool):
        return [f"{part!r}: saga={shown(part.saga)} must be True or False"]
    if isinstance(part, Chorus) and len(part.parts) > limits.branches_max:
        return [f"{part!r}: has {len(part.parts)} branches; at most {limits.branches_max}"]
    return []


def _of_cue(part: Any) -> list[str]:
    found = _of_callback(part, "choose", part.choose, (1, 2), plain=True)
    if not isinstance(part.ways, Mapping) or not part.ways:
        return [
            *found,
            f'{part!r}: its ways must be a dict of answers to parts, with "else" for the rest',
        ]
    for answer, way in part.ways.items():
        if not isinstance(answer, str):
            found.append(f"{part!r}: the answer {shown(answer)} is no text")
        strays = [one for one in way_parts(way) if not isinstance(one, Part | Signal)]
        found += [
            f"{part!r}: {shown(one)}, the way of {answer!r}, is unknown: no part" for one in strays
        ]
    if "else" not in part.ways:
        missing = [one for one in _answers(part.choose) if one not in part.ways]
        found += [
            f'{part!r}: {shown(part.choose.__name__)} may answer {one!r}, which is no way of it, and there is no "else"'
            for one in missing
        ]
    return found


def _answers(choose: Any) -> list[str]:
    """What a function says that it answers: the texts of a Literal."""
    try:
        hint = typing.get_type_hints(choose).get("return")
    except (
        Exception
    ):  # of a callable object, or names that are not known yet: nothing is known then
        return []
    if typing.get_origin(hint) is not typing.Literal:
        return []
    return [one for one in typing.get_args(hint) if isinstance(one, str)]


def _of_sleep(part: Any) -> list[str]:
    if callable(part.duration):
        return _of_callback(part, "duration", part.duration, (1,), plain=True)
    return _of_duration(part, "duration", part.duration)


def _of_call(part: Any) -> list[str]:
    found = _of_options(part, part.retry)
    if not isinstance(part.workflow, Workflow):
        found.append(f"{part!r}: {shown(part.workflow)} is no workflow")
    if part.input is not None:
        found += _of_callback(part, "input", part.input, (1,), plain=True)
    if part.on_result is not None:
        found += _of_callback(part, "on_result", part.on_result, (3,))
    return found


_called_with = {1: "(state)", 2: "(ctx, state)", 3: "(ctx, state, payload)"}


def _of_callback(
    part: Any, what: str, function: Any, counts: Sequence[int], *, plain: bool = False
) -> list[str]:
    if not callable(function) or inspect.isclass(function):
        return [f"{part!r}: {what}={shown(function)} is no function"]
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return [f"{part!r}: {what} is a generator"]
    if plain and is_coroutine(function):
        return [f"{part!r}: {what} must be a plain function: it is asked, and does nothing"]
    if not any(takes(function, count) for count in counts):
        called = " or ".join(_called_with[one] for one in counts)
        return [f"{part!r}: {what} {_shape(function)} is called with {called}"]
    return []


def is_coroutine(function: Any) -> bool:
    """Whether a call gives a coroutine, also of an object that can be called."""
    if isinstance(function, functools.partial):
        return is_coroutine(function.func)
    if inspect.isfunction(function) or inspect.ismethod(function):
        return inspect.iscoroutinefunction(function)
    return callable(function) and inspect.iscoroutinefunction(function.__call__)


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether it can be called with so many positional arguments; what cannot be known is taken for a yes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _shape(function: Any) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name}{inspect.signature(function)}"


def _of_compensations(parts: Sequence[Any], in_saga: bool) -> list[str]:
    found: list[str] = []
    for part in parts:
        if isinstance(part, Act) and part.compensate is not None and not in_saga:
            advice = "put it into Scene(…, saga=True), or give Play(saga=True)"
            found.append(f"{part!r}: compensate says nothing outside a saga: {advice}")
        inside = in_saga or (isinstance(part, Scene) and part.saga is True)
        found += _of_compensations(parts_in(part), inside)
    return found
