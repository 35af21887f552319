"""What somebody at a terminal sees: tables in colour, live views, bars, questions; and that they end as they should."""

import asyncio
import json
import re
import sys
from pathlib import Path

import corner_shop
import pytest
from shell import Shell, terminal

# What a terminal would obey, but for ends of lines.
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Commands in one process, as each takes its time to begin.
ONE_BY_ONE = """
import json, sys
from typer.main import get_command
from perdure.cli.program import program

tree = get_command(program)
for line in json.loads(sys.argv[1]):
    try:
        tree.main(line, prog_name="perdure")
    except SystemExit:
        pass
    print("--", flush=True)
"""
RED = re.compile(r"\x1b\[(?:\d+;)*31m *failed")


async def _work_until(run_id: str, status: str) -> None:
    async with corner_shop.app.copy() as app, asyncio.timeout(20):
        while await app.run(run_id).status() != status:  # noqa: ASYNC110 - workers' turns
            await asyncio.sleep(0)


def one_by_one(commands: list[list[str]], cwd: Path, **env: str) -> list[str]:
    """What each shows on one terminal."""
    program = [sys.executable, "-c", ONE_BY_ONE, json.dumps(commands)]
    with terminal(program=program, cwd=cwd, **env) as shown:
        assert shown.end() == 0, shown.text
    *said, nothing = shown.raw.split("--\r\n")
    assert (len(said), nothing) == (len(commands), "")
    return said


# --- tables ---


def test_a_table_has_colours_and_ids_that_are_whole(sqlite_shell: Shell, tmp_path: Path) -> None:
    long = "x" * 150
    sqlite_shell("start", "decide", "-i", '"o"', "--id", long)
    with terminal("runs", cwd=tmp_path, COLUMNS="60") as shown:
        assert shown.end() == 0
    assert RED.search(shown.raw)
    assert long in shown.text
    with terminal("runs", cwd=tmp_path, NO_COLOR="1") as shown:
        assert shown.end() == 0
    assert not RED.search(shown.raw)
    assert "failed" in shown.text


def test_a_narrow_table_has_brief_times_and_what_users_name_is_not_painted(
    sqlite_shell: Shell, tmp_path: Path
) -> None:
    sqlite_shell("start", "decide", "-i", '"o"', "--id", "new", "--entity", "failed/1")
    sqlite_shell("signal", "new", "approve", "true")
    sqlite_shell("runs", "pause", "waiting", "--reason", "failed")
    with terminal("runs", cwd=tmp_path, COLUMNS="80") as shown:
        assert shown.end() == 0
    assert len(shown.text.splitlines()) == 1 + 10, "a line each"
    assert re.search(r"^waiting .* (\d+[smh])+ ago .*failed *$", shown.text, re.MULTILINE)
    assert len(RED.findall(shown.raw)) == 1, "a status, and no reason of that name"
    with terminal("runs", cwd=tmp_path, COLUMNS="200") as shown:
        assert shown.end() == 0
    assert re.search(r"\d\d:\d\d:\d\d \(", shown.text)


