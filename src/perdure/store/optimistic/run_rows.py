"""Runs: by id from their slices; by age, owner or end from an index of the store, and then looked at one by one.

What an index says may be overtaken by this very batch, so each run it names is judged by its slice. Whoever asks for a
bounded number and loses some that way is given fewer, and asks again in its next batch.
"""

from collections.abc import Iterable

from perdure.model import ops
from perdure.model.outcomes import Claimed
from perdure.model.records import RunRecord, WorkerRecord
from perdure.model.status import LIVE
from perdure.store.optimistic.known import Slice
from perdure.store.optimistic.needs import Looks
from perdure.store.optimistic.rows import LookedAt
from perdure.store.turns import by_turns


class RunRows(LookedAt):
    """The runs of one batch."""

    _workers: dict[
        str, WorkerRecord | None
    ]  # those that this batch has changed: see worker_rows.py

    def __init__(self, looks: Looks) -> None:
        super().__init__(looks)
        self._new_runs: dict[str, None] = {}
        self._put_runs: dict[str, None] = {}
        self._new_children: dict[str, list[str]] = {}
        self.claims: list[ops.ClaimRuns] = []  # that the store is to make itself

    def run(self, run_id: str) -> RunRecord | None:
        kept = self._slice(run_id)
        return None if kept is None else kept.run

    def add_run(self, run: RunRecord) -> None:
        run_id = run.run_id
        if run_id in self._work or (run_id in self._seen and run_id not in self._deleted):
            raise ValueError(f"second run of the id {run_id!r}")
        self._work[run_id] = Slice.born(run)
        self._new_runs[run_id] = None
        self._note_child(run)
        parent_id = run.parent_run_id
        if parent_id is not None and self._slice(parent_id) is not None:
            # Whoever decides about all children of a run, or about a run that has none, sees by its version that
            # there is one more.
            self._mine(parent_id)

    def _note_child(self, run: RunRecord) -> None:
        if run.parent_run_id is not None:
            self._new_children.setdefault(run.parent_run_id, []).append(run.run_id)

    def put_run(self, run: RunRecord) -> None:
        kept = self._mine(run.run_id)
        if kept.run.finished_at is not None and run.finished_at is None:  # retried
            self._note_child(run)
        kept.run = run
        if run.run_id not in self._new_runs:
            self._put_runs[run.run_id] = None

    def delete_run(self, run_id: str) -> None:
        if self._slice(run_id) is not None:
            self._forget_run(run_id)

    def _forget_run(self, run_id: str) -> None:
        super()._forget_run(run_id)
        self._put_runs.pop(run_id, None)
        self._new_runs.pop(run_id, None)
        # Also one that is new: what it refers to in other tables may be there.
        self._deleted[run_id] = None

    def children(self, run_id: str) -> list[str]:
        # Also of a new run: one of its id was named as a parent before there was any.
        stored: list[str] = [] if self._slice(run_id) is None else self._answer("children", run_id)
        found = {*stored, *self._new_children.get(run_id, ())}
        return sorted(
            one
            for one in found
            if (run := self.run(one)) and run.status in LIVE and run.parent_run_id == run_id
        )

    def claim_at_the_end(self, op: ops.ClaimRuns) -> Claimed:
        """Have the store itself make a claim, after all else in the batch: it steps over what others are taking."""
        self.claims.append(op)
        return Claimed((), None)

    def ready_runs(
        self, workflows: Iterable[tuple[str, int]], pools: Iterable[str] | None, limit: int
    ) -> list[RunRecord]:
        known, served = _of(workflows, pools)
        found = self._first_of(limit, self._is_claimable, "ready", known, served, self.now)
        by_pool: dict[str, list[RunRecord]] = {}
        for run in self._claimable(found, known, served):
            if (run.ready_at or 0) <= self.now:
                by_pool.setdefault(run.pool, []).append(run)
        return by_turns(by_pool.values(), limit)

    def next_ready_at(
        self, workflows: Iterable[tuple[str, int]], pools: Iterable[str] | None
    ) -> int | None:
        known, served = _of(workflows, pools)
        found: list[str] = self._answer("ready_later", known, served, self.now)
        runs = self._claimable(found, known, served)
        later = [one.ready_at for one in runs if one.ready_at is not None]
        return min((at for at in later if at > self.now), default=None)

    def _is_claimable(self, run_id: str) -> bool:
        run = self.run(run_id)
        return run is not None and run.ready_at is not None

    def _claimable(
        self,
        stored: Iterable[str],
        known: tuple[tuple[str, int], ...],
        served: tuple[str, ...] | None,
    ) -> list[RunRecord]:
        """Those that the store named, and those that this batch made so, if they are still for anybody to claim."""
        runs = (self.run(one) for one in dict.fromkeys((*stored, *self._work)))
        return [
            one
            for one in runs
            if one is not None
            and one.ready_at is not None
            and (one.workflow, one.version) in known
            and (served is None or one.pool in served)
        ]

    def started_under(self, root_id: str, limit: int) -> int:
        stored: int = self._answer("started_under", root_id, limit)
        born = sum(self._work[one].run.root_id == root_id for one in self._new_runs)
        return min(limit, stored + born)

    def orphans(self, limit: int) -> list[RunRecord]:
        # Also of workers that this batch has seen off.
        gone = tuple(sorted(one for one, worker in self._workers.items() if worker is None))
        stored = self._first_of(limit, self._is_orphan, "orphans", gone)
        mine = [one for one in self._work if one not in stored and self._is_orphan(one)]
        runs = [self.run(one) for one in sorted((*stored, *mine))[:limit]]
        return [one for one in runs if one is not None]

    def _is_orphan(self, run_id: str) -> bool:
        run = self.run(run_id)
        if run is None or run.status != "running":
            return False
        return run.owner is None or not self.is_live(run.owner)

    def finished_before(self, at: int, limit: int) -> list[str]:
        stored = self._first_of(limit, self._may_be_past, "finished", at)
        mine = [one for one in self._work if one not in stored and self._is_past(one, at)]
        runs = [self.run(one) for one in (*stored, *mine)]
        if any(("run", one) in self.missing for one in stored):
            # That nobody refers to them is not in their slices: it must be no older than the versions they have there.
            self.missing.add(("finished", at, limit))
        ended = [(one.finished_at, one.run_id) for one in runs if one and one.finished_at]
        return [run_id for _, run_id in sorted(ended)[:limit]]

    def _may_be_past(self, run_id: str) -> bool:
        """Of those that the store names: unless this batch has begun it anew, or deleted it."""
        if run_id in self._deleted and run_id not in self._work:
            return False
        return not self._lives(run_id)

    def _is_past(self, run_id: str, at: int) -> bool:
        """Of those that this batch has ended: whether it ended before, and no living run refers to it."""
        run = self.run(run_id)
        if run is None or run.finished_at is None or run.finished_at >= at:
            return False
        return not self.watchers_on_run(run_id) and not self.children(run_id)


def _of(
    workflows: Iterable[tuple[str, int]], pools: Iterable[str] | None
) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...] | None]:
    """What a claim asks for, as parts of a need."""
    served = None if pools is None else tuple(dict.fromkeys(pools))
    return tuple(dict.fromkeys(workflows)), served
