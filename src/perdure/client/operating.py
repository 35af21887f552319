"""The verbs of a client about readers of the ledger, schedules, pools, and how things go."""

from datetime import datetime
from typing import Any, Literal, TypeVar, TypeVarTuple, overload

from msgspec import UNSET

from perdure.channels import Topic
from perdure.client.runs import RemoteRun
from perdure.client.transport import Transport
from perdure.client.wording import name_of, schedule_info, untyped, workflow_fields
from perdure.http import wire
from perdure.inspecting.catalogue import ChannelInfo, WorkerInfo, WorkflowInfo
from perdure.inspecting.doctor import Diagnosis, SchemaVersion
from perdure.inspecting.findings import Report
from perdure.ledger.definitions import Start
from perdure.ledger.health import Health
from perdure.ledger.replaying import Replayed
from perdure.model import limits
from perdure.model.duration import Duration
from perdure.model.outcomes import Trimmed
from perdure.model.records import CatchUp, Overlap
from perdure.pools import Pool
from perdure.registry import Workflow
from perdure.views import (
    Backfilled,
    ConsumerInfo,
    DeferredStart,
    Page,
    ParkedEvent,
    PoolInfo,
    ScheduleInfo,
    SlotWait,
    SubscriptionInfo,
)

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

AnyWorkflow = Workflow[Any, *tuple[Any, ...]]


