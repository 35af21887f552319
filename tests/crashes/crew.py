"""Several worker processes on one namespace of a server, or on one file, and what befalls them.

Each member has a nursery of its own, so that a new process takes the place of a dead one in milliseconds. What blocks
(forks, burials, answers) happens in threads: the test that does all this to them goes on asking them for things.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from crashes.nursery import Child, Nursery, open_nursery

# Whatever takes this long never comes. Machines are busy, and leases and looks take their time too.
patience_s = 60.0
_look_again_s = 0.01


class Place(NamedTuple):
    """Where the crew works, and how long a silent worker is believed to live."""

    url: str
    namespace: str | None
    lease: str
    effects: Path


class Member:
    """One place in the crew, and the process that has it at present."""

    def __init__(self, nursery: Nursery, place: Place) -> None:
        self._nursery = nursery
        self._place = place
        self._alone = asyncio.Lock()  # one conversation at a time
        self.child = self._fork()

    def _fork(self) -> Child:
        return self._nursery.fork(**self._place._asdict())

    async def replace(self) -> None:
        """Kill the process, wherever it is, and start another."""
        async with self._alone:
            dead = self.child
            dead.kill()
            await asyncio.to_thread(dead.buried)
            self.child = await asyncio.to_thread(self._fork)

    async def ensure(self) -> None:
        """A process that was killed, or gave up because it found no server when it began, is replaced."""
        try:
            await self.who()
        except AssertionError:
            await self.replace()

    async def who(self) -> dict[str, Any]:
        """Its worker's id, and how many of its writes were refused by a fence."""
        async with self._alone:
            told = await asyncio.to_thread(self.child.ask, do="who")
            who: dict[str, Any] = told["ok"]
            return who

    async def leave(self) -> bool:
        async with self._alone:
            return await asyncio.to_thread(self.child.close)

    def stop(self) -> None:
        """It stands still, and does not know it."""
        os.kill(self.child.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.child.pid, signal.SIGCONT)


class Crew:
    """The members, and what was done to them."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.kills = self.stops = self.restarts = 0

    async def opened(self) -> None:
        """Until every member is at work."""
        for one in self.members:
            await one.who()

    async def kill(self, member: Member) -> None:
        await member.replace()
        self.kills += 1


@asynccontextmanager
async def open_crew(directory: Path, place: Place, size: int) -> AsyncIterator[Crew]:
    """A crew that leaves in good order at the end. What its members logged is added to a failure."""
    with ExitStack() as stack:
        nurseries = [
            stack.enter_context(open_nursery(directory, silent=False)) for _ in range(size)
        ]
        crew = Crew([Member(one, place) for one in nurseries])
        await crew.opened()
        yield crew
        for one in crew.members:
            assert await one.leave(), "a worker could not leave in good order"


async def until(holds: Callable[[], Awaitable[Any]], what: str) -> None:
    """Wait for something that must come, and that nobody tells of."""
    try:
        async with asyncio.timeout(patience_s):
            while not await holds():  # noqa: ASYNC110 (a row of the server, or another process)
                await asyncio.sleep(_look_again_s)
    except TimeoutError:
        raise AssertionError(f"not within {patience_s} s: {what}") from None
