"""What `App(redact=…)` names is in no answer but for administrators, wherever a run, an event or an error has it."""

import asyncio
import typing
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Literal

import httpx2
import msgspec
import pytest
from asking import TOKENS, Asked, asked, serving, tokens

from perdure import (
    App,
    Batch,
    Context,
    Permanent,
    Queue,
    Retry,
    RunFailed,
    Signal,
    StepFailed,
    Topic,
)
from perdure.approvals import approval
from perdure.http.redacting import HOLDS
from perdure.http.routes import BY_VERB, ROUTES
from perdure.http.streaming import Message
from perdure.model import limits
from perdure.model.events import Event
from perdure.observing import Prometheus
from perdure.play import Act, Play
from perdure.views import RunInfo, StreamItem

API = "/api/v1"
SECRET = "hunter2"  # what passwords, and numbers of cards, are in here
BEARER = {scope: {"authorization": f"Bearer {text}"} for scope, text in TOKENS.items()}


class Card(msgspec.Struct):
    number: str = SECRET
    month: int = 1


class Login(msgspec.Struct):
    user: str
    password: Annotated[str, msgspec.Meta(examples=[SECRET])] = SECRET
    cards: list[Card] = []
    kind: Literal["a", "b"] = "a"


class Picky(msgspec.Struct):
    password: Literal["none"]


class Basket(msgspec.Struct):
    password: str = ""


LOGIN = Login("anna", cards=[Card()])
PLAIN = msgspec.to_builtins(LOGIN)

typed = Signal("typed", Login)
loose = Signal("loose")  # anything
strict = Signal("strict", on_end="dead_letter")
told = Topic("login.told", Login)
logins = Queue("logins", Login)


def vault() -> App:
    """An app in which the secret goes through everything."""
    app = App("memory://", redact=["Password", "cards.number"], observe=[Prometheus()])
    app.add(told)
    app.add(logins)

    @app.workflow(signals=[typed, loose, strict])
    async def login(ctx: Context, login: Login, password: str) -> dict[str, Any]:
        await ctx.publish("log", LOGIN)
        await ctx.set("password", password)
        await ctx.set("seen", PLAIN)
        await ctx.step(echo, login)
        await ctx.emit("login.seen", PLAIN)
        await ctx.wait(typed)
        await ctx.wait(loose)
        return {"login": PLAIN, "password": password}

    @app.workflow(signals=[strict])
    async def fail(ctx: Context, password: str = SECRET) -> None:
        await ctx.step(refuse, password)

    @app.workflow
    async def ask(ctx: Context) -> None:
        await ctx.wait(approval("agreed", type=Login, data=PLAIN, title=f"password={SECRET!r}?"))

    @app.workflow
    async def wants(ctx: Context) -> None:
        await ctx.wait(Topic("login.other"), name="other")

    @app.workflow
    async def filters(ctx: Context) -> None:
        await ctx.wait(told.about(where=f"payload.password == '{SECRET}-not'"))

    @app.workflow
    async def takes(ctx: Context) -> None:
        await ctx.wait(loose)
        await ctx.wait(Signal("strict", Picky))

    @app.workflow
    async def started(ctx: Context, event: Event) -> None: ...

    @app.consumer("reader", "login.seen")
    async def read(batch: Batch) -> None:
        raise Permanent(f"cannot read {batch[0].payload}")

    async def remember(ctx: Context, state: Basket) -> None:
        state.password = SECRET

    app.add(Play("play", Basket, [Act("remember", remember)]))
    app.schedule("0 3 * * *", login, LOGIN, SECRET, name="nightly")
    return app


async def echo(login: Login) -> Login:
    return login


async def refuse(password: str) -> None:
    raise Permanent(f"no: {Basket(password)!r}")


async def fill(app: App) -> None:
    await app.subscribe("login.told", "started", name="rule")
    secret = f"payload.password == '{SECRET}'"
    await app.subscribe("x.y", "started", name="quoting", where=secret, key=f"'password={SECRET}'")
    run = await app.start(
        "login", LOGIN, SECRET, id="login", tags={"password": SECRET}, entity="user/anna"
    )
    await app.signal("login", loose, PLAIN)
    await app.signal("login", typed, LOGIN)
    await run.result(timeout="10s")
    await app.start("login", LOGIN, SECRET, id="waiting")
    await app.signal("waiting", strict, PLAIN)
    await app.signal("waiting", loose, {"cards": [{"number": SECRET}]})
    await app.start("fail", SECRET, id="failed")
    await app.start("play", Basket(SECRET), id="play")
    await app.start("takes", id="takes")
    await app.signal(
        "takes", "strict", {"password": SECRET}
    )  # too early to be told that it does not fit
    await app.signal("takes", "loose")
    for workflow in ("ask", "wants", "filters"):
        await app.start(workflow, id=workflow)
    await app.emit(told, LOGIN, entity="user/anna", key="k")
    await app.put(logins, LOGIN)
    await app.start("wants", id="held")
    await app.run("held").pause(f"because password={SECRET!r}")
    await until(app)


