"""What the SQL stores read: rows come as JSON arrays, decoded straight into records, the same ones for each of them.

A decoder takes one text and gives a list. Those that only one store needs stand beside its statements.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from perdure.model.records import (
    ChannelRecord,
    ConsumerRecord,
    CursorRecord,
    DeadLetterRecord,
    DeferredRecord,
    EventRecord,
    HistoryPlace,
    ItemRecord,
    KeyRecord,
    LineLook,
    OutboxRecord,
    ParkedRecord,
    PoolRecord,
    RunRecord,
    ScheduleRecord,
    SignalRecord,
    StepRecord,
    StreamItemRecord,
    StreamRecord,
    StreamSpan,
    SubscriptionRecord,
    WatcherRecord,
    WorkerRecord,
    WorkflowRecord,
    history_place,
)
from perdure.store.base import Flaw, Life, StreamKept

Found = TypeVar("Found")

decode_runs = msgspec.json.Decoder(list[RunRecord]).decode
decode_steps = msgspec.json.Decoder(list[StepRecord]).decode
decode_watchers = msgspec.json.Decoder(list[WatcherRecord]).decode
decode_signals = msgspec.json.Decoder(list[SignalRecord]).decode
decode_keys = msgspec.json.Decoder(list[KeyRecord]).decode
decode_events = msgspec.json.Decoder(list[EventRecord]).decode
decode_letters = msgspec.json.Decoder(list[DeadLetterRecord]).decode
decode_workflows = msgspec.json.Decoder(list[WorkflowRecord]).decode
decode_cursors = msgspec.json.Decoder(list[CursorRecord]).decode
decode_items = msgspec.json.Decoder(list[ItemRecord]).decode
decode_streams = msgspec.json.Decoder(list[StreamRecord]).decode
decode_stream_items = msgspec.json.Decoder(list[StreamItemRecord]).decode
decode_spans = msgspec.json.Decoder(list[StreamSpan]).decode
decode_outbox = msgspec.json.Decoder(list[OutboxRecord]).decode
decode_consumers = msgspec.json.Decoder(list[ConsumerRecord]).decode
decode_subscriptions = msgspec.json.Decoder(list[SubscriptionRecord]).decode
decode_parked = msgspec.json.Decoder(list[ParkedRecord]).decode
decode_deferred = msgspec.json.Decoder(list[DeferredRecord]).decode
decode_schedules = msgspec.json.Decoder(list[ScheduleRecord]).decode
decode_workers = msgspec.json.Decoder(list[WorkerRecord]).decode
# Runs that may be claimed: workflow, version, how many, since when.
decode_backlog = msgspec.json.Decoder(list[tuple[str, int, int, int]]).decode
decode_pools = msgspec.json.Decoder(list[PoolRecord]).decode
decode_lines = msgspec.json.Decoder(list[LineLook]).decode
# Of keys of a pool: the key, slots that are taken, and where its bucket stands.
decode_pool_keys = msgspec.json.Decoder(list[tuple[str, int, str | None]]).decode
decode_channels = msgspec.json.Decoder(list[ChannelRecord]).decode
decode_positions = msgspec.json.Decoder(list[int]).decode
decode_ids = msgspec.json.Decoder(list[str]).decode
decode_pairs = msgspec.json.Decoder(list[tuple[str, str]]).decode
# Numbers by name: counts, revisions.
decode_numbers = msgspec.json.Decoder(dict[str, int]).decode
# When something is due, and its name.
decode_dues = msgspec.json.Decoder(list[tuple[int, str]]).decode
# What is still needed of the ledger: a position, and by whom.
decode_needed = msgspec.json.Decoder(tuple[int, str]).decode

# Streams as `lives` reads them: run, name, end, and what there is of the items.
_decode_kept = msgspec.json.Decoder(list[tuple[str, str, int, int, int, int]]).decode


def decode_lives(runs: str, steps: str, watchers: str, signals: str, streams: str) -> list[Life]:
    """Each run with its own rows, of those of all of them."""
    lives = {one.run_id: Life(one, [], [], [], []) for one in decode_runs(runs)}
    for step in in_order(decode_steps(steps)):
        if step.run_id in lives:
            lives[step.run_id].steps.append(step)
    for watcher in decode_watchers(watchers):
        if watcher.run_id in lives:
            lives[watcher.run_id].watchers.append(watcher)
    for signal in sorted(decode_signals(signals), key=lambda one: one.position):
        if signal.run_id in lives:
            lives[signal.run_id].signals.append(signal)
    for run_id, stream, last, oldest, newest, count in _decode_kept(streams):
        if run_id in lives:
            lives[run_id].streams.append(StreamKept(stream, last, oldest, newest, count))
    return list(lives.values())


def stray_flaw(table: str, what: str) -> Flaw:
    """A row that belongs to nothing: of a run that is not there, or at a position where no event is."""
    if table == "fan_outs":
        return Flaw(
            invariant="X4",
            what=f"no event is at {what}, and it is on its way to runs",
            advice=f"delete the row of fan_outs with position {what}",
        )
    if table == "stream_items":
        return Flaw(
            invariant="M4",
            what=f"items of a stream of run {what!r} that is not there",
            run_id=what,
            advice=f"delete the rows of stream_items of run {what!r} that no row of streams names",
        )
    return Flaw(
        invariant="X3",
        what=f"{table} of run {what!r}, which is not there",
        run_id=what,
        advice=f"restore the run from a backup, or delete the rows of {table} of run {what!r}",
    )


def first(found: list[Found]) -> Found | None:
    """The one that was asked for, if it is there."""
    return found[0] if found else None


def pool_keys(text: str) -> dict[str, tuple[int, int | None]]:
    """Of keys of a pool: slots that are taken, and where its bucket stands, if it has one."""
    return {
        key: (taken, None if tat is None else int(tat))
        for key, taken, tat in decode_pool_keys(text)
    }


def with_steps(
    runs: Iterable[RunRecord], steps: Iterable[StepRecord]
) -> list[tuple[RunRecord, list[StepRecord]]]:
    """Each run with its own steps, of those of all of them."""
    steps_of: dict[str, list[StepRecord]] = {}
    found = []
    for run in runs:
        steps_of[run.run_id] = []
        found.append((run, steps_of[run.run_id]))
    for step in steps:
        steps_of[step.run_id].append(step)
    return found


def in_order(history: Iterable[StepRecord]) -> list[StepRecord]:
    """By generation, then seq, open ones last."""
    return sorted(history, key=lambda one: (one.generation, one.seq == 0, one.seq, one.path))


def history_page(
    history: Iterable[StepRecord], after: HistoryPlace | None, limit: int
) -> list[StepRecord]:
    """A page of the history, for who has it whole: see `Store.history_page`."""
    decided, undecided = [], []
    for one in in_order(history):
        if one.seq == 0:
            undecided.append(one)
        elif after is None or history_place(one) > after:
            decided.append(one)
    return decided[:limit] + (undecided if len(decided) < limit else [])


def all_counts(by_status: dict[str, int], tables: dict[str, int]) -> dict[str, int]:
    """The runs, those of each status, and the rows of every other table."""
    runs = {f"runs.{status}": count for status, count in by_status.items()}
    return {"runs": sum(by_status.values()), **runs, **tables}
