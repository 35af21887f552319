"""Steps: checkpoints and waits by run, generation and path.

A step that is added must be new. One that is put was added by this batch (then it is still one
insert), or is known from the file (then it is updated), or else SQLite sees which of the two it is.
Open waits may be remembered from the batch before: then to decide one reads nothing.
"""

import sqlite3

from perdure.model.records import StepRecord
from perdure.store.decoding import decode_steps
from perdure.store.sqlite import shapes
from perdure.store.sqlite.loading import LoadedRows, StepKey
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.statements import Statements, as_json, steps_in_parts

_new_steps = (shapes.insert_plain_steps, shapes.insert_open_waits, shapes.insert_steps)


class StepRows(LoadedRows):
    """The steps of one batch."""

    def __init__(self, sql: Statements, remembered: Remembered) -> None:
        super().__init__(sql, remembered)
        self._added_steps: dict[StepKey, StepRecord] = {}
        self._stored_steps: dict[StepKey, StepRecord] = {}  # as the file has them, if changed
        self._put_steps: dict[StepKey, StepRecord] = {}
        self._past_generations: list[tuple[str, int]] = []

    def step(self, run_id: str, generation: int, path: str) -> StepRecord | None:
        key = (run_id, generation, path)
        try:
            return self._steps[key]
        except KeyError:
            pass
        wait = self._waits.get(run_id, {}).get(path)
        if wait is not None and wait.generation == generation:
            return wait
        found = self._read(decode_steps, "step", run_id=run_id, generation=generation, path=path)
        step = self._steps[key] = found[0] if found else None
        return step

    def steps(self, run_id: str, generation: int) -> list[StepRecord]:
        self.flush()
        try:
            return self._read(decode_steps, "steps", run_id=run_id, generation=generation)
        except sqlite3.DataError:
            found = steps_in_parts(self._sql, run_id, generation)
            return [one for one in found if one.generation == generation]

    def retrying_steps(self, run_id: str, generation: int) -> list[StepRecord]:
        self.flush()
        return self._read(decode_steps, "retrying_steps", run_id=run_id, generation=generation)

    def add_step(self, step: StepRecord) -> None:
        key = (step.run_id, step.generation, step.path)
        if self._steps.get(key) is not None:
            raise ValueError(f"second checkpoint of {step.path!r} in run {step.run_id!r}")
        self._steps[key] = self._added_steps[key] = step

    def put_step(self, step: StepRecord) -> None:
        key = (step.run_id, step.generation, step.path)
        if key in self._added_steps:
            self._added_steps[key] = step
        elif key not in self._stored_steps:
            self._put_stored(key, step)
        self._steps[key] = step

    def _put_stored(self, key: StepKey, step: StepRecord) -> None:
        """A row that is in the file is changed; one that was never looked at may have to be made."""
        old = self._steps.get(key) or self._waits.get(step.run_id, {}).get(step.path)
        if old is not None and old.generation == step.generation and key not in self._put_steps:
            self._stored_steps[key] = old
        else:
            self._put_steps[key] = step

    def supersede_step(self, step: StepRecord) -> None:
        self.flush()
        key = {"run_id": step.run_id, "generation": step.generation, "path": step.path}
        self._sql.run("supersede_step", key)
        self._steps[step.run_id, step.generation, step.path] = None
        self._waits.pop(step.run_id, None)

    def delete_steps_before(self, run_id: str, generation: int) -> None:
        # The first generation has none before it, and most runs never have a second.
        if generation > 0:
            self._past_generations.append((run_id, generation))

    def _flush_steps(self) -> None:
        sql = self._sql
        if self._added_steps:
            shapes.write_new(sql, self._added_steps.values(), *_new_steps)
            self._added_steps.clear()
        if self._stored_steps:
            decided = [(old, self._steps[key]) for key, old in self._stored_steps.items()]
            shapes.put_steps.write(sql, shapes.write_changed(sql, decided, shapes.decide_waits))
            self._stored_steps.clear()
        if self._put_steps:
            shapes.put_steps.write(sql, list(self._put_steps.values()))
            self._put_steps.clear()
        if self._past_generations:
            sql.run("delete_steps_before", {"before": as_json(self._past_generations)})
            self._past_generations.clear()
