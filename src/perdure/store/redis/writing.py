"""Changes to the argument of the one call that writes them (lua/apply.lua).

What a batch rests on becomes a list of comparisons, what it writes a list of commands, grouped by key: the script makes
the first and, if all hold, carries out the second. What is about runs stands in run_changes.py.
"""

from itertools import chain
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from perdure.model import ops
from perdure.model.records import (
    EventRecord,
    ScheduleRecord,
    SubscriptionRecord,
    entity_text,
)
from perdure.store.optimistic.changes import UNPLACED, Changes
from perdure.store.redis import rows
from perdure.store.redis.gathering import ANSWER_NUMBERS, ROW_NUMBERS, pieces, position_text
from perdure.store.redis.layout import SEP, Layout, is_indexed, moment, place
from perdure.store.redis.rows import text
from perdure.store.redis.run_changes import UNFINISHED, RunChanges

# Batches are settled within a minute, and remembered for longer.
commits_kept_us: Final = 600 * 1_000_000
# Names whose versions are kept; those made from data are many. With one more all are let go, and each process looks at
# those that it goes on with once more.
units_max: Final = 4096


def argument_of(
    layout: Layout, changes: Changes, *, server: str, epoch: str, alone: str, now: int
) -> bytes:
    """What the script is given. Raises ValueError for what is no text."""
    return msgspec.msgpack.encode(_Argument(layout, changes).made(server, epoch, alone, now))


