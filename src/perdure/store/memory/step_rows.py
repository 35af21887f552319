"""Steps: for each generation of a run one living row at a path, and those it superseded."""

from msgspec.structs import replace

from perdure.model.records import StepRecord
from perdure.store.memory.rows import KeptRows


class StepRows(KeptRows):
    """The steps."""

    def step(self, run_id: str, generation: int, path: str) -> StepRecord | None:
        return self.steps_by_run.get((run_id, generation), {}).get((path, 0))

    def steps(self, run_id: str, generation: int) -> list[StepRecord]:
        return list(self.steps_by_run.get((run_id, generation), {}).values())

    def retrying_steps(self, run_id: str, generation: int) -> list[StepRecord]:
        return [one for one in self.steps(run_id, generation) if one.state == "retrying"]

    def add_step(self, step: StepRecord) -> None:
        rows = self.steps_by_run.setdefault((step.run_id, step.generation), {})
        if (step.path, step.superseded) in rows:
            raise ValueError(f"second checkpoint of {step.path!r} in run {step.run_id!r}")
        rows[step.path, step.superseded] = step

    def put_step(self, step: StepRecord) -> None:
        rows = self.steps_by_run.setdefault((step.run_id, step.generation), {})
        rows[step.path, step.superseded] = step

    def supersede_step(self, step: StepRecord) -> None:
        rows = self.steps_by_run[step.run_id, step.generation]
        number = 1 + max(nth for path, nth in rows if path == step.path)
        del rows[step.path, 0]
        rows[step.path, number] = replace(step, state="superseded", superseded=number)

    def delete_steps_before(self, run_id: str, generation: int) -> None:
        for one in [one for one in self.steps_by_run if one[0] == run_id and one[1] < generation]:
            del self.steps_by_run[one]
