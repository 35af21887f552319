"""Webhooks that go out: in order, signed, tried again, parked, paused; and nothing secret in what is told of it."""

import asyncio
import base64
import logging
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from receiver import Receiver, answer, hang_up
from standardwebhooks import Webhook, WebhookVerificationError

from perdure import App, BadValue, Conflict, Retry, WebhooksUnavailable
from perdure.ledger.cloudevents import from_json
from perdure.model import limits
from perdure.testing import VirtualClock
from perdure.webhooks import signing
from perdure.webhooks.outgoing import webhook_def

SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two bytes length").decode()
OLDER = "whsec_" + base64.b64encode(b"another key of 32 bytes in length").decode()
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

all_stores = pytest.mark.parametrize(
    "world", ["memory", "sqlite", "postgres", "redis"], indirect=True
)


def declare(app: App, receiver: Receiver, *patterns: str, **options: Any) -> None:
    options = {"secret": SECRET, "allow_private": True, **options}
    app.webhook("billing", receiver.url, *(patterns or ("order.*",)), **options)


async def row(w: Any) -> Any:
    return next(one for one in await w.app.consumers() if one.name == "webhook.billing")


async def parked(w: Any) -> list[Any]:
    return list(await w.app.parked("webhook.billing"))


@all_stores
async def test_events_are_posted_in_order_and_signed(
    world: Any, app: App, receiver: Receiver
) -> None:
    world.clock = VirtualClock(datetime.now(UTC))  # the reference asks the system what time it is
    declare(app, receiver, "order.*", "invoice.paid", headers={"Authorization": "Bearer sesame"})
    async with world(app) as w:
        first = await w.emit_only("order.paid", {"n": 1}, entity="order/42", trace=TRACE)
        await w.emit_only("order.shipped", {"n": 2}, key="k")
        await w.emit_only("cart.emptied", {"n": 3})
        await w.emit("invoice.paid", {"n": 4})
        assert receiver.payloads == [{"n": 1}, {"n": 2}, {"n": 4}]
        assert (await row(w)).lag == 0
    delivery = receiver.deliveries[0]
    assert delivery.line == "POST /hook?token=sesame-open HTTP/1.1"
    assert delivery.headers["webhook-id"] == first.event_id == delivery.body["id"]
    assert delivery.headers["content-type"] == "application/cloudevents+json"
    assert delivery.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert delivery.headers["authorization"] == "Bearer sesame"
    assert delivery.headers["user-agent"].startswith("perdure")
    assert delivery.headers["traceparent"] == TRACE
    assert "traceparent" not in receiver.deliveries[1].headers
    for one in receiver.deliveries:
        assert Webhook(SECRET).verify(one.raw, one.headers) == one.body
        with pytest.raises(WebhookVerificationError):
            Webhook(OLDER).verify(one.raw, one.headers)
    (fact,) = from_json(delivery.raw)
    assert (fact.topic, fact.payload, fact.entity) == ("order.paid", {"n": 1}, "order/42")
    assert receiver.connections == 1  # one after the other needs no more


async def test_a_webhook_begins_where_it_is_told_to(
    world: Any, app: App, receiver: Receiver
) -> None:
    async with world(app) as w:
        await w.emit("order.paid", 1)
    declare(app, receiver)
    app.webhook(
        "all", receiver.url, "order.*", secret=SECRET, allow_private=True, start="beginning"
    )
    async with world(app) as w:
        await w.emit("order.paid", 2)
    assert sorted(receiver.payloads) == [1, 2, 2]


@all_stores
async def test_a_delivery_is_tried_again_under_the_same_id_and_what_follows_waits(
    world: Any, app: App, receiver: Receiver
) -> None:
    receiver.answers = [answer(500), hang_up, answer(429), answer(408), answer(200, "ok")]
    declare(app, receiver, retry=Retry(attempts=5, backoff="10s", factor=1, jitter=0))
    async with world(app) as w:
        await w.emit_only("order.paid", 1)
        await w.emit("order.paid", 2)
        assert receiver.payloads == [1]
        assert "answered 500" in (await row(w)).error
        await w.advance("9s")
        assert receiver.payloads == [1]
        await w.advance("1s")
        assert receiver.payloads == [1, 1]
        await w.advance("20s")
        assert receiver.payloads == [1, 1, 1, 1]
        await w.advance("10s")
        assert receiver.payloads == [1, 1, 1, 1, 1, 2]
        assert (await row(w)).error is None
        assert await parked(w) == []
    ids = [one.headers["webhook-id"] for one in receiver.deliveries]
    assert len(set(ids[:5])) == 1 and ids[5] not in ids[:5]
    times = [int(one.headers["webhook-timestamp"]) for one in receiver.deliveries]
    assert [one - times[0] for one in times] == [0, 10, 20, 30, 40, 40]  # each try is signed anew


