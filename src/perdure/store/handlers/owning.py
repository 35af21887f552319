"""Starting runs, and who owns them: claim, life signs, recovery, release."""

import functools
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.model import ops
from perdure.model.keys import debounce_scope, digest, start_scope
from perdure.model.outcomes import (
    Advanced,
    Claimed,
    Counted,
    Fenced,
    Moved,
    Refusal,
    SendOutcome,
    Started,
    TurnOutcome,
    Wake,
)
from perdure.model.pools import holds_slot
from perdure.model.records import KeyRecord, RunRecord, WorkerRecord
from perdure.model.sameness import is_same, plain
from perdure.model.status import PARKED
from perdure.store.handlers.ending import catch_up
from perdure.store.handlers.facts import is_limited, let_go, make_ready, move, tell, tell_loss
from perdure.store.handlers.sending import refused_when_new, send_signal
from perdure.store.handlers.standing import is_watched_over, waits_of, watch_no_more, watch_over
from perdure.store.tables import Tables


def start_run(tables: Tables, op: ops.StartRun) -> Started | Refusal:
    if op.debounce_us is not None:
        return _start_debounced(tables, op, op.debounce_us)
    found = _found_by_key(tables, op)
    if found is not None:
        return found
    found = None if op.fresh else _found_by_id(tables, op)
    if isinstance(found, Refusal):
        return found
    refused = None if found else no_pool(tables, op)
    if refused is not None:
        return refused
    started = found or _start_new(tables, op)
    if op.key is not None:
        # Also when the id found the run: the next one with this key must get the same answer.
        tables.add_key(
            KeyRecord(
                scope=start_scope(op.workflow),
                key=op.key,
                digest=digest(op.input),
                answer=op.run_id,
                run_id=op.run_id,
                created_at=tables.now,
            )
        )
    return started


def is_known(tables: Tables, op: ops.StartRun) -> bool:
    """Whether a start would only find, or clash with, a run that is there."""
    return _found_by_key(tables, op) is not None or tables.run(op.run_id) is not None


def no_pool(tables: Tables, op: ops.StartRun) -> Refusal | None:
    """Why there can be no such run: a misspelt pool would have no limits, and nobody would notice."""
    if not op.pool or tables.pool(op.pool) is not None:
        return None
    return Refusal("no_pool", op.pool)


def _start_new(tables: Tables, op: ops.StartRun) -> Started:
    run = _new_run(tables, op)
    tables.add_run(run)
    if is_watched_over(run):
        watch_over(tables, run, run.position)
    tell(tables, run, "workflow.run_started", {"version": run.version})
    if run.line_at is not None:
        tables.wakes.append(Wake("line", run.pool, at=run.line_at, made=run.workflow))
    elif run.status == "ready":
        tables.wakes.append(Wake("ready", run.run_id, at=run.ready_at or 0, made=run.workflow))
    return Started(run, True)


def _start_debounced(tables: Tables, op: ops.StartRun, debounce_us: int) -> Started | Refusal:
    """Let the run that this key names take the input, if it has not begun; else make one, which the key names then."""
    scope, key = debounce_scope(op.workflow), op.key or ""
    used = tables.key(scope, key)
    run = None if used is None else tables.run(used.answer)
    if run is not None and _has_not_begun(run):
        run = catch_up(tables, run)  # it may be cancelled by an event that came before this call
    if run is not None and _has_not_begun(run):
        return Started(_replace_input(tables, run, op, debounce_us), False)
    refused = no_pool(tables, op)
    if refused is not None:
        return refused
    if used is not None:
        tables.delete_key(scope, key)
    started = _start_new(tables, replace(op, delay_us=debounce_us))
    tables.add_key(
        KeyRecord(
            scope=scope,
            key=key,
            digest="",
            answer=op.run_id,
            run_id=op.run_id,
            created_at=tables.now,
        )
    )
    return started


def _has_not_begun(run: RunRecord) -> bool:
    """Nobody has claimed it yet, nor told it anything: whatever makes a run ready again moves its revision."""
    return run.status == "ready" and run.revision == 0 and run.generation == 0


