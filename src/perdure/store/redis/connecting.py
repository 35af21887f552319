"""The way to the server: what a URL says, a client, and whether the server keeps what it is given.

redis-py's own way of trying again is switched off: what was sent and not answered may have been done, and only the
store knows how to find out.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from perdure.errors import NotRunning, StoreRefused
from perdure.store.redis.judging import judged
from perdure.store.redis.layout import Layout
from perdure.store.redis.scripts import script
from perdure.store.urls import flag, is_relaxed, without_password

log = logging.getLogger("perdure.store.redis")

Client = Any  # of one server, or of a cluster: the calls are the same

_connect_s: Final = 10.0
_close_s: Final = 5.0
_connections_max: Final = 8
_version_min: Final = (6, 2)
_relaxed: Final = "?durability=relaxed accepts that"

# A server that is away, is starting, or has just become a replica of another.
_away: Final = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
    exceptions.TryAgainError,
    OSError,
    TimeoutError,
)


class Options(NamedTuple):
    """What a URL says."""

    url: str  # without what is ours
    relaxed: bool
    notify: bool  # whether processes tell each other of their commits

    @property
    def shown(self) -> str:
        return without_password(self.url)


_unknown_option = re.compile(r"unexpected keyword argument '(\w+)'")


def parse_url(url: str) -> Options:
    """Raises StoreRefused for what no client could use."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise StoreRefused(f"{without_password(url)!r} is no address of a Redis") from None
    if not re.fullmatch("/?[0-9]*", parts.path):
        # redis-py would take the first database then, whatever was meant.
        raise StoreRefused(
            f"{without_password(url)!r} is no address of a Redis: after the host comes the number of a database"
        )
    scheme = parts.scheme.lower().replace("valkey", "redis")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    relaxed = is_relaxed(url, options)
    notify = flag(url, options, "notify", True)
    for name in _common().keys() & options.keys():
        raise StoreRefused(f"{without_password(url)}: {name} is not yours to choose; leave it out")
    plain = urlunsplit((scheme, parts.netloc, parts.path, urlencode(options), ""))
    try:
        BlockingConnectionPool.from_url(plain).make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, AttributeError, exceptions.RedisError) as error:
        # Other errors than of an unknown option may repeat a part of the password.
        unknown = _unknown_option.search(str(error)) if isinstance(error, TypeError) else None
        ours = "there are durability=, notify= and those of redis-py"
        why = "" if unknown is None else f": it has no option {unknown[1]!r}; {ours}"
        raise StoreRefused(f"{without_password(url)!r} is no address of a Redis{why}") from None
    return Options(plain, relaxed, notify)


def address_of(place: Any) -> str:
    """Where a pool of connections, or a URL, leads to."""
    pool = BlockingConnectionPool.from_url(place) if isinstance(place, str) else place
    known = pool.connection_kwargs
    host = known.get("path") or f"{known.get('host', 'localhost')}:{known.get('port', 6379)}"
    return f"{host}/{known.get('db') or 0}"


def database_of(options: Options) -> str:
    """The number of the database that a URL names."""
    return address_of(options.url).rpartition("/")[2]


def is_lost(error: BaseException) -> bool:
    """Whether the server could not be reached, was lost on the way, has time for nobody, or is a replica by now."""
    return isinstance(error, _away) or _says(error, "BUSY", "READONLY")


def refuses_all(error: BaseException) -> bool:
    """Whether it takes no writes from anybody: out of memory, its disk fails, its replicas are away. It may pass."""
    return _says(error, "OOM", "MISCONF", "NOREPLICAS") or isinstance(
        error, exceptions.OutOfMemoryError
    )


# What a script was told stands within what it says, before Redis 7.
_in_script = re.compile(r"Error running script .*: -(?=[A-Z]+ )")


def _says(error: BaseException, *words: str) -> bool:
    if not isinstance(error, exceptions.ResponseError):
        return False
    if isinstance(error, exceptions.ReadOnlyError):
        return "READONLY" in words
    return _in_script.sub("", str(error), count=1).startswith(words)


async def connect(options: Options) -> Client:
    """A client of the server, or of the cluster that it belongs to."""
    client = single_client(options)
    try:
        info = await client.info("cluster")
    except BaseException:
        await client.aclose()
        raise
    if not info.get("cluster_enabled"):
        return client
    await client.aclose()
    cluster = RedisCluster.from_url(options.url, **_common())
    try:
        await cluster.initialize()
    except BaseException:
        await cluster.aclose()
        raise
    return cluster


def single_client(options: Options) -> Client:
    """A client of the one server that the URL names."""
    pool = BlockingConnectionPool.from_url(
        options.url, max_connections=_connections_max, timeout=_connect_s, **_common()
    )
    client = Redis(connection_pool=pool)
    client.auto_close_connection_pool = True
    return client


