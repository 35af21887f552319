"""`perdure worker`, `serve`, `dev`, `init`: processes that stay, and how they end."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from places import TOKEN, furnished
from shell import PATIENCE_S, Shell, Terminal, environment, line_of, piped, staying, terminal

from perdure.http import Token

# --- worker ---


def test_a_worker_executes_runs_and_ends_in_order(sqlite_shell: Shell, tmp_path: Path) -> None:
    with staying("worker", "corner_shop:app", cwd=tmp_path) as worker:
        assert "quick" in worker.banner["workflows"]
        assert worker.banner["pid"] == worker.process.pid
        order = ("start", "quick", "-i", '"rum"', "--wait", "--timeout", f"{PATIENCE_S}s")
        assert sqlite_shell(*order).out == '"rum reserved"\n'
        sqlite_shell("start", "decide", "-i", '"x"', "--id", "new")
        assert len(sqlite_shell.json("workers")["items"]) == 1
        assert worker.ended() == 0
    assert sqlite_shell.json("workers")["items"] == []
    log = (tmp_path / "log.txt").read_text()
    assert "Traceback" not in log.replace("cannot be audited", "")
    assert sqlite_shell.json("fsck", "--strict")["findings"] == [], "its runs were handed back"


SLOW = """
import asyncio, pathlib
from perdure import App, Context

app = App("sqlite:///perdure.db")

@app.step
async def work() -> str:
    pathlib.Path("began").touch()
    try:
        while not pathlib.Path("go").exists():
            await asyncio.sleep(0.01)
        return "done"
    finally:
        pathlib.Path("left").touch()

@app.workflow
async def slow(ctx: Context) -> str:
    return await ctx.step(work)
"""


def test_a_worker_lets_steps_end_and_a_second_signal_does_not(bare: Shell, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    with staying("worker", "slow:app", cwd=tmp_path) as worker:
        bare("start", "slow", "--id", "one")
        until(lambda: (tmp_path / "began").exists())
        worker.tell(signal.SIGTERM)
        (tmp_path / "go").touch()
        assert worker.process.wait(PATIENCE_S) == 0
    (step,) = bare.json("runs", "history", "one")["items"]
    assert (step["status"], step["value"]) == ("done", "done"), "what was done is on record"

    for name in ("began", "go", "left"):
        (tmp_path / name).unlink()
    with staying("worker", "slow:app", cwd=tmp_path) as worker:
        bare("start", "slow", "--id", "two")
        until(lambda: (tmp_path / "began").exists())
        until(lambda: worker.tell(signal.SIGINT) or worker.process.poll() is not None)
        assert worker.process.returncode == 128 + signal.SIGINT
    assert not (tmp_path / "left").exists()


HELD = """
import asyncio, pathlib, time

from perdure import App, Context

app = App("sqlite:///perdure.db", grace="1h")

async def endless() -> str:
    pathlib.Path("began").touch()
    if not pathlib.Path("again").exists():
        await asyncio.Event().wait()
    return "ended"

def thread() -> str:
    with open("threads", "a") as ran:
        ran.write("ran ")
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return "ended"

@app.workflow
async def both(ctx: Context) -> list[str]:
    return list(await ctx.gather(ctx.step(thread), ctx.step(endless)))
