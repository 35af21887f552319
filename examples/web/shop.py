"""The app that every process of the server has: made when the module is imported, opened in each process by itself.

Whatever process gets a request starts, signals or awaits a run; which of them runs it is no concern of the caller's.
A module that only makes an `App` may be imported before a fork: nothing is open yet.
"""

import os
from typing import Any

from perdure import App, Context, Signal, TimedOut, timer

app = App(os.environ.get("SHOP_DATABASE", "sqlite:///shop.db"))
approved = Signal("approved", str)


@app.step
def ship(order_id: str) -> int:
    """Leaves a line in a file, so that one can see how often it was done; gives the process that did it."""
    with open(os.environ.get("SHOP_SHIPPED", "shipped.txt"), "a") as file:
        file.write(f"{order_id}\n")
    return os.getpid()


@app.workflow(signals=[approved])
async def order(ctx: Context, order_id: str) -> str:
    match await ctx.wait(approved | timer("1h")):
        case TimedOut():
            return "nobody approved"
        case name:
            await ctx.step(ship, order_id)
            return f"approved by {name}"


async def handle(method: str, path: str) -> dict[str, Any]:
    """What a request does, whichever server it comes from: `/orders/A-1`, `/orders/A-1/approve`."""
    if path == "/":
        return {"process": os.getpid()}
    _, order_id, *verb = path.strip("/").split("/")
    match method, verb:
        case "POST", []:
            await app.start(order, order_id, id=order_id)
            return {"process": os.getpid()}
        case "POST", ["approve"]:
            outcome = await app.signal(order_id, approved, "ada", key="ada")
            return {"process": os.getpid(), "outcome": type(outcome).__name__}
        case _:
            return {"process": os.getpid(), "result": await app.run(order_id).result("20s")}
