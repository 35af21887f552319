"""Closing a store on Redis: what is under way ends, nobody comes in after that, and no connection is left."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from servers.stores import redis_store
from servers.valkey import ValkeyAddress, ValkeyProcess

from perdure import NotRunning
from perdure.model.ops import Beat
from perdure.store.base import BatchFailed, BatchUnknown
from perdure.store.redis import connecting
from perdure.store.redis.store import RedisStore


@asynccontextmanager
async def stopped(server: ValkeyProcess) -> AsyncIterator[None]:
    """Meanwhile the server does nothing."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def connections(server: ValkeyAddress) -> int:
    with server.client() as client:
        return len(client.client_list()) - 1


async def opened(url: str, namespace: str | None = None) -> RedisStore:
    store = redis_store(f"{url}?notify=0", namespace)
    await store.open()
    return store


async def begun(store: RedisStore, count: int = 20) -> list["asyncio.Task[object]"]:
    """More reads than there are connections, on their way."""
    reads = [asyncio.create_task(store.span()) for _ in range(count)]
    await asyncio.sleep(0)
    return reads  # type: ignore[return-value]


async def test_reads_under_way_end_before_it_is_closed(
    redis_url: str, lend_redis_namespace: Callable[[], str]
) -> None:
    store = await opened(redis_url, lend_redis_namespace())
    reads = await begun(store)
    await store.close()
    assert [one.result() for one in reads if one.done()] == [(1, 0)] * 20


async def test_reads_that_are_never_answered_are_cut_off_and_no_connection_is_left(
    valkey_process: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_close_s", 0.05)
    store = await opened(valkey_process.url)
    async with stopped(valkey_process):
        reads = await begun(store)
        writes = asyncio.create_task(store.apply("b", [Beat(worker_id="w", lease_us=1)]))
        await asyncio.sleep(0)
        await store.close()
        answers = await asyncio.gather(*reads, return_exceptions=True)
        assert {type(one) for one in answers} == {NotRunning}
        with pytest.raises((BatchFailed, BatchUnknown)):
            await writes
    assert connections(valkey_process.address) == 0


async def test_reads_while_the_server_is_away_do_not_come_back_after_it_is_closed(
    valkey_process: ValkeyProcess,
) -> None:
    store = await opened(valkey_process.url)
    await asyncio.to_thread(valkey_process.kill)
    reads = await begun(store)
    await asyncio.sleep(0.02)  # they are trying again by now
    await store.close()
    await asyncio.to_thread(valkey_process.start)
    answers = await asyncio.gather(*reads, return_exceptions=True)
    assert {type(one) for one in answers} == {NotRunning}
    assert connections(valkey_process.address) == 0


async def test_who_waits_for_another_to_go_alone_gives_up(
    redis_url: str, lend_redis_namespace: Callable[[], str]
) -> None:
    namespace = lend_redis_namespace()
    store, other = await opened(redis_url, namespace), await opened(redis_url, namespace)
    async with other.alone():
        write = asyncio.create_task(store.apply("b", [Beat(worker_id="w", lease_us=1)]))
        await asyncio.sleep(0.02)
        await store.close()
        with pytest.raises(BatchFailed, match="not open"):
            await write
    await other.close()
