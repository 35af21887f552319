"""Streams: what is kept of one, and what a reply says.

Every store keeps the newest items of a stream, by one rule that needs no look at the items themselves: each knows how
many bytes were published before it.
"""

import msgspec

from perdure.model import limits
from perdure.model.records import StreamRecord

# The name of a step that answers a signal: nobody reads it along, whoever asked finds it by the signal. No name of a
# user's can hold the mark.
REPLIES = "!replies"


class Reply(msgspec.Struct, frozen=True, gc=False):
    """What such a step hands over: which signal it answers, and with what."""

    signal_id: str
    value: msgspec.Raw


def floor_of(stream: StreamRecord) -> tuple[int, int]:
    """What an item needs to be kept, at least: its position, and the bytes that were published before it.

    Both grow along a stream, so what goes are always the oldest; the newest one is always kept.
    """
    return (
        stream.last - limits.stream_items_max + 1,
        stream.bytes_all - limits.stream_bytes_max,
    )


def may_be_over(stream: StreamRecord) -> bool:
    """Whether it was ever long enough that something may have to go."""
    position, size = floor_of(stream)
    return position > 1 or size > 0
