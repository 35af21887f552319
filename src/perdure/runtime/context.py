"""What workflow code sees: the context.

Every method here only makes a call with a path; nothing runs and nothing is written until it is awaited. What is
synchronous (now, random, ulid) is derived from what the history has shown so far, so that a replay sees it again.
"""

import functools
import hashlib
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    NoReturn,
    ParamSpec,
    TypeVar,
    TypeVarTuple,
    overload,
)

from msgspec import Raw, json
from msgspec.structs import replace

from perdure.approvals import with_id
from perdure.channels import (
    AnyOf,
    Clause,
    Plain,
    Queue,
    RunEnd,
    Signal,
    Timer,
    Topic,
    Waitable,
    Won,
    timer,
)
from perdure.errors import ForeignAwait, InvalidPayload, NotAsked
from perdure.inputs import (
    Fact,
    as_fact,
    checked_moment,
    encoded_input,
    encoded_item,
    is_whole,
    new_event,
    new_item,
    new_signal,
    new_start,
)
from perdure.model import limits
from perdure.model.clock import to_datetime
from perdure.model.codec import Unencodable, codec_for
from perdure.model.duration import Duration
from perdure.model.events import Cause
from perdure.model.ids import derived_ulid
from perdure.model.limits import BadValue, check_name
from perdure.model.ops import ContinueAs, Emit
from perdure.model.outcomes import Sent, Taken, Told
from perdure.model.records import Condition, StepKind
from perdure.model.streams import REPLIES, Reply
from perdure.model.ticks import tick_of
from perdure.pools import Pool
from perdure.registry import Step, Workflow
from perdure.runtime.calls import (
    ActCall,
    ContinueCall,
    Durable,
    Facts,
    GatherCall,
    SendCall,
    StepCall,
    TransactionCall,
    Unbegun,
    WaitCall,
    read_answer,
    read_answers,
    read_child,
    read_nothing,
    read_only_answer,
    read_position,
)
from perdure.runtime.paths import Within, check_prefix
from perdure.runtime.sagas import Saga

if TYPE_CHECKING:
    from perdure.runtime.turn import Execution

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D", bound=Durable[Any])
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
Ts = TypeVarTuple("Ts")

_untyped = codec_for(Any)
_ours = globals()


class RunLog(logging.LoggerAdapter[logging.Logger]):
    """A logger that says which run speaks, and is quiet while the run only replays."""

    def __init__(self, execution: "Execution") -> None:
        super().__init__(logging.getLogger("perdure.workflow"))
        self._execution = execution

    def isEnabledFor(self, level: int) -> bool:
        return not self._execution.replaying and self.logger.isEnabledFor(level)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        execution = self._execution
        facts = {"run_id": execution.run_id, "workflow": execution.workflow.name}
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **facts}
        return f"[{execution.run_id}] {msg}", kwargs


