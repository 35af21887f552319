"""Where the apps of these tests are: in memory, in a file, and for a few tests on Postgres."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param == "memory":
        return {"url": "memory://"}
    return {"url": f"sqlite:///{tmp_path}/shop.db"}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param == "postgres":
        namespace = request.getfixturevalue("lend_namespace")()
        return {"url": request.getfixturevalue("postgres_url"), "namespace": namespace}
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/shop.db"
    return {"url": url}
