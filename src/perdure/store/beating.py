"""Life signs off the loop: a thread that prolongs a worker's lease, for stores that know their workers only by that.

A step that blocks the event loop, or a loop under full load, must not cost the worker its runs. How a lease is
prolonged is the store's affair: it gives a function that does it once, with a connection of its own. When the row is
gone, or nothing was heard of the store for as long as the lease is, others take the worker for dead: that is told once,
in the loop, and the thread ends. By the time of the machine, in tests too: so long a lease really is.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger("perdure.store")


class Beating:
    """Calls `beat` every so often until it is stopped. `beat` says whether there was a lease to prolong.

    `beat` and, at the end, `on_end` are called in the thread.
    """

    def __init__(
        self,
        beat: Callable[[], bool],
        *,
        lease_s: float,
        every_s: float,
        on_lost: Callable[[], None],
        on_end: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._beat = beat
        self._lease_s = lease_s
        self._every_s = every_s
        self._on_lost = on_lost
        self._on_end = on_end
        self._monotonic = monotonic
        self._beaten_at = monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin, in a thread that does not keep the process alive. The lease was taken just now."""
        self._loop = asyncio.get_running_loop()
        self._beaten_at = self._monotonic()
        threading.Thread(target=self._run, name="perdure-beat", daemon=True).start()

    def stop(self) -> None:
        """No more beats but one that may be under way, and no more news of them. Does not block."""
        self._stopped.set()

    def stop_after(self, event: threading.Event) -> None:
        """Go on until the event is set, whoever else may be gone by then. Does not block."""
        after(event, self.stop)

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._every_s):
                if not self.holds():
                    self._tell()
                    return
        finally:
            self._on_end()

    def holds(self) -> bool:
        """Beat once; whether the lease can still be ours."""
        try:
            if not self._beat():
                return False
            self._beaten_at = self._monotonic()
        except Exception:
            log.warning("a life sign could not be given", exc_info=True)
        return self._monotonic() - self._beaten_at < self._lease_s

    def _tell(self) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._heard)
        except RuntimeError:  # the loop is closed: nobody holds anything any more
            pass

    def _heard(self) -> None:
        if not self._stopped.is_set():
            self._on_lost()


def after(event: threading.Event, act: Callable[[], None]) -> None:
    """Act once the event is set, in a thread that does not keep the process alive. Does not block."""

    def wait() -> None:
        event.wait()
        act()

    threading.Thread(target=wait, name="perdure-after", daemon=True).start()
