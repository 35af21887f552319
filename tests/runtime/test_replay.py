"""Replay: the same code meets its own past; other code, foreign awaits and lost types are caught."""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import (
    App,
    Context,
    ForeignAwait,
    Retry,
    RunFailed,
    Signal,
    StepFailed,
    step,
    step_info,
    timer,
)
from perdure.testing import ReplayFailed, replay_check
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.words import done

go = Signal("go", int)
stop = Signal("stop", int)
line = Signal("line", int)

Body = Callable[[Context], Any]


@step
async def reserve() -> str:
    return "reserved"


@step
async def charge() -> str:
    return "charged"


@step
async def ship() -> str:
    return "shipped"


def app_of(body: Body) -> App:
    """An app whose one workflow `flow` is this code."""
    app = App("memory://")
    app.workflow(name="flow")(body)
    return app


# --- other code ----------------------------------------------------------------------------------


async def old(ctx: Context) -> Any:
    one = await ctx.step(reserve)
    two = await ctx.step(charge)
    three = await ctx.wait(go)
    return [one, two, three]


async def renamed(ctx: Context) -> Any:
    await ctx.step(reserve)
    await ctx.step(charge.options(name="bill"))
    return await ctx.wait(go)


async def reordered(ctx: Context) -> Any:
    await ctx.step(charge)
    await ctx.step(reserve)
    return await ctx.wait(go)


async def inserted(ctx: Context) -> Any:
    await ctx.step(reserve)
    await ctx.step(ship)
    await ctx.step(charge)
    return await ctx.wait(go)


async def dropped(ctx: Context) -> Any:
    await ctx.step(reserve)
    return await ctx.wait(go)


async def dropped_all(ctx: Context) -> Any:
    return "done"


async def other_kind(ctx: Context) -> Any:
    await ctx.step(reserve)
    await ctx.wait(stop, name="charge")
    return await ctx.wait(go)


async def other_kind_of_wait(ctx: Context) -> Any:
    await ctx.step(reserve)
    await ctx.step(charge)
    return await ctx.step(ship.options(name="go"))


async def fails_early(ctx: Context) -> Any:
    await ctx.step(reserve)
    raise ValueError("a new bug")


async def inserted_before_the_wait(ctx: Context) -> Any:
    seen = [await ctx.step(reserve), await ctx.step(charge)]
    await ctx.step(ship)
    return [*seen, await ctx.wait(go)]


async def without_the_wait(ctx: Context) -> Any:
    return [await ctx.step(reserve), await ctx.step(charge)]


async def fails_before_the_wait(ctx: Context) -> Any:
    await without_the_wait(ctx)
    raise ValueError("a new bug")


@pytest.mark.parametrize(
    ("new", "path", "recorded", "asked"),
    [
        (renamed, "charge", "step 'charge'", "step 'bill' at 'bill'"),
        (reordered, "reserve", "step 'reserve'", "step 'charge' at 'charge'"),
        (inserted, "charge", "step 'charge'", "step 'ship' at 'ship'"),
        (dropped, "charge", "step 'charge'", "wait 'go' at 'go'"),
        (dropped_all, "reserve", "step 'reserve'", "the end of the workflow"),
        (other_kind, "charge", "step 'charge'", "wait 'charge'"),
        (other_kind_of_wait, "go", "wait 'go'", "step 'go'"),
        (fails_early, "charge", "step 'charge'", "the end of the workflow"),
    ],
)
async def test_other_code_parks_the_run_and_the_old_code_finishes_it(
    world: Any, new: Body, path: str, recorded: str, asked: str
) -> None:
    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
    async with world(app_of(new)) as w:
        before = (await w.store.counts())["steps"]
        await w.app.signal("a", go, 3)
        await w.settle()
        run = w.app.run("a")
        info = await run.info()
        assert info.status == "paused"
        assert f"at {path!r} the history holds {recorded}" in (info.reason or "")
        assert f"asked for {asked}" in (info.reason or "")
        assert (await w.store.counts())["steps"] == before
        written = await w.store.counts(), await run.history(), await w.facts()
        await run.resume()
        await w.settle()
        assert await run.status() == "paused"
        assert (await w.store.counts(), await run.history(), await w.facts()) == written
    async with world(app_of(old)) as w:
        run = w.app.run("a")
        assert await run.status() == "paused"
        await run.resume()
        await w.settle()
        assert await run.result() == ["reserved", "charged", 3]
        assert (await run.info()).reason is None


