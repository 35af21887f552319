"""What a namespace on Redis holds when nothing is left in it, and how long a script runs: both are bounded."""

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from servers.redis_indexes import drift
from servers.valkey import ValkeyAddress

from perdure.model import ops
from perdure.model.ids import Ids
from perdure.store.optimistic.known import Known, units_max
from perdure.store.redis import writing
from perdure.store.redis.store import RedisStore
from perdure.testing import VirtualClock
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.words import WORKER, YEAR, queue, signal, timer, topic


@pytest_asyncio.fixture
async def d(redis_url: str, lend_redis_namespace: Callable[[], str]) -> AsyncIterator[Driver]:
    clock = VirtualClock()
    ids = Ids(clock, random.Random(7))
    store = RedisStore(
        f"{redis_url}?notify=0", namespace=lend_redis_namespace(), clock=clock, ids=ids
    )
    await store.open()
    try:
        driver = Driver(store, clock)
        await driver.beat(WORKER, lease_us=100 * YEAR)
        yield driver
    finally:
        await store.close()


def store_of(d: Driver) -> RedisStore:
    assert isinstance(d.store, RedisStore)
    return d.store


async def live(d: Driver, of: str) -> None:
    """Something of everything, with names of its own; in the end nothing is left of it but events."""
    await d.emit(f"topic.{of}", entity=f"order/{of}", key=f"k{of}")
    await d.set_pool("pool", limit=1)
    await d.start(f"ready{of}", owner=None, pool="pool", pool_key=of, workflow=f"flow{of}")
    await d.admit("pool", workflows=(f"flow{of}",))
    await d.claim(workflows=(f"flow{of}",))
    await d.finish(f"ready{of}")
    conditions = topic(f"topic.{of}", since="now"), queue(f"queue{of}"), signal("go"), timer("1d")
    await d.start_waiting(
        f"run{of}", *conditions, tags=f'{{"of":"{of}"}}', entity_type="order", entity_id=of, key=of
    )
    await d.start(
        f"child{of}", parent_run_id=f"run{of}", deadline_us=5, cancel_on=f'[["t{of}",""]]'
    )
    await d.signal(f"run{of}", f"other{of}")
    await d.put(f"queue{of}")
    await d.put(f"left{of}")
    await d.purge(f"left{of}", limit=10)
    await d.schedule(f"tick{of}", every="5s")
    await d.unschedule(f"tick{of}")
    await d.claim_consumer(f"reader{of}", worker_id="gone")
    await d.apply(ops.DropConsumer(name=f"reader{of}"))
    await d.terminate(f"run{of}")
    await d.terminate(f"child{of}")
    d.advance("30d")
    await d.prune(finished_before=d.clock.now())
    await d.trim(keep=1)


async def test_what_ended_and_was_pruned_leaves_nothing(
    d: Driver, valkey_server: ValkeyAddress
) -> None:
    store = store_of(d)
    with valkey_server.client() as client:
        await live(d, "first")
        before = sizes(client, store, "first")
        for of in ("a", "b", "c", "d", "last"):
            await live(d, of)
        assert sizes(client, store, "last") == before
        assert drift(client, store._layout) == []
    # Of the newest event something always stays.
    kept = {"meta", "head", "counts", "workers", "pools", "keys", "event_ids", "events"}
    of_it = {"times", "timelines", "type:workflow.run_terminated"}
    assert before.keys() - kept <= of_it


async def test_an_index_that_is_not_what_the_rows_make_it_is_seen(
    d: Driver, valkey_server: ValkeyAddress
) -> None:
    """What the tests of the contract rely on."""
    store = store_of(d)
    await d.start_waiting("r1", signal("go"), timer("1d"))
    with valkey_server.client() as client:
        assert drift(client, store._layout) == []
        (deadline,) = client.zrange(store._key("deadlines"), 0, -1)
        client.zrem(store._key("deadlines"), deadline)
        assert [one for one in drift(client, store._layout) if "deadlines" in one]
        client.zadd(store._key("deadlines"), {deadline: 0})
        client.sadd(store._key("children", "nobody"), "r1")
        client.hincrby(store._key("counts"), "steps", 1)
        assert len(drift(client, store._layout)) == 2
        client.delete(store._key("children", "nobody"))
        client.hincrby(store._key("counts"), "steps", -1)
        assert drift(client, store._layout) == []


def sizes(client: Any, store: RedisStore, of: str) -> dict[str, int]:
    """How much is under each key, with a star for the names of a life; but for what is bounded by itself."""
    keys = [one.decode() for one in client.scan_iter(f"{store._layout.prefix}*", count=1000)]
    found = {one.removeprefix(store._layout.prefix): one for one in keys}
    size = {
        b"hash": client.hlen,
        b"zset": client.zcard,
        b"set": client.scard,
        b"stream": client.xlen,
    }
    return {
        name.replace(of, "*"): size[client.type(key)](key)
        for name, key in found.items()
        if name not in ("units", "commits", "commits:age")
    }


async def test_versions_are_kept_of_a_bounded_number_of_names(
    d: Driver, valkey_server: ValkeyAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "units_max", 8)
    store = store_of(d)
    with valkey_server.client() as client:
        for nth in range(50):
            await d.put(f"q{nth}", str(nth))
            assert client.hlen(store._key("units")) <= 8
        for nth in range(50):
            await d.put(f"q{nth}", str(nth + 100))
        for nth in range(50):
            assert await d.items(f"q{nth}") == [str(nth), str(nth + 100)]


async def test_batches_are_remembered_for_a_while(d: Driver, valkey_server: ValkeyAddress) -> None:
    store = store_of(d)
    with valkey_server.client() as client:
        for _ in range(20):
            await d.emit("t")
        d.advance("1h")
        for _ in range(10):
            await d.emit("t")
        assert (
            client.hlen(store._key("commits")) == client.zcard(store._key("commits", "age")) == 10
        )


def test_a_process_forgets_versions_of_names_that_are_too_many() -> None:
    known = Known()
    for nth in range(units_max):
        known.learn_unit(("queue", str(nth)), 1)
    known.trim(())
    assert len(known.units) == units_max
    known.learn_unit(("schedule", "one more"), 1)
    known.trim(())
    assert known.units == {}
