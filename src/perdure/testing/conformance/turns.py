"""The turns of a run's owner: results, sends, ends, new generations; and fences and revisions that guard them."""

import msgspec
import pytest
from msgspec.structs import replace

from perdure.model import limits, ops
from perdure.model.outcomes import (
    Advanced,
    Buffered,
    Delivered,
    Fenced,
    Moved,
    Refusal,
    Started,
    decode_answer,
)
from perdure.model.records import DeadLetterRecord, ErrorRecord
from perdure.store.base import BatchFailed
from perdure.testing.conformance.driver import Driver, completed
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    HOUR,
    WORKER,
    done,
    failed,
    retrying,
    signal,
    timer,
    topic,
    wait,
)

# Numbers that a store may use for itself, as long as nobody notices.
_great = (2**62, 2**62 + 1, 2**63 - 1)


class TestTurns(Subject):
    @pytest.mark.parametrize("number", _great)
    async def test_great_numbers_are_kept_as_they_are(self, d: Driver, number: int) -> None:
        text = f'{{"position":{number},"after":[{number}],"text":"{number}"}}'
        await d.start(f"x-{number}", key=f"k-{number}", input=text)
        await d.record(f"x-{number}", done("s", text))
        await d.signal(f"x-{number}", "go", text)
        named = topic(f"t-{number}", f'order/"position":{number}')
        await d.suspend(f"x-{number}", wait("w", signal("go")), wait("v", named), park=False)
        for path in ("s", "w"):
            assert (await d.step(f"x-{number}", path)).value == text
        await d.finish(f"x-{number}", text, closed=("v",))
        assert (await d.run(f"x-{number}")).output == text
        again = await d.start("other", key=f"k-{number}", input=text)
        assert isinstance(again, Started)
        assert (again.run.run_id, again.created) == (f"x-{number}", False)

    # --- results ---

    async def test_results_are_recorded_in_the_order_the_owner_saw_them(self, d: Driver) -> None:
        await d.start("r1")
        answer = await d.record("r1", done("b", "1"), done("a", "2"))
        assert answer == Advanced(0, d.clock.now())
        assert [(one.path, one.value) for one in await d.store.history("r1")] == [
            ("b", "1"),
            ("a", "2"),
        ]
        first, second = await d.store.history("r1")
        assert 0 < first.seq < second.seq
        assert (first.kind, first.state, first.attempt, first.generation) == ("step", "done", 1, 0)

    async def test_sequence_numbers_grow_over_all_commits(self, d: Driver) -> None:
        await d.start("r1")
        for path in "abc":
            await d.record("r1", done(path))
        seqs = [one.seq for one in await d.store.history("r1")]
        assert seqs == sorted(seqs) and len(set(seqs)) == 3

    async def test_a_mark_that_is_sent_again_is_recorded_once(self, d: Driver) -> None:
        """Its owner sends it along until it knows that it is recorded."""
        mark = replace(done("!patch/p"), kind="patch", value=None)
        await d.start("r1")
        await d.record("r1", mark, done("a"))
        await d.record("r1", mark, done("b"))
        await d.batch(
            await d.turn_op(ops.RecordStep, "r1", steps=(mark, done("c"))),
            await d.turn_op(ops.RecordStep, "r1", steps=(mark, done("d"))),
        )
        history = await d.store.history("r1")
        assert [(one.kind, one.path) for one in history] == [
            ("patch", "!patch/p"),
            *(("step", path) for path in "abcd"),
        ]

    async def test_a_failed_step_keeps_its_error(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", failed("a", "out of stock"))
        step = await d.step("r1", "a")
        assert step.state == "failed" and "out of stock" in (step.error or "")

    async def test_a_second_checkpoint_of_a_path_is_refused_whole(self, d: Driver) -> None:
        """A result is recorded exactly once: a second one is a defect and fails its batch."""
        await d.start("r1")
        await d.record("r1", done("a", "1"))
        before = await dump(d.store)
        with pytest.raises(BatchFailed):
            await d.record("r1", done("a", "2"))
        assert await dump(d.store) == before
        assert isinstance(await d.record("r1", done("b")), Advanced)

    async def test_nor_is_a_wait_that_is_open_recorded_as_something_else(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        before = await dump(d.store)
        with pytest.raises(BatchFailed):
            await d.record("r1", done("w"))
        assert await dump(d.store) == before

    async def test_a_failed_attempt_is_recorded_with_the_time_of_the_next(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", retrying("a", "10s"))
        step = await d.step("r1", "a")
        assert (step.state, step.seq) == ("retrying", 0)
        assert step.retry_at == d.clock.now() + 10_000_000
        assert await d.watched("r1") == [("a", "retry", "")]

    async def test_the_result_of_a_later_attempt_replaces_the_failed_one(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", retrying("a", "10s"))
        d.advance("10s")
        await d.fire()
        await d.record("r1", done("a", "1", attempt=2))
        (step,) = await d.store.history("r1")
        assert (step.state, step.value, step.attempt) == ("done", "1", 2)

    async def test_a_step_between_two_attempts_is_abandoned_by_a_cancel(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", steps=(retrying("a", "10s"),))
        await d.cancel("r1")
        await d.claim()
        await d.record_cancel("r1", "a")
        assert (await d.step("r1", "a")).state == "abandoned"
        assert await d.watchers("r1") == []

    async def test_a_result_before_its_retry_was_due_takes_the_timer_away(self, d: Driver) -> None:
        """A worker that took the run over may try at once; the old deadline must not wake anybody then."""
        await d.start("r1")
        await d.record("r1", retrying("a", "10s"))
        await d.record("r1", done("a", "1", attempt=2))
        assert await d.watchers("r1") == []
        d.advance("10s")
        assert (await d.fire()).count == 0

    async def test_a_result_and_the_wait_after_it_are_one_commit(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), steps=(done("a", "1"),))
        assert [one.path for one in await d.store.history("r1")] == ["a", "w"]
        assert await d.status("r1") == "waiting"

    async def test_recording_does_not_mind_what_others_did_to_the_run(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        await d.signal("r1", "go")
        assert isinstance(await d.record("r1", done("a"), revision=0), Advanced)

    async def test_the_answer_shows_an_owner_that_it_missed_something(self, d: Driver) -> None:
        """It names the revision of the run, for the owner to compare: it must not park over a delivery."""
        await d.start("r1")
        await d.start("r2")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        await d.signal("r1", "go")
        recorded = await d.record("r1", done("a"), revision=0)
        sent = await d.record_send("r1", "send", d.signal_op("r2", "hey"), revision=0)
        assert isinstance(recorded, Advanced) and isinstance(sent, Advanced)
        assert recorded.revision == sent.revision == (await d.run("r1")).revision == 1

    # --- fences and revisions ---

    async def test_a_stale_owner_records_nothing(self, d: Driver) -> None:
        await d.start("r1")
        stale = (await d.run("r1")).fence
        await d.release("r1")
        await d.claim("worker-2")
        before = await dump(d.store)
        again = wait("w", signal("go"))
        outcomes = [
            await d.record("r1", done("a"), fence=stale),
            await d.suspend("r1", again, fence=stale),
            await d.record_send("r1", "send", d.signal_op("r1", "go"), fence=stale),
            await d.record_cancel("r1", fence=stale),
            await d.reject("r1", again, fence=stale),
            await d.finish("r1", fence=stale),
            await d.continue_as("r1", fence=stale),
            await d.park("r1", fence=stale),
            await d.release("r1", fence=stale),
        ]
        assert outcomes == [Fenced("r1", "running")] * len(outcomes)
        assert await dump(d.store) == before

    async def test_an_op_for_a_run_that_never_was_is_fenced(self, d: Driver) -> None:
        assert await d.finish("nobody") == Fenced("nobody", None)

    async def test_an_op_for_a_run_that_has_ended_is_fenced(self, d: Driver) -> None:
        await d.start("r1")
        fence = (await d.run("r1")).fence
        await d.terminate("r1")
        assert await d.record("r1", done("a"), fence=fence) == Fenced("r1", "terminated")

    async def test_an_owner_that_has_not_seen_the_news_cannot_park_end_or_renew(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        await d.signal("r1", "go")
        before = await dump(d.store)
        outcomes = [
            await d.suspend("r1", wait("v", signal("go")), revision=0),
            await d.record_cancel("r1", revision=0),
            await d.finish("r1", revision=0),
            await d.continue_as("r1", revision=0),
            await d.release("r1", revision=0),
        ]
        assert outcomes == [Moved(1)] * len(outcomes)
        assert await dump(d.store) == before

    async def test_being_refused_tells_what_was_asked_of_the_run(self, d: Driver) -> None:
        await d.start("r1")
        await d.pause("r1")
        assert await d.finish("r1", revision=0) == Moved(1, pause_requested=True)
        await d.cancel("r1")
        assert await d.finish("r1", revision=0) == Moved(2, cancel_requested=True)

    # --- sends ---

    async def test_a_send_and_its_record_are_one_commit(self, d: Driver) -> None:
        await d.start("r1")
        await d.start_waiting("r2", signal("go"))
        answer = await d.record_send("r1", "send", d.signal_op("r2", "go", "1"))
        assert await d.status("r2") == "ready"
        step = await d.step("r1", "send")
        assert (step.kind, step.state) == ("signal", "done")
        assert isinstance(decode_answer(step.value or ""), Delivered)
        assert completed(answer) == [("send", None, step.value)]

    async def test_a_refused_send_is_recorded_so_that_replay_raises_it_again(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.start("ended")
        await d.finish("ended")
        for path, run_id, code in (("a", "nobody", "not_found"), ("b", "ended", "finished")):
            await d.record_send("r1", path, d.signal_op(run_id, "go"))
            step = await d.step("r1", path)
            error = msgspec.json.decode(step.error or "", type=ErrorRecord)
            assert (step.state, error.kind, error.code) == ("failed", "refused", code)

    async def test_a_run_can_signal_itself(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        answer = await d.record_send("r1", "send", d.signal_op("r1", "go", "1"))
        assert isinstance(answer, Advanced)
        assert answer.revision == (await d.run("r1")).revision == 1
        assert (await d.step("r1", "w")).value == "1"

    async def test_a_child_is_started_with_its_record(self, d: Driver) -> None:
        await d.start("r1")
        child = d.start_op("child", owner=None, parent_run_id="r1", parent_path="call")
        await d.record_send("r1", "call", child, kind="start")
        assert await d.status("child") == "ready"
        assert (await d.step("r1", "call")).value == '"child"'

    async def test_a_refused_child_is_recorded_too(self, d: Driver) -> None:
        await d.start("r1")
        await d.start("child", input="1")
        await d.record_send("r1", "call", d.start_op("child", input="2"), kind="start")
        step = await d.step("r1", "call")
        assert step.state == "failed" and '"conflict"' in (step.error or "")

    async def test_published_state_is_kept_by_name(self, d: Driver) -> None:
        await d.start("r1")
        await d.publish("r1", "set#1", "progress", "1")
        await d.publish("r1", "set#2", "stage", '"ship"')
        await d.publish("r1", "set#3", "progress", "2")
        published = msgspec.json.decode((await d.run("r1")).published or "")
        assert published == {"progress": 2, "stage": "ship"}
        assert (await d.step("r1", "set#3")).value == "2"

    async def test_too_much_published_state_is_refused_by_its_bytes(self, d: Driver) -> None:
        await d.start("r1")
        text = "ü" * (limits.published_bytes_max // 2)  # two bytes each
        await d.publish("r1", "set", "text", f'"{text}"')
        step = await d.step("r1", "set")
        assert step.state == "failed" and "too_much_published" in (step.error or "")
        assert (await d.run("r1")).published is None

    async def test_published_state_of_exactly_the_bound_is_taken(self, d: Driver) -> None:
        await d.start("r1")
        room = limits.published_bytes_max - len('{"t":""}')
        await d.publish("r1", "set", "t", '"' + "x" * room + '"')
        assert (await d.step("r1", "set")).state == "done"

    # --- signals that do not fit ---

    async def test_a_signal_that_does_not_fit_is_a_dead_letter_and_the_wait_goes_on(
        self, d: Driver
    ) -> None:
        run = await d.start_waiting("r1", signal("go"), timer("1h"))
        deadlines = [one.deadline_at for one in await d.watchers("r1")]
        d.store.worker_id = WORKER
        await d.signal("r1", "go", '"no number"')
        d.advance("1m")
        answer = await d.reject("r1", wait("w", signal("go"), timer("1h"), known=True))
        assert completed(answer) == []
        (letter,) = await d.store.dead_letters("r1", "", 10)
        assert (letter.payload, letter.reason) == ('"no number"', "it does not fit")
        assert len(await d.told("signal.rejected")) == 1
        assert (await d.step("r1", "w")).state == "open"
        assert [one.deadline_at for one in await d.watchers("r1")] == deadlines
        assert run.fence == (await d.run("r1")).fence

    async def test_after_a_rejection_the_next_signal_in_the_buffer_is_taken(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        for payload in ("1", "2"):
            await d.signal("r1", "go", payload, policy="all")
        await d.suspend("r1", wait("w", signal("go")))
        answer = await d.reject("r1", wait("w", signal("go"), known=True))
        assert completed(answer) == [("w", 0, "2")]

    async def test_a_rejected_first_leaves_its_claim_to_the_next(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        d.store.worker_id = WORKER
        await d.signal("r1", "go", policy="first")
        await d.reject("r1", wait("w", signal("go"), known=True))
        assert isinstance(await d.signal("r1", "go", policy="first"), Delivered)

    async def test_a_rejected_first_that_was_addressed_leaves_the_claim_of_its_path(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", signal("go"))
        d.store.worker_id = WORKER
        await d.signal("r1", "go", policy="first", path="w")
        await d.reject("r1", wait("w", signal("go"), known=True))
        assert isinstance(await d.signal("r1", "go", policy="first", path="w"), Delivered)

    async def test_a_rejected_signal_frees_no_claim_but_its_own(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        d.store.worker_id = WORKER
        await d.signal("r1", "go", policy="first")
        await d.suspend("r1", wait("v", signal("go")))
        await d.signal("r1", "go", policy="first", path="v")
        await d.reject("r1", wait("v", signal("go"), known=True))
        answer = await d.signal("r1", "go", policy="first")
        assert isinstance(answer, Refusal) and answer.code == "taken"
        assert isinstance(await d.signal("r1", "go", policy="first", path="v"), Delivered)

    async def test_what_a_turn_produced_is_recorded_with_a_rejection_too(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1")
        await d.suspend("r1", wait("w", signal("go")))
        again = wait("w", signal("go"), known=True)
        await d.reject("r1", again, steps=(done("a", "1"),))
        assert (await d.step("r1", "a")).value == "1"

    async def test_the_fact_of_a_rejection_names_the_signal(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        d.store.worker_id = WORKER
        await d.signal("r1", "go", '"no"', signal_id="s1")
        await d.reject("r1", wait("w", signal("go"), known=True))
        (told,) = await d.told("signal.rejected")
        assert (told["signal_id"], told["name"], told["path"]) == ("s1", "go", "w")

    async def test_a_rejected_signal_is_found_by_its_id_as_a_dead_letter(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        d.store.worker_id = WORKER
        await d.signal("r1", "go", '"no"', signal_id="s1")
        await d.reject("r1", wait("w", signal("go"), known=True))
        assert isinstance(await d.store.signal("s1"), DeadLetterRecord)

    async def test_a_rejection_of_a_wait_that_is_open_again_is_refused(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        d.store.worker_id = WORKER
        await d.signal("r1", "go", '"no"')
        await d.reject("r1", wait("w", signal("go"), known=True))
        before = await dump(d.store)
        assert isinstance(await d.reject("r1", wait("w", signal("go"), known=True)), Moved)
        assert await dump(d.store) == before

    async def test_the_deadline_of_a_wait_that_goes_on_is_told_again(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        d.store.worker_id = WORKER
        at = d.clock.now() + HOUR
        await d.signal("r1", "go", '"no"')
        await d.reject("r1", wait("w", signal("go"), timer("1h"), known=True))
        assert d.deadlines_told() == [at]

    # --- ends ---

    async def test_a_finished_run_keeps_its_output_and_belongs_to_nobody(self, d: Driver) -> None:
        await d.start("r1")
        await d.finish("r1", "7", steps=(done("a"),))
        run = await d.run("r1")
        assert (run.status, run.output, run.owner, run.fence) == ("completed", "7", None, 0)
        assert run.finished_at == d.clock.now()
        assert (await d.step("r1", "a")).state == "done"

    async def test_a_failed_run_keeps_its_error(self, d: Driver) -> None:
        await d.start("r1")
        await d.fail("r1", "a", steps=(failed("a"),))
        run = await d.run("r1")
        assert run.status == "failed"
        assert msgspec.json.decode(run.error or "", type=ErrorRecord).path == "a"

    async def test_an_end_takes_the_watchers_along(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go"), timer("1h")), park=False)
        await d.record("r1", retrying("a", "10s"))
        await d.finish("r1")
        assert await d.watchers("r1") == []
        d.advance("2h")
        assert (await d.fire()).count == 0

    async def test_an_end_is_told_to_whoever_waits_for_the_answer(self, d: Driver) -> None:
        await d.start("r1")
        await d.finish("r1", "7")
        (wake,) = d.heard[-1].wakes
        assert (wake.kind, wake.run_id) == ("ended", "r1")
        assert wake.run == await d.run("r1")

    # --- branches that leave a wait behind ---

    async def test_nothing_is_delivered_to_a_wait_that_a_branch_left(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        await d.record("r1", closed=("w",))
        assert (await d.step("r1", "w")).state == "abandoned"
        assert isinstance(await d.signal("r1", "go"), Buffered)

    async def test_a_signal_that_came_as_the_branch_left_is_a_dead_letter(self, d: Driver) -> None:
        """It was accepted, so it must not vanish."""
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        await d.signal("r1", "go", "1")
        await d.record("r1", closed=("w",))
        (letter,) = await d.store.dead_letters("r1", "", 10)
        assert (letter.name, letter.payload) == ("go", "1")

    async def test_a_first_whose_branch_left_is_still_the_first(self, d: Driver) -> None:
        """It reached the run: nobody else may answer in its place."""
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        await d.signal("r1", "go", policy="first")
        await d.record("r1", closed=("w",))
        answer = await d.signal("r1", "go", policy="first")
        assert isinstance(answer, Refusal) and answer.code == "taken"

    async def test_leaving_twice_is_leaving_once(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), wait("v", signal("on")), park=False)
        await d.signal("r1", "go", "1")
        for _ in range(2):
            await d.record("r1", closed=("w", "v", "nowhere"))
        assert len(await d.store.dead_letters("r1", "", 10)) == 1

    # --- new generations ---

    async def test_continue_as_is_the_same_run_with_a_fresh_history(self, d: Driver) -> None:
        await d.start("r1", input="1", tags='{"eu":"yes"}')
        await d.publish("r1", "set", "stage", "1")
        await d.record("r1", done("a", "old"))
        before = await d.run("r1")
        answer = await d.continue_as("r1", "2", steps=(done("b"),))
        assert answer == Advanced(before.revision, d.clock.now())
        run = await d.run("r1")
        assert (run.generation, run.input, run.status) == (1, "2", "running")
        assert (run.owner, run.fence) == (before.owner, before.fence)
        assert (run.tags, run.published) == (before.tags, before.published)
        assert [steps for _, steps in await d.store.load(["r1"])] == [[]]
        await d.record("r1", done("a", "new"))
        assert (await d.step("r1", "a")).value == "new"

    async def test_the_results_of_the_last_turn_of_a_generation_are_recorded_with_it(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.continue_as("r1", "2", steps=(done("b", "1"),))
        assert [(one.generation, one.path, one.value) for one in await d.store.history("r1")] == [
            (0, "b", "1")
        ]

    async def test_the_generation_before_stays_readable_and_older_ones_go(self, d: Driver) -> None:
        await d.start("r1")
        for number in range(3):
            await d.record("r1", done("a", str(number)))
            await d.continue_as("r1", str(number))
        assert [(one.generation, one.value) for one in await d.store.history("r1")] == [(2, "2")]

    async def test_continue_as_closes_open_waits_and_keeps_buffered_signals(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("stop"), timer("1h")), park=False)
        await d.signal("r1", "go", "1")
        await d.continue_as("r1")
        assert await d.watchers("r1") == []
        assert isinstance(await d.signal("r1", "stop"), Buffered)
        assert completed(await d.suspend("r1", wait("w", signal("go")))) == [("w", 0, "1")]

    async def test_continue_as_may_go_on_as_another_workflow(self, d: Driver) -> None:
        await d.start("r1")
        await d.continue_as("r1", "2", workflow="refunds", version=2)
        run = await d.run("r1")
        assert (run.workflow, run.version) == ("refunds", 2)

    # --- code that cannot go on ---

    async def test_a_run_that_met_other_code_is_parked_as_paused_with_the_reason(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        answer = await d.park("r1", "the workflow changed", steps=(done("a"),))
        assert isinstance(answer, Advanced) and answer.paused
        run = await d.run("r1")
        assert (run.status, run.reason, run.owner) == ("paused", "the workflow changed", None)
        assert [one.path for one in await d.store.history("r1")] == ["w"]
        assert await d.watchers("r1") == []
        await d.resume("r1")
        assert (await d.run("r1")).reason is None
        (run,) = (await d.claim()).runs
        await d.suspend("r1", wait("w", signal("go"), known=True))
        assert await d.watched("r1") == [("w", "signal", "go")]

    async def test_a_parked_run_of_other_code_has_moved_on(self, d: Driver) -> None:
        await d.start("r1")
        await d.pause("r1")
        before = await d.run("r1")
        await d.park("r1")
        after = await d.run("r1")
        assert (after.pause_requested, after.revision) == (False, before.revision + 1)