async def until(app: App) -> None:
    """Until all that is to follow has."""

    async def is_there() -> bool:
        return bool(
            await app.approvals()
            and await app.parked()
            and await app.dead_letters()
            and await app.run("play").status() == "completed"
            and await app.run("failed").status() == "failed"
            and await app.waiting("filters")
        )

    async with asyncio.timeout(10):
        while not await is_there():  # noqa: ASYNC110 (rows, not objects)
            await asyncio.sleep(0)


# Where each route that reads is asked; those of the second table have the secret, for who may see it.
PLACES = {
    "runs": "/runs",
    "info": "/runs/login",
    "contents": "/runs/login/contents",
    "result": "/runs/login/result",
    "history": "/runs/login/history",
    "waiting": "/runs/filters/waiting",
    "buffered": "/runs/waiting/buffered",
    "published": "/runs/login/published",
    "state_at": "/runs/play/state",
    "graph": "/runs/play/graph",
    "streams": "/runs/login/streams",
    "stream_items": "/runs/login/streams/log",
    "signal_status": "/signals/01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "find_waiting": "/waiting?signal=typed",
    "dead_letters": "/dead-letters",
    "approvals": "/approvals",
    "events": "/events?limit=1000",
    "latest": "/events/latest?topic=login.told",
    "event": "/events/{event_id}",
    "timeline": "/timeline?entity=user/anna",
    "watchers": "/watchers?topic=login.told",
    "queues": "/queues",
    "queue_items": "/queues/logins/items",
    "consumers": "/consumers",
    "parked": "/parked",
    "deferred": "/deferred",
    "subscriptions": "/subscriptions",
    "schedules": "/schedules",
    "pools": "/pools",
    "waiting_for_slot": "/pools/none/line",
    "health": "/health",
    "catalogue": "/workflows",
    "channels": "/channels",
    "workers": "/workers",
    "counts": "/counts",
    "schema_version": "/schema-version",
    "stream": "/runs/login/streams/log/follow",
    "follow": "/follow?after=0&run=login",
    "metrics": "",
}
HAVE_IT = {
    *(
        "runs",
        "info",
        "contents",
        "result",
        "history",
        "waiting",
        "buffered",
        "published",
        "state_at",
    ),
    *("stream_items", "dead_letters", "approvals", "events", "latest", "event", "timeline"),
    *("watchers", "queue_items", "consumers", "parked", "subscriptions", "schedules"),
    *("catalogue", "channels", "health", "stream", "follow"),
}
STREAMS = ("stream", "follow")


def test_every_route_that_reads_is_asked() -> None:
    reading = {one.verb for one in ROUTES if one.method == "GET" and one.scope == "read"}
    assert reading == PLACES.keys()


@asynccontextmanager
async def filled() -> AsyncIterator[Asked]:
    async with asked(vault(), client="203.0.113.9", tokens=tokens()) as found:
        await fill(found.app)
        yield found


async def place_of(verb: str, app: App) -> str:
    place = f"{API}{PLACES[verb]}" if PLACES[verb] else BY_VERB[verb].path
    latest = await app.latest("login.told")
    assert latest is not None
    return place.replace("{event_id}", latest.event_id)


async def test_a_secret_is_in_no_answer_but_for_administrators() -> None:
    async with filled() as found:
        for verb in PLACES.keys() - STREAMS:
            place = await place_of(verb, found.app)
            kept = await found.http.get(place, headers=BEARER["read"])
            whole = await found.http.get(place, headers=BEARER["admin"])
            assert kept.status_code == whole.status_code < 500, verb
            assert SECRET not in kept.text, (verb, kept.text)
            assert (SECRET in whole.text) == (verb in HAVE_IT), (verb, whole.text)
            if verb in HAVE_IT - {"catalogue", "channels"}:
                assert "[redacted]" in kept.text, verb


