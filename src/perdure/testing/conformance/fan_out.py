"""Fan-out: an event that many wait for reaches them over several commits, and nobody can tell the difference."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.model import limits, ops
from perdure.model.outcomes import Counted
from perdure.model.records import StepRecord
from perdure.testing.clock import VirtualClock
from perdure.testing.conformance.driver import Driver, all_runs, completed, emitted
from perdure.testing.conformance.fixtures import MakeStore, Subject, opened
from perdure.testing.conformance.words import (
    WORKER,
    WORKFLOW,
    queue,
    run,
    signal,
    timer,
    topic,
    wait,
)

Script = Callable[[Driver], Awaitable[None]]

paid = topic("order.paid")
sent = topic("order.sent")
_runs = [f"r{number}" for number in range(10)]
_last = _runs[-1]  # an event reaches it in the last of its commits


async def all_wait(d: Driver, *on: Any) -> None:
    """Ten runs that wait for the same."""
    for run_id in _runs:
        await d.start_waiting(run_id, *on)
        d.advance("1s")


async def resumed(d: Driver) -> list[str]:
    """Those of the ten that wait no more, in the order of their names."""
    return [run_id for run_id in _runs if await d.status(run_id) != "waiting"]


class TestFanOut(Subject):
    @pytest.fixture(autouse=True)
    def _three_a_commit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "resumed_per_commit_max", 3)

    async def test_what_nobody_holds_is_claimed_at_once_as_far_as_there_is_room(
        self, d: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "resumed_per_commit_max", 1)
        for nth in range(5):
            await d.start_waiting(f"r{nth}", topic("order.paid"))
            if nth != 1:
                await d.release(f"r{nth}")
        await d.start_waiting("z", topic("order.paid"), workflow="unknown")
        await d.release("z")
        await d.emit("order.paid")  # r0 in the commit of the event itself
        claim = ops.ClaimRuns(worker_id=WORKER, fence=77, limit=2, workflows=((WORKFLOW, 1),))
        await d.apply(ops.FanOut(limit=10, claim=claim))
        runs = [await d.run(one) for one in ("r0", "r1", "r2", "r3", "r4", "z")]
        assert [one.status for one in runs] == [
            "ready",
            "ready",  # its owner is of another process
            "running",
            "running",
            "ready",
            "ready",
        ]
        assert [(one.owner, one.fence) for one in runs[2:4]] == [(WORKER, 77)] * 2
        claimed = [one for one in d.heard[-1].wakes if one.kind == "claimed"]
        assert [(one.run_id, one.revision) for one in claimed] == [
            (one.run_id, one.revision) for one in runs[2:4]
        ]

    async def test_those_who_wait_longest_go_first_and_the_rest_follow(self, d: Driver) -> None:
        await all_wait(d, paid)
        answer = emitted(await d.emit("order.paid", "7"))
        assert (answer.resumed, answer.more) == (3, True)
        assert await resumed(d) == _runs[:3]
        assert await d.fan_out(3) == Counted(3, more=True)
        assert await resumed(d) == _runs[:6]
        assert await d.fan_out_all(3) == 4
        assert await resumed(d) == _runs
        assert {await d.won(run_id) for run_id in _runs} == {(0, "7")}

    async def test_who_has_more_to_do_is_told(self, d: Driver) -> None:
        await all_wait(d, paid)
        await d.emit("order.paid")
        assert any(one.kind == "fan_out" for one in d.heard[-1].wakes)
        assert (await d.store.look()).fan_out
        # Told again, before those who go on now: the next chunk is written while they do.
        await d.fan_out(1)
        assert [one.kind for one in d.heard[-1].wakes].index("fan_out") == 0
        await d.fan_out_all()
        assert not any(one.kind == "fan_out" for one in d.heard[-1].wakes)
        assert not (await d.store.look()).fan_out
        assert (await d.store.counts())["fan_outs"] == 0

    async def test_few_need_no_further_commit(self, d: Driver) -> None:
        await d.start_waiting("r1", paid)
        await d.start_waiting("r2", paid)
        answer = emitted(await d.emit("order.paid"))
        assert (answer.resumed, answer.more) == (2, False)
        assert not (await d.store.look()).fan_out

    async def test_nor_do_just_as_many_as_a_commit_takes(self, d: Driver) -> None:
        for run_id in ("r1", "r2", "r3"):
            await d.start_waiting(run_id, paid)
        answer = emitted(await d.emit("order.paid"))
        assert (answer.resumed, answer.more) == (3, False)
        assert not (await d.store.look()).fan_out

    async def test_those_whom_an_earlier_event_is_meant_for_do_not_count(self, d: Driver) -> None:
        await all_wait(d, paid)
        await d.emit("order.paid", "1")
        answer = emitted(await d.emit("order.paid", "2"))
        assert answer.resumed == 0
        assert await resumed(d) == _runs[:6]

    async def test_the_bound_is_that_of_the_commit(self, d: Driver) -> None:
        """Two events in one op, or in one batch, resume no more together than one alone."""
        for run_id in ("a1", "a2", "b1", "b2", "c1"):
            await d.start_waiting(run_id, topic(run_id[0]))
        first, second = await d.emit_many(d.event("a"), d.event("b"))
        assert (emitted(first).resumed, emitted(second).resumed) == (2, 1)
        assert emitted(second).more
        await d.fan_out_all()
        assert await d.status("b2") == "ready"
        assert emitted(await d.emit("c")).resumed == 1

    async def test_several_events_follow_in_their_order(self, d: Driver) -> None:
        await all_wait(d, paid)
        await d.emit("order.paid", "1")
        await d.emit("order.paid", "2")
        assert await d.fan_out_all(1) > 0
        assert {await d.won(run_id) for run_id in _runs} == {(0, "1")}

    async def test_a_wait_that_opens_meanwhile_is_no_part_of_it(self, d: Driver) -> None:
        await all_wait(d, paid)
        await d.emit("order.paid", "1")
        await d.start_waiting("late", paid)
        await d.fan_out_all(3)
        assert await d.status("late") == "waiting"

    async def test_nobody_gets_an_event_twice(self, d: Driver) -> None:
        """A run of the first commit waits again before the last one."""
        await all_wait(d, paid)
        await d.emit("order.paid", "1")
        await d.claim()
        await d.suspend("r0", wait("w2", paid))
        await d.fan_out_all(3)
        assert await d.status("r0") == "waiting"

    async def test_nor_one_that_it_has_refused(self, d: Driver) -> None:
        await all_wait(d, paid)
        await d.emit("order.paid", "1")
        await d.claim()
        assert completed(await d.reject("r0", wait("w", paid, known=True))) == []
        await d.fan_out_all(3)
        assert await d.won("r0") == (None, None)

    async def test_repeated_fan_out_is_a_no_op(self, d: Driver) -> None:
        await all_wait(d, paid)
        await d.emit("order.paid")
        await d.fan_out_all()
        assert await d.fan_out() == Counted(0)

    async def test_runs_that_are_gone_do_not_hold_the_others_up(self, d: Driver) -> None:
        await all_wait(d, paid)
        await d.emit("order.paid")
        for run_id in _runs[3:6]:
            await d.terminate(run_id)
        assert await d.fan_out_all(3) == 4
        assert not (await d.store.look()).fan_out


# --- what may happen in between ----------------------------------------------------------------------


async def another_event(d: Driver) -> None:
    await all_wait(d, paid)
    await d.emit("order.paid", "1")
    await d.emit("order.paid", "2")


async def an_event_of_another_topic(d: Driver) -> None:
    await all_wait(d, sent, paid)
    await d.emit("order.paid", "1")
    await d.emit("order.sent", "2")


async def an_event_about_one_entity(d: Driver) -> None:
    await all_wait(d, topic("order.paid", "order/1"), sent)
    await d.emit("order.paid", "1", entity="order/2")
    await d.emit("order.sent", "2")
    await d.emit("order.paid", "3", entity="order/1")


async def the_latest(d: Driver) -> None:
    await all_wait(d, topic("order.paid", deliver="latest"))
    await d.emit("order.paid", "1")
    await d.emit("order.paid", "2")


async def a_signal(d: Driver) -> None:
    await all_wait(d, signal("go"), paid)
    await d.emit("order.paid", "1")
    await d.signal(_last, "go", "2")


async def a_signal_to_another_branch(d: Driver) -> None:
    for run_id in _runs:
        await d.start(run_id)
        await d.suspend(run_id, wait("gather[0]/w", signal("go"), paid), wait("w", signal("go")))
    await d.emit("order.paid", "1")
    await d.signal(_last, "go", "2")


async def a_timeout(d: Driver) -> None:
    await all_wait(d, paid, timer("1h"))
    await d.emit("order.paid", "1")
    d.advance("2h")
    await d.fire()


async def an_event_too_late(d: Driver) -> None:
    await all_wait(d, paid, timer("1h"))
    d.advance(3600 - 5)  # some of the deadlines have passed
    await d.emit("order.paid", "1")
    d.advance("1h")
    await d.emit("order.paid", "2")
    await d.fire()


async def a_cancel(d: Driver) -> None:
    await all_wait(d, paid)
    await d.emit("order.paid", "1")
    await d.cancel(_last)
    await d.claim()
    ((_, steps),) = await d.store.load([_last])
    await d.record_cancel(_last, *(one.path for one in steps if one.state == "open"))


async def a_pause(d: Driver) -> None:
    await all_wait(d, signal("go"), paid)
    await d.emit("order.paid", "1")
    await d.pause(_last)
    await d.signal(_last, "go", "2")
    await d.resume(_last)
    await d.claim()
    await d.suspend(_last, wait("w", signal("go"), paid, known=True))


async def an_item(d: Driver) -> None:
    await all_wait(d, queue("jobs"), paid)
    await d.emit("order.paid", "1")
    await d.put("jobs", "2")


async def an_item_for_somebody_else(d: Driver) -> None:
    await all_wait(d, queue("jobs"), paid)
    await d.start_waiting("taker", queue("jobs"))
    await d.emit("order.paid", "1")
    await d.put("jobs", "2")


async def the_end_of_an_awaited_run(d: Driver) -> None:
    await d.start("other")
    await all_wait(d, run("other"), paid)
    await d.emit("order.paid", "1")
    await d.finish("other", "2")


async def what_a_filter_lets_pass(d: Driver) -> None:
    await all_wait(d, topic("order.sent", filter="true"), paid)
    await d.emit("order.paid", "1")
    await d.emit("order.sent", "2")
    await d.resolve_wait(_last, await d.head())


async def a_wait_that_is_left(d: Driver) -> None:
    for run_id in _runs:
        await d.start(run_id)
        await d.suspend(run_id, wait("a", paid), park=False)
    await d.emit("order.paid", "1")
    await d.record(_last, closed=("a",))
    await d.suspend(_last, wait("b", paid))


between: list[Script] = [
    another_event,
    an_event_of_another_topic,
    an_event_about_one_entity,
    the_latest,
    a_signal,
    a_signal_to_another_branch,
    a_timeout,
    an_event_too_late,
    a_cancel,
    a_pause,
    an_item,
    an_item_for_somebody_else,
    the_end_of_an_awaited_run,
    what_a_filter_lets_pass,
    a_wait_that_is_left,
]


class TestFanOutIsUnseen(Subject):
    @pytest.mark.parametrize("script", between, ids=lambda one: one.__name__)
    async def test_what_happens_in_between_finds_the_same_winners(
        self,
        make_store: MakeStore,
        clock: VirtualClock,
        monkeypatch: pytest.MonkeyPatch,
        script: Script,
    ) -> None:
        began = clock.now()
        stories = []
        for bound in (1000, 3):
            monkeypatch.setattr(limits, "resumed_per_commit_max", bound)
            clock.set(began)
            async with opened(make_store, clock, True) as d:
                await script(d)
                await d.fan_out_all(bound)
                stories.append(await _story(d))
        assert stories[0] == stories[1]

    @pytest.mark.parametrize("seed", range(20))
    async def test_whatever_happens_in_between_finds_the_same_winners(
        self,
        make_store: MakeStore,
        clock: VirtualClock,
        monkeypatch: pytest.MonkeyPatch,
        seed: int,
    ) -> None:
        began = clock.now()
        stories = []
        for bound in (1000, 1, 2):
            monkeypatch.setattr(limits, "resumed_per_commit_max", bound)
            clock.set(began)
            async with opened(make_store, clock, True) as d:
                await _anything(d, random.Random(seed), chunks=random.Random(bound))
                await d.fan_out_all(bound)
                stories.append(await _story(d))
        assert stories[0] == stories[1] == stories[2]


async def _story(d: Driver) -> Any:
    """How every wait ended, and what is left, once all who can go on do."""
    await d.claim()
    found = {}
    for life in await all_runs(d.store):
        ((_, steps),) = await d.store.load([life.run_id])
        ends = sorted((one.path, one.state, *_end(one)) for one in steps)
        found[life.run_id] = (life.status, ends, await d.payloads(life.run_id))
    return found, await d.items("jobs")


def _end(step: StepRecord) -> tuple[int | None, str | None]:
    """What ended a wait; one that was left has given it back."""
    return (None, None) if step.state == "abandoned" else (step.winner, step.value)


async def _anything(d: Driver, rng: random.Random, *, chunks: random.Random) -> None:
    """Some runs that wait for this or that, and a number of things that happen to them."""
    on = [
        signal("go"),
        paid,
        topic("order.paid", "order/1"),
        sent,
        queue("jobs"),
        run("other"),
        timer("1h"),
        timer("2h"),
    ]
    await d.start("other")
    for run_id in _runs:
        await d.start(run_id)
        branches = [f"gather[{number}]/w" for number in range(rng.randint(1, 2))]
        waits = [wait(path, *rng.sample(on, rng.randint(1, 4))) for path in branches]
        await d.suspend(run_id, *waits)
    happenings: list[Callable[[str, str], Awaitable[Any]]] = [
        lambda run_id, payload: d.emit("order.paid", payload, entity=_entity(rng)),
        lambda run_id, payload: d.emit("order.sent", payload),
        lambda run_id, payload: d.signal(run_id, "go", payload),
        lambda run_id, payload: d.put("jobs", payload),
        lambda run_id, payload: d.pause(run_id),
        lambda run_id, payload: d.cancel(run_id),
        lambda run_id, payload: d.fire(),
        lambda run_id, payload: d.finish("other", payload),
    ]
    for number in range(20):
        await rng.choice(happenings)(rng.choice(_runs), str(number))
        d.advance(rng.choice([0, 0, 1, 1800]))
        if (await d.store.look()).fan_out and chunks.random() < 0.3:
            await d.fan_out(1)


def _entity(rng: random.Random) -> str | None:
    return rng.choice([None, "order/1", "order/2"])
