"""A signal to a run that already waits goes straight to it: no row is ever written to the buffer."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from crashes import story
from crashes.test_recovery import become
from perdure import App, Buffered, Delivered

_audit = """
create table audit (what text, signal_id text);
create trigger audit_insert after insert on signals begin insert into audit values ('in', new.signal_id); end;
create trigger audit_delete after delete on signals begin insert into audit values ('out', old.signal_id); end;
"""


def _audited(db: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(db)) as connection:
        return connection.execute("select what, signal_id from audit order by rowid").fetchall()


async def test_a_signal_to_a_waiting_run_writes_no_buffer_row(
    tmp_path: Path, app_on: Callable[[Path], App]
) -> None:
    db = tmp_path / "runs.db"
    async with app_on(db):
        pass
    with closing(sqlite3.connect(db)) as connection:
        connection.executescript(_audit)
    async with app_on(db) as app:
        waits = await app.start(story.waiter, 1)
        await become(waits, "waiting")
        assert isinstance(await app.signal(waits.id, story.go, "now"), Delivered)
        assert await waits.result("5s") == "now"
        assert _audited(db) == []
        asleep = await app.start(story.waiter, 2)
        await become(asleep, "waiting")
    async with app_on(db) as app:  # no process holds this one in memory
        assert isinstance(await app.signal(asleep.id, story.go, "then"), Delivered)
        assert await app.run(asleep.id).result("5s") == "then"
        assert _audited(db) == []
        # The audit itself works: this one comes early, and is taken by the wait.
        held = await app.start(story.waiter, 2)
        await become(held, "waiting")
        await held.pause()
        early = await app.signal(held.id, story.go, "early")
        assert isinstance(early, Buffered)
        await held.resume()
        assert await held.result("5s") == "early"
        assert _audited(db) == [("in", early.signal_id), ("out", early.signal_id)]
