"""Reads: a few connections beside the one that writes. Each is one statement, and so one snapshot."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from perdure.model.records import (
    HISTORY_BEGINS,
    ChannelRecord,
    ConsumerRecord,
    DeadLetterRecord,
    DeferredRecord,
    EventRecord,
    HistoryPlace,
    ItemRecord,
    KeyRecord,
    LineLook,
    OutboxRecord,
    ParkedRecord,
    PoolRecord,
    RunRecord,
    ScheduleRecord,
    SignalRecord,
    StepRecord,
    StreamItemRecord,
    StreamSpan,
    SubscriptionRecord,
    WatcherRecord,
    WorkerRecord,
    WorkflowRecord,
)
from perdure.store import decoding, listing
from perdure.store.base import (
    Backlog,
    Flaw,
    Life,
    Look,
    MatchPlace,
    RunFilter,
    Standing,
    Store,
    Vitals,
    WatcherPlace,
    merged_backlog,
    next_place,
)
from perdure.store.decoding import all_counts, decode_numbers, first, in_order, with_steps
from perdure.store.listing import (
    BEFORE_ALL_TIMES,
    events_query,
    match_place,
    parked_place,
    watcher_place,
)
from perdure.store.postgres.connecting import Connection
from perdure.store.postgres.fetching import Fetcher, workflows_json
from perdure.store.postgres.statements import Statement, Statements, statement
from perdure.store.ticking import ServerClock

Found = TypeVar("Found")

_counted_max = 1_000_000
# Of what one fsck tells about a table.
_flaws_max = 100
_decode_swept = msgspec.json.Decoder(list[tuple[str, bool]]).decode


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
        return await self._rows(decoding.decode_outbox, "outbox", after=after, limit=limit)

    async def load(self, run_ids: Sequence[str]) -> list[tuple[RunRecord, list[StepRecord]]]:
        wanted = list(dict.fromkeys(run_ids))
        runs, steps = await self._row("load", run_ids=wanted)
        return with_steps(decoding.decode_runs(runs), decoding.decode_steps(steps))

    async def look(
        self,
        workflows: Iterable[tuple[str, int]] | None = None,
        after: str = "",
        limit: int = 0,
        pools: Iterable[str] | None = None,
    ) -> Look:
        row = await self._row(
            "look",
            workflows=None if workflows is None else workflows_json(workflows),
            after=after,
            limit=limit,
            now=self._clock.now(),
            worker_id=self.worker_id or "",
            pools=None if pools is None else list(pools),
        )
        deadline_at, expires_at, ready_at, fan_out, outbox, schedule_at, lines, *more = row
        first, last, orphaned, living, readers, swept = more
        parked = _decode_swept(swept)
        self.head = max(self.head, last)
        workers = frozenset(decoding.decode_ids(living))
        self._note_workers(workers)
        return Look(
            deadline_at=min(
                (at for at in (deadline_at, expires_at) if at is not None), default=None
            ),
            ready_at=ready_at,
            fan_out=fan_out,
            outbox=outbox,
            schedule_at=schedule_at,
            lines=tuple(decoding.decode_lines(lines)),
            orphaned=orphaned,
            suspects=tuple(run_id for run_id, watches in parked if not watches),
            swept=parked[-1][0] if parked and len(parked) == limit else "",
            first=first,
            last=last,
            consumers=tuple(decoding.decode_consumers(readers)),
            workers=workers,
        )

    async def revisions(self, run_ids: Sequence[str]) -> dict[str, int]:
        (found,) = await self._row("revisions", run_ids=list(run_ids))
        return decode_numbers(found)

    async def ended(self, run_ids: Sequence[str]) -> list[RunRecord]:
        return await self._rows(decoding.decode_runs, "ended", run_ids=list(run_ids))

    async def catalogue(self) -> list[WorkflowRecord]:
        return await self._rows(decoding.decode_workflows, "catalogue")

    async def channels(self) -> list[ChannelRecord]:
        return await self._rows(decoding.decode_channels, "all_channels")

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
        return await self._rows(
            decoding.decode_watchers, "matches", limit=limit, **match_place(after)
        )

    async def consumers(self) -> list[ConsumerRecord]:
        return await self._rows(decoding.decode_consumers, "consumers")

    async def subscriptions(self) -> list[SubscriptionRecord]:
        return await self._rows(decoding.decode_subscriptions, "all_subscriptions")

    async def schedule(self, name: str) -> ScheduleRecord | None:
        return first(await self._rows(decoding.decode_schedules, "schedules", names=[name]))

    async def schedules(self, after: str, limit: int) -> list[ScheduleRecord]:
        return await self._rows(
            decoding.decode_schedules, "page_schedules", after=after, limit=limit
        )

    async def pools(self) -> list[PoolRecord]:
        return await self._rows(decoding.decode_pools, "all_pools")

    async def lines(self) -> list[LineLook]:
        return await self._rows(decoding.decode_lines, "lines")

    async def standing(self, pool: str, keys: Sequence[str]) -> Standing:
        row = await self._row("standing", pool=pool, keys=list(keys))
        taken, waiting, oldest_at, state, found = row
        return Standing(
            taken=taken,
            waiting=waiting,
            oldest_at=oldest_at,
            state=state,
            keys=decoding.pool_keys(found),
        )

    async def line(self, pool: str, after: tuple[int, str] | None, limit: int) -> list[RunRecord]:
        line_at, run_id = (-(2**63), "") if after is None else after
        place = {"pool": pool, "line_at": line_at, "run_id": run_id}
        return await self._rows(decoding.decode_runs, "page_line", limit=limit, **place)

    async def known_keys(self, scope: str, keys: Sequence[str], now: int) -> set[str]:
        found = await self._rows(
            decoding.decode_ids, "known_keys", scope=scope, keys=list(keys), now=now
        )
        return set(found)

    async def used_key(self, scope: str, key: str, now: int) -> KeyRecord | None:
        found = await self._rows(decoding.decode_keys, "used_key", scope=scope, key=key, now=now)
        return found[0] if found else None

    async def keys_have_expired(self, now: int) -> bool:
        return bool((await self._row("keys_have_expired", now=now))[0])

    async def vitals(self, now: int) -> Vitals:
        row = await self._row("vitals", now=now, limit=_counted_max)
        return Vitals(**dict(zip(Vitals.__struct_fields__, row, strict=True)))

    async def workers(self) -> list[WorkerRecord]:
        now, asker = self._clock.now(), self.worker_id or ""
        decode = decoding.decode_workers
        return await self._rows(decode, "living_workers", now=now, worker_id=asker)

    async def backlog(self, now: int, limit: int) -> list[Backlog]:
        rows = await self._rows(decoding.decode_backlog, "backlog", now=now, limit=limit)
        return merged_backlog(Backlog(*one) for one in rows)

    # --- for people ---

    async def run(self, run_id: str) -> RunRecord | None:
        return first(await self._rows(decoding.decode_runs, "run", run_id=run_id))

    async def history(self, run_id: str) -> list[StepRecord]:
        rows = await self._rows(decoding.decode_steps, "history", run_id=run_id)
        return in_order(rows)

    async def history_page(
        self, run_id: str, after: HistoryPlace | None, limit: int
    ) -> list[StepRecord]:
        generation, seq, path = after or HISTORY_BEGINS
        rows = await self._rows(
            decoding.decode_steps,
            "history_page",
            run_id=run_id,
            generation=generation,
            seq=seq,
            path=path,
            limit=limit,
        )
        return rows

    async def runs(
        self, where: RunFilter, after: tuple[int, str] | None, limit: int
    ) -> list[RunRecord]:
        text, params = runs_query(self._statements, where, after, limit)
        row = await self._ask_row(statement(text), params)
        return decoding.decode_runs(row[0])

    async def waiting(self, run_id: str) -> list[WatcherRecord]:
        return await self._rows(decoding.decode_watchers, "waiting", run_id=run_id)

    async def find_waiting(
        self, signal: str, opened_before: int | None, after: WatcherPlace | None, limit: int
    ) -> list[WatcherRecord]:
        return await self._rows(
            decoding.decode_watchers,
            "find_waiting",
            signal=signal,
            opened_before=opened_before,
            limit=limit,
            **watcher_place(after),
        )

    async def topic_watchers(
        self, topic: str, after: WatcherPlace | None, limit: int
    ) -> list[WatcherRecord]:
        return await self._rows(
            decoding.decode_watchers,
            "waiting_for_topic",
            topic=topic,
            limit=limit,
            **watcher_place(after),
        )

    async def approvals(self, after: WatcherPlace | None, limit: int) -> list[WatcherRecord]:
        return await self._rows(
            decoding.decode_watchers, "approvals", limit=limit, **watcher_place(after)
        )

    async def buffered(self, run_id: str) -> list[SignalRecord]:
        return await self._rows(decoding.decode_signals, "buffered", run_id=run_id)

    async def signal(self, signal_id: str) -> SignalRecord | DeadLetterRecord | EventRecord | None:
        signals, letters, events = await self._row("signal", signal_id=signal_id)
        return (
            first(decoding.decode_signals(signals))
            or first(decoding.decode_letters(letters))
            or first(decoding.decode_events(events))
        )

    async def dead_letters(
        self, run_id: str | None, after: str, limit: int
    ) -> list[DeadLetterRecord]:
        params: dict[str, Any] = {"after": after, "limit": limit}
        name = "page_dead_letters"
        if run_id is not None:
            params["run_id"] = run_id
            name = "page_dead_letters_of_run"
        return await self._rows(decoding.decode_letters, name, **params)

    async def events(
        self,
        after: int,
        limit: int,
        *,
        type: str | None = None,
        entity: tuple[str, str] | None = None,
    ) -> list[EventRecord]:
        text, params = events_query(self._statements.text, type, entity)
        params |= {"after": after, "limit": limit}
        row = await self._ask_row(statement(text), params)
        return decoding.decode_events(row[0])

    async def events_by_time(
        self, after: tuple[int, int] | None, limit: int, *, entity: tuple[str, str] | None = None
    ) -> list[EventRecord]:
        occurred_at, position = after or BEFORE_ALL_TIMES
        params: dict[str, Any] = {"occurred_at": occurred_at, "position": position, "limit": limit}
        name = "page_events_by_time"
        if entity is not None:
            params["entity_type"], params["entity_id"] = entity
            name = "page_timeline"
        return await self._rows(decoding.decode_events, name, **params)

    async def event(self, event_id: str) -> EventRecord | None:
        return first(await self._rows(decoding.decode_events, "event", event_id=event_id))

    async def latest(self, topic: str, entity: str) -> EventRecord | None:
        found: EventRecord | None = await self._ask(
            lambda connection: self._fetcher.next_event(
                connection, topic, entity, 0, None, True, True
            )
        )
        return found

    async def queue_items(self, queue: str, after: int, limit: int) -> list[ItemRecord]:
        return await self._rows(
            decoding.decode_items, "page_items", queue=queue, after=after, limit=limit
        )

    async def queues(self) -> dict[str, int]:
        return decode_numbers((await self._row("queue_counts"))[0])

    async def stream_items(
        self, run_id: str, stream: str, after: int, limit: int
    ) -> list[StreamItemRecord]:
        params = {"run_id": run_id, "stream": stream, "after": after, "limit": limit}
        return await self._rows(decoding.decode_stream_items, "page_stream_items", **params)

    async def streams(self, run_id: str) -> list[StreamSpan]:
        return await self._rows(decoding.decode_spans, "stream_spans", run_id=run_id)

    async def parked(
        self, consumer: str | None, after: tuple[str, int, str] | None, limit: int
    ) -> list[ParkedRecord]:
        place = parked_place(consumer, after)
        return await self._rows(
            decoding.decode_parked, "page_parked", last=consumer, limit=limit, **place
        )

    async def deferred(self, after: tuple[int, str] | None, limit: int) -> list[DeferredRecord]:
        position, subscription = after or (-1, "")
        return await self._rows(
            decoding.decode_deferred,
            "page_deferred",
            position=position,
            subscription=subscription,
            limit=limit,
        )

    async def counts(self) -> dict[str, int]:
        return all_counts(*map(decode_numbers, await self._row("counts")))

    # --- for who looks after the store ---

    async def lives(self, run_ids: Sequence[str]) -> list[Life]:
        row = await self._row("lives", run_ids=list(dict.fromkeys(run_ids)))
        return decoding.decode_lives(*row)

    async def run_ids(self, after: str, limit: int) -> tuple[list[str], str]:
        found = await self._rows(decoding.decode_ids, "run_ids", after=after, limit=limit)
        return found, next_place(found, limit)

    async def positions_of(self, event_ids: Sequence[str]) -> dict[str, int]:
        (found,) = await self._row("positions_of", event_ids=list(event_ids))
        return decode_numbers(found)

    async def items_of(self, item_ids: Sequence[str]) -> set[str]:
        return set(await self._rows(decoding.decode_ids, "items_of", item_ids=list(item_ids)))

    async def flaws(self) -> AsyncIterator[Flaw]:
        for table, what in await self._rows(decoding.decode_pairs, "strays", limit=_flaws_max):
            yield decoding.stray_flaw(table, what)


def runs_query(
    statements: Statements, where: RunFilter, after: tuple[int, str] | None, limit: int
) -> tuple[str, dict[str, Any]]:
    return listing.runs_query(statements.text, list, where, after, limit)
