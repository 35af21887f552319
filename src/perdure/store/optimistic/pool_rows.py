"""Pools: their limits are remembered; who stands in line an index of the store says, and each run it names is judged.

There are two units for each: that of the pool moves with its limits, and every start rests on it; that of its line
moves with admissions, and only those rest on it. A slot that is given back moves neither.
"""

from collections.abc import Iterable

from perdure.model.pools import holds_slot, is_idle, rank_of
from perdure.model.records import PoolRecord, RunRecord
from perdure.store.optimistic.needs import Looks
from perdure.store.optimistic.rows import LookedAt

Workflows = tuple[tuple[str, int], ...]


class PoolRows(LookedAt):
    """What runs share."""

    def __init__(self, looks: Looks) -> None:
        super().__init__(looks)
        self._put_pools: dict[str, PoolRecord] = {}

    def pool(self, name: str) -> PoolRecord | None:
        self._rest_on(("pool", name))
        if name in self._put_pools:
            return self._put_pools[name]
        if name not in self._known.pools:
            self.missing.add(("pool", name))
        return self._known.pools.get(name)

    def put_pool(self, pool: PoolRecord) -> None:
        self._rest_on(("pool", pool.name), bump=True)
        self._put_pools[pool.name] = pool

    def hold_line(self, pool: str) -> None:
        self._rest_on(("line", pool), bump=True)

    def slots_taken(self, pool: str, key: str | None) -> int:
        self._rest_on(("line", pool))
        stored: int = self._answer("slots", pool, key)
        return stored + sum(
            holds_slot(kept.run) - self._held_before(run_id)
            for run_id, kept in self._work.items()
            if kept.run.pool == pool and key in (None, kept.run.pool_key)
        )

    def _held_before(self, run_id: str) -> bool:
        """Whether it is among those that the store counts."""
        stored = self._seen.get(run_id)
        return stored is not None and holds_slot(stored.run)

    def line_keys(
        self,
        pool: str,
        after: str | None,
        workflows: Iterable[tuple[str, int]],
        begun: bool,
        limit: int,
    ) -> list[tuple[str, int]]:
        self._rest_on(("line", pool))
        known = tuple(dict.fromkeys(workflows))
        mine = {one.run.pool_key for one in self._work.values() if one.run.pool == pool}
        mine = {key for key in mine if after is None or key > after}

        def counts(found: tuple[str, int]) -> bool:
            """Of keys that this batch has touched each is judged by its runs."""
            return found[0] not in mine

        stored = self._first_of(limit, counts, "line_keys", pool, after, known, begun, self.now)
        touched = [
            (key, self.slots_taken(pool, key))
            for key in mine
            if self.line_runs(pool, key, known, begun, 1)
        ]
        return sorted([*map(tuple, stored), *touched])[:limit]

    def line_runs(
        self, pool: str, key: str, workflows: Iterable[tuple[str, int]], begun: bool, limit: int
    ) -> list[RunRecord]:
        self._rest_on(("line", pool))
        known = tuple(dict.fromkeys(workflows))

        def counts(run_id: str) -> bool:
            run = self.run(run_id)
            return run is not None and self._is_due_in_line(run, pool, key, known, begun)

        stored = self._first_of(limit, counts, "line_runs", pool, key, known, begun, self.now)
        mine = [run_id for run_id in self._work if counts(run_id)]
        runs = [self.run(run_id) for run_id in dict.fromkeys((*stored, *mine))]
        return sorted((one for one in runs if one is not None), key=rank_of)[:limit]

    def idle_slots(
        self, pool: str, workflows: Iterable[tuple[str, int]], since: int, limit: int
    ) -> list[RunRecord]:
        known = tuple(dict.fromkeys(workflows))

        def counts(run_id: str) -> bool:
            run = self.run(run_id)
            return run is not None and is_idle(run, pool, known, since, self.now)

        stored = self._first_of(limit, counts, "idle_slots", pool, known, self.now, since)
        mine = [run_id for run_id in self._work if counts(run_id)]
        runs = [self.run(run_id) for run_id in dict.fromkeys((*stored, *mine))]
        found = [one for one in runs if one is not None]
        return sorted(found, key=lambda one: (one.ready_at or 0, one.run_id))[:limit]

    def _is_due_in_line(
        self, run: RunRecord, pool: str, key: str, known: Workflows, begun: bool
    ) -> bool:
        return (
            run.line_at is not None
            and run.line_at <= self.now
            and (run.pool, run.pool_key) == (pool, key)
            and (run.workflow, run.version) in known
            and (run.admitted or not begun)
        )
