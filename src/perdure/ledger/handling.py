"""Consumers that code defines: a handler is called with batches, and its sends are committed with the cursor.

A batch that fails is tried again as its policy says, then one event at a time; the event that fails alone is parked
with the reason and the cursor goes on. A handler may say more than that it failed: `Permanent` that trying again is of
no use, `RetryAfter` when to. One that is cut off by the end of the app has not failed. With dedupe, events whose key
this consumer has dealt with are left out; a key is remembered in the commit that deals with it.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence

from perdure.errors import Permanent, RetryAfter, StoreRefused
from perdure.ledger.batches import Batch, Desk
from perdure.ledger.definitions import ConsumerDef, Handler, Where
from perdure.ledger.expressions import Filter
from perdure.ledger.reader import Means, Reader
from perdure.ledger.rules import ENDS_THE_PROCESS, own_key, told
from perdure.model import ops
from perdure.model.events import Event, event_of
from perdure.model.keys import consumer_scope
from perdure.model.policy import next_delay_us
from perdure.model.records import EventRecord, ParkedRecord
from perdure.store.base import Store

log = logging.getLogger("perdure.ledger")


class StopConsumer(Exception):
    """Raised by a handler of the engine's own: nobody wants this any more, so the consumer is paused."""


class HandlerFailed(Exception):
    """What a handler raised, in words that can be stored, and what follows from it."""

    def __init__(self, words: str, error: BaseException | None = None) -> None:
        super().__init__(words)
        self.permanent = isinstance(error, Permanent | StopConsumer)
        self.stops = isinstance(error, StopConsumer)
        # A subclass may not have called ours.
        self.delay_us = getattr(error, "delay_us", None) if isinstance(error, RetryAfter) else None
        self.tries = 1


class HandlerReader(Reader):
    """Runs one consumer of the app."""

    def __init__(self, means: Means, definition: ConsumerDef) -> None:
        super().__init__(
            means,
            definition.name,
            definition.patterns,
            definition.cron,
            definition.catch_up,
            definition.start,
            definition.batch,
        )
        self._definition = definition

    async def read(self) -> None:
        found, upto = await self.gather()
        if not found:
            self.pass_over(upto)
        for part, until in _parts(found, upto, self.batch):
            await self._deal_with(part, until)
            if self.is_to_stop:
                return

    async def _deal_with(self, records: list[EventRecord], upto: int) -> None:
        fresh = records
        keys: tuple[str, ...] = ()
        if self._definition.dedupe:
            now = self.means.clock.now()
            fresh, keys = await unfinished(self.means.store, self.name, records, now)
        if not fresh:
            self.pass_over(upto)
            return
        try:
            await self._insist(fresh, upto, keys)
        except HandlerFailed as failed:
            if failed.stops:
                await self.stop_reading(str(failed))
            elif len(fresh) == 1:  # it has had its tries
                await self._park(fresh[0], upto, str(failed), failed.tries)
            else:
                await self._one_by_one(fresh, upto, failed.tries + 1)

    async def _insist(self, records: list[EventRecord], upto: int, keys: tuple[str, ...]) -> None:
        """Call the handler and commit what it wants until both succeed, or its policy gives up."""
        attempt = 1
        while True:
            try:
                await self._call_and_commit(records, upto, keys)
                return
            except HandlerFailed as failed:
                failed.tries = attempt
                delay_us = next_delay_us(self._definition.retry, attempt, self.means.die())
                if delay_us is None or failed.permanent:
                    raise
                if failed.delay_us is not None:
                    delay_us = failed.delay_us
                await self._tell(str(failed))
            attempt += 1
            await self.back_off(delay_us)

    async def _call_and_commit(
        self, records: list[EventRecord], upto: int, keys: Sequence[str]
    ) -> None:
        """What a store does not take (more than it can hold, perhaps) is a failure of the batch like any other.

        If the store takes nothing at all, it says so, or telling of the failure fails too, and all begins again later.
        """
        definition = self._definition
        effects = await call(
            definition.handler, self.means.desk, self.name, records, where=definition.where
        )
        if effects is None:
            self.pass_over(upto)
            return
        try:
            await self.commit(upto, effects=effects, finished=keys)
        except StoreRefused as refused:
            if refused.passing:
                raise
            raise HandlerFailed(told(refused)) from refused

    async def _tell(self, error: str) -> None:
        """Let everybody see why the consumer does not get on."""
        if self.record is not None and self.record.error != error:
            await self.commit(self.position, error=error)

    async def _one_by_one(self, records: list[EventRecord], upto: int, tries: int) -> None:
        """Each event has one more try of its own, so that the others do not suffer; who fails alone is parked."""
        for alone, until in _parts(records, upto, 1):
            try:
                await self._call_and_commit(alone, until, self._definition.keys_of(alone[0]))
            except HandlerFailed as failed:
                await self._park(alone[0], until, str(failed), tries)
            if self.is_to_stop:
                return  # each was a batch of its own: the rest is read again from the cursor

    async def _park(self, record: EventRecord, upto: int, reason: str, tries: int) -> None:
        log.error("consumer %r parks event %s: %s", self.name, record.event_id, reason)
        parked = parked_record(self.name, record, reason, tries)
        await self.commit(upto, parked=(parked,), error=reason)


