"""What the handlers see of a store: rows by their keys, inside one transaction.

The handlers (store/handlers) decide; a `Tables` only finds and keeps rows. The memory store's are dicts.
The SQLite store's are a working set: rows are loaded in few set-based reads, changed here by any number of
ops, and written back as few set-based statements, so that a batch costs what its net change costs.

Rules for an implementation: a read sees every earlier write of the same batch; a write never fails for a
reason that a handler could have known; nothing is visible to others before the batch commits.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from perdure.model.outcomes import Wake
from perdure.model.records import (
    DeadLetterRecord,
    KeyRecord,
    RunRecord,
    SignalRecord,
    StepRecord,
    WatcherRecord,
    WorkerRecord,
    WorkflowRecord,
)


class Tables(ABC):
    """The rows of one batch. `now` is the store's clock, read once for the batch."""

    now: int
    worker_id: str | None  # the worker of the process that submits the batch
    lifecycle: bool  # whether workflow.* and signal.* facts go to the ledger
    wakes: list[Wake]  # what the op under way means for others; taken by the store after each op

    # --- order ---

    @abstractmethod
    def next_seq(self) -> int:
        """A number greater than any given before, in commit order: a step's place in its history."""

    # --- runs ---

    @abstractmethod
    def run(self, run_id: str) -> RunRecord | None: ...

    @abstractmethod
    def add_run(self, run: RunRecord) -> None:
        """Insert a row that must be new; a second run of an id is an error of the batch."""

    @abstractmethod
    def put_run(self, run: RunRecord) -> None:
        """Replace the row of `run.run_id`."""

    @abstractmethod
    def delete_run(self, run_id: str) -> None:
        """Delete the run with its steps, watchers, signals, keys and dead letters."""

    @abstractmethod
    def children(self, run_id: str) -> list[str]:
        """Ids of the live runs that `run_id` started."""

    @abstractmethod
    def ready_runs(self, workflows: Iterable[tuple[str, int]], limit: int) -> list[RunRecord]:
        """Ready runs of these workflows that are due, by ready_at."""

    @abstractmethod
    def next_ready_at(self, workflows: Iterable[tuple[str, int]]) -> int | None:
        """When the next ready run of these workflows that is not due yet will be."""

    @abstractmethod
    def orphans(self, limit: int) -> list[RunRecord]:
        """Running runs whose owner is no live worker."""

    @abstractmethod
    def finished_before(self, at: int, limit: int) -> list[str]:
        """Ids of the runs that ended before `at`, oldest first; not those that living runs refer to."""

    # --- steps ---

    @abstractmethod
    def step(self, run_id: str, generation: int, path: str) -> StepRecord | None:
        """The living row of a path (superseded ones are never found)."""

    @abstractmethod
    def steps(self, run_id: str, generation: int) -> list[StepRecord]:
        """All rows of a generation, superseded ones too."""

    @abstractmethod
    def retrying_steps(self, run_id: str, generation: int) -> list[StepRecord]:
        """The steps of a generation that are between two attempts."""

    @abstractmethod
    def add_step(self, step: StepRecord) -> None:
        """Insert a row that must be new; a second checkpoint of a path is an error of the batch."""

    @abstractmethod
    def put_step(self, step: StepRecord) -> None:
        """Insert or replace the row of (run_id, generation, path, superseded)."""

    @abstractmethod
    def supersede_step(self, step: StepRecord) -> None:
        """Renumber a living row as superseded, so that its path can be recorded anew."""

    @abstractmethod
    def delete_steps_before(self, run_id: str, generation: int) -> None:
        """Delete the history of all generations below `generation`."""

    # --- watchers ---

    @abstractmethod
    def watchers(self, run_id: str) -> list[WatcherRecord]:
        """All open watchers of a run."""

    @abstractmethod
    def watchers_on_run(self, run_id: str) -> list[WatcherRecord]:
        """Watchers of other runs that wait for this run to end, longest waiting first."""

    @abstractmethod
    def due_watchers(self, limit: int) -> list[WatcherRecord]:
        """Watchers whose deadline is at or before now, earliest first."""

    @abstractmethod
    def next_deadline(self) -> int | None:
        """The earliest deadline of any watcher or expiry of any signal."""

    @abstractmethod
    def add_watcher(self, watcher: WatcherRecord) -> None: ...

    @abstractmethod
    def delete_watchers(self, run_id: str, path: str | None = None) -> None:
        """Delete the watchers of one path, or of the whole run."""

    # --- buffered signals ---

    @abstractmethod
    def signals(self, run_id: str) -> list[SignalRecord]:
        """The buffered signals of a run, oldest accepted first."""

    @abstractmethod
    def add_signal(self, signal: SignalRecord) -> None:
        """Buffer a signal; its position is given here."""

    @abstractmethod
    def delete_signal(self, signal: SignalRecord) -> None: ...

    @abstractmethod
    def expired_signals(self, limit: int) -> list[SignalRecord]:
        """Buffered signals whose time to live has passed."""

    # --- keys, ledger, dead letters ---

    @abstractmethod
    def key(self, scope: str, key: str) -> KeyRecord | None: ...

    @abstractmethod
    def add_key(self, key: KeyRecord) -> None: ...

    @abstractmethod
    def delete_key(self, scope: str, key: str) -> None:
        """Delete a key, if it is there."""

    @abstractmethod
    def append_event(
        self,
        type: str,
        payload: str,
        event_id: str | None,
        entity_type: str | None,
        entity_id: str | None,
        root_id: str | None = None,
        depth: int = 0,
        caused_by: str | None = None,
    ) -> None:
        """Append a fact at the next dense position."""

    @abstractmethod
    def dead_letter(self, dead_letter_id: str) -> DeadLetterRecord | None: ...

    @abstractmethod
    def dead_letters(self, run_id: str) -> list[DeadLetterRecord]: ...

    @abstractmethod
    def add_dead_letter(self, letter: DeadLetterRecord) -> None: ...

    @abstractmethod
    def delete_dead_letter(self, dead_letter_id: str) -> None: ...

    # --- workers and catalogue ---

    @abstractmethod
    def workers(self) -> list[str]:
        """The ids of all workers that have a row."""

    @abstractmethod
    def is_live(self, worker_id: str) -> bool:
        """Whether that worker is known and its life sign has not run out."""

    @abstractmethod
    def put_worker(self, worker: WorkerRecord) -> None: ...

    @abstractmethod
    def delete_worker(self, worker_id: str) -> None: ...

    @abstractmethod
    def workflow(self, name: str, version: int) -> WorkflowRecord | None: ...

    @abstractmethod
    def put_workflow(self, workflow: WorkflowRecord) -> bool:
        """Insert or replace a line of the catalogue; False when it stood there just so."""
