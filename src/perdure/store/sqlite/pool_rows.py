"""Pools: few, written at once and remembered. Who stands in a line only an index can tell, after a flush."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import asdict

from perdure.model.records import PoolRecord, RunRecord
from perdure.store.decoding import decode_pools, decode_runs
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.statements import as_json, at_most

# A key of a line, whether somebody of it may be let through as far as the asker can, and its slots.
_decode_keys = msgspec.json.Decoder(list[tuple[str, bool, int]]).decode


class PoolRows(LoadedRows):
    """What runs share."""

    def pool(self, name: str) -> PoolRecord | None:
        try:
            return self._pools[name]
        except KeyError:
            pass
        found = self._read(decode_pools, "pool", name=name)
        pool = self._pools[name] = found[0] if found else None
        return pool

    def put_pool(self, pool: PoolRecord) -> None:
        self._sql.run("put_pool", asdict(pool))
        self._pools[pool.name] = pool

    def hold_line(self, pool: str) -> None:
        """The transaction holds everybody else back."""

    def slots_taken(self, pool: str, key: str | None) -> int:
        self.flush()
        count: int = self._sql.row("slots_taken", {"pool": pool, "key": key})[0]
        return count

    def line_keys(
        self,
        pool: str,
        after: str | None,
        workflows: Iterable[tuple[str, int]],
        begun: bool,
        limit: int,
    ) -> list[tuple[str, int]]:
        self.flush()
        asked = {"pool": pool, "workflows": as_json(list(workflows)), "begun": begun}
        asked |= {"now": self.now, "limit": limit}
        found: list[tuple[str, int]] = []
        while len(found) < limit:
            page = self._read(_decode_keys, "line_keys", after=after, **asked)
            found += [(key, taken) for key, is_due, taken in page if is_due]
            if len(page) < limit:
                break
            after = page[-1][0]
        return found[:limit]

    def line_runs(
        self, pool: str, key: str, workflows: Iterable[tuple[str, int]], begun: bool, limit: int
    ) -> list[RunRecord]:
        asked = {"pool": pool, "key": key, "begun": begun}
        return self._found("line_runs", limit, workflows, **asked)

    def idle_slots(
        self, pool: str, workflows: Iterable[tuple[str, int]], since: int, limit: int
    ) -> list[RunRecord]:
        return self._found("idle_slots", limit, workflows, pool=pool, since=since)

    def _found(
        self, name: str, limit: int, workflows: Iterable[tuple[str, int]], **asked: object
    ) -> list[RunRecord]:
        """Rows fresh from the file, after a flush."""
        self.flush()
        asked |= {"now": self.now, "workflows": as_json(list(workflows))}
        found = at_most(limit, lambda most: self._read(decode_runs, name, limit=most, **asked))
        for run in found:
            self._runs[run.run_id] = run
            self._touched[run.run_id] = None
        return found
