"""An app with something of everything, for tests of its synchronous face."""

from dataclasses import dataclass
from typing import Any

from perdure import App, Context, Pool, Queue, Signal, Topic


@dataclass
class Order:
    sku: str
    count: int


approve = Signal("approve", bool)
note = Signal("note", buffer="all")
arrived = Topic("stock.arrived", int)
jobs = Queue("jobs", int)


def shop(url: str = "memory://", **options: Any) -> App:
    app = App(url, secret="a secret of these tests, long enough", **options)
    app.add(arrived)
    app.add(jobs)

    @app.workflow(signals=[approve, note])
    async def order(ctx: Context, order: Order) -> int:
        """Publishes each note that comes, until it is approved."""
        await ctx.set("sku", order.sku)
        while not isinstance(word := await ctx.wait(approve | note), bool):
            await ctx.publish("notes", word)
            await ctx.reply(word)
        return order.count

    @app.workflow
    async def fail(ctx: Context) -> None:
        raise ValueError("no such luck")

    @app.workflow
    async def double(ctx: Context, number: int) -> int:
        return 2 * number

    @app.workflow(pool=Pool("narrow", limit=1))
    async def narrow(ctx: Context) -> None:
        await ctx.wait(note)

    return app


def workflow(app: App, name: str) -> Any:
    return app.registry.newest(name)
