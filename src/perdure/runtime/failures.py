"""Errors on their way into the history and back.

What a step or a workflow raised is kept as an `ErrorRecord`; a replay raises from it what the first run raised.
Where an error arose travels with it, so that an operator's retry knows what to do anew.
"""

import traceback
from typing import Any, Literal, TypedDict

import msgspec

from perdure.errors import StepFailed, error_from_record
from perdure.model import limits
from perdure.model.codec import Unencodable, codec_for
from perdure.model.records import ErrorRecord
from perdure.registry import Step

_untyped = codec_for(Any)
decode_error = msgspec.json.Decoder(ErrorRecord).decode


class Anew(TypedDict, total=False):
    """What a retry has to do anew, apart from where an error arose: both or none."""

    undone: tuple[str, ...]
    redo: tuple[str, ...]


# How far a chain of causes is followed: exceptions may point at each other in a circle.
_causes_max = 20


# --- into the history ---


def step_failure(step: Step[..., Any], path: str, attempt: int, error: BaseException) -> str:
    """What an attempt of a step raised, as it is stored."""
    args = _arguments(step, error)
    return _stored("step", *_of(error), path=path, attempts=attempt, args=args)


def run_failure(error: BaseException) -> str:
    """What ended a workflow, as it is stored. A step's failure that it let through keeps its own words."""
    path, cause = _arose_at(error)
    anew: Anew = {} if cause is None else noted(cause)
    if isinstance(error, StepFailed):
        own = (error.type, error.message, error.traceback)
        return _stored("step", *own, path=path, attempts=error.attempts, **anew)
    return _stored("workflow", *_of(error), path=path, **anew)


def _stored(
    kind: Literal["step", "workflow"],
    type: str,
    message: str,
    traceback: str,
    *,
    path: str | None,
    attempts: int = 1,
    args: str | None = None,
    undone: tuple[str, ...] = (),
    redo: tuple[str, ...] = (),
) -> str:
    record = ErrorRecord(
        kind=kind,
        type=type[: limits.error_type_chars_max],
        message=message[: limits.error_message_chars_max],
        traceback=traceback[-limits.traceback_chars_max :],
        path=path,
        attempts=attempts,
        args=args,
        undone=undone,
        redo=redo,
    )
    return msgspec.json.encode(record).decode()


def _of(error: BaseException) -> tuple[str, str, str]:
    """Type, words and traceback, fit to be stored."""
    lines = traceback.format_exception(error)
    return type(error).__name__, _words_of(error), limits.storable("".join(lines))


def _words_of(error: BaseException) -> str:
    """What an error says, whatever its `__str__` does."""
    try:
        return limits.storable(str(error))
    except Exception:
        return f"<{type(error).__name__} that cannot be told>"


def _arguments(step: Step[..., Any], error: BaseException) -> str | None:
    """What a class named in raises=[…] is made from again; None when that has no JSON form."""
    if type(error) not in step.raises:
        return None
    try:
        return _untyped.encode(list(error.args))
    except Unencodable:
        return None


def _arose_at(error: BaseException) -> tuple[str | None, BaseException | None]:
    """The path of the step, wait or send whose failure this error is, or was raised from; and which error that is."""
    cause: BaseException | None = error
    for _ in range(_causes_max):
        if cause is None:
            return None, None
        path = getattr(cause, "__perdure_path__", None)
        path = path or (cause.path if isinstance(cause, StepFailed) else None)
        if path is not None or hasattr(cause, "__perdure_anew__"):
            return path, cause
        cause = cause.__cause__ or cause.__context__
    return None, None


# --- back out of it ---


def step_error(step: Step[..., Any], path: str, text: str) -> BaseException:
    """Rebuild a step's failure: a class named in raises=[…] from its arguments, else StepFailed."""
    record = decode_error(text)
    if record.args is not None:
        for one in step.raises:
            if one.__name__ == record.type:
                rebuilt = _rebuilt(one, record.args)
                if rebuilt is not None:
                    return arising(rebuilt, path)
    return error_from_record(record, path)


def _rebuilt(kind: type[Exception], args: str) -> Exception | None:
    """None when a class is not made from its own `args`: then StepFailed tells of it, on every replay."""
    try:
        return kind(*_untyped.decode(args))
    except Exception:
        return None


def arising(error: BaseException, path: str) -> BaseException:
    """Note on an error where in the run it arose, so that a retry knows what to do anew."""
    # Not by the class's own __setattr__: a frozen dataclass may be an exception too.
    BaseException.__setattr__(error, "__perdure_path__", path)
    return error


def undoing(
    error: BaseException, *, undone: tuple[str, ...] = (), redo: tuple[str, ...] = ()
) -> BaseException:
    """Note on an error what a retry has to do anew apart from where it arose, besides what was noted before."""
    known = noted(error)
    anew: Anew = {
        "undone": tuple(dict.fromkeys(known.get("undone", ()) + undone)),
        "redo": tuple(dict.fromkeys(known.get("redo", ()) + redo)),
    }
    BaseException.__setattr__(error, "__perdure_anew__", anew)
    return error


def noted(error: BaseException) -> Anew:
    """What `undoing` has noted on an error; empty if nothing."""
    anew: Anew | None = getattr(error, "__perdure_anew__", None)
    return {} if anew is None else anew


def both(failure: BaseException, later: BaseException) -> BaseException:
    """What is raised of two errors: of a branch, and of one that was cancelled for it and ends with an error too; or of
    a cancel, and what it finds being rolled back.

    That is the first, which a retry must undo more for; but a roll-back that failed is not to go unheard.
    """
    anew = noted(later)
    if not anew:
        return failure
    if not anew["redo"]:
        return undoing(failure, **anew)
    later.__cause__ = later.__cause__ or failure
    return undoing(later, **noted(failure))
