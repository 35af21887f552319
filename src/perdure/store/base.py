"""The contract of a store: it applies ops, it answers reads, it passes hints. Nothing else writes.

A store is correct alone: check-then-act happens inside it, in one transaction, because other processes write
too. Each op is atomic; a batch may be, and nothing relies on it. Reads never block writes, see every commit that
was acknowledged to this process, and page by cursor.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure.errors import StoreRefused
from perdure.model import limits
from perdure.model.clock import Clock
from perdure.model.limits import BadValue
from perdure.model.ops import Op
from perdure.model.outcomes import Wake
from perdure.model.records import (
    ChannelRecord,
    ConsumerRecord,
    DeadLetterRecord,
    DeferredRecord,
    EventRecord,
    HistoryPlace,
    ItemRecord,
    KeyRecord,
    LineLook,
    OutboxRecord,
    ParkedRecord,
    PoolRecord,
    RunRecord,
    ScheduleRecord,
    SignalRecord,
    StepRecord,
    StreamItemRecord,
    StreamSpan,
    SubscriptionRecord,
    WatcherRecord,
    WorkerRecord,
    WorkflowRecord,
)

if TYPE_CHECKING:
    from perdure.store.transaction import Transaction


class BatchFailed(Exception):
    """The batch was not committed: nothing of it happened, and it may be tried again, whole or in parts."""


class BatchLost(BatchFailed):
    """Likewise: it was lost on its way to the store, and may well be taken if it is sent again, under another id."""


class StoreBusy(BatchFailed):
    """Likewise, and none of its ops is to blame: to try it in parts would be of no use."""


class BatchUnknown(Exception):
    """The batch may or may not have been committed; `settle` may tell."""


class Applied(msgspec.Struct, frozen=True, gc=False):
    """An op's answer, and what it means for others."""

    outcome: Any
    wakes: tuple[Wake, ...]


