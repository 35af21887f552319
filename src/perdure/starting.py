"""A start, from what the caller gave to the op that makes the run.

All that can be refused is refused here, before the op exists. The last thing done is to keep a place for the run with
the worker of this process, so that it is born claimed: from then on only the commit's answer may let go of the place.
"""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure.coordinator.coordinator import Done
from perdure.engine import Engine
from perdure.inputs import new_start
from perdure.model import ops
from perdure.model.clock import from_datetime
from perdure.model.duration import Duration, parse_duration
from perdure.registry import Workflow


def start_op(
    engine: Engine,
    workflow: Workflow[Any, *tuple[Any, ...]],
    input: str,
    id: str | None,
    key: str | None,
    tags: dict[str, str] | None,
    entity: str | None,
    start_at: datetime | Duration | None,
    *,
    claim: bool = True,
) -> ops.StartRun:
    """The op of a start. Whoever makes one submits it, with the `listener` it has: a place may be kept for it.

    Unless it is not to be claimed, because nobody knows when it will be applied.
    """
    at = from_datetime(start_at) if isinstance(start_at, datetime) else None
    delay = None if start_at is None or at is not None else parse_duration(start_at)  # type: ignore[arg-type]
    op = new_start(engine.ids.ulid, workflow, input, id, key, tags, entity)
    # Nothing may be refused after this: a place that is kept must be given back by the commit.
    worker = engine.worker
    claim = claim and worker is not None and start_at is None and worker.reserve()
    if worker is None or not claim:
        return op if start_at is None else replace(op, start_at=at, delay_us=delay)
    return replace(op, owner=worker.worker_id, fence=engine.ids.fence())


def listener(engine: Engine, op: ops.StartRun) -> Done | None:
    """Who hears first of a start: the worker, if the run is to be born claimed by it."""
    return None if engine.worker is None or op.owner is None else engine.worker.on_born
