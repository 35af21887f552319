"""Detectors: too many events, or one that did not follow; each told once."""

from typing import Any

import msgspec

from perdure import App


async def told(w: Any, name: str) -> list[Any]:
    return [
        (None if one.entity_type is None else f"{one.entity_type}/{one.entity_id}", one)
        for one in await w.facts(f"anomaly.{name}")
    ]


async def test_more_events_than_usual(world: Any, app: App) -> None:
    app.anomaly("burst", "login.*", rate=(3, "15m"))
    async with world(app) as w:
        for _ in range(3):
            await w.emit("login.failed")
        await w.emit("other")
        await w.advance("15m")
        assert await told(w, "burst") == []
        for _ in range(4):
            last = await w.emit("login.failed")
        await w.advance("15m")
        ((entity, fact),) = await told(w, "burst")
        facts = msgspec.json.decode(fact.payload)
        assert entity is None and facts["event_id"] == last.event_id
        assert (facts["count"], facts["most"], facts["within_s"]) == (4, 3, 900)
        await w.advance("6h")
        assert len(await told(w, "burst")) == 1


async def test_by_entity(world: Any, app: App) -> None:
    app.anomaly("burst", "login", rate=(2, "1h"), by_entity=True, every="*/5 * * * *")
    async with world(app) as w:
        for n in range(5):
            await w.emit("login", entity=f"user/{n % 2}")
        await w.advance("5m")
        assert [entity for entity, _ in await told(w, "burst")] == ["user/0"]
        await w.emit("login", entity="user/1")
        await w.advance("5m")
        assert [entity for entity, _ in await told(w, "burst")] == ["user/0", "user/1"]


async def test_a_restart_tells_nothing_again(world: Any, app: App) -> None:
    app.anomaly("burst", "a", rate=(0, "1h"))
    async with world(app) as w:
        await w.emit("a")
        await w.advance("15m")
    async with world(app) as w:
        await w.app.rewind("burst", "beginning")
        await w.advance("15m")
        assert len(await told(w, "burst")) == 1


async def test_what_should_follow_and_does_not(world: Any, app: App) -> None:
    app.anomaly("unpaid", missing=("order.placed", "order.paid", "2h"))
    async with world(app) as w:
        await w.emit("order.placed", entity="order/1")
        await w.emit("order.placed", entity="order/2")
        lost = await w.emit("order.placed", entity="order/3")
        await w.advance("1h")
        await w.emit("order.paid", entity="order/1")
        await w.advance("50m")
        assert await told(w, "unpaid") == []
        await w.emit("order.paid", entity="order/2")
        await w.advance("1h")
        ((entity, fact),) = await told(w, "unpaid")
        assert entity == "order/3"
        facts = msgspec.json.decode(fact.payload)
        assert facts["event_id"] == lost.event_id and facts["missing"] == "order.paid"
        # Too late does not help, and is not told again.
        await w.emit("order.paid", entity="order/3")
        await w.advance("1d")
        assert len(await told(w, "unpaid")) == 1


async def test_what_followed_too_late_is_told_though_it_came_before_the_tick(
    world: Any, app: App
) -> None:
    app.anomaly("slow", missing=("a", "b", "1m"), every="0 * * * *")
    async with world(app) as w:
        await w.emit("a", entity="x/1")
        await w.advance("5m")
        await w.emit("b", entity="x/1")
        await w.emit("a", entity="x/2")
        await w.advance("30s")
        await w.emit("b", entity="x/2")
        await w.advance("2h")
        assert [entity for entity, _ in await told(w, "slow")] == ["x/1"]


async def test_what_is_waited_for_survives_a_restart_and_holds_the_ledger(
    world: Any, app: App
) -> None:
    app.anomaly("unpaid", missing=("a", "b", "5h"))
    async with world(app) as w:
        await w.emit("a", entity="x/1")
        for _ in range(5):
            await w.emit("other")
        await w.advance("1h")
        trimmed = await w.app.trim_ledger(keep=1)
        assert trimmed.count == 0 and trimmed.held_by == "unpaid"
    async with world(app) as w:
        await w.advance("5h")
        assert [entity for entity, _ in await told(w, "unpaid")] == ["x/1"]
        await w.advance("1h")
        assert (await w.app.trim_ledger(keep=1)).count > 0


async def test_what_is_waited_for_is_no_stall(world: Any, app: App) -> None:
    app.anomaly("unpaid", missing=("a", "b", "3d"))
    async with world(app) as w:
        await w.emit("a", entity="x/1")
        await w.emit("other")
        await w.advance("2d")
        assert (await w.app.health()).status == "ok"
        assert await w.facts("ledger.consumer_stalled") == []
        await w.app.pause_consumer("unpaid")
        await w.emit("a", entity="x/2")
        await w.advance("3h")
        assert (await w.app.health()).status == "degraded"
        assert len(await w.facts("ledger.consumer_stalled")) == 1
