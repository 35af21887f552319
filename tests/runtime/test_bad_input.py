"""Bad input: what is refused, with which error, in which words; and that nothing changed.

One run waits in the store. Each case then makes one bad call; the rows are counted before and after.
"""

import asyncio
import math
import os
import sqlite3
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from worlds import without_eviction

from perdure import (
    AfterFork,
    App,
    BadExpression,
    BadHint,
    BadValue,
    Buffered,
    Cause,
    Conflict,
    Context,
    Delivered,
    Event,
    ForeignAwait,
    InvalidPayload,
    NotRunning,
    PerdureError,
    Queue,
    Refused,
    Retry,
    RetryAfter,
    RunFinished,
    RunHandle,
    RunNotFound,
    Signal,
    StoreRefused,
    Topic,
    UnknownSignal,
    UnknownWorkflow,
    Workflow,
    WrongLoop,
    ended,
    step,
    step_info,
    timer,
    workflow,
)
from perdure.model import limits

shop = App("memory://")
go = Signal("go", int)
anything = Signal("anything")
text = Signal("text", str)
paid = Topic("order.paid", int)
jobs = Queue("jobs", int)
shop.add(paid)
shop.add(jobs)


@dataclass
class Order:
    sku: str
    count: int


placed = Signal("placed", Order)


@shop.workflow
async def flow(ctx: Context, order: Order | None = None) -> int:
    return await ctx.wait(go)


@shop.workflow(signals=[go])
async def strict(ctx: Context) -> int:
    return await ctx.wait(go)


@workflow
async def stranger(ctx: Context) -> None:
    return None


class Unknown:
    """No codec knows this class."""

    def __repr__(self) -> str:
        return "<unknown>"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def event(**changed: Any) -> Event:
    """An event as somebody might have made it."""
    now, id = datetime.now(UTC), "01KE6P4YM0YJYRRCPRWQGR004P"
    known: dict[str, Any] = {"position": 1, "event_id": id, "type": "order.paid", "root_id": id}
    about = {"entity_type": None, "entity_id": None, "occurred_at": now, "recorded_at": now}
    return Event(**{**known, **about, "payload": 1, **changed})


# Zones that lead over the edge of what a datetime can be.
east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))

Call = Callable[[App], Any]

