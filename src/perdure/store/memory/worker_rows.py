"""Workers and the catalogue: who executes runs, and which workflows, topics and queues there are."""

from perdure.model.records import ChannelRecord, WorkerRecord, WorkflowRecord
from perdure.store.memory.rows import KeptRows


class WorkerRows(KeptRows):
    """The workers, workflows and channels."""

    # --- workers ---

    def workers(self) -> list[str]:
        return sorted(self.workers_by_id)

    def is_live(self, worker_id: str) -> bool:
        worker = self.workers_by_id.get(worker_id)
        # A store in memory has one process: a worker of it lives, however far a test moves the clock.
        return worker is not None and (worker_id in self.held or worker.lease_until > self.now)

    def put_worker(self, worker: WorkerRecord) -> None:
        if worker.worker_id == self.worker_id:
            self.held.add(worker.worker_id)
        self.workers_by_id[worker.worker_id] = worker

    def delete_worker(self, worker_id: str) -> None:
        self.workers_by_id.pop(worker_id, None)
        self.held.discard(worker_id)

    # --- the catalogue ---

    def workflow(self, name: str, version: int) -> WorkflowRecord | None:
        return self.workflows.get((name, version))

    def put_workflow(self, workflow: WorkflowRecord) -> bool:
        at = (workflow.name, workflow.version)
        if self.workflows.get(at) == workflow:
            return False
        self.workflows[at] = workflow
        return True

    def channel(self, kind: str, name: str) -> ChannelRecord | None:
        return self.channels.get((kind, name))

    def put_channel(self, channel: ChannelRecord) -> bool:
        at = (channel.kind, channel.name)
        if self.channels.get(at) == channel:
            return False
        self.channels[at] = channel
        return True
