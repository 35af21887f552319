"""Steering by operators: cancel, terminate, pause, resume. Each is idempotent; ends reach the children."""

import pytest

from perdure.model import ops
from perdure.model.outcomes import Advanced, Buffered, Finished, NotFound, Steered
from perdure.model.records import CANCEL_PATH
from perdure.testing.conformance.driver import Driver, completed, refused
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    HOUR,
    WORKER,
    done,
    retrying,
    run,
    signal,
    sleep,
    timer,
    wait,
)


class TestSteering(Subject):
    @pytest.mark.parametrize("steer", ["cancel", "terminate", "pause", "resume"])
    async def test_steering_needs_a_living_run(self, d: Driver, steer: str) -> None:
        assert await getattr(d, steer)("nobody") == NotFound("nobody")
        await d.start("r1")
        await d.finish("r1")
        before = await dump(d.store)
        assert await getattr(d, steer)("r1") == Finished("r1", "completed")
        assert await dump(d.store) == before

    @pytest.mark.parametrize("steer", ["terminate", "pause"])
    async def test_a_sleeping_run_ends_or_pauses_at_once(self, d: Driver, steer: str) -> None:
        await d.start("r1")
        await d.suspend("r1", sleep("s", "1h"))
        answer = await getattr(d, steer)("r1")
        assert isinstance(answer, Steered) and answer.status in ("terminated", "paused")
        assert await d.watchers("r1") == []
        d.advance("2h")
        assert (await d.fire()).count == 0


