"""Every write, as a frozen value: `Op[Answer]`.

Stores interpret ops; nothing else writes. An op is a whole sentence: it is atomic, and what must happen
together is one op. The handlers of every store stand in the order of this file.

Ops of a run's owner (`TurnOp`) name the fence of the claim and the revision the owner last saw. All of
them carry `steps`, the results the turn produced, and `closed`, the waits its branches abandoned, so that
a result and what the workflow did next are one commit.
"""

from typing import ClassVar, Generic, TypeVar

import msgspec

from perdure.model.outcomes import (
    Admitted,
    Claimed,
    Counted,
    CursorMoved,
    DecideOutcome,
    EmitOutcome,
    Fenced,
    Filled,
    Fired,
    FromOutbox,
    Moved,
    PutOutcome,
    Queued,
    Refusal,
    SendOutcome,
    Started,
    SteerOutcome,
    Trimmed,
    TurnOutcome,
)
from perdure.model.records import (
    BufferPolicy,
    ChannelRecord,
    Condition,
    ConsumerRecord,
    DeferredRecord,
    OnEnd,
    ParkedRecord,
    PoolRecord,
    Repeats,
    RunRecord,
    ScheduleRecord,
    SignalRecord,
    StepKind,
    StepRecord,
    StepState,
    SubscriptionRecord,
    WorkflowRecord,
)
from perdure.model.status import Status

Answer = TypeVar("Answer", covariant=True)


class Op(msgspec.Struct, Generic[Answer], frozen=True, kw_only=True, gc=False):
    """A write whose answer is `Answer`. One that is `heavy` does the work of a batch alone, and closes it."""

    heavy: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """How many rows of its own it brings along: a batch has a bound for those too."""
        return 0


