"""What type checkers see of the public API. Checked by mypy (strict) and pyright (strict), never run.

Each line that must be an error carries the ignore of both checkers, and both report an ignore that is not needed: so a
mistake that stops being an error fails the check as well.
"""

from dataclasses import dataclass
from typing import Any, assert_type

from perdure import (
    App,
    Buffered,
    Context,
    Delivered,
    Duplicate,
    Page,
    Retry,
    RunHandle,
    RunInfo,
    Signal,
    Step,
    TimedOut,
    Won,
    Workflow,
    step,
    step_info,
    timer,
    workflow,
)
from perdure.testing import World

app = App("memory://")


@dataclass
class Order:
    number: int


@dataclass
class Approval:
    ok: bool


approval = Signal("approval", Approval)
note = Signal("note", str, buffer="all")
anything = Signal("anything")

assert_type(approval, Signal[Approval])
assert_type(note, Signal[str])
assert_type(anything, Signal[Any])


@app.step
async def charge(order: Order) -> str:
    return str(order.number)


@app.step(retry=Retry(attempts=5), timeout="30s", raises=[ValueError])
async def ship(order: Order, *, express: bool = False) -> int:
    return order.number


@app.step
def blocking(count: int) -> list[str]:
    return ["x"] * count


@step
async def free_step(name: str) -> bytes:
    return name.encode()


async def undecorated(count: int) -> float:
    return float(count)


@app.workflow(signals=[approval])
async def fulfil(ctx: Context, order: Order, copies: int) -> str:
    assert_type(await ctx.step(charge, order), str)
    assert_type(await ctx.step(ship, order, express=True), int)
    assert_type(await ctx.step(blocking, 3), list[str])
    assert_type(await ctx.step(free_step, "a"), bytes)
    assert_type(await ctx.step(undecorated, 1), float)
    assert_type(await ctx.step(charge.options(timeout="5s"), order), str)

    assert_type(await ctx.wait(approval), Approval)
    assert_type(await ctx.wait(approval, timeout="1h"), Approval)
    assert_type(await ctx.wait(approval | timer("48h")), Approval | TimedOut)
    assert_type(await ctx.wait(approval | note | timer("48h")), Approval | str | TimedOut)
    assert_type(await ctx.first(yes=approval, late=timer("1d")), Won[Any])

    assert_type(await ctx.gather(ctx.step(charge, order), ctx.step(ship, order)), tuple[str, int])
    assert_type(await ctx.map(charge, [order]), list[str])
    assert_type(await ctx.sleep("1d"), None)
    child = await ctx.start(child_flow, 3)
    assert_type(await ctx.wait(child), int)
    assert_type(await ctx.call(child_flow, 3), int)
    assert_type(await ctx.call(bare), None)
    assert_type(await ctx.signal("run", approval, Approval(True)), Delivered | Buffered | Duplicate)

    await ctx.step(charge, 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.step(ship, order, expres=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await ctx.call(child_flow, "3")  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    return ctx.run_id


@app.workflow
async def child_flow(ctx: Context, number: int) -> int:
    return number


@app.workflow
async def bare(ctx: Context) -> None:
    return None


@workflow(version=2)
async def free_workflow(ctx: Context, name: str) -> bytes:
    return name.encode()


assert_type(fulfil, Workflow[str, Order, int])
assert_type(bare, Workflow[None])
assert_type(free_workflow, Workflow[bytes, str])


def takes_step(one: Step[[Order], str]) -> None: ...


takes_step(charge)


async def outside() -> None:
    run = await app.start(fulfil, Order(1), 2, id="order-1")
    assert_type(run, RunHandle[str])
    assert_type(await run.result(), str)
    assert_type(await run.result(timeout="5s"), str)
    assert_type(run.created, bool)
    assert_type(await app.runs(status="waiting"), Page[RunInfo])
    assert_type(
        await app.signal(run.id, approval, Approval(True)), Delivered | Buffered | Duplicate
    )
    handle, sent = await app.signal_with_start(
        fulfil, Order(1), 2, signal=approval, payload=Approval(True), id="order-1"
    )
    assert_type(handle, RunHandle[str])
    assert_type(sent, Delivered | Buffered | Duplicate)
    assert_type(step_info().idempotency_key, str)

    await app.start(fulfil, 1, 2)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    await app.start(bare, 1)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    await app.start(fulfil, Order(1), 2, ids="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    async with World(app) as world:
        assert_type(world.app, App)
