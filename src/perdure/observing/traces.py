"""W3C trace contexts: read, written, and found where a program says that it is in the midst of one.

A `traceparent` is `00-<trace id>-<span id>-<flags>` in hexadecimal digits. What a run or an event keeps may be any
text that a caller gave; what is none of these is kept too, and simply leads to no link.
"""

import contextvars
import re
import sys
from typing import Any, NamedTuple

from perdure.observing.speaking import speaker

# The trace that a request from elsewhere came with: what it starts and tells is part of it.
asked_in: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "perdure_asked_in", default=None
)

_traceparent = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-[!-~]*)?")


class TraceParent(NamedTuple):
    """The parts of a `traceparent`."""

    trace_id: int
    span_id: int
    flags: int


def parsed(trace: str | None) -> TraceParent | None:
    """None if there is none, or if it is none that W3C would take."""
    found = None if trace is None else _traceparent.fullmatch(trace)
    if found is None or trace is None or trace.startswith("ff"):
        return None
    parent = TraceParent(*(int(part, 16) for part in found.groups()))
    return parent if parent.trace_id and parent.span_id else None


def written(context: Any) -> str:
    """The span context of OpenTelemetry as text."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def current_trace() -> str | None:
    """The trace that the caller is in: of OpenTelemetry's current span, else of the run that speaks or the request.

    OpenTelemetry is not imported for this: where nobody has, there is no span.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is not None:
        context = api.get_current_span().get_span_context()
        if context.is_valid:
            return written(context)
    found = speaker()
    return asked_in.get() if found is None else found.trace
