"""Steering by operators: cancel, terminate, pause, resume, retry. Each is idempotent."""

import msgspec
from msgspec.structs import replace

from perdure.model import ops
from perdure.model.outcomes import Counted, Finished, NotFound, Refusal, Steered, SteerOutcome
from perdure.model.records import (
    HANDLING,
    RETRY_PATH,
    ROLLBACK,
    ErrorRecord,
    RunRecord,
    StepRecord,
    branch_of,
)
from perdure.model.status import PARKED, TERMINAL
from perdure.store.handlers.asking import set_aside
from perdure.store.handlers.ending import cancel_run, catch_up, descendants, end_run
from perdure.store.handlers.facts import awaken, make_ready, move, tell, tell_loss
from perdure.store.handlers.scheduling import live_again
from perdure.store.handlers.sending import put_back, refused_when_new
from perdure.store.handlers.standing import watch_over
from perdure.store.handlers.taking import tell_delivered
from perdure.store.handlers.turning import watch_retry
from perdure.store.handlers.waiting import untake, won_by
from perdure.store.tables import Tables

# Records that are no doing of the run: no retry begins there, and none sets them aside.
_marks = ("retry", "patch")


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
    set_aside(tables, run)
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


def mend(tables: Tables, op: ops.Mend) -> Counted:
    """As a pause and a resume in one: nothing is decided here, the run comes to its waits again and looks."""
    return Counted(sum(_mend(tables, run_id) for run_id in dict.fromkeys(op.run_ids)))


def _mend(tables: Tables, run_id: str) -> bool:
    run = tables.run(run_id)
    if run is None:
        return False
    if run.status in TERMINAL:
        left = bool(tables.watchers(run_id))
        tables.delete_watchers(run_id)
        return left
    no_place = run.ready_at is None and run.line_at is None
    if run.status not in PARKED and not (run.status == "ready" and (no_place or run.owner)):
        return False
    set_aside(tables, run)
    revision = run.revision + 1
    tell_loss(tables, run, revision)
    _watch_retries(tables, make_ready(tables, run, revision=revision))
    return True


def retry(tables: Tables, op: ops.Retry) -> SteerOutcome:
    run = tables.run(op.run_id)
    if run is None:
        return NotFound(op.run_id)
    if run.status != "failed":
        return Refusal(
            "not_failed", f"run {run.run_id!r} is {run.status}; only a failed run is retried"
        )
    anew = _to_be_done_anew(tables, run, op)
    if isinstance(anew, Refusal):
        return anew
    superseded, since, steps = anew
    _supersede(tables, run, superseded, None if op.answer is None else op.path)
    told = _answered_anew(tables, run, op)
    _mark_retry(tables, run, since, sum(one.kind == "retry" for one in steps))
    tell(tables, run, "workflow.run_retried", told)
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


def _to_be_done_anew(
    tables: Tables, run: RunRecord, op: ops.Retry
) -> tuple[list[StepRecord], int, list[StepRecord]] | Refusal:
    """The steps of a failed run that are to be done anew, since when the old order of events no longer binds, and all.

    Usually the failed step and what its branch, or a branch around it, recorded after it: what sibling branches
    recorded stays and is used if the code asks for it. More, if it was rolled back; less, if a roll-back failed.
    """
    steps = tables.steps(run.run_id, run.generation)
    living = [one for one in steps if one.state != "superseded"]
    error = msgspec.json.decode(run.error or "", type=ErrorRecord)
    failed = _failed_step(living, error.path)
    named = None if op.path is None else _step_to_begin_with(tables, run, living, op)
    if isinstance(named, Refusal):
        return named
    if error.redo and named is None:
        again = [one for one in living if one.path in error.redo]
        since = min((one.seq for one in again), default=0)
        # Who was cancelled for the failure stands there again until the roll-back is through.
        return [*again, *(one for one in living if one.state == "abandoned")], since, steps
    starts = [one for one in (failed, named) if one is not None]
    newest = max((one.seq for one in living), default=0)
    since = min((one.seq for one in starts), default=newest)
    undone_at = _undone_at(living, (*error.undone, *_sagas_around(living, named)))
    if undone_at is None:
        return [one for one in living if _is_concerned(one, failed, named)], since, steps
    since = min(since, undone_at)
    # What people have said once they need not say again.
    kept = {one.path for one in living if _is_answered(one)} - {one.path for one in starts}
    return [one for one in living if _is_after(one, since) and one.path not in kept], since, steps


def _failed_step(living: list[StepRecord], path: str | None) -> StepRecord | None:
    """What failed there: the step itself; what a play did with the signal that it got there; or a wait that ran out of
    time, which is done but raised WaitTimeout."""
    if path is None:
        return None
    own = (path, *(path + suffix for suffix in HANDLING))
    failed = [one for one in living if one.state == "failed" and one.path in own]
    waits = [one for one in living if one.path == path and one.kind == "wait"]
    return next(iter(failed or waits), None)


