"""Sagas: what was done is undone, the last first, when what comes after it fails.

To undo is to run steps, each recorded and tried again as its own policy says. It happens on failure, on cancel and on
timeout alike, because all of them are errors that pass through the code. If the roll-back itself fails somewhere, the
rest is undone all the same; the run fails, and a retry tries again just what failed. A run that was rolled back and
is retried begins again where the saga began: what was undone must be done anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from perdure.errors import ForeignAwait, RollbackFailed, StepFailed
from perdure.model import limits
from perdure.model.limits import BadValue, check_name
from perdure.model.records import ROLLBACK
from perdure.registry import Step
from perdure.runtime.calls import Durable
from perdure.runtime.failures import arising, both, noted, undoing
from perdure.runtime.paths import Within

if TYPE_CHECKING:
    from perdure.runtime.context import Context

P = ParamSpec("P")
R = TypeVar("R")

# Errors of the code that runs; anything else means that the run leaves memory.
FAILURES = (Exception, asyncio.CancelledError)


class Saga:
    """What is to be undone if the code inside `async with ctx.saga() as saga` does not come through."""

    def __init__(self, ctx: "Context", name: str) -> None:
        self._ctx = ctx
        self._name = check_name("saga", name)
        self._undo: list[Callable[[], Durable[Any]]] = []
        self._within: Within | None = None
        self._over = False

    @overload
    def on_rollback(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    @overload
    def on_rollback(
        self, step: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> None: ...
    @overload
    def on_rollback(self, step: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    def on_rollback(self, step: Any, /, *args: Any, **kwargs: Any) -> None:
        """Have this step run if the saga fails from here on: the one that was told last comes first."""
        if self._within is None or self._over:
            raise ForeignAwait(
                "on_rollback counts inside its saga: `async with ctx.saga() as saga`"
            )
        if len(self._undo) >= limits.rollbacks_max:
            bound = f"at most {limits.rollbacks_max} (rollbacks_max)"
            raise BadValue("saga.on_rollback", len(self._undo) + 1, f"steps to undo; {bound}")
        made = step if type(step) is Step else self._ctx._execution.host.as_step(step)
        self._undo.append(lambda: self._ctx.step(made, *args, **kwargs))

    async def __aenter__(self) -> Self:
        if self._within is not None:
            raise RuntimeError(f"the saga {self._name!r} was entered before; call ctx.saga anew")
        self._within = Within(self._ctx._execution, self._name)
        self._within.__enter__()
        self._prefix = self._ctx._execution.current_branch().prefix
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._within is not None
        self._over = True
        try:
            if isinstance(error, FAILURES) and self._undo:
                with Within(self._ctx._execution, ROLLBACK):
                    left = await roll_back(reversed(self._undo), error, self._prefix)
                if left is not error:
                    raise left
        finally:
            self._within.__exit__()


async def roll_back(
    undo: Iterable[Callable[[], Durable[Any]]],
    error: BaseException,
    undone: str,
    take: Callable[[Any], None] = lambda result: None,
) -> BaseException:
    """Undo one after the other; gives what is to be raised then, marked so that a retry begins anew at `undone`.

    That is the error itself, or a cancel that came meanwhile, unless a roll-back inside this one had failed. Raises
    RollbackFailed if some could not be undone.
    """
    failed: list[tuple[str, str]] = []
    for make in undo:
        while True:
            call = make()
            try:
                take(await call)
            except asyncio.CancelledError as cancelled:
                # It comes once, and finds the roll-back under way: what it broke off is begun again.
                error = both(cancelled, error)
            except Exception as refused:
                failed.append((call.path, _words(refused)))
                break
            else:
                break
    if failed:
        raise _rollback_failed(failed, error, undone)
    return undoing(error, undone=(undone,))


def _rollback_failed(
    failed: list[tuple[str, str]], error: BaseException, undone: str
) -> BaseException:
    """With what a saga inside this one could not undo either: one retry is for all of them."""
    paths = tuple(path for path, _ in failed)
    first = _words(error)
    if isinstance(error, RollbackFailed):
        failed, first = [*error.failed, *failed], error.first
    raised = arising(RollbackFailed(failed, first), paths[0])
    return undoing(undoing(raised, **noted(error)), undone=(undone,), redo=paths)


def _words(error: BaseException) -> str:
    if isinstance(error, StepFailed):
        return f"{error.type}: {error.message}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
