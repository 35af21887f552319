"""The catalogue: what workflows declare decides how their signals are kept, for senders that have only a name."""

import msgspec
import pytest
from msgspec.structs import replace

from perdure.model import ops
from perdure.model.outcomes import (
    Buffered,
    Counted,
    Delivered,
    Duplicate,
    Emitted,
    Queued,
    Refusal,
    Started,
)
from perdure.model.schema import schema_digest
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import declared, entry, signal

number: dict[str, object] = {"type": "integer"}
# Asks for what the store does not check.
not_zero: dict[str, object] = {"type": "integer", "not": {"const": 0}}


class TestCatalogue(Subject):
    async def test_what_is_declared_is_there_for_all(self, d: Driver) -> None:
        lines = (declared(go=entry()), declared(workflow="a", version=2), declared(workflow="a"))
        assert await d.declare(*lines) == Counted(3)
        found = await d.store.catalogue()
        assert [(one.name, one.version) for one in found] == [("a", 1), ("a", 2), ("orders", 1)]
        assert lines[0] in found

    async def test_declaring_the_same_again_writes_nothing(self, d: Driver) -> None:
        await d.declare(declared(go=entry()))
        before = await dump(d.store)
        assert await d.declare(declared(go=entry())) == Counted(0)
        assert await dump(d.store) == before

    async def test_who_tells_only_what_is_new_changes_nothing_that_is_there(
        self, d: Driver
    ) -> None:
        """Also in the very batch that declared it: who looked before may have found nothing yet."""
        ours, theirs = declared(go=entry("all")), declared(stop=entry())
        new = declared(workflow="a")
        told = ops.Declare(workflows=(theirs, new), only_new=True)
        answers = await d.batch(ops.Declare(workflows=(ours,)), told)
        assert answers == [Counted(1), Counted(1)]
        assert await d.store.catalogue() == [new, ours]
        assert await d.declare(theirs, new, only_new=True) == Counted(0)
        assert await d.store.catalogue() == [new, ours]

    async def test_a_changed_declaration_counts_from_then_on(self, d: Driver) -> None:
        await d.declare(declared(go=entry("latest")))
        await d.start("r1")
        await d.signal("r1", "go", "1")
        assert await d.declare(declared(go=entry("all"))) == Counted(1)
        await d.signal("r1", "go", "2")
        assert await d.payloads("r1") == ["1", "2"]

    async def test_a_name_that_is_not_declared_is_unknown(self, d: Driver) -> None:
        await d.declare(declared(go=entry(), stop=entry()))
        await d.start("r1")
        before = await dump(d.store)
        answer = await d.signal("r1", "gone", key="k")
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.detail, answer.paths) == (
            "unknown_signal",
            "gone",
            ("go", "stop"),
        )
        assert await dump(d.store) == before

    async def test_a_workflow_that_declares_none_accepts_any(self, d: Driver) -> None:
        await d.declare(declared(strict=False, go=entry("all")))
        await d.start("r1")
        assert isinstance(await d.signal("r1", "anything"), Buffered)

    async def test_what_one_process_saw_a_workflow_wait_for_stays_known(self, d: Driver) -> None:
        await d.declare(declared(strict=False, go=entry("all")))
        await d.declare(declared(strict=False, stop=entry("first")))
        await d.start("r1")
        for name in ("go", "go", "stop", "stop"):
            await d.signal("r1", name)
        assert [one.name for one in await d.store.buffered("r1")] == ["go", "go", "stop"]

    async def test_a_workflow_that_begins_to_declare_forgets_what_was_only_seen(
        self, d: Driver
    ) -> None:
        await d.declare(declared(strict=False, go=entry("all")))
        await d.declare(declared(stop=entry()))
        await d.start("r1")
        answer = await d.signal("r1", "go")
        assert isinstance(answer, Refusal) and answer.code == "unknown_signal"

    async def test_a_workflow_that_nobody_declared_accepts_any(self, d: Driver) -> None:
        await d.start("r1", workflow="unheard-of")
        assert isinstance(await d.signal("r1", "anything"), Buffered)

    async def test_a_declaration_is_of_one_version(self, d: Driver) -> None:
        await d.declare(declared(go=entry()), declared(version=2, stop=entry()))
        await d.start("r1", version=2)
        assert isinstance(await d.signal("r1", "stop"), Buffered)
        assert isinstance(await d.signal("r1", "go"), Refusal)

    async def test_the_declared_policy_is_used_for_a_sender_that_has_only_a_name(
        self, d: Driver
    ) -> None:
        await d.declare(declared(one=entry("first"), many=entry("all"), last=entry("latest")))
        await d.start("r1")
        for name in ("one", "many", "last"):
            for payload in ("1", "2"):
                await d.signal("r1", name, payload)
        kept = [(one.name, one.payload, one.policy) for one in await d.store.buffered("r1")]
        assert kept == [
            ("one", "1", "first"),
            ("many", "1", "all"),
            ("many", "2", "all"),
            ("last", "2", "latest"),
        ]

    async def test_another_policy_than_the_declared_one_is_a_conflict(self, d: Driver) -> None:
        await d.declare(declared(go=entry("first")))
        await d.start_waiting("r1", signal("go"))
        answer = await d.signal("r1", "go", policy="all")
        assert isinstance(answer, Refusal) and answer.code == "conflict"
        assert isinstance(await d.signal("r1", "go", policy="first"), Delivered)

    async def test_the_declared_time_to_live_and_end_count(self, d: Driver) -> None:
        await d.declare(declared(go=entry("all", ttl="1m", on_end="dead_letter")))
        await d.start("r1")
        await d.signal("r1", "go", "1")
        (kept,) = await d.store.buffered("r1")
        assert (kept.on_end, kept.expires_at) == ("dead_letter", d.clock.now() + 60_000_000)

    async def test_a_run_that_went_on_as_another_workflow_listens_to_its_signals(
        self, d: Driver
    ) -> None:
        await d.declare(declared(go=entry()), declared(workflow="refunds", stop=entry()))
        await d.start("r1")
        await d.continue_as("r1", workflow="refunds")
        assert isinstance(await d.signal("r1", "stop"), Buffered)
        assert isinstance(await d.signal("r1", "go"), Refusal)

    async def test_a_key_is_looked_at_before_the_declaration(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "gone", "1", key="k")
        await d.declare(declared(go=entry()))
        assert type(await d.signal("r1", "gone", "1", key="k")).__name__ == "Duplicate"

    # --- the declared type ---

    @pytest.mark.parametrize("policy", [None, "latest"])
    async def test_what_does_not_fit_the_declared_type_is_refused(
        self, d: Driver, policy: str | None
    ) -> None:
        """Also from a sender with a signal of its own: the workflow's declaration decides."""
        await d.declare(declared(go=entry(schema=number)))
        await d.start_waiting("r1", signal("go"))
        before = await dump(d.store)
        answer = await d.signal("r1", "go", '"no"', policy=policy, key="k", schema="of another")
        assert isinstance(answer, Refusal) and answer.code == "invalid_payload"
        assert len(answer.paths) == 1 and "integer" in answer.paths[0]
        assert await dump(d.store) == before
        assert isinstance(await d.signal("r1", "go", "1", policy=policy, key="k"), Delivered)

    async def test_a_workflow_that_sends_is_refused_on_record(self, d: Driver) -> None:
        await d.declare(declared(workflow="refunds", go=entry(schema=number)))
        await d.start("r2", workflow="refunds")
        await d.start("r1")
        await d.record_send("r1", "s", d.signal_op("r2", "go", '"no"'))
        step = await d.step("r1", "s")
        assert step.state == "failed" and "invalid_payload" in (step.error or "")
        assert await d.payloads("r2") == []

    async def test_what_was_checked_against_the_declared_type_is_not_checked_again(
        self, d: Driver
    ) -> None:
        await d.declare(declared(go=entry(schema=number)))
        await d.start("r1")
        sent = await d.signal("r1", "go", '"no"', schema=schema_digest(number))
        assert isinstance(sent, Buffered)

    async def test_a_sender_that_can_check_what_the_store_cannot_is_asked_to(
        self, d: Driver
    ) -> None:
        await d.declare(declared(go=entry(schema=not_zero), plain=entry(schema=number)))
        await d.start_waiting("r1", signal("go"))
        before = await dump(d.store)
        answer = await d.signal("r1", "go", "1", by_name=True, key="k", schema="of another")
        assert answer == Refusal("unchecked", "the payload of signal 'go'", ("`not`",))
        answer = await d.signal("r1", "go", '"no"', by_name=True)
        assert isinstance(answer, Refusal) and answer.code == "invalid_payload"
        assert await dump(d.store) == before
        assert isinstance(await d.signal("r1", "plain", "1", by_name=True), Buffered)
        checked = schema_digest(not_zero)
        sent = await d.signal("r1", "go", "1", by_name=True, key="k", schema=checked)
        assert isinstance(sent, Delivered)
        again = await d.signal("r1", "go", "1", by_name=True, key="k")
        assert type(again).__name__ == "Duplicate"

    async def test_of_others_it_takes_what_it_cannot_check(self, d: Driver) -> None:
        """Workflow code and consumers: the type at the wait has the last word."""
        await d.declare(declared(go=entry(schema=not_zero)))
        await d.start("r1")
        assert isinstance(await d.signal("r1", "go", "0"), Buffered)

    async def test_a_run_is_not_started_by_what_is_to_be_checked_first(self, d: Driver) -> None:
        await d.declare(declared(go=entry(schema=not_zero)))
        answer = await d.signal_with_start("r1", "go", "1", by_name=True)
        assert isinstance(answer, Refusal) and answer.code == "unchecked"
        assert await d.store.run("r1") is None

    async def test_events_and_items_are_to_be_checked_first_too(self, d: Driver) -> None:
        await d.declare_topic("order.paid", schema=not_zero)
        await d.declare_queue("jobs", schema=not_zero)
        before = await dump(d.store)
        for answer, what in (
            (await d.emit("order.paid", "1", by_name=True), "topic 'order.paid'"),
            (await d.put("jobs", "1", by_name=True), "queue 'jobs'"),
        ):
            assert answer == Refusal("unchecked", f"the payload of {what}", ("`not`",))
        assert await dump(d.store) == before
        checked = schema_digest(not_zero)
        assert isinstance(await d.emit("order.paid", "1", by_name=True, schema=checked), Emitted)
        assert isinstance(await d.put("jobs", "1", by_name=True, schema=checked), Queued)
        assert isinstance(await d.put("jobs", "0"), Queued)

    async def test_what_a_workflow_was_only_seen_to_wait_for_counts_for_mere_names(
        self, d: Driver
    ) -> None:
        await d.declare(declared(strict=False, go=entry(schema=number)))
        await d.start("r1")
        answer = await d.signal("r1", "go", '"no"')
        assert isinstance(answer, Refusal) and answer.code == "invalid_payload"
        assert isinstance(await d.signal("r1", "go", '"no"', policy="latest"), Buffered)

    async def test_a_run_is_not_started_by_what_does_not_fit(self, d: Driver) -> None:
        await d.declare(declared(go=entry(schema=number)))
        answer = await d.signal_with_start("r1", "go", '"no"')
        assert isinstance(answer, Refusal) and answer.code == "invalid_payload"
        assert await d.store.run("r1") is None

    async def test_a_letter_that_does_not_fit_stays(self, d: Driver) -> None:
        await d.start("dead")
        await d.signal("dead", "go", '"no"', signal_id="s1")
        await d.fail("dead")
        await d.declare(declared(workflow="refunds", go=entry(schema=number)))
        await d.start("r1", workflow="refunds")
        answer = await d.resend("s1", to="r1")
        assert isinstance(answer, Refusal) and answer.code == "invalid_payload"
        assert len(await d.store.dead_letters("dead", "", 10)) == 1


