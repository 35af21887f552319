"""The lines of pools with limits, watched by this worker: it has runs let through when that may be possible.

That is when a slot is given back, when somebody comes to stand in line, when limits change, and when a rate says so.
The store decides, so any number of workers may ask; who finds nothing to do has written nothing. A hint that is missed
is caught by the worker's slow look, which says in which lines something may move.
"""

import asyncio
import heapq
from collections.abc import Callable, Sequence

from perdure.alarm import Alarm
from perdure.coordinator.coordinator import Coordinator
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.model.outcomes import Admitted
from perdure.model.pools import try_at
from perdure.model.records import LineLook
from perdure.service import Service

# Admissions in a row that let nobody through, each going on along the keys where the last one ended. The next look goes
# on after that.
_idle_max = 64
# A look cannot tell that all who wait are kept back by limits of their keys. As long as it shows the same as before an
# admission that was in vain, the next one may wait; who hears of a change does not ask this.
_vain_us = 10 * 1_000_000
# How often slots are looked for that are held by those who cannot use them: a look cannot tell that either.
_take_back_us = 60 * 1_000_000
# Runs that are to start later, each at a time of its own: those that this process was told of.
_moments_max = 10_000


class Moments:
    """When it is worth asking of which pool: each moment counts, for another run may be due then."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._known: set[tuple[int, str]] = set()

    def add(self, at: int, pool: str) -> bool:
        """Whether it is kept: what there is no room for a look will find."""
        one = (at, pool)
        if one not in self._known and len(self._heap) < _moments_max:
            self._known.add(one)
            heapq.heappush(self._heap, one)
        return one in self._known

    @property
    def first_at(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> list[str]:
        """The pools whose moment has come; it is over then."""
        pools: dict[str, None] = {}
        while self._heap and self._heap[0][0] <= now:
            one = heapq.heappop(self._heap)
            self._known.discard(one)
            pools[one[1]] = None
        return list(pools)


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
        self._asked: dict[str, None] = {}  # pools of which it is worth asking now
        self._later = Moments()
        self._vain: dict[
            str, tuple[LineLook, int]
        ] = {}  # as a look showed them, and when that was tried
        self._taken_back: dict[str, int] = {}  # when unused slots were last looked for
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
        if at <= self._clock.now():
            self._asked[pool] = None
            self._due.set()
        elif self._later.add(at, pool):
            self._alarm.set(at)

    def note_all(self, lines: Sequence[LineLook]) -> None:
        """What a look has found."""
        now = self._clock.now()
        tried, self._vain = self._vain, {}
        for line in lines:
            at = try_at(line, now)
            if at is None and self._takes_back(line.name):
                at = now
            if at is None:
                continue
            seen, tried_at = tried.get(line.name, (line, now))
            if line.name in tried and seen == line and 0 <= now - tried_at < _vain_us:
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
        """One admission of each by turns: a pool with thousands to let through keeps no other waiting."""
        busy: dict[str, int] = {}  # pools, and how many admissions in a row let nobody through
        while self._join(busy):
            pool, idle = next(iter(busy.items()))
            del busy[pool]
            admitted = await self._admit(pool)
            idle = 0 if admitted.count else idle + 1
            self._join(busy)
            if admitted.more and idle < _idle_max:
                busy[pool] = idle
        first_at = self._later.first_at
        if first_at is not None:
            # The store's clock may be a little behind ours: not again before that has moved.
            self._alarm.set(max(first_at, self._clock.now() + 1))

    def _join(self, busy: dict[str, int]) -> bool:
        """Add the pools that are due by now; gives whether there are any to be dealt with."""
        for pool in (*self._asked, *self._later.due(self._clock.now())):
            busy.setdefault(pool, 0)
        self._asked.clear()
        return bool(busy)

    async def _admit(self, pool: str) -> Admitted:
        takes_back = self._takes_back(pool)
        admit = ops.AdmitRuns(
            pool=pool,
            limit=limits.admitted_per_commit_max,
            workflows=self._workflows(),
            takes_back=takes_back,
        )
        admitted = await self._coordinator.submit(admit)
        if takes_back and not admitted.more:
            self._taken_back[pool] = self._clock.now()
        if admitted.next_at is not None:
            self.note(pool, max(admitted.next_at, self._clock.now() + 1))
        return admitted

    def _takes_back(self, pool: str) -> bool:
        since = self._clock.now() - self._taken_back.get(pool, -_take_back_us)
        return not 0 <= since < _take_back_us


async def declare(
    coordinator: Coordinator,
    declared: Sequence[tuple[str, str | None]],
    *,
    only_new: bool = False,
) -> None:
    """Record the pools that code names."""
    if declared:
        await coordinator.submit(ops.DeclarePools(pools=tuple(declared), only_new=only_new))
