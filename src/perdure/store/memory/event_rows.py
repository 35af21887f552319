"""The ledger: events at dense positions, which of them have more runs to resume, and the oldest going."""

from perdure.model.ids import Ids
from perdure.model.ops import NewEvent
from perdure.model.records import RUNNER, EventRecord, entity_text
from perdure.store.memory.rows import KeptRows


class EventRows(KeptRows):
    """The events."""

    _ids: Ids  # given by the whole

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
        event_id = event_id or self._ids.ulid(self.now)
        if event_id in self.positions:
            raise ValueError(f"second event of the id {event_id!r}")
        self.last += 1
        self.positions[event_id] = self.last
        self.events[self.last] = EventRecord(
            position=self.last,
            event_id=event_id,
            type=type,
            entity_type=entity_type,
            entity_id=entity_id,
            payload=payload,
            occurred_at=self.now if rest is None or rest.occurred_at is None else rest.occurred_at,
            recorded_at=self.now,
            caused_by=None if rest is None else rest.caused_by,
            root_id=root_id,
            depth=depth,
            key=None if rest is None else rest.key,
            trace=None if rest is None else rest.trace,
            repeated=repeated,
        )
        return self.last

    # --- finding ---

    def last_position(self) -> int:
        return self.last

    def first_position(self) -> int:
        return next(iter(self.events), 1)

    def position_at(self, recorded_at: int) -> int:
        later = (one.position for one in self.events.values() if one.recorded_at >= recorded_at)
        return next(later, self.last + 1) - 1

    def event(self, event_id: str) -> EventRecord | None:
        position = self.positions.get(event_id)
        return None if position is None else self.events[position]

    def event_at(self, position: int) -> EventRecord | None:
        return self.events.get(position)

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
        found = None
        for position in range(max(after + 1, self.first_position()), self.last + 1):
            one = self.events[position]
            if (
                one.type == topic
                and entity in ("", entity_text(one.entity_type, one.entity_id))
                and (recorded_by is None or one.recorded_at <= recorded_by)
                and (repeats or not one.repeated)
            ):
                found = one
                if not newest:
                    break
        return found

    # --- those that have more runs to resume ---

    def fan_outs(self) -> list[int]:
        return sorted(self.markers)

    def put_fan_out(self, position: int) -> None:
        self.markers[position] = None

    def delete_fan_out(self, position: int) -> None:
        del self.markers[position]

    # --- retention ---

    def trim_events(self, upto: int) -> None:
        for position in range(self.first_position(), min(upto, self.last - 1) + 1):
            del self.positions[self.events.pop(position).event_id]

    def oldest_needed(self, idle_before: int) -> tuple[int, str] | None:
        needed = [
            (one.position, one.consumer)
            for one in self.parked_events.values()
            if one.parked_at >= idle_before
        ]
        needed += [
            (one.position, one.subscription)
            for one in self.deferred_starts.values()
            if one.deferred_at >= idle_before
        ]
        runner = self.consumers_by_name.get(RUNNER)
        ran_at = 0 if runner is None else runner.advanced_at
        needed += [
            (one.behind + 1, one.name)
            for one in self.subscriptions.values()
            if one.behind is not None and one.enabled and max(one.created_at, ran_at) >= idle_before
        ]
        return min(needed, default=None)
