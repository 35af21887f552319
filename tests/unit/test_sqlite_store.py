"""The SQLite store itself: settings, refusals, schema, locks, and what a broken batch leaves."""

import asyncio
import multiprocessing
import os
import queue
import random
import sqlite3
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import NotRunning, StoreRefused
from perdure.model import ops
from perdure.model.clock import Clock, SystemClock
from perdure.model.ids import Ids
from perdure.model.outcomes import Advanced, Buffered, Claimed, Counted, Delivered, Started
from perdure.model.records import Condition
from perdure.store.base import BatchFailed, BatchUnknown, RunFilter
from perdure.store.sqlite import liveness, opening, writer
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.tables import SqliteTables
from perdure.testing import VirtualClock

ids = Ids(SystemClock(), random.Random(7))
hour_us = 3600 * 1_000_000


def make(path: Path | str, clock: Clock | None = None, **options: Any) -> SqliteStore:
    clock = clock or SystemClock()
    return SqliteStore(str(path), clock=clock, ids=Ids(clock, random.Random()), **options)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = make(tmp_path / "one.db")
    store.worker_id = "W"
    await store.open()
    yield store
    await store.close()


async def apply(store: SqliteStore, *batch: ops.Op[Any]) -> list[Any]:
    return [one.outcome for one in await store.apply(ids.ulid(), batch)]


def start(run_id: str, **more: Any) -> ops.StartRun:
    given = {"workflow": "w", "version": 1, "input": "null", "owner": "W", "fence": 1}
    return ops.StartRun(run_id=run_id, **{**given, **more})


def step(run_id: str, path: str, **more: Any) -> ops.RecordStep:
    done = ops.StepDone(path=path, name=path, state="done", value="1", started_at=1, recorded_at=2)
    return ops.RecordStep(run_id=run_id, fence=1, revision=0, steps=(done,), **more)


def suspend(run_id: str, path: str = "wait", **more: Any) -> ops.Suspend:
    wait = ops.Wait(path=path, kind="wait", name=path, on=(Condition("signal", "go"),))
    return ops.Suspend(run_id=run_id, fence=1, revision=0, waits=(wait,), **more)


def send(run_id: str, **more: Any) -> ops.SendSignal:
    return ops.SendSignal(signal_id=ids.ulid(), run_id=run_id, name="go", payload="1", **more)


