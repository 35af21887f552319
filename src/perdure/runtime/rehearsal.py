"""A replay for its own sake: code meets a recorded history, with no store, and no step is run.

What the code would do next is looked at and goes nowhere. So it can be asked, before new code is let near living runs,
whether it still asks for what they have recorded.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from perdure.channels import Queue, Signal, Topic
from perdure.errors import NonDeterminism, PerdureError, Undecodable
from perdure.inputs import find_dep
from perdure.model import limits, ops
from perdure.model.records import ErrorRecord, RunRecord, StepRecord
from perdure.registry import Registry, Step, Workflow
from perdure.runtime.calls import StepCall
from perdure.runtime.turn import Execution

T = TypeVar("T")


def rehearse(
    registry: Registry,
    deps: tuple[object, ...],
    workflow: Workflow[Any, *tuple[Any, ...]],
    run: RunRecord,
    steps: list[StepRecord],
) -> PerdureError | None:
    """What keeps this code from going on with that history; None if it fits. Needs a running loop."""
    stage = _Stage(registry, deps, run.created_at)
    execution = Execution(stage, run, workflow, steps)
    try:
        execution.begin()
        return execution.failure or stage.rejected or _wrong_end(run, stage, execution)
    finally:
        execution.evict()


def _wrong_end(run: RunRecord, stage: "_Stage", execution: Execution) -> PerdureError | None:
    """Of a run that has completed: whether the code comes to that end, with that result."""
    if run.status != "completed":
        return None
    recorded = f"the end of the workflow, with {limits.shown(run.output)}"
    end = stage.end
    if end is None:
        calls = ", ".join(f"{one.kind} {one.name!r}" for one in execution.standing[:3])
        path = execution.standing[0].path if execution.standing else "the end"
        return NonDeterminism(path, recorded, calls or "a new generation")
    if end.status != "completed":
        error = msgspec.json.decode(end.error or "{}", type=ErrorRecord)
        asked = f"to end as {end.status}: {error.type}: {error.message}"
        return NonDeterminism("the end", recorded, asked)
    if end.output != run.output:
        return NonDeterminism("the end", recorded, f"to end with {limits.shown(end.output)}")
    return None


class _Stage:
    """Plays the worker: takes everything, does nothing."""

    worker_id = ""
    counts = spans = None  # nobody watches

    def __init__(self, registry: Registry, deps: tuple[object, ...], now: int) -> None:
        self.registry = registry
        self.end: ops.Finish | None = None
        self.rejected: Undecodable | None = None
        self.as_step: Callable[[Any], Step[..., Any]] = Step
        self._deps = deps
        self._now = now

    def post(self, op: ops.Op[Any], done: Any, extra: Any) -> None:
        if isinstance(op, ops.Finish):
            self.end = op
        elif isinstance(op, ops.RejectSignal) and not op.passed:
            self.rejected = Undecodable(op.path, op.reason)

    def time(self) -> int:
        return self._now

    def dep(self, kind: type[T]) -> T:
        return find_dep(self._deps, kind)

    def release_on_park(self) -> bool:
        return False

    def run_body(self, call: StepCall[Any]) -> None:
        """Not here."""

    def run_transaction(self, call: StepCall[Any]) -> None:
        """Neither."""

    def check_transaction(self, step: Step[..., Any]) -> None:
        """Whether the store can do that is not asked: there is none."""

    def check_filter(self, text: str) -> None:
        """It was checked when the wait was opened."""

    def note_signal(self, workflow: Any, signal: Signal[Any]) -> None:
        """Nobody keeps a catalogue."""

    def note_channel(self, channel: Topic[Any] | Queue[Any]) -> None:
        """Likewise."""

    def on_parked(self, execution: Execution, released: bool) -> None:
        """Nothing is answered, so nothing parks, ends, or is lost."""

    def on_over(self, execution: Execution) -> None:
        """Likewise."""

    def on_lost(self, execution: Execution) -> None:
        """Likewise."""

    def reload(self, execution: Execution, pause_s: float = 0.0) -> None:
        """Likewise."""
