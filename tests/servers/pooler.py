"""A transaction pooler, as pgbouncer is one: many clients share a few connections to the server.

A client has a connection for the length of one transaction, and the next time it may be another one. So whatever a
session keeps is lost, or is met by others: prepared statements, LISTEN, settings, locks of a session. Settings that a
client wants from the start are refused. It runs in a thread and a loop of its own, beside any number of tests.
"""

import asyncio
import itertools
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from servers.wire import Cancel, Line, Message, at_port, error, gone, who

# What pgbouncer lets a client set, because it keeps it for each client by itself.
_known = {"user", "database", "client_encoding", "application_name", "DateStyle", "TimeZone"}
_patience_s = 20.0


@dataclass(eq=False)
class _Server:
    """A connection to the server, and what it said about itself when it was made."""

    line: Line
    parameters: list[Message] = field(default_factory=list)
    key: bytes = b""


@dataclass(eq=False)
class _Client:
    line: Line
    key: bytes
    server: _Server | None = None
    awaited: int = 0  # answers that end with ReadyForQuery
    pump: "asyncio.Task[None] | None" = None


class Pooler:
    """Listens on `url`, with at most `size` connections to the server."""

    def __init__(self, server_url: str, size: int = 2) -> None:
        self._server_url = server_url
        self._size = size
        # First in, first out: the next transaction of a client mostly gets another connection. None may be made.
        self._free: asyncio.Queue[_Server | None] = asyncio.Queue()
        self._clients: dict[bytes, _Client] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self.transactions = 0  # how often a client was given a connection
        self.connections = 0  # to the server, ever made
        self.url = ""

    async def open(self) -> None:
        for _ in range(self._size):
            self._free.put_nowait(None)
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = at_port(self._server_url, self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while not self._free.empty():
            server = self._free.get_nowait()
            if server is not None:
                server.line.hang_up()
        await asyncio.sleep(0)

    # --- clients ---

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        line = Line(reader, writer)
        try:
            await self._welcome(line)
        except (*gone, asyncio.CancelledError):
            # Streams would report a cancelled connection as an error of the loop.
            pass
        finally:
            self._tasks.discard(task)
            line.hang_up()

    async def _welcome(self, line: Line) -> None:
        first = await line.read_startup()
        if isinstance(first, Cancel):
            await self._cancel(first.key)
            return
        for name in first.settings.keys() - _known:
            line.write(error("08P01", f"unsupported startup parameter: {name}"))
            return
        server = await self._take()
        self._free.put_nowait(server)
        client = _Client(line, struct.pack("!ii", next(self._numbers), 0))
        self._clients[client.key] = client
        line.write(Message("R", struct.pack("!i", 0)), *server.parameters)
        line.write(Message("K", client.key), Message("Z", b"I"))
        try:
            while (message := await line.read()).kind != "X":
                await self._pass_on(client, message)
        finally:
            del self._clients[client.key]
            self._let_go(client)

    async def _pass_on(self, client: _Client, message: Message) -> None:
        if client.server is None:
            client.server = await self._take()
            self.transactions += 1
            client.pump = asyncio.create_task(self._answer(client, client.server))
            self._tasks.add(client.pump)
            client.pump.add_done_callback(self._tasks.discard)
        client.awaited += message.awaits_ready
        client.server.line.write(message)

    async def _answer(self, client: _Client, server: _Server) -> None:
        """What the server says goes to the client, until the transaction is over."""
        try:
            while True:
                message = await server.line.read()
                client.line.write(message)
                client.awaited -= message.kind == "Z"
                if message.is_idle and client.awaited == 0:
                    client.server = client.pump = None
                    self._free.put_nowait(server)
                    return
        except gone:
            client.line.hang_up()

    def _let_go(self, client: _Client) -> None:
        """A client that went in the midst of a transaction leaves a connection that nobody may use."""
        if client.server is not None:
            assert client.pump is not None
            client.pump.cancel()
            client.server.line.hang_up()
            self._free.put_nowait(None)

    async def _cancel(self, key: bytes) -> None:
        client = self._clients.get(key)
        if client is not None and client.server is not None:
            line = await Line.to(self._server_url)
            line.cancel(client.server.key)
            line.hang_up()

    # --- the server ---

    async def _take(self) -> _Server:
        server = await self._free.get()
        if server is not None and not server.line.reader.at_eof():
            return server
        try:
            return await self._connect()
        except BaseException:
            self._free.put_nowait(None)
            raise

    async def _connect(self) -> _Server:
        self.connections += 1
        server = _Server(await Line.to(self._server_url))
        server.line.introduce({**who(self._server_url), "client_encoding": "UTF8"})
        while (message := await server.line.read()).kind != "Z":
            match message.kind:
                case "R" if message.body != struct.pack("!i", 0):
                    raise ConnectionError(
                        "the pooler of the tests only knows servers that trust it"
                    )
                case "S":
                    server.parameters.append(message)
                case "K":
                    server.key = message.body
                case "E":
                    raise ConnectionError(f"the server refuses the pooler: {message.body!r}")
        return server


@contextmanager
def pooling(server_url: str, size: int = 2) -> Iterator[Pooler]:
    """A pooler in a thread of its own, as long as this lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="pooler", daemon=True)
    thread.start()
    pooler = Pooler(server_url, size)
    asyncio.run_coroutine_threadsafe(pooler.open(), loop).result(_patience_s)
    try:
        yield pooler
    finally:
        asyncio.run_coroutine_threadsafe(pooler.close(), loop).result(_patience_s)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_patience_s)
        loop.close()
