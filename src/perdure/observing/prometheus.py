"""Prometheus: what is counted as its text, for `/metrics` of our own server or for a registry that others serve.

Needs `perdure[prometheus]`; imported by who asks for it.
"""

from collections.abc import Iterator
from typing import Any

from perdure.errors import ObservingUnavailable
from perdure.observing.metrics import METRICS, Metric
from perdure.observing.observation import Observation, Observer


class Prometheus(Observer):
    """Metrics for Prometheus: `App(observe=[Prometheus()])`, and `/metrics` of the HTTP API has them.

    With a registry of yours, such as `prometheus_client.REGISTRY`, they are in there as well, beside your own, and
    `/metrics` has all of it.
    """

    def __init__(self, registry: Any = None) -> None:
        super().__init__()
        try:
            import prometheus_client
        except ModuleNotFoundError as error:
            raise ObservingUnavailable(
                f"metrics for Prometheus need more packages: pip install 'perdure[prometheus]' ({error})"
            ) from error
        self.registry = prometheus_client.CollectorRegistry() if registry is None else registry
        self.registry.register(_Collector(self))

    async def exposed(self, seen: Observation, accept: str | None) -> tuple[bytes, str]:
        """The text in the form that is accepted, and its type. Asks the store, for a bounded time."""
        from prometheus_client.exposition import choose_encoder

        if seen.gauges is not None:
            await seen.gauges.look()
        try:
            encode, content_type = choose_encoder(accept or "")
        except (TypeError, ValueError):  # a version that is none
            encode, content_type = choose_encoder("")
        return encode(self.registry), content_type


class _Collector:
    """What a registry asks, in whichever thread."""

    def __init__(self, observer: Prometheus) -> None:
        self._observer = observer

    def describe(self) -> Iterator[Any]:
        """The names, so that a registry that has them already says so; without asking the store."""
        from prometheus_client import Metric as Family

        for metric in METRICS:
            yield Family(name_of(metric), metric.says, metric.kind)

    def collect(self) -> Iterator[Any]:
        gauges = self._observer.gauges()
        for metric in METRICS:
            match metric.kind:
                case "counter":
                    yield self._counter(metric)
                case "histogram":
                    yield self._histogram(metric)
                case "gauge" if metric in gauges:
                    yield self._gauge(metric, gauges[metric])

    def _counter(self, metric: Metric) -> Any:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(name_of(metric), metric.says, labels=metric.labels)
        for labels, value in self._observer.sums(metric).items():
            family.add_metric(labels, value)
        return family

    def _histogram(self, metric: Metric) -> Any:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(name_of(metric), metric.says, labels=metric.labels)
        for labels, bins in self._observer.bins(metric).items():
            sofar, buckets = 0, []
            for bound, count in zip((*metric.buckets, "+Inf"), bins.counts, strict=True):
                sofar += count
                buckets.append((str(bound), sofar))
            family.add_metric(labels, buckets, bins.sum)
        return family

    def _gauge(self, metric: Metric, values: dict[tuple[str, ...], float]) -> Any:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(name_of(metric), metric.says, labels=metric.labels)
        for labels, value in values.items():
            family.add_metric(labels, value)
        return family


def name_of(metric: Metric) -> str:
    """As Prometheus has it: the unit in the name, in full. A counter gets its `_total` by itself."""
    name = metric.name.replace(".", "_")
    return f"{name}_seconds" if metric.unit == "s" else name
