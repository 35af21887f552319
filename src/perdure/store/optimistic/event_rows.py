"""The ledger: events of this batch by the place they will have, others from the store.

Events never change, so those that were read hold. What can be overtaken is that there is none yet: whoever looked for
the next event of a topic rests on where the newest one was.
"""

from perdure.model.ids import Ids
from perdure.model.ops import NewEvent
from perdure.model.records import EventRecord, entity_text
from perdure.store.optimistic.known import FAN_OUTS, LEDGER
from perdure.store.optimistic.needs import Looks
from perdure.store.optimistic.rows import LookedAt


class EventRows(LookedAt):
    """The events of one batch."""

    _ids: Ids  # given by the whole
    _base: int  # the end of the ledger before the batch, or the number that stands for it

    def __init__(self, looks: Looks) -> None:
        super().__init__(looks)
        self._events: list[EventRecord] = []
        self._by_id: dict[str, EventRecord] | None = None  # made when somebody looks for one
        self._by_topic: dict[str, list[EventRecord]] = {}
        self._newest_seen: set[str] = set()  # topics whose events were looked at
        self._fan_outs: list[int] | None = None
        self._new_fan_outs: list[int] = []
        self._gone_fan_outs: list[int] = []
        self._trim = 0  # up to where this batch takes events away

    # --- appending ---

    def append_event(
        self,
        type: str,
        payload: str,
        event_id: str | None,
        entity_type: str | None,
        entity_id: str | None,
        root_id: str | None = None,
        depth: int = 0,
        rest: NewEvent | None = None,
        repeated: bool = False,
    ) -> int:
        now = self.now
        position = self._base + len(self._events) + 1
        event = EventRecord(
            position=position,
            event_id=event_id or self._ids.ulid(now),
            type=type,
            entity_type=entity_type,
            entity_id=entity_id,
            payload=payload,
            occurred_at=now if rest is None or rest.occurred_at is None else rest.occurred_at,
            recorded_at=now,
            caused_by=None if rest is None else rest.caused_by,
            root_id=root_id,
            depth=depth,
            key=None if rest is None else rest.key,
            trace=None if rest is None else rest.trace,
            repeated=repeated,
        )
        self._events.append(event)
        of_topic = self._by_topic.get(type)
        if of_topic is None:
            self._by_topic[type] = [event]
        else:
            of_topic.append(event)
        if self._by_id is not None:
            self._by_id[event.event_id] = event
        return position

    # --- looking ---

    def last_position(self) -> int:
        return self._base + len(self._events)

    def first_position(self) -> int:
        # Rests on it with a move: whoever begins at the oldest end and who trims it see each other.
        self._rest_on(LEDGER, bump=True)
        first: int = self._answer("first_position")
        return max(first, self._trim + 1)

    def position_at(self, recorded_at: int) -> int:
        found: int = self._answer("position_at", recorded_at)
        # The events of this batch are all of one time.
        return self.last_position() if self._events and recorded_at > self.now else found

    def event(self, event_id: str) -> EventRecord | None:
        if self._by_id is None:
            self._by_id = {one.event_id: one for one in self._events}
        mine = self._by_id.get(event_id)
        return self._unless_trimmed(mine or self._answer("event", event_id))

    def event_at(self, position: int) -> EventRecord | None:
        nth = position - self._base
        if 0 < nth <= len(self._events):
            return self._unless_trimmed(self._events[nth - 1])
        known = self._known.fan_out_events.get(position)
        return self._unless_trimmed(known or self._answer("event_at", position))

    def _unless_trimmed(self, event: EventRecord | None) -> EventRecord | None:
        return None if event is None or event.position <= self._trim else event

    def next_event(
        self,
        topic: str,
        entity: str,
        after: int,
        *,
        recorded_by: int | None = None,
        newest: bool = False,
        repeats: bool = False,
    ) -> EventRecord | None:
        known = self._known.topics.get(topic)
        if known is None:
            self.missing.add(("topic", topic))
            return None
        after = max(after, self._trim)
        self._rest_on(("topic", topic))
        self._newest_seen.add(topic)
        if recorded_by is not None and recorded_by < self.now:
            self.decides_time = True
        stored: EventRecord | None = None
        if known.newest > after:
            stored = self._answer("next_event", topic, entity, after, recorded_by, newest, repeats)
        if stored is not None and not newest:
            return stored
        mine = [
            one
            for one in self._by_topic.get(topic, ())
            if one.position > after
            and entity in ("", entity_text(one.entity_type, one.entity_id))
            and (recorded_by is None or one.recorded_at <= recorded_by)
            and (repeats or not one.repeated)
        ]
        if not mine:
            return stored
        return mine[-1] if newest else mine[0]

    decides_time: bool

    # --- more to resume, and the oldest ---

    def fan_outs(self) -> list[int]:
        if self._fan_outs is None:
            if FAN_OUTS not in self._known.units:
                self.missing.add(("fan_outs",))
            self._rest_on(FAN_OUTS)
            self._fan_outs = list(self._known.fan_outs)
        return self._fan_outs

    def put_fan_out(self, position: int) -> None:
        fan_outs = self.fan_outs()
        if position not in fan_outs:
            fan_outs.append(position)
            fan_outs.sort()
            self._new_fan_outs.append(position)
            self._rest_on(FAN_OUTS, bump=True)

    def delete_fan_out(self, position: int) -> None:
        self.fan_outs().remove(position)
        self._rest_on(FAN_OUTS, bump=True)
        if position in self._new_fan_outs:
            self._new_fan_outs.remove(position)
        else:
            self._gone_fan_outs.append(position)

    def trim_events(self, upto: int) -> None:
        self._trim = upto
