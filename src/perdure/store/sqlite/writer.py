"""The writer thread: the only place of this process where the file is written.

Batches come in by a queue and are answered on the loop that asked. Each is one transaction under
the side lock: read what the ops need, let the handlers decide, write the difference, leave the
proof in `commits`. Before the commit every error means that nothing happened; after it nothing may
fail. A body of a caller's that is to be committed with its op runs here too, on a connection of its
own. Now and then the thread is asked for a glance: whether others have written. Between batches it
copies the log into the database: when it was idle for a second, or when the log has grown large.
"""

import asyncio
import concurrent.futures
import logging
import os
import queue
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from perdure.errors import StoreRefused
from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.model.ops import Op
from perdure.store.base import Applied, BatchFailed, BatchUnknown, StoreBusy
from perdure.store.decoding import decode_ids, decode_positions
from perdure.store.handlers import HANDLERS
from perdure.store.handlers.facts import FACTS
from perdure.store.sqlite import guarding, opening
from perdure.store.sqlite.liveness import SideLock, WorkerLocks
from perdure.store.sqlite.opening import Synchronous
from perdure.store.sqlite.others import Others, Seen
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.statements import Statements, as_json
from perdure.store.sqlite.tables import SqliteTables
from perdure.store.transaction import Transaction

log = logging.getLogger("perdure.store.sqlite")

idle_s = 1.0
# While a reader hinders the idle checkpoint it is tried ever more seldom, down to this.
idle_max_s = 60.0
idle_wal_bytes = 1024 * 1024
wal_bytes_max = 64 * 1024 * 1024
# After a checkpoint that a reader hindered: how much more log before the next try under load.
wal_patience_bytes = 16 * 1024 * 1024
# Batches are settled within seconds; a few thousand rows are kept, pruned this many at a time.
commits_kept = 4096
commits_pruned = 1024


# Of the time that callers wait: they are to hear that nothing happened rather than nothing at all.
_patience_share = 0.8


_facts = {"facts": as_json(FACTS)}


class Batch(NamedTuple):
    """Ops that are one transaction, and whom to tell, from the thread, that they are decided.

    It waits for other connections, that write without our lock, as long as `patience_s` allows.
    """

    batch_id: str
    ops: Sequence[Op[Any]]
    worker_id: str | None = None
    patience_s: float = 30.0
    sticky_us: int = 0
    decided: Callable[[], None] | None = None


class Done(NamedTuple):
    """The answers of a batch, and its number; 0 if it changed nothing."""

    applied: list[Applied]
    number: int


class Job:
    """Something for the thread to do, and the future that waits for it."""

    __slots__ = ("do", "future", "loop")

    def __init__(self, do: Callable[[], Any]) -> None:
        self.do = do
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    def answer(self, result: Any, error: BaseException | None) -> None:
        on_loop(self.loop, _answer, self.future, result, error)


class Errand:
    """The same for another thread, which blocks until it is done."""

    def __init__(self, do: Callable[[], Any]) -> None:
        self.do = do
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def answer(self, result: Any, error: BaseException | None) -> None:
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