class _Argument(RunChanges):
    """One batch on its way."""

    def __init__(self, layout: Layout, changes: Changes) -> None:
        super().__init__(layout, changes)
        self._chosen: list[list[Any]] = []
        self._touched_queues: dict[str, None] = {}
        self._published: list[str | int] = []  # in threes: stream, position, row

    def made(self, server: str, epoch: str, alone: str, now: int) -> dict[str, Any]:
        changes = self._changes
        for fill in (
            self._units,
            self._runs,
            self._steps,
            self._watchers,
            self._signals,
            self._streams,
            self._queues,
            self._keys,
            self._letters,
            self._readers,
            self._schedules,
            self._rest,
        ):
            fill()
        adds, removes = self._commands()
        return {
            "batch": changes.batch_id,
            "server": server,
            "epoch": epoch,
            "alone": alone,
            "at": str(changes.now),
            "age": moment(now),
            "old": moment(now - commits_kept_us),
            "units_max": units_max,
            "judges": changes.judges_time,
            "head": -1 if changes.head is None else changes.head,
            "needs_head": changes.needs_head,
            **self._compared(),
            "forget": changes.gone_runs,
            "past": [
                [run_id, str(generation)]
                for run_id, generation in changes.past_steps
                if run_id not in changes.gone_runs
            ],
            "superseded": self._superseded,
            "consumers": changes.gone_consumers,
            "subscriptions": changes.gone_subscriptions,
            "adds": adds,
            "placed": self._placed,
            "born_runs": self._born_runs,
            "moved_runs": self._moved_runs,
            "results": self._results,
            "ended": self._ended,
            "unwatched": self._unwatched,
            "cursors": self._seen_topics(),
            "chosen": self._chosen,
            "owners": list(self._owners),
            "ready": list(self._touched_ready),
            "queues": list(self._touched_queues),
            "lines": list(self._touched_lines),
            "published": self._published,
            "floors": self._floors(),
            "removes": removes,
            "trim": changes.trim or 0,
            "events": list(chain.from_iterable(map(_event, changes.new_events))),
            "claims": [self._claim(one) for one in changes.claims],
        }

    # --- what it rests on ---

    def _compared(self) -> dict[str, Any]:
        changes, key = self._changes, self._key
        replaced = {(one.scope, one.key) for one in changes.gone_keys}
        absent = [
            [key("keys"), rows.key_field(one.scope, one.key)]
            for one in changes.new_keys
            if (one.scope, one.key) not in replaced
        ]
        absent += [[key("signal_ids"), one.signal_id] for one in changes.new_signals]
        absent += [
            [key("streams", one.run_id), one.stream]
            for one in changes.put_streams
            if not one.seen and one.run_id not in changes.gone_runs
        ]
        gone_items = {one.item_id for one in changes.gone_items}
        absent += [
            [key("items"), one.item_id]
            for one in changes.new_items
            if one.item_id not in gone_items
        ]
        for step in changes.new_steps:
            # One checkpoint for each path. That of plain results is looked for where they are written.
            if step.state in UNFINISHED:
                decided = key("steps", step.run_id, str(step.generation))
                absent.append([decided, rows.step_field(step)])
                at = rows.open_field(step.generation, step.path)
                absent.append([key("open", step.run_id), at])
        present = [[key("items"), one.item_id] for one in changes.gone_items]
        present += [[key("letters"), one.dead_letter_id] for one in changes.gone_letters]
        present += [[key("outbox"), one] for one in changes.gone_outbox]
        # Counted from 1, as scripts do.
        topics = [(at, one) for at, one in enumerate(changes.units, 1) if one.newest is not None]
        return {
            "units": [_unit(one.kind, one.name) for one in changes.units],
            "versions": [str(one.version) for one in changes.units],
            "runs": [one.run_id for one in changes.runs],
            "changes": [f"{one.change}{SEP}" for one in changes.runs],
            "seqs": [
                [one.run_id, str(one.generation)]
                for one in changes.runs
                if one.generation is not None
            ],
            "seq_before": changes.seq_before,
            "seq": str(changes.seq),
            "topics": [one.name for _, one in topics],
            "topics_at": [at for at, _ in topics],
            "newest": [str(one.newest) for _, one in topics],
            "born": [
                one.run_id for one in changes.new_runs if one.run_id not in changes.runs_before
            ],
            "absent": absent,
            "present": present,
            "same": [
                [key("keys"), rows.key_field(one.scope, one.key), rows.key_mark(one)]
                for one in changes.gone_keys
            ]
            + [
                [key("streams", one.run_id), one.stream, f"{one.seen}:"]
                for one in changes.put_streams
                if one.seen
            ],
        }

    # --- units, queues, keys, letters ---

    def _units(self) -> None:
        fields = self._hash("", "units")
        for one in self._changes.units:
            if one.bump:
                # No smaller than the numbers of this batch: whoever reads it counts on from there.
                fields[_unit(one.kind, one.name)] = str(max(one.version + 1, self._changes.seq))

    def _streams(self) -> None:
        for one in self._changes.put_streams:
            value = rows.stream_value(one.last, one.bytes_all)
            self._hash("streams", "streams", one.run_id)[one.stream] = value
        for item in self._changes.new_stream_items:
            part = rows.stream_part(item.run_id, item.stream)
            self._published += (part, item.position, rows.stream_item_value(item))

    def _floors(self) -> list[str | int]:
        """In threes: stream, and what an item needs to be kept."""
        return [
            part
            for one in self._changes.put_streams
            if one.position_min > 1 or one.bytes_min > 0
            for part in (rows.stream_part(one.run_id, one.stream), one.position_min, one.bytes_min)
        ]

    def _queues(self) -> None:
        for item in self._changes.gone_items:
            self._hash("queue_items", "items")[item.item_id] = None
            self._index("queue", item.queue)[place(item.position) + item.item_id] = False
            self._touched_queues[item.queue] = None
        for item in self._changes.new_items:
            self._hash("queue_items", "items")[item.item_id] = rows.aged(item.put_at, item)
            self._index("queue", item.queue)[place(item.position) + item.item_id] = True
            self._touched_queues[item.queue] = None

    def _keys(self) -> None:
        for is_there, keys in ((False, self._changes.gone_keys), (True, self._changes.new_keys)):
            for key in keys:
                field = rows.key_field(key.scope, key.key)
                value = pieces(ANSWER_NUMBERS, rows.key_mark(key) + text(key)) if is_there else None
                self._hash("keys", "keys")[field] = value
                if key.run_id is not None:
                    self._set("keys_of", key.run_id)[field] = is_there
                if key.expires_at is not None:
                    self._index("keys", "expiry")[moment(key.expires_at) + field] = is_there

    def _letters(self) -> None:
        for is_there, letters in (
            (False, self._changes.gone_letters),
            (True, self._changes.new_letters),
        ):
            for letter in letters:
                at = letter.dead_letter_id
                self._hash("dead_letters", "letters")[at] = text(letter) if is_there else None
                self._index("letters", "all")[at] = is_there
                self._index("letters", "of", letter.run_id)[at] = is_there

    # --- readers of the ledger, and all else ---

    def _readers(self) -> None:
        changes = self._changes
        for consumer in changes.put_consumers:
            fields = self._hash("consumers", "consumers")
            fields[consumer.name] = pieces(ROW_NUMBERS, text(consumer))
        for subscription in changes.put_subscriptions:
            self._put_subscription(subscription)
        for parked_at in changes.gone_parked:
            self._park(*parked_at, None)
        for parked in changes.put_parked:
            row = rows.aged(parked.parked_at, parked)
            self._park(parked.consumer, parked.position, parked.subscription, row)
        for position, name in changes.gone_deferred:
            self._defer(position, name, None)
        for deferred in changes.put_deferred:
            row = rows.aged(deferred.deferred_at, deferred)
            self._defer(deferred.position, deferred.subscription, row)

    def _put_subscription(self, rule: SubscriptionRecord) -> None:
        value = pieces(ROW_NUMBERS, text(rule))
        if rule.behind is None or rule.until < UNPLACED:
            self._hash("subscriptions", "subscriptions")[rule.name] = value
            return
        # One that was to begin at the end, or beyond it, has nothing to catch up with: only the commit knows where
        # that is.
        through = pieces(ROW_NUMBERS, text(replace(rule, behind=None)))
        key = self._key("subscriptions")
        command = ["subscriptions", "HSET", key, rule.name]
        until = rule.until - UNPLACED
        self._chosen.append([rule.behind, until, [*command, value], [*command, through]])

    def _park(self, consumer: str, position: int, subscription: str, row: str | None) -> None:
        at = SEP.join((consumer, place(position), subscription))
        self._hash("parked", "parked")[at] = row
        self._index("parked", "all")[at] = row is not None
        self._index("parked", "age")[place(position) + SEP + at] = row is not None

    def _defer(self, position: int, subscription: str, row: str | None) -> None:
        at = place(position) + subscription
        self._hash("deferred", "deferred")[at] = row
        self._index("deferred", "all")[at] = row is not None
        self._set("deferred", "of", subscription)[at] = row is not None

    def _schedules(self) -> None:
        changes = self._changes
        for before in changes.schedules_before.values():
            self._schedule(before, False)
        for name in changes.gone_schedules:
            self._hash("schedules", "schedules")[name] = None
            self._index("schedules", "all")[name] = False
        for schedule in changes.put_schedules:
            self._hash("schedules", "schedules")[schedule.name] = text(schedule)
            self._index("schedules", "all")[schedule.name] = True
            self._schedule(schedule, True)

    def _schedule(self, schedule: ScheduleRecord, is_there: bool) -> None:
        if schedule.due_at is not None:
            member = moment(schedule.due_at) + schedule.name
            self._index("schedules", "due")[member] = is_there
            self._index("due", schedule.workflow)[member] = is_there

    def _rest(self) -> None:
        changes = self._changes
        for pool in changes.put_pools:
            self._hash("pools", "pools")[pool.name] = text(pool)
        for position in changes.gone_fan_outs:
            self._hash("fan_outs", "fan_outs")[str(position)] = None
        for position in changes.new_fan_outs:
            if position >= UNPLACED:
                self._placed.append(
                    ["fan_outs", "HSET", self._key("fan_outs"), position_text(position), ""]
                )
            else:
                self._hash("fan_outs", "fan_outs")[str(position)] = ""
        for worker_id in changes.gone_workers:
            self._hash("workers", "workers")[worker_id] = None
        for worker in changes.put_workers:
            self._hash("workers", "workers")[worker.worker_id] = rows.worker_value(worker)
        for workflow in changes.put_workflows:
            at = f"{workflow.name}{SEP}{workflow.version:06d}"
            self._hash("workflows", "workflows")[at] = text(workflow)
        for channel in changes.put_channels:
            self._hash("channels", "channels")[f"{channel.kind}{SEP}{channel.name}"] = text(channel)
        for outbox_id in changes.gone_outbox:
            self._hash("", "outbox")[outbox_id] = None
            self._index("outbox", "all")[outbox_id] = False

    def _claim(self, op: ops.ClaimRuns) -> dict[str, Any]:
        return {
            "worker": op.worker_id,
            "fence": str(op.fence),
            "limit": op.limit,
            "now": moment(self._changes.now),
            "of": [f"{name}:{version}" for name, version in dict.fromkeys(op.workflows)],
            "pools": False if op.pools is None else list(dict.fromkeys(op.pools)),
        }


def _event(event: EventRecord) -> tuple[str, ...]:
    about = entity_text(event.entity_type, event.entity_id)
    return (
        event.event_id,
        event.type,
        about,
        moment(event.occurred_at),
        rows.event_text(event),
        "1" if event.repeated else "0",
        "1" if is_indexed(event.type, about) else "0",
    )


def _unit(kind: str, name: str) -> str:
    return f"{kind}{SEP}{name}"
