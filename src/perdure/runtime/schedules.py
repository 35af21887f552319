"""The schedules of a store, watched by this worker: it sleeps until the next tick. No scan, no poll.

The store knows when each is due; we only keep the earliest, of workflows whose code is here. Every worker is awake at a
tick and asks for it, and the store gives it to one: the others are told when the next one is. An alarm that rings too
early finds nothing; one that is missed is caught by the worker's slow poll.
"""

import asyncio
from collections.abc import Sequence

from perdure.alarm import Alarm
from perdure.coordinator.coordinator import Coordinator
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.model.records import ScheduleRecord
from perdure.registry import Registry
from perdure.service import Service


class Schedules(Service):
    """Has the store deal with the ticks that have come, and records the schedules that code declares."""

    def __init__(
        self,
        coordinator: Coordinator,
        clock: Clock,
        registry: Registry,
        declared: Sequence[ScheduleRecord] = (),
    ) -> None:
        super().__init__()
        self._coordinator = coordinator
        self._clock = clock
        self._registry = registry
        self._declared = declared
        self._due = asyncio.Event()
        self._alarm = Alarm(clock, self._due.set)
        self._busy = False

    async def start(self) -> None:
        puts = [ops.PutSchedule(schedule=one) for one in self._declared]
        for outcome in await self._coordinator.submit_many(puts):
            if isinstance(outcome, BaseException):
                raise outcome
        self._spawn("schedules", self._run)

    async def stop(self) -> None:
        self._alarm.clear()
        await super().stop()

    def note(self, at: int) -> None:
        """One is due then, somebody says: make sure to be awake."""
        if not self.stopping:
            self._alarm.set(at)

    @property
    def idle(self) -> bool:
        return not self._busy and not self._due.is_set()

    async def _run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            self._busy = True
            try:
                await self._fire()
            finally:
                self._busy = False

    async def _fire(self) -> None:
        while True:
            fire = ops.FireSchedules(
                limit=limits.schedule_starts_per_commit,
                workflows=self._registry.newest_keys(),
                pools=self._registry.newest_pools(),
            )
            fired = await self._coordinator.submit(fire)
            if fired.next_at is None:
                return
            if fired.next_at > self._clock.now() or fired.count == 0:
                # The store's clock may be a little behind ours: not again before that has moved.
                self.note(max(fired.next_at, self._clock.now() + 1))
                return
