"""Opening a Postgres store: what is made, by whom, once; what is refused, with words that say what to do.

Whatever goes wrong the caller hears StoreRefused, never the driver's own error, and no password is in any text.
"""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest
from servers.postgres import PostgresAddress, PostgresProcess
from servers.premises import Premises
from servers.stores import opened, postgres_store
from servers.wire import at_port

from perdure import App
from perdure.errors import NotRunning, StoreRefused
from perdure.model import ops
from perdure.model.clock import SystemClock
from perdure.model.ids import Ids
from perdure.model.outcomes import Started
from perdure.store import open_store
from perdure.store.base import BatchFailed, RunFilter
from perdure.store.postgres import connecting, opening
from perdure.store.postgres import store as store_module
from perdure.store.postgres.connecting import parse_url
from perdure.store.postgres.store import PostgresStore
from perdure.store.urls import without_password

ids = Ids(SystemClock(), random.Random(7))


async def refusal(url: str, namespace: str | None = None) -> str:
    with pytest.raises(StoreRefused) as refused:
        store = postgres_store(url, namespace)
        try:
            await store.open()
        finally:
            await store.close()
    return refused.value.reason


async def apply(store: PostgresStore, *batch: ops.Op[Any]) -> list[Any]:
    return [one.outcome for one in await store.apply(ids.ulid(), batch)]


def start(run_id: str, **more: Any) -> ops.StartRun:
    given = {"workflow": "w", "version": 1, "input": "null", "owner": "W", "fence": 1}
    return ops.StartRun(run_id=run_id, **{**given, **more})


