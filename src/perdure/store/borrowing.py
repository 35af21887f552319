"""Connections that are the caller's own: a statement through one of them, inside the caller's transaction.

Neither asyncpg nor SQLAlchemy is imported here: who gives us an object of theirs has them, and it is known by the
package of its class. Nothing here begins, commits or rolls back, and a connection that has no transaction is refused:
what is written would then stay, whatever becomes of the caller's work.
"""

from typing import Any, NoReturn

from perdure.model.limits import BadValue


def refuse(connection: object, problem: str) -> NoReturn:
    raise BadValue("connection", connection, problem)


def without_transaction(connection: object, how: str) -> NoReturn:
    refuse(connection, f"is in no transaction, so it would be sent at once, for good: {how}")


async def execute_postgres(connection: Any, statement: str, *values: object) -> None:
    """Execute a statement with $1, $2, … on a connection of asyncpg, or of SQLAlchemy on asyncpg."""
    if _is_from("asyncpg", connection):
        await _by_asyncpg(connection, statement, values)
    elif _is_from("sqlalchemy", connection):
        await _by_sqlalchemy(connection, statement, values)
    else:
        refuse(connection, "is none of asyncpg or of SQLAlchemy's asyncio on asyncpg")


def _is_from(package: str, connection: object) -> bool:
    """Whether its class, or one that it derives from, is of that package."""
    return any(one.__module__.partition(".")[0] == package for one in type(connection).__mro__)


async def _by_asyncpg(connection: Any, statement: str, values: tuple[object, ...]) -> None:
    # One that a pool has lent passes everything on to the connection it stands for; a pool itself does not.
    if not hasattr(connection, "is_in_transaction"):
        refuse(connection, "is no connection: acquire one, and begin a transaction on it")
    if not connection.is_in_transaction():
        without_transaction(connection, "use it inside `async with connection.transaction():`")
    await connection.execute(statement, *values)


async def _by_sqlalchemy(connection: Any, statement: str, values: tuple[object, ...]) -> None:
    if hasattr(connection, "sync_session"):
        connection = await connection.connection()
    if not hasattr(connection, "get_raw_connection"):
        refuse(
            connection, "is not of SQLAlchemy's asyncio: give an AsyncConnection or AsyncSession"
        )
    driver = f"{connection.dialect.name}+{connection.dialect.driver}"
    if driver != "postgresql+asyncpg":
        refuse(connection, f"is one of {driver}; postgresql+asyncpg is needed")
    # SQLAlchemy begins by itself, at the latest with this statement, but not when it was told to commit each.
    raw = await connection.get_raw_connection()
    if getattr(raw.dbapi_connection, "autocommit", False):
        without_transaction(connection, "its isolation level must not be AUTOCOMMIT")
    await connection.exec_driver_sql(statement, values)
