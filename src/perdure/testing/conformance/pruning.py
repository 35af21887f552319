"""Pruning: what ended long ago goes, with all that belongs to it, in bounded chunks; nothing else does."""

from perdure.model import ops
from perdure.model.outcomes import Counted, NotFound, Started
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import done, run, signal, wait


class TestPruning(Subject):
    async def test_a_run_that_ended_before_goes_with_all_its_rows(self, d: Driver) -> None:
        await d.start("r1", key="k")
        await d.record("r1", done("a"))
        await d.signal("r1", "go", key="k", policy="first")
        await d.fail("r1")
        d.advance("1h")
        assert await d.prune(finished_before=d.clock.now()) == Counted(1)
        assert await d.store.run("r1") is None
        assert await d.store.history("r1") == []
        assert await d.store.dead_letters(None, "", 10) == []
        counts = await d.store.counts()
        kinds = ("runs", "steps", "signals", "keys", "dead_letters", "watchers")
        assert [counts.get(name, 0) for name in kinds] == [0] * len(kinds)

    async def test_the_ledger_is_not_pruned_with_the_run(self, d: Driver) -> None:
        await d.start("r1")
        await d.finish("r1")
        d.advance("1h")
        await d.prune(finished_before=d.clock.now())
        assert len(await d.facts()) == 2

    async def test_what_ended_at_that_moment_or_lives_stays(self, d: Driver) -> None:
        await d.start("r1")
        await d.start("r2")
        await d.start_waiting("r3", signal("go"))
        await d.start("r4", owner=None)
        await d.finish("r1")
        before = await dump(d.store)
        assert await d.prune(finished_before=d.clock.now()) == Counted(0)
        assert await dump(d.store) == before

    async def test_a_limit_bounds_the_work_oldest_first(self, d: Driver) -> None:
        for number in range(5):
            await d.start(f"r{number}")
            await d.finish(f"r{number}")
            d.advance("1s")
        assert await d.prune(finished_before=d.clock.now(), limit=2) == Counted(2, more=True)
        assert await d.store.run("r1") is None
        assert await d.store.run("r2") is not None
        assert await d.prune(finished_before=d.clock.now(), limit=10) == Counted(3)
        assert await d.prune(finished_before=d.clock.now(), limit=10) == Counted(0)

    async def test_a_pruned_run_is_unknown_and_its_id_and_key_are_free(self, d: Driver) -> None:
        await d.start("r1", key="k", input="1")
        await d.finish("r1")
        d.advance("1s")
        await d.prune(finished_before=d.clock.now())
        assert await d.signal("r1", "go") == NotFound("r1")
        again = await d.start("r1", key="k", input="2")
        assert isinstance(again, Started) and again.created

    async def test_what_was_pruned_is_gone_for_the_rest_of_its_batch(self, d: Driver) -> None:
        await d.start("r1", key="k")
        await d.signal("r1", "go", "1", key="k", signal_id="s1")
        await d.fail("r1")
        send = d.signal_op("r1", "go", "1", key="k")
        start = d.start_op("r1", key="k", input="2")
        resend = ops.ResendDeadLetter(dead_letter_id="s1", signal_id="s2")
        prune = ops.Prune(finished_before=d.clock.now() + 1, limit=10)
        outcomes = await d.batch(start, send, resend, prune, resend, send, start, send)
        assert [type(one).__name__ for one in outcomes] == [
            "Refusal",
            "Duplicate",
            "Finished",
            "Counted",
            "Refusal",
            "NotFound",
            "Started",
            "Buffered",
        ]

    async def test_a_reopened_run_is_not_pruned(self, d: Driver) -> None:
        await d.start("r1")
        await d.fail("r1")
        await d.retry("r1")
        d.advance("1s")
        assert await d.prune(finished_before=d.clock.now()) == Counted(0)

    async def test_who_waited_for_a_pruned_run_has_its_answer(self, d: Driver) -> None:
        await d.start("r9")
        await d.start_waiting("r1", run("r9"))
        await d.finish("r9", "7")
        d.advance("1s")
        await d.prune(finished_before=d.clock.now())
        assert (await d.step("r1", "w")).value == "7"

    async def test_a_run_stays_while_a_child_of_it_lives(self, d: Driver) -> None:
        await d.start("parent")
        await d.start("child", parent_run_id="parent")
        await d.finish("parent")
        d.advance("1s")
        assert await d.prune(finished_before=d.clock.now()) == Counted(0)
        await d.finish("child")
        d.advance("1s")
        assert await d.prune(finished_before=d.clock.now()) == Counted(2)

    async def test_a_new_life_of_an_id_has_no_part_in_the_old_ones_children(
        self, d: Driver
    ) -> None:
        await d.start("parent")
        await d.start("child", parent_run_id="parent")
        await d.fail("child")
        await d.finish("parent")
        d.advance("1s")
        await d.prune(finished_before=d.clock.now(), limit=10)
        await d.start("parent")
        await d.start("child")
        await d.terminate("parent")
        assert (await d.run("child")).status == "running"

    async def test_a_run_stays_while_somebody_watches_it(self, d: Driver) -> None:
        # Both are cancelled and the child is quicker: its parent's wait stays until it learns of its own cancel.
        await d.start("parent")
        await d.start("child", parent_run_id="parent")
        await d.suspend("parent", wait("w", run("child")))
        await d.cancel("parent")
        await d.finish("child", None, status="cancelled")
        d.advance("1s")
        assert [one.target for one in await d.store.waiting("parent")] == ["child"]
        assert await d.prune(finished_before=d.clock.now()) == Counted(0)
        await d.terminate("parent")
        d.advance("1s")
        assert await d.prune(finished_before=d.clock.now()) == Counted(2)
