"""Approvals: one decision counts, what was asked is closed once, and reminders are told in time."""

from typing import Any

import msgspec
import pytest

from perdure.model.outcomes import (
    Advanced,
    Decided,
    DecideOutcome,
    Delivered,
    Duplicate,
    Fired,
    NotFound,
    Refusal,
)
from perdure.testing.conformance.driver import Driver, completed, refused, spec_of
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    HOUR,
    WORKER,
    approval,
    done,
    retrying,
    signal,
    sleep,
    timer,
    topic,
    wait,
)

CLOSING = ("hitl.decided", "hitl.timed_out", "hitl.withdrawn")
FORM = (
    '{"type":"object","properties":{"amount":{"type":"integer"}},"required":["amount"],'
    '"additionalProperties":false}'
)


async def hitl(d: Driver) -> list[str]:
    """What was told of approvals, in order, without the common beginning."""
    return [
        one.type.removeprefix("hitl.") for one in await d.facts() if one.type.startswith("hitl.")
    ]


async def closings(d: Driver) -> list[tuple[str, str, str | None]]:
    """What closed approvals: how, which, and why."""
    found = []
    for one in await d.facts():
        if one.type in CLOSING:
            told = msgspec.json.decode(one.payload)
            found.append((one.type, told["approval_id"], told.get("reason")))
    return found


async def inbox(d: Driver) -> list[str]:
    """Whose approvals can be answered, longest waiting first."""
    return [one.run_id for one in await d.store.approvals(None, 100)]


async def verdict(d: Driver, run_id: str, path: str = "w") -> Any:
    return msgspec.json.decode((await d.step(run_id, path)).value or "null")


def decided(outcome: DecideOutcome) -> Decided:
    assert isinstance(outcome, Decided), outcome
    return outcome


async def unchanged(d: Driver, outcome: DecideOutcome, before: Any) -> str:
    """The code of a refusal that has changed nothing."""
    assert await dump(d.store) == before
    return refused(outcome)


