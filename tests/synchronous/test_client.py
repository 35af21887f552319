"""`SyncClient`: the verbs of an App over HTTP for code that may wait, against a server that really listens."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx2
import pytest
import uvicorn

from perdure import (
    App,
    Buffered,
    Conflict,
    Delivered,
    Duplicate,
    Emitted,
    Event,
    InvalidPayload,
    NotAuthenticated,
    NotRunning,
    OutcomeUnknown,
    RunCancelled,
    RunFailed,
    RunInfo,
    RunNotFound,
    ScopeMissing,
    SyncClient,
    SyncRun,
    Unreachable,
    WrongLoop,
)
from perdure.http import Token, create_app
from perdure.model.limits import BadValue
from perdure.synchronous.bridge import Background

from .shop import Order, approve, arrived, jobs, note, shop, workflow
from .waiting import until

TEA = Order("tea", 3)
TOKEN, READER = "a-token-of-these-tests-for-all", "a-token-of-these-tests-to-read"


class Served:
    def __init__(self, app: App, url: str) -> None:
        self.app, self.url = app, url


@asynccontextmanager
async def serving(app: App, listening: Any) -> AsyncIterator[None]:
    scopes: Any = ["read", "signal", "operate", "admin"]
    tokens = [
        Token.of(TOKEN, name="tests", scopes=scopes),
        Token.of(READER, name="reader", scopes=["read"]),
    ]
    api = create_app(app, tokens=tokens)
    config = uvicorn.Config(api, log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    async with app:
        task = asyncio.create_task(server.serve([listening]))
        try:
            yield
        finally:
            server.should_exit = True
            await task


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One server for all tests here, in a thread of its own."""
    app = shop()
    config = uvicorn.Config(app=None, port=0)  # type: ignore[arg-type]
    listening = config.bind_socket()
    listening.listen()  # whoever comes before it serves waits
    background = Background(serving(app, listening), "served")
    background.open()
    yield Served(app, f"http://127.0.0.1:{listening.getsockname()[1]}")
    background.close()


@pytest.fixture
def client(served: Served) -> Iterator[SyncClient]:
    with SyncClient(served.url, TOKEN) as opened:
        yield opened


def test_a_run_is_started_signalled_and_gives_its_typed_result(
    served: Served, client: SyncClient
) -> None:
    order = workflow(served.app, "order")
    run = client.start(order, TEA, id="o/1 ü", tags={"team": "x"})
    assert isinstance(run, SyncRun)
    assert (run.id, run.created) == ("o/1 ü", True)
    assert not client.start(order, TEA, id="o/1 ü").created
    sent = client.signal(run.id, approve, True, key="k")
    assert isinstance(sent, Delivered | Buffered)
    assert client.signal(run.id, approve, True, key="k") == Duplicate(sent)
    assert run.result(timeout="10s") == 3
    assert run.info() == served.app.sync.run(run.id).info()
    assert run.history() == served.app.sync.run(run.id).history()
    assert client.runs(tag=("team", "x")).items == [run.info()]
    assert run.get("sku") == "tea"
    fork = run.fork(id="forked")
    assert isinstance(fork, SyncRun) and fork.cancel("enough") != "completed"
    with pytest.raises(RunCancelled, match="enough"):
        fork.result()


def test_other_verbs(served: Served, client: SyncClient) -> None:
    assert isinstance(client.emit(arrived, 3, entity="sku/7"), Emitted)
    told = client.emit_many((arrived, number) for number in range(2))
    assert [type(one) for one in told] == [Emitted] * 2
    client.put(jobs, 1)
    assert client.queues() == {"jobs": 1}
    run, sent = client.signal_with_start(
        workflow(served.app, "order"), TEA, signal=approve, payload=True, id="both"
    )
    assert isinstance(run, SyncRun) and isinstance(sent, Delivered | Buffered)
    assert client.import_run(run.export(), id="imported").result() == 3
    client.schedule("1h", workflow(served.app, "double"), 4, name="hourly")
    assert [one.every for one in client.schedules()] == [timedelta(hours=1)]
    assert client.trigger("hourly").result() == 8
    assert client.me().name == "tests"
    assert client.health() == served.app.sync.health()


