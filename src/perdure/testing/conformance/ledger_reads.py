"""Reads of the ledger and of those who read it: by position, by time, by entity; counts that health is judged by."""

from perdure.model import limits
from perdure.store.base import Vitals
from perdure.testing.conformance.consumers import parked
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.subscriptions import put_off
from perdure.testing.conformance.words import HOUR, queue, sleep, topic, wait


class TestLedgerReads(Subject):
    async def test_events_are_read_by_type_and_entity_and_page(self, d: Driver) -> None:
        for number in range(6):
            await d.emit(f"order.{'ab'[number % 2]}", str(number), entity=f"order/{number % 3}")
        read = d.store.events
        assert [one.payload for one in await read(0, 2)] == ["0", "1"]
        assert [one.payload for one in await read(2, 9)] == ["2", "3", "4", "5"]
        assert [one.payload for one in await read(0, 9, type="order.a")] == ["0", "2", "4"]
        assert [one.payload for one in await read(1, 9, entity=("order", "0"))] == ["3"]
        assert await read(6, 9) == []

    async def test_events_are_read_by_the_time_they_occurred(self, d: Driver) -> None:
        now = d.clock.now()
        for payload, ago in (("late", 3), ("b", 1), ("c", 1), ("early", 5)):
            await d.emit("x", f'"{payload}"', occurred_at=now - ago * HOUR, entity="order/1")
        await d.emit("x", '"other"', entity="order/2", occurred_at=now)
        first = await d.store.events_by_time(None, 3)
        at = (first[-1].occurred_at, first[-1].position)
        rest = await d.store.events_by_time(at, 3)
        assert [one.payload for one in first] == ['"early"', '"late"', '"b"']
        assert [one.payload for one in rest] == ['"c"', '"other"']
        timeline = await d.store.events_by_time(None, 9, entity=("order", "1"))
        assert [one.payload for one in timeline] == ['"early"', '"late"', '"b"', '"c"']

    async def test_an_event_is_read_by_its_id(self, d: Driver) -> None:
        await d.emit("x", "1", event_id="e1")
        event = await d.store.event("e1")
        assert event is not None and event.payload == "1"
        assert await d.store.event("e2") is None

    async def test_the_latest_is_that_of_a_topic_or_of_an_entity(self, d: Driver) -> None:
        await d.emit("x", "1", entity="order/1")
        await d.emit("x", "2", entity="order/2")
        await d.emit("y", "3", entity="order/1")

        async def latest(name: str, entity: str) -> str | None:
            event = await d.store.latest(name, entity)
            return None if event is None else event.payload

        assert (await latest("x", ""), await latest("x", "order/1")) == ("2", "1")
        assert (await latest("x", "order/3"), await latest("z", "")) == (None, None)

    async def test_a_repeat_may_be_the_latest(self, d: Driver) -> None:
        await d.emit("x", "1", repeats="ignore")
        await d.emit("x", "1", repeats="ignore", event_id="e2")
        event = await d.store.latest("x", "")
        assert event is not None and event.event_id == "e2"

    async def test_the_span_is_from_the_oldest_to_the_newest(self, d: Driver) -> None:
        assert await d.store.span() == (1, 0)
        await d.emit("x")
        assert await d.store.span() == (1, 1)
        await d.emit("x")
        assert await d.store.span() == (1, 2)
        assert d.store.head <= 2

    async def test_a_time_has_a_position(self, d: Driver) -> None:
        at = d.store.position_at
        assert await at(0) == 0
        began = d.clock.now()
        await d.emit("x")
        await d.emit("x")
        d.advance("1h")
        await d.emit("x", occurred_at=0)
        assert [await at(0), await at(began), await at(began + 1)] == [0, 0, 2]
        assert [await at(d.clock.now()), await at(d.clock.now() + 1)] == [2, 3]
        await d.trim(keep=1)
        assert [await at(0), await at(d.clock.now() + 1)] == [2, 3]

    async def test_who_waits_for_a_topic_is_listed_longest_first(self, d: Driver) -> None:
        for run_id in ("c", "a", "b"):
            await d.start_waiting(run_id, topic("x"), topic("x", filter="true"))
            d.advance("1s")
        await d.start_waiting("other", topic("y"))
        first = await d.store.topic_watchers("x", None, 4)
        last = first[-1]
        after = (last.opened_at, last.run_id, last.path, last.ix)
        rest = await d.store.topic_watchers("x", after, 4)
        assert [(one.run_id, one.kind) for one in first + rest] == [
            (run_id, kind) for run_id in ("c", "a", "b") for kind in ("topic", "match")
        ]

    async def test_whether_keys_have_run_out_is_known(self, d: Driver) -> None:
        await d.emit("x", key="k")
        expired = d.store.keys_have_expired
        ends_at = d.clock.now() + limits.emit_key_us
        assert (await expired(ends_at - 1), await expired(ends_at)) == (False, True)
        d.clock.set(ends_at)
        await d.prune(finished_before=None)
        assert not await expired(ends_at)

    async def test_a_key_that_lives_with_its_run_does_not_run_out(self, d: Driver) -> None:
        await d.start("r1", key="k")
        assert not await d.store.keys_have_expired(d.clock.now() + 10 * limits.emit_key_us)

    async def test_vitals_of_an_empty_store(self, d: Driver) -> None:
        assert await d.store.vitals(d.clock.now()) == Vitals(
            timers_due=0,
            oldest_ready_at=None,
            parked=0,
            deferred=0,
            dead_letters=0,
            schedule_at=None,
        )

    async def test_vitals_tell_what_waits_for_the_engine(self, d: Driver) -> None:
        now = d.clock.now()
        await d.start("r1")
        await d.suspend("r1", sleep("s", "1h"))
        await d.start("r2", owner=None)
        d.advance("1h")
        await d.start("r3", owner=None)
        await d.start("r4", owner=None, delay_us=HOUR)
        await d.put("jobs")
        await d.start("r5")
        await d.suspend("r5", wait("w", queue("jobs")))
        await d.reject("r5", wait("w", queue("jobs"), known=True))
        vitals = await d.store.vitals(d.clock.now())
        assert (vitals.timers_due, vitals.oldest_ready_at) == (1, now)
        assert vitals.dead_letters == 1
        assert (await d.store.vitals(now)).timers_due == 0

    async def test_vitals_tell_what_waits_for_somebody(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer()
        await d.advance_cursor("reader", 2, parked=(parked(1), parked(2)))
        await d.advance_cursor("reader", 3, deferred=(put_off(3),))
        vitals = await d.store.vitals(d.clock.now())
        assert (vitals.parked, vitals.deferred) == (2, 1)

    # --- the catalogue ---

    async def test_channels_are_declared_and_listed(self, d: Driver) -> None:
        assert (await d.declare_topic("x", schema={"type": "integer"})).count == 1
        assert (await d.declare_queue("x", enforce=False)).count == 1
        assert (await d.declare_topic("a", repeats="ignore")).count == 1
        rows = await d.store.channels()
        assert [(one.kind, one.name) for one in rows] == [
            ("queue", "x"),
            ("topic", "a"),
            ("topic", "x"),
        ]
        assert [one.schema for one in rows] == [None, None, '{"type":"integer"}']
        assert [(one.enforce, one.repeats) for one in rows] == [
            (False, "deliver"),
            (True, "ignore"),
            (True, "deliver"),
        ]

    async def test_the_same_channel_again_changes_nothing(self, d: Driver) -> None:
        await d.declare_topic("x")
        assert (await d.declare_topic("x")).count == 0
        assert (await d.declare_topic("x", repeats="ignore")).count == 1

    async def test_one_who_only_sends_changes_no_channel(self, d: Driver) -> None:
        await d.declare_topic("x", repeats="ignore")
        assert (await d.declare_topic("x", only_new=True)).count == 0
        assert (await d.declare_topic("y", only_new=True)).count == 1
        assert [one.repeats for one in await d.store.channels()] == ["ignore", "deliver"]
