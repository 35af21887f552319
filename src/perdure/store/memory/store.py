"""A namespace in this process's memory: ops go to the shared handlers, reads to the rows.

Nothing survives the process. Ops are applied in place, one after the other, by the shared handlers, which
validate before they write; an op that raises is a defect of ours and fails its batch.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from perdure.errors import StoreRefused
from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.model.ops import Op
from perdure.model.records import OutboxRecord
from perdure.store.base import Applied, BatchFailed
from perdure.store.beating import after
from perdure.store.handlers import HANDLERS
from perdure.store.memory.reads import MemoryReads
from perdure.store.memory.tables import MemoryTables
from perdure.store.transaction import Transaction


class MemoryStore(MemoryReads):
    """A namespace in this process's memory."""

    url = "memory://"

    def __init__(self, *, clock: Clock, ids: Ids, lifecycle: bool = True) -> None:
        self._clock = clock
        self.lifecycle = lifecycle
        self.tables = MemoryTables(ids)
        self.tables.lifecycle = lifecycle
        self._committed: set[str] = set()

    def beside(self, ids: Ids) -> "MemoryStore":
        """The same namespace as another process would have it: the rows are shared, a worker is its own."""
        other = MemoryStore(clock=self._clock, ids=ids, lifecycle=self.lifecycle)
        other.tables, other._committed = self.tables, self._committed
        return other

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """The rows stay for as long as the store object does, so a test can open an app on it again."""

    def outlive(self, until: threading.Event) -> None:
        worker_id = self.worker_id
        if worker_id is not None:  # of rows that others share: then its lease says whether it lives
            after(until, lambda: self.tables.held.discard(worker_id))

    async def apply(
        self, batch_id: str, ops: Sequence[Op[Any]], decided: Callable[[], None] | None = None
    ) -> list[Applied]:
        if batch_id in self._committed:
            raise BatchFailed(f"batch {batch_id!r} was committed before")
        tables = self.tables
        tables.now = self._clock.now()
        tables.worker_id = self.worker_id
        tables.sticky_us = self.sticky_us
        tables.fanned = 0
        applied: list[Applied] = []
        for op in ops:
            tables.wakes = []
            try:
                outcome = HANDLERS[type(op)](tables, op)
            except Exception as error:
                # Dicts do not roll back: the ops before this one stay applied, so it may only be alone.
                if applied:
                    raise AssertionError(f"{op!r} raised in the midst of a batch") from error
                raise BatchFailed(str(error)) from error
            applied.append(Applied(outcome, tuple(tables.wakes)))
        self._committed.add(batch_id)
        self.head = tables.last
        return applied

    async def settle(self, batch_id: str) -> bool:
        return batch_id in self._committed

    async def transact(self, batch_id: str, work: Transaction) -> list[Applied]:
        raise BatchFailed("a memory store has no database to write to")

    async def write_outbox(self, connection: Any, row: OutboxRecord) -> None:
        self.write_outbox_here(connection, row)

    def write_outbox_here(self, connection: Any, row: OutboxRecord) -> None:
        raise StoreRefused(
            "a memory store is no database that a connection of yours could write to: use connection= with "
            "sqlite:/// or postgresql://"
        )
