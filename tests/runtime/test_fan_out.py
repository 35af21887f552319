"""An event that many runs wait for, in one process: it takes no more runs than it has room for, and lets others in."""

import asyncio
from typing import Any

import pytest

from perdure import App, Context, Topic, step
from perdure.model import limits, ops
from perdure.testing.conformance import check_invariants

tick = Topic("tick", int)


class Gauge:
    """How many are inside at once, at most."""

    def __init__(self) -> None:
        self.inside = self.most = 0

    async def pass_through(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        for _ in range(3):
            await asyncio.sleep(0)
        self.inside -= 1


@pytest.mark.parametrize("chunk", [3, 10, 1000])
async def test_no_more_runs_go_on_at_once_than_the_worker_has_room_for(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(limits, "resumed_per_commit_max", chunk)
    gauge = Gauge()

    @app.workflow
    async def flow(ctx: Context) -> int:
        seen = await ctx.wait(tick)
        await ctx.step(step(gauge.pass_through))
        return seen

    async with world(app, resident=0, concurrency=4) as w:
        runs = [await w.begin(flow) for _ in range(60)]
        await w.app.emit(tick, 1)
        await w.settle()
        assert {await run.result() for run in runs} == {1}
        assert 1 < gauge.most <= 4 and w.worker._reserved == 0


async def test_a_fan_out_leaves_the_room_that_a_claim_under_way_may_fill(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "resumed_per_commit_max", 3)
    asked: list[tuple[str, int]] = []

    @app.workflow
    async def flow(ctx: Context, topic: str) -> int:
        return int(await ctx.wait(Topic(topic)))

    async with world(app, resident=0, concurrency=4) as w:
        runs = [await w.begin(flow, topic) for topic in ("first", *["tick"] * 20)]
        submit, post = w.worker._coordinator.submit, w.worker.post

        async def submitted(op: Any) -> Any:
            if isinstance(op, ops.ClaimRuns) and not asked:
                asked.append(("claim", op.limit))
                await w.app.emit(tick, 1)  # its fan-out is asked for while the claim is under way
                asked.append(("claimed", 0))
            return await submit(op)

        def posted(op: Any, *then: Any) -> None:
            if isinstance(op, ops.FanOut):
                asked.append(("fan-out", op.claim.limit))
            post(op, *then)

        monkeypatch.setattr(w.worker._coordinator, "submit", submitted)
        monkeypatch.setattr(w.worker, "post", posted)
        await w.app.emit("first", 1)
        await w.settle()
        assert asked[:3] == [("claim", 4), ("fan-out", 0), ("claimed", 0)]
        assert {await run.result() for run in runs} == {1}
        assert w.worker._reserved == 0


async def test_room_is_given_back_once_though_what_was_taken_could_not_be_read(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "resumed_per_commit_max", 3)

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(tick)

    async with world(app, resident=0, concurrency=4) as w:
        runs = [await w.begin(flow) for _ in range(20)]
        load, failed = w.store.load, []

        async def failing(run_ids: Any) -> Any:
            if len(failed) < 5:
                failed.append(run_ids)
                raise OSError("the disk is away")
            return await load(run_ids)

        monkeypatch.setattr(w.store, "load", failing)
        await w.app.emit(tick, 1)
        for run in runs:
            assert await run.result() == 1
        await w.settle()
        assert failed and w.worker._reserved == 0
        assert not await check_invariants(w.store)


async def test_others_are_let_in_while_many_runs_go_on(world: Any, app: App) -> None:
    went_on = most = 0

    @app.workflow
    async def flow(ctx: Context) -> None:
        nonlocal went_on
        await ctx.wait(tick)
        went_on += 1

    async def watch() -> None:
        nonlocal went_on, most
        while True:
            most, went_on = max(most, went_on), 0
            await asyncio.sleep(0)

    async with world(app, resident=world.resident * 20) as w:
        for _ in range(1200):
            await w.app.start(flow)
        await w.settle()
        watching = asyncio.create_task(watch())
        await w.app.emit(tick, 1)
        await w.settle()
        watching.cancel()
        # Those in memory are a callback each and go on with their commit; those that are read are replayed.
        assert 0 < most <= (100 if world.evicts else limits.resumed_per_commit_max)
