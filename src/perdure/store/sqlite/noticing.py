"""What other processes do to the file is noticed: by their hints in milliseconds, else in a quarter of a second.

Four times a second the writer is asked which commits are of others. Those that no hint told of, and what was written
without being a commit of ours at all, are a reason to look; so is a process that has died. Hints say which commits they
tell of, so that nobody looks for what it has heard.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from perdure.model import limits
from perdure.model.outcomes import Wake
from perdure.store.base import Applied
from perdure.store.hint import Hint
from perdure.store.sqlite.others import Seen
from perdure.store.sqlite.peers import Peers

log = logging.getLogger("perdure.store.sqlite")

glance_every_s = 0.25
# What has just been committed may still be on its way to us.
_on_its_way_s = 0.02
# More than are ever written between two glances: then we stood still, and look anyway.
_commits_max = 20_000


class Noticing:
    """Tells and hears, for one open store; `pass_on` is called in the loop with what others have done."""

    def __init__(
        self,
        path: str,
        name: str,
        glance: Callable[[], Awaitable[Seen]],
        pass_on: Callable[[Wake], None],
        mine: Callable[[], str | None],
        listens: Callable[[], bool],
    ) -> None:
        self._path = path
        self._glance = glance
        self._pass_on = pass_on
        self._listens = listens  # whether anybody in this process does yet
        self._mine = mine  # the worker of this process
        self._peers = Peers(path, name, self._on_hint)
        self._heard: set[int] = set()  # commits that hints told of
        self._task: asyncio.Task[None] | None = None

    def open(self) -> bool:
        """Begin; whether others can be called."""
        called = self._peers.open()
        self._task = asyncio.create_task(self._watch(), name="perdure-notice")
        return called

    async def close(self) -> None:
        """Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        self._peers.close()

    # --- telling ---

    def tell(self, applied: list[Applied], number: int, head: int, now: int) -> None:
        """After a commit of ours."""
        if not self._peers.anybody or not number:
            return
        hint = self._peers.gathering()
        hint.note_all(applied, self._mine(), now)
        hint.head = max(hint.head, head)
        if len(hint.commits) < limits.hint_commits_max:
            hint.commits.append(number)
        self._peers.told_soon()

    # --- hearing ---

    def _on_hint(self, hint: Hint) -> None:
        if not self._listens():
            return  # the app is still opening: it is as if the hint were lost, and the first glance finds that
        self._heard.update(hint.commits)
        for wake in hint.wakes(self._mine()):
            self._pass_on(wake)

    # --- looking ---

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(glance_every_s)
            if not self._listens():
                continue
            try:
                missed = await self._is_anything_missed()
            except Exception:  # the file is busy, or closed, or refused: batches and looks say so
                log.debug("no glance at %s", self._path, exc_info=True)
            else:
                if missed:
                    self._pass_on(Wake("look"))

    async def _is_anything_missed(self) -> bool:
        seen = await self._glance()
        died = self._peers.sweep()
        unheard = self._unheard(seen)
        if unheard:
            await asyncio.sleep(_on_its_way_s)
            unheard = self._unheard(seen)
        self._forget(seen)
        return died or seen.unnumbered or unheard

    def _unheard(self, seen: Seen) -> bool:
        if sum(map(len, seen.commits)) > _commits_max:
            return True
        return not all(number in self._heard for one in seen.commits for number in one)

    def _forget(self, seen: Seen) -> None:
        """What was compared is not needed any more; nor what comes too late to be."""
        if seen.commits:
            last = seen.commits[-1][-1]
            self._heard = {one for one in self._heard if one > last}
        if len(self._heard) > _commits_max:
            self._heard.clear()
