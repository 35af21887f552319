"""What to think of a file and its settings. Pure; opening refuses some of it before it comes to this."""

from collections.abc import Iterator, Mapping
from typing import Final

from perdure.store.base import Setting

# While a reader holds an old snapshot the log cannot be emptied; the writer gives up on it at this size.
wal_bytes_wanted: Final = 64 * 1024 * 1024
# Two connections that write and copy the log at once may lose a commit before this version: sqlite.org/wal.html.
_wal_reset_fixed: Final = (3, 51, 3)


def judged(version: str, facts: Mapping[str, str]) -> Iterator[Setting]:
    mode = facts["journal_mode"]
    yield Setting(
        name="journal_mode",
        value=mode,
        wanted="wal",
        ok=mode == "wal",
        why="readers and the writer do not wait for each other; is the file on a network share?"
        if mode != "wal"
        else "readers and the writer do not wait for each other",
    )
    full = facts["synchronous"] == "FULL"
    yield Setting(
        name="synchronous",
        value=facts["synchronous"],
        wanted="FULL",
        ok=full,
        why="each commit is on the disk before it is acknowledged"
        if full
        else "the newest commits may be lost with the power: leave ?synchronous=NORMAL out of the URL",
    )
    network = facts["file_system_is_network"] == "true"
    yield Setting(
        name="file_system",
        value=facts["file_system"] or "unknown",
        wanted="a local one",
        ok=not network,
        why="its locks and shared memory do not work as SQLite needs them: put the file on a local disk"
        if network
        else "locks and shared memory work",
    )
    log_bytes = int(facts["wal_bytes"])
    yield Setting(
        name="wal_bytes",
        value=str(log_bytes),
        wanted=f"up to {wal_bytes_wanted}",
        ok=log_bytes <= wal_bytes_wanted,
        why="the log is copied into the file now and then"
        if log_bytes <= wal_bytes_wanted
        else "the log cannot be emptied: find the process that keeps a read transaction open on the file",
    )
    fixed = tuple(int(part) for part in version.split(".")) >= _wal_reset_fixed
    yield Setting(
        name="sqlite_version",
        value=version,
        wanted="3.51.3",
        ok=fixed,
        why="the WAL-reset bug is fixed"
        if fixed
        else "before 3.51.3 two connections that write at once may lose a commit (the WAL-reset bug). Processes of "
        "perdure take turns and are safe; others that write into this file are not: use a newer SQLite for them",
    )
