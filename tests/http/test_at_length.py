"""What takes as long as there is to do: who can read a stream hears that it goes on, and is told at its end."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from asking import serving

from perdure import App, Client, OutcomeUnknown, PerdureError, ServerFailed, UnknownConsumer
from perdure.http import streaming
from perdure.http.routes import ROUTES
from perdure.http.serving import serve

API = "/api/v1"
ACCEPT = {"accept": "application/json, text/event-stream"}


class Slow(App):
    """Prunes for as long as nobody lets it end."""

    def __init__(self) -> None:
        super().__init__("memory://", worker=False, redact=["name"])
        self.begun, self.may_end, self.stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None

    async def prune(self, *args: Any, **options: Any) -> int:
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        if self.error is not None:
            raise self.error
        return 7


@pytest.fixture
async def slow() -> AsyncIterator[tuple[Slow, str]]:
    app = Slow()
    async with serving(app) as url:
        yield app, url


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything takes longer than a moment, and signs of life are frequent."""
    monkeypatch.setattr(streaming, "_at_once_s", 0)
    monkeypatch.setattr(streaming, "_ping_s", 0.01)


async def told(lines: AsyncIterator[str]) -> tuple[str, Any]:
    """The last message, by its name and what it says."""
    name = ""
    async for line in lines:
        if line.startswith("event:"):
            name = line.removeprefix("event:").strip()
        if line.startswith("data:"):
            return name, json.loads(line.removeprefix("data:"))
    return "", None


def test_these_take_as_long_as_there_is_to_do() -> None:
    assert {one.verb for one in ROUTES if one.at_length} == {
        "replay", "fsck", "prune", "trim_ledger", "backfill", "purge",
    }  # fmt: skip


async def test_what_is_done_at_once_is_answered_as_everything_else(
    slow: tuple[Slow, str],
) -> None:
    app, url = slow
    app.may_end.set()
    async with httpx2.AsyncClient(base_url=url, headers=ACCEPT) as http:
        answer = await http.post(f"{API}/prune", json={})
        assert (answer.status_code, answer.json()) == (200, {"value": 7})
        assert answer.headers["content-type"] == "application/json"
        missing = await http.post(f"{API}/replay", json={"into": "nobody"})
        assert (missing.status_code, missing.json()["error"]) == (404, "UnknownConsumer")
        form = await http.post(f"{API}/replay", json={"into": 1})
        assert form.status_code == 400


@pytest.mark.usefixtures("at_once")
async def test_signs_of_life_come_before_the_answer(slow: tuple[Slow, str]) -> None:
    app, url = slow
    async with (
        httpx2.AsyncClient(base_url=url, headers=ACCEPT) as http,
        http.stream("POST", f"{API}/prune", json={}) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.aiter_lines()
        signs = 0
        while signs < 3:
            signs += (await anext(lines)).startswith(": ping")
        app.may_end.set()
        assert await told(lines) == ("answer", {"value": 7})


@pytest.mark.usefixtures("at_once")
async def test_an_error_is_the_last_message(
    slow: tuple[Slow, str], caplog: pytest.LogCaptureFixture
) -> None:
    app, url = slow
    app.may_end.set()
    app.error = PerdureError("this cannot be pruned")
    async with Client(url) as client:
        with pytest.raises(PerdureError, match="this cannot be pruned"):
            await client.prune("1d")
        with pytest.raises(UnknownConsumer) as missing:
            await client.replay("nobody")
        assert missing.value.name == "nobody"
        app.error = TimeoutError("this took too long")
        with pytest.raises(TimeoutError, match="this took too long"):
            await client.prune("1d")
        app.error = ZeroDivisionError("a secret of ours")
        with caplog.at_level(logging.ERROR), pytest.raises(ServerFailed) as failed:
            await client.prune("1d")
        assert failed.value.error_id in caplog.text
        assert "secret" not in str(failed.value)


@pytest.mark.usefixtures("at_once")
async def test_who_goes_away_stops_it(slow: tuple[Slow, str]) -> None:
    app, url = slow
    async with Client(url) as client:
        asked = asyncio.create_task(client.prune("1d"))
        await app.begun.wait()
        asked.cancel()
        async with asyncio.timeout(10):
            await app.stopped.wait()


@pytest.mark.usefixtures("at_once")
async def test_a_server_that_is_to_stop_does_not_wait_for_it() -> None:
    app, stop = Slow(), asyncio.Event()
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    work = serve(app, port=0, stop=stop, listening=listening.set_result)
    task = asyncio.create_task(work)
    async with asyncio.timeout(20), Client(await listening) as client:
        asked = asyncio.create_task(client.prune("1d"))
        await app.begun.wait()
        stop.set()
        with pytest.raises(OutcomeUnknown, match="a part"):
            await asked
        await task
    assert app.stopped.is_set()


async def test_who_reads_no_streams_gets_the_answer_alone(slow: tuple[Slow, str]) -> None:
    app, url = slow
    async with httpx2.AsyncClient(base_url=url) as http:
        asked = asyncio.create_task(http.post(f"{API}/prune", json={}))
        await app.begun.wait()
        app.may_end.set()
        assert (await asked).json() == {"value": 7}
