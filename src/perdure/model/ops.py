"""Every write, as a frozen value: `Op[Answer]`.

Stores interpret ops; nothing else writes. An op is a whole sentence: it is atomic, and what must happen
together is one op. The handlers of every store stand in the order of this file.

Ops of a run's owner (`TurnOp`) name the fence of the claim and the revision the owner last saw. All of
them carry `steps`, the results the turn produced, and `closed`, the waits its branches abandoned, so that
a result and what the workflow did next are one commit.
"""

from typing import Generic, TypeVar

import msgspec

from perdure.model.outcomes import (
    Claimed,
    Counted,
    Fired,
    Refusal,
    SendOutcome,
    Started,
    SteerOutcome,
    TurnOutcome,
)
from perdure.model.records import (
    BufferPolicy,
    Condition,
    OnEnd,
    StepKind,
    StepState,
    WorkflowRecord,
)
from perdure.model.status import Status

Answer = TypeVar("Answer", covariant=True)


class Op(msgspec.Struct, Generic[Answer], frozen=True, kw_only=True, gc=False):
    """A write whose answer is `Answer`."""


class StepDone(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A step body's end: a result, a final failure, or a failed attempt (`retrying`, after `delay_us`)."""

    path: str
    name: str
    state: StepState
    value: str | None = None
    error: str | None = None
    attempt: int = 1
    started_at: int
    recorded_at: int
    delay_us: int = 0


class Wait(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A wait to open. `known` when the history already holds it, open: then its deadline is kept."""

    path: str
    kind: StepKind  # wait or sleep
    name: str
    on: tuple[Condition, ...]
    known: bool = False


# --- starting and owning -----------------------------------------------------------------------------


class StartRun(Op[Started | Refusal], frozen=True, kw_only=True, gc=False):
    """Make a run, or find it under its id or key. With an `owner` it is born claimed.

    `fresh` says that the id was made for this start alone: nobody looks for a run that has it. Should there be
    one after all, the batch fails.
    """

    run_id: str
    workflow: str
    version: int
    input: str
    fresh: bool = False
    key: str | None = None
    tags: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    start_at: int | None = None
    delay_us: int | None = None
    parent_run_id: str | None = None
    parent_path: str | None = None
    owner: str | None = None
    fence: int = 0


class SignalWithStart(
    Op[tuple[Started, SendOutcome] | Refusal], frozen=True, kw_only=True, gc=False
):
    """Find or make the run and signal it, in one commit: no reader sees the one without the other."""

    start: StartRun
    signal: "SendSignal"


class ClaimRuns(Op[Claimed], frozen=True, kw_only=True, gc=False):
    """Take up to `limit` ready runs of workflows that this worker knows."""

    worker_id: str
    fence: int
    limit: int
    workflows: tuple[tuple[str, int], ...]


class Beat(Op[Counted], frozen=True, kw_only=True, gc=False):
    """A worker's life sign. `stopping` removes it."""

    worker_id: str
    lease_us: int
    stopping: bool = False


class Recover(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Make ready again what a dead worker ran, and the suspects that wait for nothing any more."""

    limit: int
    suspects: tuple[str, ...] = ()


class Release(Op[TurnOutcome], frozen=True, kw_only=True, gc=False):
    """The owner forgets a parked run (eviction), or hands a running one back (shutdown)."""

    run_id: str
    fence: int
    revision: int


# --- a turn of the owner -----------------------------------------------------------------------------


class TurnOp(Op[TurnOutcome], frozen=True, kw_only=True, gc=False):
    """What the owner of a run records at the end of a turn."""

    run_id: str
    fence: int
    revision: int
    steps: tuple[StepDone, ...] = ()
    closed: tuple[str, ...] = ()


class RecordStep(TurnOp, frozen=True, kw_only=True, gc=False):
    """Only results; the run goes on. It does not mind a moved revision: what was done was done."""


class Suspend(TurnOp, frozen=True, kw_only=True, gc=False):
    """Open waits; with `park` the run has nothing else to do, with `release` the owner forgets it too."""

    waits: tuple[Wait, ...] = ()
    park: bool = True
    release: bool = False


class RecordSend(TurnOp, frozen=True, kw_only=True, gc=False):
    """Apply a send and record its answer as a step of the sender, in one commit: it happens once."""

    path: str
    kind: StepKind
    name: str
    send: "SendSignal | StartRun | None"  # None: kind is "set"
    value: str | None = None  # what "set" publishes under `name`


class RecordCancel(TurnOp, frozen=True, kw_only=True, gc=False):
    """The owner met the cancel request with these paths open: it will raise there, also on replay."""

    paths: tuple[str, ...]


class RejectSignal(TurnOp, frozen=True, kw_only=True, gc=False):
    """What was delivered at `path` does not fit the wait's type: dead-letter it and wait on."""

    path: str
    wait: Wait
    reason: str


class Finish(TurnOp, frozen=True, kw_only=True, gc=False):
    """The workflow has returned or raised."""

    status: Status
    output: str | None = None
    error: str | None = None


class ContinueAs(TurnOp, frozen=True, kw_only=True, gc=False):
    """Same run, next generation, fresh history."""

    workflow: str
    version: int
    input: str


class Park(TurnOp, frozen=True, kw_only=True, gc=False):
    """The run cannot go on with this code: paused with the reason, nothing recorded."""

    reason: str


# --- time --------------------------------------------------------------------------------------------


class FireTimers(Op[Fired], frozen=True, kw_only=True, gc=False):
    """Act on up to `limit` deadlines that have passed: waits time out, retries are due, signals expire."""

    limit: int


# --- steering ----------------------------------------------------------------------------------------


class Cancel(Op[SteerOutcome], frozen=True, kw_only=True, gc=False):
    """Ask the run, and its children, to stop; its code may clean up."""

    run_id: str
    reason: str | None = None


class Terminate(Op[SteerOutcome], frozen=True, kw_only=True, gc=False):
    """End the run, and its children, at once; no code runs."""

    run_id: str
    reason: str | None = None


class Pause(Op[SteerOutcome], frozen=True, kw_only=True, gc=False):
    """Nothing advances until resumed; the step in flight is still recorded."""

    run_id: str
    reason: str | None = None


class Resume(Op[SteerOutcome], frozen=True, kw_only=True, gc=False):
    """Let a paused run go on."""

    run_id: str


class Retry(Op[SteerOutcome], frozen=True, kw_only=True, gc=False):
    """Reopen a failed run: the step it failed at is superseded and done anew."""

    run_id: str


# --- sending -----------------------------------------------------------------------------------------


class SendSignal(Op[SendOutcome], frozen=True, kw_only=True, gc=False):
    """A message to one run: ends its wait, or is buffered by policy.

    `errors` are what the sender's own type has against the payload. It is sent all the same when it has a key,
    because a key that was used before comes first, and only the store knows.
    """

    signal_id: str
    run_id: str
    name: str
    payload: str
    policy: BufferPolicy | None = None  # None: the sender has only a name; the catalogue decides
    on_end: OnEnd = "discard"
    ttl_us: int | None = None
    path: str | None = None
    key: str | None = None
    buffer: bool = True
    schema: str | None = None  # digest of the schema that the payload was checked against
    errors: tuple[str, ...] = ()


class ResendDeadLetter(Op[SendOutcome], frozen=True, kw_only=True, gc=False):
    """Send a dead letter again, to its run or another, under a new id; it leaves the list if accepted."""

    dead_letter_id: str
    signal_id: str
    run_id: str | None = None


# --- the store itself --------------------------------------------------------------------------------


class Declare(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Write an app's workflows into the catalogue; writes nothing when they are there already."""

    workflows: tuple[WorkflowRecord, ...]
    only_new: bool = False  # what is there stays as it is: the sender does not run them


class Prune(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Delete up to `limit` runs that finished before, with all that belongs to them."""

    finished_before: int
    limit: int
