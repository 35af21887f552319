"""Where the servers of one test run live, and how they die with it.

Two directories: one in the ordinary place for temporary files, for logs, sockets and programs, and one for data, in
memory where there is room, because the servers of our tests sync every commit. Both belong to the process that opened
the premises. Other processes of the same run (pytest-xdist) may start servers in them; the guardian ends those too.
"""

import fcntl
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from servers import guardian

# What a server may write in a test run, with room to spare. Containers often give /dev/shm a mere 64 MB.
data_room_bytes = 2 * 1024**3


@dataclass(frozen=True)
class Premises:
    """The directories of one test run. Any process of the run may use them; who opened them closes them."""

    path: Path
    data_path: Path

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Of all processes of this run, one at a time is in here; a process that dies leaves."""
        with open(self.path / f"{name}.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class Guarded:
    """Premises with their guardian, until they are closed. Closing ends every server that still runs there.

    Data goes to `data_home` if that is given: who measures wants a disk, not memory.
    """

    def __init__(self, data_home: Path | None = None) -> None:
        path = Path(tempfile.mkdtemp(prefix="perdure-servers-"))
        data_home = data_home or roomy_home()
        data_path = Path(tempfile.mkdtemp(prefix="perdure-servers-", dir=data_home))
        for one in (path, data_path):
            # A server of another user must be able to pass through. Its own directory is shut.
            one.chmod(0o711)
        self.premises = Premises(path, data_path)
        # Isolated and without site-packages: it starts in a few milliseconds, whatever is installed.
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, str(path), str(data_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """End what runs here and remove the directories. Raises if something could not be removed."""
        assert self._guardian.stdin is not None
        self._guardian.stdin.close()
        if self._guardian.wait() != 0:
            raise RuntimeError(f"{self.premises} could not be cleared")

    def __enter__(self) -> Premises:
        return self.premises

    def __exit__(self, *_: object) -> None:
        self.close()


def roomy_home() -> Path:
    """Where data directories go: memory if it has room, else the ordinary place for temporary files."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free >= data_room_bytes:
        return memory
    return Path(tempfile.gettempdir())
