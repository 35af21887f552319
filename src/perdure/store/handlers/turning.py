"""The turns of a run, recorded by its owner.

Each op names the fence of the claim: a stale owner is refused. Those that would park, end or renew the run also
name the revision that the owner saw, and get `Moved` instead when somebody changed the run meanwhile.
"""

import msgspec
from msgspec.structs import replace

from perdure.model import limits, ops
from perdure.model.keys import digest
from perdure.model.outcomes import (
    Advanced,
    Buffered,
    Delivered,
    Duplicate,
    Emitted,
    Fenced,
    Finished,
    Moved,
    NotFound,
    PutOutcome,
    Queued,
    Refusal,
    SendOutcome,
    Started,
    TurnOutcome,
    Wake,
    encode_answer,
)
from perdure.model.records import (
    CANCEL_PATH,
    Completion,
    ErrorRecord,
    RunRecord,
    StepRecord,
    WatcherRecord,
)
from perdure.model.sameness import plain
from perdure.model.status import TERMINAL
from perdure.model.streams import REPLIES
from perdure.store.handlers import asking, ledger, queues, replying, streaming, waiting
from perdure.store.handlers.ending import cancel_is_ahead, completion_of, end_run
from perdure.store.handlers.facts import move, tell
from perdure.store.handlers.owning import start_run
from perdure.store.handlers.sending import send_signal
from perdure.store.handlers.standing import leave_waits, waits_of, watch_no_more
from perdure.store.tables import Tables

_encode = msgspec.json.encode


def _owned(tables: Tables, op: ops.TurnOp) -> RunRecord | Fenced:
    run = tables.run(op.run_id)
    # A run that nobody owns has fence 0; that opens nothing.
    if run is None or run.fence != op.fence or not op.fence or run.status in TERMINAL:
        return Fenced(op.run_id, None if run is None else run.status)
    return run


def _settled(tables: Tables, op: ops.TurnOp) -> RunRecord | Fenced | Moved:
    """The run, if it is still the sender's and nobody changed it unseen."""
    run = _owned(tables, op)
    if isinstance(run, RunRecord) and run.revision != op.revision:
        return Moved(run.revision, run.pause_requested, run.cancel_requested)
    return run


def _record(tables: Tables, run: RunRecord, op: ops.TurnOp) -> RunRecord:
    """Write what the turn produced: results in the order the owner saw them, and abandoned waits.

    Gives the run as it is then: an item that an abandoned wait had taken may end the wait of another branch.
    """
    if (
        run.ready_at is not None
    ):  # it was called, and this is its answer: nobody else may claim the run now
        run = move(tables, run, ready_at=None)
    for done in op.steps:
        if done.kind == "patch" and tables.step(run.run_id, run.generation, done.path) is not None:
            continue  # a mark goes along until its owner knows that it is recorded
        retrying = done.state == "retrying"
        step = StepRecord(
            run_id=run.run_id,
            generation=run.generation,
            path=done.path,
            kind=done.kind,
            name=done.name,
            state=done.state,
            seq=0 if retrying else tables.next_seq(),
            value=done.value,
            error=done.error,
            attempt=done.attempt,
            started_at=done.started_at,
            recorded_at=done.recorded_at,
            retry_at=tables.now + done.delay_us if retrying else None,
        )
        if done.attempt == 1:
            tables.add_step(step)
        else:
            tables.put_step(step)
            # Whoever took the run over when the retry was due did not wait for its alarm.
            tables.delete_watchers(run.run_id, done.path)
        if retrying:
            watch_retry(tables, run, step)
        for type, facts in done.facts:
            tell(tables, run, type, msgspec.json.decode(facts, type=dict[str, msgspec.Raw]))
    return _leave(tables, run, op.closed)


def _leave(tables: Tables, run: RunRecord, paths: tuple[str, ...]) -> RunRecord:
    for path in paths:
        waiting.close(tables, tables.run(run.run_id) or run, path)
    return (tables.run(run.run_id) or run) if paths else run


def watch_retry(tables: Tables, run: RunRecord, step: StepRecord) -> None:
    """Wake the run when the next attempt is due."""
    tables.add_watcher(
        WatcherRecord(
            run_id=run.run_id,
            path=step.path,
            ix=0,
            generation=run.generation,
            kind="retry",
            target="",
            opened_at=tables.now,
            deadline_at=step.retry_at,
            deadline_ix=0,
        )
    )
    tables.wakes.append(Wake("deadline", at=step.retry_at or 0))


def _advanced(tables: Tables, run: RunRecord, completions: tuple[Completion, ...] = ()) -> Advanced:
    return Advanced(
        run.revision,
        tables.now,
        completions,
        pause_requested=run.pause_requested,
        cancel_requested=run.cancel_requested,
    )


def record_step(tables: Tables, op: ops.RecordStep) -> TurnOutcome:
    run = _owned(tables, op)
    if isinstance(run, Fenced):
        return run
    run = _record(tables, run, op)
    return _advanced(tables, run)


