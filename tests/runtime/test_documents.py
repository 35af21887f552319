"""Runs as documents: exported as plain data, imported as they were, and nothing of what is no document."""

import copy
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from test_replay import charge, reserve, ship

from perdure import (
    App,
    BadDocument,
    Conflict,
    Context,
    Retry,
    RunCancelled,
    RunFailed,
    RunNotFound,
    Signal,
    SignalTaken,
    StepInfo,
    TimedOut,
    Topic,
    UnknownPool,
    step,
    timer,
)
from perdure.model import limits
from perdure.play import Act, Play
from perdure.testing import World, replay_check

go = Signal("go", int)
line = Signal("line", int, buffer="all")
once = Signal("once", int, buffer="first")
paid = Topic("order.paid", int)


@dataclass
class Order:
    id: str
    total: float


def shop() -> App:
    app = App("memory://")

    @app.workflow
    async def flow(ctx: Context, order: Order) -> list[Any]:
        drawn = ctx.ulid()
        await ctx.set("state", "begun")
        one = await ctx.step(reserve)
        match await ctx.wait(go | timer("48h")):
            case TimedOut():
                return [order.id, drawn, one, "late"]
            case got:
                return [order.id, drawn, one, got, await ctx.step(ship), ctx.ulid()]

    @app.workflow
    async def bad(ctx: Context) -> None:
        await ctx.step(fails)

    @app.workflow(signals=[once, line, go])
    async def hears(ctx: Context) -> list[int]:
        got = [await ctx.wait(once), await ctx.wait(line)]
        await ctx.wait(go)
        return [*got, await ctx.wait(line)]

    return app


@step
async def fails() -> None:
    raise ValueError("no luck")


def through_json(document: dict[str, Any]) -> dict[str, Any]:
    """As it comes out of a file: what is told must be in it."""
    text = json.dumps(document)
    read: dict[str, Any] = json.loads(text)
    assert read == document
    return read


async def test_a_live_run_goes_on_in_another_store(world: Any) -> None:
    async with World(shop()) as home:
        run = await home.app.start(
            "flow", Order("o-7", 2.5), id="a", tags={"x": "1"}, entity="order/7"
        )
        await home.settle()
        document = through_json(await run.export())
        assert await run.status() == "waiting"  # it is only read
        async with world(shop()) as w:
            there = await w.app.import_run(document)
            assert there.created and there.id == "a"
            await w.settle()
            info = await there.info()
            assert (info.status, info.tags, info.entity) == ("waiting", {"x": "1"}, "order/7")
            assert info.created_at == (await run.info()).created_at
            assert await there.get("state") == "begun"
            await w.evict()
            for app, settle in ((w.app, w.settle), (home.app, home.settle)):
                await app.signal("a", go, 3)
                await settle()
            assert await there.result() == await run.result()
            (fact,) = await w.facts("workflow.run_imported")
            assert fact.entity_id == "7"


async def test_its_waits_keep_their_deadlines(world: Any) -> None:
    async with World(shop()) as home:
        run = await home.app.start("flow", Order("o", 1.0), id="a")
        await home.settle()
        await home.advance("1h")
        until = (await run.waiting())[0].until
        document = await run.export()
    async with world(shop()) as w:
        await w.app.import_run(document)
        await w.settle()
        (waiting,) = await w.app.waiting("a")
        assert waiting.until == until
        assert until is not None
        await w.advance(until - (await w.app.run("a").info()).created_at - timedelta(seconds=1))
        assert await w.app.run("a").status() == "waiting"
        await w.advance("1s")
        assert (await w.app.run("a").result())[-1] == "late"


