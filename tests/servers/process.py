"""A server process of ours: a port, a directory, a user, a log; started, stopped, killed and started again.

A kind of server says how its data directory is made, what its command is, and whether it answers. The process we start
is the server itself, never a shell or a control program, so that a kill hits what it is meant for. Run by root, the
server gets another user, because a server may refuse to be root. Plain blocking code; in an event loop, call it by
`asyncio.to_thread` if others must go on meanwhile.
"""

import os
import pwd
import secrets
import select
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from servers.premises import Premises

# Starting takes a tenth of a second, on a busy machine a few; then something is wrong.
patience_s = 20.0


class ServerMissing(Exception):
    """No such server on this machine. Says where it was looked for."""


class ServerFailed(Exception):
    """A server is there but does not do its work. Ends with what it had to say, its log."""


class ServerProcess(ABC):
    """One server of ours on the loopback interface. Its port and its data stay the same from start to start."""

    # The word for it in names of files and in messages.
    kind: ClassVar[str]

    def __init__(self, premises: Premises) -> None:
        self.premises = premises
        self.path = Path(tempfile.mkdtemp(prefix=f"{self.kind}-", dir=premises.path))
        self.data_path = premises.data_path / self.path.name
        self.port = free_port()
        self._log = self.path / "log"
        self._pid_file = premises.path / f"{self.path.name}.pid"
        self._process: subprocess.Popen[bytes] | None = None
        # A pipe that the server and all it starts inherit: this end is read to its end when the last is gone.
        self._last_words = -1
        hand_over(self.path)

    # --- what a kind of server says -----------------------------------------------------------------

    @abstractmethod
    def prepare(self) -> None:
        """Make `data_path`. Called once, before the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its arguments, for the port and the paths of this moment."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the process started last takes work already. Must not block."""

    @abstractmethod
    def passing(self, log: str) -> bool:
        """Whether a start that ended with this log may succeed if it is only tried again."""

    # --- what all of them do ------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log(self) -> str:
        """All it has said since it was first started."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start it and wait until it answers. Raises ServerFailed with its log if it does not."""
        assert self._process is None, f"{self.kind} runs already"
        first = not self.data_path.exists()
        if first:
            self.prepare()
        deadline = time.monotonic() + patience_s
        while not self._started(deadline):
            # A port that nobody knows yet may be changed; one that is part of an address may not.
            if first:
                self.port = free_port()
            time.sleep(0.05)

    def stop(self) -> None:
        """End it in good order, without waiting for its clients. Raises ServerFailed if it would not end."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would, and wait until nobody of it is left.

        Processes that it had started live a moment longer, finish what they were doing, and may even answer what is
        asked next: whoever wants the server away wants them away too.
        """
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Start it again on its data and its port, after a stop or a kill; a running one is stopped first."""
        if self._process is not None:
            self.stop()
        self.start()

    def run(self, *command: str | Path) -> None:
        """Run a program to its end, as the server's user. Raises ServerFailed with its output."""
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **surroundings(self.path),
        )
        if done.returncode != 0:
            raise ServerFailed(f"{command[0]} failed:\n{done.stdout.decode(errors='replace')}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    def _started(self, deadline: float) -> bool:
        """Try once. False if it ended for a reason that will pass."""
        said_before = len(self.log)
        process = self._process = self._spawn()
        while process.poll() is None:
            if self.answers():
                return True
            if time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"{self.kind} does not answer:\n{self.log[said_before:]}")
            time.sleep(0.01)
        self._forget()
        said = self.log[said_before:]
        if self.passing(said) and time.monotonic() < deadline:
            return False
        raise ServerFailed(f"{self.kind} ended while it started:\n{said}")

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._last_words, held = os.pipe()
        try:
            with open(self._log, "ab") as log:
                process = subprocess.Popen(
                    self.command(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[held],
                    # Ctrl-C in a terminal goes to the tests alone, which decide what ends when.
                    start_new_session=True,
                    **surroundings(self.path),
                )
        finally:
            os.close(held)
        self._pid_file.write_text(str(process.pid))
        return process

    def _end(self, number: signal.Signals) -> None:
        process = self._running()
        process.send_signal(number)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServerFailed(f"{self.kind} did not end:\n{self.log[-4000:]}") from None
        else:
            # What it had started ends by itself; if not, the next start would wait for it in vain.
            if not select.select([self._last_words], [], [], patience_s)[0]:
                raise ServerFailed(f"{self.kind} left processes behind:\n{self.log[-4000:]}")
        finally:
            self._forget()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.kind} does not run"
        return self._process

    def _forget(self) -> None:
        self._pid_file.unlink()
        os.close(self._last_words)
        self._process = None


def surroundings(path: Path) -> dict[str, Any]:
    """What a server inherits: no setting of its client library, a directory it may read, and a user that is not root.

    These are arguments for subprocess.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    around: dict[str, Any] = {"cwd": path, "env": environment, "umask": 0o077}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        around |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    return around


def hand_over(path: Path) -> None:
    """Give a directory of ours, with all that is in it, to the user that servers run as."""
    if os.geteuid() != 0:
        return
    nobody = pwd.getpwnam("nobody")
    for one in (path, *path.rglob("*")):
        os.chown(one, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)


def free_port() -> int:
    """A port that nobody listens on.

    Below the range from which systems take the ports of outgoing connections: otherwise a client could be given the
    port of a server that is down for a moment.
    """
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
