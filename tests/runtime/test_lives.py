"""Whole lives of a run under random treatment: signals, time, steering, evictions, closings and power cuts.

The workflow has branches that wait, step, call children and clean up when they are cancelled, and generations. Some
signals do not fit. Whatever happens to it, when the trouble stops it must come to an end: never parked for
non-determinism, never waiting for nothing, nothing left behind, and every signal that was accepted has its fate. A
failing seed replays as far as the machine's own timing allows.
"""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure import (
    AmbiguousSignal,
    App,
    Conflict,
    Context,
    Retry,
    RunFinished,
    Signal,
    TimedOut,
    step,
    timer,
)
from perdure.coordinator import coordinator
from perdure.model import limits

line = Signal("line", int, buffer="all")
wrong = Signal("line", str, buffer="all")
lives = max(3, int(os.environ.get("PERDURE_FUZZ_EXAMPLES", "40")) // 10)
refusals = (Conflict, RunFinished, AmbiguousSignal)


def make_app(chance: random.Random) -> App:
    app = App("memory://")

    @step(retry=Retry(attempts=50, backoff="1s", factor=1, jitter=0))
    async def flaky(number: int) -> int:
        if chance.random() < 0.3:
            await asyncio.sleep(0)
        if chance.random() < 0.15:
            raise OSError("the network")
        return number

    @step
    def threaded(number: int) -> int:
        return number

    @step
    async def fragile(number: int) -> int:
        if chance.random() < 0.12:
            raise ValueError("for good, until somebody retries the run")
        return number

    @step
    async def undo(number: int) -> int:
        if chance.random() < 0.3:
            await asyncio.sleep(0)
        return number

    @app.workflow
    async def child(ctx: Context, seconds: int) -> int:
        await ctx.sleep(seconds)
        return seconds

    @app.workflow
    async def flow(ctx: Context, width: int, rounds: int, generations: int) -> list[int]:
        async def heard(branch: int) -> int:
            answer = await ctx.wait(line | timer("30s"), name=f"line{branch}")
            return 0 if isinstance(answer, TimedOut) else answer

        async def branch(number: int) -> int:
            total = 0
            try:
                for nth in range(rounds):
                    answer, _, _ = await ctx.gather(
                        heard(number), ctx.step(flaky, nth), ctx.step(threaded, nth)
                    )
                    total += answer + await ctx.step(fragile, number)
                    await ctx.set(f"branch-{number}", total)
                    if nth % 3 == 2:
                        await ctx.call(child, nth)
            except asyncio.CancelledError:
                await ctx.step(undo, number)
                await ctx.sleep(1)
                raise
            return total

        totals = await ctx.gather(*(branch(number) for number in range(width)))
        if generations:
            await ctx.continue_as(flow, width, rounds, generations - 1)
        return list(totals)

    return app


class Life:
    """One run, and all that befalls it."""

    def __init__(self, world: Any, seed: int) -> None:
        self.chance = random.Random(seed)
        self.app = make_app(self.chance)
        self.open = world
        self.stage: Any = None
        self.sent: list[str] = []

    async def begin(self) -> None:
        self.stage = await self.open(self.app).__aenter__()
        width, rounds = self.chance.randint(1, 4), self.chance.randint(2, 5)
        await self.stage.app.start("flow", width, rounds, self.chance.randint(0, 2), id="a")

    @property
    def run(self) -> Any:
        return self.stage.app.run("a")

    async def signal(self) -> None:
        await self._send(line, len(self.sent))

    async def send_wrong(self) -> None:
        await self._send(wrong, "not a number")

    async def _send(self, signal: Signal[Any], payload: Any) -> None:
        waits = [one for one in await self.run.waiting() if one.kind == "signal"]
        path = self.chance.choice(waits).path if waits and self.chance.random() < 0.8 else None
        answer = await self.stage.app.signal("a", signal, payload, path=path)
        self.sent.append(answer.signal_id)

    async def pass_time(self) -> None:
        clock = self.stage.clock
        clock.set(clock.now() + self.chance.randint(1, 20) * 1_000_000)

    async def close(self) -> None:
        await self.stage.__aexit__(None, None, None)
        self.stage = await self.open(self.app).__aenter__()

    async def crash(self) -> None:
        await self.stage.crash()
        self.stage = await self.open(self.app).__aenter__()

    async def trouble(self) -> None:
        """Something happens to it."""
        events: list[tuple[int, Callable[[], Awaitable[Any]]]] = [
            (35, self.signal),
            (8, self.send_wrong),
            (10, self.pass_time),
            (1, self.run.cancel),
            (3, self.run.retry),
            (5, self.run.pause),
            (10, self.run.resume),
            (6, self.stage.evict),
            (8, self.crash),
            (4, self.close),
            (13, self.stage.settle),
        ]
        (event,) = self.chance.choices([one for _, one in events], [weight for weight, _ in events])
        try:
            await event()
        except refusals:
            pass  # it has ended, or is not in the state for that
        if self.chance.random() < 0.5:
            await asyncio.sleep(0)

    async def peace(self) -> None:
        """Nobody disturbs it any more: it comes to its end."""
        for _ in range(60):
            try:
                await self.run.resume()
            except refusals:
                pass
            await self.stage.advance("10m")
            info = await self.run.info()
            if info.status == "failed":
                await self.run.retry()
            elif info.status in ("completed", "cancelled"):
                return
            assert info.status != "paused", info
        raise AssertionError(f"it never ends: {info} {await self.run.history()}")

    async def check_fates(self) -> None:
        """Every signal that was accepted was taken, or is told of: none is kept for nobody, none is gone."""
        for signal_id in self.sent:
            status = await self.stage.app.signal_status(signal_id)
            assert status is not None and status.state != "buffered", (signal_id, status)


@pytest.mark.parametrize("seed", range(lives))
@pytest.mark.hypothesis
async def test_a_run_comes_to_its_end_whatever_befalls_it(
    world: Any, seed: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # as under full load: small batches, and answers held while the next is written
        monkeypatch.setattr(limits, "batch_ops_max", 2)
        monkeypatch.setattr(coordinator, "_held_ops_min", 1)
    life = Life(world, seed)
    await life.begin()
    for _ in range(80):
        await life.trouble()
    await life.peace()
    await life.check_fates()
    counts = await life.stage.store.counts()
    assert (counts["watchers"], counts["signals"]) == (0, 0)
    await life.stage.__aexit__(None, None, None)
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []
