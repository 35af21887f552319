"""The trace of a run: given at its start, handed on to whatever it starts and tells, kept with its document."""

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from perdure import App, BadValue, Batch, Context, Fact, Signal
from perdure.observing.traces import parsed

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"

go = Signal("go", int)


async def traces(w: Any, topic: str) -> list[str | None]:
    return [one.trace for one in await w.facts(topic)]


async def test_a_run_hands_its_trace_on_to_its_children_and_events(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context) -> None:
        await ctx.emit("child.told")

    @app.workflow
    async def parent(ctx: Context) -> None:
        await ctx.emit("parent.told")
        await ctx.emit("parent.told", trace=OTHER)
        await ctx.emit_many([("many.told", 1), Fact(topic="many.told", trace=OTHER)])
        await ctx.call(child, id="called")
        await ctx.start(child, id="started", trace=OTHER)

    async with world(app) as w:
        run = await w.begin(parent, trace=TRACE)
        assert (await run.info()).trace == TRACE
        assert (await w.app.run("called").info()).trace == TRACE
        assert (await w.app.run("started").info()).trace == OTHER
        assert await traces(w, "parent.told") == [TRACE, OTHER]
        assert await traces(w, "many.told") == [TRACE, OTHER]
        assert await traces(w, "child.told") == [TRACE, OTHER]
        (info,) = [one for one in await w.app.runs(workflow=parent)]
        assert info.trace == TRACE


async def test_a_run_that_an_event_starts_has_the_trace_of_the_event(world: Any, app: App) -> None:
    @app.on("order.paid")
    @app.workflow
    async def by_rule(ctx: Context) -> None: ...

    @app.workflow
    async def by_hand(ctx: Context) -> None: ...

    @app.consumer("handler", "order.paid")
    async def handle(batch: Batch) -> None:
        for _ in batch:
            batch.start(by_hand, id="hand")
            batch.emit("order.seen")

    async with world(app) as w:
        await w.emit("order.paid", trace=TRACE)
        runs = await w.app.runs()
        assert {one.workflow: one.trace for one in runs} == {"by_rule": TRACE, "by_hand": TRACE}
        assert await traces(w, "order.seen") == [TRACE]


async def test_it_survives_continue_as_a_fork_and_a_document(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, left: int) -> int:
        if left:
            await ctx.continue_as(flow, left - 1)
        return await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow, 2, id="first", trace=TRACE)
        assert ((await run.info()).generation, (await run.info()).trace) == (2, TRACE)
        document = await run.export()
        assert document["run"]["trace"] == TRACE
        imported = await w.app.import_run(document, id="imported")
        forked = await run.fork(id="forked")
        for one in (imported, forked):
            assert (await one.info()).trace == TRACE


async def test_a_document_of_a_run_without_one_is_as_it_always_was(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None: ...

    async with world(app) as w:
        run = await w.begin(flow, id="plain")
        document = await run.export()
        assert "trace" not in document["run"]
        again = await w.app.import_run(document, id="again")
        assert (await again.info()).trace is None


async def test_a_signal_that_starts_its_run_gives_it_a_trace(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    async with world(app) as w:
        run, _ = await w.app.signal_with_start(flow, signal=go, payload=1, id="r", trace=TRACE)
        assert (await run.info()).trace == TRACE


@pytest.mark.parametrize("bad", ["", "x" * 2000, 7, "\ud800"])
async def test_what_is_no_text_or_too_long_is_refused(app: App, bad: Any) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None: ...

    async with app:
        with pytest.raises(BadValue):
            await app.start(flow, id="r", trace=bad)
        with pytest.raises(BadValue):
            await app.emit("order.paid", trace=bad)
        assert list(await app.runs()) == []
        assert list(await app.events("order.paid")) == []


# --- the caller's own span --------------------------------------------------------------------------


async def test_a_start_and_an_event_in_a_span_belong_to_its_trace(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    async with world(app) as w:
        with tracer.start_as_current_span("request") as span:
            context = span.get_span_context()
            run = await w.app.start(flow, id="inside")
            given = await w.app.start(flow, id="given", trace=OTHER)
            await w.app.emit("order.paid")
            await w.app.emit_many([("order.paid", 1), Fact(topic="order.paid", trace=OTHER)])
            other, _ = await w.app.signal_with_start(flow, signal=go, payload=1, id="with")
        own = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        outside = await w.app.start(flow, id="outside")
        for one, trace in ((run, own), (given, OTHER), (other, own), (outside, None)):
            assert (await one.info()).trace == trace
        assert await traces(w, "order.paid") == [own, own, OTHER]


async def test_what_a_step_starts_and_tells_belongs_to_its_run(world: Any, app: App) -> None:
    @app.workflow
    async def other(ctx: Context) -> None: ...

    async with world(app) as w:

        async def tell() -> None:
            await w.app.emit("step.told")
            await w.app.start(other, id="from-step")

        @app.workflow
        async def flow(ctx: Context) -> None:
            await ctx.step(tell)

        await w.app.__aexit__(None, None, None)
        w.app.add(flow)
        await w.app.__aenter__()
        await w.begin(flow, trace=TRACE)
        assert await traces(w, "step.told") == [TRACE]
        assert (await w.app.run("from-step").info()).trace == TRACE


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "x", TRACE[:-1], TRACE + "x", TRACE.replace("0af", "0AF"), "ff" + TRACE[2:]),
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
    ],
)
def test_what_is_no_traceparent_is_seen_as_none(text: str | None) -> None:
    assert parsed(text) is None


def test_a_traceparent_is_read_in_its_parts() -> None:
    assert parsed(TRACE) == (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, 1)
    assert parsed("01" + TRACE[2:] + "-more") == parsed(TRACE)  # versions to come may add
