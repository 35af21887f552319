"""Hints between processes: what a commit means for others, told by NOTIFY and heard by LISTEN.

After the commit, never in it: a transaction that notifies takes a lock of the whole server at its end. What gathers
while the last hint is on its way goes as one, and nobody is told while nobody else is there. A hint may be lost or come
twice; whoever needs to know also looks for itself now and then. Behind a pooler one cannot listen, unless a way past it
is given (`listen_url`): then all rests on looking.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from perdure.store.base import Applied
from perdure.store.hint import Hint, heard
from perdure.store.postgres.connecting import Connection, Options, connect
from perdure.store.postgres.lending import close

log = logging.getLogger("perdure.store.postgres")

_answer_s = 5.0
_pause_s = 0.5
_pause_max_s = 5.0
# One that only sends and waits has no life sign: it says now and then that it is there, and counts so long.
_hello_every_s = 20.0
_heard_s = 60.0


class Hints:
    """Tells and hears, on one connection. `hear` is called in the loop with what others say."""

    def __init__(
        self, options: Options, channel: str, sender: str, hear: Callable[[Hint], None]
    ) -> None:
        self._options = options
        self._channel = channel
        self._sender = sender
        self._hear = hear
        self._connection: Connection | None = None
        self._gathered: Hint | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._heard_at: float | None = None
        self.others = False  # whether other workers live, as the last look said

    async def open(self) -> None:
        """Begin to listen; hints that come before are lost, as any may be."""
        try:
            await self._listen()
        except Exception:
            log.warning("hints of other processes cannot be heard yet", exc_info=True)
        self._task = asyncio.create_task(self._work(), name="perdure-hints")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        if self._connection is not None:
            await close(self._connection)
            self._connection = None

    def tell(self, applied: list[Applied], mine: str | None, head: int, now: int) -> None:
        """After a commit: what it means for others goes as soon as the last hint is gone."""
        if not self._is_anybody_there(mine):
            return
        hint = self._gathered or Hint(self._sender)
        hint.note_all(applied, mine, now)
        hint.head = max(hint.head, head)
        self._gathered = hint
        self._wake.set()

    def _is_anybody_there(self, mine: str | None) -> bool:
        """Without a worker of our own, others must do what we ask for."""
        if self.others or mine is None:
            return True
        return self._heard_at is not None and self._loop.time() - self._heard_at < _heard_s

    # --- the connection ---

    async def _listen(self) -> None:
        # A hint is not worth waiting for the disk.
        quick = {"synchronous_commit": "off"}
        connection = await connect(self._options, url=self._options.listen_url, settings=quick)
        try:
            async with asyncio.timeout(_answer_s):
                await connection.add_listener(self._channel, self._heard)
        except BaseException:
            connection.terminate()
            raise
        # Or a server that restarts would be missed until there is something to tell.
        connection.add_termination_listener(lambda _: self._wake.set())
        self._connection = connection
        self._say_hello()
        # What we may have missed until now.
        self._hear(Hint(self._sender, ready=True, fan_out=True, match=True))

    def _say_hello(self) -> None:
        """Those who are there learn of us."""
        self._gathered = self._gathered or Hint(self._sender)
        self._wake.set()

    def _heard(self, connection: Any, pid: int, channel: str, text: object) -> None:
        hint = heard(str(text))
        if hint is not None and hint.sender != self._sender:
            self._heard_at = self._loop.time()
            self._hear(hint)

    async def _work(self) -> None:
        pause_s = _pause_s
        while True:
            try:
                if self._connection is None or self._connection.is_closed():
                    await self._listen()
                    pause_s = _pause_s
                await self._until_there_is_something()
                await self._send()
            except Exception:
                log.debug("a hint was lost", exc_info=True)
                if self._connection is not None:
                    self._connection.terminate()
                    self._connection = None
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _pause_max_s)

    async def _until_there_is_something(self) -> None:
        try:
            async with asyncio.timeout(_hello_every_s):
                await self._wake.wait()
        except TimeoutError:
            self._say_hello()
        self._wake.clear()

    async def _send(self) -> None:
        if self._connection is None or self._connection.is_closed():
            return  # told when there is one again
        hint, self._gathered = self._gathered, None
        if hint is not None:
            tell = "select pg_notify($1, text) from unnest($2::text[]) as text"
            texts = [one.decode() for one in hint.texts()]
            await self._connection.execute(tell, self._channel, texts, timeout=_answer_s)
