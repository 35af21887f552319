"""Workers and the catalogue: who executes runs, and which workflows, topics and queues there are.

A lease only decides who may take over; what is written is guarded by fences, never by time. So nothing rests on it. The
catalogue is remembered as a whole, by one version.
"""

from perdure.model.records import ChannelRecord, WorkerRecord, WorkflowRecord
from perdure.store.optimistic.known import CATALOGUE
from perdure.store.optimistic.needs import Looks
from perdure.store.optimistic.rows import LookedAt


class WorkerRows(LookedAt):
    """The workers of one batch, and the lines of the catalogue."""

    def __init__(self, looks: Looks) -> None:
        super().__init__(looks)
        self._workers: dict[str, WorkerRecord | None] = {}
        self._put_workflows: dict[tuple[str, int], WorkflowRecord] = {}
        self._put_channels: dict[tuple[str, str], ChannelRecord] = {}

    # --- workers ---

    def _worker_rows(self) -> dict[str, WorkerRecord]:
        rows = {one.worker_id: one for one in self._answer("workers")}
        for worker_id, worker in self._workers.items():
            if worker is None:
                rows.pop(worker_id, None)
            else:
                rows[worker_id] = worker
        return rows

    def workers(self) -> list[str]:
        return sorted(self._worker_rows())

    def is_live(self, worker_id: str) -> bool:
        worker = self._worker_rows().get(worker_id)
        # Whoever asks lives, as long as nobody has taken its row away.
        return worker is not None and (worker_id == self.worker_id or worker.lease_until > self.now)

    def put_worker(self, worker: WorkerRecord) -> None:
        self._workers[worker.worker_id] = worker

    def delete_worker(self, worker_id: str) -> None:
        self._workers[worker_id] = None

    # --- the catalogue ---

    def workflow(self, name: str, version: int) -> WorkflowRecord | None:
        at = (name, version)
        self._rest_on(CATALOGUE)
        if at in self._put_workflows:
            return self._put_workflows[at]
        if at not in self._known.workflows:
            self.missing.add(("workflow", name, version))
        return self._known.workflows.get(at)

    def put_workflow(self, workflow: WorkflowRecord) -> bool:
        if self.workflow(workflow.name, workflow.version) == workflow:
            return False
        self._rest_on(CATALOGUE, bump=True)
        self._put_workflows[workflow.name, workflow.version] = workflow
        return True

    def channel(self, kind: str, name: str) -> ChannelRecord | None:
        at = (kind, name)
        self._rest_on(CATALOGUE)
        if at in self._put_channels:
            return self._put_channels[at]
        if at not in self._known.channels:
            self.missing.add(("channel", kind, name))
        return self._known.channels.get(at)

    def put_channel(self, channel: ChannelRecord) -> bool:
        if self.channel(channel.kind, channel.name) == channel:
            return False
        self._rest_on(CATALOGUE, bump=True)
        self._put_channels[channel.kind, channel.name] = channel
        return True