@all_stores
async def test_what_a_receiver_does_not_take_is_parked_at_once_and_can_be_fired_anew(
    world: Any, app: App, receiver: Receiver
) -> None:
    receiver.answers = [answer(400, "no such\n  order")]
    declare(app, receiver)
    async with world(app) as w:
        await w.emit_only("order.paid", 1)
        await w.emit("order.paid", 2)
        assert receiver.payloads == [1, 2]
        (one,) = await parked(w)
        assert one.attempts == 1
        expected = f"NotAccepted: http://127.0.0.1:{receiver.port} answered 400: no such order"
        assert one.reason == expected
        receiver.answers = [answer(404)]
        assert not await w.app.refire("webhook.billing", one.position)
        assert "answered 404" in (await parked(w))[0].reason
        assert await w.app.refire("webhook.billing", one.position)
        assert await parked(w) == []
        assert receiver.payloads == [1, 2, 1, 1]
        assert receiver.deliveries[0].headers["webhook-id"] == one.event_id
        assert receiver.deliveries[3].headers["webhook-id"] == one.event_id


async def test_when_all_tries_are_used_up_it_is_parked_and_the_next_one_goes(
    world: Any, app: App, receiver: Receiver
) -> None:
    receiver.answers = [answer(503), answer(502), answer(500)]
    declare(app, receiver, retry=Retry(attempts=3))
    async with world(app) as w:
        await w.emit_only("order.paid", 1)
        await w.emit("order.paid", 2)
        await w.advance("1m")
        assert receiver.payloads == [1, 1, 1, 2]
        (one,) = await parked(w)
        assert (one.attempts, one.event_id) == (3, receiver.deliveries[0].headers["webhook-id"])
        assert "answered 500" in one.reason


async def test_nobody_listens(world: Any, app: App) -> None:
    async with Receiver() as receiver:
        pass  # closed again
    declare(app, receiver, retry=Retry(attempts=2))
    async with world(app) as w:
        await w.emit("order.paid", 1)
        await w.advance("1m")
        (one,) = await parked(w)
        assert "ConnectError" in one.reason and one.attempts == 2


@all_stores
async def test_gone_pauses_the_webhook_until_it_is_resumed(
    world: Any, app: App, receiver: Receiver
) -> None:
    receiver.answers = [answer(200), answer(410, "moved away")]
    declare(app, receiver)
    async with world(app) as w:
        for n in (1, 2, 3):
            await w.emit_only("order.paid", n)
        await w.settle()
        await w.advance("1h")
        assert receiver.payloads == [1, 2]
        stopped = await row(w)
        assert stopped.paused and stopped.lag == 2
        assert "answered 410: moved away" in stopped.reason
        assert await parked(w) == []
        await w.app.resume_consumer("webhook.billing")
        await w.settle()
        assert receiver.payloads == [1, 2, 2, 3]


# --- when to try again ---