@contextmanager
def newer_code(text: str) -> Iterator[None]:
    """Within it this process knows one schema more."""
    number = opening.schema_known + 1
    newer = opening.Migration(number, "newer", text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(opening, "migrations", [*opening.migrations, newer])
        patched.setattr(opening, "schema_known", number)
        yield


# --- what is made ------------------------------------------------------------------------------


def facts(address: PostgresAddress, namespace: str) -> dict[str, str]:
    return dict(map(tuple, address.fetch(f"select name, value from perdure_{namespace}.meta")))


def versions(address: PostgresAddress, namespace: str) -> list[Any]:
    """What changes with whatever is written: of the schema's rows, and of what the catalogue says about it."""
    meta = address.fetch(f"select name, xmin::text from perdure_{namespace}.meta order by 1")
    made = address.fetch(
        "select c.relname, c.xmin::text from pg_class as c where c.relnamespace = $1::text::regnamespace "
        "union all select p.proname, p.xmin::text from pg_proc as p where p.pronamespace = $1::text::regnamespace "
        "order by 1, 2",
        f"perdure_{namespace}",
    )
    return list(map(tuple, [*meta, *made]))


async def test_a_fresh_schema_is_made_and_opening_again_writes_nothing(
    postgres_server: PostgresAddress, postgres_namespace: str
) -> None:
    async with opened(postgres_server.url, postgres_namespace) as store:
        assert isinstance((await apply(store, start("a")))[0], Started)
    before = versions(postgres_server, postgres_namespace)
    said = facts(postgres_server, postgres_namespace)
    assert said["schema"] == str(opening.schema_known)
    assert {"min_code", "created", "apply_v1", "fetch_v1"} <= said.keys()
    async with opened(postgres_server.url, postgres_namespace) as store:
        await store.open()
        assert await store.run("a") is not None
    assert versions(postgres_server, postgres_namespace) == before


async def test_ten_stores_that_open_at_once_migrate_once(
    postgres_server: PostgresAddress, postgres_namespace: str
) -> None:
    stores = [postgres_store(postgres_server.url, postgres_namespace) for _ in range(10)]
    await asyncio.gather(*(store.open() for store in stores))
    # All was made by one transaction.
    assert len({xmin for _, xmin in versions(postgres_server, postgres_namespace)}) == 1
    answers = await asyncio.gather(*(apply(one, start(f"r{n}")) for n, one in enumerate(stores)))
    assert all(isinstance(one, Started) for (one,) in answers)
    await asyncio.gather(*(store.close() for store in stores))


_open_one = """
import asyncio, random, sys
from perdure.model.clock import SystemClock
from perdure.model.ids import Ids
from perdure.store.postgres.store import PostgresStore

async def main():
    clock = SystemClock()
    store = PostgresStore(sys.argv[1], namespace=sys.argv[2], clock=clock, ids=Ids(clock, random.Random()))
    print("ready", flush=True)
    sys.stdin.readline()
    await store.open()
    print(len(await store.catalogue()))
    await store.close()

asyncio.run(main())
"""


def test_processes_that_open_at_once_migrate_once(
    postgres_server: PostgresAddress, postgres_namespace: str
) -> None:
    command = [sys.executable, "-c", _open_one, postgres_server.url, postgres_namespace]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    for one in processes:
        assert one.stdout.readline() == "ready\n"
    for one in processes:
        one.stdin.write("\n")
        one.stdin.flush()
    assert [one.communicate(timeout=60)[0] for one in processes] == ["0\n"] * 3
    assert [one.returncode for one in processes] == [0] * 3
    assert facts(postgres_server, postgres_namespace)["schema"] == str(opening.schema_known)


async def test_a_failing_migration_leaves_the_old_schema(
    postgres_server: PostgresAddress, postgres_namespace: str
) -> None:
    async with opened(postgres_server.url, postgres_namespace) as store:
        await apply(store, start("a"))
    before = versions(postgres_server, postgres_namespace)
    with newer_code(
        "create table {schema}.later (x bigint);\ncreate table {schema}.runs (y bigint);\n"
    ):
        assert "could not be brought up" in await refusal(postgres_server.url, postgres_namespace)
    assert versions(postgres_server, postgres_namespace) == before
    async with opened(postgres_server.url, postgres_namespace) as store:
        assert await store.run("a") is not None


async def test_an_older_schema_is_brought_up_and_its_rows_stay(
    postgres_server: PostgresAddress, postgres_namespace: str
) -> None:
    async with opened(postgres_server.url, postgres_namespace) as store:
        await apply(store, start("a"))
    with newer_code("create table {schema}.later (x bigint);\n"):
        async with opened(postgres_server.url, postgres_namespace) as store:
            assert await store.run("a") is not None
        said = facts(postgres_server, postgres_namespace)
        assert said["schema"] == said["min_code"] == str(opening.schema_known)
        postgres_server.execute(f"insert into perdure_{postgres_namespace}.later values (1)")


# --- a schema that is newer than the code ------------------------------------------------------

_needs_newer = (
    f"needs code that knows version {opening.schema_known + 1}, and this code knows {opening.schema_known}: "
    "upgrade perdure"
)


async def test_a_schema_that_needs_newer_code_is_refused(
    postgres_server: PostgresAddress, postgres_namespace: str
) -> None:
    with newer_code("create table {schema}.later (x bigint);\n"):
        async with opened(postgres_server.url, postgres_namespace):
            pass
    assert _needs_newer in await refusal(postgres_server.url, postgres_namespace)


async def test_a_newer_schema_that_older_code_may_use_is_used(
    postgres_server: PostgresAddress, postgres_namespace: str
) -> None:
    async with opened(postgres_server.url, postgres_namespace) as store:
        other = postgres_store(postgres_server.url, postgres_namespace)
        with newer_code(f"{opening.older_code_line}\ncreate table {{schema}}.later (x bigint);\n"):
            await other.open()
        await apply(store, start("a"))
        await store.close()
        await store.open()
        await apply(store, start("b"))
        said = facts(postgres_server, postgres_namespace)
        assert said["schema"] == str(opening.schema_known + 1)
        assert said["min_code"] == str(opening.min_code())
        await other.close()


async def test_a_schema_that_becomes_too_new_while_it_is_open_is_used_no_more(
    postgres_server: PostgresAddress, postgres_namespace: str
) -> None:
    """The next life sign finds out; from then on nothing is written or read, and the lease is given up."""
    async with opened(postgres_server.url, postgres_namespace) as store:
        store.worker_id = "W"
        await apply(store, ops.Beat(worker_id="W", lease_us=3600_000_000), start("a"))
        lost = asyncio.Event()
        store.on_lost_lease = lost.set
        with newer_code("create table {schema}.later (x bigint);\n"):
            async with opened(postgres_server.url, postgres_namespace):
                pass
        store.start_beating("W", lease_s=60, every_s=0.01)
        async with asyncio.timeout(20):
            await lost.wait()
        for _ in range(2):
            with pytest.raises(BatchFailed, match=_needs_newer):
                await apply(store, start("b"))
            with pytest.raises(StoreRefused, match=_needs_newer):
                await store.run("a")
        rows = postgres_server.fetch(f"select run_id from perdure_{postgres_namespace}.runs")
        assert [row["run_id"] for row in rows] == ["a"]


@pytest.mark.parametrize("name", ["apply_v1", "fetch_v1"])
async def test_who_has_no_life_signs_learns_it_when_the_functions_are_gone(
    postgres_server: PostgresAddress, postgres_namespace: str, name: str
) -> None:
    async with opened(postgres_server.url, postgres_namespace) as store:
        await apply(store, start("a"))
        postgres_server.execute(f"drop function perdure_{postgres_namespace}.{name}")
        with pytest.raises(BatchFailed, match=name):
            await apply(store, ops.Terminate(run_id="a", reason=None), start("b"))
        with pytest.raises(BatchFailed, match="upgrade perdure"):
            await apply(store, start("c"))
        with pytest.raises(StoreRefused, match="upgrade perdure"):
            await store.run("a")


# --- a schema that is not ours -----------------------------------------------------------------

_foreign = {
    "no meta": ["create table {s}.customers (id bigint)", "create view {s}.vips as select 1"],
    "another meta": [
        "create table {s}.meta (a text, b text)",
        "insert into {s}.meta values (1, 2)",
    ],
    "no number": ["create table {s}.meta (name text, value text)"],
    "no version": [
        "create table {s}.meta (name text, value text)",
        "insert into {s}.meta values ('min_code', 'seven'), ('schema', '1')",
    ],
}


@pytest.mark.parametrize("kind", _foreign)
async def test_a_schema_of_something_else_is_refused_and_left_alone(
    postgres_server: PostgresAddress, postgres_namespace: str, kind: str
) -> None:
    schema = f"perdure_{postgres_namespace}"
    postgres_server.execute(
        f"create schema {schema}", *(one.replace("{s}", schema) for one in _foreign[kind])
    )
    query = "select relname, xmin::text from pg_class where relnamespace = $1::text::regnamespace order by 1"
    before = postgres_server.fetch(query, schema)
    reason = await refusal(postgres_server.url, postgres_namespace)
    assert f"the schema '{schema}' is not one of perdure" in reason
    assert "use another namespace" in reason
    assert ("the tables customers, vips" in reason) is (kind == "no meta")
    assert postgres_server.fetch(query, schema) == before


async def test_an_empty_schema_that_somebody_made_for_us_is_used(
    postgres_server: PostgresAddress, postgres_namespace: str
) -> None:
    postgres_server.execute(f"create schema perdure_{postgres_namespace}")
    async with opened(postgres_server.url, postgres_namespace) as store:
        await apply(store, start("a"))


# --- a server that cannot keep our promises ----------------------------------------------------


class Standby(PostgresProcess):
    """Of a primary that is not there; it can be read, and waits for more to come."""

    def prepare(self) -> None:
        super().prepare()
        (self.data_path / "standby.signal").touch()


async def test_a_standby_is_refused(premises: Premises) -> None:
    with Standby(premises) as server:
        reason = await refusal(server.url)
        assert "this server is a standby" in reason and "give the address of the primary" in reason


async def test_a_server_without_fsync_is_refused(premises: Premises) -> None:
    with PostgresProcess(premises, {"fsync": "off"}) as server:
        assert "fsync=off" in (reason := await refusal(server.url)) and "set fsync=on" in reason
        assert server.address.fetch("select 1 from pg_namespace where nspname = 'perdure'") == []


async def test_synchronous_commit_must_be_on_unless_the_caller_accepts_less(
    postgres_server: PostgresAddress, postgres_namespace: str
) -> None:
    with postgres_server.fresh_database() as url:
        name = url.rpartition("/")[2]
        postgres_server.execute(f"alter database {name} set synchronous_commit = off")
        reason = await refusal(url, postgres_namespace)
        assert "synchronous_commit is off" in reason and "?durability=relaxed" in reason
        async with opened(f"{url}?durability=relaxed", postgres_namespace) as store:
            await apply(store, start("a"))


async def test_an_old_server_is_refused(
    postgres_url: str, postgres_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "version_min", 99)
    reason = await refusal(postgres_url, postgres_namespace)
    assert "too old: 99 or newer is needed" in reason


async def test_a_database_that_is_not_unicode_is_refused(postgres_server: PostgresAddress) -> None:
    postgres_server.execute(
        "create database test_latin encoding 'LATIN1' locale 'C' template template0"
    )
    try:
        reason = await refusal(postgres_server.dsn("test_latin"))
        assert "encoded as LATIN1: create one with encoding UTF8" in reason
    finally:
        postgres_server.execute("drop database test_latin with (force)")


# --- who may not, and what is not there --------------------------------------------------------

secret = "s3cret/of@ours"
_quoted_secret = "s3cret%2Fof%40ours"


@pytest.fixture(scope="module")
def guarded(premises: Premises) -> Iterator[PostgresProcess]:
    """A server that asks one role for its password and trusts all others."""
    path = premises.path / "guarded.hba"
    path.write_text("host all locked 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n")
    path.chmod(0o644)
    with PostgresProcess(premises, {"hba_file": str(path)}) as server:
        server.address.execute(
            f"create role locked login password '{secret}'",
            "create role weak login",
            "create role strong login superuser",
        )
        yield server


def as_role(url: str, role: str, password: str | None = None) -> str:
    words = role if password is None else f"{role}:{password}"
    return url.replace("//postgres@", f"//{words}@")


async def test_a_role_that_may_not_create_is_told_what_to_grant(guarded: PostgresProcess) -> None:
    reason = await refusal(as_role(guarded.url, "weak"), "eu")
    assert "permission denied for database" in reason
    assert "grant create on the database" in reason
    assert 'create schema "perdure_eu" authorization' in reason
    # One that others have made is not readable either.
    async with opened(guarded.url, "us"):
        pass
    assert "permission denied for schema" in await refusal(as_role(guarded.url, "weak"), "us")
    guarded.address.execute('create schema "perdure_eu" authorization weak')
    async with opened(as_role(guarded.url, "weak"), "eu") as store:
        await apply(store, start("a"))


async def test_a_role_that_may_use_a_password_gets_in(guarded: PostgresProcess) -> None:
    guarded.address.execute("grant create on database postgres to locked")
    url = as_role(guarded.url, "locked", _quoted_secret)
    async with opened(url, "secret") as store:
        assert store.url == as_role(guarded.url, "locked", "***")
        await apply(store, start("a"))
        assert secret not in repr(store._options) and "s3cret" not in repr(store._options)


async def test_no_refusal_tells_a_password(guarded: PostgresProcess) -> None:
    wrong = as_role(guarded.url, "locked", "wr0ng-s3cret")
    nobody = as_role(guarded.url, "locked", _quoted_secret)
    refused = {
        wrong: "password authentication failed",
        nobody.replace("/postgres", "/no_such_database"): "no_such_database",
        at_port(nobody, 1): "cannot be reached",
        nobody.replace("127.0.0.1", "no-such-host.invalid"): "cannot be reached",
        f"postgresql://127.0.0.1:{guarded.port}/x?user=locked&password=s3cret": "authentication failed",
        f"{nobody}?durability=yes": "durability is strict or relaxed, not 'yes'",
        f"{nobody}?no_such_option=1": "no_such_option",
        f"{nobody}?pgbouncer=1&notify=1": "listen_url",
        f"postgresql://locked:[s3cret@{guarded.port}/x": "is no URL",
        "postgresql://locked:s3cret@127.0.0.1:port/x": "port",
        f"{nobody}?sslmode=no-such-mode": "sslmode",
    }
    for url, words in refused.items():
        reason = await refusal(url, "eu")
        assert words in reason, (url, reason)
        assert "s3cret" not in reason, reason


def test_no_password_is_shown_where_addresses_are() -> None:
    with pytest.raises(StoreRefused) as refused:
        open_store(
            "postgresq://a:s3cret@b/c",
            namespace=None,
            clock=SystemClock(),
            ids=ids,
            lifecycle=True,
        )
    assert "postgresq://a:***@b/c" in refused.value.reason
    for url in (
        "postgresql://a:s3cret@b/c",
        "postgresql://a@b/c?password=s3cret",
        "postgresql://a@b/c?pgbouncer=1&listen_url=postgresql%3A%2F%2Fa%3As3cret%40b%2Fc",
    ):
        assert "s3cret" not in repr(App(url)) + without_password(url) + repr(parse_url(url))
    assert without_password("postgresql://b/c?x=1&y=") == "postgresql://b/c?x=1&y="


# --- what a URL says ---------------------------------------------------------------------------


def test_options_of_ours_are_taken_out_of_the_url() -> None:
    plain = "postgresql://a@b:1/c"
    assert parse_url(plain) == (plain, plain, False, False)
    assert parse_url(f"{plain}?sslmode=require&durability=relaxed") == (
        f"{plain}?sslmode=require",
        f"{plain}?sslmode=require",
        False,
        True,
    )
    assert parse_url("postgres://a@b:1/c?notify=0") == (plain, None, False, False)
    assert parse_url(f"{plain}?pgbouncer=1") == (plain, None, True, False)
    direct = "postgresql://a@d:2/c"
    assert parse_url(f"{plain}?pgbouncer=1&listen_url={direct}") == (plain, direct, True, False)
    assert parse_url(f"{plain}?listen_url={direct}") == (plain, direct, False, False)
    assert parse_url("postgresql://a@b:1,d:2/c").url == "postgresql://a@b:1,d:2/c"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("pgbouncer=true", "pgbouncer is 0 or 1, not 'true'"),
        ("notify=", "notify is 0 or 1, not ''"),
        ("pgbouncer=1&notify=1", "through a pooler nobody can listen"),
        ("notify=0&listen_url=postgresql://b/c", "contradict each other"),
    ],
)
def test_what_contradicts_itself_is_refused(query: str, words: str) -> None:
    with pytest.raises(StoreRefused, match=words):
        parse_url(f"postgresql://b/c?{query}")


