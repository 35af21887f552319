"""Who wants to know what a commit changed, in this process.

A wake is a hint: whoever misses one finds the truth in the store on the next slow poll.
"""

import asyncio
import weakref
from collections.abc import Callable

from perdure.errors import NotRunning
from perdure.model.outcomes import Wake
from perdure.model.records import RunRecord

_endings_unswept = 1000


class RunEnding:
    """Where the end of one run will be told. Shared by all handles of that run; lives as long as they do."""

    __slots__ = ("__weakref__", "_waiters", "run")

    def __init__(self) -> None:
        self.run: RunRecord | None = None
        self._waiters: tuple[asyncio.Future[RunRecord], ...] = ()

    @property
    def is_awaited(self) -> bool:
        return any(not waiter.done() for waiter in self._waiters)

    def tell(self, run: RunRecord) -> None:
        self.run = run
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(run)
        self._waiters = ()

    def give_up(self) -> None:
        """Nobody will tell any more: the app closes."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(NotRunning("the app was closed before the run ended"))

    def waiter(self) -> "asyncio.Future[RunRecord]":
        """Done when the run is told to have ended: at once if by this process, else by the slow poll."""
        waiter: asyncio.Future[RunRecord] = asyncio.get_running_loop().create_future()
        # Those who gave up are dropped when the next one comes: no try and finally around every await.
        others = [one for one in self._waiters if not one.done()] if self._waiters else ()
        self._waiters = (*others, waiter)
        return waiter


class WakeHub:
    """Passes wakes to the worker, and the end of a run to those who await its result."""

    def __init__(self) -> None:
        self._hear: Callable[[Wake], None] | None = None
        # Bare references, the dead ones swept now and then: a WeakValueDictionary costs four times as much,
        # and this is paid for every run that is started.
        self._endings: dict[str, weakref.ref[RunEnding]] = {}
        self._sweep_at = _endings_unswept

    def attach(self, hear: Callable[[Wake], None] | None) -> None:
        """The worker listens from now on (None: nobody does)."""
        self._hear = hear

    def pass_on(self, wake: Wake) -> None:
        if wake.kind == "ended":
            found = self._endings.get(wake.run_id)
            ending = None if found is None else found()
            if ending is not None and wake.run is not None:
                ending.tell(wake.run)
        if self._hear is not None:
            self._hear(wake)

    def close(self) -> None:
        """Release those who await the end of a run."""
        for found in list(self._endings.values()):
            ending = found()
            if ending is not None:
                ending.give_up()

    def awaited(self) -> list[str]:
        """The runs whose end somebody here awaits."""
        return [
            run_id
            for run_id, found in self._endings.items()
            if (ending := found()) is not None and ending.is_awaited
        ]

    def ending(self, run_id: str) -> RunEnding:
        """Where the end of this run will be told."""
        found = self._endings.get(run_id)
        ending = None if found is None else found()
        if ending is None:
            ending = RunEnding()
            self._endings[run_id] = weakref.ref(ending)
            if len(self._endings) > self._sweep_at:
                self._sweep()
        return ending

    def _sweep(self) -> None:
        dead = [run_id for run_id, found in self._endings.items() if found() is None]
        for run_id in dead:
            del self._endings[run_id]
        self._sweep_at = 2 * len(self._endings) + _endings_unswept
