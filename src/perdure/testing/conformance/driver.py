"""Ops as sentences: `await d.suspend("r1", wait("w", signal("go")))` applies one op and gives its outcome.

A driver plays every part at once: the worker that owns the runs, the senders, the operator, the timers. A turn op
takes its fence and revision from the run as the store has it; name them to play a stale owner. Only the contract of
`Store` is used, so whatever passes here passes on any store.
"""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from perdure.model import ops
from perdure.model.duration import Duration, parse_duration
from perdure.model.outcomes import (
    Admitted,
    Advanced,
    Buffered,
    Claimed,
    Counted,
    CursorMoved,
    DecideOutcome,
    Delivered,
    EmitOutcome,
    Emitted,
    Fenced,
    Filled,
    Fired,
    Moved,
    PutOutcome,
    Refusal,
    SendOutcome,
    Started,
    SteerOutcome,
    Trimmed,
    TurnOutcome,
)
from perdure.model.pools import checked_limits, encode_limits
from perdure.model.records import (
    RUNNER,
    ChannelRecord,
    Condition,
    ConsumerRecord,
    EventRecord,
    PoolRecord,
    RunRecord,
    ScheduleRecord,
    StepRecord,
    SubscriptionRecord,
    WaitSpec,
    WatcherRecord,
    WorkflowRecord,
)
from perdure.model.ticks import parse_every
from perdure.store.base import Applied, RunFilter, Store
from perdure.testing.clock import VirtualClock
from perdure.testing.conformance.words import WORKER, WORKFLOW, YEAR, error, wait

_every_row = 1000


