"""All that the store keeps: dicts by primary key, and the few reverse indexes that reads need.

The parts that derive from this one (run_rows.py and its neighbours) find and change rows, each of its own tables.
"""

from collections import defaultdict, deque
from collections.abc import Iterable

from perdure.model.records import (
    ChannelRecord,
    ConsumerRecord,
    CursorRecord,
    DeadLetterRecord,
    DeferredRecord,
    EventRecord,
    ItemRecord,
    KeyRecord,
    OutboxRecord,
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
from perdure.store.tables import Tables


class KeptRows(Tables):
    """The rows of a namespace, as they stand."""

    def __init__(self) -> None:
        self.runs_by_id: dict[str, RunRecord] = {}
        self.steps_by_run: dict[tuple[str, int], dict[tuple[str, int], StepRecord]] = {}
        self.watchers_by_run: dict[str, dict[tuple[str, int], WatcherRecord]] = {}
        # By kind and target, those that wait for a run, a topic or a queue.
        self.waiting_for: dict[tuple[str, str], set[tuple[str, str, int]]] = defaultdict(set)
        self.signals_by_run: dict[str, dict[str, SignalRecord]] = {}
        self.signal_ids: set[str] = set()
        self.keys: dict[tuple[str, str], KeyRecord] = {}
        self.cursors: dict[tuple[str, str, str, str, str], CursorRecord] = {}
        self.items: dict[str, dict[str, ItemRecord]] = {}
        self.streams_by_run: dict[str, dict[str, StreamRecord]] = {}
        # By run and stream, in order.
        self.published_items: dict[tuple[str, str], deque[StreamItemRecord]] = {}
        self.outbox: dict[str, OutboxRecord] = {}
        self.events: dict[int, EventRecord] = {}  # by position, in that order
        self.positions: dict[str, int] = {}
        self.last = 0
        self.markers: dict[int, None] = {}
        self.consumers_by_name: dict[str, ConsumerRecord] = {}
        self.subscriptions: dict[str, SubscriptionRecord] = {}
        self.parked_events: dict[tuple[str, int, str], ParkedRecord] = {}
        self.deferred_starts: dict[tuple[int, str], DeferredRecord] = {}
        self.schedules: dict[str, ScheduleRecord] = {}
        self.pools_by_name: dict[str, PoolRecord] = {}
        self.letters: dict[str, DeadLetterRecord] = {}
        self.workers_by_id: dict[str, WorkerRecord] = {}
        self.held: set[str] = set()  # workers that gave their life sign themselves
        self.workflows: dict[tuple[str, int], WorkflowRecord] = {}
        self.channels: dict[tuple[str, str], ChannelRecord] = {}

    def all_watchers(self) -> Iterable[WatcherRecord]:
        for watchers in self.watchers_by_run.values():
            yield from watchers.values()
