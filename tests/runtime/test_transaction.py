"""Steps that are transactions: what they write and their record are committed together, exactly once.

On SQLite a body holds the file, so nothing of this process commits beside it. What may happen where it does not, as
with a server, is tried on a store of ours whose transactions are coroutines: `Ledger`.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from worlds import Stage, Worlds

from perdure import (
    App,
    Context,
    ForeignAwait,
    Permanent,
    Queue,
    Retry,
    RunFailed,
    Signal,
    StepFailed,
    step,
    step_info,
)
from perdure.coordinator import coordinator
from perdure.model.ops import Cancel, SendSignal
from perdure.model.outcomes import Wake
from perdure.runtime import turn
from perdure.store.base import Applied, BatchFailed, BatchUnknown
from perdure.store.memory import MemoryStore
from perdure.store.sqlite.writer import Writer
from perdure.store.transaction import Transaction

go = Signal("go", int)


@pytest.fixture(params=[100, 0], ids=["resident", "evicting"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Worlds:
    return Worlds("sqlite", request.param, tmp_path)


@pytest.fixture
def calls() -> list[int]:
    """What bodies were called with, also those that were rolled back."""
    return []


class Declined(Exception):
    pass


def note(tx: sqlite3.Connection, number: int) -> int:
    """A table is made in the transaction as well."""
    tx.execute("create table if not exists notes (number integer unique)")
    tx.execute("insert into notes values (?)", (number,))
    return number + 1


def kept(world: Worlds) -> list[int]:
    with closing(sqlite3.connect(world.directory / "world.db")) as connection:
        if not connection.execute("select 1 from sqlite_schema where name = 'notes'").fetchone():
            return []
        return [one for (one,) in connection.execute("select number from notes order by 1")]


# --- together ---


async def test_what_it_writes_and_its_record_are_one(
    world: Worlds, app: App, calls: list[int]
) -> None:
    @app.step
    def counted(tx: sqlite3.Connection, number: int) -> int:
        calls.append(number)
        return note(tx, number)

    @app.workflow
    async def noting(ctx: Context) -> list[int]:
        first = await ctx.transaction(counted, 1)
        got = await ctx.wait(go)
        return [first, await ctx.transaction(counted, got)]

    async with world(app) as w:
        run = await w.begin(noting, id="r1")
        assert (kept(world), await run.status()) == ([1], "waiting")
        await w.app.signal("r1", go, 5)
        assert await run.result() == [2, 6]
        assert (kept(world), calls) == ([1, 5], [1, 5])
        kinds = [(one.kind, one.path, one.value) for one in await run.history()]
        assert kinds == [("step", "counted", 2), ("wait", "go", 5), ("step", "counted#2", 6)]


async def test_a_plain_function_and_keywords_will_do(world: Worlds, app: App) -> None:
    def named(tx: sqlite3.Connection, *, number: int) -> int:
        return note(tx, number)

    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(named, number=3)

    async with world(app) as w:
        assert await (await w.app.start(noting)).result() == 4
        assert kept(world) == [3]


async def test_it_knows_what_step_it_is(world: Worlds, app: App) -> None:
    def asking(tx: sqlite3.Connection) -> list[Any]:
        info = step_info()
        return [info.run_id, info.path, info.attempt, info.idempotency_key]

    @app.workflow
    async def noting(ctx: Context) -> list[Any]:
        return await ctx.transaction(asking)

    async with world(app) as w:
        run = await w.app.start(noting, id="r1")
        assert await run.result() == ["r1", "asking", 1, "r1/0/asking"]


async def test_branches_go_on_in_the_order_of_commits_also_on_replay(
    world: Worlds, app: App
) -> None:
    async def quick(number: int) -> int:
        return number

    @app.workflow
    async def noting(ctx: Context) -> bool:
        seen: list[int] = []

        async def one(number: int) -> None:
            for nth in range(3):
                mixed = 100 * number + nth
                if (number + nth) % 2:
                    await ctx.transaction(note, mixed)
                else:
                    await ctx.step(quick, mixed)
                seen.append(mixed)

        await ctx.map(one, range(1, 7))
        await ctx.set("seen", seen)
        await ctx.wait(go)
        await ctx.set("again", seen)
        return True

    async with world(app) as w:
        run = await w.begin(noting, id="r1")
        if not world.evicts:
            await w.evict()
        await w.app.signal("r1", go, 5)
        assert await run.result()
        assert await run.get("seen") == await run.get("again")
        assert len(kept(world)) == 9


# --- failures ---


async def test_what_it_raises_rolls_back_and_is_tried_again(
    world: Worlds, app: App, calls: list[int]
) -> None:
    @app.step(retry=Retry(attempts=3, backoff="1s", jitter=0))
    def flaky(tx: sqlite3.Connection, number: int) -> int:
        calls.append(step_info().attempt)
        note(tx, number)
        if len(calls) < 3:
            raise OSError("not now")
        return number

    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(flaky, 7)

    async with world(app) as w:
        run = await w.begin(noting)
        assert (kept(world), await run.status()) == ([], "sleeping")
        await w.advance("1m")
        assert (await run.result(), calls, kept(world)) == (7, [1, 2, 3], [7])


async def test_a_final_failure_is_recorded_and_raised_as_that_of_a_step(
    world: Worlds, app: App
) -> None:
    @app.step(raises=[Declined])
    def declining(tx: sqlite3.Connection, number: int) -> int:
        note(tx, number)
        raise Declined("no", number)

    def permanent(tx: sqlite3.Connection) -> None:
        note(tx, 2)
        raise Permanent("never")

    @app.workflow
    async def noting(ctx: Context) -> list[str]:
        said = []
        try:
            await ctx.transaction(declining, 1)
        except Declined as error:
            said.append(str(error.args))
        try:
            await ctx.transaction(step(permanent, name="p", retry=Retry(attempts=5)))
        except StepFailed as error:
            said.append(f"{error.type} {error.attempts}")
        await ctx.wait(go)
        return said

    async with world(app) as w:
        run = await w.begin(noting, id="r1")
        await w.app.signal("r1", go, 1)
        assert await run.result() == ["('no', 1)", "Permanent 1"]
        assert kept(world) == []


async def test_a_result_that_cannot_be_stored_rolls_back(world: Worlds, app: App) -> None:
    def odd(tx: sqlite3.Connection) -> object:
        note(tx, 1)
        return object()

    @app.workflow
    async def noting(ctx: Context) -> None:
        await ctx.transaction(odd)

    async with world(app) as w:
        run = await w.app.start(noting)
        with pytest.raises(RunFailed, match="Unencodable"):
            await run.result()
        assert kept(world) == []


def _by_sql(tx: sqlite3.Connection) -> None:
    tx.execute("commit")


def _by_the_driver(tx: sqlite3.Connection) -> None:
    tx.commit()


def _by_a_script(tx: sqlite3.Connection) -> None:
    tx.executescript("delete from notes;")


def _by_a_block(tx: sqlite3.Connection) -> None:
    with tx:
        pass


def _unseen(tx: sqlite3.Connection) -> None:
    try:
        tx.rollback()
    except sqlite3.DatabaseError:
        pass


@pytest.mark.parametrize("end", [_by_sql, _by_the_driver, _by_a_script, _by_a_block, _unseen])
async def test_its_transaction_is_not_its_own_to_end(
    world: Worlds, app: App, end: Callable[[sqlite3.Connection], None], calls: list[int]
) -> None:
    @app.step(retry=Retry(attempts=5))
    def ending(tx: sqlite3.Connection) -> None:
        calls.append(1)
        note(tx, 1)
        end(tx)

    @app.workflow
    async def noting(ctx: Context) -> None:
        await ctx.transaction(ending)

    async with world(app) as w:
        run = await w.app.start(noting)
        with pytest.raises(RunFailed, match=r"tried to (commit|rollback).*when it raises"):
            await run.result()
        assert (kept(world), calls) == ([], [1])


async def test_savepoints_are_free(world: Worlds, app: App) -> None:
    def careful(tx: sqlite3.Connection) -> int:
        note(tx, 1)
        tx.execute("savepoint here")
        note(tx, 2)
        tx.execute("rollback to here")
        tx.execute("release here")
        return 3

    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(careful)

    async with world(app) as w:
        assert await (await w.app.start(noting)).result() == 3
        assert kept(world) == [1]


async def test_what_it_does_to_its_connection_goes_with_it(world: Worlds, app: App) -> None:
    def strange(tx: sqlite3.Connection) -> int:
        tx.row_factory = lambda cursor, row: {"n": row[0]}
        tx.text_factory = bytes
        return note(tx, 1)

    @app.workflow
    async def noting(ctx: Context) -> int:
        await ctx.transaction(strange)
        return await ctx.transaction(note, 2)

    async with world(app) as w:
        assert await (await w.app.start(noting)).result() == 3
        assert kept(world) == [1, 2]


async def test_a_timeout_rolls_back(world: Worlds, app: App) -> None:
    let_go = threading.Event()

    @app.step(timeout="10ms")
    def slow(tx: sqlite3.Connection) -> None:
        note(tx, 1)
        let_go.wait(10)

    @app.workflow
    async def noting(ctx: Context) -> str:
        try:
            await ctx.transaction(slow)
        except StepFailed as error:
            return error.type
        return "done"

    async with world(app) as w:
        run = await w.app.start(noting)
        (call,) = [one async for one in _under_way(w)]
        await w.until(_is(lambda: call.timed_out))
        let_go.set()
        assert await run.result() == "TimeoutError"
        assert kept(world) == []


async def _under_way(w: Stage) -> Any:
    """The transactional steps that have begun, as soon as one has."""
    await w.until(_is(lambda: bool(w.worker._transactions._under_way)))
    for call in w.worker._transactions._under_way:
        yield call


def _is(holds: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def asked() -> bool:
        return holds()

    return asked


# --- what it cannot be ---


async def test_a_store_in_memory_has_none(tmp_path: Path, app: App) -> None:
    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(note, 1)

    async with Worlds("memory", 100, tmp_path)(app) as w:
        run = await w.app.start(noting)
        with pytest.raises(RunFailed, match="has no database that a step could write to"):
            await run.result()


async def test_a_coroutine_is_none_on_sqlite(world: Worlds, app: App) -> None:
    async def awaiting(tx: sqlite3.Connection) -> None: ...

    @app.workflow
    async def noting(ctx: Context) -> None:
        await ctx.transaction(awaiting)

    async with world(app) as w:
        run = await w.app.start(noting)
        with pytest.raises(RunFailed, match="must be a plain `def`"):
            await run.result()


async def test_durable_calls_have_no_place_in_it(world: Worlds, app: App) -> None:
    @app.workflow
    async def noting(ctx: Context) -> None:
        def calling(tx: sqlite3.Connection) -> None:
            note(tx, 1)
            ctx.sleep("1s")

        await ctx.transaction(calling)

    async with world(app) as w:
        run = await w.app.start(noting)
        with pytest.raises(RunFailed, match=ForeignAwait.__name__):
            await run.result()
        assert kept(world) == []


# --- trouble ---


async def test_one_whose_run_was_lost_rolls_back(
    world: Worlds, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.workflow
    async def noting(ctx: Context) -> int:
        await ctx.wait(go)
        return await ctx.transaction(note, 1)

    async with world(app) as w:
        run = await w.begin(noting, id="r1")
        begin = w.worker._transactions.run

        def lose_first(call: Any) -> None:
            """Another worker takes the run, right before the body runs."""
            with closing(sqlite3.connect(world.directory / "world.db")) as other, other:
                other.execute("update runs set fence = 7, owner = 'x' where run_id = 'r1'")
            begin(call)

        monkeypatch.setattr(w.worker, "run_transaction", lose_first)
        await w.app.signal("r1", go, 1)
        await w.settle()
        assert (kept(world), w.worker.resident_runs) == ([], 0)
        monkeypatch.setattr(w.worker, "run_transaction", begin)
        # The other one dies.
        await w.worker.recovery.look(thorough=True)
        assert (await run.result(), kept(world)) == (2, [1])


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "_pause_s", 0.0)


@pytest.mark.usefixtures("no_pause")
async def test_one_that_is_not_committed_is_done_anew(
    world: Worlds, app: App, monkeypatch: pytest.MonkeyPatch, calls: list[int]
) -> None:
    @app.step
    def counted(tx: sqlite3.Connection, number: int) -> int:
        calls.append(number)
        return note(tx, number)

    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(counted, 1)

    async with world(app) as w:
        seal = Writer._seal

        def fail_once(writer: Writer, sql: Any, work: Any) -> None:
            if len(calls) == 1:
                writer._roll_back(sql)
                raise BatchFailed("disk full")
            seal(writer, sql, work)

        monkeypatch.setattr(Writer, "_seal", fail_once)
        assert await (await w.app.start(noting)).result() == 2
        assert (calls, kept(world)) == ([1, 1], [1])


@pytest.mark.usefixtures("no_pause")
async def test_one_whose_answer_is_lost_is_settled_by_its_batch(
    world: Worlds, app: App, monkeypatch: pytest.MonkeyPatch, calls: list[int]
) -> None:
    @app.step
    def counted(tx: sqlite3.Connection, number: int) -> int:
        calls.append(number)
        return note(tx, number)

    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(counted, 1) + await ctx.transaction(counted, 2)

    async with world(app) as w:
        commit = Writer._committed

        def lose(writer: Writer, tables: Any) -> None:
            commit(writer, tables)
            if len(calls) == 1 and kept(world) == [1]:
                monkeypatch.setattr(Writer, "_committed", commit)
                raise BatchUnknown("the answer is lost")

        monkeypatch.setattr(Writer, "_committed", lose)
        assert await (await w.app.start(noting)).result() == 5
        assert (calls, kept(world)) == ([1, 2], [1, 2])


async def test_a_crash_within_it_leaves_nothing_and_it_is_done_anew(
    world: Worlds, app: App, calls: list[int]
) -> None:
    let_go = threading.Event()

    @app.step
    def counted(tx: sqlite3.Connection, number: int) -> int:
        calls.append(number)
        note(tx, number)
        let_go.wait(10)
        return number

    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(counted, 1)

    w = await world(app).__aenter__()
    run = await w.app.start(noting, id="r1")
    await w.until(_is(lambda: bool(calls)))
    asyncio.get_running_loop().call_soon(let_go.set)
    await w.crash()
    assert kept(world) == [] and run.id == "r1"
    async with world(app) as again:
        assert await again.app.run("r1").result() == 1
        assert (calls, kept(world)) == ([1, 1], [1])


async def test_closing_lets_it_end(world: Worlds, app: App, calls: list[int]) -> None:
    let_go = threading.Event()

    @app.step
    def counted(tx: sqlite3.Connection, number: int) -> int:
        calls.append(number)
        note(tx, number)
        let_go.wait(10)
        return number

    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(counted, 1)

    async with world(app) as w:
        await w.app.start(noting, id="r1")
        await w.until(_is(lambda: bool(calls)))
        asyncio.get_running_loop().call_later(0.01, let_go.set)
    assert kept(world) == [1]
    async with world(app) as again:
        assert await again.app.run("r1").result() == 1
        assert calls == [1]


async def test_two_workers_on_one_file(world: Worlds, app: App) -> None:
    @app.workflow
    async def noting(ctx: Context, number: int) -> int:
        await ctx.transaction(note, number)
        return await ctx.transaction(note, number + 100)

    async with world(app) as one, world(app) as two:
        runs = [await one.app.start(noting, number) for number in range(10)]
        runs += [await two.app.start(noting, number) for number in range(10, 20)]
        assert [await run.result() for run in runs] == [number + 101 for number in range(20)]
        assert kept(world) == [*range(20), *range(100, 120)]


# --- where a body does not hold everybody else up ---


class Ledger(MemoryStore):
    """Rows in memory and a list of numbers beside them: as a server, it runs bodies beside other commits."""

    transacts = "async def"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.notes: list[int] = []
        self.beginnings = 1  # how often a body is run until nobody else was quicker
        self.committing: Callable[[], Awaitable[None]] | None = None  # what happens meanwhile

    async def apply(
        self, batch_id: str, ops: Any, decided: Callable[[], None] | None = None
    ) -> list[Applied]:
        applied = await super().apply(batch_id, ops, decided)
        for _ in range(3):  # the answer takes its time
            await asyncio.sleep(0)
        return applied

    async def transact(self, batch_id: str, work: Transaction) -> list[Applied]:
        for _ in range(self.beginnings):
            written: list[int] = []
            op = await work.acall(written)
            await work.turn()
        work.seal()  # before it is applied: memory does not roll back
        applied = await super().apply(batch_id, [op])
        if work.stands(applied):
            self.notes += written
        if self.committing is not None:
            await self.committing()
        return applied


class Body:
    """A transactional step that waits in the midst of its body until it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()

    async def note(self, tx: list[int], number: int) -> int:
        self.begun += 1
        self.reached.set()
        tx.append(number)
        await self.gate.wait()
        return number


