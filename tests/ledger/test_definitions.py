"""What is wrong with a definition is said when it is made."""

from datetime import UTC, datetime
from typing import Any

import pytest

from perdure import (
    App,
    BadExpression,
    BadValue,
    Batch,
    Conflict,
    Context,
    Event,
    Retry,
    Topic,
    UnknownWorkflow,
    workflow,
)


async def handle(batch: Batch) -> None: ...


def plain(batch: Batch) -> None: ...


async def two(batch: Batch, other: int) -> None: ...


async def of_one(event: Event) -> None: ...


BAD_CONSUMERS = [
    (("", "a"), {}, "name"),
    (("a/b", "a"), {}, "'/'"),
    (("workflow_runner", "a"), {}, "built-in"),
    (("c",), {}, "give it a pattern"),
    (("c", "a..b"), {}, "empty segment"),
    (("c", "a.b*"), {}, "whole segment"),
    (("c", "a"), {"every": "* * *"}, "3 fields"),
    (("c", "a"), {"every": "* * * * *", "zone": "Mars/Base"}, "IANA"),
    (("c", "a"), {"zone": "Mars/Base"}, "IANA"),
    (("c", "a"), {"batch": 0}, "events_per_batch_max"),
    (("c", "a"), {"batch": 1001}, "events_per_batch_max"),
    (("c", "a"), {"batch": True}, "events_per_batch_max"),
    (("c", "a"), {"catch_up": "all"}, "catch_up"),
    (("c", "a"), {"dedupe": "yes"}, "dedupe"),
    (("c", "a"), {"start": "yesterday"}, "start"),
    (("c", "a"), {"start": -1}, "start"),
    (("c", "a"), {"start": True}, "start"),
    (("c", "a"), {"start": datetime(2026, 1, 1)}, "time zone"),
    (("c", "a"), {"retry": 3}, "Retry"),
]


@pytest.mark.parametrize(("args", "options", "words"), BAD_CONSUMERS)
def test_a_bad_consumer(app: App, args: tuple[str, ...], options: Any, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        app.consumer(*args, **options)(handle)
    assert not app.readers.consumers


@pytest.mark.parametrize("handler", [plain, two, of_one, 3, lambda batch: None])
def test_a_bad_handler(app: App, handler: Any) -> None:
    with pytest.raises(BadValue, match=r"async def|one argument"):
        app.consumer("c", "a")(handler)


def test_the_handler_is_given_back_and_a_second_one_of_the_name_is_a_conflict(app: App) -> None:
    assert app.consumer("c", "a", "b.*", retry=Retry(attempts=1))(handle) is handle
    with pytest.raises(Conflict, match="'c'"):
        app.consumer("c", "a")(handle)
    with pytest.raises(Conflict, match="'c'"):
        app.anomaly("c", "a", rate=(1, "1h"))
    app.consumer("d", "a", start=datetime(2026, 1, 1, tzinfo=UTC))(handle)
    app.consumer("e", "a", start=7)(handle)


def test_definitions_are_shared_by_copies(app: App) -> None:
    app.consumer("c", "a")(handle)
    assert app.copy("memory://").readers is app.readers


async def test_a_definition_in_an_open_app_comes_too_late(world: Any, app: App) -> None:
    async with world(app) as w:
        with pytest.raises(BadValue, match="too late"):
            w.app.consumer("c", "a")(handle)
        with pytest.raises(BadValue, match="too late"):
            w.app.anomaly("c", "a", rate=(1, "1h"))


# --- subscriptions -----------------------------------------------------------------------------------


def flows(app: App) -> Any:
    class Flows:
        @app.workflow
        async def of_event(ctx: Context, event: Event) -> None: ...

        @app.workflow
        async def of_any(ctx: Context, event: Any) -> None: ...

        @app.workflow
        async def bare(ctx, event) -> None: ...  # type: ignore[no-untyped-def]

        @app.workflow
        async def of_int(ctx: Context, n: int) -> None: ...

        @app.workflow
        async def of_nothing(ctx: Context) -> None: ...

        @app.workflow
        async def of_two(ctx: Context, a: Event, b: int) -> None: ...

        @app.workflow
        async def with_default(ctx: Context, a: Event, b: int = 1) -> None: ...

    return Flows


@pytest.mark.parametrize("name", ["of_event", "of_any", "bare", "of_nothing", "with_default"])
def test_a_workflow_that_an_event_can_start(app: App, name: str) -> None:
    flow = getattr(flows(app), name)
    assert app.on("a.*")(flow) is flow
    assert list(app.readers.subscriptions) == [f"{name}:a.*"]


def test_a_workflow_that_needs_a_map(app: App) -> None:
    of_int = flows(app).of_int
    with pytest.raises(BadValue, match="give map="):
        app.on("a")(of_int)
    app.on("a", map=lambda event: event.payload["n"])(of_int)


@pytest.mark.parametrize(
    ("name", "map"), [("of_two", None), ("of_two", "{}"), ("of_nothing", "{}")]
)
def test_a_workflow_that_no_event_can_start(app: App, name: str, map: Any) -> None:
    with pytest.raises(BadValue, match="one input"):
        app.on("a", map=map)(getattr(flows(app), name))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"where": "payload.("}, "line 1"),
        ({"where": "nothing > 1"}, "undeclared"),
        ({"where": "1 + 1"}, "a filter gives"),
        ({"map": "1"}, "a mapper gives"),
        ({"key": "{}"}, "a key gives"),
    ],
)
def test_a_bad_expression_is_told_at_once(app: App, options: Any, words: str) -> None:
    with pytest.raises(BadExpression, match=words):
        app.on("a", **options)(flows(app).of_event)
    assert not app.readers.subscriptions


