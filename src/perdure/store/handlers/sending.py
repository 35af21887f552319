"""Signals: deliver to the wait that is open, else buffer by policy.

Checked in this order: the key, that the run exists, that it lives, then name, policy, payload and addressing. A
signal to a run that waits ends the wait in the same commit and leaves no buffer row.
"""

import functools
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.model import limits, ops
from perdure.model.keys import signal_scope
from perdure.model.outcomes import (
    Buffered,
    Delivered,
    Duplicate,
    Finished,
    NotFound,
    Queued,
    Refusal,
    SendOutcome,
    Wake,
    decode_answer,
    encode_answer,
)
from perdure.model.records import (
    KeyRecord,
    RunRecord,
    SignalEntry,
    SignalRecord,
    StepRecord,
    WatcherRecord,
    WorkflowRecord,
)
from perdure.model.sameness import completed, is_same
from perdure.model.schema import Beyond, beyond, check_schema, schema_digest
from perdure.model.status import TERMINAL
from perdure.store.handlers import ending, queues, taking
from perdure.store.handlers.catalogue import unchecked
from perdure.store.handlers.facts import tell
from perdure.store.tables import Tables


def send_signal(
    tables: Tables, op: ops.SendSignal, *, run_id: str | None = None, letter_id: str | None = None
) -> SendOutcome:
    """Apply a send. `run_id` overrides the op's, for a start that found its run under a key.

    `letter_id` is the dead letter that is sent again: a claim that it holds is no hindrance to it.
    """
    run_id = op.run_id if run_id is None else run_id
    if op.key is not None:
        used = tables.key(signal_scope(run_id, op.name), op.key)
        if used is not None:
            return _used_before(tables, used, op)
    run = tables.run(run_id)
    if run is None:
        return NotFound(run_id)
    if run.status in TERMINAL:
        return Finished(run_id, run.status)
    declared = _declared(tables, run, op)
    if isinstance(declared, Refusal):
        return declared
    if op.by_name and op.schema is None and declared.schema is not None:
        # Nobody with a codec has seen it: kept as one would have written it.
        op = replace(op, payload=completed(declared.schema, op.payload))
    run = ending.catch_up(tables, run)
    if run.status in TERMINAL:  # one that has not begun ends by an event that cancels it
        return Finished(run_id, run.status)
    closed = None if declared.path is None else _closed(tables, run, op.name, declared)
    if closed is not None:
        return closed
    outcome = _deliver_or_buffer(tables, run, op, declared, letter_id)
    if op.key is not None and isinstance(outcome, Delivered | Buffered):
        tables.add_key(_key_record(tables, run, op, outcome))
    return outcome


def _closed(tables: Tables, run: RunRecord, name: str, declared: SignalEntry) -> Refusal | None:
    """Why the one place of a play that takes this signal takes it no more."""
    place = tables.step(run.run_id, run.generation, declared.path or "")
    if place is not None and place.state == "abandoned":
        return Refusal("closed", "the branch that waited for it was left")
    if place is not None and place.taken_id is not None:
        return Refusal("closed", "it was received")
    if place is not None and (place.state != "open" or _is_late(tables, place)):
        return Refusal("closed", "it timed out")
    for path, leads_on in declared.gates:
        gate = tables.step(run.run_id, run.generation, path)
        if gate is not None and gate.state == "done" and gate.value != leads_on:
            return Refusal("closed", f"it was skipped at {path!r}")
    return None


def _is_late(tables: Tables, place: StepRecord) -> bool:
    """Whether the time of an open wait is over, though nobody has acted on that yet: the run may be paused."""
    deadline_at = taking.decode_spec(place.wait or "").deadline_at
    return deadline_at is not None and deadline_at < tables.now


def _used_before(tables: Tables, used: KeyRecord, op: ops.SendSignal) -> SendOutcome:
    # The payload is kept whole as the digest: mostly it is the same byte for byte, and costs no hashing.
    if used.digest != op.payload and not is_same(
        used.digest, op.payload, _schema_of(tables, used, op)
    ):
        return Refusal("conflict", f"key {op.key!r} was used for {op.name!r} with another payload")
    return Duplicate(decode_answer(used.answer))


def _schema_of(tables: Tables, used: KeyRecord, op: ops.SendSignal) -> dict[str, Any] | None:
    """What the run's workflow declares of the signal."""
    run = tables.run(used.run_id or op.run_id)
    workflow = None if run is None else tables.workflow(run.workflow, run.version)
    entry = None if workflow is None else signal_entries(workflow.signals).get(op.name)
    return None if entry is None else entry.schema


def _key_record(
    tables: Tables, run: RunRecord, op: ops.SendSignal, outcome: Delivered | Buffered
) -> KeyRecord:
    return KeyRecord(
        scope=signal_scope(run.run_id, op.name),
        key=op.key or "",
        digest=op.payload,
        answer=encode_answer(outcome),
        run_id=run.run_id,
        created_at=tables.now,
    )