# Each line: an id, a call on an open app, the error, a fragment of its text.
cases: list[tuple[str, Call, type[Exception], str]] = [
    # run ids
    ("id empty", lambda app: app.start(flow, id=""), BadValue, "run id '' is empty"),
    ("id long", lambda app: app.start(flow, id="x" * 300), BadValue, "at most 256"),
    ("id NUL", lambda app: app.start(flow, id="a\0b"), BadValue, "control character"),
    ("id newline", lambda app: app.start(flow, id="a\nb"), BadValue, "control character"),
    ("id surrogate", lambda app: app.start(flow, id="a\ud800"), BadValue, "lone surrogate"),
    ("id number", lambda app: app.start(flow, id=42), BadValue, "is a int; give a str"),
    ("id bytes", lambda app: app.start(flow, id=b"a"), BadValue, "is a bytes"),
    ("id padded", lambda app: app.start(flow, id=" a"), BadValue, "white space"),
    ("signal id empty", lambda app: app.signal("", go, 1), BadValue, "is empty"),
    ("signal id None", lambda app: app.signal(None, go, 1), BadValue, "is a NoneType"),
    ("signal id number", lambda app: app.signal(7, "go", 1), BadValue, "is a int"),
    ("run handle id", lambda app: app.run(""), BadValue, "is empty"),
    ("run handle type", lambda app: app.run(3), BadValue, "is a int"),
    ("waiting id", lambda app: app.waiting(""), BadValue, "is empty"),
    ("buffered id", lambda app: app.buffered("a\0"), BadValue, "control character"),
    ("dead letters id", lambda app: app.dead_letters(5), BadValue, "is a int"),
    ("ended id", lambda app: ended(""), BadValue, "is empty"),
    # keys
    ("key empty", lambda app: app.start(flow, key=""), BadValue, "key '' is empty"),
    ("key long", lambda app: app.signal("a", go, 1, key="k" * 600), BadValue, "key_bytes_max"),
    ("key type", lambda app: app.signal("a", go, 1, key=5), BadValue, "is a int"),
    # names
    ("signal name empty", lambda app: Signal(""), BadValue, "signal name '' is empty"),
    ("signal name slash", lambda app: Signal("a/b"), BadValue, "separates the parts of a path"),
    ("signal name type", lambda app: Signal(5), BadValue, "is a int"),
    ("send by bad name", lambda app: app.signal("a", "a#b", 1), BadValue, "separates the parts"),
    ("send no signal", lambda app: app.signal("a", 5, 1), BadValue, "neither a Signal nor a name"),
    ("send None", lambda app: app.signal("a", None, 1), BadValue, "neither a Signal nor a name"),
    ("find by no signal", lambda app: app.find_waiting(None), BadValue, "is a NoneType"),
    ("namespace", lambda app: App("memory://", namespace="a/b"), BadValue, "namespace name"),
    ("scope of tags", lambda app: app.start(flow, tags={"": "x"}), BadValue, "tag name"),
    # topics and events
    ("topic empty", lambda app: Topic(""), BadValue, "topic name '' is empty"),
    ("topic slash", lambda app: Topic("a/b"), BadValue, "separates the parts"),
    ("topic wildcard", lambda app: Topic("a.*"), BadValue, "only patterns hold wildcards"),
    ("topic segments", lambda app: Topic("a..b"), BadValue, "segment"),
    ("topic deep", lambda app: Topic(".".join("a" * 17)), BadValue, "segments"),
    ("topic type", lambda app: Topic(5), BadValue, "is a int"),
    ("topic hint", lambda app: Topic("a", Unknown), BadHint, "Unknown"),
    ("topic enforce", lambda app: Topic("a", enforce="no"), BadValue, "must be True or False"),
    ("topic repeats", lambda app: Topic("a", repeats="no"), BadValue, "repeats"),
    ("about no entity", lambda app: paid.about("order"), BadValue, "'type/id'"),
    ("about number", lambda app: paid.about(5), BadValue, "'type/id'"),
    ("about since", lambda app: paid.about(since="then"), BadValue, "since"),
    ("about deliver", lambda app: paid.about(deliver="all"), BadValue, "deliver"),
    ("about where", lambda app: paid.about(where=5), BadValue, "neither CEL nor a plain"),
    ("about async", lambda app: paid.about(where=_async), BadValue, "nor a plain function"),
    ("about nothing", lambda app: paid.about(where=""), BadExpression, "is empty; leave it"),
    ("read no event", lambda app: paid.read({"payload": 1}), BadValue, "is no Event"),
    ("read another", lambda app: Topic("a").read(event()), BadValue, "another topic than 'a'"),
    ("read misfit", lambda app: paid.read(event(payload="x")), InvalidPayload, "Expected `int`"),
    ("emit nothing", lambda app: app.emit(None, 1), BadValue, "neither a Topic nor a name"),
    ("emit signal", lambda app: app.emit(go, 1), BadValue, "neither a Topic nor a name"),
    ("emit bad name", lambda app: app.emit("a.*", 1), BadValue, "wildcards"),
    ("emit engine's", lambda app: app.emit("signal.x", 1), BadValue, "only the engine emits"),
    ("emit type", lambda app: app.emit(paid, "x"), InvalidPayload, "Expected `int`"),
    ("emit type by key", lambda app: app.emit(paid, "x", key="k"), InvalidPayload, "`int`"),
    ("emit unknown", lambda app: app.emit("a", Unknown()), InvalidPayload, "Unknown"),
    ("emit NaN", lambda app: app.emit("a", math.nan), InvalidPayload, "nan"),
    ("emit deep", lambda app: app.emit("a", deep(80)), InvalidPayload, "depth_max"),
    ("emit entity", lambda app: app.emit(paid, 1, entity="order"), BadValue, "'type/id'"),
    ("emit entity id", lambda app: app.emit(paid, 1, entity="order/"), BadValue, "is empty"),
    ("emit key", lambda app: app.emit(paid, 1, key=""), BadValue, "key '' is empty"),
    ("emit key type", lambda app: app.emit(paid, 1, key=5), BadValue, "is a int"),
    ("emit id", lambda app: app.emit(paid, 1, event_id="x"), BadValue, "is no ULID"),
    ("emit id type", lambda app: app.emit(paid, 1, event_id=5), BadValue, "is no ULID"),
    (
        "emit naive time",
        lambda app: app.emit(paid, 1, occurred_at=datetime(2030, 1, 1)),
        BadValue,
        "time zone",
    ),
    ("emit time", lambda app: app.emit(paid, 1, occurred_at=5), BadValue, "takes a datetime"),
    ("emit cause", lambda app: app.emit(paid, 1, caused_by=5), BadValue, "caused_by"),
    ("emit cause id", lambda app: app.emit(paid, 1, caused_by="x"), BadValue, "is no ULID"),
    (
        "emit time before the year 1",
        lambda app: app.emit(paid, 1, occurred_at=datetime.min.replace(tzinfo=east)),
        BadValue,
        "outside the years 1 to 9999",
    ),
    (
        "emit time after the year 9999",
        lambda app: app.emit(paid, 1, occurred_at=datetime.max.replace(tzinfo=west)),
        BadValue,
        "occurred_at datetime.datetime(9999",
    ),
    (
        "emit made cause",
        lambda app: app.emit(paid, 1, caused_by=Cause(event_id=5)),
        BadValue,
        "is no ULID",
    ),
    (
        "emit cause run",
        lambda app: app.emit(paid, 1, caused_by=Cause(run_id={})),
        BadValue,
        "run id",
    ),
    (
        "emit cause path",
        lambda app: app.emit(paid, 1, caused_by=Cause(path="")),
        BadValue,
        "path '' is empty",
    ),
    (
        "emit cause consumer",
        lambda app: app.emit(paid, 1, caused_by=Cause(consumer="\ud800")),
        BadValue,
        "lone surrogate",
    ),
    (
        "emit cause replay",
        lambda app: app.emit(paid, 1, caused_by=Cause(replay="no")),
        BadValue,
        "replay 'no' must be True or False",
    ),
    ("emit after id", lambda app: app.emit(paid, 1, caused_by=event(event_id=5)), BadValue, "ULID"),
    (
        "emit after root",
        lambda app: app.emit(paid, 1, caused_by=event(root_id="x")),
        BadValue,
        "root_id 'x' is no ULID",
    ),
    (
        "emit after depth",
        lambda app: app.emit(paid, 1, caused_by=event(depth=-1)),
        BadValue,
        "depth",
    ),
    (
        "emit after depth huge",
        lambda app: app.emit(paid, 1, caused_by=event(depth=2**63)),
        BadValue,
        "depth",
    ),
    ("emit many number", lambda app: app.emit_many(5), BadValue, "give a list of events"),
    ("emit trace", lambda app: app.emit(paid, 1, trace=""), BadValue, "trace '' is empty"),
    ("emit trace long", lambda app: app.emit(paid, 1, trace="x" * 600), BadValue, "trace_bytes"),
    ("emit option", lambda app: app.emit(paid, 1, colour="red"), TypeError, "colour"),
    ("latest name", lambda app: app.latest("a.*"), BadValue, "wildcards"),
    ("latest entity", lambda app: app.latest(paid, entity="x"), BadValue, "'type/id'"),
    ("watchers name", lambda app: app.watchers(5), BadValue, "is a int"),
    ("watchers limit", lambda app: app.watchers(paid, limit=0), BadValue, "limit"),
    ("watchers cursor", lambda app: app.watchers(paid, after="x"), BadValue, "cursor"),
    ("events order", lambda app: app.events(order="size"), BadValue, "order"),
    ("events pattern", lambda app: app.events("a.b*"), BadValue, "whole segment"),
    ("events cursor", lambda app: app.events(after="x"), BadValue, "cursor"),
    ("event id type", lambda app: app.event(5), BadValue, "is a int"),
    ("timeline", lambda app: app.timeline("order"), BadValue, "'type/id'"),
    ("cloud event", lambda app: app.as_cloudevents([event()]), BadValue, "as_cloudevents(*page)"),
    ("cloud events", lambda app: app.as_cloudevents(event(), 5), BadValue, "event 5 is no Event"),
    # queues
    ("queue empty", lambda app: Queue(""), BadValue, "queue name '' is empty"),
    ("queue slash", lambda app: Queue("a/b"), BadValue, "separates the parts"),
    ("queue hint", lambda app: Queue("a", Unknown), BadHint, "Unknown"),
    ("put nothing", lambda app: app.put(None, 1), BadValue, "neither a Queue nor a name"),
    ("put topic", lambda app: app.put(paid, 1), BadValue, "neither a Queue nor a name"),
    ("put bad name", lambda app: app.put("a#b", 1), BadValue, "separates the parts"),
    ("put type", lambda app: app.put(jobs, "x"), InvalidPayload, "Expected `int`"),
    ("put type by key", lambda app: app.put(jobs, "x", key="k"), InvalidPayload, "`int`"),
    ("put key", lambda app: app.put(jobs, 1, key=""), BadValue, "key '' is empty"),
    ("put unknown", lambda app: app.put("a", Unknown()), InvalidPayload, "Unknown"),
    ("items name", lambda app: app.queue_items(5), BadValue, "is a int"),
    ("items limit", lambda app: app.queue_items(jobs, limit=10**6), BadValue, "limit"),
    ("items cursor", lambda app: app.queue_items(jobs, after="x"), BadValue, "cursor"),
    ("purge name", lambda app: app.purge(""), BadValue, "is empty"),
    ("purge age", lambda app: app.purge(jobs, older_than="x"), BadValue, "older_than 'x'"),
    # addressing
    ("path type", lambda app: app.signal("a", go, 1, path=5), BadValue, "path 5 is a int"),
    ("path empty", lambda app: app.signal("a", go, 1, path=""), BadValue, "path '' is empty"),
    ("path NUL", lambda app: app.signal("a", go, 1, path="a\0"), BadValue, "control character"),
    ("path long", lambda app: app.signal("a", go, 1, path="p" * 2000), BadValue, "path_bytes_max"),
    # payloads
    ("payload NaN", lambda app: app.signal("a", anything, math.nan), InvalidPayload, "nan"),
    ("payload inf", lambda app: app.signal("a", anything, [math.inf]), InvalidPayload, "inf"),
    (
        "payload large",
        lambda app: app.signal("a", text, "x" * limits.payload_bytes_max),
        InvalidPayload,
        "payload_bytes_max",
    ),
    ("payload deep", lambda app: app.signal("a", anything, deep(80)), InvalidPayload, "depth_max"),
    (
        "payload wide",
        lambda app: app.signal("a", anything, [0] * 100_001),
        InvalidPayload,
        "payload_nodes_max",
    ),
    ("payload type", lambda app: app.signal("a", go, "three"), InvalidPayload, "Expected `int`"),
    ("payload None", lambda app: app.signal("a", go), InvalidPayload, "Expected `int`"),
    ("payload bool", lambda app: app.signal("a", go, True), InvalidPayload, "Expected `int`"),
    ("payload object", lambda app: app.signal("a", anything, Unknown()), InvalidPayload, "Unknown"),
    ("payload big int", lambda app: app.signal("a", go, 2**70), InvalidPayload, "64 bits"),
    ("payload bytes", lambda app: app.signal("a", text, b"raw"), InvalidPayload, "str"),
    ("payload keys", lambda app: app.signal("a", anything, {1: 2}), InvalidPayload, "key"),
    ("payload surrogate", lambda app: app.signal("a", text, "\ud800"), InvalidPayload, ""),
    (
        "payload field",
        lambda app: app.signal("a", placed, {"sku": "x", "count": "many"}),
        InvalidPayload,
        "count",
    ),
    ("payload missing", lambda app: app.signal("a", placed, {"sku": "x"}), InvalidPayload, "count"),
    ("input type", lambda app: app.start(flow, "order"), InvalidPayload, "workflow 'flow'"),
    ("input many", lambda app: app.start(flow, None, 2), InvalidPayload, "2 arguments given"),
    ("input NaN", lambda app: app.start("loose", math.nan), InvalidPayload, "nan"),
    (
        "with start payload",
        lambda app: app.signal_with_start(flow, signal=go, payload="x", id="new"),
        InvalidPayload,
        "Expected `int`",
    ),
    # unknown things
    ("unknown run", lambda app: app.signal("nobody", go, 1), RunNotFound, "no run 'nobody'"),
    ("unknown status", lambda app: app.run("nobody").status(), RunNotFound, "no run 'nobody'"),
    ("unknown history", lambda app: app.run("nobody").history(), RunNotFound, "no run"),
    ("unknown buffered", lambda app: app.buffered("nobody"), RunNotFound, "no run"),
    ("ended run", lambda app: app.signal("over", go, 1), RunFinished, "already ended: terminated"),
    ("unknown workflow", lambda app: app.start("nothing"), UnknownWorkflow, "this app has: flow"),
    ("stranger", lambda app: app.start(stranger), UnknownWorkflow, "unknown workflow 'stranger'"),
    ("no workflow", lambda app: app.start(len), BadValue, "decorate it with @app.workflow"),
    ("undeclared", lambda app: app.signal("s", "other", 1), UnknownSignal, "declares: go"),
    ("undeclared too", lambda app: app.signal("s", anything, 1), UnknownSignal, "declares: go"),
    (
        "other policy",
        lambda app: app.signal("s", Signal("go", int, buffer="all"), 1),
        Conflict,
        "'latest'",
    ),
    ("send many number", lambda app: app.signal_many(5), BadValue, "(run_id, signal, payload)"),
    ("unknown letter", lambda app: app.resend("no-letter"), Conflict, "no dead letter"),
    ("letter type", lambda app: app.resend(5), BadValue, "dead letter"),
    # options of start
    ("tags list", lambda app: app.start(flow, tags=["a"]), BadValue, "not a mapping"),
    ("tags value", lambda app: app.start(flow, tags={"a": 1}), BadValue, "value of tag 'a'"),
    (
        "tags many",
        lambda app: app.start(flow, tags={f"t{n}": "x" for n in range(40)}),
        BadValue,
        "tags_max",
    ),
    ("entity form", lambda app: app.start(flow, entity="order"), BadValue, "'type/id'"),
    ("entity type", lambda app: app.start(flow, entity=42), BadValue, "'type/id'"),
    ("entity empty", lambda app: app.start(flow, entity="order/"), BadValue, "entity id"),
    (
        "start_at naive",
        lambda app: app.start(flow, start_at=datetime(2030, 1, 1)),
        BadValue,
        "no time zone",
    ),
    ("start_at words", lambda app: app.start(flow, start_at="soon"), BadValue, "start_at 'soon'"),
    ("deadline words", lambda app: app.start(flow, deadline="soon"), BadValue, "deadline 'soon'"),
    ("key without pool", lambda app: app.start(flow, pool_key="a"), BadValue, "without a pool"),
    ("priority without pool", lambda app: app.start(flow, priority=1), BadValue, "without a pool"),
    (
        "debounce words",
        lambda app: app.start(flow, debounce="soon", key="k"),
        BadValue,
        "debounce 'soon'",
    ),
    ("start_at negative", lambda app: app.start(flow, start_at=-1), BadValue, "negative"),
    # listings
    ("limit zero", lambda app: app.runs(limit=0), BadValue, "page_rows_max"),
    ("limit huge", lambda app: app.runs(limit=10**6), BadValue, "page_rows_max"),
    ("limit bool", lambda app: app.dead_letters(limit=True), BadValue, "must be from 1"),
    ("limit float", lambda app: app.find_waiting(go, limit=1.5), BadValue, "must be from 1"),
    ("cursor words", lambda app: app.runs(after="nonsense"), BadValue, "pass page.cursor"),
    ("cursor type", lambda app: app.runs(after=5), BadValue, "pass page.cursor"),
    ("cursor empty", lambda app: app.runs(after=""), BadValue, "pass page.cursor"),
    ("cursor zero", lambda app: app.events(after=0), BadValue, "pass page.cursor"),
    (
        "cursor huge",
        lambda app: app.events(after=(b"[1%s]" % (b"0" * 30)).hex()),
        BadValue,
        "pass page.cursor",
    ),
    ("cursor foreign", lambda app: app.runs(after=b"[1]".hex()), BadValue, "pass page.cursor"),
    ("status", lambda app: app.runs(status="done"), BadValue, "is none of: cancelled"),
    ("statuses", lambda app: app.runs(status=["ready", 5]), BadValue, "is none of"),
    ("status type", lambda app: app.runs(status=5), BadValue, "status"),
    ("runs entity", lambda app: app.runs(entity="x"), BadValue, "'type/id'"),
    ("runs tag", lambda app: app.runs(tag=5), BadValue, "tag"),
    ("runs tag pair", lambda app: app.runs(tag=("a", "b", "c")), BadValue, "tag"),
    ("runs tag surrogate", lambda app: app.runs(tag="\ud800"), BadValue, "lone surrogate"),
    ("runs tag NUL", lambda app: app.runs(tag="a\0"), BadValue, "zero byte"),
    ("event id NUL", lambda app: app.event("a\0"), BadValue, "zero byte"),
    ("event id long", lambda app: app.event("x" * 2000), BadValue, "at most 1024"),
    ("signal status NUL", lambda app: app.signal_status("a\0"), BadValue, "zero byte"),
    ("resend NUL", lambda app: app.resend("a\0"), BadValue, "zero byte"),
    ("emit cause NUL", lambda app: app.emit(paid, 1, caused_by="a\0"), BadValue, "zero byte"),
    ("runs tag value", lambda app: app.runs(tag=("a", "\ud800")), BadValue, "lone surrogate"),
    ("runs workflow", lambda app: app.runs(workflow=5), BadValue, "workflow"),
    ("runs workflow name", lambda app: app.runs(workflow="\ud800"), BadValue, "lone surrogate"),
    ("runs parent", lambda app: app.runs(parent=5), BadValue, "run id"),
    (
        "runs naive",
        lambda app: app.runs(created_from=datetime(2030, 1, 1)),
        BadValue,
        "no time zone",
    ),
    ("older_than", lambda app: app.find_waiting(go, older_than="long"), BadValue, "older_than"),
    ("prune", lambda app: app.prune(), BadValue, "this app has no keep="),
    ("prune negative", lambda app: app.prune(-5), BadValue, "negative"),
    # durations
    ("duration empty", lambda app: timer(""), BadValue, "not understood"),
    ("duration parsecs", lambda app: timer("5 parsecs"), BadValue, "'1h30m'"),
    ("duration negative", lambda app: timer(-1), BadValue, "negative"),
    ("duration NaN", lambda app: timer(math.nan), BadValue, "not finite"),
    ("duration inf", lambda app: timer(math.inf), BadValue, "not finite"),
    ("duration long", lambda app: timer(timedelta(days=4000)), BadValue, "ten years"),
    ("duration bool", lambda app: timer(True), BadValue, "is a bool"),
    ("duration None", lambda app: timer(None), BadValue, "is a NoneType"),
    ("result timeout", lambda app: app.run("a").result(timeout="x"), BadValue, "understood"),
    ("ttl", lambda app: Signal("x", int, ttl="never"), BadValue, "not understood"),
    ("retry after", lambda app: RetryAfter("later"), BadValue, "not understood"),
    # policies
    ("buffer", lambda app: Signal("x", int, buffer="newest"), BadValue, '"latest", "first"'),
    ("on_end", lambda app: Signal("x", int, on_end="keep"), BadValue, '"dead_letter"'),
    ("retry none", lambda app: Retry(attempts=0), BadValue, "from 1 to"),
    ("retry bool", lambda app: Retry(attempts=True), BadValue, "from 1 to"),
    ("retry float", lambda app: Retry(attempts=1.5), BadValue, "from 1 to"),
    ("retry factor", lambda app: Retry(factor=0.5), BadValue, "factor"),
    ("retry factor NaN", lambda app: Retry(factor=math.nan), BadValue, "factor"),
    ("retry jitter", lambda app: Retry(jitter=2), BadValue, "jitter"),
    ("retry factor text", lambda app: Retry(factor="2"), BadValue, "factor"),
    ("retry jitter none", lambda app: Retry(jitter=None), BadValue, "jitter"),
    ("retry backoff", lambda app: Retry(backoff="soon"), BadValue, "not understood"),
    ("retry max", lambda app: Retry(max_backoff=-1), BadValue, "negative"),
    # definitions
    ("plain def", lambda app: workflow(_plain), BadValue, "must be an `async def`"),
    ("workflow number", lambda app: workflow(5), BadValue, ""),
    ("workflow class", lambda app: workflow(Unknown), BadValue, "async def"),
    ("lambda step", lambda app: step(lambda: 1), BadValue, "give it name="),
    ("step number", lambda app: step(5), BadValue, "not a function"),
    ("step class", lambda app: step(Unknown), BadValue, "not a function"),
    ("step timeout", lambda app: step(timeout=0)(_plain), BadValue, "more than nothing"),
    ("step options", lambda app: step(_plain).options(timeout=0), BadValue, "more than nothing"),
    ("step raises", lambda app: step(raises=[5])(_plain), BadValue, "exception classes"),
    ("step raises base", lambda app: step(raises=[SystemExit])(_plain), BadValue, "exception"),
    ("step raises one", lambda app: step(raises=ValueError)(_plain), BadValue, "list"),
    ("step retry", lambda app: step(retry=3)(_plain), BadValue, "Retry("),
    ("step generator", lambda app: step(_yields), BadValue, "generator"),
    ("version", lambda app: workflow(version=0)(_async), BadValue, "whole number from 1"),
    ("version", lambda app: workflow(version=2**63)(_async), BadValue, "version_max"),
    ("version text", lambda app: workflow(version="2")(_async), BadValue, "whole number"),
    ("no context", lambda app: workflow(_no_context), BadValue, "ctx: Context"),
    ("keyword only", lambda app: workflow(_keyword_only), BadHint, "positional"),
    ("star args", lambda app: workflow(_star_args), BadHint, "positional"),
    ("unresolvable", lambda app: workflow(_unresolvable), BadHint, "Nowhere"),
    ("unknown type", lambda app: workflow(_odd_input), BadHint, "Unknown"),
    ("unknown result", lambda app: step(_odd_result), BadHint, "Unknown"),
    ("indistinct", lambda app: Signal("x", Order | Other), BadHint, "signal 'x'"),
    ("signals twice", lambda app: workflow(signals=[go, go])(_async), BadValue, "listed twice"),
    ("signals names", lambda app: workflow(signals=["go"])(_async), BadValue, "Signal objects"),
    ("signals one", lambda app: workflow(signals=go)(_async), BadValue, "list"),
    ("add number", lambda app: shop.copy("memory://").add(5), BadValue, "neither a workflow"),
    (
        "add empty module",
        lambda app: shop.copy("memory://").add(types.ModuleType("empty")),
        BadValue,
        "holds no workflow",
    ),
    ("add late", lambda app: app.add(stranger), BadValue, "came too late"),
    # use
    ("enter twice", lambda app: app.__aenter__(), NotRunning, "open already"),
    ("call workflow", lambda app: flow(None), ForeignAwait, "app.start(flow"),
    ("step_info outside", lambda app: step_info(), PerdureError, "outside a step"),
    ("wait outside", lambda app: go | 5, TypeError, "unsupported operand"),
    # options of the app
    ("resident", lambda app: App("memory://", resident=-1), BadValue, "resident"),
    ("concurrency", lambda app: App("memory://", concurrency=0), BadValue, "concurrency"),
    ("threads", lambda app: App("memory://", threads=True), BadValue, "threads"),
    ("keep", lambda app: App("memory://", keep="for ever"), BadValue, "not understood"),
    ("deps", lambda app: App("memory://", deps=5), BadValue, "App(deps=[pool])"),
    ("store_timeout", lambda app: App("memory://", store_timeout=0), BadValue, "store_timeout"),
]


