"""Everything Perdure raises on purpose. One root, facts as attributes, words that say what to do.

PerdureError
├── RunNotFound, RunFinished, RunFailed, RunCancelled
├── BadValue, BadHint, InvalidPayload, UnknownSignal, UnknownWorkflow, Conflict
├── BadExpression (also a ValueError), ExpressionFailed, ExpressionsUnavailable
├── AmbiguousSignal, SignalTaken, SignalClosed, NotWaiting, Overloaded
├── StepFailed, WaitTimeout (also a TimeoutError)
├── NonDeterminism, Undecodable, ForeignAwait
├── UnknownConsumer, UnknownSubscription, UnknownSchedule, UnknownPool, CursorTooOld, BatchClosed
├── OutcomeUnknown, StoreRefused
└── NotRunning, WrongLoop, AfterFork
Permanent, RetryAfter          raised by users inside steps
Evicted                        a BaseException: never caught by user code that catches Exception
"""

from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import shown
from perdure.model.outcomes import Finished, NotFound, Refusal
from perdure.model.records import ErrorRecord
from perdure.model.root import PerdureError as PerdureError


class RunNotFound(PerdureError, LookupError):
    """There is no such run."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"there is no run {run_id!r}")


class RunFinished(PerdureError):
    """The run has ended, so it takes nothing any more; nothing was stored."""

    def __init__(self, run_id: str, status: str) -> None:
        self.run_id, self.status = run_id, status
        super().__init__(f"run {run_id!r} has already ended: {status}")


class RunFailed(PerdureError):
    """The run ended with an error: its type, message, traceback and the path where it arose."""

    def __init__(
        self, run_id: str, type: str, message: str, traceback: str = "", path: str | None = None
    ) -> None:
        self.run_id, self.type, self.message = run_id, type, message
        self.traceback, self.path = traceback, path
        at = f" at {path!r}" if path else ""
        super().__init__(f"run {run_id!r} failed{at}: {type}: {message}")


class RunCancelled(PerdureError):
    """The run was cancelled or terminated."""

    def __init__(self, run_id: str, status: str = "cancelled", reason: str = "") -> None:
        self.run_id, self.status, self.reason = run_id, status, reason
        super().__init__(f"run {run_id!r} was {status}" + (f": {reason}" if reason else ""))


class InvalidPayload(PerdureError, ValueError):
    """A payload does not fit its declared type; nothing was stored."""

    def __init__(self, what: str, errors: list[str]) -> None:
        self.what, self.errors = what, errors
        super().__init__(f"{what} does not fit: " + "; ".join(errors))


class UnknownSignal(PerdureError, LookupError):
    """The workflow declares its signals and this name is not among them."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name, self.known = name, known
        listed = ", ".join(sorted(known)) or "none"
        super().__init__(f"unknown signal {name!r}; the workflow declares: {listed}")


class UnknownWorkflow(PerdureError, LookupError):
    """No workflow of that name and version is registered with this app."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name, self.known = name, known
        listed = ", ".join(sorted(known)) or "none"
        super().__init__(
            f"unknown workflow {name!r}; this app has: {listed}. Decorate it with @app.workflow, or app.add() it"
        )


class UnknownConsumer(PerdureError, LookupError):
    """No consumer of that name has ever run on this store."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"no consumer {name!r} has run on this store; `await app.consumers()` lists those that have"
        )


class UnknownSubscription(PerdureError, LookupError):
    """There is no subscription of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"there is no subscription {name!r}; `await app.subscriptions()` lists those there are"
        )


class UnknownSchedule(PerdureError, LookupError):
    """There is no schedule of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"there is no schedule {name!r}; `await app.schedules()` lists those there are"
        )


