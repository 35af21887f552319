"""A child is killed at every point between two calls of the store, on a fresh file each time.

Whatever the point, the next process finds a file on which every invariant holds, nothing that was acknowledged is lost,
and every run comes to the end that the model says.
"""

from pathlib import Path

import pytest

from crashes import script
from crashes.drive import Figures, sweep
from crashes.nursery import Nursery

# All kinds of runs side by side, in few large batches; and some alone, in many small ones.
_casts = {
    "all": [teller(nth) for nth, teller in enumerate(script.tellers, 1)],
    "branches": [script.branches(1)],
    "family": [script.family(1)],
    "paused": [script.paused(1), script.order(2)],
    "show": [script.show(1)],
    "flop": [script.flop(1)],
}


_points = [("all", "inside"), *((cast, place) for cast in _casts for place in ("before", "after"))]


@pytest.mark.parametrize(("cast", "place"), _points)
def test_a_kill_around_any_commit_loses_nothing_and_doubles_nothing(
    nursery: Nursery, tmp_path: Path, figures: Figures, cast: str, place: str
) -> None:
    for played in sweep(nursery, tmp_path, _casts[cast], place):
        figures.add(played)
