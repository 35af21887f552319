"""A server on its own port: what it lets in before anybody has shown who they are."""

import asyncio
import logging
import socket
import sys
import types
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from asking import arrived, shop

from perdure import App, BadValue
from perdure.http import serving, streaming
from perdure.http.serving import serve
from perdure.webhooks import Hook


@asynccontextmanager
async def served(**options: object) -> AsyncIterator[str]:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    app = options.pop("app", None) or shop()
    work = serve(app, port=0, stop=stop, listening=told.set_result, **options)  # type: ignore[arg-type]
    task = asyncio.create_task(work)
    try:
        yield await told
    finally:
        stop.set()
        await task


async def test_the_head_of_a_request_is_bounded() -> None:
    """Whatever else is installed that could read it."""
    async with served() as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
        line = b"x-filler: " + b"x" * 4_000 + b"\r\n"
        async with asyncio.timeout(20):
            sent = 0
            while not reader.at_eof() and sent < 10_000_000:
                try:
                    writer.write(line)
                    await writer.drain()
                except ConnectionError:
                    break
                sent += len(line)
        writer.close()
        assert sent < 10_000_000


async def test_of_a_stream_there_is_no_head(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody would read along, and nothing would end it. All else that is read has one."""
    joined: list[object] = []
    monkeypatch.setattr(streaming.Feed, "_join", lambda *given: joined.append(given))
    async with served() as url, httpx2.AsyncClient(base_url=url) as http:
        await http.post("/api/v1/runs", json={"workflow": "decide", "input": ["o"], "id": "one"})
        for path in ("/api/v1/follow", "/api/v1/runs/one/streams/log/follow"):
            refused = await http.head(path)
            assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
            assert refused.headers["x-frame-options"] == "DENY"
        assert (await http.head("/api/v1/runs/one")).status_code == 200
        for path in ("/api/v1/me", "/health", "/api/v1/openapi.json"):
            head, whole = await http.head(path), await http.get(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == str(len(whole.content))
    assert not joined
    assert not [one for one in caplog.records if one.exc_info]


@pytest.mark.skipif(sys.platform != "linux", reason="others have no such option")
async def test_one_who_takes_nothing_is_let_go_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serving, "_takes_nothing_ms", 500)
    monkeypatch.setattr(streaming, "_send_timeout_s", 0.2)
    caplog.set_level(logging.INFO)
    async with served() as url:
        place = url.removeprefix("http://").split(":")
        with socket.create_connection((place[0], int(place[1]))) as deaf:
            deaf.sendall(b"GET /api/v1/follow HTTP/1.1\r\nhost: localhost\r\n\r\n")
            async with httpx2.AsyncClient(base_url=f"{url}/api/v1") as http:
                async with asyncio.timeout(20):
                    while "taken nothing" not in caplog.text:
                        await http.post("/events", json={"topic": "a", "payload": "x" * 900_000})
            assert "Traceback" not in caplog.text
            async with asyncio.timeout(20):
                while is_connected(int(place[1]), deaf.getsockname()[1]):  # noqa: ASYNC110 (the system's)
                    await asyncio.sleep(0.01)


def is_connected(port: int, peer: int) -> bool:
    """Whether the system still has the server's end of a connection."""
    ends = f":{port:04X} 0100007F:{peer:04X} "
    return any(ends in line for line in Path("/proc/net/tcp").read_text().splitlines())


async def test_streams_end_in_good_order_with_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async with httpx2.AsyncClient(timeout=20) as http, AsyncExitStack() as streams:
        async with served() as url:
            answers = [
                await streams.enter_async_context(http.stream("GET", f"{url}/api/v1/follow"))
                for _ in range(20)
            ]
            told = [answer.aiter_lines() for answer in answers]
            for lines in told:
                assert await anext(lines) == "id: 0"
        for lines in told:
            assert [line async for line in lines][:2] == ["event: position", 'data: {"value":0}']
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


async def test_hooks_are_served() -> None:
    hook = Hook("stock", emit=arrived, insecure=True)
    async with served(hooks=[hook]) as url, httpx2.AsyncClient() as http:
        answer = await http.post(f"{url}/hooks/stock", content=b"5")
        assert answer.json()["outcome"] == "emitted"


async def test_hooks_of_an_app_are_served_wherever_its_api_is() -> None:
    app, module = App("memory://"), types.ModuleType("hooks")
    module.__dict__.update(one=Hook("stock", emit=arrived, insecure=True))
    app.add(module)
    app.add(Hook("goods", emit=arrived, insecure=True))
    with pytest.raises(BadValue, match="given twice"):
        app.add(Hook("goods", emit=arrived, insecure=True))
    async with served(app=app.copy()) as url, httpx2.AsyncClient() as http:
        for name in ("stock", "goods"):
            answer = await http.post(f"{url}/hooks/{name}", content=b"5")
            assert answer.json()["outcome"] == "emitted"
        assert (await http.post(f"{url}/hooks/none", content=b"5")).status_code == 404