@pytest.mark.parametrize(
    ("new", "asked"),
    [
        (inserted_before_the_wait, "step 'ship' at 'ship'"),
        (without_the_wait, "the end of the workflow"),
        (fails_before_the_wait, "the end of the workflow"),
    ],
)
async def test_what_is_open_must_be_asked_for_too(world: Any, new: Body, asked: str) -> None:
    """Else the wait would be ended by somebody, beside what the code does instead."""
    async with world(app_of(old)) as w:
        run = await w.begin("flow", id="a")
        document = await run.export()
        await run.pause()
    with pytest.raises(ReplayFailed, match="at 'go' the history holds wait 'go'"):
        replay_check(app_of(new), document)
    async with world(app_of(new)) as w:
        run = w.app.run("a")
        await run.resume()
        await w.settle()
        info = await run.info()
        assert info.status == "paused"
        assert f"wait 'go', but the code asked for {asked}" in (info.reason or "")
    async with world(app_of(old)) as w:
        await w.app.run("a").resume()
        await w.app.signal("a", go, 3)
        await w.settle()
        assert await w.app.run("a").result() == ["reserved", "charged", 3]


async def test_what_is_open_in_a_branch_must_be_asked_for_when_another_is_woken(world: Any) -> None:
    ran: list[str] = []

    @step
    async def noted() -> None:
        ran.append("noted")

    def made(new: bool) -> App:
        async def flow(ctx: Context) -> Any:
            async def one() -> Any:
                await ctx.step(reserve)
                if new:
                    await ctx.step(noted)
                return await ctx.wait(go)

            async def other() -> Any:
                return await ctx.wait(Signal("x", int))

            return await ctx.gather(one(), other())

        return app_of(flow)

    async with world(made(False)) as w:
        await w.begin("flow", id="a")
    async with world(made(True)) as w:
        await w.app.signal("a", "x", 1)
        await w.settle()
        info = await w.app.run("a").info()
        assert info.status == "paused" and ran == []
        # The call of the record's own branch is named first.
        asked = "'gather[0]/go' the history holds wait 'go', but the code asked for step 'noted'"
        assert asked in (info.reason or "")
        await w.app.signal("a", go, 2)
    async with world(made(False)) as w:
        await w.app.run("a").resume()
        await w.settle()
        assert list(await w.app.run("a").result()) == [2, 1]


async def test_the_call_that_stands_in_the_place_of_a_record_is_named(world: Any) -> None:
    def made(name: str) -> App:
        async def flow(ctx: Context) -> Any:
            async def waits(n: int) -> Any:
                return await ctx.wait(Signal(f"w{n}", int))

            async def works() -> Any:
                await ctx.step(ship.options(name=name))
                return await ctx.wait(go)

            return await ctx.gather(*(waits(n) for n in range(4)), works())

        return app_of(flow)

    async with world(made("old")) as w:
        document = await (await w.begin("flow", id="a")).export()
    with pytest.raises(ReplayFailed) as failed:
        replay_check(made("new"), document)
    (failure,) = failed.value.failures
    assert failure.recorded == "step 'old'"
    assert (failure.asked or "").startswith("step 'new' at 'gather[4]/new', wait 'w0'")
    assert (failure.asked or "").endswith("and 2 more")


