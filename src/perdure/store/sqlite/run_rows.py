"""Runs: which are new, which differ from the file, which are deleted.

For a run that changed, the row as the file has it is kept beside the new one: the difference says
which statement can tell it (shapes.py), and a run that changes ten times is written once. Runs by
status, age or owner only an index can find, so those questions flush first and take the file's rows.
"""

from collections.abc import Iterable

from perdure.model.records import RunRecord
from perdure.model.status import LIVE
from perdure.store.decoding import decode_ids, decode_pairs, decode_runs
from perdure.store.sqlite import shapes
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.remembered import Remembered, chars_max
from perdure.store.sqlite.statements import Statements, as_json, at_most, decode_owners

_changes_of_runs = (
    shapes.end_runs,
    shapes.move_runs,
    shapes.ready_runs_move,
    shapes.change_runs,
)

_deletions_of_runs = (
    "forget_runs",
    "delete_steps_of",
    "delete_watchers_of",
    "delete_signals_of",
    "delete_cursors_of",
    "delete_streams_of",
    "delete_stream_items_of",
    "delete_keys_of",
    "delete_dead_letters_of",
)


class RunRows(LoadedRows):
    """The runs of one batch."""

    def __init__(self, sql: Statements, remembered: Remembered) -> None:
        super().__init__(sql, remembered)
        self._stored_runs: dict[str, RunRecord] = {}  # as the file has them, for those that changed
        self._new_runs: dict[str, None] = {}
        self._new_children: dict[str, list[str]] = {}

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
        self._cursors[run_id] = {}
        self._streams[run_id] = {}
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

    def ready_runs(
        self, workflows: Iterable[tuple[str, int]], pools: Iterable[str] | None, limit: int
    ) -> list[RunRecord]:
        self.flush()
        return self._some_runs(
            "ready_runs", limit, now=self.now, places=self._places(workflows, pools)
        )

    def next_ready_at(
        self, workflows: Iterable[tuple[str, int]], pools: Iterable[str] | None
    ) -> int | None:
        self.flush()
        known = {"now": self.now, "places": self._places(workflows, pools)}
        at: int | None = self._sql.row("next_ready_at", known)[0]
        return at

    def _places(self, workflows: Iterable[tuple[str, int]], pools: Iterable[str] | None) -> str:
        """The parts of the index of ready runs that count: pool, workflow, version."""
        served = self._read(decode_ids, "ready_pools") if pools is None else dict.fromkeys(pools)
        known = dict.fromkeys(workflows)
        return as_json([(pool, name, version) for pool in served for name, version in known])

    def started_under(self, root_id: str, limit: int) -> int:
        self.flush()
        count: int = self._sql.row("started_under", {"root_id": root_id, "limit": limit})[0]
        return count

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
        """Runs that continued as another, or took another input: written anew from end to end."""
        run_ids = [run.run_id for run in runs]
        self._sql.run("forget_runs", {"run_ids": as_json(run_ids)})
        shapes.insert_runs.write(self._sql, runs)
        for run_id in run_ids:
            self._waits.pop(run_id, None)
