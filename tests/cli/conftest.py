"""Places that commands work at: a store on SQLite, one on Postgres, a server; each furnished anew for each test."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import corner_shop
import pytest
from places import TOKEN, furnished, serving
from shell import Shell

from perdure import App


@pytest.fixture(scope="session")
def furnished_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store, made once; each test has a copy of it."""
    file = tmp_path_factory.mktemp("furnished") / "perdure.db"
    furnished(f"sqlite:///{file}")
    return file


@pytest.fixture
def sqlite_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, furnished_file: Path) -> Shell:
    """The store in the current directory, with nothing living on it: `perdure.db` is where commands look by default."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(furnished_file, tmp_path)
    return Shell()


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """No store at all."""
    monkeypatch.chdir(tmp_path)
    return Shell()


@pytest.fixture(params=["sqlite", "server"])
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    """The same store, reached in two ways."""
    yield from _reached(request)


@pytest.fixture(params=["sqlite", "server", "postgres"])
def every_shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    """And one on Postgres: for tests of what stores do each in their own way."""
    yield from _reached(request)


def _reached(request: pytest.FixtureRequest) -> Iterator[Shell]:
    match request.param:
        case "sqlite":
            yield request.getfixturevalue("sqlite_shell")
        case "postgres":
            url = request.getfixturevalue("postgres_url")
            namespace = request.getfixturevalue("lend_namespace")()
            furnished(url, namespace)
            yield Shell("--url", url, "--namespace", namespace)
        case _:
            there = request.getfixturevalue("tmp_path")
            shutil.copy(request.getfixturevalue("furnished_file"), there)
            app = App(f"sqlite:///{there}/perdure.db", worker=False, secret=corner_shop.SECRET)
            with serving(app) as url:
                yield Shell(env={"PERDURE_URL": url, "PERDURE_TOKEN": TOKEN})
