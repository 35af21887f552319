"""Steps with no engine around them: as many coroutines as runs, each awaiting the durable commit of each of its steps.

One writer commits whatever gathered meanwhile, all of it at once; how, is the store's affair. The rows are those that a
step of Perdure leaves. The runs themselves are there before and are never moved, and no event is written: a run has ten
steps, and only one start and one end.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from perdure.model.records import RunRecord, StepRecord

steps: Final = 10
_owner: Final = "01BARE0000000000000000WORK"


class GroupWriter:
    """Commits what gathered while it was committing."""

    def __init__(self, commit: Callable[[list[StepRecord]], Awaitable[None]]) -> None:
        self._commit = commit
        self._loop = asyncio.get_running_loop()
        self._gathered: list[tuple[StepRecord, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self.commits = 0

    def write(self, row: StepRecord) -> "asyncio.Future[None]":
        """Await it: then the row is on the disk."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._gathered.append((row, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all())
        return future

    async def _write_all(self) -> None:
        while self._gathered:
            batch, self._gathered = self._gathered, []
            error: BaseException | None = None
            try:
                await self._commit([row for row, _ in batch])
                self.commits += 1
            except Exception as raised:
                error = raised
            for _, future in batch:
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
            # Whoever was answered now hands in its next row in this round of the loop, and comes along.
            await asyncio.sleep(0)


def run_id(number: int) -> str:
    return f"01BARE{number:020d}"


def bare_run(number: int) -> RunRecord:
    """A run that somebody runs."""
    now = time.time_ns() // 1000
    return RunRecord(
        run_id=run_id(number),
        workflow="ten_steps",
        version=1,
        status="running",
        input=f"[{number}]",
        created_at=now,
        owner=_owner,
        fence=now,
    )


async def run_bare(writer: GroupWriter, number: int) -> None:
    for nth in range(1, steps + 1):
        now = time.time_ns() // 1000
        row = StepRecord(
            run_id=run_id(number),
            generation=0,
            path=f"echo#{nth}",
            kind="step",
            name="echo",
            state="done",
            # As wide as the engine's.
            seq=now % 100_000_000,
            value=str(number),
            attempt=1,
            started_at=now,
            recorded_at=now,
        )
        await writer.write(row)
