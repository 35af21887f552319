"""What a wait that opens finds already there, and how it takes it: in the same commit, so the run never suspends.

In this order: a signal to this path, a signal to this run, a finished run, an item of a queue, an event of a topic,
the timer; the oldest accepted first. A wait past its deadline takes only what was accepted at or before it. Each taker
gives the fields of the completed step, or None.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.model import keys, ops
from perdure.model.records import (
    Condition,
    CursorRecord,
    ErrorRecord,
    EventRecord,
    ItemRecord,
    RunRecord,
    SignalRecord,
    StepRecord,
    WaitSpec,
    branch_around,
    branch_of,
)
from perdure.model.status import TERMINAL
from perdure.store.handlers.facts import tell
from perdure.store.tables import Tables

_encode = msgspec.json.encode
decode_spec = msgspec.json.Decoder(WaitSpec).decode


def take(tables: Tables, run: RunRecord, wait: ops.Wait, spec: WaitSpec) -> dict[str, Any] | None:
    """What ends the wait now."""
    kinds = {one.kind for one in wait.on}
    found = None
    if "signal" in kinds:
        found = _take_signal(tables, run, wait, spec)
    if found is None and "run" in kinds:
        found = _first_ended(tables, wait, spec)
    if found is None and "queue" in kinds:
        found = _take_item(tables, wait, spec)
    if found is None and "topic" in kinds:
        found = _take_event(tables, run, wait, spec)
    if found is None and is_late(tables, spec):
        found = {"state": "done", "winner": spec.deadline_ix, "value": "null"}
    return found


def is_late(tables: Tables, spec: WaitSpec) -> bool:
    """Whether time alone ends the wait. Where a filter has a say, the matcher tells when."""
    if spec.deadline_at is None or spec.deadline_at > tables.now:
        return False
    return not is_held(spec)


def is_held(spec: WaitSpec) -> bool:
    """Whether events must pass a filter outside the store before the deadline counts."""
    for one in spec.on:
        if one.filter:
            return True
    return False


# --- signals ---


def _take_signal(
    tables: Tables, run: RunRecord, wait: ops.Wait, spec: WaitSpec
) -> dict[str, Any] | None:
    buffered = tables.signals(run.run_id)
    if not buffered:
        return None
    ix_of: dict[str, int] = {}
    for ix, one in enumerate(wait.on):
        if one.kind == "signal":
            ix_of.setdefault(one.target, ix)
    candidates = [
        one
        for one in buffered
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
            "taken_id": signal.signal_id,
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
    free_claim(tables, run, signal.name, signal.signal_id, signal.path)


def claim_on(run: RunRecord, name: str, path: str | None) -> tuple[str, str]:
    """Where the claim of a `first` signal on this run is kept."""
    return keys.claim_on(run.run_id, run.generation, name, path)


def free_claim(tables: Tables, run: RunRecord, name: str, signal_id: str, path: str | None) -> None:
    """A signal that did not count gives its claim back: the next one may have it."""
    for place in {None, path}:
        claim = claim_on(run, name, place)
        held = tables.key(*claim)
        if held is not None and held.answer == signal_id:
            tables.delete_key(*claim)


def tell_delivered(tables: Tables, run: RunRecord, told: dict[str, Any], payload: str) -> None:
    """The payload goes to the ledger as it is, never parsed here."""
    told = {**told, "payload": msgspec.Raw(payload.encode())}
    tell(tables, run, "signal.delivered", told, event_id=told["signal_id"])


# --- runs that have ended ---


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


# --- queues ---


def _take_item(tables: Tables, wait: ops.Wait, spec: WaitSpec) -> dict[str, Any] | None:
    """Of several queues, the item that was put first."""
    found = []
    for ix, condition in enumerate(wait.on):
        if condition.kind == "queue":
            item = tables.first_item(condition.target, spec.deadline_at)
            if item is not None:
                # Places of two queues are in no order where several processes put: only times are.
                found.append((item.put_at, item.position, ix, item))
    if not found:
        return None
    *_, ix, item = min(found)
    tables.delete_item(item)
    return {
        "state": "done",
        "winner": ix,
        "value": item.payload,
        "taken_id": item.item_id,
        "wait": with_item(spec, item),
    }


def with_item(spec: WaitSpec, item: ItemRecord) -> str:
    """What the step of a wait stores that an item has ended."""
    return _encode(replace(spec, item=(item.position, item.put_at))).decode()


# --- topics ---


def _take_event(
    tables: Tables, run: RunRecord, wait: ops.Wait, spec: WaitSpec
) -> dict[str, Any] | None:
    """Of several topics, the event that was recorded first. What a filter must judge is left to the matcher."""
    found: list[tuple[int, int, EventRecord]] = []
    for ix, condition in enumerate(wait.on):
        if condition.kind == "topic" and not condition.filter:
            event = tables.next_event(
                condition.target,
                condition.entity,
                spec.after[ix],
                recorded_by=spec.deadline_at,
                newest=condition.deliver == "latest",
            )
            if event is not None:
                found.append((event.position, ix, event))
    if not found:
        return None
    _, ix, event = min(found, key=lambda one: one[:2])
    see(tables, run.run_id, branch_in(spec, wait.path), topic_of(wait.on[ix]), event.position)
    return {"state": "done", "winner": ix, "value": event.payload, "taken_id": event.event_id}


def branch_in(spec: WaitSpec, path: str) -> str:
    """The branch whose cursors a wait moves."""
    return branch_of(path) if spec.branch is None else spec.branch


def branch_of_wait(step: StepRecord) -> str:
    """Likewise, of a wait on record: nearly always the path's own branch, and then nothing need be parsed."""
    spec = step.wait or ""
    if '"branch"' not in spec:
        return branch_of(step.path)
    return branch_in(decode_spec(spec), step.path)


def topic_of(condition: Condition) -> tuple[str, str, str]:
    """What a cursor is about: topic, entity, filter."""
    return condition.target, condition.entity, condition.filter or condition.code


def see(
    tables: Tables, run_id: str, branch: str, topic: tuple[str, str, str], position: int
) -> None:
    """The branch has seen the topic up to this position: its next wait begins after it."""
    name, entity, filter = topic
    tables.put_topic_cursor(
        CursorRecord(
            run_id=run_id,
            branch=branch,
            topic=name,
            entity=entity,
            filter=filter,
            position=position,
        )
    )


def after_of(tables: Tables, run: RunRecord, branch: str, topic: Condition) -> int:
    """From where on events count for this wait: the branch's own cursor, its parent's, or where it is to begin."""
    seen = _seen(tables, run.run_id, branch, topic_of(topic))
    if seen is not None:
        return seen
    if topic.since == "ever":
        return 0
    if topic.since == "start":
        return run.position
    # Kept at once: in a loop of waits that run out of time, nothing that comes between two of them is missed.
    now = tables.last_position()
    see(tables, run.run_id, branch, topic_of(topic), now)
    return now


def _seen(tables: Tables, run_id: str, branch: str, topic: tuple[str, str, str]) -> int | None:
    while True:
        seen = tables.topic_cursor(run_id, branch, *topic)
        if seen is not None or not branch:
            return seen
        branch = branch_around(branch)
