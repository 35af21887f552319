"""What who looks after a store asks of it: runs with all their rows, where things are; and mending what is stuck."""

import pytest

from perdure.model import ops
from perdure.model.outcomes import Counted
from perdure.testing.conformance.driver import Driver, completed
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    approval,
    done,
    queue,
    retrying,
    signal,
    sleep,
    timer,
    topic,
    wait,
)


class TestLookingAfter(Subject):
    async def test_a_life_is_what_the_other_reads_say(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", done("a", '"much"'))
        await d.signal("r1", "early", "1")
        await d.publish_items("r1", ("s", "1"), ("s", "2"))
        await d.suspend("r1", wait("w", signal("go"), timer("1h")))
        await d.start("r2")
        await d.finish("r2")
        lives = {one.run.run_id: one for one in await d.store.lives(["r2", "r1", "nobody", "r1"])}
        assert sorted(lives) == ["r1", "r2"]
        life = lives["r1"]
        assert life.run == await d.run("r1")
        assert [one.path for one in life.steps] == [one.path for one in await d.store.history("r1")]
        assert life.watchers == await d.store.waiting("r1")
        assert life.signals == await d.store.buffered("r1")
        assert [
            (one.stream, one.last, one.first, one.newest, one.count) for one in life.streams
        ] == [("s", 2, 1, 2, 2)]
        ended = lives["r2"]
        assert not (ended.watchers or ended.signals or ended.streams)

    async def test_a_life_has_the_values_of_waits(self, d: Driver) -> None:
        await d.start("r1")
        await d.signal("r1", "go", '"now"')
        await d.suspend("r1", wait("w", signal("go")))
        ((step,),) = [one.steps for one in await d.store.lives(["r1"])]
        assert (step.value, step.winner) == ('"now"', 0)

    async def test_ids_of_runs_come_in_pages(self, d: Driver) -> None:
        assert await d.store.run_ids("", 2) == ([], "")
        ids = [f"r{nth}" for nth in range(5)]
        for run_id in ids:
            await d.start(run_id)
        found: list[str] = []
        after = ""
        while True:
            page, after = await d.store.run_ids(after, 2)
            assert len(page) <= 2
            found += page
            if not after:
                break
        assert sorted(found) == ids

    async def test_events_are_found_by_their_ids(self, d: Driver) -> None:
        await d.emit("a.b", "1")
        (event,) = await d.store.events(await d.head() - 1, 1)
        found = await d.store.positions_of([event.event_id, "nothing"])
        assert found == {event.event_id: event.position}
        assert await d.store.positions_of([]) == {}

    async def test_items_are_found_by_their_ids(self, d: Driver) -> None:
        await d.put("jobs", "1")
        (item,) = await d.store.queue_items("jobs", 0, 10)
        assert await d.store.items_of([item.item_id, "nothing"]) == {item.item_id}
        assert await d.store.items_of([]) == set()

    async def test_a_sound_store_has_no_flaw(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), topic("a.b"), timer("1d"))
        await d.signal("r1", "other", "1")
        await d.put("jobs", "1")
        await d.emit("a.c", "1", key="k")
        await d.start("r2")
        await d.publish_items("r2", ("s", "1"))
        await d.finish("r2")
        assert [one async for one in d.store.flaws()] == []

    async def test_it_says_what_it_is(self, d: Driver) -> None:
        found = await d.store.describe()
        assert found.versions == await d.store.versions()
        assert found.versions.stored == found.versions.known
        assert found.version and found.product
        weak = {one.name for one in found.settings if not one.ok}
        assert weak <= {"sqlite_version", "synchronous"}  # a suite may well go without the disk


class TestMending(Subject):
    async def mend(self, d: Driver, *run_ids: str) -> Counted:
        counted: Counted = await d.apply(ops.Mend(run_ids=run_ids))
        return counted

    async def test_a_parked_run_opens_its_waits_again(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        before = await d.run("r1")
        deadline = (await d.watchers("r1"))[0].deadline_at
        d.advance("1m")
        assert await self.mend(d, "r1", "r1", "nobody") == Counted(1)
        run = await d.run("r1")
        assert (run.status, run.owner, run.fence) == ("ready", None, 0)
        assert run.revision == before.revision + 1
        assert await d.watchers("r1") == []
        await d.claim()
        await d.suspend("r1", wait("w", signal("go"), timer("1h"), known=True))
        assert [one.deadline_at for one in await d.watchers("r1")] == [deadline]
        await d.signal("r1", "go", "1")
        assert await d.won("r1") == (0, "1")

    async def test_it_takes_what_has_come_meanwhile(self, d: Driver) -> None:
        await d.start_waiting("r1", queue("jobs"), signal("go"))
        await self.mend(d, "r1")
        await d.put("jobs", "7")
        await d.claim()
        answer = await d.suspend("r1", wait("w", queue("jobs"), signal("go"), known=True))
        assert completed(answer) == [("w", 0, "7")]
        assert await d.items("jobs") == []

    async def test_a_step_between_two_tries_is_still_due(self, d: Driver) -> None:
        await d.start("r1")
        await d.suspend("r1", steps=(retrying("a", "1h"),))
        before = await d.watched("r1")
        assert await self.mend(d, "r1") == Counted(1)
        assert await d.watched("r1") == before

    async def test_what_people_are_asked_stays_asked(self, d: Driver) -> None:
        await d.start_waiting("r1", approval())
        assert await self.mend(d, "r1") == Counted(1)
        await d.claim()
        await d.suspend("r1", wait("w", approval(), known=True))
        assert len(await d.store.approvals(None, 10)) == 1
        assert len(await d.facts("hitl.requested")) == 1

    @pytest.mark.parametrize("how", ["running", "ready", "paused", "finish", "fail"])
    async def test_a_run_that_is_not_stuck_stays_as_it_is(self, d: Driver, how: str) -> None:
        await d.start("r1", owner=None if how == "ready" else "worker-1")
        if how == "paused":
            await d.suspend("r1", sleep("s", "1h"))
            await d.pause("r1")
        elif how in ("finish", "fail"):
            await d.end("r1", how)
        before = await dump(d.store)
        assert await self.mend(d, "r1") == Counted(0)
        assert await dump(d.store) == before
