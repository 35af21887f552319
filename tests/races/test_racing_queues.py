"""Queues between processes: each item goes to one run, no item lies beside one that waits, and order is kept."""

from collections import Counter

from racing import Race, assert_both

from perdure.model import ops
from perdure.model.outcomes import Delivered, Duplicate, Queued
from perdure.testing.conformance.words import queue, timer, wait


def put(item_id: str, name: str = "q", payload: str = "1", **fields: str) -> ops.Put:
    return ops.Put(item_id=item_id, queue=name, payload=payload, **fields)


def test_an_item_against_two_takers(race: Race) -> None:
    """One of them has it, whoever comes first, and the other waits on."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        race.start(f"a{number}")
        race.start(f"b{number}", process=race.b)
        race.b.apply(put(f"i{number}", f"q{number}"))
        takes = [
            race.turn(ops.Suspend, run_id, waits=(wait("w", queue(f"q{number}")),))
            for run_id in (f"a{number}", f"b{number}")
        ]
        first, second = race.meet(*takes)
        steps = [race.step(f"{one}{number}") for one in "ab"]
        assert sorted(one.state for one in steps) == ["done", "open"]
        assert sorted((first.parked, second.parked)) == [False, True]
        seen[steps[0].state] += 1
    assert race.a.do(race.a.store.queues()) == {}
    assert_both(seen)


def test_two_takers_of_many_items(race: Race) -> None:
    """Each item has one taker, and the first two go first."""
    for number in range(race.rounds // 2):
        name = f"q{number}"
        race.start(f"a{number}")
        race.start(f"b{number}", process=race.b)
        race.b.apply(*(put(f"{name}-{at}", name, str(at)) for at in range(4)))
        takes = [
            race.turn(ops.Suspend, f"{one}{number}", waits=(wait("w", queue(name)),))
            for one in "ab"
        ]
        race.meet(*takes)
        assert sorted(race.step(f"{one}{number}").value for one in "ab") == ["0", "1"]
        assert race.a.do(race.a.d.items(name)) == ["2", "3"]


def test_an_item_against_the_wait_that_opens_for_it(race: Race) -> None:
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        suspend = race.turn(ops.Suspend, run_id, waits=(wait("w", queue("q")),))
        _, outcome = race.meet(suspend, put(f"i{number}", payload=str(number)))
        step = race.step(run_id)
        assert (step.state, step.value, step.taken_id) == ("done", str(number), f"i{number}")
        seen[type(outcome).__name__] += 1
    assert race.b.do(race.b.store.queues()) == {}
    assert_both(seen)


def test_two_puts_against_two_that_wait(race: Race) -> None:
    """Each run has one of them, and none is kept."""
    for number in range(race.rounds // 2):
        for name, process in (("a", race.a), ("b", race.b)):
            race.start_waiting([f"{name}{number}"], wait("w", queue("q")), process=process)
        outcomes = race.meet(*(put(f"{one}{number}") for one in "ab"))
        assert {one.run_id for one in outcomes} == {f"a{number}", f"b{number}"}
    assert race.a.do(race.a.store.queues()) == {}


def test_two_puts_with_one_key_have_one_effect(race: Race) -> None:
    for number in range(race.rounds):
        outcomes = race.meet(*(put(f"{one}{number}", key=f"k{number}") for one in "ab"))
        (first,) = [one for one in outcomes if isinstance(one, Queued)]
        assert [one.of for one in outcomes if isinstance(one, Duplicate)] == [first]
    assert race.a.do(race.a.store.queues()) == {"q": race.rounds}


def test_items_of_two_processes_keep_the_order_of_their_puts(race: Race) -> None:
    """Whoever has put much elsewhere counts from a greater number; that must not let its items go last."""
    race.a.apply(*(put(f"elsewhere{at}", "elsewhere") for at in range(50)))
    order = []
    for number in range(race.rounds):
        process = (race.a, race.b)[number % 2]
        process.apply(put(f"i{number}", payload=str(number)))
        order.append(str(number))
    assert race.a.do(race.a.d.items("q")) == order[:1000]


def test_an_item_against_the_deadline(race: Race) -> None:
    """At the deadline both are right; an item that came too late is kept."""
    seen: Counter[int] = Counter()
    for number in range(race.rounds):
        run_id, name = f"r{number}", f"q{number}"
        race.start_waiting([run_id], wait("w", queue(name), timer("1s")))
        race.clock.set(race.clock.now() + 1_000_000)
        fired, outcome = race.meet(ops.FireTimers(limit=10), put(f"i{number}", name))
        won = isinstance(outcome, Delivered)
        step = race.step(run_id)
        assert (fired.count, step.winner) == ((0, 0) if won else (1, 1))
        assert race.a.do(race.a.d.items(name)) == ([] if won else ["1"])
        seen[step.winner] += 1
    assert_both(seen)


def test_a_purge_against_a_taker(race: Race) -> None:
    """The item is taken or gone; the run has it or waits on."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id, name = f"r{number}", f"q{number}"
        race.start(run_id)
        race.b.apply(put(f"i{number}", name))
        suspend = race.turn(ops.Suspend, run_id, waits=(wait("w", queue(name)),))
        suspended, purged = race.meet(suspend, ops.PurgeQueue(queue=name, put_before=None, limit=9))
        assert purged.count == int(suspended.parked)
        assert race.step(run_id).state == ("open" if suspended.parked else "done")
        assert race.a.do(race.a.d.items(name)) == []
        seen[race.step(run_id).state] += 1
    assert_both(seen)


def test_an_item_that_is_given_back_against_another_taker(race: Race) -> None:
    """A branch leaves a wait that has an item: it goes back, and on to whoever waits or comes to wait."""
    for number in range(race.rounds // 2):
        name = f"q{number}"
        race.start(f"a{number}")
        race.start(f"b{number}", process=race.b)
        race.a.apply(put(f"i{number}", name))
        take = (wait("w", queue(name)),)
        race.a.apply(race.turn(ops.Suspend, f"a{number}", waits=take, park=False))
        leave = race.turn(ops.RecordStep, f"a{number}", closed=("w",))
        race.meet(leave, race.turn(ops.Suspend, f"b{number}", waits=take))
        step = race.step(f"b{number}")
        assert (step.state, step.taken_id) == ("done", f"i{number}")
        assert race.a.do(race.a.d.items(name)) == []
