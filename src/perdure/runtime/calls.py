"""Durable calls: what workflow code awaits.

A call gets its path when it is made and yields itself to the trampoline when it is awaited. It knows how to turn
the recorded completion back into a value or an error, so the first run and every replay see the same.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from types import CodeType
from typing import Any, Generic, TypeVar

import msgspec

from perdure.channels import Clause, RunEnd, TimedOut, Won
from perdure.errors import StepFailed, Undecodable, WaitTimeout, error_from_record
from perdure.model.codec import BadPayload, Codec
from perdure.model.limits import storable
from perdure.model.ops import ContinueAs, Emit, Put, SendSignal, StartRun
from perdure.model.outcomes import Duplicate, decode_answer
from perdure.model.records import Completion, StepKind, StepRecord
from perdure.registry import Step
from perdure.runtime.failures import arising, decode_error, step_error
from perdure.store.transaction import Transaction

T = TypeVar("T")


Settled = tuple[Any, BaseException | None]
Facts = tuple[tuple[str, str], ...]  # for the ledger: type, payload as JSON


class Rejected(Exception):
    """What was delivered does not fit the type that this wait asks for, or its own filter (`passed`)."""

    def __init__(self, reason: str, *, passed: bool = False) -> None:
        self.passed = passed
        super().__init__(reason)


class Durable(Generic[T]):
    """A durable call: await it once, in workflow code, or give it to ctx.gather."""

    __slots__ = ("branch", "made_at", "made_in", "name", "owner", "path", "used")
    made_in: CodeType  # where code made it: set by `Branches.made`
    made_at: int
    kind: StepKind = "step"

    def __init__(self, owner: Any, path: str, name: str) -> None:
        self.owner = owner
        self.path = path
        self.name = name
        self.branch: Any = None
        self.used = False

    def __await__(self) -> Generator[Any, Any, T]:
        value: T = yield self
        return value

    def settle(self, done: Completion | StepRecord) -> Settled:
        """The value or error that a completion means to the code that awaits."""
        raise AssertionError(f"{type(self).__name__} has no completion of its own")


class Unbegun(Durable[None]):
    """Stands for a coroutine of ours (ctx.gather, ctx.map) until it begins: nobody awaits this itself."""

    __slots__ = ()


class StepCall(Durable[T]):
    """Run a step body, or take its recorded result."""

    __slots__ = ("args", "attempt", "cancelled", "kwargs", "step", "task")

    def __init__(
        self, owner: Any, path: str, step: Step[..., T], args: Any, kwargs: dict[str, Any]
    ) -> None:
        # The fields of Durable set here, not by its __init__: this is the most made object of all.
        self.owner = owner
        self.path = path
        self.name = step.name
        self.branch = None
        self.used = False
        self.step = step
        self.args = args
        self.kwargs = kwargs
        self.attempt = 1
        self.cancelled = False
        self.task: asyncio.Task[None] | None = None  # that runs the body now

    def cancel_body(self) -> None:
        """Nothing more is to be heard of the body. A thread cannot be stopped; its result is dropped."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()

    def settle(self, done: Completion | StepRecord) -> Settled:
        if done.state == "failed":
            return None, step_error(self.step, self.path, done.error or "")
        return decoded(self.step.codec, done.value, self.path), None

    def facts(self, value: str | None, error: str | None) -> Facts:
        """What the ledger is told in the commit that records its end: a value, or its failure for good."""
        return ()


class ActCall(StepCall[T]):
    """A step of a play. The play says what the ledger is told of it."""

    __slots__ = ("_tells", "act_kind")

    def __init__(
        self,
        owner: Any,
        path: str,
        step: Step[..., T],
        args: Any,
        act_kind: StepKind,
        tells: Callable[[str, str | None, str | None], Facts] | None,
    ) -> None:
        super().__init__(owner, path, step, args, {})
        self.act_kind: StepKind = act_kind
        self._tells = tells

    @property
    def kind(self) -> StepKind:  # type: ignore[override]
        return self.act_kind

    def facts(self, value: str | None, error: str | None) -> Facts:
        return () if self._tells is None else self._tells(self.path, value, error)


class TransactionCall(StepCall[T]):
    """A step whose body writes to the store's own database, in the transaction that records it."""

    __slots__ = ("timed_out", "work")

    def __init__(
        self, owner: Any, path: str, step: Step[..., T], args: Any, kwargs: dict[str, Any]
    ) -> None:
        super().__init__(owner, path, step, args, kwargs)
        self.timed_out = False
        self.work: Transaction | None = None

    def cancel_body(self) -> None:
        """Roll it back, if it is not too late. Its end is told all the same: it may have been recorded."""
        self.cancelled = True
        if self.work is not None:
            self.work.withdraw()

    def time_out(self) -> None:
        if self.work is not None and self.work.withdraw():
            self.timed_out = True


def decoded(codec: Codec, text: str | None, path: str) -> Any:
    try:
        return codec.decode(text if text is not None else "null")
    except BadPayload as error:
        raise Undecodable(path, str(error)) from error


