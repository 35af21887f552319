"""Who watches an app: `App(observe=[OpenTelemetry(), Prometheus()])`, and what they are shown.

An observer is made by the user and may watch several apps. Each app has one observation, which lives as long as it, so
that what is counted goes on when the app is opened anew. The engine tells the observation, never an observer.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence

from perdure.model.events import Event
from perdure.model.limits import BadValue
from perdure.observing.counts import Counts
from perdure.observing.gauges import Gauges, Reading
from perdure.observing.living import Living
from perdure.observing.metrics import Bins, Labels, Metric
from perdure.observing.redaction import Redaction
from perdure.observing.spans import Spans


class Observer:
    """Somebody who watches apps. There are OpenTelemetry and Prometheus."""

    def __init__(self) -> None:
        self.watched: Living[Observation] = Living()

    def watch(self, seen: "Observation") -> None:
        """An app was made that is to be watched."""
        self.watched.add(seen)

    def spans(self, redaction: Redaction | None) -> Spans | None:
        """What opens the spans of an app, if this observer wants them."""
        return None

    # --- what is counted, of all that are watched ---

    def sums(self, metric: Metric) -> dict[Labels, float]:
        found: dict[Labels, float] = {}
        for one in self.watched:
            for labels, value in one.counts.sums[metric.name].values.copy().items():
                found[labels] = found.get(labels, 0) + value
        return found

    def bins(self, metric: Metric) -> dict[Labels, Bins]:
        found: dict[Labels, Bins] = {}
        for one in self.watched:
            for labels, bins in one.counts.spreads[metric.name].values.copy().items():
                whole = found.setdefault(labels, Bins(len(metric.buckets)))
                whole.counts = [a + b for a, b in zip(whole.counts, bins.counts, strict=True)]
                whole.sum += bins.sum
        return found

    def gauges(self) -> dict[Metric, dict[Labels, float]]:
        """The largest, where several apps look at the same."""
        found: dict[Metric, dict[Labels, float]] = {}
        for one in self.watched:
            for metric, labels, value in one.look_from_anywhere():
                known = found.setdefault(metric, {})
                known[labels] = max(value, known.get(labels, value))
        return found


class Observation:
    """What is seen of one app."""

    def __init__(self, observers: Sequence[Observer], redaction: Redaction | None) -> None:
        self.observers = tuple(observers)
        self.counts = Counts()
        self.gauges: Gauges | None = None  # while the app is open
        spans = [one.spans(redaction) for one in observers]
        self.spans = next((one for one in spans if one is not None), None)
        for one in observers:
            one.watch(self)

    async def close(self) -> None:
        """The app closes. What was counted stays."""
        gauges, self.gauges = self.gauges, None
        if gauges is not None:
            await gauges.stop()

    async def consume(
        self, consumer: str, events: Sequence[Event], called: Awaitable[None]
    ) -> None:
        """Let a handler deal with these events, and see how it does."""
        loop = asyncio.get_running_loop()
        began_s, failure = loop.time(), None
        spans = self.spans
        span = None if spans is None else spans.enter(spans.open_batch(consumer, events))
        try:
            await called
        except BaseException as error:
            failure = error
            raise
        finally:
            if span is not None and spans is not None:
                spans.end_batch(span, failure)
            outcome = "done" if failure is None else "failed"
            self.counts.consumer_events.add(consumer, outcome, n=len(events))
            self.counts.consumer_duration.add(loop.time() - began_s, consumer)

    def look_from_anywhere(self) -> Reading:
        return [] if self.gauges is None else self.gauges.look_from_anywhere()


def checked_observers(given: Iterable[Observer]) -> tuple[Observer, ...]:
    observers = tuple(given)
    for one in observers:
        if not isinstance(one, Observer):
            raise BadValue("observe", one, "is no observer: OpenTelemetry() or Prometheus()")
    kinds = [type(one) for one in observers]
    if len(set(kinds)) < len(kinds):
        raise BadValue("observe", observers, "has two of one kind: one is enough")
    return observers
