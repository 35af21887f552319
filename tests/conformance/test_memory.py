"""The memory store keeps the contract."""

import pytest

from perdure.model.records import OutboxRecord
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.testing.conformance import *  # noqa: F403


@pytest.fixture
def make_store() -> MakeStore:  # noqa: F405
    return lambda clock, ids, lifecycle: MemoryStore(clock=clock, ids=ids, lifecycle=lifecycle)


@pytest.fixture
def write_outbox() -> WriteOutbox:  # noqa: F405
    """No caller has a transaction here; the rows are put where one would."""

    async def write(store: Store, *rows: OutboxRecord, commit: bool = True) -> None:
        assert isinstance(store, MemoryStore)
        if commit:
            store.tables.outbox.update((one.outbox_id, one) for one in rows)

    return write
