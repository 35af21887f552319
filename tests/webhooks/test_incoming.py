"""Hooks: what is signed becomes an event or a signal, once; anything else changes nothing."""

import base64
import hashlib
import hmac
import json
import logging
from dataclasses import dataclass
from typing import Any

import pytest
from standardwebhooks import Webhook
from starlette.datastructures import Headers

from perdure import (
    App,
    BadSignature,
    BadValue,
    Buffered,
    Conflict,
    Context,
    Delivered,
    Duplicate,
    Emitted,
    InvalidPayload,
    RunFinished,
    RunNotFound,
    Signal,
    Topic,
    WebhooksUnavailable,
)
from perdure.model import limits
from perdure.webhooks import Hook, Verified, receive, signing

SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two bytes length").decode()
OLDER = "whsec_" + base64.b64encode(b"another key of 32 bytes in length").decode()
WORDS = "It's a Secret to Everybody"  # as GitHub's own page has it
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

all_stores = pytest.mark.parametrize(
    "world", ["memory", "sqlite", "postgres", "redis"], indirect=True
)


@dataclass
class Approval:
    ok: bool


approval = Signal("approval", Approval)


def signed(
    w: Any, body: Any, id: str = "msg_1", secret: str = SECRET, late_s: int = 0
) -> tuple[bytes, dict[str, str]]:
    """A delivery as a sender makes it, signed so many seconds ago."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    moment = w.clock.moment
    seconds = int(moment.timestamp()) - late_s
    moment = moment.fromtimestamp(seconds, moment.tzinfo)
    signature = Webhook(secret).sign(id, moment, raw.decode())
    return raw, {
        "Webhook-Id": id,
        "Webhook-Timestamp": str(seconds),
        "Webhook-Signature": signature,
    }


def payments(**options: Any) -> Hook:
    given: dict[str, Any] = {
        "secret": SECRET,
        "emit": "payment.received",
        "entity": lambda body: f"order/{body['order']}",
    }
    return Hook("payments", **{**given, **options})


async def told(w: Any) -> list[Any]:
    """All that somebody has told the ledger."""
    return [one for one in await w.app.events() if not one.type.startswith("workflow.")]


# --- events ---


@all_stores
async def test_a_delivery_becomes_an_event_and_a_second_one_is_a_duplicate(
    world: Any, app: App
) -> None:
    async with world(app) as w:
        raw, headers = signed(w, {"order": 42, "amount": 7})
        first = await receive(w.app, payments(), raw, headers)
        assert isinstance(first, Emitted)
        again = await receive(w.app, payments(), *signed(w, {"order": 42, "amount": 7}, late_s=60))
        assert isinstance(again, Duplicate) and again.of == first
        (event,) = await told(w)
        assert (event.type, event.entity) == ("payment.received", "order/42")
        assert event.payload == {"order": 42, "amount": 7} and event.key == "payments/msg_1"
        with pytest.raises(Conflict):
            await receive(w.app, payments(), *signed(w, {"order": 42, "amount": 8}))
        other = Hook("others", secret=SECRET, emit="payment.received")
        assert isinstance(await receive(w.app, other, *signed(w, {"order": 1})), Emitted)
        assert len(await told(w)) == 2


@pytest.mark.parametrize(
    "options",
    [
        {
            "emit": Topic("order.paid", dict[str, int]),
            "entity": lambda body: f"order/{body['order']}",
            "payload": lambda body: {"cents": body["amount"] * 100},
            "where": lambda body: body["amount"] > 5,
        },
        {
            "emit": lambda body, headers: f"order.{headers['x-event']}",
            "entity": lambda body, headers: f"order/{body['order']}",
            "payload": lambda body, headers: {"cents": body["amount"] * 100},
            "where": lambda body, headers: headers["x-event"] == "paid",
        },
        {
            "emit": "order.paid",
            "entity": "'order/' + string(payload.order)",
            "payload": "{'cents': payload.amount * 100}",
            "where": "payload.amount > 5 && type == 'payments' && key == 'msg_1'",
        },
    ],
    ids=["functions", "with headers", "expressions"],
)
async def test_what_a_body_means_is_said_by_functions_or_expressions(
    world: Any, app: App, options: dict[str, Any]
) -> None:
    async with world(app) as w:
        raw, headers = signed(w, {"order": 42, "amount": 7})
        headers |= {"X-Event": "paid", "traceparent": TRACE}
        assert isinstance(await receive(w.app, payments(**options), raw, headers), Emitted)
        (event,) = await told(w)
        assert (event.type, event.entity) == ("order.paid", "order/42")
        assert event.payload == {"cents": 700} and event.trace == TRACE


@pytest.mark.parametrize("where", ["payload.kind == 'paid'", lambda body: "kind" in body])
async def test_what_is_not_wanted_is_left_alone(world: Any, app: App, where: Any) -> None:
    async with world(app) as w:
        assert await receive(w.app, payments(where=where), *signed(w, {"order": 1})) is None
        assert await told(w) == []


async def test_headers_of_a_server_and_odd_traces(world: Any, app: App) -> None:
    async with world(app) as w:
        raw, headers = signed(w, {"order": 1})
        headers["traceparent"] = "who knows"
        await receive(w.app, payments(), raw, Headers(headers))
        assert (await told(w))[0].trace is None


@pytest.mark.parametrize("id", ["x" * 600, "with a\ttab", " "])
async def test_an_odd_id_is_still_one(world: Any, app: App, id: str) -> None:
    async with world(app) as w:
        assert isinstance(await receive(w.app, payments(), *signed(w, {"order": 1}, id)), Emitted)
        again = await receive(w.app, payments(), *signed(w, {"order": 1}, id))
        assert isinstance(again, Duplicate)


# --- signals ---


@all_stores
async def test_a_delivery_becomes_a_signal(world: Any, app: App) -> None:
    @app.workflow(signals=[approval])
    async def order(ctx: Context) -> bool:
        return (await ctx.wait(approval)).ok

    hook = Hook("approve", secret=SECRET, signal=approval, run=lambda body: body["run_id"])
    mapped = Hook(
        *("approve",),
        secret=SECRET,
        signal="approval",
        run="payload.run_id",
        payload="{'ok': payload.ok}",
    )
    async with world(app) as w:
        run = await w.begin(order, id="r1")
        with pytest.raises(InvalidPayload):  # a run_id is no part of an approval
            await receive(
                w.app, Hook("a", secret=SECRET, signal=approval, run="'r1'"), *signed(w, [])
            )
        with pytest.raises(RunNotFound):
            await receive(w.app, mapped, *signed(w, {"run_id": "nobody", "ok": True}))
        body = {"run_id": "r1", "ok": True}
        assert isinstance(await receive(w.app, mapped, *signed(w, body)), Delivered)
        assert await run.result() is True
        assert isinstance(await receive(w.app, mapped, *signed(w, body)), Duplicate)
        with pytest.raises(RunFinished):
            await receive(w.app, mapped, *signed(w, body, "msg_2"))
        await w.app.start(order, id="r2", start_at="1h")
        sent = await receive(w.app, hook, *signed(w, {"run_id": "r2", "ok": False}, "msg_3"))
        assert isinstance(sent, Buffered)


# --- who may ---


def changed(headers: dict[str, str], **others: str | None) -> dict[str, str]:
    headers = {**headers, **{f"Webhook-{name.title()}": value for name, value in others.items()}}
    return {name: value for name, value in headers.items() if value is not None}


BAD_HEADERS: dict[str, dict[str, Any]] = {
    "no id": {"id": None},
    "no time": {"timestamp": None},
    "no signature": {"signature": None},
    "an empty signature": {"signature": ""},
    "another id": {"id": "msg_2"},
    "another version": {"signature": "v1a,AAAA"},
    "no version": {"signature": "AAAA"},
    "not ASCII": {"signature": "v1,\xe4\xf6\xfc"},
    "a time in words": {"timestamp": "now"},
    "a time with a fraction": {"timestamp": "1.5"},
    "a negative time": {"timestamp": "-1"},
    "a time of digits that are none": {"timestamp": "\uff11\uff12\uff13"},
    "endless time": {"timestamp": "9" * 5000},
    "many signatures": {"signature": " ".join(["v1,AAAA"] * 17)},
    "a huge signature": {"signature": "v1," + "A" * 5000},
}


@pytest.mark.parametrize("others", BAD_HEADERS.values(), ids=BAD_HEADERS)
async def test_a_delivery_with_such_headers_is_refused(
    world: Any, app: App, others: dict[str, Any]
) -> None:
    async with world(app) as w:
        raw, headers = signed(w, {"order": 42})
        with pytest.raises(BadSignature) as caught:
            await receive(w.app, payments(), raw, changed(headers, **others))
        assert caught.value.hook == "payments"
        assert await told(w) == []


async def test_a_changed_body_or_another_secret_is_refused(world: Any, app: App) -> None:
    async with world(app) as w:
        raw, headers = signed(w, {"order": 42})
        for tampered in (raw + b" ", raw.replace(b"42", b"43"), b"", b"\xff" + raw):
            with pytest.raises(BadSignature):
                await receive(w.app, payments(), tampered, headers)
        with pytest.raises(BadSignature, match="another secret"):
            await receive(w.app, payments(secret=OLDER), raw, headers)
        assert await told(w) == []


async def test_only_what_was_signed_just_now_counts(world: Any, app: App) -> None:
    tolerance_s = limits.webhook_tolerance_us // 1_000_000
    async with world(app) as w:
        for late_s, problem in ((tolerance_s + 1, "too long ago"), (-tolerance_s - 1, "future")):
            with pytest.raises(BadSignature, match=problem):
                await receive(w.app, payments(), *signed(w, {"order": 1}, late_s=late_s))
        assert await told(w) == []
        for late_s in (tolerance_s, -tolerance_s):
            delivery = signed(w, {"order": 1}, f"msg{late_s}", late_s=late_s)
            assert isinstance(await receive(w.app, payments(), *delivery), Emitted)
        # By the clock of the app: what was fresh is caught, and sent again later.
        caught = signed(w, {"order": 2}, "caught")
        await w.advance("6m")
        with pytest.raises(BadSignature):
            await receive(w.app, payments(), *caught)


async def test_while_secrets_change_both_are_good(world: Any, app: App) -> None:
    hook = payments(secret=[SECRET, OLDER])
    async with world(app) as w:
        for n, secret in enumerate((SECRET, OLDER)):
            delivery = signed(w, {"order": n}, f"m{n}", secret)
            assert isinstance(await receive(w.app, hook, *delivery), Emitted)
        raw, headers = signed(w, {"order": 7}, "m7")
        headers["Webhook-Signature"] = f"v2,AAAA v1,AAAA {headers['Webhook-Signature']}"
        assert isinstance(await receive(w.app, payments(), raw, headers), Emitted)


# --- other schemes ---


def by_github(raw: bytes, secret: str = WORDS) -> dict[str, str]:
    digest = hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()
    return {
        "X-Hub-Signature-256": f"sha256={digest}",
        "X-GitHub-Delivery": "72d3162e-cc78-11e3",
        "X-GitHub-Event": "push",
    }


async def test_github(world: Any, app: App) -> None:
    hook = Hook(
        *("github",),
        verify="github",
        secret=["the new secret of it", WORDS],
        emit=lambda body, headers: f"github.{headers['x-github-event']}",
        entity=lambda body: f"repository/{body['repository']}",
    )
    # The one example with a known answer that GitHub's documentation gives.
    known = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert by_github(b"Hello, World!")["X-Hub-Signature-256"] == known
    async with world(app) as w:
        raw = b'{"repository": "a/b"}'
        assert isinstance(await receive(w.app, hook, raw, by_github(raw)), Emitted)
        assert isinstance(await receive(w.app, hook, raw, by_github(raw)), Duplicate)
        (event,) = await told(w)
        assert (event.type, event.entity) == ("github.push", "repository/a/b")
        bad = [
            (raw + b" ", by_github(raw)),
            (raw, by_github(raw, "the secret of another")),
            (raw, {**by_github(raw), "X-Hub-Signature-256": "sha1=abc"}),
            (raw, {**by_github(raw), "X-Hub-Signature-256": ""}),
            (raw, {**by_github(raw), "X-GitHub-Delivery": ""}),
            (raw, {}),
        ]
        for body, headers in bad:
            with pytest.raises(BadSignature):
                await receive(w.app, hook, body, headers)
        assert len(await told(w)) == 1


def by_stripe(w: Any, raw: bytes, secret: str = "whsec_as_it_is_shown", late_s: int = 0) -> str:
    seconds = w.clock.now() // 1_000_000 - late_s
    digest = hmac.new(secret.encode(), f"{seconds}.".encode() + raw, hashlib.sha256).hexdigest()
    return f"t={seconds},v0=ignored,v1={digest}"


async def test_stripe(world: Any, app: App) -> None:
    hook = Hook(
        "stripe",
        verify="stripe",
        secret="whsec_as_it_is_shown",
        emit=lambda body: f"stripe.{body['type']}",
    )
    async with world(app) as w:
        raw = b'{"id": "evt_1", "type": "paid"}'
        good = by_stripe(w, raw)
        assert isinstance(await receive(w.app, hook, raw, {"Stripe-Signature": good}), Emitted)
        later = {"Stripe-Signature": by_stripe(w, raw, late_s=30)}
        assert isinstance(await receive(w.app, hook, raw, later), Duplicate)
        assert [one.key for one in await told(w)] == ["stripe/evt_1"]
        bad = [
            (raw + b" ", good),
            (raw, by_stripe(w, raw, "whsec_another_secret")),
            (raw, by_stripe(w, raw, late_s=301)),
            (raw, by_stripe(w, raw, late_s=-301)),
            (raw, good.replace("t=", "u=")),
            (raw, f"t=1,{good}"),
            (raw, good.replace("v1=", "v0=")),
            (raw, ",".join([good] + ["v1=abc"] * 16)),
            (raw, ""),
        ]
        for body, signature in bad:
            with pytest.raises(BadSignature):
                await receive(w.app, hook, body, {"stripe-signature": signature})
        assert len(await told(w)) == 1
        for odd in (b"[]", b'{"id": 7, "type": "paid"}', b'{"type": "paid"}'):
            signature = by_stripe(w, odd)
            if odd == b"[]":
                with pytest.raises(InvalidPayload):
                    await receive(w.app, hook, odd, {"stripe-signature": signature})
            else:  # without an id each delivery counts
                assert isinstance(
                    await receive(w.app, hook, odd, {"stripe-signature": signature}), Emitted
                )


async def test_a_check_of_ones_own(world: Any, app: App) -> None:
    def check(raw: bytes, headers: Any) -> Verified | None:
        if headers["x-token"] != "open sesame":
            raise PermissionError("the token should be open sesame")
        return Verified(headers["x-id"]) if "x-id" in headers else None

    async def later(raw: bytes, headers: Any) -> Verified | None:
        return check(raw, headers)

    async with world(app) as w:
        for n, verify in enumerate((check, later)):
            hook = Hook(f"own{n}", verify=verify, emit="own.event")
            good = {"X-Token": "open sesame"}
            for answer in (Emitted, Emitted):  # without an id each delivery counts
                assert isinstance(await receive(w.app, hook, b"1", good), answer)
            for answer in (Emitted, Duplicate):
                assert isinstance(await receive(w.app, hook, b"1", {**good, "X-Id": "7"}), answer)
            for headers in ({"X-Token": "no"}, {}):
                with pytest.raises(BadSignature) as caught:
                    await receive(w.app, hook, b"1", headers)
                assert "sesame" not in str(caught.value)
        unclear = Hook("own", verify=lambda raw, headers: False, emit="own.event")  # type: ignore[arg-type, return-value]
        with pytest.raises(BadSignature, match="neither None nor Verified"):
            await receive(w.app, unclear, b"1", {})
        assert len(await told(w)) == 6


async def test_open_to_anybody_only_if_that_is_said(world: Any, app: App) -> None:
    with pytest.raises(BadValue, match="insecure=True"):
        Hook("open", emit="open.event")
    hook = Hook("open", emit="open.event", insecure=True)
    async with world(app) as w:
        assert isinstance(await receive(w.app, hook, b"{}", {}), Emitted)
        assert isinstance(await receive(w.app, hook, b"{}", {"webhook-id": "1"}), Emitted)
        assert isinstance(await receive(w.app, hook, b"{}", {"webhook-id": "1"}), Duplicate)


# --- bodies ---

deep = b"[" * 65 + b"]" * 65
BODIES = {
    "nothing": b"",
    "no JSON": b"order=42",
    "two values": b"{} {}",
    "a number JSON has not": b'{"order": NaN}',
    "too deep": deep,
    "very deep": b"[" * 400_000,
    "too many values": b"[" + b"1," * 100_001 + b"1]",
    "too large a number": b'{"order": 123456789012345678901234567890}',
    "too large": b'"' + b"x" * limits.payload_bytes_max + b'"',
    "no object": b"[]",
    "no order": b'{"amount": 7}',
    "a lone surrogate": b'{"order": "\\ud800"}',
}


@pytest.mark.parametrize("raw", BODIES.values(), ids=BODIES)
async def test_a_body_that_cannot_be_read_or_mapped_changes_nothing(
    world: Any, app: App, raw: bytes
) -> None:
    async with world(app) as w:
        for hook in (payments(), payments(entity="'order/' + string(payload.order)")):
            with pytest.raises(InvalidPayload, match=r"hook 'payments'|surrogate"):
                await receive(w.app, hook, *signed(w, raw))
        assert await told(w) == []


MAPPINGS: dict[str, dict[str, Any]] = {
    "no entity": {"entity": lambda body: "order"},
    "a number as entity": {"entity": lambda body: 7},
    "no topic": {"emit": lambda body: "order..paid"},
    "the engine's topic": {"emit": lambda body: "workflow.run_completed"},
    "a number as topic": {"emit": lambda body: 7},
    "no payload": {"payload": lambda body: object()},
    "another type": {"emit": Topic("typed", dict[str, int]), "payload": lambda body: {"n": "x"}},
    "a mapper that fails": {"payload": lambda body: 1 // 0},
    "a filter that fails": {"where": lambda body: 1 // 0},
    "an expression that fails": {"payload": "{'n': 1 / (payload.order - 42)}"},
    "an expression without a result": {"entity": "payload.nothing"},
}


@pytest.mark.parametrize("options", MAPPINGS.values(), ids=MAPPINGS)
async def test_a_mapping_that_goes_wrong_changes_nothing(
    world: Any, app: App, options: dict[str, Any]
) -> None:
    async with world(app) as w:
        with pytest.raises((InvalidPayload, BadValue)):
            await receive(w.app, payments(**options), *signed(w, {"order": 42}))
        assert await told(w) == []
        # The key is not used up either.
        assert isinstance(await receive(w.app, payments(), *signed(w, {"order": 42})), Emitted)


async def test_bad_calls(world: Any, app: App) -> None:
    async with world(app) as w:
        raw, headers = signed(w, {"order": 42})
        calls: list[tuple[Any, ...]] = [
            ("payments", raw, headers),
            (payments(), raw.decode(), headers),
            (payments(), raw, list(headers.items())),
        ]
        for one in calls:
            with pytest.raises(BadValue):
                await receive(w.app, *one)


# --- definitions ---

DEFINITIONS: dict[str, dict[str, Any]] = {
    "no purpose": {"emit": None, "entity": None},
    "two purposes": {"signal": "approval", "run": "payload.run"},
    "no run": {"emit": None, "entity": None, "signal": "approval"},
    "an entity of a signal": {"emit": None, "signal": "approval", "run": "payload.run"},
    "a run of an event": {"run": "payload.run"},
    "no topic": {"emit": "order..paid"},
    "the engine's topic": {"emit": "workflow.run_completed"},
    "no signal": {"emit": None, "entity": None, "signal": 7, "run": "payload.run"},
    "bad CEL": {"entity": "payload..order"},
    "CEL of the wrong type": {"entity": "[1]"},
    "a number": {"payload": 7},
    "a coroutine function": {"where": receive},
    "too many arguments": {"where": lambda a, b, c: True},
    "no scheme": {"verify": "gitlab"},
    "a secret beside a function": {"verify": lambda raw, headers: None},
    "a short secret": {"secret": "whsec_c2hvcnQ="},
    "a plain word": {"secret": "correct horse battery staple"},
    "a short word": {"verify": "github", "secret": "horse"},
    "no secrets": {"secret": []},
    "no text": {"verify": "stripe", "secret": [7]},
    "a surrogate": {"verify": "stripe", "secret": "\ud800" * 20},
    "no flag": {"insecure": 1},
}


@pytest.mark.parametrize("options", DEFINITIONS.values(), ids=DEFINITIONS)
def test_a_bad_definition_is_refused_and_repeats_no_secret(options: dict[str, Any]) -> None:
    with pytest.raises((BadValue, ValueError)) as caught:
        payments(**options)
    assert "horse" not in str(caught.value)


def test_a_hook_is_frozen_and_shows_no_secret() -> None:
    hook = payments(secret=[SECRET, OLDER])
    with pytest.raises(AttributeError):
        hook.name = "other"
    with pytest.raises(AttributeError):
        del hook.name
    assert repr(hook) == "Hook('payments')"
    assert SECRET not in repr(vars(type(hook))) and "key of" not in repr(hook._secrets)
    with pytest.raises(BadValue):
        Hook("a/b", secret=SECRET, emit="x.y")


async def test_no_secret_is_logged(world: Any, app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with world(app) as w:
        raw, headers = signed(w, {"order": 1})
        await receive(w.app, payments(), raw, headers)
        with pytest.raises(BadSignature) as caught:
            await receive(w.app, payments(), raw + b" ", headers)
    said = caplog.text + str(caught.value) + repr(caught.value)
    assert SECRET.removeprefix("whsec_") not in said
    assert headers["Webhook-Signature"] not in said


def test_what_to_install_is_said_where_it_is_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "standardwebhooks", None)
    signing.reference.cache_clear()
    with pytest.raises(WebhooksUnavailable):
        payments()
    Hook("github", verify="github", secret=WORDS, emit="github.event")  # needs nothing
    signing.reference.cache_clear()