async def test_a_call_that_its_branch_has_left_is_not_made_again(world: Any) -> None:
    def made(fails: bool) -> App:
        async def flow(ctx: Context) -> Any:
            async def one() -> None:
                await ctx.wait(go)
                if fails:
                    raise ValueError("no")

            async def other() -> None:
                await ctx.wait(Signal("b", int))

            try:
                await ctx.gather(one(), other())
            except ValueError:
                await ctx.step(ship)
            return "done"

        return app_of(flow)

    async with world(made(True), worker=False) as c:
        await c.app.start("flow", id="a")
    async with world(made(True)) as w:
        await w.settle()
        await w.app.run("a").pause()
        await w.app.signal("a", go, 1)
        await w.app.run("a").resume()
        await w.settle()
        assert await w.app.run("a").result() == "done"
        document = await w.app.run("a").export()
    # As it would be if the process had died before the step was recorded.
    midway = {**document["run"], "status": "waiting", "finished_at": None, "output": None}
    history = [one for one in document["history"] if one["name"] != "ship"]
    assert {one["state"] for one in history} == {"done", "abandoned"}
    document = {**document, "run": midway, "history": history}
    replay_check(made(True), document)
    with pytest.raises(ReplayFailed, match="that the branch left wait 'b', but the code asked for"):
        replay_check(made(False), document)
    async with world(made(False)) as w:
        run = await w.app.import_run(document, id="copy")
        await w.settle()
        assert await run.status() == "paused"


async def test_a_branch_that_was_told_of_a_cancel_must_stand_there_again(world: Any) -> None:
    ran: list[str] = []

    @step
    async def noted() -> None:
        ran.append("noted")

    def made(new: bool) -> App:
        async def flow(ctx: Context) -> Any:
            try:
                if new:
                    await ctx.step(noted)
                await ctx.wait(go)
            except asyncio.CancelledError:
                await ctx.wait(Signal("clean", int))
                raise

        return app_of(flow)

    async with world(made(False)) as w:
        run = await w.begin("flow", id="a")
        await run.cancel("stop")
        await w.settle()
        assert await run.status() == "waiting"
        await run.pause()
    async with world(made(True)) as w:
        run = w.app.run("a")
        await run.resume()
        await w.settle()
        info = await run.info()
        assert info.status == "paused" and ran == []
        assert "at 'go' the history holds cancel" in (info.reason or "")
    async with world(made(False)) as w:
        await w.app.run("a").resume()
        await w.app.signal("a", "clean", 1)
        await w.settle()
        assert await w.app.run("a").status() == "cancelled"


async def test_other_code_parks_a_retried_run_too(world: Any) -> None:
    """A retry frees the order of what came after the failure only; what came before it must be asked for."""

    @step
    async def bad() -> None:
        raise ValueError("no luck")

    async def failing(ctx: Context) -> Any:
        await ctx.step(reserve)
        await ctx.step(bad)

    async def without_reserve(ctx: Context) -> Any:
        return await ctx.step(charge)

    async with world(app_of(failing)) as w:
        run = await w.begin("flow", id="a")
        assert await run.status() == "failed"
    async with world(app_of(without_reserve)) as w:
        run = w.app.run("a")
        await run.retry()
        await w.settle()
        info = await run.info()
        assert info.status == "paused" and "'reserve'" in (info.reason or "")


async def test_what_a_run_did_after_its_retry_must_be_asked_for(world: Any) -> None:
    healthy = False

    @step
    async def shaky() -> str:
        if not healthy:
            raise ValueError("no luck")
        return "worked"

    async def whole(ctx: Context) -> Any:
        return [await ctx.step(shaky), await ctx.step(ship), await ctx.wait(go)]

    async def without_ship(ctx: Context) -> Any:
        return [await ctx.step(shaky), await ctx.wait(go)]

    async with world(app_of(whole)) as w:
        run = await w.begin("flow", id="a")
        healthy = True
        await run.retry()
        await w.settle()
        assert await run.status() == "waiting"
    async with world(app_of(without_ship)) as w:
        await w.app.signal("a", go, 1)
        await w.settle()
        info = await w.app.run("a").info()
        assert info.status == "paused" and "'ship'" in (info.reason or "")


async def test_a_record_of_another_name_at_the_same_path_parks_the_run(world: Any) -> None:
    async def flow(ctx: Context) -> Any:
        return await ctx.step(charge)

    app = app_of(flow)
    async with world(app, worker=False) as c:
        await c.app.start("flow", id="a")
        other = Driver(c.store, c.clock)
        await other.claim("dead", workflows=("flow",))
        await other.record("a", replace(done("charge", '"charged"'), name="refund"))
    async with world(app) as w:
        await w.settle()
        info = await w.app.run("a").info()
        assert info.status == "paused" and "step 'refund'" in (info.reason or "")


