"""Streams of runs: how far each has come, and the newest of its items."""

from collections import deque
from collections.abc import Sequence

from perdure.model.records import StreamItemRecord, StreamRecord
from perdure.model.streams import floor_of
from perdure.store.memory.rows import KeptRows


class StreamRows(KeptRows):
    """What runs publish."""

    def streams(self, run_id: str) -> dict[str, StreamRecord]:
        return dict(self.streams_by_run.get(run_id, {}))

    def append_to_stream(self, stream: StreamRecord, items: Sequence[StreamItemRecord]) -> None:
        self.streams_by_run.setdefault(stream.run_id, {})[stream.stream] = stream
        kept = self.published_items.setdefault((stream.run_id, stream.stream), deque())
        kept.extend(items)
        position, size = floor_of(stream)
        while kept[0].position < position or kept[0].bytes_before < size:
            kept.popleft()