# A watcher's place in a listing: opened_at, run_id, path, ix.
WatcherPlace = tuple[int, str, str, int]
# In one of several topics and entities: target, entity, and that place.
MatchPlace = tuple[str, str, int, str, str, int]


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list; everything named must hold. Tags are (name, value), value None for any."""

    workflow: str | None = None
    statuses: tuple[str, ...] = ()
    tag: tuple[str, str | None] | None = None
    entity: tuple[str, str] | None = None
    parent_run_id: str | None = None
    created_from: int | None = None
    created_before: int | None = None

    @property
    def is_led_by_status(self) -> bool:
        """Runs that failed or wait are few among those of a workflow; those that completed are not."""
        if not self.statuses or self.entity is not None or self.parent_run_id is not None:
            return False
        return self.workflow is None or "completed" not in self.statuses


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker asks for again and again, as one answer: nobody else polls the store.

    Of the runs: the earliest deadline; the earliest time from which one may be claimed (now or later); whether events
    have more runs to resume; whether a running one has no live owner; among the parked ones that were inspected, those
    that watch nothing (a healthy store has none), and the last one inspected, "" at the end. `outbox` says that sends
    of callers are to be applied.
    """

    deadline_at: int | None
    ready_at: int | None
    fan_out: bool
    outbox: bool
    schedule_at: int | None  # when the first schedule of these workflows is due, now or later
    lines: tuple[LineLook, ...]  # of all pools in whose line somebody stands, by name
    orphaned: bool
    suspects: tuple[str, ...]
    swept: str
    # The positions of the oldest event that is kept and of the newest, as `span` gives them.
    first: int
    last: int
    consumers: tuple[ConsumerRecord, ...]
    workers: frozenset[str]  # those that live


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand in a pool: slots that are taken, and who waits for one."""

    taken: int
    waiting: int
    oldest_at: int | None  # since when the first one stands in line, or from when on
    state: str | None  # LineState as JSON
    # Of the keys that were asked about: slots that are taken, and where its bucket stands, if it has one.
    keys: dict[str, tuple[int, int | None]]


class Rewound(msgspec.Struct, frozen=True, gc=False):
    """The server was started again without its newest writes: `start` names that start of it."""

    start: str
    position: int  # where the ledger ended then
    seen: int  # where it had been seen to end


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """What health is judged by: counts, and how long the oldest has waited. Counts stop at a bound."""

    timers_due: int
    oldest_ready_at: int | None
    parked: int
    deferred: int
    dead_letters: int
    schedule_at: int | None  # when the first schedule of any workflow is due, now or later


class Backlog(msgspec.Struct, frozen=True, gc=False):
    """Runs of one version of a workflow that may be claimed: how many, counted up to a bound, and since when."""

    workflow: str
    version: int
    count: int
    ready_at: int


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """The schema that is stored, None if there is none yet, what code it needs, and the one that this code knows."""

    stored: int | None
    min_code: int | None
    known: int


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that promises rest on: as it is, as it should be, and what follows from that or is to be done."""

    name: str
    value: str
    wanted: str
    ok: bool
    why: str


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What a store says of itself, its server and its place. Settings are judged as opening judges them.

    `facts` are what else there is to know, by the names that manuals have for them; one that nobody may ask for is
    missing. `relaxed` says that who opened the store has accepted weaker promises.
    """

    kind: Literal["memory", "sqlite", "postgres", "redis"]
    product: str  # as it calls itself: SQLite, PostgreSQL, Redis, Valkey
    version: str
    versions: Versions
    namespace: str | None
    bytes: int | None  # of all that is kept, as far as that is known
    settings: tuple[Setting, ...]
    facts: dict[str, str]
    relaxed: bool = False


class StreamKept(msgspec.Struct, frozen=True, gc=False):
    """A stream of a run: where its row says that it ends, and what there is of its items."""

    stream: str
    last: int
    first: int  # position of the oldest item, 0 if there is none
    newest: int
    count: int


class Life(msgspec.Struct, frozen=True, gc=False):
    """A run with all its rows, from one moment. What steps gave (value, error) may be left out, but for waits."""

    run: RunRecord
    steps: list[StepRecord]
    watchers: list[WatcherRecord]
    signals: list[SignalRecord]
    streams: list[StreamKept]


class Flaw(msgspec.Struct, frozen=True, kw_only=True):
    """Something that only the store itself can see: a row that belongs to nothing, an index that is not what the rows
    make it, a damaged file. `invariant` is its number; `doubt` says that it could not be judged at all."""

    invariant: str
    what: str
    advice: str = ""
    run_id: str | None = None
    doubt: bool = False


class Store(ABC):
    """Persistence for one namespace, as one process sees it."""

    url: str
    worker_id: str | None = None  # set by the worker of this process before its first op
    lifecycle: bool = True
    # How long a write may take before its caller gives up: a store that has to wait for others gives up before that.
    patience_s: float = 30.0
    # Ops that go into one batch if there are more. While a batch is written, the answers to the one before lead to the
    # next: where the store works beside this process, two halves keep both busy, and with one of all each waits.
    batch_ops: int = limits.batch_ops_max
    # What the body of a transaction in this database is, if it can have one: a plain function or a coroutine function.
    transacts: Literal["def", "async def"] | None = None
    # Set by the engine while it is open, called in its loop with what other processes have committed: a hint that may
    # be lost, doubled or late, and that brings neither completion nor run along. To the process of the worker that is
    # `owner`: news, control, ended. To all: ready (one whose time is still to come may be kept back: looks find it),
    # fan_out, match, consumer, schedule (due `at`), line (of a pool), ended (somebody there may await the run), stream
    # (somebody there may read what the run publishes), and events, with `at` the newest position; and look, where it is
    # known that something was done, but not what.
    on_hint: Callable[[Wake], None] | None = None
    # Whether it is ever called: then what is looked for in its stead is looked for less often.
    sends_hints: bool = False
    # How long the owner of a parked run, in another process, may take to answer a call, before anybody may claim the
    # run. 0 for a store that cannot call: then the run is anybody's at once.
    sticky_us: int = 0
    needs_beats: bool = False  # whether a worker's life is known only by its lease
    # Set by the worker while it holds a lease, called in its loop when that is lost: see `start_beating`.
    on_lost_lease: Callable[[], None] | None = None
    # Set when what this process had seen was found to be lost, and called then; who tells of it takes it away.
    rewound: Rewound | None = None
    on_rewound: Callable[[], None] | None = None
    # The newest event that a batch of this process has appended or seen, or that `span` has told of: a hint.
    head: int = 0

    # --- life ---

    @abstractmethod
    async def open(self) -> None:
        """Connect, migrate, check the settings; raises StoreRefused with the reason."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what is under way and let go of everything. Idempotent."""

    def start_beating(  # noqa: B027 (nothing, for most)
        self, worker_id: str, lease_s: float, every_s: float
    ) -> None:
        """Prolong the lease of this worker from now on, in a thread of its own (beating.py); it was taken just now.

        Only a row that is there is prolonged, never made. When it is gone, or could not be prolonged for as long as
        the lease is, `on_lost_lease` is called in the loop, once, and the beating ends. Does not block. A store that
        sees by itself whether its workers live has nothing to do here. Begun again, it is for the new worker alone.
        """

    def stop_beating(self) -> None:  # noqa: B027 (likewise)
        """End it, if it was begun; `on_lost_lease` is not called any more. Does not block."""

    def outlive(self, until: threading.Event) -> None:  # noqa: B027 (nothing, where rows end with the process)
        """Let the life sign of this process's worker go on beyond `close`, until the event is set or the process ends.

        Called right before `close`, with threads still at work for runs of that worker: nobody is to take them before.
        Does not block. Where a life sign needs the store to be open, the lease runs out in its time.
        """

    def clock(self, given: Clock) -> Clock:
        """The clock by which this store judges deadlines, once it is open: all that waits for them goes by it."""
        return given

    @abstractmethod
    async def versions(self) -> Versions:
        """Which schema is stored. Also for a store that is not open: nothing is made, changed or migrated.

        Raises StoreRefused if it is out of reach or not ours.
        """

    # --- writes ---

    @abstractmethod
    async def apply(
        self, batch_id: str, ops: Sequence[Op[Any]], decided: Callable[[], None] | None = None
    ) -> list[Applied]:
        """Apply ops in order and commit. Raises BatchFailed or BatchUnknown, nothing else.

        `decided` is called in the loop, at most once, when what is left needs little of the interpreter.
        """

    @abstractmethod
    async def settle(self, batch_id: str) -> bool:
        """Whether that batch was committed."""

    @abstractmethod
    async def transact(self, batch_id: str, work: "Transaction") -> list[Applied]:
        """Run the body of `work` in a transaction of this database, apply its op in it, and commit both, or neither.

        See there for what happens when. Raises BatchFailed or BatchUnknown as `apply` does, and passes on what `work`
        itself raises, rolled back. A store whose `transacts` is None is not asked.
        """

    @abstractmethod
    async def write_outbox(self, connection: Any, row: OutboxRecord) -> None:
        """Write a send through a connection of the caller's own, inside its transaction. Never commits.

        Raises BadValue for a connection that is of another kind, leads to another database or has no transaction to
        write into, and StoreRefused if this store has no such connections; nothing is written then.
        """

    def write_outbox_here(self, connection: Any, row: OutboxRecord) -> None:
        """The same at once, in the thread that calls: for connections that only their own thread may use.

        A store whose connections are all asynchronous refuses.
        """
        raise BadValue(
            "connection",
            connection,
            f"cannot be used by app.sync: a {type(self).__name__} takes connections of an event loop only",
        )

    # --- reads for the engine ---

    @abstractmethod
    async def outbox(self, after: str, limit: int) -> list[OutboxRecord]:
        """Sends that callers have committed and nobody has applied yet: by id, greater than `after`."""

    @abstractmethod
    async def load(self, run_ids: Sequence[str]) -> list[tuple[RunRecord, list[StepRecord]]]:
        """The runs and the living rows of their present generation, unordered; unknown ids are left out."""

    @abstractmethod
    async def look(
        self,
        workflows: Iterable[tuple[str, int]] | None = None,
        after: str = "",
        limit: int = 0,
        pools: Iterable[str] | None = None,
    ) -> Look:
        """What there is to do, in one read; of runs that can be claimed only those of these workflows and pools count.

        Up to `limit` parked runs after the run `after` are inspected, in an order of the store's own.
        """

    @abstractmethod
    async def revisions(self, run_ids: Sequence[str]) -> dict[str, int]:
        """The revisions of these runs; unknown ids are left out, and those that have ended: they keep theirs."""

    @abstractmethod
    async def ended(self, run_ids: Sequence[str]) -> list[RunRecord]:
        """Those of these runs that have ended."""

    @abstractmethod
    async def catalogue(self) -> list[WorkflowRecord]:
        """Every workflow any app declared."""

    @abstractmethod
    async def channels(self) -> list[ChannelRecord]:
        """Every topic and queue any app declared."""

    @abstractmethod
    async def span(self) -> tuple[int, int]:
        """The positions of the oldest event that is kept and of the newest; (1, 0) when there was none yet."""

    @abstractmethod
    async def position_at(self, recorded_at: int) -> int:
        """The position before the first event that was recorded at that time or later."""

    @abstractmethod
    async def matches(self, after: MatchPlace | None, limit: int) -> list[WatcherRecord]:
        """Watchers whose filter the matcher must ask, by topic, entity and age; `after` is the last one seen."""

    @abstractmethod
    async def consumers(self) -> list[ConsumerRecord]:
        """All consumers, by name."""

    @abstractmethod
    async def subscriptions(self) -> list[SubscriptionRecord]:
        """All subscriptions, by name."""

    @abstractmethod
    async def schedule(self, name: str) -> ScheduleRecord | None: ...

    @abstractmethod
    async def schedules(self, after: str, limit: int) -> list[ScheduleRecord]:
        """By name, greater than `after`."""

    @abstractmethod
    async def pools(self) -> list[PoolRecord]:
        """All pools, by name."""

    @abstractmethod
    async def lines(self) -> list[LineLook]:
        """The pools in whose line somebody stands, by name."""

    @abstractmethod
    async def standing(self, pool: str, keys: Sequence[str]) -> Standing:
        """How things stand in a pool, and for these keys of it."""

    @abstractmethod
    async def line(self, pool: str, after: tuple[int, str] | None, limit: int) -> list[RunRecord]:
        """Who stands in the line of a pool, oldest first; `after` is (line_at, run_id) of the last one seen."""

    @abstractmethod
    async def known_keys(self, scope: str, keys: Sequence[str], now: int) -> set[str]:
        """Those of these keys that were used in that scope and have not run out."""

    @abstractmethod
    async def used_key(self, scope: str, key: str, now: int) -> KeyRecord | None:
        """A key of that scope, unless it has run out."""

    @abstractmethod
    async def keys_have_expired(self, now: int) -> bool:
        """Whether some key has run out and can be pruned."""

    @abstractmethod
    async def vitals(self, now: int) -> Vitals: ...

    @abstractmethod
    async def workers(self) -> list[WorkerRecord]:
        """Those that live, by id."""

    @abstractmethod
    async def backlog(self, now: int, limit: int) -> list[Backlog]:
        """Runs that may be claimed by now, by workflow and version; each counted up to `limit`, of each pool."""

    # --- reads for people ---

    @abstractmethod
    async def run(self, run_id: str) -> RunRecord | None: ...

    @abstractmethod
    async def history(self, run_id: str) -> list[StepRecord]:
        """All rows of the run that are kept: by generation, then seq, open ones last."""

    @abstractmethod
    async def history_page(
        self, run_id: str, after: HistoryPlace | None, limit: int
    ) -> list[StepRecord]:
        """Those decided after a place, in that order, and behind them, if they are fewer than `limit`, all open ones.

        So no page ends among what is open: a step that is decided meanwhile comes after what was shown.
        """

    @abstractmethod
    async def runs(
        self, where: RunFilter, after: tuple[int, str] | None, limit: int
    ) -> list[RunRecord]:
        """Newest first; `after` is (created_at, run_id) of the last one seen."""

    @abstractmethod
    async def waiting(self, run_id: str) -> list[WatcherRecord]:
        """What one run waits for, in the order it was opened."""

    @abstractmethod
    async def find_waiting(
        self, signal: str, opened_before: int | None, after: WatcherPlace | None, limit: int
    ) -> list[WatcherRecord]:
        """Who waits for a signal, longest waiting first; `after` is the last one seen."""

    @abstractmethod
    async def topic_watchers(
        self, topic: str, after: WatcherPlace | None, limit: int
    ) -> list[WatcherRecord]:
        """Who waits for a topic, with a filter or without, longest waiting first."""

    @abstractmethod
    async def approvals(self, after: WatcherPlace | None, limit: int) -> list[WatcherRecord]:
        """The approvals that can be answered, longest waiting first; `after` is the last one seen."""

    @abstractmethod
    async def buffered(self, run_id: str) -> list[SignalRecord]:
        """The signals kept for a run, oldest first."""

    @abstractmethod
    async def signal(self, signal_id: str) -> SignalRecord | DeadLetterRecord | EventRecord | None:
        """Where a signal is now: in the buffer, a dead letter, or decided by the fact on the ledger."""

    @abstractmethod
    async def dead_letters(
        self, run_id: str | None, after: str, limit: int
    ) -> list[DeadLetterRecord]:
        """By id, greater than `after`."""

    @abstractmethod
    async def events(
        self,
        after: int,
        limit: int,
        *,
        type: str | None = None,
        entity: tuple[str, str] | None = None,
    ) -> list[EventRecord]:
        """Facts with a position greater than `after`, in order."""

    @abstractmethod
    async def events_by_time(
        self, after: tuple[int, int] | None, limit: int, *, entity: tuple[str, str] | None = None
    ) -> list[EventRecord]:
        """Facts by (occurred_at, position), `after` the last one seen: the timeline of an entity, or all."""

    @abstractmethod
    async def event(self, event_id: str) -> EventRecord | None: ...

    @abstractmethod
    async def latest(self, topic: str, entity: str) -> EventRecord | None:
        """The newest event of a topic, about an entity or any ("")."""

    @abstractmethod
    async def queue_items(self, queue: str, after: int, limit: int) -> list[ItemRecord]:
        """What is in a queue, oldest first, with a position greater than `after`."""

    @abstractmethod
    async def queues(self) -> dict[str, int]:
        """How many items each queue holds; empty ones are left out."""

    @abstractmethod
    async def stream_items(
        self, run_id: str, stream: str, after: int, limit: int
    ) -> list[StreamItemRecord]:
        """What is kept of a stream, in order, with a position greater than `after`."""

    @abstractmethod
    async def streams(self, run_id: str) -> list[StreamSpan]:
        """The streams of a run and what is kept of them, by name."""

    @abstractmethod
    async def parked(
        self, consumer: str | None, after: tuple[str, int, str] | None, limit: int
    ) -> list[ParkedRecord]:
        """By (consumer, position, subscription)."""

    @abstractmethod
    async def deferred(self, after: tuple[int, str] | None, limit: int) -> list[DeferredRecord]:
        """By (position, subscription)."""

    @abstractmethod
    async def counts(self) -> dict[str, int]:
        """How many rows of each kind: runs by status, and every table, for health and tests."""

    # --- reads for who looks after the store ---

    @abstractmethod
    async def describe(self) -> Described:
        """What the store is, and the settings that its promises rest on. Changes nothing."""

    @abstractmethod
    async def lives(self, run_ids: Sequence[str]) -> list[Life]:
        """These runs, each with all its rows from one moment; unknown ids are left out."""

    @abstractmethod
    async def run_ids(self, after: str, limit: int) -> tuple[list[str], str]:
        """The ids of all runs, in pages, also of those whose rows cannot be read; and the place to go on from.

        "" is the place before the first, and after the last. The order is the store's own.
        """

    @abstractmethod
    async def positions_of(self, event_ids: Sequence[str]) -> dict[str, int]:
        """Where the events with these ids are; unknown ids are left out."""

    @abstractmethod
    async def items_of(self, item_ids: Sequence[str]) -> set[str]:
        """Those of these items that are in a queue."""

    @abstractmethod
    def flaws(self) -> AsyncIterator[Flaw]:
        """Everything that is wrong as far as only the store can see it, found in bounded pages.

        Each was true at one moment at least: a store that moves is looked at again before it is believed.
        """

    async def backup(self, path: str) -> int:
        """Copy the store into a new file, from one moment, while others write; gives its size in bytes.

        Raises StoreRefused where that is not how such a store is backed up, or the file cannot be made.
        """
        raise StoreRefused(
            "a store in memory has nothing that could be backed up: use sqlite:///, postgresql:// or redis://"
        )


def next_place(page: Sequence[str], limit: int) -> str:
    """Where a listing of mere names goes on; "": there is no more."""
    return page[-1] if len(page) == limit else ""


def merged_backlog(found: Iterable[Backlog]) -> list[Backlog]:
    """One for each version of a workflow, in order; an index tells them by pool."""
    by_version: dict[tuple[str, int], Backlog] = {}
    for one in found:
        at = (one.workflow, one.version)
        known = by_version.get(at)
        if known is not None:
            count, ready_at = known.count + one.count, min(known.ready_at, one.ready_at)
            one = Backlog(one.workflow, one.version, count, ready_at)
        by_version[at] = one
    return [by_version[at] for at in sorted(by_version)]
