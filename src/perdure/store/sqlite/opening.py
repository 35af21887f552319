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
from perdure.store.base import Versions
from perdure.store.sql import Migration, load_migrations, older_code_line
from perdure.store.sqlite import places
from perdure.store.sqlite.statements import Statements

Synchronous = Literal["FULL", "NORMAL"]

migrations: Final[list[Migration]] = load_migrations(__package__)
# The schema that this code writes.
schema_known: Final = migrations[-1].number

# STRICT tables came with 3.37, the operator ->> with 3.38.
_sqlite_min = (3, 38, 0)
_statements_kept = 512
_busy_timeout_ms = 5000
_tables_named = 3

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


def checked_path(path: str, *, network: bool = False) -> str:
    """The real path of the file (one lock, whatever links lead to it), or StoreRefused.

    With `network` it may be on a network file system, at the risk of whoever says so.
    """
    if path == ":memory:" or path.startswith("file:"):
        raise StoreRefused(f"{path!r} is not a path of a file; for a store in memory use memory://")
    if sqlite3.sqlite_version_info < _sqlite_min:
        raise StoreRefused(f"SQLite {sqlite3.sqlite_version} is too old: 3.38 or newer is needed")
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
    if not network:
        places.refuse_network(real)
    return real


def connect(path: str, *, synchronous: Synchronous | None) -> sqlite3.Connection:
    """A connection in autocommit mode: we say ourselves when a transaction begins.

    `synchronous` is for the writer, which opens under the side lock; without it one can only read.
    """
    mode = "rw" if synchronous is None else "rwc"  # readers too write: into the log's shared memory
    try:
        connection = sqlite3.connect(
            f"{Path(path).as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,  # closed by another thread, when its own has ended
            cached_statements=_statements_kept,
        )
    except sqlite3.Error as error:
        raise StoreRefused(f"{path} cannot be opened as a SQLite database: {error}") from error
    try:
        _set(connection, _pragmas)
        if synchronous is None:
            # A megabyte: it looks, and goes.
            _set(connection, {"query_only": 1, "cache_size": -1024})
        else:
            # Before the switch to the log, which writes: a file that is not ours stays as it is.
            _version(Statements(connection))
            _make_durable(connection, synchronous)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise StoreRefused(f"{path} cannot be used as a SQLite database: {error}") from error
    except StoreRefused as refused:
        connection.close()
        raise StoreRefused(f"{path}: {refused.reason}") from None
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
            sql.run("put_meta", {"name": "min_code", "value": str(min_code())})
        if version == 0:
            sql.run("put_meta", {"name": "created", "value": new_id()})
        sql.run("commit")
    except sqlite3.Error as error:
        raise StoreRefused(f"the schema could not be brought up: {error}") from error
    finally:
        if sql.connection.in_transaction:
            sql.run("rollback")


def min_code() -> int:
    """The oldest code that may use what the migrations make, by the schema that it knows."""
    return max(one.number for one in migrations if older_code_line not in one.text.splitlines())


def check_code(sql: Statements) -> None:
    """StoreRefused if the file needs newer code; it may have come to that while it was open."""
    check_min_code(sql, _meta_value(sql, "min_code"))


def check_min_code(sql: Statements, min_code: str | None) -> None:
    """The same, for one who has read the fact `min_code` along with something else."""
    needed = _number("min_code", min_code)
    if needed > schema_known:
        version = _number("schema", _meta_value(sql, "schema"))
        raise StoreRefused(
            f"schema version {version} is newer than this code knows ({schema_known}), and needs "
            f"code that knows {needed}: upgrade perdure"
        )


def _version(sql: Statements) -> int:
    """The schema of the file, 0 if it is empty; StoreRefused if it is not ours or too new for us.

    It may be newer than this code knows: what code it needs is another number.
    """
    tables = _tables(sql.connection)
    if not tables:
        return 0
    if not sql.row("has_meta")[0] or not _has_our_meta(sql.connection):
        raise _not_ours(f"it is a SQLite database with the tables {_some(tables)}")
    check_code(sql)
    return _number("schema", _meta_value(sql, "schema"))


def stored(sql: Statements) -> Versions:
    """What the file says of its schema, also if it is newer than this code may use; StoreRefused if it is not ours."""
    tables = _tables(sql.connection)
    if not tables:
        return Versions(stored=None, min_code=None, known=schema_known)
    if not sql.row("has_meta")[0] or not _has_our_meta(sql.connection):
        raise _not_ours(f"it is a SQLite database with the tables {_some(tables)}")
    return Versions(
        stored=_number("schema", _meta_value(sql, "schema")),
        min_code=_number("min_code", _meta_value(sql, "min_code")),
        known=schema_known,
    )


def stored_at(path: str) -> Versions:
    """The same of a file that nobody here has opened; one that is not there is not made."""
    if not os.path.exists(path):
        return Versions(stored=None, min_code=None, known=schema_known)
    connection = connect(path, synchronous=None)
    try:
        return stored(Statements(connection))
    except sqlite3.DatabaseError as error:
        raise StoreRefused(f"{path} cannot be used as a SQLite database: {error}") from error
    finally:
        connection.close()


def _tables(connection: sqlite3.Connection) -> list[str]:
    names = connection.execute(
        "select name from sqlite_schema where type in ('table', 'view') "
        r"and name not like 'sqlite\_%' escape '\' order by name"
    )
    return [name for (name,) in names]


def _has_our_meta(connection: sqlite3.Connection) -> bool:
    columns = {name for (name,) in connection.execute("select name from pragma_table_info('meta')")}
    return {"name", "value"} <= columns


def _some(names: list[str]) -> str:
    more = len(names) - _tables_named
    return ", ".join(names[:_tables_named]) + (f" and {more} more" if more > 0 else "")


def _meta_value(sql: Statements, name: str) -> str | None:
    row = sql.row("meta", {"name": name})
    return None if row is None else row[0]


def _number(name: str, value: str | None) -> int:
    if value is None or not str(value).isdecimal():
        raise _not_ours(f"its table meta has no number {name!r}")
    return int(value)


def _not_ours(why: str) -> StoreRefused:
    return StoreRefused(
        f"this is not a file of perdure: {why}; give the path of a new file, or of one that "
        "perdure made"
    )


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
