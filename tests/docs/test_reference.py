"""The reference pages are complete: public names, errors, statuses and their moves, limits."""

import inspect
import re
from pathlib import Path

import pytest

import perdure
from perdure import errors
from perdure.model import limits
from perdure.model.status import LIVE, MOVES, TERMINAL

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Pages that describe what there is; decisions and the map of the designs speak of it in passing.
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
PAGES.remove(DOCS / "from-the-designs.md")
WORDS = set(re.findall(r"\w+", " ".join(page.read_text(encoding="utf-8") for page in PAGES)))

PUBLIC_ERRORS = sorted(
    name
    for name in perdure.__all__
    if inspect.isclass(one := getattr(perdure, name)) and issubclass(one, Exception)
)


@pytest.mark.parametrize("name", perdure.__all__)
def test_public_name_is_on_a_page(name: str) -> None:
    assert name in WORDS


@pytest.mark.parametrize("name", PUBLIC_ERRORS)
def test_error_has_its_line(name: str) -> None:
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    root = "Everything raised on purpose is a `PerdureError`"
    assert root in page if name == "PerdureError" else f"\n| `{name}" in page


def test_errors_of_the_module_are_public() -> None:
    own = {
        name
        for name, one in vars(errors).items()
        if inspect.isclass(one) and issubclass(one, Exception) and one.__module__ == errors.__name__
    }
    assert own <= set(perdure.__all__)


# --- the drawing ---------------------------------------------------------------------------------


def drawn_moves(page: Path) -> list[tuple[str, str]]:
    blocks = re.findall(r"```mermaid\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1, "one drawing"
    return re.findall(r"^ *(\S+) --> ([^\s:]+)", blocks[0], re.MULTILINE)


def test_drawing_has_exactly_the_moves_of_the_table() -> None:
    drawn = drawn_moves(DOCS / "state-machine.md")
    between = [move for move in drawn if "[*]" not in move]
    assert sorted(between) == sorted((old, new) for old in MOVES for new in MOVES[old])
    assert {old for old, new in drawn if new == "[*]"} == {old for old in MOVES if not MOVES[old]}
    assert {new for old, new in drawn if old == "[*]"} == {"ready", "running"}


def test_the_short_drawing_draws_no_other_moves() -> None:
    for old, new in drawn_moves(DOCS / "concepts.md"):
        assert "[*]" in (old, new) or new in MOVES[old], (old, new)


@pytest.mark.parametrize("status", sorted(LIVE | TERMINAL))
def test_status_is_explained(status: str) -> None:
    table = (DOCS / "state-machine.md").read_text(encoding="utf-8").split("```")[2]
    assert f"`{status}`" in table


# --- limits --------------------------------------------------------------------------------------

CONSTANTS = {
    name: value
    for name, value in vars(limits).items()
    if isinstance(value, int) and not name.startswith("_")
}
LINE = re.compile(r"^\| `(\w+)` \| (-?[\d,]+) \| (.+) \|$", re.MULTILINE)


def test_every_limit_has_its_value_and_a_reason() -> None:
    lines = LINE.findall((DOCS / "limits.md").read_text(encoding="utf-8"))
    told = {name: int(value.replace(",", "")) for name, value, _ in lines}
    assert len(lines) == len(told), "no limit twice"
    assert told == CONSTANTS
    assert all(reason.strip() for _, _, reason in lines)
