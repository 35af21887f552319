"""Retention: the oldest events go, by age or number, in bounded chunks; never what somebody has still to read."""

import pytest

from perdure.model import limits, ops
from perdure.model.outcomes import Emitted, Refusal, Trimmed
from perdure.model.records import RUNNER, ConsumerRecord, DeferredRecord, ParkedRecord
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import topic


async def ten(d: Driver) -> None:
    """Ten events, one an hour."""
    for number in range(10):
        await d.emit("order.paid", str(number))
        d.advance("1h")


async def kept(d: Driver) -> list[int]:
    return [one.position for one in await d.store.events(0, 100)]


async def third_parked(d: Driver) -> ParkedRecord:
    """What `reader` could not deal with."""
    (event,) = await d.store.events(2, 1)
    return ParkedRecord(
        consumer="reader",
        position=3,
        event_id=event.event_id,
        type=event.type,
        reason="it broke",
        attempts=1,
        parked_at=0,
    )


class TestRetention(Subject):
    async def test_events_go_by_number(self, d: Driver) -> None:
        await ten(d)
        assert await d.trim(keep=3) == Trimmed(7)
        assert await kept(d) == [8, 9, 10]
        assert await d.store.span() == (8, 10)

    async def test_events_go_by_age(self, d: Driver) -> None:
        await ten(d)
        (fifth,) = await d.store.events(4, 1)
        assert await d.trim(recorded_before=fifth.recorded_at) == Trimmed(4)
        assert await kept(d) == [5, 6, 7, 8, 9, 10]

    async def test_either_is_enough(self, d: Driver) -> None:
        await ten(d)
        (fifth,) = await d.store.events(4, 1)
        assert await d.trim(recorded_before=fifth.recorded_at, keep=2) == Trimmed(8)

    async def test_the_age_is_that_of_the_record(self, d: Driver) -> None:
        await d.emit("order.paid", occurred_at=1)
        await d.emit("order.paid", occurred_at=1)
        assert await d.trim(recorded_before=d.clock.now()) == Trimmed(0)

    async def test_without_a_measure_nothing_goes(self, d: Driver) -> None:
        await ten(d)
        assert await d.trim() == Trimmed(0)

    async def test_an_empty_ledger_stays_so(self, d: Driver) -> None:
        assert await d.trim(keep=0, recorded_before=d.clock.now()) == Trimmed(0)
        assert await d.store.span() == (1, 0)

    async def test_events_go_in_bounded_chunks(self, d: Driver) -> None:
        await ten(d)
        assert await d.trim(keep=3, limit=4) == Trimmed(4, more=True)
        assert await kept(d) == [5, 6, 7, 8, 9, 10]
        assert await d.trim(keep=3, limit=4) == Trimmed(3)
        assert await d.trim(keep=3, limit=4) == Trimmed(0)

    async def test_the_newest_never_goes_and_positions_go_on(self, d: Driver) -> None:
        await ten(d)
        d.advance("1h")
        assert await d.trim(keep=0, recorded_before=d.clock.now()) == Trimmed(9)
        assert await kept(d) == [10]
        assert await d.emit("order.paid", event_id="e11") == Emitted("e11", 11)
        assert await kept(d) == [10, 11]

    # --- who needs them ---

    async def test_what_a_consumer_has_to_read_stays(self, d: Driver) -> None:
        await ten(d)
        await d.claim_consumer("slow", start=4)
        await d.claim_consumer("quick", start=8)
        assert await d.trim(keep=1) == Trimmed(4, held_by="slow")
        assert await kept(d) == [5, 6, 7, 8, 9, 10]
        await d.advance_cursor("slow", 10)
        assert await d.trim(keep=1) == Trimmed(4, held_by="quick")

    async def test_a_consumer_that_holds_nothing_up_is_not_named(self, d: Driver) -> None:
        await ten(d)
        await d.claim_consumer("reader", start=9)
        assert await d.trim(keep=5) == Trimmed(5)

    async def test_an_idle_consumer_does_not_hold(self, d: Driver) -> None:
        await ten(d)
        await d.claim_consumer("gone", start=2)
        d.advance("1h")
        await d.claim_consumer("reader", start=6)
        assert await d.trim(keep=1, idle_before=d.clock.now()) == Trimmed(6, held_by="reader")

    async def test_a_consumer_that_says_it_is_at_the_end_is_not_idle(self, d: Driver) -> None:
        await ten(d)
        await d.claim_consumer("reader", start=4)
        d.advance("1h")
        await d.advance_cursor("reader", 4)
        assert await d.trim(keep=1, idle_before=d.clock.now()) == Trimmed(4, held_by="reader")

    async def test_force_knows_no_consumer(self, d: Driver) -> None:
        await ten(d)
        await d.claim_consumer("reader", start=2)
        assert await d.trim(keep=1, forced=True) == Trimmed(9)

    async def test_a_parked_event_stays(self, d: Driver) -> None:
        await ten(d)
        await d.claim_consumer("reader", start=9)
        row = await third_parked(d)
        await d.advance_cursor("reader", 9, parked=(row,))
        assert await d.trim(keep=1) == Trimmed(2, held_by="reader")
        await d.drop_parked("reader", (3, ""))
        assert await d.trim(keep=1) == Trimmed(7)

    async def test_so_does_one_that_is_parked_in_the_same_commit(self, d: Driver) -> None:
        await ten(d)
        reader = await d.claim_consumer("reader", start=2)
        assert isinstance(reader, ConsumerRecord)
        row = await third_parked(d)
        parked = ops.AdvanceCursor(
            name="reader", fence=reader.fence, seen=2, position=10, parked=(row,)
        )
        trim = ops.TrimLedger(recorded_before=None, keep=1, limit=100, idle_before=0)
        assert (await d.batch(parked, trim))[1] == Trimmed(2, held_by="reader")
        assert await kept(d) == list(range(3, 11))

    async def test_what_goes_in_two_chunks_of_one_commit_goes_once(self, d: Driver) -> None:
        await ten(d)
        trim = ops.TrimLedger(recorded_before=None, keep=6, limit=3, idle_before=0)
        assert await d.batch(trim, trim) == [Trimmed(3, more=True), Trimmed(1)]
        assert await kept(d) == list(range(5, 11))

    async def test_an_id_is_free_in_the_commit_in_which_its_event_goes(self, d: Driver) -> None:
        await d.apply(d.emit_op("order.paid", "1", event_id="e"))
        await d.apply(d.emit_op("order.paid", "2"))
        trim = ops.TrimLedger(recorded_before=None, keep=1, limit=3, idle_before=0)
        again = d.emit_op("order.paid", "3", event_id="e")
        assert (await d.batch(trim, again))[0] == Trimmed(1)
        assert [one.payload for one in await d.store.events(0, 9)] == ["2", "3"]

    async def test_so_does_one_whose_start_was_put_off(self, d: Driver) -> None:
        await ten(d)
        await d.claim_consumer(RUNNER, start=9)
        (event,) = await d.store.events(2, 1)
        row = DeferredRecord(
            position=3,
            subscription="rule",
            event_id=event.event_id,
            reason="fanout",
            deferred_at=0,
        )
        await d.advance_cursor(RUNNER, 9, deferred=(row,))
        assert await d.trim(keep=1) == Trimmed(2, held_by="rule")
        d.advance("1h")
        await d.advance_cursor(RUNNER, 9)
        assert await d.trim(keep=1, idle_before=d.clock.now()) == Trimmed(7)

    async def test_so_does_what_a_new_rule_has_still_to_catch_up_with(self, d: Driver) -> None:
        await ten(d)
        await d.claim_consumer(RUNNER, start=10)
        await d.subscribe("rule", start=3)
        assert await d.trim(keep=1) == Trimmed(3, held_by="rule")
        await d.advance_cursor(RUNNER, 6, seen=3, caught_up="rule")
        assert await d.trim(keep=1) == Trimmed(3, held_by="rule")
        await d.advance_cursor(RUNNER, 10, seen=6, caught_up="rule")
        assert await d.trim(keep=1) == Trimmed(3)

    async def test_but_not_for_a_runner_that_is_idle(self, d: Driver) -> None:
        await ten(d)
        await d.claim_consumer(RUNNER, start=10)
        await d.subscribe("rule", start=3)
        d.advance("1h")
        assert await d.trim(keep=1, idle_before=d.clock.now()) == Trimmed(9)

    @pytest.mark.parametrize("forced", [False, True])
    async def test_an_event_on_its_way_to_runs_stays(
        self, d: Driver, monkeypatch: pytest.MonkeyPatch, forced: bool
    ) -> None:
        monkeypatch.setattr(limits, "resumed_per_commit_max", 1)
        await d.start_waiting("r1", topic("order.paid"))
        await d.start_waiting("r2", topic("order.paid"))
        await d.emit("order.paid", "1")
        await d.emit("order.sent")
        await d.trim(keep=1, forced=forced)
        await d.fan_out_all()
        assert await d.won("r2") == (0, "1")

    # --- what is left ---

    async def test_what_is_gone_is_found_by_nobody(self, d: Driver) -> None:
        await d.emit("order.paid", entity="order/1", event_id="e1")
        await d.emit("order.sent")
        await d.trim(keep=1)
        assert await d.store.event("e1") is None
        assert await d.store.latest("order.paid", "") is None
        assert await d.store.events_by_time(None, 10, entity=("order", "1")) == []
        assert (await d.store.counts())["events"] == 1

    async def test_a_key_is_remembered_though_its_event_is_gone(self, d: Driver) -> None:
        first = await d.emit("order.paid", "1", key="k")
        await d.emit("order.sent")
        await d.trim(keep=1)
        answer = await d.emit("order.paid", "1", key="k")
        assert getattr(answer, "of", None) == first

    async def test_an_id_is_remembered_for_as_long_as_its_event(self, d: Driver) -> None:
        await d.emit("order.paid", "1", event_id="e1")
        answer = await d.emit("order.paid", "2", event_id="e1")
        assert isinstance(answer, Refusal)
        await d.emit("order.sent")
        await d.trim(keep=1)
        assert isinstance(await d.emit("order.paid", "2", event_id="e1"), Emitted)
