"""Parked events, and starts that were put off: they are tried once more when somebody says so.

The cursor went on long ago. What the event leads to now is committed by itself, and only if it is still parked or put
off: two who fire it at once have one effect.
"""

from dataclasses import dataclass
from typing import NamedTuple

from perdure.coordinator.coordinator import Coordinator
from perdure.errors import UnknownConsumer, UnknownSubscription
from perdure.ledger.batches import Desk
from perdure.ledger.definitions import ConsumerDef, Readers
from perdure.ledger.handling import HandlerFailed, call
from perdure.ledger.matching import Drained, event_at, load_table
from perdure.ledger.rules import Unstartable
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.model.limits import BadValue
from perdure.model.records import RUNNER, EventRecord, ParkedRecord
from perdure.store.base import Store


class Bench(NamedTuple):
    """What it takes to fire events anew."""

    store: Store
    coordinator: Coordinator
    clock: Clock
    desk: Desk
    readers: Readers


def definition_of(readers: Readers, name: str) -> ConsumerDef:
    """The consumer whose handler is in this app."""
    found = readers.consumers.get(name)
    if found is not None:
        return found
    if name in readers.anomalies:
        raise BadValue("consumer", name, "is an anomaly detector: it has no handler to fire into")
    raise UnknownConsumer(name, needs_handler=True)


@dataclass(frozen=True, slots=True)
class _Parked:
    row: ParkedRecord
    event: EventRecord


async def refire(bench: Bench, consumer: str, position: int, subscription: str) -> bool:
    """Deal with a parked event once more: whether it went through and is parked no longer."""
    parked = await _find(bench.store, consumer, position, subscription)
    try:
        effects, finished = await _dealt_with(bench, parked)
        reason = None
    except (HandlerFailed, Unstartable) as failed:
        effects, finished, reason = (), (), str(failed)
    commit = ops.CommitEffects(
        consumer=consumer,
        effects=effects,
        unpark=(position, subscription),
        reason=reason,
        finished=finished,
    )
    counted = await bench.coordinator.submit(commit)
    # A start that the store refused is parked anew.
    return counted.count > 0 and await _row(bench.store, consumer, position, subscription) is None


async def _dealt_with(
    bench: Bench, parked: _Parked
) -> tuple[tuple[ops.Effect, ...], tuple[str, ...]]:
    row, event = parked.row, parked.event
    if row.consumer == RUNNER:
        return await _start_again(bench, row, event), ()
    definition = definition_of(bench.readers, row.consumer)
    # It has never gone through, so this is no replay of anything.
    effects = await call(
        definition.handler, bench.desk, row.consumer, [event], where=definition.where
    )
    return effects or (), definition.keys_of(event)


async def _start_again(
    bench: Bench, row: ParkedRecord, event: EventRecord
) -> tuple[ops.Effect, ...]:
    table = await load_table(bench.store, bench.desk, bench.readers, None)
    match = table.by_name.get(row.subscription)
    if match is None:
        raise Unstartable(f"there is no subscription {row.subscription!r} any more")
    start = table.start(match, event)
    if start is None:
        return ()  # it has been changed, and this event no longer matches
    return (ops.Effect(op=start, position=row.position, subscription=row.subscription),)


async def _find(store: Store, consumer: str, position: int, subscription: str) -> _Parked:
    row = await _row(store, consumer, position, subscription)
    if row is None:
        if consumer not in {one.name for one in await store.consumers()}:
            raise UnknownConsumer(consumer)
        raise BadValue("position", position, f"is not parked for {consumer!r}; see app.parked()")
    event = await event_at(store, position)
    if event is None:
        raise BadValue("position", position, "is no longer on the ledger; drop it")
    return _Parked(row, event)


async def _row(
    store: Store, consumer: str, position: int, subscription: str
) -> ParkedRecord | None:
    before = (consumer, position - 1, chr(0x10FFFF))
    rows = await store.parked(consumer, before, limits.page_rows_max)
    same = (one for one in rows if (one.position, one.subscription) == (position, subscription))
    return next(same, None)


# --- starts that were put off ------------------------------------------------------------------------


async def release(bench: Bench, position: int, subscription: str) -> bool:
    """Start what was put off, whatever bound it broke: whether it was there and could be started."""
    table = await load_table(bench.store, bench.desk, bench.readers, None)
    match = table.by_name.get(subscription)
    if match is None:
        raise UnknownSubscription(subscription)
    if match.rule is None:
        raise BadValue("subscription", subscription, "has functions in code that is not here")
    event = await event_at(bench.store, position)
    if event is None:
        raise BadValue("position", position, "is not on the ledger")
    drained = table.drained(match, event)
    *_, reason = drained
    return await _drain(bench, drained) and reason is None


async def drop(bench: Bench, position: int, subscription: str) -> bool:
    """Forget a start that was put off: whether it was there."""
    return await _drain(bench, (position, subscription, None, None))


async def _drain(bench: Bench, drained: Drained) -> bool:
    drain = ops.DrainDeferred(starts=(drained,), consumer=RUNNER, released=True)
    return (await bench.coordinator.submit(drain)).count > 0
