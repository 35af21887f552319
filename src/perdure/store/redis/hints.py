"""Hints between processes on Redis: told by PUBLISH and heard by SUBSCRIBE, each on a connection of its own.

On a cluster any node will do: what is published on one is passed on to all.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from perdure.store.hint import Hint
from perdure.store.hinting import Hinting
from perdure.store.redis.connecting import Options, single_client

_answer_s: Final = 5.0


class Hints(Hinting):
    """One connection that listens and one that tells."""

    def __init__(
        self, options: Options, channel: str, sender: str, hear: Callable[[Hint], None]
    ) -> None:
        super().__init__(sender, hear)
        self._options = options
        self._channel = channel
        self._client: Any = None
        self._listening: asyncio.Task[None] | None = None

    async def _connect(self) -> None:
        client = self._client = single_client(self._options)
        ears = client.pubsub()
        try:
            async with asyncio.timeout(_answer_s):
                await ears.subscribe(self._channel)
        except BaseException:
            await self._hang_up()
            raise
        self._listening = asyncio.create_task(self._hear_all(ears), name="perdure-ears")

    def _is_connected(self) -> bool:
        return self._listening is not None and not self._listening.done()

    async def _hear_all(self, ears: Any) -> None:
        try:
            async for message in ears.listen():
                if message["type"] == "message":
                    self._heard(message["data"])
        except Exception:
            # Lost: or a server that restarts would be missed until there is something to tell.
            self._wake.set()
        finally:
            await ears.aclose()

    async def _send(self, texts: list[bytes]) -> None:
        async with asyncio.timeout(_answer_s):
            for one in texts:
                await self._client.publish(self._channel, one)

    async def _hang_up(self, *, gently: bool = False) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait((listening,))
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