async def test_one_that_had_ended_is_read_as_it_was(world: Any) -> None:
    async with World(shop()) as home:
        runs = {
            "completed": await home.app.start("flow", Order("o", 1.0), id="completed"),
            "failed": await home.app.start("bad", id="failed"),
            "cancelled": await home.app.start("flow", Order("o", 1.0), id="cancelled"),
            "terminated": await home.app.start("flow", Order("o", 1.0), id="terminated"),
        }
        await home.settle()
        await home.app.signal("completed", go, 1)
        await runs["cancelled"].cancel("enough")
        await runs["terminated"].terminate("enough")
        await home.settle()
        documents = {name: through_json(await run.export()) for name, run in runs.items()}
        histories = {name: await run.history() for name, run in runs.items()}
        result = await runs["completed"].result()
    async with world(shop()) as w:
        for name, document in documents.items():
            there = await w.app.import_run(document)
            await w.settle()
            assert await there.status() == name
            shown = [one for one in histories[name] if one.status != "superseded"]
            assert (await there.history()).items == shown
        assert await w.app.run("completed").result() == result
        with pytest.raises(RunFailed, match="no luck"):
            await w.app.run("failed").result()
        with pytest.raises(RunCancelled, match="enough"):
            await w.app.run("cancelled").result()
        await w.app.run("failed").retry()
        await w.settle()
        assert await w.app.run("failed").status() == "failed"


async def test_one_that_was_paused_stays_so(world: Any) -> None:
    async with World(shop()) as home:
        run = await home.app.start("flow", Order("o", 1.0), id="a")
        await home.settle()
        await run.pause("for the move")
        await home.app.signal("a", go, 5)
        document = await run.export()
    async with world(shop()) as w:
        there = await w.app.import_run(document)
        await w.settle()
        info = await there.info()
        assert (info.status, info.reason) == ("paused", "for the move")
        await there.resume()
        await w.settle()
        assert (await there.result())[3] == 5


async def test_what_is_buffered_and_what_was_answered_go_along(world: Any) -> None:
    async with World(shop()) as home:
        run = await home.app.start("hears", id="a")
        await home.settle()
        await home.app.signal("a", once, 1)
        for nth in (2, 3):
            await home.app.signal("a", line, nth)
        await home.settle()
        document = through_json(await run.export())
        assert document["answered"] == [["once", None]]
        assert [one["payload"] for one in document["signals"]] == ["3"]
    async with world(shop()) as w:
        there = await w.app.import_run(document, id="b")
        await w.settle()
        with pytest.raises(SignalTaken):
            await w.app.signal("b", once, 7)
        await w.app.signal("b", go, 1)
        await w.settle()
        assert await there.result() == [1, 2, 3]


async def test_a_first_signal_in_the_buffer_holds_its_claim(world: Any) -> None:
    app = App("memory://")

    @app.workflow(signals=[once, go])
    async def flow(ctx: Context) -> int:
        await ctx.wait(go)
        return await ctx.wait(once)

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.signal(run.id, once, 4)
        copied = await w.app.import_run(await run.export(), id="b")
        await w.settle()
        with pytest.raises(SignalTaken):
            await w.app.signal("b", once, 7)
        await w.app.signal("b", go, 0)
        await w.settle()
        assert await copied.result() == 4
        assert await run.status() == "waiting"


async def test_under_another_id_it_is_a_copy(world: Any) -> None:
    async with world(shop()) as w:
        run = await w.begin("flow", Order("o", 1.0), id="a")
        copied = await w.app.import_run(await run.export(), id="b")
        await w.settle()
        for one in (run, copied):
            await w.app.signal(one.id, go, 3)
        await w.settle()
        await w.evict()
        first, second = await run.result(), await copied.result()
        assert first[:5] == second[:5] and first[5] != second[5]  # drawn before, and after


async def test_chance_before_what_was_open_is_as_it_was(world: Any) -> None:
    """Code that waits for what it drew would not know its own wait."""
    app = App("memory://")

    @app.workflow
    async def flow(ctx: Context) -> Any:
        await ctx.step(reserve)
        about = f"order/{ctx.ulid()}"
        return [about, await ctx.wait(paid.about(about))]

    async with world(app) as w:
        run = await w.begin(flow)
        copied = await w.app.import_run(await run.export(), id="b")
        await w.settle()
        (waiting,) = await copied.waiting()
        assert waiting.entity == (await run.waiting())[0].entity
        again = await w.app.import_run(await copied.export(), id="c")
        await w.app.emit(paid, 1, entity=waiting.entity)
        await w.settle()
        assert await copied.result() == await run.result() == await again.result()


