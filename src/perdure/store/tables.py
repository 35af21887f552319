"""What the handlers see of a store: rows by their keys, inside one transaction.

The handlers (store/handlers) decide; a `Tables` only finds and keeps rows. The memory store's are dicts.
The SQLite store's are a working set: rows are loaded in few set-based reads, changed here by any number of
ops, and written back as few set-based statements, so that a batch costs what its net change costs.

Rules for an implementation: a read sees every earlier write of the same batch; a write never fails for a
reason that a handler could have known; nothing is visible to others before the batch commits.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from perdure.model.ops import NewEvent
from perdure.model.outcomes import Wake
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
    StreamRecord,
    SubscriptionRecord,
    WatcherRecord,
    WorkerRecord,
    WorkflowRecord,
)


class Tables(ABC):
    """The rows of one batch. `now` is the store's clock, read once for the batch."""

    now: int
    worker_id: str | None  # the worker of the process that submits the batch
    lifecycle: bool  # whether workflow.* and signal.* facts go to the ledger
    # How long the owner of a parked run, in another process, may take to answer a call, before anybody may claim the
    # run. 0: it cannot be called, and loses the run at once.
    sticky_us: int
    wakes: list[Wake]  # what the op under way means for others; taken by the store after each op
    fanned: (
        int  # how many runs events have resumed in this batch: one commit takes a bounded number
    )

    def is_called(self, owner: str) -> bool:
        """Whether a worker of another process can be called and is not known to be dead: its runs stay with it."""
        return self.sticky_us > 0

    # --- order ---

    @abstractmethod
    def next_seq(self) -> int:
        """A number greater than any in what this batch has looked at: a step's place in its history, a signal's in its
        buffer, an item's in its queue. Numbers of two runs need not be in any order."""

    # --- runs ---

    @abstractmethod
    def run(self, run_id: str) -> RunRecord | None: ...

    @abstractmethod
    def add_run(self, run: RunRecord) -> None:
        """Insert a row that must be new; a second run of an id is an error of the batch."""

    @abstractmethod
    def put_run(self, run: RunRecord) -> None:
        """Replace the row of `run.run_id`."""

    @abstractmethod
    def delete_run(self, run_id: str) -> None:
        """Delete the run with its steps, watchers, signals, cursors, streams, keys and dead letters."""

    @abstractmethod
    def children(self, run_id: str) -> list[str]:
        """Ids of the live runs that `run_id` started."""

    @abstractmethod
    def ready_runs(
        self, workflows: Iterable[tuple[str, int]], pools: Iterable[str] | None, limit: int
    ) -> list[RunRecord]:
        """Runs of these workflows that may be claimed now, ready or called in vain: the first of each of these pools
        (None: of all) by ready_at, then the second ones, and so on."""

    @abstractmethod
    def next_ready_at(
        self, workflows: Iterable[tuple[str, int]], pools: Iterable[str] | None
    ) -> int | None:
        """When the next run of these workflows and pools may be claimed that may not yet."""

    @abstractmethod
    def started_under(self, root_id: str, limit: int) -> int:
        """How many runs the chain of events that began there has started; counted up to `limit`."""

    @abstractmethod
    def orphans(self, limit: int) -> list[RunRecord]:
        """Running runs whose owner is no live worker."""

    @abstractmethod
    def finished_before(self, at: int, limit: int) -> list[str]:
        """Ids of the runs that ended before `at`, oldest first; not those that living runs refer to."""

    # --- steps ---

    @abstractmethod
    def step(self, run_id: str, generation: int, path: str) -> StepRecord | None:
        """The living row of a path (superseded ones are never found)."""

    @abstractmethod
    def steps(self, run_id: str, generation: int) -> list[StepRecord]:
        """All rows of a generation, superseded ones too."""

    @abstractmethod
    def retrying_steps(self, run_id: str, generation: int) -> list[StepRecord]:
        """The steps of a generation that are between two attempts."""

    @abstractmethod
    def add_step(self, step: StepRecord) -> None:
        """Insert a row that must be new; a second checkpoint of a path is an error of the batch."""

    @abstractmethod
    def put_step(self, step: StepRecord) -> None:
        """Insert or replace the row of (run_id, generation, path, superseded)."""

    @abstractmethod
    def supersede_step(self, step: StepRecord) -> None:
        """Renumber a living row as superseded, so that its path can be recorded anew."""

    @abstractmethod
    def delete_steps_before(self, run_id: str, generation: int) -> None:
        """Delete the history of all generations below `generation`."""

    # --- watchers ---

    @abstractmethod
    def watchers(self, run_id: str) -> list[WatcherRecord]:
        """All open watchers of a run."""

    @abstractmethod
    def watchers_on_run(self, run_id: str) -> list[WatcherRecord]:
        """Watchers of other runs that wait for this run to end, longest waiting first."""

    @abstractmethod
    def is_watched(self, kind: str, target: str) -> bool:
        """Whether anybody may be waiting for this topic or queue; False is certain."""

    @abstractmethod
    def topic_watchers(self, event: EventRecord, limit: int) -> list[WatcherRecord]:
        """Watchers of the event's topic that it can end, longest waiting first: opened before it and not past
        their deadline when it was recorded."""

    @abstractmethod
    def queue_watcher(self, queue: str) -> WatcherRecord | None:
        """The watcher of a queue that has waited longest and is not past its deadline."""

    @abstractmethod
    def due_watchers(self, limit: int) -> list[WatcherRecord]:
        """Watchers whose deadline is at or before now, earliest first; not those that are held."""

    @abstractmethod
    def next_deadline(self) -> int | None:
        """The earliest deadline of any watcher that is not held, or expiry of any signal."""

    @abstractmethod
    def add_watcher(self, watcher: WatcherRecord) -> None: ...

    @abstractmethod
    def delete_watchers(self, run_id: str, path: str | None = None) -> None:
        """Delete the watchers of one path, or of the whole run."""

    # --- buffered signals ---

    @abstractmethod
    def signals(self, run_id: str) -> list[SignalRecord]:
        """The buffered signals of a run, oldest accepted first."""

    @abstractmethod
    def add_signal(self, signal: SignalRecord) -> None:
        """Buffer a signal; its position is given here."""

    @abstractmethod
    def delete_signal(self, signal: SignalRecord) -> None: ...

    @abstractmethod
    def expired_signals(self, limit: int) -> list[SignalRecord]:
        """Buffered signals whose time to live has passed."""

    # --- how far runs have seen topics ---

    @abstractmethod
    def topic_cursor(
        self, run_id: str, branch: str, topic: str, entity: str, filter: str
    ) -> int | None: ...

    @abstractmethod
    def put_topic_cursor(self, cursor: CursorRecord) -> None:
        """Insert or replace a cursor."""

    # --- streams ---

    @abstractmethod
    def streams(self, run_id: str) -> dict[str, StreamRecord]:
        """How far the streams of a run have come, by name."""

    @abstractmethod
    def append_to_stream(self, stream: StreamRecord, items: Sequence[StreamItemRecord]) -> None:
        """Add items to a stream, which has come so far then; what is not kept any more goes, as `floor_of` says."""

    # --- queues ---

    @abstractmethod
    def first_item(self, queue: str, put_by: int | None) -> ItemRecord | None:
        """The oldest item of a queue; only one put at or before `put_by`, if that is given."""

    @abstractmethod
    def items_before(self, queue: str, put_before: int | None, limit: int) -> list[ItemRecord]:
        """The oldest items of a queue."""

    @abstractmethod
    def add_item(self, item: ItemRecord) -> None: ...

    @abstractmethod
    def delete_item(self, item: ItemRecord) -> None: ...

    # --- the outbox ---

    @abstractmethod
    def has_outbox(self, outbox_id: str) -> bool:
        """Whether that send is still to be applied."""

    @abstractmethod
    def delete_outbox(self, outbox_id: str) -> None: ...

    # --- keys, ledger, dead letters ---

    @abstractmethod
    def key(self, scope: str, key: str) -> KeyRecord | None: ...

    @abstractmethod
    def add_key(self, key: KeyRecord) -> None: ...

    @abstractmethod
    def delete_key(self, scope: str, key: str) -> None:
        """Delete a key, if it is there."""

    @abstractmethod
    def expire_keys(self, limit: int) -> int:
        """Delete up to `limit` keys whose time has run out; gives how many."""

    @abstractmethod
    def append_event(
        self,
        type: str,
        payload: str,
        event_id: str | None,
        entity_type: str | None,
        entity_id: str | None,
        root_id: str | None = None,
        depth: int = 0,
        rest: NewEvent | None = None,
        repeated: bool = False,
    ) -> int:
        """Append a fact at the next dense position, which is given back. `rest` is what else its emitter said."""

    @abstractmethod
    def last_position(self) -> int:
        """The position of the newest event; 0 when there was none yet."""

    @abstractmethod
    def first_position(self) -> int:
        """The position of the oldest event that is kept; 1 when there was none yet."""

    @abstractmethod
    def position_at(self, recorded_at: int) -> int:
        """The position before the first event that was recorded at that time or later."""

    @abstractmethod
    def event(self, event_id: str) -> EventRecord | None: ...

    @abstractmethod
    def event_at(self, position: int) -> EventRecord | None: ...

    @abstractmethod
    def next_event(
        self,
        topic: str,
        entity: str,
        after: int,
        *,
        recorded_by: int | None = None,
        newest: bool = False,
        repeats: bool = False,
    ) -> EventRecord | None:
        """The first event of a topic after a position, or the newest; about `entity`, "" for any.

        Only one recorded at or before `recorded_by`, if that is given; repeats only if they are asked for.
        """

    @abstractmethod
    def trim_events(self, upto: int) -> None:
        """Delete every event up to that position; never the newest of all."""

    @abstractmethod
    def fan_outs(self) -> list[int]:
        """Positions of the events that have more runs to resume, oldest first."""

    @abstractmethod
    def put_fan_out(self, position: int) -> None: ...

    @abstractmethod
    def delete_fan_out(self, position: int) -> None: ...

    @abstractmethod
    def dead_letter(self, dead_letter_id: str) -> DeadLetterRecord | None: ...

    @abstractmethod
    def dead_letters(self, run_id: str) -> list[DeadLetterRecord]: ...

    @abstractmethod
    def add_dead_letter(self, letter: DeadLetterRecord) -> None: ...

    @abstractmethod
    def delete_dead_letter(self, dead_letter_id: str) -> None: ...

    # --- consumers and subscriptions ---

    @abstractmethod
    def consumer(self, name: str) -> ConsumerRecord | None: ...

    @abstractmethod
    def consumers(self) -> list[ConsumerRecord]: ...

    @abstractmethod
    def put_consumer(self, consumer: ConsumerRecord) -> None:
        """Insert or replace a consumer."""

    @abstractmethod
    def delete_consumer(self, name: str) -> None:
        """Delete a consumer and what it has parked."""

    @abstractmethod
    def subscription(self, name: str) -> SubscriptionRecord | None: ...

    @abstractmethod
    def put_subscription(self, subscription: SubscriptionRecord) -> None:
        """Insert or replace a subscription."""

    @abstractmethod
    def delete_subscription(self, name: str) -> None:
        """Delete a subscription and what it has put off."""

    @abstractmethod
    def parked(self, consumer: str, position: int, subscription: str) -> ParkedRecord | None: ...

    @abstractmethod
    def put_parked(self, parked: ParkedRecord) -> None:
        """Insert or replace a parked event."""

    @abstractmethod
    def delete_parked(self, parked: ParkedRecord) -> None: ...

    @abstractmethod
    def deferred(self, position: int, subscription: str) -> DeferredRecord | None: ...

    @abstractmethod
    def put_deferred(self, deferred: DeferredRecord) -> None:
        """Insert or replace a start that was put off."""

    @abstractmethod
    def delete_deferred(self, deferred: DeferredRecord) -> None: ...

    @abstractmethod
    def oldest_needed(self, idle_before: int) -> tuple[int, str] | None:
        """The oldest position that is still needed, and by whom, apart from the cursors of the consumers.

        A parked or deferred event is, if it was put aside no earlier than that. So is what an enabled subscription
        has still to catch up with, if it was made, or the workflow runner last advanced, no earlier than that.
        """

    # --- schedules ---

    @abstractmethod
    def schedule(self, name: str) -> ScheduleRecord | None: ...

    @abstractmethod
    def put_schedule(self, schedule: ScheduleRecord) -> None:
        """Insert or replace a schedule."""

    @abstractmethod
    def delete_schedule(self, name: str) -> None: ...

    @abstractmethod
    def due_schedules(self, workflows: Iterable[str], limit: int) -> list[ScheduleRecord]:
        """Schedules of these workflows that are due now, by due_at and name."""

    @abstractmethod
    def next_schedule_at(self, workflows: Iterable[str]) -> int | None:
        """When the first schedule of these workflows is due, now or later."""

    # --- pools ---

    @abstractmethod
    def pool(self, name: str) -> PoolRecord | None:
        """Its limits; nothing else that is decided by the row moves it."""

    @abstractmethod
    def put_pool(self, pool: PoolRecord) -> None:
        """Insert or replace a pool."""

    @abstractmethod
    def hold_line(self, pool: str) -> None:
        """Say that runs are let through from this line: whoever else does so at the same time sees it."""

    @abstractmethod
    def slots_taken(self, pool: str, key: str | None) -> int:
        """How many runs of a pool, or of one key of it, are ready or running and stand in no line."""

    @abstractmethod
    def line_keys(
        self,
        pool: str,
        after: str | None,
        workflows: Iterable[tuple[str, int]],
        begun: bool,
        limit: int,
    ) -> list[tuple[str, int]]:
        """Keys, in order and greater than `after`, with somebody in line by now whose workflow is one of these, and
        how many slots each has taken. With `begun` only those who were let through before count."""

    @abstractmethod
    def line_runs(
        self, pool: str, key: str, workflows: Iterable[tuple[str, int]], begun: bool, limit: int
    ) -> list[RunRecord]:
        """The first of those, of one key: who has begun, then by priority, then by age."""

    @abstractmethod
    def idle_slots(
        self, pool: str, workflows: Iterable[tuple[str, int]], since: int, limit: int
    ) -> list[RunRecord]:
        """Runs of a pool that are ready, in no line, and not to be claimed yet, or ready since then or longer and of
        none of these workflows: by ready_at."""

    # --- workers and catalogue ---

    @abstractmethod
    def workers(self) -> list[str]:
        """The ids of all workers that have a row."""

    @abstractmethod
    def is_live(self, worker_id: str) -> bool:
        """Whether that worker is known and its life sign has not run out."""

    @abstractmethod
    def put_worker(self, worker: WorkerRecord) -> None: ...

    @abstractmethod
    def delete_worker(self, worker_id: str) -> None: ...

    @abstractmethod
    def workflow(self, name: str, version: int) -> WorkflowRecord | None: ...

    @abstractmethod
    def put_workflow(self, workflow: WorkflowRecord) -> bool:
        """Insert or replace a line of the catalogue; False when it stood there just so."""

    @abstractmethod
    def channel(self, kind: str, name: str) -> ChannelRecord | None: ...

    @abstractmethod
    def put_channel(self, channel: ChannelRecord) -> bool:
        """Insert or replace a topic or queue of the catalogue; False when it stood there just so."""
