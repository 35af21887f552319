"""Every schema that was released opens with today's code, and a migration happens whole or not at all."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crashes import story
from crashes.child import add_migration
from crashes.fsck import check_state, copy_of, dump, rows
from crashes.nursery import Nursery, open_nursery

from migrations import golden
from perdure import StoreRefused
from perdure.store.sqlite import opening

# What a real one might do: new columns and tables, and rows that are rewritten.
_migration = """
-- A comment; before the statements.
alter table runs add column urgency integer not null default 5;
create table notes (
    run_id text primary key,
    text text not null
) strict, without rowid;
insert into notes select run_id, 'was ' || status from runs;
update runs set urgency = 7 where status = 'paused';
create index runs_by_urgency on runs (urgency, run_id);
create trigger notes_follow after insert on runs
begin
    insert or ignore into notes values (new.run_id, 'new; fresh');
end;
"""
_statements = 6


@pytest.fixture(autouse=True)
def _effects() -> Iterator[None]:
    story.World.effects_fd = os.open(os.devnull, os.O_WRONLY)
    yield
    os.close(story.World.effects_fd)


@pytest.fixture
def next_schema(monkeypatch: pytest.MonkeyPatch) -> int:
    """From now on this process knows one schema more."""
    monkeypatch.setattr(opening, "migrations", list(opening.migrations))
    monkeypatch.setattr(opening, "schema_known", opening.schema_known)
    add_migration(_migration)
    return opening.schema_known


def _schema(connection: sqlite3.Connection) -> tuple[int, list[dict[str, Any]]]:
    """The version that the file says it has, and the schema that it really has."""
    (version,) = connection.execute("select value from meta where name = 'schema'").fetchone()
    return int(version), rows(connection, "select type, name, sql from sqlite_master order by name")


@pytest.mark.parametrize("script", sorted(golden.directory.glob("*.sql")), ids=lambda one: one.stem)
async def test_a_file_of_an_older_release_opens_and_its_runs_finish(
    tmp_path: Path, script: Path
) -> None:
    db = tmp_path / "runs.db"
    golden.load(script, db)
    await golden.finish(db)
    with copy_of(db) as connection:
        check_state(connection)
        assert _schema(connection)[0] == opening.schema_known


def test_every_schema_has_a_golden_file() -> None:
    """Made by `python -m migrations.golden` with the code that introduced the schema."""
    made = [one.stem for one in sorted(golden.directory.glob("*.sql"))]
    assert made == [f"{one.number:04}" for one in opening.migrations]


def test_a_golden_file_has_the_schema_that_the_migrations_make(tmp_path: Path) -> None:
    golden.load(golden.directory / f"{opening.schema_known:04}.sql", tmp_path / "golden.db")
    names = "select type, name, sql from sqlite_master where sql is not null order by type, name"
    with copy_of(tmp_path / "golden.db") as old, copy_of(tmp_path / "none.db") as new:
        for migration in opening.migrations:
            new.executescript(migration.text)
        assert _plain(rows(old, names)) == _plain(rows(new, names)), (
            "a migration was edited. Once released it must not be; until then make the golden file anew: "
            "PYTHONPATH=src:tests python -m migrations.golden"
        )


def _plain(found: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Without the layout, which a dump changes a little."""
    return [(one["type"], one["name"], "".join(one["sql"].split())) for one in found]


async def test_waiting_runs_survive_a_migration_and_finish(
    tmp_path: Path, next_schema: int
) -> None:
    db = tmp_path / "runs.db"
    with pytest.MonkeyPatch.context() as older:
        older.setattr(opening, "migrations", opening.migrations[:-1])
        older.setattr(opening, "schema_known", next_schema - 1)
        await golden.fill(db)
    await golden.finish(db)
    with copy_of(db) as connection:
        check_state(connection)
        assert _schema(connection)[0] == next_schema
        assert (
            rows(connection, "select urgency from runs where run_id = 'paused'")[0]["urgency"] == 7
        )


async def test_a_newer_file_is_refused_in_plain_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_schema: int
) -> None:
    db = tmp_path / "runs.db"
    await golden.fill(db)
    with copy_of(db) as connection:
        before = dump(connection)
    monkeypatch.undo()  # the older code comes back
    with pytest.raises(StoreRefused, match=rf"schema version {next_schema} is newer .* upgrade"):
        async with golden.app_on(db):
            pass
    with copy_of(db) as connection:
        assert dump(connection) == before


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    with open_nursery(tmp_path) as nursery:
        yield nursery


# Every statement: begin, the look at the version, the migration itself, the new version, commit; and past the end.
_places = [("statement", number) for number in range(1, _statements + 12)]
_places += [("instructions", number) for number in (3, 30, 100, 300, 1000)]
_places += [("after", 0)]


async def test_killed_in_a_migration_the_file_is_old_or_new(
    tmp_path: Path, nursery: Nursery
) -> None:
    golden_db = tmp_path / "golden.db"
    await golden.fill(golden_db)
    with copy_of(golden_db) as connection:
        old, old_rows = _schema(connection), dump(connection, without=("meta",))
        text = "\n".join(connection.iterdump())
    seen = set()
    for place in _places:
        db = tmp_path / f"{place[0]}-{place[1]}.db"
        with sqlite3.connect(db) as connection:
            connection.executescript(text)
        connection.close()
        killed = _kill_in_migration(nursery, db, place)
        with copy_of(db) as connection:
            found = _schema(connection)
            seen.add((killed, found[0]))
            if found[0] == old[0]:
                assert found == old
                assert dump(connection, without=("meta",)) == old_rows
            else:
                check_state(connection)
                assert len(rows(connection, "select * from notes")) == len(old_rows["runs"])
        _finish_in_child(nursery, db)
    version = old[0]
    assert seen == {(True, version), (True, version + 1), (False, version + 1)}


def _kill_in_migration(nursery: Nursery, db: Path, place: tuple[str, int]) -> bool:
    child = nursery.fork(db=db, effects=os.devnull, migration=_migration, migration_kill=place)
    while (told := child.hear()) is not None:
        if told.get("event") == "open":  # the place lies beyond the migration
            return not child.close()
    child.buried()
    return True


def _finish_in_child(nursery: Nursery, db: Path) -> None:
    """The next process brings the schema up, or finds it so, and a run that waited goes on."""
    child = nursery.fork(db=db, effects=os.devnull, migration=_migration)
    go = {"do": "signal", "run": "waiter", "signal": "go", "payload": "gone", "key": "k"}
    assert child.ask(**go)["ok"]["sent"] == "delivered"
    assert child.ask(do="result", run="waiter")["ok"] == "gone"
    assert child.close()
    with copy_of(db) as connection:
        check_state(connection)
        assert _schema(connection)[0] == opening.schema_known + 1
