"""One request of a client, streams across connections that break, and how long a server that is away is waited for."""

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from perdure.client.wording import (
    asked,
    lost,
    media_type,
    path_of,
    plain_field,
    read_answer,
    read_end,
)
from perdure.errors import BadRequest, NotRunning, PerdureError, Unreachable
from perdure.http import wire
from perdure.http.problems import Problem, error_of, read_problem, status_of
from perdure.http.routes import BY_VERB, Route
from perdure.model import limits
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import BadValue, unsaid
from perdure.observing.traces import current_trace, parsed
from perdure.views import (
    Page,
)

# How long the server holds a request for the end of a run, well within what proxies endure; then we ask again.
held_s = 25
# Between two tries to go on where a connection broke: twice as long each time, up to this.
_again_s = 1.0
_again_s_max = 15.0
# For how long a server that was there may be away: as long as one is replaced, or its store fails over.
_away_s_max = 120.0
# What goes away by itself: a server starts or stops, has too much to do, or something before it misses it.
_passing = frozenset({429, 502, 503, 504})
# Of a stream: quiet for longer than the server's own signs of life means that it is gone.
_quiet_s = 60
_token = re.compile(r"[!-~]+")


class Transport:
    """What carries the verbs of a client: it is opened, asked, and closed."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: Duration = "30s",
        transport: Any = None,
    ) -> None:
        self.url = _checked_url(url)
        self._token = _checked_token(token)
        self._timeout_s = parse_duration(timeout, "timeout") / 1_000_000
        self._transport = transport
        self._http: Any = None

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    async def __aenter__(self) -> Self:
        if self._http is not None:
            raise NotRunning("the client is open already: a Client is entered once at a time")
        httpx = needed_httpx()
        headers = {"accept": "application/json"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            limits=httpx.Limits(
                max_connections=limits.client_connections_max, max_keepalive_connections=20
            ),
            transport=self._transport,
            verify=_authorities(self.url),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    # --- one request ---

    async def _page(self, verb: str, **given: Any) -> Page[Any]:
        found: wire.Listing[Any] = await self._call(verb, **given)
        return Page(found.items, found.cursor)

    async def _list(self, verb: str, **given: Any) -> list[Any]:
        found: wire.Listing[Any] = await self._call(verb, **given)
        return found.items

    async def _value(self, verb: str, **given: Any) -> Any:
        return (await self._call(verb, **given)).value

    async def _call(self, verb: str, /, held_s: float = held_s, **given: Any) -> Any:
        """Ask for one line of the table. The server may hold the request for so long before it answers."""
        route = BY_VERB[verb]
        path = path_of(route, given)
        fields = {name: plain_field(value) for name, value in given.items() if value is not UNSET}
        body = None if route.body is None else msgspec.json.encode(fields)
        if route.at_length:
            return await self._at_length(route, path, body)
        query = fields if route.body is None else {}
        return read_answer(route, await self._sent(route, path, query, body, held_s=held_s))

    async def _sent(
        self,
        route: Route,
        path: str,
        query: dict[str, Any] | None,
        body: bytes | None,
        headers: dict[str, str] | None = None,
        held_s: float = held_s,
    ) -> Any:
        http, httpx = self._open(), needed_httpx()
        with self._told_of(route):
            return await http.request(
                route.method,
                path,
                params=asked(query),
                content=body,
                headers=_headers(body, headers),
                timeout=httpx.Timeout(self._timeout_s, read=self._timeout_s + held_s),
            )

    async def _at_length(self, route: Route, path: str, body: bytes | None) -> Any:
        """Ask for what takes as long as there is to do; the server says meanwhile that it goes on."""
        http, httpx = self._open(), needed_httpx()
        accepted = {"accept": "application/json, text/event-stream"}
        with self._told_of(route):
            async with http.stream(
                route.method,
                path,
                content=body,
                headers=_headers(body) | accepted,
                timeout=httpx.Timeout(self._timeout_s, read=_quiet_s),
            ) as response:
                if response.status_code != 200 or media_type(response) != "text/event-stream":
                    await response.aread()
                    return read_answer(route, response)
                async for one in httpx.EventSource(response, limits.http_document_bytes_max):
                    if one.event in ("answer", "problem"):
                        return read_end(route, one.event, one.data.encode())
        raise lost(route, f"{self.url}: the server has stopped it")

    @contextmanager
    def _told_of(self, route: Route) -> Iterator[None]:
        """What a connection that fails means for what was asked."""
        httpx = needed_httpx()
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Unreachable(self.url, str(error) or type(error).__name__) from error
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            if route.method == "GET":
                raise Unreachable(self.url, reason, sent=True) from error
            raise lost(route, f"{self.url}: {reason}") from error

    def _open(self) -> Any:
        if self._http is None:
            raise NotRunning("the client is not open: use it inside `async with client:`")
        return self._http

    # --- streams ---

    async def _messages(
        self, route: Route, path: str, query: dict[str, Any], after: int | None
    ) -> AsyncGenerator[tuple[str, bytes], None]:
        """What a stream tells, across connections that break, until it says that it has ended."""
        patience = Patience()
        while True:
            self._open()
            try:
                async with self._connected(path, query, after) as events:
                    patience.met()
                    async for one in events:
                        if one.event == "problem":
                            raise error_of(msgspec.json.decode(one.data, type=Problem))
                        if one.id:
                            after = int(one.id)
                        yield one.event, one.data.encode()
                        if one.event == "end":
                            return
            except PerdureError as error:
                await patience.outlast(error)
            else:  # it ended, or broke: we come back where we were
                await asyncio.sleep(_again_s)

    @asynccontextmanager
    async def _connected(
        self, path: str, query: dict[str, Any], after: int | None
    ) -> AsyncIterator[Any]:
        http, httpx = self._open(), needed_httpx()
        asking = asked(query if after is None else {**query, "after": after})
        patience = httpx.Timeout(self._timeout_s, read=_quiet_s)
        try:
            async with http.stream("GET", path, params=asking, timeout=patience) as response:
                if response.status_code != 200:
                    raise read_problem(await response.aread(), response.status_code)
                yield httpx.EventSource(response, limits.http_body_bytes_max)
        except (
            httpx.SSEError
        ) as error:  # no stream, or not one of ours: the next will be none either
            raise BadRequest(f"{self.url} does not send a stream of events: {error}") from error
        except httpx.TransportError as error:
            raise Unreachable(self.url, str(error) or type(error).__name__) from error


class Patience:
    """Of one who waits for something of a server: it may go away and come back, but it must have been there."""

    def __init__(self) -> None:
        self._is_known = False
        self._away_since: float | None = None
        self._pause_s = _again_s

    def met(self) -> None:
        """The server has answered."""
        self._is_known, self._away_since, self._pause_s = True, None, _again_s

    async def outlast(self, error: PerdureError | TimeoutError) -> None:
        """Let some time pass before the next try; raises the error if it will not go away, or has not for too long."""
        now = asyncio.get_running_loop().time()
        since = self._away_since = now if self._away_since is None else self._away_since
        if not (self._knows(error) and _is_passing(error)) or now - since > _away_s_max:
            raise error
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _again_s_max)

    def _knows(self, error: PerdureError | TimeoutError) -> bool:
        return self._is_known or (isinstance(error, Unreachable) and error.sent)


def _is_passing(error: PerdureError | TimeoutError) -> bool:
    match error:
        case Unreachable() | TimeoutError():
            return True
        case _:
            return status_of(error) in _passing


def _headers(body: bytes | None, given: dict[str, str] | None = None) -> dict[str, str]:
    headers = dict(given or ({} if body is None else {"content-type": "application/json"}))
    if (trace := current_trace()) is not None and parsed(trace):
        headers["traceparent"] = trace
    return headers


def _checked_url(url: object) -> str:
    if not isinstance(url, str) or not _is_address(url):
        raise BadValue("url", url, "is no address of a server, such as https://host/perdure")
    if "@" in urlsplit(url).netloc:
        raise BadValue(
            "url", unsaid, "holds a user or password, which would take the place of the token"
        )
    return url.rstrip("/")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port beyond 65535
        return False


def _checked_token(token: object) -> str | None:
    """Before it stands in a header: what goes wrong there is told with the header and all."""
    if token is None or (isinstance(token, str) and _token.fullmatch(token)):
        return token
    raise BadValue("token", unsaid, "is none: it is printable ASCII without blanks")


def _authorities(url: str) -> bool | ssl.SSLContext:
    """Who is trusted: nobody, where nothing is encrypted. To read the usual ones takes longer than most calls."""
    return True if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def needed_httpx() -> Any:
    try:
        import httpx2  # not above: it needs the extra
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the client needs the extra `client`: pip install 'perdure[client]' ({error})",
            name=error.name,
        ) from error
    return httpx2
