"""Transactions of callers on Postgres: sends that go with them, and steps that are some. All three kinds of connection.

What holds on every store is in test_outbox.py and test_transaction.py; here is what only a server has: connections of
asyncpg and SQLAlchemy, callers that stay in their transaction, and bodies that run beside all other commits.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from worlds import Stage, Worlds, worlds_of

from perdure import Accepted, App, BadValue, Context, Queue, Retry, Signal, StepFailed, Topic
from perdure.runtime import turn
from perdure.store.postgres import transacting

go = Signal("go", int)
paid = Topic("order.paid", int)
jobs = Queue("jobs", int)


@pytest.fixture(params=[100, 0], ids=["resident", "evicting"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Worlds]:
    with worlds_of("postgres", request.param, tmp_path, request) as worlds:
        yield worlds


@pytest.fixture
def app() -> App:
    app = App("memory://")

    @app.workflow(name="taking")
    async def taking(ctx: Context, name: str) -> int:
        return await ctx.wait(go)

    for one in (paid, jobs):
        app.add(one)
    return app


# --- sends ---


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[tuple[Any, Any, Any]]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield connection, transaction.commit, transaction.rollback
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(url: str) -> AsyncIterator[tuple[Any, Any, Any]]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as lent:
        transaction = lent.transaction()
        await transaction.start()
        yield lent, transaction.commit, transaction.rollback


@asynccontextmanager
async def by_sqlalchemy(url: str) -> AsyncIterator[tuple[Any, Any, Any]]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with engine.connect() as connection:
            yield connection, connection.commit, connection.rollback
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_session(url: str) -> AsyncIterator[tuple[Any, Any, Any]]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with AsyncSession(engine) as session:
            yield session, session.commit, session.rollback
    finally:
        await engine.dispose()


async def look(w: Stage) -> None:
    """Have the worker look, as it does every second."""
    await w.worker.recovery.look(thorough=True)
    await w.settle()


_kinds = [by_asyncpg, by_asyncpg_pool, by_sqlalchemy, by_session]


@pytest.mark.parametrize("connected", _kinds)
async def test_sends_happen_if_their_transaction_commits(
    world: Worlds, app: App, connected: Any
) -> None:
    async with world(app) as w, connected(world.url) as (connection, commit, _):
        started = await w.app.start("taking", "a", id="r1", connection=connection)
        await w.app.signal("r1", go, 7, connection=connection)
        emitted = await w.app.emit(paid, 1, entity="order/42", connection=connection)
        put = await w.app.put(jobs, 2, connection=connection)
        assert all(isinstance(one, Accepted) for one in (started, emitted, put))
        await w.advance("2s")
        assert await w.store.run("r1") is None
        await commit()
        await look(w)
        assert await w.app.run("r1").result() == 7
        event = await w.app.event(emitted.target)
        assert event is not None and event.payload == 1
        assert (await w.store.counts())["outbox"] == 0
        assert await w.store.queues() == {"jobs": 1}


@pytest.mark.parametrize("connected", _kinds)
async def test_sends_do_not_happen_if_it_rolls_back(
    world: Worlds, app: App, connected: Any
) -> None:
    async with world(app) as w, connected(world.url) as (connection, _, roll_back):
        await w.app.start("taking", "a", id="r1", connection=connection)
        await w.app.emit(paid, 1, connection=connection)
        await roll_back()
        await look(w)
        assert await w.store.run("r1") is None
        assert await w.facts("order.paid") == []


async def test_a_caller_that_stays_in_its_transaction_stalls_nobody(
    world: Worlds, app: App
) -> None:
    async with world(app) as w, by_asyncpg(world.url) as (connection, commit, _):
        await w.app.start("taking", "a", id="late", connection=connection)
        await w.app.emit(paid, 1, connection=connection)
        # Minutes pass for everybody else; to the same topic, workflow and queue.
        for number in range(5):
            run = await w.begin("taking", "b", id=f"r{number}")
            await w.emit_only(paid.name, number)
            await w.app.put(jobs, number)
            await w.app.signal(run.id, go, number)
            await w.advance("1m")
            assert await run.result() == number
        await commit()
        await look(w)
        assert (await w.app.run("late").status()) == "waiting"
        payloads = [one.payload for one in await w.facts("order.paid")]
        assert payloads == ["0", "1", "2", "3", "4", "1"]


async def test_two_workers_apply_a_send_once(world: Worlds, app: App) -> None:
    async with world(app) as w, world(app) as other, by_asyncpg(world.url) as (conn, commit, _):
        for number in range(20):
            await w.app.emit(paid, number, connection=conn)
        await commit()
        await asyncio.gather(w.advance("3s"), other.settle())
        assert [one.payload for one in await w.facts("order.paid")] == [str(n) for n in range(20)]


async def test_a_connection_without_a_transaction_is_refused(world: Worlds, app: App) -> None:
    async with world(app) as w:
        connection = await asyncpg.connect(world.url)
        try:
            with pytest.raises(BadValue, match="no transaction"):
                await w.app.emit(paid, 1, connection=connection)
        finally:
            await connection.close()
        assert (await w.store.counts())["outbox"] == 0


# --- steps ---


@pytest.fixture
async def notes(world: Worlds) -> AsyncIterator[Any]:
    """A table of the caller's own in the same database, and a connection that looks at it."""
    connection = await asyncpg.connect(world.url)
    table = Notes.table = f"notes_{uuid.uuid4().hex}"
    await connection.execute(f"create table {table} (number bigint unique)")

    async def kept() -> list[int]:
        rows = await connection.fetch(f"select number from {table} order by 1")
        return [row["number"] for row in rows]

    yield kept
    await connection.execute(f"drop table {table}")
    await connection.close()


