"""Definitions: workflows and steps, and the table of name and version by which they are found.

A definition is made once, at registration: its hints are resolved, its codecs built, its signals listed. Every
error in it (a plain def, an unknown type, a second definition of a name) is raised there, not at three in the
morning.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from types import ModuleType
from typing import Any, Generic, ParamSpec, TypeVar, TypeVarTuple, overload

import msgspec

from perdure.channels import AboutInput, Queue, Signal, Topic, Waitable
from perdure.errors import Conflict, ForeignAwait, UnknownWorkflow
from perdure.model import limits
from perdure.model.codec import ArgsCodec, Codec, args_codec, codec_for, hints_of
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import BadValue, check_name
from perdure.model.policy import NO_RETRY, Retry
from perdure.model.records import CancelEntry, SignalEntry, WorkflowRecord
from perdure.observing.speaking import driven
from perdure.pools import Pool, checked_pool

P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# What cancels the runs of a workflow: the events of a topic about their own entity, about one that is named, or about
# what their input says.
Canceller = Topic[Any] | Waitable[Any] | AboutInput


class Step(Generic[P, R]):
    """A step: a function whose result is recorded. Call it with `ctx.step(step, …)`."""

    def __init__(
        self,
        function: Callable[P, Any],
        *,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        raises: Sequence[type[Exception]] = (),
    ) -> None:
        if not callable(function) or inspect.isclass(function):
            raise BadValue("step", function, "is not a function")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadValue("step", function, "is a generator: return a list, it is recorded whole")
        self.function = function
        self.name = check_name("step", name or _name_of(function, "step"))
        self.retry = NO_RETRY if retry is None else _checked_retry(self.name, retry)
        self.timeout_us = None if timeout is None else _checked_timeout(self.name, timeout)
        self.raises = _checked_raises(self.name, raises)
        self.is_async = inspect.iscoroutinefunction(function)
        _, result = hints_of(function, skip=len(inspect.signature(function).parameters))
        self.codec: Codec = codec_for(result, where=f"the result of step {self.name!r}")
        functools.update_wrapper(self, function, updated=())

    def options(
        self,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
    ) -> "Step[P, R]":
        """The same step with other options, for one call: `ctx.step(charge.options(timeout="5s"), order)`."""
        step: Step[P, R] = Step.__new__(Step)
        step.__dict__.update(self.__dict__)
        if name is not None:
            step.name = check_name("step", name)
        if retry is not None:
            step.retry = _checked_retry(step.name, retry)
        if timeout is not None:
            step.timeout_us = _checked_timeout(step.name, timeout)
        return step

    def __repr__(self) -> str:
        return f"Step({self.name!r})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Run the plain function, outside any workflow (in tests, in other steps)."""
        if driven.run is not None:
            raise ForeignAwait(
                f"step {self.name!r} was called directly in workflow code, so its result would not be recorded: "
                f"use `await ctx.step({self.name}, …)`"
            )
        return self.function(*args, **kwargs)


