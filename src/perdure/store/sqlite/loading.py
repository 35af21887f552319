"""What a batch knows of the file: rows in plain dicts by their keys, read by few calls.

They come in three ways: remembered from the batch before, loaded ahead for all ops at once
(`prefetch`), or one by one when a handler asks for what nobody foresaw (`_read`). Where a dict holds
None, the row was looked for and is not there. The dicts tell how things stand by now, for the parts
that derive from this one (run_rows.py and its neighbours) change them in place; what that makes
different from the file, each part keeps for its own tables. Only what is missing is loaded.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from perdure.model.ops import Op
from perdure.model.records import (
    DeadLetterRecord,
    KeyRecord,
    RunRecord,
    SignalRecord,
    StepRecord,
    WatcherRecord,
)
from perdure.store.decoding import (
    decode_cursors,
    decode_keys,
    decode_pairs,
    decode_runs,
    decode_signals,
    decode_steps,
    decode_watchers,
)
from perdure.store.prefetch import Wanted, wanted
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.statements import Statements, as_json
from perdure.store.tables import Tables

StepKey = tuple[str, int, str]  # run_id, generation, path: the living row

_Record = TypeVar("_Record")


class LoadedRows(Tables):
    """The rows that are known, on the writer's connection, inside its transaction."""

    def __init__(self, sql: Statements, remembered: Remembered) -> None:
        self._sql = sql

        # Shared with the batches before and after; the rest belongs to this one.
        self._runs = remembered.runs
        self._watchers = remembered.watchers
        self._signals = remembered.signals
        self._waits = remembered.waits
        self._unwatched = remembered.unwatched
        self._cursors = remembered.cursors
        self._streams = remembered.streams
        self._workflows = remembered.workflows
        self._channels = remembered.channels
        self._pools = remembered.pools

        self._touched: dict[str, None] = {}  # runs that may not be worth remembering
        self._deleted_runs: dict[str, None] = {}  # that the file still has
        self._children: dict[str, list[str]] = {}
        self._steps: dict[StepKey, StepRecord | None] = {}
        self._stored_on_run: dict[str, list[WatcherRecord]] = {}  # as the file has them
        self._keys: dict[tuple[str, str], KeyRecord | None] = {}
        self._letters: dict[str, DeadLetterRecord | None] = {}

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
        want.seeing = {one for one in want.seeing if one not in self._cursors} - self._unwatched
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
        runs, watchers, signals, open_steps, steps, keys, on_run, children, cursors = self._sql.row(
            "prefetch",
            {
                "runs": as_json(list(want.runs)),
                "inside": as_json(list(want.inside)),
                "targets": as_json(list(want.targets)),
                "waits": as_json(list(want.waits)),
                "keys": as_json(list(want.keys)),
                "parents": as_json(list(want.parents)),
                "seeing": as_json(list(want.seeing)),
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
        self._cursors.update((run_id, {}) for run_id in want.seeing)
        for one in decode_cursors(cursors):
            place = (one.branch, one.topic, one.entity, one.filter)
            self._cursors[one.run_id][place] = one

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
        self, decode: Callable[[str], list[_Record]], name: str, /, **params: object
    ) -> list[_Record]:
        if self._deleted_runs:
            self._flush_deleted()
        return self._sql.records(decode, name, params)

    @abstractmethod
    def _flush_deleted(self) -> None:
        """Take deleted runs out of the file with all they have, or reads would bring it back."""

    @abstractmethod
    def flush(self) -> None:
        """Write the difference, so that an index of the file can be asked."""
