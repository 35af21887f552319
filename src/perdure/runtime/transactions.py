"""Running transactional steps: bodies that write to the store's own database, committed together with their record.

The body runs where the store runs it; its end is told in the order of commits, with the record or without. What it
raised becomes a failed attempt as that of any step. There is no other way out: a transaction that nobody wants any more
is withdrawn, and either that comes in time or its record counts.
"""

import asyncio
import contextvars
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
from perdure.runtime.steps import Current
from perdure.store.transaction import BodyFailed, Withdrawn

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

    async def drain(self, grace_s: float) -> None:
        """Begin no more, let those under way end within the grace, withdraw the rest."""
        self._closing = True
        await self._until_none(grace_s)
        for call in self._under_way:
            call.cancel_body()
        await self._until_none(grace_s)

    async def _until_none(self, grace_s: float) -> None:
        try:
            async with asyncio.timeout(grace_s):
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
