"""Reading along what a run publishes: what is there, then what comes, until the run has ended.

A reader hears of new items by the wakes of its process, and of other processes by their hints. Both may be lost: behind
them is a slow look at the store, which is the truth. Nothing is written, and nobody knows who reads.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from perdure.coordinator.wake import WakeHub
from perdure.errors import NotRunning, RunNotFound
from perdure.inputs import decoded_item
from perdure.model import limits
from perdure.model.clock import to_datetime
from perdure.model.codec import Codec
from perdure.model.records import StreamItemRecord
from perdure.model.status import TERMINAL
from perdure.store.base import Store
from perdure.views import StreamInfo, StreamItem

_look_every_s = 2.0
_look_soon_s = 0.5  # where no hints come


async def items(
    store: Store,
    hub: WakeHub,
    run_id: str,
    stream: str,
    after: int,
    codec: Codec,
    *,
    follow: bool,
) -> AsyncGenerator[StreamItem[Any], None]:
    """What a run publishes to a stream, decoded."""
    async with aclosing(pages(store, hub, run_id, stream, after, follow=follow)) as found:
        async for page in found:
            for row in page:
                yield _item(row, codec)


async def pages(
    store: Store,
    hub: WakeHub,
    run_id: str,
    stream: str,
    after: int,
    *,
    follow: bool,
) -> AsyncGenerator[list[StreamItemRecord], None]:
    """What a run publishes to a stream, as it comes."""
    if await store.run(run_id) is None:
        raise RunNotFound(run_id)
    upto = None if follow else await last_position(store, run_id, stream)
    every_s = look_every_s(store)
    has_ended = False
    with hub.listening(run_id, run_id) as heard:
        while upto is None or after < upto:
            if hub.closed:
                raise NotRunning(
                    f"the app was closed while the streams of run {run_id!r} were read"
                )
            heard.clear()
            page = await store.stream_items(run_id, stream, after, limits.page_rows_max)
            if page:
                after = page[-1].position
                yield [one for one in page if upto is None or one.position <= upto]
            elif has_ended:
                return
            elif await _has_ended(store, run_id):
                has_ended = True  # all that it has published is there by now: look once more
            else:
                await hears(heard, every_s)


async def last_position(store: Store, run_id: str, stream: str) -> int:
    """Where a stream ends by now; 0 if there is none."""
    return next((one.last for one in await store.streams(run_id) if one.stream == stream), 0)


async def infos(store: Store, run_id: str) -> list[StreamInfo]:
    """The streams of a run that are its users' affair."""
    if await store.run(run_id) is None:
        raise RunNotFound(run_id)
    return [
        StreamInfo(name=one.stream, first=one.first, last=one.last)
        for one in await store.streams(run_id)
    ]


async def _has_ended(store: Store, run_id: str) -> bool:
    run = await store.run(run_id)
    return run is None or run.status in TERMINAL


def look_every_s(store: Store) -> float:
    """How long one who hears nothing waits before it looks."""
    return _look_every_s if store.sends_hints else _look_soon_s


async def hears(heard: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await heard.wait()
    except TimeoutError:
        return False


def _item(row: StreamItemRecord, codec: Codec) -> StreamItem[Any]:
    what = f"item {row.position} of stream {row.stream!r}"
    value = decoded_item(codec, what, row.item)
    return StreamItem(
        position=row.position,
        value=value,
        path=row.path,
        attempt=row.attempt,
        published_at=to_datetime(row.published_at),
    )
