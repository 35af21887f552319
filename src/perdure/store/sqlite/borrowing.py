"""Writing a send through the caller's own `sqlite3.Connection`, into the transaction that it has, or is about to have.

It must lead to the file of this store, as its main database: SQLite does not commit to several files as one.
"""

import os
import sqlite3
from typing import Any

from msgspec.structs import astuple

from perdure.model.records import OutboxRecord
from perdure.store.borrowing import refuse, without_transaction
from perdure.store.sqlite.statements import queries


def write_outbox(connection: Any, path: str, row: OutboxRecord) -> None:
    """Write the row, or raise BadValue. `path` is the real path of the store's file."""
    if not isinstance(connection, sqlite3.Connection):
        refuse(connection, "is no sqlite3.Connection, as this store needs")
    cursor = connection.cursor()
    # Whatever rows look like to the caller, here they are tuples.
    cursor.row_factory = None
    try:
        found = _main_file(cursor)
        if found != path:
            other = found or "a database in memory"
            refuse(connection, f"leads to {other}, but this store is {path}")
        if not connection.in_transaction and _commits_by_itself(connection):
            without_transaction(connection, "execute `begin immediate` first")
        cursor.execute(queries["write_outbox"], astuple(row))
    finally:
        cursor.close()


def _main_file(cursor: sqlite3.Cursor) -> str:
    """The real path of what the connection calls `main`; "" for a database in memory."""
    files = {name: file for _, name, file in cursor.execute("pragma database_list")}
    return os.path.realpath(files["main"]) if files["main"] else ""


def _commits_by_itself(connection: sqlite3.Connection) -> bool:
    """Whether a statement outside a transaction is committed at once; else the driver begins one before it."""
    # From Python 3.12 on; a constant of its own says that isolation_level decides, as it did before.
    autocommit: object = getattr(connection, "autocommit", None)
    if isinstance(autocommit, bool):
        return autocommit
    return connection.isolation_level is None
