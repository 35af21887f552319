"""What this process knows of the store, and as of which version: nothing here is trusted without being compared.

A run is known as a slice: its row, and as much of what belongs to it as was looked at. Its version is the `change` of
its row, which moves with everything that a slice can hold, also with those who wait for the run to end and with every
run that it starts. Plain results of steps are not in it: only the owner asks for them, and they never change.

Topics, queues, the catalogue and the few rows of readers have a version in a table of their own (`units`). That of a
topic moves when somebody opens a wait on it, so that an emitter knows whether it has seen all who wait.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from perdure.model.records import (
    ChannelRecord,
    CursorRecord,
    EventRecord,
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
# Topics of which something is remembered. Names made from data are many: then all are forgotten. So with the versions
# of all that has a name.
names_max: Final = 4096
units_max: Final = 4 * names_max

CursorPlace = tuple[str, str, str, str]  # branch, topic, entity, filter
Unit = tuple[str, str]  # kind, name

CATALOGUE: Final[Unit] = ("catalogue", "")
FAN_OUTS: Final[Unit] = ("fan_outs", "")
LEDGER: Final[Unit] = ("ledger", "")  # its oldest end: retention, and who begins there

NEW: Final = 0  # the version of a run that is not in the store yet


class Slice:
    """A run, and what is known of it: a part that is None was not looked at."""

    __slots__ = ("change", "cursors", "on_run", "run", "signals", "steps", "streams", "watchers")

    def __init__(self, run: RunRecord, change: int) -> None:
        self.run = run
        self.change = change
        # Known together ("inside"), or not at all.
        self.watchers: dict[tuple[str, int], WatcherRecord] | None = None
        self.signals: dict[str, SignalRecord] | None = None
        self.cursors: dict[CursorPlace, CursorRecord] | None = None
        # Living rows by path: with the inside all that are open or to be tried again.
        self.steps: dict[str, StepRecord] = {}
        self.on_run: dict[tuple[str, str, int], WatcherRecord] | None = None
        # Never changed in place. Its version does not move with them: see stream_rows.py.
        self.streams: dict[str, StreamRecord] | None = None

    def copy(self) -> "Slice":
        twin = Slice(self.run, self.change)
        twin.watchers = None if self.watchers is None else self.watchers.copy()
        twin.signals = None if self.signals is None else self.signals.copy()
        twin.cursors = None if self.cursors is None else self.cursors.copy()
        twin.steps = self.steps.copy()
        twin.on_run = None if self.on_run is None else self.on_run.copy()
        twin.streams = self.streams
        return twin

    @classmethod
    def born(cls, run: RunRecord) -> "Slice":
        """A run that is about to be made: there is nothing about it that is not known."""
        made = cls(run, NEW)
        made.watchers, made.signals, made.cursors, made.on_run = {}, {}, {}, {}
        made.streams = {}
        return made


class Topic:
    """Who waits for a topic as of a version of its unit, and where its newest event is."""

    __slots__ = ("newest", "version", "watched")

    def __init__(self, version: int, watched: bool, newest: int) -> None:
        self.version = version
        self.watched = watched  # perhaps no longer; False is certain
        self.newest = newest


class Known:
    """Rows as the last look, or the last commit of this process, left them."""

    def __init__(self) -> None:
        self.runs: dict[str, Slice] = {}
        self.topics: dict[str, Topic] = {}
        self.units: dict[Unit, int] = {}
        self.workflows: dict[tuple[str, int], WorkflowRecord | None] = {}
        self.channels: dict[tuple[str, str], ChannelRecord | None] = {}
        self.pools: dict[str, PoolRecord | None] = {}
        self.fan_outs: list[int] = []
        # The events there, as far as they were seen: an event never changes, and while it stands there it stays.
        self.fan_out_events: dict[int, EventRecord] = {}
        self.seq = 0  # greater than any number in what is known
        self.head = 0  # the newest event that was heard of

    def forget(self) -> None:
        """Trust nothing any more; the numbers only go up."""
        self.runs.clear()
        self.topics.clear()
        self.units.clear()
        self.workflows.clear()
        self.channels.clear()
        self.pools.clear()
        self.put_fan_outs([])

    def put_fan_outs(self, positions: list[int]) -> None:
        """The events that have more runs to resume."""
        self.fan_outs[:] = positions
        for gone in self.fan_out_events.keys() - set(positions):
            del self.fan_out_events[gone]

    def learn_run(self, found: Slice) -> Slice:
        """A slice that was just read: what is known of another version of it is worth nothing."""
        run_id = found.run.run_id
        known = self.runs.get(run_id)
        if known is None or known.change != found.change:
            self.runs[run_id] = found
            return found
        if known.watchers is None and found.watchers is not None:
            known.watchers, known.signals = found.watchers, found.signals
            known.cursors, known.steps = found.cursors, found.steps
        if known.on_run is None:
            known.on_run = found.on_run
        return known

    def learn_unit(self, unit: Unit, version: int) -> None:
        """The version of a unit; what was known as of another one goes.

        It is no smaller than any number given under it: whoever puts into a queue counts on from there.
        """
        self.seq = max(self.seq, version)
        if self.units.get(unit, version) == version:
            self.units[unit] = version
            return
        self.drop_unit(unit)
        self.units[unit] = version

    def drop_unit(self, unit: Unit) -> None:
        self.units.pop(unit, None)
        kind, name = unit
        if kind == "topic":
            self.topics.pop(name, None)
        elif kind == "pool":
            self.pools.pop(name, None)
        elif unit == CATALOGUE:
            self.workflows.clear()
            self.channels.clear()
        elif unit == FAN_OUTS:
            self.put_fan_outs([])

    def trim(self, touched: Iterable[str]) -> None:
        """Drop what is at rest or too large among the runs a batch touched, and the oldest over the bound."""
        runs = self.runs
        for run_id in touched:
            kept = runs.get(run_id)
            if kept is not None and _is_at_rest(kept.run, kept):
                del runs[run_id]
        for run_id in list(islice(runs, max(0, len(runs) - runs_max))):
            del runs[run_id]
        if max(len(self.topics), len(self.channels)) > names_max:
            for unit in [one for one in self.units if one[0] == "topic"]:
                self.drop_unit(unit)
            self.drop_unit(CATALOGUE)
        if len(self.pools) > names_max:
            for name in list(self.pools):
                self.drop_unit(("pool", name))
        if len(self.units) > units_max:
            for unit in list(self.units):
                self.drop_unit(unit)


def _is_at_rest(run: RunRecord, kept: Slice) -> bool:
    """Ended, or waiting or in line with nobody holding it: such are rows, and must not fill the memory. So with large
    ones."""
    if run.owner is None and (run.status != "ready" or run.line_at is not None):
        return True
    if len(run.input) + len(run.output or "") + len(run.published or "") > chars_max:
        return True
    signals = kept.signals or {}
    return len(signals) > signals_max or any(
        len(one.payload) > chars_max for one in signals.values()
    )
