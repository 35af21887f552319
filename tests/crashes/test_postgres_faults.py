"""Postgres and what can go wrong between it and us: whatever happens, a batch was written once, or not at all, and who
asked for it hears which.

Connections are cut before and after every message of a call; calls are held on the server by locks of a connection that
the test has; servers are stopped and killed under an app that works.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from servers.cutting import Cutter, Passed, cutting
from servers.postgres import PostgresProcess
from servers.stores import opened

from crashes.crew import until
from perdure import App, Context, Signal
from perdure.coordinator.coordinator import Coordinator
from perdure.errors import OutcomeUnknown, StoreRefused
from perdure.model import ops
from perdure.model.clock import SystemClock
from perdure.model.ids import Ids
from perdure.model.outcomes import Started
from perdure.store.base import BatchFailed, BatchUnknown
from perdure.store.postgres import committing
from perdure.store.postgres import store as store_module
from perdure.store.postgres.store import PostgresStore
from perdure.store.transaction import Transaction

clock = SystemClock()
ids = Ids(clock, random.Random(7))
Connection = Any


@pytest.fixture
async def cutter(postgres_url: str) -> AsyncIterator[Cutter]:
    async with cutting(postgres_url) as cutter:
        yield cutter


@pytest.fixture
async def store(cutter: Cutter, postgres_namespace: str) -> AsyncIterator[PostgresStore]:
    # Hints have a connection of their own, which would come between.
    async with opened(f"{cutter.url}?notify=0", postgres_namespace) as store:
        yield store


@pytest.fixture
async def other(postgres_url: str, store: PostgresStore) -> AsyncIterator[Connection]:
    """A connection that looks at the schema of the store, past the cutter, and may hold locks in it."""
    connection = await asyncpg.connect(postgres_url, server_settings={"search_path": store.schema})
    yield connection
    await connection.close()


def start(run_id: str) -> ops.StartRun:
    return ops.StartRun(run_id=run_id, workflow="w", version=1, input="null", owner="W", fence=1)


async def written(other: Connection, run_id: str) -> int:
    """How often this run was started, as the ledger and the runs agree."""
    facts = await other.fetchval("select count(*) from events where entity_id = $1", run_id)
    runs = await other.fetchval("select count(*) from runs where run_id = $1", run_id)
    assert facts == runs
    return int(runs)


@asynccontextmanager
async def held(other: Connection, statement: str) -> AsyncIterator[Callable[[], Any]]:
    """A lock that is kept as long as this lasts. Gives what waits until somebody waits for it."""
    pid = await other.fetchval("select pg_backend_pid()")
    waiting = "select count(*) from pg_locks where not granted and $1 = any (pg_blocking_pids(pid))"

    async def somebody_waits() -> None:
        await until(lambda: other.fetchval(waiting, pid), "somebody waits for the lock")

    async with other.transaction():
        await other.execute(statement)
        yield somebody_waits


async def terminate_those_who_wait(other: Connection) -> None:
    """For what this connection holds."""
    pids = "select distinct pid from pg_locks where pg_backend_pid() = any (pg_blocking_pids(pid))"
    await other.execute(f"select pg_terminate_backend(pid) from ({pids}) as w")


_head = "select 1 from ledger_head for update"


# --- cut off at every point --------------------------------------------------------------------


async def messages_of_a_call(
    store: PostgresStore, cutter: Cutter, op: ops.Op[Any] | None = None
) -> list[Passed]:
    seen: list[Passed] = []
    cutter.watch = lambda passed: seen.append(passed) is None
    await store.apply(ids.ulid(), [op or start("probe")])
    cutter.watch = lambda passed: True
    return seen


def complete(messages: list[Passed]) -> int:
    """The number of the message that completes the call that writes; the calls before it only look."""
    return max(n for n, one in enumerate(messages) if one == Passed("client", "S"))


def cut_at(cutter: Cutter, number: int, for_good: bool = False) -> None:
    """Pass so many messages on, then cut; whoever connects anew gets through, or nobody ever again."""
    left = number

    def watch(passed: Passed) -> bool:
        nonlocal left
        left -= 1
        if left >= 0:
            return True
        cutter.refuses = for_good
        cutter.watch = lambda passed: not for_good
        return False

    cutter.watch = watch


def cut_before(cutter: Cutter, message: Passed) -> None:
    """Likewise, when the first message of this kind comes."""

    def watch(passed: Passed) -> bool:
        if passed != message:
            return True
        cutter.watch = lambda passed: True
        return False

    cutter.watch = watch


async def test_a_call_that_is_cut_off_at_any_message_is_settled(
    store: PostgresStore, cutter: Cutter, other: Connection
) -> None:
    await store.apply(ids.ulid(), [start("first")])
    messages = await messages_of_a_call(store, cutter)
    assert {one.kind for one in messages if one.side == "client"} >= set("BES")
    outcomes = []
    for number in range(len(messages)):
        # So that the next call is made of the same messages.
        await store.apply(ids.ulid(), [start(f"between-{number}")])
        batch_id, run_id = ids.ulid(), f"run-{number}"
        cut_at(cutter, number)
        try:
            (applied,) = await store.apply(batch_id, [start(run_id)])
            assert isinstance(applied.outcome, Started)
            outcomes.append(1)
        except BatchFailed:
            outcomes.append(0)
        assert await written(other, run_id) == outcomes[-1], messages[:number]
        assert await store.settle(batch_id) is (outcomes[-1] == 1)
        assert await store.settle(batch_id) is (outcomes[-1] == 1), "and it stays so"
    # A look that is cut off is taken once more. Until the server knows that the call is complete nothing is written;
    # from then on it always is.
    last = complete(messages)
    assert all(outcomes[last + 1 :])
    assert outcomes == sorted(outcomes[:last], reverse=True) + outcomes[last:]
    assert await other.fetchval("select count(*) = max(position) from events")


async def test_an_answer_that_was_lost_is_the_same_as_one_that_was_heard(
    store: PostgresStore, cutter: Cutter
) -> None:
    """Positions on the ledger are known only by the answer: they are kept with the record of the batch."""
    emits = [
        ops.Emit(events=(ops.NewEvent(event_id=ids.ulid(), type="t", payload="1"),)) for _ in "abc"
    ]
    await store.apply(ids.ulid(), [emits[0]])
    messages = await messages_of_a_call(store, cutter, emits[1])
    cut_at(cutter, complete(messages) + 1)
    (applied,) = await store.apply(ids.ulid(), [emits[2]])
    (event,) = emits[2].events
    found = await store.event(event.event_id)
    assert found is not None
    assert str(found.position) in repr(applied.outcome)
    assert store.head == found.position


async def test_a_read_whose_connection_is_cut_is_asked_again(
    store: PostgresStore, cutter: Cutter, other: Connection
) -> None:
    await store.apply(ids.ulid(), [start("a")])
    for number in range(4):
        assert await store.run("a") is not None
        cut_at(cutter, number)
        assert await store.run("a") is not None
    cutter.cut_all()
    found = await asyncio.gather(*(store.run("a") for _ in range(8)))
    assert None not in found
    async with held(other, "lock table runs") as somebody_waits:
        task = asyncio.create_task(store.run("a"))
        await somebody_waits()
        await terminate_those_who_wait(other)
    assert await task is not None
    cutter.refuses = True
    cutter.cut_all()
    store._reaching.patience_s = 2.0
    with pytest.raises(StoreRefused, match="cannot be reached"):
        await store.run("a")
    cutter.refuses = False
    assert await store.run("a") is not None


async def test_what_cannot_be_settled_is_unknown_until_it_can(
    store: PostgresStore, cutter: Cutter, other: Connection
) -> None:
    store._reaching.patience_s = 0.1
    await store.apply(ids.ulid(), [start("first")])
    messages = await messages_of_a_call(store, cutter)
    last = complete(messages)
    coordinator = Coordinator(store, ids)
    coordinator.start()
    try:
        for there, number in enumerate((last, last + 1)):
            await coordinator.submit(start(f"between-{number}"))
            cut_at(cutter, number, for_good=True)
            with pytest.raises(OutcomeUnknown, match="may or may not have happened"):
                await coordinator.submit(start(f"run-{number}"))
            cutter.refuses, cutter.watch = False, lambda passed: True
            assert await written(other, f"run-{number}") == there
    finally:
        await coordinator.stop()


async def test_what_was_unknown_can_be_settled_later(store: PostgresStore, cutter: Cutter) -> None:
    store._reaching.patience_s = 0.1
    await store.apply(ids.ulid(), [start("first")])
    messages = await messages_of_a_call(store, cutter)
    batch_id = ids.ulid()
    cut_at(cutter, len(messages) - 1, for_good=True)
    with pytest.raises(BatchUnknown):
        await store.apply(batch_id, [start("a")])
    with pytest.raises(BatchUnknown):
        await store.settle(batch_id)
    cutter.refuses, cutter.watch = False, lambda passed: True
    assert await store.settle(batch_id) is True


# --- a call that is still under way on the server ----------------------------------------------


async def test_a_batch_that_is_settled_while_it_waits_for_a_lock_never_happens(
    store: PostgresStore, cutter: Cutter, other: Connection
) -> None:
    await store.apply(ids.ulid(), [start("first")])
    batch_id = ids.ulid()
    async with held(other, _head) as somebody_waits:
        task = asyncio.create_task(store.apply(batch_id, [start("a")]))
        await somebody_waits()
        cutter.cut_all()
        with pytest.raises(BatchFailed, match="nothing was written"):
            await task
        assert await store.settle(batch_id) is False
    pid = await other.fetchval("select pg_backend_pid()")
    busy = "select count(*) from pg_stat_activity where query like $1 and state = 'active' and pid <> $2"

    async def is_over() -> bool:
        return not await other.fetchval(busy, f"%{store.schema}%apply_v1%", pid)

    await until(is_over, "the call ends on the server")
    assert await written(other, "a") == 0


async def test_settling_waits_for_a_batch_that_is_about_to_commit(
    store: PostgresStore, cutter: Cutter, other: Connection
) -> None:
    await other.execute(
        "create function hold() returns trigger language plpgsql as "
        "$$ begin perform pg_advisory_xact_lock(4711); return new; end $$"
    )
    await store.apply(ids.ulid(), [start("first")])
    await other.execute(
        "create constraint trigger hold after insert on commits deferrable initially deferred "
        f"for each row execute function {store.schema}.hold()"
    )
    async with held(other, "select pg_advisory_xact_lock(4711)") as somebody_waits:
        task = asyncio.create_task(store.apply(ids.ulid(), [start("a")]))
        await somebody_waits()
        cutter.cut_all()
        # Whoever settles waits for the one that waits for us.
        waiting = (
            "select count(*) from pg_locks where locktype = 'transactionid' and not granted "
            "and pg_backend_pid() = any (pg_blocking_pids((pg_blocking_pids(pid))[1]))"
        )
        await until(lambda: other.fetchval(waiting), "whoever settles waits too")
        assert not task.done()
    (applied,) = await task
    assert isinstance(applied.outcome, Started)
    assert await written(other, "a") == 1


async def test_a_backend_that_is_ended_in_the_midst_has_written_nothing(
    store: PostgresStore, other: Connection
) -> None:
    await store.apply(ids.ulid(), [start("first")])
    async with held(other, _head) as somebody_waits:
        task = asyncio.create_task(store.apply(ids.ulid(), [start("a")]))
        await somebody_waits()
        await terminate_those_who_wait(other)
        with pytest.raises(BatchFailed):
            await task
    assert await written(other, "a") == 0
    await store.apply(ids.ulid(), [start("a")])
    assert await written(other, "a") == 1


async def test_a_cancelled_call_gives_its_connection_up(
    store: PostgresStore, other: Connection
) -> None:
    await store.apply(ids.ulid(), [start("first")])
    batch_id, before = ids.ulid(), store._writer
    async with held(other, _head) as somebody_waits:
        task = asyncio.create_task(store.apply(batch_id, [start("a")]))
        await somebody_waits()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert store._writer is None
        assert before is not None and before.is_closed()
        # It may still be under way on the server: settled, it never happens.
        assert await store.settle(batch_id) is False
    await store.apply(ids.ulid(), [start("b")])
    assert store._writer is not before
    assert await written(other, "a") == 0


# --- what the server refuses -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (asyncpg.DeadlockDetectedError, 5),
        (asyncpg.SerializationError, 5),
        (asyncpg.CheckViolationError, 1),
        (asyncpg.exceptions.LockNotAvailableError, 1),
    ],
)
async def test_only_what_changed_nothing_and_may_pass_is_tried_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, error: type[Exception], calls: int
) -> None:
    made = 0

    async def fail(*_: Any) -> Any:
        nonlocal made
        made += 1
        raise error("no")

    monkeypatch.setattr(store_module, "_pause_s", 0)
    with monkeypatch.context() as patched:
        patched.setattr(committing, "apply", fail)
        with pytest.raises(BatchFailed, match=error.__name__):
            await store.apply(ids.ulid(), [start("a")])
    assert made == calls
    (applied,) = await store.apply(ids.ulid(), [start("a")])
    assert isinstance(applied.outcome, Started)


async def test_a_real_deadlock_is_survived(
    store: PostgresStore, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold b and want a, we hold a and want b: the server ends our call, which is made again."""
    await store.apply(ids.ulid(), [start("a"), start("b")])
    write, ends = committing.apply, []

    async def noted(*args: Any) -> Any:
        try:
            return await write(*args)
        except asyncpg.PostgresError as error:
            ends.append(type(error))
            raise

    monkeypatch.setattr(committing, "apply", noted)
    await other.execute("set deadlock_timeout = '20s'")
    async with held(other, "select 1 from runs where run_id = 'b' for update") as somebody_waits:
        task = asyncio.create_task(
            store.apply(ids.ulid(), [ops.Cancel(run_id="a"), ops.Cancel(run_id="b")])
        )
        await somebody_waits()
        await other.execute("select 1 from runs where run_id = 'a' for update")
    applied = await task
    assert (len(applied), ends) == (2, [asyncpg.DeadlockDetectedError])
    flags = await other.fetch("select cancel_requested or finished_at is not null from runs")
    assert [row[0] for row in flags] == [True, True]


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
async def test_a_call_that_waits_too_long_changes_nothing(
    store: PostgresStore, other: Connection, limit: str
) -> None:
    await store.apply(ids.ulid(), [start("first")])
    assert store._writer is not None
    if limit == "lock_timeout":
        call = await other.fetchval("select 'apply_v1'::regproc::oid::regprocedure::text")
        await other.execute(f"alter function {call} set lock_timeout = '20ms'")
    else:
        await store._writer.execute("set statement_timeout = '20ms'")
    batch_id = ids.ulid()
    async with held(other, _head):
        with pytest.raises(BatchFailed, match="timeout"):
            await store.apply(batch_id, [start("a")])
    assert await store.settle(batch_id) is False
    assert await written(other, "a") == 0
    (applied,) = await store.apply(ids.ulid(), [start("a")])
    assert isinstance(applied.outcome, Started)


