"""Server-sent events: the ledger as it grows, runs as they change, a stream of a run.

One feed reads the ledger for all who follow it, and tells each what it asked for; a reader that is too slow is cut off,
and comes back with the last position it saw (`Last-Event-ID`), so nobody holds up others and nothing is missed. Who
asked for little is told now and then how far was read for it: else it would come back to where the little was, have it
all read again, and be told of events that were trimmed, none of which it wanted. A feed hears of commits at once, of
those of other processes by hints, and behind that looks once a second. Nothing is written.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Final

import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perdure.app import App
from perdure.engine import Engine
from perdure.errors import CursorTooOld, LedgerRewound, Overloaded, PerdureError, RunNotFound
from perdure.following import hears
from perdure.http import wire
from perdure.http.handling import Call, item_line
from perdure.http.problems import told_problem_of
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
# Events that are read at once: each may be as large as a payload.
_page_rows = 100
# A connection that takes nothing for so long is given up, with its place.
_send_timeout_s = 30
_farewell_s = 1
# How often a reader is told how far the ledger was read for it, if nothing else tells; and all readers together.
_passed_over_s = 1.0
_passed_over_per_s_max = 200
# The same of one who begins far back, by events.
_passed_over_rows = 1_000
# What is done by then is answered as everything else is, with its own status.
_at_once_s = 10
STREAM_TYPE: Final = "text/event-stream"
_headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_digits = re.compile(r"\d{1,19}")

# What a reader is told: the name of the message, its id if it has one, its data.
Message = tuple[str, str | None, Any]
Shown = Callable[[Any], Awaitable[bytes]]


class Wish(msgspec.Struct, frozen=True):
    """Which events a reader asks for."""

    pattern: Pattern | None
    entity: tuple[str, str] | None

    def wants(self, event: Event) -> bool:
        if self.pattern is not None and not self.pattern.matches(event.type):
            return False
        return self.entity is None or self.entity == (event.entity_type, event.entity_id)


class _Reader:
    """One who follows, and what waits for them: events after a position, and changes of runs."""

    def __init__(self, wish: Wish, after: int, runs: tuple[str, ...]) -> None:
        self._wish, self._after, self.runs = wish, after, runs
        self._unseen = set(runs)
        self._queue: asyncio.Queue[tuple[Message, int] | None] = asyncio.Queue(
            limits.http_stream_backlog_max
        )
        self._held_bytes = 0
        self._cut_off = False
        self._told, self._told_s = 0, 0.0

    def begin(self, position: int, now_s: float) -> None:
        """Up to here it is told by others."""
        self._told, self._told_s = max(position, self._after), now_s

    def hear(self, event: Event, size: int) -> None:
        # One who was told elsewhere may be ahead of what is read here.
        if event.position > self._after and self._wish.wants(event):
            self._told = event.position
            self._tell(("event", str(event.position), event), size)

    def pass_over(self, position: int, now_s: float, every_s: float) -> None:
        """Up to here there was nothing more for it. One who has yet to take what waits is told some other time."""
        if position > self._told and now_s - self._told_s >= every_s and self._queue.empty():
            self._told, self._told_s = position, now_s
            self._tell(_passed(position), 0)

    def see(self, run_id: str, run: RunInfo | None, *, changed: bool) -> None:
        if changed or run_id in self._unseen:
            self._unseen.discard(run_id)
            self._tell(("run", None, run), 0)

    def _tell(self, message: Message, size: int) -> None:
        if self._cut_off:
            return
        if self._held_bytes > limits.http_stream_backlog_bytes_max or self._queue.full():
            self.end()
        else:
            self._held_bytes += size
            self._queue.put_nowait((message, size))

    def end(self) -> None:
        """No more for this one than waits already: it comes back where it was."""
        self._cut_off = True
        with suppress(asyncio.QueueFull):  # one that is full needs no waking
            self._queue.put_nowait(None)

    async def next(self) -> Message | None:
        """What waits, in its order; None once there will be no more."""
        if self._cut_off and self._queue.empty():
            return None
        found = await self._queue.get()
        if found is None:
            return None
        message, size = found
        self._held_bytes -= size
        return message


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
        reader = _Reader(wish, after or 0, runs)
        position = await self._join(engine, reader)
        try:
            if after is not None:
                async for message in _between(engine, wish, after, position):
                    yield message
                position = max(position, after)
            yield _passed(position)
            while (told := await reader.next()) is not None:
                yield told
        finally:
            self._readers.discard(reader)

    async def _join(self, engine: Engine, reader: _Reader) -> int:
        """From this position on the reader hears of everything."""
        _, newest = await engine.store.span()
        # Nothing is awaited from here on: of several who find that nobody reads along, one begins, and all are counted.
        watched = {run_id for one in (*self._readers, reader) for run_id in one.runs}
        if len(watched) > limits.http_watched_runs_max:
            most = f"{limits.http_watched_runs_max} runs (http_watched_runs_max)"
            raise Overloaded(f"the streams of this server watch {most} already; try again later")
        if self._task is None or self._task.done():
            self._position, self._seen = newest, {}
            self._task = asyncio.create_task(self._read_along(engine), name="perdure-http-feed")
        reader.begin(self._position, _now_s())
        self._readers.add(reader)
        self._heard.set()  # its runs are to be looked at
        return self._position

    # --- reading along ---

    async def _read_along(self, engine: Engine) -> None:
        engine.coordinator.on_batch.append(self._heard.set)
        try:
            while self._readers and not engine.coordinator.hub.closed:
                self._heard.clear()
                await self._tell_events(engine)
                await self._tell_runs(engine)
                self._tell_passed()
                if not await hears(self._heard, _look_every_s):
                    await check_place(engine, self._position)
        except PerdureError as error:  # who followed comes back, and is told then
            log.warning("following the ledger has ended: %s", error)
        except Exception:
            log.exception("following the ledger has ended")
        finally:
            engine.coordinator.on_batch.remove(self._heard.set)
            for reader in self._readers:
                reader.end()

    async def _tell_events(self, engine: Engine) -> None:
        while rows := await engine.store.events(self._position, _page_rows):
            if rows[0].position > self._position + 1:  # trimmed before it was read
                raise CursorTooOld(None, rows[0].position)
            for row in rows:
                event, size = event_of(row), len(row.payload)
                for reader in self._readers:
                    reader.hear(event, size)
            self._position = rows[-1].position

    def _tell_passed(self) -> None:
        now_s = _now_s()
        every_s = max(_passed_over_s, len(self._readers) / _passed_over_per_s_max)
        for reader in self._readers:
            reader.pass_over(self._position, now_s, every_s)

    async def _tell_runs(self, engine: Engine) -> None:
        watched: dict[str, list[_Reader]] = {}
        for reader in self._readers:
            for run_id in reader.runs:
                watched.setdefault(run_id, []).append(reader)
        seen = {}
        for run_id, readers in watched.items():
            row = await engine.store.run(run_id)
            now = seen[run_id] = None if row is None else run_info(row)
            changed = run_id not in self._seen or self._seen[run_id] != now
            for reader in readers:
                reader.see(run_id, now, changed=changed)
        self._seen = seen


async def check_place(engine: Engine, after: int) -> None:
    """Raises LedgerRewound or CursorTooOld if not all that comes after this position is there. 0 is the beginning."""
    oldest, newest = await engine.store.span()
    if after > newest:
        raise LedgerRewound(after, newest)
    if 0 < after < oldest - 1:
        raise CursorTooOld(None, oldest)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _passed(position: int) -> Message:
    return "position", str(position), wire.Value(position)


async def _between(engine: Engine, wish: Wish, after: int, upto: int) -> AsyncIterator[Message]:
    """What came between the position that was asked for and the one that the feed tells from."""
    await check_place(engine, after)
    told = after
    type = None if wish.pattern is None else wish.pattern.literal
    while after < upto:
        rows = await engine.store.events(after, _page_rows, type=type, entity=wish.entity)
        await check_place(engine, after)  # still there while it was read
        for row in rows:
            if row.position > upto:
                return
            event = event_of(row)
            if wish.wants(event):
                told = row.position
                yield "event", str(told), event
        if not rows:
            return
        after = rows[-1].position
        if after - told >= _passed_over_rows:
            told = after
            yield _passed(told)


# --- answers ---


async def stream(app: App, feed: Feed, route: Route, call: Call, show: Shown) -> Response:
    """The response of a route that streams. What is wrong with the request is raised here, before anything is sent."""
    messages = await _makers[route.verb](app, feed, call)
    if feed.open_streams >= limits.http_streams_max:
        raise Overloaded(
            f"this server feeds {limits.http_streams_max} streams already (http_streams_max); try again later"
        )
    return _Stream(feed, _sent(messages, show))


class _Stream(EventSourceResponse):
    """One of the streams that this server feeds. It counts from when it was granted: nothing is awaited in between."""

    def __init__(self, feed: Feed, content: AsyncIterator[ServerSentEvent]) -> None:
        super().__init__(content, ping=_ping_s, headers=_headers, send_timeout=_send_timeout_s)
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._feed.open_streams += 1
        try:
            await super().__call__(scope, receive, send)
            # Broken off, as the server is to stop; after a whole message, for each is one send.
            if self.active:
                async with asyncio.timeout(_farewell_s):
                    await send({"type": "http.response.body", "body": b""})
        except* SendTimeoutError:
            log.info("one who follows has taken nothing for %s s: given up", _send_timeout_s)
        except* TimeoutError:
            pass
        finally:
            self._feed.open_streams -= 1


async def _sent(messages: AsyncIterator[Message], show: Shown) -> AsyncIterator[ServerSentEvent]:
    try:
        async with aclosing(messages) as found:  # type: ignore[type-var]
            async for name, id, value in found:
                yield ServerSentEvent(data=(await show(value)).decode(), event=name, id=id)
    except PerdureError as error:
        # The status is sent by now: the reason goes as the last message.
        reason = await show(told_problem_of(error))
        yield ServerSentEvent(data=reason.decode(), event="problem")


async def _follow(app: App, feed: Feed, call: Call) -> AsyncIterator[Message]:
    query: wire.FollowQuery = call.query
    pattern = None if query.pattern is msgspec.UNSET else parse_pattern(query.pattern)
    entity = None if query.entity is msgspec.UNSET else check_entity(query.entity)
    runs = () if query.run is msgspec.UNSET else tuple(dict.fromkeys(map(check_run_id, query.run)))
    if len(runs) > limits.http_stream_runs_max:
        most = f"at most {limits.http_stream_runs_max} (http_stream_runs_max)"
        raise BadValue("run", limits.unsaid, f"names {len(runs)} runs; {most}")
    given = None if query.after is msgspec.UNSET else checked_position(query.after)
    after = _last_seen(call, given)
    if after is not None:
        await check_place(app._engine(), after)
    return feed.follow(Wish(pattern, entity), after, runs)


async def _stream(app: App, feed: Feed, call: Call) -> AsyncIterator[Message]:
    query: wire.StreamFollowQuery = call.query
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


# --- what takes long ---


async def at_length(feed: Feed, work: Coroutine[Any, Any, Response]) -> Response:
    """The response of a route that takes as long as there is to do.

    If it takes longer than a moment, it is a stream with signs of life, and at its end one message: `answer`, or
    `problem`, with what would have been the body. Who goes away stops it, as does a server that is to stop: what was
    committed by then stays, and nobody is left who works for nobody.
    """
    task = asyncio.create_task(work, name="perdure-http-work")
    try:
        await asyncio.wait({task}, timeout=_at_once_s)
    except asyncio.CancelledError:
        task.cancel()
        raise
    return task.result() if task.done() else _Work(feed, task)


class _Work(_Stream):
    """A stream that tells nothing but that something goes on, and then what came of it."""

    def __init__(self, feed: Feed, task: asyncio.Task[Response]) -> None:
        super().__init__(feed, _outcome(task))
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._task.cancel()
            await asyncio.wait({self._task})


async def _outcome(task: asyncio.Task[Response]) -> AsyncIterator[ServerSentEvent]:
    response = await task
    name = "answer" if response.status_code < 400 else "problem"
    yield ServerSentEvent(data=bytes(response.body).decode(), event=name)
