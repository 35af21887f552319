"""Running step bodies: the only place where user code meets the outside world.

A body runs in a real task (async def) or in our own thread pool (def). Whatever comes of an attempt becomes a
`StepDone`: a result as it will be read back, a failure to be tried again, or a final one.
"""

import asyncio
import contextvars
import functools
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from perdure.errors import PerdureError, Permanent, RetryAfter
from perdure.model.clock import Clock
from perdure.model.codec import Unencodable
from perdure.model.ops import StepDone
from perdure.model.policy import next_delay_us
from perdure.model.records import RunRecord
from perdure.observing.spans import Open, Spans
from perdure.observing.speaking import current_step
from perdure.registry import Step
from perdure.runtime.calls import StepCall
from perdure.runtime.failures import step_error, step_failure
from perdure.runtime.publishing import Outgoing

T = TypeVar("T")

# Runs begun and bodies ended at once before the loop gets a turn: a batch's worth. The loop's turn has its price:
# the writer thread is made to wait for the interpreter anew, and a small batch goes before its time.
_turns_per_breath = 2000

# Cancelled bodies may clean up for so long.
_cleanup_s = 5.0
# How often it is said that a close waits.
_again_s = 60.0

log = logging.getLogger("perdure.runtime")

_ends_the_process = (KeyboardInterrupt, SystemExit)


