"""Emit: one event is one row; keys, ids, types and repeats are decided before it is one."""

import msgspec
import pytest

from perdure.model import limits, ops
from perdure.model.outcomes import Duplicate, Emitted, Refusal
from perdure.model.schema import schema_digest
from perdure.testing.conformance.driver import Driver, emitted, refused
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import HOUR, topic, wait

_number = {"type": "integer"}


class TestEmit(Subject):
    # --- the row ---

    async def test_an_event_is_appended_with_all_its_fields(self, d: Driver) -> None:
        answer = await d.emit(
            "order.paid",
            '{"sum":7}',
            entity="order/42",
            event_id="e1",
            key="k1",
            occurred_at=d.clock.now() - HOUR,
            caused_by='{"run_id":"r9"}',
            root_id="e0",
            depth=3,
            trace="00-aa-bb-01",
        )
        assert answer == Emitted("e1", 1)
        (event,) = await d.facts()
        assert (event.position, event.event_id, event.type) == (1, "e1", "order.paid")
        assert (event.entity_type, event.entity_id, event.payload) == ("order", "42", '{"sum":7}')
        assert (event.occurred_at, event.recorded_at) == (d.clock.now() - HOUR, d.clock.now())
        assert (event.caused_by, event.root_id, event.depth) == ('{"run_id":"r9"}', "e0", 3)
        assert (event.key, event.trace, event.repeated) == ("k1", "00-aa-bb-01", False)

    async def test_an_event_that_does_not_say_when_it_occurred_occurs_now(self, d: Driver) -> None:
        d.advance("1h")
        await d.emit("order.paid")
        (event,) = await d.facts()
        assert event.occurred_at == event.recorded_at == d.clock.now()

    async def test_an_entity_may_hold_slashes(self, d: Driver) -> None:
        await d.emit("file.seen", entity="file/a/b")
        (event,) = await d.facts()
        assert (event.entity_type, event.entity_id) == ("file", "a/b")

    async def test_an_event_that_nobody_awaits_resumes_nobody(self, d: Driver) -> None:
        await d.start_waiting("r1", topic("order.paid"))
        answer = emitted(await d.emit("order.sent"))
        assert (answer.resumed, answer.more) == (0, False)
        assert await d.status("r1") == "waiting"

    # --- positions ---

    async def test_positions_are_dense_over_ops_and_batches(self, d: Driver) -> None:
        await d.emit("a")
        await d.emit_many(d.event("b"), d.event("c"))
        await d.batch(d.emit_op("d"), d.start_op("r1"), d.emit_op("e"))
        facts = await d.facts()
        assert [one.position for one in facts] == [1, 2, 3, 4, 5, 6]
        assert [one.type for one in facts] == ["a", "b", "c", "d", "workflow.run_started", "e"]

    async def test_a_refused_event_leaves_no_gap(self, d: Driver) -> None:
        await d.declare_topic("order.paid", schema=_number)
        await d.emit("order.paid", "1")
        await d.emit("order.paid", '"x"')
        await d.emit("order.paid", "2")
        assert [one.position for one in await d.facts()] == [1, 2]

    async def test_many_events_have_an_answer_each(self, d: Driver) -> None:
        await d.declare_topic("order.paid", schema=_number)
        answers = await d.emit_many(
            d.event("order.paid", "1", event_id="e1", key="k"),
            d.event("order.paid", "1", event_id="e2", key="k"),
            d.event("order.paid", "2", event_id="e3", key="k"),
            d.event("order.paid", '"x"', event_id="e4"),
            d.event("order.paid", "4", event_id="e5"),
        )
        assert answers[0] == Emitted("e1", 1)
        assert answers[1] == Duplicate(Emitted("e1", 1))
        assert [refused(one) for one in answers[2:4]] == ["conflict", "invalid_payload"]
        assert answers[4] == Emitted("e5", 2)

    async def test_an_op_without_events_is_fine(self, d: Driver) -> None:
        assert await d.emit_many() == ()

    async def test_an_id_made_early_and_recorded_late_comes_later(self, d: Driver) -> None:
        """Ids are identity only: a reader that goes by position misses nothing."""
        early, late = "01A00000000000000000000000", "01B00000000000000000000000"
        await d.emit("order.paid", "1", event_id=late)
        (first,) = await d.store.events(0, 10)
        await d.emit("order.paid", "2", event_id=early)
        assert [one.event_id for one in await d.store.events(first.position, 10)] == [early]

    async def test_a_wait_that_saw_a_later_id_still_gets_the_earlier_one(self, d: Driver) -> None:
        await d.start_waiting("r1", topic("order.paid"))
        await d.emit("order.paid", "1", event_id="01B00000000000000000000000")
        await d.claim()
        await d.suspend("r1", wait("next", topic("order.paid")))
        await d.emit("order.paid", "2", event_id="01A00000000000000000000000")
        assert await d.won("r1", "next") == (0, "2")

    # --- keys ---

    async def test_a_key_used_again_gives_the_first_answer(self, d: Driver) -> None:
        await d.start_waiting("r1", topic("order.paid"))
        first = await d.emit("order.paid", "1", key="k", event_id="e1")
        assert first == Emitted("e1", 2, 1)
        await d.start_waiting("r2", topic("order.paid"))
        again = await d.emit("order.paid", "1", key="k", event_id="e2")
        assert again == Duplicate(first)
        assert len(await d.facts("order.paid")) == 1
        assert await d.status("r2") == "waiting"

    async def test_a_key_used_with_another_payload_is_a_conflict(self, d: Driver) -> None:
        await d.emit("order.paid", "1", key="k")
        assert refused(await d.emit("order.paid", "2", key="k")) == "conflict"
        assert len(await d.facts()) == 1

    async def test_a_key_used_about_another_entity_is_a_conflict(self, d: Driver) -> None:
        await d.emit("order.paid", "1", key="k", entity="order/1")
        assert refused(await d.emit("order.paid", "1", key="k", entity="order/2")) == "conflict"
        assert refused(await d.emit("order.paid", "1", key="k")) == "conflict"

    async def test_a_key_counts_within_its_topic(self, d: Driver) -> None:
        await d.emit("order.paid", "1", key="k")
        emitted(await d.emit("order.sent", "1", key="k"))

    async def test_a_key_comes_before_the_payload(self, d: Driver) -> None:
        await d.emit("order.paid", '"x"', key="k", event_id="e1")
        await d.declare_topic("order.paid", schema=_number)
        assert await d.emit("order.paid", '"x"', key="k") == Duplicate(Emitted("e1", 1))
        own = await d.emit("order.paid", '"x"', key="k", errors=("no number",))
        assert own == Duplicate(Emitted("e1", 1))

    async def test_a_refused_event_does_not_use_its_key_up(self, d: Driver) -> None:
        await d.declare_topic("order.paid", schema=_number)
        await d.emit("order.paid", '"x"', key="k")
        emitted(await d.emit("order.paid", "1", key="k"))

    async def test_a_key_is_remembered_for_a_week(self, d: Driver) -> None:
        await d.emit("order.paid", "1", key="k")
        d.clock.set(d.clock.now() + limits.emit_key_us - 1)
        assert isinstance(await d.emit("order.paid", "1", key="k"), Duplicate)
        d.advance(0.000001)
        emitted(await d.emit("order.paid", "2", key="k"))
        assert refused(await d.emit("order.paid", "1", key="k")) == "conflict"

    async def test_keys_that_ran_out_are_pruned(self, d: Driver) -> None:
        await d.emit("order.paid", "1", key="k")
        await d.put("jobs", "1", key="k")
        assert (await d.store.counts())["keys"] == 2
        d.clock.set(d.clock.now() + limits.emit_key_us)
        await d.prune(finished_before=None)
        assert (await d.store.counts())["keys"] == 0

    # --- ids ---

    async def test_the_same_event_twice_is_told_once(self, d: Driver) -> None:
        await d.emit("order.paid", "1", entity="order/1", event_id="e1")
        again = await d.emit("order.paid", "1", entity="order/1", event_id="e1")
        assert again == Duplicate(Emitted("e1", 1))
        assert len(await d.facts()) == 1

    @pytest.mark.parametrize(
        "other",
        [
            {"type": "order.sent"},
            {"payload": "2"},
            {"entity": "order/2"},
            {"entity": None},
        ],
    )
    async def test_another_event_under_the_same_id_is_a_conflict(
        self, d: Driver, other: dict[str, str]
    ) -> None:
        said = {"type": "order.paid", "payload": "1", "entity": "order/1", "event_id": "e1"}
        await d.emit(**said)
        assert refused(await d.emit(**(said | other))) == "conflict"
        assert len(await d.facts()) == 1

    # --- types ---

    async def test_a_payload_that_does_not_fit_the_catalogue_is_refused(self, d: Driver) -> None:
        await d.declare_topic("order.paid", schema=_number)
        answer = await d.emit("order.paid", '"x"')
        assert isinstance(answer, Refusal)
        assert (answer.code, len(answer.paths)) == ("invalid_payload", 1)
        assert await d.facts() == []

    async def test_what_is_refused_resumes_nobody(self, d: Driver) -> None:
        await d.declare_topic("order.paid", schema=_number)
        await d.start_waiting("r1", topic("order.paid"))
        await d.emit("order.paid", '"x"')
        assert await d.status("r1") == "waiting"

    async def test_a_schema_that_only_documents_refuses_nothing(self, d: Driver) -> None:
        await d.declare_topic("order.paid", schema=_number, enforce=False)
        emitted(await d.emit("order.paid", '"x"'))

    async def test_a_topic_without_a_schema_takes_anything(self, d: Driver) -> None:
        await d.declare_topic("order.paid")
        emitted(await d.emit("order.paid", '"x"'))

    async def test_what_was_checked_against_this_very_schema_is_not_checked_again(
        self, d: Driver
    ) -> None:
        await d.declare_topic("order.paid", schema=_number)
        emitted(await d.emit("order.paid", '"x"', schema=schema_digest(_number)))
        answer = await d.emit("order.paid", '"x"', schema=schema_digest({"type": "string"}))
        assert refused(answer) == "invalid_payload"

    async def test_what_the_emitter_has_against_its_payload_refuses_it(self, d: Driver) -> None:
        answer = await d.emit("order.paid", "1", errors=("no order",))
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.paths) == ("invalid_payload", ("no order",))

    # --- repeats ---

    async def test_a_repeat_is_on_the_ledger_and_resumes_nobody(self, d: Driver) -> None:
        await d.emit("stock.level", "7", repeats="ignore")
        await d.start_waiting("r1", topic("stock.level"))
        answer = emitted(await d.emit("stock.level", "7", repeats="ignore"))
        assert (answer.resumed, await d.status("r1")) == (0, "waiting")
        assert [one.repeated for one in await d.facts("stock.level")] == [False, True]

    async def test_a_repeat_about_a_run_ends_no_later_wait_either(self, d: Driver) -> None:
        for _ in range(2):
            await d.emit("stock.level", "7", entity="run/other", repeats="ignore")
        await d.start("r1")
        level = topic("stock.level", entity="run/other", since="ever")
        await d.suspend("r1", wait("w1", level))
        assert (await d.step("r1", "w1")).state == "done"
        await d.suspend("r1", wait("w2", level))
        assert (await d.step("r1", "w2")).state == "open"

    async def test_what_differs_from_the_last_one_is_no_repeat(self, d: Driver) -> None:
        for payload in ("7", "8", "7", "7", "8"):
            await d.emit("stock.level", payload, repeats="ignore")
        assert [one.repeated for one in await d.facts()] == [False, False, False, True, False]

    async def test_repeats_are_told_by_entity(self, d: Driver) -> None:
        await d.emit("stock.level", "7", entity="sku/1", repeats="ignore")
        await d.emit("stock.level", "7", entity="sku/2", repeats="ignore")
        await d.emit("stock.level", "7", entity="sku/1", repeats="ignore")
        assert [one.repeated for one in await d.facts()] == [False, False, True]

    async def test_an_event_about_nothing_does_not_repeat_one_about_something(
        self, d: Driver
    ) -> None:
        await d.emit("stock.level", "7", entity="sku/1", repeats="ignore")
        await d.emit("stock.level", "7", repeats="ignore")
        await d.emit("stock.level", "7", repeats="ignore")
        assert [one.repeated for one in await d.facts()] == [False, False, True]

    async def test_the_catalogue_decides_for_those_who_have_only_a_name(self, d: Driver) -> None:
        await d.declare_topic("stock.level", repeats="ignore")
        await d.emit("stock.level", "7")
        await d.emit("stock.level", "7")
        await d.emit("stock.level", "7", repeats="deliver")
        assert [one.repeated for one in await d.facts()] == [False, True, False]

    async def test_a_wait_that_opens_passes_repeats_over(self, d: Driver) -> None:
        await d.emit("stock.level", "7", repeats="ignore")
        await d.start("r1")
        await d.emit("stock.level", "7", repeats="ignore")
        await d.suspend("r1", wait("w", topic("stock.level")))
        assert await d.status("r1") == "waiting"
        await d.emit("stock.level", "8", repeats="ignore")
        assert await d.won("r1") == (0, "8")

    # --- from within a run ---

    async def test_a_run_emits_together_with_its_record(self, d: Driver) -> None:
        await d.start("r1", root_id="e0", depth=2, entity_type="order", entity_id="1")
        await d.start_waiting("r2", topic("order.paid"))
        await d.record_send("r1", "tell", d.emit_op("order.paid", "1"), kind="emit")
        (event,) = await d.facts("order.paid")
        assert (event.root_id, event.depth) == ("e0", 2)
        assert await d.won("r2") == (0, "1")
        (answer,) = msgspec.json.decode((await d.step("r1", "tell")).value or "")
        assert (answer["position"], answer["resumed"]) == (event.position, 1)

    async def test_a_refusal_is_recorded_with_the_run(self, d: Driver) -> None:
        await d.declare_topic("order.paid", schema=_number)
        await d.start("r1")
        await d.record_send("r1", "tell", d.emit_op("order.paid", '"x"'), kind="emit")
        step = await d.step("r1", "tell")
        assert (step.state, "invalid_payload" in (step.error or "")) == ("failed", True)

    async def test_of_a_runs_events_all_are_appended_or_none(self, d: Driver) -> None:
        await d.declare_topic("order.paid", schema=_number)
        await d.start("r1")
        both = d.event("order.sent"), d.event("order.paid", '"x"')
        await d.record_send("r1", "tell", ops.Emit(events=both), kind="emit")
        assert await d.facts("order.sent") == []

    async def test_also_when_they_clash_with_each_other(self, d: Driver) -> None:
        await d.start("r1")
        clash = [d.event("order.paid", payload, key="k") for payload in ("1", "2")]
        await d.record_send("r1", "tell", ops.Emit(events=tuple(clash)), kind="emit")
        assert ((await d.step("r1", "tell")).state, await d.facts("order.paid")) == ("failed", [])

    async def test_or_say_something_else_under_one_id(self, d: Driver) -> None:
        await d.start("r1")
        clash = [d.event("order.paid", payload, event_id="e1") for payload in ("1", "2")]
        await d.record_send("r1", "tell", ops.Emit(events=tuple(clash)), kind="emit")
        assert ((await d.step("r1", "tell")).state, await d.facts("order.paid")) == ("failed", [])

    async def test_what_has_neither_key_nor_id_clashes_with_nothing(self, d: Driver) -> None:
        await d.start("r1")
        events = [d.event("order.paid", payload) for payload in ("1", "2", "2")]
        await d.record_send("r1", "tell", ops.Emit(events=tuple(events)), kind="emit")
        assert [one.payload for one in await d.facts("order.paid")] == ["1", "2", "2"]

    async def test_what_is_told_twice_in_one_op_is_appended_once(self, d: Driver) -> None:
        await d.start("r1")
        same = [d.event("order.paid", "1", key="k"), d.event("order.paid", "1", key="k")]
        await d.record_send("r1", "tell", ops.Emit(events=tuple(same)), kind="emit")
        (event,) = await d.facts("order.paid")
        first, second = msgspec.json.decode((await d.step("r1", "tell")).value or "")
        assert (first["position"], second) == (event.position, {"duplicate_of": first})

    async def test_a_run_can_end_its_own_wait_by_an_event(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("gather[0]/w", topic("order.paid")), park=False)
        await d.record_send("r1", "tell", d.emit_op("order.paid", "1"), kind="emit")
        assert await d.won("r1", "gather[0]/w") == (0, "1")
        assert await d.status("r1") == "running"
