"""Starting runs: ids, keys, later starts, children, and a signal that starts its run."""

import pytest

from perdure.model.outcomes import Buffered, Delivered, Duplicate, Finished, Started
from perdure.store.base import BatchFailed
from perdure.testing.conformance.driver import Driver, completed, refused
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import HOUR, WORKER, declared, entry, signal, wait


class TestStarting(Subject):
    async def test_a_run_is_born_claimed_by_its_starter(self, d: Driver) -> None:
        started = await d.start("r1", input='{"sku":7}')
        assert isinstance(started, Started) and started.created
        assert started.run == await d.run("r1")
        assert (started.run.status, started.run.owner) == ("running", WORKER)
        assert started.run.fence != 0
        assert (started.run.input, started.run.created_at) == ('{"sku":7}', d.clock.now())

    async def test_a_run_without_an_owner_is_ready_for_anybody(self, d: Driver) -> None:
        await d.start("r1", owner=None)
        run = await d.run("r1")
        assert (run.status, run.owner, run.fence) == ("ready", None, 0)
        assert run.ready_at == d.clock.now()

    async def test_the_same_id_gives_the_existing_run(self, d: Driver) -> None:
        await d.start("r1", input="1")
        before = await d.run("r1")
        again = await d.start("r1", input="1")
        assert again == Started(before, False)
        assert await d.run("r1") == before
        assert len(await d.facts("workflow.run_started")) == 1

    async def test_the_same_id_gives_a_finished_run_too(self, d: Driver) -> None:
        await d.start("r1")
        await d.finish("r1", "5")
        again = await d.start("r1")
        assert isinstance(again, Started) and not again.created
        assert again.run.status == "completed"

    async def test_a_fresh_id_is_looked_for_nowhere_and_given_to_one_run_only(
        self, d: Driver
    ) -> None:
        started = await d.start("r1", input="1", fresh=True)
        assert isinstance(started, Started) and started.created
        before = await d.run("r1")
        with pytest.raises(BatchFailed):
            await d.start("r1", input="2", fresh=True, key="k")
        assert await d.run("r1") == before
        other = await d.start("r2", input="2", key="k")
        assert isinstance(other, Started) and other.created
        assert len(await d.facts("workflow.run_started")) == 2

    async def test_an_id_of_another_workflow_is_a_conflict(self, d: Driver) -> None:
        await d.start("r1")
        assert refused(await d.start("r1", workflow="refunds")) == "conflict"
        assert (await d.run("r1")).workflow == "orders"

    async def test_an_id_with_another_input_is_a_conflict(self, d: Driver) -> None:
        await d.start("r1", input="1")
        assert refused(await d.start("r1", input="2")) == "conflict"
        assert (await d.run("r1")).input == "1"

    async def test_an_id_whose_run_went_on_under_another_input_still_names_it(
        self, d: Driver
    ) -> None:
        await d.start("r1", input="1")
        await d.continue_as("r1", "2")
        again = await d.start("r1", input="1")
        assert isinstance(again, Started) and not again.created

    async def test_an_id_whose_run_went_on_as_another_workflow_still_names_it(
        self, d: Driver
    ) -> None:
        await d.start("r1", input="1")
        await d.continue_as("r1", "2", workflow="refunds")
        again = await d.start("r1", input="1")
        assert isinstance(again, Started) and not again.created

    async def test_an_id_with_another_input_is_a_conflict_also_in_a_later_generation(
        self, d: Driver
    ) -> None:
        await d.start("r1", input="1")
        await d.continue_as("r1", "2")
        assert refused(await d.start("r1", input="3")) == "conflict"

    async def test_an_id_names_what_was_started_not_what_it_went_on_as(self, d: Driver) -> None:
        await d.start("r1", input="1")
        await d.continue_as("r1", "2", workflow="refunds")
        await d.continue_as("r1", "3", workflow="refunds")
        assert refused(await d.start("r1", workflow="refunds", input="3")) == "conflict"
        assert isinstance(await d.start("r1", input="1"), Started)

    async def test_the_same_key_gives_the_first_run_whatever_id_is_asked_for(
        self, d: Driver
    ) -> None:
        await d.start("r1", key="k")
        again = await d.start("r2", key="k")
        assert isinstance(again, Started)
        assert (again.run.run_id, again.created) == ("r1", False)
        assert await d.store.run("r2") is None

    async def test_the_same_key_with_another_input_is_a_conflict(self, d: Driver) -> None:
        await d.start("r1", key="k", input="1")
        assert refused(await d.start("r2", key="k", input="2")) == "conflict"
        assert await d.store.run("r2") is None

    async def test_a_key_is_looked_at_before_the_id(self, d: Driver) -> None:
        await d.start("r1", key="k")
        await d.start("r2", input="1")
        again = await d.start("r2", key="k")
        assert isinstance(again, Started) and again.run.run_id == "r1"

    async def test_a_key_that_found_a_run_by_its_id_is_remembered(self, d: Driver) -> None:
        await d.start("r1")
        await d.start("r1", key="k")
        again = await d.start("r2", key="k")
        assert isinstance(again, Started) and again.run.run_id == "r1"

    async def test_two_workflows_have_keys_of_their_own(self, d: Driver) -> None:
        await d.start("r1", key="k")
        other = await d.start("r2", key="k", workflow="refunds")
        assert isinstance(other, Started) and other.created

    async def test_a_key_is_remembered_after_the_run_has_ended(self, d: Driver) -> None:
        await d.start("r1", key="k")
        await d.finish("r1")
        again = await d.start("r2", key="k")
        assert isinstance(again, Started) and again.run.run_id == "r1"

    async def test_a_run_to_start_later_is_not_claimed_before(self, d: Driver) -> None:
        await d.start("r1", start_at=d.clock.now() + HOUR)
        assert await d.status("r1") == "ready"
        assert (await d.claim()).runs == ()
        d.advance("1h")
        assert [one.run_id for one in (await d.claim()).runs] == ["r1"]

    async def test_a_delay_counts_from_the_clock_of_the_store(self, d: Driver) -> None:
        await d.start("r1", delay_us=HOUR)
        assert (await d.run("r1")).ready_at == d.clock.now() + HOUR

    async def test_a_start_in_the_past_is_a_start_now(self, d: Driver) -> None:
        await d.start("r1", start_at=d.clock.now() - HOUR)
        assert await d.status("r1") == "running"

    async def test_a_start_at_this_very_moment_is_a_start_now(self, d: Driver) -> None:
        await d.start("r1", start_at=d.clock.now())
        assert await d.status("r1") == "running"

    async def test_a_run_that_nobody_owns_is_told_to_be_ready(self, d: Driver) -> None:
        await d.start("r1", owner=None)
        assert [(one.kind, one.run_id) for one in d.heard[-1].wakes] == [("ready", "r1")]
        at = d.clock.now() + HOUR
        await d.start("r2", start_at=at)
        assert [(one.kind, one.at) for one in d.heard[-1].wakes] == [("ready", at)]

    async def test_what_the_starter_says_about_the_run_is_kept(self, d: Driver) -> None:
        said = {"tags": '{"eu":"yes"}', "entity_type": "order", "entity_id": "42", "key": "k"}
        await d.start("r1", **said)
        run = await d.run("r1")
        assert {name: getattr(run, name) for name in said} == said

    async def test_a_child_names_its_parent(self, d: Driver) -> None:
        await d.start("parent")
        await d.start("child", parent_run_id="parent", parent_path="call#1")
        child = await d.run("child")
        assert (child.parent_run_id, child.parent_path, child.depth) == ("parent", "call#1", 1)