def _replace_input(tables: Tables, run: RunRecord, op: ops.StartRun, debounce_us: int) -> RunRecord:
    """Input, deadline and what cancels it are those of the last call; pool and what it is listed by those of the first.

    One that was let through a line and not claimed yet gives its slot back until then.
    """
    # May be over: then it keeps the place that it has among those that nobody had time for.
    begins_at = min(tables.now + debounce_us, run.created_at + op.debounce_max_us)
    watch_no_more(tables, run)
    changes: dict[str, Any] = {
        "version": op.version,
        "input": op.input,
        "deadline_at": _deadline_at(op, max(tables.now, begins_at)),
        "cancel_on": op.cancel_on,
        "replaced": (run.replaced or 0) + 1,
        "trace": run.trace if op.trace is None else op.trace,
    }
    if max(begins_at, run.ready_at or 0) <= tables.now and holds_slot(run):
        run = move(tables, run, **changes)
    else:
        run = let_go(tables, run, begins_at, **changes)
    watch_over(tables, run, tables.last_position())
    return run


def _deadline_at(op: ops.StartRun, begins_at: int) -> int | None:
    return op.deadline_at if op.deadline_us is None else begins_at + op.deadline_us


def _found_by_key(tables: Tables, op: ops.StartRun) -> Started | Refusal | None:
    used = None if op.key is None else tables.key(start_scope(op.workflow), op.key)
    if used is None:
        return None
    run = tables.run(used.answer)
    if run is None or (used.digest != digest(op.input) and not _is_same_input(tables, run, op)):
        return Refusal(
            "conflict", f"key {op.key!r} was used to start {op.workflow!r} with another input"
        )
    return Started(run, False)


def _found_by_id(tables: Tables, op: ops.StartRun) -> Started | Refusal | None:
    run = tables.run(op.run_id)
    if run is None:
        return None
    if run.origin is not None:
        # Workflow and input are those of its generation now; the id names what was started under it.
        if not _is_same_input(tables, run, op):
            problem = "was started as another workflow or with another input"
            return Refusal("conflict", f"run {op.run_id!r} exists and {problem}")
        return Started(run, False)
    if run.workflow != op.workflow:
        return Refusal("conflict", f"run {op.run_id!r} exists and is of workflow {run.workflow!r}")
    if not _is_same_input(tables, run, op):
        return Refusal("conflict", f"run {op.run_id!r} exists with another input")
    return Started(run, False)


def _is_same_input(tables: Tables, run: RunRecord, op: ops.StartRun) -> bool:
    """Whether a run was started with this input, though perhaps in other words: by one who had only its name."""
    if run.origin is not None:
        # Once it was the fingerprint of the very text.
        return run.origin in (digest(op.workflow, one) for one in (op.input, plain(op.input)))
    if run.workflow != op.workflow:
        return False
    if run.input == op.input:
        return True
    workflow = tables.workflow(run.workflow, run.version)
    schema = None if workflow is None else input_schema(workflow.input_schema)
    return is_same(run.input, op.input, schema)


@functools.lru_cache(maxsize=256)
def input_schema(text: str) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


def _new_run(tables: Tables, op: ops.StartRun) -> RunRecord:
    start_at = op.start_at if op.delay_us is None else tables.now + op.delay_us
    later = start_at is not None and start_at > tables.now
    queues = is_limited(tables, op.pool)
    owned = op.owner is not None and not later and not queues
    from_at = start_at if later else tables.now
    parent = tables.run(op.parent_run_id) if op.parent_run_id is not None else None
    return RunRecord(
        run_id=op.run_id,
        workflow=op.workflow,
        version=op.version,
        status="running" if owned else "ready",
        input=op.input,
        created_at=tables.now,
        owner=op.owner if owned else None,
        fence=op.fence if owned else 0,
        ready_at=None if owned or queues else from_at,
        parent_run_id=op.parent_run_id,
        parent_path=op.parent_path,
        tags=op.tags,
        entity_type=op.entity_type,
        entity_id=op.entity_id,
        key=op.key,
        root_id=parent.root_id if parent is not None else op.root_id,
        depth=parent.depth + 1 if parent is not None else op.depth,
        # After the fact that tells of its start, which follows.
        position=tables.last_position() + tables.lifecycle,
        event_id=op.event_id,
        deadline_at=_deadline_at(op, start_at if later and start_at else tables.now),
        cancel_on=op.cancel_on,
        pool=op.pool,
        pool_key=op.pool_key,
        priority=op.priority,
        line_at=from_at if queues else None,
        admitted=not queues,
        trace=parent.trace if op.trace is None and parent is not None else op.trace,
    )