async def test_in_another_store_topics_begin_at_the_end_of_its_ledger(world: Any) -> None:
    app = App("memory://")

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return [await ctx.wait(paid) for _ in range(2)]

    async with World(app) as home:
        run = await home.app.start(flow, id="a")
        await home.settle()
        for _ in range(20):
            await home.app.emit("filler")
        await home.app.emit(paid, 1)
        await home.settle()
        document = await run.export()
    async with world(app) as w:
        await w.app.emit(paid, 7)
        there = await w.app.import_run(document)
        await w.settle()
        assert await there.status() == "waiting"
        await w.app.emit(paid, 2)
        await w.settle()
        assert await there.result() == [1, 2]


async def test_a_step_between_two_attempts_is_tried_again(world: Any) -> None:
    healthy = False

    @step(retry=Retry(attempts=9, backoff="1h", max_backoff="1h", jitter=0))
    async def shaky() -> str:
        if not healthy:
            raise OSError("down")
        return "worked"

    app = App("memory://")

    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(shaky)

    async with world(app) as w:
        run = await w.begin(flow)
        document = await run.export()
        assert [one["state"] for one in document["history"]] == ["retrying"]
        copied = await w.app.import_run(document, id="b")
        await w.settle()
        healthy = True
        await w.advance("59m")
        assert await copied.status() == "sleeping"
        await w.advance("1m")
        assert await copied.result() == "worked"


async def test_a_run_that_is_to_start_later_and_one_in_a_pool(world: Any) -> None:
    from perdure import Pool

    app = App("memory://")

    @app.workflow(pool=Pool("gpu", limit=1))
    async def flow(ctx: Context) -> str:
        return await ctx.step(charge)

    async with world(app) as w:
        run = await w.begin(flow, start_at="1h")
        document = await run.export()
        copied = await w.app.import_run(document, id="b")
        assert (await copied.info()).starts_at == (await run.info()).starts_at
        await w.advance("1h")
        assert await copied.result() == "charged"
    async with World(App("memory://")) as bare:
        with pytest.raises(UnknownPool):
            await bare.app.import_run(document)


async def test_the_same_document_again_is_found_and_another_refused(world: Any) -> None:
    async with world(shop()) as w:
        run = await w.begin("flow", Order("o", 1.0), id="a")
        document = await run.export()
        first = await w.app.import_run(document, id="b")
        await w.settle()
        await w.app.signal("b", go, 1)
        await w.settle()
        again = await w.app.import_run(through_json(document), id="b")
        assert (first.created, again.created) == (True, False)
        assert await again.result() == await first.result()
        with pytest.raises(Conflict, match="'a' exists"):
            await w.app.import_run(document)
        await w.app.signal("a", go, 1)
        await w.settle()
        with pytest.raises(Conflict, match="'b' exists"):
            await w.app.import_run(await run.export(), id="b")


async def test_who_is_not_there_cannot_be_exported(world: Any) -> None:
    async with world(shop()) as w:
        with pytest.raises(RunNotFound):
            await w.app.run("nobody").export()


