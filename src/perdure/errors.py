"""Everything Perdure raises on purpose. One root, facts as attributes, words that say what to do.

PerdureError
├── RunNotFound, RunFinished, RunFailed, RunCancelled
├── BadValue, BadHint, InvalidPayload, Uncheckable, UnknownSignal, UnknownWorkflow, Conflict, BadDocument
├── BadExpression (also a ValueError), ExpressionFailed, ExpressionsUnavailable
├── AmbiguousSignal, SignalTaken, SignalClosed, SignalLost, NotWaiting, NotAsked, Overloaded
├── StepFailed, WaitTimeout (also a TimeoutError), RollbackFailed
├── BadPlay (also a ValueError), StateConflict
├── NonDeterminism, Undecodable, ForeignAwait, NotAwaited
├── UnknownConsumer, UnknownSubscription, UnknownSchedule, UnknownPool, CursorTooOld, BatchClosed
├── ApprovalNotFound, ApprovalClosed, ApprovalExpired, RunPaused, NotAllowed, BadLink, LinkExpired
├── BadSignature, WebhooksUnavailable, ObservingUnavailable
├── OutcomeUnknown, StoreRefused
├── BadRequest (also a ValueError), NotAuthenticated, ScopeMissing, ServerFailed, Unreachable
└── NotRunning, WrongLoop, AfterFork
Permanent, RetryAfter          raised by users inside steps
Evicted                        a BaseException: never caught by user code that catches Exception
"""

import difflib
from datetime import datetime
from typing import Final

from perdure.model.clock import to_datetime
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import shown
from perdure.model.outcomes import Finished, NotFound, Refusal
from perdure.model.records import ErrorRecord
from perdure.model.root import PerdureError as PerdureError

# Names that one which is not known is compared with: enough for who mistypes, and over in a moment.
_compared_max: Final = 1_000


def _meant(name: str, known: list[str]) -> str:
    """A question, if a name that is known is like the one that was asked for."""
    # What is asked for as "name version 3" may have the very name of one that is known.
    others = [one for one in known[:_compared_max] if not name.startswith(one)]
    alike = difflib.get_close_matches(name, others, n=1)
    return f" (did you mean {alike[0]!r}?)" if alike else ""


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


class Uncheckable(PerdureError):
    """A payload that was sent by a mere name cannot be checked here; nothing was stored."""

    def __init__(self, what: str, why: str) -> None:
        self.what, self.why = what, why
        super().__init__(f"{what} was not taken, because it cannot be checked here: {why}")


class UnknownSignal(PerdureError, LookupError):
    """The workflow declares its signals and this name is not among them."""

    def __init__(self, name: str, known: list[str]) -> None:
        self.name, self.known = name, known
        listed = ", ".join(sorted(known)) or "none"
        super().__init__(
            f"unknown signal {name!r}{_meant(name, known)}; the workflow declares: {listed}"
        )


class UnknownWorkflow(PerdureError, LookupError):
    """No workflow of that name and version is registered with this app, nor, where that would do, with any other.

    `known` are those of this app, `elsewhere` those that only the catalogue knows.
    """

    def __init__(self, name: str, known: list[str], elsewhere: list[str] | None = None) -> None:
        self.name, self.known, self.elsewhere = name, known, elsewhere or []
        listed = ", ".join(sorted(known)) or "none"
        if elsewhere is not None:
            listed += f"; other apps have: {', '.join(sorted(elsewhere)) or 'none'}"
        meant = _meant(name, [*known, *self.elsewhere])
        super().__init__(
            f"unknown workflow {name!r}{meant}; this app has: {listed}. Decorate it with @app.workflow, or app.add() it"
        )


