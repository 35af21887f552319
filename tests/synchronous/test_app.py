"""`app.sync`: the app in the background of a program without a loop, and beside a loop that has it open."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    App,
    BadValue,
    Buffered,
    Conflict,
    Context,
    Delivered,
    Duplicate,
    Emitted,
    InvalidPayload,
    NotRunning,
    OutcomeUnknown,
    PerdureError,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunNotFound,
    Signal,
    SyncApp,
    SyncRun,
    UnknownConsumer,
)

from .shop import Order, approve, arrived, jobs, note, shop, workflow
from .waiting import until

TEA = Order("tea", 3)


def is_background(thread: threading.Thread) -> bool:
    return thread.name.startswith("perdure-app")


# --- a program without a loop --------------------------------------------------------------------


def test_the_app_is_open_in_the_background_for_as_long_as_the_block(
    any_place: dict[str, Any],
) -> None:
    app = shop(**any_place)
    with app.sync as opened:
        assert opened is app.sync and isinstance(opened, SyncApp)
        run = opened.start(workflow(app, "order"), TEA, id="o/1", tags={"a": "b"}, entity="sku/tea")
        assert isinstance(run, SyncRun)
        assert (run.id, run.run_id, run.created) == ("o/1", "o/1", True)
        assert not opened.start(workflow(app, "order"), TEA, id="o/1").created
        sent = opened.signal(run.id, approve, True, key="k")
        assert isinstance(sent, Delivered | Buffered)
        assert opened.signal(run.id, approve, True, key="k") == Duplicate(sent)
        assert run.result(timeout="20s") == 3
        assert run.status() == "completed"
        assert opened.runs(tag=("a", "b")).items == [run.info()]
        assert run.get("sku") == "tea"
        assert [one.kind for one in run.history()] == ["set", "wait"]
        assert any(map(is_background, threading.enumerate()))
    assert not any(map(is_background, threading.enumerate()))
    with pytest.raises(NotRunning, match=r"with app\.sync"):
        run.status()
    with app.sync:  # and again
        if any_place["url"] != "memory://":
            assert app.sync.run("o/1").result() == 3


def test_a_pure_client_runs_nothing(place: dict[str, Any]) -> None:
    app = shop(**place, worker=False)
    with app.sync as opened:
        run = opened.start(workflow(app, "double"), 1)
        assert opened.workers() == []
        with pytest.raises(TimeoutError, match="has not ended within"):
            run.result(timeout=0)
        assert run.status() == "ready"


def test_errors_are_those_of_the_library(place: dict[str, Any]) -> None:
    app = shop(**place)
    with app.sync as opened:
        failed = opened.start("fail")
        with pytest.raises(RunFailed) as why:
            failed.result()
        assert (why.value.type, why.value.message) == ("ValueError", "no such luck")
        run = opened.start("order", {"sku": "tea", "count": 1}, id="o")
        with pytest.raises(InvalidPayload, match="bool"):
            opened.signal("o", "approve", "perhaps")
        with pytest.raises(RunNotFound):
            opened.run("nobody").status()
        with pytest.raises(Conflict):
            opened.start("order", {"sku": "milk", "count": 1}, id="o")
        with pytest.raises(UnknownConsumer):
            opened.pause_consumer("nobody")
        with pytest.raises(BadValue):
            opened.runs(limit=0)
        with pytest.raises(TypeError, match="unexpected keyword"):
            opened.runs(limits=1)  # type: ignore[call-arg]
        assert run.cancel("enough") in ("running", "waiting", "cancelled")
        with pytest.raises(RunCancelled, match="enough"):
            run.result()
        with pytest.raises(RunFinished):
            opened.signal("o", note, 1)


def test_handles_are_steered_and_make_others(place: dict[str, Any]) -> None:
    app = shop(**place)
    with app.sync as opened:
        run, sent = opened.signal_with_start(
            workflow(app, "order"), TEA, signal=approve, payload=False, id="o"
        )
        assert isinstance(run, SyncRun) and isinstance(sent, Buffered | Delivered)
        assert run.result() == 3
        fork = run.fork(input=Order("milk", 7), id="fork")
        assert isinstance(fork, SyncRun)
        assert fork.pause("a moment") in ("ready", "running", "waiting", "paused")
        assert fork.resume() != "paused"
        assert opened.ask(fork.id, note, "hello", type=str) == "hello"
        opened.signal(fork.id, approve, True)
        assert fork.result() == 7
        again = opened.import_run(run.export(), id="again")
        assert isinstance(again, SyncRun) and again.result() == 3
        opened.schedule("1h", workflow(app, "double"), 4, name="hourly")
        assert [one.every for one in opened.schedules()] == [timedelta(hours=1)]
        assert opened.trigger("hourly").result() == 8
        assert repr(run) == "SyncRun('o')"
        assert repr(opened) == f"{app!r}.sync"


def test_events_items_and_pages(place: dict[str, Any]) -> None:
    app = shop(**place)
    with app.sync as opened:
        assert isinstance(opened.emit(arrived, 3, entity="sku/7"), Emitted)
        opened.put(jobs, 1)
        assert opened.queues() == {"jobs": 1}
        told = opened.emit_many((arrived, number) for number in range(3))
        assert [type(one) for one in told] == [Emitted] * 3
        page = opened.events("stock.*", limit=3)
        rest = opened.events("stock.*", after=page.cursor)
        assert [one.payload for one in (*page, *rest)] == [3, 0, 1, 2]
        assert opened.latest(arrived, entity="sku/7") == page[0]
        assert opened.fsck().ok and opened.health().status == "ok"


def test_what_is_given_one_by_one_is_made_in_the_thread_that_calls(place: dict[str, Any]) -> None:
    """A generator over somebody's rows: it may use what belongs to this thread, and the app itself."""
    app = shop(**place)
    threads = []

    def sends() -> Iterator[tuple[str, Signal[Any], Any]]:
        for number in range(3):
            threads.append(threading.current_thread())
            yield app.sync.start("order", {"sku": "tea", "count": number}).id, approve, True

    with app.sync as opened:
        assert len(opened.signal_many(sends())) == 3
        with pytest.raises(BadValue, match="not several"):
            opened.signal_many(7)  # type: ignore[arg-type]
    assert set(threads) == {threading.current_thread()}


