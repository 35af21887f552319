"""Vandals: they write rows past the engine, each as somebody with a client of that store would. Indexes that the store
keeps by itself (in SQL) follow; those that the engine keeps (on Redis) do not.
"""

import sqlite3
from contextlib import closing
from typing import Any

import msgspec

from perdure.model.records import (
    ConsumerRecord,
    DeadLetterRecord,
    EventRecord,
    ItemRecord,
    KeyRecord,
    ParkedRecord,
    RunRecord,
    ScheduleRecord,
    SignalRecord,
    StepRecord,
    StreamRecord,
    SubscriptionRecord,
    WatcherRecord,
)
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.store.postgres.statements import quote
from perdure.store.postgres.store import PostgresStore
from perdure.store.redis import rows
from perdure.store.redis.layout import place
from perdure.store.redis.store import RedisStore
from perdure.store.sqlite.store import SqliteStore

Row = Any

TABLES: dict[type, tuple[str, tuple[str, ...]]] = {
    RunRecord: ("runs", ("run_id",)),
    StepRecord: ("steps", ("run_id", "generation", "path", "superseded")),
    WatcherRecord: ("watchers", ("run_id", "path", "ix")),
    SignalRecord: ("signals", ("signal_id",)),
    ItemRecord: ("queue_items", ("item_id",)),
    EventRecord: ("events", ("position",)),
    ConsumerRecord: ("consumers", ("name",)),
    SubscriptionRecord: ("subscriptions", ("name",)),
    ParkedRecord: ("parked", ("consumer", "position", "subscription")),
    ScheduleRecord: ("schedules", ("name",)),
    DeadLetterRecord: ("dead_letters", ("dead_letter_id",)),
    StreamRecord: ("streams", ("run_id", "stream")),
    KeyRecord: ("keys", ("scope", "key")),
}


class Vandal:
    """Puts and takes away rows."""

    async def put(self, row: Row) -> None:
        await self.drop(row)
        await self.add(row)

    async def drop(self, row: Row) -> None:
        raise AssertionError

    async def add(self, row: Row) -> None:
        raise AssertionError


def vandal_of(store: Store) -> Vandal:
    match store:
        case MemoryStore():
            return InMemory(store)
        case SqliteStore():
            return OnSqlite(store)
        case PostgresStore():
            return OnPostgres(store)
        case RedisStore():
            return OnRedis(store)
    raise AssertionError(store)


class InMemory(Vandal):
    def __init__(self, store: MemoryStore) -> None:
        self._rows = store.tables

    async def drop(self, row: Row) -> None:
        place, at = self._place(row)
        place.pop(at, None)

    async def add(self, row: Row) -> None:
        place, at = self._place(row)
        place[at] = row

    def _place(self, row: Row) -> tuple[dict[Any, Any], Any]:
        rows = self._rows
        match row:
            case RunRecord():
                return rows.runs_by_id, row.run_id
            case StepRecord():
                steps = rows.steps_by_run.setdefault((row.run_id, row.generation), {})
                return steps, (row.path, row.superseded)
            case WatcherRecord():
                return rows.watchers_by_run.setdefault(row.run_id, {}), (row.path, row.ix)
            case SignalRecord():
                return rows.signals_by_run.setdefault(row.run_id, {}), row.signal_id
            case ItemRecord():
                return rows.items.setdefault(row.queue, {}), row.item_id
            case EventRecord():
                return rows.events, row.position
            case ConsumerRecord():
                return rows.consumers_by_name, row.name
            case SubscriptionRecord():
                return rows.subscriptions, row.name
            case ParkedRecord():
                return rows.parked_events, (row.consumer, row.position, row.subscription)
            case ScheduleRecord():
                return rows.schedules, row.name
            case DeadLetterRecord():
                return rows.letters, row.dead_letter_id
            case StreamRecord():
                return rows.streams_by_run.setdefault(row.run_id, {}), row.stream
            case KeyRecord():
                return rows.keys, (row.scope, row.key)
        raise AssertionError(row)


class OnSqlite(Vandal):
    def __init__(self, store: SqliteStore) -> None:
        self._path = store._file

    def execute(self, *statements: tuple[str, tuple[Any, ...]]) -> None:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=10)) as connection:
            # The ledger is guarded against us.
            connection.execute("begin immediate")
            connection.execute("insert into meta values ('retention', '1')")
            for text, values in statements:
                connection.execute(text, values)
            connection.execute("delete from meta where name = 'retention'")
            connection.execute("commit")

    async def drop(self, row: Row) -> None:
        table, key = TABLES[type(row)]
        where = " and ".join(f'"{one}" = ?' for one in key)
        values = tuple(getattr(row, one) for one in key)
        self.execute((f"delete from {table} where {where}", values))

    async def add(self, row: Row) -> None:
        fields = msgspec.structs.asdict(row)
        names = ", ".join(f'"{one}"' for one in fields)
        marks = ", ".join("?" * len(fields))
        table, _ = TABLES[type(row)]
        self.execute((f"insert into {table} ({names}) values ({marks})", tuple(fields.values())))


