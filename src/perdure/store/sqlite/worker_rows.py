"""Workers and the catalogue: who executes runs, and which workflows, topics and queues there are.

Both are few and change seldom, so they are written at once and never wait for the flush. Whether a
worker lives is asked once in a batch; one that is found dead is deleted on the spot.
"""

from typing import Protocol

from msgspec.structs import asdict

from perdure.model.records import ChannelRecord, WorkerRecord, WorkflowRecord
from perdure.store.decoding import decode_channels, decode_ids, decode_workflows
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.statements import Statements


class Liveness(Protocol):
    """Who knows which workers live: the lock files."""

    def is_live(self, worker_id: str, lease_until: int, now: int) -> bool: ...

    def hold(self, worker_id: str) -> None: ...


class WorkerRows(LoadedRows):
    """The workers of one batch, and the lines of the catalogue."""

    _liveness: Liveness  # given by the whole

    def __init__(self, sql: Statements, remembered: Remembered) -> None:
        super().__init__(sql, remembered)
        self._live: dict[str, bool] = {}
        self.ended_workers: set[str] = set()  # whose lock files go once this batch is committed

    def workers(self) -> list[str]:
        return self._read(decode_ids, "workers")

    def is_live(self, worker_id: str) -> bool:
        live = self._live.get(worker_id)
        if live is None:
            row = self._sql.row("worker", {"worker_id": worker_id})
            live = row is not None and self._liveness.is_live(worker_id, row[0], self.now)
            if row is not None and not live:
                self.delete_worker(worker_id)
            self._live[worker_id] = live
        return live

    def is_called(self, owner: str) -> bool:
        """Only one that lives: the lock files tell at once."""
        return self.sticky_us > 0 and self.is_live(owner)

    def put_worker(self, worker: WorkerRecord) -> None:
        if worker.worker_id == self.worker_id:
            self._liveness.hold(worker.worker_id)
        self._sql.run("put_worker", asdict(worker))
        self._live.pop(worker.worker_id, None)
        self.ended_workers.discard(worker.worker_id)

    def delete_worker(self, worker_id: str) -> None:
        self._sql.run("delete_worker", {"worker_id": worker_id})
        self._live[worker_id] = False
        self.ended_workers.add(worker_id)

    def workflow(self, name: str, version: int) -> WorkflowRecord | None:
        at = (name, version)
        try:
            return self._workflows[at]
        except KeyError:
            pass
        line_at = {"name": name, "version": version}
        found = self._sql.records(decode_workflows, "workflow", line_at)
        line = self._workflows[at] = found[0] if found else None
        return line

    def put_workflow(self, workflow: WorkflowRecord) -> bool:
        changed = self._sql.run("put_workflow", asdict(workflow)) > 0
        if changed:
            self._workflows.pop((workflow.name, workflow.version), None)
        return changed

    def channel(self, kind: str, name: str) -> ChannelRecord | None:
        at = (kind, name)
        try:
            return self._channels[at]
        except KeyError:
            pass
        found = self._sql.records(decode_channels, "channel", {"kind": kind, "name": name})
        line = self._channels[at] = found[0] if found else None
        return line

    def put_channel(self, channel: ChannelRecord) -> bool:
        changed = self._sql.run("put_channel", asdict(channel)) > 0
        if changed:
            self._channels.pop((channel.kind, channel.name), None)
        return changed
