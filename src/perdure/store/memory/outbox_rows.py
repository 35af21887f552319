"""The outbox: sends that came with transactions of callers. In memory only tests can put some there."""

from perdure.store.memory.rows import KeptRows


class OutboxRows(KeptRows):
    """The sends that are to be applied."""

    def has_outbox(self, outbox_id: str) -> bool:
        return outbox_id in self.outbox

    def delete_outbox(self, outbox_id: str) -> None:
        del self.outbox[outbox_id]