def test_a_namespace_that_postgres_would_cut_short_is_refused() -> None:
    with pytest.raises(StoreRefused, match="too long"):
        postgres_store("postgresql://b/c", "x" * 60)


# --- namespaces --------------------------------------------------------------------------------


async def test_two_namespaces_of_a_database_do_not_see_each_other(
    postgres_server: PostgresAddress,
) -> None:
    url = postgres_server.url
    with postgres_server.fresh_schema() as one, postgres_server.fresh_schema() as other:
        names = [schema.removeprefix("perdure_") for schema in (one, other)]
        async with opened(url, names[0]) as ours, opened(url, names[1]) as theirs:
            heard: list[Any] = []
            theirs.on_hint = heard.append
            event = ops.NewEvent(event_id=ids.ulid(), type="t", payload="1", occurred_at=1)
            await apply(
                ours,
                ops.Beat(worker_id="W", lease_us=3600_000_000),
                start("a"),
                ops.Emit(events=(event,)),
                ops.Put(item_id=ids.ulid(), queue="q", payload="1"),
            )
            assert await ours.runs(RunFilter(), None, 10) != []
            assert await theirs.runs(RunFilter(), None, 10) == []
            assert await theirs.span() == (1, 0)
            assert await theirs.queues() == {}
            assert (await theirs.look()).workers == frozenset()
            assert set((await theirs.counts()).values()) == {0}
            assert isinstance((await apply(theirs, start("a")))[0], Started)
            assert [wake for wake in heard if wake.kind == "events"] == []
            assert opening.lock_class(ours.schema) != opening.lock_class(theirs.schema)