def test_other_mistakes_of_a_subscription(app: App) -> None:
    of_event = flows(app).of_event

    async def never(event: Event) -> bool:
        return True

    @workflow
    async def stranger(ctx: Context, event: Event) -> None: ...

    with pytest.raises(BadValue, match="plain function"):
        app.on("a", where=never)(of_event)
    with pytest.raises(BadValue, match="where"):
        app.on("a", where=3)(of_event)  # type: ignore[arg-type]
    with pytest.raises(UnknownWorkflow):
        app.on("a")(stranger)
    with pytest.raises(BadValue, match="empty segment"):
        app.on("a.")(of_event)
    app.on("a")(of_event)
    with pytest.raises(Conflict, match="name="):
        app.on("a", where="payload.n == 1")(of_event)
    app.on("a", where="payload.n == 1", name="second")(of_event)


# --- anomalies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pattern", "options", "words"),
    [
        ("x", "a", {}, "looks for"),
        ("x", "a", {"rate": (1, "1h"), "missing": ("a", "b", "1h")}, "looks for"),
        ("x", None, {"rate": (1, "1h")}, "pattern"),
        ("x", "a", {"rate": (-1, "1h")}, "whole number"),
        ("x", "a", {"rate": 3}, "rate"),
        ("x", "a", {"rate": (1, "0s")}, "within"),
        ("x", None, {"missing": ("a", "1h")}, "missing"),
        ("x", "a", {"missing": ("a", "b", "1h")}, "names its patterns"),
        ("x..y", "a", {"rate": (1, "1h")}, "empty segment"),
        ("x", "a", {"rate": (1, "1h"), "every": "often"}, "cron"),
    ],
)
def test_a_bad_anomaly(app: App, name: str, pattern: Any, options: Any, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        app.anomaly(name, pattern, **options)


@pytest.mark.parametrize(
    "options",
    [{"fanout": 0}, {"runner_every": "x"}, {"keep_events": "long"}, {"keep_events_max": 0}],
)
def test_bad_settings(options: Any) -> None:
    with pytest.raises(BadValue):
        App("memory://", **options)


def test_a_decorator_without_its_arguments_says_so(app: App) -> None:
    async def handler(batch: Batch) -> None: ...

    @app.workflow
    async def flow(ctx: Context, event: Event) -> None: ...

    with pytest.raises(BadValue, match="needs a name and patterns"):
        app.consumer(handler)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="needs a pattern"):
        app.on(flow)  # type: ignore[arg-type]
    assert not app.readers.consumers and not app.readers.subscriptions


async def test_a_topic_may_stand_for_its_pattern(world: Any, app: App) -> None:
    paid, sent = Topic("order.paid", int), Topic("order.sent", int)
    seen: list[str] = []

    @app.consumer("c", paid, sent)
    async def c(batch: Batch) -> None:
        seen.extend(event.type for event in batch)

    @app.on(paid)
    @app.workflow
    async def flow(ctx: Context, event: Event) -> None:
        seen.append(f"flow of {event.type}")

    app.anomaly("rush", paid, rate=(0, "1h"))
    app.anomaly("lost", missing=(paid, sent, "10m"))
    async with world(app) as w:
        await w.app.subscribe(sent, flow, name="rule")
        await w.emit("order.paid", 1, entity="order/1")
        await w.emit("order.other", 2)
        await w.emit("order.sent", 3)
        told = ["flow of order.paid", "flow of order.sent", "order.paid", "order.sent"]
        assert sorted(seen) == told
        assert [one.pattern for one in await w.app.subscriptions()] == ["order.paid", "order.sent"]
        assert (await w.app.replay("c", pattern=sent)).by_type == {"order.sent": 1}
        await w.advance("1h")
        assert len(await w.facts("anomaly.rush")) == len(await w.facts("anomaly.lost")) == 1
