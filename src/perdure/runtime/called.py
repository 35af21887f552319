"""Runs of ours that another process has changed: what it decided is read and given to them, without a replay.

A call is a hint with nothing in it but the run: it may be lost, late, doubled, or of a run that is somebody else's by
now. So the store is read, once for all calls that have come meanwhile, and what the run does not know yet is worked
out from its records. If that explains every change since the revision that the run has seen, it goes on from where it
stands; if not, it is loaded anew.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.model import limits
from perdure.model.records import Completion, RunRecord, StepRecord
from perdure.runtime.calls import Durable, StepCall, WaitCall
from perdure.service import Service
from perdure.store.base import Store


class Called(Service):
    """Reads the runs that calls were about, and gives them to `on_seen`; None in place of one that is no more."""

    def __init__(
        self,
        store: Store,
        on_seen: Callable[[str, RunRecord | None, Sequence[StepRecord]], None],
    ) -> None:
        super().__init__()
        self._store = store
        self._on_seen = on_seen
        self._run_ids: dict[str, None] = {}
        self._called = asyncio.Event()
        self._reading = False

    def start(self) -> None:
        self._spawn("called", self._run)

    def hear(self, run_id: str) -> None:
        """Something about this run may have changed."""
        self._run_ids[run_id] = None
        self._called.set()

    @property
    def idle(self) -> bool:
        return not self._reading and not self._called.is_set()

    async def _run(self) -> None:
        while True:
            await self._called.wait()
            self._reading = True
            try:
                self._called.clear()
                while self._run_ids:
                    await self._read(list(self._run_ids)[: limits.page_rows_max])
            finally:
                self._reading = False

    async def _read(self, run_ids: list[str]) -> None:
        # Before the read: a call that comes while it is under way may be about what it does not see.
        for run_id in run_ids:
            del self._run_ids[run_id]
        try:
            loaded = await self._store.load(run_ids)
        except BaseException:
            # They are still to be looked at: nobody calls twice.
            for run_id in run_ids:
                self.hear(run_id)
            raise
        found = {run.run_id: (run, steps) for run, steps in loaded}
        for run_id in run_ids:
            self._on_seen(run_id, *found.get(run_id, (None, ())))


def unseen(
    run: RunRecord,
    steps: Sequence[StepRecord],
    *,
    revision: int,
    asked: int,
    standing: Mapping[str, Durable[Any]],
    resting: Mapping[str, StepCall[Any]],
    now: int,
) -> list[StepRecord | Completion] | None:
    """What others have decided for a run since that revision, in its order; None if that does not explain it all.

    `asked` is how many requests (pause, cancel) are among it, `standing` where branches stand, `resting` which steps
    are between two attempts.
    """
    decided = [one for one in steps if one.seq and isinstance(standing.get(one.path), WaitCall)]
    due = [one for one in steps if _is_due(one, resting.get(one.path), now)]
    if len(decided) + len(due) + asked != run.revision - revision:
        return None
    return [*sorted(decided, key=lambda one: one.seq), *map(_again, due)]


def _is_due(step: StepRecord, call: StepCall[Any] | None, now: int) -> bool:
    if call is None or step.state != "retrying" or call.attempt != step.attempt + 1:
        return False
    return (step.retry_at or 0) <= now


def _again(step: StepRecord) -> Completion:
    """The pause after a failed attempt is over."""
    at = step.retry_at or 0
    return Completion(step.path, "step", "retrying", 0, None, None, None, at, step.attempt)
