"""Schedules: a tick has one run, whoever is there; what was missed, what overlaps, what is done by hand."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bus import Bus

from perdure import (
    App,
    Backfilled,
    BadValue,
    Conflict,
    Context,
    InvalidPayload,
    Signal,
    UnknownSchedule,
    UnknownWorkflow,
    workflow,
)
from perdure.model import limits, ops
from perdure.model.clock import from_datetime
from perdure.testing import Crowd, VirtualClock

go = Signal("go", int)


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def reports(app: App) -> Any:
    """A workflow that gives back its tick and when it ran, and one that runs until it is told to stop."""

    @app.workflow
    async def report(ctx: Context, kind: str = "plain") -> list[str]:
        assert ctx.tick is not None
        return [kind, ctx.tick.isoformat(), ctx.now().isoformat()]

    @app.workflow
    async def long(ctx: Context) -> int:
        return await ctx.wait(go)

    return report, long


async def ticks(app: App, name: str) -> list[str]:
    """The ticks of a schedule that have a run, as its tags say, in order."""
    found = await app.runs(tag=("schedule", name), limit=1000)
    return sorted(one.tags["tick"] for one in found)


async def results(app: App, name: str) -> list[Any]:
    found = await app.runs(tag=("schedule", name), limit=1000)
    return [await app.run(one.id).result("5s") for one in found]


# --- one run for each tick -----------------------------------------------------------------------
# Berlin 2026: on 29 March 02:00 becomes 03:00 (01:00 UTC); on 25 October 03:00 becomes 02:00 (01:00 UTC).


async def test_three_workers_start_one_run_for_each_tick_over_both_changes_of_the_clocks(
    place: dict[str, Any],
) -> None:
    app = App("memory://")
    report, _ = reports(app)
    berlin = {"zone": "Europe/Berlin"}
    app.schedule("30 2 * * *", report, "daily", name="daily", **berlin)
    app.schedule("0 7 * * mon-fri", report, "weekdays", name="weekdays", **berlin)
    app.schedule("0 */2 * * *", report, "even", name="even", **berlin)
    app.schedule("12h", report, "twice", name="twice")
    clock = VirtualClock(at("2026-03-28 20:00"))
    async with Crowd(app, **place, workers=3, clock=clock) as crowd:
        await crowd.advance("33h")
        assert await ticks(crowd.app, "daily") == [
            "2026-03-29T01:00:00Z",  # 02:30 did not come: at the end of the jump, 03:00
            "2026-03-30T00:30:00Z",
        ]
        assert await ticks(crowd.app, "weekdays") == ["2026-03-30T05:00:00Z"]
        spring = await ticks(crowd.app, "even")
        night = [one for one in spring if "2026-03-28T20" < one < "2026-03-29T07"]
        assert night == [
            "2026-03-28T21:00:00Z",  # 22:00 in Berlin
            "2026-03-28T23:00:00Z",
            "2026-03-29T02:00:00Z",  # 04:00: with a star it follows the wall, and 02:00 did not come
            "2026-03-29T04:00:00Z",
            "2026-03-29T06:00:00Z",
        ]
        assert len(await ticks(crowd.app, "twice")) == 2

        # Nobody is there for seven months: of what was missed the newest counts.
        crowd.clock.set(from_datetime(at("2026-10-24 21:00")))
        await crowd.settle()
        await crowd.advance("33h")
        assert (await ticks(crowd.app, "daily"))[2:] == [
            "2026-10-24T00:30:00Z",
            "2026-10-25T00:30:00Z",  # 02:30 came twice: the first time only
            "2026-10-26T01:30:00Z",
        ]
        assert (await ticks(crowd.app, "weekdays"))[1:] == [
            "2026-10-23T05:00:00Z",
            "2026-10-26T06:00:00Z",
        ]
        autumn = (await ticks(crowd.app, "even"))[len(spring) :]
        night = [one for one in autumn if "2026-10-24T21" < one < "2026-10-25T06"]
        assert night == [
            "2026-10-24T22:00:00Z",  # 00:00 in Berlin
            "2026-10-25T00:00:00Z",  # 02:00 for the first time
            "2026-10-25T01:00:00Z",  # and for the second
            "2026-10-25T03:00:00Z",
            "2026-10-25T05:00:00Z",
        ]
        twice = await ticks(crowd.app, "twice")
        assert twice[2:] == [f"2026-10-{one}:00:00Z" for one in ("24T20", "25T08", "25T20")]

        for name in ("daily", "weekdays", "even", "twice"):
            found = await crowd.app.runs(tag=("schedule", name), limit=1000)
            assert len({one.tags["tick"] for one in found}) == len(found), "one run for each"
            assert all(one.created_at.isoformat() >= one.tags["tick"][:-1] for one in found)
            assert all(one.status == "completed" for one in found)
        assert not [one for one in await crowd.app.schedules() if one.waiting]


async def test_a_run_knows_its_tick_and_is_never_early(world: Any, app: App) -> None:
    report, _ = reports(app)
    app.schedule("0 12 * * *", report, "noon", name="noon")
    async with world(app) as w:
        await w.advance("2h59m")
        assert await ticks(w.app, "noon") == []
        await w.advance("1m")
        noon = "2026-01-05T12:00:00+00:00"
        assert await results(w.app, "noon") == [["noon", noon, noon]]
        (run,) = await w.app.runs(tag="schedule")
        assert run.id == "noon@2026-01-05T12:00:00Z"
        assert run.tags == {"schedule": "noon", "tick": "2026-01-05T12:00:00Z"}


async def test_a_run_that_no_schedule_started_has_no_tick(world: Any, app: App) -> None:
    @app.workflow
    async def asks(ctx: Context) -> bool:
        return ctx.tick is None

    async with world(app) as w:
        assert await (await w.app.start(asks)).result()
        mine = await w.app.start(asks, tags={"schedule": "mine"})
        assert await mine.result()
        other = await w.app.start(asks, tags={"schedule": "mine", "tick": "soon"})
        assert await other.result()


async def test_ticks_that_came_while_nobody_was_there(world: Any, app: App) -> None:
    report, _ = reports(app)
    for catch_up in ("none", "one", "all"):
        app.schedule("1h", report, name=catch_up, catch_up=catch_up)
    async with world(app) as w:
        await w.advance("1h")
    world.clock.set(world.clock.now() + 3 * 3600_000_000 + 600_000_000)
    async with world(app) as w:
        await w.settle()
        found = {name: await ticks(w.app, name) for name in ("none", "one", "all")}
        hours = {name: [one[11:13] for one in ticks] for name, ticks in found.items()}
        assert hours == {"none": ["10"], "one": ["10", "13"], "all": ["10", "11", "12", "13"]}
        await w.advance("50m")
        assert [(await ticks(w.app, name))[-1][11:13] for name in found] == ["14", "14", "14"]
        skipped = {one.name: one.skipped for one in await w.app.schedules()}
        assert skipped == {"none": 3, "one": 2, "all": 0}


async def test_a_worker_that_stands_still_leaves_its_ticks_to_the_others(
    place: dict[str, Any],
) -> None:
    app = App("memory://")
    report, _ = reports(app)
    app.schedule("1h", report, name="hourly")
    async with Crowd(app, **place, workers=3) as crowd:
        await crowd.advance("1h")
        for one in crowd.apps[:2]:
            await crowd.cut_off(one)
            await crowd.advance("1h")
        survivor = crowd.apps[2]
        assert len(await ticks(survivor, "hourly")) == 3
        for one in crowd.apps[:2]:
            await crowd.mend(one)
        assert len(await ticks(survivor, "hourly")) == 3


async def test_what_one_process_schedules_another_starts(place: dict[str, Any]) -> None:
    app = App("memory://")
    report, _ = reports(app)
    async with Crowd(app, **place, workers=2) as crowd:
        await crowd.app.schedule("10m", report, "by hand", name="often")
        await crowd.settle()
        await crowd.cut_off(crowd.app)
        await crowd.advance("10m")
        assert len(await ticks(crowd.apps[1], "often")) == 1


async def test_others_are_told_when_a_schedule_is_due() -> None:
    app = App("memory://")
    report, _ = reports(app)
    crowd = Crowd(app, workers=2)
    bus = Bus(crowd)
    async with crowd:
        due_at = crowd.clock.now() + 600_000_000
        await crowd.app.schedule("10m", report, name="often")
        await asyncio.sleep(0)
        assert [(one.kind, one.at) for one in bus.passed][-1] == ("schedule", due_at)
        worker = crowd.apps[1]._engine().worker
        assert worker is not None
        assert worker.schedules._alarm._at == due_at


async def test_a_schedule_fires_only_where_its_workflow_is(place: dict[str, Any]) -> None:
    """And in the newest version that is there."""

    @workflow(name="job")
    async def old(ctx: Context) -> int:
        return 1

    @workflow(name="job", version=2)
    async def new(ctx: Context) -> int:
        return 2

    clock = VirtualClock()
    app, other = App("memory://"), App("memory://")
    app.add(old)
    app.add(new)
    reports(other)
    async with Crowd(app, **place, workers=1, clock=clock) as crowd:
        await crowd.app.schedule("1h", "job")
        engine = crowd.app._engine()
        fire = ops.FireSchedules(limit=10, workflows=other.registry.newest_keys())
        crowd.clock._now += 3600_000_000  # before its own alarm rings
        fired = await engine.coordinator.submit(fire)
        assert (fired.count, fired.next_at) == (0, None)
        await crowd.advance(0)
        (run,) = await crowd.app.runs()
        assert (run.workflow, run.version, run.status) == ("job", 2, "completed")


# --- when runs take longer than their schedule ---------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "begun", "ended"), [("skip", 1, 2), ("queue", 1, 4), ("allow", 4, 5)]
)
async def test_overlap(world: Any, app: App, overlap: Any, begun: int, ended: int) -> None:
    _, long = reports(app)
    app.schedule("1h", long, overlap=overlap)
    async with world(app) as w:
        await w.advance("4h")
        assert len(await ticks(w.app, "long")) == begun
        (row,) = await w.app.schedules()
        assert (row.skipped, row.waiting) == {"skip": (3, 0), "queue": (0, 3), "allow": (0, 0)}[
            overlap
        ]
        while living := await w.app.runs(workflow=long, status=["waiting"]):
            for one in living:
                await w.app.signal(one.id, go, 1)
            await w.settle()
        assert len(await ticks(w.app, "long")) == max(begun, 4 if overlap == "queue" else 0)
        await w.advance("1h")
        assert len(await ticks(w.app, "long")) == ended + (overlap == "queue")


async def test_queued_ticks_start_in_order_also_after_a_crash(world: Any, app: App) -> None:
    _, long = reports(app)
    app.schedule("1h", long, overlap="queue")
    async with world(app) as w:
        await w.advance("3h")
        (first,) = await w.app.runs(workflow=long)
        # The run ends while no worker listens: the store itself remembers that a tick may start now.
        await w.crash()
    async with world(app) as w:
        await w.app.run(first.id).terminate()
        await w.settle()
        found = await ticks(w.app, "long")
        assert [one[11:13] for one in found] == ["10", "11"]


@pytest.mark.parametrize("committed", [False, True])
async def test_a_crash_around_the_commit_of_a_tick(world: Any, app: App, committed: bool) -> None:
    """The process dies before the store has it, or before it hears that it does: one run all the same."""
    report, _ = reports(app)
    app.schedule("1h", report, name="hourly", overlap="allow", catch_up="all")
    async with world(app) as w:
        store, reached = w.app._engine().store, asyncio.Event()
        apply = store.apply

        async def dying(batch_id: str, batch: Any, *more: Any) -> Any:
            if not any(isinstance(one, ops.FireSchedules) for one in batch):
                return await apply(batch_id, batch, *more)
            if committed:
                await apply(batch_id, batch, *more)
            reached.set()
            await asyncio.Event().wait()

        store.apply = dying
        w.clock.set(w.clock.now() + 3600_000_000)
        await asyncio.wait_for(reached.wait(), 10)
        await w.crash()
        store.apply = apply
    async with world(app) as w:
        await w.settle()
        assert await ticks(w.app, "hourly") == ["2026-01-05T10:00:00Z"]
        await w.advance("1h")
        assert len(await ticks(w.app, "hourly")) == 2
        started = await w.facts("workflow.run_started")
        assert len(started) == 2


# --- by hand -------------------------------------------------------------------------------------


async def test_trigger_runs_it_now(world: Any, app: App) -> None:
    report, _ = reports(app)
    app.schedule("0 3 * * *", report, "nightly", name="nightly")
    async with world(app) as w:
        await w.app.pause_schedule("nightly")
        first, second = await asyncio.gather(w.app.trigger("nightly"), w.app.trigger("nightly"))
        assert first.id != second.id
        now = "2026-01-05T09:00:00+00:00"
        assert await first.result("5s") == ["nightly", now, now]
        assert first.id.startswith("nightly@")
        (row,) = await w.app.schedules()
        assert (row.last_tick, row.last_run_id in (first.id, second.id)) == (None, True)


async def test_backfill_fills_a_window_once(world: Any, app: App) -> None:
    report, _ = reports(app)
    app.schedule("0 3 * * *", report, name="nightly", overlap="allow")
    window = (at("2026-01-01"), at("2026-01-05 03:00"))
    async with world(app) as w:
        counted = await w.app.backfill("nightly", *window)
        assert counted == Backfilled(ticks=4, started=4, existing=0)
        assert await ticks(w.app, "nightly") == [], "it only counted"
        assert await w.app.backfill("nightly", *window, dry_run=False) == counted
        await w.settle()
        assert await ticks(w.app, "nightly") == [f"2026-01-0{day}T03:00:00Z" for day in range(1, 5)]
        for dry_run in (True, False):
            again = await w.app.backfill("nightly", *window, dry_run=dry_run)
            assert again == Backfilled(ticks=4, started=0, existing=4)
        wider = await w.app.backfill("nightly", window[0], at("2027-01-01"), dry_run=False)
        assert wider == Backfilled(ticks=5, started=1, existing=4), "never what is still to come"


async def test_backfill_goes_in_many_commits(world: Any, app: App) -> None:
    report, _ = reports(app)
    app.schedule("* * * * *", report, name="minutely", overlap="allow")
    async with world(app) as w:
        since = w.clock.moment - timedelta(minutes=250)
        filled = await w.app.backfill("minutely", since, w.clock.moment, dry_run=False)
        assert filled == Backfilled(ticks=250, started=250, existing=0)
        await w.settle()
        assert len(await ticks(w.app, "minutely")) == 250


async def test_backfill_runs_one_after_the_other_where_runs_must_not_overlap(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "schedule_queue_max", 3)
    most, living = 0, 0

    @app.step
    async def body() -> None:
        nonlocal most, living
        living += 1
        most = max(most, living)
        await asyncio.sleep(0)
        living -= 1

    @app.workflow
    async def job(ctx: Context) -> None:
        await ctx.step(body)

    app.schedule("0 * * * *", job)
    async with world(app) as w:
        await w.app.pause_schedule("job")
        window = (at("2026-01-05 03:30"), at("2026-01-05 09:00"))
        filled = await w.app.backfill("job", *window, dry_run=False)
        assert filled == Backfilled(ticks=5, started=3, existing=0, left=2)
        counted = await w.app.backfill("job", *window)
        assert counted == Backfilled(ticks=5, started=2, existing=3), "those that wait are known"
        await w.settle()
        assert await ticks(w.app, "job") == [], "it is paused"
        await w.app.resume_schedule("job")
        await w.settle()
        await w.app.backfill("job", *window, dry_run=False)
        await w.settle()
        assert (len(await ticks(w.app, "job")), most) == (5, 1)


# --- rows that are changed while others run ------------------------------------------------------


async def test_pause_and_resume(world: Any, app: App) -> None:
    report, _ = reports(app)
    app.schedule("1h", report, name="hourly")
    async with world(app) as w:
        await w.app.pause_schedule("hourly", "the printer is out of order")
        await w.advance("3h30m")
        (row,) = await w.app.schedules()
        assert (row.paused, row.reason) == (True, "the printer is out of order")
        assert row.next_ticks == []
        await w.app.resume_schedule("hourly")
        await w.settle()
        assert await ticks(w.app, "hourly") == []
        (row,) = await w.app.schedules()
        assert row.next_ticks == [at(f"2026-01-05 {hour}:00") for hour in (13, 14, 15)]
        await w.advance("30m")
        assert len(await ticks(w.app, "hourly")) == 1


async def test_a_schedule_is_changed_while_the_app_runs(world: Any, app: App) -> None:
    report, _ = reports(app)
    async with world(app) as w:
        await w.app.schedule("1h", report, "first", name="mine")
        await w.advance("1h")
        await w.app.schedule(timedelta(minutes=5), "report", "second", name="mine")
        await w.advance("10m")
        said = [one[0] for one in await results(w.app, "mine")]
        assert sorted(said) == ["first", "second", "second"]
        assert await w.app.unschedule("mine")
        assert not await w.app.unschedule("mine")
        await w.advance("1h")
        assert len(await ticks(w.app, "mine")) == 3


async def test_code_says_what_it_is_and_operators_whether_it_runs(world: Any, app: App) -> None:
    report, _ = reports(app)
    app.schedule("1h", report, name="hourly")
    async with world(app) as w:
        await w.advance("20m")
        await w.app.pause_schedule("hourly")
        with pytest.raises(Conflict, match="declared in code; change it there"):
            await w.app.schedule("2h", report, name="hourly")
        await w.app.schedule("2h", report, name="other")
    async with world(app) as w:
        hourly, other = await w.app.schedules()
        assert (hourly.code, hourly.paused, hourly.every) == (True, True, timedelta(hours=1))
        assert (other.code, other.next_ticks[0]) == (False, at("2026-01-05 11:20"))
        await w.app.resume_schedule("hourly")
        (hourly, _) = await w.app.schedules()
        assert hourly.next_ticks[0] == at("2026-01-05 10:00"), "from where it was first made"
    changed = App("memory://")
    report, _ = reports(changed)
    changed.schedule("30 * * * *", report, name="hourly", zone="Asia/Kolkata")
    async with world(changed) as w:
        (hourly, other) = await w.app.schedules()
        assert (hourly.every, hourly.zone) == ("30 * * * *", "Asia/Kolkata")
        assert hourly.next_ticks[0] == at("2026-01-05 10:00"), "half past three in Kolkata"
        await w.app.unschedule("hourly")
        await w.app.schedule(
            "1d", report, name="hourly"
        )  # its name is free until the app is opened


async def test_a_client_declares_nothing_and_may_do_all_else(world: Any, app: App) -> None:
    report, _ = reports(app)
    app.schedule("1h", report, name="hourly")
    async with world(app, worker=False) as w:
        assert list(await w.app.schedules()) == []
        await w.app.schedule("1h", report, name="by-client")
        (await w.app.trigger("by-client"))
        (run,) = await w.app.runs()
        assert run.status == "ready"


async def test_schedules_are_listed_in_pages(world: Any, app: App) -> None:
    report, _ = reports(app)
    for name in "bca":
        app.schedule("0 9 * * *", report, name=name, zone="Europe/Berlin")
    async with world(app) as w:
        first = await w.app.schedules(limit=2)
        rest = await w.app.schedules(limit=2, after=first.cursor)
        assert ([one.name for one in first], [one.name for one in rest]) == (["a", "b"], ["c"])
        assert rest.cursor is None
        assert rest[0].next_ticks == [at(f"2026-01-0{day} 08:00") for day in (6, 7, 8)]
        assert (rest[0].every, rest[0].zone, rest[0].input) == (
            "0 9 * * *",
            "Europe/Berlin",
            ["plain"],
        )


async def test_a_workflow_of_another_process_is_scheduled_by_its_name(
    place: dict[str, Any],
) -> None:
    app, empty = App("memory://"), App("memory://")

    @app.workflow
    async def job(ctx: Context, number: int) -> int:
        return number

    async with Crowd(app, **place, workers=1) as crowd:
        store = crowd.app._engine().store
        client = empty.copy("memory://", clock=crowd.clock, worker=False)
        client._make_store = lambda ids: _Shared(store)  # type: ignore[assignment,method-assign,return-value]
        async with client:
            with pytest.raises(UnknownWorkflow):
                await client.schedule("1h", "nobody", name="s")
            with pytest.raises(InvalidPayload, match="input of workflow 'job'"):
                await client.schedule("1h", "job", "seven", name="s")
            with pytest.raises(InvalidPayload):
                await client.schedule("1h", "job", name="s")
            assert list(await client.schedules()) == []
            await client.schedule("1h", "job", 7, name="s")
            run = await client.trigger("s")
        await crowd.advance("1h")
        assert await crowd.app.run(run.id).result("5s") == 7
        assert await results(crowd.app, "s") == [7, 7]


class _Shared:
    """A store that somebody else opens and closes."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self) -> None: ...

    async def close(self) -> None: ...


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "options", "match"),
    [
        ("0 7 * *", {}, "4 fields"),
        ("0 0 31 2 *", {}, "never ticks"),
        ("0 0 7 * * *", {}, "seconds are not scheduled"),
        ("*/5 * * * * ", {"zone": "Europe/Atlantis"}, "time zone 'Europe/Atlantis'"),
        ("61 * * * *", {}, "bad minute"),
        ("@noon", {}, "no alias"),
        ("soon", {}, "neither cron nor an interval"),
        ("15", {}, "neither cron nor an interval"),
        ("", {}, "neither cron nor an interval"),
        ("500ms", {}, "shorter than a second"),
        (0, {}, "shorter than a second"),
        (timedelta(0), {}, "shorter than a second"),
        (None, {}, "is no interval"),
        (True, {}, "is no interval"),
        ("15m", {"zone": "Europe/Berlin"}, "plays no role for an interval"),
        ("15m", {"zone": "Nowhere"}, "time zone 'Nowhere'"),
        ("15m", {"catch_up": "some"}, "catch_up 'some'"),
        ("15m", {"overlap": True}, "overlap True"),
        ("15m", {"name": "a/b"}, "contains '/'"),
        ("15m", {"name": "x" * 201}, "schedule_name_bytes_max"),
    ],
)
async def test_a_bad_schedule_is_refused_in_code_and_at_run_time(
    app: App, every: Any, options: dict[str, Any], match: str
) -> None:
    report, _ = reports(app)
    with pytest.raises(BadValue, match=match):
        app.schedule(every, report, **options)
    assert app.declared_schedules == {}
    async with app:
        with pytest.raises(BadValue, match=match):
            await app.schedule(every, report, **options)
        assert list(await app.schedules()) == []