"""


def test_a_grace_bounds_what_can_be_cancelled_and_a_thread_is_waited_for(
    bare: Shell, tmp_path: Path
) -> None:
    (tmp_path / "held.py").write_text(HELD)
    log = tmp_path / "worker.log"
    with staying("worker", "held:app", "--grace", "100ms", cwd=tmp_path, log=log) as worker:
        bare("start", "both", "--id", "one")
        until(lambda: (tmp_path / "began").exists() and (tmp_path / "threads").exists())
        worker.tell(signal.SIGTERM)
        until(
            lambda: "closing cuts off steps, which begin anew elsewhere: endless" in log.read_text()
        )
        assert "closing waits for steps (grace: 0.1 s)" in log.read_text()
        (tmp_path / "again").touch()
        with staying("worker", "held:app", cwd=tmp_path) as other:
            bare("start", "both", "--id", "two")
            until(lambda: (tmp_path / "threads").read_text() == "ran ran ")  # not the first one's
            (tmp_path / "go").touch()
            assert worker.process.wait(PATIENCE_S) == 0
            assert bare("runs", "result", "one", "--timeout", f"{PATIENCE_S}s").out
            assert other.ended() == 0
    assert (tmp_path / "threads").read_text() == "ran ran "


def test_a_worker_at_a_terminal_says_what_it_is_and_ends_with_ctrl_c(
    bare: Shell, tmp_path: Path
) -> None:
    with terminal("worker", "corner_shop:app", cwd=tmp_path) as shown:
        shown.until("Ctrl-C stops it")
        assert "workflows  ask, decide, fail" in shown.text
        shown.interrupt()
        assert shown.end() == 0
    assert "Traceback" not in shown.text


def test_the_log_of_a_worker_is_lines_of_json_if_asked(sqlite_shell: Shell, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    with staying("worker", "corner_shop:app", "--log-json", cwd=tmp_path, log=log) as worker:
        sqlite_shell("events", "emit", "audit.due", '"\\u001b[31m"')
        until(lambda: "cannot be audited" in log.read_text())
        assert worker.ended() == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert any("cannot be audited" in one.get("traceback", "") for one in lines)
    assert all({"time", "level", "logger", "message"} <= set(one) for one in lines)


def test_who_reads_a_log_as_json_reads_no_other_lines(bare: Shell, tmp_path: Path) -> None:
    line = line_of("serve", "--port", "0", "--log-json", "--log-level", "debug")
    given = {"cwd": tmp_path, "env": environment(), "text": True}
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    lines = []
    with subprocess.Popen(line, **given, **both) as process:
        assert process.stdout is not None
        for written in process.stdout:
            lines.append(json.loads(written))
            if "url" in lines[-1]:
                process.terminate()
    assert process.returncode == 0
    assert any(one.get("logger", "").startswith("uvicorn") for one in lines)
    assert not any("color_message" in one for one in lines)


# --- serve ---


def test_a_store_that_was_not_there_is_told_of(bare: Shell, tmp_path: Path) -> None:
    for command in (("serve", "--port", "0"), ("worker", "corner_shop:app")):
        url = f"sqlite:///{command[0]}.db"
        for made in (True, False):
            with staying(*command, "--url", url, cwd=tmp_path) as process:
                assert process.banner["store"] == url
                assert ("made" in process.banner) == made
                assert process.ended() == 0


def test_a_grace_that_is_no_span_of_time_is_a_usage_error(bare: Shell, tmp_path: Path) -> None:
    for kept in ("worker", "serve", "dev"):
        assert "soon" in bare(kept, "corner_shop:app", "--grace", "soon", code=2).err


def test_a_server_answers_with_a_worker_beside_it(tmp_path: Path, bare: Shell) -> None:
    with staying("serve", "corner_shop:app", "--port", "0", cwd=tmp_path) as server:
        url = server.banner["url"]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
        assert server.banner["worker"]
        there = Shell("--url", url)
        order = ("start", "quick", "-i", '"rum"', "--wait", "--timeout", f"{PATIENCE_S}s")
        assert there(*order).out == '"rum reserved"\n'
        document = httpx2.get(server.banner["api"]).json()
        assert document["openapi"].startswith("3.1")
        assert server.ended() == 0
        said = there("runs", code=5).err
        assert "nothing was sent" in said
    assert "Traceback" not in (tmp_path / "log.txt").read_text()


def test_a_server_of_a_mere_store_has_no_worker(sqlite_shell: Shell, tmp_path: Path) -> None:
    line = str(Token.of(TOKEN, name="anna", scopes=["admin"]))
    serve = ("serve", "--port", "0", "--host", "0.0.0.0")
    with staying(*serve, cwd=tmp_path, PERDURE_TOKENS=line) as server:
        assert (server.banner["worker"], server.banner["workflows"]) == (False, [])
        there = Shell("--url", server.banner["url"], "--token", TOKEN)
        assert len(there.json("runs")["items"]) == 9
        assert there.json("workers")["items"] == []
        assert Shell("--url", server.banner["url"])("runs", code=1).err.startswith("perdure: ")
        assert server.ended() == 0


CLIENTS = 50


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name)
def test_a_server_with_many_open_streams_stops_in_time(tmp_path: Path, number: int) -> None:
    """Each of those who follow sees its stream end, and none a connection that breaks."""
    furnished(f"sqlite:///{tmp_path}/perdure.db")

    paths = (
        "follow?after=0&run=waiting",
        "runs/waiting/streams/log/follow",
    )  # each for half of them
    last = ("event: run", '"asked"')  # of what is there

    async def follow(http: httpx2.AsyncClient, url: str, nth: int, open: asyncio.Semaphore) -> str:
        """All that one was told, once its stream has ended; raises if it was cut off."""
        async with http.stream("GET", f"{url}/api/v1/{paths[nth % 2]}") as answer:
            assert answer.status_code == 200
            told, is_open = "", False
            async for text in answer.aiter_text():
                told += text
                if not is_open and last[nth % 2] in told:
                    is_open = True
                    open.release()
        return told

    async def story(url: str) -> tuple[list[str], float]:
        opened = asyncio.Semaphore(0)
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(timeout=PATIENCE_S, limits=limits) as http:
            following = [
                asyncio.create_task(follow(http, url, nth, opened)) for nth in range(CLIENTS)
            ]
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(CLIENTS):
                    await opened.acquire()
            before = time.monotonic()
            server.tell(number)
            told = await asyncio.gather(*following)
            code = await asyncio.to_thread(server.process.wait, PATIENCE_S)
            took_s = time.monotonic() - before
        assert code == 0
        return told, took_s

    with staying("serve", "--port", "0", cwd=tmp_path) as server:
        told, took_s = asyncio.run(story(server.banner["url"]))
    assert took_s < 5
    for nth, one in enumerate(told):
        assert one.count(("event: event", "event: item")[nth % 2]) == (16, 2)[nth % 2]
        assert one.endswith("\r\n\r\n"), "the last message is whole"
    assert "Traceback" not in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda one: one.name)
def test_who_watches_or_waits_outlasts_a_server_that_comes_back(
    tmp_path: Path, bare: Shell, number: int
) -> None:
    port = str(free_port())
    serve = ("serve", "corner_shop:app", "--port", port)
    there = Shell("--url", f"http://127.0.0.1:{port}")
    lines = {
        "result": ("runs", "result", "tea-1", "--timeout", f"{PATIENCE_S}s"),
        "watch": ("runs", "watch", "tea-1"),
        "tail": ("events", "tail", "stock.*", "-f", "-n", "0"),
    }

    def told(name: str) -> str:
        return "".join((tmp_path / f"{name}.{one}").read_text() for one in ("out", "err"))

    with ExitStack() as stack:
        with staying(*serve, cwd=tmp_path) as server:
            there("start", "decide", "-i", '"tea"', "--id", "tea-1")
            waiting = {
                name: stack.enter_context(writing(tmp_path / name, *there.where, *line))
                for name, line in lines.items()
            }
            until(lambda: "waiting" in told("watch"))
            # One that has begun to tail says nothing by itself.
            until(lambda: there("events", "emit", "stock.arrived", "1") and told("tail"))
            until(lambda: connections_to(int(port)) == len(lines))
            server.ended(number)
        until(lambda: all("waiting for it to come back" in told(one) for one in ("watch", "tail")))
        assert waiting["result"].poll() is None, told("result")
        with staying(*serve, cwd=tmp_path):
            there("signal", "tea-1", "approve", "true")
            there("events", "emit", "stock.arrived", "77")
            assert waiting["result"].wait(PATIENCE_S) == 0, told("result")
            assert waiting["watch"].wait(PATIENCE_S) == 0, told("watch")
            until(lambda: "  77" in told("tail"))
    assert told("result") == '"tea True"\n'
    assert "tea-1  decide  completed\n" in told("watch")
    assert "Traceback" not in (tmp_path / "log.txt").read_text()


def connections_to(port: int) -> int:
    """How many clients of this machine have one."""
    rows = [one.split() for one in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(one[2].endswith(f":{port:04X}") and one[3] == "01" for one in rows)


@contextmanager
def writing(name: Path, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose outputs are files of this name."""
    with (
        name.with_suffix(".out").open("wb") as out,
        name.with_suffix(".err").open("wb") as err,
        subprocess.Popen(
            line_of(*args), env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=err
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


# --- dev ---

ONE = """
from perdure import App, Context
app = App("sqlite:///perdure.db")

@app.workflow
async def first(ctx: Context) -> str:
    return "first"
"""
TWO = ONE.replace("first", "second")


@contextmanager
def developing(tmp_path: Path, *more: str) -> Iterator[tuple[Terminal, str]]:
    (tmp_path / "shop.py").write_text(ONE)
    port = str(free_port())
    with terminal("dev", "shop:app", "--port", port, *more, cwd=tmp_path) as shown:
        shown.until("workflows  first")
        shown.until("Ctrl-C stops it")
        yield shown, f"http://127.0.0.1:{port}"


def test_dev_starts_anew_when_a_file_changes_and_ends_with_ctrl_c(
    bare: Shell, tmp_path: Path
) -> None:
    with developing(tmp_path) as (shown, url):
        there = Shell("--url", url)
        assert there("start", "first", "--wait", "--timeout", "20s").out == '"first"\n'
        old = pid_of(shown)
        (tmp_path / "shop.py").write_text(TWO)
        shown.until("changed shop.py: starting anew")
        shown.until("workflows  second")
        assert there("start", "second", "--wait", "--timeout", "20s").out == '"second"\n'
        assert not is_alive(old)
        (tmp_path / "shop.py").write_text("app = (")
        shown.until("SyntaxError")
        shown.until("it has ended with 1; waiting for a change")
        (tmp_path / "shop.py").write_text(ONE.replace("first", "third"))
        shown.until("workflows  third")
        last = pid_of(shown)
        shown.interrupt()
        assert shown.end() == 0
        assert not is_alive(last)
    assert "Traceback" not in shown.text


def test_dev_ends_with_what_no_change_of_a_file_mends(bare: Shell, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(ONE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = piped("dev", "shop:app", "--port", str(taken.getsockname()[1]), cwd=tmp_path)
    assert (said.code, said.err.count("cannot be listened at")) == (5, 1)
    said = piped("dev", "shop:app", "--port", "0", "--url", "sqlite:///no/dir.db", cwd=tmp_path)
    assert (said.code, "does not exist; create it first" in said.err) == (5, True)
    said = piped("dev", "shop:app", "--log-level", "loud", cwd=tmp_path)
    assert said.code == 2
    said = piped("dev", "shop:app", "--watch", "nowhere", cwd=tmp_path)
    assert said.code == 2 and "--watch" in said.err and "nowhere" in said.err


def test_dev_waits_for_an_app_that_is_still_to_be_written(bare: Shell, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("")
    with terminal("dev", "shop:app", "--port", "0", cwd=tmp_path) as shown:
        shown.until("module shop has no 'app'")
        shown.until("it has ended with 1; waiting for a change")
        (tmp_path / "shop.py").write_text(ONE)
        shown.until("workflows  first")
        shown.interrupt()
        assert shown.end() == 0


def test_dev_says_what_it_waits_for_before_it_starts_anew(bare: Shell, tmp_path: Path) -> None:
    with developing(tmp_path) as (shown, _):
        (tmp_path / "shop.py").write_text(SLOW)
        shown.until("workflows  slow")
        bare("start", "slow")
        until(lambda: (tmp_path / "began").exists())
        (tmp_path / "shop.py").write_text(TWO)
        shown.until("waiting for steps in flight to end")
        (tmp_path / "go").touch()
        shown.until("workflows  second")
        shown.interrupt()
        assert shown.end() == 0


def test_the_child_of_dev_ends_however_dev_ends(bare: Shell, tmp_path: Path) -> None:
    with developing(tmp_path) as (shown, url):
        child = pid_of(shown)
        assert is_alive(child)
        shown.process.kill()
        shown.end()
        until(lambda: not is_alive(child))
        assert "nothing was sent" in Shell("--url", url)("runs", code=5).err
    assert bare.json("workers")["items"] == [], "it ended in order"


def test_dev_without_reloading_is_one_process(bare: Shell, tmp_path: Path) -> None:
    with developing(tmp_path, "--no-reload") as (shown, url):
        assert pid_of(shown) == shown.process.pid
        assert Shell("--url", url)("start", "first", "--wait").out == '"first"\n'
        shown.interrupt()
        assert shown.end() == 0


def pid_of(shown: Terminal) -> int:
    """Of the process that said last what it is."""
    return int(re.findall(r"^pid +(\d+)$", shown.text, re.MULTILINE)[-1])


def is_alive(pid: int) -> bool:
    """A process that has ended, and whose end nobody has asked for yet, is a zombie: it does not live."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def until(holds: object) -> None:
    """Wait for what another process does to its files."""
    assert callable(holds)
    ends_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends_at
        os.sched_yield()


# --- init ---


def test_the_starter_project_works_and_its_tests_pass(bare: Shell, tmp_path: Path) -> None:
    made = bare.json("init", "shop")
    files = {"app.py", "README.md", "tests/test_app.py", ".gitignore"}
    assert {str(Path(one).relative_to("shop")) for one in made["written"]} == files
    env = environment()
    env["PYTHONPATH"] = env["PYTHONPATH"].split(os.pathsep)[0]
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(line, cwd=tmp_path / "shop", env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    with staying("serve", "app:app", "--port", "0", cwd=tmp_path / "shop") as server:
        there = Shell("--url", server.banner["url"])
        order = ("start", "fulfil", "--input", '{"sku": "tea", "amount": 2}', "--id", "order-1")
        assert there(*order).out == "order-1\n"
        until(lambda: there.json("approvals")["items"])
        (asked,) = there.json("approvals", "list")["items"]
        assert asked["title"] == "Ship 2 x tea?"
        there("approvals", "decide", asked["id"], "approve")
        assert there("runs", "watch", "order-1").out.endswith("completed\n")
        assert there("runs", "result", "order-1").out == '"shipped 2 x tea"\n'


def test_nothing_is_written_over_what_is_there(bare: Shell, tmp_path: Path) -> None:
    assert "now: perdure dev app:app" in bare("init").out
    before = {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}
    assert "has app.py, README.md" in bare("init", code=1).err
    assert {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()} == before
    (tmp_path / "file").touch()
    assert bare("init", "file", code=1).err.startswith("perdure: ")


def test_the_program_is_installed(bare: Shell, tmp_path: Path) -> None:
    script = str(Path(sys.executable).with_name("perdure"))
    done = subprocess.run([script, "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, bare("--version").out)