class StepDone(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A step body's end: a result, a final failure, or a failed attempt (`retrying`, after `delay_us`)."""

    path: str
    name: str
    state: StepState
    kind: StepKind = "step"
    value: str | None = None
    error: str | None = None
    attempt: int = 1
    started_at: int
    recorded_at: int
    delay_us: int = 0
    # Facts of a play's own, (type, JSON object), for the ledger in the commit of this record.
    facts: tuple[tuple[str, str], ...] = ()


class Wait(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A wait to open. `known` when the history already holds it, open: then its deadline is kept."""

    path: str
    kind: StepKind  # wait or sleep
    name: str
    on: tuple[Condition, ...]
    known: bool = False
    # Whose wait it is, if not that of its path: a call made by one, awaited by another.
    branch: str | None = None
    announced: bool = False  # the ledger is told when it opens: signal.waiting
    handles_timeout: bool = False  # who waits tells of its timeout, with what came of it


# --- starting and owning -----------------------------------------------------------------------------


class StartRun(Op[Started | Refusal], frozen=True, kw_only=True, gc=False):
    """Make a run, or find it under its id or key. With an `owner` it is born claimed.

    A debounced one (`debounce_us`) has a key of its own kind, and no owner.

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
    # Cancelled then, if it has not ended: at a time, or so long after it may begin.
    deadline_at: int | None = None
    deadline_us: int | None = None
    cancel_on: str | None = None  # as in RunRecord
    # With it the key is that of a debounced start: a run of that key that has not begun takes the input instead, and
    # begins so long after this call, but no later than `debounce_max_us` after the first.
    debounce_us: int | None = None
    debounce_max_us: int = 0
    parent_run_id: str | None = None
    parent_path: str | None = None
    owner: str | None = None
    fence: int = 0
    event_id: str | None = None  # the event that a subscription starts it for,
    root_id: str | None = None  # the first event of the chain that led to that one,
    depth: int = 0  # and how many starts lie between
    pool: str = ""
    pool_key: str = ""
    priority: int = 0
    trace: str | None = None  # a child without one of its own has that of its parent


class SignalWithStart(
    Op[tuple[Started, SendOutcome] | Refusal], frozen=True, kw_only=True, gc=False
):
    """Find or make the run and signal it, in one commit: no reader sees the one without the other."""

    start: StartRun
    signal: "SendSignal"


class ImportRun(Op[Started | Refusal], frozen=True, kw_only=True, gc=False):
    """Make a run as a document tells it: its history, what is buffered for it, and the `first` signals it has had.

    Under its id the same is found again, by the digest of all that was asked for. One that had not ended goes on, by
    replay; what `run` says of who holds it counts for nothing. Steps come with the numbers of the document, which keep
    their order only. A fork was made in this very store: there places on the ledger mean what they meant.
    """

    heavy: ClassVar[bool] = True
    run: RunRecord
    steps: tuple[StepRecord, ...]
    digest: str
    signals: tuple[SignalRecord, ...] = ()
    claims: tuple[tuple[str, str], ...] = ()  # key, and the id of the signal
    forked_from: str | None = None
    from_path: str | None = None
    deadline_us: int | None = None  # from now on, in place of the run's own

    @property
    def size(self) -> int:
        return len(self.steps) + len(self.signals)


class ClaimRuns(Op[Claimed], frozen=True, kw_only=True, gc=False):
    """Take up to `limit` ready runs of workflows that this worker knows: by turns from the pools that it serves."""

    worker_id: str
    fence: int
    limit: int
    workflows: tuple[tuple[str, int], ...]
    pools: tuple[str, ...] | None = None  # None: all; "" are the runs that are in none


class Beat(Op[Counted], frozen=True, kw_only=True, gc=False):
    """A worker's life sign. `stopping` removes it."""

    worker_id: str
    lease_us: int
    stopping: bool = False
    workflows: tuple[tuple[str, int], ...] = ()  # name and version of those that it executes


class Recover(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Make ready again what a dead worker ran, and the suspects that wait for nothing any more."""

    limit: int
    suspects: tuple[str, ...] = ()


class Mend(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Set runs right that somebody has found to be stuck: a parked one, or a ready one that nobody can claim, replays
    and opens its waits again; of one that has ended, what it still watches goes. All others stay as they are."""

    run_ids: tuple[str, ...]


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
    send: "SendSignal | StartRun | Emit | Put | None"  # None: kind is "set" or "publish"
    value: str | None = (
        None  # what "set" shows under `name`, or "publish" adds to the stream of that name
    )


class Publish(Op[Counted | Fenced | Refusal], frozen=True, kw_only=True, gc=False):
    """What a step publishes while it runs: items for streams of its run, all that come before one stream too many.

    The answer is how many that are; a refusal, if the very first is of such a stream. Of the owner of the run, as its
    fence shows; it does not mind a moved revision.
    """

    run_id: str
    fence: int
    path: str
    attempt: int
    items: tuple[tuple[str, str], ...]  # stream, JSON

    @property
    def size(self) -> int:
        return len(self.items)


class RecordCancel(TurnOp, frozen=True, kw_only=True, gc=False):
    """The owner met the cancel request with these paths open: it will raise there, also on replay."""

    paths: tuple[str, ...]


class RejectSignal(TurnOp, frozen=True, kw_only=True, gc=False):
    """What was delivered at `path` does not fit the wait's type: dead-letter it and wait on.

    `passed` when it only did not pass the wait's own filter: an event that concerns others is no letter.
    """

    path: str
    wait: Wait
    reason: str
    passed: bool = False


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
    """Act on up to `limit` deadlines that have passed: waits time out, retries are due, signals expire, and runs whose
    own deadline it is are cancelled."""

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
    """Reopen a failed run: the step it failed at is superseded and done anew; or all from the step at `path` on.

    With `answer` the wait at `path`, which a signal had ended, ends by this one instead.
    """

    run_id: str
    path: str | None = None
    answer: "SendSignal | None" = None


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
    by_name: bool = False  # its sender can check what the store cannot; until then it is refused


class ResendDeadLetter(Op[SendOutcome | Queued], frozen=True, kw_only=True, gc=False):
    """Send a dead letter again, to its run or another, under a new id; it leaves the list if accepted.

    An item goes to the end of its queue, under its own id.
    """

    dead_letter_id: str
    signal_id: str
    run_id: str | None = None
    schema: str | None = (
        None  # as in `SendSignal`; of another run than its own it is a send by name
    )


# --- approvals ---------------------------------------------------------------------------------------


class Decide(Op[DecideOutcome], frozen=True, kw_only=True, gc=False):
    """Answer an approval of a run: of several who do, one decides.

    `people` are who answers and the groups of that person, as `who` of the approval names them. Whoever came by a link
    (`link_id`) need not be among those: to have the link is the right. `schema` is that of the class which has written
    the payload, if one has.
    """

    run_id: str
    approval_id: str  # its own part of the id
    choice: str | None = None
    payload: str | None = None
    schema: str | None = None
    by: str
    people: tuple[str, ...] = ()
    comment: str | None = None
    link_id: str | None = None
    link_expires_at: int | None = None
    key: str | None = None


# --- topics and queues -------------------------------------------------------------------------------


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event to append. `fresh` says that the id was made for it alone: nobody looks for one that has it.

    `errors` are what the emitter's own type has against the payload; see `SendSignal`.
    """

    event_id: str
    type: str
    payload: str
    fresh: bool = True
    entity_type: str | None = None
    entity_id: str | None = None
    key: str | None = None
    occurred_at: int | None = None  # None: when it is recorded
    caused_by: str | None = None  # JSON
    root_id: str | None = None
    depth: int = 0
    trace: str | None = None
    repeats: Repeats | None = None  # None: the emitter has only a name; the catalogue decides
    schema: str | None = None  # digest of the schema that the payload was checked against
    errors: tuple[str, ...] = ()
    by_name: bool = False  # as in `SendSignal`


class Emit(Op[tuple[EmitOutcome, ...]], frozen=True, kw_only=True, gc=False):
    """Append events, each with an answer of its own, and resume who waits for them."""

    events: tuple[NewEvent, ...]

    @property
    def size(self) -> int:
        return len(self.events)


class FanOut(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Go on with events that had more runs to resume than one commit takes: up to `limit` runs.

    Those that nobody holds are claimed at once, as `claim` says, if the sender has room for them.
    """

    heavy: ClassVar[bool] = True
    limit: int
    claim: ClaimRuns | None = None


class ResolveWait(Op[Counted], frozen=True, kw_only=True, gc=False):
    """What the matcher found for a wait with a filter: the event that fits, one that it fails on, or nothing.

    With `position` None nothing up to `examined` fits: then the deadline counts, if it has passed and no later
    event is older than it.
    """

    run_id: str
    generation: int
    path: str
    ix: int
    position: int | None
    examined: int
    error: str | None = None


class Put(Op[PutOutcome], frozen=True, kw_only=True, gc=False):
    """An item for whichever run waits longest, or to be kept. `errors` and `by_name` as in `SendSignal`."""

    item_id: str
    queue: str
    payload: str
    key: str | None = None
    schema: str | None = None
    errors: tuple[str, ...] = ()
    by_name: bool = False


class PurgeQueue(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Delete up to `limit` items of a queue that were put before, oldest first."""

    queue: str
    put_before: int | None
    limit: int


# --- sends that came with their sender's own transaction ----------------------------------------------

Send = StartRun | SendSignal | Emit | Put


class ApplyOutbox(Op[FromOutbox], frozen=True, kw_only=True, gc=False):
    """Apply what a row of the outbox asks for, and delete the row, in one commit: it happens once.

    If the row is gone, somebody else was quicker: nothing happens. What is refused has no sender to be told; it
    becomes a fact on the ledger. So does a row that this code cannot read: then there is no `send` but the `reason`.
    """

    outbox_id: str
    send: Send | None
    text: str = ""  # of a row that cannot be read, as much as is told of it
    reason: str = ""


# --- consumers and subscriptions ---------------------------------------------------------------------


class Effect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that a consumer wants done together with its cursor.

    `event` is the place of the event it is about, and `subscription` the rule that asks for a start: such a start
    keeps to the bounds of its chain of events, and is parked if it is refused.
    """

    op: Send
    position: int
    subscription: str = ""


class ClaimConsumer(Op[ConsumerRecord | Refusal], frozen=True, kw_only=True, gc=False):
    """Become the one owner of a consumer, which is made if it is new. Refused while another owner lives."""

    name: str
    worker_id: str
    fence: int
    patterns: str
    every: str | None = None
    zone: str = "UTC"
    # A new one begins after this position, or with what was recorded from this time on; else at the ledger's end.
    start: int | None = None
    start_at: int | None = None


class AdvanceCursor(Op[CursorMoved | Moved | Fenced], frozen=True, kw_only=True, gc=False):
    """The owner has dealt with all events up to `position`: effects, parked events and cursor in one commit.

    `seen` is the cursor it started from; if somebody moved it meanwhile, or finished one of the keys, nothing happens.
    """

    name: str
    fence: int
    seen: int
    position: int
    effects: tuple[Effect, ...] = ()
    parked: tuple[ParkedRecord, ...] = ()
    deferred: tuple[DeferredRecord, ...] = ()
    finished: tuple[str, ...] = ()  # keys that it has dealt with, for dedupe
    caught_up: str | None = None  # a subscription whose own catch-up moved, instead of the cursor
    error: str | None = None


class CommitEffects(Op[Counted], frozen=True, kw_only=True, gc=False):
    """What an event fired anew leads to; the cursor stays.

    With `unpark` only if it is parked still, and then it is no more; else only if none of the keys is finished by now.
    """

    consumer: str
    effects: tuple[Effect, ...] = ()
    unpark: tuple[int, str] | None = None  # position, subscription
    reason: str | None = None  # it failed again, with this reason: it stays parked
    finished: tuple[str, ...] = ()
    parked: tuple[ParkedRecord, ...] = ()


class DrainDeferred(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Start what was put off, each if it still is; with no op it is only dropped, with a reason parked."""

    starts: tuple[tuple[int, str, "StartRun | None", str | None], ...]
    consumer: str
    released: bool = False  # by an operator: the bounds that put it off no longer count


class SteerConsumer(Op[ConsumerRecord | Refusal], frozen=True, kw_only=True, gc=False):
    """Pause or resume a consumer, or move its cursor to a position or a time."""

    name: str
    paused: bool | None = None
    reason: str | None = None
    position: int | None = None
    at: int | None = None


class DropConsumer(Op[Counted | Refusal], frozen=True, kw_only=True, gc=False):
    """Forget a consumer that no code reads for any more, with its cursor. Refused while its owner lives."""

    name: str


class DropParked(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Forget parked events."""

    consumer: str
    events: tuple[tuple[int, str], ...]  # position, subscription


class PutSubscription(Op[Counted | Refusal], frozen=True, kw_only=True, gc=False):
    """Make or change a subscription. A new one begins as `start` or `start_at` say; see `ClaimConsumer`.

    One that code declares is changed by code alone.
    """

    subscription: SubscriptionRecord
    start: int | None = None
    start_at: int | None = None
    # Code declares it again: whether it is enabled is the operator's word.
    keep_enabled: bool = False


class SwitchSubscription(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Switch a subscription on or off, whatever else it says by now; counts 0 if there is none."""

    name: str
    enabled: bool


class DropSubscription(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Delete a subscription and what it has put off."""

    name: str


# --- schedules ---------------------------------------------------------------------------------------


class PutSchedule(Op[ScheduleRecord | Refusal], frozen=True, kw_only=True, gc=False):
    """Make or change a schedule; of the record only what users say counts. One of code is changed by code alone.

    A new one, and one whose calendar changes, begins with its next tick. Whether it is paused stays.
    """

    schedule: ScheduleRecord


class SteerSchedule(Op[ScheduleRecord | Refusal], frozen=True, kw_only=True, gc=False):
    """Pause a schedule, or let it go on with the next tick: those in between do not count."""

    name: str
    paused: bool
    reason: str | None = None


class DropSchedule(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Delete a schedule, and the ticks that wait; its runs stay."""

    name: str


class FireSchedules(Op[Fired], frozen=True, kw_only=True, gc=False):
    """Deal with the ticks that have come, of up to `limit` schedules of these workflows: start runs, in the versions
    named here, and move on. Who comes second finds nothing to do."""

    limit: int
    workflows: tuple[tuple[str, int], ...]
    pools: tuple[tuple[str, str], ...] = ()  # of those that have one: workflow, pool


class TriggerSchedule(Op[Started | Refusal], frozen=True, kw_only=True, gc=False):
    """Start a run of a schedule now, apart from its calendar; once for each run id."""

    name: str
    run_id: str
    workflow: str
    version: int
    pool: str = ""


class BackfillSchedule(Op[Filled | Refusal], frozen=True, kw_only=True, gc=False):
    """Start, or have wait for their turn, up to `limit` ticks in a window that have no run: after `after`, and not
    later than `until` nor than now."""

    name: str
    workflow: str
    version: int
    after: int
    until: int
    limit: int
    pool: str = ""


# --- pools -------------------------------------------------------------------------------------------


class DeclarePools(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Record the pools that code names: (name, limits as JSON, None where it only names one).

    What code says counts when it is new, or differs from what code said last: else what was set since stays.
    """

    pools: tuple[tuple[str, str | None], ...]
    only_new: bool = False  # what is there stays as it is: the sender runs nothing


class SetPool(Op[PoolRecord | Refusal], frozen=True, kw_only=True, gc=False):
    """Set the limits of a pool, which is made if it is new; None: as code declared them. Takes nobody's slot away."""

    name: str
    limits: str | None  # JSON
    fields: tuple[str, ...] = ()  # which of them are set; the others stay


class AdmitRuns(Op[Admitted], frozen=True, kw_only=True, gc=False):
    """Let up to `limit` runs of these workflows through from a pool's line, as far as its limits allow: by turns from
    its keys. From then on they hold a slot and can be claimed.

    With `takes_back` up to as many lose theirs before that and stand in line: those that nobody can claim yet, and
    those that nobody has claimed for long and that are of none of these workflows.
    """

    pool: str
    limit: int
    workflows: tuple[tuple[str, int], ...]
    takes_back: bool = False


# --- the store itself --------------------------------------------------------------------------------


class Declare(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Write an app's workflows into the catalogue; writes nothing when they are there already."""

    workflows: tuple[WorkflowRecord, ...] = ()
    only_new: bool = False  # what is there stays as it is: the sender does not run them
    channels: tuple[ChannelRecord, ...] = ()


class Prune(Op[Counted], frozen=True, kw_only=True, gc=False):
    """Delete up to `limit` runs that finished before, with all that belongs to them, and keys that ran out."""

    finished_before: int | None
    limit: int


class TrimLedger(Op[Trimmed], frozen=True, kw_only=True, gc=False):
    """Delete up to `limit` of the oldest events: those recorded before, or beyond the newest `keep`.

    Never what a consumer has still to read, unless it was idle since before `idle_before`, or `forced`.
    """

    recorded_before: int | None
    keep: int | None
    limit: int
    idle_before: int
    forced: bool = False
