"""Processes are killed around transactions: their own rows and the engine's are there together, once."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from crashes.fsck import check_state, copy_of
from crashes.transactor import NUMBERS

_tests = Path(__file__).resolve().parents[1]

_points = [
    ("sent", 1),
    ("body", 1),
    ("before", NUMBERS),
    # Batches come there too: before, between and after the transactions.
    *(("after", nth) for nth in (3, 5, 8)),
]


def live(db: Path, place: str = "nowhere", nth: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "crashes.transactor", str(db), place, str(nth)]
    return subprocess.run(
        command, cwd=_tests, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(("place", "nth"), _points)
def test_a_kill_loses_nothing_and_doubles_nothing(tmp_path: Path, place: str, nth: int) -> None:
    db = tmp_path / "runs.db"
    killed = live(db, place, nth)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with copy_of(db) as connection:
        check_state(connection)
        # Each number that is there has its record, and each record its number.
        notes = connection.execute("select number from notes").fetchall()
        recorded = connection.execute("select value from steps where kind = 'step'").fetchall()
        assert [str(one) for (one,) in notes] == [one for (one,) in recorded]
    again = live(db)
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip() == f"{list(range(NUMBERS))} {{'jobs': 1}}"
    with closing(sqlite3.connect(db)) as connection:
        notes = connection.execute("select number from notes").fetchall()
        assert notes == [(number,) for number in range(NUMBERS)]
        assert connection.execute("select count(*) from outbox").fetchone() == (0,)
