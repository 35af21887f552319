"""Metrics: each thing is counted once, and OpenTelemetry and Prometheus tell the same."""

import asyncio
import threading
from typing import Any

import prometheus_client
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from perdure import App, Batch, Context, Permanent, Queue, Retry, RunFailed, Signal, timer
from perdure.approvals import approval
from perdure.model import limits
from perdure.observing import OpenTelemetry, Prometheus
from perdure.observing.metrics import METRICS, OTHER, Labels, bounded
from perdure.observing.prometheus import name_of
from perdure.store.base import StoreBusy

go = Signal("go", int)
jobs = Queue("jobs", int)


async def work(n: int) -> int:
    return n


@pytest.fixture
def app() -> App:
    return App("memory://", observe=[Prometheus()])


def sums(w: Any, name: str) -> dict[Labels, float]:
    return dict(w.app._observed.counts.sums[f"perdure.{name}"].values)


def spread(w: Any, name: str) -> dict[Labels, tuple[int, float]]:
    """How many, and their sum."""
    values = w.app._observed.counts.spreads[f"perdure.{name}"].values
    return {labels: (bins.count, bins.sum) for labels, bins in values.items()}


# --- what is counted ---


async def test_runs_are_counted_where_they_begin_and_end(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context) -> None: ...

    @app.workflow
    async def parent(ctx: Context) -> None:
        await ctx.call(child)
        await ctx.wait(go)

    @app.workflow
    async def fails(ctx: Context) -> None:
        raise ValueError("no")

    @app.on("told")
    @app.workflow
    async def by_rule(ctx: Context) -> None: ...

    @app.workflow(name="nightly")
    async def by_schedule(ctx: Context) -> None: ...

    app.schedule("0 0 * * *", by_schedule, name="nightly")
    async with world(app) as w:
        await w.begin(parent, id="p")
        await w.begin(parent, id="p")  # found
        stopped = await w.begin(parent, id="q")
        await w.app.signal_with_start(parent, signal=go, payload=1, id="r")
        await w.begin(fails)
        await w.emit("told")
        await stopped.terminate()
        later = await w.app.start(child, start_at="1h")
        await (await w.app.run("p").fork(id="f")).status()
        await w.advance("1d")
        assert await later.status() == "completed"
        started, ended = sums(w, "runs.started"), sums(w, "runs.ended")
        durations = spread(w, "run.duration")
    assert started == {
        ("parent",): 4,  # three, and a fork
        ("child",): 5,  # of those, and one by itself
        ("fails",): 1,
        ("by_rule",): 1,
        ("nightly",): started[("nightly",)],
    }
    assert started[("nightly",)] >= 1
    assert ended == {
        ("child", "completed"): 5,
        ("parent", "completed"): 1,
        ("parent", "terminated"): 1,
        ("fails", "failed"): 1,
        ("by_rule", "completed"): 1,
        ("nightly", "completed"): started[("nightly",)],
    }
    assert {labels: count for labels, (count, _) in durations.items()} == ended


async def test_attempts_are_counted_by_step_and_outcome(world: Any, app: App) -> None:
    @app.step(retry=Retry(attempts=3, backoff="10s", factor=1, jitter=0))
    async def shaky(fails: int, seen: list[int]) -> None:
        raise ValueError("no")

    def in_thread(n: int) -> int:
        return n

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.gather(ctx.step(work, 1), ctx.step(work, 2), ctx.step(in_thread, 3))
        await ctx.step(shaky, 1, [])

    async with world(app) as w:
        run = await w.begin(flow)
        await w.evict()
        await w.advance("1m")
        with pytest.raises(RunFailed):
            await run.result()
        assert sums(w, "steps") == {
            ("flow", "work", "done"): 2,
            ("flow", "in_thread", "done"): 1,
            ("flow", "shaky", "retrying"): 2,
            ("flow", "shaky", "failed"): 1,
        }
        assert {labels: count for labels, (count, _) in spread(w, "step.duration").items()} == {
            ("flow", "work"): 2,
            ("flow", "in_thread"): 1,
            ("flow", "shaky"): 3,
        }


async def test_a_step_takes_the_time_that_its_record_says(world: Any, app: App) -> None:
    going = asyncio.Event()

    async def slow() -> None:
        await going.wait()

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(slow)

    async with world(app) as w:
        run = await w.app.start(flow)

        async def has_begun() -> bool:
            return any(one._bodies for one in w.worker._executions.values())

        await w.until(has_begun)
        w.clock.set(w.clock.now() + 90_000_000)
        going.set()
        await run.result()
        assert spread(w, "step.duration") == {("flow", "slow"): (1, 90.0)}