def _plain(ctx: Any) -> None:
    return None


async def _async(ctx: Context) -> None:
    return None


async def _no_context() -> None:
    return None


def _yields() -> Iterator[int]:
    yield 1


async def _keyword_only(ctx: Context, *, order: int) -> None:
    return None


async def _star_args(ctx: Context, *orders: int) -> None:
    return None


async def _unresolvable(ctx: Context, order: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
    return None


async def _odd_input(ctx: Context, what: Unknown) -> None:
    return None


async def _odd_result() -> Unknown:
    return Unknown()


@dataclass
class Other:
    name: str


@shop.workflow(name="loose")
async def loose(ctx: Context, what: Any) -> None:
    await ctx.wait(go)


@without_eviction
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [pytest.param(*case[1:], id=case[0]) for case in cases],
)
async def test_bad_input_is_refused_and_changes_nothing(
    world: Any, call: Call, error: type[Exception], words: str
) -> None:
    async with world(shop) as w:
        await w.begin(flow, id="a")
        await w.begin(strict, id="s")
        over = await w.begin(flow, id="over")
        await over.terminate()
        await w.settle()
        before = await w.store.counts()
        with pytest.raises(error) as refused:
            await _made(call, w.app)
        assert words in str(refused.value)
        assert isinstance(refused.value, PerdureError | TypeError)
        await w.settle()
        assert await w.store.counts() == before