class Driver:
    """Applies ops to a store one at a time, and reads back what came of them.

    Ids and fences are counted from `first`; two drivers on the same rows count from different ones.
    """

    def __init__(self, store: Store, clock: VirtualClock, *, first: int = 1) -> None:
        self.store = store
        self.clock = clock
        self.heard: list[Applied] = []  # every answer with its wakes, newest last
        self._numbers = itertools.count(first)

    async def apply(self, op: ops.Op[Any]) -> Any:
        """Apply one op alone."""
        (outcome,) = await self.batch(op)
        return outcome

    async def batch(self, *batch: ops.Op[Any]) -> list[Any]:
        """Apply several ops as one batch."""
        applied = await self.store.apply(self.fresh("batch"), batch)
        self.heard.extend(applied)
        return [one.outcome for one in applied]

    def fresh(self, kind: str) -> str:
        """An id that was never used."""
        return f"{kind}-{next(self._numbers):06}"

    def fence(self) -> int:
        """A fence that was never used."""
        return 1_000_000 + next(self._numbers)

    def advance(self, duration: Duration) -> None:
        """Move the store's clock; nothing fires by itself."""
        self.clock.set(self.clock.now() + parse_duration(duration))

    # --- starting and owning ---

    def start_op(
        self, run_id: str, *, workflow: str = WORKFLOW, owner: str | None = WORKER, **fields: Any
    ) -> ops.StartRun:
        fence = 0 if owner is None else self.fence()
        fields = {"version": 1, "input": "null", "fence": fence, **fields}
        return ops.StartRun(run_id=run_id, workflow=workflow, owner=owner, **fields)

    async def start(self, run_id: str, **fields: Any) -> Started | Refusal:
        """Start a run that this worker owns from birth; `owner=None` leaves it ready."""
        answer: Started | Refusal = await self.apply(self.start_op(run_id, **fields))
        return answer

    async def start_waiting(self, run_id: str, *on: Condition, **fields: Any) -> RunRecord:
        """Start a run and park it at path "w"."""
        await self.start(run_id, **fields)
        await self.suspend(run_id, wait("w", *on))
        return await self.run(run_id)

    async def signal_with_start(
        self, run_id: str, name: str, payload: str = "null", *, start: Any = None, **fields: Any
    ) -> Any:
        start_op = self.start_op(run_id, **(start or {}))
        send = self.signal_op(run_id, name, payload, **fields)
        return await self.apply(ops.SignalWithStart(start=start_op, signal=send))

    async def claim(
        self,
        worker_id: str = WORKER,
        *,
        limit: int = 100,
        workflows: tuple[str, ...] = (WORKFLOW,),
        pools: tuple[str, ...] | None = None,
    ) -> Claimed:
        known = tuple((name, version) for name in workflows for version in (1, 2))
        fence = self.fence()
        answer: Claimed = await self.apply(
            ops.ClaimRuns(
                worker_id=worker_id, fence=fence, limit=limit, workflows=known, pools=pools
            )
        )
        return answer

    async def beat(
        self,
        worker_id: str = WORKER,
        *,
        lease_us: int = YEAR,
        stopping: bool = False,
        workflows: tuple[tuple[str, int], ...] = (),
    ) -> Counted:
        answer: Counted = await self.apply(
            ops.Beat(worker_id=worker_id, lease_us=lease_us, stopping=stopping, workflows=workflows)
        )
        return answer

    async def recover(self, *suspects: str, limit: int = 100) -> Counted:
        answer: Counted = await self.apply(ops.Recover(limit=limit, suspects=suspects))
        return answer

    # --- turns of the owner ---

    async def turn(
        self, op: Callable[..., ops.Op[TurnOutcome]], run_id: str, /, **fields: Any
    ) -> Any:
        """Apply an op of the run's owner, with the fence and the revision that the store has."""
        return await self.apply(await self.turn_op(op, run_id, **fields))

    async def turn_op(
        self, op: Callable[..., ops.Op[TurnOutcome]], run_id: str, /, **fields: Any
    ) -> ops.Op[TurnOutcome]:
        now = await self.store.run(run_id)
        seen = {} if now is None else {"fence": now.fence, "revision": now.revision}
        return op(run_id=run_id, **{"fence": 1, "revision": 0, **seen, **fields})

    async def release(self, run_id: str, **fields: Any) -> TurnOutcome:
        answer: TurnOutcome = await self.turn(ops.Release, run_id, **fields)
        return answer

    async def record(self, run_id: str, *steps: ops.StepDone, **fields: Any) -> TurnOutcome:
        answer: TurnOutcome = await self.turn(ops.RecordStep, run_id, steps=steps, **fields)
        return answer

    async def suspend(self, run_id: str, *waits: ops.Wait, **fields: Any) -> TurnOutcome:
        answer: TurnOutcome = await self.turn(ops.Suspend, run_id, waits=waits, **fields)
        return answer

    async def record_send(
        self, run_id: str, path: str, send: Any, *, kind: str = "signal", **fields: Any
    ) -> TurnOutcome:
        fields = {"path": path, "name": path, "kind": kind, "send": send, **fields}
        answer: TurnOutcome = await self.turn(ops.RecordSend, run_id, **fields)
        return answer

    async def publish(self, run_id: str, path: str, name: str, value: str) -> TurnOutcome:
        return await self.record_send(run_id, path, None, kind="set", name=name, value=value)

    async def publish_op(
        self,
        run_id: str,
        *items: tuple[str, str],
        path: str = "s",
        attempt: int = 1,
        fence: int | None = None,
    ) -> ops.Publish:
        """What a step publishes, under the fence that the store has."""
        if fence is None:
            now = await self.store.run(run_id)
            fence = 1 if now is None else now.fence
        return ops.Publish(run_id=run_id, fence=fence, path=path, attempt=attempt, items=items)

    async def publish_items(
        self, run_id: str, *items: tuple[str, str], **fields: Any
    ) -> Counted | Fenced | Refusal:
        answer: Counted | Fenced | Refusal = await self.apply(
            await self.publish_op(run_id, *items, **fields)
        )
        return answer

    async def add_to_stream(
        self, run_id: str, path: str, stream: str, value: str, **fields: Any
    ) -> TurnOutcome:
        """What the run's own code publishes, as a step of it."""
        fields = {"kind": "publish", "name": stream, "value": value, **fields}
        return await self.record_send(run_id, path, None, **fields)

    async def record_cancel(self, run_id: str, *paths: str, **fields: Any) -> TurnOutcome:
        answer: TurnOutcome = await self.turn(ops.RecordCancel, run_id, paths=paths, **fields)
        return answer

    async def reject(self, run_id: str, again: ops.Wait, **fields: Any) -> TurnOutcome:
        fields = {"path": again.path, "wait": again, "reason": "it does not fit", **fields}
        answer: TurnOutcome = await self.turn(ops.RejectSignal, run_id, **fields)
        return answer

    async def finish(self, run_id: str, output: str | None = "null", **fields: Any) -> TurnOutcome:
        fields = {"status": "completed", "output": output, **fields}
        answer: TurnOutcome = await self.turn(ops.Finish, run_id, **fields)
        return answer

    async def fail(self, run_id: str, path: str | None = None, **fields: Any) -> TurnOutcome:
        fields = {"status": "failed", "error": error("no", path=path), **fields}
        answer: TurnOutcome = await self.turn(ops.Finish, run_id, **fields)
        return answer

    async def end(self, run_id: str, how: str) -> None:
        """End a run: "finish", "fail", "terminate", or "cancelled" by its own code."""
        if how == "cancelled":
            await self.cancel(run_id)
            await self.record_cancel(run_id)
            await self.finish(run_id, status="cancelled", output=None)
        else:
            await getattr(self, how)(run_id)

    async def continue_as(
        self, run_id: str, input: str = "null", *, workflow: str = WORKFLOW, **fields: Any
    ) -> TurnOutcome:
        fields = {"workflow": workflow, "version": 1, "input": input, **fields}
        answer: TurnOutcome = await self.turn(ops.ContinueAs, run_id, **fields)
        return answer

    async def park(self, run_id: str, reason: str = "changed code", **fields: Any) -> TurnOutcome:
        answer: TurnOutcome = await self.turn(ops.Park, run_id, reason=reason, **fields)
        return answer

    # --- time, steering, sending, upkeep ---

    async def fire(self, limit: int = 100) -> Fired:
        answer: Fired = await self.apply(ops.FireTimers(limit=limit))
        return answer

    async def cancel(self, run_id: str, reason: str | None = None) -> SteerOutcome:
        answer: SteerOutcome = await self.apply(ops.Cancel(run_id=run_id, reason=reason))
        return answer

    async def terminate(self, run_id: str, reason: str | None = None) -> SteerOutcome:
        answer: SteerOutcome = await self.apply(ops.Terminate(run_id=run_id, reason=reason))
        return answer

    async def pause(self, run_id: str, reason: str | None = None) -> SteerOutcome:
        answer: SteerOutcome = await self.apply(ops.Pause(run_id=run_id, reason=reason))
        return answer

    async def resume(self, run_id: str) -> SteerOutcome:
        answer: SteerOutcome = await self.apply(ops.Resume(run_id=run_id))
        return answer

    async def retry(self, run_id: str, path: str | None = None, **fields: Any) -> SteerOutcome:
        op = ops.Retry(run_id=run_id, path=path, **fields)
        answer: SteerOutcome = await self.apply(op)
        return answer

    def signal_op(
        self,
        run_id: str,
        name: str,
        payload: str = "null",
        *,
        ttl: Duration | None = None,
        **fields: Any,
    ) -> ops.SendSignal:
        fields.setdefault("signal_id", self.fresh("signal"))
        if ttl is not None:
            fields["ttl_us"] = parse_duration(ttl)
        return ops.SendSignal(run_id=run_id, name=name, payload=payload, **fields)

    async def signal(
        self, run_id: str, name: str, payload: str = "null", **fields: Any
    ) -> SendOutcome:
        answer: SendOutcome = await self.apply(self.signal_op(run_id, name, payload, **fields))
        return answer

    def decide_op(
        self, run_id: str, choice: str | None = "approve", *, id: str = "A", **fields: Any
    ) -> ops.Decide:
        by = fields.setdefault("by", "anna")
        fields.setdefault("people", (by,))
        return ops.Decide(run_id=run_id, approval_id=id, choice=choice, **fields)

    async def decide(
        self, run_id: str, choice: str | None = "approve", **fields: Any
    ) -> DecideOutcome:
        answer: DecideOutcome = await self.apply(self.decide_op(run_id, choice, **fields))
        return answer

    async def resend(
        self, dead_letter_id: str, *, to: str | None = None
    ) -> SendOutcome | PutOutcome:
        answer: SendOutcome | PutOutcome = await self.apply(
            ops.ResendDeadLetter(
                dead_letter_id=dead_letter_id, signal_id=self.fresh("signal"), run_id=to
            )
        )
        return answer

    async def declare(self, *workflows: WorkflowRecord, only_new: bool = False) -> Counted:
        answer: Counted = await self.apply(ops.Declare(workflows=workflows, only_new=only_new))
        return answer

    async def prune(self, *, finished_before: int | None, limit: int = 100) -> Counted:
        answer: Counted = await self.apply(ops.Prune(finished_before=finished_before, limit=limit))
        return answer

    # --- topics and queues ---

    def event(
        self, type: str, payload: str = "null", *, entity: str | None = None, **fields: Any
    ) -> ops.NewEvent:
        """An event to append; a given id is looked for."""
        about, _, id = (entity or "").partition("/")
        fields = {"fresh": "event_id" not in fields, "event_id": self.fresh("event"), **fields}
        return ops.NewEvent(
            type=type, payload=payload, entity_type=about or None, entity_id=id or None, **fields
        )

    def emit_op(self, type: str, payload: str = "null", **fields: Any) -> ops.Emit:
        return ops.Emit(events=(self.event(type, payload, **fields),))

    async def emit(
        self, type: str, payload: str = "null", *, entity: str | None = None, **fields: Any
    ) -> EmitOutcome:
        (answer,) = await self.emit_many(self.event(type, payload, entity=entity, **fields))
        return answer

    async def emit_many(self, *events: ops.NewEvent) -> tuple[EmitOutcome, ...]:
        answer: tuple[EmitOutcome, ...] = await self.apply(ops.Emit(events=events))
        return answer

    async def emit_numbers(self, count: int = 5) -> int:
        """Events that are numbered from 1, as are their ids; gives the position of the last."""
        for number in range(1, count + 1):
            await self.emit("order.paid", str(number), event_id=f"e{number}")
        return (await self.store.span())[1]

    async def fan_out(self, limit: int = 1000) -> Counted:
        answer: Counted = await self.apply(ops.FanOut(limit=limit))
        return answer

    async def fan_out_all(self, limit: int = 1000) -> int:
        """Go on with events until none has more runs to resume; gives how many did."""
        count = 0
        while (await self.store.look()).fan_out:
            count += (await self.fan_out(limit)).count
        return count

    async def resolve_wait(self, run_id: str, position: int | None, **fields: Any) -> int:
        """What the matcher found for the wait at path "w"; gives whether it had an effect."""
        head = (await self.store.span())[1]
        fields = {"generation": 0, "path": "w", "ix": 0, "examined": head, **fields}
        answer: Counted = await self.apply(
            ops.ResolveWait(run_id=run_id, position=position, **fields)
        )
        return answer.count

    def put_op(self, queue: str, payload: str = "null", **fields: Any) -> ops.Put:
        fields.setdefault("item_id", self.fresh("item"))
        return ops.Put(queue=queue, payload=payload, **fields)

    async def put(self, queue: str, payload: str = "null", **fields: Any) -> PutOutcome:
        answer: PutOutcome = await self.apply(self.put_op(queue, payload, **fields))
        return answer

    async def purge(
        self, queue: str, *, put_before: int | None = None, limit: int = 100
    ) -> Counted:
        answer: Counted = await self.apply(
            ops.PurgeQueue(queue=queue, put_before=put_before, limit=limit)
        )
        return answer

    async def declare_topic(self, name: str, **fields: Any) -> Counted:
        return await self._declare_channel("topic", name, **fields)

    async def declare_queue(self, name: str, **fields: Any) -> Counted:
        return await self._declare_channel("queue", name, **fields)

    async def _declare_channel(
        self, kind: Any, name: str, *, schema: object = None, only_new: bool = False, **fields: Any
    ) -> Counted:
        text = None if schema is None else msgspec.json.encode(schema).decode()
        channel = ChannelRecord(kind=kind, name=name, schema=text, **fields)
        answer: Counted = await self.apply(ops.Declare(channels=(channel,), only_new=only_new))
        return answer

    # --- consumers, subscriptions, retention ---

    async def claim_consumer(
        self, name: str = "reader", worker_id: str = WORKER, **fields: Any
    ) -> ConsumerRecord | Refusal:
        """Read as this consumer; a new one begins with the oldest event unless `start` says otherwise."""
        fields = {"fence": self.fence(), "patterns": '["**"]', "start": 0, **fields}
        answer: ConsumerRecord | Refusal = await self.apply(
            ops.ClaimConsumer(name=name, worker_id=worker_id, **fields)
        )
        return answer

    async def advance_cursor(
        self, name: str, position: int, *effects: ops.Effect, **fields: Any
    ) -> CursorMoved | Moved | Fenced:
        """The owner has dealt with all up to `position`; fence and cursor are those that the store has."""
        now = await self.consumer(name)
        fields = {"fence": now.fence, "seen": now.position, **fields}
        answer: CursorMoved | Moved | Fenced = await self.apply(
            ops.AdvanceCursor(name=name, position=position, effects=effects, **fields)
        )
        return answer

    async def commit_effects(self, consumer: str, *effects: ops.Effect, **fields: Any) -> Counted:
        answer: Counted = await self.apply(
            ops.CommitEffects(consumer=consumer, effects=effects, **fields)
        )
        return answer

    async def steer_consumer(self, name: str, **fields: Any) -> ConsumerRecord | Refusal:
        answer: ConsumerRecord | Refusal = await self.apply(ops.SteerConsumer(name=name, **fields))
        return answer

    async def drop_parked(self, consumer: str, *events: tuple[int, str]) -> Counted:
        answer: Counted = await self.apply(ops.DropParked(consumer=consumer, events=events))
        return answer

    async def subscribe(
        self, name: str, pattern: str = "order.*", *, workflow: str = WORKFLOW, **fields: Any
    ) -> Counted | Refusal:
        """Make or change a rule; `start`, `start_at` and `keep_enabled` are the op's, the rest the record's."""
        how = {
            one: fields.pop(one) for one in ("start", "start_at", "keep_enabled") if one in fields
        }
        rule = SubscriptionRecord(name=name, pattern=pattern, workflow=workflow, **fields)
        answer: Counted | Refusal = await self.apply(ops.PutSubscription(subscription=rule, **how))
        return answer

    async def switch(self, name: str, enabled: bool) -> Counted:
        answer: Counted = await self.apply(ops.SwitchSubscription(name=name, enabled=enabled))
        return answer

    async def unsubscribe(self, name: str) -> Counted:
        answer: Counted = await self.apply(ops.DropSubscription(name=name))
        return answer

    async def drain(
        self,
        *starts: tuple[int, str, ops.StartRun | None, str | None],
        consumer: str = RUNNER,
        released: bool = False,
    ) -> Counted:
        answer: Counted = await self.apply(
            ops.DrainDeferred(starts=starts, consumer=consumer, released=released)
        )
        return answer

    # --- pools ---

    async def set_pool(self, name: str, **bounds: Any) -> PoolRecord | Refusal:
        """Set the limits of a pool, as users write them."""
        text = encode_limits(checked_limits(**bounds))
        answer: PoolRecord | Refusal = await self.apply(
            ops.SetPool(name=name, limits=text, fields=("limit", "per_key", "rate", "per_key_rate"))
        )
        return answer

    def admit_op(
        self,
        pool: str,
        *,
        limit: int = 100,
        workflows: tuple[str, ...] = (WORKFLOW,),
        takes_back: bool = False,
    ) -> ops.AdmitRuns:
        known = tuple((name, version) for name in workflows for version in (1, 2))
        return ops.AdmitRuns(pool=pool, limit=limit, workflows=known, takes_back=takes_back)

    async def admit(self, pool: str, **fields: Any) -> Admitted:
        answer: Admitted = await self.apply(self.admit_op(pool, **fields))
        return answer

    # --- schedules ---

    async def schedule(
        self,
        name: str,
        every: Duration = "1m",
        *,
        workflow: str = WORKFLOW,
        zone: str = "UTC",
        **fields: Any,
    ) -> ScheduleRecord | Refusal:
        """Make or change a schedule, by cron or an interval."""
        cron, interval_us = parse_every(every, zone)
        row = ScheduleRecord(
            name=name,
            workflow=workflow,
            input="[]",
            cron=cron,
            interval_us=interval_us,
            zone=zone,
            **fields,
        )
        answer: ScheduleRecord | Refusal = await self.apply(ops.PutSchedule(schedule=row))
        return answer

    async def steer_schedule(
        self, name: str, paused: bool, reason: str | None = None
    ) -> ScheduleRecord | Refusal:
        answer: ScheduleRecord | Refusal = await self.apply(
            ops.SteerSchedule(name=name, paused=paused, reason=reason)
        )
        return answer

    async def unschedule(self, name: str) -> Counted:
        answer: Counted = await self.apply(ops.DropSchedule(name=name))
        return answer

    async def fire_schedules(
        self,
        *,
        limit: int = 100,
        workflows: tuple[tuple[str, int], ...] = ((WORKFLOW, 1),),
        pools: tuple[tuple[str, str], ...] = (),
    ) -> Fired:
        answer: Fired = await self.apply(
            ops.FireSchedules(limit=limit, workflows=workflows, pools=pools)
        )
        return answer

    async def trigger(
        self, name: str, run_id: str, *, workflow: str = WORKFLOW, pool: str = ""
    ) -> Started | Refusal:
        answer: Started | Refusal = await self.apply(
            ops.TriggerSchedule(name=name, run_id=run_id, workflow=workflow, version=1, pool=pool)
        )
        return answer

    async def backfill(
        self,
        name: str,
        after: int,
        until: int,
        *,
        limit: int = 100,
        workflow: str = WORKFLOW,
        pool: str = "",
    ) -> Filled | Refusal:
        answer: Filled | Refusal = await self.apply(
            ops.BackfillSchedule(
                name=name,
                workflow=workflow,
                version=1,
                after=after,
                until=until,
                limit=limit,
                pool=pool,
            )
        )
        return answer

    async def scheduled(self, name: str) -> ScheduleRecord:
        """The row of a schedule."""
        row = await self.store.schedule(name)
        assert row is not None, f"no schedule {name!r}"
        return row

    async def ticks(self, name: str) -> list[str]:
        """The ticks that have a run, in order."""
        runs = [one.run_id for one in await all_runs(self.store)]
        return sorted(one.removeprefix(f"{name}@") for one in runs if one.startswith(f"{name}@"))

    # --- the store itself ---

    async def trim(
        self, *, keep: int | None = None, recorded_before: int | None = None, **fields: Any
    ) -> Trimmed:
        """Let the oldest events go; no consumer counts as idle unless `idle_before` says so."""
        fields = {"limit": 1000, "idle_before": 0, **fields}
        answer: Trimmed = await self.apply(
            ops.TrimLedger(recorded_before=recorded_before, keep=keep, **fields)
        )
        return answer

    # --- what came of it ---

    def deadlines_told(self) -> list[int]:
        """The deadlines that the last op told to whoever sleeps until the next one."""
        return [one.at for one in self.heard[-1].wakes if one.kind == "deadline"]

    async def run(self, run_id: str) -> RunRecord:
        """The run, which must exist."""
        found = await self.store.run(run_id)
        assert found is not None, f"there is no run {run_id!r}"
        return found

    async def status(self, run_id: str) -> str:
        return (await self.run(run_id)).status

    async def step(self, run_id: str, path: str) -> StepRecord:
        """The living row of a path in the present generation, which must exist."""
        ((_, steps),) = await self.store.load([run_id])
        return next(one for one in steps if one.path == path)

    async def watched(self, run_id: str) -> list[tuple[str, str, str]]:
        """What a run waits for, as (path, kind, target)."""
        return [(one.path, one.kind, one.target) for one in await self.store.waiting(run_id)]

    async def watchers(self, run_id: str) -> list[WatcherRecord]:
        return await self.store.waiting(run_id)

    async def won(self, run_id: str, path: str = "w") -> tuple[int | None, str | None]:
        """Winner and value of a wait; (None, None) while it is open."""
        step = await self.step(run_id, path)
        return step.winner, step.value

    async def items(self, queue: str) -> list[str]:
        """The payloads in a queue, oldest first."""
        return [one.payload for one in await self.store.queue_items(queue, 0, _every_row)]

    async def published(self, run_id: str, stream: str, after: int = 0) -> list[tuple[int, str]]:
        """What is kept of a stream, as (position, item)."""
        rows = await self.store.stream_items(run_id, stream, after, _every_row)
        return [(one.position, one.item) for one in rows]

    async def head(self) -> int:
        """The position of the newest event."""
        return (await self.store.span())[1]

    async def consumer(self, name: str) -> ConsumerRecord:
        """The consumer, which must exist."""
        return next(one for one in await self.store.consumers() if one.name == name)

    async def subscription(self, name: str) -> SubscriptionRecord:
        """The subscription, which must exist."""
        return next(one for one in await self.store.subscriptions() if one.name == name)

    async def payloads(self, run_id: str) -> list[str]:
        """The payloads buffered for a run, oldest first."""
        return [one.payload for one in await self.store.buffered(run_id)]

    async def facts(self, type: str | None = None) -> list[EventRecord]:
        """The whole ledger, or its facts of one type."""
        return await everything(self.store.events, type=type)

    async def told(self, type: str) -> list[dict[str, Any]]:
        """The payloads of the facts of one type."""
        return [msgspec.json.decode(one.payload) for one in await self.facts(type)]