# --- streams -------------------------------------------------------------------------------------


def test_a_stream_is_an_ordinary_iterator(place: dict[str, Any]) -> None:
    app = shop(**place)
    with app.sync as opened:
        run = opened.start(workflow(app, "order"), TEA)
        items = run.stream("notes", type=str)
        for word in ("a", "b"):
            opened.signal(run.id, note, word)
            item = next(items)
            assert item.value == word
        assert [one.value for one in run.stream("notes", follow=False)] == ["a", "b"]
        assert [one.value for one in run.stream("notes", after=1, follow=False)] == ["b"]
        opened.signal(run.id, approve, True)
        assert list(items) == []
        for wrong in ({"after": -1}, {"follow": 1}):
            with pytest.raises(BadValue):
                run.stream("notes", **wrong)  # type: ignore[call-overload]
        with pytest.raises(RunNotFound):
            next(opened.run("nobody").stream("notes"))


def test_a_stream_that_is_left_is_closed_in_the_loop() -> None:
    app = shop()
    with app.sync as opened:
        run = opened.start(workflow(app, "order"), TEA)
        hub = app._life._engine.coordinator.hub  # type: ignore[union-attr]
        for leave in (lambda items: items.close(), lambda items: None):
            opened.signal(run.id, note, "a")
            items = run.stream("notes")
            next(items)
            leave(items)
            del items  # the collector takes the other one
            until(lambda: not hub._listeners)
        run.stream("notes").close()  # of one that never began there is nothing to close


def test_a_stream_ends_with_the_app(place: dict[str, Any]) -> None:
    app = shop(**place)
    with app.sync as opened:
        run = opened.start(workflow(app, "order"), TEA)
        opened.signal(run.id, note, "a")
        items, others = run.stream("notes"), run.stream("notes")
        next(items)
        next(others)
    with pytest.raises(NotRunning, match="not open"):
        next(items)
    with app.sync, pytest.raises(NotRunning, match="closed since"):
        next(others)


# --- opening and closing -------------------------------------------------------------------------


def test_an_app_is_opened_once_at_a_time(place: dict[str, Any]) -> None:
    app = shop(**place)
    with app.sync:
        with pytest.raises(NotRunning, match="open already"):
            app.sync.open()
        with pytest.raises(NotRunning, match="open already"):
            asyncio.run(entered(app))
        assert app.sync.runs().items == []
    app.sync.close()  # of what is closed nothing comes


