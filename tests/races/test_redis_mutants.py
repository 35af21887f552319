"""Mutants of the script that writes a batch: what each of its comparisons is for, shown by what happens without it.

One process is held before its commit while another does its part. The same on the script as it is must do no harm.
"""

import re
from collections.abc import Callable, Iterator

import pytest
from holding import COMMIT, overtaken
from racing import Race

from perdure.model import ops
from perdure.store.redis import connecting, writing
from perdure.store.redis.scripts import Script, script
from perdure.store.redis.store import RedisStore
from perdure.testing.conformance.words import done, queue, signal, topic, wait

Mutation = Callable[[str], str]


def _without(start: str, end: str) -> Mutation:
    """The script without what stands from one text on and up to another."""

    def mutate(text: str) -> str:
        part = re.escape(start) + r".*?(?=" + re.escape(end) + ")"
        mutated, count = re.subn(part, "", text, count=1, flags=re.DOTALL)
        assert count == 1, f"the script has no {start!r} before {end!r}"
        return mutated

    return mutate


units_unseen = _without(
    "for nth, version in ipairs(fields_of(prefix .. 'units'", "for nth = 1, #batch.runs"
)
runs_unseen = _without("for nth = 1, #batch.runs", "-- What the owner of a running run")
history_unseen = _without("for _, one in ipairs(batch.seqs)", "-- Whoever found no event")
events_unseen = _without("for nth, topic in ipairs(batch.topics)", "local is_late")
births_unseen = _without(
    "if how_many_exist('run:', batch.born)", "for _, one in ipairs(batch.absent)"
)
keys_unseen = _without("for _, one in ipairs(batch.absent)", "for _, one in ipairs(batch.present)")
streams_unseen = _without("for _, one in ipairs(batch.same)", "local ids = {}")
ids_unseen = _without("for _, there in ipairs(fields_of(prefix .. 'event_ids'", "-- --- write ---")
floor_unseen = _without("    call('HSET', prefix .. 'head', 'units'", "    call('UNLINK'")


# --- schedules: each raises AssertionError if what was promised does not hold -----------------------


def an_item_while_a_wait_opens(race: Race) -> None:
    race.start("r")
    opens = race.turn(ops.Suspend, "r", waits=(wait("w", queue("q")),))
    with overtaken(race.b, COMMIT, race.b.d.batch(opens)):
        race.a.apply(race.a.d.put_op("q", "7"))
    assert race.step("r").value == "7"


def an_item_while_versions_are_let_go(race: Race) -> None:
    """The queue had no version when it was looked at, and has none again."""
    race.start("r")
    opens = race.turn(ops.Suspend, "r", waits=(wait("w", queue("q")),))
    with overtaken(race.b, COMMIT, race.b.d.batch(opens)), pytest.MonkeyPatch.context() as patch:
        race.a.apply(race.a.d.put_op("q", "7"))
        patch.setattr(writing, "units_max", 0)
        race.a.apply(race.a.d.put_op("another", "8"))
    assert race.step("r").value == "7"


def two_signals_for_one_wait(race: Race) -> None:
    race.start_waiting(["r"], wait("w", signal("go")))
    with overtaken(race.b, COMMIT, race.b.d.batch(race.b.d.signal_op("r", "go", "2"))):
        race.a.apply(race.a.d.signal_op("r", "go", "1"))
    assert race.step("r").value == "1"


def a_delivery_while_the_owner_records(race: Race) -> None:
    """Plain results do not move the version of a run: who delivers to it must still come after them."""
    race.start("r")
    opens = race.turn(ops.Suspend, "r", waits=(wait("w", signal("go")),), park=False)
    race.a.apply(opens)
    with overtaken(race.b, COMMIT, race.b.d.batch(race.b.d.signal_op("r", "go"))):
        steps = tuple(done(f"s{at}") for at in range(20))
        race.a.apply(race.turn(ops.RecordStep, "r", steps=steps))
    assert race.step("r").seq > race.step("r", "s19").seq, "the history tells another order"


def an_event_while_a_wait_opens(race: Race) -> None:
    race.start("r")
    opens = race.turn(ops.Suspend, "r", waits=(wait("w", topic("tick")),))
    with overtaken(race.b, COMMIT, race.b.d.batch(opens)):
        race.a.apply(race.a.d.emit_op("tick", "7"))
    assert race.step("r").value == "7"


def two_starts_of_one_id(race: Race) -> None:
    with overtaken(race.b, COMMIT, race.b.d.batch(race.b.d.start_op("r", input="2"))) as late:
        race.a.apply(race.a.d.start_op("r", input="1"))
    assert race.run("r").input == "1", late.result()


def two_puts_with_one_key(race: Race) -> None:
    with overtaken(race.b, COMMIT, race.b.d.batch(race.b.d.emit_op("t", "1", key="k"))):
        race.a.apply(race.a.d.emit_op("t", "1", key="k"))
    assert len(race.a.do(race.a.store.events(0, 10, type="t"))) == 1


def two_events_of_one_id(race: Race) -> None:
    mine = race.b.d.emit_op("t", "1", event_id="e")
    with overtaken(race.b, COMMIT, race.b.d.batch(mine)):
        race.a.apply(race.a.d.emit_op("t", "1", event_id="e"))
    assert len(race.a.do(race.a.store.events(0, 10, type="t"))) == 1


def two_items_for_one_stream(race: Race) -> None:
    """To publish does not move the version of a run: how far the stream has come is compared by itself."""
    race.start("r")
    race.a.apply(race.a.do(race.a.d.publish_op("r", ("a", "1"))))
    late = race.b.do(race.b.d.publish_op("r", ("a", "2")))
    with overtaken(race.b, COMMIT, race.b.d.batch(late)) as told:
        race.a.apply(race.a.do(race.a.d.publish_op("r", ("a", "3"), ("a", "4"))))
    assert told.exception() is None
    items = race.a.do(race.a.d.published("r", "a"))
    assert items == [(1, "1"), (2, "3"), (3, "4"), (4, "2")]


_cases = [
    (units_unseen, an_item_while_a_wait_opens),
    (floor_unseen, an_item_while_versions_are_let_go),
    (runs_unseen, two_signals_for_one_wait),
    (history_unseen, a_delivery_while_the_owner_records),
    (events_unseen, an_event_while_a_wait_opens),
    (births_unseen, two_starts_of_one_id),
    (keys_unseen, two_puts_with_one_key),
    (ids_unseen, two_events_of_one_id),
    (streams_unseen, two_items_for_one_stream),
]


@pytest.fixture
def kind() -> str:
    return "redis"


@pytest.fixture
def race(make_store: Callable[..., RedisStore]) -> Iterator[Race]:
    race = Race(make_store, 1)
    try:
        yield race
    finally:
        race.end()


@pytest.mark.parametrize(("mutation", "schedule"), _cases, ids=lambda one: one.__name__)
def test_without_a_comparison_harm_is_done(
    race: Race,
    mutation: Mutation,
    schedule: Callable[[Race], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = mutation(script("apply").text)

    def mutated(name: str) -> Script:
        return Script(text, "0" * 40) if name == "apply" else script(name)

    monkeypatch.setattr(connecting, "script", mutated)
    with pytest.raises(AssertionError):
        schedule(race)


@pytest.mark.parametrize("schedule", [one for _, one in _cases], ids=lambda one: one.__name__)
def test_with_all_of_them_none_is_done(race: Race, schedule: Callable[[Race], None]) -> None:
    schedule(race)
    race.check()
