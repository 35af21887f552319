"""Steps: open ones and those to be tried again from their run's slice, others from the store when asked for."""

from collections.abc import Callable

from msgspec.structs import replace

from perdure.model.records import StepRecord
from perdure.store.optimistic.known import NEW
from perdure.store.optimistic.needs import Looks
from perdure.store.optimistic.rows import LookedAt

StepKey = tuple[str, int, str]  # run_id, generation, path: the living row

# Rows that only the owner asks for, and that never change: to add one does not change what others know of the run.
_plain_kinds = frozenset(
    {"step", "signal", "start", "set", "emit", "put", "act", "publish", "patch"}
)
_kept_states = frozenset({"open", "retrying"})


class StepRows(LookedAt):
    """The steps of one batch."""

    def __init__(self, looks: Looks) -> None:
        super().__init__(looks)
        self._new_steps: dict[StepKey, StepRecord] = {}
        self._put_steps: dict[tuple[str, int, str, int], StepRecord] = {}
        self._gone_steps: dict[StepKey, None] = {}
        self._past_steps: list[tuple[str, int]] = []

    def step(self, run_id: str, generation: int, path: str) -> StepRecord | None:
        key = (run_id, generation, path)
        step = self._new_steps.get(key) or self._put_steps.get((*key, 0))
        if step is not None:
            return step
        if key in self._gone_steps:
            return None
        kept = self._slice(run_id)
        if kept is None or kept.change == NEW:
            return None
        step = kept.steps.get(path)
        if step is not None and step.generation == generation:
            return step
        found: StepRecord | None = self._answer("step", *key)
        return found

    def steps(self, run_id: str, generation: int) -> list[StepRecord]:
        kept = self._slice(run_id)
        rows: dict[tuple[str, int], StepRecord] = {}
        if kept is not None and kept.change != NEW:
            rows = {
                (one.path, one.superseded): one for one in self._answer("steps", run_id, generation)
            }
        for key in self._gone_steps:
            if key[:2] == (run_id, generation):
                rows.pop((key[2], 0), None)
        for step in (*self._new_steps.values(), *self._put_steps.values()):
            if (step.run_id, step.generation) == (run_id, generation):
                rows[step.path, step.superseded] = step
        return list(rows.values())

    def retrying_steps(self, run_id: str, generation: int) -> list[StepRecord]:
        kept = self._inside(run_id)
        if kept is None:
            return []
        return [
            one
            for one in kept.steps.values()
            if one.state == "retrying" and one.generation == generation
        ]

    def add_step(self, step: StepRecord) -> None:
        key = (step.run_id, step.generation, step.path)
        if key in self._new_steps or (*key, 0) in self._put_steps:
            raise ValueError(f"second checkpoint of {step.path!r} in run {step.run_id!r}")
        self._new_steps[key] = step
        if step.kind not in _plain_kinds or step.state in _kept_states:
            mine = self._mine(step.run_id)
            if step.state in _kept_states:
                mine.steps[step.path] = step

    def put_step(self, step: StepRecord) -> None:
        key = (step.run_id, step.generation, step.path)
        if key in self._new_steps:
            self._new_steps[key] = step
        else:
            self._put_steps[*key, step.superseded] = step
            self._gone_steps.pop(key, None)
        steps = self._mine(step.run_id).steps
        if step.state in _kept_states:
            steps[step.path] = step
        else:
            steps.pop(step.path, None)

    def supersede_step(self, step: StepRecord) -> None:
        key = (step.run_id, step.generation, step.path)
        others = [one for one in self.steps(*key[:2]) if one.path == step.path]
        number = 1 + max(one.superseded for one in others)
        if self._new_steps.pop(key, None) is None:
            self._put_steps.pop((*key, 0), None)
            self._gone_steps[key] = None
        self._put_steps[*key, number] = replace(step, state="superseded", superseded=number)
        self._mine(step.run_id).steps.pop(step.path, None)

    def delete_steps_before(self, run_id: str, generation: int) -> None:
        # The first generation has none before it, and most runs never have a second.
        if generation > 0:
            self._past_steps.append((run_id, generation))
            self._mine(run_id)
            self._keep_steps(lambda one: one.run_id != run_id or one.generation >= generation)

    def _keep_steps(self, keep: Callable[[StepRecord], bool]) -> None:
        """Of what this batch has added: what is deleted now was not there before."""
        self._new_steps = {at: one for at, one in self._new_steps.items() if keep(one)}
        self._put_steps = {at: one for at, one in self._put_steps.items() if keep(one)}

    def _forget_run(self, run_id: str) -> None:
        super()._forget_run(run_id)
        self._keep_steps(lambda one: one.run_id != run_id)