@pytest.mark.parametrize(
    ("status", "said", "wait_s"),
    [
        (429, "30", 30),
        (503, "45", 45),
        (503, "in a minute", 2),  # as the policy says
        (503, "0", 2),
        (503, "-5", 2),
        (500, "30", 2),
        (429, "99999999", limits.webhook_retry_after_us_max // 1_000_000),
        (429, "9" * 400, 2),
    ],
)
async def test_a_receiver_may_put_off_the_next_try(
    world: Any, app: App, receiver: Receiver, status: int, said: str, wait_s: int
) -> None:
    receiver.answers = [answer(status, retry_after=said)]
    declare(app, receiver, retry=Retry(attempts=2, backoff="2s", jitter=0))
    async with world(app) as w:
        await w.emit("order.paid", 1)
        await w.advance(wait_s - 1)
        assert len(receiver.deliveries) == 1
        await w.advance(1)
        assert len(receiver.deliveries) == 2


async def test_until_a_date_as_well(world: Any, app: App, receiver: Receiver) -> None:
    until = world.clock.moment + timedelta(seconds=90)
    receiver.answers = [answer(503, retry_after=format_datetime(until, usegmt=True))]
    declare(app, receiver)
    async with world(app) as w:
        await w.emit("order.paid", 1)
        await w.advance("89s")
        assert len(receiver.deliveries) == 1
        await w.advance("1s")
        assert len(receiver.deliveries) == 2


# --- odd answers ---


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(
    world: Any, app: App, receiver: Receiver, status: int
) -> None:
    async with Receiver() as elsewhere:
        receiver.answers = [answer(status, location=elsewhere.url)]
        declare(app, receiver)
        async with world(app) as w:
            await w.emit("order.paid", 1)
            (one,) = await parked(w)
            assert f"answered {status}, a redirect, which is not followed" in one.reason
            assert elsewhere.url not in one.reason
        assert elsewhere.connections == 0


async def test_of_a_huge_answer_only_a_part_is_read_and_told(
    world: Any, app: App, receiver: Receiver
) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 x\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()  # ends when the other side hangs up

    receiver.answers = [endless]
    declare(app, receiver)
    async with world(app) as w:
        await w.emit_only("order.paid", 1)
        await w.emit("order.paid", 2)
        (one,) = await parked(w)
        assert one.reason.endswith("x…")
        assert len(one.reason) < limits.webhook_response_chars_shown + 100
        assert receiver.payloads == [1, 2]
    assert receiver.connections == 2  # the one that was cut off is not used again


async def test_a_receiver_that_never_answers_costs_its_timeout_and_no_more(
    world: Any, app: App, receiver: Receiver
) -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    receiver.answers = [silent]
    declare(app, receiver, timeout=0.05, retry=Retry(attempts=1))
    async with world(app) as w:
        await w.emit_only("order.paid", 1)
        await w.emit("order.paid", 2)
        (one,) = await parked(w)
        assert "no answer within 0.05 s" in one.reason
        assert receiver.payloads == [1, 2]


async def test_once_the_status_is_there_it_counts(world: Any, app: App, receiver: Receiver) -> None:
    async def stalls(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 x\r\ncontent-length: 10\r\n\r\nok")
        await asyncio.Event().wait()

    async def breaks(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 x\r\ncontent-length: 10\r\n\r\nok")
        writer.close()

    receiver.answers = [stalls, breaks]
    declare(app, receiver, timeout=0.05, retry=Retry(attempts=1))
    async with world(app) as w:
        await w.emit_only("order.paid", 1)
        await w.emit("order.paid", 2)
        assert await parked(w) == []
        assert receiver.payloads == [1, 2]


async def test_something_else_than_http(world: Any, app: App, receiver: Receiver) -> None:
    receiver.answers = [b"220 mail.example.com ESMTP\r\n\r\n"]
    declare(app, receiver, retry=Retry(attempts=1))
    async with world(app) as w:
        await w.emit("order.paid", 1)
        assert "does not speak HTTP" in (await parked(w))[0].reason


# --- what is chosen and how it looks ---


async def test_while_secrets_change_all_of_them_sign(
    world: Any, app: App, receiver: Receiver
) -> None:
    world.clock = VirtualClock(datetime.now(UTC))
    declare(app, receiver, secret=[SECRET, OLDER])
    async with world(app) as w:
        await w.emit("order.paid", {})
    (one,) = receiver.deliveries
    assert len(one.headers["webhook-signature"].split(" ")) == 2
    for secret in (SECRET, OLDER):
        Webhook(secret).verify(one.raw, one.headers)


@pytest.mark.parametrize("where", ["payload.n > 1", lambda event: event.payload["n"] > 1])
async def test_only_what_the_filter_lets_through(
    world: Any, app: App, receiver: Receiver, where: Any
) -> None:
    declare(app, receiver, where=where)
    async with world(app) as w:
        for n in (1, 2, 0, 3):
            await w.emit_only("order.paid", {"n": n})
        await w.settle()
        assert receiver.payloads == [{"n": 2}, {"n": 3}]
        assert (await row(w)).lag == 0 and await parked(w) == []


async def test_an_event_that_the_filter_fails_on_is_parked_and_asked_about_again(
    world: Any, app: App, receiver: Receiver
) -> None:
    broken = [True]

    def where(event: Any) -> bool:
        if event.payload == 1 and broken:
            raise LookupError("no rates today")
        return bool(event.payload != 1)

    declare(app, receiver, where=where)
    async with world(app) as w:
        await w.emit_only("order.paid", 1)
        await w.emit("order.paid", 2)
        (one,) = await parked(w)
        assert one.reason == "where: LookupError: no rates today" and one.attempts == 1
        broken.clear()
        assert await w.app.refire("webhook.billing", one.position)  # which lets it go: unwanted
        assert await parked(w) == [] and receiver.payloads == [2]


async def test_the_other_envelope(world: Any, app: App, receiver: Receiver) -> None:
    declare(app, receiver, envelope="standard")
    async with world(app) as w:
        await w.emit("order.paid", {"n": 1})
        now = w.clock.moment.isoformat()
    (one,) = receiver.deliveries
    assert one.headers["content-type"] == "application/json"
    assert one.body == {"type": "order.paid", "timestamp": now, "data": {"n": 1}}


# --- the life of a consumer ---


@all_stores
async def test_a_crash_while_one_is_under_way_sends_that_one_again_and_no_other(
    world: Any, app: App, receiver: Receiver
) -> None:
    reached = asyncio.Event()

    async def dies(writer: asyncio.StreamWriter) -> None:
        reached.set()
        await asyncio.Event().wait()

    receiver.answers = [answer(200), dies]
    declare(app, receiver)
    w = await world(app).__aenter__()
    for n in (1, 2, 3):
        await w.emit_only("order.paid", n)
    await reached.wait()
    closing = w.app._engine().desk.outside
    await w.crash()
    await closing.close()  # what the system does for a process that has died
    async with world(app) as w:
        await w.settle()
        assert receiver.payloads == [1, 2, 2, 3]
    ids = [one.headers["webhook-id"] for one in receiver.deliveries]
    assert ids[1] == ids[2]


async def test_rewound_and_replayed_it_sends_again(
    world: Any, app: App, receiver: Receiver
) -> None:
    declare(app, receiver, where="payload != 2")
    async with world(app) as w:
        for n in (1, 2, 3):
            await w.emit_only("order.paid", n)
        await w.settle()
        await w.app.rewind("webhook.billing", "beginning")
        await w.settle()
        assert receiver.payloads == [1, 3, 1, 3]
        await w.app.replay("webhook.billing", pattern="order.*", dry_run=False)
        assert receiver.payloads == [1, 3, 1, 3, 1, 3]


async def test_connections_end_with_the_app(world: Any, app: App, receiver: Receiver) -> None:
    declare(app, receiver)
    async with world(app) as w:
        await w.emit("order.paid", 1)
        assert receiver.open == 1
    await receiver.all_closed.wait()


async def test_a_delivery_under_way_does_not_keep_the_app_open(
    world: Any, app: App, receiver: Receiver
) -> None:
    reached = asyncio.Event()

    async def silent(writer: asyncio.StreamWriter) -> None:
        reached.set()
        await asyncio.Event().wait()

    receiver.answers = [silent]
    declare(app, receiver, timeout="5m")
    async with world(app) as w:
        await w.emit_only("order.paid", 1)
        await reached.wait()
    async with world(app) as w:
        await w.settle()
        assert receiver.payloads == [1, 1]
        assert await parked(w) == []


# --- secrets ---


async def test_no_secret_is_told_anywhere(
    world: Any, app: App, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bearer = "Bearer opensesame-123"
    echo = f"you sent {SECRET} and {bearer} to /hook?token=sesame-open"
    receiver.answers = [answer(500, echo), hang_up, answer(400, echo), answer(410, echo)]
    declare(app, receiver, headers={"authorization": bearer}, retry=Retry(attempts=3, backoff="1s"))
    async with world(app) as w:
        await w.emit_only("order.paid", 1)
        await w.emit("order.paid", 2)
        told = [(await row(w)).error]
        await w.advance("1m")
        told += [one.reason for one in await parked(w)]
        told += [(await row(w)).error, repr(await row(w)), repr(await w.app.health())]
    told += [repr(one) for one in app.readers.consumers.values()]
    told += [f"{one.getMessage()} {one.exc_text}" for one in caplog.records]
    assert len([one for one in told if one and "you sent" in one]) > 3
    assert len(receiver.deliveries) == 4
    for one in (SECRET, SECRET.removeprefix("whsec_"), "opensesame", "sesame-open"):
        assert one not in " ".join(map(str, told)), one


def test_a_secret_in_the_address_is_hidden_as_its_receiver_reads_it() -> None:
    sender = webhook_def(
        "w", "https://example.com/h?token=open%2Dsesame", ["a"], secret=SECRET, where=None,
        retry=None, timeout="1s", headers=None, start="now", allow_private=False, insecure=False,
        envelope="standard",
    ).handler.__self__  # type: ignore[attr-defined]  # fmt: skip
    assert sender._plain("no token open-sesame, nor open%2Dsesame") == "no token …, nor …"


# --- declarations ---

OPEN = "https://example.com/hook"
BAD = {
    "no secret": {"secret": None},
    "no secrets": {"secret": []},
    "a plain word": {"secret": "correct horse battery staple"},
    "no base64": {"secret": "whsec_!!!!!!!!!!!!!!!!!!!!!!!!!!!!"},
    "a short secret": {"secret": "whsec_" + base64.b64encode(b"short").decode()},
    "too many secrets": {"secret": [SECRET] * 9},
    "a number as secret": {"secret": [7]},
    "no function": {"where": 7},
    "bad CEL": {"where": "payload..n"},
    "a coroutine function": {"where": asyncio.sleep},
    "no policy": {"retry": 3},
    "no time": {"timeout": 0},
    "too long a time": {"timeout": "6m"},
    "no headers": {"headers": ["a: b"]},
    "our header": {"headers": {"Webhook-ID": "x"}},
    "the host": {"headers": {"host": "internal"}},
    "a header over lines": {"headers": {"x": "a\r\nhost: internal"}},
    "a name over lines": {"headers": {"x\r\nhost": "a"}},
    "a number as header": {"headers": {"x": 7}},
    "a long header": {"headers": {"x": "a" * 5000}},
    "many headers": {"headers": {f"x{n}": "a" for n in range(33)}},
    "no beginning": {"start": "soon"},
    "no envelope": {"envelope": "xml"},
    "no flag": {"insecure": "yes"},
    "no list": {"allow_private": "10.0.0.0/8"},
    "no network": {"allow_private": ["10.0.0.1/8"]},
    "no host": {"allow_private": ["bad host"]},
    "no text": {"allow_private": [10]},
    "a long list": {"allow_private": ["10.0.0.0/8"] * 65},
}


@pytest.mark.parametrize("options", BAD.values(), ids=BAD)
def test_a_bad_declaration_is_refused_and_repeats_no_secret(
    app: App, options: dict[str, Any]
) -> None:
    with pytest.raises((BadValue, ValueError)) as caught:
        app.webhook("billing", OPEN, "order.*", **{"secret": SECRET, **options})
    assert "horse" not in str(caught.value) and "whsec_!" not in str(caught.value)
    assert app.readers.consumers == {}


def test_names_and_patterns(app: App) -> None:
    for name in ("", "a/b", 7):
        with pytest.raises(BadValue):
            app.webhook(name, OPEN, "order.*", secret=SECRET)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="reads nothing"):
        app.webhook("billing", OPEN, secret=SECRET)
    app.webhook("billing", OPEN, "order.*", secret=SECRET)
    with pytest.raises(Conflict):
        app.webhook("billing", OPEN, "order.*", secret=SECRET)


async def test_it_is_declared_before_the_app_is_open(world: Any, app: App) -> None:
    async with world(app) as w:
        with pytest.raises(BadValue, match="too late"):
            w.app.webhook("billing", OPEN, "order.*", secret=SECRET)


@pytest.mark.parametrize("package", ["standardwebhooks", "httpcore2"])
def test_what_to_install_is_said_where_it_is_declared(
    app: App, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "perdure.webhooks.wire", raising=False)
    signing.reference.cache_clear()
    with pytest.raises(WebhooksUnavailable, match=r"pip install 'perdure\[webhooks\]'"):
        app.webhook("billing", OPEN, "order.*", secret=SECRET)
    signing.reference.cache_clear()
    assert app.readers.consumers == {}
