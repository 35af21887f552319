"""Queues: each item goes to exactly one run, the one that waits longest, or is kept in the order of acceptance."""

from perdure.model import limits, ops
from perdure.model.keys import put_scope
from perdure.model.outcomes import (
    Counted,
    Delivered,
    Duplicate,
    PutOutcome,
    Queued,
    Refusal,
    decode_answer,
    encode_answer,
)
from perdure.model.records import DeadLetterRecord, ItemRecord, KeyRecord
from perdure.model.sameness import used_for, was_used_for
from perdure.store.handlers import waiting
from perdure.store.handlers.catalogue import as_declared, misfit, schema_of
from perdure.store.handlers.keys import keep_key, used_key
from perdure.store.tables import Tables


def put(tables: Tables, op: ops.Put) -> PutOutcome:
    if op.key is not None:
        used = used_key(tables, put_scope(op.queue), op.key)
        if used is not None:
            return _used_before(tables, used, op)
    channel = tables.channel("queue", op.queue)
    refused = misfit(channel, op, f"the payload of queue {op.queue!r}")
    if refused is not None:
        return refused
    op = as_declared(channel, op)
    outcome = _put(tables, op.item_id, op.queue, op.payload)
    if op.key is not None:
        scope, answer = put_scope(op.queue), encode_answer(outcome)
        digest = used_for(op.payload, schema=schema_of(channel))
        keep_key(tables, scope, op.key, limits.put_key_us, digest, answer)
    return outcome


def _put(tables: Tables, item_id: str, queue: str, payload: str) -> Delivered | Queued:
    item = ItemRecord(
        item_id=item_id,
        position=tables.next_seq(),
        queue=queue,
        payload=payload,
        put_at=tables.now,
    )
    taker = waiting.offer_item(tables, item)
    if taker is not None:
        return Delivered(taker.run_id, taker.path)
    tables.add_item(item)
    return Queued(item_id)


def _used_before(
    tables: Tables, used: KeyRecord, op: ops.Put
) -> Duplicate[Delivered | Queued] | Refusal:
    schema = schema_of(tables.channel("queue", op.queue))
    if not was_used_for(used.digest, op.payload, schema=schema):
        problem = "with another payload"
        return Refusal("conflict", f"key {op.key!r} was used for queue {op.queue!r} {problem}")
    return Duplicate(decode_answer(used.answer))


def put_again(tables: Tables, letter: DeadLetterRecord) -> Delivered | Queued:
    """An item that a run could not read is put once more, under its own id, at the end of its queue."""
    return _put(tables, letter.dead_letter_id, letter.name, letter.payload)


def purge_queue(tables: Tables, op: ops.PurgeQueue) -> Counted:
    items = tables.items_before(op.queue, op.put_before, op.limit)
    for item in items:
        tables.delete_item(item)
    return Counted(len(items), more=len(items) == op.limit)
