"""The app that these tests work on: something of everything, in a module that `corner_shop:app` names."""

import asyncio

from perdure import App, Batch, Context, Permanent, Pool, Queue, Signal, Topic
from perdure.approvals import approval

SECRET = "a-secret-of-these-tests-long-enough"

app = App("sqlite:///perdure.db", secret=SECRET)
approve = Signal("approve", bool)
claim = Signal("claim", str, buffer="first")
note = Signal("note", buffer="all", on_end="dead_letter")
arrived = Topic("stock.arrived", int)
jobs = Queue("jobs", int)
app.add(arrived)
app.add(jobs)


@app.step
async def reserve(order: str) -> str:
    return f"{order} reserved"


@app.workflow(signals=[approve, claim, note])
async def decide(ctx: Context, order: str) -> str:
    await ctx.step(reserve, order)
    await ctx.publish("log", f"asked for {order}")
    await ctx.publish("log", {"asked": order})
    return f"{order} {await ctx.wait(approve)}"


@app.workflow
async def quick(ctx: Context, order: str = "tea") -> str:
    return await ctx.step(reserve, order)


@app.workflow
async def fail(ctx: Context) -> None:
    raise ValueError("no such luck")


@app.workflow
async def ask(ctx: Context, who: str) -> str:
    decision = await ctx.wait(approval("agreed", choices=["yes", "no"], who=[who]))
    return decision.choice or ""


@app.workflow
async def stocked(ctx: Context) -> int:
    return await ctx.wait(arrived.about("sku/7"))


@app.workflow
async def recount(ctx: Context, counted: dict[str, int]) -> int:
    return counted["pieces"]


@app.workflow(pool=Pool("narrow", limit=1))
async def narrow(ctx: Context) -> None:
    await ctx.wait(note)


@app.consumer("audit", "audit.*")
async def audit(batch: Batch) -> None:
    raise Permanent("cannot be audited")


app.schedule("0 3 * * *", decide, "nightly", name="nightly")


async def furnish(app: App) -> None:
    """Runs in every state, and rows of every kind."""
    await app.start("decide", "o1", id="waiting", tags={"team": "x"}, entity="order/1")
    await app.start("decide", "o2", id="paused")
    await app.start("fail", id="failed")
    await (await app.start("quick", id="completed")).result()
    await app.start("ask", "anna", id="asking")
    await app.start("stocked", id="stocked")
    await app.start("narrow", id="first")
    await app.start("narrow", id="second")
    await app.signal("waiting", note, 1)
    await app.start("decide", "o3", id="ended")
    await app.signal("ended", note, 2)
    await app.run("ended").terminate()
    await app.emit("stock.counted", 3, entity="sku/7")
    await app.emit("audit.due", {"by": "\x1b[31mmallory\x9b"})
    await app.put(jobs, 1)
    async with asyncio.timeout(20):
        while not await _settled(app):  # noqa: ASYNC110 - what settles it are workers' turns
            await asyncio.sleep(0)
    await app.run("paused").pause("for a while")


async def _settled(app: App) -> bool:
    at = {one.id: one.status for one in await app.runs()}
    return (
        at["failed"] == "failed"
        and at["first"] == at["waiting"] == at["paused"] == at["stocked"] == "waiting"
        and bool(await app.approvals())
        and bool(await app.parked())
    )
