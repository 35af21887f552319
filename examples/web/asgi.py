"""For a server that speaks ASGI: `uvicorn --workers 4 examples.web.asgi:application`.

The server tells when a process begins and ends (its lifespan): there the app is opened and closed, in the loop that
serves the requests. A framework has a place for the same two lines, such as `lifespan=` of Starlette and FastAPI.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from .shop import app, handle

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await live(receive, send)
    else:
        await answer(scope, send)


async def live(receive: Receive, send: Send) -> None:
    await receive()
    async with app:
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def answer(scope: dict[str, Any], send: Send) -> None:
    body = json.dumps(await handle(scope["method"], scope["path"])).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
