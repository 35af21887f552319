"""Every Python block of README.md and docs/ runs as printed.

A page is read as a reader does. The info string of a fence says what a block is: `python` opens a
program, `python continue` goes on with the one above it, and each program runs once, in a process
and an empty folder of its own. `python postgres` is a program that finds a Postgres under the
variable DATABASE_URL, `python redis` a Valkey under REDIS_URL. The only way out is `python no-run`,
for a part of something larger; such a block must still compile.
"""

import contextlib
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
from servers.valkey import ValkeyProcess

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAM_S = 60  # the slowest a program on a page may be

FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,})(?P<info>[^`]*)$")


@dataclass(frozen=True)
class Block:
    """One fenced block: its info string, its text, and the line its text begins on."""

    page: str
    line: int
    info: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order; an unclosed one is an error of the page."""
    name = page.relative_to(ROOT).as_posix()
    found: list[Block] = []
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        if not (opening := FENCE.match(line)):
            continue
        body: list[str] = []
        for _, inner in lines:
            if inner.strip() == opening["marks"]:
                break
            body.append(inner)
        else:
            raise ValueError(f"{name}:{number}: this fence is never closed")
        text = textwrap.dedent("\n".join(body)) + "\n"
        found.append(Block(name, number + 1, " ".join(opening["info"].split()), text))
    return found


def programs_of(blocks: list[Block]) -> list[Block]:
    """Blocks that run, each with its continuations; line numbers stay those of the page."""
    programs: list[Block] = []
    for block in blocks:
        if block.info in ("python", "python postgres", "python redis"):
            programs.append(block)
        elif block.info == "python continue":
            if not programs:
                raise ValueError(f"{block.place}: there is nothing above to continue")
            first = programs[-1]
            gap = block.line - first.line - first.text.count("\n")
            text = first.text + "\n" * gap + block.text
            programs[-1] = Block(first.page, first.line, first.info, text)
    return programs


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PYTHON = [block for block in BLOCKS if block.info.split(" ")[0] in ("python", "py", "python3")]
PROGRAMS = [program for page in PAGES for program in programs_of(blocks_of(page))]


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.place)
def test_block_says_how_it_runs_and_compiles(block: Block) -> None:
    known = ("python", "python continue", "python postgres", "python redis", "python no-run")
    assert block.info in known, block.place
    compile(block.text, block.place, "exec", dont_inherit=True)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.place)
def test_program_runs_as_printed(
    program: Block, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with contextlib.ExitStack() as stack:
        surroundings = dict(os.environ)
        if program.info == "python postgres":
            server = request.getfixturevalue("postgres_server")
            surroundings["DATABASE_URL"] = stack.enter_context(server.fresh_database())
        elif program.info == "python redis":
            server = stack.enter_context(ValkeyProcess(request.getfixturevalue("premises")))
            surroundings["REDIS_URL"] = server.url
        run_as_printed(program, tmp_path, surroundings)


def run_as_printed(program: Block, tmp_path: Path, surroundings: dict[str, str]) -> None:
    script = tmp_path / "example.py"
    # Blank lines in front, so that a traceback names the line of the page.
    script.write_text("\n" * (program.line - 1) + program.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script.name],
        cwd=tmp_path,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, f"{program.place}\n{done.stdout}{done.stderr}"


def test_the_demo_tells_its_story(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = ("killed with SIGKILL", "approval sent", "charge", "approval", "ship")
    for words in (*told, "charged exactly once"):
        assert words in done.stdout


def test_readme_shows_a_program() -> None:
    assert any(program.page == "README.md" for program in PROGRAMS)
