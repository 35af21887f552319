"""A process is killed around a decision: what was acknowledged is there, and what was asked is closed once."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crashes.approver import PLACES
from crashes.fsck import check_state, copy_of

_tests = Path(__file__).resolve().parents[1]


def live(place: tuple[str, str], where: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "crashes.approver", *place, where]
    return subprocess.run(
        command, cwd=_tests, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The store that both processes open: its URL and namespace."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db", ""
    if request.param == "redis":
        namespace = request.getfixturevalue("lend_redis_namespace")()
        return request.getfixturevalue("redis_url"), namespace
    namespace = request.getfixturevalue("lend_namespace")()
    return request.getfixturevalue("postgres_url"), namespace


@pytest.mark.parametrize("where", PLACES)
def test_a_kill_loses_no_decision_and_asks_nobody_twice(
    place: tuple[str, str], where: str, tmp_path: Path
) -> None:
    killed = live(place, where)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if place[0].startswith("sqlite"):
        with copy_of(tmp_path / "runs.db") as connection:
            check_state(connection)
    again = live(place, "nowhere")
    assert again.returncode == 0, again.stderr
    result, facts, reminders = again.stdout.splitlines()
    decider = where if where in ("committed", "decided") else "nowhere"
    assert result == f"approve by anna: {decider}"
    assert facts == "hitl.requested hitl.decided"
    numbers = [int(one) for one in reminders.split()]
    assert numbers == sorted(set(numbers))