def on_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> None:
    """From any thread: call this on the loop, soon."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:  # the loop is closed: nobody waits any more
        pass


def _answer(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():  # the caller was cancelled; what was committed stays committed
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class Writer:
    """One thread, one connection, one batch at a time."""

    # Tests switch it off to see that it changes nothing but the time.
    prefetching = True

    def __init__(
        self, path: str, synchronous: Synchronous, clock: Clock, ids: Ids, lifecycle: bool
    ) -> None:
        self._path = path
        self._synchronous = synchronous
        self._clock = clock
        self._ids = ids
        self._lifecycle = lifecycle
        self._jobs: queue.SimpleQueue[Job | Errand | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="perdure-sqlite", daemon=True)
        self._sql: Statements | None = None
        self._remembered = Remembered()
        self._wal_bytes_next = wal_bytes_max
        self._idle_wait_s: float | None = None  # None: nothing to do when idle
        self._idle_since = 0.0
        self._others = Others()
        self._lock: SideLock | None = None
        self._identity: tuple[int, int] | None = None  # of the file that was opened
        self.workers = WorkerLocks(path)
        self.head = 0  # the newest event that a batch of ours has appended or seen

    # --- called from the loop ---

    async def open(self) -> None:
        """Start the thread and open the file there."""
        self._thread.start()
        try:
            await self._ask(self._open)
        except asyncio.CancelledError:
            self._jobs.put(None)
            raise
        except Exception:
            await self.close()
            raise

    async def apply(self, batch: Batch) -> Done:
        done: Done = await self._ask(lambda: self._apply(batch))
        return done

    async def transact(self, batch: Batch, work: Transaction) -> Done:
        done: Done = await self._ask(lambda: self._transact(batch, work))
        return done

    async def glance(self) -> Seen:
        """What others have committed since the last glance."""
        seen: Seen = await self._ask(self._glance)
        return seen

    async def close(self) -> None:
        """Do what is queued, then close. The thread has ended when this returns."""
        self._jobs.put(None)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._thread.join)

    def _ask(self, do: Callable[[], Any]) -> "asyncio.Future[Any]":
        job = Job(do)
        self._jobs.put(job)
        return job.future

    def beat(self, worker_id: str, lease_us: int, patience_s: float) -> bool:
        """Called from the thread that beats: prolong a lease, if the worker has its row still."""
        errand = Errand(lambda: self._beat(worker_id, lease_us))
        self._jobs.put(errand)
        beaten: bool = errand.future.result(patience_s)
        return beaten

    def let_go(self) -> None:
        """In a forked child: close the copies of our locks, or they would outlive the parent."""
        if self._lock is not None:
            self._lock.close()
        self.workers.let_go()

    # --- the thread ---

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            try:
                result, error = job.do(), None
            except BaseException as raised:
                result, error = None, raised
            job.answer(result, error)
            del job, result, error  # a traceback would keep a whole batch alive until the next one
            self._checkpoint_if_large()
        self._close()

    def _next_job(self) -> Job | Errand | None:
        while (wait_s := self._idle_wait_s) is not None:
            idle_s = time.monotonic() - self._idle_since  # glances do not count as work
            try:
                return self._jobs.get(timeout=max(0.0, wait_s - idle_s))
            except queue.Empty:
                done = self._wal_bytes() <= idle_wal_bytes or self._checkpoint()
                self._idle_since = time.monotonic()
                self._idle_wait_s = None if done else min(2 * wait_s, idle_max_s)
        return self._jobs.get()

    def _open(self) -> None:
        try:
            self._lock = SideLock(self._path)
        except OSError as error:
            raise StoreRefused(
                f"the lock file beside {self._path} cannot be opened: {error}"
            ) from error
        _open_writers.add(self)
        with self._lock:
            self._sql = self._connect()
            opening.migrate(self._sql, self._ids.ulid)
            self._identity = _identity(self._path)
            self._bury_the_dead(self._sql)

    def _connect(self) -> Statements:
        return Statements(opening.connect(self._path, synchronous=self._synchronous))

    def _close(self) -> None:
        """Under the lock, because the last connection to close copies the log."""
        _open_writers.discard(self)
        if self._lock is None:
            return
        try:
            with self._lock:
                if self._sql is not None:
                    self._leave(self._sql)
        except Exception:
            log.exception("closing %s", self._path)
        finally:
            self._sql = None
            # What could not be removed must at least be free, or others would wait for us to die.
            self.workers.let_go()
            self._lock.close()

    def _leave(self, sql: Statements) -> None:
        """The last writes: workers that did not say goodbye, and the log."""
        try:
            self.workers.part()
            self._say_goodbye(sql, self.workers.held())
            self._bury_the_dead(sql)
            self.workers.close()
            self._truncate_log(sql)
        finally:
            sql.connection.close()

    def _bury_the_dead(self, sql: Statements) -> None:
        """What killed workers left goes, now or later; their runs are adopted with their rows or without."""
        try:
            self._say_goodbye(sql, self.workers.dead())
        except (sqlite3.Error, OSError):
            log.warning("what dead workers left beside %s stays", self._path, exc_info=True)

    def _say_goodbye(self, sql: Statements, worker_ids: list[str]) -> None:
        for worker_id in worker_ids:
            sql.run("delete_worker", {"worker_id": worker_id})
            self.workers.clear_away(worker_id)

    def _beat(self, worker_id: str, lease_us: int) -> bool:
        if self._lock is None:
            raise BatchFailed("the store is not open")
        lease = {"worker_id": worker_id, "lease_until": self._clock.now() + lease_us}
        with self._lock:
            return self._ready_connection().run("prolong_lease", lease) > 0

    def _glance(self) -> Seen:
        if self._sql is None:
            return self._others.take()
        self._next_number(self._sql, self._remembered)
        seen = self._others.take()
        if seen.commits and not seen.unnumbered:
            # Among commits with numbers one without does not show: what callers' own transactions leave does.
            seen = seen._replace(unnumbered=bool(self._sql.row("has_outbox")[0]))
        return seen

    # --- a batch ---

    def _apply(self, batch: Batch) -> Done:
        with self._locked():
            sql = self._ready_connection()
            self._begin(sql, batch.patience_s)
            tables, done = self._decide(sql, batch, self._remembered)
            self._commit(sql, batch.batch_id)
            if done.number:
                self._remembered.number = done.number
                self._others.committed(done.number)
            self._committed(tables)
            return done

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._lock
        if lock is None:
            raise BatchFailed("the store is not open")
        try:
            lock.acquire()
        except OSError as error:
            raise BatchFailed(f"the lock beside {self._path} cannot be had: {error}") from error
        try:
            self._check_identity()
            yield
        finally:
            lock.release()

    def _check_identity(self) -> None:
        """The system lets us go on writing to a file that was removed, and nobody would ever see it."""
        try:
            is_there = _identity(self._path) == self._identity
        except FileNotFoundError:
            is_there = False
        except OSError:
            return  # the system does not say
        if not is_there:
            raise BatchFailed(
                f"{self._path} was removed, or another file put in its place, while it was open: "
                "stop all apps that have it open before you do that, and start them again now"
            )

    def _committed(self, tables: SqliteTables) -> None:
        """What follows a commit. Nothing here may make it look as if it had failed."""
        self._idle_wait_s, self._idle_since = idle_s, time.monotonic()
        self.head = tables.last_position()
        try:
            tables.remember()
            for worker_id in tables.ended_workers:
                self.workers.clear_away(worker_id)
        except Exception:
            log.exception("after a commit on %s", self._path)
            self._remembered.forget()

    def _ready_connection(self) -> Statements:
        """The connection; a new one when the last was discarded."""
        if self._sql is None:
            try:
                self._sql = self._connect()
            except Exception as error:
                raise BatchFailed(f"the file cannot be opened again: {error}") from error
        return self._sql

    def _decide(
        self, sql: Statements, batch: Batch, remembered: Remembered, *, prove: bool = False
    ) -> tuple[SqliteTables, Done]:
        """Everything up to the commit. Whatever goes wrong here, nothing happened.

        With `prove` the proof is left even if the ops change nothing: something else may.
        """
        try:
            number = self._next_number(sql, remembered)
            changes = sql.connection.total_changes
            tables = SqliteTables(
                sql,
                now=self._clock.now(),
                number=number,
                worker_id=batch.worker_id,
                lifecycle=self._lifecycle,
                sticky_us=batch.sticky_us,
                ids=self._ids,
                liveness=self.workers,
                remembered=remembered,
            )
            if self.prefetching:
                tables.prefetch(batch.ops)
            applied = _apply_ops(tables, batch.ops)
            if batch.decided is not None:
                batch.decided()
            tables.flush()
            # Of several workers that are told of a run one gets it. What the others ask for changes nothing, needs no
            # proof and no disk, and is no news to anybody: a commit of nothing writes nothing.
            if sql.connection.total_changes == changes and not prove:
                return tables, Done(applied, 0)
            proof = {"number": number, "batch_id": batch.batch_id, "at": tables.now}
            sql.run("insert_commit", proof)
            if number % commits_pruned == 0:
                sql.run("prune_commits", {"number": number - commits_kept})
        except BaseException as error:
            self._roll_back(sql)
            raise BatchFailed(f"{type(error).__name__}: {error}") from error
        return tables, Done(applied, number)

    def _next_number(self, sql: Statements, remembered: Remembered) -> int:
        """The number of the next commit, and whether what is remembered still holds."""
        version: int = sql.row("data_version")[0]
        if not remembered.holds(version):
            number, min_code, position, fan_outs, awaited = sql.row("last_commit", _facts)
            opening.check_min_code(sql, min_code)
            remembered.begin(number, position, decode_positions(fan_outs))
            remembered.watched.update((("topic", one), one in decode_ids(awaited)) for one in FACTS)
            if remembered is self._remembered:
                self._others.saw(number, version)
            else:
                self._others.saw_number(number)
        return remembered.number + 1

    def _begin(self, sql: Statements, patience_s: float) -> None:
        """Our turn to write, once whoever has it without our lock lets go: a caller with a transaction of its own."""
        began = time.monotonic()
        while True:
            try:
                sql.run("begin")
                return
            except BaseException as error:
                waited_s = time.monotonic() - began
                if not _is_busy(error):
                    self._roll_back(sql)
                    raise BatchFailed(f"{type(error).__name__}: {error}") from error
                if waited_s >= _patience_share * patience_s:
                    what = f"another connection has held the write lock for {waited_s:.1f} s"
                    raise StoreBusy(f"{what}: {self._path}") from error
                log.warning(
                    "another connection has held the write lock of %s for %.1f s: all writes wait for it",
                    self._path,
                    waited_s,
                )

    def _roll_back(self, sql: Statements) -> None:
        self._remembered.forget()
        try:
            if sql.connection.in_transaction:
                sql.run("rollback")
        except sqlite3.Error:
            log.exception("rollback on %s", self._path)
            self._discard(sql)

    def _discard(self, sql: Statements) -> None:
        """Nobody knows the state of this connection any more: the next batch opens another."""
        if self._sql is sql:
            self._sql = None
        sql.connection.close()

    def _commit(self, sql: Statements, batch_id: str) -> None:
        try:
            sql.run("commit")
        except BaseException as error:
            # Forgetting also makes the next batch read the number of the last commit.
            self._remembered.forget()
            if self._is_settled(sql, batch_id, error):
                return
            raise BatchFailed(f"commit failed: {error}") from error

    def _is_settled(self, sql: Statements, batch_id: str, error: BaseException) -> bool:
        """What a failed commit did: still open, it is rolled back; else the proof is looked for."""
        if sql.connection.in_transaction:
            self._roll_back(sql)
            return False
        try:
            return bool(sql.row("settled", {"batch_id": batch_id})[0])
        except sqlite3.Error:
            self._discard(sql)
            raise BatchUnknown(f"commit failed, and what it did is unknown: {error}") from error

    # --- a transaction of a caller's ---

    def _transact(self, batch: Batch, work: Transaction) -> Done:
        """The body, and the op that records it, as one transaction on a connection of their own.

        Not on ours: what the body does to it (pragmas, factories) goes with it. What we remember is forgotten by the
        next batch, which sees that another connection has written.
        """
        with self._locked():
            sql = self._connect_for_body()
            try:
                self._begin(sql, batch.patience_s)
                op = self._run_body(sql, work)
                one = batch._replace(ops=(op,))
                tables, done = self._decide(sql, one, Remembered(), prove=True)
                if not work.stands(done.applied):
                    self._roll_back(sql)
                    return Done(done.applied, 0)
                self._seal(sql, work)
                self._commit(sql, batch.batch_id)
                self._others.committed(done.number, elsewhere=True)
                self._committed(tables)
                return done
            finally:
                sql.connection.close()

    def _connect_for_body(self) -> Statements:
        try:
            sql = self._connect()
            # What the caller's tables declare is held to; ours declare nothing of the kind.
            sql.connection.execute("pragma foreign_keys = 1").close()
            return sql
        except Exception as error:
            raise BatchFailed(f"the file cannot be opened: {error}") from error

    def _run_body(self, sql: Statements, work: Transaction) -> Op[Any]:
        try:
            return guarding.within(sql.connection, work.call)
        except BaseException:
            self._roll_back(sql)
            raise

    def _seal(self, sql: Statements, work: Transaction) -> None:
        try:
            work.seal()
        except BaseException:
            self._roll_back(sql)
            raise

    # --- the log ---

    def _wal_bytes(self) -> int:
        # Never open SQLite's files: closing any descriptor of them would drop SQLite's locks.
        try:
            return os.stat(f"{self._path}-wal").st_size
        except OSError:
            return 0

    def _checkpoint_if_large(self) -> None:
        if self._sql is None:
            return
        wal_bytes = self._wal_bytes()
        if wal_bytes > self._wal_bytes_next:
            if not self._checkpoint():
                self._wal_bytes_next = wal_bytes + wal_patience_bytes
                log.warning("a reader holds the log of %s: %d bytes", self._path, wal_bytes)

    def _checkpoint(self) -> bool:
        """Copy the log into the database, under the side lock. A failure is only logged."""
        if self._lock is None or self._sql is None:
            return False
        try:
            with self._lock:
                done = self._truncate_log(self._sql)
        except Exception:  # the thread must go on whatever the disk says
            log.warning("the log of %s could not be copied", self._path, exc_info=True)
            return False
        if done:
            self._wal_bytes_next = wal_bytes_max
        return done

    def _truncate_log(self, sql: Statements) -> bool:
        with opening.impatient(sql.connection):
            busy, _, _ = sql.row("checkpoint")
        return not busy


def _apply_ops(tables: SqliteTables, ops: Sequence[Op[Any]]) -> list[Applied]:
    applied = []
    wakes = tables.wakes
    for op in ops:
        outcome = HANDLERS[type(op)](tables, op)
        if wakes:
            applied.append(Applied(outcome, tuple(wakes)))
            wakes.clear()
        else:
            applied.append(Applied(outcome, ()))
    return applied


def _identity(path: str) -> tuple[int, int]:
    """Which file is at a path."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _is_busy(error: BaseException) -> bool:
    # The low byte; the rest says more than we ask.
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF == sqlite3.SQLITE_BUSY


_open_writers: "weakref.WeakSet[Writer]" = weakref.WeakSet()


def _after_fork() -> None:
    for writer in list(_open_writers):
        writer.let_go()
    _open_writers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
