"""The workloads about events on Perdure: appending, fan-out, consumers, matching. One measurement per process.

Handlers and workflows do next to nothing, so what is measured is the engine.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from benchmarks.common import (
    NotAvailable,
    Order,
    Stopwatch,
    Values,
    all_of,
    percentile,
)
from benchmarks.perdure_loads import check, left_in, memory_path, store_url, until_waiting
from perdure import App, Context, Emitted, RunHandle, Topic, workflow
from perdure.model.topics import PatternIndex, parse_pattern

_call_events = 10_000
_wave_runs = 500
_consumer_batch = 500
_patience_s = 600.0
_subscriptions = (10, 100, 1_000)
_matching_rounds = 15


@dataclass
class Reading:
    sensor: int
    value: float
    unit: str


reading = Topic("bench.reading", Reading)
opened = Topic("bench.opened", int)


@workflow
async def wait_for_opening(ctx: Context, number: int) -> int:
    await ctx.wait(opened)
    return number


def make_app(url: str) -> App:
    app = App(url)
    for one in (reading, opened, wait_for_opening):
        app.add(one)
    return app


def reading_of(number: int) -> tuple[Topic[Reading], Reading, str]:
    """The event of a number, each about an entity of its own."""
    return reading, Reading(number, number / 8, "bar"), f"sensor/{number}"


async def emit_one(app: App, number: int) -> None:
    topic, payload, entity = reading_of(number)
    told = await app.emit(topic, payload, entity=entity)
    if not isinstance(told, Emitted):
        raise AssertionError(f"the event was not appended: {told}")


async def emit_in_calls(app: App, numbers: Iterable[int], call_events: int = _call_events) -> int:
    """`app.emit_many`, one call after the other; gives the last position."""
    events = [reading_of(number) for number in numbers]
    return await emit_made(app, events, call_events)


async def emit_made(app: App, events: list[Any], call_events: int = _call_events) -> int:
    position = 0
    for first in range(0, len(events), call_events):
        told = await app.emit_many(events[first : first + call_events])
        for one in told:
            if not isinstance(one, Emitted):
                raise AssertionError(f"an event was not appended: {one}")
            position = one.position
    return position


# --- W7, W8: appending events --------------------------------------------------------------------


async def w7(order: Order, watch: Stopwatch) -> Values:
    """Calls of ten thousand events, one after the other. The payloads are made before; encoding them is timed."""
    url = store_url(order)
    async with make_app(url) as app:
        await emit_in_calls(app, range(order.warm))
        events = [reading_of(order.warm + number) for number in range(order.size)]
        with watch:
            await emit_made(app, events)
    return {"events_s": order.size / watch.seconds} | await left_in(url)


async def w8(order: Order, watch: Stopwatch) -> Values:
    """A thousand tasks, each of which emits its next event when the last one is on the disk."""
    url = store_url(order)
    async with make_app(url) as app:
        await all_of(order.warm, lambda number: emit_one(app, number))
        with watch:
            await all_of(order.size, lambda number: emit_one(app, order.warm + number))
    return {"events_s": order.size / watch.seconds} | await left_in(url)


async def w8_alone(order: Order, watch: Stopwatch) -> Values:
    """One emit after the other, and nothing else in the app."""
    took_ms: list[float] = []
    async with make_app(store_url(order)) as app:
        for number in range(order.warm):
            await emit_one(app, number)
        with watch:
            for number in range(order.size):
                begun = time.perf_counter()
                await emit_one(app, order.warm + number)
                took_ms.append((time.perf_counter() - begun) * 1e3)
    return {"p50_ms": percentile(took_ms, 50), "p99_ms": percentile(took_ms, 99)}


# --- W9: one event resumes many ------------------------------------------------------------------


async def w9(order: Order, watch: Stopwatch) -> Values:
    """All runs wait for a topic; one emit; until all results are there. All settings are the defaults."""
    async with make_app(store_url(order)) as app:
        await open_for_all(app, order.warm, Stopwatch())
        emit_s = await open_for_all(app, order.size, watch)
    return {"completed_s": watch.seconds, "emit_s": emit_s, "runs_s": order.size / watch.seconds}


async def open_for_all(app: App, count: int, watch: Stopwatch) -> float:
    """So many runs wait, and one event resumes them all; gives how long the emit itself took."""
    runs: list[RunHandle[int]] = []
    for first in range(0, count, _wave_runs):
        numbers = range(first, min(first + _wave_runs, count))
        runs += await asyncio.gather(*(app.start(wait_for_opening, number) for number in numbers))
    await until_waiting(app, count)
    ends = [asyncio.ensure_future(run.result()) for run in runs]
    await asyncio.sleep(0)  # they wait by now, as the runs do
    with watch:
        begun = time.perf_counter()
        told = await app.emit(opened, 1)
        emit_s = time.perf_counter() - begun
        results = await asyncio.gather(*ends)
    check(list(results), count)
    if not isinstance(told, Emitted) or (told.resumed < count and not told.more):
        raise AssertionError(f"the event did not find all {count} runs waiting: {told}")
    return emit_s


# --- W10: consumers ------------------------------------------------------------------------------


class Reader:
    """A consumer that does nothing but see how far it is."""

    def __init__(self) -> None:
        self.seen = 0
        self.position = 0
        self.moved = asyncio.Event()

    async def take(self, batch: Any) -> None:
        events = list(batch)
        self.seen += len(events)
        self.position = events[-1].position
        self.moved.set()

    async def until(self, position: int) -> None:
        async with asyncio.timeout(_patience_s):
            while self.position < position:
                self.moved.clear()
                await self.moved.wait()


def make_consuming_app(url: str, reader: Reader) -> App:
    app = make_app(url)

    async def noop(batch: Any) -> None:
        await reader.take(batch)

    # By name: this must also run on a version that has none, to say so.
    decorate: Callable[..., Any] = getattr(app, "consumer")  # noqa: B009
    decorate("noop", "bench.*", batch=_consumer_batch)(noop)
    return app


async def w10(order: Order, watch: Stopwatch) -> Values:
    """A consumer with all events before it: from before the app is opened until it has been given the last one."""
    if not hasattr(App, "consumer"):
        raise NotAvailable("this version has no App.consumer")
    if order.place == memory_path:
        raise NotAvailable("it needs a file: the app is opened more than once")
    url = store_url(order)
    await make_known(url)
    async with make_app(url) as app:  # without the consumer
        last = await emit_in_calls(app, range(order.size))
    reader = Reader()
    consuming = make_consuming_app(url, reader)
    with watch:
        await consuming.__aenter__()
        await reader.until(last)
    await consuming.__aexit__(None, None, None)
    if reader.seen < order.size:
        raise AssertionError(f"the consumer was given {reader.seen} events, not {order.size}")
    return {"events_s": order.size / watch.seconds}


async def make_known(url: str) -> None:
    """Run the consumer once, so that its cursor stands before all that comes, wherever a new one begins."""
    reader = Reader()
    deadline = time.monotonic() + _patience_s
    async with make_consuming_app(url, reader) as app:
        while not reader.seen:
            if time.monotonic() > deadline:
                raise TimeoutError("the consumer was given no event")
            await emit_one(app, 0)
            await asyncio.sleep(0.05)


# --- W11: which subscriptions match --------------------------------------------------------------


def subscriptions(count: int) -> list[str]:
    """Patterns as a system of many services has them: most begin with a first segment of their own.

    Of a hundred, two are for a topic that many want (`order.*`). Three are for everything of a kind wherever it comes
    from, and these are three of ten as well as of a thousand.
    """
    found = ["**", "**.failed", "audit.**"]
    shapes = cycle(("{}.created", "{}.item.changed", "{}.*", "{}.paid", "{}.item.*", "{}.**"))
    for number in range(count - len(found)):
        popular = number % 50 == 0
        found.append("order.*" if popular else next(shapes).format(f"service{number}"))
    return found


def matched_types(patterns: list[str], count: int) -> list[str]:
    """Types of events: one in ten of the popular topic, one that nobody named, the others spread over all services."""
    firsts = [one.partition(".")[0] for one in patterns if one.startswith("service")]
    ends = cycle(("created", "item.changed", "paid", "failed", "item.added.twice"))
    spread = (f"{first}.{end}" for first, end in zip(cycle(firsts), ends, strict=False))
    made = []
    for number in range(count):
        if number % 10 == 0:
            made.append("order.paid")
        elif number % 10 == 5:
            made.append(f"unheard{number}.of")
        else:
            made.append(next(spread))
    return made


async def w11(order: Order, watch: Stopwatch) -> Values:
    """Look up events among few and many subscriptions, in turns; no store, no app."""
    tables: dict[int, tuple[PatternIndex[int], list[str]]] = {}
    for count in _subscriptions:
        patterns = subscriptions(count)
        index: PatternIndex[int] = PatternIndex()
        for number, text in enumerate(patterns):
            index.add(parse_pattern(text), number)
        types = matched_types(patterns, order.size)
        check_matches(index, patterns, list(islice(types, 200)))
        tables[count] = index, types
    took: dict[int, list[float]] = {count: [] for count in _subscriptions}
    with watch:
        for _ in range(_matching_rounds):
            for count, (index, types) in tables.items():
                matching = index.matching
                begun = time.perf_counter()
                for one in types:
                    matching(one)
                took[count].append((time.perf_counter() - begun) / order.size * 1e6)
    values = {f"us_{count}": statistics.median(took[count]) for count in _subscriptions}
    few, many = _subscriptions[0], _subscriptions[-1]
    # Of two figures of the same round: the speed of a machine changes from one to the next.
    ratios = [b / a for a, b in zip(took[few], took[many], strict=True)]
    index, types = tables[many]
    found = sum(len(index.matching(one)) for one in types) / order.size
    return values | {"ratio": statistics.median(ratios), "found": found}


def check_matches(index: PatternIndex[int], patterns: list[str], types: list[str]) -> None:
    """The index finds what asking every pattern finds."""
    parsed = [parse_pattern(one) for one in patterns]
    for one in types:
        if index.matching(one) != [at for at, pattern in enumerate(parsed) if pattern.matches(one)]:
            raise AssertionError(f"the index finds others than the patterns that match {one!r}")


jobs: dict[str, Callable[[Order, Stopwatch], Coroutine[Any, Any, Values]]] = {
    "w7": w7,
    "w8": w8,
    "w8-alone": w8_alone,
    "w9": w9,
    "w9-thousand": w9,
    "w10": w10,
    "w11": w11,
}
