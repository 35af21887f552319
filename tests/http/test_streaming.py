"""Server-sent events: in order, from where the reader was, as asked for, and bounded."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from asking import arrived, note, serving, shop

from perdure import App, CursorTooOld, Overloaded
from perdure.http import streaming
from perdure.http.streaming import Feed, Wish, _Reader
from perdure.model import limits
from perdure.model.topics import parse_pattern

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


async def test_there_is_a_bound_on_runs_that_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "http_watched_runs_max", 3)
    async with shop() as app:
        feed = Feed(app)
        first = feed.follow(Wish(None, None), None, ("a", "b"))
        await anext(first)
        with pytest.raises(Overloaded, match="http_watched_runs_max"):
            await anext(feed.follow(Wish(None, None), None, ("c", "d")))
        same = feed.follow(Wish(None, None), None, ("b", "c"))
        assert [(await anext(same))[0] for _ in range(3)] == ["position", "run", "run"]
        await same.aclose()  # type: ignore[attr-defined]
        await first.aclose()  # type: ignore[attr-defined]


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


async def test_large_events_cut_a_slow_reader_off_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "http_stream_backlog_bytes_max", 5_000)
    async with shop() as app:
        feed = Feed(app)
        slow, quick = (feed.follow(Wish(None, None), None, ()) for _ in range(2))
        assert (await anext(slow))[0] == (await anext(quick))[0] == "position"
        for count in range(20):
            await app.emit("letters", [count, "x" * 1_000])
            assert (await anext(quick))[2].payload[0] == count
        told = [one[2].payload[0] async for one in slow]
        assert told == list(range(5))
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
        assert feed._heard.set not in app._engine().coordinator.on_batch


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


async def test_readers_who_join_at_once_are_each_told_everything_once(tmp_path: Path) -> None:
    """Where a read takes its time, several find that nobody reads along yet."""
    async with shop(f"sqlite:///{tmp_path}/shop.db") as app:
        feed = Feed(app)
        readers = [feed.follow(Wish(None, None), None, ()) for _ in range(5)]
        emitting = asyncio.create_task(app.emit_many([(arrived, count) for count in range(5)]))
        began = await asyncio.gather(*(anext(one) for one in readers))
        await emitting
        await app.emit(arrived, 99)
        for (_, at, _), reader in zip(began, readers, strict=True):
            positions = [int(at or "")]
            async for _, position, event in reader:
                positions.append(int(position or ""))
                if event.payload == 99:
                    break
            assert positions == list(range(positions[0], positions[-1] + 1))
            await reader.aclose()  # type: ignore[attr-defined]


async def test_a_reader_who_is_ahead_of_the_feed_hears_nothing_twice(tmp_path: Path) -> None:
    """What it saw at another server, this one may not have read yet."""
    url = f"sqlite:///{tmp_path}/shop.db"
    async with shop(url) as app, shop(url) as elsewhere:
        feed = Feed(app)
        other = feed.follow(Wish(None, None), None, ())
        await anext(other)
        await elsewhere.emit_many([(arrived, count) for count in range(3)])
        ahead = feed.follow(Wish(None, None), 3, ())
        assert (await anext(ahead))[1] == "3"
        await elsewhere.emit(arrived, 3)
        assert (await anext(ahead))[1] == "4"
        await ahead.aclose()  # type: ignore[attr-defined]
        await other.aclose()  # type: ignore[attr-defined]


async def test_what_was_trimmed_is_not_skipped_in_silence() -> None:
    async with shop() as app:
        await app.emit_many([(arrived, count) for count in range(10)])
        feed = Feed(app)
        await app.trim_ledger(keep=3, force=True)
        behind = feed.follow(Wish(None, None), 4, ())
        with pytest.raises(CursorTooOld, match="position 8"):
            await anext(behind)
        all_there_is = feed.follow(Wish(None, None), 0, ())
        assert [(await anext(all_there_is))[1] for _ in range(3)] == ["8", "9", "10"]
        await all_there_is.aclose()  # type: ignore[attr-defined]


async def test_a_burst_cannot_pass_the_bound_on_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "http_streams_max", 2)
    async with served() as (_, url):

        async def status() -> int:
            async with following(url) as stream:
                await asked.wait()
                return stream.answer.status_code

        asked = asyncio.Barrier(10)
        found = await asyncio.gather(*(status() for _ in range(10)))
        assert sorted(found) == [200] * 2 + [429] * 8


RARE = Wish(parse_pattern("stock.*"), None)


async def test_who_wants_little_is_told_what_was_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it comes back to the little it saw, and is told that events are gone which it never wanted."""
    monkeypatch.setattr(streaming, "_passed_over_s", 0.0)
    async with served() as (app, url):
        await app.emit(arrived, 1)
        async with following(url, "?pattern=stock.*&after=0") as stream:
            await stream.until("position")
            for count in range(30):
                await app.emit("noise", count)
            newest = (await app.events(limit=1_000))[-1].position
            while (last := (await stream.until("position")).id) != str(newest):
                pass
        await app.trim_ledger(keep=5, force=True)
        async with following(url, "?pattern=stock.*&after=0", last) as stream:
            assert stream.answer.status_code == 200
            assert (await stream.until("position")).id == last
            await app.emit(arrived, 2)
            assert (await stream.until("event")).data["payload"] == 2


