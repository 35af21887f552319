"""Spans: one for each turn of a run, one for each attempt of a step, one for each batch of a consumer.

A turn lasts from when a run goes on until it stands still: it waits, has ended, or leaves this process. So a run that
waits for days is some short spans, in the one trace that it was started in, each linked to the one before it and to
what has woken it, where that is known here; no span is open meanwhile. A replay opens none: a span begins when
something happens that is not on record. Steps are inside their turn, and what a body opens is inside its step.

Of OpenTelemetry only the interface is used, as `OpenTelemetry` (otel.py) gives it. Nothing here may fail the engine.
"""

from collections.abc import Iterable, Iterator, Sequence
from traceback import format_exception
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from perdure.model import limits, ops
from perdure.model.approvals import decode_asks
from perdure.model.events import Event
from perdure.model.outcomes import Advanced
from perdure.model.records import Completion, ErrorRecord, StepRecord
from perdure.observing.harmless import harmless
from perdure.observing.redaction import Redaction
from perdure.observing.traces import parsed, written

T = TypeVar("T")

_decode_error: Final = msgspec.json.Decoder(ErrorRecord).decode
# Ops that may say nothing: that a call was heard, that a run still waits.
_may_be_empty: Final = (ops.RecordStep, ops.Suspend)


class Api(NamedTuple):
    """OpenTelemetry, as far as it is used: its modules `trace` and `context`."""

    trace: Any
    context: Any


class _Known(NamedTuple):
    """Of a run: its last turn; and where its trace began here, if nobody has given it one."""

    last: Any
    root: str


class Open(NamedTuple):
    """A span that is open, and what it is current in."""

    span: Any
    inside: Any
    token: Any = None


