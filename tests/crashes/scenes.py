"""What many workers play together, besides the stories of one: topics that several runs hear, a queue that several take
from, sends from run to run, and steps that last, so that there is always somebody to be killed in the midst of one.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from typing import Any

from crashes import mesh, plays, script, story
from crashes.script import Answers, Ask, Story, Teller, equals
from perdure import App, Context, Queue, Topic, step, workflow

news = Topic("crew.news", int)
jobs = Queue("crew.jobs", int)

_listeners = 3
# Of the runs of a scene that take from the queue, as many as there are items.
_takers = 2


# --- workflows -----------------------------------------------------------------------------------

# Steps last in real time: a real process is to be killed in the midst of one, and no clock of ours reaches into it.


@step
async def act_slowly(label: str) -> str:
    story.note()
    await asyncio.sleep(0.1)
    return f"{label}!"


@step
def act_slowly_in_thread(label: str) -> str:
    story.note()
    time.sleep(0.1)
    return f"{label}!"


@step
async def block(seconds: float) -> str:
    """As no step should: nothing else happens in this loop meanwhile."""
    story.note()
    time.sleep(seconds)  # noqa: ASYNC251 (that is what is tested)
    return "blocked"


@workflow
async def slow(ctx: Context, n: int) -> list[str]:
    """Steps that last, one by one and side by side, with a timer between."""
    first = await ctx.step(act_slowly, f"first {n}")
    await ctx.sleep("20ms")
    both = await ctx.gather(ctx.step(act_slowly, "left"), ctx.step(act_slowly_in_thread, "right"))
    return [first, *both, await ctx.step(act_slowly, "last")]


@workflow
async def blocking(ctx: Context, seconds: float) -> str:
    return await ctx.step(block, seconds)


@workflow
async def listening(ctx: Context, n: int) -> list[int]:
    """Hears what is said about its show, whoever says it, once each."""
    heard = [await ctx.wait(news.about(f"show/{n}"))]
    await ctx.step(act_slowly, "think")
    return [*heard, *[await ctx.wait(news.about(f"show/{n}")) for _ in range(2)]]


@workflow
async def speaking(ctx: Context, n: int) -> str:
    """Says one thing to all, gives one job away, and has a word with one run."""
    listener = await ctx.start(story.listener, 1, id=f"{ctx.run_id}.listener")
    await ctx.emit(news, n + 1, entity=f"show/{n}")
    await ctx.put(jobs, n + 1)
    await ctx.signal(listener.run_id, story.word, n)
    assert await ctx.wait(listener) == [n]
    return await ctx.step(act_slowly, "said")


@workflow
async def taking(ctx: Context, n: int) -> int:
    job = await ctx.wait(jobs)
    await ctx.step(act_slowly, "work")
    return job


workflows = {
    **story.workflows,
    **{one.name: one for one in (slow, blocking, listening, speaking, taking, mesh.meeting)},
    **plays.plays,
}


def app_on(url: str, **options: Any) -> App:
    """An app that knows all of them."""
    app = App(url, **options)
    for one in workflows.values():
        app.add(one)
    return app


# --- scenes --------------------------------------------------------------------------------------


def slowness(n: int) -> Story:
    teller = Teller(f"slow-{n}")
    teller.start("slow", n)
    return teller.told(equals([f"first {n}!", "left!", "right!", "last!"]))


def show(n: int) -> list[Story]:
    """Several listen; from outside, from a run, and from outside again three things are said, and given away."""
    first = 10 * n
    stories = []
    seated: list[Ask] = []
    for nth in range(_listeners):
        listener = Teller(f"listening-{n}-{nth}")
        seated.append(listener.start("listening", first))
        stories.append(listener.told(equals([first, first + 1, first + 2])))
    for nth in range(_takers):
        taker = Teller(f"taking-{n}-{nth}")
        taker.start("taking", n)
        stories.append(taker.told(_is_a_job))
    speaker = Teller(f"speaking-{n}")
    entity = f"show/{first}"
    speaker.ask("announce", after=seated, payload=first, entity=entity, key=f"{n}-first")
    speaker.ask("put", payload=first, key=f"{n}-first")
    speaker.start("speaking", first)
    speaker.ask("result")
    speaker.ask("announce", payload=first + 2, entity=entity, key=f"{n}-last")
    return [*stories, speaker.told(equals("said!"))]


def _is_a_job(answers: Answers, output: object) -> None:
    """Which one is anybody's guess; that each was taken by one is seen when all are looked at."""
    assert isinstance(output, int)


def cast(rng: random.Random) -> Iterator[list[Story]]:
    """Stories without end, those that belong together at once."""
    for n in itertools.count(1):
        kind = rng.random()
        if kind < 0.25:
            yield show(n)
        elif kind < 0.5:
            yield [slowness(n)]
        else:
            yield [rng.choice(script.tellers)(n)]
