"""The ledger: dense positions, each fact in the commit of the change it tells of, ids that are identity."""

import msgspec

from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import WORKFLOW, failed, signal, timer, wait


class TestLedger(Subject):
    async def test_positions_are_dense_and_in_commit_order(self, d: Driver) -> None:
        for number in range(5):
            await d.start(f"r{number}")
            await d.signal(f"r{number}", "go")
            await d.signal(f"r{number}", "go")
            await d.finish(f"r{number}")
        facts = await d.facts()
        assert [one.position for one in facts] == list(range(1, 21))

    async def test_positions_are_dense_within_and_over_batches(self, d: Driver) -> None:
        await d.batch(*(d.start_op(f"a{number}") for number in range(3)))
        await d.batch(*(d.start_op(f"b{number}") for number in range(3)))
        facts = await d.facts()
        assert [one.position for one in facts] == [1, 2, 3, 4, 5, 6]
        assert [one.entity_id for one in facts] == ["a0", "a1", "a2", "b0", "b1", "b2"]

    async def test_refused_ops_leave_no_gap(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("nobody", "go")
        await d.start("r1", input="2")
        await d.signal("r1", "go", buffer=False)
        await d.start("r2")
        assert [one.position for one in await d.facts()] == [1, 2]

    async def test_the_life_of_a_run_is_on_the_ledger(self, d: Driver) -> None:
        await d.start("r1")
        await d.fail("r1", "a", steps=(failed("a"),))
        await d.retry("r1")
        await d.claim()
        await d.continue_as("r1")
        await d.finish("r1")
        await d.start("r2")
        await d.cancel("r2")
        await d.finish("r2", status="cancelled", output=None)
        await d.start("r3")
        await d.terminate("r3")
        assert [one.type.removeprefix("workflow.run_") for one in await d.facts()] == [
            "started",
            "failed",
            "retried",
            "continued",
            "completed",
            "started",
            "cancelled",
            "started",
            "terminated",
        ]

    async def test_the_life_of_a_signal_is_on_the_ledger(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")), park=False)
        await d.signal("r1", "go", '{"ok":true}', signal_id="s1")
        (fact,) = await d.facts("signal.delivered")
        told = msgspec.json.decode(fact.payload)
        assert (fact.event_id, told["signal_id"], told["name"]) == ("s1", "s1", "go")
        assert (told["path"], told["payload"], told["run_id"]) == ("w", {"ok": True}, "r1")

    async def test_a_signal_taken_from_the_buffer_is_told_when_it_is_taken(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", signal_id="s1")
        assert await d.facts("signal.delivered") == []
        d.advance("1m")
        await d.suspend("r1", wait("w", signal("go")))
        (fact,) = await d.facts("signal.delivered")
        assert (fact.event_id, fact.recorded_at) == ("s1", d.clock.now())

    async def test_a_timeout_names_the_signals_that_did_not_come(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("yes"), signal("no"), timer("1h"))
        d.advance("1h")
        await d.fire()
        told = await d.told("signal.timeout")
        assert sorted(one["name"] for one in told) == ["no", "yes"]

    async def test_a_sleep_that_ends_is_no_timeout_of_a_signal(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", timer("1h")))
        d.advance("1h")
        await d.fire()
        assert await d.facts("signal.timeout") == []

    async def test_a_fact_is_about_the_entity_of_its_run(self, d: Driver) -> None:
        await d.start("r1", entity_type="order", entity_id="42")
        await d.start("r2")
        about = [(one.entity_type, one.entity_id) for one in await d.facts()]
        assert about == [("order", "42"), ("run", "r2")]

    async def test_a_fact_is_dated_by_the_clock_of_the_store(self, d: Driver) -> None:
        d.advance("1h")
        await d.start("r1")
        (fact,) = await d.facts()
        assert fact.occurred_at == fact.recorded_at == d.clock.now()

    async def test_a_failure_is_told_with_its_error(self, d: Driver) -> None:
        await d.start("r1")
        await d.fail("r1", "a", steps=(failed("a"),))
        (told,) = await d.told("workflow.run_failed")
        assert (told["error"]["type"], told["error"]["path"]) == ("ValueError", "a")

    async def test_each_fact_of_a_run_says_what_is_documented(self, d: Driver) -> None:
        await d.start("r1")
        await d.fail("r1", "a", steps=(failed("a"),))
        await d.retry("r1")
        await d.claim()
        await d.continue_as("r1", workflow="second")
        await d.finish("r1")
        await d.start("r2")
        await d.cancel("r2", "changed my mind")
        await d.finish("r2", status="cancelled", output=None)
        await d.start("r3")
        await d.terminate("r3", "too long")
        told = {one.type: msgspec.json.decode(one.payload) for one in await d.facts()}
        assert all({"run_id", "workflow"} <= set(one) for one in told.values())
        also = {type: set(one) - {"run_id", "workflow"} for type, one in told.items()}
        assert also == {
            "workflow.run_started": {"version"},
            "workflow.run_failed": {"error"},
            "workflow.run_retried": set(),
            "workflow.run_continued": {"generation", "to"},
            "workflow.run_completed": set(),
            "workflow.run_cancelled": {"reason"},
            "workflow.run_terminated": {"reason"},
        }
        continued = told["workflow.run_continued"]
        assert (continued["workflow"], continued["to"]) == (WORKFLOW, "second")
        assert (continued["run_id"], continued["generation"]) == ("r1", 1)
        assert told["workflow.run_completed"]["workflow"] == "second"
        assert told["workflow.run_cancelled"]["reason"] == "changed my mind"
        assert told["workflow.run_terminated"]["reason"] == "too long"

    async def test_each_fact_of_a_signal_says_what_is_documented(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", "1", signal_id="s1")
        await d.signal("r1", "go", "2", signal_id="s2")
        await d.signal("r1", "old", "3", signal_id="s3", ttl="1m")
        d.advance("2m")
        await d.fire()
        await d.suspend("r1", wait("w", signal("go")))
        await d.reject("r1", wait("w", signal("go"), known=True))
        await d.signal("r1", "late", "4", signal_id="s4")
        await d.finish("r1")
        await d.start_waiting("r2", signal("go"), timer("1h"))
        d.advance("1h")
        await d.fire()
        types = ["replaced", "expired", "delivered", "rejected", "timeout", "discarded"]
        seen = {type: (await d.told(f"signal.{type}"))[0] for type in types}
        common = {"run_id", "workflow", "name"}
        assert {type: set(one) - common for type, one in seen.items()} == {
            "replaced": {"signal_id", "by"},
            "expired": {"signal_id"},
            "delivered": {"signal_id", "path", "payload"},
            "rejected": {"signal_id", "path", "reason"},
            "timeout": {"path"},
            "discarded": {"signal_id", "dead_letter"},
        }
        assert all(common <= set(one) for one in seen.values())
        assert (seen["replaced"]["signal_id"], seen["replaced"]["by"]) == ("s1", "s2")
        assert (seen["timeout"]["name"], seen["timeout"]["path"]) == ("go", "w")
        assert (seen["discarded"]["signal_id"], seen["discarded"]["dead_letter"]) == ("s4", False)

    async def test_facts_that_the_store_names_have_ids_of_their_own(self, d: Driver) -> None:
        for number in range(10):
            await d.start(f"r{number}")
        ids = [one.event_id for one in await d.facts()]
        assert len(set(ids)) == 10
        assert ids == sorted(ids)


class TestQuietLedger(Subject):
    async def test_without_life_cycle_facts_the_ledger_is_silent(self, quiet: Driver) -> None:
        d = quiet
        await d.start_waiting("r1", signal("go"), timer("1h"))
        await d.signal("r1", "go")
        await d.claim()
        await d.fail("r1")
        await d.retry("r1")
        await d.claim()
        await d.continue_as("r1")
        await d.finish("r1")
        await d.start("r2")
        await d.cancel("r2")
        await d.finish("r2", status="cancelled", output=None)
        await d.start("r3")
        await d.terminate("r3")
        await d.start_waiting("r4", signal("go"), timer("1h"))
        d.advance("1h")
        await d.fire()
        assert await d.facts() == []

    async def test_a_signal_that_does_not_reach_its_run_is_told_all_the_same(
        self, quiet: Driver
    ) -> None:
        d = quiet
        await d.start("r1")
        await d.signal("r1", "go", "1")
        await d.signal("r1", "go", "2")
        await d.signal("r1", "old", "3", ttl="1m")
        d.advance("2m")
        await d.fire()
        await d.suspend("r1", wait("w", signal("go")))
        await d.reject("r1", wait("w", signal("go"), known=True))
        await d.signal("r1", "late", "4")
        await d.finish("r1")
        assert [one.type for one in await d.facts()] == [
            "signal.replaced",
            "signal.expired",
            "signal.rejected",
            "signal.discarded",
        ]
