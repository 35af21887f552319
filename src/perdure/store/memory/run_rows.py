"""Runs by their id, and those that an index would find: ready, left behind, long finished."""

import heapq
from collections.abc import Iterable

from perdure.model.records import RunRecord
from perdure.model.status import LIVE
from perdure.store.memory.rows import KeptRows
from perdure.store.turns import by_turns


class RunRows(KeptRows):
    """The runs."""

    def run(self, run_id: str) -> RunRecord | None:
        return self.runs_by_id.get(run_id)

    def add_run(self, run: RunRecord) -> None:
        if run.run_id in self.runs_by_id:
            raise ValueError(f"second run of the id {run.run_id!r}")
        self.runs_by_id[run.run_id] = run

    def put_run(self, run: RunRecord) -> None:
        self.runs_by_id[run.run_id] = run

    def delete_run(self, run_id: str) -> None:
        self.runs_by_id.pop(run_id, None)
        for one in [one for one in self.steps_by_run if one[0] == run_id]:
            del self.steps_by_run[one]
        self.delete_watchers(run_id)
        self.signal_ids.difference_update(self.signals_by_run.pop(run_id, ()))
        self.cursors = {at: one for at, one in self.cursors.items() if at[0] != run_id}
        for stream in self.streams_by_run.pop(run_id, ()):
            del self.published_items[run_id, stream]
        self.keys = {at: key for at, key in self.keys.items() if key.run_id != run_id}
        self.letters = {at: one for at, one in self.letters.items() if one.run_id != run_id}

    def children(self, run_id: str) -> list[str]:
        return sorted(
            one.run_id
            for one in self.runs_by_id.values()
            if one.parent_run_id == run_id and one.status in LIVE
        )

    def ready_runs(
        self, workflows: Iterable[tuple[str, int]], pools: Iterable[str] | None, limit: int
    ) -> list[RunRecord]:
        by_pool: dict[str, list[RunRecord]] = {}
        for run in self._claimable(workflows, pools):
            if run.ready_at is not None and run.ready_at <= self.now:
                by_pool.setdefault(run.pool, []).append(run)
        return by_turns(by_pool.values(), limit)

    def next_ready_at(
        self, workflows: Iterable[tuple[str, int]], pools: Iterable[str] | None
    ) -> int | None:
        found = (one.ready_at or 0 for one in self._claimable(workflows, pools))
        return min((at for at in found if at > self.now), default=None)

    def _claimable(
        self, workflows: Iterable[tuple[str, int]], pools: Iterable[str] | None
    ) -> Iterable[RunRecord]:
        known = set(workflows)
        served = None if pools is None else set(pools)
        for run in self.runs_by_id.values():
            if run.ready_at is None or (run.workflow, run.version) not in known:
                continue
            if served is None or run.pool in served:
                yield run

    def started_under(self, root_id: str, limit: int) -> int:
        return min(limit, sum(one.root_id == root_id for one in self.runs_by_id.values()))

    def orphans(self, limit: int) -> list[RunRecord]:
        orphans = (
            one
            for one in self.runs_by_id.values()
            if one.status == "running" and (one.owner is None or not self.is_live(one.owner))
        )
        return heapq.nsmallest(limit, orphans, key=lambda one: one.run_id)

    def finished_before(self, at: int, limit: int) -> list[str]:
        needed = {one.parent_run_id for one in self.runs_by_id.values() if one.status in LIVE}
        needed |= {one.target for one in self.all_watchers() if one.kind == "run"}
        ended = (
            (one.finished_at, one.run_id)
            for one in self.runs_by_id.values()
            if one.finished_at is not None and one.finished_at < at and one.run_id not in needed
        )
        return [run_id for _, run_id in heapq.nsmallest(limit, ended)]
