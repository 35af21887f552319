"""OpenTelemetry: spans and metrics by its interface. The application brings the SDK and the exporter.

Needs `perdure[otel]`; imported by who asks for it. Without an SDK nothing is recorded.
"""

from collections.abc import Callable, Iterator
from typing import Any

from perdure.errors import ObservingUnavailable
from perdure.observing.metrics import METRICS, Labels, Metric
from perdure.observing.observation import Observation, Observer
from perdure.observing.redaction import Redaction
from perdure.observing.spans import Api, Spans
from perdure.version import VERSION


class OpenTelemetry(Observer):
    """Spans and metrics by OpenTelemetry: `App(observe=[OpenTelemetry()])`.

    They go to the providers that are set for the process (`trace.set_tracer_provider`), or to those given here. With
    `payloads=True` spans have inputs and results, without redacted fields and cut off after 4,096 characters.
    """

    def __init__(
        self,
        *,
        tracer_provider: Any = None,
        meter_provider: Any = None,
        spans: bool = True,
        metrics: bool = True,
        payloads: bool = False,
    ) -> None:
        super().__init__()
        try:
            from opentelemetry import context, trace
            from opentelemetry import metrics as meters
        except ModuleNotFoundError as error:
            raise ObservingUnavailable(
                f"OpenTelemetry needs more packages: pip install 'perdure[otel]' ({error})"
            ) from error
        self._payloads = payloads
        self._api = Api(trace, context)
        self._tracer = trace.get_tracer("perdure", VERSION, tracer_provider) if spans else None
        self._histograms: dict[str, Any] = {}
        if metrics:
            self._measure(meters, meters.get_meter("perdure", VERSION, meter_provider))

    def spans(self, redaction: Redaction | None) -> Spans | None:
        if self._tracer is None:
            return None
        return Spans(self._api, self._tracer, redaction, payloads=self._payloads)

    def watch(self, seen: Observation) -> None:
        super().watch(seen)
        for name, histogram in self._histograms.items():
            spread = seen.counts.spreads[name]
            spread.also.append(_recorder(histogram, spread.metric))

    def _measure(self, meters: Any, meter: Any) -> None:
        for metric in METRICS:
            about = {"unit": metric.unit, "description": metric.says}
            match metric.kind:
                case "counter":
                    meter.create_observable_counter(
                        metric.name, [self._reader(meters, metric, self.sums)], **about
                    )
                case "gauge":
                    meter.create_observable_gauge(
                        metric.name, [self._reader(meters, metric, self._gauge)], **about
                    )
                case "histogram":
                    # The one kind that cannot be read later: it is told of each value.
                    self._histograms[metric.name] = meter.create_histogram(
                        metric.name,
                        **about,
                        explicit_bucket_boundaries_advisory=list(metric.buckets),
                    )

    def _gauge(self, metric: Metric) -> dict[Labels, float]:
        return self.gauges().get(metric, {})

    def _reader(
        self, meters: Any, metric: Metric, read: Callable[[Metric], dict[Labels, float]]
    ) -> Callable[[Any], Iterator[Any]]:
        def observe(_: Any) -> Iterator[Any]:
            for labels, value in read(metric).items():
                yield meters.Observation(value, _attributes(metric, labels))

        return observe


def _recorder(histogram: Any, metric: Metric) -> Callable[[float, Labels], None]:
    def record(value: float, labels: Labels) -> None:
        histogram.record(value, _attributes(metric, labels))

    return record


def _attributes(metric: Metric, labels: Labels) -> dict[str, str]:
    return {f"perdure.{name}": one for name, one in zip(metric.labels, labels, strict=True)}
