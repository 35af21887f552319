"""One reader of the ledger: who owns its cursor, what wakes it, when its schedule ticks.

A reader claims its consumer and reads on from the cursor; its kind says what a read is, and commits what became of the
events together with the cursor. It never trusts its memory over the row: whoever steers the consumer or takes it over
makes the next commit fail, and the reader begins again from what is stored. Events that it does not want move only the
cursor in memory; that is saved now and then, not for each commit of others.

A live reader is woken by the commits of this process, one with a schedule by its ticks; a slow poll stands behind
both. A tick that finds nothing new costs a comparison.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

import msgspec

from perdure.alarm import Alarm
from perdure.coordinator.coordinator import Coordinator
from perdure.errors import CursorTooOld, PerdureError
from perdure.ledger.batches import Desk
from perdure.ledger.definitions import Begin, CatchUp, wanting
from perdure.ledger.schedule import Ticker
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.model.cron import Cron
from perdure.model.outcomes import CursorMoved, Fenced, Moved, Refusal
from perdure.model.records import ConsumerRecord, DeferredRecord, EventRecord, ParkedRecord
from perdure.model.topics import Pattern
from perdure.store.base import Store

log = logging.getLogger("perdure.ledger")

_chunk = limits.page_rows_max
# A batch is gathered from so many chunks at most: what it has found by then is not kept waiting.
_chunks_max = 10
# A cursor that only passed over events of no interest is saved when it is so far ahead, or after so long.
_unsaved_events_max = 1_000
_unsaved_us = 5_000_000


class Means(NamedTuple):
    """What every reader of an app works with."""

    store: Store
    coordinator: Coordinator
    clock: Clock
    die: Callable[[], float]
    desk: Desk

    @property
    def worker_id(self) -> str:
        """Who reads: the worker of this process, which may become another one."""
        return self.store.worker_id or ""


class CursorLost(Exception):
    """The consumer was steered, or is somebody else's now: what was under way is not committed."""


