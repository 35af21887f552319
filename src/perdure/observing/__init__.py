"""What can be seen of an app from outside: spans, metrics, log lines with the run they speak of, and redaction.

Everything here is told; nothing here decides. OpenTelemetry and prometheus_client are imported only by who asks for
them, and an app that nobody watches pays a test of an attribute for it.
"""

from perdure.observing.logs import JsonLines, RunFilter
from perdure.observing.observation import Observer
from perdure.observing.otel import OpenTelemetry
from perdure.observing.prometheus import Prometheus

__all__ = ["JsonLines", "Observer", "OpenTelemetry", "Prometheus", "RunFilter"]