def test_what_is_stored_never_steers_the_terminal(sqlite_shell: Shell, tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\u202egpj.exe\x00\x08\r"
    sqlite_shell("runs", "pause", "waiting", "--reason", evil.replace("\x00", ""))
    sqlite_shell("signal", "waiting", "note", json.dumps(evil))
    sqlite_shell("events", "emit", "audit.evil", json.dumps({evil: evil}))
    sqlite_shell("consumers", "pause", "audit", "--reason", evil.replace("\x00", ""))
    commands = [
        ["runs"],
        ["runs", "show", "waiting"],
        ["runs", "show", "waiting", "--json"],
        ["events", "list", "audit.*"],
        ["events", "tail", "--json"],
        ["events", "tail"],
        ["consumers"],
        ["health"],
        ["runs", "show", evil.replace("\x00", "")],
    ]
    said = one_by_one(commands, tmp_path, TERM="dumb")
    for command, text in zip(commands, said, strict=True):
        assert "gpj.exe" in text or command == ["health"], (command, text)
        assert not CONTROLS.search(text), (command, text)
    assert json.loads(said[2])["run"]["reason"] == evil.replace("\x00", "")


# --- live ---


def test_runs_are_watched_until_ctrl_c(sqlite_shell: Shell, tmp_path: Path) -> None:
    with terminal("runs", "watch", "--every", "20ms", cwd=tmp_path) as shown:
        shown.until("completed")
        sqlite_shell("start", "quick", "--id", "newcomer")
        shown.until("newcomer")
        sqlite_shell("runs", "pause", "newcomer", "--reason", "tea break")
        shown.until("tea break")
        shown.interrupt()
        assert shown.end() == 130
    assert "Traceback" not in shown.text
    assert shown.raw.count("\x1b[?25l") == shown.raw.count("\x1b[?25h") == 1, "the cursor is back"


def test_one_run_is_watched_to_its_end(sqlite_shell: Shell, tmp_path: Path) -> None:
    with terminal("runs", "watch", "first", "--every", "20ms", cwd=tmp_path) as shown:
        shown.until("waits for")
        shown.until("note")
        sqlite_shell("signal", "first", "note", "1")
        asyncio.run(_work_until("first", "completed"))
        assert shown.end() == 0
    assert "first  narrow  completed" in shown.text


def test_a_dumb_terminal_is_told_line_by_line(sqlite_shell: Shell, tmp_path: Path) -> None:
    with terminal("runs", "watch", "failed", cwd=tmp_path, TERM="dumb") as shown:
        assert shown.end() == 1
    assert shown.raw.rstrip().endswith("failed  fail  failed")


def test_the_ledger_is_followed_until_ctrl_c(sqlite_shell: Shell, tmp_path: Path) -> None:
    with terminal("events", "tail", "stock.*", "-f", "--every", "20ms", cwd=tmp_path) as shown:
        shown.until("stock.counted  sku/7  3")
        for count in range(3):
            sqlite_shell("events", "emit", "stock.counted", str(10 + count))
            sqlite_shell("events", "emit", "other.thing", str(count))
            shown.until(f"stock.counted  {10 + count}")
        shown.interrupt()
        assert shown.end() == 130
    assert "other.thing" not in shown.text
    assert "Traceback" not in shown.text


# --- bars ---


def test_bars_show_how_far_it_is(sqlite_shell: Shell, tmp_path: Path) -> None:
    lines = [json.dumps({"run_id": "waiting", "signal": "note", "payload": n}) for n in range(1200)]
    (tmp_path / "signals.jsonl").write_text("\n".join(lines))
    expected = {
        "signal many signals.jsonl": ("1200/1200", "1200 signals: 1200 buffered"),
        "db prune --older-than 0s --yes": ("3/?", "deleted 3 runs"),
        "events replay workflow_runner --yes": ("16/16", "fired 16 events"),
        "fsck": ("rows checked", "all holds together"),
    }
    shown = one_by_one([line.split() for line in expected], tmp_path)
    for (line, words), text in zip(expected.items(), shown, strict=True):
        assert all(one in text for one in words), (line, text)
    assert sqlite_shell("fsck").err == "", "where nobody looks there is no bar"


# --- questions ---


@pytest.mark.parametrize(
    ("typed", "code", "status"),
    [
        ("y\r", 0, "terminated"),
        ("\r", 1, "waiting"),
        ("\x04", 1, "waiting"),  # Ctrl-D
        ("\x03", 130, "waiting"),
    ],
)
def test_what_destroys_is_asked_for(
    sqlite_shell: Shell, tmp_path: Path, typed: str, code: int, status: str
) -> None:
    with terminal("runs", "terminate", "first", cwd=tmp_path) as shown:
        shown.until("End run first at once, with no cleaning up? [y/N]")
        shown.type(typed)
        assert shown.end() == code
    assert "Traceback" not in shown.text
    assert ("nothing was done" in shown.text) == (code == 1)
    assert sqlite_shell.json("runs", "show", "first")["run"]["status"] == status


QUESTIONS = {
    "db prune --older-than 1d": "Delete all runs that finished more than 1d ago from sqlite:///perdure.db?",
    "db trim --keep 1": "Delete old events from sqlite:///perdure.db?",
    "fsck --repair": "Set right what is wrong in sqlite:///perdure.db?",
    "consumers rewind audit beginning": "Move the cursor of audit to beginning?",
    "consumers drop audit": "Forget consumer audit and where it was?",
    "consumers drop-parked audit 1": "Forget event 1, which audit has parked?",
    "subscriptions drop rule": "Delete subscription rule and the starts it has put off?",
    "subscriptions drop-deferred 1 rule": "Forget the start of rule for event 1?",
    "schedules drop nightly": "Delete schedule nightly?",
    "schedules backfill nightly --since 2026-01-01 --until 2026-01-03": "Start 2 runs of nightly; 0 are there already?",
    "queues purge jobs": "Delete all in queue jobs?",
    "events replay workflow_runner": "into workflow_runner?",
    "runs terminate first": "End run first at once, with no cleaning up?",
}


def test_every_question(sqlite_shell: Shell) -> None:
    """Where nobody can be asked, it says what it would have done, and nothing was done."""
    before = _stored(sqlite_shell)
    for command, question in QUESTIONS.items():
        said = sqlite_shell(*command.split(), code=2).err
        assert "where nobody can be asked, say so with --yes" in said
        words = question.rstrip("?")
        assert words[0].lower() + words[1:] in said.replace("\n", " "), command
    assert _stored(sqlite_shell) == before


def test_every_command_that_asks_is_among_them() -> None:
    from test_cli_help import commands

    asking = {
        " ".join(path) for path, one in commands() if any(p.name == "yes" for p in one.params)
    }
    assert asking == {_command_of(line, asking) for line in QUESTIONS}


def _command_of(line: str, known: set[str]) -> str:
    return max((one for one in known if line.startswith(one)), key=len)


def _stored(shell: Shell) -> object:
    return [
        shell.json("doctor")["counts"],
        [{**one, "behind_s": 0} for one in shell.json("health")["consumers"]],
        shell.json("runs")["items"],
    ]


def test_a_replay_counts_before_it_asks(sqlite_shell: Shell, tmp_path: Path) -> None:
    with terminal("events", "replay", "workflow_runner", cwd=tmp_path) as shown:
        shown.until("Fire 16 events into workflow_runner? [y/N]")
        assert "would fire 16 events (" in shown.text
        shown.type("YES\r")
        assert shown.end() == 0
    assert "\nfired 16 events" in shown.text
