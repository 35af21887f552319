"""The rows of one batch: everything that a handler may ask for in one object, and in the end what it all comes to.

Nothing is written here. `changes` is what the batch rests on and what it writes; once the store has taken it,
`remember` makes it what is known.
"""

from typing import Any

from msgspec.structs import replace

from perdure.model.ids import Ids
from perdure.model.outcomes import Wake
from perdure.model.records import RunRecord
from perdure.store.optimistic.changes import (
    UNPLACED,
    Changes,
    RunChange,
    SeenRun,
    SeenUnit,
    born_version,
)
from perdure.store.optimistic.event_rows import EventRows
from perdure.store.optimistic.fact_rows import FactRows
from perdure.store.optimistic.known import FAN_OUTS, NEW
from perdure.store.optimistic.needs import Incomplete, Looks
from perdure.store.optimistic.outbox_rows import OutboxRows
from perdure.store.optimistic.placing import Placing
from perdure.store.optimistic.pool_rows import PoolRows
from perdure.store.optimistic.queue_rows import QueueRows
from perdure.store.optimistic.reader_rows import ReaderRows
from perdure.store.optimistic.run_rows import RunRows
from perdure.store.optimistic.schedule_rows import ScheduleRows
from perdure.store.optimistic.step_rows import StepRows
from perdure.store.optimistic.stream_rows import StreamRows
from perdure.store.optimistic.wait_rows import WaitRows
from perdure.store.optimistic.worker_rows import WorkerRows


