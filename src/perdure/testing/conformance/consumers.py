"""Consumers: one owner each; the cursor moves together with what the consumer wants done, or not at all."""

from typing import Any

from perdure.model import limits, ops
from perdure.model.keys import consumer_scope
from perdure.model.outcomes import (
    Buffered,
    Counted,
    CursorMoved,
    Duplicate,
    Emitted,
    Fenced,
    Moved,
    Queued,
    Refusal,
    Started,
)
from perdure.model.records import ConsumerRecord, ParkedRecord
from perdure.testing.conformance.driver import Driver, refused
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import WORKER, effect, topic


async def reading(d: Driver, name: str = "reader", **fields: Any) -> ConsumerRecord:
    """A consumer of this worker."""
    consumer = await d.claim_consumer(name, **fields)
    assert isinstance(consumer, ConsumerRecord), consumer
    return consumer


def parked(position: int, *, consumer: str = "reader", subscription: str = "") -> ParkedRecord:
    return ParkedRecord(
        consumer=consumer,
        position=position,
        subscription=subscription,
        event_id=f"e{position}",
        type="order.paid",
        reason="it broke",
        attempts=3,
        parked_at=0,
    )


async def clashing(d: Driver) -> ops.Effect:
    """A start that a subscription asked for about the second event, and that was refused."""
    await d.emit_numbers()
    await reading(d)
    await d.start("r1")
    clash = effect(d.start_op("r1", input="2"), 2, subscription="rule")
    await d.advance_cursor("reader", 3, clash)
    return clash


