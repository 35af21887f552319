"""The Postgres store: a schema, shared by many processes.

Ops are decided here by the shared handlers, on rows that are known or looked up, with no transaction open; one call
then compares and writes (store/optimistic, functions/apply_v1.sql). One connection decides and writes, a few read. The
time is the server's.
"""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import asyncpg

from perdure.errors import NotRunning, StoreRefused
from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.model.ops import Op
from perdure.store.base import Applied, BatchFailed, BatchUnknown
from perdure.store.optimistic.changes import Changes, Conflict, Written
from perdure.store.optimistic.deciding import Backend, Decider
from perdure.store.optimistic.needs import Looks, Need
from perdure.store.postgres import committing, opening
from perdure.store.postgres.connecting import (
    Connection,
    Options,
    check_server,
    connect,
    is_lost,
    parse_url,
    without_password,
)
from perdure.store.postgres.fetching import Fetcher
from perdure.store.postgres.reads import PostgresReads
from perdure.store.postgres.statements import Statements
from perdure.store.postgres.ticking import ServerClock

log = logging.getLogger("perdure.store.postgres")

_readers_max = 4
# A deadlock or a failed serialisation changed nothing: the whole call may be made again, a few times.
_tries_max = 5
_pause_s = 0.01


class PostgresStore(PostgresReads, Backend):
    """A namespace in a schema."""

    needs_beats = True

    def __init__(
        self, url: str, *, namespace: str | None, clock: Clock, ids: Ids, lifecycle: bool = True
    ) -> None:
        self.url = without_password(url)
        self.schema = opening.schema_name(namespace)
        self.lifecycle = lifecycle
        self._options: Options = parse_url(url)
        self._statements = Statements(self.schema)
        self._clock = ServerClock(clock)
        self._ids = ids
        self._fetcher = Fetcher(self._statements, self._clock.now, lambda: self.worker_id)
        self._decider = Decider(self, ids, lifecycle)
        self._writer: Connection | None = None
        self._readers: asyncio.Queue[Connection | None] | None = None
        self._pid = os.getpid()
        self._turn = asyncio.Lock()

    # --- life ---

    async def open(self) -> None:
        """Connect, check the server, bring the schema up; raises StoreRefused. Open already: nothing happens."""
        self._check_process()
        async with self._turn:
            if self._readers is not None:
                return
            self._writer = await self._first_connection()
            # None stands for a connection that may be made.
            self._readers = asyncio.Queue()
            for _ in range(_readers_max):
                self._readers.put_nowait(None)

    async def _first_connection(self) -> Connection:
        try:
            connection = await connect(self._options)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise StoreRefused(f"{self.url} cannot be reached: {error}") from error
        try:
            await check_server(connection, self._options)
            await opening.bring_up(connection, self.schema, self._ids.ulid)
            self._clock.learn(
                await connection.fetchval(
                    "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"
                )
            )
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def close(self) -> None:
        """Let go of all connections. Idempotent."""
        self._check_process()
        async with self._turn:
            readers, self._readers = self._readers, None
            writer, self._writer = self._writer, None
            connections = [] if writer is None else [writer]
            if readers is not None:
                for _ in range(_readers_max):
                    reader = await readers.get()
                    if reader is not None:
                        connections.append(reader)
            for one in connections:
                await _close(one)
            self._decider.known.forget()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"this store belongs to process {self._pid}; after a fork make a store of your own"
            )

    # --- writes ---

    async def apply(
        self, batch_id: str, ops: Sequence[Op[Any]], decided: Callable[[], None] | None = None
    ) -> list[Applied]:
        self._check_process()
        if self._readers is None:
            raise BatchFailed("the store is not open")
        applied = await self._decider.apply(batch_id, ops, self.worker_id, decided)
        self.head = max(self.head, self._decider.known.head)
        return applied

    def now(self) -> int:
        return self._clock.now()

    async def fetch(self, looks: Looks, needs: Iterable[Need]) -> None:
        connection = await self._writing()
        try:
            self._clock.learn(await self._fetcher.fetch(connection, looks, needs))
        except asyncpg.PostgresError as error:
            if is_lost(error):
                self._discard(connection)
            raise BatchFailed(f"{type(error).__name__}: {error}") from error
        except BaseException as error:
            self._discard(connection)
            if is_lost(error):
                raise BatchFailed(f"the connection was lost: {error}") from error
            raise

    async def commit(self, changes: Changes) -> Written | Conflict:
        connection = await self._writing()
        for nth in range(1, _tries_max + 1):
            try:
                answer, clock, seq = await committing.apply(connection, self._statements, changes)
            except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError) as error:
                if nth == _tries_max:
                    raise BatchFailed(f"{type(error).__name__}: {error}") from error
                await asyncio.sleep(random.random() * _pause_s * nth)
                continue
            except asyncpg.PostgresError as error:
                return self._refused(connection, changes, error)
            except BaseException as error:
                # It may have been sent: whether it was committed only the store can tell.
                self._discard(connection)
                if is_lost(error):
                    raise BatchUnknown(f"the connection was lost: {error}") from error
                raise
            self._clock.learn(clock)
            self._decider.known.seq = max(self._decider.known.seq, seq)
            if isinstance(answer, Conflict):
                self._clock.not_before(answer.now)
            return answer
        raise AssertionError("unreachable")

    def _refused(
        self, connection: Connection, changes: Changes, error: asyncpg.PostgresError
    ) -> Conflict:
        """What an error of the server means: overtaken, refused, or that the server is going down."""
        if is_lost(error):
            self._discard(connection)
            raise BatchUnknown(f"{type(error).__name__}: {error}") from error
        if committing.is_overtaken(error):
            return committing.everything(changes)
        raise BatchFailed(f"{type(error).__name__}: {error}") from error

    async def _writing(self) -> Connection:
        """The connection that writes; a new one when the last was discarded."""
        if self._writer is None or self._writer.is_closed():
            try:
                self._writer = await connect(self._options)
            except (
                OSError,
                TimeoutError,
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                StoreRefused,
            ) as error:
                raise BatchFailed(f"the server cannot be reached: {error}") from error
        return self._writer

    def _discard(self, connection: Connection) -> None:
        connection.terminate()
        if self._writer is connection:
            self._writer = None

    async def settle(self, batch_id: str) -> bool:
        """Whether that batch was committed. If it was not, it never will be: its id is taken."""
        row = await self._row("settle", batch_id=batch_id, at=self._clock.now())
        return row is None

    # --- reads ---

    async def _ask(self, ask: Callable[[Connection], Awaitable[Any]]) -> Any:
        self._check_process()
        readers = self._readers
        if readers is None:
            raise NotRunning("the store is not open: the app is closed, or closing")
        connection = await readers.get()
        try:
            if connection is None or connection.is_closed():
                connection = None
                connection = await connect(self._options)
            return await ask(connection)
        except BaseException as error:
            # After a cancelled call its answer may still be under way.
            if connection is not None and not isinstance(error, asyncpg.PostgresError):
                connection.terminate()
                connection = None
            raise
        finally:
            readers.put_nowait(connection)


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=5)
    except Exception:
        connection.terminate()
