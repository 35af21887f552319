"""Gauges: numbers that are asked for when somebody wants to know them, and not before.

Those of the process are at hand. Those of the store cost some reads, so they are asked once for all who want them
within a second, and for no longer than a bound: who waits for a store that does not answer would be away itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from perdure.model import limits
from perdure.observing.metrics import STORE_UP, Labels, Metric

log = logging.getLogger("perdure.app")

Reading = list[tuple[Metric, Labels, float]]

_fresh_s: Final = 1.0


class Gauges:
    """The gauges of an app that is open, in the loop that it belongs to."""

    def __init__(self, here: Callable[[], Reading], ask: Callable[[], Awaitable[Reading]]) -> None:
        self._here = here
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._store: Reading = []
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def look(self) -> Reading:
        """All of them, as they are now."""
        if self._loop.time() - self._asked_at > _fresh_s:
            if self._asking is None:
                self._asking = asyncio.create_task(self._look_at_store(), name="perdure-gauges")
            # Who no longer wants to know must not keep the others from it.
            await asyncio.shield(self._asking)
        return self.known()

    def known(self) -> Reading:
        """The same, of the store what was known last."""
        return [*self._here(), *self._store]

    def look_from_anywhere(self) -> Reading:
        """For exporters, which ask from threads of their own."""
        if self._loop.is_closed() or asyncio._get_running_loop() is self._loop:
            return self.known()
        looking = asyncio.run_coroutine_threadsafe(self.look(), self._loop)
        try:
            return looking.result(limits.gauges_s + 1)
        except Exception:  # the loop stands still, or ends: what is known must do
            looking.cancel()
            return self.known()

    async def _look_at_store(self) -> None:
        try:
            async with asyncio.timeout(limits.gauges_s):
                self._store = [*await self._ask(), (STORE_UP, (), 1)]
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.warning("what the gauges ask of the store was not answered: %s", _words(error))
            self._store = [(STORE_UP, (), 0)]
        finally:
            self._asked_at = self._loop.time()
            self._asking = None

    async def stop(self) -> None:
        """The app closes: nothing is asked any more."""
        asking: Any = self._asking
        if asking is not None:
            asking.cancel()
            await asyncio.wait((asking,))


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
