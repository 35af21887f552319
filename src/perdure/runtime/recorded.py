"""The code of a run over its record: where its branches stand, and what was decided, given to them.

Each call is compared with what is recorded at its path. Decisions are fed in the order of the store, so a replay is the
same as the first time: whatever is recorded, the code is given; what it asks for beyond that is fresh, and turn.py acts
on it.
"""

import abc
import asyncio
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.errors import NonDeterminism, PerdureError, Undecodable
from perdure.model import limits
from perdure.model.origins import origins_of
from perdure.model.records import Completion, RunRecord, StepRecord, branch_of
from perdure.model.status import TERMINAL
from perdure.observing.spans import Turn
from perdure.runtime.branches import Branches, broken
from perdure.runtime.calls import (
    ContinueCall,
    Durable,
    GatherCall,
    Rejected,
    StepCall,
    TransactionCall,
    WaitCall,
)
from perdure.runtime.frontier import Frontier
from perdure.runtime.history import History, check_same, unasked
from perdure.runtime.patches import Patches


class Recorded(Branches):
    """Branches that meet a record. `Execution` says what becomes of calls that are fresh."""

    __slots__ = (
        "_bodies",
        "_calls_made",
        "_cancel_recorded",
        "_cancelling",
        "_closed",
        "_continue",
        "_fresh",
        "_has_ended",
        "_history",
        "_known",
        "_left",
        "_loose",
        "_origins",
        "_past",
        "_patches",
        "_posted",
        "_resting",
        "_standing",
        "_untold",
        "now",
        "replaying",
        "retries",
        "turn",
    )  # fmt: skip

    def __init__(self, run: RunRecord, steps: list[StepRecord]) -> None:
        super().__init__(run.run_id)
        self.now = run.created_at
        self.turn: Turn | None = None  # who watches, if somebody does
        self.replaying = bool(steps)
        self.retries = sum(one.kind == "retry" for one in steps) if steps else 0
        self._history: History | None = History(steps) if steps else None
        self._past: Frontier | None = None  # what is still to be asked for; None if that is all
        if self._history is not None:
            self._past = Frontier(steps, self._history.loose_paths())
        self._patches = Patches(steps) if any(one.kind == "patch" for one in steps) else None
        # Whose chance is drawn, up to where.
        self._origins: list[tuple[str, Frontier]] | None = None
        if run.forked is not None:
            self._take_over(run.forked, steps)
        # Of one that has ended, which only a check replays: it went on to its end.
        self._has_ended = run.status in TERMINAL
        self._resting: dict[str, StepCall[Any]] = {}  # by path: steps between two attempts
        self._known: dict[str, StepRecord] = self._history.begun if self._history else {}
        self._standing: dict[str, Durable[Any]] = {}  # by path: where branches stand
        # What most runs never need is made when it is needed: a run in memory is to be small, and what the
        # garbage collector must walk through costs all others.
        self._fresh: list[Durable[Any]] | None = None  # stood at in this turn, not yet acted on
        self._loose: dict[str, StepRecord] | None = None  # that a retry freed from their old order
        self._left: set[str] | None = None  # paths whose branch was cancelled there
        self._untold: set[str] | None = None  # paths where a branch is to be told of a cancel yet
        self._closed: list[str] | None = None  # paths of waits that were left, to be told
        self._posted: set[str] | None = None  # paths of steps and sends whose record is under way
        self._bodies: dict[str, StepCall[Any]] = {}  # whose bodies are in flight
        self._calls_made = 0  # calls made in this generation, to bound the history
        self._continue: ContinueCall[Any] | None = None
        self._cancel_recorded = False
        self._cancelling = False  # its record is under way

    @abc.abstractmethod
    def _reject(self, call: WaitCall[Any], rejected: Rejected) -> None:
        """A wait was given something that its type refuses, and waits on."""

    @abc.abstractmethod
    def _time(self) -> int:
        """By the clock of the process."""

    def _take_over(self, forked: str, steps: list[StepRecord]) -> None:
        """Chance and time of the part of the history that is another run's."""
        loose = self._history.loose_paths() if self._history is not None else ()
        self._origins = []
        began_at: int | None = None
        for one in origins_of(forked):
            copied = [each for each in steps if 0 < each.seq <= one.seq or each.path in one.open]
            self._origins.append((one.run_id, Frontier(copied, loose)))
            if copied and began_at is None:  # a later generation has none, and a time of its own
                began_at = one.created_at
        if began_at is not None:
            self.now = began_at

    # --- what code asks without a call ---

    def patched(self, name: str) -> bool:
        """Whether the branch that runs takes the new way here: see patches.py."""
        branch = branch_of(self.current_branch().prefix)
        if self._patches is None:
            self._patches = Patches()
        answer = self._patches.known(branch, name)
        if answer is not None or self.dead:
            return bool(answer)
        goes_on = self._has_ended or (self._past is not None and self._past.is_ahead_of(branch))
        if not goes_on:
            self._count_call()
        self._patches.answer(branch, name, is_new=not goes_on, at=self._time())
        return not goes_on

    def _count_call(self) -> None:
        """Each leaves a row in the history, and a generation is replayed whole."""
        self._calls_made += 1
        if self._calls_made > limits.steps_per_generation_max:
            raise _too_long()

    def chance_id(self, prefix: str) -> str:
        """Whose chance a branch draws: that of the run it was copied from, up to where it was."""
        if self._origins is not None:
            branch = branch_of(prefix)
            for run_id, frontier in self._origins:
                if frontier.is_ahead_of(branch):
                    return run_id
        return self.run_id

    # --- calls ---

    def _ask(self, asked: Durable[Any]) -> None:
        """A branch stands at a call: remember it, to act on it when the turn ends."""
        if self._past is not None:
            self._note_asked(asked.path)
        if isinstance(asked, ContinueCall):
            self._continue = asked
            return
        self._calls_made += 1
        self._standing[asked.path] = asked
        if self._calls_made > limits.steps_per_generation_max:
            self._refuse_more(asked)
            return
        known = self._known.get(asked.path)
        if known is not None:
            check_same(asked, known)
        loose = self._loose.pop(asked.path, None) if self._loose is not None else None
        if self._untold is not None and asked.path in self._untold:
            self._untold.discard(asked.path)
            self._cancel_at(asked)
        elif loose is None:
            self._note_fresh(asked)
        else:
            check_same(asked, loose)
            self._feed(loose)

    def _note_asked(self, path: str) -> None:
        assert self._past is not None
        self._past.ask(path)
        for _, frontier in self._origins or ():
            frontier.ask(path)
        if not self._past:
            self._past = self._origins = None  # all that follows is its own

    def _start_branch(self, call: GatherCall) -> None:
        super()._start_branch(call)
        if self._past is not None:
            begun = f"{call.path}[{call.started - 1}]/"
            self._past.begin(begun)
            for _, frontier in self._origins or ():
                frontier.begin(begun)

    def _refuse_more(self, asked: Durable[Any]) -> None:
        """The generation is too long. Code that catches that and goes on in a loop is not asked twice."""
        if self._calls_made == limits.steps_per_generation_max + 1:
            del self._standing[asked.path]
            self._let_run(asked.branch, None, _too_long())
        else:
            self._outcome = (None, _too_long())

    def _note_fresh(self, call: Durable[Any]) -> None:
        if self._fresh is None:
            self._fresh = [call]
        else:
            self._fresh.append(call)

    def _is_decided(self, call: Durable[Any]) -> bool:
        """Whether the result of this call is on record, or on its way there, so that its branch is to learn of it.

        Else what was done would be on record and its branch, which may have to undo it, would not know. Waits are
        not meant: what one was given is given back.
        """
        if isinstance(call, WaitCall):
            return False
        if self._history is not None:
            return any(one.path == call.path for one in self._history.ahead)
        if isinstance(call, TransactionCall) and call.path in self._bodies:
            return call.work is not None and not call.work.withdraw()
        return self._posted is not None and call.path in self._posted

    def _abandon(self, call: Durable[Any]) -> None:
        """Its branch leaves this call for good: stop the body, close the wait."""
        self._standing.pop(call.path, None)
        self._left = self._left or set()
        self._left.add(call.path)
        body = self._bodies.pop(call.path, None)
        if body is not None:
            body.cancel_body()
        # Also one that this replay has only just come to: in the store it is open since before.
        if isinstance(call, WaitCall) and (call.opened or call.path in self._known):
            self._closed = self._closed or []
            self._closed.append(call.path)

    def _leave(self, call: Durable[Any], learnt_at: int) -> None:
        """Its branch goes on with what was decided at that time."""
        del self._standing[call.path]
        if self._posted:
            self._posted.discard(call.path)
        if learnt_at > self.now:
            self.now = learnt_at

    # --- feeding ---

    def _replay(self, history: History) -> None:
        try:
            while history.ahead and self._failure is None:
                self._replay_one(history, history.ahead.popleft())
                self._drain()
            if self._failure is None:
                self._check_left(history)
        except NonDeterminism as error:
            self._failure = error
        self._history = None
        self.replaying = False

    def _check_left(self, history: History) -> None:
        """What is recorded and not complete must be where the code stands, too: or both would go on.

        A wait that nobody asks for would still be ended, and what it was given be lost, or contradict what the code has
        done instead; a call that its branch has left for good cannot be made again.
        """
        for path, record in history.begun.items():
            if path not in self._standing and not (self._left and path in self._left):
                raise unasked(record, list(self._standing.values()))
        for path in history.abandoned.intersection(self._standing):
            call = self._standing[path]
            left = f"that the branch left {call.kind} {call.name!r}"
            raise NonDeterminism(path, left, f"{call.kind} {call.name!r} again")

    def _replay_one(self, history: History, record: StepRecord) -> None:
        call = self._standing.get(record.path)
        if call is not None:
            if not history.ahead:
                # What the code says from here on, it says for the first time.
                self.replaying = False
            check_same(call, record)
            self._feed(record)
        elif record.kind == "cancel":
            self._feed_cancel(record)
        elif record.kind == "retry":
            pass
        elif self._left is not None and record.path in self._left:
            if record.kind == "wait":  # what came after its branch had left must not vanish there
                self._closed = [*(self._closed or ()), record.path]
        elif history.is_loose(record):
            # Its branch may come to ask for it yet, in the new order of things.
            self._loose = self._loose or {}
            self._loose[record.path] = record
        else:
            raise unasked(record, list(self._standing.values()))

    def _feed(self, done: Completion | StepRecord) -> None:
        """Give a decision to the branch that stands there. One that nobody stands at was dealt with before."""
        if done.kind == "cancel":
            self._feed_cancel(done)
            return
        call = self._standing.get(done.path)
        if call is None:
            return
        try:
            value, error = call.settle(done)
        except Rejected as rejected:
            if self._history is not None and self._history.goes_on(call.path, self._standing):
                # The run went on from here once: it is the type that changed, not the signal that is wrong.
                self._failure = Undecodable(call.path, str(rejected))
                return
            assert isinstance(call, WaitCall)
            self._reject(call, rejected)
            return
        except Undecodable as failure:
            self._failure = failure
            return
        except Exception as raised:
            self._failure = broken(self.run_id, raised)
            return
        if isinstance(call, WaitCall):
            call.branch.received = call.received(done) or call.branch.received
            if self.turn is not None:
                self.turn.hears(call, done)
        self._leave(call, done.recorded_at or 0)
        self._let_run(call.branch, value, error)

    def _feed_cancel(self, done: Completion | StepRecord) -> None:
        self._cancel_recorded, self._cancelling = True, False
        self.now = max(self.now, done.recorded_at or 0)
        closed, self._closed = self._closed, None
        for path in msgspec.json.decode(done.value or "[]", type=list[str]):
            call = self._standing.get(path)
            if call is not None:
                self._cancel_at(call)
            elif isinstance(done, StepRecord) and self._history is not None:
                self._miss_cancel(self._history, done, path)
        self._closed = closed  # without those: the store closed them with the record
        self._drain()

    def _cancel_at(self, call: Durable[Any]) -> None:
        call.branch.told = True
        self._abandon(call)
        self._let_run(call.branch, None, asyncio.CancelledError())

    def _miss_cancel(self, history: History, cancel: StepRecord, path: str) -> None:
        """A branch was told of the cancel there, and none stands there now: one may come, after a retry."""
        if not history.is_loose(cancel):
            raise unasked(
                replace(cancel, path=path, name="told there"), list(self._standing.values())
            )
        self._untold = self._untold or set()
        self._untold.add(path)

    def _rest(self, call: StepCall[Any], failed_attempt: int) -> None:
        """The next attempt comes when the store says that the pause is over."""
        call.attempt = failed_attempt + 1
        self._resting[call.path] = call

    def _retry_now(self, path: str, failed_attempt: int) -> None:
        """News of an older pause, or of one that a replay found to be over, come too late."""
        call = self._resting.get(path)
        if call is None or call.attempt != failed_attempt + 1:
            return
        del self._resting[path]
        if self._standing.get(path) is call:
            self._known.pop(path, None)
            self._note_fresh(call)


def _too_long() -> PerdureError:
    bound = limits.steps_per_generation_max
    return PerdureError(
        f"the run made {bound} calls in one generation (steps_per_generation_max): end the generation with "
        "`await ctx.continue_as(workflow, …)`"
    )
