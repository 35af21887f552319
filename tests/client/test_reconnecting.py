"""A server that goes away and comes back: what waits or follows goes on, without end or hammering if it stays away."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import httpx2
import msgspec
import pytest
import uvicorn

from perdure import (
    App,
    BadRequest,
    BadValue,
    Client,
    Context,
    NotAuthenticated,
    OutcomeUnknown,
    RunNotFound,
    ServerFailed,
    Signal,
    StoreRefused,
    Topic,
    Unreachable,
)
from perdure.client import transport
from perdure.http import Token, create_app, streaming
from perdure.http.problems import CONTENT_TYPE, problem_of

go = Signal("go", int)
arrived = Topic("stock.arrived", int)


def shop() -> App:
    app = App("memory://")
    app.add(arrived)

    @app.workflow(signals=[go])
    async def wait(ctx: Context) -> int:
        return await ctx.wait(go)

    return app


@contextmanager
def kept_port() -> Iterator[int]:
    """Bound and deaf: nobody else is given it, and whoever asks there is refused."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


class Place:
    """An address at which a server may be, or not."""

    def __init__(self, app: App, port: int) -> None:
        self.app, self.port = app, port
        self._api = create_app(app, tokens=())
        self.answers_by_others = 0  # so many requests are answered by something between
        self.asked = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        config = uvicorn.Config(
            self._between, interface="asgi3", port=self.port, log_level="critical", lifespan="off"
        )
        listening = config.bind_socket()
        listening.listen()
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve([listening]))
        try:
            yield
        finally:
            server.should_exit = server.force_exit = True
            for connection in list(server.server_state.connections):
                connection.transport.abort()  # as when the process is killed
            await task

    async def _between(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.set()
        if not self.answers_by_others:
            return await self._api(scope, receive, send)
        self.answers_by_others -= 1
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 502, "headers": headers})
        await send({"type": "http.response.body", "body": b"<html>bad gateway</html>"})


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    with kept_port() as port:
        async with shop() as app:
            yield Place(app, port)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_again_s", 0.01)
    monkeypatch.setattr(transport, "_again_s_max", 0.05)


async def test_who_follows_goes_on_where_it_was(place: Place) -> None:
    async with Client(place.url) as client:
        told: asyncio.Queue[int] = asyncio.Queue()

        async def follow() -> None:
            async for event in client.follow("stock.*", after=0):
                told.put_nowait(event.payload)  # type: ignore[union-attr]

        async with place.open():
            task = asyncio.create_task(follow())
            await place.app.emit(arrived, 0)
            assert await told.get() == 0
        await place.app.emit(arrived, 1)
        place.answers_by_others = 3
        async with place.open():
            await place.app.emit(arrived, 2)
            assert [await told.get() for _ in range(2)] == [1, 2]
            task.cancel()
        assert told.empty()


async def test_who_wants_little_goes_on_behind_what_was_passed_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_passed_over_s", 0.0)
    places: asyncio.Queue[int] = asyncio.Queue()
    async with Client(place.url) as client:
        messages = client._messages

        async def noted(*args: Any) -> AsyncIterator[tuple[str, bytes]]:
            async with aclosing(messages(*args)) as found:
                async for name, data in found:
                    if name == "position":
                        places.put_nowait(json.loads(data)["value"])
                    yield name, data

        monkeypatch.setattr(client, "_messages", noted)
        events = client.follow("stock.*", after=0)
        async with place.open():
            await place.app.emit(arrived, 0)
            first = await anext(events)
            following = asyncio.create_task(anext(events))
            await place.app.emit_many([("noise", count) for count in range(30)])
            newest = (await place.app.events())[-1].position
            while await places.get() != newest:
                pass
        await place.app.trim_ledger(keep=5, force=True)
        async with place.open():
            await place.app.emit(arrived, 1)
            second = await following
        assert (first.payload, second.payload) == (0, 1)  # type: ignore[union-attr]


async def test_a_result_is_waited_for_across_a_restart(place: Place) -> None:
    async with Client(place.url) as client:
        await place.app.start("wait", id="one")
        async with place.open():
            task = asyncio.create_task(client.run("one").result(timeout="30s"))
            async with httpx2.AsyncClient() as http:  # so it has been asked for by now
                await http.get(f"{place.url}/health")
        place.answers_by_others = 2
        async with place.open():
            await place.app.signal("one", go, 5)
            assert await task == 5


