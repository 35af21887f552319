"""Where a fork begins: which records of a run's history another one takes over, and what follows from that.

A history is a line of records, and a fork takes over all that come before one of them: so every branch stands in it as
it once stood in the original. What was not complete then is not taken over; the fork's own code asks for it. Pure: no
store, no clock.
"""

import difflib
from collections.abc import Sequence

import msgspec

from perdure.errors import Conflict
from perdure.model import limits
from perdure.model.limits import BadValue
from perdure.model.origins import Origin, origins_of, origins_text
from perdure.model.records import CANCEL_PATH, RunRecord, StepRecord

_shown_max = 10
_decode_number = msgspec.json.Decoder(int).decode


def copied(steps: Sequence[StepRecord], from_path: str | None) -> list[StepRecord]:
    """The records before the one at a path, in their order; none, if no path is named."""
    if from_path is None:
        return []
    # What a branch has left behind has no place of its own in the order.
    steps = sorted((one for one in steps if one.state != "abandoned"), key=_place)
    complete = [one for one in steps if one.seq]
    first = next((one for one in steps if one.path == from_path), None)
    if first is None:
        raise _unknown(from_path, [one.path for one in steps])
    # What is not complete yet came after all that is.
    taken = [one for one in complete if not first.seq or one.seq < first.seq]
    cancel = next((one for one in taken if one.kind == "cancel"), None)
    if cancel is not None:
        raise Conflict(
            f"the run was cancelled before {from_path!r}, and a fork from there would be too: fork it from "
            f"{CANCEL_PATH!r}, or from a path before that"
        )
    return [*taken, *_marks(complete, taken)]


def _place(step: StepRecord) -> tuple[bool, int, str]:
    return step.seq == 0, step.seq, step.path


def _marks(complete: list[StepRecord], taken: list[StepRecord]) -> list[StepRecord]:
    """Marks of retries that lie behind the place, and free from their order some of what is taken over."""
    last = taken[-1].seq if taken else 0
    return [
        one
        for one in complete
        if one.kind == "retry" and one.seq > last and _decode_number(one.value or "0") < last
    ]


def _unknown(path: str, known: list[str]) -> BadValue:
    near = difflib.get_close_matches(path, known, _shown_max, 0.5) or known[-_shown_max:]
    more = "" if len(near) == len(known) else ", …"
    listed = ", ".join(near) + more if known else "none"
    return BadValue("from_path", path, f"is not in the run's history; there is: {listed}")


def origins(run: RunRecord, taken: Sequence[StepRecord]) -> str | None:
    """Whose chance the copied part was drawn with: that of the run, and before it of those it was forked from."""
    last = taken[-1].seq if taken else 0
    paths = {one.path for one in taken}
    older = tuple(
        msgspec.structs.replace(
            one, seq=min(one.seq, last), open=tuple(each for each in one.open if each in paths)
        )
        for one in origins_of(run.forked)
        if taken
    )
    chain = (*older, Origin(run.run_id, last, run.created_at if taken else None))
    if len(chain) > limits.forks_max:
        raise BadValue(
            "fork", run.run_id, f"is the fork of a fork of … {limits.forks_max} (forks_max)"
        )
    return origins_text(chain)


def published(
    run: RunRecord, steps: Sequence[StepRecord], taken: Sequence[StepRecord]
) -> str | None:
    """What the run had published with `ctx.set` when it stood there."""
    shown = msgspec.json.decode(run.published or "{}", type=dict[str, msgspec.Raw])
    for step in steps:
        if step.kind == "set":  # what an earlier generation has set under another name stays
            shown.pop(step.name, None)
    for step in taken:
        if step.kind == "set" and step.state == "done":
            shown[step.name] = msgspec.Raw((step.value or "null").encode())
    return msgspec.json.encode(shown).decode() if shown else None
