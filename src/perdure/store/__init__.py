"""Stores: one contract, several ways to keep the rows. `open_store` finds the one a URL names."""

from collections.abc import Callable
from urllib.parse import parse_qsl

from perdure.errors import StoreRefused
from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.store.base import Store
from perdure.store.urls import flag, without_password

_known = "memory://  sqlite:///path  postgresql://host/database  redis://host"


def open_store(
    url: str, *, namespace: str | None, clock: Clock, ids: Ids, lifecycle: bool
) -> Store:
    """The store that `url` names, not yet opened. Backends are imported only when asked for."""
    if not isinstance(url, str):
        raise StoreRefused(f"a store URL is text, not {type(url).__name__}; known: {_known}")
    make = _makers.get(url.partition(":")[0].lower())
    if make is None:
        raise StoreRefused(f"no store for {without_password(url)!r}; known: {_known}")
    return make(url, namespace, clock, ids, lifecycle)


def _memory(url: str, namespace: str | None, clock: Clock, ids: Ids, lifecycle: bool) -> Store:
    from perdure.store.memory import MemoryStore

    if url != "memory://":
        raise StoreRefused(f"{url!r}: a memory store has no path or options; use memory://")
    return MemoryStore(clock=clock, ids=ids, lifecycle=lifecycle)


def _sqlite(url: str, namespace: str | None, clock: Clock, ids: Ids, lifecycle: bool) -> Store:
    from perdure.store.sqlite.store import SqliteStore

    if not url.startswith("sqlite:///"):
        raise StoreRefused(f"{url!r}: write sqlite:///relative.db or sqlite:////absolute/path.db")
    path, _, query = url.removeprefix("sqlite:///").partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    synchronous = options.pop("synchronous", "FULL").upper()
    notify = flag(url, options, "notify", True)
    network = flag(url, options, "network", False)
    if options:
        raise StoreRefused(f"{url!r}: unknown option {', '.join(sorted(options))}")
    if synchronous not in ("FULL", "NORMAL"):
        raise StoreRefused(f"{url!r}: synchronous is FULL or NORMAL, not {synchronous}")
    return SqliteStore(
        _namespaced(path, namespace),
        clock=clock,
        ids=ids,
        synchronous=synchronous,  # type: ignore[arg-type]
        lifecycle=lifecycle,
        notify=notify,
        network=network,
    )


def _postgres(url: str, namespace: str | None, clock: Clock, ids: Ids, lifecycle: bool) -> Store:
    try:
        from perdure.store.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StoreRefused("Postgres needs a driver: pip install 'perdure[postgres]'") from error
    return PostgresStore(url, namespace=namespace, clock=clock, ids=ids, lifecycle=lifecycle)


def _redis(url: str, namespace: str | None, clock: Clock, ids: Ids, lifecycle: bool) -> Store:
    try:
        from perdure.store.redis.store import RedisStore
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise StoreRefused("Redis needs a driver: pip install 'perdure[redis]'") from error
    return RedisStore(url, namespace=namespace, clock=clock, ids=ids, lifecycle=lifecycle)


def _namespaced(path: str, namespace: str | None) -> str:
    """A namespace is a file of its own: shop.db and namespace eu give shop.eu.db."""
    if namespace is None or not path:
        return path
    stem, dot, suffix = path.rpartition(".")
    return f"{stem}.{namespace}.{suffix}" if dot and "/" not in suffix else f"{path}.{namespace}"


_makers: dict[str, Callable[[str, str | None, Clock, Ids, bool], Store]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    "redis": _redis,
    "rediss": _redis,
    "valkey": _redis,
    "valkeys": _redis,
}
