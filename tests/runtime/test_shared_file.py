"""Several apps on one SQLite file that tell each other what they do, by sockets, as processes would.

In real time: what is tested is that things come soon, or that they come at all without a hint. Nobody looks by itself
here, so nothing is found by accident.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from perdure import App, Batch, Context, RunCancelled, Signal, Topic, upkeep
from perdure.ledger.consumers import Consumers
from perdure.runtime.worker import Worker
from perdure.store.hint import Hint
from perdure.store.sqlite import noticing, writer
from perdure.store.sqlite.store import SqliteStore

go = Signal("go", int, buffer="all")
paid = Topic("order.paid", int)

shop = App("memory://")
lives: list[str] = []
read: list[int] = []


@shop.workflow
async def waiter(ctx: Context) -> int:
    lives.append(ctx.run_id)
    return await ctx.wait(go)


@shop.workflow
async def twice(ctx: Context) -> int:
    return await ctx.wait(go) + await ctx.wait(go)


@shop.step
def write(connection: sqlite3.Connection) -> int:
    connection.execute("create table if not exists mine (n)")
    return 1


@shop.workflow
async def transacting(ctx: Context) -> int:
    return await ctx.transaction(write)


@shop.consumer("reader", "order.*")
async def reader(batch: Batch) -> None:
    read.extend(one.payload for one in batch)


@pytest.fixture(autouse=True)
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow polls are out of the way: only hints, and the glances behind them."""
    init = Worker.__init__

    def patient(self: Worker, *args: Any, **options: Any) -> None:
        init(self, *args, **{**options, "poll_s": 3600.0})

    monkeypatch.setattr(Worker, "__init__", patient)
    monkeypatch.setattr(upkeep, "_endings_every_s", 3600.0)
    lives.clear()
    read.clear()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/a.db"


@pytest_asyncio.fixture
async def ours(url: str) -> AsyncIterator[App]:
    async with shop.copy(url) as app:
        yield app


@pytest_asyncio.fixture
async def theirs(url: str, ours: App) -> AsyncIterator[App]:
    async with shop.copy(url) as app:
        await until(lambda: peers_of(ours) and peers_of(app))
        yield app


def store_of(app: App) -> SqliteStore:
    store = app._engine().store
    assert isinstance(store, SqliteStore)
    return store


def peers_of(app: App) -> dict[str, Any]:
    listening = store_of(app)._noticing
    assert listening is not None
    return listening._peers._peers


def worker_of(app: App) -> Worker:
    worker = app._engine().worker
    assert worker is not None
    return worker


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 (what another app does tells nobody here)
            await asyncio.sleep(0.001)


async def parked(app: App, run_id: str = "a") -> Any:
    """A run that waits in this app's memory."""
    run = await app.start(waiter, id=run_id)
    await until(lambda: run_id in worker_of(app)._parked)
    return run


def mute(app: App) -> None:
    """It tells nobody anything any more, as if all that it sends were lost."""
    listening = store_of(app)._noticing
    assert listening is not None
    listening.tell = lambda *told: None  # type: ignore[method-assign]


# --- hints ---------------------------------------------------------------------------------------


async def test_a_signal_from_another_process_reaches_the_run_where_it_stands(
    ours: App, theirs: App
) -> None:
    run = await parked(ours)
    before = await store_of(ours).run("a")
    await theirs.signal("a", go, 7)
    assert await run.result("5s") == 7
    assert lives == ["a"]  # neither claimed nor replayed
    assert before is not None and before.owner == worker_of(ours).worker_id


async def test_what_another_process_does_is_noticed_within_milliseconds(
    ours: App, theirs: App
) -> None:
    """Half of them in less than 200 ms, on a machine that may be busy; without hints it were more than 250."""
    took = []
    for number in range(20):
        run = await parked(ours, f"r{number}")
        began = time.perf_counter()
        await theirs.signal(run.id, go, number)
        await run.result("5s")
        took.append(time.perf_counter() - began)
    assert sorted(took)[10] < 0.2, took
    assert len(lives) == 20


async def test_who_awaits_a_run_of_another_process_hears_of_its_end(ours: App, theirs: App) -> None:
    await parked(ours)
    result = asyncio.ensure_future(theirs.run("a").result("5s"))
    await asyncio.sleep(0)
    await theirs.signal("a", go, 3)
    assert await result == 3


async def test_a_client_tells_and_hears_too(ours: App, url: str) -> None:
    await parked(ours)
    async with shop.copy(url, worker=False) as client:
        result = asyncio.ensure_future(client.run("a").result("5s"))
        await client.signal("a", go, 3)
        assert await result == 3
    assert lives == ["a"]


