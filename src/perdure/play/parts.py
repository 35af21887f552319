"""The parts of a play: plain values that say what happens, and do nothing.

A callback gets `(ctx, state, …)`: `ctx` is the `StepInfo` of the step that it runs in, `state` a copy of its own, which
it changes, or gives another one back for. Conditions and choices get the state alone, or `(ctx, state)`. What is wrong
with a part is said by the play that it is put into, together with everything else (`checking`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from perdure.channels import Signal
from perdure.model.duration import Duration
from perdure.model.policy import Retry
from perdure.registry import Workflow
from perdure.runtime.steps import StepInfo

S = TypeVar("S")

Callback = Callable[[StepInfo, S], object]
Condition = Callable[[S], object] | Callable[[StepInfo, S], object]


class Part(Generic[S]):
    """A part of a play, by a name that no other part of it has. It is passed over if its `condition` says no."""

    kind = "part"

    def __init__(self, name: str, condition: Condition[S] | None) -> None:
        self.name = name
        self.condition = condition

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class Act(Part[S]):
    """Something that is done: a step. `compensate(ctx, state)` undoes it, if the saga around it fails later."""

    kind = "act"

    def __init__(
        self,
        name: str,
        function: Callback[S],
        *,
        compensate: Callback[S] | None = None,
        condition: Condition[S] | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
    ) -> None:
        super().__init__(name, condition)
        self.function = function
        self.compensate = compensate
        self.retry = retry
        self.timeout = timeout


class Scene(Part[S]):
    """Parts one after the other. With `saga=True` what its acts did is undone, the last first, if it fails."""

    kind = "scene"

    def __init__(
        self,
        name: str,
        parts: "Sequence[Part[S] | Signal[Any]]",
        *,
        saga: bool = False,
        condition: Condition[S] | None = None,
    ) -> None:
        super().__init__(name, condition)
        self.parts = _kept(parts)
        self.saga = saga


class Chorus(Part[S]):
    """Parts side by side, each on a copy of the state. Each changes fields of its own, which are put together after."""

    kind = "chorus"

    def __init__(
        self,
        name: str,
        parts: "Sequence[Part[S] | Signal[Any]]",
        *,
        condition: Condition[S] | None = None,
    ) -> None:
        super().__init__(name, condition)
        self.parts = _kept(parts)


class Cue(Part[S]):
    """A choice: `choose(state)` says which of the ways the play goes on. `"else"` is for every other answer."""

    kind = "cue"

    def __init__(
        self,
        name: str,
        choose: Callable[[S], str] | Callable[[StepInfo, S], str],
        ways: "Mapping[str, Part[S] | Signal[Any] | Sequence[Part[S] | Signal[Any]] | None]",
        *,
        condition: Condition[S] | None = None,
    ) -> None:
        super().__init__(name, condition)
        self.choose = choose
        self.ways = ways
        if isinstance(ways, Mapping):
            self.ways = {answer: _kept(way) for answer, way in ways.items()}


class Sleep(Part[S]):
    """A pause: so long, or as long as a function of the state says."""

    kind = "sleep"

    def __init__(
        self,
        name: str,
        duration: Duration | Callable[[S], Duration],
        *,
        condition: Condition[S] | None = None,
    ) -> None:
        super().__init__(name, condition)
        self.duration = duration


class Call(Part[S]):
    """A child run, waited for. `input(state)` gives its argument, or a tuple of them; `on_result(ctx, state, result)`
    takes what came of it."""

    kind = "call"

    def __init__(
        self,
        name: str,
        workflow: Workflow[Any, *tuple[Any, ...]],
        *,
        input: Callable[[S], Any] | None = None,
        on_result: Callable[[StepInfo, S, Any], object] | None = None,
        retry: Retry | None = None,
        condition: Condition[S] | None = None,
    ) -> None:
        super().__init__(name, condition)
        self.workflow = workflow
        self.input = input
        self.on_result = on_result
        self.retry = retry


AnyPart = Part[Any] | Signal[Any]


def _kept(parts: Any) -> Any:
    """As they are now: what becomes of the list later is no matter. What is no list is told of by `checking`."""
    return tuple(parts) if isinstance(parts, list) else parts


def way_parts(way: Any) -> list[Any]:
    """What stands behind an answer of a cue: nothing, a part, or several."""
    if way is None:
        return []
    return list(way) if isinstance(way, list | tuple) else [way]


def parts_in(part: Any) -> list[Any]:
    """The parts directly inside another."""
    if isinstance(part, Scene | Chorus):
        return list(part.parts) if isinstance(part.parts, list | tuple) else []
    if isinstance(part, Cue) and isinstance(part.ways, Mapping):
        inside = [one for way in part.ways.values() for one in way_parts(way)]
        return [one for one in inside if isinstance(one, Part | Signal)]
    return []


def walk(parts: Sequence[Any]) -> Iterator[Any]:
    """All parts, each before those inside it."""
    for part in parts:
        yield part
        yield from walk(parts_in(part))
