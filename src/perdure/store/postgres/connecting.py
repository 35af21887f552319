"""Connections to the server: how they are made, what is set on them, what is refused.

One connection writes; a few read; a life sign and the hints of others have one each; a few more, with none of our
settings, are for the bodies of callers. After an error whose effect is unknown, or a cancelled call, a connection is
thrown away, never used again: the next answer on it could be another's.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from perdure.errors import StoreRefused
from perdure.store.postgres.judging import REFUSED, judged
from perdure.store.urls import flag, is_relaxed, without_password

if TYPE_CHECKING:
    # Only the stubs know that it is generic.
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

version_min: Final = 14
_connect_s: Final = 10.0

# How soon the server misses a client that is gone without a word.
_keepalives: Final[dict[str, str]] = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
# Set on every connection that is ours alone. Behind a pooler there is no session to set anything on: the functions
# set for themselves what the writing needs.
_settings: Final[dict[str, str]] = {
    "application_name": "perdure",
    "default_transaction_isolation": "read committed",
    # A client that stopped in the midst of a transaction must not hold its locks for ever.
    "idle_in_transaction_session_timeout": "60s",
    "statement_timeout": "60s",
    "lock_timeout": "15s",
    # Plans by index, also on tables that were never analysed; see functions/apply_v1.sql. Behind a pooler each
    # statement is planned anew, for tables as large as they then are: that will do.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    **_keepalives,
}


class Options(NamedTuple):
    """What a URL says: where the server is, and how to speak to it."""

    url: str
    listen_url: str | None  # for hints, past a pooler; None: no hints
    pgbouncer: bool
    relaxed: bool  # synchronous_commit may be off

    def __repr__(self) -> str:
        return f"Options({without_password(self.url)!r}, pgbouncer={self.pgbouncer})"


def parse_url(url: str) -> Options:
    """Our own options are taken out of the URL; what is left is the driver's."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # The error's own words may hold a part of the password.
        raise StoreRefused(
            f"{without_password(url)} is no URL: characters that mean something in one are written as %40, %2F, %5B"
        ) from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    silent = options.get("notify") == "0"
    pgbouncer = flag(url, options, "pgbouncer", False)
    notify = flag(url, options, "notify", not pgbouncer)
    relaxed = is_relaxed(url, options)
    listen_url = options.pop("listen_url", None)
    if listen_url is None and notify and pgbouncer:
        raise StoreRefused(
            f"{without_password(url)}: through a pooler nobody can listen: give the server's own address as "
            "listen_url=, or leave notify=1 out"
        )
    if listen_url is not None and silent:
        raise StoreRefused(
            f"{without_password(url)}: notify=0 and listen_url= contradict each other"
        )
    scheme = "postgresql" if parts.scheme == "postgres" else parts.scheme
    plain = urlunsplit(parts._replace(scheme=scheme, query=urlencode(options)))
    if listen_url is None and notify:
        listen_url = plain
    return Options(plain, listen_url, pgbouncer, relaxed)


async def connect(
    options: Options,
    *,
    url: str | None = None,
    ours: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Connection:
    """A connection that may write. Raises StoreRefused for what will not change by itself, else the driver's errors.

    One that is not `ours` is for others to use: nothing is set on it but how soon the server misses a dead client,
    whose rows would stay locked. `settings` are set in place of the usual.
    """
    pooled = options.pgbouncer and url is None
    arguments: dict[str, Any] = {"statement_cache_size": 0} if pooled else {}
    if not pooled:
        arguments["server_settings"] = {**_settings, **(settings or {})} if ours else _keepalives
    try:
        connection: Connection = await asyncpg.connect(
            url or options.url, timeout=_connect_s, **arguments
        )
    except (
        asyncpg.InvalidPasswordError,
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
        asyncpg.InsufficientPrivilegeError,
        # Options of the URL that are neither ours nor the driver's go to the server as settings.
        asyncpg.UndefinedObjectError,
        asyncpg.InvalidParameterValueError,
        asyncpg.CantChangeRuntimeParamError,
        asyncpg.exceptions.ProtocolViolationError,
        asyncpg.exceptions.ClientConfigurationError,
        ssl.SSLError,
        ValueError,
    ) as error:
        raise StoreRefused(f"{without_password(options.url)}: {error}") from error
    try:
        await _refuse_standby(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _refuse_standby(connection: Connection) -> None:
    # At each connection: a name may lead to another server by now.
    if await connection.fetchval("select pg_is_in_recovery()", timeout=_connect_s):
        raise StoreRefused(
            "this server is a standby, which cannot write: give the address of the primary, or add "
            "target_session_attrs=primary to a URL with several hosts"
        )


async def check_server(connection: Connection, options: Options) -> None:
    """Raises StoreRefused for a server that cannot keep our promises, with what to do about it."""
    number = connection.get_server_version().major
    if number < version_min:
        raise StoreRefused(f"Postgres {number} is too old: {version_min} or newer is needed")
    found = await connection.fetchrow(
        "select current_setting('fsync') as fsync, current_setting('synchronous_commit') as synchronous_commit, "
        "current_setting('server_encoding') as server_encoding"
    )
    assert found is not None
    for one in judged(dict(found)):
        if one.ok or (options.relaxed and one.name not in REFUSED):
            continue
        accept = "" if one.name in REFUSED else ", or accept that with ?durability=relaxed"
        raise StoreRefused(one.why + accept)


def is_lost(error: BaseException) -> bool:
    """Whether an error says that the connection is gone, and so nothing about what was under way."""
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        # A value that the driver could not send: nothing was.
        return False
    return isinstance(
        error,
        asyncpg.PostgresConnectionError
        | asyncpg.InterfaceError
        | asyncpg.exceptions.AdminShutdownError
        | asyncpg.exceptions.CrashShutdownError
        | asyncpg.exceptions.CannotConnectNowError
        | asyncpg.exceptions.IdleInTransactionSessionTimeoutError
        | asyncpg.exceptions.InternalClientError
        | OSError
        | asyncio.IncompleteReadError
        | TimeoutError,
    )


def is_refusal(error: BaseException) -> bool:
    """Whether it is the server's own word, and not its goodbye: the call is over, and the connection can be used on."""
    return isinstance(error, asyncpg.PostgresError) and not is_lost(error)