class TestApprovals(Subject):
    async def test_what_is_asked_is_told_in_the_commit_that_opens_the_wait(self, d: Driver) -> None:
        asked = approval(
            "refund",
            title="Refund?",
            description="Ada wants it",
            who=("anna", "group:finance"),
            data='{"order":7}',
            expires="24h",
        )
        await d.start_waiting("r1", asked, timer("48h"))
        (told,) = await d.told("hitl.requested")
        assert told == {
            "run_id": "r1",
            "workflow": "orders",
            "approval_id": "A.r1",
            "name": "refund",
            "path": "w",
            "title": "Refund?",
            "description": "Ada wants it",
            "choices": ["approve", "reject"],
            "schema": None,
            "data": {"order": 7},
            "who": ["anna", "group:finance"],
            "expires_at": "2026-01-06T09:00:00Z",
            "deadline_at": "2026-01-07T09:00:00Z",
        }
        (fact,) = await d.facts("hitl.requested")
        assert (fact.entity_type, fact.entity_id) == ("run", "r1")
        assert await d.status("r1") == "waiting"

    async def test_a_decision_ends_the_wait_and_is_told(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(), timer("48h"), entity_type="order", entity_id="7")
        d.advance("1h")
        outcome = await d.decide("r1", "reject", comment="too much")
        assert outcome == Decided("A.r1", "r1", "w")
        step = await d.step("r1", "w")
        assert (step.state, step.winner) == ("done", 0)
        assert await verdict(d, "r1") == {
            "choice": "reject",
            "payload": None,
            "by": "anna",
            "comment": "too much",
            "decided_at": d.clock.now(),
            "link_id": None,
        }
        assert await d.status("r1") == "ready" and await d.watchers("r1") == []
        (told,) = await d.told("hitl.decided")
        assert told == {
            "run_id": "r1",
            "workflow": "orders",
            "approval_id": "A.r1",
            "name": "ok",
            "path": "w",
            "choice": "reject",
            "payload": None,
            "by": "anna",
            "comment": "too much",
            "via": "call",
            "link_id": None,
        }
        (fact,) = await d.facts("hitl.decided")
        assert (fact.entity_type, fact.entity_id) == ("order", "7")
        assert await hitl(d) == ["requested", "decided"]

    async def test_an_owner_at_home_hears_of_it_at_once(self, d: Driver) -> None:
        await d.start_waiting("r1", approval())
        d.store.worker_id = WORKER
        await d.decide("r1")
        (wake,) = [one for one in d.heard[-1].wakes if one.kind == "news"]
        assert wake.completion is not None and wake.completion.path == "w"
        assert await d.status("r1") == "running"

    async def test_the_second_decision_is_refused(self, d: Driver) -> None:
        await d.start_waiting("r1", approval())
        first, second = await d.batch(
            d.decide_op("r1", by="anna"), d.decide_op("r1", "reject", by="bob")
        )
        assert isinstance(first, Decided) and refused(second) == "approval_closed"
        assert (await verdict(d, "r1"))["by"] == "anna"
        before = await dump(d.store)
        assert await unchanged(d, await d.decide("r1"), before) == "approval_closed"

    async def test_nobody_else_can_end_it(self, d: Driver) -> None:
        """Signals never end an approval, and a decision is no signal."""
        await d.start_waiting("r1", approval("go"), signal("other"))
        sent = await d.signal("r1", "go")
        assert not isinstance(sent, Delivered)
        assert await inbox(d) == ["r1"]

    @pytest.mark.parametrize("choice", ["maybe", None, "Approve"])
    async def test_only_its_choices_can_be_chosen(self, d: Driver, choice: str | None) -> None:
        await d.start_waiting("r1", approval())
        before = await dump(d.store)
        outcome = await d.decide("r1", choice)
        assert await unchanged(d, outcome, before) == "invalid_payload"
        assert isinstance(outcome, Refusal) and "'approve', 'reject'" in outcome.paths[0]

    async def test_a_payload_must_fit_the_schema(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(choices=(), schema=FORM))
        before = await dump(d.store)
        for payload in (None, '{"amount":"x"}', "{}", '{"amount":1,"more":2}', "[", "7"):
            outcome = await d.decide("r1", None, payload=payload)
            assert await unchanged(d, outcome, before) == "invalid_payload"
        assert refused(await d.decide("r1", "approve", payload='{"amount":7}')) == "invalid_payload"
        decided(await d.decide("r1", None, payload='{"amount":7}'))
        assert (await verdict(d, "r1"))["payload"] == {"amount": 7}
        assert (await d.told("hitl.decided"))[0]["payload"] == {"amount": 7}

    async def test_choices_and_a_payload(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(schema=FORM))
        assert refused(await d.decide("r1", "approve")) == "invalid_payload"
        assert refused(await d.decide("r1", None, payload='{"amount":7}')) == "invalid_payload"
        decided(await d.decide("r1", "approve", payload='{"amount":7}'))

    async def test_without_a_schema_it_takes_no_payload(self, d: Driver) -> None:
        await d.start_waiting("r1", approval())
        assert refused(await d.decide("r1", payload="1")) == "invalid_payload"

    async def test_who_may_answer(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(who=("anna", "group:finance")))
        before = await dump(d.store)
        outcome = await d.decide("r1", by="bob", people=("bob", "group:sales"))
        assert await unchanged(d, outcome, before) == "not_allowed"
        assert isinstance(outcome, Refusal) and outcome.paths == ("anna", "group:finance")
        decided(await d.decide("r1", by="bob", people=("bob", "group:finance")))

    async def test_who_has_a_link_may_answer(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(who=("anna",)))
        decided(await d.decide("r1", by="mail:bob", people=(), link_id="L1"))
        assert (await verdict(d, "r1"))["link_id"] == "L1"
        (told,) = await d.told("hitl.decided")
        assert (told["via"], told["link_id"], told["by"]) == ("link", "L1", "mail:bob")

    async def test_a_link_is_good_until_its_time_by_the_stores_clock(self, d: Driver) -> None:
        await d.start_waiting("r1", approval())
        good_until = d.clock.now() + HOUR
        d.clock.set(good_until + 1)
        before = await dump(d.store)
        outcome = await d.decide("r1", link_id="L1", link_expires_at=good_until)
        assert await unchanged(d, outcome, before) == "link_expired"
        decided(await d.decide("r1", link_id="L2", link_expires_at=good_until + 1))

    async def test_an_unknown_approval_and_an_unknown_run(self, d: Driver) -> None:
        await d.start_waiting("r1", approval())
        assert refused(await d.decide("r1", id="B")) == "approval_closed"
        assert await d.decide("nobody") == NotFound("nobody")

    async def test_the_same_key_has_the_first_answer(self, d: Driver) -> None:
        await d.start_waiting("r1", approval())
        first = decided(await d.decide("r1", key="k"))
        before = await dump(d.store)
        assert await d.decide("r1", key="k") == Duplicate(first)
        assert refused(await d.decide("r1", "reject", key="k")) == "conflict"
        assert refused(await d.decide("r1", by="bob", key="k")) == "conflict"
        assert refused(await d.decide("r1", key="l")) == "approval_closed"
        assert await dump(d.store) == before

    async def test_the_same_key_and_answer_in_other_words(self, d: Driver) -> None:
        loose = '{"type":"object"}'
        await d.start_waiting("r1", approval(choices=(), schema=loose))
        first = decided(await d.decide("r1", None, payload='{"a":1,"b":2.0}', key="k"))
        assert await d.decide("r1", None, payload='{"b":2,"a":1}', key="k") == Duplicate(first)
        other = await d.decide("r1", None, payload='{"b":2,"a":true}', key="k")
        assert refused(other) == "conflict"

    async def test_a_refused_decision_uses_up_no_key(self, d: Driver) -> None:
        await d.start_waiting("r1", approval())
        assert refused(await d.decide("r1", "maybe", key="k")) == "invalid_payload"
        decided(await d.decide("r1", key="k"))

    async def test_a_running_run_is_told_by_its_revision(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", approval()), park=False)
        decided(await d.decide("r1"))
        assert (await d.run("r1")).revision == 1
        assert await d.status("r1") == "running"

    async def test_two_branches_ask_and_each_is_answered_by_its_id(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("x", approval(id="A")), wait("y", approval(id="B")))
        assert decided(await d.decide("r1", id="B")).path == "y"
        assert decided(await d.decide("r1", id="A")).path == "x"

    async def test_the_inbox_has_the_longest_waiting_first_and_pages(self, d: Driver) -> None:
        for number in (2, 1, 3):
            await d.start_waiting(f"r{number}", approval(id=f"A{number}"))
            d.advance("1m")
        await d.start_waiting("r0", signal("go"), timer("1h"))
        assert await inbox(d) == ["r2", "r1", "r3"]
        seen: list[str] = []
        after = None
        while page := await d.store.approvals(after, 1):
            (row,) = page
            seen.append(row.run_id)
            after = (row.opened_at, row.run_id, row.path, row.ix)
        assert seen == ["r2", "r1", "r3"]
        await d.decide("r1", id="A1")
        assert await inbox(d) == ["r2", "r3"]

    async def test_facts_of_approvals_are_told_without_a_life_cycle_too(
        self, quiet: Driver
    ) -> None:
        await quiet.start_waiting("r1", approval(remind=["1h"], expires="2h"), timer("3h"))
        await quiet.start_waiting("r2", approval())
        for _ in range(3):
            quiet.advance("1h")
            await quiet.fire()
        await quiet.decide("r2")
        assert sorted(await hitl(quiet)) == sorted(
            ["requested", "requested", "reminded", "expired", "timed_out", "decided"]
        )

    async def test_a_run_that_waits_for_the_fact_goes_on_with_it(self, d: Driver) -> None:
        await d.start_waiting("r1", topic("hitl.decided", since="start"))
        await d.start_waiting("r2", approval())
        await d.decide("r2")
        await d.fan_out_all()
        assert (await d.step("r1", "w")).state == "done"


class TestClosing(Subject):
    """Each that was requested is closed once, in the commit that closes it."""

    async def test_a_timeout_closes_it(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(), timer("1h"))
        d.advance("1h")
        assert (await d.fire()).count == 1
        assert (await d.step("r1", "w")).winner == 1
        assert await closings(d) == [("hitl.timed_out", "A.r1", None)]
        assert refused(await d.decide("r1")) == "approval_closed"

    async def test_at_the_deadline_a_decision_still_counts(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(), timer("1h"))
        d.advance("1h")
        decided(await d.decide("r1"))
        assert (await d.fire()).count == 0

    async def test_after_the_deadline_it_does_not_though_nobody_has_acted_on_it(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", approval(), timer("1h"))
        d.clock.set(d.clock.now() + HOUR + 1)
        before = await dump(d.store)
        assert await unchanged(d, await d.decide("r1"), before) == "approval_closed"
        await d.fire()
        assert await closings(d) == [("hitl.timed_out", "A.r1", None)]

    async def test_another_condition_closes_it(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("stop"), approval(remind=["1h"]), timer("2h"))
        assert isinstance(await d.signal("r1", "stop"), Delivered)
        assert await closings(d) == [("hitl.withdrawn", "A.r1", "signal 'stop' came first")]
        assert await d.watchers("r1") == []

    async def test_of_two_in_one_wait_the_decided_one_closes_the_other(self, d: Driver) -> None:
        await d.start_waiting("r1", approval("a", "A", remind=["1h"]), approval("b", "B"))
        decided(await d.decide("r1", id="B"))
        assert sorted(await closings(d)) == [
            ("hitl.decided", "B.r1", None),
            ("hitl.withdrawn", "A.r1", "approval 'b' came first"),
        ]
        assert await d.watchers("r1") == []

    async def test_an_event_closes_it(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(), topic("order.paid"))
        await d.emit("order.paid")
        assert await closings(d) == [("hitl.withdrawn", "A.r1", "topic 'order.paid' came first")]

    async def test_an_event_on_its_way_was_first(self, d: Driver) -> None:
        """It is as if all who wait had been resumed at once: the decision comes too late."""
        await d.start_waiting("r1", approval(), topic("workflow.run_completed"))
        await d.start("r2")
        await d.finish("r2")
        assert refused(await d.decide("r1")) == "approval_closed"
        await d.fan_out_all()
        assert [one[0] for one in await closings(d)] == ["hitl.withdrawn"]

    async def test_a_branch_that_leaves_closes_it(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("x", approval(remind=["1h"])), wait("y", signal("go")))
        await d.signal("r1", "go")
        await d.claim()
        await d.record("r1", closed=("x",))
        assert await closings(d) == [
            ("hitl.withdrawn", "A.r1", "the branch that asked was left"),
        ]
        assert await d.watchers("r1") == []

    async def test_a_cancel_closes_it(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(remind=["1h"]))
        await d.cancel("r1", "no need")
        assert await inbox(d) == ["r1"]  # until its code has heard of it
        await d.claim()
        await d.record_cancel("r1", "w")
        assert await closings(d) == [
            ("hitl.withdrawn", "A.r1", "the run was cancelled (no need)"),
        ]
        await d.finish("r1", None, status="cancelled")
        assert len(await closings(d)) == 1

    @pytest.mark.parametrize("how", ["finish", "fail", "terminate"])
    async def test_the_end_of_its_run_closes_it(self, d: Driver, how: str) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", approval(remind=["1h"], expires="2h")), park=False)
        await d.end("r1", how)
        status = await d.status("r1")
        assert await closings(d) == [("hitl.withdrawn", "A.r1", f"the run has ended: {status}")]
        assert refused(await d.decide("r1")) == "approval_closed"
        d.advance("3h")
        assert await d.fire() == Fired(0, None)

    async def test_the_end_that_leaves_its_branch_closes_it_once(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", approval()), park=False)
        await d.fail("r1", closed=("w",))
        assert await closings(d) == [("hitl.withdrawn", "A.r1", "the run has ended: failed")]

    async def test_the_end_of_its_parent_closes_it(self, d: Driver) -> None:
        await d.start("r0")
        await d.start_waiting("r1", approval(), parent_run_id="r0")
        await d.terminate("r0")
        assert [one[:2] for one in await closings(d)] == [("hitl.withdrawn", "A.r1")]

    @pytest.mark.parametrize("closed", [(), ("w",)])
    async def test_the_next_generation_closes_it(self, d: Driver, closed: tuple[str, ...]) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", approval()), park=False)
        await d.continue_as("r1", closed=closed)
        assert await closings(d) == [
            ("hitl.withdrawn", "A.r1", "the run has continued as 'orders'"),
        ]
        assert await d.watchers("r1") == []
        await d.suspend("r1", wait("w", approval(id="A2")))
        decided(await d.decide("r1", id="A2"))

    async def test_a_wait_that_ends_at_once_asks_nobody(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "7")
        answer = await d.suspend("r1", wait("w", approval(), signal("go")))
        assert completed(answer) == [("w", 1, "7")]
        assert await hitl(d) == []

    async def test_what_was_decided_stays_told_if_its_branch_leaves_in_that_moment(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", approval()), park=False)
        decided(await d.decide("r1"))
        await d.record("r1", closed=("w",))
        assert [one[0] for one in await closings(d)] == ["hitl.decided"]

    async def test_a_retry_asks_anew_under_another_id(self, d: Driver) -> None:
        """The run failed in one branch while another waited: its approval was withdrawn with the end."""
        await d.start("r1")
        asked = approval(remind=["1h"], expires="2h")
        await d.suspend("r1", wait("g[1]/w", asked), park=False, steps=(done("g[0]/s"),))
        await d.fail("r1", "g[0]/s")
        d.advance("5h")
        await d.retry("r1")
        await d.claim()
        again = approval(id="B", remind=["1h"], expires="2h")
        answer = await d.suspend("r1", wait("g[1]/w", again, known=True))
        assert isinstance(answer, Advanced) and answer.parked
        assert await hitl(d) == ["requested", "withdrawn", "requested"]
        assert refused(await d.decide("r1", id="A")) == "approval_closed"
        d.advance("1h")
        await d.fire()
        assert (await d.told("hitl.reminded"))[0]["approval_id"] == "B.r1"
        decided(await d.decide("r1", id="B"))

    async def test_what_does_not_fit_the_runs_own_type_is_given_back(self, d: Driver) -> None:
        asked = approval(schema="{}", remind=["1h", "3h"], expires="10h")
        await d.start("r1")
        await d.suspend("r1", wait("w", asked), park=False)
        d.advance("1h")
        await d.fire()
        d.advance("1h")
        decided(await d.decide("r1", payload="1"))
        await d.reject("r1", wait("w", asked, known=True))
        assert await hitl(d) == ["requested", "reminded", "decided", "returned", "requested"]
        (told,) = await d.told("hitl.returned")
        assert (told["approval_id"], told["reason"]) == ("A.r1", "it does not fit")
        assert await d.store.dead_letters(None, "", 10) == []
        # Its times are those of the first time it was asked, and what was told is not told again.
        assert (await d.told("hitl.requested"))[1]["expires_at"] == "2026-01-05T19:00:00Z"
        assert await d.fire() == Fired(0, d.clock.now() + HOUR)
        d.advance("1h")
        await d.fire()
        assert [one["number"] for one in await d.told("hitl.reminded")] == [1, 2]
        decided(await d.decide("r1", payload="2"))


class TestAlarms(Subject):
    async def test_each_reminder_is_told_once_with_its_number(self, d: Driver) -> None:
        asked = approval(title="Refund?", who=("anna",), remind=["4h", "8h"])
        await d.start_waiting("r1", asked, timer("48h"))
        opened_at = d.clock.now()
        assert min(d.deadlines_told()) == opened_at + 4 * HOUR
        assert await d.fire() == Fired(0, opened_at + 4 * HOUR)
        d.advance("4h")
        assert await d.fire() == Fired(1, opened_at + 8 * HOUR)
        assert await d.fire() == Fired(0, opened_at + 8 * HOUR)
        d.advance("4h")
        assert await d.fire() == Fired(1, opened_at + 48 * HOUR)
        told = await d.told("hitl.reminded")
        assert [one["number"] for one in told] == [1, 2]
        assert told[0] == {
            "run_id": "r1",
            "workflow": "orders",
            "approval_id": "A.r1",
            "name": "ok",
            "path": "w",
            "number": 1,
            "title": "Refund?",
            "who": ["anna"],
        }
        run = await d.run("r1")
        assert (run.status, run.revision) == ("waiting", 0)  # it goes on waiting, and hears nothing
        decided(await d.decide("r1"))
        assert await d.fire() == Fired(0, None)

    async def test_one_that_repeats_goes_on_until_it_is_closed_or_expires(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(every="1h", expires="3h30m"))
        for _ in range(6):
            d.advance("1h")
            await d.fire()
        assert await hitl(d) == ["requested", "reminded", "reminded", "reminded", "expired"]

    async def test_reminders_that_repeat_come_to_an_end(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(every="1h"))
        d.advance("49h")
        assert (await d.fire()).next_at == d.clock.now() + HOUR
        d.advance("1h")
        assert await d.fire() == Fired(1, None)
        assert [one["number"] for one in await d.told("hitl.reminded")] == [49, 50]

    async def test_of_reminders_that_are_late_the_last_speaks_for_all(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(remind=["1h", "2h", "3h", "9h"]))
        d.advance("4h")
        assert (await d.fire()).count == 1
        assert [one["number"] for one in await d.told("hitl.reminded")] == [3]
        d.advance("5h")
        await d.fire()
        assert [one["number"] for one in await d.told("hitl.reminded")] == [3, 4]

    async def test_what_has_expired_cannot_be_answered_and_the_wait_goes_on(
        self, d: Driver
    ) -> None:
        await d.start_waiting("r1", approval(expires="1h"), timer("2h"))
        d.clock.set(d.clock.now() + HOUR + 1)
        before = await dump(d.store)
        assert await unchanged(d, await d.decide("r1"), before) == "approval_expired"
        await d.fire()
        assert refused(await d.decide("r1")) == "approval_expired"
        assert refused(await d.decide("r1", link_id="L")) == "approval_expired"
        assert await hitl(d) == ["requested", "expired"]
        assert (await d.told("hitl.expired"))[0]["expires_at"] == "2026-01-05T10:00:00Z"
        assert await inbox(d) == ["r1"] and await d.status("r1") == "waiting"
        d.advance("1h")
        await d.fire()
        assert await hitl(d) == ["requested", "expired", "timed_out"]

    async def test_at_its_expiry_an_answer_still_counts_until_it_is_told(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(id="A", expires="1h"))
        await d.start_waiting("r2", approval(id="B", expires="1h"))
        d.advance("1h")
        decided(await d.decide("r1", id="A"))
        await d.fire()
        assert refused(await d.decide("r2", id="B")) == "approval_expired"

    async def test_an_expiry_at_a_time(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(expires_at=d.clock.now() + HOUR))
        d.clock.set(d.clock.now() + HOUR + 1)
        assert refused(await d.decide("r1")) == "approval_expired"

    async def test_nobody_is_reminded_of_what_has_expired(self, d: Driver) -> None:
        at = d.clock.now() + 2 * HOUR
        await d.start_waiting("r1", approval(remind=["1h", "3h"], expires_at=at))
        d.advance("5h")
        assert await d.fire() == Fired(1, None)
        assert await hitl(d) == ["requested", "expired"]

    async def test_an_alarm_and_the_deadline_that_are_due_at_once(self, d: Driver) -> None:
        """The wait ends, and of what has ended nobody is reminded."""
        await d.start_waiting("r1", approval(remind=["1h"]), timer("1h"))
        await d.start_waiting("r2", signal("a"), approval(remind=["1h"], id="B"), timer("90m"))
        d.advance("1h")
        await d.fire(limit=1)
        await d.fire(limit=1)
        await d.fire()
        assert sorted(await hitl(d)) == ["reminded", "requested", "requested", "timed_out"]
        assert (await d.told("hitl.timed_out"))[0]["run_id"] == "r1"
        assert (await d.told("hitl.reminded"))[0]["run_id"] == "r2"
        assert await d.status("r2") == "waiting"

    async def test_a_limit_of_one_comes_to_an_end(self, d: Driver) -> None:
        await d.start("r1")
        waits = [wait(f"w{n}", approval(id=f"A{n}", every="1h"), timer("9h")) for n in range(3)]
        await d.suspend("r1", *waits)
        d.advance("1h")
        assert [(await d.fire(limit=1)).count for _ in range(4)] == [1, 1, 1, 0]
        assert len(await d.told("hitl.reminded")) == 3

    async def test_a_branch_that_only_sleeps_does_not_make_the_run_sleep(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("x", approval(remind=["1h"])), sleep("s", "2h"))
        assert await d.status("r1") == "waiting"
        await d.decide("r1")
        await d.claim()
        await d.suspend("r1")
        assert await d.status("r1") == "sleeping"

    async def test_a_deadline_that_a_filter_holds_does_not_hold_reminders(self, d: Driver) -> None:
        narrowed = topic("order.paid", filter="payload > 1")
        await d.start_waiting("r1", approval(remind=["1h"]), narrowed, timer("90m"))
        d.advance("2h")
        assert (await d.fire()).count == 1
        assert await hitl(d) == ["requested", "reminded"]
        assert refused(await d.decide("r1")) == "approval_closed"
        assert await d.resolve_wait("r1", None, ix=1) == 1
        assert await hitl(d) == ["requested", "reminded", "timed_out"]

    async def test_the_alarm_of_a_dead_worker_rings_with_the_next(self, d: Driver) -> None:
        """It is a row: whoever fires timers tells it."""
        await d.start_waiting("r1", approval(remind=["1h"]))
        d.advance("2h")
        assert (await d.store.look()).deadline_at == d.clock.now() - HOUR
        await d.fire()
        assert [one["number"] for one in await d.told("hitl.reminded")] == [1]

    async def test_a_parked_run_that_asks_is_no_suspect(self, d: Driver) -> None:
        await d.start_waiting("r1", approval(remind=["1h"]))
        assert (await d.store.look(limit=10)).suspects == ()
        await d.recover("r1")
        assert await d.status("r1") == "waiting"

    async def test_a_retry_of_a_step_beside_it_is_its_own_affair(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("x", approval(remind=["10s"])), steps=(retrying("s", "10s"),))
        d.advance("10s")
        assert (await d.fire()).count == 2
        assert await hitl(d) == ["requested", "reminded"]


class TestSetAside(Subject):
    """While the run is paused nobody can answer; nothing is withdrawn, and nothing asked twice."""

    async def paused(self, d: Driver, *on: Any, **fields: Any) -> None:
        await d.start_waiting("r1", *on, **fields)
        await d.pause("r1", "audit")

    async def resumed(self, d: Driver, *on: Any) -> Any:
        await d.resume("r1")
        await d.claim()
        return await d.suspend("r1", wait("w", *on, known=True))

    async def test_a_pause_shuts_it_and_a_resume_opens_it_again(self, d: Driver) -> None:
        asked = approval()
        await self.paused(d, asked, timer("48h"))
        assert await inbox(d) == []
        before = await dump(d.store)
        outcome = await d.decide("r1")
        assert await unchanged(d, outcome, before) == "paused"
        assert isinstance(outcome, Refusal) and outcome.detail == "audit"
        assert (await d.store.look()).deadline_at is None
        await self.resumed(d, asked, timer("48h"))
        assert await inbox(d) == ["r1"]
        assert await hitl(d) == ["requested"]
        decided(await d.decide("r1"))

    async def test_pausing_before_it_was_opened_again_keeps_it(self, d: Driver) -> None:
        asked = approval(every="1h")
        await self.paused(d, asked)
        await d.resume("r1")
        await d.pause("r1")
        d.advance("9h")
        assert await d.fire() == Fired(0, None)
        await self.resumed(d, asked)
        assert await hitl(d) == ["requested"]

    async def test_between_the_resume_and_the_replay_a_decision_counts(self, d: Driver) -> None:
        asked = approval()
        await self.paused(d, asked, timer("1h"))
        await d.resume("r1")
        decided(await d.decide("r1"))
        await d.claim()
        answer = await d.suspend("r1", wait("w", asked, timer("1h"), known=True))
        assert [one[:2] for one in completed(answer)] == [("w", 0)]
        assert await hitl(d) == ["requested", "decided"]

    async def test_but_not_after_its_deadline(self, d: Driver) -> None:
        await self.paused(d, approval(), timer("1h"))
        d.clock.set(d.clock.now() + HOUR + 1)
        await d.resume("r1")
        assert refused(await d.decide("r1")) == "approval_closed"

    async def test_a_running_run_that_is_paused_at_its_end_of_turn(self, d: Driver) -> None:
        asked = approval()
        await d.start("r1")
        await d.suspend("r1", wait("w", asked), park=False)
        await d.pause("r1")
        assert await inbox(d) == ["r1"]
        await d.suspend("r1")
        assert await d.status("r1") == "paused" and await inbox(d) == []
        assert await hitl(d) == ["requested"]

    async def test_changed_code_parks_it_and_nothing_is_withdrawn(self, d: Driver) -> None:
        asked = approval()
        await d.start("r1")
        await d.suspend("r1", wait("w", asked), park=False)
        await d.park("r1")
        assert refused(await d.decide("r1")) == "paused"
        await self.resumed(d, asked)
        assert await hitl(d) == ["requested"]

    async def test_reminders_that_passed_meanwhile_are_told_at_most_once(self, d: Driver) -> None:
        asked = approval(remind=["1h", "2h", "3h", "9h"])
        await d.start_waiting("r1", asked)
        d.advance("1h")
        await d.fire()
        await d.pause("r1")
        d.advance("4h")
        assert await d.fire() == Fired(0, None)
        await self.resumed(d, asked)
        assert d.deadlines_told() == [d.clock.now() - 3 * HOUR]
        assert await d.fire() == Fired(1, d.clock.now() + 4 * HOUR)
        assert [one["number"] for one in await d.told("hitl.reminded")] == [1, 3]

    async def test_what_expired_meanwhile_is_told_once_it_goes_on(self, d: Driver) -> None:
        asked = approval(remind=["30m"], expires="1h")
        await self.paused(d, asked)
        d.advance("2h")
        await self.resumed(d, asked)
        await d.fire()
        assert await hitl(d) == ["requested", "expired"]

    async def test_what_timed_out_meanwhile_is_closed_when_it_goes_on(self, d: Driver) -> None:
        asked = approval()
        await self.paused(d, asked, timer("1h"))
        d.advance("2h")
        answer = await self.resumed(d, asked, timer("1h"))
        assert completed(answer) == [("w", 1, "null")]
        assert await closings(d) == [("hitl.timed_out", "A.r1", None)]
        assert await d.watchers("r1") == []

    async def test_what_came_meanwhile_closes_it_when_it_goes_on(self, d: Driver) -> None:
        asked = approval()
        await self.paused(d, asked, signal("go"))
        await d.signal("r1", "go")
        await self.resumed(d, asked, signal("go"))
        assert await closings(d) == [("hitl.withdrawn", "A.r1", "signal 'go' came first")]

    async def test_a_paused_run_that_is_terminated(self, d: Driver) -> None:
        await self.paused(d, approval())
        await d.terminate("r1", "enough")
        assert await closings(d) == [
            ("hitl.withdrawn", "A.r1", "the run has ended: terminated (enough)"),
        ]

    async def test_a_paused_run_that_is_cancelled(self, d: Driver) -> None:
        await self.paused(d, approval())
        await d.cancel("r1")
        await d.claim()
        await d.record_cancel("r1", "w")
        assert await closings(d) == [("hitl.withdrawn", "A.r1", "the run was cancelled")]

    async def test_what_it_says_stays_what_was_asked(self, d: Driver) -> None:
        """The code may have changed its words meanwhile: what people have seen counts."""
        await self.paused(d, approval(title="old"))
        await self.resumed(d, approval(title="new", choices=("yes",)))
        (row,) = await d.store.approvals(None, 10)
        assert '"title":"old"' in row.asks
        assert '"title":"old"' in spec_of(await d.step("r1", "w")).on[0].asks.replace("\\", "")
        decided(await d.decide("r1", "approve"))
