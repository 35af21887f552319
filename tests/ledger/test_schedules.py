"""Consumers with a schedule: ticks drain everything, idle ticks cost nothing, no tick is lost or doubled."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from perdure import App, Batch
from perdure.model import ops


def ticks(
    app: App, every: str, name: str = "c", **options: Any
) -> list[tuple[datetime, list[int]]]:
    """A consumer of `in.*` that keeps when it was called, and with what."""
    seen: list[tuple[datetime, list[int]]] = []

    @app.consumer(name, "in.*", every=every, **options)
    async def c(batch: Batch) -> None:
        at = batch.dep(Clock).moment  # type: ignore[attr-defined]
        seen.append((at, [event.payload for event in batch]))

    return seen


class Clock:
    """The test's clock, as a dep of the handlers."""

    def __init__(self, world: Any) -> None:
        self._clock = world.clock

    @property
    def moment(self) -> datetime:
        return self._clock.moment  # type: ignore[no-any-return]


def opened(world: Any, app: App, **options: Any) -> Any:
    return world(app, deps=(Clock(world),), **options)


async def test_a_tick_drains_everything(world: Any, app: App) -> None:
    seen = ticks(app, "*/5 * * * *", batch=2)
    async with opened(world, app) as w:
        for n in range(3):
            await w.emit("in.a", n)
        assert seen == []
        await w.advance("5m")
        at = datetime(2026, 1, 5, 9, 5, tzinfo=UTC)
        assert seen == [(at, [0, 1]), (at, [2])]
        await w.emit("in.a", 3)
        await w.advance("4m")
        assert len(seen) == 2
        await w.advance("1m")
        assert seen[-1] == (at + timedelta(minutes=5), [3])
        (info,) = [one for one in await w.app.consumers() if one.name == "c"]
        assert info.every == "*/5 * * * *"
        assert info.next_tick == datetime(2026, 1, 5, 9, 15, tzinfo=UTC)


async def test_days_of_five_idle_schedules_read_and_write_nothing(world: Any, app: App) -> None:
    for n in range(5):
        ticks(app, "*/5 * * * *", f"c{n}")
    async with opened(world, app) as w:
        reads: list[Any] = []
        read = w.store.events

        async def counted(*args: Any, **options: Any) -> Any:
            reads.append(args)
            return await read(*args, **options)

        w.store.events = counted
        posts: list[Any] = []
        post = w.coordinator.post
        w.coordinator.post = lambda op, *rest: (posts.append(op), post(op, *rest))[1]
        await w.advance("3d")
        assert reads == []
        assert [one for one in posts if isinstance(one, ops.AdvanceCursor)] == []


@pytest.mark.parametrize("catch_up", ["one", "skip"])
async def test_ticks_that_were_missed(world: Any, app: App, catch_up: Any) -> None:
    seen = ticks(app, "0 * * * *", catch_up=catch_up)
    async with opened(world, app, worker=False) as w:
        await w.emit("in.a", 1)
        await w.advance("3h10m")  # ticks at 10, 11, 12
    async with opened(world, app) as w:
        await w.settle()
        at = datetime(2026, 1, 5, 12, 10, tzinfo=UTC)
        assert seen == ([(at, [1])] if catch_up == "one" else [])
        await w.advance("1h")
        assert [payloads for _, payloads in seen] == [[1]]


async def test_what_no_tick_was_missed_for_waits_for_the_next(world: Any, app: App) -> None:
    seen = ticks(app, "0 * * * *")
    async with opened(world, app) as w:
        await w.advance("70m")
    async with opened(world, app, worker=False) as w:
        await w.emit("in.a", 1)
        await w.advance("10m")
    async with opened(world, app) as w:
        await w.settle()
        assert seen == []
        await w.advance("1h")
        assert seen == [(datetime(2026, 1, 5, 11, 0, tzinfo=UTC), [1])]


@pytest.mark.parametrize("day", [datetime(2026, 3, 28, 12), datetime(2026, 10, 24, 12)])
async def test_a_daily_tick_on_the_day_the_clocks_change(
    world: Any, app: App, day: datetime
) -> None:
    zone = ZoneInfo("Europe/Berlin")
    seen = ticks(app, "30 2 * * *", zone="Europe/Berlin")
    world.clock.set(int(day.replace(tzinfo=UTC).timestamp()) * 1_000_000)
    async with opened(world, app) as w:
        for n in range(3):
            await w.emit("in.a", n)
            await w.advance("24h")
        days = [at.astimezone(zone).date() for at, _ in seen]
        assert len(days) == len(set(days)) == 3
        assert [payloads for _, payloads in seen] == [[0], [1], [2]]


async def test_a_paused_schedule_reads_nothing_and_then_everything(world: Any, app: App) -> None:
    seen = ticks(app, "*/5 * * * *")
    async with opened(world, app) as w:
        await w.app.pause_consumer("c")
        await w.emit("in.a", 1)
        await w.advance("1h")
        assert seen == []
        await w.app.resume_consumer("c")
        await w.advance("5m")
        assert [payloads for _, payloads in seen] == [[1]]


async def test_a_tick_reads_what_another_process_wrote_just_before_it(world: Any, app: App) -> None:
    seen = ticks(app, "0 0 * * *")
    async with opened(world, app) as w, opened(world, app, worker=False) as client:
        await w.advance("14h59m59s")
        await client.emit_only("in.a", 1)
        await w.advance("1s")  # the tick comes before the poll that finds the event
        await w.worker.recovery.look(thorough=False)
        await w.settle()
        assert [payloads for _, payloads in seen] == [[1]]
        await client.emit_only("in.a", 2)
        await w.worker.recovery.look(thorough=False)
        await w.settle()
        assert len(seen) == 1  # the next tick's


async def test_the_runner_on_a_schedule(world: Any, app: App) -> None:
    from perdure import Context, Event

    started: list[str] = []

    @app.on("in.*")
    @app.workflow
    async def flow(ctx: Context, event: Event) -> None:
        started.append(event.event_id)

    async with world(app, runner_every="*/2 * * * *") as w:
        event = await w.emit("in.a")
        assert started == []
        await w.advance("2m")
        assert started == [event.event_id]
        runner = (await w.app.consumers())[-1]
        assert (runner.name, runner.every) == ("workflow_runner", "*/2 * * * *")
