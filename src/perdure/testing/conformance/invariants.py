"""What must hold in every store at any moment, as far as its reads can show: `check_invariants` lists what does not.

The numbers are those of the reliability plan: R runs, W waits, S and B signals and slots, F fences, L ledger; Q is for
queues, K for those who keep cursors on the ledger, T for schedules, O for what stands over a run, P for pools, M for
streams, H for what people are asked. What must hold within a run is asked as
`fsck` asks it. Cheap enough to be asked after each op of a random test.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import msgspec

from perdure.inspecting.invariants import Parts, ends, won, wrong_with
from perdure.model import limits
from perdure.model.approvals import decode_asks
from perdure.model.pools import holds_slot
from perdure.model.records import DeferredRecord, ParkedRecord
from perdure.store.base import Store
from perdure.testing.conformance.driver import all_runs, everything

# More than any test has: `make races` leaves thousands behind.
_every_row = 1_000_000
_end_of_time = 10**16


async def check_invariants(store: Store) -> list[str]:
    """Every violated invariant as one line; empty when all is well. Nothing may be written meanwhile."""
    store = cast(Store, _AskedOnce(store))
    whole = await store.lives([run.run_id for run in await all_runs(store)])
    wrong = [
        f"{life.run.run_id}: {one.invariant} {one.what}"
        for life in whole
        for one in wrong_with(life)
    ]
    lives = [Parts(life) for life in whole]
    wrong += _wrong_waits_for_runs(lives)
    wrong += [words async for words in _wrong_ledger(store)]
    wrong += [words async for words in _wrong_dispositions(store, lives)]
    wrong += [words async for words in _wrong_topics(store, lives)]
    wrong += [words async for words in _wrong_queues(store, lives)]
    wrong += [words async for words in _wrong_streams(store, lives)]
    wrong += [words async for words in _wrong_readers(store)]
    wrong += [words async for words in _wrong_schedules(store)]
    wrong += [words async for words in _wrong_pools(store, lives)]
    wrong += [words async for words in _wrong_approvals(store, lives)]
    wrong += [words async for words in _wrong_backlog(store, lives)]
    wrong += [words async for words in _wrong_counts(store, lives)]
    return wrong


class _AskedOnce:
    """The reads of a store, of which each is asked once: several invariants look at the same rows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._answers: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        read = getattr(self._store, name)

        async def asked(*args: Any) -> Any:
            key = f"{name}{args!r}"
            if key not in self._answers:
                self._answers[key] = await read(*args)
            return self._answers[key]

        return asked


def _wrong_waits_for_runs(lives: list[Parts]) -> Iterator[str]:
    runs = {life.run.run_id: life.run for life in lives}
    for life in lives:
        for watcher in life.watchers:
            target = runs.get(watcher.target) if watcher.kind == "run" else None
            if target is None or target.finished_at is None:
                continue
            if watcher.deadline_at is None or target.finished_at <= watcher.deadline_at:
                yield f"W4 {life.run.run_id} waits for {target.run_id}, which has ended"


# --- S: signals ---------------------------------------------------------------------------------------


async def _wrong_dispositions(store: Store, lives: list[Parts]) -> AsyncIterator[str]:
    """S1: a signal is in one place only: the buffer, the dead letters, or decided on the ledger.

    Only what was refused or left where it had been delivered is a letter beside the fact of its delivery.
    """
    letters = await store.dead_letters(None, "", _every_row)
    facts = [one for one in await everything(store.events) if one.type.startswith("signal.")]
    places = Counter(signal.signal_id for life in lives for signal in life.signals)
    places.update(one.dead_letter_id for one in letters)
    places.update(one.event_id for one in facts)
    delivered = {one.event_id for one in facts if one.type == "signal.delivered"}
    places.subtract(
        one.dead_letter_id
        for one in letters
        if one.cause != "ended" and one.dead_letter_id in delivered
    )
    for signal_id, count in places.items():
        if count > 1:
            yield f"S1 signal {signal_id} is in {count} places"


# --- L: the ledger, and the counts -------------------------------------------------------------------


