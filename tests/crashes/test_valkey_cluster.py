"""A cluster of three: each namespace lives on one node, whichever it is, and its clients find it there."""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis
from servers.premises import Premises
from servers.valkey import ValkeyProcess

from crashes.crew import until
from perdure import App, Context, RunHandle, Signal, Topic, step, workflow
from perdure.model.clock import SystemClock
from perdure.model.ids import Ids
from perdure.store.redis.store import RedisStore
from perdure.testing.conformance import check_invariants

go = Signal("go", int)
news = Topic("news", int)
_slots = 16384
# Enough that each node has some.
_namespaces = [f"n{n}" for n in range(8)]


@step
async def double(n: int) -> int:
    return 2 * n


@workflow(signals=[go])
async def patient(ctx: Context, n: int) -> int:
    heard = await ctx.wait(news)
    return await ctx.step(double, n) + heard + await ctx.wait(go)


@pytest.fixture
def cluster(premises: Premises) -> Iterator[list[ValkeyProcess]]:
    """Three nodes that have met and share the slots."""
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(ValkeyProcess(premises, {"cluster-enabled": "yes"}))
            for _ in range(3)
        ]
        bounds = [_slots * n // 3 for n in range(4)]
        for nth, node in enumerate(nodes):
            with node.address.client() as client:
                client.execute_command("CLUSTER ADDSLOTSRANGE", bounds[nth], bounds[nth + 1] - 1)
                client.execute_command("CLUSTER MEET", "127.0.0.1", nodes[0].port)
        deadline = time.monotonic() + 30
        while not all(_is_whole(node) for node in nodes):
            assert time.monotonic() < deadline, "the nodes do not find each other"
            time.sleep(0.05)
        yield nodes


def _is_whole(node: ValkeyProcess) -> bool:
    with node.address.client() as client:
        found = client.execute_command("CLUSTER INFO")
        text = found.decode() if isinstance(found, bytes) else str(found)
        known = client.execute_command("CLUSTER NODES")
    return "ok" in text and "fail" not in text.split("cluster_slots_ok")[0] and len(known) >= 3


def app_on(node: ValkeyProcess, namespace: str, **options: object) -> App:
    app = App(node.url, namespace=namespace, **options)  # type: ignore[arg-type]
    app.add(patient)
    return app


async def test_namespaces_on_three_nodes(cluster: list[ValkeyProcess]) -> None:
    """Each is entered by another node: the way to its own is found. Two processes of one namespace hear each other."""

    async def play(nth: int, namespace: str) -> None:
        asks, works = cluster[nth % 3], cluster[(nth + 1) % 3]
        client = app_on(asks, namespace, worker=False)
        async with app_on(works, namespace), client:
            runs: list[RunHandle[int]] = [await client.start(patient, n) for n in range(5)]
            await client.emit(news, 100)
            for run in runs:
                await client.signal(run.id, go, 1)
            assert [await run.result("30s") for run in runs] == [2 * n + 101 for n in range(5)]
            assert await check_invariants(client._engine().store) == []

    await asyncio.gather(*(play(nth, one) for nth, one in enumerate(_namespaces)))
    sizes = [_keys_by_namespace(node) for node in cluster]
    assert all(sizes), "a node has nothing"
    for one in _namespaces:
        assert sum(one in found for found in sizes) == 1, f"{one} is on several nodes"


def _keys_by_namespace(node: ValkeyProcess) -> set[str]:
    with redis.Redis.from_url(node.url) as client:
        return {key.decode().split("}")[0].partition(":")[2] for key in client.scan_iter()}


async def test_a_node_that_is_killed_and_restarted(cluster: list[ValkeyProcess]) -> None:
    clock = SystemClock()
    store = RedisStore(
        cluster[0].url, namespace="n0", clock=clock, ids=Ids(clock, random.Random(1))
    )
    await store.open()
    try:
        nodes = [node for node in cluster if "n0" in _keys_by_namespace(node)]
    finally:
        await store.close()
    entry = next(node for node in cluster if node is not nodes[0])
    async with app_on(entry, "n0") as app:
        run = await app.start(patient, 1)
        await asyncio.to_thread(nodes[0].kill)
        asked = asyncio.create_task(app.emit(news, 100))
        await asyncio.wait((asked,), timeout=0.3)
        await asyncio.to_thread(nodes[0].start)
        await asked
        await app.signal(run.id, go, 5)

        async def is_done() -> bool:
            return await run.status() == "completed"

        await until(is_done, "it goes on")
        assert await run.result() == 107
