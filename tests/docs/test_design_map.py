"""docs/from-the-designs.md points at things that exist, and leaves no line without an answer.

A pointer is `path` or `path::name`, in backticks. Names are found by reading the file (Python by its syntax tree,
SQL by its statements), never by importing it, so a pointer to a test is checked without running it.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs" / "from-the-designs.md"

DESIGNS = {
    "000": "Event buffering",
    "001": "Event watchers",
    "002": "State coordinator",
    "003": "Signals",
    "004": "Event ledger",
}

# Paths of this project; the designs' own file names begin otherwise.
POINTER = re.compile(
    r"`((?:src/perdure|tests|docs|examples|benchmarks)/[^`\s:]+|[A-Z]+\.md)(?:::([\w.]+))?`"
)
LATER = re.compile(r"\bpart [2-7]\b")
NO_COUNTERPART = "no counterpart"


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def python_names(path: Path) -> frozenset[str]:
    """Every name a file defines: functions, classes, assignments; inside classes with a dot."""
    names: set[str] = set()

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    names.add(prefix + name)
                case ast.ClassDef(name=name):
                    names.add(prefix + name)
                    collect(node.body, f"{prefix}{name}.")
                    for inner in ast.walk(node):  # self.x = …
                        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                            names.add(f"{prefix}{name}.{inner.attr}")
                case ast.Assign(targets=targets):
                    names.update(prefix + one.id for one in targets if isinstance(one, ast.Name))
                case ast.AnnAssign(target=ast.Name(id=name)):
                    names.add(prefix + name)
                case _:
                    pass

    collect(ast.parse(text_of(path)).body, "")
    return frozenset(names)


@cache
def sql_names(path: Path) -> frozenset[str]:
    """Named queries; tables, indexes and triggers; and table.column."""
    text = text_of(path)
    names = set(re.findall(r"^-- name: (\w+)", text, re.MULTILINE))
    names.update(re.findall(r"^create (?:unique )?(?:index|trigger) (\w+)", text, re.MULTILINE))
    for table, body in re.findall(
        r"^create table (\w+) \((.*?)^\)", text, re.MULTILINE | re.DOTALL
    ):
        names.add(table)
        names.update(f"{table}.{column}" for column in re.findall(r"^ +(\w+) ", body, re.MULTILINE))
    return frozenset(names)


def problem_with(path: str, name: str | None) -> str | None:
    """Why a pointer leads nowhere, or None."""
    target = ROOT / path
    if not target.exists():
        return f"{path} does not exist"
    if name is None:
        return None
    if target.suffix == ".py":
        known = python_names(target)
    elif target.suffix == ".sql":
        known = sql_names(target)
    else:
        return f"{path}: only Python and SQL files have names"
    return None if name in known else f"{path} has no {name}"


def sections() -> dict[str, str]:
    """The text under each heading `## Design NNN: title`, by number."""
    parts = re.split(r"^## (.+)$", text_of(MAP), flags=re.MULTILINE)
    found: dict[str, str] = {}
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        if match := re.fullmatch(r"Design (\d{3}): (.+)", heading):
            assert match[2] == DESIGNS.get(match[1]), heading
            found[match[1]] = body
    return found


def rows_of(section: str) -> list[list[str]]:
    """The cells of all table rows but the heads."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = {nth for nth, row in enumerate(rows) if all(set(cell) <= set("-:") for cell in row)}
    return [row for nth, row in enumerate(rows) if nth not in rules and nth + 1 not in rules]


POINTERS = sorted({(match[1], match[2]) for match in POINTER.finditer(text_of(MAP))}, key=str)


@pytest.mark.parametrize(
    ("path", "name"), POINTERS, ids=lambda part: str(part).removeprefix("src/perdure/")
)
def test_pointer_leads_somewhere(path: str, name: str | None) -> None:
    assert problem_with(path, name) is None


def test_every_design_has_its_section() -> None:
    assert list(sections()) == list(DESIGNS)


@pytest.mark.parametrize("number", DESIGNS)
def test_every_line_says_where_or_when_or_why_not(number: str) -> None:
    rows = rows_of(sections()[number])
    assert len(rows) >= 20, "a design has more named items than that"
    for row in rows:
        item, ours, where = row
        assert item and ours, row
        assert POINTER.search(where) or LATER.search(where) or NO_COUNTERPART in where, row


def test_wrong_pointers_would_be_seen() -> None:
    here = "tests/docs/test_design_map.py"
    assert problem_with("src/perdure/nowhere.py", None) is not None
    assert problem_with(here, "nobody") is not None
    assert problem_with(here, "problem_with") is None
    assert problem_with("src/perdure/model/ops.py", "StartRun.run_id") is None
    schema = "src/perdure/store/sqlite/migrations/0001_first.sql"
    assert problem_with(schema, "signals.received_at") is None
    assert problem_with(schema, "signals.nothing") is not None
