"""Which rows a batch will look at, judged from its ops before any of them is applied.

Only an optimisation: a row that is not foreseen here is loaded when a handler asks for it. So this
file may know roughly what the handlers know (which ops touch waits) and may miss something
without harm.
"""

from collections.abc import Callable, Container, Iterable
from typing import Any

import msgspec

from perdure.model import keys, ops
from perdure.model.streams import REPLIES


class _Answered(msgspec.Struct, gc=False):
    """Of a reply only which signal it answers: the rest is not read."""

    signal_id: str


_decode_answered = msgspec.json.Decoder(_Answered).decode


class Wanted:
    """Keys of rows, by the part they play (see the query `prefetch`)."""

    __slots__ = ("inside", "keys", "parents", "runs", "seeing", "streams", "targets", "waits")

    def __init__(self) -> None:
        self.runs: set[str] = set()
        self.inside: set[str] = set()
        self.targets: set[str] = set()
        self.parents: set[str] = set()
        self.waits: set[tuple[str, str]] = set()
        self.keys: set[tuple[str, str]] = set()
        self.seeing: set[str] = set()
        self.streams: set[str] = set()

    def only_runs(self) -> bool:
        return not (
            self.inside or self.targets or self.parents or self.waits or self.keys or self.seeing
        )


def wanted(batch: Iterable[ops.Op[Any]], whole: Container[str] = ()) -> Wanted:
    """What the ops of a batch will ask for. Of the runs in `whole` nothing is missing."""
    want = Wanted()
    for op in batch:
        kind = type(op)
        if kind is ops.Finish and op.run_id in whole and not op.closed:  # type: ignore[attr-defined]
            continue  # as most runs end; the rest is sorted out from the sets
        look = _looks.get(kind)
        if look is not None:
            look(want, op)
    return want


def _start_run(want: Wanted, op: ops.StartRun) -> None:
    if not op.fresh:
        want.runs.add(op.run_id)
    if op.parent_run_id is not None:
        want.runs.add(op.parent_run_id)
    if op.key is not None:
        want.keys.add((keys.start_scope(op.workflow), op.key))


def _signal_with_start(want: Wanted, op: ops.SignalWithStart) -> None:
    _start_run(want, op.start)
    _send_signal(want, op.signal)


def _import_run(want: Wanted, op: ops.ImportRun) -> None:
    want.runs.add(op.run.run_id)
    if op.run.parent_run_id is not None:
        want.runs.add(op.run.parent_run_id)


def _inside(want: Wanted, *run_ids: str) -> None:
    want.runs.update(run_ids)
    want.inside.update(run_ids)


def _run_only(want: Wanted, op: Any) -> None:
    want.runs.add(op.run_id)


def _turn(want: Wanted, op: ops.TurnOp) -> None:
    run_id = op.run_id
    want.runs.add(run_id)
    for done in op.steps:
        if done.state == "retrying":
            want.inside.add(run_id)
    if op.closed:
        want.inside.add(run_id)
        want.waits.update((run_id, path) for path in op.closed)


def _suspend(want: Wanted, op: ops.Suspend) -> None:
    _turn(want, op)
    want.inside.add(op.run_id)
    for wait in op.waits:
        if wait.known:
            want.waits.add((op.run_id, wait.path))
        for condition in wait.on:
            if condition.kind == "run":
                want.runs.add(condition.target)
            elif condition.kind == "topic":
                want.seeing.add(op.run_id)


def _record_send(want: Wanted, op: ops.RecordSend) -> None:
    _turn(want, op)
    if op.kind == "publish" and op.name == REPLIES:
        answered = _decode_answered((op.value or "").encode()).signal_id
        want.keys.add((keys.reply_scope(op.run_id), answered))
    elif op.kind == "publish":
        want.streams.add(op.run_id)
    if op.send is not None:
        _looks[type(op.send)](want, op.send)


def _publish(want: Wanted, op: ops.Publish) -> None:
    want.runs.add(op.run_id)
    want.streams.add(op.run_id)


