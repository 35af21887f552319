"""Opening the file: refuse what cannot work, set what must be set, bring the schema up.

Everything that is refused is refused with what to do about it, before anything is written.
"""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from perdure.errors import StoreRefused
from perdure.store.sql import Migration, load_migrations
from perdure.store.sqlite.statements import Statements

Synchronous = Literal["FULL", "NORMAL"]

migrations: Final[list[Migration]] = load_migrations(__package__)
# The schema that this code writes, and the oldest code that may still use it.
schema_known: Final = migrations[-1].number
min_code: Final = 1

# STRICT tables came with 3.37.
_sqlite_min = (3, 37, 0)
_statements_kept = 512
_busy_timeout_ms = 5000

# Set on every connection, and read back: distributions build SQLite with other defaults.
_pragmas: Final[dict[str, int]] = {
    "busy_timeout": _busy_timeout_ms,
    "foreign_keys": 0,
    "mmap_size": 0,
    # The writer copies the log itself, under the side lock; a reader must never do it by the way.
    "wal_autocheckpoint": 0,
    # KiB. Room for the pages that a large batch changes; what else is hot, the system's cache holds.
    "cache_size": -4 * 1024,
}


def checked_path(path: str) -> str:
    """The real path of the file (one lock, whatever links lead to it), or StoreRefused."""
    if path == ":memory:" or path.startswith("file:"):
        raise StoreRefused(f"{path!r} is not a path of a file; for a store in memory use memory://")
    if sqlite3.sqlite_version_info < _sqlite_min:
        raise StoreRefused(
            f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or newer is needed for strict tables"
        )
    real = os.path.realpath(path)
    if os.path.isdir(real):
        raise StoreRefused(f"{real} is a directory; give the path of a file in it")
    directory = os.path.dirname(real)
    if not os.path.isdir(directory):
        raise StoreRefused(f"the directory {directory} does not exist; create it first")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise StoreRefused(
            f"the directory {directory} is not writable; the log lies beside the file"
        )
    if os.path.exists(real) and not os.access(real, os.W_OK):
        raise StoreRefused(f"{real} is not writable")
    return real


def connect(path: str, *, synchronous: Synchronous | None) -> sqlite3.Connection:
    """A connection in autocommit mode: we say ourselves when a transaction begins.

    `synchronous` is for the writer, which opens under the side lock; without it one can only read.
    """
    mode = "rw" if synchronous is None else "rwc"  # readers too write: into the log's shared memory
    connection = sqlite3.connect(
        f"{Path(path).as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,  # closed by another thread, when its own has ended
        cached_statements=_statements_kept,
    )
    try:
        _set(connection, _pragmas)
        if synchronous is None:
            _set(
                connection, {"query_only": 1, "cache_size": -1024}
            )  # a megabyte: it looks, and goes
        else:
            _make_durable(connection, synchronous)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise StoreRefused(f"{path} cannot be used as a SQLite database: {error}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _make_durable(connection: sqlite3.Connection, synchronous: Synchronous) -> None:
    mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
    if mode != "wal":
        raise StoreRefused(
            f"journal_mode is {mode!r} and not 'wal'; is the file on a network share?"
        )
    _set(connection, {"synchronous": 2 if synchronous == "FULL" else 1})
    if sys.platform == "darwin":
        _set(connection, {"fullfsync": 1, "checkpoint_fullfsync": 1})


def _set(connection: sqlite3.Connection, pragmas: dict[str, int]) -> None:
    for name, value in pragmas.items():
        connection.execute(f"pragma {name} = {value}").close()
        row = connection.execute(f"pragma {name}").fetchone()
        # A SQLite built without a feature says nothing about it; then it is off, as mmap should be.
        found = 0 if row is None else row[0]
        if found != value:
            raise StoreRefused(f"SQLite refused {name}={value}; it stays {found}")


def migrate(sql: Statements, new_id: Callable[[], str]) -> None:
    """Bring the schema up, all steps in one transaction: killed in it, the file is as it was."""
    try:
        sql.run("begin")
        version = _version(sql)
        for migration in migrations[version:]:
            for statement in statements_of(migration.text):
                sql.connection.execute(statement)
        if version < schema_known:
            sql.run("put_meta", {"name": "schema", "value": str(schema_known)})
            sql.run("put_meta", {"name": "min_code", "value": str(min_code)})
        if version == 0:
            sql.run("put_meta", {"name": "created", "value": new_id()})
        sql.run("commit")
    except sqlite3.Error as error:
        raise StoreRefused(f"the schema could not be brought up: {error}") from error
    finally:
        if sql.connection.in_transaction:
            sql.run("rollback")


def _version(sql: Statements) -> int:
    if not sql.row("has_meta")[0]:
        return 0
    version, needed = (_meta_number(sql, name) for name in ("schema", "min_code"))
    if version > schema_known:
        raise StoreRefused(
            f"schema version {version} is newer than this code knows ({schema_known}): "
            "upgrade perdure"
        )
    if needed > schema_known:
        raise StoreRefused(
            f"this file needs code that knows schema {needed}; this code knows {schema_known}: "
            "upgrade perdure"
        )
    return version


def _meta_number(sql: Statements, name: str) -> int:
    row = sql.row("meta", {"name": name})
    if row is None or not row[0].isdigit():
        raise StoreRefused(f"the table meta has no number {name!r}: this is not a file of perdure")
    return int(row[0])


def statements_of(text: str) -> list[str]:
    """A migration in single statements. (The driver's executescript would commit in the middle.)"""
    statements, pending = [], ""
    for line in text.splitlines():
        if not pending and (not line.strip() or line.startswith("--")):
            continue
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    if pending.strip():
        raise ValueError(f"a migration ends in the middle of a statement: {pending!r:.200}")
    return statements


@contextmanager
def impatient(connection: sqlite3.Connection) -> Iterator[None]:
    """Within it nothing waits for other connections: a checkpoint does what it can at once."""
    connection.execute("pragma busy_timeout = 0").close()
    try:
        yield
    finally:
        connection.execute(f"pragma busy_timeout = {_busy_timeout_ms}").close()
