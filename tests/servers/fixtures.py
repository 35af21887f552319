"""What tests ask for to get a server. A plugin of tests/conftest.py.

The shared server is started by the first test that asks for it, in whichever process of the run that is, and is found
by all others. It ends with the run: with the process that the user started, not with the one that happened to start
the server.

PERDURE_TEST_POSTGRES=<URL> and PERDURE_TEST_REDIS=<URL> have the tests use running servers instead. Without any server
tests are skipped and say so; with PERDURE_TEST_REQUIRE_SERVERS=1, which `make test` and `.ci/run` set, they fail.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from servers.namespaces import Lent, Namespaces
from servers.pooler import Pooler, pooling
from servers.postgres import (
    ADDRESS_VARIABLE,
    PostgresAddress,
    PostgresProcess,
    running_postgres,
)
from servers.premises import Guarded, Premises
from servers.process import ServerMissing, ServerProcess
from servers.stores import Shared
from servers.valkey import (
    ADDRESS_VARIABLE as REDIS_VARIABLE,
)
from servers.valkey import ValkeyAddress, ValkeyProcess, new_namespace, running_valkey

_guarded = pytest.StashKey[Guarded]()
_started = pytest.StashKey[list[ServerProcess]]()


# --- one run, several processes --------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_started] = []
    if not os.environ.get(ADDRESS_VARIABLE):
        # The driver would let them change what a URL says: which user, whether TLS, which time zone.
        for name in [name for name in os.environ if name.startswith("PG")]:
            del os.environ[name]
        # To offer TLS, which no server of ours takes, costs a client more than all else about a connection.
        os.environ["PGSSLMODE"] = "disable"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called in the process that the user started, for each process of pytest-xdist."""
    premises = _own_premises(node.config)
    node.workerinput["perdure_premises"] = (str(premises.path), str(premises.data_path))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Who opened the premises closes them. A server that another process started there is the guardian's."""
    if _guarded not in config.stash:
        return
    try:
        for server in config.stash[_started]:
            server.stop()
    finally:
        config.stash[_guarded].close()


def _own_premises(config: pytest.Config) -> Premises:
    if _guarded not in config.stash:
        config.stash[_guarded] = Guarded()
    return config.stash[_guarded].premises


@pytest.fixture(scope="session")
def premises(pytestconfig: pytest.Config) -> Premises:
    """The directories of this test run, in which servers live."""
    given = getattr(pytestconfig, "workerinput", None)
    if given is None:
        return _own_premises(pytestconfig)
    return Premises(*map(Path, given["perdure_premises"]))


# --- Postgres --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config, premises: Premises) -> PostgresAddress:
    """The Postgres that all tests of this run share."""
    if url := os.environ.get(ADDRESS_VARIABLE):
        return running_postgres(url, ADDRESS_VARIABLE)
    try:
        return shared_postgres(premises, pytestconfig.stash[_started])
    except ServerMissing as missing:
        without_server(missing)


@pytest.fixture
def postgres_url(postgres_server: PostgresAddress) -> str:
    """The URL of a database that all tests share: take a `postgres_namespace` too."""
    return postgres_server.url


@pytest.fixture
def postgres_namespace(postgres_server: PostgresAddress) -> Iterator[str]:
    """A namespace of this test's own: its schema is not there yet, and is dropped afterwards."""
    with postgres_server.fresh_schema() as schema:
        yield schema.removeprefix("perdure_")


@pytest.fixture(scope="session")
def postgres_namespaces(postgres_server: PostgresAddress) -> Namespaces:
    """Namespaces that are emptied and lent again."""
    return Namespaces(postgres_server)


@pytest.fixture
def lend_namespace(postgres_namespaces: Namespaces) -> Iterator[Lent]:
    """Call it for an empty namespace of this test's own, as often as needed."""
    with postgres_namespaces.lent() as lent:
        yield lent


