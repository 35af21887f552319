"""What to think of a server's settings: opening refuses it, unless that was accepted, and `doctor` tells it. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from perdure.store.base import Setting

_fsync_words: Final = {
    "everysec": "once a second only",
    "no": "when the system likes",
    "unknown": "nobody may know how",
}


def judged(facts: Mapping[str, str]) -> Iterator[Setting]:
    """The ways by which a server may lose what it has acknowledged. `why` goes on after the name of the server."""
    policy = facts["maxmemory_policy"]
    kept = policy == "noeviction"
    yield Setting(
        name="maxmemory-policy",
        value=policy,
        wanted="noeviction",
        ok=kept,
        why="refuses writes when its memory is full, and drops nothing"
        if kept
        else f"has the maxmemory-policy {policy}: set it to noeviction",
    )
    logs = facts["appendonly"] == "yes"
    yield Setting(
        name="appendonly",
        value=facts["appendonly"],
        wanted="yes",
        ok=logs,
        why="keeps a log of its writes"
        if logs
        else "keeps no log of its writes (appendonly no): what it was told is gone when it stops; "
        "set appendonly yes and appendfsync always",
    )
    if not logs:
        return
    paused = facts["no-appendfsync-on-rewrite"] == "yes"
    yield Setting(
        name="no-appendfsync-on-rewrite",
        value=facts["no-appendfsync-on-rewrite"],
        wanted="no",
        ok=not paused,
        why="syncs nothing while it rewrites its log (no-appendfsync-on-rewrite yes): set it to no"
        if paused
        else "syncs its log also while it rewrites it",
    )
    fsync = facts["appendfsync"]
    yield Setting(
        name="appendfsync",
        value=fsync,
        wanted="always",
        ok=fsync == "always",
        why="syncs its log before it acknowledges"
        if fsync == "always"
        else f"syncs its log {_fsync_words.get(fsync, fsync)} (appendfsync {fsync}): the last writes are lost with the "
        "power; set appendfsync always",
    )
