"""What a batch rests on, and what it writes: one value, which the backend turns into one call."""

import hashlib
from typing import Any, Final

import msgspec

from perdure.model import ops
from perdure.model.records import (
    ChannelRecord,
    ConsumerRecord,
    CursorRecord,
    DeadLetterRecord,
    DeferredRecord,
    EventRecord,
    ItemRecord,
    KeyRecord,
    ParkedRecord,
    PoolRecord,
    RunRecord,
    ScheduleRecord,
    SignalRecord,
    StepRecord,
    StreamItemRecord,
    SubscriptionRecord,
    WatcherRecord,
    WorkerRecord,
    WorkflowRecord,
)

# The end of the ledger before a batch; those it appends follow. No ledger reaches it.
UNPLACED: Final = 2**62


def born_version(batch_id: str) -> int:
    """The version of runs that a batch makes: one that no run of that id had before, if it was pruned meanwhile.

    It and all that follow are less than 2^53: scripts count it up.
    """
    return int.from_bytes(hashlib.blake2b(batch_id.encode(), digest_size=6).digest(), "big") + 1


class SeenRun(msgspec.Struct, frozen=True, gc=False):
    """A run that the decision looked at, and the version it had."""

    run_id: str
    change: int
    bump: bool  # something that belongs to it changes: so does its version
    # Its owner is another process, which may have added plain results meanwhile: those of `generation` must be older
    # than what this batch adds. None: nobody else can have.
    generation: int | None = None


class SeenUnit(msgspec.Struct, frozen=True, gc=False):
    """A topic, queue or reader that the decision rests on, and the version it had."""

    kind: str
    name: str
    version: int
    bump: bool
    # Of a topic whose events were looked at: the newest one.
    newest: int | None = None


class RunChange(msgspec.Struct, frozen=True, gc=False):
    """What can change of a run, apart from `continue_as` and a start that replaces its input.

    `published` is None when it stays.
    """

    run_id: str
    status: str
    owner: str | None
    fence: int
    revision: int
    ready_at: int | None
    finished_at: int | None
    output: str | None
    error: str | None
    reason: str | None
    pause_requested: bool
    cancel_requested: bool
    published: str | None
    line_at: int | None
    admitted: bool


class StreamChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stream that has grown: how far it comes, how far it was seen to have come (0: it is new), and what an item
    needs to be kept, as `model.streams.floor_of` says."""

    run_id: str
    stream: str
    last: int
    bytes_all: int
    seen: int
    position_min: int
    bytes_min: int


class Changes(msgspec.Struct, kw_only=True, gc=False):
    """Everything that one batch asks of the store."""

    batch_id: str
    now: int
    seq: int  # greater than every number this batch has given
    seq_before: int  # and this one smaller
    born: int  # the version of the runs that it makes
    head: int | None  # the ledger must end here; None: wherever it ends
    # A deadline has passed, or an event came before one: nothing later may have been recorded before it.
    judges_time: bool

    runs: list[SeenRun]
    units: list[SeenUnit]

    # As they were, of those that change or go or whose version moves: who keeps indexes by hand takes them out by that.
    runs_before: dict[str, RunRecord]
    new_runs: list[RunRecord]
    changed_runs: list[RunChange]
    renewed_runs: list[RunRecord]
    gone_runs: list[str]
    new_steps: list[StepRecord]
    put_steps: list[StepRecord]
    gone_steps: list[tuple[str, int, str]]
    past_steps: list[tuple[str, int]]
    new_watchers: list[WatcherRecord]
    gone_watchers: list[WatcherRecord]
    new_signals: list[SignalRecord]
    gone_signals: list[SignalRecord]
    put_cursors: list[CursorRecord]
    put_streams: list[StreamChange]
    new_stream_items: list[StreamItemRecord]
    new_items: list[ItemRecord]
    gone_items: list[ItemRecord]
    new_keys: list[KeyRecord]
    gone_keys: list[KeyRecord]
    new_letters: list[DeadLetterRecord]
    gone_letters: list[DeadLetterRecord]
    new_events: list[EventRecord]
    new_fan_outs: list[int]
    gone_fan_outs: list[int]
    trim: int | None
    put_consumers: list[ConsumerRecord]
    gone_consumers: list[str]
    put_subscriptions: list[SubscriptionRecord]
    gone_subscriptions: list[str]
    put_parked: list[ParkedRecord]
    gone_parked: list[tuple[str, int, str]]
    put_deferred: list[DeferredRecord]
    gone_deferred: list[tuple[int, str]]
    schedules_before: dict[str, ScheduleRecord]  # likewise
    put_schedules: list[ScheduleRecord]
    gone_schedules: list[str]
    put_pools: list[PoolRecord]
    put_workers: list[WorkerRecord]
    gone_workers: list[str]
    put_workflows: list[WorkflowRecord]
    put_channels: list[ChannelRecord]
    gone_outbox: list[str]
    claims: list[ops.ClaimRuns]

    @property
    def needs_head(self) -> bool:
        """Whether the end of the ledger matters: something is appended, placed, or judged by it."""
        if self.new_events or self.new_runs or self.head is not None or self.judges_time:
            return True
        return (
            any(one.position >= UNPLACED for one in self.put_cursors)
            or any(one.position >= UNPLACED for one in self.put_subscriptions)
            or any(one.after >= UNPLACED for one in self.new_watchers)
        )


class Conflict(msgspec.Struct, frozen=True, gc=False):
    """What the batch rests on was overtaken: nothing was written. All that is named is to be looked at anew."""

    runs: tuple[str, ...] = ()
    units: tuple[tuple[str, str], ...] = ()
    seq: int = 0
    head: int = 0
    now: int = 0


def everything(changes: Changes) -> Conflict:
    """When nobody says what was overtaken, all that the decision looked at may be."""
    return Conflict(
        runs=tuple(one.run_id for one in changes.runs),
        units=tuple((one.kind, one.name) for one in changes.units),
    )


class Written(msgspec.Struct, frozen=True, gc=False):
    """The batch is committed. `head` is where the ledger ended before it."""

    head: int
    claimed: tuple[Any, ...] = ()  # for each claim: (its runs as slices, when the next is ready)
