"""Random plays, performed twice: once in peace, once evicted, crashed, paused and resumed wherever a run can stand.

Both come to the same end with the same state, and every callback that counted was called the same number of times: what
happened to the process says nothing about the play. Then those that failed are retried with everything mended, and come
through as if nothing had failed.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from worlds import Worlds

from perdure import App, Permanent, Signal, StepInfo
from perdure.model.status import TERMINAL
from perdure.play import Act, Chorus, Cue, Play, Scene, Sleep


@dataclass
class State:
    values: dict[str, int] = field(default_factory=dict)
    # A chorus gives each of its branches fields of its own; here they are fields of a dict for each branch.
    left: dict[str, int] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)


class Theatre:
    """Makes a random play, whose callbacks count their calls; some of them are broken."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.calls: Counter[str] = Counter()
        self.broken: set[str] = set()
        self.names = 0
        self.play = Play("random", State, self.parts(3, "values"))

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def parts(self, depth: int, field_: str) -> list[Any]:
        return [self.part(depth, field_) for _ in range(self.chance.randint(1, 3))]

    def part(self, depth: int, field_: str) -> Any:
        kinds = ["act", "act", "act", "signal", "sleep", "scene", "cue"]
        if field_ == "values":
            kinds.append("chorus")
        kind = self.chance.choice(kinds if depth else kinds[:5])
        condition = None
        if self.chance.random() < 0.2:
            answer = self.chance.random() < 0.5
            condition = lambda state: answer  # noqa: E731
        match kind:
            case "act":
                return self.act(field_, condition)
            case "signal":
                return self.signal(field_, condition)
            case "sleep":
                return Sleep(self.name("sleep"), "1m", condition=condition)
            case "scene":
                saga = self.chance.random() < 0.5
                parts = self.parts(depth - 1, field_)
                return Scene(self.name("scene"), parts, saga=saga, condition=condition)
            case "cue":
                way = self.chance.choice(["a", "b"])
                ways = {"a": self.parts(depth - 1, field_), "else": self.part(depth - 1, field_)}
                return Cue(self.name("cue"), lambda state: way, ways, condition=condition)
        sides = [Scene(self.name("side"), self.parts(depth - 1, one)) for one in ("left", "right")]
        return Chorus(self.name("chorus"), sides, condition=condition)

    def act(self, field_: str, condition: Any) -> Act[State]:
        name = self.name("act")
        if self.chance.random() < 0.12:
            self.broken.add(name)
        undo = self.chance.random() < 0.6
        do, back = self.callback(name, field_, 1), self.callback(f"{name}.undo", field_, -1)
        return Act(name, do, compensate=back if undo else None, condition=condition)

    def signal(self, field_: str, condition: Any) -> Signal[int]:
        name = self.name("signal")
        if self.chance.random() < 0.1:
            self.broken.add(name)
        received = self.callback(name, field_, 1)
        late = self.callback(f"{name}.late", field_, 100)

        async def receive(ctx: StepInfo, state: State, payload: int) -> None:
            await received(ctx, state)

        timeout = self.chance.choice([None, "30s"])
        on_timeout = late if timeout and self.chance.random() < 0.7 else None
        return Signal(
            name,
            int,
            on_receive=receive,
            condition=condition,
            timeout=timeout,
            on_timeout=on_timeout,
        )

    def callback(self, name: str, field_: str, step: int) -> Any:
        # Not in a thread: which of two branches comes first would be a matter of chance.
        async def change(ctx: StepInfo, state: State) -> None:
            self.calls[name] += 1
            if name in self.broken:
                raise Permanent(f"{name} is broken")
            values = getattr(state, field_)
            short = name.partition(".")[0]
            values[short] = values.get(short, 0) + step

        return change


async def perform(theatre: Theatre, directory: Path, disturbed: bool, seed: int) -> list[Any]:
    """Perform the play to its end, and once more if it fails; gives what is to be seen of it."""
    app = App("memory://")
    app.add(theatre.play)
    worlds = Worlds("memory", 0 if disturbed else 100, directory)
    chance = random.Random(seed)
    late = random.Random(
        seed
    )  # which signals come, and which do not: the same in both performances
    seen: list[Any] = []
    stage = worlds(app)
    await stage.__aenter__()
    try:
        run = await stage.begin(theatre.play, State())
        for _ in range(60):
            handle = stage.app.run(run.id)
            status = await handle.status()
            if status in TERMINAL:
                seen.append((status, await handle.get("state"), dict(theatre.calls)))
                if status != "failed" or len(seen) == 2:
                    break
                theatre.broken.clear()
                await handle.retry()
                await stage.settle()
                continue
            if disturbed:
                stage = await disturb(stage, worlds, app, run.id, chance)
            await go_on(stage, run.id, late)
    finally:
        await stage.__aexit__(None, None, None)
    return seen


async def disturb(stage: Any, worlds: Any, app: App, run_id: str, chance: random.Random) -> Any:
    match chance.choice(["crash", "evict", "pause", "nothing"]):
        case "crash":
            await stage.crash()
            stage = worlds(app)
            await stage.__aenter__()
        case "evict":
            await stage.evict()
        case "pause":
            handle = stage.app.run(run_id)
            await handle.pause()
            await stage.settle()
            await handle.resume()
        case _:
            return stage
    await stage.settle()
    return stage


async def go_on(stage: Any, run_id: str, late: random.Random) -> None:
    """Answer a signal that is waited for, or let time pass: that is a matter of the play, not of the process."""
    waiting = sorted(one.target for one in await stage.app.waiting(run_id) if one.kind == "signal")
    for name in waiting:
        bounded = [
            one for one in await stage.app.waiting(run_id) if one.target == name and one.until
        ]
        if bounded and late.random() < 0.3:
            continue  # this one nobody answers in time
        if any(one.target == name for one in await stage.app.waiting(run_id)):
            await stage.app.signal(run_id, name, 1)
            await stage.settle()
            return
    await stage.advance("1m")


@given(st.integers(0, 2**32))
def test_what_happens_to_the_process_says_nothing_about_the_play(seed: int) -> None:
    def of(disturbed: bool) -> list[Any]:
        return asyncio.run(perform(Theatre(seed), Path(), disturbed, seed))

    peaceful, disturbed = of(False), of(True)
    assert peaceful == disturbed
    assert peaceful, "it comes to an end"
    for status, state, _ in peaceful:
        values = {one for part in state.values() for one in part.values()}
        # Each was done once, or dealt with its timeout; also when it was undone before and then done anew.
        assert values <= ({1, 100} if status == "completed" else {0, 1, 100}), state