class Notes:
    """Where the steps of the present test write."""

    table = ""


async def add_note(tx: Any, number: int) -> int:
    await tx.execute(f"insert into {Notes.table} values ($1)", number)
    return number + 1


async def test_what_a_step_writes_and_its_record_are_one(
    world: Worlds, app: App, notes: Any
) -> None:
    calls: list[int] = []

    @app.step
    async def counted(tx: Any, number: int) -> int:
        calls.append(number)
        return await add_note(tx, number)

    @app.workflow
    async def flow(ctx: Context) -> int:
        first = await ctx.transaction(counted, 1)
        await ctx.wait(go)
        return first + await ctx.transaction(counted, 10)

    async with world(app) as w:
        run = await w.begin(flow)
        assert await notes() == [1]
        await w.app.signal(run.id, go, 1)
        await w.settle()
        assert await run.result() == 13
    assert calls == [1, 10]


async def test_what_it_raises_rolls_back(world: Worlds, app: App, notes: Any) -> None:
    @app.step(retry=Retry(attempts=2, backoff="1s"))
    async def failing(tx: Any) -> None:
        await add_note(tx, 5)
        raise ValueError("no")

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.transaction(failing)
        except StepFailed as failed:
            return failed.type
        return ""

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("5s")
        assert "ValueError" in await run.result()
        assert await notes() == []


async def test_its_transaction_is_not_its_own_to_end(world: Worlds, app: App) -> None:
    @app.step
    async def ending(tx: Any) -> None:
        await tx.execute("commit")

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.transaction(ending)
        except StepFailed as failed:
            return str(failed)
        return ""

    async with world(app) as w:
        run = await w.begin(flow)
        assert "has ended its transaction" in await run.result()


async def test_others_commit_while_a_body_runs(world: Worlds, app: App, notes: Any) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @app.step
    async def slow(tx: Any) -> int:
        await add_note(tx, 1)
        begun.set()
        await may_end.wait()
        return 1

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.transaction(slow)

    async with world(app) as w:
        run = await w.app.start(flow)
        await begun.wait()
        emitted = await w.app.emit(paid, 1)
        assert await w.store.event(emitted.event_id) is not None
        assert await notes() == []
        may_end.set()
        await w.settle()
        assert await run.result() == 1
        assert await notes() == [1]


async def test_a_lost_run_rolls_back(world: Worlds, app: App, notes: Any) -> None:
    """Terminated by somebody else while the body runs: what it wrote never was."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    @app.step
    async def slow(tx: Any) -> int:
        await add_note(tx, 1)
        begun.set()
        await may_end.wait()
        return 1

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.transaction(slow)

    async with world(app) as w, world(app, worker=False) as client:
        run = await w.app.start(flow)
        await begun.wait()
        await client.app.run(run.id).terminate()
        may_end.set()
        await w.until(_ended(w, run.id))
        await w.settle()
        assert await notes() == []


async def test_one_that_swallows_an_error_of_the_server_fails_with_the_reason(
    world: Worlds, app: App, notes: Any
) -> None:
    @app.step(retry=Retry(attempts=3))
    async def careless(tx: Any) -> None:
        await add_note(tx, 1)
        try:
            await add_note(tx, 1)
        except asyncpg.UniqueViolationError:
            pass

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.transaction(careless)
        except StepFailed as failed:
            return str(failed)
        return ""

    async with world(app) as w:
        run = await w.begin(flow)
        assert "has swallowed an SQL error" in await run.result()
        assert await notes() == []


async def test_what_it_leaves_in_its_session_is_not_found_by_the_next(
    world: Worlds, app: App
) -> None:
    @app.step
    async def leaving(tx: Any) -> str:
        await tx.execute("create temp table left_behind (number bigint)")
        await tx.execute("set work_mem = '64MB'")
        return str(await tx.fetchval("show tcp_keepalives_idle"))

    @app.step
    async def finding(tx: Any) -> list[Any]:
        return [
            await tx.fetchval("select to_regclass('left_behind')"),
            await tx.fetchval("show work_mem"),
            str(await tx.fetchval("show tcp_keepalives_idle")),
        ]

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        first = await ctx.transaction(leaving)
        await ctx.wait(go)
        return [first, *await ctx.transaction(finding)]

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.signal(run.id, go, 1)
        await w.settle()
        assert await run.result() == ["30", None, "4MB", "30"]


@pytest.mark.parametrize("sealed", [False, True], ids=["while it is written", "at its commit"])
async def test_one_that_the_server_does_not_answer_does_not_keep_others_waiting_for_ever(
    world: Worlds, app: App, notes: Any, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    monkeypatch.setattr(turn, "_pause_s", 0.0)
    hangs: list[int] = []

    name = "_commit" if sealed else "_guard"
    asked = getattr(transacting, name)

    async def without_an_answer(about: Any) -> None:
        if not hangs:
            hangs.append(1)
            await asyncio.Event().wait()
        await asked(about)

    monkeypatch.setattr(transacting, name, without_an_answer)

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.transaction(add_note, 1)

    async with world(app) as w:
        w.store.patience_s = 0.2
        run = await w.app.start(flow)
        await w.until(_holds(lambda: bool(hangs)))
        await asyncio.wait_for(w.app.emit(paid, 1), 10)
        w.store.patience_s = 10
        assert await run.result() == 2
        assert await notes() == [1]


def _holds(asked: Any) -> Any:
    async def holds() -> bool:
        return bool(asked())

    return holds


def _ended(w: Any, run_id: str) -> Any:
    async def ended() -> bool:
        return (await w.store.run(run_id)).finished_at is not None

    return ended
