"""What hints between processes say: all names that there is room for, in as many messages as it needs."""

import msgspec
import pytest

from perdure.model import limits
from perdure.model.outcomes import Wake
from perdure.store.hint import Hint


def heard(hint: Hint) -> list[Hint]:
    texts = hint.texts()
    assert all(len(one) <= limits.hint_bytes_max for one in texts)
    return [msgspec.json.decode(one, type=Hint) for one in texts]


def names(found: list[Hint], mine: str) -> list[str]:
    return [one.run_id for hint in found for one in hint.wakes(mine) if one.kind == "news"]


@pytest.mark.parametrize("owners", [1, 400])
def test_a_signal_to_many_runs_is_told_of_all(owners: int) -> None:
    hint = Hint("me", head=7, ready=True)
    for number in range(400):
        wake = Wake("news", f"run-{number:022}", f"worker-{number % owners}")
        hint.note(wake, None, 0)
    found = heard(hint)
    assert len(found) > 1
    told = [one for owner in range(owners) for one in names(found, f"worker-{owner}")]
    assert sorted(told) == [f"run-{number:022}" for number in range(400)]
    assert [(one.head, one.ready) for one in found] == [(7, True)] + [(0, False)] * (len(found) - 1)


def test_of_schedules_the_first_that_is_due_is_told() -> None:
    hint = Hint("me")
    for at in (9, 5, 7):
        hint.note(Wake("schedule", "s", at=at), "me", 0)
    (found,) = heard(hint)
    assert list(found.wakes("you")) == [Wake("schedule", at=5)]


def test_a_line_that_may_move_now_is_told_once() -> None:
    hint = Hint("me")
    for at in (0, 5, 5, 6):
        hint.note(Wake("line", "gpu", at=at), "me", 5)
    hint.note(Wake("line", "later", at=6), "me", 5)
    (found,) = heard(hint)
    assert list(found.wakes("you")) == [Wake("line", "gpu")]


def test_runs_that_publish_are_told_once_in_as_many_parts_as_it_takes() -> None:
    hint = Hint("me")
    for number in (*range(400), *range(400)):
        hint.note(Wake("stream", f"run-{number:022}"), "me", 0)
    found = heard(hint)
    assert len(found) > 1
    told = [one for part in found for one in part.wakes("you")]
    assert sorted(one.run_id for one in told) == [f"run-{number:022}" for number in range(400)]
    assert {one.kind for one in told} == {"stream"}
    for number in range(2 * limits.hint_names_max):
        hint.note(Wake("stream", f"another-{number}"), "me", 0)
    assert len(hint.streams) == limits.hint_names_max


def test_what_can_be_told_to_nobody_gathers_up_to_a_bound() -> None:
    hint = Hint("me")
    for number in range(5 * limits.hint_names_max):
        hint.note(Wake("ended", f"run-{number}", f"worker-{number % 7}"), "me", 0)
        hint.note(Wake("consumer", f"reader-{number}"), "me", 0)
    assert len(hint.ended) == len(hint.consumers) == limits.hint_names_max
    assert sum(map(len, hint.called.values())) == limits.hint_names_max
    assert len(heard(hint)) > 1
