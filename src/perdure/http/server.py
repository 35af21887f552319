"""The HTTP API as an ASGI app: finds the route, asks who comes, reads, answers, and tells what went wrong.

Made of the table in `routes`; nothing about a single route stands here. Served on its own it opens and closes the App
with it; mounted into another app, whose lifespan must do that (`lifespan`, `with_perdure`), it says loudly if nobody
did.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.app import App
from perdure.errors import (
    BadRequest,
    NotAuthenticated,
    NotRunning,
    ObservingUnavailable,
    PerdureError,
    ServerFailed,
)
from perdure.http import problems, wire
from perdure.http.handling import Call, answer
from perdure.http.holding import Holding
from perdure.http.keeping import ForReaders
from perdure.http.openapi import document
from perdure.http.readiness import Readiness
from perdure.http.reading import read
from perdure.http.redacting import Redacting
from perdure.http.routes import BY_VERB, PREFIX, ROUTES, Route
from perdure.http.security import COOKIE, STRANGER, Authenticate, Guard, Principal, Token
from perdure.http.streaming import STREAM_TYPE, Feed, Shown, at_length, stream
from perdure.model import limits
from perdure.model.limits import BadValue
from perdure.observing.prometheus import Prometheus
from perdure.observing.traces import asked_in, parsed
from perdure.webhooks.incoming import Hook, receive

log = logging.getLogger("perdure.http")

# What a browser may do with an answer: nothing.
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Server:
    """The API of one App."""

    def __init__(
        self,
        app: App,
        *,
        tokens: Sequence[Token],
        authenticate: Authenticate | None,
        hooks: Sequence[Hook],
        insecure: bool,
    ) -> None:
        self.app = app
        self.hooks = _checked_hooks([*app.hooks.values(), *hooks])
        self.feed = Feed(app)
        self.readiness = Readiness(app)
        self.holding = Holding()
        signing = app._secrets()
        self.guard = Guard(
            tokens,
            authenticate,
            None if signing is None else signing.keys[0],
            app._clock.now,
            insecure=insecure,
        )
        self._redaction = app._settings.redact
        self._warned = False

    def asgi(self) -> ASGIApp:
        routes = [_as_route(one, self._endpoint(one)) for one in ROUTES]
        routes.append(StarletteRoute(f"{PREFIX}/openapi.json", self._document, methods=["GET"]))
        starlette = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _http_error, Exception: _failed},
        )
        # A path that ends with a slash is another path; to send somebody elsewhere hides a mistake.
        starlette.router.redirect_slashes = False
        return RawPaths(starlette)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        if self.app._life.entered:  # by whoever serves us
            yield
            return
        async with self.app:
            yield

    # --- one request ---

    def _endpoint(self, route: Route) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            return await self._caught(request, self._answered(route, request))

        return endpoint

    async def _caught(self, request: Request, answered: Awaitable[Response]) -> Response:
        try:
            return await answered
        except PerdureError as error:
            return self._problem(request, error)
        except TimeoutError as error:
            reason = str(error) or "this took too long"
            return self._problem(request, BadRequest(reason, 504))

    async def _answered(self, route: Route, request: Request) -> Response:
        principal = STRANGER
        if route.scope is not None:
            principal = await self.guard.require(request, route.scope)
        call = request.state.call = await read(request, route, principal)
        asked_in.set(_trace(request))  # each request has a context of its own
        if route.verb not in _without_engine:
            self._check_open()
        if route.on == "server":
            return await _own[route.verb](self, request, call)
        if route.streams:
            return await stream(self.app, self.feed, route, call, self._shown(route, call))
        if route.at_length and STREAM_TYPE in request.headers.get("accept", ""):
            return await at_length(self.feed, self._whatever(route, request, call))
        if route.held:
            return await self.holding.answered(request, lambda: self._done(route, call))
        return await self._done(route, call)

    async def _done(self, route: Route, call: Call) -> Response:
        return await self._response(route, call, await answer(self.app, route, call))

    async def _whatever(self, route: Route, request: Request, call: Call) -> Response:
        """What becomes of it, also if we fail: by then nobody else may be able to say so."""
        try:
            return await self._caught(request, self._done(route, call))
        except Exception as error:
            return await _failed(request, error)

    async def _response(self, route: Route, call: Call, value: Any) -> Response:
        if value is None and route.answer is None:
            return Response(status_code=204, headers=HEADERS)
        status = 200
        if route.created and isinstance(value, wire.Started) and value.created:
            status = 201
        if isinstance(value, wire.Ready) and value.status != "ok":
            status = 503
        return _json(await self._shown(route, call)(value), status)

    def _shown(self, route: Route, call: Call) -> Shown:
        """How values are written for who asks: fields that are to be kept from readers are, but from administrators."""
        if self._redaction is None or call.principal.may("admin"):
            return _whole
        return ForReaders(self.app, self._redaction, route, call, _sent(call))

    def _check_open(self) -> None:
        if self.app._life.entered:
            return
        if not self._warned:
            self._warned = True
            log.error(
                "requests reach the Perdure API, and its App was never started: a mounted app is not started by its "
                "host. Use lifespan=perdure.http.lifespan(app), or perdure.http.with_perdure(host, app)"
            )
        raise NotRunning(
            "the engine behind this API was never started: its host must enter the App "
            "(lifespan=perdure.http.lifespan(app), or perdure.http.with_perdure)"
        )

    def _problem(self, request: Request, error: PerdureError) -> Response:
        call: Call | None = getattr(request.state, "call", None)  # none if it could not be read
        if self._redaction is None or (call is not None and call.principal.may("admin")):
            return told(error)
        return told(error, Redacting(self._redaction, sent=None if call is None else _sent(call)))

    async def _document(self, request: Request) -> Response:
        return _json(document(request.scope.get("root_path", "")), 200)


def _as_route(route: Route, endpoint: Callable[[Request], Any]) -> StarletteRoute:
    made = StarletteRoute(route.path, endpoint, methods=[route.method])
    # The router takes HEAD for any GET; of a stream there is no head without joining it.
    if route.streams and made.methods is not None:
        made.methods.discard("HEAD")
    return made


# --- what is answered by the server itself ---


async def _sign_in(server: Server, request: Request, call: Call) -> Response:
    cookie, principal = server.guard.sign_in(call.body.token)
    response = _json(msgspec.json.encode(_told_of(principal)), 200)
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=limits.session_us // 1_000_000,
        path=request.scope.get("root_path", "") or "/",
        secure=request.scope["scheme"] == "https",
        httponly=True,
        samesite="strict",
    )
    return response


async def _me(server: Server, request: Request, call: Call) -> Response:
    return _json(msgspec.json.encode(_told_of(await server.guard.known(request))), 200)


def _told_of(principal: Principal) -> wire.Me:
    return wire.Me(
        name=principal.name, scopes=sorted(principal.scopes), groups=list(principal.groups)
    )


async def _sign_out(server: Server, request: Request, call: Call) -> Response:
    response = Response(status_code=204, headers=HEADERS)
    response.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/")
    return response


async def _receive(server: Server, request: Request, call: Call) -> Response:
    """A delivery to one of the hooks that this server was given."""
    hook = server.hooks.get(call.path["name"])
    if hook is None:
        raise BadRequest(f"there is no hook {call.path['name']!r} here", 404)
    told = await receive(server.app, hook, call.raw, request.headers)
    if told is None:
        return Response(status_code=204, headers=HEADERS)
    return _json(msgspec.json.encode(told), 200)


async def _ready(server: Server, request: Request, call: Call) -> Response:
    return await server._response(BY_VERB["ready"], call, await server.readiness.look())


async def _metrics(server: Server, request: Request, call: Call) -> Response:
    """What was counted, in the form that whoever scrapes it takes."""
    seen = server.app._observed
    watching = [] if seen is None else seen.observers
    found = next((one for one in watching if isinstance(one, Prometheus)), None)
    if seen is None or found is None:
        raise ObservingUnavailable(
            "nothing is counted for Prometheus here: App(observe=[Prometheus()]), of perdure.observing; it needs "
            "pip install 'perdure[prometheus]'"
        )
    content, content_type = await found.exposed(seen, request.headers.get("accept"))
    return Response(content, 200, HEADERS, content_type)


_own: Final[dict[str, Callable[[Server, Request, Call], Awaitable[Response]]]] = {
    "me": _me,
    "metrics": _metrics,
    "ready": _ready,
    "sign_in": _sign_in,
    "sign_out": _sign_out,
    "receive": _receive,
}
# These answer whether or not anything runs behind them.
_without_engine: Final = frozenset({"alive", "sign_in", "sign_out", "me"})


def _checked_hooks(hooks: Sequence[Hook]) -> dict[str, Hook]:
    found: dict[str, Hook] = {}
    for one in hooks:
        if not isinstance(one, Hook):
            raise BadValue("hook", one, "is no Hook: give perdure.webhooks.Hook(…)")
        if one.name in found:
            raise BadValue("hook", one.name, "is given twice: each has a name of its own")
        found[one.name] = one
    return found


def _sent(call: Call) -> Any:
    """The body of a request, whatever it is a body of."""
    try:
        return msgspec.json.decode(call.raw) if call.raw else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _trace(request: Request) -> str | None:
    """The trace that a request is part of. One that is not as W3C has it is none, as W3C has it."""
    given = request.headers.get("traceparent")
    return given if parsed(given) is not None else None


# --- what is sent ---


async def _whole(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _json(content: bytes, status: int) -> Response:
    return Response(content, status, HEADERS, "application/json")


def told(error: PerdureError, show: Redacting | None = None) -> Response:
    """An error as its problem."""
    problem = problems.told_problem_of(error)
    if show is not None:
        problem = show.shown(problem)
    headers = dict(HEADERS)
    if isinstance(error, NotAuthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    if problem.status in (429, 503):
        headers["Retry-After"] = "1"
    return Response(msgspec.json.encode(problem), problem.status, headers, problems.CONTENT_TYPE)


async def _http_error(request: Request, error: Exception) -> Response:
    """What the router itself refuses: a path or a method that is not there."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        reason = f"there is nothing at {request.scope['path']!r}; {PREFIX}/openapi.json lists what there is"
    elif error.status_code == 405:
        reason = f"{request.method} is not known at {request.scope['path']!r}"
    else:
        reason = str(error.detail)
    response = told(BadRequest(reason, error.status_code))
    response.headers.update(error.headers or {})
    return response


async def _failed(request: Request, error: Exception) -> Response:
    """An error of our own: whoever asks gets its number, the log gets the rest."""
    error_id = secrets.token_hex(6)
    log.error(
        "request %s %s failed, error %s",
        request.method,
        request.scope["path"],
        error_id,
        exc_info=error,
    )
    return told(ServerFailed(error_id))


class RawPaths:
    """Routes by the path as it was sent, where a slash in an id is `%2F`; routers see it decoded otherwise."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": _as_sent(scope)}
        await self._inner(scope, receive, send)


def _as_sent(scope: Scope) -> str:
    """The path below the place where we are mounted, as it was sent, or written anew if that is not known."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    raw: str = (scope.get("raw_path") or b"").partition(b"?")[0].decode("latin-1")
    above = "/".join(raw.split("/")[: root.count("/") + 1])
    if raw and unquote(above) == root:
        return root + raw.removeprefix(above)
    return root + quote(path.removeprefix(root))
