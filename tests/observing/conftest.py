"""Worlds as in `runtime`, on memory and on SQLite: what is seen of an app does not depend on its store."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from worlds import Worlds, worlds_of

from perdure import App


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Worlds]:
    """A factory of worlds: `async with world(app) as w:`."""
    with worlds_of(request.param, 100, tmp_path, request) as worlds:
        yield worlds


@pytest.fixture
def app() -> App:
    """An empty app to define workflows on."""
    return App("memory://")
