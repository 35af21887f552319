"""Runs that are made of a history: imported from elsewhere, forked from another, each in one op."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from perdure.model import ops
from perdure.model.keys import claim_on
from perdure.model.origins import Origin, origins_of, origins_text
from perdure.model.outcomes import Delivered, Refusal, Started, Steered
from perdure.model.records import RunRecord, SignalRecord, StepRecord, WaitSpec
from perdure.store.base import RunFilter
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    HOUR,
    WORKFLOW,
    done,
    error,
    failed,
    queue,
    retrying,
    signal,
    timer,
    topic,
    wait,
)


def told(run_id: str = "r1", **fields: Any) -> RunRecord:
    """A run as a document tells of it."""
    fields = {"workflow": WORKFLOW, "version": 1, "status": "waiting", "input": "[1]", **fields}
    return RunRecord(run_id=run_id, **{"created_at": 7, **fields})


def record(path: str, seq: int, **fields: Any) -> StepRecord:
    """A record of its history; complete, if it has a number."""
    state = "done" if seq else "open"
    fields = {"kind": "step", "name": path, "state": state, "value": "null", **fields}
    return StepRecord(run_id="elsewhere", generation=0, path=path, seq=seq, started_at=1, **fields)


def waited(path: str, seq: int, *on: Any, winner: int | None = 0, **fields: Any) -> StepRecord:
    of_spec = fields.keys() & {"deadline_at", "deadline_ix", "after", "item"}
    spec = WaitSpec(on, **{name: fields.pop(name) for name in of_spec})
    text = msgspec.json.encode(spec).decode()
    winner = winner if seq else None
    value = fields.pop("value", "null" if seq else None)
    return record(path, seq, kind="wait", wait=text, winner=winner, value=value, **fields)


def import_op(run: RunRecord, *steps: StepRecord, **fields: Any) -> ops.ImportRun:
    return ops.ImportRun(run=run, steps=steps, **{"digest": "d", **fields})


async def imported(d: Driver, run: RunRecord, *steps: StepRecord, **fields: Any) -> RunRecord:
    outcome = await d.apply(import_op(run, *steps, **fields))
    assert isinstance(outcome, Started) and outcome.created, outcome
    assert outcome.run == await d.run(run.run_id)
    return outcome.run


async def fork_of(d: Driver, run_id: str, *paths: str, **fields: Any) -> ops.ImportRun:
    """A fork that takes over these records."""
    ((run, steps),) = await d.store.load([run_id])
    taken = tuple(one for one in steps if one.path in paths)
    run = replace(run, run_id=f"fork-of-{run_id}", status="ready", **fields)
    return ops.ImportRun(run=run, steps=taken, digest="f", forked_from=run_id, from_path="x")


class TestImport(Subject):
    # --- what becomes of it ---

    @pytest.mark.parametrize("status", ["ready", "running", "waiting", "sleeping"])
    async def test_one_that_lived_is_ready_and_nobodys(self, d: Driver, status: str) -> None:
        run = await imported(
            d, told(status=status, owner="w9", fence=9, revision=4), record("a", 3)
        )
        assert (run.status, run.owner, run.fence, run.revision) == ("ready", None, 0, 0)
        assert (run.ready_at, run.created_at) == (d.clock.now(), 7)
        assert (await d.claim()).runs[0].run_id == "r1"

    async def test_one_that_was_paused_is_paused_until_it_is_resumed(self, d: Driver) -> None:
        run = await imported(d, told(status="paused", reason="by hand"), record("a", 3))
        assert (run.status, run.reason, run.ready_at) == ("paused", "by hand", None)
        assert (await d.claim()).runs == ()
        assert await d.resume("r1") == Steered("r1", "ready", True)

    async def test_one_that_had_ended_has_ended(self, d: Driver) -> None:
        ends = {
            "completed": {"output": "5"},
            "failed": {"error": error("no", path="a")},
            "cancelled": {"reason": "enough"},
            "terminated": {"reason": "enough"},
        }
        for status, fields in ends.items():
            run = told(status, status=status, finished_at=9, **fields)
            kept = await imported(d, run, record("a", 3))
            ended = (kept.status, kept.finished_at, kept.output, kept.error)
            assert ended == (status, 9, run.output, run.error)
        assert (await d.claim()).runs == ()
        assert [one.path for one in await d.store.history("completed")] == ["a"]

    async def test_a_failed_one_can_be_retried(self, d: Driver) -> None:
        run = told(status="failed", finished_at=9, error=error("no", path="b"))
        bad = record("b", 5, state="failed", value=None, error=error("no", path="b", kind="step"))
        await imported(d, run, record("a", 3), bad)
        assert await d.retry("r1") == Steered("r1", "ready", True)
        ((_, steps),) = await d.store.load(["r1"])
        assert sorted(one.path for one in steps) == ["!retry#1", "a"]

    async def test_one_that_was_to_start_later_does(self, d: Driver) -> None:
        at = d.clock.now() + HOUR
        run = await imported(d, told(status="ready", ready_at=at))
        assert run.ready_at == at and (await d.claim()).next_at == at

    async def test_all_that_is_told_of_a_run_is_kept(self, d: Driver) -> None:
        fields: dict[str, Any] = {
            "generation": 3,
            "tags": '{"team":"a"}',
            "entity_type": "order",
            "entity_id": "7",
            "published": '{"k":1}',
            "root_id": "e1",
            "depth": 2,
            "origin": "o",
            "event_id": "e2",
            "cancel_requested": True,
        }
        run = await imported(d, told(**fields), record("a", 3))
        assert {name: getattr(run, name) for name in fields} == fields
        (step,) = await d.store.history("r1")
        assert (step.run_id, step.generation, step.path) == ("r1", 3, "a")
        listed = await d.store.runs(RunFilter(entity=("order", "7")), None, 10)
        assert [one.run_id for one in listed] == ["r1"]

    # --- its history ---

    async def test_records_keep_their_order_under_new_numbers(self, d: Driver) -> None:
        steps = [record("c", 900), record("a", 10), record("b", 20, value='"x"', attempt=3)]
        await imported(d, told(), *steps)
        kept = await d.store.history("r1")
        assert [(one.path, one.value, one.attempt) for one in kept] == [
            ("a", "null", 1),
            ("b", '"x"', 3),
            ("c", "null", 1),
        ]
        await d.claim()
        await d.record("r1", done("d"))
        assert [one.path for one in await d.store.history("r1")] == ["a", "b", "c", "d"]

    async def test_the_mark_of_a_retry_counts_from_the_same_place(self, d: Driver) -> None:
        mark = record("!retry#1", 40, kind="retry", name="", value="25")
        steps = (record("a", 10), record("b", 30), mark)
        await imported(d, told(), *steps)
        a, b, kept = await d.store.history("r1")
        assert a.seq == int(kept.value or "") < b.seq < kept.seq
        gone = record("!retry#1", 40, kind="retry", name="", value="5")
        await imported(d, told("r2"), record("a", 10), gone, digest="d2")
        assert (await d.step("r2", "!retry#1")).value == "0"

    async def test_whose_chance_is_drawn_is_told_by_the_new_numbers(self, d: Driver) -> None:
        forked = origins_text((Origin("o", 15, 3, ("w",)), Origin("p", 30)))
        run = await imported(d, told(forked=forked), record("a", 10), record("b", 30))
        a, b = await d.store.history("r1")
        assert origins_of(run.forked) == (Origin("o", a.seq, 3, ("w",)), Origin("p", b.seq))

    async def test_an_open_wait_keeps_its_deadline(self, d: Driver) -> None:
        at = d.clock.now() + HOUR
        asked = (signal("go"), timer("99h"))
        await imported(d, told(), waited("w", 0, *asked, deadline_at=at, deadline_ix=1))
        await d.claim()
        await d.suspend("r1", wait("w", *asked, known=True))
        (watcher,) = await d.store.waiting("r1")
        assert (watcher.deadline_at, watcher.target) == (at, "go")
        d.advance("1h")
        assert (await d.fire()).count == 1
        assert (await d.step("r1", "w")).winner == 1

    async def test_a_step_between_two_attempts_is_due_when_it_was(self, d: Driver) -> None:
        at = d.clock.now() + HOUR
        again = record("s", 0, state="retrying", value=None, error=error("no"), retry_at=at)
        await imported(d, told(), again)
        (watcher,) = await d.store.waiting("r1")
        assert (watcher.kind, watcher.path, watcher.deadline_at) == ("retry", "s", at)
        await imported(d, told("r2", status="paused"), again, digest="d2")
        assert await d.store.waiting("r2") == []
        await d.resume("r2")
        (watcher,) = await d.store.waiting("r2")
        assert watcher.deadline_at == at
        await d.claim()
        for run_id in ("r1", "r2"):
            await d.record(run_id, done("s", attempt=2))
            await d.finish(run_id)

    async def test_what_its_waits_took_is_not_given_back_here(self, d: Driver) -> None:
        took = waited("w", 5, queue("jobs"), value='"x"', taken_id="item-1", item=(9, 9))
        bad = record("b", 6, state="failed", value=None, error=error("no", path="b", kind="step"))
        run = told(status="failed", finished_at=9, error=error("no", path="w"))
        await imported(d, run, took, bad)
        assert (await d.step("r1", "w")).taken_id is None
        await d.retry("r1")
        assert await d.store.queues() == {}

    async def test_a_signal_that_ended_a_wait_has_an_id_of_its_own_in_each_run(
        self, d: Driver
    ) -> None:
        took = waited("w", 5, signal("go"), value="1", taken_id="s1")
        for run_id in ("r1", "r2"):
            await imported(d, told(run_id), took, digest=run_id)
        ids = [(await d.step(run_id, "w")).taken_id for run_id in ("r1", "r2")]
        assert len({*ids, None, "s1"}) == 4
        await d.claim()
        for run_id in ("r1", "r2"):  # their branches leave it: under one id a letter would be lost
            await d.record(run_id, closed=("w",))
        letters = await d.store.dead_letters(None, "", 9)
        assert sorted(one.dead_letter_id for one in letters) == sorted(map(str, ids))
        for run_id in ("r1", "r2"):
            await d.finish(run_id)

    async def test_a_wait_for_a_topic_begins_at_the_end_of_the_ledger_here(self, d: Driver) -> None:
        await d.emit_numbers(3)
        asked = topic("order.paid")
        run = await imported(d, told(), waited("w", 0, asked, after=(1_000_000,)))
        assert run.position == (await d.store.span())[1]
        await d.claim()
        await d.suspend("r1", wait("w", asked, known=True))
        assert (await d.run("r1")).status == "waiting"
        await d.emit("order.paid", "9")
        assert (await d.step("r1", "w")).value == "9"

    # --- what goes along ---

    async def test_what_was_buffered_is(self, d: Driver) -> None:
        kept = [
            SignalRecord(
                signal_id=f"s{nth}",
                position=0,
                run_id="r1",
                name="go",
                path=None,
                payload=str(nth),
                policy="all",
                on_end="discard",
                received_at=3 + nth,
            )
            for nth in range(3)
        ]
        await imported(d, told(), signals=tuple(kept))
        assert [one.payload for one in await d.store.buffered("r1")] == ["0", "1", "2"]
        await d.claim()
        await d.suspend("r1", wait("w", signal("go")))
        assert (await d.step("r1", "w")).value == "0"

    async def test_a_first_signal_that_was_answered_is_answered(self, d: Driver) -> None:
        key = claim_on("r1", 0, "go", None)[1]
        await imported(d, told(), claims=((key, "s1"),))
        refused = await d.signal("r1", "go", policy="first")
        assert isinstance(refused, Refusal) and refused.code == "taken"

    async def test_its_deadline_and_what_cancels_it_stand_over_it(self, d: Driver) -> None:
        at = d.clock.now() + HOUR
        run = told(deadline_at=at, cancel_on='[["order.gone",""]]')
        await imported(d, run)
        await imported(d, replace(run, run_id="r2"), digest="d2")
        await d.emit("order.gone")
        assert (await d.run("r2")).cancel_requested
        run = replace(run, run_id="r3", cancel_on=None)
        await imported(d, run, digest="d3")
        await imported(d, replace(run, run_id="r4", cancel_requested=True), digest="d4")
        d.advance("1h")
        await d.fire()
        assert (await d.run("r3")).cancel_requested
        assert await d.store.waiting("r4") == []

    async def test_a_parent_counts_if_it_is_there(self, d: Driver) -> None:
        await d.start("p1")
        run = told(parent_run_id="p1", parent_path="c")
        await imported(d, run)
        await imported(d, replace(run, run_id="r2", parent_run_id="gone"), digest="d2")
        assert ((await d.run("r1")).parent_run_id, (await d.run("r2")).parent_run_id) == (
            "p1",
            None,
        )
        await d.cancel("p1")
        assert (await d.run("r1")).cancel_requested and not (await d.run("r2")).cancel_requested

    # --- pools ---

    async def test_in_a_pool_with_limits_it_stands_in_line(self, d: Driver) -> None:
        await d.set_pool("gpu", limit=1)
        run = await imported(d, told(pool="gpu", pool_key="k", priority=3), record("a", 3))
        assert (run.line_at, run.ready_at, run.admitted) == (d.clock.now(), None, True)
        fresh = await imported(d, told("r2", status="ready", pool="gpu"), digest="d2")
        assert not fresh.admitted
        ended = told("r3", status="completed", finished_at=9, output="1", pool="gpu")
        assert (await imported(d, ended, digest="d3")).line_at is None

    async def test_a_pool_that_is_not_there_is_refused(self, d: Driver) -> None:
        before = await dump(d.store)
        assert await d.apply(import_op(told(pool="gpu"))) == Refusal("no_pool", "gpu")
        assert await dump(d.store) == before
        ended = told(status="completed", finished_at=9, output="1", pool="gpu")
        await imported(d, ended)  # it needs no slot any more

    # --- again ---

    async def test_the_same_again_is_found_whatever_has_become_of_it(self, d: Driver) -> None:
        op = import_op(told(), record("a", 3))
        await d.apply(op)
        await d.claim()
        await d.finish("r1")
        before = await dump(d.store)
        assert await d.apply(op) == Started(await d.run("r1"), False)
        assert await dump(d.store) == before

    async def test_another_under_the_same_id_is_refused(self, d: Driver) -> None:
        await d.start("r0")
        await d.apply(import_op(told()))
        before = await dump(d.store)
        for op in (import_op(told("r0")), import_op(told("r1"), digest="other")):
            outcome = await d.apply(op)
            assert isinstance(outcome, Refusal) and outcome.code == "conflict"
        assert await dump(d.store) == before

    async def test_twice_in_one_batch_makes_one_run(self, d: Driver) -> None:
        op = import_op(told(), record("a", 3))
        first, second = await d.batch(op, op)
        assert (first.created, second.created) == (True, False)

    async def test_a_start_under_its_id_is_judged_as_ever(self, d: Driver) -> None:
        await imported(d, told(input="[1]"))
        same = await d.start("r1", input="[1]")
        assert isinstance(same, Started) and not same.created
        other = await d.start("r1", input="[2]")
        assert isinstance(other, Refusal) and other.code == "conflict"

    # --- the ledger ---

    async def test_the_ledger_is_told(self, d: Driver) -> None:
        run = await imported(d, told(generation=2))
        (fact,) = await d.store.events(0, 10)
        assert fact.type == "workflow.run_imported" and fact.position == run.position
        facts = {"run_id": "r1", "workflow": WORKFLOW, "version": 1, "status": "ready"}
        assert msgspec.json.decode(fact.payload) == {**facts, "generation": 2}

    async def test_it_is_pruned_as_any_other(self, d: Driver) -> None:
        run = told(status="completed", finished_at=9, output="1")
        await imported(d, run, record("a", 3))
        assert (await d.prune(finished_before=10)).count == 1
        assert (await d.store.counts()).get("steps", 0) == 0
        await imported(d, run)  # and its id is free

    async def test_a_long_history_is_one_commit(self, d: Driver) -> None:
        steps = [record(f"s{nth:04}", nth + 1, value=f'"{"x" * 50}"') for nth in range(3000)]
        await imported(d, told(), *steps)
        kept = await d.store.history("r1")
        assert [one.path for one in kept] == [one.path for one in steps]


class TestFork(Subject):
    async def test_a_fork_is_born_now_and_the_ledger_says_of_whom(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", done("a"), done("b"))
        await d.finish("r1")
        d.advance("1h")
        op = await fork_of(d, "r1", "a", finished_at=None, output=None)
        fork = (await d.apply(op)).run
        assert (fork.status, fork.created_at) == ("ready", d.clock.now())
        assert fork.position == (await d.run("r1")).position
        assert [one.path for one in await d.store.history(fork.run_id)] == ["a"]
        (fact,) = await d.store.events(0, 10, entity=("run", fork.run_id))
        assert fact.type == "workflow.run_started"
        told = msgspec.json.decode(fact.payload)
        assert (told["forked_from"], told["from_path"]) == ("r1", "x")

    async def test_its_waits_have_seen_what_those_it_took_over_have(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit_numbers(5)
        asked = topic("order.paid")
        for path in ("w1", "w2", "w3"):
            await d.suspend("r1", wait(path, asked), park=False)
        fork = (await d.apply(await fork_of(d, "r1", "w1", "w2"))).run
        await d.claim()
        await d.suspend(fork.run_id, wait("w3", asked), park=False)
        assert (await d.step(fork.run_id, "w3")).value == "3"

    async def test_nothing_taken_over_is_nothing_seen(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit_numbers(2)
        await d.suspend("r1", wait("w", topic("order.paid")), park=False)
        fork = (await d.apply(await fork_of(d, "r1"))).run
        await d.claim()
        await d.suspend(fork.run_id, wait("w", topic("order.paid")), park=False)
        assert (await d.step(fork.run_id, "w")).value == "1"

    async def test_a_wait_that_counted_from_its_opening_still_does(self, d: Driver) -> None:
        await d.start("r1")
        await d.emit_numbers(2)
        late = topic("order.paid", since="now")
        await d.suspend("r1", wait("w", late, timer("1s")), park=False)
        d.advance("1s")
        await d.fire()
        await d.emit("order.paid", "3")
        fork = (await d.apply(await fork_of(d, "r1", "w"))).run
        await d.claim()
        await d.suspend(fork.run_id, wait("v", late), park=False)
        assert (await d.step(fork.run_id, "v")).value == "3"

    async def test_a_deadline_of_its_own_counts_from_now(self, d: Driver) -> None:
        await d.start("r1")
        op = await fork_of(d, "r1")
        fork = (await d.apply(replace(op, deadline_us=HOUR))).run
        assert fork.deadline_at == d.clock.now() + HOUR

    async def test_the_original_stays_as_it_is(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", done("a"), failed("b"))
        await d.suspend("r1", wait("w", signal("go")), steps=(retrying("s", "1h"),))
        before = (await d.run("r1"), await d.store.history("r1"), await d.store.waiting("r1"))
        fork = (await d.apply(await fork_of(d, "r1", "a", "b"))).run
        after = (await d.run("r1"), await d.store.history("r1"), await d.store.waiting("r1"))
        assert after == before
        assert isinstance(await d.signal("r1", "go"), Delivered)
        assert (await d.run(fork.run_id)).status == "ready"
