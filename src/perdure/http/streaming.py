"""Server-sent events: the ledger as it grows, runs as they change, a stream of a run.

One feed reads the ledger for all who follow it, and tells each what it asked for; a reader that is too slow is cut off,
and comes back with the last position it saw (`Last-Event-ID`), so nobody holds up others and nothing is missed. A feed
hears of commits at once, of those of other processes by hints, and behind that looks once a second. Nothing is written.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from perdure.app import App
from perdure.engine import Engine
from perdure.errors import LedgerRewound, Overloaded, PerdureError, RunNotFound
from perdure.http import wire
from perdure.http.ending import Ending, until
from perdure.http.handling import Call, item_line
from perdure.http.problems import problem_of
from perdure.http.routes import Route
from perdure.inputs import checked_position
from perdure.model import limits
from perdure.model.events import Event, event_of
from perdure.model.limits import BadValue, check_entity, check_run_id
from perdure.model.topics import Pattern, parse_pattern
from perdure.views import RunInfo, run_info

log = logging.getLogger("perdure.http")

_ping_s = 15
_look_every_s = 1.0
_headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_digits = re.compile(r"\d{1,19}")

# What a reader is told: the name of the message, its id if it has one, its data.
Message = tuple[str, str | None, Any]
Shown = Callable[[Any], bytes]


class Wish(msgspec.Struct, frozen=True):
    """Which events a reader asks for."""

    pattern: Pattern | None
    entity: tuple[str, str] | None

    def wants(self, event: Event) -> bool:
        if self.pattern is not None and not self.pattern.matches(event.type):
            return False
        return self.entity is None or self.entity == (event.entity_type, event.entity_id)


class _Reader:
    """One who follows, and what waits for them. `after` is the position they have been given everything up to."""

    def __init__(self, wish: Wish, runs: tuple[str, ...]) -> None:
        self.wish, self.runs = wish, runs
        self.queue: asyncio.Queue[Message | None] = asyncio.Queue(limits.http_stream_backlog_max)
        self.cut_off = False

    def tell(self, message: Message) -> None:
        if self.cut_off:
            return
        try:
            self.queue.put_nowait(message)
        except asyncio.QueueFull:
            self.end()

    def end(self) -> None:
        """No more for this one than waits already: it comes back where it was."""
        self.cut_off = True
        with suppress(asyncio.QueueFull):  # one that is full needs no waking
            self.queue.put_nowait(None)

    async def next(self) -> Message | None:
        """What waits, in its order; None once there will be no more."""
        if self.cut_off and self.queue.empty():
            return None
        return await self.queue.get()


class Feed:
    """Reads along for all who follow; at work only while somebody does."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._readers: set[_Reader] = set()
        self._task: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self._position = 0
        self._seen: dict[str, RunInfo | None] = {}
        self.open_streams = 0

    async def follow(
        self, wish: Wish, after: int | None, runs: tuple[str, ...]
    ) -> AsyncIterator[Message]:
        """Events after a position, or from now on, and each change of these runs, beginning with how they are."""
        engine = self._app._engine()
        reader = _Reader(wish, runs)
        position = await self._join(engine, reader)
        try:
            async for message in self._before(engine, wish, after, position):
                yield message
            yield "position", str(position), wire.Value(position)
            for run_id in runs:
                yield "run", None, await _look_at(engine, run_id)
            while (told := await reader.next()) is not None:
                yield told
        finally:
            self._readers.discard(reader)

    async def _join(self, engine: Engine, reader: _Reader) -> int:
        """From this position on the reader hears of everything."""
        if self._task is None or self._task.done():
            self._position = (await engine.store.span())[1]
            self._seen = {}
            self._task = asyncio.create_task(self._read_along(engine), name="perdure-http-feed")
        self._readers.add(reader)
        return self._position

    async def _before(
        self, engine: Engine, wish: Wish, after: int | None, upto: int
    ) -> AsyncIterator[Message]:
        """What came between the position that was asked for and the one we hear from."""
        if after is None:
            return
        if after > upto and after > (await engine.store.span())[1]:
            raise LedgerRewound(after, upto)
        while after < upto:
            rows = await engine.store.events(after, limits.page_rows_max)
            for row in rows:
                if row.position > upto:
                    return
                event = event_of(row)
                if wish.wants(event):
                    yield "event", str(event.position), event
            if not rows:
                return
            after = rows[-1].position

    # --- reading along ---

    async def _read_along(self, engine: Engine) -> None:
        engine.coordinator.on_batch.append(self._heard.set)
        try:
            while self._readers and not engine.coordinator.hub.closed:
                self._heard.clear()
                await self._tell_events(engine)
                await self._tell_runs(engine)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_look_every_s):
                        await self._heard.wait()
        except (
            PerdureError
        ) as error:  # the store is away: who followed comes back, and is told then
            log.warning("following the ledger has ended: %s", error)
        finally:
            engine.coordinator.on_batch.remove(self._heard.set)
            for reader in self._readers:
                reader.end()

    async def _tell_events(self, engine: Engine) -> None:
        while rows := await engine.store.events(self._position, limits.page_rows_max):
            for row in rows:
                event = event_of(row)
                for reader in self._readers:
                    if reader.wish.wants(event):
                        reader.tell(("event", str(event.position), event))
            self._position = rows[-1].position

    async def _tell_runs(self, engine: Engine) -> None:
        watched = {run_id for reader in self._readers for run_id in reader.runs}
        for gone in self._seen.keys() - watched:
            del self._seen[gone]
        for run_id in watched:
            now = await _look_at(engine, run_id)
            if run_id in self._seen and self._seen[run_id] == now:
                continue
            self._seen[run_id] = now
            for reader in self._readers:
                if run_id in reader.runs:
                    reader.tell(("run", None, now))


