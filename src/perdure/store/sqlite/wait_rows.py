"""Watchers and buffered signals: what runs wait for, and what came while nobody waited.

Both come and go quickly, and those that do so within one batch are never written. Of a run either
all its watchers are known or none, and so with its signals: an empty dict is an answer. Who waits
for a run, a topic or a queue is seen from the other side: those that the file has and that are not
gone, and those that this batch added.
"""

from perdure.model.records import (
    EventRecord,
    SignalRecord,
    WatcherRecord,
    can_end,
    entity_text,
)
from perdure.store.decoding import decode_signals, decode_watchers
from perdure.store.sqlite import shapes
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.statements import Statements, as_json, decode_places

_by_target = ("run", "topic", "queue")

WatcherKey = tuple[str, str, int]  # run_id, path, ix


class WaitRows(LoadedRows):
    """The watchers and buffered signals of one batch."""

    def __init__(self, sql: Statements, remembered: Remembered) -> None:
        super().__init__(sql, remembered)
        self._added_watchers: dict[WatcherKey, WatcherRecord] = {}
        self._gone_watchers: dict[WatcherKey, None] = {}
        # By kind and target, those on runs, topics and queues.
        self._added_on: dict[tuple[str, str], dict[WatcherKey, WatcherRecord]] = {}
        self._watched = remembered.watched
        self._doubtful = remembered.doubtful

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
        return self._still_there(stored, ("run", run_id))

    def _still_there(self, stored: list[WatcherRecord], on: tuple[str, str]) -> list[WatcherRecord]:
        """Of those that the file has, who still waits; and who does since this batch; longest waiting first."""
        added = self._added_on.get(on)
        if not stored and not added:
            return []
        gone = self._gone_watchers
        found = [one for one in stored if (one.run_id, one.path, one.ix) not in gone]
        found.extend(added.values() if added else ())
        return sorted(found, key=lambda one: (one.opened_at, one.run_id, one.path, one.ix))

    def is_watched(self, kind: str, target: str) -> bool:
        on = (kind, target)
        watched = self._watched.get(on)
        if watched is None or (watched and on in self._doubtful):
            watched = self._watched[on] = bool(self._added_on.get(on)) or self._is_in_file(on)
            self._doubtful.discard(on)
        return watched

    def _is_in_file(self, on: tuple[str, str]) -> bool:
        kind, target = on
        limit = 1 + len(self._gone_watchers)  # as many more as may be gone by now
        params = {"kind": kind, "target": target, "limit": limit}
        found = decode_places(self._sql.row("places_watched", params)[0])
        return any(one not in self._gone_watchers for one in found)

    def topic_watchers(self, event: EventRecord, limit: int) -> list[WatcherRecord]:
        entity = entity_text(event.entity_type, event.entity_id)
        stored = self._read(
            decode_watchers,
            "topic_watchers",
            topic=event.type,
            entity=entity,
            position=event.position,
            recorded_at=event.recorded_at,
            limit=limit + len(self._gone_watchers),  # as many more as may be gone by now
        )
        # The file says of its own that they can; those of this batch nobody has asked.
        there = self._still_there(stored, ("topic", event.type))
        found = [one for one in there if can_end(one, event)][:limit]
        if len(found) > 1:
            self._load_around({one.run_id for one in found})
        return found

    def queue_watcher(self, queue: str) -> WatcherRecord | None:
        limit = 1 + len(self._gone_watchers)
        stored = self._read(
            decode_watchers, "queue_watchers", queue=queue, now=self.now, limit=limit
        )
        for one in self._still_there(stored, ("queue", queue)):
            if one.deadline_at is None or self.now <= one.deadline_at:
                return one
        return None

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
        if watcher.kind in _by_target:
            on = (watcher.kind, watcher.target)
            self._added_on.setdefault(on, {})[key] = watcher
            self._watched[on] = True
            if watcher.kind == "run":
                self._unwatched.discard(watcher.target)

    def delete_watchers(self, run_id: str, path: str | None = None) -> None:
        rows = self._watchers_of(run_id)
        for at in [at for at in rows if path is None or at[0] == path]:
            self._remove_watcher(rows.pop(at))

    def _remove_watcher(self, watcher: WatcherRecord) -> None:
        key = (watcher.run_id, watcher.path, watcher.ix)
        if self._added_watchers.pop(key, None) is None:
            self._gone_watchers[key] = None
        elif watcher.kind in _by_target:
            self._added_on[watcher.kind, watcher.target].pop(key, None)
        if self._watched.get((watcher.kind, watcher.target)):
            self._doubtful.add((watcher.kind, watcher.target))

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
            added = self._added_watchers.values()
            shapes.write_new(sql, added, shapes.insert_plain_watchers, shapes.insert_watchers)
            self._added_watchers.clear()
        # What the file says about waiting for runs has just changed.
        self._stored_on_run.clear()
        self._added_on.clear()
        if self._gone_signals:
            sql.run("delete_signals", {"signal_ids": as_json(list(self._gone_signals))})
            self._gone_signals.clear()
        if self._added_signals:
            shapes.insert_signals.write(sql, list(self._added_signals.values()))
            self._added_signals.clear()
