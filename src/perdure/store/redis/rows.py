"""Records and what is stored of them. Rows are JSON texts; what a script must know of a row stands beside it.

Of a run three texts: what it is born with, what changes, and what it shows to others. Its status, who holds it, and
from when on it may be claimed are fields of their own, because a claim changes them without looking into a text.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from perdure.model.records import (
    CursorRecord,
    EventRecord,
    KeyRecord,
    RunRecord,
    StepRecord,
    WatcherRecord,
    WorkerRecord,
)
from perdure.model.status import Status
from perdure.store.optimistic.changes import RunChange
from perdure.store.optimistic.known import Slice
from perdure.store.redis.layout import SEP, moment, time_of

encode = msgspec.json.Encoder().encode


def text(row: Any) -> str:
    return encode(row).decode()


# --- runs ---


class Born(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a run is born with."""

    workflow: str
    version: int
    input: str
    created_at: int
    generation: int = 0
    parent_run_id: str | None = None
    parent_path: str | None = None
    tags: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    key: str | None = None
    root_id: str | None = None
    depth: int = 0
    origin: str | None = None
    event_id: str | None = None
    deadline_at: int | None = None
    cancel_on: str | None = None
    replaced: int | None = None
    pool: str = ""
    pool_key: str = ""
    priority: int = 0
    codec: str = "json/1"


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What becomes of it, apart from what claims change."""

    revision: int = 0
    finished_at: int | None = None
    output: str | None = None
    error: str | None = None
    reason: str | None = None
    pause_requested: bool = False
    cancel_requested: bool = False
    line_at: int | None = None
    admitted: bool = True


_decode_born = msgspec.json.Decoder(Born).decode
_decode_state = msgspec.json.Decoder(State).decode

# What is read of a run, in this order, with its id before it.
RUN_FIELDS: Final = (
    "born",
    "state",
    "published",
    "status",
    "owner",
    "fence",
    "ready",
    "position",
    "change",
    "seq",
)


def born_text(run: RunRecord) -> str:
    return text(
        Born(
            workflow=run.workflow,
            version=run.version,
            input=run.input,
            created_at=run.created_at,
            generation=run.generation,
            parent_run_id=run.parent_run_id,
            parent_path=run.parent_path,
            tags=run.tags,
            entity_type=run.entity_type,
            entity_id=run.entity_id,
            key=run.key,
            root_id=run.root_id,
            depth=run.depth,
            origin=run.origin,
            event_id=run.event_id,
            deadline_at=run.deadline_at,
            cancel_on=run.cancel_on,
            replaced=run.replaced,
            pool=run.pool,
            pool_key=run.pool_key,
            priority=run.priority,
        )
    )


def state_fields(run: RunRecord | RunChange) -> dict[str, str]:
    """The fields that change."""
    state = State(
        revision=run.revision,
        finished_at=run.finished_at,
        output=run.output,
        error=run.error,
        reason=run.reason,
        pause_requested=run.pause_requested,
        cancel_requested=run.cancel_requested,
        line_at=run.line_at,
        admitted=run.admitted,
    )
    fields = {
        "state": text(state),
        "status": run.status,
        "owner": run.owner or "",
        "fence": str(run.fence),
        "ready": "" if run.ready_at is None else moment(run.ready_at),
    }
    if run.published is not None:
        fields["published"] = run.published
    return fields


def decode_run(found: Sequence[bytes | None]) -> tuple[Slice, int] | None:
    """A run with its version, and the last number of its history; None if there is none."""
    run_id, born_row, state_row, published, status, owner, fence, ready, position, change, seq = (
        found
    )
    if born_row is None:
        return None
    assert run_id and state_row and status and fence and position and change and seq
    born, state = _decode_born(born_row), _decode_state(state_row)
    status_text: Status = status.decode()  # type: ignore[assignment]
    run = RunRecord(
        run_id=run_id.decode(),
        workflow=born.workflow,
        version=born.version,
        status=status_text,
        input=born.input,
        created_at=born.created_at,
        generation=born.generation,
        owner=owner.decode() if owner else None,
        fence=int(fence),
        revision=state.revision,
        ready_at=time_of(ready.decode()) if ready else None,
        finished_at=state.finished_at,
        output=state.output,
        error=state.error,
        reason=state.reason,
        pause_requested=state.pause_requested,
        cancel_requested=state.cancel_requested,
        parent_run_id=born.parent_run_id,
        parent_path=born.parent_path,
        tags=born.tags,
        entity_type=born.entity_type,
        entity_id=born.entity_id,
        key=born.key,
        published=None if published is None else published.decode(),
        root_id=born.root_id,
        depth=born.depth,
        origin=born.origin,
        position=int(position),
        event_id=born.event_id,
        deadline_at=born.deadline_at,
        cancel_on=born.cancel_on,
        replaced=born.replaced,
        pool=born.pool,
        pool_key=born.pool_key,
        priority=born.priority,
        line_at=state.line_at,
        admitted=state.admitted,
    )
    return Slice(run, int(change)), int(seq)


# --- what belongs to runs ---

_decode_step = msgspec.json.Decoder(StepRecord).decode
_decode_watcher = msgspec.json.Decoder(WatcherRecord).decode


# Most fields of most steps say nothing: they are left out, for everything here is in memory.
_step_defaults: Final = tuple(
    zip(StepRecord.__struct_fields__[6:], StepRecord.__struct_defaults__, strict=True)
)


def step_text(step: StepRecord) -> str:
    said = {
        "run_id": step.run_id,
        "generation": step.generation,
        "path": step.path,
        "kind": step.kind,
        "name": step.name,
        "state": step.state,
    }
    for name, usual in _step_defaults:
        value = getattr(step, name)
        if value != usual:
            said[name] = value
    return encode(said).decode()


def step_field(step: StepRecord) -> str:
    """Its field among the steps of its generation that are decided."""
    return f"{step.superseded}:{step.path}"


def open_field(generation: int, path: str) -> str:
    """Its field among those of its run that are not."""
    return f"{generation}:{path}"


def wait_field(watcher: WatcherRecord) -> str:
    return f"{watcher.path}{SEP}{watcher.ix:06d}"


def watcher_value(watcher: WatcherRecord) -> str:
    """With what a script judges it by, before the row: from where on events count, and its deadline."""
    deadline = "" if watcher.deadline_at is None else str(watcher.deadline_at)
    return f"{watcher.after}:{deadline}:{text(watcher)}"


def decode_watcher(value: bytes) -> WatcherRecord:
    return _decode_watcher(value.split(b":", 2)[2])


def cursor_field(cursor: CursorRecord) -> str:
    return SEP.join((cursor.branch, cursor.topic, cursor.entity, cursor.filter))


def decode_cursor(run_id: str, field: bytes, position: bytes) -> CursorRecord:
    branch, topic, entity, filter = field.decode().split(SEP, 3)
    return CursorRecord(
        run_id=run_id,
        branch=branch,
        topic=topic,
        entity=entity,
        filter=filter,
        position=int(position),
    )


def pairs(flat: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """The fields of a hash with their values, as the server lists them."""
    return zip(flat[::2], flat[1::2], strict=True)


# --- the ledger ---


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What is in the row of an event; the rest stands beside it."""

    payload: str
    occurred_at: int
    caused_by: str | None = None
    root_id: str | None = None
    depth: int = 0
    key: str | None = None
    trace: str | None = None
    repeated: bool = False
    codec: str = "json/1"