async def _wrong_ledger(store: Store) -> AsyncIterator[str]:
    events = await everything(store.events)
    positions = [one.position for one in events]
    oldest, newest = await store.span()
    if positions != list(range(oldest, newest + 1)):
        yield f"L1 the positions are not dense from {oldest} to {newest}: {positions}"
    if len({one.event_id for one in events}) != len(events):
        yield "L5 two events have one id"


async def _wrong_topics(store: Store, lives: list[Parts]) -> AsyncIterator[str]:
    """Nobody waits for an event that is there, unless fan-out is on its way; what ended a wait is what it stores."""
    events = await everything(store.events)
    by_id = {one.event_id: one for one in events}
    _, newest = await store.span()
    on_their_way = (await store.look()).fan_out
    for life in lives:
        for step in life.steps:
            ended_by = won(step)
            event = by_id.get(step.taken_id or "")
            if event is not None and event.recorded_at > (step.recorded_at or 0):
                continue  # its id was used anew, after retention had taken the one that ended the wait
            if ended_by is not None and ended_by.kind == "topic" and event is not None:
                given = event.payload if step.error is None else None  # its filter failed on it
                if (event.type, given) != (ended_by.target, step.value):
                    yield f"W6 {life.run.run_id} has another value at {step.path} than its event"
        for watcher in (*life.watchers, *life.standing):
            if watcher.after > newest:
                yield f"W7 {life.run.run_id} waits for what comes after {watcher.after}, not written yet"
            missed = [one for one in events if watcher.kind == "topic" and ends(one, watcher)]
            if missed and not on_their_way:
                yield f"W4 {life.run.run_id} waits at {watcher.path} for {missed[0].event_id}, which is there"


# --- Q: queues ---------------------------------------------------------------------------------------


async def _wrong_queues(store: Store, lives: list[Parts]) -> AsyncIterator[str]:
    """An item is in one place only: its queue, the dead letters, or the one wait that took it."""
    places: Counter[str | None] = Counter()
    sizes = await store.queues()
    for queue, size in sizes.items():
        items = await store.queue_items(queue, 0, _every_row)
        places.update(one.item_id for one in items)
        if len({one.position for one in items}) != size or not size:
            yield f"Q2 queue {queue!r} has {size} items and shows {len(items)}"
    letters = await store.dead_letters(None, "", _every_row)
    places.update(one.dead_letter_id for one in letters if one.kind == "item")
    for life in lives:
        for step in life.steps:
            ended_by = won(step)
            if ended_by is not None and ended_by.kind == "queue":
                places[step.taken_id] += 1
        for watcher in life.watchers:
            if watcher.kind == "queue" and watcher.deadline_at is None and watcher.target in sizes:
                yield f"W4 {life.run.run_id} waits at {watcher.path} for a queue that has items"
    for item_id, count in places.items():
        if count > 1:
            yield f"Q1 item {item_id} is in {count} places"


# --- K: those who read the ledger --------------------------------------------------------------------


async def _wrong_readers(store: Store) -> AsyncIterator[str]:
    oldest, newest = await store.span()
    for consumer in await store.consumers():
        if consumer.position > newest:
            yield f"K1 consumer {consumer.name!r} is at {consumer.position} of {newest}"
        if (consumer.owner is None) != (consumer.fence == 0):
            yield f"F4 consumer {consumer.name!r}: owner {consumer.owner!r}, fence {consumer.fence}"
    rules = await store.subscriptions()
    for rule in rules:
        if rule.position > newest or (rule.behind is not None and rule.behind >= rule.until):
            yield f"K1 subscription {rule.name!r} is at {rule.position} of {newest}, {rule.behind}"
    positions = {one.event_id: one.position for one in await everything(store.events)}
    aside: list[ParkedRecord | DeferredRecord] = [
        *await store.parked(None, None, _every_row),
        *await store.deferred(None, _every_row),
    ]
    for one in aside:
        if one.position >= oldest and positions.get(one.event_id) != one.position:
            yield f"K2 {one.event_id} was put aside at {one.position}, where it is not"


