"""The verbs of an app that concern schedules: to declare and change them, to pause and trigger them, to fill a window.

`Scheduling` is the part of App that holds them. Whatever is wrong with a schedule (cron, zone, interval, input, a
workflow that nobody has) is told when it is made, and nothing is stored then. A schedule is a row: one in code is
recorded when its app opens with a worker, one that is made while the app is open at once, for all processes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from typing import Any, TypeVar, TypeVarTuple, cast, overload

import msgspec

from perdure.engine import Engine, Life
from perdure.errors import Conflict, UnknownSchedule, refusal_error
from perdure.handle import RunHandle
from perdure.inputs import (
    cancellers,
    cancellers_of,
    checked_flag,
    checked_limit,
    checked_moment,
    encoded_input,
    offered_input,
)
from perdure.model import limits, ops
from perdure.model.codec import codec_for
from perdure.model.duration import Duration
from perdure.model.limits import BadValue, check_name, check_reason, unsaid
from perdure.model.outcomes import Filled, Refusal
from perdure.model.records import CatchUp, Overlap, ScheduleRecord, WorkflowRecord
from perdure.model.ticks import calendar_of, parse_every, run_id_of
from perdure.named import called, find
from perdure.registry import Registry, Workflow
from perdure.store.base import Store
from perdure.views import (
    Backfilled,
    Page,
    ScheduleInfo,
    decode_cursor,
    page,
    schedule_info,
)

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

_untyped = codec_for(Any)
_catch_ups = ("none", "one", "all")
_overlaps = ("skip", "queue", "allow")


class _Recorded(Awaitable[None]):
    """A schedule in code: there is nothing to wait for until its app opens."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