# --- life --------------------------------------------------------------------------------------


async def connections(address: PostgresAddress, namespace: str) -> int:
    """How many there are that anybody of this namespace has; each gives itself away by what it asked last."""
    rows = address.fetch(
        "select count(*) from pg_stat_activity where application_name = 'perdure' and query like $1",
        f"%perdure_{namespace}%",
    )
    return int(rows[0][0])


async def test_open_and_close_twice(
    postgres_server: PostgresAddress, postgres_namespace: str
) -> None:
    store = postgres_store(postgres_server.url, postgres_namespace)
    await asyncio.gather(store.open(), store.open())
    await apply(store, start("a"))
    await asyncio.gather(*(store.run("a") for _ in range(8)))
    await asyncio.gather(store.close(), store.close())
    with pytest.raises(BatchFailed, match="not open"):
        await apply(store, start("b"))
    with pytest.raises(NotRunning, match="the store is not open"):
        await store.run("a")
    assert await connections(postgres_server, postgres_namespace) == 0
    await store.open()
    assert await store.run("a") is not None
    await store.close()
    assert await connections(postgres_server, postgres_namespace) == 0


async def test_a_batch_that_comes_late_makes_no_new_connection(
    postgres_url: str, postgres_namespace: str
) -> None:
    store = postgres_store(postgres_url, postgres_namespace)
    await store.open()
    async with store._decider.turn:
        late = asyncio.create_task(apply(store, start("a")))
        await asyncio.sleep(0)
        await store.close()
    with pytest.raises(BatchFailed, match="not open"):
        await late
    assert store._writer is None


