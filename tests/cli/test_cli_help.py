"""What the command line says of itself: every command and option has its words, and its page in docs has them all."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shell import Shell, environment, tree

from perdure.cli import exits, places, processes
from perdure.http.security import TOKENS_VARIABLE
from perdure.links import SECRET_VARIABLE

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


def commands(
    group: Any = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, by its words."""
    group = tree() if group is None else group
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from commands(one, (*path, name))
        else:
            yield (*path, name), one


COMMANDS = dict(commands())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_command_says_what_it_is_for_and_each_option_too(path: tuple[str, ...]) -> None:
    one = COMMANDS[path]
    assert one.help and one.help.rstrip()[-1] == "."
    for option in one.params:
        assert option.help, option.opts
    said = Shell()(*path, "--help").out
    assert not re.search(r"<\w|list\[|\bJson\b", said), "a Python type is no word for a value"
    assert Shell()(*path, "--help").out.startswith(f"Usage: perdure {' '.join(path)} ")


def test_groups_say_what_they_are_for() -> None:
    said = Shell()("--help").out
    assert said == Shell()("-h").out
    for name, one in tree().commands.items():
        assert one.help, name
        assert name in said


def test_the_page_has_every_command() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [path for path in COMMANDS if not re.search(rf"`perdure {' '.join(path)}\b", page)] == []


def test_the_page_has_the_codes_and_the_variables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    codes = {int(one) for one in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    known = {value for name, value in vars(exits).items() if name.isupper()}
    assert codes == known - {exits.SIGNALLED}
    for variable in (
        places.URL_VARIABLE,
        places.APP_VARIABLE,
        places.NAMESPACE_VARIABLE,
        places.TOKEN_VARIABLE,
        TOKENS_VARIABLE,
        SECRET_VARIABLE,
    ):
        assert f"`{variable}`" in page
    assert processes.LIFELINE_VARIABLE not in page, "that one is between us"


def test_the_page_names_no_command_that_is_not_there() -> None:
    page = PAGE.read_text(encoding="utf-8")
    groups = {path[:1] for path in COMMANDS}
    for line in re.findall(r"`perdure ([a-z][a-z -]*[a-z])", page):
        words = tuple(line.split())
        assert words[:2] in COMMANDS or words[:1] in COMMANDS or words[:1] in groups, line


# --- JSON ---

# Each command that lists, as one may call it on the store of these tests.
LISTINGS = [
    "runs list", "runs history completed", "waiting waiting", "waiting --signal note", "dead-letters list",
    "approvals list", "events list", "events timeline sku/7", "consumers list", "consumers parked",
    "subscriptions list", "subscriptions deferred", "schedules list", "pools list", "pools line narrow",
    "queues list", "queues items jobs", "workflows", "channels", "workers",
]  # fmt: skip


def test_every_listing_is_json_if_asked(every_shell: Shell) -> None:
    for line in LISTINGS:
        found = every_shell.json(*line.split())
        assert set(found) == {"items", "cursor"}, line
        assert isinstance(found["items"], list), line
        assert all(isinstance(one, dict) for one in found["items"]), line
        lines = every_shell(*line.split()).out.splitlines()
        assert len(lines) == len(found["items"]) + 1, "a table has a head, and a line for each"


def test_no_listing_was_forgotten() -> None:
    listing = {
        path
        for path, one in COMMANDS.items()
        if path[-1] == "list" or any(option.name == "all" for option in one.params)
    }
    assert listing <= {tuple(line.split())[: len(path)] for line in LISTINGS for path in COMMANDS}


def test_json_is_everywhere() -> None:
    for path, one in COMMANDS.items():
        assert "--json" in {name for option in one.params for name in option.opts}, path


# --- quick ---


def test_help_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    """Tables, servers, drivers of stores, schemas: all of them are for the commands that work with them."""
    code = (
        "import sys\n"
        "from perdure.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "runs", "--help"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    assert "typer" in loaded
    heavy = "starlette sse_starlette uvicorn uvloop httpx2 anyio asyncpg redis rich jsonschema watchfiles"
    assert loaded.isdisjoint([*heavy.split(), "cel_expr_python"])


def test_the_version_is_told(bare: Shell) -> None:
    from importlib.metadata import version

    assert bare("--version").out == f"{version('perdure')}\n"
    assert bare(code=2).err.startswith("Usage: perdure ") or bare(code=2).out.startswith("Usage: ")
