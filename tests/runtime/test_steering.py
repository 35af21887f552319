"""Steering by operators: cancel, terminate, pause, resume, retry, in every state of a run."""

import asyncio
import threading
from typing import Any

import pytest

from perdure import (
    App,
    Buffered,
    Conflict,
    Context,
    Retry,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunNotFound,
    Signal,
    StepFailed,
    TimedOut,
    step,
    timer,
)
from perdure.model.limits import BadValue
from perdure.model.ops import RecordCancel

go = Signal("go", int)
line = Signal("line", int, buffer="all")


class Server:
    """What a step works with, and is down at first."""

    def __init__(self) -> None:
        self.healthy = False

    async def work(self) -> str:
        if not self.healthy:
            raise OSError("down")
        return "worked"


class Gate:
    """A step body that tells when it began and ends when it is let go."""

    def __init__(self) -> None:
        self.begun, self.open = asyncio.Event(), asyncio.Event()
        self.cut = False
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        self.begun.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cut = True
            raise
        return "through"

    @property
    def step(self) -> Any:
        async def gate() -> str:
            return await self()

        return step(gate)


# --- cancel --------------------------------------------------------------------------------------


async def test_cancel_raises_where_the_code_stands_and_cleanup_runs_steps(
    world: Any, app: App
) -> None:
    undone: list[str] = []

    async def undo(what: str) -> str:
        undone.append(what)
        return f"undid {what}"

    @app.workflow
    async def flow(ctx: Context) -> None:
        try:
            await ctx.wait(go)
        except asyncio.CancelledError:
            await ctx.step(undo, "one")
            await ctx.sleep("1m")
            await ctx.step(undo, "two")
            raise

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.cancel("enough") in ("running", "ready")
        await w.settle()
        assert await run.status() == "sleeping"
        await w.evict()
        await w.advance("1m")
        assert undone == ["one", "two"]
        with pytest.raises(RunCancelled, match="enough") as cancelled:
            await run.result()
        assert cancelled.value.status == "cancelled"
        (fact,) = await w.facts("workflow.run_cancelled")
        assert "enough" in fact.payload


async def test_cancel_before_the_first_step(world: Any, app: App) -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append("worked")

    @app.workflow
    async def flow(ctx: Context) -> None:
        try:
            await ctx.step(work)
        except asyncio.CancelledError:
            seen.append("told")
            raise

    async with world(app) as w:
        run = await w.begin(flow, start_at="1h")
        await run.cancel()
        await w.settle()
        assert await run.status() == "cancelled"
        assert seen == ["told"]
        await w.advance("2h")
        assert seen == ["told"]


