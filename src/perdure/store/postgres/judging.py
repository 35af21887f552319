"""What to think of a server's settings: opening refuses some of it, and `doctor` tells all. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from perdure.store.base import Setting

# Not to be opened at all; what else is not as it should be is told, or may be accepted.
REFUSED: Final = frozenset({"fsync", "server_encoding"})


def judged(facts: Mapping[str, str]) -> Iterator[Setting]:
    fsync = facts["fsync"]
    yield Setting(
        name="fsync",
        value=fsync,
        wanted="on",
        ok=fsync == "on",
        why="what is acknowledged is on the disk"
        if fsync == "on"
        else "this server runs with fsync=off: a crash of its machine can lose or break what was acknowledged; "
        "set fsync=on and restart it",
    )
    commit = facts["synchronous_commit"]
    yield Setting(
        name="synchronous_commit",
        value=commit,
        wanted="on",
        ok=commit != "off",
        why="a commit is on the disk before it is acknowledged"
        if commit != "off"
        else "synchronous_commit is off for this role or database: a crash can lose what was just acknowledged; "
        "set it to on",
    )
    encoding = facts["server_encoding"]
    yield Setting(
        name="server_encoding",
        value=encoding,
        wanted="UTF8",
        ok=encoding == "UTF8",
        why="every text can be kept"
        if encoding == "UTF8"
        else f"the database is encoded as {encoding}: create one with encoding UTF8",
    )


def judged_besides(facts: Mapping[str, str]) -> Iterator[Setting]:
    """What opening does not ask for, or asks of each connection."""
    pages = facts["full_page_writes"]
    yield Setting(
        name="full_page_writes",
        value=pages,
        wanted="on",
        ok=pages == "on",
        why="a page that was written by half is mended from the log"
        if pages == "on"
        else "a page that was written by half when the power went stays broken: set full_page_writes=on, unless the "
        "file system writes pages whole",
    )
    standby = facts["in_recovery"] == "true"
    yield Setting(
        name="in_recovery",
        value=facts["in_recovery"],
        wanted="false",
        ok=not standby,
        why="it is a standby, which cannot write: give the address of the primary"
        if standby
        else "it is the primary",
    )
