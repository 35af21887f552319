"""Reads: two threads with a connection each, beside the writer and never in its way.

Each call is one statement and so one snapshot, taken after the call began: it sees every commit
that was acknowledged to this process. What is more than one text holds is read in parts: a run with
its steps still from one snapshot, a page of rows not. Connections are `query_only`. Rows come as
JSON arrays. What was read from a file that by then needs newer code is never handed out.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from perdure.model.records import (
    HISTORY_BEGINS,
    ChannelRecord,
    ConsumerRecord,
    DeadLetterRecord,
    DeferredRecord,
    EventRecord,
    HistoryPlace,
    ItemRecord,
    KeyRecord,
    LineLook,
    OutboxRecord,
    ParkedRecord,
    PoolRecord,
    RunRecord,
    ScheduleRecord,
    SignalRecord,
    StepRecord,
    StreamItemRecord,
    StreamSpan,
    SubscriptionRecord,
    WatcherRecord,
    WorkerRecord,
    WorkflowRecord,
    history_place,
)
from perdure.store import listing
from perdure.store.base import (
    Backlog,
    Life,
    Look,
    MatchPlace,
    RunFilter,
    Standing,
    Vitals,
    WatcherPlace,
    merged_backlog,
)
from perdure.store.decoding import (
    all_counts,
    decode_backlog,
    decode_channels,
    decode_consumers,
    decode_deferred,
    decode_events,
    decode_ids,
    decode_items,
    decode_keys,
    decode_letters,
    decode_lines,
    decode_lives,
    decode_numbers,
    decode_outbox,
    decode_pairs,
    decode_parked,
    decode_pools,
    decode_runs,
    decode_schedules,
    decode_signals,
    decode_spans,
    decode_steps,
    decode_stream_items,
    decode_subscriptions,
    decode_watchers,
    decode_workers,
    decode_workflows,
    first,
    in_order,
    pool_keys,
    with_steps,
)
from perdure.store.listing import (
    BEFORE_ALL_TIMES,
    events_query,
    match_place,
    parked_place,
    watcher_place,
)
from perdure.store.sqlite import event_rows, opening
from perdure.store.sqlite.statements import Statements, as_json, in_parts, queries, steps_in_parts

Found = TypeVar("Found")

_threads = 2
_counted_max = 1_000_000
_decode_owners = msgspec.json.Decoder(list[str | None]).decode
_decode_leases = msgspec.json.Decoder(list[tuple[str, int]]).decode
_decode_swept = msgspec.json.Decoder(list[tuple[str, int]]).decode


class Reads:
    """The reading half of the store."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(_threads, thread_name_prefix="perdure-sqlite-read")

    async def ask(self, read: Callable[[Statements], Found]) -> Found:
        """Run a read on one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._on_thread, read)

    def _on_thread(self, read: Callable[[Statements], Found]) -> Found:
        sql: Statements | None = getattr(self._local, "sql", None)
        if sql is None:
            connection = opening.connect(self._path, synchronous=None)
            self._connections.append(connection)
            sql = self._local.sql = Statements(connection)
        try:
            return read(sql)
        finally:
            # After the read: before it, another process could migrate the file in between.
            opening.check_code(sql)

    def close(self) -> None:
        """Wait for reads under way, then close. Blocks; not for the loop."""
        self._pool.shutdown(wait=True)
        for connection in self._connections:
            connection.close()
        self._connections.clear()


# --- for the engine ------------------------------------------------------------------------------


def settled(sql: Statements, batch_id: str) -> bool:
    return bool(sql.row("settled", {"batch_id": batch_id})[0])


def load(sql: Statements, run_ids: Sequence[str]) -> list[tuple[RunRecord, list[StepRecord]]]:
    wanted = list(dict.fromkeys(run_ids))
    try:
        runs, steps = sql.row("load", {"run_ids": as_json(wanted)})
    except sqlite3.DataError:
        # Together they are more than SQLite puts in one text.
        if len(wanted) == 1:
            return _load_in_parts(sql, wanted[0])
        middle = len(wanted) // 2
        return load(sql, wanted[:middle]) + load(sql, wanted[middle:])
    return with_steps(decode_runs(runs), decode_steps(steps))


def _load_in_parts(sql: Statements, run_id: str) -> list[tuple[RunRecord, list[StepRecord]]]:
    with _snapshot(sql):
        found = run(sql, run_id)
        if found is None:
            return []
        steps = steps_in_parts(sql, run_id, found.generation)
    return [(found, [one for one in steps if one.superseded == 0])]


@contextmanager
def _snapshot(sql: Statements) -> Iterator[None]:
    """Within it all reads see the same commits."""
    sql.run("begin_reading")
    try:
        yield
    finally:
        if sql.connection.in_transaction:  # some errors have ended it
            sql.run("rollback")


def revisions(sql: Statements, run_ids: Sequence[str]) -> dict[str, int]:
    row = sql.row("revisions", {"run_ids": as_json(list(run_ids))})
    return decode_numbers(row[0])


def ended(sql: Statements, run_ids: Sequence[str]) -> list[RunRecord]:
    return sql.records(decode_runs, "ended", {"run_ids": as_json(list(run_ids))})


def look(
    sql: Statements,
    workflows: list[tuple[str, int]] | None,
    after: str,
    limit: int,
    pools: list[str] | None,
    is_live: Callable[[str, int], bool],
) -> Look:
    known = None if workflows is None else as_json(workflows)
    served = None if pools is None else as_json(pools)
    found = sql.row("look", {"workflows": known, "pools": served})
    deadline_at, expires_at, ready_at, fan_out, outbox, schedule_at, first, last, *lists = found
    owners, leases, readers, waiting = lists
    deadlines = [at for at in (deadline_at, expires_at) if at is not None]
    live = frozenset(one for one, until in _decode_leases(leases) if is_live(one, until))
    suspects, swept = _sweep(sql, after, limit)
    return Look(
        deadline_at=min(deadlines, default=None),
        ready_at=ready_at,
        fan_out=bool(fan_out),
        outbox=bool(outbox),
        schedule_at=schedule_at,
        lines=tuple(decode_lines(waiting)),
        orphaned=not live.issuperset(_decode_owners(owners)),
        suspects=suspects,
        swept=swept,
        first=first,
        last=last,
        consumers=tuple(sorted(decode_consumers(readers), key=lambda one: one.name)),
        workers=live,
    )


def outbox(sql: Statements, after: str, limit: int) -> list[OutboxRecord]:
    def page(after: str, limit: int) -> list[OutboxRecord]:
        return sql.records(decode_outbox, "page_outbox", {"after": after, "limit": limit})

    return in_parts(page, after, limit, lambda last: last.outbox_id)


def _sweep(sql: Statements, after: str, limit: int) -> tuple[tuple[str, ...], str]:
    parked = sql.records(_decode_swept, "sweep", {"after": after, "limit": limit}) if limit else []
    suspects = tuple(run_id for run_id, watches in parked if not watches)
    return suspects, parked[-1][0] if parked and len(parked) == limit else ""


def catalogue(sql: Statements) -> list[WorkflowRecord]:
    rows = sql.records(decode_workflows, "catalogue")
    return sorted(rows, key=lambda one: (one.name, one.version))


def channels(sql: Statements) -> list[ChannelRecord]:
    rows = sql.records(decode_channels, "all_channels")
    return sorted(rows, key=lambda one: (one.kind, one.name))


def span(sql: Statements) -> tuple[int, int]:
    first, last = sql.row("span")
    return first, last


def matches(sql: Statements, after: MatchPlace | None, limit: int) -> list[WatcherRecord]:
    return sql.records(decode_watchers, "matches", {**match_place(after), "limit": limit})


def consumers(sql: Statements) -> list[ConsumerRecord]:
    return sorted(sql.records(decode_consumers, "consumers"), key=lambda one: one.name)


def subscriptions(sql: Statements) -> list[SubscriptionRecord]:
    rows = sql.records(decode_subscriptions, "all_subscriptions")
    return sorted(rows, key=lambda one: one.name)


def schedule(sql: Statements, name: str) -> ScheduleRecord | None:
    return first(sql.records(decode_schedules, "schedule", {"name": name}))


def schedules(sql: Statements, after: str, limit: int) -> list[ScheduleRecord]:
    def page(after: str, limit: int) -> list[ScheduleRecord]:
        rows = sql.records(decode_schedules, "page_schedules", {"after": after, "limit": limit})
        return sorted(rows, key=lambda one: one.name)

    return in_parts(page, after, limit, lambda last: last.name)


def pools(sql: Statements) -> list[PoolRecord]:
    return sql.records(decode_pools, "all_pools")


def lines(sql: Statements) -> list[LineLook]:
    return sql.records(decode_lines, "lines")


def standing(sql: Statements, pool: str, keys: list[str]) -> Standing:
    taken, waiting, oldest_at, state, found = sql.row(
        "standing", {"pool": pool, "keys": as_json(keys)}
    )
    return Standing(
        taken=taken,
        waiting=waiting,
        oldest_at=oldest_at,
        state=state,
        keys=pool_keys(found),
    )


def line(sql: Statements, pool: str, after: tuple[int, str] | None, limit: int) -> list[RunRecord]:
    def page(after: tuple[int, str], limit: int) -> list[RunRecord]:
        place = {"line_at": after[0], "run_id": after[1]}
        return sql.records(decode_runs, "page_line", {"pool": pool, "limit": limit, **place})

    begin = (-(2**63), "") if after is None else after
    return in_parts(page, begin, limit, lambda last: (last.line_at or 0, last.run_id))


def used_key(sql: Statements, scope: str, key: str, now: int) -> KeyRecord | None:
    found = sql.records(decode_keys, "used_key", {"scope": scope, "key": key, "now": now})
    return found[0] if found else None


def known_keys(sql: Statements, scope: str, keys: list[str], now: int) -> set[str]:
    params = {"scope": scope, "keys": as_json(keys), "now": now}
    return set(sql.records(decode_ids, "known_keys", params))


def keys_have_expired(sql: Statements, now: int) -> bool:
    return bool(sql.row("keys_have_expired", {"now": now})[0])


def vitals(sql: Statements, now: int) -> Vitals:
    row = sql.row("vitals", {"now": now, "limit": _counted_max})
    return Vitals(**dict(zip(Vitals.__struct_fields__, row, strict=True)))


def workers(sql: Statements, is_live: Callable[[str, int], bool]) -> list[WorkerRecord]:
    rows = sql.records(decode_workers, "living_workers", {})
    living = [one for one in rows if is_live(one.worker_id, one.lease_until)]
    return sorted(living, key=lambda one: one.worker_id)


def backlog(sql: Statements, now: int, limit: int) -> list[Backlog]:
    rows = sql.records(decode_backlog, "backlog", {"now": now, "limit": limit})
    return merged_backlog(Backlog(*one) for one in rows)


# --- for people ----------------------------------------------------------------------------------


def run(sql: Statements, run_id: str) -> RunRecord | None:
    return first(sql.records(decode_runs, "run", {"run_id": run_id}))


def history(sql: Statements, run_id: str) -> list[StepRecord]:
    try:
        rows = sql.records(decode_steps, "history", {"run_id": run_id})
    except sqlite3.DataError:
        with _snapshot(sql):
            rows = steps_in_parts(sql, run_id, 0)
    return in_order(rows)


def history_page(
    sql: Statements, run_id: str, after: HistoryPlace | None, limit: int
) -> list[StepRecord]:
    def page(after: HistoryPlace, limit: int) -> list[StepRecord]:
        params = dict(zip(("generation", "seq", "path"), after, strict=True))
        params |= {"run_id": run_id, "limit": limit}
        return sql.records(decode_steps, "history_page", params)

    with _snapshot(sql):
        rows = in_parts(page, after or HISTORY_BEGINS, limit, history_place)
        if len(rows) < limit:
            rows += sql.records(decode_steps, "history_open", {"run_id": run_id})
    return rows


def runs(
    sql: Statements, where: RunFilter, after: tuple[int, str] | None, limit: int
) -> list[RunRecord]:
    def page(after: tuple[int, str] | None, limit: int) -> list[RunRecord]:
        text, params = runs_query(where, after, limit)
        return decode_runs(sql.connection.execute(text, params).fetchone()[0])

    return in_parts(page, after, limit, lambda one: (one.created_at, one.run_id))


def runs_query(
    where: RunFilter, after: tuple[int, str] | None, limit: int
) -> tuple[str, dict[str, Any]]:
    return listing.runs_query(queries.__getitem__, as_json, where, after, limit)


def waiting(sql: Statements, run_id: str) -> list[WatcherRecord]:
    rows = sql.records(decode_watchers, "watchers", {"run_id": run_id})
    return sorted(rows, key=lambda one: (one.opened_at, one.path, one.ix))


def find_waiting(
    sql: Statements,
    signal: str,
    opened_before: int | None,
    after: WatcherPlace | None,
    limit: int,
) -> list[WatcherRecord]:
    params = {"signal": signal, "opened_before": opened_before, "limit": limit}
    return sql.records(decode_watchers, "find_waiting", {**params, **watcher_place(after)})


def topic_watchers(
    sql: Statements, topic: str, after: WatcherPlace | None, limit: int
) -> list[WatcherRecord]:
    params = {"topic": topic, "limit": limit, **watcher_place(after)}
    return sql.records(decode_watchers, "waiting_for_topic", params)


def approvals(sql: Statements, after: WatcherPlace | None, limit: int) -> list[WatcherRecord]:
    params = {"limit": limit, **watcher_place(after)}
    return sql.records(decode_watchers, "approvals", params)


def buffered(sql: Statements, run_id: str) -> list[SignalRecord]:
    rows = sql.records(decode_signals, "signals", {"run_id": run_id})
    return sorted(rows, key=lambda one: one.position)


def signal(sql: Statements, signal_id: str) -> SignalRecord | DeadLetterRecord | EventRecord | None:
    signals, letters, events = sql.row("signal", {"signal_id": signal_id})
    return (
        first(decode_signals(signals))
        or first(decode_letters(letters))
        or first(decode_events(events))
    )


def dead_letters(
    sql: Statements, run_id: str | None, after: str, limit: int
) -> list[DeadLetterRecord]:
    name = "page_dead_letters" if run_id is None else "page_dead_letters_of_run"

    def page(after: str, limit: int) -> list[DeadLetterRecord]:
        params = {"after": after, "limit": limit}
        of_run = {} if run_id is None else {"run_id": run_id}
        return sql.records(decode_letters, name, {**params, **of_run})

    return in_parts(page, after, limit, lambda one: one.dead_letter_id)


def events(
    sql: Statements, after: int, limit: int, type_: str | None, entity: tuple[str, str] | None
) -> list[EventRecord]:
    text, params = events_query(queries.__getitem__, type_, entity)

    def page(after: int, limit: int) -> list[EventRecord]:
        asked = {**params, "after": after, "limit": limit}
        return decode_events(sql.connection.execute(text, asked).fetchone()[0])

    return in_parts(page, after, limit, lambda one: one.position)


def events_by_time(
    sql: Statements, after: tuple[int, int] | None, limit: int, entity: tuple[str, str] | None
) -> list[EventRecord]:
    about = {} if entity is None else {"entity_type": entity[0], "entity_id": entity[1]}
    name = "page_timeline" if about else "page_events_by_time"

    def page(after: tuple[int, int], limit: int) -> list[EventRecord]:
        params = {"occurred_at": after[0], "position": after[1], "limit": limit, **about}
        return sql.records(decode_events, name, params)

    return in_parts(
        page, after or BEFORE_ALL_TIMES, limit, lambda one: (one.occurred_at, one.position)
    )


def event(sql: Statements, event_id: str) -> EventRecord | None:
    return first(sql.records(decode_events, "event", {"event_id": event_id}))


def latest(sql: Statements, topic: str, entity: str) -> EventRecord | None:
    return event_rows.next_event(sql, topic, entity, 0, newest=True, repeats=True)


def queue_items(sql: Statements, queue: str, after: int, limit: int) -> list[ItemRecord]:
    def page(after: int, limit: int) -> list[ItemRecord]:
        params = {"queue": queue, "after": after, "limit": limit}
        return sql.records(decode_items, "page_items", params)

    return in_parts(page, after, limit, lambda one: one.position)


def queues(sql: Statements) -> dict[str, int]:
    return decode_numbers(sql.row("queue_counts")[0])


def stream_items(
    sql: Statements, run_id: str, stream: str, after: int, limit: int
) -> list[StreamItemRecord]:
    params = {"run_id": run_id, "stream": stream, "after": after, "limit": limit}
    return sql.records(decode_stream_items, "page_stream_items", params)


def streams(sql: Statements, run_id: str) -> list[StreamSpan]:
    found = sql.records(decode_spans, "stream_spans", {"run_id": run_id})
    return sorted(found, key=lambda one: one.stream)


def parked(
    sql: Statements, consumer: str | None, after: tuple[str, int, str] | None, limit: int
) -> list[ParkedRecord]:
    place = parked_place(consumer, after)
    last = _after_any_name if consumer is None else consumer
    return sql.records(decode_parked, "page_parked", {"last": last, "limit": limit, **place})


_after_any_name = chr(0x10FFFF)


def deferred(sql: Statements, after: tuple[int, str] | None, limit: int) -> list[DeferredRecord]:
    position, subscription = after or (-1, "")
    params = {"position": position, "subscription": subscription, "limit": limit}
    return sql.records(decode_deferred, "page_deferred", params)


def counts(sql: Statements) -> dict[str, int]:
    return all_counts(*map(decode_numbers, sql.row("counts")))


# --- for who looks after the store ----------------------------------------------------------------


def lives(sql: Statements, run_ids: list[str]) -> list[Life]:
    try:
        return decode_lives(*sql.row("lives", {"run_ids": as_json(run_ids)}))
    except sqlite3.DataError:
        # Together they are more than SQLite puts in one text.
        if len(run_ids) == 1:
            raise
        middle = len(run_ids) // 2
        return lives(sql, run_ids[:middle]) + lives(sql, run_ids[middle:])


def run_ids(sql: Statements, after: str, limit: int) -> list[str]:
    return sql.records(decode_ids, "run_ids", {"after": after, "limit": limit})


def positions_of(sql: Statements, event_ids: list[str]) -> dict[str, int]:
    return decode_numbers(sql.row("positions_of", {"event_ids": as_json(event_ids)})[0])


def items_of(sql: Statements, item_ids: list[str]) -> set[str]:
    return set(sql.records(decode_ids, "items_of", {"item_ids": as_json(item_ids)}))


def strays(sql: Statements, limit: int) -> list[tuple[str, str]]:
    return sql.records(decode_pairs, "strays", {"limit": limit})


def damages(sql: Statements, limit: int) -> list[str]:
    """What SQLite itself finds wrong with the file: every page, every row, every entry of an index."""
    found = [words for (words,) in sql.connection.execute(f"pragma integrity_check({limit})")]
    return [] if found == ["ok"] else found


def settings(sql: Statements) -> dict[str, str]:
    return {
        name: str(sql.connection.execute(f"pragma {name}").fetchone()[0])
        for name in ("journal_mode", "page_size", "page_count", "freelist_count", "encoding")
    }
