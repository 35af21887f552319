"""A clock that stands still until it is moved.

The engine and its store read it and set alarms on it, so a wait of two days is tested in milliseconds, on every store.
"""

import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime

from perdure.model.clock import from_datetime, to_datetime

_start = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)  # a Monday morning


class VirtualClock:
    """A `perdure` clock for tests: `App(…, clock=VirtualClock())`."""

    def __init__(self, start: datetime = _start) -> None:
        self._now = from_datetime(start)
        self._count = itertools.count()
        self._alarms: list[tuple[int, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._now / 1_000_000

    @property
    def moment(self) -> datetime:
        """The present, as a datetime."""
        return to_datetime(self._now)

    def call_at(self, at: int, ring: Callable[[], None]) -> Callable[[], None]:
        """Ring when the clock reaches `at`; gives a way to cancel."""
        number = next(self._count)
        heapq.heappush(self._alarms, (at, number, ring))
        if at <= self._now:
            self.ring_due()
        return lambda: self._cancelled.add(number)

    def next_alarm(self) -> int | None:
        """When the next alarm will ring."""
        while self._alarms and self._alarms[0][1] in self._cancelled:
            self._cancelled.discard(heapq.heappop(self._alarms)[1])
        return self._alarms[0][0] if self._alarms else None

    def set(self, now: int) -> None:
        """Move to a time (never back) and ring what is due."""
        self._now = max(self._now, now)
        self.ring_due()

    def ring_due(self) -> None:
        while (at := self.next_alarm()) is not None and at <= self._now:
            _, _, ring = heapq.heappop(self._alarms)
            ring()
