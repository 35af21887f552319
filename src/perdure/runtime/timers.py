"""Deadlines of the store, watched by this worker: it sleeps until the next one. No scan, no poll.

The store's index knows every deadline; we only keep the earliest. An alarm that rings too early finds nothing; one
that is missed is caught by the worker's slow poll.
"""

import asyncio

from perdure.alarm import Alarm
from perdure.coordinator.coordinator import Coordinator
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.observing.counts import Counts
from perdure.service import Service


class Timers(Service):
    """Fires what is due."""

    def __init__(
        self, coordinator: Coordinator, clock: Clock, counts: Counts | None = None
    ) -> None:
        super().__init__()
        self._counts = counts
        self._next_at: int | None = None  # the earliest that was noted, for who counts
        self._coordinator = coordinator
        self._clock = clock
        self._due = asyncio.Event()
        self._alarm = Alarm(clock, self._due.set)
        self.busy = False

    def start(self) -> None:
        self._spawn("timers", self._run)

    async def stop(self) -> None:
        self._alarm.clear()
        await super().stop()

    def note(self, at: int) -> None:
        """A deadline was set somewhere: make sure to be awake then."""
        self._alarm.set(at)
        if self._counts is not None:
            self._next_at = at if self._next_at is None else min(at, self._next_at)

    @property
    def idle(self) -> bool:
        return not self.busy and not self._due.is_set()

    async def _run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            self.busy = True
            try:
                await self._fire()
            finally:
                self.busy = False

    async def _fire(self) -> None:
        while True:
            due_at, self._next_at = self._next_at, None
            fired = await self._coordinator.submit(ops.FireTimers(limit=limits.batch_ops_max))
            if self._counts is not None and due_at is not None and fired.count:
                late_us = max(0, self._clock.now() - due_at)
                self._counts.timer_lateness.add(late_us / 1_000_000)
            if fired.next_at is None:
                return
            if fired.next_at > self._clock.now() or fired.count == 0:
                # A tick past the deadline: an event accepted at the deadline itself still wins.
                self.note(max(fired.next_at, self._clock.now() + 1))
                return
