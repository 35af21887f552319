"""Bringing the schema up: once, whoever comes first, while the others wait.

All steps are one transaction under an advisory lock of the namespace: killed in it, the schema is as it was. Migrations
only add; what code a schema needs at least is another number (`min_code`), read again with every life sign, so that
old and new workers can run side by side while a fleet is renewed. The functions belong to the code: each version of
one has a name of its own. A migration that raises `min_code` drops those of the code that it shuts out: so nobody, also
without life signs, goes on writing.
"""

import hashlib
from collections.abc import Callable
from typing import Final

import asyncpg

from perdure.errors import StoreRefused
from perdure.store.base import Versions
from perdure.store.postgres.connecting import Connection
from perdure.store.postgres.statements import Statements, functions, quote
from perdure.store.sql import Migration, load_migrations, older_code_line

migrations: Final[list[Migration]] = load_migrations(__package__)
# The schema that this code writes.
schema_known: Final = migrations[-1].number
_name_max: Final = 63

# What the schema says of itself: its version, the code that it needs, what its functions were made of.
Facts = dict[str, str]


def schema_name(namespace: str | None) -> str:
    """The schema of a namespace; StoreRefused if Postgres would cut its name short."""
    name = "perdure" if namespace is None else f"perdure_{namespace}"
    if len(name.encode()) > _name_max:
        raise StoreRefused(f"the namespace {namespace!r} is too long for the name of a schema")
    return name


def lock_class(schema: str) -> int:
    """The first half of the numbers by which the advisory locks of a namespace are known on the whole server."""
    digest = hashlib.blake2b(schema.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big", signed=True)


async def bring_up(connection: Connection, schema: str, new_id: Callable[[], str]) -> None:
    """Make or renew the schema, unless somebody has; raises StoreRefused."""
    statements = Statements(schema)
    try:
        if await _is_up(connection, schema, statements):
            return
        # What the others did is to be seen once the lock is ours, whatever the role or the database says.
        async with connection.transaction(isolation="read_committed"):
            await connection.execute("select pg_advisory_xact_lock($1, -1)", lock_class(schema))
            await _migrate(connection, schema, statements, new_id)
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreRefused(
            f"the schema {schema!r} could not be made or used: {error}; grant create on the database to this role, "
            f"or have somebody run: create schema {quote(schema)} authorization <role>"
        ) from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise StoreRefused(f"the schema {schema!r} could not be brought up: {error}") from error


async def _is_up(connection: Connection, schema: str, statements: Statements) -> bool:
    """Nearly always: then nothing is locked or written."""
    if not await _has_meta(connection, schema):
        return False
    facts = await _facts(connection, statements)
    _check_code(schema, facts)
    version = _number(schema, "schema", facts)
    if version > schema_known:
        return True
    return version == schema_known and all(
        facts.get(name) == _digest(text) for name, text in functions().items()
    )


async def _migrate(
    connection: Connection, schema: str, statements: Statements, new_id: Callable[[], str]
) -> None:
    version = 0
    facts: Facts = {}
    if await _has_meta(connection, schema):
        facts = await _facts(connection, statements)
        _check_code(schema, facts)
        version = _number(schema, "schema", facts)
    else:
        await _refuse_others(connection, schema)
        # Somebody may have made it for us, because our role may not: `if not exists` would ask for that right all the
        # same.
        if not await connection.fetchval("select 1 from pg_namespace where nspname = $1", schema):
            await connection.execute(f"create schema {quote(schema)}")
    for migration in migrations[version:]:
        await connection.execute(migration.text.replace("{schema}", quote(schema)))
    if version < schema_known:
        await _put_fact(connection, statements, "schema", str(schema_known))
        await _put_fact(connection, statements, "min_code", str(min_code()))
    if version == 0:
        await _put_fact(connection, statements, "created", new_id())
    for name, text in functions().items():
        if facts.get(name) != _digest(text):
            own = text.replace("{schema}", quote(schema))
            await connection.execute(own.replace("{lock_class}", str(lock_class(schema))))
            await _put_fact(connection, statements, name, _digest(text))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def min_code() -> int:
    """The oldest code that may use what the migrations make, by the schema that it knows."""
    return max(one.number for one in migrations if older_code_line not in one.text.splitlines())


def _check_code(schema: str, facts: Facts) -> None:
    """StoreRefused if the schema needs newer code; whether it has come to that later, the life signs tell."""
    needed = _number(schema, "min_code", facts)
    if needed > schema_known:
        raise too_new(schema, needed)


def too_new(schema: str, needed: int) -> StoreRefused:
    """What to say of a schema that somebody else's newer code has made."""
    return StoreRefused(
        f"the schema {schema!r} needs code that knows version {needed}, and this code knows {schema_known}: "
        "upgrade perdure"
    )


def outdated(schema: str, error: Exception) -> StoreRefused:
    """What to say when what this code calls is no longer there."""
    return StoreRefused(
        f"the schema {schema!r} no longer serves this code ({error}): newer code has renewed it; upgrade perdure"
    )


async def stored(connection: Connection, schema: str) -> Versions:
    """What the schema says of itself, also if it is newer than this code may use. StoreRefused if it is not ours."""
    if not await _has_meta(connection, schema):
        await _refuse_others(connection, schema)
        return Versions(stored=None, min_code=None, known=schema_known)
    facts = await _facts(connection, Statements(schema))
    return Versions(
        stored=_number(schema, "schema", facts),
        min_code=_number(schema, "min_code", facts),
        known=schema_known,
    )


async def _has_meta(connection: Connection, schema: str) -> bool:
    """Whether the schema may be one of ours: by the catalogue, which needs no privilege."""
    columns = await connection.fetch(
        "select a.attname from pg_attribute as a join pg_class as c on c.oid = a.attrelid "
        "join pg_namespace as n on n.oid = c.relnamespace "
        "where n.nspname = $1 and c.relname = 'meta' and c.relkind = 'r' and a.attnum > 0",
        schema,
    )
    return [row["attname"] for row in columns] == ["name", "value"]


async def _refuse_others(connection: Connection, schema: str) -> None:
    """A schema of that name that is not ours stays untouched."""
    tables = await connection.fetch(
        "select c.relname from pg_class as c join pg_namespace as n on n.oid = c.relnamespace "
        "where n.nspname = $1 and c.relkind <> 'i' order by c.relname limit 3",
        schema,
    )
    if tables:
        names = ", ".join(row["relname"] for row in tables)
        raise StoreRefused(
            f"the schema {schema!r} is not one of perdure: it has the tables {names}; use another namespace"
        )


async def _facts(connection: Connection, statements: Statements) -> Facts:
    rows = await connection.fetch(statements["meta"].text)
    return {row["name"]: row["value"] for row in rows}


async def _put_fact(connection: Connection, statements: Statements, name: str, value: str) -> None:
    await connection.execute(statements["put_meta"].text, name, value)


def _number(schema: str, name: str, facts: Facts) -> int:
    value = facts.get(name, "")
    if not value.isdecimal():
        raise StoreRefused(
            f"the schema {schema!r} is not one of perdure: its table meta has no number {name!r}; use another namespace"
        )
    return int(value)
