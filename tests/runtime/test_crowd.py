"""Three workers on one store: what any of them may do is done once, and what one leaves the others take over."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bus import Bus, broken

from perdure import App, Batch, Context, Event, Signal, Topic, step_info
from perdure.model import limits
from perdure.testing import Crowd
from perdure.upkeep import prune_older

go = Signal("go", int, buffer="all")
paid = Topic("order.paid", int)
bell = Topic("bell", int)


class Notes:
    def __init__(self) -> None:
        self.bodies: Counter[str] = Counter()
        self.ticks: list[list[Any]] = []
        self.gate = asyncio.Event()


def shop(notes: Notes) -> App:
    app = App("memory://")

    @app.step
    async def work(number: int) -> int:
        notes.bodies[step_info().run_id] += 1
        await notes.gate.wait()
        return number

    @app.workflow
    async def sleeper(ctx: Context) -> int:
        await ctx.sleep("1h")
        return await ctx.step(work, 1)

    @app.workflow
    async def worker(ctx: Context) -> int:
        return await ctx.step(work, 1) + await ctx.wait(go)

    @app.workflow
    async def listener(ctx: Context) -> int:
        return await ctx.wait(bell)

    @app.workflow
    async def picky(ctx: Context) -> int:
        return await ctx.wait(bell.about(where="payload > 3"))

    @app.on("order.*")
    @app.workflow
    async def billed(ctx: Context, event: Event) -> Any:
        return event.payload

    @app.consumer("hourly", "order.*", every="0 * * * *")
    async def hourly(batch: Batch) -> None:
        notes.ticks.append([one.payload for one in batch])
        batch.emit("report.made", len(batch))

    app.anomaly("unpaid", missing=("order.paid", "order.shipped", "2h"))
    return app


@pytest.fixture
def notes() -> Notes:
    notes = Notes()
    notes.gate.set()
    return notes


@pytest.fixture(params=["alone", "with hints"])
async def crowd(
    notes: Notes, place: dict[str, Any], request: pytest.FixtureRequest
) -> AsyncIterator[Crowd]:
    crowd = Crowd(shop(notes), **place, workers=3, seed=7)
    if request.param == "with hints":
        Bus(crowd)
    async with crowd:
        yield crowd
        await crowd.settle()
        assert await broken(crowd) == []


def flow(app: App, name: str) -> Any:
    return app.registry.find(name, 1)


async def begin(crowd: Crowd, name: str, count: int) -> list[Any]:
    """Runs that were started by all in turn."""
    runs = []
    for number in range(count):
        app = crowd.apps[number % len(crowd.apps)]
        runs.append(await app.start(flow(app, name), id=f"{name}-{number}"))
    return runs


async def results(crowd: Crowd, runs: list[Any]) -> list[Any]:
    return [await crowd.living[-1].run(one.id).result() for one in runs]


def worker_of(app: App) -> Any:
    return app._engine().worker


# --- what any of them may do ---------------------------------------------------------------------


async def test_timers_that_all_find_due_fire_once(crowd: Crowd, notes: Notes) -> None:
    runs = await begin(crowd, "sleeper", 9)
    await crowd.advance("1h")
    assert await results(crowd, runs) == [1] * 9
    assert set(notes.bodies.values()) == {1}


async def test_an_event_that_many_wait_for_resumes_each_once(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "resumed_per_commit_max", 2)
    runs = await begin(crowd, "listener", 12)
    await crowd.settle()
    await crowd.apps[1].emit(bell, 5)
    await crowd.apps[2].emit(bell, 6)
    await crowd.settle()
    assert await results(crowd, runs) == [5] * 12


async def test_a_filter_that_all_judge_ends_a_wait_once(crowd: Crowd) -> None:
    runs = await begin(crowd, "picky", 6)
    await crowd.settle()
    for number in (1, 4, 9):
        await crowd.apps[number % 3].emit(bell, number)
    await crowd.settle()
    assert await results(crowd, runs) == [4] * 6


async def test_a_schedule_ticks_once_for_all(crowd: Crowd, notes: Notes) -> None:
    for number in range(3):
        await crowd.apps[number].emit(paid, number)
    await crowd.advance("3h")
    assert notes.ticks == [[0, 1, 2]]
    reports = await crowd.app.events("report.made")
    assert [one.payload for one in reports] == [3]


async def test_a_subscription_starts_a_run_once_for_each_event(crowd: Crowd) -> None:
    for number in range(6):
        await crowd.apps[number % 3].emit(paid, number)
    await crowd.settle()
    runs = await crowd.app.runs(workflow="billed")
    assert sorted([await results(crowd, [one]) for one in runs]) == [[n] for n in range(6)]


async def test_a_detector_tells_once(crowd: Crowd) -> None:
    await crowd.app.emit(paid, 1, entity="order/1")
    await crowd.advance("6h")
    assert len(await crowd.app.events("anomaly.*")) == 1


async def test_a_stall_is_told_once(crowd: Crowd) -> None:
    await crowd.app.pause_consumer("workflow_runner")
    await crowd.apps[1].emit(paid, 1)
    await crowd.advance("5h")
    assert len(await crowd.app.events("ledger.consumer_stalled")) == 1


async def test_pruning_by_all_at_once_deletes_each_run_once(crowd: Crowd) -> None:
    runs = await begin(crowd, "sleeper", 9)
    await crowd.advance("1d")
    engines = [one._engine() for one in crowd.apps]
    pruned = await asyncio.gather(
        *(prune_older(one.coordinator, crowd.clock, 3600_000_000) for one in engines)
    )
    assert sum(pruned) == len(runs)


async def test_retention_by_all_keeps_the_ledger_dense(notes: Notes, place: dict[str, Any]) -> None:
    async with Crowd(shop(notes), **place, workers=3, seed=7, keep_events_max=5) as crowd:
        for number in range(30):
            await crowd.apps[number % 3].emit(bell, number)
        await crowd.advance("3h")  # until the hourly reader has passed them
        store = crowd.app._engine().store
        first, last = await store.span()
        assert last - first < 10
        assert await broken(crowd) == []


async def test_recovery_by_all_adopts_each_run_once(crowd: Crowd, notes: Notes) -> None:
    runs = await begin(crowd, "worker", 9)
    await crowd.settle()
    gone = crowd.apps[0]
    await crowd.cut_off(gone)
    for run in runs:
        await crowd.apps[1].signal(run.id, go, 2)
    await crowd.settle()
    assert await results(crowd, runs) == [3] * 9
    assert set(notes.bodies.values()) == {1}  # all had recorded it: nothing is done anew


# --- when one is taken for dead ------------------------------------------------------------------


async def test_a_body_of_a_worker_that_was_cut_off_counts_for_nothing(
    crowd: Crowd, notes: Notes
) -> None:
    notes.gate.clear()
    run = await crowd.app.start(flow(crowd.app, "worker"))
    await until(lambda: notes.bodies[run.id] == 1)
    notes.gate.set()
    await crowd.cut_off(crowd.app)
    assert notes.bodies[run.id] == 2  # at least once, and here in another process
    await crowd.apps[1].signal(run.id, go, 4)
    await crowd.settle()
    assert await crowd.apps[2].run(run.id).result() == 5
    await crowd.mend(crowd.app)
    history = await crowd.apps[1].run(run.id).history()
    assert [one.name for one in history].count("work") == 1


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 (what is awaited is no object of ours)
            await asyncio.sleep(0)


async def test_one_that_comes_back_is_another_worker_and_goes_on(crowd: Crowd) -> None:
    runs = await begin(crowd, "worker", 6)
    await crowd.settle()
    before = worker_of(crowd.app).worker_id
    await crowd.cut_off(crowd.app)
    assert worker_of(crowd.app).resident_runs == 2
    await crowd.mend(crowd.app)
    worker = worker_of(crowd.app)
    assert worker.worker_id not in (before, None)
    assert worker.resident_runs == 0
    look = await crowd.app._engine().store.look()
    assert look.workers == {worker_of(one).worker_id for one in crowd.apps}
    # It takes part again: as the only one that is left, it has to.
    for one in crowd.apps[1:]:
        await crowd.cut_off(one)
    for run in runs:
        await crowd.app.signal(run.id, go, 2)
    again = await crowd.app.start(flow(crowd.app, "worker"))
    await crowd.app.signal(again.id, go, 3)
    await crowd.settle()
    assert await results(crowd, [*runs, again]) == [3] * 6 + [4]


async def test_what_it_read_of_the_ledger_another_reads_on(crowd: Crowd, notes: Notes) -> None:
    await crowd.app.emit(paid, 1)
    await crowd.advance("1h")
    readers = {row.name: row.owner for row in await crowd.app.consumers()}
    owner = next(one for one in crowd.apps if worker_of(one).worker_id == readers["hourly"])
    await crowd.cut_off(owner)
    await crowd.living[0].emit(paid, 2)
    await crowd.advance("1h")
    assert notes.ticks == [[1], [2]]
    await crowd.mend(owner)
    await owner.emit(paid, 3)
    await crowd.advance("1h")
    # Its handler may have been called for what others had dealt with; what came of that was refused.
    assert len(await crowd.app.events("report.made")) == 3


async def test_a_start_that_was_under_way_when_the_lease_was_lost_is_made_and_run(
    crowd: Crowd,
) -> None:
    await crowd.cut_off(crowd.app)
    starting = asyncio.ensure_future(crowd.app.start(flow(crowd.app, "worker"), id="late"))
    await asyncio.sleep(0)
    await crowd.mend(crowd.app)
    run = await starting
    await crowd.app.signal(run.id, go, 1)
    await crowd.settle()
    assert await run.result() == 2
