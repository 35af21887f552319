"""What is open while an app is open, and how it is opened and closed.

An app has one `Life`. Opening makes an `Engine` from the app's `Settings`: store, coordinator, worker, matcher, readers
of the ledger, upkeep, started in this order and stopped in the opposite one. Whatever fails or is cancelled on the way,
nothing is left behind: no task, no thread, no lock. Every call of the app asks its life for the engine, and learns
here why there is none for it: not open, another event loop, a forked process. Never knows which store it is, and asks
the system for neither time nor chance: the app brings them.
"""

import asyncio
import functools
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from perdure.coordinator.coordinator import Coordinator
from perdure.errors import AfterFork, NotRunning, WrongLoop
from perdure.forks import Forks
from perdure.gauging import gauges_of
from perdure.hints import Hints
from perdure.inputs import at_least
from perdure.ledger.batches import Desk, Outside
from perdure.ledger.consumers import Consumers
from perdure.ledger.definitions import Readers
from perdure.ledger.expressions import compile_filter
from perdure.ledger.filters import Matcher
from perdure.links import Secrets
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.model.cron import Cron, parse_cron
from perdure.model.duration import Duration, parse_duration
from perdure.model.ids import Ids
from perdure.model.limits import BadValue
from perdure.model.records import ScheduleRecord
from perdure.observing.observation import Observation, Observer
from perdure.observing.redaction import Redaction
from perdure.pools import Pool, declared_by, served_by
from perdure.registry import Registry
from perdure.runtime.lines import declare as declare_pools
from perdure.runtime.worker import Worker
from perdure.store.base import Store
from perdure.upkeep import Upkeep

log = logging.getLogger("perdure.app")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an app was told about its engine: its keywords as they were given, so that a copy can be given them."""

    worker: bool
    deps: tuple[object, ...]
    resident: int
    concurrency: int
    threads: int
    pools: tuple[Pool | str, ...] | None
    keep: Duration | None
    lifecycle: bool
    store_timeout: Duration
    lease: Duration
    grace: Duration
    clock: Clock
    seed: int | None
    fanout: int
    runner_every: str | None
    keep_events: Duration | None
    keep_events_max: int | None
    secret: Secrets | None
    redact: Redaction | None
    observe: tuple[Observer, ...]

    def __post_init__(self) -> None:
        at_least("resident", self.resident, 0)
        at_least("concurrency", self.concurrency, 1)
        at_least("threads", self.threads, 1)
        at_least("fanout", self.fanout, 1)
        if self.runner_every is not None:
            parse_cron(self.runner_every)
        if self.keep is not None:
            parse_duration(self.keep, "keep")
        if self.keep_events is not None:
            parse_duration(self.keep_events, "keep_events")
        if self.keep_events_max is not None:
            at_least("keep_events_max", self.keep_events_max, 1)
        if self.store_timeout_s == 0:
            raise BadValue("store_timeout", self.store_timeout, "must be more than nothing")
        parse_duration(self.grace, "grace")
        if parse_duration(self.lease, "lease") < limits.lease_us_min:
            at_least_s = limits.lease_us_min // 1_000_000
            raise BadValue("lease", self.lease, f"must be {at_least_s} s or more (lease_us_min)")

    @property
    def keep_us(self) -> int | None:
        return None if self.keep is None else parse_duration(self.keep)

    @property
    def keep_events_us(self) -> int | None:
        return None if self.keep_events is None else parse_duration(self.keep_events)

    @property
    def runner_cron(self) -> Cron | None:
        return None if self.runner_every is None else parse_cron(self.runner_every)

    @property
    def lease_s(self) -> float:
        return parse_duration(self.lease) / 1_000_000

    @property
    def grace_s(self) -> float:
        return parse_duration(self.grace, "grace") / 1_000_000

    @property
    def store_timeout_s(self) -> float:
        return parse_duration(self.store_timeout, "store_timeout") / 1_000_000


class Engine(NamedTuple):
    """What an open app is made of."""

    registry: Registry
    store: Store
    coordinator: Coordinator
    clock: Clock  # by which the store judges
    worker: Worker | None
    ids: Ids
    upkeep: Upkeep
    matcher: Matcher | None
    desk: Desk
    consumers: Consumers | None  # only beside a worker
    hints: Hints
    declared_pools: tuple[tuple[str, str | None], ...]
    observed: Observation | None


# --- whether it is open, and for whom ---


class Life:
    """Whether an app is open, and for whom: one process, one event loop."""

    def __init__(self) -> None:
        self.entered = False  # from the beginning of the opening to the end of the closing
        self._engine: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forks = 0

    def engine(self) -> Engine:
        """The open engine, or the error that says why there is none for this caller."""
        engine = self._engine
        if engine is None:
            raise _not_open()
        if Forks.count != self._forks:
            raise _after_fork()
        if asyncio._get_running_loop() is not self._loop:  # None in a plain thread
            raise WrongLoop(
                "the app belongs to another event loop: in a plain thread use app.sync, such as `app.sync.start(…)`, "
                "and in a loop of your own `await asyncio.to_thread(app.sync.start, …)`"
            )
        return engine

    @property
    def waits_for_steps(self) -> bool:
        """Whether it is being closed and waits for step bodies to end. Asked in any thread."""
        worker = None if self._engine is None else self._engine.worker
        return worker is not None and worker.is_draining and bool(worker.in_flight)

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that the open app belongs to, for whoever has work for it; or why there is none."""
        loop = self._loop
        if self._engine is None or loop is None:
            raise _not_open()
        if Forks.count != self._forks:
            raise _after_fork()
        return loop

    async def open(
        self,
        settings: Settings,
        registry: Registry,
        readers: Readers,
        schedules: Sequence[ScheduleRecord],
        make_store: Callable[[Ids], Store],
        make_chance: Callable[[], random.Random],
        source: str,
        observed: Observation | None = None,
    ) -> None:
        """Open an engine. Raises NotRunning if one is open; after a fork the parent's is left alone."""
        if self.entered and self._forks == Forks.count:
            raise NotRunning("the app is open already: an App is entered once at a time")
        if self._engine is not None:  # the parent's: its connections must not be closed here
            Forks.inherited.append(self._engine)
            self._engine = None
        self.entered, self._forks = True, Forks.count
        try:
            made = await _made(
                *(settings, registry, readers, schedules, make_store, make_chance(), source),
                observed,
            )
            await self._begin(made)
        except BaseException:
            self.entered = False
            raise

    async def _begin(self, engine: Engine) -> None:
        # Known before it is started: a run that is recovered may call the app at once.
        self._loop, self._engine = asyncio.get_running_loop(), engine
        try:
            await _start(engine)
        except BaseException:
            self._engine = None
            await _abandon(engine)
            raise

    async def close(self) -> None:
        """Close the engine if there is one and it is this process's own."""
        if self._engine is None or Forks.count != self._forks:
            return
        try:
            await _stop(self._engine)
        finally:
            self._engine = None
            self.entered = False


