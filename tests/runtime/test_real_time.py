"""With the system's clock, which goes on while a store makes up its mind."""

import asyncio
from datetime import datetime
from typing import Any

import pytest

from perdure import App, Context, RunHandle, Signal, Topic
from perdure.model.clock import SystemClock

bell = Topic("bell", int)


async def until_waiting(run: RunHandle[Any]) -> None:
    for _ in range(10_000):
        if await run.status() == "waiting":
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{run.id} does not wait")


@pytest.mark.parametrize("entity", [None, "door/1"])
async def test_one_event_resumes_all_who_wait_for_it(
    place: dict[str, Any], entity: str | None
) -> None:
    """Whoever waits is looked up by the time of the event: that must be one time, however long the look takes."""
    app = App(**place)

    @app.workflow
    async def listener(ctx: Context) -> int:
        return await ctx.wait(bell if entity is None else bell.about(entity))

    async with app:
        runs = [await app.start(listener) for _ in range(3)]
        for run in runs:
            await until_waiting(run)
        await app.emit(bell, 7, entity=entity)
        assert [await run.result() for run in runs] == [7, 7, 7]


@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
async def test_a_schedule_ticks_by_the_clock_of_its_store(place: dict[str, Any]) -> None:
    """Two workers, whose alarms are set by clocks that may be a little ahead: one run for each tick, never early."""
    apps = [App(**place), App(**place)]
    for app in apps:

        @app.workflow
        async def beat(ctx: Context) -> None: ...

        app.schedule("1s", beat, overlap="allow")
    async with apps[0] as first, apps[1]:
        async with asyncio.timeout(30):
            while len(runs := await first.runs()) < 2:  # noqa: ASYNC110 (rows, not an object of ours)
                await asyncio.sleep(0.05)
        ticks = [datetime.fromisoformat(one.tags["tick"]) for one in runs]
        assert ticks == sorted(set(ticks), reverse=True)
        for run, tick in zip(runs, ticks, strict=True):
            assert tick <= run.created_at


class Wrong(SystemClock):
    """That of a machine whose time is wrong."""

    def __init__(self, by_s: int) -> None:
        self._by_us = by_s * 1_000_000

    def now(self) -> int:
        return super().now() + self._by_us


@pytest.mark.parametrize("by_s", [-120, 120])
async def test_what_is_older_is_told_by_the_clock_of_the_store(
    place: dict[str, Any], by_s: int
) -> None:
    """Whoever deletes by age deletes neither what is young, nor nothing, as its own clock goes before or behind."""
    app, go = App(**place, clock=Wrong(by_s)), Signal("go", int)

    @app.workflow
    async def ends(ctx: Context) -> None: ...

    @app.workflow
    async def stays(ctx: Context) -> int:
        return await ctx.wait(go)

    async with app:
        await (await app.start(ends)).result()
        await until_waiting(await app.start(stays))
        await app.put("jobs", 1)
        await app.emit("a.b", 1)
        assert not await app.find_waiting(go, older_than="1m")
        assert await app.purge("jobs", older_than="1m") == 0
        assert (await app.trim_ledger(older_than="1m", force=True)).count == 0
        assert await app.prune("1m") == 0
        assert len(await app.find_waiting(go, older_than="0s")) == 1
        assert await app.purge("jobs") == 1
        assert await app.prune("0s") == 1
