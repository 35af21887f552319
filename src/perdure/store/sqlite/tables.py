"""The working set of one batch: rows read by few calls, changed by many ops, written by few calls.

A batch costs what its net change costs: a row that comes and goes within it is never written.
loading.py knows the rows, and each part beside it what differs from the file in its own tables:
added, changed, gone. Here they are one object, since a handler asks for anything. `flush` writes the
difference; questions that only an index can answer flush first and then ask the file. Nothing
commits here; once the writer has, `remember` leaves to the next batch what it may use.
"""

from perdure.model.ids import Ids
from perdure.model.outcomes import Wake
from perdure.store.sqlite.event_rows import EventRows
from perdure.store.sqlite.fact_rows import FactRows
from perdure.store.sqlite.outbox_rows import OutboxRows
from perdure.store.sqlite.pool_rows import PoolRows
from perdure.store.sqlite.queue_rows import QueueRows
from perdure.store.sqlite.reader_rows import ReaderRows
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.run_rows import RunRows
from perdure.store.sqlite.schedule_rows import ScheduleRows
from perdure.store.sqlite.statements import Statements
from perdure.store.sqlite.step_rows import StepRows
from perdure.store.sqlite.stream_rows import StreamRows
from perdure.store.sqlite.wait_rows import WaitRows
from perdure.store.sqlite.worker_rows import Liveness, WorkerRows

# seq = number of the commit * 2^20 + count. That lasts for 2^43 commits.
seqs_per_commit = 2**20


class SqliteTables(
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
    """The rows of one batch on the writer's connection, inside its transaction."""

    def __init__(
        self,
        sql: Statements,
        *,
        now: int,
        number: int,
        worker_id: str | None,
        lifecycle: bool,
        sticky_us: int = 0,
        ids: Ids,
        liveness: Liveness,
        remembered: Remembered,
    ) -> None:
        super().__init__(sql, remembered)
        self.now = now
        self.worker_id = worker_id
        self.lifecycle = lifecycle
        self.sticky_us = sticky_us
        self.wakes: list[Wake] = []
        self.fanned = 0
        self._ids = ids
        self._liveness = liveness
        self._remembered = remembered
        self._seq = number * seqs_per_commit
        self._seq_max = self._seq + seqs_per_commit - 1

    # --- order ---

    def next_seq(self) -> int:
        self._seq += 1
        if self._seq > self._seq_max:
            raise OverflowError(f"a batch gives at most {seqs_per_commit - 1} sequence numbers")
        return self._seq

    # --- writing ---

    def flush(self) -> None:
        """Write the difference between the working set and the file; in each table, what goes goes first.

        Deleted runs take rows of every table along, and their ids may be used anew: so they are the first of all.
        """
        if self._deleted_runs:
            self._flush_deleted()
        self._flush_runs()
        self._flush_steps()
        self._flush_waits()
        self._flush_items()
        self._flush_cursors()
        self._flush_streams()
        self._flush_outbox()
        self._flush_events()
        self._flush_facts()

    def remember(self) -> None:
        """The batch is committed: leave to the next one what is worth keeping."""
        self._remembered.position = self._position
        self._remembered.decided(self._steps.values())
        self._remembered.trim(self._touched)
