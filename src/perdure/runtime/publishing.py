"""What a step publishes while it runs: into a buffer at once, into the store soon, and before its result.

The body never waits, in whichever thread it runs: an item goes into the bounded buffer of its attempt. One op of the
attempt is under way at a time, and what gathers meanwhile goes with the next: tokens that come one by one are stored in
batches, of a size that the store's own pace sets. The attempt ends when its buffer is empty. What a stale worker
publishes the store refuses; whatever else keeps the store from taking an op, it is sent again: so an item may, after an
answer was lost, be there twice.
"""

import asyncio
import threading
from collections import deque
from itertools import islice
from typing import Any, Final

from perdure.errors import NotRunning, Overloaded, PerdureError, refusal_error
from perdure.inputs import encoded_item
from perdure.model import limits
from perdure.model.limits import check_name
from perdure.model.ops import Publish
from perdure.model.outcomes import Counted, Fenced, Refusal
from perdure.runtime.calls import StepCall, TransactionCall

# Before items are sent again that the store could not take (disk full, server gone).
_pause_s: Final = 1.0


class Outgoing:
    """The items of one attempt that the store does not have yet."""

    __slots__ = (
        "_attempt",
        "_bytes",
        "_call",
        "_is_over",
        "_items",
        "_lock",
        "_loop",
        "_sends",
        "_waiter",
        "failure",
    )

    def __init__(self, call: StepCall[Any]) -> None:
        if isinstance(call, TransactionCall):
            raise PerdureError(
                f"the step at {call.path!r} is a transaction, and all that it does is seen at its end: it cannot "
                "publish. Use ctx.publish after it"
            )
        if call.task is None:  # in the moment of its end, seen from another thread
            raise self.is_over(call.path, call.attempt)
        self._call = call
        self._attempt = call.attempt
        self._loop = call.task.get_loop()
        self._lock = threading.Lock()
        self._items: deque[tuple[str, str, int]] = deque()  # stream, JSON, bytes
        self._bytes = 0
        self._sends = False  # an op is under way, or about to be
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None
        self.failure: PerdureError | None = None  # why nothing more is taken

    # --- from the body, in whichever thread ---

    def publish(self, stream: str, item: Any) -> None:
        name = check_name("stream", stream)
        text = encoded_item(f"step_info().publish({stream!r})", item)
        size = len(text.encode())
        with self._lock:
            self._check(size)
            self._items.append((name, text, size))
            self._bytes += size
            is_first, self._sends = not self._sends, True
        if is_first:
            self._wake()

    def _check(self, size: int) -> None:
        if self._is_over or self._call.cancelled:
            raise self.is_over(self._call.path, self._attempt)
        if self.failure is not None:
            raise self.failure
        over = None
        if len(self._items) >= limits.stream_buffer_items_max:
            over = f"{len(self._items)} items; at most {limits.stream_buffer_items_max} (stream_buffer_items_max)"
        elif self._bytes + size > limits.stream_buffer_bytes_max:
            over = f"{self._bytes} bytes; at most {limits.stream_buffer_bytes_max} (stream_buffer_bytes_max)"
        if over is not None:
            raise Overloaded(
                f"the step at {self._call.path!r} publishes faster than the store takes it: {over} may wait. Nothing "
                "of this item was stored. Publish fewer, larger items, or await something in between"
            )

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._send)
        except RuntimeError:  # the loop is closed: a thread has outlived its app
            raise self.is_over(self._call.path, self._attempt) from None

    @staticmethod
    def is_over(path: str, attempt: int) -> PerdureError:
        return PerdureError(
            f"attempt {attempt} of the step at {path!r} is over (it has ended, timed out or was cancelled): what it "
            "publishes now is not stored"
        )

    # --- in the loop ---

    def _send(self) -> None:
        with self._lock:
            batch = tuple(islice(self._items, limits.stream_items_per_op_max))
            self._sends = bool(batch)
        if not batch:
            self._tell_stored()
            return
        run = self._call.owner
        op = Publish(
            run_id=run.run_id,
            fence=run.fence,
            path=self._call.path,
            attempt=self._attempt,
            items=tuple((stream, text) for stream, text, _ in batch),
        )
        run.host.post(op, self._answered, None)

    def _answered(self, op: Publish, outcome: Any, extra: Any) -> None:
        match outcome:
            case Counted():  # of what it took: from there on it will say why not
                self._drop(outcome.count)
                self._send()
            case Refusal():
                self._stop(refusal_error(outcome, op.path, op.run_id))
            case Exception() if not isinstance(outcome, NotRunning) and not self._call.cancelled:
                self._loop.call_later(_pause_s, self._send)
            case Fenced():
                self._stop(None)
                self._tell_loss()
            case _:  # nobody waits for the step, or the app has closed
                self._stop(None)

    def _tell_loss(self) -> None:
        """The run is no longer ours, and its body is the first to learn of it: it need not run to its end."""
        run = self._call.owner
        if not run.dead and not run.finishing:
            run.host.on_lost(run)

    def _drop(self, count: int) -> None:
        with self._lock:
            for _ in range(count):
                self._bytes -= self._items.popleft()[2]

    def _stop(self, failure: PerdureError | None) -> None:
        with self._lock:
            self._items.clear()
            self._bytes = 0
            self._sends = False
            self.failure = failure
            self._is_over = self._is_over or failure is None
        self._tell_stored()

    def _tell_stored(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def close(self) -> bool:
        """The body has ended: nothing more is taken. Whether something is on its way yet."""
        with self._lock:
            self._is_over = True
            return self._sends

    async def stored(self) -> None:
        """Until everything that was published is in the store, or will never be."""
        while self._sends:
            self._waiter = self._loop.create_future()
            await self._waiter
