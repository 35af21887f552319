"""Valkey is killed, and may lose the end of its log: nothing that was synced is lost, and what is lost is noticed.

`appendfsync always` acknowledges what is on the disk. With `everysec` a kill of the server loses nothing, because the
system has what was written; a power cut does, and is played by cutting the log at any byte: what is left must be a
whole earlier state, from which everything goes on.
"""

import asyncio
import functools
import random
from pathlib import Path

import pytest
from servers.premises import Premises
from servers.stores import redis_store
from servers.valkey import ValkeyProcess

from crashes.crew import until
from perdure import App, Context, LedgerRewound, RunNotFound, Signal, StoreRefused, step, workflow
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