async def test_one_that_sends_and_leaves_at_once_has_told(ours: App, url: str) -> None:
    run = await parked(ours)
    async with shop.copy(url, worker=False) as client:
        await client.signal("a", go, 3)
    assert await run.result("5s") == 3
    assert lives == ["a"]


async def test_what_a_client_starts_a_worker_takes(ours: App, url: str) -> None:
    async with shop.copy(url, worker=False) as client:
        run = await client.start(waiter, id="a")
        await until(lambda: lives == ["a"])
        await client.signal("a", go, 5)
        assert await run.result("5s") == 5


async def test_events_are_read_by_whoever_reads(ours: App, theirs: App) -> None:
    (owner,) = [one.owner for one in await ours.consumers() if one.name == "reader"]
    (other,) = [one for one in (ours, theirs) if worker_of(one).worker_id != owner]
    for number in range(3):
        await other.emit(paid, number)
    await until(lambda: read == [0, 1, 2])


async def test_a_cancel_from_another_process(ours: App, theirs: App) -> None:
    run = await parked(ours)
    await theirs.run("a").cancel()
    with pytest.raises(RunCancelled):
        await run.result("5s")


async def test_what_was_told_is_not_looked_for(
    ours: App, theirs: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noticing, "_on_its_way_s", 1.0)  # however busy the machine is
    looks: list[bool] = []
    worker_of(ours).recovery.hearers.append(lambda look, thorough: looks.append(thorough))
    glances = counted_glances(ours)
    for number in range(20):
        await theirs.signal((await parked(ours, f"r{number}")).id, go, number)
    seen = len(glances)
    await until(lambda: len(glances) > seen + 1)
    assert looks == []


def counted_glances(app: App) -> list[float]:
    listening = store_of(app)._noticing
    assert listening is not None
    glances: list[float] = []
    glance = listening._glance

    async def counted() -> Any:
        glances.append(time.perf_counter())
        return await glance()

    listening._glance = counted
    return glances


# --- glances -------------------------------------------------------------------------------------


async def test_without_a_hint_an_end_is_noticed_all_the_same(ours: App, theirs: App) -> None:
    for app in (ours, theirs):
        mute(app)
    await parked(ours)
    result = asyncio.ensure_future(theirs.run("a").result("5s"))
    await ours.signal("a", go, 4)
    assert await result == 4


async def test_without_a_hint_a_run_goes_on_with_whoever_claims_it(ours: App, theirs: App) -> None:
    run = await parked(ours)
    for app in (ours, theirs):
        mute(app)
    await theirs.signal("a", go, 4)
    assert await run.result("5s") == 4
    assert lives == ["a", "a"]  # its owner did not answer a call that it could not hear


async def test_a_send_in_a_transaction_of_ones_own_is_noticed(
    ours: App, theirs: App, tmp_path: Path
) -> None:
    """The commit is the caller's: nobody tells of it."""
    run = await parked(ours)
    connection = sqlite3.connect(tmp_path / "a.db")
    async with shop.copy(ours.url, worker=False) as client:
        connection.execute("begin")
        await client.signal("a", go, 9, connection=connection)
        connection.commit()
    connection.close()
    assert await run.result("5s") == 9


async def test_such_a_send_is_noticed_also_among_commits_that_were_told(
    ours: App, tmp_path: Path
) -> None:
    """A client that is busy meanwhile: all that it commits is heard of, and the file shows no more than that."""
    run = await parked(ours)
    listening = store_of(ours)._noticing
    assert listening is not None
    glance, both = listening._glance, asyncio.Event()

    async def later() -> Any:
        await both.wait()
        return await glance()

    listening._glance = later
    connection = sqlite3.connect(tmp_path / "a.db")
    async with shop.copy(ours.url, worker=False) as client:
        await until(lambda: peers_of(ours) and peers_of(client))
        connection.execute("begin")
        await client.signal("a", go, 9, connection=connection)
        connection.commit()
        await client.emit(paid, 1)
        await until(lambda: read == [1])
        both.set()
        assert await run.result("5s") == 9
    connection.close()


async def test_our_own_commits_and_transactions_are_no_news(ours: App) -> None:
    looks: list[bool] = []
    worker_of(ours).recovery.hearers.append(lambda look, thorough: looks.append(thorough))
    glances = counted_glances(ours)

    run = await ours.start(transacting)
    assert await run.result("5s") == 1
    await until(lambda: len(glances) > 1)
    assert looks == []


