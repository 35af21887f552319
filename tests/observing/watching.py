"""Spans that an app opens, read back."""

import threading
from collections.abc import Iterable
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from perdure.observing import OpenTelemetry


class Seen(SpanProcessor):
    """All spans of a provider: those that have ended, and how many are open."""

    def __init__(self, **options: Any) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self)
        self.tracer = self.provider.get_tracer("a user")
        self.observer = OpenTelemetry(tracer_provider=self.provider, metrics=False, **options)
        self.ended: list[ReadableSpan] = []
        self.open: set[int] = set()
        self._lock = threading.Lock()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        with self._lock:
            self.open.add(span.context.span_id)

    def on_end(self, span: ReadableSpan) -> None:
        assert span.context is not None
        with self._lock:
            self.ended.append(span)
            self.open.remove(span.context.span_id)

    def named(self, name: str) -> list[ReadableSpan]:
        """In the order of their beginning."""
        return sorted(
            (one for one in self.ended if one.name == name), key=lambda one: one.start_time or 0
        )

    def the(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    @property
    def names(self) -> list[str]:
        return sorted(one.name for one in self.ended)


def about(span: ReadableSpan, *names: str) -> tuple[Any, ...]:
    """Attributes of ours."""
    given = span.attributes or {}
    return tuple(given.get(f"perdure.{name}") for name in names)


def id_of(span: Any) -> int:
    context = span.get_span_context() if hasattr(span, "get_span_context") else span.context
    return int(context.span_id)


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def linked_to(span: ReadableSpan) -> dict[Any, int]:
    return {(one.attributes or {}).get("perdure.link"): one.context.span_id for one in span.links}


def is_failed(span: ReadableSpan) -> bool:
    return span.status.status_code.name == "ERROR"


def exceptions(spans: Iterable[ReadableSpan]) -> list[Any]:
    return [
        (event.attributes or {}).get("exception.message")
        for span in spans
        for event in span.events
        if event.name == "exception"
    ]
