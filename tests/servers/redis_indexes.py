"""Whether every index of a namespace on Redis is what its rows make it, as `fsck` sees it: `drift` lists the rest."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlunsplit

from perdure.store.base import Flaw
from perdure.store.redis.layout import Layout
from servers.stores import redis_store


def drift(client: Any, layout: Layout) -> list[str]:
    """What differs, as lines; nothing may be written meanwhile. Blocks, also where a loop runs."""
    known = client.connection_pool.connection_kwargs
    place = f"{known.get('host', 'localhost')}:{known.get('port', 6379)}"
    url = urlunsplit(("redis", place, f"/{known.get('db') or 0}", "notify=0", ""))
    namespace = layout.tag.strip("{}").partition(":")[2] or None
    with ThreadPoolExecutor(1) as pool:
        return [one.what for one in pool.submit(asyncio.run, _flaws(url, namespace)).result()]


async def _flaws(url: str, namespace: str | None) -> list[Flaw]:
    store = redis_store(url, namespace)
    await store.open()
    try:
        return [one async for one in store.flaws()]
    finally:
        await store.close()
