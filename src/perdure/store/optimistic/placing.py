"""Positions on the ledger: only the store can give them, in the moment of the commit.

So a batch counts from a number that no ledger reaches, and all that comes out greater is placed when the commit has
said where the ledger ended before it: in the store's columns by the store itself, here in the answers and in what is
remembered. A few positions are written into JSON texts of our own: as `"position":…` into the answer that a key or the
step of an emit keeps, and in `"after":[…]` into the wait of a step. Only there are numbers replaced: what users write
stands in strings, whose quotes are escaped, or in values of other steps, which nobody looks into.

Ops that must know where the ledger ends (`EXACT`) are decided on the end that is known. The commit compares it if what
they write would be wrong otherwise.
"""

import re
from typing import Any, Final

from msgspec.structs import replace

from perdure.model import ops
from perdure.model.outcomes import (
    Advanced,
    Claimed,
    CursorMoved,
    Duplicate,
    Emitted,
    Started,
    Wake,
)
from perdure.model.records import Completion, RunRecord, StepRecord
from perdure.store.optimistic.changes import UNPLACED
from perdure.store.optimistic.known import Slice

# The first digits of every number from there on that a batch can reach.
MARK: Final = str(UNPLACED)[:14]
_number = re.compile(rf"{MARK}\d{{5}}")
_position = re.compile(rf'"position":{MARK}\d{{5}}')
_after = re.compile(r'"after":\[[\d,]*\]')

EXACT: Final = frozenset(
    {
        ops.ClaimConsumer,
        ops.SteerConsumer,
        ops.TrimLedger,
    }
)


class Placing:
    """Where the events of a batch came to stand: after `head`."""

    def __init__(self, head: int) -> None:
        self._shift = head - UNPLACED

    def at(self, position: int) -> int:
        return position + self._shift if position >= UNPLACED else position

    def answer(self, text: str) -> str:
        """The answer of an emit."""
        return _position.sub(self._numbers, text) if MARK in text else text

    def wait(self, text: str) -> str:
        """From where on topics count, in what a wait stores about itself."""
        return _after.sub(self._numbers, text) if MARK in text else text

    def _numbers(self, found: re.Match[str]) -> str:
        return _number.sub(lambda number: str(int(number[0]) + self._shift), found[0])

    # --- answers ---

    def outcome(self, outcome: Any) -> Any:
        """An answer with its positions placed; most have none and are given back as they are."""
        place = _places.get(type(outcome))
        return outcome if place is None else place(self, outcome)

    def wakes(self, wakes: tuple[Wake, ...]) -> tuple[Wake, ...]:
        if not any(one.run is not None and one.run.position >= UNPLACED for one in wakes):
            return wakes
        return tuple(
            one if one.run is None else replace(one, run=self.run(one.run)) for one in wakes
        )

    def run(self, run: RunRecord) -> RunRecord:
        return run if run.position < UNPLACED else replace(run, position=self.at(run.position))

    def _many(self, outcomes: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([self.outcome(one) for one in outcomes])

    def _started(self, outcome: Started) -> Started:
        if outcome.run.position < UNPLACED:
            return outcome
        return Started(self.run(outcome.run), outcome.created)

    def _emitted(self, outcome: Emitted) -> Emitted:
        if outcome.position < UNPLACED:
            return outcome
        return replace(outcome, position=self.at(outcome.position))

    def _duplicate(self, outcome: Duplicate[Any]) -> Duplicate[Any]:
        first = self.outcome(outcome.of)
        return outcome if first is outcome.of else Duplicate(first)

    def _advanced(self, outcome: Advanced) -> Advanced:
        if not any(one.kind == "emit" for one in outcome.completions):
            return outcome
        return replace(outcome, completions=tuple(map(self._completion, outcome.completions)))

    def _completion(self, completion: Completion) -> Completion:
        if completion.kind != "emit" or completion.value is None:
            return completion
        return replace(completion, value=self.answer(completion.value))

    def _claimed(self, outcome: Claimed) -> Claimed:
        return replace(outcome, runs=tuple(map(self.run, outcome.runs)))

    def _cursor_moved(self, outcome: CursorMoved) -> CursorMoved:
        return replace(outcome, outcomes=self._many(outcome.outcomes))

    # --- what is remembered ---

    def slice(self, kept: Slice) -> None:
        """Place what a slice holds, in place."""
        kept.run = self.run(kept.run)
        if kept.cursors:
            for at, cursor in kept.cursors.items():
                if cursor.position >= UNPLACED:
                    kept.cursors[at] = replace(cursor, position=self.at(cursor.position))
        if kept.watchers:
            for place, watcher in kept.watchers.items():
                if watcher.after >= UNPLACED:
                    kept.watchers[place] = replace(watcher, after=self.at(watcher.after))
        for path, step in kept.steps.items():
            kept.steps[path] = self._step(step)

    def _step(self, step: StepRecord) -> StepRecord:
        if step.wait is not None and MARK in step.wait:
            return replace(step, wait=self.wait(step.wait))
        if step.kind == "emit" and step.value is not None and MARK in step.value:
            return replace(step, value=self.answer(step.value))
        return step


_places: dict[type, Any] = {
    tuple: Placing._many,
    Started: Placing._started,
    Emitted: Placing._emitted,
    Duplicate: Placing._duplicate,
    Advanced: Placing._advanced,
    Claimed: Placing._claimed,
    CursorMoved: Placing._cursor_moved,
}