class Workflow(Generic[R, *Ts]):
    """A workflow: an async function whose awaits are recorded."""

    def __init__(
        self,
        function: Callable[..., Coroutine[Any, Any, R]],
        *,
        name: str | None = None,
        version: int = 1,
        signals: Iterable[Signal[Any]] | None = None,
        cancel_on: Canceller | Iterable[Canceller] = (),
        pool: Pool | str = "",
    ) -> None:
        self.name = check_name("workflow", name or _name_of(function, "workflow"))
        if not inspect.iscoroutinefunction(function):
            raise BadValue(
                f"workflow {self.name!r}",
                function,
                "must be an `async def`: its awaits are what is recorded",
            )
        if (
            not isinstance(version, int)
            or isinstance(version, bool)
            or not 1 <= version <= limits.version_max
        ):
            bound = f"must be a whole number from 1 to {limits.version_max} (version_max)"
            raise BadValue(f"version of workflow {self.name!r}", version, bound)
        _check_takes_context(self.name, function)
        self.function = function
        self.version = version
        self.declared_pool = checked_pool(pool)
        self.pool = "" if self.declared_pool is None else self.declared_pool.name
        self.signals = _checked_signals(self.name, signals)
        self.strict_signals = signals is not None
        self.cancel_on = _checked_cancellers(self.name, cancel_on)
        parameters, result = hints_of(function, skip=1)
        where = f"workflow {self.name!r}"
        self.args: ArgsCodec = args_codec(parameters, where=where)
        self.codec: Codec = codec_for(result, where=f"the result of {where}")
        # Workflows that it calls and that are known from its definition: they are added to an app with it.
        self.needs: tuple[Workflow[Any, *tuple[Any, ...]], ...] = ()
        functools.update_wrapper(self, function, updated=())

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.version

    def record(self, waited: Iterable[Signal[Any]] = ()) -> WorkflowRecord:
        """The catalogue's line: schemas, declared signals, and those it was seen to wait for."""
        entries: dict[str, SignalEntry] = {one.name: one.entry() for one in waited}
        entries.update((name, self.entry(one)) for name, one in self.signals.items())
        encode = msgspec.json.Encoder(order="deterministic").encode
        return WorkflowRecord(
            name=self.name,
            version=self.version,
            input_schema=encode(self.args.schema()).decode(),
            output_schema=encode(self.codec.schema()).decode(),
            signals=encode(entries).decode(),
            strict_signals=self.strict_signals,
            cancel_on=encode([one for one, _ in self.cancel_on]).decode()
            if self.cancel_on
            else None,
            pool=self.pool,
        )

    def entry(self, signal: Signal[Any]) -> SignalEntry:
        """One of its own signals, as the catalogue knows it."""
        return signal.entry()

    def __repr__(self) -> str:
        version = "" if self.version == 1 else f", version={self.version}"
        return f"Workflow({self.name!r}{version})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ForeignAwait(
            f"workflow {self.name!r} was called directly: start it with `await app.start({self.name}, …)`, "
            f"or from a workflow with `await ctx.call({self.name}, …)`"
        )


def _name_of(function: Any, kind: str) -> str:
    name = getattr(function, "__name__", None)
    if name is None or name == "<lambda>":
        raise BadValue(kind, function, "has no name to be found by on replay: give it name=")
    return str(name)


def _check_takes_context(name: str, function: Callable[..., Any]) -> None:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise BadValue(
            f"workflow {name!r}", function, "must take the context first: `ctx: Context`"
        )


def _checked_retry(name: str, retry: Retry) -> Retry:
    if not isinstance(retry, Retry):
        raise BadValue(f"retry of step {name!r}", retry, "must be a policy: Retry(attempts=…)")
    return retry


def _checked_timeout(name: str, timeout: Duration) -> int:
    what = f"timeout of step {name!r}"
    timeout_us = parse_duration(timeout, what)
    if timeout_us == 0:
        raise BadValue(what, timeout, "must be more than nothing")
    return timeout_us


def _checked_raises(name: str, raises: Sequence[type[Exception]]) -> tuple[type[Exception], ...]:
    if not isinstance(raises, list | tuple):
        raise BadValue(f"raises of step {name!r}", raises, "must be a list of exception classes")
    for one in raises:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            raise BadValue(f"raises of step {name!r}", one, "must be exception classes")
    return tuple(raises)


def _checked_signals(name: str, signals: Iterable[Signal[Any]] | None) -> dict[str, Signal[Any]]:
    by_name: dict[str, Signal[Any]] = {}
    if isinstance(signals, Signal):
        raise BadValue(f"signals of workflow {name!r}", signals, "must be a list of Signal objects")
    for one in signals or ():
        if not isinstance(one, Signal):
            raise BadValue(f"signals of workflow {name!r}", one, "must be Signal objects")
        if one.name in by_name:
            raise BadValue(f"signals of workflow {name!r}", one.name, "is listed twice")
        by_name[one.name] = one
    return by_name


