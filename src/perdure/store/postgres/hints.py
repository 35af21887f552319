"""Hints between processes on Postgres: told by NOTIFY and heard by LISTEN.

After the commit, never in it: a transaction that notifies takes a lock of the whole server at its end. Behind a pooler
one cannot listen, unless a way past it is given (`listen_url`): then all rests on looking.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from perdure.store.hint import Hint
from perdure.store.hinting import Hinting
from perdure.store.postgres.connecting import Connection, Options, connect
from perdure.store.postgres.lending import close

_answer_s = 5.0


class Hints(Hinting):
    """One connection, which listens and tells."""

    def __init__(
        self, options: Options, channel: str, sender: str, hear: Callable[[Hint], None]
    ) -> None:
        super().__init__(sender, hear)
        self._options = options
        self._channel = channel
        self._connection: Connection | None = None

    async def _connect(self) -> None:
        # A hint is not worth waiting for the disk.
        quick = {"synchronous_commit": "off"}
        connection = await connect(self._options, url=self._options.listen_url, settings=quick)
        try:
            async with asyncio.timeout(_answer_s):
                await connection.add_listener(self._channel, self._notified)
        except BaseException:
            connection.terminate()
            raise
        # Or a server that restarts would be missed until there is something to tell.
        connection.add_termination_listener(lambda _: self._wake.set())
        self._connection = connection

    def _is_connected(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()

    def _notified(self, connection: Any, pid: int, channel: str, text: object) -> None:
        self._heard(str(text))

    async def _send(self, texts: list[bytes]) -> None:
        assert self._connection is not None
        tell = "select pg_notify($1, text) from unnest($2::text[]) as text"
        sent = [one.decode() for one in texts]
        await self._connection.execute(tell, self._channel, sent, timeout=_answer_s)

    async def _hang_up(self, *, gently: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if gently:
            await close(connection)
        else:
            connection.terminate()
