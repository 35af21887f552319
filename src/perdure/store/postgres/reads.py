"""Reads: a few connections beside the one that writes. Each is one statement, and so one snapshot."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from perdure.model.records import (
    ChannelRecord,
    ConsumerRecord,
    DeadLetterRecord,
    DeferredRecord,
    EventRecord,
    ItemRecord,
    OutboxRecord,
    ParkedRecord,
    RunRecord,
    SignalRecord,
    StepRecord,
    SubscriptionRecord,
    WatcherRecord,
    WorkflowRecord,
)
from perdure.store.base import Look, MatchPlace, RunFilter, Store, Vitals, WatcherPlace
from perdure.store.postgres import fetching
from perdure.store.postgres.connecting import Connection
from perdure.store.postgres.fetching import Fetcher, workflows_json
from perdure.store.postgres.statements import Statement, Statements, statement
from perdure.store.postgres.ticking import ServerClock

Found = TypeVar("Found")

_counted_max = 1_000_000
_decode_swept = msgspec.json.Decoder(list[tuple[str, bool]]).decode
_decode_counts = msgspec.json.Decoder(dict[str, int]).decode
# Before every row of its index.
_first_time = -(2**63)


class PostgresReads(Store):
    """The reading half of the store."""

    _statements: Statements
    _fetcher: Fetcher
    _clock: ServerClock

    @abstractmethod
    async def _ask(self, ask: Callable[[Connection], Any]) -> Any:
        """Have something asked on a connection that nobody else uses meanwhile."""

    @abstractmethod
    def _note_workers(self, workers: frozenset[str]) -> None:
        """Hear which workers live."""

    async def _row(self, name: str, /, **params: Any) -> Any:
        return await self._ask_row(self._statements[name], params)

    async def _ask_row(self, asked: Statement, params: dict[str, Any]) -> Any:
        values = asked.values(params)
        return await self._ask(lambda connection: connection.fetchrow(asked.text, *values))

    async def _rows(
        self, decode: Callable[[str], list[Found]], name: str, /, **params: Any
    ) -> list[Found]:
        return decode((await self._row(name, **params))[0])

    # --- for the engine ---

    async def outbox(self, after: str, limit: int) -> list[OutboxRecord]:
        return await self._rows(fetching.decode_outbox, "outbox", after=after, limit=limit)

    async def load(self, run_ids: Sequence[str]) -> list[tuple[RunRecord, list[StepRecord]]]:
        wanted = list(dict.fromkeys(run_ids))
        runs, steps = await self._row("load", run_ids=wanted)
        steps_of: dict[str, list[StepRecord]] = {}
        found = []
        for run in fetching.decode_runs(runs):
            steps_of[run.run_id] = []
            found.append((run, steps_of[run.run_id]))
        for step in fetching.decode_steps(steps):
            steps_of[step.run_id].append(step)
        return found

    async def look(
        self,
        workflows: Iterable[tuple[str, int]] | None = None,
        after: str = "",
        limit: int = 0,
    ) -> Look:
        row = await self._row(
            "look",
            workflows=None if workflows is None else workflows_json(workflows),
            after=after,
            limit=limit,
            now=self._clock.now(),
            worker_id=self.worker_id or "",
        )
        deadline_at, expires_at, ready_at, fan_out, outbox, first, last, orphaned, *lists = row
        living, readers, swept = lists
        parked = _decode_swept(swept)
        self.head = max(self.head, last)
        workers = frozenset(fetching.decode_ids(living))
        self._note_workers(workers)
        return Look(
            deadline_at=min(
                (at for at in (deadline_at, expires_at) if at is not None), default=None
            ),
            ready_at=ready_at,
            fan_out=fan_out,
            outbox=outbox,
            orphaned=orphaned,
            suspects=tuple(run_id for run_id, watches in parked if not watches),
            swept=parked[-1][0] if parked and len(parked) == limit else "",
            first=first,
            last=last,
            consumers=tuple(fetching.decode_consumers(readers)),
            workers=workers,
        )

    async def revisions(self, run_ids: Sequence[str]) -> dict[str, int]:
        (found,) = await self._row("revisions", run_ids=list(run_ids))
        return _decode_counts(found)

    async def ended(self, run_ids: Sequence[str]) -> list[RunRecord]:
        return await self._rows(fetching.decode_runs, "ended", run_ids=list(run_ids))

    async def catalogue(self) -> list[WorkflowRecord]:
        return await self._rows(fetching.decode_workflows, "catalogue")

    async def channels(self) -> list[ChannelRecord]:
        return await self._rows(fetching.decode_channels, "all_channels")

    async def span(self) -> tuple[int, int]:
        first, last = await self._row("span")
        self.head = max(self.head, last)
        return first, last

    async def position_at(self, recorded_at: int) -> int:
        found: int = await self._ask(
            lambda connection: self._fetcher.position_at(connection, recorded_at)
        )
        return found

    async def matches(self, after: MatchPlace | None, limit: int) -> list[WatcherRecord]:
        names = ("target", "entity", "opened_at", "run_id", "path", "ix")
        place = dict(zip(names, after or ("", "", -1, "", "", -1), strict=True))
        return await self._rows(fetching.decode_watchers, "matches", limit=limit, **place)

    async def consumers(self) -> list[ConsumerRecord]:
        return await self._rows(fetching.decode_consumers, "consumers")

    async def subscriptions(self) -> list[SubscriptionRecord]:
        return await self._rows(fetching.decode_subscriptions, "all_subscriptions")

    async def known_keys(self, scope: str, keys: Sequence[str], now: int) -> set[str]:
        found = await self._rows(
            fetching.decode_ids, "known_keys", scope=scope, keys=list(keys), now=now
        )
        return set(found)

    async def keys_have_expired(self, now: int) -> bool:
        return bool((await self._row("keys_have_expired", now=now))[0])

    async def vitals(self, now: int) -> Vitals:
        row = await self._row("vitals", now=now, limit=_counted_max)
        return Vitals(**dict(zip(Vitals.__struct_fields__, row, strict=True)))

    # --- for people ---

    async def run(self, run_id: str) -> RunRecord | None:
        return _first(await self._rows(fetching.decode_runs, "run", run_id=run_id))

    async def history(self, run_id: str) -> list[StepRecord]:
        rows = await self._rows(fetching.decode_steps, "history", run_id=run_id)
        return sorted(rows, key=lambda one: (one.generation, one.seq == 0, one.seq, one.path))

    async def runs(
        self, where: RunFilter, after: tuple[int, str] | None, limit: int
    ) -> list[RunRecord]:
        text, params = runs_query(self._statements, where, after, limit)
        row = await self._ask_row(statement(text), params)
        return fetching.decode_runs(row[0])

    async def waiting(self, run_id: str) -> list[WatcherRecord]:
        return await self._rows(fetching.decode_watchers, "waiting", run_id=run_id)

    async def find_waiting(
        self, signal: str, opened_before: int | None, after: WatcherPlace | None, limit: int
    ) -> list[WatcherRecord]:
        return await self._rows(
            fetching.decode_watchers,
            "find_waiting",
            signal=signal,
            opened_before=opened_before,
            limit=limit,
            **_place(after),
        )

    async def topic_watchers(
        self, topic: str, after: WatcherPlace | None, limit: int
    ) -> list[WatcherRecord]:
        return await self._rows(
            fetching.decode_watchers,
            "waiting_for_topic",
            topic=topic,
            limit=limit,
            **_place(after),
        )

    async def buffered(self, run_id: str) -> list[SignalRecord]:
        return await self._rows(fetching.decode_signals, "buffered", run_id=run_id)

    async def signal(self, signal_id: str) -> SignalRecord | DeadLetterRecord | EventRecord | None:
        signals, letters, events = await self._row("signal", signal_id=signal_id)
        return (
            _first(fetching.decode_signals(signals))
            or _first(fetching.decode_letters(letters))
            or _first(fetching.decode_events(events))
        )

    async def dead_letters(
        self, run_id: str | None, after: str, limit: int
    ) -> list[DeadLetterRecord]:
        params: dict[str, Any] = {"after": after, "limit": limit}
        name = "page_dead_letters"
        if run_id is not None:
            params["run_id"] = run_id
            name = "page_dead_letters_of_run"
        return await self._rows(fetching.decode_letters, name, **params)

    async def events(
        self,
        after: int,
        limit: int,
        *,
        type: str | None = None,
        entity: tuple[str, str] | None = None,
    ) -> list[EventRecord]:
        params: dict[str, Any] = {"after": after, "limit": limit}
        narrowed = []
        if type is not None:
            narrowed.append(self._statements.text("events_of_type"))
            params["type"] = type
        if entity is not None:
            narrowed.append(self._statements.text("events_of_entity"))
            params["entity_type"], params["entity_id"] = entity
        text = self._statements.text("page_events").replace("{narrowed}", " ".join(narrowed))
        row = await self._ask_row(statement(text), params)
        return fetching.decode_events(row[0])

    async def events_by_time(
        self, after: tuple[int, int] | None, limit: int, *, entity: tuple[str, str] | None = None
    ) -> list[EventRecord]:
        occurred_at, position = after or (_first_time, 0)
        params: dict[str, Any] = {"occurred_at": occurred_at, "position": position, "limit": limit}
        name = "page_events_by_time"
        if entity is not None:
            params["entity_type"], params["entity_id"] = entity
            name = "page_timeline"
        return await self._rows(fetching.decode_events, name, **params)

    async def event(self, event_id: str) -> EventRecord | None:
        return _first(await self._rows(fetching.decode_events, "event", event_id=event_id))

    async def latest(self, topic: str, entity: str) -> EventRecord | None:
        found: EventRecord | None = await self._ask(
            lambda connection: self._fetcher.next_event(
                connection, topic, entity, 0, None, True, True
            )
        )
        return found

    async def queue_items(self, queue: str, after: int, limit: int) -> list[ItemRecord]:
        return await self._rows(
            fetching.decode_items, "page_items", queue=queue, after=after, limit=limit
        )

    async def queues(self) -> dict[str, int]:
        return _decode_counts((await self._row("queue_counts"))[0])

    async def parked(
        self, consumer: str | None, after: tuple[str, int, str] | None, limit: int
    ) -> list[ParkedRecord]:
        names = ("consumer", "position", "subscription")
        place = dict(zip(names, max(after or ("", -1, ""), (consumer or "", -1, "")), strict=True))
        return await self._rows(
            fetching.decode_parked, "page_parked", last=consumer, limit=limit, **place
        )

    async def deferred(self, after: tuple[int, str] | None, limit: int) -> list[DeferredRecord]:
        position, subscription = after or (-1, "")
        return await self._rows(
            fetching.decode_deferred,
            "page_deferred",
            position=position,
            subscription=subscription,
            limit=limit,
        )

    async def counts(self) -> dict[str, int]:
        by_status, others = map(_decode_counts, await self._row("counts"))
        runs = {f"runs.{status}": count for status, count in by_status.items()}
        return {"runs": sum(by_status.values()), **runs, **others}


def runs_query(
    statements: Statements, where: RunFilter, after: tuple[int, str] | None, limit: int
) -> tuple[str, dict[str, Any]]:
    """The statement for a page of runs. One index leads: entity, parent, status, workflow or age."""
    params: dict[str, Any] = {"limit": limit}
    conditions: list[str] = []
    by_status = where.is_led_by_status

    def narrow(name: str, **values: object) -> None:
        conditions.append(statements.text(name))
        params.update(values)

    if after is not None:
        narrow("runs_after", after_created_at=after[0], after_run_id=after[1])
    if where.created_from is not None:
        narrow("runs_created_from", created_from=where.created_from)
    if where.created_before is not None:
        narrow("runs_created_before", created_before=where.created_before)
    if where.workflow is not None:
        narrow("runs_of_workflow_too" if by_status else "runs_of_workflow", workflow=where.workflow)
    if where.entity is not None:
        narrow("runs_of_entity", entity_type=where.entity[0], entity_id=where.entity[1])
    if where.parent_run_id is not None:
        narrow("runs_of_parent", parent_run_id=where.parent_run_id)
    if where.tag is not None:
        narrow("runs_tagged", tag_name=where.tag[0], tag_value=where.tag[1])
    narrowed = " and ".join(conditions) or statements.text("runs_all")
    if where.statuses:
        params["statuses"] = list(where.statuses)
        if by_status:
            narrowed = statements.text("runs_of_statuses").replace("{narrowed}", narrowed)
        else:
            narrowed += " and " + statements.text("runs_of_status")
    return statements.text("page_runs").replace("{narrowed}", narrowed), params


def _place(after: WatcherPlace | None) -> dict[str, Any]:
    names = ("opened_at", "run_id", "path", "ix")
    return dict(zip(names, after or (-1, "", "", -1), strict=True))


def _first(found: list[Found]) -> Found | None:
    return found[0] if found else None
