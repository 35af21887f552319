"""The store's own upkeep: the catalogue, and pruning in bounded chunks."""

from perdure.model import ops
from perdure.model.outcomes import Counted
from perdure.store.tables import Tables


def declare(tables: Tables, op: ops.Declare) -> Counted:
    return Counted(sum(tables.put_workflow(workflow) for workflow in op.workflows))


def prune(tables: Tables, op: ops.Prune) -> Counted:
    run_ids = tables.finished_before(op.finished_before, op.limit)
    for run_id in run_ids:
        tables.delete_run(run_id)
    return Counted(len(run_ids), more=len(run_ids) == op.limit)
