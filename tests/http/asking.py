"""An app with something of everything behind its HTTP API, asked in-process, and a real server for what needs one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import uvicorn

from perdure import App, Context, Pool, Queue, Signal, Topic
from perdure.approvals import approval
from perdure.http import Token, create_app

approve = Signal("approve", bool)
claim = Signal("claim", str, buffer="first")
note = Signal("note", buffer="all")
arrived = Topic("stock.arrived", int)
jobs = Queue("jobs", int)

# One token for each scope, and one for all of them.
TOKENS = {
    scope: f"{scope}-token-of-these-tests" for scope in ("read", "signal", "operate", "admin")
}


def tokens() -> list[Token]:
    return [
        Token.of(text, name=scope, scopes=[scope], groups=["finance"] if scope == "signal" else [])  # type: ignore[list-item]
        for scope, text in TOKENS.items()
    ]


def shop(url: str = "memory://", **options: Any) -> App:
    app = App(url, secret="a secret of these tests, long enough", **options)
    app.add(arrived)
    app.add(jobs)

    @app.workflow(signals=[approve, claim, note])
    async def decide(ctx: Context, order: str) -> str:
        await ctx.publish("log", f"asked for {order}")
        await ctx.set("order", order)
        return f"{order} {await ctx.wait(approve)}"

    @app.workflow
    async def fail(ctx: Context) -> None:
        raise ValueError("no such luck")

    @app.workflow
    async def ask(ctx: Context, who: str) -> str:
        decision = await ctx.wait(approval("agreed", choices=["yes", "no"], who=[who]))
        return decision.choice or ""

    @app.workflow(pool=Pool("narrow", limit=1))
    async def narrow(ctx: Context) -> None:
        await ctx.wait(note)

    app.schedule("0 3 * * *", decide, "nightly", name="nightly")
    return app


async def scene(app: App) -> None:
    """Runs in every state, and rows of every kind."""
    await app.start("decide", "o1", id="waiting", tags={"team": "x"}, entity="order/1")
    await app.start("decide", "o2", id="paused")
    await app.run("paused").pause("for a while")
    failed = await app.start("fail", id="failed")
    async with asyncio.timeout(10):
        while await failed.status() != "failed":  # noqa: ASYNC110 (a row, not an object)
            await asyncio.sleep(0)
    await app.start("ask", "anna", id="asking")
    await app.start("narrow", id="first in")
    await app.start("narrow", id="in line")
    await app.signal("waiting", note, 1)
    await app.emit(arrived, 3, entity="sku/7")
    await app.put(jobs, 1)
    await app.subscribe("stock.*", "fail", name="rule", where="payload > 100")
    async with asyncio.timeout(10):
        while not await app.approvals():  # noqa: ASYNC110 (likewise)
            await asyncio.sleep(0)


class Asked:
    """An open app and its API."""

    def __init__(self, app: App, http: httpx2.AsyncClient) -> None:
        self.app, self.http = app, http


@asynccontextmanager
async def asked(
    app: App, *, client: str = "127.0.0.1", base: str = "http://localhost", **options: Any
) -> AsyncIterator[Asked]:
    options.setdefault("tokens", ())
    transport = httpx2.ASGITransport(
        create_app(app, **options), client=(client, 1), raise_app_exceptions=False
    )
    async with app, httpx2.AsyncClient(transport=transport, base_url=base) as http:
        yield Asked(app, http)


@asynccontextmanager
async def serving(app: App, **options: Any) -> AsyncIterator[str]:
    """A server on a port of this machine; gives its address."""
    options.setdefault("tokens", ())
    config = uvicorn.Config(
        create_app(app, **options), port=0, log_level="warning", lifespan="off", ws="none"
    )
    listening = config.bind_socket()
    listening.listen()
    server = uvicorn.Server(config)
    async with app:
        task = asyncio.create_task(server.serve([listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task
