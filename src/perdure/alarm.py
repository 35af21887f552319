"""Alarms by the injected clock: in virtual time they ring when a test moves it.

An alarm is a hint to look, never the truth: a real one may ring before its time, when that is far away.
"""

import asyncio
import functools
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from perdure.model.clock import Clock

_longest_sleep_s = 3600.0  # so that a clock that was set right is noticed within the hour


@runtime_checkable
class Movable(Protocol):
    """A clock that tests move: it rings alarms itself."""

    def call_at(self, at: int, ring: Callable[[], None]) -> Callable[[], None]: ...


class Alarm:
    """Rings once, at the earliest time it was set to, by the injected clock."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._at: int | None = None
        self._cancel: Callable[[], None] | None = None

    def set(self, at: int) -> None:
        """Ring at `at`, unless it rings before that anyway."""
        if self._at is not None and self._at <= at:
            return
        self.clear()
        self._at = at
        if isinstance(self._clock, Movable):
            self._cancel = self._clock.call_at(at, self._rung)
            return
        delay_s = min(max(0.0, (at - self._clock.now()) / 1_000_000), _longest_sleep_s)
        self._cancel = asyncio.get_running_loop().call_later(delay_s, self._rung).cancel

    def clear(self) -> None:
        if self._cancel is not None:
            self._cancel()
        self._cancel = None
        self._at = None

    def _rung(self) -> None:
        self._at = None
        self._cancel = None
        self._ring()


async def pause(clock: Clock, delay_us: int) -> None:
    """Sleep for a while by the clock."""
    until = clock.now() + delay_us
    while clock.now() < until:
        rung: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        alarm = Alarm(clock, functools.partial(_ring, rung))
        alarm.set(until)
        try:
            await rung
        finally:
            alarm.clear()


def _ring(rung: "asyncio.Future[None]") -> None:
    if not rung.done():
        rung.set_result(None)
