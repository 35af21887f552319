"""A connection in the hands of others: within a transaction of ours, which is not theirs to end.

SQLite asks before it prepares a statement whether that may be done. So neither SQL nor the driver's own `commit`,
`rollback`, `executescript` and `with connection:` can end the transaction; savepoints are free.
"""

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from perdure.errors import Permanent
from perdure.store.transaction import BodyFailed

T = TypeVar("T")


def within(connection: sqlite3.Connection, call: Callable[[sqlite3.Connection], T]) -> T:
    """What `call` gives. Raises BodyFailed if it has tried to end the transaction, or if SQLite has ended it."""
    tried: list[str] = []

    def judge(action: int, what: str | None, *rest: Any) -> int:
        if action != sqlite3.SQLITE_TRANSACTION:
            return sqlite3.SQLITE_OK
        tried.append(str(what).lower())
        return sqlite3.SQLITE_DENY

    connection.set_authorizer(judge)
    try:
        given = call(connection)
    except BodyFailed as failed:
        if tried:
            raise BodyFailed(_not_yours(tried[0])) from failed
        raise
    finally:
        _take_back(connection)
    if tried:  # it has caught what it was told
        raise BodyFailed(_not_yours(tried[0]))
    if not connection.in_transaction:
        raise BodyFailed(RuntimeError("SQLite has rolled the transaction back after an error"))
    return given


def _take_back(connection: sqlite3.Connection) -> None:
    """Ours again: what was set on it for other eyes does not concern the op that follows."""
    connection.set_authorizer(None)
    connection.row_factory = None
    connection.text_factory = str


def _not_yours(what: str) -> Permanent:
    return Permanent(
        f"the body of ctx.transaction tried to {what}: its transaction is committed with the record of the step, when "
        "the body has returned, and rolled back when it raises"
    )
