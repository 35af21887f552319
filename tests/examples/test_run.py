"""Every example runs as its page says, in an empty folder, and tells its story."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

# What a reader must find in the output.
STORIES = {
    "customer_health.py": [
        "customer/ada  83 -> 75",
        "rebuilt: {'customer/ada': 75, 'customer/bob': 49}",
    ],
    "approval.py": ["20 clicks, 1 counts", "exit code -9", "ignored A-17", "1 erp.pushed"],
    "order_play.py": [
        "waiting for 'manager-approval', until 07 Jan 09:00",
        "reserve done, manager-approval waiting, ship pending, tier pending (order_play.mmd)",
        "approved by ann, mailed True, texted True, ['with a gift']",
        "failed at 'manager-approval': WaitTimeout",
        "retried: completed, approved by bob, who was asked once",
    ],
    "approval_agent.py": [
        "Refund 120 EUR for order-7? (reminder 1)",
        "approved by mail:anna@example.org",
        "it has expired",
        "handed over to the office",
        "refunds: ['120 EUR for order-7']",
    ],
    "reflexion.py": ["discount  avoided", "learnt: reflexion.failure_pattern"],
    "price_fanout.py": ["1000 resumed in its commit, and more follow", "repricings: 1"],
    "fastapi_orders.py": [
        "the provider is told: duplicate",
        "the inbox of the managers: Ship for 1200?",
        "the customer sees: shipping",
        "the result: parcel for anna",
    ],
    "web": [
        "uvicorn: 40 orders through",
        "gunicorn: 40 orders through",
        "approved by another process",
        "every order was shipped once",
    ],
    "event_platform": ["health ok", "customer.unreachable", "item/1  06 Jan 11:00  hitl.rejected"],
}


def command(name: str) -> list[str]:
    if name.endswith(".py"):
        return [str(EXAMPLES / name)]
    return ["-m", f"examples.{name}"]


@pytest.mark.parametrize("name", STORIES)
def test_it_tells_its_story_twice(name: str, tmp_path: Path) -> None:
    # The second time it finds what the first one left; servers with many processes take their time to start.
    for _ in range(1 if name == "web" else 2):
        done = subprocess.run(
            [sys.executable, "-W", "error", *command(name)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert not done.stderr
        for words in STORIES[name]:
            assert words in done.stdout, words


def test_the_list_has_every_example() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    there = {one.name for one in EXAMPLES.iterdir() if not one.name.startswith("_")} - {"README.md"}
    assert there == {*STORIES, "demo.py"}
    for name in there:
        assert f"`{name}`" in listed, name
