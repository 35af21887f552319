"""Waits: open them, decide them, close them. One wait has one winner, stored with the completed step.

A wait that opens first looks at what is already there, in this order: a signal to this path, a signal to this
run, a finished run, the timer; the oldest accepted first. What it finds it takes in the same commit, and the
run never suspends. A wait past its deadline takes only what was accepted at or before it.
"""

import logging
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from perdure.model import keys, ops
from perdure.model.records import (
    Completion,
    Condition,
    ErrorRecord,
    RunRecord,
    SignalRecord,
    StepRecord,
    WaitSpec,
    WatcherRecord,
)
from perdure.model.status import TERMINAL
from perdure.store.handlers.facts import awaken, bury, tell
from perdure.store.tables import Tables

log = logging.getLogger("perdure.store")

_encode = msgspec.json.encode
_decode_spec = msgspec.json.Decoder(WaitSpec).decode


def open_wait(tables: Tables, run: RunRecord, wait: ops.Wait) -> Completion | None:
    """Decide a wait at once, or register its watchers and give None."""
    step = tables.step(run.run_id, run.generation, wait.path) if wait.known else None
    if step is not None and step.state != "open":
        return completion_of(step)
    if step is not None and any(one.path == wait.path for one in tables.watchers(run.run_id)):
        return None
    spec = _spec(tables.now, wait) if step is None else _decode_spec(step.wait or "")
    step = step or StepRecord(
        run_id=run.run_id,
        generation=run.generation,
        path=wait.path,
        kind=wait.kind,
        name=wait.name,
        state="open",
        wait=_encode(spec).decode(),
        started_at=tables.now,
    )
    found = _take(tables, run, wait, spec)
    if found is not None:
        step = replace(step, seq=tables.next_seq(), recorded_at=tables.now, **found)
    if wait.known:
        tables.put_step(step)
    else:
        tables.add_step(step)
    if found is not None:
        return completion_of(step)
    _watch(tables, run, wait, spec)
    return None


def _spec(now: int, wait: ops.Wait) -> WaitSpec:
    """Durations become deadlines here, by the store's clock; the earliest timer is the deadline."""
    deadline_at: int | None = None
    deadline_ix: int | None = None
    for ix, condition in enumerate(wait.on):
        if condition.kind != "timer":
            continue
        due_at = condition.until_at if condition.delay_us is None else now + condition.delay_us
        if due_at is not None and (deadline_at is None or due_at < deadline_at):
            deadline_at, deadline_ix = due_at, ix
    return WaitSpec(wait.on, deadline_at, deadline_ix)


def completion_of(step: StepRecord) -> Completion:
    """What a decided step tells its owner."""
    return Completion(
        step.path,
        step.kind,
        step.state,
        step.seq,
        step.value,
        step.error,
        step.winner,
        step.recorded_at or 0,
        step.attempt,
    )


def _take(tables: Tables, run: RunRecord, wait: ops.Wait, spec: WaitSpec) -> dict[str, Any] | None:
    signals = [ix for ix, one in enumerate(wait.on) if one.kind == "signal"]
    if signals:
        taken = _take_signal(tables, run, wait, spec, signals)
        if taken is not None:
            return taken
    ended = _first_ended(tables, wait, spec)
    if ended is not None:
        return ended
    if spec.deadline_at is not None and spec.deadline_at <= tables.now:
        return {"state": "done", "winner": spec.deadline_ix, "value": "null"}
    return None


def _first_ended(tables: Tables, wait: ops.Wait, spec: WaitSpec) -> dict[str, Any] | None:
    """Of several runs that have ended the one that ended first; a run that never was counts as ended now."""
    found: list[tuple[int, dict[str, Any]]] = []
    for ix, condition in enumerate(wait.on):
        if condition.kind == "run":
            ended = ended_run(tables, condition.target, ix, spec.deadline_at)
            if ended is not None:
                target = tables.run(condition.target)
                at = None if target is None else target.finished_at
                found.append((tables.now if at is None else at, ended))
    return min(found, key=lambda one: one[0])[1] if found else None


def _take_signal(
    tables: Tables, run: RunRecord, wait: ops.Wait, spec: WaitSpec, signals: list[int]
) -> dict[str, Any] | None:
    ix_of = {wait.on[ix].target: ix for ix in reversed(signals)}
    candidates = [
        one
        for one in tables.signals(run.run_id)
        if one.name in ix_of
        and one.path in (None, wait.path)
        and (spec.deadline_at is None or one.received_at <= spec.deadline_at)
    ]
    # Addressed to this very path first; then the oldest accepted.
    for signal in sorted(candidates, key=lambda one: (one.path is None, one.position)):
        tables.delete_signal(signal)
        if _is_expired(tables, run, signal):
            continue
        told = {"signal_id": signal.signal_id, "name": signal.name, "path": wait.path}
        tell_delivered(tables, run, told, signal.payload)
        return {
            "state": "done",
            "winner": ix_of[signal.name],
            "value": signal.payload,
            "signal_id": signal.signal_id,
        }
    return None


def _is_expired(tables: Tables, run: RunRecord, signal: SignalRecord) -> bool:
    if signal.expires_at is None or tables.now <= signal.expires_at:
        return False
    expire(tables, run, signal)
    return True


def expire(tables: Tables, run: RunRecord, signal: SignalRecord) -> None:
    """Say on the ledger that a buffered signal outlived its time. The caller removes the row."""
    told = {"signal_id": signal.signal_id, "name": signal.name}
    tell(tables, run, "signal.expired", told, event_id=signal.signal_id)
    _free_claim(tables, run, signal)


