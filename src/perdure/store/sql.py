"""SQL that lives in files beside the code of its store: named queries, and numbered migrations.

`queries.sql` is a list of statements, each under `-- name: x` and a sentence that says why it is so.
A migration is `migrations/NNNN_what.sql`; once released it is never edited. Nothing here talks to a
database.
"""

import re
from importlib.resources import files
from typing import Final, NamedTuple

import msgspec

from perdure.model.records import (
    ChannelRecord,
    ConsumerRecord,
    CursorRecord,
    DeadLetterRecord,
    DeferredRecord,
    EventRecord,
    ItemRecord,
    KeyRecord,
    OutboxRecord,
    ParkedRecord,
    PoolRecord,
    RunRecord,
    ScheduleRecord,
    SignalRecord,
    StepRecord,
    StreamItemRecord,
    StreamRecord,
    SubscriptionRecord,
    WatcherRecord,
    WorkerRecord,
    WorkflowRecord,
)

# A migration with this line takes nothing away that older code reads or writes. One without it
# shuts older code out: to forget a line must not cost data.
older_code_line: Final = "-- older code may go on"

# Records by the names that marks in statements have for them: `{run columns}` and their like.
RECORDS: Final[dict[str, type[msgspec.Struct]]] = {
    "run": RunRecord,
    "step": StepRecord,
    "watcher": WatcherRecord,
    "signal": SignalRecord,
    "key": KeyRecord,
    "event": EventRecord,
    "letter": DeadLetterRecord,
    "workflow": WorkflowRecord,
    "cursor": CursorRecord,
    "item": ItemRecord,
    "stream": StreamRecord,
    "stream_item": StreamItemRecord,
    "consumer": ConsumerRecord,
    "subscription": SubscriptionRecord,
    "parked": ParkedRecord,
    "deferred": DeferredRecord,
    "schedule": ScheduleRecord,
    "pool": PoolRecord,
    "channel": ChannelRecord,
    "worker": WorkerRecord,
    "outbox": OutboxRecord,
}

_name_line = re.compile(r"^-- name: (\w+)[ \t]*$", re.MULTILINE)
_migration_name = re.compile(r"(\d{4})_(\w+)\.sql")


class Migration(NamedTuple):
    """One step of the schema: after it, the schema has this number."""

    number: int
    name: str
    text: str


def load_queries(package: str, file: str = "queries.sql") -> dict[str, str]:
    """The statements of a file by name, without comments and the closing semicolon."""
    _, *parts = _name_line.split(files(package).joinpath(file).read_text(encoding="utf-8"))
    queries: dict[str, str] = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        if name in queries:
            raise ValueError(f"query {name!r} stands twice in {package}/{file}")
        queries[name] = _bare(text)
    return queries


def load_migrations(package: str) -> list[Migration]:
    """All migrations of a package, oldest first; their numbers are 1, 2, 3 without a gap."""
    found = []
    for entry in files(package).joinpath("migrations").iterdir():
        match = _migration_name.fullmatch(entry.name)
        if match is not None:
            text = entry.read_text(encoding="utf-8")
            found.append(Migration(int(match.group(1)), match.group(2), text))
    found.sort()
    if [one.number for one in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations of {package} are not numbered 1, 2, 3: {found!r:.200}")
    return found


def _bare(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return "\n".join(lines).strip().removesuffix(";")
