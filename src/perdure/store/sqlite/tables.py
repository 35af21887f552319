"""The working set of one batch: rows read by few calls, changed by many ops, written by few calls.

A batch costs what its net change costs: a row that comes and goes within it is never written. Rows
live in plain dicts by their keys; beside them stands what differs from the file: added, changed,
gone. `flush` writes the difference; questions that only an index can answer flush first and then
ask the file. Where a dict holds None, the row was looked for and is not there. Nothing commits here.
"""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from msgspec.structs import asdict

from perdure.model.ids import Ids
from perdure.model.ops import Op
from perdure.model.outcomes import Wake
from perdure.model.records import (
    DeadLetterRecord,
    KeyRecord,
    RunRecord,
    SignalRecord,
    StepRecord,
    WatcherRecord,
    WorkerRecord,
    WorkflowRecord,
)
from perdure.model.status import LIVE
from perdure.store.sqlite import shapes
from perdure.store.sqlite.prefetch import Wanted, wanted
from perdure.store.sqlite.remembered import Remembered, chars_max
from perdure.store.sqlite.statements import (
    Statements,
    as_json,
    at_most,
    decode_ids,
    decode_keys,
    decode_letters,
    decode_owners,
    decode_pairs,
    decode_runs,
    decode_signals,
    decode_steps,
    decode_watchers,
    decode_workflows,
    steps_in_parts,
)
from perdure.store.tables import Tables

StepKey = tuple[str, int, str]  # run_id, generation, path: the living row
WatcherKey = tuple[str, str, int]  # run_id, path, ix

# seq = number of the commit * 2^20 + count. That lasts for 2^43 commits.
seqs_per_commit = 2**20


class Liveness(Protocol):
    """Who knows which workers live: the lock files."""

    def is_live(self, worker_id: str, lease_until: int, now: int) -> bool: ...

    def hold(self, worker_id: str) -> None: ...


_Record = TypeVar("_Record")


