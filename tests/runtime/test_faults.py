"""Faults: what user code does stops neither the worker nor another run, and no run hangs unseen."""

import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import (
    App,
    BadValue,
    Context,
    OutcomeUnknown,
    Retry,
    RetryAfter,
    RunFailed,
    Signal,
    step,
)
from perdure.model import limits
from perdure.model.ops import SendSignal
from perdure.runtime import worker as worker_module
from perdure.store.base import BatchUnknown

go = Signal("go", int)
line = Signal("line", int, buffer="all")


async def one() -> int:
    return 1


@pytest.fixture
def app() -> App:
    """An app that has a workflow `healthy` besides those of the test."""
    app = App("memory://")

    @app.workflow
    async def healthy(ctx: Context) -> int:
        return await ctx.step(one)

    return app


async def others_go_on(w: Any) -> None:
    """Another run's step still runs to the end."""
    run = await w.app.start("healthy")
    assert await run.result(timeout="5s") == 1


async def begin_and_look_at_others(w: Any, workflow: Any, **options: Any) -> Any:
    """Start a run that does something odd; the others must not notice."""
    run = await w.app.start(workflow, **options)
    await others_go_on(w)
    await w.settle()
    return run


# --- odd user code -------------------------------------------------------------------------------


async def test_a_function_given_to_map_that_raises_fails_its_run_alone(
    world: Any, app: App
) -> None:
    def raises(n: int) -> Any:
        raise ValueError(f"no {n}")

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(one)
        await ctx.map(raises, [1, 2])

    async with world(app) as w:
        run = await begin_and_look_at_others(w, flow)
        with pytest.raises(RunFailed, match="no 1") as failed:
            await run.result()
        assert failed.value.type == "ValueError"


async def test_what_a_function_given_to_map_raises_can_be_caught(world: Any, app: App) -> None:
    def raises_at_two(n: int) -> Any:
        if n == 2:
            raise ValueError(f"no {n}")
        return ctx_of[0].step(one)

    ctx_of: list[Context] = []

    @app.workflow
    async def flow(ctx: Context) -> str:
        ctx_of[:] = [ctx]
        try:
            await ctx.map(raises_at_two, [1, 2, 3], concurrency=1)
        except ValueError as error:
            said = str(error)
        await ctx.wait(go)
        return said

    async with world(app) as w:
        run = await begin_and_look_at_others(w, flow, id="a")
        await w.evict()
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await run.result() == "no 2"


async def test_a_step_function_that_carries_a_retry_of_its_own_is_a_step(
    world: Any, app: App
) -> None:
    """Decorators of other libraries leave attributes on what they wrap, under whatever name."""

    async def fails() -> int:
        raise ValueError("no luck")

    fails.retry = object()  # type: ignore[attr-defined]
    marked = step(fails)

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(marked)

    async with world(app) as w:
        run = await begin_and_look_at_others(w, flow)
        with pytest.raises(RunFailed, match="no luck"):
            await run.result()


async def test_a_workflow_function_that_carries_attributes_is_a_workflow(
    world: Any, app: App
) -> None:
    async def flow(ctx: Context) -> int:
        return await ctx.step(one)

    flow.codec = flow.name = object()  # type: ignore[attr-defined]
    workflow = app.workflow(flow)
    assert workflow.name == "flow"
    async with world(app) as w:
        run = await begin_and_look_at_others(w, workflow)
        assert await run.result() == 1


async def test_a_body_that_cancels_its_own_task_is_a_failed_step(world: Any, app: App) -> None:
    async def cancels_itself() -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return 1

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(cancels_itself)

    async with world(app) as w:
        run = await begin_and_look_at_others(w, flow)
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert (failed.value.type, failed.value.path) == ("CancelledError", "cancels_itself")


@dataclass(frozen=True)
class Declined(Exception):
    why: str


async def test_a_declared_error_that_is_frozen_is_rebuilt_as_any_other(
    world: Any, app: App
) -> None:
    seen: list[Declined] = []

    @step(raises=[Declined])
    async def pay() -> int:
        raise Declined("no cover")

    @app.workflow
    async def flow(ctx: Context) -> int:
        try:
            await ctx.step(pay)
        except Declined as error:
            seen.append(error)
        await ctx.wait(go)
        return await ctx.step(pay)

    async with world(app) as w:
        run = await begin_and_look_at_others(w, flow, id="a")
        await w.evict()
        await w.app.signal("a", go, 1)
        await w.settle()
        assert seen == [Declined("no cover")] * 2
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert (failed.value.type, failed.value.path) == ("Declined", "pay#2")
        await others_go_on(w)


