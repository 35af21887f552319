"""A run that is loaded anew while it is under way: nothing of what it did is lost, done twice or guessed."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import App, Context, Delivered, Retry, Signal, StepFailed, step, step_info
from perdure.model.ops import Cancel, FireTimers, Terminate
from perdure.store.base import BatchUnknown
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.words import failed, signal, wait

go = Signal("go", int, buffer="all")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_body_in_flight_outlives_a_reload(world: Any, app: App, when: str) -> None:
    """Its result is used, whether it comes while the run is being loaded anew or later; it does not run again."""
    begun, gate = asyncio.Event(), asyncio.Event()
    bodies = 0

    @step
    async def slow() -> int:
        nonlocal bodies
        bodies += 1
        begun.set()
        await gate.wait()
        return 7

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(slow)

    async with world(app) as w:
        run = await w.app.start(flow)
        await begun.wait()
        old = w.worker._executions[run.id]
        w.worker._reload_all()
        if when == "after":

            async def loaded() -> bool:
                return w.worker._executions.get(run.id) not in (None, old)

            await w.until(loaded)
        gate.set()
        assert await run.result("5s") == 7
        assert bodies == 1


async def test_a_failed_attempt_that_ends_during_a_reload_counts(world: Any, app: App) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()
    attempts: list[int] = []

    @step(retry=Retry(attempts=3, backoff="1s", jitter=0))
    async def slow() -> int:
        attempts.append(step_info().attempt)
        if len(attempts) == 1:
            begun.set()
            await gate.wait()
            raise OSError("no")
        return 7

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(slow)

    async with world(app) as w:
        run = await w.app.start(flow)
        await begun.wait()
        w.worker._reload_all()
        gate.set()
        await w.advance("5s")
        assert await run.result("5s") == 7
        assert attempts == [1, 2]


async def test_a_failed_attempt_whose_record_was_not_answered_counts_once(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is on record and still in memory: the pause before the next attempt is the recorded one's."""
    attempts: list[int] = []
    lost = 0

    @step(retry=Retry(attempts=3, backoff="10s", jitter=0))
    async def flaky() -> int:
        attempts.append(step_info().attempt)
        if len(attempts) == 1:
            raise OSError("no")
        return 7

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(flaky)

    async with world(app) as w:
        apply = w.store.apply

        async def apply_and_lose(batch_id: str, batch: Any, *rest: Any) -> Any:
            nonlocal lost
            applied = await apply(batch_id, batch, *rest)
            if not lost and any(getattr(op, "steps", ()) for op in batch):
                lost += 1
                raise BatchUnknown("the answer was lost")
            return applied

        monkeypatch.setattr(w.store, "apply", apply_and_lose)
        run = await w.app.start(flow)

        async def asleep() -> bool:
            return await run.status() == "sleeping"

        await w.until(asleep)
        await w.advance("10s")
        assert await run.result("5s") == 7
        assert attempts == [1, 2]
        assert lost == 1
    assert "the store refused" not in caplog.text


async def test_news_that_was_not_told_is_found_by_the_revision(world: Any, app: App) -> None:
    """Two deliveries, of which the owner hears of the second only: it reads the store instead of guessing."""
    order: list[int] = []

    @step
    async def note(number: int) -> int:
        order.append(number)
        return number

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        async def one(name: str) -> int:
            return await ctx.step(note, await ctx.wait(go, name=name))

        return list(await ctx.gather(one("a"), one("b")))

    async with world(app, resident=10) as w:
        run = await w.begin(flow, id="r")
        waits = [one.path for one in await run.waiting()]
        hear, w.coordinator.hub._hear = w.coordinator.hub._hear, lambda wake: None
        await w.app.signal("r", go, 1, path=waits[0])
        w.coordinator.hub._hear = hear
        await w.app.signal("r", go, 2, path=waits[1])
        await w.settle()
        assert await run.result("5s") == [1, 2]
        assert order == [1, 2]  # as they came; a replay will feed them so


