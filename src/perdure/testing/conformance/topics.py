"""Waits for topics: every event once, the early one too; a cursor for each branch; the oldest of what is there."""

from perdure.model.outcomes import Advanced, Delivered
from perdure.testing.conformance.driver import Driver, completed, emitted, spec_of
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import failed, queue, run, signal, timer, topic, wait

paid = topic("order.paid")


class TestTopics(Subject):
    # --- delivery ---

    async def test_an_event_ends_the_waits_of_all_who_watch(self, d: Driver) -> None:
        for run_id in ("r1", "r2", "r3"):
            await d.start_waiting(run_id, paid)
        answer = emitted(await d.emit("order.paid", "7"))
        assert (answer.resumed, answer.more) == (3, False)
        for run_id in ("r1", "r2", "r3"):
            assert (await d.won(run_id), await d.watchers(run_id)) == ((0, "7"), [])

    async def test_the_step_names_the_event(self, d: Driver) -> None:
        await d.start_waiting("r1", paid)
        await d.emit("order.paid", event_id="e1")
        assert (await d.step("r1", "w")).taken_id == "e1"

    async def test_a_run_that_waits_for_a_topic_is_waiting(self, d: Driver) -> None:
        assert (await d.start_waiting("r1", paid, timer("1h"))).status == "waiting"
        assert await d.watched("r1") == [("w", "topic", "order.paid")]

    async def test_a_wait_about_an_entity_takes_only_its_events(self, d: Driver) -> None:
        await d.start_waiting("r1", topic("order.paid", "order/1"))
        await d.emit("order.paid", "1", entity="order/2")
        await d.emit("order.paid", "2")
        assert await d.status("r1") == "waiting"
        await d.emit("order.paid", "3", entity="order/1")
        assert await d.won("r1") == (0, "3")

    async def test_a_wait_about_any_takes_those_of_every_entity(self, d: Driver) -> None:
        await d.start_waiting("r1", paid)
        await d.emit("order.paid", "1", entity="order/2")
        assert await d.won("r1") == (0, "1")

    async def test_two_branches_of_one_run_both_go_on(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("gather[0]/w", paid), wait("gather[1]/w", paid))
        assert emitted(await d.emit("order.paid", "7")).resumed == 1
        assert await d.won("r1", "gather[0]/w") == await d.won("r1", "gather[1]/w") == (0, "7")
        assert await d.status("r1") == "ready"

    async def test_a_topic_named_twice_wins_by_its_first_mention(self, d: Driver) -> None:
        await d.start_waiting("r1", topic("order.paid", "order/1"), paid, paid)
        await d.emit("order.paid", "1", entity="order/2")
        assert await d.won("r1") == (1, "1")
        await d.start_waiting("r2", paid, topic("order.paid", "order/1"))
        await d.emit("order.paid", "2", entity="order/1")
        assert await d.won("r2") == (0, "2")

    # --- where it begins ---

    async def test_an_early_event_is_taken_and_the_run_never_suspends(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.paid", "7")
        answer = await d.suspend("r1", wait("w", paid, timer("1h")))
        assert completed(answer) == [("w", 0, "7")]
        assert (await d.status("r1"), await d.watchers("r1")) == ("running", [])
        assert d.deadlines_told() == []

    async def test_a_wait_begins_with_its_run(self, d: Driver) -> None:
        await d.emit("order.paid", "1")
        await d.start("r1")
        await d.emit("order.paid", "2")
        assert completed(await d.suspend("r1", wait("w", paid))) == [("w", 0, "2")]

    async def test_so_it_does_without_life_cycle_facts(self, quiet: Driver) -> None:
        d = quiet
        await d.emit("order.paid", "1")
        await d.start("r1")
        await d.emit("order.paid", "2")
        assert completed(await d.suspend("r1", wait("w", paid))) == [("w", 0, "2")]

    async def test_or_with_the_wait(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.paid", "1")
        await d.suspend("r1", wait("w", topic("order.paid", since="now")))
        assert await d.status("r1") == "waiting"
        await d.emit("order.paid", "2")
        assert await d.won("r1") == (0, "2")

    async def test_what_comes_between_two_waits_from_now_on_is_not_missed(self, d: Driver) -> None:
        now = topic("order.paid", since="now")
        await d.start_waiting("r1", now, timer("1h"))
        d.advance("2h")
        await d.fire()
        await d.emit("order.paid", "1")
        await d.claim()
        assert completed(await d.suspend("r1", wait("w2", now))) == [("w2", 0, "1")]

    async def test_or_with_the_oldest_event_that_is_kept(self, d: Driver) -> None:
        for payload in ("1", "2", "3"):
            await d.emit("order.paid", payload)
        await d.trim(keep=2)
        await d.start("r1")
        ever = topic("order.paid", since="ever")
        assert completed(await d.suspend("r1", wait("w", ever))) == [("w", 0, "2")]

    async def test_the_latest_skips_to_the_newest(self, d: Driver) -> None:
        await d.start("r1")
        for payload in ("1", "2", "3"):
            await d.emit("order.paid", payload)
        latest = topic("order.paid", deliver="latest")
        assert completed(await d.suspend("r1", wait("w", latest))) == [("w", 0, "3")]
        await d.suspend("r1", wait("w2", latest))
        assert await d.status("r1") == "waiting"
        await d.emit("order.paid", "4")
        assert await d.won("r1", "w2") == (0, "4")

    # --- the cursor ---

    async def test_a_loop_of_waits_sees_each_event_once(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.paid", "1")
        await d.emit("order.paid", "2")
        seen = []
        for turn in range(4):
            answer = await d.suspend("r1", wait(f"w{turn}", paid))
            if not completed(answer):
                await d.emit("order.paid", str(turn + 1))
                await d.claim()
            seen.append((await d.won("r1", f"w{turn}"))[1])
        assert seen == ["1", "2", "3", "4"]

    async def test_a_delivered_event_is_not_seen_again(self, d: Driver) -> None:
        await d.start_waiting("r1", paid)
        await d.emit("order.paid", "1")
        await d.claim()
        await d.suspend("r1", wait("w2", paid))
        assert await d.status("r1") == "waiting"

    async def test_each_branch_has_a_cursor_of_its_own(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.paid", "1")
        for branch in ("gather[0]", "gather[1]"):
            answer = await d.suspend("r1", wait(f"{branch}/w", paid))
            assert completed(answer) == [(f"{branch}/w", 0, "1")]

    async def test_a_branch_begins_where_its_parent_is(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.paid", "1")
        await d.emit("order.paid", "2")
        await d.suspend("r1", wait("w", paid))
        inner = "gather[1]/scope/map[0]/w"
        assert completed(await d.suspend("r1", wait(inner, paid))) == [(inner, 0, "2")]

    async def test_a_branch_within_a_branch_likewise(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.paid", "1")
        await d.emit("order.paid", "2")
        await d.suspend("r1", wait("gather[1]/w", paid))
        for inner, value in (("gather[1]/map[0]/w", "2"), ("gather[0]/map[0]/w", "1")):
            assert completed(await d.suspend("r1", wait(inner, paid))) == [(inner, 0, value)]

    async def test_what_a_branch_saw_its_parent_did_not(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.paid", "1")
        await d.suspend("r1", wait("gather[0]/w", paid))
        assert completed(await d.suspend("r1", wait("w", paid))) == [("w", 0, "1")]

    async def test_a_scope_is_no_branch(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.paid", "1")
        await d.suspend("r1", wait("scope/w", paid))
        await d.suspend("r1", wait("w", paid))
        assert await d.status("r1") == "waiting"

    async def test_each_entity_and_each_filter_has_a_cursor_of_its_own(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.paid", "1", entity="order/1")
        for number, on in enumerate(
            (paid, topic("order.paid", "order/1"), topic("order.paid", code="mine"))
        ):
            answer = await d.suspend("r1", wait(f"w{number}", on))
            assert completed(answer) == [(f"w{number}", 0, "1")]

    async def test_only_the_cursor_of_the_winner_moves(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.sent", "1")
        await d.emit("order.paid", "2")
        sent = topic("order.sent")
        assert completed(await d.suspend("r1", wait("w", paid, sent))) == [("w", 1, "1")]
        assert completed(await d.suspend("r1", wait("w2", paid))) == [("w2", 0, "2")]

    async def test_a_cursor_survives_continue_as(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.paid", "1")
        await d.emit("order.paid", "2")
        await d.suspend("r1", wait("w", paid))
        await d.continue_as("r1")
        assert completed(await d.suspend("r1", wait("w", paid))) == [("w", 0, "2")]

    async def test_a_wait_stores_from_where_on_events_count(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), paid)
        (_, watcher) = await d.watchers("r1")
        assert spec_of(await d.step("r1", "w")).after[1] == watcher.after == await d.head()

    # --- against the deadline ---

    async def test_an_event_at_the_deadline_wins(self, d: Driver) -> None:
        await d.start_waiting("r1", paid, timer("1h"))
        d.advance("1h")
        await d.emit("order.paid", "1")
        await d.fire()
        assert await d.won("r1") == (0, "1")

    async def test_an_event_after_it_stays_for_a_later_wait(self, d: Driver) -> None:
        await d.start_waiting("r1", paid, timer("1h"))
        d.advance(3600.000001)
        answer = emitted(await d.emit("order.paid", "1"))
        assert (answer.resumed, await d.won("r1")) == (0, (None, None))
        await d.fire()
        assert await d.won("r1") == (1, "null")
        await d.claim()
        assert completed(await d.suspend("r1", wait("w2", paid))) == [("w2", 0, "1")]

    async def test_a_wait_that_opens_past_its_deadline_takes_what_came_in_time(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", paid, timer("1h"))
        await d.pause("r1")
        d.advance("30m")
        await d.emit("order.paid", "1")
        d.advance("1h")
        await d.resume("r1")
        await d.claim()
        answer = await d.suspend("r1", wait("w", paid, timer("1h"), known=True))
        assert completed(answer) == [("w", 0, "1")]

    async def test_and_nothing_that_came_late(self, d: Driver) -> None:
        await d.start_waiting("r1", topic("order.paid", deliver="latest"), timer("1h"))
        await d.pause("r1")
        d.advance("2h")
        await d.emit("order.paid", "1")
        await d.resume("r1")
        await d.claim()
        again = wait("w", topic("order.paid", deliver="latest"), timer("1h"), known=True)
        assert completed(await d.suspend("r1", again)) == [("w", 1, "null")]

    # --- among other conditions ---

    async def test_the_order_is_signal_run_queue_topic_timer(self, d: Driver) -> None:
        """All is there when the wait opens; each round takes one away."""
        await d.start("r1")
        await d.emit("order.paid", "4")
        await d.put("jobs", "3")
        await d.start("r2")
        await d.finish("r2", "2")
        await d.signal("r1", "go", "1")
        on = {"timer": timer(0), "topic": paid, "queue": queue("jobs"), "run": run("r2")}
        on["signal"] = signal("go")
        values = []
        while on:
            answer = await d.suspend("r1", wait(f"w{len(on)}", *on.values()))
            ((_, winner, value),) = completed(answer)
            values.append(value)
            on.pop(list(on)[winner or 0])
        assert values == ["1", "2", "3", "4", "null"]

    async def test_of_two_topics_the_older_event_wins(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.sent", "1")
        await d.emit("order.paid", "2")
        answer = await d.suspend("r1", wait("w", paid, topic("order.sent")))
        assert completed(answer) == [("w", 1, "1")]

    async def test_a_topic_that_loses_consumes_nothing(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), paid)
        assert isinstance(await d.signal("r1", "go"), Delivered)
        assert emitted(await d.emit("order.paid", "1")).resumed == 0
        await d.claim()
        assert completed(await d.suspend("r1", wait("w2", paid))) == [("w2", 0, "1")]

    # --- steering, leaving, refusing ---

    async def test_a_paused_run_gets_the_event_when_it_is_resumed(self, d: Driver) -> None:
        await d.start_waiting("r1", paid)
        await d.pause("r1")
        assert emitted(await d.emit("order.paid", "1")).resumed == 0
        await d.emit("order.paid", "2")
        await d.resume("r1")
        await d.claim()
        answer = await d.suspend("r1", wait("w", paid, known=True))
        assert completed(answer) == [("w", 0, "1")]

    async def test_a_wait_that_is_left_gives_its_event_back(self, d: Driver) -> None:
        """The branch was cancelled in the same moment: the event is the next one to be seen."""
        await d.start("r1")
        await d.emit("order.paid", "1")
        await d.suspend("r1", wait("w", paid))
        await d.record("r1", closed=("w",))
        assert (await d.step("r1", "w")).state == "abandoned"
        assert completed(await d.suspend("r1", wait("w2", paid))) == [("w2", 0, "1")]

    async def test_an_open_wait_that_is_left_gets_nothing(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", paid), park=False)
        await d.record("r1", closed=("w",))
        assert emitted(await d.emit("order.paid", "1")).resumed == 0
        assert completed(await d.suspend("r1", wait("w2", paid))) == [("w2", 0, "1")]

    async def test_an_event_that_is_rejected_is_told_and_the_next_one_taken(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.emit("order.paid", "1", event_id="e1")
        await d.emit("order.paid", "2")
        await d.suspend("r1", wait("w", paid))
        answer = await d.reject("r1", wait("w", paid, known=True))
        assert completed(answer) == [("w", 0, "2")]
        (told,) = await d.told("signal.rejected")
        assert (told["event_id"], told["name"], told["path"]) == ("e1", "order.paid", "w")
        assert await d.store.dead_letters(None, "", 10) == []

    async def test_an_event_that_only_did_not_pass_is_not_told(self, d: Driver) -> None:
        mine = topic("order.paid", code="mine")
        await d.start("r1")
        await d.emit("order.paid", "1")
        await d.suspend("r1", wait("w", mine, timer("1h")))
        answer = await d.reject("r1", wait("w", mine, timer("1h"), known=True), passed=True)
        assert isinstance(answer, Advanced) and completed(answer) == []
        assert await d.told("signal.rejected") == []
        await d.emit("order.paid", "2")
        assert await d.won("r1") == (0, "2")

    async def test_what_was_rejected_stays_so_over_a_pause(self, d: Driver) -> None:
        mine = topic("order.paid", code="mine")
        await d.start("r1")
        await d.emit("order.paid", "1")
        await d.suspend("r1", wait("w", mine))
        await d.reject("r1", wait("w", mine, known=True), passed=True)
        await d.suspend("r1", wait("w", mine, known=True))
        await d.pause("r1")
        await d.resume("r1")
        await d.claim()
        assert completed(await d.suspend("r1", wait("w", mine, known=True))) == []

    # --- facts of the engine ---

    async def test_the_facts_of_the_engine_resume_by_fan_out(self, d: Driver) -> None:
        await d.start("r2")
        ended = topic("workflow.run_completed", "run/r2")
        await d.start_waiting("r1", ended)
        await d.finish("r2", "7")
        assert (await d.store.look()).fan_out
        assert any(one.kind == "fan_out" for one in d.heard[-1].wakes)
        assert (await d.fan_out()).count == 1
        assert (await d.won("r1"))[0] == 0
        assert not (await d.store.look()).fan_out

    async def test_who_waits_for_a_run_or_for_the_fact_of_its_end_learns_of_the_run(
        self, d: Driver
    ) -> None:
        await d.start("r2")
        await d.start_waiting("r1", topic("workflow.run_completed"), run("r2"))
        await d.finish("r2", "7")
        await d.fan_out_all()
        assert await d.won("r1") == (1, "7")

    # --- retry ---

    async def test_a_retried_run_sees_the_events_of_superseded_steps_again(self, d: Driver) -> None:
        await d.start("r1")
        for payload in ("1", "2", "3"):
            await d.emit("order.paid", payload)
        await d.suspend("r1", wait("w1", paid))
        await d.fail("r1", "a", steps=(failed("a"),))
        await d.retry("r1")
        await d.claim()
        assert completed(await d.suspend("r1", wait("w2", paid))) == [("w2", 0, "2")]

    async def test_of_several_that_are_seen_again_the_first_comes_first(self, d: Driver) -> None:
        await d.start("r1")
        for payload in ("1", "2", "3"):
            await d.emit("order.paid", payload)
        await d.record("r1", failed("a"))
        await d.suspend("r1", wait("w1", paid))
        await d.suspend("r1", wait("w2", paid))
        await d.fail("r1", "a")
        await d.retry("r1")
        await d.claim()
        assert completed(await d.suspend("r1", wait("w1", paid))) == [("w1", 0, "1")]

    async def test_pruning_a_run_forgets_its_cursors(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.paid")
        await d.suspend("r1", wait("w", paid))
        assert (await d.store.counts())["cursors"] == 1
        await d.finish("r1")
        d.advance("1h")
        await d.prune(finished_before=d.clock.now())
        assert (await d.store.counts())["cursors"] == 0
