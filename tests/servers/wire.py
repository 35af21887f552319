"""The wire protocol of Postgres, as far as somebody who stands between a client and a server must know it.

A message is a letter and a body with its length before it; only the first one of a client has no letter. Nothing here
understands a body, but for who one says one is and whether a transaction is open.
"""

import asyncio
import struct
from dataclasses import dataclass
from typing import NamedTuple, Self
from urllib.parse import unquote, urlsplit

_ssl_request = 80877103
_gss_request = 80877104
_cancel_request = 80877102


class Message(NamedTuple):
    """One message with its letter. `raw` is what was on the wire."""

    kind: str
    body: bytes

    @property
    def raw(self) -> bytes:
        return self.kind.encode() + struct.pack("!i", len(self.body) + 4) + self.body

    @property
    def awaits_ready(self) -> bool:
        """Whether the server ends its answer to it with ReadyForQuery."""
        return self.kind in "QSF"

    @property
    def is_idle(self) -> bool:
        """Whether the server says that no transaction is open."""
        return self.kind == "Z" and self.body == b"I"


class Startup(NamedTuple):
    """How a client introduces itself."""

    settings: dict[str, str]


class Cancel(NamedTuple):
    """What a client says, on a connection of its own, to have its call cancelled."""

    key: bytes


@dataclass(eq=False)
class Line:
    """One side of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def to(cls, url: str) -> Self:
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port or 5432))

    async def read(self) -> Message:
        """The next message; IncompleteReadError at the end."""
        kind = await self.reader.readexactly(1)
        return Message(kind.decode("latin-1"), await self._read_body())

    async def read_startup(self) -> Startup | Cancel:
        """The first message of a client; encryption is declined, as often as it is asked for."""
        while True:
            body = await self._read_body()
            (code,) = struct.unpack_from("!i", body)
            if code == _cancel_request:
                return Cancel(body[4:])
            if code not in (_ssl_request, _gss_request):
                return Startup(_pairs(body[4:]))
            self.writer.write(b"N")

    def write(self, *messages: Message) -> None:
        self.writer.write(b"".join(one.raw for one in messages))

    def introduce(self, settings: dict[str, str]) -> None:
        words = [word for pair in settings.items() for word in pair]
        body = struct.pack("!i", 3 << 16) + b"".join(one.encode() + b"\0" for one in words) + b"\0"
        self.writer.write(struct.pack("!i", len(body) + 4) + body)

    def cancel(self, key: bytes) -> None:
        self.writer.write(struct.pack("!ii", len(key) + 8, _cancel_request) + key)

    def hang_up(self) -> None:
        """What was written before still goes; nothing more is heard."""
        self.writer.close()

    def cut(self) -> None:
        """At once, with whatever was under way."""
        self.writer.transport.abort()

    async def _read_body(self) -> bytes:
        (length,) = struct.unpack("!i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length - 4)


def _pairs(body: bytes) -> dict[str, str]:
    words = [one.decode() for one in body.split(b"\0")]
    return {name: value for name, value in zip(words[::2], words[1::2], strict=False) if name}


def error(state: str, text: str) -> Message:
    """A fatal error, as a server would tell it."""
    fields = (("S", "FATAL"), ("V", "FATAL"), ("C", state), ("M", text))
    return Message("E", "".join(f"{name}{value}\0" for name, value in fields).encode() + b"\0")


def who(url: str) -> dict[str, str]:
    """With what a client introduces itself that has only a URL."""
    parts = urlsplit(url)
    return {"user": unquote(parts.username or "postgres"), "database": parts.path.lstrip("/")}


def at_port(url: str, port: int) -> str:
    """The same URL with somebody else, on this machine, in between."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    place = f"127.0.0.1:{port}"
    return parts._replace(netloc=f"{user}@{place}" if user else place).geturl()


# What goes wrong on a connection that somebody else may end at any time.
gone = (OSError, asyncio.IncompleteReadError)