async def test_a_result_is_not_heard_before_news_that_were_not_told(world: Any, app: App) -> None:
    """The delivery is on record before the result, so the code is to learn of them in that order."""
    begun, gate = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    @step
    async def slow() -> str:
        begun.set()
        await gate.wait()
        return "step"

    @step
    async def note(name: str) -> None:
        order.append(name)

    @app.workflow
    async def flow(ctx: Context) -> None:
        async def stepping() -> None:
            await ctx.step(note, await ctx.step(slow))

        async def waiting() -> None:
            await ctx.wait(go)
            await ctx.step(note, "wait")

        await ctx.gather(stepping(), waiting())

    async with world(app) as w:
        run = await w.app.start(flow)
        await begun.wait()

        async def waits() -> bool:
            return bool(await run.waiting())

        await w.until(waits)
        hear, w.coordinator.hub._hear = w.coordinator.hub._hear, lambda wake: None
        assert isinstance(await w.app.signal(run.id, go, 1), Delivered)
        w.coordinator.hub._hear = hear
        gate.set()
        await run.result("5s")
        assert order == ["wait", "step"]


async def test_the_alarm_of_an_older_pause_does_not_cut_the_next_one_short(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay found the first pause to be over and did not wait for its alarm, which comes later."""
    tried: list[int] = []

    @step(retry=Retry(attempts=3, backoff="10s", factor=1, jitter=0))
    async def flaky() -> int:
        tried.append(w.clock.now() // 1_000_000 - began)
        if len(tried) < 3:
            raise OSError("no")
        return 7

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(flaky)

    async with world(app, resident=10) as w:
        began = w.clock.now() // 1_000_000
        run = await w.begin(flow)
        apply = w.store.apply

        async def fire_late(batch_id: str, batch: Any, *rest: Any) -> Any:
            if len(tried) == 1 and any(isinstance(op, FireTimers) for op in batch):
                w.worker._reload_all()
                async with asyncio.timeout(5):
                    while len(tried) == 1:  # noqa: ASYNC110 (a step body tells it)
                        await asyncio.sleep(0)
            return await apply(batch_id, batch, *rest)

        monkeypatch.setattr(w.store, "apply", fire_late)
        await w.advance("15s")
        assert tried == [0, 10]
        await w.advance("15s")
        assert tried == [0, 10, 20]
        assert await run.result("5s") == 7


async def test_control_that_was_not_told_is_found_by_the_revision(world: Any, app: App) -> None:
    """What was delivered before the cancel reaches the code before it: neither waits for a letter."""
    seen: list[int] = []

    @app.workflow
    async def flow(ctx: Context) -> list[None]:
        async def one(name: str) -> None:
            seen.append(await ctx.wait(go, name=name))

        return list(await ctx.gather(one("a"), one("b")))

    async with world(app, resident=10) as w:
        run = await w.begin(flow, id="r")
        waits = [one.path for one in await run.waiting()]
        hear, w.coordinator.hub._hear = w.coordinator.hub._hear, lambda wake: None
        await w.app.signal("r", go, 1, path=waits[0])
        w.coordinator.hub._hear = hear
        await run.cancel("enough")
        await w.settle()
        assert await run.status() == "cancelled"
        assert seen == [1]
        assert not (await w.app.dead_letters("r")).items


async def test_a_rejection_on_replay_opens_its_wait_once(
    world: Any, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.signal(run.id, Signal("go", str, buffer="all"), "no")
        await w.settle()
        await w.app.signal(run.id, go, 5)
        await w.settle()
        assert await run.result() == 5
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []


async def test_a_rejection_on_replay_does_not_mind_what_other_branches_did(
    world: Any, app: App
) -> None:
    """A sibling went on after the wrong signal had come: that says nothing about the branch that waits."""

    @step
    async def double(number: int) -> int:
        return 2 * number

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        async def doubled() -> int:
            return await ctx.step(double, await ctx.wait(go, name="b"))

        return list(await ctx.gather(ctx.wait(go, name="a"), doubled(), ctx.wait(go, name="c")))

    async with world(app) as w:
        await w.begin(flow, id="r")
    async with world(app, worker=False) as c:
        (b,) = [one.path for one in await c.app.waiting("r") if one.path.endswith("/b")]
        sent = await c.app.signal("r", Signal("go", str, buffer="all"), "no", path="a")
        await c.app.signal("r", go, 2, path=b)
        await c.app.signal("r", go, 3, path="c")
    async with world(app) as w:
        await w.settle()
        run = w.app.run("r")
        assert [one.path for one in await run.waiting()] == ["a"]
        assert [one.id for one in await w.app.dead_letters("r")] == [sent.signal_id]
        await w.app.signal("r", go, 1)
        await w.settle()
        assert await run.result() == [1, 4, 3]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_signal_to_a_wait_whose_branch_had_left_is_a_dead_letter(
    world: Any, app: App, cancelled: bool
) -> None:
    """The process died when the failure was on record, or a cancel too, before the wait beside it was closed."""
    stop = Signal("stop", int)

    @step
    async def bad() -> int:
        raise ValueError("no")

    @app.workflow
    async def flow(ctx: Context) -> int:
        try:
            await ctx.gather(ctx.wait(go), ctx.step(bad))
        except StepFailed:
            pass
        return await ctx.wait(stop)

    async with world(app, worker=False) as c:
        await c.app.start(flow, id="r")
        dead = Driver(c.store, c.clock)
        await dead.claim("dead", workflows=("flow",))
        await dead.suspend("r", wait("go", signal("go")), park=False)
        await dead.record("r", failed("bad"))
        sent = await c.app.signal("r", go, 5)
        assert isinstance(sent, Delivered)
        if cancelled:
            await c.app.run("r").cancel()
            await dead.record_cancel("r", "stop")
    async with world(app) as w:
        await w.settle()
        run = w.app.run("r")
        assert [one.path for one in await run.waiting()] == ([] if cancelled else ["stop"])
        assert await run.status() == ("cancelled" if cancelled else "waiting")
        assert {one.path: one.status for one in await run.history()}["go"] == "abandoned"
        assert [one.id for one in await w.app.dead_letters("r")] == [sent.signal_id]


@dataclass
class Note:
    text: str


@dataclass
class Sum:
    total: int


async def test_a_type_that_changed_under_a_later_open_wait_parks_the_run(world: Any) -> None:
    """The code went on from there, so the payload was right once: the past is not rewritten."""

    def made(kind: type) -> tuple[App, Any]:
        app = App("memory://")
        note, stop = Signal("note", kind, buffer="all"), Signal("stop", bool)

        @app.workflow
        async def flow(ctx: Context) -> bool:
            await ctx.wait(note)
            return await ctx.wait(stop)

        return app, (flow, note, stop)

    old, (flow, note, stop) = made(Note)
    async with world(old) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", note, Note("x"))
        await w.settle()
    async with world(made(Sum)[0]) as w:
        run = w.app.run("a")
        await run.pause()
        await run.resume()
        await w.settle()
        assert await run.status() == "paused"
        assert "no longer decodes" in ((await run.info()).reason or "")
        assert {one.path: one.status for one in await run.history()} == {
            "note": "done",
            "stop": "open",
        }
        assert list(await w.app.dead_letters("a")) == []
    async with world(old) as w:
        run = w.app.run("a")
        await run.resume()
        await w.settle()
        await w.app.signal("a", stop, True)
        await w.settle()
        assert await run.result() is True


async def test_what_nobody_told_a_run_in_a_long_step_is_found_by_looking(
    world: Any, app: App
) -> None:
    """Its owner asks the store nothing meanwhile, and the hint of another process may be lost."""
    begun = asyncio.Event()

    @step
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(endless)

    async with world(app) as w:
        run = await w.app.start(flow)
        await begun.wait()
        await w.store.apply("from-elsewhere", [Cancel(run_id=run.id)])
        assert await w.store.revisions([run.id, "none"]) == {run.id: 1}
        await w.worker.recovery.look(thorough=True)

        async def is_cancelled() -> bool:
            return await run.status() == "cancelled"

        await w.until(is_cancelled)


@pytest.mark.parametrize("ends", [Cancel, Terminate])
@pytest.mark.parametrize("hints", [True, False])
async def test_an_end_in_a_long_step_is_found_by_each_look_where_there_are_no_hints(
    world: Any, app: App, ends: Any, hints: bool
) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @step
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(endless)

    async with world(app) as w:
        w.store.sends_hints = hints
        await w.worker.recovery.stop()  # or a thorough look of its own would come by and by
        run = await w.app.start(flow)
        await begun.wait()
        await w.store.apply("from-elsewhere", [ends(run_id=run.id)])
        await w.worker.recovery.look(thorough=hints)
        await asyncio.wait_for(stopped.wait(), 10)
        await w.settle()
        assert await run.status() in ("cancelled", "terminated")
        assert w.worker.resident_runs == 0