def refused_when_new(tables: Tables, run: RunRecord, op: ops.SendSignal) -> Refusal | None:
    """Why a run that is only about to be made could not take this signal."""
    declared = _declared(tables, run, op)
    if isinstance(declared, Refusal):
        return declared
    return None if op.buffer else _not_waiting(run, op)


def _declared(tables: Tables, run: RunRecord, op: ops.SendSignal) -> SignalEntry | Refusal:
    """Type, policy, ttl and on_end as the workflow declares them; the sender's own where it says nothing."""
    workflow = tables.workflow(run.workflow, run.version)
    entries = {} if workflow is None else signal_entries(workflow.signals)
    entry = entries.get(op.name)
    if entry is None and workflow is not None and workflow.strict_signals:
        return Refusal("unknown_signal", op.name, tuple(sorted(entries)))
    if op.errors:
        return _invalid(op, op.errors)
    if entry is None:
        return SignalEntry(None, op.policy or "latest", op.ttl_us, op.on_end)
    if op.policy is not None and op.policy != entry.buffer:
        return Refusal(
            "conflict",
            f"signal {op.name!r} is buffered as {entry.buffer!r} by workflow {run.workflow!r}, not {op.policy!r}",
        )
    if op.path is not None and entry.path not in (None, op.path):
        stands = f"stands at {entry.path!r} in play {run.workflow!r}, not at {op.path!r}"
        return Refusal("conflict", f"signal {op.name!r} {stands}")
    return _misfit(workflow, entry, op) or entry


def _misfit(
    workflow: WorkflowRecord | None, entry: SignalEntry, op: ops.SendSignal
) -> Refusal | None:
    """Why the payload does not fit the declared type, whatever the sender takes the type to be.

    What a workflow was only seen to wait for counts for mere names: a sender with a type of its own may mean
    another wait, and the wait has the last word.
    """
    if workflow is None or entry.schema is None or _is_checked(workflow, op):
        return None
    if op.policy is not None and not workflow.strict_signals:
        return None
    errors = check_schema(entry.schema, op.payload, strict=op.by_name)
    if errors:
        return _invalid(op, tuple(errors))
    return unchecked(_what(op), _beyond(workflow.signals)[op.name]) if op.by_name else None


def _is_checked(workflow: WorkflowRecord, op: ops.SendSignal) -> bool:
    return op.schema is not None and op.schema == _schema_digests(workflow.signals).get(op.name)


def _invalid(op: ops.SendSignal, errors: tuple[str, ...]) -> Refusal:
    return Refusal("invalid_payload", _what(op), errors)


def _what(op: ops.SendSignal) -> str:
    return f"the payload of signal {op.name!r}"


@functools.lru_cache(maxsize=1024)
def signal_entries(text: str) -> dict[str, SignalEntry]:
    """The signals of a catalogue line, parsed once for each text."""
    return msgspec.json.decode(text, type=dict[str, SignalEntry])


@functools.lru_cache(maxsize=1024)
def _schema_digests(text: str) -> dict[str, str]:
    """The fingerprints of their schemas, likewise."""
    entries = signal_entries(text)
    return {name: schema_digest(one.schema) for name, one in entries.items() if one.schema}


@functools.lru_cache(maxsize=1024)
def _beyond(text: str) -> dict[str, Beyond]:
    """What of their schemas only the sender can check, likewise."""
    entries = signal_entries(text)
    return {name: beyond(one.schema or {}) for name, one in entries.items()}


def _deliver_or_buffer(
    tables: Tables,
    run: RunRecord,
    op: ops.SendSignal,
    declared: SignalEntry,
    letter_id: str | None,
) -> SendOutcome:
    open_waits = _open_waits(tables, run, op)
    if len(open_waits) > 1:
        paths = tuple(sorted(watcher.path for watcher in open_waits))
        return Refusal("ambiguous", f"{op.name!r} is awaited at {len(paths)} places", paths)
    held = None
    if declared.buffer == "first":
        held = tables.key(*taking.claim_on(run, op.name, op.path))
    if held is not None and held.answer != letter_id:
        return Refusal("taken", f"{op.name!r} was already answered")
    if not open_waits and not op.buffer:
        return _not_waiting(run, op)
    outcome: Delivered | Buffered | Refusal
    if open_waits:
        outcome = _deliver(tables, run, op, open_waits[0])
    else:
        outcome = _buffer(tables, run, op, declared)
    if declared.buffer == "first" and not isinstance(outcome, Refusal):
        scope, key = taking.claim_on(run, op.name, op.path)
        if held is not None:
            tables.delete_key(scope, key)
        tables.add_key(
            KeyRecord(
                scope=scope,
                key=key,
                digest="",
                answer=op.signal_id,
                run_id=run.run_id,
                created_at=tables.now,
            )
        )
    return outcome


