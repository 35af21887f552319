"""Keys and dead letters: what must not happen twice, and what reached nobody.

Both are written once and never changed; they may go.
"""

from perdure.model.records import DeadLetterRecord, KeyRecord
from perdure.store.decoding import decode_keys, decode_letters
from perdure.store.sqlite import shapes
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.statements import Statements, as_json


class FactRows(LoadedRows):
    """The keys and dead letters of one batch."""

    def __init__(self, sql: Statements, remembered: Remembered) -> None:
        super().__init__(sql, remembered)
        self._added_keys: list[KeyRecord] = []
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

    def expire_keys(self, limit: int) -> int:
        self.flush()
        self._keys.clear()
        return self._sql.run("expire_keys", {"now": self.now, "limit": limit})

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
        if self._gone_letters:
            sql.run("delete_dead_letters", {"dead_letter_ids": as_json(list(self._gone_letters))})
            self._gone_letters.clear()
        if self._added_letters:
            shapes.insert_dead_letters.write(sql, list(self._added_letters.values()))
            self._added_letters.clear()