# A topic whose events cancel a run, and the function of its input that says which, if one does.
CheckedCanceller = tuple[CancelEntry, Callable[..., str] | None]


def _checked_cancellers(name: str, given: Any) -> tuple[CheckedCanceller, ...]:
    several = isinstance(given, Iterable) and not isinstance(given, str | Waitable)
    found = tuple([_checked_canceller(name, one) for one in (given if several else (given,))])
    if len(found) > limits.cancel_on_max:
        bound = f"has too many topics; at most {limits.cancel_on_max} (cancel_on_max)"
        raise BadValue(f"cancel_on of workflow {name!r}", len(found), bound)
    return found


def _checked_canceller(name: str, given: Any) -> CheckedCanceller:
    what = f"cancel_on of workflow {name!r}"
    if isinstance(given, Topic):
        return CancelEntry(given.name), None
    if isinstance(given, AboutInput):
        return CancelEntry(given.topic.name, code=True), given.entity
    clauses = given.clauses() if isinstance(given, Waitable) else ()
    if len(clauses) > 1:
        raise BadValue(what, given, "is several conditions in one: give a list")
    if not clauses or clauses[0].condition.kind != "topic":
        raise BadValue(what, given, "is neither a Topic nor topic.about(…)")
    condition = clauses[0].condition
    if condition.filter or condition.code:
        raise BadValue(
            what, given, "has a where=: an event cancels in its own commit, where nothing is asked"
        )
    if condition.since != "start" or condition.deliver != "next":
        raise BadValue(
            what, given, "takes neither since= nor deliver=: it counts from the run's creation on"
        )
    return CancelEntry(condition.target, condition.entity), None


Channel = Topic[Any] | Queue[Any]


class Registry:
    """The workflows of an app by name and version, and its topics and queues by name."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, str], Channel] = {}
        self._noted: set[tuple[str, str]] = set()
        self._by_key: dict[tuple[str, int], Workflow[Any, *tuple[Any, ...]]] = {}
        self._newest: dict[str, Workflow[Any, *tuple[Any, ...]]] = {}

    def add(self, workflow: "Workflow[Any, *tuple[Any, ...]]") -> None:
        known = self._by_key.get(workflow.key)
        if known is not None and known is not workflow:
            name, version = workflow.key
            raise Conflict(
                f"workflow {name!r} version {version} is already defined: give one of them name= or version="
            )
        self._by_key[workflow.key] = workflow
        newest = self._newest.get(workflow.name)
        if newest is None or newest.version <= workflow.version:
            self._newest[workflow.name] = workflow

    def find(self, name: str, version: int) -> "Workflow[Any, *tuple[Any, ...]] | None":
        return self._by_key.get((name, version))

    def has(self, name: str) -> bool:
        """Whether there is a workflow of that name, of any version."""
        return name in self._newest

    def newest(self, name: str) -> "Workflow[Any, *tuple[Any, ...]]":
        """The newest version of a name; raises UnknownWorkflow."""
        found = self._newest.get(name)
        if found is None:
            raise UnknownWorkflow(name, list(self._newest))
        return found

    def of(self, workflow: Any) -> "Workflow[Any, *tuple[Any, ...]]":
        """What a caller named: a workflow of ours, or its name."""
        if isinstance(workflow, str):
            return self.newest(workflow)
        if not isinstance(workflow, Workflow):
            raise BadValue("workflow", workflow, "is no workflow: decorate it with @app.workflow")
        if self._by_key.get(workflow.key) is not workflow:
            raise UnknownWorkflow(workflow.name, list(self._newest))
        return workflow

    def add_channel(self, channel: Channel) -> None:
        """Declare a topic or queue: from then on a mere name is checked by its type."""
        at = _kind_and_name(channel)
        known = self._channels.get(at)
        if known is not None and known.record() != channel.record():
            raise Conflict(f"{at[0]} {at[1]!r} is already declared, with another type or policy")
        self._channels[at] = channel

    def note_channel(self, channel: Channel) -> bool:
        """Remember one that is used without being declared; False when nothing is to be told of it."""
        at = _kind_and_name(channel)
        if at in self._channels or at in self._noted:
            return False
        if len(self._noted) >= limits.noted_channels_max:
            return False  # names made from data: the catalogue is no place for them
        self._noted.add(at)
        return True

    def topic(self, name: str) -> "Topic[Any] | None":
        found = self._channels.get(("topic", name))
        return found if isinstance(found, Topic) else None

    def queue(self, name: str) -> "Queue[Any] | None":
        found = self._channels.get(("queue", name))
        return found if isinstance(found, Queue) else None

    def channels(self) -> list[Channel]:
        return list(self._channels.values())

    def keys(self) -> tuple[tuple[str, int], ...]:
        return tuple(self._by_key)

    def newest_keys(self) -> tuple[tuple[str, int], ...]:
        """Of each workflow the newest version: what is started when no version is said."""
        return tuple(one.key for one in self._newest.values())

    def newest_pools(self) -> tuple[tuple[str, str], ...]:
        """Of those that have one, the pool: workflow, pool."""
        return tuple((one.name, one.pool) for one in self._newest.values() if one.pool)

    def all(self) -> list["Workflow[Any, *tuple[Any, ...]]"]:
        return list(self._by_key.values())


def _kind_and_name(channel: Channel) -> tuple[str, str]:
    return "topic" if isinstance(channel, Topic) else "queue", channel.name


# --- decorators, free of an app ----------------------------------------------------------------------


@overload
def step(function: Callable[P, Awaitable[R]], /) -> Step[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    raises: Sequence[type[Exception]] = (),
) -> "StepDecorator": ...
def step(function: Any = None, /, **options: Any) -> Any:
    """Make a function a step: its result is recorded once and replayed from then on."""
    if function is None:
        return StepDecorator(options)
    return Step(function, **options)


class StepDecorator:
    """`@step(…)` with options, typed for async and plain functions."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        return Step(function, **self._options)