class Context:
    """The door between workflow code and the engine. One for each run; it works only in that run's code."""

    __slots__ = ("_execution", "_log")

    def __init__(self, execution: "Execution") -> None:
        self._execution = execution
        self._log: RunLog | None = None

    # --- facts, without a commit ---

    @property
    def run_id(self) -> str:
        return self._execution.run_id

    @property
    def event_id(self) -> str | None:
        """The event that a subscription started this run for; None for a run that was started otherwise."""
        return self._execution.event_id

    @property
    def tick(self) -> datetime | None:
        """The tick of the schedule that started this run, or when it was triggered; None for any other run."""
        return tick_of(self._execution.tags)

    @property
    def log(self) -> RunLog:
        """A standard logger that is quiet on replay."""
        if self._log is None:
            self._log = RunLog(self._execution)
        return self._log

    def now(self) -> datetime:
        """The time of the last thing this run learnt; the same on every replay."""
        return to_datetime(self._execution.now)

    def random(self) -> float:
        """Uniform in [0, 1); the same on every replay."""
        return int.from_bytes(self._chance("random")[:7]) / 2**56

    def ulid(self) -> str:
        """A new id; the same on every replay."""
        return derived_ulid(self._chance("ulid"), self._execution.now, 0)

    def _id_at(self, path: str, nth: int = 0) -> str:
        """The id of what is sent at a path: another one each time that a retry has it sent anew."""
        execution = self._execution
        seed = f"{execution.run_id}/{execution.generation}/{path}/{execution.retries}"
        return derived_ulid(seed, execution.now, nth)

    def _chance(self, purpose: str) -> bytes:
        scope = self._execution.current_branch()
        scope.chance += 1
        execution = self._execution
        drawn_by = execution.chance_id(scope.prefix)
        seed = f"{drawn_by}/{execution.generation}/{scope.prefix}/{purpose}/{scope.chance}"
        return hashlib.blake2b(seed.encode(), digest_size=16).digest()

    def patched(self, name: str) -> bool:
        """Whether the run takes the new way here, where the code was changed: `if ctx.patched("new-tax"): …`.

        True for a run that comes here for the first time, and from then on. False for one that has passed here under
        the older code: it keeps to the old way. The answer is the same on every replay. Each branch has its own.
        """
        return self._execution.patched(check_name("patch", name))

    def dep(self, kind: type[T]) -> T:
        """The object of that type given as App(deps=[…])."""
        return self._execution.host.dep(kind)

    # --- steps ---

    @overload
    def step(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Durable[R]: ...
    @overload
    def step(
        self, step: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Durable[R]: ...
    @overload
    def step(self, step: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Durable[R]: ...
    def step(self, step: Any, /, *args: Any, **kwargs: Any) -> Durable[Any]:
        """Run a step once and record its result; a replay takes the record."""
        made = step if type(step) is Step else self._execution.host.as_step(step)
        execution = self._execution
        path = execution.current_branch().allocate(made.name)
        call: StepCall[Any] = StepCall(execution, path, made, args, kwargs)
        execution.made(call, sys._getframe(1))
        return call

    def _made(self, call: D) -> D:
        """A call for whoever asked us: it is theirs to await it."""
        frame = sys._getframe(2)
        while frame.f_globals is _ours and frame.f_back is not None:
            frame = frame.f_back
        self._execution.made(call, frame)
        return call

    @overload
    def transaction(
        self, step: Step[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Durable[R]: ...
    @overload
    def transaction(
        self,
        step: Callable[Concatenate[Any, P], Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Durable[R]: ...
    @overload
    def transaction(
        self, step: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Durable[R]: ...
    def transaction(self, step: Any, /, *args: Any, **kwargs: Any) -> Durable[Any]:
        """Run a step whose first argument is a connection to the store's own database, in a transaction.

        What it writes there and its record are committed together: exactly once for rows of that database.
        """
        host = self._execution.host
        made = step if type(step) is Step else host.as_step(step)
        host.check_transaction(made)
        path = self._execution.current_branch().allocate(made.name)
        return self._made(TransactionCall(self._execution, path, made, args, kwargs))

    def _act(
        self,
        step: Step[..., Any],
        *args: Any,
        kind: StepKind = "act",
        tells: Callable[[str, str | None, str | None], Facts] | None = None,
    ) -> Durable[Any]:
        """A step of a play, which says what the ledger is told of it."""
        path = self._execution.current_branch().allocate(step.name)
        return self._made(ActCall(self._execution, path, step, args, kind, tells))

    # --- waiting ---

    def sleep(self, duration: Duration) -> Durable[None]:
        """Go on after this span of time, by the store's clock; it survives everything."""
        return self._sleep(timer(duration))

    def sleep_until(self, moment: datetime) -> Durable[None]:
        """Go on at this time (an aware datetime)."""
        until_at = checked_moment("ctx.sleep_until", moment)
        return self._sleep(Timer(Condition("timer", until_at=until_at)))

    def _sleep(self, until: Timer, name: str = "sleep") -> Durable[None]:
        path = self._execution.current_branch().allocate(name)
        return self._made(WaitCall(self._execution, path, name, until.clauses(), kind="sleep"))

    def wait(
        self, what: Waitable[T], *, timeout: Duration | None = None, name: str | None = None
    ) -> Durable[T]:
        """Wait for a signal, a topic, a queue, a run, people, a timer, or the first of several with `|`.

        With `timeout` it raises WaitTimeout; a `timer` in the condition gives TimedOut() as a value instead.
        """
        if not isinstance(what, Waitable):
            raise BadValue(
                "ctx.wait",
                what,
                "takes a signal, topic, queue, run, approval or timer, or several with `|`",
            )
        clauses = what.clauses()
        timeout_ix = None
        if timeout is not None:
            timeout_ix = len(clauses)
            clauses = (*clauses, *timer(timeout).clauses())
        name = _wait_name(clauses) if name is None else check_name("wait", name)
        self._note(clauses)
        path = self._execution.current_branch().allocate(name)
        clauses = self._asked_at(path, clauses)
        call: WaitCall[T] = WaitCall(self._execution, path, name, clauses, timeout_ix=timeout_ix)
        call.announced = any(one.signal is not None and one.signal.announce for one in clauses)
        return self._made(call)

    def first(self, **named: Waitable[Any]) -> Durable[Won[Any]]:
        """Wait for the first of named conditions: `won.name` says which, `won.value` what it brought."""
        if not named:
            raise BadValue("ctx.first", "nothing", "needs at least one named condition")
        names: list[str] = []
        for name, one in named.items():
            if not isinstance(one, Waitable):
                raise BadValue(
                    f"ctx.first({name}=…)",
                    one,
                    "takes a signal, topic, queue, run, approval or timer",
                )
            names += [name] * len(one.clauses())
        clauses = AnyOf(tuple(named.values())).clauses()
        self._note(clauses)
        path = self._execution.current_branch().allocate("first")
        clauses = self._asked_at(path, clauses)
        call: WaitCall[Won[Any]] = WaitCall(
            self._execution, path, "first", clauses, names=tuple(names)
        )
        call.announced = any(one.signal is not None and one.signal.announce for one in clauses)
        return self._made(call)

    def _note(self, clauses: tuple[Clause, ...]) -> None:
        """Let the catalogue know which signals, topics and queues this workflow waits for; check filters."""
        execution = self._execution
        for clause in clauses:
            if clause.signal is not None:
                if clause.signal.name not in execution.workflow.signals:
                    execution.host.note_signal(execution.workflow, clause.signal)
            elif clause.channel is not None:
                execution.host.note_channel(clause.channel)
                if clause.condition.filter:
                    execution.host.check_filter(clause.condition.filter)

    def _asked_at(self, path: str, clauses: tuple[Clause, ...]) -> tuple[Clause, ...]:
        """Approvals with the ids that they have at this place: the same on every replay, others after a retry."""
        if not any(one.asks_people for one in clauses):
            return clauses
        if any(one.where is not None for one in clauses):
            # Each event would close the approval until the run has judged it, and people would be asked anew.
            raise BadValue(
                "where",
                limits.unsaid,
                "cannot be a Python function in a wait that also asks people: write it in CEL",
            )
        return tuple(
            replace(one, condition=with_id(one.condition, self._id_at(path, nth)))
            if one.asks_people
            else one
            for nth, one in enumerate(clauses)
        )

    # --- branches ---

    @overload
    async def gather(self, one: Awaitable[T1], /) -> tuple[T1]: ...
    @overload
    async def gather(self, one: Awaitable[T1], two: Awaitable[T2], /) -> tuple[T1, T2]: ...
    @overload
    async def gather(
        self, one: Awaitable[T1], two: Awaitable[T2], three: Awaitable[T3], /
    ) -> tuple[T1, T2, T3]: ...
    @overload
    async def gather(
        self,
        one: Awaitable[T1],
        two: Awaitable[T2],
        three: Awaitable[T3],
        four: Awaitable[T4],
        /,
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    async def gather(self, *branches: Awaitable[T]) -> tuple[T, ...]: ...
    def gather(self, *branches: Awaitable[Any]) -> Coroutine[Any, Any, tuple[Any, ...]]:
        """Run branches side by side and give all results; the first error cancels the others."""
        return self._gathered(self._made(Unbegun(self._execution, "gather", "gather")), branches)

    async def _gathered(
        self, begun: Unbegun, branches: tuple[Awaitable[Any], ...]
    ) -> tuple[Any, ...]:
        self._execution.taken(begun)
        for one in branches:
            if isinstance(one, Durable):
                self._execution.taken(one)
        try:
            makers = [_branch(one) for one in branches]
            return tuple(await self._gather("gather", makers, len(makers)))
        finally:
            _close_unbegun(branches)

    @overload
    async def map(
        self, function: Step[[T], R], items: Iterable[T], *, concurrency: int | None = None
    ) -> list[R]: ...
    @overload
    async def map(
        self,
        function: Callable[[T], Awaitable[R]],
        items: Iterable[T],
        *,
        concurrency: int | None = None,
    ) -> list[R]: ...
    def map(
        self,
        function: Any,
        items: Iterable[Any],
        *,
        concurrency: int | None = None,
    ) -> Coroutine[Any, Any, list[Any]]:
        """One branch for each item, at most `concurrency` at a time; results in the items' order."""
        begun = self._made(Unbegun(self._execution, "map", "map"))
        return self._mapped(begun, function, items, concurrency)

    async def _mapped(
        self, begun: Unbegun, function: Any, items: Iterable[Any], concurrency: int | None
    ) -> list[Any]:
        self._execution.taken(begun)
        listed = list(items)
        if concurrency is not None and not is_whole(concurrency, 1):
            raise BadValue("concurrency", concurrency, "must be a whole number, at least 1")

        made = functools.partial(self.step, function) if isinstance(function, Step) else function
        makers: list[Callable[[], Coroutine[Any, Any, Any]]]
        makers = [functools.partial(_called, made, item) for item in listed]
        return list(await self._gather("map", makers, concurrency or len(makers)))

    def _gather(
        self, name: str, makers: Sequence[Callable[[], Coroutine[Any, Any, Any]]], concurrency: int
    ) -> Durable[list[Any]]:
        if len(makers) > limits.branches_max:
            raise BadValue(f"ctx.{name}", len(makers), f"branches; at most {limits.branches_max}")
        path = self._execution.current_branch().allocate(name)
        check_prefix(f"{path}[{len(makers)}]/")
        return GatherCall(self._execution, path, makers, concurrency)

    def scope(self, name: str) -> AbstractContextManager[None]:
        """Put the paths of the calls inside under `name/`."""
        return Within(self._execution, check_name("scope", name))

    def saga(self, name: str = "saga") -> Saga:
        """`async with ctx.saga() as saga`: what `saga.on_rollback` was told is undone if the code inside fails."""
        return Saga(self, name)

    # --- other runs ---

    def start(
        self,
        workflow: Workflow[R, *Ts],
        *args: *Ts,
        id: str | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
    ) -> Durable[RunEnd[R]]:
        """Start a child run, once. What comes back can be waited for. At its `deadline` it is cancelled."""
        workflow = self._execution.host.registry.of(workflow)
        path = self._execution.current_branch().allocate(workflow.name)
        return self._start(
            *(path, workflow, encoded_input(workflow, args)[0], id, key, tags, entity, deadline),
            *(pool, pool_key, priority, trace),
        )

    def _start(
        self,
        path: str,
        workflow: Workflow[R, *tuple[Any, ...]],
        input: str,
        id: str | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
        name: str | None = None,
    ) -> Durable[RunEnd[R]]:
        execution = self._execution
        made = new_start(
            *(lambda: self._id_at(path), workflow, input, id, key, tags, entity, deadline),
            *(pool, pool_key, priority, trace),
        )
        # Not fresh: the id is the same on every replay.
        op = replace(made, fresh=False, parent_run_id=execution.run_id, parent_path=path)
        read = read_child(workflow.codec)
        return self._made(SendCall(execution, path, name or workflow.name, "start", op, read=read))

    def call(
        self,
        workflow: Workflow[R, *Ts],
        *args: *Ts,
        id: str | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
    ) -> Coroutine[Any, Any, R]:
        """Start a child run and wait for its result; its failure is raised here as RunFailed.

        At its `deadline` it is cancelled, and RunCancelled raised.
        """
        workflow = self._execution.host.registry.of(workflow)
        return self._call_as(
            workflow.name,
            workflow,
            encoded_input(workflow, args)[0],
            id=id,
            entity=entity,
            deadline=deadline,
            pool=pool,
            pool_key=pool_key,
            priority=priority,
            trace=trace,
        )

    def _call_as(
        self,
        name: str,
        workflow: Workflow[R, *tuple[Any, ...]],
        input: str,
        **options: Any,
    ) -> Coroutine[Any, Any, R]:
        """Call a child run under a name of its own. Paths come first: a branch may await it that did not make it."""
        workflow = self._execution.host.registry.of(workflow)
        path = self._execution.current_branch().allocate(name)
        result_path = self._execution.current_branch().allocate(f"{name}.result")
        start = self._start(path, workflow, input, name=name, **options)
        return self._call(start, result_path, f"{name}.result")

    async def _call(self, start: Durable[RunEnd[R]], result_path: str, name: str) -> R:
        child = await start
        result: R = await WaitCall(self._execution, result_path, name, child.clauses())
        return result

    @overload
    def signal(
        self,
        run_id: str,
        signal: Signal[T],
        payload: T | Plain,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
    ) -> Durable[Sent]: ...
    @overload
    def signal(
        self,
        run_id: str,
        signal: Signal[None] | str,
        payload: Any = None,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
    ) -> Durable[Sent]: ...
    def signal(
        self,
        run_id: str,
        signal: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
    ) -> Durable[Sent]:
        """Send a signal to a run, once; a refusal is recorded and raised again on replay."""
        own_path = self._execution.current_branch().allocate(f"signal.{_name_of('signal', signal)}")
        op = new_signal(self._id_at(own_path), run_id, signal, payload, key, path, buffer)
        return self._made(
            SendCall(self._execution, own_path, op.name, "signal", op, read=read_answer)
        )

    # --- facts and items ---

    @overload
    def emit(
        self,
        topic: Topic[T],
        payload: T | Plain,
        *,
        entity: str | None = None,
        key: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        trace: str | None = None,
    ) -> Durable[Told]: ...
    @overload
    def emit(
        self,
        topic: Topic[None] | str,
        payload: Any = None,
        *,
        entity: str | None = None,
        key: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        trace: str | None = None,
    ) -> Durable[Told]: ...
    def emit(
        self,
        topic: Any,
        payload: Any = None,
        *,
        entity: str | None = None,
        key: str | None = None,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        trace: str | None = None,
    ) -> Durable[Told]:
        """Put an event on the ledger, once, in the commit that records it; it knows that this run caused it."""
        fact = Fact(
            topic=topic,
            payload=payload,
            entity=entity,
            key=key,
            event_id=event_id,
            occurred_at=occurred_at,
            trace=trace,
        )
        return self._emit(_name_of("topic", topic), [fact], read_only_answer)

    def emit_many(self, events: Iterable[Fact | tuple[Any, ...]]) -> Durable[list[Told]]:
        """Put several events on the ledger as one step: all of them, or none if one is refused."""
        if not isinstance(events, Iterable):
            raise BadValue("events", events, "are not several: give a list of events")
        facts = [as_fact(one) for one in events]
        if len(facts) > limits.events_per_op_max:
            bound = f"at most {limits.events_per_op_max} (events_per_op_max)"
            raise BadValue("ctx.emit_many", len(facts), f"events at once; {bound}")
        return self._emit("many", facts, read_answers)

    def _emit(self, name: str, facts: list[Fact], read: Callable[[str], T]) -> Durable[T]:
        execution = self._execution
        path = execution.current_branch().allocate(f"emit.{name}")
        cause = Cause(run_id=execution.run_id, path=path, event_id=execution.event_id)
        trace = execution.trace
        made = [
            new_event(
                execution.host.registry,
                replace(fact, caused_by=cause, trace=trace if fact.trace is None else fact.trace),
                self._id_at(path, nth),
            )
            for nth, fact in enumerate(facts)
        ]
        return self._made(
            SendCall(execution, path, name, "emit", Emit(events=tuple(made)), read=read)
        )

    @overload
    def put(
        self, queue: Queue[T], payload: T | Plain, *, key: str | None = None
    ) -> Durable[Taken]: ...
    @overload
    def put(
        self, queue: Queue[None] | str, payload: Any = None, *, key: str | None = None
    ) -> Durable[Taken]: ...
    def put(self, queue: Any, payload: Any = None, *, key: str | None = None) -> Durable[Taken]:
        """Put an item into a queue, once; it goes to the run that waits longest, or is kept."""
        execution = self._execution
        path = execution.current_branch().allocate(f"put.{_name_of('queue', queue)}")
        op = new_item(execution.host.registry, queue, payload, key, self._id_at(path))
        return self._made(SendCall(execution, path, op.queue, "put", op, read=read_answer))

    def set(self, key: str, value: Any) -> Durable[None]:
        """Publish a value that outsiders read with `run.get(key)`."""
        name = check_name("published", key)
        try:
            text = _untyped.encode(value)
        except Unencodable as error:
            raise InvalidPayload(f"ctx.set({key!r})", [str(error)]) from error
        path = self._execution.current_branch().allocate(f"set.{name}")
        return self._made(
            SendCall(self._execution, path, name, "set", None, value=text, read=read_nothing)
        )

    # --- to those who read along, and who ask ---

    def publish(self, stream: str, item: Any) -> Durable[int]:
        """Add an item to a stream of this run, once, in the commit that records it; gives its position.

        Whoever reads `run.stream(stream)` gets it, in whichever process. A stream keeps its newest items.
        """
        name = check_name("stream", stream)
        text = encoded_item(f"ctx.publish({stream!r})", item)
        path = self._execution.current_branch().allocate(f"publish.{name}")
        return self._made(
            SendCall(self._execution, path, name, "publish", None, value=text, read=read_position)
        )

    def reply(self, value: Any = None) -> Durable[None]:
        """Answer the signal that this branch of the code has received last, for whoever sent it with `app.ask`.

        A branch of a gather begins with the signal that the code around it had received. Raises NotAsked if there is
        none. Of several replies to one signal the first counts.
        """
        execution = self._execution
        branch = execution.current_branch()
        if branch.received is None and not execution.dead:
            raise NotAsked(execution.run_id)
        text = encoded_item("ctx.reply", value)
        reply = Reply(branch.received or "", Raw(text.encode()))
        path = branch.allocate("reply")
        item = json.encode(reply).decode()
        return self._made(
            SendCall(execution, path, REPLIES, "publish", None, value=item, read=read_nothing)
        )

    def continue_as(self, workflow: Workflow[Any, *Ts], *args: *Ts) -> Durable[NoReturn]:
        """End this generation and go on as the next, with fresh history, in one commit."""
        self._execution.current_branch()
        execution = self._execution
        found = execution.host.registry.of(workflow)
        op = ContinueAs(
            run_id=execution.run_id,
            fence=0,
            revision=0,
            workflow=found.name,
            version=found.version,
            input=encoded_input(found, args)[0],
        )
        return self._made(ContinueCall(execution, op))


def _branch(one: Awaitable[Any]) -> Callable[[], Coroutine[Any, Any, Any]]:
    if not isinstance(one, Durable | Coroutine):
        raise ForeignAwait(
            f"ctx.gather takes durable calls and coroutines of them, not {type(one).__name__}"
        )
    return lambda: _await(one)


def _close_unbegun(branches: tuple[Awaitable[Any], ...]) -> None:
    """Coroutines that never got to run (the gather was refused, the run unwound) are put away quietly."""
    for one in branches:
        if inspect.iscoroutine(one) and inspect.getcoroutinestate(one) == inspect.CORO_CREATED:
            one.close()


async def _called(function: Callable[[Any], Awaitable[T]], item: Any) -> T:
    """The function is called by the branch itself: what it raises is the branch's, and so are its paths."""
    return await function(item)


async def _await(one: Awaitable[T]) -> T:
    return await one


def _name_of(kind: str, channel: Any) -> str:
    """For the path, which comes before all other checks; what is no channel is refused by them."""
    return check_name(kind, channel) if isinstance(channel, str) else getattr(channel, "name", "")


def _wait_name(clauses: tuple[Clause, ...]) -> str:
    names = [
        "run" if clause.condition.kind == "run" else clause.condition.target
        for clause in clauses
        if clause.condition.kind != "timer"
    ]
    joined = "|".join(names) or "timer"
    return joined if len(joined.encode()) <= limits.name_bytes_max else "wait"
