"""The memory store keeps the contract."""

import pytest

from perdure.store.memory import MemoryStore
from perdure.testing.conformance import *  # noqa: F403


@pytest.fixture
def make_store() -> MakeStore:  # noqa: F405
    return lambda clock, ids, lifecycle: MemoryStore(clock=clock, ids=ids, lifecycle=lifecycle)
