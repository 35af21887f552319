"""Where children come from, and how they die. Plain blocking code: the parent is a script, not a service."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import perdure

_tests = Path(__file__).resolve().parents[1]
_src = Path(perdure.__file__).resolve().parents[1]

# Nothing here takes seconds; whoever waits this long waits for something that will never come.
patience_s = 30.0


class Hung(AssertionError):
    """A child neither answered nor died."""


class Child:
    """One forked process with an App, until it is closed or killed."""

    def __init__(self, nursery: "Nursery", wire: socket.socket, pid: int) -> None:
        self._nursery = nursery
        self._wire = wire
        self._rest = b""
        self.pid = pid
        self.alive = True

    def send(self, asked: dict[str, Any]) -> None:
        """Ask for something. A child that has just died says so at the next `hear`."""
        try:
            self._wire.sendall(json.dumps(asked).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            pass

    def hear(self, until: float | None = None) -> dict[str, Any] | None:
        """The next thing it tells; None when it is dead, or at the time `until`. Raises Hung."""
        deadline = time.monotonic() + patience_s
        while b"\n" not in self._rest:
            now = time.monotonic()
            wait_s = (deadline if until is None else min(until, deadline)) - now
            readable, _, _ = select.select([self._wire], [], [], max(0.0, wait_s))
            if not readable:
                if until is not None and until < deadline:
                    return None
                os.kill(self.pid, signal.SIGUSR1)  # the stacks of all its threads, to its log
                raise Hung(f"child {self.pid} has been silent for {patience_s} s")
            if not self._receive():
                return None
        line, _, self._rest = self._rest.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def _receive(self) -> bool:
        try:
            received = self._wire.recv(1 << 16)
        except ConnectionResetError:
            received = b""
        if received:
            self._rest += received
            return True
        # Answers that were sent count even if we read them after the death: they left the process.
        self.alive = False
        return False

    def hear_of(self, event: str) -> dict[str, Any]:
        """Skip everything up to this event; it must come."""
        while (told := self.hear()) is not None:
            if told.get("event") == event:
                return told
        raise AssertionError(f"child {self.pid} died before it told of {event!r}")

    def ask(self, **asked: Any) -> dict[str, Any]:
        """Ask for one thing and wait for the answer."""
        self.send({"name": "asked", **asked})
        while (told := self.hear()) is not None:
            if told.get("name") == "asked":
                return told
        raise AssertionError(f"child {self.pid} died instead of answering {asked!r}")

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it has died by itself
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> bool:
        """Ask it to leave in good order; whether it did (a failpoint may lie on that way)."""
        self.send({"do": "close"})
        while self.hear() is not None:
            pass
        return os.waitstatus_to_exitcode(self.buried()) == 0

    def buried(self) -> int:
        """Wait until it is dead, all its files and locks closed; gives the wait status."""
        self._wire.close()
        return self._nursery.bury()


class Nursery:
    """Forks children, one at a time, from a process that has imported everything."""

    def __init__(self, log: Path) -> None:
        self.log = log
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join([str(_src), str(_tests), os.environ.get("PYTHONPATH", "")])
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "crashes.child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": path},
            )
        theirs.close()
        self._requests = ours
        self._requests.settimeout(patience_s)
        self._child: Child | None = None  # the one that is not buried yet

    def fork(self, **settings: Any) -> Child:
        ours, theirs = socket.socketpair()
        text = json.dumps(settings, default=str).encode()
        socket.send_fds(self._requests, [text], [theirs.fileno()])
        theirs.close()
        self._child = Child(self, ours, self._told("pid"))
        return self._child

    def bury(self) -> int:
        self._child = None
        return self._told("status")

    def _told(self, what: str) -> int:
        text = self._requests.recv(1 << 16)
        if not text:
            raise AssertionError(f"the nursery died:\n{self.log.read_text()}")
        told: int = json.loads(text)[what]
        return told

    def close(self) -> None:
        if self._child is not None:  # a test has failed in the middle
            self._child.kill()
            self._child.buried()
        self._requests.close()
        self._process.wait(patience_s)


@contextmanager
def open_nursery(directory: Path, *, silent: bool = True) -> Iterator[Nursery]:
    """A nursery; if it is to be silent its children must not complain: whatever they log is a failure."""
    nursery = Nursery(directory / f"children-{os.getpid()}-{time.monotonic_ns()}.log")
    try:
        yield nursery
    except BaseException as error:
        nursery.close()
        error.add_note(f"the log of the children:\n{nursery.log.read_text()[-6000:]}")
        raise
    nursery.close()
    complaints = nursery.log.read_text()
    assert not complaints or not silent, f"the children complained:\n{complaints[-6000:]}"
