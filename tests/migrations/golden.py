"""Makes the golden file of the present schema: `PYTHONPATH=src:tests python -m migrations.golden`.

One file for each schema, as SQL text, made by the last code that wrote it and never made again once that is released.
In it are runs in every state in which nothing happens by itself.
"""

import asyncio
import os
import sqlite3
import tempfile
from contextlib import closing
from datetime import datetime
from pathlib import Path

from crashes import story
from crashes.test_recovery import become

from perdure import App
from perdure.model.clock import to_datetime
from perdure.store.sqlite import opening
from perdure.testing import VirtualClock

directory = Path(__file__).parent / "golden"


def app_on(db: Path, clock: VirtualClock | None = None) -> App:
    app = App(f"sqlite:///{db}", clock=clock)
    for one in story.workflows.values():
        app.add(one)
    return app


async def fill(db: Path) -> None:
    """Waiting with a deadline and without, sleeping, paused with a signal in its buffer, ended."""
    async with app_on(db) as app:
        await become(await app.start(story.approval, 1, id="approval"), "waiting")
        await become(await app.start(story.waiter, 1, id="waiter"), "waiting")
        await become(await app.start(story.stuck, 1, id="parent"), "waiting")
        await become(await app.start(story.sleeper, 1, id="sleeper"), "sleeping")
        paused = await app.start(story.waiter, 2, id="paused")
        await become(paused, "waiting")
        await paused.pause()
        await app.signal("paused", story.go, "kept", key="k")
        collector = await app.start(story.collector, [], id="collector")
        for one in range(4):
            await app.signal("collector", story.item, one)
        await become(collector, "waiting")
        await (await app.start(story.order, 1, id="order")).result()


async def finish(db: Path) -> None:
    """Everything that `fill` left goes on and ends as it should.

    By a clock that stands where the file was left: its deadlines must not be over because it is old.
    """
    async with app_on(db, VirtualClock(left_at(db))) as app:
        await app.signal("approval", story.approve, "ann")
        assert await app.run("approval").result("5s") == "ann"
        await app.signal("waiter", story.go, "gone")
        assert await app.run("waiter").result("5s") == "gone"
        await app.run("paused").resume()
        assert await app.run("paused").result("5s") == "kept"
        await app.signal("collector", story.item, -1)
        assert await app.run("collector").result("5s") == [0, 1, 2, 3]
        await app.run("parent").cancel()
        await become(app.run("parent"), "cancelled")
        assert await app.run("sleeper").status() == "sleeping"
        assert await app.run("order").result("5s") == ["pay 1!", "ship!", "mail!"]


def left_at(db: Path) -> datetime:
    """When the last fact was written."""
    with closing(sqlite3.connect(db)) as connection:
        (at,) = connection.execute("select max(recorded_at) from events").fetchone()
    return to_datetime(at)


def load(script: Path, db: Path) -> None:
    """A database file from its text."""
    with closing(sqlite3.connect(db)) as connection:
        connection.executescript(script.read_text())


def make() -> None:
    story.World.effects_fd = os.open(os.devnull, os.O_WRONLY)
    with tempfile.TemporaryDirectory() as scratch:
        db = Path(scratch) / "runs.db"
        asyncio.run(fill(db))
        with closing(sqlite3.connect(db)) as connection:
            text = "\n".join(connection.iterdump())
    directory.mkdir(exist_ok=True)
    (directory / f"{opening.schema_known:04}.sql").write_text(text + "\n")


if __name__ == "__main__":
    make()