def _record_cancel(want: Wanted, op: ops.RecordCancel) -> None:
    _turn(want, op)
    want.inside.add(op.run_id)
    want.waits.update((op.run_id, path) for path in op.paths)


def _reject_signal(want: Wanted, op: ops.RejectSignal) -> None:
    _turn(want, op)
    want.inside.add(op.run_id)
    want.waits.add((op.run_id, op.path))


def _renew(want: Wanted, op: ops.TurnOp) -> None:
    _turn(want, op)
    want.inside.add(op.run_id)


def _end(want: Wanted, op: ops.TurnOp) -> None:
    _renew(want, op)
    want.targets.add(op.run_id)


def _steer(want: Wanted, op: ops.Cancel | ops.Terminate) -> None:
    want.runs.add(op.run_id)
    want.inside.add(op.run_id)
    want.parents.add(op.run_id)
    if isinstance(op, ops.Terminate):
        want.targets.add(op.run_id)


def _send_signal(want: Wanted, op: ops.SendSignal) -> None:
    want.runs.add(op.run_id)
    want.inside.add(op.run_id)
    if op.key is not None:
        want.keys.add((keys.signal_scope(op.run_id, op.name), op.key))
    if op.policy in ("first", None):
        # Nearly every run is in its first generation; a later one looks its claim up alone.
        want.keys.add(keys.claim_on(op.run_id, 0, op.name, op.path))


def _decide(want: Wanted, op: ops.Decide) -> None:
    _inside(want, op.run_id)
    if op.key is not None:
        want.keys.add((keys.decide_scope(op.run_id, op.approval_id), op.key))


def _emit(want: Wanted, op: ops.Emit) -> None:
    for new in op.events:
        if new.key is not None:
            want.keys.add((keys.emit_scope(new.type), new.key))


def _put(want: Wanted, op: ops.Put) -> None:
    if op.key is not None:
        want.keys.add((keys.put_scope(op.queue), op.key))


def _effects(want: Wanted, op: ops.AdvanceCursor | ops.CommitEffects) -> None:
    for effect in op.effects:
        _looks[type(effect.op)](want, effect.op)
    scope = keys.consumer_scope(op.name if isinstance(op, ops.AdvanceCursor) else op.consumer)
    want.keys.update((scope, key) for key in op.finished)


def _apply_outbox(want: Wanted, op: ops.ApplyOutbox) -> None:
    if op.send is not None:
        _looks[type(op.send)](want, op.send)


# Ops that are missing here ask an index first and prefetch from its answer, or touch no run.
_looks: dict[type[ops.Op[Any]], Callable[[Wanted, Any], None]] = {
    ops.StartRun: _start_run,
    ops.SignalWithStart: _signal_with_start,
    ops.ImportRun: _import_run,
    ops.Recover: lambda want, op: _inside(want, *op.suspects),
    ops.Mend: lambda want, op: _inside(want, *op.run_ids),
    ops.Release: _run_only,
    ops.RecordStep: _turn,
    ops.Suspend: _suspend,
    ops.RecordSend: _record_send,
    ops.Publish: _publish,
    ops.RecordCancel: _record_cancel,
    ops.RejectSignal: _reject_signal,
    ops.Finish: _end,
    ops.ContinueAs: _renew,
    ops.Park: _renew,
    ops.Cancel: _steer,
    ops.Terminate: _steer,
    ops.Pause: lambda want, op: _inside(want, op.run_id),
    ops.Resume: _run_only,
    ops.Retry: _run_only,
    ops.SendSignal: _send_signal,
    ops.Decide: _decide,
    ops.Emit: _emit,
    ops.ResolveWait: lambda want, op: _inside(want, op.run_id),
    ops.Put: _put,
    ops.ApplyOutbox: _apply_outbox,
    ops.AdvanceCursor: _effects,
    ops.CommitEffects: _effects,
    ops.TriggerSchedule: _run_only,
}
