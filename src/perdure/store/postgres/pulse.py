"""A worker's life sign on Postgres: one short statement, on a connection and a loop of its own.

It runs in the thread of store/beating.py, so that nothing that happens in the loop of the app can hold it up. Whatever
goes wrong, the next beat begins with a new connection.
"""

import asyncio
from collections.abc import Callable

from perdure.errors import StoreRefused
from perdure.store.postgres import opening
from perdure.store.postgres.connecting import Connection, Options, connect
from perdure.store.postgres.statements import Statements
from perdure.store.ticking import ServerClock


class Pulse:
    """Prolongs the lease of one worker, one beat at a time; only ever used by one thread.

    `refuse` is called there with the reason when the schema has become too new for this code.
    """

    def __init__(
        self,
        options: Options,
        statements: Statements,
        clock: ServerClock,
        worker_id: str,
        lease_s: float,
        patience_s: float,
        refuse: Callable[[StoreRefused], None],
    ) -> None:
        self._options = options
        self._schema = statements.schema
        self._asked = statements["prolong_lease"]
        self._refuse = refuse
        self._clock = clock
        self._worker_id = worker_id
        self._lease_us = round(lease_s * 1_000_000)
        self._patience_s = patience_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: Connection | None = None

    def beat(self) -> bool:
        """Whether the worker still has a row, in a schema that this code may use."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(self._beat())

    async def _beat(self) -> bool:
        lease = {
            "worker_id": self._worker_id,
            "lease_until": self._clock.now() + self._lease_us,
        }
        try:
            async with asyncio.timeout(self._patience_s):
                if self._connection is None:
                    self._connection = await connect(self._options)
                row = await self._connection.fetchrow(self._asked.text, *self._asked.values(lease))
        except BaseException:
            self._hang_up()
            raise
        return row is not None and self._knows(int(row[0]))

    def _knows(self, needed: int) -> bool:
        if needed <= opening.schema_known:
            return True
        self._refuse(opening.too_new(self._schema, needed))
        return False

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def close(self) -> None:
        """The thread ends: let go of connection and loop."""
        self._hang_up()
        if self._loop is not None:
            # The socket is closed by the loop's next turn.
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()
            self._loop = None
