"""The first words with a server: what namespace there is, whether this code may use it, what has become of it."""

from typing import Final

import msgspec

from perdure.errors import StoreRefused
from perdure.store.base import Versions
from perdure.store.redis.connecting import Client, run_script
from perdure.store.redis.layout import Layout

# The layout that this code writes, and the oldest code that may use it, by the layout that it knows.
schema_known: Final = 1
min_code: Final = 1

# What scripts do, and a process that goes alone: a user who may not do some of it would write batches in part.
commands: Final = (
    "EXISTS GET HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HSET HVALS INFO SADD SCARD SET SISMEMBER "
    "SMEMBERS SREM SSCAN TIME TYPE UNLINK XADD XLEN XRANGE XREVRANGE XTRIM ZADD ZCARD ZLEXCOUNT ZRANGE "
    "ZRANGEBYLEX ZRANGEBYSCORE ZREM ZREMRANGEBYSCORE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZSCORE"
)


class Greeted(msgspec.Struct, frozen=True, gc=False):
    """What the server said."""

    clock: int
    server: str  # by which name this start of it is known
    epoch: str
    # The fewest batches that were left at the beginning of any epoch since the caller's; None if there was none.
    began: int | None
    commits: int
    head: int


async def greet(client: Client, layout: Layout, new_id: str, epoch: str) -> Greeted:
    """Make the namespace if there is none and it is given an id; say what has become of it since an epoch.

    Raises StoreRefused if it is not ours, is gone, or needs newer code.
    """
    kind, *rest = await run_script(
        client, layout, "greet", schema_known, min_code, new_id, epoch or "0", commands
    )
    if kind == b"forbidden":
        missing = rest[0].decode()
        raise StoreRefused(
            f"this user may not use {missing} with the keys {layout.prefix}*: allow all of {commands}"
        )
    if kind == b"nothing":
        raise StoreRefused(f"the namespace {layout.tag} is gone from the server, with all its runs")
    if kind == b"foreign":
        raise StoreRefused(
            f"{layout.prefix}meta is no namespace of perdure but a {rest[0].decode()}; use another namespace"
        )
    clock, server, now, began, commits, head, needed = rest
    if int(needed) > schema_known:
        raise too_new(layout, int(needed))
    return Greeted(
        clock=int(clock),
        server=server.decode(),
        epoch=now.decode(),
        began=int(began) if began else None,
        commits=int(commits),
        head=int(head),
    )


async def stored(client: Client, layout: Layout) -> Versions:
    """What the namespace says of itself, also if it needs newer code. StoreRefused if it is not ours."""
    kind = await client.execute_command("TYPE", layout.meta)
    if kind not in (b"none", b"hash"):
        raise StoreRefused(
            f"{layout.meta} is no namespace of perdure but a {kind.decode()}; use another namespace"
        )
    schema, needed = await client.execute_command("HMGET", layout.meta, "schema", "min_code")
    return Versions(
        stored=None if schema is None else int(schema),
        min_code=None if needed is None else int(needed),
        known=schema_known,
    )


def too_new(layout: Layout, needed: int) -> StoreRefused:
    """What to say of a namespace that somebody else's newer code has renewed."""
    return StoreRefused(
        f"the namespace {layout.tag} needs code that knows version {needed}, and this code knows {schema_known}: "
        "upgrade perdure"
    )
