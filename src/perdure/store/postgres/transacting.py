"""Bodies of callers in transactions of this database, and the op that is committed with each.

All of it happens on one connection, looking included: who holds one while waiting for another could wait for ever, with
enough others of that kind, where connections are few (behind a pooler they are).

The body has a connection of its own, with none of our settings: what it asks is planned as its author is used to. The
op is decided and compared as any other, and written by the same call, inside the body's transaction; the locks that
takes are held until the commit, which follows at once.
"""

import functools
from collections.abc import Awaitable, Callable, Iterable

import asyncpg
import asyncpg.transaction

from perdure.errors import Permanent
from perdure.store.base import Applied, BatchFailed, BatchUnknown
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
        self, connection: Connection, batch_id: str, work: Transaction
    ) -> list[Applied]:
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
            async with self._decider.turn:
                write = functools.partial(self._write_on, connection)
                fetch = functools.partial(self._fetch_on, connection)
                written = await self._decider.write(batch_id, [op], write, fetch=fetch)
                if not work.stands(written.applied):
                    await transaction.rollback()
                    return written.applied
                work.seal()
                try:
                    await _commit(transaction)
                except BatchUnknown as unknown:
                    if await self._settle(batch_id, unknown) is None:
                        raise BatchFailed(f"nothing was written: {unknown}") from unknown
                return written.finish()
        except BaseException:
            if not connection.is_closed() and connection.is_in_transaction():
                await transaction.rollback()
            raise


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
