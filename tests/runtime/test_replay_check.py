"""replay_check: exported histories against the code of an app, with no store and no step run."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_replay import app_of, charge, ship

from perdure import (
    App,
    BadValue,
    Context,
    NonDeterminism,
    Retry,
    Signal,
    Undecodable,
    UnknownWorkflow,
    step,
)
from perdure.testing import ReplayFailed, World, replay_check

go = Signal("go", int)
ran: list[str] = []


@step
async def counted() -> str:
    ran.append("counted")
    return "counted"


async def old(ctx: Context) -> Any:
    return [await ctx.step(counted), await ctx.step(charge), await ctx.wait(go)]


async def changed(ctx: Context) -> Any:
    return [await ctx.step(counted), await ctx.step(ship), await ctx.wait(go)]


async def patched(ctx: Context) -> Any:
    one = await ctx.step(counted)
    two = await ctx.step(ship if ctx.patched("ship") else charge)
    return [one, two, await ctx.wait(go)]


async def longer(ctx: Context) -> Any:
    return [*await old(ctx), await ctx.step(ship)]


async def otherwise(ctx: Context) -> Any:
    return [*await old(ctx), "more"]


async def ends_badly(ctx: Context) -> Any:
    await old(ctx)
    raise ValueError("a new bug")


async def patched_at_the_end(ctx: Context) -> Any:
    got = await old(ctx)
    return [*got, await ctx.step(ship)] if ctx.patched("more") else got


async def recorded(body: Any = old, *, ended: bool = False, id: str = "a") -> dict[str, Any]:
    async with World(app_of(body)) as w:
        run = await w.app.start("flow", id=id)
        await w.settle()
        if ended:
            await w.app.signal(id, go, 3)
            await w.settle()
            assert await run.status() == "completed"
        return await run.export()


def failures_of(body: Any, *documents: dict[str, Any]) -> list[Any]:
    with pytest.raises(ReplayFailed) as failed:
        replay_check(app_of(body), documents)
    assert failed.value.count == len(documents)
    return failed.value.failures


async def test_the_same_code_replays_and_runs_no_step() -> None:
    documents = [await recorded(), await recorded(ended=True, id="b")]
    ran.clear()
    report = replay_check(app_of(old), documents)
    assert report.count == 2 and ran == []
    assert [(one.run_id, one.workflow, one.version) for one in report.runs] == [
        ("a", "flow", 1),
        ("b", "flow", 1),
    ]


async def test_other_code_is_named_with_path_recorded_and_asked() -> None:
    (failure,) = failures_of(changed, await recorded())
    assert isinstance(failure.error, NonDeterminism)
    assert (failure.run_id, failure.path) == ("a", "charge")
    assert failure.recorded == "step 'charge'" and "step 'ship'" in failure.asked


async def test_a_patch_mends_it() -> None:
    assert replay_check(app_of(patched), [await recorded(), await recorded(ended=True)]).count == 2
    assert replay_check(app_of(patched), await recorded(patched, ended=True)).count == 1


async def test_midway_new_calls_are_fine_and_after_the_end_they_are_not() -> None:
    assert replay_check(app_of(longer), await recorded()).count == 1
    (failure,) = failures_of(longer, await recorded(ended=True))
    assert failure.path == "ship" and "the end of the workflow" in failure.recorded
    assert failure.asked == "step 'ship'"
    assert replay_check(app_of(patched_at_the_end), await recorded(ended=True)).count == 1


@pytest.mark.parametrize(
    ("body", "asked"),
    [(otherwise, "to end with"), (ends_badly, "to end as failed: ValueError: a new bug")],
)
async def test_another_end_of_a_completed_run_is_found(body: Any, asked: str) -> None:
    (failure,) = failures_of(body, await recorded(ended=True))
    assert failure.path == "the end" and asked in failure.asked


async def test_every_document_that_does_not_fit_is_listed() -> None:
    good, other = await recorded(id="good"), await recorded(id="other")
    unknown = {**other, "run": {**other["run"], "id": "newer", "version": 2}}
    broken = {"format": "perdure.run/9"}
    failures = failures_of(old, unknown, good, broken)
    assert [one.run_id for one in failures] == ["newer", ""]
    assert isinstance(failures[0].error, UnknownWorkflow)
    assert "flow version 2" in str(failures[0].error) and "flow version 1" in str(failures[0].error)
    assert "perdure.run/9" in str(failures[1].error)


@dataclass
class Before:
    amount: int


@dataclass
class After:
    cents: int


async def test_a_type_that_changed_is_found() -> None:
    def made(kind: Any) -> App:
        app = App("memory://")

        async def price() -> Any:
            return Before(5)

        price.__annotations__["return"] = kind

        async def flow(ctx: Context, given: Any) -> None:
            await ctx.step(step(price))
            await ctx.wait(go)

        flow.__annotations__["given"] = kind
        app.workflow(name="flow")(flow)
        return app

    async with World(made(Before)) as w:
        run = await w.app.start("flow", Before(1))
        await w.settle()
        document = await run.export()
    assert replay_check(made(Before), document).count == 1
    with pytest.raises(ReplayFailed, match="the input"):
        replay_check(made(After), document)


async def test_a_signal_whose_type_changed_is_found() -> None:
    async def whole(ctx: Context) -> None:
        await ctx.wait(Signal("go", int))
        await ctx.wait(Signal("end", int))

    async def text(ctx: Context) -> None:
        await ctx.wait(Signal("go", str))
        await ctx.wait(Signal("end", int))

    async with World(app_of(whole)) as w:
        run = await w.app.start("flow")
        await w.settle()
        await w.app.signal(run.id, "go", 3)
        await w.settle()
        document = await run.export()
    (failure,) = failures_of(text, document)
    assert isinstance(failure.error, Undecodable) and failure.path == "go"
    # Also where nothing came after it: a run that is alive would have it rejected.
    document["history"] = [one for one in document["history"] if one["path"] == "go"]
    (failure,) = failures_of(text, document)
    assert isinstance(failure.error, Undecodable) and failure.path == "go"


async def test_what_a_run_has_in_it_is_all_replayed() -> None:
    """Branches, sleeps, children, sends, failures, dependencies, cancels, retries, generations."""
    app = App("memory://", deps=[{"a": 1}])
    healthy = False

    @step(retry=Retry(attempts=2, backoff="1s", jitter=0))
    async def shaky() -> str:
        if not healthy:
            raise OSError("down")
        return "worked"

    @app.workflow
    async def child(ctx: Context) -> int:
        return 7

    @app.workflow
    async def flow(ctx: Context, nth: int) -> list[Any]:
        assert ctx.dep(dict)["a"] == 1
        if nth == 0:
            await ctx.continue_as(flow, 1)

        async def one() -> Any:
            await ctx.sleep("1m")
            return await ctx.call(child)

        async def two() -> Any:
            await ctx.emit("some.event", {"x": 1})
            await ctx.put("some.queue", 1)
            await ctx.set("k", ctx.ulid())
            return await ctx.step(shaky)

        got = await ctx.gather(one(), two())
        return [*got, ctx.random()]

    async with World(app) as w:
        run = await w.app.start(flow, 0)
        await w.advance("2m")
        failed = await run.export()
        assert await run.status() == "failed"
        healthy = True
        await run.retry()
        await w.advance("2m")
        documents = [failed, await run.export()]
        assert await run.status() == "completed"
        late = await w.app.start(flow, 0)
        await w.settle()
        await late.cancel()
        await w.settle()
        documents.append(await late.export())
        assert await late.status() == "cancelled"
    assert replay_check(app, documents).count == 3


def test_files_and_folders(tmp_path: Path) -> None:
    documents = [asyncio.run(recorded(id=name)) for name in ("a", "b", "c")]
    (tmp_path / "one.json").write_text(json.dumps(documents[0]))
    (tmp_path / "more.json").write_text(json.dumps(documents[1:]))
    (tmp_path / "notes.txt").write_text("nothing")
    report = replay_check(app_of(old), tmp_path)
    assert [one.run_id for one in report.runs] == ["b", "c", "a"]
    assert report.runs[0].source == str(tmp_path / "more.json")
    assert replay_check(app_of(old), str(tmp_path / "one.json")).count == 1
    assert replay_check(app_of(old), [tmp_path, documents[0]]).count == 4
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ReplayFailed, match=r"bad.json.*is no JSON"):
        replay_check(app_of(old), tmp_path)


def test_a_check_of_nothing_is_refused(tmp_path: Path) -> None:
    wrong: list[tuple[Any, str]] = [
        (tmp_path, "hold no document"),
        ([], "hold no document"),
        (tmp_path / "none", "is no file and no folder"),
        (7, "neither"),
        ([7], "neither"),
    ]
    for given, problem in wrong:
        with pytest.raises(BadValue, match=problem):
            replay_check(app_of(old), given)
