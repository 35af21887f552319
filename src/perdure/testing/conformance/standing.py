"""What stands over a run, and starts that wait for the last of several calls: deadline, cancel_on, debounce."""

from typing import Any

import msgspec
import pytest

from perdure.model import limits, ops
from perdure.model.outcomes import Admitted, Counted, Finished, Refusal, Started, Steered
from perdure.model.records import CANCEL_ON_PATH, DEADLINE_PATH, RunRecord
from perdure.testing.conformance.driver import Driver, emitted
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    HOUR,
    SECOND,
    WORKER,
    declared,
    done,
    error,
    run,
    signal,
    sleep,
    timer,
    topic,
    wait,
)


def on(*events: tuple[str, str]) -> str:
    """What cancels a run, as it is stored: (topic, entity)."""
    return msgspec.json.encode(events).decode()


async def become(d: Driver, run_id: str, status: str, **fields: Any) -> None:
    """A run in this state, whatever stands over it."""
    await d.start(run_id, **{"owner": None if status == "ready" else WORKER, **fields})
    if status in ("waiting", "paused"):
        await d.suspend(run_id, wait("w", signal("go")))
    if status == "sleeping":
        await d.suspend(run_id, sleep("w", "9h"))
    if status == "paused":
        await d.pause(run_id)
    assert await d.status(run_id) == status


async def request(d: Driver, run_id: str) -> tuple[bool, str | None]:
    """Whether a run was asked to stop, and why."""
    run_ = await d.run(run_id)
    return run_.cancel_requested, run_.reason


def made(outcome: object) -> RunRecord:
    assert isinstance(outcome, Started), outcome
    return outcome.run


states = pytest.mark.parametrize("status", ["ready", "running", "waiting", "sleeping", "paused"])


