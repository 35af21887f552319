"""Bodies of callers in transactions of this database, and the op that is committed with each.

All of it happens on one connection, looking included: who holds one while waiting for another could wait for ever, with
enough others of that kind, where connections are few (behind a pooler they are).

The body has a connection of its own, with none of our settings: what it asks is planned as its author is used to. The
op is decided and compared as any other, and written by the same call, inside the body's transaction; the locks that
takes are held until the commit, which follows at once.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import asyncpg.transaction

from perdure.errors import Permanent
from perdure.model.ops import Op
from perdure.store.base import Applied, BatchFailed, BatchUnknown, StoreBusy
from perdure.store.optimistic.changes import Changes, Conflict, Written
from perdure.store.optimistic.deciding import Decider
from perdure.store.optimistic.needs import Looks, Need
from perdure.store.postgres.connecting import Connection, is_lost
from perdure.store.transaction import BodyFailed, Transaction

FetchOn = Callable[[Connection, Looks, Iterable[Need]], Awaitable[None]]
WriteOn = Callable[[Connection, Changes], Awaitable[Written | Conflict]]
# By the id of a batch: not None if it was committed. Raises BatchUnknown, for which it is given one.
Settle = Callable[[str, BatchUnknown], Awaitable[int | None]]
BodyTransaction = asyncpg.transaction.Transaction

_roll_back_s = 5.0


class Transactor:
    """Carries out transactions, each on a connection that it is given; the calls on it are the store's."""

    def __init__(
        self, decider: Decider, fetch_on: FetchOn, write_on: WriteOn, settle: Settle
    ) -> None:
        self._decider = decider
        self._fetch_on = fetch_on
        self._write_on = write_on
        self._settle = settle

    async def carry_out(
        self, connection: Connection, batch_id: str, work: Transaction, within_s: float
    ) -> list[Applied]:
        """From its turn on it keeps all other writes of this process waiting, so that part is to end within a time."""
        transaction = connection.transaction()
        try:
            await transaction.start()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise BatchFailed(f"{type(error).__name__}: {error}") from error
        try:
            op = await work.acall(connection)
            if not connection.is_in_transaction():
                raise BodyFailed(_ended())
            await work.turn()
            async with _ending(connection, work, within_s):
                return await self._write_and_commit(connection, transaction, batch_id, op, work)
        except BaseException:
            await _roll_back(connection, transaction)
            raise

    async def _write_and_commit(
        self,
        connection: Connection,
        transaction: BodyTransaction,
        batch_id: str,
        op: Op[Any],
        work: Transaction,
    ) -> list[Applied]:
        await _guard(connection)
        async with self._decider.turn:
            write = functools.partial(self._write_on, connection)
            fetch = functools.partial(self._fetch_on, connection)
            written = await self._decider.write(batch_id, [op], write, fetch=fetch)
            if not work.stands(written.applied):
                await _roll_back(connection, transaction)
                return written.applied
            work.seal()
            try:
                await _commit(transaction)
            except BatchUnknown as unknown:
                if await self._settle(batch_id, unknown) is None:
                    raise BatchFailed(f"nothing was written: {unknown}") from unknown
            return written.finish()


@asynccontextmanager
async def _ending(
    connection: Connection, work: Transaction, within_s: float
) -> AsyncIterator[None]:
    """When time is up the connection goes: a commit that was not sent by then never will be."""
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError as error:
        connection.terminate()
        reason = f"no answer within {within_s} s"
        if work.is_sealed:
            raise BatchUnknown(reason) from error
        raise StoreBusy(f"nothing was written: {reason}") from error


async def _guard(connection: Connection) -> None:
    """From here on our own rows are held: of a client that stops in the midst, the server lets go soon."""
    try:
        await connection.execute("set local idle_in_transaction_session_timeout = '5s'")
    except asyncpg.InFailedSQLTransactionError as error:
        raise BodyFailed(_swallowed()) from error


async def _roll_back(connection: Connection, transaction: BodyTransaction) -> None:
    if connection.is_closed() or not connection.is_in_transaction():
        return
    try:
        async with asyncio.timeout(_roll_back_s):
            await transaction.rollback()
    except Exception:
        connection.terminate()  # the server rolls back what is left of it


async def _commit(transaction: BodyTransaction) -> None:
    try:
        await transaction.commit()
    except asyncpg.PostgresError as error:
        if is_lost(error):
            raise BatchUnknown(f"{type(error).__name__}: {error}") from error
        # A constraint of the caller's that was deferred until now.
        raise BodyFailed(error) from error
    except BaseException as error:
        if is_lost(error):
            raise BatchUnknown(f"the connection was lost: {error}") from error
        raise


def _ended() -> Permanent:
    return Permanent(
        "the body of ctx.transaction has ended its transaction: it is committed with the record of the step, when the "
        "body has returned, and rolled back when it raises"
    )


def _swallowed() -> Permanent:
    return Permanent(
        "the body of ctx.transaction has swallowed an SQL error: the server takes nothing more in this transaction. "
        "Let it raise, or make a savepoint before what may fail (`async with tx.transaction():`)"
    )
