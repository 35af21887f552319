"""Several workers that hear of each other: a run that waits stays with its owner, whoever brings what it waits for.

The hints go over a bus of the test, by the door that a store uses. What they bring about must also come about without
them, a little later.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from bus import Bus, broken
from msgspec.structs import replace

from perdure import App, Batch, Context, Retry, RunCancelled, Signal, Topic, timer
from perdure.model import ops
from perdure.model.outcomes import Wake
from perdure.testing import Crowd, World

go = Signal("go", int, buffer="all")
other = Signal("other", int, buffer="all")
paid = Topic("order.paid", int)


class Notes:
    """What happened in this process: how often code of a run began, and bodies of steps."""

    def __init__(self) -> None:
        self.lives: list[str] = []
        self.bodies: list[str] = []
        self.gate = asyncio.Event()
        self.failures = 0
        self.read: list[Any] = []


def shop(notes: Notes) -> App:
    app = App("memory://")

    @app.step
    async def long(run_id: str) -> int:
        notes.bodies.append(run_id)
        await notes.gate.wait()
        return 1

    @app.step(retry=Retry(attempts=3, backoff="10s", jitter=0))
    async def shaky(run_id: str) -> int:
        notes.bodies.append(run_id)
        if notes.failures:
            notes.failures -= 1
            raise ValueError("not yet")
        return 1

    @app.workflow
    async def waiter(ctx: Context) -> int:
        notes.lives.append(ctx.run_id)
        return await ctx.wait(go)

    @app.workflow
    async def worker(ctx: Context) -> int:
        notes.lives.append(ctx.run_id)
        number = await ctx.wait(go)
        return number + await ctx.step(long, ctx.run_id)

    @app.workflow
    async def pair(ctx: Context) -> tuple[int, int, int]:
        notes.lives.append(ctx.run_id)
        one, two = await ctx.gather(ctx.wait(go), ctx.wait(other))
        return one, two, await ctx.wait(go)

    @app.workflow
    async def ordered(ctx: Context) -> list[int]:
        notes.lives.append(ctx.run_id)
        order: list[int] = []

        async def branch(signal: Signal[int]) -> None:
            order.append(await ctx.wait(signal))

        await ctx.gather(branch(go), branch(other))
        return order

    @app.workflow
    async def both(ctx: Context) -> int:
        notes.lives.append(ctx.run_id)
        one, two = await ctx.gather(ctx.wait(go), ctx.wait(other))
        return one + two + await ctx.step(long, ctx.run_id)

    @app.workflow
    async def patient(ctx: Context) -> int:
        notes.lives.append(ctx.run_id)
        return await ctx.step(shaky, ctx.run_id)

    @app.workflow
    async def mixed(ctx: Context) -> str:
        notes.lives.append(ctx.run_id)
        total = 0
        for _ in range(3):
            won = await ctx.first(go=go, paid=paid.about("order/1"), late=timer("5s"))
            total += 0 if won.name == "late" else 1
        return f"{total}"

    @app.consumer("reader", "order.*")
    async def reader(batch: Batch) -> None:
        notes.read += [one.payload for one in batch]

    return app


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def crowd(notes: Notes, place: dict[str, Any]) -> Crowd:
    return Crowd(shop(notes), **place, workers=2, seed=1)


@pytest.fixture
async def bus(crowd: Crowd) -> AsyncIterator[Bus]:
    bus = Bus(crowd)
    async with crowd:
        yield bus
        assert await broken(crowd) == []


def store_of(app: App) -> Any:
    return app._engine().store


def worker_id(app: App) -> str:
    worker = app._engine().worker
    assert worker is not None
    return worker.worker_id


def flow(app: App, name: str) -> Any:
    return app.registry.find(name, 1)


async def begin(crowd: Crowd, name: str, app: App | None = None, **options: Any) -> Any:
    app = app or crowd.apps[0]
    run = await app.start(flow(app, name), **options)
    await hear(crowd)
    return run


async def hear(crowd: Crowd) -> None:
    """Let happen what happens by hints alone: nobody looks by itself."""
    await World.settle(crowd)


async def row(crowd: Crowd, run: Any) -> Any:
    return await store_of(crowd.app).run(run.id)


# --- deliveries ----------------------------------------------------------------------------------


async def test_a_signal_from_another_process_reaches_the_run_where_it_stands(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    run = await begin(crowd, "waiter")
    await crowd.apps[1].signal(run.id, go, 7)
    await hear(crowd)
    assert await run.result() == 7
    assert notes.lives == [run.id]


async def test_so_do_several_at_once_in_their_order(crowd: Crowd, bus: Bus, notes: Notes) -> None:
    run = await begin(crowd, "pair")
    await crowd.apps[1].signal_many([(run.id, other, 2), (run.id, go, 1), (run.id, go, 3)])
    await hear(crowd)
    assert await run.result() == (1, 2, 3)
    assert notes.lives == [run.id]


async def test_many_calls_are_answered_with_few_reads(
    crowd: Crowd, bus: Bus, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [await begin(crowd, "waiter") for _ in range(30)]
    store, reads = store_of(crowd.app), []
    load = store.load

    async def counted(run_ids: list[str]) -> Any:
        reads.append(len(run_ids))
        return await load(run_ids)

    monkeypatch.setattr(store, "load", counted)
    await crowd.apps[1].signal_many([(run.id, go, 7) for run in runs])
    await hear(crowd)
    assert [await run.result() for run in runs] == [7] * 30
    assert len(reads) <= 2 and sum(reads) <= 60
    assert len(notes.lives) == 30


async def test_branches_go_on_in_the_order_of_what_was_decided(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    run = await begin(crowd, "ordered")
    await crowd.apps[1].signal_many([(run.id, other, 2), (run.id, go, 1)])
    await hear(crowd)
    assert await run.result() == [2, 1]
    assert notes.lives == [run.id]


async def test_a_hint_that_comes_twice_changes_nothing(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    bus.doubled = 1
    run = await begin(crowd, "worker")
    await crowd.apps[1].signal(run.id, go, 7)
    await hear_running(notes)
    store_of(crowd.app).on_hint(bus.passed[-1])
    await spin()
    notes.gate.set()
    await hear(crowd)
    assert await run.result() == 8
    assert (notes.lives, notes.bodies) == ([run.id], [run.id])


async def hear_running(notes: Notes) -> None:
    """Until a body of a step has begun; a run with one never settles."""
    async with asyncio.timeout(10):
        while not notes.bodies:  # noqa: ASYNC110 (what is awaited is no object of ours)
            await asyncio.sleep(0)
    await spin()


async def spin() -> None:
    """A run in a step never settles: real time for what is on its way to it, also through the threads of a store."""
    for _ in range(50):
        await asyncio.sleep(0.0005)


async def test_an_owner_in_a_long_step_has_said_that_it_goes_on(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    run = await begin(crowd, "worker")
    await crowd.apps[1].signal(run.id, go, 7)
    await hear_running(notes)
    assert (await row(crowd, run)).ready_at is None
    crowd.clock.set(crowd.clock.now() + 1_000_000)
    await spin()
    assert (await row(crowd, run)).owner == worker_id(crowd.apps[0])
    notes.gate.set()
    await hear(crowd)
    assert await run.result() == 8
    assert (notes.lives, notes.bodies) == ([run.id], [run.id])


async def test_an_owner_that_has_to_load_the_run_anew_says_so_too(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    run = await begin(crowd, "both")
    bus.lost = 1
    await crowd.apps[1].signal(run.id, go, 1)
    await crowd.apps[0].signal(run.id, other, 2)  # news, of which the one before has not been heard
    await hear_running(notes)
    assert (await row(crowd, run)).ready_at is None
    assert (await row(crowd, run)).owner == worker_id(crowd.apps[0])
    notes.gate.set()
    await hear(crowd)
    assert await run.result() == 4
    assert (len(notes.lives), notes.bodies) == (2, [run.id])


async def test_a_retry_that_another_process_finds_due_goes_on_where_it_stands(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    notes.failures = 2
    run = await begin(crowd, "patient")
    silence(crowd.apps[0])
    await crowd.advance("10s")
    await crowd.advance("20s")
    assert await run.result() == 1
    assert (notes.lives, len(notes.bodies)) == ([run.id], 3)


def silence(app: App) -> None:
    """Its own timers ring no more: only others find what is due."""
    worker = app._engine().worker
    assert worker is not None
    worker.timers.note = lambda at: None  # type: ignore[method-assign]
    worker.timers._alarm.clear()


async def test_a_hint_about_a_run_that_is_not_in_memory_is_no_harm(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    run = await begin(crowd, "waiter")
    worker = crowd.app._engine().worker
    assert worker is not None
    worker.on_over(worker._executions[run.id])  # as if it had never come into memory
    await crowd.apps[1].signal(run.id, go, 7)
    await hear(crowd)
    assert await run.result() == 7
    assert len(notes.lives) == 2


# --- hints that are lost -------------------------------------------------------------------------


async def test_without_a_hint_anybody_takes_the_run_after_a_quarter_of_a_second(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    run = await begin(crowd, "waiter")
    bus.lost = 1
    await crowd.apps[1].signal(run.id, go, 7)
    await crowd.settle()
    called = await row(crowd, run)
    assert (called.status, called.owner) == ("running", worker_id(crowd.apps[0]))
    await crowd.advance("249ms")
    assert (await row(crowd, run)).fence == called.fence
    await crowd.advance("1ms")
    assert await crowd.apps[1].run(run.id).result() == 7
    assert notes.lives == [run.id, run.id]
    # Whoever held it learns that it is gone, by a look if by nothing else.
    bus.lost = 0
    store_of(crowd.app).on_hint(called_wake(called))
    await hear(crowd)
    worker = crowd.app._engine().worker
    assert worker is not None and worker.resident_runs == 0


def called_wake(run: Any) -> Wake:
    return Wake("news", run.run_id, run.owner, revision=run.revision)


async def test_a_look_that_is_older_than_our_claim_takes_nothing_from_us(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    run = await begin(crowd, "worker")
    await crowd.app.signal(run.id, go, 7)
    await hear_running(notes)
    before = replace(await row(crowd, run), owner=worker_id(crowd.apps[1]), fence=1)
    worker = crowd.app._engine().worker
    assert worker is not None
    worker._on_seen(run.id, before, [])
    await spin()
    notes.gate.set()
    await hear(crowd)
    assert await run.result() == 8
    assert notes.bodies == [run.id]


async def test_a_look_at_a_run_that_is_gone_stops_its_body(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    run = await begin(crowd, "worker")
    await crowd.app.signal(run.id, go, 7)
    await hear_running(notes)
    bus.lost = 1
    theirs = crowd.apps[1]._engine().coordinator
    mine = await row(crowd, run)
    await theirs.submit(ops.Release(run_id=run.id, fence=mine.fence, revision=mine.revision))
    claim = ops.ClaimRuns(
        worker_id=worker_id(crowd.apps[1]), fence=7, limit=1, workflows=(("worker", 1),)
    )
    await theirs.submit(claim)
    worker = crowd.app._engine().worker
    assert worker is not None
    store_of(crowd.app).on_hint(called_wake(mine))
    await spin()
    assert (worker.resident_runs, len(worker._bodies._runners)) == (0, 0)
    await theirs.submit(ops.Release(run_id=run.id, fence=7, revision=mine.revision))
    notes.gate.set()
    await crowd.settle()
    assert await run.result() == 8


# --- steering ------------------------------------------------------------------------------------


async def test_a_cancel_from_another_process_is_heard_at_once(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    run = await begin(crowd, "waiter")
    await crowd.apps[1].run(run.id).cancel()
    await hear(crowd)
    assert await run.status() == "cancelled"
    assert notes.lives == [run.id]


@pytest.mark.parametrize("name", ["pause", "terminate"])
async def test_what_ends_or_stops_a_run_empties_its_owners_memory(
    crowd: Crowd, bus: Bus, name: str
) -> None:
    run = await begin(crowd, "waiter")
    await getattr(crowd.apps[1].run(run.id), name)()
    await hear(crowd)
    worker = crowd.app._engine().worker
    assert worker is not None and worker.resident_runs == 0
    if name == "pause":
        await crowd.apps[1].run(run.id).resume()
        await crowd.apps[1].signal(run.id, go, 3)
        await hear(crowd)
        assert await run.result() == 3


async def test_a_pause_and_a_cancel_of_a_run_in_a_step_are_heard(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    run = await begin(crowd, "worker")
    await crowd.app.signal(run.id, go, 7)
    await hear_running(notes)
    theirs = crowd.apps[1].run(run.id)
    await theirs.pause()
    await spin()
    await theirs.resume()
    await spin()
    await theirs.cancel()
    await hear(crowd)
    assert await run.status() == "cancelled"
    assert notes.bodies == [run.id]


# --- the ledger, and awaited ends ----------------------------------------------------------------


async def test_events_of_another_process_are_read_at_once(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    readers = {one.name: one.owner for one in await crowd.app.consumers()}
    (writer,) = (one for one in crowd.apps if worker_id(one) != readers["reader"])
    for number in range(3):
        await writer.emit(paid, number)
    await hear(crowd)
    assert notes.read == [0, 1, 2]


async def test_the_end_of_a_run_is_told_to_who_awaits_it_elsewhere(crowd: Crowd, bus: Bus) -> None:
    run = await begin(crowd, "waiter")
    result = asyncio.ensure_future(crowd.apps[1].run(run.id).result())
    await hear(crowd)
    await crowd.apps[0].signal(run.id, go, 4)
    await hear(crowd)
    assert await asyncio.wait_for(result, 1) == 4


async def test_a_ready_run_is_taken_by_whoever_hears_of_it(
    crowd: Crowd, bus: Bus, notes: Notes
) -> None:
    run = await begin(crowd, "waiter", start_at="1h")
    await crowd.advance("1h")
    assert notes.lives == [run.id]
    await crowd.apps[0].run(run.id).cancel()
    await hear(crowd)
    with pytest.raises(RunCancelled):
        await run.result()


async def test_a_closed_app_hears_nothing(notes: Notes) -> None:
    crowd = Crowd(shop(notes), workers=2, seed=1)
    Bus(crowd)
    async with crowd:
        stores = [store_of(app) for app in crowd.apps]
        assert all(store.on_hint is not None for store in stores)
    assert all(store.on_hint is None for store in stores)


# --- at random -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_lost_every_run_comes_to_its_end(
    notes: Notes, place: dict[str, Any], seed: int
) -> None:
    """Signals, events and deadlines from three processes, over a bus that loses, doubles and delays hints."""
    chance = random.Random(seed)
    resident = chance.choice([0, 2, 100])
    crowd = Crowd(shop(notes), **place, workers=3, seed=seed, resident=resident)
    Bus(crowd, lost=chance.choice([0, 0.3, 0.7, 1]), doubled=0.3, seed=seed)
    notes.gate.set()
    async with crowd:
        names = ["waiter", "worker", "pair", "patient", "mixed"]
        runs = [
            await begin(crowd, chance.choice(names), chance.choice(crowd.apps)) for _ in range(8)
        ]
        act = _acts(crowd, runs, chance)
        for nth in range(60):
            await act()
            if nth % 6 == 5:
                await hear(crowd)  # or something would be written while the invariants are read
                assert await broken(crowd) == []
        for run in runs:
            for signal in (go, other):
                await crowd.app.signal_many([(run.id, signal, 1)] * 3)
        await crowd.advance("1m")
        assert {await run.status() for run in runs} <= {"completed", "cancelled"}
        assert await broken(crowd) == []


def _acts(crowd: Crowd, runs: list[Any], chance: random.Random) -> Callable[[], Any]:
    async def act() -> None:
        app, run = chance.choice(crowd.apps), chance.choice(runs)
        match chance.choice(
            ["signal", "signal", "other", "emit", "wait", "hear", "settle", "cancel"]
        ):
            case "signal":
                await app.signal_many([(run.id, go, chance.randint(0, 9))])
            case "other":
                await app.signal_many([(run.id, other, 1)])
            case "emit":
                await app.emit(paid, 1, entity="order/1")
            case "wait":
                await crowd.advance(chance.choice(["100ms", "250ms", "3s"]))
            case "hear":
                await hear(crowd)
            case "settle":
                await crowd.settle()
            case "cancel" if chance.random() < 0.2 and await run.status() not in (
                "completed",
                "cancelled",
            ):
                await app.run(run.id).cancel()

    return act
