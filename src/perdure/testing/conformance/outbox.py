"""The outbox: what a caller sends with a transaction of its own happens if that commits, once, and never in part."""

from typing import Any

import pytest

from perdure.model import ops
from perdure.model.outbox import decode_send, encode_send
from perdure.model.outcomes import FromOutbox
from perdure.model.records import OutboxRecord
from perdure.store.base import BatchFailed
from perdure.testing.clock import VirtualClock
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.dump import dump, normal
from perdure.testing.conformance.fixtures import MakeStore, Subject, WriteOutbox, opened
from perdure.testing.conformance.words import done, signal, topic

_every_row = 1000


def row(outbox_id: str, send: ops.Send, created_at: int = 7) -> OutboxRecord:
    return OutboxRecord(outbox_id=outbox_id, op=encode_send(send), created_at=created_at)


def applying(outbox_id: str, send: ops.Send | None, **fields: Any) -> ops.ApplyOutbox:
    return ops.ApplyOutbox(outbox_id=outbox_id, send=send, **fields)


async def kept(d: Driver) -> list[str]:
    return [one.outbox_id for one in await d.store.outbox("", _every_row)]


class TestOutbox(Subject):
    # --- rows ---

    async def test_what_is_committed_is_found_as_it_was_written(
        self, d: Driver, write_outbox: WriteOutbox
    ) -> None:
        rows = [row(f"o{number}", d.put_op("jobs", str(number)), number) for number in range(3)]
        await write_outbox(d.store, *reversed(rows))
        assert await d.store.outbox("", 10) == rows
        assert await d.store.outbox("", 2) == rows[:2]
        assert await d.store.outbox("o0", 10) == rows[1:]
        assert await d.store.outbox("o2", 10) == []

    async def test_what_is_rolled_back_never_was(
        self, d: Driver, write_outbox: WriteOutbox
    ) -> None:
        send = d.put_op("jobs", "1")
        await write_outbox(d.store, row("o1", send), commit=False)
        assert (await kept(d), (await d.store.look()).outbox) == ([], False)
        assert await d.apply(applying("o1", send)) == FromOutbox(0)
        assert await d.items("jobs") == []

    async def test_a_worker_learns_that_there_is_something_to_apply(
        self, d: Driver, write_outbox: WriteOutbox
    ) -> None:
        send = d.put_op("jobs", "1")
        assert not (await d.store.look()).outbox
        await write_outbox(d.store, row("o1", send))
        assert (await d.store.look()).outbox
        assert (await d.store.counts())["outbox"] == 1
        await d.apply(applying("o1", send))
        assert not (await d.store.look()).outbox

    # --- applying ---

    async def test_each_kind_of_send_is_applied(self, d: Driver, write_outbox: WriteOutbox) -> None:
        sends: list[ops.Send] = [
            d.start_op("r1", owner=None, input="5"),
            d.signal_op("r1", "go", "1"),
            d.emit_op("order.paid", "2", entity="order/7"),
            d.put_op("jobs", "3"),
        ]
        rows = [row(f"o{number}", send) for number, send in enumerate(sends)]
        await write_outbox(d.store, *rows)
        for one in await d.store.outbox("", 10):
            answer = await d.apply(applying(one.outbox_id, decode_send(one.op)))
            assert answer == FromOutbox(1)
        assert (await d.run("r1")).input == "5"
        assert await d.payloads("r1") == ["1"]
        assert [one.payload for one in await d.facts("order.paid")] == ["2"]
        assert await d.items("jobs") == ["3"]
        assert await kept(d) == []

    async def test_a_row_is_applied_once(self, d: Driver, write_outbox: WriteOutbox) -> None:
        send = d.emit_op("order.paid", "1")
        await write_outbox(d.store, row("o1", send))
        answers = [await d.apply(applying("o1", send)) for _ in range(3)]
        assert answers == [FromOutbox(1), FromOutbox(0), FromOutbox(0)]
        assert len(await d.facts("order.paid")) == 1

    async def test_a_row_is_applied_once_in_one_batch(
        self, d: Driver, write_outbox: WriteOutbox
    ) -> None:
        send = d.put_op("jobs", "1")
        await write_outbox(d.store, row("o1", send))
        answers = await d.batch(*[applying("o1", send)] * 3)
        assert answers == [FromOutbox(1), FromOutbox(0), FromOutbox(0)]
        assert await d.items("jobs") == ["1"]

    async def test_many_rows_as_one_batch_are_the_same_as_one_by_one(
        self, make_store: MakeStore, write_outbox: WriteOutbox
    ) -> None:
        found = []
        for at_once in (True, False):
            clock = VirtualClock()
            async with opened(make_store, clock, True) as d:
                await d.start_waiting("w1", signal("go"))
                await d.start_waiting("w2", topic("order.paid"))
                sends: list[ops.Send] = [
                    d.start_op("r1", owner=None),
                    d.signal_op("w1", "go", "1", signal_id="s1"),
                    d.signal_op("w1", "go", "2", signal_id="s2"),
                    d.signal_op("nobody", "go", "3", signal_id="s3"),
                    d.emit_op("order.paid", "4", event_id="e1"),
                    d.emit_op("order.paid", "4", event_id="e1"),
                    d.put_op("jobs", "5", item_id="i1", key="k"),
                    d.put_op("jobs", "5", item_id="i2", key="k"),
                ]
                rows = [row(f"o{number}", send) for number, send in enumerate(sends)]
                await write_outbox(d.store, *rows)
                batch = [applying(f"o{number}", send) for number, send in enumerate(sends)]
                if at_once:
                    answers = await d.batch(*batch)
                else:
                    answers = [await d.apply(one) for one in batch]
                found.append((answers, normal(await dump(d.store))))
        assert found[0] == found[1]

    async def test_what_it_does_to_a_waiting_run_is_told(
        self, d: Driver, write_outbox: WriteOutbox
    ) -> None:
        await d.start_waiting("r1", signal("go"))
        send = d.signal_op("r1", "go", "1")
        await write_outbox(d.store, row("o1", send))
        await d.apply(applying("o1", send))
        assert await d.won("r1") == (0, "1")
        assert "ready" in [one.kind for one in d.heard[-1].wakes]

    async def test_a_batch_that_fails_leaves_its_rows(
        self, d: Driver, write_outbox: WriteOutbox
    ) -> None:
        await d.start("r1")
        await d.record("r1", done("x"))
        again = ops.RecordStep(
            run_id="r1", fence=(await d.run("r1")).fence, revision=0, steps=(done("x"),)
        )
        send = d.put_op("jobs", "1")
        await write_outbox(d.store, row("o1", send))
        with pytest.raises(BatchFailed):
            await d.batch(again, applying("o1", send))
        assert (await kept(d), await d.items("jobs")) == (["o1"], [])
        assert await d.apply(applying("o1", send)) == FromOutbox(1)

    # --- keys and ids ---

    async def test_a_key_that_was_used_before_counts(
        self, d: Driver, write_outbox: WriteOutbox
    ) -> None:
        await d.put("jobs", "1", key="k")
        same, other = d.put_op("jobs", "1", key="k"), d.put_op("jobs", "2", key="k")
        await write_outbox(d.store, row("o1", same), row("o2", other))
        assert await d.apply(applying("o1", same)) == FromOutbox(1)
        answer = await d.apply(applying("o2", other))
        assert answer.refused == (
            "conflict: key 'k' was used for queue 'jobs' with another payload",
        )
        assert await d.items("jobs") == ["1"]

    async def test_a_start_finds_the_run_that_has_its_id(
        self, d: Driver, write_outbox: WriteOutbox
    ) -> None:
        await d.start("r1", input="1")
        same, other = d.start_op("r1", input="1"), d.start_op("r1", input="2")
        await write_outbox(d.store, row("o1", same), row("o2", other))
        assert await d.apply(applying("o1", same)) == FromOutbox(1)
        assert await d.apply(applying("o2", other)) == FromOutbox(
            1, ("conflict: run 'r1' exists with another input",)
        )

    # --- refusals ---

    async def test_what_is_refused_leaves_a_fact(
        self, d: Driver, write_outbox: WriteOutbox
    ) -> None:
        await d.start("over")
        await d.finish("over")
        await d.declare_queue("jobs", schema={"type": "integer"})
        await d.declare_topic("order.sent", schema={"type": "integer"})
        sends: list[ops.Send] = [
            d.start_op("over", input="2"),
            d.signal_op("nobody", "go"),
            d.signal_op("over", "go"),
            d.emit_op("order.sent", '"x"', event_id="e1"),
            d.put_op("jobs", '"x"', item_id="i1"),
        ]
        await write_outbox(d.store, *(row(f"o{n}", send) for n, send in enumerate(sends)))
        for number, send in enumerate(sends):
            answer = await d.apply(applying(f"o{number}", send))
            assert (answer.count, len(answer.refused)) == (1, 1)
        facts = await d.told("ledger.send_refused")
        assert [one["outbox_id"] for one in facts] == ["o0", "o1", "o2", "o3", "o4"]
        assert [one["send"] for one in facts] == ["start", "signal", "signal", "emit", "put"]
        assert [one["reason"].partition(":")[0] for one in facts] == [
            "conflict",
            "there is no run 'nobody'",
            "run 'over' has already ended",
            "invalid_payload",
            "invalid_payload",
        ]
        assert facts[0]["workflow"] == "orders" and facts[0]["run_id"] == "over"
        assert facts[1]["signal"] == "go" and facts[1]["run_id"] == "nobody"
        assert facts[3]["topic"] == "order.sent" and facts[3]["event_id"] == "e1"
        assert facts[4]["queue"] == "jobs" and facts[4]["item_id"] == "i1"
        assert (await kept(d), await d.items("jobs"), await d.facts("order.sent")) == ([], [], [])

    async def test_such_a_fact_is_always_told(
        self, quiet: Driver, write_outbox: WriteOutbox
    ) -> None:
        send = quiet.signal_op("nobody", "go")
        await write_outbox(quiet.store, row("o1", send))
        await quiet.apply(applying("o1", send))
        assert len(await quiet.told("ledger.send_refused")) == 1

    async def test_such_a_fact_resumes_who_waits_for_it(
        self, d: Driver, write_outbox: WriteOutbox
    ) -> None:
        await d.start_waiting("r1", topic("ledger.send_refused"))
        send = d.signal_op("nobody", "go")
        await write_outbox(d.store, row("o1", send))
        await d.apply(applying("o1", send))
        await d.fan_out_all()
        assert (await d.won("r1"))[0] == 0

    async def test_of_an_event_it_belongs_to_the_chain(
        self, d: Driver, write_outbox: WriteOutbox
    ) -> None:
        await d.declare_topic("order.sent", schema={"type": "integer"})
        send = d.emit_op("order.sent", '"x"', root_id="e0", depth=3)
        await write_outbox(d.store, row("o1", send))
        await d.apply(applying("o1", send))
        (fact,) = await d.facts("ledger.send_refused")
        assert (fact.root_id, fact.depth) == ("e0", 4)

    async def test_a_row_that_cannot_be_read_leaves_a_fact_and_goes(
        self, d: Driver, write_outbox: WriteOutbox
    ) -> None:
        await write_outbox(d.store, OutboxRecord(outbox_id="o1", op="what?", created_at=7))
        unread = applying("o1", None, text="what?", reason="no send")
        assert await d.apply(unread) == FromOutbox(1, ("no send",))
        assert await d.apply(unread) == FromOutbox(0)
        assert await d.told("ledger.send_refused") == [
            {"outbox_id": "o1", "text": "what?", "reason": "no send"}
        ]
        assert await kept(d) == []
