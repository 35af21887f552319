"""How far the branches of a replay have come in what is recorded of them.

A branch is on record with more than it has asked for if there is more of itself, of branches that it began, or of those
that wait for it; or of branches of these that have not begun yet: of a later gather, or of the same one, if only so
many may run at once and the next begins when another ends. What others beside it have done says nothing: each goes at
its own pace. Nor does what an operator's retry has freed from its order, once its branch has begun: it may never be
asked for again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

from perdure.model.records import StepRecord, branch_around, branch_of
from perdure.runtime.history import decode_spec

_none: set[str] = set()
_decode_paths = msgspec.json.Decoder(list[str]).decode


class Frontier:
    """Recorded calls that the code has not asked for yet, counted by branch."""

    __slots__ = ("_below", "_calls", "_loose", "_own", "_to_begin")

    def __init__(self, steps: Iterable[StepRecord], loose: Iterable[str] = ()) -> None:
        self._calls = dict(_recorded_calls(steps))  # the branch of each path
        self._loose = set(loose)  # paths that need not be asked for
        self._own: Counter[str] = Counter(self._calls.values())
        self._below: Counter[str] = Counter()  # with the branches inside
        for branch, count in self._own.items():
            for one in _outwards(branch):
                self._below[one] += count
        # By branch: those directly inside it that are on record and have not begun yet.
        self._to_begin: dict[str, set[str]] = {}
        for path, branch in self._calls.items():
            if branch and path not in self._loose:
                for inside, around in pairwise(_outwards(branch)):
                    self._to_begin.setdefault(around, set()).add(inside)

    def __len__(self) -> int:
        return len(self._calls)

    def ask(self, path: str) -> None:
        """The code has come to this call."""
        branch = self._calls.pop(path, None)
        if branch is not None:
            self._own[branch] -= 1
            for one in _outwards(branch):
                self._below[one] -= 1

    def begin(self, branch: str) -> None:
        """The code has begun this branch."""
        self._to_begin.get(branch_around(branch), _none).discard(branch)
        for path in [one for one in self._loose if one.startswith(branch)]:
            self._loose.discard(path)
            self.ask(path)

    def is_ahead_of(self, branch: str) -> bool:
        """Whether this branch went on from where it is."""
        if self._below[branch] > 0:
            return True
        return any(self._own[one] > 0 or self._to_begin.get(one) for one in _outwards(branch))


def _outwards(branch: str) -> Iterator[str]:
    """A branch and all around it."""
    yield branch
    while branch:
        branch = branch_around(branch)
        yield branch


def _recorded_calls(steps: Iterable[StepRecord]) -> Iterator[tuple[str, str]]:
    """The calls that a history shows, each with its branch. One that was left behind was made all the same."""
    for step in steps:
        if step.kind == "cancel":
            # Steps that were in flight then have no record of their own.
            yield from ((path, branch_of(path)) for path in _decode_paths(step.value or "[]"))
        elif step.kind not in ("retry", "patch"):
            yield step.path, _branch_of_call(step)


def _branch_of_call(step: StepRecord) -> str:
    """Nearly always the path's own branch, and then nothing need be parsed."""
    branch = None
    if step.wait is not None and '"branch"' in step.wait:
        branch = decode_spec(step.wait).branch
    return branch_of(step.path) if branch is None else branch