async def _made(call: Call, app: App) -> None:
    made = call(app)
    if asyncio.iscoroutine(made):
        await made


async def test_what_is_no_send_is_refused_by_itself(world: Any) -> None:
    async with world(shop) as w:
        await w.begin(flow, id="a")
        good, bad, list_too = await w.app.signal_many([("a", go, 1), ("a", go), ["a", go, 2]])  # type: ignore[list-item]
        assert isinstance(good, Delivered)
        assert isinstance(bad, Refused) and "(run_id, signal, payload)" in str(bad.error)
        assert isinstance(list_too, Buffered)


async def test_bad_steering_ids(world: Any) -> None:
    async with world(shop) as w:
        for steer in ("cancel", "terminate", "pause", "resume", "retry"):
            with pytest.raises(RunNotFound):
                await getattr(w.app.run("nobody"), steer)()


# --- bad calls inside a workflow -----------------------------------------------------------------

inside: list[tuple[str, Callable[[Context], Any], str]] = [
    (
        "wait number",
        lambda ctx: ctx.wait(5),
        "takes a signal, topic, queue, run, approval or timer",
    ),
    ("wait word", lambda ctx: ctx.wait("go"), "takes a signal"),
    ("wait timeout", lambda ctx: ctx.wait(go, timeout="x"), "not understood"),
    ("wait name", lambda ctx: ctx.wait(go, name="a/b"), "separates the parts"),
    ("first nothing", lambda ctx: ctx.first(), "at least one"),
    ("first number", lambda ctx: ctx.first(a=5), "takes a signal"),
    ("sleep", lambda ctx: ctx.sleep("-1s"), "not understood"),
    ("sleep until", lambda ctx: ctx.sleep_until(datetime(2030, 1, 1)), "time zone"),
    ("sleep until text", lambda ctx: ctx.sleep_until("2030-01-01"), "datetime"),
    ("step lambda", lambda ctx: ctx.step(lambda: 1), "give it name="),
    ("step number", lambda ctx: ctx.step(5), "not a function"),
    ("step name", lambda ctx: ctx.step(step(_plain).options(name="a/b")), "separates"),
    ("about", lambda ctx: ctx.wait(paid.about("x")), "'type/id'"),
    ("where", lambda ctx: ctx.wait(paid.about(where=5)), "neither CEL nor a plain"),
    ("emit nothing", lambda ctx: ctx.emit(None, 1), "neither a Topic nor a name"),
    ("emit engine's", lambda ctx: ctx.emit("workflow.x", 1), "only the engine emits"),
    ("emit type", lambda ctx: ctx.emit(paid, "x"), "Expected `int`"),
    ("emit entity", lambda ctx: ctx.emit(paid, 1, entity="x"), "'type/id'"),
    ("emit id", lambda ctx: ctx.emit(paid, 1, event_id="x"), "is no ULID"),
    ("emit time", lambda ctx: ctx.emit(paid, 1, occurred_at=5), "takes a datetime"),
    ("emit key", lambda ctx: ctx.emit(paid, 1, key=""), "is empty"),
    ("emit many", lambda ctx: ctx.emit_many([5]), "neither a Fact nor"),
    ("emit many type", lambda ctx: ctx.emit_many([(paid, 1), (paid, "x")]), "Expected `int`"),
    ("emit too many", lambda ctx: ctx.emit_many([(paid, 1)] * 501), "events_per_op_max"),
    ("emit many number", lambda ctx: ctx.emit_many(5), "give a list of events"),
    ("emit surrogate", lambda ctx: ctx.emit("\ud800", 1), "lone surrogate"),
    ("put surrogate", lambda ctx: ctx.put("\ud800", 1), "lone surrogate"),
    ("put nothing", lambda ctx: ctx.put(None, 1), "neither a Queue nor a name"),
    ("put type", lambda ctx: ctx.put(jobs, "x"), "Expected `int`"),
    ("put key", lambda ctx: ctx.put(jobs, 1, key=5), "is a int"),
    ("set key", lambda ctx: ctx.set("", 1), "is empty"),
    ("set value", lambda ctx: ctx.set("a", Unknown()), "Unknown"),
    ("signal id", lambda ctx: ctx.signal("", go, 1), "is empty"),
    ("signal type", lambda ctx: ctx.signal("a", go, "x"), "Expected `int`"),
    ("signal none", lambda ctx: ctx.signal("a", 5, 1), "neither a Signal nor a name"),
    ("signal path", lambda ctx: ctx.signal("a", go, 1, path=5), "path"),
    ("start number", lambda ctx: ctx.start(5), "no workflow"),
    ("start stranger", lambda ctx: ctx.start(stranger), "unknown workflow"),
    ("start input", lambda ctx: ctx.start(flow, 5), "workflow 'flow'"),
    ("start tags", lambda ctx: ctx.start(flow, tags=5), "not a mapping"),
    ("call number", lambda ctx: ctx.call(5), "no workflow"),
    ("continue number", lambda ctx: ctx.continue_as(5), "no workflow"),
    ("continue input", lambda ctx: ctx.continue_as(flow, 5), "workflow 'flow'"),
    ("dep", lambda ctx: ctx.dep(Unknown), "not among App(deps"),
    ("dep number", lambda ctx: ctx.dep(5), "is no class"),
    ("map concurrency", lambda ctx: ctx.map(step(_plain), [1], concurrency=0), "at least 1"),
    ("map bool", lambda ctx: ctx.map(step(_plain), [1], concurrency=True), "concurrency"),
    ("gather number", lambda ctx: ctx.gather(5), "not int"),
    ("too many conditions", lambda ctx: ctx.wait(_many()), "too many conditions"),
    ("direct step", lambda ctx: step(_plain)(1), "called directly"),
    ("direct workflow", lambda ctx: flow(ctx), "called directly"),
]


