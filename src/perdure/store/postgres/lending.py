"""A few connections that are used in turns: made when they are first needed, thrown away after any doubt."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from perdure.store.postgres.connecting import Connection, is_refusal

_close_s = 5.0


class Pool:
    """At most so many connections of one kind. Who asks when all are lent waits.

    With `resets`, what a borrower set on its connection is taken back before the next one gets it.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], size: int, *, resets: bool = False
    ) -> None:
        self._connect = connect
        self._size = size
        self._resets = resets
        self._lent: set[Connection] = set()
        self._resetting: set[asyncio.Task[None]] = set()
        self._closed = False
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
            self._lent.add(connection)
            yield connection
        except BaseException as error:
            # After a cancelled call its answer may still be under way.
            if connection is not None and not is_refusal(error):
                self._lent.discard(connection)
                connection.terminate()
                connection = None
            raise
        finally:
            self._take_back(connection)

    def _take_back(self, connection: Connection | None) -> None:
        if connection is None or not self._resets:
            self._put_back(connection)
            return
        # Beside the borrower, who has others waiting for what it is about to tell.
        task = asyncio.create_task(self._reset(connection), name="perdure-reset")
        self._resetting.add(task)
        task.add_done_callback(self._resetting.discard)

    async def _reset(self, connection: Connection) -> None:
        try:
            await connection.reset(timeout=_close_s)
            await connection.execute("discard temp", timeout=_close_s)
        except Exception:
            connection.terminate()
        finally:
            self._put_back(connection)

    def _put_back(self, connection: Connection | None) -> None:
        if connection is not None:
            self._lent.discard(connection)
            if self._closed:
                connection.terminate()
        self._free.put_nowait(connection)

    async def close(self) -> None:
        """Wait for those that are lent, but not for long; then close all."""
        returned: list[Connection | None] = []
        try:
            async with asyncio.timeout(_close_s):
                while len(returned) < self._size:
                    returned.append(await self._free.get())
        except TimeoutError:
            for connection in list(self._lent):
                connection.terminate()
        self._closed = True
        await asyncio.gather(*(close(one) for one in returned if one is not None))


async def close(connection: Connection) -> None:
    """Say goodbye; if that takes long, go without."""
    try:
        await connection.close(timeout=_close_s)
    except Exception:
        connection.terminate()
