"""Sends with a transaction of the caller's own: they happen if it commits, once, whatever else happens."""

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worlds import Stage, Worlds

from perdure import (
    Accepted,
    App,
    BadValue,
    Context,
    InvalidPayload,
    Queue,
    Signal,
    StoreRefused,
    Topic,
    UnknownWorkflow,
    workflow,
)
from perdure.model import limits
from perdure.store.sqlite import opening

go = Signal("go", int)
paid = Topic("order.paid", int)
jobs = Queue("jobs", int)


@pytest.fixture(params=[100, 0], ids=["resident", "evicting"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Worlds:
    return Worlds("sqlite", request.param, tmp_path)


@pytest.fixture
def caller(world: Worlds) -> Iterator[sqlite3.Connection]:
    """A connection of the caller's own to the same file, with a table of its own in it once the store is there."""
    connection = sqlite3.connect(world.directory / "world.db")
    yield connection
    connection.close()


@workflow
async def taking(ctx: Context, name: str) -> int:
    return await ctx.wait(go)


@workflow
async def hearing(ctx: Context) -> int:
    return await ctx.wait(paid) + await ctx.wait(jobs)


@pytest.fixture
def app() -> App:
    """What it declares is in the catalogue from the beginning: nothing is written while a caller has the file."""
    app = App("memory://")
    for one in (taking, hearing, paid, jobs):
        app.add(one)
    return app


def rows(connection: sqlite3.Connection) -> list[Any]:
    return connection.execute("select op from outbox order by outbox_id").fetchall()


def looks(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """When the worker looks for what was committed, in milliseconds from now."""
    found: list[int] = []
    began, read = stage.clock.now(), stage.store.outbox

    async def counted(after: str, limit: int) -> Any:
        found.append((stage.clock.now() - began) // 1000)
        return await read(after, limit)

    monkeypatch.setattr(stage.store, "outbox", counted)
    return found


# --- what happens ---


async def test_what_is_committed_happens(
    world: Worlds, app: App, caller: sqlite3.Connection
) -> None:
    async with world(app) as w:
        waiter = await w.begin(hearing, id="waiter")
        caller.execute("create table orders (id integer)")
        caller.execute("insert into orders values (42)")
        started = await w.app.start(taking, "a", id="r1", key="k", connection=caller)
        signalled = await w.app.signal("r1", go, 7, connection=caller)
        emitted = await w.app.emit(paid, 1, entity="order/42", connection=caller)
        put = await w.app.put(jobs, 2, connection=caller)
        assert await w.app.event(emitted.target) is None
        caller.commit()
        await w.advance("1s")
        assert await w.app.run(started.target).result() == 7
        assert await waiter.result() == 3
        event = await w.app.event(emitted.target)
        assert event is not None and (event.entity, event.payload) == ("order/42", 1)
        kinds = [(one.kind, one.target) for one in (started, signalled)]
        assert kinds == [("start", "r1"), ("signal", signalled.target)]
        assert len({started.id, signalled.id, emitted.id, put.id}) == 4
        assert rows(caller) == []


async def test_what_is_rolled_back_does_not(
    world: Worlds, app: App, caller: sqlite3.Connection
) -> None:
    async with world(app) as w:
        made = await w.app.start(taking, "a", connection=caller)
        await w.app.emit(paid, 1, connection=caller)
        caller.rollback()
        await w.advance("5s")
        assert await w.store.run(made.target) is None
        assert await w.facts("order.paid") == []


async def test_sends_of_one_transaction_keep_their_order(
    world: Worlds, app: App, caller: sqlite3.Connection
) -> None:
    async with world(app) as w:
        for number in range(2 * limits.outbox_rows_per_read + 5):
            await w.app.emit(paid, number, connection=caller)
        caller.commit()
        await w.advance("1s")
        found = [int(one.payload) for one in await w.facts("order.paid")]
        assert found == list(range(2 * limits.outbox_rows_per_read + 5))


async def test_they_keep_it_also_if_they_are_committed_while_others_are_applied(
    world: Worlds, app: App, caller: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids follow the calls: the first send of a long transaction stands before a page that was read already."""
    monkeypatch.setattr(limits, "outbox_rows_per_read", 2)
    async with world(app) as w:
        for number in range(5):
            await w.app.put(jobs, number, connection=caller)
        caller.commit()
        read = w.store.outbox

        async def and_then_they_commit(after: str, limit: int) -> Any:
            found = await read(after, limit)
            monkeypatch.setattr(w.store, "outbox", read)
            early = await w.app.start(taking, "a", id="r1", connection=caller)
            caller.execute("update outbox set outbox_id = '0' where outbox_id = ?", (early.id,))
            await w.app.signal("r1", go, 7, connection=caller)
            caller.commit()
            return found

        monkeypatch.setattr(w.store, "outbox", and_then_they_commit)
        await w.advance("1s")
        assert await w.app.run("r1").result() == 7
        assert list(await w.app.events("ledger.send_refused")) == [] == rows(caller)


async def test_a_start_by_a_duration_counts_from_when_it_is_applied(
    world: Worlds, app: App, caller: sqlite3.Connection
) -> None:
    async with world(app) as w:
        made = await w.app.start(taking, "a", start_at="1h", connection=caller)
        caller.commit()
        await w.advance("10m")
        assert await w.app.run(made.target).status() == "ready"
        await w.advance("1h")
        assert await w.app.run(made.target).status() == "waiting"


async def test_a_mere_name_has_the_type_that_is_declared(
    world: Worlds, app: App, caller: sqlite3.Connection
) -> None:
    async with world(app) as w:
        with pytest.raises(InvalidPayload):
            await w.app.emit("order.paid", "x", connection=caller)
        await w.app.emit("order.paid", 3, connection=caller)
        caller.commit()
        await w.advance("1s")
        assert [one.payload for one in await w.facts("order.paid")] == ["3"]


# --- when ---


async def test_it_is_looked_for_soon_and_then_ever_later(
    world: Worlds, app: App, caller: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app) as w:
        looked = looks(w, monkeypatch)
        await w.app.put(jobs, 1, connection=caller)
        await w.advance("10s")
        assert looked == [10, 30, 70, 150, 310, 630, 1270]
        caller.commit()
        await w.advance("10s")
        assert len(looked) == 7 and await w.app.queues() == {}
        # As the worker's slow poll does.
        await w.worker.recovery.look(thorough=True)
        await w.settle()
        assert await w.app.queues() == {"jobs": 1}


async def test_once_it_was_found_nobody_looks_any_more(
    world: Worlds, app: App, caller: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app) as w:
        looked = looks(w, monkeypatch)
        await w.app.put(jobs, 1, connection=caller)
        await w.advance("15ms")
        caller.commit()
        await w.advance("10s")
        assert looked == [10, 30]
        assert await w.app.queues() == {"jobs": 1}


async def test_a_client_leaves_it_to_a_worker(
    world: Worlds, app: App, caller: sqlite3.Connection
) -> None:
    async with world(app, worker=False) as client:
        made = await client.app.start(taking, "a", connection=caller)
        caller.commit()
        await client.advance("5s")
        assert await client.store.run(made.target) is None
    async with world(app) as w:
        assert await w.app.run(made.target).status() == "waiting"


# --- once ---


async def test_two_workers_apply_it_once(
    world: Worlds, app: App, caller: sqlite3.Connection
) -> None:
    async with world(app) as one, world(app) as two:
        for number in range(20):
            await one.app.emit(paid, number, connection=caller)
            await two.app.put(jobs, number, connection=caller)
        caller.commit()
        one.worker.outbox.note()
        two.worker.outbox.note()
        await one.settle()
        await two.settle()
        await one.advance("1s")
        await two.settle()
        assert [int(one.payload) for one in await one.facts("order.paid")] == list(range(20))
        assert await one.app.queues() == {"jobs": 20}


async def test_a_crash_before_it_is_applied_loses_nothing(
    world: Worlds, app: App, caller: sqlite3.Connection
) -> None:
    w = await world(app).__aenter__()
    made = await w.app.start(taking, "a", connection=caller)
    await w.app.signal(made.target, go, 7, connection=caller)
    caller.commit()
    await w.crash()
    async with world(app) as again:
        assert await again.app.run(made.target).result() == 7


async def test_a_send_that_the_store_cannot_take_holds_up_nobody(
    world: Worlds,
    app: App,
    caller: sqlite3.Connection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(app) as w:
        await w.app.put(jobs, 1)
        (item,) = await w.app.queue_items("jobs")
        await w.app.put(jobs, 2, connection=caller)
        # A row that no code of ours writes: it would put a second item of an id.
        caller.execute("update outbox set op = json_set(op, '$.op.item_id', ?)", (item.item_id,))
        await w.app.put(jobs, 3, connection=caller)
        caller.commit()
        await w.advance("1s")
        assert [one.payload for one in await w.app.queue_items("jobs")] == [1, 3]
        assert len(rows(caller)) == 1 and "was not applied yet" in caplog.text


# --- what is refused later ---


async def test_what_is_refused_is_told_to_the_ledger(
    world: Worlds, app: App, caller: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(app) as w:
        caplog.set_level(logging.WARNING, "perdure.outbox")
        sent = await w.app.signal("nobody", go, 7, connection=caller)
        caller.commit()
        await w.advance("1s")
        (fact,) = await w.app.events("ledger.send_refused")
        assert fact.payload["outbox_id"] == sent.id
        assert fact.payload["reason"] == "there is no run 'nobody'"
        assert f"the send {sent.id} was refused: there is no run 'nobody'" in caplog.text


@pytest.mark.parametrize("text", ["", "{}", '{"kind": "telepathy", "op": {}}', "x" * 100_000])
async def test_a_row_that_cannot_be_read_is_told_and_goes(
    world: Worlds, app: App, caller: sqlite3.Connection, text: str
) -> None:
    async with world(app) as w:
        caller.execute("insert into outbox values ('0', ?, 0)", (text,))
        await w.app.put(jobs, 3, connection=caller)
        caller.commit()
        await w.advance("1s")
        (fact,) = await w.app.events("ledger.send_refused")
        assert fact.payload["text"] == text[: limits.refused_send_chars_max]
        assert "cannot be read" in fact.payload["reason"]
        assert await w.app.queues() == {"jobs": 1} and rows(caller) == []


async def test_a_row_of_older_or_newer_code_is_read(
    world: Worlds, app: App, caller: sqlite3.Connection
) -> None:
    async with world(app) as w:
        least = '{"kind": "put", "op": {"item_id": "i", "queue": "jobs", "payload": "3"}}'
        more = '{"kind": "put", "since": 9, "op": {"item_id": "j", "queue": "jobs", "payload": "4", "hue": 1}}'
        caller.execute("insert into outbox values ('0', ?, 0), ('1', ?, 0)", (least, more))
        caller.commit()
        w.worker.outbox.note()
        await w.settle()
        assert [one.payload for one in await w.app.queue_items("jobs")] == [3, 4]


# --- what is refused at once ---


async def test_bad_input_is_refused_and_nothing_is_written(
    world: Worlds, app: App, caller: sqlite3.Connection
) -> None:
    @workflow
    async def stranger(ctx: Context) -> None: ...

    async with world(app) as w:
        at = {"connection": caller}
        bad: list[tuple[type[Exception], Any]] = [
            (UnknownWorkflow, lambda: w.app.start(stranger, **at)),
            (InvalidPayload, lambda: w.app.start(taking, 7, **at)),  # type: ignore[arg-type]
            (BadValue, lambda: w.app.start(taking, "a", id="", **at)),
            (BadValue, lambda: w.app.start(taking, "a", start_at="soon", **at)),
            (InvalidPayload, lambda: w.app.signal("r1", go, "x", **at)),
            # Without a transaction of its own the store would be asked whether the key was used before.
            (InvalidPayload, lambda: w.app.signal("r1", go, "x", key="k", **at)),
            (InvalidPayload, lambda: w.app.emit(paid, "x", key="k", **at)),
            (InvalidPayload, lambda: w.app.put(jobs, "x", key="k", **at)),
            (BadValue, lambda: w.app.emit("workflow.x", 1, **at)),
            (BadValue, lambda: w.app.put("", 1, **at)),
        ]
        for error, send in bad:
            with pytest.raises(error):
                await send()
        assert not caller.in_transaction and rows(caller) == []


async def test_a_connection_of_another_kind_is_refused(world: Worlds, app: App) -> None:
    async with world(app) as w:
        for other in ("sqlite:///x.db", object(), w.app):
            with pytest.raises(BadValue, match=r"is no sqlite3\.Connection"):
                await w.app.put(jobs, 1, connection=other)


async def test_a_connection_to_another_database_is_refused(world: Worlds, app: App) -> None:
    async with world(app) as w:
        for path in (":memory:", str(world.directory / "other.db")):
            connection = sqlite3.connect(path)
            # Two files are not committed as one.
            connection.execute("attach ? as perdure", (str(world.directory / "world.db"),))
            with pytest.raises(BadValue, match="but this store is"):
                await w.app.put(jobs, 1, connection=connection)
            connection.close()


async def test_another_way_to_the_same_file_is_none(
    world: Worlds, app: App, tmp_path: Path
) -> None:
    async with world(app) as w:
        (tmp_path / "link.db").symlink_to(world.directory / "world.db")
        connection = sqlite3.connect(tmp_path / "link.db")
        connection.row_factory = sqlite3.Row
        assert isinstance(await w.app.put(jobs, 1, connection=connection), Accepted)
        connection.commit()
        connection.close()
        await w.advance("1s")
        assert await w.app.queues() == {"jobs": 1}


async def test_a_connection_that_commits_by_itself_needs_a_transaction(
    world: Worlds, app: App
) -> None:
    async with world(app) as w:
        connection = sqlite3.connect(world.directory / "world.db", isolation_level=None)
        with pytest.raises(BadValue, match=r"in no transaction.*begin immediate"):
            await w.app.put(jobs, 1, connection=connection)
        connection.execute("begin immediate")
        await w.app.put(jobs, 2, connection=connection)
        connection.execute("commit")
        connection.close()
        await w.advance("1s")
        assert [one.payload for one in await w.app.queue_items("jobs")] == [2]


async def test_a_store_in_memory_has_no_such_connections(tmp_path: Path, app: App) -> None:
    async with Worlds("memory", 100, tmp_path)(app) as w:
        with pytest.raises(StoreRefused, match="memory store"):
            await w.app.put(jobs, 1, connection=sqlite3.connect(":memory:"))


# --- a caller that takes its time ---


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself waits for another connection no longer than this."""
    monkeypatch.setitem(opening._pragmas, "busy_timeout", 20)


@pytest.mark.usefixtures("impatient")
async def test_writes_wait_for_a_caller_that_keeps_its_transaction_open(
    world: Worlds, app: App, caller: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(app) as w:
        caller.execute("begin immediate")
        await w.app.put(jobs, 1, connection=caller)

        async def held() -> bool:
            return caplog.text.count("all writes wait for it") > 1

        waiting = asyncio.ensure_future(w.app.put(jobs, 2))
        await w.until(held)
        caller.commit()
        await waiting
        await w.advance("1s")
        assert [one.payload for one in await w.app.queue_items("jobs")] == [2, 1]


@pytest.mark.usefixtures("impatient")
async def test_a_caller_that_never_ends_is_not_waited_for_for_ever(
    world: Worlds, app: App, caller: sqlite3.Connection
) -> None:
    async with world(app) as w:
        w.store.patience_s = 0.05
        caller.execute("begin immediate")
        with pytest.raises(StoreRefused, match="another connection has held the write lock"):
            await w.app.put(jobs, 2)
        caller.rollback()
        await w.app.put(jobs, 3)
        assert [one.payload for one in await w.app.queue_items("jobs")] == [3]
