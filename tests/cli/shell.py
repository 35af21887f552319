"""Commands as a shell gives them: in this process for breadth, in one of their own where terminal and signals count."""

import functools
import io
import json
import logging
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src"
PATIENCE_S = 30  # a bound on a wait, never reached by what works
_of_ours = ("PERDURE_URL", "PERDURE_APP", "PERDURE_NAMESPACE", "PERDURE_TOKEN", "PERDURE_TOKENS")


@dataclass(frozen=True)
class Answer:
    """What a command wrote, and what it ended with."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@functools.cache
def tree() -> Any:
    """All commands. To make it takes longer than most of them do."""
    from typer.main import get_command

    from perdure.cli.program import program

    return get_command(program)


class Shell:
    """Runs commands at one place, in this process. Typer's own runner would make the tree of commands each time."""

    def __init__(self, *where: str, env: Mapping[str, str] | None = None) -> None:
        self.where = where
        self.env = dict(env or {})

    def __call__(self, *args: str, code: int = 0, stdin: str | bytes | None = None) -> Answer:
        content = stdin.encode() if isinstance(stdin, str) else stdin or b""
        with _streams(content, self.env) as (out, err):
            try:
                tree().main([*self.where, *args], prog_name="perdure")
                found = 0
            except SystemExit as ended:
                found = int(ended.code or 0)
        answer = Answer(found, out.getvalue().decode(), err.getvalue().decode())
        assert answer.code == code, f"{args}: {answer}"
        assert not re.search("^Traceback", answer.err, re.MULTILINE), answer.err
        return answer

    def json(self, *args: str, code: int = 0, stdin: str | bytes | None = None) -> Any:
        return self(*args, "--json", code=code, stdin=stdin).json


@contextmanager
def _streams(stdin: bytes, env: Mapping[str, str]) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """A process's streams, variables and log, for as long as a command runs in ours."""
    log = logging.root.handlers[:], logging.root.level, logging.lastResort
    before = dict(os.environ), sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    for name in _of_ours:
        os.environ.pop(name, None)
    os.environ.update(env)
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8")
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8")
    try:
        yield out, err
    finally:
        logging.root.handlers[:], logging.root.level, logging.lastResort = log
        for stream in (sys.stdout, sys.stderr):
            stream.detach()  # it would close what is still to be read
        old, sys.stdin, sys.stdout, sys.stderr = before
        os.environ.clear()
        os.environ.update(old)


# --- processes ---


def environment(**more: str) -> dict[str, str]:
    env = {name: one for name, one in os.environ.items() if name not in _of_ours}
    return env | {
        "PYTHONPATH": os.pathsep.join([str(SOURCES), str(HERE)]),
        "TERM": "xterm-256color",
        "COLUMNS": "160",
        "PYTHONUNBUFFERED": "1",
        **more,
    }


def line_of(*args: str) -> list[str]:
    return [sys.executable, "-m", "perdure.cli", *args]


def piped(*args: str, cwd: Path, stdin: str = "", **env: str) -> Answer:
    """A command whose output somebody else reads."""
    done = subprocess.run(
        line_of(*args),
        cwd=cwd,
        env=environment(**env),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


_escapes = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command on a terminal of its own: both of its outputs are that terminal, and so is its input."""

    def __init__(self, process: subprocess.Popen[bytes], handle: int) -> None:
        self.process = process
        self._handle = handle
        self.raw = ""

    @property
    def text(self) -> str:
        """Without colours and movements of the cursor."""
        return _escapes.sub("", self.raw).replace("\r", "")

    def until(self, words: str) -> str:
        """Read until it shows this."""
        until = time.monotonic() + PATIENCE_S
        while words not in self.text:
            if not self._read(until - time.monotonic()):
                raise AssertionError(f"{words!r} never came; it showed:\n{self.text}")
        return self.text

    def _read(self, patience_s: float) -> bool:
        ready, _, _ = select.select([self._handle], [], [], max(0, patience_s))
        if not ready:
            return False
        try:
            read = os.read(self._handle, 65536)
        except OSError:  # Linux says so when the last process has closed its end
            return False
        self.raw += read.decode(errors="replace")
        return bool(read)

    def type(self, text: str) -> None:
        os.write(self._handle, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C: the terminal makes a SIGINT of it."""
        self.type("\x03")

    def end(self) -> int:
        """Read to the end; what it ended with."""
        until = time.monotonic() + PATIENCE_S
        while self._read(until - time.monotonic()):
            pass
        return self.process.wait(PATIENCE_S)


@contextmanager
def terminal(
    *args: str, cwd: Path, program: Sequence[str] | None = None, **env: str
) -> Iterator[Terminal]:
    """A command of perdure, or another program, on a terminal."""
    ours, theirs = pty.openpty()
    try:
        # Who leads a session and opens a terminal has it as its own: Ctrl-C comes from there.
        opening = 'tty="$1"; shift; exec "$@" <"$tty" >"$tty" 2>&1'
        process = subprocess.Popen(
            ["sh", "-c", opening, "sh", os.ttyname(theirs), *(program or line_of(*args))],
            cwd=cwd,
            env=environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        _end(process)
        os.close(ours)


class Process:
    """A command that stays, with its standard output in our hands; it said what it is by --json."""

    def __init__(self, process: subprocess.Popen[str], banner: dict[str, Any]) -> None:
        self.process, self.banner = process, banner

    def tell(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self, number: int = signal.SIGTERM, *, within_s: float = PATIENCE_S) -> int:
        self.tell(number)
        return self.process.wait(within_s)


@contextmanager
def staying(*args: str, cwd: Path, log: Path | None = None, **env: str) -> Iterator[Process]:
    """A process that stays until it is told to go; entered once it works. Its log goes to a file."""
    with (log or cwd / "log.txt").open("a") as file:
        process = subprocess.Popen(
            line_of(*args, "--json"),
            cwd=cwd,
            env=environment(**env),
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, (log or cwd / "log.txt").read_text()
        yield Process(process, json.loads(first))
    finally:
        _end(process)
        if process.stdout is not None:
            process.stdout.close()


def _end(process: Any) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


def rows(items: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """One column of a listing."""
    return [one[name] for one in items]
