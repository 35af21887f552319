"""The lines of pools with limits, watched by this worker: it has runs let through when that may be possible.

That is when a slot is given back, when somebody comes to stand in line, when limits change, and when a rate says so.
The store decides, so any number of workers may ask; who finds nothing to do has written nothing. A hint that is missed
is caught by the worker's slow look, which says in which lines something may move.
"""

import asyncio
from collections.abc import Callable, Sequence

from perdure.alarm import Alarm
from perdure.coordinator.coordinator import Coordinator
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.model.pools import try_at
from perdure.model.records import LineLook
from perdure.service import Service

# Admissions in a row that let nobody through, each going on along the keys where the last one ended. The next look goes
# on after that.
_idle_max = 64
# A look cannot tell that all who wait are kept back by limits of their keys. As long as it shows the same as before an
# admission that was in vain, the next one may wait; who hears of a change does not ask this.
_vain_us = 10 * 1_000_000


class Lines(Service):
    """Has runs let through from the lines of the pools that this worker serves (None: all)."""

    def __init__(
        self,
        coordinator: Coordinator,
        clock: Clock,
        workflows: Callable[[], tuple[tuple[str, int], ...]],
        declared: Sequence[tuple[str, str | None]] = (),
        pools: frozenset[str] | None = None,
    ) -> None:
        super().__init__()
        self._coordinator = coordinator
        self._clock = clock
        self._workflows = workflows
        self._declared = tuple(declared)
        self._pools = pools
        self._later: dict[str, int] = {}  # pools, and when it is worth asking
        self._vain: dict[
            str, tuple[LineLook, int]
        ] = {}  # as a look showed them, and when that was tried
        self._due = asyncio.Event()
        self._alarm = Alarm(clock, self._due.set)
        self._busy = False

    async def start(self) -> None:
        await declare(self._coordinator, self._declared)
        self._spawn("lines", self._run)

    async def stop(self) -> None:
        self._alarm.clear()
        await super().stop()

    def note(self, pool: str, at: int) -> None:
        """Something may move there from then on, somebody says."""
        if self.stopping or (self._pools is not None and pool not in self._pools):
            return
        self._later[pool] = min(at, self._later.get(pool, at))
        if at <= self._clock.now():
            self._due.set()
        else:
            self._alarm.set(at)

    def note_all(self, lines: Sequence[LineLook]) -> None:
        """What a look has found."""
        now = self._clock.now()
        tried, self._vain = self._vain, {}
        for line in lines:
            at = try_at(line)
            if at is None:
                continue
            seen, tried_at = tried.get(line.name, (line, now))
            if line.name in tried and seen == line and now - tried_at < _vain_us:
                self._vain[line.name] = seen, tried_at
                continue
            self._vain[line.name] = line, now
            self.note(line.name, at)

    @property
    def idle(self) -> bool:
        return not self._busy and not self._due.is_set()

    async def _run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            self._busy = True
            try:
                await self._admit_due()
            finally:
                self._busy = False

    async def _admit_due(self) -> None:
        now = self._clock.now()
        for pool in [one for one, at in self._later.items() if at <= now]:
            del self._later[pool]
            await self._admit(pool)
        if self._later:
            # The store's clock may be a little behind ours: not again before that has moved.
            self._alarm.set(max(min(self._later.values()), self._clock.now() + 1))

    async def _admit(self, pool: str) -> None:
        idle = 0
        while idle < _idle_max:
            admit = ops.AdmitRuns(
                pool=pool, limit=limits.admitted_per_commit_max, workflows=self._workflows()
            )
            admitted = await self._coordinator.submit(admit)
            if admitted.next_at is not None:
                self.note(pool, max(admitted.next_at, self._clock.now() + 1))
            if not admitted.more:
                return
            idle = 0 if admitted.count else idle + 1


async def declare(
    coordinator: Coordinator,
    declared: Sequence[tuple[str, str | None]],
    *,
    only_new: bool = False,
) -> None:
    """Record the pools that code names."""
    if declared:
        await coordinator.submit(ops.DeclarePools(pools=tuple(declared), only_new=only_new))