def _parts(
    found: list[EventRecord], upto: int, size: int
) -> Iterator[tuple[list[EventRecord], int]]:
    """The events in batches, each with how far the cursor may go once it is dealt with."""
    for first in range(0, len(found), size):
        rest = first + size
        until = upto if rest >= len(found) else found[rest].position - 1
        yield found[first:rest], until


async def call(
    handler: Handler,
    desk: Desk,
    consumer: str,
    records: list[EventRecord],
    *,
    where: Where | None = None,
    replay: bool = False,
    key_suffix: str = "",
) -> tuple[ops.Effect, ...] | None:
    """Call a handler with these events: what it wants done, or HandlerFailed. None if no event is as `where` says."""
    events = [event for one in records if _matches(where, one, event := event_of(one))]
    if not events:
        return None
    batch = Batch(desk, consumer, events, replay=replay, key_suffix=key_suffix)
    try:
        called = handler(batch)
        seen = desk.observed
        await (called if seen is None else seen.consume(consumer, events, called))
        if _is_cancelled():  # a handler that swallows that must not keep the app open
            raise asyncio.CancelledError
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise  # the app closes
        raise HandlerFailed("CancelledError: the handler cancelled itself") from error
    except ENDS_THE_PROCESS:
        raise
    except BaseException as error:
        log.warning("the handler of consumer %r failed", consumer, exc_info=True)
        raise HandlerFailed(told(error), error) from error
    finally:
        effects = batch.close()
    return effects


def _matches(where: Where | None, record: EventRecord, event: Event) -> bool:
    """What cannot be told by now cannot be told later either."""
    if where is None:
        return True
    try:
        return where.test(record) if isinstance(where, Filter) else bool(where(event))
    except ENDS_THE_PROCESS:
        raise
    except BaseException as error:
        raise HandlerFailed(f"where: {told(error)}", Permanent()) from error


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def unfinished(
    store: Store, consumer: str, records: list[EventRecord], now: int
) -> tuple[list[EventRecord], tuple[str, ...]]:
    """The events whose key the consumer has not dealt with, of equal ones the first, and those keys."""
    keys = {one.position: own_key(one) for one in records}
    asked = [key for key in dict.fromkeys(keys.values()) if key is not None]
    done = await store.known_keys(consumer_scope(consumer), asked, now) if asked else set()
    fresh: list[EventRecord] = []
    for record in records:
        key = keys[record.position]
        if key is None or key not in done:
            fresh.append(record)
        if key is not None:
            done.add(key)
    return fresh, tuple(key for one in fresh if (key := keys[one.position]) is not None)


def parked_record(
    consumer: str, record: EventRecord, reason: str, attempts: int = 1, subscription: str = ""
) -> ParkedRecord:
    """An event to park; the store says when."""
    return ParkedRecord(
        consumer=consumer,
        position=record.position,
        subscription=subscription,
        event_id=record.event_id,
        type=record.type,
        reason=reason,
        attempts=attempts,
        parked_at=0,
    )
