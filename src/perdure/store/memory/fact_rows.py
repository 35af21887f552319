"""Keys and dead letters: what must not happen twice, and what reached nobody."""

import heapq

from perdure.model.records import DeadLetterRecord, KeyRecord
from perdure.store.memory.rows import KeptRows


class FactRows(KeptRows):
    """The keys and the dead letters."""

    # --- keys ---

    def key(self, scope: str, key: str) -> KeyRecord | None:
        return self.keys.get((scope, key))

    def add_key(self, key: KeyRecord) -> None:
        self.keys[key.scope, key.key] = key

    def delete_key(self, scope: str, key: str) -> None:
        self.keys.pop((scope, key), None)

    def expire_keys(self, limit: int) -> int:
        expired = (
            (one.expires_at, at)
            for at, one in self.keys.items()
            if one.expires_at is not None and one.expires_at <= self.now
        )
        found = heapq.nsmallest(limit, expired)
        for _, at in found:
            del self.keys[at]
        return len(found)

    # --- dead letters ---

    def dead_letter(self, dead_letter_id: str) -> DeadLetterRecord | None:
        return self.letters.get(dead_letter_id)

    def dead_letters(self, run_id: str) -> list[DeadLetterRecord]:
        found = [one for one in self.letters.values() if one.run_id == run_id]
        return sorted(found, key=lambda one: (one.received_at, one.dead_letter_id))

    def add_dead_letter(self, letter: DeadLetterRecord) -> None:
        if letter.dead_letter_id in self.letters:
            raise ValueError(f"second dead letter of the id {letter.dead_letter_id!r}")
        self.letters[letter.dead_letter_id] = letter

    def delete_dead_letter(self, dead_letter_id: str) -> None:
        self.letters.pop(dead_letter_id, None)
