"""Somebody between a client and a Postgres, who sees each message and can cut the connection before or after it.

Runs in the loop of the test. What was passed on before a cut arrives; what comes after it does not.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple

from servers.wire import Cancel, Line, Message, at_port, gone

Side = Literal["client", "server"]


class Passed(NamedTuple):
    """A message that came by: who sent it, and its letter."""

    side: Side
    kind: str


class Cutter:
    """Listens on `url`. `watch` is asked about each message before it is passed on: False cuts the connection."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._lines: set[Line] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.watch: Callable[[Passed], bool] = lambda passed: True
        self.refuses = False  # nobody gets through any more
        self.url = ""

    async def open(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = at_port(self._server_url, self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._listener.close()
        self.cut_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut_all(self) -> None:
        """As if the network had gone."""
        for line in list(self._lines):
            line.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Line(reader, writer)
        if self.refuses:
            client.cut()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._lines.add(client)
        try:
            await self._join(client)
        except (*gone, asyncio.CancelledError):
            # Streams would report a cancelled connection as an error of the loop.
            pass
        finally:
            self._tasks.discard(task)
            self._lines.discard(client)
            client.cut()

    async def _join(self, client: Line) -> None:
        first = await client.read_startup()
        server = await Line.to(self._server_url)
        try:
            if isinstance(first, Cancel):
                server.cancel(first.key)
                return
            server.introduce(first.settings)
            await self._pass_both_ways(client, server)
        finally:
            # What the server was sent before is still carried out, as it would be if the client had died.
            server.hang_up()

    async def _pass_both_ways(self, client: Line, server: Line) -> None:
        ways = [
            asyncio.create_task(self._pass_on("client", client, server)),
            asyncio.create_task(self._pass_on("server", server, client)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in ways:
                one.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass_on(self, side: Side, source: Line, target: Line) -> None:
        while True:
            message: Message = await source.read()
            if not self.watch(Passed(side, message.kind)):
                return
            target.write(message)


@asynccontextmanager
async def cutting(server_url: str) -> AsyncIterator[Cutter]:
    """A cutter before this server, as long as this lasts."""
    cutter = Cutter(server_url)
    await cutter.open()
    try:
        yield cutter
    finally:
        await cutter.close()