async def test_a_workflow_or_an_input_that_does_not_fit_is_refused(app: App) -> None:
    report, long = reports(app)
    stranger = App("memory://")
    foreign, _ = reports(stranger)

    async def plain(ctx: Context) -> None: ...

    cases: list[tuple[type[Exception], Callable[[], Any]]] = [
        (UnknownWorkflow, lambda: app.schedule("1h", foreign)),
        (UnknownWorkflow, lambda: app.schedule("1h", "nobody")),
        (BadValue, lambda: app.schedule("1h", plain)),  # type: ignore[call-overload]
        (InvalidPayload, lambda: app.schedule("1h", report, 7)),
        (InvalidPayload, lambda: app.schedule("1h", long, "too much")),
    ]
    for error, ask in cases:
        with pytest.raises(error):
            ask()
    async with app:
        for error, ask in cases:
            with pytest.raises(error):
                await ask()
        assert list(await app.schedules()) == []


async def test_two_of_one_name_are_refused_in_code(app: App) -> None:
    report, _ = reports(app)
    app.schedule("1h", report)
    with pytest.raises(Conflict, match="give one of them name="):
        app.schedule("2h", report)
    await app.schedule("2h", report, name="other")  # to await it is allowed, and does nothing
    assert sorted(app.declared_schedules) == ["other", "report"]


