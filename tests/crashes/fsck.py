"""What must hold in a file at any moment at which a process may die, in plain SQL over a copy of it.

Each query finds offenders; a healthy file has none. The letters stand for runs, waits, signals, their buffer, ledger,
fences and crashes. `Witness` compares a file with what was seen and acknowledged before.
"""

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from crashes.script import first_answer

_terminal = "('completed', 'failed', 'cancelled', 'terminated')"
_parked = "('waiting', 'sleeping')"

offenders: dict[str, str] = {
    "R2 a path has two living records": """
        select run_id, generation, path from steps where superseded = 0
        group by run_id, generation, path having count(*) > 1""",
    "R2 two records share a seq": """
        select seq, group_concat(run_id || ' ' || path) from steps where seq > 0
        group by seq having count(*) > 1""",
    "R5 a parked run watches nothing": f"""
        select run_id, status from runs
        where status in {_parked} and run_id not in (
            select run_id from watchers where kind not in ('alarm', 'asked'))""",
    "R5 a run sleeps though it waits for more than time, or the other way round": """
        select run_id, status from runs
        where status in ('waiting', 'sleeping') and (status = 'waiting') <> exists (
            select 1 from watchers as w
            where w.run_id = runs.run_id and w.kind not in ('timer', 'retry'))""",
    "R6 ready and ready_at disagree": """
        select run_id, status, ready_at from runs
        where (status = 'ready') <> (ready_at is not null) and status <> 'running'""",
    "R7 a finished run has a watcher": f"""
        select w.run_id, w.path from watchers as w join runs using (run_id)
        where status in {_terminal}""",
    "R7 a finished run has a buffered signal": f"""
        select s.run_id, s.name from signals as s join runs using (run_id)
        where status in {_terminal}""",
    "R7 finished and finished_at disagree, or a finished run has an owner": f"""
        select run_id, status from runs
        where (status in {_terminal}) <> (finished_at is not null)
        or (status in {_terminal} and owner is not null)""",
    "R7 a paused run watches or is owned": """
        select run_id from runs where status = 'paused'
        and (owner is not null or run_id in (select run_id from watchers where kind <> 'asked'))""",
    "W1 a decided wait has no winner": """
        select run_id, path from steps
        where kind in ('wait', 'sleep') and state in ('done', 'failed') and winner is null""",
    "W1 an undecided wait has a winner": """
        select run_id, path from steps
        where kind in ('wait', 'sleep') and state not in ('done', 'failed', 'superseded')
        and winner is not null""",
    "W2 a watcher without an open step of this generation": """
        select w.run_id, w.path from watchers as w join runs as r using (run_id)
        where not exists (
            select 1 from steps as s
            where s.run_id = w.run_id and s.generation = w.generation and s.path = w.path
            and s.superseded = 0 and w.generation = r.generation
            and s.state = case w.kind when 'retry' then 'retrying' else 'open' end)""",
    "W2 an open wait of a parked run without a watcher": f"""
        select s.run_id, s.path from steps as s join runs as r using (run_id)
        where r.status in {_parked} and s.generation = r.generation and s.superseded = 0
        and s.state in ('open', 'retrying') and not exists (
            select 1 from watchers as w where w.run_id = s.run_id and w.path = s.path)""",
    "W2 a decision without a place in history, or a place without a decision": """
        select run_id, path, state, seq from steps
        where state <> 'superseded' and (state in ('done', 'failed')) <> (seq > 0)""",
    "W4 an open wait and a signal that would end it": """
        select w.run_id, w.path, s.signal_id from watchers as w
        join signals as s on s.run_id = w.run_id and s.name = w.target
        where w.kind = 'signal' and (s.path is null or s.path = w.path)
        and (w.deadline_at is null or s.received_at <= w.deadline_at)""",
    "W4 an open wait for a run that has ended": f"""
        select w.run_id, w.path, w.target from watchers as w
        join runs as t on t.run_id = w.target join runs as r on r.run_id = w.run_id
        where w.kind = 'run' and t.status in {_terminal}
        and not (t.status = 'cancelled' and r.cancel_requested)  -- it closes the wait itself
        and (w.deadline_at is null or t.finished_at <= w.deadline_at)""",
    "B1 a slot holds two signals": """
        select run_id, name, path from signals where policy in ('latest', 'first')
        group by run_id, name, path having count(*) > 1""",
    "S1 a signal is both kept and decided": """
        select signal_id from signals where signal_id in (select event_id from events)""",
    "F4 owner and fence disagree": """
        select run_id, owner, fence from runs where (owner is null) <> (fence = 0)""",
    "F4 a running run without an owner": """
        select run_id from runs where status = 'running' and owner is null""",
    "L1 the ledger has a gap": """
        select max(position), count(*) from events having max(position) <> count(*)""",
    "L1 the fact of an end is missing or told twice": f"""
        select run_id, status from runs where status in {_terminal} and 1 <> (
            select count(*) from events
            where type = 'workflow.run_' || runs.status and payload ->> 'run_id' = runs.run_id)""",
    "M1 a stream has a gap, or does not end where it says": """
        select s.run_id, s.stream, s.last from streams as s
        where (s.last, s.last) is not (
            select max(i.position), min(i.position) + count(*) - 1 from stream_items as i
            where i.run_id = s.run_id and i.stream = s.stream)""",
    "M4 an item of no stream, or a stream of no run": """
        select run_id, stream from stream_items
        where (run_id, stream) not in (select run_id, stream from streams)
        union all
        select run_id, stream from streams where run_id not in (select run_id from runs)""",
    "S1 a key whose signal is nowhere": """
        select scope, key from keys as k where scope like 'signal/%'
        and not exists (select 1 from signals where signal_id = k.answer ->> 'signal_id')
        and not exists (select 1 from events where event_id = k.answer ->> 'signal_id')
        and not exists (
            select 1 from dead_letters where dead_letter_id = k.answer ->> 'signal_id')""",
}