def _many() -> Any:
    union: Any = go | go
    for _ in range(limits.conditions_per_wait_max):
        union = union | go
    return union


@pytest.mark.parametrize(
    ("call", "words"), [pytest.param(*case[1:], id=case[0]) for case in inside]
)
async def test_bad_calls_in_a_workflow_raise_there(
    world: Any, call: Callable[[Context], Any], words: str
) -> None:
    app = shop.copy("memory://")
    app.registry = type(app.registry)()
    app.add(flow)

    @app.workflow
    async def caller(ctx: Context) -> str:
        try:
            made = call(ctx)
            if hasattr(made, "__await__"):
                await made
        except (PerdureError, TypeError) as error:
            return str(error)
        return "it was taken"

    async with world(app) as w:
        run = await w.begin(caller)
        assert words in await run.result()
        assert not (await run.history()).items


# --- definitions that collide --------------------------------------------------------------------


def test_two_definitions_of_one_name_conflict() -> None:
    app = App("memory://")

    @app.workflow(name="same")
    async def one(ctx: Context) -> None:
        return None

    with pytest.raises(Conflict, match="already defined"):

        @app.workflow(name="same")
        async def two(ctx: Context) -> None:
            return None

    app.add(one)  # the same one again is no conflict
    assert isinstance(one, Workflow)