def _not_open() -> NotRunning:
    return NotRunning(
        "the app is not open: use it inside `async with app:`, or `with app.sync:` in code without a loop"
    )


def _after_fork() -> AfterFork:
    return AfterFork(
        "this process was forked after the app was opened: open an app of its own in it"
    )


# --- opening ---


async def _made(
    settings: Settings,
    registry: Registry,
    readers: Readers,
    schedules: Sequence[ScheduleRecord],
    make_store: Callable[[Ids], Store],
    chance: random.Random,
    source: str,
    observed: Observation | None,
) -> Engine:
    """The engine with its store open and its writer at work; nothing else has begun."""
    ids = Ids(settings.clock, chance)
    # The store makes ids on its writer's thread, so it has an `Ids` and a chance of its own.
    store = make_store(Ids(settings.clock, random.Random(chance.getrandbits(128))))
    store.patience_s = settings.store_timeout_s
    await store.open()
    clock = store.clock(settings.clock)
    coordinator = Coordinator(
        store, ids, store_timeout_s=settings.store_timeout_s, observed=observed
    )
    coordinator.start()
    upkeep = Upkeep(store, coordinator, clock, settings.keep_us)
    worker = _worker(
        settings, registry, schedules, store, coordinator, clock, ids, chance, observed
    )
    matcher = None if worker is None else Matcher(store, coordinator, clock)
    desk = Desk(registry, ids, settings.deps, Outside(clock, source), observed)
    consumers = None
    if worker is not None:
        consumers = Consumers(
            store,
            coordinator,
            clock,
            chance.random,
            desk,
            readers,
            fanout=settings.fanout,
            runner_cron=settings.runner_cron,
            keep_us=settings.keep_events_us,
            keep_events=settings.keep_events_max,
        )
    if worker is not None and matcher is not None and consumers is not None:
        worker.recovery.hearers += [matcher.on_look, consumers.on_look]
        worker.on_renewed.append(consumers.on_renewed)
    hints = Hints(store, coordinator, worker, upkeep, observed)
    if observed is not None:
        observed.gauges = gauges_of(store, coordinator, clock, worker, consumers)
    pools = _declared_pools(settings, registry)
    return Engine(
        *(registry, store, coordinator, clock, worker, ids, upkeep, matcher, desk, consumers),
        *(hints, pools, observed),
    )


