"""Retention that is forced over what somebody had still to read: nothing is skipped in silence."""

import json
from typing import Any

import pytest

from perdure import App, BadValue, Batch, Context, Event


@pytest.fixture
def ran(app: App) -> list[Any]:
    """What runs of the workflow `flow` were started with."""
    found: list[Any] = []

    @app.workflow
    async def flow(ctx: Context, event: Event) -> None:
        found.append(event.payload)

    return found


async def lost(w: Any) -> list[dict[str, Any]]:
    return [json.loads(one.payload) for one in await w.facts("ledger.events_lost")]


async def test_a_subscription_that_catches_up_tells_of_what_was_deleted_before_it(
    world: Any, app: App, ran: list[Any]
) -> None:
    async with world(app) as w:
        for n in range(6):
            await w.emit("x.a", n)
        await w.advance("1m")  # what was passed over is saved by now
        await w.app.pause_consumer("workflow_runner")
        await w.app.subscribe("x.*", "flow", name="s", start="beginning")
        await w.app.trim_ledger(keep=2, force=True)
        await w.app.resume_consumer("workflow_runner")
        await w.settle()
        assert ran == [4, 5]
        assert await lost(w) == [{"subscription": "s", "first": 1, "last": 4}]


async def test_so_it_does_if_nothing_is_left_of_it(world: Any, app: App, ran: list[Any]) -> None:
    async with world(app) as w:
        for n in range(3):
            await w.emit("x.a", n)
        await w.app.pause_consumer("workflow_runner")
        await w.app.subscribe("x.*", "flow", name="s", start="beginning")
        await w.emit("x.a", "new")
        await w.app.trim_ledger(keep=1, force=True)
        await w.app.rewind("workflow_runner", "beginning")
        await w.app.resume_consumer("workflow_runner")
        await w.settle()
        assert ran == ["new"]
        assert await lost(w) == [{"subscription": "s", "first": 1, "last": 3}]
        assert all(one.behind is None for one in await w.store.subscriptions())


async def test_a_subscription_that_begins_with_what_is_kept_has_lost_nothing(
    world: Any, app: App, ran: list[Any]
) -> None:
    async with world(app) as w:
        for n in range(5):
            await w.emit("x.a", n)
        await w.app.trim_ledger(keep=2, force=True)
        await w.app.subscribe("x.*", "flow", name="s", start="beginning")
        await w.app.subscribe("y.*", "flow", name="t", start=1)
        await w.settle()
        assert ran == [3, 4] and await lost(w) == []


async def test_a_start_that_was_put_off_and_whose_event_is_deleted_is_told_of(
    world: Any, app: App, ran: list[Any]
) -> None:
    async with world(app, fanout=1, runner_every="*/5 * * * *") as w:
        for name in ("s", "t"):
            await w.app.subscribe("x.*", "flow", name=name)
        await w.emit("x.a", 1)
        await w.advance("5m")
        (deferred,) = await w.app.deferred()
        await w.app.trim_ledger(keep=1, force=True)
        await w.emit("y.a")
        await w.advance("5m")
        assert ran == [1] and not await w.app.deferred()
        at = deferred.position
        assert await lost(w) == [{"subscription": "t", "first": at, "last": at}]


async def test_a_detector_of_what_is_missing_stops_before_what_was_deleted(
    world: Any, app: App
) -> None:
    app.anomaly("unpaid", missing=("order.placed", "order.paid", "2h"))
    async with world(app) as w:
        for n in range(4):
            await w.emit("order.placed", entity=f"order/{n}")
        await w.app.trim_ledger(keep=2, force=True)
        await w.advance("1h")
        row = next(one for one in await w.store.consumers() if one.name == "unpaid")
        assert row.paused and "oldest kept" in (row.reason or "")


async def test_a_replay_from_a_position_that_is_not_kept_is_refused(world: Any, app: App) -> None:
    async def rebuild(batch: Batch) -> None: ...

    async with world(app) as w:
        for n in range(10):
            await w.emit("x.a", n)
        await w.app.trim_ledger(keep=7, force=True)
        with pytest.raises(BadValue, match="oldest event that is kept is at 4"):
            await w.app.replay(rebuild, since=3)
        for since in (0, 4, "beginning", w.clock.moment):
            assert (await w.app.replay(rebuild, since=since)).events == 7


async def test_a_replay_that_retention_overtakes_says_so(world: Any, app: App) -> None:
    seen: list[int] = []

    async def rebuild(batch: Batch) -> None:
        seen.extend(event.payload for event in batch)
        await w.app.trim_ledger(keep=2, force=True)

    async with world(app) as w:
        await w.app.emit_many([("x.a", n) for n in range(600)])
        with pytest.raises(BadValue, match="oldest event that is kept is at 599"):
            await w.app.replay(rebuild, dry_run=False)
        assert len(seen) == 500