@pytest.mark.parametrize("evicted", [False, True])
async def test_waits_are_counted_by_what_ends_them_and_how_long_they_took(
    world: Any, app: App, evicted: bool
) -> None:
    app.add(jobs)

    @app.workflow
    async def target(ctx: Context) -> None:
        await ctx.wait(go)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.wait(go | timer("1h"))
        await ctx.wait(go | timer("1h"))
        await ctx.sleep("2h")
        await ctx.wait(jobs)
        await ctx.wait(approval("agreed"))
        await ctx.wait(w.app.run("target"))

    async with world(app) as w:

        async def stands() -> None:
            await w.settle()
            if evicted:
                await w.evict()

        await w.begin(target, id="target")
        await w.begin(flow, id="r")
        await stands()
        await w.advance("10s")
        await w.app.signal("r", go, 1)
        await stands()
        await w.advance("1h")
        await stands()
        await w.advance("2h")
        await stands()
        await w.app.put(jobs, 1)
        await stands()
        (asked,) = await w.app.approvals()
        await w.app.decide(asked.id, "approve", by="anna")
        await stands()
        await w.app.signal("target", go, 1)
        await w.settle()
        assert await w.app.run("r").status() == "completed"
        found = spread(w, "wait.duration")
        assert {labels: count for labels, (count, _) in found.items()} == {
            ("signal",): 2,
            ("timer",): 2,
            ("queue",): 1,
            ("approval",): 1,
            ("run",): 1,
        }
        assert found[("timer",)][1] == pytest.approx(3 * 3600, abs=1)
        assert found[("queue",)] == (1, 0.0)
        assert sums(w, "waits.opened") == {("flow",): 6, ("target",): 1}


