"""What runs wait for, and what came before they did: watchers and buffered signals."""

import heapq

from perdure.model.records import EventRecord, SignalRecord, WatcherRecord, can_end
from perdure.store.memory.rows import KeptRows

_indexed = ("run", "topic", "queue")


class WaitRows(KeptRows):
    """The watchers and the signals in the buffers."""

    # --- watchers ---

    def watchers(self, run_id: str) -> list[WatcherRecord]:
        return list(self.watchers_by_run.get(run_id, {}).values())

    def watchers_on_run(self, run_id: str) -> list[WatcherRecord]:
        return self._waiting_for("run", run_id)

    def _waiting_for(self, kind: str, target: str) -> list[WatcherRecord]:
        """Who waits for it, longest waiting first."""
        found = [
            self.watchers_by_run[waiter][path, ix]
            for waiter, path, ix in self.waiting_for.get((kind, target), ())
        ]
        return sorted(found, key=lambda one: (one.opened_at, one.run_id, one.path, one.ix))

    def is_watched(self, kind: str, target: str) -> bool:
        return bool(self.waiting_for.get((kind, target)))

    def topic_watchers(self, event: EventRecord, limit: int) -> list[WatcherRecord]:
        waiting = self._waiting_for("topic", event.type)
        return [one for one in waiting if can_end(one, event)][:limit]

    def queue_watcher(self, queue: str) -> WatcherRecord | None:
        for one in self._waiting_for("queue", queue):
            if one.deadline_at is None or self.now <= one.deadline_at:
                return one
        return None

    def due_watchers(self, limit: int) -> list[WatcherRecord]:
        due = (
            (one.deadline_at, one.run_id, one.path, one.ix, one)
            for one in self.all_watchers()
            if one.deadline_at is not None and one.deadline_at <= self.now and not one.held
        )
        return [row[-1] for row in heapq.nsmallest(limit, due)]

    def next_deadline(self) -> int | None:
        deadlines = [
            one.deadline_at
            for one in self.all_watchers()
            if one.deadline_at is not None and not one.held
        ]
        expiries = [
            one.expires_at
            for signals in self.signals_by_run.values()
            for one in signals.values()
            if one.expires_at is not None
        ]
        return min(deadlines + expiries, default=None)

    def add_watcher(self, watcher: WatcherRecord) -> None:
        self.watchers_by_run.setdefault(watcher.run_id, {})[watcher.path, watcher.ix] = watcher
        if watcher.kind in _indexed:
            at = (watcher.run_id, watcher.path, watcher.ix)
            self.waiting_for[watcher.kind, watcher.target].add(at)

    def delete_watchers(self, run_id: str, path: str | None = None) -> None:
        rows = self.watchers_by_run.get(run_id, {})
        for at in [at for at in rows if path is None or at[0] == path]:
            watcher = rows.pop(at)
            if watcher.kind in _indexed:
                self.waiting_for[watcher.kind, watcher.target].discard((run_id, *at))
        if not rows:
            self.watchers_by_run.pop(run_id, None)

    # --- buffered signals ---

    def signals(self, run_id: str) -> list[SignalRecord]:
        return sorted(self.signals_by_run.get(run_id, {}).values(), key=lambda one: one.position)

    def add_signal(self, signal: SignalRecord) -> None:
        if signal.signal_id in self.signal_ids:
            raise ValueError(f"second signal of the id {signal.signal_id!r}")
        self.signal_ids.add(signal.signal_id)
        self.signals_by_run.setdefault(signal.run_id, {})[signal.signal_id] = signal

    def delete_signal(self, signal: SignalRecord) -> None:
        rows = self.signals_by_run.get(signal.run_id, {})
        rows.pop(signal.signal_id, None)
        self.signal_ids.discard(signal.signal_id)
        if not rows:
            self.signals_by_run.pop(signal.run_id, None)

    def expired_signals(self, limit: int) -> list[SignalRecord]:
        expired = (
            (one.expires_at, one.position, one)
            for signals in self.signals_by_run.values()
            for one in signals.values()
            if one.expires_at is not None and one.expires_at < self.now
        )
        return [row[-1] for row in heapq.nsmallest(limit, expired)]
