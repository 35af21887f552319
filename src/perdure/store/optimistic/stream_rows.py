"""Streams of runs: how far each has come is part of what is known of its run; items are only written.

To publish does not move the version of the run: only its owner does, and nobody else asks how far the streams have
come; whoever sends a signal to a run that publishes all the time must not be overtaken each time. So the commit
compares, beside the version of the run, how far each stream has come.
"""

from collections.abc import Sequence

from perdure.model.records import StreamItemRecord, StreamRecord
from perdure.model.streams import floor_of
from perdure.store.optimistic.changes import StreamChange
from perdure.store.optimistic.known import NEW
from perdure.store.optimistic.needs import Looks
from perdure.store.optimistic.rows import LookedAt


class StreamRows(LookedAt):
    """What runs publish in one batch."""

    def __init__(self, looks: Looks) -> None:
        super().__init__(looks)
        self._moved_streams: dict[str, dict[str, StreamRecord]] = {}  # by run
        self._new_stream_items: list[StreamItemRecord] = []

    def streams(self, run_id: str) -> dict[str, StreamRecord]:
        return {**self._stored_streams(run_id), **self._moved_streams.get(run_id, {})}

    def _stored_streams(self, run_id: str) -> dict[str, StreamRecord]:
        kept = self._slice(run_id)
        if kept is None or kept.change == NEW:
            return {}
        if kept.streams is None:
            self.missing.add(("streams", run_id))
            return {}
        return kept.streams

    def append_to_stream(self, stream: StreamRecord, items: Sequence[StreamItemRecord]) -> None:
        self._moved_streams.setdefault(stream.run_id, {})[stream.stream] = stream
        self._new_stream_items += items

    def _forget_run(self, run_id: str) -> None:
        super()._forget_run(run_id)
        if self._moved_streams.pop(run_id, None) is not None:
            items = self._new_stream_items
            self._new_stream_items = [one for one in items if one.run_id != run_id]

    def _stream_changes(self) -> list[StreamChange]:
        return [
            _change(one, self._stored_streams(run_id).get(one.stream))
            for run_id, moved in self._moved_streams.items()
            for one in moved.values()
        ]

    def _remember_streams(self) -> None:
        for run_id, moved in self._moved_streams.items():
            kept = self._known.runs.get(run_id)
            if kept is not None and kept.streams is not None:
                kept.streams = {**kept.streams, **moved}


def _change(stream: StreamRecord, before: StreamRecord | None) -> StreamChange:
    position_min, bytes_min = floor_of(stream)
    return StreamChange(
        run_id=stream.run_id,
        stream=stream.stream,
        last=stream.last,
        bytes_all=stream.bytes_all,
        seen=0 if before is None else before.last,
        position_min=position_min,
        bytes_min=bytes_min,
    )
