"""Running transactional steps: bodies that write to the store's own database, committed together with their record.

The body runs where the store runs it; its end is told in the order of commits, with the record or without. What it
raised becomes a failed attempt as that of any step. There is no other way out: a transaction that nobody wants any more
is withdrawn, and either that comes in time or its record counts.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from perdure.coordinator.coordinator import Coordinator
from perdure.model.clock import Clock
from perdure.model.ops import Op, RecordStep, StepDone
from perdure.model.outcomes import Advanced
from perdure.observing.spans import Spans
from perdure.observing.speaking import current_step
from perdure.runtime.calls import TransactionCall
from perdure.runtime.failures import step_error
from perdure.runtime.steps import Current, named
from perdure.store.transaction import BodyFailed, Withdrawn

log = logging.getLogger("perdure.runtime")

# Withdrawn bodies may clean up for so long.
_cleanup_s = 5.0
# How often it is said that a close waits.
_again_s = 60.0

# From a call, what its body raised, and when it began, to the failed attempt.
Failed = Callable[[TransactionCall[Any], BaseException, int], StepDone]


class _Attempt(NamedTuple):
    """One body under way: `own` is what `step_info()` finds in it."""

    call: TransactionCall[Any]
    started_at: int
    own: Current
    alarm: asyncio.TimerHandle | None


class Transactions:
    """Runs transactional steps for one worker."""

    def __init__(
        self, coordinator: Coordinator, clock: Clock, failed: Failed, spans: Spans | None = None
    ) -> None:
        self._spans = spans
        self._coordinator = coordinator
        self._clock = clock
        self._failed = failed
        self._under_way: set[TransactionCall[Any]] = set()
        self._ended = asyncio.Event()
        self._closing = False
        self._on_closed_end: Callable[[], None] = lambda: None  # while closing

    def run(self, call: TransactionCall[Any]) -> None:
        """Start the body of a call; its owner is told in the loop what came of it."""
        if self._closing:
            return  # the run is handed back as it stands; whoever takes it begins this step
        call.cancelled = call.timed_out = False
        own, step = Current(), call.step
        own.call = call
        alarm = None
        if step.timeout_us is not None:
            loop = asyncio.get_running_loop()
            alarm = loop.call_later(step.timeout_us / 1_000_000, call.time_out)
        attempt = _Attempt(call, self._clock.now(), own, alarm)
        self._under_way.add(call)
        if self._spans is not None:
            own.span = self._spans.open_step(call)
        make_body = _coroutine if step.is_async else _function
        body = make_body(call, own, self._spans)
        call.work = self._coordinator.transact(
            body, lambda result: self._record(attempt, result), self._on_end, attempt
        )

    def begin_no_more(self, on_end: Callable[[], None]) -> None:
        """What has not begun never does here: it is the next worker's. `on_end` hears of each body that ends yet."""
        self._closing, self._on_closed_end = True, on_end

    @property
    def in_flight(self) -> list[TransactionCall[Any]]:
        return [one for one in list(self._under_way) if not one.cancelled]

    async def drain(self, grace_s: float) -> None:
        """Let those under way end: within the grace those that can be stopped, then they are withdrawn.

        A plain function cannot be: it has the store's one writer, so nothing could be handed back meanwhile.
        """
        await self._until_none(grace_s)
        await self._withdraw([one for one in self.in_flight if one.step.is_async])
        while self.in_flight:
            await self._until_none(_again_s)
            if self.in_flight:
                log.warning("closing still waits for transactions: %s", named(self.in_flight))

    async def cut_off(self) -> None:
        """Withdraw all; wait for nobody any more, but for what they clean up."""
        await self._withdraw(self.in_flight)

    async def _withdraw(self, calls: list[TransactionCall[Any]]) -> None:
        if calls:
            log.warning(
                "closing withdraws transactions, which begin anew elsewhere: %s", named(calls)
            )
        for call in calls:
            call.cancel_body()
        if calls:
            await self._until_none(_cleanup_s)

    async def _until_none(self, bound_s: float) -> None:
        try:
            async with asyncio.timeout(bound_s):
                while self._under_way:
                    self._ended.clear()
                    await self._ended.wait()
        except TimeoutError:
            pass

    def _record(self, attempt: _Attempt, result: Any) -> tuple[Op[Any], Any]:
        """The op that is committed with what the body wrote. Called wherever the body ran."""
        call = attempt.call
        text, value = call.step.codec.roundtrip(result)
        done = StepDone(
            path=call.path,
            name=call.name,
            state="done",
            value=text,
            attempt=call.attempt,
            started_at=attempt.started_at,
            recorded_at=self._clock.now(),
        )
        run = call.owner
        op = RecordStep(run_id=run.run_id, fence=run.fence, revision=run.revision, steps=(done,))
        return op, value

    def _on_end(self, op: Any, outcome: Any, attempt: _Attempt) -> None:
        call = attempt.call
        attempt.own.call = None
        if attempt.alarm is not None:
            attempt.alarm.cancel()
        self._under_way.discard(call)
        self._ended.set()
        match outcome:
            case BodyFailed():
                self._fail(attempt, outcome.error)
            case Withdrawn() if call.timed_out and not call.cancelled:
                self._fail(attempt, TimeoutError())
            case Withdrawn():
                self._end_span(attempt, None)
                if not self._closing:
                    call.owner.on_transaction(call, None, None)
            case _:
                self._end_span(attempt, op.steps[0] if isinstance(outcome, Advanced) else None)
                call.owner.on_transaction(call, op, outcome)
        if self._closing:
            self._on_closed_end()

    def _fail(self, attempt: _Attempt, error: BaseException) -> None:
        call = attempt.call
        done = self._failed(call, error, attempt.started_at)
        self._end_span(attempt, done, error)
        final = done.state == "failed"
        rebuilt = step_error(call.step, call.path, done.error or "") if final else None
        call.owner.on_rolled_back(call, done, rebuilt)

    def _end_span(
        self, attempt: _Attempt, done: StepDone | None, error: BaseException | None = None
    ) -> None:
        if attempt.own.span is not None and self._spans is not None:
            self._spans.end_step(attempt.own.span, done, error)


def _function(
    call: TransactionCall[Any], own: Current, spans: Spans | None
) -> Callable[[Any], Any]:
    context = contextvars.copy_context()
    context.run(current_step.set, own)
    if spans is not None:
        context.run(spans.enter, own.span)
    return lambda connection: context.run(call.step.function, connection, *call.args, **call.kwargs)


def _coroutine(
    call: TransactionCall[Any], own: Current, spans: Spans | None
) -> Callable[[Any], Any]:
    async def body(connection: Any) -> Any:
        current_step.set(own)  # of the task that it is run in, which is its own
        if spans is not None:
            spans.enter(own.span)
        return await call.step.function(connection, *call.args, **call.kwargs)

    return body
