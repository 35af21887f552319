"""Many worker processes on one Postgres or Valkey, under load, while they and the server are killed and stopped.

Everything that was begun comes to its end, everything acknowledged has its effect, once; what a worker that was taken
for dead still wants to write is refused. A failure names its seed, which chooses runs, victims and moments; what the
machine does in between is its own.
"""

import asyncio
import random
from pathlib import Path

import pytest
from servers.postgres import PostgresProcess
from servers.stores import Shared
from servers.valkey import ValkeyProcess

from crashes import scenes
from crashes.crew import Crew, Member, Place, open_crew, patience_s, until
from crashes.drive import Figures
from crashes.load import client_of, survive
from crashes.story import effects_in
from perdure import App
from perdure.store.base import RunFilter


@pytest.fixture
def place(tmp_path: Path, shared: Shared) -> Place:
    return Place(*shared, "2s", tmp_path / "effects.jsonl")


# --- workers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 4])
async def test_workers_killed_at_random_moments(
    tmp_path: Path, place: Place, figures: Figures, kills_wanted: int, size: int
) -> None:
    async def faults(crew: Crew, rng: random.Random) -> None:
        for _ in range(max(1, kills_wanted // 8)):
            await asyncio.sleep(rng.uniform(0.05, 0.8))
            await crew.kill(rng.choice(crew.members))

    figures.add(await survive(tmp_path, place, size, faults))


async def test_a_worker_that_stood_still_is_refused_and_goes_on_as_another(
    tmp_path: Path, place: Place, figures: Figures, kills_wanted: int
) -> None:
    async def faults(crew: Crew, rng: random.Random) -> None:
        async with client_of(place) as app:
            for nth in range(max(1, kills_wanted // 8)):
                await stand_still(app, crew, crew.members[nth % 2])

    survived = await survive(tmp_path, place, 2, faults)
    assert survived.fenced > 0
    figures.add(survived)


async def stand_still(app: App, crew: Crew, member: Member) -> None:
    """Stop a worker in the midst of runs until others have them; then it must notice."""
    before = await member.who()
    while True:
        member.stop()
        if await runs_of(app, before["worker"], at_work=True):
            break
        member.go_on()
        await asyncio.sleep(0.05)  # it had none just now: let it claim some
    crew.stops += 1
    try:
        await until(lambda: is_given_up(app, before["worker"]), "others take over what it ran")
    finally:
        member.go_on()
    await until(lambda: is_another(member, before["worker"]), "it notices that its lease is lost")


async def runs_of(app: App, worker_id: str, *, at_work: bool = False) -> list[str]:
    """Its running runs; with `at_work` not those that it was called for and has not answered: another one that claims
    them takes it for slow, and not for dead."""
    page = await app._engine().store.runs(RunFilter(statuses=("running",)), None, 1000)
    own = [one for one in page if one.owner == worker_id]
    return [one.run_id for one in own if one.ready_at is None or not at_work]


async def is_given_up(app: App, worker_id: str) -> bool:
    """By all others, and not only passed over because it did not answer a call."""
    look = await app._engine().store.look()
    return worker_id not in look.workers and not await runs_of(app, worker_id)


async def is_another(member: Member, worker_id: str) -> bool:
    return bool((await member.who())["worker"] != worker_id)


# --- the server ------------------------------------------------------------------------------------


async def kill_server(server: PostgresProcess | ValkeyProcess, crew: Crew, away_s: float) -> None:
    """Kill it under load, and start it again after a while, which is a part of a second more."""
    await asyncio.to_thread(server.kill)
    await asyncio.sleep(away_s)
    await asyncio.to_thread(server.start)
    crew.restarts += 1


async def test_a_server_that_is_killed_and_restarted(
    tmp_path: Path,
    server_process: PostgresProcess | ValkeyProcess,
    figures: Figures,
    kills_wanted: int,
) -> None:
    """No worker is taken for dead meanwhile, and nobody is told that the store took nothing."""
    place = Place(server_process.url, "crew", "30s", tmp_path / "effects.jsonl")

    async def faults(crew: Crew, rng: random.Random) -> None:
        for _ in range(max(1, kills_wanted // 20)):
            await asyncio.sleep(rng.uniform(0.5, 1.5))
            await kill_server(server_process, crew, rng.uniform(0, 1))
        await asyncio.sleep(0.5)  # scenes are played after the last restart too

    survived = await survive(tmp_path, place, 2, faults)
    assert survived.refused == 0
    figures.add(survived)


async def test_everything_at_once(
    tmp_path: Path,
    server_process: PostgresProcess | ValkeyProcess,
    figures: Figures,
    kills_wanted: int,
) -> None:
    place = Place(server_process.url, "crew", "2s", tmp_path / "effects.jsonl")

    async def faults(crew: Crew, rng: random.Random) -> None:
        for _ in range(max(1, kills_wanted // 20)):
            await asyncio.sleep(rng.uniform(0.2, 1.0))
            victim, sleeper = rng.sample(crew.members, 2)
            sleeper.stop()
            await asyncio.gather(
                crew.kill(victim), kill_server(server_process, crew, rng.uniform(0, 3))
            )
            sleeper.go_on()
            crew.stops += 1
            for one in crew.members:
                await one.ensure()

    figures.add(await survive(tmp_path, place, 3, faults))


# --- life signs ------------------------------------------------------------------------------------


async def test_a_step_that_blocks_the_loop_for_longer_than_the_lease_keeps_its_run(
    tmp_path: Path, place: Place
) -> None:
    async with open_crew(tmp_path, place._replace(lease="1s"), 2), client_of(place) as app:
        run = await app.start(scenes.blocking, 2.5)
        assert await run.result(patience_s) == "blocked"
        assert len(effects_in(place.effects)) == 1
