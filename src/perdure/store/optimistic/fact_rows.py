"""Keys and dead letters: what must not happen twice, and what reached nobody.

Nothing of them is remembered. A key that was looked for in vain and is added meets the unique index, and one that is
replaced must be the one that was seen.
"""

from perdure.model.records import DeadLetterRecord, KeyRecord
from perdure.store.optimistic.needs import Looks
from perdure.store.optimistic.rows import LookedAt


class FactRows(LookedAt):
    """The keys and dead letters of one batch."""

    def __init__(self, looks: Looks) -> None:
        super().__init__(looks)
        self._keys: dict[tuple[str, str], KeyRecord | None] = {}  # as this batch left them
        self._gone_keys: dict[tuple[str, str], KeyRecord] = {}
        self._letters: dict[str, DeadLetterRecord | None] = {}
        self._gone_letters: dict[str, DeadLetterRecord] = {}

    def _forget_run(self, run_id: str) -> None:
        super()._forget_run(run_id)
        for at in [
            at for at, one in self._keys.items() if one is not None and one.run_id == run_id
        ]:
            self._keys[at] = None
        for letter_id in [at for at, one in self._letters.items() if one and one.run_id == run_id]:
            self._letters[letter_id] = None

    # --- keys ---

    def key(self, scope: str, key: str) -> KeyRecord | None:
        at = (scope, key)
        if at in self._keys:
            return self._keys[at]
        found: KeyRecord | None = self._answer("key", scope, key)
        if found is not None and found.run_id in self._deleted:
            return None
        return found

    def add_key(self, key: KeyRecord) -> None:
        self._keys[key.scope, key.key] = key

    def delete_key(self, scope: str, key: str) -> None:
        at = (scope, key)
        known = self.key(scope, key)
        if known is None:
            return
        if at not in self._keys:
            self._gone_keys[at] = known
        self._keys[at] = None

    def expire_keys(self, limit: int) -> int:
        expired = self._first_of(
            limit, lambda one: (one.scope, one.key) not in self._keys, "expired_keys"
        )
        for one in expired:
            self._gone_keys[one.scope, one.key] = one
            self._keys[one.scope, one.key] = None
        return len(expired)

    # --- dead letters ---

    def dead_letter(self, dead_letter_id: str) -> DeadLetterRecord | None:
        if dead_letter_id in self._letters:
            return self._letters[dead_letter_id]
        found: DeadLetterRecord | None = self._answer("letter", dead_letter_id)
        if found is None or found.run_id in self._deleted:
            return None
        # It counts as part of its run: whoever sends it again, or puts it back, moves the run's version.
        if self._slice(found.run_id) is None:
            return None
        return found

    def dead_letters(self, run_id: str) -> list[DeadLetterRecord]:
        if self._slice(run_id) is None:
            return []
        rows = {one.dead_letter_id: one for one in self._answer("letters", run_id)}
        for at, letter in self._letters.items():
            if letter is None:
                rows.pop(at, None)
            elif letter.run_id == run_id:
                rows[at] = letter
        return sorted(rows.values(), key=lambda one: (one.received_at, one.dead_letter_id))

    def add_dead_letter(self, letter: DeadLetterRecord) -> None:
        self._mine(letter.run_id)
        self._letters[letter.dead_letter_id] = letter

    def delete_dead_letter(self, dead_letter_id: str) -> None:
        letter = self.dead_letter(dead_letter_id)
        if letter is None:
            return
        self._mine(letter.run_id)
        if dead_letter_id not in self._letters:
            self._gone_letters[dead_letter_id] = letter
        self._letters[dead_letter_id] = None
