"""Children are killed at random moments, one after the other on the same file, while many asks are in flight."""

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from crashes import script
from crashes.drive import Figures, Kill, Play, hunt
from crashes.nursery import open_nursery
from crashes.script import Story

_kills_per_file = 20
# A failure names its seed. It chooses runs and moments; what the machine does in between is its own.
_seed = int(os.environ.get("PERDURE_CRASH_SEED", "0"))


def _cast(rng: random.Random) -> list[Story]:
    return [rng.choice(script.tellers)(n) for n in range(1, 25)]


def _moments(rng: random.Random) -> Iterator[Kill]:
    """From the first instants of opening the file to well into the runs; some at a commit, as it falls."""
    for _ in range(_kills_per_file):
        if rng.random() < 0.3:
            yield Kill(failpoint=(rng.choice(["before", "inside", "after"]), rng.randint(3, 12)))
        else:
            yield Kill(after_s=rng.uniform(0.002, 0.08))


def _hunt_many(directory: Path, seed: int, kills: int) -> Figures:
    total = Figures()
    with open_nursery(directory) as nursery:
        nth = 0
        while total.kills < kills:
            rng = random.Random(f"{seed}/{nth}")
            try:
                play = Play(nursery, directory / str(nth), _cast(rng))
                total.add(hunt(play, _moments(rng)))
            except BaseException as error:
                error.add_note(f"seed {seed}/{nth}, files in {directory / str(nth)}")
                raise
            nth += 1
    return total


def test_kills_at_random_moments_lose_nothing_and_double_nothing(
    tmp_path: Path, figures: Figures, kills_wanted: int
) -> None:
    with ThreadPoolExecutor(2) as pool:
        hunts = []
        for seed in (_seed, _seed + 1):
            directory = tmp_path / f"hunter-{seed}"
            directory.mkdir()
            hunts.append(pool.submit(_hunt_many, directory, seed, kills_wanted // 2))
        for one in hunts:
            figures.add(one.result())


def test_a_second_worker_on_the_file_lives_through_the_deaths_of_the_first(
    tmp_path: Path, figures: Figures, kills_wanted: int
) -> None:
    """Both execute runs; what is asked of one is done by the other; nothing is done by both."""
    rng = random.Random(f"{_seed}/two workers")
    with open_nursery(tmp_path) as nursery, open_nursery(tmp_path) as home:
        for nth in range(max(1, kills_wanted // 40)):
            play = Play(nursery, tmp_path / f"shared-{nth}", _cast(rng), shared=True)
            bystander = home.fork(db=play.db, effects=play.effects)
            bystander.hear_of("open")
            figures.add(hunt(play, _moments(rng)))
            assert bystander.close()
