"""Steering by operators: cancel, terminate, pause, resume, retry. Each is idempotent."""

import msgspec
from msgspec.structs import replace

from perdure.model import ops
from perdure.model.outcomes import Finished, NotFound, Refusal, Steered, SteerOutcome
from perdure.model.records import RETRY_PATH, ErrorRecord, RunRecord, StepRecord, branch_of
from perdure.model.status import TERMINAL
from perdure.store.handlers.ending import cancel_run, catch_up, descendants, end_run
from perdure.store.handlers.facts import awaken, make_ready, move, tell, tell_loss
from perdure.store.handlers.scheduling import live_again
from perdure.store.handlers.sending import put_back
from perdure.store.handlers.standing import leave_waits, watch_over
from perdure.store.handlers.turning import watch_retry
from perdure.store.handlers.waiting import untake
from perdure.store.tables import Tables


def _living(tables: Tables, run_id: str) -> RunRecord | NotFound | Finished:
    run = tables.run(run_id)
    if run is None:
        return NotFound(run_id)
    if run.status in TERMINAL:
        return Finished(run_id, run.status)
    return run


def cancel(tables: Tables, op: ops.Cancel) -> SteerOutcome:
    return cancel_run(tables, op.run_id, op.reason)


def terminate(tables: Tables, op: ops.Terminate) -> SteerOutcome:
    run = _living(tables, op.run_id)
    if not isinstance(run, RunRecord):
        return run
    below = list(descendants(tables, run.run_id))
    end_run(tables, run, "terminated", reason=op.reason)
    for child_id, parent_id in below:
        child = tables.run(child_id)
        if child is not None and child.status not in TERMINAL:
            end_run(tables, child, "terminated", reason=f"its parent {parent_id!r} was terminated")
    return Steered(run.run_id, "terminated", True)


def pause(tables: Tables, op: ops.Pause) -> SteerOutcome:
    run = _living(tables, op.run_id)
    if not isinstance(run, RunRecord):
        return run
    if run.status == "paused" or run.pause_requested:
        return Steered(run.run_id, run.status, False)
    run = catch_up(tables, run)
    if run.status in TERMINAL:  # one that has not begun ends by an event that cancels it
        return Finished(run.run_id, run.status)
    if run.status == "running":
        changed = move(tables, run, pause_requested=True, reason=op.reason)
        return Steered(run.run_id, awaken(tables, changed, None).status, True)
    leave_waits(tables, run)
    revision = run.revision + 1
    tell_loss(tables, run, revision)
    move(
        tables,
        run,
        status="paused",
        reason=op.reason,
        revision=revision,
        ready_at=None,
        line_at=None,
        owner=None,
        fence=0,
    )
    return Steered(run.run_id, "paused", True)


def resume(tables: Tables, op: ops.Resume) -> SteerOutcome:
    """A resumed run replays and opens its wait again, with the deadline it had: one road for all waits."""
    run = _living(tables, op.run_id)
    if not isinstance(run, RunRecord):
        return run
    if run.pause_requested:
        changed = move(tables, run, pause_requested=False, reason=None)
        return Steered(run.run_id, awaken(tables, changed, None).status, True)
    if run.status != "paused":
        return Refusal("not_paused", f"run {run.run_id!r} is {run.status}, not paused")
    run = make_ready(tables, run, revision=run.revision + 1, reason=None)
    _watch_retries(tables, run)
    return Steered(run.run_id, "ready", True)


def _watch_retries(tables: Tables, run: RunRecord) -> None:
    """Steps that were to be tried again when the run stopped are due again, at the time they had."""
    retrying = tables.retrying_steps(run.run_id, run.generation)
    for step in sorted(retrying, key=lambda one: one.path):
        watch_retry(tables, run, step)


def retry(tables: Tables, op: ops.Retry) -> SteerOutcome:
    run = tables.run(op.run_id)
    if run is None:
        return NotFound(op.run_id)
    if run.status != "failed":
        return Refusal(
            "not_failed", f"run {run.run_id!r} is {run.status}; only a failed run is retried"
        )
    _supersede_failure(tables, run)
    tell(tables, run, "workflow.run_retried", {})
    run = make_ready(
        tables, run, revision=run.revision + 1, error=None, finished_at=None, reason=None
    )
    put_back(tables, run)
    live_again(tables, run)
    _watch_retries(tables, run)
    if not run.cancel_requested:
        # A deadline that has passed binds nobody who says to try again; events count from here on.
        over = run.deadline_at is not None and run.deadline_at <= tables.now
        watch_over(tables, replace(run, deadline_at=None) if over else run, tables.last_position())
    return Steered(run.run_id, "ready", True)


def _supersede_failure(tables: Tables, run: RunRecord) -> None:
    """Set aside the failed step and what its branch, or a branch around it, recorded after it.

    What sibling branches recorded stays and is used if the code asks for it; the retry mark says from where
    on the old order of events no longer binds.
    """
    steps = tables.steps(run.run_id, run.generation)
    error = msgspec.json.decode(run.error or "", type=ErrorRecord)
    living = [one for one in steps if one.state != "superseded"]
    failed = next((one for one in living if one.path == error.path and _has_failed(one)), None)
    since = failed.seq if failed is not None else max((one.seq for one in living), default=0)
    branch = None if failed is None else branch_of(failed.path)
    # The last first: of several events that are to be seen again, the first one counts.
    for step in sorted(living, key=lambda one: one.seq, reverse=True):
        if _is_to_be_done_anew(step, since, branch):
            tables.supersede_step(step)
            if step.state in ("done", "failed"):
                untake(tables, run, step)
    marks = sum(one.kind == "retry" for one in steps)
    tables.add_step(
        StepRecord(
            run_id=run.run_id,
            generation=run.generation,
            path=f"{RETRY_PATH}#{marks + 1}",
            kind="retry",
            name="",
            state="done",
            seq=tables.next_seq(),
            value=msgspec.json.encode(since).decode(),
            started_at=tables.now,
            recorded_at=tables.now,
        )
    )


def _is_to_be_done_anew(step: StepRecord, since: int, branch: str | None) -> bool:
    if step.state == "abandoned":
        return True  # a sibling that was cancelled for the failure may come to ask for it again
    after = step.seq == 0 or step.seq >= since
    around = branch is not None and branch.startswith(branch_of(step.path))
    return after and around and step.kind != "retry"


def _has_failed(step: StepRecord) -> bool:
    """A failed step, send or wait; or a wait that ran out of time, which is done but raised WaitTimeout."""
    return step.state == "failed" or (step.state == "done" and step.kind == "wait")
