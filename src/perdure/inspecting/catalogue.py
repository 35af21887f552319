"""What a store knows of workflows, topics and queues, and who executes them: for forms, senders without the code."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec

from perdure.model.clock import to_datetime
from perdure.model.records import (
    BufferPolicy,
    ChannelRecord,
    OnEnd,
    Repeats,
    SignalEntry,
    WorkerRecord,
    WorkflowRecord,
)

_decode_signals = msgspec.json.Decoder(dict[str, SignalEntry]).decode
_decode_workflows = msgspec.json.Decoder(list[tuple[str, int]]).decode


class SignalInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A signal of a workflow. No schema: any JSON is taken. In a play it has one place, its `path`."""

    name: str
    schema: dict[str, Any] | None
    buffer: BufferPolicy
    ttl_s: float | None
    on_end: OnEnd
    path: str | None


class WorkflowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a workflow, as the code that declared it last said. `workers` of those that live execute it.

    If it is `strict`, signals that are not listed are unknown; else they are those it was seen to wait for. A play has
    its graph: what is to be drawn.
    """

    name: str
    version: int
    input_schema: Any
    output_schema: Any
    signals: list[SignalInfo]
    strict: bool
    pool: str
    play: bool
    graph: dict[str, Any] | None
    workers: int


class ChannelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A topic or a queue. No schema: any JSON is taken; one that is not enforced only documents."""

    kind: Literal["topic", "queue"]
    name: str
    schema: Any
    enforce: bool
    repeats: Repeats


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that lives, and the versions of workflows that it executes.

    `lease_until` is None where a worker's life does not hang on a lease: on SQLite it holds a lock while it lives.
    """

    worker_id: str
    started_at: datetime
    lease_until: datetime | None
    workflows: list[tuple[str, int]]


def worker_info(row: WorkerRecord, *, by_lease: bool) -> WorkerInfo:
    return WorkerInfo(
        worker_id=row.worker_id,
        started_at=to_datetime(row.started_at),
        lease_until=to_datetime(row.lease_until) if by_lease else None,
        workflows=_decode_workflows(row.workflows),
    )


def workflow_infos(
    rows: Iterable[WorkflowRecord], workers: Iterable[WorkerRecord]
) -> list[WorkflowInfo]:
    """By name and version."""
    served = Counter(at for one in workers for at in set(_decode_workflows(one.workflows)))
    infos = [_workflow_info(row, served[row.name, row.version]) for row in rows]
    return sorted(infos, key=lambda one: (one.name, one.version))


def _workflow_info(row: WorkflowRecord, workers: int) -> WorkflowInfo:
    entries = _decode_signals(row.signals)
    return WorkflowInfo(
        name=row.name,
        version=row.version,
        input_schema=msgspec.json.decode(row.input_schema),
        output_schema=msgspec.json.decode(row.output_schema),
        signals=[_signal_info(name, entries[name]) for name in sorted(entries)],
        strict=row.strict_signals,
        pool=row.pool,
        play=row.play is not None,
        graph=None if row.play is None else msgspec.json.decode(row.play),
        workers=workers,
    )


def _signal_info(name: str, entry: SignalEntry) -> SignalInfo:
    return SignalInfo(
        name=name,
        schema=entry.schema,
        buffer=entry.buffer,
        ttl_s=None if entry.ttl_us is None else entry.ttl_us / 1_000_000,
        on_end=entry.on_end,
        path=entry.path,
    )


def channel_info(row: ChannelRecord) -> ChannelInfo:
    return ChannelInfo(
        kind=row.kind,
        name=row.name,
        schema=None if row.schema is None else msgspec.json.decode(row.schema),
        enforce=row.enforce,
        repeats=row.repeats,
    )
