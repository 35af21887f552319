"""Waits: one winner, stored with the completed step; losers change nothing; an event against its deadline."""

import msgspec
import pytest

from perdure.model.outcomes import Advanced, Buffered, Delivered
from perdure.model.records import ErrorRecord
from perdure.testing.conformance.driver import Driver, completed, spec_of
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import HOUR, WORKER, run, signal, sleep, timer, until, wait


class TestWaits(Subject):
    # --- opening ---

    async def test_a_wait_stores_its_conditions_and_its_deadline(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        step = await d.step("r1", "w")
        assert (step.kind, step.state, step.seq, step.winner) == ("wait", "open", 0, None)
        assert spec_of(step).deadline_at == d.clock.now() + HOUR
        (watcher,) = await d.watchers("r1")
        assert (watcher.kind, watcher.target, watcher.ix) == ("signal", "go", 0)
        assert (watcher.deadline_at, watcher.deadline_ix) == (d.clock.now() + HOUR, 1)

    async def test_a_run_that_waits_for_a_signal_is_waiting(self, d: Driver) -> None:
        answer = await d.start_waiting("r1", signal("go"), timer("1h"))
        assert answer.status == "waiting"

    async def test_a_run_that_waits_for_a_run_is_waiting(self, d: Driver) -> None:
        await d.start("r2")
        assert (await d.start_waiting("r1", run("r2"))).status == "waiting"

    async def test_a_run_that_waits_for_time_only_is_sleeping(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", sleep("s", "1h"))
        assert await d.status("r1") == "sleeping"
        assert await d.watched("r1") == [("s", "timer", "")]

    async def test_one_branch_that_waits_for_more_than_time_makes_it_waiting(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.suspend("r1", sleep("s", "1h"), wait("w", signal("go")))
        assert await d.status("r1") == "waiting"

    async def test_a_wait_of_one_branch_leaves_a_run_with_a_step_in_flight_running(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        answer = await d.suspend("r1", wait("w", signal("go")), park=False)
        assert isinstance(answer, Advanced) and not answer.parked
        assert await d.status("r1") == "running"

    async def test_a_parked_run_keeps_its_owner_unless_it_is_released(self, d: Driver) -> None:
        assert (await d.start_waiting("r1", signal("go"))).owner == WORKER
        await d.start("r2")
        await d.suspend("r2", wait("w", signal("go")), release=True)
        assert ((await d.run("r2")).owner, (await d.run("r2")).fence) == (None, 0)

    async def test_a_wait_that_is_known_and_open_stays_as_it_is(self, d: Driver) -> None:
        """A replay in another worker meets the wait again: its deadline does not move."""
        await d.start_waiting("r1", signal("go"), timer("1h"))
        await d.release("r1")
        before = await d.watchers("r1"), await d.step("r1", "w")
        d.advance("30m")
        await d.cancel("r1")
        await d.claim("worker-2")
        await d.suspend("r1", wait("w", signal("go"), timer("1h"), known=True))
        assert (await d.watchers("r1"), await d.step("r1", "w")) == before

    async def test_a_wait_that_was_decided_meanwhile_answers_what_is_stored(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", signal("go"))
        await d.signal("r1", "go", "1")
        await d.claim("worker-2")
        answer = await d.suspend("r1", wait("w", signal("go"), known=True))
        assert completed(answer) == [("w", 0, "1")]

    async def test_one_decided_wait_of_several_keeps_the_run_going(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1")
        answer = await d.suspend("r1", wait("a", signal("go")), wait("b", signal("on")))
        assert completed(answer) == [("a", 0, "1")]
        assert await d.status("r1") == "running"
        assert await d.watched("r1") == [("b", "signal", "on")]

    # --- winner and losers ---

    async def test_the_winner_is_stored_with_the_step(self, d: Driver) -> None:
        await d.start("r2")
        await d.start_waiting("r1", run("r2"), signal("no"), signal("yes"), timer("1h"))
        await d.signal("r1", "yes", "1")
        step = await d.step("r1", "w")
        assert (step.state, step.winner, step.value) == ("done", 2, "1")

    async def test_the_losers_watchers_leave_in_that_commit(self, d: Driver) -> None:
        await d.start("r2")
        await d.start_waiting("r1", run("r2"), signal("no"), signal("yes"), timer("1h"))
        assert len(await d.watchers("r1")) == 3
        await d.signal("r1", "yes", "1")
        assert await d.watchers("r1") == []

    async def test_a_loser_takes_nothing(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "yes", "1")
        await d.signal("r1", "no", "2")
        await d.suspend("r1", wait("w", signal("no"), signal("yes")))
        assert await d.payloads("r1") == ["2"]

    async def test_a_lost_event_changes_nothing_in_the_ended_wait(self, d: Driver) -> None:
        await d.start("r2")
        await d.start_waiting("r1", signal("yes"), run("r2"), timer("1h"))
        await d.signal("r1", "yes", "1")
        before = await d.step("r1", "w"), await d.run("r1")
        await d.finish("r2")
        d.advance("2h")
        await d.fire()
        assert (await d.step("r1", "w"), await d.run("r1")) == before

    async def test_each_branch_has_its_own_winner(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("a", signal("go")), wait("b", signal("on")))
        await d.signal("r1", "on", "2")
        await d.signal("r1", "go", "1")
        assert (await d.step("r1", "a")).value == "1"
        assert (await d.step("r1", "b")).value == "2"
        assert (await d.step("r1", "b")).seq < (await d.step("r1", "a")).seq
        assert (await d.run("r1")).revision == 2

    @pytest.mark.parametrize("early", [True, False])
    async def test_a_signal_named_twice_in_one_wait_wins_by_its_first_mention(
        self, d: Driver, early: bool
    ) -> None:
        await d.start("r1")
        twice = wait("w", signal("no"), signal("go"), signal("go"))
        if early:
            await d.signal("r1", "go", "1")
            await d.suspend("r1", twice)
        else:
            await d.suspend("r1", twice)
            await d.signal("r1", "go", "1")
        assert (await d.step("r1", "w")).winner == 1

    async def test_a_run_named_twice_in_one_wait_wins_by_its_first_mention(self, d: Driver) -> None:
        await d.start("r2")
        await d.start_waiting("r1", signal("go"), run("r2"), run("r2"))
        await d.finish("r2", "7")
        step = await d.step("r1", "w")
        assert (step.state, step.winner, step.value) == ("done", 1, "7")

    async def test_what_is_there_is_taken_in_the_documented_order(self, d: Driver) -> None:
        """Signal to this path, signal to this run, finished run, timer."""
        await d.start("r2")
        await d.finish("r2", "7")
        await d.start("r1")
        await d.signal("r1", "go", '"run"', policy="all")
        await d.signal("r1", "go", '"path"', policy="all", path="w#1")
        on = (until(d.clock.now()), run("r2"), signal("go"))
        winners = []
        for number in (1, 2, 3):
            winners += completed(await d.suspend("r1", wait(f"w#{number}", *on)))
        winners += completed(await d.suspend("r1", wait("w#4", until(d.clock.now()))))
        assert winners == [
            ("w#1", 2, '"path"'),
            ("w#2", 2, '"run"'),
            ("w#3", 1, "7"),
            ("w#4", 0, "null"),
        ]

    # --- an event against its deadline ---

    async def test_a_signal_before_the_deadline_wins(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        d.advance("59m")
        assert isinstance(await d.signal("r1", "go", "1"), Delivered)
        d.advance("2m")
        assert (await d.fire()).count == 0
        assert (await d.step("r1", "w")).winner == 0

    async def test_a_signal_at_the_deadline_wins(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        d.advance("1h")
        assert isinstance(await d.signal("r1", "go", "1"), Delivered)
        assert (await d.fire()).count == 0

    async def test_a_signal_after_the_deadline_does_not_touch_the_wait(self, d: Driver) -> None:
        """Also when nobody has fired the timer yet; the signal stays for a later wait."""
        await d.start_waiting("r1", signal("go"), timer("1h"))
        d.advance("1h1us")
        assert isinstance(await d.signal("r1", "go", "1"), Buffered)
        assert (await d.step("r1", "w")).state == "open"
        await d.fire()
        assert (await d.step("r1", "w")).winner == 1
        await d.claim()
        assert completed(await d.suspend("r1", wait("w#2", signal("go")))) == [("w#2", 0, "1")]

    async def test_after_the_deadline_nobody_waits_for_buffer_false(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        d.advance("2h")
        outcome = await d.signal("r1", "go", buffer=False)
        assert getattr(outcome, "code", None) == "not_waiting"

    async def test_a_name_is_not_ambiguous_when_one_wait_is_past_its_deadline(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("a", signal("go"), timer("1h")), wait("b", signal("go")))
        d.advance("2h")
        answer = await d.signal("r1", "go")
        assert isinstance(answer, Delivered) and answer.path == "b"

    async def test_a_fired_timer_wins_once_and_for_all(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        d.advance("1h")
        assert (await d.fire()).count == 1
        step = await d.step("r1", "w")
        assert (step.state, step.winner, step.value) == ("done", 1, "null")
        assert isinstance(await d.signal("r1", "go", "1"), Buffered)
        assert await d.step("r1", "w") == step

    async def test_the_earliest_of_several_timers_is_the_deadline(self, d: Driver) -> None:
        await d.start_waiting("r1", timer("2h"), signal("go"), timer("1h"))
        d.advance("1h")
        await d.fire()
        assert (await d.step("r1", "w")).winner == 2

    async def test_of_two_timers_for_one_moment_the_first_mention_wins(self, d: Driver) -> None:
        await d.start_waiting("r1", timer("1h"), signal("go"), timer("1h"))
        d.advance("1h")
        await d.fire()
        assert (await d.step("r1", "w")).winner == 0

    async def test_a_wait_until_a_time_that_has_passed_never_suspends(self, d: Driver) -> None:
        await d.start("r1")
        answer = await d.suspend("r1", wait("w", signal("go"), until(d.clock.now() - 1)))
        assert completed(answer) == [("w", 1, "null")]
        assert await d.status("r1") == "running"

    async def test_an_early_signal_beats_a_deadline_that_has_passed_only_if_it_came_in_time(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.signal("r1", "a", "1")
        at = d.clock.now()
        d.advance("1s")
        await d.signal("r1", "b", "2")
        assert completed(await d.suspend("r1", wait("w#1", signal("b"), until(at)))) == [
            ("w#1", 1, "null")
        ]
        assert completed(await d.suspend("r1", wait("w#2", signal("a"), until(at)))) == [
            ("w#2", 0, "1")
        ]
        assert await d.payloads("r1") == ["2"]

    # --- waits for runs ---

    async def test_the_end_of_a_run_wakes_everybody_who_waits_for_it(self, d: Driver) -> None:
        await d.start("r9")
        await d.start_waiting("r1", run("r9"))
        await d.start_waiting("r2", run("r9"), timer("1h"))
        await d.finish("r9", "7")
        for run_id in ("r1", "r2"):
            step = await d.step(run_id, "w")
            assert (step.state, step.winner, step.value) == ("done", 0, "7")
            assert await d.status(run_id) == "ready"

    async def test_a_run_that_has_ended_already_is_taken_at_once(self, d: Driver) -> None:
        await d.start("r9")
        await d.finish("r9", "7")
        await d.start("r1")
        assert completed(await d.suspend("r1", wait("w", run("r9")))) == [("w", 0, "7")]

    async def test_of_two_runs_that_have_ended_the_one_that_ended_first_wins(
        self, d: Driver
    ) -> None:
        await d.start("late")
        await d.start("soon")
        await d.finish("soon", "1")
        d.advance("1s")
        await d.finish("late", "2")
        await d.start("r1")
        answer = await d.suspend("r1", wait("w", run("late"), run("soon")))
        assert completed(answer) == [("w", 1, "1")]

    async def test_a_run_that_has_ended_wins_over_one_that_never_was(self, d: Driver) -> None:
        await d.start("r2")
        await d.finish("r2", "7")
        d.advance("1s")
        await d.start("r1")
        answer = await d.suspend("r1", wait("w", run("nobody"), run("r2")))
        assert completed(answer) == [("w", 1, "7")]

    async def test_a_failed_run_that_is_waited_for_gives_its_error(self, d: Driver) -> None:
        await d.start("r9")
        await d.start_waiting("r1", run("r9"))
        await d.fail("r9", "charge")
        step = await d.step("r1", "w")
        error = msgspec.json.decode(step.error or "", type=ErrorRecord)
        assert (step.state, step.winner) == ("failed", 0)
        assert (error.kind, error.run_id, error.path) == ("run", "r9", "charge")

    async def test_a_terminated_run_that_is_waited_for_says_so(self, d: Driver) -> None:
        await d.start("r9")
        await d.start_waiting("r1", run("r9"))
        await d.terminate("r9", "enough")
        error = msgspec.json.decode((await d.step("r1", "w")).error or "", type=ErrorRecord)
        assert (error.kind, error.run_id, error.message) == ("terminated", "r9", "enough")

    async def test_a_run_that_never_was_is_known_at_once(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", run("nobody"), timer("1h")))
        step = await d.step("r1", "w")
        error = msgspec.json.decode(step.error or "", type=ErrorRecord)
        assert (step.state, error.code) == ("failed", "not_found")
        assert await d.status("r1") == "running"

    async def test_a_run_that_ends_after_the_deadline_does_not_touch_the_wait(
        self, d: Driver
    ) -> None:
        await d.start("r9")
        await d.start_waiting("r1", run("r9"), timer("1h"))
        d.advance("1h1us")
        await d.finish("r9")
        assert (await d.step("r1", "w")).state == "open"
        await d.fire()
        assert (await d.step("r1", "w")).winner == 1

    async def test_a_run_that_ends_at_the_deadline_wins(self, d: Driver) -> None:
        await d.start("r9")
        await d.start_waiting("r1", run("r9"), timer("1h"))
        d.advance("1h")
        await d.finish("r9")
        assert (await d.step("r1", "w")).winner == 0

    async def test_continue_as_does_not_end_a_run_for_those_who_wait(self, d: Driver) -> None:
        await d.start("r9")
        await d.start_waiting("r1", run("r9"))
        await d.continue_as("r9")
        assert (await d.step("r1", "w")).state == "open"
        await d.finish("r9", "7")
        assert (await d.step("r1", "w")).value == "7"

    async def test_ends_pass_from_run_to_run(self, d: Driver) -> None:
        await d.start("r3")
        await d.start_waiting("r2", run("r3"))
        await d.start_waiting("r1", run("r2"))
        await d.terminate("r3")
        assert await d.status("r2") == "ready"
        assert (await d.step("r1", "w")).state == "open"

    async def test_a_delivery_to_a_running_run_waits_for_its_owner(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        before = await d.run("r1")
        await d.signal("r1", "go", "1")
        after = await d.run("r1")
        assert (after.status, after.owner, after.fence) == ("running", WORKER, before.fence)
        assert after.revision == before.revision + 1

    async def test_a_repeated_resume_of_a_wait_is_a_no_op(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        await d.signal("r1", "go", "1")
        d.advance("2h")
        before = await dump(d.store)
        await d.fire()
        await d.recover("r1")
        assert await dump(d.store) == before