class Later(RetryAfter):
    def __init__(self) -> None:
        """On purpose not that of RetryAfter: so there is no delay."""


async def test_a_retry_after_without_a_delay_keeps_to_the_policy(world: Any, app: App) -> None:
    tried: list[timedelta] = []

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(flaky)

    async with world(app) as w:
        began = w.clock.moment

        @step(retry=Retry(attempts=3, backoff="10s", factor=2, jitter=0))
        async def flaky() -> int:
            tried.append(w.clock.moment - began)
            if len(tried) < 3:
                raise Later
            return len(tried)

        run = await begin_and_look_at_others(w, flow)
        assert await run.status() == "sleeping"
        await w.advance("1m")
        assert await run.result() == 3
        assert tried == [timedelta(seconds=count) for count in (0, 10, 30)]


async def test_branches_that_nest_too_deep_fail_their_run_alone(world: Any, app: App) -> None:
    async def branch(ctx: Context) -> int:
        return await ctx.step(one)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(one)
        with ctx.scope("a" * 255), ctx.scope("b" * 255), ctx.scope("c" * 252):
            await ctx.gather(branch(ctx), branch(ctx))

    async with world(app) as w:
        run = await begin_and_look_at_others(w, flow)
        with pytest.raises(RunFailed, match="nests too deep") as failed:
            await run.result()
        assert failed.value.type == "BadValue"


async def test_a_gather_that_nests_too_deep_can_be_caught(world: Any, app: App) -> None:
    async def branch(ctx: Context) -> int:
        return await ctx.step(one)

    @app.workflow
    async def flow(ctx: Context) -> str:
        with ctx.scope("a" * 255), ctx.scope("b" * 255), ctx.scope("c" * 252):
            try:
                await ctx.map(lambda _: branch(ctx), range(3))
            except BadValue as error:
                return str(error)
        return "no"

    async with world(app) as w:
        run = await begin_and_look_at_others(w, flow)
        assert "nests too deep" in await run.result()