# --- the wrong time, thread or process -----------------------------------------------------------


async def test_use_before_open_and_after_close(world: Any) -> None:
    stage = world(shop)
    for call in (
        lambda: stage.app.start(flow),
        lambda: stage.app.signal("a", go, 1),
        lambda: stage.app.runs(),
        lambda: stage.app.prune("1d"),
    ):
        with pytest.raises(NotRunning, match="async with app"):
            await call()
    with pytest.raises(NotRunning):
        stage.app.run("a")
    async with stage as w:
        run: RunHandle[int] = await w.begin(flow, id="a")
    with pytest.raises(NotRunning):
        await run.status()
    with pytest.raises(NotRunning):
        await stage.app.start(flow)
    async with stage as w:
        assert await w.app.run("a").status() in ("waiting", "ready")


async def test_use_from_another_loop(world: Any) -> None:
    raised: list[BaseException] = []

    def in_thread(app: App) -> None:
        for call in (lambda: app.start(flow), lambda: app.run("a").status()):
            try:
                asyncio.run(_awaited(call))
            except BaseException as error:
                raised.append(error)

    async with world(shop) as w:
        before = await w.store.counts()
        thread = threading.Thread(target=in_thread, args=(w.app,))
        thread.start()
        await asyncio.to_thread(thread.join, 10)
        assert [type(one) for one in raised] == [WrongLoop, WrongLoop]
        assert "app.sync.start(…)" in str(raised[0])
        assert await w.store.counts() == before