class SqliteTables(Tables):
    """The rows of one batch on the writer's connection, inside its transaction."""

    def __init__(
        self,
        sql: Statements,
        *,
        now: int,
        number: int,
        worker_id: str | None,
        lifecycle: bool,
        ids: Ids,
        liveness: Liveness,
        remembered: Remembered,
    ) -> None:
        self.now = now
        self.worker_id = worker_id
        self.lifecycle = lifecycle
        self.wakes: list[Wake] = []
        self._sql = sql
        self._ids = ids
        self._liveness = liveness
        self._remembered = remembered
        self._seq = number * seqs_per_commit
        self._seq_max = self._seq + seqs_per_commit - 1
        self._position = remembered.position

        # Shared with the batches before and after; the rest belongs to this one.
        self._runs = remembered.runs
        self._watchers = remembered.watchers
        self._signals = remembered.signals
        self._waits = remembered.waits
        self._unwatched = remembered.unwatched
        self._workflows = remembered.workflows

        self._touched: dict[str, None] = {}  # runs that may not be worth remembering
        self._stored_runs: dict[str, RunRecord] = {}  # as the file has them, for those that changed
        self._new_runs: dict[str, None] = {}
        self._new_children: dict[str, list[str]] = {}
        self._children: dict[str, list[str]] = {}
        self._deleted_runs: dict[str, None] = {}

        self._steps: dict[StepKey, StepRecord | None] = {}
        self._added_steps: dict[StepKey, StepRecord] = {}
        self._stored_steps: dict[StepKey, StepRecord] = {}  # as the file has them, if changed
        self._put_steps: dict[StepKey, StepRecord] = {}
        self._past_generations: list[tuple[str, int]] = []

        self._added_watchers: dict[WatcherKey, WatcherRecord] = {}
        self._gone_watchers: dict[WatcherKey, None] = {}
        self._stored_on_run: dict[str, list[WatcherRecord]] = {}
        self._added_on_run: dict[str, dict[WatcherKey, WatcherRecord]] = {}

        self._added_signals: dict[str, SignalRecord] = {}
        self._gone_signals: dict[str, None] = {}

        self._keys: dict[tuple[str, str], KeyRecord | None] = {}
        self._added_keys: list[KeyRecord] = []
        # Bare columns in the order of their statements: nobody reads an event within its batch.
        self._plain_events: list[object] = []
        self._caused_events: list[object] = []
        self._letters: dict[str, DeadLetterRecord | None] = {}
        self._added_letters: dict[str, DeadLetterRecord] = {}
        self._gone_letters: dict[str, None] = {}
        self._live: dict[str, bool] = {}
        self.ended_workers: set[str] = set()  # whose lock files go once this batch is committed

    # --- order and identity ---

    def next_seq(self) -> int:
        self._seq += 1
        if self._seq > self._seq_max:
            raise OverflowError(f"a batch gives at most {seqs_per_commit - 1} sequence numbers")
        return self._seq

    def ulid(self) -> str:
        return self._ids.ulid(self.now)

    # --- loading ---

    def prefetch(self, batch: Iterable[Op[Any]]) -> None:
        """Load what the ops will ask for, in one call if anything is missing."""
        self._load_missing(wanted(batch, self._unwatched))

    def _load_around(self, run_ids: set[str]) -> None:
        """The same for runs that an index named."""
        want = Wanted()
        want.runs = want.inside = run_ids
        self._load_missing(want)

    def _load_missing(self, want: Wanted) -> None:
        want.runs = {one for one in want.runs if one not in self._runs}
        want.inside = {one for one in want.inside if not self._is_known_inside(one)}
        want.targets -= self._unwatched
        want.waits = {at for at in want.waits if at[1] not in self._waits.get(at[0], ())}
        if not want.only_runs():
            self._load(want)
        elif want.runs:
            self._keep_runs(
                want.runs, self._read(decode_runs, "prefetch_runs", runs=as_json(list(want.runs)))
            )

    def _is_known_inside(self, run_id: str) -> bool:
        return run_id in self._watchers and run_id in self._signals

    def _load(self, want: Wanted) -> None:
        """Load whole neighbourhoods. Only for keys of which the working set holds nothing yet."""
        runs, watchers, signals, open_steps, steps, keys, on_run, children = self._sql.row(
            "prefetch",
            {
                "runs": as_json(list(want.runs)),
                "inside": as_json(list(want.inside)),
                "targets": as_json(list(want.targets)),
                "waits": as_json(list(want.waits)),
                "keys": as_json(list(want.keys)),
                "parents": as_json(list(want.parents)),
            },
        )
        self._keep_runs(want.runs, decode_runs(runs))
        self._keep_inside(want.inside, decode_watchers(watchers), decode_signals(signals))
        for run_id, path in want.waits:
            run = self._runs.get(run_id)
            if run is not None:
                self._steps[run_id, run.generation, path] = None
        for step in decode_steps(open_steps):
            self._waits.setdefault(step.run_id, {}).setdefault(step.path, step)
        for step in decode_steps(steps):
            self._steps[step.run_id, step.generation, step.path] = step
        self._keys.update(dict.fromkeys(want.keys))
        self._keys.update(((one.scope, one.key), one) for one in decode_keys(keys))
        self._stored_on_run.update((run_id, []) for run_id in want.targets)
        for watcher in decode_watchers(on_run):
            self._stored_on_run[watcher.target].append(watcher)
        self._children.update((run_id, []) for run_id in want.parents)
        for parent_id, run_id in decode_pairs(children):
            self._children[parent_id].append(run_id)

    def _keep_runs(self, asked: Iterable[str], found: list[RunRecord]) -> None:
        rows = self._runs
        for run_id in asked:
            rows.setdefault(run_id, None)
            self._touched[run_id] = None
        for run in found:
            if rows.get(run.run_id) is None:
                rows[run.run_id] = run
                self._touched[run.run_id] = None

    def _keep_inside(
        self, asked: Iterable[str], watchers: list[WatcherRecord], signals: list[SignalRecord]
    ) -> None:
        fresh: dict[str, dict[tuple[str, int], WatcherRecord]] = {one: {} for one in asked}
        for watcher in watchers:
            fresh.setdefault(watcher.run_id, {})[watcher.path, watcher.ix] = watcher
        for run_id, rows in fresh.items():
            self._watchers.setdefault(run_id, rows)
        kept: dict[str, dict[str, SignalRecord]] = {one: {} for one in asked}
        for signal in signals:
            kept[signal.run_id][signal.signal_id] = signal
        for run_id, buffered in kept.items():
            self._signals.setdefault(run_id, buffered)
            self._touched[run_id] = None

    def _read(
        self, decode: Callable[[str], list[_Record]], name: str, **params: object
    ) -> list[_Record]:
        if self._deleted_runs:
            self._flush_deleted()
        return self._sql.records(decode, name, params)

    # --- runs ---

    def run(self, run_id: str) -> RunRecord | None:
        try:
            return self._runs[run_id]
        except KeyError:
            pass
        found = self._read(decode_runs, "run", run_id=run_id)
        run = self._runs[run_id] = found[0] if found else None
        self._touched[run_id] = None
        return run

    def add_run(self, run: RunRecord) -> None:
        run_id = run.run_id
        if self._runs.get(run_id) is not None:  # one that is in the file breaks the unique index
            raise ValueError(f"second run of the id {run_id!r}")
        self._runs[run_id] = run
        self._new_runs[run_id] = None
        if len(run.input) > chars_max:
            self._touched[run_id] = None
        # A run that is not in the file has nothing there: no waits or signals to look for.
        self._watchers[run_id] = {}
        self._signals[run_id] = {}
        self._unwatched.add(run_id)
        if run.parent_run_id is not None:
            self._new_children.setdefault(run.parent_run_id, []).append(run_id)

    def put_run(self, run: RunRecord) -> None:
        run_id = run.run_id
        if run_id not in self._new_runs and run_id not in self._stored_runs:
            old = self.run(run_id)
            if old is None:
                raise ValueError(f"no run of the id {run_id!r}")
            self._stored_runs[run_id] = old
            if old.finished_at is not None and run.parent_run_id is not None:  # retried
                self._new_children.setdefault(run.parent_run_id, []).append(run_id)
        self._runs[run_id] = run
        self._touched[run_id] = None

    def delete_run(self, run_id: str) -> None:
        # Only pruning deletes, and it has just flushed: nothing of an ended run is pending.
        self._runs[run_id] = None
        self._stored_runs.pop(run_id, None)
        self._deleted_runs[run_id] = None
        self._watchers[run_id] = {}
        self._signals[run_id] = {}
        self._waits.pop(run_id, None)
        self._unwatched.discard(run_id)
        for key in [key for key in self._steps if key[0] == run_id]:
            del self._steps[key]
        self._keys.clear()
        self._letters.clear()

    def children(self, run_id: str) -> list[str]:
        if run_id not in self._children:
            pairs = self._read(decode_pairs, "children", run_id=run_id)
            self._children[run_id] = [child_id for _, child_id in pairs]
        found = {*self._children[run_id], *self._new_children.get(run_id, ())}
        self._load_around(found)
        # Looked at again: a child may have been pruned and its id used anew, all within this batch.
        return sorted(
            one
            for one in found
            if (run := self.run(one)) and run.status in LIVE and run.parent_run_id == run_id
        )

    def ready_runs(self, workflows: Iterable[tuple[str, int]], limit: int) -> list[RunRecord]:
        self.flush()
        known = as_json(list(dict.fromkeys(workflows)))
        return self._some_runs("ready_runs", limit, now=self.now, workflows=known)

    def next_ready_at(self, workflows: Iterable[tuple[str, int]]) -> int | None:
        self.flush()
        known = {"now": self.now, "workflows": as_json(list(workflows))}
        at: int | None = self._sql.row("next_ready_at", known)[0]
        return at

    def orphans(self, limit: int) -> list[RunRecord]:
        self.flush()
        owners = self._read(decode_owners, "running_owners")
        dead = as_json([one for one, _ in owners if one is not None and not self.is_live(one)])
        return self._some_runs("orphans", limit, owners=dead)

    def _some_runs(self, name: str, limit: int, **params: object) -> list[RunRecord]:
        """Rows fresh from the file, after a flush: they are the truth for the working set too."""
        found = at_most(limit, lambda most: self._read(decode_runs, name, limit=most, **params))
        for run in found:
            self._runs[run.run_id] = run
            self._touched[run.run_id] = None
        return found

    def finished_before(self, at: int, limit: int) -> list[str]:
        self.flush()
        return self._read(decode_ids, "finished_before", at=at, limit=limit)

    # --- steps ---

    def step(self, run_id: str, generation: int, path: str) -> StepRecord | None:
        key = (run_id, generation, path)
        try:
            return self._steps[key]
        except KeyError:
            pass
        wait = self._waits.get(run_id, {}).get(path)
        if wait is not None and wait.generation == generation:
            return wait
        found = self._read(decode_steps, "step", run_id=run_id, generation=generation, path=path)
        step = self._steps[key] = found[0] if found else None
        return step

    def steps(self, run_id: str, generation: int) -> list[StepRecord]:
        self.flush()
        try:
            return self._read(decode_steps, "steps", run_id=run_id, generation=generation)
        except sqlite3.DataError:
            found = steps_in_parts(self._sql, run_id, generation)
            return [one for one in found if one.generation == generation]

    def retrying_steps(self, run_id: str, generation: int) -> list[StepRecord]:
        self.flush()
        return self._read(decode_steps, "retrying_steps", run_id=run_id, generation=generation)

    def add_step(self, step: StepRecord) -> None:
        key = (step.run_id, step.generation, step.path)
        if self._steps.get(key) is not None:
            raise ValueError(f"second checkpoint of {step.path!r} in run {step.run_id!r}")
        self._steps[key] = self._added_steps[key] = step

    def put_step(self, step: StepRecord) -> None:
        key = (step.run_id, step.generation, step.path)
        if key in self._added_steps:
            self._added_steps[key] = step
        elif key not in self._stored_steps:
            self._put_stored(key, step)
        self._steps[key] = step

    def _put_stored(self, key: StepKey, step: StepRecord) -> None:
        """A row that is in the file is changed; one that was never looked at may have to be made."""
        old = self._steps.get(key) or self._waits.get(step.run_id, {}).get(step.path)
        if old is not None and old.generation == step.generation and key not in self._put_steps:
            self._stored_steps[key] = old
        else:
            self._put_steps[key] = step

    def supersede_step(self, step: StepRecord) -> None:
        self.flush()
        key = {"run_id": step.run_id, "generation": step.generation, "path": step.path}
        self._sql.run("supersede_step", key)
        self._steps[step.run_id, step.generation, step.path] = None
        self._waits.pop(step.run_id, None)

    def delete_steps_before(self, run_id: str, generation: int) -> None:
        # The first generation has none before it, and most runs never have a second.
        if generation > 0:
            self._past_generations.append((run_id, generation))

    # --- watchers ---

    def watchers(self, run_id: str) -> list[WatcherRecord]:
        return list(self._watchers_of(run_id).values())

    def _watchers_of(self, run_id: str) -> dict[tuple[str, int], WatcherRecord]:
        rows = self._watchers.get(run_id)
        if rows is None:
            found = self._read(decode_watchers, "watchers", run_id=run_id)
            rows = self._watchers[run_id] = {(one.path, one.ix): one for one in found}
        return rows

    def watchers_on_run(self, run_id: str) -> list[WatcherRecord]:
        if run_id in self._unwatched:
            return []
        stored = self._stored_on_run.get(run_id)
        if stored is None:
            stored = self._read(decode_watchers, "watchers_on_run", run_id=run_id)
            self._stored_on_run[run_id] = stored
        added = self._added_on_run.get(run_id)
        if not stored and not added:
            return []
        gone = self._gone_watchers
        found = [one for one in stored if (one.run_id, one.path, one.ix) not in gone]
        found.extend(added.values() if added else ())
        return sorted(found, key=lambda one: (one.opened_at, one.run_id, one.path, one.ix))

    def due_watchers(self, limit: int) -> list[WatcherRecord]:
        self.flush()
        due = self._read(decode_watchers, "due_watchers", now=self.now, limit=limit)
        self._load_around({one.run_id for one in due})
        return due

    def next_deadline(self) -> int | None:
        self.flush()
        found = [at for at in self._sql.row("next_deadline") if at is not None]
        return min(found, default=None)

    def add_watcher(self, watcher: WatcherRecord) -> None:
        key = (watcher.run_id, watcher.path, watcher.ix)
        rows = self._watchers_of(watcher.run_id)
        if (watcher.path, watcher.ix) in rows:
            self._remove_watcher(rows[watcher.path, watcher.ix])
        rows[watcher.path, watcher.ix] = watcher
        self._added_watchers[key] = watcher
        if watcher.kind == "run":
            self._added_on_run.setdefault(watcher.target, {})[key] = watcher
            self._unwatched.discard(watcher.target)

    def delete_watchers(self, run_id: str, path: str | None = None) -> None:
        rows = self._watchers_of(run_id)
        for at in [at for at in rows if path is None or at[0] == path]:
            self._remove_watcher(rows.pop(at))

    def _remove_watcher(self, watcher: WatcherRecord) -> None:
        key = (watcher.run_id, watcher.path, watcher.ix)
        if self._added_watchers.pop(key, None) is None:
            self._gone_watchers[key] = None
        elif watcher.kind == "run":
            self._added_on_run[watcher.target].pop(key, None)

    # --- buffered signals ---

    def signals(self, run_id: str) -> list[SignalRecord]:
        rows = self._signals_of(run_id)
        if len(rows) < 2:
            return list(rows.values())
        return sorted(rows.values(), key=lambda one: one.position)

    def _signals_of(self, run_id: str) -> dict[str, SignalRecord]:
        rows = self._signals.get(run_id)
        if rows is None:
            found = self._read(decode_signals, "signals", run_id=run_id)
            rows = self._signals[run_id] = {one.signal_id: one for one in found}
            self._touched[run_id] = None
        return rows

    def add_signal(self, signal: SignalRecord) -> None:
        if signal.signal_id in self._added_signals:  # the unique index knows those of other batches
            raise ValueError(f"second signal of the id {signal.signal_id!r}")
        self._signals_of(signal.run_id)[signal.signal_id] = signal
        self._added_signals[signal.signal_id] = signal
        self._touched[signal.run_id] = None

    def delete_signal(self, signal: SignalRecord) -> None:
        self._signals_of(signal.run_id).pop(signal.signal_id, None)
        if self._added_signals.pop(signal.signal_id, None) is None:
            self._gone_signals[signal.signal_id] = None

    def expired_signals(self, limit: int) -> list[SignalRecord]:
        self.flush()
        expired = self._read(decode_signals, "expired_signals", now=self.now, limit=limit)
        self._load_around({one.run_id for one in expired})
        return expired

    # --- keys, ledger, dead letters ---

    def key(self, scope: str, key: str) -> KeyRecord | None:
        at = (scope, key)
        try:
            return self._keys[at]
        except KeyError:
            pass
        found = self._read(decode_keys, "key", scope=scope, key=key)
        record = self._keys[at] = found[0] if found else None
        return record

    def add_key(self, key: KeyRecord) -> None:
        self._keys[key.scope, key.key] = key
        self._added_keys.append(key)

    def delete_key(self, scope: str, key: str) -> None:
        if self.key(scope, key) is None:
            return
        self.flush()  # it may have been added by this very batch
        self._sql.run("delete_key", {"scope": scope, "key": key})
        self._keys[scope, key] = None

    def append_event(
        self,
        type: str,
        payload: str,
        event_id: str | None,
        entity_type: str | None,
        entity_id: str | None,
        root_id: str | None = None,
        depth: int = 0,
        caused_by: str | None = None,
    ) -> None:
        position = self._position
        if position is None:
            position = self._sql.row("last_position")[0]
        self._position = position = position + 1
        now = self.now
        if event_id is None:
            event_id = self._ids.ulid(now)
        if root_id is None and caused_by is None and not depth:
            self._plain_events += (position, event_id, type, entity_type, entity_id, payload, now)
        else:
            cause = (caused_by, root_id, depth)
            self._caused_events += (position, event_id, type, entity_type, entity_id, payload)
            self._caused_events += (*cause, now)

    def dead_letter(self, dead_letter_id: str) -> DeadLetterRecord | None:
        try:
            return self._letters[dead_letter_id]
        except KeyError:
            pass
        found = self._read(decode_letters, "dead_letter", dead_letter_id=dead_letter_id)
        letter = self._letters[dead_letter_id] = found[0] if found else None
        return letter

    def dead_letters(self, run_id: str) -> list[DeadLetterRecord]:
        self.flush()
        found = self._read(decode_letters, "dead_letters", run_id=run_id)
        return sorted(found, key=lambda one: (one.received_at, one.dead_letter_id))

    def add_dead_letter(self, letter: DeadLetterRecord) -> None:
        self._letters[letter.dead_letter_id] = letter
        self._added_letters[letter.dead_letter_id] = letter

    def delete_dead_letter(self, dead_letter_id: str) -> None:
        self._letters[dead_letter_id] = None
        self._added_letters.pop(dead_letter_id, None)
        self._gone_letters[dead_letter_id] = None

    # --- workers and catalogue ---

    def workers(self) -> list[str]:
        return self._read(decode_ids, "workers")

    def is_live(self, worker_id: str) -> bool:
        live = self._live.get(worker_id)
        if live is None:
            row = self._sql.row("worker", {"worker_id": worker_id})
            live = row is not None and self._liveness.is_live(worker_id, row[0], self.now)
            if row is not None and not live:
                self.delete_worker(worker_id)
            self._live[worker_id] = live
        return live

    def put_worker(self, worker: WorkerRecord) -> None:
        if worker.worker_id == self.worker_id:
            self._liveness.hold(worker.worker_id)
        self._sql.run("put_worker", asdict(worker))
        self._live.pop(worker.worker_id, None)
        self.ended_workers.discard(worker.worker_id)

    def delete_worker(self, worker_id: str) -> None:
        self._sql.run("delete_worker", {"worker_id": worker_id})
        self._live[worker_id] = False
        self.ended_workers.add(worker_id)

    def workflow(self, name: str, version: int) -> WorkflowRecord | None:
        at = (name, version)
        try:
            return self._workflows[at]
        except KeyError:
            pass
        line_at = {"name": name, "version": version}
        found = self._sql.records(decode_workflows, "workflow", line_at)
        line = self._workflows[at] = found[0] if found else None
        return line

    def put_workflow(self, workflow: WorkflowRecord) -> bool:
        changed = self._sql.run("put_workflow", asdict(workflow)) > 0
        if changed:
            self._workflows.pop((workflow.name, workflow.version), None)
        return changed

    # --- writing ---

    def flush(self) -> None:
        """Write the difference between the working set and the file; in each table, what goes goes first."""
        if self._deleted_runs:
            self._flush_deleted()
        self._flush_runs()
        self._flush_steps()
        self._flush_waits()
        self._flush_facts()

    def _flush_deleted(self) -> None:
        run_ids = {"run_ids": as_json(list(self._deleted_runs))}
        for name in _deletions_of_runs:
            self._sql.run(name, run_ids)
        self._deleted_runs.clear()

    def _flush_runs(self) -> None:
        sql = self._sql
        if self._stored_runs:
            changes = [
                (old, run)
                for run_id, old in self._stored_runs.items()
                if (run := self._runs[run_id]) is not None
            ]
            renewed = shapes.write_changed(sql, changes, *_changes_of_runs)
            if renewed:
                self._rewrite(renewed)
            self._stored_runs.clear()
        if self._new_runs:
            born = [self._runs[run_id] for run_id in self._new_runs]
            shapes.write_new(sql, born, shapes.insert_plain_runs, shapes.insert_runs)
            self._new_runs.clear()

    def _rewrite(self, runs: list[RunRecord]) -> None:
        """Runs that continued as another: written anew from end to end."""
        run_ids = [run.run_id for run in runs]
        self._sql.run("forget_runs", {"run_ids": as_json(run_ids)})
        shapes.insert_runs.write(self._sql, runs)
        for run_id in run_ids:
            self._waits.pop(run_id, None)

    def _flush_steps(self) -> None:
        sql = self._sql
        if self._added_steps:
            shapes.write_new(sql, self._added_steps.values(), *_new_steps)
            self._added_steps.clear()
        if self._stored_steps:
            decided = [(old, self._steps[key]) for key, old in self._stored_steps.items()]
            shapes.put_steps.write(sql, shapes.write_changed(sql, decided, shapes.decide_waits))
            self._stored_steps.clear()
        if self._put_steps:
            shapes.put_steps.write(sql, list(self._put_steps.values()))
            self._put_steps.clear()
        if self._past_generations:
            sql.run("delete_steps_before", {"before": as_json(self._past_generations)})
            self._past_generations.clear()

    def _flush_waits(self) -> None:
        sql = self._sql
        if self._gone_watchers:
            shapes.delete_watchers.write(sql, list(self._gone_watchers))
            self._gone_watchers.clear()
        if self._added_watchers:
            shapes.insert_watchers.write(sql, list(self._added_watchers.values()))
            self._added_watchers.clear()
        # What the file says about waiting for runs has just changed.
        self._stored_on_run.clear()
        self._added_on_run.clear()
        if self._gone_signals:
            sql.run("delete_signals", {"signal_ids": as_json(list(self._gone_signals))})
            self._gone_signals.clear()
        if self._added_signals:
            shapes.insert_signals.write(sql, list(self._added_signals.values()))
            self._added_signals.clear()

    def _flush_facts(self) -> None:
        sql = self._sql
        if self._added_keys:
            shapes.insert_keys.write(sql, self._added_keys)
            self._added_keys.clear()
        if self._plain_events:
            shapes.insert_plain_events.write_flat(sql, self._plain_events)
            self._plain_events.clear()
        if self._caused_events:
            shapes.insert_events.write_flat(sql, self._caused_events)
            self._caused_events.clear()
        if self._gone_letters:
            sql.run("delete_dead_letters", {"dead_letter_ids": as_json(list(self._gone_letters))})
            self._gone_letters.clear()
        if self._added_letters:
            shapes.insert_dead_letters.write(sql, list(self._added_letters.values()))
            self._added_letters.clear()

    def remember(self) -> None:
        """The batch is committed: leave to the next one what is worth keeping."""
        self._remembered.position = self._position
        self._remembered.decided(self._steps.values())
        self._remembered.trim(self._touched)


_changes_of_runs = (shapes.end_runs, shapes.move_runs, shapes.change_runs)
_new_steps = (shapes.insert_plain_steps, shapes.insert_open_waits, shapes.insert_steps)

_deletions_of_runs = (
    "forget_runs",
    "delete_steps_of",
    "delete_watchers_of",
    "delete_signals_of",
    "delete_keys_of",
    "delete_dead_letters_of",
)
