"""Decisions: of several people who answer an approval one decides, and the wait ends with it.

Checked in this order: the key, the link, that the approval is open and its run is not paused, that it has not expired,
who answers, and what. What is refused changes nothing. Why an approval is closed is on record, and looked up by whoever
has to say so: here it would be read for nothing in most cases.
"""

import msgspec

from perdure.model import ops
from perdure.model.approvals import (
    Asks,
    Verdict,
    approval_id,
    has_expired,
    may_answer,
    misfits,
)
from perdure.model.keys import decide_scope, digest
from perdure.model.outcomes import (
    Decided,
    DecideOutcome,
    Duplicate,
    NotFound,
    Refusal,
    decode_answer,
    encode_answer,
)
from perdure.model.records import KeyRecord, RunRecord, WatcherRecord
from perdure.model.sameness import plain
from perdure.model.status import TERMINAL
from perdure.store.handlers import asking, ending, taking
from perdure.store.handlers.facts import tell
from perdure.store.tables import Tables

_encode = msgspec.json.encode


def decide(tables: Tables, op: ops.Decide) -> DecideOutcome:
    if op.key is not None:
        used = tables.key(decide_scope(op.run_id, op.approval_id), op.key)
        if used is not None:
            return _used_before(used, op)
    run = tables.run(op.run_id)
    if run is None:
        return NotFound(op.run_id)
    if run.status not in TERMINAL:
        run = ending.catch_up(tables, run)
    found = _find(tables, run, op.approval_id)
    refused = _refusal(tables, run, found, op)
    if refused is not None or found is None:
        return refused or _closed(op)
    outcome = _close(tables, run, *found, op)
    if op.key is not None:
        tables.add_key(_key_record(tables, op, outcome))
    return outcome


def _find(tables: Tables, run: RunRecord, id: str) -> tuple[WatcherRecord, Asks] | None:
    for watcher, asks in asking.asked(tables, run):
        if asks.id == id:
            return watcher, asks
    return None


def _refusal(
    tables: Tables, run: RunRecord, found: tuple[WatcherRecord, Asks] | None, op: ops.Decide
) -> Refusal | None:
    if op.link_expires_at is not None and tables.now > op.link_expires_at:
        return Refusal("link_expired", str(op.link_expires_at))
    if found is None:
        return _closed(op)
    watcher, asks = found
    if run.status == "paused":
        return Refusal("paused", run.reason or "")
    if _is_late(tables, run, watcher):
        return _closed(op)
    if has_expired(asks, tables.now):
        return Refusal("approval_expired", str(asks.expires_at))
    if op.link_id is None and not may_answer(asks, op.people):
        return Refusal("not_allowed", asks.name, asks.who)
    wrong = misfits(asks, op.choice, op.payload, op.schema)
    if wrong:
        return Refusal("invalid_payload", f"the answer to {asks.name!r}", tuple(wrong))
    return None


def _closed(op: ops.Decide) -> Refusal:
    return Refusal("approval_closed", approval_id(op.approval_id, op.run_id))


def _is_late(tables: Tables, run: RunRecord, watcher: WatcherRecord) -> bool:
    """Whether the deadline of the wait has passed, also if nobody has acted on it yet."""
    step = tables.step(run.run_id, run.generation, watcher.path)
    spec = None if step is None else taking.decode_spec(step.wait or "")
    return spec is not None and spec.deadline_at is not None and tables.now > spec.deadline_at


def _close(
    tables: Tables, run: RunRecord, watcher: WatcherRecord, asks: Asks, op: ops.Decide
) -> Decided:
    payload = msgspec.Raw((op.payload or "null").encode())
    verdict = Verdict(op.choice, payload, op.by, op.comment, tables.now, op.link_id)
    winner, value = asking.condition_ix(watcher), _encode(verdict).decode()
    if not ending.resolve(tables, run, watcher.path, "approval", winner=winner, value=value):
        raise AssertionError(f"nobody waits at {watcher.path!r} of run {run.run_id!r}")
    told = {
        **asking.about(run, watcher.path, asks),
        "choice": op.choice,
        "payload": payload,
        "by": op.by,
        "comment": op.comment,
        "via": "call" if op.link_id is None else "link",
        "link_id": op.link_id,
    }
    tell(tables, run, "hitl.decided", told)
    return Decided(approval_id(asks.id, run.run_id), run.run_id, watcher.path)


# --- keys ---


def _used_before(used: KeyRecord, op: ops.Decide) -> DecideOutcome:
    # Once it was the fingerprint of the very text.
    if used.digest not in (_digest(op, op.payload), _digest(op, _plain(op))):
        return Refusal("conflict", f"key {op.key!r} was used for another decision")
    return Duplicate(decode_answer(used.answer))


def _digest(op: ops.Decide, payload: str | None) -> str:
    return digest(_encode((op.choice, payload, op.by)).decode())


def _plain(op: ops.Decide) -> str | None:
    return None if op.payload is None else plain(op.payload)


def _key_record(tables: Tables, op: ops.Decide, outcome: Decided) -> KeyRecord:
    return KeyRecord(
        scope=decide_scope(op.run_id, op.approval_id),
        key=op.key or "",
        digest=_digest(op, _plain(op)),
        answer=encode_answer(outcome),
        run_id=op.run_id,
        created_at=tables.now,
    )
