"""The one shape of everything that works in the background: start, stop, and supervised loops.

A loop that raises is logged and started again after a pause that grows; nothing dies silently, and no task is
left without a strong reference.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("perdure.service")

_pause_first_s = 0.05
_pause_longest_s = 5.0


class Service:
    """Something with background loops. Subclasses call `_spawn` in `start`; `stop` ends them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.stopping = False

    def _spawn(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(self._supervise(name, loop), name=f"perdure-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _supervise(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        pause_s = _pause_first_s
        while not self.stopping:
            began = asyncio.get_running_loop().time()
            try:
                await loop()
                return
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException:
                # Of user code perhaps: a loop that dies of it would be missed for ever.
                if asyncio.get_running_loop().time() - began > _pause_longest_s:
                    pause_s = _pause_first_s  # it had recovered: this is another failure
                log.exception("%s failed; it starts again in %.2f s", name, pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _pause_longest_s)

    async def stop(self) -> None:
        """End the loops. Idempotent."""
        self.stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
