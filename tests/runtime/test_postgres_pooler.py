"""Behind a transaction pooler nobody is told anything, so all rests on looking; unless a way past it is given.

In real time.
"""

import asyncio

from servers.namespaces import Lent
from servers.pooler import Pooler
from servers.stores import opened

from perdure import App, Context, Signal, Topic
from perdure.model import ops
from perdure.store.postgres.store import PostgresStore

go = Signal("go", int, buffer="all")
paid = Topic("order.paid", int)
shop = App("memory://")


@shop.step
async def double(number: int) -> int:
    return 2 * number


@shop.workflow
async def order(ctx: Context, number: int) -> int:
    first = await ctx.step(double, number)
    return first + await ctx.wait(go) + await ctx.wait(paid.about(f"order/{number}"))


async def test_two_workers_get_everything_done_without_hints(
    postgres_pooler: Pooler, lend_namespace: Lent
) -> None:
    url, namespace = f"{postgres_pooler.url}?pgbouncer=1", lend_namespace()
    async with (
        shop.copy(url, namespace=namespace) as one,
        shop.copy(url, namespace=namespace) as other,
    ):
        for app in (one, other):
            store = app._engine().store
            assert isinstance(store, PostgresStore) and not store.sends_hints
        runs = [await (one, other)[n % 2].start(order, n, id=f"r{n}") for n in range(6)]
        for n in range(6):
            # To a run that the other one holds, each time.
            await (other, one)[n % 2].signal(f"r{n}", go, 10)
            await (other, one)[n % 2].emit(paid, 100, entity=f"order/{n}")
        # Asked for by whoever does not run it, too.
        awaited = [
            other.run(run.id) if n % 2 == 0 else one.run(run.id) for n, run in enumerate(runs)
        ]
        results = await asyncio.gather(*(run.result(timeout="30s") for run in awaited))
        assert results == [2 * n + 110 for n in range(6)]
        look = await one._engine().store.look()
        workers = {app._engine().worker.worker_id for app in (one, other)}  # type: ignore[union-attr]
        assert look.workers == workers


async def test_hints_go_past_the_pooler_if_they_are_given_a_way(
    postgres_pooler: Pooler, postgres_url: str, lend_namespace: Lent
) -> None:
    url, namespace = (
        f"{postgres_pooler.url}?pgbouncer=1&listen_url={postgres_url}",
        lend_namespace(),
    )
    heard = asyncio.Event()
    async with opened(url, namespace) as other, opened(url, namespace) as one:
        other.on_hint = lambda wake: heard.set() if wake.kind == "events" else None
        event = ops.NewEvent(event_id="e", type="t", payload="1")
        await one.apply("batch", [ops.Emit(events=(event,))])
        async with asyncio.timeout(20):
            await heard.wait()
