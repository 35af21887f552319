"""`ctx.patched`: which runs take the new way at a place where the code was changed.

A branch that comes to the place for the first time takes the new way, and a mark says so in its history. One whose
history goes on from there without a mark has passed it with the older code, and takes the old way for as long as it
lives. The mark goes along with every op until one that carried it is committed. So it is never behind what rests on it,
and every replay finds the answer again: by the mark, or by the same history going on.

An answer counts for its branch and for the branches that it begins afterwards. Branches beside each other may have
passed the place at different times, so each has an answer of its own.
"""

from collections.abc import Iterable

from perdure.model.limits import BadValue, path_bytes_max
from perdure.model.ops import StepDone
from perdure.model.records import PATCH_PATH, StepRecord, branch_around


class Patches:
    """The answers of one generation, and the marks that are still to be committed."""

    __slots__ = ("_answers", "_marked", "pending")

    def __init__(self, steps: Iterable[StepRecord] = ()) -> None:
        self._marked = {one.path for one in steps if one.kind == "patch"}
        self._answers: dict[tuple[str, str], bool] = {}
        self.pending: dict[str, StepDone] = {}  # by path

    def known(self, branch: str, name: str) -> bool | None:
        """What this branch was told before, or one around it; None if nobody asked."""
        if _path_of(branch, name) in self._marked:
            self._answers[branch, name] = True  # from here on also for the branches that it begins
        answer = self._answers.get((branch, name))
        while answer is None and branch:
            branch = branch_around(branch)
            answer = self._answers.get((branch, name))
        return answer

    def answer(self, branch: str, name: str, *, is_new: bool, at: int) -> None:
        """Remember what a branch is told; that it is new to it is to be recorded."""
        self._answers[branch, name] = is_new
        if is_new:
            path = _path_of(branch, name)
            self.pending[path] = StepDone(
                path=path, name=name, kind="patch", state="done", started_at=at, recorded_at=at
            )

    def committed(self, steps: Iterable[StepDone]) -> None:
        for done in steps:
            if done.kind == "patch":
                self.pending.pop(done.path, None)


def _path_of(branch: str, name: str) -> str:
    path = f"{PATCH_PATH}{branch}{name}"
    if len(path.encode()) > path_bytes_max:
        raise BadValue(
            "patch", name, "nests too deep: ask before the branches begin, or shorten the names"
        )
    return path