class Spans:
    """Opens and ends the spans of one app."""

    def __init__(
        self, api: Api, tracer: Any, redaction: Redaction | None, *, payloads: bool = False
    ) -> None:
        self.payloads = payloads
        self._api = api
        self._tracer = tracer
        self._redaction = redaction
        self._runs: dict[str, _Known] = {}
        self._causes: dict[str, Any] = {}

    # --- turns ---

    def turn(self, run: Any, replayed: int) -> "Turn":
        """What watches the turns of a run that has come into memory, with so many records."""
        if not replayed and not run.generation:
            self._runs.pop(run.run_id, None)  # of another run, which had this id before
        known = self._runs.get(run.run_id)
        if known is not None and run.trace is None:
            run.trace = known.root
        return Turn(self, replayed)

    def open_turn(self, run: Any, cause: str | None, replayed: int) -> Any:
        """The span of a turn that begins now."""
        known = self._runs.get(run.run_id)
        links = self._links({"previous": known and known.last, "cause": self._cause(cause)})
        attributes = self._about(run)
        if replayed:
            attributes["perdure.replayed_records"] = replayed
        span = self._tracer.start_span(
            f"turn {run.workflow.name}",
            context=self._parent(run),
            attributes=attributes,
            links=links,
        )
        context = span.get_span_context()
        if context.is_valid:
            if run.trace is None:
                # From here on it has one, for as long as somebody here knows of it.
                run.trace = written(context)
            _keep(self._runs, run.run_id, _Known(context, run.trace))
        return span

    def _parent(self, run: Any) -> Any:
        """The context that a turn is opened in: that of the run's trace, of who has started it, or none."""
        trace = parsed(run.trace)
        if trace is not None:
            return self._inside(self._remote(trace.trace_id, trace.span_id, trace.flags))
        started_by = self._causes.get(run.run_id)
        return self._api.context.Context() if started_by is None else self._inside(started_by)

    def _remote(self, trace_id: int, span_id: int, flags: int) -> Any:
        trace = self._api.trace
        return trace.SpanContext(trace_id, span_id, True, trace.TraceFlags(flags))

    def _inside(self, span_context: Any) -> Any:
        """Nothing but this span: whatever is open where the engine works is none of the run's affair."""
        span = self._api.trace.NonRecordingSpan(span_context)
        return self._api.trace.set_span_in_context(span, self._api.context.Context())

    def _links(self, found: dict[str, Any]) -> list[Any]:
        return [
            self._api.trace.Link(context, {"perdure.link": name})
            for name, context in found.items()
            if context is not None
        ]

    def _about(self, run: Any) -> dict[str, Any]:
        return {
            "perdure.run.id": run.run_id,
            "perdure.workflow": run.workflow.name,
            "perdure.workflow.version": run.workflow.version,
            "perdure.generation": run.generation,
            "perdure.worker.id": run.host.worker_id,
        }

    # --- what leads to what, as far as it happens in this process ---

    @harmless
    def sent(self, op: ops.Op[Any]) -> None:
        """Somebody asks for this: what it wakes is linked to the span that is current."""
        context = self._api.trace.get_current_span().get_span_context()
        if context.is_valid:
            self.note(ids_of(op), context)

    def note(self, ids: Iterable[str], context: Any) -> None:
        for one in ids:
            _keep(self._causes, one, context)

    def _cause(self, id: str | None) -> Any:
        if id is None:
            return None
        known = self._runs.get(id)  # a run that was waited for
        return self._causes.get(id) if known is None else known.last

    # --- steps ---

    @harmless
    def open_step(self, call: Any) -> Open:
        """The span of an attempt that begins now. It is to be made current where the body runs."""
        run = call.owner
        attributes = {
            **self._about(run),
            "perdure.step": call.name,
            "perdure.path": call.path,
            "perdure.attempt": call.attempt,
        }
        turn = run.turn
        inside = None if turn is None else turn.inside
        parent = self._parent(run) if inside is None else inside
        span = self._tracer.start_span(f"step {call.name}", context=parent, attributes=attributes)
        return Open(span, self._api.trace.set_span_in_context(span))

    @harmless
    def enter(self, opened: Open | None) -> Open | None:
        """Make it current here."""
        if opened is None:
            return None
        return opened._replace(token=self._api.context.attach(opened.inside))

    @harmless
    def end_step(
        self, step: Open, done: ops.StepDone | None, error: BaseException | None = None
    ) -> None:
        """An attempt has ended; with no record if nobody wants its result any more."""
        if step.token is not None:
            self._api.context.detach(step.token)
        span = step.span
        span.set_attribute("perdure.outcome", "dropped" if done is None else done.state)
        if error is not None and done is not None:
            self.fail(span, error)
        elif done is not None and done.value is not None:
            self.show(span, "perdure.result", done.value)
        span.end()

    # --- consumers ---

    @harmless
    def open_batch(self, consumer: str, events: Sequence[Event]) -> Open:
        """The span of a handler's call with these events, linked to the traces that they are of."""
        traces = dict.fromkeys(one.trace for one in events)
        places = [one for one in map(parsed, traces) if one is not None][: limits.span_links_max]
        span = self._tracer.start_span(
            f"consume {consumer}",
            context=self._api.context.Context(),
            kind=self._api.trace.SpanKind.CONSUMER,
            attributes={
                "perdure.consumer": consumer,
                "perdure.events": len(events),
                "perdure.position.first": events[0].position,
                "perdure.position.last": events[-1].position,
            },
            links=[self._api.trace.Link(self._remote(*one)) for one in places],
        )
        return Open(span, self._api.trace.set_span_in_context(span))

    @harmless
    def end_batch(self, batch: Open, error: BaseException | None) -> None:
        self._api.context.detach(batch.token)
        if error is not None:
            self.fail(batch.span, error)
        batch.span.end()

    # --- what they say ---

    def fail(self, span: Any, error: BaseException) -> None:
        kind = type(error)
        name = kind.__qualname__
        if kind.__module__ != "builtins":
            name = f"{kind.__module__}.{name}"
        self.tell_error(span, name, str(error), "".join(format_exception(error)))

    def tell_error(self, span: Any, kind: str, message: str, traceback: str = "") -> None:
        """As OpenTelemetry records exceptions, without what is redacted."""
        message, traceback = self._without(message), self._without(traceback)
        facts = {"exception.type": kind, "exception.message": message}
        if traceback:
            facts["exception.stacktrace"] = traceback
        span.add_event("exception", facts)
        trace = self._api.trace
        span.set_status(trace.Status(trace.StatusCode.ERROR, f"{kind}: {message}"))

    def _without(self, text: str) -> str:
        return text if self._redaction is None else self._redaction.text(text)

    def show(self, span: Any, name: str, text: str, arguments: Sequence[str] = ()) -> None:
        """A payload, if spans are to have any: JSON without what is redacted, and not too much of it."""
        if not self.payloads or not span.is_recording():
            return
        if self._redaction is not None:
            value = msgspec.json.decode(text)
            if arguments:
                value = [
                    self._redaction.of(one, (argument,))
                    for argument, one in zip(arguments, value, strict=False)
                ]
            text = msgspec.json.encode(self._redaction.of(value)).decode()
        span.set_attribute(name, text[: limits.span_payload_chars_max])

    def current(self, span: Any) -> Any:
        return self._api.trace.set_span_in_context(span, self._api.context.Context())


