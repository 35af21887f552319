"""Keys, events and dead letters: what must not happen twice, what happened, what reached nobody.

All three are written once and never changed; keys and letters may go, an event stays. Positions are
dense: the last one is remembered, or read before the first event of a batch.
"""

from perdure.model.ids import Ids
from perdure.model.records import DeadLetterRecord, KeyRecord
from perdure.store.sqlite import shapes
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.statements import Statements, as_json, decode_keys, decode_letters


class FactRows(LoadedRows):
    """The keys, events and dead letters of one batch."""

    _ids: Ids  # given by the whole

    def __init__(self, sql: Statements, remembered: Remembered) -> None:
        super().__init__(sql, remembered)
        self._position = remembered.position

        self._added_keys: list[KeyRecord] = []
        # Bare columns in the order of their statements: nobody reads an event within its batch.
        self._plain_events: list[object] = []
        self._caused_events: list[object] = []
        self._added_letters: dict[str, DeadLetterRecord] = {}
        self._gone_letters: dict[str, None] = {}

    def key(self, scope: str, key: str) -> KeyRecord | None:
        at = (scope, key)
        try:
            return self._keys[at]
        except KeyError:
            pass
        found = self._read(decode_keys, "key", scope=scope, key=key)
        record = self._keys[at] = found[0] if found else None
        return record

    def add_key(self, key: KeyRecord) -> None:
        self._keys[key.scope, key.key] = key
        self._added_keys.append(key)

    def delete_key(self, scope: str, key: str) -> None:
        if self.key(scope, key) is None:
            return
        self.flush()  # it may have been added by this very batch
        self._sql.run("delete_key", {"scope": scope, "key": key})
        self._keys[scope, key] = None

    def append_event(
        self,
        type: str,
        payload: str,
        event_id: str | None,
        entity_type: str | None,
        entity_id: str | None,
        root_id: str | None = None,
        depth: int = 0,
        caused_by: str | None = None,
    ) -> None:
        position = self._position
        if position is None:
            position = self._sql.row("last_position")[0]
        self._position = position = position + 1
        now = self.now
        if event_id is None:
            event_id = self._ids.ulid(now)
        if root_id is None and caused_by is None and not depth:
            self._plain_events += (position, event_id, type, entity_type, entity_id, payload, now)
        else:
            cause = (caused_by, root_id, depth)
            self._caused_events += (position, event_id, type, entity_type, entity_id, payload)
            self._caused_events += (*cause, now)

    def dead_letter(self, dead_letter_id: str) -> DeadLetterRecord | None:
        try:
            return self._letters[dead_letter_id]
        except KeyError:
            pass
        found = self._read(decode_letters, "dead_letter", dead_letter_id=dead_letter_id)
        letter = self._letters[dead_letter_id] = found[0] if found else None
        return letter

    def dead_letters(self, run_id: str) -> list[DeadLetterRecord]:
        self.flush()
        found = self._read(decode_letters, "dead_letters", run_id=run_id)
        return sorted(found, key=lambda one: (one.received_at, one.dead_letter_id))

    def add_dead_letter(self, letter: DeadLetterRecord) -> None:
        self._letters[letter.dead_letter_id] = letter
        self._added_letters[letter.dead_letter_id] = letter

    def delete_dead_letter(self, dead_letter_id: str) -> None:
        self._letters[dead_letter_id] = None
        self._added_letters.pop(dead_letter_id, None)
        self._gone_letters[dead_letter_id] = None

    def _flush_facts(self) -> None:
        sql = self._sql
        if self._added_keys:
            shapes.insert_keys.write(sql, self._added_keys)
            self._added_keys.clear()
        if self._plain_events:
            shapes.insert_plain_events.write_flat(sql, self._plain_events)
            self._plain_events.clear()
        if self._caused_events:
            shapes.insert_events.write_flat(sql, self._caused_events)
            self._caused_events.clear()
        if self._gone_letters:
            sql.run("delete_dead_letters", {"dead_letter_ids": as_json(list(self._gone_letters))})
            self._gone_letters.clear()
        if self._added_letters:
            shapes.insert_dead_letters.write(sql, list(self._added_letters.values()))
            self._added_letters.clear()
