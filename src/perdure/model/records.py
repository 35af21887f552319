"""The rows, as frozen values: what every store keeps and every read gives back.

Times are integer microseconds since the epoch, UTC. Payloads are JSON text, opaque to stores. A change
of a row is a new value (`msgspec.structs.replace`), so a record once read never moves under its reader.
"""

from typing import Final, Literal

import msgspec

from perdure.model.status import Status

StepKind = Literal[
    "step",
    "wait",
    "sleep",
    "signal",
    "start",
    "set",
    "emit",
    "put",
    "publish",  # an item for one of the run's streams, or a reply
    "cancel",
    "retry",
    "patch",  # a mark: the run took the new way where code asked `ctx.patched`
    "act",  # a step of a play: its value is the state after it
    "cue",  # a decision of a play: whether a part of it is entered, and which
]
StepState = Literal["open", "retrying", "done", "failed", "abandoned", "superseded"]
# "match" is a topic with a filter: an event that comes is judged outside the store, by the matcher. An approval is
# ended by who decides it; the alarm beside it tells of reminders and of its expiry, and ends nothing. While its run is
# paused only that it was asked is left of it.
WatcherKind = Literal[
    "signal", "run", "timer", "retry", "topic", "match", "queue", "approval", "alarm", "asked"
]
Since = Literal["start", "now", "ever"]
Deliver = Literal["next", "latest"]
Repeats = Literal["deliver", "ignore"]
BufferPolicy = Literal["latest", "first", "all"]
OnEnd = Literal["discard", "dead_letter"]
CatchUp = Literal["none", "one", "all"]
Overlap = Literal["skip", "queue", "allow"]

CANCEL_PATH = "!cancel"
RETRY_PATH = "!retry"
PATCH_PATH = "!patch/"  # branch and name follow
ROLLBACK = "!rollback"  # the scope, inside that of a saga, of the steps that undo it
# Watchers at these paths belong to no wait: they stand over the run whatever it does, until it ends or is cancelled.
DEADLINE_PATH = "!deadline"
CANCEL_ON_PATH = "!cancel_on"
STANDING = frozenset({DEADLINE_PATH, CANCEL_ON_PATH})
# After the path of a part of a play: the steps that deal with what it waited for.
RECEIVE = ".receive"
TIMEOUT = ".timeout"
HANDLING = (RECEIVE, TIMEOUT)
RUNNER = "workflow_runner"  # the built-in consumer that drains subscriptions


def entity_text(entity_type: str | None, entity_id: str | None) -> str:
    """What a row is about, as `type/id`; empty if it is about nothing in particular."""
    return "" if entity_type is None else f"{entity_type}/{entity_id}"


def branch_of(path: str) -> str:
    """The branch that a path belongs to: everything up to its last `[n]/`; "" is the workflow itself."""
    head, bracket, _ = path.rpartition("]/")
    return head + bracket


def branch_around(branch: str) -> str:
    """The branch that this one, which is not the workflow itself, was begun in."""
    return branch_of(branch[:-2])  # without its own "]/"


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
    # From when on it may be claimed: of a ready run, and of a running one whose owner was called and has not answered.
    ready_at: int | None = None
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
    position: int = 0  # the end of the ledger when it was made: its topic waits begin there
    event_id: str | None = None  # the event that a subscription started it for
    deadline_at: int | None = None  # it is cancelled then, if it has not ended
    cancel_on: str | None = (
        None  # JSON array of [topic, entity]: such an event cancels it; "" is any entity
    )
    replaced: int | None = (
        None  # how often a later call of a debounced start has replaced its input
    )
    pool: str = ""  # "": none, and no bounds
    pool_key: str = ""  # the tenant, or whatever the pool is shared by
    priority: int = 0  # among runs of the same key in line: higher first
    # Since when it stands in its pool's line, or from when on, if it is to start later; it cannot be claimed then.
    line_at: int | None = None
    admitted: bool = True  # False: born into a line, and not let through yet
    # JSON array of Origin (model/origins.py), of one that was forked or imported: up to that place of its history
    # chance is drawn as that run drew it.
    forked: str | None = None
    trace: str | None = None  # W3C traceparent of what it was started in


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
    taken_id: str | None = None  # of the signal, item or event that ended a wait


# Where a step stands among all that are decided in its run. It stays there, also when it is superseded.
HistoryPlace = tuple[int, int, str]
HISTORY_BEGINS: Final[HistoryPlace] = (0, 0, "")


def history_place(step: StepRecord) -> HistoryPlace:
    return step.generation, step.seq, step.path


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
    taken_id: str | None = None  # of the signal, item or event that ended a wait
    # For who counts, of a wait that was ended from outside: by what kind of condition, and since when it was open.
    by: str | None = None
    opened_at: int = 0


