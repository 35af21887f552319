"""Streams between processes: no position is given twice, nothing acknowledged is lost, who lost a run is refused."""

from collections import Counter
from typing import Any

import pytest
from racing import Race, assert_both, claim

from perdure.model import limits, ops
from perdure.model.outcomes import Advanced, Counted, Delivered, Fenced
from perdure.testing.conformance.words import signal, wait


def publish(race: Race, run_id: str, *items: str, path: str = "s", fence: int = 0) -> ops.Publish:
    fence = fence or race.run(run_id).fence
    rows = tuple(("a", one) for one in items)
    return ops.Publish(run_id=run_id, fence=fence, path=path, attempt=1, items=rows)


def items_of(race: Race, run_id: str, stream: str = "a") -> list[tuple[int, str]]:
    """As each process sees them, which must be the same."""
    seen = [one.do(one.d.published(run_id, stream)) for one in race.processes]
    assert all(one == seen[0] for one in seen)
    first: list[tuple[int, str]] = seen[0]
    return first


def test_a_branch_and_two_steps_publish_at_once(race: Race) -> None:
    """Of one claim, as three processes see it: each of them decides by what it knows of the stream."""
    race.join("worker-c")
    race.start("r")
    fence = race.run("r").fence
    for number in range(race.rounds):
        send = race.turn(
            *(ops.RecordSend, "r"),
            path=f"p{number}",
            kind="publish",
            name="a",
            send=None,
            value=f'"branch {number}"',
        )
        steps = [
            publish(race, "r", f'"{one} {number}"', f'"{one} {number} too"', path=one, fence=fence)
            for one in ("x", "y")
        ]
        answer, *counted = race.meet(send, *steps)
        assert isinstance(answer, Advanced)
        assert counted == [Counted(2), Counted(2)]
    items = items_of(race, "r")
    assert [position for position, _ in items] == list(range(1, 5 * race.rounds + 1))
    told = [item.strip('"') for _, item in items]
    assert [one for one in told if one.startswith("branch")] == [
        f"branch {number}" for number in range(race.rounds)
    ]
    for one in ("x", "y"):
        mine = [item for item in told if item.startswith(one)]
        assert mine == [
            f"{one} {number}{too}" for number in range(race.rounds) for too in ("", " too")
        ]
    # The position that code was given is where its item is.
    for number in (0, race.rounds - 1):
        step = race.step("r", f"p{number}")
        assert told[int(step.value) - 1] == f"branch {number}"


def test_two_that_make_the_same_stream(race: Race) -> None:
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        both = [publish(race, run_id, f'"{one}"') for one in "xy"]
        assert race.meet(*both) == [Counted(1), Counted(1)]
        assert sorted(items_of(race, run_id)) in (
            [(1, '"x"'), (2, '"y"')],
            [(1, '"y"'), (2, '"x"')],
        )


def test_the_oldest_go_whoever_publishes(race: Race, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "stream_items_max", 5)
    race.start("r")
    fence = race.run("r").fence
    for number in range(race.rounds):
        race.meet(*(publish(race, "r", f"{number}", fence=fence) for _ in "ab"))
    last = 2 * race.rounds
    assert [position for position, _ in items_of(race, "r")] == list(range(last - 4, last + 1))


def test_an_item_against_the_loss_of_the_run(race: Race) -> None:
    """Either it was there before the run was another's, or it is refused: then it is nowhere."""
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        race.a.apply(publish(race, run_id, "1"))
        late = publish(race, run_id, "2")
        release = race.turn(ops.Release, run_id)
        answer, _ = race.meet(late, release)
        race.b.apply(claim(race.b.worker_id, 100 + number, 10))
        race.b.apply(publish(race, run_id, "3"))
        kept = ["1", "2", "3"] if isinstance(answer, Counted) else ["1", "3"]
        assert items_of(race, run_id) == list(enumerate(kept, 1))
        assert race.a.apply(late) == [Fenced(run_id, "running")]
        seen[type(answer).__name__] += 1
    assert_both(seen)


def test_an_item_against_the_end_of_the_run(race: Race) -> None:
    seen: Counter[str] = Counter()
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        late = publish(race, run_id, "1")
        answer, _ = race.meet(late, ops.Terminate(run_id=run_id))
        there = items_of(race, run_id)
        assert there == ([(1, "1")] if isinstance(answer, Counted) else [])
        seen[type(answer).__name__] += 1
    assert_both(seen)


def test_a_signal_to_a_run_that_publishes_is_not_held_up(race: Race) -> None:
    sent: list[Any] = []
    for number in range(race.rounds):
        run_id = f"r{number}"
        race.start(run_id)
        race.a.apply(race.turn(ops.Suspend, run_id, waits=(wait("w", signal("go")),), park=False))
        item = publish(race, run_id, "1")
        send = race.b.d.signal_op(run_id, "go")
        counted, delivered = race.meet(item, send)
        assert counted == Counted(1)
        sent.append(delivered)
    assert all(isinstance(one, Delivered) for one in sent)
