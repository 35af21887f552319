"""The verbs of an app that concern reading the ledger: consumers, subscriptions, detectors, and their operation.

`Reading` is the part of App that holds them. Definitions are checked at once and kept until the app is opened; the
other verbs check what they were given, ask the engine, and give its answer a public form.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

from perdure.channels import Topic
from perdure.engine import Engine, Life, Settings
from perdure.errors import Conflict, UnknownSubscription, UnknownWorkflow, refusal_error
from perdure.inputs import at_least, checked_flag, checked_limit, checked_position
from perdure.ledger.definitions import (
    CatchUp,
    Handler,
    Readers,
    Start,
    anomaly_def,
    check_input,
    checked_start,
    consumer_def,
    pattern_of,
    subscription_def,
)
from perdure.ledger.health import Health, measure
from perdure.ledger.parking import Bench, drop, refire, release
from perdure.ledger.replaying import Place, Replayed, replay
from perdure.ledger.rules import checked_rule
from perdure.ledger.watch import trim
from perdure.model import limits, ops
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import BadValue, check_name, check_reason
from perdure.model.outcomes import Refusal, Trimmed
from perdure.model.policy import Retry
from perdure.model.records import SubscriptionRecord
from perdure.registry import Registry, Workflow
from perdure.views import (
    ConsumerInfo,
    DeferredStart,
    Page,
    ParkedEvent,
    SubscriptionInfo,
    consumer_info,
    decode_cursor,
    deferred_start,
    page,
    parked_event,
    subscription_info,
)
from perdure.webhooks.outgoing import Envelope, webhook_def

H = TypeVar("H", bound=Handler)
W = TypeVar("W", bound=Workflow[Any, *tuple[Any, ...]])
AnyWorkflow = Workflow[Any, *tuple[Any, ...]]


class Reading:
    """What an App can do with the readers of its ledger."""

    registry: Registry
    readers: Readers
    _life: Life
    _settings: Settings
    _engine: Callable[[], Engine]

    # --- definitions ---

    def consumer(
        self,
        name: str,
        *patterns: str | Topic[Any],
        every: str | None = None,
        zone: str = "UTC",
        catch_up: CatchUp = "one",
        batch: int = 500,
        dedupe: bool = False,
        start: Start = "beginning",
        retry: Retry | None = None,
    ) -> Callable[[H], H]:
        """Read events of these patterns: `@app.consumer("health", "ar.*")` over `async def health(batch: Batch)`.

        Live, or at the ticks of `every` (cron, in the time of `zone`). Ticks that were missed while nobody was
        there: `catch_up="one"` reads once at the start, "skip" waits for the next one.
        """
        if callable(name):  # `@app.consumer` as it stands would define nothing, and say nothing
            raise BadValue(
                "@app.consumer", name, 'needs a name and patterns: @app.consumer("health", "ar.*")'
            )

        def define(handler: H) -> H:
            self._check_early(name)
            self.readers.add(
                consumer_def(
                    name,
                    patterns,
                    handler,
                    every=every,
                    zone=zone,
                    catch_up=catch_up,
                    batch=batch,
                    dedupe=dedupe,
                    start=start,
                    retry=retry,
                )
            )
            return handler

        return define

    def webhook(
        self,
        name: str,
        url: str,
        *patterns: str | Topic[Any],
        secret: str | bytes | Sequence[str | bytes],
        where: str | Callable[[Any], object] | None = None,
        retry: Retry | None = None,
        timeout: Duration = "10s",
        headers: Mapping[str, str] | None = None,
        start: Start = "now",
        allow_private: bool | Sequence[str] = False,
        insecure: bool = False,
        envelope: Envelope = "cloudevents",
    ) -> None:
        """Post each event of these patterns to an address, signed by Standard Webhooks, in the order of the ledger.

        It is the consumer `webhook.<name>`. An event is sent at least once, always with its id as `webhook-id`. Of
        several secrets all sign. The address must not lead into a private network, unless `allow_private` says so:
        True, or a list of hosts and networks. `insecure` lets it be http://.
        """
        self._check_early(name)
        self.readers.add(
            webhook_def(
                name,
                url,
                patterns,
                secret=secret,
                where=where,
                retry=retry,
                timeout=timeout,
                headers=headers,
                start=start,
                allow_private=allow_private,
                insecure=insecure,
                envelope=envelope,
            )
        )

    def on(
        self,
        pattern: str | Topic[Any],
        *,
        name: str | None = None,
        where: str | Callable[[Any], object] | None = None,
        map: str | Callable[[Any], Any] | None = None,
        key: str | Callable[[Any], str] | None = None,
        start: Start = "now",
    ) -> Callable[[W], W]:
        """Start the workflow below for each event of a pattern.

        `where`, `map` and `key` are CEL or functions of the Event. The run gets what `map` makes, or the Event. There
        is one run for each key, which is by default the event's own, else `payload.idempotency_key`, else its id.
        """
        if callable(pattern):  # `@app.on` as it stands would subscribe nothing, and say nothing
            raise BadValue("@app.on", pattern, 'needs a pattern: @app.on("order.*")')

        def define(workflow: W) -> W:
            self._check_early(pattern)
            found = self.registry.of(workflow)
            options: dict[str, Any] = {"where": where, "map": map, "key": key, "start": start}
            self.readers.add(subscription_def(pattern, found, name=name, **options))
            return workflow

        return define

    def anomaly(
        self,
        name: str,
        pattern: str | Topic[Any] | None = None,
        *,
        every: str = "*/15 * * * *",
        zone: str = "UTC",
        rate: tuple[int, Duration] | None = None,
        missing: tuple[str | Topic[Any], str | Topic[Any], Duration] | None = None,
        by_entity: bool = False,
    ) -> None:
        """Look for what is unusual, and emit `anomaly.<name>` about it.

        rate=(count, within): more than `count` events of the pattern within that time before a tick, in all or
        `by_entity`. missing=(A, B, within): an A that no B about the same entity follows within that time.
        """
        self._check_early(name)
        self.readers.add(
            anomaly_def(
                name,
                pattern,
                every=every,
                zone=zone,
                rate=rate,
                missing=missing,
                by_entity=by_entity,
            )
        )

    def _check_early(self, what: object) -> None:
        if self._life.entered:
            raise BadValue("definition", what, "came too late: define it before `async with app`")

    # --- subscriptions ---

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
        """Make or change a subscription, while the app runs and for all processes. Expressions are CEL."""
        engine = self._engine()
        for part, given in (("where", where), ("map", map), ("key", key)):
            if callable(given):
                raise BadValue(part, given, "is a function; callables belong to code: @app.on")
        checked_rule(where, map, key)
        if (
            check_name("subscription", name) in self.readers.subscriptions
        ):  # also before it is a row
            raise Conflict(f"subscription {name!r} is declared in code; change it there")
        begin = checked_start(start)
        row = SubscriptionRecord(
            name=name,
            pattern=pattern_of(pattern).text,
            workflow=await self._subscriber(engine, workflow, mapped=map is not None),
            where=where,
            map=map,
            key=key,
        )
        put = ops.PutSubscription(subscription=row, start=begin.position, start_at=begin.at)
        outcome = await engine.coordinator.submit(put)
        if isinstance(outcome, Refusal):
            raise refusal_error(outcome, name, "")

    async def _subscriber(
        self, engine: Engine, workflow: AnyWorkflow | str, *, mapped: bool
    ) -> str:
        """The name of a workflow that is here, or that another process has declared."""
        if isinstance(workflow, str) and not self.registry.has(workflow):
            known = {one.name for one in await engine.store.catalogue()}
            if workflow not in known:
                raise UnknownWorkflow(workflow, sorted(known))
            return workflow
        found = self.registry.of(workflow)
        check_input(found, mapped=mapped)
        return found.name

    async def unsubscribe(self, name: str) -> bool:
        """Delete a subscription and what it has put off; False if there is none. One in code returns with its app."""
        drop = ops.DropSubscription(name=check_name("subscription", name))
        return (await self._engine().coordinator.submit(drop)).count > 0

    async def enable_subscription(self, name: str, on: bool = True) -> None:
        """Switch a subscription on or off. Events that come while it is off do not count for it."""
        switch = ops.SwitchSubscription(
            name=check_name("subscription", name), enabled=checked_flag("on", on)
        )
        if not (await self._engine().coordinator.submit(switch)).count:
            raise UnknownSubscription(name)

    async def subscriptions(self) -> list[SubscriptionInfo]:
        """All subscriptions, by name."""
        return [subscription_info(one) for one in await self._engine().store.subscriptions()]

    # --- consumers ---

    async def consumers(self) -> list[ConsumerInfo]:
        """All consumers that ever ran on this store, by name, with the built-in `workflow_runner`."""
        engine = self._engine()
        store, now = engine.store, engine.clock.now()
        _, last = await store.span()
        return [consumer_info(one, last, now) for one in await store.consumers()]

    async def pause_consumer(self, name: str, reason: str | None = None) -> None:
        """Let a consumer read no further; the batch under way is finished."""
        await self._steer(ops.SteerConsumer(name=name, paused=True, reason=check_reason(reason)))

    async def resume_consumer(self, name: str) -> None:
        """Let a paused consumer read on from its cursor."""
        await self._steer(ops.SteerConsumer(name=name, paused=False))

    async def drop_consumer(self, name: str) -> None:
        """Forget a consumer that no code reads for any more: it holds retention no longer, and cannot stall.

        Refused (Conflict) while a worker that lives reads for it. One that code still defines begins anew.
        """
        engine = self._engine()
        drop = ops.DropConsumer(name=check_name("consumer", name))
        outcome = await engine.coordinator.submit(drop)
        if isinstance(outcome, Refusal):
            raise refusal_error(outcome, name, "")

    async def rewind(self, name: str, to: int | datetime | Literal["beginning", "now"]) -> int:
        """Move a consumer's cursor, back or forth; gives its new position.

        To a position: events after it are read next. To a time: those recorded from then on. What it did about
        events it reads again is done again, but for what has a key.
        """
        begin = checked_start(to, "to")
        position = begin.position
        if position is None and begin.at is None:
            position = (await self._engine().store.span())[1]
        return await self._steer(ops.SteerConsumer(name=name, position=position, at=begin.at))

    async def _steer(self, op: ops.SteerConsumer) -> int:
        check_name("consumer", op.name)
        outcome = await self._engine().coordinator.submit(op)
        if isinstance(outcome, Refusal):
            raise refusal_error(outcome, op.name, "")
        return outcome.position

    # --- events that were parked or put off ---

    async def parked(
        self,
        consumer: str | None = None,
        *,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[ParkedEvent]:
        """Events that a consumer could not deal with, and why."""
        limit = checked_limit(limit)
        if consumer is not None:
            check_name("consumer", consumer)
        seen = decode_cursor(after, tuple[str, int, str]) if after is not None else None
        rows = await self._engine().store.parked(consumer, seen, limit + 1)
        return page(
            rows,
            limit,
            parked_event,
            lambda last: (last.consumer, last.position, last.subscription),
        )

    async def refire(self, consumer: str, position: int, subscription: str = "") -> bool:
        """Deal with a parked event once more. False if it failed again: it stays parked, with the new reason."""
        place = _checked_place(position, subscription)
        return await refire(self._bench(), check_name("consumer", consumer), *place)

    async def drop_parked(self, consumer: str, position: int, subscription: str = "") -> bool:
        """Forget a parked event; False if it is not parked."""
        place = _checked_place(position, subscription)
        drop = ops.DropParked(consumer=check_name("consumer", consumer), events=(place,))
        return (await self._engine().coordinator.submit(drop)).count > 0

    async def deferred(
        self, *, limit: int = limits.page_rows_default, after: str | None = None
    ) -> Page[DeferredStart]:
        """Starts that a bound has put off. Those of the fan-out drain by themselves; others wait for you."""
        limit = checked_limit(limit)
        seen = decode_cursor(after, tuple[int, str]) if after is not None else None
        rows = await self._engine().store.deferred(seen, limit + 1)
        return page(rows, limit, deferred_start, lambda last: (last.position, last.subscription))

    async def release_deferred(self, position: int, subscription: str) -> bool:
        """Start what was put off, whatever bound it broke; False if it is not there or could not be started."""
        return await release(self._bench(), *_checked_place(position, subscription))

    async def drop_deferred(self, position: int, subscription: str) -> bool:
        """Forget a start that was put off; False if it is not there."""
        return await drop(self._bench(), *_checked_place(position, subscription))

    # --- again, and how it goes ---

    async def replay(
        self,
        into: str | Handler,
        *,
        since: Place = "beginning",
        until: int | datetime | None = None,
        pattern: str | Topic[Any] | None = None,
        dry_run: bool = True,
        rate: float | None = None,
        only_if_no_run: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Replayed:
        """Fire a window of the ledger anew, into a consumer by name or a fresh handler; its cursor does not move.

        The window: positions, both inclusive, or times, from `since` to before `until`. With `dry_run` it only
        counts. `rate` is events per second. `only_if_no_run=False` starts runs, and calls handlers with dedupe, also
        for what was dealt with before. `progress` is called with how many events are done by then.
        """
        return await replay(
            self._bench(),
            into,
            since=since,
            until=until,
            pattern=pattern,
            dry_run=dry_run,
            rate=rate,
            only_if_no_run=only_if_no_run,
            progress=progress,
        )

    def _bench(self) -> Bench:
        engine = self._engine()
        return Bench(engine.store, engine.coordinator, engine.clock, engine.desk, self.readers)

    async def health(self) -> Health:
        """Whether somebody should look: consumers that stall, runs that nobody takes, and what waits for a decision."""
        engine = self._engine()
        consumers = engine.consumers
        here = (lambda name: None) if consumers is None else consumers.position
        return await measure(engine.store, engine.clock.now(), here)

    async def trim_ledger(
        self, *, older_than: Duration | None = None, keep: int | None = None, force: bool = False
    ) -> Trimmed:
        """Delete events that are older, or beyond the newest `keep`; by default as the app was told to keep them.

        Never what a consumer has still to read, unless it has not moved for 30 days, or with `force`.
        """
        engine = self._engine()
        keep_us = None if older_than is None else parse_duration(older_than, "older_than")
        checked_flag("force", force)
        if keep is not None:
            at_least("keep", keep, 0)
        if older_than is None and keep is None:
            keep_us, keep = self._settings.keep_events_us, self._settings.keep_events_max
        if keep_us is None and keep is None:
            raise BadValue("older_than", None, "or keep is needed: this app has no keep_events=")
        return await trim(engine.coordinator, engine.clock, keep_us, keep, force)


def _checked_place(position: Any, subscription: Any) -> tuple[int, str]:
    """Which event, and for which rule: "" for a consumer of one's own."""
    named = subscription == "" and isinstance(subscription, str)
    name = "" if named else check_name("subscription", subscription)
    return checked_position(position), name