class UnknownConsumer(PerdureError, LookupError):
    """No consumer of that name has ever run on this store or, where its handler is needed, none is in this app."""

    def __init__(self, name: str, *, needs_handler: bool = False) -> None:
        self.name = name
        super().__init__(
            f"this app has no handler of consumer {name!r}: ask one that declares it"
            if needs_handler
            else f"no consumer {name!r} has run on this store; `await app.consumers()` lists those that have"
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
    """The events that a cursor is to read next were deleted by retention. `oldest` is the first that is kept.

    `name` is that of the consumer; None for one who follows the ledger from a position of their own.
    """

    def __init__(self, name: str | None, oldest: int) -> None:
        self.name, self.oldest = name, oldest
        who, cure = "you", f"go on after {oldest - 1}, and know that some are missing"
        if name is not None:
            who, cure = (
                f"consumer {name!r}",
                f'rewind it there with `await app.rewind({name!r}, "beginning")`',
            )
        super().__init__(
            f"{who} would have to read events that retention has deleted; the oldest kept one is at position {oldest}: "
            f"{cure}"
        )


class Conflict(PerdureError):
    """The same id, key or name was used before for something else; nothing was stored."""


class BadDocument(PerdureError, ValueError):
    """What was to be imported is no run that was exported: the problem, and where in it. Nothing was stored."""

    def __init__(self, problem: str, where: str = "") -> None:
        self.problem, self.where = problem, where
        super().__init__(f"the document{f', {where},' if where else ''} {problem}")


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


class BadSignature(PerdureError):
    """A delivery to a hook that its sender has not signed, or not just so, or not just now; nothing was stored.

    The reason says no more than the sender may know: not which secret, nor how near it was.
    """

    def __init__(self, hook: str, reason: str) -> None:
        self.hook, self.reason = hook, reason
        super().__init__(f"hook {hook!r} refused a delivery: {reason}")


class WebhooksUnavailable(PerdureError):
    """Webhooks need packages that are not installed here."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"webhooks need more packages: pip install 'perdure[webhooks]' ({reason})")


class ObservingUnavailable(PerdureError):
    """What was to be seen of an app is not there: a package is missing, or nobody watches it."""


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
    """The place of a play that takes this signal has been passed: it was received, timed out, or skipped."""

    def __init__(self, name: str, run_id: str, why: str) -> None:
        self.name, self.run_id, self.why = name, run_id, why
        super().__init__(f"run {run_id!r} takes no {name!r} any more: {why}; nothing was stored")


_how_lost = {
    "left": "the generation of the run that received it has ended",
    "forgotten": "the answer to it is no longer kept",
}


class SignalLost(PerdureError):
    """app.ask: the signal was accepted, and no answer will come any more: it was replaced, has expired, no wait could
    take it, its run has gone on as another ("left"), or the answer is older than is kept ("forgotten")."""

    def __init__(self, signal_id: str, name: str, run_id: str, state: str) -> None:
        self.signal_id, self.name, self.run_id, self.state = signal_id, name, run_id, state
        how = _how_lost.get(state) or f"is {state.replace('_', ' ')}"
        super().__init__(
            f"signal {name!r} to run {run_id!r} was accepted as {signal_id!r} and {how} by now: nobody will answer "
            'it. Ask again with another key; a signal that several ask by is best declared with buffer="all"'
        )


class NotAsked(PerdureError):
    """ctx.reply where the code has received no signal that it could answer."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"ctx.reply in run {run_id!r}: this branch of the code has received no signal in this generation that it "
            "could answer; await ctx.wait(signal) first, in this branch or before the gather that began it"
        )


class ApprovalNotFound(PerdureError, LookupError):
    """Nothing is known of such an approval (any more), or its run does not ask yet: `reason` says so then."""

    def __init__(self, approval_id: str, reason: str | None = None) -> None:
        self.approval_id, self.reason = approval_id, reason
        super().__init__(
            f"approval {approval_id!r} is not open: {reason}"
            if reason is not None
            else f"there is no approval {approval_id!r}, or its run has continued or was pruned since; `await "
            "app.approvals()` lists those that are open"
        )


class ApprovalClosed(PerdureError):
    """The approval takes no answer any more. `state` is decided, timed_out or withdrawn; `by` and `choice` are of the
    decision that counts."""

    def __init__(
        self,
        approval_id: str,
        state: str,
        reason: str,
        *,
        by: str | None = None,
        choice: str | None = None,
    ) -> None:
        self.approval_id, self.state, self.reason = approval_id, state, reason
        self.by, self.choice = by, choice
        super().__init__(f"approval {approval_id!r} is closed: {reason}")


class ApprovalExpired(PerdureError):
    """Nobody may answer any more, though the run goes on waiting until its own timeout."""

    def __init__(self, approval_id: str, expires_at: datetime) -> None:
        self.approval_id, self.expires_at = approval_id, expires_at
        super().__init__(f"approval {approval_id!r} has expired, at {expires_at.isoformat()}")


