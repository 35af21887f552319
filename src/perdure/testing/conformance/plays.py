"""What a store does for plays: facts beside a record, waits that are announced, places that are passed; and retries
that begin where a saga began, or answer a wait anew."""

import msgspec
from msgspec.structs import replace

from perdure.model.outcomes import Buffered, Delivered, Refusal, Steered
from perdure.model.records import RETRY_PATH, ErrorRecord, SignalEntry
from perdure.testing.conformance.driver import Driver, refused
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    declared,
    done,
    entry,
    failed,
    signal,
    timer,
    topic,
    wait,
)

_place = replace(entry(), path="scene/ok", gates=(("scene.condition", "true"), ("way", '"a"')))


def rolled_back(path: str, *, undone: tuple[str, ...] = (), redo: tuple[str, ...] = ()) -> str:
    """The error of a run whose saga was undone, or could not be."""
    record = ErrorRecord(
        kind="workflow", type="ValueError", message="no", path=path, undone=undone, redo=redo
    )
    return msgspec.json.encode(record).decode()


class TestPlays(Subject):
    # --- facts ---

    async def test_facts_of_a_record_are_told_in_its_commit(self, d: Driver) -> None:
        await d.start("r1", entity_type="order", entity_id="7")
        told = (("signal.received", '{"name":"ok","state_after":{"n":1}}'),)
        await d.record("r1", replace(done("ok.receive", "1"), kind="act", facts=told))
        assert (await d.step("r1", "ok.receive")).kind == "act"
        (fact,) = await d.store.events(0, 10, type="signal.received")
        assert (fact.entity_type, fact.entity_id) == ("order", "7")
        assert msgspec.json.decode(fact.payload) == {
            "run_id": "r1",
            "workflow": "orders",
            "name": "ok",
            "state_after": {"n": 1},
        }

    async def test_what_is_refused_tells_nothing(self, d: Driver) -> None:
        await d.start("r1")
        fact = (("signal.received", "{}"),)
        await d.record("r1", replace(done("a"), facts=fact), fence=99)
        assert await d.store.events(0, 10, type="signal.received") == []

    async def test_whoever_waits_for_such_a_fact_hears_it(self, d: Driver) -> None:
        await d.start_waiting("listener", topic("signal.received"))
        await d.start("r1")
        await d.record("r1", replace(done("a"), facts=(("signal.received", '{"name":"x"}'),)))
        await d.fan_out_all()
        _, value = await d.won("listener")
        assert msgspec.json.decode(value or "")["name"] == "x"

    # --- waits that are announced ---

    async def test_a_wait_is_announced_when_it_opens_and_never_again(self, d: Driver) -> None:
        await d.start("r1")
        opened = replace(wait("w", signal("ok"), timer("1h")), announced=True)
        await d.suspend("r1", opened)
        await d.pause("r1")
        await d.resume("r1")
        await d.claim()
        await d.suspend("r1", replace(opened, known=True))
        (fact,) = await d.store.events(0, 10, type="signal.waiting")
        told = msgspec.json.decode(fact.payload)
        assert (told["name"], told["path"]) == ("ok", "w")
        assert told["deadline_at"] == d.clock.now() + 3600 * 1_000_000

    async def test_a_wait_that_finds_its_signal_is_not_announced(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "ok", "1")
        await d.suspend("r1", replace(wait("w", signal("ok")), announced=True))
        assert await d.store.events(0, 10, type="signal.waiting") == []

    async def test_a_timeout_that_is_handled_is_told_by_who_handles_it(self, d: Driver) -> None:
        await d.start("r1")
        await d.start("r2")
        handled = replace(wait("w", signal("ok"), timer("1h")), handles_timeout=True)
        await d.suspend("r1", handled)
        await d.suspend("r2", wait("w", signal("ok"), timer("1h")))
        d.advance("1h")
        await d.fire()
        facts = await d.store.events(0, 10, type="signal.timeout")
        assert [msgspec.json.decode(one.payload)["run_id"] for one in facts] == ["r2"]

    # --- places that are passed ---

    async def _in_a_play(self, d: Driver, place: SignalEntry = _place) -> None:
        await d.declare(declared(ok=place))
        await d.start("r1")

    async def test_a_place_that_is_ahead_keeps_a_signal_and_takes_it(self, d: Driver) -> None:
        await self._in_a_play(d)
        assert isinstance(await d.signal("r1", "ok", "1"), Buffered)
        await d.record("r1", done("scene.condition", "true"))
        assert isinstance(await d.signal("r1", "ok", "2"), Buffered)
        await d.suspend("r1", wait("scene/ok", signal("ok")))
        assert (await d.step("r1", "scene/ok")).value == "2"

    async def test_a_place_that_was_passed_refuses(self, d: Driver) -> None:
        await self._in_a_play(d)
        await d.suspend("r1", wait("scene/ok", signal("ok")))
        assert isinstance(await d.signal("r1", "ok", "1", key="k"), Delivered)
        before = await dump(d.store)
        answer = await d.signal("r1", "ok", "2")
        assert answer == Refusal("closed", "it was received")
        assert await dump(d.store) == before
        assert (
            refused(await d.signal("r1", "ok", "2", key="k")) == "conflict"
        )  # the key comes first

    async def test_a_place_that_timed_out_or_was_left_refuses(self, d: Driver) -> None:
        await self._in_a_play(d)
        await d.suspend("r1", wait("scene/ok", signal("ok"), timer("1h")))
        d.advance("1h")
        await d.fire()
        assert await d.signal("r1", "ok", "2") == Refusal("closed", "it timed out")
        await d.start("r2")
        await d.suspend("r2", wait("scene/ok", signal("ok")), park=False)
        await d.record("r2", closed=("scene/ok",))
        answer = await d.signal("r2", "ok", "2")
        assert answer == Refusal("closed", "the branch that waited for it was left")

    async def test_a_place_behind_a_gate_that_was_shut_refuses(self, d: Driver) -> None:
        await self._in_a_play(d)
        await d.record("r1", replace(done("scene.condition", "true"), kind="cue"))
        await d.record("r1", replace(done("way", '"b"'), kind="cue"))
        assert await d.signal("r1", "ok") == Refusal("closed", "it was skipped at 'way'")

    async def test_a_retried_play_opens_its_places_again(self, d: Driver) -> None:
        await self._in_a_play(d)
        await d.suspend("r1", wait("scene/ok", signal("ok"), timer("1h")))
        d.advance("1h")
        await d.fire()
        await d.claim()
        await d.fail("r1", "scene/ok")
        await d.retry("r1")
        assert isinstance(await d.signal("r1", "ok", "1"), Buffered)

    # --- retries ---

    async def _living(self, d: Driver) -> list[str]:
        ((_, steps),) = await d.store.load(["r1"])
        return sorted(one.path for one in steps if not one.path.startswith(RETRY_PATH))

    async def test_a_retry_of_what_was_rolled_back_does_it_all_anew(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", done("before"), done("saga/a"), done("g[0]/b"))
        await d.suspend("r1", wait("saga/w", signal("go")))
        await d.signal("r1", "go", "1")
        await d.claim()
        error = rolled_back("saga/c", undone=("saga/", "never"))
        await d.fail("r1", steps=(failed("saga/c"), done("saga/!rollback/a")), error=error)
        assert await d.retry("r1") == Steered("r1", "ready", True)
        # Also of other branches; but nobody is asked twice.
        assert await self._living(d) == ["before", "saga/w"]

    async def test_a_wait_that_failed_is_asked_again_though_it_was_answered(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.record("r1", done("a"))
        await d.suspend("r1", wait("w", signal("go")))
        await d.signal("r1", "go", "1")
        await d.claim()
        await d.fail("r1", error=rolled_back("w", undone=("a",)))
        await d.retry("r1")
        assert await self._living(d) == []

    async def test_a_retry_of_a_failed_roll_back_does_just_that_anew(self, d: Driver) -> None:
        await d.start("r1")
        undo = (failed("a"), failed("x.undo"), done("y.undo"), failed("z.undo"))
        error = rolled_back("x.undo", redo=("x.undo", "z.undo"))
        await d.fail("r1", steps=undo, error=error)
        await d.retry("r1")
        assert await self._living(d) == ["a", "y.undo"]

    async def test_a_failed_receipt_is_done_anew_with_what_was_received(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("ok", signal("ok")))
        await d.signal("r1", "ok", "1")
        await d.claim()
        await d.fail("r1", "ok", steps=(failed("ok.receive"),))
        await d.retry("r1")
        assert await self._living(d) == ["ok"]

    async def test_a_retry_from_a_path_on(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", done("a"), done("f[0]/x"), done("b"), done("g[0]/c"))
        await d.fail("r1", "d", steps=(failed("d"),))
        answer = await d.retry("r1", "nowhere")
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.paths) == ("no_step", ("a", "b", "d", "f[0]/x", "g[0]/c"))
        assert (await d.run("r1")).status == "failed"
        await d.retry("r1", "b")
        # With the branches that were begun after it; what others had done before it stays.
        assert await self._living(d) == ["a", "f[0]/x"]
        (fact,) = await d.facts("workflow.run_retried")
        assert msgspec.json.decode(fact.payload)["path"] == "b"

    async def test_a_retry_with_another_answer(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go"), timer("1h")))
        first = await d.signal("r1", "go", "1")
        assert isinstance(first, Delivered)
        await d.claim()
        await d.fail("r1", "b", steps=(done("a"), failed("b")))
        answer = d.signal_op("r1", "go", "2")
        before = await dump(d.store)
        assert refused(await d.retry("r1", "a", answer=answer)) == "no_answer"
        assert await dump(d.store) == before
        assert await d.retry("r1", "w", answer=answer) == Steered("r1", "ready", True)
        assert await self._living(d) == ["w"]
        step = await d.step("r1", "w")
        assert (step.state, step.winner, step.value) == ("done", 0, "2")
        assert step.taken_id == answer.signal_id
        (fact,) = await d.facts("workflow.run_retried")
        told = msgspec.json.decode(fact.payload)
        assert told["replaced"] == {"signal_id": first.signal_id, "payload": 1}
        assert told["answer"] == {"signal_id": answer.signal_id, "payload": 2}
        delivered = await d.facts("signal.delivered")
        assert [one.event_id for one in delivered] == [first.signal_id, answer.signal_id]
        marks = [one for one in await d.store.history("r1") if one.kind == "retry"]
        assert step.seq < marks[0].seq  # more may have to be done before it is asked for

    async def test_what_failed_elsewhere_is_done_anew_too(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", done("g[0]/a"), done("g[0]/b"), done("g[1]/c"))
        await d.fail("r1", "g[1]/d", steps=(failed("g[1]/d"),))
        await d.retry("r1", "g[0]/b")
        assert await self._living(d) == ["g[0]/a", "g[1]/c"]

    async def test_an_answer_that_does_not_fit_changes_nothing(self, d: Driver) -> None:
        await d.declare(declared(go=entry(schema={"type": "integer"})))
        await d.start("r1")
        await d.suspend("r1", wait("w", signal("go")))
        await d.signal("r1", "go", "1")
        await d.claim()
        await d.fail("r1", "b", steps=(failed("b"),))
        before = await dump(d.store)
        answer = d.signal_op("r1", "go", '"two"')
        assert refused(await d.retry("r1", "w", answer=answer)) == "invalid_payload"
        assert await dump(d.store) == before