async def entered(app: App) -> None:
    async with app:
        pass


def test_of_many_who_open_at_once_one_does(place: dict[str, Any]) -> None:
    app = shop(**place)
    gate = threading.Barrier(8)

    def open_it(_: int) -> bool:
        gate.wait(10)
        try:
            app.sync.open()
            return True
        except NotRunning:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(open_it, range(8))) == 1
    app.sync.start("fail")
    app.sync.close()
    app.sync.close()
    assert not any(map(is_background, threading.enumerate()))


def test_an_opening_that_fails_leaves_nothing_behind() -> None:
    app = shop("sqlite:////nowhere/at/all.db")
    for _ in range(2):
        with pytest.raises(PerdureError, match="nowhere"):
            app.sync.open()
        assert not any(map(is_background, threading.enumerate()))
    with pytest.raises(NotRunning):
        app.sync.runs()


def test_a_system_without_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    app = shop()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="new thread"):
        patched.setattr(threading.Thread, "start", refuse)
        app.sync.open()
    with app.sync:
        assert app.sync.runs().items == []


def test_not_open() -> None:
    app = shop()
    for call in (lambda: app.sync.start("fail"), lambda: app.sync.run("a"), app.sync.runs):
        with pytest.raises(NotRunning, match=r"with app\.sync"):
            call()
    with pytest.raises(NotRunning):
        app.sync.schedule("1h", "fail")


def test_the_schema_is_told_of_a_store_that_nobody_has_opened(place: dict[str, Any]) -> None:
    app = shop(**place)
    before = app.sync.schema_version()
    with app.sync:
        assert app.sync.schema_version().stored == before.known
    assert not any(one.name.startswith("perdure-once") for one in threading.enumerate())


def test_closing_lets_the_steps_end_and_hands_back_the_runs(tmp_path: Any) -> None:
    app = shop(f"sqlite:///{tmp_path}/shop.db")
    with app.sync as opened:
        run = opened.start(workflow(app, "order"), TEA, id="o")
    with app.sync as opened:
        assert opened.run("o").status() in ("ready", "running", "waiting")
        opened.signal("o", approve, True)
        assert opened.run(run.id).result() == 3


def test_who_waits_while_the_app_is_closed_is_let_go(place: dict[str, Any]) -> None:
    app = shop(**place)
    with ThreadPoolExecutor(4) as threads:
        with app.sync as opened:
            run = opened.start(workflow(app, "order"), TEA)
            hub = app._life._engine.coordinator.hub  # type: ignore[union-attr]
            waiting = [threads.submit(run.result) for _ in range(3)]
            reading = threads.submit(lambda: list(run.stream("notes")))
            until(lambda: run.id in hub._awaited and len(run_waiters(hub, run.id)) == 3)
            until(lambda: bool(hub._listeners))
        for one in (*waiting, reading):
            assert isinstance(one.exception(10), NotRunning)


def run_waiters(hub: Any, run_id: str) -> list[Any]:
    ending = hub._awaited[run_id]
    return [one for one in (ending._waiter, *ending._others) if one is not None]


def test_an_error_in_the_block_passes_through_a_closing_app(place: dict[str, Any]) -> None:
    app = shop(**place)
    with pytest.raises(ZeroDivisionError), app.sync:
        raise ZeroDivisionError
    with pytest.raises(NotRunning):
        app.sync.runs()


class Ends(SystemExit):
    pass


def test_a_step_that_ends_the_process_ends_the_block() -> None:
    """As it ends `asyncio.run`. Who waits is told, and so is who closes."""
    app = App("memory://")
    finish = Signal("finish")

    @app.workflow
    async def ending(ctx: Context) -> None:
        async def body() -> None:
            raise Ends(3)

        await ctx.wait(finish)
        await ctx.step(app.step(name="body")(body))

    with pytest.raises(Ends):
        with app.sync as opened:
            run = opened.start(ending)
            with pytest.raises((NotRunning, OutcomeUnknown)):
                opened.signal(run.id, finish, None)
                run.result()
            until(lambda: not any(map(is_background, threading.enumerate())))
            with pytest.raises(NotRunning):
                opened.runs()
    with app.sync:
        pass