class WorkflowDecorator:
    """`@workflow(…)` with options. `add` is the app's own registration, if it came from one."""

    def __init__(self, options: dict[str, Any], add: Callable[[Any], None] | None = None) -> None:
        self._options, self._add = options, add

    def __call__(
        self, function: Callable[[Any, *Ts], Coroutine[Any, Any, R]], /
    ) -> Workflow[R, *Ts]:
        made: Workflow[R, *Ts] = Workflow(function, **self._options)
        if self._add is not None:
            self._add(made)
        return made


@overload
def workflow(function: Callable[[Any, *Ts], Coroutine[Any, Any, R]], /) -> Workflow[R, *Ts]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: int = 1,
    signals: Iterable[Signal[Any]] | None = None,
    cancel_on: Canceller | Iterable[Canceller] = (),
    pool: Pool | str = "",
) -> WorkflowDecorator: ...
def workflow(function: Any = None, /, **options: Any) -> Any:
    """Make an async function a workflow, to be added to an app with `app.add`."""
    decorator = WorkflowDecorator(options)
    return decorator if function is None else decorator(function)


def definitions_in(thing: Any, also: type[Any]) -> list[Any]:
    """The workflows, topics and queues in an object, and what is of another kind: itself, or all of a module."""
    if isinstance(thing, Workflow):
        return [thing, *(one for each in thing.needs for one in definitions_in(each, also))]
    if isinstance(thing, Topic | Queue | also):
        return [thing]
    if isinstance(thing, ModuleType):
        kinds = Workflow | Topic | Queue | also
        found = [one for one in vars(thing).values() if isinstance(one, kinds)]
        if found:
            return list(dict.fromkeys(one for each in found for one in definitions_in(each, also)))
        raise BadValue("module", thing.__name__, "holds no workflow, topic, queue or hook")
    if isinstance(thing, Step):
        return []
    raise BadValue(
        "definition",
        thing,
        "is neither a workflow, a step, a topic, a queue, a hook nor a module of them",
    )
