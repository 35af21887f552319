"""Places that commands work at: a store on SQLite, one on Postgres, a server; each furnished anew for each test."""

import asyncio
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import corner_shop
import pytest
from shell import Shell

from perdure import App
from perdure.http import Token
from perdure.http.serving import serve

TOKEN = "a-token-of-these-tests-of-the-shell"


def furnished(url: str, namespace: str | None = None) -> None:
    """Make the store, and leave it to whoever comes: no worker lives."""

    async def story() -> None:
        app = corner_shop.app.copy(url=url, namespace=namespace)
        async with app:
            await corner_shop.furnish(app)

    asyncio.run(story())


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


@contextmanager
def serving(app: App, **options: Any) -> Iterator[str]:
    """The API of an app, in a thread of its own; gives its URL."""
    options.setdefault("tokens", [Token.of(TOKEN, name="anna", scopes=["admin"])])
    told: Future[str] = Future()
    stopping: Future[Any] = Future()

    async def story() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        stopping.set_result(lambda: loop.call_soon_threadsafe(stop.set))
        await serve(app, port=0, stop=stop, listening=told.set_result, **options)

    def run() -> None:
        try:
            asyncio.run(story())
        except BaseException as error:
            if told.done():
                raise
            told.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield told.result(30)
    finally:
        stopping.result(30)()
        thread.join(30)
    assert not thread.is_alive()
