"""What is kept where. Every key of a namespace begins with one hash tag: all are on one node of a cluster.

    meta               hash   what the namespace says of itself: its schema, the code it needs, which server it is on
    head               hash   position, recorded_at: where the ledger ends; commits: how many batches there were;
                              units: the version of what is not among those
    units              hash   versions of what several processes may decide about at once, of a bounded number of names
    commits            hash   batch id -> where the ledger ended before it; "" if it was not and never will be committed
    commits:age        zset   those by age
    counts             hash   rows of each table, as they come and go

    run:<id>           hash   born, published (JSON); claim: version, status, owner, fence, ready, state (JSON);
                              made: when, generation, position; seq: the last number of its history; kept: the oldest
                              generation
    open:<id>          hash   its steps that wait or will be tried again, by generation and path
    steps:<id>:<gen>   hash   all others, by number of superseding and path; !seq: the last number of plain results
    waits:<id>         hash   what it waits for, by path and number
    signals:<id>       hash   what is buffered for it, by id
    cursors:<id>       hash   how far its branches have seen topics
    streams:<id>       hash   how far its streams have come, by name: position, and bytes of all that was published
    stream:<id>\\0<name> stream  position -> bytes that were published before it, and the row
    children:<id>      set    the runs it started that live

    runs, runs:status:<status>, runs:workflow:<name>, runs:entity:<entity>, runs:parent:<id>, runs:tag:<name>,
    runs:tag:<name>\\0<value>
                       zset   for listings: when a run was made, and its id
    runs:finished      zset   when it ended, and its id
    ready:<name>:<v>, ready:<pool>\\0<name>:<v>
                       zset   from when on it may be claimed, and its id
    ready_names        set    which of those there are
    slots:<pool>, slots:<pool>\\0<key>
                       zset   runs that hold a slot
    line:<pool>\\0<key> zset   who stands in line: begun or not, priority, since when, its id, its workflow
    line_keys:<pool>   zset   keys that somebody stands in line of; lines: set of such pools
    line_age:<pool>    zset   since when, and its id; begun:<pool>: those of them that have begun
    owners, owned:<worker>    who runs something, and what
    held:<worker>      zset   what it has in memory, running or not
    root:<event id>    set    runs that the chain of one event has started

    watch:<kind>:<target>     zset   who waits, longest first; of a topic also watch:about:<topic>\\0<entity>
    matches            zset   those that a filter must be asked about
    approvals          zset   those that people can answer, longest waiting first
    deadlines, expiries       zset   what ends by time
    signal_ids         hash   id of a buffered signal -> its run

    events             stream  position -> id, type, about, when it happened, when it was recorded, row
    type:<topic>       stream  the positions of its events, and whether each only repeats the one before
    event_ids          hash    id -> position
    times, timelines   zset   by when things happened, of all and of each entity
    entity:<entity>    zset   positions; of what the engine tells of runs only the timeline
    topic:<topic>\\0<entity>    zset   positions
    fan_outs           hash    events with more runs to resume

    queue:<name>       zset   items in order; queues: set of those that hold something
    items              hash   id -> when it was put, and the row
    keys               hash   keys_of:<run> set, keys:expiry zset
    letters            hash   letters:all, letters:of:<run> zset
    schedules          hash   schedules:all, schedules:due and due:<workflow> zset
    consumers, subscriptions, parked, deferred, pools, workers, workflows, channels, outbox
                       hash   (and zsets of their order)

All zsets but those of positions have the score 0 and are ordered by their members, byte by byte: a time or a position
of fixed width, then ids. So an index is what it is in a database of tables, (opened_at, run_id, path, ix), and a page
begins after any place, whether it is still there or not. Members and rows are made here: the scripts only move them.
"""

import functools
import re
from typing import Final

from perdure.model.limits import priority_max
from perdure.model.records import RunRecord
from perdure.model.topics import ENGINE

# Between parts of a member. No name and no id can hold it.
SEP: Final = "\0"
# After every id: a bound that takes in all members with the same beginning.
LAST: Final = "\U0010ffff"
# Times may be before 1970.
_time_base: Final = 10**17


@functools.lru_cache(maxsize=256)  # a batch has one time for most of what it writes
def moment(time_us: int) -> str:
    """A time as part of a member."""
    return f"{time_us + _time_base:018d}"


def time_of(member: str) -> int:
    """The time that a member begins with."""
    return int(member[:18]) - _time_base


def id_of(member: str) -> str:
    """The id that comes after the time in a member."""
    return member[18:]


def place(position: int) -> str:
    """A position, or a sequence number, as part of a member."""
    return f"{position:016d}"


def is_indexed(type: str, about: str) -> bool:
    """Whether an event is found by its entity's own index: all but what the engine tells of runs, which is little."""
    return not about.startswith("run/") or type.partition(".")[0] not in ENGINE


def ready_part(pool: str, workflow: str, version: int) -> str:
    """As the index of the runs of a workflow that may be claimed is named."""
    name = f"{workflow}:{version}"
    return f"{pool}{SEP}{name}" if pool else name


def line_member(run: RunRecord, line_at: int, admitted: bool) -> str:
    """A place in line: who has begun before who has not, then by priority, then by age."""
    rank = f"{int(not admitted)}{priority_max - run.priority:03d}"
    return f"{rank}{moment(line_at)}{run.run_id}{SEP}{run.workflow}:{run.version}"


_glob = re.compile(r"([\\*?\[\]])")


def glob_escaped(text: str) -> str:
    """A text as a pattern of keys that means nothing but itself."""
    return _glob.sub(r"\\\1", text)


class Layout:
    """The names of the keys of one namespace."""

    def __init__(self, namespace: str | None) -> None:
        self.tag = "{perdure}" if namespace is None else f"{{perdure:{namespace}}}"
        self.prefix = f"{self.tag}:"
        # The one key that every script is called with: it says which node is meant.
        self.meta = f"{self.prefix}meta"

    def key(self, *parts: str) -> str:
        return self.prefix + ":".join(parts)