def missed(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[Unreachable]:
    """Each time that a client does not find its server."""
    found: asyncio.Queue[Unreachable] = asyncio.Queue()
    unreachable = transport.Transport._unreachable

    def told(self: transport.Transport, error: Exception) -> Unreachable:
        found.put_nowait(unreachable(self, error))
        return unreachable(self, error)

    monkeypatch.setattr(transport.Transport, "_unreachable", told)
    return found


async def test_a_server_that_is_killed_while_it_holds_the_first_request_is_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    misses = missed(monkeypatch)
    async with Client(place.url) as client:
        await place.app.start("wait", id="one")
        async with place.open():
            task = asyncio.create_task(client.run("one").result(timeout="30s"))
            await place.asked.wait()
        assert (await misses.get()).sent
        assert [(await misses.get()).sent for _ in range(3)] == [False] * 3
        async with place.open():
            await place.app.signal("one", go, 5)
            assert await task == 5


async def test_a_server_that_has_answered_the_client_before_is_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    misses = missed(monkeypatch)
    async with Client(place.url) as client:
        async with place.open():
            run = await client.start("wait", id="one")
        task = asyncio.create_task(run.result(timeout="30s"))
        await misses.get()
        async with place.open():
            await place.app.signal("one", go, 5)
            assert await task == 5


class Between:
    """Something between the client and a server: it answers what it is told to, each after so long."""

    def __init__(self, *answers: tuple[int, str]) -> None:
        self._answers = iter(answers)
        self.held_s = 0.0
        self.asked = 0

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        await asyncio.sleep(self.held_s)
        status, text = next(self._answers)
        ours = "application/json" if status == 200 else CONTENT_TYPE
        kind = ours if text.startswith("{") else "text/html"
        return httpx2.Response(status, text=text, headers={"content-type": kind})

    def client(self) -> Client:
        return Client("http://localhost", transport=httpx2.MockTransport(self))


RUNNING = '{"id": "one", "status": "waiting", "ended": false}'
ENDED = '{"id": "one", "status": "completed", "ended": true, "output": 5}'


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_proxy_that_loses_its_server_in_the_midst_is_asked_again(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_held_s_min", 0.05)
    between = Between((status, "gone"), (502, "gone"), (200, ENDED))
    between.held_s = 0.1
    async with between.client() as client:
        assert await client.run("one").result(timeout="30s") == 5


async def test_a_proxy_that_finds_no_server_at_all_is_believed_at_once() -> None:
    async with Between((502, "gone"), (200, ENDED)).client() as client:
        with pytest.raises(ServerFailed, match="502"):
            await client.run("one").result(timeout="30s")


async def test_a_server_that_is_about_to_stop_is_not_hammered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It no longer holds what it is asked, and answers at once that there is nothing yet."""
    monkeypatch.setattr(transport, "_again_s", 0.1)
    between = Between(*[(200, RUNNING)] * 1000)
    async with between.client() as client:
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.5s"):
            await client.run("one").result(timeout="0.5s")
    assert 2 <= between.asked <= 7


async def test_to_wait_for_a_server_takes_no_longer_than_was_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_again_s", 60.0)
    monkeypatch.setattr(transport, "_held_s_min", 0.0)
    async with asyncio.timeout(20), Between(*[(502, "gone")] * 9).client() as client:
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.2s"):
            await client.run("one").result(timeout="0.2s")


async def test_a_store_that_somebody_has_to_see_to_is_not_waited_for() -> None:
    refused = json.dumps(msgspec.to_builtins(problem_of(StoreRefused("the disk is full"))))
    async with Between((200, RUNNING), (503, refused)).client() as client:
        with pytest.raises(StoreRefused, match="disk is full"):
            await client.run("one").result(timeout="30s")


async def test_a_server_that_was_never_there_is_told_at_once(place: Place) -> None:
    async with Client(place.url) as client:
        with pytest.raises(Unreachable, match="nothing was sent"):
            await anext(client.follow())
        with pytest.raises(Unreachable, match="nothing was sent"):
            await client.run("one").result()


async def test_a_server_that_stays_away_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_away_s_max", 0.1)
    async with Client(place.url) as client:
        await place.app.emit(arrived, 0)
        async with place.open():
            events = client.follow(after=0)
            await anext(events)
        with pytest.raises(Unreachable):
            await anext(events)


async def test_what_will_not_change_is_not_asked_for_again() -> None:
    token = Token.of("a-token-of-these-tests-long-enough", name="one", scopes=["read"])
    async with shop() as app:
        local = httpx2.ASGITransport(create_app(app, tokens=[token]), client=("127.0.0.1", 1))
        async with Client("http://localhost", "x" * 30, transport=local) as client:
            with pytest.raises(NotAuthenticated):
                await anext(client.follow())
            with pytest.raises(NotAuthenticated):
                await client.run("one").result()
        local = httpx2.ASGITransport(create_app(app, tokens=[]), client=("127.0.0.1", 1))
        async with Client("http://localhost", transport=local) as client:
            with pytest.raises(RunNotFound):
                await client.run("one").result()


async def test_a_page_of_something_between_is_no_stream() -> None:
    def page(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, text="<html>sign in</html>", headers={"content-type": "text/html"}
        )

    async with Client("http://localhost", transport=httpx2.MockTransport(page)) as client:
        with pytest.raises(BadRequest, match="text/html"):
            await anext(client.follow())


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_write_that_something_between_has_lost_is_not_said_to_be_refused(
    status: int,
) -> None:
    def lost(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, text="<html>oops</html>")

    async with Client("http://localhost", transport=httpx2.MockTransport(lost)) as client:
        with pytest.raises(OutcomeUnknown, match="same key"):
            await client.emit("a.b")


async def test_many_results_are_waited_for_at_once(place: Place) -> None:
    """Each is a request that is held: none may wait for the connection of another until it gives up."""
    async with Client(place.url, timeout="10s") as client:
        runs = [await place.app.start("wait", id=f"r{count}") for count in range(150)]
        async with place.open():
            waiting = [asyncio.create_task(client.run(run.id).result()) for run in runs]
            await place.app.signal("r149", go, 7)
            assert await waiting[-1] == 7
            await place.app.signal_many([(f"r{count}", go, count) for count in range(149)])
            assert (await asyncio.gather(*waiting))[:149] == list(range(149))


def test_no_password_is_shown() -> None:
    with pytest.raises(BadValue, match="token") as refused:
        Client("https://anna:sekret@shop.example/perdure", "x" * 30)
    assert "sekret" not in str(refused.value)
    for token in ("sekret\n", "sekret é", ""):
        with pytest.raises(BadValue, match="token") as refused:
            Client("https://shop.example", token)
        assert "sekret" not in str(refused.value)
    assert "x" * 30 not in repr(Client("https://shop.example/a@b", "x" * 30))