parcel: dict[str, object] = {
    "type": "object",
    "properties": {
        "sku": {"type": "string"},
        "weight": {"type": "number", "default": 0.5},
    },
    "required": ["sku"],
}
typed = '{"sku":"tea","weight":2.0}'
named = '{"weight":2,"sku":"tea"}'
whole = '{"sku":"tea","weight":0.5}'
short = '{"sku":"tea"}'


@pytest.mark.parametrize(
    ("first", "again"), [(typed, named), (named, typed), (short, whole), (whole, short)]
)
class TestOtherWords(Subject):
    """Who has only a name says the same in other words than a codec: under one id or key it is the same."""

    def input(self, payload: str) -> str:
        return f"[{payload}]"

    async def declare(self, d: Driver) -> None:
        inputs = {"type": "array", "prefixItems": [parcel]}
        line = declared(go=entry("all", schema=parcel))
        text = msgspec.json.encode(inputs).decode()
        await d.declare(replace(line, input_schema=text))
        await d.declare_topic("parcel.sent", schema=parcel)
        await d.declare_queue("parcels", schema=parcel)

    async def test_a_start_by_id(self, d: Driver, first: str, again: str) -> None:
        await self.declare(d)
        await d.start("r1", input=self.input(first), fresh=False)
        found = await d.start("r1", input=self.input(again), fresh=False)
        assert isinstance(found, Started) and not found.created
        other = await d.start("r1", input='[{"sku":"tea","weight":true}]', fresh=False)
        assert isinstance(other, Refusal) and other.code == "conflict"

    async def test_a_start_by_key(self, d: Driver, first: str, again: str) -> None:
        await self.declare(d)
        await d.start("r1", input=self.input(first), key="k")
        found = await d.start("r2", input=self.input(again), key="k")
        assert isinstance(found, Started) and found.run.run_id == "r1"
        other = await d.start("r3", input='[{"sku":"x"}]', key="k")
        assert isinstance(other, Refusal) and other.code == "conflict"

    async def test_a_start_of_what_has_continued_since(
        self, d: Driver, first: str, again: str
    ) -> None:
        """Then a fingerprint is left, of the value: what it was of is not known any more."""
        await self.declare(d)
        await d.start("r1", input=f'[{{"b":1,"a":{first}}}]', key="k")
        await d.continue_as("r1", workflow="refunds")
        for given in ({"run_id": "r1", "fresh": False}, {"run_id": "r2", "key": "k"}):
            for text in (f'[{{"b":1,"a":{first}}}]', f'[{{"a":{first},"b":1.0}}]'):
                found = await d.start(**given, input=text)
                assert isinstance(found, Started) and found.run.run_id == "r1"
            other = await d.start(**given, input="[2]")
            assert isinstance(other, Refusal) and other.code == "conflict"

    async def test_a_signal(self, d: Driver, first: str, again: str) -> None:
        await self.declare(d)
        await d.start("r1")
        await d.signal("r1", "go", first, key="k")
        for by_name in (True, False):
            answer = await d.signal("r1", "go", again, key="k", by_name=by_name)
            assert isinstance(answer, Duplicate)
        other = await d.signal("r1", "go", '{"sku":"x"}', key="k")
        assert isinstance(other, Refusal) and other.code == "conflict"

    async def test_an_event(self, d: Driver, first: str, again: str) -> None:
        await self.declare(d)
        await d.emit("parcel.sent", first, key="k")
        assert isinstance(await d.emit("parcel.sent", again, key="k"), Duplicate)
        other = await d.emit("parcel.sent", '{"sku":"x"}', key="k")
        assert isinstance(other, Refusal) and other.code == "conflict"

    async def test_an_event_by_its_id(self, d: Driver, first: str, again: str) -> None:
        await self.declare(d)
        await d.emit("parcel.sent", first, event_id="e1")
        assert isinstance(await d.emit("parcel.sent", again, event_id="e1"), Duplicate)

    async def test_an_item(self, d: Driver, first: str, again: str) -> None:
        await self.declare(d)
        await d.put("parcels", first, key="k")
        assert isinstance(await d.put("parcels", again, key="k"), Duplicate)
        other = await d.put("parcels", '{"sku":"x"}', key="k")
        assert isinstance(other, Refusal) and other.code == "conflict"

    async def test_by_name_it_is_kept_as_a_codec_writes_it(
        self, d: Driver, first: str, again: str
    ) -> None:
        await self.declare(d)
        await d.start("r1")
        for payload in (first, again):
            await d.signal("r1", "go", payload, by_name=True)
            await d.put("parcels", payload, by_name=True)
        kept = await d.payloads("r1") + [
            one.payload for one in await d.store.queue_items("parcels", 0, 10)
        ]
        assert set(kept) <= {typed, whole} and len(set(kept)) == 1
