"""Spans: of turns, of attempts, of consumers' batches; in the trace of their run, linked across suspension."""

import asyncio
import logging
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from watching import Seen, about, exceptions, id_of, is_failed, linked_to, parent_of, trace_of

from perdure import App, BadValue, Batch, Context, Permanent, Queue, Retry, Signal
from perdure.approvals import approval
from perdure.model import limits
from perdure.observing import OpenTelemetry
from perdure.observing.harmless import _told

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ROOT = 0xB7AD6B7169203331
go = Signal("go", int)
SECRET = "hunter2"


async def work(n: int) -> int:
    return n


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def app(seen: Seen) -> App:
    return App("memory://", observe=[seen.observer])


# --- turns and steps ---


async def test_a_turn_and_its_steps_are_in_the_trace_of_the_run(
    world: Any, app: App, seen: Seen
) -> None:
    async def walks(n: int) -> int:
        with seen.tracer.start_as_current_span("inside of walks"):
            await asyncio.sleep(0)
            return n

    def threads(n: int) -> int:
        with seen.tracer.start_as_current_span("inside of threads"):
            return n

    @app.workflow(version=3)
    async def flow(ctx: Context, n: int) -> None:
        await ctx.gather(ctx.step(walks, n), ctx.step(threads, n), ctx.step(work, n))

    async with world(app) as w:
        await w.begin(flow, 1, id="r1", trace=TRACE)
        worker_id = w.worker.worker_id
    turn = seen.the("turn flow")
    assert (trace_of(turn), parent_of(turn)) == (int(TRACE[3:35], 16), ROOT)
    facts = about(turn, "run.id", "workflow", "workflow.version", "generation", "worker.id")
    assert facts == ("r1", "flow", 3, 0, worker_id)
    assert about(turn, "outcome", "input") == ("completed", None)
    for name in ("walks", "threads", "work"):
        step = seen.the(f"step {name}")
        assert parent_of(step) == id_of(turn)
        facts = about(step, "run.id", "workflow", "step", "path", "attempt", "outcome")
        assert facts == ("r1", "flow", name, name, 1, "done")
        assert not is_failed(step)
    for name in ("walks", "threads"):
        assert parent_of(seen.the(f"inside of {name}")) == id_of(seen.the(f"step {name}"))
    assert seen.open == set()


async def test_what_a_step_is_done_in_is_gone_when_it_has_ended(
    world: Any, app: App, seen: Seen
) -> None:
    """Its span is current in its body, and nowhere else: not for the next step, nor for the workflow."""
    found: list[Any] = []

    async def look() -> None:
        found.append(id_of(trace.get_current_span()))

    @app.workflow
    async def flow(ctx: Context) -> None:
        for _ in range(3):
            await ctx.step(look)
            found.append(trace.get_current_span().get_span_context().is_valid)

    async with world(app) as w:
        await w.begin(flow)
    steps = [id_of(one) for one in seen.named("step look")]
    assert found == [steps[0], False, steps[1], False, steps[2], False]


