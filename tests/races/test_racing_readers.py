"""Readers of the ledger between processes: a cursor has one owner, a rewind counts, effects happen once."""

from collections import Counter
from typing import Any

import msgspec
from racing import Race, assert_both

from perdure.model import ops
from perdure.model.outcomes import CursorMoved, Fenced, Moved, Refusal
from perdure.model.records import ChannelRecord, SubscriptionRecord
from perdure.testing.conformance.words import declared, effect, entry


def events(race: Race, count: int) -> None:
    """So many events, numbered from 1 like their positions."""
    new = [ops.NewEvent(event_id=f"e{n}", type="tick", payload=str(n)) for n in range(1, count + 1)]
    for at in range(0, count, 500):
        race.a.apply(ops.Emit(events=tuple(new[at : at + 500])))


def read(race: Race, name: str = "c", fence: int = 7) -> Any:
    """Have the first process read as a consumer, from the beginning."""
    claim = ops.ClaimConsumer(
        name=name, worker_id="worker-a", fence=fence, patterns='["**"]', start=0
    )
    return race.a.apply(claim)[0]


def advance(fence: int, seen: int, item_id: str, **fields: Any) -> ops.AdvanceCursor:
    """One event further, with an item as the effect."""
    put = ops.Put(item_id=item_id, queue="q", payload="1")
    return ops.AdvanceCursor(
        name="c",
        fence=fence,
        seen=seen,
        position=seen + 1,
        effects=(effect(put, seen + 1),),
        **fields,
    )


def test_two_claims_of_one_consumer(race: Race) -> None:
    """One reads; the other is told that somebody does."""
    winners: Counter[bool] = Counter()
    for number in range(race.rounds):
        first, second = race.meet(
            *(
                ops.ClaimConsumer(
                    name=f"c{number}", worker_id=one, fence=fence, patterns='["**"]', start=0
                )
                for one, fence in (("worker-a", 2 * number + 1), ("worker-b", 2 * number + 2))
            )
        )
        refused = [one for one in (first, second) if isinstance(one, Refusal)]
        assert [one.code for one in refused] == ["owned"]
        winners[refused[0] is second] += 1
    assert_both(winners)


def test_two_advances_of_one_cursor(race: Race) -> None:
    """Their effects happen once: the second finds the cursor moved, and does nothing."""
    events(race, race.rounds)
    read(race)
    for number in range(race.rounds):
        outcomes = race.meet(*(advance(7, number, f"{one}{number}") for one in "ab"))
        assert sorted(type(one).__name__ for one in outcomes) == ["CursorMoved", "Moved"]
    assert race.b.do(race.b.store.queues()) == {"q": race.rounds}
    assert race.b.do(race.b.d.consumer("c")).position == race.rounds


def test_a_rewind_against_the_advance_of_the_owner(race: Race) -> None:
    """A rewind is never lost: what comes after it begins there, and what began before it is refused."""
    events(race, 100)
    fence = read(race).fence
    seen: Counter[str] = Counter()
    items = 0
    for number in range(race.rounds):
        at = race.a.do(race.a.d.consumer("c")).position
        advanced, steered = race.meet(
            advance(fence, at, f"i{number}"), ops.SteerConsumer(name="c", position=0)
        )
        now = race.b.do(race.b.d.consumer("c"))
        assert (now.position, now.fence) == (0, steered.fence)
        items += isinstance(advanced, CursorMoved)
        assert isinstance(advanced, CursorMoved | Fenced)
        seen[type(advanced).__name__] += 1
        fence = now.fence
        # From somewhere else the next time, so that the rewind moves it.
        moved = race.a.apply(advance(fence, 0, f"on{number}"))[0]
        assert isinstance(moved, CursorMoved)
        items += 1
    assert race.b.do(race.b.store.queues()) == {"q": items}
    assert_both(seen)


def test_a_rewind_to_where_the_cursor_stands(race: Race) -> None:
    """Also then what its owner has under way does not count."""
    events(race, 10)
    fence = read(race).fence
    for number in range(race.rounds):
        advanced, steered = race.meet(
            advance(fence, 0, f"i{number}"), ops.SteerConsumer(name="c", position=0)
        )
        assert race.b.do(race.b.d.consumer("c")).position == 0
        assert isinstance(advanced, CursorMoved | Fenced)
        fence = steered.fence


