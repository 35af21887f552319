"""Subscriptions: rules that events start runs by; what a bound puts off is kept, told of, and drained."""

from typing import Any

import pytest

from perdure.model import limits
from perdure.model.outcomes import Counted, CursorMoved, Moved, Refusal
from perdure.model.records import RUNNER, DeferredRecord
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import WORKFLOW, effect


def started(d: Driver, run_id: str, position: int, **fields: Any) -> Any:
    """The start that the rule "rule" asks for."""
    fields = {"owner": None, "event_id": f"e{position}", "root_id": "e1", "depth": 1, **fields}
    return effect(d.start_op(run_id, **fields), position, subscription="rule")


def put_off(position: int, *, rule: str = "rule", reason: Any = "fanout") -> DeferredRecord:
    return DeferredRecord(
        position=position,
        subscription=rule,
        event_id=f"e{position}",
        reason=reason,
        deferred_at=0,
    )


class TestSubscriptions(Subject):
    async def test_a_rule_is_kept_as_it_was_given(self, d: Driver) -> None:
        head = await d.emit_numbers()
        rule = {"where": "a", "map": "b", "key": "c", "code": True, "enabled": False}
        assert await d.subscribe("rule", "order.*", workflow="ship", **rule) == Counted(1)
        row = await d.subscription("rule")
        assert (row.pattern, row.workflow) == ("order.*", "ship")
        assert (row.where, row.map, row.key, row.code, row.enabled) == ("a", "b", "c", True, False)
        assert (row.position, row.behind, row.created_at) == (head, None, d.clock.now())
        assert any(one.kind == "consumer" for one in d.heard[-1].wakes)

    async def test_rules_are_listed_by_name(self, d: Driver) -> None:
        for name in ("b", "c", "a"):
            await d.subscribe(name)
        assert [one.name for one in await d.store.subscriptions()] == ["a", "b", "c"]

    async def test_the_same_rule_again_changes_nothing(self, d: Driver) -> None:
        await d.subscribe("rule")
        await d.emit_numbers()
        d.advance("1h")
        before = await d.subscription("rule")
        assert await d.subscribe("rule") == Counted(0)
        assert (await d.subscription("rule"), d.heard[-1].wakes) == (before, ())

    async def test_one_of_code_is_changed_by_code_alone(self, d: Driver) -> None:
        await d.subscribe("rule", declared=True)
        row = await d.subscription("rule")
        refused = await d.subscribe("rule", "user.*")
        assert isinstance(refused, Refusal)
        assert (refused.code, await d.subscription("rule")) == ("conflict", row)
        assert await d.switch("rule", False) == Counted(1)
        assert await d.subscribe("rule", "user.*", declared=True, enabled=False) == Counted(1)
        assert (await d.subscription("rule")).pattern == "user.*"

    async def test_code_takes_a_rule_over_that_was_made_at_run_time(self, d: Driver) -> None:
        await d.subscribe("rule")
        assert await d.subscribe("rule", declared=True) == Counted(1)
        assert (await d.subscription("rule")).declared

    async def test_a_rule_that_changes_goes_on_where_it_was(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.subscribe("rule", start=0)
        d.advance("1h")
        await d.emit_many(d.event("order.paid"), d.event("order.paid"))
        assert await d.subscribe("rule", "user.*", where="x", start=None) == Counted(1)
        row = await d.subscription("rule")
        assert (row.pattern, row.where) == ("user.*", "x")
        assert (row.position, row.behind) == (5, 0)
        assert row.created_at < d.clock.now()

    async def test_whether_it_is_enabled_is_the_operators_word(self, d: Driver) -> None:
        await d.subscribe("rule", enabled=False)
        await d.subscribe("rule", where="x", keep_enabled=True)
        row = await d.subscription("rule")
        assert (row.enabled, row.where) == (False, "x")
        await d.subscribe("rule", where="x")
        assert (await d.subscription("rule")).enabled

    # --- where it begins ---

    async def test_now_is_the_end_of_the_ledger_wherever_the_runner_is(self, d: Driver) -> None:
        head = await d.emit_numbers()
        await d.claim_consumer(RUNNER, start=2)
        await d.subscribe("rule")
        row = await d.subscription("rule")
        assert (row.position, row.behind) == (head, None)

    @pytest.mark.parametrize("reached", [1, 3, 5])
    async def test_it_catches_up_by_itself_wherever_the_runner_stands(
        self, d: Driver, reached: int
    ) -> None:
        """That may be about to commit a cursor further on, without having asked this rule about what it read."""
        await d.emit_numbers()
        await d.claim_consumer(RUNNER, start=reached)
        await d.subscribe("rule", start=2)
        row = await d.subscription("rule")
        assert (row.position, row.behind) == (5, 2)

    @pytest.mark.parametrize("where", [{"start": 0}, {"start": 1}, {"start_at": 0}])
    async def test_its_beginning_is_the_oldest_event_that_is_kept(
        self, d: Driver, where: dict[str, Any]
    ) -> None:
        await d.emit_numbers()
        await d.trim(keep=2)
        await d.subscribe("rule", **where)
        row = await d.subscription("rule")
        assert (row.position, row.behind) == (5, 3)

    async def test_what_came_while_it_was_off_does_not_count(self, d: Driver) -> None:
        await d.subscribe("rule")
        await d.subscribe("rule", enabled=False)
        head = await d.emit_numbers()
        await d.subscribe("rule", enabled=True)
        assert (await d.subscription("rule")).position == head

    async def test_a_switch_changes_nothing_else_of_a_rule(self, d: Driver) -> None:
        await d.subscribe("rule", where="a")
        await d.subscribe("rule", where="b")  # by somebody else, a moment ago
        assert await d.switch("rule", False) == Counted(1)
        off = await d.subscription("rule")
        assert (off.where, off.enabled) == ("b", False)
        head = await d.emit_numbers()
        assert await d.switch("rule", True) == Counted(1)
        on = await d.subscription("rule")
        assert (on.where, on.enabled, on.position) == ("b", True, head)
        assert any(one.kind == "consumer" for one in d.heard[-1].wakes)

    async def test_a_switch_that_is_so_already_changes_nothing(self, d: Driver) -> None:
        await d.subscribe("rule")
        before = await d.subscription("rule")
        await d.emit_numbers()
        assert await d.switch("rule", True) == Counted(1)
        assert await d.subscription("rule") == before and not d.heard[-1].wakes
        assert await d.switch("nobody", True) == Counted(0)

    async def test_without_a_runner_all_there_is_is_caught_up_with(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.subscribe("rule", start=0)
        row = await d.subscription("rule")
        assert (row.position, row.behind) == (5, 0)

    async def test_it_may_begin_with_a_time(self, d: Driver) -> None:
        await d.emit_numbers(2)
        d.advance("1h")
        noon = d.clock.now()
        await d.emit_many(d.event("order.paid"), d.event("order.paid"))
        await d.subscribe("rule", start_at=noon)
        row = await d.subscription("rule")
        assert (row.position, row.behind) == (4, 2)

    # --- catching up ---

    async def test_catching_up_moves_the_rule_and_not_the_cursor(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER, start=5)
        await d.subscribe("rule", start=0)
        answer = await d.advance_cursor(RUNNER, 2, started(d, "r1", 1), seen=0, caught_up="rule")
        assert isinstance(answer, CursorMoved)
        assert ((await d.subscription("rule")).behind, answer.consumer.position) == (2, 5)
        assert await d.status("r1") == "ready"
        await d.advance_cursor(RUNNER, 5, seen=2, caught_up="rule")
        assert (await d.subscription("rule")).behind is None

    async def test_it_happens_once(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER, start=5)
        await d.subscribe("rule", start=0)
        await d.advance_cursor(RUNNER, 2, seen=0, caught_up="rule")
        again = await d.advance_cursor(RUNNER, 2, started(d, "r1", 1), seen=0, caught_up="rule")
        assert isinstance(again, Moved)
        assert await d.store.run("r1") is None

    async def test_a_rule_that_was_dropped_meanwhile_starts_nothing(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER, start=5)
        await d.subscribe("rule", start=0)
        await d.unsubscribe("rule")
        answer = await d.advance_cursor(RUNNER, 2, started(d, "r1", 1), seen=0, caught_up="rule")
        assert isinstance(answer, Moved)
        assert await d.store.run("r1") is None

    # --- dropping ---

    async def test_a_rule_is_dropped_with_what_it_has_put_off(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.subscribe("rule")
        await d.advance_cursor(RUNNER, 1, deferred=(put_off(1), put_off(1, rule="other")))
        assert await d.unsubscribe("rule") == Counted(1)
        assert await d.unsubscribe("rule") == Counted(0)
        assert await d.store.subscriptions() == []
        assert [one.subscription for one in await d.store.deferred(None, 10)] == ["other"]

    # --- what it starts ---

    async def test_who_reads_is_told_of_each_change_of_a_rule_and_of_nothing_else(
        self, d: Driver
    ) -> None:
        def told() -> bool:
            return any(one.kind == "consumer" for one in d.heard[-1].wakes)

        await d.subscribe("rule")
        assert told()
        await d.subscribe("rule")  # as it was
        assert not told()
        await d.subscribe("rule", where="true")
        assert told()
        await d.unsubscribe("rule")
        assert told()
        await d.unsubscribe("rule")
        assert not told()

    async def test_a_run_knows_the_event_it_was_started_for(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.advance_cursor(RUNNER, 2, started(d, "r1", 2, depth=3))
        row = await d.run("r1")
        assert (row.event_id, row.root_id, row.depth) == ("e2", "e1", 3)
        (fact,) = await d.facts("workflow.run_started")
        assert (fact.root_id, fact.depth) == ("e1", 3)


class TestDeferred(Subject):
    @pytest.fixture(autouse=True)
    def _small_bounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "event_depth_max", 2)
        monkeypatch.setattr(limits, "starts_per_root_max", 2)

    # --- bounds ---

    async def test_a_chain_that_is_too_long_is_put_off(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.advance_cursor(RUNNER, 1, started(d, "r1", 1, depth=2))
        d.advance("1m")
        await d.advance_cursor(RUNNER, 2, started(d, "r2", 2, depth=3))
        assert (await d.status("r1"), await d.store.run("r2")) == ("ready", None)
        (row,) = await d.store.deferred(None, 10)
        assert (row.position, row.subscription, row.event_id) == (2, "rule", "e2")
        assert (row.reason, row.deferred_at) == ("depth", d.clock.now())
        (fact,) = await d.told("ledger.depth_capped")
        assert (fact["subscription"], fact["event_id"], fact["depth"]) == ("rule", "e2", 3)
        assert ((await d.consumer(RUNNER)).capped, (await d.consumer(RUNNER)).position) == (1, 2)

    async def test_so_are_too_many_starts_for_one_first_event(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        starts = [started(d, f"r{number}", number) for number in (1, 2, 3)]
        await d.advance_cursor(RUNNER, 3, *starts)
        await d.advance_cursor(RUNNER, 4, started(d, "r4", 4, root_id="e4"))
        assert [await d.status(one) for one in ("r1", "r2", "r4")] == ["ready"] * 3
        assert [(one.position, one.reason) for one in await d.store.deferred(None, 10)] == [
            (3, "root")
        ]
        assert len(await d.told("ledger.root_capped")) == 1

    async def test_the_alert_counts_for_the_root_and_not_for_the_depth(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.advance_cursor(RUNNER, 1, started(d, "r1", 1, depth=3))
        (fact,) = await d.facts("ledger.depth_capped")
        assert (fact.root_id, fact.depth) == ("e1", 0)

    async def test_the_children_of_a_run_count(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.advance_cursor(RUNNER, 1, started(d, "r1", 1))
        await d.start("child", parent_run_id="r1", parent_path="c")
        await d.advance_cursor(RUNNER, 2, started(d, "r2", 2))
        assert await d.store.run("r2") is None

    async def test_a_child_belongs_to_the_chain_of_its_parent_one_hop_further(
        self, d: Driver
    ) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.advance_cursor(RUNNER, 1, started(d, "r1", 1))
        await d.start("child", parent_run_id="r1", parent_path="c")
        child = await d.run("child")
        assert (child.root_id, child.depth) == ("e1", 2)
        (fact,) = [one for one in await d.facts("workflow.run_started") if one.entity_id == "child"]
        assert (fact.root_id, fact.depth) == ("e1", 2)

    async def test_a_start_that_finds_its_run_is_not_put_off(self, d: Driver) -> None:
        """A cursor that went back meets its own starts again: they are nothing new."""
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        starts = [started(d, f"r{number}", number, key=f"k{number}") for number in (1, 2)]
        await d.advance_cursor(RUNNER, 2, *starts)
        await d.steer_consumer(RUNNER, position=0)
        again = [started(d, "r1", 1), started(d, "x2", 2, key="k2")]
        await d.advance_cursor(RUNNER, 2, *again)
        assert await d.store.deferred(None, 10) == []

    async def test_what_a_handler_starts_is_refused_by_the_same_bounds(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer()
        start = d.start_op("r1", owner=None, root_id="e1", depth=99)
        await d.advance_cursor("reader", 1, effect(start, 1))
        assert await d.store.run("r1") is None and await d.store.deferred(None, 10) == []
        (fact,) = await d.told("ledger.effect_refused")
        assert "depth" in fact["reason"]

    async def test_a_rule_starts_one_run_for_a_key_whatever_the_input(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.advance_cursor(RUNNER, 1, started(d, "r1", 1, key="k", input="1"))
        await d.advance_cursor(RUNNER, 2, started(d, "r2", 2, key="k", input="2"))
        assert await d.store.run("r2") is None
        assert await d.store.parked(None, None, 10) == []

    # --- what the runner itself puts off ---

    async def test_starts_are_put_off_together_with_the_cursor(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        d.advance("1m")
        await d.advance_cursor(RUNNER, 2, deferred=(put_off(2), put_off(1), put_off(2, rule="b")))
        rows = await d.store.deferred(None, 10)
        assert [(one.position, one.subscription) for one in rows] == [
            (1, "rule"),
            (2, "b"),
            (2, "rule"),
        ]
        assert {one.deferred_at for one in rows} == {d.clock.now()}
        assert (await d.consumer(RUNNER)).capped == 1
        assert (await d.store.vitals(d.clock.now())).deferred == 3

    async def test_what_waits_for_its_code_is_no_hit_of_a_cap(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.advance_cursor(RUNNER, 1, deferred=(put_off(1, reason="code"),))
        assert (await d.consumer(RUNNER)).capped == 0

    async def test_they_are_listed_by_page(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.advance_cursor(RUNNER, 5, deferred=tuple(put_off(at) for at in (1, 2, 3, 4, 5)))
        first = await d.store.deferred(None, 3)
        rest = await d.store.deferred((first[-1].position, first[-1].subscription), 3)
        assert [one.position for one in first + rest] == [1, 2, 3, 4, 5]

    # --- draining ---

    async def test_a_start_that_was_put_off_is_started_once(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.advance_cursor(RUNNER, 1, deferred=(put_off(1),))
        first, second = (d.start_op(run_id, owner=None) for run_id in ("r1", "r2"))
        assert await d.drain((1, "rule", first, None)) == Counted(1)
        assert await d.drain((1, "rule", second, None)) == Counted(0)
        assert (await d.run("r1")).workflow == WORKFLOW
        assert (await d.store.run("r2"), await d.store.deferred(None, 10)) == (None, [])

    async def test_what_is_not_put_off_is_not_started(self, d: Driver) -> None:
        assert await d.drain((1, "rule", d.start_op("r1", owner=None), None)) == Counted(0)
        assert await d.store.run("r1") is None

    async def test_without_a_start_it_is_dropped_or_parked(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.advance_cursor(RUNNER, 2, deferred=(put_off(1), put_off(2)))
        await d.drain((1, "rule", None, None), (2, "rule", None, "the map broke"))
        assert await d.store.deferred(None, 10) == []
        (row,) = await d.store.parked(RUNNER, None, 10)
        assert (row.position, row.subscription, row.reason) == (2, "rule", "the map broke")

    async def test_one_whose_event_retention_was_forced_over_is_told_of(
        self, quiet: Driver
    ) -> None:
        d = quiet  # such a fact is always told
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.advance_cursor(RUNNER, 5, deferred=(put_off(1), put_off(2), put_off(5)))
        await d.trim(keep=2, forced=True)
        await d.drain((1, "rule", None, None), (5, "rule", None, None))
        lost = {"subscription": "rule", "first": 1, "last": 1}
        assert await d.told("ledger.events_lost") == [
            lost
        ]  # the fifth is there: it was only dropped
        await d.drain((2, "rule", None, None), released=True)  # by an operator, who knows
        await d.drain((1, "rule", None, None))  # once more
        assert await d.told("ledger.events_lost") == [lost]

    async def test_one_that_is_refused_is_parked(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.start("r1")
        await d.advance_cursor(RUNNER, 1, deferred=(put_off(1),))
        await d.drain((1, "rule", d.start_op("r1", input="2"), None))
        (row,) = await d.store.parked(RUNNER, None, 10)
        assert (row.position, "conflict" in row.reason) == (1, True)

    async def test_what_is_over_its_bound_still_stays_put_off_and_is_not_told_again(
        self, d: Driver
    ) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        deep = started(d, "r1", 1, depth=3)
        await d.advance_cursor(RUNNER, 1, deep)
        before = await d.store.deferred(None, 10)
        assert await d.drain((1, "rule", deep.op, None)) == Counted(0)
        assert await d.store.deferred(None, 10) == before
        assert (await d.consumer(RUNNER)).capped == 1
        assert len(await d.told("ledger.depth_capped")) == 1

    async def test_what_the_cap_put_off_may_meet_a_bound(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        await d.advance_cursor(RUNNER, 1, deferred=(put_off(1),))
        await d.drain((1, "rule", started(d, "r1", 1, depth=3).op, None))
        (row,) = await d.store.deferred(None, 10)
        assert (row.reason, await d.store.run("r1")) == ("depth", None)
        assert len(await d.told("ledger.depth_capped")) == 1

    async def test_what_an_operator_releases_knows_no_bound(self, d: Driver) -> None:
        await d.emit_numbers()
        await d.claim_consumer(RUNNER)
        deep = started(d, "r1", 1, depth=3)
        await d.advance_cursor(RUNNER, 1, deep)
        assert await d.drain((1, "rule", deep.op, None), released=True) == Counted(1)
        assert (await d.status("r1"), await d.store.deferred(None, 10)) == ("ready", [])
