"""The API inside somebody's own app, or on its own: opened once, closed with its host, loud when never started."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from asking import asked, scene, shop
from fastapi import FastAPI
from starlette.applications import Starlette

from perdure import App
from perdure.errors import StoreRefused
from perdure.http import create_app, lifespan, readiness, with_perdure


@asynccontextmanager
async def hosted(host: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A host as a server runs it: with its lifespan."""
    transport = httpx2.ASGITransport(host)
    async with (
        host.router.lifespan_context(host),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        yield http


@pytest.mark.parametrize("kind", [FastAPI, Starlette])
async def test_a_host_opens_and_closes_the_app(kind: type) -> None:
    app = shop()
    host = kind(lifespan=lifespan(app))
    host.mount("/perdure", create_app(app, tokens=()))
    async with hosted(host) as http:
        started = await http.post(
            "/perdure/api/v1/runs", json={"workflow": "decide", "input": ["o"]}
        )
        assert started.status_code == 201
        run = f"/perdure/api/v1/runs/{started.json()['id']}"
        assert (await http.get(run)).json()["workflow"] == "decide"
        assert app._life.entered
    assert not app._life.entered


@pytest.mark.parametrize("kind", [FastAPI, Starlette])
async def test_a_host_keeps_its_own_lifespan(kind: type) -> None:
    app, heard = shop(), []

    @asynccontextmanager
    async def own(_: Any) -> AsyncIterator[dict[str, int]]:
        heard.append(("opened", app._life.entered))
        yield {"answer": 42}
        heard.append(("closed", app._life.entered))

    host = with_perdure(kind(lifespan=own), app, path="/flows", tokens=())
    async with hosted(host) as http:
        assert (await http.get("/flows/health/ready")).json()["status"] == "ok"
    assert heard == [("opened", True), ("closed", True)]
    assert not app._life.entered


async def test_an_app_that_nobody_started_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    transport = httpx2.ASGITransport(create_app(shop(), tokens=()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        with caplog.at_level(logging.ERROR, "perdure.http"):
            for _ in range(3):
                answer = await http.get("/api/v1/runs")
                assert answer.status_code == 503
                assert "lifespan=perdure.http.lifespan(app)" in answer.json()["detail"]
        assert len(caplog.records) == 1
        assert "never started" in caplog.text
        assert (await http.get("/health")).status_code == 200  # the process is there
        assert (await http.get("/health/ready")).status_code == 503


async def test_on_its_own_it_opens_the_app() -> None:
    app = shop()
    api: Any = create_app(app, tokens=())
    sent: list[str] = []
    inbox = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(inbox)

    async def send(message: Any) -> None:
        sent.append(f"{message['type']} {app._life.entered}")

    await api({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    assert sent == ["lifespan.startup.complete True", "lifespan.shutdown.complete False"]


@pytest.mark.parametrize("prefix", ["/a%20shop", "/%61%20shop", "/a%20sho%70"])
async def test_an_id_is_decoded_once_however_its_host_was_addressed(prefix: str) -> None:
    app = shop()
    host = Starlette(lifespan=lifespan(app))
    host.mount("/a shop", create_app(app, tokens=()))
    async with hosted(host) as http:
        for run_id, path in (("o/1", "o%2F1"), ("o%2F1", "o%252F1")):
            await app.start("decide", "o", id=run_id)
            answer = await http.get(f"{prefix}/api/v1/runs/{path}")
            assert answer.json().get("id") == run_id, answer.text


async def test_a_server_that_tells_no_raw_path_will_do() -> None:
    """It is optional. What is left is decoded, and is not decoded again."""
    app = shop()
    api = create_app(app, tokens=())

    async def without(scope: Any, receive: Any, send: Any) -> None:
        await api({**scope, "raw_path": None}, receive, send)

    transport = httpx2.ASGITransport(without, client=("127.0.0.1", 1))
    async with app, httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        await app.start("decide", "o", id="50%25 off")
        answer = await http.get("/api/v1/runs/50%2525%20off")
        assert answer.json().get("id") == "50%25 off", answer.text


async def test_the_document_knows_where_it_is_mounted() -> None:
    app = shop()
    host = Starlette(lifespan=lifespan(app))
    host.mount("/perdure", create_app(app, tokens=()))
    async with hosted(host) as http:
        document = (await http.get("/perdure/api/v1/openapi.json")).json()
        assert document["servers"] == [{"url": "/perdure"}]


# --- health ---


async def test_ready_names_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def gone(self: App) -> Any:
        raise StoreRefused("postgresql://anna@db.example is out of reach", passing=True)

    async with asked(shop(), tokens=()) as found:
        assert (await found.http.get("/health/ready")).json() == {"status": "ok", "reasons": []}
        monkeypatch.setattr(readiness, "_fresh_s", 0.0)
        monkeypatch.setattr(App, "health", gone)
        answer = await found.http.get("/health/ready")
        assert answer.status_code == 503
        assert answer.json() == {"status": "degraded", "reasons": ["the store does not answer"]}
        assert "out of reach" in caplog.text  # where it is, is not for strangers
        assert (await found.http.get("/health")).status_code == 200


async def test_strangers_who_ask_whether_it_is_ready_share_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look is several reads of the store, and anybody may ask."""
    looks = 0
    look = App.health

    async def counted(self: App) -> Any:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0)
        return await look(self)

    monkeypatch.setattr(App, "health", counted)
    async with asked(shop(), client="203.0.113.9", base="https://shop.example") as found:
        monkeypatch.setattr(readiness, "_fresh_s", 600.0)
        several = await asyncio.gather(*(found.http.get("/health/ready") for _ in range(20)))
        later = await found.http.get("/health/ready")
        assert {one.status_code for one in (*several, later)} == {200}
        assert looks == 1
        monkeypatch.setattr(readiness, "_fresh_s", 0.0)
        await found.http.get("/health/ready")
        assert looks == 2


async def test_a_mistake_of_ours_gets_a_number_and_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(self: App, **_: Any) -> Any:
        raise ZeroDivisionError("secret of the house")

    monkeypatch.setattr(App, "runs", broken)
    async with asked(shop()) as found:
        await scene(found.app)
        answer = await found.http.get("/api/v1/runs")
    assert answer.status_code == 500
    problem = answer.json()
    assert problem["error"] == "ServerFailed"
    assert "secret" not in answer.text
    assert problem["facts"]["error_id"] in caplog.text
    assert "secret of the house" in caplog.text