class RunPaused(PerdureError):
    """The run is paused, so it takes no decision now."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        self.run_id, self.reason = run_id, reason
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"run {run_id!r} is paused{why}, and takes no decision meanwhile: resume it, then decide"
        )


class NotAllowed(PerdureError):
    """Who answered is not among those who may. `who` are those."""

    def __init__(self, by: str, who: tuple[str, ...]) -> None:
        self.by, self.who = by, who
        super().__init__(f"{by!r} may not answer this; who may: {', '.join(who)}")


class BadLink(PerdureError, ValueError):
    """A link that was not made with a secret of this app, or was changed on its way."""


class LinkExpired(PerdureError):
    """The link was good until then."""

    def __init__(self, expires_at: datetime) -> None:
        self.expires_at = expires_at
        super().__init__(
            f"this link was good until {expires_at.isoformat()}: ask for a new one, or answer with app.decide"
        )


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


class RollbackFailed(PerdureError):
    """A saga failed, and so did some of what was to undo it: which, and what had failed first.

    All the others were undone. `run.retry()` tries again those that failed.
    """

    def __init__(self, failed: list[tuple[str, str]], first: str) -> None:
        self.failed, self.first = failed, first
        listed = "; ".join(f"{path!r}: {words}" for path, words in failed)
        super().__init__(
            f"could not be rolled back at {listed}. What had failed first: {first}. `await run.retry()` tries the "
            "roll-back again"
        )


class BadPlay(PerdureError, ValueError):
    """A play that cannot be performed: everything that is wrong with it, at once."""

    def __init__(self, name: str, problems: list[str]) -> None:
        self.name, self.problems = name, problems
        listed = "".join(f"\n  - {one}" for one in problems)
        super().__init__(f"play {name!r} cannot be performed:{listed}")


class StateConflict(PerdureError):
    """Branches of a chorus changed the same field of the state: which field, and which branches."""

    def __init__(self, chorus: str, field: str, branches: list[str]) -> None:
        self.chorus, self.field, self.branches = chorus, field, branches
        super().__init__(
            f"the branches {', '.join(branches)} of chorus {chorus!r} all changed the field {field!r} of the state: "
            "give each branch fields of its own, and put them together after the chorus"
        )


class NonDeterminism(PerdureError):
    """A replay met other code than the one that recorded the history."""

    def __init__(self, path: str, recorded: str, asked: str) -> None:
        self.path, self.recorded, self.asked = path, recorded, asked
        super().__init__(
            f"at {path!r} the history holds {recorded}, but the code asked for {asked}: the workflow changed "
            "under a living run. Put the old code back and resume the run, fork it from before that, or terminate it"
        )


class Undecodable(PerdureError):
    """A recorded value no longer fits the type that the code asks for; or, with `read_as`, not the one that a reader of
    a stream or a reply asks for."""

    def __init__(self, path: str, reason: str, *, read_as: bool = False) -> None:
        self.path, self.reason = path, reason
        if read_as:
            super().__init__(f"{path} does not fit the type that it is read as: {reason}")
        else:
            super().__init__(f"the value recorded at {path!r} no longer decodes: {reason}")


class ForeignAwait(PerdureError):
    """Workflow code awaited something that is not durable, or called a step directly."""


class NotAwaited(PerdureError):
    """Workflow code made a durable call and ended without having awaited it: what it asks for was never done."""


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


class BadRequest(PerdureError, ValueError):
    """A request to the HTTP API that is none: its form, size, type of content or address. `status` is HTTP's."""

    def __init__(self, reason: str, status: int = 400) -> None:
        self.reason, self.status = reason, status
        super().__init__(reason)


class NotAuthenticated(PerdureError):
    """The server does not know who asks: no token, or none that it has."""


class ScopeMissing(PerdureError):
    """Whoever asks may not do this: `scope` is what it takes."""

    def __init__(self, name: str, scope: str, has: list[str], what: str = "this") -> None:
        self.name, self.scope, self.has = name, scope, has
        listed = ", ".join(has) or "none"
        super().__init__(f"{what} needs the scope {scope!r}; {name!r} has: {listed}")


class ServerFailed(PerdureError):
    """The server met an error of its own. `error_id` is in its log; "" if it gave none.

    None comes from what answers in its place, such as a proxy. `status` is HTTP's.
    """

    status: int = 500  # of one that an older server told

    def __init__(self, error_id: str, reason: str | None = None, status: int = 500) -> None:
        self.error_id, self.status = error_id, status
        super().__init__(
            reason
            or f"the server failed to answer; its log says why, under {error_id!r}. What was asked may have happened: "
            "repeating it with the same key is safe"
        )


class Unreachable(PerdureError):
    """No server has answered, and nothing was changed: nothing was `sent`, or only a question."""

    def __init__(self, url: str, reason: str, *, sent: bool = False) -> None:
        self.url, self.reason, self.sent = url, reason, sent
        became = "nothing was changed" if sent else "nothing was sent"
        super().__init__(f"no answer from {url}: {reason}; {became}")


class NotRunning(PerdureError):
    """The app is not open: use it inside `async with app:`, or `with app.sync:`."""


class WrongLoop(PerdureError):
    """The app belongs to the event loop that entered it: other threads use app.sync, and that loop does not."""


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
        case "closed":
            return SignalClosed(name, run_id, detail)
        case "not_waiting":
            return NotWaiting(name, run_id)
        case "ambiguous":
            return AmbiguousSignal(name, paths)
        case "full" | "too_much_published" | "too_many_streams":
            return Overloaded(detail)
        case "invalid_payload":
            return InvalidPayload(detail, list(paths))
        case "unchecked":
            return Uncheckable(detail, f"its schema has {', '.join(paths)}")
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
        case "no_step":
            known = ", ".join(paths) or "none"
            return Conflict(f"{detail} to begin with; it has: {known}")
        case "approval_expired":
            return ApprovalExpired(name, to_datetime(int(detail)))
        case "link_expired":
            return LinkExpired(to_datetime(int(detail)))
        case "not_allowed":
            return NotAllowed(name, paths)
        case "paused":
            return RunPaused(run_id, detail)
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