@pytest.fixture
async def body() -> Body:
    return Body()


def on_ledger(app: App, tmp_path: Path, resident: int = 100) -> Stage:
    stage = Worlds("memory", resident, tmp_path)(app)
    clock = stage.clock
    stage.app._make_store = lambda ids: Ledger(clock=clock, ids=ids)  # type: ignore[method-assign]
    return stage


def notes(stage: Stage) -> list[int]:
    assert isinstance(stage.store, Ledger)
    return stage.store.notes


async def test_others_commit_while_a_body_runs(app: App, tmp_path: Path, body: Body) -> None:
    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(body.note, 1)

    @app.workflow
    async def other(ctx: Context) -> int:
        return await ctx.wait(go)

    async with on_ledger(app, tmp_path) as w:
        run = await w.app.start(noting)
        await body.reached.wait()
        waiting = await w.app.start(other, id="o")
        await w.app.signal("o", go, 3)
        assert (await waiting.result(), notes(w)) == (3, [])
        body.gate.set()
        assert (await run.result(), notes(w)) == (1, [1])


async def test_a_store_may_begin_anew(app: App, tmp_path: Path, body: Body) -> None:
    @app.workflow
    async def noting(ctx: Context) -> list[int]:
        return [await ctx.transaction(body.note, number) for number in (1, 2)]

    body.gate.set()
    async with on_ledger(app, tmp_path) as w:
        assert isinstance(w.store, Ledger)
        w.store.beginnings = 3
        assert await (await w.app.start(noting)).result() == [1, 2]
        assert (notes(w), body.begun) == ([1, 2], 6)


