"""An app in virtual time: move the clock, and let everything that follows happen.

async with World(app) as world:
    run = await world.app.start(fulfil, order)
    await world.advance("48h")
    assert await run.status() == "completed"
"""

import asyncio
from types import TracebackType
from typing import Any, Self

from perdure.app import App
from perdure.model.duration import Duration, parse_duration
from perdure.testing.clock import VirtualClock

_patience_s = 10.0
# Of real time: a test that leaves a step in flight need not wait longer at its end.
_grace = "5s"


class World:
    """A copy of an app on another store (memory by default), with a clock to move."""

    def __init__(
        self, app: App, url: str = "memory://", *, clock: VirtualClock | None = None, **options: Any
    ) -> None:
        self.clock = clock or VirtualClock()
        self.app = app.copy(url, clock=self.clock, **{"grace": _grace, **options})
        self.apps = [self.app]

    async def __aenter__(self) -> Self:
        await self.app.__aenter__()
        await self.settle()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.app.__aexit__(kind, error, traceback)

    @property
    def living(self) -> list[App]:
        """The apps that anything can happen in."""
        return self.apps

    async def settle(self) -> None:
        """Let everything happen that can happen now: until every run is parked or ended and
        every event is read.

        Raises TimeoutError when runs go on moving; a step that blocks on purpose must be let go first.
        """
        async with asyncio.timeout(_patience_s):
            quiet, pause_s = 0, 0.0
            while quiet < 3:
                await asyncio.sleep(pause_s)
                still = all(_is_still(one) for one in self.living)
                quiet, pause_s = (quiet + 1, 0.0) if still else (0, 0.0005)

    async def advance(self, duration: Duration) -> None:
        """Move time forward, stopping at every deadline on the way, and settle."""
        target = self.clock.now() + parse_duration(duration)
        await self.settle()
        while (at := self.clock.next_alarm()) is not None and at <= target:
            self.clock.set(at)
            await self.settle()
        self.clock.set(target)
        await self.settle()


def _is_still(app: App) -> bool:
    engine = app._engine()
    worker = engine.worker
    matcher, consumers = engine.matcher, engine.consumers
    return (
        engine.coordinator.idle
        and (worker is None or worker.settled)
        and (matcher is None or matcher.settled)
        and (consumers is None or consumers.settled)
    )
