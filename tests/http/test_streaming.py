"""Server-sent events: in order, from where the reader was, as asked for, and bounded."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from asking import arrived, note, serving, shop

from perdure import App
from perdure.http import streaming
from perdure.http.streaming import Feed, Wish
from perdure.model import limits

API = "/api/v1"


@dataclass
class Told:
    """A message as a browser reads it."""

    event: str
    id: str | None
    data: Any


class Stream:
    """What a server tells, message by message."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> Told | None:
        """The next message; None at the end."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(20):
            async for line in self._lines:
                if line.startswith(":"):
                    continue
                if line:
                    name, _, text = line.partition(": ")
                    fields[name] = text
                elif fields:
                    return Told(fields["event"], fields.get("id"), json.loads(fields["data"]))
        return None

    async def until(self, event: str) -> Told:
        while (told := await self.next()) is not None:
            if told.event == event:
                return told
        raise AssertionError(f"ended without {event}")


@asynccontextmanager
async def following(url: str, query: str = "", last: str | None = None) -> AsyncIterator[Stream]:
    headers = {} if last is None else {"last-event-id": last}
    async with (
        httpx2.AsyncClient(timeout=30) as http,
        http.stream("GET", f"{url}{API}/follow{query}", headers=headers) as answer,
    ):
        yield Stream(answer)


@asynccontextmanager
async def served() -> AsyncIterator[tuple[App, str]]:
    app = shop()
    async with serving(app) as url:
        yield app, url


async def test_events_are_told_as_they_come_and_in_order() -> None:
    async with served() as (app, url), following(url, "?pattern=stock.*") as stream:
        assert stream.answer.headers["content-type"].startswith("text/event-stream")
        start = await stream.until("position")
        assert start.id == str(start.data["value"])
        for count in range(20):
            await app.emit(arrived, count)
        told = [await stream.until("event") for _ in range(20)]
        assert [one.data["payload"] for one in told] == list(range(20))
        positions = [int(one.id or "") for one in told]
        assert positions == sorted(positions)


async def test_a_reader_goes_on_where_it_was_and_misses_nothing() -> None:
    async with served() as (app, url):
        seen: list[int] = []
        last: str | None = None

        async def emitting() -> None:
            for count in range(200):
                await app.emit(arrived, count)

        task: asyncio.Task[None] | None = None
        while len(seen) < 200:
            async with following(url, "?pattern=stock.*", last) as stream:
                if task is None:
                    last = (await stream.until("position")).id
                    task = asyncio.create_task(emitting())
                for _ in range(min(17, 200 - len(seen))):  # then the connection breaks
                    told = await stream.until("event")
                    last = told.id
                    seen.append(told.data["payload"])
        assert task is not None
        await task
        assert seen == list(range(200))


async def test_a_reader_hears_only_of_what_it_asked_for() -> None:
    async with served() as (app, url), following(url, "?entity=sku/7") as stream:
        await stream.until("position")
        await app.emit(arrived, 1, entity="sku/8")
        await app.emit(arrived, 2, entity="sku/7")
        assert (await stream.until("event")).data["payload"] == 2


async def test_runs_are_told_with_each_change() -> None:
    async with served() as (app, url):
        await app.start("decide", "o1", id="seen")
        async with following(url, "?run=seen&run=unborn") as stream:
            told = {}
            while len(told) < 2:
                one = (await stream.until("run")).data
                told["unborn" if one is None else one["id"]] = one
            assert told["unborn"] is None
            await app.signal("seen", "approve", True)
            while (one := (await stream.until("run")).data) is None or one["status"] != "completed":
                pass
            assert one["id"] == "seen"


async def test_a_stream_of_a_run_ends_with_it() -> None:
    async with served() as (app, url), httpx2.AsyncClient(timeout=30) as http:
        await app.start("decide", "o1", id="one")
        path = f"{url}{API}/runs/one/streams/log/follow"
        async with http.stream("GET", path) as answer:
            stream = Stream(answer)
            item = await stream.until("item")
            assert "asked for o1" in json.dumps(item.data)
            await app.signal("one", "approve", True)
            assert (await stream.until("end")).data == {"value": "completed"}
            assert await stream.next() is None
        async with http.stream("GET", path, headers={"last-event-id": item.id or ""}) as answer:
            told = await Stream(answer).next()
            assert told is not None
            assert told.event == "end"  # the item was seen before


@pytest.mark.parametrize(
    ("query", "last", "status", "says"),
    [
        ("", "soon", 422, "Last-Event-ID"),
        ("", "99999999", 409, "99999999"),
        ("?after=99999999", None, 409, "99999999"),
        ("?pattern=a..b", None, 422, "pattern"),
        ("?entity=order", None, 422, "entity"),
        ("?after=x", None, 400, "whole number"),
        ("?" + "&".join(f"run=r{n}" for n in range(101)), None, 422, "http_stream_runs_max"),
    ],
)
async def test_what_cannot_be_followed_is_said_at_once(
    query: str, last: str | None, status: int, says: str
) -> None:
    async with served() as (_, url), following(url, query, last) as stream:
        content = (await stream.answer.aread()).decode()
        assert stream.answer.status_code == status, content
        assert says in content


async def test_there_is_a_bound_on_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "http_streams_max", 2)
    async with served() as (_, url):
        async with following(url) as first, following(url) as second:
            await first.until("position")
            await second.until("position")
            async with following(url) as third:
                assert third.answer.status_code == 429
                assert third.answer.headers["retry-after"] == "1"
        async with asyncio.timeout(20):
            while True:  # the server sees that they have gone a moment later
                async with following(url) as again:
                    if again.answer.status_code == 200:
                        break
                await asyncio.sleep(0)


async def test_a_slow_reader_is_cut_off_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given what waited for it, then the end; from there on it misses nothing, and others never waited."""
    monkeypatch.setattr(limits, "http_stream_backlog_max", 5)
    everything = Wish(None, None)
    async with shop() as app:
        feed = Feed(app)
        slow, quick = feed.follow(everything, None, ()), feed.follow(everything, None, ())
        assert (await anext(slow))[0] == (await anext(quick))[0] == "position"
        for count in range(12):
            await app.emit(arrived, count)
            event = await anext(quick)
            assert event[2].payload == count
        told = [one async for one in slow]
        assert [one[2].payload for one in told] == [0, 1, 2, 3, 4]
        again = feed.follow(everything, int(told[-1][1] or ""), ())
        rest = [(await anext(again))[2].payload for _ in range(7)]
        assert rest == [5, 6, 7, 8, 9, 10, 11]
        await again.aclose()  # type: ignore[attr-defined]
        await quick.aclose()  # type: ignore[attr-defined]


async def test_followers_end_with_the_app() -> None:
    app = shop()
    async with app:
        feed = Feed(app)
        found = feed.follow(Wish(None, None), None, ())
        await anext(found)
    async with asyncio.timeout(20):
        assert [one async for one in found] == []


async def test_nobody_follows_nobody_reads() -> None:
    async with shop() as app:
        feed = Feed(app)
        found = feed.follow(Wish(None, None), None, ())
        await anext(found)
        task = feed._task
        assert task is not None
        await found.aclose()  # type: ignore[attr-defined]
        await app.emit(arrived, 1)
        async with asyncio.timeout(20):
            await task
        assert app._engine().coordinator.on_batch.count(feed._heard.set) == 0


def test_pings_keep_a_quiet_stream_open() -> None:
    """Proxies end what is silent for a minute, often for half of one."""
    assert 0 < streaming._ping_s <= 25


async def test_a_signal_that_is_buffered_is_told_too() -> None:
    async with served() as (app, url):
        await app.start("decide", "o1", id="one")
        async with following(url, "?run=one") as stream:
            await stream.until("run")
            await app.signal("one", note, 1)
            await app.run("one").cancel()
            while (await stream.until("run")).data["status"] != "cancelled":
                pass
