"""Reads: every commit is seen, everything pages by cursor, each filter means what it says."""

from perdure.model.records import StepRecord, history_place
from perdure.store.base import Backlog, RunFilter
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.dump import dump
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import (
    HOUR,
    SECOND,
    WORKER,
    done,
    failed,
    run,
    signal,
    sleep,
    timer,
    wait,
)


async def listed(d: Driver, **where: object) -> list[str]:
    """The ids of the runs that a filter finds."""
    found = await d.store.runs(RunFilter(**where), None, 100)  # type: ignore[arg-type]
    return [one.run_id for one in found]


class TestReads(Subject):
    async def test_a_run_that_never_was_is_none(self, d: Driver) -> None:
        assert await d.store.run("nobody") is None
        assert await d.store.history("nobody") == []
        assert await d.store.waiting("nobody") == []
        assert await d.store.buffered("nobody") == []
        assert await d.store.load(["nobody"]) == []

    async def test_a_read_sees_every_commit_that_was_answered(self, d: Driver) -> None:
        await d.start("r1")
        for number in range(20):
            await d.record("r1", done(f"s#{number}"))
            assert len(await d.store.history("r1")) == number + 1

    async def test_a_history_is_read_by_pages_and_what_is_open_is_on_the_last(
        self, d: Driver
    ) -> None:
        await d.start("r1")
        await d.record("r1", done("old"))
        await d.continue_as("r1")
        await d.record("r1", done("c"), done("a"), done("b"))
        await d.suspend("r1", wait("w", signal("go")), wait("v", signal("on")))
        whole = await d.store.history("r1")
        assert [one.path for one in whole[-5:]] == ["c", "a", "b", "v", "w"]
        decided, undecided = whole[:-2], whole[-2:]
        after = None
        for one in decided:
            assert await d.store.history_page("r1", after, 1) == [one]
            after = history_place(one)
        assert await d.store.history_page("r1", after, 1) == undecided
        assert await d.store.history_page("r1", None, len(decided)) == decided
        assert await d.store.history_page("r1", None, len(decided) + 1) == whole
        # What is decided meanwhile comes after all that was shown.
        await d.signal("r1", "go", "1")
        page = await d.store.history_page("r1", after, 2)
        assert [(one.path, one.state) for one in page] == [("w", "done"), ("v", "open")]
        assert await d.store.history_page("nobody", None, 9) == []

    async def test_what_was_answered_is_there_after_closing_and_opening(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), timer("1h"))
        await d.signal("r1", "stop", "1", key="k")
        before = await dump(d.store)
        await d.store.close()
        await d.store.open()
        assert await dump(d.store) == before
        await d.beat()
        await d.signal("r1", "go", "1")
        assert (await d.step("r1", "w")).value == "1"

    # --- runs ---

    async def test_runs_are_listed_newest_first(self, d: Driver) -> None:
        for run_id in ("b", "a", "c"):
            await d.start(run_id)
            d.advance("1s")
        assert await listed(d) == ["c", "a", "b"]

    async def test_runs_page_by_cursor_also_within_one_moment(self, d: Driver) -> None:
        for number in range(7):
            await d.start(f"r{number}")
            if number % 3 == 2:
                d.advance("1s")
        seen: list[str] = []
        after = None
        while page := await d.store.runs(RunFilter(), after, 2):
            assert len(page) <= 2
            seen += [one.run_id for one in page]
            after = (page[-1].created_at, page[-1].run_id)
        assert seen == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]

    async def test_a_run_that_starts_between_two_pages_moves_nothing(self, d: Driver) -> None:
        for number in range(4):
            await d.start(f"r{number}")
            d.advance("1s")
        first = await d.store.runs(RunFilter(), None, 2)
        await d.start("r9")
        after = (first[-1].created_at, first[-1].run_id)
        second = await d.store.runs(RunFilter(), after, 2)
        assert [one.run_id for one in second] == ["r1", "r0"]

    async def test_runs_by_status(self, d: Driver) -> None:
        await d.start("r1")
        await d.start("r2", owner=None)
        await d.start_waiting("r3", signal("go"))
        assert await listed(d, statuses=("running",)) == ["r1"]
        assert sorted(await listed(d, statuses=("ready", "waiting"))) == ["r2", "r3"]
        assert await listed(d, statuses=("failed",)) == []

    async def test_runs_by_status_page_in_one_order(self, d: Driver) -> None:
        for number in range(6):
            await d.start(f"r{number}", owner=None if number % 2 else "worker-1")
            d.advance("1s")
        where = RunFilter(statuses=("ready", "running"))
        first = await d.store.runs(where, None, 4)
        after = (first[-1].created_at, first[-1].run_id)
        found = first + await d.store.runs(where, after, 4)
        assert [one.run_id for one in found] == ["r5", "r4", "r3", "r2", "r1", "r0"]

    async def test_runs_by_workflow_entity_and_parent(self, d: Driver) -> None:
        await d.start("r1", entity_type="order", entity_id="1")
        await d.start("r2", workflow="refunds", entity_type="order", entity_id="2")
        await d.start("r3", parent_run_id="r1")
        assert sorted(await listed(d, workflow="orders")) == ["r1", "r3"]
        assert await listed(d, entity=("order", "2")) == ["r2"]
        assert await listed(d, parent_run_id="r1") == ["r3"]
        assert await listed(d, workflow="orders", entity=("order", "2")) == []
        assert await listed(d, parent_run_id="r1", statuses=("running",)) == ["r3"]
        assert await listed(d, entity=("order", "1"), statuses=("ready",)) == []

    async def test_runs_by_tag(self, d: Driver) -> None:
        await d.start("r1", tags='{"eu":"yes","big":"no"}')
        await d.start("r2", tags='{"eu":"no"}')
        await d.start("r3")
        assert sorted(await listed(d, tag=("eu", None))) == ["r1", "r2"]
        assert await listed(d, tag=("eu", "yes")) == ["r1"]
        assert await listed(d, tag=("eu", "yes"), statuses=("running",)) == ["r1"]
        assert await listed(d, tag=("us", None)) == []

    async def test_a_tag_may_have_any_name(self, d: Driver) -> None:
        await d.start("r1", tags='{"a.b":"1","c d":"2","\\"q":"3","$":"4","ü":"5","x[0]":"6"}')
        for name, value in (("a.b", "1"), ("c d", "2"), ('"q', "3"), ("$", "4"), ("ü", "5")):
            assert await listed(d, tag=(name, value)) == ["r1"], name
        assert await listed(d, tag=("x[0]", None)) == ["r1"]
        assert await listed(d, tag=("a", None)) == []

    async def test_runs_by_time_of_creation(self, d: Driver) -> None:
        start = d.clock.now()
        for number in range(3):
            await d.start(f"r{number}")
            d.advance("1h")
        assert await listed(d, created_from=start + HOUR) == ["r2", "r1"]
        assert await listed(d, created_before=start + HOUR) == ["r0"]
        assert await listed(d, created_from=start + 1, created_before=start + 2 * HOUR) == ["r1"]

    # --- histories and waits ---

    async def test_a_history_is_in_order_with_what_is_open_last(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", done("c"))
        await d.continue_as("r1")
        await d.suspend("r1", wait("b", signal("go")), wait("a", signal("on")), park=False)
        await d.record("r1", done("z"))
        await d.record("r1", done("y"))
        at = [(one.generation, one.path) for one in await d.store.history("r1")]
        assert at == [(0, "c"), (1, "z"), (1, "y"), (1, "a"), (1, "b")]

    async def test_load_gives_the_living_rows_of_the_present_generation(self, d: Driver) -> None:
        await d.start("r1")
        await d.record("r1", done("a"))
        await d.continue_as("r1")
        await d.record("r1", done("b"))
        await d.fail("r1", "c", steps=(failed("c"),))
        await d.retry("r1")
        await d.start("r2")
        loaded = await d.store.load(["r2", "nobody", "r1"])
        paths = {record.run_id: sorted(map(_path, steps)) for record, steps in loaded}
        assert paths == {"r1": ["!retry#1", "b"], "r2": []}
        assert {record.run_id: record for record, _ in loaded}["r1"] == await d.run("r1")

    async def test_waiting_is_in_the_order_of_opening(self, d: Driver) -> None:
        await d.start("r2")
        await d.start("r1")
        await d.suspend("r1", wait("z", signal("go"), run("r2")), park=False)
        d.advance("1s")
        await d.suspend("r1", sleep("a", "1h"))
        assert await d.watched("r1") == [
            ("z", "signal", "go"),
            ("z", "run", "r2"),
            ("a", "timer", ""),
        ]

    async def test_find_waiting_pages_longest_waiting_first(self, d: Driver) -> None:
        for run_id in ("b", "a"):
            await d.start(run_id)
            await d.suspend(run_id, wait("y", signal("go")), wait("x", signal("go")))
            d.advance("1s")
        await d.start_waiting("c", signal("other"))
        seen = []
        after = None
        while page := await d.store.find_waiting("go", None, after, 3):
            seen += [(one.run_id, one.path) for one in page]
            after = (page[-1].opened_at, page[-1].run_id, page[-1].path, page[-1].ix)
        assert seen == [("b", "x"), ("b", "y"), ("a", "x"), ("a", "y")]

    async def test_find_waiting_by_age(self, d: Driver) -> None:
        await d.start_waiting("old", signal("go"))
        d.advance("1h")
        await d.start_waiting("new", signal("go"))
        found = await d.store.find_waiting("go", d.clock.now(), None, 10)
        assert [one.run_id for one in found] == ["old"]

    # --- signals and events ---

    async def test_events_page_by_position(self, d: Driver) -> None:
        for number in range(5):
            await d.start(f"r{number}")
        first = await d.store.events(0, 2)
        assert [one.position for one in first] == [1, 2]
        assert [one.position for one in await d.store.events(2, 100)] == [3, 4, 5]
        assert await d.store.events(5, 100) == []

    async def test_events_by_type_and_entity(self, d: Driver) -> None:
        await d.start("r1", entity_type="order", entity_id="1")
        await d.start("r2", entity_type="order", entity_id="2")
        await d.finish("r1")
        types = [one.type for one in await d.store.events(0, 10, entity=("order", "1"))]
        assert types == ["workflow.run_started", "workflow.run_completed"]
        started = await d.store.events(0, 10, type="workflow.run_started")
        assert [one.position for one in started] == [1, 2]
        both = await d.store.events(0, 10, type="workflow.run_completed", entity=("order", "1"))
        assert [one.position for one in both] == [3]

    # --- what is next, and how many ---

    async def test_a_look_names_the_next_deadline_and_the_next_ready_run(self, d: Driver) -> None:
        look = await d.store.look()
        assert (look.deadline_at, look.ready_at, look.fan_out) == (None, None, False)
        now = d.clock.now()
        await d.start("r1")
        await d.suspend("r1", sleep("s", "2h"))
        await d.start_waiting("r2", signal("go"), timer("1h"))
        await d.start("r3", start_at=now + 3 * HOUR)
        look = await d.store.look()
        assert (look.deadline_at, look.ready_at) == (now + HOUR, now + 3 * HOUR)
        await d.start("r4", owner=None)
        assert (await d.store.look()).ready_at == now
        assert (await d.store.look([("orders", 1)])).ready_at == now
        assert (await d.store.look([("orders", 2), ("refunds", 1)])).ready_at is None

    async def test_a_look_names_the_living_workers_and_who_reads_the_ledger(
        self, d: Driver
    ) -> None:
        await d.beat("worker-2", lease_us=HOUR)
        await d.beat("worker-3", lease_us=3 * HOUR)
        reader = await d.claim_consumer("reader", "worker-2")
        another = await d.claim_consumer("another", "worker-3")
        look = await d.store.look()
        assert look.workers == {WORKER, "worker-2", "worker-3"}
        assert look.consumers == (another, reader)
        d.advance("2h")
        assert (await d.store.look()).workers == {WORKER, "worker-3"}
        await d.beat("worker-3", stopping=True)
        assert (await d.store.look()).workers == {WORKER}

    async def test_workers_say_which_workflows_they_execute(self, d: Driver) -> None:
        await d.beat("worker-2", lease_us=HOUR, workflows=(("orders", 1), ("orders", 2)))
        await d.beat("worker-3", lease_us=3 * HOUR)
        said = {one.worker_id: one.workflows for one in await d.store.workers()}
        assert said == {WORKER: "[]", "worker-2": '[["orders",1],["orders",2]]', "worker-3": "[]"}
        await d.beat("worker-3", lease_us=3 * HOUR, workflows=(("refunds", 7),))
        d.advance("2h")
        said = {one.worker_id: one.workflows for one in await d.store.workers()}
        assert said == {WORKER: "[]", "worker-3": '[["refunds",7]]'}

    async def test_the_backlog_is_told_by_workflow_and_version(self, d: Driver) -> None:
        await d.set_pool("gpu", rate=None)
        assert await d.store.backlog(d.clock.now(), 100) == []
        first = d.clock.now()
        for nth, (workflow, version, pool) in enumerate(
            [("b", 1, ""), ("b", 2, ""), ("a:x", 1, "gpu"), ("b", 2, "gpu"), ("b", 2, "")]
        ):
            await d.start(f"r{nth}", owner=None, workflow=workflow, version=version, pool=pool)
            d.advance("1s")
        await d.start("running", workflow="c")
        await d.start("later", workflow="c", start_at=d.clock.now() + HOUR)
        there = [
            Backlog("a:x", 1, 1, first + 2 * SECOND),
            Backlog("b", 1, 1, first),
            Backlog("b", 2, 3, first + SECOND),
        ]
        assert await d.store.backlog(d.clock.now(), 100) == there
        d.advance("1h")
        assert [one.workflow for one in await d.store.backlog(d.clock.now(), 100)] == [
            *("a:x", "b", "b", "c"),
        ]
        # The bound counts for each pool.
        assert [one.count for one in await d.store.backlog(d.clock.now(), 1)] == [1, 1, 2, 1]

    async def test_a_look_shows_both_ends_of_the_ledger(self, d: Driver) -> None:
        assert ((await d.store.look()).first, (await d.store.look()).last) == (1, 0)
        await d.emit_numbers(3)
        look = await d.store.look()
        assert (look.first, look.last) == await d.store.span() == (1, 3)
        assert d.store.head == 3

    async def test_counts_say_how_many_rows_of_each_kind(self, d: Driver) -> None:
        await d.start_waiting("r1", signal("go"), run("r1"))
        await d.start("r2", key="k")
        await d.signal("r2", "go")
        await d.start("r3")
        await d.signal("r3", "go")
        await d.fail("r3")
        counts = await d.store.counts()
        assert {name: counts[name] for name in counts if name.startswith("runs")} == {
            "runs": 3,
            "runs.waiting": 1,
            "runs.running": 1,
            "runs.failed": 1,
        }
        kinds = ("steps", "watchers", "signals", "keys", "dead_letters", "workers", "events")
        assert [counts.get(name) for name in kinds] == [1, 2, 1, 1, 1, 1, 5]

    async def test_looks_inspect_every_parked_run_by_pages(self, d: Driver) -> None:
        for number in range(5):
            await d.start_waiting(f"r{number}", signal("go"))
        await d.start("running")
        place, pages = "", 0
        while True:
            look = await d.store.look(after=place, limit=2)
            place = look.swept
            pages += 1
            assert look.suspects == ()
            if not place:
                break
        assert pages == 3

    # --- text that stores may stumble over ---

    async def test_payloads_come_back_byte_for_byte(self, d: Driver) -> None:
        payload = '{"b":1.0, "a":[1e3,"\\u00e9","é","\\u0000","\U0001f600"],"a":null}'
        await d.start("r1", input=payload)
        await d.signal("r1", "go", payload)
        await d.suspend("r1", wait("w", signal("go")))
        assert (await d.run("r1")).input == payload
        assert (await d.step("r1", "w")).value == payload

    async def test_ids_and_names_may_hold_any_text(self, d: Driver) -> None:
        for run_id in ("a'b", 'a"b', "a%b_c", "ä/ö", "a\\b", "é" * 20, "-- drop", "{r}"):
            await d.start_waiting(run_id, signal(run_id))
            await d.signal(run_id, run_id, '"x"', key=run_id)
            assert (await d.step(run_id, "w")).value == '"x"'


def _path(step: StepRecord) -> str:
    return step.path