def claim_on(run: RunRecord, name: str, path: str | None) -> tuple[str, str]:
    """Where the claim of a `first` signal on this run is kept."""
    return keys.claim_on(run.run_id, run.generation, name, path)


def _free_claim(tables: Tables, run: RunRecord, signal: SignalRecord) -> None:
    """A signal that never reached the workflow gives its claim back: the next one may have it."""
    for path in {None, signal.path}:
        claim = claim_on(run, signal.name, path)
        held = tables.key(*claim)
        if held is not None and held.answer == signal.signal_id:
            tables.delete_key(*claim)


def tell_delivered(tables: Tables, run: RunRecord, told: dict[str, Any], payload: str) -> None:
    """The payload goes to the ledger as it is, never parsed here."""
    told = {**told, "payload": msgspec.Raw(payload.encode())}
    tell(tables, run, "signal.delivered", told, event_id=told["signal_id"])


def ended_run(
    tables: Tables, run_id: str, ix: int, deadline_at: int | None
) -> dict[str, Any] | None:
    """How a wait for a run ends, if that run has ended (in time) or never was."""
    target = tables.run(run_id)
    if target is None:
        missing = ErrorRecord(
            kind="refused", type="RunNotFound", message=run_id, code="not_found", run_id=run_id
        )
        return {"state": "failed", "winner": ix, "error": _encode(missing).decode()}
    if target.status not in TERMINAL:
        return None
    if deadline_at is not None and (target.finished_at or 0) > deadline_at:
        return None
    if target.status == "completed":
        return {"state": "done", "winner": ix, "value": target.output}
    return {"state": "failed", "winner": ix, "error": _error_of_ended(target)}


def _error_of_ended(run: RunRecord) -> str:
    if run.status == "failed":
        inner = msgspec.json.decode(run.error or "{}", type=ErrorRecord)
        return _encode(replace(inner, kind="run", run_id=run.run_id)).decode()
    kind: Any = run.status  # cancelled or terminated
    ended = ErrorRecord(kind=kind, type="RunCancelled", message=run.reason or "", run_id=run.run_id)
    return _encode(ended).decode()


def _watch(tables: Tables, run: RunRecord, wait: ops.Wait, spec: WaitSpec) -> None:
    """One watcher for each condition but the timer, which is their deadline; alone it is one itself."""
    others = [(ix, one) for ix, one in enumerate(wait.on) if one.kind != "timer"]
    for ix, condition in others or [(spec.deadline_ix or 0, Condition("timer"))]:
        tables.add_watcher(
            WatcherRecord(
                run_id=run.run_id,
                path=wait.path,
                ix=ix,
                generation=run.generation,
                kind=condition.kind,
                target=condition.target,
                opened_at=tables.now,
                deadline_at=spec.deadline_at,
                deadline_ix=spec.deadline_ix,
            )
        )


def resolve(
    tables: Tables,
    run: RunRecord,
    path: str,
    *,
    winner: int | None,
    value: str | None = None,
    state: Any = "done",
    error: str | None = None,
    signal_id: str | None = None,
) -> bool:
    """End an open wait of `run` from outside: winner and value, losers' watchers, the run's move.

    False when there is no such wait: its watchers were left over, which no op does. They go, and whoever
    acts on many waits at once goes on with the others.
    """
    step = tables.step(run.run_id, run.generation, path)
    if step is None or step.state != "open":
        log.error("run %r is watched at %r and does not wait there", run.run_id, path)
        tables.delete_watchers(run.run_id, path)
        return False
    step = replace(
        step,
        state=state,
        seq=tables.next_seq(),
        value=value,
        error=error,
        winner=winner,
        recorded_at=tables.now,
        signal_id=signal_id,
    )
    tables.put_step(step)
    tables.delete_watchers(run.run_id, path)
    awaken(tables, run, completion_of(step))
    return True


def reopened(step: StepRecord) -> StepRecord:
    """A decided wait as it was before: whatever ended it did not count."""
    return replace(
        step, state="open", seq=0, value=None, winner=None, signal_id=None, recorded_at=None
    )


def close(tables: Tables, run: RunRecord, path: str) -> None:
    """A branch left a wait behind (a sibling failed, it was cancelled): nothing may be delivered there.

    If a signal reached the wait in the same moment it was accepted and must not vanish: a dead letter.
    """
    step = tables.step(run.run_id, run.generation, path)
    if step is None or step.state == "abandoned":
        return
    if step.state in ("open", "retrying"):
        tables.put_step(replace(step, state="abandoned", recorded_at=tables.now))
        tables.delete_watchers(run.run_id, path)
        return
    if step.wait is not None:
        reason = "the branch that waited was cancelled in the same moment"
        bury_delivered(tables, run, step, reason, "left")
        tables.put_step(replace(step, state="abandoned"))


def bury_delivered(
    tables: Tables,
    run: RunRecord,
    step: StepRecord,
    reason: str,
    cause: Literal["rejected", "left"],
) -> SignalRecord | None:
    """Dead-letter the signal that a decided wait holds, under its own id; None if no signal won."""
    if step.wait is None or step.winner is None or step.signal_id is None:
        return None
    signal = SignalRecord(
        signal_id=step.signal_id,
        position=0,
        run_id=run.run_id,
        name=_decode_spec(step.wait).on[step.winner].target,
        path=None,
        payload=step.value or "null",
        policy="all",
        on_end="dead_letter",
        received_at=step.recorded_at or tables.now,
    )
    bury(tables, run, signal, reason, cause)
    if cause == "rejected":
        _free_claim(tables, run, replace(signal, path=step.path))
    return signal
