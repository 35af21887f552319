"""The SQLite store: the contract of `Store` over one writer thread and two reading threads.

A file, its log, a lock file beside it, a directory of life signs and one of sockets. Several
processes may share it on one machine: after a commit they tell each other. It never writes outside
the writer thread, nor answers before the disk has it.
"""

import asyncio
import functools
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeVar

from perdure.errors import NotRunning
from perdure.model.clock import Clock, SystemClock
from perdure.model.ids import Ids
from perdure.model.ops import Op
from perdure.model.outcomes import Wake
from perdure.model.records import (
    ChannelRecord,
    ConsumerRecord,
    DeadLetterRecord,
    DeferredRecord,
    EventRecord,
    HistoryPlace,
    ItemRecord,
    KeyRecord,
    LineLook,
    OutboxRecord,
    ParkedRecord,
    PoolRecord,
    RunRecord,
    ScheduleRecord,
    SignalRecord,
    StepRecord,
    StreamItemRecord,
    StreamSpan,
    SubscriptionRecord,
    WatcherRecord,
    WorkerRecord,
    WorkflowRecord,
)
from perdure.store.base import (
    Applied,
    Backlog,
    BatchFailed,
    Described,
    Flaw,
    Life,
    Look,
    MatchPlace,
    RunFilter,
    Standing,
    Store,
    Versions,
    Vitals,
    WatcherPlace,
    next_place,
)
from perdure.store.beating import Beating
from perdure.store.decoding import stray_flaw
from perdure.store.sqlite import (
    backing,
    borrowing,
    event_rows,
    judging,
    liveness,
    opening,
    places,
    reads,
)
from perdure.store.sqlite.noticing import Noticing
from perdure.store.sqlite.opening import Synchronous
from perdure.store.sqlite.reads import Reads
from perdure.store.sqlite.statements import Statements
from perdure.store.sqlite.writer import Batch, Done, Writer, on_loop
from perdure.store.transaction import Transaction

Found = TypeVar("Found")

# Of what one fsck tells about a table, or a file.
_flaws_max = 100
# How long the owner of a parked run may take to answer a call, before anybody may claim the run.
_sticky_us = 250_000


