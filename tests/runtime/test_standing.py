"""A run's deadline, the events that cancel it, and starts that wait for the last of several calls."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from worlds import Worlds, without_eviction

from perdure import (
    App,
    BadValue,
    Batch,
    Context,
    Duplicate,
    Emitted,
    Event,
    RunCancelled,
    Signal,
    Topic,
    timer,
    workflow,
)
from perdure.model.clock import to_datetime
from perdure.model.limits import debounce_us_max

go = Signal("go", int)
cancelled = Topic("order.cancelled", Any)


@dataclass
class Order:
    id: int


class Log:
    """What the code of the workflows has done."""

    def __init__(self) -> None:
        self.lines: list[str] = []


def waiting_workflow(app: App, log: Log, **options: Any) -> Any:
    """Waits for ever, and cleans up with a step when it is cancelled."""

    @app.step
    async def clean_up(word: str) -> None:
        log.lines.append(word)

    @app.workflow(**options)
    async def fulfil(ctx: Context, order: Order) -> int:
        try:
            return await ctx.wait(go)
        finally:
            await ctx.step(clean_up, f"cleaned {order.id}")

    return fulfil


async def reason(app: App, run_id: str) -> str:
    """Why a run was cancelled, as whoever waits for its result is told."""
    with pytest.raises(RunCancelled) as caught:
        await app.run(run_id).result("1s")
    return str(caught.value)


# --- deadline ---------------------------------------------------------------------------------------


async def test_a_run_is_cancelled_at_its_deadline_and_cleans_up(world: Worlds, app: App) -> None:
    log = Log()
    fulfil = waiting_workflow(app, log)
    async with world(app) as w:
        run = await w.begin(fulfil, Order(1), id="r1", deadline="2h")
        (listed,) = await w.app.runs()
        assert listed.deadline_at == to_datetime(w.clock.now()) + timedelta(hours=2)
        await w.advance("119m")
        assert await run.status() == "waiting"
        await w.advance("1m")
        assert await run.status() == "cancelled"
        assert log.lines == ["cleaned 1"]
        assert "deadline" in await reason(w.app, "r1")
        (fact,) = await w.facts("workflow.run_cancelled")
        assert '"reason":"deadline"' in fact.payload


async def test_a_run_that_ends_in_time_is_not_touched(world: Worlds, app: App) -> None:
    fulfil = waiting_workflow(app, Log())
    async with world(app) as w:
        run = await w.begin(fulfil, Order(1), deadline=timedelta(hours=2))
        await w.app.signal(run.id, go, 7)
        await w.advance("3h")
        assert await run.result() == 7


async def test_a_deadline_is_kept_over_a_crash_and_over_continue_as(
    world: Worlds, app: App
) -> None:
    @app.workflow
    async def endless(ctx: Context, n: int) -> None:
        await ctx.sleep("1h")
        await ctx.continue_as(endless, n + 1)

    async with world(app) as w:
        at = to_datetime(w.clock.now()) + timedelta(hours=3, minutes=30)
        await w.begin(endless, 0, id="r1", deadline=at)
        await w.advance("2h")
        await w.crash()
    async with world(app) as w:
        await w.advance("80m")
        assert await w.app.run("r1").status() == "sleeping"
        await w.advance("10m")
        assert await w.app.run("r1").status() == "cancelled"


async def test_a_paused_run_is_cancelled_too(world: Worlds, app: App) -> None:
    log = Log()
    fulfil = waiting_workflow(app, log)
    async with world(app) as w:
        run = await w.begin(fulfil, Order(1), deadline="2h")
        await run.pause()
        await w.advance("2h")
        assert (await run.status(), log.lines) == ("cancelled", ["cleaned 1"])


async def test_a_child_has_a_deadline_of_its_own_and_goes_with_its_parent(
    world: Worlds, app: App
) -> None:
    @app.workflow
    async def child(ctx: Context) -> int:
        return await ctx.wait(go)

    @app.workflow
    async def parent(ctx: Context) -> str:
        try:
            await ctx.call(child, deadline="1h", id="c1")
        except RunCancelled as error:
            told = str(error)
        await ctx.start(child, id="c2", deadline="9h")
        await ctx.wait(go | timer("9h"))
        return told

    async with world(app) as w:
        run = await w.begin(parent, deadline="5h")
        await w.advance("1h")
        assert await w.app.run("c1").status() == "cancelled"
        assert await run.status() == "waiting"
        await w.advance("4h")
        assert await run.status() == "cancelled"
        assert await w.app.run("c2").status() == "cancelled"
        assert "parent" in await reason(w.app, "c2")


async def test_a_run_that_a_consumer_starts_has_one(world: Worlds, app: App) -> None:
    fulfil = waiting_workflow(app, Log())

    @app.consumer("orders", "order.placed")
    async def orders(batch: Batch) -> None:
        for _ in batch:
            batch.start(fulfil, Order(1), id="r1", deadline="1h")

    async with world(app) as w:
        await w.emit("order.placed")
        await w.advance("1h")
        assert "deadline" in await reason(w.app, "r1")


async def test_a_step_in_flight_is_told(world: Worlds, app: App) -> None:
    @app.step
    async def hang() -> None:
        await asyncio.Event().wait()

    @app.workflow
    async def busy(ctx: Context) -> None:
        await ctx.step(hang)

    async with world(app) as w:
        run = await w.app.start(busy, deadline="1s")
        w.clock.set(w.clock.now() + 1_000_000)

        async def is_over() -> bool:
            return await run.status() == "cancelled"

        await w.until(is_over)


@without_eviction
async def test_a_bad_deadline_is_refused(world: Worlds, app: App) -> None:
    fulfil = waiting_workflow(app, Log())
    async with world(app) as w:
        for bad in ("0s", 0, "soon", -1, True):
            with pytest.raises(BadValue):
                await w.app.start(fulfil, Order(1), deadline=bad)
        with pytest.raises(BadValue, match="zone"):
            await w.app.start(
                fulfil, Order(1), deadline=to_datetime(w.clock.now()).replace(tzinfo=None)
            )
        assert not list(await w.app.runs())


# --- cancel_on --------------------------------------------------------------------------------------


async def test_an_event_about_its_own_entity_cancels_a_run(world: Worlds, app: App) -> None:
    log = Log()
    fulfil = waiting_workflow(app, log, cancel_on=cancelled)
    async with world(app) as w:
        for number in (1, 2):
            await w.begin(fulfil, Order(number), id=f"r{number}", entity=f"order/{number}")
        event = await w.emit("order.cancelled", {}, entity="order/2")
        assert await w.app.run("r1").status() == "waiting"
        assert await w.app.run("r2").status() == "cancelled"
        assert log.lines == ["cleaned 2"]
        told = await reason(w.app, "r2")
        assert "order.cancelled" in told and event.event_id in told


async def test_the_entity_may_be_named_or_told_by_the_input(world: Worlds, app: App) -> None:
    closed = Topic("shop.closed", Any)

    @app.workflow(
        cancel_on=[
            cancelled.about(lambda order, shop: f"order/{order.id}"),
            closed.about("shop/7"),
            Topic("all.off").about(),
        ]
    )
    async def fulfil(ctx: Context, order: Order, shop: str) -> None:
        await ctx.sleep("1d")

    async with world(app) as w:
        for number in (1, 2, 3, 4):
            await w.begin(fulfil, Order(number), "x", id=f"r{number}")
        await w.emit("order.cancelled", entity="order/2")
        await w.emit("shop.closed", entity="shop/8")
        assert [await w.app.run(f"r{n}").status() for n in (1, 2, 3)] == [
            "sleeping",
            "cancelled",
            "sleeping",
        ]
        assert [one.path for one in await w.app.waiting("r1")] == ["sleep"]
        page = await w.app.watchers(closed)
        assert len(page) == 3
        await w.emit("shop.closed", entity="shop/7")
        assert [await w.app.run(f"r{n}").status() for n in (1, 3, 4)] == ["cancelled"] * 3


async def test_an_event_before_its_first_turn_is_not_lost(world: Worlds, app: App) -> None:
    log = Log()
    fulfil = waiting_workflow(app, log, cancel_on=cancelled)
    async with world(app) as w:
        await w.emit("order.cancelled", entity="order/1")
        run = await w.begin(fulfil, Order(1), entity="order/1", start_at="1h")
        emitted = await w.app.emit(cancelled, {}, entity="order/1")
        assert isinstance(emitted, Emitted) and emitted.resumed == 1
        await w.settle()
        assert await run.status() == "cancelled"


async def test_a_run_that_a_subscription_or_a_schedule_starts_is_cancelled_too(
    world: Worlds, app: App
) -> None:
    @app.on("order.placed")
    @app.workflow(cancel_on=cancelled)
    async def by_event(ctx: Context, event: Event) -> None:
        await ctx.sleep("30d")

    @app.workflow(cancel_on=cancelled.about(lambda order: f"order/{order.id}"))
    async def by_tick(ctx: Context, order: Order) -> None:
        await ctx.sleep("30d")

    app.schedule("1h", by_tick, Order(7), overlap="allow")
    async with world(app) as w:
        await w.emit("order.placed", entity="order/7")
        await w.advance("1h")
        assert [one.status for one in await w.app.runs()] == ["sleeping"] * 2
        await w.emit("order.cancelled", entity="order/7")
        assert [one.status for one in await w.app.runs()] == ["cancelled"] * 2


async def test_an_app_without_the_code_goes_by_the_catalogue(world: Worlds, app: App) -> None:
    @app.workflow(cancel_on=[cancelled, Topic("shop.closed").about("shop/7")])
    async def fulfil(ctx: Context, order: Any) -> None:
        await ctx.sleep("30d")

    @app.workflow(cancel_on=cancelled.about(lambda order: "order/1"))
    async def by_code(ctx: Context, order: Any) -> None:
        await ctx.sleep("30d")

    async with world(app):
        pass  # the catalogue has them from now on
    other = App("memory://")
    async with world(other) as w:
        for name in ("fulfil", "by_code"):
            await w.app.subscribe("order.placed", name, map="payload", name=name)
        await w.emit("order.placed", {"id": 1}, entity="order/1")
        (run,) = await w.app.runs()
        assert run.workflow == "fulfil"
        (parked,) = await w.app.parked("workflow_runner")
        assert "which this app does not have" in parked.reason
        with pytest.raises(BadValue, match="own entity"):
            await w.app.schedule("1h", "fulfil", {})
        emitted = await w.app.emit("shop.closed", entity="shop/7")
        assert isinstance(emitted, Emitted) and emitted.resumed == 1


@without_eviction
async def test_what_cannot_be_started_is_refused_before_anything_is_stored(
    world: Worlds, app: App
) -> None:
    fulfil = waiting_workflow(app, Log(), cancel_on=cancelled)

    @app.workflow(cancel_on=cancelled.about(lambda order: str(order.id)))
    async def nameless(ctx: Context, order: Order) -> None: ...

    async with world(app) as w:
        with pytest.raises(BadValue, match="own entity"):
            await w.app.start(fulfil, Order(1))
        with pytest.raises(BadValue, match="type/id"):
            await w.app.start(nameless, Order(1))
        assert not list(await w.app.runs())


def test_what_cannot_cancel_a_run_is_refused_where_it_is_said() -> None:
    async def fulfil(ctx: Context) -> None: ...

    async def entity_of(order: Order) -> str:
        return ""

    bad: list[tuple[Any, str]] = [
        (go, "neither a Topic"),
        (timer("1h"), "neither a Topic"),
        ("order.cancelled", "neither a Topic"),
        (cancelled.about("order/1", where="payload.x > 1"), "where="),
        (cancelled.about(where=lambda payload: True), "where="),
        (cancelled.about("order/1", since="now"), "since="),
        (cancelled.about("order/1", deliver="latest"), "deliver="),
        (cancelled | Topic("other"), "give a list"),
        ([cancelled] * 17, "cancel_on_max"),
        (7, "neither a Topic"),
    ]
    for cancel_on, words in bad:
        with pytest.raises(BadValue, match=words):
            workflow(cancel_on=cancel_on)(fulfil)
    with pytest.raises(BadValue, match="nothing else"):
        cancelled.about(lambda order: "order/1", since="now")  # type: ignore[call-overload]
    with pytest.raises(BadValue):
        cancelled.about(entity_of)  # type: ignore[call-overload]


# --- debounce ---------------------------------------------------------------------------------------


def reindexing(app: App, log: Log) -> Any:
    @app.workflow
    async def reindex(ctx: Context, text: str) -> str:
        log.lines.append(text)
        await ctx.sleep("1h")
        return text

    return reindex


async def test_of_several_calls_the_last_one_runs_once_they_pause(world: Worlds, app: App) -> None:
    log = Log()
    reindex = reindexing(app, log)
    async with world(app) as w:
        first = await w.app.start(reindex, "a", debounce="5s", key="cart-7")
        assert first.created
        for text in ("b", "c"):
            await w.advance("4s")
            again = await w.app.start(reindex, text, debounce="5s", key="cart-7")
            assert (again.created, again.id) == (False, first.id)
        await w.advance("4s")
        assert log.lines == []
        await w.advance("1s")
        assert log.lines == ["c"]
        fresh = await w.app.start(reindex, "d", debounce="5s", key="cart-7")
        assert fresh.created and fresh.id != first.id
        await w.advance("2h")
        assert [await one.result() for one in (first, again, fresh)] == ["c", "c", "d"]


async def test_calls_that_never_pause_do_not_put_it_off_for_ever(world: Worlds, app: App) -> None:
    log = Log()
    reindex = reindexing(app, log)
    async with world(app) as w:
        for nth in range(12):
            await w.app.start(reindex, str(nth), debounce="5s", debounce_max="20s", key="k")
            await w.advance("4s")
        assert log.lines == ["4", "9"]  # 20 s after the first call, and again


async def test_two_apps_and_a_crash_between_the_calls(world: Worlds, app: App) -> None:
    log = Log()
    reindex = reindexing(app, log)
    async with world(app) as w:
        first = await w.app.start(reindex, "a", debounce="5s", key="k")
        await w.advance("4s")
        await w.crash()
    async with world(app) as w:
        second = await w.app.start(reindex, "b", debounce="5s", key="k")
        assert (second.created, second.id) == (False, first.id)
        await w.advance("5s")
        assert [one for one in log.lines if one != "b"] == []
        assert log.lines


@without_eviction
async def test_options_that_do_not_go_together_are_refused(world: Worlds, app: App) -> None:
    reindex = reindexing(app, Log())
    bad: list[tuple[dict[str, Any], str]] = [
        ({"debounce": "5s"}, "needs key="),
        ({"debounce": "5s", "key": "k", "id": "r1"}, "with id="),
        ({"debounce": "5s", "key": "k", "start_at": "1h"}, "with start_at="),
        ({"debounce": "5s", "key": "k", "connection": object()}, "with connection="),
        ({"debounce": "0s", "key": "k"}, "more than nothing"),
        ({"debounce": "8d", "key": "k"}, "7 days"),
        ({"debounce": "soon", "key": "k"}, "not understood"),
        ({"debounce": "5s", "debounce_max": "4s", "key": "k"}, "debounce itself"),
        ({"debounce": "5s", "debounce_max": "8d", "key": "k"}, "7 days"),
        ({"debounce_max": "8s", "key": "k"}, "without debounce="),
    ]
    assert debounce_us_max == 7 * 86_400_000_000
    async with world(app) as w:
        for options, words in bad:
            with pytest.raises(BadValue, match=words):
                await w.app.start(reindex, "a", **options)
        assert not list(await w.app.runs())
        assert w.worker.resident_runs == 0


async def test_the_key_of_a_plain_start_is_another(world: Worlds, app: App) -> None:
    reindex = reindexing(app, Log())
    async with world(app) as w:
        plain = await w.app.start(reindex, "a", key="k")
        later = await w.app.start(reindex, "b", key="k", debounce="5s")
        assert plain.created and later.created
        assert not (await w.app.start(reindex, "a", key="k")).created


async def test_an_event_told_twice_cancels_once(world: Worlds, app: App) -> None:
    fulfil = waiting_workflow(app, Log(), cancel_on=cancelled)
    async with world(app) as w:
        run = await w.begin(fulfil, Order(1), entity="order/1")
        first = await w.app.emit(cancelled, {}, entity="order/1", key="k")
        assert isinstance(await w.app.emit(cancelled, {}, entity="order/1", key="k"), Duplicate)
        await w.settle()
        assert isinstance(first, Emitted) and await run.status() == "cancelled"
        assert len(await w.facts("workflow.run_cancelled")) == 1