def suspend(tables: Tables, op: ops.Suspend) -> TurnOutcome:
    run = _settled(tables, op)
    if not isinstance(run, RunRecord):
        return run
    run = _record(tables, run, op)
    opened = [waiting.open_wait(tables, run, wait) for wait in op.waits]
    decided = tuple(one for one in opened if one is not None)
    moved = run.revision != op.revision  # by what a wait gave back: the owner is to look again
    if decided or moved or not op.park:
        _tell_deadline(tables, run)
        return _advanced(tables, run, decided)
    if run.pause_requested:
        return _pause_now(tables, run)
    return _park_run(tables, run, op.release)


def _park_run(tables: Tables, run: RunRecord, release: bool) -> Advanced:
    watchers = waits_of(tables, run.run_id)
    only_time = all(one.kind in ("timer", "retry") for one in watchers)
    owner, fence = (None, 0) if release else (run.owner, run.fence)
    run = move(tables, run, status="sleeping" if only_time else "waiting", owner=owner, fence=fence)
    _tell_deadline(tables, run)
    return replace(_advanced(tables, run), parked=True)


def _tell_deadline(tables: Tables, run: RunRecord) -> None:
    watchers = tables.watchers(run.run_id)
    deadlines = [one.deadline_at for one in watchers if one.deadline_at and not one.held]
    if deadlines:
        tables.wakes.append(Wake("deadline", at=min(deadlines)))


def _pause_now(tables: Tables, run: RunRecord) -> Advanced:
    asking.set_aside(tables, run)
    run = move(tables, run, status="paused", pause_requested=False, owner=None, fence=0)
    return replace(_advanced(tables, run), parked=True, paused=True)


def record_send(tables: Tables, op: ops.RecordSend) -> TurnOutcome:
    run = _owned(tables, op)
    if isinstance(run, Fenced):
        return run
    run = _record(tables, run, op)
    value, error = _send(tables, run, op)
    # The send may have changed this very run (a signal to itself), so it is read again.
    run = tables.run(op.run_id) or run
    step = StepRecord(
        run_id=run.run_id,
        generation=run.generation,
        path=op.path,
        kind=op.kind,
        name=op.name,
        state="done" if error is None else "failed",
        seq=tables.next_seq(),
        value=value,
        error=error,
        started_at=tables.now,
        recorded_at=tables.now,
    )
    tables.add_step(step)
    return _advanced(tables, run, (completion_of(step),))


def _send(tables: Tables, run: RunRecord, op: ops.RecordSend) -> tuple[str | None, str | None]:
    """The send's answer as (value, error): a refusal is recorded too, so that replay raises it again."""
    if op.kind == "publish":
        return _add_to_stream(tables, run, op)
    if op.send is None:
        return _publish(tables, run, op.name, op.value or "null")
    if isinstance(op.send, ops.StartRun):
        started = start_run(tables, op.send)
        if isinstance(started, Started):
            if started.created and cancel_is_ahead(tables, run):
                # The cancel came first and did not find this child; without it the child would never end.
                _cancel_at_birth(tables, started.run, f"its parent {run.run_id!r} was cancelled")
            return _encode(started.run.run_id).decode(), None
        return None, _refused(started.code, started.detail, op.send.run_id)
    if isinstance(op.send, ops.Emit):
        return _emitted(tables, run, op.send)
    run_id = op.send.run_id if isinstance(op.send, ops.SendSignal) else run.run_id
    outcome: SendOutcome | PutOutcome
    if isinstance(op.send, ops.SendSignal):
        outcome = send_signal(tables, op.send)
    else:
        outcome = queues.put(tables, op.send)
    match outcome:
        case Delivered() | Buffered() | Queued():
            return encode_answer(outcome), None
        case Duplicate():
            first = msgspec.Raw(encode_answer(outcome.of).encode())
            return _encode({"duplicate_of": first}).decode(), None
        case NotFound():
            return None, _refused("not_found", outcome.run_id, outcome.run_id)
        case Finished():
            return None, _refused("finished", outcome.status, outcome.run_id)
        case Refusal():
            return None, _refused(outcome.code, outcome.detail, run_id, outcome.paths)


def _cancel_at_birth(tables: Tables, child: RunRecord, reason: str) -> None:
    """Nobody has seen it yet, so nobody is told; one that stands in line need not wait for a slot."""
    watch_no_more(tables, child)
    child = move(tables, child, cancel_requested=True, reason=reason)
    if not child.admitted:
        end_run(tables, child, "cancelled")


def _emitted(tables: Tables, run: RunRecord, op: ops.Emit) -> tuple[str | None, str | None]:
    """All of a run's events or none: it is one step of it."""
    refused = ledger.first_refusal(tables, op.events)
    if refused is not None:
        return None, _refused(refused.code, refused.detail, run.run_id, refused.paths)
    chain = {"root_id": run.root_id, "depth": run.depth}
    events = tuple(replace(one, **chain) for one in op.events)
    answers: list[object] = []
    for outcome in ledger.emit(tables, ops.Emit(events=events)):
        if isinstance(outcome, Duplicate):
            answers.append({"duplicate_of": msgspec.Raw(encode_answer(outcome.of).encode())})
        elif isinstance(outcome, Emitted):
            answers.append(msgspec.Raw(encode_answer(outcome).encode()))
    return _encode(answers).decode(), None


