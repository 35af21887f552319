"""The words that ops are made of: `wait("w", signal("go"), timer("1h"))`. The sentences are the driver's."""

from typing import Any

import msgspec

from perdure.model import ops
from perdure.model.approvals import DEFAULT_CHOICES, Asks, encode_asks
from perdure.model.duration import Duration, parse_duration
from perdure.model.records import Condition, ErrorRecord, SignalEntry, WorkflowRecord

WORKER = "worker-1"
WORKFLOW = "orders"
SECOND = 1_000_000
HOUR = 3600 * SECOND
YEAR = 365 * 24 * HOUR


def signal(name: str) -> Condition:
    """Wait for a signal."""
    return Condition("signal", name)


def run(run_id: str) -> Condition:
    """Wait for a run to end."""
    return Condition("run", run_id)


def timer(duration: Duration) -> Condition:
    """Wait no longer than this."""
    return Condition("timer", delay_us=parse_duration(duration))


def until(at: int) -> Condition:
    """Wait no longer than until then."""
    return Condition("timer", until_at=at)


def topic(name: str, entity: str = "", **narrowed: Any) -> Condition:
    """Wait for an event, about an entity or any; `since`, `deliver`, `filter`, `code` as in the condition."""
    return Condition("topic", name, entity=entity, **narrowed)


def queue(name: str) -> Condition:
    """Wait for an item of a queue."""
    return Condition("queue", name)


def approval(name: str = "ok", id: str = "A", **asks: Any) -> Condition:
    """Ask people; what else is asked is as in `Asks`, durations as users write them."""
    for at in ("expires", "every"):
        if at in asks:
            asks[f"{at}_us"] = parse_duration(asks.pop(at))
    if "remind" in asks:
        asks["remind_us"] = tuple(map(parse_duration, asks.pop("remind")))
    asks.setdefault("choices", DEFAULT_CHOICES)
    return Condition("approval", name, asks=encode_asks(Asks(name=name, id=id, **asks)))


def wait(path: str, *on: Condition, known: bool = False) -> ops.Wait:
    """A wait for the first of some conditions."""
    return ops.Wait(path=path, kind="wait", name=path, on=on, known=known)


def sleep(path: str, duration: Duration, *, known: bool = False) -> ops.Wait:
    """A wait for nothing but time."""
    return ops.Wait(path=path, kind="sleep", name=path, on=(timer(duration),), known=known)


def done(path: str, value: str = "null", *, attempt: int = 1) -> ops.StepDone:
    """A step that has given a result."""
    return ops.StepDone(
        path=path,
        name=path,
        state="done",
        value=value,
        attempt=attempt,
        started_at=1,
        recorded_at=2,
    )


def failed(path: str, message: str = "no", *, attempt: int = 1) -> ops.StepDone:
    """A step that has failed for good."""
    return ops.StepDone(
        path=path,
        name=path,
        state="failed",
        error=error(message, path=path, kind="step"),
        attempt=attempt,
        started_at=1,
        recorded_at=2,
    )


def retrying(path: str, delay: Duration, *, attempt: int = 1) -> ops.StepDone:
    """A step whose attempt failed and that is to be tried again."""
    return ops.StepDone(
        path=path,
        name=path,
        state="retrying",
        error=error("not yet", path=path, kind="step"),
        attempt=attempt,
        started_at=1,
        recorded_at=2,
        delay_us=parse_duration(delay),
    )


def error(message: str, *, path: str | None = None, kind: Any = "workflow") -> str:
    """An error as a run or a step records it."""
    record = ErrorRecord(kind=kind, type="ValueError", message=message, path=path)
    return msgspec.json.encode(record).decode()


def declared(
    *, workflow: str = WORKFLOW, version: int = 1, strict: bool = True, **signals: SignalEntry
) -> WorkflowRecord:
    """A line of the catalogue with these signals."""
    return WorkflowRecord(
        name=workflow,
        version=version,
        input_schema="{}",
        output_schema="{}",
        signals=msgspec.json.encode(signals).decode(),
        strict_signals=strict,
    )


def entry(
    buffer: Any = "latest",
    *,
    schema: dict[str, object] | None = None,
    ttl: Duration | None = None,
    on_end: Any = "discard",
) -> SignalEntry:
    """A signal of the catalogue."""
    return SignalEntry(schema, buffer, None if ttl is None else parse_duration(ttl), on_end)


def effect(op: Any, position: int = 0, *, subscription: str = "") -> ops.Effect:
    """What a consumer wants done for the event at a position."""
    return ops.Effect(op=op, position=position, subscription=subscription)
