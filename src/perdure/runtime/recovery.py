"""The worker's slow loop: it finds what nobody was told of.

A wake is a hint that may be lost; the store is the truth. So it is asked again and again, by one read that brings all
that anybody in this process polls for: runs that dead workers left, parked runs that could never wake, what is due, how
far the ledger goes, who reads it. What concerns others is handed to them. On a healthy store that finds nothing and
writes nothing.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence

from perdure.coordinator.coordinator import Coordinator
from perdure.errors import OutcomeUnknown, StoreRefused
from perdure.model import limits, ops
from perdure.runtime.lease import Lease
from perdure.service import Service
from perdure.store.base import Look, Store

log = logging.getLogger("perdure.recovery")

_sweep_runs = 1000
# What costs a read of its own (waits with filters, rules, starts that were put off) is asked for at each fifth look;
# where others tell of it, at each tenth.
_looks_per_thorough = 5
_looks_per_thorough_with_hints = 10

# Hears what a look has found, and whether it is a thorough one.
Hear = Callable[[Look, bool], None]


class Recovery(Service):
    """Looks at the store every `poll_s` or so, for one worker, and passes on what it saw to `hearers`."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator,
        lease: Lease,
        jitter: Callable[[], float],
        poll_s: float,
        workflows: Callable[[], tuple[tuple[str, int], ...]],
        pools: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._coordinator = coordinator
        self._lease = lease
        self._jitter = jitter
        self._poll_s = poll_s
        self._workflows = workflows
        self._pools = pools
        self._swept = ""
        self._missed = asyncio.Event()
        self.hearers: list[Hear] = []

    def start(self) -> None:
        self._spawn("look", self._run)

    async def _run(self) -> None:
        hints = self._store.sends_hints
        every = _looks_per_thorough_with_hints if hints else _looks_per_thorough
        for nth in itertools.count(1):
            missed = await self._until_due()
            await self.look(thorough=missed or nth % every == 0)

    async def _until_due(self) -> bool:
        """Whether something was missed; else the time has come."""
        try:
            # Or many workers that were started at once would all ask at the same instant, for ever.
            async with asyncio.timeout(self._poll_s * (0.75 + self._jitter() / 2)):
                await self._missed.wait()
        except TimeoutError:
            return False
        self._missed.clear()
        return True

    def look_soon(self) -> None:
        """Another process has done something that nobody told of: do not wait for the next look, and look at all."""
        self._missed.set()

    async def look(self, *, thorough: bool) -> None:
        """Ask what there is to do; tell the others, adopt what dead workers left, heal a slice of the parked runs."""
        held_as = self._lease.held_as
        look = await self._store.look(self._workflows(), self._swept, _sweep_runs, self._pools)
        self._swept = look.swept
        self._lease.check(look, held_as)
        # Before anything is written: a recovery that the store refuses must not keep the rest waiting.
        for hear in self.hearers:
            hear(look, thorough)
        if look.suspects or look.orphaned:
            try:
                await self._recover(look.suspects)
            except (StoreRefused, OutcomeUnknown) as error:
                log.error(
                    "what dead workers left was not adopted, the next look tries again: %s", error
                )

    async def _recover(self, suspects: tuple[str, ...]) -> None:
        more = True
        while more:
            recover = ops.Recover(limit=limits.batch_ops_max, suspects=suspects)
            more = (await self._coordinator.submit(recover)).more
            suspects = ()
