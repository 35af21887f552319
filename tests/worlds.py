"""Worlds of the tests: an app in virtual time on a store of each kind, opened again, crashed, looked into."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import App, Emitted, RunHandle
from perdure.coordinator.coordinator import Coordinator
from perdure.model import ops
from perdure.model.outcomes import CursorMoved
from perdure.model.records import RUNNER, ConsumerRecord, DeferredRecord, EventRecord
from perdure.runtime.worker import Worker
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.store.postgres.store import PostgresStore
from perdure.store.redis.store import RedisStore
from perdure.testing import VirtualClock, World

# A worker of another process. It holds no lock, so on every store its lease says whether it lives.
ELSEWHERE = "a-worker-elsewhere"


class Stage(World):
    """A world with what these tests need besides: a crash, an eviction, a look at the ledger."""

    @property
    def store(self) -> Store:
        return self.app._engine().store

    @property
    def worker(self) -> Worker:
        worker = self.app._engine().worker
        assert worker is not None
        return worker

    @property
    def coordinator(self) -> Coordinator:
        return self.app._engine().coordinator

    async def begin(self, workflow: Any, *args: Any, **options: Any) -> RunHandle[Any]:
        """Start a run and let it go as far as it can."""
        run = await self.app.start(workflow, *args, **options)
        await self.settle()
        return run

    async def evict(self) -> None:
        """Send every parked run out of memory; what comes next is a replay."""
        await self.settle()
        for execution in list(self.worker._parked.values()):
            del self.worker._parked[execution.run_id]
            self.worker._release(execution)
        await self.settle()
        assert self.worker.resident_runs == 0

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Let the loop turn until a read says so: for runs with a step in flight, which never settle."""
        async with asyncio.timeout(10):
            while not await holds():  # noqa: ASYNC110 (what is awaited is a row, not an object of ours)
                await asyncio.sleep(0)

    async def emit(self, topic: str, payload: Any = None, **options: Any) -> EventRecord:
        """Append an event as a producer would, and let everything happen that it leads to."""
        event = await self.emit_only(topic, payload, **options)
        await self.settle()
        return event

    async def emit_only(self, topic: str, payload: Any = None, **options: Any) -> EventRecord:
        emitted = await self.app.emit(topic, payload, **options)
        assert isinstance(emitted, Emitted)
        found = await self.store.event(emitted.event_id)
        assert found is not None
        return found

    async def facts(self, type: str | None = None) -> list[EventRecord]:
        return await self.store.events(0, 1000, type=type)

    async def claim_elsewhere(self, consumer: str) -> ConsumerRecord:
        """A worker of another process, which lives, reads for this consumer: from its beginning if it is new."""
        await self.coordinator.submit(ops.Beat(worker_id=ELSEWHERE, lease_us=3600_000_000))
        claimed = await self.coordinator.submit(
            ops.ClaimConsumer(name=consumer, worker_id=ELSEWHERE, fence=7, patterns="[]", start=0)
        )
        assert isinstance(claimed, ConsumerRecord), claimed
        return claimed

    async def put_off_elsewhere(self, event: EventRecord, subscription: str) -> None:
        """The one that reads subscriptions has put this start off, for want of its code."""
        claimed = await self.claim_elsewhere(RUNNER)
        put_off = DeferredRecord(
            position=event.position,
            subscription=subscription,
            event_id=event.event_id,
            reason="code",
            deferred_at=0,
        )
        moved = await self.coordinator.submit(
            ops.AdvanceCursor(
                name=RUNNER,
                fence=claimed.fence,
                seen=claimed.position,
                position=event.position,
                deferred=(put_off,),
            )
        )
        assert isinstance(moved, CursorMoved), moved

    async def crash(self) -> None:
        """Stop as if the power had gone: no hand-back, no farewell, bodies cut off."""
        engine = self.app._engine()
        store, worker = engine.store, self.worker
        engine.coordinator._closed = True
        engine.coordinator._queue.clear()
        for execution in worker._executions.values():
            execution.dead = True
        mine = asyncio.current_task()
        tasks = [one for one in asyncio.all_tasks() if one is not mine]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        worker.timers._alarm.clear()
        worker.schedules._alarm.clear()
        worker.lines._alarm.clear()
        worker.outbox._alarm.clear()
        worker._claim_alarm.clear()
        worker._bodies._pool.shutdown(wait=False, cancel_futures=True)
        for execution in worker._executions.values():
            execution.dead = False
            execution.evict()
        if isinstance(store, RedisStore):
            await store._one("DEL", store._key("workers"))
        if isinstance(store, PostgresStore):
            gone = f'delete from "{store.schema}".workers'  # else its lease would have to run out
            await store._ask(lambda connection: connection.execute(gone))
        await store.close()
        if isinstance(store, MemoryStore):
            store.tables.workers_by_id.clear()  # SQLite knows a dead process at once, by its lock
        store.worker_id = None
        life = self.app._life
        life._engine, life.entered = None, False


class Deadly:
    """A step that the process dies in, the first time that it is called with this number."""

    def __init__(self, nth: int) -> None:
        self._nth: int | None = nth
        self._reached = asyncio.Event()

    async def work(self, n: int) -> None:
        if n == self._nth:
            self._reached.set()
            await asyncio.Event().wait()

    async def kill(self, stage: Stage) -> None:
        await self._reached.wait()
        await stage.crash()
        self._nth = None


# For tests of what happens before any run does.
without_eviction = pytest.mark.parametrize(
    "world",
    [("memory", 100), ("sqlite", 100), ("postgres", 100), ("redis", 100)],
    ids=lambda mode: mode[0],
    indirect=True,
)


@contextmanager
def worlds_of(
    kind: str, resident: int, directory: Path, request: pytest.FixtureRequest
) -> Iterator["Worlds"]:
    """Worlds on a store of this kind; a server is asked for only if it is needed."""
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
        with request.getfixturevalue("postgres_namespaces").lent() as lend:
            yield Worlds(kind, resident, directory, (url, lend()))
    elif kind == "redis":
        with request.getfixturevalue("valkey_server").fresh_namespace() as namespace:
            url = request.getfixturevalue("redis_url")
            yield Worlds(kind, resident, directory, (url, namespace))
    else:
        yield Worlds(kind, resident, directory)


class Worlds:
    """Opens worlds on one store; `server` is the address of one, and an empty namespace there."""

    def __init__(
        self,
        kind: str,
        resident: int,
        directory: Path,
        server: tuple[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.resident = resident
        self.clock = VirtualClock()
        self.directory = directory
        self._server = server
        self._memory: MemoryStore | None = None
        self._opened = 0

    @property
    def url(self) -> str:
        if self._server is not None:
            return self._server[0]
        return "memory://" if self.kind == "memory" else f"sqlite:///{self.directory}/world.db"

    @property
    def evicts(self) -> bool:
        return self.resident == 0

    def __call__(self, app: App, **options: Any) -> Stage:
        # Each opening needs ids of its own: the clock may stand still between two.
        self._opened += 1
        options = {"resident": self.resident, "seed": self._opened, **options}
        if self._server is not None:
            options["namespace"] = self._server[1]
        stage = Stage(app, self.url, clock=self.clock, **options)
        if self.kind == "memory":
            self._share_memory(stage.app)
        return stage

    def _share_memory(self, app: App) -> None:
        make = app._make_store

        def shared(ids: Any) -> Store:
            if self._memory is None:
                made = make(ids)
                assert isinstance(made, MemoryStore)
                self._memory = made
            return self._memory

        app._make_store = shared  # type: ignore[method-assign]
