"""Every test here runs on all four stores; `world(app)` opens worlds on one of them, one after the other."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from worlds import Worlds, worlds_of


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Worlds]:
    with worlds_of(request.param, 100, tmp_path, request) as worlds:
        yield worlds
