"""What an open app does now and then: it looks for awaited runs that ended elsewhere, and prunes what is old.

Nothing here is needed to be right, only to hear of it in time and to stay small. It writes through the coordinator
like everybody else, in bounded chunks, and runs no code of workflows.
"""

import asyncio
from collections.abc import Callable

from perdure.coordinator.coordinator import Coordinator
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.service import Service
from perdure.store.base import Store

# A run that another process ends is noticed by this poll, if no hint comes before; one that ends here is told at once.
_endings_every_s = 2.0
_endings_soon_s = 0.5
_prune_every_s = 60.0
_prune_runs = 500


class Upkeep(Service):
    """The slow loops of one open app. Without `keep_us` nothing is pruned by itself."""

    def __init__(
        self, store: Store, coordinator: Coordinator, clock: Clock, keep_us: int | None
    ) -> None:
        super().__init__()
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._keep_us = keep_us
        self._ended: set[str] = set()  # runs that are said to have ended
        self._look_at_all = False  # something has happened elsewhere, and nobody knows what
        self._hinted = asyncio.Event()

    def start(self) -> None:
        self._spawn("endings", self._poll_endings)
        if self._keep_us is not None:
            self._spawn("prune", self._prune)

    def on_ended(self, run_id: str) -> None:
        """Another process has ended a run, they say: if somebody here awaits that, look at once."""
        if self._coordinator.hub.awaits(run_id):
            self._ended.add(run_id)
            self._hinted.set()

    def look(self) -> None:
        """Something happened in another process that nobody told of: look at once, if anybody here awaits anything."""
        self._look_at_all = True
        self._hinted.set()

    async def _poll_endings(self) -> None:
        every_s = _endings_every_s if self._store.sends_hints else _endings_soon_s
        while True:
            try:
                async with asyncio.timeout(every_s):
                    await self._hinted.wait()
            except TimeoutError:
                await self.tell_endings(self._coordinator.hub.awaited())
            else:
                self._hinted.clear()
                ended, self._ended = self._ended, set()
                all_of_them, self._look_at_all = self._look_at_all, False
                awaited = self._coordinator.hub.awaited() if all_of_them else list(ended)
                await self.tell_endings(awaited)

    async def tell_endings(self, run_ids: list[str]) -> None:
        """Tell those who await the end of one of these runs, if it has ended."""
        for first in range(0, len(run_ids), limits.page_rows_max):
            for run in await self._store.ended(run_ids[first : first + limits.page_rows_max]):
                # Only those who await it are told: what the worker holds may be a later life of the run.
                self._coordinator.hub.ending(run.run_id).tell(run)

    async def _prune(self) -> None:
        assert self._keep_us is not None
        while True:
            await asyncio.sleep(_prune_every_s)
            await prune_older(self._coordinator, self._clock, self._keep_us)


async def prune_older(
    coordinator: Coordinator,
    clock: Clock,
    age_us: int,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Delete what finished longer ago than this, a chunk for each commit so that nobody waits for long."""
    count, more = 0, True
    while more:
        op = ops.Prune(finished_before=clock.now() - age_us, limit=_prune_runs)
        pruned = await coordinator.submit(op)
        count, more = count + pruned.count, pruned.more
        if progress is not None:
            progress(count)
    return count