@pytest.fixture(scope="session")
def postgres_pooler(postgres_server: PostgresAddress) -> Iterator[Pooler]:
    """A transaction pooler before the shared server: all who come to it share two connections."""
    with pooling(postgres_server.url) as pooler:
        yield pooler


@pytest.fixture
def postgres_process(premises: Premises) -> Iterator[PostgresProcess]:
    """A running Postgres of this test's own, to stop, kill and restart.

    For other settings make one yourself: `with PostgresProcess(premises, {"fsync": "off"}) as server`.
    """
    try:
        server = PostgresProcess(premises)
    except ServerMissing as missing:
        without_server(missing)
    with server:
        yield server


def shared_postgres(premises: Premises, started: list[ServerProcess]) -> PostgresAddress:
    """The one server of the run. Whoever comes first starts it, and adds it to `started`."""
    known = premises.path / "postgres.url"
    with premises.alone("postgres"):
        if not known.exists():
            server = PostgresProcess(premises)
            server.start()
            started.append(server)
            known.write_text(server.url)
        return PostgresAddress(known.read_text())


# --- Valkey ----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def valkey_server(pytestconfig: pytest.Config, premises: Premises) -> ValkeyAddress:
    """The Valkey that all tests of this run share."""
    if url := os.environ.get(REDIS_VARIABLE):
        return running_valkey(url, REDIS_VARIABLE)
    try:
        return shared_valkey(premises, pytestconfig.stash[_started])
    except ServerMissing as missing:
        without_server(missing)


@pytest.fixture
def redis_url(valkey_server: ValkeyAddress) -> str:
    """The URL of a server that all tests share: take a namespace too."""
    return valkey_server.url


@pytest.fixture
def lend_redis_namespace(valkey_server: ValkeyAddress) -> Iterator[Callable[[], str]]:
    """Call it for an empty namespace of this test's own, as often as needed."""
    lent: list[str] = []

    def lend() -> str:
        lent.append(new_namespace())
        return lent[-1]

    yield lend
    if lent:
        valkey_server.clear(*lent)


@pytest.fixture
def valkey_process(premises: Premises) -> Iterator[ValkeyProcess]:
    """A running Valkey of this test's own, to stop, kill and restart."""
    try:
        server = ValkeyProcess(premises)
    except ServerMissing as missing:
        without_server(missing)
    with server:
        yield server


# --- any of them -----------------------------------------------------------------------------------


@pytest.fixture(params=["postgres", "redis"])
def shared(request: pytest.FixtureRequest) -> Shared:
    """The address of a server that all tests share, and a namespace of this test's own."""
    if request.param == "postgres":
        lend = request.getfixturevalue("lend_namespace")
        return Shared(request.getfixturevalue("postgres_url"), lend())
    lend = request.getfixturevalue("lend_redis_namespace")
    return Shared(request.getfixturevalue("redis_url"), lend())


@pytest.fixture(params=["postgres", "valkey"])
def server_process(request: pytest.FixtureRequest) -> PostgresProcess | ValkeyProcess:
    """A running server of this test's own, to stop, kill and restart."""
    process: PostgresProcess | ValkeyProcess = request.getfixturevalue(f"{request.param}_process")
    return process


def shared_valkey(premises: Premises, started: list[ServerProcess]) -> ValkeyAddress:
    """The one server of the run. Whoever comes first starts it, and adds it to `started`."""
    known = premises.path / "valkey.url"
    with premises.alone("valkey"):
        if not known.exists():
            server = ValkeyProcess(premises)
            server.start()
            started.append(server)
            known.write_text(server.url)
        return ValkeyAddress(known.read_text())


def without_server(missing: ServerMissing) -> NoReturn:
    """Skip this test and say why, or fail it where servers are required."""
    if os.environ.get("PERDURE_TEST_REQUIRE_SERVERS") == "1":
        raise missing
    pytest.skip(str(missing))