@contextmanager
def copy_of(db: Path, *, in_use: bool = False) -> Iterator[sqlite3.Connection]:
    """A copy to look at. The file itself is left as the dead process left it, log and all.

    A file in use by a living process is read through SQLite instead, so that the copy is of one moment.
    """
    copy = db.with_suffix(".seen")
    if in_use:
        with closing(sqlite3.connect(db)) as original, closing(sqlite3.connect(copy)) as target:
            original.backup(target)
    else:
        for suffix in ("", "-wal"):
            if Path(f"{db}{suffix}").exists():
                shutil.copyfile(f"{db}{suffix}", f"{copy}{suffix}")
    try:
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{copy}{suffix}").unlink(missing_ok=True)


def rows(connection: sqlite3.Connection, sql: str, *params: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(sql, params)]


def check_state(connection: sqlite3.Connection) -> None:
    """Every state invariant; tells all that are broken."""
    (intact,) = connection.execute("pragma integrity_check").fetchone()
    assert intact == "ok", intact
    broken = {name: rows(connection, sql) for name, sql in offenders.items()}
    assert not any(broken.values()), {name: found for name, found in broken.items() if found}


def dump(connection: sqlite3.Connection, *, without: tuple[str, ...] = ()) -> dict[str, list[Any]]:
    """Every row of every table."""
    tables = [
        one["name"]
        for one in rows(connection, "select name from sqlite_master where type = 'table'")
    ]
    return {
        table: sorted(map(repr, rows(connection, f"select * from {table}")))
        for table in tables
        if table not in without and not table.startswith("sqlite_")
    }