# --- T: schedules ------------------------------------------------------------------------------------


async def _wrong_schedules(store: Store) -> AsyncIterator[str]:
    dues = []
    for row in await store.schedules("", _every_row):
        if row.paused != (row.due_at is None):
            yield f"T1 schedule {row.name!r}: paused {row.paused}, due at {row.due_at}"
        if row.due_at is not None:
            dues.append(row.due_at)
            if row.due_at > row.next_at:
                yield f"T1 schedule {row.name!r} is due at {row.due_at}, after its next tick"
        queued = msgspec.json.decode(row.queued, type=list[int])
        if len(set(queued)) < len(queued):
            yield f"T2 a tick of schedule {row.name!r} waits twice: {queued}"
        if len(queued) > limits.schedule_queue_max:
            yield f"T3 {len(queued)} ticks of schedule {row.name!r} wait"
    if (await store.look()).schedule_at != min(dues, default=None):
        yield f"T4 a look does not show that a schedule is due at {min(dues, default=None)}"


# --- P: pools ----------------------------------------------------------------------------------------


async def _wrong_pools(store: Store, lives: list[Parts]) -> AsyncIterator[str]:
    """What indexes say of slots and lines is what the runs say."""
    runs = [life.run for life in lives]
    pools = {one.name: one for one in await store.pools()}
    looks = {one.name: one for one in (await store.look()).lines}
    for name in sorted({one.pool for one in runs if one.pool} | pools.keys() | looks.keys()):
        held = Counter(one.pool_key for one in runs if one.pool == name and holds_slot(one))
        line = sorted(
            ((one.line_at, one.run_id) for one in runs if one.pool == name and one.line_at),
        )
        keys = sorted({one.pool_key for one in runs if one.pool == name})
        standing = await store.standing(name, keys)
        shown = (standing.taken, standing.waiting, standing.oldest_at)
        if shown != (held.total(), len(line), line[0][0] if line else None):
            yield f"P2 pool {name!r} shows {shown}; {held.total()} slots are taken, {len(line)} wait"
        if {key: standing.keys[key][0] for key in keys} != {key: held[key] for key in keys}:
            yield f"P2 pool {name!r} shows {standing.keys}, and its keys have {held}"
        listed = [(one.line_at, one.run_id) for one in await store.line(name, None, _every_row)]
        if listed != line:
            yield f"P2 the line of pool {name!r} shows {listed}, and there are {line}"
        look = looks.get(name)
        if (look is not None) != bool(line):
            yield f"P2 a look shows {look}, and {len(line)} stand in line of pool {name!r}"
        elif look is not None:
            begun = any(one.admitted for one in runs if one.pool == name and one.line_at)
            shown_too = (look.pool, look.oldest_at, look.begun, look.taken, look.state)
            there = (pools.get(name), line[0][0], begun, held.total(), standing.state)
            if shown_too != there:
                yield f"P2 a look shows {shown_too} of pool {name!r}, and there is {there}"


# --- M: streams --------------------------------------------------------------------------------------


async def _wrong_streams(store: Store, lives: list[Parts]) -> AsyncIterator[str]:
    """Positions are dense to the end, what is kept is within its bounds, and nothing belongs to a run that is gone."""
    counts = await store.counts()
    streams = items = 0
    for life in lives:
        run_id = life.run.run_id
        for span in await store.streams(run_id):
            rows = await store.stream_items(run_id, span.stream, 0, _every_row)
            streams, items = streams + 1, items + len(rows)
            if [one.position for one in rows] != list(range(span.first, span.last + 1)):
                shown = f"{span.first} to {span.last}"
                yield f"M1 {run_id}: stream {span.stream!r} has not all of its positions {shown}"
            if len(rows) > limits.stream_items_max:
                yield f"M2 {run_id}: stream {span.stream!r} keeps {len(rows)} items"
            sizes = [len(one.item.encode()) for one in rows]
            if sum(sizes) > limits.stream_bytes_max:
                yield f"M2 {run_id}: stream {span.stream!r} keeps {sum(sizes)} bytes"
            for one, other, size in zip(rows, rows[1:], sizes, strict=False):
                if one.bytes_before + size != other.bytes_before:
                    yield f"M3 {run_id}: item {other.position} of {span.stream!r} counts wrong"
                if one.published_at > other.published_at:
                    yield f"M3 {run_id}: item {other.position} of {span.stream!r} is too old"
    counted = (counts.get("streams", 0), counts.get("stream_items", 0))
    if counted != (streams, items):
        yield f"M4 {counted} streams and items counted, {(streams, items)} shown: without a run?"