async def _look_at(engine: Engine, run_id: str) -> RunInfo | None:
    row = await engine.store.run(run_id)
    return None if row is None else run_info(row)


# --- answers ---


async def stream(app: App, feed: Feed, route: Route, call: Call, show: Shown) -> Response:
    """The response of a route that streams. What is wrong with the request is raised here, before anything is sent."""
    if feed.open_streams >= limits.http_streams_max:
        raise Overloaded(
            f"this server feeds {limits.http_streams_max} streams already (http_streams_max); try again later"
        )
    maker = _makers[route.verb]
    ending = Ending()
    messages = until(ending, await maker(app, feed, call))
    return EventSourceResponse(
        _sent(feed, messages, show),
        ping=_ping_s,
        headers=_headers,
        send_timeout=30,
        shutdown_event=ending,  # type: ignore[arg-type]  # it is told as an event is
        shutdown_grace_period=1,
    )


async def _sent(
    feed: Feed, messages: AsyncIterator[Message], show: Shown
) -> AsyncIterator[ServerSentEvent]:
    feed.open_streams += 1
    try:
        async with aclosing(messages) as found:  # type: ignore[type-var]
            async for name, id, value in found:
                yield ServerSentEvent(data=show(value).decode(), event=name, id=id)
    except PerdureError as error:
        # The status is sent by now: the reason goes as the last message.
        yield ServerSentEvent(data=msgspec.json.encode(problem_of(error)).decode(), event="problem")
    finally:
        feed.open_streams -= 1


async def _follow(app: App, feed: Feed, call: Call) -> AsyncIterator[Message]:
    query: wire.FollowQuery = call.query
    pattern = None if query.pattern is msgspec.UNSET else parse_pattern(query.pattern)
    entity = None if query.entity is msgspec.UNSET else check_entity(query.entity)
    runs = () if query.run is msgspec.UNSET else tuple(dict.fromkeys(map(check_run_id, query.run)))
    if len(runs) > limits.http_stream_runs_max:
        most = f"at most {limits.http_stream_runs_max} (http_stream_runs_max)"
        raise BadValue("run", limits.unsaid, f"names {len(runs)} runs; {most}")
    after = None if query.after is msgspec.UNSET else checked_position(query.after)
    after = _last_seen(call, after)
    if after is not None:
        last = (await app._engine().store.span())[1]
        if after > last:
            raise LedgerRewound(after, last)
    app._engine()
    return feed.follow(Wish(pattern, entity), after, runs)


async def _stream(app: App, feed: Feed, call: Call) -> AsyncIterator[Message]:
    query: wire.StreamQuery = call.query
    given = None if query.after is msgspec.UNSET else checked_position(query.after)
    after = _last_seen(call, given) or 0
    handle = app.run(call.path["run_id"])
    items = handle.stream(call.path["name"], after=after)
    if await app._engine().store.run(handle.id) is None:
        raise RunNotFound(handle.id)

    async def messages() -> AsyncIterator[Message]:
        async with aclosing(items) as found:
            async for one in found:
                yield "item", str(one.position), item_line(app, one)
        yield "end", None, wire.Value(await handle.status())

    return messages()


_makers: dict[str, Callable[[App, Feed, Call], Awaitable[AsyncIterator[Message]]]] = {
    "follow": _follow,
    "stream": _stream,
}


def _last_seen(call: Call, otherwise: int | None) -> int | None:
    """Where a browser that lost its connection goes on."""
    text = call.headers.get("last-event-id")
    if text is None or text == "":
        return otherwise
    if not _digits.fullmatch(text):
        raise BadValue("Last-Event-ID", text, "is not a position that this server gave")
    return checked_position(int(text))
