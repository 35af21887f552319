"""Runs and what belongs to them: which rows and which indexes a batch changes.

The indexes are kept by the rows as they were and as they are. What there is by far the most of (runs that start or
move, results, ends of waits) has no command of its own: the script is handed flat lists.
"""

from typing import Any, Final

import msgspec

from perdure.model.records import (
    RunRecord,
    SignalRecord,
    StepRecord,
    WatcherRecord,
    entity_text,
)
from perdure.model.status import TERMINAL
from perdure.store.optimistic.changes import UNPLACED, Changes, RunChange
from perdure.store.optimistic.placing import MARK
from perdure.store.redis import rows
from perdure.store.redis.gathering import (
    ANSWER_NUMBERS,
    ROW_NUMBERS,
    WAIT_NUMBERS,
    Gathering,
    Value,
    pieces,
    position_text,
)
from perdure.store.redis.layout import SEP, Layout, line_member, moment, place, ready_part
from perdure.store.redis.rows import text

_Held = tuple[str, str | None] | None  # status and owner of a run; None: it is not there
_Way = list[tuple[dict[str, bool], bool, bool]]

UNFINISHED: Final = frozenset({"open", "retrying"})


class RunChanges(Gathering):
    """The part of a batch that is about runs."""

    def __init__(self, layout: Layout, changes: Changes) -> None:
        super().__init__(layout, changes)
        self._born_runs: list[Any] = []  # in fours: id, born, claim, made
        self._moved_runs: list[str] = []  # in twos: id, claim
        self._superseded: list[list[Any]] = []
        self._results: list[Any] = []  # of steps, in fours: run, generation, field, row
        # Of waits, in fives: run, generation, field, row, its field while it was open.
        self._ended: list[Any] = []
        self._unwatched: list[str] = []  # in twos: run, field
        self._ways: dict[tuple[_Held, _Held], _Way] = {}
        # Of these the script sees in the end whether there is anything left.
        self._owners: dict[str, None] = {}
        self._touched_ready: dict[str, None] = {}
        self._touched_lines: dict[tuple[str, str], None] = {}

    def _runs(self) -> None:
        changes = self._changes
        for run_id in changes.gone_runs:
            before = changes.runs_before.get(run_id)
            if before is not None:
                self._list_run(before, False)
                self._move_run(before, None)
        versions = {
            one.run_id: one.change + 1
            for one in changes.runs
            if one.bump and one.run_id not in changes.gone_runs
        }
        for run in changes.new_runs:
            self._new_run(run)
        for change in changes.changed_runs:
            before = changes.runs_before[change.run_id]
            version = versions.pop(change.run_id)
            self._moved_runs += (change.run_id, rows.claim_text(version, change))
            if change.published is not None:
                self._hash("", "run", change.run_id)["published"] = change.published
            self._move_run(before, change)
        for run in changes.renewed_runs:
            self._renew_run(changes.runs_before[run.run_id], run, versions.pop(run.run_id))
        for run_id, version in versions.items():
            run = changes.runs_before[run_id]
            self._moved_runs += (run_id, rows.claim_text(version, run))

    def _new_run(self, run: RunRecord) -> None:
        made: Value = rows.made_text(run)
        if run.position >= UNPLACED:
            made = [made, run.position - UNPLACED]
        else:
            made = f"{made}{run.position}"
        claim = rows.claim_text(self._changes.born, run)
        self._born_runs += (run.run_id, rows.born_text(run), claim, made)
        if run.published is not None:
            self._hash("", "run", run.run_id)["published"] = run.published
        self._list_run(run, True)
        self._move_run(None, run)

    def _renew_run(self, before: RunRecord, run: RunRecord, version: int) -> None:
        """It continued as another, or took another input: all that a run is born with may be new, but its place in the
        ledger, its entity and its tags."""
        self._moved_runs += (run.run_id, rows.claim_text(version, run))
        fields = self._hash("", "run", run.run_id)
        fields["born"] = rows.born_text(run)
        fields["made"] = f"{rows.made_text(run)}{before.position}"
        fields["published"] = run.published
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
        old, new = _held(before), _held(after)
        if old != new:
            # Most runs of a batch go the same way.
            way = self._ways.get((old, new)) or self._way(old, new)
            member = _run_member(run)
            for members, by_id, is_there in way:
                members[run.run_id if by_id else member] = is_there
        self._move_by_time(run, before, after)
        if run.parent_run_id is not None:
            lives = after is not None and after.status not in TERMINAL
            if before is None or lives != (before.status not in TERMINAL):
                self._set("children", run.parent_run_id)[run.run_id] = lives

    def _way(self, old: _Held, new: _Held) -> _Way:
        """The indexes that a run leaves and enters with its status and its owner, and whether its id is its member."""
        left, entered = _places_held(old), _places_held(new)
        way = [(self._index(*at), at[0] != "runs", False) for at in left if at not in entered]
        way += [(self._index(*at), at[0] != "runs", True) for at in entered if at not in left]
        self._owners |= {at[1]: None for at in {*left} ^ {*entered} if at[0] == "owned"}
        self._ways[old, new] = way
        return way

    def _move_by_time(
        self, run: RunRecord, before: RunRecord | None, after: RunRecord | RunChange | None
    ) -> None:
        """Likewise, where it is found by a time, or among the runs of its pool."""
        old = {} if before is None else self._places(run, before)
        new = {} if after is None else self._places(run, after)
        if old != new:
            for at, member in old.items() - new.items():
                self._shift(run, at, member, False)
            for at, member in new.items() - old.items():
                self._shift(run, at, member, True)

    def _shift(self, run: RunRecord, at: tuple[str, ...], member: str, is_there: bool) -> None:
        self._index(*at)[member] = is_there
        # Of some indexes it is known which of them have anything in them.
        if at[0] == "ready":
            self._touched_ready[at[1]] = None
        elif at[0] == "line":
            self._touched_lines[run.pool, run.pool_key] = None

    def _places(self, run: RunRecord, state: RunRecord | RunChange) -> dict[tuple[str, ...], str]:
        """Those indexes, and its member there."""
        places: dict[tuple[str, ...], str] = {}
        if state.ready_at is not None:
            # Of the workflow that it is by then: one that continues may become another.
            of = state if isinstance(state, RunRecord) else run
            part = ready_part(run.pool, of.workflow, of.version)
            places["ready", part] = moment(state.ready_at) + run.run_id
        if state.finished_at is not None:
            places["runs", "finished"] = moment(state.finished_at) + run.run_id
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

    # --- what belongs to them ---

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
            if step.state in UNFINISHED:
                self._put_step(step, False)
            else:
                # By far the most: without a command of their own.
                where = (step.run_id, str(step.generation), rows.step_field(step))
                self._results += (*where, _step_value(step))
        for run_id in {one.run_id for one in changes.put_steps} - bumped:
            self._hash("", "run", run_id)["seq"] = str(changes.seq)

    def _put_step(self, step: StepRecord, may_be_elsewhere: bool) -> None:
        at, among = rows.open_field(step.generation, step.path), rows.step_field(step)
        if step.superseded:
            self._hash("steps", "steps", step.run_id, str(step.generation))[among] = _step_value(
                step
            )
        elif step.state not in UNFINISHED:
            where = (step.run_id, str(step.generation), among)
            self._ended += (*where, _step_value(step), at)
        else:
            self._hash("steps", "open", step.run_id)[at] = _step_value(step)
            if may_be_elsewhere:
                self._hash("steps", "steps", step.run_id, str(step.generation))[among] = None

    def _watchers(self) -> None:
        back = {(one.run_id, one.path, one.ix) for one in self._changes.new_watchers}
        for watcher in self._changes.gone_watchers:
            if (watcher.run_id, watcher.path, watcher.ix) not in back:
                self._unwatched += (watcher.run_id, rows.wait_field(watcher))
            self._watch(watcher, False)
        for watcher in self._changes.new_watchers:
            value = pieces(ROW_NUMBERS, rows.watcher_value(watcher))
            if watcher.after >= UNPLACED:
                # Also before the row, for the script.
                after, _, rest = rows.watcher_value(watcher).partition(":")
                tail = pieces(ROW_NUMBERS, f":{rest}")
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
        elif watcher.kind == "approval":
            self._index("approvals")[member] = is_there
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

    def _seen_topics(self) -> list[Any]:
        """In threes: run, field, position."""
        seen: list[Any] = []
        for cursor in self._changes.put_cursors:
            seen += (cursor.run_id, rows.cursor_field(cursor), position_text(cursor.position))
        return seen


def _held(run: RunRecord | RunChange | None) -> _Held:
    return None if run is None else (run.status, run.owner)


def _places_held(held: _Held) -> list[tuple[str, ...]]:
    """The indexes that a run stands in by its status and its owner."""
    if held is None:
        return []
    status, owner = held
    places: list[tuple[str, ...]] = [("runs", "status", status)]
    if status == "running":
        places.append(("owned", owner or ""))
    if owner is not None:
        places.append(("held", owner))
    return places


def _run_member(run: RunRecord) -> str:
    return moment(run.created_at) + run.run_id


def _step_value(step: StepRecord) -> Value:
    value = rows.step_text(step)
    if MARK not in value:
        return value
    if step.wait is not None and MARK in step.wait:
        return pieces(WAIT_NUMBERS, value)
    if step.kind == "emit":
        return pieces(ANSWER_NUMBERS, value)
    return value
