"""The Postgres store: a schema, shared by many processes.

Ops are decided here by the shared handlers, on rows that are known or looked up, with no transaction open; one call
then compares and writes (store/optimistic, functions/apply_v1.sql). One connection decides and writes, a few read. The
time is the server's.
"""

import asyncio
import logging
import os
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import msgspec
from msgspec.structs import asdict

from perdure.errors import NotRunning, StoreRefused
from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.model.ops import Op
from perdure.model.records import OutboxRecord
from perdure.store.base import (
    Applied,
    BatchFailed,
    BatchLost,
    BatchUnknown,
    Described,
    StoreBusy,
    Versions,
)
from perdure.store.beating import Beating
from perdure.store.borrowing import execute_postgres, refuse
from perdure.store.hint import Hint
from perdure.store.optimistic.changes import Changes, Conflict, Written, everything
from perdure.store.optimistic.deciding import Backend, Decider
from perdure.store.optimistic.needs import Looks, Need
from perdure.store.postgres import committing, judging, opening
from perdure.store.postgres.connecting import (
    Connection,
    Options,
    check_server,
    connect,
    is_lost,
    is_refusal,
    parse_url,
)
from perdure.store.postgres.fetching import Fetcher
from perdure.store.postgres.hints import Hints
from perdure.store.postgres.lending import Pool, close
from perdure.store.postgres.pulse import Pulse
from perdure.store.postgres.reads import PostgresReads
from perdure.store.postgres.statements import Statements
from perdure.store.postgres.transacting import Transactor
from perdure.store.reaching import Reaching
from perdure.store.ticking import ServerClock
from perdure.store.transaction import Transaction
from perdure.store.urls import without_password

log = logging.getLogger("perdure.store.postgres")

_decode_facts = msgspec.json.Decoder(dict[str, str]).decode
_readers_max = 4
# How long the owner of a parked run may take to answer a call, before anybody may claim the run.
_sticky_us = 250_000
# Transactions of callers that may be under way at once.
_bodies_max = 8
# A deadlock or a failed serialisation changed nothing: the whole call may be made again, a few times.
_tries_max = 5
_pause_s = 0.01
# Batches are settled within a minute. Old rows are looked for once in so many commits, the first time a little earlier.
_commits_kept_us = 3600 * 1_000_000
_commits_between_prunings = 1000
_commits_before_first_pruning = 100
_pruned_max = 10_000
_unreachable = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
_may_be_tried_again = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)


