"""What cannot be done is said in words, with the exit code that docs/command-line.md promises, and changes nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import TOKEN, serving
from shell import PATIENCE_S, SOURCES, Shell, environment, line_of, piped

from perdure import App
from perdure.cli import exits
from perdure.cli.exits import CodeFailed
from perdure.cli.wording import ADVICE
from perdure.errors import (
    BadRequest,
    NotRunning,
    OutcomeUnknown,
    PerdureError,
    RunNotFound,
    ServerFailed,
    StoreRefused,
    Unreachable,
)
from perdure.model.limits import BadValue

LOOKING = [
    ["runs"],
    ["runs", "show", "x"],
    ["events", "tail", "-f"],
    ["doctor"],
    ["fsck"],
    ["db", "version"],
    ["db", "backup", "copy.db"],
    ["db", "prune", "--older-than", "1d", "--yes"],
    ["signal", "x", "y"],
    ["start", "quick"],
]


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_no_command_makes_a_store_in_passing(bare: Shell, command: list[str]) -> None:
    code = exits.OK if command == ["db", "version"] else exits.OUT_OF_REACH
    said = bare(*command, code=code)
    if code:
        assert said.err.startswith("perdure: there is no store at sqlite:///perdure.db; ")
        problem = json.loads(bare(*command, "--json", code=code).err)
        assert problem["error"] == "StoreRefused"
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("oracle://host/x", "no store for 'oracle://host/x'; known: http://host  sqlite:///path"),
        ("memory://", "only within the process of its app"),
        ("sqlite:///directory", "is a directory"),
        ("sqlite:///garbage.db", "file is not a database"),
        ("sqlite:///no/such/file.db", "does not exist; create it first"),
        ("postgresql://u:hunter2@127.0.0.1:1/x", "postgresql://u:***@127.0.0.1:1/x cannot be reached"),
        ("redis://:hunter2@127.0.0.1:1", "cannot be reached"),
        ("http://127.0.0.1:1", "nothing was sent"),
    ],
)  # fmt: skip
def test_a_place_that_is_out_of_reach(bare: Shell, url: str, says: str) -> None:
    Path("directory").mkdir()
    Path("garbage.db").write_text("no database, however much of it there is" * 50)
    before = sorted(Path().rglob("*"))
    said = bare("--url", url, "runs", code=exits.OUT_OF_REACH)
    assert says in said.err
    assert "hunter2" not in said.err
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(
    "url", ["http://", "http://[bad", "http://127.0.0.1:99999", "https://:443/x"]
)
def test_an_address_that_is_none(bare: Shell, url: str) -> None:
    assert "no address of a server" in bare("--url", url, "runs", code=exits.USAGE).err


@pytest.mark.parametrize("token", ["t\u00f6ken", "two words", "line\n", ""])
def test_a_token_that_cannot_be_sent_is_not_shown(bare: Shell, token: str) -> None:
    said = bare("--url", "http://127.0.0.1:1", "--token", token, "runs", code=2 if token else 5)
    if token:
        assert "token is none" in said.err
        assert token not in said.err


def test_where_commands_work(sqlite_shell: Shell, tmp_path: Path) -> None:
    """What is said wins over the environment, and a URL that is said over an app that is not."""
    (tmp_path / "other").mkdir()
    at_default = Shell()
    assert at_default.json("runs")["items"]
    elsewhere = Shell(env={"PERDURE_URL": "sqlite:///nowhere.db"})
    elsewhere("runs", code=exits.OUT_OF_REACH)
    assert elsewhere.json("runs", "--url", "sqlite:///perdure.db")["items"]
    assert elsewhere.json("--url", "sqlite:///perdure.db", "runs")["items"]
    elsewhere("--url", "sqlite:///perdure.db", "runs", "--url", "sqlite:///no.db", code=5)
    with_app = Shell(env={"PERDURE_APP": "nowhere:app", "PERDURE_NAMESPACE": "x"})
    assert "no module 'nowhere'" in with_app("runs", code=exits.USAGE).err
    with serving(App("sqlite:///perdure.db", worker=False)) as url:
        assert with_app.json("runs", "--url", url, "--token", TOKEN)["items"]
        said = with_app("runs", "--url", url, "--namespace", "x", code=exits.USAGE).err
        assert "a namespace of its own" in said


def test_what_a_server_refuses(bare: Shell) -> None:
    with serving(App("sqlite:///perdure.db", worker=False)) as url:
        nobody = Shell("--url", url)
        told = json.loads(nobody("runs", "--json", code=exits.REFUSED).err)
        assert told["error"] == "NotAuthenticated"
        known = Shell("--url", url, "--token", TOKEN)
        assert "give the URL of the store" in known("db", "backup", "x.db", code=2).err
        for command in (["db", "migrate"], ["worker", "corner_shop:app"], ["serve"]):
            assert "is a server; this needs a store" in known(*command, code=2).err
        astray = known("--url", f"{url}/elsewhere", "runs", code=exits.REFUSED).err
        assert "with the path that it is mounted under" in astray


# --- apps ---

MODULES = {
    "syntax": ("x = (", "SyntaxError: '(' was never closed"),
    "missing": ("import nothing_like_it", "No module named 'nothing_like_it'"),
    "raising": ("raise RuntimeError('no \\x1b[31mluck')", "RuntimeError: no \\x1b[31mluck"),
    "leaving": ("import sys\nsys.exit(0)", "SystemExit: 0"),
    "number": ("app = 3", "is of type int, not an App"),
    "nameless": ("", "module nameless has no 'app'"),
}


@pytest.mark.parametrize("name", MODULES)
def test_an_app_that_cannot_be_had_is_told_with_its_own_lines(bare: Shell, name: str) -> None:
    code, says = MODULES[name]
    failed = "Error" in says or "Exit" in says or "No module" in says
    Path(f"{name}.py").write_text(f"{code}\n")
    try:
        said = bare(
            "--app", f"{name}:app", "runs", code=exits.REFUSED if failed else exits.USAGE
        ).err
    finally:
        sys.path[:] = [one for one in sys.path if one != os.getcwd()]
        sys.modules.pop(name, None)
    assert says in said
    assert "perdure/cli" not in said
    assert "\x1b" not in said


@pytest.mark.parametrize("target", ["nowhere:app", "nowhere", "shop.py", "./shop:app", ":app"])
def test_an_app_that_is_not_there(bare: Shell, target: str) -> None:
    for command in (["runs", "--app", target], ["worker", target], ["serve", target]):
        said = bare(*command, code=exits.USAGE).err
        assert said.startswith(f"perdure: app '{target}' ")
        assert len(said.splitlines()) == 1


def test_processes_need_an_app(bare: Shell) -> None:
    for command in ("worker", "dev"):
        assert "name the app, such as shop:app" in bare(command, code=exits.USAGE).err


# --- the command line itself ---


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["runs", "nonsense"], "No such command 'nonsense'"),
        (["runs", "list", "--nonsense"], "No such option: --nonsense"),
        (["runs", "show"], "Missing argument 'RUN'"),
        (["runs", "list", "extra"], "unexpected extra argument"),
        (["runs", "list", "--limit", "0"], "--limit"),
        (["runs", "list", "--limit", "many"], "--limit"),
        (["runs", "list", "--created-from", "soon"], "is not a time"),
        (["runs", "list", "--status", "gone"], "is none of: cancelled, "),
        (["runs", "list", "--after", "x"], "no cursor"),
        (["runs", "result", "waiting", "--timeout", "2x"], "no span of time"),
        (["start", "quick", "--wait", "--timeout", "2x"], "no span of time"),
        (["start", "quick", "--deadline", "soon"], "no span of time"),
        (["start", "quick", "--start-at", "2030-13-01"], "is not a time"),
        (["approvals", "link", "x", "--by", "anna", "--expires", "99y"], "no span of time"),
        (["db", "prune", "--older-than", "20w 1d 3x"], "no span of time"),
        (["consumers", "rewind", "audit", "back"], "neither a position"),
        (["events", "replay", "audit", "--since", "then"], "neither a position"),
        (["runs", "watch", "--every", "0s"], "look_us_min"),
        (["events", "tail", "-n", "-1"], "-n"),
        (["signal", "x", "note", "{"], "is not JSON"),
        (["signal", "x", "note", "@nowhere.json"], "cannot be read"),
        (["start", "quick", "-i", "tea"], "A text is quoted"),
        (["start", "quick", "--tag", "x"], "is not name=value"),
        (["consumers", "refire", "audit", "-1"], "POSITION"),
        (["serve", "--port", "99999"], "--port"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_a_line_that_is_none_is_refused_before_anything_is_asked(
    bare: Shell, command: list[str], says: str
) -> None:
    """There is no store: whoever had looked for one would have said so."""
    said = bare(*command, code=exits.USAGE)
    assert says in said.err
    assert said.out == ""


def test_values_that_the_library_does_not_take(shell: Shell) -> None:
    for command, says in (
        (["runs", "list", "--all", "--limit", "3"], "contradict each other"),
        (["runs", "list", "--limit", "5000"], "page_rows_max"),
        (["runs", "show", "a\x1b[31m"], "control character"),
        (["events", "timeline", "x"], "'type/id'"),
        (["consumers", "refire", "audit", "9" * 30], "must be a whole number"),
    ):
        said = shell(*command, code=exits.USAGE)
        assert says in said.err
        assert "\x1b" not in said.err


def test_the_worker_refuses_a_level_of_its_log_that_is_none(bare: Shell) -> None:
    said = bare("worker", "corner_shop:app", "--log-level", "loud", code=exits.USAGE).err
    assert "debug, info, warning, error" in said


def test_serving_beyond_this_machine_needs_tokens(bare: Shell) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        said = bare("serve", "--host", host, code=exits.USAGE).err
        assert "PERDURE_TOKENS" in said
        assert not Path("perdure.db").exists()
    with serving(App("sqlite:///perdure.db", worker=False)) as url:
        taken = url.rpartition(":")[2]
        assert "cannot be listened at" in bare("serve", "--port", taken, code=5).err


# --- codes ---


def test_each_error_has_its_code() -> None:
    for error, opened, code in (
        (RunNotFound("x"), True, exits.NOT_FOUND),
        (KeyError("x"), True, exits.REFUSED),  # not one of ours: nothing was looked for
        (StoreRefused("x"), False, exits.OUT_OF_REACH),
        (StoreRefused("x"), True, exits.REFUSED),
        (Unreachable("http://x", "y"), True, exits.OUT_OF_REACH),
        (OutcomeUnknown("x"), True, exits.OUT_OF_REACH),
        (NotRunning("x"), True, exits.OUT_OF_REACH),  # the engine of a server
        (BadRequest("x", 503), True, exits.OUT_OF_REACH),  # from between us and a server
        (ServerFailed("", "x", 502), True, exits.OUT_OF_REACH),  # likewise
        (ServerFailed("x"), True, exits.REFUSED),
        (BadRequest("x", 400), True, exits.REFUSED),
        (BadValue("x", "y", "z"), True, exits.USAGE),
        (CodeFailed("x", "y", "z"), False, exits.REFUSED),
        (ValueError("x"), True, exits.REFUSED),
    ):
        assert exits.code_of(error, opened=opened) == code, error


class _Refusing(App):
    """Its store has gone; it can be asked only by who is near."""

    error: PerdureError

    async def runs(self, *args: Any, **wanted: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [NotRunning("not open"), StoreRefused("no space"), StoreRefused("busy", passing=True)],
    ids=repr,
)
def test_a_server_without_a_store_is_one_out_of_reach(bare: Shell, error: PerdureError) -> None:
    words = {"no space": "the store refused this", "busy": "the store does not answer, or is busy"}
    app = _Refusing("sqlite:///perdure.db", worker=False)
    app.error = error
    with serving(app) as url:
        said = bare("--url", url, "--token", TOKEN, "runs", code=exits.OUT_OF_REACH)
    assert words.get(str(error), str(error)) in said.err


def test_the_consumer_of_a_parked_event_that_is_not_there(every_shell: Shell) -> None:
    said = every_shell("consumers", "refire", "adit", "1", code=exits.NOT_FOUND).err
    assert "no consumer 'adit'" in said
    assert "is not parked" in every_shell("consumers", "refire", "audit", "1", code=2).err


def test_tracebacks_are_there_for_who_asks(sqlite_shell: Shell, tmp_path: Path) -> None:
    said = piped("runs", "result", "failed", "--debug", cwd=tmp_path)
    assert said.code == exits.REFUSED
    assert "Traceback (most recent call last)" in said.err
    assert said.err.endswith("perdure: run 'failed' failed: ValueError: no such luck\n")


# --- words ---


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["start", "qick"], "(did you mean 'quick'?); this app has: none"),
        (["start", "qick"], "`perdure workflows` lists all"),
        (["signal", "waiting", "aprove", "true"], "(did you mean 'approve'?)"),
        (["consumers", "pause", "adit"], "`perdure consumers` lists those"),
        (["subscriptions", "enable", "x"], "`perdure subscriptions` lists those"),
        (["schedules", "pause", "x"], "`perdure schedules` lists those"),
        (["pools", "reset", "x"], "`perdure pools` lists those"),
        (["consumers", "refire", "audit", "1"], "`perdure consumers parked` lists"),
        (["approvals", "decide", "x", "--by", "anna"], "that `perdure approvals` shows"),
        (["events", "replay", "audit"], "by --app"),
        (["db", "prune", "--yes"], "--older-than is needed"),
        (["schedules", "set", "x", "5x", "quick"], "an interval, such as '15m'"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_advice_is_for_a_shell(sqlite_shell: Shell, command: list[str], says: str) -> None:
    with pytest.raises(AssertionError) as told:
        sqlite_shell(*command)
    said = str(told.value)
    assert says in said
    assert not re.search(r"await app|app\.[a-z_]+\(|@app|timedelta|page\.cursor", said)


def test_all_that_is_reworded_is_still_said_somewhere() -> None:
    """Else a table of words grows old by itself."""
    sources = "\n".join(
        re.sub(r'"\n\s+f?"', "", one.read_text(encoding="utf-8"))
        for one in SOURCES.rglob("*.py")
        if "cli" not in one.relative_to(SOURCES).parts
    )
    shown = sources.replace("no keep=", "older_than None is needed: this app has no keep=")
    assert [python for python, _ in ADVICE if python not in shown] == []


# --- what is not installed ---


@pytest.mark.parametrize(
    ("gone", "command", "extra"),
    [
        ("typer", ["--help"], "cli"),
        ("starlette", ["serve"], "server"),
        ("httpx2", ["runs", "--url", "http://127.0.0.1:1"], "client"),
    ],
)
def test_an_extra_that_is_missing_is_named(
    tmp_path: Path, gone: str, command: list[str], extra: str
) -> None:
    code = f"import sys; sys.modules[{gone!r}] = None; from perdure.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == exits.REFUSED
    assert f"pip install 'perdure[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


# --- streams ---


def test_a_locale_without_the_characters_and_streams_that_are_closed(
    sqlite_shell: Shell, tmp_path: Path
) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    sqlite_shell("events", "emit", "tea.served", '"caf\u00e9 \U0001f375"')
    said = piped("events", "tail", "tea.*", cwd=tmp_path, **ascii_only)
    assert (said.code, said.err) == (0, "")
    assert "caf\\xe9" in said.out
    told = piped("events", "tail", "tea.*", "--json", cwd=tmp_path, **ascii_only)
    assert told.json["payload"] == "caf\u00e9 \U0001f375"

    closing = ["sh", "-c", 'exec "$@" >&- <&-', "sh", *line_of("db", "prune", "--older-than", "1d")]
    done = subprocess.run(closing, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == exits.USAGE, done.stderr
    assert "--yes" in done.stderr


@pytest.mark.parametrize(
    ("command", "reader", "lines"),
    [
        ("events list --all", "head -n 1", 1),
        ("runs watch --every 10ms", "head -n 1", 1),
        (
            "events tail -f -n 0 --every 10ms",
            "true",
            0,
        ),  # which has nothing to write, and no way to hear of it so
    ],
)
def test_whoever_reads_may_leave(
    sqlite_shell: Shell, tmp_path: Path, command: str, reader: str, lines: int
) -> None:
    """No error, and no traceback when the process ends."""
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$@" {command} | {reader}', "sh", *line_of()],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == lines
