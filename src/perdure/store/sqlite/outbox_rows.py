"""The outbox: sends that came with transactions of callers. Other connections write them; a batch takes them out.

Which are there is asked for all of a batch at once, and they go by one statement.
"""

from collections.abc import Iterable
from typing import Any

from perdure.model import ops
from perdure.store.decoding import decode_ids
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.statements import Statements, as_json


class OutboxRows(LoadedRows):
    """The sends that a batch applies."""

    def __init__(self, sql: Statements, remembered: Remembered) -> None:
        super().__init__(sql, remembered)
        self._outbox: dict[str, bool] = {}  # whether it is there
        self._gone_outbox: list[str] = []

    def prefetch(self, batch: Iterable[ops.Op[Any]]) -> None:
        batch = list(batch)
        super().prefetch(batch)
        asked = [one.outbox_id for one in batch if isinstance(one, ops.ApplyOutbox)]
        if asked:
            self._load_outbox(asked)

    def _load_outbox(self, outbox_ids: list[str]) -> None:
        kept = self._read(decode_ids, "kept_outbox", outbox_ids=as_json(outbox_ids))
        self._outbox.update(dict.fromkeys(outbox_ids, False))
        self._outbox.update(dict.fromkeys(kept, True))

    def has_outbox(self, outbox_id: str) -> bool:
        if outbox_id not in self._outbox:
            self._load_outbox([outbox_id])
        return self._outbox[outbox_id]

    def delete_outbox(self, outbox_id: str) -> None:
        self._outbox[outbox_id] = False
        self._gone_outbox.append(outbox_id)

    def _flush_outbox(self) -> None:
        if self._gone_outbox:
            self._sql.run("delete_outbox", {"outbox_ids": as_json(self._gone_outbox)})
            self._gone_outbox.clear()
