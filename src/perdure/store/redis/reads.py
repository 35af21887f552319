"""Reads: each is one call, and so one moment, but for those that pass over more rows than one call may look at."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec

from perdure.model.records import (
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
from perdure.model.status import LIVE, TERMINAL
from perdure.store.base import (
    Backlog,
    Flaw,
    Life,
    Look,
    MatchPlace,
    RunFilter,
    Standing,
    Store,
    StreamKept,
    Vitals,
    WatcherPlace,
    merged_backlog,
    next_place,
)
from perdure.store.decoding import history_page, in_order
from perdure.store.redis import fetching
from perdure.store.redis.drift import Drift
from perdure.store.redis.fetching import (
    EVERY,
    Question,
    Reply,
    best_event,
    next_event,
    walk,
    workflow_names,
)
from perdure.store.redis.layout import LAST, SEP, Layout, id_of, is_indexed, moment, place, time_of
from perdure.store.redis.rows import (
    decode_event,
    decode_key,
    decode_run,
    decode_stream,
    decode_stream_item,
    decode_watcher,
    decode_worker,
    key_field,
    pairs,
    stream_part,
)
from perdure.store.ticking import ServerClock

_statuses = tuple(sorted(LIVE | TERMINAL))
_every_table = (
    "steps",
    "watchers",
    "signals",
    "keys",
    "events",
    "dead_letters",
    "workers",
    "workflows",
    "cursors",
    "queue_items",
    "streams",
    "stream_items",
    "fan_outs",
    "consumers",
    "subscriptions",
    "parked",
    "deferred",
    "channels",
    "schedules",
    "pools",
)
# Facts about a run that are read together, of which some may be of other types.
_facts_part = 100
# Runs that are read whole in one call, and what is asked of each.
_lives_part = 10
_questions_per_life = 5
_decode_outbox = msgspec.json.Decoder(OutboxRecord).decode


class RedisReads(Store):
    """The reading half of the store."""

    _layout: Layout
    _clock: ServerClock

    @abstractmethod
    async def _ask(self, questions: Sequence[Question]) -> Reply:
        """Have questions answered, all from one moment."""

    @abstractmethod
    async def _scan(self, cursor: int) -> tuple[int, list[str]]:
        """Some keys of the namespace, without what all of them begin with, and where to go on; 0 at the end."""

    @abstractmethod
    def _note_workers(self, workers: frozenset[str]) -> None:
        """Hear which workers live."""

    @abstractmethod
    async def _note_server(self, server: str) -> None:
        """Hear which start of the server has answered."""

    async def _one(self, *question: Any) -> Any:
        return (await self._ask([question])).answers[0]

    def _key(self, *parts: str) -> str:
        return self._layout.key(*parts)

    # --- for the engine ---

    async def outbox(self, after: str, limit: int) -> list[OutboxRecord]:
        found = await self._one("page", "outbox:all", "outbox", 0, f"({after}", "+", limit)
        return list(map(_decode_outbox, found))

    async def load(self, run_ids: Sequence[str]) -> list[tuple[RunRecord, list[StepRecord]]]:
        loaded = []
        for row, decided, unfinished in await self._one("load", list(dict.fromkeys(run_ids))):
            run = _run(row)
            steps = map(fetching.decode_step, (*decided, *unfinished))
            living = [
                one for one in steps if one.superseded == 0 and one.generation == run.generation
            ]
            loaded.append((run, living))
        return loaded

    async def look(
        self,
        workflows: Iterable[tuple[str, int]] | None = None,
        after: str = "",
        limit: int = 0,
        pools: Iterable[str] | None = None,
    ) -> Look:
        asked: list[Any] = ["look", self._clock.now(), self.worker_id or "", after, limit]
        if workflows is not None:
            known = list(workflows)
            served = False if pools is None else list(pools)
            asked += [workflow_names(known), list({name for name, _ in known}), served]
        found = await self._one(*asked)
        deadline, expiry, ready, fan_out, outbox, first, last, orphans, living, readers, *more = (
            found
        )
        swept, server, schedule, lines = more
        await self._note_server(server.decode())
        deadlines = [time_of(one.decode()) for one in (deadline, expiry) if one]
        self.head = max(self.head, int(last))
        workers = frozenset(one.decode() for one in living)
        self._note_workers(workers)
        consumers = sorted(map(fetching.decode_consumer, readers), key=lambda one: one.name)
        return Look(
            deadline_at=min(deadlines, default=None),
            ready_at=time_of(ready.decode()) if ready else None,
            fan_out=bool(fan_out),
            outbox=bool(outbox),
            schedule_at=time_of(schedule.decode()) if schedule else None,
            lines=tuple(_lines(lines)),
            orphaned=bool(orphans),
            suspects=tuple(run_id.decode() for run_id, watches in swept if not watches),
            swept=swept[-1][0].decode() if swept and len(swept) == limit else "",
            first=int(first),
            last=int(last),
            consumers=tuple(consumers),
            workers=workers,
        )

    async def revisions(self, run_ids: Sequence[str]) -> dict[str, int]:
        found = await self._one("runs_in", list(dict.fromkeys(run_ids)), list(TERMINAL), False)
        return {run.run_id: run.revision for run in map(_run, found)}

    async def ended(self, run_ids: Sequence[str]) -> list[RunRecord]:
        found = await self._one("runs_in", list(dict.fromkeys(run_ids)), list(TERMINAL), True)
        return list(map(_run, found))

    async def catalogue(self) -> list[WorkflowRecord]:
        found = map(fetching.decode_workflow, await self._one("HVALS", self._key("workflows")))
        return sorted(found, key=lambda one: (one.name, one.version))

    async def channels(self) -> list[ChannelRecord]:
        found = map(fetching.decode_channel, await self._one("HVALS", self._key("channels")))
        return sorted(found, key=lambda one: (one.kind, one.name))

    async def span(self) -> tuple[int, int]:
        reply = await self._ask([("first",)])
        self.head = max(self.head, reply.head)
        return int(reply.answers[0]), reply.head

    async def position_at(self, recorded_at: int) -> int:
        return int(await self._one("position_at", recorded_at))

    async def matches(self, after: MatchPlace | None, limit: int) -> list[WatcherRecord]:
        begin = "-"
        if after is not None:
            target, entity, opened_at, run_id, path, ix = after
            member = _watcher_member(opened_at, run_id, path, ix)
            begin = "(" + SEP.join((target, entity, member))
        return list(map(decode_watcher, await self._one("matches", begin, limit)))

    async def consumers(self) -> list[ConsumerRecord]:
        found = map(fetching.decode_consumer, await self._one("HVALS", self._key("consumers")))
        return sorted(found, key=lambda one: one.name)

    async def subscriptions(self) -> list[SubscriptionRecord]:
        rows = await self._one("HVALS", self._key("subscriptions"))
        return sorted(map(fetching.decode_subscription, rows), key=lambda one: one.name)

    async def schedule(self, name: str) -> ScheduleRecord | None:
        found = await self._one("HGET", self._key("schedules"), name)
        return None if found is None else fetching.decode_schedule(found)

    async def schedules(self, after: str, limit: int) -> list[ScheduleRecord]:
        found = await self._one("page", "schedules:all", "schedules", 0, f"({after}", "+", limit)
        return list(map(fetching.decode_schedule, found))

    async def pools(self) -> list[PoolRecord]:
        rows = await self._one("HVALS", self._key("pools"))
        return sorted(map(fetching.decode_pool, rows), key=lambda one: one.name)

    async def lines(self) -> list[LineLook]:
        return _lines(await self._one("lines"))

    async def standing(self, pool: str, keys: Sequence[str]) -> Standing:
        taken, waiting, oldest, state, of_keys = await self._one("standing", pool, list(keys))
        found = zip(keys, of_keys, strict=True)
        return Standing(
            taken=taken,
            waiting=waiting,
            oldest_at=time_of(oldest.decode()) if oldest else None,
            state=_kept(state),
            keys={
                key: (slots, None if kept is None else int(decode_key(kept).answer))
                for key, (slots, kept) in found
            },
        )

    async def line(self, pool: str, after: tuple[int, str] | None, limit: int) -> list[RunRecord]:
        begin = "-" if after is None else f"({moment(after[0])}{after[1]}"
        return list(map(_run, await self._one("line", pool, begin, limit)))

    async def known_keys(self, scope: str, keys: Sequence[str], now: int) -> set[str]:
        if not keys:
            return set()
        fields = [key_field(scope, one) for one in keys]
        found = await self._one("HMGET", self._key("keys"), *fields)
        used = (decode_key(one) for one in found if one is not None)
        return {one.key for one in used if one.expires_at is None or one.expires_at > now}

    async def used_key(self, scope: str, key: str, now: int) -> KeyRecord | None:
        row = await self._one("HGET", self._key("keys"), key_field(scope, key))
        found = None if row is None else decode_key(row)
        return found if found is not None and (found.expires_at or now + 1) > now else None

    async def keys_have_expired(self, now: int) -> bool:
        return bool(await self._one("expired_keys", moment(now), 1, 0))

    async def vitals(self, now: int) -> Vitals:
        due = ("ZLEXCOUNT", self._key("deadlines"), "-", f"({moment(now)}{LAST}")
        lengths = [("HLEN", self._key(one)) for one in ("parked", "deferred", "letters")]
        asked = [("first_ready",), ("first_due",), due, *lengths]
        ready, schedule, timers, *counts = (await self._ask(asked)).answers
        oldest = time_of(ready.decode()) if ready else None
        return Vitals(
            timers_due=timers,
            oldest_ready_at=oldest if oldest is not None and oldest <= now else None,
            parked=counts[0],
            deferred=counts[1],
            dead_letters=counts[2],
            schedule_at=time_of(schedule.decode()) if schedule else None,
        )

    async def workers(self) -> list[WorkerRecord]:
        rows = [
            decode_worker(*one) for one in pairs(await self._one("HGETALL", self._key("workers")))
        ]
        now = self._clock.now()
        living = [one for one in rows if one.lease_until > now or one.worker_id == self.worker_id]
        return sorted(living, key=lambda one: one.worker_id)

    async def backlog(self, now: int, limit: int) -> list[Backlog]:
        found = await self._one("backlog", f"({moment(now)}{LAST}")
        return merged_backlog(_backlog(one, limit) for one in found if one[1])

    # --- for people ---

    async def run(self, run_id: str) -> RunRecord | None:
        found = decode_run(await self._one("run", run_id))
        return None if found is None else found[0].run

    async def history(self, run_id: str) -> list[StepRecord]:
        return in_order(map(fetching.decode_step, await self._one("history", run_id)))

    async def history_page(
        self, run_id: str, after: HistoryPlace | None, limit: int
    ) -> list[StepRecord]:
        # Steps are kept by their path; whoever wants an order has all of them.
        return history_page(await self.history(run_id), after, limit)

    async def runs(
        self, where: RunFilter, after: tuple[int, str] | None, limit: int
    ) -> list[RunRecord]:
        upto = "+" if after is None else f"({moment(after[0])}{after[1]}"
        if where.created_before is not None:
            before = f"({moment(where.created_before)}"
            upto = before if upto == "+" else min(upto, before)
        begin = "-" if where.created_from is None else f"[{moment(where.created_from)}"
        groups = _groups(where)
        found: list[RunRecord] = []
        while len(found) < limit:
            page, last = await self._one("runs", groups, upto, begin, limit - len(found))
            # One that only the index knows is drift: fsck tells of it.
            found += [_run(one) for one in page if one[1] is not None]
            if not last:
                break
            upto = f"({last.decode()}"
        return found

    async def waiting(self, run_id: str) -> list[WatcherRecord]:
        rows = map(decode_watcher, await self._one("HVALS", self._key("waits", run_id)))
        return sorted(rows, key=lambda one: (one.opened_at, one.path, one.ix))

    async def find_waiting(
        self, signal: str, opened_before: int | None, after: WatcherPlace | None, limit: int
    ) -> list[WatcherRecord]:
        upto = "+" if opened_before is None else f"({moment(opened_before)}"
        begin = _after_watcher(after)
        rows = await self._one("watchers", f"watch:signal:{signal}", begin, upto, limit)
        return list(map(decode_watcher, rows))

    async def topic_watchers(
        self, topic: str, after: WatcherPlace | None, limit: int
    ) -> list[WatcherRecord]:
        rows = await self._one("topic_watchers", topic, _after_watcher(after), limit)
        return list(map(decode_watcher, rows))

    async def approvals(self, after: WatcherPlace | None, limit: int) -> list[WatcherRecord]:
        rows = await self._one("watchers", "approvals", _after_watcher(after), "+", limit)
        return list(map(decode_watcher, rows))

    async def buffered(self, run_id: str) -> list[SignalRecord]:
        rows = map(fetching.decode_signal, await self._one("HVALS", self._key("signals", run_id)))
        return sorted(rows, key=lambda one: one.position)

    async def signal(self, signal_id: str) -> SignalRecord | DeadLetterRecord | EventRecord | None:
        signal, letter, event = await self._one("signal", signal_id)
        if signal is not None:
            return fetching.decode_signal(signal)
        if letter is not None:
            return fetching.decode_letter(letter)
        return None if event is None else decode_event(event)

    async def dead_letters(
        self, run_id: str | None, after: str, limit: int
    ) -> list[DeadLetterRecord]:
        index = "letters:all" if run_id is None else f"letters:of:{run_id}"
        found = await self._one("page", index, "letters", 0, f"({after}", "+", limit)
        return list(map(fetching.decode_letter, found))

    async def events(
        self,
        after: int,
        limit: int,
        *,
        type: str | None = None,
        entity: tuple[str, str] | None = None,
    ) -> list[EventRecord]:
        if entity is None:
            found = await self._one("events", type or "", after, limit)
            return list(map(decode_event, found))
        about = "/".join(entity)
        if not is_indexed(type or "workflow", about):
            return await self._facts(about, type, after, limit)
        found = await self._one("events_about", about, type or "", after, limit)
        return list(map(decode_event, found))

    async def _facts(
        self, about: str, type: str | None, after: int, limit: int
    ) -> list[EventRecord]:
        """What is told of a run, by the engine mostly, and that is in no index but its timeline."""
        positions = sorted(map(int, await self._one(*walk("facts", EVERY, about, after))))
        found: list[EventRecord] = []
        part = max(limit, _facts_part)
        for begin in range(0, len(positions), part):
            page = map(decode_event, await self._one("events_at", positions[begin : begin + part]))
            found += [one for one in page if type in (None, one.type)]
            if len(found) >= limit:
                break
        return found[:limit]

    async def events_by_time(
        self, after: tuple[int, int] | None, limit: int, *, entity: tuple[str, str] | None = None
    ) -> list[EventRecord]:
        place_before = "" if after is None else moment(after[0]) + place(after[1])
        about = "" if entity is None else "/".join(entity)
        found = await self._one("events_by_time", about, place_before, limit)
        return list(map(decode_event, found))

    async def event(self, event_id: str) -> EventRecord | None:
        found = await self._one("event", event_id)
        return None if found is None else decode_event(found)

    async def latest(self, topic: str, entity: str) -> EventRecord | None:
        found = await self._one(*next_event(topic, entity, 0, None, True, True))
        return best_event(found, newest=True)

    async def queue_items(self, queue: str, after: int, limit: int) -> list[ItemRecord]:
        begin = f"({place(after)}{LAST}" if after > 0 else "-"
        return list(map(fetching.decode_item, await self._one("items", queue, begin, limit)))

    async def queues(self) -> dict[str, int]:
        found = await self._one(*walk("queues", EVERY))
        return {queue.decode(): count for queue, count in sorted(found) if count}

    async def stream_items(
        self, run_id: str, stream: str, after: int, limit: int
    ) -> list[StreamItemRecord]:
        key = self._key("stream", stream_part(run_id, stream))
        found = await self._one("XRANGE", key, f"{after + 1}-0", "+", "COUNT", str(limit))
        return [decode_stream_item(run_id, stream, one) for one in found]

    async def streams(self, run_id: str) -> list[StreamSpan]:
        spans = [
            StreamSpan(
                stream=name.decode(),
                first=int(first.partition(b"-")[0]),
                last=decode_stream(run_id, name, value).last,
            )
            for name, first, value in await self._one("streams", run_id)
        ]
        return sorted(spans, key=lambda one: one.stream)

    async def parked(
        self, consumer: str | None, after: tuple[str, int, str] | None, limit: int
    ) -> list[ParkedRecord]:
        begin, upto = "-", "+"
        if consumer is not None:
            begin, upto = f"[{consumer}{SEP}", f"({consumer}\x01"
        if after is not None:
            begin = "(" + SEP.join((after[0], place(after[1]), after[2]))
        found = await self._one("page", "parked:all", "parked", 0, begin, upto, limit)
        return list(map(fetching.decode_parked, found))

    async def deferred(self, after: tuple[int, str] | None, limit: int) -> list[DeferredRecord]:
        begin = "-" if after is None else f"({place(after[0])}{after[1]}"
        found = await self._one("page", "deferred:all", "deferred", 0, begin, "+", limit)
        return list(map(fetching.decode_deferred, found))

    async def counts(self) -> dict[str, int]:
        statuses = [("ZCARD", self._key("runs", "status", one)) for one in _statuses]
        outbox = ("HLEN", self._key("outbox"))
        tables = ("HMGET", self._key("counts"), *_every_table)
        *by_status, waiting, rows = (await self._ask([*statuses, outbox, tables])).answers
        runs = {f"runs.{one}": n for one, n in zip(_statuses, by_status, strict=True) if n}
        counted = {one: int(n or 0) for one, n in zip(_every_table, rows, strict=True)}
        return {"runs": sum(runs.values()), **runs, **counted, "outbox": waiting}

    # --- for who looks after the store ---

    async def lives(self, run_ids: Sequence[str]) -> list[Life]:
        wanted = list(dict.fromkeys(run_ids))
        found: list[Life] = []
        for begin in range(0, len(wanted), _lives_part):
            asked = [
                question
                for run_id in wanted[begin : begin + _lives_part]
                for question in self._inside(run_id)
            ]
            answers = (await self._ask(asked)).answers
            for nth in range(0, len(answers), _questions_per_life):
                found += _life(*answers[nth : nth + _questions_per_life])
        return found

    def _inside(self, run_id: str) -> tuple[Question, ...]:
        return (
            ("run", run_id),
            ("history", run_id),
            ("HVALS", self._key("waits", run_id)),
            ("HVALS", self._key("signals", run_id)),
            ("streams_kept", run_id),
        )

    async def run_ids(self, after: str, limit: int) -> tuple[list[str], str]:
        begin = f"({after}" if after else "-"
        key = self._key("runs")
        page = await self._one("ZRANGEBYLEX", key, begin, "+", "LIMIT", 0, limit)
        members = [one.decode() for one in page]
        return [id_of(one) for one in members], next_place(members, limit)

    async def positions_of(self, event_ids: Sequence[str]) -> dict[str, int]:
        if not event_ids:
            return {}
        found = await self._one("HMGET", self._key("event_ids"), *event_ids)
        return {one: int(at) for one, at in zip(event_ids, found, strict=True) if at is not None}

    async def items_of(self, item_ids: Sequence[str]) -> set[str]:
        if not item_ids:
            return set()
        found = await self._one("HMGET", self._key("items"), *item_ids)
        return {one for one, row in zip(item_ids, found, strict=True) if row is not None}

    async def flaws(self) -> AsyncIterator[Flaw]:
        async for flaw in Drift(self._layout, self._ask, self._scan).flaws():
            yield flaw


def _life(
    row: Sequence[bytes | None],
    steps: list[bytes],
    watchers: list[bytes],
    signals: list[bytes],
    streams: list[Any],
) -> list[Life]:
    """A run with its rows, if there is such a run."""
    found = decode_run(row)
    if found is None:
        return []
    run = found[0].run
    kept = [
        StreamKept(
            name.decode(),
            decode_stream(run.run_id, name, value).last,
            int(first.partition(b"-")[0]),
            int(last.partition(b"-")[0]),
            count,
        )
        for name, value, first, last, count in streams
    ]
    return [
        Life(
            run,
            in_order(map(fetching.decode_step, steps)),
            list(map(decode_watcher, watchers)),
            sorted(map(fetching.decode_signal, signals), key=lambda one: one.position),
            kept,
        )
    ]


def _run(row: Sequence[bytes | None]) -> RunRecord:
    found = decode_run(row)
    assert found is not None
    return found[0].run


def _groups(where: RunFilter) -> list[list[str]]:
    """The indexes that a run must stand in, of each group in one."""
    groups = []
    if where.workflow is not None:
        groups.append([f"runs:workflow:{where.workflow}"])
    if where.statuses:
        groups.append([f"runs:status:{one}" for one in dict.fromkeys(where.statuses)])
    if where.tag is not None:
        name, value = where.tag
        groups.append([f"runs:tag:{name}" if value is None else f"runs:tag:{name}{SEP}{value}"])
    if where.entity is not None:
        groups.append([f"runs:entity:{'/'.join(where.entity)}"])
    if where.parent_run_id is not None:
        groups.append([f"runs:parent:{where.parent_run_id}"])
    return groups or [["runs"]]


def _watcher_member(opened_at: int, run_id: str, path: str, ix: int) -> str:
    return moment(opened_at) + SEP.join((run_id, path, f"{ix:06d}"))


def _after_watcher(after: WatcherPlace | None) -> str:
    return "-" if after is None else f"({_watcher_member(*after)}"


def _kept(value: bytes | None) -> str | None:
    """What is kept under a key of ours."""
    return None if value is None else decode_key(value).answer


def _lines(found: Iterable[Any]) -> list[LineLook]:
    """The pools in whose line somebody stands, by name."""
    lines = [
        LineLook(
            name=name.decode(),
            pool=None if row is None else fetching.decode_pool(row),
            oldest_at=time_of(oldest.decode()),
            begun=bool(begun),
            taken=taken,
            state=_kept(state),
        )
        for name, row, oldest, begun, taken, state in found
    ]
    return sorted(lines, key=lambda one: one.name)


def _backlog(found: tuple[bytes, int, bytes], limit: int) -> Backlog:
    """Of an index of runs to be claimed, which is named after its pool, if it has one, its workflow and the version."""
    name, count, first = found
    workflow, _, version = name.decode().rpartition(SEP)[2].rpartition(":")
    return Backlog(workflow, int(version), min(count, limit), time_of(first.decode()))
