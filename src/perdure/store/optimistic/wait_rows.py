"""Watchers and buffered signals: from the slices of their runs, and from the other side by an index.

Who waits for a run, a topic or a queue the store says; whether it still does its run's slice says, which the commit
compares. So a watcher may go without a word to those who wait on the same thing, and only who comes is told of: by the
version of the run or of the unit that it waits for.
"""

from collections.abc import Container, Iterable

from perdure.model.records import (
    EventRecord,
    SignalRecord,
    WatcherRecord,
    can_end,
    entity_text,
)
from perdure.store.optimistic.needs import Looks, Need
from perdure.store.optimistic.rows import LookedAt

_by_target = ("run", "topic", "queue")
# Of a queue: how many items, and how many who wait, are read at once.
queue_part = 64

WatcherKey = tuple[str, str, int]  # run_id, path, ix


class WaitRows(LookedAt):
    """The watchers and buffered signals of one batch."""

    def __init__(self, looks: Looks) -> None:
        super().__init__(looks)
        self._added_watchers: dict[WatcherKey, WatcherRecord] = {}
        self._gone_watchers: dict[WatcherKey, WatcherRecord] = {}
        # By kind and target, those on runs, topics and queues.
        self._added_on: dict[tuple[str, str], dict[WatcherKey, WatcherRecord]] = {}
        self._opened: set[str] = set()  # topics that somebody waits for since this batch
        self._doubtful: set[str] = set()  # topics that perhaps nobody waits for any more
        self.decides_time = False  # a deadline was found to have passed
        self._added_signals: dict[str, SignalRecord] = {}
        self._gone_signals: dict[str, SignalRecord] = {}

    # --- watchers ---

    def watchers(self, run_id: str) -> list[WatcherRecord]:
        kept = self._inside(run_id)
        return [] if kept is None or kept.watchers is None else list(kept.watchers.values())

    def watchers_on_run(self, run_id: str) -> list[WatcherRecord]:
        kept = self._slice(run_id)
        if kept is None:
            return []
        if kept.on_run is None:
            self.missing.add(("on_run", run_id))
            return []
        return self._still_there(kept.on_run.values())

    def _still_there(self, stored: Iterable[WatcherRecord]) -> list[WatcherRecord]:
        """Those of these who still wait, by the slices of their runs; longest waiting first."""
        found: dict[WatcherKey, WatcherRecord] = {}
        for one in stored:
            kept = self._inside(one.run_id)
            there = None if kept is None else (kept.watchers or {}).get((one.path, one.ix))
            # In its place this batch may have put one that watches for something else.
            if there is not None and (there.kind, there.target) == (one.kind, one.target):
                found[_key(one)] = there
        return sorted(found.values(), key=by_age)

    def is_watched(self, kind: str, target: str) -> bool:
        if self._added_on.get((kind, target)):
            return True
        if kind == "queue":
            return self.queue_watcher(target) is not None
        topic = self._known.topics.get(target)
        if topic is None:
            self.missing.add(("topic", target))
            return False
        self._rest_on(("topic", target))
        return topic.watched

    def topic_watchers(self, event: EventRecord, limit: int) -> list[WatcherRecord]:
        self._rest_on(("topic", event.type))
        added = self._added_on.get(("topic", event.type), {}).values()
        asked = limit
        while True:
            # The position is that of an event that is there, or greater than any.
            stored = self._answer(*watching(event, asked))
            there = self._still_there((*stored, *added))
            found = [one for one in there if can_end(one, event)]
            if len(found) >= limit or len(stored) < asked:
                break
            asked *= 2  # so many of them are gone by now
        if not found:
            self._doubtful.add(event.type)
        return found[:limit]

    def queue_watcher(self, queue: str) -> WatcherRecord | None:
        self._rest_on(("queue", queue))
        added = self._added_on.get(("queue", queue), {}).values()
        asked = queue_part
        while True:
            _, stored = self._answer("queue", queue, asked)
            waiting = (
                one
                for one in self._still_there((*stored, *added))
                if one.deadline_at is None or self.now <= one.deadline_at
            )
            first = next(waiting, None)
            # Beyond those that were read others may wait longer than one of this batch.
            if len(stored) < asked or (first and by_age(first) <= by_age(stored[-1])):
                return first
            asked *= 2

    def due_watchers(self, limit: int) -> list[WatcherRecord]:
        # One more than asked for, so that the next deadline is known as well.
        stored = self._first_of(limit + 1, self._is_due_there, "deadlines")
        mine = [one for one in self._added_watchers.values() if one.deadline_at and not one.held]
        due = [
            (one.deadline_at, one.run_id, one.path, one.ix, one)
            for one in (*stored, *mine)
            if (one.deadline_at or 0) <= self.now
        ]
        if due:
            self.decides_time = True
        return [row[-1] for row in sorted(due, key=lambda row: row[:-1])[:limit]]

    def _is_due_there(self, watcher: WatcherRecord) -> bool:
        # Of one that is not due nobody asks whether it is still there: its run is not to be read for that.
        return (watcher.deadline_at or 0) > self.now or self._is_there(watcher)

    def _is_there(self, watcher: WatcherRecord) -> bool:
        kept = self._inside(watcher.run_id)
        at = (watcher.path, watcher.ix)
        # One that this batch put in the same place is another.
        return kept is not None and (kept.watchers or {}).get(at) == watcher

    def next_deadline(self) -> int | None:
        found = [
            self._earliest("deadlines", self._gone_watchers),
            self._earliest("expiries", self._gone_signals),
        ]
        found += [one.deadline_at for one in self._added_watchers.values() if not one.held]
        found += [one.expires_at for one in self._added_signals.values()]
        return min((at for at in found if at is not None), default=None)

    def _earliest(self, kind: str, gone: Container[object]) -> int | None:
        """The first time of an index that is left. If all that were read are gone by now, more are read."""
        asked = max((one[1] for one in self._answers if one[0] == kind), default=queue_part)
        stored = self._answer(kind, asked)
        for one in stored:
            if _id(one) not in gone:
                return _due_at(one)
        if len(stored) < asked:
            return None
        self.missing.add((kind, 2 * asked))
        return None

    def add_watcher(self, watcher: WatcherRecord) -> None:
        mine = self._my_inside(watcher.run_id)
        assert mine.watchers is not None
        at = (watcher.path, watcher.ix)
        if at in mine.watchers:
            self._remove_watcher(mine.watchers[at])
        mine.watchers[at] = watcher
        key = _key(watcher)
        self._added_watchers[key] = watcher
        if watcher.kind in _by_target:
            self._added_on.setdefault((watcher.kind, watcher.target), {})[key] = watcher
        if watcher.kind == "topic":
            self._rest_on(("topic", watcher.target), bump=True)
            self._opened.add(watcher.target)
        elif watcher.kind == "queue":
            self._rest_on(("queue", watcher.target), bump=True)
        elif watcher.kind == "run" and self._slice(watcher.target) is not None:
            waited_for = self._mine(watcher.target)
            if waited_for.on_run is not None:
                waited_for.on_run[key] = watcher

    def delete_watchers(self, run_id: str, path: str | None = None) -> None:
        kept = self._inside(run_id)
        if kept is None or not kept.watchers:
            return
        going = [at for at in kept.watchers if path is None or at[0] == path]
        if going:
            rows = self._my_inside(run_id).watchers
            assert rows is not None
            for at in going:
                self._remove_watcher(rows.pop(at))

    def _remove_watcher(self, watcher: WatcherRecord) -> None:
        key = _key(watcher)
        if self._added_watchers.pop(key, None) is None:
            self._gone_watchers[key] = watcher
        elif watcher.kind in _by_target:
            self._added_on[watcher.kind, watcher.target].pop(key, None)

    def _forget_run(self, run_id: str) -> None:
        super()._forget_run(run_id)
        for one in [one for one in self._added_watchers.values() if one.run_id == run_id]:
            self._remove_watcher(one)
        for signal in [one for one in self._added_signals.values() if one.run_id == run_id]:
            del self._added_signals[signal.signal_id]

    # --- buffered signals ---

    def signals(self, run_id: str) -> list[SignalRecord]:
        kept = self._inside(run_id)
        if kept is None or not kept.signals:
            return []
        return sorted(kept.signals.values(), key=lambda one: one.position)

    def add_signal(self, signal: SignalRecord) -> None:
        mine = self._my_inside(signal.run_id)
        assert mine.signals is not None
        if signal.signal_id in self._added_signals:  # the unique index knows those of other batches
            raise ValueError(f"second signal of the id {signal.signal_id!r}")
        mine.signals[signal.signal_id] = signal
        self._added_signals[signal.signal_id] = signal

    def delete_signal(self, signal: SignalRecord) -> None:
        mine = self._my_inside(signal.run_id)
        assert mine.signals is not None
        mine.signals.pop(signal.signal_id, None)
        if self._added_signals.pop(signal.signal_id, None) is None:
            self._gone_signals[signal.signal_id] = signal

    def expired_signals(self, limit: int) -> list[SignalRecord]:
        stored = self._first_of(limit + 1, self._has_expired_there, "expiries")
        mine = [one for one in self._added_signals.values() if one.expires_at is not None]
        expired = [one for one in (*stored, *mine) if (one.expires_at or 0) < self.now]
        return sorted(expired, key=lambda one: (one.expires_at or 0, one.position))[:limit]

    def _has_expired_there(self, signal: SignalRecord) -> bool:
        return (signal.expires_at or 0) >= self.now or self._is_buffered(signal)

    def _is_buffered(self, signal: SignalRecord) -> bool:
        kept = self._inside(signal.run_id)
        return kept is not None and signal.signal_id in (kept.signals or ())


def watching(event: EventRecord, limit: int) -> Need:
    """Who waits for an event, longest first."""
    entity = entity_text(event.entity_type, event.entity_id)
    return "watching", event.type, entity, event.position, event.recorded_at, limit


def _key(watcher: WatcherRecord) -> WatcherKey:
    return watcher.run_id, watcher.path, watcher.ix


def by_age(watcher: WatcherRecord) -> tuple[int, str, str, int]:
    return watcher.opened_at, watcher.run_id, watcher.path, watcher.ix


def _id(row: WatcherRecord | SignalRecord) -> WatcherKey | str:
    return row.signal_id if isinstance(row, SignalRecord) else _key(row)


def _due_at(row: WatcherRecord | SignalRecord) -> int | None:
    return row.expires_at if isinstance(row, SignalRecord) else row.deadline_at