class TestConsumers(Subject):
    # --- claims ---

    async def test_the_first_claim_makes_the_consumer(self, d: Driver) -> None:
        made = await reading(d, patterns='["order.*"]', every="*/5 * * * *", zone="Asia/Tokyo")
        assert (made.name, made.owner, made.position) == ("reader", WORKER, 0)
        assert (made.patterns, made.every, made.zone) == (
            '["order.*"]',
            "*/5 * * * *",
            "Asia/Tokyo",
        )
        assert made.created_at == made.advanced_at == d.clock.now()
        assert await d.store.consumers() == [made]

    async def test_a_consumer_has_one_owner(self, d: Driver) -> None:
        await d.beat("worker-2")
        first = await reading(d)
        assert refused(await d.claim_consumer("reader", "worker-2")) == "owned"
        assert await d.consumer("reader") == first

    async def test_a_dead_owner_is_taken_over(self, d: Driver) -> None:
        head = await d.emit_numbers()
        await d.beat("worker-2", lease_us=1_000_000)
        await d.claim_consumer("reader", "worker-2")
        await d.advance_cursor("reader", head - 1)
        d.advance("2s")
        taken = await reading(d)
        assert (taken.owner, taken.position) == (WORKER, head - 1)

    async def test_a_worker_that_stopped_is_taken_over(self, d: Driver) -> None:
        await d.beat("worker-2")
        await d.claim_consumer("reader", "worker-2")
        await d.beat("worker-2", stopping=True)
        assert (await reading(d)).owner == WORKER

    async def test_the_owner_may_claim_again_with_new_settings(self, d: Driver) -> None:
        head = await d.emit_numbers()
        await reading(d)
        await d.advance_cursor("reader", 2)
        again = await reading(d, patterns='["x"]', every="* * * * *", start=head)
        assert (again.patterns, again.every, again.position) == ('["x"]', "* * * * *", 2)

    async def test_consumers_are_listed_by_name(self, d: Driver) -> None:
        for name in ("b", "c", "a"):
            await reading(d, name)
        assert [one.name for one in await d.store.consumers()] == ["a", "b", "c"]

    # --- where it begins ---

    async def test_a_new_one_begins_where_it_is_told_to(self, d: Driver) -> None:
        head = await d.emit_numbers()
        assert (await reading(d, "all", start=0)).position == 0
        assert (await reading(d, "some", start=2)).position == 2
        assert (await reading(d, "new", start=None)).position == head
        assert (await reading(d, "ahead", start=99)).position == head

    async def test_or_with_what_was_recorded_from_a_time_on(self, d: Driver) -> None:
        await d.emit_numbers(2)
        d.advance("1h")
        noon = d.clock.now()
        await d.emit_many(d.event("order.paid"), d.event("order.paid"))
        assert (await reading(d, "a", start_at=noon)).position == 2
        assert (await reading(d, "b", start_at=noon + 1)).position == 4
        assert (await reading(d, "c", start_at=0)).position == 0

    # --- the cursor ---

    async def test_the_owner_moves_the_cursor(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d)
        d.advance("1m")
        answer = await d.advance_cursor("reader", 3)
        assert isinstance(answer, CursorMoved)
        assert answer.consumer == await d.consumer("reader")
        assert (answer.consumer.position, answer.consumer.advanced_at) == (3, d.clock.now())

    async def test_a_stale_owner_is_refused(self, d: Driver) -> None:
        await d.emit_numbers()
        old = await reading(d)
        await reading(d)
        put = effect(d.put_op("jobs"))
        assert isinstance(await d.advance_cursor("reader", 3, put, fence=old.fence), Fenced)
        assert ((await d.consumer("reader")).position, await d.items("jobs")) == (0, [])

    async def test_so_is_one_that_never_claimed(self, d: Driver) -> None:
        op = ops.AdvanceCursor(name="nobody", fence=1, seen=0, position=1)
        assert isinstance(await d.apply(op), Fenced)

    async def test_a_cursor_that_was_moved_meanwhile_stays(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d, start=4)
        await d.steer_consumer("reader", position=1)
        put = effect(d.put_op("jobs"))
        assert await d.advance_cursor("reader", 5, put, seen=4) == Moved(1)
        assert ((await d.consumer("reader")).position, await d.items("jobs")) == (1, [])

    async def test_a_batch_that_failed_is_told_with_the_cursor(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d)
        await d.advance_cursor("reader", 0, error="ValueError: no")
        assert (await d.consumer("reader")).error == "ValueError: no"
        await d.advance_cursor("reader", 1)
        assert (await d.consumer("reader")).error is None

    # --- steering ---

    async def test_a_consumer_is_paused_and_resumed(self, d: Driver) -> None:
        await reading(d)
        answer = await d.steer_consumer("reader", paused=True, reason="maintenance")
        assert answer == await d.consumer("reader")
        assert (answer.paused, answer.reason) == (True, "maintenance")
        assert any(one.kind == "consumer" for one in d.heard[-1].wakes)
        await d.steer_consumer("reader", paused=False, reason="done")
        now = await d.consumer("reader")
        assert (now.paused, now.reason) == (False, None)

    async def test_a_pause_outlives_the_owner(self, d: Driver) -> None:
        await reading(d)
        await d.steer_consumer("reader", paused=True, reason="maintenance")
        assert (await reading(d)).paused

    async def test_a_cursor_is_moved_to_a_position_or_a_time(self, d: Driver) -> None:
        await d.emit_numbers(2)
        d.advance("1h")
        noon = d.clock.now()
        await d.emit_many(d.event("order.paid"), d.event("order.paid"))
        head = await d.head()
        await reading(d, start=None)
        for where, position in (
            ({"position": 1}, 1),
            ({"at": noon}, 2),
            ({"position": 0}, 0),
            ({"position": 99}, head),
            ({"at": noon + 1}, head),
        ):
            answer = await d.steer_consumer("reader", **where)
            assert isinstance(answer, ConsumerRecord) and answer.position == position

    async def test_what_is_under_way_when_the_cursor_is_moved_is_not_committed(
        self, d: Driver
    ) -> None:
        """Not even if it is moved to where it stands, and back and forth: the owner reads the new fence."""
        await d.emit_numbers()
        before = await reading(d)
        for position in (3, 0, 0):
            await d.steer_consumer("reader", position=position)
            late = await d.advance_cursor("reader", 2, fence=before.fence, seen=before.position)
            assert isinstance(late, Fenced)
        row = await d.consumer("reader")
        assert (row.position, row.owner) == (0, before.owner)
        assert isinstance(await d.advance_cursor("reader", 2), CursorMoved)

    async def test_a_pause_lets_what_is_under_way_be_committed(self, d: Driver) -> None:
        await d.emit_numbers()
        before = await reading(d)
        await d.steer_consumer("reader", paused=True)
        answer = await d.advance_cursor("reader", 2, fence=before.fence, seen=before.position)
        assert isinstance(answer, CursorMoved) and answer.consumer.paused

    async def test_moving_the_cursor_leaves_the_pause_alone(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d)
        await d.steer_consumer("reader", paused=True, reason="maintenance")
        await d.steer_consumer("reader", position=3)
        assert (await d.consumer("reader")).reason == "maintenance"

    async def test_a_cursor_cannot_go_back_to_what_is_gone(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.trim(keep=2)
        await reading(d, start=None)
        answer = await d.steer_consumer("reader", position=1)
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.detail) == ("cursor_too_old", "4")
        assert (await d.consumer("reader")).position == 5

    async def test_the_beginning_is_the_oldest_that_is_kept(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.trim(keep=2)
        await reading(d, start=None)
        for where in ({"position": 0}, {"at": 0}):
            answer = await d.steer_consumer("reader", **where)
            assert isinstance(answer, ConsumerRecord) and answer.position == 3

    async def test_nobody_can_be_steered_who_never_ran(self, d: Driver) -> None:
        assert refused(await d.steer_consumer("nobody", paused=True)) == "no_consumer"


class TestEffects(Subject):
    async def test_effects_and_cursor_are_one_commit(self, d: Driver) -> None:
        head = await d.emit_numbers()
        await reading(d)
        await d.start("r1")
        await d.start_waiting("r2", topic("order.sent"))
        answer = await d.advance_cursor(
            "reader",
            head,
            effect(d.start_op("new", owner=None), 1),
            effect(d.signal_op("r1", "go", "1", signal_id="s1"), 2),
            effect(d.emit_op("order.sent", "2", event_id="new"), 3),
            effect(d.put_op("jobs", "3", item_id="i1"), 4),
        )
        assert isinstance(answer, CursorMoved)
        started, sent, told_of, put = answer.outcomes
        assert isinstance(started, Started) and started.created
        assert (sent, put) == (Buffered("s1"), Queued("i1"))
        assert told_of == (Emitted("new", await d.head(), 1),)
        assert (await d.status("new"), await d.won("r2")) == ("ready", (0, "2"))

    async def test_a_refused_effect_leaves_a_fact_and_holds_nothing_up(self, d: Driver) -> None:
        head = await d.emit_numbers()
        await reading(d)
        await d.start("over")
        await d.finish("over")
        await d.declare_queue("jobs", schema={"type": "integer"})
        await d.declare_topic("order.sent", schema={"type": "integer"})
        await d.advance_cursor(
            "reader",
            head,
            effect(d.signal_op("nobody", "go"), 1),
            effect(d.signal_op("over", "go"), 2),
            effect(d.put_op("jobs", '"x"'), 3),
            effect(d.emit_op("order.sent", '"x"'), 4),
            effect(d.start_op("over", input="2"), 5),
            effect(d.put_op("jobs", "7"), 5),
        )
        facts = await d.told("ledger.effect_refused")
        assert [one["position"] for one in facts] == [1, 2, 3, 4, 5]
        assert {one["consumer"] for one in facts} == {"reader"}
        assert [one["effect"] for one in facts] == [
            "SendSignal",
            "SendSignal",
            "Put",
            "Emit",
            "StartRun",
        ]
        assert (await d.consumer("reader")).position == head
        assert await d.items("jobs") == ["7"]

    async def test_such_a_fact_is_always_told(self, quiet: Driver) -> None:
        await quiet.emit_numbers(1)
        await reading(quiet)
        await quiet.advance_cursor("reader", 1, effect(quiet.signal_op("nobody", "go"), 1))
        assert len(await quiet.told("ledger.effect_refused")) == 1

    async def test_such_a_fact_resumes_who_waits_for_it(self, d: Driver) -> None:
        await d.emit_numbers(1)
        await reading(d)
        await d.start_waiting("r1", topic("ledger.effect_refused"))
        await d.advance_cursor("reader", 1, effect(d.signal_op("nobody", "go"), 1))
        await d.fan_out_all()
        assert (await d.won("r1"))[0] == 0

    async def test_such_a_fact_is_not_told_about_itself(self, d: Driver) -> None:
        await d.emit_numbers(1)
        await reading(d)
        await d.advance_cursor("reader", 1, effect(d.signal_op("nobody", "go"), 1))
        head = await d.head()
        await d.advance_cursor("reader", head, effect(d.signal_op("nobody", "go"), head))
        assert len(await d.told("ledger.effect_refused")) == 1

    async def test_a_consumer_that_emits_what_it_reads_ends_by_its_depth(self, d: Driver) -> None:
        await d.emit_numbers(1)
        await reading(d)
        most = limits.event_depth_max
        deep = d.emit_op("order.paid", depth=most), d.emit_op("order.paid", depth=most + 1)
        await d.advance_cursor("reader", 1, *(effect(one, 1) for one in deep))
        assert [one.depth for one in await d.facts("order.paid")] == [0, most]
        (fact,) = await d.told("ledger.effect_refused")
        assert "event_depth_max" in fact["reason"]

    async def test_a_consumer_that_nobody_reads_for_can_be_forgotten(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.beat("worker-2")
        await reading(d, worker_id="worker-2")
        await d.advance_cursor("reader", 1, parked=(parked(1),))
        assert refused(await d.apply(ops.DropConsumer(name="reader"))) == "owned"
        await d.beat("worker-2", stopping=True)
        assert await d.apply(ops.DropConsumer(name="reader")) == Counted(1)
        assert await d.store.consumers() == []
        assert await d.store.parked(None, None, 10) == []
        assert refused(await d.apply(ops.DropConsumer(name="reader"))) == "no_consumer"

    async def test_a_repeated_effect_is_no_refusal(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d)
        once = [d.put_op("jobs", "1", key="k") for _ in range(2)]
        await d.advance_cursor("reader", 1, effect(once[0], 1))
        answer = await d.advance_cursor("reader", 2, effect(once[1], 2))
        assert isinstance(answer, CursorMoved)
        assert isinstance(answer.outcomes[0], Duplicate)
        assert await d.told("ledger.effect_refused") == []

    async def test_keys_that_are_finished_are_remembered_for_a_month(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d)
        await d.advance_cursor("reader", 1, finished=("a", "b"))
        known = d.store.known_keys
        scope = consumer_scope("reader")
        assert await known(scope, ("a", "b", "c"), d.clock.now()) == {"a", "b"}
        assert await known(consumer_scope("other"), ("a",), d.clock.now()) == set()
        d.clock.set(d.clock.now() + limits.dedupe_key_us - 1)
        assert await known(scope, ("a", "b"), d.clock.now()) == {"a", "b"}
        d.clock.set(d.clock.now() + 1)
        assert isinstance(await d.advance_cursor("reader", 2, finished=("b",)), CursorMoved)
        assert await known(scope, ("a", "b"), d.clock.now()) == {"b"}

    async def test_nothing_is_done_for_a_key_that_is_finished_by_now(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d)
        wanted = [effect(d.put_op("jobs", str(n)), n) for n in range(1, 5)]
        await d.commit_effects("reader", wanted[0], finished=("a",))
        assert await d.advance_cursor("reader", 2, wanted[1], finished=("b", "a")) == Moved(0)
        assert (await d.consumer("reader")).position == 0
        answer = await d.advance_cursor("reader", 2, wanted[2], finished=("b",))
        assert isinstance(answer, CursorMoved)
        assert await d.commit_effects("reader", wanted[3], finished=("b",)) == Counted(0)
        assert await d.items("jobs") == ["1", "3"]

    async def test_effects_of_an_event_fired_anew_leave_the_cursor(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d, start=4)
        answer = await d.commit_effects("reader", effect(d.put_op("jobs", "1"), 2), finished=("a",))
        assert answer == Counted(1)
        assert ((await d.consumer("reader")).position, await d.items("jobs")) == (4, ["1"])
        scope = consumer_scope("reader")
        assert await d.store.known_keys(scope, ("a",), d.clock.now()) == {"a"}


class TestParked(Subject):
    async def test_who_comes_back_in_the_commit_it_was_dropped_in_begins_anew(
        self, d: Driver
    ) -> None:
        await d.emit_numbers()
        await d.claim_consumer("reader", "gone")
        await d.advance_cursor("reader", 3, parked=(parked(2),))
        comes = ops.ClaimConsumer(
            name="reader", worker_id=WORKER, fence=d.fence(), patterns='["**"]', start=0
        )
        await d.batch(ops.DropConsumer(name="reader"), comes)
        assert await d.store.parked("reader", None, 10) == []

    async def test_an_event_is_parked_together_with_the_cursor(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d)
        d.advance("1m")
        await d.advance_cursor("reader", 3, parked=(parked(2),))
        (row,) = await d.store.parked("reader", None, 10)
        assert (row.position, row.reason, row.attempts) == (2, "it broke", 3)
        assert (row.parked_at, (await d.consumer("reader")).position) == (d.clock.now(), 3)
        assert (await d.store.vitals(d.clock.now())).parked == 1

    async def test_it_is_not_when_the_cursor_is_refused(self, d: Driver) -> None:
        await d.emit_numbers()
        old = await reading(d)
        await reading(d)
        await d.advance_cursor("reader", 3, parked=(parked(2),), fence=old.fence)
        assert await d.store.parked(None, None, 10) == []

    async def test_parked_events_are_listed_by_page(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d)
        await reading(d, "other")
        rows = tuple(parked(number) for number in (3, 1, 2))
        await d.advance_cursor("reader", 3, parked=rows)
        await d.advance_cursor("other", 3, parked=(parked(1, consumer="other"),))
        first = await d.store.parked(None, None, 2)
        last = first[-1]
        rest = await d.store.parked(None, (last.consumer, last.position, last.subscription), 5)
        assert [(one.consumer, one.position) for one in first + rest] == [
            ("other", 1),
            ("reader", 1),
            ("reader", 2),
            ("reader", 3),
        ]
        assert len(await d.store.parked("other", None, 10)) == 1

    async def test_a_parked_event_is_dealt_with_once(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d)
        await d.advance_cursor("reader", 3, parked=(parked(2),))
        again = [effect(d.put_op("jobs", "1"), 2), effect(d.put_op("jobs", "2"), 2)]
        assert await d.commit_effects("reader", again[0], unpark=(2, "")) == Counted(1)
        assert await d.commit_effects("reader", again[1], unpark=(2, "")) == Counted(0)
        assert (await d.items("jobs"), await d.store.parked(None, None, 10)) == (["1"], [])

    async def test_what_fails_again_stays_parked(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d)
        await d.advance_cursor("reader", 3, parked=(parked(2),))
        answer = await d.commit_effects(
            "reader", effect(d.put_op("jobs", "1"), 2), unpark=(2, ""), reason="it broke again"
        )
        assert (answer, await d.items("jobs")) == (Counted(0), [])
        (row,) = await d.store.parked(None, None, 10)
        assert (row.reason, row.attempts) == ("it broke again", 4)

    async def test_parked_events_are_dropped(self, d: Driver) -> None:
        await d.emit_numbers()
        await reading(d)
        await d.advance_cursor("reader", 3, parked=(parked(1), parked(2), parked(3)))
        assert await d.drop_parked("reader", (1, ""), (3, ""), (9, "")) == Counted(2)
        assert await d.drop_parked("other", (2, "")) == Counted(0)
        assert [one.position for one in await d.store.parked(None, None, 10)] == [2]

    async def test_a_refused_start_of_a_subscription_is_parked(self, d: Driver) -> None:
        await clashing(d)
        (row,) = await d.store.parked("reader", None, 10)
        event = (await d.facts("order.paid"))[1]
        assert (row.subscription, row.event_id, row.type) == ("rule", event.event_id, event.type)
        assert (row.position, row.attempts, "conflict" in row.reason) == (2, 1, True)
        assert await d.told("ledger.effect_refused") == []

    async def test_one_that_is_refused_again_has_one_more_attempt(self, d: Driver) -> None:
        clash = await clashing(d)
        await d.commit_effects("reader", clash, unpark=(2, "rule"))
        (row,) = await d.store.parked("reader", None, 10)
        assert row.attempts == 2
