"""Pools, and the lines of those that have limits: every run is asked where it stands."""

from collections.abc import Iterable

from perdure.model.pools import holds_slot, is_idle, line_scope, rank_of
from perdure.model.records import LineLook, PoolRecord, RunRecord
from perdure.store.memory.rows import KeptRows


class PoolRows(KeptRows):
    """What runs share."""

    def pool(self, name: str) -> PoolRecord | None:
        return self.pools_by_name.get(name)

    def put_pool(self, pool: PoolRecord) -> None:
        self.pools_by_name[pool.name] = pool

    def hold_line(self, pool: str) -> None:
        """Nobody else decides at the same time."""

    def slots_taken(self, pool: str, key: str | None) -> int:
        return sum(
            one.pool == pool and (key is None or one.pool_key == key) and holds_slot(one)
            for one in self.runs_by_id.values()
        )

    def line_keys(
        self,
        pool: str,
        after: str | None,
        workflows: Iterable[tuple[str, int]],
        begun: bool,
        limit: int,
    ) -> list[tuple[str, int]]:
        keys = {one.pool_key for one in self._due_in_line(pool, workflows, begun)}
        ahead = sorted(key for key in keys if after is None or key > after)
        return [(key, self.slots_taken(pool, key)) for key in ahead[:limit]]

    def line_runs(
        self, pool: str, key: str, workflows: Iterable[tuple[str, int]], begun: bool, limit: int
    ) -> list[RunRecord]:
        found = self._due_in_line(pool, workflows, begun)
        return sorted((one for one in found if one.pool_key == key), key=rank_of)[:limit]

    def idle_slots(
        self, pool: str, workflows: Iterable[tuple[str, int]], since: int, limit: int
    ) -> list[RunRecord]:
        known = set(workflows)
        found = [
            one for one in self.runs_by_id.values() if is_idle(one, pool, known, since, self.now)
        ]
        return sorted(found, key=lambda one: (one.ready_at or 0, one.run_id))[:limit]

    def _due_in_line(
        self, pool: str, workflows: Iterable[tuple[str, int]], begun: bool
    ) -> list[RunRecord]:
        known = set(workflows)
        return [
            one
            for one in self.in_line(pool)
            if (one.line_at or 0) <= self.now
            and (one.workflow, one.version) in known
            and (one.admitted or not begun)
        ]

    def in_line(self, pool: str) -> list[RunRecord]:
        """Who stands there, oldest first."""
        found = (
            one for one in self.runs_by_id.values() if one.line_at is not None and one.pool == pool
        )
        return sorted(found, key=lambda one: (one.line_at or 0, one.run_id))

    def lines(self) -> list[LineLook]:
        names = sorted({one.pool for one in self.runs_by_id.values() if one.line_at is not None})
        return [self._line(name, self.in_line(name)) for name in names]

    def _line(self, name: str, waiting: list[RunRecord]) -> LineLook:
        kept = self.keys.get((line_scope(), name))
        return LineLook(
            name=name,
            pool=self.pool(name),
            oldest_at=waiting[0].line_at or 0,
            begun=any(one.admitted for one in waiting),
            taken=self.slots_taken(name, None),
            state=None if kept is None else kept.answer,
        )
