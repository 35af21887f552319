"""The trace that a run was started in: kept as it was given, whatever becomes of the run, and told with its facts."""

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.model import ops
from perdure.model.outcomes import Started
from perdure.model.records import RunRecord
from perdure.testing.conformance.driver import Driver, completed
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import HOUR, signal, sleep, wait

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


class TestTraces(Subject):
    async def test_a_run_keeps_the_trace_it_was_started_in(self, d: Driver) -> None:
        started = await d.start("r1", trace=TRACE)
        assert isinstance(started, Started) and started.run.trace == TRACE
        assert (await d.run("r1")).trace == TRACE
        ((loaded, _),) = await d.store.load(["r1"])
        assert loaded.trace == TRACE

    async def test_a_run_without_one_has_none(self, d: Driver) -> None:
        await d.start("r1")
        assert (await d.run("r1")).trace is None
        assert [one.trace for one in await d.facts("workflow.run_started")] == [None]

    async def test_it_outlives_waiting_claims_and_the_end(self, d: Driver) -> None:
        await d.start("r1", owner=None, trace=TRACE)
        (claimed,) = (await d.claim()).runs
        assert claimed.trace == TRACE
        await d.suspend("r1", wait("w", signal("go")))
        await d.signal("r1", "go")
        assert (await d.run("r1")).trace == TRACE
        await d.finish("r1", "5")
        assert (await d.run("r1")).trace == TRACE

    async def test_it_outlives_continue_as(self, d: Driver) -> None:
        await d.start("r1", trace=TRACE)
        await d.continue_as("r1", "2", workflow="refunds")
        run = await d.run("r1")
        assert (run.generation, run.workflow, run.trace) == (1, "refunds", TRACE)

    async def test_the_same_start_in_another_trace_finds_the_run_as_it_was(self, d: Driver) -> None:
        await d.start("r1", key="k", trace=TRACE)
        by_id = await d.start("r1", trace=OTHER)
        by_key = await d.start("r2", key="k", trace=OTHER)
        for found in (by_id, by_key):
            assert isinstance(found, Started) and not found.created
            assert found.run.trace == TRACE

    async def test_a_debounced_start_has_that_of_the_call_whose_input_counts(
        self, d: Driver
    ) -> None:
        late = {"owner": None, "key": "k", "debounce_us": HOUR, "debounce_max_us": 9 * HOUR}
        await d.start("r1", input="1", trace=TRACE, **late)
        await d.start("r2", input="2", trace=OTHER, **late)
        run = await d.run("r1")
        assert (run.input, run.trace) == ("2", OTHER)
        await d.start("r3", input="3", **late)
        run = await d.run("r1")
        assert (run.input, run.trace) == ("3", OTHER)

    async def test_a_child_has_that_of_its_parent_unless_it_is_given_one(self, d: Driver) -> None:
        await d.start("parent", trace=TRACE)
        for run_id, trace in (("heir", None), ("other", OTHER)):
            fields: dict[str, Any] = {
                "parent_run_id": "parent",
                "parent_path": run_id,
                "trace": trace,
            }
            child = d.start_op(run_id, owner=None, **fields)
            completed(await d.record_send("parent", run_id, child, kind="start"))
        assert (await d.run("heir")).trace == TRACE
        assert (await d.run("other")).trace == OTHER

    async def test_what_the_engine_tells_of_a_run_is_told_in_its_trace(self, d: Driver) -> None:
        await d.start("r1", trace=TRACE)
        await d.start("r2", trace=OTHER, entity_type="order", entity_id="7")
        await d.finish("r1", "5")
        started = await d.facts("workflow.run_started")
        assert [one.trace for one in started] == [TRACE, OTHER]
        assert [one.entity_id for one in started] == ["r1", "7"]
        assert [one.trace for one in await d.facts("workflow.run_completed")] == [TRACE]

    async def test_a_run_that_is_imported_brings_its_trace(self, d: Driver) -> None:
        told = RunRecord(
            run_id="r1", workflow="orders", version=1, status="ready", input="[]", created_at=7
        )
        await d.apply(ops.ImportRun(run=replace(told, trace=TRACE), steps=(), digest="a"))
        assert (await d.run("r1")).trace == TRACE

    @pytest.mark.parametrize("trace", ["x", "é" * 40, 'a"b\\c\n'])
    async def test_any_text_is_kept_as_it_is(self, d: Driver, trace: str) -> None:
        await d.start("r1", trace=trace)
        assert (await d.run("r1")).trace == trace
        (fact,) = await d.facts("workflow.run_started")
        assert fact.trace == trace

    async def test_it_is_there_when_a_timer_has_woken_the_run(self, d: Driver) -> None:
        await d.start("r1", trace=TRACE)
        await d.suspend("r1", sleep("s", "1h"))
        d.advance("2h")
        await d.fire()
        assert (await d.run("r1")).trace == TRACE