class Scheduling:
    """What an App can do with schedules."""

    registry: Registry
    declared_schedules: dict[str, ScheduleRecord]
    _life: Life
    _engine: Callable[[], Engine]

    # --- making and changing ---

    @overload
    def schedule(
        self,
        every: Duration,
        workflow: Workflow[R, *Ts],
        *args: *Ts,
        name: str | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "one",
        overlap: Overlap = "skip",
    ) -> Awaitable[None]: ...
    @overload
    def schedule(
        self,
        every: Duration,
        workflow: str,
        *args: Any,
        name: str | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "one",
        overlap: Overlap = "skip",
    ) -> Awaitable[None]: ...
    def schedule(
        self,
        every: Duration,
        workflow: Workflow[R, *Ts] | str,
        *args: *Ts,
        name: str | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "one",
        overlap: Overlap = "skip",
    ) -> Awaitable[None]:
        """Start a workflow at the ticks of a calendar: cron in the time of `zone`, or an interval such as "15m".

        While the app is open this makes (when awaited) the schedule of that name, by default the workflow's, or changes
        it; before that `app.schedule` declares it in code. Ticks that nobody was there for: catch_up="one" makes up for
        the newest, "all" for each, "none" for none. A tick that comes while the last run lives: overlap="skip" drops
        it, "queue" has it wait, "allow" starts it beside the other.
        """
        cron, interval_us = parse_every(every, zone)
        if catch_up not in _catch_ups:
            raise BadValue("catch_up", catch_up, 'must be "none", "one" or "all"')
        if overlap not in _overlaps:
            raise BadValue("overlap", overlap, 'must be "skip", "queue" or "allow"')

        def row(workflow: str, input: str, cancel_on: str | None, *, code: bool) -> ScheduleRecord:
            return ScheduleRecord(
                name=_checked_name(workflow if name is None else name),
                workflow=workflow,
                input=input,
                cron=cron,
                interval_us=interval_us,
                zone=zone,
                catch_up=catch_up,
                overlap=overlap,
                code=code,
                cancel_on=cancel_on,
            )

        if self._life.entered:
            return self._schedule_now(workflow, args, row)
        found = self.registry.of(workflow)
        encoded = offered_input if isinstance(workflow, str) else encoded_input
        text, _ = encoded(found, args)
        declared = row(found.name, text, cancellers_of(found, text, ""), code=True)
        if declared.name in self.declared_schedules:
            raise Conflict(f"schedule {declared.name!r} is already defined: give one of them name=")
        self.declared_schedules[declared.name] = declared
        return _Recorded()

    async def _schedule_now(
        self, workflow: Any, args: tuple[Any, ...], row: Callable[..., ScheduleRecord]
    ) -> None:
        engine = self._engine()
        found: Workflow[Any, *tuple[Any, ...]] | WorkflowRecord
        if isinstance(workflow, str):
            found, text, _, _ = await called(self.registry, engine.store, workflow, args)
        else:
            found = self.registry.of(workflow)
            text, _ = encoded_input(found, args)
        schedule = row(found.name, text, cancellers(found, text, ""), code=False)
        outcome = await engine.coordinator.submit(ops.PutSchedule(schedule=schedule))
        if isinstance(outcome, Refusal):
            raise refusal_error(outcome, schedule.name, "")

    async def unschedule(self, name: str) -> bool:
        """Delete a schedule and what it has waiting; False if there is none. Its runs go on. One in code returns with
        its app."""
        drop = ops.DropSchedule(name=check_name("schedule", name))
        return (await self._engine().coordinator.submit(drop)).count > 0

    async def pause_schedule(self, name: str, reason: str | None = None) -> None:
        """Let a schedule start nothing until it is resumed; runs that it has started go on."""
        await self._steer_schedule(name, True, check_reason(reason))

    async def resume_schedule(self, name: str) -> None:
        """Let a paused schedule go on with its next tick. Those that came meanwhile do not count: see `backfill`."""
        await self._steer_schedule(name, False, None)

    async def _steer_schedule(self, name: str, paused: bool, reason: str | None) -> None:
        steer = ops.SteerSchedule(name=check_name("schedule", name), paused=paused, reason=reason)
        outcome = await self._engine().coordinator.submit(steer)
        if isinstance(outcome, Refusal):
            raise refusal_error(outcome, name, "")

    async def schedules(
        self, *, limit: int = limits.page_rows_default, after: str | None = None
    ) -> Page[ScheduleInfo]:
        """All schedules, by name, with their next ticks."""
        limit = checked_limit(limit)
        seen = decode_cursor(after, tuple[str])[0] if after is not None else ""
        rows = await self._engine().store.schedules(seen, limit + 1)
        return page(rows, limit, schedule_info, lambda last: (last.name,))

    # --- by hand ---

    async def trigger(self, name: str) -> RunHandle[Any]:
        """Start a run of a schedule now, apart from its calendar, also if it is paused or another run lives."""
        engine = self._engine()
        row = await _scheduled(engine.store, name)
        run_id = f"{row.name}@{engine.ids.ulid()}"
        found = await find(self.registry, engine.store, row.workflow)
        trigger = ops.TriggerSchedule(
            name=row.name,
            run_id=run_id,
            workflow=row.workflow,
            version=found.version,
            pool=found.pool,
        )
        codec = _untyped if isinstance(found, WorkflowRecord) else found.codec
        ending = engine.coordinator.hub.ending(run_id)
        outcome = await engine.coordinator.submit(trigger)
        if isinstance(outcome, Refusal):
            raise refusal_error(outcome, name, run_id)
        return RunHandle(cast(Any, self), run_id, codec, ending, created=True, fresh=True)

    async def backfill(
        self, name: str, since: datetime, until: datetime, *, dry_run: bool = True
    ) -> Backfilled:
        """Start the ticks of a window that have no run: from `since` to before `until`, never those to come.

        All at once with overlap="allow", else one after the other. With `dry_run` it only counts. To repeat it is safe:
        a tick has one run for as long as that is kept.
        """
        engine = self._engine()
        row = await _scheduled(engine.store, name)
        after = checked_moment("since", since) - 1
        before = min(checked_moment("until", until) - 1, engine.clock.now())
        # Ten thousand ticks take a second to find, in which others want the loop.
        ticks = await asyncio.to_thread(_checked_window, row, after, before)
        if checked_flag("dry_run", dry_run):
            existing = await _known_ticks(engine.store, row, ticks)
            return Backfilled(ticks=len(ticks), started=len(ticks) - existing, existing=existing)
        found = await find(self.registry, engine.store, row.workflow)
        started = existing = 0
        # As many ops as there are ticks for, each a bounded commit.
        while ticks and after < ticks[-1]:
            fill = ops.BackfillSchedule(
                name=row.name,
                workflow=row.workflow,
                version=found.version,
                after=after,
                until=ticks[-1],
                limit=limits.schedule_starts_per_commit,
                pool=found.pool,
            )
            outcome = await engine.coordinator.submit(fill)
            if not isinstance(outcome, Filled):
                raise refusal_error(outcome, name, "")
            started, existing = started + outcome.started, existing + outcome.existing
            if outcome.reached is None or outcome.full:
                break
            after = outcome.reached
        left = len(ticks) - started - existing
        return Backfilled(ticks=len(ticks), started=started, existing=existing, left=left)


def _checked_name(name: Any) -> str:
    checked = check_name("schedule", name)
    size = len(checked.encode())
    if size > limits.schedule_name_bytes_max:
        bound = f"at most {limits.schedule_name_bytes_max} (schedule_name_bytes_max)"
        raise BadValue("schedule name", name, f"is {size} bytes; {bound}; give a shorter name=")
    return checked


async def _scheduled(store: Store, name: str) -> ScheduleRecord:
    row = await store.schedule(check_name("schedule", name))
    if row is None:
        raise UnknownSchedule(name)
    return row


def _checked_window(row: ScheduleRecord, after: int, before: int) -> list[int]:
    """The ticks of a window; BadValue if they are too many."""
    ticks: list[int] = []
    for tick in calendar_of(row).walk(after, before):
        if len(ticks) == limits.schedule_backfill_max:
            bound = f"{limits.schedule_backfill_max} (schedule_backfill_max)"
            raise BadValue("window", unsaid, f"has more than {bound} ticks; do it in parts")
        ticks.append(tick)
    return ticks


async def _known_ticks(store: Store, row: ScheduleRecord, ticks: list[int]) -> int:
    """How many of these ticks have a run, or wait for one."""
    waiting = set(msgspec.json.decode(row.queued, type=list[int])).intersection(ticks)
    known = len(waiting)
    run_ids = [run_id_of(row.name, one) for one in ticks if one not in waiting]
    for first in range(0, len(run_ids), limits.page_rows_max):
        part = run_ids[first : first + limits.page_rows_max]
        known += len(await store.revisions(part)) + len(await store.ended(part))
    return known
