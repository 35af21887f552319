"""Hints between processes: what a commit means for others, told by NOTIFY and heard by LISTEN.

After the commit, never in it: a transaction that notifies takes a lock of the whole server at its end. What gathers
while the last hint is on its way goes as one, and nobody is told while nobody else is there. A hint may be lost or come
twice; whoever needs to know also looks for itself now and then. Behind a pooler one cannot listen, unless a way past it
is given (`listen_url`): then all rests on looking.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from perdure.model.outcomes import Wake
from perdure.store.base import Applied
from perdure.store.postgres.connecting import Connection, Options, connect
from perdure.store.postgres.lending import close

log = logging.getLogger("perdure.store.postgres")

# The server takes 7,999 bytes. What is more goes as several.
_bytes_max = 7_900
# Of each kind, while the last hint is on its way or nobody can be told: what is more is found by looking.
_names_max = 1000
_answer_s = 5.0
_pause_s = 0.5
_pause_max_s = 5.0
# One that only sends and waits has no life sign: it says now and then that it is there, and counts so long.
_hello_every_s = 20.0
_heard_s = 60.0


class Hint(msgspec.Struct, omit_defaults=True):
    """What others may want to know; with nothing in it, only that the sender is there."""

    sender: str
    head: int = 0  # where the ledger ends
    ready: bool = False
    fan_out: bool = False
    match: bool = False
    # By owner, runs that it should look at.
    called: dict[str, list[str]] = {}
    ended: list[str] = []
    consumers: list[str] = []

    def note(self, wake: Wake, mine: str | None, now: int) -> None:
        """Add what a wake means for processes whose worker is not `mine`."""
        match wake.kind:
            case "news" | "control":
                self._call(wake, mine)
            # One whose time is still to come is found by looking.
            case "ready" if wake.at <= now:
                self.ready = True
            case "fan_out":
                self.fan_out = True
            case "match":
                self.match = True
            case "ended":
                if len(self.ended) < _names_max:
                    self.ended.append(wake.run_id)
                self._call(wake, mine)
            case "consumer" if len(self.consumers) < _names_max:
                self.consumers.append(wake.run_id)

    def _call(self, wake: Wake, mine: str | None) -> None:
        if wake.owner is not None and wake.owner != mine:
            if sum(map(len, self.called.values())) < _names_max:
                self.called.setdefault(wake.owner, []).append(wake.run_id)

    def wakes(self, mine: str | None) -> Iterable[Wake]:
        """What it means for the process whose worker is `mine`."""
        for run_id in dict.fromkeys(self.called.get(mine or "", ())):
            yield Wake("news", run_id, mine)
        for run_id in dict.fromkeys(self.ended):
            yield Wake("ended", run_id)
        for name in dict.fromkeys(self.consumers):
            yield Wake("consumer", name)
        if self.ready:
            yield Wake("ready")
        if self.fan_out:
            yield Wake("fan_out")
        if self.match:
            yield Wake("match")
        if self.head:
            yield Wake("events", at=self.head)

    def texts(self) -> list[str]:
        """As the server takes it: as one, or in as many parts as it needs."""
        text = msgspec.json.encode(self).decode()
        if len(text.encode()) <= _bytes_max:
            return [text]
        return [text for part in self._halved() for text in part.texts()]

    def _halved(self) -> "tuple[Hint, Hint]":
        """The names in two hints; all that is no name is in the first. One name alone is never too long."""
        names = [("called", owner, one) for owner, ones in self.called.items() for one in ones]
        names += [("ended", "", one) for one in self.ended]
        names += [("consumers", "", one) for one in self.consumers]
        first = msgspec.structs.replace(self, called={}, ended=[], consumers=[])
        second = Hint(self.sender)
        for nth, (kind, owner, name) in enumerate(names):
            half = first if nth < len(names) // 2 else second
            if kind == "called":
                half.called.setdefault(owner, []).append(name)
            else:
                getattr(half, kind).append(name)
        return first, second


_decode = msgspec.json.Decoder(Hint).decode


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
        for one in applied:
            for wake in one.wakes:
                hint.note(wake, mine, now)
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
        try:
            hint = _decode(str(text))
        except msgspec.MsgspecError:
            return  # of other code; what it says is found by looking
        if hint.sender != self._sender:
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
            await self._connection.execute(tell, self._channel, hint.texts(), timeout=_answer_s)