async def test_a_secret_is_in_no_stream_but_for_administrators() -> None:
    app = vault()
    async with serving(app, tokens=tokens()) as url, httpx2.AsyncClient(base_url=url) as http:
        await fill(app)
        for verb in STREAMS:
            last = {"stream": "event: end", "follow": "event: run"}[verb]
            place = await place_of(verb, app)
            kept = await until_line(http, place, "read", last)
            whole = await until_line(http, place, "admin", last)
            assert SECRET not in kept and "[redacted]" in kept, verb
            assert SECRET in whole, verb


async def until_line(http: httpx2.AsyncClient, place: str, scope: str, last: str) -> str:
    """What a stream says up to a message, and that message."""
    lines: list[str] = []
    async with asyncio.timeout(10), http.stream("GET", place, headers=BEARER[scope]) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            lines.append(line)
            if not line and last in lines:
                break
    return "\n".join(lines)


async def test_what_surrounds_a_secret_is_as_it_was() -> None:
    async with filled() as found:
        history = f"{API}/runs/login/history"
        kept = (await found.http.get(history, headers=BEARER["read"])).json()["items"]
        whole = (await found.http.get(history, headers=BEARER["admin"])).json()["items"]
        for one, other in zip(kept, whole, strict=True):
            differing = {name for name in one if one[name] != other[name]}
            assert differing <= {"value"}
        (step,) = [one for one in kept if one["path"] == "echo"]
        hidden = {"password": "[redacted]", "cards": [{"number": "[redacted]", "month": 1}]}
        assert step["value"] == {**PLAIN, **hidden}
        # Names of fields and their types stay: forms are made of them.
        (line,) = [
            one
            for one in (await found.http.get(f"{API}/workflows", headers=BEARER["read"])).json()[
                "items"
            ]
            if one["name"] == "login"
        ]
        definition = line["input_schema"]["$defs"]["Login"]["properties"]
        assert definition["password"] == {"type": "string"}
        assert definition["kind"]["default"] == "a"
        # An answer of the engine itself has no users' fields, whatever they are called.
        latest = f"{API}/events/latest?topic=workflow.run_started"
        event = (await found.http.get(latest, headers=BEARER["read"])).json()["value"]
        assert event["payload"]["workflow"]


async def test_a_failure_that_quotes_an_argument_is_told_without_it() -> None:
    app = App("memory://", redact=["password"])

    @app.workflow
    async def fail(ctx: Context, user: str, password: str) -> None:
        raise ValueError(f"{user} came with {password}")

    @app.workflow(name="fail", version=2)
    async def fail_anew(ctx: Context, user: str, words: str, password: str) -> None: ...

    async with asked(app, client="203.0.113.9", tokens=tokens()) as found:
        # What a later version calls otherwise is hidden by its older name, and the other way round.
        run = await app.start(fail, "anna", SECRET, id="r")
        with pytest.raises(Exception, match="anna came"):
            await run.result(timeout="10s")
        contents = (await found.http.get(f"{API}/runs/r/contents", headers=BEARER["read"])).json()
        assert contents["input"] == ["anna", "[redacted]"]
        assert contents["failure"]["message"] == "anna came with [redacted]"
        assert SECRET not in str(contents)


def quoting() -> App:
    """An app whose failures quote an argument without its name, from a step and from the workflow itself."""
    app = App("memory://", redact=["password"])

    @app.step(retry=Retry(attempts=1))
    async def check(password: str) -> None:
        raise ValueError(f"cannot check {password}")

    @app.workflow
    async def enter(ctx: Context, user: str, password: str) -> None:
        with suppress(StepFailed):
            await ctx.step(check, password)
        raise ValueError(f"{user} came with {password}")

    return app


async def entered(app: App, id: str, password: str = SECRET) -> None:
    run = await app.start("enter", "anna", password, id=id)
    with pytest.raises(RunFailed):
        await run.result(timeout="10s")


QUOTED = [
    "/runs/r/contents",
    "/runs/r/result",
    "/runs/r/history",
    "/events",
    "/events/latest?topic=workflow.run_failed",
    "/events/{event_id}",
    "/timeline?entity=run/r",
]


