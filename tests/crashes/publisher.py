"""A process that is killed while its run publishes: `python -m crashes.publisher DB PLACE NTH`.

Its code publishes, its steps do, and two readers write down what they are given, before they ask for more, in a file
that outlives the process. A step waits for the reader of its token, so that each is a commit of its own. Before or
after the nth commit the process kills itself; one that is given no place ends well.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from perdure import App, Context, step, step_info, workflow
from perdure.store.sqlite.writer import Writer

ROUNDS = 3
TOKENS = 4


class Fate:
    """Where it dies, and how often it has been there."""

    place = ""
    nth = 0

    @classmethod
    def reach(cls, place: str) -> None:
        if place == cls.place:
            cls.nth -= 1
            if cls.nth == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Given:
    """The last token that a reader was given."""

    token: Any = None
    news = asyncio.Condition()

    @classmethod
    async def note(cls, token: Any) -> None:
        async with cls.news:
            cls.token = token
            cls.news.notify_all()

    @classmethod
    async def until(cls, token: Any) -> None:
        async with cls.news:
            await cls.news.wait_for(lambda: cls.token == token)


@step
async def speak(nth: int) -> int:
    for token in range(TOKENS):
        step_info().publish("tokens", [nth, token])
        await Given.until([nth, token])
    return nth


@workflow
async def talking(ctx: Context) -> int:
    for nth in range(ROUNDS):
        await ctx.publish("code", nth)
        await ctx.step(speak, nth)
    return ROUNDS


def seen_in(path: Path) -> list[tuple[str, int, Any]]:
    """What readers of any process were given: stream, position, item."""
    if not path.exists():
        return []
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()]


async def read(app: App, stream: str, seen: int) -> None:
    async for item in app.run("r1").stream(stream):
        line = json.dumps([stream, item.position, item.value])
        os.write(seen, line.encode() + b"\n")
        if stream == "tokens":
            await Given.note(item.value)


def arm() -> None:
    """Kill points around each commit: right before it, and right after."""
    commit, committed = Writer._commit, Writer._committed

    def before(writer: Writer, *args: Any) -> None:
        Fate.reach("before")
        commit(writer, *args)

    def after(writer: Writer, *args: Any) -> None:
        Fate.reach("after")
        committed(writer, *args)

    Writer._commit, Writer._committed = before, after  # type: ignore[method-assign]


async def run(db: str) -> None:
    app = App(f"sqlite:///{db}")
    app.add(talking)
    seen = os.open(f"{db}.seen.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with app:
        await app.start(talking, id="r1")
        await asyncio.gather(read(app, "tokens", seen), read(app, "code", seen))
        print(await app.run("r1").result("20s"))


if __name__ == "__main__":
    arm()
    Fate.place, Fate.nth = sys.argv[2], int(sys.argv[3])
    asyncio.run(run(sys.argv[1]))
