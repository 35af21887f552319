"""Processes are killed while a run publishes: what a reader was given is there for ever, at its place."""

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crashes.fsck import check_state, copy_of
from crashes.publisher import ROUNDS, TOKENS, seen_in

_tests = Path(__file__).resolve().parents[1]
# The first commits open the app; a life has some twenty of them.
_points = [(place, nth) for nth in (4, 6, 8, 10, 12, 14) for place in ("before", "after")]


def live(db: Path, place: str = "nowhere", nth: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "crashes.publisher", str(db), place, str(nth)]
    return subprocess.run(
        command, cwd=_tests, capture_output=True, text=True, timeout=60, check=False
    )


def stored_in(connection: sqlite3.Connection) -> dict[tuple[str, int], Any]:
    found = connection.execute("select stream, position, item from stream_items")
    return {(stream, position): json.loads(item) for stream, position, item in found}


@pytest.mark.parametrize(("place", "nth"), _points)
def test_a_kill_loses_nothing_that_a_reader_was_given(tmp_path: Path, place: str, nth: int) -> None:
    db = tmp_path / "runs.db"
    seen = Path(f"{db}.seen.jsonl")
    killed = live(db, place, nth)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with copy_of(db) as connection:
        check_state(connection)
        stored = stored_in(connection)
    given = seen_in(seen)
    assert all(stored[stream, position] == item for stream, position, item in given)
    again = live(db)
    assert again.returncode == 0, again.stderr
    with closing(sqlite3.connect(db)) as connection:
        now = stored_in(connection)
    assert now.items() >= stored.items()
    # The next reader begins at the beginning, and is given all of it in order.
    of_code = [item for stream, _, item in seen_in(seen)[len(given) :] if stream == "code"]
    assert of_code == list(range(ROUNDS))
    assert [at for at in now if at[0] == "code"] == [("code", n + 1) for n in range(ROUNDS)]
    check_tokens([item for (stream, _), item in sorted(now.items()) if stream == "tokens"])


def check_tokens(tokens: list[list[int]]) -> None:
    """Each step has said all of it in its last attempt, and before that at most the beginning, once."""
    for nth in range(ROUNDS):
        said = [token for step, token in tokens if step == nth]
        whole, before = said[-TOKENS:], said[:-TOKENS]
        assert whole == list(range(TOKENS))
        assert before == list(range(len(before)))
