"""Readers of the ledger are killed between their handler and their cursor, over and over on one file.

Whatever the point, no event is lost, and what was to be done about each of them is done once: the next owner goes on
from the cursor, and what had been held was committed with it or not at all. Only the handler itself may be called
again for an event, which is what is promised.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from crashes import readers
from crashes.drive import Figures
from crashes.nursery import Child, Nursery
from perdure import App, Page

_events_per_life = 4


def test_readers_killed_a_hundred_times_lose_nothing_and_start_nothing_twice(
    nursery: Nursery, tmp_path: Path, figures: Figures, kills_wanted: int
) -> None:
    rng = random.Random("readers")
    db, effects = tmp_path / "readers.db", tmp_path / "effects.jsonl"
    kills = number = 0
    while kills < max(100, kills_wanted // 4):
        numbers = list(range(number, number + _events_per_life))
        die = (rng.choice(readers.PLACES), rng.randint(1, 2))
        child = nursery.fork(db=db, effects=effects, readers=die)
        if _live(child, numbers):
            child.kill()  # it had less to do than we thought
        child.buried()
        kills += 1
        number += _events_per_life
    last = nursery.fork(db=db, effects=effects, readers=("nowhere", 0))
    for first in range(0, number, 100):  # those that never came to be
        last.ask(do="emit", numbers=list(range(first, min(first + 100, number))))
    assert _live(last, [])
    assert last.close()
    asyncio.run(_check_ledger(db, number))
    lines = [json.loads(line) for line in effects.read_text().splitlines()]
    handled = Counter(one["handled"] for one in lines if "handled" in one)
    assert set(handled) == set(range(number))
    assert max(handled.values()) > 1, "no handler was ever cut off: the test kills too late"
    figures.kills += kills


def _live(child: Child, numbers: list[int]) -> bool:
    """Emit, and wait until everything is read; whether it lived to tell."""
    child.send({"name": "emit", "do": "emit", "numbers": numbers})
    while (told := child.hear()) is not None:
        if told.get("name") == "emit" or (told.get("name") == "done" and not told["ok"]):
            child.send({"name": "done", "do": "read"})
        elif told.get("name") == "done":
            return True
    return False


async def _check_ledger(db: Path, count: int) -> None:
    async with App(f"sqlite:///{db}", worker=False) as app:
        events = await _all(app.events, "crash.happened")
        assert sorted(one.payload for one in events) == list(range(count))
        seen = Counter(one.payload for one in await _all(app.events, "crash.seen"))
        assert seen == Counter(range(count))
        assert (await app.queues())["crash.todo"] == count
        started = Counter(one.event_id for one in await _all(app.runs) if one.workflow == "react")
        assert started == Counter(one.event_id for one in events)
        assert not await app.parked() and not await app.deferred()


async def _all(read: Callable[..., Awaitable[Page[Any]]], *asked: Any) -> list[Any]:
    """Every page of a listing."""
    page = await read(*asked, limit=1000)
    found = list(page)
    while page.cursor is not None:
        page = await read(*asked, limit=1000, after=page.cursor)
        found += page
    return found
