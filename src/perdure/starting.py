"""A start, from what the caller gave to the op that makes the run.

All that can be refused is refused here, before the op exists. The last thing done is to keep a place for the run with
the worker of this process, so that it is born claimed: from then on only the commit's answer may let go of the place.
"""

from datetime import datetime
from typing import Any

from perdure.coordinator.coordinator import Done
from perdure.engine import Engine
from perdure.inputs import encoded_tags
from perdure.model import ops
from perdure.model.clock import from_datetime
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import check_entity, check_key, check_run_id
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
) -> ops.StartRun:
    """The op of a start. Whoever makes one submits it, with the `listener` it has: a place may be kept for it."""
    entity_type, entity_id = (None, None) if entity is None else check_entity(entity)
    at = from_datetime(start_at) if isinstance(start_at, datetime) else None
    delay = None if start_at is None or at is not None else parse_duration(start_at)  # type: ignore[arg-type]
    run_id = engine.ids.ulid() if id is None else check_run_id(id)
    checked_key = None if key is None else check_key(key)
    checked_tags = None if tags is None else encoded_tags(tags)
    # Nothing may be refused after this: a place that is kept must be given back by the commit.
    worker = engine.worker
    claim = worker is not None and start_at is None and worker.reserve()
    return ops.StartRun(
        run_id=run_id,
        workflow=workflow.name,
        version=workflow.version,
        input=input,
        fresh=id is None,
        key=checked_key,
        tags=checked_tags,
        entity_type=entity_type,
        entity_id=entity_id,
        start_at=at,
        delay_us=delay,
        owner=worker.worker_id if worker is not None and claim else None,
        fence=engine.ids.fence() if claim else 0,
    )


def listener(engine: Engine, op: ops.StartRun) -> Done | None:
    """Who hears first of a start: the worker, if the run is to be born claimed by it."""
    return None if engine.worker is None or op.owner is None else engine.worker.on_born
