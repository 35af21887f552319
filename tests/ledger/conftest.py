"""Every test here runs on all four stores. `world(app)` opens an app in virtual time; see `worlds`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from worlds import Worlds, worlds_of

from perdure import App


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Worlds]:
    """A factory of worlds: `async with world(app) as w:`."""
    with worlds_of(request.param, 100, tmp_path, request) as worlds:
        yield worlds


@pytest.fixture
def app() -> App:
    """An empty app to define workflows and readers on."""
    return App("memory://")