# --- what is no document -----------------------------------------------------------------------------


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A document with something else at one place; `...` takes it away."""
    document = copy.deepcopy(document)
    at: Any = document
    *parts, last = [int(one) if one.isdigit() else one for one in path.split(".")]
    for part in parts:
        at = at[part]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return document


LATE = 253_402_300_800_000_000  # the year 10000
DEEP = "[" * 200_000 + "]" * 200_000
GO = {"kind": "signal", "target": "go"}
TIMER = {"kind": "timer"}


def told_wait(*on: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"on": on, **fields})


def told_error(**fields: Any) -> str:
    return json.dumps({"kind": "step", "type": "OSError", "message": "no", **fields})


def own(kind: str, path: str, value: str | None) -> dict[str, Any]:
    """A record such as the engine makes by itself."""
    return {"path": path, "kind": kind, "name": "", "state": "done", "seq": 1, "value": value}


BROKEN: list[tuple[str, Any, str]] = [
    ("format", "perdure.run/2", "has the format 'perdure.run/2'; this code reads 'perdure.run/1'"),
    ("format", ..., "has the format None"),
    ("run", ..., "missing required field `run`"),
    ("run", [], r"\$.run"),
    ("more", 1, "unknown field `more`"),
    ("run.more", 1, "unknown field `more`"),
    ("run.id", 7, r"\$.run.id"),
    ("run.id", "", "run, run id '' is empty"),
    ("run.workflow", "a/b", "workflow name 'a/b'"),
    ("run.version", 0, r"\$.run.version"),
    ("run.version", True, r"\$.run.version"),
    ("run.status", "dead", r"\$.run.status"),
    ("run.status", "completed", "is completed, and finished_at is None"),
    ("run.finished_at", 5, "is waiting, and finished_at is 5"),
    ("run.output", "1", "is waiting, and output is '1'"),
    ("run.error", "{}", "is waiting, and error is '{}'"),
    ("run.input", "{}", "input is no such JSON"),
    ("run.input", "[", "input is no such JSON"),
    ("run.input", "[" * 70 + "]" * 70, "payload nests"),
    ("run.created_at", 2**70, r"\$.run.created_at"),
    ("run.created_at", 1.5, r"\$.run.created_at"),
    ("run.generation", -1, r"\$.run.generation"),
    ("run.tags", {"a": 1}, r"\$.run.tags"),
    ("run.tags", {"a": "\x00"}, "control character"),
    ("run.entity", "order", "entity 'order'"),
    ("run.event_id", "", "key '' is empty"),
    ("run.reason", "\x00", "zero byte"),
    ("run.published", "[]", "published is no such JSON"),
    ("run.pool", "a/b", "pool name"),
    ("run.pool_key", "k", "pool_key or priority without a pool"),
    ("run.priority", 3, "pool_key or priority without a pool"),
    ("run.cancel_on", [["", ""]], "topic name"),
    ("run.cancel_on", [["a", "b"]], "entity 'b'"),
    ("run.cancel_on", [["a", ""]] * 17, "17 topics"),
    ("run.parent_id", "", "run id"),
    ("run.forked", [["", 1]], "run id"),
    ("run.forked", [["a", 1]] * 101, "forks_max"),
    ("run.forked", [[]], r"\$.run.forked"),
    ("history", {}, r"\$.history"),
    ("history.0", 7, r"\$.history\[0\]"),
    ("history.0.path", "", r"history\[0\], path '' is empty"),
    (
        "history.0.path",
        "!cancel",
        r"history\[0\], has the path '!cancel', which is the engine's own",
    ),
    ("history.0.path", "reserve", "is the second at 'reserve'"),
    ("history.0.kind", "nap", r"\$.history\[0\].kind"),
    (
        "history.0.kind",
        "cancel",
        "is a cancel, and is not done at '!cancel'",
    ),
    ("history.0.name", "a/b", "step name"),
    ("history.0.state", "superseded", r"\$.history\[0\].state"),
    ("history.0.state", "open", "is open, and seq is"),
    ("history.0.seq", 0, "is done, and seq is 0"),
    ("history.0.seq", -4, r"\$.history\[0\].seq"),
    ("history.0.value", "nope", "value is no such JSON"),
    ("run.version", 2**60, r"\$.run.version"),
    ("history.0.value", "1e999999999999999999999", "value is no such JSON"),
    ("history.0.value", "\ud800", "surrogate"),
    ("history.0.error", told_error(), r"history\[0\], is done, and error is"),
    ("history.0.attempt", 0, r"\$.history\[0\].attempt"),
    ("history.0.wait", "{}", "and wait is '{}'"),
    ("history.2.wait", None, "is a wait, and wait is None"),
    ("history.2.wait", "{}", "missing required field `on`"),
    ("history.2.wait", '{"on":[]}', "waits for 0 conditions"),
    ("history.2.wait", '{"on":[{"kind":"nap"}]}', "Invalid enum value 'nap'"),
    ("history.2.wait", '{"on":[{"kind":"signal","target":"\\u0000"}]}', "signal name"),
    ("history.2.wait", '{"on":[{"kind":"run"}]}', "run id"),
    ("history.2.wait", '{"on":[{"kind":"timer"}],"deadline_ix":4}', "deadline_ix"),
    ("history.2.wait", '{"on":[{"kind":"timer"}],"after":[1,2]}', "`after`"),
    ("history.2.wait", f'{{"on":[{{"kind":"timer","until_at":{2**65}}}]}}', "has the until_at"),
    ("history.2.state", "done", "is done, and seq is 0"),
    ("history.2.state", "retrying", "is retrying, and is no step"),
    ("history.2.winner", 9, "has a winner that is none of its conditions"),
    ("history.2.winner", 0, "is open, and has a winner"),
    ("run.created_at", LATE, r"\$.run.created_at"),
    ("run.created_at", -LATE, r"\$.run.created_at"),
    ("run.starts_at", LATE, r"\$.run.starts_at"),
    ("run.deadline_at", LATE, r"\$.run.deadline_at"),
    ("run.depth", 2**62, r"\$.run.depth"),
    ("run.generation", 2**62, r"\$.run.generation"),
    ("history.0.attempt", 2**62, r"\$.history\[0\].attempt"),
    ("history.0.recorded_at", LATE, r"\$.history\[0\].recorded_at"),
    ("run.forked", [["a", 2**63]], "forked at 9223372036854775808"),
    ("run.forked", [["a", -1]], "forked at -1"),
    ("run.forked", [["a", 1, LATE]], "outside the years 1 to 9999"),
    ("run.forked", [["a", 1, None, ["\0"]]], "control character"),
    ("run.forked", [["a", 1, None, [""]]], "path '' is empty"),
    ("history.2.wait", told_wait(TIMER, deadline_at=5), "deadline_at 5 with the deadline_ix None"),
    ("history.2.wait", told_wait(TIMER, deadline_ix=0), "deadline_at None with the deadline_ix 0"),
    ("history.2.wait", told_wait(GO, deadline_at=5, deadline_ix=0), "is a signal, not a timer"),
    (
        "history.2.wait",
        told_wait(TIMER, deadline_at=LATE, deadline_ix=0),
        "outside the years 1 to 9999",
    ),
    ("history.2.wait", told_wait({**TIMER, "delay_us": -1}), "is no timer"),
    ("history.2.wait", told_wait({**TIMER, "until_at": LATE}), "outside the years 1 to 9999"),
    ("history.2.wait", told_wait(GO, branch="\0"), "control character"),
    ("history.2.wait", told_wait({**GO, "asks": "{}"}), "for a signal that asks people"),
    ("history.2.wait", '{"x":' + DEEP + "}", r"history\[2\], wait nests too deeply"),
    ("history.2.error", DEEP, r"history\[2\], error "),
    ("history.2.error", '{"x":' + DEEP + "}", r"history\[2\], error nests too deeply"),
    ("history.2.error", told_error(args=DEEP), "payload_nodes_max"),
    ("history.2.error", told_error(args="{}"), "args of the error is no such JSON"),
    ("history.2.error", told_error(), "is open, and error is"),
    ("history.0", own("cancel", "!cancel", "[]"), "tells of a cancel, and cancel_requested is fal"),
    ("history.0", own("cancel", "!cancel2", "[]"), "is a cancel, and is not done at '!cancel'"),
    ("history.0", own("cancel", "!cancel", None), "is a cancel that is done, and has no value"),
    ("history.0", own("cancel", "!cancel", '[""]'), "path '' is empty"),
    ("history.0", own("cancel", "!cancel", "7"), "value is no such JSON"),
    ("history.0", own("retry", "!retry#", "1"), "is not done at '!retry#' and a number"),
    ("history.0", own("retry", "!retry#x", "1"), "is not done at '!retry#' and a number"),
    ("history.0", own("retry", "!retry#1", None), "is a retry that is done, and has no value"),
    ("history.0", own("retry", "!retry#1", "-1"), "value is no such JSON"),
    ("history.0", {**own("publish", "reply", "1"), "name": "!others"}, "step name '!others'"),
    ("history.0", {**own("step", "reply", "1"), "name": "!replies"}, "step name '!replies'"),
    ("signals", [{"name": "go"}], r"\$.signals\[0\]"),
    ("answered", [["go"]], r"\$.answered\[0\]"),
    ("answered", [["", None]], "signal name"),
]


async def broken_at(app: App) -> dict[str, Any]:
    async with World(app) as home:
        run = await home.app.start("flow", Order("o", 1.0), id="a")
        await home.settle()
        return await run.export()


async def test_what_is_no_document_is_refused_and_nothing_is_written() -> None:
    app = shop()
    document = await broken_at(app)
    assert [one["path"] for one in document["history"]] == ["set.state", "reserve", "go"]
    async with World(app) as w:
        store = w.app._engine().store
        before = await store.counts()
        for path, value, problem in BROKEN:
            with pytest.raises(BadDocument, match=problem):
                await w.app.import_run(changed(document, path, value))
                pytest.fail(f"{path} = {value!r} was taken")
        for wrong in (None, [], "x", 7, b"{}"):
            with pytest.raises(BadDocument, match="not the dict"):
                await w.app.import_run(wrong)  # type: ignore[arg-type]
        with pytest.raises(BadDocument, match="is no JSON"):
            await w.app.import_run({**document, "run": {**document["run"], "x": object()}})
        assert await store.counts() == before
        await w.app.import_run(document)  # as it is it is good


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("emit", None),
        ("emit", "{}"),
        ("emit", '[{"outcome": "nothing"}]'),
        ("put", "[]"),
        ("put", '{"outcome": 7}'),
        ("signal", '{"duplicate_of": 1}'),
        ("signal", "{}"),
        ("publish", '"first"'),
        ("start", "7"),
    ],
)
async def test_what_is_no_answer_of_a_send_is_refused(kind: str, value: str | None) -> None:
    app = shop()
    document = await broken_at(app)
    document["history"][0].update(kind=kind, value=value)
    async with World(app) as w:
        with pytest.raises(BadDocument, match=r"history\[0\]"):
            await w.app.import_run(document)
        assert not (await w.app.runs()).items


async def test_what_was_between_two_attempts_is_carried(world: Any, app: App) -> None:
    """A step that is to be tried again, one whose branch has left it, one that a cancel met, an act of a play."""
    patient = Retry(attempts=9, backoff="1h", jitter=0)

    @app.step(retry=patient)
    async def shaky() -> None:
        raise OSError("down")

    @app.workflow
    async def tries(ctx: Context) -> None:
        await ctx.step(shaky)

    @app.workflow
    async def leaves(ctx: Context) -> None:
        async def fails() -> None:
            await ctx.wait(go)
            raise ValueError("no")

        try:
            await ctx.gather(tries.function(ctx), fails())
        except ValueError:
            await ctx.wait(Signal("end", int))

    async def act(ctx: StepInfo, order: Order) -> None:
        raise OSError("down")

    play = Play("acts", Order, [Act("shaky", act, retry=patient)])
    app.add(play)
    async with world(app) as w:
        trying, acting = await w.begin(tries), await w.begin(play, Order("o", 1.0))
        cancelled, left = await w.begin(tries), await w.begin(leaves)
        await cancelled.cancel()
        await w.app.signal(left.id, go, 1)
        await w.settle()
        for run in (trying, acting, cancelled, left):
            document = through_json(await run.export())
            replay_check(app, document)
            copied = await w.app.import_run(document, id=f"copy of {run.id}")
            await w.settle()
            was, now = await run.info(), await copied.info()
            assert (now.status, now.reason) == (was.status, was.reason)


async def test_nested_without_end_is_refused() -> None:
    app = shop()
    deep: dict[str, Any] = {}
    at = deep
    for _ in range(100_000):
        at["x"] = {}
        at = at["x"]
    async with World(app) as w:
        with pytest.raises(BadDocument):
            await w.app.import_run({"format": "perdure.run/1", "run": deep})
    while deep:  # taken apart from the outside: it would go on without end
        deep = deep.pop("x")


async def test_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    app = shop()
    document = await broken_at(app)
    async with World(app) as w:
        monkeypatch.setattr(limits, "document_bytes_max", 500)
        with pytest.raises(BadDocument, match="document_bytes_max"):
            await w.app.import_run(document)
        monkeypatch.undo()
        monkeypatch.setattr(limits, "document_rows_max", 2)
        with pytest.raises(BadDocument, match="document_rows_max"):
            await w.app.import_run(document)