async def test_what_is_not_there_or_makes_no_sense_by_hand(world: Any, app: App) -> None:
    report, _ = reports(app)
    app.schedule("* * * * *", report, name="mine")
    async with world(app) as w:
        app, now = w.app, w.clock.moment
        for ask in (
            app.trigger("none"),
            app.pause_schedule("none"),
            app.resume_schedule("none"),
            app.backfill("none", now, now),
        ):
            with pytest.raises(UnknownSchedule, match="there is no schedule 'none'"):
                await ask
        assert not await app.unschedule("none")
        with pytest.raises(BadValue, match="schedule_backfill_max"):
            await app.backfill("mine", now - timedelta(days=30), now, dry_run=False)
        with pytest.raises(BadValue, match="since"):
            await app.backfill("mine", datetime(2026, 1, 1), now)
        with pytest.raises(BadValue, match="dry_run"):
            await app.backfill("mine", now, now, dry_run="no")  # type: ignore[arg-type]
        assert await app.backfill("mine", now, now - timedelta(days=1)) == Backfilled(
            ticks=0, started=0, existing=0
        )
        assert list(await app.runs()) == []


# --- how it goes ---------------------------------------------------------------------------------


async def test_health_tells_of_a_schedule_that_nobody_starts(world: Any, app: App) -> None:
    report, _ = reports(app)
    async with world(app, worker=False) as w:
        await w.app.schedule("1h", report, name="hourly")
        assert (await w.app.health()).schedule_late_s is None
        w.clock.set(w.clock.now() + 3605 * 1_000_000)
        health = await w.app.health()
        assert (health.status, health.schedule_late_s) == ("ok", 5.0)
        w.clock.set(w.clock.now() + 600 * 1_000_000)
        health = await w.app.health()
        assert health.status == "degraded"
        assert "a schedule is due since 605 s" in health.reasons[0]


