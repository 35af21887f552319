"""What one batch learnt and the next may use: rows as the last commit of this process left them.

Worthless once another connection has committed anything. SQLite itself says when: `data_version`,
read inside the write transaction, moves with every such commit; it is the sign by which SQLite
keeps or drops its own page cache. So a batch of a process that has the file for itself reads
nothing that it has seen before, and processes that take turns read everything anew each time.

The working set of a batch changes these dicts in place. Whenever a transaction does not end in a
commit they are emptied.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from perdure.model.records import (
    ChannelRecord,
    CursorRecord,
    PoolRecord,
    RunRecord,
    SignalRecord,
    StepRecord,
    StreamRecord,
    WatcherRecord,
    WorkflowRecord,
)

runs_max: Final = 8192
# Runs with more than this are read again when needed; so are buffers with more or larger signals.
chars_max: Final = 4096
signals_max: Final = 256
# Topics and queues of which something is remembered. Names made from data are many: then all are forgotten.
names_max: Final = 4096


class Remembered:
    """Runs by id; the watchers, buffered signals, open waits and streams of some of them; the catalogue."""

    def __init__(self) -> None:
        self._data_version: int | None = None
        self.number = 0  # of the last commit
        self.position = 0  # of the last event
        self.runs: dict[str, RunRecord | None] = {}
        self.watchers: dict[str, dict[tuple[str, int], WatcherRecord]] = {}
        self.signals: dict[str, dict[str, SignalRecord]] = {}
        self.waits: dict[str, dict[str, StepRecord]] = {}
        # Runs seen from their birth on, that no run waits for: all there is about them is here.
        self.unwatched: set[str] = set()
        self.cursors: dict[str, dict[tuple[str, str, str, str], CursorRecord]] = {}
        self.streams: dict[str, dict[str, StreamRecord]] = {}
        self.workflows: dict[tuple[str, int], WorkflowRecord | None] = {}
        self.channels: dict[tuple[str, str], ChannelRecord | None] = {}
        self.pools: dict[str, PoolRecord | None] = {}
        # Of topics and queues: whether anybody waits (perhaps no longer, if doubtful), and where the newest event is.
        self.watched: dict[tuple[str, str], bool] = {}
        self.doubtful: set[tuple[str, str]] = set()
        self.last_of_topic: dict[str, int] = {}
        self.fan_outs: list[int] = []

    def holds(self, data_version: int) -> bool:
        """Whether all of this is still so. If not, it is forgotten."""
        if data_version == self._data_version:
            return True
        self.forget()
        self._data_version = data_version
        return False

    def begin(self, number: int, position: int, fan_outs: list[int]) -> None:
        """What the first batch after forgetting has read."""
        self.number = number
        self.position = position
        self.fan_outs[:] = fan_outs

    def forget(self) -> None:
        """Trust nothing: somebody else wrote, or the last transaction did not end in a commit."""
        self._data_version = None
        self.runs.clear()
        self.watchers.clear()
        self.signals.clear()
        self.waits.clear()
        self.unwatched.clear()
        self.cursors.clear()
        self.streams.clear()
        self.workflows.clear()
        self.pools.clear()
        self._forget_names()
        self.fan_outs.clear()

    def _forget_names(self) -> None:
        self.channels.clear()
        self.watched.clear()
        self.doubtful.clear()
        self.last_of_topic.clear()

    def decided(self, steps: Iterable[StepRecord | None]) -> None:
        """Keep the waits that are open after a batch, and drop those that it decided."""
        waits = self.waits
        for step in steps:
            if step is None:
                continue
            of_run = waits.get(step.run_id)
            if step.state == "open":
                if of_run is None:
                    of_run = waits[step.run_id] = {}
                of_run[step.path] = step
            elif of_run:
                of_run.pop(step.path, None)

    def trim(self, touched: Iterable[str]) -> None:
        """Drop what is at rest or too large among the runs a batch touched, and the oldest over the bound."""
        runs, signals = self.runs, self.signals
        for run_id in touched:
            run = runs.get(run_id)
            if run is not None and (
                # Ended, or waiting or in line with nobody holding it: such are rows, and must not fill the memory.
                (run.owner is None and (run.status != "ready" or run.line_at is not None))
                or _is_large(run)
            ):
                self.drop(run_id)
            elif (buffered := signals.get(run_id)) and _are_many(buffered):
                del signals[run_id]
                self.unwatched.discard(run_id)
        for run_id in list(islice(self.runs, max(0, len(self.runs) - runs_max))):
            self.drop(run_id)
        if max(len(self.channels), len(self.watched), len(self.last_of_topic)) > names_max:
            self._forget_names()
        if len(self.pools) > names_max:  # also those that were asked for and are not there
            self.pools.clear()

    def drop(self, run_id: str) -> None:
        """Forget one run."""
        self.runs.pop(run_id, None)
        self.watchers.pop(run_id, None)
        self.signals.pop(run_id, None)
        self.waits.pop(run_id, None)
        self.cursors.pop(run_id, None)
        self.streams.pop(run_id, None)
        self.unwatched.discard(run_id)


def _is_large(run: RunRecord) -> bool:
    return len(run.input) + len(run.output or "") + len(run.published or "") > chars_max


def _are_many(signals: dict[str, SignalRecord]) -> bool:
    if len(signals) > signals_max:
        return True
    return any(len(one.payload) > chars_max for one in signals.values())
