"""The pytest plugin: fixtures to test workflows in virtual time. Found by pytest wherever Perdure is installed.

Synchronous objects with awaitable methods, so that they work under any asyncio test runner. Nothing of Perdure is
imported before a test asks for a fixture.
"""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.app import App
    from perdure.testing.clock import VirtualClock
    from perdure.testing.world import World


@pytest.fixture
def virtual_clock() -> "VirtualClock":
    """A clock that stands still until it is moved."""
    from perdure.testing.clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def perdure_world(virtual_clock: "VirtualClock") -> "Callable[..., World]":
    """Your app in virtual time: `async with perdure_world(app) as world: await world.advance("48h")`."""
    from perdure.testing.world import World

    def make(app: "App", url: str = "memory://", **options: Any) -> World:
        return World(app, url, clock=virtual_clock, **options)

    return make
