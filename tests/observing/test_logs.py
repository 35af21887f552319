"""Log lines: the run and the step they speak of, as JSON, and without what an app redacts."""

import asyncio
import gc
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

import perdure
from perdure import App, Batch, Context, Permanent, Signal
from perdure.observing import JsonLines, RunFilter
from perdure.observing.logs import LOGGERS, dress

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "hunter2"
go = Signal("go", int)
mine = logging.getLogger("shop.orders")  # as any program has


class Lines(logging.Handler):
    """Keeps what it writes."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.lines: list[str] = []
        dress(self, **options)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def told(self, word: str) -> list[dict[str, Any]]:
        return [one for one in map(json.loads, self.lines) if word in one["message"]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Every line of the process, as JSON."""
    yield from _listening(Lines(as_json=True))


@pytest.fixture
def words() -> Iterator[Lines]:
    yield from _listening(Lines())


def _listening(handler: Lines) -> Iterator[Lines]:
    root, ours = logging.getLogger(), [logging.getLogger(one) for one in ("perdure", "shop")]
    root.addHandler(handler)
    levels = [one.level for one in ours]
    for one in ours:
        one.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    for one, level in zip(ours, levels, strict=True):
        one.setLevel(level)


# --- which run ---


async def test_a_line_says_of_which_run_step_and_attempt_it_is(
    world: Any, app: App, lines: Lines
) -> None:
    async def walks(n: int) -> None:
        mine.info("async of %s before", n)
        await asyncio.sleep(0)
        mine.info("async of %s after", n)

    def threads(n: int) -> None:
        mine.info("thread of %s", n)

    @app.workflow
    async def flow(ctx: Context, n: int) -> None:
        mine.info("flow of %s", n)
        await ctx.gather(ctx.step(walks, n), ctx.step(threads, n))
        ctx.log.info("end of %s", n)

    async with world(app) as w:
        for n in (1, 2):
            await w.app.start(flow, n, id=f"run-{n}", trace=TRACE if n == 1 else None)
        await w.settle()
        mine.info("nobody speaks")

    for n in (1, 2):
        run = {"run_id": f"run-{n}", "workflow": "flow"}
        for word, more in (
            (f"flow of {n}", {}),
            (f"end of {n}", {}),
            (f"async of {n} before", {"path": "walks", "attempt": 1}),
            (f"async of {n} after", {"path": "walks", "attempt": 1}),
            (f"thread of {n}", {"path": "threads", "attempt": 1}),
        ):
            (line,) = lines.told(word)
            facts = {name: line.get(name) for name in ("run_id", "workflow", "path", "attempt")}
            assert facts == {"path": None, "attempt": None, **run, **more}, word
            assert (line.get("trace_id") == TRACE[3:35]) == (n == 1)
    (line,) = lines.told("nobody speaks")
    assert line.keys() == {"time", "level", "logger", "message"}


async def test_what_is_only_replayed_is_not_written_again(
    world: Any, app: App, lines: Lines
) -> None:
    every = Lines(as_json=True)
    every.filters[:] = [RunFilter(replays=True)]

    @app.workflow
    async def flow(ctx: Context) -> None:
        mine.info("first")
        ctx.log.info("told first")
        await ctx.wait(go)
        mine.info("second")
        await ctx.wait(go)

    mine.addHandler(every)
    try:
        async with world(app) as w:
            run = await w.begin(flow)
            for n in range(2):
                await w.evict()
                await w.app.signal(run.id, go, n)
                await w.settle()
            assert await run.status() == "completed"
    finally:
        mine.removeHandler(every)
    counts = {word: len(lines.told(word)) for word in ("first", "second")}
    assert counts == {"first": 2, "second": 1}  # two, for one is of ctx.log
    assert len(every.told("first")) == 3


async def test_lines_of_the_engine_about_a_run_name_it(world: Any, app: App, lines: Lines) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.wait(go)

    async with world(app) as w:
        await w.begin(flow, id="broken")
        execution = w.worker._executions["broken"]
        execution.break_off(RuntimeError("a defect"))
        await w.settle()
    (line,) = lines.told("broke the engine")
    assert line["run_id"] == "broken" and "a defect" in line["traceback"]


def test_a_line_of_words_says_the_run_where_it_does_not_anyhow(words: Lines) -> None:
    mine.info("all is well", extra={"run_id": "r1", "path": "a/b"})
    mine.info("run r1 is well", extra={"run_id": "r1"})
    mine.info("well")
    assert [one.partition("shop.orders: ")[2] for one in words.lines] == [
        "all is well [run_id=r1 path=a/b]",
        "run r1 is well",
        "well",
    ]


