"""The store in plain dicts: the readable specification, and the oracle of the tests.

Nothing survives the process. Ops are applied in place, one after the other, by the shared handlers, which
validate before they write; an op that raises is a defect of ours and fails its batch.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.model.ops import NewEvent, Op
from perdure.model.outcomes import Wake
from perdure.model.records import (
    RUNNER,
    ChannelRecord,
    ConsumerRecord,
    CursorRecord,
    DeadLetterRecord,
    DeferredRecord,
    EventRecord,
    ItemRecord,
    KeyRecord,
    ParkedRecord,
    RunRecord,
    SignalRecord,
    StepRecord,
    SubscriptionRecord,
    WatcherRecord,
    WorkerRecord,
    WorkflowRecord,
)
from perdure.model.status import LIVE, PARKED, TERMINAL
from perdure.store.base import (
    Applied,
    BatchFailed,
    Due,
    MatchPlace,
    RunFilter,
    Store,
    Vitals,
    WatcherPlace,
)
from perdure.store.handlers import HANDLERS
from perdure.store.tables import Tables

_indexed = ("run", "topic", "queue")


class MemoryTables(Tables):
    """Dicts by primary key, and the few reverse indexes that reads need."""

    def __init__(self, ids: Ids) -> None:
        self.now = 0
        self.worker_id = None
        self.lifecycle = True
        self.wakes: list[Wake] = []
        self.fanned = 0
        self._ids = ids
        self._seq = 0
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
        self.events: dict[int, EventRecord] = {}  # by position, in that order
        self.positions: dict[str, int] = {}
        self.last = 0
        self.markers: dict[int, None] = {}
        self.consumers_by_name: dict[str, ConsumerRecord] = {}
        self.subscriptions: dict[str, SubscriptionRecord] = {}
        self.parked_events: dict[tuple[str, int, str], ParkedRecord] = {}
        self.deferred_starts: dict[tuple[int, str], DeferredRecord] = {}
        self.letters: dict[str, DeadLetterRecord] = {}
        self.workers_by_id: dict[str, WorkerRecord] = {}
        self.workflows: dict[tuple[str, int], WorkflowRecord] = {}
        self.channels: dict[tuple[str, str], ChannelRecord] = {}

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq

    # --- runs ---

    def run(self, run_id: str) -> RunRecord | None:
        return self.runs_by_id.get(run_id)

    def add_run(self, run: RunRecord) -> None:
        if run.run_id in self.runs_by_id:
            raise ValueError(f"second run of the id {run.run_id!r}")
        self.runs_by_id[run.run_id] = run

    def put_run(self, run: RunRecord) -> None:
        self.runs_by_id[run.run_id] = run

    def delete_run(self, run_id: str) -> None:
        self.runs_by_id.pop(run_id, None)
        for one in [one for one in self.steps_by_run if one[0] == run_id]:
            del self.steps_by_run[one]
        self.delete_watchers(run_id)
        self.signal_ids.difference_update(self.signals_by_run.pop(run_id, ()))
        self.cursors = {at: one for at, one in self.cursors.items() if at[0] != run_id}
        self.keys = {at: key for at, key in self.keys.items() if key.run_id != run_id}
        self.letters = {at: one for at, one in self.letters.items() if one.run_id != run_id}

    def children(self, run_id: str) -> list[str]:
        return sorted(
            one.run_id
            for one in self.runs_by_id.values()
            if one.parent_run_id == run_id and one.status in LIVE
        )

    def ready_runs(self, workflows: Iterable[tuple[str, int]], limit: int) -> list[RunRecord]:
        known = set(workflows)
        ready = (
            one
            for one in self.runs_by_id.values()
            if one.status == "ready"
            and (one.ready_at or 0) <= self.now
            and (one.workflow, one.version) in known
        )
        return heapq.nsmallest(limit, ready, key=lambda one: (one.ready_at or 0, one.run_id))

    def next_ready_at(self, workflows: Iterable[tuple[str, int]]) -> int | None:
        known = set(workflows)
        later = [
            one.ready_at
            for one in self.runs_by_id.values()
            if one.status == "ready"
            and one.ready_at is not None
            and one.ready_at > self.now
            and (one.workflow, one.version) in known
        ]
        return min(later, default=None)

    def started_under(self, root_id: str, limit: int) -> int:
        return min(limit, sum(one.root_id == root_id for one in self.runs_by_id.values()))

    def orphans(self, limit: int) -> list[RunRecord]:
        orphans = (
            one
            for one in self.runs_by_id.values()
            if one.status == "running" and (one.owner is None or not self.is_live(one.owner))
        )
        return heapq.nsmallest(limit, orphans, key=lambda one: one.run_id)

    def finished_before(self, at: int, limit: int) -> list[str]:
        needed = {one.parent_run_id for one in self.runs_by_id.values() if one.status in LIVE}
        needed |= {one.target for one in self.all_watchers() if one.kind == "run"}
        ended = (
            (one.finished_at, one.run_id)
            for one in self.runs_by_id.values()
            if one.finished_at is not None and one.finished_at < at and one.run_id not in needed
        )
        return [run_id for _, run_id in heapq.nsmallest(limit, ended)]

    # --- steps ---

    def step(self, run_id: str, generation: int, path: str) -> StepRecord | None:
        return self.steps_by_run.get((run_id, generation), {}).get((path, 0))

    def steps(self, run_id: str, generation: int) -> list[StepRecord]:
        return list(self.steps_by_run.get((run_id, generation), {}).values())

    def retrying_steps(self, run_id: str, generation: int) -> list[StepRecord]:
        return [one for one in self.steps(run_id, generation) if one.state == "retrying"]

    def add_step(self, step: StepRecord) -> None:
        rows = self.steps_by_run.setdefault((step.run_id, step.generation), {})
        if (step.path, step.superseded) in rows:
            raise ValueError(f"second checkpoint of {step.path!r} in run {step.run_id!r}")
        rows[step.path, step.superseded] = step

    def put_step(self, step: StepRecord) -> None:
        rows = self.steps_by_run.setdefault((step.run_id, step.generation), {})
        rows[step.path, step.superseded] = step

    def supersede_step(self, step: StepRecord) -> None:
        rows = self.steps_by_run[step.run_id, step.generation]
        number = 1 + max(nth for path, nth in rows if path == step.path)
        del rows[step.path, 0]
        rows[step.path, number] = replace(step, state="superseded", superseded=number)

    def delete_steps_before(self, run_id: str, generation: int) -> None:
        for one in [one for one in self.steps_by_run if one[0] == run_id and one[1] < generation]:
            del self.steps_by_run[one]

    # --- watchers ---

    def watchers(self, run_id: str) -> list[WatcherRecord]:
        return list(self.watchers_by_run.get(run_id, {}).values())

    def watchers_on_run(self, run_id: str) -> list[WatcherRecord]:
        return self._waiting_for("run", run_id)

    def _waiting_for(self, kind: str, target: str) -> list[WatcherRecord]:
        """Who waits for it, longest waiting first."""
        found = [
            self.watchers_by_run[waiter][path, ix]
            for waiter, path, ix in self.waiting_for.get((kind, target), ())
        ]
        return sorted(found, key=lambda one: (one.opened_at, one.run_id, one.path, one.ix))

    def is_watched(self, kind: str, target: str) -> bool:
        return bool(self.waiting_for.get((kind, target)))

    def topic_watchers(self, event: EventRecord, limit: int) -> list[WatcherRecord]:
        entity = _entity_of(event)
        found = [
            one
            for one in self._waiting_for("topic", event.type)
            if one.entity in ("", entity)
            and one.after < event.position
            and (one.deadline_at is None or event.recorded_at <= one.deadline_at)
        ]
        return found[:limit]

    def queue_watcher(self, queue: str) -> WatcherRecord | None:
        for one in self._waiting_for("queue", queue):
            if one.deadline_at is None or self.now <= one.deadline_at:
                return one
        return None

    def due_watchers(self, limit: int) -> list[WatcherRecord]:
        due = (
            (one.deadline_at, one.run_id, one.path, one.ix, one)
            for one in self.all_watchers()
            if one.deadline_at is not None and one.deadline_at <= self.now and not one.held
        )
        return [row[-1] for row in heapq.nsmallest(limit, due)]

    def next_deadline(self) -> int | None:
        deadlines = [
            one.deadline_at
            for one in self.all_watchers()
            if one.deadline_at is not None and not one.held
        ]
        expiries = [
            one.expires_at
            for signals in self.signals_by_run.values()
            for one in signals.values()
            if one.expires_at is not None
        ]
        return min(deadlines + expiries, default=None)

    def all_watchers(self) -> Iterable[WatcherRecord]:
        for watchers in self.watchers_by_run.values():
            yield from watchers.values()

    def add_watcher(self, watcher: WatcherRecord) -> None:
        self.watchers_by_run.setdefault(watcher.run_id, {})[watcher.path, watcher.ix] = watcher
        if watcher.kind in _indexed:
            at = (watcher.run_id, watcher.path, watcher.ix)
            self.waiting_for[watcher.kind, watcher.target].add(at)

    def delete_watchers(self, run_id: str, path: str | None = None) -> None:
        rows = self.watchers_by_run.get(run_id, {})
        for at in [at for at in rows if path is None or at[0] == path]:
            watcher = rows.pop(at)
            if watcher.kind in _indexed:
                self.waiting_for[watcher.kind, watcher.target].discard((run_id, *at))
        if not rows:
            self.watchers_by_run.pop(run_id, None)

    # --- buffered signals ---

    def signals(self, run_id: str) -> list[SignalRecord]:
        return sorted(self.signals_by_run.get(run_id, {}).values(), key=lambda one: one.position)

    def add_signal(self, signal: SignalRecord) -> None:
        if signal.signal_id in self.signal_ids:
            raise ValueError(f"second signal of the id {signal.signal_id!r}")
        self.signal_ids.add(signal.signal_id)
        self.signals_by_run.setdefault(signal.run_id, {})[signal.signal_id] = signal

    def delete_signal(self, signal: SignalRecord) -> None:
        rows = self.signals_by_run.get(signal.run_id, {})
        rows.pop(signal.signal_id, None)
        self.signal_ids.discard(signal.signal_id)
        if not rows:
            self.signals_by_run.pop(signal.run_id, None)

    def expired_signals(self, limit: int) -> list[SignalRecord]:
        expired = (
            (one.expires_at, one.position, one)
            for signals in self.signals_by_run.values()
            for one in signals.values()
            if one.expires_at is not None and one.expires_at < self.now
        )
        return [row[-1] for row in heapq.nsmallest(limit, expired)]

    # --- how far runs have seen topics; queues ---

    def topic_cursor(
        self, run_id: str, branch: str, topic: str, entity: str, filter: str
    ) -> int | None:
        cursor = self.cursors.get((run_id, branch, topic, entity, filter))
        return None if cursor is None else cursor.position

    def put_topic_cursor(self, cursor: CursorRecord) -> None:
        at = (cursor.run_id, cursor.branch, cursor.topic, cursor.entity, cursor.filter)
        self.cursors[at] = cursor

    def first_item(self, queue: str, put_by: int | None) -> ItemRecord | None:
        items = (
            (one.position, one)
            for one in self.items.get(queue, {}).values()
            if put_by is None or one.put_at <= put_by
        )
        found = min(items, default=None, key=lambda one: one[0])
        return None if found is None else found[1]

    def items_before(self, queue: str, put_before: int | None, limit: int) -> list[ItemRecord]:
        items = [
            one
            for one in self.items.get(queue, {}).values()
            if put_before is None or one.put_at < put_before
        ]
        return sorted(items, key=lambda one: one.position)[:limit]

    def add_item(self, item: ItemRecord) -> None:
        if any(item.item_id in items for items in self.items.values()):
            raise ValueError(f"second item of the id {item.item_id!r}")
        self.items.setdefault(item.queue, {})[item.item_id] = item

    def delete_item(self, item: ItemRecord) -> None:
        rows = self.items.get(item.queue, {})
        rows.pop(item.item_id, None)
        if not rows:
            self.items.pop(item.queue, None)

    # --- keys, ledger, dead letters ---

    def key(self, scope: str, key: str) -> KeyRecord | None:
        return self.keys.get((scope, key))

    def add_key(self, key: KeyRecord) -> None:
        self.keys[key.scope, key.key] = key

    def delete_key(self, scope: str, key: str) -> None:
        self.keys.pop((scope, key), None)

    def expire_keys(self, limit: int) -> int:
        expired = (
            (one.expires_at, at)
            for at, one in self.keys.items()
            if one.expires_at is not None and one.expires_at <= self.now
        )
        found = heapq.nsmallest(limit, expired)
        for _, at in found:
            del self.keys[at]
        return len(found)

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
        event_id = event_id or self._ids.ulid(self.now)
        if event_id in self.positions:
            raise ValueError(f"second event of the id {event_id!r}")
        self.last += 1
        self.positions[event_id] = self.last
        self.events[self.last] = EventRecord(
            position=self.last,
            event_id=event_id,
            type=type,
            entity_type=entity_type,
            entity_id=entity_id,
            payload=payload,
            occurred_at=self.now if rest is None or rest.occurred_at is None else rest.occurred_at,
            recorded_at=self.now,
            caused_by=None if rest is None else rest.caused_by,
            root_id=root_id,
            depth=depth,
            key=None if rest is None else rest.key,
            trace=None if rest is None else rest.trace,
            repeated=repeated,
        )
        return self.last

    def last_position(self) -> int:
        return self.last

    def first_position(self) -> int:
        return next(iter(self.events), 1)

    def position_at(self, recorded_at: int) -> int:
        later = (one.position for one in self.events.values() if one.recorded_at >= recorded_at)
        return next(later, self.last + 1) - 1

    def event(self, event_id: str) -> EventRecord | None:
        position = self.positions.get(event_id)
        return None if position is None else self.events[position]

    def event_at(self, position: int) -> EventRecord | None:
        return self.events.get(position)

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
        found = None
        for position in range(max(after + 1, self.first_position()), self.last + 1):
            one = self.events[position]
            if (
                one.type == topic
                and entity in ("", _entity_of(one))
                and (recorded_by is None or one.recorded_at <= recorded_by)
                and (repeats or not one.repeated)
            ):
                found = one
                if not newest:
                    break
        return found

    def trim_events(self, upto: int) -> None:
        for position in range(self.first_position(), min(upto, self.last - 1) + 1):
            del self.positions[self.events.pop(position).event_id]

    def fan_outs(self) -> list[int]:
        return sorted(self.markers)

    def put_fan_out(self, position: int) -> None:
        self.markers[position] = None

    def delete_fan_out(self, position: int) -> None:
        del self.markers[position]

    def dead_letter(self, dead_letter_id: str) -> DeadLetterRecord | None:
        return self.letters.get(dead_letter_id)

    def dead_letters(self, run_id: str) -> list[DeadLetterRecord]:
        found = [one for one in self.letters.values() if one.run_id == run_id]
        return sorted(found, key=lambda one: (one.received_at, one.dead_letter_id))

    def add_dead_letter(self, letter: DeadLetterRecord) -> None:
        if letter.dead_letter_id in self.letters:
            raise ValueError(f"second dead letter of the id {letter.dead_letter_id!r}")
        self.letters[letter.dead_letter_id] = letter

    def delete_dead_letter(self, dead_letter_id: str) -> None:
        self.letters.pop(dead_letter_id, None)

    # --- consumers and subscriptions ---

    def consumer(self, name: str) -> ConsumerRecord | None:
        return self.consumers_by_name.get(name)

    def consumers(self) -> list[ConsumerRecord]:
        return [self.consumers_by_name[name] for name in sorted(self.consumers_by_name)]

    def put_consumer(self, consumer: ConsumerRecord) -> None:
        self.consumers_by_name[consumer.name] = consumer

    def delete_consumer(self, name: str) -> None:
        self.consumers_by_name.pop(name, None)
        self.parked_events = {at: one for at, one in self.parked_events.items() if at[0] != name}

    def subscription(self, name: str) -> SubscriptionRecord | None:
        return self.subscriptions.get(name)

    def put_subscription(self, subscription: SubscriptionRecord) -> None:
        self.subscriptions[subscription.name] = subscription

    def delete_subscription(self, name: str) -> None:
        self.subscriptions.pop(name, None)
        self.deferred_starts = {
            at: one for at, one in self.deferred_starts.items() if one.subscription != name
        }

    def parked(self, consumer: str, position: int, subscription: str) -> ParkedRecord | None:
        return self.parked_events.get((consumer, position, subscription))

    def put_parked(self, parked: ParkedRecord) -> None:
        self.parked_events[parked.consumer, parked.position, parked.subscription] = parked

    def delete_parked(self, parked: ParkedRecord) -> None:
        self.parked_events.pop((parked.consumer, parked.position, parked.subscription), None)

    def deferred(self, position: int, subscription: str) -> DeferredRecord | None:
        return self.deferred_starts.get((position, subscription))

    def put_deferred(self, deferred: DeferredRecord) -> None:
        self.deferred_starts[deferred.position, deferred.subscription] = deferred

    def delete_deferred(self, deferred: DeferredRecord) -> None:
        self.deferred_starts.pop((deferred.position, deferred.subscription), None)

    def oldest_needed(self, idle_before: int) -> tuple[int, str] | None:
        needed = [
            (one.position, one.consumer)
            for one in self.parked_events.values()
            if one.parked_at >= idle_before
        ]
        needed += [
            (one.position, one.subscription)
            for one in self.deferred_starts.values()
            if one.deferred_at >= idle_before
        ]
        runner = self.consumers_by_name.get(RUNNER)
        ran_at = 0 if runner is None else runner.advanced_at
        needed += [
            (one.behind + 1, one.name)
            for one in self.subscriptions.values()
            if one.behind is not None and one.enabled and max(one.created_at, ran_at) >= idle_before
        ]
        return min(needed, default=None)

    # --- workers and catalogue ---

    def workers(self) -> list[str]:
        return sorted(self.workers_by_id)

    def is_live(self, worker_id: str) -> bool:
        worker = self.workers_by_id.get(worker_id)
        # A store in memory has no other process: its own worker lives, however far a test moves the clock.
        return worker is not None and (worker_id == self.worker_id or worker.lease_until > self.now)

    def put_worker(self, worker: WorkerRecord) -> None:
        self.workers_by_id[worker.worker_id] = worker

    def delete_worker(self, worker_id: str) -> None:
        self.workers_by_id.pop(worker_id, None)

    def workflow(self, name: str, version: int) -> WorkflowRecord | None:
        return self.workflows.get((name, version))

    def put_workflow(self, workflow: WorkflowRecord) -> bool:
        at = (workflow.name, workflow.version)
        if self.workflows.get(at) == workflow:
            return False
        self.workflows[at] = workflow
        return True

    def channel(self, kind: str, name: str) -> ChannelRecord | None:
        return self.channels.get((kind, name))

    def put_channel(self, channel: ChannelRecord) -> bool:
        at = (channel.kind, channel.name)
        if self.channels.get(at) == channel:
            return False
        self.channels[at] = channel
        return True


class MemoryStore(Store):
    """A namespace in this process's memory."""

    url = "memory://"

    def __init__(self, *, clock: Clock, ids: Ids, lifecycle: bool = True) -> None:
        self._clock = clock
        self.lifecycle = lifecycle
        self.tables = MemoryTables(ids)
        self.tables.lifecycle = lifecycle
        self._committed: set[str] = set()

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """The rows stay for as long as the store object does, so a test can open an app on it again."""

    async def apply(
        self, batch_id: str, ops: Sequence[Op[Any]], decided: Callable[[], None] | None = None
    ) -> list[Applied]:
        if batch_id in self._committed:
            raise BatchFailed(f"batch {batch_id!r} was committed before")
        tables = self.tables
        tables.now = self._clock.now()
        tables.worker_id = self.worker_id
        tables.fanned = 0
        applied: list[Applied] = []
        for op in ops:
            tables.wakes = []
            try:
                outcome = HANDLERS[type(op)](tables, op)
            except Exception as error:
                # Dicts do not roll back: the ops before this one stay applied, so it may only be alone.
                if applied:
                    raise AssertionError(f"{op!r} raised in the midst of a batch") from error
                raise BatchFailed(str(error)) from error
            applied.append(Applied(outcome, tuple(tables.wakes)))
        self._committed.add(batch_id)
        self.head = tables.last
        return applied

    async def settle(self, batch_id: str) -> bool:
        return batch_id in self._committed

    # --- reads ---

    async def load(self, run_ids: Sequence[str]) -> list[tuple[RunRecord, list[StepRecord]]]:
        found = []
        for run_id in dict.fromkeys(run_ids):
            run = self.tables.run(run_id)
            if run is not None:
                steps = self.tables.steps(run_id, run.generation)
                found.append((run, [one for one in steps if one.superseded == 0]))
        return found

    async def due(self, workflows: Iterable[tuple[str, int]] | None = None) -> Due:
        tables = self.tables
        known = None if workflows is None else set(workflows)
        ready = [
            one.ready_at or 0
            for one in tables.runs_by_id.values()
            if one.status == "ready" and (known is None or (one.workflow, one.version) in known)
        ]
        return Due(tables.next_deadline(), min(ready, default=None), bool(tables.markers))

    async def ended(self, run_ids: Sequence[str]) -> list[RunRecord]:
        found = (self.tables.run(run_id) for run_id in dict.fromkeys(run_ids))
        return [one for one in found if one is not None and one.status in TERMINAL]

    async def sweep(self, after: str, limit: int) -> tuple[list[str], str]:
        parked = sorted(
            one.run_id
            for one in self.tables.runs_by_id.values()
            if one.status in PARKED and one.run_id > after
        )[:limit]
        suspects = [run_id for run_id in parked if not self.tables.watchers(run_id)]
        return suspects, parked[-1] if len(parked) == limit else ""

    async def has_orphans(self) -> bool:
        self.tables.now = self._clock.now()
        self.tables.worker_id = self.worker_id
        return bool(self.tables.orphans(1))

    async def catalogue(self) -> list[WorkflowRecord]:
        return [self.tables.workflows[at] for at in sorted(self.tables.workflows)]

    async def channels(self) -> list[ChannelRecord]:
        return [self.tables.channels[at] for at in sorted(self.tables.channels)]

    async def span(self) -> tuple[int, int]:
        return self.tables.first_position(), self.tables.last

    async def position_at(self, recorded_at: int) -> int:
        return self.tables.position_at(recorded_at)

    async def matches(self, after: MatchPlace | None, limit: int) -> list[WatcherRecord]:
        places = {
            (one.target, one.entity, one.opened_at, one.run_id, one.path, one.ix): one
            for one in self.tables.all_watchers()
            if one.kind == "match"
        }
        ahead = [at for at in sorted(places) if after is None or at > after]
        return [places[at] for at in ahead[:limit]]

    async def consumers(self) -> list[ConsumerRecord]:
        return self.tables.consumers()

    async def subscriptions(self) -> list[SubscriptionRecord]:
        return [self.tables.subscriptions[name] for name in sorted(self.tables.subscriptions)]

    async def known_keys(self, scope: str, keys: Sequence[str], now: int) -> set[str]:
        found = {one: self.tables.key(scope, one) for one in keys}
        return {at for at, one in found.items() if one is not None and _is_good(one, now)}

    async def keys_have_expired(self, now: int) -> bool:
        return any(not _is_good(one, now) for one in self.tables.keys.values())

    async def vitals(self, now: int) -> Vitals:
        tables = self.tables
        ready = [
            one.ready_at or 0
            for one in tables.runs_by_id.values()
            if one.status == "ready" and (one.ready_at or 0) <= now
        ]
        due = (one for one in tables.all_watchers() if one.deadline_at is not None)
        return Vitals(
            timers_due=sum((one.deadline_at or 0) <= now and not one.held for one in due),
            oldest_ready_at=min(ready, default=None),
            parked=len(tables.parked_events),
            deferred=len(tables.deferred_starts),
            dead_letters=len(tables.letters),
        )

    async def run(self, run_id: str) -> RunRecord | None:
        return self.tables.run(run_id)

    async def history(self, run_id: str) -> list[StepRecord]:
        rows = [
            step
            for (owner, _), steps in self.tables.steps_by_run.items()
            if owner == run_id
            for step in steps.values()
        ]
        return sorted(rows, key=lambda one: (one.generation, one.seq == 0, one.seq, one.path))

    async def runs(
        self, where: RunFilter, after: tuple[int, str] | None, limit: int
    ) -> list[RunRecord]:
        found = [
            one
            for one in self.tables.runs_by_id.values()
            if _fits(one, where) and (after is None or (one.created_at, one.run_id) < after)
        ]
        found.sort(key=lambda one: (one.created_at, one.run_id), reverse=True)
        return found[:limit]

    async def waiting(self, run_id: str) -> list[WatcherRecord]:
        rows = self.tables.watchers(run_id)
        return sorted(rows, key=lambda one: (one.opened_at, one.path, one.ix))

    async def find_waiting(
        self, signal: str, opened_before: int | None, after: WatcherPlace | None, limit: int
    ) -> list[WatcherRecord]:
        found = [
            one
            for one in self.tables.all_watchers()
            if one.kind == "signal"
            and one.target == signal
            and (opened_before is None or one.opened_at < opened_before)
        ]
        return _by_age(found, after, limit)

    async def topic_watchers(
        self, topic: str, after: WatcherPlace | None, limit: int
    ) -> list[WatcherRecord]:
        watchers = self.tables.all_watchers()
        found = [one for one in watchers if one.kind in ("topic", "match") and one.target == topic]
        return _by_age(found, after, limit)

    async def buffered(self, run_id: str) -> list[SignalRecord]:
        return self.tables.signals(run_id)

    async def signal(self, signal_id: str) -> SignalRecord | DeadLetterRecord | EventRecord | None:
        for signals in self.tables.signals_by_run.values():
            if signal_id in signals:
                return signals[signal_id]
        letter = self.tables.dead_letter(signal_id)
        if letter is not None:
            return letter
        return self.tables.event(signal_id)

    async def dead_letters(
        self, run_id: str | None, after: str, limit: int
    ) -> list[DeadLetterRecord]:
        found = [
            one
            for at, one in self.tables.letters.items()
            if at > after and (run_id is None or one.run_id == run_id)
        ]
        return sorted(found, key=lambda one: one.dead_letter_id)[:limit]

    async def events(
        self,
        after: int,
        limit: int,
        *,
        type: str | None = None,
        entity: tuple[str, str] | None = None,
    ) -> list[EventRecord]:
        tables = self.tables
        found = (
            tables.events[position]
            for position in range(max(after + 1, tables.first_position()), tables.last + 1)
            if (type is None or tables.events[position].type == type)
            and (entity is None or _is_about(tables.events[position], entity))
        )
        return list(islice(found, limit))

    async def events_by_time(
        self, after: tuple[int, int] | None, limit: int, *, entity: tuple[str, str] | None = None
    ) -> list[EventRecord]:
        found = (
            (one.occurred_at, one.position, one)
            for one in self.tables.events.values()
            if (entity is None or _is_about(one, entity))
            and (after is None or (one.occurred_at, one.position) > after)
        )
        return [row[-1] for row in heapq.nsmallest(limit, found)]

    async def event(self, event_id: str) -> EventRecord | None:
        return self.tables.event(event_id)

    async def latest(self, topic: str, entity: str) -> EventRecord | None:
        return self.tables.next_event(topic, entity, 0, newest=True, repeats=True)

    async def queue_items(self, queue: str, after: int, limit: int) -> list[ItemRecord]:
        items = self.tables.items_before(queue, None, len(self.tables.items.get(queue, ())))
        return [one for one in items if one.position > after][:limit]

    async def queues(self) -> dict[str, int]:
        return {queue: len(items) for queue, items in sorted(self.tables.items.items())}

    async def parked(
        self, consumer: str | None, after: tuple[str, int, str] | None, limit: int
    ) -> list[ParkedRecord]:
        found = [
            at
            for at in sorted(self.tables.parked_events)
            if (consumer is None or at[0] == consumer) and (after is None or at > after)
        ]
        return [self.tables.parked_events[at] for at in found[:limit]]

    async def deferred(self, after: tuple[int, str] | None, limit: int) -> list[DeferredRecord]:
        starts = self.tables.deferred_starts
        found = [at for at in sorted(starts) if after is None or at > after]
        return [starts[at] for at in found[:limit]]

    async def counts(self) -> dict[str, int]:
        tables = self.tables
        counts: dict[str, int] = defaultdict(int)
        counts["runs"] = len(tables.runs_by_id)
        for run in tables.runs_by_id.values():
            counts[f"runs.{run.status}"] += 1
        counts["steps"] = sum(len(rows) for rows in tables.steps_by_run.values())
        counts["watchers"] = sum(len(rows) for rows in tables.watchers_by_run.values())
        counts["signals"] = sum(len(rows) for rows in tables.signals_by_run.values())
        counts["keys"] = len(tables.keys)
        counts["events"] = len(tables.events)
        counts["dead_letters"] = len(tables.letters)
        counts["workers"] = len(tables.workers_by_id)
        counts["workflows"] = len(tables.workflows)
        counts["cursors"] = len(tables.cursors)
        counts["queue_items"] = sum(len(rows) for rows in tables.items.values())
        counts["fan_outs"] = len(tables.markers)
        counts["consumers"] = len(tables.consumers_by_name)
        counts["subscriptions"] = len(tables.subscriptions)
        counts["parked"] = len(tables.parked_events)
        counts["deferred"] = len(tables.deferred_starts)
        counts["channels"] = len(tables.channels)
        return dict(counts)


