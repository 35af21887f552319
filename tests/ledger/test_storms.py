"""Whatever events start, the engine stays standing: every chain ends, nothing is lost, somebody is told."""

from typing import Any

import pytest

from perdure import App, Batch, Context, Event
from perdure.model import limits


async def started(w: Any) -> int:
    counts = await w.store.counts()
    return int(counts["runs"])


def emitting(app: App, pattern: str, topic: str, times: int = 1) -> None:
    """A workflow that is started by events and emits some itself."""

    @app.on(pattern)
    @app.workflow
    async def echo(ctx: Context, event: Event) -> None:
        for n in range(times):
            await ctx.emit(topic, n)


async def test_a_workflow_that_emits_what_starts_it_ends_by_its_depth(world: Any, app: App) -> None:
    emitting(app, "**", "loop.again")
    async with world(app) as w:
        await w.emit("loop.begin")
        assert await started(w) == limits.event_depth_max
        (deferred,) = await w.app.deferred()
        assert deferred.reason == "depth"
        assert len(await w.facts("ledger.depth_capped")) == 1
        await w.advance("1h")
        assert await started(w) == limits.event_depth_max
        # An operator may let it go on by one.
        assert await w.app.release_deferred(deferred.position, deferred.subscription) is True
        await w.settle()
        assert await started(w) == limits.event_depth_max + 1
        (deferred,) = await w.app.deferred()
        assert await w.app.drop_deferred(deferred.position, deferred.subscription) is True
        assert await w.app.drop_deferred(deferred.position, deferred.subscription) is False
        await w.settle()
        assert not await w.app.deferred()


async def test_a_workflow_that_multiplies_ends_by_its_root(
    world: Any, app: App, monkeypatch: Any
) -> None:
    monkeypatch.setattr(limits, "starts_per_root_max", 50)
    emitting(app, "**", "loop.again", times=3)
    async with world(app) as w:
        await w.emit("loop.begin")
        assert await started(w) == 50
        reasons = {one.reason for one in await w.app.deferred(limit=1000)}
        assert reasons == {"root"}
        assert await w.facts("ledger.root_capped")
        # Another chain is not concerned.
        await w.emit("loop.other")
        assert await started(w) == 100


async def test_a_subscription_on_everything_does_not_answer_its_own_runs(
    world: Any, app: App
) -> None:
    calls: list[int] = []

    @app.on("**")
    @app.workflow
    async def quiet(ctx: Context, event: Event) -> None:
        calls.append(1)

    async with world(app) as w:
        await w.emit("a")
        await w.emit("b.c")
        assert len(calls) == 2
        assert len(await w.facts("workflow.run_started")) == 2


async def test_a_subscription_on_the_life_of_runs_ends_by_its_depth(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "starts_per_root_max", 100)
    calls: list[int] = []

    @app.on("workflow.*")
    @app.workflow
    async def watch(ctx: Context, event: Event) -> None:
        calls.append(event.depth)

    @app.workflow
    async def other(ctx: Context) -> None: ...

    async with world(app) as w:
        await w.begin(other)
        # Each run is told of twice, and each of that starts one more: bounded by the root, or by the depth.
        assert 0 < len(calls) <= 2 * limits.starts_per_root_max
        assert await w.app.deferred()
        before = len(calls)
        await w.advance("1h")
        assert len(calls) == before


async def test_a_consumer_that_emits_what_it_reads_ends_by_its_depth(world: Any, app: App) -> None:
    seen: list[int] = []
    other: list[int] = []

    @app.consumer("echo", "loop")
    async def echo(batch: Batch) -> None:
        for event in batch:
            seen.append(event.depth)
            batch.emit("loop")

    @app.consumer("other", "a")
    async def listen(batch: Batch) -> None:
        other.extend(1 for _ in batch)

    async with world(app) as w:
        await w.emit("loop")
        await w.emit("a")
        assert seen == list(range(limits.event_depth_max + 1)) and other == [1]
        (fact,) = await w.facts("ledger.effect_refused")
        assert "event_depth_max" in fact.payload


async def test_who_listens_to_the_ledgers_own_facts_does_not_call_them_up(
    world: Any, app: App
) -> None:
    for n in range(12):

        async def hear(ctx: Context, event: Event) -> None: ...

        app.on("ledger.*", name=f"hear-{n}")(app.workflow(name=f"hear-{n}")(hear))

    @app.consumer("clumsy", "ledger.*", "a")
    async def clumsy(batch: Batch) -> None:
        for _ in batch:
            batch.signal("nobody", "go")

    async with world(app) as w:
        await w.emit("a")
        assert len(await w.facts("ledger.effect_refused")) == 1
        assert not await w.facts("ledger.fanout_capped")
        assert await started(w) == 12


async def test_a_consumer_that_starts_what_it_hears_of_ends_by_its_depth(
    world: Any, app: App
) -> None:
    @app.workflow
    async def job(ctx: Context) -> None: ...

    @app.consumer("again", "workflow.run_completed")
    async def again(batch: Batch) -> None:
        for _ in batch:
            batch.start(job)

    async with world(app) as w:
        await w.begin(job)
        assert await started(w) == limits.event_depth_max + 1
        (fact,) = await w.facts("ledger.effect_refused")
        assert "depth" in fact.payload