async def test_a_mismatch_runs_no_step_and_sends_nothing(world: Any) -> None:
    """Other code may not act before its whole past has been compared."""
    ran: list[str] = []

    async def effect() -> None:
        ran.append("effect")

    async def eager(ctx: Context) -> Any:
        await ctx.gather(ctx.step(reserve), ctx.step(effect))
        return await ctx.wait(go)

    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
    async with world(app_of(eager)) as w:
        await w.app.signal("a", go, 3)
        await w.settle()
        assert await w.app.run("a").status() == "paused"
        assert ran == []


async def test_signals_to_a_parked_run_are_kept(world: Any) -> None:
    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
        await w.app.run("a").pause()
    async with world(app_of(dropped)) as w:
        await w.app.run("a").resume()
        await w.settle()
        assert await w.app.run("a").status() == "paused"
        await w.app.signal("a", go, 8)
    async with world(app_of(old)) as w:
        await w.app.run("a").resume()
        await w.settle()
        assert await w.app.run("a").result() == ["reserved", "charged", 8]


async def test_code_may_grow_at_the_end(world: Any) -> None:
    async def longer(ctx: Context) -> Any:
        seen = await old(ctx)
        return [*seen, await ctx.step(ship)]

    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
    async with world(app_of(longer)) as w:
        await w.app.signal("a", go, 3)
        await w.settle()
        assert await w.app.run("a").result() == ["reserved", "charged", 3, "shipped"]


async def test_a_parked_run_can_be_cancelled_or_terminated(world: Any) -> None:
    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
        await w.begin("flow", id="b")
    async with world(app_of(dropped_all)) as w:
        await w.app.signal_many([("a", go, 1), ("b", go, 1)])
        await w.settle()
        await w.app.run("a").terminate("no use")
        await w.app.run("b").cancel()
        await w.settle()
        assert await w.app.run("a").status() == "terminated"
        assert await w.app.run("b").status() == "paused"


# --- values that no longer decode ----------------------------------------------------------------


async def test_a_recorded_value_that_no_longer_decodes_parks_the_run(world: Any) -> None:
    @dataclass
    class Strict:
        must: int

    async def text() -> str:
        return "words"

    async def number() -> Strict:
        return Strict(1)

    async def before(ctx: Context) -> Any:
        value = await ctx.step(step(text, name="value") if False else step(name="value")(text))
        await ctx.wait(go)
        return value

    async def after(ctx: Context) -> Any:
        value = await ctx.step(step(name="value")(number))
        await ctx.wait(go)
        return value.must

    async with world(app_of(before)) as w:
        await w.begin("flow", id="a")
    async with world(app_of(after)) as w:
        await w.app.signal("a", go, 1)
        await w.settle()
        info = await w.app.run("a").info()
        assert info.status == "paused"
        assert "the value recorded at 'value' no longer decodes" in (info.reason or "")
    async with world(app_of(before)) as w:
        await w.app.run("a").resume()
        await w.settle()
        assert await w.app.run("a").result() == "words"


async def test_an_input_that_no_longer_decodes_parks_the_run(world: Any) -> None:
    before, after = App("memory://"), App("memory://")

    @before.workflow(name="flow")
    async def words(ctx: Context, what: str) -> str:
        await ctx.wait(go)
        return what

    @after.workflow(name="flow")
    async def figures(ctx: Context, what: int) -> int:
        await ctx.wait(go)
        return what

    async with world(before) as w:
        await w.begin(words, "hello", id="a")
    async with world(after) as w:
        await w.app.signal("a", go, 1)
        await w.settle()
        info = await w.app.run("a").info()
        assert info.status == "paused"
        assert "the value recorded at 'the input' no longer decodes" in (info.reason or "")


# --- foreign awaits ------------------------------------------------------------------------------


async def awaits_sleep(ctx: Context) -> None:
    await asyncio.sleep(3600)  # refused where it stands: nothing here waits for it


