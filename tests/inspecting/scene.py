"""A store with something of everything in it, made by the engine: what the vandals come upon."""

from worlds import Stage, Worlds

from perdure import App, Batch, Context, Queue, Signal, Topic
from perdure.approvals import approval

go = Signal("go", int)
other = Signal("other", int)
jobs = Queue("jobs", int)
arrived = Topic("stock.arrived", int)


def make_app() -> App:
    app = App("memory://")

    @app.workflow(signals=[go, other])
    async def waiter(ctx: Context) -> int:
        return await ctx.wait(go, timeout="30d")

    @app.workflow
    async def sleeper(ctx: Context) -> None:
        await ctx.sleep("30d")

    @app.workflow
    async def taker(ctx: Context) -> int:
        return await ctx.wait(jobs)

    @app.workflow
    async def listener(ctx: Context) -> int:
        return await ctx.wait(arrived.about(since="now"))

    @app.workflow
    async def asker(ctx: Context) -> str:
        decision = await ctx.wait(approval("ok", remind=["10d"]))
        return str(decision.choice)

    @app.workflow(signals=[go])
    async def busy(ctx: Context) -> int:
        await ctx.publish("lines", "one")
        await ctx.publish("lines", "two")
        value = await ctx.wait(go)
        item = await ctx.wait(jobs)
        event = await ctx.wait(arrived)
        return value + item + event

    @app.consumer("reader", "stock.*")
    async def reader(batch: Batch) -> None:
        pass

    app.schedule("1d", waiter, name="daily")
    return app


async def play(stage: Stage) -> None:
    """Everything happens once; what is left waits for long."""
    app = stage.app
    await stage.begin("busy", id="ended")
    await app.signal("ended", go, 1)
    await app.put(jobs, 2)
    await stage.emit("stock.arrived", 3)
    await stage.settle()
    assert await app.run("ended").status() == "completed"
    for name in ("waiter", "sleeper", "taker", "listener", "asker"):
        await stage.begin(name, id=name)
    await app.signal("waiter", other, 7)
    await app.start("waiter", id="later", start_at="30d")
    await stage.settle()


async def prepare(world: Worlds, app: App) -> None:
    async with world(app) as stage:
        await play(stage)
