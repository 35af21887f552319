"""Facts about the machine that the figures depend on."""

import os
import platform
import resource
import sqlite3
import time
from importlib import metadata
from pathlib import Path

from benchmarks.common import percentile


def facts(place: str, *, uvloop: bool) -> dict[str, str]:
    found = {
        "cores": f"{_cores()} of {os.cpu_count()}",
        "processor": _processor(),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "sqlite": sqlite3.sqlite_version,
        "loop": "uvloop" if uvloop else "asyncio",
        "directory": f"{place} ({_filesystem(place)})",
        "fdatasync of 4 KiB": _sync_probe(place),
        "load before": load(),
    }
    for package in (
        "perdure",
        "dbos",
        "msgspec",
        "SQLAlchemy",
        "asyncpg",
        *(["uvloop"] if uvloop else []),
    ):
        found[package] = _version(package)
    return found


def load() -> str:
    """The average load of the last minute; over the number of cores nothing can be measured well."""
    try:
        return f"{os.getloadavg()[0]:.2f}"
    except OSError:
        return "unknown"


class Others:
    """How much of the machine's processor time went to other processes than our own children and our server."""

    def __init__(self, server_pid: int | None = None) -> None:
        self._server_pid = server_pid
        self._busy, self._children, self._at = self._read()

    def _read(self) -> tuple[float, float, float]:
        busy = 0.0
        for line in _lines("/proc/stat")[:1]:
            user, nice, system, _idle, _io, irq, soft, steal = map(int, line.split()[1:9])
            busy = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        children = used.ru_utime + used.ru_stime + _family_cpu_s(self._server_pid)
        return busy, children, time.monotonic()

    def share(self) -> float:
        """Since it was made: 0 is an idle machine beside us, 1 one that others fill."""
        busy, children, at = self._read()
        others = (busy - self._busy) - (children - self._children)
        return max(0.0, others / ((at - self._at) * (os.cpu_count() or 1)))


def _family_cpu_s(pid: int | None) -> float:
    """Of a process and its children, those that live and those that it has seen end."""
    if pid is None:
        return 0.0
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        for line in _lines(str(path)):
            # The name, in parentheses, may hold anything; then come the state and the parent.
            fields = line.rpartition(")")[2].split()
            if str(pid) in (path.parent.name, fields[1]):
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def keeps_nothing(place: str) -> bool:
    """Whether files there live in memory, so that a sync costs nothing."""
    return _filesystem(place) in ("tmpfs", "ramfs")


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> str:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            return f"{int(line.split()[1]) / 1024 / 1024:.1f} GiB"
    return "unknown"


def _filesystem(place: str) -> str:
    """The type of the file system that the directory is on: that of the longest mount point above it."""
    real = os.path.realpath(place)
    best, kind = "", "unknown"
    for line in _lines("/proc/mounts"):
        _, mount, type_, *_ = line.split()
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, type_
    return kind


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _sync_probe(place: str, tries: int = 200) -> str:
    path = os.path.join(place, "sync-probe")
    sync = getattr(os, "fdatasync", os.fsync)
    took_us = []
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for _ in range(tries):
            begun = time.perf_counter()
            os.write(fd, b"x" * 4096)
            sync(fd)
            took_us.append((time.perf_counter() - begun) * 1e6)
    finally:
        os.close(fd)
        os.unlink(path)
    return f"p50 {percentile(took_us, 50):.0f} us, p99 {percentile(took_us, 99):.0f} us"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