def _open_waits(tables: Tables, run: RunRecord, op: ops.SendSignal) -> list[WatcherRecord]:
    """One watcher for each path that this signal could end now; a wait past its deadline is not one."""
    by_path: dict[str, WatcherRecord] = {}
    for watcher in tables.watchers(run.run_id):
        if (
            watcher.kind == "signal"
            and watcher.target == op.name
            and (op.path is None or op.path == watcher.path)
            and (watcher.deadline_at is None or tables.now <= watcher.deadline_at)
        ):
            known = by_path.get(watcher.path)
            if known is None or watcher.ix < known.ix:  # named twice: its first mention wins
                by_path[watcher.path] = watcher
    return list(by_path.values())


def _not_waiting(run: RunRecord, op: ops.SendSignal) -> Refusal:
    return Refusal("not_waiting", f"run {run.run_id!r} does not wait for {op.name!r} now")


def _deliver(
    tables: Tables, run: RunRecord, op: ops.SendSignal, watcher: WatcherRecord
) -> Delivered:
    if not ending.resolve(
        tables,
        run,
        watcher.path,
        "signal",
        winner=watcher.ix,
        value=op.payload,
        taken_id=op.signal_id,
    ):
        raise AssertionError(f"nobody waits at {watcher.path!r} of run {run.run_id!r}")
    told = {"signal_id": op.signal_id, "name": op.name, "path": watcher.path}
    taking.tell_delivered(tables, run, told, op.payload)
    return Delivered(run.run_id, watcher.path, op.signal_id)


def _buffer(
    tables: Tables, run: RunRecord, op: ops.SendSignal, declared: SignalEntry
) -> Buffered | Refusal:
    buffered = tables.signals(run.run_id)
    replaced = None
    same_slot = [
        one
        for one in buffered
        if declared.buffer == "latest" and one.name == op.name and one.path == op.path
    ]
    if not same_slot and len(buffered) >= limits.buffered_per_run_max:
        return Refusal(
            "full", f"{len(buffered)} signals are buffered for run {run.run_id!r} already"
        )
    size = sum(len(one.payload) for one in buffered) - sum(len(one.payload) for one in same_slot)
    if size + len(op.payload) > limits.buffered_chars_per_run_max:
        return Refusal("full", f"the buffer of run {run.run_id!r} holds {size} characters already")
    for old in same_slot:
        replaced = old.signal_id
        tables.delete_signal(old)
        tell(
            tables,
            run,
            "signal.replaced",
            {"signal_id": old.signal_id, "name": op.name, "by": op.signal_id},
            event_id=old.signal_id,
        )
    tables.add_signal(
        SignalRecord(
            signal_id=op.signal_id,
            position=tables.next_seq(),
            run_id=run.run_id,
            name=op.name,
            path=op.path,
            payload=op.payload,
            policy=declared.buffer,
            on_end=declared.on_end,
            received_at=tables.now,
            expires_at=None if declared.ttl_us is None else tables.now + declared.ttl_us,
        )
    )
    if declared.ttl_us is not None:
        tables.wakes.append(Wake("deadline", at=tables.now + declared.ttl_us))
    return Buffered(op.signal_id, replaced)


def resend_dead_letter(tables: Tables, op: ops.ResendDeadLetter) -> SendOutcome | Queued:
    letter = tables.dead_letter(op.dead_letter_id)
    if letter is None:
        return Refusal("no_dead_letter", f"no dead letter {op.dead_letter_id!r}")
    if letter.kind == "item" and op.run_id is not None:
        problem = f"{op.dead_letter_id!r} is an item of queue {letter.name!r}"
        return Refusal("conflict", f"{problem}: it goes back there, not to a run")
    if letter.kind == "item":
        tables.delete_dead_letter(op.dead_letter_id)
        return queues.put_again(tables, letter)
    run = tables.run(op.run_id or letter.run_id)
    send = ops.SendSignal(
        signal_id=op.signal_id,
        run_id=op.run_id or letter.run_id,
        name=letter.name,
        payload=letter.payload,
        policy=None if run is None or _is_declared(tables, run, letter.name) else letter.policy,
        on_end=letter.on_end,
        path=None if op.run_id else letter.path,
        schema=op.schema,
        by_name=op.run_id not in (None, letter.run_id),
    )
    outcome = send_signal(tables, send, letter_id=op.dead_letter_id)
    if isinstance(outcome, Delivered | Buffered):
        tables.delete_dead_letter(op.dead_letter_id)
    return outcome


def _is_declared(tables: Tables, run: RunRecord, name: str) -> bool:
    workflow = tables.workflow(run.workflow, run.version)
    return workflow is not None and name in signal_entries(workflow.signals)


def put_back(tables: Tables, run: RunRecord) -> None:
    """A retried run gets back what its end cut off; what it rejected stays where it is."""
    for letter in tables.dead_letters(run.run_id):
        if letter.cause != "ended":
            continue
        tables.delete_dead_letter(letter.dead_letter_id)
        signal = SignalRecord(
            signal_id=letter.dead_letter_id,
            position=tables.next_seq(),
            run_id=run.run_id,
            name=letter.name,
            path=letter.path,
            payload=letter.payload,
            policy=letter.policy,
            on_end=letter.on_end,
            received_at=letter.received_at,
            expires_at=letter.expires_at,
        )
        tables.add_signal(signal)