async def awaits_a_bare_yield(ctx: Context) -> None:
    await asyncio.sleep(0)


async def awaits_gather(ctx: Context) -> None:
    await asyncio.gather(_never(), _never())


async def awaits_a_task(ctx: Context) -> None:
    task = asyncio.create_task(_never())
    try:
        await task
    finally:
        task.cancel()


async def awaits_an_event(ctx: Context) -> None:
    await asyncio.Event().wait()


async def awaits_a_future(ctx: Context) -> None:
    """What an HTTP client does deep inside: it waits for a future of its own."""
    await _fetch()


async def awaits_a_thread(ctx: Context) -> None:
    await asyncio.to_thread(threading.get_ident)


async def awaits_in_a_branch(ctx: Context) -> None:
    await ctx.gather(ctx.step(reserve), _fetch())


async def _fetch() -> None:
    await asyncio.get_running_loop().create_future()


async def _never() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "body",
    [
        awaits_sleep,
        awaits_a_bare_yield,
        awaits_gather,
        awaits_a_task,
        awaits_an_event,
        awaits_a_future,
        awaits_a_thread,
        awaits_in_a_branch,
    ],
)
async def test_a_foreign_await_fails_the_run_and_names_file_and_line(
    world: Any, body: Body
) -> None:
    async with world(app_of(body)) as w:
        run = await w.begin("flow")
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert failed.value.type == "ForeignAwait"
        assert f"{__file__}:" in failed.value.message
        assert "not durable" in failed.value.message
        assert "ctx.step" in failed.value.message
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_the_line_named_is_the_one_that_awaits(world: Any) -> None:
    async with world(app_of(awaits_sleep)) as w:
        run = await w.begin("flow")
        with pytest.raises(RunFailed) as failed:
            await run.result()
        line = awaits_sleep.__code__.co_firstlineno + 1
        assert f"{__file__}:{line} awaited" in failed.value.message


async def test_a_foreign_await_can_be_caught_and_the_run_goes_on(world: Any) -> None:
    async def flow(ctx: Context) -> str:
        try:
            await _fetch()
        except ForeignAwait:
            await ctx.sleep("1s")
            return "went on"
        return "no"

    async with world(app_of(flow)) as w:
        run = await w.begin("flow")
        await w.evict()
        await w.advance("1s")
        assert await run.result() == "went on"


async def test_a_step_called_directly_is_refused(world: Any) -> None:
    async def flow(ctx: Context) -> None:
        await reserve()

    async with world(app_of(flow)) as w:
        run = await w.begin("flow")
        with pytest.raises(RunFailed, match=r"called directly.*ctx\.step\(reserve") as failed:
            await run.result()
        assert failed.value.type == "ForeignAwait"


async def test_a_step_may_call_a_step_as_a_plain_function(world: Any) -> None:
    async def outer() -> str:
        return f"outer {await reserve()}"

    async def flow(ctx: Context) -> str:
        return await ctx.step(outer)

    async with world(app_of(flow)) as w:
        assert await (await w.begin("flow")).result() == "outer reserved"


async def test_ctx_in_a_step_is_refused(world: Any) -> None:
    async def flow(ctx: Context) -> None:
        async def sneaky() -> None:
            await ctx.sleep(1)

        await ctx.step(sneaky)

    async with world(app_of(flow)) as w:
        run = await w.begin("flow")
        with pytest.raises(RunFailed, match="outside its workflow code") as failed:
            await run.result()
        assert failed.value.type == "ForeignAwait"


async def test_ctx_of_another_run_is_refused(world: Any) -> None:
    contexts: list[Context] = []

    async def flow(ctx: Context) -> None:
        contexts.append(ctx)
        await contexts[0].sleep(1)

    async with world(app_of(flow)) as w:
        await w.begin("flow")
        second = await w.begin("flow")
        assert await second.status() == "failed"


async def test_a_call_awaited_twice_is_refused(world: Any) -> None:
    async def flow(ctx: Context) -> str:
        call = ctx.step(reserve)
        await call
        try:
            await call
        except ForeignAwait as error:
            return str(error)
        return "no"

    async with world(app_of(flow)) as w:
        run = await w.begin("flow")
        assert "awaited twice" in await run.result()


