"""Waits with a filter: judged outside the store, resolved by an op; their deadline counts when all was judged."""

import msgspec

from perdure.model.records import ErrorRecord
from perdure.testing.conformance.driver import Driver, completed, emitted
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import queue, signal, timer, topic, wait

big = topic("order.paid", filter="payload > 5")
paid = topic("order.paid")


class TestMatching(Subject):
    # --- who decides ---

    async def test_a_wait_with_a_filter_is_for_the_matcher(self, d: Driver) -> None:
        await d.start_waiting("r1", big)
        assert await d.watched("r1") == [("w", "match", "order.paid")]
        assert await d.status("r1") == "waiting"
        assert any(one.kind == "match" for one in d.heard[-1].wakes)
        (watcher,) = await d.store.matches(None, 10)
        assert (watcher.run_id, watcher.filter, watcher.held) == ("r1", "payload > 5", True)

    async def test_no_event_ends_it_by_itself(self, d: Driver) -> None:
        await d.start_waiting("r1", big)
        assert emitted(await d.emit("order.paid", "7")).resumed == 0
        assert not (await d.store.look()).fan_out
        assert await d.status("r1") == "waiting"

    async def test_nor_is_an_early_event_taken(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit("order.paid", "7")
        await d.suspend("r1", wait("w", big))
        assert await d.status("r1") == "waiting"

    async def test_a_filter_in_code_is_no_affair_of_the_matcher(self, d: Driver) -> None:
        await d.start_waiting("r1", topic("order.paid", code="mine"))
        assert await d.store.matches(None, 10) == []
        assert emitted(await d.emit("order.paid")).resumed == 1

    async def test_those_to_be_judged_are_listed_by_page(self, d: Driver) -> None:
        for number in range(5):
            await d.start_waiting(f"r{number}", big)
        await d.start_waiting("other", paid)
        first = await d.store.matches(None, 3)
        last = first[-1]
        place = (last.target, last.entity, last.opened_at, last.run_id, last.path, last.ix)
        rest = await d.store.matches(place, 3)
        assert [one.run_id for one in first + rest] == ["r0", "r1", "r2", "r3", "r4"]

    # --- the event that fits ---

    async def test_what_the_matcher_finds_ends_the_wait(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), big)
        await d.emit("order.paid", "1")
        await d.emit("order.paid", "7", event_id="e2")
        assert await d.resolve_wait("r1", await d.head(), ix=1) == 1
        step = await d.step("r1", "w")
        assert (step.winner, step.value, step.taken_id) == (1, "7", "e2")
        assert (await d.status("r1"), await d.watchers("r1")) == ("ready", [])

    async def test_the_next_wait_begins_after_it(self, d: Driver) -> None:
        await d.start_waiting("r1", big)
        await d.emit("order.paid", "7")
        found = await d.head()
        await d.resolve_wait("r1", found)
        await d.claim()
        await d.suspend("r1", wait("w2", big))
        (watcher,) = await d.watchers("r1")
        assert watcher.after == found

    async def test_a_cursor_with_a_filter_is_its_own(self, d: Driver) -> None:
        await d.start_waiting("r1", big)
        await d.emit("order.paid", "7")
        await d.resolve_wait("r1", await d.head())
        await d.claim()
        assert completed(await d.suspend("r1", wait("w2", paid))) == [("w2", 0, "7")]

    async def test_it_is_decided_once(self, d: Driver) -> None:
        await d.start_waiting("r1", big)
        await d.emit("order.paid", "7")
        await d.emit("order.paid", "8")
        head = await d.head()
        assert await d.resolve_wait("r1", head - 1) == 1
        assert await d.resolve_wait("r1", head) == 0
        assert await d.won("r1") == (0, "7")

    async def test_a_matcher_that_is_wrong_changes_nothing(self, d: Driver) -> None:
        await d.emit("order.paid", "7")
        old = await d.head()
        await d.start_waiting("r1", topic("order.paid", "order/1", filter="true"))
        await d.emit("order.sent", "7", entity="order/1")
        other_topic = await d.head()
        await d.emit("order.paid", "7", entity="order/2")
        other_entity = await d.head()
        await d.emit("order.paid", "7", entity="order/1")
        good = await d.head()
        for position in (old, other_topic, other_entity, good + 1):
            assert await d.resolve_wait("r1", position) == 0
        assert await d.resolve_wait("nobody", good) == 0
        assert await d.resolve_wait("r1", good, generation=1) == 0
        assert await d.resolve_wait("r1", good, path="x") == 0
        assert await d.resolve_wait("r1", good, ix=1) == 0
        assert await d.won("r1") == (None, None)
        assert await d.resolve_wait("r1", good) == 1

    async def test_a_repeat_ends_no_wait(self, d: Driver) -> None:
        await d.emit("stock.level", "7", repeats="ignore")
        await d.start_waiting("r1", topic("stock.level", filter="true"))
        await d.emit("stock.level", "7", repeats="ignore")
        assert await d.resolve_wait("r1", await d.head()) == 0

    async def test_a_wait_without_a_filter_is_not_the_matchers(self, d: Driver) -> None:
        await d.start_waiting("r1", paid, topic("order.sent", filter="true"))
        await d.emit("order.sent", "7")
        assert await d.resolve_wait("r1", await d.head(), ix=0) == 0

    async def test_what_was_decided_for_an_older_generation_is_void(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", big), park=False)
        await d.continue_as("r1", closed=("w",))
        await d.suspend("r1", wait("w", big))
        await d.emit("order.paid", "7")
        assert await d.resolve_wait("r1", await d.head(), generation=0) == 0
        assert await d.resolve_wait("r1", await d.head(), generation=1) == 1

    async def test_other_conditions_win_as_ever(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), big)
        await d.start_waiting("r2", queue("jobs"), big)
        await d.start_waiting("r3", topic("order.sent"), big)
        await d.signal("r1", "go", "1")
        await d.put("jobs", "2")
        await d.emit("order.sent", "3")
        assert [await d.won(one) for one in ("r1", "r2", "r3")] == [(0, "1"), (0, "2"), (0, "3")]
        assert await d.store.matches(None, 10) == []

    async def test_a_broken_filter_fails_the_wait(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), big)
        broken = ErrorRecord(kind="refused", type="FilterError", message="no such field")
        text = msgspec.json.encode(broken).decode()
        told = emitted(await d.emit("order.paid", "500"))
        assert await d.resolve_wait("r1", told.position, ix=1, error=text) == 1
        step = await d.step("r1", "w")
        assert (step.state, step.winner, step.error) == ("failed", 1, text)
        assert await d.watchers("r1") == []

    # --- the deadline ---

    async def test_its_deadline_does_not_fire_by_itself(self, d: Driver) -> None:
        await d.start_waiting("r1", big, signal("go"), timer("1h"))
        assert (await d.store.look()).deadline_at is None
        assert d.deadlines_told() == []
        d.advance("2h")
        assert (await d.fire()).count == 0
        assert (await d.store.vitals(d.clock.now())).timers_due == 0
        assert await d.status("r1") == "waiting"

    async def test_before_it_nothing_found_changes_nothing(self, d: Driver) -> None:
        await d.start_waiting("r1", big, timer("1h"))
        d.advance("1h")  # an event may still come in the very same moment
        assert await d.resolve_wait("r1", None) == 0
        assert await d.status("r1") == "waiting"

    async def test_after_it_nothing_found_is_a_timeout(self, d: Driver) -> None:
        await d.start_waiting("r1", big, signal("go"), timer("1h"))
        await d.emit("order.paid", "1")
        d.advance(3600.000001)
        assert await d.resolve_wait("r1", None) == 1
        assert await d.won("r1") == (2, "null")
        assert [one["name"] for one in await d.told("signal.timeout")] == ["go"]

    async def test_without_a_deadline_nothing_found_changes_nothing(self, d: Driver) -> None:
        await d.start_waiting("r1", big)
        d.advance("99h")
        assert await d.resolve_wait("r1", None) == 0

    async def test_not_while_an_event_from_before_it_was_not_judged(self, d: Driver) -> None:
        await d.start_waiting("r1", big, timer("1h"))
        judged = await d.head()
        await d.emit("order.paid", "7")
        d.advance("2h")
        assert await d.resolve_wait("r1", None, examined=judged) == 0
        assert await d.resolve_wait("r1", None) == 1

    async def test_events_after_it_need_not_be_judged(self, d: Driver) -> None:
        await d.start_waiting("r1", big, timer("1h"))
        judged = await d.head()
        d.advance("2h")
        await d.emit("order.paid", "7")
        assert await d.resolve_wait("r1", None, examined=judged) == 1
        assert await d.won("r1") == (1, "null")

    async def test_nor_those_of_other_topics_or_entities(self, d: Driver) -> None:
        await d.start_waiting("r1", topic("order.paid", "order/1", filter="true"), timer("1h"))
        judged = await d.head()
        await d.emit("order.sent", entity="order/1")
        await d.emit("order.paid", entity="order/2")
        d.advance("2h")
        assert await d.resolve_wait("r1", None, examined=judged) == 1

    async def test_both_of_two_filters_must_have_judged(self, d: Driver) -> None:
        await d.start_waiting("r1", big, topic("order.sent", filter="true"), timer("1h"))
        judged = await d.head()
        await d.emit("order.sent", "1")
        d.advance("2h")
        assert await d.resolve_wait("r1", None, ix=0, examined=judged) == 0
        assert await d.resolve_wait("r1", None, ix=0) == 1

    async def test_an_event_at_the_deadline_wins_though_it_is_found_later(self, d: Driver) -> None:
        await d.start_waiting("r1", big, timer("1h"))
        d.advance("1h")
        await d.emit("order.paid", "7")
        found = await d.head()
        d.advance("1h")
        assert await d.resolve_wait("r1", found) == 1
        assert await d.won("r1") == (0, "7")

    async def test_an_event_after_the_deadline_does_not(self, d: Driver) -> None:
        await d.start_waiting("r1", big, timer("1h"))
        d.advance(3600.000001)
        await d.emit("order.paid", "7")
        assert await d.resolve_wait("r1", await d.head()) == 0

    async def test_past_the_deadline_nothing_else_ends_it(self, d: Driver) -> None:
        await d.start_waiting("r1", big, signal("go"), queue("jobs"), paid, timer("1h"))
        d.advance("2h")
        await d.signal("r1", "go", "1")
        await d.put("jobs", "2")
        await d.emit("order.paid", "3")
        assert await d.won("r1") == (None, None)
        assert await d.resolve_wait("r1", None) == 1
        assert await d.won("r1") == (4, "null")
        assert (await d.payloads("r1"), await d.items("jobs")) == (["1"], ["2"])

    # --- steering ---

    async def test_a_paused_run_is_not_judged_and_is_again_when_it_is_resumed(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", big, timer("1h"))
        await d.emit("order.paid", "7")
        found = await d.head()
        await d.pause("r1")
        assert await d.resolve_wait("r1", found) == 0
        assert await d.store.matches(None, 10) == []
        d.advance("2h")
        await d.resume("r1")
        await d.claim()
        answer = await d.suspend("r1", wait("w", big, timer("1h"), known=True))
        assert completed(answer) == []
        assert await d.resolve_wait("r1", found) == 1
        assert await d.won("r1") == (0, "7")

    async def test_an_event_that_does_not_fit_the_type_after_all_is_passed_over(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", big)
        await d.emit("order.paid", "7")
        found = await d.head()
        await d.resolve_wait("r1", found)
        await d.claim()
        await d.reject("r1", wait("w", big, known=True))
        assert await d.resolve_wait("r1", found) == 0
        await d.emit("order.paid", "8")
        assert await d.resolve_wait("r1", await d.head()) == 1
        assert await d.won("r1") == (0, "8")