class StepInfo:
    """What a running step may know of itself: `perdure.step_info()`."""

    __slots__ = ("_current", "_find", "attempt", "generation", "path", "run_id")

    def __init__(self, call: StepCall[Any], current: "Current") -> None:
        self.run_id: str = call.owner.run_id
        self.generation: int = call.owner.generation
        self.path = call.path
        self.attempt = call.attempt
        self._find = call.owner.host.dep
        self._current = current

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt of this (run, generation, path): give it to the outside world."""
        return f"{self.run_id}/{self.generation}/{self.path}"

    def dep(self, kind: type[T]) -> T:
        """The object of that type given as App(deps=[…])."""
        found: T = self._find(kind)
        return found

    def heartbeat(self) -> None:
        """Say that the step is alive: its timeout starts anew."""
        if self._current.beat is not None:
            self._current.beat()

    def publish(self, stream: str, item: Any) -> None:
        """Add an item to a stream of the run: readers of `run.stream(stream)` get it soon. Does not wait.

        All of it is stored before the step's own result. An attempt that is tried again publishes again: each item
        says of which attempt it is. Raises Overloaded if too much waits to be stored.
        """
        self._current.take_outgoing(self.path, self.attempt).publish(stream, item)


# Two threads of one body may be the first to publish.
_first_to_publish = threading.Lock()


class Current:
    """What runs in a context: emptied when the body has ended, whoever still holds it."""

    __slots__ = ("beat", "call", "outgoing", "span")

    def __init__(self) -> None:
        self.span: Open | None = None  # of whom somebody watches
        self.call: StepCall[Any] | None = None
        self.beat: Callable[[], None] | None = None
        self.outgoing: Outgoing | None = None  # made when something is published

    def take_outgoing(self, path: str, attempt: int) -> Outgoing:
        with _first_to_publish:
            if self.outgoing is None:
                if self.call is None:
                    raise Outgoing.is_over(path, attempt)
                self.outgoing = Outgoing(self.call)
            return self.outgoing


def step_info() -> StepInfo:
    """About the step that is running: run id, path, attempt, idempotency key, dep, heartbeat, publish."""
    current: Current | None = current_step.get(None)
    if current is None or current.call is None:
        raise PerdureError("step_info() was called outside a step that a workflow runs")
    return StepInfo(current.call, current)


class _Rest:
    """The rest of a body that has suspended: awaited in the task that began it."""

    __slots__ = ("_asked", "_body")

    def __init__(self, body: Coroutine[Any, Any, Any], asked: Any) -> None:
        self._body = body
        self._asked = asked

    def __await__(self) -> Generator[Any, Any, Any]:
        body, asked = self._body, self._asked
        while True:
            try:
                sent = yield asked
            except BaseException as error:
                send = functools.partial(body.throw, error)
            else:
                send = functools.partial(body.send, sent)
            try:
                asked = send()
            except StopIteration as stop:
                return stop.value


class Bodies:
    """Runs step bodies for one worker.

    A body runs inside a real task, so timeouts and cancellation work as everywhere. The tasks are shared: a runner
    takes one body after the other for as long as they end without suspending, which costs a microsecond each
    where a task of its own costs six. When a body suspends, other runners take over the queue. A body that leaves
    its mark in the context variables takes its runner with it.
    """

    def __init__(
        self,
        clock: Clock,
        die: Callable[[], float],
        threads: int,
        give_birth: Callable[[RunRecord, tuple[Any, ...]], None],
        spans: Spans | None = None,
    ) -> None:
        self._spans = spans
        self._clock = clock
        self._die = die
        self._give_birth = give_birth
        self._births: deque[tuple[RunRecord, tuple[Any, ...]]] = deque()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="perdure-step")
        self._context = contextvars.copy_context()
        self._queue: deque[StepCall[Any]] = deque()
        self._runners: set[asyncio.Task[None]] = set()
        self._suspended: set[StepCall[Any]] = set()  # whose bodies have begun and not ended
        # Of plain functions, which nobody can stop: a thread may go on after its attempt has timed out.
        self._threads: dict[Future[Any], StepCall[Any]] = {}
        self._closing = False
        self._on_end: Callable[[], None] = lambda: None  # while closing
        self._free = 0  # runners that will look at the queue again without anybody's doing

    def run(self, call: StepCall[Any]) -> None:
        """Start the body of a call; `call.owner.on_body` is told in the loop what came of it."""
        if self._closing:
            return  # the run is handed back as it stands; whoever takes it begins this step
        call.cancelled = False
        self._queue.append(call)
        if not self._free:
            self._add_runner()

    def begin(self, run: RunRecord, args: tuple[Any, ...]) -> None:
        """Begin a run that was just started, once no body waits.

        So one run after the other goes as far as it can. If all of a batch were begun first and then all their
        bodies, ten times as much would be in memory at once, for the processor's cache and the collector.
        """
        if self._closing:  # then at once: the worker hands back what it has when all is answered
            self._give_birth(run, args)
            return
        self._births.append((run, args))
        if not self._free:
            self._add_runner()

    # --- the end ---

    def begin_no_more(self, on_end: Callable[[], None]) -> None:
        """What has not begun never does here: it is the next worker's. `on_end` hears of each body that ends yet."""
        self._closing, self._on_end = True, on_end
        while self._births:
            self._give_birth(*self._births.popleft())  # to be handed back with all others
        self._queue.clear()
        for thread in list(self._threads):
            thread.cancel()  # it stood in line for one

    @property
    def in_flight(self) -> list[StepCall[Any]]:
        """The calls whose bodies run now and are wanted, or have outlived their attempt. Asked in any thread."""
        begun = [call for call in list(self._suspended) if not call.cancelled]
        return list(dict.fromkeys((*begun, *self.in_threads)))

    @property
    def in_threads(self) -> list[StepCall[Any]]:
        """Those of them that nobody can stop."""
        return [call for call in list(self._threads.values()) if not call.cancelled]

    async def drain(self, grace_s: float) -> None:
        """Let bodies in flight end: what can be cancelled within the grace, then it is; threads take their time."""
        if self._runners:
            await asyncio.wait(self._runners, timeout=grace_s)
        await self._cancel(self._runners - {call.task for call in self.in_threads})
        while threads := [one for one, call in self._threads.items() if not call.cancelled]:
            await asyncio.wait([asyncio.wrap_future(one) for one in threads], timeout=_again_s)
            if left := self.in_threads:
                log.warning(
                    "closing still waits for threads, which nobody can stop: %s", named(left)
                )
        if self._runners:  # they store what the bodies have published
            await asyncio.wait(self._runners, timeout=_cleanup_s)
        await self.cut_off()

    async def cut_off(self) -> None:
        """Wait for nobody any more, but for what cancelled bodies clean up."""
        await self._cancel(self._runners)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _cancel(self, runners: set[asyncio.Task[None]]) -> None:
        cancelled, threads = list(runners), self.in_threads
        cut = [one for one in self.in_flight if one.task in runners and one not in threads]
        if cut:
            log.warning("closing cuts off steps, which begin anew elsewhere: %s", named(cut))
        for runner in cancelled:
            runner.cancel()
        if cancelled:
            await asyncio.wait(cancelled, timeout=_cleanup_s)

    def until_over(self) -> threading.Event:
        """Set when all that is in flight now has ended, in whichever thread that happens."""
        over, lock = threading.Event(), threading.Lock()
        ends: list[Any] = [one for one, call in self._threads.items() if not call.cancelled]
        ends += [call.task for call in self._suspended if call.task is not None]
        left = len(ends)
        if not left:
            over.set()

        def count(end: Any) -> None:
            nonlocal left
            with lock:
                left -= 1
            if not left:
                over.set()

        for end in ends:
            end.add_done_callback(count)
        return over

    # --- runners ---

    def _add_runner(self) -> None:
        self._free += 1
        loop = asyncio.get_running_loop()
        runner = loop.create_task(self._run_queue(), context=self._context.copy())
        self._runners.add(runner)
        runner.add_done_callback(self._runner_ended)

    def _runner_ended(self, runner: asyncio.Task[None]) -> None:
        self._runners.discard(runner)
        error = None if runner.cancelled() else runner.exception()
        # What ends the process is told by the loop that it has ended; asyncio would tell it again, at whatever moment.
        if error is not None and not isinstance(error, _ends_the_process):
            log.error("what runs the bodies of steps broke", exc_info=error)

    async def _run_queue(self) -> None:
        runner = asyncio.current_task()
        assert runner is not None
        left = _turns_per_breath
        try:
            while self._queue or self._births:
                if not left:
                    left = _turns_per_breath
                    await asyncio.sleep(0)  # let the writer begin with what there is
                    continue
                left -= 1
                if not self._queue:
                    if not self._begin_run():
                        break
                    continue
                call = self._queue.popleft()
                if call.cancelled:
                    continue
                # A cell of its own: a task that the body leaves behind must never see the next body.
                current = Current()
                current_step.set(current)
                untouched = contextvars.copy_context()
                call.task = runner
                started_at = self._clock.now()
                if self._spans is not None:
                    current.span = self._spans.enter(self._spans.open_step(call))
                rest = self._begin_body(call, current, started_at)
                if rest is not None:
                    await self._await_rest(call, current, started_at, rest)
                if call.cancelled or runner.cancelling():
                    break  # of no use to another body
                if contextvars.copy_context() != untouched:
                    break
        finally:
            # Whatever went wrong: what is queued must not wait for a runner that is no more.
            self._free -= 1
            if (self._queue or self._births) and not self._free and not self._closing:
                self._add_runner()

    def _begin_run(self) -> bool:
        """Begin the next run that was started; False when its code left its mark in the context variables."""
        untouched = contextvars.copy_context()
        self._give_birth(*self._births.popleft())
        return contextvars.copy_context() == untouched

    def _begin_body(
        self, call: StepCall[Any], current: Current, started_at: int
    ) -> Awaitable[Any] | None:
        """Run a body until it ends, which is reported, or suspends. We are inside the runner's task."""
        step = call.step
        current.call = call
        try:
            if step.timeout_us is None and step.is_async:
                body = step.function(*call.args, **call.kwargs)
            else:
                body = self._bounded(call, current)
            asked = body.send(None)
        except StopIteration as stop:
            result, error = stop.value, None
        except _ends_the_process:
            raise
        except BaseException as raised:
            result, error = None, raised
        else:
            return _Rest(body, asked)
        if current.outgoing is not None and current.outgoing.close():
            return _came_to(result, error)  # what it has published is on its way
        self._ended(call, current, started_at, result, error)
        return None

    async def _await_rest(
        self, call: StepCall[Any], current: Current, started_at: int, rest: Awaitable[Any]
    ) -> None:
        """This runner is taken now. Two for one: a thousand bodies that suspend start in ten rounds."""
        self._free -= 1
        self._suspended.add(call)
        for _ in range(min(2, len(self._queue) + len(self._births))):
            self._add_runner()
        result: Any = None
        error: BaseException | None = None
        try:
            try:
                result = await rest
            except _ends_the_process:
                raise
            except BaseException as raised:
                if isinstance(raised, asyncio.CancelledError) and self._is_closing_on(call):
                    self._end_span(current, None)
                    raise
                # The step's own doing, unless it was cancelled: then nobody hears of it.
                error = raised
            await self._until_stored(call, current.outgoing)
        finally:
            self._free += 1
            self._suspended.discard(call)
            if self._closing:
                self._on_end()  # who hears it looks later: what follows here does not wait
        self._ended(call, current, started_at, result, error)

    def _is_closing_on(self, call: StepCall[Any]) -> bool:
        """Whether a body that is cancelled is so because the app is closing."""
        return self._closing and not call.cancelled

    async def _until_stored(self, call: StepCall[Any], outgoing: Outgoing | None) -> None:
        """Until all that a body has published is stored, unless nobody waits for it any more."""
        if outgoing is None:
            return
        outgoing.close()
        while not call.cancelled:
            try:
                return await outgoing.stored()
            except asyncio.CancelledError:
                if self._is_closing_on(call):
                    raise

    def _ended(
        self,
        call: StepCall[Any],
        current: Current,
        started_at: int,
        result: Any,
        error: BaseException | None,
    ) -> None:
        call.task = None
        current.call = current.beat = None
        if call.cancelled:
            self._end_span(current, None)
            return
        if current.outgoing is not None and error is None:
            error = current.outgoing.failure
        if error is None:
            try:
                text, value = call.step.codec.roundtrip(result)
            except Unencodable as refused:
                error = refused
        if error is not None:
            done = self.failed(call, error, started_at)
            self._end_span(current, done, error)
            final = done.state == "failed"
            rebuilt = step_error(call.step, call.path, done.error or "") if final else None
            call.owner.on_body(call, done, None, rebuilt)
            return
        done = StepDone(
            path=call.path,
            name=call.name,
            kind=call.kind,
            state="done",
            value=text,
            attempt=call.attempt,
            started_at=started_at,
            recorded_at=self._clock.now(),
            facts=call.facts(text, None),
        )
        self._end_span(current, done)
        call.owner.on_body(call, done, value, None)

    def _end_span(
        self, current: Current, done: StepDone | None, error: BaseException | None = None
    ) -> None:
        """Before the run goes on: what comes of that is none of the step's affair."""
        if current.span is not None and self._spans is not None:
            self._spans.end_step(current.span, done, error)
            current.span = None

    async def _bounded(self, call: StepCall[Any], current: Current) -> Any:
        step = call.step
        timeout_s = None if step.timeout_us is None else step.timeout_us / 1_000_000
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s) as bound:
            if timeout_s is not None:
                current.beat = _extender(loop, bound, timeout_s)
            if step.is_async:
                return await step.function(*call.args, **call.kwargs)
            context = contextvars.copy_context()
            # A thread may outlive its attempt, and is to know to the end what it runs.
            own = Current()
            own.call, own.beat = call, current.beat
            own.outgoing = current.outgoing = Outgoing(call)
            context.run(current_step.set, own)
            thread = self._pool.submit(context.run, _called, step, call)
            self._threads[thread] = call
            thread.add_done_callback(self._forget)
            return await asyncio.wrap_future(thread)

    def _forget(self, thread: Future[Any]) -> None:
        """Called in the thread, whoever still waits for it."""
        self._threads.pop(thread, None)

    def failed(self, call: StepCall[Any], error: BaseException, started_at: int) -> StepDone:
        """What an attempt that raised becomes: one to be tried again, or the step's failure."""
        delay_us = self._delay_us(call.step, call.attempt, error)
        text = step_failure(call.step, call.path, call.attempt, error)
        return StepDone(
            path=call.path,
            name=call.name,
            kind=call.kind,
            state="failed" if delay_us is None else "retrying",
            error=text,
            attempt=call.attempt,
            started_at=started_at,
            recorded_at=self._clock.now(),
            delay_us=delay_us or 0,
            facts=call.facts(None, text) if delay_us is None else (),
        )

    def _delay_us(self, step: Step[..., Any], attempt: int, error: BaseException) -> int | None:
        if isinstance(error, Permanent | Unencodable):
            return None
        delay_us = next_delay_us(step.retry, attempt, self._die())
        if delay_us is not None and isinstance(error, RetryAfter):
            return getattr(error, "delay_us", delay_us)  # a subclass may not have called ours
        return delay_us


async def _came_to(result: Any, error: BaseException | None) -> Any:
    """The end of a body that has ended."""
    if error is not None:
        raise error
    return result


_named_max = 5


def named(calls: Collection[StepCall[Any]]) -> str:
    """Steps, for a line of the log."""
    shown = [f"{one.name} (run {one.owner.run_id}, {one.path})" for one in [*calls][:_named_max]]
    more = len(calls) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _extender(
    loop: asyncio.AbstractEventLoop, bound: asyncio.Timeout, timeout_s: float
) -> Callable[[], None]:
    """What a heartbeat does, from whichever thread it comes."""

    def extend() -> None:
        if not bound.expired() and bound.when() is not None:
            bound.reschedule(loop.time() + timeout_s)

    def beat() -> None:
        loop.call_soon_threadsafe(extend)

    return beat


def _called(step: Step[..., Any], call: StepCall[Any]) -> Any:
    """In a thread: call a plain function. No future can hold a StopIteration, so it goes as another error."""
    try:
        return step.function(*call.args, **call.kwargs)
    except StopIteration as error:
        raise RuntimeError("the step raised StopIteration") from error
