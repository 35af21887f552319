"""The servers of one run of the benchmark: started and stopped by it, from wheels, with their data on a disk.

PERDURE_BENCH_POSTGRES=<URL> names a running server instead; its role must be allowed to create databases. Every
measurement gets an empty database, which is dropped afterwards: dropping one makes the server write all its dirty pages
out, so each measurement begins in the same state, whoever was measured before.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.common import root

# The launcher is the one of the tests. Behind all else, so that none of the names there hides a package.
sys.path.append(str(root / "tests"))

from servers.postgres import PostgresAddress, PostgresProcess, running_postgres
from servers.premises import Guarded
from servers.process import ServerFailed, ServerMissing
from servers.valkey import ValkeyProcess

__all__ = ["AnyServer", "ServerFailed", "ServerMissing", "opened", "opened_valkey"]

_address_variable = "PERDURE_BENCH_POSTGRES"

# As a server that has some work to do is set; all else is the default, and fsync is on.
_settings = {"shared_buffers": "1GB", "max_wal_size": "8GB"}
_shown = ("fsync", "synchronous_commit", "shared_buffers", "max_wal_size")


class Server:
    """A running server. Without a `pid` it is somebody else's, perhaps on another machine."""

    def __init__(self, address: PostgresAddress, pid: int | None = None) -> None:
        self._address = address
        self.pid = pid

    def empty_database(self) -> AbstractContextManager[str]:
        """The URL of a new database, until it is left."""
        return self._address.fresh_database()

    def facts(self) -> str:
        """Which server it is and how it is set."""
        ((version,),) = self._address.fetch("show server_version")
        settings = [
            f"{name}={self._address.fetch(f'show {name}')[0][0]}" for name in sorted(_shown)
        ]
        whose = "of this run" if self.pid else f"at {urlsplit(self._address.url).hostname}"
        return f"{version}, {whose}, {' '.join(settings)}"


class Valkey:
    """A Valkey of this run. It is emptied for each measurement."""

    def __init__(self, process: ValkeyProcess, fsync: str) -> None:
        self._process = process
        self._fsync = fsync
        self.pid: int | None = process.pid

    @contextmanager
    def empty_database(self) -> Iterator[str]:
        """The address of the empty server, until it is left."""
        with self._process.address.client() as client:
            client.flushall()
            # The log begins anew as well: nobody rewrites it while somebody else is measured.
            client.bgrewriteaof()
            while client.info("persistence")["aof_rewrite_in_progress"]:
                time.sleep(0.05)
        yield f"{self._process.url}?durability=relaxed"

    def facts(self) -> str:
        with self._process.address.client() as client:
            info: Any = client.info("server")
        version = info.get("valkey_version") or info["redis_version"]
        name = f"{info.get('server_name', 'redis')} {version}"
        return f"{name}, of this run, appendfsync={self._fsync}"


AnyServer = Server | Valkey


@contextmanager
def opened_valkey(data_home: Path, fsync: str) -> Iterator[Valkey]:
    """One that syncs its log so often. Raises ServerMissing or ServerFailed."""
    settings = {"appendfsync": fsync, "auto-aof-rewrite-percentage": "0"}
    with Guarded(data_home) as premises, ValkeyProcess(premises, settings) as process:
        yield Valkey(process, fsync)


@contextmanager
def opened(data_home: Path) -> Iterator[Server]:
    """A server, its data under that directory. Raises ServerMissing or ServerFailed."""
    if url := os.environ.get(_address_variable):
        yield Server(running_postgres(url, _address_variable))
        return
    # Drivers would let them change what a URL says: which user, whether TLS.
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
    with Guarded(data_home) as premises, PostgresProcess(premises, _settings) as process:
        yield Server(process.address, process.pid)
