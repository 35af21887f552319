"""Telling others what a commit means for them, and hearing of theirs, over a server that passes messages on.

After the commit, never in it. What gathers while the last hint is on its way goes as one, and nobody is told while
nobody else is there. A hint may be lost or come twice; whoever needs to know also looks for itself now and then. How
messages travel is the store's affair.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from perdure.store.base import Applied
from perdure.store.hint import Hint, heard

log = logging.getLogger("perdure.store")

_pause_s: Final = 0.5
_pause_max_s: Final = 5.0
# One that only sends and waits has no life sign: it says now and then that it is there, and counts so long.
_hello_every_s: Final = 20.0
_heard_s: Final = 60.0


class Hinting(ABC):
    """Tells and hears. `hear` is called in the loop with what others say."""

    def __init__(self, sender: str, hear: Callable[[Hint], None]) -> None:
        self._sender = sender
        self._hear = hear
        self._gathered: Hint | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._heard_at: float | None = None
        self.others = False  # whether other workers live, as the last look said

    # --- what a store brings ---

    @abstractmethod
    async def _connect(self) -> None:
        """Begin to listen: each message goes to `_heard`. When the connection is lost, `_wake` is set."""

    @abstractmethod
    def _is_connected(self) -> bool: ...

    @abstractmethod
    async def _send(self, texts: list[bytes]) -> None:
        """Pass messages on to all who listen."""

    @abstractmethod
    async def _hang_up(self, *, gently: bool = False) -> None:
        """Let go of the connection, in whatever state it is: gently if it is not known to be lost."""

    # --- life ---

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
        await self._hang_up(gently=True)

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

    # --- the work ---

    async def _listen(self) -> None:
        await self._connect()
        self._say_hello()
        # What we may have missed until now.
        self._hear(Hint(self._sender, ready=True, fan_out=True, match=True))

    def _say_hello(self) -> None:
        """Those who are there learn of us."""
        self._gathered = self._gathered or Hint(self._sender)
        self._wake.set()

    def _heard(self, text: bytes | str) -> None:
        hint = heard(text)
        if hint is not None and hint.sender != self._sender:
            self._heard_at = self._loop.time()
            self._hear(hint)

    async def _work(self) -> None:
        pause_s = _pause_s
        while True:
            try:
                if not self._is_connected():
                    await self._hang_up()
                    await self._listen()
                    pause_s = _pause_s
                await self._until_there_is_something()
                await self._tell_all()
            except Exception:
                log.debug("a hint was lost", exc_info=True)
                await self._hang_up()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _pause_max_s)

    async def _until_there_is_something(self) -> None:
        try:
            async with asyncio.timeout(_hello_every_s):
                await self._wake.wait()
        except TimeoutError:
            self._say_hello()
        self._wake.clear()

    async def _tell_all(self) -> None:
        if not self._is_connected():
            return  # told when there is a connection again
        hint, self._gathered = self._gathered, None
        if hint is not None:
            await self._send(hint.texts())