async def test_a_call_of_an_earlier_generation_of_memory_is_refused(world: Any) -> None:
    """A durable call kept in a global outlives its run in memory; it must not be awaited by the next."""
    kept: list[Any] = []

    async def flow(ctx: Context) -> str:
        if not kept:
            kept.append(ctx.step(reserve))
            return "kept"
        await kept[0]
        return "no"

    async with world(app_of(flow)) as w:
        await w.begin("flow")
        second = await w.begin("flow")
        with pytest.raises(RunFailed, match="belongs to another run"):
            await second.result()


# --- what code sees again ------------------------------------------------------------------------


async def test_time_chance_and_ids_are_the_same_on_replay(world: Any) -> None:
    seen: list[list[Any]] = []

    async def flow(ctx: Context) -> Any:
        facts: list[Any] = []
        seen.append(facts)
        for _ in range(3):
            facts.append((ctx.now(), ctx.random(), ctx.ulid(), ctx.ulid()))
            await ctx.step(reserve)
            facts.append((ctx.now(), ctx.random(), ctx.random()))
            await ctx.sleep("1h")
        return ctx.run_id

    async with world(app_of(flow)) as w:
        run = await w.begin("flow", id="a")
        for _ in range(3):
            await w.evict()
            await w.advance("1h")
        assert await run.result() == "a"
        assert len(seen) >= 3
        whole = seen[-1]
        assert len(whole) == 6
        assert all(facts == whole[: len(facts)] for facts in seen)
        ids = [one for facts in whole if len(facts) == 4 for one in facts[2:]]
        assert len(set(ids)) == 6
        chances = [facts[1] for facts in whole]
        assert len(set(chances)) == 6
        assert all(0 <= one < 1 for one in chances)


async def test_chance_differs_between_runs_and_branches(world: Any) -> None:
    async def flow(ctx: Context) -> Any:
        async def branch() -> str:
            await ctx.sleep(0)
            return ctx.ulid()

        return list(await ctx.gather(branch(), branch()))

    async with world(app_of(flow)) as w:
        one, two = await w.begin("flow"), await w.begin("flow")
        assert len({*await one.result(), *await two.result()}) == 4


async def test_now_moves_with_what_the_run_learns(world: Any) -> None:
    async def flow(ctx: Context) -> Any:
        begun = ctx.now()
        await ctx.sleep("90m")
        return str(ctx.now() - begun)

    async with world(app_of(flow)) as w:
        run = await w.begin("flow")
        await w.advance("90m")
        assert await run.result() == "1:30:00"


