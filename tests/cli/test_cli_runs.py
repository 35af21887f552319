"""`perdure runs`, `start`, `waiting`: the same answers from a store and from a server."""

from shell import Shell, rows


def test_runs_are_listed_newest_first(shell: Shell) -> None:
    found = shell.json("runs", "list")
    assert found["cursor"] is None
    assert set(rows(found["items"], "id")) == {
        "waiting", "paused", "failed", "completed", "asking", "stocked", "first", "second",
    }  # fmt: skip
