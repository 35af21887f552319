"""What the handlers see of the store in memory: all its rows in one object, since a handler asks for anything.

A write is seen at once by everybody, and stays: there is nothing to flush, and nothing to roll back.
"""

from perdure.model.ids import Ids
from perdure.model.outcomes import Wake
from perdure.store.memory.event_rows import EventRows
from perdure.store.memory.fact_rows import FactRows
from perdure.store.memory.outbox_rows import OutboxRows
from perdure.store.memory.pool_rows import PoolRows
from perdure.store.memory.queue_rows import QueueRows
from perdure.store.memory.reader_rows import ReaderRows
from perdure.store.memory.run_rows import RunRows
from perdure.store.memory.schedule_rows import ScheduleRows
from perdure.store.memory.step_rows import StepRows
from perdure.store.memory.stream_rows import StreamRows
from perdure.store.memory.wait_rows import WaitRows
from perdure.store.memory.worker_rows import WorkerRows


class MemoryTables(
    RunRows,
    StepRows,
    WaitRows,
    QueueRows,
    StreamRows,
    OutboxRows,
    EventRows,
    FactRows,
    ReaderRows,
    ScheduleRows,
    PoolRows,
    WorkerRows,
):
    """The rows of a namespace, for one batch after the other."""

    def __init__(self, ids: Ids) -> None:
        super().__init__()
        self.now = 0
        self.worker_id = None
        self.lifecycle = True
        self.sticky_us = 0
        self.wakes: list[Wake] = []
        self.fanned = 0
        self._ids = ids
        self._seq = 0

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq
