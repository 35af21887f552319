"""Mutants of the function that writes a batch: what each of its locks is for, shown by what happens without it.

A test takes the function as it is, changes one thing about it in a namespace of its own, and brings about the order of
events in which that matters. The same order on the function as it is must do no harm. So the schedules here are proven
to see what they look for, and the locks are proven to be needed: none of them is hidden behind another.

Chance would find most of these too, but seldom enough to make a test that fails now and then.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from holding import COMMIT, Outsider, overtaken
from racing import Race, claim

from perdure.model import limits, ops
from perdure.model.outcomes import Advanced
from perdure.store.postgres.opening import lock_class
from perdure.store.postgres.statements import functions, quote
from perdure.store.postgres.store import PostgresStore
from perdure.testing.conformance.words import done, queue, signal, topic, wait

Mutation = Callable[[str], str]


# --- mutations -------------------------------------------------------------------------------------


def _between(text: str, start: str, end: str) -> str:
    """The part of the function from one mark on and up to another."""
    found = re.search(re.escape(start) + r".*?(?=" + re.escape(end) + ")", text, re.DOTALL)
    assert found is not None, f"the function has no {start!r} before {end!r}"
    return found[0]


def without_lock_of_units(text: str) -> str:
    """Versions are compared by whoever comes, at the same time as others."""
    return text.replace(_between(text, "-- lock units", "-- compare units"), "")


def units_locked_and_read_at_once(text: str) -> str:
    """One statement that waits for its locks, and then reads versions as they were before it waited."""
    lock = _between(text, "perform case", ";\n\n        -- compare units")
    locked = lock.replace("perform case", "select (case", 1).replace(
        "end\n", "end)::text as got\n", 1
    )
    text = text.replace(lock + ";", "")
    compare = _between(text, "-- compare units", "    end if;")
    merged = compare.replace(
        "select\n", f"with locked as materialized ({locked})\n select\n", 1
    ).replace("u.name;", "u.name cross join (select count(got) from locked) as l;")
    assert merged != compare
    return text.replace(compare, merged)


def without_lock_of_runs(text: str) -> str:
    """The fence is tested on a row that may change before anything is written."""
    return text.replace(_between(text, "-- lock runs", "-- compare runs"), "")


def runs_locked_and_history_read_at_once(text: str) -> str:
    """What the owner has recorded is looked for by the statement that waits for the owner."""
    lock = _between(text, "perform 1 from runs", ";\n\n        -- compare runs")
    locked = lock.replace("perform 1", "select 1", 1)
    history = _between(text, "select max(t.seq) into v_seq", "    end if;")
    merged = f"with locked as materialized ({locked})\n" + history.replace(
        "where s.generation", "cross join (select count(*) from locked) as l where s.generation"
    )
    # The versions of the runs themselves are compared after it, so that only the history is at stake.
    compare = _between(text, "-- compare runs", "-- What the owner of a running run")
    return text.replace(lock + ";", "").replace(history, merged + compare).replace(compare, "", 1)


def versions_that_stay(text: str) -> str:
    """Who opens a wait does not tell those who emit."""
    return text.replace("greatest(u.version + 1, p_seq)", "u.version")


def versions_that_do_not_count_along(text: str) -> str:
    """The version of a queue says nothing about the numbers of its items."""
    return text.replace("greatest(u.version + 1, p_seq)", "u.version + 1")


def claim_without_locks(text: str) -> str:
    """Rows are chosen by all who claim at once, and taken by one after the other."""
    return text.replace("for no key update skip locked", "")


def events_compared_before_the_head_is_locked(text: str) -> str:
    """Whether an event came is asked while somebody is appending one."""
    compare = _between(text, "if v_looked", "if v_stale_units is not null or")
    mark = "-- --- lock and compare: the head of the ledger ---"
    return text.replace(compare, "").replace(mark, compare + mark)


def streams_that_are_not_compared(text: str) -> str:
    """Items go where the stream ended when somebody looked."""
    return text.replace(
        "if v_count > 0 then\n        raise exception '% streams",
        "if false then\n        raise exception '% streams",
    )


# --- the stage -------------------------------------------------------------------------------------


class Stage:
    """Two processes and an outsider in a namespace whose function may be changed."""

    def __init__(self, url: str, namespace: str) -> None:
        self.race = Race(
            lambda clock, ids: PostgresStore(url, namespace=namespace, clock=clock, ids=ids), 1
        )
        self._schema = f"perdure_{namespace}"
        self.outsider = Outsider(url, self._schema)

    def mutate(self, mutation: Mutation | None) -> None:
        if mutation is None:
            return
        text = functions()["apply_v1"]
        mutated = mutation(text)
        assert mutated != text, f"{mutation.__name__} changed nothing"
        own = mutated.replace("{schema}", quote(self._schema))
        self.outsider.execute(own.replace("{lock_class}", str(lock_class(self._schema))))

    def end(self) -> None:
        self.outsider.close()
        self.race.end()


@pytest.fixture
def stage(postgres_url: str, postgres_namespace: str) -> Iterator[Stage]:
    stage = Stage(postgres_url, postgres_namespace)
    try:
        yield stage
    finally:
        stage.end()


# --- schedules: each raises AssertionError if what was promised does not hold -----------------------


def emit_while_a_wait_opens(stage: Stage) -> None:
    """The wait has compared and not written: its open step waits for the outsider. It appends no event, so the head of
    the ledger does not keep the emitter away; only the lock of the topic does, and who waits for that must read after
    it has it.
    """
    race, outsider = stage.race, stage.outsider
    race.start("r")
    race.b.apply(race.b.d.emit_op("other"))
    suspend = race.turn(ops.Suspend, "r", waits=(wait("w", topic("tick")),))
    outsider.hold_step("r", "w")
    opened, told = outsider.behind(
        (race.a, race.a.d.apply(suspend)), (race.b, race.b.d.emit("tick", "7"))
    )
    check_that_the_wait_has_its_event(race, opened, told)


def wait_opens_while_an_event_is_appended(stage: Stage) -> None:
    """The event has been compared and not written: its row waits for the outsider, and the head is locked. The wait
    needs no head.
    """
    race, outsider = stage.race, stage.outsider
    race.start("r")
    suspend = race.turn(ops.Suspend, "r", waits=(wait("w", topic("tick")),))
    outsider.hold_event("e")
    emit = race.b.d.emit("tick", "7", event_id="e", fresh=True)
    told, opened = outsider.behind((race.b, emit), (race.a, race.a.d.apply(suspend)))
    check_that_the_wait_has_its_event(race, opened, told)


def check_that_the_wait_has_its_event(race: Race, opened: Any, told: Any) -> None:
    step = race.step("r")
    assert (step.state, step.value) == ("done", "7"), "the wait is open beside its event"
    assert told.resumed == int(opened.parked)


def emit_after_a_wait_was_opened_elsewhere(stage: Stage) -> None:
    """The emitter remembers that nobody waited for the topic; nothing but its version says otherwise."""
    race = stage.race
    race.b.apply(race.b.d.emit_op("tick"))
    race.start_waiting(["r"], wait("w", topic("tick")))
    (told,) = race.b.apply(race.b.d.emit_op("tick", "7"))[0]
    assert (told.resumed, race.step("r").state) == (1, "done"), "the wait is open beside its event"


def reclaim_while_the_former_owner_records(stage: Stage) -> None:
    """Its fence was tested, its step waits for the outsider. A plain result touches no row of the run and appends no
    event: nothing but the lock of the run keeps it from being written after the new owner has read the history.
    """
    race, outsider = stage.race, stage.outsider
    race.start("r", owner="ghost")
    record = race.turn(ops.RecordStep, "r", steps=(done("s"),))
    outsider.hold_step("r", "s")

    async def take_over() -> list[str]:
        await race.b.d.recover()
        (taken,) = (await race.b.d.apply(claim("worker-b", 9, 1))).runs
        return [one.path for one in await race.b.store.history(taken.run_id)]

    recorded, read = outsider.behind((race.a, race.a.d.apply(record)), (race.b, take_over()))
    assert isinstance(recorded, Advanced)
    history = [one.path for one in race.b.do(race.b.store.history("r"))]
    assert history == read, "the former owner wrote into a history that the new one had read"


def delivery_while_the_owner_records(stage: Stage) -> None:
    """The owner counts further than the sender, and its step waits for the outsider with the run locked. Whoever waits
    for the run must look at its history when it has it, or gives the later of the two the smaller number.
    """
    race, outsider = stage.race, stage.outsider
    race.start("r")
    race.a.apply(*(race.a.d.put_op("ahead") for _ in range(20)))
    race.a.apply(race.turn(ops.Suspend, "r", waits=(wait("w", signal("go")),), park=False))
    # The sender has looked before: its number is that of now.
    race.b.apply(race.b.d.signal_op("r", "other"))
    record = race.turn(ops.RecordStep, "r", steps=tuple(done(f"s{at}") for at in range(20)))
    outsider.hold_step("r", "s0")
    recorded, _ = outsider.behind(
        (race.a, race.a.d.apply(record)), (race.b, race.b.d.signal("r", "go"))
    )
    order = race.step("r").seq > race.step("r", "s19").seq
    assert order is (recorded.revision == 0), "the history tells another order than it had"


def two_claims_of_one_run(stage: Stage) -> None:
    """Both have come to the run before either has it: it waits for the outsider."""
    race, outsider = stage.race, stage.outsider
    race.start("r", owner=None)
    outsider.hold_run("r")
    claims = [
        process.begin(process.d.apply(claim(process.worker_id, fence, 1)))
        for fence, process in enumerate((race.a, race.b), 1)
    ]
    outsider.until(lambda: outsider.waiting() + sum(one.done() for one in claims) >= 2)
    outsider.release()
    taken = [run for one in claims for run in one.result(timeout=30).runs]
    assert len(taken) <= 1, "one run was given to two"


def puts_of_two_that_count_differently(stage: Stage) -> None:
    """The queue is empty when the second puts: nothing in it says how far the first has counted, and what was taken
    from it comes back.
    """
    race = stage.race
    race.start("r")
    race.a.apply(*(race.a.d.put_op("ahead") for _ in range(20)))
    race.a.apply(race.a.d.put_op("q", "1"))
    race.a.apply(race.turn(ops.Suspend, "r", waits=(wait("w", queue("q")),), park=False))
    race.b.apply(race.b.d.put_op("q", "2"))
    race.a.apply(race.turn(ops.RecordStep, "r", closed=("w",)))
    assert race.a.do(race.a.d.items("q")) == ["1", "2"], "the second item is before the first"


def emits_that_say_the_same(stage: Stage) -> None:
    """The first has compared and holds the head; the second is a repeat only if it looks once more when it has it."""
    race, outsider = stage.race, stage.outsider
    outsider.hold_event("e")
    same = {"repeats": "drop", "fresh": True}
    outsider.behind(
        (race.a, race.a.d.emit("state", "1", event_id="e", **same)),
        (race.b, race.b.d.emit("state", "1", event_id="f", **same)),
    )
    repeated = [race.a.do(race.a.store.event(one)).repeated for one in "ef"]
    assert repeated == [False, True], "the same was said twice"


def items_of_two_for_one_stream(stage: Stage) -> None:
    """Of a stream that keeps little: what the one wrote meanwhile is gone again where the other writes."""
    race = stage.race
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "stream_items_max", 2)
        race.start("r")
        race.a.apply(race.a.do(race.a.d.publish_op("r", ("a", "1"))))
        late = race.b.do(race.b.d.publish_op("r", ("a", "late")))
        with overtaken(race.b, COMMIT, race.b.d.batch(late)):
            more = [("a", str(number)) for number in range(5)]
            race.a.apply(race.a.do(race.a.d.publish_op("r", *more)))
        items = race.a.do(race.a.d.published("r", "a"))
        assert items == [(6, "4"), (7, "late")], "positions were given to two"


CAUGHT = [
    (without_lock_of_units, emit_while_a_wait_opens),
    (without_lock_of_units, wait_opens_while_an_event_is_appended),
    (units_locked_and_read_at_once, emit_while_a_wait_opens),
    (versions_that_stay, emit_after_a_wait_was_opened_elsewhere),
    (without_lock_of_runs, reclaim_while_the_former_owner_records),
    (runs_locked_and_history_read_at_once, delivery_while_the_owner_records),
    (claim_without_locks, two_claims_of_one_run),
    (versions_that_do_not_count_along, puts_of_two_that_count_differently),
    (events_compared_before_the_head_is_locked, emits_that_say_the_same),
    (streams_that_are_not_compared, items_of_two_for_one_stream),
]
Schedule = Callable[[Stage], None]


@pytest.mark.parametrize(
    ("mutation", "schedule"), CAUGHT, ids=[f"{one.__name__}-{at.__name__}" for one, at in CAUGHT]
)
def test_a_mutant_is_caught(stage: Stage, mutation: Mutation, schedule: Schedule) -> None:
    stage.mutate(mutation)
    with pytest.raises(
        AssertionError, match=r"beside its event|history|two|before the first|twice"
    ):
        schedule(stage)


@pytest.mark.parametrize(
    "schedule", dict.fromkeys(one for _, one in CAUGHT), ids=lambda one: one.__name__
)
def test_the_function_as_it_is_holds(stage: Stage, schedule: Schedule) -> None:
    schedule(stage)
    stage.race.check()
