"""Every test here runs on all four stores, with runs kept in memory or evicted at each wait; but for memory half of
them with one and half with the other, for each opening of a store takes its time.

`world(app)` opens a copy of an app in virtual time on the test's store. Opening a second world continues the first:
the same rows, the same clock. `world.crash()` ends one as a power cut would, without handing anything back.
With `resident=0` every suspension leaves memory at once, so replay is exercised by every test.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worlds import Stage as Stage
from worlds import Worlds, worlds_of

from perdure import App

_modes = [
    pytest.param(("memory", 100), id="memory"),
    pytest.param(("memory", 0), id="memory-evicting"),
    pytest.param(("sqlite", None), id="sqlite"),
    pytest.param(("postgres", None), id="postgres"),
    pytest.param(("redis", None), id="redis"),
]


@pytest.fixture(params=_modes)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Worlds]:
    """A factory of worlds: `async with world(app) as w:`."""
    kind, resident = request.param
    if resident is None:
        resident = 100 * (zlib.crc32(request.node.name.encode()) % 2)
    with worlds_of(kind, resident, tmp_path, request) as worlds:
        yield worlds


@pytest.fixture
def app() -> App:
    """An empty app to define workflows on."""
    return App("memory://")


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Where the crowd meets: the url, and a namespace where one server serves all tests."""
    match request.param:
        case "memory":
            return {"url": "memory://"}
        case "sqlite":
            return {"url": f"sqlite:///{tmp_path}/crowd.db"}
        case "redis":
            lend = request.getfixturevalue("lend_redis_namespace")
            url = request.getfixturevalue("redis_url")
        case _:
            lend = request.getfixturevalue("lend_namespace")
            url = request.getfixturevalue("postgres_url")
    # Without hints of its own: what is passed on, and what is lost, is the test's affair.
    return {"url": url + "?notify=0", "namespace": lend()}
