"""Streams end with their server, each after a whole message: whoever reads one sees its end, not a line that breaks.

sse-starlette hears that the server is to stop and tells each response so; one that has not ended within its grace is
cut off where it stands. What a stream waits for is given up then, by a timeout that has no time until that moment: it
costs no task for each message.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


class Ending:
    """Whether the server is to stop. Stands for the event that sse-starlette sets."""

    def __init__(self) -> None:
        self._has_come = False
        self._waiting: asyncio.Timeout | None = None

    def set(self) -> None:
        self._has_come = True
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def next(self, items: AsyncIterator[T]) -> T | None:
        """The next one; None after the last, and once the server is to stop."""
        if self._has_come:
            return None
        self._waiting = asyncio.timeout(None)
        try:
            async with self._waiting as limit:
                return await anext(items, None)
        except TimeoutError:
            if limit.expired():
                return None
            raise  # another one, of whoever makes the items
        finally:
            self._waiting = None


async def until(ending: Ending, items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """What comes before the server is to stop."""
    async with aclosing(items) as found:  # type: ignore[type-var]
        while (one := await ending.next(found)) is not None:
            yield one