class Reader(ABC):
    """Reads on, for as long as `run` is awaited. Subclasses say what they want and how they deal with it."""

    def __init__(
        self,
        means: Means,
        name: str,
        patterns: Sequence[Pattern],
        cron: Cron | None,
        catch_up: CatchUp = "one",
        start: Begin = Begin(0, None),  # noqa: B008 (frozen)
        batch: int = _chunk,
    ) -> None:
        self.means = means
        self.name = name
        self.cron = cron
        self.batch = batch
        self.record: ConsumerRecord | None = None  # as last committed; None while it is not ours
        self.position = 0  # how far it has read
        self.wants = wanting(patterns)
        self._patterns = tuple(patterns)
        self._missed_ticks = catch_up
        self._start = start
        self._end = 0  # a hint of the head that proved wrong
        self._fence = 0
        self._woken = asyncio.Event()
        self._resting = False
        self._backing_off = False
        self._stale = False
        self._claim_due = True
        self._save_due = False
        self._due = False
        self._ticked = False  # a tick found nothing, of what is known here
        self._tick_unsure = False
        self._ticker = None if cron is None else Ticker(means.clock, cron, self._on_tick)
        self._saving = Alarm(means.clock, self._on_idle)

    # --- for subclasses ---

    @abstractmethod
    async def read(self) -> None:
        """Read on by a batch or more, do what is to be done about it, and commit that with the cursor."""

    def claimed(self) -> None:  # noqa: B027 (nothing, for most)
        """It is ours from now on."""

    def reached(self) -> int:
        """Up to where no event waits for it."""
        return self.position

    def has_more(self) -> bool:
        """Whether there is something to do apart from reading on."""
        return False

    async def do_more(self) -> None:  # noqa: B027 (nothing, for most)
        """Do a part of that."""

    # --- what others tell it ---

    def wake(self) -> None:
        """The ledger may have grown."""
        if self.cron is None:
            self._woken.set()

    def on_steered(self) -> None:
        """Somebody changed the row."""
        self._stale = True
        self._woken.set()

    def on_looked(self) -> None:
        """The end of the ledger was looked up: what others wrote before the last tick is known only now."""
        if self._ticked:
            self._ticked = False
            self._tick_unsure = True
            self._woken.set()

    def try_claim(self) -> None:
        """Look again whether it can be ours."""
        if self.record is None:
            self._claim_due = True
            self._woken.set()

    @property
    def is_to_stop(self) -> bool:
        """Whether no further batch may begin: somebody steered the consumer, by a hint or as its own commit showed."""
        return self._stale or self.record is None or self.record.paused

    @property
    def settled(self) -> bool:
        """Whether nothing happens until the clock moves or somebody does something."""
        if not self._resting or self._woken.is_set():
            return False
        return self._backing_off or not self._wants_to_read

    # --- the loop ---

    async def run(self) -> None:
        # After a failure too: whatever was under way, the row says where to go on.
        self.record, self._claim_due, self._backing_off = None, True, False
        try:
            while True:
                try:
                    await self._turn()
                except CursorLost:
                    self._backing_off = False
        finally:
            if self._ticker is not None:
                self._ticker.stop()
            self._saving.clear()

    async def _turn(self) -> None:
        if self.record is None:
            await (self._claim() if self._claim_due else self._rest())
        elif self._stale:
            await self._reload()
        elif self._save_due:
            await self._save()
        elif self._tick_unsure and self.cron is not None:
            self._tick_unsure = False
            self._due = self._due or (self._is_behind() and await self._is_overdue(self.cron))
        elif self._wants_to_read:
            await self._read_on()
        else:
            await self._rest()

    async def _rest(self) -> None:
        self._resting = True
        try:
            await self._woken.wait()
        finally:
            self._resting = False
        self._woken.clear()

    async def back_off(self, delay_us: int) -> None:
        """Wait by the clock; raises CursorLost if somebody steers the consumer meanwhile."""
        alarm = Alarm(self.means.clock, self._woken.set)
        until = self.means.clock.now() + delay_us
        self._backing_off = True
        try:
            while self.means.clock.now() < until:
                alarm.set(until)
                await self._rest()
                await self._heed()
        finally:
            self._backing_off = False
            alarm.clear()

    async def _heed(self) -> None:
        """Look what was changed, if anything was; raises CursorLost if what is under way is not to go on.

        A hint says only that somebody may have changed the row. One that proves empty must not cost a batch its
        count of tries.
        """
        known = self.record
        if not self._stale or known is None:
            return
        await self._reload()
        row = self.record
        if row is None or row.paused or (row.fence, row.position) != (known.fence, known.position):
            raise CursorLost

    @property
    def _wants_to_read(self) -> bool:
        record = self.record
        if record is None or record.paused:
            return False
        return self._due if self.cron is not None else self._is_behind()

    def _is_behind(self) -> bool:
        return self._has_unread() or self.has_more()

    def _has_unread(self) -> bool:
        return max(self.position, self._end) < self.means.store.head

    # --- whose it is, and where it stands ---

    async def _claim(self) -> None:
        self._claim_due = self._stale = False
        means = self.means
        self._fence = means.desk.ids.fence()
        cron = self.cron
        claim = ops.ClaimConsumer(
            name=self.name,
            worker_id=means.worker_id,
            fence=self._fence,
            patterns=msgspec.json.encode([one.text for one in self._patterns]).decode(),
            every=None if cron is None else cron.text,
            zone="UTC" if cron is None else cron.zone,
            start=self._start.position,
            start_at=self._start.at,
        )
        outcome = await means.coordinator.submit(claim)
        if isinstance(outcome, Refusal):
            return  # another process reads it; the slow poll asks again
        self.claimed()
        if self._ticker is not None:
            self._ticker.start()
        await self._accept(outcome)
        if cron is not None:
            self._due = await self._missed_tick(cron)

    async def _accept(self, record: ConsumerRecord) -> None:
        """Go on from this row. Whoever changed it since it was read has said so, and that stands."""
        self.record, self.position, self._end = record, record.position, 0
        self._saved()
        first, _ = await self.means.store.span()
        if record.position < first - 1 and not record.paused:
            await self.stop_too_old(first)

    async def _reload(self) -> None:
        self._stale = False
        known = self.record
        rows = await self.means.store.consumers()
        row = next((one for one in rows if one.name == self.name), None)
        if row is None or row.owner != self.means.worker_id:
            self.record, self._claim_due = None, True
        elif known is None or _place(row) != _place(known):
            self._fence = row.fence
            await self._accept(row)
        else:
            self.record = row

    async def _missed_tick(self, cron: Cron) -> bool:
        """Whether events were to be read at a tick while nobody was there, and are to be read now."""
        return self._missed_ticks != "skip" and await self._is_overdue(cron)

    async def _is_overdue(self, cron: Cron) -> bool:
        """Whether there was a tick since the first of the events that it has to read."""
        unread = await self.means.store.events(self.position, 1)
        return bool(unread) and cron.has_tick(unread[0].recorded_at, self.means.clock.now())

    async def stop_too_old(self, oldest: int) -> None:
        """Never skip in silence: it stays paused until an operator says where to go on."""
        await self.stop_reading(str(CursorTooOld(self.name, oldest)))

    async def stop_reading(self, reason: str) -> NoReturn:
        """It stays paused where it stands, until an operator resumes it."""
        log.error("consumer %r is paused: %s", self.name, reason)
        pause = ops.SteerConsumer(name=self.name, paused=True, reason=reason)
        await self.means.coordinator.submit(pause)
        self._stale = True
        raise CursorLost

    def _on_tick(self) -> None:
        if self.record is not None and self._is_behind():
            self._due = True
            self._woken.set()
        else:
            self._ticked = True

    # --- reading ---

    async def _read_on(self) -> None:
        """One read of a live reader; of one with a schedule all that was there at the tick.

        What else there is to do comes first, so that what a tick puts off is left to the next one.
        """
        if self.has_more():
            await self.do_more()
        if self.cron is None:
            if self._has_unread() and not self._stale:
                await self.read()
            return
        until = self.means.store.head
        await self.read()
        while max(self.position, self._end) < until:
            if self.is_to_stop:
                return  # the tick is not over: it goes on from the row
            await self.read()
        self._due = self.is_to_stop

    async def gather(self) -> tuple[list[EventRecord], int]:
        """What it wants of the next events, up to about a batch, and how far they were looked through."""
        found: list[EventRecord] = []
        upto = self.position
        for _ in range(_chunks_max):
            # A long way through a store that answers at once holds up nobody.
            await asyncio.sleep(0)
            head = self.means.store.head
            records = await self.means.store.events(upto, _chunk)
            if not records:
                self._end = head
                break
            if records[0].position != upto + 1:  # positions are dense
                await self.stop_too_old(records[0].position)
            upto = records[-1].position
            found += [one for one in records if self.wants(one.type)]
            if len(records) < _chunk or len(found) >= self.batch:
                break
        return found, upto

    def pass_over(self, upto: int) -> None:
        """Nothing up to there was of interest."""
        if upto == self.position or self.record is None:
            return
        self.position = upto
        if upto - self.record.position >= _unsaved_events_max:
            self._save_due = True
        else:
            self._saving.set(self.means.clock.now() + _unsaved_us)

    def _on_idle(self) -> None:
        if self.record is not None and self.position != self.record.position:
            self._save_due = True
            self._woken.set()

    def _saved(self) -> None:
        self._save_due = False
        self._saving.clear()

    async def _save(self) -> None:
        self._save_due = False
        if self.record is not None and self.position != self.record.position:
            await self.commit(self.position, error=self.record.error)

    async def leave(self) -> None:
        """The app closes: save how far it has read, if that is not stored.

        What nothing wanted is read again if the store does not take it: no reason to fail the close.
        """
        if self._stale:
            return
        try:
            await self._save()
        except CursorLost:
            pass
        except PerdureError:
            log.warning("how far consumer %r has read was not saved", self.name, exc_info=True)

    # --- committing ---

    async def commit(
        self,
        position: int,
        *,
        effects: Sequence[ops.Effect] = (),
        parked: Sequence[ParkedRecord] = (),
        deferred: Sequence[DeferredRecord] = (),
        finished: Sequence[str] = (),
        error: str | None = None,
        caught_up: tuple[str, int] | None = None,
    ) -> None:
        """Move the cursor, with all that belongs to it; raises CursorLost if it is not where it was.

        `caught_up` names a subscription and how far it had come: then its own cursor moves instead.
        """
        if self.record is None:
            raise CursorLost
        name, seen = (None, self.record.position) if caught_up is None else caught_up
        advance = ops.AdvanceCursor(
            name=self.name,
            fence=self._fence,
            seen=seen,
            position=position,
            effects=tuple(effects),
            parked=tuple(parked),
            deferred=tuple(deferred),
            finished=tuple(finished),
            error=error,
            caught_up=name,
        )
        match await self.means.coordinator.submit(advance):
            case CursorMoved(consumer=record):
                self.record = record
                if caught_up is None:
                    self.position = position
                    self._saved()
            case Moved() | Fenced():
                self._stale = True
                raise CursorLost


def _place(row: ConsumerRecord) -> tuple[int, int, bool]:
    """What an operator may have changed. The fence too: a rewind to where the row stands is one all the same, for we
    may have read on without saying so."""
    return row.fence, row.position, row.paused
