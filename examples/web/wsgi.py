"""For a server that forks and speaks WSGI, such as gunicorn; how it is run says gunicorn_conf.py.

The module is imported once, before the processes are forked; each of them opens the app for itself, after the fork, in
a loop of its own that runs in a thread. Requests are handled in other threads and ask that loop.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from .shop import app, handle


class Background:
    """The app, open in a thread of this process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="shop", daemon=True)
        self._thread.start()
        self.ask(app.__aenter__())

    def ask(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def close(self) -> None:
        self.ask(app.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


background: Background | None = None


def open_here() -> None:
    """In each process, after the fork."""
    global background
    background = Background()


def close_here() -> None:
    if background is not None:
        background.close()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    assert background is not None, "open_here was not called"
    found = background.ask(handle(environ["REQUEST_METHOD"], environ["PATH_INFO"]))
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(found).encode()]