async def test_a_run_that_waits_has_no_span_open_and_the_next_is_linked(
    world: Any, app: App, seen: Seen
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(work, 1)
        await ctx.wait(go)
        await ctx.step(work, 2)
        await ctx.sleep("30d")
        await ctx.step(work, 3)

    async with world(app) as w:
        await w.begin(flow, id="r1", trace=TRACE)
        assert seen.open == set()
        with seen.tracer.start_as_current_span("sender"):
            await w.app.signal("r1", go, 1)
        await w.settle()
        assert seen.open == set()
        await w.advance("30d")
    first, second, third = seen.named("turn flow")
    assert [about(one, "outcome")[0] for one in (first, second, third)] == [
        "waiting",
        "waiting",
        "completed",
    ]
    assert {trace_of(one) for one in (first, second, third)} == {int(TRACE[3:35], 16)}
    assert linked_to(first) == {}
    assert linked_to(second) == {"previous": id_of(first), "cause": id_of(seen.the("sender"))}
    assert linked_to(third) == {"previous": id_of(second)}
    steps = [parent_of(one) for one in seen.named("step work")]
    assert steps == [id_of(one) for one in (first, second, third)]


async def test_a_replay_opens_no_span_for_what_is_on_record(
    world: Any, app: App, seen: Seen
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(work, 1)
        await ctx.emit("told")
        await ctx.wait(go)
        await ctx.step(work, 2)

    async with world(app) as w:
        await w.begin(flow, id="r1")
        await w.evict()
        before = seen.names
        with seen.tracer.start_as_current_span("sender"):
            await w.app.signal("r1", go, 1)
        await w.settle()
    assert before == ["step work", "turn flow"]
    assert seen.names == ["sender", "step work", "step work", "turn flow", "turn flow"]
    first, second = seen.named("turn flow")
    assert linked_to(second) == {"previous": id_of(first), "cause": id_of(seen.the("sender"))}
    assert about(second, "replayed_records", "outcome") == (3, "completed")
    assert seen.open == set()


async def test_a_replay_that_leads_to_nothing_opens_none(world: Any, app: App, seen: Seen) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(work, 1)
        await ctx.wait(go)

    async with world(app) as w:
        await w.begin(flow, id="r1")
    async with world(app) as w:
        await w.settle()
        await w.app.run("r1").pause()
        await w.app.run("r1").resume()
        await w.settle()
        assert [one.target for one in await w.app.waiting("r1")] == ["go"]
        assert seen.names == ["step work", "turn flow"]


async def test_each_attempt_has_a_span_and_says_how_it_failed(
    world: Any, app: App, seen: Seen
) -> None:
    tries: list[int] = []

    @app.step(retry=Retry(attempts=3, backoff="1s", jitter=0))
    async def shaky() -> None:
        tries.append(1)
        raise ValueError(f"no {len(tries)}")

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(shaky)

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("1m")
        assert await run.status() == "failed"
    steps = seen.named("step shaky")
    assert [about(one, "attempt", "outcome") for one in steps] == [
        (1, "retrying"),
        (2, "retrying"),
        (3, "failed"),
    ]
    assert all(map(is_failed, steps))
    assert exceptions(steps) == ["no 1", "no 2", "no 3"]
    assert "ValueError: no 1" in str(steps[0].events[0].attributes)
    *turns, last = seen.named("turn flow")
    assert [is_failed(one) for one in (*turns, last)] == [False, False, True]
    assert about(last, "outcome") == ("failed",) and "no 3" in str(last.status.description)
    assert seen.open == set()


async def test_other_ends_of_a_turn_are_told(world: Any, app: App, seen: Seen) -> None:
    @app.workflow
    async def again(ctx: Context, left: int) -> None:
        if left:
            await ctx.continue_as(again, left - 1)

    @app.workflow
    async def waits(ctx: Context) -> None:
        try:
            await ctx.wait(go)
        finally:
            await ctx.step(work, 1)

    async with world(app) as w:
        await w.begin(again, 1)
        run = await w.begin(waits)
        await run.cancel()
        await w.settle()
    first, second = seen.named("turn again")
    assert [about(one, "outcome", "generation") for one in (first, second)] == [
        ("continued", 0),
        ("completed", 1),
    ]
    assert linked_to(second)["previous"] == id_of(first)
    assert [about(one, "outcome")[0] for one in seen.named("turn waits")] == [
        "waiting",
        "cancelled",
    ]


async def test_a_step_that_is_cut_off_has_ended_too(world: Any, app: App, seen: Seen) -> None:
    reached = asyncio.Event()

    async def stands() -> None:
        reached.set()
        await asyncio.Event().wait()

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(stands)

    async with world(app) as w:
        run = await w.app.start(flow)
        await reached.wait()
        await run.terminate()
        await w.settle()
    assert about(seen.the("step stands"), "outcome") == ("dropped",)
    assert about(seen.the("turn flow"), "outcome") == ("left",)
    reached.clear()
    stage = world(app)
    async with stage as w:
        await w.app.start(flow)
        await reached.wait()
        closing = asyncio.create_task(w.app._engine().worker.stop(0.01))
        await closing
    assert seen.open == set()


async def test_a_transaction_has_a_span_that_its_body_is_in(tmp_path: Any, seen: Seen) -> None:
    app = App(f"sqlite:///{tmp_path}/a.db", observe=[seen.observer])

    def write(connection: Any, n: int) -> int:
        with seen.tracer.start_as_current_span("inside"):
            connection.execute("create table if not exists mine (n int)")
            if n < 0:
                raise Permanent("negative")
            return n

    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        return await ctx.transaction(write, n)

    async with app:
        assert await (await app.start(flow, 1)).result(timeout="10s") == 1
        with pytest.raises(Exception, match="negative"):
            await (await app.start(flow, -1)).result(timeout="10s")
    good, bad = seen.named("step write")
    assert [about(one, "outcome")[0] for one in (good, bad)] == ["done", "failed"]
    assert [parent_of(one) for one in seen.named("inside")] == [id_of(good), id_of(bad)]
    assert [parent_of(one) for one in (good, bad)] == [
        id_of(one) for one in seen.named("turn flow")
    ]
    assert seen.open == set()


# --- what led to what ---


async def test_a_run_without_a_trace_begins_one_for_all_that_follows(
    world: Any, app: App, seen: Seen
) -> None:
    @app.workflow
    async def child(ctx: Context) -> int:
        return await ctx.step(work, 1)

    @app.workflow
    async def parent(ctx: Context) -> None:
        await ctx.emit("told")
        await ctx.call(child)
        await ctx.wait(go)
        await ctx.emit("told")

    async with world(app) as w:
        run = await w.begin(parent, id="p")
        await w.evict()
        await w.app.signal("p", go, 1)
        await w.settle()
        assert await run.status() == "completed"
        told = [one.trace for one in await w.facts("told")]
    first, second, third = seen.named("turn parent")
    of_child = seen.the("turn child")
    traces = {trace_of(one) for one in (first, second, third, of_child, seen.the("step work"))}
    assert len(traces) == 1 and parent_of(first) is None
    assert parent_of(second) == parent_of(third) == parent_of(of_child) == id_of(first)
    assert [int(str(one)[3:35], 16) for one in told] == [*traces, *traces]
    assert linked_to(second) == {"previous": id_of(first), "cause": id_of(of_child)}


async def test_what_a_step_or_a_run_sends_is_the_cause_of_what_it_wakes(
    world: Any, app: App, seen: Seen
) -> None:
    jobs = Queue("jobs", int)

    async def put() -> None:
        await w.app.put(jobs, 1)

    @app.workflow
    async def gives(ctx: Context) -> None:
        await ctx.step(put)
        await ctx.signal("signalled", go, 1)
        await ctx.emit("told")

    @app.workflow
    async def takes(ctx: Context) -> None:
        await ctx.wait(jobs)

    @app.workflow
    async def signalled(ctx: Context) -> None:
        await ctx.wait(go)

    @app.workflow
    async def asks(ctx: Context) -> None:
        await ctx.wait(approval("agreed"))

    app.add(jobs)
    async with world(app) as w:
        await w.begin(takes)
        await w.begin(signalled, id="signalled")
        await w.begin(gives)
        await w.begin(asks)
        (asked,) = await w.app.approvals()
        with seen.tracer.start_as_current_span("decision") as decision:
            await w.app.decide(asked.id, "approve", by="anna")
        await w.settle()
    assert linked_to(seen.named("turn asks")[1])["cause"] == id_of(decision)
    turn, step = seen.the("turn gives"), seen.the("step put")
    assert linked_to(seen.named("turn takes")[1])["cause"] == id_of(step)
    assert linked_to(seen.named("turn signalled")[1])["cause"] == id_of(turn)


async def test_what_is_remembered_is_bounded(
    world: Any, app: App, seen: Seen, monkeypatch: Any
) -> None:
    monkeypatch.setattr(limits, "spans_known_max", 3)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.wait(go)

    async with world(app) as w:
        for nth in range(5):
            await w.begin(flow, id=f"r{nth}")
        for nth in range(5):
            with seen.tracer.start_as_current_span("sender"):
                await w.app.signal(f"r{nth}", go, 1)
            await w.settle()
        spans = w.app._observed.spans
        assert len(spans._runs) == len(spans._causes) == 3
    links = [linked_to(one) for one in seen.named("turn flow")[5:]]
    assert ["previous" in one for one in links] == [False] * 5  # each pushed out the next
    assert ["cause" in one for one in links] == [True] * 5


async def test_a_run_that_has_the_id_of_an_earlier_one_is_not_taken_for_it(
    world: Any, app: App, seen: Seen
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(work, 1)

    async with world(app) as w:
        await w.begin(flow, id="r")
        await w.advance("1s")
        assert await w.app.prune("0s") == 1
        await w.begin(flow, id="r")
    first, second = seen.named("turn flow")
    assert trace_of(first) != trace_of(second) and linked_to(second) == {}


# --- consumers ---


async def test_a_batch_of_a_consumer_is_a_span_linked_to_its_events(
    world: Any, app: App, seen: Seen
) -> None:
    calls: list[int] = []

    @app.consumer("reader", "told", retry=Retry(attempts=2, backoff="1s", jitter=0))
    async def read(batch: Batch) -> None:
        with seen.tracer.start_as_current_span("inside"):
            calls.append(len(batch))
        if len(calls) == 1:
            raise ValueError("not yet")

    async with world(app) as w:
        with seen.tracer.start_as_current_span("one") as one:
            await w.app.emit("told", 1)
            await w.app.emit("told", 2)
        await w.app.emit("told", 3, trace=TRACE)
        await w.app.emit("told", 4)
        await w.settle()
        await w.advance("1m")
    assert sum(calls[1:]) == 4
    batches = seen.named("consume reader")
    assert is_failed(batches[0]) and exceptions(batches) == ["not yet"]
    assert not any(map(is_failed, batches[1:]))
    assert [parent_of(one) for one in seen.named("inside")] == [id_of(one) for one in batches]
    links = {link.context.span_id for batch in batches for link in batch.links}
    assert links == {id_of(one), ROOT}
    assert sum(about(batch, "events")[0] for batch in batches[1:]) == 4


async def test_links_of_a_batch_are_bounded(
    world: Any, app: App, seen: Seen, monkeypatch: Any
) -> None:
    monkeypatch.setattr(limits, "span_links_max", 3)

    @app.consumer("reader", "told", every="* * * * *", batch=100)
    async def read(batch: Batch) -> None: ...

    async with world(app) as w:
        for nth in range(1, 10):
            await w.app.emit("told", nth, trace=f"00-{nth:032x}-{nth:016x}-01")
        await w.advance("1m")
    assert len(seen.the("consume reader").links) == 3


# --- what spans say ---


async def test_spans_are_without_what_is_redacted(world: Any) -> None:
    seen = Seen(payloads=True)
    app = App("memory://", observe=[seen.observer], redact=["password"])

    async def echo(login: dict[str, str]) -> dict[str, str]:
        return login

    async def refuse(login: dict[str, str]) -> None:
        raise Permanent(f"no {login}")

    @app.workflow
    async def good(ctx: Context, login: dict[str, str], password: str) -> dict[str, str]:
        return await ctx.step(echo, login)

    @app.workflow
    async def bad(ctx: Context, login: dict[str, str]) -> None:
        await ctx.step(refuse, login)

    login = {"user": "anna", "password": SECRET}
    async with world(app) as w:
        await w.begin(good, login, SECRET)
        await w.begin(bad, login)
    assert SECRET not in "".join(one.to_json() for one in seen.ended)
    (turn,) = seen.named("turn good")
    assert about(turn, "input") == ('[{"password":"[redacted]","user":"anna"},"[redacted]"]',)
    assert about(turn, "output") == ('{"password":"[redacted]","user":"anna"}',)
    assert "[redacted]" in str(exceptions(seen.named("step refuse")))


async def test_a_payload_is_cut_off(world: Any) -> None:
    seen = Seen(payloads=True)
    app = App("memory://", observe=[seen.observer])

    @app.workflow
    async def flow(ctx: Context, text: str) -> str:
        return text

    async with world(app) as w:
        await w.begin(flow, "x" * 10_000)
    assert len(about(seen.the("turn flow"), "output")[0]) == limits.span_payload_chars_max


# --- who watches ---


async def test_what_an_exporter_breaks_fails_nothing(world: Any, caplog: Any) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("a broken processor")

    _told.clear()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    app = App("memory://", observe=[OpenTelemetry(tracer_provider=provider, metrics=False)])
    handled: list[int] = []

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(work, 1) + await ctx.wait(go)

    @app.consumer("reader", "told")
    async def read(batch: Batch) -> None:
        handled.append(len(batch))

    with caplog.at_level(logging.ERROR, "perdure.app"):
        async with world(app) as w:
            run = await w.begin(flow)
            await w.app.signal(run.id, go, 2)
            await w.app.emit("told")
            await w.settle()
            assert await run.result() == 3
    assert handled == [1]
    told = [one.message for one in caplog.records if "is not seen" in one.message]
    assert len(told) == len(set(told)) > 0  # of each place once


async def test_without_an_sdk_nothing_is_recorded_and_all_works(world: Any) -> None:
    app = App("memory://", observe=[OpenTelemetry()])

    @app.workflow
    async def flow(ctx: Context) -> str | None:
        await ctx.step(work, 1)
        return "done"

    async with world(app) as w:
        plain = await w.begin(flow)
        traced = await w.begin(flow, trace=TRACE)
        assert await plain.result() == await traced.result() == "done"
        assert (await plain.info()).trace is None


async def test_nobody_watches_unless_asked_to(world: Any) -> None:
    app = App("memory://")

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.wait(go)

    async with world(app) as w:
        await w.begin(flow, id="r")
        assert w.app._observed is None
        assert w.worker.spans is None and w.worker.counts is None
        assert w.worker._executions["r"].turn is None


def test_nothing_is_imported_for_who_does_not_ask() -> None:
    ask = (
        "import sys, perdure, perdure.observing, perdure.http.server; perdure.App('memory://'); "
        "sys.exit(any(one.partition('.')[0] in ('opentelemetry', 'prometheus_client') for one in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", ask], check=False).returncode == 0


@pytest.mark.parametrize(
    ("observe", "says"),
    [
        (["otel"], "no observer"),
        ([OpenTelemetry(metrics=False), OpenTelemetry(metrics=False)], "two of one kind"),
    ],
)
def test_what_is_no_observer_is_refused(observe: Any, says: str) -> None:
    with pytest.raises(BadValue, match=says):
        App("memory://", observe=observe)
