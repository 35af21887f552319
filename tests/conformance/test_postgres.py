"""The Postgres store keeps the contract."""

import pytest
from servers.namespaces import Lent

from perdure.store.postgres.store import PostgresStore
from perdure.testing.conformance import *  # noqa: F403


@pytest.fixture
def make_store(postgres_url: str, lend_namespace: Lent) -> MakeStore:  # noqa: F405
    return lambda clock, ids, lifecycle: PostgresStore(
        postgres_url, namespace=lend_namespace(), clock=clock, ids=ids, lifecycle=lifecycle
    )
