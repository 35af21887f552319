"""Streams are told that their server is to stop, wherever they stand."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.http.ending import Ending, until


class Source:
    """Items as they are put there; knows when nobody reads it any more."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[int] = asyncio.Queue()
        self.is_closed = False

    async def read(self) -> AsyncIterator[int]:
        try:
            while True:
                yield await self.items.get()
        finally:
            self.is_closed = True


async def test_a_stream_that_waits_ends_at_once() -> None:
    source, ending = Source(), Ending()
    found = until(ending, source.read())
    source.items.put_nowait(1)
    assert await anext(found) == 1
    rest = asyncio.ensure_future(anext(found, None))
    await asyncio.sleep(0)
    assert not rest.done()
    ending.set()
    async with asyncio.timeout(20):
        assert await rest is None
    assert source.is_closed


async def test_a_stream_that_is_being_written_ends_with_that_message() -> None:
    source, ending = Source(), Ending()
    found = until(ending, source.read())
    for one in (1, 2):
        source.items.put_nowait(one)
    assert await anext(found) == 1
    ending.set()
    assert [one async for one in found] == []
    assert source.is_closed


async def test_another_timeout_is_no_end() -> None:
    async def late() -> AsyncIterator[int]:
        yield 1
        raise TimeoutError("of a store")

    found = until(Ending(), late())
    assert await anext(found) == 1
    with pytest.raises(TimeoutError, match="of a store"):
        await anext(found)


async def test_items_that_end_by_themselves() -> None:
    async def few() -> AsyncIterator[int]:
        yield 1

    assert [one async for one in until(Ending(), few())] == [1]
