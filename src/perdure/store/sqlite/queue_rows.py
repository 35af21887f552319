"""Items of queues, and how far runs have seen topics: what comes and goes with waits for either.

Items that come and go within a batch are never written. Of a run either all its cursors are known or none; of one that
this process has made, and that has none here, there are none.
"""

from perdure.model.records import CursorRecord, ItemRecord
from perdure.store.decoding import decode_cursors, decode_items
from perdure.store.sqlite import shapes
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.statements import Statements, as_json


class QueueRows(LoadedRows):
    """The items and topic cursors of one batch."""

    def __init__(self, sql: Statements, remembered: Remembered) -> None:
        super().__init__(sql, remembered)
        self._added_items: dict[str, ItemRecord] = {}
        self._gone_items: dict[str, None] = {}
        self._put_cursors: dict[tuple[str, tuple[str, str, str, str]], CursorRecord] = {}

    # --- queues ---

    def first_item(self, queue: str, put_by: int | None) -> ItemRecord | None:
        # As many more as may be gone by now.
        limit = 1 + len(self._gone_items)
        stored = self._read(decode_items, "first_items", queue=queue, put_by=put_by, limit=limit)
        found = [one for one in stored if one.item_id not in self._gone_items]
        found += [
            one
            for one in self._added_items.values()
            if one.queue == queue and (put_by is None or one.put_at <= put_by)
        ]
        return min(found, key=lambda one: one.position, default=None)

    def items_before(self, queue: str, put_before: int | None, limit: int) -> list[ItemRecord]:
        self._flush_items()
        put_by = None if put_before is None else put_before - 1
        return self._read(decode_items, "first_items", queue=queue, put_by=put_by, limit=limit)

    def add_item(self, item: ItemRecord) -> None:
        if item.item_id in self._added_items:  # the unique index knows those of other batches
            raise ValueError(f"second item of the id {item.item_id!r}")
        self._added_items[item.item_id] = item

    def delete_item(self, item: ItemRecord) -> None:
        if self._added_items.pop(item.item_id, None) is None:
            self._gone_items[item.item_id] = None

    def _flush_items(self) -> None:
        if self._gone_items:
            self._sql.run("delete_items", {"item_ids": as_json(list(self._gone_items))})
            self._gone_items.clear()
        if self._added_items:
            shapes.insert_items.write(self._sql, list(self._added_items.values()))
            self._added_items.clear()

    # --- cursors ---

    def topic_cursor(
        self, run_id: str, branch: str, topic: str, entity: str, filter: str
    ) -> int | None:
        cursor = self._cursors_of(run_id).get((branch, topic, entity, filter))
        return None if cursor is None else cursor.position

    def _cursors_of(self, run_id: str) -> dict[tuple[str, str, str, str], CursorRecord]:
        rows = self._cursors.get(run_id)
        if rows is None:
            rows = self._cursors[run_id] = {}
            if run_id not in self._unwatched:
                self._flush_cursors()
                found = self._read(decode_cursors, "cursors", run_id=run_id)
                rows.update((_place(one), one) for one in found)
            self._touched[run_id] = None
        return rows

    def put_topic_cursor(self, cursor: CursorRecord) -> None:
        at = _place(cursor)
        run_id = cursor.run_id
        if run_id in self._unwatched:
            self._cursors.setdefault(run_id, {})
        rows = self._cursors.get(run_id)
        if rows is not None:
            rows[at] = cursor
        self._put_cursors[run_id, at] = cursor
        self._touched[run_id] = None

    def _flush_cursors(self) -> None:
        if self._put_cursors:
            shapes.put_cursors.write(self._sql, list(self._put_cursors.values()))
            self._put_cursors.clear()


def _place(cursor: CursorRecord) -> tuple[str, str, str, str]:
    return cursor.branch, cursor.topic, cursor.entity, cursor.filter
