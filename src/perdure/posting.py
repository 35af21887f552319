"""A send with the caller's own transaction: one row in the outbox, written through the caller's connection.

Whatever can be refused without the store's word is refused here, before anything is written; what only the store can
judge (that the run exists, what its workflow declares) is judged when the row is applied, after the caller's commit.
"""

from typing import Any

from msgspec.structs import replace

from perdure.engine import Engine
from perdure.errors import InvalidPayload
from perdure.model import ops
from perdure.model.outbox import encode_send, kind_of
from perdure.model.outcomes import Accepted
from perdure.model.records import OutboxRecord
from perdure.store.base import Store


class Confined:
    """A connection that only the caller's own thread may use: what is to be written waits here until that does it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._row: tuple[Store, OutboxRecord] | None = None

    def hold(self, store: Store, row: OutboxRecord) -> None:
        self._row = store, row

    def write(self) -> None:
        """In the thread of the connection. Raises BadValue, StoreRefused; nothing is written then."""
        if self._row is not None:
            store, row = self._row
            store.write_outbox_here(self.connection, row)


async def post(engine: Engine, connection: Any, send: ops.Send, now: int) -> Accepted:
    """Write a send into the transaction that `connection` has. Raises InvalidPayload, BadValue, StoreRefused."""
    what, errors, target = _facts(send)
    if errors:  # the sender learns of them now or never, whether its key was used before or not
        raise InvalidPayload(what, list(errors))
    outbox_id = engine.ids.ulid()
    text = encode_send(_looked_for(send))
    row = OutboxRecord(outbox_id=outbox_id, op=text, created_at=now)
    if isinstance(connection, Confined):
        connection.hold(engine.store, row)
    else:
        await engine.store.write_outbox(connection, row)
    if engine.worker is not None:
        engine.worker.outbox.expect(outbox_id)
    return Accepted(outbox_id, kind_of(send), target)


def _facts(send: ops.Send) -> tuple[str, tuple[str, ...], str]:
    """What it is, what is wrong with it, and the id of what it will make."""
    match send:
        case ops.StartRun():
            return f"the input of workflow {send.workflow!r}", (), send.run_id
        case ops.SendSignal():
            return f"the payload of signal {send.name!r}", send.errors, send.signal_id
        case ops.Emit():
            (new,) = send.events
            return f"the payload of topic {new.type!r}", new.errors, new.event_id
        case ops.Put():
            return f"the payload of queue {send.queue!r}", send.errors, send.item_id


def _looked_for(send: ops.Send) -> ops.Send:
    """Its id may be known before it is applied, to whoever reads the row: so the store looks for it all the same."""
    match send:
        case ops.StartRun():
            return replace(send, fresh=False)
        case ops.Emit():
            return ops.Emit(events=tuple([replace(one, fresh=False) for one in send.events]))
        case _:
            return send