class OptimisticTables(
    RunRows,
    StepRows,
    WaitRows,
    QueueRows,
    StreamRows,
    EventRows,
    FactRows,
    ReaderRows,
    ScheduleRows,
    PoolRows,
    WorkerRows,
    OutboxRows,
):
    """What a batch looks at and changes, with no transaction open."""

    def __init__(
        self,
        looks: Looks,
        *,
        now: int,
        worker_id: str | None,
        lifecycle: bool,
        sticky_us: int,
        living: frozenset[str] | None,
        ids: Ids,
        exact: bool,
    ) -> None:
        super().__init__(looks)
        known = looks.known
        self.now = now
        self.worker_id = worker_id
        self.lifecycle = lifecycle
        self.sticky_us = sticky_us
        self._living = living
        self.wakes: list[Wake] = []
        self.fanned = 0
        self._ids = ids
        self._exact = exact
        self._base = known.head if exact else UNPLACED
        self._seq_before = self._seq = known.seq

    def is_called(self, owner: str) -> bool:
        return self.sticky_us > 0 and (self._living is None or owner in self._living)

    def next_seq(self) -> int:
        """Greater than any in a row that this batch has looked at, whoever gave it."""
        self._seq += 1
        return self._seq

    # --- what it comes to ---

    def changes(self, batch_id: str) -> Changes:
        """Raises Incomplete if something that the batch rests on is not known yet."""
        units = self._seen_units()
        if self.missing:
            raise Incomplete(self.missing)
        changed, renewed = self._changed_runs()
        return Changes(
            batch_id=batch_id,
            now=self.now,
            seq=self._seq,
            seq_before=self._seq_before,
            born=born_version(batch_id),
            head=self._base if self._exact and self._stands_on_the_end() else None,
            judges_time=self._judges_time(),
            runs=self._seen_runs(),
            units=units,
            runs_before={
                one: self._seen[one].run
                for one in (*self._put_runs, *self._deleted, *self._bumped)
                if one in self._seen
            },
            new_runs=[self._work[one].run for one in self._new_runs],
            changed_runs=changed,
            renewed_runs=renewed,
            gone_runs=list(self._deleted),
            new_steps=list(self._new_steps.values()),
            put_steps=list(self._put_steps.values()),
            gone_steps=list(self._gone_steps),
            past_steps=self._past_steps,
            new_watchers=list(self._added_watchers.values()),
            gone_watchers=list(self._gone_watchers.values()),
            new_signals=list(self._added_signals.values()),
            gone_signals=list(self._gone_signals.values()),
            put_cursors=list(self._put_cursors.values()),
            put_streams=self._stream_changes(),
            new_stream_items=self._new_stream_items,
            new_items=list(self._added_items.values()),
            gone_items=list(self._gone_items.values()),
            new_keys=[one for _, one in sorted(self._keys.items()) if one is not None],
            gone_keys=[one for _, one in sorted(self._gone_keys.items())],
            new_letters=[one for one in self._letters.values() if one is not None],
            gone_letters=list(self._gone_letters.values()),
            new_events=self._events,
            new_fan_outs=self._new_fan_outs,
            gone_fan_outs=self._gone_fan_outs,
            trim=self._trim or None,
            put_consumers=_there(self._consumers),
            gone_consumers=list(self._dropped_consumers),
            put_subscriptions=_there(self._subscriptions),
            gone_subscriptions=list(self._dropped_subscriptions),
            put_parked=_there(self._parked),
            gone_parked=_gone(self._parked),
            put_deferred=_there(self._deferred),
            gone_deferred=_gone(self._deferred),
            schedules_before=self._schedules_before(),
            put_schedules=_there(self._schedules),
            gone_schedules=_gone(self._schedules),
            put_pools=list(self._put_pools.values()),
            put_workers=_there(self._workers),
            gone_workers=sorted(_gone(self._workers)),
            put_workflows=list(self._put_workflows.values()),
            put_channels=list(self._put_channels.values()),
            gone_outbox=sorted(self._gone_outbox),
            claims=self.claims,
        )

    def _judges_time(self) -> bool:
        """Whether it would be decided otherwise a moment later: a deadline has passed, or an event came before one."""
        known = self._known.topics
        return self.decides_time or any(known[topic].watched for topic in self._by_topic)

    def _stands_on_the_end(self) -> bool:
        """Whether what the batch writes is right only if the ledger ends where it was thought to.

        A cursor that is moved to an end that was, or a bound for retention that was calculated from it, is as if the
        events since had come afterwards. Without this a batch of such ops would never get on beside others that append
        all the time.
        """
        return bool(
            self._events
            or self._new_runs
            or self._added_watchers
            or self._put_cursors
            or self._subscriptions
        )

    def _seen_runs(self) -> list[SeenRun]:
        """Sorted: all lock them in one order."""
        seen = []
        for run_id in sorted(self._seen):
            kept = self._seen[run_id]
            bump = run_id in self._bumped
            run = kept.run
            others = bump and run.status == "running" and run.owner != self.worker_id
            seen.append(SeenRun(run_id, kept.change, bump, run.generation if others else None))
        return seen

    def _seen_units(self) -> list[SeenUnit]:
        for topic in self._by_topic:
            self._rest_on(("topic", topic))
        known = self._known
        units = []
        for unit in sorted(self._units):
            kind, name = unit
            version = known.units.get(unit)
            if version is None:
                self.missing.add(("topic", name) if kind == "topic" else ("unit", kind, name))
                continue
            newest = None
            if kind == "topic" and (name in self._newest_seen or name in self._opened):
                newest = known.topics[name].newest
            units.append(SeenUnit(kind, name, version, self._units[unit], newest))
        return units

    def _changed_runs(self) -> tuple[list[RunChange], list[RunRecord]]:
        changed, renewed = [], []
        for run_id in self._put_runs:
            old, new = self._seen[run_id].run, self._work[run_id].run
            if old.generation != new.generation or old.replaced != new.replaced:
                renewed.append(new)
            else:
                changed.append(_change(old, new))
        return changed, renewed

    # --- once it is committed ---

    def remember(self, placing: Placing, born: int) -> None:
        """What this batch made of the rows is what is known from now on."""
        known = self._known
        known.seq = max(known.seq, self._seq)
        for run_id in self._deleted:
            known.runs.pop(run_id, None)
        for run_id, kept in self._work.items():
            if kept.change == NEW:
                kept.change = born
            elif run_id in self._bumped:
                kept.change += 1
            placing.slice(kept)
            known.runs[run_id] = kept
        self._remember_streams()
        for unit, bump in self._units.items():
            if bump:
                known.units[unit] = max(known.units[unit] + 1, self._seq)
        for topic in self._opened:
            known.topics[topic].watched = True
        for topic, events in self._by_topic.items():
            known.topics[topic].newest = placing.at(events[-1].position)
        for topic in self._doubtful:
            known.drop_unit(("topic", topic))
        known.workflows.update(self._put_workflows)
        known.pools.update(self._put_pools)
        known.channels.update(self._put_channels)
        if self._fan_outs is not None and FAN_OUTS in known.units:
            known.put_fan_outs([placing.at(one) for one in self._fan_outs])
            self._remember_fan_outs(placing)
        known.trim(self._seen.keys() | self._work.keys())

    def _remember_fan_outs(self, placing: Placing) -> None:
        for position in self._new_fan_outs:
            event = self._events[position - self._base - 1]
            placed = replace(event, position=placing.at(position))
            self._known.fan_out_events[placed.position] = placed


def _change(old: RunRecord, new: RunRecord) -> RunChange:
    return RunChange(
        new.run_id,
        new.status,
        new.owner,
        new.fence,
        new.revision,
        new.ready_at,
        new.finished_at,
        new.output,
        new.error,
        new.reason,
        new.pause_requested,
        new.cancel_requested,
        None if new.published == old.published else new.published,
        new.line_at,
        new.admitted,
    )


def _there(rows: dict[Any, Any]) -> list[Any]:
    return [one for one in rows.values() if one is not None]


def _gone(rows: dict[Any, Any]) -> list[Any]:
    return [at for at, one in rows.items() if one is None]
