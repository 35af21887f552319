"""A bad request gets a clear 4xx, and changes nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from asking import TOKENS, Asked

from perdure.http.routes import ROUTES
from perdure.model import limits

API = "/api/v1"


@dataclass
class Bad:
    """A request, the status it gets, and a word of the reason."""

    name: str
    method: str
    path: str
    status: int
    says: str
    json: Any = None
    content: bytes | None = None
    headers: Any = field(default_factory=dict)


def post(name: str, path: str, status: int, says: str, body: Any = None, **more: Any) -> Bad:
    return Bad(name, "POST", API + path, status, says, json=body, **more)


def get(name: str, path: str, status: int, says: str, **more: Any) -> Bad:
    return Bad(name, "GET", API + path, status, says, **more)


JSON = {"content-type": "application/json"}
KEY = {"idempotency-key": "a"}
SEND = "/runs/waiting/signals"
deep = ("[" * 200 + "]" * 200).encode()
tens = "[1,2,3,4,5,6,7,8,9,10]"
bomb = "".join(f"{tens}.all(x{n}, " for n in range(10)) + "true" + ")" * 10
CLOUD = {"content-type": "application/cloudevents+json"}

FORMS = [
    post("no body", "/runs", 400, "workflow"),
    post("not JSON", "/runs", 400, "not JSON", content=b"{nope", headers=JSON),
    post("an array", "/runs", 400, "does not fit", content=b"[]", headers=JSON),
    post("null", SEND, 400, "does not fit", content=b"null", headers=JSON),
    post("bad UTF-8", SEND, 400, "not JSON", content=b'{"signal":"\xff"}', headers=JSON),
    post("NaN", SEND, 400, "not JSON", content=b'{"signal":"note","payload":NaN}', headers=JSON),
    post("two documents", SEND, 400, "not JSON", content=b"{}{}", headers=JSON),
    post("a field not known", SEND, 400, "extra", {"signal": "note", "extra": 1}),
    post("a field missing", SEND, 400, "signal", {"payload": 1}),
    post("a name that is a number", SEND, 400, "signal", {"signal": 3}),
    post("a flag that is a text", SEND, 400, "buffer", {"signal": "note", "buffer": "no"}),
    post("input that is no list", "/runs", 400, "input", {"workflow": "decide", "input": "o"}),
    post("tags that are no texts", "/runs", 400, "tags", {"workflow": "fail", "tags": {"a": 1}}),
    post(
        "deep JSON",
        SEND,
        400,
        "deeper",
        content=b'{"signal":"note","payload":' + deep + b"}",
        headers=JSON,
    ),
    post(
        "deep enough to break a parser",
        SEND,
        400,
        "deeper",
        content=b'{"signal":"note","payload":' + b"[" * 100_000,
        headers=JSON,
    ),
    post(
        "a form",
        SEND,
        415,
        "application/json",
        content=b"signal=note",
        headers={"content-type": "application/x-www-form-urlencoded"},
    ),
    post(
        "plain text",
        SEND,
        415,
        "application/json",
        content=b'{"signal":"note"}',
        headers={"content-type": "text/plain"},
    ),
    post("no type of content", SEND, 415, "application/json", content=b'{"signal":"note"}'),
    post(
        "too long",
        SEND,
        413,
        "bytes",
        content=b'{"signal":"note","payload":"' + b"x" * 5_000_000 + b'"}',
        headers=JSON,
    ),
    post(
        "a payload too large",
        SEND,
        422,
        "payload_bytes_max",
        {"signal": "note", "payload": "x" * 1_100_000},
    ),
    post(
        "too many values",
        SEND,
        422,
        "payload_nodes_max",
        {"signal": "note", "payload": [0] * 100_001},
    ),
    post(
        "an integer beyond 64 bits",
        SEND,
        422,
        "64 bits",
        content=b'{"signal":"note","payload":99999999999999999999}',
        headers=JSON,
    ),
    post(
        "too many at once",
        "/signals",
        422,
        "http_sends_max",
        {"sends": [{"run_id": "waiting", "signal": "note"}] * 1001},
    ),
    post(
        "too many events at once",
        "/events/batch",
        422,
        "http_sends_max",
        {"events": [{"topic": "a"}] * 1001},
    ),
    post(
        "keys that differ",
        SEND,
        400,
        "Idempotency-Key",
        {"signal": "note", "key": "a"},
        headers={"idempotency-key": "b"},
    ),
    post(
        "two keys",
        SEND,
        400,
        "twice",
        {"signal": "note"},
        headers=[*KEY.items(), ("idempotency-key", "b")],
    ),
    post("the same key twice", SEND, 400, "twice", {"signal": "note"}, headers=[*KEY.items()] * 2),
    post(
        "no ASCII",
        SEND,
        400,
        "ASCII",
        {"signal": "note"},
        headers=[(b"idempotency-key", "é".encode())],
    ),
    post(
        "a key of a batch",
        "/events/batch",
        400,
        "Idempotency-Key",
        {"events": [{"topic": "a"}]},
        headers=KEY,
    ),
    post("a key of signals", "/signals", 400, "Idempotency-Key", {"sends": []}, headers=KEY),
    post("a key of a fork", "/runs/waiting/fork", 400, "Idempotency-Key", {}, headers=KEY),
    post("a key of a tick", "/schedules/nightly/trigger", 400, "Idempotency-Key", headers=KEY),
]
QUERIES = [
    get("not known", "/runs?colour=red", 400, "colour"),
    get("given twice", "/runs?limit=1&limit=2", 400, "twice"),
    get("no number", "/runs?limit=ten", 400, "limit"),
    get("digits of another script", "/runs?limit=%D9%A3", 400, "limit"),
    get("a limit of nothing", "/runs?limit=0", 422, "page_rows_max"),
    get("a limit below nothing", "/runs?limit=-5", 422, "page_rows_max"),
    get("a limit too high", "/runs?limit=100000", 422, "page_rows_max"),
    get("no status", "/runs?status=dancing", 400, "dancing"),
    get("a tag's value alone", "/runs?tag_value=x", 422, "tag_name"),
    get("a tag in two ways", "/runs?tag=team:x&tag_name=team", 422, "one of them"),
    get("no cursor", "/runs?after=zzz", 422, "cursor"),
    get("a cursor with a zero byte", "/runs?after=5b312c225c7530303030225d", 422, "cursor"),
    get("a cursor of something else", "/runs?after=5b5d", 422, "cursor"),
    get("no time", "/runs?created_from=yesterday", 400, "created_from"),
    get("an entity of no form", "/timeline?entity=order", 422, "type/id"),
    get("a pattern of no form", "/events?pattern=a..b", 422, "pattern"),
    get("a topic of no form", "/events/latest?topic=a..b", 422, "topic"),
    get("an order not known", "/events?order=random", 400, "order"),
    get("a duration of no form", "/waiting?signal=note&older_than=soon", 422, "older_than"),
    get("held for too long", "/runs/waiting/result?wait=2h", 422, "minute"),
    get("broken escapes", "/runs?entity=%ff", 400, "query"),
    get("a query where none is", "/consumers?x=1", 400, "x"),
    get("a last event of no form", "/follow", 422, "Last-Event-ID", headers={"last-event-id": "x"}),
    get(
        "a last event that is to come",
        "/follow",
        409,
        "ledger ends",
        headers={"last-event-id": "999999"},
    ),
    get("a limit of what has none", "/runs/waiting/streams/log/follow?limit=5", 400, "limit"),
    get(
        "too many runs to watch",
        "/follow?" + "&".join(f"run=r{n}" for n in range(101)),
        422,
        "http_stream_runs_max",
    ),
]
PLACES = [
    get("nothing there", "/nowhere", 404, "nothing at"),
    Bad("outside", "GET", "/etc/passwd", 404, "nothing at"),
    get("up and away", "/runs/..%2F..%2Fetc%2Fpasswd", 404, "no run"),
    get("dots in between", "/runs/%2e%2e", 404, "no run"),
    get("two slashes", "//runs", 404, "nothing at"),
    get("a slash behind", "/runs/", 404, "nothing at"),
    get("a zero byte", "/runs/%00", 422, "control character"),
    get("no UTF-8", "/runs/%ff", 400, "UTF-8"),
    get("another case", "/RUNS", 404, "nothing at"),
    Bad("a method not known there", "DELETE", f"{API}/runs", 405, "DELETE"),
    Bad("a method not known at all", "BREW", f"{API}/runs", 405, "BREW"),
    get("a run that is not", "/runs/nobody", 404, "nobody"),
    post("a run that is not, signalled", "/runs/nobody/signals", 404, "nobody", {"signal": "note"}),
    post("a run that has ended", "/runs/failed/signals", 409, "ended", {"signal": "note"}),
    post(
        "a run id too long", "/runs", 422, "run_id_bytes_max", {"workflow": "fail", "id": "x" * 300}
    ),
    post("a run id with a line", "/runs", 422, "control", {"workflow": "fail", "id": "a\nb"}),
    post("a run id of nothing", "/runs", 422, "empty", {"workflow": "fail", "id": ""}),
    Bad("a hook that is not", "POST", "/hooks/none", 404, "no hook", content=b"{}"),
]
MEANINGS = [
    post("a workflow that is not", "/runs", 404, "dance", {"workflow": "dance"}),
    post("too few arguments", "/runs", 422, "input", {"workflow": "decide", "input": []}),
    post(
        "an argument of another type", "/runs", 422, "input", {"workflow": "decide", "input": [3]}
    ),
    post(
        "another input under that id",
        "/runs",
        409,
        "waiting",
        {"workflow": "decide", "input": ["x"], "id": "waiting"},
    ),
    post("a signal that is not declared", SEND, 422, "typo", {"signal": "typo"}),
    post("a payload of another type", SEND, 422, "bool", {"signal": "approve", "payload": "yes"}),
    post(
        "nobody waits, and it is not to be kept",
        SEND,
        409,
        "buffer",
        {"signal": "claim", "payload": "x", "buffer": False},
    ),
    post(
        "a deadline of no form", "/runs", 422, "deadline", {"workflow": "fail", "deadline": "never"}
    ),
    post(
        "a time without a zone",
        "/runs",
        422,
        "time zone",
        {"workflow": "fail", "start_at": "2030-01-01T00:00:00"},
    ),
    post(
        "a time that is none",
        "/runs",
        422,
        "RFC 3339",
        {"workflow": "fail", "start_at": "2030-99-99"},
    ),
    post("resume of one that is not paused", "/runs/waiting/resume", 409, "paused"),
    post("retry of one that has not failed", "/runs/waiting/retry", 409, "failed"),
    post("fork from nowhere", "/runs/waiting/fork", 422, "nowhere", {"from_path": "nowhere"}),
    post("a document that is none", "/imports", 422, "document", {"document": {"format": "x"}}),
    post(
        "an event of the engine's own",
        "/events",
        422,
        "workflow.",
        {"topic": "workflow.run_failed"},
    ),
    post(
        "an event of another type",
        "/events",
        422,
        "int",
        {"topic": "stock.arrived", "payload": "many"},
    ),
    post("an event id of no form", "/events", 422, "ULID", {"topic": "a.b", "event_id": "1"}),
    post("an item of another type", "/queues/jobs/items", 422, "int", {"payload": "x"}),
    post(
        "a CloudEvent of no version",
        "/cloudevents",
        422,
        "specversion",
        content=b'{"id":"1"}',
        headers=CLOUD,
    ),
    post(
        "a CloudEvent that is a batch", "/cloudevents", 422, "object", content=b"[]", headers=CLOUD
    ),
    post(
        "CloudEvents of a type not read",
        "/cloudevents",
        422,
        "content type",
        content=b"{}",
        headers={"content-type": "text/csv"},
    ),
    post(
        "a binary CloudEvent without a type",
        "/cloudevents",
        422,
        "type",
        content=b"{}",
        headers=JSON | {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/x"},
    ),
    post(
        "an approval that is not",
        "/approvals/01ARZ3NDEKTSV4RRFFQ69G5FAV.x/decide",
        404,
        "approval",
        {"choice": "yes", "by": "anna"},
    ),
    post("a link that is forged", "/answers", 403, "link", {"link": "eyJh.bbbb", "choice": "yes"}),
    post("a consumer that is not", "/consumers/nobody/pause", 404, "nobody"),
    post(
        "rewind to no place",
        "/consumers/workflow_runner/rewind",
        422,
        "beginning",
        {"to": "somewhere"},
    ),
    post(
        "refire of what is not parked",
        "/parked/refire",
        422,
        "park",
        {"consumer": "workflow_runner", "position": 1},
    ),
    post("replay into nobody", "/replay", 404, "nobody", {"into": "nobody"}),
    post("a schedule that is not", "/schedules/none/trigger", 404, "none"),
    post("a pool that is not", "/pools/none/reset", 404, "none"),
    Bad(
        "bad cron",
        "PUT",
        f"{API}/schedules/x",
        422,
        "cron",
        json={"every": "61 * * * *", "workflow": "decide", "input": ["o"]},
    ),
    Bad(
        "bad zone",
        "PUT",
        f"{API}/schedules/x",
        422,
        "zone",
        json={"every": "0 1 * * *", "workflow": "decide", "input": ["o"], "zone": "Mars/Olympus"},
    ),
    Bad("bad rate", "PATCH", f"{API}/pools/narrow", 422, "rate", json={"rate": "fast"}),
    Bad("no limit named", "PATCH", f"{API}/pools/narrow", 422, "names no limit", json={}),
    Bad(
        "a rule without a workflow",
        "PUT",
        f"{API}/subscriptions/x",
        404,
        "dance",
        json={"pattern": "a.*", "workflow": "dance"},
    ),
    Bad(
        "an expression of no form",
        "PUT",
        f"{API}/subscriptions/x",
        422,
        "expression",
        json={"pattern": "a.*", "workflow": "fail", "where": "payload >"},
    ),
    Bad(
        "an expression of the wrong type",
        "PUT",
        f"{API}/subscriptions/x",
        422,
        "true or false",
        json={"pattern": "a.*", "workflow": "fail", "where": "'text'"},
    ),
    Bad(
        "an expression bomb",
        "PUT",
        f"{API}/subscriptions/x",
        422,
        "expression",
        json={"pattern": "a.*", "workflow": "fail", "where": bomb},
    ),
    Bad(
        "an expression too long",
        "PUT",
        f"{API}/subscriptions/x",
        422,
        "expression",
        json={"pattern": "a.*", "workflow": "fail", "where": "1 == 1 || " * 5000 + "true"},
    ),
]
ALL = [*FORMS, *QUERIES, *PLACES, *MEANINGS]


async def state_of(asked: Asked) -> Any:
    """Everything that a request could have changed."""
    store = asked.app._engine().store
    counts = await store.counts()
    for moving in ("commits", "workers"):
        counts.pop(moving, None)
    runs = await asked.app.runs(limit=1000)
    return (
        counts,
        await store.span(),
        [msgspec.to_builtins(one) for one in runs],
        [msgspec.to_builtins(one) for one in await asked.app.consumers()],
        [msgspec.to_builtins(one) for one in await asked.app.pools()],
    )


def test_there_are_many() -> None:
    assert len(ALL) >= 100 and len({one.name for one in ALL}) == len(ALL)


@pytest.mark.parametrize("bad", ALL, ids=lambda one: one.name)
async def test_a_bad_request_is_refused_and_changes_nothing(open_shop: Asked, bad: Bad) -> None:
    await settled(open_shop)
    before = await state_of(open_shop)
    content = json.dumps(bad.json).encode() if bad.json is not None else bad.content
    given = list(bad.headers.items()) if isinstance(bad.headers, dict) else bad.headers
    headers = [*(JSON.items() if bad.json is not None else ()), *given]
    answer = await open_shop.http.request(bad.method, bad.path, content=content, headers=headers)
    assert answer.status_code == bad.status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == bad.status
    assert bad.says.lower() in problem["detail"].lower()
    assert "Traceback" not in answer.text
    assert await state_of(open_shop) == before


@pytest.mark.parametrize(
    "path", ["/runs/waiting/pause", "/schedules/nightly/pause", "/pools/narrow/reset"]
)
async def test_what_may_come_twice_needs_no_key_and_takes_any(open_shop: Asked, path: str) -> None:
    keys = [*KEY.items(), ("idempotency-key", "b")]
    for _ in range(2):
        answer = await open_shop.http.post(API + path, headers=keys)
        assert answer.is_success, answer.text


def test_of_every_post_it_is_known_what_a_key_does_to_it() -> None:
    posts = {one.verb: one for one in ROUTES if one.method == "POST"}
    assert {verb for verb, one in posts.items() if one.keyed} == {
        *("start", "signal", "signal_with_start", "ask", "decide", "emit", "put")
    }
    assert {verb for verb, one in posts.items() if one.settles} == {
        *("cancel", "terminate", "pause", "resume", "pause_consumer", "resume_consumer"),
        *("enable_subscription", "pause_schedule", "resume_schedule", "reset_pool"),
        *("emit_cloudevents", "receive"),
    }
    assert not any(one.takes_no_key for one in ROUTES if one.method != "POST")


async def test_a_body_that_does_not_come_is_not_waited_for(
    open_shop: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "http_body_s", 0.05)
    ended = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"link": "'
        await ended.wait()

    for path in ("/answers", "/session", "/runs"):
        answer = await open_shop.http.post(API + path, content=slowly(), headers=JSON)
        assert answer.status_code == 408, answer.text
        assert "http_body_s" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["[::1", "localhost:80?limit=0", "localhost:80/nowhere?x=1#"])
async def test_an_odd_host_says_nothing_about_what_is_asked(open_shop: Asked, host: str) -> None:
    answer = await open_shop.http.get(f"{API}/runs?limit=2", headers={"host": host})
    assert answer.status_code in (200, 401), answer.text
    answer = await open_shop.http.get("/nowhere", headers={"host": host})
    assert answer.status_code == 404
    assert "/nowhere'" in answer.json()["detail"]


async def settled(asked: Asked) -> None:
    """Until the engine has nothing left to do by itself."""
    engine = asked.app._engine()
    assert engine.consumers is not None
    async with asyncio.timeout(10):
        last = None
        while (now := await state_of(asked)) != last or not engine.consumers.settled:
            last = now
            await asyncio.sleep(0.01)


# --- who may --------------------------------------------------------------------------------------


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


STRANGERS = [
    ("no token", {}, "who asks"),
    ("an empty one", bearer(""), "Bearer"),
    ("one that is not", bearer("x" * 40), "no such token"),
    ("half of one", bearer(TOKENS["admin"][:-1]), "no such token"),
    ("another scheme", {"authorization": "Basic YWRtaW46YWRtaW4="}, "Bearer"),
    ("one too long", bearer("x" * 5000), "token_bytes_max"),
    (
        "a cookie that is forged",
        {"cookie": "perdure_session=admin:99999999999999999:" + "0" * 64},
        "sign in",
    ),
    ("a cookie that is none", {"cookie": "perdure_session=x"}, "sign in"),
    ("the digest of one", bearer("0" * 64), "no such token"),
]


@pytest.mark.parametrize(("name", "headers", "says"), STRANGERS, ids=[one[0] for one in STRANGERS])
async def test_a_stranger_gets_nothing(
    locked_shop: Asked, name: str, headers: dict[str, str], says: str
) -> None:
    for method, path in (("GET", f"{API}/runs"), ("POST", f"{API}/runs/waiting/terminate")):
        answer = await locked_shop.http.request(method, path, headers=headers)
        assert answer.status_code == 401, answer.text
        assert answer.headers["www-authenticate"] == "Bearer"
        assert says in answer.json()["detail"] or method == "POST"
    assert await locked_shop.app.run("waiting").status() == "waiting"


@pytest.mark.parametrize(("path", "size"), [(f"{API}/session", 20_000), ("/hooks/x", 1_100_000)])
async def test_a_stranger_may_not_send_much(locked_shop: Asked, path: str, size: int) -> None:
    answer = await locked_shop.http.post(path, content=b" " * size, headers=JSON)
    assert answer.status_code == 413


async def test_a_token_in_the_address_is_not_taken(locked_shop: Asked) -> None:
    answer = await locked_shop.http.get(f"{API}/runs", params={"token": TOKENS["admin"]})
    assert answer.status_code == 401