class WaitCall(Durable[T]):
    """Wait for the first of several conditions. `timeout_ix` is the one that raises WaitTimeout."""

    __slots__ = (
        "announced",
        "clauses",
        "handles_timeout",
        "names",
        "opened",
        "timeout_ix",
        "wait_kind",
    )

    def __init__(
        self,
        owner: Any,
        path: str,
        name: str,
        clauses: tuple[Clause, ...],
        *,
        kind: StepKind = "wait",
        names: tuple[str, ...] | None = None,
        timeout_ix: int | None = None,
    ) -> None:
        super().__init__(owner, path, name)
        self.clauses = clauses
        self.names = names
        self.timeout_ix = timeout_ix
        self.wait_kind: StepKind = kind
        self.opened = False
        self.announced = False
        self.handles_timeout = False

    @property
    def kind(self) -> StepKind:  # type: ignore[override]
        return self.wait_kind

    def received(self, done: Completion | StepRecord) -> str | None:
        """The id of the signal that ended the wait, if it was one."""
        if done.state == "failed" or self.clauses[done.winner or 0].signal is None:
            return None
        return done.taken_id

    def settle(self, done: Completion | StepRecord) -> Settled:
        winner = done.winner or 0
        if done.state == "failed":
            record = decode_error(done.error or "")
            return None, arising(error_from_record(record, self.path), self.path)
        if winner == self.timeout_ix:
            return None, arising(WaitTimeout(self.path), self.path)
        try:
            value = None if self.wait_kind == "sleep" else self._value(self.clauses[winner], done)
        except (Rejected, Undecodable):
            raise
        except Exception as error:  # of the filter, which is the workflow's own code
            return None, arising(error, self.path)
        if self.names is not None:
            return Won(self.names[winner], value), None
        return value, None

    def _value(self, clause: Clause, done: Completion | StepRecord) -> Any:
        if clause.codec is None:
            return TimedOut()
        try:
            value = clause.codec.decode(done.value if done.value is not None else "null")
        except BadPayload as error:
            if clause.signal is not None or clause.channel is not None or clause.asks_people:
                raise Rejected(storable(str(error))) from error
            raise Undecodable(self.path, str(error)) from error
        if clause.where is not None and not self._passes(clause.where, value):
            raise Rejected("the wait's own filter said no", passed=True)
        return value

    def _passes(self, where: Callable[[Any], object], value: Any) -> bool:
        try:
            return bool(where(value))
        except (Exception, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # nothing but the workflow may get that
            raise StepFailed(type(error).__name__, str(error), path=self.path) from error


class SendCall(Durable[T]):
    """A send that is recorded in the commit that makes it: signal, start, emit, put, set or publish."""

    __slots__ = ("read", "send", "send_kind", "value")

    def __init__(
        self,
        owner: Any,
        path: str,
        name: str,
        kind: StepKind,
        send: SendSignal | StartRun | Emit | Put | None,
        *,
        value: str | None = None,
        read: Callable[[str], T],
    ) -> None:
        super().__init__(owner, path, name)
        self.send = send
        self.send_kind: StepKind = kind
        self.value = value
        self.read = read

    @property
    def kind(self) -> StepKind:  # type: ignore[override]
        return self.send_kind

    def settle(self, done: Completion | StepRecord) -> Settled:
        if done.state == "failed":
            record = decode_error(done.error or "")
            paths = tuple(msgspec.json.decode(record.args)) if record.args else ()
            return None, arising(error_from_record(record, self.name, paths), self.path)
        return self.read(done.value or "null"), None


def read_answer(text: str | bytes) -> Any:
    """The answer of a send as it was recorded: what is a duplicate now stays one on replay."""
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    if "duplicate_of" in fields:
        return Duplicate(decode_answer(bytes(fields["duplicate_of"]).decode()))
    return decode_answer(text)


def read_answers(text: str) -> list[Any]:
    """The answers of several events that were emitted as one step."""
    return [read_answer(bytes(one)) for one in msgspec.json.decode(text, type=list[msgspec.Raw])]


def read_only_answer(text: str) -> Any:
    """The answer of the one event that was emitted."""
    (answer,) = read_answers(text)
    return answer


def read_child(codec: Codec) -> Callable[[str], RunEnd[Any]]:
    return lambda text: RunEnd(msgspec.json.decode(text, type=str), codec)


def read_position(text: str) -> int:
    return msgspec.json.decode(text, type=int)


def read_nothing(text: str) -> None:
    return None


class ContinueCall(Durable[T]):
    """The last await of a generation; nothing comes back from it."""

    __slots__ = ("op",)

    def __init__(self, owner: Any, op: ContinueAs) -> None:
        super().__init__(owner, "!continue", op.workflow)
        self.op = op


class GatherCall(Durable[list[Any]]):
    """Branches that run side by side. The first error cancels the rest; then it is raised."""

    __slots__ = ("branches", "concurrency", "failure", "makers", "open", "results", "started")

    def __init__(
        self,
        owner: Any,
        path: str,
        makers: Sequence[Callable[[], Coroutine[Any, Any, Any]]],
        concurrency: int,
    ) -> None:
        super().__init__(owner, path, "gather")
        self.makers = makers
        self.concurrency = concurrency
        self.branches: list[Any] = []
        self.results: list[Any] = [None] * len(makers)
        self.failure: BaseException | None = None
        self.open = 0
        self.started = 0


def is_cancel(error: BaseException | None) -> bool:
    return isinstance(error, asyncio.CancelledError)
