"""Who owns a run: claims, what a worker knows, release, and the owner that stays with a parked run."""

import pytest

from perdure.model.outcomes import Advanced, Delivered, Fenced, Moved
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    HOUR,
    WORKER,
    WORKFLOW,
    approval,
    done,
    queue,
    run,
    signal,
    sleep,
    timer,
    topic,
    wait,
)


class TestClaiming(Subject):
    async def test_a_claim_takes_ready_runs_and_makes_them_running(self, d: Driver) -> None:
        await d.start("r1", owner=None)
        (run,) = (await d.claim("worker-2")).runs
        assert run == await d.run("r1")
        assert (run.status, run.owner, run.ready_at) == ("running", "worker-2", None)
        assert run.fence != 0

    async def test_a_run_is_claimed_once(self, d: Driver) -> None:
        await d.start("r1", owner=None)
        await d.claim("worker-1")
        assert (await d.claim("worker-2")).runs == ()
        assert (await d.run("r1")).owner == "worker-1"

    async def test_a_claim_takes_no_more_than_its_limit_longest_ready_first(
        self, d: Driver
    ) -> None:
        for run_id in ("c", "a", "b"):
            await d.start(run_id, owner=None)
            d.advance("1s")
        assert [one.run_id for one in (await d.claim(limit=2)).runs] == ["c", "a"]
        assert [one.run_id for one in (await d.claim(limit=2)).runs] == ["b"]

    async def test_a_worker_claims_only_workflows_and_versions_it_knows(self, d: Driver) -> None:
        await d.start("r1", owner=None, workflow="refunds")
        await d.start("r2", owner=None, version=9)
        assert (await d.claim(workflows=("orders",))).runs == ()
        assert [one.run_id for one in (await d.claim(workflows=("refunds",))).runs] == ["r1"]

    async def test_a_claim_tells_when_the_next_run_is_due(self, d: Driver) -> None:
        await d.start("r1", owner=None)
        assert (await d.claim()).next_at is None
        at = d.clock.now() + HOUR
        await d.start("r2", start_at=at)
        assert (await d.claim()).next_at == at

    async def test_of_several_workflows_the_longest_ready_come_first(self, d: Driver) -> None:
        for number in range(6):
            workflow = ("refunds", "orders", "others")[number % 3]
            await d.start(f"r{number}", owner=None, workflow=workflow)
            d.advance("1s")
        await d.start("a2", owner=None, workflow="refunds")
        await d.start("a1", owner=None)  # at the same time: by id
        known = ("orders", "refunds", "orders")  # named twice, claimed once
        claims = [await d.claim(limit=3, workflows=known) for _ in range(3)]
        assert [[one.run_id for one in claimed.runs] for claimed in claims] == [
            ["r0", "r1", "r3"],
            ["r4", "a1", "a2"],
            [],
        ]

    async def test_runs_of_workflows_it_does_not_know_tell_a_worker_nothing(
        self, d: Driver
    ) -> None:
        await d.start("r1", workflow="refunds", start_at=d.clock.now() + HOUR)
        await d.start("r2", version=9, start_at=d.clock.now() + 2 * HOUR)
        at = d.clock.now() + 3 * HOUR
        await d.start("r3", start_at=at)
        assert (await d.claim()).next_at == at
        assert (await d.claim(workflows=("others",))).next_at is None
        assert (await d.claim(workflows=())).next_at is None

    async def test_each_claim_gives_a_fence_of_its_own(self, d: Driver) -> None:
        await d.start("r1")
        first = (await d.run("r1")).fence
        await d.release("r1")
        await d.claim()
        assert (await d.run("r1")).fence not in (first, 0)

    async def test_a_running_run_that_is_released_is_ready_for_others(self, d: Driver) -> None:
        await d.start("r1")
        assert isinstance(await d.release("r1"), Advanced)
        run = await d.run("r1")
        assert (run.status, run.owner, run.fence) == ("ready", None, 0)

    async def test_a_parked_run_that_is_released_stays_parked(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        assert isinstance(await d.release("r1"), Advanced)
        run = await d.run("r1")
        assert (run.status, run.owner, run.fence) == ("waiting", None, 0)
        assert await d.watched("r1") == [("w", "signal", "go")]

    async def test_a_stale_owner_cannot_release(self, d: Driver) -> None:
        await d.start("r1")
        assert await d.release("r1", fence=77) == Fenced("r1", "running")
        assert (await d.run("r1")).owner == WORKER

    async def test_a_release_that_has_not_seen_the_news_is_refused(self, d: Driver) -> None:
        run = await d.start_waiting("r1", signal("go"))
        d.store.worker_id = WORKER
        await d.signal("r1", "go")
        assert await d.release("r1", fence=run.fence, revision=run.revision) == Moved(
            run.revision + 1
        )
        assert await d.status("r1") == "running"

    async def test_release_of_an_unknown_run_is_fenced(self, d: Driver) -> None:
        assert await d.release("nobody") == Fenced("nobody", None)

    async def test_nobodys_fence_opens_nothing(self, d: Driver) -> None:
        """A run that nobody owns has fence 0, and so might an op that forgot its own."""
        await d.start("r1", owner=None)
        assert await d.record("r1", done("s"), fence=0) == Fenced("r1", "ready")
        assert await d.finish("r1", fence=0) == Fenced("r1", "ready")
        assert await d.release("r1", fence=0) == Fenced("r1", "ready")
        assert await d.store.history("r1") == []


class TestOwners(Subject):
    async def test_a_delivery_from_the_owners_process_needs_no_claim(self, d: Driver) -> None:
        run = await d.start_waiting("r1", signal("go"))
        d.store.worker_id = WORKER
        assert isinstance(await d.signal("r1", "go"), Delivered)
        woken = await d.run("r1")
        assert (woken.status, woken.owner, woken.fence) == ("running", WORKER, run.fence)
        assert woken.revision == run.revision + 1
        (wake,) = d.heard[-1].wakes
        assert (wake.kind, wake.owner, wake.revision) == ("news", WORKER, woken.revision)
        assert wake.completion is not None and wake.completion.path == "w"

    async def test_a_delivery_from_elsewhere_makes_the_run_ready(self, d: Driver) -> None:
        run = await d.start_waiting("r1", signal("go"))
        d.store.worker_id = "worker-2"
        await d.signal("r1", "go")
        woken = await d.run("r1")
        assert (woken.status, woken.owner, woken.fence) == ("ready", None, 0)
        assert woken.revision == run.revision + 1
        assert {wake.kind for wake in d.heard[-1].wakes} >= {"ready"}

    @pytest.mark.parametrize("how", ["at home", "elsewhere", "released", "ready by another"])
    async def test_a_wait_that_ends_is_told_once_with_what_it_ended_by(
        self, d: Driver, how: str
    ) -> None:
        """Whoever owns the run: so that it can be counted."""
        d.store.worker_id = "worker-2" if how == "elsewhere" else WORKER
        await d.start("r1")
        waits = wait("w", signal("go"), timer("1h")), wait("v", signal("other"), topic("paid"))
        await d.suspend("r1", *waits, release=how in ("released", "ready by another"))
        opened_at = d.clock.now()
        if how == "ready by another":
            await d.emit("paid")
        d.advance("1s")
        await d.signal("r1", "go")
        told = [one.completion for one in d.heard[-1].wakes if one.completion is not None]
        facts = [(one.path, one.by, one.opened_at, one.recorded_at) for one in told]
        assert facts == [("w", "signal", opened_at, d.clock.now())]

    async def test_what_ends_a_wait_is_told_by_its_kind(self, d: Driver) -> None:
        conditions = {
            "topic": topic("paid"),
            "queue": queue("jobs"),
            "timer": timer("1h"),
            "run": run("target"),
            "approval": approval(),
        }
        await d.start("target")
        for kind, condition in conditions.items():
            await d.start_waiting(f"r-{kind}", condition)
        await d.emit("paid")
        await d.put("jobs")
        await d.finish("target")
        await d.decide("r-approval")
        d.advance("1h")
        await d.fire()
        ended = [
            one.completion.by
            for applied in d.heard
            for one in applied.wakes
            if one.completion is not None
        ]
        assert sorted(filter(None, ended)) == sorted(conditions)

    async def test_a_run_that_was_made_is_told_with_its_workflow_unless_it_is_owned(
        self, d: Driver
    ) -> None:
        await d.start("owned")
        assert [one.made for one in d.heard[-1].wakes] == [None] * len(d.heard[-1].wakes)
        await d.start("ready", owner=None)
        await d.start("later", start_at=d.clock.now() + HOUR)
        await d.record_send("owned", "start", d.start_op("child", owner=None), kind="start")
        made = [[one.made for one in applied.wakes if one.made] for applied in d.heard[-3:]]
        assert made == [[WORKFLOW]] * 3
        await d.start("ready", owner=None)  # found
        assert [one.made for one in d.heard[-1].wakes] == []

    async def test_the_owner_elsewhere_learns_that_its_parked_run_was_woken(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", signal("go"))
        d.store.worker_id = "worker-2"
        await d.signal("r1", "go")
        lost = [one for one in d.heard[-1].wakes if one.kind == "control"]
        assert [(one.owner, one.lost) for one in lost] == [(WORKER, True)]

    async def test_the_former_owner_is_fenced_after_that(self, d: Driver) -> None:
        run = await d.start_waiting("r1", signal("go"))
        await d.signal("r1", "go")
        await d.claim("worker-2")
        assert await d.finish("r1", fence=run.fence, revision=run.revision + 1) == Fenced(
            "r1", "running"
        )

    async def test_a_released_run_is_made_ready_even_at_home(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), release=True)
        assert (await d.run("r1")).owner is None
        d.store.worker_id = WORKER
        await d.signal("r1", "go")
        assert await d.status("r1") == "ready"

    async def test_a_timer_wakes_the_owner_at_home_without_a_claim(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", sleep("s", "1h"))
        d.store.worker_id = WORKER
        d.advance("1h")
        await d.fire()
        assert ((await d.run("r1")).status, (await d.run("r1")).owner) == ("running", WORKER)
