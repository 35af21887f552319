"""Closing under trouble: whatever fails, is cancelled or comes late, nothing stays open and nobody waits for ever."""

import asyncio
import gc
import os
import warnings
from typing import Any

import pytest

from perdure import (
    App,
    Buffered,
    Context,
    Delivered,
    NotRunning,
    OutcomeUnknown,
    Retry,
    Signal,
    SignalTaken,
    StoreRefused,
    step,
)
from perdure.coordinator.coordinator import Coordinator
from perdure.coordinator.wake import WakeHub
from perdure.model import limits
from perdure.model.limits import BadValue
from perdure.model.ops import Recover, SendSignal
from perdure.service import Service
from perdure.store.base import BatchFailed, Store

go = Signal("go", int)
line = Signal("line", int, buffer="all")
claim = Signal("claim", int, buffer="first", on_end="dead_letter")


@pytest.fixture
def flow(app: App) -> Any:
    @app.workflow(signals=[go, line, claim])
    async def flow(ctx: Context) -> int:
        return await ctx.wait(go)

    return flow


def closings_of(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What becomes of the store's `close`: "begun" and "ended"."""
    seen: list[str] = []
    close = store.close

    async def noted() -> None:
        seen.append("begun")
        await asyncio.sleep(0)
        await close()
        seen.append("ended")

    monkeypatch.setattr(store, "close", noted)
    return seen


def hold_apply(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> tuple[asyncio.Event, asyncio.Event]:
    """Make commits wait: (one is under way, let them go)."""
    inside, gate = asyncio.Event(), asyncio.Event()
    apply = store.apply

    async def held(batch_id: str, ops: Any, *rest: Any) -> Any:
        inside.set()
        await gate.wait()
        return await apply(batch_id, ops, *rest)

    monkeypatch.setattr(store, "apply", held)
    return inside, gate


# --- closing is failure-safe and cancellation-safe -----------------------------------------------


async def test_a_store_that_refuses_the_farewell_is_closed_all_the_same(
    world: Any, app: App, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = asyncio.all_tasks()
    stage = world(app)
    w = await stage.__aenter__()
    run = await w.begin(flow, id="a")
    awaiting = asyncio.ensure_future(run.result())
    await asyncio.sleep(0)
    closings = closings_of(w.store, monkeypatch)
    apply = w.store.apply

    async def full(batch_id: str, ops: Any, *rest: Any) -> Any:
        raise BatchFailed("disk full")

    monkeypatch.setattr(w.store, "apply", full)
    store = w.store
    with pytest.raises(StoreRefused, match="disk full"):
        await stage.__aexit__(None, None, None)
    monkeypatch.setattr(store, "apply", apply)
    with pytest.raises(NotRunning):
        await asyncio.wait_for(awaiting, 10)
    assert closings == ["begun", "ended"]
    assert asyncio.all_tasks() == tasks
    if w.app.url.startswith("sqlite"):  # the others would have to wait for the lease of the dead
        async with world(app) as again:
            await again.app.signal("a", go, 1)
            await again.settle()
            assert await again.app.run("a").result() == 1


async def test_the_first_error_of_closing_is_told(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = world(app)
    w = await stage.__aenter__()
    closings = closings_of(w.store, monkeypatch)
    close, stop = w.store.close, w.worker.stop

    async def stop_and_fail() -> None:
        await stop()
        raise ZeroDivisionError

    async def close_and_fail() -> None:
        await close()
        raise OSError

    monkeypatch.setattr(w.worker, "stop", stop_and_fail)
    monkeypatch.setattr(w.store, "close", close_and_fail)
    with pytest.raises(ZeroDivisionError):
        await stage.__aexit__(None, None, None)
    assert closings == ["begun", "ended"]


async def test_a_close_that_is_cancelled_closes_all_the_same(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    @step
    async def slow() -> int:
        begun.set()
        await let_go.wait()
        return 1

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(slow)

    stage = world(app)
    w = await stage.__aenter__()
    run = await w.app.start(flow)
    await begun.wait()
    awaiting = asyncio.ensure_future(run.result())
    await asyncio.sleep(0)
    coordinator, closings = w.coordinator, closings_of(w.store, monkeypatch)
    monkeypatch.setattr(w.worker, "_grace_s", 3600)  # whether the cancel comes before it or within
    closing = asyncio.ensure_future(stage.__aexit__(None, None, None))
    for _ in range(5):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing}, timeout=10)
    let_go.set()
    assert closing.cancelled()
    assert closings == ["begun", "ended"]
    assert coordinator._pump is None
    with pytest.raises(NotRunning):
        await asyncio.wait_for(awaiting, 10)
    with pytest.raises(NotRunning):
        w.app.run("a")


@pytest.mark.parametrize("times", [1, 2])
async def test_a_close_that_is_cancelled_leaves_no_task_and_hands_the_runs_back(
    world: Any, app: App, times: int
) -> None:
    tasks = asyncio.all_tasks()
    begun, ended = asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    @step
    async def slow() -> int:
        calls.append("slow")
        if len(calls) == 1:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        return len(calls)

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.step(slow)

    stage = world(app)
    w = await stage.__aenter__()
    store = w.store
    await w.app.start(flow, id="a")
    await begun.wait()
    worker = w.worker
    closing = asyncio.ensure_future(stage.__aexit__(None, None, None))
    while not worker.is_draining:  # noqa: ASYNC110 (readers of the ledger are stopped before it)
        await asyncio.sleep(0)
    for _ in range(times):
        for _ in range(5):  # into the grace of the step; then into what is left to do
            await asyncio.sleep(0)
        closing.cancel()
    await asyncio.wait({closing}, timeout=10)
    assert closing.cancelled()
    assert ended.is_set()
    assert asyncio.all_tasks() == tasks
    assert store.worker_id is None
    async with world(app) as again:
        await again.settle()
        assert await again.app.run("a").result() == 2


async def test_a_store_is_closed_to_its_end_though_its_caller_is_cancelled(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = world(app)
    w = await stage.__aenter__()
    closings = closings_of(w.store, monkeypatch)
    closing = asyncio.ensure_future(stage.__aexit__(None, None, None))
    while not closings:  # noqa: ASYNC110 (a list of this test's, without an event)
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing}, timeout=10)
    assert closing.cancelled()
    assert closings == ["begun", "ended"]


async def test_cancelling_the_stop_leaves_the_writer_at_its_work(
    world: Any, app: App, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app) as w:
        await w.begin(flow, id="a")
        inside, gate = hold_apply(w.store, monkeypatch)
        sending = asyncio.ensure_future(w.app.signal("a", line, 1))
        await inside.wait()
        stopping = asyncio.ensure_future(w.coordinator.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait({stopping})
        gate.set()
        assert isinstance(await asyncio.wait_for(sending, 10), Buffered)
        w.coordinator.start()  # so that the world can close as usual


async def test_an_opening_that_fails_closes_the_store(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even when it is cancelled while it gives up."""
    stage = world(app)
    make = stage.app._make_store
    closings: list[list[str]] = []
    coordinators: list[Coordinator] = []

    def make_broken(ids: Any) -> Store:
        store: Store = make(ids)
        closings.append(closings_of(store, monkeypatch))
        monkeypatch.setattr(store, "look", fail)
        return store

    async def fail(*asked: Any) -> Any:
        engine = stage.app._engine()
        coordinators.append(engine.coordinator)
        monkeypatch.setattr(engine.worker, "stop", be_cancelled)
        raise ZeroDivisionError

    async def be_cancelled() -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(stage.app, "_make_store", make_broken)
    with pytest.raises(asyncio.CancelledError):
        await stage.__aenter__()
    assert closings == [["begun", "ended"]]
    assert coordinators[0]._pump is None


# --- a writer that dies --------------------------------------------------------------------------


async def test_a_writer_that_dies_in_a_commit_answers_all(
    world: Any, app: App, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app) as w:
        with monkeypatch.context() as patch:
            inside, gate = hold_apply(w.store, patch)
            starts = [asyncio.ensure_future(w.app.start(flow, id=f"{n}")) for n in range(3)]
            await inside.wait()
            w.coordinator._pump.cancel()
            async with asyncio.timeout(10):
                answers = await asyncio.gather(*starts, return_exceptions=True)
        gate.set()
        assert any(isinstance(one, OutcomeUnknown) for one in answers)
        assert w.worker._reserved == 0
        await w.settle()
        await w.app.start(flow, id="after")
        await w.app.signal("after", go, 2)
        assert await w.app.run("after").result() == 2


async def test_too_few_answers_of_a_store_leave_nobody_waiting(
    world: Any, app: App, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app) as w:
        await w.begin(flow, id="a")
        with monkeypatch.context() as patch:
            apply = w.store.apply

            async def forgetful(batch_id: str, ops: Any, *rest: Any) -> Any:
                return (await apply(batch_id, ops, *rest))[:-1]

            patch.setattr(w.store, "apply", forgetful)
            with pytest.raises(OutcomeUnknown):
                await asyncio.wait_for(w.app.signal("a", line, 1), 10)
        await w.settle()


def test_no_writer_is_begun_in_a_loop_that_ends() -> None:
    """An app that is never closed leaves no task behind that can never run."""
    app = App("memory://")
    kept: list[Coordinator] = []

    async def forget_to_close() -> None:
        await app.__aenter__()
        kept.append(app._engine().coordinator)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(forget_to_close())
        gc.collect()
    assert kept[0]._pump is None


async def test_a_flush_ends_when_the_writer_stops_beside_it(
    world: Any, app: App, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app) as w:
        await w.begin(flow, id="a")
        inside, gate = hold_apply(w.store, monkeypatch)
        sending = asyncio.ensure_future(w.app.signal("a", line, 1))
        await inside.wait()
        flushing = asyncio.ensure_future(w.coordinator.flush())
        stopping = asyncio.ensure_future(w.coordinator.stop())
        await asyncio.sleep(0)
        gate.set()
        await asyncio.wait_for(asyncio.gather(sending, flushing, stopping), 10)
        w.coordinator.start()  # so that the world can close as usual


async def test_a_flush_does_not_wait_for_those_who_go_on_asking(
    world: Any, app: App, flow: Any
) -> None:
    async with world(app) as w:
        await w.begin(flow, id="a")
        answers: list[Any] = []
        asking = True

        def ask(op: Any = None, outcome: Any = None, extra: Any = None) -> None:
            answers.append(outcome)
            if asking:
                w.coordinator.post(Recover(limit=1), ask)

        ask()
        await asyncio.wait_for(w.coordinator.flush(), 5)
        assert len(answers) > 1
        asking = False
        await w.settle()


async def test_those_who_wait_for_space_are_refused_at_the_end(
    world: Any, app: App, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app) as w:
        await w.begin(flow, id="a")
        with monkeypatch.context() as patch:
            patch.setattr(limits, "queue_ops_max", 1)
            inside, gate = hold_apply(w.store, patch)
            sends = [asyncio.ensure_future(w.app.signal("a", line, n)) for n in range(1)]
            await inside.wait()
            sends += [asyncio.ensure_future(w.app.signal("a", line, n)) for n in range(1)]
            await asyncio.sleep(0)
            sends += [asyncio.ensure_future(w.app.signal("a", line, n)) for n in range(5)]
            await asyncio.sleep(0)
            stopping = asyncio.ensure_future(w.coordinator.stop())
            await asyncio.sleep(0)
            gate.set()
            async with asyncio.timeout(10):
                await stopping
                answers = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(one) for one in answers} <= {Buffered, NotRunning}
        w.coordinator.start()  # so that the world can close as usual


# --- many signals --------------------------------------------------------------------------------


async def test_a_send_that_the_store_refuses_spoils_no_other(
    world: Any, app: App, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app) as w:
        for run_id in "abc":
            await w.begin(flow, id=run_id)
        apply = w.store.apply

        async def spoiled(batch_id: str, ops: Any, *rest: Any) -> Any:
            if any(isinstance(one, SendSignal) and one.run_id == "b" for one in ops):
                raise BatchFailed("row b is broken")
            return await apply(batch_id, ops, *rest)

        monkeypatch.setattr(w.store, "apply", spoiled)
        first, second, third = await w.app.signal_many([(run_id, go, 1) for run_id in "abc"])
        assert isinstance(first, Delivered)
        assert isinstance(second.error, StoreRefused)
        assert isinstance(third, Delivered)


async def test_signal_with_start_refuses_a_name_before_anything_is_written(
    world: Any, app: App, flow: Any
) -> None:
    async with world(app) as w:
        with pytest.raises(BadValue, match="must be a Signal"):
            await w.app.signal_with_start(flow, signal="go", payload=1, id="a")  # type: ignore[arg-type]
        assert len(await w.app.runs()) == 0
        assert w.worker._reserved == 0


# --- the end of a run, and the end of the app ----------------------------------------------------


async def test_a_result_asked_for_while_the_store_closes_is_refused(
    world: Any, app: App, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = world(app)
    w = await stage.__aenter__()
    run = await w.begin(flow, id="a")
    closing_store, let_go = asyncio.Event(), asyncio.Event()
    close = w.store.close

    async def slowly() -> None:
        closing_store.set()
        await let_go.wait()
        await close()

    monkeypatch.setattr(w.store, "close", slowly)
    closing = asyncio.ensure_future(stage.__aexit__(None, None, None))
    await closing_store.wait()
    for handle in (run, w.app.run("a"), w.app.run("b")):
        with pytest.raises(NotRunning):
            await asyncio.wait_for(handle.result(), 10)
    let_go.set()
    await closing


async def test_a_look_that_ends_after_the_close_is_refused(
    world: Any, app: App, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app) as w:
        await w.begin(flow, id="a")
        looking, let_go = asyncio.Event(), asyncio.Event()
        read = w.store.run

        async def slowly(run_id: str) -> Any:
            found = await read(run_id)
            looking.set()
            await let_go.wait()
            return found

        monkeypatch.setattr(w.store, "run", slowly)
        awaiting = asyncio.ensure_future(w.app.run("a").result())
        await looking.wait()
    let_go.set()
    with pytest.raises(NotRunning):
        await asyncio.wait_for(awaiting, 10)


async def test_a_handle_serves_the_next_opening_too(world: Any, app: App, flow: Any) -> None:
    stage = world(app)
    async with stage as w:
        run = await w.begin(flow, id="a")
    async with stage as w:
        awaiting = asyncio.ensure_future(run.result())
        await asyncio.sleep(0)
        await w.app.signal("a", go, 5)
        assert await asyncio.wait_for(awaiting, 10) == 5


async def test_only_the_runs_that_are_awaited_are_asked_for() -> None:
    hub = WakeHub()
    kept = [hub.ending(f"{n}") for n in range(100)]
    assert hub.awaited() == []
    one, other = hub.waiter("7", kept[7]), hub.waiter("8", kept[8])
    assert hub.awaited() == ["7", "8"]
    one.cancel()
    assert hub.awaited() == ["8"]
    assert list(hub._awaited) == ["8"]  # and nobody walks over the others
    hub.close()
    with pytest.raises(NotRunning):
        await other
    assert hub.awaited() == []


async def test_waiters_that_gave_up_are_dropped() -> None:
    ending = WakeHub().ending("a")
    lasting = [ending.waiter() for _ in range(20)]
    for _ in range(10_000):
        ending.waiter().cancel()
    kept = [ending._waiter, *ending._others]
    assert len(kept) < 100
    assert all(one in kept for one in lasting)


# --- loops that fail -----------------------------------------------------------------------------


async def test_a_loop_that_had_recovered_starts_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause grows while failures follow one another, and is short again after a good while."""
    now, pauses, lives = 0.0, [], iter([0, 0, 0, 6, 0])
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: now)

    async def pause(pause_s: float) -> None:
        pauses.append(pause_s)

    async def live() -> None:
        nonlocal now
        for life_s in lives:
            now += life_s
            raise OSError

    monkeypatch.setattr("perdure.service.asyncio.sleep", pause)
    await Service()._supervise("loop", live)
    assert pauses == [0.05, 0.1, 0.2, 0.05, 0.1]


# --- small promises ------------------------------------------------------------------------------


async def test_a_step_made_by_the_app_keeps_its_options(app: App) -> None:
    async def work() -> int:
        return 1

    made = app.step(work, name="other", retry=Retry(attempts=9))  # type: ignore[call-overload]
    assert (made.name, made.retry.attempts) == ("other", 9)


async def test_a_copy_may_have_a_namespace_of_its_own(app: App) -> None:
    assert app.copy("memory://", namespace="other").namespace == "other"
    assert App("memory://", namespace="one").copy("memory://").namespace == "one"


async def test_the_status_of_what_is_no_signal_is_none(world: Any, app: App, flow: Any) -> None:
    async with world(app) as w:
        await w.begin(flow, id="a")
        sent = await w.app.signal("a", go, 1)
        await w.settle()
        for fact in await w.facts():
            found = await w.app.signal_status(fact.event_id)
            assert (found is not None) == (fact.event_id == sent.signal_id)


async def test_a_refused_resend_names_the_signal_and_its_run(
    world: Any, app: App, flow: Any
) -> None:
    async with world(app) as w:
        await w.begin(flow, id="a")
        await w.app.signal("a", claim, 1)
        await w.app.signal("a", go, 1)
        await w.settle()
        (letter,) = await w.app.dead_letters()
        await w.begin(flow, id="b")
        await w.app.signal("b", claim, 2)
        with pytest.raises(SignalTaken) as refused:
            await w.app.resend(letter.id, run_id="b")
        assert (refused.value.name, refused.value.run_id) == ("claim", "b")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
async def test_a_forked_child_may_open_the_app_anew(world: Any, app: App, flow: Any) -> None:
    async with world(app) as w:
        await w.begin(flow, id="a")
        child = os.fork()
        if child == 0:
            _open_in_child(w.app)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await w.app.signal("a", go, 1)
        assert await w.app.run("a").result() == 1


def _open_in_child(app: App) -> None:
    """Leaves with 0 if the app opens, serves and closes; without any cleanup of the parent's things."""

    async def serve() -> None:
        async with app:
            await app.runs()

    code = 1
    try:
        asyncio._set_running_loop(None)
        asyncio.run(serve())
        code = 0
    finally:
        os._exit(code)
