"""Streams of runs: how far each has come, as remembered; items that come, and the oldest that go.

Of a run either all its streams are known or none; of one that this process has made, and that has none here, there are
none. Items are never read here.
"""

from collections.abc import Sequence

from perdure.model.records import StreamItemRecord, StreamRecord
from perdure.model.streams import floor_of, may_be_over
from perdure.store.decoding import decode_streams
from perdure.store.prefetch import Wanted
from perdure.store.sqlite import shapes
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.remembered import Remembered
from perdure.store.sqlite.statements import Statements, as_json


class StreamRows(LoadedRows):
    """What runs publish in one batch."""

    def __init__(self, sql: Statements, remembered: Remembered) -> None:
        super().__init__(sql, remembered)
        self._put_streams: dict[tuple[str, str], StreamRecord] = {}
        self._added_stream_items: list[StreamItemRecord] = []

    def _load_missing(self, want: Wanted) -> None:
        super()._load_missing(want)
        asked = [one for one in want.streams if one not in self._streams]
        if asked:
            self._load_streams(asked)

    def _load_streams(self, run_ids: list[str]) -> None:
        asked = [one for one in run_ids if one not in self._unwatched]
        for run_id in run_ids:
            self._streams[run_id] = {}
            self._touched[run_id] = None
        if asked:
            for one in self._read(decode_streams, "streams", run_ids=as_json(asked)):
                self._streams[one.run_id][one.stream] = one

    def streams(self, run_id: str) -> dict[str, StreamRecord]:
        if run_id not in self._streams:
            self._load_streams([run_id])
        return self._streams[run_id]

    def append_to_stream(self, stream: StreamRecord, items: Sequence[StreamItemRecord]) -> None:
        self.streams(stream.run_id)[stream.stream] = stream
        self._put_streams[stream.run_id, stream.stream] = stream
        self._added_stream_items += items

    def _flush_streams(self) -> None:
        if not self._put_streams:
            return
        sql, moved = self._sql, list(self._put_streams.values())
        shapes.insert_stream_items.write(sql, self._added_stream_items)
        shapes.put_streams.write(sql, moved)
        floors = [(one.run_id, one.stream, *floor_of(one)) for one in moved if may_be_over(one)]
        if floors:
            sql.run("trim_streams", {"floors": as_json(floors)})
        self._put_streams.clear()
        self._added_stream_items.clear()
