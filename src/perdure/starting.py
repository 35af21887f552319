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
from perdure.model import limits, ops
from perdure.model.clock import from_datetime
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import BadValue
from perdure.model.records import WorkflowRecord
from perdure.pools import Pool
from perdure.registry import Workflow


def start_op(
    engine: Engine,
    workflow: Workflow[Any, *tuple[Any, ...]] | WorkflowRecord,
    input: str,
    id: str | None,
    key: str | None,
    tags: dict[str, str] | None,
    entity: str | None,
    start_at: datetime | Duration | None,
    deadline: datetime | Duration | None = None,
    pool: Pool | str | None = None,
    pool_key: str = "",
    priority: int = 0,
    trace: str | None = None,
    *,
    claim: bool = True,
) -> ops.StartRun:
    """The op of a start. Whoever makes one submits it, with the `listener` it has: a place may be kept for it.

    Unless it is not to be claimed, because nobody knows when it will be applied, or its code is elsewhere.
    """
    at = from_datetime(start_at) if isinstance(start_at, datetime) else None
    delay = None if start_at is None or at is not None else parse_duration(start_at, "start_at")  # type: ignore[arg-type]
    op = new_start(
        *(engine.ids.ulid, workflow, input, id, key, tags, entity, deadline),
        *(pool, pool_key, priority, trace),
    )
    # Nothing may be refused after this: a place that is kept must be given back by the commit.
    worker = engine.worker
    claim = claim and not isinstance(workflow, WorkflowRecord)
    claim = claim and worker is not None and start_at is None and worker.reserve(op.pool)
    if worker is None or not claim:
        return op if start_at is None else replace(op, start_at=at, delay_us=delay)
    return replace(op, owner=worker.worker_id, fence=engine.ids.fence())


def debounced(
    op: ops.StartRun, debounce: Duration, debounce_max: Duration | None, **others: object
) -> ops.StartRun:
    """A start that waits for the last of several calls. `others` are options that cannot be had with it."""
    if op.key is None:
        raise BadValue("debounce", debounce, "needs key=: which calls belong together")
    for name, given in others.items():
        if given is not None:
            raise BadValue("debounce", debounce, f"cannot be had with {name}=")
    debounce_us = parse_duration(debounce, "debounce")
    if not 0 < debounce_us <= limits.debounce_us_max:
        raise BadValue(
            "debounce", debounce, "must be more than nothing and at most 7 days (debounce_us_max)"
        )
    if debounce_max is None:
        longest_us = min(debounce_us * limits.debounce_times_default, limits.debounce_us_max)
    else:
        longest_us = parse_duration(debounce_max, "debounce_max")
    if not debounce_us <= longest_us <= limits.debounce_us_max:
        raise BadValue(
            "debounce_max",
            debounce_max,
            "must be from the debounce itself to 7 days (debounce_us_max)",
        )
    return replace(op, debounce_us=debounce_us, debounce_max_us=longest_us)


def listener(engine: Engine, op: ops.StartRun) -> Done | None:
    """Who hears first of a start: the worker, if the run is to be born claimed by it."""
    return None if engine.worker is None or op.owner is None else engine.worker.on_born