class Operating(Transport):
    """What a client can operate."""

    # --- readers of the ledger ---

    async def consumers(self) -> list[ConsumerInfo]:
        """All consumers that ever ran on this store, by name, with the built-in `workflow_runner`."""
        return await self._list("consumers")

    async def pause_consumer(self, name: str, reason: str | None = None) -> None:
        """Let a consumer read no further; the batch under way is finished."""
        await self._call("pause_consumer", name=name, reason=reason)

    async def resume_consumer(self, name: str) -> None:
        """Let a paused consumer read on from its cursor."""
        await self._call("resume_consumer", name=name)

    async def drop_consumer(self, name: str) -> None:
        """Forget a consumer that no code reads for any more."""
        await self._call("drop_consumer", name=name)

    async def rewind(self, name: str, to: int | datetime | Literal["beginning", "now"]) -> int:
        """Move a consumer's cursor, back or forth; gives its new position."""
        position: int = await self._value("rewind", name=name, to=to)
        return position

    async def parked(
        self,
        consumer: str | None = None,
        *,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[ParkedEvent]:
        """Events that a consumer could not deal with, and why."""
        return await self._page("parked", consumer=consumer, limit=limit, after=after)

    async def refire(self, consumer: str, position: int, subscription: str = "") -> bool:
        """Deal with a parked event once more. False if it failed again."""
        return await self._flag("refire", consumer, position, subscription)

    async def drop_parked(self, consumer: str, position: int, subscription: str = "") -> bool:
        """Forget a parked event; False if it is not parked."""
        return await self._flag("drop_parked", consumer, position, subscription)

    async def _flag(self, verb: str, consumer: str, position: int, subscription: str) -> bool:
        done: bool = await self._value(
            verb, consumer=consumer, position=position, subscription=subscription
        )
        return done

    async def deferred(
        self, *, limit: int = limits.page_rows_default, after: str | None = None
    ) -> Page[DeferredStart]:
        """Starts that a bound has put off."""
        return await self._page("deferred", limit=limit, after=after)

    async def release_deferred(self, position: int, subscription: str) -> bool:
        """Start what was put off, whatever bound it broke."""
        done: bool = await self._value(
            "release_deferred", position=position, subscription=subscription
        )
        return done

    async def drop_deferred(self, position: int, subscription: str) -> bool:
        """Forget a start that was put off; False if it is not there."""
        done: bool = await self._value(
            "drop_deferred", position=position, subscription=subscription
        )
        return done

    async def replay(
        self,
        into: str,
        *,
        since: int | datetime | Literal["beginning"] = "beginning",
        until: int | datetime | None = None,
        pattern: str | Topic[Any] | None = None,
        dry_run: bool = True,
        rate: float | None = None,
        only_if_no_run: bool = True,
    ) -> Replayed:
        """Fire a window of the ledger anew, into a consumer by name; its cursor does not move."""
        done: Replayed = await self._call(
            "replay",
            into=into,
            since=since,
            until=until,
            pattern=name_of(pattern),
            dry_run=dry_run,
            rate=rate,
            only_if_no_run=only_if_no_run,
        )
        return done

    async def subscribe(
        self,
        pattern: str | Topic[Any],
        workflow: AnyWorkflow | str,
        *,
        name: str,
        where: str | None = None,
        map: str | None = None,
        key: str | None = None,
        start: Start = "now",
    ) -> None:
        """Make or change a subscription, for all processes. Expressions are CEL."""
        await self._call(
            "subscribe",
            name=name,
            pattern=name_of(pattern),
            workflow=name_of(workflow),
            where=where,
            map=map,
            key=key,
            start=start,
        )

    async def unsubscribe(self, name: str) -> bool:
        """Delete a subscription and what it has put off; False if there is none."""
        gone: bool = await self._value("unsubscribe", name=name)
        return gone

    async def enable_subscription(self, name: str, on: bool = True) -> None:
        """Switch a subscription on or off."""
        await self._call("enable_subscription", name=name, on=on)

    async def subscriptions(self) -> list[SubscriptionInfo]:
        """All subscriptions, by name."""
        return await self._list("subscriptions")

    # --- schedules and pools ---

    @overload
    async def schedule(
        self,
        every: Duration,
        workflow: Workflow[R, *Ts],
        *args: *Ts,
        name: str | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "one",
        overlap: Overlap = "skip",
    ) -> None: ...
    @overload
    async def schedule(
        self,
        every: Duration,
        workflow: str,
        *args: Any,
        name: str | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "one",
        overlap: Overlap = "skip",
    ) -> None: ...
    async def schedule(
        self,
        every: Duration,
        workflow: Workflow[R, *Ts] | str,
        *args: *Ts,
        name: str | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "one",
        overlap: Overlap = "skip",
    ) -> None:
        """Start a workflow at the ticks of a calendar: makes the schedule of that name, or changes it."""
        await self._call(
            "schedule",
            name=name_of(workflow) if name is None else name,
            every=every,
            zone=zone,
            catch_up=catch_up,
            overlap=overlap,
            **workflow_fields(workflow, args),
        )

    async def unschedule(self, name: str) -> bool:
        """Delete a schedule and what it has waiting; False if there is none."""
        gone: bool = await self._value("unschedule", name=name)
        return gone

    async def pause_schedule(self, name: str, reason: str | None = None) -> None:
        """Let a schedule start nothing until it is resumed."""
        await self._call("pause_schedule", name=name, reason=reason)

    async def resume_schedule(self, name: str) -> None:
        """Let a paused schedule go on with its next tick."""
        await self._call("resume_schedule", name=name)

    async def schedules(
        self, *, limit: int = limits.page_rows_default, after: str | None = None
    ) -> Page[ScheduleInfo]:
        """All schedules, by name, with their next ticks."""
        found: Page[wire.ScheduleLine] = await self._page("schedules", limit=limit, after=after)
        return Page([schedule_info(one) for one in found], found.cursor)

    async def trigger(self, name: str) -> RemoteRun[Any]:
        """Start a run of a schedule now, apart from its calendar."""
        found: wire.Started = await self._call("trigger", name=name)
        return RemoteRun(self, found.id, untyped, created=found.created)

    async def backfill(
        self, name: str, since: datetime, until: datetime, *, dry_run: bool = True
    ) -> Backfilled:
        """Start the ticks of a window that have no run: from `since` to before `until`, never those to come."""
        done: Backfilled = await self._call(
            "backfill", name=name, since=since, until=until, dry_run=dry_run
        )
        return done

    async def pools(self) -> list[PoolInfo]:
        """All pools: their limits, slots that are taken, how many wait for one and since when."""
        return await self._list("pools")

    async def set_pool(
        self,
        pool: str | Pool,
        *,
        limit: int | None = UNSET,  # type: ignore[assignment]
        per_key: int | None = UNSET,  # type: ignore[assignment]
        rate: str | None = UNSET,  # type: ignore[assignment]
        per_key_rate: str | None = UNSET,  # type: ignore[assignment]
    ) -> PoolInfo:
        """Change limits of a pool for all processes; None takes one away, those not named stay."""
        info: PoolInfo = await self._call(
            "set_pool",
            pool=name_of(pool),
            limit=limit,
            per_key=per_key,
            rate=rate,
            per_key_rate=per_key_rate,
        )
        return info

    async def reset_pool(self, pool: str | Pool) -> PoolInfo:
        """Set the limits of a pool back to what code declares."""
        info: PoolInfo = await self._call("reset_pool", pool=name_of(pool))
        return info

    async def waiting_for_slot(
        self,
        pool: str | Pool,
        *,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[SlotWait]:
        """Who stands in the line of a pool, longest first, and why."""
        return await self._page("waiting_for_slot", pool=name_of(pool), limit=limit, after=after)

    # --- operation ---

    async def health(self) -> Health:
        """Whether somebody should look, and why."""
        found: Health = await self._call("health")
        return found

    async def prune(self, older_than: Duration | None = None) -> int:
        """Delete runs that finished longer ago than this, in bounded chunks."""
        count: int = await self._value("prune", older_than=older_than)
        return count

    async def trim_ledger(
        self, *, older_than: Duration | None = None, keep: int | None = None, force: bool = False
    ) -> Trimmed:
        """Delete events that are older, or beyond the newest `keep`; never what a consumer has still to read."""
        done: Trimmed = await self._call(
            "trim_ledger", older_than=older_than, keep=keep, force=force
        )
        return done

    async def catalogue(self) -> list[WorkflowInfo]:
        """Every version of every workflow that some app has declared: what it takes, gives and listens to."""
        return await self._list("catalogue")

    async def channels(self) -> list[ChannelInfo]:
        """Every topic and queue that some app has declared."""
        return await self._list("channels")

    async def workers(self) -> list[WorkerInfo]:
        """The workers that live, and what they execute."""
        return await self._list("workers")

    async def counts(self) -> dict[str, int]:
        """How many rows of each kind there are."""
        found: dict[str, int] = await self._value("counts")
        return found

    async def doctor(self) -> Diagnosis:
        """What the store is, which promises it keeps as it is set up, and what to see to."""
        found: Diagnosis = await self._call("doctor")
        return found

    async def schema_version(self) -> SchemaVersion:
        """Which schema is stored, and whether to open the store would bring it up."""
        found: SchemaVersion = await self._call("schema_version")
        return found

    async def fsck(self, repair: bool = False) -> Report:
        """Check that all in the store holds together; with `repair`, what ops can set right is set right."""
        found: Report = await self._call("fsck", repair=repair)
        return found

    async def me(self) -> wire.Me:
        """Who this client is to the server, and what it may do."""
        found: wire.Me = await self._call("me")
        return found
