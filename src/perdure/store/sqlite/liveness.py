"""Locks of the operating system beside the database file: who may write now, which workers live.

`<db>-lock` is held for each write transaction and each checkpoint: processes take turns fairly,
and none meets the WAL-reset bug of SQLite before 3.51.3. It is never removed: a process that waits
for a removed file would get a lock that nobody else sees.

`<db>-workers/<worker>.lock` is held by a worker while its process lives; the kernel lets go of it
when the process dies, however it dies. It is made before the worker's row is committed, and removed
after, so a file that exists and is free means a dead worker. Without a file the lease decides; so
it does where there is no flock (Windows), and there SQLite alone keeps writers apart. Whatever its
lease says, a worker of this process lives.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from perdure.store.beating import after
from perdure.store.sqlite import beside

try:
    import fcntl

    has_flock = True
except ImportError:  # not a POSIX system
    has_flock = False

_flags = getattr(os, "O_CLOEXEC", 0)


class SideLock:
    """The turn to write. One per process; used by its writer thread only."""

    def __init__(self, path: str) -> None:
        self._fd = _opened(f"{path}-lock")
        beside.match(self._fd, path)

    def acquire(self) -> None:
        if has_flock:
            fcntl.flock(self._fd, fcntl.LOCK_EX)

    def release(self) -> None:
        if has_flock:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _opened(lock: str) -> int:
    try:
        return os.open(lock, os.O_RDWR | _flags | os.O_CREAT, 0o666)
    except PermissionError:
        # Made before the database became the group's. To lock a file one need not be able to write to it.
        return os.open(lock, os.O_RDONLY | _flags)


class WorkerLocks:
    """The life signs of all workers on this file, and those that this process gives."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._directory = Path(f"{path}-workers")
        self._held: dict[str, int | None] = {}  # None where there is no flock
        self.outlive: threading.Event | None = None  # what is held is held until then, by whomever

    def held(self) -> list[str]:
        """The workers of this process."""
        return list(self._held)

    def hold(self, worker_id: str) -> None:
        """Give a life sign until `clear_away`. Call it under the side lock, before the row commits."""
        if worker_id not in self._held:
            self._held[worker_id] = self._locked(worker_id) if has_flock else None

    def _locked(self, worker_id: str) -> int:
        beside.make_directory(str(self._directory), self._path)
        fd = os.open(self._file(worker_id), os.O_RDWR | _flags | os.O_CREAT, 0o666)
        beside.match(fd, self._path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd

    def is_live(self, worker_id: str, lease_until: int, now: int) -> bool:
        """Whether a worker that has a row lives. May be asked from any thread."""
        if worker_id in self._held:
            return True
        is_held = self._is_held(worker_id)
        return lease_until > now if is_held is None else is_held

    def _is_held(self, worker_id: str) -> bool | None:
        if not has_flock:
            return None
        try:
            fd = os.open(self._file(worker_id), os.O_RDONLY | _flags)
        except FileNotFoundError:
            return None
        except PermissionError:
            return True  # not ours to judge: others will find it dead if it is
        try:
            # Shared, so that two who probe at once do not take each other for the worker.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def clear_away(self, worker_id: str) -> None:
        """Remove the life sign of a worker that has stopped or was found dead. Never fails."""
        fd = self._held.pop(worker_id, None)
        with suppress(OSError):
            self._file(worker_id).unlink()
        if fd is not None:
            os.close(fd)

    def dead(self) -> list[str]:
        """Those whose file is there and free. Call it under the side lock: nobody is just making one."""
        try:
            files = os.listdir(self._directory)
        except OSError:
            return []  # nobody has come yet
        ids = [unquote(one.removesuffix(".lock")) for one in files if one.endswith(".lock")]
        return [one for one in ids if one not in self._held and self._is_held(one) is False]

    def part(self) -> None:
        """The end of who holds these: what is to outlive that is let go of later, and then says that it is dead."""
        if self.outlive is not None:
            fds = [fd for fd in self._held.values() if fd is not None]
            self._held.clear()
            after(self.outlive, lambda: _close_all(fds))

    def close(self) -> None:
        """Remove what this process has made; under the side lock."""
        for worker_id in self.held():
            self.clear_away(worker_id)
        with suppress(OSError):  # it is not there, or others still live in it
            self._directory.rmdir()

    def let_go(self) -> None:
        """Give no life sign any more, and leave the files: free, they say that the worker is dead.

        In a forked child it closes the copies, which would keep a dead parent looking alive.
        """
        for fd in self._held.values():
            if fd is not None:
                os.close(fd)
        self._held.clear()

    def _file(self, worker_id: str) -> Path:
        return self._directory / f"{quote(worker_id, safe='')}.lock"