class TestDeadlines(Subject):
    @states
    async def test_it_cancels_whatever_the_run_is_doing(self, d: Driver, status: str) -> None:
        await become(d, "r1", status, deadline_us=HOUR)
        d.advance("59m")
        await d.fire()
        assert await request(d, "r1") == (False, None)
        d.advance("1m")
        await d.fire()
        assert await request(d, "r1") == (True, "deadline")
        assert await d.status("r1") == ("running" if status == "running" else "ready")
        assert DEADLINE_PATH not in [path for path, *_ in await d.watched("r1")]

    async def test_it_cancels_as_an_operator_would(self, d: Driver) -> None:
        for run_id, deadline_us in (("r1", HOUR), ("r2", None)):
            await d.start_waiting(run_id, signal("go"), deadline_us=deadline_us)
        d.advance("1h")
        await d.fire()
        await d.cancel("r2", "deadline")
        one, two = await d.run("r1"), await d.run("r2")
        assert (one.status, one.revision, one.reason) == (two.status, two.revision, two.reason)
        await d.claim()
        for run_id in ("r1", "r2"):
            await d.record_cancel(run_id, "w")
            await d.finish(run_id, status="cancelled", output=None)
        assert [one["reason"] for one in await d.told("workflow.run_cancelled")] == ["deadline"] * 2

    async def test_a_duration_counts_from_when_the_run_may_begin(self, d: Driver) -> None:
        now = d.clock.now()
        await d.start("r1", deadline_us=HOUR)
        await d.start("r2", deadline_us=HOUR, start_at=now + 5 * HOUR, owner=None)
        await d.start("r3", deadline_us=HOUR, delay_us=2 * HOUR, owner=None)
        await d.start("r4", deadline_at=now + 7, delay_us=2 * HOUR, owner=None)
        found = [(await d.run(one)).deadline_at for one in ("r1", "r2", "r3", "r4")]
        assert found == [now + HOUR, now + 6 * HOUR, now + 3 * HOUR, now + 7]

    async def test_it_is_told_to_whoever_sleeps_until_the_next_one(self, d: Driver) -> None:
        await d.start("r1", deadline_us=HOUR)
        due_at = d.clock.now() + HOUR
        assert d.deadlines_told() == [due_at]
        assert (await d.store.look()).deadline_at == due_at
        assert (await d.fire()).next_at == due_at
        await d.suspend("r1", sleep("w", "30m"))
        assert (await d.store.look()).deadline_at == due_at - HOUR // 2

    async def test_it_keeps_no_run_waiting(self, d: Driver) -> None:
        """A run that sleeps over nothing but what stands over it is healed: it would sleep until it is cancelled."""
        await become(d, "r1", "sleeping", deadline_us=HOUR)
        await d.start("r2", deadline_us=HOUR, cancel_on=on(("order.off", "")))
        await d.suspend("r2")  # nobody opens no wait; a delivery cut in half leaves it so
        assert await d.status("r2") == "sleeping"
        assert (await d.store.look(limit=10)).suspects == ("r2",)
        assert await d.recover("r1", "r2") == Counted(1)
        assert await d.status("r2") == "ready"

    async def test_a_run_that_ends_first_wins(self, d: Driver) -> None:
        await d.start("r1", deadline_us=HOUR)
        await d.finish("r1")
        d.advance("2h")
        before = await dump(d.store)
        assert (await d.fire()).count == 0
        assert await dump(d.store) == before

    async def test_fired_late_and_again_it_cancels_once(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), deadline_us=HOUR)
        d.advance("30h")
        assert (await d.fire()).count == 1
        before = await dump(d.store)
        assert (await d.fire()).count == 0
        assert await dump(d.store) == before

    async def test_whoever_was_cancelled_before_keeps_the_reason(self, d: Driver) -> None:
        await d.start("r1", deadline_us=HOUR)
        assert await d.cancel("r1", "by hand") == Steered("r1", "running", True)
        assert await d.watched("r1") == []
        d.advance("2h")
        assert (await d.fire()).count == 0
        assert await request(d, "r1") == (True, "by hand")

    async def test_children_go_with_it(self, d: Driver) -> None:
        await d.start("r1", deadline_us=HOUR)
        await d.record_send("r1", "c", d.start_op("c1", owner=None), kind="start")
        child = d.start_op("c2", owner=None, parent_run_id="r1", parent_path="d", deadline_us=9)
        await d.record_send("r1", "d", child, kind="start")
        d.advance("1s")
        await d.fire()
        assert await request(d, "c2") == (True, "deadline")
        assert await request(d, "r1") == (False, None)
        d.advance("1h")
        await d.start("c3", owner=None, parent_run_id="r1", deadline_us=HOUR)
        await d.fire()
        assert await request(d, "c3") == (True, "its parent 'r1' was cancelled")
        assert await d.watched("c3") == []

    async def test_it_outlives_continue_as_and_pause(self, d: Driver) -> None:
        await d.start("r1", deadline_us=HOUR)
        await d.suspend("r1", wait("w", signal("go")), park=False)
        await d.continue_as("r1", closed=("w",))
        assert await d.watched("r1") == [(DEADLINE_PATH, "timer", "")]
        await d.suspend("r1", wait("w", signal("go")))
        await d.pause("r1")
        await d.resume("r1")
        await d.claim()
        await d.park("r1")
        assert await d.watched("r1") == [(DEADLINE_PATH, "timer", "")]
        d.advance("1h")
        await d.fire()
        assert await request(d, "r1") == (True, "deadline")

    async def test_a_pause_that_was_asked_for_leaves_it(self, d: Driver) -> None:
        await d.start("r1", deadline_us=HOUR)
        await d.pause("r1")
        await d.suspend("r1", wait("w", signal("go")))
        assert await d.status("r1") == "paused"
        assert await d.watched("r1") == [(DEADLINE_PATH, "timer", "")]

    async def test_a_retried_run_has_it_still(self, d: Driver) -> None:
        await d.start("r1", deadline_us=HOUR)
        await d.fail("r1")
        assert await d.watched("r1") == []
        await d.retry("r1")
        d.advance("1h")
        await d.fire()
        assert await request(d, "r1") == (True, "deadline")

    async def test_retried_after_it_has_passed_it_binds_no_more(self, d: Driver) -> None:
        await d.start("r1", deadline_us=HOUR)
        await d.fail("r1")
        d.advance("2h")
        await d.retry("r1")
        assert (await d.fire()).count == 0
        assert await request(d, "r1") == (False, None)

    async def test_a_cancelled_run_that_failed_is_retried_without_it(self, d: Driver) -> None:
        await d.start("r1", deadline_us=HOUR)
        await d.cancel("r1")
        await d.fail("r1")
        await d.retry("r1")
        assert await d.watched("r1") == []

    async def test_a_wait_that_ran_out_at_the_same_time_ends_too(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"), deadline_us=HOUR)
        d.advance("1h")
        assert (await d.fire()).count == 2
        assert await d.won("r1") == (1, "null")
        assert await request(d, "r1") == (True, "deadline")

    async def test_a_deadline_that_is_over_when_it_starts(self, d: Driver) -> None:
        await d.start("r1", deadline_at=d.clock.now() - 1)
        await d.fire()
        assert await request(d, "r1") == (True, "deadline")

    async def test_a_run_found_by_its_id_keeps_its_own(self, d: Driver) -> None:
        first = made(await d.start("r1", deadline_us=HOUR))
        assert made(await d.start("r1", deadline_us=9)).deadline_at == first.deadline_at

    async def test_no_more_than_asked_for_at_once(self, d: Driver) -> None:
        for run_id in ("r1", "r2", "r3"):
            await d.start(run_id, deadline_us=HOUR)
        d.advance("2h")
        assert [(await d.fire(limit=2)).count for _ in range(3)] == [2, 1, 0]


class TestCancelOn(Subject):
    @states
    async def test_the_event_cancels_whatever_the_run_is_doing(
        self, d: Driver, status: str
    ) -> None:
        await become(d, "r1", status, cancel_on=on(("order.off", "order/1")))
        await d.emit("order.off", entity="order/2")
        await d.emit("order.paid", entity="order/1")
        assert await request(d, "r1") == (False, None)
        answer = emitted(await d.emit("order.off", entity="order/1", event_id="e1"))
        assert (answer.resumed, answer.more) == (1, False)
        assert await request(d, "r1") == (True, "order.off, event e1")
        assert await d.status("r1") == ("running" if status == "running" else "ready")

    async def test_the_owner_at_home_is_told(self, d: Driver) -> None:
        d.store.worker_id = WORKER
        await become(d, "r1", "sleeping", cancel_on=on(("order.off", "")))
        await d.emit("order.off")
        assert await d.status("r1") == "running"
        (wake,) = [one for one in d.heard[-1].wakes if one.kind == "control"]
        assert (wake.run_id, wake.owner, wake.cancel) == ("r1", WORKER, True)

    async def test_it_is_no_wait(self, d: Driver) -> None:
        await become(d, "r1", "sleeping", cancel_on=on(("order.off", "")))
        assert (await d.store.look(limit=10)).suspects == ()
        (watcher, _) = await d.watchers("r1")
        assert (watcher.path, watcher.is_standing) == (CANCEL_ON_PATH, True)
        found = await d.store.topic_watchers("order.off", None, 10)
        assert [(one.run_id, one.path) for one in found] == [("r1", CANCEL_ON_PATH)]

    async def test_one_of_several(self, d: Driver) -> None:
        both = on(("order.off", "order/1"), ("shop.closed", ""), ("order.off", "order/9"))
        for run_id in ("r1", "r2", "r3"):
            await d.start(run_id, cancel_on=both)
            await d.emit(
                {"r1": "order.off", "r2": "shop.closed", "r3": "order.off"}[run_id],
                entity={"r1": "order/1", "r2": None, "r3": "order/9"}[run_id],
            )
            assert (await request(d, run_id))[0]
            assert await d.watched(run_id) == []

    async def test_one_event_that_is_named_twice_cancels_once(self, d: Driver) -> None:
        await d.start("r1", cancel_on=on(("order.off", ""), ("order.off", "order/1")))
        assert emitted(await d.emit("order.off", entity="order/1")).resumed == 1
        assert (await d.run("r1")).revision == 1

    async def test_only_events_after_its_creation_count(self, d: Driver) -> None:
        await d.emit("order.off", entity="order/1")
        op = d.start_op("r1", cancel_on=on(("order.off", "order/1")), owner=None)
        await d.batch(d.emit_op("order.off", entity="order/1"), op)
        assert await request(d, "r1") == (False, None)
        await d.batch(
            d.start_op("r2", cancel_on=on(("order.off", "order/2")), owner=None),
            d.emit_op("order.off", entity="order/2", event_id="e2"),
        )
        assert await request(d, "r2") == (True, "order.off, event e2")

    async def test_a_run_that_has_ended_is_not_touched(self, d: Driver) -> None:
        await d.start("r1", cancel_on=on(("order.off", "")))
        await d.finish("r1")
        before = await d.run("r1")
        assert emitted(await d.emit("order.off")).resumed == 0
        assert await d.run("r1") == before

    async def test_a_second_event_changes_nothing(self, d: Driver) -> None:
        await d.start("r1", cancel_on=on(("order.off", "")))
        await d.emit("order.off")
        before = await d.run("r1")
        assert emitted(await d.emit("order.off")).resumed == 0
        assert await d.run("r1") == before

    async def test_a_repeat_that_is_ignored_cancels_nobody(self, d: Driver) -> None:
        await d.declare_topic("order.off", repeats="ignore")
        await d.emit("order.off", "1")
        await d.start("r1", cancel_on=on(("order.off", "")))
        await d.emit("order.off", "1")
        assert await request(d, "r1") == (False, None)

    async def test_whoever_waits_for_it_too_is_given_it(self, d: Driver) -> None:
        await d.start_waiting("r1", topic("order.off"), cancel_on=on(("order.off", "")))
        assert emitted(await d.emit("order.off", "7")).resumed == 1
        assert await d.won("r1") == (0, "7")
        assert (await request(d, "r1"))[0]

    async def test_it_outlives_continue_as_and_pause(self, d: Driver) -> None:
        await d.start("r1", cancel_on=on(("order.off", "")))
        await d.continue_as("r1", workflow="other")
        await d.suspend("r1", wait("w", topic("order.paid")))
        await d.pause("r1")
        await d.emit("order.off")
        assert (await request(d, "r1"))[0]

    async def test_children_go_with_it_also_those_it_would_reach_itself(self, d: Driver) -> None:
        off = on(("order.off", ""))
        await d.start("a", cancel_on=off)
        await d.start("b", cancel_on=off, parent_run_id="a", parent_path="p")
        await d.start("c", parent_run_id="b", parent_path="p")
        await d.emit("order.off", event_id="e1")
        reasons = [(await request(d, one))[1] for one in ("a", "b", "c")]
        assert reasons == [
            "order.off, event e1",
            "its parent 'a' was cancelled",
            "its parent 'b' was cancelled",
        ]
        assert [(await d.run(one)).revision for one in ("a", "b", "c")] == [1, 1, 1]

    async def test_a_retried_run_is_cancelled_by_what_comes_then(self, d: Driver) -> None:
        await d.start("r1", cancel_on=on(("order.off", "")))
        await d.fail("r1")
        await d.emit("order.off")
        await d.retry("r1")
        assert await request(d, "r1") == (False, None)
        await d.emit("order.off")
        assert (await request(d, "r1"))[0]

    async def test_facts_of_the_engine_cancel_too(self, d: Driver) -> None:
        await d.start("other")
        await d.start("r1", cancel_on=on(("workflow.run_completed", "run/other")))
        await d.finish("other")
        await d.fan_out_all()
        assert (await request(d, "r1"))[0]

    async def test_a_child_of_a_cancelled_run_is_watched_over_by_nobody(self, d: Driver) -> None:
        await d.start("r1")
        await d.cancel("r1")
        child = d.start_op("c1", owner=None, parent_run_id="r1", cancel_on=on(("order.off", "")))
        await d.record_send("r1", "c", child, kind="start")
        assert await d.watched("c1") == []

    async def test_pruned_it_leaves_nothing(self, d: Driver) -> None:
        await d.start("r1", cancel_on=on(("order.off", "")), deadline_us=HOUR)
        await d.terminate("r1")
        d.advance("1h")
        await d.prune(finished_before=d.clock.now())
        assert (await d.store.counts()).get("watchers", 0) == 0

    async def test_the_catalogue_tells_of_it(self, d: Driver) -> None:
        line = declared()
        await d.declare(line)
        changed = msgspec.structs.replace(line, cancel_on='[{"topic":"order.off"}]')
        assert (await d.declare(changed)).count == 1
        assert (await d.declare(changed)).count == 0
        assert await d.store.catalogue() == [changed]

    async def test_a_schedule_hands_it_to_its_runs(self, d: Driver) -> None:
        await d.schedule("tick", "1m", cancel_on=on(("order.off", "")), overlap="allow")
        d.advance("1m")
        await d.fire_schedules()
        assert (await d.scheduled("tick")).cancel_on == on(("order.off", ""))
        assert emitted(await d.emit("order.off")).resumed == 1


class TestCancelOnByMany(Subject):
    """An event that cancels more runs than one commit takes."""

    @pytest.fixture(autouse=True)
    def _two_a_commit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "resumed_per_commit_max", 2)

    async def all_watch(self, d: Driver, **fields: Any) -> None:
        for nth in range(5):
            await d.start(f"r{nth}", cancel_on=on(("order.off", "")), **fields)
            d.advance("1s")

    async def cancelled(self, d: Driver) -> str:
        return "".join([str(nth) for nth in range(5) if (await request(d, f"r{nth}"))[0]])

    async def test_the_rest_follows_in_chunks(self, d: Driver) -> None:
        await self.all_watch(d)
        answer = emitted(await d.emit("order.off"))
        assert (answer.resumed, answer.more) == (2, True)
        assert await self.cancelled(d) == "01"
        assert await d.fan_out(limit=2) == Counted(2, more=True)
        assert await self.cancelled(d) == "0123"
        assert await d.fan_out_all() == 1
        assert await self.cancelled(d) == "01234"

    async def test_who_is_cancelled_meanwhile_was_cancelled_by_the_event(self, d: Driver) -> None:
        await self.all_watch(d)
        await d.emit("order.off", event_id="e1")
        assert await d.cancel("r4", "by hand") == Steered("r4", "running", False)
        assert await request(d, "r4") == (True, "order.off, event e1")

    async def test_a_child_stops_with_its_parent_whatever_else_is_on_its_way(
        self, d: Driver
    ) -> None:
        await self.all_watch(d)
        await d.start("p")
        await d.start("c", cancel_on=on(("order.off", "")), parent_run_id="p", parent_path="c")
        await d.emit("order.off")
        await d.cancel("p")
        await d.fan_out_all()
        assert await request(d, "c") == (True, "its parent 'p' was cancelled")
        assert (await d.run("c")).revision == 1

    async def test_a_child_that_waits_for_what_cancels_its_parent_is_given_it_once(
        self, d: Driver, caplog: pytest.LogCaptureFixture
    ) -> None:
        await self.all_watch(d)
        await d.start("p", cancel_on=on(("order.off", "")))
        d.advance("1s")
        await d.start_waiting("c", topic("order.off"), parent_run_id="p", parent_path="c")
        await d.start_waiting("q", topic("order.off"), cancel_on=on(("order.off", "")))
        await d.emit("order.off", "7")
        await d.cancel("q")
        await d.fan_out_all()
        assert [await d.won(one) for one in ("c", "q")] == [(0, "7")] * 2
        assert (await d.run("q")).reason != "its parent 'p' was cancelled"
        assert not caplog.records  # nobody was found to be watched where it does not wait

    @pytest.mark.parametrize("how", ["signal", "pause", "cancel", "call again"])
    async def test_one_in_line_has_ended_by_the_event_whatever_is_done_to_it_meanwhile(
        self, d: Driver, how: str
    ) -> None:
        """It has not begun, so the event ends it; what comes after the event comes too late."""
        await d.set_pool("gpu", limit=1)
        await self.all_watch(d)
        call: dict[str, Any] = {"debounce_us": SECOND, "debounce_max_us": HOUR, "key": "k"}
        start = {"cancel_on": on(("order.off", "")), "owner": None, "pool": "gpu", **call}
        await d.start("r9", **start)
        await d.emit("order.off", event_id="e1")
        assert await d.status("r9") == "ready"
        if how == "call again":
            assert made(await d.start("other", **start)).run_id == "other"
        elif how == "signal":
            assert await d.signal("r9", "go") == Finished("r9", "cancelled")
        elif how == "pause":
            assert await d.pause("r9") == Finished("r9", "cancelled")
        else:
            assert await d.cancel("r9", "by hand") == Steered("r9", "cancelled", False)
        await d.fan_out_all()
        ended = await d.run("r9")
        assert (ended.status, ended.reason) == ("cancelled", "order.off, event e1")
        assert await d.payloads("r9") == []

    async def test_a_wait_for_the_event_ends_before_it_cancels_whichever_way_it_comes(
        self, d: Driver
    ) -> None:
        d.store.worker_id = WORKER
        told = []
        for run_id in ("at once", "on its way"):
            if run_id == "on its way":
                await self.all_watch(d)
            off = topic("order.off")
            await d.start_waiting(run_id, off, cancel_on=on(("order.off", "")))
            await d.emit("order.off")
            if run_id == "on its way":
                await d.cancel(run_id)
            told.append([one.kind for one in d.heard[-1].wakes if one.run_id == run_id])
        assert told == [["news", "control"]] * 2

    async def test_a_deadline_meanwhile_comes_after_the_event(self, d: Driver) -> None:
        await self.all_watch(d, deadline_us=HOUR)
        await d.emit("order.off", event_id="e1")
        d.advance("2h")
        await d.fire()
        assert [(await request(d, f"r{nth}"))[1] for nth in range(5)] == ["order.off, event e1"] * 5
        await d.fan_out_all()
        assert [(await d.run(f"r{nth}")).revision for nth in range(5)] == [1] * 5

    async def test_a_later_event_that_a_wait_is_for_is_given_once(self, d: Driver) -> None:
        await self.all_watch(d)
        await d.suspend("r4", wait("w", topic("order.paid")), park=False)
        await d.emit("order.off")
        await d.emit("order.paid", "7")
        await d.fan_out_all()
        assert await d.won("r4") == (0, "7")
        assert await self.cancelled(d) == "01234"

    async def test_who_waits_for_the_same_event_is_given_it_once(self, d: Driver) -> None:
        await self.all_watch(d)
        for nth in range(5):
            await d.suspend(f"r{nth}", wait("w", topic("order.off")))
        await d.emit("order.off", "7")
        await d.cancel("r3")
        await d.fan_out_all()
        assert [await d.won(f"r{nth}") for nth in range(5)] == [(0, "7")] * 5
        assert await self.cancelled(d) == "01234"


