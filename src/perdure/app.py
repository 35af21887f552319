"""The composition root: an App joins definitions, a store, the coordinator and a worker.

Everything a program does from outside a workflow goes through here: start runs, signal them, look at them, steer them.
An app belongs to the event loop that entered it; `App(…, worker=False)` is a pure client.

A verb here checks what it was given, asks the engine, and gives its answer a public form. How an engine is opened,
closed and guarded is in `engine`; how a start or a signal becomes an op, in `starting` and `sending`; how one goes with
a transaction of the caller's, in `posting`; what concerns events and queues, in `telling`; readers of the ledger, in
`reading`; schedules, in `scheduling`; approvals, in `approving`; questions to a run, in `asking`; runs as documents, in
`carrying`; looking after the store, in `inspecting`. Time and chance are asked of the system here and nowhere below.
"""

import os
import random
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, TypeVarTuple, overload

import msgspec

from perdure.approving import Approving
from perdure.asking import Asking
from perdure.carrying import Carrying
from perdure.channels import Plain, Signal
from perdure.coordinator.wake import RunEnding
from perdure.engine import Engine, Life, Settings
from perdure.errors import RunNotFound, refusal_error
from perdure.handle import RunHandle
from perdure.inputs import (
    checked_deps,
    checked_id,
    checked_limit,
    checked_statuses,
    checked_tag,
    checked_time,
    checked_workflow_name,
    encoded_input,
)
from perdure.inspecting.verbs import Inspecting
from perdure.ledger.definitions import Readers
from perdure.ledger.health import served_by
from perdure.links import SECRET_VARIABLE, Secrets, checked_secrets
from perdure.model import limits, ops
from perdure.model.clock import Clock, SystemClock
from perdure.model.codec import Codec, codec_for
from perdure.model.duration import Duration, parse_duration
from perdure.model.ids import Ids
from perdure.model.limits import BadValue, check_entity, check_name, check_run_id
from perdure.model.outcomes import Accepted, Queued, Refusal, Sent, Started
from perdure.model.policy import Retry
from perdure.model.records import WatcherRecord
from perdure.model.status import Status
from perdure.named import Called, Catalogue, called, submit
from perdure.observing.logs import redact as redact_logs
from perdure.observing.observation import Observation, Observer, checked_observers
from perdure.observing.redaction import REDACT_VARIABLE, Redaction
from perdure.observing.traces import current_trace
from perdure.pooling import Pooling, pool_row, slot_waits
from perdure.pools import Pool, checked_pools
from perdure.posting import post
from perdure.reading import Reading
from perdure.registry import (
    Canceller,
    Registry,
    Step,
    StepDecorator,
    Workflow,
    WorkflowDecorator,
    definitions_in,
)
from perdure.registry import step as free_step
from perdure.scheduling import Scheduling
from perdure.sending import (
    SentOrNot,
    accepted,
    answer_op,
    send_again,
    send_many,
    send_op,
    start_signal_op,
)
from perdure.starting import debounced, listener, start_op
from perdure.store import open_store
from perdure.store.base import RunFilter, Store, WatcherPlace
from perdure.store.urls import without_password
from perdure.synchronous.face import give_verbs
from perdure.synchronous.faces import SyncApp
from perdure.telling import Telling
from perdure.upkeep import prune_older
from perdure.views import (
    BufferedSignal,
    DeadLetter,
    Page,
    RunInfo,
    SignalStatus,
    Waiting,
    buffered_signal,
    dead_letter,
    decode_cursor,
    page,
    run_info,
    signal_status,
    waiting,
    waiting_for_worker,
    waiting_in_line,
    waits,
    watcher_place,
)
from perdure.webhooks.incoming import Hook

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

AnyWorkflow = Workflow[Any, *tuple[Any, ...]]


# Not in a log either: the user of a store's URL.
_credentials = re.compile(r"//[^/]*@")


def _redaction(given: Sequence[str] | Redaction | None) -> Redaction | None:
    """The fields that few are to see: given to the app, or by the environment. From now on no log line has them."""
    names = os.environ.get(REDACT_VARIABLE, "").split() if given is None else given
    redaction = names if isinstance(names, Redaction) else Redaction(names)
    if not redaction.names:
        return None
    redact_logs(redaction)
    return redaction


