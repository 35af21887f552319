"""Requests that are held when their server is told to stop: answered at once, with what is so by then."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest
from asking import serving, shop

from perdure import App
from perdure.asking import Question
from perdure.handle import RunHandle
from perdure.http.serving import serve
from perdure.model import limits

Served = Callable[[App], AbstractAsyncContextManager[str]]


@asynccontextmanager
async def on_its_own(app: App) -> AsyncIterator[str]:
    """As `perdure serve` does it."""
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    task = asyncio.create_task(serve(app, port=0, stop=stop, listening=told.set_result, tokens=()))
    try:
        yield await told
    finally:
        stop.set()
        await task


@pytest.fixture(params=[on_its_own, serving], ids=["serve", "uvicorn"])
def served(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Any:
    """A server that logs nothing that went wrong, by whoever serves it."""

    @asynccontextmanager
    async def quiet(app: App) -> AsyncIterator[str]:
        async with asyncio.timeout(20), request.param(app) as url:
            yield url
        assert not [one for one in caplog.records if one.levelno >= logging.ERROR]

    return quiet


async def test_who_waits_for_a_result_is_told_that_there_is_none_yet(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_held = asyncio.Event()
    result = RunHandle.result

    async def told(self: RunHandle[Any], timeout: Any = None) -> Any:  # noqa: ASYNC109 (its word)
        is_held.set()
        return await result(self, timeout)

    monkeypatch.setattr(RunHandle, "result", told)
    app = shop()
    async with httpx2.AsyncClient(timeout=60) as http:
        async with served(app) as url:
            await app.start("decide", "o1", id="one")
            path = f"{url}/api/v1/runs/one/result"
            waiting = asyncio.create_task(http.get(path, params={"wait": "50s"}))
            await is_held.wait()
        answer = await waiting
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["ended"]) == ("waiting", False)


async def test_who_asks_is_told_that_the_question_was_sent(served: Served) -> None:
    app = shop()
    async with httpx2.AsyncClient(timeout=60) as http:
        async with served(app) as url:
            await app.start("decide", "o1", id="one")
            question = {"signal": "note", "payload": 1, "timeout": "50s", "key": "k"}
            asking = asyncio.create_task(http.post(f"{url}/api/v1/runs/one/ask", json=question))
            while not await app.buffered("one"):  # noqa: ASYNC110 (a row, not an object)
                await asyncio.sleep(0)
        answer = await asking
    assert answer.status_code == 504
    problem = answer.json()
    assert "before this server was told to stop; the signal was sent" in problem["detail"]
    assert "ask for it again with the same key, 'k'" in problem["detail"]


async def test_who_asks_is_told_that_it_is_not_known_whether_it_was_sent(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shop()
    is_held = asyncio.Event()

    async def never(*_: Any) -> Any:
        is_held.set()
        await asyncio.Event().wait()

    async with httpx2.AsyncClient(timeout=60) as http:
        async with served(app) as url:
            await app.start("decide", "o1", id="one")
            monkeypatch.setattr("perdure.asking.submit", never)
            question = {"signal": "note", "payload": 1, "timeout": "50s"}
            asking = asyncio.create_task(http.post(f"{url}/api/v1/runs/one/ask", json=question))
            await is_held.wait()
        answer = await asking
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
    problem = answer.json()
    assert problem["error"] == "OutcomeUnknown"
    assert "may or may not have been sent" in problem["detail"]


async def test_so_many_are_held_and_none_for_who_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "http_held_max", 2)
    told: list[str] = []

    async def never(*_: Any, **__: Any) -> Any:
        told.append("held")
        try:
            await asyncio.Event().wait()
        finally:
            told.append("ended")

    async def until(word: str) -> None:
        while told.count(word) < 2:  # noqa: ASYNC110 (the work of a server, which nobody awaits)
            await asyncio.sleep(0)

    monkeypatch.setattr(RunHandle, "result", never)
    monkeypatch.setattr(Question, "ask", never)
    app = shop()
    async with asyncio.timeout(20), serving(app) as url, httpx2.AsyncClient(timeout=60) as http:
        await app.start("decide", "o1", id="one")
        path = f"{url}/api/v1/runs/one/result"
        waiting = [
            asyncio.create_task(http.get(path, params={"wait": "50s"})),
            asyncio.create_task(
                http.post(f"{url}/api/v1/runs/one/ask", json={"signal": "note", "payload": 1})
            ),
        ]
        await until("held")
        answer = await http.get(path)
        assert answer.status_code == 429 and "http_held_max" in answer.json()["detail"]
        for one in waiting:
            one.cancel()
        await until("ended")
        assert (await http.get(path)).json()["ended"] is False
