"""The worker's lease: one row for each process start, by which others know that it lives.

A store knows its workers by locks of the system, or else by a time up to which each is to be believed; then it
prolongs that in a thread of its own. A lease that is lost, because the process stood still or the store was out of
reach, is never taken up again: others may have the runs by now. The worker lets go of all it holds and goes on as
another one, under a new id.
"""

import threading
from collections.abc import Callable

from perdure.coordinator.coordinator import Coordinator
from perdure.model import ops
from perdure.model.ids import Ids
from perdure.store.base import Look, Store

# Of five life signs in a row four may be lost or late.
_beats_per_lease = 5


class Lease:
    """Takes, keeps and gives up the lease of one worker; `on_lost` hears when it is gone."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator,
        ids: Ids,
        lease_s: float,
        on_lost: Callable[[], None],
        workflows: Callable[[], tuple[tuple[str, int], ...]] = tuple,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._ids = ids
        self._lease_s = lease_s
        self._on_lost = on_lost
        self._workflows = workflows
        self._told: tuple[tuple[str, int], ...] = ()  # which workflows others know that we execute
        self._lost_ids: list[str] = []  # under which we were known before
        self.worker_id = ids.ulid()
        self.held_as: str | None = None  # None until it is taken

    @property
    def is_held(self) -> bool:
        """Whether others take this worker for alive, as far as it knows."""
        return self.held_as is not None

    async def take(self) -> None:
        """Give the first life sign, and see to it that more follow."""
        self._store.worker_id = self.worker_id
        await self.beat()
        self.held_as = self.worker_id
        self._store.on_lost_lease = self.lose
        self._store.start_beating(self.worker_id, self._lease_s, self._lease_s / _beats_per_lease)

    async def beat(self) -> None:
        """Give a life sign with the writes: it is committed after all that was posted before it."""
        lease_us = round(self._lease_s * 1_000_000)
        self._told = self._workflows()
        beat = ops.Beat(worker_id=self.worker_id, lease_us=lease_us, workflows=self._told)
        await self._coordinator.submit(beat)

    @property
    def is_outdated(self) -> bool:
        """Whether others do not know of all workflows that this worker executes by now."""
        return self.is_held and self._told != self._workflows()

    def check(self, look: Look, held_as: str | None) -> None:
        """Somebody has looked who lives; `held_as` is under which id the lease was held when the look began."""
        if held_as is not None and held_as == self.held_as and held_as not in look.workers:
            self.lose()

    def lose(self) -> None:
        """The lease is gone: from now on this is another worker, which has yet to `renew`."""
        if self.held_as is None:
            return
        self._store.stop_beating()
        self._lost_ids.append(self.worker_id)
        self.held_as = None
        self.worker_id = self._store.worker_id = self._ids.ulid()
        self._on_lost()

    async def renew(self) -> None:
        """Take a new lease. The old one is given up for good: if it only ran out, its runs are others' at once."""
        while self._lost_ids:
            await self._say_goodbye(self._lost_ids[0])
            del self._lost_ids[0]
        await self.take()

    def outlast(self, until: threading.Event) -> None:
        """Give life signs beyond the close, until then or the end of the process: what this worker has is not to be
        taken before. What tells of it is the store's own."""
        self._store.outlive(until)
        self._store.on_lost_lease = self.held_as = None
        self._store.worker_id = None

    async def leave(self) -> None:
        """Say that this worker is no more."""
        self._store.stop_beating()
        self._store.on_lost_lease = self.held_as = None
        try:
            await self._say_goodbye(self.worker_id)
        finally:
            self._store.worker_id = None

    async def _say_goodbye(self, worker_id: str) -> None:
        farewell = ops.Beat(worker_id=worker_id, lease_us=0, stopping=True)
        await self._coordinator.submit(farewell)