def _common() -> dict[str, Any]:
    return {
        "socket_connect_timeout": _connect_s,
        # The store has a bound of its own; and that of redis-py can swallow a cancellation (asyncio.wait_for before
        # Python 3.12).
        "socket_timeout": None,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": False,
        "protocol": 2,
    }


async def run_script(client: Client, layout: Layout, name: str, *arguments: Any) -> Any:
    """What a script says; one that the server does not know yet is sent to it."""
    one = script(name)
    try:
        return await client.execute_command("EVALSHA", one.sha, 1, layout.meta, *arguments)
    except exceptions.NoScriptError:
        return await client.execute_command("EVAL", one.text, 1, layout.meta, *arguments)


class Calls:
    """What is under way on a client. Who closes it waits for that, but not for long, and then cuts it off.

    After that nobody is let in: redis-py would make a connection for whoever comes late, and nobody would close it.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._under_way: set[asyncio.Timeout] = set()
        self._closed = False
        self._over = asyncio.Event()

    @asynccontextmanager
    async def one(self, within_s: float | None = None) -> AsyncIterator[Client]:
        """Within it the client may be used. Raises NotRunning if it is closed, and TimeoutError when time is up."""
        if self._closed:
            raise NotRunning("the store is not open: the app is closed, or closing")
        async with asyncio.timeout(within_s) as bound:
            self._under_way.add(bound)
            try:
                yield self.client
            except exceptions.ResponseError as error:
                if _says(error, "READONLY"):
                    await self.look_anew()
                raise
            finally:
                self._under_way.discard(bound)
                if not self._under_way:
                    self._over.set()

    async def look_anew(self) -> None:
        """Where the address leads to by now: another server may have taken over, while we hold on to the old one."""
        pool = getattr(
            self.client, "connection_pool", None
        )  # that of a cluster is told by its nodes
        if pool is not None:
            await pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        self._closed = True
        cut = asyncio.get_running_loop().call_later(_close_s, self._cut)
        try:
            if self._under_way:
                self._over.clear()
                await self._over.wait()
        finally:
            cut.cancel()
            await self.client.aclose()

    def _cut(self) -> None:
        for bound in self._under_way:
            if not bound.expired():
                bound.reschedule(0)


# --- whether it may be trusted ---


async def check_server(client: Client, options: Options, layout: Layout) -> None:
    """Raises StoreRefused, with the reason and what to do."""
    info = await _info(client, layout)
    version = tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])
    if version < _version_min:
        raise StoreRefused(
            f"{options.shown} is Redis {info['redis_version']}; perdure needs 6.2 or newer"
        )
    if info["role"] != "master":
        raise StoreRefused(
            f"{options.shown} is a replica, which takes no writes: give the address of the primary"
        )
    policy = str(info["maxmemory_policy"])
    if policy.startswith("allkeys"):
        raise StoreRefused(
            f"{options.shown} drops keys when its memory is full (maxmemory-policy {policy}): runs would vanish "
            "piece by piece; set maxmemory-policy noeviction"
        )
    for one in judged(await _facts(client, layout, info)):
        if one.ok:
            continue
        if not options.relaxed:
            raise StoreRefused(f"{options.shown} {one.why}; {_relaxed}")
        log.warning("%s %s", options.shown, one.why)


async def server_facts(client: Client, layout: Layout) -> dict[str, str]:
    """What `judged` asks for, and what else there is to know of a server."""
    info = await _info(client, layout)
    told = ("redis_version", "valkey_version", "server_name", "role", "used_memory", "maxmemory")
    return {
        **await _facts(client, layout, info),
        **{name: str(info[name]) for name in (*told, "connected_slaves") if name in info},
        "cluster": str(bool(info.get("cluster_enabled"))).lower(),
    }


async def _facts(client: Client, layout: Layout, info: Mapping[str, Any]) -> dict[str, str]:
    facts = {
        "maxmemory_policy": str(info["maxmemory_policy"]),
        "appendonly": "yes" if info["aof_enabled"] else "no",
    }
    if info["aof_enabled"]:
        for name in ("no-appendfsync-on-rewrite", "appendfsync"):
            facts[name] = await _setting(client, layout, name)
    return facts


async def _setting(client: Client, layout: Layout, name: str) -> str:
    """Hosted servers may not say."""
    try:
        answer = await on_our_node(client, layout, "CONFIG", "GET", name)
    except exceptions.ResponseError:
        return "unknown"
    if isinstance(answer, Mapping):
        answer = [part for pair in answer.items() for part in pair]
    return str(answer[1].decode() if isinstance(answer[1], bytes) else answer[1])


async def _info(client: Client, layout: Layout) -> Mapping[str, Any]:
    found: Mapping[str, Any] = await on_our_node(client, layout, "INFO")
    return found


async def on_our_node(client: Client, layout: Layout, *command: str) -> Any:
    if isinstance(client, RedisCluster):
        node = client.get_node_from_key(layout.tag)
        return await client.execute_command(*command, target_nodes=node)
    return await client.execute_command(*command)
