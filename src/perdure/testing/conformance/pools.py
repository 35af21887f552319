"""Pools: who holds a slot, who stands in line, and who is let through next, on every store alike."""

from typing import Any

import pytest

from perdure.model import limits, ops
from perdure.model.outcomes import Admitted, Advanced, Counted, Refusal, Started, Steered, Wake
from perdure.model.pools import limits_of, try_at
from perdure.model.records import PoolRecord
from perdure.testing.conformance.driver import Driver, all_runs
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    HOUR,
    SECOND,
    WORKER,
    WORKFLOW,
    done,
    run,
    signal,
    wait,
)

POOL = "gpu"


async def queue_up(d: Driver, *run_ids: str, **fields: Any) -> None:
    """Start runs in the pool, one after the other, a second apart."""
    for run_id in run_ids:
        outcome = await d.start(run_id, **{"pool": POOL, **fields})
        assert isinstance(outcome, Started), outcome
        d.advance("1s")


async def in_line(d: Driver) -> list[str]:
    return [one.run_id for one in await d.store.line(POOL, None, 1000)]


async def with_slot(d: Driver) -> list[str]:
    """Runs of the pool that may go or run."""
    runs = await all_runs(d.store)
    return sorted(
        one.run_id
        for one in runs
        if one.pool == POOL and one.line_at is None and one.status in ("ready", "running")
    )


async def let_through(d: Driver, **fields: Any) -> list[str]:
    """Admit, and give who holds a slot by that."""
    before = set(await with_slot(d))
    await d.admit(POOL, **fields)
    return [one for one in await with_slot(d) if one not in before]


async def run_once(d: Driver, run_id: str) -> None:
    """A worker claims what is ready, and that run ends."""
    await d.claim()
    await d.finish(run_id)


def line_wakes(d: Driver) -> list[Wake]:
    return [one for one in d.heard[-1].wakes if one.kind == "line"]


class TestPoolRows(Subject):
    async def test_it_is_kept_as_it_was_set(self, d: Driver) -> None:
        row = await d.set_pool(POOL, limit=4, per_key=1, rate="100/1m", per_key_rate="2/1s")
        assert isinstance(row, PoolRecord)
        assert await d.store.pools() == [row]
        said = limits_of(row).said()
        assert said == {"limit": 4, "per_key": 1, "rate": "100/1m", "per_key_rate": "2/1s"}
        assert (row.declared, row.created_at) == (None, d.clock.now())
        assert line_wakes(d) == [Wake("line", POOL)]

    async def test_they_are_listed_by_name(self, d: Driver) -> None:
        for name in ("b", "a", "c"):
            await d.set_pool(name)
        assert [one.name for one in await d.store.pools()] == ["a", "b", "c"]

    async def test_what_code_says_counts_until_it_is_set(self, d: Driver) -> None:
        four, five = '{"limit":4}', '{"limit":5}'
        assert await d.apply(ops.DeclarePools(pools=((POOL, four),))) == Counted(1)
        await d.set_pool(POOL, limit=8)
        assert await d.apply(ops.DeclarePools(pools=((POOL, four),))) == Counted(0)
        assert [limits_of(one).limit for one in await d.store.pools()] == [8]
        # Code says something else than before: it is the newer word.
        assert await d.apply(ops.DeclarePools(pools=((POOL, five),))) == Counted(1)
        assert [limits_of(one).limit for one in await d.store.pools()] == [5]

    async def test_a_name_alone_changes_no_limits(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=8)
        declared = ops.DeclarePools(pools=((POOL, None), ("mail", None)))
        assert await d.apply(declared) == Counted(1)
        assert [limits_of(one).limit for one in await d.store.pools()] == [8, None]

    async def test_who_runs_nothing_declares_only_what_is_new(self, d: Driver) -> None:
        await d.apply(ops.DeclarePools(pools=((POOL, '{"limit":4}'),)))
        said = ((POOL, '{"limit":5}'), ("mail", '{"limit":1}'))
        assert await d.apply(ops.DeclarePools(pools=said, only_new=True)) == Counted(1)
        assert [limits_of(one).limit for one in await d.store.pools()] == [4, 1]

    async def test_it_can_be_set_back_to_what_code_says(self, d: Driver) -> None:
        await d.apply(ops.DeclarePools(pools=((POOL, '{"limit":4}'),)))
        await d.set_pool(POOL, limit=8)
        row = await d.apply(ops.SetPool(name=POOL, limits=None))
        assert limits_of(row).limit == 4
        refused = await d.apply(ops.SetPool(name="none", limits=None))
        assert isinstance(refused, Refusal)
        assert refused.code == "no_pool"

    async def test_a_run_of_a_pool_that_is_not_there_is_refused(self, d: Driver) -> None:
        refused = await d.start("r1", pool="gpuu")
        assert isinstance(refused, Refusal)
        assert refused.code == "no_pool"
        assert await d.store.run("r1") is None
        refused = await d.signal_with_start("r1", "go", start={"pool": "gpuu"})
        assert isinstance(refused, Refusal)
        assert refused.code == "no_pool"

    async def test_a_pool_without_limits_has_no_line(self, d: Driver) -> None:
        await d.set_pool(POOL)
        await d.start("r1", pool=POOL, pool_key="a", priority=3)
        run = await d.run("r1")
        assert (run.status, run.owner, run.line_at) == ("running", WORKER, None)
        assert (run.pool, run.pool_key, run.priority, run.admitted) == (POOL, "a", 3, True)
        assert await d.store.lines() == []