# --- opening -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("synchronous", "number"), [("FULL", 2), ("NORMAL", 1)])
async def test_settings_hold_on_the_writer(tmp_path: Path, synchronous: Any, number: int) -> None:
    store = make(tmp_path / "one.db", synchronous=synchronous)
    await store.open()
    assert store._writer is not None and store._writer._sql is not None
    found = {
        name: store._writer._sql.connection.execute(f"pragma {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "busy_timeout", "wal_autocheckpoint")
    }
    await store.close()
    assert found == {
        "journal_mode": "wal",
        "synchronous": number,
        "busy_timeout": 5000,
        "wal_autocheckpoint": 0,
    }


async def test_readers_cannot_write(store: SqliteStore) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await store._read(lambda sql: sql.run("put_meta", {"name": "x", "value": "y"}))
    pragmas = ("query_only", "wal_autocheckpoint", "mmap_size", "busy_timeout")
    for name, value in zip(pragmas, (1, 0, 0, 5000), strict=True):
        found = await store._read(
            lambda sql, name=name: sql.connection.execute(f"pragma {name}").fetchone()[0]
        )
        assert found == value, name


async def refusal(path: Path | str) -> str:
    store = make(path)
    with pytest.raises(StoreRefused) as refused:
        await store.open()
    await store.close()
    return refused.value.reason


async def test_refused_paths(tmp_path: Path) -> None:
    assert "memory://" in await refusal(":memory:")
    assert "is a directory" in await refusal(tmp_path)
    assert "does not exist; create it" in await refusal(tmp_path / "no" / "one.db")
    (tmp_path / "text.db").write_text("this is not a database, but it is long enough to tell" * 40)
    assert "file is not a database" in await refusal(tmp_path / "text.db")


@contextmanager
def without_privileges(*paths: Path) -> Iterator[None]:
    """Root may write everywhere: be asked as somebody who may not, and be root again afterwards."""
    if os.geteuid() != 0:
        yield
        return
    nobody = 65534
    for path in paths:
        os.chown(path, nobody, nobody)
    os.setreuid(nobody, 0)  # access rights are asked for the real user
    try:
        yield
    finally:
        os.setreuid(0, 0)


async def test_refuses_what_is_not_writable() -> None:
    with tempfile.TemporaryDirectory() as name:  # where nobody may look: pytest's own is root's
        place = Path(name)
        os.close(os.open(place / "one.db", os.O_CREAT, 0o400))
        with without_privileges(place, place / "one.db"):
            assert "not writable" in await refusal(place / "one.db")
        os.chmod(place, 0o500)
        try:
            with without_privileges():
                assert "not writable" in await refusal(place / "two.db")
        finally:
            os.chmod(place, 0o700)


async def test_refuses_newer_schemas_and_strange_files(tmp_path: Path, store: SqliteStore) -> None:
    path = str(tmp_path / "one.db")
    await store.close()
    known = opening.schema_known
    _set_meta(path, "schema", str(known + 3))
    _set_meta(path, "min_code", str(known + 1))
    assert await refusal(path) == (
        f"{path}: schema version {known + 3} is newer than this code knows ({known}), and needs code that "
        f"knows {known + 1}: upgrade perdure"
    )
    _set_meta(path, "min_code", "seven")
    assert "not a file of perdure" in await refusal(path)


def _set_meta(path: str, name: str, value: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("update meta set value = ? where name = ?", (value, name))
    connection.close()


_foreign = {
    "no meta": ["create table customers (id integer)", "create view vips as select 1"],
    "another meta": ["create table meta (a, b)", "insert into meta values (1, 2)"],
    "no number": ["create table meta (name, value)", "insert into meta values ('schema', null)"],
}


@pytest.mark.parametrize("kind", _foreign)
async def test_a_file_of_something_else_is_refused_and_left_alone(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "foreign.db"
    with sqlite3.connect(path) as connection:
        for statement in _foreign[kind]:
            connection.execute(statement)
    connection.close()
    before = path.read_bytes()
    reason = await refusal(path)
    assert f"{path}: this is not a file of perdure" in reason
    assert "give the path of a new file" in reason
    assert ("the tables customers, vips" in reason) is (kind == "no meta")
    assert path.read_bytes() == before


@contextmanager
def newer_code(text: str) -> Iterator[None]:
    """Within it this process knows one schema more."""
    number = opening.schema_known + 1
    newer = opening.Migration(number, "newer", text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(opening, "migrations", [*opening.migrations, newer])
        patched.setattr(opening, "schema_known", number)
        yield


async def test_a_newer_schema_that_older_code_may_use_is_accepted(
    store: SqliteStore, tmp_path: Path
) -> None:
    other = make(tmp_path / "one.db")
    with newer_code(f"{opening.older_code_line}\ncreate table later (x integer);\n"):
        await other.open()
    await apply(store, start("a"))  # open since before
    await store.close()
    await store.open()
    await apply(store, start("b"))
    known = await store._read(lambda sql: sql.row("meta", {"name": "schema"}))
    assert known == (str(opening.schema_known + 1),)
    await other.close()


_needs_newer = f"needs code that knows {opening.schema_known + 1}: upgrade perdure"


async def test_batches_fail_once_another_process_has_migrated_the_file(
    store: SqliteStore, tmp_path: Path
) -> None:
    await apply(store, start("a"))
    other = make(tmp_path / "one.db")
    with newer_code("create table later (x integer);\n"):
        await other.open()
    for run_id in ("b", "c"):  # not only the first after it
        with pytest.raises(BatchFailed, match=_needs_newer):
            await apply(store, start(run_id))
    with newer_code("create table later (x integer);\n"):
        assert [run.run_id for run in await other.runs(RunFilter(), None, 10)] == ["a"]
        assert isinstance((await apply(other, start("d")))[0], Started)
    await other.close()


@pytest.mark.parametrize("read_before", [True, False])
@pytest.mark.parametrize(
    "text",
    ["create table later (x integer);\n", "alter table runs rename column input to given;\n"],
)
async def test_reads_are_refused_once_another_process_has_migrated_the_file(
    store: SqliteStore, tmp_path: Path, text: str, read_before: bool
) -> None:
    await apply(store, start("a"))
    if read_before:
        assert await store.run("a") is not None
    other = make(tmp_path / "one.db")
    with newer_code(text):
        await other.open()
    for _ in range(3):  # on either of the threads
        with pytest.raises(StoreRefused, match=_needs_newer):
            await store.run("a")
    with newer_code(text):
        await other.counts()
    await other.close()


async def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    assert "too old" in await refusal(tmp_path / "one.db")


async def test_a_pragma_that_does_not_take_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(opening._pragmas, "page_size", 1000)
    assert "SQLite refused page_size=1000; it stays 4096" in await refusal(tmp_path / "one.db")


async def test_a_failing_migration_leaves_the_old_schema(
    tmp_path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(store, start("a"))
    await store.close()
    text = "create table later (x integer);\ncreate table runs (y integer);\n"
    known, number = opening.migrations, opening.schema_known + 1
    with monkeypatch.context() as patched:
        patched.setattr(opening, "schema_known", number)
        worse = opening.Migration(number, "worse", text)
        patched.setattr(opening, "migrations", [*known, worse])
        assert "could not be brought up" in await refusal(tmp_path / "one.db")
        better = opening.Migration(number, "better", text.splitlines()[0])
        patched.setattr(opening, "migrations", [*known, better])
        await store.open()
        (found,) = await store._read(lambda sql: sql.row("meta", {"name": "schema"}))
        assert found == str(number)
        assert await store.run("a") is not None
        await store.close()


async def test_a_signal_id_used_twice_in_one_batch_fails_it(store: SqliteStore) -> None:
    await apply(store, start("a"), start("b"))
    twice = [
        ops.SendSignal(signal_id="s", run_id=run_id, name="go", payload="1") for run_id in "ab"
    ]
    with pytest.raises(BatchFailed, match="second signal of the id 's'"):
        await apply(store, *twice)
    assert await store.buffered("a") == await store.buffered("b") == []


async def test_open_and_close_twice(store: SqliteStore) -> None:
    await store.open()
    await apply(store, start("a"))
    await store.close()
    await store.close()
    with pytest.raises(BatchFailed, match="not open"):
        await apply(store, start("b"))
    with pytest.raises(NotRunning, match="the store is not open"):
        await store.run("a")
    await store.open()
    assert await store.run("a") is not None


async def test_a_read_asked_for_while_the_store_closes_is_refused_in_plain_words(
    store: SqliteStore,
) -> None:
    await apply(store, start("a"))
    under_way = asyncio.create_task(store.run("a"))
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    assert store._reads is None
    with pytest.raises(NotRunning, match="the store is not open"):
        await store.run("a")
    await closing
    assert await under_way is not None


async def test_opened_twice_at_once_it_is_opened_once(tmp_path: Path) -> None:
    def writers() -> int:
        return [thread.name for thread in threading.enumerate()].count("perdure-sqlite")

    before = writers()
    store = make(tmp_path / "one.db")
    await asyncio.gather(store.open(), store.open())
    assert writers() == before + 1
    await apply(store, start("a"))
    await asyncio.gather(store.close(), store.close())
    assert writers() == before


async def test_closing_empties_the_log_and_removes_life_signs(tmp_path: Path) -> None:
    store = make(tmp_path / "one.db")
    store.worker_id = "W"
    await store.open()
    await apply(store, ops.Beat(worker_id="W", lease_us=hour_us), start("a"))
    assert (tmp_path / "one.db-workers" / "W.lock").exists()
    assert (tmp_path / "one.db-wal").stat().st_size > 0
    await store.close()
    assert sorted(os.listdir(tmp_path)) == ["one.db", "one.db-lock"]
    await store.open()
    assert (await store.counts())["workers"] == 0
    await store.close()


@pytest.mark.parametrize("by", ["one that opens", "one that closes"])
async def test_what_dead_workers_left_is_removed(tmp_path: Path, by: str) -> None:
    """Of an idle one, and of those who were killed before they had a row, or when it was gone already."""
    store, dying = make(tmp_path / "one.db"), make(tmp_path / "one.db")
    await store.open()
    dying.worker_id = "dying/#1"
    await dying.open()
    await apply(dying, ops.Beat(worker_id="dying/#1", lease_us=hour_us))
    assert dying._writer is not None
    dying._writer.workers.let_go()  # as the system does for the dead
    (tmp_path / "one.db-workers" / "stray.lock").touch()
    if by == "one that opens":
        other = make(tmp_path / "one.db")
        await other.open()
        assert list((tmp_path / "one.db-workers").iterdir()) == []
        assert (await store.counts())["workers"] == 0
        await other.close()
    await store.close()
    assert not (tmp_path / "one.db-workers").exists()
    await dying.close()


@pytest.mark.parametrize("put", ["nothing", "another file"])
async def test_a_file_that_was_taken_away_is_not_written_to(
    store: SqliteStore, tmp_path: Path, put: str
) -> None:
    """The system would let us, and nobody would ever see it."""
    await apply(store, start("a"))
    path = tmp_path / "one.db"
    path.rename(tmp_path / "old.db")
    if put == "another file":
        path.touch()
    with pytest.raises(BatchFailed, match="was removed, or another file put in its place"):
        await apply(store, start("b"))
    path.unlink(missing_ok=True)
    (tmp_path / "old.db").rename(path)
    await apply(store, start("c"))
    assert await store.run("b") is None


async def test_paths_may_hold_anything(tmp_path: Path) -> None:
    store = make(tmp_path / "a ? b # c % d é.db")
    await store.open()
    await apply(store, start("a"))
    await store.close()
    assert (tmp_path / "a ? b # c % d é.db").stat().st_size > 0


# --- batches -----------------------------------------------------------------------------------


async def test_a_poisoned_op_leaves_nothing_behind(store: SqliteStore) -> None:
    await apply(store, start("a"), suspend("a"))
    before = await store.counts()
    twice = ids.ulid()
    for poisoned in (
        [start("b"), send("a"), step("a", "s"), step("a", "s")],
        [start("b"), send("a"), step("a", "wait")],  # its row is in the file already
        [start("b"), send("a"), step("a", "\ud800")],
        [start("b"), send("a"), object()],
    ):
        with pytest.raises(BatchFailed):
            await store.apply(twice, poisoned)  # type: ignore[arg-type]
        assert await store.counts() == before
        assert await store.settle(twice) is False
    # What was changed in memory by those batches is forgotten too.
    assert isinstance((await apply(store, send("a")))[0], Delivered)


async def test_settle_tells_what_was_committed(store: SqliteStore) -> None:
    batch_id = ids.ulid()
    assert await store.settle(batch_id) is False
    await store.apply(batch_id, [start("a")])
    assert await store.settle(batch_id) is True


async def test_a_batch_that_changes_nothing_writes_nothing(
    store: SqliteStore, tmp_path: Path
) -> None:
    """Many workers are told of a run, and one gets it: what the others ask for must cost no disk, nor wake anybody."""
    await apply(store, start("a"))
    log = os.stat(tmp_path / "one.db-wal").st_size
    with closing(sqlite3.connect(tmp_path / "one.db")) as witness:
        before = witness.execute("pragma data_version").fetchone()
        nothing = ops.ClaimRuns(worker_id="w", fence=1, limit=5, workflows=(("nobody", 1),))
        (claimed,) = await apply(store, nothing)
        assert claimed == Claimed((), None)
        assert witness.execute("pragma data_version").fetchone() == before
        numbers = [one for (one,) in witness.execute("select number from commits order by number")]
    assert os.stat(tmp_path / "one.db-wal").st_size == log
    await apply(store, start("b"))
    with closing(sqlite3.connect(tmp_path / "one.db")) as witness:
        after = [one for (one,) in witness.execute("select number from commits order by number")]
    assert after == [*numbers, numbers[-1] + 1]


async def test_a_cancelled_caller_changes_nothing(store: SqliteStore) -> None:
    batch_id = ids.ulid()
    task = asyncio.create_task(store.apply(batch_id, [start("a")]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await apply(store, start("b"))
    assert await store.settle(batch_id) is True


class _Broken:
    """A connection whose next commit raises, before or after it happened."""

    def __init__(self, connection: sqlite3.Connection, after: bool, blind: bool) -> None:
        self._connection = connection
        self._after = after
        self._blind = blind
        self._armed = True

    def __call__(self, text: str, params: Any = ()) -> sqlite3.Cursor:
        if text == "commit" and self._armed:
            self._armed = False
            if self._after:
                self._connection.execute(text)
            raise sqlite3.OperationalError("disk I/O error")
        if self._blind and not self._armed:
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(text, params)


@pytest.mark.parametrize("after", [False, True])
async def test_a_commit_that_raises_is_settled(store: SqliteStore, after: bool) -> None:
    assert store._writer is not None and store._writer._sql is not None
    sql = store._writer._sql
    sql._execute = _Broken(sql.connection, after, blind=False)  # type: ignore[assignment]
    if after:
        assert isinstance((await apply(store, start("a")))[0], Started)
    else:
        with pytest.raises(BatchFailed, match="disk I/O error"):
            await apply(store, start("a"))
    assert isinstance((await apply(store, start("b"), step("b", "s")))[1], Advanced)
    assert (await store.run("a") is not None) is after


async def test_a_commit_that_nobody_knows_about(store: SqliteStore) -> None:
    assert store._writer is not None and store._writer._sql is not None
    sql = store._writer._sql
    sql._execute = _Broken(sql.connection, True, blind=True)  # type: ignore[assignment]
    batch_id = ids.ulid()
    with pytest.raises(BatchUnknown):
        await store.apply(batch_id, [start("a")])
    assert await store.settle(batch_id) is True
    # That connection is not used again.
    assert isinstance((await apply(store, start("b")))[0], Started)
    assert store._writer._sql is not sql


def spied(store: SqliteStore) -> list[str]:
    """The statements of the writer from now on, as far as their first parenthesis."""
    told: list[str] = []
    assert store._writer is not None and store._writer._sql is not None
    sql = store._writer._sql
    execute = sql._execute

    def spy(text: str, params: Any = ()) -> Any:
        told.append(" ".join(text.split("(")[0].split()))
        return execute(text, params)

    sql._execute = spy  # type: ignore[assignment]
    return told


async def test_a_batch_writes_its_net_change(store: SqliteStore) -> None:
    await apply(store, start("a"), start("b"))
    written = spied(store)
    found = await apply(store, suspend("a"), send("a"), send("b"), suspend("b"))
    assert [type(one) for one in found] == [Advanced, Delivered, Buffered, Advanced]
    assert not any("watchers" in text or "signals" in text for text in written)
    # Runs are remembered, so a plain result costs one insert beside the transaction itself.
    written.clear()
    await apply(store, step("a", "s"), step("b", "s"))
    assert written == [
        "begin immediate",
        "pragma data_version",
        "insert into steps",
        "insert into commits",
        "commit",
    ]


async def test_after_another_process_wrote_one_statement_tells_what_to_start_from(
    store: SqliteStore, tmp_path: Path
) -> None:
    """The number of its commit, and whether it has migrated the file."""
    other = make(tmp_path / "one.db")
    await other.open()
    written = spied(store)
    for nth in range(3):
        await apply(other, start(f"b{nth}"))
        written.clear()
        await apply(store, start(f"a{nth}", fresh=True))
        assert written == [
            "begin immediate",
            "pragma data_version",
            "select coalesce",  # of the last commit and the last event
            "insert into runs",
            "insert into events",
            "insert into commits",
            "commit",
        ]
    await other.close()


async def test_numbers_grow_and_are_never_given_twice(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "commits_kept", 4)
    monkeypatch.setattr(writer, "commits_pruned", 2)
    await apply(store, start("a"))
    for nth in range(20):
        await apply(store, step("a", f"s{nth}"))
    await store.close()
    await store.open()
    await apply(store, step("a", "last"))
    seqs = [one.seq for one in await store.history("a")]
    assert [one.path for one in await store.history("a")][-1] == "last"
    assert len(set(seqs)) == 21
    kept = await store._read(
        lambda sql: sql.connection.execute("select count(*) from commits").fetchone()
    )
    assert kept[0] <= 6


async def test_a_batch_has_a_bound_of_numbers(store: SqliteStore) -> None:
    assert store._writer is not None and store._writer._sql is not None
    tables = SqliteTables(
        store._writer._sql,
        now=1,
        number=2**43 - 1,
        worker_id=None,
        lifecycle=True,
        ids=ids,
        liveness=store._writer.workers,
        remembered=store._writer._remembered,
    )
    tables._seq += 2**20 - 2
    assert tables.next_seq() == 2**63 - 1
    with pytest.raises(OverflowError, match="sequence numbers"):
        tables.next_seq()


async def test_positions_are_dense(store: SqliteStore) -> None:
    for nth in range(3):
        await apply(store, start(f"a{nth}"), start(f"b{nth}"))
    assert [one.position for one in await store.events(0, 100)] == [1, 2, 3, 4, 5, 6]


async def test_the_ledger_is_append_only(store: SqliteStore, tmp_path: Path) -> None:
    await apply(store, start("a"))
    connection = sqlite3.connect(tmp_path / "one.db", isolation_level=None)
    with pytest.raises(sqlite3.IntegrityError, match="never changed"):
        connection.execute("update events set payload = '{}'")
    with pytest.raises(sqlite3.IntegrityError, match="only retention"):
        connection.execute("delete from events")
    connection.execute("begin immediate")
    connection.execute("insert into meta values ('retention', '1')")
    connection.execute("delete from events")
    connection.execute("delete from meta where name = 'retention'")
    connection.execute("commit")
    connection.close()


async def test_every_text_and_number_survives_the_json(store: SqliteStore) -> None:
    texts = [
        '{"a": "\\u0000 \\ud83d\\ude00 \\" \\\\"}',
        '"' + "é☃😀\u2028\u200b" * 10 + '"',
        '"tab\\t, quote \', null"',
        "9223372036854775807",
        "-0.0",
        "null",
        "",
        "x" * 100_000,
        "raw \x00 nul, \x01, \x7f, \t, \n, \r, \\",
    ]
    wild = 2**63 - 1
    for nth, text in enumerate(texts):
        # A key never holds a NUL (limits refuse it); everything else may.
        run_id = f"run {nth} {text[:30]}".replace("\x00", "")
        await apply(store, start(run_id, input=text, tags='{"t":"é"}', fence=wild - nth))
        done = ops.StepDone(
            path=text[:40], name="n", state="done", value=text, started_at=wild, recorded_at=-wild
        )
        await apply(
            store, ops.RecordStep(run_id=run_id, fence=wild - nth, revision=0, steps=(done,))
        )
        assert store._writer is not None
        store._writer._remembered.forget()  # so that the next batch reads the row, too
        again = ops.RecordStep(run_id=run_id, fence=wild - nth, revision=0)
        assert isinstance((await apply(store, again))[0], Advanced)
        ((run, (one,)),) = await store.load([run_id])
        assert (run.run_id, run.input, run.fence) == (run_id, text, wild - nth)
        assert (one.path, one.value) == (text[:40], text)
        assert (one.started_at, one.recorded_at) == (wild, -wild)


# --- several processes ---------------------------------------------------------------------------


async def test_what_another_process_wrote_is_seen(store: SqliteStore, tmp_path: Path) -> None:
    other = make(tmp_path / "one.db")
    await other.open()
    await apply(store, start("a"))
    assert isinstance((await apply(other, suspend("a")))[0], Advanced)
    assert isinstance((await apply(store, send("a")))[0], Delivered)
    run = await other.run("a")
    assert run is not None and run.revision == 1
    # Also what somebody did by hand, who writes no row into commits.
    connection = sqlite3.connect(tmp_path / "one.db", isolation_level=None)
    connection.execute("update runs set fence = 5")
    connection.close()
    assert not isinstance((await apply(store, step("a", "s")))[0], Advanced)
    await other.close()


_child = """
import asyncio, random, sys
sys.path.insert(0, {src!r})
from perdure.model import ops
from perdure.model.clock import SystemClock
from perdure.model.ids import Ids
from perdure.store.sqlite.store import SqliteStore

async def main():
    clock = SystemClock()
    ids = Ids(clock, random.Random())
    store = SqliteStore({path!r}, clock=clock, ids=Ids(clock, random.Random()))
    store.worker_id = "child"
    await store.open()
    run = ops.StartRun(run_id="its", workflow="w", version=1, input="1", owner="child", fence=3)
    await store.apply(ids.ulid(), [ops.Beat(worker_id="child", lease_us=10**12), run])
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_worker_is_known_to_be_dead_at_once(
    store: SqliteStore, tmp_path: Path
) -> None:
    src = str(Path(opening.__file__).parents[3])
    code = _child.format(src=src, path=str(tmp_path / "one.db"))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None and await child.stdout.readline() == b"up\n"
    lock = tmp_path / "one.db-workers" / "child.lock"
    assert (await store.look()).orphaned is False
    assert await apply(store, ops.Recover(limit=10)) == [Counted(0)]
    assert lock.exists()
    child.kill()
    await child.wait()
    assert (await store.look()).orphaned is True
    assert await apply(store, ops.Recover(limit=10)) == [Counted(1)]
    assert not lock.exists()
    assert (await store.counts())["workers"] == 0
    run = await store.run("its")
    assert run is not None and (run.status, run.owner) == ("ready", None)


async def test_a_worker_that_says_goodbye_takes_its_lock_along(
    store: SqliteStore, tmp_path: Path
) -> None:
    await apply(store, ops.Beat(worker_id="W", lease_us=1), start("a"))
    await asyncio.sleep(0.01)
    assert (await store.look()).orphaned is False  # the lease is over, but we live
    await apply(store, ops.Beat(worker_id="W", lease_us=1, stopping=True))
    assert list((tmp_path / "one.db-workers").iterdir()) == []
    assert (await store.look()).orphaned is True


async def test_a_worker_without_a_lock_lives_by_its_lease(store: SqliteStore) -> None:
    await apply(store, ops.Beat(worker_id="far", lease_us=hour_us), start("a", owner="far"))
    assert (await store.look()).orphaned is False
    await apply(store, ops.Beat(worker_id="far", lease_us=-1))
    assert (await store.look()).orphaned is True


async def test_a_close_that_cannot_write_lets_go_of_the_worker(tmp_path: Path) -> None:
    store = make(tmp_path / "one.db")
    store.worker_id = "W"
    await store.open()
    await apply(store, ops.Beat(worker_id="W", lease_us=hour_us), start("a"))
    assert store._writer is not None and store._writer._sql is not None
    store._writer._sql.connection.execute("pragma busy_timeout = 0").close()
    hindrance = sqlite3.connect(tmp_path / "one.db", isolation_level=None)
    hindrance.execute("begin immediate")
    await store.close()
    hindrance.close()
    await store.open()
    assert (await store.look()).orphaned is True
    assert await apply(store, ops.Recover(limit=10)) == [Counted(1)]
    assert list((tmp_path / "one.db-workers").iterdir()) == []
    await store.close()


async def test_without_flock_a_worker_lives_for_itself_and_by_its_lease_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make(tmp_path / "one.db").needs_beats is False
    monkeypatch.setattr(liveness, "has_flock", False)
    clock = VirtualClock()
    store, other = make(tmp_path / "one.db", clock), make(tmp_path / "one.db", clock)
    store.worker_id, other.worker_id = "W", "V"
    assert store.needs_beats is True
    await store.open()
    await other.open()
    await apply(store, ops.Beat(worker_id="W", lease_us=30_000_000), start("a"))
    assert (await other.look()).orphaned is False
    clock.set(clock.now() + 31_000_000)
    assert (await store.look()).orphaned is False
    assert await apply(store, ops.Recover(limit=10)) == [Counted(0)]
    assert (await other.look()).orphaned is True
    await store.close()
    assert (await other.counts())["workers"] == 0
    await other.close()


def _in_child(store: SqliteStore, answers: Any) -> None:
    async def ask() -> list[str]:
        told = []
        for call in (store.apply("x", []), store.run("a"), store.open(), store.close()):
            try:
                await call
            except RuntimeError as error:
                told.append(str(error))
        return told

    answers.put(asyncio.run(ask()))


async def test_after_a_fork_every_call_raises(store: SqliteStore) -> None:
    await apply(store, ops.Beat(worker_id="W", lease_us=hour_us))
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    child = fork.Process(target=_in_child, args=(store, answers))
    child.start()
    told = await asyncio.to_thread(answers.get)
    await asyncio.to_thread(child.join)
    assert len(told) == 4 and all("after a fork" in one for one in told)
    assert isinstance((await apply(store, start("a")))[0], Started)


# --- the log -----------------------------------------------------------------------------------


async def _emptied(log: Path) -> None:
    for _ in range(250):
        if log.stat().st_size == 0:  # noqa: ASYNC240
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the log was not emptied")


async def test_the_log_is_emptied_when_idle_and_when_large(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "one.db-wal"
    monkeypatch.setattr(writer, "idle_s", 0.05)
    monkeypatch.setattr(writer, "idle_wal_bytes", 1000)
    # Counts from the first checkpoint on: this writer was made with the bound as it is.
    monkeypatch.setattr(writer, "wal_bytes_max", 10_000)
    await apply(store, start("a", input="x" * 100_000))
    assert log.stat().st_size > 100_000
    await _emptied(log)
    monkeypatch.setattr(writer, "idle_s", 60)
    await apply(store, start("b", input="x" * 100_000))
    await _emptied(log)


async def test_a_reader_in_the_way_delays_only_the_log(store: SqliteStore, tmp_path: Path) -> None:
    await apply(store, start("a"))
    reader = sqlite3.connect(tmp_path / "one.db", isolation_level=None)
    reader.execute("begin")
    reader.execute("select count(*) from runs").fetchone()
    assert store._writer is not None
    store._writer._wal_bytes_next = 0
    await apply(store, start("b"))
    await apply(store, start("c"))
    assert store._writer._wal_bytes_next > writer.wal_patience_bytes
    assert len(await store.runs(RunFilter(), None, 10)) == 3
    reader.close()


class _Quiet(queue.SimpleQueue[Any]):
    """Nothing ever comes: every wait is over at once and noted, and the one without an end, ends."""

    def __init__(self, reader: sqlite3.Connection) -> None:
        self.waits: list[float | None] = []
        self._reader = reader

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self.waits.append(timeout)
        if timeout is None:
            return None
        if len(self.waits) == 8:
            self._reader.close()
        raise queue.Empty


def test_an_idle_checkpoint_that_a_reader_hindered_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "idle_wal_bytes", 1000)
    clock = SystemClock()
    one = writer.Writer(str(tmp_path / "one.db"), "FULL", clock, ids, lifecycle=True)
    one._open()  # no thread: we are it
    one._apply(writer.Batch(ids.ulid(), [start("a")]))
    reader = sqlite3.connect(tmp_path / "one.db", isolation_level=None)
    reader.execute("begin")
    reader.execute("select count(*) from runs").fetchone()
    one._wal_bytes_next = 0
    one._apply(writer.Batch(ids.ulid(), [start("b")]))
    one._checkpoint_if_large()
    assert one._wal_bytes_next > writer.wal_patience_bytes
    one._jobs = quiet = _Quiet(reader)
    assert one._next_job() is None
    assert quiet.waits.pop() is None
    assert quiet.waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60], abs=0.5)
    assert one._wal_bytes() == 0
    assert one._wal_bytes_next == writer.wal_bytes_max
    one._close()
