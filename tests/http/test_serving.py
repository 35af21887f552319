"""A server on its own port: what it lets in before anybody has shown who they are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from asking import arrived, shop

from perdure.http.serving import serve
from perdure.webhooks import Hook


@asynccontextmanager
async def served(**options: object) -> AsyncIterator[str]:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    work = serve(shop(), port=0, stop=stop, listening=told.set_result, **options)  # type: ignore[arg-type]
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


async def test_hooks_are_served() -> None:
    hook = Hook("stock", emit=arrived, insecure=True)
    async with served(hooks=[hook]) as url, httpx2.AsyncClient() as http:
        answer = await http.post(f"{url}/hooks/stock", content=b"5")
        assert answer.json()["outcome"] == "emitted"