class App(Telling, Reading, Scheduling, Pooling, Approving, Carrying, Asking, Inspecting):
    """Your workflows on a store. Use it as `async with app:`."""

    def __init__(
        self,
        url: str = "sqlite:///perdure.db",
        *,
        namespace: str | None = None,
        worker: bool = True,
        deps: Sequence[object] = (),
        resident: int = limits.resident_runs_default,
        concurrency: int = limits.active_runs_default,
        threads: int = limits.step_threads_default,
        pools: Sequence[Pool | str] | None = None,
        keep: Duration | None = None,
        lifecycle: bool = True,
        store_timeout: Duration = "30s",
        lease: Duration = "30s",
        grace: Duration = limits.grace_us_default / 1_000_000,
        fanout: int = limits.fanout_default,
        runner_every: str | None = None,
        keep_events: Duration | None = None,
        keep_events_max: int | None = None,
        secret: Secrets | str | bytes | Sequence[str | bytes] | None = None,
        redact: Sequence[str] | Redaction | None = None,
        observe: Sequence[Observer] = (),
        clock: Clock | None = None,
        seed: int | None = None,
    ) -> None:
        self.url = url
        self.registry = Registry()
        self.readers = Readers()
        self.declared_schedules = {}
        self.hooks: dict[
            str, Hook
        ] = {}  # what others may post, wherever the API of this app is served
        self.namespace = None if namespace is None else check_name("namespace", namespace)
        self._clock: Clock = clock or SystemClock()
        self._settings = Settings(
            worker=worker,
            deps=checked_deps(deps),
            resident=resident,
            concurrency=concurrency,
            threads=threads,
            pools=None if pools is None else checked_pools(pools),
            keep=keep,
            lifecycle=lifecycle,
            store_timeout=store_timeout,
            lease=lease,
            grace=grace,
            fanout=fanout,
            runner_every=runner_every,
            keep_events=keep_events,
            keep_events_max=keep_events_max,
            secret=None if secret is None else checked_secrets(secret),
            redact=_redaction(redact),
            observe=checked_observers(observe),
            clock=self._clock,
            seed=seed,
        )
        self._observed: Observation | None = None
        if self._settings.observe:
            self._observed = Observation(self._settings.observe, self._settings.redact)
        self._openings = 0
        self._untyped = codec_for(Any)
        self._life = Life()
        # The engine, or why there is none for the caller. Not a method that asks another: each start asks.
        self._engine = self._life.engine
        # For code that may wait: `with app.sync as shop:`, and any thread beside the loop that the app is open in.
        self.sync = SyncApp(self)

    def __repr__(self) -> str:
        url = self.url
        if isinstance(url, str):
            url = _credentials.sub("//…@", without_password(url))
        where = "" if self.namespace is None else f", namespace={self.namespace!r}"
        return f"App({url!r}{where})"

    @property
    def source(self) -> str:
        """What CloudEvents of this app name as their source: the namespace, not the machine."""
        return f"/perdure/{self.namespace or 'default'}"

    # --- definitions ---

    @overload
    def step(self, function: Callable[P, Awaitable[R]], /) -> Step[P, R]: ...
    @overload
    def step(self, function: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def step(
        self,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        raises: Sequence[type[Exception]] = (),
    ) -> StepDecorator: ...
    def step(self, function: Any = None, **options: Any) -> Any:
        """Make a function a step: its result is recorded once, and replayed from then on."""
        return free_step(function, **options)

    @overload
    def workflow(
        self, function: Callable[[Any, *Ts], Coroutine[Any, Any, R]], /
    ) -> Workflow[R, *Ts]: ...
    @overload
    def workflow(
        self,
        *,
        name: str | None = None,
        version: int = 1,
        signals: Iterable[Signal[Any]] | None = None,
        cancel_on: Canceller | Iterable[Canceller] = (),
        pool: Pool | str = "",
    ) -> WorkflowDecorator: ...
    def workflow(self, function: Any = None, **options: Any) -> Any:
        """Make an async function a workflow of this app: `@app.workflow` or `@app.workflow(signals=[…])`."""
        decorator = WorkflowDecorator(options, self.add)
        return decorator if function is None else decorator(function)

    def add(self, thing: Any) -> None:
        """Add a workflow, a topic, a queue or a hook, or all of a module."""
        if self._life.entered:
            raise BadValue(
                "definition", thing, "came too late: add workflows before `async with app`"
            )
        for one in definitions_in(thing, also=Hook):
            if isinstance(one, Workflow):
                self.registry.add(one)
            elif isinstance(one, Hook):
                self._add_hook(one)
            else:
                self.registry.add_channel(one)

    def _add_hook(self, hook: Hook) -> None:
        known = self.hooks.setdefault(hook.name, hook)
        if known is not hook:
            raise BadValue("hook", hook.name, "is given twice: each has a name of its own")

    def copy(self, url: str | None = None, **options: Any) -> "App":
        """The same definitions on another store, for tests, or on the same one with other options."""
        settings = msgspec.structs.asdict(self._settings)
        app = App(
            self.url if url is None else url, **{"namespace": self.namespace, **settings, **options}
        )
        app.registry = self.registry
        app.readers = self.readers
        app.declared_schedules = self.declared_schedules
        app.hooks = self.hooks
        return app

    # --- life ---

    async def __aenter__(self) -> Self:
        await self._life.open(
            self._settings,
            self.registry,
            self.readers,
            tuple(self.declared_schedules.values()),
            self._make_store,
            self._make_chance,
            self.source,
            self._observed,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._life.close()

    def _make_store(self, ids: Ids) -> Store:
        return open_store(
            self.url,
            namespace=self.namespace,
            clock=self._clock,
            ids=ids,
            lifecycle=self._settings.lifecycle,
        )

    def _make_chance(self) -> random.Random:
        """Made at each opening, never before: a forked process must not repeat its parent's ids."""
        seed = self._settings.seed
        self._openings += 1
        if seed is None:
            # Identity needs no secrecy: seeded by the system once, then a thousand times cheaper a call.
            return random.Random(random.SystemRandom().getrandbits(128))
        return random.Random(f"{seed}/{self._openings}")

    def _make_ids(self) -> Ids:
        """For a store that is only looked at: it makes none, and an opening must not draw others for it."""
        return Ids(self._clock, random.Random(0))

    def _secrets(self) -> Secrets | None:
        """What links are signed with: given to the app, or by the environment."""
        if self._settings.secret is not None:
            return self._settings.secret
        given = os.environ.get(SECRET_VARIABLE, "").split()
        return checked_secrets(given) if given else None

    # --- starting ---

    @overload
    async def start(
        self,
        workflow: Workflow[R, *Ts],
        *args: *Ts,
        id: str | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        start_at: datetime | Duration | None = None,
        deadline: datetime | Duration | None = None,
        debounce: Duration | None = None,
        debounce_max: Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
        connection: None = None,
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self,
        workflow: Workflow[R, *Ts],
        *args: *Ts,
        id: str | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        start_at: datetime | Duration | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
        connection: Any,
    ) -> Accepted: ...
    @overload
    async def start(
        self,
        workflow: str,
        *args: Any,
        version: int | None = None,
        id: str | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        start_at: datetime | Duration | None = None,
        deadline: datetime | Duration | None = None,
        debounce: Duration | None = None,
        debounce_max: Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
        connection: None = None,
    ) -> RunHandle[Any]: ...
    @overload
    async def start(
        self,
        workflow: str,
        *args: Any,
        version: int | None = None,
        id: str | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        start_at: datetime | Duration | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
        connection: Any,
    ) -> Accepted: ...
    async def start(
        self,
        workflow: Workflow[R, *Ts] | str,
        *args: *Ts,
        version: int | None = None,
        id: str | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        start_at: datetime | Duration | None = None,
        deadline: datetime | Duration | None = None,
        debounce: Duration | None = None,
        debounce_max: Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
        connection: Any = None,
    ) -> RunHandle[Any] | Accepted:
        """Start a run, or find it: the same id or key gives the run that exists (`created` is False then).

        A run keeps the version of its workflow. A mere name means the newest of this app, else of all apps that use the
        store, or that `version=`; its arguments may be JSON builtins, and the code may be elsewhere.
        If it has not ended by its `deadline` it is cancelled; a duration counts from when it may begin. With
        `debounce="5s"` it begins so long after the last call with this key, with the input of that call, and no later
        than `debounce_max` after the first.
        It is in the workflow's own pool unless you name another ("" for none); `pool_key` and `priority` count there.
        `trace` is a W3C traceparent that it keeps; unless you give one, that of the caller's current span, if any.
        With a `connection` of your own: once you commit, if you do. It is `Accepted`, and `target` the run's id.
        """
        engine = self._engine()
        trace = current_trace() if trace is None else trace
        if isinstance(workflow, str):
            found, text, values, codec = await called(
                self.registry, engine.store, workflow, args, version
            )
        else:
            found, text, values, codec = self._given(workflow, args, version)
        if connection is not None or debounce is not None or debounce_max is not None:
            op = start_op(
                *(engine, found, text, id, key, tags, entity, start_at, deadline),
                *(pool, pool_key, priority, trace),
                claim=False,
            )
            if debounce is not None:
                op = debounced(
                    op, debounce, debounce_max, id=id, start_at=start_at, connection=connection
                )
            elif debounce_max is not None:
                raise BadValue("debounce_max", debounce_max, "says nothing without debounce=")
            if connection is not None:
                return await post(engine, connection, op, engine.clock.now())
        else:
            op = start_op(
                *(engine, found, text, id, key, tags, entity, start_at, deadline),
                *(pool, pool_key, priority, trace),
            )
        ending = engine.coordinator.hub.ending(op.run_id)  # held from before the run can end
        outcome = await engine.coordinator.submit(op, listener(engine, op), values)
        if isinstance(outcome, Refusal):
            raise refusal_error(outcome, found.name, op.run_id)
        return self._started(engine, outcome, codec, ending)

    def _given(self, workflow: Any, args: tuple[Any, ...], version: int | None) -> Called:
        """A workflow of ours, and its input."""
        found = self.registry.of(workflow)
        if version is not None:
            raise BadValue("version", version, "says nothing beside a workflow: give its name")
        return Called(found, *encoded_input(found, args), found.codec)

    def _started(
        self, engine: Engine, outcome: Started, codec: Codec, ending: RunEnding
    ) -> RunHandle[Any]:
        run_id, created = outcome.run.run_id, outcome.created
        if not created:  # under its key it may have another id
            ending = engine.coordinator.hub.ending(run_id)
        fresh = created and ending.run is None  # else it may have been told of an earlier run
        return RunHandle(self, run_id, codec, ending, created=created, fresh=fresh)

    @overload
    async def signal_with_start(
        self,
        workflow: Workflow[R, *Ts],
        *args: *Ts,
        signal: Signal[T],
        payload: T | Plain,
        id: str,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
    ) -> tuple[RunHandle[R], Sent]: ...
    @overload
    async def signal_with_start(
        self,
        workflow: str,
        *args: Any,
        signal: Signal[Any] | str,
        payload: Any = None,
        id: str,
        version: int | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
    ) -> tuple[RunHandle[Any], Sent]: ...
    async def signal_with_start(
        self,
        workflow: Workflow[R, *Ts] | str,
        *args: *Ts,
        signal: Any,
        payload: Any = None,
        id: str,
        version: int | None = None,
        key: str | None = None,
        tags: dict[str, str] | None = None,
        entity: str | None = None,
        deadline: datetime | Duration | None = None,
        pool: Pool | str | None = None,
        pool_key: str = "",
        priority: int = 0,
        trace: str | None = None,
    ) -> tuple[RunHandle[Any], Sent]:
        """Find or start the run and signal it, in one commit. Where the workflow is a name, the signal may be one."""
        engine = self._engine()
        if isinstance(workflow, str):
            found, text, values, codec = await called(
                self.registry, engine.store, workflow, args, version
            )
        elif not isinstance(signal, Signal):
            raise BadValue("signal", signal, "must be a Signal here: the run may not exist yet")
        else:
            found, text, values, codec = self._given(workflow, args, version)
        send = await start_signal_op(engine, found, id, signal, payload, key)
        start = start_op(
            *(engine, found, text, id, None, tags, entity, None, deadline),
            *(pool, pool_key, priority, current_trace() if trace is None else trace),
        )
        ending = engine.coordinator.hub.ending(start.run_id)
        outcome = await engine.coordinator.submit(
            ops.SignalWithStart(start=start, signal=send), listener(engine, start), values
        )
        if isinstance(outcome, Refusal):
            raise refusal_error(outcome, send.name, start.run_id)
        started, sent = outcome
        handle = self._started(engine, started, codec, ending)
        return handle, accepted(sent, send.name, start.run_id)

    def run(self, run_id: str) -> RunHandle[Any]:
        """A handle on a run by its id. Nothing is looked up until it is used."""
        hub = self._engine().coordinator.hub
        return RunHandle(self, check_run_id(run_id), self._untyped, hub.ending(run_id))

    # --- signals ---

    @overload
    async def signal(
        self,
        run_id: str,
        signal: Signal[T],
        payload: T | Plain,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
        connection: None = None,
    ) -> Sent: ...
    @overload
    async def signal(
        self,
        run_id: str,
        signal: Signal[None] | str,
        payload: Any = None,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
        connection: None = None,
    ) -> Sent: ...
    @overload
    async def signal(
        self,
        run_id: str,
        signal: Signal[T],
        payload: T | Plain,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
        connection: Any,
    ) -> Accepted: ...
    @overload
    async def signal(
        self,
        run_id: str,
        signal: Signal[None] | str,
        payload: Any = None,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
        connection: Any,
    ) -> Accepted: ...
    async def signal(
        self,
        run_id: str,
        signal: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        path: str | None = None,
        buffer: bool = True,
        connection: Any = None,
    ) -> Sent | Accepted:
        """Send a signal: Delivered if the run waits for it, else Buffered by its policy.

        Raises RunNotFound, RunFinished, InvalidPayload, UnknownSignal, AmbiguousSignal, SignalTaken,
        NotWaiting (with buffer=False), Conflict; nothing is stored then. With a `connection` of your own it is
        Accepted, and sent once you commit, if you do.
        """
        engine = self._engine()
        op = await send_op(engine, run_id, signal, payload, key, path, buffer)
        if connection is not None:
            op = await Catalogue(engine.store).checked(op)
            return await post(engine, connection, op, engine.clock.now())
        outcome = await submit(engine.coordinator, engine.store, op)
        return accepted(outcome, op.name, op.run_id)

    async def _retry_op(self, run_id: str, path: str | None, payload: Any) -> ops.Retry:
        """A retry, from what the caller of `run.retry` gave."""
        if payload is msgspec.UNSET:
            return ops.Retry(run_id=run_id, path=None if path is None else checked_id("path", path))
        if path is None:
            raise BadValue(
                "payload", payload, "says nothing without the path of the wait it answers"
            )
        return await answer_op(self._engine(), run_id, checked_id("path", path), payload)

    async def signal_many(
        self, sends: Iterable[tuple[str, Signal[Any] | str, Any]]
    ) -> list[SentOrNot]:
        """Send many signals; each has its own outcome, in the same order, and none spoils another."""
        return await send_many(self._engine(), sends)

    async def signal_status(self, signal_id: str) -> SignalStatus | None:
        """What became of a signal; None when nothing is known of it (any more)."""
        found = await self._engine().store.signal(checked_id("signal id", signal_id))
        return None if found is None else signal_status(found)

    async def buffered(self, run_id: str) -> list[BufferedSignal]:
        """The signals kept for a run, oldest first."""
        store = self._engine().store
        await self._require(store, run_id)
        return [buffered_signal(one) for one in await store.buffered(run_id)]

    async def dead_letters(
        self,
        run_id: str | None = None,
        *,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[DeadLetter]:
        """Signals, and items of queues, that nobody could take any more."""
        limit = checked_limit(limit)
        seen = decode_cursor(after, tuple[str])[0] if after is not None else ""
        run_id = None if run_id is None else check_run_id(run_id)
        rows = await self._engine().store.dead_letters(run_id, seen, limit + 1)
        return page(rows, limit, dead_letter, lambda last: (last.dead_letter_id,))

    async def resend(self, dead_letter_id: str, *, run_id: str | None = None) -> Sent | Queued:
        """Send a dead letter again, to its own run or another; it leaves the list if accepted.

        An item of a queue is put back: Delivered to the run that waits longest, else Queued.
        """
        return await send_again(self._engine(), dead_letter_id, run_id)

    # --- looking ---

    async def runs(
        self,
        *,
        workflow: str | AnyWorkflow | None = None,
        status: Status | Iterable[Status] | None = None,
        tag: str | tuple[str, str] | None = None,
        entity: str | None = None,
        parent: str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[RunInfo]:
        """Runs, newest first. `tag` is a name, or (name, value)."""
        limit = checked_limit(limit)
        where = RunFilter(
            workflow=checked_workflow_name(workflow),
            statuses=checked_statuses(status),
            tag=checked_tag(tag),
            entity=None if entity is None else check_entity(entity),
            parent_run_id=None if parent is None else check_run_id(parent),
            created_from=checked_time("created_from", created_from),
            created_before=checked_time("created_before", created_before),
        )
        seen = decode_cursor(after, tuple[int, str]) if after is not None else None
        rows = await self._engine().store.runs(where, seen, limit + 1)
        return page(rows, limit, run_info, lambda last: (last.created_at, last.run_id))

    async def waiting(self, run_id: str) -> list[Waiting]:
        """What a run waits for."""
        engine = self._engine()
        store = engine.store
        run = await store.run(check_run_id(run_id))
        if run is None:
            raise RunNotFound(run_id)
        if run.line_at is not None:
            pool = await pool_row(store, run.pool)
            in_line = await slot_waits(store, pool, [run], engine.clock.now())
            return [waiting_in_line(in_line[run_id])]
        if run.status == "ready" and (run.ready_at or 0) <= engine.clock.now():
            served = served_by(await store.workers())
            return [] if (run.workflow, run.version) in served else [waiting_for_worker(run)]
        return waits(await store.waiting(run_id))

    async def find_waiting(
        self,
        signal: Signal[Any] | str,
        *,
        path: str | None = None,
        older_than: Duration | None = None,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[Waiting]:
        """Who waits for a signal, optionally at one path, or for longer than a span of time."""
        limit = checked_limit(limit)
        name = signal.name if isinstance(signal, Signal) else check_name("signal", signal)
        age_us = None if older_than is None else parse_duration(older_than, "older_than")
        engine = self._engine()
        before = None if age_us is None else engine.clock.now() - age_us
        seen = decode_cursor(after, tuple[int, str, str, int]) if after is not None else None
        store = engine.store
        if path is None:
            rows = await store.find_waiting(name, before, seen, limit + 1)
        else:
            rows = await self._waiting_at(
                store, name, checked_id("path", path), before, seen, limit
            )
        return page(rows, limit, waiting, watcher_place)

    async def _waiting_at(
        self,
        store: Store,
        name: str,
        path: str,
        before: int | None,
        seen: WatcherPlace | None,
        limit: int,
    ) -> list[WatcherRecord]:
        """Those at one path: nearly all who wait for a name do so at the same one, so no index has it."""
        found: list[WatcherRecord] = []
        while len(found) <= limit:
            rows = await store.find_waiting(name, before, seen, limits.page_rows_max)
            found += [one for one in rows if one.path == path]
            if len(rows) < limits.page_rows_max:
                break
            seen = watcher_place(rows[-1])
        return found[: limit + 1]

    async def _require(self, store: Store, run_id: str) -> None:
        if await store.run(check_run_id(run_id)) is None:
            raise RunNotFound(run_id)

    # --- keeping ---

    async def prune(
        self,
        older_than: Duration | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Delete runs that finished longer ago than this (default: `keep=`), in bounded chunks.

        `progress` is called after each chunk with how many are gone by then.
        """
        engine = self._engine()
        age_us = self._settings.keep_us
        if older_than is not None:
            age_us = parse_duration(older_than, "older_than")
        if age_us is None:
            raise BadValue("older_than", None, "is needed: this app has no keep=")
        return await prune_older(engine.coordinator, engine.clock, age_us, progress)


give_verbs(SyncApp, App)
