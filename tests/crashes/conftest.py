"""Fixtures of the crash tests, and the line of figures at the end."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crashes import story
from crashes.drive import Figures
from crashes.nursery import Nursery, open_nursery
from perdure import App


@pytest.fixture
def app_on(tmp_path: Path) -> Iterator[Callable[[Path], App]]:
    """An app of the same workflows in this very process, for what needs no kill."""
    story.World.effects_fd = os.open(tmp_path / "effects.jsonl", os.O_WRONLY | os.O_CREAT)

    def make(db: Path) -> App:
        app = App(f"sqlite:///{db}")
        for one in story.workflows.values():
            app.add(one)
        return app

    yield make
    os.close(story.World.effects_fd)


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    with open_nursery(tmp_path) as nursery:
        yield nursery


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """What all crash tests of this process add up to; told when the last one is over.

    On stderr, because a process of pytest-xdist has no other way to the terminal.
    """
    total = Figures()
    yield total
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\ncrashes{' ' if worker else ''}{worker}: {total}", file=sys.stderr, flush=True)


@pytest.fixture(scope="session")
def kills_wanted() -> int:
    """How many children die at random moments: PERDURE_CRASH_KILLS, as `make crash` sets it."""
    return int(os.environ.get("PERDURE_CRASH_KILLS", "40"))
