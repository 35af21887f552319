"""A run as a document: the format `perdure.run/1`, out of a store and in again.

A document is a plain dict that JSON carries as it is: the run's facts, the living history of its present generation,
and what is buffered for it. Payloads are the very texts that are stored, as strings, so nothing is lost by a parser in
between. Times are microseconds since 1970, UTC.

Whoever hands a document in may have made it of whatever: all of it is checked here before anything is written, and
every refusal says where. Pure: no store, no clock.
"""

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, Literal

import msgspec

from perdure.document_waits import check_json, check_time, check_verdict, check_wait, decoded
from perdure.errors import BadDocument
from perdure.model import limits
from perdure.model.clock import first_us, last_us
from perdure.model.keys import claim_on, digest
from perdure.model.limits import BadValue
from perdure.model.origins import Origin, origins_of, origins_text
from perdure.model.records import (
    CANCEL_PATH,
    PATCH_PATH,
    RETRY_PATH,
    BufferPolicy,
    Condition,
    ErrorRecord,
    OnEnd,
    RunRecord,
    SignalRecord,
    StepKind,
    StepRecord,
    entity_text,
)
from perdure.model.status import TERMINAL, Status
from perdure.model.streams import REPLIES
from perdure.runtime.calls import read_answer, read_answers, read_position

FORMAT: Final = "perdure.run/1"

Place = Annotated[int, msgspec.Meta(ge=0, le=limits.int_max)]  # in a history
Count = Annotated[int, msgspec.Meta(ge=0, le=limits.document_count_max)]
Moment = Annotated[int, msgspec.Meta(ge=first_us, le=last_us)]


class RunPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run's own facts."""

    id: str
    workflow: str
    version: Annotated[int, msgspec.Meta(ge=1, le=limits.version_max)]
    status: Status
    generation: Count = 0
    input: str
    created_at: Moment
    starts_at: Moment | None = None
    finished_at: Moment | None = None
    output: str | None = None
    error: str | None = None
    reason: str | None = None
    cancel_requested: bool = False
    tags: dict[str, str] = {}
    entity: str | None = None
    event_id: str | None = None
    root_id: str | None = None
    depth: Count = 0
    published: str | None = None
    origin: str | None = None
    deadline_at: Moment | None = None
    cancel_on: list[tuple[str, str]] = []
    pool: str = ""
    pool_key: str = ""
    priority: int = 0
    parent_id: str | None = None
    parent_path: str | None = None
    forked: tuple[Origin, ...] = ()
    # Left out where there is none: older code refuses what it does not know.
    trace: str | msgspec.UnsetType = msgspec.UNSET


class StepPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One record of the history. `seq` orders what is complete; it is 0 for what is not."""

    path: str
    kind: StepKind
    name: str
    state: Literal["open", "retrying", "done", "failed", "abandoned"]
    seq: Place = 0
    value: str | None = None
    error: str | None = None
    attempt: Annotated[int, msgspec.Meta(ge=1, le=limits.document_count_max)] = 1
    winner: Count | None = None
    wait: str | None = None
    started_at: Moment = 0
    recorded_at: Moment | None = None
    retry_at: Moment | None = None
    taken_id: str | None = None


class SignalPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal that is kept for the run."""

    name: str
    path: str | None = None
    payload: str
    policy: BufferPolicy
    on_end: OnEnd = "discard"
    received_at: Moment
    expires_at: Moment | None = None


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it. `answered` are signals with buffer="first" that were answered: name, and path if it was addressed."""

    format: Literal["perdure.run/1"] = FORMAT
    run: RunPart
    history: tuple[StepPart, ...] = ()
    signals: tuple[SignalPart, ...] = ()
    answered: tuple[tuple[str, str | None], ...] = ()


# --- out -----------------------------------------------------------------------------------------


def document_of(
    run: RunRecord,
    steps: Iterable[StepRecord],
    signals: Iterable[SignalRecord] = (),
    answered: Iterable[tuple[str, str | None]] = (),
) -> Document:
    """What a store has, as a document."""
    return Document(
        run=_run_part(run),
        history=tuple(_step_part(one) for one in in_order(steps)),
        signals=tuple(_signal_part(one) for one in signals),
        answered=tuple(answered),
    )


def in_order(steps: Iterable[StepRecord]) -> list[StepRecord]:
    """As it was recorded; what is not complete comes last."""
    return sorted(steps, key=lambda one: (one.seq == 0, one.seq, one.path))


def _run_part(run: RunRecord) -> RunPart:
    starts_at = run.ready_at if run.line_at is None else run.line_at
    return RunPart(
        id=run.run_id,
        workflow=run.workflow,
        version=run.version,
        # One that is about to pause would have to be asked again elsewhere.
        status="paused" if run.pause_requested else run.status,
        generation=run.generation,
        input=run.input,
        created_at=run.created_at,
        starts_at=starts_at if run.status == "ready" else None,
        finished_at=run.finished_at,
        output=run.output,
        error=run.error,
        reason=run.reason,
        cancel_requested=run.cancel_requested,
        tags=msgspec.json.decode(run.tags) if run.tags else {},
        entity=entity_text(run.entity_type, run.entity_id) or None,
        event_id=run.event_id,
        root_id=run.root_id,
        depth=run.depth,
        published=run.published,
        origin=run.origin,
        deadline_at=run.deadline_at,
        cancel_on=[(topic, about) for topic, about in msgspec.json.decode(run.cancel_on or "[]")],
        pool=run.pool,
        pool_key=run.pool_key,
        priority=run.priority,
        parent_id=run.parent_run_id,
        parent_path=run.parent_path,
        forked=origins_of(run.forked),
        trace=msgspec.UNSET if run.trace is None else run.trace,
    )


def _step_part(step: StepRecord) -> StepPart:
    fields = {name: getattr(step, name) for name in StepPart.__struct_fields__}
    return StepPart(**fields)


def _signal_part(signal: SignalRecord) -> SignalPart:
    fields = {name: getattr(signal, name) for name in SignalPart.__struct_fields__}
    return SignalPart(**fields)


# --- in ------------------------------------------------------------------------------------------


def read_document(given: object) -> Document:
    """A document, checked from end to end; raises BadDocument."""
    if not isinstance(given, dict):
        raise BadDocument(f"is a {type(given).__name__}, not the dict that run.export() gives")
    if given.get("format") != FORMAT:
        shown = limits.shown(given.get("format"))
        raise BadDocument(f"has the format {shown}; this code reads {FORMAT!r}")
    _check_size(given)
    try:
        document = msgspec.convert(given, Document)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadDocument(str(error)) from error
    check_document(document)
    return document


def _check_size(given: dict[Any, Any]) -> None:
    try:
        size = len(msgspec.json.encode(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadDocument(f"is no JSON: {error}") from error
    if size > limits.document_bytes_max:
        bound = f"at most {limits.document_bytes_max} (document_bytes_max)"
        raise BadDocument(f"has {size} bytes; {bound}")


def check_document(document: Document) -> None:
    """What types cannot say: bounds, texts that are JSON, records that fit together."""
    records = len(document.history) + len(document.signals)
    if records > limits.document_rows_max:
        bound = f"at most {limits.document_rows_max} (document_rows_max)"
        raise BadDocument(f"has {records} records; {bound}")
    _checked("run", _check_run, document.run)
    for nth, step in enumerate(document.history):
        _checked(f"history[{nth}]", _check_step, step)
    _check_unique(document.history)
    if not document.run.cancel_requested and any(one.kind == "cancel" for one in document.history):
        raise BadDocument("tells of a cancel, and cancel_requested is false", "history")
    for nth, signal in enumerate(document.signals):
        _checked(f"signals[{nth}]", _check_signal, signal)
    if document.signals and document.run.status in TERMINAL:
        raise BadDocument("has signals for a run that has ended", "signals")
    if sum(len(one.payload) for one in document.signals) > limits.buffered_chars_per_run_max:
        raise BadDocument("are more than a run keeps (buffered_chars_per_run_max)", "signals")
    for nth, (name, path) in enumerate(document.answered):
        _checked(f"answered[{nth}]", _check_answered, (name, path))


def _checked(where: str, check: Any, part: Any) -> None:
    try:
        check(part)
    except BadDocument as error:
        raise BadDocument(error.problem, where) from error
    except (BadValue, UnicodeEncodeError) as error:
        raise BadDocument(str(error), where) from error


def _check_run(run: RunPart) -> None:
    limits.check_run_id(run.id)
    limits.check_name("workflow", run.workflow)
    check_json("input", run.input, list)
    limits.check_reason(run.reason)
    limits.check_tags(run.tags)
    if run.entity is not None:
        limits.check_entity(run.entity)
    for text in (run.event_id, run.root_id, run.origin):
        if text is not None:
            limits.check_key(text)
    if run.trace is not msgspec.UNSET:
        limits.check_trace(run.trace)
    _check_end(run)
    if run.published is not None:
        check_json("published", run.published, dict)
        if len(run.published.encode()) > limits.published_bytes_max:
            raise BadDocument("publishes more than published_bytes_max")
    _check_place(run)
    if len(run.forked) > limits.forks_max:
        raise BadDocument(
            f"was forked {len(run.forked)} times; at most {limits.forks_max} (forks_max)"
        )
    for origin in run.forked:
        _check_origin(origin)


def _check_origin(origin: Origin) -> None:
    limits.check_run_id(origin.run_id)
    check_time("created_at", origin.created_at)
    if not 0 <= origin.seq <= limits.int_max:
        raise BadDocument(f"was forked at {limits.shown(origin.seq)}, which is no place")
    if len(origin.open) > limits.document_rows_max:
        raise BadDocument(f"was forked with {len(origin.open)} open calls (document_rows_max)")
    for path in origin.open:
        limits.check_path(path)


def _check_end(run: RunPart) -> None:
    """What an ended run must have, and one that lives cannot."""
    if (run.status in TERMINAL) != (run.finished_at is not None):
        raise BadDocument(f"is {run.status}, and finished_at is {run.finished_at}")
    if (run.output is not None) != (run.status == "completed"):
        raise BadDocument(f"is {run.status}, and output is {limits.shown(run.output)}")
    if (run.error is not None) != (run.status == "failed"):
        raise BadDocument(f"is {run.status}, and error is {limits.shown(run.error)}")
    if run.output is not None:
        check_json("output", run.output, object)
    if run.error is not None:
        _check_error(run.error)


def _check_error(text: str) -> None:
    error = decoded("error", text, ErrorRecord)
    if error.args is not None:
        check_json("args of the error", error.args, list)


def _check_place(run: RunPart) -> None:
    """Its pool, its parent, and what stands over it."""
    if run.pool:
        limits.check_name("pool", run.pool)
        limits.check_pool_key(run.pool_key)
        limits.check_priority(run.priority)
    elif run.pool_key or run.priority:
        raise BadDocument("has pool_key or priority without a pool")
    if len(run.cancel_on) > limits.cancel_on_max:
        raise BadDocument(f"has {len(run.cancel_on)} topics in cancel_on")
    for topic, entity in run.cancel_on:
        limits.check_name("topic", topic)
        if entity:
            limits.check_entity(entity)
    if run.parent_id is not None:
        limits.check_run_id(run.parent_id)
    if run.parent_path is not None:
        limits.check_path(run.parent_path)


def _check_step(step: StepPart) -> None:
    limits.check_path(step.path)
    _check_engine_path(step)
    if step.kind == "cancel":
        limits.check_reason(step.name)
    elif step.kind != "retry" and (step.kind, step.name) != ("publish", REPLIES):
        limits.check_name("step", step.name)
    complete = step.state in ("done", "failed")
    if step.state != "abandoned" and complete != (step.seq > 0):
        raise BadDocument(f"is {step.state}, and seq is {step.seq}")
    _check_wait(step)
    won = None if step.wait is None else check_wait(step.wait, step.state, step.winner)
    _check_value(step, won)
    is_body = step.kind in ("step", "act", "cue")
    if step.state == "retrying" and not (is_body and step.retry_at is not None):
        raise BadDocument("is retrying, and is no step with a retry_at")
    if step.error is not None:
        _check_error(step.error)
    _check_step_error(step)
    if step.taken_id is not None:
        limits.check_key(step.taken_id)


def _check_step_error(step: StepPart) -> None:
    fails = step.state in ("failed", "retrying")
    # A step that was left between two attempts keeps what the last one raised.
    if step.state != "abandoned" and (step.error is not None) != fails:
        raise BadDocument(f"is {step.state}, and error is {limits.shown(step.error)}")


_value_types: dict[str, Any] = {"cancel": list[str], "retry": Place, "start": str}
# How the code reads the answer of a send.
_answers: dict[str, Callable[[str], object]] = {
    "signal": read_answer,
    "put": read_answer,
    "emit": read_answers,
    "publish": read_position,
}


def _check_value(step: StepPart, won: Condition | None) -> None:
    if step.value is None:
        decided = won is not None and won.kind == "approval" and step.state == "done"
        if decided or step.kind in ("cancel", "retry"):
            raise BadDocument(f"is a {step.kind} that is done, and has no value")
    elif won is not None and won.kind == "approval":
        check_verdict(step.value)
    else:
        check_json("value", step.value, _value_types.get(step.kind, object))
    if step.kind == "cancel":
        for path in msgspec.json.decode(step.value or "[]", type=list[str]):
            limits.check_path(path)
    if step.kind in _answers and step.state == "done" and step.name != REPLIES:
        _check_answer(step)


def _check_answer(step: StepPart) -> None:
    try:
        _answers[step.kind](step.value or "null")
    except (msgspec.MsgspecError, AttributeError, KeyError, TypeError, ValueError):
        raise BadDocument(
            f"has the value {limits.shown(step.value)}, no answer of a {step.kind}"
        ) from None


# Where the engine's own records are, and how that is told.
_own_paths = {
    "cancel": (re.compile(re.escape(CANCEL_PATH)), f"is not done at {CANCEL_PATH!r}"),
    "retry": (
        re.compile(re.escape(RETRY_PATH) + "#[1-9][0-9]{0,9}"),
        f"is not done at '{RETRY_PATH}#' and a number",
    ),
    "patch": (
        re.compile(re.escape(PATCH_PATH) + ".+"),
        f"is not done at a path that begins with {PATCH_PATH!r}",
    ),
}


def _check_engine_path(step: StepPart) -> None:
    own = _own_paths.get(step.kind)
    if own is None and step.path.startswith("!"):
        raise BadDocument(f"has the path {step.path!r}, which is the engine's own")
    if own is not None and not (own[0].fullmatch(step.path) and step.state == "done"):
        raise BadDocument(f"is a {step.kind}, and {own[1]}")


def _check_wait(step: StepPart) -> None:
    is_wait = step.kind in ("wait", "sleep")
    if is_wait != (step.wait is not None):
        raise BadDocument(f"is a {step.kind}, and wait is {limits.shown(step.wait)}")
    if step.wait is None and step.state == "open":
        raise BadDocument(f"is a {step.kind}, which is never open")


def _check_unique(history: tuple[StepPart, ...]) -> None:
    paths: set[str] = set()
    seqs: set[int] = set()
    for nth, step in enumerate(history):
        if step.path in paths:
            raise BadDocument(f"is the second at {step.path!r}", f"history[{nth}]")
        if step.seq and step.seq in seqs:
            raise BadDocument(f"is the second with seq {step.seq}", f"history[{nth}]")
        paths.add(step.path)
        seqs.add(step.seq)


def _check_signal(signal: SignalPart) -> None:
    _check_answered((signal.name, signal.path))
    check_json("payload", signal.payload, object)


def _check_answered(answered: tuple[str, str | None]) -> None:
    limits.check_name("signal", answered[0])
    if answered[1] is not None:
        limits.check_path(answered[1])


# --- as rows -------------------------------------------------------------------------------------


def run_of(part: RunPart) -> RunRecord:
    """As a store keeps it; whoever imports it says under which id."""
    entity_type, entity_id = (
        (None, None) if part.entity is None else limits.check_entity(part.entity)
    )
    encode = msgspec.json.Encoder(order="deterministic").encode
    return RunRecord(
        run_id=part.id,
        workflow=part.workflow,
        version=part.version,
        status=part.status,
        input=part.input,
        created_at=part.created_at,
        generation=part.generation,
        ready_at=part.starts_at,
        finished_at=part.finished_at,
        output=part.output,
        error=part.error,
        reason=part.reason,
        cancel_requested=part.cancel_requested,
        parent_run_id=part.parent_id,
        parent_path=part.parent_path,
        tags=encode(part.tags).decode() if part.tags else None,
        entity_type=entity_type,
        entity_id=entity_id,
        published=part.published,
        root_id=part.root_id,
        depth=part.depth,
        origin=part.origin,
        event_id=part.event_id,
        deadline_at=part.deadline_at,
        cancel_on=encode(part.cancel_on).decode() if part.cancel_on else None,
        pool=part.pool,
        pool_key=part.pool_key,
        priority=part.priority,
        forked=origins_text(part.forked),
        trace=None if part.trace is msgspec.UNSET else part.trace,
    )


def steps_of(document: Document) -> list[StepRecord]:
    run = document.run
    return [
        StepRecord(run_id=run.id, generation=run.generation, **msgspec.structs.asdict(one))
        for one in document.history
    ]


def signals_of(document: Document, run_id: str, ids: Iterable[str]) -> list[SignalRecord]:
    """What is buffered, under new ids: the old ones may be known in the store that it goes to."""
    return [
        SignalRecord(signal_id=id, position=0, run_id=run_id, **msgspec.structs.asdict(one))
        for id, one in zip(ids, document.signals, strict=True)
    ]


def claims_of(document: Document, buffered: Iterable[SignalRecord]) -> list[tuple[str, str]]:
    """The claims of `first` signals, as keys are spelt, with the id of the signal that holds each, if it is here."""
    generation = document.run.generation
    held = {(name, path): "" for name, path in document.answered}
    held |= {(one.name, one.path): one.signal_id for one in buffered if one.policy == "first"}
    return [(claim_on("", generation, *at)[1], id) for at, id in held.items()]


def digest_of(*parts: object) -> str:
    """By which it is known that the same was asked for before."""
    encode = msgspec.json.Encoder(order="deterministic").encode
    return digest(*(encode(one).decode() for one in parts))
