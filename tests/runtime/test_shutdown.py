"""Closing an app: steps in flight get a grace, runs are handed back, nothing is left behind."""

import asyncio
import contextvars
import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from perdure import App, Context, Signal, step

go = Signal("go", int)


async def test_a_step_in_flight_ends_within_the_grace(world: Any, app: App) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    @step
    async def slow() -> str:
        begun.set()
        await let_go.wait()
        ran.append("slow")
        return "slow"

    @step
    async def after() -> str:
        ran.append("after")
        return "after"

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        return [await ctx.step(slow), await ctx.step(after)]

    async with world(app) as w:
        await w.app.start(flow, id="a")
        await begun.wait()
        closing = asyncio.ensure_future(w.app.__aexit__(None, None, None))
        await asyncio.sleep(0)
        let_go.set()
        await closing
    assert ran[0] == "slow"
    async with world(app) as w:
        await w.settle()
        assert await w.app.run("a").result() == ["slow", "after"]
        assert ran == ["slow", "after"]


async def test_a_step_over_the_grace_is_cut_and_runs_again(world: Any, app: App) -> None:
    begun, tries = asyncio.Event(), []

    @step
    async def endless() -> str:
        tries.append(1)
        begun.set()
        if len(tries) == 1:
            await asyncio.Event().wait()
        return "second time"

    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.step(endless)

    async with world(app) as w:
        await w.app.start(flow, id="a")
        await begun.wait()
        await w.worker.stop(grace_s=0.01)
    async with world(app) as w:
        await w.settle()
        assert await w.app.run("a").result() == "second time"


