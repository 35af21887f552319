"""The types that users see hold under mypy (strict) and pyright (strict)."""

import subprocess
import sys
from pathlib import Path

import pytest

here = Path(__file__).parent
root = here.parent.parent


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_the_public_api_is_typed_as_promised(checker: str) -> None:
    """A wrong call must be an error too: an ignore that is not needed fails the check."""
    done = subprocess.run(
        [sys.executable, "-m", checker, str(here / "api.py")],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_broken_promise_is_noticed(tmp_path: Path) -> None:
    """The check itself can fail."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text((here / "api.py").read_text().replace("RunHandle[str])", "RunHandle[bytes])"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(wrong)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 1
    assert "assert-type" in done.stdout
