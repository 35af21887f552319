"""Changes to the argument of the one call that writes them (lua/apply.lua).

What a batch rests on becomes a list of comparisons, what it writes a list of commands, grouped by key: the script makes
the first and, if all hold, carries out the second. So the indexes are kept here, by the rows as they were and as they
are. Of a row that goes and another that comes in its place only the latter is left: things may be added before others
are removed.

A text with positions that only the commit can give travels in pieces: [text, n, text, …], where n stands for the
n-th place after the end of the ledger; [n] is one of fixed width.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from perdure.model import ops
from perdure.model.records import (
    EventRecord,
    RunRecord,
    ScheduleRecord,
    SignalRecord,
    StepRecord,
    SubscriptionRecord,
    WatcherRecord,
    entity_text,
)
from perdure.model.status import TERMINAL
from perdure.store.optimistic.changes import UNPLACED, Changes, RunChange
from perdure.store.optimistic.placing import MARK
from perdure.store.redis import rows
from perdure.store.redis.layout import (
    SEP,
    Layout,
    is_indexed,
    line_member,
    moment,
    place,
    ready_part,
)
from perdure.store.redis.rows import text

Value = str | list[Any]

# A command takes no more than this: a script cannot hand over any number of them.
_arguments_max: Final = 1000
_unfinished = frozenset({"open", "retrying"})

# Where our own texts hold positions: as fields of a row, and within a text that is a field of a row.
_row_numbers = re.compile(rf'"(?:position|after|until|behind)":({MARK}\d{{5}})')
_answer_numbers = re.compile(rf'\\"position\\":({MARK}\d{{5}})')
_wait_numbers = re.compile(r'\\"after\\":\[[\d,]*\]')
_number = re.compile(rf"{MARK}\d{{5}}")


def argument_of(
    layout: Layout, changes: Changes, *, server: str, epoch: str, alone: str, now: int
) -> bytes:
    """What the script is given. Raises ValueError for what is no text."""
    return msgspec.msgpack.encode(_Argument(layout, changes).made(server, epoch, alone, now))


class _Argument:
    """One batch on its way."""

    def __init__(self, layout: Layout, changes: Changes) -> None:
        self._layout = layout
        self._key = layout.key
        self._changes = changes
        # By key, then by field or member; None and False take away.
        self._hashes: dict[str, dict[str, Value | None]] = {}
        self._zsets: dict[str, dict[str, bool]] = {}
        self._sets: dict[str, dict[str, bool]] = {}
        self._placed: list[list[Any]] = []  # commands whose arguments may be in pieces
        self._counted: dict[str, str] = {}  # hashes whose fields are rows of a table
        self._chosen: list[list[Any]] = []
        self._superseded: list[list[Any]] = []
        self._results: list[Any] = []  # of steps, in threes: run and generation, field, row
        # Of these the script sees in the end whether there is anything left.
        self._owners: dict[str, None] = {}
        self._touched_queues: dict[str, None] = {}
        self._touched_lines: dict[tuple[str, str], None] = {}

    def made(self, server: str, epoch: str, alone: str, now: int) -> dict[str, Any]:
        changes = self._changes
        for fill in (
            self._units,
            self._runs,
            self._steps,
            self._watchers,
            self._signals,
            self._cursors,
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
            "results": self._results,
            "chosen": self._chosen,
            "owners": list(self._owners),
            "queues": list(self._touched_queues),
            "lines": list(self._touched_lines),
            "removes": removes,
            "trim": changes.trim or 0,
            "events": [
                [
                    one.event_id,
                    one.type,
                    _about(one),
                    moment(one.occurred_at),
                    rows.event_text(one),
                    "1" if one.repeated else "0",
                    "1" if is_indexed(one.type, _about(one)) else "0",
                ]
                for one in changes.new_events
            ],
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
        gone_items = {one.item_id for one in changes.gone_items}
        absent += [
            [key("items"), one.item_id]
            for one in changes.new_items
            if one.item_id not in gone_items
        ]
        for step in changes.new_steps:
            # One checkpoint for each path. That of plain results is looked for where they are written.
            if step.state in _unfinished:
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
            "changes": [str(one.change) for one in changes.runs],
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
            ],
        }

    # --- collecting ---

    def _hash(self, table: str, *parts: str) -> dict[str, Value | None]:
        """The fields of a hash that change; those of a named table are counted."""
        name = self._key(*parts)
        if table:
            self._counted[name] = table
        return self._hashes.setdefault(name, {})

    def _index(self, *parts: str) -> dict[str, bool]:
        return self._zsets.setdefault(self._key(*parts), {})

    def _set(self, *parts: str) -> dict[str, bool]:
        return self._sets.setdefault(self._key(*parts), {})

    def _commands(self) -> tuple[list[list[Any]], list[list[Any]]]:
        adds: list[list[Any]] = []
        removes: list[list[Any]] = []
        for key, fields in self._hashes.items():
            table = self._counted.get(key, "")
            there = [
                part for at, one in fields.items() if isinstance(one, str) for part in (at, one)
            ]
            gone = [at for at, one in fields.items() if one is None]
            adds += _cut(table, "HSET", key, there)
            removes += _cut(table, "HDEL", key, gone)
            for at, one in fields.items():
                if isinstance(one, list):
                    self._placed.append([table, "HSET", key, at, one])
        for key, members in self._zsets.items():
            adds += _cut(
                "",
                "ZADD",
                key,
                [part for one, is_in in members.items() if is_in for part in ("0", one)],
            )
            removes += _cut("", "ZREM", key, [one for one, is_in in members.items() if not is_in])
        for key, members in self._sets.items():
            adds += _cut("", "SADD", key, [one for one, is_in in members.items() if is_in])
            removes += _cut("", "SREM", key, [one for one, is_in in members.items() if not is_in])
        return adds, removes

    # --- units and runs ---

    def _units(self) -> None:
        fields = self._hash("", "units")
        for one in self._changes.units:
            if one.bump:
                # No smaller than the numbers of this batch: whoever reads it counts on from there.
                fields[_unit(one.kind, one.name)] = str(max(one.version + 1, self._changes.seq))

    def _runs(self) -> None:
        changes = self._changes
        for run_id in changes.gone_runs:
            before = changes.runs_before.get(run_id)
            if before is not None:
                self._list_run(before, False)
                self._move_run(before, None)
        for seen in changes.runs:
            if seen.bump and seen.run_id not in changes.gone_runs:
                fields = self._hash("", "run", seen.run_id)
                fields["change"], fields["seq"] = str(seen.change + 1), str(changes.seq)
        for run in changes.new_runs:
            self._new_run(run)
        for change in changes.changed_runs:
            before = changes.runs_before[change.run_id]
            self._hash("", "run", change.run_id).update(rows.state_fields(change))
            self._move_run(before, change)
        for run in changes.renewed_runs:
            self._renew_run(changes.runs_before[run.run_id], run)

    def _new_run(self, run: RunRecord) -> None:
        changes = self._changes
        fields = self._hash("", "run", run.run_id)
        fields.update(rows.state_fields(run))
        fields["born"] = rows.born_text(run)
        fields["change"], fields["seq"] = str(changes.born), str(changes.seq)
        fields["created"], fields["generation"] = moment(run.created_at), str(run.generation)
        fields["position"] = _position(run.position)
        self._list_run(run, True)
        self._move_run(None, run)

    def _renew_run(self, before: RunRecord, run: RunRecord) -> None:
        """It continued as another, or took another input: all that a run is born with may be new, but its place in the
        ledger, its entity and its tags."""
        fields = self._hash("", "run", run.run_id)
        fields.update(rows.state_fields(run))
        fields["born"], fields["generation"] = rows.born_text(run), str(run.generation)
        if run.published is None:
            fields["published"] = None
        if before.workflow != run.workflow:
            member = _run_member(run)
            self._index("runs", "workflow", before.workflow)[member] = False
            self._index("runs", "workflow", run.workflow)[member] = True
        self._move_run(before, run)

    def _list_run(self, run: RunRecord, is_there: bool) -> None:
        """Where it is listed as long as it is kept."""
        member = _run_member(run)
        self._index("runs")[member] = is_there
        self._index("runs", "workflow", run.workflow)[member] = is_there
        if run.entity_type is not None:
            about = entity_text(run.entity_type, run.entity_id)
            self._index("runs", "entity", about)[member] = is_there
        if run.parent_run_id is not None:
            self._index("runs", "parent", run.parent_run_id)[member] = is_there
        if run.tags is not None:
            for name, value in msgspec.json.decode(run.tags).items():
                self._index("runs", "tag", name)[member] = is_there
                self._index("runs", "tag", f"{name}{SEP}{value}")[member] = is_there
        if run.root_id is not None:
            self._set("root", run.root_id)[run.run_id] = is_there

    def _move_run(self, before: RunRecord | None, after: RunRecord | RunChange | None) -> None:
        """From where it is found by what has become of it, to where it will be; None: it is not there."""
        run = before or after
        assert isinstance(run, RunRecord)
        old = {} if before is None else self._places(run, before)
        new = {} if after is None else self._places(run, after)
        for at in old.keys() - new.keys():
            self._index(*at)[old[at]] = False
        for at, member in new.items():
            if old.get(at) != member:
                if at in old:
                    self._index(*at)[old[at]] = False
                self._index(*at)[member] = True
                if at[0] == "ready":
                    self._set("ready_names")[at[1]] = True
                    if run.pool:
                        self._set("ready_pools")[run.pool] = True
        for at in old.keys() ^ new.keys():
            if at[0] == "owned":
                self._owners[at[1]] = None
            elif at[0] == "line":
                self._touched_lines[run.pool, run.pool_key] = None
        if run.parent_run_id is not None:
            lives = after is not None and after.status not in TERMINAL
            if before is None or lives != (before.status not in TERMINAL):
                self._set("children", run.parent_run_id)[run.run_id] = lives

    def _places(self, run: RunRecord, state: RunRecord | RunChange) -> dict[tuple[str, ...], str]:
        """The indexes that it stands in by its state, and its member there."""
        run_id = run.run_id
        places: dict[tuple[str, ...], str] = {("runs", "status", state.status): _run_member(run)}
        if state.status == "running":
            places["owned", state.owner or ""] = run_id
        if state.owner is not None:
            places["held", state.owner] = run_id
        if state.ready_at is not None:
            # Of the workflow that it is by then: one that continues may become another.
            of = state if isinstance(state, RunRecord) else run
            part = ready_part(run.pool, of.workflow, of.version)
            places["ready", part] = moment(state.ready_at) + run_id
        if state.finished_at is not None:
            places["runs", "finished"] = moment(state.finished_at) + run_id
        if run.pool:
            places |= self._places_in_pool(run, state)
        return places

    def _places_in_pool(
        self, run: RunRecord, state: RunRecord | RunChange
    ) -> dict[tuple[str, ...], str]:
        shared = f"{run.pool}{SEP}{run.pool_key}"
        if state.line_at is not None:
            of = state if isinstance(state, RunRecord) else run
            places: dict[tuple[str, ...], str] = {
                ("line", shared): line_member(of, state.line_at, state.admitted),
                ("line_age", run.pool): moment(state.line_at) + run.run_id,
            }
            if state.admitted:
                places["begun", run.pool] = run.run_id
            return places
        if state.status in ("ready", "running"):
            return {("slots", run.pool): run.run_id, ("slots", shared): run.run_id}
        return {}

    # --- what belongs to runs ---

    def _steps(self) -> None:
        changes = self._changes
        bumped = {one.run_id for one in changes.runs if one.bump}
        for run_id, generation, path in changes.gone_steps:
            # Before all else: this very batch may have recorded the path anew.
            self._hash("steps", "open", run_id)[rows.open_field(generation, path)] = None
            decided = self._key("steps", run_id, str(generation))
            self._superseded.append(["steps", "HDEL", decided, f"0:{path}"])
        for step in changes.put_steps:
            self._put_step(step, True)
        for step in changes.new_steps:
            if step.state in _unfinished:
                self._put_step(step, False)
            else:
                # By far the most: without a command of their own.
                self._results += (
                    f"{step.run_id}:{step.generation}",
                    rows.step_field(step),
                    _step_value(step),
                )
        for run_id in {one.run_id for one in changes.put_steps} - bumped:
            self._hash("", "run", run_id)["seq"] = str(changes.seq)

    def _put_step(self, step: StepRecord, may_be_elsewhere: bool) -> None:
        decided = self._hash("steps", "steps", step.run_id, str(step.generation))
        if step.superseded:
            decided[rows.step_field(step)] = _step_value(step)
            return
        unfinished = self._hash("steps", "open", step.run_id)
        at, among = rows.open_field(step.generation, step.path), rows.step_field(step)
        is_open = step.state in _unfinished
        if is_open:
            unfinished[at] = _step_value(step)
        else:
            decided[among] = _step_value(step)
        if may_be_elsewhere:
            if is_open:
                decided[among] = None
            else:
                unfinished[at] = None

    def _watchers(self) -> None:
        for watcher in self._changes.gone_watchers:
            self._hash("watchers", "waits", watcher.run_id)[rows.wait_field(watcher)] = None
            self._watch(watcher, False)
        for watcher in self._changes.new_watchers:
            value = _pieces(_row_numbers, rows.watcher_value(watcher))
            if watcher.after >= UNPLACED:
                # Also before the row, for the script.
                after, _, rest = rows.watcher_value(watcher).partition(":")
                tail = _pieces(_row_numbers, f":{rest}")
                value = ["", int(after) - UNPLACED, *(tail if isinstance(tail, list) else [tail])]
            self._hash("watchers", "waits", watcher.run_id)[rows.wait_field(watcher)] = value
            self._watch(watcher, True)

    def _watch(self, watcher: WatcherRecord, is_there: bool) -> None:
        run = f"{watcher.run_id}{SEP}{rows.wait_field(watcher)}"
        member = moment(watcher.opened_at) + run
        if watcher.target:
            self._index("watch", watcher.kind, watcher.target)[member] = is_there
        if watcher.kind == "topic":
            self._index("watch", "about", f"{watcher.target}{SEP}{watcher.entity}")[member] = (
                is_there
            )
        elif watcher.kind == "match":
            at = SEP.join((watcher.target, watcher.entity, member))
            self._index("matches")[at] = is_there
        if watcher.deadline_at is not None and not watcher.held:
            self._index("deadlines")[moment(watcher.deadline_at) + run] = is_there

    def _signals(self) -> None:
        for signal in self._changes.gone_signals:
            self._hash("signals", "signals", signal.run_id)[signal.signal_id] = None
            self._hash("", "signal_ids")[signal.signal_id] = None
            self._expire(signal, False)
        for signal in self._changes.new_signals:
            self._hash("signals", "signals", signal.run_id)[signal.signal_id] = text(signal)
            self._hash("", "signal_ids")[signal.signal_id] = signal.run_id
            self._expire(signal, True)

    def _expire(self, signal: SignalRecord, is_there: bool) -> None:
        if signal.expires_at is not None:
            at = moment(signal.expires_at) + place(signal.position)
            self._index("expiries")[at + SEP.join(("", signal.run_id, signal.signal_id))] = is_there

    def _cursors(self) -> None:
        for cursor in self._changes.put_cursors:
            fields = self._hash("cursors", "cursors", cursor.run_id)
            fields[rows.cursor_field(cursor)] = _position(cursor.position)

    # --- queues, keys, letters ---

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
                value = (
                    _pieces(_answer_numbers, rows.key_mark(key) + text(key)) if is_there else None
                )
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
            fields[consumer.name] = _pieces(_row_numbers, text(consumer))
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
        value = _pieces(_row_numbers, text(rule))
        if rule.behind is None or rule.until < UNPLACED:
            self._hash("subscriptions", "subscriptions")[rule.name] = value
            return
        # One that was to begin at the end, or beyond it, has nothing to catch up with: only the commit knows where
        # that is.
        through = _pieces(_row_numbers, text(replace(rule, behind=None)))
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
                    ["fan_outs", "HSET", self._key("fan_outs"), _position(position), ""]
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


def _about(event: EventRecord) -> str:
    return entity_text(event.entity_type, event.entity_id)


def _unit(kind: str, name: str) -> str:
    return f"{kind}{SEP}{name}"


def _run_member(run: RunRecord) -> str:
    return moment(run.created_at) + run.run_id


def _position(position: int) -> Value:
    return ["", position - UNPLACED] if position >= UNPLACED else str(position)


def _step_value(step: StepRecord) -> Value:
    value = rows.step_text(step)
    if MARK not in value:
        return value
    if step.wait is not None and MARK in step.wait:
        return _pieces(_wait_numbers, value)
    if step.kind == "emit":
        return _pieces(_answer_numbers, value)
    return value


def _pieces(where: re.Pattern[str], value: str) -> Value:
    """A text cut at the positions that have no place yet; the text itself if there are none."""
    if MARK not in value:
        return value
    parts: list[Any] = []
    done = 0
    for found in where.finditer(value):
        for number in _number.finditer(value, found.start(), found.end()):
            parts += [value[done : number.start()], int(number[0]) - UNPLACED]
            done = number.end()
    return [*parts, value[done:]] if parts else value


def _cut(table: str, command: str, key: str, arguments: list[str]) -> Iterable[list[Any]]:
    for begin in range(0, len(arguments), _arguments_max):
        yield [table, command, key, *arguments[begin : begin + _arguments_max]]
