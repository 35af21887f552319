"""The Postgres of one run of the benchmark: started and stopped by it, from a wheel, with its data on a disk.

PERDURE_BENCH_POSTGRES=<URL> names a running server instead; its role must be allowed to create databases. Every
measurement gets an empty database, which is dropped afterwards: dropping one makes the server write all its dirty pages
out, so each measurement begins in the same state, whoever was measured before.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.common import root

# The launcher is the one of the tests. Behind all else, so that none of the names there hides a package.
sys.path.append(str(root / "tests"))

from servers.postgres import PostgresAddress, PostgresProcess, running_postgres
from servers.premises import Guarded
from servers.process import ServerFailed, ServerMissing

__all__ = ["Server", "ServerFailed", "ServerMissing", "opened"]

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
