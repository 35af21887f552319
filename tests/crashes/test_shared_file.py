"""Several worker processes on one SQLite file, under load, while they are killed: nothing is lost or happens twice.

With KILLS=1000, as `make crash` has it, ten thousand runs get signals from each of four processes.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

from crashes.crew import Crew, Place, open_crew
from crashes.drive import Figures
from crashes.load import client_of, survive
from crashes.mesh import Mesh, processes

_seed = os.environ.get("PERDURE_CRASH_SEED", "0")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "shared.db"


@pytest.fixture
def place(tmp_path: Path, db: Path) -> Place:
    return Place(f"sqlite:///{db}", None, "30s", tmp_path / "effects.jsonl")


async def test_signals_from_each_to_each_while_they_are_killed(
    tmp_path: Path, place: Place, db: Path, figures: Figures, kills_wanted: int
) -> None:
    rng = random.Random(f"{_seed}/mesh")
    async with open_crew(tmp_path, place, processes) as crew:
        mesh = Mesh(crew, rng, runs=10 * kills_wanted, kills=max(2, kills_wanted // 20))
        await mesh.play()
        async with client_of(place) as app:
            figures.add(await mesh.check(app, db, place.effects))


async def test_workers_killed_at_random_moments(
    tmp_path: Path, place: Place, figures: Figures, kills_wanted: int
) -> None:
    """All kinds of waits, and a client in another process that asks meanwhile."""

    async def faults(crew: Crew, rng: random.Random) -> None:
        for _ in range(max(1, kills_wanted // 10)):
            await asyncio.sleep(rng.uniform(0.05, 0.8))
            await crew.kill(rng.choice(crew.members))

    figures.add(await survive(tmp_path, place, 3, faults))
