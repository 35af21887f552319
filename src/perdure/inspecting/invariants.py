"""What must hold within each run at any moment: its row, its steps, its watchers, its buffer, its streams.

Pure: a `Life` is all rows of a run from one moment, so whatever is wrong here is wrong, however busy the store is.
Asked by `fsck` of a live store and by the tests after every op. The numbers are those of the reliability plan: R runs,
W waits, S and B signals and slots, F fences, T time; O is for what stands over a run, P for pools, M for streams, H for
what people are asked.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec

from perdure.model import limits
from perdure.model.approvals import alarm_at, decode_asks
from perdure.model.records import (
    DEADLINE_PATH,
    Condition,
    EventRecord,
    StepRecord,
    WaitSpec,
    WatcherRecord,
    can_end,
)
from perdure.model.status import LIVE, PARKED, TERMINAL
from perdure.store.base import Life

_of_time = ("timer", "retry")
_decode_spec = msgspec.json.Decoder(WaitSpec).decode


class Wrong(msgspec.Struct, frozen=True):
    """An invariant that is broken. `mends`: a replay of the run, as after a pause, sets it right."""

    invariant: str
    what: str
    path: str | None = None
    mends: bool = False


def wrong_with(life: Life) -> Iterator[Wrong]:
    """Everything that is wrong with a run."""
    run = Parts(life)
    yield from _wrong_status(run)
    yield from _wrong_steps(run)
    yield from _wrong_seqs(run)
    yield from _wrong_watchers(run)
    yield from _wrong_buffer(run)
    yield from _lost_wake_ups(run)
    yield from _wrong_standing(run)
    yield from _wrong_beside(run)
    yield from _wrong_streams(run)


class Parts:
    """A life with its watchers told apart."""

    def __init__(self, life: Life) -> None:
        self.run = life.run
        self.steps = life.steps
        self.signals = life.signals
        self.streams = life.streams
        self.beside = [one for one in life.watchers if one.is_beside]
        self.standing = [one for one in life.watchers if one.is_standing]
        self.watchers = [one for one in life.watchers if not one.is_standing and not one.is_beside]
        # The rows of the present generation that count.
        self.living = [
            one
            for one in life.steps
            if one.generation == life.run.generation and one.superseded == 0
        ]


# --- R, P, F: runs ------------------------------------------------------------------------------------


def _wrong_status(life: Parts) -> Iterator[Wrong]:
    run = life.run
    if run.status not in LIVE | TERMINAL:
        yield Wrong("R1", f"unknown status {run.status!r}")
    # A running one whose owner was called may have one; it is claimed like any other when that does not answer.
    claimable = run.status == "ready" and run.line_at is None
    if run.status != "running" and (run.ready_at is not None) != claimable:
        yield Wrong(
            "R6",
            f"{run.status} with ready_at {run.ready_at}, in line since {run.line_at}",
            mends=run.status == "ready",
        )
    if run.line_at is not None and (run.status != "ready" or not run.pool):
        yield Wrong("P1", f"{run.status} in pool {run.pool!r}, and in line since {run.line_at}")
    if not run.admitted and run.status in ("running", *PARKED):
        yield Wrong("P1", f"{run.status}, and was never let through")
    if not run.admitted and run.cancel_requested and run.status in LIVE:
        yield Wrong("P3", f"{run.status}, was never let through, and is to be cancelled")
    if (run.finished_at is not None) != (run.status in TERMINAL):
        yield Wrong("R1", f"{run.status} with finished_at {run.finished_at}")
    if (run.owner is None) != (run.fence == 0):
        yield Wrong("F4", f"owner {run.owner!r} with fence {run.fence}")
    if run.status == "running" and run.owner is None:
        yield Wrong("R5", "running, owned by nobody")
    if run.status in ("ready", "paused") and run.owner is not None:
        yield Wrong("F4", f"{run.status}, owned by {run.owner!r}", mends=run.status == "ready")
    if run.status in PARKED and not life.watchers:
        yield Wrong(
            "R5", f"{run.status} and waits for nothing: nobody will ever wake it", mends=True
        )
    if run.status == "sleeping" and any(one.kind not in _of_time for one in life.watchers):
        yield Wrong("R5", "sleeping, but waits for more than time", mends=True)
    if run.status == "waiting" and all(one.kind in _of_time for one in life.watchers):
        yield Wrong("R5", "waiting, but for time only", mends=True)
    if run.status == "paused" and life.watchers:
        yield Wrong("R5", "paused with open watchers")
    if run.status in TERMINAL and (life.watchers or life.beside):
        yield Wrong("R7", f"{run.status} with watchers", mends=True)
    if run.status in TERMINAL and (life.signals or run.owner is not None):
        yield Wrong("R7", f"{run.status} with buffered signals or an owner")


def _wrong_steps(life: Parts) -> Iterator[Wrong]:
    seen = Counter((one.generation, one.path, one.superseded) for one in life.steps)
    for at, count in seen.items():
        if count > 1:
            yield Wrong("R2", f"{count} checkpoints of {at}")
    for step in life.steps:
        undecided = {"open": True, "retrying": True, "done": False, "failed": False}
        if (step.seq == 0) != undecided.get(step.state, step.seq == 0):
            yield Wrong("R3", f"{step.path} is {step.state} with seq {step.seq}", step.path)
        if (step.state == "superseded") != (step.superseded > 0):
            yield Wrong(
                "R2", f"{step.path} is {step.state}, superseded {step.superseded}", step.path
            )
        if step.generation > life.run.generation:
            yield Wrong(
                "R1",
                f"{step.path} is of generation {step.generation}, the run of {life.run.generation}",
                step.path,
            )
        if step.wait is not None and step.state in ("done", "failed") and step.winner is None:
            yield Wrong(
                "W1", f"the wait at {step.path} is {step.state} without a winner", step.path
            )
        if step.wait is not None and step.state == "open" and step.winner is not None:
            yield Wrong(
                "W1", f"the wait at {step.path} is open with winner {step.winner}", step.path
            )
        if step.wait is not None and step.winner is not None:
            if step.winner >= len(_decode_spec(step.wait).on):
                yield Wrong(
                    "W1", f"the wait at {step.path} was won by nothing it waits for", step.path
                )


def _wrong_seqs(life: Parts) -> Iterator[Wrong]:
    """Within a run each number is given once. What two runs have in common says nothing."""
    numbers = Counter(step.seq for step in life.steps if step.seq)
    numbers.update(signal.position for signal in life.signals)
    for number, count in numbers.items():
        if count > 1:
            yield Wrong("R3", f"sequence number {number} was given {count} times")


# --- W: waits -----------------------------------------------------------------------------------------


def _wrong_watchers(life: Parts) -> Iterator[Wrong]:
    living = {one.path: one for one in life.living}
    for watcher in life.watchers:
        step = living.get(watcher.path)
        wanted = "retrying" if watcher.kind == "retry" else "open"
        if step is None or step.state != wanted:
            state = "nothing" if step is None else step.state
            yield Wrong(
                "W2",
                f"a {watcher.kind} watcher at {watcher.path}, where the history has {state}",
                watcher.path,
                life.run.status in PARKED,
            )
        if watcher.generation != life.run.generation:
            yield Wrong(
                "W2",
                f"the watcher at {watcher.path} is of generation {watcher.generation}",
                watcher.path,
                life.run.status in PARKED,
            )
        if step is not None and step.wait is not None:
            spec = _decode_spec(step.wait)
            if (spec.deadline_at, spec.deadline_ix) != (watcher.deadline_at, watcher.deadline_ix):
                yield Wrong(
                    "T1",
                    f"the watcher at {watcher.path} has another deadline than its wait",
                    watcher.path,
                    life.run.status in PARKED,
                )

    if life.run.status not in PARKED:
        return
    watched = {one.path for one in life.watchers}
    for step in life.living:
        if step.state in ("open", "retrying") and step.path not in watched:
            what = f"{step.path} is {step.state} in a parked run, and nobody watches for it"
            yield Wrong("W2", what, step.path, True)


def _lost_wake_ups(life: Parts) -> Iterator[Wrong]:
    for watcher in life.watchers:
        for signal in life.signals:
            if (
                watcher.kind == "signal"
                and signal.name == watcher.target
                and signal.path in (None, watcher.path)
                and (watcher.deadline_at is None or signal.received_at <= watcher.deadline_at)
                and (signal.expires_at is None or signal.expires_at >= watcher.opened_at)
            ):
                yield Wrong(
                    "W4",
                    f"waits at {watcher.path} for {signal.signal_id}, which lies in its buffer",
                    watcher.path,
                    life.run.status in PARKED,
                )


# --- O: what stands over a run ------------------------------------------------------------------------


def _wrong_standing(life: Parts) -> Iterator[Wrong]:
    """All that could still cancel it, and nothing once it has ended or was asked to stop."""
    run = life.run
    deadlines = [one.deadline_at for one in life.standing if one.path == DEADLINE_PATH]
    topics = {one.ix: [one.target, one.entity] for one in life.standing if one.kind == "topic"}
    if run.status in TERMINAL or run.cancel_requested:
        if life.standing:
            yield Wrong("O1", f"{run.status}, and still watched over", mends=run.status in TERMINAL)
        return
    if list(topics.items()) != list(enumerate(msgspec.json.decode(run.cancel_on or "[]"))):
        yield Wrong("O2", f"{run.cancel_on} cancels it, and {topics} is watched")
    # A deadline that had passed when the run was retried binds it no more.
    may_be_over = run.generation > 0 or any(one.kind == "retry" for one in life.steps)
    if deadlines != [run.deadline_at] and (deadlines or (run.deadline_at and not may_be_over)):
        yield Wrong("O3", f"its deadline is {run.deadline_at}, and {deadlines} is watched")


# --- S, B: signals and slots --------------------------------------------------------------------------


def _wrong_buffer(life: Parts) -> Iterator[Wrong]:
    slots = Counter((one.name, one.path) for one in life.signals if one.policy == "latest")
    for slot, count in slots.items():
        if count > 1:
            yield Wrong("B1", f"{count} signals in the one slot of {slot}")
    positions = [one.position for one in life.signals]
    if positions != sorted(positions):
        yield Wrong("S1", "the buffer is not in the order of acceptance")
    taken = {one.taken_id: one.path for one in life.living if one.state == "done" and one.taken_id}
    for signal in life.signals:
        if signal.signal_id in taken:
            path = taken[signal.signal_id]
            yield Wrong(
                "S2", f"{signal.signal_id} ended the wait at {path} and lies in the buffer", path
            )


# --- H: what people are asked -------------------------------------------------------------------------


def _wrong_beside(life: Parts) -> Iterator[Wrong]:
    """An alarm stands beside an open approval, and rings in time; what was set aside is of a run that is not parked."""
    asking = {(one.path, one.ix): one for one in life.watchers if one.kind == "approval"}
    alarms = {(one.path, one.ix - 1000): one for one in life.beside if one.kind == "alarm"}
    for at in alarms.keys() - asking.keys():
        yield Wrong(
            "H1", f"an alarm at {at}, where nothing is asked", at[0], life.run.status in PARKED
        )
    for at, watcher in asking.items():
        due_at = alarm_at(decode_asks(watcher.asks))
        alarm = alarms.get(at)
        if due_at != (None if alarm is None else alarm.deadline_at):
            yield Wrong(
                "H1",
                f"the alarm at {at} rings at {alarm}, and should at {due_at}",
                at[0],
                life.run.status in PARKED,
            )
    living = {one.path: one for one in life.living}
    for one in life.beside:
        step = living.get(one.path)
        if step is None or step.state != "open" or one.generation != life.run.generation:
            yield Wrong("H2", f"{one.kind} at {one.path}, where the run does not wait", one.path)
        if one.kind == "asked" and life.run.status in PARKED:
            yield Wrong(
                "H2",
                f"{life.run.status}, and what it asks at {one.path} is set aside",
                one.path,
                True,
            )


# --- M: streams ---------------------------------------------------------------------------------------


def _wrong_streams(life: Parts) -> Iterator[Wrong]:
    """Positions are dense to the end, and what is kept is within its bounds."""
    for one in life.streams:
        if (one.newest, one.count) != (one.last, one.last - one.first + 1) or not one.count:
            shown = f"{one.count} items from {one.first} to {one.newest}"
            yield Wrong("M1", f"stream {one.stream!r} has come to {one.last}, and has {shown}")
        if one.count > limits.stream_items_max:
            yield Wrong("M2", f"stream {one.stream!r} keeps {one.count} items")


# --- between runs and the rest ------------------------------------------------------------------------


def won(step: StepRecord) -> Condition | None:
    """The condition that ended a wait which counts."""
    if step.wait is None or step.winner is None or step.state != "done":
        return None
    return _decode_spec(step.wait).on[step.winner]


def ends(event: EventRecord, watcher: WatcherRecord) -> bool:
    """Whether an event should have ended this wait."""
    return event.type == watcher.target and can_end(watcher, event) and not event.repeated
