"""The outbox: sends that came with transactions of callers. A row that is to go must still be there at the commit."""

from perdure.store.optimistic.needs import Looks
from perdure.store.optimistic.rows import LookedAt


class OutboxRows(LookedAt):
    """The sends that a batch applies."""

    def __init__(self, looks: Looks) -> None:
        super().__init__(looks)
        self._gone_outbox: dict[str, None] = {}

    def has_outbox(self, outbox_id: str) -> bool:
        return outbox_id not in self._gone_outbox and bool(self._answer("outbox", outbox_id))

    def delete_outbox(self, outbox_id: str) -> None:
        self._gone_outbox[outbox_id] = None
