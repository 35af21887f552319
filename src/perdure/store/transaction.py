"""Work of a caller's inside a transaction of the store's own database, and the op that is committed with it.

The coordinator makes one; `Store.transact` carries it out, in this order: begin a transaction, run the body in it
(`call`, or `acall` where connections are asynchronous), apply the op that this gives, `seal`, commit. Somewhere on the
way, before the op is applied, it awaits its `turn`: from then on nothing else of this process commits until the answer
was told, so that who owns a run learns of everything in the order of commits. A store with one writer asks for it
before it begins. One that has to begin anew, because others were quicker, runs the body once more and keeps its turn.

Until it is sealed it can be withdrawn, from any thread; from then on its answer counts.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from perdure.model.ops import Op
from perdure.model.outcomes import Fenced, Moved
from perdure.store.base import Applied


class BodyFailed(Exception):
    """What the body raised, or what is wrong with what it gave: rolled back."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(f"{type(error).__name__}: {error}")


class Withdrawn(Exception):
    """Nobody wants it any more: rolled back."""


class Transaction:
    """A body, and `make_op`: from what the body gives to the op that records it, and the value as it is read back."""

    def __init__(
        self,
        body: Callable[[Any], Any],
        make_op: Callable[[Any], tuple[Op[Any], Any]],
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        self._body = body
        self._make_op = make_op
        self._lock = threading.Lock()
        self._sealed = False
        self._withdrawn = False
        self._running: asyncio.Future[Any] | None = None
        self.turn = turn
        # What came of the body.
        self.op: Op[Any] | None = None
        self.value: Any = None

    # --- for the store ---

    def call(self, connection: Any) -> Op[Any]:
        """Run a plain body; gives the op to apply. Raises BodyFailed or Withdrawn: then roll back, and pass it on."""
        self._check()
        try:
            return self._given(self._body(connection))
        except BaseException as error:
            self._check()
            raise BodyFailed(error) from error

    async def acall(self, connection: Any) -> Op[Any]:
        """The same for a body that is a coroutine; it is cancelled when it is withdrawn."""
        self._check()
        self._running = asyncio.ensure_future(self._body(connection))
        try:
            return self._given(await self._running)
        except BaseException as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # it is not the body's doing
            self._check()
            raise BodyFailed(error) from error
        finally:
            self._running = None

    def stands(self, applied: Sequence[Applied]) -> bool:
        """Whether the op was taken. If not, the run is no longer the sender's: roll back, and give the answer."""
        return not any(isinstance(one.outcome, Fenced | Moved) for one in applied)

    def seal(self) -> None:
        """Right before the commit. Raises Withdrawn: then roll back."""
        with self._lock:
            self._check()
            self._sealed = True

    @property
    def is_sealed(self) -> bool:
        """Whether it may have been committed."""
        return self._sealed

    # --- for everybody else ---

    def withdraw(self) -> bool:
        """Have it rolled back; False if it is too late for that. Its end is told as that of any other."""
        with self._lock:
            if self._sealed:
                return False
            self._withdrawn = True
        if self._running is not None:
            self._running.cancel()
        return True

    def _given(self, result: Any) -> Op[Any]:
        self.op, self.value = self._make_op(result)
        return self.op

    def _check(self) -> None:
        if self._withdrawn:
            raise Withdrawn
