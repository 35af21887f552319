"""Valkey is killed, and may lose the end of its log: nothing that was synced is lost, and what is lost is noticed.

`appendfsync always` acknowledges what is on the disk. With `everysec` a kill of the server loses nothing, because the
system has what was written; a power cut does, and is played by cutting the log at any byte: what is left must be a
whole earlier state, from which everything goes on.
"""

import asyncio
import functools
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from servers.premises import Premises
from servers.stores import redis_store
from servers.valkey import ValkeyProcess

from crashes.crew import until
from perdure import App, Context, LedgerRewound, RunNotFound, Signal, StoreRefused, step, workflow
from perdure.model.ops import Beat, StartRun
from perdure.store.base import BatchFailed, BatchUnknown, StoreBusy
from perdure.store.redis.store import RedisStore
from perdure.testing.conformance import check_invariants

go = Signal("go", int)


@step
async def double(n: int) -> int:
    return 2 * n


@workflow(signals=[go])
async def patient(ctx: Context, n: int) -> int:
    first = await ctx.step(double, n)
    return first + await ctx.wait(go)


def app_on(url: str, **options: object) -> App:
    app = App(f"{url}?durability=relaxed", **options)  # type: ignore[arg-type]
    app.add(patient)
    return app


def log_of(server: ValkeyProcess) -> Path:
    """The part of the log that it appends to."""
    return max((server.data_path / "appendonlydir").glob("*.incr.aof"))


async def cut(server: ValkeyProcess, size: int) -> None:
    """The power fails, and what the log had beyond this many bytes never reached the disk."""
    await asyncio.to_thread(server.kill)
    with log_of(server).open("r+b") as log:
        log.truncate(size)
    await asyncio.to_thread(server.start)


async def ended(app: App, run_id: str) -> bool:
    try:
        return await app.run(run_id).status() == "completed"
    except RunNotFound:
        return False


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_a_kill_of_the_server_loses_nothing_that_was_acknowledged(
    premises: Premises, fsync: str
) -> None:
    acknowledged: list[str] = []

    async def start_all(app: App) -> None:
        for n in range(10_000):
            run = await app.start(patient, n, id=f"r{n}")
            acknowledged.append(run.id)

    with ValkeyProcess(premises, {"appendfsync": fsync}) as server:
        async with app_on(server.url, worker=False) as app:
            starting = asyncio.create_task(start_all(app))
            for nth in range(1, 6):
                enough = functools.partial(_has_more, acknowledged, 20 * nth)
                await until(enough, "runs are started")
                await asyncio.to_thread(server.kill)
                seen = list(acknowledged)
                await asyncio.to_thread(server.start)
                for run_id in seen:
                    assert await app.run(run_id).status() == "ready"
            starting.cancel()
            await asyncio.wait((starting,))
            # The start that was cancelled is carried out all the same: this one comes after it.
            await app.start(patient, 0, id="last")
            assert await check_invariants(app._engine().store) == []
            assert app._engine().store.rewound is None


async def _has_more(found: list[str], count: int) -> bool:
    return len(found) > count


async def test_a_lost_end_of_the_log_is_noticed_and_everything_goes_on_from_what_is_left(
    premises: Premises,
) -> None:
    with ValkeyProcess(premises, {"appendfsync": "everysec"}) as server:
        async with app_on(server.url) as app:
            run = await app.start(patient, 4, id="early")
            await until(lambda: _waits(app, "early"), "it waits")
            kept = log_of(server).stat().st_size
            await app.signal(run.id, go, 1)
            assert await run.result() == 9
            await app.start(patient, 5, id="late")
            await until(lambda: _waits(app, "late"), "it waits too")
            page = await app.events(limit=1000)
            cursor = (await app.events(limit=len(page.items) - 1)).cursor
            await cut(server, kept)
            # The run that had ended waits again, and is answered anew; the other never was.
            assert await app.run("early").status() == "waiting"
            with pytest.raises(LedgerRewound) as rewound:
                await app.events(after=cursor)
            assert rewound.value.position > rewound.value.last
            with pytest.raises(RunNotFound):
                await app.run("late").status()
            await app.signal("early", go, 2)
            await until(lambda: ended(app, "early"), "it goes on")
            assert await app.run("early").result() == 10
            await until(lambda: _has(app, "ledger.rewound"), "the loss is on the ledger")
            assert await check_invariants(app._engine().store) == []


async def _waits(app: App, run_id: str) -> bool:
    return await app.run(run_id).status() == "waiting"


