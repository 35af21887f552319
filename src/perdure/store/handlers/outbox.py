"""Sends that callers committed with transactions of their own: each is applied once, and its row goes with that.

The sender is not there any more to be told of a refusal; it is told to the ledger.
"""

from perdure.model import ops
from perdure.model.outcomes import FromOutbox
from perdure.store.handlers import ledger, queues
from perdure.store.handlers.facts import refusal_of, tell_ledger
from perdure.store.handlers.owning import start_run
from perdure.store.handlers.sending import send_signal
from perdure.store.tables import Tables

# What was to be sent, and to whom, without the payload; and the chain of events that a fact about it belongs to.
_About = tuple[dict[str, str], str | None, int]


def apply_outbox(tables: Tables, op: ops.ApplyOutbox) -> FromOutbox:
    if not tables.has_outbox(op.outbox_id):
        return FromOutbox(0)
    tables.delete_outbox(op.outbox_id)
    if op.send is None:
        _tell_refused(tables, op.outbox_id, ({"text": op.text}, None, 0), op.reason)
        return FromOutbox(1, (op.reason,))
    refused = []
    for about, outcome in _apply(tables, op.send):
        reason = refusal_of(outcome)
        if reason is not None:
            refused.append(reason)
            _tell_refused(tables, op.outbox_id, about, reason)
    return FromOutbox(1, tuple(refused))


def _apply(tables: Tables, send: ops.Send) -> list[tuple[_About, object]]:
    """What became of it; events that are sent as one have an answer each."""
    match send:
        case ops.StartRun():
            about = {"send": "start", "workflow": send.workflow, "run_id": send.run_id}
            return [((about, None, 0), start_run(tables, send))]
        case ops.SendSignal():
            about = {"send": "signal", "signal": send.name, "run_id": send.run_id}
            return [((about, None, 0), send_signal(tables, send))]
        case ops.Emit():
            outcomes = ledger.emit(tables, send)
            return list(zip([_event(one) for one in send.events], outcomes, strict=True))
        case ops.Put():
            about = {"send": "put", "queue": send.queue, "item_id": send.item_id}
            return [((about, None, 0), queues.put(tables, send))]


def _event(new: ops.NewEvent) -> _About:
    """A fact about it is one hop further, or whoever acts on such facts could go on for ever."""
    about = {"send": "emit", "topic": new.type, "event_id": new.event_id}
    return about, new.root_id, new.depth + 1


def _tell_refused(tables: Tables, outbox_id: str, about: _About, reason: str) -> None:
    named, root_id, depth = about
    told = {"outbox_id": outbox_id, **named, "reason": reason}
    tell_ledger(tables, "ledger.send_refused", told, root_id, depth)