class Held:
    """A plain step that stands in its thread until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.tries = 0

    def blocking(self) -> int:
        self.tries += 1
        tries = self.tries
        self.begun.set()
        if tries == 1:
            self.let_go.wait(20)
        return tries

    async def until_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, 10)


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.let_go.set()


async def until_logged(caplog: pytest.LogCaptureFixture, words: str) -> None:
    async with asyncio.timeout(10):
        while words not in caplog.text:  # noqa: ASYNC110 (what is awaited is a line of the log)
            await asyncio.sleep(0.001)


async def test_a_thread_over_the_grace_is_waited_for_and_its_result_recorded(
    world: Any, app: App, held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    """The process could not end before it either; and elsewhere the step would run at the same time."""
    caplog.set_level("INFO")

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(held.blocking)

    async with world(app, grace=0.01) as w:
        await w.app.start(flow, id="a")
        await held.until_begun()
        worker_id, store = w.worker.worker_id, w.store
        closing = asyncio.ensure_future(w.app.__aexit__(None, None, None))
        await until_logged(caplog, "closing waits for steps (grace: 0.01 s): blocking (run a, ")
        for _ in range(20):
            await asyncio.sleep(0.002)
        run = await store.run("a")
        assert not closing.done()
        assert (run.owner, run.status) == (worker_id, "running")
        assert worker_id in [one.worker_id for one in await store.workers()]
        held.let_go.set()
        await asyncio.wait_for(closing, 10)
    async with world(app) as w:
        await w.settle()
        assert await w.app.run("a").result() == 1
    assert held.tries == 1


async def test_runs_that_nothing_works_for_are_handed_back_at_once(
    world: Any, app: App, held: Held
) -> None:
    """One long step must not keep all others: here their next steps would not begin any more."""

    @app.workflow
    async def long(ctx: Context) -> int:
        return await ctx.step(held.blocking)

    @app.workflow
    async def brief(ctx: Context) -> int:
        return await ctx.wait(go)

    async with world(app) as w:
        await w.begin(brief, id="b")
        await w.app.start(long, id="a")
        await held.until_begun()
        store = w.store
        closing = asyncio.ensure_future(w.app.__aexit__(None, None, None))

        async def handed_back() -> bool:
            return (await store.run("b")).owner is None

        await w.until(handed_back)
        assert (await store.run("a")).owner is not None
        held.let_go.set()
        await asyncio.wait_for(closing, 10)
    async with world(app) as w:
        await w.app.signal("b", go, 5)
        await w.settle()
        assert [await w.app.run(one).result() for one in "ab"] == [1, 5]


async def test_what_waits_for_a_thread_while_the_app_closes_does_not_begin(
    world: Any, app: App, held: Held
) -> None:
    ran: list[str] = []

    @app.workflow
    async def long(ctx: Context) -> int:
        return await ctx.step(held.blocking)

    @app.workflow
    async def brief(ctx: Context) -> None:
        await ctx.step(ran.append, "brief")

    async with world(app, threads=1) as w:
        await w.app.start(long, id="a")
        await held.until_begun()
        await w.app.start(brief, id="b")
        closing = asyncio.ensure_future(w.app.__aexit__(None, None, None))
        store = w.store

        async def handed_back() -> bool:
            return (await store.run("b")).owner is None

        await w.until(handed_back)
        held.let_go.set()
        await asyncio.wait_for(closing, 10)
    assert ran == []
    async with world(app) as w:
        await w.settle()
        assert ran == ["brief"]


async def test_while_it_waits_a_worker_hears_what_is_asked_of_its_runs(
    world: Any, app: App, held: Held
) -> None:
    """Or the run would be taken by others, who are to take what an owner does not answer for."""

    @app.workflow
    async def flow(ctx: Context) -> int:
        try:
            return await ctx.step(held.blocking)
        finally:
            await ctx.set("cleaned", True)

    async with world(app) as w:
        run = await w.app.start(flow, id="a")
        await held.until_begun()
        closing = asyncio.ensure_future(w.app.__aexit__(None, None, None))
        while not w.worker.is_draining:  # noqa: ASYNC110 (readers of the ledger are stopped before it)
            await asyncio.sleep(0)
        await run.cancel()
        # Nobody wants its result any more, so nobody waits for it.
        await asyncio.wait_for(closing, 10)
    async with world(app) as w:
        await w.settle()
        assert await w.app.run("a").status() == "cancelled"
        assert await w.app.run("a").get("cleaned") is True
    assert held.tries == 1


@pytest.mark.parametrize("world", [("sqlite", 100)], indirect=True)
async def test_a_close_that_is_cancelled_leaves_a_run_alone_until_its_thread_has_ended(
    world: Any, app: App, held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(held.blocking)

    stage = world(app)
    w = await stage.__aenter__()
    await w.app.start(flow, id="a")
    await held.until_begun()
    worker = w.worker
    closing = asyncio.ensure_future(stage.__aexit__(None, None, None))
    while not worker.is_draining:  # noqa: ASYNC110 (as above)
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing}, timeout=10)
    assert closing.cancelled()
    assert "closed while steps still run: blocking (run a, " in caplog.text
    async with world(app) as again:
        await again.worker.recovery.look(thorough=True)
        await again.settle()
        assert (await again.store.run("a")).owner == worker.worker_id
        assert held.tries == 1
        held.let_go.set()

        async def is_taken() -> bool:
            await again.worker.recovery.look(thorough=True)
            return await again.app.run("a").status() == "completed"

        await again.until(is_taken)
        assert await again.app.run("a").result() == 2


@pytest.mark.parametrize(
    "world", [("memory", 100), ("postgres", 100), ("redis", 100)], indirect=True
)
async def test_a_life_sign_outlasts_a_close_by_as_much_as_a_thread_does(
    world: Any, app: App, held: Held
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(held.blocking)

    stage = world(app, lease="366d")  # of real time a fifth of it: no beat is needed for this test
    w = await stage.__aenter__()
    await w.app.start(flow, id="a")
    await held.until_begun()
    worker, beating = w.worker, getattr(w.store, "_beating", None)
    closing = asyncio.ensure_future(stage.__aexit__(None, None, None))
    while not worker.is_draining:  # noqa: ASYNC110 (as above)
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing}, timeout=10)
    async with world(app) as again:
        await again.worker.recovery.look(thorough=True)
        await again.settle()
        assert (await again.store.run("a")).owner == worker.worker_id
        assert worker.worker_id in [one.worker_id for one in await again.store.workers()]
    held.let_go.set()
    if beating is not None:
        assert await asyncio.to_thread(beating._stopped.wait, 10)
    assert held.tries == 1


async def test_a_busy_run_does_not_hold_up_the_close(world: Any, app: App) -> None:
    """While closing, the body in flight ends but no new one begins; a loop of steps is handed back."""
    ran = 0
    started = asyncio.Event()

    @step
    async def tick() -> None:
        nonlocal ran
        ran += 1
        started.set()
        await asyncio.sleep(0)

    @app.workflow
    async def busy(ctx: Context) -> None:
        for _ in range(100_000):
            await ctx.step(tick)

    async with world(app) as w:
        await w.app.start(busy, id="a")
        await started.wait()
        loop = asyncio.get_running_loop()
        began, before = loop.time(), ran
    assert loop.time() - began < 3
    assert ran - before < 1000
    async with world(app, worker=False) as w:
        assert await w.app.run("a").status() == "ready"


async def test_runs_are_handed_back(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    async with world(app) as w:
        await w.begin(flow, id="a")
    async with world(app, worker=False) as w:
        record = await w.store.run("a")
        assert (record.owner, record.fence, record.status) == (None, 0, "waiting")
        assert (await w.store.counts())["workers"] == 0
    async with world(app) as w:
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await w.app.run("a").result() == 1


async def test_runs_started_while_the_app_closes_are_handed_back(world: Any, app: App) -> None:
    """Also when their code leaves its mark in the context, which ends the task that they began in."""
    mark: contextvars.ContextVar[int] = contextvars.ContextVar("mark")

    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        mark.set(n)
        return await ctx.wait(go)

    async with world(app) as w:
        starts = [asyncio.ensure_future(w.app.start(flow, n)) for n in range(5)]
        await asyncio.sleep(0)
    await asyncio.gather(*starts)
    async with world(app, worker=False) as w:
        runs = (await w.app.runs()).items
        assert len(runs) == 5
        owners = [(await w.store.run(run.id)).owner for run in runs]
        assert owners == [None] * 5


async def test_no_task_and_no_thread_is_left(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.step(os.getpid)
        return await ctx.wait(go)

    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    async with world(app, keep="1d") as w:
        await w.begin(flow)
    assert asyncio.all_tasks() == tasks
    left = {one for one in set(threading.enumerate()) - threads if one.name.startswith("perdure")}
    for one in left:
        await asyncio.to_thread(one.join, 5)
    assert not any(one.is_alive() for one in left)


@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_nothing_is_left_open(world: Any, app: App) -> None:
    """An unclosed file, socket or connection would warn when it is collected, and fail this test."""

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    before = _open_files()
    for n in range(3):
        async with world(app) as w:
            await w.begin(flow, id=f"{n}")
    del w
    gc.collect()
    assert _open_files() <= before


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


async def test_an_error_in_the_body_of_the_with_closes_all_the_same(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    tasks = asyncio.all_tasks()
    with pytest.raises(ZeroDivisionError):
        async with world(app) as w:
            await w.begin(flow, id="a")
            _ = 1 / 0
    assert asyncio.all_tasks() == tasks
    async with world(app) as w:
        await w.app.signal("a", go, 2)
        await w.settle()
        assert await w.app.run("a").result() == 2


async def test_an_app_may_be_opened_again(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    stage = world(app)
    for n in range(3):
        async with stage as w:
            await w.begin(flow, id=f"run-{n}")
    async with stage as w:
        for n in range(3):
            await w.app.signal(f"run-{n}", go, n)
        await w.settle()
        assert [await w.app.run(f"run-{n}").result() for n in range(3)] == [0, 1, 2]


async def test_awaiting_a_result_across_the_close(world: Any, app: App) -> None:
    """Whoever awaits a result when the app closes is told so, and does not wait for ever."""
    from perdure import NotRunning

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        awaiting = asyncio.ensure_future(run.result())
        await asyncio.sleep(0)
    with pytest.raises(NotRunning):
        await asyncio.wait_for(awaiting, 10)


async def test_many_runs_in_every_state_survive_a_restart(world: Any, app: App) -> None:
    begun = asyncio.Event()
    hold = asyncio.Event()

    @step
    async def work(n: int) -> int:
        begun.set()
        await hold.wait()
        return n

    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        if n % 3 == 0:
            return await ctx.step(work, n)
        if n % 3 == 1:
            return await ctx.wait(go)
        await ctx.sleep("1h")
        return n

    async with world(app) as w:
        for n in range(12):
            await w.app.start(flow, n, id=f"{n}")
        await begun.wait()
        await w.app.run("1").pause()
        await w.worker.stop(grace_s=0.01)
    hold.set()
    async with world(app) as w:
        await w.advance("1h")
        await w.app.run("1").resume()
        await w.app.signal_many([(f"{n}", go, n) for n in range(12) if n % 3 == 1])
        await w.settle()
        assert [await w.app.run(f"{n}").result() for n in range(12)] == list(range(12))


async def test_a_run_that_sends_in_a_loop_does_not_hold_up_the_close(world: Any, app: App) -> None:
    """Each answer leads to the next op: while closing, answers lead nowhere any more."""
    over = asyncio.Event()
    sent = 0

    @app.workflow
    async def chatty(ctx: Context) -> None:
        nonlocal sent
        while not over.is_set():
            sent += 1
            await ctx.set("n", sent)

    async def enough() -> bool:
        return sent > 5

    async with world(app) as w:
        await w.app.start(chatty, id="a")
        await w.until(enough)
        closing = asyncio.ensure_future(w.app.__aexit__(None, None, None))
        closed, _ = await asyncio.wait([closing], timeout=3)
        over.set()
        await closing
    assert closed
    async with world(app, worker=False) as w:
        assert await w.app.run("a").status() == "ready"


@pytest.mark.parametrize("turns", range(4))
async def test_a_run_that_is_born_while_the_app_closes_does_not_begin(
    world: Any, app: App, turns: int
) -> None:
    over = asyncio.Event()

    @app.workflow
    async def chatty(ctx: Context) -> None:
        while not over.is_set():
            await ctx.set("n", 1)

    async with world(app) as w:
        starting = asyncio.ensure_future(w.app.start(chatty, id="a"))
        for _ in range(turns):
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(w.app.__aexit__(None, None, None))
        closed, _ = await asyncio.wait([closing], timeout=3)
        over.set()
        await asyncio.gather(closing, starting, return_exceptions=True)
    assert closed
    async with world(app, worker=False) as w:
        if starting.exception() is None:
            assert await w.app.run("a").status() == "ready"