async def _has(app: App, topic: str) -> bool:
    return bool((await app.events(topic)).items)


async def test_a_worker_goes_on_with_nothing_that_only_its_memory_holds(premises: Premises) -> None:
    """The start of the wait is lost: the run is not where its worker has it, and the worker does nothing by itself."""
    with ValkeyProcess(premises, {"appendfsync": "everysec"}) as server:
        async with app_on(server.url) as app:
            worker = app._engine().worker
            assert worker is not None
            before = worker.worker_id
            await app.start(patient, 1, id="r", start_at="1d")
            kept = log_of(server).stat().st_size
            await app.start(patient, 7, id="mine")
            await until(lambda: _waits(app, "mine"), "it waits")
            await cut(server, kept)

            async def is_another() -> bool:
                return worker.worker_id != before

            await until(is_another, "its look finds that the server has begun anew")
            assert (await app.start(patient, 7, id="mine")).created
            await app.signal("mine", go, 3)
            assert await app.run("mine").result("30s") == 17


@pytest.mark.parametrize("seed", range(3))
async def test_wherever_the_log_is_cut_a_whole_earlier_state_is_left(
    premises: Premises, seed: int
) -> None:
    chance = random.Random(seed)
    with ValkeyProcess(premises, {"appendfsync": "everysec"}) as server:
        sizes = [0]
        # A short lease: the worker may have said goodbye in what is lost.
        async with app_on(server.url, lease="1s") as app:
            for n in range(6):
                await app.start(patient, n, id=f"r{n}")
                await app.signal(f"r{n}", go, 1)
                sizes.append(log_of(server).stat().st_size)
            await until(lambda: ended(app, "r5"), "the last one ends")
            full = log_of(server).stat().st_size
        for _ in range(4):
            full = chance.randint(sizes[1], full)
            await cut(server, full)
            store = redis_store(f"{server.url}?durability=relaxed")
            await store.open()
            try:
                assert await check_invariants(store) == []
            finally:
                await store.close()
            full = log_of(server).stat().st_size
        async with app_on(server.url) as app:
            for n in range(6):
                run = await app.start(patient, n, id=f"r{n}")
                if await run.status() in ("ready", "running", "waiting"):
                    await app.signal(run.id, go, 1)
                assert await run.result("30s") == 2 * n + 1


async def test_a_server_that_may_lose_writes_is_refused_unless_that_is_accepted(
    premises: Premises,
) -> None:
    for settings, word in (
        ({"appendfsync": "everysec"}, "appendfsync everysec"),
        ({"appendonly": "no"}, "appendonly no"),
        ({"maxmemory-policy": "volatile-lru"}, "maxmemory-policy volatile-lru"),
    ):
        with ValkeyProcess(premises, settings) as server:
            with pytest.raises(StoreRefused, match=word) as refused:
                await redis_store(server.url).open()
            assert "?durability=relaxed accepts that" in refused.value.reason
            store = redis_store(f"{server.url}?durability=relaxed")
            await store.open()
            await store.close()


# --- what is a loss, and what is none --------------------------------------------------------------


async def many(store: RedisStore, count: int) -> None:
    """So many batches."""
    for _ in range(count):
        await store.apply(store._ids.ulid(), [Beat(worker_id="w", lease_us=1_000_000)])


async def again(server: ValkeyProcess) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


@asynccontextmanager
async def two_stores(server: ValkeyProcess) -> AsyncIterator[tuple[RedisStore, RedisStore]]:
    one, other = (redis_store(f"{server.url}?durability=relaxed") for _ in range(2))
    await one.open()
    await other.open()
    try:
        yield one, other
    finally:
        await one.close()
        await other.close()


async def test_a_clean_restart_is_no_loss_though_others_have_gone_on(
    valkey_process: ValkeyProcess,
) -> None:
    async with two_stores(valkey_process) as (one, other):
        await many(one, 3)
        for _ in range(3):
            await again(valkey_process)
            await many(other, 5)
            await one.look()
            await one.span()
            await many(one, 1)
            assert (one.rewound, other.rewound) == (None, None)


async def test_a_loss_is_noticed_by_who_slept_through_another_restart(premises: Premises) -> None:
    with ValkeyProcess(premises, {"appendfsync": "everysec"}) as server:
        async with two_stores(server) as (sleeper, other):
            await many(sleeper, 1)
            kept = log_of(server).stat().st_size
            await many(sleeper, 5)
            await cut(server, kept)
            await many(other, 20)  # more than were lost
            await again(server)
            await many(other, 1)
            assert sleeper.rewound is None
            await many(sleeper, 1)
            assert sleeper.rewound is not None