class TestSignalWithStart(Subject):
    async def test_a_signal_starts_its_run_and_waits_in_the_buffer(self, d: Driver) -> None:
        started, sent = await d.signal_with_start("r1", "go", "1")
        assert started.created and isinstance(sent, Buffered)
        assert await d.payloads("r1") == ["1"]
        assert completed(await d.suspend("r1", wait("w", signal("go")))) == [("w", 0, "1")]

    async def test_a_run_that_is_there_is_only_signalled(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        started, sent = await d.signal_with_start("r1", "go", "1")
        assert not started.created
        assert isinstance(sent, Delivered)

    async def test_a_run_that_is_there_may_be_signalled_without_a_buffer(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"))
        started, sent = await d.signal_with_start("r1", "go", buffer=False)
        assert not started.created and isinstance(sent, Delivered)

    async def test_a_run_found_by_its_key_gets_the_signal(self, d: Driver) -> None:
        await d.start("r1", key="k")
        started, sent = await d.signal_with_start("r2", "go", "1", start={"key": "k"})
        assert started.run.run_id == "r1" and isinstance(sent, Buffered)
        assert await d.payloads("r1") == ["1"]
        assert await d.store.run("r2") is None

    async def test_a_refused_start_sends_nothing(self, d: Driver) -> None:
        await d.start("r1", input="1")
        assert refused(await d.signal_with_start("r1", "go", start={"input": "2"})) == "conflict"
        assert await d.payloads("r1") == []

    async def test_a_refused_signal_starts_nothing(self, d: Driver) -> None:
        """Nobody may see the run without its signal."""
        await d.declare(declared(go=entry()))
        assert refused(await d.signal_with_start("r1", "gone")) == "unknown_signal"
        assert refused(await d.signal_with_start("r1", "go", policy="all")) == "conflict"
        assert refused(await d.signal_with_start("r1", "go", buffer=False)) == "not_waiting"
        assert await d.store.run("r1") is None

    async def test_a_finished_run_answers_that_it_is_finished(self, d: Driver) -> None:
        await d.start("r1")
        await d.finish("r1")
        started, sent = await d.signal_with_start("r1", "go")
        assert not started.created
        assert sent == Finished("r1", "completed")

    async def test_the_same_key_signals_once(self, d: Driver) -> None:
        _, first = await d.signal_with_start("r1", "go", "1", key="k", policy="all")
        _, again = await d.signal_with_start("r1", "go", "1", key="k", policy="all")
        assert again == Duplicate(first)
        assert await d.payloads("r1") == ["1"]
