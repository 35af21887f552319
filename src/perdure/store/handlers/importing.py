"""Runs that were made elsewhere: a document becomes a run, with its history, in one op.

Sequence numbers are given anew and keep their order; what refers to them (marks of retries, whose chance is drawn up to
where) is told the new ones. Nobody held such a run here, so one that lives is ready, and replays. What its waits took
before was taken from others' buffers and queues: no item is ever given back here. Its cursors on topics follow from the
events that its waits took, if this is the store that these were in; else the run begins at the end of the ledger here.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from perdure.model import keys, ops
from perdure.model.origins import origins_of, origins_text
from perdure.model.outcomes import Refusal, Started, Wake
from perdure.model.records import KeyRecord, RunRecord, StepRecord
from perdure.model.status import TERMINAL
from perdure.store.handlers.facts import is_limited, tell
from perdure.store.handlers.standing import watch_over
from perdure.store.handlers.taking import after_of, branch_of_wait, decode_spec, see, topic_of
from perdure.store.handlers.turning import watch_retry
from perdure.store.handlers.waiting import won_by
from perdure.store.tables import Tables

_decode_number = msgspec.json.Decoder(int).decode


def import_run(tables: Tables, op: ops.ImportRun) -> Started | Refusal:
    found = _found(tables, op)
    if found is not None:
        return found
    if op.run.pool and op.run.status not in TERMINAL and tables.pool(op.run.pool) is None:
        return Refusal("no_pool", op.run.pool)
    numbers = _Numbers(tables, op.steps)
    run = _new_run(tables, op, numbers)
    tables.add_run(run)
    steps = [_new_step(run, one, numbers, op.forked_from is not None) for one in op.steps]
    for step in steps:
        tables.add_step(step)
    _add_signals(tables, run, op)
    _add_keys(tables, run, op)
    if op.forked_from is not None:
        _see_again(tables, run, steps)
    _tell(tables, run, op)
    if run.status not in TERMINAL:
        _let_live(tables, run, steps)
    return Started(run, True)


def _found(tables: Tables, op: ops.ImportRun) -> Started | Refusal | None:
    run = tables.run(op.run.run_id)
    if run is None:
        return None
    used = tables.key(keys.import_scope(), run.run_id)
    if used is None or used.digest != op.digest:
        return Refusal("conflict", f"run {run.run_id!r} exists and was not made of this history")
    return Started(run, False)


class _Numbers:
    """The places in the history as they were, and as they are here."""

    def __init__(self, tables: Tables, steps: Iterable[StepRecord]) -> None:
        olds = sorted(one.seq for one in steps if one.seq)
        self._new = {old: tables.next_seq() for old in olds}

    def of(self, seq: int) -> int:
        return self._new.get(seq, 0)

    def up_to(self, seq: int) -> int:
        """The last place that is no later than an old one, which need not be there any more."""
        return max((new for old, new in self._new.items() if old <= seq), default=0)


def _new_run(tables: Tables, op: ops.ImportRun, numbers: _Numbers) -> RunRecord:
    run = op.run
    forked = op.forked_from is not None
    goes = run.status not in TERMINAL and run.status != "paused"
    queues = goes and is_limited(tables, run.pool)
    from_at = max(tables.now, run.ready_at or 0) if goes else None
    parent_id = run.parent_run_id
    known = parent_id is not None and tables.run(parent_id) is not None
    origins = tuple(replace(one, seq=numbers.up_to(one.seq)) for one in origins_of(run.forked))
    return replace(
        run,
        status="ready" if goes else run.status,
        created_at=tables.now if forked else run.created_at,
        owner=None,
        fence=0,
        revision=0,
        ready_at=None if queues else from_at,
        line_at=from_at if queues else None,
        # One that has begun goes before those that have not.
        admitted=not queues or bool(op.steps),
        pause_requested=False,
        deadline_at=run.deadline_at if op.deadline_us is None else tables.now + op.deadline_us,
        parent_run_id=parent_id if known else None,
        parent_path=run.parent_path if known else None,
        # After the fact that tells of it, which follows.
        position=run.position if forked else tables.last_position() + tables.lifecycle,
        forked=origins_text(origins),
    )


def _new_step(
    run: RunRecord, step: StepRecord, numbers: _Numbers, keeps_places: bool
) -> StepRecord:
    value, wait = step.value, step.wait
    if step.kind == "retry":
        value = str(numbers.up_to(_decode_number(value or "0")))
    if wait is not None:
        spec = decode_spec(wait)
        after = spec.after if keeps_places else ()
        wait = msgspec.json.encode(replace(spec, item=None, after=after)).decode()
    return replace(
        step,
        run_id=run.run_id,
        generation=run.generation,
        seq=numbers.of(step.seq),
        value=value,
        wait=wait,
        taken_id=_taken_id(run, step),
        superseded=0,
    )


def _taken_id(run: RunRecord, step: StepRecord) -> str | None:
    """By what a wait knows what ended it. An event is the same here, if it is here; an item is not its to give back.

    A signal has an id of its own in this run, for replies and letters: the one it had is another run's, maybe in this
    very store, with facts, a claim or a letter under it.
    """
    won = won_by(step)
    if won is None or step.taken_id is None:
        return None
    if won.kind == "signal":
        return keys.digest(run.run_id, step.taken_id)
    return step.taken_id if won.kind == "topic" else None


def _add_signals(tables: Tables, run: RunRecord, op: ops.ImportRun) -> None:
    for signal in op.signals:
        tables.add_signal(replace(signal, run_id=run.run_id, position=tables.next_seq()))


def _add_keys(tables: Tables, run: RunRecord, op: ops.ImportRun) -> None:
    claims = keys.claim_scope(run.run_id)
    made_of = (keys.import_scope(), run.run_id, op.digest, run.run_id)
    for scope, key, digest, answer in (made_of, *((claims, key, "", id) for key, id in op.claims)):
        tables.add_key(
            KeyRecord(
                scope=scope,
                key=key,
                digest=digest,
                answer=answer,
                run_id=run.run_id,
                created_at=tables.now,
            )
        )


def _see_again(tables: Tables, run: RunRecord, steps: Iterable[StepRecord]) -> None:
    """What the waits of a fork have seen, in the order in which they saw it."""
    for step in sorted(steps, key=lambda one: one.seq):
        if step.wait is None or not step.seq:
            continue
        spec, branch = decode_spec(step.wait), branch_of_wait(step)
        for ix, one in enumerate(spec.on):
            if one.kind == "topic" and one.since == "now" and spec.after:
                # Where it began to count, if nothing was seen before.
                began = after_of(tables, run, branch, replace(one, since="ever"))
                see(tables, run.run_id, branch, topic_of(one), max(began, spec.after[ix]))
        won = won_by(step)
        if won is None or won.kind != "topic" or step.taken_id is None:
            continue
        event = tables.event(step.taken_id)
        if event is not None:
            see(tables, run.run_id, branch, topic_of(won), event.position)


def _tell(tables: Tables, run: RunRecord, op: ops.ImportRun) -> None:
    if op.forked_from is None:
        facts = {"version": run.version, "status": run.status, "generation": run.generation}
        tell(tables, run, "workflow.run_imported", facts)
        return
    fork = {"forked_from": op.forked_from, "from_path": op.from_path}
    tell(tables, run, "workflow.run_started", {"version": run.version, **fork})


def _let_live(tables: Tables, run: RunRecord, steps: Iterable[StepRecord]) -> None:
    if not run.cancel_requested:
        watch_over(tables, run, tables.last_position())
    if run.status == "paused":
        return
    for step in steps:
        if step.state == "retrying":
            watch_retry(tables, run, step)
    if run.line_at is not None:
        tables.wakes.append(Wake("line", run.pool, at=run.line_at, made=run.workflow))
    else:
        tables.wakes.append(Wake("ready", run.run_id, at=run.ready_at or 0, made=run.workflow))
