"""From plain threads into an event loop: one call that waits for its answer, and a loop in a thread of its own.

A call is a task of the loop, in a copy of the caller's context, so traces and the step that asks are known there. Who
is interrupted while waiting (Ctrl-C) cancels it, as one who awaits would. Nobody waits for a loop that does not run:
what was begun and lost is `OutcomeUnknown`, what never began is `NotRunning`.

A background that nobody closes is closed when the main thread ends. It holds up neither that nor a fork.
"""

import asyncio
import atexit
import concurrent.futures.thread  # its hook at the exit ends all executors: ours is registered later, and runs before
import functools
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, TypeVar

from perdure.errors import NotRunning, OutcomeUnknown, WrongLoop
from perdure.forks import Forks

log = logging.getLogger("perdure.sync")

T = TypeVar("T")

# How often one who waits looks whether the loop is still there.
_look_every_s = 1.0
# At the exit, for what is not known to wait for the bodies of steps: then the process may go.
_exit_s = 15.0


# --- one call ---


def ask(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Have a loop of another thread do something; gives what comes of it. Blocks."""
    answer: Future[T] = Future()
    try:
        _begin_in(loop, work, answer)
        while not _is_told(answer):
            if not loop.is_running():
                raise _lost(work)
        if answer.cancelled():
            raise _lost(work)
        return answer.result()
    finally:
        answer.cancel()  # whoever waited has left, at whatever line; of an answer that is told it changes nothing
        del answer  # or an error would hold itself, by way of this frame


def _begin_in(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], answer: Future[T]
) -> None:
    # Not `asyncio.run_coroutine_threadsafe`: who is interrupted in the midst of that has nothing to cancel.
    def begin() -> None:
        if answer.cancelled():
            work.close()
            return
        task = loop.create_task(work)
        task.add_done_callback(functools.partial(_tell, answer))
        answer.add_done_callback(functools.partial(_leave_off, loop, task))

    try:
        loop.call_soon_threadsafe(begin)
    except RuntimeError:  # the loop is closed
        work.close()
        raise _gone() from None


def _tell(answer: Future[T], task: asyncio.Task[T]) -> None:
    """In the loop: what came of it, if anybody still waits."""
    if task.cancelled():
        answer.cancel()
    elif (error := task.exception()) is not None:
        if answer.set_running_or_notify_cancel():
            answer.set_exception(error)
    elif answer.set_running_or_notify_cancel():
        answer.set_result(task.result())


def _leave_off(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any], answer: Future[Any]
) -> None:
    """In any thread: nobody waits any more."""
    if answer.cancelled():
        with suppress(RuntimeError):  # the loop is closed, and has cancelled what there was
            loop.call_soon_threadsafe(task.cancel)


def leave(loop: asyncio.AbstractEventLoop, items: AsyncGenerator[Any, None]) -> None:
    """Have an async generator closed where it runs; nobody waits for that."""

    def begin() -> None:
        closing = loop.create_task(_close(items))
        _closings.add(closing)
        closing.add_done_callback(_closings.discard)

    with suppress(RuntimeError):  # the loop is closed, and has closed what there was
        loop.call_soon_threadsafe(begin)


_closings: set[asyncio.Task[None]] = set()  # a loop itself does not hold its tasks


async def _close(items: AsyncGenerator[Any, None]) -> None:
    try:
        await items.aclose()
    except RuntimeError:
        log.debug("a stream is closed already: whoever read it was interrupted", exc_info=True)


def _is_told(answer: Future[Any]) -> bool:
    try:
        answer.exception(_look_every_s)
    except TimeoutError:  # of this look: one of the call itself is given, not raised
        return answer.done()
    except concurrent.futures.CancelledError:
        return True
    return True


def _lost(work: Coroutine[Any, Any, Any]) -> Exception:
    if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()
        return _gone()
    return OutcomeUnknown(
        "the event loop has ended before it answered: what was asked may have happened, and repeating it with the "
        "same key is safe"
    )


def _gone() -> NotRunning:
    return NotRunning("the event loop that this belongs to does not run (any more)")


# --- a loop of our own ---


class Background:
    """An event loop in a thread of its own, in which something is open."""

    def __init__(
        self,
        thing: AbstractAsyncContextManager[Any],
        name: str,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self._thing = thing
        self._is_busy = is_busy  # whether its closing waits for something that has a bound of its own, or a good reason
        self._forks = Forks.count
        self._opened: Future[None] = Future()
        self._over = asyncio.Event()
        self._opening: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self._ended = threading.Event()
        # A daemon: it must not keep the process from ending. In order it ends by `close`, at the latest at the exit.
        self._thread = threading.Thread(target=self._run, name=f"perdure-{name}", daemon=True)

    @property
    def is_ours(self) -> bool:
        """Whether it is of this process: a fork has no such thread."""
        return self._forks == Forks.count

    @property
    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def open(self) -> None:
        """Returns when the thing is open; raises what its opening has raised, and leaves nothing behind then."""
        _close_at_exit()
        _backgrounds.add(self)
        try:
            self._start()
            self._opened.result()
        except BaseException:
            self._end()
            self._join(_exit_s)
            raise

    def _start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError:  # the system has no more threads
            self.loop.close()
            self._ended.set()
            raise

    def close(self, within_s: float | None = None) -> None:
        """Close the thing in order, end the loop and its thread; raises what the closing has raised. Idempotent."""
        if threading.current_thread() is self._thread:
            raise WrongLoop(
                "this is the thread that would have to be waited for: close it from another one"
            )
        self._end()
        self._join(within_s)
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _end(self) -> None:
        with suppress(RuntimeError):  # it has ended by itself
            self.loop.call_soon_threadsafe(self._end_now)

    def _end_now(self) -> None:
        self._over.set()
        if self._opening is not None:
            self._opening.cancel()

    def _join(self, within_s: float | None) -> None:
        # Not by joining the thread: until Python 3.13 a join that is interrupted takes it for dead from then on.
        while not (ended := self._ended.wait(within_s)) and self._is_busy():
            pass
        if ended:
            if self._thread.ident is not None:
                self._thread.join()
            _backgrounds.discard(self)
        else:
            log.warning("what was open in the background could not be closed within %s s", within_s)

    # --- in the thread ---

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(self._hold())
        except asyncio.CancelledError:
            pass  # by whoever opens, or by code in the loop: either way all was closed
        except BaseException as error:  # also what ends a process: whoever closes is to hear of it
            self._failed = error
        finally:
            if not self._opened.done():
                self._opened.set_exception(self._failed or NotRunning("the opening was given up"))
            self._ended.set()

    async def _hold(self) -> None:
        self._opening = asyncio.current_task()
        if self._over.is_set():
            return
        async with self._thing:
            self._opening = None
            self._opened.set_result(None)
            await self._over.wait()


# --- the exit ---

_backgrounds: set[Background] = set()


def _close_all() -> None:
    """The main thread has ended, and threads can still be made: later no store could be closed any more."""
    for one in list(_backgrounds):
        try:
            if one.is_ours:
                one.close(_exit_s)
        except BaseException:
            log.exception("what was open in the background was not closed well at the exit")


@functools.cache
def _close_at_exit() -> None:
    # Hooks of `atexit` come too late: executors are gone by then. There is no public name for the earlier ones.
    getattr(threading, "_register_atexit", atexit.register)(_close_all)
