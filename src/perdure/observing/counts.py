"""Counting: from what was written, and what became of it, to numbers.

Most is told by the one writer of the process, of each op with its answer and its wakes: so what happened is counted
where it was committed, once, however many processes there are and whoever holds the run. Steps and waits of a turn are
told by the run itself, which knows its workflow. Times are those that the store has recorded.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from perdure.model import ops
from perdure.model.outcomes import Advanced, Claimed, Counted, Fired, Started, Wake
from perdure.model.records import Completion
from perdure.observing import metrics
from perdure.observing.harmless import harmless
from perdure.observing.metrics import Metric, Spread, Sums
from perdure.store.base import Applied

_waits: Final = frozenset({"wait", "sleep"})
_steps: Final = frozenset({"step", "act"})


class Counts:
    """The numbers of one app, for as long as the app is there."""

    def __init__(self) -> None:
        self.sums: dict[str, Sums] = {}
        self.spreads: dict[str, Spread] = {}
        self.runs_started = self._sums(metrics.RUNS_STARTED)
        self.runs_ended = self._sums(metrics.RUNS_ENDED)
        self.run_duration = self._spread(metrics.RUN_DURATION)
        self.runs_claimed = self._sums(metrics.RUNS_CLAIMED)
        self.runs_recovered = self._sums(metrics.RUNS_RECOVERED)
        self.steps = self._sums(metrics.STEPS)
        self.step_duration = self._spread(metrics.STEP_DURATION)
        self.waits_opened = self._sums(metrics.WAITS_OPENED)
        self.wait_duration = self._spread(metrics.WAIT_DURATION)
        self.batch_ops = self._spread(metrics.BATCH_OPS)
        self.commit_duration = self._spread(metrics.COMMIT_DURATION)
        self.batches_failed = self._sums(metrics.BATCHES_FAILED)
        self.hints = self._sums(metrics.HINTS)
        self.timers_fired = self._sums(metrics.TIMERS_FIRED)
        self.timer_lateness = self._spread(metrics.TIMER_LATENESS)
        self.consumer_events = self._sums(metrics.CONSUMER_EVENTS)
        self.consumer_duration = self._spread(metrics.CONSUMER_DURATION)

    def _sums(self, metric: Metric) -> Sums:
        return self.sums.setdefault(metric.name, Sums(metric))

    def _spread(self, metric: Metric) -> Spread:
        return self.spreads.setdefault(metric.name, Spread(metric))

    # --- told by the writer ---

    @harmless
    def committed(self, size: int, took_s: float) -> None:
        """A batch of so many ops was committed."""
        self.batch_ops.add(size)
        self.commit_duration.add(took_s)

    @harmless
    def answered(self, op: ops.Op[Any], answer: Applied) -> None:
        """An op was committed, with this answer."""
        count = _counted.get(type(op))
        if count is not None:
            count(self, answer.outcome)
        for wake in answer.wakes:
            self._woken(wake)

    def _woken(self, wake: Wake) -> None:
        if wake.completion is not None:
            self._ended(wake.completion, wake.completion.by)
        if wake.made is not None:
            self.runs_started.add(wake.made)
        if wake.kind == "claimed":
            self.runs_claimed.add()
        run = wake.run
        if run is not None:
            self.runs_ended.add(run.workflow, run.status)
            took_us = (run.finished_at or run.created_at) - run.created_at
            self.run_duration.add(took_us / 1_000_000, run.workflow, run.status)

    def _ended(self, done: Completion, by: str | None) -> None:
        if done.kind in _waits and by is not None:
            self.wait_duration.add(max(0, done.recorded_at - done.opened_at) / 1_000_000, by)

    def started(self, outcome: Any) -> None:
        """One that is born claimed is told by its answer alone."""
        if isinstance(outcome, Started) and outcome.created and outcome.run.owner is not None:
            self.runs_started.add(outcome.run.workflow)

    # --- told by runs ---

    @harmless
    def advanced(self, workflow: str, op: ops.TurnOp, outcome: Advanced) -> None:
        """A turn was committed: results of steps, waits that it opens, and those that ended on the spot."""
        for done in op.steps:
            if done.kind in _steps:
                self.steps.add(workflow, done.name, done.state)
                took_us = max(0, done.recorded_at - done.started_at)
                self.step_duration.add(took_us / 1_000_000, workflow, done.name)
        if isinstance(op, ops.Suspend) and op.waits:
            new = sum(not one.known for one in op.waits)
            if new:
                self.waits_opened.add(workflow, n=new)
            for done_ in outcome.completions:
                self._ended(done_, _winner(op.waits, done_))


def _winner(waits: Sequence[ops.Wait], done: Completion) -> str | None:
    for one in waits:
        if one.path == done.path and done.winner is not None:
            return one.on[done.winner].kind
    return None


def _with_start(counts: Counts, outcome: Any) -> None:
    if isinstance(outcome, tuple):
        counts.started(outcome[0])


def _claimed(counts: Counts, outcome: Any) -> None:
    if isinstance(outcome, Claimed) and outcome.runs:
        counts.runs_claimed.add(n=len(outcome.runs))


def _recovered(counts: Counts, outcome: Any) -> None:
    if isinstance(outcome, Counted) and outcome.count:
        counts.runs_recovered.add(n=outcome.count)


def _fired(counts: Counts, outcome: Any) -> None:
    if isinstance(outcome, Fired) and outcome.count:
        counts.timers_fired.add(n=outcome.count)


_counted: Final[dict[type, Callable[[Counts, Any], None]]] = {
    ops.StartRun: Counts.started,
    ops.SignalWithStart: _with_start,
    ops.ClaimRuns: _claimed,
    ops.Recover: _recovered,
    ops.FireTimers: _fired,
}