async def test_a_swallowed_cancel_ends_as_cancelled(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.wait(go)
        except asyncio.CancelledError:
            pass
        await ctx.sleep("1s")
        return "carried on"

    async with world(app) as w:
        run = await w.begin(flow)
        await run.cancel()
        await w.settle()
        assert await run.status() == "sleeping"
        await w.advance("1s")
        assert await run.status() == "cancelled"


async def test_another_error_in_the_cleanup_fails_the_run(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        try:
            await ctx.wait(go)
        except asyncio.CancelledError:
            raise ValueError("cleanup broke") from None

    async with world(app) as w:
        run = await w.begin(flow)
        await run.cancel()
        await w.settle()
        with pytest.raises(RunFailed, match="cleanup broke"):
            await run.result()


async def test_cancel_with_a_step_in_flight_cuts_it(world: Any, app: App) -> None:
    gate = Gate()

    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(gate.step)

    async with world(app) as w:
        run = await w.app.start(flow)
        await gate.begun.wait()
        await run.cancel()
        await w.settle()
        assert await run.status() == "cancelled"
        assert gate.cut


async def test_cancel_while_a_thread_works_drops_its_result(world: Any, app: App) -> None:
    begun, let_go = threading.Event(), threading.Event()
    ended = threading.Event()

    def in_thread() -> str:
        begun.set()
        let_go.wait(10)
        ended.set()
        return "too late"

    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(in_thread)

    async with world(app) as w:
        run = await w.app.start(flow)
        await asyncio.to_thread(begun.wait, 10)
        await run.cancel()
        await w.settle()
        assert await run.status() == "cancelled"
        let_go.set()
        await asyncio.to_thread(ended.wait, 10)
        await w.settle()
        assert await run.status() == "cancelled"
        assert [one for one in await run.history() if one.kind == "step"] == []


async def test_cancel_reaches_every_branch_once(world: Any, app: App) -> None:
    told: list[str] = []

    async def branch(ctx: Context, name: str) -> None:
        try:
            await ctx.wait(line, name=name)
        except asyncio.CancelledError:
            told.append(name)
            await ctx.sleep(1)
            raise

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.gather(branch(ctx, "a"), branch(ctx, "b"), branch(ctx, "c"))

    async with world(app) as w:
        run = await w.begin(flow)
        await run.cancel()
        await w.settle()
        assert told == ["a", "b", "c"]
        await w.evict()
        await w.advance("1s")
        assert await run.status() == "cancelled"
        assert told == ["a", "b", "c"] * 2


async def test_cancel_is_idempotent_and_remembers_the_first_reason(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        try:
            await ctx.wait(go)
        finally:
            await ctx.sleep("1m")

    async with world(app) as w:
        run = await w.begin(flow)
        await run.cancel("first")
        await w.settle()
        await run.cancel("second")
        await w.settle()
        assert await run.status() == "sleeping"
        await w.advance("1m")
        assert (await run.info()).reason == "first"
        with pytest.raises(RunFinished):
            await run.cancel()
        with pytest.raises(RunNotFound):
            await w.app.run("nobody").cancel()


async def test_cancel_of_a_paused_run(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow)
        await run.pause()
        await run.cancel()
        await w.settle()
        assert await run.status() == "cancelled"


async def test_cancel_during_a_retry_pause(world: Any, app: App) -> None:
    async def flaky() -> None:
        raise OSError("down")

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(step(retry=Retry(attempts=5, backoff="1h"))(flaky))

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.status() == "sleeping"
        await run.cancel()
        await w.settle()
        assert await run.status() == "cancelled"
        assert (await w.store.counts())["watchers"] == 0


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_cancel_and_delivery_in_one_commit_lose_nothing(
    world: Any, app: App, cancel_first: bool
) -> None:
    """Both are accepted. The signal is used, kept as a dead letter, or discarded with a fact."""

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        asks = [lambda: run.cancel(), lambda: w.app.signal("a", go, 1)]
        order = asks if cancel_first else asks[::-1]
        done = await asyncio.gather(*(asyncio.ensure_future(one()) for one in order))
        await w.settle()
        sent = next(one for one in done if not isinstance(one, str))
        fate = await w.app.signal_status(sent.signal_id)
        assert fate is not None
        status = await run.status()
        if status == "completed":
            assert (fate.state, await run.result()) == ("delivered", 1)
        else:
            assert status == "cancelled"
            letters = [one.payload for one in await w.app.dead_letters()]
            assert fate.state == "discarded" or letters == [1]


async def test_a_step_that_ends_while_the_cancel_is_recorded_ends_too_late(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record says that the code learnt of the cancel there: it must not go on with the result."""
    gate = Gate()

    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(gate.step)

    async with world(app) as w:
        run = await w.app.start(flow)
        await gate.begun.wait()
        apply = w.store.apply

        async def apply_slowly(batch_id: str, batch: Any, *rest: Any) -> Any:
            if any(isinstance(op, RecordCancel) for op in batch):
                gate.open.set()
                for _ in range(5):
                    await asyncio.sleep(0)
            return await apply(batch_id, batch, *rest)

        monkeypatch.setattr(w.store, "apply", apply_slowly)
        await run.cancel()
        await w.settle()
        assert gate.open.is_set()
        assert await run.status() == "cancelled"
        assert (await run.history())[0].kind == "cancel"


async def test_the_workflow_may_not_fake_a_cancel(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        raise asyncio.CancelledError

    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed, match="CancelledError"):
            await run.result()


# --- terminate -----------------------------------------------------------------------------------


async def test_terminate_ends_at_once_and_no_code_runs(world: Any, app: App) -> None:
    gate = Gate()
    seen: list[str] = []

    @app.workflow
    async def flow(ctx: Context) -> None:
        try:
            await ctx.step(gate.step)
        except asyncio.CancelledError:
            seen.append("told")
            await ctx.step(step(name="undo")(gate.step.function))

    async with world(app) as w:
        run = await w.app.start(flow)
        await gate.begun.wait()
        assert await run.terminate("now") == "terminated"
        assert await run.status() == "terminated"
        await w.settle()
        assert gate.cut
        assert seen == []
        with pytest.raises(RunCancelled, match="terminated: now"):
            await run.result()


@pytest.mark.parametrize("state", ["ready", "waiting", "paused"])
async def test_terminate_in_every_state(world: Any, app: App, state: str) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow, id="a", start_at="1h" if state == "ready" else None)
        if state == "paused":
            await run.pause()
        assert await run.status() == state
        await w.app.signal("a", line, 1)
        await run.terminate()
        await w.settle()
        counts = await w.store.counts()
        assert (counts["watchers"], counts["signals"]) == (0, 0)
        assert await run.status() == "terminated"
        await w.advance("2h")
        assert await run.status() == "terminated"


# --- pause and resume ----------------------------------------------------------------------------


async def test_pause_of_a_waiting_run_keeps_signals_for_it(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert await run.pause("lunch") == "paused"
        info = await run.info()
        assert (info.status, info.reason) == ("paused", "lunch")
        assert await run.waiting() == []
        assert isinstance(await w.app.signal("a", go, 1), Buffered)
        await w.settle()
        assert await run.status() == "paused"
        assert await run.resume() == "ready"
        await w.settle()
        assert await run.result() == 1


async def test_pause_of_a_sleeping_run_keeps_its_deadline(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        begun = ctx.now()
        await ctx.sleep("1h")
        return str(ctx.now() - begun)

    async with world(app) as w:
        run = await w.begin(flow)
        await run.pause()
        await w.advance("30m")
        await run.resume()
        await w.settle()
        assert await run.status() == "sleeping"
        await w.advance("30m")
        assert await run.result() == "1:00:00"


async def test_a_deadline_that_passes_while_paused_fires_on_resume(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> bool:
        return await ctx.wait(go | timer("1h")) == TimedOut()

    async with world(app) as w:
        run = await w.begin(flow)
        await run.pause()
        await w.advance("3h")
        assert await run.status() == "paused"
        await run.resume()
        await w.settle()
        assert await run.result() is True


async def test_pause_of_a_run_that_has_not_begun(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return "ran"

    async with world(app) as w:
        run = await w.begin(flow, start_at="1h")
        assert await run.pause() == "paused"
        await w.advance("2h")
        assert await run.status() == "paused"
        await run.resume()
        await w.settle()
        assert await run.result() == "ran"


async def test_pause_lets_the_step_in_flight_finish_and_records_it(world: Any, app: App) -> None:
    gate, after = Gate(), []

    async def next_step() -> None:
        after.append(1)

    @app.workflow
    async def flow(ctx: Context) -> str:
        first = await ctx.step(gate.step)
        await ctx.step(next_step)
        return first

    async with world(app) as w:
        run = await w.app.start(flow)
        await gate.begun.wait()
        assert await run.pause() == "running"
        gate.open.set()
        await w.settle()
        assert await run.status() == "paused"
        assert [one.path for one in await run.history()] == ["gate"]
        assert after == []
        await run.resume()
        await w.settle()
        assert await run.result() == "through"
        assert (gate.calls, after) == (1, [1])


@pytest.mark.parametrize("end", ["result", "error", "continue"])
async def test_a_paused_run_does_not_end_with_the_step_in_flight(
    world: Any, app: App, end: str
) -> None:
    reached, gate = asyncio.Event(), asyncio.Event()
    ran = 0

    @app.step
    async def last() -> str:
        nonlocal ran
        ran += 1
        reached.set()
        await gate.wait()
        return "done"

    @app.workflow
    async def work(ctx: Context, more: bool) -> str:
        done = await ctx.step(last)
        if end == "error" and more:
            raise ValueError("no")
        if end == "continue" and more:
            await ctx.continue_as(work, False)
        return done

    async with world(app) as w:
        run = await w.app.start(work, True)
        await reached.wait()
        await run.pause("a while")
        gate.set()
        await w.settle()
        info = await run.info()
        assert (info.status, info.reason, info.generation, ran) == ("paused", "a while", 0, 1)
        assert [one.status for one in await run.history()] == ["done"]
        await run.resume()
        await w.settle()
        assert await run.status() == ("failed" if end == "error" else "completed")
        assert ran == (2 if end == "continue" else 1)


async def test_resume_before_the_pause_took_hold(world: Any, app: App) -> None:
    gate = Gate()

    @app.workflow
    async def flow(ctx: Context) -> str:
        first = await ctx.step(gate.step)
        await ctx.sleep("1s")
        return first

    async with world(app) as w:
        run = await w.app.start(flow)
        await gate.begun.wait()
        await run.pause()
        assert await run.resume() == "running"
        gate.open.set()
        await w.advance("1s")
        assert await run.result() == "through"
        assert gate.calls == 1


async def test_pause_with_one_branch_stepping_and_one_waiting(world: Any, app: App) -> None:
    gate = Gate()

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        return list(await ctx.gather(ctx.step(gate.step), ctx.wait(go)))

    async with world(app) as w:
        run = await w.app.start(flow, id="a")
        await gate.begun.wait()
        await run.pause()
        gate.open.set()
        await w.settle()
        assert await run.status() == "paused"
        assert isinstance(await w.app.signal("a", go, 5), Buffered)
        await run.resume()
        await w.settle()
        assert await run.result() == ["through", 5]
        assert gate.calls == 1


async def test_pause_during_a_retry_pause_keeps_the_attempts(world: Any, app: App) -> None:
    tries: list[int] = []

    async def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("down")
        return "up"

    policy = Retry(attempts=3, backoff="10s", factor=1, jitter=0)

    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(step(retry=policy)(flaky))

    async with world(app) as w:
        run = await w.begin(flow)
        await run.pause()
        await w.advance("1h")
        assert len(tries) == 1
        await run.resume()
        await w.settle()
        assert len(tries) == 2
        await w.advance("10s")
        assert await run.result() == "up"
        assert len(tries) == 3


async def test_resume_before_a_retry_is_due_keeps_its_time(world: Any, app: App) -> None:
    tries: list[str] = []

    async def flaky() -> str:
        tries.append(f"{w.clock.moment:%M:%S}")
        if len(tries) < 3:
            raise OSError("down")
        return "up"

    policy = Retry(attempts=3, backoff="10m", factor=1, max_backoff="1h", jitter=0)

    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(step(retry=policy)(flaky))

    async with world(app) as w:
        run = await w.begin(flow)
        await run.pause()
        await w.advance("5m")
        await run.resume()
        await w.settle()
        assert await run.status() == "sleeping"
        await w.advance("5m")
        assert tries == ["00:00", "10:00"]
        await w.evict()
        await w.advance("10m")
        assert await run.result() == "up"


async def test_pause_and_resume_are_idempotent_or_refused(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        with pytest.raises(Conflict, match="not paused"):
            await run.resume()
        assert await run.pause() == "paused"
        assert await run.pause() == "paused"
        await run.resume()
        await w.settle()
        await w.app.signal("a", go, 1)
        await w.settle()
        for steer in (run.pause, run.resume, run.terminate):
            with pytest.raises(RunFinished, match="completed"):
                await steer()


async def test_a_paused_run_survives_a_restart(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    async with world(app) as w:
        await (await w.begin(flow, id="a")).pause()
    async with world(app) as w:
        await w.settle()
        run = w.app.run("a")
        assert await run.status() == "paused"
        await w.app.signal("a", go, 2)
        await run.resume()
        await w.settle()
        assert await run.result() == 2


async def test_pausing_with_a_crash_before_the_step_ends_pauses_on_restart(
    world: Any, app: App
) -> None:
    gate = Gate()

    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(gate.step)

    async with world(app) as w:
        run = await w.app.start(flow, id="a")
        await gate.begun.wait()
        await run.pause()
        await w.crash()
    async with world(app) as w:
        await w.settle()
        run = w.app.run("a")
        assert await run.status() == "paused"
        assert gate.calls == 1
        gate.open.set()
        await run.resume()
        await w.settle()
        assert await run.result() == "through"


# --- retry ---------------------------------------------------------------------------------------


async def test_retry_supersedes_the_failed_step_and_goes_on(world: Any, app: App) -> None:
    ran: list[str] = []
    healthy = False

    async def first() -> str:
        ran.append("first")
        return "one"

    async def second() -> str:
        ran.append("second")
        if not healthy:
            raise OSError("down")
        return "two"

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        return [await ctx.step(first), await ctx.step(second)]

    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed, match="down") as failed:
            await run.result()
        assert failed.value.path == "second"
        healthy = True
        assert await run.retry() == "ready"
        await w.settle()
        assert await run.result() == ["one", "two"]
        assert ran == ["first", "second", "second"]
        states = [(one.path, one.status) for one in await run.history() if one.kind == "step"]
        assert sorted(states) == [("first", "done"), ("second", "done"), ("second", "superseded")]
        assert len(await w.facts("workflow.run_retried")) == 1


async def test_the_contents_of_a_run_are_what_it_was_given_shows_and_came_to(
    world: Any, app: App
) -> None:
    healthy = False

    @app.workflow
    async def flow(ctx: Context, order: str, tries: list[int]) -> dict[str, str]:
        await ctx.set("order", order)
        if not healthy:
            raise ValueError("no such luck")
        return {"order": order}

    async with world(app) as w:
        run = await w.begin(flow, "tea", [1, 2])
        failed = await run.contents()
        assert (failed.workflow, failed.input) == ("flow", ["tea", [1, 2]])
        assert (failed.published, failed.output) == ({"order": "tea"}, None)
        assert failed.failure is not None and failed.failure["message"] == "no such luck"
        assert "in flow" in failed.failure["traceback"]
        healthy = True
        await run.retry()
        assert (await run.contents()).failure is None
        await w.settle()
        assert (await run.contents()).output == {"order": "tea"}
        with pytest.raises(RunNotFound):
            await w.app.run("nobody").contents()


async def test_retry_again_and_again(world: Any, app: App) -> None:
    tries: list[int] = []

    async def stubborn() -> int:
        tries.append(1)
        if len(tries) < 4:
            raise OSError("down")
        return len(tries)

    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.sleep(0)
        return await ctx.step(stubborn)

    async with world(app) as w:
        run = await w.begin(flow)
        for _ in range(3):
            assert await run.status() == "failed"
            await run.retry()
            await w.settle()
        assert await run.result() == 4


async def test_retry_of_a_failure_in_the_workflow_code_itself(world: Any) -> None:
    def app_with(broken: bool) -> App:
        app = App("memory://")

        async def flow(ctx: Context) -> str:
            await ctx.sleep(0)
            if broken:
                raise ValueError("a bug")
            return "fixed"

        app.workflow(flow)
        return app

    async with world(app_with(True)) as w:
        run = await w.begin("flow", id="a")
        with pytest.raises(RunFailed, match="a bug"):
            await run.result()
    async with world(app_with(False)) as w:
        run = w.app.run("a")
        await run.retry()
        await w.settle()
        assert await run.result() == "fixed"


async def test_retry_gives_dead_letters_back(world: Any, app: App) -> None:
    healthy = False

    async def work() -> None:
        if not healthy:
            raise OSError("down")

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        await ctx.sleep("1s")
        await ctx.step(work)
        return [await ctx.wait(line), await ctx.wait(line)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", line, 1)
        await w.app.signal("a", line, 2)
        await w.advance("1s")
        assert await run.status() == "failed"
        letters = await w.app.dead_letters("a")
        assert [one.payload for one in letters] == [1, 2]
        assert "failed" in letters[0].reason
        healthy = True
        await run.retry()
        await w.settle()
        assert await run.result() == [1, 2]
        assert list(await w.app.dead_letters()) == []


async def test_retry_after_a_caught_failure_that_was_raised_later(world: Any, app: App) -> None:
    """The step failed, cleanup ran, and the failure was raised on: what came after it is done anew."""
    server = Server()
    undone: list[str] = []

    async def undo() -> None:
        undone.append("undone")

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            return await ctx.step(server.work)
        except StepFailed:
            await ctx.step(undo)
            raise

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.status() == "failed"
        server.healthy = True
        await run.retry()
        await w.settle()
        assert await run.result() == "worked"
        assert undone == ["undone"]


async def test_retry_keeps_what_other_branches_did(world: Any, app: App) -> None:
    healthy = False
    ran: list[str] = []

    async def good(name: str) -> str:
        ran.append(name)
        return name

    async def bad() -> str:
        if not healthy:
            raise OSError("down")
        return "bad"

    async def steady(ctx: Context) -> list[str]:
        return [await ctx.step(good, "one"), await ctx.step(good, "two")]

    async def shaky(ctx: Context) -> str:
        await ctx.wait(go)
        return await ctx.step(bad)

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        return list(await ctx.gather(steady(ctx), shaky(ctx)))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await run.status() == "failed"
        healthy = True
        await run.retry()
        await w.settle()
        assert await run.result() == [["one", "two"], "bad"]
        assert ran == ["one", "two"]


async def test_retry_survives_a_restart_and_a_replay(world: Any, app: App) -> None:
    server = Server()

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        first = await ctx.wait(line)
        second = await ctx.step(server.work)
        third = await ctx.wait(line)
        return [first, second, third]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", line, 1)
        await w.settle()
        server.healthy = True
        await run.retry()
        await w.settle()
        assert await run.status() == "waiting"
    async with world(app) as w:
        await w.settle()
        await w.app.signal("a", line, 3)
        await w.settle()
        assert await w.app.run("a").result() == [1, "worked", 3]


async def test_only_a_failed_run_is_retried(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        with pytest.raises(Conflict, match="only a failed run is retried"):
            await run.retry()
        with pytest.raises(RunNotFound):
            await w.app.run("b").retry()
        await run.terminate()
        with pytest.raises(Conflict):
            await run.retry()


async def test_result_after_a_retry_waits_for_the_new_end(world: Any, app: App) -> None:
    server = Server()

    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(server.work)

    async with world(app) as w:
        run = await w.begin(flow)
        other = w.app.run(run.id)
        for one in (run, other):
            with pytest.raises(RunFailed):
                await one.result()
        server.healthy = True
        await run.retry()
        assert await run.result() == "worked"
        assert await other.result() == "worked"


async def test_retry_after_an_error_that_was_raised_from_a_failed_step(
    world: Any, app: App
) -> None:
    healthy = False

    class OrderFailed(Exception):
        pass

    class Declined(Exception):
        pass

    async def pay() -> str:
        if not healthy:
            raise Declined("no")
        return "paid"

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            return await ctx.step(step(raises=[Declined])(pay))
        except Declined as error:
            raise OrderFailed("order") from error

    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed, match="OrderFailed") as failed:
            await run.result()
        assert failed.value.path == "pay"
        healthy = True
        await run.retry()
        await w.settle()
        assert await run.result() == "paid"


async def test_retry_of_a_parent_waits_for_its_retried_child_anew(world: Any, app: App) -> None:
    server = Server()

    @app.workflow
    async def child(ctx: Context) -> str:
        return await ctx.step(server.work)

    @app.workflow
    async def parent(ctx: Context) -> str:
        return await ctx.call(child, id="kid")

    async with world(app) as w:
        run = await w.begin(parent)
        assert await run.status() == "failed"
        server.healthy = True
        await w.app.run("kid").retry()
        await w.settle()
        await run.retry()
        await w.settle()
        assert await run.result() == "worked"


async def test_retry_after_a_wait_ran_out_waits_anew(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go, timeout="1h")

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.advance("1h")
        with pytest.raises(RunFailed, match="WaitTimeout"):
            await run.result()
        await run.retry()
        await w.settle()
        assert await run.status() == "waiting"
        await w.advance("59m")
        await w.app.signal("a", go, 5)
        await w.settle()
        assert await run.result() == 5


async def test_retry_after_a_refused_send_sends_anew(world: Any, app: App) -> None:
    @app.workflow
    async def late(ctx: Context) -> int:
        return await ctx.wait(go)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.signal("late", go, 5)

    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed, match="no run 'late'"):
            await run.result()
        target = await w.begin(late, id="late")
        await run.retry()
        await w.settle()
        await run.result()
        assert await target.result() == 5


async def test_pause_and_resume_around_the_end_of_a_step_leave_no_hole(
    world: Any, app: App
) -> None:
    """The resume is committed while the pause is being recorded: the step's result must not be lost."""
    gate = Gate()

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        first = await ctx.step(gate.step)
        return [first, await ctx.wait(line), await ctx.wait(line)]

    async with world(app) as w:
        run = await w.app.start(flow, id="a")
        await gate.begun.wait()
        await w.app.signal("a", line, 1)
        await run.pause()
        resuming = asyncio.ensure_future(run.resume())
        gate.open.set()
        await resuming
        await w.settle()
        await w.evict()
        await w.app.signal("a", line, 2)
        await w.settle()
        assert await run.result() == ["through", 1, 2]
        assert gate.calls == 1


async def test_no_body_begins_after_a_pause_that_came_with_the_result_before_it(
    world: Any, app: App
) -> None:
    gate = Gate()
    ran: list[str] = []

    @step
    async def second() -> str:
        ran.append("second")
        return "second"

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        return [await ctx.step(gate.step), await ctx.step(second)]

    async with world(app) as w:
        run = await w.app.start(flow)
        await gate.begun.wait()
        pausing = asyncio.ensure_future(run.pause("audit"))
        gate.open.set()
        await pausing

        async def paused() -> bool:
            return bool(await run.status() == "paused")

        await w.until(paused)
        assert ran == []
        assert {one.path: one.status for one in await run.history()} == {"gate": "done"}
        await run.resume()
        await w.settle()
        assert await run.result() == ["through", "second"]


async def test_no_body_begins_after_a_cancel_that_came_with_the_result_before_it(
    world: Any, app: App
) -> None:
    gate = Gate()
    ran: list[str] = []

    @step
    async def second() -> None:
        ran.append("second")

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(gate.step)
        await ctx.step(second)

    async with world(app) as w:
        run = await w.app.start(flow)
        await gate.begun.wait()
        cancelling = asyncio.ensure_future(run.cancel())
        gate.open.set()
        await cancelling
        await w.settle()
        assert await run.status() == "cancelled"
        assert ran == []


@pytest.mark.parametrize("where", ["step", "code"])
async def test_retry_after_siblings_were_cancelled_asks_their_waits_again(
    world: Any, app: App, where: str
) -> None:
    """The failure of one branch closed the wait of another; on retry that wait is opened anew."""
    healthy = False

    async def work() -> str:
        if not healthy and where == "step":
            raise OSError("down")
        return "worked"

    async def shaky(ctx: Context) -> str:
        await ctx.sleep("1s")
        done = await ctx.step(work)
        if not healthy and where == "code":
            raise ValueError("a bug")
        return done

    async def listener(ctx: Context) -> int:
        return await ctx.wait(line)

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        return list(await ctx.gather(listener(ctx), shaky(ctx)))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.advance("1s")
        assert await run.status() == "failed"
        healthy = True
        await run.retry()
        await w.settle()
        assert await run.status() == "waiting"
        await w.evict()
        await w.app.signal("a", line, 4)
        await w.settle()
        assert await run.result() == [4, "worked"]


@pytest.mark.parametrize("again", [False, True])
async def test_retry_after_a_sibling_cleaned_up(world: Any, app: App, again: bool) -> None:
    """What it did when it was cancelled is on record; nobody asks for it now, or not until the next failure."""
    server = Server()
    cleaned: list[str] = []

    async def clean() -> None:
        cleaned.append("up")

    async def listener(ctx: Context) -> int:
        try:
            return await ctx.wait(line)
        except asyncio.CancelledError:
            await ctx.step(clean)
            raise

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        return list(await ctx.gather(listener(ctx), ctx.step(server.work)))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert await run.status() == "failed"
        if again:
            await run.retry()
            await w.settle()
            assert await run.status() == "failed"
        server.healthy = True
        await run.retry()
        await w.settle()
        assert await run.status() == "waiting"
        await w.evict()
        await w.app.signal("a", line, 4)
        await w.settle()
        assert await run.result() == [4, "worked"]
        assert cleaned == ["up"]


# --- looking -------------------------------------------------------------------------------------


async def test_a_history_is_read_page_by_page(world: Any, app: App) -> None:
    async def double(number: int) -> int:
        return 2 * number

    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.gather(*[ctx.step(double, one) for one in range(5)])
        return await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow)
        whole = await run.history()
        assert (len(whole), whole[-1].status, whole.cursor) == (6, "open", None)
        first = await run.history(limit=4)
        second = await run.history(limit=2, after=first.cursor)
        assert first.items + second.items == whole.items
        assert (len(first), second.cursor) == (4, None)
        await w.app.signal(run.id, go, 1)
        await w.settle()
        assert [one.status for one in await run.history(after=first.cursor)] == ["done", "done"]
        for wrong in (
            {"limit": 0},
            {"limit": 1001},
            {"after": "nowhere"},
            {"after": whole[0].path},
        ):
            with pytest.raises(BadValue):
                await run.history(**wrong)


async def test_pages_of_a_history_miss_nothing_that_is_decided_between_them(
    world: Any, app: App
) -> None:
    signals = [Signal(f"g{one}", int) for one in range(5)]
    healthy: list[bool] = []

    async def shaky() -> str:
        if not healthy:
            raise ValueError("no such luck")
        return "well"

    @app.workflow
    async def flow(ctx: Context) -> str:
        await ctx.gather(*[ctx.wait(one) for one in signals])
        return await ctx.step(shaky)

    async with world(app) as w:
        run = await w.begin(flow)
        await w.app.signal(run.id, signals[0], 0)
        await w.settle()
        first = await run.history(limit=1)
        assert (len(first), first.cursor) == (5, None)  # what is open is there, however much it is
        for number, one in enumerate(signals[1:], 1):
            await w.app.signal(run.id, one, number)
        await w.settle()
        first = await run.history(limit=3)
        failed = await run.history(limit=3, after=first.cursor)
        assert [one.path for one in (*first, *failed)] == ["g0", "g1", "g2", "g3", "g4", "shaky"]
        cut = await run.history(limit=5)
        healthy.append(True)
        await run.retry()
        await w.settle()
        rest = await run.history(after=cut.cursor)
        assert [(one.path, one.status) for one in rest if one.kind == "step"] == [
            ("shaky", "superseded"),
            ("shaky", "done"),
        ]
