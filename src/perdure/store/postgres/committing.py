"""Changes to the one call that writes them, and its answer back."""

from collections.abc import Iterable
from typing import Any, Final

import asyncpg
import msgspec

from perdure.model import ops
from perdure.model.records import WatcherRecord
from perdure.store.optimistic.changes import Changes, Conflict, Written
from perdure.store.optimistic.known import Slice
from perdure.store.postgres.connecting import Connection
from perdure.store.postgres.fetching import RunRow, as_json
from perdure.store.postgres.statements import Statements

# Parts of a batch that are seldom there travel together.
_rest: Final = (
    "renewed_runs",
    "gone_runs",
    "new_letters",
    "gone_keys",
    "new_fan_outs",
    "gone_fan_outs",
    "put_consumers",
    "gone_consumers",
    "put_subscriptions",
    "gone_subscriptions",
    "put_parked",
    "put_deferred",
    "put_schedules",
    "gone_schedules",
    "put_pools",
    "put_workers",
    "gone_workers",
    "gone_outbox",
    "put_workflows",
    "put_channels",
    "put_streams",
    "new_stream_items",
)

# Raised by the function when rows that were to be there are not.
_missing_rows_state: Final = "PD003"


class _Claimed(msgspec.Struct, frozen=True):
    runs: list[RunRow]
    next_at: int | None


_decode_conflict = msgspec.json.Decoder(Conflict).decode
_decode_claimed = msgspec.json.Decoder(list[_Claimed]).decode


def is_overtaken(error: asyncpg.PostgresError) -> bool:
    """Whether the server found by itself, while writing, that what the decision saw is no longer so."""
    return isinstance(error, asyncpg.UniqueViolationError) or error.sqlstate == _missing_rows_state


async def apply(
    connection: Connection, statements: Statements, parameters: dict[str, Any]
) -> tuple[Written | Conflict, int, int]:
    """Make the call; gives its answer, the server's clock, and the greatest number in what was claimed.

    Within a transaction, in a savepoint: what is overtaken leaves what was done before alone, and lets go of its locks.
    """
    if not connection.is_in_transaction():
        return await _call(connection, statements, parameters)
    savepoint = connection.transaction()
    await savepoint.start()
    try:
        answer = await _call(connection, statements, parameters)
    except BaseException:
        if not connection.is_closed():
            await savepoint.rollback()
        raise
    if isinstance(answer[0], Conflict):
        await savepoint.rollback()
    else:
        await savepoint.commit()
    return answer


async def _call(
    connection: Connection, statements: Statements, parameters: dict[str, Any]
) -> tuple[Written | Conflict, int, int]:
    statement = statements["apply"]
    row = await connection.fetchrow(statement.text, *statement.values(parameters))
    assert row is not None
    if row["conflict"] is not None:
        return _decode_conflict(row["conflict"]), row["clock"], 0
    claimed = _decode_claimed(row["claimed"] or "[]")
    slices = tuple(
        (tuple(Slice(row.run, row.change) for row in one.runs), one.next_at) for one in claimed
    )
    seq = max((row.seq for one in claimed for row in one.runs), default=0)
    return Written(row["head"] or 0, slices), row["clock"], seq


def parameters_of(changes: Changes) -> dict[str, Any]:
    """What the call is given. Raises ValueError for what is no text that a server could hold."""
    return {
        "batch_id": changes.batch_id,
        "now": changes.now,
        "seq": changes.seq,
        "seq_before": changes.seq_before,
        "born": changes.born,
        "needs_head": changes.needs_head,
        "judges_time": changes.judges_time,
        "head": changes.head,
        "units": as_json(changes.units),
        "runs": as_json(changes.runs),
        "new_runs": as_json(changes.new_runs),
        "changed_runs": as_json(changes.changed_runs),
        "new_steps": as_json(changes.new_steps),
        "put_steps": as_json(changes.put_steps),
        "new_watchers": as_json(changes.new_watchers),
        "gone_watchers": as_json(map(_watcher_key, changes.gone_watchers)),
        "new_signals": as_json(changes.new_signals),
        "gone_signals": as_json(one.signal_id for one in changes.gone_signals),
        "put_cursors": as_json(changes.put_cursors),
        "new_items": as_json(changes.new_items),
        "gone_items": as_json(one.item_id for one in changes.gone_items),
        "new_keys": as_json(changes.new_keys),
        "new_events": as_json(changes.new_events),
        "claims": as_json(map(_claim, changes.claims)),
        "rest": _rest_of(changes),
    }


def _named(rows: Iterable[tuple[Any, ...]], *names: str) -> Iterable[dict[str, Any]]:
    return (dict(zip(names, row, strict=True)) for row in rows)


def _watcher_key(watcher: WatcherRecord) -> dict[str, Any]:
    return {"run_id": watcher.run_id, "path": watcher.path, "ix": watcher.ix}


def _claim(op: ops.ClaimRuns) -> dict[str, Any]:
    return {
        "worker_id": op.worker_id,
        "fence": op.fence,
        "limit": op.limit,
        "workflows": list(_named(dict.fromkeys(op.workflows), "name", "version")),
        "pools": None if op.pools is None else list(dict.fromkeys(op.pools)),
    }


def _rest_of(changes: Changes) -> str | None:
    rest: dict[str, Any] = {name: rows for name in _rest if (rows := getattr(changes, name))}
    if changes.trim is not None:
        rest["trim"] = changes.trim
    if changes.gone_letters:
        rest["gone_letters"] = [one.dead_letter_id for one in changes.gone_letters]
    if changes.past_steps:
        rest["past_steps"] = list(_named(changes.past_steps, "run_id", "generation"))
    if changes.gone_steps:
        rest["gone_steps"] = list(_named(changes.gone_steps, "run_id", "generation", "path"))
    if changes.gone_parked:
        names = ("consumer", "position", "subscription")
        rest["gone_parked"] = list(_named(changes.gone_parked, *names))
    if changes.gone_deferred:
        rest["gone_deferred"] = list(_named(changes.gone_deferred, "position", "subscription"))
    return msgspec.json.encode(rest).decode() if rest else None
