"""The server is away for a while: whoever asks meanwhile is answered when it is back, and no run notices.

Only when it stays away longer than anybody would wait are they told, and then that nothing happened.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.postgres import PostgresProcess
from servers.stores import Shared, opened_on
from servers.valkey import ValkeyProcess

from crashes import scenes, story
from crashes.crew import until
from perdure import StoreRefused
from perdure.model.ops import Beat

# The time after which something that must come does not come any more; hints are otherwise told every 20 s.
_soon_s = 15.0


@pytest.fixture
def effects(tmp_path: Path) -> Iterator[Path]:
    story.World.effects_fd = os.open(tmp_path / "effects.jsonl", os.O_WRONLY | os.O_CREAT)
    yield tmp_path / "effects.jsonl"
    os.close(story.World.effects_fd)


async def has_lines(effects: Path) -> bool:
    return bool(story.effects_in(effects))


async def test_what_is_asked_while_the_server_is_away_is_done_when_it_is_back(
    server_process: PostgresProcess | ValkeyProcess, effects: Path
) -> None:
    async with scenes.app_on(server_process.url) as app:
        parked = await app.start(story.waiter, 1)
        busy = await app.start(scenes.slow, 1)
        await until(lambda: has_lines(effects), "the first step begins")
        await asyncio.to_thread(server_process.kill)
        asked = [
            asyncio.create_task(one)
            for one in (
                app.start(scenes.slow, 2),
                app.signal(parked.id, story.go, "on"),
                app.run(busy.id).status(),
            )
        ]
        await asyncio.wait(asked, timeout=1)
        await asyncio.to_thread(server_process.start)
        started, _, _ = await asyncio.gather(*asked)
        assert await parked.result("30s") == "on"
        for run in (busy, started):
            assert (await run.result("30s"))[1:] == ["left!", "right!", "last!"]
    # Four steps of two runs: what was under way was neither lost nor begun again.
    assert len(story.effects_in(effects)) == 8


async def test_when_the_server_stays_away_they_are_told_that_nothing_happened(
    server_process: PostgresProcess | ValkeyProcess,
) -> None:
    async with scenes.app_on(server_process.url, store_timeout="1s", worker=False) as app:
        await asyncio.to_thread(server_process.kill)
        for asked in (app.start(story.waiter, 1, id="w"), app.run("w").status()):
            with pytest.raises(StoreRefused) as refused:
                await asked
            assert refused.value.passing
        await asyncio.to_thread(server_process.start)
        assert (await app.start(story.waiter, 1, id="w")).created


async def test_a_run_outlasts_a_server_that_stays_away_longer_than_anybody_waits(
    server_process: PostgresProcess | ValkeyProcess, effects: Path
) -> None:
    """Its ops are refused, and it is loaded anew, with what its bodies have brought, until it can go on."""
    async with scenes.app_on(server_process.url, store_timeout="1s") as app:
        parked = await app.start(story.race, 1)
        busy = await app.start(scenes.slow, 1)
        await until(lambda: has_lines(effects), "the first step begins")
        await asyncio.to_thread(server_process.kill)
        # Real time, of a real server: it must stay away for longer than the second that anybody waits, for several
        # tries of everything, and nothing tells when those are over.
        await asyncio.sleep(4)
        await asyncio.to_thread(server_process.start)
        assert (await busy.result("60s"))[1:] == ["left!", "right!", "last!"]
        await app.signal(parked.id, story.nudge, 7, key="nudge")
        assert await parked.result("60s") == ["timer", 7]
    assert len(story.effects_in(effects)) == 4


def line_of(hints: Any) -> Any:
    """What it listens on."""
    return hints._listening if hasattr(hints, "_listening") else hints._connection


async def test_hints_are_heard_again_though_nobody_had_anything_to_tell(
    server_process: PostgresProcess | ValkeyProcess,
) -> None:
    async with scenes.app_on(server_process.url) as app:
        hints: Any = app._engine().store._hints  # type: ignore[attr-defined]
        before = line_of(hints)
        await asyncio.to_thread(server_process.kill)
        await asyncio.to_thread(server_process.start)

        async def is_new() -> bool:
            return line_of(hints) not in (None, before)

        async with asyncio.timeout(_soon_s):
            await until(is_new, "it listens again")


# --- on a server that is there ---------------------------------------------------------------------


async def test_what_became_of_a_batch_is_answered_the_same_if_asked_twice(shared: Shared) -> None:
    """The first answer may be lost with its connection."""
    async with opened_on(*shared) as store:
        for _ in range(2):
            assert not await store.settle("never")
        await store.apply("done", [Beat(worker_id="w", lease_us=1)])
        for _ in range(2):
            assert await store.settle("done")
