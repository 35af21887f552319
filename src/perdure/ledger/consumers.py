"""All readers of an open app: the consumers it defines, the runner of subscriptions, its detectors.

Each has a loop of its own and one owner among all processes. What wakes them comes through here: commits of this
process, what operators do, and what the worker saw when it last looked at the store. The look is the truth;
everything else is a hint.
"""

import asyncio
from collections.abc import Callable

from perdure.coordinator.coordinator import Coordinator
from perdure.ledger.anomaly import detector
from perdure.ledger.batches import Desk
from perdure.ledger.definitions import Readers
from perdure.ledger.handling import HandlerReader
from perdure.ledger.reader import Means, Reader
from perdure.ledger.subscriptions import Runner
from perdure.ledger.watch import Watch
from perdure.model import ops
from perdure.model.clock import Clock
from perdure.model.cron import Cron
from perdure.model.outcomes import Wake
from perdure.model.records import ConsumerRecord
from perdure.service import Service
from perdure.store.base import Look, Store


class Consumers(Service):
    """Runs the readers of one app in one process."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator,
        clock: Clock,
        die: Callable[[], float],
        desk: Desk,
        readers: Readers,
        *,
        fanout: int,
        runner_cron: Cron | None,
        keep_us: int | None,
        keep_events: int | None,
    ) -> None:
        super().__init__()
        self._store = store
        self._coordinator = coordinator
        self._definitions = readers
        self._told_head = 0
        self._drain_due = asyncio.Event()
        self._draining = False
        self._detach: Callable[[], None] | None = None
        means = Means(store, coordinator, clock, die, desk)
        self._runner = Runner(means, readers, fanout, runner_cron)
        self._readers: list[Reader] = [self._runner]
        self._readers += [HandlerReader(means, one) for one in readers.consumers.values()]
        self._readers += [detector(means, one) for one in readers.anomalies.values()]
        self._by_name = {one.name: one for one in self._readers}
        self._watch = Watch(
            store,
            coordinator,
            clock,
            desk.ids,
            self.position,
            keep_us=keep_us,
            keep_events=keep_events,
        )

    # --- life ---

    async def start(self) -> None:
        await self._declare()
        self._detach = self._coordinator.hub.attach_reader(self._hear)
        self._coordinator.on_batch.append(self._on_batch)
        for reader in self._readers:
            self._spawn(f"consumer-{reader.name}", reader.run)
        self._spawn("ledger-drain", self._drain_foreign)
        self._spawn("ledger-watch", self._watch.run)

    async def stop(self) -> None:
        """End the loops, then save how far they came. A handler that is cut off is called again elsewhere."""
        if self._detach is None:
            return
        self._detach()
        self._detach = None
        self._coordinator.on_batch.remove(self._on_batch)
        await super().stop()
        for reader in self._readers:
            await reader.leave()

    async def _declare(self) -> None:
        """Make the rows of the subscriptions in code. Whether one is enabled stays as operators left it."""
        declare = [
            ops.PutSubscription(
                subscription=one.record(),
                start=one.start.position,
                start_at=one.start.at,
                keep_enabled=True,
            )
            for one in self._definitions.subscriptions.values()
        ]
        for outcome in await self._coordinator.submit_many(declare):
            if isinstance(outcome, BaseException):
                raise outcome

    # --- what wakes them ---

    def _on_batch(self) -> None:
        head = self._store.head
        if head > self._told_head:
            self._told_head = head
            for reader in self._readers:
                reader.wake()

    def _hear(self, wake: Wake) -> None:
        if wake.kind != "consumer":
            return
        reader = self._by_name.get(wake.run_id)
        if reader is not None:
            reader.on_steered()
        elif not wake.run_id:
            self._runner.on_rows()

    def on_renewed(self) -> None:
        """Our worker has another id: what it read under the old one is anybody's."""
        for reader in self._readers:
            reader.on_steered()

    def on_look(self, look: Look, thorough: bool) -> None:
        """The worker has looked at the store: events and steering of other processes, consumers that nobody reads."""
        self._on_batch()
        rows = {one.name: one for one in look.consumers}
        for reader in self._readers:
            reader.on_looked()
            row = rows.get(reader.name)
            if reader.record is None:
                # To try in vain is a write all the same.
                if row is None or row.owner not in look.workers:
                    reader.try_claim()
            elif row is None or _steering(row) != _steering(reader.record):
                reader.on_steered()
        if thorough:
            self._runner.on_rows()
            runner = rows.get(self._runner.name)
            if self._runner.record is None and runner is not None and not runner.paused:
                self._drain_due.set()

    async def _drain_foreign(self) -> None:
        """Where another process runs the subscriptions: start what only the code of this one can be asked about."""
        while True:
            await self._drain_due.wait()
            self._draining = True
            try:
                self._drain_due.clear()
                await self._runner.drain_foreign()
            finally:
                self._draining = False

    # --- for health and tests ---

    @property
    def settled(self) -> bool:
        """Whether nothing readable is unread and nothing is under way."""
        if self._draining or self._drain_due.is_set() or not self._watch.settled:
            return False
        return all(one.settled for one in self._readers)

    def position(self, name: str) -> int | None:
        """How far the reader of that name has come, if this process is the one that reads."""
        reader = self._by_name.get(name)
        return None if reader is None or reader.record is None else reader.reached()


def _steering(row: ConsumerRecord) -> tuple[int, bool]:
    """What others change of a consumer. How far it has read its reader knows better than a look."""
    return row.fence, row.paused