async def test_how_deep_paths_nest_is_counted_in_bytes(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        with ctx.scope("é" * 128), ctx.scope("é" * 128):
            try:
                with ctx.scope("é" * 128):
                    await ctx.step(one)
            except BadValue as error:
                return str(error)
        return "no"

    async with world(app) as w:
        run = await begin_and_look_at_others(w, flow)
        assert "nests too deep: 771 bytes" in await run.result()


async def test_code_that_catches_the_bound_on_calls_in_a_loop_fails_its_run_alone(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound raises where it is reached; whoever goes on asking would never give the loop a turn."""
    monkeypatch.setattr(limits, "steps_per_generation_max", 20)
    refused = 0

    @app.workflow
    async def flow(ctx: Context) -> str:
        nonlocal refused
        while refused < 1000:
            try:
                await ctx.step(one)
            except Exception:
                refused += 1
        return "froze the loop"

    async with world(app) as w:
        run = await begin_and_look_at_others(w, flow)
        with pytest.raises(RunFailed, match="20 calls in one generation"):
            await run.result()
        assert refused == 1


async def test_the_bound_on_calls_ends_a_run_also_while_a_step_is_in_flight(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "steps_per_generation_max", 2)

    @step
    async def endless() -> None:
        await asyncio.Event().wait()

    @app.workflow
    async def flow(ctx: Context) -> None:
        async def stubborn() -> None:
            while True:
                try:
                    await ctx.step(one)
                except Exception:
                    pass

        await ctx.gather(ctx.step(endless), stubborn())

    async with world(app) as w:
        run = await w.app.start(flow)
        with pytest.raises(RunFailed, match="2 calls in one generation"):
            await asyncio.wait_for(run.result(), 5)


async def test_signal_names_made_from_data_do_not_fill_the_catalogue(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "noted_signals_max", 5, raising=False)

    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        return await ctx.wait(Signal(f"answer-{n}", int))

    async with world(app) as w:
        for n in range(40):
            await w.app.start(flow, n, id=f"{n}")
        await w.settle()
        (entry,) = [one for one in await w.store.catalogue() if one.name == "flow"]
        assert len(json.loads(entry.signals)) == 5
        await w.app.signal_many([(f"{n}", Signal(f"answer-{n}", int), n) for n in range(40)])
        await w.settle()
        assert [await w.app.run(f"{n}").result() for n in range(40)] == list(range(40))


# --- between the claim and memory ----------------------------------------------------------------


async def test_a_run_whose_history_could_not_be_read_once_is_executed(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is claimed by then, so nobody else will take it."""
    reads = 0

    async with world(app) as w:
        load = w.store.load

        async def fails_once(run_ids: Any) -> Any:
            nonlocal reads
            reads += 1
            if reads == 1:
                raise OSError("disk I/O error")
            return await load(run_ids)

        monkeypatch.setattr(w.store, "load", fails_once)
        run = await w.app.start("healthy", start_at="1m")
        w.clock.set(w.clock.now() + 60_000_000)
        assert await run.result(timeout="5s") == 1
        assert reads >= 2


class Held:
    """Holds the next answer of `store.load` back: the rows are read, and grow old."""

    def __init__(self, w: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read, self.go_on = asyncio.Event(), asyncio.Event()
        load = w.store.load

        async def held(run_ids: Any) -> Any:
            rows = await load(run_ids)
            self.read.set()
            await self.go_on.wait()
            return rows

        monkeypatch.setattr(w.store, "load", held)


@pytest.mark.parametrize(
    ("order", "status"), [("cancel", "cancelled"), ("terminate", "terminated")]
)
async def test_an_order_given_while_the_history_is_read_is_heard(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch, order: str, status: str
) -> None:
    ran: list[int] = []

    async def act() -> None:
        ran.append(1)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(act)

    async with world(app) as w:
        held = Held(w, monkeypatch)
        run = await w.app.start(flow, id="a", start_at="1m")
        w.clock.set(w.clock.now() + 60_000_000)
        await held.read.wait()
        await getattr(run, order)()
        held.go_on.set()
        await w.settle()
        assert await run.status() == status
        assert ran == []
        await others_go_on(w)


async def test_after_an_unknown_outcome_no_body_is_begun_twice(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim of many runs is begun in slices; who then looks for lost runs must not take those for lost."""
    count = 60
    begun: list[int] = []
    between, slices_go_on, looked, let_go = (asyncio.Event() for _ in range(4))

    async def act(n: int) -> int:
        begun.append(n)
        await let_go.wait()
        return n

    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        return await ctx.step(act, n)

    async def sleep(seconds: float) -> None:
        if seconds == 0:
            between.set()
            await slices_go_on.wait()
        await asyncio.sleep(seconds)

    async with world(app) as w:
        for n in range(count):
            await w.app.start(flow, n, id=f"{n}", start_at="1m")
        await w.app.start("healthy", id="later", start_at="1h")
        names = {**vars(asyncio), "sleep": sleep}
        monkeypatch.setattr(worker_module, "asyncio", SimpleNamespace(**names))
        apply, look = w.store.apply, w.worker._load_lost

        async def answer_lost(batch_id: str, ops: Any, *rest: Any) -> Any:
            applied = await apply(batch_id, ops, *rest)
            if any(isinstance(op, SendSignal) for op in ops):
                raise BatchUnknown("connection lost")
            return applied

        async def looks() -> None:
            await look()
            looked.set()

        monkeypatch.setattr(w.store, "apply", answer_lost)
        monkeypatch.setattr(w.worker, "_load_lost", looks)
        w.clock.set(w.clock.now() + 60_000_000)
        await between.wait()
        with pytest.raises(OutcomeUnknown):
            await w.app.signal("later", line, 1)
        await looked.wait()
        slices_go_on.set()
        await w.until(_holds(lambda: len(begun) >= count))
        let_go.set()
        results = [await w.app.run(f"{n}").result(timeout="5s") for n in range(count)]
        assert results == list(range(count))
        assert sorted(begun) == list(range(count))


def _holds(what: Any) -> Any:
    async def holds() -> bool:
        return bool(what())

    return holds