def _worker(
    settings: Settings,
    registry: Registry,
    schedules: Sequence[ScheduleRecord],
    store: Store,
    coordinator: Coordinator,
    clock: Clock,
    ids: Ids,
    chance: random.Random,
    observed: Observation | None,
) -> Worker | None:
    if not settings.worker:
        return None
    return Worker(
        store,
        coordinator,
        registry,
        clock,
        ids,
        chance.random,
        # Of its own: how often it looks is a matter of real time, and must not change what a seed leads to.
        jitter=random.Random(chance.getrandbits(128)).random,
        deps=settings.deps,
        resident=settings.resident,
        concurrency=settings.concurrency,
        threads=settings.threads,
        lease_s=settings.lease_s,
        grace_s=settings.grace_s,
        check_filter=_check_filter,
        schedules=schedules,
        declared_pools=_declared_pools(settings, registry),
        pools=_served_pools(settings, registry),
        observed=observed,
    )


def _declared_pools(settings: Settings, registry: Registry) -> tuple[tuple[str, str | None], ...]:
    """What this app says about pools: where it serves them, and where its workflows use them."""
    return declared_by([*(settings.pools or ()), *(one.declared_pool for one in registry.all())])


def _served_pools(settings: Settings, registry: Registry) -> frozenset[str] | None:
    served = served_by(settings.pools)
    left = [one.name for one in registry.all() if served is not None and one.pool not in served]
    if left:
        log.warning(
            "this worker serves only the pools %s, so runs of %s are left to others ('' stands for runs in no pool)",
            sorted(served or ()),
            ", ".join(map(repr, left)),
        )
    return served


def _check_filter(text: str) -> None:
    """Raises what is wrong with the filter of a wait, where the wait is made."""
    compile_filter(text)


async def _start(engine: Engine) -> None:
    if engine.worker is not None:
        await engine.worker.start()
        if engine.matcher is not None:
            await engine.matcher.start()
    else:
        await declare_pools(engine.coordinator, engine.declared_pools, only_new=True)
        await _declare(engine)
    if engine.consumers is not None:
        await engine.consumers.start()
    engine.upkeep.start()
    engine.hints.open()


async def _declare(engine: Engine) -> None:
    """A client tells the catalogue what nobody declared yet. What is there stays: the code that runs decides."""
    if not engine.registry.all() and not engine.registry.channels():
        return
    known = {(one.name, one.version) for one in await engine.store.catalogue()}
    lines = tuple(one.record() for one in engine.registry.all() if one.key not in known)
    named = {(one.kind, one.name) for one in await engine.store.channels()}
    records = [one.record() for one in engine.registry.channels()]
    channels = tuple(one for one in records if (one.kind, one.name) not in named)
    if lines or channels:
        declare = ops.Declare(workflows=lines, channels=channels, only_new=True)
        await engine.coordinator.submit(declare)


async def _abandon(engine: Engine) -> None:
    """Opening failed half-way: leave no task, thread or lock behind. The first error is told."""
    try:
        await _stop(engine)
    except Exception:
        log.exception("the app could not be closed well after its opening had failed")


# --- closing ---


async def _stop(engine: Engine) -> None:
    """In a fixed order: background, readers of the ledger, matcher, worker (claims, bodies, hand back), writer, store.

    Whatever fails or is cancelled, what comes after it is closed all the same; the first error is told.
    """
    first: BaseException | None = None
    stops: list[Callable[[], Awaitable[None]]] = [engine.upkeep.stop]
    if engine.observed is not None:
        stops.insert(0, engine.observed.close)
    if engine.consumers is not None:
        stops.append(engine.consumers.stop)
    if engine.desk.outside is not None:
        stops.append(engine.desk.outside.close)
    if engine.matcher is not None:
        stops.append(engine.matcher.stop)
    if engine.worker is not None:
        stops.append(engine.worker.stop)
    # After the worker: while it waits for steps, it answers who asks something of their runs.
    stops.append(functools.partial(_close_hints, engine))
    stops += [engine.coordinator.stop, functools.partial(_close_store, engine)]
    for stop in stops:
        try:
            await stop()
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and engine.worker is not None:
                engine.worker.hurry()
            if first is None:
                first = error
            else:
                log.error("closing the app failed once more", exc_info=error)
    if first is not None:
        raise first


async def _close_hints(engine: Engine) -> None:
    engine.hints.close()


async def _close_store(engine: Engine) -> None:
    """To its end, even if we are cancelled: a store that is closed by half is never closed again."""
    engine.coordinator.hub.close()
    closing = asyncio.ensure_future(engine.store.close())
    try:
        await asyncio.shield(closing)
    finally:
        await asyncio.wait((closing,))