def _is_good(key: KeyRecord, now: int) -> bool:
    return key.expires_at is None or key.expires_at > now


def _by_age(
    found: list[WatcherRecord], after: WatcherPlace | None, limit: int
) -> list[WatcherRecord]:
    """A page of watchers, longest waiting first."""
    places = {(one.opened_at, one.run_id, one.path, one.ix): one for one in found}
    ahead = [at for at in sorted(places) if after is None or at > after]
    return [places[at] for at in ahead[:limit]]


def _is_about(event: EventRecord, entity: tuple[str, str]) -> bool:
    return (event.entity_type, event.entity_id) == entity


def _entity_of(event: EventRecord) -> str:
    return "" if event.entity_type is None else f"{event.entity_type}/{event.entity_id}"


def _fits(run: RunRecord, where: RunFilter) -> bool:
    if where.tag is not None:
        tags = msgspec.json.decode(run.tags or "{}")
        name, value = where.tag
        if name not in tags or (value is not None and tags[name] != value):
            return False
    return (
        (where.workflow is None or run.workflow == where.workflow)
        and (not where.statuses or run.status in where.statuses)
        and (where.entity is None or (run.entity_type, run.entity_id) == where.entity)
        and (where.parent_run_id is None or run.parent_run_id == where.parent_run_id)
        and (where.created_from is None or run.created_at >= where.created_from)
        and (where.created_before is None or run.created_at < where.created_before)
    )
