"""The server's clock, as far as a client can know it: never ahead of the server, and close behind.

Every answer says what time it was on the server. By the time it is heard that is past, so the server's clock is at
least that much ahead of ours; the greatest such difference of late is the best we know. All processes judge deadlines
by this one clock, however their own ones go: between two answers time passes by the monotonic clock, which nobody sets.
"""

from perdure.model.clock import Clock, SystemClock

# Clocks drift apart: what was learnt longer ago than this counts no more.
_fresh_us = 10_000_000


class ServerClock:
    """Wall time of the server. With a clock that is not the system's (a test's), that one is the time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.follows = isinstance(clock, SystemClock)
        self._ahead_us: int | None = None  # of our monotonic clock
        self._learnt_at = 0
        self._last = 0

    def now(self) -> int:
        """Microseconds since the epoch; never goes back."""
        if not self.follows:
            return self._clock.now()
        if self._ahead_us is None:
            return self._clock.now()  # nothing was asked of the server yet
        now = self._passed_us() + self._ahead_us
        self._last = now if now > self._last else self._last
        return self._last

    def _passed_us(self) -> int:
        return round(self._clock.monotonic() * 1_000_000)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def learn(self, server_us: int) -> None:
        """What an answer that was just heard said."""
        if not self.follows:
            return
        heard_at = self._passed_us()
        ahead_us = server_us - heard_at
        stale = heard_at - self._learnt_at >= _fresh_us
        if self._ahead_us is None or stale or ahead_us > self._ahead_us:
            self._ahead_us, self._learnt_at = ahead_us, heard_at

    def not_before(self, now: int) -> None:
        """Something was recorded at that time, by the same clock."""
        if self.follows:
            self._last = max(self._last, now)
