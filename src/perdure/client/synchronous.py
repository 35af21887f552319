"""The client for code that may wait. `synchronous.pyi` tells type checkers of its verbs."""

import asyncio
from typing import Any

from perdure.client.client import Client
from perdure.client.runs import RemoteRun
from perdure.errors import AfterFork, NotRunning
from perdure.model.duration import Duration
from perdure.synchronous.face import Opener, give_verbs
from perdure.synchronous.faces import SyncRun


class SyncClient(Opener):
    """The verbs of an App over HTTP, for code that may wait. Use it as `with SyncClient(url, token) as client:`.

    Any number of threads may use it at once.
    """

    _said = _said_real = "client"
    _handle, _run = RemoteRun, SyncRun

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: Duration = "30s",
        transport: Any = None,
    ) -> None:
        real = Client(url, token, timeout=timeout, transport=transport)
        super().__init__(real, self._own_loop)

    @property
    def url(self) -> str:
        url: str = self._real.url
        return url

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        background = self._background
        if background is None:
            raise NotRunning("the client is not open: use it inside `with client:`")
        if not background.is_ours:
            raise AfterFork(
                "this process was forked after the client was opened: open a client of its own in it"
            )
        return background.loop

    def __repr__(self) -> str:
        return f"SyncClient({self.url!r})"


give_verbs(SyncClient, Client)