class Turn:
    """Watches the turns of one run in memory. It is told of what the run does; the run is told nothing."""

    __slots__ = ("_cause", "_input", "_replayed", "_span", "_spans", "inside")

    def __init__(self, spans: Spans, replayed: int) -> None:
        self._spans = spans
        self._replayed = replayed
        self._input: str | None = None
        self._cause: str | None = None
        self._span: Any = None
        self.inside: Any = None  # the context of the turn that is open

    def begins(self, run: Any, input: str) -> None:
        """The code of the run begins, with this input; with nothing on record it is at work from here on."""
        if not self._replayed:
            self._input = input if self._spans.payloads else None
            self.goes_on(run)

    @harmless
    def goes_on(self, run: Any) -> None:
        """Something happens that is not on record."""
        if self._span is not None:
            return
        self._span = self._spans.open_turn(run, self._cause, self._replayed)
        self.inside = self._spans.current(self._span)
        if self._input is not None:
            arguments = [one.name for one in run.workflow.args.params]
            self._spans.show(self._span, "perdure.input", self._input, arguments)
        self._input, self._replayed = None, 0

    @harmless
    def hears(self, call: Any, done: Completion | StepRecord) -> None:
        """The run was given this: what it does now, it may do for that."""
        self._cause = done.taken_id
        if done.winner is not None:
            won = call.clauses[done.winner].condition
            if won.kind == "run":
                self._cause = won.target
            elif won.kind == "approval":
                self._cause = decode_asks(won.asks).id

    @harmless
    def posts(self, run: Any, op: ops.TurnOp) -> None:
        if isinstance(op, _may_be_empty) and _says_nothing(op):
            return
        self.goes_on(run)
        if isinstance(op, ops.RecordSend) and op.send is not None:
            context = self._span.get_span_context()
            if context.is_valid:
                self._spans.note(ids_of(op.send), context)

    @harmless
    def answered(self, op: ops.TurnOp, outcome: Advanced) -> None:
        """What the op asked for is so: the turn may be over by that."""
        if self._span is None:
            return
        match op:
            case ops.Finish():
                self._finished(op)
                self._end(op.status)
            case ops.ContinueAs():
                self._end("continued")
            case ops.Park():
                self._spans.tell_error(self._span, "Parked", op.reason)
                self._end("paused")
            case _ if outcome.paused:
                self._end("paused")
            case _ if outcome.parked:
                self._end("waiting")

    def _finished(self, op: ops.Finish) -> None:
        if op.error is not None:
            error = _decode_error(op.error)
            self._spans.tell_error(self._span, error.type, error.message, error.traceback)
        elif op.output is not None:
            self._spans.show(self._span, "perdure.output", op.output)

    @harmless
    def leaves(self) -> None:
        """The run leaves memory, in the midst of a turn perhaps."""
        if self._span is not None:
            self._end("left")

    def _end(self, how: str) -> None:
        span, self._span, self.inside, self._cause = self._span, None, None, None
        span.set_attribute("perdure.outcome", how)
        span.end()


def _says_nothing(op: Any) -> bool:
    return not op.steps and not op.closed and all(one.known for one in getattr(op, "waits", ()))


def ids_of(op: ops.Op[Any]) -> Iterator[str]:
    """By what those whom a send wakes know it: the id of a signal, event, item, approval, or run that it starts."""
    match op:
        case ops.SendSignal() | ops.ResendDeadLetter():
            yield op.signal_id
        case ops.SignalWithStart():
            yield op.signal.signal_id
            yield op.start.run_id
        case ops.StartRun():
            yield op.run_id
        case ops.Emit():
            yield from (one.event_id for one in op.events)
        case ops.Put():
            yield op.item_id
        case ops.Decide():
            yield op.approval_id


def _keep(known: dict[str, T], key: str, value: T) -> None:
    """The newest; those before go, the oldest first."""
    known.pop(key, None)
    known[key] = value
    if len(known) > limits.spans_known_max:
        del known[next(iter(known))]
