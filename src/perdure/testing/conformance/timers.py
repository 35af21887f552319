"""Deadlines: none before its time, none twice, and the next one always known."""

from perdure.model.outcomes import Fired
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    HOUR,
    SECOND,
    WORKER,
    retrying,
    run,
    signal,
    sleep,
    timer,
    until,
    wait,
)


class TestTimers(Subject):
    async def test_a_timer_does_not_fire_before_its_time(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", sleep("s", "1h"))
        at = d.clock.now() + HOUR
        d.clock.set(at - 1)
        assert await d.fire() == Fired(0, at)
        assert await d.status("r1") == "sleeping"

    async def test_a_timer_fires_at_its_time_and_wakes_the_run(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", sleep("s", "1h"))
        d.advance("1h")
        assert await d.fire() == Fired(1, None)
        step = await d.step("r1", "s")
        assert (step.kind, step.state, step.winner, step.value) == ("sleep", "done", 0, "null")
        assert await d.status("r1") == "ready"

    async def test_a_late_timer_fires_once(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", sleep("s", "1h"))
        d.advance("1d")
        await d.fire()
        before = await dump(d.store)
        assert await d.fire() == Fired(0, None)
        assert await dump(d.store) == before

    async def test_firing_where_nothing_is_due_writes_nothing(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        before = await dump(d.store)
        assert (await d.fire()).count == 0
        assert await dump(d.store) == before

    async def test_a_wait_with_many_conditions_times_out_once(self, d: Driver) -> None:
        await d.start("r2")
        await d.start_waiting("r1", signal("a"), signal("b"), run("r2"), timer("1h"))
        d.advance("1h")
        assert (await d.fire()).count == 1
        assert (await d.run("r1")).revision == 1
        assert (await d.step("r1", "w")).winner == 3

    async def test_a_limit_bounds_the_work_earliest_first(self, d: Driver) -> None:
        for number in (3, 1, 2):
            await d.start(f"r{number}")
            await d.suspend(f"r{number}", sleep("s", f"{number}h"))
        third = d.clock.now() + 3 * HOUR
        d.advance("5h")
        fired = await d.fire(limit=2)
        assert (fired.count, fired.next_at) == (2, third)
        assert [await d.status(f"r{number}") for number in (1, 2, 3)] == [
            "ready",
            "ready",
            "sleeping",
        ]
        assert (await d.fire(limit=2)).count == 1

    async def test_a_limit_smaller_than_the_conditions_of_one_wait_is_no_trap(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", signal("a"), signal("b"), signal("c"), timer("1h"))
        d.advance("1h")
        assert (await d.fire(limit=1)).count == 1
        assert await d.watchers("r1") == []

    async def test_durations_count_from_the_opening_of_the_wait(self, d: Driver) -> None:
        await d.start("r1")
        d.advance("10m")
        await d.suspend("r1", sleep("s", "1h"))
        (watcher,) = await d.watchers("r1")
        assert watcher.deadline_at == d.clock.now() + HOUR
        assert watcher.opened_at == d.clock.now()

    async def test_a_wait_until_a_time_keeps_that_time(self, d: Driver) -> None:
        at = d.clock.now() + 5 * HOUR
        await d.start("r1")
        await d.suspend("r1", wait("w", until(at)))
        assert (await d.store.look()).deadline_at == at

    async def test_two_branches_that_are_due_at_once_both_fire(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", sleep("a", "1h"), sleep("b", "1h"))
        d.advance("1h")
        assert (await d.fire()).count == 2
        assert [(await d.step("r1", path)).state for path in "ab"] == ["done", "done"]
        assert (await d.run("r1")).revision == 2

    async def test_a_retry_that_is_due_wakes_the_run_and_leaves_the_step(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", steps=(retrying("a", "10s"),))
        assert await d.status("r1") == "sleeping"
        d.store.worker_id = WORKER
        d.clock.set(d.clock.now() + 10 * SECOND)
        assert (await d.fire()).count == 1
        assert await d.status("r1") == "running"
        assert (await d.step("r1", "a")).state == "retrying"
        (wake,) = d.heard[-1].wakes
        assert wake.completion is not None
        assert (wake.completion.path, wake.completion.state) == ("a", "retrying")

    async def test_a_retry_that_is_due_is_told_once(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", steps=(retrying("a", "10s"),))
        d.store.worker_id = WORKER
        d.advance("10s")
        assert await d.fire() == Fired(1, None)
        assert await d.watchers("r1") == []
        assert await d.fire() == Fired(0, None)

    async def test_the_attempt_that_failed_is_told_when_its_retry_is_due(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", retrying("a", "10s"))
        d.advance("10s")
        await d.fire()
        await d.suspend("r1", steps=(retrying("a", "10s", attempt=2),))
        d.store.worker_id = WORKER
        d.advance("10s")
        await d.fire()
        (wake,) = [one for one in d.heard[-1].wakes if one.kind == "news"]
        assert wake.completion is not None and wake.completion.attempt == 2

    async def test_a_new_deadline_is_told_to_whoever_sleeps_until_the_next(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go"), timer("1h")))
        told = [one.at for one in d.heard[-1].wakes if one.kind == "deadline"]
        assert told == [d.clock.now() + HOUR]

    async def test_a_deadline_is_told_also_when_another_branch_goes_on(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go"), timer("1h")), park=False)
        assert d.deadlines_told() == [d.clock.now() + HOUR]

    async def test_the_time_of_a_retry_is_told(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", retrying("a", "10s"))
        assert d.deadlines_told() == [d.clock.now() + 10 * SECOND]

    async def test_a_paused_wait_does_not_time_out(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        await d.pause("r1")
        d.advance("2h")
        assert await d.fire() == Fired(0, None)
        assert (await d.step("r1", "w")).state == "open"

    async def test_a_cancelled_wait_does_not_time_out(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        await d.cancel("r1")
        await d.claim()
        await d.record_cancel("r1", "w")
        d.advance("2h")
        assert (await d.fire()).count == 0
        assert (await d.step("r1", "w")).state == "abandoned"
