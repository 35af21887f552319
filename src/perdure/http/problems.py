"""Errors over HTTP: a `PerdureError` as a problem of RFC 9457, and back.

A problem says the words of the Python error (`detail`), its class (`error`) and its attributes (`facts`), so that a
client raises the same error with the same words and facts. Nothing else leaves the server: what is not ours is told as
an id of its log, and where the store is not at all. Knows nothing of a web framework: server and client both use it.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from perdure import errors
from perdure.model.limits import BadValue
from perdure.model.root import PerdureError

log = logging.getLogger("perdure.http")

CONTENT_TYPE: Final = "application/problem+json"

# Which status each error has; a class without one has that of its nearest base, see `status_of`.
_statuses: Final[dict[type[PerdureError], int]] = {
    errors.NotAuthenticated: 401,
    errors.BadSignature: 401,
    errors.ScopeMissing: 403,
    errors.NotAllowed: 403,
    errors.BadLink: 403,
    errors.RunNotFound: 404,
    errors.UnknownWorkflow: 404,
    errors.UnknownConsumer: 404,
    errors.UnknownSubscription: 404,
    errors.UnknownSchedule: 404,
    errors.UnknownPool: 404,
    errors.ApprovalNotFound: 404,
    errors.RunFinished: 409,
    errors.RunPaused: 409,
    errors.Conflict: 409,
    errors.AmbiguousSignal: 409,
    errors.SignalTaken: 409,
    errors.SignalClosed: 409,
    errors.SignalLost: 409,
    errors.NotWaiting: 409,
    errors.ApprovalClosed: 409,
    errors.CursorTooOld: 409,
    errors.LedgerRewound: 409,
    errors.ApprovalExpired: 410,
    errors.LinkExpired: 410,
    BadValue: 422,
    errors.InvalidPayload: 422,
    errors.Uncheckable: 422,
    errors.UnknownSignal: 422,
    errors.BadDocument: 422,
    errors.BadExpression: 422,
    errors.ExpressionFailed: 422,
    errors.Undecodable: 422,
    errors.Overloaded: 429,
    errors.ExpressionsUnavailable: 501,
    errors.WebhooksUnavailable: 501,
    errors.ObservingUnavailable: 501,
    errors.StoreRefused: 503,
    errors.OutcomeUnknown: 503,
    errors.NotRunning: 503,
    errors.WrongLoop: 503,
    errors.AfterFork: 503,
}
_otherwise: Final = 500

# Facts that JSON carries as lists and texts, and that the errors have as tuples and times.
_tuples: Final = frozenset({"paths", "who"})
_pairs: Final = frozenset({"failed"})


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, as RFC 9457 has it. `error` is the class of the Python error, `facts` are its attributes."""

    type: str
    title: str
    status: int
    detail: str
    error: str
    facts: dict[str, Any] = {}


_decode = msgspec.json.Decoder(Problem).decode


# --- out ---


def status_of(error: PerdureError) -> int:
    """The HTTP status that an error is told with."""
    if isinstance(error, errors.BadRequest | errors.ServerFailed):
        return error.status
    for kind in type(error).__mro__:
        if kind in _statuses:
            return _statuses[kind]
    return _otherwise


def problem_of(error: PerdureError) -> Problem:
    """An error as it is told."""
    name = type(error).__name__
    return Problem(
        type=f"urn:perdure:error:{name}",
        title=_title(type(error)),
        status=status_of(error),
        detail=str(error),
        error=name,
        facts=_facts(error),
    )


def told_problem_of(error: PerdureError) -> Problem:
    """An error as a server tells it. Of its store others learn no address: what that said is for the log."""
    words = _for_others(error)
    if words is None:
        return problem_of(error)
    log.warning("told without its words: %s: %s", type(error).__name__, error)
    problem = problem_of(error)
    facts = {name: words if name == "reason" else one for name, one in problem.facts.items()}
    return replace(problem, detail=words, facts=facts)


def _for_others(error: PerdureError) -> str | None:
    match error:
        case errors.StoreRefused(passing=True):
            return "the store does not answer, or is busy: nothing has changed; ask again later"
        case errors.StoreRefused():
            return "the store refused this: nothing has changed; the log of the server says why"
        case errors.OutcomeUnknown(__cause__=BaseException()):  # other words are of our own
            return "the answer of the store was lost: this may have been done; to repeat it with the same key is safe"
        case _:
            return None


def _title(kind: type[PerdureError]) -> str:
    """What the class says of itself in its first sentence: the same for each of its kind."""
    words = " ".join((kind.__doc__ or kind.__name__).split("\n\n")[0].split())
    return words.split(": ")[0].split(". ")[0].rstrip(".")


def _facts(error: PerdureError) -> dict[str, Any]:
    facts = {name: one for name, one in vars(error).items() if not name.startswith("_")}
    try:
        plain: dict[str, Any] = msgspec.to_builtins(facts, enc_hook=str)
    except Exception:  # of an error that somebody else has made: its words must do
        return {}
    return plain


# --- in ---


def error_of(problem: Problem) -> PerdureError:
    """The error that a problem tells of: the same class, words and facts; PerdureError for a class not known here."""
    kind = _known().get(problem.error, PerdureError)
    # Its own constructor would make the words anew, and some keep less than they were given.
    error = kind.__new__(kind)
    Exception.__init__(error, problem.detail)
    for name, value in problem.facts.items():
        if not hasattr(Exception, name):  # what every error has is no fact
            setattr(error, name, _fact(name, value))
    return error


def read_problem(content: bytes, status: int) -> PerdureError:
    """The error of an answer that is none; also of one that something between us and the server has made."""
    try:
        return error_of(_decode(content))
    except msgspec.MsgspecError:
        shown = content[:200].decode(errors="replace")
        reason = f"the server answered {status} without a reason: {shown}"
        if status >= 500:  # nothing says that the request was at fault
            return errors.ServerFailed("", reason, status)
        return errors.BadRequest(reason, status)


def _fact(name: str, value: Any) -> Any:
    if name in _tuples and isinstance(value, list):
        return tuple(value)
    if name in _pairs and isinstance(value, list):
        return [tuple(one) for one in value]
    if name.endswith("_at") and isinstance(value, str):
        with suppress(ValueError):
            return datetime.fromisoformat(value)
    return value


def _known() -> dict[str, type[PerdureError]]:
    return {one.__name__: one for one in _all(PerdureError)}


def _all(kind: type[PerdureError]) -> Iterator[type[PerdureError]]:
    yield kind
    for one in kind.__subclasses__():
        # Somebody's own subclass of ours must not be made by what a server says.
        if one.__module__.startswith("perdure."):
            yield from _all(one)
