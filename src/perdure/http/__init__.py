"""The HTTP API: an ASGI app to serve, or to mount into FastAPI or Starlette. Needs `perdure[server]`.

Nothing of a web framework is imported until an app is made, so that the client, which shares the table of routes and
the types, needs none.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from perdure.app import App
    from perdure.http.security import Authenticate, Principal, Token
    from perdure.webhooks.incoming import Hook

__all__ = ["Principal", "Token", "create_app", "lifespan", "new_token", "with_perdure"]


def create_app(
    app: "App",
    *,
    tokens: "Sequence[Token] | None" = None,
    authenticate: "Authenticate | None" = None,
    hooks: "Sequence[Hook]" = (),
    insecure: bool = False,
) -> "ASGIApp":
    """The API of an App as an ASGI app, to be served or mounted.

    Who may ask: `tokens` (by default those of PERDURE_TOKENS), or for whom `authenticate(request)` gives a Principal.
    Without either only this machine is answered, unless `insecure=True`. What others post to `hooks` is verified by its
    signature. Served on its own it opens and closes the App; a host that mounts it does that: `lifespan(app)`.
    """
    with needing_extra():
        from perdure.http.security import tokens_of_environment
        from perdure.http.server import Server
    known = tokens_of_environment() if tokens is None else tuple(tokens)
    server = Server(app, tokens=known, authenticate=authenticate, hooks=hooks, insecure=insecure)
    return server.asgi()


def lifespan(app: "App") -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """For a host that mounts the API: `FastAPI(lifespan=perdure.http.lifespan(app))` opens the App and closes it."""

    @asynccontextmanager
    async def around(_: Any) -> AsyncIterator[None]:
        async with app:
            yield

    return around


def with_perdure(host: Any, app: "App", *, path: str = "/perdure", **options: Any) -> Any:
    """Mount the API into a FastAPI or Starlette app that has a lifespan of its own, and open the App with it."""
    own = host.router.lifespan_context

    @asynccontextmanager
    async def around(started: Any) -> AsyncIterator[Any]:
        async with app, own(started) as state:
            yield state

    host.router.lifespan_context = around
    host.mount(path, create_app(app, **options))
    return host


def new_token() -> str:
    """A token that nobody guesses, for `Token.of(text, name=…, scopes=[…])`."""
    with needing_extra():
        from perdure.http import security
    return security.new_token()


@contextmanager
def needing_extra() -> Iterator[None]:
    """Around imports of what needs the extra: says which that is."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the HTTP API needs the extra `server`: pip install 'perdure[server]' ({error})",
            name=error.name,
        ) from error


def __getattr__(name: str) -> Any:
    if name in ("Principal", "Token"):
        with needing_extra():
            from perdure.http import security
        return getattr(security, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