async def test_text_that_no_server_holds_fails_its_batch_alone(store: PostgresStore) -> None:
    for bad in ("\ud800", "\x00"):
        with pytest.raises(BatchFailed):
            await store.apply(ids.ulid(), [start("a"), start(f"b{bad}")])
        assert await store.run("a") is None
    assert store._writer is not None and not store._writer.is_closed()
    await store.apply(ids.ulid(), [start("a")])


# --- transactions of steps ---------------------------------------------------------------------


async def test_a_transaction_whose_commit_is_cut_off_is_settled(
    store: PostgresStore, cutter: Cutter, other: Connection
) -> None:
    await other.execute("create table notes (number bigint)")
    await store.apply(ids.ulid(), [start("first")])
    outcomes = []
    for number, (side, kind) in enumerate([("client", "Q"), ("server", "C"), ("server", "Z")]):
        outcomes.append(await _transact(store, cutter, Passed(side, kind), number))  # type: ignore[arg-type]
        notes = await other.fetchval("select count(*) from notes where number = $1", number)
        assert notes == outcomes[-1] == await written(other, f"run-{number}")
    assert outcomes == [0, 1, 1]


async def _transact(store: PostgresStore, cutter: Cutter, last: Passed, number: int) -> int:
    """A body and an op, whose COMMIT is cut off when this message was to be passed on. Whether it was committed."""

    async def body(connection: Connection) -> None:
        await connection.execute(f"insert into {store.schema}.notes values ($1)", number)

    async def turn() -> None:
        pass

    work = Transaction(body, lambda _: (start(f"run-{number}"), None), turn)
    seal = work.seal

    def sealed() -> None:
        seal()
        cut_before(cutter, last)

    work.seal = sealed  # type: ignore[method-assign]
    try:
        await store.transact(ids.ulid(), work)
        return 1
    except BatchFailed:
        return 0
    finally:
        cutter.watch = lambda passed: True


