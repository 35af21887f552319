"""The state of a play, as the record has it: put together after a chorus, and as it was at any time.

States are JSON objects here; their fields are compared as text, so nobody needs the code that wrote them. Each step of
kind "act" holds the state after it, of its own branch. What the run as a whole looked like then follows from these:
a branch of a chorus changes fields of its own, and the rest is as it was when the chorus began.
"""

from collections.abc import Iterable, Sequence

import msgspec

from perdure.model.records import HANDLING, StepRecord, branch_around, branch_of

Fields = dict[str, msgspec.Raw]
Changes = dict[str, msgspec.Raw | None]  # None: the field is gone
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode


def fields_of(text: str) -> Fields:
    return _decode(text)


def text_of(fields: Fields) -> str:
    return _encode(fields).decode()


def changes(before: Fields, after: Fields) -> Changes:
    """The fields that are other than before."""
    gone: Changes = {name: None for name in before if name not in after}
    return gone | {name: one for name, one in after.items() if before.get(name) != one}


def changed(fields: Fields, by: Changes) -> Fields:
    """The fields with these changes made."""
    return {name: one for name, one in (fields | by).items() if one is not None}


def merged(base: str, branches: Sequence[str]) -> tuple[str, tuple[str, list[int]] | None]:
    """The states of branches put together; and a field that several of them changed, if there is one."""
    whole = fields_of(base)
    made = [changes(whole, fields_of(one)) for one in branches]
    contested = None
    for name in dict.fromkeys(name for each in made for name in each):
        who = [ix for ix, each in enumerate(made) if name in each]
        if len(who) > 1 and contested is None:
            contested = (name, who)
    for each in made:
        whole = changed(whole, each)
    return text_of(whole), contested


class States:
    """The state of a whole run as its steps are recorded, one after the other."""

    def __init__(self, start: str) -> None:
        self._by_branch: dict[str, Fields] = {"": fields_of(start)}
        self._bases: dict[str, Fields] = {}  # by chorus: the state that it began with

    @property
    def text(self) -> str:
        return text_of(self._by_branch[""])

    def take(self, step: StepRecord) -> None:
        """A step that was recorded; those that hold no state change nothing."""
        if step.kind != "act" or step.state != "done" or step.value is None:
            return
        branch, after = branch_of(step.path), fields_of(step.value)
        made = changes(self._state_of(branch), after)
        self._by_branch[branch] = after
        while branch:
            branch = branch_around(branch)
            self._by_branch[branch] = changed(self._state_of(branch), made)

    def _state_of(self, branch: str) -> Fields:
        """Of a branch that has recorded nothing yet: as its chorus began."""
        found = self._by_branch.get(branch)
        if found is not None:
            return found
        chorus = branch.rpartition("[")[0]
        if chorus not in self._bases:
            self._bases[chorus] = self._state_of(branch_around(branch))
        return self._bases[chorus]


def in_order(history: Iterable[StepRecord]) -> list[StepRecord]:
    """What is decided and counts, in the order it was recorded, of the newest generation."""
    steps = [one for one in history if one.seq and one.state in ("done", "failed")]
    newest = max((one.generation for one in steps), default=0)
    return sorted((one for one in steps if one.generation == newest), key=lambda one: one.seq)


def state_after(start: str, steps: Sequence[StepRecord], path: str | None = None) -> str | None:
    """The state after the last step that belongs to a part of the play; None if it has none on record.

    `steps` are in order. A part is named by its path: an act, a signal, or a scene or chorus with all in it.
    """
    states = States(start)
    if path is None:
        for step in steps:
            states.take(step)
        return states.text
    found = None
    for step in steps:
        states.take(step)
        if belongs(step.path, path):
            found = states.text
    return found


def belongs(step_path: str, path: str) -> bool:
    """Whether a step is one of the part at this path, or inside it."""
    if step_path == path or step_path in {path + one for one in HANDLING}:
        return True
    return step_path.startswith((f"{path}/", f"{path}["))
