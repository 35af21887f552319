"""Retry of a run that failed: what is done anew, what stands, and what its signals become."""

import msgspec
from msgspec.structs import replace

from perdure.model.outcomes import NotFound, Steered
from perdure.model.records import RETRY_PATH
from perdure.testing.conformance.driver import Driver, completed, refused
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    HOUR,
    WORKER,
    done,
    failed,
    retrying,
    signal,
    timer,
    wait,
)


class TestRetry(Subject):
    async def test_only_a_failed_run_is_retried(self, d: Driver) -> None:
        assert await d.retry("nobody") == NotFound("nobody")
        await d.start("r1")
        assert refused(await d.retry("r1")) == "not_failed"
        await d.finish("r1")
        assert refused(await d.retry("r1")) == "not_failed"
        for run_id, end in (("r2", "terminate"), ("r3", "cancelled")):
            await d.start(run_id)
            await d.end(run_id, end)
            assert refused(await d.retry(run_id)) == "not_failed"

    async def test_a_failed_run_reopens_with_a_new_fence(self, d: Driver) -> None:
        await d.start("r1")
        stale = (await d.run("r1")).fence
        await d.fail("r1", "a", steps=(failed("a"),))
        assert await d.retry("r1") == Steered("r1", "ready", True)
        run_ = await d.run("r1")
        assert (run_.error, run_.finished_at, run_.status) == (None, None, "ready")
        await d.claim()
        assert (await d.run("r1")).fence != stale
        assert len(await d.facts("workflow.run_retried")) == 1

    async def test_a_retried_run_has_moved_on_and_has_no_reason(self, d: Driver) -> None:
        await d.start("r1")
        await d.cancel("r1", "late")
        await d.record_cancel("r1")
        await d.fail("r1")
        before = await d.run("r1")
        await d.retry("r1")
        after = await d.run("r1")
        assert (after.revision, after.reason) == (before.revision + 1, None)

    async def test_the_failed_step_is_superseded_not_rewritten(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", done("before", "1"))
        await d.fail("r1", "a", steps=(failed("a"),))
        was = await d.step("r1", "a")
        await d.retry("r1")
        kept = [one for one in await d.store.history("r1") if one.path == "a"]
        assert [(one.state, one.superseded, one.error) for one in kept] == [
            ("superseded", 1, was.error)
        ]
        ((_, living),) = await d.store.load(["r1"])
        assert sorted(one.path for one in living) == [f"{RETRY_PATH}#1", "before"]
        await d.claim()
        await d.record("r1", done("a", "2"))
        assert (await d.step("r1", "a")).value == "2"

    async def test_what_the_code_recorded_after_the_failure_is_superseded_too(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.record("r1", failed("a"), done("cleanup"))
        await d.fail("r1", "a")
        await d.retry("r1")
        ((_, living),) = await d.store.load(["r1"])
        assert [one.path for one in living] == [f"{RETRY_PATH}#1"]

    async def test_what_a_sibling_branch_recorded_stays(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", failed("g[0]/a"), done("g[1]/b", "1"), done("after"))
        await d.fail("r1", "g[0]/a")
        await d.retry("r1")
        ((_, living),) = await d.store.load(["r1"])
        assert sorted(one.path for one in living) == [f"{RETRY_PATH}#1", "g[1]/b"]

    async def test_what_the_failed_branch_had_open_is_set_aside_too(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", failed("g[0]/a"))
        await d.suspend("r1", wait("g[0]/w", signal("go")), park=False)
        await d.fail("r1", "g[0]/a")
        await d.retry("r1")
        ((_, living),) = await d.store.load(["r1"])
        assert [one.path for one in living] == [f"{RETRY_PATH}#1"]

    async def test_what_a_cancelled_sibling_left_may_be_asked_for_again(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("g[1]/w", signal("go")), park=False)
        await d.fail("r1", "g[0]/a", steps=(failed("g[0]/a"),), closed=("g[1]/w",))
        await d.retry("r1")
        await d.claim()
        assert completed(await d.suspend("r1", wait("g[1]/w", signal("go")))) == []
        assert await d.watched("r1") == [("g[1]/w", "signal", "go")]

    async def test_the_mark_of_a_patch_outlives_a_retry(self, d: Driver) -> None:
        await d.start("r1")
        mark = replace(done("!patch/p"), kind="patch", value=None)
        await d.record("r1", failed("a"), mark, done("b"))
        await d.fail("r1", "a")
        await d.retry("r1")
        ((_, steps),) = await d.store.load(["r1"])
        assert sorted(one.path for one in steps) == ["!patch/p", "!retry#1"]

    async def test_a_retry_leaves_a_mark_that_says_from_where_it_counts(self, d: Driver) -> None:
        await d.start("r1")
        for number in (1, 2):
            await d.fail("r1", "a", steps=(failed("a"),))
            seq = max(one.seq for one in await d.store.history("r1") if one.path == "a")
            await d.retry("r1")
            mark = await d.step("r1", f"{RETRY_PATH}#{number}")
            assert (mark.kind, mark.state) == ("retry", "done")
            assert msgspec.json.decode(mark.value or "") == seq
            await d.claim()
        kept = [one.superseded for one in await d.store.history("r1") if one.path == "a"]
        assert kept == [1, 2]

    async def test_the_mark_of_a_retry_outlives_later_retries(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", failed("x"), failed("y"))
        await d.fail("r1", "y")
        await d.retry("r1")
        await d.claim()
        await d.fail("r1", "x")
        await d.retry("r1")
        ((_, living),) = await d.store.load(["r1"])
        assert sorted(one.path for one in living) == [f"{RETRY_PATH}#1", f"{RETRY_PATH}#2"]

    async def test_a_wait_that_ran_out_and_failed_the_run_is_done_anew(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        d.advance("1h")
        await d.fire()
        await d.claim()
        await d.fail("r1", "w")
        await d.retry("r1")
        ((_, living),) = await d.store.load(["r1"])
        assert [one.path for one in living] == [f"{RETRY_PATH}#1"]

    async def test_a_run_that_failed_outside_a_step_is_retried_as_it_is(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", done("a"))
        await d.fail("r1")
        await d.retry("r1")
        assert (await d.step("r1", "a")).state == "done"

    async def test_an_open_wait_of_a_sibling_is_opened_again_with_its_deadline(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("g[1]/w", signal("go"), timer("1h")), park=False)
        deadline_at = d.clock.now() + HOUR
        await d.fail("r1", "g[0]/a", steps=(failed("g[0]/a"),))
        d.advance("1m")
        await d.retry("r1")
        await d.claim()
        await d.suspend("r1", wait("g[1]/w", signal("go"), timer("1h"), known=True))
        assert [one.deadline_at for one in await d.watchers("r1")] == [deadline_at]

    async def test_dead_letters_are_put_back_in_their_order(self, d: Driver) -> None:
        await d.start("r1")
        for payload in ("1", "2"):
            await d.signal("r1", "go", payload, policy="all", signal_id=f"s{payload}")
            d.advance("1s")
        await d.fail("r1")
        assert len(await d.store.dead_letters("r1", "", 10)) == 2
        await d.retry("r1")
        assert await d.store.dead_letters("r1", "", 10) == []
        assert [one.signal_id for one in await d.store.buffered("r1")] == ["s1", "s2"]
        await d.claim()
        assert completed(await d.suspend("r1", wait("w", signal("go")))) == [("w", 0, "1")]

    async def test_a_retry_leaves_what_was_rejected_where_it_is(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        d.store.worker_id = WORKER
        await d.signal("r1", "go", '"no"')
        await d.reject(
            "r1",
            wait("w", signal("go"), known=True),
        )
        await d.record("r1", closed=("w",))
        await d.fail("r1")
        await d.retry("r1")
        assert len(await d.store.dead_letters("r1", "", 10)) == 1
        assert await d.payloads("r1") == []

    async def test_what_a_retry_puts_back_is_as_it_was(self, d: Driver) -> None:
        await d.start("r1")
        sent_at = d.clock.now()
        await d.signal("r1", "go", "1", signal_id="s1", path="b", ttl="1h")
        d.advance("1m")
        await d.fail("r1")
        d.advance("1m")
        await d.retry("r1")
        (kept,) = await d.store.buffered("r1")
        assert (kept.signal_id, kept.path) == ("s1", "b")
        assert (kept.received_at, kept.expires_at) == (sent_at, sent_at + HOUR)

    async def test_a_retried_run_may_fail_end_and_be_retried_again(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", signal_id="s1")
        for _ in range(3):
            await d.fail("r1")
            await d.retry("r1")
            await d.claim()
        assert await d.payloads("r1") == ["1"]
        await d.finish("r1")
        assert (await d.facts("signal.discarded"))[-1].event_id == "s1"

    async def test_a_siblings_step_that_was_to_be_tried_again_is_due_again(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", retrying("g[0]/a", "10s"))
        retry_at = (await d.step("r1", "g[0]/a")).retry_at
        await d.fail("r1", "g[1]/b", steps=(failed("g[1]/b"),))
        d.advance("5s")
        await d.retry("r1")
        assert [one.deadline_at for one in await d.watchers("r1")] == [retry_at]

    async def test_a_step_that_was_to_be_tried_again_is_not_due_after_the_end(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.record("r1", retrying("g[0]/a", "10s"))
        await d.fail("r1", "g[1]/b", steps=(failed("g[1]/b"),))
        d.advance("1m")
        assert (await d.fire()).count == 0
