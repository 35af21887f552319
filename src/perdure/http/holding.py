"""Requests that are held until something happens: answered in time when their server is told to stop.

What tells streams of the end of a server tells these of it too, and so wherever it does: with `serve`, and in a host
that uvicorn serves. One that was left alone would be cut off, with an answer that says nothing.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from sse_starlette import EventSourceResponse

T = TypeVar("T")


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
