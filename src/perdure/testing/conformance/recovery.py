"""Recovery: conditional, idempotent, silent on a healthy store; it heals what a crash can leave behind."""

import pytest

from perdure.model.outcomes import Counted, Fenced
from perdure.testing.conformance.driver import Driver, completed
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import SECOND, WORKER, done, signal, sleep, timer, wait


class TestRecovery(Subject):
    async def test_on_a_healthy_store_nothing_is_written(self, d: Driver) -> None:
        await d.start("running")
        await d.start("ready", owner=None)
        await d.start_waiting("waiting", signal("go"), timer("1h"))
        await d.start("sleeping")
        await d.suspend("sleeping", sleep("s", "1h"))
        await d.start_waiting("paused", signal("go"))
        await d.pause("paused")
        await d.start("ended")
        await d.finish("ended")
        before = await dump(d.store), await d.store.counts()
        every = ("running", "ready", "waiting", "sleeping", "paused", "ended", "nobody")
        assert not (await d.store.look()).orphaned
        for _ in range(2):
            assert await d.recover(*every) == Counted(0)
        assert (await dump(d.store), await d.store.counts()) == before

    async def test_a_run_of_a_worker_that_never_gave_a_sign_is_made_ready(self, d: Driver) -> None:
        await d.start("r1", owner="ghost")
        assert (await d.store.look()).orphaned
        before = await d.run("r1")
        assert await d.recover() == Counted(1)
        run = await d.run("r1")
        assert (run.status, run.owner, run.fence) == ("ready", None, 0)
        assert run.revision == before.revision + 1
        assert not (await d.store.look()).orphaned
        assert await d.recover() == Counted(0)

    async def test_a_run_of_a_worker_that_stopped_is_made_ready(self, d: Driver) -> None:
        await d.beat("worker-2")
        await d.start("r1", owner="worker-2")
        assert await d.recover() == Counted(0)
        await d.beat("worker-2", stopping=True)
        assert await d.recover() == Counted(1)

    async def test_a_run_of_a_worker_whose_life_sign_ran_out_is_made_ready(self, d: Driver) -> None:
        await d.beat("worker-2", lease_us=10 * SECOND)
        await d.start("r1", owner="worker-2")
        d.clock.set(d.clock.now() + 9 * SECOND)
        assert not (await d.store.look()).orphaned
        assert await d.recover() == Counted(0)
        d.clock.set(d.clock.now() + 2 * SECOND)
        assert (await d.store.look()).orphaned
        assert await d.recover() == Counted(1)
        assert await d.status("r1") == "ready"

    async def test_a_beat_prolongs_the_life_sign(self, d: Driver) -> None:
        await d.beat("worker-2", lease_us=10 * SECOND)
        await d.start("r1", owner="worker-2")
        d.clock.set(d.clock.now() + 9 * SECOND)
        await d.beat("worker-2", lease_us=10 * SECOND)
        d.clock.set(d.clock.now() + 9 * SECOND)
        assert await d.recover() == Counted(0)

    async def test_the_row_of_a_dead_worker_is_cleared_away_by_the_next(self, d: Driver) -> None:
        await d.beat("worker-2", lease_us=10 * SECOND)
        d.advance("11s")
        await d.beat("worker-3", lease_us=10 * SECOND)
        assert (await d.store.counts())["workers"] == 2  # worker-1 lives on, worker-2 is gone

    async def test_a_beat_leaves_other_living_workers_alone(self, d: Driver) -> None:
        await d.start("r1")  # of worker-1, which lives
        await d.beat("worker-2")
        assert (await d.store.counts())["workers"] == 2
        assert not (await d.store.look()).orphaned

    async def test_a_worker_that_beats_again_after_its_run_was_taken_is_fenced(
        self, d: Driver
    ) -> None:
        await d.beat("worker-2", lease_us=10 * SECOND)
        await d.start("r1", owner="worker-2")
        stale = (await d.run("r1")).fence
        d.clock.set(d.clock.now() + 11 * SECOND)
        await d.recover()
        await d.claim(WORKER)
        await d.beat("worker-2", lease_us=10 * SECOND)
        assert await d.record("r1", done("a"), fence=stale) == Fenced("r1", "running")
        assert await d.store.history("r1") == []

    async def test_parked_runs_of_a_dead_worker_need_no_recovery(self, d: Driver) -> None:
        """Whoever wakes them makes them ready."""
        await d.start_waiting("r1", signal("go"), owner="ghost")
        assert await d.recover() == Counted(0)
        await d.signal("r1", "go")
        assert await d.status("r1") == "ready"

    async def test_a_limit_bounds_the_work_and_more_is_told(self, d: Driver) -> None:
        for number in range(5):
            await d.start(f"r{number}", owner="ghost")
        assert await d.recover(limit=2) == Counted(2, more=True)
        assert (await d.recover(limit=2)).count == 2
        assert await d.recover(limit=2) == Counted(1)

    async def test_recorded_steps_and_open_waits_survive_the_reclaim(self, d: Driver) -> None:
        await d.start("r1", owner="ghost")
        await d.record("r1", done("a", "1"))
        await d.suspend("r1", wait("w", signal("go"), timer("1h")), park=False)
        await d.recover()
        await d.signal("r1", "go", "2")
        await d.claim()
        assert (await d.step("r1", "a")).value == "1"
        answer = await d.suspend("r1", wait("w", signal("go"), timer("1h"), known=True))
        assert completed(answer) == [("w", 0, "2")]

    @pytest.mark.parametrize("kind", ["nothing", "decided"])
    async def test_a_parked_run_that_waits_for_nothing_is_found_and_healed(
        self, d: Driver, kind: str
    ) -> None:
        """A delivery cut in half: the wait is done, its watchers are gone, the status still says waiting."""
        await d.start("r1")
        if kind == "decided":
            await d.signal("r1", "go", "1")
            await d.suspend("r1", wait("w", signal("go")))
        await d.suspend("r1")  # parks it with nothing to wait for
        await d.start_waiting("r2", signal("go"))
        suspects = (await d.store.look(limit=100)).suspects
        assert suspects == ("r1",)
        assert await d.recover(*suspects, "r2") == Counted(1)
        assert await d.status("r1") == "ready"
        assert await d.status("r2") == "waiting"
        assert (await d.store.look(limit=100)).suspects == ()
        assert await d.recover(*suspects) == Counted(0)

    async def test_a_suspect_that_moved_on_meanwhile_is_left_alone(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1")
        await d.recover("r1")
        await d.claim()
        await d.suspend("r1", wait("w", signal("go")))
        before = await dump(d.store)
        assert await d.recover("r1") == Counted(0)
        assert await dump(d.store) == before