async def everything(
    events: Callable[..., Awaitable[list[EventRecord]]], **narrowed: Any
) -> list[EventRecord]:
    """All pages of the ledger."""
    found: list[EventRecord] = []
    while page := await events(found[-1].position if found else 0, _every_row, **narrowed):
        found.extend(page)
    return found


async def all_runs(store: Store) -> list[RunRecord]:
    """All pages of the runs, newest first."""
    found: list[RunRecord] = []
    after = None
    while page := await store.runs(RunFilter(), after, _every_row):
        found.extend(page)
        after = (page[-1].created_at, page[-1].run_id)
    return found


def completed(outcome: TurnOutcome) -> list[tuple[str, int | None, str | None]]:
    """What a turn op decided on the spot, as (path, winner, value)."""
    assert isinstance(outcome, Advanced), outcome
    return [(one.path, one.winner, one.value) for one in outcome.completions]


def accepted(outcome: SendOutcome | PutOutcome) -> Delivered | Buffered:
    """The answer of a send that was taken."""
    assert isinstance(outcome, Delivered | Buffered), outcome
    return outcome


def emitted(outcome: EmitOutcome) -> Emitted:
    """The answer of an event that was appended."""
    assert isinstance(outcome, Emitted), outcome
    return outcome


def refused(outcome: object) -> str:
    """The code of a refusal, which it must be."""
    assert isinstance(outcome, Refusal), outcome
    return outcome.code


def spec_of(step: StepRecord) -> WaitSpec:
    """What a wait step stores about itself."""
    return msgspec.json.decode(step.wait or "", type=WaitSpec)
