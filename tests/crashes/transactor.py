"""A process that is killed around transactions: `python -m crashes.transactor DB PLACE NTH`.

It opens the file, starts one run whose steps are transactions, and a caller with a transaction of its own that sends
something. At the nth time that it comes to the place it kills itself; a process that is given no place ends well.
"""

import asyncio
import os
import signal
import sqlite3
import sys
from contextlib import closing
from typing import Any

from perdure import App, Context, Queue, workflow
from perdure.store.sqlite.writer import Writer

NUMBERS = 4
jobs = Queue("jobs", int)


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


def note(tx: sqlite3.Connection, number: int) -> int:
    tx.execute("insert into notes values (?)", (number,))
    Fate.reach("body")
    return number


@workflow
async def noting(ctx: Context) -> list[int]:
    return [await ctx.transaction(note, number) for number in range(NUMBERS)]


def arm() -> None:
    """Kill points around the commit of a transaction: right before it, and right after."""
    seal, committed = Writer._seal, Writer._committed

    def before(writer: Writer, *args: Any) -> None:
        seal(writer, *args)
        Fate.reach("before")

    def after(writer: Writer, *args: Any) -> None:
        Fate.reach("after")
        committed(writer, *args)

    Writer._seal, Writer._committed = before, after  # type: ignore[method-assign]


async def run(db: str) -> None:
    app = App(f"sqlite:///{db}")
    app.add(noting)
    app.add(jobs)
    async with app:
        with closing(sqlite3.connect(db)) as caller:
            with caller:
                caller.execute("create table if not exists notes (number integer)")
            if not (await app.runs()):
                with caller:
                    await app.start(noting, id="r1", connection=caller)
                    await app.put(jobs, 7, key="k", connection=caller)
                Fate.reach("sent")
        while not (await app.runs()):  # noqa: ASYNC110 (what is awaited is a row, not an object of ours)
            await asyncio.sleep(0.001)
        result = await app.run("r1").result("20s")
        # Who comes after a kill may send all of it once more, before what was sent is applied: that is applied too,
        # by whoever is there, and this one is to see that it changes nothing.
        while await app._engine().store.outbox("", 1):  # noqa: ASYNC110 (rows again)
            await asyncio.sleep(0.001)
        print(result, await app.queues())


if __name__ == "__main__":
    arm()
    Fate.place, Fate.nth = sys.argv[2], int(sys.argv[3])
    asyncio.run(run(sys.argv[1]))
