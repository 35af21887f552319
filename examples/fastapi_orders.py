"""Orders behind FastAPI: `python examples/fastapi_orders.py`.

A web shop in one process: its own routes take orders, the payment provider's webhook becomes a signal to the run that
waits for it, the browser follows the progress as server-sent events, and a person approves what is expensive. Perdure's
own API is mounted beside the shop's routes, under /perdure, and opened with it.

The script serves it on a free port and then plays customer, payment provider and manager, over HTTP.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from standardwebhooks import Webhook

from perdure import App, Client, Context, RunNotFound, Signal, TimedOut, timer
from perdure.approvals import approval
from perdure.http import with_perdure
from perdure.webhooks import Hook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # only for this example, never in code


class Order(BaseModel):
    customer: str
    total: int


class Payment(BaseModel):
    order: str
    amount: int


app = App("sqlite:///fastapi_orders.db")
paid = Signal("paid", Payment)


@app.step
async def ship(order: Order) -> str:
    return f"parcel for {order.customer}"


@app.workflow(signals=[paid])
async def fulfil(ctx: Context, order: Order) -> str:
    await ctx.publish("progress", "waiting for the payment")
    payment = await ctx.wait(paid | timer("2d"))
    if isinstance(payment, TimedOut):
        return "never paid"
    await ctx.publish("progress", f"paid {payment.amount}")
    if order.total > 1000:
        await ctx.publish("progress", "waiting for a manager")
        decision = await ctx.wait(approval("expensive", title=f"Ship for {order.total}?"))
        if decision.choice != "approve":
            return f"refused by {decision.by}"
    await ctx.publish("progress", "shipping")
    return await ctx.step(ship, order)


# The provider posts to /perdure/hooks/payments; what it has not signed does not reach the run.
payments = Hook("payments", secret=SECRET, signal=paid, run=lambda body: body["order"])

shop = FastAPI(title="A shop")


@shop.post("/orders/{order_id}", status_code=202)
async def take_order(order_id: str, order: Order) -> dict[str, Any]:
    run = await app.start(fulfil, order, id=order_id)  # a second click finds the same run
    return {"order": run.id, "new": run.created}


@shop.get("/orders/{order_id}/progress")
async def progress(order_id: str) -> StreamingResponse:
    try:
        await app.run(order_id).status()
    except RunNotFound:
        raise HTTPException(404, "there is no such order") from None

    async def lines() -> AsyncIterator[str]:
        async for item in app.run(order_id).stream("progress", type=str):
            yield f"data: {json.dumps(item.value)}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


with_perdure(shop, app, path="/perdure", hooks=[payments])


# --- somebody uses it ---


async def play(url: str) -> list[str]:
    """A customer, the payment provider and a manager; gives what the customer saw."""
    async with httpx2.AsyncClient(base_url=url) as http, Client(f"{url}/perdure") as client:
        order_id = f"order-{secrets.token_hex(4)}"
        order = {"customer": "anna", "total": 1200}
        answer = await http.post(f"/orders/{order_id}", json=order)
        print("the shop:", answer.json())
        seen = asyncio.create_task(_watch(http, order_id))

        body = json.dumps({"order": order_id, "amount": 1200})
        for _ in range(2):  # providers deliver at least once
            answer = await http.post(
                "/perdure/hooks/payments", content=body, headers=_signed(order_id, body)
            )
            print("the provider is told:", answer.json()["outcome"])

        while not (asked := await client.approvals(name="expensive")):  # noqa: ASYNC110 (rows of another machine)
            await asyncio.sleep(0.02)
        print("the inbox of the managers:", asked[0].title)
        await client.decide(asked[0].id, "approve", by="manager")
        print("the result:", await client.run(order_id).result(timeout="10s"))
        return await seen


async def _watch(http: httpx2.AsyncClient, order_id: str) -> list[str]:
    seen = []
    async with http.stream("GET", f"/orders/{order_id}/progress") as response:
        async for one in httpx2.EventSource(response):
            seen.append(json.loads(one.data))
            print("the customer sees:", seen[-1])
    return seen


def _signed(delivery_id: str, body: str) -> dict[str, str]:
    now = datetime.now(UTC)
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(SECRET).sign(delivery_id, now, body),
    }


async def main() -> None:
    config = uvicorn.Config(shop, port=0, log_level="warning")
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    listening.listen()  # whoever comes before it serves waits
    serving = asyncio.create_task(server.serve([listening]))
    try:
        await play(f"http://127.0.0.1:{listening.getsockname()[1]}")
    finally:
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main())
