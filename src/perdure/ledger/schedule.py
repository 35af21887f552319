"""The ticks of a cron schedule, by the injected clock."""

from collections.abc import Callable

from perdure.alarm import Alarm
from perdure.model.clock import Clock
from perdure.model.cron import Cron


class Ticker:
    """Calls back at each tick, once it was started. A tick that nobody needs costs a comparison."""

    def __init__(self, clock: Clock, cron: Cron, tick: Callable[[], None]) -> None:
        self._clock = clock
        self._cron = cron
        self._tick = tick
        self._at = 0
        self._alarm = Alarm(clock, self._on_alarm)

    def start(self) -> None:
        self._at = self._cron.after(self._clock.now())
        self._alarm.set(self._at)

    def stop(self) -> None:
        self._alarm.clear()

    def _on_alarm(self) -> None:
        # A far alarm rings early now and then; only its time makes a tick.
        if self._clock.now() >= self._at:
            self._tick()
        self.start()