# --- a server that goes and comes back ---------------------------------------------------------

go = Signal("go", int, buffer="all")
shop = App("memory://")


@shop.step
async def double(number: int) -> int:
    return 2 * number


@shop.workflow
async def order(ctx: Context, number: int) -> int:
    first = await ctx.step(double, number)
    second = await ctx.wait(go)
    return first + await ctx.step(double, second)


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_an_app_outlives_its_server(postgres_process: PostgresProcess, way: str) -> None:
    async with shop.copy(postgres_process.url, lease="6s") as app:
        runs = [await app.start(order, n, id=f"r{n}") for n in range(10)]
        work = asyncio.create_task(_send(app, range(10)))
        await asyncio.to_thread(getattr(postgres_process, way))
        await asyncio.to_thread(postgres_process.restart)
        await work
        results = await asyncio.gather(*(run.result(timeout="60s") for run in runs))
        assert results == [4 * n for n in range(10)]
        ended = await app._engine().store.events(0, 1000, type="workflow.run_completed")
        assert sorted(one.entity_id or "" for one in ended) == sorted(run.id for run in runs)
        # Heard and living again.
        engine = app._engine()
        assert isinstance(engine.store, PostgresStore) and engine.store._hints is not None
        hints = engine.store._hints
        await until(lambda: _is_listening(hints), "it listens again")
        look = await engine.store.look()
        assert engine.worker is not None and engine.worker.worker_id in look.workers


async def _is_listening(hints: Any) -> bool:
    return hints._connection is not None and not hints._connection.is_closed()


async def _send(app: App, numbers: range) -> None:
    """Each signal until it is taken; with a key, so that one whose fate was unknown is not sent twice."""
    for number in numbers:
        while True:
            try:
                await app.signal(f"r{number}", go, number, key=f"go-{number}")
                break
            except (OutcomeUnknown, StoreRefused):
                await asyncio.sleep(0.05)
