"""Batches: an op is atomic; a batch of ops is the same as its ops one by one; what cannot apply spoils nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure.model import ops
from perdure.model.outcomes import (
    Advanced,
    Buffered,
    Delivered,
    Finished,
    Fired,
    NotFound,
    Refusal,
    Started,
)
from perdure.model.records import (
    ChannelRecord,
    DeferredRecord,
    ScheduleRecord,
    SubscriptionRecord,
)
from perdure.store.base import BatchFailed
from perdure.testing.clock import VirtualClock
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.dump import comparable, dump, normal
from perdure.testing.conformance.fixtures import MakeStore, Subject, opened
from perdure.testing.conformance.words import (
    WORKER,
    done,
    queue,
    run,
    signal,
    sleep,
    timer,
    topic,
    wait,
)


def turn(
    kind: Callable[..., Any], run_id: str, fence: int, revision: int = 0, **fields: Any
) -> Any:
    """An op of the owner whose fence is known beforehand."""
    return kind(run_id=run_id, fence=fence, revision=revision, **fields)


def a_day(d: Driver) -> list[ops.Op[Any]]:
    """Ops of every kind that meet each other within one batch."""
    start, send = d.start_op, d.signal_op
    go = wait("w", signal("go"), timer("1h"))
    return [
        start("a", fence=1),
        start("b", fence=2),
        start("c", fence=3, key="k"),
        start("c2", fence=4, key="k"),
        send("a", "go", "1", signal_id="s1"),
        turn(ops.Suspend, "a", 1, waits=(go,)),
        turn(ops.Suspend, "b", 2, waits=(go,)),
        send("b", "go", "2", signal_id="s2"),
        send("b", "go", "3", signal_id="s3"),
        send("b", "go", "4", signal_id="s4"),
        send("nobody", "go", signal_id="s5"),
        turn(ops.RecordStep, "c", 3, steps=(done("x"),)),
        turn(ops.Suspend, "c", 3, waits=(wait("w", run("a"), signal("go")),)),
        turn(ops.Finish, "a", 1, status="completed", output="7"),
        turn(ops.Finish, "a", 1, status="completed", output="8"),
        ops.ClaimRuns(worker_id=WORKER, fence=9, limit=5, workflows=(("orders", 1),)),
        turn(ops.Suspend, "c", 9, 1, waits=(sleep("s", "1h"),)),
        ops.Pause(run_id="c"),
        ops.Resume(run_id="c"),
        ops.Cancel(run_id="b", reason="late"),
        ops.FireTimers(limit=10),
        ops.Recover(limit=10, suspects=("a", "b", "c")),
        send("b", "more", "5", signal_id="s6", policy="all", key="k"),
        send("b", "more", "5", signal_id="s7", policy="all", key="k"),
        turn(ops.ContinueAs, "b", 9, 2, workflow="orders", version=1, input="2"),
        ops.Terminate(run_id="b"),
        ops.Prune(finished_before=d.clock.now() + 1, limit=1),
    ]


def a_day_of_events(d: Driver) -> list[ops.Op[Any]]:
    """Likewise, around topics, queues, consumers, subscriptions and schedules."""
    start, send = d.start_op, d.signal_op
    paid, jobs = topic("paid"), queue("jobs")
    rule = SubscriptionRecord(name="rule", pattern="*", workflow="orders")
    put_off = DeferredRecord(
        position=2, subscription="rule", event_id="e2", reason="fanout", deferred_at=0
    )
    often = ScheduleRecord(name="often", workflow="orders", input="[]", interval_us=60_000_000)
    fill = ops.BackfillSchedule(
        name="often",
        workflow="orders",
        version=1,
        after=d.clock.now() - 120_000_000,
        until=d.clock.now(),
        limit=10,
    )
    fire = ops.FireSchedules(limit=10, workflows=(("orders", 1),))
    spoilt = ops.Effect(op=start("a", input="9"), position=2, subscription="rule")
    return [
        ops.Declare(
            channels=(ChannelRecord(kind="topic", name="typed", schema='{"type":"string"}'),)
        ),
        d.emit_op("paid", "0", event_id="e1", repeats="ignore"),
        d.emit_op("paid", "0", event_id="e2", repeats="ignore"),
        start("a", fence=1),
        start("b", fence=2),
        start("c", fence=3),
        start("e", fence=4),
        turn(ops.Suspend, "a", 1, waits=(wait("w", jobs, paid, timer("1h")),)),
        turn(ops.Suspend, "b", 2, waits=(wait("w", topic("paid", "x/1"), jobs),)),
        turn(ops.Suspend, "c", 3, waits=(wait("w", signal("go"), topic("paid", filter="t")),)),
        turn(ops.Suspend, "e", 4, waits=(wait("w", topic("workflow.run_completed")),)),
        ops.Emit(events=(d.event("paid", "1", key="k"), d.event("paid", "1", key="k"))),
        d.emit_op("typed", "1"),
        d.emit_op("paid", "2", event_id="e3", entity="x/2"),
        ops.ResolveWait(run_id="c", generation=0, path="w", ix=1, position=8, examined=8),
        d.put_op("jobs", "3", item_id="i1", key="k"),
        d.put_op("jobs", "3", item_id="i2", key="k"),
        d.put_op("jobs", "4", item_id="i3"),
        d.put_op("jobs", "5", item_id="i4"),
        ops.ClaimRuns(worker_id=WORKER, fence=9, limit=5, workflows=(("orders", 1),)),
        turn(ops.Suspend, "a", 9, 1, waits=(wait("w2", jobs), wait("w3", paid)), park=False),
        turn(ops.RecordStep, "a", 9, 1, closed=("w2",)),
        ops.PurgeQueue(queue="jobs", put_before=None, limit=1),
        turn(ops.Finish, "b", 9, 1, status="completed", output="7"),
        ops.FanOut(limit=10),
        ops.ClaimConsumer(name="runner", worker_id=WORKER, fence=11, patterns="[]", start=0),
        ops.PutSubscription(subscription=rule, start=0),
        ops.AdvanceCursor(
            name="runner", fence=11, seen=0, position=2, effects=(spoilt,), deferred=(put_off,)
        ),
        ops.CommitEffects(consumer="runner", effects=(spoilt,), unpark=(2, "rule")),
        ops.DrainDeferred(starts=((2, "rule", start("d", fence=5), None),), consumer="runner"),
        ops.SteerConsumer(name="runner", position=5, paused=True),
        ops.DropParked(consumer="runner", events=((2, "rule"),)),
        ops.SwitchSubscription(name="rule", enabled=False),
        ops.DropSubscription(name="rule"),
        ops.DropConsumer(name="runner"),
        ops.PutSchedule(schedule=often),
        fill,
        fire,
        ops.TriggerSchedule(name="often", run_id="often@now", workflow="orders", version=1),
        ops.Terminate(run_id="often@2026-01-05T08:59:00Z"),
        fire,
        ops.SteerSchedule(name="often", paused=True),
        fire,
        ops.DropSchedule(name="often"),
        ops.PutSchedule(schedule=often),
        ops.TrimLedger(recorded_before=None, keep=5, limit=100, idle_before=0),
        send("c", "go", "6", signal_id="s1"),
        d.emit_op("paid", "7", event_id="e9"),
    ]


class TestBatches(Subject):
    async def test_an_empty_batch_is_nothing(self, d: Driver) -> None:
        before = await dump(d.store)
        assert await d.batch() == []
        assert await dump(d.store) == before

    async def test_answers_come_in_the_order_of_the_ops(self, d: Driver) -> None:
        outcomes = await d.batch(
            d.start_op("r1"), d.signal_op("r1", "go"), d.signal_op("r2", "go"), d.start_op("r2")
        )
        assert [type(one) for one in outcomes] == [Started, Buffered, NotFound, Started]

    async def test_an_op_sees_what_the_ops_before_it_did(self, d: Driver) -> None:
        suspend = turn(ops.Suspend, "r1", 5, waits=(wait("w", signal("go")),))
        outcomes = await d.batch(d.start_op("r1", fence=5), suspend, d.signal_op("r1", "go", "1"))
        assert isinstance(outcomes[2], Delivered)
        assert (await d.step("r1", "w")).value == "1"

    async def test_a_suspend_after_its_signal_never_suspends(self, d: Driver) -> None:
        await d.start("r1", fence=5)
        suspend = turn(ops.Suspend, "r1", 5, waits=(wait("w", signal("go")),))
        _, answer = await d.batch(d.signal_op("r1", "go", "1"), suspend)
        assert isinstance(answer, Advanced)
        assert [one.value for one in answer.completions] == ["1"]
        assert await d.status("r1") == "running"

    async def test_of_several_signals_the_first_wins_the_wait_and_the_rest_buffer(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", signal("go"))
        sends = [d.signal_op("r1", "go", payload, policy="all") for payload in ("1", "2", "3")]
        outcomes = await d.batch(*sends)
        assert [type(one) for one in outcomes] == [Delivered, Buffered, Buffered]
        assert (await d.step("r1", "w")).value == "1"
        assert await d.payloads("r1") == ["2", "3"]

    async def test_two_claims_in_one_batch_share_the_runs_out(self, d: Driver) -> None:
        for number in range(4):
            await d.start(f"r{number}", owner=None)
        claims = [
            ops.ClaimRuns(worker_id=f"w{fence}", fence=fence, limit=3, workflows=(("orders", 1),))
            for fence in (7, 8)
        ]
        first, second = await d.batch(*claims)
        assert [one.run_id for one in first.runs] == ["r0", "r1", "r2"]
        assert [one.run_id for one in second.runs] == ["r3"]
        await d.beat("w7")
        await d.beat("w8")

    async def test_an_op_that_cannot_apply_never_spoils_its_batch(self, d: Driver) -> None:
        await d.start("r1", fence=5)
        await d.start("ended")
        await d.finish("ended")
        outcomes = await d.batch(
            d.start_op("r2"),
            d.signal_op("ended", "go"),
            turn(ops.Finish, "r1", 666, status="completed"),
            d.start_op("r1", input="other"),
            ops.Retry(run_id="r1"),
            ops.Resume(run_id="r1"),
            ops.ResendDeadLetter(dead_letter_id="nothing", signal_id="s"),
            d.signal_op("r1", "go", buffer=False),
            ops.Cancel(run_id="nobody"),
            d.start_op("r3"),
        )
        refused = [type(one).__name__ for one in outcomes[1:-1]]
        assert refused == [
            "Finished",
            "Fenced",
            "Refusal",
            "Refusal",
            "Refusal",
            "Refusal",
            "Refusal",
            "NotFound",
        ]
        assert isinstance(outcomes[0], Started) and isinstance(outcomes[-1], Started)
        assert await d.status("r2") == await d.status("r3") == "running"
        assert isinstance(outcomes[1], Finished) and isinstance(outcomes[3], Refusal)

    @pytest.mark.parametrize("a_day", [a_day, a_day_of_events])
    async def test_a_batch_is_its_ops_one_by_one(
        self,
        make_store: MakeStore,
        clock: VirtualClock,
        a_day: Callable[[Driver], list[ops.Op[Any]]],
    ) -> None:
        async with (
            opened(make_store, clock, True) as fused,
            opened(make_store, VirtualClock(), True) as single,
        ):
            together = await fused.batch(*a_day(fused))
            one_by_one = [await single.apply(op) for op in a_day(single)]
            assert [comparable(one) for one in together] == [comparable(one) for one in one_by_one]
            assert normal(await dump(fused.store)) == normal(await dump(single.store))
            wakes = [[comparable(one.wakes) for one in d.heard[1:]] for d in (fused, single)]
            assert wakes[0] == wakes[1]

    async def test_a_batch_of_a_thousand_ops_is_one_commit(self, d: Driver) -> None:
        starts = [d.start_op(f"r{number:03}", fence=number + 1) for number in range(500)]
        sleeps = [
            turn(ops.Suspend, f"r{number:03}", number + 1, waits=(sleep("s", "1h"),))
            for number in range(500)
        ]
        outcomes = await d.batch(*starts, *sleeps)
        assert all(isinstance(one, Started | Advanced) for one in outcomes)
        assert (await d.store.counts())["runs.sleeping"] == 500
        d.advance("1h")
        assert await d.fire(limit=1000) == Fired(500, None)
        assert len((await d.claim(limit=1000)).runs) == 500

    @pytest.mark.parametrize("to", ["r1", "r2"])
    async def test_the_id_of_a_buffered_signal_is_used_once(self, d: Driver, to: str) -> None:
        await d.start("r1")
        await d.start("r2")
        await d.apply(d.signal_op("r1", "go", "1", signal_id="s", policy="all"))
        with pytest.raises(BatchFailed):
            await d.apply(d.signal_op(to, "go", "2", signal_id="s", policy="all"))
        assert (await d.payloads("r1"), await d.payloads("r2")) == (["1"], [])

    async def test_the_id_of_an_event_is_used_once(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        await d.start_waiting("r2", signal("go"))
        await d.apply(d.signal_op("r1", "go", "1", signal_id="s"))
        with pytest.raises(BatchFailed):
            await d.apply(d.signal_op("r2", "go", "2", signal_id="s"))
        told = [one.entity_id for one in await d.store.events(0, 100) if one.event_id == "s"]
        assert told == ["r1"]

    async def test_the_id_of_a_batch_is_used_once(self, d: Driver) -> None:
        await d.store.apply("batch-x", [d.start_op("r1")])
        with pytest.raises(BatchFailed):
            await d.store.apply("batch-x", [d.start_op("r2")])
        assert await d.store.run("r2") is None

    async def test_a_batch_is_settled_by_its_id(self, d: Driver) -> None:
        await d.store.apply("batch-x", [d.start_op("r1")])
        assert await d.store.settle("batch-x")
        assert not await d.store.settle("batch-y")
