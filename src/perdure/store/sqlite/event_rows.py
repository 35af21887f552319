"""The ledger: events at dense positions, which of them have more runs to resume, and the oldest going.

An event is written once and never changed. The last position is remembered, or read as the batch begins. Most events
are never looked at within their batch, so they are bare columns in the order of their statements; whoever looks for
one has them written first.
"""

from perdure.model.ids import Ids
from perdure.model.ops import NewEvent
from perdure.model.records import RUNNER, EventRecord
from perdure.store.decoding import decode_events, decode_needed
from perdure.store.sqlite import shapes
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.statements import Statements, queries


class EventRows(LoadedRows):
    """The events of one batch."""

    _ids: Ids  # given by the whole

    def __init__(self, sql: Statements, remembered: Remembered) -> None:
        super().__init__(sql, remembered)
        self._position = remembered.position
        self._fan_outs = remembered.fan_outs
        self._last_of_topic = remembered.last_of_topic
        self._plain_events: list[object] = []
        self._events: list[object] = []
        # Ids that were looked for and not found, and those of them that this batch has used since.
        self._absent_events: set[str] = set()
        self._used_ids: set[str] = set()

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
        self._position = position = self._position + 1
        now = self.now
        if event_id is None:
            event_id = self._ids.ulid(now)
        elif self._absent_events and event_id in self._absent_events:
            self._used_ids.add(event_id)
        if type in self._last_of_topic:
            self._last_of_topic[type] = position
        about = (position, event_id, type, entity_type, entity_id, payload)
        if rest is None and root_id is None and not depth and not repeated:
            self._plain_events += about
            self._plain_events.append(now)
            return position
        self._events += about
        if rest is None:
            self._events += (None, root_id, depth, None, None, repeated, now, now)
        else:
            happened_at = now if rest.occurred_at is None else rest.occurred_at
            self._events += (rest.caused_by, root_id, depth, rest.key, rest.trace, repeated)
            self._events += (happened_at, now)
        return position

    def _flush_events(self) -> None:
        if self._plain_events:
            shapes.insert_plain_events.write_flat(self._sql, self._plain_events)
            self._plain_events.clear()
        if self._events:
            shapes.insert_events.write_flat(self._sql, self._events)
            self._events.clear()

    # --- looking ---

    def last_position(self) -> int:
        return self._position

    def first_position(self) -> int:
        self._flush_events()
        first: int = self._sql.row("first_position")[0]
        return first

    def position_at(self, recorded_at: int) -> int:
        self._flush_events()
        return position_at(self._sql, recorded_at)

    def event(self, event_id: str) -> EventRecord | None:
        if event_id in self._absent_events:
            if event_id not in self._used_ids:
                return None
            self._flush_events()
        found = self._read(decode_events, "event", event_id=event_id)
        if not found:
            self._absent_events.add(event_id)
        return found[0] if found else None

    def event_at(self, position: int) -> EventRecord | None:
        self._flush_events()
        found = self._read(decode_events, "event_at", position=position)
        return found[0] if found else None

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
        if self._newest_of(topic) <= after:
            return None
        self._flush_events()
        return next_event(
            self._sql,
            topic,
            entity,
            after,
            recorded_by=recorded_by,
            newest=newest,
            repeats=repeats,
        )

    def _newest_of(self, topic: str) -> int:
        """Where the newest event of a topic is. A thousand waits that open ask the file once."""
        newest = self._last_of_topic.get(topic)
        if newest is None:
            self._flush_events()
            newest = self._last_of_topic[topic] = (
                self._sql.row("last_of_topic", {"type": topic})[0] or 0
            )
        return newest

    # --- more to resume, and the oldest ---

    def fan_outs(self) -> list[int]:
        return self._fan_outs

    def put_fan_out(self, position: int) -> None:
        if self._sql.run("insert_fan_out", {"position": position}):
            self._fan_outs.append(position)
            self._fan_outs.sort()

    def delete_fan_out(self, position: int) -> None:
        self._sql.run("delete_fan_out", {"position": position})
        self._fan_outs.remove(position)

    def trim_events(self, upto: int) -> None:
        self._flush_events()
        self._sql.run("allow_retention")
        self._sql.run("trim_events", {"upto": upto})
        self._sql.run("forbid_retention")

    def oldest_needed(self, idle_before: int) -> tuple[int, str] | None:
        row = self._sql.row("oldest_needed", {"idle_before": idle_before, "runner": RUNNER})
        return min((decode_needed(one) for one in row if one is not None), default=None)


def next_event(
    sql: Statements,
    topic: str,
    entity: str,
    after: int,
    *,
    recorded_by: int | None = None,
    newest: bool = False,
    repeats: bool = False,
) -> EventRecord | None:
    """The first event of a topic after a position, or the newest; also for reads."""
    params = {"type": topic, "after": after, "recorded_by": recorded_by, "repeats": repeats}
    name = "next_event"
    if entity:
        params["entity_type"], params["entity_id"] = entity.split("/", 1)
        name = "next_event_about_run" if entity.startswith("run/") else "next_event_about"
    text = queries[name].replace("{order}", "desc" if newest else "asc")
    found = decode_events(sql.connection.execute(text, params).fetchone()[0])
    return found[0] if found else None


def position_at(sql: Statements, recorded_at: int) -> int:
    """The position before the first event recorded at that time or later: found by halving, for time goes up."""
    first, last = sql.row("span")
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        if sql.row("recorded_at", {"position": middle})[0] < recorded_at:
            low = middle + 1
        else:
            high = middle
    found: int = low - 1
    return found