async def test_a_failure_is_told_alike_wherever_it_is_told() -> None:
    app = quoting()
    async with asked(app, client="203.0.113.9", tokens=tokens()) as found:
        await entered(app, "r")
        failed = await app.latest("workflow.run_failed")
        assert failed is not None
        for place in QUOTED:
            place = API + place.replace("{event_id}", failed.event_id)
            kept = (await found.http.get(place, headers=BEARER["read"])).text
            whole = (await found.http.get(place, headers=BEARER["admin"])).text
            assert SECRET in whole, place
            assert SECRET not in kept, (place, kept)
            assert "anna came with [redacted]" in kept or "cannot check [redacted]" in kept, place


async def test_a_failure_that_is_followed_is_told_like_others() -> None:
    app = quoting()
    async with serving(app, tokens=tokens()) as url, httpx2.AsyncClient(base_url=url) as http:
        await entered(app, "r")
        kept = await until_line(http, f"{API}/follow?after=0", "read", "event: position")
        assert "anna came with [redacted]" in kept and SECRET not in kept


async def test_of_a_run_that_is_gone_no_words_are_told() -> None:
    """Nobody knows any more what they quote."""
    app = quoting()
    async with asked(app, client="203.0.113.9", tokens=tokens()) as found:
        await entered(app, "r")
        assert await app.prune("0s") == 1
        kept = (await found.http.get(f"{API}/events", headers=BEARER["read"])).json()["items"]
        (failed,) = [one for one in kept if one["type"] == "workflow.run_failed"]
        error = failed["payload"]["error"]
        assert (error["type"], error["message"]) == ("ValueError", "[redacted]")
        assert SECRET not in str(kept)


async def test_no_more_runs_are_read_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "http_quoted_runs_max", 2)
    app = quoting()
    async with asked(app, client="203.0.113.9", tokens=tokens()) as found:
        for count in range(4):
            await entered(app, f"r{count}", f"{SECRET}-{count}")
        read: list[str] = []
        store = app._engine().store
        run = store.run

        async def counted(run_id: str) -> Any:
            read.append(run_id)
            return await run(run_id)

        monkeypatch.setattr(store, "run", counted)
        kept = (await found.http.get(f"{API}/events", headers=BEARER["read"])).json()["items"]
        errors = [one["payload"]["error"] for one in kept if "run_failed" in one["type"]]
        assert [one["message"] for one in errors] == [
            *["anna came with [redacted]"] * 2,
            *["[redacted]"] * 2,
        ]
        assert read == ["r0", "r1"]
        await found.http.get(f"{API}/events", headers=BEARER["admin"])
        assert read == ["r0", "r1"]


async def test_names_of_the_engine_are_not_hidden() -> None:
    app = App("memory://", redact=["name", "run_id", "status", "error", "path"])

    @app.workflow
    async def fail(ctx: Context, name: str) -> None:
        await ctx.emit("named", {"name": name, "other": 1})
        raise ValueError("wrong")

    async with asked(app, client="203.0.113.9", tokens=tokens()) as found:
        run = await app.start(fail, "anna", id="r")
        with pytest.raises(Exception, match="wrong"):
            await run.result(timeout="10s")
        info = (await found.http.get(f"{API}/runs/r", headers=BEARER["read"])).json()
        assert (info["id"], info["status"]) == ("r", "failed")
        events = (await found.http.get(f"{API}/events", headers=BEARER["read"])).json()["items"]
        by_type = {one["type"]: one["payload"] for one in events}
        assert by_type["named"] == {"name": "[redacted]", "other": 1}
        failed = by_type["workflow.run_failed"]
        assert (failed["run_id"], failed["error"]["type"]) == ("r", "ValueError")


# --- what goes wrong ---

WRONG: list[tuple[str, str, dict[str, Any]]] = [
    ("typed value", "/runs/login-2/signals", {"signal": "typed", "payload": {**PLAIN, "kind": SECRET}}),
    ("named", "/runs/login-2/signals", {"signal": "typed", "payload": {"user": 1, "password": SECRET}}),
    ("input", "/runs", {"workflow": "login", "input": [{**PLAIN, "user": 3}, SECRET]}),
    ("event", "/events", {"topic": "login.told", "payload": [PLAIN]}),
    ("expression", "/subscriptions/x", {"pattern": "a", "workflow": "started", "where": f"password = '{SECRET}'"}),
]  # fmt: skip