class TestCancel(Subject):
    async def test_a_running_run_is_told_by_its_revision(self, d: Driver) -> None:
        await d.start("r1")
        assert await d.cancel("r1", "too late") == Steered("r1", "running", True)
        run_ = await d.run("r1")
        assert (run_.cancel_requested, run_.reason, run_.revision) == (True, "too late", 1)
        answer = await d.record("r1", done("a"))
        assert isinstance(answer, Advanced) and answer.cancel_requested

    async def test_a_parked_run_is_woken_and_its_wait_stays_open(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        await d.cancel("r1")
        assert await d.status("r1") == "ready"
        assert (await d.step("r1", "w")).state == "open"

    async def test_a_parked_run_at_home_is_woken_without_a_claim(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        d.store.worker_id = WORKER
        await d.cancel("r1")
        assert ((await d.run("r1")).status, (await d.run("r1")).owner) == ("running", WORKER)
        (wake,) = d.heard[-1].wakes
        assert (wake.kind, wake.cancel) == ("control", True)

    async def test_a_paused_run_is_woken_to_be_told(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        await d.pause("r1")
        assert await d.cancel("r1") == Steered("r1", "ready", True)

    async def test_a_run_that_was_to_start_later_is_told_now(self, d: Driver) -> None:
        await d.start("r1", start_at=d.clock.now() + HOUR)
        await d.cancel("r1")
        assert [one.run_id for one in (await d.claim()).runs] == ["r1"]

    async def test_a_second_cancel_changes_nothing(self, d: Driver) -> None:
        await d.start("r1")
        await d.cancel("r1", "first")
        before = await dump(d.store)
        assert await d.cancel("r1", "second") == Steered("r1", "running", False)
        assert await dump(d.store) == before

    async def test_a_cancel_takes_back_a_pause_that_was_asked_for(self, d: Driver) -> None:
        await d.start("r1")
        await d.pause("r1")
        await d.cancel("r1")
        assert not (await d.run("r1")).pause_requested

    async def test_the_open_paths_are_recorded_and_closed(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("a", signal("go")), sleep("b", "1h"))
        await d.cancel("r1", "too late")
        await d.claim()
        answer = await d.record_cancel("r1", "a", "b")
        assert completed(answer) == [(CANCEL_PATH, None, '["a","b"]')]
        step = await d.step("r1", CANCEL_PATH)
        assert (step.kind, step.state, step.name) == ("cancel", "done", "too late")
        assert [(await d.step("r1", path)).state for path in "ab"] == ["abandoned", "abandoned"]
        assert await d.watchers("r1") == []

    async def test_results_are_recorded_with_a_cancel_before_it(self, d: Driver) -> None:
        await d.start("r1")
        await d.cancel("r1")
        await d.record_cancel("r1", steps=(done("a", "1"),))
        a, mark = await d.store.history("r1")
        assert (a.path, mark.path) == ("a", CANCEL_PATH) and a.seq < mark.seq

    async def test_cleanup_may_run_steps_and_wait(self, d: Driver) -> None:
        await d.start("r1")
        await d.cancel("r1")
        await d.record_cancel("r1")
        await d.record("r1", done("refund"))
        await d.suspend("r1", wait("w", signal("refunded")))
        assert await d.status("r1") == "waiting"
        await d.signal("r1", "refunded")
        await d.claim()
        await d.finish("r1", status="cancelled", output=None)
        assert await d.status("r1") == "cancelled"

    async def test_a_cleanup_that_raises_leaves_the_run_failed(self, d: Driver) -> None:
        await d.start("r1")
        await d.cancel("r1")
        await d.record_cancel("r1")
        await d.fail("r1")
        assert await d.status("r1") == "failed"

    async def test_the_reason_stays_with_the_cancelled_run(self, d: Driver) -> None:
        await d.start("r1")
        await d.cancel("r1", "too late")
        await d.finish("r1", status="cancelled", output=None)
        assert (await d.run("r1")).reason == "too late"
        (told,) = await d.told("workflow.run_cancelled")
        assert told["reason"] == "too late"

    async def test_children_are_cancelled_too_all_the_way_down(self, d: Driver) -> None:
        await d.start("r1")
        await d.start("child", parent_run_id="r1")
        await d.start_waiting("grandchild", signal("go"), parent_run_id="child")
        await d.start("stranger")
        await d.cancel("r1")
        asked = {
            one: (await d.run(one)).cancel_requested
            for one in ("r1", "child", "grandchild", "stranger")
        }
        assert asked == {"r1": True, "child": True, "grandchild": True, "stranger": False}
        assert await d.status("grandchild") == "ready"

    async def test_a_child_that_lives_again_is_cancelled_too(self, d: Driver) -> None:
        await d.start("r1")
        await d.start("child", parent_run_id="r1")
        await d.fail("child")
        await d.batch(ops.Retry(run_id="child"), ops.Cancel(run_id="r1"))
        assert (await d.run("child")).cancel_requested

    async def test_a_child_that_is_started_before_the_code_knew_of_the_cancel_is_cancelled_too(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.cancel("r1")
        child = d.start_op("child", owner=None, parent_run_id="r1", parent_path="call")
        await d.record_send("r1", "call", child, kind="start")
        assert (await d.run("child")).cancel_requested
        await d.record_cancel("r1", "call.result")
        cleanup = d.start_op("cleanup", owner=None, parent_run_id="r1", parent_path="cleanup")
        await d.record_send("r1", "cleanup", cleanup, kind="start")
        assert not (await d.run("cleanup")).cancel_requested

    async def test_a_cancelled_child_that_is_quicker_leaves_its_parent_to_its_own_cancel(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.start("child", parent_run_id="r1")
        await d.suspend("r1", wait("w", run("child")))
        await d.cancel("r1")
        await d.record_cancel("child")
        await d.finish("child", status="cancelled", output=None)
        assert (await d.step("r1", "w")).state == "open"
        await d.claim()
        await d.record_cancel("r1", "w")
        assert (await d.step("r1", "w")).state == "abandoned"

    async def test_a_second_cancel_leaves_what_the_cleanup_started_alone(self, d: Driver) -> None:
        await d.start("r1")
        await d.cancel("r1")
        await d.record_cancel("r1")
        child = d.start_op("cleanup", owner=None, parent_run_id="r1", parent_path="cleanup")
        await d.record_send("r1", "cleanup", child, kind="start")
        await d.cancel("r1")
        assert not (await d.run("cleanup")).cancel_requested

    @pytest.mark.parametrize("steer", ["cancel", "terminate"])
    async def test_a_family_whose_ids_were_used_anew_is_steered_to_its_end(
        self, d: Driver, steer: str
    ) -> None:
        """A child that was retried may start a run under the id of its own parent, which was pruned."""
        await d.start("a")
        await d.start("b", parent_run_id="a")
        await d.finish("a")
        d.advance("1s")
        await d.fail("b")
        assert (await d.prune(finished_before=d.clock.now())).count == 1
        await d.retry("b")
        await d.start("a", parent_run_id="b")
        await getattr(d, steer)("b")
        for run_id in ("a", "b"):
            steered = await d.run(run_id)
            assert steered.cancel_requested or steered.status == "terminated"

    async def test_a_child_that_has_ended_is_left_alone(self, d: Driver) -> None:
        await d.start("r1")
        await d.start("child", parent_run_id="r1")
        await d.finish("child")
        await d.cancel("r1")
        assert await d.status("child") == "completed"

    async def test_a_finish_that_has_not_seen_the_cancel_is_refused(self, d: Driver) -> None:
        await d.start("r1")
        before = (await d.run("r1")).revision
        await d.cancel("r1")
        assert not isinstance(await d.finish("r1", revision=before), Advanced)
        assert await d.status("r1") == "running"


class TestTerminate(Subject):
    @pytest.mark.parametrize("kind", ["ready", "running", "waiting", "paused"])
    async def test_a_living_run_ends_at_once(self, d: Driver, kind: str) -> None:
        await d.start("r1", owner=None if kind == "ready" else WORKER)
        if kind in ("waiting", "paused"):
            await d.suspend("r1", wait("w", signal("go"), timer("1h")))
        if kind == "paused":
            await d.pause("r1")
        assert await d.terminate("r1", "enough") == Steered("r1", "terminated", True)
        run_ = await d.run("r1")
        assert (run_.status, run_.reason, run_.owner, run_.fence) == (
            "terminated",
            "enough",
            None,
            0,
        )
        assert await d.watchers("r1") == []

    async def test_children_are_terminated_too(self, d: Driver) -> None:
        await d.start("r1")
        await d.start_waiting("child", signal("go"), parent_run_id="r1")
        await d.start("grandchild", parent_run_id="child")
        await d.terminate("r1")
        assert await d.status("child") == await d.status("grandchild") == "terminated"

    async def test_a_parent_that_waits_for_its_child_goes_with_it(self, d: Driver) -> None:
        await d.start("r1")
        await d.start("child", parent_run_id="r1")
        await d.suspend("r1", wait("w", run("child")))
        await d.terminate("r1")
        assert (await d.step("r1", "w")).state == "open"
        assert await d.status("child") == "terminated"

    async def test_who_looks_for_changes_finds_it_gone(self, d: Driver) -> None:
        """Its revision is as it was: by that alone its owner would not learn of it."""
        await d.start("r1")
        await d.start("r2")
        assert await d.store.revisions(["r1", "r2", "none"]) == {"r1": 0, "r2": 0}
        await d.terminate("r1")
        assert await d.store.revisions(["r1", "r2"]) == {"r2": 0}

    async def test_the_owner_learns_that_it_is_over(self, d: Driver) -> None:
        await d.start("r1")
        await d.terminate("r1")
        kinds = {(one.kind, one.run_id, one.owner) for one in d.heard[-1].wakes}
        assert ("ended", "r1", WORKER) in kinds


class TestPause(Subject):
    async def test_a_running_run_pauses_at_its_next_stop(self, d: Driver) -> None:
        """The step in flight finishes and is recorded; then nothing advances."""
        await d.start("r1")
        assert await d.pause("r1", "audit") == Steered("r1", "running", True)
        answer = await d.record("r1", done("a", "1"))
        assert isinstance(answer, Advanced) and answer.pause_requested
        answer = await d.suspend("r1", wait("w", signal("go"), timer("1h")))
        assert isinstance(answer, Advanced) and answer.paused and not answer.pause_requested
        run_ = await d.run("r1")
        assert (run_.status, run_.reason, run_.owner) == ("paused", "audit", None)
        assert await d.watchers("r1") == []
        assert (await d.step("r1", "w")).state == "open"

    async def test_a_parked_run_pauses_at_once(self, d: Driver) -> None:
        run_ = await d.start_waiting("r1", signal("go"), timer("1h"))
        assert await d.pause("r1") == Steered("r1", "paused", True)
        after = await d.run("r1")
        assert (after.status, after.owner, after.fence) == ("paused", None, 0)
        assert after.revision == run_.revision + 1
        assert await d.watchers("r1") == []

    async def test_the_owner_learns_that_its_parked_run_was_paused(self, d: Driver) -> None:
        run_ = await d.start_waiting("r1", signal("go"))
        await d.pause("r1")
        (wake,) = d.heard[-1].wakes
        assert (wake.kind, wake.owner, wake.lost, wake.revision) == (
            "control",
            WORKER,
            True,
            run_.revision + 1,
        )

    async def test_a_ready_run_pauses_at_once_and_is_not_claimed(self, d: Driver) -> None:
        await d.start("r1", owner=None)
        await d.pause("r1")
        assert (await d.claim()).runs == ()

    async def test_a_second_pause_changes_nothing(self, d: Driver) -> None:
        await d.start("r1")
        await d.start_waiting("r2", signal("go"))
        for run_id in ("r1", "r2"):
            await d.pause(run_id)
            before = await dump(d.store)
            again = await d.pause(run_id)
            assert isinstance(again, Steered) and not again.changed
            assert await dump(d.store) == before

    async def test_a_signal_to_a_paused_run_is_buffered_and_wins_on_resume(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        await d.pause("r1")
        d.advance("30m")
        assert isinstance(await d.signal("r1", "go", "1"), Buffered)
        d.advance("2h")
        assert await d.resume("r1") == Steered("r1", "ready", True)
        await d.claim()
        known = wait("w", signal("go"), timer("1h"), known=True)
        assert completed(await d.suspend("r1", known)) == [("w", 0, "1")]

    async def test_a_signal_after_the_deadline_of_a_paused_wait_does_not_win(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        await d.pause("r1")
        d.advance("2h")
        await d.signal("r1", "go", "1")
        await d.resume("r1")
        await d.claim()
        known = wait("w", signal("go"), timer("1h"), known=True)
        assert completed(await d.suspend("r1", known)) == [("w", 1, "null")]
        assert await d.payloads("r1") == ["1"]

    async def test_a_run_that_ended_in_time_during_the_pause_wins_on_resume(
        self, d: Driver
    ) -> None:
        await d.start("r2")
        await d.start_waiting("r1", run("r2"), timer("1h"))
        await d.pause("r1")
        await d.finish("r2", "7")
        d.advance("2h")
        await d.resume("r1")
        await d.claim()
        known = wait("w", run("r2"), timer("1h"), known=True)
        assert completed(await d.suspend("r1", known)) == [("w", 0, "7")]

    async def test_a_run_that_ended_after_the_deadline_of_a_paused_wait_does_not_win(
        self, d: Driver
    ) -> None:
        await d.start("r2")
        await d.start_waiting("r1", run("r2"), timer("1h"))
        await d.pause("r1")
        d.advance("2h")
        await d.finish("r2", "7")
        await d.resume("r1")
        await d.claim()
        known = wait("w", run("r2"), timer("1h"), known=True)
        assert completed(await d.suspend("r1", known)) == [("w", 1, "null")]

    async def test_a_resumed_wait_keeps_its_deadline(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        deadline_at = d.clock.now() + HOUR
        await d.pause("r1")
        d.advance("30m")
        await d.resume("r1")
        await d.claim()
        await d.suspend("r1", wait("w", signal("go"), timer("1h"), known=True))
        assert [one.deadline_at for one in await d.watchers("r1")] == [deadline_at]

    async def test_a_step_that_was_to_be_tried_again_is_due_again_after_the_pause(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.suspend("r1", steps=(retrying("a", "10s"),))
        retry_at = (await d.step("r1", "a")).retry_at
        await d.pause("r1")
        d.advance("1m")
        assert (await d.fire()).count == 0
        await d.resume("r1")
        assert [one.deadline_at for one in await d.watchers("r1")] == [retry_at]
        assert (await d.fire()).count == 1

    async def test_a_resume_before_the_run_stopped_takes_the_pause_back(self, d: Driver) -> None:
        await d.start("r1")
        await d.pause("r1")
        assert await d.resume("r1") == Steered("r1", "running", True)
        answer = await d.suspend("r1", wait("w", signal("go")))
        assert isinstance(answer, Advanced) and answer.parked and not answer.paused

    async def test_only_a_paused_run_is_resumed(self, d: Driver) -> None:
        await d.start("r1")
        before = await dump(d.store)
        assert refused(await d.resume("r1")) == "not_paused"
        assert await dump(d.store) == before

    async def test_a_paused_run_that_finishes_first_is_finished(self, d: Driver) -> None:
        await d.start("r1")
        await d.pause("r1")
        await d.finish("r1")
        run_ = await d.run("r1")
        assert (run_.status, run_.pause_requested) == ("completed", False)

    async def test_a_wait_that_is_decided_at_once_leaves_the_pause_asked_for(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.signal("r1", "go")
        await d.pause("r1")
        answer = await d.suspend("r1", wait("w", signal("go")))
        assert isinstance(answer, Advanced) and answer.pause_requested and not answer.parked