def _step_to_begin_with(
    tables: Tables, run: RunRecord, living: list[StepRecord], op: ops.Retry
) -> StepRecord | Refusal:
    """The step that the operator names: one that is decided; with an answer, a wait that a signal had ended."""
    decided = {one.path: one for one in living if one.state in ("done", "failed")}
    if op.answer is None:
        steps = {path: one for path, one in decided.items() if one.kind not in _marks}
        if op.path not in steps:
            problem = f"run {run.run_id!r} has no step at {op.path!r}"
            return Refusal("no_step", problem, tuple(sorted(steps)))
        return steps[op.path]
    found = decided.get(op.path or "")
    won = None if found is None or found.state != "done" else won_by(found)
    if found is None or won is None or won.kind != "signal":
        return Refusal("no_answer", f"no signal ended a wait at {op.path!r} of run {run.run_id!r}")
    refused = refused_when_new(tables, run, op.answer)
    return found if refused is None else refused


def _sagas_around(living: list[StepRecord], named: StepRecord | None) -> list[str]:
    """The sagas that hold this step and were rolled back after it, though the code went on then."""
    if named is None:
        return []
    back = [one.path.partition(ROLLBACK)[0] for one in living if ROLLBACK in one.path]
    return [one for one in dict.fromkeys(back) if named.path.startswith(one)]


def _undone_at(living: list[StepRecord], undone: tuple[str, ...]) -> int | None:
    """When the first step was recorded of what has been rolled back."""
    back = [one.seq for one in living if one.seq and _is_under(one.path, undone)]
    return min(back, default=None)


def _is_under(path: str, places: tuple[str, ...]) -> bool:
    return path in places or path.startswith(tuple(one for one in places if one.endswith("/")))


def _is_after(step: StepRecord, since: int) -> bool:
    # A mark that a branch took the new way stays: what siblings recorded may rest on it.
    return step.kind not in _marks and (step.seq == 0 or step.seq >= since)


def _is_answered(step: StepRecord) -> bool:
    won = won_by(step) if step.kind == "wait" and step.state == "done" else None
    return won is not None and won.kind in ("signal", "approval")


def _is_concerned(step: StepRecord, failed: StepRecord | None, named: StepRecord | None) -> bool:
    """Whether it comes after what failed, or after the step that the operator names, in its branch or one around it.

    With the latter go also branches that were begun after it. Not so with what failed: a call may be made by one
    branch, whose path it has, and awaited by another, whose siblings have nothing to do with it.
    """
    if step.state == "abandoned":
        return True  # a sibling that was cancelled for the failure may come to ask for it again
    branch = branch_of(step.path)
    if failed is not None and _is_after(step, failed.seq):
        if branch_of(failed.path).startswith(branch):
            return True
    if named is None or not _is_after(step, named.seq):
        return False
    start = branch_of(named.path)
    return start.startswith(branch) or branch.startswith(start)


def _supersede(
    tables: Tables, run: RunRecord, anew: list[StepRecord], answered: str | None
) -> None:
    """Set these aside, and give back what they took; but not what was said at the wait that is answered anew."""
    # The last first: of several events that are to be seen again, the first one counts.
    for step in sorted(anew, key=lambda one: one.seq, reverse=True):
        tables.supersede_step(step)
        if step.state in ("done", "failed") and step.path != answered:
            untake(tables, run, step)


def _mark_retry(tables: Tables, run: RunRecord, since: int, marks: int) -> None:
    """From there to this mark the old order of events no longer binds."""
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


def _answered_anew(tables: Tables, run: RunRecord, op: ops.Retry) -> dict[str, object]:
    """End the wait at the path by the new answer, as a delivery would; what is told of it has both.

    Before the mark: the code may have more to do before it asks for it.
    """
    if op.path is None:
        return {}
    if op.answer is None:
        return {"path": op.path}
    steps = tables.steps(run.run_id, run.generation)
    old = max(
        (one for one in steps if one.path == op.path and one.state == "superseded"),
        key=lambda one: one.superseded,
    )
    send = op.answer
    step = replace(
        old,
        state="done",
        superseded=0,
        seq=tables.next_seq(),
        value=send.payload,
        taken_id=send.signal_id,
        recorded_at=tables.now,
    )
    tables.add_step(step)
    told = {"signal_id": send.signal_id, "name": send.name, "path": op.path}
    tell_delivered(tables, run, told, send.payload)
    return {
        "path": op.path,
        "replaced": {
            "signal_id": old.taken_id,
            "payload": msgspec.Raw((old.value or "null").encode()),
        },
        "answer": {"signal_id": send.signal_id, "payload": msgspec.Raw(send.payload.encode())},
    }