async def test_a_worker_asks_for_nothing_between_two_ticks(world: Any, app: App) -> None:
    report, _ = reports(app)
    app.schedule("1h", report, name="hourly")
    async with world(app) as w:
        await w.advance("1h")
        store = w.app._engine().store
        apply, applied = store.apply, []

        async def noted(batch_id: str, batch: Any, *more: Any) -> Any:
            applied.extend(batch)
            return await apply(batch_id, batch, *more)

        store.apply = noted
        await w.advance("59m")
        await w.app._engine().worker.recovery.look(thorough=True)
        await w.settle()
        assert not [one for one in applied if isinstance(one, ops.FireSchedules)]
        await w.advance("1m")
        assert [one for one in applied if isinstance(one, ops.FireSchedules)]


async def test_the_facts_of_schedules_are_read_by_name_and_no_wildcard(
    world: Any, app: App
) -> None:
    _, long = reports(app)
    seen: list[str] = []

    @app.consumer("told", "schedule.*")
    async def told(batch: Any) -> None:
        seen.extend(f"{one.type} {one.entity} {one.payload['reason']}" for one in batch)

    @app.consumer("all", "*")
    async def everything(batch: Any) -> None:
        seen.extend(f"wild {one.type}" for one in batch)

    app.schedule("1h", long)
    async with world(app) as w:
        await w.advance("3h")
        assert seen == ["schedule.skipped schedule/long overlap"]
        with pytest.raises(BadValue, match="only the engine emits"):
            await w.app.emit("schedule.skipped", {})
