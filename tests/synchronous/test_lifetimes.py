"""What ends before it should: Ctrl-C while a call waits, forks, a process that ends with the app open."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import App, Context, NotRunning, PerdureError, SyncClient

from .shop import Order, approve, note, shop, workflow
from .waiting import until

TEA = Order("tea", 3)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
# Python warns of what is tested here.
many_threads = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")


# --- Ctrl-C --------------------------------------------------------------------------------------


@contextmanager
def interrupted_when(holds: Callable[[], bool]) -> Iterator[None]:
    """The terminal's signal to this thread, which is the main one, as soon as something holds."""
    main = threading.main_thread()
    assert threading.current_thread() is main and main.ident is not None
    ident = main.ident

    def interrupt() -> None:
        until(holds)
        signal.pthread_kill(ident, signal.SIGINT)

    # Who starts the tests in the background of a shell has the signal ignored in all that it starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


def test_who_is_interrupted_stops_waiting_and_the_app_goes_on(place: dict[str, Any]) -> None:
    app = shop(**place)
    with app.sync as opened:
        run = opened.start(workflow(app, "order"), TEA)
        hub = app._life._engine.coordinator.hub  # type: ignore[union-attr]
        ending = hub.ending(run.id)
        with interrupted_when(lambda: ending.is_awaited):
            run.result()
        until(lambda: not ending.is_awaited)  # it was cancelled in the loop, too
        items = run.stream("notes")
        with interrupted_when(lambda: bool(hub._listeners)):
            next(items)
        until(lambda: not hub._listeners)
        opened.signal(run.id, approve, True)
        assert run.result() == 3


def test_an_opening_that_is_interrupted_leaves_nothing_behind() -> None:
    opening, undone = threading.Event(), threading.Event()

    class Slow(App):
        async def __aenter__(self) -> Any:
            opening.set()
            try:
                await asyncio.Event().wait()
            finally:
                undone.set()

    app = Slow("memory://")
    with interrupted_when(opening.is_set):
        app.sync.open()
    assert undone.is_set()
    assert not any(one.name.startswith("perdure-app") for one in threading.enumerate())
    with pytest.raises(NotRunning):
        app.sync.runs()


def test_a_closing_that_is_interrupted_goes_on(tmp_path: Path) -> None:
    """The second Ctrl-C: whoever presses it need not wait, and nothing is left half closed."""
    app = App(f"sqlite:///{tmp_path}/shop.db")
    begun, go_on = threading.Event(), threading.Event()

    @app.step
    def busy() -> None:
        begun.set()
        go_on.wait(10)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(busy)

    opened = app.sync.open()
    opened.start(flow)
    assert begun.wait(10)
    worker = app._life._engine.worker  # type: ignore[union-attr]
    assert worker is not None
    with interrupted_when(lambda: worker.is_draining):
        opened.close()
    with pytest.raises(NotRunning, match="open already"):
        opened.open()
    go_on.set()
    opened.close()
    with opened:
        assert len(opened.runs()) == 1


# --- forks ---------------------------------------------------------------------------------------


def in_a_fork(work: Callable[[], str]) -> str:
    """What the work gives in a child process, which is left without any cleanup."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def raised_by(*calls: Callable[[], object]) -> str:
    names = []
    for call in calls:
        try:
            call()
            names.append("nothing")
        except PerdureError as error:
            names.append(type(error).__name__)
    return " ".join(names)


@needs_fork
@many_threads
def test_after_a_fork_every_call_raises(place: dict[str, Any]) -> None:
    app = shop(**place)
    with app.sync as opened:
        run = opened.start(workflow(app, "order"), TEA)
        opened.signal(run.id, note, "a")
        items = run.stream("notes")
        next(items)

        def child() -> str:
            said = raised_by(
                app.sync.runs,
                run.result,
                lambda: next(items),
                lambda: app.sync.start("fail"),
                app.sync.schema_version,
            )
            app.sync.close()  # of the parent's nothing is closed
            return f"{said} {raised_by(app.sync.runs)}"

        assert in_a_fork(child) == " ".join(["AfterFork"] * 6)
        # The parent has noticed nothing of it.
        opened.signal(run.id, approve, True)
        assert run.result(timeout="20s") == 3


@needs_fork
@many_threads
def test_a_fork_may_open_the_app_for_itself() -> None:
    """In memory: SQLite itself cannot be used anew on a file that was open when the process was forked."""
    app = shop()

    def child() -> str:
        with app.sync as own:
            number = own.start(workflow(app, "double"), 4).result()
        return f"{number} {raised_by(app.sync.runs)}"

    with app.sync as opened:
        assert in_a_fork(child) == "8 NotRunning"
        assert opened.start(workflow(app, "double"), 5).result() == 10


@needs_fork
@many_threads
def test_a_block_that_a_fork_leaves_closes_nothing(tmp_path: Path) -> None:
    app = shop(f"sqlite:///{tmp_path}/shop.db")

    def leave() -> str:
        app.sync.__exit__(None, None, None)
        return "left"

    with app.sync as opened:
        assert in_a_fork(leave) == "left"
        assert opened.start(workflow(app, "double"), 2).result(timeout="20s") == 4


@needs_fork
@many_threads
def test_a_client_does_not_survive_a_fork() -> None:
    with SyncClient("http://127.0.0.1:9") as client:
        run = client.run("a")
        assert in_a_fork(lambda: raised_by(client.runs, run.result)) == "AfterFork AfterFork"


# --- a process that ends with the app open --------------------------------------------------------

OPEN = """
import os, sys, threading
from perdure import App, Context, Signal

app = App(f"sqlite:///{sys.argv[1]}")
go = Signal("go", int)

@app.workflow
async def flow(ctx: Context, number: int) -> int:
    return number + await ctx.wait(go)

shop = app.sync.open()
run = shop.start(flow, 1, id="flow")
print(shop.runs(), flush=True)
"""

ENDINGS = {
    "at its end": ("", 0),
    "by an error": ("raise ValueError('boom')", 1),
    "while a thread waits": (
        "def wait():\n  try: run.result()\n  except Exception as error: print(repr(error))\n"
        "threading.Thread(target=wait, daemon=True).start()",
        0,
    ),
    "with a stream half read": ("shop.emit('a.b'); items = run.stream('x')", 0),
    "after a fork": (
        "child = os.fork()\nif child == 0: sys.exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\nprint(shop.runs())",
        0,
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_app_that_nobody_closes_is_closed_when_the_program_ends(
    ending: str, tmp_path: Path
) -> None:
    if ending == "after a fork" and not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    code, status = ENDINGS[ending]
    file = tmp_path / "shop.db"
    strict = ("-W", "error", "-W", "ignore::DeprecationWarning")
    done = subprocess.run(
        [sys.executable, *strict, "-c", OPEN + code, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert ("boom" in done.stderr) if status == 1 else not done.stderr
    # Closed in order: its run was handed back, and nothing of the worker is left.
    assert {one.name for one in tmp_path.iterdir()} == {"shop.db", "shop.db-lock"}
    with sqlite3.connect(file) as rows:
        assert rows.execute("select count(*) from workers").fetchone() == (0,)
    rows.close()
