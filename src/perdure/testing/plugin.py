"""The pytest plugin: fixtures to test workflows in virtual time.

Synchronous objects with awaitable methods, so that they work under any asyncio test runner.
"""

import pytest

from perdure.testing.clock import VirtualClock


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """A clock that stands still until it is moved."""
    return VirtualClock()
