"""Orders through a web server with four processes on one SQLite file, twice: uvicorn, and gunicorn with its forks.

Each order is started by the process that gets the first request, approved by whichever gets the second, and awaited by
a third; and this very program, one more process on the file, awaits them all. Every order is shipped once.
"""

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from .shop import app

ORDERS = 40
PROCESSES = 4
PATIENCE_S = 30.0

UVICORN = ["uvicorn", "--workers", "4", "--log-level", "warning", "--host", "127.0.0.1"]
GUNICORN = ["gunicorn", "-c", "python:examples.web.gunicorn_conf", "--log-level", "warning"]


def commands(port: int) -> dict[str, list[str]]:
    return {
        "uvicorn": [*UVICORN, "--port", str(port), "examples.web.asgi:application"],
        "gunicorn": [*GUNICORN, "--bind", f"127.0.0.1:{port}", "examples.web.wsgi:application"],
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(name: str, port: int) -> Iterator[None]:
    """The server, until it is told to end; it closes its apps then."""
    database = {"SHOP_DATABASE": f"sqlite:///web-{name}.db", "SHOP_SHIPPED": f"web-{name}.txt"}
    command = [sys.executable, "-m", *commands(port)[name]]
    server = subprocess.Popen(command, env={**os.environ, **database})
    try:
        until_all_are_there(port, server)
        yield
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


def until_all_are_there(port: int, server: "subprocess.Popen[bytes]") -> None:
    """Until each of its processes has answered something."""
    deadline = time.monotonic() + PATIENCE_S
    there: set[int] = set()
    with ThreadPoolExecutor(8) as pool:
        while time.monotonic() < deadline and server.poll() is None:
            try:
                there |= set(pool.map(lambda _: ask(port, "GET", "/")["process"], range(8)))
            except ConnectionRefusedError:
                time.sleep(0.05)
            if len(there) == PROCESSES:
                return
    raise RuntimeError(f"only {len(there)} processes answered (exit code {server.poll()})")


def ask(port: int, method: str, path: str) -> dict[str, Any]:
    """One request on a connection of its own, so that any process may get it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        found: dict[str, Any] = json.loads(response.read())
        return found
    finally:
        connection.close()


def play(port: int, order_id: str) -> tuple[int, int, int]:
    """Start, approve and await an order; gives which processes did that."""
    started = ask(port, "POST", f"/orders/{order_id}")
    approved = ask(port, "POST", f"/orders/{order_id}/approve")
    awaited = ask(port, "GET", f"/orders/{order_id}")
    assert awaited["result"] == "approved by ada", awaited
    return started["process"], approved["process"], awaited["process"]


async def results(name: str, order_ids: list[str]) -> list[str]:
    """As this process sees them, a client on the same file."""
    async with app.copy(f"sqlite:///web-{name}.db", worker=False) as client:
        return [await client.run(one).result("20s") for one in order_ids]


def main() -> None:
    for name in ("uvicorn", "gunicorn"):
        port = free_port()
        order_ids = [f"{uuid.uuid4().hex[:8]}-{number}" for number in range(ORDERS)]
        with serving(name, port), ThreadPoolExecutor(8) as pool:
            told = list(pool.map(partial(play, port), order_ids))
            assert asyncio.run(results(name, order_ids)) == ["approved by ada"] * ORDERS
        shipped = Counter(Path(f"web-{name}.txt").read_text().split())
        processes = {process for one in told for process in one}
        elsewhere = sum(started != approved for started, approved, _ in told)
        assert elsewhere > 0 and all(shipped[one] == 1 for one in order_ids), (told, shipped)
        print(f"{name}: {ORDERS} orders through {len(processes)} processes")
        print(f"  {elsewhere} approved by another process than the one that started them")
        print("  every order was shipped once")


if __name__ == "__main__":
    main()