class SqliteStore(Store):
    """A namespace in a file. `ids` is used on the writer's thread and belongs to it."""

    transacts = "def"

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        ids: Ids,
        synchronous: Synchronous = "FULL",
        lifecycle: bool = True,
        notify: bool = True,
        network: bool = False,
    ) -> None:
        self.url = f"sqlite:///{path}"
        self.path = path
        self.lifecycle = lifecycle
        self.needs_beats = not liveness.has_flock
        self._clock = clock
        self._ids = ids
        self._synchronous = synchronous
        self._network = network
        # Where time is virtual, what happens by itself in real time would be chance.
        self._notify = self.sends_hints = notify and isinstance(clock, SystemClock)
        self._noticing: Noticing | None = None
        self._file = ""  # its real path, once it was opened
        self._writer: Writer | None = None
        self._reads: Reads | None = None
        self._beating: Beating | None = None
        self._pid = os.getpid()
        # To open or close, one at a time: of two who open at once, one would forget the other's thread.
        self._turn = asyncio.Lock()

    # --- life ---

    async def open(self) -> None:
        """Open or make the file; raises StoreRefused. Open already, or by now: nothing happens."""
        self._check_process()
        async with self._turn:
            if self._writer is not None:
                return
            path = self._file = opening.checked_path(self.path, network=self._network)
            writer = Writer(path, self._synchronous, self._clock, self._ids, self.lifecycle)
            # Before the writer's thread has them for itself.
            name = self._ids.ulid() if self._notify else None
            await writer.open()
            self._writer, self._reads = writer, Reads(path)
            if name is not None:
                self._notice(path, name, writer)

    def _notice(self, path: str, name: str, writer: Writer) -> None:
        """From now on: what others do to the file."""
        self._noticing = Noticing(
            path,
            name,
            writer.glance,
            self._heard,
            mine=lambda: self.worker_id,
            listens=lambda: self.on_hint is not None,
        )
        self.sticky_us = _sticky_us if self._noticing.open() else 0

    def _heard(self, wake: Wake) -> None:
        if self.on_hint is not None:
            self.on_hint(wake)

    async def close(self) -> None:
        """Finish what is queued, empty the log into the file, give up the locks. Idempotent."""
        self._check_process()
        self.stop_beating()
        async with self._turn:
            writer, reads_, self._writer, self._reads = self._writer, self._reads, None, None
            noticing, self._noticing = self._noticing, None
            if noticing is not None:
                await noticing.close()
            if reads_ is not None:
                await asyncio.get_running_loop().run_in_executor(None, reads_.close)
            if writer is not None:
                await writer.close()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"this store belongs to process {self._pid}; after a fork make a store of your own"
            )

    def start_beating(self, worker_id: str, lease_s: float, every_s: float) -> None:
        """Where there are locks of the system they say that a worker lives; else its lease is prolonged."""
        self.stop_beating()
        writer = self._writer
        if not self.needs_beats or writer is None:
            return

        def beat() -> bool:
            return writer.beat(worker_id, round(lease_s * 1_000_000), every_s)

        self._beating = Beating(beat, lease_s=lease_s, every_s=every_s, on_lost=self._lost_lease)
        self._beating.start()

    def outlive(self, until: threading.Event) -> None:
        if self._writer is not None:
            self._writer.workers.outlive = until

    def stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.stop()
            self._beating = None

    def _lost_lease(self) -> None:
        if self.on_lost_lease is not None:
            self.on_lost_lease()

    # --- writes ---

    async def apply(
        self, batch_id: str, ops: Sequence[Op[Any]], decided: Callable[[], None] | None = None
    ) -> list[Applied]:
        self._check_process()
        if self._writer is None:
            raise BatchFailed("the store is not open")
        if decided is not None:
            decided = functools.partial(on_loop, asyncio.get_running_loop(), decided)
        batch = Batch(
            batch_id, ops, self.worker_id, self.patience_s, self.sticky_us, decided=decided
        )
        return self._committed(await self._writer.apply(batch))

    async def transact(self, batch_id: str, work: Transaction) -> list[Applied]:
        self._check_process()
        # The file has one writer: while this is under way, nothing else can be.
        await work.turn()
        if self._writer is None:
            raise BatchFailed("the store is not open")
        batch = Batch(batch_id, (), self.worker_id, self.patience_s, self.sticky_us)
        return self._committed(await self._writer.transact(batch, work))

    def _committed(self, done: Done) -> list[Applied]:
        if self._writer is not None:
            self.head = max(self.head, self._writer.head)
        if self._noticing is not None:
            self._noticing.tell(done.applied, done.number, self.head, self._clock.now())
        return done.applied

    async def settle(self, batch_id: str) -> bool:
        return await self._read(reads.settled, batch_id)

    async def write_outbox(self, connection: Any, row: OutboxRecord) -> None:
        self.write_outbox_here(connection, row)

    def write_outbox_here(self, connection: Any, row: OutboxRecord) -> None:
        borrowing.write_outbox(connection, self._file, row)

    # --- reads ---

    async def _read(self, read: Callable[..., Found], *args: object) -> Found:
        self._check_process()
        if self._reads is None:
            raise NotRunning("the store is not open: the app is closed, or closing")

        def ask(sql: Statements) -> Found:
            return read(sql, *args)

        return await self._reads.ask(ask)

    async def outbox(self, after: str, limit: int) -> list[OutboxRecord]:
        return await self._read(reads.outbox, after, limit)

    async def load(self, run_ids: Sequence[str]) -> list[tuple[RunRecord, list[StepRecord]]]:
        return await self._read(reads.load, run_ids)

    async def revisions(self, run_ids: Sequence[str]) -> dict[str, int]:
        return await self._read(reads.revisions, run_ids)

    async def ended(self, run_ids: Sequence[str]) -> list[RunRecord]:
        return await self._read(reads.ended, run_ids)

    async def look(
        self,
        workflows: Iterable[tuple[str, int]] | None = None,
        after: str = "",
        limit: int = 0,
        pools: Iterable[str] | None = None,
    ) -> Look:
        is_live = self._life_signs()
        known = None if workflows is None else list(workflows)
        served = None if pools is None else list(pools)
        look = await self._read(reads.look, known, after, limit, served, is_live)
        self.head = max(self.head, look.last)
        return look

    def _life_signs(self) -> Callable[[str, int], bool]:
        """Who is asked, from any thread, whether a worker with that lease lives."""
        writer = self._writer
        now = self._clock.now()

        def is_live(worker_id: str, lease_until: int) -> bool:
            return writer is not None and writer.workers.is_live(worker_id, lease_until, now)

        return is_live

    async def catalogue(self) -> list[WorkflowRecord]:
        return await self._read(reads.catalogue)

    async def channels(self) -> list[ChannelRecord]:
        return await self._read(reads.channels)

    async def span(self) -> tuple[int, int]:
        first, last = await self._read(reads.span)
        self.head = max(self.head, last)
        return first, last

    async def position_at(self, recorded_at: int) -> int:
        return await self._read(event_rows.position_at, recorded_at)

    async def matches(self, after: MatchPlace | None, limit: int) -> list[WatcherRecord]:
        return await self._read(reads.matches, after, limit)

    async def consumers(self) -> list[ConsumerRecord]:
        return await self._read(reads.consumers)

    async def subscriptions(self) -> list[SubscriptionRecord]:
        return await self._read(reads.subscriptions)

    async def schedule(self, name: str) -> ScheduleRecord | None:
        return await self._read(reads.schedule, name)

    async def schedules(self, after: str, limit: int) -> list[ScheduleRecord]:
        return await self._read(reads.schedules, after, limit)

    async def pools(self) -> list[PoolRecord]:
        return await self._read(reads.pools)

    async def lines(self) -> list[LineLook]:
        return await self._read(reads.lines)

    async def standing(self, pool: str, keys: Sequence[str]) -> Standing:
        return await self._read(reads.standing, pool, list(keys))

    async def line(self, pool: str, after: tuple[int, str] | None, limit: int) -> list[RunRecord]:
        return await self._read(reads.line, pool, after, limit)

    async def used_key(self, scope: str, key: str, now: int) -> KeyRecord | None:
        return await self._read(reads.used_key, scope, key, now)

    async def known_keys(self, scope: str, keys: Sequence[str], now: int) -> set[str]:
        return await self._read(reads.known_keys, scope, list(keys), now)

    async def keys_have_expired(self, now: int) -> bool:
        return await self._read(reads.keys_have_expired, now)

    async def vitals(self, now: int) -> Vitals:
        return await self._read(reads.vitals, now)

    async def workers(self) -> list[WorkerRecord]:
        return await self._read(reads.workers, self._life_signs())

    async def backlog(self, now: int, limit: int) -> list[Backlog]:
        return await self._read(reads.backlog, now, limit)

    async def run(self, run_id: str) -> RunRecord | None:
        return await self._read(reads.run, run_id)

    async def history(self, run_id: str) -> list[StepRecord]:
        return await self._read(reads.history, run_id)

    async def history_page(
        self, run_id: str, after: HistoryPlace | None, limit: int
    ) -> list[StepRecord]:
        return await self._read(reads.history_page, run_id, after, limit)

    async def runs(
        self, where: RunFilter, after: tuple[int, str] | None, limit: int
    ) -> list[RunRecord]:
        return await self._read(reads.runs, where, after, limit)

    async def waiting(self, run_id: str) -> list[WatcherRecord]:
        return await self._read(reads.waiting, run_id)

    async def find_waiting(
        self, signal: str, opened_before: int | None, after: WatcherPlace | None, limit: int
    ) -> list[WatcherRecord]:
        return await self._read(reads.find_waiting, signal, opened_before, after, limit)

    async def topic_watchers(
        self, topic: str, after: WatcherPlace | None, limit: int
    ) -> list[WatcherRecord]:
        return await self._read(reads.topic_watchers, topic, after, limit)

    async def approvals(self, after: WatcherPlace | None, limit: int) -> list[WatcherRecord]:
        return await self._read(reads.approvals, after, limit)

    async def buffered(self, run_id: str) -> list[SignalRecord]:
        return await self._read(reads.buffered, run_id)

    async def signal(self, signal_id: str) -> SignalRecord | DeadLetterRecord | EventRecord | None:
        return await self._read(reads.signal, signal_id)

    async def dead_letters(
        self, run_id: str | None, after: str, limit: int
    ) -> list[DeadLetterRecord]:
        return await self._read(reads.dead_letters, run_id, after, limit)

    async def events(
        self,
        after: int,
        limit: int,
        *,
        type: str | None = None,
        entity: tuple[str, str] | None = None,
    ) -> list[EventRecord]:
        return await self._read(reads.events, after, limit, type, entity)

    async def events_by_time(
        self, after: tuple[int, int] | None, limit: int, *, entity: tuple[str, str] | None = None
    ) -> list[EventRecord]:
        return await self._read(reads.events_by_time, after, limit, entity)

    async def event(self, event_id: str) -> EventRecord | None:
        return await self._read(reads.event, event_id)

    async def latest(self, topic: str, entity: str) -> EventRecord | None:
        return await self._read(reads.latest, topic, entity)

    async def queue_items(self, queue: str, after: int, limit: int) -> list[ItemRecord]:
        return await self._read(reads.queue_items, queue, after, limit)

    async def queues(self) -> dict[str, int]:
        return await self._read(reads.queues)

    async def stream_items(
        self, run_id: str, stream: str, after: int, limit: int
    ) -> list[StreamItemRecord]:
        return await self._read(reads.stream_items, run_id, stream, after, limit)

    async def streams(self, run_id: str) -> list[StreamSpan]:
        return await self._read(reads.streams, run_id)

    async def parked(
        self, consumer: str | None, after: tuple[str, int, str] | None, limit: int
    ) -> list[ParkedRecord]:
        return await self._read(reads.parked, consumer, after, limit)

    async def deferred(self, after: tuple[int, str] | None, limit: int) -> list[DeferredRecord]:
        return await self._read(reads.deferred, after, limit)

    async def counts(self) -> dict[str, int]:
        return await self._read(reads.counts)

    # --- for who looks after the store ---

    async def versions(self) -> Versions:
        if self._reads is not None:
            return await self._read(opening.stored)
        path = opening.checked_path(self.path, network=self._network)
        return await asyncio.to_thread(opening.stored_at, path)

    async def describe(self) -> Described:
        facts = await self._read(reads.settings)
        path = self._file
        log_bytes = _size(f"{path}-wal")
        facts |= {
            "synchronous": self._synchronous,
            "file_system": await asyncio.to_thread(places.file_system, path),
            "file_system_is_network": str(await asyncio.to_thread(places.is_network, path)).lower(),
            "file_bytes": str(_size(path)),
            "wal_bytes": str(log_bytes),
            "path": path,
        }
        return Described(
            kind="sqlite",
            product="SQLite",
            version=sqlite3.sqlite_version,
            versions=await self.versions(),
            namespace=None,
            bytes=_size(path) + log_bytes,
            settings=tuple(judging.judged(sqlite3.sqlite_version, facts)),
            facts=facts,
            relaxed=self._synchronous != "FULL" or self._network,
        )

    async def lives(self, run_ids: Sequence[str]) -> list[Life]:
        return await self._read(reads.lives, list(dict.fromkeys(run_ids)))

    async def run_ids(self, after: str, limit: int) -> tuple[list[str], str]:
        found = await self._read(reads.run_ids, after, limit)
        return found, next_place(found, limit)

    async def positions_of(self, event_ids: Sequence[str]) -> dict[str, int]:
        return await self._read(reads.positions_of, list(event_ids))

    async def items_of(self, item_ids: Sequence[str]) -> set[str]:
        return await self._read(reads.items_of, list(item_ids))

    async def flaws(self) -> AsyncIterator[Flaw]:
        for words in await self._read(reads.damages, _flaws_max):
            yield Flaw(
                invariant="X5",
                what=f"the file is damaged: {words}",
                advice="stop all processes, keep a copy of the file with its log, and restore a backup",
            )
        for table, what in await self._read(reads.strays, _flaws_max):
            yield stray_flaw(table, what)

    async def backup(self, path: str) -> int:
        self._check_process()
        if self._reads is None:
            raise NotRunning("the store is not open: the app is closed, or closing")
        return await asyncio.to_thread(backing.copy, self._file, path)


def _size(path: str) -> int:
    """A log that is not there is empty."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
