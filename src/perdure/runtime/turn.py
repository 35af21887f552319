"""The turns of a run. An Execution is a run in memory.

A turn takes what was decided (a step's result, a delivered signal, a fired timer), sends it into the branches that
stand there (recorded.py), and drives them until all stand again (branches.py); then it says in one op what came of it:
results, new waits, sends, the end. Branches therefore interleave the same way on every replay, and a turn costs
microseconds.

What is fed was committed before, in the order of the store. One exception, for speed: when a single branch stands at a
single step, nothing else can come before its result, so the code goes on at once and the result is recorded in the
same op as what it leads to. If that op is refused, the run is loaded anew and replayed.

Never awaits, never blocks; the worker (the `host`) posts ops, runs step bodies and keeps the executions.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from perdure.channels import Queue, Signal, Topic
from perdure.errors import (
    PerdureError,
    Undecodable,
)
from perdure.model import limits, ops
from perdure.model.codec import BadPayload, Unencodable
from perdure.model.outcomes import Advanced, Fenced
from perdure.model.records import (
    Completion,
    RunRecord,
    StepRecord,
    branch_of,
)
from perdure.observing.counts import Counts
from perdure.observing.spans import Spans
from perdure.registry import Registry, Step, Workflow
from perdure.runtime.branches import Branch, broken
from perdure.runtime.called import unseen
from perdure.runtime.calls import (
    Durable,
    Rejected,
    SendCall,
    StepCall,
    TransactionCall,
    WaitCall,
    is_cancel,
)
from perdure.runtime.context import Context
from perdure.runtime.failures import run_failure
from perdure.runtime.forgotten import not_awaited
from perdure.runtime.recorded import Recorded

T = TypeVar("T")

log = logging.getLogger("perdure.runtime")

# Before a run is tried again whose op the store could not take (disk full, file gone).
_pause_s = 1.0


class Host(Protocol):
    """What an execution needs of its worker."""

    registry: Registry

    @property
    def worker_id(self) -> str: ...
    @property
    def counts(self) -> Counts | None: ...
    @property
    def spans(self) -> Spans | None: ...

    def post(self, op: ops.Op[Any], done: Callable[[Any, Any, Any], None], extra: Any) -> None: ...
    def time(self) -> int: ...
    def run_body(self, call: StepCall[Any]) -> None: ...
    def run_transaction(self, call: TransactionCall[Any]) -> None: ...
    def check_transaction(self, step: Step[..., Any]) -> None: ...
    def as_step(self, function: Any) -> Step[..., Any]: ...
    def dep(self, kind: type[T]) -> T: ...
    def note_signal(
        self, workflow: Workflow[Any, *tuple[Any, ...]], signal: Signal[Any]
    ) -> None: ...
    def note_channel(self, channel: Topic[Any] | Queue[Any]) -> None: ...
    def check_filter(self, text: str) -> None: ...
    def release_on_park(self) -> bool: ...
    def on_parked(self, execution: "Execution", released: bool) -> None: ...
    def on_over(self, execution: "Execution") -> None: ...
    def on_lost(self, execution: "Execution") -> None: ...
    def reload(self, execution: "Execution", pause_s: float = 0.0) -> None: ...


class Execution(Recorded):
    """A run in memory."""

    __slots__ = (
        "__weakref__",
        "_heir",
        "_input",
        "_pausing",
        "_quiet",
        "_spare",
        "_unsaved",
        "cancel_requested",
        "event_id",
        "fence",
        "finishing",
        "generation",
        "host",
        "outstanding",
        "parked",
        "revision",
        "tags",
        "trace",
        "workflow",
    )  # fmt: skip

    def __init__(
        self,
        host: Host,
        run: RunRecord,
        workflow: Workflow[Any, *tuple[Any, ...]],
        steps: list[StepRecord],
    ) -> None:
        super().__init__(run, steps)
        self.host = host
        self.workflow = workflow
        self.generation = run.generation
        self.fence = run.fence
        self.revision = run.revision
        self.event_id = run.event_id
        self.tags = run.tags
        self.trace = run.trace
        self.cancel_requested = run.cancel_requested
        self.parked = False
        self.finishing = False
        self.outstanding = 0  # ops under way, and transactions
        self._input = run.input
        self._pausing = run.pause_requested
        self._spare: dict[str, ops.StepDone] = {}  # results from before a reload
        self._unsaved: tuple[ops.StepDone, ...] = ()
        self._heir: Execution | None = None
        self._quiet: asyncio.Event | None = None
        if host.spans is not None:
            self.turn = host.spans.turn(self, len(steps))

    def _time(self) -> int:
        return self.host.time()

    # --- the doors in ---

    def begin(
        self, carried: "Execution | None" = None, args: tuple[Any, ...] | None = None
    ) -> None:
        """Start the code and replay what is recorded; then act on what is new."""
        if carried is not None:
            self._bodies, self._spare = carried.hand_over(self)
        if self.turn is not None:
            self.turn.begins(self, self._input)
        try:
            args = self.workflow.args.decode(self._input) if args is None else args
        except BadPayload as error:
            self._failure = Undecodable("the input", str(error))
            self._end_turn()
            return
        self._input = ""
        # The context is held by the code alone: held here too, a run that is over would be a cycle.
        self._drain(Branch(self.workflow.function(Context(self), *args)))
        if self._history is not None:
            self._replay(self._history)
        self._end_turn()

    def on_news(self, completion: Completion, revision: int) -> None:
        """Somebody else decided a wait of ours, or a retry is due."""
        if revision != self.revision + 1:
            self.host.reload(self)  # something came before it that we were not told
            return
        self.revision = revision
        self.parked = False
        self._learn(completion)
        self._end_turn()

    def on_control(self, revision: int, *, pause: bool, cancel: bool) -> None:
        """Pause or cancel was asked for, or a pause was taken back."""
        if revision != self.revision + 1:
            self.host.reload(self)
            return
        self.revision = revision
        self.parked = False
        self._pausing = pause
        self.cancel_requested = cancel
        self._end_turn()

    def on_called(self, run: RunRecord, steps: Sequence[StepRecord]) -> None:
        """Another process has changed the run, which is still ours: this is how it is stored now."""
        if run.revision <= self.revision:  # nothing that is not known here
            self.acknowledge(run)
            return
        asked = (run.pause_requested != self._pausing) + (
            run.cancel_requested != self.cancel_requested
        )
        news = unseen(
            run,
            steps,
            revision=self.revision,
            asked=asked,
            standing=self._standing,
            resting=self._resting,
            now=self.host.time(),
        )
        if run.cancel_requested and not self.cancel_requested:
            self.withdraw_transactions()
        if news is None or self.outstanding or run.generation != self.generation:
            # What is under way may have been decided before the change, or after it.
            self.host.reload(self)
            return
        self.revision = run.revision
        self.parked = False
        self._pausing, self.cancel_requested = run.pause_requested, run.cancel_requested
        for one in news:
            self._learn(one)
        self._end_turn()
        self.acknowledge(run)

    def _learn(self, news: Completion | StepRecord) -> None:
        if news.state == "retrying":
            self._retry_now(news.path, news.attempt)
        else:
            self._feed(news)
            self._drain()

    def acknowledge(self, run: RunRecord) -> None:
        """Answer a call, unless an op of the turn does: or somebody else would take the run while a step is long."""
        if run.ready_at is not None and not (self.dead or self.finishing or self.is_asking):
            self._post(self._turn_op(ops.RecordStep))

    @property
    def is_asking(self) -> bool:
        """Whether an op is under way, to be answered soon. A transaction is none: its body may take long."""
        bodies = self._bodies.values()
        return self.outstanding > sum(isinstance(one, TransactionCall) for one in bodies)

    def on_body(self, call: StepCall[Any], done: ops.StepDone, value: Any, error: Any) -> None:
        """A step body ended: `value` and `error` are what its record will decode to."""
        self._bodies.pop(call.path, None)
        if self.dead:
            self._pass_on(done)
            return
        if self._standing.get(call.path) is not call:
            return  # the branch has left: a result that comes too late is dropped
        if self._cancelling:
            # What is being recorded says that the code is told of the cancel there: it does not go on with this,
            # unless that record is refused.
            self._spare[done.path] = done
            return
        if done.state == "retrying":
            self._unsaved += (done,)
            self._rest(call, done.attempt)
        elif len(self._standing) == 1 and not self.outstanding and not self.cancel_requested:
            # Nothing else can come first: go on at once (see the top of this file).
            self._unsaved += (done,)
            self._leave(call, done.recorded_at)
            self._drain(call.branch, value, error)
        else:
            self._record(call, done, value, error)
        self._end_turn()

    def on_transaction(self, call: TransactionCall[Any], op: Any, outcome: Any) -> None:
        """A transaction has ended, in the order of commits: with its record, with none, or withdrawn (no outcome)."""
        self._end_transaction(call)
        if self.host.counts is not None and isinstance(outcome, Advanced):
            self.host.counts.advanced(self.workflow.name, op, outcome)
        if self.dead:
            self._tell_quiet()
        elif isinstance(outcome, Advanced):
            value = None if call.work is None else call.work.value
            then = functools.partial(self._go_on, call, op.steps[0], value, None)
            self._on_advanced(op, outcome, then)
        elif isinstance(outcome, Fenced):
            self.host.on_lost(self)
        elif outcome is None:
            self._end_turn()
        else:
            # Nothing happened, or nobody knows: what is true is what the store has.
            self.host.reload(self, pause_s=_pause_s)

    def on_rolled_back(self, call: TransactionCall[Any], done: ops.StepDone, error: Any) -> None:
        """The body of a transaction has raised: an attempt as that of any step, of which nothing else is left."""
        self._end_transaction(call)
        if self.dead or self._standing.get(call.path) is call:
            self.on_body(call, done, None, error)
            self._tell_quiet()
        else:
            self._end_turn()

    def _end_transaction(self, call: TransactionCall[Any]) -> None:
        self.outstanding -= 1
        if self._bodies.get(call.path) is call:
            del self._bodies[call.path]

    def _pass_on(self, done: ops.StepDone) -> None:
        """The run was loaded anew while this body ran: its result belongs to the heir, now or soon."""
        if self._heir is None:
            self._spare[done.path] = done
            return
        call = self._heir._standing.get(done.path)
        if isinstance(call, StepCall):
            self._heir.on_body(call, done, *_settle_done(call, done))

    # --- the end of a turn ---

    def _end_turn(self) -> None:
        """Say what came of the turn, in as few ops as can be."""
        if self.dead or self.finishing:
            return
        if self._bodies and not self._fresh and not self._unsaved and not self._closed:
            ends = self._failure is not None or self._outcome is not None
            if not (ends or self.cancel_requested or self._continue is not None):
                return  # steps are in flight and nothing new has come up
        if self._newest is not None or self._unawaited is not None:
            self._notice_forgotten()
        if self._failure is not None:
            self._finish_with(self._turn_op(ops.Park, reason=limits.storable(str(self._failure))))
        elif self._pausing and (self._outcome is not None or self._continue is not None):
            self._wind_down()  # its end is its next step: it comes when it is resumed
        elif self._outcome is not None:
            self._finish_with(self._finish_op(*self._outcome))
        elif self._continue is not None:
            self._finish_with(
                self._turn_op(
                    ops.ContinueAs,
                    workflow=self._continue.op.workflow,
                    version=self._continue.op.version,
                    input=self._continue.op.input,
                )
            )
        elif self.cancel_requested and not self._cancel_recorded:
            self._record_cancel()
        elif self._pausing:
            self._wind_down()
        else:
            self._act()

    def _notice_forgotten(self) -> None:
        """An end that leaves calls behind which were made and not awaited is none: the code has forgotten them."""
        if self._failure is not None:
            return
        # Of several branches one may go on to the next generation while others hold calls that they come to later.
        goes_on = self._continue is not None and not self._standing
        if self._outcome is None and not goes_on:
            return
        error = not_awaited(self.unawaited)
        about = {"run_id": self.run_id, "workflow": self.workflow.name}
        log.error("run %r of workflow %r: %s", *about.values(), error, extra=about)
        if self._outcome is None or self._outcome[1] is None:
            self._outcome = (None, error)  # else it ends with its own error, which says more
        self._newest = self._unawaited = None

    def _finish_with(self, op: ops.TurnOp) -> None:
        self.finishing = True
        if self._bodies:
            self.stop_bodies()
        self._post(op)

    def _record_cancel(self) -> None:
        # The record names where branches stand, so a transaction is decided before it: rolled back, if that can be.
        self.withdraw_transactions()
        if not self.outstanding:
            self._fresh = None
            self._cancelling = True
            self._post(self._turn_op(ops.RecordCancel, paths=tuple(self._standing)))

    def _wind_down(self) -> None:
        """Pausing: what is in flight is still recorded, nothing new begins."""
        if self._fresh:
            self._fresh = [one for one in self._fresh if not self._use_spare(one)]
        if self._bodies or self.outstanding or self._unsaved:
            # Results go alone, in an op that nothing can refuse: a resume may come before the park, and what
            # the code does next would then be recorded without what led to it.
            self._save()
            return
        self._post(self._turn_op(ops.Suspend, park=True))

    def _act(self) -> None:
        fresh, self._fresh = self._fresh or (), None
        waits: list[ops.Wait] = []
        bodies: list[StepCall[Any]] = []
        for call in fresh:
            if self._standing.get(call.path) is not call:
                continue  # cancelled before it began
            if isinstance(call, StepCall):
                if self._is_due(call):
                    bodies.append(call)
            elif isinstance(call, WaitCall):
                if not call.opened:
                    call.opened = True
                    waits.append(_wait_of(call, known=call.path in self._known))
            elif isinstance(call, SendCall):
                self._post_send(call)
        if bodies and (self._unsaved or self._must_mark(bodies)):
            # The next body may use this result: it must be recorded before the body runs.
            self._post(self._turn_op(ops.RecordStep), functools.partial(self._begin, bodies))
        elif bodies:
            self._begin(bodies)
        if waits or not bodies or self._closed:
            self._suspend(waits)

    def _must_mark(self, bodies: list[StepCall[Any]]) -> bool:
        """Whether marks must be committed first: a transaction is recorded by itself, without them."""
        if self._patches is None or not self._patches.pending:
            return False
        return any(isinstance(one, TransactionCall) for one in bodies)

    def _is_due(self, call: StepCall[Any]) -> bool:
        """Whether the body of this step is to begin now."""
        if not (self._known or self._spare or self._bodies):
            return True  # nothing is known from before
        if self._use_spare(call) or call.path in self._bodies:
            return False  # ended, or still running, since before the reload
        known = self._known.get(call.path)
        if known is not None and (known.retry_at or 0) > self.host.time():
            self._rest(call, known.attempt)
            return False
        return True

    def _use_spare(self, call: Durable[Any]) -> bool:
        """Whether the body of this step ended while the run was being loaded anew; then it is recorded."""
        if not isinstance(call, StepCall) or self._standing.get(call.path) is not call:
            return False
        known = self._known.get(call.path)
        if known is not None:
            call.attempt = known.attempt + 1
        spare = self._spare.pop(call.path, None)
        if spare is None or spare.attempt < call.attempt:
            return False
        if spare.state == "retrying":
            self._unsaved += (spare,)
            self._rest(call, spare.attempt)
        else:
            self._record(call, spare, *_settle_done(call, spare))
        return True

    def _suspend(self, waits: list[ops.Wait]) -> None:
        idle = not self._bodies and not self.outstanding and not self._runnable
        if waits or (idle and not self.parked and self._standing):
            release = idle and self.host.release_on_park()
            op = self._turn_op(ops.Suspend, waits=tuple(waits), park=idle, release=release)
            self._post(op)
        elif self._unsaved or self._closed:
            self._save()

    def _save(self) -> None:
        if self._unsaved or self._closed:
            self._post(self._turn_op(ops.RecordStep))

    def _record(self, call: StepCall[Any], done: ops.StepDone, value: Any, error: Any) -> None:
        """Record a result first and feed it once committed: other branches may come before it."""
        op = ops.RecordStep(
            run_id=self.run_id,
            fence=self.fence,
            revision=self.revision,
            steps=self._with_marks((done,)),
        )
        self._note_posted(call)
        self._post(op, functools.partial(self._go_on, call, done, value, error))

    def _go_on(self, call: StepCall[Any], done: ops.StepDone, value: Any, error: Any) -> None:
        if self._standing.get(call.path) is call:
            self._leave(call, done.recorded_at)
            self._let_run(call.branch, value, error)

    def _reject(self, call: WaitCall[Any], rejected: Rejected) -> None:
        call.opened = True  # by this op, also when a replay has only just come to it
        self._post(
            ops.RejectSignal(
                run_id=self.run_id,
                fence=self.fence,
                revision=self.revision,
                steps=self._with_marks(()),
                path=call.path,
                wait=_wait_of(call, known=True),
                reason=str(rejected),
                passed=rejected.passed,
            )
        )

    def _note_posted(self, call: Durable[Any]) -> None:
        self._posted = self._posted or set()
        self._posted.add(call.path)

    def _post_send(self, call: SendCall[Any]) -> None:
        self._note_posted(call)
        self._post(
            self._turn_op(
                ops.RecordSend,
                path=call.path,
                kind=call.kind,
                name=call.name,
                send=call.send,
                value=call.value,
            )
        )

    # --- ops and their answers ---

    def _turn_op(self, kind: type[Any], /, **fields: Any) -> Any:
        steps, self._unsaved = self._unsaved, ()
        if self._closed:
            fields["closed"] = tuple(self._closed)
            self._closed = None
        return kind(
            run_id=self.run_id,
            fence=self.fence,
            revision=self.revision,
            steps=self._with_marks(steps),
            **fields,
        )

    def _with_marks(self, steps: tuple[ops.StepDone, ...]) -> tuple[ops.StepDone, ...]:
        """Results with the marks of `ctx.patched` that are not known to be recorded, before what rests on them."""
        if self._patches is None or not self._patches.pending:
            return steps
        return (*self._patches.pending.values(), *steps)

    def _post(self, op: ops.TurnOp, then: Callable[[], None] | None = None) -> None:
        self.outstanding += 1
        if self.turn is not None:
            self.turn.posts(self, op)
        # No bound method and no closure: what lives as long as the commit, the collector walks through.
        self.host.post(op, _on_ack, self if then is None else (self, then))

    def _answered(self, op: ops.TurnOp, outcome: Any, then: Callable[[], None] | None) -> None:
        self.outstanding -= 1
        if self.host.counts is not None and isinstance(outcome, Advanced):
            self.host.counts.advanced(self.workflow.name, op, outcome)
        if self.dead:
            if not isinstance(outcome, Advanced):
                self._keep(op)  # for the heir, which is loaded when nothing is outstanding any more
            self._tell_quiet()
            return
        if isinstance(outcome, Advanced):
            self._on_advanced(op, outcome, then)
        elif isinstance(outcome, Fenced):
            self.host.on_lost(self)
        else:
            # Moved; or the store failed or does not know: what is true is what it has.
            self._keep(op)
            self.host.reload(self, pause_s=_pause_s if isinstance(outcome, Exception) else 0.0)

    def _keep(self, op: ops.TurnOp) -> None:
        """A refused op's results are not lost: the reloaded run uses them if it still asks."""
        for done in op.steps:
            if done.kind != "patch":  # the heir's code asks anew
                self._spare[done.path] = done

    def _on_advanced(
        self, op: ops.TurnOp, outcome: Advanced, then: Callable[[], None] | None
    ) -> None:
        if self._patches is not None and self._patches.pending:
            self._patches.committed(op.steps)
        if self.turn is not None:
            self.turn.answered(op, outcome)
        if outcome.revision != self.revision and not outcome.paused:
            # Another process changed the run and its hint has not reached us. The op stands; what we hold
            # does not.
            self.host.reload(self)
            return
        self._pausing = outcome.pause_requested
        self.cancel_requested = outcome.cancel_requested
        if isinstance(op, ops.ContinueAs):
            self._spare.clear()
            self.host.reload(self)
            return
        if isinstance(op, ops.Finish | ops.Park) or outcome.paused:
            self.host.on_over(self)
            return
        if then is not None:
            then()
        if self._runnable:
            self._drain()
        for completion in outcome.completions:
            self._feed(completion)
            self._drain()
        if outcome.parked:
            self.parked = True
            released = isinstance(op, ops.Suspend) and op.release
            self.host.on_parked(self, released)
            if released:
                return
        self._end_turn()

    def _begin(self, bodies: list[StepCall[Any]]) -> None:
        """Start step bodies, unless their branch has left or the run is to stand still."""
        hold = self._pausing or (self.cancel_requested and not self._cancel_recorded)
        for call in bodies:
            if self._standing.get(call.path) is not call:
                continue
            if hold:
                self._note_fresh(call)
            else:
                self._run(call)

    def _run(self, call: StepCall[Any]) -> None:
        self._bodies[call.path] = call
        if self.turn is not None:
            self.turn.goes_on(self)
        if isinstance(call, TransactionCall):
            # It is recorded by itself, so it counts as an op: nobody reads the history anew before it is decided.
            self.outstanding += 1
            self.host.run_transaction(call)
        else:
            self.host.run_body(call)

    # --- the end of a run ---

    def _finish_op(self, value: Any, error: BaseException | None) -> ops.Finish:
        status, output, why = "completed", None, None
        if error is None and not self._cancel_recorded:
            try:
                output = self.workflow.codec.encode(value)
            except Unencodable as unencodable:
                error = unencodable
        if error is not None and not (is_cancel(error) and self._cancel_recorded):
            status, why = "failed", run_failure(error)
        elif output is None:
            status = "cancelled"
        op: ops.Finish = self._turn_op(ops.Finish, status=status, output=output, error=why)
        return op

    # --- for a rehearsal ---

    @property
    def failure(self) -> PerdureError | None:
        """Why the run cannot go on with this code."""
        return self._failure

    @property
    def standing(self) -> list[Durable[Any]]:
        """The calls at which its branches stand."""
        return list(self._standing.values())

    def break_off(self, error: Exception) -> None:
        """The engine failed on this run outside its code: park it with the reason, so that it is seen."""
        failure = broken(self.run_id, error)
        if not self.dead and not self.finishing:
            self._failure = failure
            self._finish_with(self._turn_op(ops.Park, reason=limits.storable(str(failure))))

    # --- leaving memory ---

    def hand_over(
        self, heir: "Execution"
    ) -> tuple[dict[str, StepCall[Any]], dict[str, ops.StepDone]]:
        """For a reload: bodies in flight and results that are not recorded yet go to the heir."""
        self._heir = heir
        for done in self._unsaved:
            self._spare[done.path] = done
        return self._bodies, self._spare

    def _tell_quiet(self) -> None:
        if self._quiet is not None and not self.outstanding:
            self._quiet.set()

    async def quiet(self) -> None:
        """Until every op that was posted before the eviction is decided."""
        if self.outstanding:
            self._quiet = asyncio.Event()
            await self._quiet.wait()

    def evict(self) -> None:
        """Unwind the code without recording anything. Synchronous `finally` blocks run."""
        if self.dead:
            return
        self.dead = True
        if self.turn is not None:
            self.turn.leaves()
        leaves = [one.branch for one in self._standing.values()]
        if self._continue is not None:
            leaves.append(self._continue.branch)
        if leaves or self._runnable:
            self._unwind(leaves)

    def withdraw_transactions(self) -> None:
        """Have those under way rolled back, where it is not too late. Each is told of when it is decided."""
        for call in self._bodies.values():
            if isinstance(call, TransactionCall):
                call.cancel_body()

    def stop_bodies(self) -> None:
        """Cancel the step bodies in flight: the run is no longer ours."""
        for call in self._bodies.values():
            call.cancel_body()
        self._bodies.clear()


def _on_ack(op: ops.TurnOp, outcome: Any, extra: Any) -> None:
    execution, then = extra if type(extra) is tuple else (extra, None)
    execution._answered(op, outcome, then)


def _wait_of(call: WaitCall[Any], *, known: bool) -> ops.Wait:
    on = tuple(clause.condition for clause in call.clauses)
    branch = None
    if call.branch.prefix and not call.path.startswith(call.branch.prefix):
        branch = branch_of(call.branch.prefix)  # made outside the gather whose branch awaits it
    return ops.Wait(
        path=call.path,
        kind=call.kind,
        name=call.name,
        on=on,
        known=known,
        branch=branch,
        announced=call.announced,
        handles_timeout=call.handles_timeout,
    )


def _settle_done(call: StepCall[Any], done: ops.StepDone) -> tuple[Any, BaseException | None]:
    if done.state == "retrying":
        return None, None  # nothing to decode: it is tried again
    completion = Completion(
        done.path, "step", done.state, 0, done.value, done.error, None, done.recorded_at
    )
    return call.settle(completion)
