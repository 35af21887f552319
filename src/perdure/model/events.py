"""An event as users see it: a fact on the ledger, addressed to nobody.

Payloads are plain JSON data here; `topic.read(event)` gives the typed value. A `Cause` says what led to an event:
the event, run or consumer whose code emitted it.
"""

from datetime import datetime
from typing import Any

import msgspec

from perdure.model.clock import to_datetime
from perdure.model.records import EventRecord, entity_text


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What led to an event. `replay` when the code that emitted it was working on an event fired anew."""

    event_id: str | None = None
    run_id: str | None = None
    path: str | None = None
    consumer: str | None = None
    replay: bool = False


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A fact on the ledger. Its position is its place in the order of commits; its id is identity only."""

    position: int
    event_id: str
    type: str
    entity_type: str | None
    entity_id: str | None
    payload: Any
    occurred_at: datetime
    recorded_at: datetime
    caused_by: Cause | None = None
    root_id: str  # the first event of the chain that led here; its own id when it is the first
    depth: int = 0  # how many starts lie between that first event and this one
    key: str | None = None
    trace: str | None = None

    @property
    def entity(self) -> str | None:
        """What it is about, as `type/id`."""
        return entity_text(self.entity_type, self.entity_id) or None


def event_of(record: EventRecord) -> Event:
    """The row as users see it."""
    caused_by = record.caused_by
    return Event(
        position=record.position,
        event_id=record.event_id,
        type=record.type,
        entity_type=record.entity_type,
        entity_id=record.entity_id,
        payload=msgspec.json.decode(record.payload),
        occurred_at=to_datetime(record.occurred_at),
        recorded_at=to_datetime(record.recorded_at),
        caused_by=None if caused_by is None else msgspec.json.decode(caused_by, type=Cause),
        root_id=record.root_id or record.event_id,
        depth=record.depth,
        key=record.key,
        trace=record.trace,
    )