def test_errors_are_those_of_the_library(client: SyncClient, served: Served) -> None:
    failed = client.start("fail")
    with pytest.raises(RunFailed, match="no such luck"):
        failed.result()
    client.start("order", {"sku": "tea", "count": 1}, id="errors")
    with pytest.raises(InvalidPayload, match="bool"):
        client.signal("errors", "approve", "perhaps")
    with pytest.raises(RunNotFound):
        client.run("nobody").status()
    with pytest.raises(Conflict):
        client.start("order", {"sku": "milk", "count": 1}, id="errors")
    with pytest.raises(TimeoutError, match="has not ended"):
        client.run("errors").result(timeout=0)
    with SyncClient(served.url, READER) as reader, pytest.raises(ScopeMissing):
        reader.start("fail")
    with SyncClient(served.url) as stranger, pytest.raises(NotAuthenticated):
        stranger.runs()


def test_streams_are_ordinary_iterators(client: SyncClient) -> None:
    run = client.start("order", {"sku": "tea", "count": 2})
    items = run.stream("notes", type=str)
    seen = client.follow("stock.*", runs=[run.id])
    for word in ("a", "b"):
        client.signal(run.id, note, word)
        assert next(items).value == word
    info = next(seen)
    assert isinstance(info, RunInfo) and info.id == run.id
    client.emit(arrived, 9)
    event = next(one for one in seen if isinstance(one, Event))
    assert event.payload == 9
    seen.close()
    assert [one.value for one in run.stream("notes", follow=False)] == ["a", "b"]
    client.signal(run.id, approve, True)
    assert list(items) == []
    with pytest.raises(BadValue):
        run.stream("notes", after=-1)


def test_fifty_threads_use_one_client(served: Served, client: SyncClient) -> None:
    gate = threading.Barrier(50)

    def use(number: int) -> int:
        gate.wait(20)
        run = client.start(workflow(served.app, "order"), Order("tea", number))
        client.signal(run.id, approve, True)
        return run.result(timeout="30s")

    with ThreadPoolExecutor(50) as threads:
        assert list(threads.map(use, range(50))) == list(range(50))


def test_a_client_is_opened_and_closed(served: Served) -> None:
    client = SyncClient(served.url, TOKEN)
    assert repr(client) == f"SyncClient({served.url!r})" and client.url == served.url
    with pytest.raises(NotRunning, match="with client"):
        client.runs()
    assert client.open() is client
    with pytest.raises(NotRunning, match="open already"):
        client.open()
    run = client.start("order", {"sku": "tea", "count": 1})
    items = run.stream("notes")
    client.signal(run.id, note, "a")
    next(items)
    client.close()
    client.close()
    with pytest.raises(NotRunning):
        run.status()
    with pytest.raises(NotRunning):
        next(items)
    with client:
        assert run.status() in ("running", "waiting")
    assert not any(one.name == "perdure-client" for one in threading.enumerate())


def test_who_waits_while_the_client_is_closed_is_let_go(served: Served) -> None:
    asked = threading.Event()

    async def never(request: httpx2.Request) -> httpx2.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    with ThreadPoolExecutor(1) as threads:
        with SyncClient("http://localhost", transport=httpx2.MockTransport(never)) as client:
            waiting = threads.submit(client.emit, "a.b")
            assert asked.wait(10)
        assert isinstance(waiting.exception(10), OutcomeUnknown)


def test_no_server() -> None:
    with SyncClient("http://127.0.0.1:9") as client, pytest.raises(Unreachable):
        client.runs()
    with pytest.raises(BadValue, match="address"):
        SyncClient("127.0.0.1:9")


async def test_a_program_with_a_loop_has_another_client(client: SyncClient) -> None:
    """It may wait here, in its own time; only the loop of the client itself would wait for ever."""
    assert "runs" in client.counts()
    loop = client._background.loop  # type: ignore[union-attr]

    async def inside() -> None:
        with pytest.raises(WrongLoop, match=r"use `await client\.runs\("):
            client.runs()
        with pytest.raises(WrongLoop):
            client.close()

    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(inside(), loop))
    until(lambda: loop.is_running())
