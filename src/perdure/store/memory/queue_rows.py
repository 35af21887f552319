"""Items of queues, and how far runs have seen topics: what comes and goes with waits for either."""

from perdure.model.records import CursorRecord, ItemRecord
from perdure.store.memory.rows import KeptRows


class QueueRows(KeptRows):
    """The items and the topic cursors."""

    # --- queues ---

    def first_item(self, queue: str, put_by: int | None) -> ItemRecord | None:
        items = (
            (one.position, one)
            for one in self.items.get(queue, {}).values()
            if put_by is None or one.put_at <= put_by
        )
        found = min(items, default=None, key=lambda one: one[0])
        return None if found is None else found[1]

    def items_before(self, queue: str, put_before: int | None, limit: int) -> list[ItemRecord]:
        items = [
            one
            for one in self.items.get(queue, {}).values()
            if put_before is None or one.put_at < put_before
        ]
        return sorted(items, key=lambda one: one.position)[:limit]

    def add_item(self, item: ItemRecord) -> None:
        if any(item.item_id in items for items in self.items.values()):
            raise ValueError(f"second item of the id {item.item_id!r}")
        self.items.setdefault(item.queue, {})[item.item_id] = item

    def delete_item(self, item: ItemRecord) -> None:
        rows = self.items.get(item.queue, {})
        rows.pop(item.item_id, None)
        if not rows:
            self.items.pop(item.queue, None)

    # --- cursors ---

    def topic_cursor(
        self, run_id: str, branch: str, topic: str, entity: str, filter: str
    ) -> int | None:
        cursor = self.cursors.get((run_id, branch, topic, entity, filter))
        return None if cursor is None else cursor.position

    def put_topic_cursor(self, cursor: CursorRecord) -> None:
        at = (cursor.run_id, cursor.branch, cursor.topic, cursor.entity, cursor.filter)
        self.cursors[at] = cursor