class PostgresStore(PostgresReads, Backend):
    """A namespace in a schema."""

    batch_ops = 500
    needs_beats = True
    transacts = "async def"

    def __init__(
        self, url: str, *, namespace: str | None, clock: Clock, ids: Ids, lifecycle: bool = True
    ) -> None:
        self.url = without_password(url)
        self.namespace = namespace
        self.schema = opening.schema_name(namespace)
        self.lifecycle = lifecycle
        self._options: Options = parse_url(url)
        self._statements = Statements(self.schema)
        self._clock = ServerClock(clock)
        self._ids = ids
        self._fetcher = Fetcher(self._statements, self._clock.now, lambda: self.worker_id)
        self._decider = Decider(self, ids, lifecycle)
        self._writer: Connection | None = None
        self._reaching = Reaching(is_lost)
        self._readers: Pool | None = None
        self._bodies: Pool | None = None
        self._transactor = Transactor(self._decider, self._fetch_on, self._write_on, self._settle)
        self._beating: Beating | None = None
        self._hints: Hints | None = None
        self._refused: str | None = None  # why, once the schema has become too new for this code
        self._commits = 0
        self._pruning: asyncio.Task[None] | None = None
        self.sends_hints = self._options.listen_url is not None
        if self.sends_hints:
            self.sticky_us = _sticky_us
        self._pid = os.getpid()
        self._turn = asyncio.Lock()

    # --- life ---

    async def open(self) -> None:
        """Connect, check the server, bring the schema up; raises StoreRefused. Open already: nothing happens."""
        self._check_process()
        async with self._turn:
            if self._readers is not None:
                return
            self._reaching.patience_s = self.patience_s
            self._writer = await self._first_connection()
            self._readers = Pool(lambda: connect(self._options), _readers_max)
            # Behind a pooler there is no session that a body could leave anything in.
            self._bodies = Pool(
                lambda: connect(self._options, ours=False),
                _bodies_max,
                resets=not self._options.pgbouncer,
            )
            if self._options.listen_url is not None:
                self._hints = Hints(self._options, self.schema, self._ids.ulid(), self._heard)
                await self._hints.open()

    async def _first_connection(self) -> Connection:
        try:
            connection = await connect(self._options)
        except _unreachable as error:
            raise self._out_of_reach(error) from error
        try:
            await check_server(connection, self._options)
            await opening.bring_up(connection, self.schema, self._ids.ulid)
            self._clock.learn(
                await connection.fetchval(
                    "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"
                )
            )
        except BaseException as error:
            connection.terminate()
            if isinstance(error, _unreachable):
                raise self._out_of_reach(error) from error
            raise
        self._refused = None
        return connection

    def _out_of_reach(self, error: BaseException, *, passing: bool = False) -> StoreRefused:
        reason = f"{self.url} cannot be reached: {error or type(error).__name__}"
        return StoreRefused(reason, passing=passing)

    async def close(self) -> None:
        """Let go of all connections. Idempotent."""
        self._check_process()
        self.stop_beating()
        async with self._turn:
            hints, self._hints = self._hints, None
            if hints is not None:
                await hints.stop()
            pools = (self._readers, self._bodies)
            self._readers = self._bodies = None
            if self._pruning is not None:
                self._pruning.cancel()  # a server that is out of reach would keep it, and us, waiting
                await asyncio.wait((self._pruning,))
            for pool in pools:
                if pool is not None:
                    await pool.close()
            writer, self._writer = self._writer, None
            if writer is not None:
                await close(writer)
            self._decider.known.forget()

    def clock(self, given: Clock) -> Clock:
        """The server's, unless a test brings its own."""
        return self._clock if self._clock.follows else given

    def start_beating(self, worker_id: str, lease_s: float, every_s: float) -> None:
        self._check_process()
        self.stop_beating()
        pulse = Pulse(
            self._options,
            self._statements,
            self._clock,
            worker_id,
            lease_s,
            every_s,
            self._refuse,
        )
        self._beating = Beating(
            pulse.beat,
            lease_s=lease_s,
            every_s=every_s,
            on_lost=self._lost_lease,
            on_end=pulse.close,
        )
        self._beating.start()

    def outlive(self, until: threading.Event) -> None:
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.stop_after(until)

    def stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.stop()
            self._beating = None

    def _lost_lease(self) -> None:
        if self.on_lost_lease is not None:
            self.on_lost_lease()

    def _refuse(self, reason: StoreRefused) -> None:
        """From now on, for good: somebody has renewed the schema. Called in the thread of the life signs too."""
        log.error("%s", reason)
        self._refused = reason.reason

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"this store belongs to process {self._pid}; after a fork make a store of your own"
            )

    # --- writes ---

    async def apply(
        self, batch_id: str, ops: Sequence[Op[Any]], decided: Callable[[], None] | None = None
    ) -> list[Applied]:
        self._check_writable()
        applied = await self._decider.apply(batch_id, ops, decided)
        self._committed(applied)
        return applied

    def _check_writable(self) -> None:
        self._check_process()
        if self._readers is None:
            raise BatchFailed("the store is not open")
        if self._refused is not None:
            raise StoreBusy(self._refused)

    def _committed(self, applied: list[Applied]) -> None:
        self._commits += 1
        due = self._commits % _commits_between_prunings == _commits_before_first_pruning
        if due and (self._pruning is None or self._pruning.done()):
            self._pruning = asyncio.create_task(self._prune_commits(), name="perdure-prune")
        self.head = max(self.head, self._decider.known.head)
        if self._hints is not None:
            self._hints.tell(applied, self.worker_id, self.head, self._clock.now())

    def _heard(self, hint: Hint) -> None:
        if self.on_hint is not None:
            for wake in hint.wakes(self.worker_id):
                self.on_hint(wake)

    def now(self) -> int:
        return self._clock.now()

    async def fetch(self, looks: Looks, needs: Iterable[Need]) -> None:
        asked = tuple(needs)
        with self._failing():
            await self._reaching.until_reached(lambda: self._fetch_once(looks, asked))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """While nothing is written: StoreBusy if the connection was lost, BatchFailed for what the server refuses."""
        try:
            yield
        except BaseException as error:
            if is_lost(error):
                reason = f"the connection was lost: {error or type(error).__name__}"
                raise StoreBusy(reason) from error
            if isinstance(error, asyncpg.PostgresError):
                raise self._refused_by_server(error) from error
            raise

    def _refused_by_server(self, error: Exception) -> BatchFailed:
        if isinstance(error, asyncpg.UndefinedFunctionError):
            # Newer code has shut this code out. Whoever has no life signs learns it here.
            self._refuse(opening.outdated(self.schema, error))
        return BatchFailed(f"{type(error).__name__}: {error}")

    async def _fetch_once(self, looks: Looks, needs: tuple[Need, ...]) -> None:
        connection = await self._writing()
        try:
            self._clock.learn(await self._fetcher.fetch(connection, looks, needs))
        except BaseException as error:
            if not is_refusal(error):
                self._discard(connection)
            raise

    async def _fetch_on(self, connection: Connection, looks: Looks, needs: Iterable[Need]) -> None:
        """The same on this very connection, or not at all."""
        with self._failing():
            self._clock.learn(await self._fetcher.fetch(connection, looks, needs))

    async def commit(self, changes: Changes) -> Written | Conflict:
        for nth in range(1, _tries_max + 1):
            connection = await self._writing()
            try:
                return await self._write_on(connection, changes)
            except BatchFailed as failed:
                again = isinstance(failed.__cause__, _may_be_tried_again)
                if not again or nth == _tries_max:
                    raise
                await asyncio.sleep(random.random() * _pause_s * nth)
            except BatchUnknown as unknown:
                self._discard(connection)
                return await self._learn_the_answer(changes, unknown)
            except BaseException:
                self._discard(connection)
                raise
        raise AssertionError("unreachable")

    async def _learn_the_answer(self, changes: Changes, unknown: BatchUnknown) -> Written:
        """After a lost connection: what the call would have said."""
        head = await self._settle(changes.batch_id, unknown)
        if head is None:
            raise BatchLost(f"nothing was written: {unknown}") from unknown
        if changes.claims:
            # Which runs were claimed is not kept. Whoever claimed them looks at all that it holds.
            raise unknown
        return Written(head)

    async def _write_on(self, connection: Connection, changes: Changes) -> Written | Conflict:
        """One call. Raises BatchFailed, or BatchUnknown if the connection was lost: it may have been committed."""
        try:
            parameters = committing.parameters_of(changes)
        except ValueError as error:
            raise BatchFailed(f"{type(error).__name__}: {error}") from error
        try:
            answer, clock, seq = await committing.apply(connection, self._statements, parameters)
        except BaseException as error:
            if is_lost(error):
                raise BatchUnknown(f"the connection was lost: {error}") from error
            if isinstance(error, asyncpg.PostgresError) and committing.is_overtaken(error):
                return everything(changes)
            if not isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError):
                raise
            raise self._refused_by_server(error) from error
        self._clock.learn(clock)
        self._decider.known.seq = max(self._decider.known.seq, seq)
        if isinstance(answer, Conflict):
            self._clock.not_before(answer.now)
        return answer

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        connection = await self._writing()
        transaction = connection.transaction()
        try:
            await transaction.start()
            # A client that stops here would stop all others: then the server ends it.
            await connection.execute("set local idle_in_transaction_session_timeout = '5s'")
            lock = opening.lock_class(self.schema)
            await connection.execute("select pg_advisory_xact_lock($1, -2)", lock)
        except BaseException as error:
            # Also one that was cancelled here: it would go on in a transaction that nobody commits.
            self._discard(connection)
            if isinstance(error, _unreachable):
                raise BatchFailed(f"{type(error).__name__}: {error}") from error
            raise
        try:
            yield
            await transaction.commit()
        except BaseException as error:
            # Not known to be in any state that could be used again.
            self._discard(connection)
            if is_lost(error):
                raise BatchUnknown(f"the connection was lost: {error}") from error
            raise

    async def _writing(self) -> Connection:
        """The connection that writes; a new one when the last was discarded."""
        self._check_writable()
        if self._writer is None or self._writer.is_closed():
            try:
                self._writer = await self._reaching.until_reached(lambda: connect(self._options))
            except (*_unreachable, StoreRefused) as error:
                raise StoreBusy(f"the server cannot be reached: {error}") from error
        return self._writer

    def _discard(self, connection: Connection) -> None:
        connection.terminate()
        if self._writer is connection:
            self._writer = None

    async def transact(self, batch_id: str, work: Transaction) -> list[Applied]:
        self._check_writable()
        assert self._bodies is not None
        try:
            async with self._bodies.lent() as connection:
                applied = await self._transactor.carry_out(
                    connection, batch_id, work, self.patience_s
                )
        except _unreachable as error:
            raise StoreBusy(f"the server cannot be reached: {error}") from error
        self._committed(applied)
        return applied

    async def write_outbox(self, connection: Any, row: OutboxRecord) -> None:
        statement = self._statements["write_outbox"]
        await execute_postgres(connection, statement.text, *statement.values(asdict(row)))

    def write_outbox_here(self, connection: Any, row: OutboxRecord) -> None:
        refuse(
            connection,
            "cannot be used by app.sync: on Postgres it is one of asyncpg, or of SQLAlchemy on asyncpg, and those "
            "belong to an event loop. Send after your commit, with a key= so that it can be repeated",
        )

    async def settle(self, batch_id: str) -> bool:
        """Whether that batch was committed. If it was not, it never will be: its id is taken."""
        return await self._settle(batch_id, BatchUnknown(batch_id)) is not None

    async def _settle(self, batch_id: str, unknown: BatchUnknown) -> int | None:
        """Where the ledger ended before that batch; None if it was not committed. Raises BatchUnknown."""
        take, see = self._statements["settle"], self._statements["settled"]
        values = take.values({"batch_id": batch_id, "at": self._clock.now()})

        async def ask(connection: Connection) -> int | None:
            await connection.execute(take.text, *values)
            head: int | None = await connection.fetchval(see.text, batch_id)
            return head

        try:
            found: int | None = await self._ask(ask)
            return found
        except (StoreRefused, NotRunning) as error:
            raise BatchUnknown(f"{unknown}; {error}") from error

    async def _prune_commits(self) -> None:
        """Delete what nobody asks about any more. What goes wrong here the next pruning will find again."""
        before = self._clock.now() - _commits_kept_us
        try:
            deleted = _pruned_max
            while deleted == _pruned_max:
                (deleted,) = await self._row("prune_commits", before=before, limit=_pruned_max)
        except (StoreRefused, NotRunning):
            log.debug("old commits were not deleted", exc_info=True)

    # --- for who looks after the store ---

    async def versions(self) -> Versions:
        if self._readers is not None:
            found: Versions = await self._ask(lambda one: opening.stored(one, self.schema))
            return found
        self._check_process()
        try:
            connection = await connect(self._options)
            try:
                return await opening.stored(connection, self.schema)
            finally:
                await close(connection)
        except _unreachable as error:
            raise self._out_of_reach(error) from error

    async def describe(self) -> Described:
        told, size = await self._row("describe", schema=self.schema)
        facts = _decode_facts(told)
        return Described(
            kind="postgres",
            product="PostgreSQL",
            version=facts["server_version"],
            versions=await self.versions(),
            namespace=self.namespace,
            bytes=size,
            settings=(*judging.judged(facts), *judging.judged_besides(facts)),
            facts={
                "schema": self.schema,
                "max_connections": facts["max_connections"],
                "synchronous_standby_names": facts["synchronous_standby_names"],
                "pgbouncer": str(self._options.pgbouncer).lower(),
            },
            relaxed=self._options.relaxed,
        )

    async def backup(self, path: str) -> int:
        raise StoreRefused(
            "a store on Postgres is backed up by Postgres: "
            f"pg_dump --format=custom --schema={self.schema} --file=<file> <url>"
        )

    # --- reads ---

    def _note_workers(self, workers: frozenset[str]) -> None:
        self.living = workers
        if self._hints is not None:
            self._hints.others = bool(workers - {self.worker_id})

    async def _ask(self, ask: Callable[[Connection], Awaitable[Any]]) -> Any:
        """What is asked here may be asked twice, if a connection is lost."""
        self._check_process()
        if self._readers is None:
            raise NotRunning("the store is not open: the app is closed, or closing")
        if self._refused is not None:
            raise StoreRefused(self._refused)
        pool = self._readers

        async def once() -> Any:
            # A server that vanished without a word is missed by nobody but us.
            async with asyncio.timeout(self.patience_s), pool.lent() as connection:
                return await ask(connection)

        try:
            return await self._reaching.until_reached(once)
        except BaseException as error:
            if is_lost(error):
                raise self._out_of_reach(error, passing=True) from error
            if isinstance(error, _unreachable):
                raise StoreRefused(
                    f"{self.url} does not answer: {type(error).__name__}: {error}"
                ) from error
            raise