class OnPostgres(Vandal):
    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._schema = quote(store.schema)

    async def execute(self, text: str, *values: Any) -> None:
        async def run(connection: Any) -> None:
            async with connection.transaction():
                # Triggers guard the ledger against us.
                await connection.execute("set local session_replication_role = replica")
                await connection.execute(text, *values)

        await self._store._ask(run)

    async def put(self, row: Row) -> None:
        if not isinstance(row, RunRecord):
            return await super().put(row)
        fields = msgspec.structs.asdict(row)  # its version is no field of ours, and stays
        sets = ", ".join(f'"{one}" = ${nth}' for nth, one in enumerate(fields, 1))
        text = f"update {self._schema}.runs set {sets} where run_id = $1"
        await self.execute(text, *fields.values())

    async def drop(self, row: Row) -> None:
        table, key = TABLES[type(row)]
        where = " and ".join(f'"{one}" = ${nth}' for nth, one in enumerate(key, 1))
        values = [getattr(row, one) for one in key]
        await self.execute(f"delete from {self._schema}.{table} where {where}", *values)

    async def add(self, row: Row) -> None:
        fields = msgspec.structs.asdict(row)
        names = ", ".join(f'"{one}"' for one in fields)
        marks = ", ".join(f"${nth}" for nth in range(1, len(fields) + 1))
        table, _ = TABLES[type(row)]
        text = f"insert into {self._schema}.{table} ({names}) values ({marks})"
        await self.execute(text, *fields.values())


class OnRedis(Vandal):
    def __init__(self, store: RedisStore) -> None:
        self._store = store

    async def execute(self, *command: Any) -> Any:
        async def run(client: Any) -> Any:
            return await client.execute_command(*command)

        return await self._store._plainly(run)

    def key(self, *parts: str) -> str:
        return self._store._key(*parts)

    async def drop(self, row: Row) -> None:
        match row:
            case RunRecord():
                pass  # its hash holds more than the row: what is put is put into it
            case StepRecord():
                await self.execute("HDEL", *self._step(row))
                for state in ("open", "done"):
                    other = msgspec.structs.replace(row, state=state)
                    await self.execute("HDEL", *self._step(other))
            case EventRecord():
                await self.execute("XDEL", self.key("events"), f"{row.position}-0")
            case _:
                key, field, _ = self._row(row)
                await self.execute("HDEL", key, field)

    async def drop_run(self, run_id: str) -> None:
        await self.execute("DEL", self.key("run", run_id))

    async def add(self, row: Row) -> None:
        match row:
            case RunRecord():
                key = self.key("run", row.run_id)
                claim = await self.execute("HGET", key, "claim")
                version = int(claim.split(b"\0")[0])
                fields = (
                    *("born", rows.born_text(row), "claim", rows.claim_text(version, row)),
                    *("made", f"{rows.made_text(row)}{row.position}"),
                )
                await self.execute("HSET", key, *fields)
            case StepRecord():
                await self.execute("HSET", *self._step(row), rows.step_text(row))
            case _:
                key, field, value = self._row(row)
                await self.execute("HSET", key, field, value)
                await self._list(row, field)

    async def _list(self, row: Row, field: str) -> None:
        """So that listings show it."""
        match row:
            case ItemRecord():
                at = place(row.position) + row.item_id
                await self.execute("ZADD", self.key("queue", row.queue), "0", at)
                await self.execute("SADD", self.key("queues"), row.queue)
            case DeadLetterRecord():
                await self.execute("ZADD", self.key("letters", "all"), "0", field)
            case ParkedRecord():
                await self.execute("ZADD", self.key("parked", "all"), "0", field)

    def _step(self, step: StepRecord) -> tuple[str, str]:
        if step.state in ("open", "retrying"):
            return self.key("open", step.run_id), rows.open_field(step.generation, step.path)
        return self.key("steps", step.run_id, str(step.generation)), rows.step_field(step)

    def _row(self, row: Row) -> tuple[str, str, str]:
        match row:
            case WatcherRecord():
                return self.key("waits", row.run_id), rows.wait_field(row), rows.watcher_value(row)
            case SignalRecord():
                return self.key("signals", row.run_id), row.signal_id, rows.text(row)
            case ItemRecord():
                return self.key("items"), row.item_id, rows.aged(row.put_at, row)
            case ConsumerRecord():
                return self.key("consumers"), row.name, rows.text(row)
            case SubscriptionRecord():
                return self.key("subscriptions"), row.name, rows.text(row)
            case ParkedRecord():
                at = "\0".join((row.consumer, place(row.position), row.subscription))
                return self.key("parked"), at, rows.aged(row.parked_at, row)
            case ScheduleRecord():
                return self.key("schedules"), row.name, rows.text(row)
            case DeadLetterRecord():
                return self.key("letters"), row.dead_letter_id, rows.text(row)
            case StreamRecord():
                value = rows.stream_value(row.last, row.bytes_all)
                return self.key("streams", row.run_id), row.stream, value
            case KeyRecord():
                value = rows.key_mark(row) + rows.text(row)
                return self.key("keys"), rows.key_field(row.scope, row.key), value
        raise AssertionError(row)
