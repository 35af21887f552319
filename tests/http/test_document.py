"""The OpenAPI document is valid, whole, and what the server does: schemathesis finds nothing."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from asking import Asked, scene, serving, shop
from hypothesis import HealthCheck, Phase, settings
from openapi_spec_validator import validate

from perdure.http.openapi import document
from perdure.http.routes import ROUTES

EXAMPLES = int(os.environ.get("PERDURE_FUZZ_EXAMPLES", "0")) // 20 or 4


async def test_the_document_is_valid_and_whole(open_shop: Asked) -> None:
    document = (await open_shop.http.get("/api/v1/openapi.json")).json()
    validate(document)
    told = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert told == {(one.method, one.path) for one in ROUTES} | {("GET", "/api/v1/openapi.json")}
    names = [
        one["operationId"] for methods in document["paths"].values() for one in methods.values()
    ]
    assert len(names) == len(set(names))


def test_a_route_says_the_statuses_that_the_document_has() -> None:
    paths = json.loads(document())["paths"]
    for one in ROUTES:
        told = paths[one.path][one.method.lower()]["responses"]
        assert {str(status) for status in one.statuses} == {one for one in told if one[0] == "2"}


# --- a running server, asked all that its document allows, and more -------------------------------


@contextmanager
def served(url: str, namespace: str | None) -> Iterator[str]:
    """A server in a thread of its own, with something of everything behind it."""
    told: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        app = shop(url, namespace=namespace)
        async with serving(app) as address:
            await scene(app)
            told.append(address)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(30)
        yield told[0]
    finally:
        done.set()
        thread.join(30)
    assert not thread.is_alive()


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: Any, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        with served(f"sqlite:///{tmp_path}/shop.db", None) as address:
            yield address
        return
    postgres = request.getfixturevalue("postgres_url")
    with request.getfixturevalue("postgres_namespaces").lent() as lend:
        with served(postgres, lend()) as address:
            yield address


@pytest.mark.hypothesis
@pytest.mark.timeout(600)
def test_schemathesis_finds_nothing(server: str) -> None:
    document = httpx2.get(f"{server}/api/v1/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=server)
    # Streams do not end, so nobody can read one whole; they have tests of their own.
    asked = [one.ok() for one in schema.get_all_operations()]
    chosen = [
        one
        for one in asked
        if not any(
            route.streams and (route.method, route.path) == (one.method.upper(), one.path)
            for route in ROUTES
        )
    ]
    assert len(chosen) > 80
    for operation in chosen:
        strategy = operation.as_strategy()
        _ask_all(strategy)


def _ask_all(strategy: Any) -> None:
    from hypothesis import given

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def ask(case: Any) -> None:
        case.call_and_validate()

    ask()