# --- H: what people are asked ------------------------------------------------------------------------


async def _wrong_approvals(store: Store, lives: list[Parts]) -> AsyncIterator[str]:
    """The inbox has what is open, oldest first; and each that was requested is open or was closed once."""
    rows = [
        one
        for life in lives
        for one in (*life.watchers, *life.beside)
        if one.kind in ("approval", "asked")
    ]
    shown = await store.approvals(None, _every_row)
    places = [(one.opened_at, one.run_id, one.path, one.ix) for one in shown]
    there = [one for one in rows if one.kind == "approval"]
    if places != sorted((one.opened_at, one.run_id, one.path, one.ix) for one in there):
        yield f"H3 the inbox shows {places}, and there are {len(there)} open approvals"
    if (await store.span())[0] > 1:
        return  # what was told of them may be gone
    open_now = Counter(f"{decode_asks(one.asks).id}.{one.run_id}" for one in rows)
    for fact in await everything(store.events):
        if fact.type in _opening_or_closing:
            told = msgspec.json.decode(fact.payload)["approval_id"]
            open_now[told] -= _opening_or_closing[fact.type]
    for told, count in open_now.items():
        if count:
            yield f"H4 approval {told} was closed {count} times more often than it was requested"


_opening_or_closing = {
    "hitl.requested": 1,
    "hitl.decided": -1,
    "hitl.timed_out": -1,
    "hitl.withdrawn": -1,
}


async def _wrong_backlog(store: Store, lives: list[Parts]) -> AsyncIterator[str]:
    """What may be claimed, by workflow and version, is what the runs say."""
    ready: dict[tuple[str, int], list[int]] = {}
    for run in (life.run for life in lives):
        if run.ready_at is not None:
            ready.setdefault((run.workflow, run.version), []).append(run.ready_at)
    there = [(*at, len(times), min(times)) for at, times in sorted(ready.items())]
    shown = [msgspec.structs.astuple(one) for one in await store.backlog(_end_of_time, _every_row)]
    if shown != there:
        yield f"L1 {shown} may be claimed, they say, and there is {there}"


async def _wrong_counts(store: Store, lives: list[Parts]) -> AsyncIterator[str]:
    counts = await store.counts()
    shown = {
        "runs": len(lives),
        "steps": sum(len(life.steps) for life in lives),
        "watchers": sum(
            len(life.watchers) + len(life.beside) + len(life.standing) for life in lives
        ),
        "signals": sum(len(life.signals) for life in lives),
        "queue_items": sum((await store.queues()).values()),
        "outbox": len(await store.outbox("", _every_row)),
        "consumers": len(await store.consumers()),
        "subscriptions": len(await store.subscriptions()),
        "schedules": len(await store.schedules("", _every_row)),
        "pools": len(await store.pools()),
        "parked": len(await store.parked(None, None, _every_row)),
        "deferred": len(await store.deferred(None, _every_row)),
        "channels": len(await store.channels()),
    }
    if (counts.get("fan_outs", 0) > 0) != (await store.look()).fan_out:
        yield f"C1 {counts.get('fan_outs', 0)} events have more to resume, and nobody is told"
    if bool(shown["outbox"]) != (await store.look()).outbox:
        yield f"C1 {shown['outbox']} sends are to be applied, and nobody is told"
    shown.update(Counter(f"runs.{life.run.status}" for life in lives))
    for name, count in shown.items():
        if counts.get(name, 0) != count:
            yield f"C1 {counts.get(name, 0)} {name} counted, {count} shown: rows without a run?"