def _refused(code: str, message: str, run_id: str, paths: tuple[str, ...] = ()) -> str:
    record = ErrorRecord(
        kind="refused",
        type=code,
        message=message,
        code=code,
        run_id=run_id,
        args=_encode(paths).decode() if paths else None,
    )
    return _encode(record).decode()


def _publish(
    tables: Tables, run: RunRecord, name: str, value: str
) -> tuple[str | None, str | None]:
    published = msgspec.json.decode(run.published or "{}", type=dict[str, msgspec.Raw])
    published[name] = msgspec.Raw(value.encode())
    encoded = _encode(published)
    if len(encoded) > limits.published_bytes_max:
        size = f"{len(encoded)} bytes; at most {limits.published_bytes_max}"
        detail = f"published state would be {size}"
        return None, _refused("too_much_published", detail, run.run_id)
    move(tables, run, published=encoded.decode())
    return value, None


def _add_to_stream(
    tables: Tables, run: RunRecord, op: ops.RecordSend
) -> tuple[str | None, str | None]:
    if op.name == REPLIES:
        return replying.reply(tables, run.run_id, op.value or ""), None
    items = ((op.name, op.value or "null"),)
    refused = streaming.one_too_many(tables, run.run_id, items)
    if refused is not None:
        return None, _refused(refused.code, refused.detail, run.run_id)
    position = streaming.append(tables, run.run_id, items, op.path, 1)
    return str(position), None


def record_cancel(tables: Tables, op: ops.RecordCancel) -> TurnOutcome:
    run = _settled(tables, op)
    if not isinstance(run, RunRecord):
        return run
    run = _leave(tables, _record(tables, run, op), op.paths)
    step = StepRecord(
        run_id=run.run_id,
        generation=run.generation,
        path=CANCEL_PATH,
        kind="cancel",
        name=run.reason or "",
        state="done",
        seq=tables.next_seq(),
        value=_encode(op.paths).decode(),
        started_at=tables.now,
        recorded_at=tables.now,
    )
    tables.add_step(step)
    return _advanced(tables, run, (completion_of(step),))


def reject_signal(tables: Tables, op: ops.RejectSignal) -> TurnOutcome:
    run = _owned(tables, op)
    if isinstance(run, Fenced):
        return run
    step = tables.step(run.run_id, run.generation, op.path)
    if step is None or step.state != "done":
        return Moved(run.revision, run.pause_requested, run.cancel_requested)
    run = _record(tables, run, op)
    waiting.reject(tables, run, step, op.reason, passed=op.passed)
    tables.put_step(waiting.reopened(step))
    decided = waiting.open_wait(tables, run, op.wait)
    _tell_deadline(tables, run)
    return _advanced(tables, run, () if decided is None else (decided,))


def finish(tables: Tables, op: ops.Finish) -> TurnOutcome:
    run = _settled(tables, op)
    if not isinstance(run, RunRecord):
        return run
    if op.closed:  # what its waits give back must not go to another of its own, which ends here too
        asking.withdraw(tables, run, asking.why_ended(op.status, run.reason))
        tables.delete_watchers(run.run_id)
    run = _record(tables, run, op)
    end_run(tables, run, op.status, output=op.output, error=op.error)
    return Advanced(run.revision, tables.now)


def continue_as(tables: Tables, op: ops.ContinueAs) -> TurnOutcome:
    run = _settled(tables, op)
    if not isinstance(run, RunRecord):
        return run
    asking.withdraw(tables, run, f"the run has continued as {op.workflow!r}")
    if op.closed:  # what its waits give back must not go to another of its own, which ends here too
        leave_waits(tables, run)
    run = _record(tables, run, op)
    leave_waits(tables, run)
    # The generation that ends here stays readable; older ones go, or an endless run would grow for ever.
    tables.delete_steps_before(run.run_id, run.generation)
    told = {"generation": run.generation + 1, "to": op.workflow}
    tell(tables, run, "workflow.run_continued", told)
    run = move(
        tables,
        run,
        generation=run.generation + 1,
        workflow=op.workflow,
        version=op.version,
        input=op.input,
        origin=run.origin or digest(run.workflow, plain(run.input)),
    )
    return _advanced(tables, run)


def park(tables: Tables, op: ops.Park) -> TurnOutcome:
    run = _owned(tables, op)
    if isinstance(run, Fenced):
        return run
    asking.set_aside(tables, run)
    run = move(
        tables,
        run,
        status="paused",
        reason=op.reason,
        revision=run.revision + 1,
        ready_at=None,
        pause_requested=False,
        owner=None,
        fence=0,
    )
    return replace(_advanced(tables, run), parked=True, paused=True)
