"""mypy and pyright agree with tests/typing/api.py: what it asserts holds, what it ignores is an error."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_root = Path(__file__).parents[2]
_api = Path(__file__).with_name("api.py")


def _run(*command: str, **variables: str) -> str:
    """The output of a checker; it must have found nothing."""
    done = subprocess.run(
        command,
        cwd=_root,
        env={**os.environ, "MYPYPATH": str(_root / "src"), **variables},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def test_mypy_strict(tmp_path: Path) -> None:
    checked = _run(
        *(sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores"),
        *("--cache-dir", str(tmp_path), str(_api)),
    )
    assert "no issues found" in checked


def test_pyright_strict() -> None:
    """The file itself says strict, and that an ignore must silence something."""
    checked = _run(
        *(sys.executable, "-m", "pyright", "--stats"),
        *("--pythonpath", sys.executable, str(_api)),
    )
    assert re.search(r"\b0 errors", checked), checked
    assert "Total files checked: 1" in checked, checked


def test_the_package_says_that_it_is_typed() -> None:
    assert (_root / "src" / "perdure" / "py.typed").exists()


@pytest.mark.parametrize("mark", ["type: ignore", "pyright: ignore"])
def test_negative_cases_name_the_error_they_expect(mark: str) -> None:
    lines = [one for one in _api.read_text().splitlines() if mark in one]
    assert len(lines) >= 15
    assert all(re.search(rf"# {mark}\[[a-zA-Z, -]+\]", one) for one in lines)
