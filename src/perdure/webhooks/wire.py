"""Connections of webhooks: to the very address that was checked, and to no other.

Only here is a name of a host resolved, once for each connection; every answer is judged, and the connection is made
to one of these answers as it stands. So a name that says something else the second time it is asked says it to nobody.
The name itself stays with the request: TLS and the header `host` have it. Proxies of the environment do not count,
redirects are not followed, bodies are not unpacked. Needs httpcore2, of the extra `webhooks`.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable

import httpcore2

from perdure.model import limits
from perdure.webhooks.addresses import Address, Allowed, Target

Resolve = Callable[[str, int], Awaitable[list[str]]]

# A connection is kept for the next event so long.
_idle_s = 30.0
# One sends in order; another may fire a parked event anew beside it.
_connections_max = 2


class Forbidden(Exception):
    """The host stands for an address that this webhook may not reach; nothing was sent."""


class Unreachable(Exception):
    """No answer could be had, in words without a secret."""


class Answer:
    """What is known of an answer: nothing, its status and headers, then what was read of its body."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = bytearray()


async def system_resolve(host: str, port: int) -> list[str]:
    """All addresses of a host, as the system's resolver gives them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in found]


class Network(httpcore2.AsyncNetworkBackend):
    """Resolves, judges, and connects to what was judged."""

    def __init__(self, allowed: Allowed, resolve: Resolve) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._connector = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the contract of httpcore2)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        found = (await self._judged(host, port))[: limits.webhook_addresses_max]
        # One that swallows everything must leave time for the next.
        each_s = None if timeout is None else timeout / max(1, len(found))
        failed: Exception | None = None
        for address in found:
            try:
                return await self._connector.connect_tcp(
                    str(address), port, each_s, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        raise failed or httpcore2.ConnectError(f"{host} has no address")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 (the contract of httpcore2)
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        raise Forbidden("a socket of this machine")

    async def _judged(self, host: str, port: int) -> list[Address]:
        """The addresses of a host, if it may be reached at all of them: one that may not is a trap, or a mistake."""
        try:
            found = [ipaddress.ip_address(host)]
        except ValueError:
            try:
                answers = await self._resolve(host, port)
            except (OSError, UnicodeError) as error:
                raise httpcore2.ConnectError(f"{host} cannot be resolved: {error}") from None
            found = [ipaddress.ip_address(one) for one in dict.fromkeys(answers)]
        for address in found:
            if not self._allowed.permits(host, address):
                raise Forbidden(f"{host} is {address}, which is no public address")
        return found


class Line:
    """The connections of one webhook while its app is open."""

    def __init__(
        self, target: Target, allowed: Allowed, resolve: Resolve, timeout_s: float
    ) -> None:
        self._extensions = {"timeout": {"connect": timeout_s}}
        self._url = httpcore2.URL(
            scheme=target.scheme.encode(),
            host=target.host.encode(),
            port=target.port,
            target=target.path.encode(),
        )
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpcore2.default_ssl_context() if target.scheme == "https" else None,
            max_connections=_connections_max,
            max_keepalive_connections=1,
            keepalive_expiry=_idle_s,
            network_backend=Network(allowed, resolve),
        )

    async def post(self, headers: list[tuple[str, str]], body: bytes, answer: Answer) -> None:
        """Post a body; what comes back is told to `answer` as it comes, so that a cut-off does not lose it."""
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        try:
            async with self._pool.stream(
                "POST", self._url, headers=raw, content=body, extensions=self._extensions
            ) as response:
                answer.headers = {
                    name.decode("latin-1").lower(): value.decode("latin-1")
                    for name, value in response.headers
                }
                answer.status = response.status
                async for chunk in response.aiter_stream():
                    answer.body += chunk[: limits.webhook_response_bytes_max - len(answer.body)]
                    if len(answer.body) >= limits.webhook_response_bytes_max:
                        break
        except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from None
        except httpcore2.ProtocolError as error:
            raise Unreachable(f"it does not speak HTTP: {error}") from None

    async def aclose(self) -> None:
        await self._pool.aclose()
