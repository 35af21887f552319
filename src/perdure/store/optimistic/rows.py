"""What all rooms of a batch share: what is known, what was looked at, and what was asked for in vain.

What nobody knows yet is noted too, and the decision goes on as if there were nothing: it will not count, but it shows
what else will be asked for, so that a batch of a thousand ops is looked up in a handful of calls.

A batch changes copies (`_mine`), so that a decision that cannot be finished, or is overtaken, leaves what is known as
it was. Whatever it looks at is noted: the commit compares it with the store.
"""

from collections.abc import Callable
from typing import Any

from perdure.model.status import LIVE
from perdure.store.optimistic.known import NEW, Slice, Unit
from perdure.store.optimistic.needs import UNKNOWN, Looks, Need
from perdure.store.tables import Tables


class LookedAt(Tables):
    """The slices, units and answers of one batch."""

    def __init__(self, looks: Looks) -> None:
        self._known = looks.known
        self._answers = looks.answers
        self._work: dict[str, Slice] = {}  # runs that this batch changes, as they are by now
        self._seen: dict[str, Slice] = {}  # runs that it looked at, as they are known
        self._bumped: set[str] = set()  # those whose version moves
        self._deleted: dict[str, None] = {}
        self._units: dict[Unit, bool] = {}  # that it rests on, and whether their version moves
        self.missing: set[Need] = set()  # what it asked for and nobody knows yet

    # --- runs ---

    def _slice(self, run_id: str) -> Slice | None:
        """A run as this batch has it by now; None if there is none."""
        kept = self._work.get(run_id)
        if kept is not None:
            return kept
        kept = self._seen.get(run_id)
        if kept is not None:
            return None if run_id in self._deleted else kept
        kept = self._known.runs.get(run_id)
        if kept is None:
            if self._answers.get(("run", run_id), True) is None:
                return None
            self.missing.add(("run", run_id))
            return None
        self._seen[run_id] = kept
        return kept

    def _inside(self, run_id: str) -> Slice | None:
        """The same with all that belongs to it."""
        kept = self._slice(run_id)
        is_unknown = ("run", run_id) in self.missing if kept is None else kept.watchers is None
        if is_unknown:
            self.missing.add(("inside", run_id))
            return None
        return kept

    def _mine(self, run_id: str) -> Slice:
        """A run to be changed."""
        kept = self._work.get(run_id)
        if kept is None:
            found = self._slice(run_id)
            if found is None:
                raise ValueError(f"no run of the id {run_id!r}")
            kept = self._work[run_id] = found.copy()
        if kept.change != NEW:
            self._bumped.add(run_id)
        return kept

    def _my_inside(self, run_id: str) -> Slice:
        """A run to be changed, with all that belongs to it."""
        kept = self._mine(run_id)
        if kept.watchers is None:
            # It was, and a later look, which had no need of it, found the run changed.
            self.missing.add(("inside", run_id))
            raise ValueError(f"run {run_id!r} is not known inside")
        return kept

    def _lives(self, run_id: str) -> bool:
        kept = self._slice(run_id)
        return kept is not None and kept.run.status in LIVE

    def _forget_run(self, run_id: str) -> None:
        """A run goes, and with it what this batch has added to it so far. Each room knows its own."""
        self._work.pop(run_id, None)

    # --- the rest ---

    def _answer(self, *need: Any) -> Any:
        """What the store said to that need in this batch."""
        try:
            return self._answers[need]
        except KeyError:
            self.missing.add(need)
            return UNKNOWN.get(need[0])

    def _first_of(self, limit: int, counts: Callable[[Any], bool], *need: Any) -> list[Any]:
        """Of what an index of the store names, the first so many that still count by what this batch has done.

        If too many of them do not, more are asked for: the number is the last part of the need.
        """
        asked = limit
        while True:
            stored = self._answer(*need, asked)
            found = [one for one in stored if counts(one)]
            if len(found) >= limit or len(stored) < asked:
                return found[:limit]
            asked *= 2

    def _rest_on(self, unit: Unit, *, bump: bool = False) -> None:
        """The decision counts only if nobody moves this unit meanwhile; with `bump` it moves it itself."""
        self._units[unit] = self._units.get(unit, False) or bump