class Condition(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One thing a wait can end by. A timer has `delay_us` (counted from the opening) or `until_at`.

    A topic may be narrowed to an entity (`type/id`) and by a filter. A filter that is a Python function is only
    named here: the run's own code judges what is delivered, and has it taken back if it does not fit.
    """

    kind: Literal["signal", "run", "timer", "topic", "queue", "approval"]
    target: str = ""
    delay_us: int | None = None
    until_at: int | None = None
    entity: str = ""  # "": any
    since: Since = "start"
    deliver: Deliver = "next"
    filter: str = ""  # CEL, judged by the matcher
    code: str = ""  # the name of a function, judged by the run
    asks: str = ""  # of an approval: what is asked of whom, as JSON


class WaitSpec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a wait step stores about itself, so that pause and resume keep its deadline and its cursors."""

    on: tuple[Condition, ...]
    deadline_at: int | None = None
    deadline_ix: int | None = None  # the timer that gives the deadline
    after: tuple[int, ...] = ()  # for each condition: events after this position count
    branch: str | None = None  # whose cursors they are, if not those of the path's own branch
    # Of the item of a queue that ended it: its position, and when it was put. So it can be given back as it was.
    item: tuple[int, int] | None = None
    handles_timeout: bool = False  # who waits tells of its timeout


class WatcherRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """This run, at this path, waits for this signal, run, queue, topic or deadline.

    One that is standing waits for what cancels the run: a timer at DEADLINE_PATH, topics at CANCEL_ON_PATH.
    """

    run_id: str
    path: str
    ix: int
    generation: int
    kind: WatcherKind
    target: str
    opened_at: int
    deadline_at: int | None = None
    deadline_ix: int | None = None
    entity: str = ""  # of a topic; "": any
    after: int = 0  # of a topic: only events after this position count
    filter: str = ""  # of a topic, as in the condition: its own or the name of a function
    held: bool = False  # a filter must be asked before its deadline counts: the matcher's affair
    asks: str = ""  # of an approval, as in the condition

    @property
    def is_standing(self) -> bool:
        return self.path in STANDING

    @property
    def is_beside(self) -> bool:
        """Whether it only stands beside a wait: it keeps no run waiting and ends nothing."""
        return self.kind in ("alarm", "asked")


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
    expires_at: int | None = None  # None: it lives as long as its run


class OutboxRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A send that was committed with its sender's own transaction, and is to be applied."""

    outbox_id: str
    op: str  # JSON, see model/outbox.py
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
    # Equal to the one before it, on a topic that ignores such: it ends no wait.
    repeated: bool = False


def can_end(watcher: WatcherRecord, event: EventRecord) -> bool:
    """Whether an event of its topic counts for a wait: about its entity, after its cursor, not past its deadline."""
    return (
        watcher.after < event.position
        and (watcher.deadline_at is None or event.recorded_at <= watcher.deadline_at)
        and watcher.entity in ("", entity_text(event.entity_type, event.entity_id))
    )


class ItemRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something in a queue that no run has taken yet. Position is the order of acceptance."""

    item_id: str
    position: int
    queue: str
    payload: str
    put_at: int


class CursorRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How far a branch of a run has seen a topic, narrowed as its wait says."""

    run_id: str
    branch: str
    topic: str
    entity: str
    filter: str
    position: int


class StreamRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How far a stream of a run has come: its newest position, and the bytes of all that was ever published to it."""

    run_id: str
    stream: str
    last: int
    bytes_all: int


class StreamItemRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that a run has published. Positions of a stream are dense from 1, in the order of commits."""

    run_id: str
    stream: str
    position: int
    item: str
    path: str  # of the step or call that published it
    attempt: int
    published_at: int
    bytes_before: int  # of all that was published to the stream before it


class StreamSpan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is kept of a stream: from the first position to the last."""

    stream: str
    first: int
    last: int


class DeadLetterRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A signal or item nobody could take any more, kept to be listed and sent again."""

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
    kind: Literal["signal", "item"] = (
        "signal"  # an item goes back to its queue, which `name` is then
    )


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process that executes runs. Made anew at each process start."""

    worker_id: str
    started_at: int
    lease_until: int
    workflows: str = "[]"  # JSON array of [name, version]: whose runs it executes


class WorkflowRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line of the catalogue: what a workflow takes, gives and listens to, for senders without its code."""

    name: str
    version: int
    input_schema: str
    output_schema: str
    signals: str  # JSON: name -> SignalEntry
    strict_signals: bool  # it declared its signals, so any other name is unknown
    cancel_on: str | None = None  # JSON: list of CancelEntry

    pool: str = ""  # that its runs are in, unless their starter says otherwise
    play: str | None = None  # JSON: the graph of a play


class CancelEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A topic whose events cancel the runs of a workflow, as the catalogue knows it.

    About the run's own entity, if none is named ("": any), or about what only the workflow's code can tell.
    """

    topic: str
    entity: str | None = None
    code: bool = False


class SignalEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A signal as the catalogue knows it. `schema` is None when nothing but JSON is promised.

    In a play it has one place, its `path`, which is passed once. `gates` are the steps that decide whether a run comes
    there, each with the value, as JSON, that leads on.
    """

    schema: dict[str, object] | None
    buffer: BufferPolicy
    ttl_us: int | None
    on_end: OnEnd
    path: str | None = None
    gates: tuple[tuple[str, str], ...] = ()


class ChannelRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line of the catalogue: a topic or a queue, for those who know only its name."""

    kind: Literal["topic", "queue"]
    name: str
    schema: str | None  # JSON Schema; None when nothing but JSON is promised
    enforce: bool = True  # else the schema only documents
    repeats: Repeats = "deliver"


class ConsumerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A named reader of the ledger and its cursor: every event up to `position` is dealt with."""

    name: str
    patterns: str  # JSON array
    position: int
    created_at: int
    every: str | None = None  # cron; None: live
    zone: str = "UTC"
    paused: bool = False
    reason: str | None = None  # why it is paused
    owner: str | None = None
    fence: int = 0
    advanced_at: int  # when its cursor last moved, or it last said that it is at the end
    error: str | None = None  # of the last batch, if that failed
    capped: int = 0  # events whose starts were put off for the sake of a bound


class SubscriptionRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A rule: a topic pattern starts a workflow. Expressions are CEL; `code` says that functions are in code.

    One that code declares (`declared`), with functions or without, is changed there.
    """

    name: str
    pattern: str
    workflow: str
    where: str | None = None
    map: str | None = None
    key: str | None = None
    code: bool = False
    declared: bool = False
    enabled: bool = True
    position: int = 0  # events after it count
    # Events from here to `until` are still to be caught up with, apart from the runner's own cursor.
    behind: int | None = None
    until: int = 0
    created_at: int = 0


class ParkedRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event that a consumer could not deal with; the cursor went on without it."""

    consumer: str
    position: int
    subscription: str = ""  # of the workflow runner: which rule it was
    event_id: str
    type: str
    reason: str
    attempts: int
    parked_at: int


class DeferredRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A start that a subscription asks for and a bound has put off."""

    position: int
    subscription: str
    event_id: str
    reason: Literal["fanout", "root", "depth", "code"]
    deferred_at: int


class PoolRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What runs share, and how much of it there is (model/pools.py)."""

    name: str
    limits: str  # JSON: as they count now
    declared: str | None  # JSON: as code said last; None if code said nothing
    created_at: int


class LineLook(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pool in whose line somebody stands, as a look shows it."""

    name: str
    pool: PoolRecord | None
    oldest_at: int  # since when the first one stands there, or from when on
    begun: bool  # whether one of those in line has begun before: rates do not concern it
    taken: int  # slots
    state: str | None  # LineState as JSON


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A calendar that starts a workflow: cron in a time zone, or an interval counted from `anchor_at`.

    `next_at` is the first tick that nobody has dealt with, `due_at` when a worker has to look at the row: at that tick,
    or sooner if a tick that waited may start now; None while it is paused.
    """

    name: str
    workflow: str
    input: str
    cron: str | None = None
    interval_us: int | None = None
    zone: str = "UTC"
    catch_up: CatchUp = "one"
    overlap: Overlap = "skip"
    code: bool = False  # code declares it, and decides what it says
    paused: bool = False
    reason: str | None = None  # why it is paused
    anchor_at: int = 0
    next_at: int = 0
    due_at: int | None = None
    last_at: int | None = None  # the newest tick that started a run
    last_run_id: str | None = None
    queued: str = "[]"  # JSON: ticks that wait for their turn, the oldest first
    living: str = "[]"  # JSON: ids of its runs that lived when it last looked, the newest ones
    skipped: int = 0  # ticks that started nothing
    skipping: bool = False  # so did the newest one, because a run was still alive: that was told
    created_at: int = 0
    cancel_on: str | None = None  # of the runs that it starts, as in RunRecord


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
    # What a retry does anew, where that is more, or less, than the step that failed: all from the first step at one of
    # these paths or under one of these prefixes on, because it was rolled back; or just these steps, of the roll-back.
    undone: tuple[str, ...] = ()
    redo: tuple[str, ...] = ()
