"""The store's own upkeep: the catalogue, and pruning in bounded chunks."""

import msgspec
from msgspec.structs import replace

from perdure.model import ops
from perdure.model.outcomes import Counted
from perdure.model.records import WorkflowRecord
from perdure.store.handlers.sending import signal_entries
from perdure.store.tables import Tables

_encode = msgspec.json.Encoder(order="deterministic").encode


def declare(tables: Tables, op: ops.Declare) -> Counted:
    wanted = op.workflows
    if op.only_new:
        wanted = tuple(one for one in wanted if tables.workflow(one.name, one.version) is None)
    channels = op.channels
    if op.only_new:
        channels = tuple(one for one in channels if tables.channel(one.kind, one.name) is None)
    changed = [tables.put_workflow(_merged(tables, one)) for one in wanted]
    changed += [tables.put_channel(one) for one in channels]
    return Counted(sum(changed))


def _merged(tables: Tables, workflow: WorkflowRecord) -> WorkflowRecord:
    """What a workflow was seen to wait for stays known: each process tells only what it has seen itself."""
    known = tables.workflow(workflow.name, workflow.version)
    if known is None or known.strict_signals or workflow.strict_signals:
        return workflow
    entries = {**signal_entries(known.signals), **signal_entries(workflow.signals)}
    return replace(workflow, signals=_encode(entries).decode())


def prune(tables: Tables, op: ops.Prune) -> Counted:
    keys = tables.expire_keys(op.limit)
    before = op.finished_before
    run_ids = [] if before is None else tables.finished_before(before, op.limit)
    for run_id in run_ids:
        tables.delete_run(run_id)
    return Counted(len(run_ids), more=op.limit in (len(run_ids), keys))
