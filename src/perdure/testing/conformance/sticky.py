"""A parked run keeps its owner, also when what it waited for comes from another process: that one is called.

It has a quarter of a second to answer, by any op of a turn; from then on the run is anybody's. Here the store is that
of a process whose worker is not the owner of the runs. Nothing of this happens on a store whose `sticky_us` is 0.
"""

from typing import Any

import pytest

from perdure.model.outcomes import Advanced, Claimed, Counted, Fenced, Moved, Wake
from perdure.testing.conformance.driver import Driver, completed
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    HOUR,
    SECOND,
    WORKER,
    done,
    retrying,
    signal,
    sleep,
    timer,
    topic,
    wait,
)

STICKY_US = SECOND // 4


class TestSticky(Subject):
    @pytest.fixture(autouse=True)
    def sticky(self, d: Driver) -> None:
        d.store.sticky_us = STICKY_US
        d.store.worker_id = "worker-2"

    def wakes(self, d: Driver, kind: str) -> list[Wake]:
        return [one for one in d.heard[-1].wakes if one.kind == kind]

    async def called(self, d: Driver, run_id: str = "r1") -> Any:
        """A run that waits with its owner, and whose owner was called."""
        await d.start_waiting(run_id, signal("go"), timer("1h"))
        await d.signal(run_id, "go", "1")
        return await d.run(run_id)

    # --- the call ---

    async def test_a_delivery_calls_the_owner_who_keeps_the_run(self, d: Driver) -> None:
        before = await d.start_waiting("r1", signal("go"))
        await d.signal("r1", "go", "1")
        run = await d.run("r1")
        assert (run.status, run.owner, run.fence) == ("running", WORKER, before.fence)
        assert run.revision == before.revision + 1
        assert run.ready_at == d.clock.now() + STICKY_US
        (news,) = self.wakes(d, "news")
        assert (news.run_id, news.owner, news.revision) == ("r1", WORKER, run.revision)
        assert news.completion is not None and news.completion.value == "1"
        (ready,) = self.wakes(d, "ready")
        assert (ready.run_id, ready.at) == ("r1", run.ready_at)

    async def test_a_timer_and_an_event_call_it_too(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", sleep("s", "1h"))
        await d.start_waiting("r2", topic("order.paid"))
        d.advance("1h")
        await d.fire()
        await d.emit("order.paid")
        for run_id in ("r1", "r2"):
            run = await d.run(run_id)
            assert (run.status, run.owner) == ("running", WORKER)
            assert run.ready_at == d.clock.now() + STICKY_US

    async def test_a_cancel_calls_it_with_the_request(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        await d.cancel("r1")
        run = await d.run("r1")
        assert (run.status, run.owner, run.ready_at) == (
            "running",
            WORKER,
            d.clock.now() + STICKY_US,
        )
        (control,) = self.wakes(d, "control")
        assert (control.owner, control.cancel, control.lost) == (WORKER, True, False)

    async def test_a_second_delivery_does_not_give_the_owner_more_time(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("a", signal("a")), wait("b", signal("b")))
        await d.signal("r1", "a")
        first = await d.run("r1")
        d.clock.set(d.clock.now() + STICKY_US // 2)
        await d.signal("r1", "b")
        run = await d.run("r1")
        assert (run.ready_at, run.revision) == (first.ready_at, first.revision + 1)
        assert self.wakes(d, "ready") == []
        assert [one.owner for one in self.wakes(d, "news")] == [WORKER]

    async def test_a_run_that_nobody_owns_is_ready_at_once(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        await d.release("r1")
        await d.signal("r1", "go")
        run = await d.run("r1")
        assert (run.status, run.ready_at) == ("ready", d.clock.now())

    async def test_the_worker_of_this_process_is_not_given_a_time(self, d: Driver) -> None:
        d.store.worker_id = WORKER
        run = await self.called(d)
        assert (run.status, run.owner, run.ready_at) == ("running", WORKER, None)
        assert (await d.claim("worker-2")).runs == ()

    async def test_a_run_that_is_running_is_not_anybodys_for_the_news(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        await d.signal("r1", "go")
        assert (await d.run("r1")).ready_at is None
        d.advance("1s")
        assert (await d.claim("worker-2")).runs == ()

    # --- the answer ---

    @pytest.mark.parametrize(
        "answer", ["record", "suspend", "send", "finish", "continue_as", "cancel", "reject"]
    )
    async def test_any_turn_of_the_owner_is_its_answer(self, d: Driver, answer: str) -> None:
        await self.called(d)
        answered = {
            "record": lambda: d.record("r1"),
            "suspend": lambda: d.suspend("r1", wait("x", signal("x"))),
            "send": lambda: d.publish("r1", "p", "key", "1"),
            "finish": lambda: d.finish("r1"),
            "continue_as": lambda: d.continue_as("r1"),
            "cancel": lambda: d.record_cancel("r1"),
            "reject": lambda: d.reject("r1", wait("w", signal("go"), known=True)),
        }
        assert isinstance(await answered[answer](), Advanced)
        assert (await d.run("r1")).ready_at is None
        d.advance("1s")
        assert (await d.claim("worker-2")).runs == ()

    async def test_an_op_that_has_not_seen_the_news_is_no_answer(self, d: Driver) -> None:
        run = await self.called(d)
        assert isinstance(await d.suspend("r1", revision=run.revision - 1), Moved)
        assert isinstance(await d.release("r1", revision=run.revision - 1), Moved)
        assert (await d.run("r1")).ready_at == run.ready_at

    async def test_the_owner_may_give_it_back(self, d: Driver) -> None:
        await self.called(d)
        assert isinstance(await d.release("r1"), Advanced)
        run = await d.run("r1")
        assert (run.status, run.owner, run.ready_at) == ("ready", None, d.clock.now())

    async def test_the_owner_may_park_it_for_good(self, d: Driver) -> None:
        await self.called(d)
        await d.park("r1")
        run = await d.run("r1")
        assert (run.status, run.ready_at) == ("paused", None)

    # --- no answer ---

    async def test_before_its_time_nobody_else_gets_it(self, d: Driver) -> None:
        run = await self.called(d)
        assert await d.claim("worker-2") == Claimed((), run.ready_at)
        assert (await d.store.look()).ready_at == run.ready_at
        assert (await d.store.look([("others", 1)])).ready_at is None

    @pytest.mark.parametrize("claimer", ["worker-2", WORKER])
    async def test_after_it_anybody_does_with_a_new_fence(self, d: Driver, claimer: str) -> None:
        called = await self.called(d)
        d.clock.set(called.ready_at)
        (run,) = (await d.claim(claimer)).runs
        assert (run.status, run.owner, run.ready_at) == ("running", claimer, None)
        assert run.fence not in (called.fence, 0)
        assert run.revision == called.revision
        # That the former owner is told is a hint, which a store may spare.
        lost = {(one.run_id, one.owner, one.lost) for one in self.wakes(d, "control")}
        assert lost <= {("r1", WORKER, True)}
        assert (await d.claim("worker-3")).runs == ()
        # Whoever was called too late is fenced, and what was delivered is there for the new owner.
        assert await d.record("r1", done("a"), fence=called.fence) == Fenced("r1", "running")
        again = await d.suspend("r1", wait("w", signal("go"), timer("1h"), known=True))
        assert completed(again) == [("w", 0, "1")]

    async def test_it_stands_in_line_with_those_that_are_ready(self, d: Driver) -> None:
        await d.start("later", start_at=d.clock.now() + STICKY_US + 1)
        await self.called(d)
        await d.start("now", owner=None)
        d.advance("1s")
        claimed = (await d.claim("worker-2")).runs
        assert [one.run_id for one in claimed] == ["now", "r1", "later"]

    async def test_a_dead_owner_loses_it_to_recovery_like_any_other(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), owner="ghost")
        await d.signal("r1", "go")
        # A store that sees at once who is dead has not even called it.
        if (await d.store.look()).orphaned:
            assert await d.recover() == Counted(1)
        run = await d.run("r1")
        assert (run.status, run.owner, run.ready_at) == ("ready", None, d.clock.now())

    async def test_a_retry_that_is_due_calls_its_owner(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", steps=(retrying("a", "1s"),))
        d.advance("1s")
        await d.fire()
        run = await d.run("r1")
        assert (run.status, run.owner) == ("running", WORKER)
        assert run.ready_at == d.clock.now() + STICKY_US

    # --- steering one that was called ---

    async def test_terminated_it_may_not_be_claimed(self, d: Driver) -> None:
        await self.called(d)
        await d.terminate("r1")
        run = await d.run("r1")
        assert (run.status, run.ready_at) == ("terminated", None)
        (ended,) = self.wakes(d, "ended")
        assert ended.owner == WORKER
        d.advance("1s")
        assert (await d.claim("worker-2")).runs == ()

    @pytest.mark.parametrize("steer", ["pause", "cancel"])
    async def test_a_request_reaches_whoever_goes_on_with_it(self, d: Driver, steer: str) -> None:
        called = await self.called(d)
        await getattr(d, steer)("r1")
        assert (await d.run("r1")).ready_at == called.ready_at
        d.advance("1s")
        (run,) = (await d.claim("worker-2")).runs
        assert (run.pause_requested, run.cancel_requested) == (steer == "pause", steer == "cancel")

    async def test_one_that_waits_is_paused_at_once_and_its_owner_told(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        await d.pause("r1")
        run = await d.run("r1")
        assert (run.status, run.owner, run.ready_at) == ("paused", None, None)
        assert [(one.owner, one.lost) for one in self.wakes(d, "control")] == [(WORKER, True)]
        await d.resume("r1")
        assert (await d.run("r1")).ready_at == d.clock.now()

    async def test_health_counts_it_once_its_time_is_over(self, d: Driver) -> None:
        run = await self.called(d)
        assert (await d.store.vitals(d.clock.now())).oldest_ready_at is None
        assert (await d.store.vitals(d.clock.now() + HOUR)).oldest_ready_at == run.ready_at