class UnknownPool(PerdureError, LookupError):
    """Nobody has declared a pool of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"there is no pool {name!r}; `await app.pools()` lists those there are. Declare it in code, with "
            "@app.workflow(pool=…) or App(pools=[…]), or make it with app.set_pool"
        )


class BatchClosed(PerdureError):
    """A handler asked its batch for something after it had returned; nothing of that was stored."""

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer
        super().__init__(
            f"the handler of consumer {consumer!r} has returned, and what it asked for is committed: ask before "
            "that, and await every task it starts"
        )


class CursorTooOld(PerdureError):
    """The events that a cursor is to read next were deleted by retention. `oldest` is the first that is kept."""

    def __init__(self, name: str, oldest: int) -> None:
        self.name, self.oldest = name, oldest
        super().__init__(
            f"consumer {name!r} would have to read events that retention has deleted; the oldest kept one is at "
            f'position {oldest}: rewind it there with `await app.rewind({name!r}, "beginning")`'
        )


class Conflict(PerdureError):
    """The same id, key or name was used before for something else; nothing was stored."""


class BadExpression(PerdureError, ValueError):
    """An expression that cannot be accepted: its text, the problem, and where in it ("line 1, column 4")."""

    def __init__(self, text: object, problem: str, where: str = "") -> None:
        self.text = text if isinstance(text, str) else shown(text)
        self.problem, self.where = problem, where
        at = f" at {where}" if where else ""
        super().__init__(f"expression {shown(text)}{at}: {problem}")


class ExpressionFailed(PerdureError):
    """An expression could not be evaluated for an event; the reason says why."""

    def __init__(self, text: str, reason: str) -> None:
        self.text, self.reason = text, reason
        super().__init__(f"expression {shown(text)} failed: {reason}")


class ExpressionsUnavailable(PerdureError):
    """Expressions as text need a package that is not installed here."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"expressions need the package cel-expr-python: pip install 'perdure[cel]', "
            f"or give a Python callable ({reason})"
        )


class AmbiguousSignal(PerdureError):
    """The signal is awaited at several places: say which with path=."""

    def __init__(self, name: str, paths: tuple[str, ...]) -> None:
        self.name, self.paths = name, paths
        super().__init__(
            f"signal {name!r} is awaited at {', '.join(paths)}: address one with path="
        )


class SignalTaken(PerdureError):
    """A signal with buffer="first" was answered already: one claim counts."""

    def __init__(self, name: str, run_id: str) -> None:
        self.name, self.run_id = name, run_id
        super().__init__(
            f"signal {name!r} of run {run_id!r} was already answered; the first one counts"
        )


class SignalClosed(PerdureError):
    """The place that waited for this signal has been passed."""


class NotWaiting(PerdureError):
    """buffer=False, and the run does not wait for this signal now."""

    def __init__(self, name: str, run_id: str) -> None:
        self.name, self.run_id = name, run_id
        super().__init__(
            f"run {run_id!r} does not wait for {name!r} now, and buffer=False was given"
        )


class Overloaded(PerdureError):
    """A bound was reached; nothing was stored. Try again later, or raise the bound the message names."""


class StepFailed(PerdureError):
    """A step failed for good: type, message and traceback of its last error, and how often it was tried."""

    def __init__(
        self, type: str, message: str, traceback: str = "", attempts: int = 1, path: str = ""
    ) -> None:
        self.type, self.message, self.traceback = type, message, traceback
        self.attempts, self.path = attempts, path
        tries = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(f"step {path!r} failed (tried {tries}): {type}: {message}")


class WaitTimeout(PerdureError, TimeoutError):
    """ctx.wait(…, timeout=…) ran out before what it waited for came."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"the wait at {path!r} ran out of time")


class NonDeterminism(PerdureError):
    """A replay met other code than the one that recorded the history."""

    def __init__(self, path: str, recorded: str, asked: str) -> None:
        self.path, self.recorded, self.asked = path, recorded, asked
        super().__init__(
            f"at {path!r} the history holds {recorded}, but the code asked for {asked}: the workflow changed "
            "under a living run. Put the old code back and resume the run, or terminate it"
        )


class Undecodable(PerdureError):
    """A recorded value no longer fits the type that the code asks for."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"the value recorded at {path!r} no longer decodes: {reason}")


