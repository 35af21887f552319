"""The worker's part that applies what callers sent with transactions of their own.

Nobody tells us when such a transaction commits. So the rows are looked for: by the worker's slow poll, whoever wrote
them; and, after a send in this process, soon and then ever later until that poll takes over. Two workers may find the
same row; the store applies it once. A row that fails is passed over and tried again at the next look: it holds up
nobody.
"""

import asyncio
import logging

from perdure.alarm import Alarm
from perdure.coordinator.coordinator import Coordinator
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.model.outbox import BadRow, decode_send
from perdure.model.outcomes import FromOutbox
from perdure.model.records import OutboxRecord
from perdure.service import Service
from perdure.store.base import Store

log = logging.getLogger("perdure.outbox")

# After a send: a caller mostly commits at once.
_first_look_us = 10_000
_last_look_us = 640_000
# Sends of this process that are looked for ahead of the slow poll; of more the poll hears in time.
_expected_max = 10_000


class Outbox(Service):
    """Finds what callers have committed, and has it applied."""

    def __init__(self, store: Store, coordinator: Coordinator, clock: Clock) -> None:
        super().__init__()
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._due = asyncio.Event()
        self._alarm = Alarm(clock, self._due.set)
        self._expected: set[str] = set()
        self._pause_us = _first_look_us
        self._busy = False

    def start(self) -> None:
        self._spawn("outbox", self._run)

    async def stop(self) -> None:
        self._alarm.clear()
        await super().stop()

    @property
    def idle(self) -> bool:
        return not self._busy and not self._due.is_set()

    def note(self) -> None:
        """There is something to be applied."""
        self._due.set()

    def expect(self, outbox_id: str) -> None:
        """A caller has written this row, and is going to commit it, or not."""
        if len(self._expected) < _expected_max:
            self._expected.add(outbox_id)
        self._pause_us = _first_look_us
        self._alarm.set(self._clock.now() + _first_look_us)

    async def _run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            self._busy = True
            try:
                await self._look()
            finally:
                self._busy = False
            self._look_again()

    def _look_again(self) -> None:
        """Those that were expected and did not come: a little later, or not before the slow poll."""
        if self._pause_us >= _last_look_us:
            self._expected.clear()
        if self._expected:
            self._pause_us *= 2
            self._alarm.set(self._clock.now() + self._pause_us)

    async def _look(self) -> None:
        # Always from the start: ids follow the calls and not the commits, so behind a page that was read there may
        # be by now the first send of a transaction whose second is yet to be read.
        failed: set[str] = set()
        more = True
        while more:
            limit = limits.outbox_rows_per_read + len(failed)
            rows = await self._store.outbox("", limit)
            fresh = [one for one in rows if one.outbox_id not in failed]
            if fresh:
                failed |= await self._apply(fresh)
            more = bool(fresh) and len(rows) == limit

    async def _apply(self, rows: list[OutboxRecord]) -> set[str]:
        """The ids of those that were not applied."""
        self._expected.difference_update(one.outbox_id for one in rows)
        outcomes = await self._coordinator.submit_many([_op_of(one) for one in rows])
        failed: set[str] = set()
        for row, outcome in zip(rows, outcomes, strict=True):
            if not isinstance(outcome, FromOutbox):
                log.error("the send %s was not applied yet: %s", row.outbox_id, outcome)
                failed.add(row.outbox_id)
                continue
            for reason in outcome.refused:
                log.warning("the send %s was refused: %s", row.outbox_id, reason)
        return failed


def _op_of(row: OutboxRecord) -> ops.ApplyOutbox:
    try:
        return ops.ApplyOutbox(outbox_id=row.outbox_id, send=decode_send(row.op))
    except BadRow as error:
        text = row.op[: limits.refused_send_chars_max]
        reason = f"the row cannot be read: {error}"
        return ops.ApplyOutbox(outbox_id=row.outbox_id, send=None, text=text, reason=reason)