def signal_with_start(
    tables: Tables, op: ops.SignalWithStart
) -> tuple[Started, SendOutcome] | Refusal:
    refused = _refused_at_birth(tables, op)
    if refused is not None:
        return refused
    started = start_run(tables, op.start)
    if isinstance(started, Refusal):
        return started
    sent = send_signal(tables, op.signal, run_id=started.run.run_id)
    return started, sent


def _refused_at_birth(tables: Tables, op: ops.SignalWithStart) -> Refusal | None:
    """Why the run that this would make could not take the signal: then it is not made either."""
    if _found_by_key(tables, op.start) or _found_by_id(tables, op.start):
        return None
    refused = no_pool(tables, op.start)
    if refused is not None:
        return refused
    return refused_when_new(tables, _new_run(tables, op.start), op.signal)


def claim_runs(tables: Tables, op: ops.ClaimRuns) -> Claimed:
    ready = tables.ready_runs(op.workflows, op.pools, op.limit)
    claimed = tuple(_claim(tables, run, op) for run in ready)
    return Claimed(claimed, tables.next_ready_at(op.workflows, op.pools))


def _claim(tables: Tables, run: RunRecord, op: ops.ClaimRuns) -> RunRecord:
    tell_loss(tables, run, run.revision)  # an owner that did not answer in time
    return move(tables, run, status="running", owner=op.worker_id, fence=op.fence, ready_at=None)


def beat(tables: Tables, op: ops.Beat) -> Counted:
    if op.stopping:
        tables.delete_worker(op.worker_id)
        return Counted(1)
    for worker_id in tables.workers():
        # A process that was killed leaves its row behind; whoever comes next clears it away.
        if worker_id != op.worker_id and not tables.is_live(worker_id):
            tables.delete_worker(worker_id)
    lease_until = tables.now + op.lease_us
    tables.put_worker(
        WorkerRecord(
            worker_id=op.worker_id,
            started_at=tables.now,
            lease_until=lease_until,
            workflows=msgspec.json.encode(op.workflows).decode(),
        )
    )
    return Counted(1)


def recover(tables: Tables, op: ops.Recover) -> Counted:
    """Conditional and idempotent: on a healthy store it finds nothing and writes nothing."""
    orphans = tables.orphans(op.limit)
    for run in orphans:
        make_ready(tables, run, revision=run.revision + 1)
    for owner in {run.owner for run in orphans if run.owner is not None}:
        # If it only stood still, it must learn that it has lost its runs: a row that is there it would prolong.
        tables.delete_worker(owner)
    healed = [run_id for run_id in op.suspects if _heal(tables, run_id)]
    return Counted(len(orphans) + len(healed), more=len(orphans) == op.limit)


def _heal(tables: Tables, run_id: str) -> bool:
    """A parked run that watches nothing can never be woken: a delivery was cut in half. Let it replay."""
    run = tables.run(run_id)
    if run is None or run.status not in PARKED or waits_of(tables, run_id):
        return False
    make_ready(tables, run, revision=run.revision + 1)
    return True


def release(tables: Tables, op: ops.Release) -> TurnOutcome:
    run = tables.run(op.run_id)
    if run is None or run.fence != op.fence or not op.fence:
        return Fenced(op.run_id, None if run is None else run.status)
    if run.revision != op.revision:
        return Moved(run.revision, run.pause_requested, run.cancel_requested)
    if run.status == "running":
        make_ready(tables, run, revision=run.revision + 1)
    else:
        move(tables, run, owner=None, fence=0)
    return Advanced(run.revision, tables.now)