async def test_a_server_whose_place_another_had_meanwhile_is_greeted_anew(
    valkey_process: ValkeyProcess,
) -> None:
    """A primary that failed, was a replica of the one that took over, and is the primary again: of the same start."""
    async with two_stores(valkey_process) as (one, _):
        await many(one, 4)
        with valkey_process.address.client() as client:
            # As the other one has left it: with fewer batches, and greeted by those who went on there.
            client.hset(one._key("head"), "commits", "2")
            client.hset(one._key("meta"), mapping={"server": "other", "epoch": "2", "began:2": "2"})
        await many(one, 1)
        assert one.rewound is not None


# --- a server that is not well ---------------------------------------------------------------------


async def test_a_full_memory_refuses_a_batch_whole_and_passes(
    valkey_process: ValkeyProcess,
) -> None:
    async with app_on(valkey_process.url, worker=False, store_timeout="2s") as app:
        await app.start(patient, 1, id="before")
        with valkey_process.address.client() as client:
            client.config_set("maxmemory", "1")
            for asked in (app.start(patient, 2, id="during"), app.signal("before", go, 1)):
                with pytest.raises(StoreRefused) as refused:
                    await asked
                assert refused.value.passing
            assert await app.run("before").status() == "ready"
            client.config_set("maxmemory", "0")
        assert (await app.start(patient, 2, id="during")).created
        assert await check_invariants(app._engine().store) == []


async def test_a_server_that_stands_still_is_not_waited_for_without_end(
    valkey_process: ValkeyProcess,
) -> None:
    os.kill(valkey_process.pid, signal.SIGSTOP)
    try:
        store = redis_store(valkey_process.url)
        store.patience_s = 0.5
        with pytest.raises(StoreRefused, match="cannot be reached"):
            await store.open()
    finally:
        os.kill(valkey_process.pid, signal.SIGCONT)


async def test_a_batch_that_stops_half_way_is_not_said_to_have_done_nothing(
    valkey_process: ValkeyProcess,
) -> None:
    """Somebody else has a key of that name."""
    async with two_stores(valkey_process) as (store, _):
        with valkey_process.address.client() as client:
            client.sadd(store._key("events"), "mine")
        op = StartRun(run_id="r", workflow="w", version=1, input="[]")
        with pytest.raises(BatchUnknown):
            await store.apply("b", [op])


async def test_after_a_restart_a_server_is_judged_anew(premises: Premises) -> None:
    with ValkeyProcess(premises) as server:
        async with two_stores(server) as (store, _):
            await asyncio.to_thread(server.kill)
            server._settings["maxmemory-policy"] = "allkeys-lru"
            await asyncio.to_thread(server.start)
            with pytest.raises(StoreBusy, match="runs would vanish"):
                await many(store, 1)


# --- another server takes over ---------------------------------------------------------------------


class Address:
    """An address that leads to one server and later to another: who is connected stays where it is."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._lines: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Address":
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        place = self._listener.sockets[0].getsockname()[1]
        self.url = f"redis://127.0.0.1:{place}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._listener.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        its_reader, its_writer = await asyncio.open_connection("127.0.0.1", self.port)
        for one, other in ((reader, its_writer), (its_reader, writer)):
            task = asyncio.create_task(_pass_on(one, other))
            self._lines.add(task)
            task.add_done_callback(self._lines.discard)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    finally:
        writer.close()


async def test_who_holds_on_to_a_primary_that_became_a_replica_finds_the_new_one(
    premises: Premises, valkey_process: ValkeyProcess
) -> None:
    old = valkey_process
    with ValkeyProcess(premises, {"replicaof": f"127.0.0.1 {old.port}"}) as new:
        async with Address(old.port) as address:
            store = redis_store(f"{address.url}?notify=0")
            store.patience_s = 5
            await store.open()
            await many(store, 3)
            with new.address.client() as follows, old.address.client() as leads:
                await until(lambda: _has_followed(follows, store), "the replica has all")
                follows.replicaof("NO", "ONE")
                leads.replicaof("127.0.0.1", new.port)
            address.port = new.port
            with pytest.raises(
                BatchFailed
            ):  # that very one reached nobody who could have written it
                await many(store, 1)
            await many(store, 1)
            assert store.rewound is None
            await store.close()


async def _has_followed(client: Any, store: RedisStore) -> bool:
    return client.hget(store._key("head"), "commits") == b"3"