_decode_event = msgspec.json.Decoder(_Event).decode


def event_text(event: EventRecord) -> str:
    return text(
        _Event(
            payload=event.payload,
            occurred_at=event.occurred_at,
            caused_by=event.caused_by,
            root_id=event.root_id,
            depth=event.depth,
            key=event.key,
            trace=event.trace,
            repeated=event.repeated,
        )
    )


def decode_event(entry: Any) -> EventRecord:
    """An entry of the stream: its id, and its fields in the order that they are written in."""
    place, (_, event_id, _, type, _, about, _, _, _, at, _, row) = entry
    rest = _decode_event(row)
    entity_type, entity_id = about.decode().split("/", 1) if about else (None, None)
    return EventRecord(
        position=int(place.partition(b"-")[0]),
        event_id=event_id.decode(),
        type=type.decode(),
        entity_type=entity_type,
        entity_id=entity_id,
        payload=rest.payload,
        occurred_at=rest.occurred_at,
        recorded_at=int(at),
        caused_by=rest.caused_by,
        root_id=rest.root_id,
        depth=rest.depth,
        key=rest.key,
        trace=rest.trace,
        repeated=rest.repeated,
    )


# --- keys and workers ---


def key_field(scope: str, key: str) -> str:
    return f"{scope}{SEP}{key}"


def key_mark(key: KeyRecord) -> str:
    """What tells one use of a key from another; its value begins with it."""
    return f"{key.created_at}{SEP}{key.digest}{SEP}"


_decode_key = msgspec.json.Decoder(KeyRecord).decode


def decode_key(value: bytes) -> KeyRecord:
    return _decode_key(value.split(b"\0", 2)[2])


def aged(time_us: int, row: Any) -> str:
    """A row with its age before it, for the script."""
    return f"{time_us}:{text(row)}"


def without_age(value: bytes) -> bytes:
    return value.partition(b":")[2]


def worker_value(worker: WorkerRecord) -> str:
    return f"{worker.lease_until}:{worker.started_at}"


def decode_worker(worker_id: bytes, value: bytes) -> WorkerRecord:
    until, started = value.split(b":")
    return WorkerRecord(
        worker_id=worker_id.decode(), started_at=int(started), lease_until=int(until)
    )
