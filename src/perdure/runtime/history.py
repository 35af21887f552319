"""A run's recorded past, in the order it happened: what a replay walks through.

A replay feeds the completed records to the code one by one, in the order of their seq. Each must be asked for by
a branch that stands at its path (hit); a call with no record is new (miss); a record that nobody asks for means that
the code is not the code that wrote it (mismatch). Only what an operator's retry left behind may stay unasked.
"""

from collections import deque
from collections.abc import Container, Iterable

import msgspec

from perdure.errors import NonDeterminism
from perdure.model.records import Condition, StepRecord, WaitSpec, branch_of
from perdure.runtime.calls import Durable, WaitCall

# How many calls an error names.
_told_max = 3

decode_spec = msgspec.json.Decoder(WaitSpec).decode


class History:
    """The records of one generation. `ahead` are completed and not yet replayed; `begun` are not complete; `abandoned`
    are paths that a branch has left for good."""

    __slots__ = ("_loose", "abandoned", "ahead", "begun")

    def __init__(self, steps: list[StepRecord]) -> None:
        # Marks of `ctx.patched` are looked up by name, in no order: nobody stands at one.
        done = [one for one in steps if one.state in ("done", "failed") and one.kind != "patch"]
        self.ahead: deque[StepRecord] = deque(sorted(done, key=lambda one: one.seq))
        self.begun = {one.path: one for one in steps if one.state in ("open", "retrying")}
        self.abandoned = {one.path for one in steps if one.state == "abandoned"}
        # A retry mark made at seq m for a failure at seq f: the order of what lies between binds no more.
        self._loose = [
            (msgspec.json.decode(one.value or "0", type=int), one.seq)
            for one in self.ahead
            if one.kind == "retry"
        ]

    def goes_on(self, path: str, standing: Container[str]) -> bool:
        """Whether the branch that stands at `path` is on record with more than it has asked for so far.

        So it is if there is more of itself, of branches that it began, or of those that wait for it. What others
        beside it have done meanwhile says nothing, nor what they stand at: a call may be made by one branch and
        awaited by another.
        """
        own = branch_of(path)
        paths = [*(one.path for one in self.ahead), *self.begun]
        branches = [branch_of(one) for one in paths if one not in standing]
        return any(one.startswith(own) or own.startswith(one) for one in branches)

    def is_loose(self, record: StepRecord) -> bool:
        """Whether the code may pass this record by, or ask for it out of its old turn."""
        return any(since < record.seq < mark for since, mark in self._loose)

    def loose_paths(self) -> list[str]:
        """All such that are still ahead."""
        return [one.path for one in self.ahead if self.is_loose(one)] if self._loose else []


def check_same(call: Durable[object], record: StepRecord) -> None:
    """Raise NonDeterminism unless the code asks for what is recorded: kind, name, path, conditions of a wait."""
    if call.kind != record.kind or call.name != record.name:
        raise NonDeterminism(
            record.path, f"{record.kind} {record.name!r}", f"{call.kind} {call.name!r}"
        )
    if isinstance(call, WaitCall) and record.wait is not None:
        # The winner is stored as the index of its condition.
        was = _told(decode_spec(record.wait).on)
        asked = _told(clause.condition for clause in call.clauses)
        if was != asked:
            raise NonDeterminism(record.path, f"a wait for {was}", f"a wait for {asked}")


def _told(conditions: Iterable[Condition]) -> str:
    """Conditions in their order; how long a timer runs may change."""
    return " | ".join(f"{one.kind} {one.target} {one.entity}".strip() for one in conditions)


def unasked(record: StepRecord, standing: list[Durable[object]]) -> NonDeterminism:
    """The mismatch when no branch asks for the next record."""
    own = branch_of(record.path)
    # What stands in the branch of the record stands in its place; then those inside it, then those around it.
    near = sorted(standing, key=lambda one: _distance(own, branch_of(one.path)))
    asked = ", ".join(f"{one.kind} {one.name!r} at {one.path!r}" for one in near[:_told_max])
    if len(near) > _told_max:
        asked += f" and {len(near) - _told_max} more"
    recorded = f"{record.kind} {record.name!r}"
    return NonDeterminism(record.path, recorded, asked or "the end of the workflow")


def _distance(own: str, branch: str) -> int:
    if branch == own:
        return 0
    return 1 if branch.startswith(own) else 2 if own.startswith(branch) else 3