def test_an_event_that_is_read_and_fired_anew_at_once(race: Race) -> None:
    """A key that one of them has finished keeps the other from doing it again."""
    events(race, race.rounds)
    read(race)
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        at = race.a.do(race.a.d.consumer("c")).position
        key = (f"k{number}",)
        put = ops.Put(item_id=f"again{number}", queue="q", payload="1")
        again = ops.CommitEffects(consumer="c", effects=(effect(put, at + 1),), finished=key)
        advanced, counted = race.meet(advance(7, at, f"i{number}", finished=key), again)
        if isinstance(advanced, Moved):
            assert counted.count == 1
            race.a.apply(ops.AdvanceCursor(name="c", fence=7, seen=at, position=at + 1))
        else:
            assert counted.count == 0
        seen[type(advanced).__name__] += 1
    assert race.b.do(race.b.store.queues()) == {"q": race.rounds}
    assert_both(seen)


def test_an_advance_that_starts_a_run_against_a_start_of_the_same_key(race: Race) -> None:
    """One run for each key, whoever starts it, and the cursor moves in any case."""
    events(race, race.rounds)
    read(race)
    for number in range(race.rounds):
        start = race.a.d.start_op(f"a{number}", owner=None, key=f"k{number}")
        moved, started = race.meet(
            ops.AdvanceCursor(
                name="c",
                fence=7,
                seen=number,
                position=number + 1,
                effects=(effect(start, number + 1),),
            ),
            race.b.d.start_op(f"b{number}", owner=None, key=f"k{number}"),
        )
        (by_reader,) = moved.outcomes
        assert by_reader.run.run_id == started.run.run_id
        assert sorted((by_reader.created, started.created)) == [False, True]


def test_two_that_declare_what_they_have_seen(race: Race) -> None:
    """Each tells only what it knows itself; the catalogue has both."""
    for number in range(race.rounds):
        one, other = (
            declared(workflow=f"w{number}", strict=False, **{name: entry()}) for name in ("x", "y")
        )
        race.meet(
            ops.Declare(workflows=(one,)),
            ops.Declare(
                workflows=(other,),
                channels=(ChannelRecord(kind="topic", name=f"t{number}", schema=None),),
            ),
        )
        (found,) = [one for one in race.a.do(race.a.store.catalogue()) if one.name == f"w{number}"]
        assert sorted(msgspec.json.decode(found.signals)) == ["x", "y"]


def test_a_declaration_against_the_send_that_it_forbids(race: Race) -> None:
    """A signal is taken before the workflow says that it knows none, or refused afterwards."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id, workflow = f"r{number}", f"w{number}"
        race.start(run_id, workflow=workflow)
        _, sent = race.meet(
            ops.Declare(workflows=(declared(workflow=workflow),)), race.b.d.signal_op(run_id, "go")
        )
        assert len(race.a.do(race.a.d.payloads(run_id))) == (not isinstance(sent, Refusal))
        seen[type(sent).__name__] += 1
    assert_both(seen)


def test_two_that_put_one_subscription(race: Race) -> None:
    """It begins where the first put it, and says what the second says."""
    winners: Counter[str] = Counter()
    for number in range(race.rounds):
        rules = [
            SubscriptionRecord(name=f"s{number}", pattern=f"{one}.*", workflow="orders")
            for one in "ab"
        ]
        race.a.apply(ops.Emit(events=(race.a.d.event("tick"),)))
        counted = race.meet(*(ops.PutSubscription(subscription=one) for one in rules))
        assert [one.count for one in counted] == [1, 1]
        kept = race.a.do(race.a.d.subscription(f"s{number}"))
        assert kept.position == number + 1
        winners[kept.pattern] += 1
    assert_both(winners)


def test_a_trim_against_a_rewind(race: Race) -> None:
    """A cursor never stands before the oldest event that is kept."""
    seen: Counter[int] = Counter()
    read(race)
    for _ in range(race.rounds):
        race.a.apply(ops.Emit(events=tuple(race.a.d.event("tick") for nth in range(4))))
        first, last = race.a.do(race.a.store.span())
        race.a.apply(ops.SteerConsumer(name="c", position=last))
        trimmed, _ = race.meet(
            ops.TrimLedger(recorded_before=None, keep=1, limit=100, idle_before=0),
            ops.SteerConsumer(name="c", position=0),
        )
        oldest = race.a.do(race.a.store.span())[0]
        assert race.b.do(race.b.d.consumer("c")).position == oldest - 1
        assert oldest == first + trimmed.count
        seen[trimmed.count > 0] += 1
        race.a.apply(ops.SteerConsumer(name="c", position=last))
        race.a.apply(ops.TrimLedger(recorded_before=None, keep=1, limit=100, idle_before=0))
    assert_both(seen)
