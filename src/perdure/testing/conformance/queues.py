"""Queues: each item goes to exactly one run, the one that waits longest; what nobody takes is kept in order."""

import pytest

from perdure.model import limits, ops
from perdure.model.outcomes import Advanced, Counted, Delivered, Duplicate, Queued, Refusal
from perdure.model.schema import schema_digest
from perdure.testing.conformance.driver import Driver, completed, refused
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import failed, queue, signal, timer, wait

jobs = queue("jobs")
_number = {"type": "integer"}


async def letter(d: Driver, item_id: str) -> None:
    """An item "1" that a run has taken and rejected; the run has ended."""
    await d.put("jobs", "1", item_id=item_id)
    await d.start("r1")
    await d.suspend("r1", wait("w", jobs))
    await d.reject("r1", wait("w", jobs, known=True))
    await d.finish("r1", closed=("w",))


class TestQueues(Subject):
    # --- put and take ---

    async def test_an_item_that_nobody_awaits_is_kept(self, d: Driver) -> None:
        assert await d.put("jobs", "1", item_id="i1") == Queued("i1")
        (item,) = await d.store.queue_items("jobs", 0, 10)
        assert (item.item_id, item.queue, item.payload) == ("i1", "jobs", "1")
        assert item.put_at == d.clock.now()

    async def test_items_are_taken_first_in_first_out(self, d: Driver) -> None:
        for payload in ("1", "2", "3"):
            await d.put("jobs", payload)
        await d.start("r1")
        taken = [
            completed(await d.suspend("r1", wait(f"w{number}", jobs)))[0][2] for number in range(3)
        ]
        assert (taken, await d.items("jobs")) == (["1", "2", "3"], [])

    async def test_many_that_are_taken_in_one_commit_come_in_order(self, d: Driver) -> None:
        """Also past what a store reads of a queue at first, and before one that comes in the same commit."""
        for number in range(100):
            await d.put("jobs", str(number))
        await d.start("r1")
        takes = [
            await d.turn_op(ops.Suspend, "r1", waits=(wait(f"w{n}", jobs),)) for n in range(80)
        ]
        _, *taken = await d.batch(d.put_op("jobs", "100"), *takes)
        assert [completed(one)[0][2] for one in taken] == [str(number) for number in range(80)]
        assert await d.items("jobs") == [str(number) for number in range(80, 101)]

    async def test_who_waits_longest_is_served_first_also_in_one_commit(self, d: Driver) -> None:
        for number in range(100):
            await d.start_waiting(f"r{number:03}", jobs)
            d.advance("1s")
        await d.start("new")
        comes = await d.turn_op(ops.Suspend, "new", waits=(wait("w", jobs),))
        await d.batch(comes, *(d.put_op("jobs", str(number)) for number in range(80)))
        assert [(await d.step(f"r{n:03}", "w")).value for n in range(80)] == [
            str(number) for number in range(80)
        ]
        assert (await d.step("new", "w")).state == "open"

    async def test_a_wait_that_finds_an_item_never_suspends(self, d: Driver) -> None:
        await d.put("jobs", "1", item_id="i1")
        await d.start("r1")
        answer = await d.suspend("r1", wait("w", signal("go"), jobs, timer("1h")))
        assert completed(answer) == [("w", 1, "1")]
        assert (await d.step("r1", "w")).taken_id == "i1"
        assert (await d.watchers("r1"), d.deadlines_told()) == ([], [])

    async def test_an_item_goes_to_the_run_that_waits_longest(self, d: Driver) -> None:
        for run_id in ("z", "a", "m"):
            assert (await d.start_waiting(run_id, jobs)).status == "waiting"
            d.advance("1s")
        takers = [await d.put("jobs", payload) for payload in ("1", "2", "3", "4")]
        assert takers[:3] == [Delivered("z", "w"), Delivered("a", "w"), Delivered("m", "w")]
        assert isinstance(takers[3], Queued)
        assert [await d.won(run_id) for run_id in ("z", "a", "m")] == [(0, "1"), (0, "2"), (0, "3")]

    async def test_an_item_has_one_taker(self, d: Driver) -> None:
        await d.start_waiting("r1", jobs)
        await d.start_waiting("r2", jobs)
        await d.put("jobs", "1")
        assert [await d.status("r1"), await d.status("r2")] == ["ready", "waiting"]
        assert await d.items("jobs") == []

    async def test_two_branches_of_one_run_take_one_item_each(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("gather[0]/w", jobs), wait("gather[1]/w", jobs))
        await d.put("jobs", "1")
        assert await d.won("r1", "gather[0]/w") == (0, "1")
        assert await d.won("r1", "gather[1]/w") == (None, None)

    async def test_queues_are_apart(self, d: Driver) -> None:
        await d.start_waiting("r1", jobs)
        await d.put("other", "1")
        assert (await d.status("r1"), await d.items("other")) == ("waiting", ["1"])

    async def test_of_several_queues_the_item_put_first_is_taken(self, d: Driver) -> None:
        await d.put("b", "1")
        await d.put("a", "2")
        await d.start("r1")
        answer = await d.suspend("r1", wait("w", queue("a"), queue("b")))
        assert completed(answer) == [("w", 1, "1")]
        assert await d.items("a") == ["2"]

    async def test_a_signal_to_the_run_comes_before_an_item(self, d: Driver) -> None:
        await d.start("r1")
        await d.put("jobs", "1")
        await d.signal("r1", "go", "2")
        answer = await d.suspend("r1", wait("w", jobs, signal("go")))
        assert completed(answer) == [("w", 1, "2")]
        assert await d.items("jobs") == ["1"]

    async def test_a_loser_takes_no_item(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), jobs)
        await d.signal("r1", "go")
        assert isinstance(await d.put("jobs", "1"), Queued)

    async def test_items_outlive_the_runs_around_them(self, d: Driver) -> None:
        await d.start("r1")
        await d.record_send("r1", "p", d.put_op("jobs", "1"), kind="put")
        await d.finish("r1")
        d.advance("1h")
        await d.prune(finished_before=d.clock.now())
        assert await d.items("jobs") == ["1"]

    # --- against the deadline ---

    async def test_an_item_at_the_deadline_wins(self, d: Driver) -> None:
        await d.start_waiting("r1", jobs, timer("1h"))
        d.advance("1h")
        assert await d.put("jobs", "1") == Delivered("r1", "w")

    async def test_an_item_after_it_goes_to_the_next(self, d: Driver) -> None:
        await d.start_waiting("r1", jobs, timer("1h"))
        d.advance("2h")
        await d.start_waiting("r2", jobs)
        assert await d.put("jobs", "1") == Delivered("r2", "w")
        await d.fire()
        assert await d.won("r1") == (1, "null")

    async def test_a_wait_past_its_deadline_takes_only_what_was_put_before(self, d: Driver) -> None:
        await d.start_waiting("r1", jobs, timer("1h"))
        await d.start_waiting("r2", jobs, timer("1h"))
        await d.pause("r1")
        await d.pause("r2")
        await d.put("jobs", "1")
        d.advance("2h")
        await d.put("jobs", "2")
        for run_id in ("r1", "r2"):
            await d.resume(run_id)
        await d.claim()
        for run_id, ended in (("r1", (0, "1")), ("r2", (1, "null"))):
            await d.suspend(run_id, wait("w", jobs, timer("1h"), known=True))
            assert await d.won(run_id) == ended
        assert await d.items("jobs") == ["2"]

    # --- keys and types ---

    async def test_a_key_used_again_gives_the_first_answer(self, d: Driver) -> None:
        await d.start_waiting("r1", jobs)
        first = await d.put("jobs", "1", key="k")
        assert first == Delivered("r1", "w")
        assert await d.put("jobs", "1", key="k") == Duplicate(first)
        assert await d.items("jobs") == []

    async def test_a_key_of_a_queued_item_likewise(self, d: Driver) -> None:
        await d.put("jobs", "1", key="k", item_id="i1")
        assert await d.put("jobs", "1", key="k", item_id="i2") == Duplicate(Queued("i1"))
        assert await d.items("jobs") == ["1"]

    async def test_a_key_used_with_another_payload_is_a_conflict(self, d: Driver) -> None:
        await d.put("jobs", "1", key="k")
        assert refused(await d.put("jobs", "2", key="k")) == "conflict"

    async def test_a_key_counts_within_its_queue(self, d: Driver) -> None:
        await d.put("jobs", "1", key="k")
        assert isinstance(await d.put("other", "1", key="k"), Queued)

    async def test_a_key_is_remembered_for_a_week(self, d: Driver) -> None:
        await d.put("jobs", "1", key="k")
        d.clock.set(d.clock.now() + limits.put_key_us - 1)
        assert isinstance(await d.put("jobs", "1", key="k"), Duplicate)
        d.advance(0.000001)
        assert isinstance(await d.put("jobs", "1", key="k"), Queued)

    async def test_a_key_comes_before_the_payload(self, d: Driver) -> None:
        await d.put("jobs", '"x"', key="k")
        await d.declare_queue("jobs", schema=_number)
        assert isinstance(await d.put("jobs", '"x"', key="k"), Duplicate)

    async def test_a_payload_that_does_not_fit_is_refused(self, d: Driver) -> None:
        await d.declare_queue("jobs", schema=_number)
        await d.start_waiting("r1", jobs)
        assert refused(await d.put("jobs", '"x"')) == "invalid_payload"
        assert (await d.status("r1"), await d.items("jobs")) == ("waiting", [])
        checked = schema_digest(_number)
        assert isinstance(await d.put("jobs", '"x"', schema=checked), Delivered)

    async def test_what_the_sender_has_against_its_payload_refuses_it(self, d: Driver) -> None:
        answer = await d.put("jobs", "1", errors=("no job",))
        assert isinstance(answer, Refusal) and answer.paths == ("no job",)

    async def test_a_topic_of_the_same_name_says_nothing_of_a_queue(self, d: Driver) -> None:
        await d.declare_topic("jobs", schema=_number)
        assert isinstance(await d.put("jobs", '"x"'), Queued)

    # --- given back ---

    async def test_a_wait_that_is_left_gives_its_item_back_at_the_front(self, d: Driver) -> None:
        for payload in ("1", "2"):
            await d.put("jobs", payload)
        await d.start("r1")
        await d.suspend("r1", wait("w", jobs))
        await d.record("r1", closed=("w",))
        assert await d.items("jobs") == ["1", "2"]

    async def test_two_that_are_left_give_theirs_back_in_order(self, d: Driver) -> None:
        for payload in ("1", "2", "3"):
            await d.put("jobs", payload)
        await d.start("r1")
        await d.suspend("r1", wait("a", jobs), wait("b", jobs))
        await d.record("r1", closed=("b", "a"))
        assert await d.items("jobs") == ["1", "2", "3"]

    @pytest.mark.parametrize("first", ["r1", "r2"])
    async def test_items_of_two_runs_come_back_to_where_they_were(
        self, d: Driver, first: str
    ) -> None:
        for payload in ("1", "2", "3"):
            await d.put("jobs", payload)
        for run_id in ("r1", "r2"):
            await d.start(run_id)
            await d.suspend(run_id, wait("w", jobs))
        for run_id in (first, "r2" if first == "r1" else "r1"):
            await d.record(run_id, closed=("w",))
        assert await d.items("jobs") == ["1", "2", "3"]

    @pytest.mark.parametrize("waits", [True, False], ids=["delivered", "taken"])
    async def test_an_item_given_back_was_put_when_it_was_put(self, d: Driver, waits: bool) -> None:
        if waits:
            await d.start_waiting("r1", jobs)
        put_at = d.clock.now()
        await d.put("jobs", "1")
        d.advance("1h")
        if not waits:
            await d.start("r1")
            await d.suspend("r1", wait("w", jobs))
        else:
            await d.claim()
        d.advance("1h")
        await d.record("r1", closed=("w",))
        (item,) = await d.store.queue_items("jobs", 0, 10)
        assert item.put_at == put_at

    async def test_an_item_given_back_goes_to_who_waits(self, d: Driver) -> None:
        await d.put("jobs", "1", item_id="i1")
        await d.start("r1")
        await d.suspend("r1", wait("w", jobs))
        await d.start_waiting("r2", jobs)
        await d.record("r1", closed=("w",))
        assert (await d.won("r2"), await d.items("jobs")) == ((0, "1"), [])
        assert (await d.step("r2", "w")).taken_id == "i1"

    async def test_also_to_another_branch_of_the_same_run(self, d: Driver) -> None:
        """The turn that leaves the one branch would park the run: its other branch goes on."""
        await d.put("jobs", "1")
        await d.start("r1")
        await d.suspend("r1", wait("gather[0]/w", jobs), wait("gather[1]/w", jobs), park=False)
        answer = await d.suspend("r1", closed=("gather[0]/w",))
        assert isinstance(answer, Advanced) and not answer.parked
        assert await d.won("r1", "gather[1]/w") == (0, "1")
        life = await d.run("r1")
        assert (life.status, life.revision) == ("running", answer.revision)

    async def test_an_item_is_not_lost_with_a_run_that_ends(self, d: Driver) -> None:
        await d.put("jobs", "1")
        await d.start("r1")
        await d.suspend("r1", wait("gather[0]/w", jobs), wait("gather[1]/w", jobs), park=False)
        await d.finish("r1", closed=("gather[0]/w", "gather[1]/w"))
        assert await d.items("jobs") == ["1"]

    async def test_a_run_that_was_cancelled_gives_back_what_it_got_meanwhile(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", jobs)
        await d.cancel("r1")
        assert await d.put("jobs", "1") == Delivered("r1", "w")
        await d.claim()
        await d.record_cancel("r1", "w")
        assert await d.items("jobs") == ["1"]

    async def test_an_open_wait_that_is_left_gets_nothing(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", jobs), park=False)
        await d.record("r1", closed=("w",))
        assert isinstance(await d.put("jobs", "1"), Queued)

    async def test_a_retried_run_puts_back_what_its_superseded_steps_took(self, d: Driver) -> None:
        for payload in ("1", "2", "3"):
            await d.put("jobs", payload)
        await d.start("r1")
        await d.record("r1", failed("a"))
        await d.suspend("r1", wait("w1", jobs))
        await d.suspend("r1", wait("w2", jobs))
        await d.fail("r1", "a")
        await d.retry("r1")
        assert await d.items("jobs") == ["1", "2", "3"]

    # --- rejected ---

    async def test_a_rejected_item_is_a_dead_letter_and_the_wait_goes_on(self, d: Driver) -> None:
        await d.put("jobs", "1", item_id="i1")
        await d.put("jobs", "2")
        await d.start("r1")
        await d.suspend("r1", wait("w", jobs))
        answer = await d.reject("r1", wait("w", jobs, known=True))
        assert completed(answer) == [("w", 0, "2")]
        (letter,) = await d.store.dead_letters("r1", "", 10)
        assert (letter.dead_letter_id, letter.kind, letter.name) == ("i1", "item", "jobs")
        assert (letter.payload, letter.reason) == ("1", "it does not fit")
        (told,) = await d.told("signal.rejected")
        assert (told["name"], told["path"]) == ("jobs", "w")

    async def test_a_letter_sent_again_is_put_at_the_end_of_its_queue(self, d: Driver) -> None:
        await letter(d, "i1")
        await d.put("jobs", "2")
        assert await d.resend("i1") == Queued("i1")
        assert await d.items("jobs") == ["2", "1"]
        assert await d.store.dead_letters(None, "", 10) == []

    async def test_a_letter_sent_again_goes_to_who_waits(self, d: Driver) -> None:
        await letter(d, "i1")
        await d.start_waiting("r2", jobs)
        assert await d.resend("i1") == Delivered("r2", "w")

    async def test_a_retried_run_does_not_get_rejected_items_as_signals(self, d: Driver) -> None:
        await d.put("jobs", "1")
        await d.start("r1")
        await d.suspend("r1", wait("w", jobs))
        await d.reject("r1", wait("w", jobs, known=True))
        await d.fail("r1", closed=("w",))
        await d.retry("r1")
        assert await d.payloads("r1") == []
        assert len(await d.store.dead_letters(None, "", 10)) == 1

    # --- upkeep ---

    async def test_a_purge_deletes_the_oldest_up_to_its_bound(self, d: Driver) -> None:
        for payload in ("1", "2", "3"):
            await d.put("jobs", payload)
        await d.put("other", "4")
        assert await d.purge("jobs", limit=2) == Counted(2, more=True)
        assert await d.items("jobs") == ["3"]
        assert await d.purge("jobs", limit=2) == Counted(1)
        assert await d.store.queues() == {"other": 1}

    async def test_a_purge_spares_what_was_put_later(self, d: Driver) -> None:
        await d.put("jobs", "1")
        d.advance("1h")
        await d.put("jobs", "2")
        assert await d.purge("jobs", put_before=d.clock.now()) == Counted(1)
        assert await d.items("jobs") == ["2"]

    async def test_queues_are_listed_with_their_sizes_and_items_by_page(self, d: Driver) -> None:
        for number in range(5):
            await d.put("jobs", str(number))
        await d.put("other", "1")
        assert await d.store.queues() == {"jobs": 5, "other": 1}
        first = await d.store.queue_items("jobs", 0, 3)
        rest = await d.store.queue_items("jobs", first[-1].position, 3)
        assert [one.payload for one in first + rest] == ["0", "1", "2", "3", "4"]
        assert await d.store.queue_items("nothing", 0, 3) == []

    @pytest.mark.parametrize("payload", ['{"a":1}', '"é"', "[]"])
    async def test_a_run_puts_together_with_its_record(self, d: Driver, payload: str) -> None:
        await d.start("r1")
        await d.record_send("r1", "p", d.put_op("jobs", payload, item_id="i1"), kind="put")
        step = await d.step("r1", "p")
        assert (step.state, '"i1"' in (step.value or "")) == ("done", True)
        assert await d.items("jobs") == [payload]
