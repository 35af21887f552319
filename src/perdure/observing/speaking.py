"""Who is speaking: the step body or the workflow code that runs right here.

A step body is known by a context variable, which its tasks and its thread inherit; workflow code by the run that is
being driven in this thread. Both are set by the runtime, which needs them anyway, so asking is all that costs.
"""

import contextvars
import threading
from typing import Any, NamedTuple, Protocol


class Owner(Protocol):
    """A run in memory, as far as it is spoken of here."""

    run_id: str
    trace: str | None
    replaying: bool

    @property
    def workflow(self) -> Any: ...


class Call(Protocol):
    """A step whose body runs."""

    path: str
    name: str
    attempt: int
    owner: Any


class Body(Protocol):
    """What runs in a context: emptied when the body has ended, whoever still holds it."""

    @property
    def call(self) -> Any: ...


current_step: contextvars.ContextVar[Any] = contextvars.ContextVar("perdure_step")


class _Driven(threading.local):
    """The run whose code is under way in this thread (runtime/branches.py says so), or None.

    Not a context variable: workflow code awaits nothing real, so nothing interleaves within a thread, and
    this costs a tenth of a microsecond.
    """

    run: Any = None


driven = _Driven()


class Speaker(NamedTuple):
    """Who speaks. Path and attempt are those of a step; workflow code has neither."""

    run_id: str
    workflow: str
    trace: str | None
    path: str | None = None
    attempt: int | None = None


def speaker() -> Speaker | None:
    """The step or the workflow that this is called in; None in any other code."""
    run = driven.run
    if run is not None:
        return Speaker(run.run_id, run.workflow.name, run.trace)
    body = current_step.get(None)
    call = None if body is None else body.call
    if call is None:
        return None
    run = call.owner
    return Speaker(run.run_id, run.workflow.name, run.trace, call.path, call.attempt)