async def test_what_is_passed_over_is_told_seldom() -> None:
    """Once in a while, if there is anything, and not to one who has yet to take what waits."""
    async with shop() as app:
        wanted = await app.emit(arrived, 1)
        (event,) = [one for one in await app.events() if one.event_id == wanted.event_id]  # type: ignore[union-attr]
    at = event.position
    reader = _Reader(RARE, 0, ())
    reader.begin(at - 1, now_s=100)
    reader.pass_over(at - 1, 200, every_s=5)
    reader.hear(event, 1)
    reader.pass_over(at + 3, 300, every_s=5)
    assert (await reader.next() or ("",))[:2] == ("event", str(at))
    reader.pass_over(at + 4, 400, every_s=5)
    reader.pass_over(at + 5, 401, every_s=5)
    assert (await reader.next() or ("",))[:2] == ("position", str(at + 4))
    reader.pass_over(at + 5, 404, every_s=5)
    reader.pass_over(at + 6, 405, every_s=5)
    assert (await reader.next() or ("",))[:2] == ("position", str(at + 6))
    reader.end()
    assert await reader.next() is None


@pytest.mark.parametrize(
    ("readers", "after_s", "are_told"), [(1, 1, True), (600, 1, False), (600, 3, True)]
)
async def test_the_more_follow_the_less_often_each_is_told_that(
    monkeypatch: pytest.MonkeyPatch, readers: int, after_s: float, are_told: bool
) -> None:
    monkeypatch.setattr(streaming, "_now_s", lambda: 100 + after_s)
    async with shop() as app:
        feed = Feed(app)
        for _ in range(readers):
            reader = _Reader(RARE, 0, ())
            reader.begin(5, now_s=100)
            feed._readers.add(reader)
        feed._position = 6
        feed._tell_passed()
        assert {one._queue.empty() for one in feed._readers} == {not are_told}


async def test_who_begins_far_back_is_told_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_passed_over_rows", 150)
    async with shop() as app:
        await app.emit_many([("noise", count) for count in range(500)])
        found = Feed(app).follow(RARE, 0, ())
        told = [await anext(found) for _ in range(3)]
        assert [name for name, _, _ in told] == ["position"] * 3
        assert [int(id or "") for _, id, _ in told] == [200, 400, 500]
        await found.aclose()  # type: ignore[attr-defined]


async def test_those_who_join_at_once_cannot_pass_the_bound_on_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where a read takes its time, all of them have asked before the first one is in."""
    monkeypatch.setattr(limits, "http_watched_runs_max", 3)
    async with shop(f"sqlite:///{tmp_path}/shop.db") as app:
        feed = Feed(app)
        readers = [feed.follow(Wish(None, None), None, (f"{n}a", f"{n}b")) for n in range(5)]
        began = await asyncio.gather(*(anext(one) for one in readers), return_exceptions=True)
        assert [isinstance(one, Overloaded) for one in began].count(True) == 4
        for one in readers:
            await one.aclose()  # type: ignore[attr-defined]
