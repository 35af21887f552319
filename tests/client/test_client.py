"""The client has the verbs of App over HTTP: the same arguments, answers and errors."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
import uvicorn

from perdure import (
    App,
    ApprovalClosed,
    BadHint,
    BadRequest,
    Buffered,
    Client,
    Conflict,
    Context,
    Delivered,
    Duplicate,
    Emitted,
    Event,
    Fact,
    Finished,
    InvalidPayload,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NotRunning,
    OutcomeUnknown,
    PerdureError,
    Pool,
    Queue,
    Queued,
    Refused,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunInfo,
    RunNotFound,
    ScopeMissing,
    Signal,
    Topic,
    Undecodable,
    UnknownWorkflow,
    Unreachable,
)
from perdure.approvals import approval
from perdure.http import Token, create_app
from perdure.model.limits import BadValue


@dataclass
class Verdict:
    ok: bool
    at: datetime


_yes = Verdict(True, datetime(2030, 5, 1, 12, tzinfo=UTC))
_no = Verdict(False, datetime(2030, 5, 1, 12, tzinfo=UTC))
verdict = Signal("verdict", Verdict)
note = Signal("note", buffer="all")
arrived = Topic("stock.arrived", int)
jobs = Queue("jobs", int)


def shop() -> App:
    app = App("memory://", secret="s" * 32)
    app.add(arrived)
    app.add(jobs)

    @app.workflow(signals=[verdict, note])
    async def decide(ctx: Context, order: str) -> Verdict:
        await ctx.publish("log", datetime(2030, 1, 1, tzinfo=UTC))
        await ctx.set("order", order)
        return await ctx.wait(verdict)

    @app.workflow(signals=[verdict])
    async def strict(ctx: Context, order: str) -> str:
        if not (await ctx.wait(verdict)).ok:
            raise ValueError("refused")
        return order

    @app.workflow
    async def fail(ctx: Context) -> None:
        raise ValueError("no such luck")

    @app.workflow
    async def ask(ctx: Context) -> str:
        return (await ctx.wait(approval("agreed", choices=["yes", "no"]))).choice or ""

    @app.workflow
    async def pay(ctx: Context, who: str) -> str:
        return (await ctx.wait(approval("paid", who=[who]))).by or ""

    @app.workflow
    async def reply(ctx: Context) -> None:
        while True:
            question = await ctx.wait(note)
            await ctx.reply({"to": question})

    @app.workflow(pool=Pool("narrow", limit=1))
    async def narrow(ctx: Context) -> None:
        await ctx.wait(note)

    return app


class Both:
    """An open app, and a client of its API."""

    def __init__(self, app: App, client: Client) -> None:
        self.app, self.client = app, client

    def workflow(self, name: str) -> Any:
        return self.app.registry.newest(name)


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[Both]:
    app = shop()
    api = create_app(app, **options)
    transport = httpx2.ASGITransport(api, client=("127.0.0.1", 1))
    async with (
        app,
        Client("http://localhost", options.pop("token", None), transport=transport) as one,
    ):
        yield Both(app, one)


@pytest.fixture
async def both() -> AsyncIterator[Both]:
    async with opened() as found:
        yield found


@pytest.fixture
async def served() -> AsyncIterator[Both]:
    """Over a real connection: streams need one."""
    app = shop()
    config = uvicorn.Config(create_app(app), port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    listening.listen()  # whoever comes before it serves waits
    port = listening.getsockname()[1]
    async with app, Client(f"http://127.0.0.1:{port}") as client:
        serving = asyncio.create_task(server.serve([listening]))
        try:
            yield Both(app, client)
        finally:
            server.should_exit = True
            await serving


# --- runs -----------------------------------------------------------------------------------------


async def test_a_run_is_started_signalled_and_gives_its_typed_result(both: Both) -> None:
    decide = both.workflow("decide")
    run = await both.client.start(
        decide, "o/1", id="a/b ?#%é", tags={"team": "x"}, entity="order/1"
    )
    assert (run.id, run.created) == ("a/b ?#%é", True)
    assert not (await both.client.start(decide, "o/1", id="a/b ?#%é")).created
    value = Verdict(True, datetime(2030, 5, 1, 12, tzinfo=UTC))
    sent = await both.client.signal(run.id, verdict, value, key="k")
    assert isinstance(sent, Delivered | Buffered)
    assert await run.result(timeout="10s") == value
    assert await both.client.signal(run.id, verdict, value, key="k") == Duplicate(sent)
    info = await run.info()
    assert info == await both.app.run(run.id).info()
    stored = both.app.run(run.id)
    assert (await run.history()).items == (await stored.history()).items
    first = await run.history(limit=1)
    assert (await run.history(after=first.cursor)).items == (await stored.history()).items[1:]
    assert await run.contents() == await both.app.run(run.id).contents()
    assert await run.get("order") == "o/1"
    assert (await both.client.runs(tag=("team", "x"), status=["completed"])).items == [info]


async def test_errors_are_those_of_the_library(both: Both) -> None:
    client, decide = both.client, both.workflow("decide")
    run = await client.start(decide, "o")
    with pytest.raises(InvalidPayload) as wrong:
        await client.signal(run.id, "verdict", {"ok": "perhaps"})
    with pytest.raises(InvalidPayload) as same:
        await both.app.signal(run.id, "verdict", {"ok": "perhaps"})
    assert (str(wrong.value), wrong.value.errors) == (str(same.value), same.value.errors)
    with pytest.raises(RunNotFound) as missing:
        await client.run("nobody").status()
    assert missing.value.run_id == "nobody"
    with pytest.raises(Conflict):
        await client.start(decide, "other", id=run.id)
    with pytest.raises(InvalidPayload, match="JSON has not"):
        await client.signal(run.id, "note", datetime(2030, 1, 1, tzinfo=UTC))
    await run.terminate("enough")
    with pytest.raises(RunFinished) as ended:
        await client.signal(run.id, note, 1)
    assert ended.value.status == "terminated"
    with pytest.raises(RunCancelled, match="enough"):
        await run.result()


async def test_a_failed_run_raises_what_it_failed_with(both: Both) -> None:
    run = await both.client.start("fail")
    with pytest.raises(RunFailed) as failed:
        await run.result()
    assert (failed.value.type, failed.value.message) == ("ValueError", "no such luck")
    assert "ValueError" in failed.value.traceback
    assert await run.retry() in ("ready", "running")


async def test_a_result_that_does_not_come_in_time(both: Both) -> None:
    run = await both.client.start("decide", "o")
    with pytest.raises(TimeoutError, match="has not ended"):
        await run.result(timeout=0)


async def test_many_signals_have_their_own_outcomes(both: Both) -> None:
    run = await both.client.start("decide", "o")
    gone = await both.client.start("fail")
    with pytest.raises(RunFailed):
        await gone.result()
    told = await both.client.signal_many(
        [(run.id, note, 1), ("nobody", note, 1), (gone.id, note, 1), (run.id, "typo", 1)]
    )
    assert isinstance(told[0], Buffered)
    assert told[1:3] == [NotFound("nobody"), Finished(gone.id, "failed")]
    assert isinstance(told[3], Refused) and "typo" in str(told[3].error)
    assert [one.name for one in await both.client.buffered(run.id)] == ["note"]


async def test_a_question_is_answered(both: Both) -> None:
    run = await both.client.start("reply")
    assert await both.client.ask(run.id, note, 7, type=dict[str, int]) == {"to": 7}
    with pytest.raises(BadHint):  # and nothing was sent
        await both.client.ask(run.id, note, 8, type=object())
    with pytest.raises(Undecodable, match="the reply to signal 'note' does not fit the type"):
        await both.client.ask(run.id, note, 9, type=int)
    answered = [one.value for one in await run.history() if one.kind == "wait" and one.value]
    assert answered == [7, 9]
    silent = await both.client.start("narrow")
    with pytest.raises(TimeoutError, match="has not answered signal 'verdict' within"):
        await both.client.ask(silent.id, "verdict", {}, timeout="1ms")


@pytest.mark.parametrize(("asked_for", "patience_s"), [("50s", 55), (None, 65), ("3s", 8)])
async def test_a_question_is_waited_for_as_long_as_the_server_holds_it(
    asked_for: str | None, patience_s: int
) -> None:
    waited: list[float] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        waited.append(request.extensions["timeout"]["read"])
        return httpx2.Response(200, json={"value": 1})

    transport = httpx2.MockTransport(answer)
    async with Client("http://localhost", timeout="5s", transport=transport) as client:
        assert await client.ask("run", "note", 1, timeout=asked_for) == 1
    assert waited == [patience_s]


async def test_streams_come_as_they_were_published(served: Both) -> None:
    run = await served.client.start("decide", "o")
    for wrong in ({"after": -1}, {"follow": "yes"}, {"type": object()}):
        with pytest.raises((BadValue, BadHint)):  # at once, as in the library
            run.stream("log", **wrong)  # type: ignore[call-overload]
    read = run.stream("log", type=datetime)
    first = await anext(read)
    assert (first.position, first.value) == (1, datetime(2030, 1, 1, tzinfo=UTC))
    await run.cancel()
    assert [one async for one in read] == []
    assert [one.value async for one in run.stream("log", follow=False)] == [first.value]
    assert [one.name for one in await run.streams()] == ["log"]


async def test_steering(both: Both) -> None:
    run = await both.client.start("decide", "o")
    assert await run.pause("a moment") in ("paused", "running", "waiting")
    assert (await run.info()).reason == "a moment"
    await run.resume()
    fork = await run.fork(id="forked")
    assert (fork.id, fork.created) == ("forked", True)
    document = await run.export()
    copy = await both.client.import_run(document, id="copied")
    assert copy.created
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result()


async def test_code_that_is_here_means_its_own_version(both: Both) -> None:
    """The server may have a newer one: a mere name means that."""
    old = App("memory://")

    @old.workflow(name="decide", version=7)
    async def older(ctx: Context, order: str) -> str:
        return order

    decide = both.workflow("decide")
    assert (await (await both.client.start(decide, "o")).info()).version == 1
    for call in (
        both.client.start(older, "o"),
        both.client.signal_with_start(older, "o", signal=verdict, payload=_yes, id="x"),
    ):
        with pytest.raises(UnknownWorkflow, match="version 7"):
            await call
    with pytest.raises(BadValue, match="give its name"):
        await both.client.start(decide, "o", version=1)  # type: ignore[call-overload]
    with pytest.raises(BadValue, match="must be a Signal"):
        await both.client.signal_with_start(decide, "o", signal="verdict", payload=_yes, id="x")
    run, sent = await both.client.signal_with_start(
        "decide", "o", signal="verdict", payload={"ok": True, "at": "2030-05-01T12:00:00Z"}, id="x"
    )
    assert isinstance(sent, Buffered | Delivered)
    assert await run.result() == {"ok": True, "at": "2030-05-01T12:00:00Z"}


async def test_what_a_signal_had_answered_is_answered_anew_by_a_typed_value(both: Both) -> None:
    run = await both.client.start("strict", "o")
    await both.client.signal(run.id, verdict, _no)
    with pytest.raises(RunFailed, match="refused"):
        await run.result()
    (wait,) = [one for one in await run.history() if one.kind == "wait"]
    await run.retry(wait.path, payload=_yes)
    assert await run.result() == "o"
    fork = await run.fork(wait.path, input=("other",), id="forked", tags={"a": "b"}, priority=0)
    assert (await fork.info()).tags == {"a": "b"}
    with pytest.raises(InvalidPayload, match="neither JSON"):
        await run.fork(input=object())


# --- the rest -------------------------------------------------------------------------------------


async def test_events_and_queues(both: Both) -> None:
    client = both.client
    told = await client.emit(arrived, 3, entity="sku/7", key="once")
    assert isinstance(told, Emitted)
    assert await client.emit(arrived, 3, entity="sku/7", key="once") == Duplicate(told)
    with pytest.raises(InvalidPayload):
        await client.emit("stock.arrived", "three")
    many = await client.emit_many([Fact(topic="a.b", payload=1), ("a.c", 2), ("bad topic!", 1)])
    assert [type(one) for one in many] == [Emitted, Emitted, Refused]
    event = await client.latest(arrived, entity="sku/7")
    assert event is not None and await client.event(event.event_id) == event
    assert (await client.timeline("sku/7")).items == [event]
    assert (await client.events("stock.*")).items == [event]
    first = await client.events(limit=1)
    assert first.cursor is not None
    assert (await client.events(limit=1, after=first.cursor))[0].position == first[0].position + 1
    structured = both.app.as_cloudevents(event)
    assert isinstance((await client.emit_cloudevents(structured))[0], Duplicate)
    assert isinstance(await client.put(jobs, 1), Queued)
    assert await client.queues() == {"jobs": 1}
    assert [one.payload for one in await client.queue_items(jobs)] == [1]
    assert await client.purge(jobs) == 1


async def test_following_the_ledger_and_a_run(served: Both) -> None:
    run = await served.client.start("decide", "o")
    follow = served.client.follow("stock.*", after=0, runs=[run.id])
    await served.client.emit(arrived, 1)
    seen: list[Event | RunInfo] = []
    async for one in follow:
        seen.append(one)
        if len(seen) == 2:
            await run.terminate()
        if isinstance(one, RunInfo) and one.status == "terminated":
            break
    await follow.aclose()
    assert any(isinstance(one, Event) and one.payload == 1 for one in seen)


async def test_approvals_are_decided_in_ones_own_name_or_by_link(both: Both) -> None:
    client = both.client
    runs = [await client.start("ask") for _ in range(2)]
    async with asyncio.timeout(10):
        while len(found := await client.approvals(name="agreed")) < 2:  # noqa: ASYNC110 (a row, not an object)
            await asyncio.sleep(0)
    by_run = {one.run_id: one for one in found}
    first = by_run[runs[0].id].id
    decided = await client.decide(first, "yes", by="anna", comment="fine", key="x")
    assert await client.decide(first, "yes", by="anna", comment="fine", key="x") == Duplicate(
        decided
    )
    with pytest.raises(ApprovalClosed) as closed:
        await client.decide(first, "no", by="bert")
    assert (closed.value.by, closed.value.choice) == ("anna", "yes")
    assert await runs[0].result() == "yes"
    link = await client.approval_link(
        by_run[runs[1].id].id, by="bert", url="https://shop.example/a"
    )
    assert (await client.answer(link, "no")).run_id == runs[1].id
    assert await runs[1].result() == "no"


async def test_lists_say_the_same_as_in_the_library(both: Both) -> None:
    client, app = both.client, both.app
    run = await app.start("ask")
    await app.start("pay", "anna")
    await app.start("decide", "o", id="waiting")
    async with asyncio.timeout(10):
        while len(found := await app.approvals()) < 2:  # noqa: ASYNC110 (a row, not an object)
            await asyncio.sleep(0)
    annas: list[Any] = [None, "anna", ["anna"], ("anna", "group:finance")]
    for who in annas:
        assert await client.approvals(who=who) == await app.approvals(who=who) == found
    for nobodys in ([], ()):
        assert await client.approvals(who=nobodys) == await app.approvals(who=nobodys)
        assert [one.name for one in await client.approvals(who=nobodys)] == ["agreed"]
    statuses: list[Any] = [None, [], (), "waiting", ["waiting", "failed"], {"failed"}]
    for status in statuses:
        assert await client.runs(status=status) == await app.runs(status=status)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("approvals", {"who": {"anna"}}),
        ("approvals", {"who": [""]}),
        ("approvals", {"who": [1]}),
        ("approvals", {"who": 1}),
        ("runs", {"status": 1}),
        ("runs", {"status": ["done"]}),
    ]
    for verb, given in wrong:
        for one in (client, app):
            with pytest.raises(BadValue):
                await getattr(one, verb)(**given)
    for one in (client, app):
        with pytest.raises(BadValue, match="groups"):
            await one.decide(found[0].id, "yes", by="anna", groups="finance")
    with pytest.raises(BadValue, match="runs"):
        await anext(client.follow(runs=run.id))


async def test_a_tag_may_hold_what_stands_between_name_and_value(both: Both) -> None:
    client, app = both.client, both.app
    await app.start("decide", "o", id="r1", tags={"a:b": "c"})
    await app.start("decide", "o", id="r2", tags={"a": "b:c"})
    await app.start("decide", "o", id="r3", tags={"a": "b", "é&=": "?"})
    found = {
        ("a:b", "c"): ["r1"],
        ("a", "b:c"): ["r2"],
        ("a", "b"): ["r3"],
        ("é&=", "?"): ["r3"],
        "a:b": ["r1"],
        "a": ["r3", "r2"],
        "b": [],
        "": [],
        ("a", ""): [],
        None: ["r3", "r2", "r1"],
    }
    tags: list[Any] = list(found)
    for tag in tags:
        assert [one.id for one in await client.runs(tag=tag)] == found[tag]
        assert [one.id for one in await app.runs(tag=tag)] == found[tag]
    wrong: list[Any] = [("a",), ("a", 1), ["a", "b"], 1]
    for tag in wrong:
        for one in (client, app):
            with pytest.raises(BadValue, match="tag"):
                await one.runs(tag=tag)


async def test_who_speaks_for_another_does_not_lend_them_groups() -> None:
    """As in the library, where nobody has groups who was given none."""
    text = "t" * 32
    token = Token.of(text, name="desk", scopes=["operate", "signal", "read"], groups=["finance"])
    app = shop()
    transport = httpx2.ASGITransport(create_app(app, tokens=[token]), client=("127.0.0.1", 1))
    async with app, Client("http://localhost", text, transport=transport) as client:
        run = await app.start("pay", "group:finance")
        async with asyncio.timeout(10):
            while not (found := await app.approvals()):  # noqa: ASYNC110 (a row, not an object)
                await asyncio.sleep(0)
        for one in (client, app):
            with pytest.raises(NotAllowed):
                await one.decide(found[0].id, "approve", by="bert")
        await client.decide(found[0].id, "approve")
        assert await run.result() == "desk"


async def test_schedules_pools_and_readers(both: Both) -> None:
    client = both.client
    await client.schedule(timedelta(hours=2), "decide", "nightly", name="often")
    await client.schedule("0 3 * * *", both.workflow("decide"), "nightly", name="nightly")
    found = {one.name: one for one in await client.schedules()}
    assert found["often"].every == timedelta(hours=2) and found["nightly"].every == "0 3 * * *"
    assert [*found.values()] == [*await both.app.schedules()]
    await client.pause_schedule("often", "quiet")
    assert (await client.trigger("often")).created
    assert (await client.set_pool("narrow", limit=None, per_key=3)).per_key == 3
    assert (await client.reset_pool("narrow")).limit == 1
    await client.subscribe("stock.*", "fail", name="rule", where="payload > 3")
    assert [one.name for one in await client.subscriptions()] == ["rule"]
    await client.enable_subscription("rule", False)
    assert await client.unsubscribe("rule") and not await client.unsubscribe("rule")
    await client.pause_consumer("workflow_runner", "stop")
    assert (await client.consumers())[0].paused
    await client.resume_consumer("workflow_runner")
    assert (await client.replay("workflow_runner")).dry_run
    assert (await client.health()).status == "ok"
    assert await client.catalogue() == await both.app.catalogue()
    assert await client.channels() == await both.app.channels()
    assert await client.counts() == await both.app.counts()
    assert (await client.doctor()).kind == "memory"
    assert (await client.fsck()).ok
    assert [one.worker_id for one in await client.workers()] == [
        one.worker_id for one in await both.app.workers()
    ]


# --- who may, and whether anybody is there --------------------------------------------------------


async def test_a_token_and_its_scopes() -> None:
    text = "t" * 32
    tokens = [Token.of(text, name="reader", scopes=["read"])]
    async with AsyncExitStack() as stack:
        app = shop()
        await stack.enter_async_context(app)
        api = create_app(app, tokens=tokens)
        transport = httpx2.ASGITransport(api, client=("203.0.113.9", 1))

        async def client(token: str | None) -> Client:
            return await stack.enter_async_context(
                Client("http://example.com", token, transport=transport)
            )

        reader = await client(text)
        assert (await reader.me()).scopes == ["read"]
        assert (await reader.runs()).items == []
        with pytest.raises(ScopeMissing) as missing:
            await reader.start("fail")
        assert (missing.value.scope, missing.value.has) == ("signal", ["read"])
        for wrong in (None, "x" * 32):
            with pytest.raises(NotAuthenticated):
                await (await client(wrong)).runs()


async def test_no_server_and_an_answer_that_is_lost() -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    def lose(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadError("gone")

    async with Client("http://localhost", transport=httpx2.MockTransport(refuse)) as client:
        with pytest.raises(Unreachable, match="nothing was sent"):
            await client.emit("a.b")
    async with Client("http://localhost", transport=httpx2.MockTransport(lose)) as client:
        with pytest.raises(OutcomeUnknown, match="same key"):
            await client.emit("a.b")
        with pytest.raises(Unreachable):
            await client.runs()


async def test_an_answer_of_something_between() -> None:
    def bad_gateway(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(502, text="<html>oops</html>")

    async with Client("http://localhost", transport=httpx2.MockTransport(bad_gateway)) as client:
        with pytest.raises(PerdureError, match="502"):
            await client.runs()


# What something between a client and its server says in place of the server.
LOGIN = "https://login.example/in"
BETWEEN = {
    "302 to": httpx2.Response(302, headers={"location": f"{LOGIN}?state=s3cret"}),
    "200 (text/html)": httpx2.Response(200, html="<html>Sign in</html>"),
    "200 (no type": httpx2.Response(200),
    "202 (application/json)": httpx2.Response(202, json={}),
}
WRITES: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "pause_consumer": lambda client: client.pause_consumer("c"),
    "resume_consumer": lambda client: client.resume_consumer("c"),
    "drop_consumer": lambda client: client.drop_consumer("c"),
    "subscribe": lambda client: client.subscribe("a.*", "w", name="rule"),
    "enable_subscription": lambda client: client.enable_subscription("rule"),
    "schedule": lambda client: client.schedule("1h", "w"),
    "pause_schedule": lambda client: client.pause_schedule("w"),
    "resume_schedule": lambda client: client.resume_schedule("w"),
    "emit": lambda client: client.emit("a.b"),
    "trigger": lambda client: client.trigger("w"),
}


def answering(response: httpx2.Response) -> Client:
    transport = httpx2.MockTransport(lambda request: response)
    return Client("http://localhost", transport=transport)


@pytest.mark.parametrize("said", BETWEEN)
async def test_only_what_the_server_answers_is_an_answer(said: str) -> None:
    """A proxy that wants somebody to sign in has done nothing of what was asked."""
    async with answering(BETWEEN[said]) as client:
        for verb, ask in WRITES.items():
            with pytest.raises(OutcomeUnknown, match=re.escape(said)) as lost:
                await ask(client)
            assert verb in str(lost.value) and "s3cret" not in str(lost.value)
            assert (LOGIN in str(lost.value)) == (said == "302 to")
        for read in (client.runs(), client.health(), client.run("r").info()):
            with pytest.raises(BadRequest, match=re.escape(said)):
                await read


async def test_an_answer_of_another_kind_than_the_verb_has() -> None:
    async with answering(httpx2.Response(200, json={"status": "ok"})) as client:
        for ask in WRITES.values():
            with pytest.raises(OutcomeUnknown):
                await ask(client)
        with pytest.raises(BadRequest, match="a form that this client does not know"):
            await client.runs()
    async with answering(httpx2.Response(204)) as client:
        with pytest.raises(OutcomeUnknown, match="204"):
            await client.trigger("w")
        with pytest.raises(BadRequest, match="204"):
            await client.runs()
        assert await client.pause_consumer("c") is None  # type: ignore[func-returns-value]


async def test_a_client_that_is_not_open_or_has_no_address() -> None:
    with pytest.raises(NotRunning):
        await Client("http://localhost").runs()
    with pytest.raises(BadValue, match="address"):
        Client("localhost:80")
