"""A process that is killed around a decision: `python -m crashes.approver URL NAMESPACE PLACE`.

It opens the store, starts a run that asks, and answers. When it comes to the place it kills itself; a process that is
given no place goes on with what it finds, and tells what came of it.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from perdure import App, Context, workflow
from perdure.approvals import approval
from perdure.model import ops

PLACES = ("asked", "reminded", "sent", "committed", "decided")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # it may take a moment to arrive; go no further


@workflow
async def asking(ctx: Context) -> str:
    decision = await ctx.wait(approval("refund", remind="100ms", expires="1h"))
    return f"{decision.choice} by {decision.by}: {decision.comment}"


def arm(place: str, app: App) -> None:
    """Die when the decision is on its way, or right after its commit, before anybody is answered."""
    store = app._engine().store
    apply = store.apply

    async def apply_or_die(batch_id: str, batch: Any, *rest: Any) -> Any:
        decides = any(isinstance(one, ops.Decide) for one in batch)
        if decides and place == "sent":
            die()
        applied = await apply(batch_id, batch, *rest)
        if decides and place == "committed":
            die()
        return applied

    store.apply = apply_or_die  # type: ignore[method-assign]


async def run(url: str, namespace: str, place: str) -> None:
    app = App(url, namespace=namespace or None, lease="1s")
    app.add(asking)
    async with app:
        arm(place, app)
        run = await app.start(asking, id="r1")
        while not (inbox := await app.approvals()):
            if await run.status() == "completed":
                break
            await asyncio.sleep(0.005)
        if place == "asked":
            die()
        while place == "reminded":
            if await app.events("hitl.reminded"):
                die()
            await asyncio.sleep(0.005)
        if inbox:
            await app.decide(inbox[0].id, "approve", by="anna", comment=place)
        if place == "decided":
            die()
        print(await run.result("20s"))
        told = await app.events("hitl.*")
        print(*(one.type for one in told if one.type != "hitl.reminded"))
        print(*(one.payload["number"] for one in told if one.type == "hitl.reminded"))


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