class TestDebounce(Subject):
    async def call(self, d: Driver, input: str, seconds: int = 5, **fields: Any) -> Started:
        """A debounced start under the key "k"; it may be put off ten times as long."""
        fields = {"key": "k", "debounce_max_us": 10 * seconds * SECOND, **fields}
        us = seconds * SECOND
        op = d.start_op(
            d.fresh("run"), owner=None, input=input, fresh=True, debounce_us=us, **fields
        )
        answer = await d.apply(op)
        assert isinstance(answer, Started)
        return answer

    async def test_it_begins_so_long_after_the_last_call_with_its_input(self, d: Driver) -> None:
        first = await self.call(d, "1")
        assert first.created and first.run.ready_at == d.clock.now() + 5 * SECOND
        d.advance("4s")
        assert (await d.claim()).runs == ()
        second = await self.call(d, "2")
        assert (second.created, second.run.run_id) == (False, first.run.run_id)
        d.advance("4s")
        claimed = await d.claim()
        assert (claimed.runs, claimed.next_at) == ((), d.clock.now() + SECOND)
        d.advance("1s")
        (run_,) = (await d.claim()).runs
        assert (run_.run_id, run_.input, run_.replaced) == (first.run.run_id, "2", 1)
        assert len(await d.told("workflow.run_started")) == 1

    async def test_it_is_not_put_off_for_ever(self, d: Driver) -> None:
        begins_at = d.clock.now() + 12 * SECOND
        first = await self.call(d, "0", debounce_max_us=12 * SECOND)
        for nth in range(1, 4):
            d.advance("4s")
            last = await self.call(d, str(nth), debounce_max_us=12 * SECOND)
        assert (last.run.run_id, last.run.ready_at) == (first.run.run_id, begins_at)
        d.advance("1s")
        # Due, and nobody had time for it: it takes the input, and is due still, since then.
        assert (await self.call(d, "9", debounce_max_us=12 * SECOND)).run.ready_at == begins_at
        assert [one.input for one in (await d.claim()).runs] == ["9"]

    async def test_once_it_has_begun_the_next_call_makes_another(self, d: Driver) -> None:
        first = await self.call(d, "1")
        d.advance("5s")
        await d.claim()
        second = await self.call(d, "2")
        assert second.created and second.run.run_id != first.run.run_id
        assert (await d.run(first.run.run_id)).input == "1"
        third = await self.call(d, "3")
        assert (third.created, third.run.run_id) == (False, second.run.run_id)

    @pytest.mark.parametrize("how", ["release", "recover", "pause", "cancel", "terminate", "retry"])
    async def test_one_that_began_is_never_replaced(self, d: Driver, how: str) -> None:
        first = (await self.call(d, "1")).run.run_id
        d.advance("5s")
        if how in ("pause", "cancel", "terminate"):
            await getattr(d, how)(first)
        else:
            await d.beat("other", lease_us=1)
            await d.claim("other")
        if how == "pause":
            await d.resume(first)
        if how == "release":
            await d.release(first)
        if how == "recover":
            d.advance("1s")
            await d.recover()
        if how == "retry":
            await d.fail(first)
            await d.retry(first)
        assert await d.status(first) == ("terminated" if how == "terminate" else "ready")
        assert (await self.call(d, "2")).created
        assert (await d.run(first)).input == "1"

    async def test_in_a_pool_with_limits_it_stands_in_line_only_then(self, d: Driver) -> None:
        await d.set_pool("gpu", limit=1)
        first = (await self.call(d, "1", pool="gpu")).run
        d.advance("4s")
        again = (await self.call(d, "2", pool="gpu")).run
        due_at = d.clock.now() + 5 * SECOND
        assert (again.run_id, again.ready_at, again.line_at) == (first.run_id, None, due_at)
        d.advance("4s")
        assert (await d.admit("gpu"), (await d.claim()).runs) == (Admitted(0), ())
        d.advance("1s")
        await d.admit("gpu")
        assert [one.input for one in (await d.claim()).runs] == ["2"]

    async def test_let_through_and_called_again_it_gives_its_slot_back(self, d: Driver) -> None:
        await d.set_pool("gpu", limit=1, rate="1/1h")
        first = (await self.call(d, "1", pool="gpu")).run
        d.advance("5s")
        await d.admit("gpu")
        again = (await self.call(d, "2", pool="gpu")).run
        due_at = d.clock.now() + 5 * SECOND
        assert (again.run_id, again.ready_at, again.line_at) == (first.run_id, None, due_at)
        assert (await d.claim()).runs == ()
        d.advance("5s")
        # It was counted by the rate when it was let through first.
        await d.admit("gpu")
        assert [one.input for one in (await d.claim()).runs] == ["2"]

    async def test_calls_that_never_pause_cost_it_neither_its_place_in_line_nor_its_slot(
        self, d: Driver
    ) -> None:
        await d.set_pool("gpu", limit=1)
        await d.start("first", pool="gpu", owner=None)
        await d.admit("gpu")
        begins_at = d.clock.now() + 5 * SECOND
        run_id = (await self.call(d, "1", 5, pool="gpu", debounce_max_us=5 * SECOND)).run.run_id
        d.advance("6s")
        await d.start("second", pool="gpu", owner=None)
        d.advance("1s")
        again = (await self.call(d, "2", 5, pool="gpu", debounce_max_us=5 * SECOND)).run
        assert (again.run_id, again.line_at) == (run_id, begins_at)
        await d.terminate("first")
        await d.admit("gpu")
        d.advance("1s")
        await self.call(d, "3", 5, pool="gpu", debounce_max_us=5 * SECOND)
        assert await d.admit("gpu") == Admitted(0)
        assert [one.input for one in (await d.claim()).runs] == ["3"]

    async def test_due_at_once_by_the_last_call_it_is_so_whatever_it_was_before(
        self, d: Driver
    ) -> None:
        await self.call(d, "1")
        d.advance("1s")
        await self.call(d, "2", debounce_max_us=SECOND)
        assert [one.input for one in (await d.claim()).runs] == ["2"]

    async def test_limits_that_are_gone_bind_it_no_more(self, d: Driver) -> None:
        await d.set_pool("gpu", limit=1)
        await self.call(d, "1", pool="gpu")
        await d.set_pool("gpu", limit=None)
        again = (await self.call(d, "2", pool="gpu")).run
        assert (again.ready_at, again.line_at) == (d.clock.now() + 5 * SECOND, None)
        d.advance("5s")
        assert [one.input for one in (await d.claim()).runs] == ["2"]

    async def test_a_pool_that_is_not_there_is_refused(self, d: Driver) -> None:
        op = d.start_op("r1", owner=None, key="k", pool="gpuu", debounce_us=SECOND)
        refused = await d.apply(op)
        assert isinstance(refused, Refusal)
        assert refused.code == "no_pool"
        assert await d.store.run("r1") is None

    async def test_keys_and_workflows_are_apart(self, d: Driver) -> None:
        calls = [
            await self.call(d, "1"),
            await self.call(d, "2", key="other"),
            await self.call(d, "3", workflow="other"),
        ]
        assert [one.created for one in calls] == [True] * 3
        # Nor is it the key of a start that is found again.
        assert made(await d.start("r9", key="k", owner=None)).run_id == "r9"

    async def test_two_in_one_batch(self, d: Driver) -> None:
        common: dict[str, Any] = {
            "debounce_us": SECOND,
            "debounce_max_us": HOUR,
            "key": "k",
            "owner": None,
        }
        one, two = await d.batch(
            d.start_op("r1", input="1", **common), d.start_op("r2", input="2", **common)
        )
        assert (one.created, two.created, two.run.run_id) == (True, False, "r1")
        assert (await d.run("r1")).input == "2"
        assert await d.store.run("r2") is None

    async def test_a_call_and_a_claim_in_one_batch(self, d: Driver) -> None:
        first = (await self.call(d, "1")).run.run_id
        d.advance("5s")
        claim = ops.ClaimRuns(worker_id=WORKER, fence=9, limit=9, workflows=(("orders", 1),))
        common: dict[str, Any] = {
            "debounce_us": SECOND,
            "debounce_max_us": HOUR,
            "key": "k",
            "owner": None,
        }
        claimed, started = await d.batch(claim, d.start_op("r2", input="2", **common))
        ran = {one.run_id: one.input for one in claimed.runs}
        # In whichever order a store takes them: begun with the first input, or replaced before.
        assert (ran, started.created) in (({first: "1"}, True), ({}, False))

    async def test_deadline_and_what_cancels_it_are_those_of_the_last_call(self, d: Driver) -> None:
        tags = '{"a":"1"}'
        first = await self.call(
            d,
            "1",
            deadline_us=HOUR,
            cancel_on=on(("order.off", "order/1")),
            tags=tags,
            entity_type="cart",
            entity_id="7",
        )
        d.advance("1s")
        await self.call(
            d, "2", deadline_us=2 * HOUR, cancel_on=on(("order.off", "order/2")), version=2
        )
        run_ = await d.run(first.run.run_id)
        assert run_.deadline_at == (run_.ready_at or 0) + 2 * HOUR
        assert (run_.tags, run_.entity_id, run_.version) == (tags, "7", 2)
        assert emitted(await d.emit("order.off", entity="order/1")).resumed == 0
        assert emitted(await d.emit("order.off", entity="order/2")).resumed == 1
        assert (await self.call(d, "3")).created  # it was told to stop: it has begun
        await self.call(d, "4")
        found = await d.store.look()
        assert found.deadline_at is None

    async def test_what_cancelled_it_before_the_call_cancels_it_no_more_within_one_batch(
        self, d: Driver
    ) -> None:
        """What watches for the new event stands in the very place of what watched for the old one."""
        first = (await self.call(d, "1", cancel_on=on(("order.off", "")))).run.run_id
        again = d.start_op(
            "r2",
            owner=None,
            input="2",
            key="k",
            debounce_us=SECOND,
            debounce_max_us=HOUR,
            cancel_on=on(("shop.closed", "")),
        )
        _, (told,) = await d.batch(again, d.emit_op("order.off"))
        assert emitted(told).resumed == 0
        assert await request(d, first) == (False, None)
        assert emitted(await d.emit("shop.closed")).resumed == 1

    async def test_signals_for_it_are_kept(self, d: Driver) -> None:
        first = (await self.call(d, "1")).run.run_id
        await d.signal(first, "go", "7")
        assert not (await self.call(d, "2")).created
        assert await d.payloads(first) == ["7"]

    async def test_whoever_waits_for_it_waits_on(self, d: Driver) -> None:
        first = (await self.call(d, "1")).run.run_id
        await d.start_waiting("r1", run(first))
        assert not (await self.call(d, "2")).created
        d.advance("5s")
        await d.claim()
        await d.record(first, done("a"))
        await d.finish(first, "8")
        assert (await d.won("r1"))[0] == 0

    async def test_pruned_its_key_is_free(self, d: Driver) -> None:
        first = (await self.call(d, "1")).run.run_id
        await d.terminate(first)
        d.advance("1h")
        assert (await d.prune(finished_before=d.clock.now())).count == 1
        assert (await self.call(d, "2")).created

    async def test_a_failed_one_keeps_its_error(self, d: Driver) -> None:
        first = (await self.call(d, "1")).run.run_id
        d.advance("5s")
        await d.claim()
        await d.finish(first, status="failed", output=None, error=error("no"))
        assert (await self.call(d, "2")).created
        assert (await d.run(first)).error == error("no")
