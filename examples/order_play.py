"""An order as a play, from the first act to the last: `python examples/order_play.py`.

The play reserves stock, asks a manager if the order is large, ships with two messages side by side, and adds a gift for
a gold customer. Three orders go through it:

- the first is approved, and ends with the state that each part has added to;
- the second waits 48 hours for a manager who never comes (time is virtual here), so its stock is released again;
- the third fails in the warehouse. What was done is undone, the last first. Then the warehouse is mended, the run is
  retried, and begins again where the saga began; the manager is not asked twice.

The drawing in `order_play.mmd` shows where the first order stands while it waits: any viewer of Mermaid takes it.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from perdure import App, Retry, RunFailed, Signal, StepInfo
from perdure.play import Act, Chorus, Cue, Play, Scene
from perdure.testing import World

STORE = "sqlite:///order_play.db"
CHART = "order_play.mmd"


@dataclass
class OrderState:
    order_id: str
    total: int
    customer: str = "plain"
    reserved: bool = False
    approved_by: str = ""
    parcel: str = ""
    mailed: bool = False
    texted: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass
class Approval:
    by: str


class Warehouse:
    """Stands for the world outside: it is closed until somebody opens it."""

    is_open = True


# --- callbacks: each gets the step it runs in, and the state, and changes the state -----------------


async def reserve(ctx: StepInfo, order: OrderState) -> None:
    order.reserved = True
    print(f"  {order.order_id}: stock reserved")


async def release(ctx: StepInfo, order: OrderState) -> None:
    order.reserved = False
    print(f"  {order.order_id}: stock released")


def approved(ctx: StepInfo, order: OrderState, approval: Approval) -> None:
    order.approved_by = approval.by


def pack(ctx: StepInfo, order: OrderState) -> None:
    order.parcel = f"parcel-{ctx.idempotency_key}"


def unpack(ctx: StepInfo, order: OrderState) -> None:
    order.parcel = ""
    print(f"  {order.order_id}: unpacked")


def load(ctx: StepInfo, order: OrderState) -> None:
    if not Warehouse.is_open:
        raise ConnectionError("the warehouse is closed")
    print(f"  {order.order_id}: on its way")


def mail(ctx: StepInfo, order: OrderState) -> None:
    order.mailed = True


def text(ctx: StepInfo, order: OrderState) -> None:
    order.texted = True


def add_gift(ctx: StepInfo, order: OrderState) -> None:
    order.notes.append("with a gift")


def is_large(order: OrderState) -> bool:
    return order.total > 1000


def tier(order: OrderState) -> str:
    return order.customer


order_play = Play(
    "order",
    OrderState,
    [
        Act("reserve", reserve, compensate=release, retry=Retry(attempts=3)),
        Signal(
            "manager-approval", Approval, on_receive=approved, timeout="48h", condition=is_large
        ),
        Scene(
            "ship",
            [
                Act("pack", pack, compensate=unpack),
                Act("load", load, retry=Retry(attempts=2, backoff="1s")),
                Chorus("notify", [Act("mail", mail), Act("text", text)]),
            ],
            saga=True,
        ),
        Cue("tier", tier, {"gold": Act("gift", add_gift), "else": None}),
    ],
)

app = App(STORE)
app.add(order_play)


async def one_that_is_approved(world: World) -> None:
    print("an order of 2,000 waits for a manager")
    order = OrderState("A-1", 2000, customer="gold")
    run = await world.app.start(order_play, order)
    await world.settle()
    (waiting,) = await run.waiting()
    print(f"  {await run.status()} for {waiting.target!r}, until {waiting.until:%d %b %H:%M}")
    graph = await run.graph()
    await asyncio.to_thread(Path(CHART).write_text, order_play.mermaid(graph))
    print(
        "  " + ", ".join(f"{one['name']} {one['status']}" for one in graph["parts"]), f"({CHART})"
    )
    await world.app.signal(run.id, "manager-approval", Approval(by="ann"))
    await world.settle()
    done = await run.result()
    print(
        f"  approved by {done.approved_by}, mailed {done.mailed}, texted {done.texted}, {done.notes}"
    )
    before = await run.state_at("manager-approval")
    print(f"  right after the approval the parcel was {before.parcel!r}, now {done.parcel[:7]!r}…")


async def one_that_nobody_approves(world: World) -> None:
    print("an order of 5,000 that nobody approves in 48 hours")
    run = await world.app.start(order_play, OrderState("A-2", 5000))
    await world.advance("48h")
    try:
        await run.result()
    except RunFailed as failed:
        print(f"  failed at {failed.path!r}: {failed.type}")
    print(f"  reserved: {(await run.get('state')).reserved}")


async def one_that_fails_and_is_retried(world: World) -> None:
    print("an order of 3,000 that the warehouse cannot load")
    Warehouse.is_open = False
    run = await world.app.start(order_play, OrderState("A-3", 3000))
    await world.settle()
    await world.app.signal(run.id, "manager-approval", Approval(by="bob"))
    await world.advance("1m")
    print(f"  {await run.status()}; reserved: {(await run.get('state')).reserved}")
    Warehouse.is_open = True
    await run.retry()
    await world.settle()
    done = await run.result()
    print(f"  retried: {await run.status()}, approved by {done.approved_by}, who was asked once")


async def main() -> None:
    async with World(app, STORE) as world:
        await one_that_is_approved(world)
        await one_that_nobody_approves(world)
        await one_that_fails_and_is_retried(world)


if __name__ == "__main__":
    asyncio.run(main())