async def test_a_refusal_quotes_no_secret() -> None:
    async with filled() as found:
        await found.app.start("login", LOGIN, SECRET, id="login-2")
        for what, place, body in WRONG:
            if (
                what == "typed value"
            ):  # the secret stands elsewhere too, and is known by its own field
                body["payload"]["password"] = SECRET
            verb = "PUT" if "subscriptions" in place else "POST"
            scope = "operate" if verb == "PUT" else "signal"
            answer = await found.http.request(
                verb, f"{API}{place}", headers=BEARER[scope], json=body
            )
            assert answer.status_code == 422, (what, answer.text)
            assert SECRET not in answer.text, (what, answer.text)
        many = {"sends": [{"run_id": "login-2", **body} for _, place, body in WRONG[:2]]}
        batch = await found.http.post(f"{API}/signals", headers=BEARER["signal"], json=many)
        assert batch.status_code == 200 and SECRET not in batch.text


async def test_without_redaction_readers_see_all() -> None:
    app = App("memory://")
    async with asked(app, client="203.0.113.9", tokens=tokens()) as found:
        await app.emit("login.told", PLAIN)
        assert SECRET in (await found.http.get(f"{API}/events", headers=BEARER["read"])).text


# --- nothing is forgotten ---

# Fields of answers that may hold texts or anything, and hold nothing of users' payloads: ids, names, words of our own.
_plain_types = {"Delivered", "Buffered", "Queued", "Emitted", "Decided", "Finished", "NotFound"}
_plain_types |= {"Duplicate", "Started", "StartedAndSent", "Refused", "Listing", "Value", "Trimmed"}
_plain_types |= {"Me", "Alive", "WorkerInfo", "SchemaVersion", "Diagnosis", "Promise", "Setting"}
_plain_types |= {"Report", "Finding", "Replayed", "Backfilled", "StreamInfo", "SignalStatus"}
_plain_types |= {"Unserved", "DeferredStart", "Cause", "PoolInfo", "SlotWait"}
_plain_fields = {
    "RunInfo": {"id", "workflow", "entity", "parent_id", "event_id", "pool", "pool_key", "trace", "status"},
    "RunContents": {"workflow"},
    "HistoryEntry": {"path", "kind", "name", "status", "winner"},
    "Waiting": {"run_id", "path", "kind", "target", "entity"},
    "BufferedSignal": {"signal_id", "name", "path", "policy"},
    "QueueItem": {"item_id", "queue"},
    "DeadLetter": {"id", "run_id", "name", "path", "kind"},
    "StreamItem": {"path"},
    "Event": {"event_id", "type", "entity_type", "entity_id", "root_id", "key", "trace"},
    "ConsumerInfo": {"name", "patterns", "every", "zone", "owner"},
    "ConsumerHealth": {"name", "owner"},
    "Health": {"status", "in_line_s"},
    "SubscriptionInfo": {"name", "pattern", "workflow"},
    "ParkedEvent": {"consumer", "subscription", "event_id", "type"},
    "ApprovalInfo": {"id", "run_id", "path", "workflow", "name", "choices", "who"},
    "WorkflowInfo": {"name", "pool", "graph"},
    "SignalInfo": {"name", "buffer", "on_end", "path"},
    "ChannelInfo": {"kind", "name", "repeats"},
    "Ended": {"id", "status"},
    "ScheduleLine": {"name", "workflow", "every", "zone", "catch_up", "overlap", "last_run_id"},
    "Ready": {"status"},
    "Problem": {"type", "title", "error"},
}  # fmt: skip


def _answered() -> set[type[msgspec.Struct]]:
    found: set[type[msgspec.Struct]] = set()
    ahead: list[Any] = [one.answer for one in ROUTES if one.answer is not None]
    ahead += [Event, RunInfo, StreamItem]  # of streams
    assert Message == tuple[str, str | None, Any]
    while ahead:
        hint = ahead.pop()
        ahead += typing.get_args(hint)
        kind = typing.get_origin(hint) or hint
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in found:
            found.add(kind)
            ahead += typing.get_type_hints(kind).values()
    return found


def _open_fields(kind: type[msgspec.Struct]) -> Iterator[str]:
    """Those that can hold any text."""
    for name, hint in typing.get_type_hints(kind).items():
        if any(word in str(hint) for word in ("str", "Any", "~", "Literal")):
            yield name


def test_of_every_field_of_every_answer_it_is_said_what_it_holds() -> None:
    kinds = _answered()
    assert HOLDS.keys() <= kinds
    for kind in kinds:
        if kind.__name__ in _plain_types:
            assert kind not in HOLDS
            continue
        said = set(HOLDS.get(kind, {})) | _plain_fields[kind.__name__]
        assert set(_open_fields(kind)) <= said, kind
        assert said <= set(kind.__struct_fields__), kind
