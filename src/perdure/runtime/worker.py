"""The worker: holds runs in memory, and claims those that are ready.

A run it owns stays with it while it waits, up to a bound; then the least recently used goes, and comes back by claim
and replay. Nothing depends on what is resident. Deadlines (timers.py), ticks of schedules (schedules.py), lines of
pools (lines.py), the slow loop that finds what nobody was told of (recovery.py) and the sends that came with callers'
own transactions (outbox.py) are its parts.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from perdure.alarm import Alarm
from perdure.channels import Queue, Signal, Topic
from perdure.coordinator.coordinator import Coordinator
from perdure.errors import StoreRefused
from perdure.inputs import find_dep
from perdure.model import limits, ops
from perdure.model.clock import Clock
from perdure.model.ids import Ids
from perdure.model.limits import BadValue
from perdure.model.outcomes import Advanced, Counted, Fenced, Moved, Started, Wake
from perdure.model.records import RunRecord, ScheduleRecord, StepRecord
from perdure.observing.observation import Observation
from perdure.registry import Registry, Step, Workflow
from perdure.runtime.called import Called
from perdure.runtime.calls import StepCall
from perdure.runtime.lease import Lease
from perdure.runtime.lines import Lines
from perdure.runtime.outbox import Outbox
from perdure.runtime.recovery import Recovery
from perdure.runtime.schedules import Schedules
from perdure.runtime.steps import Bodies, named
from perdure.runtime.timers import Timers
from perdure.runtime.transactions import Transactions
from perdure.runtime.turn import Execution
from perdure.service import Service
from perdure.store.base import Look, RunFilter, Store

T = TypeVar("T")

log = logging.getLogger("perdure.worker")

_plain_steps_kept = 1024
_missed_max = 10_000
# How long a little free room may wait for more before ready runs are claimed into it.
_claim_pause_s = 0.05


class Worker(Service):
    """Executes runs of one app in one process."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator,
        registry: Registry,
        clock: Clock,
        ids: Ids,
        die: Callable[[], float],
        *,
        jitter: Callable[[], float],
        deps: Sequence[object] = (),
        resident: int = limits.resident_runs_default,
        concurrency: int = limits.active_runs_default,
        threads: int = limits.step_threads_default,
        poll_s: float = 1.0,
        lease_s: float = limits.lease_us_default / 1_000_000,
        grace_s: float = limits.grace_us_default / 1_000_000,
        check_filter: Callable[[str], None] = lambda text: None,
        schedules: Sequence[ScheduleRecord] = (),
        declared_pools: Sequence[tuple[str, str | None]] = (),
        pools: frozenset[str] | None = None,
        observed: Observation | None = None,
    ) -> None:
        super().__init__()
        self.counts = None if observed is None else observed.counts
        self.spans = None if observed is None else observed.spans
        self.registry = registry
        self.check_filter = check_filter
        self._lease = Lease(store, coordinator, ids, lease_s, self._on_lost_lease, registry.keys)
        self.worker_id = self._lease.worker_id
        self.on_renewed: list[Callable[[], None]] = []  # who must know that we have another id now
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._ids = ids
        self._deps = tuple(deps)
        self._resident = resident
        self._grace_s = grace_s
        self.is_draining = False  # being stopped: no run is claimed and no body begins any more
        self._is_hurried = False
        self._changed = asyncio.Event()  # while it is: a body has ended, or a run has come
        self._concurrency = concurrency
        self._pools = None if pools is None else tuple(sorted(pools))
        self._executions: dict[str, Execution] = {}
        self._parked: dict[str, Execution] = {}  # in order of use: the first is the least recent
        # Bounded: a function made anew inside a workflow is a new one on every replay.
        self.as_step: Callable[[Any], Step[..., Any]] = functools.lru_cache(_plain_steps_kept)(Step)
        self._noted: dict[tuple[str, int], dict[str, Signal[Any]]] = {}
        self._claimable = asyncio.Event()
        self._claim_alarm = Alarm(clock, self._claimable.set)
        self._claiming = False
        self._loading = 0
        self._reserved = 0
        self._asked_for = 0  # by a claim under way; who is born meanwhile does not wait for it
        self._claim_soon: asyncio.TimerHandle | None = None
        self._full = False  # something ready may have been left for want of room
        self._coming: set[str] = set()  # runs on their way into memory
        self._missed: set[str] = set()  # runs of ours that were changed before they were in memory
        self._fanning_out = 0
        self._looking = False  # for what others did to busy runs
        self._taken: dict[str, int] = {}  # runs that a fan-out has given us, by their revision
        self._bodies = Bodies(clock, die, threads, self._give_birth, self.spans)
        self.timers = Timers(coordinator, clock, self.counts)
        self.schedules = Schedules(coordinator, clock, registry, schedules)
        self.lines = Lines(coordinator, clock, registry.keys, declared_pools, pools)
        self.outbox = Outbox(store, coordinator, clock)
        self._transactions = Transactions(coordinator, clock, self._bodies.failed, self.spans)
        self._called = Called(store, self._on_seen)
        self.recovery = Recovery(
            store, coordinator, self._lease, jitter, poll_s, registry.keys, self._pools
        )
        self.recovery.hearers.append(self._on_look)
        self.post = coordinator.post
        self.run_body = self._bodies.run
        self.run_transaction = self._transactions.run
        # Bound once: a start keeps it until its commit.
        self.on_born = self._on_born

    # --- life ---

    async def start(self) -> None:
        await self._lease.take()
        await self._declare()
        self._coordinator.hub.attach(self._hear)
        self._coordinator.on_unknown = self._reload_all
        self.timers.start()
        await self.lines.start()
        await self.schedules.start()
        self.outbox.start()
        self._called.start()
        self._spawn("claims", self._claim_loop)
        await self.recovery.look(thorough=False)
        self.recovery.start()

    async def stop(self, grace_s: float | None = None) -> None:
        """Stop claiming, let step bodies end, hand runs back, leave. The coordinator is still open.

        Bodies that can be cancelled are so after the grace; a thread cannot, and is waited for: its run must not go on
        elsewhere meanwhile, and the process could not end before it either. Cancelled, it waits for nothing more and
        does the rest all the same, but for runs whose bodies go on nevertheless: they stay this process's until those
        have ended.
        """
        if self.is_draining:
            return
        self.is_draining = True
        self._bodies.begin_no_more(self._changed.set)
        self._transactions.begin_no_more(self._changed.set)
        try:
            if self._is_hurried:
                await self._cut_off()
            else:
                await self._drain(self._grace_s if grace_s is None else grace_s)
                await self._stop_work()
        except asyncio.CancelledError:
            await self._cut_off()
            raise
        finally:
            await self._leave()

    def hurry(self) -> None:
        """Whoever closes is cancelled before it came to us: a stop waits for no step then, as one that is cancelled."""
        self._is_hurried = True

    @property
    def in_flight(self) -> list[StepCall[Any]]:
        """The steps whose bodies run now."""
        return [*self._bodies.in_flight, *self._transactions.in_flight]

    async def _drain(self, grace_s: float) -> None:
        """Until no body is in flight. Whatever else concerns their runs goes on: news, requests, the life sign."""
        drains = asyncio.create_task(self._until_drained(grace_s))
        if waited := self.in_flight:
            log.info("closing waits for steps (grace: %g s): %s", grace_s, named(waited))
        try:
            while not drains.done() and self.in_flight:
                await self._hand_back_idle()
                await self._until_changed(drains)
            await drains
        finally:
            drains.cancel()

    async def _until_drained(self, grace_s: float) -> None:
        await asyncio.gather(self._bodies.drain(grace_s), self._transactions.drain(grace_s))

    async def _until_changed(self, drains: asyncio.Task[None]) -> None:
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((drains, changed), return_when=asyncio.FIRST_COMPLETED)
            self._changed.clear()
        finally:
            changed.cancel()

    async def _hand_back_idle(self) -> None:
        """Runs that no body of ours works for are of more use elsewhere: no step of theirs would begin here."""
        busy = {one.owner.run_id for one in self.in_flight}
        idle = [one for one in list(self._executions.values()) if one.run_id not in busy]
        for execution in idle:
            execution.evict()  # acks lead nowhere from here on
            self._forget(execution)
        for execution in idle:
            await execution.quiet()
        if idle:
            await self._coordinator.submit_many([_release_of(one) for one in idle])

    async def _stop_work(self) -> None:
        await super().stop()
        await self.recovery.stop()
        await self._called.stop()
        await self.timers.stop()
        await self.schedules.stop()
        await self.lines.stop()
        await self.outbox.stop()
        self._claim_alarm.clear()
        if self._claim_soon is not None:
            self._claim_soon.cancel()

    async def _cut_off(self) -> None:
        """To its end, though we are cancelled once more: what goes on nevertheless decides which runs are kept."""
        ending = asyncio.gather(
            self._stop_work(), self._bodies.cut_off(), self._transactions.cut_off()
        )
        while not ending.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((ending,))
        ending.result()

    async def _leave(self) -> None:
        try:
            for execution in list(self._executions.values()):
                execution.evict()  # acks lead nowhere from here on, so the flush ends
            await self._coordinator.flush()
        finally:
            self._coordinator.hub.attach(None)
            self._coordinator.on_unknown = None
            await self._hand_back()

    async def _hand_back(self) -> None:
        left = self._bodies.in_flight
        kept = {one.owner.run_id for one in left}
        releases = [_release_of(one) for one in self._executions.values() if one.run_id not in kept]
        for execution in list(self._executions.values()):
            execution.evict()
        self._executions.clear()
        self._parked.clear()
        try:
            if releases:
                await self._coordinator.submit_many(releases)
        finally:
            if left:
                log.warning(
                    "closed while steps still run: %s. Their results are lost, and their runs stay with this process "
                    "until they have ended",
                    named(left),
                )
                self._lease.outlast(self._bodies.until_over())
            else:
                await self._lease.leave()

    # --- when others take us for dead ---

    def _on_lost_lease(self) -> None:
        """Let go of all runs, which may be others' by now, and go on as another worker."""
        log.error(
            "worker %s has lost its lease: its runs go on elsewhere, or here anew", self.worker_id
        )
        for execution in list(self._executions.values()):
            self.on_lost(execution)
        self.worker_id = self._lease.worker_id
        if not self.stopping:
            self._spawn("renew", self._renew)

    async def _renew(self) -> None:
        await self._lease.renew()
        for hear in self.on_renewed:
            hear()
        self._claimable.set()  # what was called out meanwhile was not claimed
        await self.recovery.look(thorough=False)

    # --- wakes ---

    def _hear(self, wake: Wake) -> None:
        match wake.kind:
            case "news":
                execution = self._owned(wake)
                if execution is not None and wake.completion is not None:
                    self._parked.pop(wake.run_id, None)
                    execution.on_news(wake.completion, wake.revision)
            case "control":
                execution = self._owned(wake)
                if execution is not None and wake.lost:
                    self.on_lost(execution)
                elif execution is not None:
                    self._parked.pop(wake.run_id, None)
                    execution.on_control(wake.revision, pause=wake.pause, cancel=wake.cancel)
            case "ended":
                execution = self._owned(wake)
                if execution is not None and not execution.finishing:
                    self.on_lost(execution)
            case "ready":
                self._note_ready(wake.at)
            case "deadline":
                self.timers.note(wake.at)
            case "schedule":
                self.schedules.note(wake.at)
            case "line":
                self.lines.note(wake.run_id, wake.at)
            case "fan_out":
                self._fan_out()
            case "claimed" if wake.owner == self.worker_id:
                self._taken[wake.run_id] = wake.revision

    def _owned(self, wake: Wake) -> Execution | None:
        if wake.owner != self.worker_id:
            return None
        execution = self._executions.get(wake.run_id)
        if execution is None and (wake.kind != "ended" or wake.run_id in self._coming):
            if len(self._missed) >= _missed_max:
                self._missed.clear()  # what is missed is also found out by the run's next op
            self._missed.add(wake.run_id)
        return execution

    def on_call(self, wake: Wake) -> None:
        """Another process has done something to a run of ours, they say: look."""
        if wake.owner == self.worker_id and not self.stopping:
            self._called.hear(wake.run_id)

    def _on_seen(self, run_id: str, run: RunRecord | None, steps: Sequence[StepRecord]) -> None:
        execution = self._executions.get(run_id)
        ours = run is not None and run.owner == self.worker_id
        if execution is None and run_id in self._coming:
            self._missed.add(run_id)  # what is being read may be older than this
        elif execution is None and ours:
            self._spawn("reload", lambda: self._load([run_id], {}))
        elif execution is None or execution.finishing:
            pass
        elif run is None or not ours or run.fence != execution.fence:
            # Lost; or this was read before our own newer claim, and nobody else would ever go on with the run. Only
            # a load tells the two apart, and a transaction must not hold rows that another may wait for.
            execution.withdraw_transactions()
            self.reload(execution)
        else:
            if run.revision != execution.revision:
                self._parked.pop(run_id, None)
            execution.on_called(run, steps)

    def _note_ready(self, at: int) -> None:
        if at > self._clock.now():
            self._claim_alarm.set(at)
        else:
            self._claimable.set()

    def _fan_out(self) -> None:
        """Go on with events that had more runs to resume than their own commit took: a chunk for each commit.

        The next chunk is asked for when the last one is told of, before its runs go on.
        """
        if self._fanning_out < 2 and not self.stopping:
            self._fanning_out += 1
            claim = self._claim_op()
            self._reserved += claim.limit
            fan_out = ops.FanOut(limit=limits.resumed_per_commit_max, claim=claim)
            self.post(fan_out, self._on_fanned_out)

    def _on_fanned_out(self, op: ops.FanOut, outcome: Any, extra: Any) -> None:
        self._fanning_out -= 1
        assert op.claim is not None
        self._reserved -= op.claim.limit
        taken, self._taken = self._taken, {}
        if self.stopping:
            # Handed back, as they never came into memory.
            for run_id, revision in taken.items():
                release = ops.Release(run_id=run_id, fence=op.claim.fence, revision=revision)
                self.post(release, _ignore)
        elif taken:
            self._reserved += len(taken)  # until they are counted as being loaded
            self._spawn("taken", functools.partial(self._load_taken, list(taken)))
        if isinstance(outcome, Counted) and outcome.more and not self._fanning_out:
            self._fan_out()

    # --- claiming ---

    def reserve(self, pool: str = "") -> bool:
        """Whether a run may be born claimed by this worker; if so its place is kept until it begins."""
        if self._pools is not None and pool not in self._pools:
            return False
        if self.is_draining or not self._lease.is_held or self._active() >= self._concurrency:
            return False
        self._reserved += 1
        return True

    def _active(self) -> int:
        return len(self._executions) - len(self._parked) + self._loading + self._reserved

    async def _claim_loop(self) -> None:
        while True:
            await self._claimable.wait()
            self._claimable.clear()
            self._claiming = True
            try:
                await self._claim()
            finally:
                self._claiming = False

    async def _claim(self) -> None:
        while (claim := self._claim_op()).limit > 0:
            self._asked_for = claim.limit
            try:
                claimed = await self._coordinator.submit(claim)
            finally:
                self._asked_for = 0
            if claimed.next_at is not None:
                self._claim_alarm.set(claimed.next_at)
            if claimed.runs:
                await self._load_ours([run.run_id for run in claimed.runs])
            if len(claimed.runs) < claim.limit:
                return
        self._full = True

    def _claim_op(self) -> ops.ClaimRuns:
        """For as many runs as there is room for, but for those that a claim under way may bring.

        For none without a lease: they would be taken from one who is not among the living. Nor while we are stopped.
        """
        claims = self._lease.is_held and not self.is_draining
        room = self._concurrency - self._active() - self._asked_for if claims else 0
        return ops.ClaimRuns(
            worker_id=self.worker_id,
            fence=self._ids.fence(),
            limit=max(min(room, limits.batch_ops_max), 0),
            workflows=self.registry.keys(),
            pools=self._pools,
        )

    async def _load_taken(self, run_ids: list[str]) -> None:
        self._reserved -= len(run_ids)
        try:
            await self._load_ours(run_ids)
        except Exception:
            # Not to be begun again, which would give their places back twice: what is lost is looked for.
            log.exception("runs that a fan-out has given us could not be read")

    async def _load_ours(self, run_ids: list[str]) -> None:
        """Load what was just claimed."""
        try:
            await self._load(run_ids, {})
        except Exception:
            self._spawn("lost", self._load_lost)  # they are ours: nobody else will take them
            raise

    async def _load(self, run_ids: list[str], carried: dict[str, Execution]) -> None:
        """Read history after the claim has committed, never before; then replay."""
        self._loading += len(run_ids)
        self._coming.update(run_ids)
        self._missed.difference_update(run_ids)
        again: list[str] = []
        try:
            loaded = await self._store.load(run_ids)
            for nth, (run, steps) in enumerate(loaded):
                if run.run_id in self._missed:
                    again.append(run.run_id)
                elif run.owner == self.worker_id:
                    self._begin(run, steps, carried.pop(run.run_id, None))
                if nth % 50 == 49:
                    await asyncio.sleep(0)
        finally:
            self._loading -= len(run_ids)
            self._coming.difference_update(run_ids)
        if again:
            await self._load(again, carried)
            return
        for execution in carried.values():
            execution.stop_bodies()  # it is no longer ours

    def _on_born(self, op: Any, outcome: Any, args: tuple[Any, ...]) -> None:
        """Begin a run that was to be born claimed as soon as it is committed, even if its starter was cancelled.

        `args` are what its stored input decodes to.
        """
        started = outcome[0] if type(outcome) is tuple else outcome
        # In a pool with limits it is not born claimed but stands in line.
        if isinstance(started, Started) and started.created and started.run.owner is not None:
            self._coming.add(started.run.run_id)
            self._bodies.begin(started.run, args)
        else:
            self._reserved -= 1

    def _give_birth(self, run: RunRecord, args: tuple[Any, ...]) -> None:
        run_id = run.run_id
        self._reserved -= 1
        self._coming.discard(run_id)
        if self.is_draining or run.owner != self.worker_id:
            # Its code has not begun and does not begin now: what it sends would keep the close waiting. Nor does it
            # for a worker that we are no longer.
            self.post(_release_of(run), _ignore)
        elif run_id in self._missed:
            self._missed.discard(run_id)
            self._spawn("reload", lambda: self._load([run_id], {}))
        elif run_id not in self._executions:
            self._begin(run, [], None, args)

    def _begin(
        self,
        run: RunRecord,
        steps: list[StepRecord],
        carried: Execution | None,
        args: tuple[Any, ...] | None = None,
    ) -> None:
        workflow = self.registry.find(run.workflow, run.version)
        if workflow is None:
            about = {"run_id": run.run_id, "workflow": run.workflow}
            log.error("claimed run %r of unknown workflow %r", *about.values(), extra=about)
            release = ops.Release(run_id=run.run_id, fence=run.fence, revision=run.revision)
            self.post(release, _ignore)
            return
        if carried is not None and carried.fence != run.fence:
            carried.stop_bodies()  # others had the run in between: what it was then at may be over
            carried = None
        stale = self._executions.get(run.run_id)
        if stale is not None and stale.fence == run.fence:
            if carried is not None:
                carried.stop_bodies()
            return  # the same claim, begun by whoever found it first
        if stale is not None:
            # Another process took it and let it go again: this claim is the newer one.
            self.on_lost(stale)
        execution = Execution(self, run, workflow, steps)
        self._executions[run.run_id] = execution
        if self.is_draining:
            self._changed.set()
        try:
            execution.begin(carried, args)
            execution.acknowledge(run)
        except Exception as error:
            execution.break_off(error)

    # --- what executions ask of us ---

    def time(self) -> int:
        return self._clock.now()

    def dep(self, kind: type[T]) -> T:
        return find_dep(self._deps, kind)

    def check_transaction(self, step: Step[..., Any]) -> None:
        """Raises what keeps this step from being a transaction on this store."""
        kind = self._store.transacts
        if kind is None:
            raise StoreRefused(
                "this store has no database that a step could write to: ctx.transaction needs sqlite:/// or "
                "postgresql://"
            )
        if step.is_async != (kind == "async def"):
            problem = f"must be a plain `{kind}` to be a transaction on this store"
            raise BadValue(f"step {step.name!r}", step.function, problem)

    def note_signal(self, workflow: Workflow[Any, *tuple[Any, ...]], signal: Signal[Any]) -> None:
        noted = self._noted.setdefault(workflow.key, {})
        known = noted.get(signal.name)
        if known is signal or (known is not None and known.is_like(signal)):
            return
        if known is None and len(noted) >= limits.noted_signals_max:
            return  # names made from data: the catalogue is no place for them
        noted[signal.name] = signal
        # The store adds it to what is known of the workflow.
        self.post(ops.Declare(workflows=(workflow.record([signal]),)), _ignore)

    def note_channel(self, channel: Topic[Any] | Queue[Any]) -> None:
        """A topic or queue that was not declared: those who know only its name are told its type."""
        if self.registry.note_channel(channel):
            declare = ops.Declare(channels=(channel.record(),), only_new=True)
            self.post(declare, _ignore)

    def release_on_park(self) -> bool:
        return self._resident == 0

    def on_parked(self, execution: Execution, released: bool) -> None:
        if released:
            self._forget(execution)
            execution.evict()
            return
        self._parked[execution.run_id] = execution
        self._make_room()
        self._note_room()

    def _make_room(self) -> None:
        while len(self._parked) > self._resident:
            run_id, execution = next(iter(self._parked.items()))
            del self._parked[run_id]
            self._release(execution)

    def _release(self, execution: Execution) -> None:
        self.post(_release_of(execution), self._on_released, execution)

    def _on_released(self, op: Any, outcome: Any, execution: Execution) -> None:
        if execution.dead or not execution.parked:
            return  # it was woken meanwhile
        if isinstance(outcome, Advanced | Fenced):
            self.on_over(execution)  # ours no longer, by our own doing or by another process's
        elif isinstance(outcome, Moved):
            self.reload(execution)  # another process changed it and its hint has not reached us
        else:
            self._parked[execution.run_id] = execution  # the store could not take it

    def on_over(self, execution: Execution) -> None:
        """It ended or was paused: nothing is left to do here."""
        self._forget(execution)
        execution.evict()

    def on_lost(self, execution: Execution) -> None:
        """It is no longer ours: stop at once, record nothing."""
        self._forget(execution)
        execution.stop_bodies()
        execution.evict()

    def reload(self, execution: Execution, pause_s: float = 0.0) -> None:
        """What is in memory is not what is stored: replay from the store, keeping bodies in flight."""
        self._forget(execution)
        execution.evict()
        if not self.stopping:
            self._coming.add(execution.run_id)
            self._spawn("reload", lambda: self._reload(execution, pause_s))

    async def _reload(self, execution: Execution, pause_s: float) -> None:
        # What it has posted must be decided first: a result that is recorded after we have read the history
        # would be produced, and recorded, a second time.
        self._loading += 1
        try:
            if pause_s:
                await asyncio.sleep(pause_s)
            await execution.quiet()
            await self._load([execution.run_id], {execution.run_id: execution})
        except Exception:
            # It is tried again: who else finds the run must not load it without what is carried over.
            self._coming.add(execution.run_id)
            raise
        finally:
            self._loading -= 1

    def _reload_all(self) -> None:
        for execution in list(self._executions.values()):
            if not execution.dead:
                self.reload(execution)
        if not self.stopping:
            self._spawn("lost", self._load_lost)

    async def _load_lost(self) -> None:
        """After an unknown outcome: a start or claim may have made runs ours that never came into memory."""
        # Committed after whatever was in doubt, so the rows below are decided; what it recovers is by the way. (A life
        # sign would revive a lease that is lost.)
        await self._coordinator.submit(ops.Recover(limit=1))
        running = RunFilter(statuses=("running",))
        after: tuple[int, str] | None = None
        while True:
            page = await self._store.runs(running, after, limits.page_rows_max)
            ours = [one.run_id for one in page if one.owner == self.worker_id]
            here = self._executions.keys() | self._coming
            lost = [run_id for run_id in ours if run_id not in here]
            if lost:
                await self._load(lost, {})
            if len(page) < limits.page_rows_max:
                return
            after = (page[-1].created_at, page[-1].run_id)

    def _forget(self, execution: Execution) -> None:
        if self._executions.get(execution.run_id) is execution:
            del self._executions[execution.run_id]
            self._parked.pop(execution.run_id, None)
            self._note_room()

    def _note_room(self) -> None:
        """Claim again once an eighth of the room is free, or soon: one by one would cost a commit for each."""
        if not self._full:
            return
        room = self._concurrency - self._active()
        if room * 8 >= self._concurrency:
            self._full = False
            self._claimable.set()
        elif room > 0 and self._claim_soon is None:
            loop = asyncio.get_running_loop()
            self._claim_soon = loop.call_later(_claim_pause_s, self._claim_what_fits)

    def _claim_what_fits(self) -> None:
        self._claim_soon = None
        self._full = False
        self._claimable.set()

    # --- what a start tells, and what the store tells ---

    async def _declare(self) -> None:
        workflows = tuple(one.record() for one in self.registry.all())
        channels = tuple(one.record() for one in self.registry.channels())
        await self._coordinator.submit(ops.Declare(workflows=workflows, channels=channels))

    def _on_look(self, look: Look, thorough: bool) -> None:
        # Hints mostly come; where there are none, this is how a busy run learns of what others do.
        due = thorough or not self._store.sends_hints
        if due and not self._looking and len(self._executions) > len(self._parked):
            self._looking = True  # until it succeeds: it is tried again if it fails
            self._spawn("changes", self._look_for_changes)
        if look.deadline_at is not None:
            self.timers.note(look.deadline_at)
        if look.ready_at is not None:
            self._note_ready(look.ready_at)
        if look.fan_out:
            self._fan_out()
        if look.schedule_at is not None:
            self.schedules.note(look.schedule_at)
        self.lines.note_all(look.lines)
        if look.outbox:
            self.outbox.note()
        if self._lease.is_outdated:  # an app that shares our definitions has added some
            self._spawn("workflows", self._lease.beat)

    async def _look_for_changes(self) -> None:
        """A run in the midst of a long step asks the store nothing: what others did to it, it may not have heard."""
        busy = [one.run_id for one in self._executions.values() if not one.parked]
        for first in range(0, len(busy), limits.page_rows_max):
            run_ids = busy[first : first + limits.page_rows_max]
            revisions = await self._store.revisions(run_ids)
            for run_id in run_ids:
                execution = self._executions.get(run_id)
                # What has an op under way hears it from the answer.
                if execution is not None and not execution.is_asking:
                    if revisions.get(run_id) != execution.revision:
                        self._called.hear(run_id)
        self._looking = False

    # --- for tests and health ---

    @property
    def settled(self) -> bool:
        """Whether nothing moves: every run is parked and nothing is due, claimed or loaded."""
        return (
            not self._loading
            and not self._reserved
            and not self._claiming
            and not self._fanning_out
            and not self._claimable.is_set()
            and self.timers.idle
            and self.schedules.idle
            and self.lines.idle
            and self.outbox.idle
            and self._called.idle
            and len(self._executions) == len(self._parked)
        )

    @property
    def resident_runs(self) -> int:
        return len(self._executions)

    @property
    def active_runs(self) -> int:
        """Of those, runs that go on just now."""
        return len(self._executions) - len(self._parked)


def _ignore(op: Any, outcome: Any, extra: Any) -> None:
    """Nobody waits for this answer; what is not done now is found again by the upkeep."""


def _release_of(run: Execution | RunRecord) -> ops.Release:
    return ops.Release(run_id=run.run_id, fence=run.fence, revision=run.revision)
