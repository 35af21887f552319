"""Where a command works: a store by its URL, the app of a module, or a server over HTTP; and how that is opened.

What is opened has the verbs of `App`, whichever of the three it is. A store that is only to be looked at is neither
made nor brought up to a newer schema in passing: who does that says so (`perdure db migrate`, or a worker).
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.errors import StoreRefused
from perdure.model.limits import BadValue
from perdure.store.urls import without_password

if TYPE_CHECKING:
    from perdure.app import App

URL_VARIABLE: Final = "PERDURE_URL"
APP_VARIABLE: Final = "PERDURE_APP"
NAMESPACE_VARIABLE: Final = "PERDURE_NAMESPACE"
TOKEN_VARIABLE: Final = "PERDURE_TOKEN"
DEFAULT_URL: Final = "sqlite:///perdure.db"


class Place(NamedTuple):
    """What was said about where to work; None: nothing."""

    url: str | None = None
    app: str | None = None
    namespace: str | None = None
    token: str | None = None

    def over(self, other: "Place") -> "Place":
        """This one, and what it does not say from another."""
        return Place(*(mine or theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def is_remote(self) -> bool:
        return self.url is not None and self.url.partition("://")[0] in ("http", "https")

    @property
    def shown(self) -> str:
        """For messages: no password in it."""
        if self.url is None and self.app is not None:
            return self.app
        return without_password(self.url or DEFAULT_URL)


def of_environment() -> Place:
    read = os.environ.get
    return Place(
        url=read(URL_VARIABLE) or None,
        app=read(APP_VARIABLE) or None,
        namespace=read(NAMESPACE_VARIABLE) or None,
        token=read(TOKEN_VARIABLE) or None,
    )


def resolved(said: Place) -> Place:
    """What was said on the command line wins over the environment.

    A URL that was said is not overruled by an app of the environment, nor the other way round; and a server has a
    namespace of its own.
    """
    usual = of_environment()
    if said.url is not None and said.app is None:
        usual = usual._replace(app=None)
        if said.is_remote:
            usual = usual._replace(namespace=None)
    elif said.app is not None and said.url is None:
        usual = usual._replace(url=None)
    return said.over(usual)


def local_app(place: Place, *, worker: bool, grace: str | None = None) -> "App":
    """The app of a place that is no server, not open. With a grace other than its own if one was said."""
    from perdure.app import App  # not above: what only prints help needs no engine
    from perdure.cli.loading import load_app, placed

    if place.is_remote:
        raise BadValue("--url", place.shown, "is a server; this needs a store or an app")
    if place.app is not None:
        return placed(load_app(place.app), place, worker=worker, grace=grace)
    return App(place.url or DEFAULT_URL, namespace=place.namespace, worker=worker)


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Any]:
    """The verbs at a place."""
    if place.is_remote:
        async with _client(place) as client:
            yield client
        return
    app = local_app(place, worker=False)
    await _check_there(app, place)
    async with app:
        yield app


def _client(place: Place) -> Any:
    if place.app is not None or place.namespace is not None:
        raise BadValue(
            "--url", place.shown, "is a server, which has an app and a namespace of its own"
        )
    from perdure.client import Client

    return Client(place.url or "", place.token)


async def _check_there(app: "App", place: Place) -> None:
    if app.url.startswith("memory:"):
        raise StoreRefused(
            f"{app.url} is there only within the process of its app: ask a server of that one, by --url http://…"
        )
    version = await app.schema_version()
    if version.stored is None:
        raise StoreRefused(
            f"there is no store at {without_password(app.url)}{_in(place)}; a worker makes one, or `perdure "
            "db migrate`. --url, --app, PERDURE_URL and PERDURE_APP say where to look"
        )
    if version.migrates:
        raise StoreRefused(
            f"the store at {without_password(app.url)} has schema {version.stored}, and this perdure works with "
            f"{version.known}: bring it up with `perdure db migrate`, or use the older perdure"
        )


def _in(place: Place) -> str:
    return "" if place.namespace is None else f" in namespace {place.namespace!r}"
