"""A worker's life sign on Redis: one short script, on a connection of its own that blocks.

It runs in the thread of store/beating.py, so that nothing that happens in the loop of the app can hold it up. Whatever
goes wrong, the next beat begins with a new connection.
"""

from collections.abc import Callable
from typing import Any

from redis import Redis, RedisCluster, exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from perdure.errors import StoreRefused
from perdure.store.redis import opening
from perdure.store.redis.connecting import Options
from perdure.store.redis.layout import Layout
from perdure.store.redis.scripts import script
from perdure.store.ticking import ServerClock


class Pulse:
    """Prolongs the lease of one worker, one beat at a time; only ever used by one thread.

    `refuse` is called there with the reason when the namespace has become too new for this code.
    """

    def __init__(
        self,
        options: Options,
        layout: Layout,
        clock: ServerClock,
        worker_id: str,
        lease_s: float,
        patience_s: float,
        refuse: Callable[[StoreRefused], None],
    ) -> None:
        self._options = options
        self._layout = layout
        self._clock = clock
        self._worker_id = worker_id
        self._lease_us = round(lease_s * 1_000_000)
        self._patience_s = patience_s
        self._refuse = refuse
        self._client: Any = None

    def beat(self) -> bool:
        """Whether the worker still has a row, in a namespace that this code may use."""
        until = self._clock.now() + self._lease_us
        one = script("beat")
        try:
            if self._client is None:
                self._client = self._connect()
            arguments = (1, self._layout.meta, self._worker_id, until)
            try:
                needed = self._client.execute_command("EVALSHA", one.sha, *arguments)
            except exceptions.NoScriptError:
                needed = self._client.execute_command("EVAL", one.text, *arguments)
        except BaseException:
            self.close()
            raise
        return bool(needed) and self._knows(int(needed))

    def _knows(self, needed: int) -> bool:
        if needed <= opening.schema_known:
            return True
        self._refuse(opening.too_new(self._layout, needed))
        return False

    def _connect(self) -> Any:
        bounded = {
            "socket_timeout": self._patience_s,
            "socket_connect_timeout": self._patience_s,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        client = Redis.from_url(self._options.url, **bounded)
        if not client.info("cluster").get("cluster_enabled"):
            return client
        client.close()
        return RedisCluster.from_url(self._options.url, **bounded)

    def close(self) -> None:
        """The thread ends, or begins anew: let go of the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
