"""Metrics: what is counted, and the numbers themselves, whoever is told of them.

The table below is all there is. A number is counted once, here; OpenTelemetry and Prometheus read it from here. What
tells the numbers of a metric apart are names from code (workflows, steps, consumers) and a few words of our own, never
data; and each metric has a bound of its own, over which what is new is counted as `other`.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from perdure.model import limits

Labels = tuple[str, ...]
OTHER: Final = "other"

# Seconds, from a commit on a fast disk to a wait of weeks.
_quick: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
_long: Final = (
    *(0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0),
    *(6 * 3_600.0, 86_400.0, 7 * 86_400.0, 30 * 86_400.0),
)
_counts: Final = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0)


class Metric(msgspec.Struct, frozen=True):
    """A line of the table. `buckets` are those of a histogram."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    says: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


RUNS_STARTED = Metric("perdure.runs.started", "counter", "{run}", "Runs made", ("workflow",))
RUNS_ENDED = Metric(
    "perdure.runs.ended", "counter", "{run}", "Runs that ended", ("workflow", "status")
)
RUN_DURATION = Metric(
    "perdure.run.duration",
    "histogram",
    "s",
    "From the start of a run to its end",
    ("workflow", "status"),
    _long,
)
RUNS_CLAIMED = Metric("perdure.runs.claimed", "counter", "{run}", "Runs that a worker has taken")
RUNS_RECOVERED = Metric(
    "perdure.runs.recovered", "counter", "{run}", "Runs taken back from dead workers, or healed"
)
STEPS = Metric(
    "perdure.steps",
    "counter",
    "{attempt}",
    "Attempts of steps that were recorded; `retrying` ones are tried again",
    ("workflow", "step", "outcome"),
)
STEP_DURATION = Metric(
    "perdure.step.duration",
    "histogram",
    "s",
    "How long an attempt of a step took",
    ("workflow", "step"),
    _quick,
)
WAITS_OPENED = Metric(
    "perdure.waits.opened", "counter", "{wait}", "Waits that were begun", ("workflow",)
)
WAIT_DURATION = Metric(
    "perdure.wait.duration",
    "histogram",
    "s",
    "How long a wait was open, by the kind of condition that ended it",
    ("by",),
    _long,
)
BATCH_OPS = Metric(
    "perdure.batch.ops", "histogram", "{op}", "Writes that were committed together", (), _counts
)
COMMIT_DURATION = Metric(
    "perdure.commit.duration", "histogram", "s", "How long the store took for a batch", (), _quick
)
BATCHES_FAILED = Metric(
    "perdure.batches.failed",
    "counter",
    "{batch}",
    "Batches that the store did not take, or of which it did not say so",
    ("how",),
)
HINTS = Metric(
    "perdure.hints", "counter", "{hint}", "What other processes have said that they did", ("kind",)
)
TIMERS_FIRED = Metric("perdure.timers.fired", "counter", "{timer}", "Deadlines that were acted on")
TIMER_LATENESS = Metric(
    "perdure.timer.lateness",
    "histogram",
    "s",
    "From a deadline until it was acted on, of those that this process has fired",
    (),
    _quick,
)
CONSUMER_EVENTS = Metric(
    "perdure.consumer.events",
    "counter",
    "{event}",
    "Events that handlers of consumers were called with",
    ("consumer", "outcome"),
)
CONSUMER_DURATION = Metric(
    "perdure.consumer.duration",
    "histogram",
    "s",
    "How long a handler took for a batch",
    ("consumer",),
    _quick,
)

# Of this process.
RUNS_RESIDENT = Metric("perdure.runs.resident", "gauge", "{run}", "Runs in memory")
RUNS_ACTIVE = Metric("perdure.runs.active", "gauge", "{run}", "Of those, runs that go on just now")
QUEUE_OPS = Metric("perdure.queue.ops", "gauge", "{op}", "Writes that wait for a commit")
LEDGER_POSITION = Metric(
    "perdure.ledger.position", "gauge", "{event}", "The last position of the ledger, as known here"
)

# Of the store, asked when somebody wants to know.
STORE_UP = Metric("perdure.store.up", "gauge", "1", "Whether the store has answered in time")
CONSUMER_LAG = Metric(
    "perdure.consumer.lag", "gauge", "{event}", "Events that a consumer has not read", ("consumer",)
)
CONSUMER_BEHIND = Metric(
    "perdure.consumer.behind",
    "gauge",
    "s",
    "How long the first event waits that a consumer has not read",
    ("consumer",),
)
PARKED = Metric("perdure.parked", "gauge", "{event}", "Events that consumers could not deal with")
DEFERRED = Metric("perdure.deferred", "gauge", "{start}", "Starts that a bound has put off")
DEAD_LETTERS = Metric("perdure.dead_letters", "gauge", "{letter}", "Signals and items left over")
TIMERS_DUE = Metric("perdure.timers.due", "gauge", "{timer}", "Deadlines nobody has acted on yet")
OLDEST_READY = Metric(
    "perdure.runs.oldest_ready", "gauge", "s", "How long the oldest run waits that may be claimed"
)
IN_LINE = Metric(
    "perdure.pool.waiting", "gauge", "s", "How long the first in a pool's line waits", ("pool",)
)

METRICS: Final = tuple(one for one in list(vars().values()) if isinstance(one, Metric))
GAUGES: Final = tuple(one for one in METRICS if one.kind == "gauge")


class Sums:
    """A counter."""

    __slots__ = ("metric", "values")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        # What nothing tells apart is there from the beginning: none is a number too.
        self.values: dict[Labels, float] = {} if metric.labels else {(): 0}

    def add(self, *labels: str, n: float = 1) -> None:
        values = self.values
        if labels not in values:
            labels = bounded(labels, len(values))
            values.setdefault(labels, 0)
        values[labels] += n


class Bins:
    """What a histogram has of some labels: how many in each bucket, the last one without end; their sum."""

    __slots__ = ("counts", "sum")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)


class Spread:
    """A histogram. `also` are told of each value, for who cannot take over what is counted."""

    __slots__ = ("also", "metric", "values")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Labels, Bins] = {}
        self.also: list[Callable[[float, Labels], None]] = []

    def add(self, value: float, *labels: str) -> None:
        values = self.values
        if labels not in values:
            labels = bounded(labels, len(values))
            values.setdefault(labels, Bins(len(self.metric.buckets)))
        bins = values[labels]
        bins.counts[bisect_left(self.metric.buckets, value)] += 1
        bins.sum += value
        for tell in self.also:
            tell(value, labels)


def bounded(labels: Labels, known: int) -> Labels:
    """The same labels, or those of all others, if there are too many: names may be made from data by mistake."""
    return labels if known < limits.metric_series_max else (OTHER,) * len(labels)
