"""Workers that hold slots, and let others through, are killed: no slot is given twice, none is lost, all runs end."""

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from crashes import scenes
from crashes.crew import Crew, Place, open_crew, patience_s
from crashes.drive import Figures
from crashes.load import client_of
from perdure import App
from perdure.testing.conformance.driver import all_runs, everything
from perdure.testing.conformance.invariants import check_invariants

_seed = os.environ.get("PERDURE_CRASH_SEED", "0")
_limit, _per_key, _keys = 4, 2, ["a", "b", "c"]


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    effects = tmp_path / "effects.jsonl"
    if request.param == "sqlite":
        return Place(f"sqlite:///{tmp_path / 'shared.db'}", None, "30s", effects)
    lend = request.getfixturevalue("lend_redis_namespace")
    return Place(request.getfixturevalue("redis_url"), lend(), "1s", effects)


async def test_slots_outlive_those_who_gave_and_held_them(
    tmp_path: Path, place: Place, figures: Figures, kills_wanted: int
) -> None:
    """Each run holds a slot twice: it sleeps in between, and stands in line again."""
    rng = random.Random(f"{_seed}/pools")
    kills = max(2, kills_wanted // 15)
    async with open_crew(tmp_path, place, 2) as crew, client_of(place) as app:
        await app.set_pool("crew", limit=_limit, per_key=_per_key)
        counting = asyncio.create_task(count_slots(app))
        runs = [
            await app.start(scenes.slow, n, id=f"r{n}", pool="crew", pool_key=_keys[n % 3])
            for n in range(8 * kills)
        ]
        await kill_some(crew, rng, kills)
        for run in runs:
            await run.result(patience_s)
        counting.cancel()
        most = (await asyncio.gather(counting, return_exceptions=True))[0]
        assert isinstance(most, asyncio.CancelledError), most
        await check(app, len(runs))
    figures.add(Figures(kills=crew.kills, runs=len(runs)))


async def kill_some(crew: Crew, rng: random.Random, kills: int) -> None:
    for _ in range(kills):
        await asyncio.sleep(rng.uniform(0.05, 0.5))
        await crew.kill(rng.choice(crew.members))


async def count_slots(app: App) -> None:
    """As the store counts them, all the time."""
    store = app._engine().store
    while True:
        standing = await store.standing("crew", _keys)
        assert standing.taken <= _limit, standing
        assert all(taken <= _per_key for taken, _ in standing.keys.values()), standing
        await asyncio.sleep(0.001)


async def check(app: App, count: int) -> None:
    store = app._engine().store
    assert Counter(one.status for one in await all_runs(store)) == {"completed": count}
    ended = [one for one in await everything(store.events) if one.type == "workflow.run_completed"]
    assert len(ended) == count
    (pool,) = await app.pools()
    assert (pool.taken, pool.waiting) == (0, 0)
    wrong = await check_invariants(store)
    assert [one for one in wrong if not one.startswith("R3 sequence number")] == []
