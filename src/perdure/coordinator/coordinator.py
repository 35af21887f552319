"""The one writer of this process.

Everyone else describes a write as an op and awaits its outcome. We take all ops that are waiting, give them to the
store as one batch, then answer in order and pass the wakes on. While a batch commits the next one gathers: group
commit without a timer; load sets the batch. Under full load the answers of a batch are told while the next one is
being written, when the store needs the disk and not the interpreter. Never reads the clock. Workflow code may run
in here, when an answer is passed on to the run that waited for it; whatever it raises, the next answers go out.

Memory changes after the commit, never before. A batch that failed is split in two until the op that spoils it
stands alone, so its neighbours do not suffer. A caller that is cancelled undoes nothing: its op is applied
and the answer dropped. A step that is a transaction commits beside the batches, in a turn between them.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

from perdure.coordinator.wake import WakeHub
from perdure.errors import NotRunning, OutcomeUnknown, StoreRefused
from perdure.model import limits
from perdure.model.ids import Ids
from perdure.model.ops import Op
from perdure.observing.observation import Observation
from perdure.store.base import Applied, BatchFailed, BatchLost, BatchUnknown, Store, StoreBusy
from perdure.store.transaction import BodyFailed, Transaction, Withdrawn

A = TypeVar("A")
# Gets the op, its outcome or the exception that took its place, and what was posted beside the op. That third
# one is for speed: a closure or a partial for each op would be three more objects for the collector to walk.
Done = Callable[[Any, Any, Any], None]
# An op, who is called first with its outcome, what for, and who awaits it.
Posted = tuple[Op[Any], Done | None, Any, "asyncio.Future[Any] | None"]

log = logging.getLogger("perdure.coordinator")
ops_log = logging.getLogger("perdure.ops")


# With so many ops waiting after a commit, its answers are held until the next batch is decided: then those who are
# answered run beside the writing. With fewer, what they ask next had better join the batch.
_held_ops_min = 250
# They wait no longer than this: the store may have to wait for another process.
_held_s_max = 0.05
# A batch whose connection was lost, and that was not committed, is tried again so often before its ops are suspected.
_lost_max = 5


class _NoAnswer(BatchUnknown):
    """The store was not heard of in time; it may be at work yet."""


class _Turn(Op[None], frozen=True, kw_only=True, gc=False):
    """Not a write, but a place in the queue: for somebody who commits by himself while nobody else does."""

    heavy: ClassVar[bool] = True
    over: asyncio.Event


class Coordinator:
    """Single writer with group commit."""

    def __init__(
        self,
        store: Store,
        ids: Ids,
        *,
        store_timeout_s: float = 30.0,
        observed: Observation | None = None,
    ) -> None:
        self._counts = None if observed is None else observed.counts
        self._spans = None if observed is None else observed.spans
        self._store = store
        self._ids = ids
        self._store_timeout_s = store_timeout_s
        self.hub = WakeHub()
        self.on_unknown: Callable[[], None] | None = None  # the worker reloads what it holds
        self.on_batch: list[Callable[[], None]] = []  # readers of the ledger: it may have moved
        self._queue: deque[Posted] = deque()
        self._heavies = 0  # among what is queued
        self._size = 0  # of what is queued
        self._untold: Iterator[Posted] = iter(())  # those of the batch that have no answer yet
        # A batch that is committed and whose answers wait until the next one is decided.
        self._held: tuple[list[Posted], list[Applied]] | None = None
        # The store did not say when; it may not have let the loop turn either.
        self._told_late = False
        self._work = asyncio.Event()
        self._transactions: set[asyncio.Task[None]] = set()
        self._space: deque[asyncio.Future[None]] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._closed = True
        self._committing = False

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or being committed."""
        return not self._queue and not self._committing

    @property
    def queued(self) -> int:
        """How many ops wait for a commit."""
        return len(self._queue)

    # --- life ---

    def start(self) -> None:
        self._closed = False
        self._spawn_pump()

    def _spawn_pump(self) -> None:
        self._pump = asyncio.create_task(self._run(), name="perdure-coordinator")
        self._pump.add_done_callback(self._revive)

    def _revive(self, pump: "asyncio.Task[None]") -> None:
        """Without the pump every write would wait for ever: nothing that kills it may keep it dead."""
        self._committing = False
        error = None if pump.cancelled() else pump.exception()
        if not self._closed and _loop_is_closing():
            log.warning("the event loop ends and the app was not closed", exc_info=error)
            self._closed = True
            self._end()
        elif self._closed and not self._queue:
            if error is not None:
                log.critical("the writer failed at its end", exc_info=error)
            self._end()
        else:
            log.critical("the writer stopped and is started again", exc_info=error)
            self._spawn_pump()

    def _end(self) -> None:
        """Nothing will be written any more: let go of all who wait for it."""
        self._pump = None
        self._tell_held()
        while self._queue:
            _tell(self._queue.popleft(), _too_late())
        self._let_in()

    async def stop(self) -> None:
        """Apply what is queued, then stop. Ops posted from now on are refused.

        A caller that is cancelled leaves the writer to end by itself.
        """
        self._closed = True
        self._work.set()
        while self._pump is not None:
            await asyncio.wait((self._pump,))

    async def flush(self) -> None:
        """Until everything that is queued, and what its answers lead to at once, is committed.

        Others may go on asking: what they queue meanwhile is not waited for.
        """
        for _ in range(2):
            try:
                await self._reach_the_end_of_the_queue()
            except NotRunning:
                return  # the end has come: nothing is left to be committed

    def _reach_the_end_of_the_queue(self) -> Awaitable[None]:
        over = asyncio.Event()
        over.set()  # it is to stand in the queue, not to hold it up
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.post(_Turn(over=over), None, None, reached)
        return reached

    # --- asking ---

    def submit(self, op: Op[A], done: Done | None = None, extra: Any = None) -> Awaitable[A]:
        """Apply an op and give its outcome.

        `done` gets it first: in commit order, and even if the caller was cancelled.
        """
        if len(self._queue) >= limits.queue_ops_max:
            return self._submit_later(op, done, extra)
        # Not a coroutine, for speed: while the op is decided the caller alone is suspended.
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        if self._spans is not None:
            self._spans.sent(op)
        self.post(op, done, extra, future)
        return future

    async def _submit_later(self, op: Op[A], done: Done | None, extra: Any) -> A:
        try:
            await self._wait_for_space()
        except BaseException as error:
            if done is not None:
                done(op, error, extra)  # it may have kept a place for what will not come
            raise
        return await self.submit(op, done, extra)

    async def submit_many(self, ops: Sequence[Op[A]]) -> list[A | BaseException]:
        """Apply many ops, each on its own; the outcomes in the same order.

        In the place of an op that failed stands its exception: none spoils the answers of the others.
        """
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[A]] = []
        for op in ops:
            if len(self._queue) >= limits.queue_ops_max:
                await self._wait_for_space()
            future: asyncio.Future[A] = loop.create_future()
            if self._spans is not None:
                self._spans.sent(op)
            self.post(op, None, None, future)
            futures.append(future)
        return list(await asyncio.gather(*futures, return_exceptions=True))

    def post(
        self,
        op: Op[Any],
        done: Done | None,
        extra: Any = None,
        future: "asyncio.Future[Any] | None" = None,
    ) -> None:
        """Queue an op and be called back in commit order; for the runtime, whose bound is its run count."""
        if self._closed:
            _tell((op, done, extra, future), _too_late())
            return
        self._queue.append((op, done, extra, future))
        if op.heavy:
            self._heavies += 1
        self._size += op.size
        if not self._work.is_set():
            self._work.set()

    async def _wait_for_space(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._space.append(waiter)
        await waiter

    # --- the pump ---

    async def _run(self) -> None:
        while True:
            if not self._queue:
                if self._closed:
                    return
                self._work.clear()
                await self._work.wait()
                continue
            batch = self._next_batch()
            size = len(batch)
            self._let_in()
            self._committing = True
            if type(batch[0][0]) is _Turn:
                await self._give_turn(batch[0][0], batch[0][3])
                continue
            self._untold = iter(batch)
            try:
                await self._commit(batch)
            except BaseException as error:  # we were cancelled, or there is a defect
                self._say_unknown(size, error)
                raise
            # Or they would hold a thousand answers in memory until the next batch.
            del batch
            self._untold = iter(())
            if self._held is None:
                self._committing = False
            if self._held is None or self._told_late:
                self._told_late = False
                # Those who were answered go first: what they ask next joins the batch, and the writer thread
                # does not take the interpreter from under them.
                await asyncio.sleep(0)

    def _next_batch(self) -> list[Posted]:
        """What is queued, up to a bound. A heavy op closes its batch: what it leads to is then done while what came
        after it is written."""
        queue = self._queue
        ops_max = min(self._store.batch_ops, limits.batch_ops_max)
        is_small = self._size <= limits.batch_events_max
        if is_small and not self._heavies and len(queue) <= ops_max:  # nearly always
            batch = list(queue)
            queue.clear()
            self._size = 0
            return batch
        batch = []
        size = 0
        while queue and len(batch) < ops_max:
            following = queue[0][0]
            size += following.size
            if batch and (type(following) is _Turn or size > limits.batch_events_max):
                break  # a turn stands alone
            posted = queue.popleft()
            batch.append(posted)
            self._size -= following.size
            if posted[0].heavy:
                self._heavies -= 1
                break
        return batch

    async def _give_turn(self, turn: _Turn, given: "asyncio.Future[Any] | None") -> None:
        """Stand still until it is over; what was committed before is told before."""
        self._tell_held()
        if given is not None and not given.done():
            given.set_result(None)
            await turn.over.wait()
        self._committing = False

    def _let_in(self) -> None:
        room = limits.queue_ops_max - len(self._queue)
        while self._space and (room > 0 or self._closed):  # once closed, to be refused
            waiter = self._space.popleft()
            if not waiter.done():
                waiter.set_result(None)
                room -= 1

    async def _commit(self, batch: list[Posted], lost: int = 0) -> None:
        batch_id = self._ids.ulid()
        try:
            applied = await self._apply(batch_id, [posted[0] for posted in batch])
        except StoreBusy as error:
            self._count_failed("busy")
            log.error("the store does not take anything at present: %s", error)
            for posted in itertools.islice(self._untold, len(batch)):
                _tell(posted, _refused(error))
        except BatchLost as error:
            self._count_failed("lost")
            await self._commit_again(batch, lost, error)
        except BatchFailed as error:
            self._count_failed("refused")
            await self._bisect(batch, error)
        except BatchUnknown as error:
            self._count_failed("unknown")
            if await self._did_not_happen(batch_id, error):
                await self._commit_again(batch, lost, BatchFailed(str(error)))
            else:
                self._say_unknown(len(batch), error)
        except Exception as error:  # a store may raise nothing else: treat a defect as not knowing
            log.exception("the store broke its contract")
            self._say_unknown(len(batch), error)
        else:
            told = list(itertools.islice(self._untold, len(applied)))
            try:
                self._tell_late()
            finally:  # whatever the code of others does in there: this batch is committed too
                if len(self._queue) < _held_ops_min:
                    self._answer(told, applied)
                else:
                    self._held = (told, applied)
                    asyncio.get_running_loop().call_later(_held_s_max, self._tell_held)

    async def _commit_again(self, batch: list[Posted], lost: int, error: BatchFailed) -> None:
        if lost < _lost_max:
            await self._commit(batch, lost + 1)
        else:
            await self._bisect(batch, error)

    async def _apply(self, batch_id: str, ops: list[Op[Any]]) -> list[Applied]:
        # Awaited in place, not as a task of its own: each turn of a busy loop between the commit and its
        # answers is time in which the writer stands idle.
        began_s = 0.0 if self._counts is None else asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._store_timeout_s):
                decided = None if self._held is None else self._tell_held
                applied = await self._store.apply(batch_id, ops, decided)
            if len(applied) != len(ops):
                raise AssertionError(f"{len(applied)} answers to {len(ops)} ops")
        except TimeoutError:
            self._tell_late()
            log.error("the store has not answered for %s s", self._store_timeout_s)
            raise _NoAnswer(f"no answer within {self._store_timeout_s} s") from None
        except BaseException:
            self._tell_late()
            raise
        if self._counts is not None:
            took_s = asyncio.get_running_loop().time() - began_s
            self._counts.committed(len(ops), took_s)
        return applied

    async def _did_not_happen(self, batch_id: str, error: BatchUnknown) -> bool:
        """Settle by the batch's id. One that is still under way may commit later, so of that nothing is said."""
        if isinstance(error, _NoAnswer):
            return False
        try:
            async with asyncio.timeout(self._store_timeout_s):
                return not await self._store.settle(batch_id)
        except Exception:
            log.exception("the store does not say what became of a batch")
            return False

    # --- transactions of steps ---

    def transact(
        self,
        body: Callable[[Any], Any],
        make_op: Callable[[Any], tuple[Op[Any], Any]],
        done: Done,
        extra: Any,
    ) -> Transaction:
        """Run a body in a transaction of the store's database and commit it with the op that it leads to.

        `done` gets the op and its outcome in the order of all commits of this process; or, if nothing was committed,
        what the transaction raised. Whoever asks may go: it is carried out, unless it is withdrawn.
        """
        turn = _Turn(over=asyncio.Event())

        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asked = False

        async def wait_for_turn() -> None:
            nonlocal asked
            if not asked:  # a store that begins anew has it still
                asked = True
                self.post(turn, None, None, given)
            await given

        work = Transaction(body, make_op, wait_for_turn)
        task = asyncio.create_task(self._transact(work, turn, done, extra), name="perdure-transact")
        self._transactions.add(task)
        task.add_done_callback(self._transactions.discard)
        return work

    async def _transact(self, work: Transaction, turn: _Turn, done: Done, extra: Any) -> None:
        try:
            answer = await self._carry_out(work)
            if isinstance(answer, Applied):
                self._answer([(work.op or turn, done, extra, None)], [answer])
                return
            _tell((work.op or turn, done, extra, None), answer)
            if isinstance(answer, OutcomeUnknown) and self.on_unknown is not None:
                self.on_unknown()
        except asyncio.CancelledError:
            work.withdraw()  # the loop ends: whatever the store still does of it must not be committed
            raise
        finally:
            turn.over.set()

    async def _carry_out(self, work: Transaction) -> Applied | Exception:
        batch_id = self._ids.ulid()
        try:
            (applied,) = await self._store.transact(batch_id, work)
            return applied
        except (BodyFailed, Withdrawn, NotRunning) as error:
            return error
        except BatchFailed as error:
            log.error("the store refused a transaction: %s", error)
            return _refused(error)
        except BatchUnknown as error:
            if await self._did_not_happen(batch_id, error):
                return _refused(BatchFailed(str(error)))
            return _unknown(f"a transaction may or may not have been committed: {error}", error)
        except Exception as error:  # a store may raise nothing else: treat a defect as not knowing
            log.exception("the store broke its contract")
            return _unknown(f"a transaction may or may not have been committed: {error}", error)

    # --- what went wrong ---

    async def _bisect(self, batch: list[Posted], error: BatchFailed) -> None:
        if len(batch) == 1:
            log.error("the store refused %s: %s", type(batch[0][0]).__name__, error)
            _tell(next(self._untold), _refused(error))
            return
        middle = len(batch) // 2
        await self._commit(batch[:middle])
        await self._commit(batch[middle:])

    def _say_unknown(self, count: int, error: BaseException) -> None:
        why = str(error) or type(error).__name__
        for posted in itertools.islice(self._untold, count):
            unknown = _unknown(
                f"{type(posted[0]).__name__} may or may not have happened ({why}); "
                "repeating it with the same key is safe",
                error,
            )
            _tell(posted, unknown)
        if self.on_unknown is not None and not self._closed:
            self.on_unknown()

    def _tell_late(self) -> None:
        """Tell what is held, if the store did not say when."""
        self._told_late = self._held is not None
        self._tell_held()

    def _tell_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._answer(*held)

    def _count_failed(self, how: str) -> None:
        if self._counts is not None:
            self._counts.batches_failed.add(how)

    def _answer(self, batch: list[Posted], applied: list[Applied]) -> None:
        if self._counts is not None:
            for answer, posted in zip(applied, batch, strict=True):
                self._counts.answered(posted[0], answer)
        # In the order of the batch, wakes of an op before its answer: a run's owner then learns of everything
        # in the order of its history.
        debug = ops_log.isEnabledFor(logging.DEBUG)
        pass_on = self.hub.pass_on
        end: BaseException | None = None
        for answer, posted in zip(applied, batch, strict=True):
            if debug:
                ops_log.debug("%r -> %r", posted[0], answer.outcome)
            try:
                try:
                    for wake in answer.wakes:
                        pass_on(wake)
                except Exception:  # a defect must not cost the others in the batch their answers
                    log.exception("a wake was not heard; what it tells of stands")
                _tell(posted, answer.outcome)
            except BaseException as error:  # nor must Ctrl-C, which waits until all have theirs
                end = end or error
        for hear in self.on_batch:
            hear()
        if end is not None:
            raise end


def _tell(posted: Posted, outcome: Any) -> None:
    op, done, extra, future = posted
    try:
        if done is not None:
            done(op, outcome, extra)
    except Exception:
        log.exception("a callback failed; its op stands")
    finally:
        # Unless nobody awaits it, or the caller was cancelled; the op stands.
        if future is not None and not future.done():
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


def _refused(error: BatchFailed) -> StoreRefused:
    refused = StoreRefused(
        f"the store did not take the write, nothing changed: {error}",
        passing=isinstance(error, StoreBusy),
    )
    refused.__cause__ = error
    return refused


def _unknown(reason: str, error: BaseException) -> OutcomeUnknown:
    """With its cause: what a store said is not for everybody (`http/problems.py`)."""
    unknown = OutcomeUnknown(reason)
    unknown.__cause__ = error
    return unknown


def _too_late() -> NotRunning:
    return NotRunning("the app is closed: nothing can be written any more")


def _loop_is_closing() -> bool:
    """Whether all tasks were told to end, as at the end of asyncio.run: one made now would never finish."""
    return all(task.cancelling() for task in asyncio.all_tasks())
