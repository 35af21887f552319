"""What a worker process does now and then for the ledger: tell of stalls, let old events go, forget old keys.

By the injected clock, and in bounded chunks. Nothing here is needed to be right; on a healthy store without
retention it writes nothing. Several processes may do the same at once: every write is conditional or has a key.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from perdure.alarm import Alarm
from perdure.coordinator.coordinator import Coordinator
from perdure.ledger.health import ConsumerHealth, consumers_health
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.model.outcomes import Trimmed
from perdure.store.base import Rewound, Store

log = logging.getLogger("perdure.ledger")

_every_us = 10 * 60 * 1_000_000
_keys_every_us = 3600 * 1_000_000
_held_us = 3600 * 1_000_000
_chunk = limits.batch_ops_max
# A consumer that has not moved for so long is taken for abandoned: it does not keep the ledger from being trimmed.
_idle_us = 30 * 24 * 3600 * 1_000_000


class Watch:
    """The slow loop. Without bounds the ledger is kept for ever."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator,
        clock: Clock,
        ids: Ids,
        position_of: Callable[[str], int | None],
        *,
        keep_us: int | None,
        keep_events: int | None,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._ids = ids
        self._position_of = position_of  # how far a reader of this process has come
        self._keep_us = keep_us
        self._keep_events = keep_events
        self._due = asyncio.Event()
        self._busy = False
        self._alarm = Alarm(clock, self._due.set)
        self._read_upto = -1  # where the ledger ended when every consumer had read all of it
        self._told: set[tuple[str, int]] = set()  # stalls that were told of and go on
        self._keys_at = 0
        self._trim_at = 0 if keep_us is not None or keep_events is not None else limits.int_max

    @property
    def settled(self) -> bool:
        return not self._busy and not self._due.is_set()

    async def run(self) -> None:
        self._store.on_rewound = self._due.set
        try:
            while True:
                self._alarm.set(self._clock.now() + _every_us)
                await self._due.wait()
                self._due.clear()
                self._busy = True
                await self._look()
                self._busy = False
        finally:
            self._store.on_rewound = None
            self._busy = False
            self._alarm.clear()

    async def _look(self) -> None:
        if self._store.rewound is not None:
            await self._tell_loss(self._store.rewound)
        head = self._store.head
        if head != self._read_upto:  # else all had read everything, and nothing has come since
            await self._tell_stalls(head)
        if self._clock.now() >= self._trim_at:
            await self._trim()
        if self._clock.now() >= self._keys_at:
            self._keys_at = self._clock.now() + _keys_every_us
            await self._forget_keys()

    async def _tell_loss(self, rewound: Rewound) -> None:
        """Once for each start of the server, whoever noticed it."""
        facts = {"position": rewound.position, "seen": rewound.seen}
        fact = ops.NewEvent(
            event_id=self._ids.ulid(),
            type="ledger.rewound",
            payload=msgspec.json.encode(facts).decode(),
            key=rewound.start,
        )
        await self._coordinator.submit(ops.Emit(events=(fact,)))
        self._store.rewound = None

    async def _tell_stalls(self, head: int) -> None:
        found = await consumers_health(self._store, self._clock.now(), self._position_of)
        stalled = {(one.name, one.position): one for one in found if one.stalled}
        new = tuple(self._stall(one) for at, one in stalled.items() if at not in self._told)
        if new:
            await self._coordinator.submit(ops.Emit(events=new))
        self._told = set(stalled)
        self._read_upto = head if not any(one.lag for one in found) else -1

    def _stall(self, one: ConsumerHealth) -> ops.NewEvent:
        """Told once for each place it is stuck at: the facts and the key say only that."""
        facts = {"consumer": one.name, "position": one.position}
        return ops.NewEvent(
            event_id=self._ids.ulid(),
            type="ledger.consumer_stalled",
            payload=msgspec.json.encode(facts).decode(),
            key=f"{one.name}/{one.position}",
        )

    async def _trim(self) -> None:
        if not await self._has_old_events():
            return
        trimmed = await trim(self._coordinator, self._clock, self._keep_us, self._keep_events)
        if trimmed.held_by is not None:
            self._trim_at = self._clock.now() + _held_us  # to ask costs a commit: not too often

    async def _has_old_events(self) -> bool:
        """Whether retention may have something to do: asked by reads, which cost nobody else."""
        first, last = await self._store.span()
        if self._keep_events is not None and last - self._keep_events >= first:
            return True
        if self._keep_us is None or first >= last:
            return False
        oldest = await self._store.events(first - 1, 1)
        due_at = oldest[0].recorded_at + self._keep_us if oldest else self._trim_at
        if self._keep_events is None:
            self._trim_at = due_at
        return due_at < self._clock.now()

    async def _forget_keys(self) -> None:
        more = await self._store.keys_have_expired(self._clock.now())
        while more:
            prune = ops.Prune(finished_before=None, limit=_chunk)
            more = (await self._coordinator.submit(prune)).more


async def trim(
    coordinator: Coordinator,
    clock: Clock,
    keep_us: int | None,
    keep: int | None,
    force: bool = False,
) -> Trimmed:
    """Delete old events, a chunk for each commit: how many, and which consumer kept it from deleting more."""
    now = clock.now()
    count = 0
    while True:
        trimmed = await coordinator.submit(
            ops.TrimLedger(
                recorded_before=None if keep_us is None else now - keep_us,
                keep=keep,
                limit=_chunk,
                idle_before=now - _idle_us,
                forced=force,
            )
        )
        count += trimmed.count
        if not trimmed.more:
            break
    if trimmed.held_by is not None:
        log.warning("events are kept beyond their time for consumer %r", trimmed.held_by)
    return Trimmed(count, held_by=trimmed.held_by)
