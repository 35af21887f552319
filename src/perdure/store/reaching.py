"""While the server is away: it restarts, or the way to it is cut for a moment.

That is no answer to anybody. What was not sent, and what only reads, is tried again until the server can be reached or
patience ends; then the caller hears that nothing happened, while it still listens. What was sent and not answered is
another matter, and not dealt with here.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

Answer = TypeVar("Answer")

log = logging.getLogger("perdure.store")

# Of the time that callers wait: they are to hear that nothing happened rather than nothing at all.
_patience_share: Final = 0.8
_pause_first_s: Final = 0.02
_pause_longest_s: Final = 0.5


class Reaching:
    """Tries again, for all who use one server.

    Patience counts from when the server was first missed: whoever comes later does not wait as long once more, so that
    an app whose server stays away can be closed.
    """

    def __init__(self, is_lost: Callable[[BaseException], bool]) -> None:
        self._is_lost = is_lost  # whether an error says that the server is away
        self.patience_s = 30.0
        self._away_since: float | None = None

    async def until_reached(self, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        """What `attempt` gives. Raises its error if it does not say that the server is away, or when patience ends."""
        began = time.monotonic()
        pause_s = _pause_first_s
        while True:
            try:
                answer = await attempt()
                self._away_since = None
                return answer
            except BaseException as error:
                if not self._is_lost(error) or not self._is_worth_waiting(began, pause_s):
                    raise
                if pause_s == _pause_longest_s:
                    log.warning("the server cannot be reached, all wait for it: %s", error)
            # Or all processes would come back at the same instant.
            await asyncio.sleep(pause_s * (0.5 + random.random() / 2))
            pause_s = min(2 * pause_s, _pause_longest_s)

    def _is_worth_waiting(self, began: float, pause_s: float) -> bool:
        if self._away_since is None:
            self._away_since = time.monotonic()
        since = min(began, self._away_since)
        return time.monotonic() + pause_s - since < _patience_share * self.patience_s