async def test_the_log_is_quiet_on_replay(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def flow(ctx: Context) -> None:
        for n in range(3):
            ctx.log.warning("round %d", n)
            await ctx.step(reserve)
            await ctx.wait(go)
        ctx.log.warning("done")

    caplog.set_level(logging.INFO, "perdure.workflow")
    async with world(app_of(flow)) as w:
        await w.begin("flow", id="a")
        for _ in range(3):
            await w.evict()
            await w.app.signal("a", go, 1)
            await w.settle()
        said = [one for one in caplog.records if one.name == "perdure.workflow"]
        assert [one.getMessage() for one in said] == [
            "[a] round 0",
            "[a] round 1",
            "[a] round 2",
            "[a] done",
        ]
        assert {one.run_id for one in said} == {"a"}  # type: ignore[attr-defined]


async def test_the_log_speaks_after_a_replay_of_steps_only(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A crash between two steps: what is said after the last recorded one was never said before."""
    begun = asyncio.Event()
    hang = True

    async def slow() -> None:
        begun.set()
        if hang:
            await asyncio.Event().wait()

    async def flow(ctx: Context) -> None:
        ctx.log.warning("first")
        await ctx.step(reserve)
        ctx.log.warning("second")
        await ctx.step(slow)
        ctx.log.warning("third")

    caplog.set_level(logging.INFO, "perdure.workflow")
    async with world(app_of(flow)) as w:
        await w.app.start("flow", id="a")
        await begun.wait()
        await w.crash()
    hang = False
    async with world(app_of(flow)) as w:
        await w.settle()
        said = [one.getMessage() for one in caplog.records if one.name == "perdure.workflow"]
        # "second" was said after the last record, so nobody can know that it was said before the crash.
        assert said == ["[a] first", "[a] second", "[a] second", "[a] third"]


async def test_steps_do_not_run_again_on_replay(world: Any) -> None:
    ran: list[int] = []

    async def count(n: int) -> int:
        ran.append(n)
        return n

    async def flow(ctx: Context) -> Any:
        seen = []
        for n in range(4):
            seen.append(await ctx.step(count, n))
            await ctx.wait(go)
        return seen

    async with world(app_of(flow)) as w:
        run = await w.begin("flow", id="a")
        for _ in range(4):
            await w.evict()
            await w.app.signal("a", go, 1)
            await w.settle()
        assert await run.result() == [0, 1, 2, 3]
        assert ran == [0, 1, 2, 3]


async def test_a_failed_step_is_the_same_error_on_replay(world: Any) -> None:
    seen: list[tuple[Any, ...]] = []

    async def bad() -> None:
        raise KeyError("gone")

    async def flow(ctx: Context) -> str:
        try:
            await ctx.step(bad)
        except StepFailed as error:
            seen.append((error.type, error.message, error.attempts, error.path, error.traceback))
        await ctx.wait(go)
        return "done"

    async with world(app_of(flow)) as w:
        run = await w.begin("flow", id="a")
        await w.evict()
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await run.result() == "done"
        assert len(seen) == 2
        assert seen[0] == seen[1]
        assert seen[0][:4] == ("KeyError", "'gone'", 1, "bad")
        assert "raise KeyError" in seen[0][4]


async def test_a_run_of_unknown_code_waits_for_a_worker_that_knows_it(world: Any) -> None:
    async with world(app_of(old)) as w:
        await w.begin("flow", id="a")
    other = App("memory://")

    @other.workflow
    async def unrelated(ctx: Context) -> None:
        return None

    async with world(other) as w:
        await w.app.signal("a", go, 3)
        await w.settle()
        assert await w.app.run("a").status() == "ready"
    async with world(app_of(old)) as w:
        await w.settle()
        assert await w.app.run("a").result() == ["reserved", "charged", 3]


# --- other waits ---------------------------------------------------------------------------------


@dataclass
class Amount:
    cents: int


@dataclass
class Vote:
    yes: bool


async def waits_for_an_amount(ctx: Context) -> Any:
    got = await ctx.wait(Signal("go", Amount))
    await ctx.step(reserve)
    await ctx.wait(stop)
    return got.cents


async def waits_for_a_vote(ctx: Context) -> Any:
    got = await ctx.wait(Signal("go", Vote))
    await ctx.step(reserve)
    await ctx.wait(stop)
    return got.yes


async def test_a_past_wait_whose_type_changed_parks_the_run_and_the_past_stands(
    world: Any,
) -> None:
    async with world(app_of(waits_for_an_amount)) as w:
        await w.begin("flow", id="a")
        await w.app.signal("a", Signal("go", Amount), Amount(7))
        await w.settle()
    async with world(app_of(waits_for_a_vote)) as w:
        run = w.app.run("a")
        past = await _look_again(w)
        info = await run.info()
        assert info.status == "paused"
        assert "the value recorded at 'go' no longer decodes" in (info.reason or "")
        assert await _past(w) == past
    async with world(app_of(waits_for_an_amount)) as w:
        await w.app.signal("a", stop, 1)
        await w.app.run("a").resume()
        await w.settle()
        assert await w.app.run("a").result() == 7


async def one_of_two(ctx: Context) -> Any:
    got = await ctx.wait(go | timer("1h"))
    return [repr(got), await ctx.wait(stop)]


async def one_of_one(ctx: Context) -> Any:
    got = await ctx.wait(go)
    return [repr(got), await ctx.wait(stop)]


async def one_of_two_swapped(ctx: Context) -> Any:
    got = await ctx.wait(timer("1h") | go, name="go")
    return [repr(got), await ctx.wait(stop)]


async def one_of_two_others(ctx: Context) -> Any:
    got = await ctx.wait(line | timer("1h"), name="go")
    return [repr(got), await ctx.wait(stop)]


async def step_in_its_place(ctx: Context) -> Any:
    got = await ctx.step(charge.options(name="go"))
    return [repr(got), await ctx.wait(stop)]


async def fails_for_now(ctx: Context) -> Any:
    patient = Retry(attempts=2, backoff="1h", jitter=0)
    got = await ctx.step(failing.options(name="go", retry=patient))
    return [repr(got), await ctx.wait(stop)]


@step
async def failing() -> str:
    if step_info().attempt == 1:
        raise OSError("down")
    return "up"


_both = "a wait for signal go | timer"


@pytest.mark.parametrize(
    ("before", "answered", "after", "recorded", "asked", "got"),
    [
        pytest.param(
            one_of_two, True, one_of_one, _both, "a wait for signal go", "3", id="lost-signal-won"
        ),
        pytest.param(
            one_of_two, False, one_of_one, _both, "a wait for signal go", "3", id="lost-open"
        ),
        pytest.param(
            one_of_two,
            True,
            one_of_two_swapped,
            _both,
            "a wait for timer | signal go",
            "3",
            id="swapped",
        ),
        pytest.param(
            one_of_two,
            True,
            one_of_two_others,
            _both,
            "a wait for signal line | timer",
            "3",
            id="another-signal",
        ),
        pytest.param(
            one_of_two, False, step_in_its_place, "wait 'go'", "step 'go'", "3", id="wait-to-step"
        ),
        pytest.param(
            fails_for_now, False, one_of_one, "step 'go'", "wait 'go'", "'up'", id="step-to-wait"
        ),
    ],
)
async def test_another_wait_parks_the_run_and_writes_nothing(
    world: Any, before: Body, answered: bool, after: Body, recorded: str, asked: str, got: str
) -> None:
    async with world(app_of(before)) as w:
        await w.begin("flow", id="a")
        if answered:
            await w.app.signal("a", go, 3)
            await w.settle()
    async with world(app_of(after)) as w:
        past = await _look_again(w)
        info = await w.app.run("a").info()
        assert info.status == "paused"
        assert f"at 'go' the history holds {recorded}, but" in (info.reason or "")
        assert f"asked for {asked}:" in (info.reason or "")
        assert await _past(w) == past
    async with world(app_of(before)) as w:
        run = w.app.run("a")
        await run.resume()
        await w.settle()
        if not answered and got == "3":
            await w.app.signal("a", go, 3)
        await w.advance("1h")
        await w.app.signal("a", stop, 1)
        await w.settle()
        assert await run.result() == [got, 1]


async def test_a_wait_that_lost_the_timer_that_won_parks_the_run(world: Any) -> None:
    async with world(app_of(one_of_two)) as w:
        await w.begin("flow", id="a")
        await w.advance("1h")
    async with world(app_of(one_of_one)) as w:
        past = await _look_again(w)
        info = await w.app.run("a").info()
        assert info.status == "paused"
        assert f"{_both}, but the code asked for a wait for signal go:" in (info.reason or "")
        assert await _past(w) == past
    async with world(app_of(one_of_two)) as w:
        await w.app.signal("a", stop, 1)
        await w.app.run("a").resume()
        await w.settle()
        assert await w.app.run("a").result() == ["TimedOut()", 1]


async def _look_again(w: Any) -> tuple[Any, ...]:
    """Have the run replayed though nothing happened to it; gives its past as it was before."""
    await w.app.run("a").pause()
    past = await _past(w)
    await w.app.run("a").resume()
    await w.settle()
    return past


async def _past(w: Any) -> tuple[Any, ...]:
    """All that a replay could spoil: what is recorded, what is waited for, what is buffered or lost."""
    counts = await w.store.counts()
    letters = [one.name for one in await w.app.dead_letters()]
    history = [(one.path, one.kind, one.status) for one in await w.app.run("a").history()]
    return history, counts["steps"], counts["watchers"], letters
