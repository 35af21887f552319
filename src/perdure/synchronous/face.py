"""How a blocking method is made of an async verb.

A face stands before a real object (an App, a Client, a handle) and has a method for each of its verbs, with the same
name, arguments, outcomes and errors: the call is carried out in the loop that the real object belongs to, while the
thread that calls waits. Handles come back behind faces of their own, async iterators as iterators, everything else as
it is.

Whoever would wait for itself is told so at once: code that runs in that very loop, and a body that the loop waits for.
"""

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from types import TracebackType
from typing import Any, ClassVar, Self

from perdure.errors import ForeignAwait, NotRunning, WrongLoop
from perdure.forks import Forks
from perdure.observing.speaking import current_step, driven
from perdure.posting import Confined
from perdure.runtime.calls import TransactionCall
from perdure.synchronous.bridge import Background, ask, leave

# Verbs that are no coroutines, and belong to the loop all the same.
_also = frozenset({"run", "stream", "schedule", "approval_link"})
# What these are given may be made by code of the caller's while it is read: that is done in the caller's thread.
_read_here = frozenset({"signal_many", "emit_many"})


def verbs_of(kind: type) -> list[str]:
    """The verbs of a class, by name: what a face of it has."""
    return [
        name
        for name, one in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and (inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) or name in _also)
    ]


def give_verbs(face: "type[Face]", kind: type) -> None:
    """Give a face a blocking method for each verb of a class, but for those that it has already."""
    for name in verbs_of(kind):
        if name not in vars(face):
            setattr(face, name, _blocking(name, getattr(kind, name)))


def _blocking(name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(verb)
    def call(self: Face, *args: Any, **options: Any) -> Any:
        return self._ask(name, args, options)

    # Whoever unwraps it, as web frameworks do, would take it for a coroutine function.
    call.__signature__ = inspect.signature(verb)  # type: ignore[attr-defined]
    del call.__wrapped__
    return call


# --- faces ---


class Face:
    """What stands before a real object, for threads that may wait."""

    # How code that uses it calls it, and what it stands before.
    _said: ClassVar[str]
    _said_real: ClassVar[str]

    def __init__(self, real: Any, opener: "Opener") -> None:
        self._real = real
        self._opener = opener

    def _ask(self, verb: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        loop = self._loop_for(verb)
        if verb in _read_here:
            args = tuple(map(_read, args))
            options = {name: _read(one) for name, one in options.items()}
        connection = options.get("connection")
        if connection is not None:
            connection = options["connection"] = Confined(connection)
        answer = ask(loop, _carried_out(getattr(self._real, verb), args, options))
        if connection is not None:
            connection.write()
        return self._faced(verb, answer, loop)

    def _loop_for(self, verb: str) -> asyncio.AbstractEventLoop:
        """The loop that is to do it. Raises if there is none, or if it would have to wait for this thread."""
        loop = self._opener._loop()
        said = f"{self._said}.{verb}"
        if driven.run is not None:
            raise ForeignAwait(
                f"workflow code called {said}, which is not durable: use the verbs of ctx, or call it in a step"
            )
        body = current_step.get(None)
        if body is not None and isinstance(body.call, TransactionCall):
            raise ForeignAwait(
                f"{said} was called in a transaction, and the app waits for that: call it in another step"
            )
        if asyncio._get_running_loop() is loop:
            raise WrongLoop(
                f"{said} was called in the thread of the event loop that it would have to wait for: use "
                f"`{self._instead(verb)}` there"
            )
        return loop

    def _instead(self, verb: str) -> str:
        real, call = getattr(type(self._real), verb), f"{self._said_real}.{verb}(…)"
        if verb == "stream" or inspect.isasyncgenfunction(real):
            return f"async for … in {call}"
        return f"await {call}" if verb == "schedule" or inspect.iscoroutinefunction(real) else call

    # --- what is given back ---

    def _faced(self, verb: str, answer: Any, loop: asyncio.AbstractEventLoop) -> Any:
        if isinstance(answer, AsyncGenerator):
            return self._iterated(verb, answer, loop)
        if verb == "signal_with_start":
            handle, sent = answer
            return self._opener._run(handle, self._opener), sent
        if isinstance(answer, self._opener._handle):
            return self._opener._run(answer, self._opener)
        return answer

    def _iterated(
        self, verb: str, items: AsyncGenerator[Any, None], loop: asyncio.AbstractEventLoop
    ) -> Generator[Any, None, None]:
        """Each item is asked for when it is wanted."""
        try:
            while True:
                if self._loop_for(verb) is not loop:
                    raise NotRunning(f"what {self._said}.{verb} reads was closed since")
                item = ask(loop, _next(items))
                if item is _no_more:
                    return
                yield item
        finally:
            # Nobody waits for it: an iterator may be dropped by the collector, in any thread.
            leave(loop, items)


def _read(one: Any) -> Any:
    return list(one) if isinstance(one, Iterable) else one


async def _carried_out(
    verb: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    made = verb(*args, **options)
    return await made if inspect.isawaitable(made) else made


_no_more: Any = object()


async def _next(items: AsyncGenerator[Any, None]) -> Any:
    return await anext(items, _no_more)


# --- faces of what is opened ---

# To look whether it is open and to say that it is, by one thread at a time; no fork is made in the midst of that.
_opening = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_opening.acquire,
        after_in_parent=_opening.release,
        after_in_child=_opening.release,
    )


class Opener(Face):
    """A face of something that is opened, in a loop in a thread of its own, and closed."""

    # What the real object gives for a run, and the face of that.
    _handle: ClassVar[type]
    _run: ClassVar[type[Face]]

    def __init__(self, real: Any, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        super().__init__(real, self)
        # The loop that it is open in; raises NotRunning or AfterFork if there is none for this process.
        self._loop = loop
        self._background: Background | None = None

    def open(self) -> Self:
        """Open it in the background, as `with` does. Closed by `close`, or at the latest when the main thread ends."""
        with _opening:
            before = self._background
            if before is not None and before.is_ours and before.is_alive:
                raise NotRunning(f"{self._said} is open already: it is opened once at a time")
            if before is not None and not before.is_ours:
                Forks.inherited.append(before)
            background = self._background = Background(
                self._real, self._said, self._waits_for_steps
            )
        try:
            background.open()
        except BaseException:
            self._background = None
            raise
        return self

    def _waits_for_steps(self) -> bool:
        return False

    def close(self) -> None:
        """Close what `open` has opened, in order: steps that are under way may end first. Idempotent."""
        background = self._background
        if background is not None and background.is_ours:
            try:
                background.close()
            finally:
                if not background.is_alive:
                    self._background = None

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