class ForeignAwait(PerdureError):
    """Workflow code awaited something that is not durable, or called a step directly."""


class OutcomeUnknown(PerdureError):
    """The store did not say whether the write happened; repeating it with the same key is safe."""


class LedgerRewound(PerdureError):
    """The ledger ends before a place that was read already: the store has lost its newest events."""

    def __init__(self, position: int, last: int) -> None:
        self.position, self.last = position, last
        super().__init__(
            f"the ledger ends at position {last}, and this cursor has seen {position}: the store has lost its newest "
            "events, and new ones will take their places; read again from a cursor at or before the end"
        )


class StoreRefused(PerdureError):
    """The store cannot be used as it is; the reason says what to change.

    `passing` is true if nothing is wrong with what was asked: the store is out of reach or busy, and the same may be
    asked again later.
    """

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        self.reason = reason
        self.passing = passing
        super().__init__(reason)


class NotRunning(PerdureError):
    """The app is not open: use it inside `async with app:`."""


class WrongLoop(PerdureError):
    """The app belongs to the event loop that entered it; another thread hands its call to that loop."""


class AfterFork(PerdureError):
    """The process was forked after the app was opened; open an app of its own in each process."""


class Permanent(Exception):
    """Raise it in a step to say that trying again is of no use."""


class RetryAfter(Exception):
    """Raise it in a step to say when to try again: RetryAfter("30s")."""

    def __init__(self, delay: Duration, message: str = "") -> None:
        self.delay_us = parse_duration(delay, "RetryAfter")
        super().__init__(message or f"try again after {delay}")


class Evicted(BaseException):
    """The run leaves memory; its code is unwound, nothing is recorded, and it will be replayed."""


def refusal_error(outcome: NotFound | Finished | Refusal, name: str, run_id: str) -> PerdureError:
    """The exception that a refused send or steering op raises."""
    match outcome:
        case NotFound():
            return RunNotFound(outcome.run_id)
        case Finished():
            return RunFinished(outcome.run_id, outcome.status)
        case Refusal():
            return _by_code(outcome.code, outcome.detail, name, run_id, outcome.paths)


def _by_code(
    code: str | None, detail: str, name: str, run_id: str, paths: tuple[str, ...]
) -> PerdureError:
    match code:
        case "taken":
            return SignalTaken(name, run_id)
        case "not_waiting":
            return NotWaiting(name, run_id)
        case "ambiguous":
            return AmbiguousSignal(name, paths)
        case "full" | "too_much_published":
            return Overloaded(detail)
        case "invalid_payload":
            return InvalidPayload(detail, list(paths))
        case "unknown_signal":
            return UnknownSignal(detail, list(paths))
        case "not_found":
            return RunNotFound(run_id)
        case "finished":
            return RunFinished(run_id, detail)
        case "no_consumer":
            return UnknownConsumer(name)
        case "no_schedule":
            return UnknownSchedule(name)
        case "no_pool":
            return UnknownPool(detail)
        case "cursor_too_old":
            return CursorTooOld(name, int(detail))
        case _:
            return Conflict(detail)


def error_from_record(record: ErrorRecord, path: str, paths: tuple[str, ...] = ()) -> PerdureError:
    """Rebuild what a recorded failure raises, the first time and on replay alike."""
    run_id = record.run_id or ""
    match record.kind:
        case "step":
            return StepFailed(
                record.type, record.message, record.traceback, record.attempts, record.path or path
            )
        case "run" | "workflow":
            return RunFailed(run_id, record.type, record.message, record.traceback, record.path)
        case "cancelled" | "terminated":
            return RunCancelled(run_id, record.kind, record.message)
        case "refused":
            return _by_code(record.code, record.message, path, run_id, paths)