async def _awaited(call: Callable[[], Any]) -> Any:
    return await call()


async def test_use_without_any_loop(world: Any) -> None:
    """A handle asked for in a plain thread: an error of ours, not one about event loops."""
    async with world(shop) as w:
        with pytest.raises(WrongLoop):
            await asyncio.to_thread(w.app.run, "a")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
async def test_use_after_fork(world: Any) -> None:
    async with world(shop) as w:
        before = await w.store.counts()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            _report_after_fork(w.app, write)
        os.close(write)
        said = await asyncio.to_thread(_read_all, read)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert said == "AfterFork AfterFork AfterFork"
        assert await w.store.counts() == before


def _report_after_fork(app: App, write: int) -> None:
    """In the child: say which errors its calls raise, and leave without any cleanup."""
    names = []
    calls = (lambda: app.start(flow), lambda: app.signal("a", go, 1), lambda: app.runs())
    for call in calls:
        try:
            call().send(None)
        except StopIteration:
            names.append("nothing")
        except BaseException as error:
            names.append(type(error).__name__)
    os.write(write, " ".join(names).encode())
    os._exit(0)


def _read_all(pipe: int) -> str:
    with os.fdopen(pipe) as file:
        return file.read()


def test_after_fork_is_told_apart() -> None:
    assert issubclass(AfterFork, PerdureError)


