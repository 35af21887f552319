"""The worker's slow loop: it keeps the lease, and finds what nobody was told of.

A wake is a hint that may be lost; the store is the truth. So it is asked again and again: for runs that dead workers
left, for parked runs that could never wake, for what is due. On a healthy store that finds nothing and writes nothing.
The lease is the worker's: one row for each process start.
"""

import asyncio
from collections.abc import Callable

from perdure.coordinator.coordinator import Coordinator
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.service import Service
from perdure.store.base import Due, Store

_lease_us = 30_000_000
_beat_every_s = 10.0
_sweep_runs = 1000


class Recovery(Service):
    """Looks at the store every `poll_s`, for one worker; `on_due` hears what is due of the workflows it knows."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator,
        clock: Clock,
        worker_id: str,
        poll_s: float,
        workflows: Callable[[], tuple[tuple[str, int], ...]],
        on_due: Callable[[Due], None],
    ) -> None:
        super().__init__()
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._worker_id = worker_id
        self._poll_s = poll_s
        self._workflows = workflows
        self._on_due = on_due
        self._sweep_after = ""

    def start(self) -> None:
        self._spawn("upkeep", self._run)

    async def _run(self) -> None:
        beaten_at = self._clock.monotonic()
        while True:
            await asyncio.sleep(self._poll_s)
            if self._store.needs_beats and self._clock.monotonic() - beaten_at > _beat_every_s:
                beaten_at = self._clock.monotonic()
                await self.beat()
            await self.recover()
            await self.look()

    async def beat(self) -> None:
        """Say that the worker lives."""
        await self._coordinator.submit(ops.Beat(worker_id=self._worker_id, lease_us=_lease_us))

    async def recover(self) -> None:
        """Adopt what dead workers left, and heal a slice of the parked runs."""
        suspects, self._sweep_after = await self._store.sweep(self._sweep_after, _sweep_runs)
        orphaned = await self._store.has_orphans()
        while suspects or orphaned:
            recover = ops.Recover(limit=limits.batch_ops_max, suspects=tuple(suspects))
            recovered = await self._coordinator.submit(recover)
            suspects, orphaned = [], recovered.more

    async def look(self) -> None:
        """Ask what is due, or was left to be done."""
        self._on_due(await self._store.due(self._workflows()))
