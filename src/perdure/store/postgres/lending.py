"""A few connections that are used in turns: made when they are first needed, thrown away after any doubt."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from perdure.store.postgres.connecting import Connection, is_refusal

_close_s = 5.0


class Pool:
    """At most so many connections of one kind. Who asks when all are lent waits."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int) -> None:
        self._connect = connect
        self._size = size
        # None stands for a connection that may be made.
        self._free: asyncio.LifoQueue[Connection | None] = asyncio.LifoQueue()
        for _ in range(size):
            self._free.put_nowait(None)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """A connection that nobody else uses meanwhile."""
        connection = await self._free.get()
        try:
            if connection is None or connection.is_closed():
                connection = None
                connection = await self._connect()
            yield connection
        except BaseException as error:
            # After a cancelled call its answer may still be under way.
            if connection is not None and not is_refusal(error):
                connection.terminate()
                connection = None
            raise
        finally:
            self._free.put_nowait(connection)

    async def close(self) -> None:
        """Wait for those that are lent, then close all."""
        for _ in range(self._size):
            connection = await self._free.get()
            if connection is not None:
                await close(connection)


async def close(connection: Connection) -> None:
    """Say goodbye; if that takes long, go without."""
    try:
        await connection.close(timeout=_close_s)
    except Exception:
        connection.terminate()
