"""The HTTP API on a port of its own: listens, serves until it is told to stop, and stops in time.

Beyond this machine it listens only if it can know who asks. When it is to stop, streams that are open are ended and
requests that are held are answered; whatever is not done after two seconds more is cut off: clients come back where
they were. Needs `perdure[server]`.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import uvicorn
from sse_starlette.sse import AppStatus

from perdure.app import App
from perdure.http import create_app
from perdure.http.security import (
    TOKENS_VARIABLE,
    Authenticate,
    Token,
    is_loopback,
    tokens_of_environment,
)
from perdure.model.limits import BadValue
from perdure.webhooks import Hook

PORT: Final = 8321
# How long requests that are under way may take to end, once the server is to stop.
_grace_s: Final = 2
_backlog: Final = 2048
_takes_nothing_ms: Final = 60_000


async def serve(
    app: App,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    tokens: Sequence[Token] | None = None,
    authenticate: Authenticate | None = None,
    hooks: Sequence[Hook] = (),
    stop: asyncio.Event,
    listening: Callable[[str], None] = lambda url: None,
    access_log: bool = False,
) -> None:
    """Serve the API of an app until `stop` is set; `listening` is told the URL once it answers.

    Opens the app, and closes it, unless it is open. Port 0 takes one that is free. Raises BadValue if it cannot listen
    there, or may not: beyond loopback it needs `tokens` (by default those of PERDURE_TOKENS) or `authenticate`.
    """
    known = tokens_of_environment() if tokens is None else tuple(tokens)
    check_host(host, has_guard=bool(known) or authenticate is not None)
    asgi = create_app(app, tokens=known, authenticate=authenticate, hooks=hooks)
    with _listening(host, port) as bound:
        async with _open(app):
            config = uvicorn.Config(
                asgi,
                http="h11",  # it bounds the head of a request; the other one takes what comes
                log_config=None,
                access_log=access_log,
                timeout_graceful_shutdown=_grace_s,
                lifespan="off",  # the app is open by now
                server_header=False,
            )
            server = _Server(config, lambda: listening(url_of(bound, host)))
            await _until(server, bound, stop)


def check_host(host: str, *, has_guard: bool) -> None:
    """Raises BadValue for an address beyond this machine, if anybody could ask there for anything."""
    if not has_guard and not is_loopback(host):
        raise BadValue(
            "host",
            host,
            f"is not this machine alone, and nobody would have to show who they are: set {TOKENS_VARIABLE} (`perdure "
            "token new` makes a token), or listen at 127.0.0.1",
        )


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        bound = socket.create_server(address[:2], family=family, backlog=_backlog)
    except (OSError, OverflowError) as error:
        raise BadValue("address", f"{host}:{port}", f"cannot be listened at: {error}") from error
    with bound:
        # One who takes nothing is let go of by the system, with what waits for them; connections inherit it.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _takes_nothing_ms)
        yield bound


def url_of(bound: socket.socket, host: str) -> str:
    """The address as a browser takes it; an address that stands for all is reached as this machine."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{bound.getsockname()[1]}"


@asynccontextmanager
async def _open(app: App) -> AsyncIterator[None]:
    if app._life.entered:
        yield
        return
    async with app:
        yield


class _Server(uvicorn.Server):
    """Says when it listens, and has no signal handlers: its own would end the process by the signal, once it stops."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _until(server: _Server, bound: socket.socket, stop: asyncio.Event) -> None:
    serving = asyncio.ensure_future(server.serve(sockets=[bound]))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        server.should_exit = True
        # Streams and held requests hear of the end of the server by this flag, which is one for the process.
        AppStatus.should_exit = True
        try:
            await serving
        finally:
            AppStatus.should_exit = False
