"""Reads by everyone but the handlers: the rows as they stand, looked through one by one.

None of them changes a row. What SQLite asks of an index is a sentence over all rows here: slow, and easy to check.
"""

import heapq
import platform
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from perdure.model.clock import Clock
from perdure.model.pools import line_scope, rate_scope
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
from perdure.model.status import PARKED, TERMINAL
from perdure.store.base import (
    Backlog,
    Described,
    Flaw,
    Life,
    Look,
    MatchPlace,
    RunFilter,
    Standing,
    Store,
    StreamKept,
    Versions,
    Vitals,
    WatcherPlace,
    merged_backlog,
    next_place,
)
from perdure.store.decoding import history_page, in_order
from perdure.store.handlers.standing import waits_of
from perdure.store.memory.flaws import find_flaws
from perdure.store.memory.tables import MemoryTables

_schema = 1  # it never outlives the code that made it


class MemoryReads(Store):
    """The half of the store that only looks."""

    tables: MemoryTables
    _clock: Clock

    async def outbox(self, after: str, limit: int) -> list[OutboxRecord]:
        ahead = sorted(one for one in self.tables.outbox if one > after)
        return [self.tables.outbox[one] for one in ahead[:limit]]

    async def load(self, run_ids: Sequence[str]) -> list[tuple[RunRecord, list[StepRecord]]]:
        found = []
        for run_id in dict.fromkeys(run_ids):
            run = self.tables.run(run_id)
            if run is not None:
                steps = self.tables.steps(run_id, run.generation)
                found.append((run, [one for one in steps if one.superseded == 0]))
        return found

    async def look(
        self,
        workflows: Iterable[tuple[str, int]] | None = None,
        after: str = "",
        limit: int = 0,
        pools: Iterable[str] | None = None,
    ) -> Look:
        tables = self.tables
        tables.now = self._clock.now()
        tables.worker_id = self.worker_id
        self.head = tables.last
        suspects, swept = self._sweep(after, limit)
        workflows = None if workflows is None else list(workflows)
        names = None if workflows is None else {name for name, _ in workflows}
        return Look(
            deadline_at=tables.next_deadline(),
            ready_at=self._ready_at(workflows, pools),
            fan_out=bool(tables.markers),
            outbox=bool(tables.outbox),
            schedule_at=tables.next_schedule_at(names),
            lines=tuple(tables.lines()),
            orphaned=bool(tables.orphans(1)),
            suspects=suspects,
            swept=swept,
            first=tables.first_position(),
            last=tables.last,
            consumers=tuple(tables.consumers()),
            workers=frozenset(one for one in tables.workers() if tables.is_live(one)),
        )

    def _ready_at(
        self, workflows: Iterable[tuple[str, int]] | None, pools: Iterable[str] | None
    ) -> int | None:
        known = None if workflows is None else set(workflows)
        served = None if pools is None else set(pools)
        claimable = [
            one.ready_at
            for one in self.tables.runs_by_id.values()
            if one.ready_at is not None
            and (known is None or (one.workflow, one.version) in known)
            and (served is None or one.pool in served)
        ]
        return min(claimable, default=None)

    def _sweep(self, after: str, limit: int) -> tuple[tuple[str, ...], str]:
        parked = sorted(
            one.run_id
            for one in self.tables.runs_by_id.values()
            if one.status in PARKED and one.run_id > after
        )[:limit]
        suspects = tuple(run_id for run_id in parked if not waits_of(self.tables, run_id))
        return suspects, parked[-1] if parked and len(parked) == limit else ""

    async def revisions(self, run_ids: Sequence[str]) -> dict[str, int]:
        found = (self.tables.run(run_id) for run_id in dict.fromkeys(run_ids))
        living = (one for one in found if one is not None and one.status not in TERMINAL)
        return {one.run_id: one.revision for one in living}

    async def ended(self, run_ids: Sequence[str]) -> list[RunRecord]:
        found = (self.tables.run(run_id) for run_id in dict.fromkeys(run_ids))
        return [one for one in found if one is not None and one.status in TERMINAL]

    async def catalogue(self) -> list[WorkflowRecord]:
        return [self.tables.workflows[at] for at in sorted(self.tables.workflows)]

    async def channels(self) -> list[ChannelRecord]:
        return [self.tables.channels[at] for at in sorted(self.tables.channels)]

    async def span(self) -> tuple[int, int]:
        self.head = self.tables.last
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

    async def schedule(self, name: str) -> ScheduleRecord | None:
        return self.tables.schedule(name)

    async def schedules(self, after: str, limit: int) -> list[ScheduleRecord]:
        ahead = sorted(one for one in self.tables.schedules if one > after)
        return [self.tables.schedules[name] for name in ahead[:limit]]

    async def pools(self) -> list[PoolRecord]:
        return [self.tables.pools_by_name[name] for name in sorted(self.tables.pools_by_name)]

    async def lines(self) -> list[LineLook]:
        return self.tables.lines()

    async def standing(self, pool: str, keys: Sequence[str]) -> Standing:
        tables = self.tables
        waiting = tables.in_line(pool)
        kept = tables.keys.get((line_scope(), pool))
        return Standing(
            taken=tables.slots_taken(pool, None),
            waiting=len(waiting),
            oldest_at=waiting[0].line_at if waiting else None,
            state=None if kept is None else kept.answer,
            keys={key: (tables.slots_taken(pool, key), self._bucket(pool, key)) for key in keys},
        )

    def _bucket(self, pool: str, key: str) -> int | None:
        kept = self.tables.keys.get((rate_scope(pool), key))
        return None if kept is None else int(kept.answer)

    async def line(self, pool: str, after: tuple[int, str] | None, limit: int) -> list[RunRecord]:
        waiting = self.tables.in_line(pool)
        ahead = (one for one in waiting if after is None or (one.line_at or 0, one.run_id) > after)
        return list(islice(ahead, limit))

    async def known_keys(self, scope: str, keys: Sequence[str], now: int) -> set[str]:
        found = {one: self.tables.key(scope, one) for one in keys}
        return {at for at, one in found.items() if one is not None and _is_good(one, now)}

    async def used_key(self, scope: str, key: str, now: int) -> KeyRecord | None:
        found = self.tables.key(scope, key)
        return found if found is not None and _is_good(found, now) else None

    async def keys_have_expired(self, now: int) -> bool:
        return any(not _is_good(one, now) for one in self.tables.keys.values())

    async def vitals(self, now: int) -> Vitals:
        tables = self.tables
        ready = [
            one.ready_at
            for one in tables.runs_by_id.values()
            if one.ready_at is not None and one.ready_at <= now
        ]
        due = (one for one in tables.all_watchers() if one.deadline_at is not None)
        return Vitals(
            timers_due=sum((one.deadline_at or 0) <= now and not one.held for one in due),
            oldest_ready_at=min(ready, default=None),
            parked=len(tables.parked_events),
            deferred=len(tables.deferred_starts),
            dead_letters=len(tables.letters),
            schedule_at=tables.next_schedule_at(None),
        )

    async def workers(self) -> list[WorkerRecord]:
        tables = self.tables
        tables.now = self._clock.now()
        tables.worker_id = self.worker_id
        return [tables.workers_by_id[one] for one in tables.workers() if tables.is_live(one)]

    async def backlog(self, now: int, limit: int) -> list[Backlog]:
        by_place: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for run in self.tables.runs_by_id.values():
            if run.ready_at is not None and run.ready_at <= now:
                by_place[run.pool, run.workflow, run.version].append(run.ready_at)
        return merged_backlog(
            Backlog(workflow, version, min(len(times), limit), min(times))
            for (_, workflow, version), times in by_place.items()
        )

    async def run(self, run_id: str) -> RunRecord | None:
        return self.tables.run(run_id)

    async def history(self, run_id: str) -> list[StepRecord]:
        return in_order(
            step
            for (owner, _), steps in self.tables.steps_by_run.items()
            if owner == run_id
            for step in steps.values()
        )

    async def history_page(
        self, run_id: str, after: HistoryPlace | None, limit: int
    ) -> list[StepRecord]:
        return history_page(await self.history(run_id), after, limit)

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

    async def approvals(self, after: WatcherPlace | None, limit: int) -> list[WatcherRecord]:
        found = [one for one in self.tables.all_watchers() if one.kind == "approval"]
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

    async def stream_items(
        self, run_id: str, stream: str, after: int, limit: int
    ) -> list[StreamItemRecord]:
        rows = self.tables.published_items.get((run_id, stream), ())
        return list(islice((one for one in rows if one.position > after), limit))

    async def streams(self, run_id: str) -> list[StreamSpan]:
        return [
            StreamSpan(
                stream=name,
                first=self.tables.published_items[run_id, name][0].position,
                last=one.last,
            )
            for name, one in sorted(self.tables.streams_by_run.get(run_id, {}).items())
        ]

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
        counts["streams"] = sum(len(rows) for rows in tables.streams_by_run.values())
        counts["stream_items"] = sum(len(rows) for rows in tables.published_items.values())
        counts["outbox"] = len(tables.outbox)
        counts["fan_outs"] = len(tables.markers)
        counts["consumers"] = len(tables.consumers_by_name)
        counts["subscriptions"] = len(tables.subscriptions)
        counts["schedules"] = len(tables.schedules)
        counts["pools"] = len(tables.pools_by_name)
        counts["parked"] = len(tables.parked_events)
        counts["deferred"] = len(tables.deferred_starts)
        counts["channels"] = len(tables.channels)
        return dict(counts)

    # --- for who looks after the store ---

    async def versions(self) -> Versions:
        return Versions(stored=_schema, min_code=_schema, known=_schema)

    async def describe(self) -> Described:
        return Described(
            kind="memory",
            product="memory",
            version=platform.python_version(),
            versions=await self.versions(),
            namespace=None,
            bytes=None,
            settings=(),
            facts={},
        )

    async def lives(self, run_ids: Sequence[str]) -> list[Life]:
        return [
            Life(
                run,
                await self.history(run.run_id),
                await self.waiting(run.run_id),
                self.tables.signals(run.run_id),
                list(self._streams_kept(run.run_id)),
            )
            for run_id in dict.fromkeys(run_ids)
            if (run := self.tables.run(run_id)) is not None
        ]

    def _streams_kept(self, run_id: str) -> Iterator[StreamKept]:
        for name, row in sorted(self.tables.streams_by_run.get(run_id, {}).items()):
            items = self.tables.published_items.get((run_id, name), ())
            places = [one.position for one in items] or [0]
            yield StreamKept(name, row.last, places[0], places[-1], len(items))

    async def run_ids(self, after: str, limit: int) -> tuple[list[str], str]:
        found = sorted(one for one in self.tables.runs_by_id if one > after)[:limit]
        return found, next_place(found, limit)

    async def positions_of(self, event_ids: Sequence[str]) -> dict[str, int]:
        positions = self.tables.positions
        return {one: positions[one] for one in event_ids if one in positions}

    async def items_of(self, item_ids: Sequence[str]) -> set[str]:
        kept = {one for items in self.tables.items.values() for one in items}
        return kept.intersection(item_ids)

    async def flaws(self) -> AsyncIterator[Flaw]:
        for flaw in find_flaws(self.tables):
            yield flaw


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
