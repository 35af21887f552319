"""The rows, as frozen values: what every store keeps and every read gives back.

Times are integer microseconds since the epoch, UTC. Payloads are JSON text, opaque to stores. A change
of a row is a new value (`msgspec.structs.replace`), so a record once read never moves under its reader.
"""

from typing import Literal

import msgspec

from perdure.model.status import Status

StepKind = Literal[
    "step", "wait", "sleep", "signal", "start", "set", "emit", "put", "cancel", "retry"
]
StepState = Literal["open", "retrying", "done", "failed", "abandoned", "superseded"]
WatcherKind = Literal["signal", "run", "timer", "retry"]
BufferPolicy = Literal["latest", "first", "all"]
OnEnd = Literal["discard", "dead_letter"]

CANCEL_PATH = "!cancel"
RETRY_PATH = "!retry"


def branch_of(path: str) -> str:
    """The branch that a path belongs to: everything up to its last `[n]/`; "" is the workflow itself."""
    head, bracket, _ = path.rpartition("]/")
    return head + bracket


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One execution of a workflow."""

    run_id: str
    workflow: str
    version: int
    status: Status
    input: str
    created_at: int
    generation: int = 0
    owner: str | None = None  # worker that holds it in memory; its lease is the worker's
    fence: int = 0  # token of the claim, compared by equality; 0 when nobody holds it
    revision: int = 0  # counts what others did to the run: deliveries, cancel, pause, resume
    ready_at: int | None = None  # when it may be claimed; only a ready run has one
    finished_at: int | None = None
    output: str | None = None
    error: str | None = None
    reason: str | None = None  # why it is paused or was cancelled or terminated
    pause_requested: bool = False
    cancel_requested: bool = False
    parent_run_id: str | None = None
    parent_path: str | None = None
    tags: str | None = None  # JSON object
    entity_type: str | None = None
    entity_id: str | None = None
    key: str | None = None
    published: str | None = None  # JSON object: what ctx.set shows to outsiders
    root_id: str | None = None  # the first event of the chain that led here
    depth: int = 0
    origin: str | None = None  # digest of how it was started, once it continued as something else


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One memoised unit of a run: its identity is (run_id, generation, path)."""

    run_id: str
    generation: int
    path: str
    kind: StepKind
    name: str
    state: StepState
    seq: int = 0  # place in the run's history, given at completion; 0 while open
    value: str | None = None
    error: str | None = None
    attempt: int = 1
    winner: int | None = None  # which condition of a wait won
    wait: str | None = None  # WaitSpec as JSON, for waits only
    started_at: int = 0
    recorded_at: int | None = None
    retry_at: int | None = None
    superseded: int = 0  # 0 is the living row; retry renumbers the failed one
    signal_id: str | None = None  # of the signal that ended a wait


class Completion(msgspec.Struct, frozen=True, gc=False):
    """That a step of a run is decided: what its owner must be told."""

    path: str
    kind: StepKind
    state: StepState
    seq: int
    value: str | None
    error: str | None
    winner: int | None
    recorded_at: int
    attempt: int = 1


class Condition(msgspec.Struct, frozen=True, gc=False):
    """One thing a wait can end by. A timer has `delay_us` (counted from the opening) or `until_at`."""

    kind: Literal["signal", "run", "timer"]
    target: str = ""
    delay_us: int | None = None
    until_at: int | None = None


class WaitSpec(msgspec.Struct, frozen=True, gc=False):
    """What a wait step stores about itself, so that pause and resume keep its deadline."""

    on: tuple[Condition, ...]
    deadline_at: int | None = None
    deadline_ix: int | None = None  # the timer that gives the deadline


class WatcherRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """This run, at this path, waits for this signal, run or deadline."""

    run_id: str
    path: str
    ix: int
    generation: int
    kind: WatcherKind
    target: str
    opened_at: int
    deadline_at: int | None = None
    deadline_ix: int | None = None


class SignalRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A signal that was accepted while nobody waited for it. Position is the order of acceptance."""

    signal_id: str
    position: int
    run_id: str
    name: str
    path: str | None
    payload: str
    policy: BufferPolicy
    on_end: OnEnd
    received_at: int
    expires_at: int | None = None


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An idempotency key that was used: what it asked for (digest) and what it was answered (JSON)."""

    scope: str
    key: str
    digest: str
    answer: str
    run_id: str | None
    created_at: int


class EventRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact on the ledger. The store gives the position; the id is identity only."""

    position: int
    event_id: str
    type: str
    entity_type: str | None
    entity_id: str | None
    payload: str
    occurred_at: int
    recorded_at: int
    caused_by: str | None = None  # JSON: event_id, run_id, path
    root_id: str | None = None
    depth: int = 0
    key: str | None = None
    trace: str | None = None


class DeadLetterRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A signal nobody could take any more, kept to be listed and sent again."""

    dead_letter_id: str  # the id of the signal
    run_id: str
    name: str
    path: str | None
    payload: str
    policy: BufferPolicy
    on_end: OnEnd
    reason: str
    received_at: int
    dead_at: int
    cause: Literal["ended", "rejected", "left"] = (
        "ended"  # only what the end cut off goes back by retry
    )
    expires_at: int | None = None


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process that executes runs. Made anew at each process start."""

    worker_id: str
    started_at: int
    lease_until: int


class WorkflowRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line of the catalogue: what a workflow takes, gives and listens to, for senders without its code."""

    name: str
    version: int
    input_schema: str
    output_schema: str
    signals: str  # JSON: name -> SignalEntry
    strict_signals: bool  # it declared its signals, so any other name is unknown


class SignalEntry(msgspec.Struct, frozen=True, gc=False):
    """A signal as the catalogue knows it. `schema` is None when nothing but JSON is promised."""

    schema: dict[str, object] | None
    buffer: BufferPolicy
    ttl_us: int | None
    on_end: OnEnd


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An error as data. Nothing is pickled: type name, words, traceback text, encodable arguments."""

    kind: Literal["step", "run", "cancelled", "terminated", "refused", "workflow"]
    type: str
    message: str
    traceback: str = ""
    path: str | None = None
    attempts: int = 1
    args: str | None = None  # JSON array, only for classes named in raises=[…]
    code: str | None = None  # of a refusal
    run_id: str | None = None
