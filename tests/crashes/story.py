"""The workflows that get killed: every kind of durable call, and every step body leaves a line in a file.

The file is append-only and outlives the process, so it shows how often a body really ran. A body is noted before
it does anything, as an effect in the world would be.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure import Context, Retry, Signal, TimedOut, step, step_info, timer, workflow

approve = Signal("approve", str, buffer="first")
nudge = Signal("nudge", int)
go = Signal("go", str)
word = Signal("word", int, buffer="all")
item = Signal("item", int, buffer="all")

signals = {one.name: one for one in (approve, nudge, go, word, item)}

_patiently = Retry(attempts=3, backoff="4ms", jitter=0)


class World:
    """What lies outside the engine: the file of effects, and the wire to the parent."""

    effects_fd = -1
    tell: Callable[[dict[str, Any]], None]
    claim: Callable[[str], str] = staticmethod(lambda run_id: "")  # by which it has a run


def note() -> int:
    """Leave a line about the body that runs now; gives its attempt."""
    info = step_info()
    line = {
        "body": info.idempotency_key,
        "attempt": info.attempt,
        "pid": os.getpid(),
        "claim": World.claim(info.run_id),
        "at": time.monotonic(),
    }
    os.write(World.effects_fd, json.dumps(line).encode() + b"\n")
    return info.attempt


def effects_in(path: Path) -> list[dict[str, Any]]:
    """All that bodies have noted, in any process.

    One that is killed in the midst of a line has done nothing yet; the line of another goes on where its own stops.
    """
    lines = [line[line.rindex('{"body"') :] for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.endswith("}")]


# --- steps ---------------------------------------------------------------------------------------


@step
async def act(label: str) -> str:
    note()
    return f"{label}!"


@step
def act_in_thread(label: str) -> str:
    note()
    return f"{label}!"


@step(retry=_patiently)
async def act_at_third_try(label: str) -> str:
    if note() < 3:
        raise ConnectionError(label)
    return f"{label}!"


def _is_first(mark: str) -> bool:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


@step
async def hang_once(label: str) -> str:
    """Runs until it is killed; a second process that runs it gets through."""
    note()
    is_first = _is_first(label)
    World.tell({"event": "hanging", "at": time.monotonic()})
    if not is_first:
        return "through"
    await asyncio.Event().wait()
    return "never"


# --- workflows -----------------------------------------------------------------------------------


@workflow
async def order(ctx: Context, n: int) -> list[str]:
    """Steps in a row, with retries, published state and a short sleep."""
    paid = await ctx.step(act, f"pay {n}")
    await ctx.set("stage", "paid")
    shipped = await ctx.step(act_at_third_try, "ship")
    await ctx.set("stage", "shipped")
    mailed = await ctx.step(act_in_thread, "mail")
    await ctx.sleep("5ms")
    return [paid, shipped, mailed]


@workflow(signals=[approve])
async def approval(ctx: Context, n: int) -> str:
    """One of two who answer is heard."""
    await ctx.step(act, "ask")
    match await ctx.wait(approve | timer("1h")):
        case TimedOut():
            return "nobody"
        case who:
            await ctx.step(act, f"grant {who}")
            return who


@workflow(signals=[nudge])
async def race(ctx: Context, n: int) -> list[Any]:
    """A signal against a timer; the signal that came too late is there for the next wait."""
    match await ctx.wait(nudge | timer("12ms")):
        case TimedOut():
            return ["timer", await ctx.wait(nudge)]
        case value:
            return ["signal", value]


@workflow(signals=[go])
async def branches(ctx: Context, n: int) -> list[str]:
    """One branch waits while another steps."""

    async def waiting() -> str:
        word = await ctx.wait(go | timer("1h"))
        return await ctx.step(act, f"went {word}")

    async def stepping() -> str:
        left = await ctx.step(act, "left")
        middle = await ctx.step(act_at_third_try, "middle")
        return left + middle + await ctx.step(act_in_thread, "right")

    return list(await ctx.gather(waiting(), stepping()))


@workflow
async def family(ctx: Context, n: int) -> list[int]:
    """Children, one of them called, one started and signalled twice."""
    child = await ctx.start(listener, 2, id=f"{ctx.run_id}.listener")
    await ctx.signal(child.run_id, word, n)
    called = await ctx.call(leaf, n)
    await ctx.signal(child.run_id, word, n + 1)
    return [called, *await ctx.wait(child)]


@workflow(signals=[word])
async def listener(ctx: Context, count: int) -> list[int]:
    """Hears `count` words, then listens a little longer: a word that was sent twice would be heard."""
    heard = [await ctx.wait(word) for _ in range(count)]
    match await ctx.wait(word | timer("8ms")):
        case TimedOut():
            return heard
        case another:
            return [*heard, another]


@workflow
async def leaf(ctx: Context, n: int) -> int:
    await ctx.step(act, "leaf")
    return n * 10


@workflow(signals=[item])
async def collector(ctx: Context, seen: list[int]) -> list[int]:
    """Consumes a stream of signals in order, three to a generation; a negative one ends it."""
    for _ in range(3):
        got = await ctx.wait(item)
        if got < 0:
            return seen
        await ctx.step(act, f"take {got}")
        seen = [*seen, got]
    await ctx.continue_as(collector, seen)


@workflow(signals=[go])
async def stuck(ctx: Context, n: int) -> str:
    """Waits until it is cancelled; then it cleans up."""
    try:
        await ctx.gather(ctx.call(waiter, n), ctx.wait(go))
        return "never"
    except asyncio.CancelledError:
        await ctx.step(act, "clean up")
        raise


@workflow(signals=[go])
async def waiter(ctx: Context, n: int) -> str:
    return await ctx.wait(go)


@workflow
async def sleeper(ctx: Context, n: int) -> str:
    await ctx.sleep("1h")
    return "awake"


@workflow
async def hanging(ctx: Context, marker: str) -> str:
    return await ctx.step(hang_once, marker)


workflows = {
    one.name: one
    for one in (
        order,
        approval,
        race,
        branches,
        family,
        listener,
        leaf,
        collector,
        stuck,
        waiter,
        sleeper,
        hanging,
    )
}