def test_a_line_in_a_span_has_its_trace(lines: Lines) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    with tracer.start_as_current_span("request") as span:
        mine.info("inside")
    (line,) = lines.told("inside")
    assert line["trace_id"] == f"{span.get_span_context().trace_id:032x}"


def test_json_lines_write_whatever_they_are_given(lines: Lines) -> None:
    class Odd:
        def __str__(self) -> str:
            return "an odd one"

    try:
        raise ValueError("wrong")
    except ValueError:
        mine.exception("failed", extra={"odd": Odd(), "count": 3, "level_": [1, {"a": None}]})
    (line,) = lines.told("failed")
    assert line["odd"] == "an odd one" and line["count"] == 3 and line["level_"] == [1, {"a": None}]
    assert line["level"] == "error" and "ValueError: wrong" in line["traceback"]


def test_a_message_that_does_not_fit_its_arguments_is_left_to_its_handler() -> None:
    app = App("memory://", redact=["password"])
    log = logging.getLogger("perdure.workflow")
    record = log.makeRecord(log.name, logging.INFO, "here", 1, "%d of %s", ("x",), None)
    assert log.filter(record) and RunFilter().filter(record) and app is not None
    assert record.args == ("x",)


# --- what is left out ---


def test_all_our_loggers_are_known() -> None:
    """A logger that is missing would write what is to be left out."""
    source = Path(perdure.__file__).parent
    found = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r'getLogger\(\s*"([^"]+)"', path.read_text(encoding="utf-8"))
        if path.name != "processes.py"  # of the command line: that of uvicorn
    }
    assert found == set(LOGGERS)
    assert not re.findall(r"getLogger\(__name__", "".join(map(_text, source.rglob("*.py"))))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@dataclass
class Login:
    user: str
    password: str


async def test_lines_of_the_library_are_without_what_is_redacted(world: Any, lines: Lines) -> None:
    app = App("memory://", redact=["password"])

    def refuse(login: Login) -> None:
        raise Permanent(f"no: {login}")

    @app.workflow(signals=[Signal("login", Login)])
    async def flow(ctx: Context, login: Login, password: str) -> None:
        ctx.log.info("begins with %s", login, extra={"password": password, "login": vars(login)})
        await ctx.set("password", password)
        await ctx.wait(Signal("login", Login))
        await ctx.step(refuse, login)

    @app.consumer("reader", "login.told")
    async def read(batch: Batch) -> None:
        raise Permanent(f"cannot read {batch[0].payload}")

    async with world(app) as w:
        login = Login("anna", SECRET)
        run = await w.begin(flow, login, SECRET, id="r1")
        await w.app.signal("r1", "login", {"user": "anna", "password": SECRET})
        await w.emit("login.told", {"user": "anna", "password": SECRET})
        assert await run.status() == "failed"
        # In the store it stands as it was sent.
        assert SECRET in str((await run.export())["run"]["input"])
    text = "\n".join(lines.lines)
    assert SECRET not in text
    for word in ("StartRun", "SendSignal", "RecordSend", "Finish", "parks event", "begins with"):
        assert word in text, word
    (line,) = lines.told("begins with")
    assert line["password"] == "[redacted]"
    assert line["login"] == {"user": "anna", "password": "[redacted]"}
    (failed,) = lines.told("the handler of consumer 'reader' failed")
    assert "cannot read" in failed["traceback"] and "[redacted]" in failed["traceback"]


def test_an_error_that_tells_a_secret_goes_on_as_text_alone() -> None:
    """Some handlers format errors by themselves."""
    app = App("memory://", redact=["password"])
    kept: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = kept.append  # type: ignore[method-assign]
    log = logging.getLogger("perdure.service")
    log.addHandler(handler)
    try:
        for message in (f"password={SECRET}", "nothing to hide"):
            try:
                raise ValueError(message)
            except ValueError:
                log.exception("it failed")
    finally:
        log.removeHandler(handler)
    secret, plain = kept
    assert secret.exc_info is None and "password=[redacted]" in str(secret.exc_text)
    assert plain.exc_info is not None and app is not None


def test_lines_of_others_are_their_own(words: Lines) -> None:
    app = App("memory://", redact=["password"])
    mine.info("password=%s", SECRET)
    assert SECRET in words.lines[-1] and app is not None


def test_what_no_app_redacts_any_more_is_written(words: Lines) -> None:
    log = logging.getLogger("perdure.workflow")
    app: App | None = App("memory://", redact=["odd_field"])
    log.info("odd_field=%s", SECRET)
    assert SECRET not in words.lines[-1] and app is not None
    del app
    gc.collect()  # an app refers to itself
    log.info("odd_field=%s", SECRET)
    assert SECRET in words.lines[-1]


def test_formatters_are_public() -> None:
    assert JsonLines.__module__ == RunFilter.__module__ == "perdure.observing.logs"
