"""What readers keep outside Perdure: notes, in a SQLite file of their own.

A handler may be called twice with the same event (its process died before the cursor was committed). So a note has the
event's position in its primary key: noted again, it is the same note. Everything else (a timeline, a score, a streak)
is computed from the notes, never counted up.
"""

import sqlite3

from perdure import Event

END = 2**63 - 1

SCHEMA = """
create table if not exists notes (
    reader text, subject text, position integer, type text, occurred_at text, points integer,
    times integer not null default 1,
    primary key (reader, subject, position)
)
"""


class Records:
    """Notes of readers about subjects."""

    def __init__(self, path: str = ":memory:") -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute(SCHEMA)

    def close(self) -> None:
        self._db.close()

    def note(self, reader: str, subject: str, event: Event, points: int = 0) -> None:
        """Note an event; `times` says how often it was seen, and changes nothing else."""
        self._db.execute(
            "insert into notes values (?, ?, ?, ?, ?, ?, 1)"
            " on conflict do update set times = times + 1",
            (reader, subject, event.position, event.type, event.occurred_at.isoformat(), points),
        )

    def timeline(self, reader: str, subject: str) -> list[tuple[int, str]]:
        """Position and type of what happened, by when it happened."""
        return self._db.execute(
            "select position, type from notes where reader = ? and subject = ?"
            " order by occurred_at, position",
            (reader, subject),
        ).fetchall()

    def points(self, reader: str, subject: str, upto: Event | None = None) -> list[int]:
        """The points of all notes in the order of the ledger, or of those up to an event."""
        rows = self._db.execute(
            "select points from notes where reader = ? and subject = ? and position <= ?"
            " order by position",
            (reader, subject, END if upto is None else upto.position),
        )
        return [points for (points,) in rows]

    def seen(self, reader: str) -> dict[int, int]:
        """How often a reader has seen each position."""
        rows = self._db.execute(
            "select position, sum(times) from notes where reader = ? group by position", (reader,)
        )
        return dict(rows.fetchall())
