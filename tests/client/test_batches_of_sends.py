"""Many sends over HTTP: each has its own answer and none spoils another, however many requests it takes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from perdure import (
    App,
    BadRequest,
    BadValue,
    Buffered,
    Client,
    Context,
    Emitted,
    Fact,
    InvalidPayload,
    NotAuthenticated,
    OutcomeUnknown,
    Refused,
    ScopeMissing,
    Signal,
    SyncClient,
    Topic,
    Unreachable,
)
from perdure.http import Token, create_app
from perdure.model import limits

note = Signal("note", buffer="all")
approve = Signal("approve", bool)
arrived = Topic("stock.arrived", int)


class Counting(httpx2.ASGITransport):
    """In-process, and tells how large the bodies were."""

    def __init__(self, app: App, **options: Any) -> None:
        options.setdefault("tokens", ())
        super().__init__(create_app(app, **options), client=("127.0.0.1", 1))
        self.sizes: list[int] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sizes.append(len(request.content))
        return await super().handle_async_request(request)


class Both:
    def __init__(self, app: App, client: Client, sizes: list[int]) -> None:
        self.app, self.client, self.sizes = app, client, sizes


def shop() -> App:
    app = App("memory://", worker=False)
    app.add(arrived)

    @app.workflow(signals=[note, approve])
    async def wait(ctx: Context) -> None:
        await ctx.wait(approve)

    return app


@pytest.fixture
async def both() -> AsyncIterator[Both]:
    app = shop()
    transport = Counting(app)
    async with app, Client("http://localhost", transport=transport) as client:
        await app.start("wait", id="w")
        yield Both(app, client, transport.sizes)


# --- none spoils another --------------------------------------------------------------------------

EVENTS: list[tuple[Any, type[Exception] | None]] = [
    (("a.b", 1), None),
    (("a.b", object()), InvalidPayload),
    (("a.b", float("nan")), InvalidPayload),
    ((arrived, "three"), InvalidPayload),
    (("stock.arrived", "three"), InvalidPayload),
    (("bad topic!", 1), BadValue),
    ((5, 1), BadValue),
    ((object(), 1), BadValue),
    (Fact(topic="a.b", entity=5), BadValue),  # type: ignore[arg-type]
    (Fact(topic="a.b", entity="sku/\ud800"), BadValue),
    (Fact(topic="a.b", entity="sku/" + "x" * 5_000_000), BadValue),
    (Fact(topic="a.b", occurred_at="yesterday"), BadValue),  # type: ignore[arg-type]
    (Fact(topic="a.b", caused_by=1), BadValue),  # type: ignore[arg-type]
    (Fact(topic="a.b", event_id="mine"), BadValue),
    ("a.b", BadValue),
    (None, BadValue),
    (("a.b", 2, "sku/7"), None),
]
SENDS: list[tuple[Any, type[Exception] | None]] = [
    (("w", note, 1), None),
    (("w", approve, "perhaps"), InvalidPayload),
    (("w", "approve", "perhaps"), InvalidPayload),
    (("w", note, object()), InvalidPayload),
    ((5, note, 1), BadValue),
    (("w", 5, 1), BadValue),
    (("w", object(), 1), BadValue),
    (("w\ud800", note, 1), BadValue),
    (("w", note), BadValue),
    ("w", BadValue),
    (("w", note, 2), None),
]


@pytest.mark.parametrize("whose", ["app", "client"])
async def test_what_is_wrong_with_one_is_its_own_answer(both: Both, whose: str) -> None:
    one: Any = getattr(both, whose)
    for verb, cases, good in (("emit_many", EVENTS, Emitted), ("signal_many", SENDS, Buffered)):
        told = await getattr(one, verb)([given for given, _ in cases])
        kinds = [type(each.error) if isinstance(each, Refused) else type(each) for each in told]
        assert kinds == [error or good for _, error in cases]
        with pytest.raises(BadValue, match="are not several"):
            await getattr(one, verb)(7)
        assert await getattr(one, verb)([]) == []
    assert [event.payload for event in await both.app.events("a.b")] == [1, 2]
    assert [signal.payload for signal in await both.app.buffered("w")] == [1, 2]


async def test_what_is_refused_here_is_not_quoted(both: Both) -> None:
    (told,) = await both.client.emit_many([Fact(topic="a.b", payload="s3cret", entity=5)])  # type: ignore[arg-type]
    assert isinstance(told, Refused)
    assert "entity" in str(told.error) and "s3cret" not in str(told.error)


async def test_a_batch_that_is_all_wrong_asks_nothing(both: Both) -> None:
    told = await both.client.emit_many([("a.b", object())] * 3)
    assert [type(one) for one in told] == [Refused] * 3
    assert both.sizes == []


# --- in parts -------------------------------------------------------------------------------------


async def test_a_batch_goes_in_parts_that_the_server_takes(both: Both) -> None:
    """By number, by bytes and by values; in their order."""
    large, many = "x" * 1_000_000, [0] * 90_000
    events = [("c.d", ix) for ix in range(1_000)] + [("c.d", large)] * 20 + [("c.d", many)] * 25
    told = await both.client.emit_many(events)
    assert [type(one) for one in told] == [Emitted] * len(events)
    positions = [one.position for one in told if isinstance(one, Emitted)]
    assert positions == sorted(positions)
    assert len(both.sizes) < 12 and max(both.sizes) <= limits.http_body_bytes_max
    event = await both.app.event(told[7].event_id)  # type: ignore[union-attr]
    assert event is not None and event.payload == 7


async def test_signals_go_in_parts_too(both: Both) -> None:
    sends = [("w", note, "x" * 500_000)] * 10 + [("nobody", note, ix) for ix in range(1_500)]
    told = await both.client.signal_many(sends)
    assert [type(one).__name__ for one in told] == ["Buffered"] * 10 + ["NotFound"] * 1_500
    assert len(both.sizes) == 3


# --- when a part fails ----------------------------------------------------------------------------

Said = Callable[[httpx2.Request], httpx2.Response]


def done(request: httpx2.Request) -> httpx2.Response:
    events = json.loads(request.content)["events"]
    items = [
        {"outcome": "emitted", "event_id": "e", "position": 1, "resumed": 0, "more": False}
        for _ in events
    ]
    return httpx2.Response(200, json={"items": items, "cursor": None})


def lose(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ReadError("gone")


def refuse(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("refused")


def too_large(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(413, text="<html>too large</html>")


def late(request: httpx2.Request) -> httpx2.Response:
    facts = {"reason": "late", "status": 504}
    problem = {"type": "", "title": "", "status": 504, "detail": "late", "error": "BadRequest"}
    headers = {"content-type": "application/problem+json"}
    return httpx2.Response(504, content=json.dumps({**problem, "facts": facts}), headers=headers)


def too_few(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, json={"items": [], "cursor": None})


# What is said to three parts, how many of them are sent, and what each of them is told.
PARTS: list[tuple[list[Said], int, list[type]]] = [
    ([done, too_large, done], 3, [Emitted, BadRequest, Emitted]),
    ([too_large, done, done], 3, [BadRequest, Emitted, Emitted]),
    ([done, lose, done], 2, [Emitted, OutcomeUnknown, Unreachable]),
    ([done, late, done], 2, [Emitted, OutcomeUnknown, Unreachable]),
    ([done, too_few, done], 2, [Emitted, OutcomeUnknown, Unreachable]),
    ([done, refuse, done], 2, [Emitted, Unreachable, Unreachable]),
]


@pytest.mark.parametrize(("said", "sent", "told"), PARTS)
async def test_what_becomes_of_a_part_is_told_of_each_in_it(
    said: list[Said], sent: int, told: list[type]
) -> None:
    asked: list[int] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(len(asked))
        return said[asked[-1]](request)

    async with Client("http://localhost", transport=httpx2.MockTransport(answer)) as client:
        events: list[Any] = [("a.b", 1), ("a.b", object()), *[("a.b", 1)] * 2_499]
        answers = await client.emit_many(events)
    kinds = [type(one.error) if isinstance(one, Refused) else type(one) for one in answers]
    assert kinds.pop(1) is InvalidPayload
    assert kinds == [told[0]] * 1_000 + [told[1]] * 1_000 + [told[2]] * 500
    assert len(asked) == sent
    if told[2] is Unreachable:  # and it says so of what was not sent
        assert isinstance(last := answers[-1], Refused) and "nothing was sent" in str(last.error)


@pytest.mark.parametrize(
    ("said", "error"), [(refuse, Unreachable), (lose, OutcomeUnknown), (too_large, BadRequest)]
)
async def test_a_batch_that_nobody_answered_is_raised(said: Said, error: type[Exception]) -> None:
    async with Client("http://localhost", transport=httpx2.MockTransport(said)) as client:
        with pytest.raises(error):
            await client.emit_many([("a.b", 1)] * 1_500)


async def test_who_may_not_send_is_told_once() -> None:
    text = "t" * 32
    app = shop()
    transport = Counting(app, tokens=[Token.of(text, name="reader", scopes=["read"])])
    async with app:
        for token, error in ((text, ScopeMissing), ("x" * 32, NotAuthenticated)):
            async with Client("http://localhost", token, transport=transport) as client:
                with pytest.raises(error):
                    await client.emit_many([("a.b", 1)] * 2_500)
    assert len(transport.sizes) == 2


async def test_without_an_event_loop_too(both: Both) -> None:
    def script() -> list[Any]:
        with SyncClient("http://localhost", transport=httpx2.MockTransport(done)) as client:
            return client.emit_many(("a.b", one) for one in (1, object()))

    told = await asyncio.to_thread(script)
    assert [type(one) for one in told] == [Emitted, Refused]
