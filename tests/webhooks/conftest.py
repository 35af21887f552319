"""Webhooks are a matter of the network, and rest on consumers, which run on all stores: mostly SQLite is enough."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from receiver import Receiver
from worlds import Worlds, worlds_of

from perdure import App


@pytest.fixture(params=["sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Worlds]:
    """A factory of worlds: `async with world(app) as w:`."""
    with worlds_of(request.param, 100, tmp_path, request) as worlds:
        yield worlds


@pytest.fixture
def app() -> App:
    return App("memory://")


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as one:
        yield one