async def test_a_branch_that_is_left_withdraws_it(app: App, tmp_path: Path, body: Body) -> None:
    async def failing() -> None:
        await body.reached.wait()
        raise ValueError("no")

    @app.workflow
    async def noting(ctx: Context) -> int:
        try:
            await ctx.gather(ctx.transaction(body.note, 1), ctx.step(failing))
        except StepFailed:
            pass
        return await ctx.wait(go)

    async with on_ledger(app, tmp_path, resident=0) as w:
        run = await w.app.start(noting, id="r1")
        await w.settle()
        assert (await run.status(), body.begun, notes(w)) == ("waiting", 1, [])
        await w.app.signal("r1", go, 3)
        assert await run.result() == 3


async def test_a_cancel_withdraws_it(app: App, tmp_path: Path, body: Body) -> None:
    seen: list[str] = []

    @app.workflow
    async def noting(ctx: Context) -> None:
        try:
            await ctx.transaction(body.note, 1)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async with on_ledger(app, tmp_path) as w:
        run = await w.app.start(noting)
        await body.reached.wait()
        await run.cancel()
        await w.settle()
        assert (await run.status(), seen, notes(w)) == ("cancelled", ["cancelled"], [])


async def test_a_cancel_that_comes_too_late_is_told_at_the_next_call(
    app: App, tmp_path: Path, body: Body
) -> None:
    """It is being committed when the cancel comes: the record counts, and the code hears of the cancel after it."""
    seen: list[Any] = []

    @app.workflow
    async def noting(ctx: Context) -> None:
        seen.append(await ctx.transaction(body.note, 1))
        try:
            await ctx.wait(go)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    asked: list[asyncio.Future[Any]] = []

    async def cancel() -> None:
        asked.append(asyncio.ensure_future(run.cancel()))
        await asyncio.sleep(0)

    async with on_ledger(app, tmp_path) as w:
        assert isinstance(w.store, Ledger)
        w.store.committing = cancel
        run = await w.app.start(noting)
        await body.reached.wait()
        body.gate.set()
        await w.settle()
        await asyncio.gather(*asked)
        # Its code may have been replayed in between.
        assert (await run.status(), seen[-2:], notes(w)) == ("cancelled", [1, "cancelled"], [1])
        assert body.begun == 1


