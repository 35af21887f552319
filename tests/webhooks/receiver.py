"""A receiver of webhooks on this machine: real HTTP by hand, so that it can also answer badly, late or not at all."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True)
class Delivery:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return msgspec.json.decode(self.raw)


Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(status: int, body: str = "", **headers: str) -> bytes:
    """The bytes of an answer; names of headers have _ for -."""
    given = {"content-length": str(len(body.encode())), **headers}
    lines = [f"HTTP/1.1 {status} x"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in given.items()]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """No answer at all."""
    writer.close()


class Receiver:
    """Answers one after the other as `answers` say, then always 204."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.deliveries: list[Delivery] = []
        self.connections = 0
        self.open = 0
        self.all_closed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?token=sesame-open"

    @property
    def payloads(self) -> list[Any]:
        return [one.body["data"] for one in self.deliveries]

    async def __aenter__(self) -> "Receiver":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        """Also what never answers ends here."""
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.all_closed.clear()
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self.open -= 1
            if self.open == 0:
                self.all_closed.set()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.strip().split("\r\n")
        headers = dict(one.split(": ", 1) for one in rest)
        headers = {name.lower(): value for name, value in headers.items()}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        self.deliveries.append(Delivery(line, headers, raw))
        said = self.answers.pop(0) if self.answers else answer(204)
        if callable(said):
            await said(writer)
            return not writer.is_closing()
        writer.write(said)
        await writer.drain()
        return True