async def test_a_glance_that_fails_is_followed_by_others(
    ours: App, theirs: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noticing, "glance_every_s", 0.01)
    listening = store_of(theirs)._noticing
    assert listening is not None
    glance, failed = listening._glance, []

    async def shaky() -> Any:
        if len(failed) < 3:
            failed.append(1)
            raise sqlite3.OperationalError("database is locked")
        return await glance()

    listening._glance = shaky
    mute(ours)
    await parked(ours)
    result = asyncio.ensure_future(theirs.run("a").result("5s"))
    await ours.signal("a", go, 4)
    assert await result == 4
    assert len(failed) == 3


async def test_glances_do_not_keep_the_log_from_being_emptied(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noticing, "glance_every_s", 0.02)
    monkeypatch.setattr(writer, "idle_s", 0.2)
    monkeypatch.setattr(writer, "idle_wal_bytes", 1000)
    async with shop.copy(url) as app:
        await app.emit(paid, 1)
        log = tmp_path / "a.db-wal"
        assert os.stat(log).st_size > 1000
        await until(lambda: os.stat(log).st_size == 0)


async def test_what_comes_while_an_app_opens_is_noticed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told before anybody in there listens."""
    start, told = Consumers.start, asyncio.Event()

    async def late(self: Consumers) -> None:
        await start(self)
        await client.start(waiter, id="a")
        await told.wait()

    hear = noticing.Noticing._on_hint

    def noted(self: noticing.Noticing, hint: Hint) -> None:
        hear(self, hint)
        if hint.ready:
            told.set()

    async with shop.copy(url, worker=False) as client:
        monkeypatch.setattr(Consumers, "start", late)
        monkeypatch.setattr(noticing.Noticing, "_on_hint", noted)
        async with shop.copy(url):
            await until(lambda: lives == ["a"])


# --- owners --------------------------------------------------------------------------------------


async def test_a_dead_owner_is_not_called(ours: App) -> None:
    """Its lock is free: the run is anybody's at once, and not after a quarter of a second."""
    await parked(ours)
    thread = store_of(ours)._writer
    assert thread is not None
    thread.workers.let_go()  # as the system does for the dead
    async with shop.copy(ours.url, worker=False) as client:
        mute(client)
        await client.signal("a", go, 6)
        run = await store_of(client).run("a")
        look = await store_of(client).look()
    assert run is not None
    assert (run.status, run.owner) == ("ready", None)
    assert worker_of(ours).worker_id not in look.workers


async def test_a_living_owner_is_called_and_keeps_the_run(ours: App, theirs: App) -> None:
    run = await ours.start(twice, id="a")
    await until(lambda: "a" in worker_of(ours)._parked)
    first = await store_of(ours).run("a")
    await theirs.signal("a", go, 1)
    await until(lambda: "a" in worker_of(ours)._parked)
    second = await store_of(ours).run("a")
    assert first is not None and second is not None
    assert (second.owner, second.fence) == (first.owner, first.fence)
    await theirs.signal("a", go, 2)
    assert await run.result("5s") == 3


async def test_a_process_that_died_is_a_reason_to_look(ours: App, theirs: App) -> None:
    """Its socket tells before the next slow look: nobody waits for a lease, nor for a second."""
    store = store_of(ours)
    listening, thread = store._noticing, store._writer
    assert listening is not None and thread is not None
    listening._peers._loop.remove_reader(listening._peers._socket)  # type: ignore[arg-type]
    thread.workers.let_go()
    listening._peers.let_go()
    looks: list[bool] = []
    worker_of(theirs).recovery.hearers.append(lambda look, thorough: looks.append(thorough))
    await until(lambda: looks)


# --- off -----------------------------------------------------------------------------------------


async def test_notify_0_neither_tells_nor_hears(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/b.db?notify=0"
    async with shop.copy(url) as one, shop.copy(url):
        store = store_of(one)
        assert (store.sends_hints, store.sticky_us, store._noticing) == (False, 0, None)
        assert not (tmp_path / "b.db-peers").exists()


async def test_nothing_is_left_behind(url: str, tmp_path: Path) -> None:
    async with shop.copy(url) as one, shop.copy(url) as two:
        await until(lambda: peers_of(one) and peers_of(two))
        assert len(list((tmp_path / "a.db-peers").iterdir())) == 2
    assert sorted(os.listdir(tmp_path)) == ["a.db", "a.db-lock"]
