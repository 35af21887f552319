"""`doctor`: what a store is, which promises it keeps as it is set up, and what somebody should see to. Pure.

The settings were judged by the store itself, as opening judges them; here follows what they mean, fault by fault: the
table of docs/guarantees.md, for this store as it is today.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from perdure.inspecting.catalogue import WorkerInfo
from perdure.store.base import Described, Setting, Versions

Fault = Literal["process killed", "server killed", "power loss", "failover", "disk full"]

# Connections of one process to Postgres, when all of them are needed: writer, readers, hints, life sign, bodies.
_connections_per_process: Final = 15
_memory_share: Final = 0.8
_schema_words: Final = "the schema is brought up by the next process that opens the store"


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The schema that is stored (None: there is none yet) and the one that this code knows.

    `migrates`: to open the store would bring it up. `refused`: this code is too old to open it.
    """

    stored: int | None
    known: int
    min_code: int | None
    migrates: bool
    refused: bool


class Promise(msgspec.Struct, frozen=True):
    """What becomes of acknowledged ops at a fault. `kept`: all of them survive it, or nothing was acknowledged."""

    fault: Fault
    kept: bool
    words: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What `doctor` says. `warnings` say each what is wrong and what to do; without any, all is as it should be."""

    kind: Literal["memory", "sqlite", "postgres", "redis"]
    product: str
    version: str
    schema: SchemaVersion
    url: str
    namespace: str | None
    settings: list[Setting]
    promises: list[Promise]
    workers: list[WorkerInfo]
    counts: dict[str, int]
    bytes: int | None  # on Redis of the whole server
    facts: dict[str, str]
    warnings: list[str]


def schema_version(found: Versions) -> SchemaVersion:
    refused = found.min_code is not None and found.min_code > found.known
    return SchemaVersion(
        stored=found.stored,
        known=found.known,
        min_code=found.min_code,
        migrates=not refused and (found.stored is None or found.stored < found.known),
        refused=refused,
    )


def diagnose(
    found: Described,
    url: str,
    namespace: str | None,
    workers: Sequence[WorkerInfo],
    counts: dict[str, int],
) -> Diagnosis:
    return Diagnosis(
        kind=found.kind,
        product=found.product,
        version=found.version,
        schema=schema_version(found.versions),
        url=url,
        namespace=namespace,
        settings=list(found.settings),
        promises=promises(found),
        workers=list(workers),
        counts=counts,
        bytes=found.bytes,
        facts=dict(found.facts),
        warnings=list(_warnings(found, workers)),
    )


# --- promises -----------------------------------------------------------------------------------------

_full: Final = Promise(
    "disk full", True, "the call fails, nothing is changed and nothing acknowledged"
)


def promises(found: Described) -> list[Promise]:
    """What is promised in force, fault by fault."""
    weak = {one.name for one in found.settings if not one.ok}
    match found.kind:
        case "memory":
            return _memory()
        case "sqlite":
            return _sqlite(weak)
        case "postgres":
            values = {one.name: one.value for one in found.settings}
            return _postgres(weak, values, found.facts)
        case "redis":
            return _redis(weak)


def _memory() -> list[Promise]:
    lost = "everything is lost: nothing is kept but in this process"
    return [
        Promise("process killed", False, lost),
        Promise("server killed", True, "there is no server"),
        Promise("power loss", False, lost),
        Promise("failover", False, "there is no other copy"),
        _full,
    ]


def _sqlite(weak: set[str]) -> list[Promise]:
    if "file_system" in weak:
        lost = "nothing is promised on a network file system: the file may be damaged"
        return [
            Promise("process killed", False, lost),
            Promise("server killed", False, lost),
            Promise("power loss", False, lost),
            Promise("failover", False, lost),
            _full,
        ]
    durable = "synchronous" not in weak
    return [
        Promise("process killed", True, "every acknowledged op survives"),
        Promise("server killed", True, "there is no server"),
        Promise("power loss", True, "every acknowledged op survives, if the disk honours fsync")
        if durable
        else Promise(
            "power loss",
            False,
            "the newest commits may be lost; what is left is whole, up to a commit",
        ),
        Promise(
            "failover", False, "there is no other copy: what is newer than the last backup is lost"
        ),
        _full,
    ]


def _postgres(weak: set[str], values: dict[str, str], facts: dict[str, str]) -> list[Promise]:
    logged = not weak & {"fsync", "synchronous_commit"}
    durable = logged and "full_page_writes" not in weak
    survives = "every acknowledged op survives"
    lost = "what was acknowledged just before may be lost"
    torn = lost if not logged else "a page that was being written may stay broken"
    # With `local` a commit does not wait for standbys, whatever they are named.
    waits = bool(facts.get("synchronous_standby_names")) and logged
    waits = waits and values.get("synchronous_commit") != "local"
    return [
        Promise("process killed", True, survives),
        Promise("server killed", logged, survives if logged else lost),
        Promise(
            "power loss", durable, f"{survives}, if the disk honours fsync" if durable else torn
        ),
        Promise("failover", True, f"{survives}, if a synchronous standby takes over")
        if waits
        else Promise("failover", False, "what the standby had not received yet is lost"),
        _full,
    ]


def _redis(weak: set[str]) -> list[Promise]:
    survives = "every acknowledged op survives"
    logs = "appendonly" not in weak
    synced = logs and not weak & {"appendfsync", "no-appendfsync-on-rewrite"}
    if not logs:
        gone = "everything since the last snapshot is lost"
        return [
            Promise("process killed", True, survives),
            Promise("server killed", False, gone),
            Promise("power loss", False, gone),
            Promise("failover", False, "what the replica had not received yet is lost"),
            _full,
        ]
    return [
        Promise("process killed", True, survives),
        Promise("server killed", True, survives)
        if synced
        else Promise(
            "server killed",
            False,
            "normally all survives; up to 2 s are lost if a sync was stalling",
        ),
        Promise("power loss", True, f"{survives}, if the disk honours fsync")
        if synced
        else Promise(
            "power loss",
            False,
            "the last second is lost, at worst two; the loss is noticed and told",
        ),
        Promise(
            "failover",
            False,
            "what the replica had not received yet is lost; the loss is noticed and told",
        ),
        _full,
    ]


# --- warnings -----------------------------------------------------------------------------------------


def _warnings(found: Described, workers: Sequence[WorkerInfo]) -> Iterator[str]:
    for one in found.settings:
        # Alone a process is in nobody's way.
        if not one.ok and (one.name != "sqlite_version" or len(workers) > 1):
            yield f"{one.name} is {one.value}, and should be {one.wanted}: {one.why}"
    schema = schema_version(found.versions)
    if schema.stored is not None and schema.stored > schema.known:
        yield (
            f"the schema has version {schema.stored}, and this code knows {schema.known}: newer code uses this store; "
            "upgrade perdure here too"
        )
    if schema.migrates:
        yield f"the schema has version {schema.stored}, and this code knows {schema.known}: {_schema_words}"
    if not workers:
        yield "no worker lives: nothing is executed until one is started, as `async with app:` or `perdure worker` does"
    facts = found.facts
    if found.kind == "postgres":
        needed, most = _connections_per_process * len(workers), int(facts["max_connections"])
        if needed > most:
            yield (
                f"max_connections is {most}, and {len(workers)} workers may need {needed}: raise it, or put a pooler "
                "before the server (?pgbouncer=1)"
            )
    if found.kind == "redis":
        used, most = int(facts["used_memory"]), int(facts.get("maxmemory", "0"))
        if most and used > _memory_share * most:
            yield (
                f"{used} of {most} bytes of memory are used: when it is full nothing is accepted any more; raise "
                "maxmemory, or prune (app.prune, App(keep=…), app.trim_ledger)"
            )
    if found.kind == "memory":
        yield "a store in memory keeps nothing: use sqlite:///, postgresql:// or redis:// for what must survive"
