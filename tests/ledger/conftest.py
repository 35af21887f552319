"""Every test here runs twice: on memory and on SQLite. `world(app)` opens an app in virtual time; see `worlds`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from worlds import Worlds

from perdure import App


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Worlds]:
    """A factory of worlds: `async with world(app) as w:`."""
    yield Worlds(request.param, 100, tmp_path)


@pytest.fixture
def app() -> App:
    """An empty app to define workflows and readers on."""
    return App("memory://")
