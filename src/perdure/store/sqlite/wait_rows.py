"""Watchers and buffered signals: what runs wait for, and what came while nobody waited.

Both come and go quickly, and those that do so within one batch are never written. Of a run either
all its watchers are known or none, and so with its signals: an empty dict is an answer. Who waits
for a run is seen from the other side: those that the file has and that are not gone, and those that
this batch added.
"""

from perdure.model.records import SignalRecord, WatcherRecord
from perdure.store.sqlite import shapes
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.statements import Statements, as_json, decode_signals, decode_watchers

WatcherKey = tuple[str, str, int]  # run_id, path, ix


class WaitRows(LoadedRows):
    """The watchers and buffered signals of one batch."""

    def __init__(self, sql: Statements, remembered: Remembered) -> None:
        super().__init__(sql, remembered)
        self._added_watchers: dict[WatcherKey, WatcherRecord] = {}
        self._gone_watchers: dict[WatcherKey, None] = {}
        self._added_on_run: dict[str, dict[WatcherKey, WatcherRecord]] = {}

        self._added_signals: dict[str, SignalRecord] = {}
        self._gone_signals: dict[str, None] = {}

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

    # --- writing ---

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