# --- stores that cannot be -----------------------------------------------------------------------

Prepare = Callable[[Path], str]


def _not_a_database(at: Path) -> str:
    (at / "text.db").write_text("this is no database, but it is long enough to be looked at" * 20)
    return f"sqlite:///{at}/text.db"


def _newer(at: Path) -> str:
    with sqlite3.connect(at / "newer.db") as connection:
        connection.execute("create table meta (name text primary key, value text) strict")
        connection.execute("insert into meta values ('schema', '999'), ('min_code', '999')")
    connection.close()
    return f"sqlite:///{at}/newer.db"


def _foreign(at: Path) -> str:
    with sqlite3.connect(at / "other.db") as connection:
        connection.execute("create table runs (id integer)")
    connection.close()
    return f"sqlite:///{at}/other.db"


def _loop(at: Path) -> str:
    (at / "one").symlink_to(at / "two")
    (at / "two").symlink_to(at / "one")
    return f"sqlite:///{at}/one"


def _pipe(at: Path) -> str:
    os.mkfifo(at / "pipe.db")
    return f"sqlite:///{at}/pipe.db"


stores: list[tuple[str, Prepare, str]] = [
    ("unknown scheme", lambda at: "mysql://localhost/x", "no store for"),
    ("no scheme", lambda at: "perdure.db", "no store for"),
    ("empty", lambda at: "", "no store for"),
    ("not text", lambda at: 5, "text, not int"),  # type: ignore[arg-type, return-value]
    ("memory with path", lambda at: "memory:///x", "no path or options"),
    ("sqlite two slashes", lambda at: "sqlite://x.db", "sqlite:///relative.db"),
    ("sqlite no path", lambda at: "sqlite:///", "path"),
    ("sqlite memory", lambda at: "sqlite:///:memory:", "memory://"),
    ("sqlite option", lambda at: f"sqlite:///{at}/x.db?fast=1", "unknown option fast"),
    ("sqlite option without value", lambda at: f"sqlite:///{at}/x?y.db", "unknown option y.db"),
    ("sqlite synchronous", lambda at: f"sqlite:///{at}/x.db?synchronous=OFF", "FULL or NORMAL"),
    ("directory", lambda at: f"sqlite:///{at}", "is a directory"),
    ("missing parent", lambda at: f"sqlite:///{at}/no/x.db", "does not exist"),
    ("not a database", _not_a_database, "SQLite database"),
    ("a link to itself", _loop, "cannot be opened as a SQLite database"),
    ("a pipe", _pipe, "SQLite database"),
    ("newer schema", _newer, "upgrade perdure"),
    ("foreign tables", _foreign, ""),
]


@pytest.mark.parametrize(
    ("prepare", "words"), [pytest.param(*case[1:], id=case[0]) for case in stores]
)
async def test_a_store_that_cannot_be_is_refused(
    tmp_path: Path, prepare: Prepare, words: str
) -> None:
    app = shop.copy(prepare(tmp_path))
    left = set(asyncio.all_tasks())
    with pytest.raises(StoreRefused) as refused:
        async with app:
            pass
    assert words in str(refused.value)
    assert refused.value.reason == str(refused.value)
    assert set(asyncio.all_tasks()) == left
    with pytest.raises(NotRunning):
        await app.start(flow)


async def test_a_refused_app_can_be_opened_once_the_store_is_right(tmp_path: Path) -> None:
    app = shop.copy(f"sqlite:///{tmp_path}/later/x.db")
    with pytest.raises(StoreRefused):
        await app.__aenter__()
    (tmp_path / "later").mkdir()
    async with app:
        await app.start(flow, id="a")


def test_this_file_keeps_its_promise() -> None:
    assert len(cases) + len(inside) + len(stores) > 45
    assert sys.getrecursionlimit() >= 1000  # nothing above may have lowered it


async def test_a_reason_that_cannot_be_stored_changes_nothing(world: Any) -> None:
    async with world(shop) as w:
        run = await w.begin(strict)
        for reason in ("\ud800", "a\0b", "x" * 5000, 7):
            for steer in (run.cancel, run.terminate, run.pause):
                with pytest.raises(BadValue, match="reason"):
                    await steer(reason)
        assert await run.status() == "waiting"
