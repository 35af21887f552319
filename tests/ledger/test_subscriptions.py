"""Subscriptions: an event starts the workflows that subscribe to it, once each."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from worlds import ELSEWHERE

from perdure import (
    App,
    BadExpression,
    BadValue,
    Conflict,
    Context,
    Event,
    UnknownSubscription,
    UnknownWorkflow,
)
from perdure.model import ops
from perdure.model.records import SubscriptionRecord


def recorder(app: App, name: str = "flow") -> list[Any]:
    """A workflow of any JSON that keeps what it was started with."""
    got: list[Any] = []

    @app.workflow(name=name)
    async def flow(ctx: Context, given: Any) -> None:
        got.append(given)

    return got


async def runs(w: Any) -> list[Any]:
    found = await w.app.runs(limit=1000)
    return [await w.store.run(one.id) for one in reversed(found)]


async def test_the_run_gets_the_event_and_belongs_to_it(world: Any, app: App) -> None:
    got: list[Event] = []

    @app.on("order.*")
    @app.workflow
    async def flow(ctx: Context, event: Event) -> None:
        got.append(event)

    async with world(app) as w:
        event = await w.emit("order.paid", {"n": 1}, entity="order/7")
        await w.emit("other.paid")
        assert [(one.event_id, one.payload, one.entity) for one in got] == [
            (event.event_id, {"n": 1}, "order/7")
        ]
        (run,) = await runs(w)
        assert (run.entity_type, run.entity_id) == ("order", "7")
        assert (run.event_id, run.root_id, run.depth) == (event.event_id, event.event_id, 1)
        assert run.key == f"flow:order.*/{event.event_id}"


async def test_a_place_without_a_type_gets_plain_json_and_one_without_input_nothing(
    world: Any, app: App
) -> None:
    got = recorder(app)
    app.on("a")(app.registry.newest("flow"))
    calls: list[int] = []

    @app.on("a")
    @app.workflow
    async def bare(ctx: Context) -> None:
        calls.append(1)

    async with world(app) as w:
        event = await w.emit("a", [1])
        assert got[0]["event_id"] == event.event_id and got[0]["payload"] == [1]
        assert calls == [1]


async def test_where_map_and_key_as_text(world: Any, app: App) -> None:
    got = recorder(app)
    async with world(app) as w:
        await w.app.subscribe(
            "order.*",
            "flow",
            name="large",
            where="payload.amount > 100",
            map="{'order': entity_id, 'amount': payload.amount}",
            key="payload.customer",
        )
        await w.emit("order.paid", {"amount": 50, "customer": "a"}, entity="order/1")
        await w.emit("order.paid", {"amount": 150, "customer": "a"}, entity="order/2")
        await w.emit("order.paid", {"customer": "b"}, entity="order/3")
        assert got == [{"order": "2", "amount": 150}]
        (run,) = await runs(w)
        assert run.key == "large/a"


async def test_where_map_and_key_as_functions(world: Any, app: App) -> None:
    got: list[int] = []

    @app.on(
        "order.*",
        where=lambda event: event.payload["n"] > 1,
        map=lambda event: event.payload["n"] * 10,
        key=lambda event: f"n{event.payload['n']}",
    )
    @app.workflow
    async def flow(ctx: Context, n: int) -> None:
        got.append(n)

    async with world(app) as w:
        for n in (1, 2, 3):
            await w.emit("order.paid", {"n": n})
        assert got == [20, 30]
        (row,) = await w.app.subscriptions()
        assert row.code and "lambda" in row.where


@dataclass
class Refund:
    order: str
    amount: int = 7


async def test_what_is_mapped_becomes_the_type_of_the_input(world: Any, app: App) -> None:
    got: list[Refund] = []

    @app.on("by.text", map="{'order': entity_id, 'amount': payload.amount}")
    @app.on("by.function", map=lambda event: event.payload)
    @app.workflow
    async def refund(ctx: Context, given: Refund) -> None:
        got.append(given)

    async with world(app) as w:
        await w.emit("by.text", {"amount": 1}, entity="order/1")
        await w.emit("by.function", {"order": "2"})
        assert got == [Refund("1", 1), Refund("2", 7)]
        await w.emit("by.function", {"amount": 3})
        (parked,) = await w.app.parked()
        assert "order" in parked.reason and len(got) == 2


async def test_one_run_for_each_key(world: Any, app: App) -> None:
    got = recorder(app)
    other = recorder(app, "other")
    async with world(app) as w:
        await w.app.subscribe("a", "flow", name="one", map="{}")
        await w.app.subscribe("a", "other", name="two", map="{}")
        await w.emit("a", key="k")
        await w.emit("a", {"idempotency_key": "k"})
        await w.emit("a", {"idempotency_key": "l"})
        await w.emit("a", {"idempotency_key": 7})
        await w.emit("a", [1])
        assert len(got) == len(other) == 4
        assert not await w.app.parked()


async def test_the_events_own_key_comes_before_that_of_its_payload(world: Any, app: App) -> None:
    got = recorder(app)
    async with world(app) as w:
        await w.app.subscribe("a", "flow", name="one", map="{'n': payload.n}")
        await w.emit("a", {"n": 1, "idempotency_key": "in"}, key="out")
        await w.emit("a", {"n": 2, "idempotency_key": "out"})
        await w.emit("a", {"n": 3, "idempotency_key": "in"})
        assert got == [{"n": 1}, {"n": 3}]


async def test_bad_subscriptions_are_refused_and_nothing_is_stored(world: Any, app: App) -> None:
    @app.workflow
    async def of_int(ctx: Context, n: int) -> None: ...

    @app.on("a", map="payload", name="code")
    @app.workflow
    async def flow(ctx: Context, n: Any) -> None: ...

    async with world(app) as w:
        subscribe = w.app.subscribe
        with pytest.raises(BadExpression):
            await subscribe("a", flow, name="x", where="payload.(")
        with pytest.raises(BadValue, match="belong to code"):
            await subscribe("a", flow, name="x", where=lambda event: True)
        with pytest.raises(BadValue, match="give map="):
            await subscribe("a", of_int, name="x")
        with pytest.raises(UnknownWorkflow):
            await subscribe("a", "nothing", name="x")
        with pytest.raises(BadValue):
            await subscribe("a..b", flow, name="x")
        with pytest.raises(BadValue):
            await subscribe("a", flow, name="x/y")
        with pytest.raises(BadValue):
            await subscribe("a", flow, name="x", start="soon")
        with pytest.raises(Conflict, match="in code"):
            await subscribe("a", flow, name="code")
        assert [one.name for one in await w.app.subscriptions()] == ["code"]


async def test_change_disable_enable_and_drop(world: Any, app: App) -> None:
    got = recorder(app)
    async with world(app) as w:
        await w.app.subscribe("a", "flow", name="s", map="{'v': 1}")
        await w.emit("a")
        await w.app.subscribe("b", "flow", name="s", map="{'v': 2}")
        await w.emit("a")
        await w.emit("b")
        assert got == [{"v": 1}, {"v": 2}]
        await w.app.enable_subscription("s", False)
        await w.emit("b")
        await w.app.enable_subscription("s")
        assert (await w.app.subscriptions())[0].enabled
        await w.emit("b")
        assert len(got) == 3
        assert await w.app.unsubscribe("s") is True
        assert await w.app.unsubscribe("s") is False
        await w.emit("b")
        assert len(got) == 3
        with pytest.raises(UnknownSubscription):
            await w.app.enable_subscription("s")


async def test_one_in_code_that_an_operator_disabled_stays_so(world: Any, app: App) -> None:
    got = recorder(app)
    app.on("a", name="s")(app.registry.newest("flow"))
    async with world(app) as w:
        await w.app.enable_subscription("s", False)
    async with world(app) as w:
        await w.emit("a")
        assert got == []


async def test_where_a_subscription_begins(world: Any, app: App) -> None:
    names = ["now", "beginning", "placed", "timed"]
    got = {name: recorder(app, name) for name in names}
    async with world(app) as w:
        first = await w.emit("a", {"n": 1})
        await w.advance("1h")
        moment = w.clock.moment
        await w.emit("a", {"n": 2})
        starts: list[Any] = ["now", "beginning", first.position, moment]
        for name, start in zip(names, starts, strict=True):
            await w.app.subscribe("a", name, name=name, map="payload", start=start)
        await w.emit("a", {"n": 3})
        numbers = {name: sorted(one["n"] for one in some) for name, some in got.items()}
        assert numbers == {"now": [3], "beginning": [1, 2, 3], "placed": [2, 3], "timed": [2, 3]}
        assert all(one.behind is None for one in await w.app.subscriptions())


async def test_a_long_past_is_caught_up_with_beside_the_present(world: Any, app: App) -> None:
    got = recorder(app)
    async with world(app) as w:
        new = tuple(ops.NewEvent(event_id=f"e{n}", type="a", payload=f"{n}") for n in range(1200))
        await w.coordinator.submit(ops.Emit(events=new))
        await w.settle()
        await w.app.subscribe("a", "flow", name="s", map="{'n': payload}", start="beginning")
        await w.emit("a", 1200)
        assert sorted(one["n"] for one in got) == list(range(1201))


async def test_a_catch_up_survives_a_crash(world: Any, app: App) -> None:
    got = recorder(app)
    w = await world(app).__aenter__()
    new = tuple(ops.NewEvent(event_id=f"e{n}", type="a", payload=f"{n}") for n in range(1100))
    await w.coordinator.submit(ops.Emit(events=new))
    await w.app.subscribe("a", "flow", name="s", map="{'n': payload}", start="beginning")
    await w.crash()
    async with world(app) as w:
        await w.settle()
        assert len(await w.app.runs(limit=1000)) == 1000
        counts = await w.store.counts()
        assert counts["runs"] == 1100
        assert set(one["n"] for one in got) == set(range(1100))


async def test_a_subscription_made_before_any_worker_ran_misses_nothing(
    world: Any, app: App
) -> None:
    got = recorder(app)
    async with world(app, worker=False) as w:
        await w.emit("a", {"n": 0})
        await w.app.subscribe("a", "flow", name="s", map="payload")
        await w.emit("a", {"n": 1})
    async with world(app) as w:
        await w.settle()
        assert got == [{"n": 1}]


# --- what goes wrong at run time -----------------------------------------------------------------------


async def test_what_fails_is_parked_and_holds_up_nobody(world: Any, app: App) -> None:
    got = recorder(app)
    typed: list[int] = []

    @app.workflow
    async def of_int(ctx: Context, n: int) -> None:
        typed.append(n)

    app.on("a", name="code", where=lambda event: 1 // event.payload["n"])(
        app.registry.newest("flow")
    )
    async with world(app) as w:
        subscribe = w.app.subscribe
        await subscribe("a", "flow", name="good", map="{'good': true}")
        await subscribe("a", "flow", name="where", where="1 / payload.n > 0", map="{}")
        await subscribe("a", "flow", name="map", map="{'x': payload.nothing}")
        await subscribe("a", "flow", name="key", map="{}", key="payload.name")
        await subscribe("a", "of_int", name="type", map="payload")
        event = await w.emit("a", {"n": 0, "name": " "})
        assert got == [{"good": True}] and typed == []
        parked = {one.subscription: one for one in await w.app.parked("workflow_runner")}
        assert set(parked) == {"code", "where", "map", "key", "type"}
        assert "ZeroDivisionError" in parked["code"].reason
        assert "does not fit" in parked["type"].reason
        assert {one.position for one in parked.values()} == {event.position}
        await subscribe("a", "flow", name="map", map="{'mended': true}")
        assert await w.app.refire("workflow_runner", event.position, "map") is True
        assert await w.app.refire("workflow_runner", event.position, "where") is False
        await subscribe("a", "flow", name="where", where="false", map="{}")
        assert await w.app.refire("workflow_runner", event.position, "where") is True
        await w.settle()
        assert got == [{"good": True}, {"mended": True}]
        assert len(await w.app.parked()) == 3


async def test_events_of_one_key_start_one_run_whatever_they_say(world: Any, app: App) -> None:
    recorder(app)
    async with world(app) as w:
        await w.app.subscribe("a", "flow", name="s", map="payload", key="'same'")
        await w.emit("a", {"n": 1})
        await w.emit("a", {"n": 2})
        assert not await w.app.parked() and len(await runs(w)) == 1


async def test_a_workflow_that_only_the_catalogue_knows(world: Any, app: App) -> None:
    @app.workflow
    async def remote(ctx: Context, n: int) -> None: ...

    async with world(app):
        pass
    client = App("memory://")
    async with world(client) as w:
        await w.app.subscribe("a", "remote", name="s", map="payload")
        await w.emit("a", 1)
        await w.emit("a", "x")
        (run,) = await runs(w)
        assert (run.workflow, run.input, run.status) == ("remote", "[1]", "ready")
        (parked,) = await w.app.parked()
        assert "does not fit" in parked.reason
    async with world(app) as w:
        await w.settle()
        assert [one.status for one in await runs(w)] == ["completed"]


async def test_the_newest_version_is_started(world: Any, app: App) -> None:
    versions: list[int] = []
    for version in (1, 2):

        @app.workflow(name="flow", version=version)
        async def flow(ctx: Context, given: Any, version: int = version) -> None:
            versions.append(version)

    async with world(app) as w:
        await w.app.subscribe("a", "flow", name="s", map="{}")
        await w.emit("a")
        assert versions == [2]


# --- code that another process has ---------------------------------------------------------------------


async def test_a_process_without_the_code_puts_off_and_one_with_it_goes_on(
    world: Any, app: App
) -> None:
    got = recorder(app)
    app.on("a", name="s", where=lambda event: event.payload["n"] > 1)(app.registry.newest("flow"))
    async with world(app):
        pass
    bare = App("memory://")
    recorder(bare)
    async with world(bare) as w:
        for n in (1, 2):
            await w.emit("a", {"n": n})
        first, second = await w.app.deferred()
        assert [first.reason, second.reason] == ["code", "code"]
        with pytest.raises(BadValue, match="not here"):
            await w.app.release_deferred(first.position, "s")
        with pytest.raises(UnknownSubscription):
            await w.app.release_deferred(first.position, "x")
        assert await runs(w) == []
    async with world(app) as w:
        await w.settle()
        assert [one["payload"]["n"] for one in got] == [2]
        assert not await w.app.deferred()


async def test_a_process_that_does_not_own_the_runner_still_starts_what_waits_for_its_code(
    world: Any, app: App
) -> None:
    got = recorder(app)
    app.on("a", name="s", where=lambda event: True)(app.registry.newest("flow"))
    async with world(app):
        pass
    async with world(app, worker=False) as w:
        await w.put_off_elsewhere(await w.emit("a"), "s")
    async with world(app) as w:
        await w.settle()
        assert got == []
        await w.worker.recovery.look(thorough=True)
        await w.settle()
        assert len(got) == 1 and not await w.app.deferred()
        assert (await w.app.consumers())[0].owner == ELSEWHERE


# --- fan-out -------------------------------------------------------------------------------------------


async def test_twenty_subscriptions_start_eight_at_a_time_and_all(world: Any, app: App) -> None:
    got = recorder(app)
    async with world(app, runner_every="* * * * *") as w:
        for n in range(20):
            await w.app.subscribe("a", "flow", name=f"s{n:02}", map=f"{{'n': {n}}}")
            await w.advance("1s")
        event = await w.emit("a")
        await w.advance("1m")
        assert sorted(one["n"] for one in got) == list(range(8))
        assert [one.reason for one in await w.app.deferred()] == ["fanout"] * 12
        await w.advance("1m")
        assert sorted(one["n"] for one in got) == list(range(16))
        await w.advance("1m")
        assert sorted(one["n"] for one in got) == list(range(20))
        assert not await w.app.deferred()
        (capped,) = await w.facts("ledger.fanout_capped")
        facts = msgspec.json.decode(capped.payload)
        assert facts == {"event_id": event.event_id, "type": "a", "matched": 20, "cap": 8}
        runner = (await w.app.consumers())[-1]
        assert runner.capped == 1


async def test_a_live_runner_drains_at_once(world: Any, app: App) -> None:
    got = recorder(app)
    async with world(app, fanout=3) as w:
        for n in range(10):
            await w.app.subscribe("a", "flow", name=f"s{n}", map=f"{{'n': {n}}}")
        await w.emit("a")
        assert sorted(one["n"] for one in got) == list(range(10))
        assert len(await w.facts("ledger.fanout_capped")) == 1


async def test_what_was_put_off_survives_a_restart(world: Any, app: App) -> None:
    got = recorder(app)
    async with world(app, runner_every="0 * * * *") as w:
        for n in range(40):
            await w.app.subscribe("a", "flow", name=f"s{n}", map=f"{{'n': {n}}}")
        await w.emit("a")
        await w.advance("1h")
        assert len(got) == 8
    async with world(app) as w:
        await w.settle()
        assert sorted(one["n"] for one in got) == list(range(40))


async def test_listeners_to_the_cap_do_not_feed_themselves(world: Any, app: App) -> None:
    got = recorder(app)
    async with world(app, fanout=2) as w:
        for n in range(5):
            await w.app.subscribe("ledger.fanout_capped", "flow", name=f"l{n}", map="{}")
            await w.app.subscribe("a", "flow", name=f"a{n}", map="{}")
        await w.emit("a")
        assert len(got) == 10
        assert len(await w.facts("ledger.fanout_capped")) == 1


async def test_many_subscriptions_cost_an_event_little(world: Any, app: App) -> None:
    recorder(app)
    async with world(app) as w:
        rows = [
            ops.PutSubscription(
                subscription=msgspec.structs.replace(_row, name=f"s{n}", pattern=f"t{n}.x")
            )
            for n in range(2000)
        ]
        await w.coordinator.submit_many(rows)
        await w.emit("t7.x")
        table = w.app._engine().consumers._runner._table
        assert len(table) == 2000 and table._index.visited < 10
        assert len(await runs(w)) == 1


_row = SubscriptionRecord(name="", pattern="a", workflow="flow", map="{}")
