"""The life of a run: nine statuses and the one table of legal moves between them.

Every store and every handler asks this table; nothing else knows which move is legal. A terminal
status is left only by an operator's retry of a failed run.
"""

from typing import Final, Literal

Status = Literal[
    "ready",
    "running",
    "waiting",
    "sleeping",
    "paused",
    "completed",
    "failed",
    "cancelled",
    "terminated",
]

LIVE: Final[frozenset[str]] = frozenset({"ready", "running", "waiting", "sleeping", "paused"})
TERMINAL: Final[frozenset[str]] = frozenset({"completed", "failed", "cancelled", "terminated"})
PARKED: Final[frozenset[str]] = frozenset({"waiting", "sleeping"})

_ENDS: Final[frozenset[str]] = frozenset({"completed", "failed", "cancelled"})

# from -> to. "terminated" can be reached from every live status: that is what terminate is for.
MOVES: Final[dict[str, frozenset[str]]] = {
    # Cancelled at once is one that stands in line for the first time, or was paused there: no code of it has run that
    # could clean up.
    "ready": frozenset({"running", "paused", "cancelled", "terminated"}),
    "running": frozenset({"ready", "waiting", "sleeping", "paused", "terminated"}) | _ENDS,
    "waiting": frozenset({"ready", "running", "sleeping", "paused", "terminated"}),
    "sleeping": frozenset({"ready", "running", "waiting", "paused", "terminated"}),
    "paused": frozenset({"ready", "cancelled", "terminated"}),
    "completed": frozenset(),
    "failed": frozenset({"ready"}),
    "cancelled": frozenset(),
    "terminated": frozenset(),
}


class IllegalMove(AssertionError):
    """A handler tried a move that the table does not have: a defect of ours, never of the user."""


def check_move(run_id: str, old: str, new: str) -> None:
    """Raise IllegalMove unless a run may go from `old` to `new` (staying put is always legal)."""
    if old != new and new not in MOVES[old]:
        raise IllegalMove(f"run {run_id!r} may not go from {old} to {new}")
