"""Items of queues, and how far runs have seen topics.

Of a queue the first items are read, with as many of those who wait for one. Its version moves with every item that
comes or goes and with everyone who comes to wait.
"""

from perdure.model.records import CursorRecord, ItemRecord
from perdure.store.optimistic.needs import Looks
from perdure.store.optimistic.rows import LookedAt
from perdure.store.optimistic.wait_rows import queue_part


class QueueRows(LookedAt):
    """The items and topic cursors of one batch."""

    def __init__(self, looks: Looks) -> None:
        super().__init__(looks)
        self._added_items: dict[str, ItemRecord] = {}
        self._gone_items: dict[str, ItemRecord] = {}
        self._put_cursors: dict[tuple[str, tuple[str, str, str, str]], CursorRecord] = {}

    # --- queues ---

    def first_item(self, queue: str, put_by: int | None) -> ItemRecord | None:
        self._rest_on(("queue", queue))
        asked = queue_part
        while True:
            stored, _ = self._answer("queue", queue, asked)
            left = [one for one in stored if one.item_id not in self._gone_items]
            added = [one for one in self._added_items.values() if one.queue == queue]
            found = [one for one in (*left, *added) if put_by is None or one.put_at <= put_by]
            first = min(found, key=lambda one: one.position, default=None)
            # Beyond those that were read there may be older ones than those of this batch.
            if len(stored) < asked or (first and first.position <= stored[-1].position):
                return first
            asked *= 2

    def items_before(self, queue: str, put_before: int | None, limit: int) -> list[ItemRecord]:
        self._rest_on(("queue", queue), bump=True)
        stored = self._first_of(
            limit, lambda one: one.item_id not in self._gone_items, "items", queue, put_before
        )
        added = [
            one
            for one in self._added_items.values()
            if one.queue == queue and (put_before is None or one.put_at < put_before)
        ]
        return sorted((*stored, *added), key=lambda one: one.position)[:limit]

    def add_item(self, item: ItemRecord) -> None:
        if item.item_id in self._added_items:  # the unique index knows those of other batches
            raise ValueError(f"second item of the id {item.item_id!r}")
        self._rest_on(("queue", item.queue), bump=True)
        # One that was taken and comes back is deleted and written anew.
        self._added_items[item.item_id] = item

    def delete_item(self, item: ItemRecord) -> None:
        self._rest_on(("queue", item.queue), bump=True)
        if self._added_items.pop(item.item_id, None) is None:
            self._gone_items[item.item_id] = item

    # --- cursors ---

    def _forget_run(self, run_id: str) -> None:
        super()._forget_run(run_id)
        for at in [at for at in self._put_cursors if at[0] == run_id]:
            del self._put_cursors[at]

    def topic_cursor(
        self, run_id: str, branch: str, topic: str, entity: str, filter: str
    ) -> int | None:
        kept = self._inside(run_id)
        if kept is None or not kept.cursors:
            return None
        cursor = kept.cursors.get((branch, topic, entity, filter))
        return None if cursor is None else cursor.position

    def put_topic_cursor(self, cursor: CursorRecord) -> None:
        at = (cursor.branch, cursor.topic, cursor.entity, cursor.filter)
        mine = self._my_inside(cursor.run_id)
        assert mine.cursors is not None
        mine.cursors[at] = cursor
        self._put_cursors[cursor.run_id, at] = cursor
