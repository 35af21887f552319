"""Who wants to know what a commit changed, in this process.

A wake is a hint: whoever misses one finds the truth in the store on the next slow poll.
"""

import asyncio
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perdure.errors import NotRunning
from perdure.model.outcomes import Wake
from perdure.model.records import RunRecord

_endings_unswept = 1000
_waiters_unswept = 8


class RunEnding:
    """Where the end of one run will be told. Shared by all handles of that run; lives as long as they do."""

    __slots__ = ("__weakref__", "_others", "_sweep_at", "_waiter", "closed", "run")

    def __init__(self, closed: bool = False) -> None:
        self.run: RunRecord | None = None
        self.closed = closed  # nobody will tell any more
        # Most are awaited by one at most: no list for that one.
        self._waiter: asyncio.Future[RunRecord] | None = None
        self._others: list[asyncio.Future[RunRecord]] | tuple[()] = ()
        self._sweep_at = _waiters_unswept

    @property
    def is_awaited(self) -> bool:
        if self._waiter is not None and not self._waiter.done():
            return True
        return any(not waiter.done() for waiter in self._others)

    def tell(self, run: RunRecord) -> None:
        self.run = run
        if self._waiter is not None:
            for waiter in self._taken():
                waiter.set_result(run)

    def give_up(self) -> None:
        """Nobody will tell any more: the app closes."""
        self.closed = True
        for waiter in self._taken():
            waiter.set_exception(too_late())

    def _taken(self) -> "list[asyncio.Future[RunRecord]]":
        """Those who wait, told once."""
        waiters = [
            one for one in (self._waiter, *self._others) if one is not None and not one.done()
        ]
        self._waiter, self._others = None, ()
        return waiters

    def waiter(self) -> "asyncio.Future[RunRecord]":
        """Done when the run is told to have ended. Raises NotRunning when nobody will tell any more."""
        if self.closed:
            raise too_late()
        waiter: asyncio.Future[RunRecord] = asyncio.get_running_loop().create_future()
        if self._waiter is None or self._waiter.done():
            self._waiter = waiter
            return waiter
        # Those who gave up are dropped now and then: no try and finally around every await.
        if len(self._others) >= self._sweep_at:
            self._others = [one for one in self._others if not one.done()]
            self._sweep_at = 2 * len(self._others) + _waiters_unswept
        if not self._others:
            self._others = []
        self._others.append(waiter)
        return waiter


def too_late() -> NotRunning:
    return NotRunning("the app was closed before the run ended")


class WakeHub:
    """Passes wakes to the worker, and the end of a run to those who await its result."""

    def __init__(self) -> None:
        self._hear: Callable[[Wake], None] | None = None
        self._readers: list[Callable[[Wake], None]] = []
        # Bare references, the dead ones swept now and then: a WeakValueDictionary costs four times as much,
        # and this is paid for every run that is started.
        self._endings: dict[str, weakref.ref[RunEnding]] = {}
        self._sweep_at = _endings_unswept
        self._awaited: dict[
            str, RunEnding
        ] = {}  # also some that no longer are, until they are asked for
        self._closed = False
        # Who wants to know that a run has published something ("stream"; or that a signal was answered, by its id), or
        # that it has ended.
        self._listeners: dict[tuple[str, str], set[asyncio.Event]] = {}

    @property
    def closed(self) -> bool:
        """Whether the app is closing: nobody will be told of anything any more."""
        return self._closed

    def attach(self, hear: Callable[[Wake], None] | None) -> None:
        """The worker listens from now on (None: nobody does)."""
        self._hear = hear

    def attach_reader(self, hear: Callable[[Wake], None]) -> Callable[[], None]:
        """Readers of the ledger hear what concerns them; gives a way to stop listening."""
        self._readers.append(hear)
        return lambda: self._readers.remove(hear)

    @contextmanager
    def listening(self, stream: str, ended: str) -> "Iterator[asyncio.Event]":
        """An event that is set whenever something has come of `stream`, or a run has ended, as far as we hear.

        `stream` is a run that publishes, or a signal that is answered: of many who ask one run, one is roused by an
        answer, and not all.
        """
        heard = asyncio.Event()
        places = (("stream", stream), ("ended", ended))
        for place in places:
            self._listeners.setdefault(place, set()).add(heard)
        try:
            yield heard
        finally:
            for place in places:
                listeners = self._listeners[place]
                listeners.discard(heard)
                if not listeners:
                    del self._listeners[place]

    def rouse(self, kind: str, name: str) -> None:
        """Have those look who listen for it."""
        for heard in self._listeners.get((kind, name), ()):
            heard.set()

    def rouse_all(self) -> None:
        for kind, name in self._listeners:
            self.rouse(kind, name)

    def pass_on(self, wake: Wake) -> None:
        if self._listeners and wake.kind in ("stream", "ended"):
            self.rouse(wake.kind, wake.run_id)
        if wake.kind == "ended":
            found = self._endings.get(wake.run_id)
            ending = None if found is None else found()
            if ending is not None and wake.run is not None:
                ending.tell(wake.run)
                self._awaited.pop(wake.run_id, None)
        if wake.kind in ("consumer", "match"):
            for hear in self._readers:
                hear(wake)
        elif wake.kind == "stream":
            pass  # of no concern to the worker
        elif self._hear is not None:
            self._hear(wake)

    def close(self) -> None:
        """Release those who await the end of a run; whoever comes later is refused."""
        self._closed = True
        self._awaited.clear()
        self.rouse_all()
        for found in list(self._endings.values()):
            ending = found()
            if ending is not None:
                ending.give_up()

    def waiter(self, run_id: str, ending: RunEnding) -> "asyncio.Future[RunRecord]":
        """Done when the run has ended: told at once if it ends in this process, else by the slow poll."""
        waiter = ending.waiter()
        self._awaited[run_id] = ending
        return waiter

    def awaits(self, run_id: str) -> bool:
        """Whether somebody here has a handle on this run, and awaits its end now or later."""
        found = self._endings.get(run_id)
        return found is not None and found() is not None

    def awaited(self) -> list[str]:
        """The runs whose end somebody here awaits."""
        idle = [run_id for run_id, ending in self._awaited.items() if not ending.is_awaited]
        for run_id in idle:
            del self._awaited[run_id]
        return list(self._awaited)

    def ending(self, run_id: str) -> RunEnding:
        """Where the end of this run will be told."""
        found = self._endings.get(run_id)
        ending = None if found is None else found()
        if ending is None:
            ending = RunEnding(self._closed)
            self._endings[run_id] = weakref.ref(ending)
            if len(self._endings) > self._sweep_at:
                self._sweep()
        return ending

    def _sweep(self) -> None:
        dead = [run_id for run_id, found in self._endings.items() if found() is None]
        for run_id in dead:
            del self._endings[run_id]
        self._sweep_at = 2 * len(self._endings) + _endings_unswept