class Witness:
    """Remembers what files showed and what children acknowledged, and holds every later file to it."""

    def __init__(self, effects: Path) -> None:
        self._effects = effects
        self._records: dict[tuple[str, int, str], dict[str, Any]] = {}
        self._events: dict[int, dict[str, Any]] = {}
        self._bodies_seen = 0
        self.runs = 0
        self.resumed = 0

    def look(
        self,
        db: Path,
        acknowledged: list[tuple[dict[str, Any], dict[str, Any]]],
        *,
        in_use: bool = False,
    ) -> None:
        """A process has died, or left: look at its file."""
        with copy_of(db, in_use=in_use) as connection:
            if not rows(connection, "select 1 from sqlite_master where name = 'meta'"):
                assert not acknowledged  # it died while it made the file
                return
            check_state(connection)
            self._check_bodies(connection)
            self._check_records(connection)
            self._check_ledger(connection)
            self._check_acknowledged(connection, acknowledged)
            self._count(connection)

    def bodies(self) -> list[dict[str, Any]]:
        """Every line that a body left."""
        if not self._effects.exists():
            return []
        return [json.loads(line) for line in self._effects.read_text().splitlines()]

    def again(self) -> int:
        """How many bodies ran once more than the engine wanted them to: a crash lost their result."""
        bodies = [(one["body"], one["attempt"]) for one in self.bodies()]
        return len(bodies) - len(set(bodies))

    def _check_bodies(self, connection: sqlite3.Connection) -> None:
        bodies = self.bodies()
        for line in bodies[self._bodies_seen :]:
            run_id, generation, path = line["body"].split("/", 2)
            known = self._records.get((run_id, int(generation), path))
            # Recorded when the file was looked at last, before this body ran.
            assert known is None, f"C2 a recorded step ran again: {line} {known}"
        self._bodies_seen = len(bodies)
        in_one_life = Counter((one["pid"], one["body"], one["attempt"]) for one in bodies)
        doubled = [one for one, times in in_one_life.items() if times > 1]
        assert not doubled, f"C3 a process that did not die ran a body twice: {doubled}"
        ran = {(one["body"], one["attempt"]) for one in bodies}
        for step in rows(connection, "select * from steps where kind = 'step' and superseded = 0"):
            key = f"{step['run_id']}/{step['generation']}/{step['path']}"
            if step["state"] in ("done", "failed", "retrying"):
                assert (key, step["attempt"]) in ran, (
                    f"C3 a record of a body that never ran: {step}"
                )

    def _check_records(self, connection: sqlite3.Connection) -> None:
        found = {
            (step["run_id"], step["generation"], step["path"]): step
            for step in rows(connection, "select * from steps where state in ('done', 'failed')")
        }
        generations = dict(connection.execute("select run_id, generation from runs").fetchall())
        for key, known in self._records.items():
            if key in found:
                assert found[key] == known, f"R2 a record changed: {known} {found[key]}"
            else:  # only continue_as lets go of a history, one generation later
                assert key[1] < generations[key[0]] - 1, f"C2 a record is gone: {known}"
        self._records.update(found)

    def _check_ledger(self, connection: sqlite3.Connection) -> None:
        found = {event["position"]: event for event in rows(connection, "select * from events")}
        for position, known in self._events.items():
            assert found.get(position) == known, f"L3 a fact changed or is gone: {known}"
        self._events = found

    def _check_acknowledged(
        self,
        connection: sqlite3.Connection,
        acknowledged: list[tuple[dict[str, Any], dict[str, Any]]],
    ) -> None:
        for asked, answer in acknowledged:
            if "ok" not in answer:
                continue
            run = rows(connection, "select * from runs where run_id = ?", asked["run"])
            assert run, f"C2 an acknowledged start is gone: {asked}"
            if asked["do"] == "cancel":
                assert run[0]["cancel_requested"], f"C2 an acknowledged cancel is gone: {asked}"
            if asked["do"] == "signal":
                check_signal(connection, asked, first_answer(answer))

    def _count(self, connection: sqlite3.Connection) -> None:
        (self.runs,) = connection.execute("select count(*) from runs").fetchone()
        (living,) = connection.execute(
            f"select count(*) from runs where status not in {_terminal}"
        ).fetchone()
        self.resumed += living


def check_signal(
    connection: sqlite3.Connection, asked: dict[str, Any], answer: dict[str, Any]
) -> None:
    """An accepted signal is in exactly one place, and its key gives exactly its answer."""
    signal_id = answer["signal_id"]
    places = [
        ("signals", "signal_id"),
        ("events", "event_id"),
        ("dead_letters", "dead_letter_id"),
    ]
    found = [
        (table, one)
        for table, column in places
        for one in rows(connection, f"select * from {table} where {column} = ?", signal_id)
        # What was left where it had been delivered is a letter beside the fact of its delivery.
        if not (table == "dead_letters" and one["cause"] != "ended")
    ]
    assert len(found) == 1, f"S1 an accepted signal is in {len(found)} places: {asked} {found}"
    table, row = found[0]
    if table == "events":
        assert row["type"] in ("signal.delivered", "signal.discarded", "signal.replaced"), row
    if answer["sent"] == "delivered":
        assert row["type"] == "signal.delivered", f"C2 a delivery is gone: {asked} {found}"
        assert json.loads(row["payload"])["path"] == answer["path"]
    taken = rows(
        connection,
        """select position from events where type = 'signal.delivered'
        and payload ->> 'run_id' = ? and payload ->> 'name' = ? and payload -> 'payload' = ?""",
        asked["run"],
        asked["signal"],
        json.dumps(asked["payload"]),
    )
    assert len(taken) <= 1, f"S2 a signal was delivered twice: {asked} {taken}"
    keys = rows(
        connection,
        "select answer from keys where scope = ? and key = ?",
        f"signal/{asked['run']}/{asked['signal']}",
        asked["key"],
    )
    assert len(keys) == 1, f"S4 the key of an accepted signal is gone: {asked}"
    kept = json.loads(keys[0]["answer"])
    assert (kept["outcome"], kept["signal_id"]) == (answer["sent"], signal_id), (kept, answer)
