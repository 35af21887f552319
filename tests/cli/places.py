"""Stores and servers for commands to work at."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import corner_shop

from perdure import App
from perdure.http import Token
from perdure.http.serving import serve

TOKEN = "a-token-of-these-tests-of-the-shell"


def furnished(url: str, namespace: str | None = None) -> None:
    """Make the store, and leave it to whoever comes: no worker lives."""

    async def story() -> None:
        app = corner_shop.app.copy(url=url, namespace=namespace)
        async with app:
            await corner_shop.furnish(app)

    asyncio.run(story())


@contextmanager
def serving(app: App, **options: Any) -> Iterator[str]:
    """The API of an app, in a thread of its own; gives its URL."""
    options.setdefault("tokens", [Token.of(TOKEN, name="anna", scopes=["admin"])])
    told: Future[str] = Future()
    stopping: Future[Any] = Future()

    async def story() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        stopping.set_result(lambda: loop.call_soon_threadsafe(stop.set))
        await serve(app, port=0, stop=stop, listening=told.set_result, **options)

    def run() -> None:
        try:
            asyncio.run(story())
        except BaseException as error:
            if told.done():
                raise
            told.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield told.result(30)
    finally:
        stopping.result(30)()
        thread.join(30)
    assert not thread.is_alive()
