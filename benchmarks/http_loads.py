"""Signals over HTTP, beside the same through the library: runs on one SQLite file, a server in their process.

The sender is a process of its own, with as many requests at once as there are senders in the library's turn. So the
figure is what a program on the same machine gets out of one server: a core is for the server, and one for the sender.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from benchmarks.common import Order, Stopwatch, Values, new_file
from benchmarks.companions import companion, say_ready, until_told
from benchmarks.perdure_loads import file_url, go, make_app, run_id, start_waiting
from perdure import App, Client

_senders = 64
_path = "/perdure"


async def over_http(order: Order, watch: Stopwatch) -> Values:
    """Half of the waiting runs are signalled through the library, the other half over HTTP."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from perdure.http import create_app

    half = order.size // 2
    async with make_app(file_url(new_file(order.place))) as app:
        await start_waiting(app, order.size)
        through_library = Stopwatch()
        with through_library:
            await _send(range(half), lambda number: app.signal(run_id(number), go, number))
        host = Starlette(routes=[Mount(_path, create_app(app, tokens=()))])
        config = uvicorn.Config(host, port=0, log_level="warning", lifespan="off", access_log=False)
        listening = config.bind_socket()
        listening.listen()
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listening]))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}{_path}"
        sender = replace(order, job="http-sender", database=url)
        async with companion(sender) as other:
            other.go_on()
            seconds = float(await other.line())
        server.should_exit = True
        await serving
        await _check_ended(app, order.size)
    return {
        "http_sends_s": (order.size - half) / seconds,
        "library_sends_s": half / through_library.seconds,
    }


async def http_sender(order: Order, watch: Stopwatch) -> Values:
    """Not a measurement: the process that sends."""
    assert order.database is not None
    half = order.size // 2
    async with Client(order.database) as client:
        await client.me()
        say_ready()
        await until_told()
        begun = time.perf_counter()
        await _send(
            range(half, order.size), lambda number: client.signal(run_id(number), go, number)
        )
        print(time.perf_counter() - begun, flush=True)
        await until_told()
    return {}


async def _send(numbers: range, send: Callable[[int], Coroutine[Any, Any, Any]]) -> None:
    """One signal each, with so many senders at once, each one after the other."""
    left = iter(numbers)

    async def sender() -> None:
        for number in left:
            await send(number)

    await asyncio.gather(*(sender() for _ in range(_senders)))


async def _check_ended(app: App, count: int) -> None:
    for number in range(count):
        if await app.run(run_id(number)).result() != number:
            raise AssertionError(f"run {number} did not end with what it was sent")


jobs: dict[str, Callable[[Order, Stopwatch], Coroutine[Any, Any, Values]]] = {
    "http": over_http,
    "http-sender": http_sender,
}