async def test_a_pause_waits_for_it(app: App, tmp_path: Path, body: Body) -> None:
    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(body.note, 1) + await ctx.wait(go)

    async with on_ledger(app, tmp_path) as w:
        run = await w.app.start(noting, id="r1")
        await body.reached.wait()
        await run.pause()
        body.gate.set()
        await w.settle()
        assert (await run.status(), notes(w)) == ("paused", [1])
        await run.resume()
        await w.app.signal("r1", go, 3)
        assert (await run.result(), body.begun) == (4, 1)


async def test_a_reload_waits_for_it(app: App, tmp_path: Path, body: Body) -> None:
    @app.workflow
    async def noting(ctx: Context) -> tuple[int, int]:
        return await ctx.gather(ctx.transaction(body.note, 1), ctx.wait(go))

    async with on_ledger(app, tmp_path) as w:
        run = await w.app.start(noting, id="r1")
        await body.reached.wait()
        w.worker.reload(w.worker._executions["r1"])
        await asyncio.sleep(0)
        body.gate.set()
        await w.app.signal("r1", go, 3)
        assert list(await run.result()) == [1, 3]
        assert (body.begun, notes(w)) == (1, [1])


async def test_one_of_a_lost_run_is_withdrawn(app: App, tmp_path: Path, body: Body) -> None:
    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(body.note, 1)

    async with on_ledger(app, tmp_path) as w:
        run = await w.app.start(noting)
        await body.reached.wait()
        await run.terminate()
        await w.settle()
        assert (await run.status(), notes(w)) == ("terminated", [])
        assert not w.worker._transactions._under_way


