"""Records and what is stored of them. Rows are JSON texts; what a script must know of a row stands beside it.

Of a run three texts: what it is born with, what changes, and what it shows to others. Its status, who holds it, and
from when on it may be claimed stand before the second, because a claim changes them without looking into JSON. Fields
are few: each one that is written is copied several times on its way into the server's log.
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
    StreamItemRecord,
    StreamRecord,
    WatcherRecord,
    WorkerRecord,
)
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
    forked: str | None = None
    trace: str | None = None
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


_decode_run = msgspec.json.Decoder(RunRecord).decode

# What is read of a run, in this order, with its id before it.
RUN_FIELDS: Final = ("born", "published", "claim", "made", "seq")


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
            forked=run.forked,
            trace=run.trace,
        )
    )


def claim_text(change: int, run: RunRecord | RunChange) -> str:
    """Its version, status and owner, the token of that one's claim, from when on anybody may claim it, its state."""
    ready = "" if run.ready_at is None else moment(run.ready_at)
    claim = f"{change}{SEP}{run.status}{SEP}{run.owner or ''}{SEP}{run.fence}{SEP}{ready}"
    return f"{claim}{SEP}{_state_text(run)}"


def made_text(run: RunRecord) -> str:
    """When it was made, and its generation; its position follows."""
    return f"{moment(run.created_at)}:{run.generation}:"


def _state_text(run: RunRecord | RunChange) -> str:
    return text(
        State(
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
    )


def decode_run(found: Sequence[bytes | None]) -> tuple[Slice, int] | None:
    """A run with its version, and the last number of its history; None if there is none.

    Its parts are put together as one text, and that is decoded: one by one they would take three times as long, and of
    all that is read runs are the most.
    """
    run_id, born, published, claim, made, seq = found
    if born is None:
        return None
    assert run_id and claim and made and seq
    change, status, owner, fence, ready, state = claim.split(b"\0", 5)
    parts = [b'{"run_id":', encode(run_id.decode()), b',"status":"', status, b'","fence":', fence]
    parts += (b',"position":', made.rpartition(b":")[2])
    if owner:
        parts += (b',"owner":', encode(owner.decode()))
    if ready:
        parts += (b',"ready_at":', str(time_of(ready.decode())).encode())
    if published is not None:
        parts += (b',"published":', encode(published.decode()))
    if len(state) > len(b"{}"):
        parts += (b",", state[1:-1])
    run = _decode_run(b"".join((*parts, b",", born[1:])))
    return Slice(run, int(change)), int(seq)


# --- what belongs to runs ---

_decode_step = msgspec.json.Decoder(StepRecord).decode
_decode_watcher = msgspec.json.Decoder(WatcherRecord).decode


# Most fields of most steps say nothing: they are left out, for everything here is in memory.
_Step: Final = msgspec.defstruct(
    "_Step",
    [
        (one.name, one.type) if one.required else (one.name, one.type, one.default)
        for one in msgspec.structs.fields(StepRecord)
    ],
    omit_defaults=True,
    gc=False,
)


def step_text(step: StepRecord) -> str:
    return text(_Step(*msgspec.structs.astuple(step)))


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


class _StreamItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What is in the row of an item of a stream; the rest stands beside it, or is its key."""

    item: str
    path: str
    published_at: int
    attempt: int = 1
    codec: str = "json/1"


_decode_stream_item = msgspec.json.Decoder(_StreamItem).decode


def stream_part(run_id: str, stream: str) -> str:
    """As the items of a stream are named."""
    return f"{run_id}{SEP}{stream}"


def stream_value(last: int, bytes_all: int) -> str:
    return f"{last}:{bytes_all}"


def decode_stream(run_id: str, field: bytes, value: bytes) -> StreamRecord:
    last, bytes_all = value.split(b":")
    return StreamRecord(
        run_id=run_id, stream=field.decode(), last=int(last), bytes_all=int(bytes_all)
    )


def stream_item_value(item: StreamItemRecord) -> str:
    """With what a script judges it by, before the row: the bytes that were published before it."""
    row = _StreamItem(
        item=item.item, path=item.path, published_at=item.published_at, attempt=item.attempt
    )
    return f"{item.bytes_before}:{text(row)}"


def decode_stream_item(run_id: str, stream: str, entry: Any) -> StreamItemRecord:
    """An entry of the stream: its place, and its one field."""
    place, (_, value) = entry
    before, _, row = value.partition(b":")
    rest = _decode_stream_item(row)
    return StreamItemRecord(
        run_id=run_id,
        stream=stream,
        position=int(place.partition(b"-")[0]),
        item=rest.item,
        path=rest.path,
        attempt=rest.attempt,
        published_at=rest.published_at,
        bytes_before=int(before),
    )


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
    """The last part of its entry in the stream, after all that a script must know of it."""
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
    """An entry of the stream: its place, and its one field."""
    place, (_, value) = entry
    event_id, type, about, _, at, row = value.split(b"\0", 5)
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
    return f"{worker.lease_until}:{worker.started_at}:{worker.workflows}"


def decode_worker(worker_id: bytes, value: bytes) -> WorkerRecord:
    until, started, *workflows = value.split(b":", 2)
    return WorkerRecord(
        worker_id=worker_id.decode(),
        started_at=int(started),
        lease_until=int(until),
        # A row of older code does not say.
        workflows=workflows[0].decode() if workflows else "[]",
    )
