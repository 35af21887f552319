"""The plays that get killed: every kind of part, and a saga that is undone. Callbacks leave their lines as steps do."""

from dataclasses import dataclass, field
from typing import Any

from crashes import story
from perdure import Permanent, Retry, Signal
from perdure.play import Act, Call, Chorus, Cue, Play, Scene, Sleep


@dataclass
class Show:
    """What the model knows of the state in the end: everything."""

    n: int
    log: list[str] = field(default_factory=list)
    left: str = ""
    right: str = ""
    who: str = ""
    child: int = 0


_patiently = Retry(attempts=3, backoff="4ms", jitter=0)


async def enter(ctx: Any, state: Show) -> None:
    story.note()
    state.log.append("enter")


def leave(ctx: Any, state: Show) -> None:
    story.note()
    state.log.append("leave")


async def heard(ctx: Any, state: Show, who: str) -> None:
    if story.note() < 2:
        raise ConnectionError(who)
    state.who = who


async def go_left(ctx: Any, state: Show) -> None:
    story.note()
    state.left = f"left {state.who}"


def go_right(ctx: Any, state: Show) -> None:
    if story.note() < 3:
        raise ConnectionError("right")
    state.right = f"right {state.who}"


def unload(ctx: Any, state: Show) -> None:
    story.note()
    state.log.append("unload")


def take_child(ctx: Any, state: Show, result: int) -> None:
    story.note()
    state.child = result


async def bow(ctx: Any, state: Show) -> None:
    story.note()
    state.log.append("bow")


async def fall(ctx: Any, state: Show) -> None:
    story.note()
    raise Permanent("the set has fallen")


def is_odd(state: Show) -> bool:
    return state.n % 2 == 1


show = Play(
    "show",
    Show,
    [
        Act("enter", enter, compensate=leave),
        Signal("voice", str, on_receive=heard, retry=_patiently, timeout="1h"),
        Chorus("sides", [Act("go-left", go_left), Act("go-right", go_right, retry=_patiently)]),
        Sleep("breathe", "5ms"),
        Call("leaf-of-show", story.leaf, input=lambda state: state.n, on_result=take_child),
        Cue(
            "ending",
            lambda state: "bow" if state.right else "else",
            {"bow": Act("bow", bow), "else": None},
        ),
        Act("encore", enter, condition=is_odd),
    ],
)

flop = Play(
    "flop",
    Show,
    [
        Act("come", enter, compensate=leave),
        Scene("scenery", [Act("load", go_left, compensate=unload), Act("fall", fall)], saga=True),
    ],
)

plays = {one.name: one for one in (show, flop)}