async def test_after_a_fork_every_call_raises(postgres_url: str, postgres_namespace: str) -> None:
    async with opened(postgres_url, postgres_namespace) as store:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "getpid", lambda: -1)
            for call in (
                store.open,
                store.close,
                lambda: apply(store, start("a")),
                lambda: store.run("a"),
                lambda: store.settle("x"),
                lambda: store.look(),
                lambda: store.transact("x", None),  # type: ignore[arg-type]
            ):
                with pytest.raises(RuntimeError, match="after a fork make a store of your own"):
                    await call()
            with pytest.raises(RuntimeError, match="after a fork"):
                store.start_beating("W", 1, 1)


async def test_old_commits_are_pruned_now_and_then(
    postgres_server: PostgresAddress, postgres_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_commits_before_first_pruning", 3)
    monkeypatch.setattr(store_module, "_pruned_max", 2)
    table = f"perdure_{postgres_namespace}.commits"
    async with opened(postgres_server.url, postgres_namespace) as store:
        postgres_server.execute(
            f"insert into {table} select 'old' || n, n, 0 from generate_series(1, 7) as n"
        )
        fresh = [ids.ulid() for _ in range(4)]
        for nth, batch_id in enumerate(fresh, 1):
            await store.apply(batch_id, [start(f"r{nth}")])
            assert (store._pruning is not None) is (nth >= 3)
        assert store._pruning is not None
        await store._pruning
        rows = postgres_server.fetch(f"select batch_id from {table} order by 1")
        assert [row["batch_id"] for row in rows] == sorted(fresh)


async def test_commits_that_another_process_prunes_are_left_to_it(
    postgres_server: PostgresAddress, postgres_namespace: str
) -> None:
    table = f"perdure_{postgres_namespace}.commits"
    async with opened(postgres_server.url, postgres_namespace) as store:
        postgres_server.execute(f"insert into {table} values ('old', 1, 0), ('older', 0, 0)")
        other = await asyncpg.connect(postgres_server.url)
        try:
            async with other.transaction():
                await other.execute(f"delete from {table} where batch_id = 'older'")
                await store._prune_commits()
                assert await other.fetchval(f"select count(*) from {table} where at < 2") == 0
        finally:
            await other.close()
