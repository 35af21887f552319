"""The public API as a type checker sees it. Checked by mypy and pyright, never run.

`assert_type` says what is inferred. A line that must be an error carries an ignore for each checker; both report an
ignore that silences nothing, so an error that is no longer found fails the check too.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

import logging
import sqlite3
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from perdure import (
    Accepted,
    App,
    Backfilled,
    Batch,
    Buffered,
    Client,
    ConsumerInfo,
    Context,
    Delivered,
    Duplicate,
    Emitted,
    Event,
    Fact,
    Finished,
    Health,
    HistoryEntry,
    NotFound,
    Page,
    ParkedEvent,
    Pool,
    PoolInfo,
    Queue,
    Queued,
    QueueItem,
    Refused,
    RemoteRun,
    Replayed,
    Retry,
    RunContents,
    RunHandle,
    RunInfo,
    ScheduleInfo,
    Signal,
    SignalStatus,
    SlotWait,
    Step,
    StepInfo,
    StreamInfo,
    StreamItem,
    SyncApp,
    SyncClient,
    SyncRun,
    TimedOut,
    Topic,
    Unserved,
    Waiting,
    Won,
    Workflow,
    step,
    step_info,
    timer,
    workflow,
)
from perdure.approvals import Approval as Asked
from perdure.approvals import ApprovalInfo, Decided, Decision
from perdure.approvals import approval as ask
from perdure.channels import AnyOf, RunEnd, Timer
from perdure.model.status import Status
from perdure.observing import JsonLines, OpenTelemetry, Prometheus, RunFilter
from perdure.play import Act, Call, Chorus, Cue, Play, Scene, Sleep
from perdure.runtime.calls import Durable
from perdure.testing import ReplayReport, replay_check


@dataclass
class Order:
    sku: str
    count: int


@dataclass
class Payment:
    amount: int


@dataclass
class Approval:
    ok: bool


class Connections:
    name: str = "pool"


app = App("memory://", deps=[Connections()])

# --- signals and unions --------------------------------------------------------------------------

approval = Signal("approval", Approval)
figure = Signal("figure", int, buffer="all", ttl="1h", on_end="dead_letter")
anything = Signal("anything")

assert_type(approval, Signal[Approval])
assert_type(figure, Signal[int])
assert_type(anything, Signal[Any])
assert_type(timer("48h"), Timer)
assert_type(approval | timer("48h"), AnyOf[Approval | TimedOut])
assert_type(approval | figure | timer(5), AnyOf[Approval | int | TimedOut])

Signal("x", int, buffer="newest")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
Signal("x", int, on_end="keep")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
approval | 5  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]

# --- steps ---------------------------------------------------------------------------------------


@app.step
async def charge(order: Order, tries: int = 1) -> Payment:
    return Payment(order.count * tries)


@app.step(retry=Retry(attempts=5, backoff="1s"), timeout="30s", raises=[ValueError])
async def reserve(order: Order) -> str:
    return order.sku


@step
def render(order: Order) -> str:
    return order.sku


@step(name="other", timeout=timedelta(seconds=5))
def count(order: Order) -> int:
    return order.count


@step
async def nothing() -> None:
    assert_type(step_info(), StepInfo)
    assert_type(step_info().dep(Connections), Connections)
    assert_type(step_info().idempotency_key, str)


async def plain(order: Order) -> bool:
    return bool(order.count)


def plain_sync(order: Order) -> float:
    return float(order.count)


checked_step: Step[[Order], str] = reserve
checked_plain_step: Step[[Order], str] = render
checked_with_options: Step[[Order], str] = reserve.options(name="again", timeout="5s")
wrong_step: Step[[Order], int] = reserve  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

# --- workflows -----------------------------------------------------------------------------------


@app.workflow
async def bare(ctx: Context, order: Order, note: str) -> Payment:
    # steps: async, plain, with options, undecorated
    assert_type(await ctx.step(charge, order), Payment)
    assert_type(await ctx.step(charge, order, tries=2), Payment)
    assert_type(await ctx.step(reserve, order), str)
    assert_type(await ctx.step(render, order), str)
    assert_type(await ctx.step(count, order), int)
    assert_type(await ctx.step(nothing), None)
    assert_type(await ctx.step(plain, order), bool)
    assert_type(await ctx.step(plain_sync, order), float)
    assert_type(await ctx.step(charge.options(timeout="5s"), order), Payment)
    await ctx.step(charge, "order")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.step(charge)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await ctx.step(charge, order, speed=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    # waits
    assert_type(await ctx.wait(approval), Approval)
    assert_type(await ctx.wait(approval, timeout="2d"), Approval)
    assert_type(await ctx.wait(approval | timer("48h")), Approval | TimedOut)
    assert_type(await ctx.wait(approval | figure | timer(5)), Approval | int | TimedOut)
    assert_type(await ctx.wait(anything), Any)
    match await ctx.wait(approval | timer("48h")):
        case Approval(ok=ok):
            assert_type(ok, bool)
        case TimedOut():
            pass
    won = await ctx.first(yes=approval, late=timer("1d"))
    assert_type(won, Won[Any])
    assert_type(won.name, str)
    await ctx.wait("approval")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await ctx.first(yes=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(await ctx.sleep("1d"), None)
    assert_type(await ctx.sleep_until(datetime.now(UTC)), None)
    await ctx.sleep(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    # branches
    assert_type(await ctx.gather(ctx.step(charge, order)), tuple[Payment])
    assert_type(
        await ctx.gather(ctx.step(charge, order), ctx.wait(approval)), tuple[Payment, Approval]
    )
    assert_type(
        await ctx.gather(ctx.step(charge, order), ctx.sleep(1), helper(ctx), ctx.wait(figure)),
        tuple[Payment, None, str, int],
    )
    several = [ctx.step(count, order) for _ in range(9)]
    assert_type(await ctx.gather(*several), tuple[int, ...])
    assert_type(await ctx.map(reserve, [order]), list[str])
    assert_type(await ctx.map(reserve, [order], concurrency=4), list[str])
    assert_type(await ctx.map(plain, [order]), list[bool])
    await ctx.map(reserve, ["order"])  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]

    # other runs
    child = await ctx.start(optioned, 3)
    assert_type(child, RunEnd[list[int]])
    assert_type(await ctx.wait(child), list[int])
    assert_type(await ctx.wait(child | timer(1)), list[int] | TimedOut)
    assert_type(await ctx.call(optioned, 3), list[int])
    await ctx.start(optioned, "three")  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    await ctx.call(optioned)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]

    # sends and facts
    sent = await ctx.signal("run", approval, Approval(True))
    assert_type(sent, Delivered | Buffered | Duplicate[Delivered | Buffered])
    assert_type(await ctx.set("stage", "packing"), None)
    assert_type(ctx.now(), datetime)
    assert_type(ctx.random(), float)
    assert_type(ctx.ulid(), str)
    assert_type(ctx.run_id, str)
    assert_type(ctx.dep(Connections), Connections)
    ctx.log.info("note %s", note)
    with ctx.scope("packing"):
        pass
    return Payment(1)


async def helper(ctx: Context) -> str:
    await ctx.sleep(1)
    return "helped"


@app.workflow(name="optioned", version=2, signals=[approval, figure])
async def optioned(ctx: Context, start: int) -> list[int]:
    return [start]


@workflow
async def free(ctx: Context) -> None:
    await ctx.continue_as(optioned, 1)


@workflow(signals=[approval])
async def free_optioned(ctx: Context, order: Order) -> str:
    return order.sku


assert_type(bare, Workflow[Payment, Order, str])
assert_type(optioned, Workflow[list[int], int])
assert_type(free, Workflow[None])
assert_type(free_optioned, Workflow[str, Order])


@app.workflow  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def not_async(ctx: Context) -> int:
    return 1


# --- the app from outside ------------------------------------------------------------------------


async def outside(order: Order) -> None:
    async with app as opened:
        assert_type(opened, App)
        run = await app.start(bare, order, "note", id="order-42", tags={"a": "b"}, start_at="1h")
        assert_type(run, RunHandle[Payment])
        assert_type(await run.result(), Payment)
        assert_type(await run.result(timeout="1s"), Payment)
        assert_type(run.id, str)
        assert_type(run.created, bool)
        assert_type(await run.info(), RunInfo)
        assert_type(await run.contents(), RunContents)
        assert_type(await run.history(), Page[HistoryEntry])
        assert_type(await run.get("stage"), Any)
        assert_type(await (await app.start(optioned, 3)).result(), list[int])
        assert_type(await (await app.start(free)).result(), None)

        await app.start(bare, order)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
        await app.start(bare, "order", "note")  # type: ignore[misc, call-arg]  # pyright: ignore[reportCallIssue, reportArgumentType]
        await app.start(bare, order, "note", 3)  # type: ignore[misc, call-arg]  # pyright: ignore[reportCallIssue, reportArgumentType]
        await app.start(optioned, 3, id=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
        await app.start(plain, order)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]

        sent = await app.signal(run.id, approval, Approval(True), key="k", path="p", buffer=False)
        assert_type(sent, Delivered | Buffered | Duplicate[Delivered | Buffered])
        match sent:
            case Delivered(path=path):
                assert_type(path, str)
            case Buffered(replaced=replaced):
                assert_type(replaced, str | None)
            case Duplicate(of=first):
                assert_type(first, Delivered | Buffered)
        many = await app.signal_many([(run.id, approval, Approval(True)), (run.id, "x", 1)])
        assert_type(
            many,
            list[
                Delivered
                | Buffered
                | Duplicate[Delivered | Buffered]
                | Finished
                | NotFound
                | Refused
            ],
        )
        both = await app.signal_with_start(optioned, 1, signal=figure, payload=3, id="a")
        assert_type(
            both,
            tuple[RunHandle[list[int]], Delivered | Buffered | Duplicate[Delivered | Buffered]],
        )
        await app.signal_with_start(optioned, "1", signal=figure, payload=3, id="a")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
        assert_type(await app.signal_status("id"), SignalStatus | None)

        page = await app.runs(workflow=bare, status=["ready", "running"], tag=("a", "b"))
        assert_type(page, Page[RunInfo])
        assert_type(page[0], RunInfo)
        assert_type(page[1:], list[RunInfo])
        assert_type(page.cursor, str | None)
        await app.runs(status="done")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert_type(await app.find_waiting(approval), Page[Waiting])
        assert_type(await app.prune("30d"), int)
        assert_type(app.run("a"), RunHandle[Any])
        assert_type(app.copy("memory://"), App)


# --- topics and queues ---------------------------------------------------------------------------

paid = Topic("order.paid", Payment)
loose_topic = Topic("order.noted")
jobs = Queue("jobs", Order)
assert_type(paid, Topic[Payment])
assert_type(loose_topic, Topic[Any])
assert_type(jobs, Queue[Order])
Topic("order.paid", Payment, repeats="never")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType,reportCallIssue]


async def events(ctx: Context) -> None:
    assert_type(await ctx.wait(paid), Payment)
    assert_type(await ctx.wait(paid.about("order/1", since="now") | timer(1)), Payment | TimedOut)
    assert_type(await ctx.wait(paid.about(where=lambda one: one.amount > 3)), Payment)
    assert_type(await ctx.wait(approval | jobs), Approval | Order)
    told = await ctx.emit(paid, Payment(1), entity="order/1")
    assert_type(told, Emitted | Duplicate[Emitted])
    assert_type(
        await ctx.emit_many([(paid, Payment(1))]),
        list[Emitted | Duplicate[Emitted]],
    )
    item = await ctx.put(jobs, Order("a", 1))
    assert_type(item, Delivered | Queued | Duplicate[Delivered | Queued])
    assert_type(ctx.event_id, str | None)
    await ctx.emit(paid, "x")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.put(jobs, 5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.signal("r", approval, 5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def ledger(event: Event) -> None:
    async with app:
        told = await app.emit(paid, Payment(1), entity="order/1", key="k", caused_by=event)
        assert_type(told, Emitted | Duplicate[Emitted])
        await app.emit("order.noted", {"any": "thing"})
        many = await app.emit_many([Fact(topic=paid, payload=Payment(1)), ("order.noted", 1)])
        assert_type(many, list[Emitted | Duplicate[Emitted] | Refused])
        assert_type(
            await app.put(jobs, Order("a", 1)), Delivered | Queued | Duplicate[Delivered | Queued]
        )
        await app.emit(paid, "x")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
        await app.emit(paid)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await app.put(jobs, 5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
        await app.put(jobs)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await app.signal("r", approval, 5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
        # Plain JSON is taken for a type, and checked when it is sent; what has no type needs no payload.
        await app.emit(paid, {"amount": 1})
        await app.emit(Topic("temperatures", list[float]), [1, 2])
        await app.put(jobs, {"sku": "a", "count": 1})
        await app.emit(Topic("anything"))
        await app.put(Queue("anything"))
        await app.signal("r", Signal("anything"))
        assert_type(await app.events("order.*", order="occurred_at"), Page[Event])
        assert_type(await app.timeline("order/1"), Page[Event])
        assert_type(await app.latest(paid, entity="order/1"), Event | None)
        assert_type(await app.watchers(paid), Page[Waiting])
        assert_type(await app.queue_items(jobs), Page[QueueItem])
        assert_type(await app.purge(jobs), int)
        assert_type(paid.read(event), Payment)


# --- steps and calls are what they say -----------------------------------------------------------


def protocols(ctx: Context, order: Order) -> None:
    durable: Durable[Payment] = ctx.step(charge, order)
    awaitable: Awaitable[Payment] = durable
    coroutine: Coroutine[Any, Any, list[int]] = ctx.call(optioned, 1)
    del awaitable, coroutine


# --- readers of the ledger ---------------------------------------------------------------------------


reading = App("memory://")


@reading.consumer("health", "ar.*", "email.*", every="*/5 * * * *", batch=500, dedupe=True)
async def health(batch: Batch) -> None:
    for event in batch:
        assert_type(event, Event)
    assert_type(batch[0], Event)
    assert_type(batch.dep(Connections), Connections)
    assert_type(batch.start(ship, Order("a", 1), id="x"), str)
    batch.start(ship, "a")  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    batch.signal("x", Signal("go", int), 1)
    assert_type(batch.emit("a.b", {"n": 1}, cause=batch[0]), str)
    batch.put("jobs", 1)
    batch.emit(paid, "x")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    batch.put(jobs, 5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    batch.signal("x", approval, 5)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]


@reading.consumer("plain", "a")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
def plain_handler(batch: Batch) -> None: ...


@reading.on("order.*", where="payload.n > 1", key=lambda event: "k")
@reading.workflow
async def ship(ctx: Context, order: Order) -> int:
    return 1


assert_type(ship, Workflow[int, Order])


async def read() -> None:
    assert_type(await reading.consumers(), list[ConsumerInfo])
    assert_type(await reading.parked("health", limit=5), Page[ParkedEvent])
    assert_type(await reading.refire("health", 7), bool)
    assert_type(await reading.rewind("health", "beginning"), int)
    await reading.rewind("health", "soon")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(await reading.replay("health", since=1, dry_run=True), Replayed)
    assert_type(await reading.replay(health), Replayed)
    assert_type(await reading.health(), Health)
    await reading.subscribe("order.*", ship, name="s", map="{}")
    await reading.subscribe(paid, ship, name="s", map="{}")
    await reading.subscribe("a", "b", name="s", where=len)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# --- schedules ----------------------------------------------------------------------------------------


reading.schedule("0 7 * * mon-fri", ship, Order("a", 1), zone="Europe/Berlin", catch_up="one")
reading.schedule(timedelta(minutes=15), ship, Order("a", 1), name="quarterly", overlap="queue")
assert_type(reading.schedule("15m", "ship", {"sku": "a"}), Awaitable[None])
reading.schedule("15m", ship)  # type: ignore[call-arg, misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
reading.schedule("15m", ship, "a")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
reading.schedule("15m", ship, Order("a", 1), 2)  # type: ignore[call-arg, misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
reading.schedule("15m", ship, Order("a", 1), catch_up="some")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
reading.schedule(None, ship, Order("a", 1))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


@reading.workflow
async def ticked(ctx: Context) -> None:
    assert_type(ctx.tick, datetime | None)


async def scheduled(since: datetime) -> None:
    await reading.schedule("1h", ticked, name="hourly")
    assert_type(await reading.schedules(limit=5), Page[ScheduleInfo])
    assert_type((await reading.schedules())[0].next_ticks, list[datetime])
    assert_type(await reading.trigger("hourly"), RunHandle[Any])
    assert_type(await reading.backfill("hourly", since, since, dry_run=False), Backfilled)
    assert_type(await reading.unschedule("hourly"), bool)
    await reading.pause_schedule("hourly", "why")
    await reading.resume_schedule("hourly", "why")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# --- pools --------------------------------------------------------------------------------------------

gpu = Pool("gpu", limit=4, per_key=1, rate="100/1m", per_key_rate="5/1s")
pooled = App(pools=[gpu, "mail", ""])
Pool("gpu", limit="4")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Pool("gpu", 4)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
App(pools=[4])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


@pooled.workflow(pool=gpu)
async def rendered(ctx: Context, scene: str) -> int:
    assert_type(await ctx.call(rendered, "child", pool_key="a", priority=1), int)
    return 1


async def in_pools() -> None:
    run = await pooled.start(rendered, "a", pool=gpu, pool_key="tenant-7", priority=5)
    assert_type(run, RunHandle[int])
    await pooled.start(rendered, "a", priority="high")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert_type(await pooled.set_pool("gpu", limit=8, rate=None), PoolInfo)
    assert_type(await pooled.reset_pool(gpu), PoolInfo)
    assert_type(await pooled.pools(), list[PoolInfo])
    assert_type(await pooled.waiting_for_slot(gpu, limit=5), Page[SlotWait])


# --- transactions of one's own ------------------------------------------------------------------------


async def with_a_transaction_of_ones_own(order: Order, connection: sqlite3.Connection) -> None:
    started = await app.start(bare, order, "note", id="order-42", connection=connection)
    assert_type(started, Accepted)
    assert_type(started.target, str)
    assert_type(
        await app.signal("r", approval, Approval(True), key="k", connection=connection), Accepted
    )
    assert_type(await app.signal("r", "approval", connection=connection), Accepted)
    assert_type(await app.emit(paid, Payment(1), connection=connection), Accepted)
    assert_type(await app.emit("order.paid", 3, entity="order/7", connection=connection), Accepted)
    assert_type(await app.put(jobs, Order("a", 1), connection=connection), Accepted)
    assert_type(await app.put("jobs", 1, connection=connection), Accepted)

    await app.start(bare, order, connection=connection)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.put(jobs, 3, connection=connection)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]


@app.step
def noted(tx: sqlite3.Connection, order: Order, count: int = 1) -> Payment:
    return Payment(count)


def plainly_noted(tx: sqlite3.Connection, order: Order) -> str:
    return order.sku


async def noted_by_a_server(tx: Connections, order: Order, *, count: int) -> bool:
    return True


async def transactions(ctx: Context, order: Order) -> None:
    assert_type(await ctx.transaction(noted, order), Payment)
    assert_type(await ctx.transaction(noted.options(name="n"), order, 2), Payment)
    assert_type(await ctx.transaction(plainly_noted, order), str)
    assert_type(await ctx.transaction(noted_by_a_server, order, count=1), bool)
    assert_type(
        await ctx.gather(ctx.transaction(noted, order), ctx.transaction(plainly_noted, order)),
        tuple[Payment, str],
    )

    await ctx.transaction(noted, "order")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.transaction(plainly_noted)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


# --- versions, forks, documents ------------------------------------------------------------------------


@app.workflow(name="versioned", version=1)
async def versioned(ctx: Context, order: Order, note: str) -> int:
    assert_type(ctx.patched("new-tax"), bool)
    ctx.patched(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await ctx.patched("new-tax")  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    return 1


async def carry() -> None:
    run = await app.start(versioned, Order("a", 1), "x")
    document = await run.export()
    assert_type(document, dict[str, Any])
    assert_type(await app.import_run(document, id="b"), RunHandle[Any])
    await app.import_run("text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(await run.fork("charge"), RunHandle[int])
    assert_type(
        await run.fork(input=(Order("a", 2), "y"), version=2, tags={"a": "b"}), RunHandle[int]
    )
    await run.fork(version="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await run.fork(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type((await app.health()).unserved, list[Unserved])
    newest = app.registry.newest("versioned")
    assert_type(await app.start(newest, 1, "x"), RunHandle[Any])
    report = replay_check(app, document)
    assert_type(report, ReplayReport)
    replay_check(app, [document, "histories", Path("histories")])
    replay_check(app, 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# --- deadlines, debounced starts, events that cancel --------------------------------------------------


def two_entity(order: Order, word: str) -> str:
    return word


def order_entity(order: Order) -> str:
    return f"order/{order.sku}"


@reading.workflow(cancel_on=paid)
async def stopped(ctx: Context, order: Order) -> int:
    assert_type(await ctx.call(ship, order, deadline="2h", entity="order/1"), int)
    await ctx.start(ship, order, deadline=timedelta(hours=2))
    await ctx.start(ship, order, deadline=[2])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return 1


@reading.workflow(
    cancel_on=[
        paid,
        paid.about("sku/7"),
        paid.about(order_entity),
        paid.about(lambda order: "a/b"),
        paid.about(two_entity),
    ]
)
async def stopped_by_any(ctx: Context, order: Order) -> int:
    return 1


reading.workflow(cancel_on="order.paid")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
paid.about(order_entity, since="now")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
paid.about(len)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def put_off(at: datetime) -> None:
    order = Order("a", 1)
    assert_type(await reading.start(stopped, order, deadline="2h"), RunHandle[int])
    assert_type(await reading.start(stopped, order, deadline=at), RunHandle[int])
    handle = await reading.start(stopped, order, debounce="5s", debounce_max=60, key="k")
    assert_type(handle, RunHandle[int])
    assert_type((await handle.info()).deadline_at, datetime | None)
    await reading.start(stopped, order, debounce=at, key="k")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await reading.start(stopped, order, debounce="5s", connection=object())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    paid.about(order_entity) | paid  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]


# --- plays and sagas -----------------------------------------------------------------------------------


@dataclass
class Basket:
    total: int = 0
    paid_by: str = ""


def hold_back(ctx: StepInfo, basket: Basket) -> None:
    basket.total += 1


async def release(ctx: StepInfo, basket: Basket) -> Basket:
    return basket


def take_payment(ctx: StepInfo, basket: Basket, payment: Payment) -> None:
    basket.paid_by = str(payment)


def tier_of(basket: Basket) -> str:
    return "gold" if basket.total > 10 else "plain"


def wrong_state(ctx: StepInfo, state: Order) -> None: ...


basket_play = Play(
    "basket",
    Basket,
    [
        Act("reserve", hold_back, compensate=release, retry=Retry(attempts=3), timeout="30s"),
        Signal("payment", Payment, on_receive=take_payment, timeout="48h", on_timeout=hold_back),
        Scene("ship", [Chorus("tell", [Act("mail", hold_back), Act("sms", release)])], saga=True),
        Sleep("rest", lambda basket: basket.total, condition=lambda basket: basket.total > 1),
        Cue("tier", tier_of, {"gold": Act("gift", hold_back), "plain": [], "else": None}),
        Call("count", ship, input=lambda basket: Order("a", basket.total)),
    ],
)
assert_type(basket_play, Play[Basket])
Play("bad", Basket, [Act("a", wrong_state)])  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
Signal("payment", Payment, on_receive=wrong_state)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]


async def perform(app: App) -> None:
    app.add(basket_play)
    run = await app.start(basket_play, Basket())
    assert_type(run, RunHandle[Basket])
    assert_type(await run.result(), Basket)
    assert_type(await run.graph(), dict[str, Any])
    await run.retry("payment", payload={"id": "p"})
    await app.start(basket_play, "basket")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]


@reading.workflow
async def trip(ctx: Context, order: Order) -> int:
    async with ctx.saga() as saga:
        saga.on_rollback(plainly_undone, order, "word")
        saga.on_rollback(plainly_undone, order)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
        assert_type(await ctx.call(basket_play, Basket()), Basket)
    return 1


def plainly_undone(order: Order, word: str) -> None: ...


# --- streams, and questions ---------------------------------------------------------------------------

asked = Signal("asked", Order)
unasked = Signal("unasked")


@reading.workflow
async def talking(ctx: Context, order: Order) -> int:
    assert_type(await ctx.publish("progress", order), int)
    assert_type(await ctx.reply(order), None)
    await ctx.reply()
    await ctx.publish(1, order)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return 1


def speaking() -> None:
    step_info().publish("progress", 1)
    step_info().publish(1, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def reads_along(order: Order) -> None:
    run = await reading.start(talking, order)
    async for typed in run.stream("progress", type=Order):
        assert_type(typed, StreamItem[Order])
        assert_type(typed.value, Order)
        assert_type(typed.position, int)
    async for item in run.stream("progress", after=7, follow=False):
        assert_type(item.published_at, datetime)
        assert_type(item.path, str)
    assert_type(await run.streams(), list[StreamInfo])
    assert_type(await reading.ask(run.id, asked, order, type=Payment), Payment)
    assert_type(await reading.ask(run.id, "asked", order, type=Payment, timeout="1s"), Payment)
    assert_type(await reading.ask(run.id, unasked, key="k"), Any)
    assert_type(await reading.ask(run.id, asked, {"sku": "a"}), Any)
    await reading.ask(run.id, asked, 7)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    run.stream("progress", after="7")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


# --- approvals ---


async def approvals(ctx: Context, app: App) -> None:
    plain = ask("refund", title="Refund?", who="anna", expires="1d", remind=["4h", "8h"])
    assert_type(plain, Asked[None])
    typed = ask("refund", type=Order, choices=["yes", "no"], remind=timedelta(hours=4))
    assert_type(typed, Asked[Order])
    assert_type(ask("refund", type=Order | None), Asked[Any])
    assert_type(await ctx.wait(plain), Decision[None])
    assert_type(await ctx.wait(ask("x", type=Order) | timer("1h")), Decision[Order] | TimedOut)
    decision = await ctx.wait(typed, timeout="1h")
    assert_type(decision.payload, Order)
    assert_type(decision.choice, str | None)
    assert_type(decision.decided_at, datetime)
    page = await app.approvals(who=["anna", "group:finance"], workflow="refunds", limit=10)
    assert_type(page, Page[ApprovalInfo])
    decided = await app.decide(page[0].id, "approve", by="anna", groups=["finance"], key="k")
    assert_type(decided, Decided | Duplicate[Decided])
    link = app.approval_link(page[0].id, by="anna", choice="approve", expires="2d", url="https://x")
    assert_type(link, str)
    assert_type(await app.answer(link, comment="by mail"), Decided)
    await app.decide(page[0].id, "approve")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ask("x", choices=7)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    App("memory://", secret=["a" * 16, b"b" * 16])


# --- code that may wait -------------------------------------------------------------------------------


def plainly(order: Order, db: sqlite3.Connection) -> None:
    with app.sync as shop:
        assert_type(shop, SyncApp)
        run = shop.start(ship, order, id="o", tags={"a": "b"}, start_at="1h")
        assert_type(run, SyncRun[int])
        assert_type(run.result(timeout="1m"), int)
        assert_type(run.id, str)
        assert_type(run.created, bool)
        assert_type(run.history(), Page[HistoryEntry])
        assert_type(run.fork("charge"), SyncRun[int])
        assert_type(shop.start("ship", 1, version=2), SyncRun[Any])
        assert_type(shop.start(ship, order, connection=db), Accepted)
        assert_type(shop.run("o"), SyncRun[Any])
        assert_type(shop.run("o").cancel(), Status)
        shop.start(ship)  # type: ignore[misc, call-arg]  # pyright: ignore[reportCallIssue, reportArgumentType]
        shop.start(ship, "order")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
        shop.start(ship, order, version=2)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
        sent = shop.signal(run.id, approval, Approval(True), key="k")
        assert_type(sent, Delivered | Buffered | Duplicate[Delivered | Buffered])
        assert_type(shop.signal(run.id, "approval", connection=db), Accepted)
        shop.signal(run.id, approval, 7)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
        both = shop.signal_with_start(ship, order, signal=figure, payload=3, id="o")
        assert_type(both[0], SyncRun[int])
        assert_type(shop.ask(run.id, approval, Approval(True), type=Payment), Payment)
        assert_type(shop.runs(status="waiting"), Page[RunInfo])
        assert_type([one.id for one in shop.runs()], list[str])
        assert_type(shop.latest("order.paid"), Event | None)
        assert_type(shop.schedule("1h", ship, order), None)
        assert_type(shop.trigger("nightly"), SyncRun[Any])
        shop.schedule("1h", ship)  # type: ignore[misc, call-arg]  # pyright: ignore[reportCallIssue, reportArgumentType]
        shop.runs(limits=7)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        for typed in run.stream("progress", type=Order):
            assert_type(typed.value, Order)
        items = run.stream("progress", after=7)
        assert_type(next(items), StreamItem[Any])
        items.close()
    assert_type(app.sync.open(), SyncApp)
    app.sync.close()
    app.sync.add(ship)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def from_elsewhere(order: Order) -> None:
    async with Client("http://localhost", "token", timeout="5s") as client:
        run = await client.start(ship, order, id="o")
        assert_type(run, RemoteRun[int])
        assert_type(await run.result(), int)
        assert_type(await run.fork(input=order, tags={}), RemoteRun[int])
        found = await client.signal_with_start(ship, order, signal=figure, payload=3, id="o")
        assert_type(found[0], RemoteRun[int])
        async for item in run.stream("progress", type=Order):
            assert_type(item, StreamItem[Order])
        await client.start(ship, "order")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
        await client.start(ship, order, connection=object())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def plainly_from_elsewhere(order: Order) -> None:
    with SyncClient("http://localhost", "token", timeout=5) as client:
        assert_type(client, SyncClient)
        run = client.start(ship, order, id="o")
        assert_type(run, SyncRun[int])
        assert_type(run.result(), int)
        assert_type(client.queues(), dict[str, int])
        assert_type(next(client.follow("order.*", after=0)), Event | RunInfo)
        assert_type(client.approval_link("a.b", by="anna"), str)
        for item in run.stream("progress", type=Order):
            assert_type(item, StreamItem[Order])
        client.start(ship, "order")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
        client.put(jobs, 3)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
        client.start(ship, order, connection=object())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    SyncClient()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# --- who watches -------------------------------------------------------------------------------------


def watched() -> None:
    App("memory://", redact=["password"], observe=[OpenTelemetry(payloads=True), Prometheus()])
    App("memory://", redact="password")  # one text is a sequence of texts: refused when it is made
    App("memory://", observe=["otel"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    handler = logging.StreamHandler()
    handler.addFilter(RunFilter(replays=True))
    handler.setFormatter(JsonLines())