async def test_a_timeout_cancels_a_coroutine(app: App, tmp_path: Path, body: Body) -> None:
    once = step(body.note, name="note", timeout="10ms", retry=Retry(attempts=2, backoff="1s"))

    @app.workflow
    async def noting(ctx: Context) -> str:
        try:
            await ctx.transaction(once, 1)
        except StepFailed as error:
            return f"{error.type} {error.attempts}"
        return "done"

    async with on_ledger(app, tmp_path) as w:
        run = await w.app.start(noting)
        await w.until(_is(lambda: body.begun == 1 and w.worker.settled))
        w.clock.set(w.clock.now() + 2_000_000)
        assert (await run.result(), body.begun, notes(w)) == ("TimeoutError 2", 2, [])


async def test_closing_withdraws_one_that_does_not_end(
    app: App, tmp_path: Path, body: Body
) -> None:
    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(body.note, 1)

    async with on_ledger(app, tmp_path) as w:
        await w.app.start(noting, id="r1")
        await body.reached.wait()
        store = w.store
        await w.worker.stop(grace_s=0.01)
        assert notes(w) == []
        found = await store.run("r1")
        assert found is not None and (found.status, found.owner) == ("ready", None)


@pytest.mark.parametrize("held", [1, 10_000], ids=["answers are held", "answers at once"])
async def test_what_commits_beside_it_is_told_in_the_order_of_commits(
    app: App, tmp_path: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that watches in which order its branches go on sees the same on replay."""
    monkeypatch.setattr(coordinator, "_held_ops_min", held)
    ticks = Queue("ticks", int)

    async def turns(number: int) -> int:
        for _ in range(number % 5):
            await asyncio.sleep(0)
        return number

    async def noting(tx: list[int], number: int) -> int:
        tx.append(await turns(number))
        return number

    @app.workflow
    async def watching(ctx: Context) -> None:
        seen: list[int] = []

        async def one(number: int) -> None:
            for nth in range(5):
                mixed = 100 * number + 7 * nth
                match (number + nth) % 3:
                    case 0:
                        await ctx.transaction(noting, mixed)
                    case 1:
                        await ctx.step(turns, mixed)
                    case 2:
                        await ctx.wait(ticks)
                seen.append(mixed)

        await ctx.map(one, range(9))
        await ctx.set("seen", seen)
        await ctx.wait(go)
        await ctx.set("again", seen)

    async with on_ledger(app, tmp_path) as w:
        run = await w.app.start(watching, id="r1")
        for number in range(15):
            await w.app.put(ticks, number)
            await asyncio.sleep(0)
        await w.evict()
        await w.app.signal("r1", go, 5)
        await run.result()
        seen = await run.get("seen")
        assert len(seen) == 45 and seen == await run.get("again")
        assert len(notes(w)) == 15


@pytest.mark.parametrize("told", [True, False], ids=["by a hint", "by a look"])
async def test_a_cancel_of_another_process_rolls_it_back(
    app: App, tmp_path: Path, body: Body, told: bool
) -> None:
    @app.workflow
    async def noting(ctx: Context) -> int:
        return await ctx.transaction(body.note, 1)

    async with on_ledger(app, tmp_path) as w:
        run = await w.app.start(noting)
        await body.reached.wait()
        await _elsewhere(w).apply("elsewhere", [Cancel(run_id=run.id)])
        if told:
            w.worker.on_call(Wake("control", run.id, w.worker.worker_id))
        else:
            await w.worker.recovery.look(thorough=True)
        await w.settle()
        assert await run.status() == "cancelled"
        assert (body.begun, notes(w)) == (1, [])


async def test_an_owner_in_a_long_one_has_said_that_it_goes_on(
    app: App, tmp_path: Path, body: Body
) -> None:
    """Or anybody would claim the run a moment after it was called, and the body would be begun anew."""

    @app.workflow
    async def noting(ctx: Context) -> int:
        number = await ctx.wait(go)
        return await ctx.transaction(body.note, number)

    async with on_ledger(app, tmp_path) as w:
        run = await w.begin(noting)
        signal = SendSignal(signal_id="s", run_id=run.id, name="go", payload="7")
        await _elsewhere(w).apply("elsewhere", [signal])
        w.worker.on_call(Wake("news", run.id, w.worker.worker_id))
        await body.reached.wait()

        async def is_acknowledged() -> bool:
            return (await w.store.run(run.id)).ready_at is None  # type: ignore[union-attr]

        await w.until(is_acknowledged)
        body.gate.set()
        assert await run.result() == 7
        assert (body.begun, notes(w)) == (1, [7])


def _elsewhere(w: Stage) -> MemoryStore:
    """The store as another process has it, which calls the owner of a run that it has changed."""
    assert isinstance(w.store, Ledger)
    other = w.store.beside(w.app._engine().ids)
    other.sticky_us = 250_000
    return other
