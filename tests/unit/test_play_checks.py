"""What is wrong with a play is said when it is made: all of it at once, and in words that help."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from perdure import App, BadPlay, Context, PerdureError, Signal, workflow
from perdure.model import limits
from perdure.model.limits import BadValue
from perdure.play import Act, Call, Chorus, Cue, Play, Scene, Sleep


@dataclass
class State:
    n: int = 0


def fine(ctx: Any, state: State) -> None: ...


def of_three(ctx: Any, state: State, more: Any) -> None: ...


def of_none() -> None: ...


async def a_coroutine(state: State) -> bool:
    return True


class AsyncObject:
    async def __call__(self, state: State) -> bool:
        return True


def generator(ctx: Any, state: State) -> Any:
    yield 1


def says(state: State) -> Literal["a", "b"]:
    return "a"


@workflow
async def child(ctx: Context) -> None: ...


def wrong_with(*parts: Any, state: Any = State, **options: Any) -> list[str]:
    with pytest.raises(BadPlay) as caught:
        Play("bad", state, list(parts), **options)
    assert isinstance(caught.value, PerdureError | ValueError)
    for problem in caught.value.problems:
        assert problem in str(caught.value)
    return caught.value.problems


def test_everything_is_said_at_once() -> None:
    problems = wrong_with(
        Act("a", of_none),
        Act("a", fine),
        Signal("ok", int, on_receive=fine),
        Cue("way", says, {"a": "ship"}),
        state=object,
    )
    assert len(problems) == 6, problems
    words = "\n".join(problems)
    for part in (
        "the name 'a' is used 2 times",
        "of_none()",
        "'ship'",
        "'b'",
        "state",
        "on_receive",
    ):
        assert part in words


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Act("x", of_none), "Act('x'): function of_none() -> None is called with (ctx, state)"),
        (Act("x", 3), "Act('x'): function=3 is no function"),  # type: ignore[arg-type]
        (Act("x", generator), "Act('x'): function is a generator"),
        (Act("x", fine, compensate=of_three), "compensate of_three"),  # type: ignore[arg-type]
        (Act("x", fine, condition=of_three), "is called with (state) or (ctx, state)"),  # type: ignore[arg-type]
        (Act("x", fine, condition=a_coroutine), "condition must be a plain function"),
        (Act("x", fine, condition=AsyncObject()), "condition must be a plain function"),
        (Act("x", fine, retry=3), "retry=3 must be a policy: Retry(attempts=…)"),  # type: ignore[arg-type]
        (Act("x", fine, timeout="soon"), "Act('x'): timeout"),
        (Act("x/y", fine), "contains '/'"),
        (Act("x[0]", fine), "a bracket, which numbers the branches"),
        (Act("x.receive", fine), "a name that ends with '.receive' is that of a step of the play"),
        (Act(3, fine), "part name"),  # type: ignore[arg-type]
        (Act, "is no part"),
        ("x", "is no part"),
        (Signal("x", int, on_receive=fine), "on_receive fine"),  # type: ignore[arg-type]
        (Signal("x", int, on_timeout=fine), "on_timeout says nothing without timeout="),
        (Signal("x", int, timeout="1h", on_timeout=of_three), "on_timeout of_three"),  # type: ignore[arg-type]
        (Scene("x", []), "Scene('x'): holds no parts"),
        (Scene("x", Act("y", fine)), "Scene('x'): holds no parts; give a list"),  # type: ignore[arg-type]
        (Scene("x", [Act("y", fine)], saga="yes"), "saga='yes' must be True or False"),  # type: ignore[arg-type]
        (Chorus("x", []), "Chorus('x'): holds no parts"),
        (Cue("x", fine, {}), "its ways must be a dict"),  # type: ignore[arg-type]
        (Cue("x", of_none, {"a": None}), "choose of_none"),  # type: ignore[arg-type]
        (Cue("x", says, {"a": None}), "says' may answer 'b', which is no way of it"),
        (Cue("x", says, {"a": None, "else": "y"}), "'y', the way of 'else', is unknown: no part"),  # type: ignore[dict-item]
        (Cue("x", says, {1: None, "else": None}), "the answer 1 is no text"),  # type: ignore[dict-item]
        (Sleep("x", "soon"), "Sleep('x'): duration"),
        (Sleep("x", of_none), "duration of_none"),  # type: ignore[arg-type]
        (Call("x", fine), "is no workflow"),  # type: ignore[arg-type]
        (Call("x", child, input=of_none), "input of_none"),  # type: ignore[arg-type]
        (Call("x", child, on_result=fine), "on_result fine"),  # type: ignore[arg-type]
    ],
)
def test_a_part_that_cannot_be_performed(part: Any, words: str) -> None:
    problems = wrong_with(part)
    assert any(words in one for one in problems), problems


@pytest.mark.parametrize("inside", [Scene, Chorus])
def test_what_is_wrong_inside_is_found(inside: Any) -> None:
    assert wrong_with(inside("x", [Act("y", of_none)])) != []
    assert wrong_with(Cue("c", says, {"a": [Act("y", of_none)], "else": None})) != []


@pytest.mark.parametrize("state", [int, list[int], object, 3, "State", lambda: 1])
def test_a_state_that_has_no_fields_or_cannot_be_stored(state: Any) -> None:
    (problem,) = wrong_with(Act("a", fine), state=state)
    assert "state" in problem


def test_a_play_without_parts_and_with_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "has no parts" in wrong_with()[0]
    monkeypatch.setattr(limits, "play_parts_max", 2)
    parts = [Act(f"a{n}", fine) for n in range(3)]
    assert "has 3 parts; at most 2 (play_parts_max)" in wrong_with(*parts)[0]


def test_a_compensation_that_nothing_would_call() -> None:
    act = Act("a", fine, compensate=fine)
    (problem,) = wrong_with(act, saga=False)
    assert "compensate says nothing outside a saga" in problem
    Play("good", State, [act])
    Play("good", State, [Scene("s", [act], saga=True)], saga=False)
    assert "saga=1 must be True or False" in wrong_with(act, saga=1)[0]


def test_a_play_itself_is_checked_like_a_workflow() -> None:
    with pytest.raises(BadValue, match="play name"):
        Play("a/b", State, [Act("a", fine)])
    with pytest.raises(BadValue, match="version"):
        Play("a", State, [Act("a", fine)], version=0)


def test_a_play_is_added_with_what_it_calls() -> None:
    app = App("memory://")
    app.add(Play("a", State, [Scene("s", [Call("c", child)])]))
    assert {one.name for one in app.registry.all()} == {"a", "child"}
    assert repr(Play("a", State, [Act("a", fine)], version=2)) == "Play('a', version=2)"


def test_a_play_that_nests_too_deep() -> None:
    part: Any = Act("a", fine)
    for n in range(15):
        part = Scene(f"{n}-" + "x" * 60, [part])
    assert "nests too deep" in wrong_with(part)[0]