class TestSlots(Subject):
    async def test_a_run_is_born_into_the_line_and_cannot_be_claimed(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        started = await d.start("r1", pool=POOL)
        assert isinstance(started, Started)
        run = started.run
        assert (run.status, run.owner, run.fence, run.ready_at) == ("ready", None, 0, None)
        assert (run.line_at, run.admitted) == (d.clock.now(), False)
        assert line_wakes(d) == [Wake("line", POOL, at=d.clock.now(), made=WORKFLOW)]
        assert (await d.claim()).runs == ()
        assert await d.admit(POOL) == Admitted(1)
        assert [one.run_id for one in (await d.claim()).runs] == ["r1"]

    async def test_no_more_run_than_there_are_slots(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=2)
        await queue_up(d, "r1", "r2", "r3", "r4")
        assert await let_through(d) == ["r1", "r2"]
        assert await d.admit(POOL) == Admitted(0)
        assert len((await d.claim()).runs) == 2
        assert await d.admit(POOL) == Admitted(0)
        await d.finish("r1")
        assert line_wakes(d) == [Wake("line", POOL)]
        assert await let_through(d) == ["r3"]

    async def test_who_waits_gives_its_slot_back_and_stands_in_line_when_it_is_woken(
        self, d: Driver
    ) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r2", "r3")
        await d.admit(POOL)
        await d.claim()
        await d.suspend("r1", wait("w", signal("go")))
        assert line_wakes(d) == [Wake("line", POOL)]
        assert await let_through(d) == ["r2"]
        await d.signal("r1", "go")
        run = await d.run("r1")
        # Its owner has it in memory; it lets go of it all the same.
        assert (run.status, run.owner, run.ready_at) == ("ready", None, None)
        assert (run.line_at, run.admitted) == (d.clock.now(), True)
        assert [one.lost for one in d.heard[-1].wakes if one.kind == "control"] == [True]
        # Before those that have not begun, however long they wait.
        await run_once(d, "r2")
        assert await let_through(d) == ["r1"]

    async def test_a_running_one_that_is_signalled_keeps_its_slot(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1")
        await d.admit(POOL)
        await d.claim()
        await d.suspend("r1", wait("w", signal("go")), park=False)
        await d.signal("r1", "go")
        run = await d.run("r1")
        assert (run.status, run.owner, run.line_at) == ("running", WORKER, None)

    async def test_one_that_is_to_start_later_takes_no_slot_until_then(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        at = d.clock.now() + HOUR
        await d.start("late", pool=POOL, start_at=at, priority=9)
        assert line_wakes(d) == [Wake("line", POOL, at=at, made=WORKFLOW)]
        await queue_up(d, "now")
        assert await let_through(d) == ["now"]
        await run_once(d, "now")
        assert await d.admit(POOL) == Admitted(0)
        assert try_at((await d.store.lines())[0], d.clock.now()) == at
        d.advance("1h")
        assert await let_through(d) == ["late"]

    async def test_a_dead_workers_run_keeps_its_slot_until_it_is_recovered(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r2")
        await d.admit(POOL)
        await d.beat("worker-2", lease_us=SECOND)
        await d.claim("worker-2")
        d.advance("1m")
        assert await d.admit(POOL) == Admitted(0)
        assert (await d.recover()).count == 1
        run = await d.run("r1")
        assert (run.status, run.line_at, run.admitted) == ("ready", d.clock.now(), True)
        assert await let_through(d) == ["r1"]

    async def test_what_is_handed_back_stands_in_line(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r2")
        await d.admit(POOL)
        await d.claim()
        assert isinstance(await d.release("r1"), Advanced)
        assert await in_line(d) == ["r2", "r1"]
        assert await let_through(d) == ["r1"]

    async def test_a_new_generation_keeps_the_slot(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r2")
        await d.admit(POOL)
        await d.claim()
        await d.continue_as("r1")
        run = await d.run("r1")
        assert (run.status, run.generation, run.pool, run.line_at) == ("running", 1, POOL, None)
        assert await d.admit(POOL) == Admitted(0)

    async def test_a_retried_run_stands_in_line(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1")
        await d.admit(POOL)
        await d.claim()
        await d.fail("r1")
        await d.retry("r1")
        assert await in_line(d) == ["r1"]
        assert (await d.run("r1")).admitted
        assert await let_through(d) == ["r1"]

    async def test_a_run_in_line_is_cancelled_at_once_if_it_has_not_begun(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r2")
        assert await d.cancel("r2") == Steered("r2", "cancelled", True)
        run = await d.run("r2")
        assert (run.status, run.line_at, run.cancel_requested) == ("cancelled", None, True)
        assert [one["run_id"] for one in await d.told("workflow.run_cancelled")] == ["r2"]
        assert await in_line(d) == ["r1"]

    async def test_paused_before_it_has_begun_it_is_cancelled_at_once_too(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r2")
        await d.pause("r2")
        assert await d.cancel("r2", "no") == Steered("r2", "cancelled", True)
        assert [one["reason"] for one in await d.told("workflow.run_cancelled")] == ["no"]
        assert await in_line(d) == ["r1"]

    async def test_a_child_of_a_parent_that_was_cancelled_meanwhile_stands_in_no_line(
        self, d: Driver
    ) -> None:
        await d.set_pool(POOL, limit=1)
        await d.start("parent")
        await d.cancel("parent")
        child = d.start_op(
            "child", parent_run_id="parent", parent_path="c", pool=POOL, deadline_us=HOUR
        )
        await d.record_send("parent", "c", child, kind="start")
        run = await d.run("child")
        assert (run.status, run.reason) == ("cancelled", "its parent 'parent' was cancelled")
        assert await in_line(d) == []

    async def test_children_in_line_go_with_their_parent(self, d: Driver) -> None:
        """At its deadline, say; those that have begun clean up."""
        await d.set_pool(POOL, limit=1)
        await d.start("parent", deadline_us=HOUR)
        for run_id in ("begun", "new"):
            child = d.start_op(run_id, parent_run_id="parent", parent_path=run_id, pool=POOL)
            await d.record_send("parent", run_id, child, kind="start")
            await d.admit(POOL)
            await d.claim()
        await d.suspend("parent", wait("w", run("new"), run("begun")))
        d.advance("1h")
        await d.fire()
        assert [await d.status(one) for one in ("begun", "new")] == ["running", "cancelled"]
        assert (await d.run("begun")).cancel_requested
        # It learns of its own cancel, not of its child's.
        assert [one.state for one in await d.store.history("parent") if one.path == "w"] == ["open"]
        await d.claim()
        await d.record_cancel("parent", "w")

    async def test_one_that_has_begun_cleans_up_with_a_slot(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1")
        await d.admit(POOL)
        await d.claim()
        await d.suspend("r1", wait("w", signal("go")))
        await d.signal("r1", "go")
        assert await d.cancel("r1") == Steered("r1", "ready", True)
        assert await in_line(d) == ["r1"]
        assert await let_through(d) == ["r1"]

    async def test_a_deadline_reaches_a_run_in_line(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r2")
        await d.start("r3", pool=POOL, deadline_us=HOUR)
        d.advance("1h")
        await d.fire()
        ended = await d.run("r3")
        assert (ended.status, ended.reason, ended.line_at) == ("cancelled", "deadline", None)
        assert await in_line(d) == ["r1", "r2"]

    async def test_a_deadline_counts_from_when_it_may_stand_in_line(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        at = d.clock.now() + HOUR
        await d.start("late", pool=POOL, start_at=at, deadline_us=HOUR)
        assert (await d.run("late")).deadline_at == at + HOUR

    async def test_an_event_cancels_a_run_in_line(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", cancel_on='[["order.off",""]]')
        await queue_up(d, "r2")
        await d.emit("order.off", "7")
        assert (await d.status("r1"), await in_line(d)) == ("cancelled", ["r2"])

    async def test_a_run_in_line_is_terminated_and_paused(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r2", "r3")
        await d.terminate("r1")
        await d.pause("r2")
        assert await in_line(d) == ["r3"]
        paused = await d.run("r2")
        assert (paused.status, paused.line_at, paused.admitted) == ("paused", None, False)
        await d.resume("r2")
        # At the end of the line, and still one that has not begun.
        assert await in_line(d) == ["r3", "r2"]
        assert not (await d.run("r2")).admitted

    async def test_a_pause_gives_the_slot_back(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r2")
        await d.admit(POOL)
        assert await d.pause("r1") == Steered("r1", "paused", True)
        assert line_wakes(d) == [Wake("line", POOL)]
        assert await let_through(d) == ["r2"]

    async def test_pruning_takes_ended_ones(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r2")
        await d.admit(POOL)
        await run_once(d, "r1")
        await d.apply(ops.Prune(finished_before=d.clock.now() + 1, limit=10))
        assert [one.run_id for one in await all_runs(d.store)] == ["r2"]
        assert await let_through(d) == ["r2"]

    async def test_what_an_event_resumes_stands_in_line_too(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1")
        await d.admit(POOL)
        await d.claim()
        await d.suspend("r1", wait("w", signal("go")), release=True)
        await d.signal("r1", "go")
        assert await in_line(d) == ["r1"]
        assert (await d.claim()).runs == ()

    async def test_a_child_is_born_into_the_line(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await d.start("parent")
        child = d.start_op("child", parent_run_id="parent", parent_path="c", pool=POOL)
        await d.record_send("parent", "c", child)
        assert await in_line(d) == ["child"]


class TestAdmission(Subject):
    async def test_keys_take_turns(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=100)
        await queue_up(d, *(f"a{n}" for n in range(5)), pool_key="a")
        await queue_up(d, "b0", "b1", pool_key="b")
        await queue_up(d, "c0", pool_key="c")
        assert await let_through(d, limit=1) == ["a0"]
        assert await let_through(d, limit=1) == ["b0"]
        assert await let_through(d, limit=1) == ["c0"]
        assert await let_through(d, limit=1) == ["a1"]
        # The second one has two turns and needs one: what it leaves is dealt by the next admission.
        assert await d.admit(POOL, limit=3) == Admitted(2, None, more=True)
        assert await in_line(d) == ["a3", "a4"]

    async def test_a_key_has_no_more_than_its_own_slots(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=3, per_key=1)
        await queue_up(d, "a0", "a1", pool_key="a")
        await queue_up(d, "b0", "b1", pool_key="b")
        assert await let_through(d) == ["a0", "b0"]
        assert (await d.admit(POOL)).count == 0
        await run_once(d, "b0")
        assert await let_through(d) == ["b1"]
        standing = await d.store.standing(POOL, ["a", "b", "none"])
        assert (standing.taken, standing.waiting) == (2, 1)
        assert standing.keys == {"a": (1, None), "b": (1, None), "none": (0, None)}

    async def test_only_keys_may_be_limited(self, d: Driver) -> None:
        await d.set_pool(POOL, per_key=1)
        await queue_up(d, "a0", "a1", pool_key="a")
        await queue_up(d, "x0")  # without a key: that is one as well
        await queue_up(d, "x1")
        assert await let_through(d) == ["a0", "x0"]

    async def test_blocked_keys_do_not_hide_others(
        self, d: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "admission_keys_max", 2)
        await d.set_pool(POOL, per_key=1)
        for key in "abcde":
            await queue_up(d, f"{key}0", f"{key}1", pool_key=key)
        for _ in range(3):
            await d.admit(POOL, limit=2)
        assert await with_slot(d) == ["a0", "b0", "c0", "d0", "e0"]
        await run_once(d, "e0")
        found: list[str] = []
        while not found:
            found = await let_through(d, limit=2)
        assert found == ["e1"]

    async def test_within_a_key_by_priority_then_by_age(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "low", priority=-1)
        await queue_up(d, "plain", "later")
        await queue_up(d, "high", priority=limits.priority_max)
        order = []
        for _ in range(4):
            (run_id,) = await let_through(d)
            order.append(run_id)
            await run_once(d, run_id)
        assert order == ["high", "plain", "later", "low"]

    async def test_who_has_begun_goes_before_a_higher_priority(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "begun")
        await d.admit(POOL)
        await d.claim()
        await d.suspend("begun", wait("w", signal("go")))
        await queue_up(d, "high", priority=9)
        await d.signal("begun", "go")
        assert await let_through(d) == ["begun"]

    async def test_only_of_workflows_that_the_asker_knows(self, d: Driver) -> None:
        """Or a run that nobody can claim would keep its slot for ever."""
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "old", workflow="gone", pool_key="a")
        await queue_up(d, "older", workflow="gone", pool_key="b")
        await queue_up(d, "new", pool_key="b")
        assert await let_through(d) == ["new"]
        await run_once(d, "new")
        assert await d.admit(POOL) == Admitted(0)
        assert await let_through(d, workflows=("gone",)) == ["old"]

    async def test_raised_limits_let_more_through_and_lowered_ones_take_nothing(
        self, d: Driver
    ) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r2", "r3", "r4")
        await d.admit(POOL)
        await d.set_pool(POOL, limit=3)
        assert await let_through(d) == ["r2", "r3"]
        await d.set_pool(POOL, limit=1)
        assert await with_slot(d) == ["r1", "r2", "r3"]
        await run_once(d, "r1")
        await run_once(d, "r2")
        assert await d.admit(POOL) == Admitted(0)
        await d.finish("r3")
        assert await let_through(d) == ["r4"]

    async def test_without_limits_the_line_is_released(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r2", "r3")
        await d.set_pool(POOL)
        assert line_wakes(d) == [Wake("line", POOL)]
        assert await let_through(d) == ["r1", "r2", "r3"]
        assert await d.store.lines() == []

    async def test_limits_that_come_later_count_for_who_is_woken(self, d: Driver) -> None:
        await d.set_pool(POOL)
        await d.start_waiting("r1", signal("go"), pool=POOL)
        await d.start("r2", pool=POOL)
        await d.set_pool(POOL, limit=1)
        await d.signal("r1", "go")
        assert await in_line(d) == ["r1"]
        assert await d.admit(POOL) == Admitted(0)
        await d.finish("r2")
        assert await let_through(d) == ["r1"]

    async def test_as_many_as_one_commit_takes(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=10)
        await queue_up(d, "r1", "r2", "r3")
        assert await d.admit(POOL, limit=2) == Admitted(2, None, more=True)
        assert await d.admit(POOL, limit=2) == Admitted(1)

    async def test_pools_have_lines_of_their_own(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await d.set_pool("mail", limit=1)
        await queue_up(d, "r1", "r2")
        await queue_up(d, "m1", pool="mail")
        assert (await d.admit(POOL)).count == 1
        assert (await d.admit("mail")).count == 1
        assert [(one.name, one.taken) for one in await d.store.lines()] == [(POOL, 1)]

    async def test_one_batch_of_everything(self, d: Driver) -> None:
        """What an op of a batch does, the next one sees."""
        await d.set_pool(POOL, limit=2, per_key=1)
        first, *_, counted, again = await d.batch(
            d.start_op("r1", pool=POOL, pool_key="a"),
            d.start_op("r2", pool=POOL, pool_key="a"),
            d.start_op("r3", pool=POOL, pool_key="b"),
            d.admit_op(POOL),
            d.admit_op(POOL),
        )
        assert isinstance(first, Started)
        assert (counted.count, again.count) == (2, 0)
        assert await with_slot(d) == ["r1", "r3"]
        known = ((WORKFLOW, 1),)
        claim = ops.ClaimRuns(worker_id=WORKER, fence=d.fence(), limit=5, workflows=known)
        await d.apply(claim)
        finish = ops.Finish(
            run_id="r1", fence=claim.fence, revision=0, status="completed", output="null"
        )
        _, counted, again = await d.batch(finish, d.admit_op(POOL), d.admit_op(POOL))
        assert (counted.count, again.count) == (1, 0)
        assert await with_slot(d) == ["r2", "r3"]

    async def test_a_line_is_listed_in_pages(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1)
        await queue_up(d, "r1", "r3", "r2")
        page = await d.store.line(POOL, None, 2)
        assert [one.run_id for one in page] == ["r1", "r3"]
        rest = await d.store.line(POOL, (page[-1].line_at or 0, "r3"), 2)
        assert [one.run_id for one in rest] == ["r2"]


class TestRates(Subject):
    async def test_so_many_at_once_and_then_evenly(self, d: Driver) -> None:
        await d.set_pool(POOL, rate="2/10s")
        begin = d.clock.now()
        for nth in range(4):
            await d.start(f"r{nth}", pool=POOL)
        admitted = await d.admit(POOL)
        assert (admitted.count, admitted.next_at) == (2, begin + 5 * SECOND)
        assert try_at((await d.store.lines())[0], d.clock.now()) == begin + 5 * SECOND
        assert (await d.admit(POOL)).count == 0
        d.advance("5s")
        assert await let_through(d) == ["r2"]
        d.advance("4.999999s")
        assert await let_through(d) == []
        d.advance("1us")
        assert await let_through(d) == ["r3"]

    async def test_a_rate_counts_a_run_once(self, d: Driver) -> None:
        await d.set_pool(POOL, rate="1/1h")
        await d.start("r1", pool=POOL)
        await d.start("r2", pool=POOL)
        await d.admit(POOL)
        await d.claim()
        await d.suspend("r1", wait("w", signal("go")))
        await d.signal("r1", "go")
        # The rate is used up; it concerns only the other one.
        (line,) = await d.store.lines()
        assert line.begun
        assert try_at(line, d.clock.now()) is not None
        assert await let_through(d) == ["r1"]
        assert await in_line(d) == ["r2"]

    async def test_each_key_has_a_rate_of_its_own(self, d: Driver) -> None:
        await d.set_pool(POOL, per_key_rate="1/10s")
        begin = d.clock.now()
        for key in "ab":
            for nth in range(2):
                await d.start(f"{key}{nth}", pool=POOL, pool_key=key)
        admitted = await d.admit(POOL)
        assert admitted.count == 2
        assert await with_slot(d) == ["a0", "b0"]
        again = await d.admit(POOL)
        assert (again.count, again.next_at) == (0, begin + 10 * SECOND)
        standing = await d.store.standing(POOL, ["a"])
        assert standing.keys == {"a": (1, begin + 10 * SECOND)}
        d.advance("10s")
        assert await let_through(d) == ["a1", "b1"]

    async def test_buckets_of_keys_are_pruned_when_they_are_full_again(self, d: Driver) -> None:
        await d.set_pool(POOL, per_key_rate="1/10s")
        await d.start("r1", pool=POOL, pool_key="a")
        await d.admit(POOL)
        before = (await d.store.counts())["keys"]
        d.advance("1m")
        assert await d.store.keys_have_expired(d.clock.now())
        await d.apply(ops.Prune(finished_before=None, limit=10))
        assert (await d.store.counts())["keys"] == before - 1
        await d.start("r2", pool=POOL, pool_key="a")
        assert await let_through(d) == ["r2"]

    async def test_slots_and_rates_together(self, d: Driver) -> None:
        await d.set_pool(POOL, limit=1, rate="2/1h")
        await queue_up(d, "r1", "r2", "r3")
        for run_id in ("r1", "r2"):
            assert await let_through(d) == [run_id]
            await run_once(d, run_id)
        assert await let_through(d) == []

    async def test_a_faster_rate_counts_at_once(self, d: Driver) -> None:
        """What a slower one has used up binds nobody who comes by the faster."""
        for bounds in ({"rate": "1/1d"}, {"per_key_rate": "1/1d"}):
            ((what, _),) = bounds.items()
            await d.set_pool(POOL, **bounds)
            for nth in range(3):
                await d.start(f"{what}{nth}", pool=POOL)
            assert await let_through(d) == [f"{what}0"]
            await d.set_pool(POOL, **{what: "1/10s"})
            admitted = await d.admit(POOL)
            assert (admitted.count, admitted.next_at) == (0, d.clock.now() + 10 * SECOND)
            assert try_at((await d.store.lines())[0], d.clock.now()) is not None
            for nth in (1, 2):
                d.advance("9s")
                assert await let_through(d) == []
                d.advance("1s")
                assert await let_through(d) == [f"{what}{nth}"]

    async def test_keys_whose_rate_is_used_up_do_not_hide_others(self, d: Driver) -> None:
        await d.set_pool(POOL, per_key_rate="1/1h")
        for nth in range(30):
            await d.start(f"a{nth:02}-0", pool=POOL, pool_key=f"a{nth:02}")
            await d.start(f"a{nth:02}-1", pool=POOL, pool_key=f"a{nth:02}")
        assert (await d.admit(POOL)).count == 30
        # Its turn comes after that of nearly all of them.
        await d.start("new", pool=POOL, pool_key="a28x")
        assert await let_through(d, limit=1) == ["new"]

    async def test_who_has_begun_goes_though_the_rate_of_its_key_is_used_up(
        self, d: Driver
    ) -> None:
        await d.set_pool(POOL, limit=2, per_key_rate="1/1h")
        for key in "abc":
            await d.start(f"{key}0", pool=POOL, pool_key=key)
        await d.admit(POOL)
        await d.claim()
        await d.suspend("b0", wait("w", signal("go")))
        await d.admit(POOL)
        await d.start("a1", pool=POOL, pool_key="a")
        await d.start("b1", pool=POOL, pool_key="b")
        await d.signal("b0", "go")
        await d.terminate("c0")
        assert await let_through(d) == ["b0"]


class TestIdleSlots(Subject):
    """Slots that are held by those who cannot use them."""

    async def test_who_was_to_start_later_before_there_were_limits_stands_in_line(
        self, d: Driver
    ) -> None:
        await d.set_pool(POOL)
        later = d.clock.now() + HOUR
        for run_id in ("l1", "l2"):
            await d.start(run_id, pool=POOL, pool_key="a", start_at=later, owner=None)
        await d.set_pool(POOL, limit=1, per_key=1)
        await queue_up(d, "now", pool_key="a")
        assert await d.admit(POOL) == Admitted(0)
        assert (await d.admit(POOL, takes_back=True)).count == 1
        assert await with_slot(d) == ["now"]
        assert [one.line_at for one in await d.store.line(POOL, None, 9)] == [later, later]
        await run_once(d, "now")
        assert (await d.admit(POOL, takes_back=True)).count == 0
        d.advance("1h")
        assert await let_through(d) == ["l1"]

    async def test_who_is_of_a_workflow_that_is_gone_and_not_claimed_stands_in_line(
        self, d: Driver
    ) -> None:
        await d.set_pool(POOL, limit=2)
        await queue_up(d, "old", workflow="gone")
        await queue_up(d, "new1", "new2", "new3")
        assert await let_through(d, workflows=("gone",)) == ["old"]
        since = (await d.run("old")).ready_at
        assert await let_through(d, takes_back=True) == ["new1"]
        d.advance("1m")
        # Of what the asker knows, none is taken back, however long it is there.
        assert await let_through(d, takes_back=True) == ["new2"]
        assert await with_slot(d) == ["new1", "new2"]
        old = await d.run("old")
        assert (old.ready_at, old.line_at, old.admitted, old.revision) == (None, since, True, 0)
        await run_once(d, "new1")
        # Whoever knows it lets it through, before new ones.
        assert await let_through(d, workflows=("gone", WORKFLOW)) == ["old"]

    async def test_who_runs_and_who_is_in_other_pools_is_left_alone(self, d: Driver) -> None:
        for pool in (POOL, "other"):
            await d.set_pool(pool, limit=1)
            await d.start(f"{pool}1", workflow="gone", pool=pool)
            await d.start(f"{pool}2", pool=pool)
            await d.admit(pool, workflows=("gone",))
        assert len((await d.claim(workflows=("gone",), pools=(POOL,))).runs) == 1
        d.advance("1h")
        assert await d.admit(POOL, takes_back=True) == Admitted(0)
        assert (await d.run("other1")).line_at is None

    async def test_without_limits_nobody_is_put_in_line(self, d: Driver) -> None:
        await d.set_pool(POOL)
        await d.start("late", pool=POOL, start_at=d.clock.now() + HOUR, owner=None)
        assert await d.admit(POOL, takes_back=True) == Admitted(0)
        assert (await d.run("late")).line_at is None

    async def test_as_many_as_one_commit_takes(self, d: Driver) -> None:
        await d.set_pool(POOL)
        for nth in range(5):
            await d.start(f"l{nth}", pool=POOL, start_at=d.clock.now() + HOUR + nth, owner=None)
        await d.set_pool(POOL, limit=1)
        assert await d.admit(POOL, limit=2, takes_back=True) == Admitted(0, more=True)
        assert await in_line(d) == ["l0", "l1"]
        await d.batch(*(d.admit_op(POOL, limit=2, takes_back=True) for _ in range(2)))
        assert await in_line(d) == ["l0", "l1", "l2", "l3", "l4"]


class TestClaimsByPool(Subject):
    async def flood(self, d: Driver) -> None:
        for pool in ("", "a", "b"):
            if pool:
                await d.set_pool(pool)
        for nth in range(6):
            await d.start(f"a{nth}", pool="a", owner=None)
            d.advance("1s")
        await d.start("b0", pool="b", owner=None)
        d.advance("1s")
        await d.start("n0", owner=None)
        d.advance("1s")

    async def test_a_claim_takes_by_turns_from_pools(self, d: Driver) -> None:
        await self.flood(d)
        claimed = await d.claim(limit=4)
        assert [one.run_id for one in claimed.runs] == ["a0", "b0", "n0", "a1"]

    async def test_it_does_so_of_several_workflows_and_with_many_ready(self, d: Driver) -> None:
        """More than an index is read of at once: 60 of one pool, 30 of another, of two workflows each."""
        await d.set_pool("p")
        await d.set_pool("q")
        starts = [
            d.start_op(f"r{n:02}", owner=None, pool=pool, workflow=workflow)
            for n, (pool, workflow) in enumerate(
                [("p", "a"), ("p", "b"), ("q", "a"), ("p", "b"), ("p", "a"), ("q", "b")] * 15
            )
        ]
        for start in starts:
            await d.apply(start)
            d.advance("1ms")
        claimed = await d.claim(limit=80, workflows=("a", "b"))
        of_p = [one.run_id for one in starts if one.pool == "p"]
        of_q = [one.run_id for one in starts if one.pool == "q"]
        rounds = [one for pair in zip(of_p, of_q, strict=False) for one in sorted(pair)]
        assert [one.run_id for one in claimed.runs] == rounds + of_p[30:50]
        assert [one.run_id for one in (await d.claim(workflows=("b",))).runs] == [
            one.run_id for one in starts if one.run_id in of_p[50:] and one.workflow == "b"
        ]

    async def test_a_worker_takes_only_from_pools_that_it_serves(self, d: Driver) -> None:
        await self.flood(d)
        assert [one.run_id for one in (await d.claim(pools=("b", ""))).runs] == ["b0", "n0"]
        assert (await d.claim(pools=("none",))).runs == ()
        assert len((await d.claim(pools=("a",))).runs) == 6

    async def test_a_look_shows_only_those_too(self, d: Driver) -> None:
        await self.flood(d)
        known = [(WORKFLOW, 1)]
        first = (await d.run("a0")).ready_at
        assert (await d.store.look(known)).ready_at == first
        assert (await d.store.look(known, pools=["b", ""])).ready_at == (await d.run("b0")).ready_at
        assert (await d.store.look(known, pools=["none"])).ready_at is None

    async def test_when_the_next_one_is_due(self, d: Driver) -> None:
        await d.set_pool("a")
        at = d.clock.now() + HOUR
        await d.start("late", pool="a", start_at=at)
        assert (await d.claim()).next_at == at
        assert (await d.claim(pools=("a",))).next_at == at
        assert (await d.claim(pools=("",))).next_at is None

    async def test_in_one_batch_with_what_it_claims(self, d: Driver) -> None:
        """Decided by the handlers, on every store."""
        await d.set_pool("a")
        known = ((WORKFLOW, 1),)
        fence = d.fence()
        claim = ops.ClaimRuns(worker_id=WORKER, fence=fence, limit=2, workflows=known, pools=("a",))
        step = ops.RecordStep(
            run_id="a0",
            fence=fence,
            revision=0,
            steps=(done("s"),),
        )
        started = [
            d.start_op(one, owner=None, pool="" if one == "n0" else "a")
            for one in ("a0", "n0", "a1")
        ]
        *_, claimed, recorded = await d.batch(*started, claim, step)
        assert [one.run_id for one in claimed.runs] == ["a0", "a1"]
        assert isinstance(recorded, Advanced)
