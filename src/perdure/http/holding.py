"""Requests that are held until something happens: so many at most, for as long as somebody waits for them, and answered
in time when their server is told to stop.

What tells streams of the end of a server tells these of it too, and so wherever it does: with `serve`, and in a host
that uvicorn serves. One that was left alone would be cut off, with an answer that says nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response

from perdure.errors import Overloaded
from perdure.model import limits

T = TypeVar("T")


class Holding:
    """What a server holds now."""

    def __init__(self) -> None:
        self._count = 0

    async def answered(self, request: Request, work: Callable[[], Awaitable[Response]]) -> Response:
        """The answer of the work; it ends with whoever has asked for it."""
        if self._count >= limits.http_held_max:
            raise Overloaded(
                f"this server holds {limits.http_held_max} requests already (http_held_max); try again later"
            )
        self._count += 1
        doing = asyncio.ensure_future(work())
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait((doing, gone), return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else Response(status_code=204)  # nobody reads it
        finally:
            self._count -= 1
            doing.cancel()
            gone.cancel()
            await asyncio.gather(doing, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    """Until whoever has asked has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Stopping(Exception):
    """The server is to stop, and what was waited for has not come."""


async def unless_stopping(work: Coroutine[Any, Any, T]) -> T:
    """What it gives, or raises; raises Stopping, with the work cancelled, if the server is to stop before."""
    doing = asyncio.ensure_future(work)
    told = asyncio.ensure_future(EventSourceResponse._listen_for_exit_signal())
    try:
        await asyncio.wait((doing, told), return_when=asyncio.FIRST_COMPLETED)
    finally:
        doing.cancel()
        told.cancel()
        await asyncio.gather(doing, told, return_exceptions=True)
    if doing.cancelled():
        raise Stopping
    return doing.result()