async def test_a_wait_that_is_over_at_once_is_counted(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(work, 1)
        await ctx.wait(go)

    async with world(app) as w:
        await w.app.signal_with_start(flow, signal=go, payload=1, id="r")
        await w.settle()
        assert await w.app.run("r").status() == "completed"
        assert spread(w, "wait.duration") == {("signal",): (1, 0.0)}


async def test_a_crash_counts_nothing_twice(world: Any, app: App) -> None:
    """Each process tells what it has committed."""
    apps: list[Any] = []

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(work, 1)
        await ctx.wait(go)
        await ctx.step(work, 2)

    stage = world(app)
    w = await stage.__aenter__()
    apps.append(w)
    await w.begin(flow, id="r")
    await w.crash()
    async with world(app) as again:
        apps.append(again)
        await again.settle()
        await again.app.signal("r", go, 1)
        await again.settle()
        assert await again.app.run("r").status() == "completed"
    for name, total in (("runs.started", 1), ("runs.ended", 1), ("steps", 2)):
        assert sum(sum(sums(one, name).values()) for one in apps) == total, name


async def test_batches_commits_timers_and_claims_are_counted(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.sleep("1h")

    async with world(app) as w:
        await asyncio.gather(*(w.app.start(flow) for _ in range(20)))
        await w.settle()
        (batches,) = spread(w, "batch.ops").values()
        (commits,) = spread(w, "commit.duration").values()
        assert batches[0] == commits[0] and batches[1] >= 40 and 0 < commits[1] < 60
        await w.evict()
        await w.advance("1h")
        assert sums(w, "timers.fired") == {(): 20}
        (late,) = spread(w, "timer.lateness").values()
        assert late[0] >= 1 and late[1] < 0.01
        assert sums(w, "runs.claimed") == {(): 20}
        assert sums(w, "runs.recovered") == {(): 0}


async def test_what_a_dead_worker_left_is_counted_when_it_is_taken_back(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(stands)

    begun = asyncio.Event()
    going = asyncio.Event()

    async def stands() -> None:
        begun.set()
        await going.wait()

    stage = world(app)
    w = await stage.__aenter__()
    await w.app.start(flow, id="r")
    await begun.wait()
    await w.crash()
    going.set()
    async with world(app) as again:
        await again.settle()
        assert await again.app.run("r").status() == "completed"
        assert sums(again, "runs.recovered") == {(): 1}


async def test_what_the_store_does_not_take_is_counted(
    world: Any, app: App, monkeypatch: Any
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None: ...

    async with world(app) as w:

        async def busy(*_: Any) -> Any:
            raise StoreBusy("not now")

        with monkeypatch.context() as patched:
            patched.setattr(w.store, "apply", busy)
            with pytest.raises(Exception, match="not now"):
                await w.app.emit("told")
        assert sums(w, "batches.failed")[("busy",)] >= 1


async def test_consumers_are_counted_with_their_events(world: Any, app: App) -> None:
    @app.consumer("reader", "told", retry=Retry(attempts=1))
    async def read(batch: Batch) -> None:
        if any(event.payload == "bad" for event in batch):
            raise Permanent("no")

    async with world(app) as w:
        await w.emit("told", 1)
        await w.emit("told", 2)
        await w.emit("told", "bad")
        assert sums(w, "consumer.events") == {("reader", "done"): 2, ("reader", "failed"): 1}
        assert spread(w, "consumer.duration")[("reader",)][0] == 3


async def test_hints_of_other_processes_are_counted(tmp_path: Any) -> None:
    app = App(f"sqlite:///{tmp_path}/shared.db", observe=[Prometheus()])
    other = App(f"sqlite:///{tmp_path}/shared.db", worker=False)
    heard = asyncio.Event()
    async with app, other:
        app._engine().coordinator.on_batch.append(heard.set)
        async with asyncio.timeout(10):
            while not app._observed.counts.hints.values:  # type: ignore[union-attr]
                await other.emit("told")
                await asyncio.sleep(0)
        assert set(app._observed.counts.hints.values) <= {("events",), ("look",)}  # type: ignore[union-attr]


# --- gauges ---


async def test_gauges_are_asked_when_somebody_wants_to_know(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.wait(go)

    @app.consumer("slow", "told", every="0 0 * * *")
    async def read(batch: Batch) -> None: ...

    async with world(app) as w:
        for _ in range(3):
            await w.begin(flow)
        for n in range(5):
            await w.emit("told", n)
        await w.advance("1h")
        reading = {
            (one.name, labels): value for one, labels, value in await w.app._observed.gauges.look()
        }
    lag = reading["perdure.consumer.lag", ("slow",)]
    assert lag >= 5 and reading["perdure.consumer.behind", ("slow",)] >= 3600
    assert reading["perdure.runs.resident", ()] == 3
    assert reading["perdure.runs.active", ()] == 0
    assert reading["perdure.store.up", ()] == 1
    assert reading["perdure.ledger.position", ()] >= 8
    assert w.app._observed.gauges is None  # closed


async def test_a_store_that_does_not_answer_is_waited_for_no_longer_than_a_bound(
    app: App, monkeypatch: Any
) -> None:
    monkeypatch.setattr(limits, "gauges_s", 0.05)

    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    async with app:
        seen = app._observed
        assert seen is not None and seen.gauges is not None
        monkeypatch.setattr(app._engine().store, "vitals", never)
        first, second = await asyncio.gather(seen.gauges.look(), seen.gauges.look())
        assert ("perdure.store.up", (), 0) in [(one.name, *rest) for one, *rest in first]
        assert "perdure.queue.ops" in {one.name for one, *_ in second}


async def test_gauges_can_be_asked_from_another_thread(app: App) -> None:
    async with app:
        seen = app._observed
        assert seen is not None
        reading = await asyncio.to_thread(seen.look_from_anywhere)
        assert "perdure.store.up" in {one.name for one, *_ in reading}
        # In the loop itself nobody can wait for it: what is known must do.
        assert "perdure.store.up" in {one.name for one, *_ in seen.look_from_anywhere()}
    assert seen.look_from_anywhere() == []


# --- what is told ---


async def test_prometheus_and_opentelemetry_tell_the_same(world: Any) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    prometheus = Prometheus()
    app = App(
        "memory://",
        observe=[OpenTelemetry(meter_provider=provider, spans=False), prometheus],
    )

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(work, 1)
        await ctx.wait(go)

    async with world(app) as w:
        for nth in range(3):
            await w.begin(flow, id=f"r{nth}")
            await w.app.signal(f"r{nth}", go, 1)
        await w.settle()
        text, content_type = await prometheus.exposed(w.app._observed, None)
        told = await asyncio.to_thread(_by_opentelemetry, reader)
        sums = {one.name: prometheus.sums(one) for one in METRICS if one.kind == "counter"}
        bins = {one.name: prometheus.bins(one) for one in METRICS if one.kind == "histogram"}
    assert content_type.startswith("text/plain")
    scraped = _by_prometheus(text.decode())
    for metric in METRICS:
        by_meter = told.get(metric.name, {})
        if metric.kind == "histogram":
            assert by_meter == {
                labels: (one.count, pytest.approx(one.sum), tuple(one.counts))
                for labels, one in bins[metric.name].items()
                if one.count
            }
            counts = {labels: one.count for labels, one in bins[metric.name].items()}
            assert scraped.get(f"{name_of(metric)}_count", {}) == counts, metric.name
        elif metric.kind == "counter":
            assert by_meter == sums[metric.name], metric.name
            assert scraped.get(f"{name_of(metric)}_total", {}) == sums[metric.name], metric.name
        elif metric.name != "perdure.queue.ops":
            assert by_meter == scraped.get(name_of(metric), {}), metric.name
    assert told["perdure.runs.ended"] == {("flow", "completed"): 3}
    assert told["perdure.consumer.lag"] == {("workflow_runner",): 0}


def _by_opentelemetry(reader: InMemoryMetricReader) -> dict[str, dict[Labels, Any]]:
    data = reader.get_metrics_data()
    assert data is not None
    order = {one.name: [f"perdure.{label}" for label in one.labels] for one in METRICS}
    found: dict[str, dict[Labels, Any]] = {}
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    given = dict(point.attributes or {})
                    labels = tuple(str(given.pop(one)) for one in order[metric.name])
                    assert not given
                    found.setdefault(metric.name, {})[labels] = _value(point)
    return found


def _value(point: Any) -> Any:
    if hasattr(point, "bucket_counts"):
        return point.count, point.sum, tuple(point.bucket_counts)
    return point.value


def _by_prometheus(text: str) -> dict[str, dict[Labels, float]]:
    order = {name_of(one): one.labels for one in METRICS}
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = family.name
            labels = tuple(sample.labels[one] for one in order[name])
            if "le" not in sample.labels:
                found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_names_are_of_a_form_and_say_what_they_are() -> None:
    names = [one.name for one in METRICS]
    assert len(names) == len(set(names)) == len({name_of(one) for one in METRICS})
    for metric in METRICS:
        assert metric.name.startswith("perdure.") and metric.says and metric.unit
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert not metric.name.endswith((".total", ".seconds"))


def test_labels_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "metric_series_max", 3)
    app = App("memory://", observe=[Prometheus()])
    assert app._observed is not None
    counts = app._observed.counts
    for nth in range(10):
        counts.runs_started.add(f"flow-{nth}")
        counts.step_duration.add(0.1, "flow", f"step-{nth}")
    counts.runs_started.add("flow-0")
    assert counts.runs_started.values == {
        ("flow-0",): 2,
        ("flow-1",): 1,
        ("flow-2",): 1,
        (OTHER,): 7,
    }
    assert counts.step_duration.values[OTHER, OTHER].count == 7
    assert bounded(("a", "b"), 2) == ("a", "b")


def test_a_registry_of_ones_own_has_both(app: App) -> None:
    registry = prometheus_client.CollectorRegistry(auto_describe=True)
    own = prometheus_client.Counter("own", "of the user", registry=registry)
    own.inc()
    app = App("memory://", observe=[Prometheus(registry)])
    text = prometheus_client.generate_latest(registry).decode()
    assert "own_total 1.0" in text and "perdure_timers_fired_total 0.0" in text
    with pytest.raises(ValueError, match="perdure"):
        Prometheus(registry)
    assert app._observed is not None


async def test_apps_that_share_an_observer_are_told_together() -> None:
    prometheus = Prometheus()
    first = App("memory://", observe=[prometheus])
    second = first.copy()

    async def one_run(app: App) -> None:
        async with app:
            await app.emit("told")

    await one_run(first)
    await one_run(second)
    (batches,) = [one for one in METRICS if one.name == "perdure.batch.ops"]
    both = [app._observed.counts.batch_ops.values[()].count for app in (first, second)]  # type: ignore[union-attr]
    assert prometheus.bins(batches)[()].count == sum(both) > max(both)


def test_counting_from_two_threads_breaks_no_reader(app: App) -> None:
    """An exporter reads while the loop counts."""
    assert app._observed is not None
    counts, (prometheus,) = app._observed.counts, app._observed.observers
    over = threading.Event()

    def count() -> None:
        for nth in range(5_000):
            counts.runs_started.add(f"flow-{nth % 500}")
        over.set()

    thread = threading.Thread(target=count)
    thread.start()
    (started,) = [one for one in METRICS if one.name == "perdure.runs.started"]
    while not over.is_set():
        prometheus.sums(started)
    thread.join()
    assert sum(prometheus.sums(started).values()) == 5_000
