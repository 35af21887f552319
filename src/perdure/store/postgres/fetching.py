"""Needs to rows: nearly all by one call, what is asked for seldom by a statement of its own."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from perdure.model import limits
from perdure.model.records import (
    RUNNER,
    EventRecord,
    ItemRecord,
    RunRecord,
    StreamRecord,
    WatcherRecord,
    WorkerRecord,
)
from perdure.store.decoding import (
    decode_channels,
    decode_consumers,
    decode_cursors,
    decode_deferred,
    decode_dues,
    decode_events,
    decode_ids,
    decode_items,
    decode_keys,
    decode_letters,
    decode_needed,
    decode_pairs,
    decode_parked,
    decode_pools,
    decode_positions,
    decode_schedules,
    decode_signals,
    decode_steps,
    decode_streams,
    decode_subscriptions,
    decode_watchers,
    decode_workflows,
    first,
)
from perdure.store.optimistic.known import CATALOGUE, FAN_OUTS, Slice, Topic
from perdure.store.optimistic.needs import Looks, Need, units_of
from perdure.store.postgres.connecting import Connection
from perdure.store.postgres.statements import Statements


class RunRow(msgspec.Struct, frozen=True, gc=False):
    """A run with its version and the last number of its history."""

    run: RunRecord
    change: int
    seq: int


_decode_rows = msgspec.json.Decoder(list[RunRow]).decode
_decode_watcher_lists = msgspec.json.Decoder(list[list[WatcherRecord]]).decode
_decode_item_lists = msgspec.json.Decoder(list[list[ItemRecord]]).decode
_decode_workers = msgspec.json.Decoder(list[WorkerRecord]).decode
_decode_topics = msgspec.json.Decoder(list[tuple[str, int, bool, int]]).decode
# A key of a line, whether somebody of it may be let through as far as the asker can, and its slots.
_decode_line_keys = msgspec.json.Decoder(list[tuple[str, bool, int]]).decode
_decode_units = msgspec.json.Decoder(list[tuple[str, str, int]]).decode

# What the one call knows how to look up.
_common = frozenset(
    "run inside on_run children step key topic watching queue unit event event_at fan_outs".split()
)


def as_json(rows: Iterable[Any]) -> str | None:
    """Rows for the server; None for none."""
    listed = list(rows)
    return msgspec.json.encode(listed).decode() if listed else None


def workflows_json(workflows: Iterable[tuple[str, int]]) -> str:
    """Workflows that somebody knows, for the server."""
    known = [{"name": name, "version": version} for name, version in dict.fromkeys(workflows)]
    return msgspec.json.encode(known).decode()


class Fetcher:
    """Looks needs up on one connection."""

    def __init__(
        self, statements: Statements, now: Callable[[], int], who: Callable[[], str | None]
    ) -> None:
        self._statements = statements
        self._now = now
        self._who = who  # asks: the worker of this process

    async def fetch(self, connection: Connection, looks: Looks, needs: Iterable[Need]) -> int:
        """Leave what was asked for among what is known and the answers; gives the server's clock.

        Versions come first, with the one call; whatever is read after them is no older than they say.
        """
        asked: dict[str, list[Need]] = defaultdict(list)
        for need in needs:
            asked[need[0]].append(need)
        clock = await self._fetch_common(connection, looks, asked)
        # By name: so schedules that are due are read before when the next one is. The other way round, one that was
        # dealt with in between would seem to be still to come.
        for kind, seldom in sorted(asked.items()):
            if kind == "outbox":
                await self._look_into_outbox(connection, looks, seldom)
            elif kind == "schedule":
                await self._look_at_schedules(connection, looks, seldom)
            elif kind == "streams":
                await self._look_at_streams(connection, looks, seldom)
            elif kind not in _common:
                for need in seldom:
                    looks.answers[need] = await self._look(connection, looks, need)
        return clock

    async def _look_into_outbox(
        self, connection: Connection, looks: Looks, needs: list[Need]
    ) -> None:
        row = await self.row(connection, "has_outbox", outbox_ids=_names(needs))
        there = set(decode_ids(row[0]))
        looks.answers.update((need, need[1] in there) for need in needs)

    async def _look_at_schedules(
        self, connection: Connection, looks: Looks, needs: list[Need]
    ) -> None:
        row = await self.row(connection, "schedules", names=_names(needs))
        there = {one.name: one for one in decode_schedules(row[0])}
        looks.answers.update((need, there.get(need[1])) for need in needs)

    async def _look_at_streams(
        self, connection: Connection, looks: Looks, needs: list[Need]
    ) -> None:
        found: dict[str, dict[str, StreamRecord]] = {need[1]: {} for need in needs}
        row = await self.row(connection, "streams", run_ids=_names(needs))
        for one in decode_streams(row[0]):
            found[one.run_id][one.stream] = one
        for run_id, streams in found.items():
            kept = looks.known.runs.get(run_id)
            if kept is not None:
                kept.streams = streams

    async def row(self, connection: Connection, name: str, /, **params: Any) -> Any:
        statement = self._statements[name]
        return await connection.fetchrow(statement.text, *statement.values(params))

    # --- the one call ---

    async def _fetch_common(
        self, connection: Connection, looks: Looks, asked: dict[str, list[Need]]
    ) -> int:
        kinds = ("run", "step", "steps", "letters", "streams")
        runs = {need[1] for kind in kinds for need in asked[kind]}
        units = {unit for kind in asked for need in asked[kind] for unit in units_of(need)}
        row = await self.row(
            connection,
            "fetch",
            runs=list(runs) or None,
            inside=_names(asked["inside"]),
            on_run=_names(asked["on_run"]),
            children=_names(asked["children"]),
            steps=_rows(asked["step"], "run_id", "generation", "path"),
            keys=_rows(asked["key"], "scope", "key"),
            topics=_names(asked["topic"]),
            watching=_rows(
                asked["watching"], "topic", "entity", "position", "recorded_at", "limit"
            ),
            queues=_rows(asked["queue"], "name", "limit"),
            units=as_json({"kind": kind, "name": name} for kind, name in sorted(units)),
            events=_names(asked["event"]),
            positions=_names(asked["event_at"]),
            fan_outs=bool(asked["fan_outs"]),
        )
        looks.known.head = max(looks.known.head, row["head"])
        _learn_units(looks, row)
        _learn_runs(looks, asked, row)
        _answer(looks, asked, row)
        clock: int = row["clock"]
        return clock

    # --- what is asked for seldom ---

    async def _look(self, connection: Connection, looks: Looks, need: Need) -> Any:
        kind, *args = need
        plain = _seldom.get(kind)
        if plain is not None:
            name, names, decode = plain
            params = dict(zip(names, args, strict=True))
            found = decode((await self.row(connection, name, **params))[0])
            return found if kind in _lists else next(iter(found), None)
        match kind:
            case "next_event":
                return await self.next_event(connection, *args)
            case "first_position":
                return (await self.row(connection, "span"))[0]
            case "position_at":
                return await self.position_at(connection, *args)
            case "oldest_needed":
                row = await self.row(
                    connection, "oldest_needed", idle_before=args[0], runner=RUNNER
                )
                return min((decode_needed(one) for one in row if one is not None), default=None)
            case "orphans":
                gone, limit = args
                owners = list({*await self.dead_owners(connection), *gone})  # some are both
                row = await self.row(connection, "orphans", owners=owners, limit=limit)
                return decode_ids(row[0])
            case "ready":
                known, pools, now, limit = args
                params = {"pools": _listed(pools), "now": now, "limit": limit}
                row = await self.row(connection, "ready", workflows=workflows_json(known), **params)
                return decode_ids(row[0])
            case "ready_later":
                known, pools, now = args
                params = {"pools": _listed(pools), "now": now}
                row = await self.row(
                    connection, "ready_later", workflows=workflows_json(known), **params
                )
                return decode_ids(row[0])
            case "pool":
                row = await self.row(connection, "pool", name=args[0])
                looks.known.pools[args[0]] = first(decode_pools(row[0]))
            case "slots":
                return (await self.row(connection, "slots", pool=args[0], key=args[1]))[0]
            case "line_keys":
                pool, after, known, begun, now, limit = args
                params = {"pool": pool, "begun": begun, "now": now, "limit": limit}
                params["workflows"] = workflows_json(known)
                return await self._line_keys(connection, after, params)
            case "line_runs":
                pool, key, known, begun, now, limit = args
                params = {"pool": pool, "key": key, "begun": begun, "now": now, "limit": limit}
                row = await self.row(
                    connection, "line_runs", workflows=workflows_json(known), **params
                )
                return decode_ids(row[0])
            case "idle_slots":
                pool, known, now, since, limit = args
                params = {"pool": pool, "now": now, "since": since, "limit": limit}
                row = await self.row(
                    connection, "idle_slots", workflows=workflows_json(known), **params
                )
                return decode_ids(row[0])
            case "expired_keys":
                bounds = {"limit": args[0], "bytes_max": limits.expired_keys_bytes_max}
                row = await self.row(connection, "expired_keys", now=self._now(), **bounds)
                return decode_keys(row[0])
            case "started_under":
                row = await self.row(connection, "started_under", root_id=args[0], limit=args[1])
                return row[0]
            case "workflow":
                lines, version = await self.row(
                    connection, "workflow", name=args[0], version=args[1]
                )
                looks.learn_unit(CATALOGUE, version)
                looks.known.workflows[args[0], args[1]] = first(decode_workflows(lines))
            case "channel":
                lines, version = await self.row(connection, "channel", kind=args[0], name=args[1])
                looks.learn_unit(CATALOGUE, version)
                looks.known.channels[args[0], args[1]] = first(decode_channels(lines))
            case _:
                raise AssertionError(f"nobody knows how to look up {need!r}")
        return None

    async def _line_keys(
        self, connection: Connection, after: str | None, params: dict[str, Any]
    ) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        limit: int = params["limit"]
        while len(found) < limit:
            row = await self.row(connection, "line_keys", after=after, **params)
            page = _decode_line_keys(row[0])
            found += [(key, taken) for key, is_due, taken in page if is_due]
            if len(page) < limit:
                break
            after = page[-1][0]
        return found[:limit]

    async def next_event(
        self,
        connection: Connection,
        topic: str,
        entity: str,
        after: int,
        recorded_by: int | None,
        newest: bool,
        repeats: bool,
    ) -> EventRecord | None:
        """The first event of a topic after a position, or the newest; also for reads."""
        params: dict[str, Any] = {"type": topic, "after": after}
        params |= {"recorded_by": recorded_by, "repeats": repeats}
        name = "next_event"
        if entity:
            params["entity_type"], params["entity_id"] = entity.split("/", 1)
            name = "next_event_about_run" if entity.startswith("run/") else "next_event_about"
        ordered = self._statements.ordered(name, "desc" if newest else "asc")
        row = await connection.fetchrow(ordered.text, *ordered.values(params))
        assert row is not None
        return first(decode_events(row[0]))

    async def position_at(self, connection: Connection, recorded_at: int) -> int:
        """The position before the first event recorded at that time or later: found by halving, for time goes up."""
        first, last = await self.row(connection, "span")
        low, high = first, last + 1
        while low < high:
            middle = (low + high) // 2
            if (await self.row(connection, "recorded_at", position=middle))[0] < recorded_at:
                low = middle + 1
            else:
                high = middle
        found: int = low - 1
        return found

    async def dead_owners(self, connection: Connection) -> list[str]:
        """Those who are said to run something and live no more."""
        asker = {"now": self._now(), "worker_id": self._who()}
        return decode_ids((await self.row(connection, "owners", **asker))[0])


# Needs that one statement answers: its name, its parameters, and how rows are read. The lists are told apart below.
_seldom: dict[str, tuple[str, tuple[str, ...], Callable[[str], list[Any]]]] = {
    "steps": ("steps", ("run_id", "generation"), decode_steps),
    "letter": ("letter", ("dead_letter_id",), decode_letters),
    "letters": ("letters", ("run_id",), decode_letters),
    "items": ("items", ("queue", "put_before", "limit"), decode_items),
    "deadlines": ("deadlines", ("limit",), decode_watchers),
    "expiries": ("expiries", ("limit",), decode_signals),
    "finished": ("finished", ("before", "limit"), decode_ids),
    "consumer": ("consumer", ("name",), decode_consumers),
    "consumers": ("consumers", (), decode_consumers),
    "subscription": ("subscription", ("name",), decode_subscriptions),
    "parked": ("parked_event", ("consumer", "position", "subscription"), decode_parked),
    "deferred": ("deferred_start", ("position", "subscription"), decode_deferred),
    "schedules_due": ("schedules_due", ("workflow_names", "now", "limit"), decode_dues),
    "schedules_next": ("schedules_next", ("workflow_names", "limit"), decode_dues),
    "workers": ("workers", (), _decode_workers),
}
_lists = frozenset(
    "steps letters items deadlines expiries finished consumers schedules_due schedules_next workers".split()
)


def _learn_units(looks: Looks, row: Any) -> None:
    for kind, name, version in _decode_units(row["units"] or "[]"):
        looks.learn_unit((kind, name), version)
        if (kind, name) == FAN_OUTS and row["fan_outs"] is not None:
            looks.known.put_fan_outs(decode_positions(row["fan_outs"]))
    for name, version, watched, newest in _decode_topics(row["topics"] or "[]"):
        looks.learn_unit(("topic", name), version)
        looks.known.topics[name] = Topic(version, watched, newest)


def _learn_runs(looks: Looks, asked: dict[str, list[Need]], row: Any) -> None:
    rows = _decode_rows(row["runs"] or "[]")
    found = {one.run.run_id: Slice(one.run, one.change) for one in rows}
    looks.known.seq = max(looks.known.seq, *(one.seq for one in rows), 0)
    for kind in ("run", "step", "inside", "on_run", "children", "streams"):
        for need in asked[kind]:
            if need[1] not in found:
                looks.learn_none(need[1])
    on_run = decode_watchers(row["on_run"] or "[]")
    if row["watchers"] is not None:
        inside = {one[1] for one in asked["inside"]} | _around(on_run, row)
        _fill({run_id: kept for run_id, kept in found.items() if run_id in inside}, row)
        on_run += decode_watchers(row["on_inside"])
    for _, run_id in asked["on_run"]:
        if run_id in found:
            found[run_id].on_run = {}
    for watcher in on_run:
        kept = found.get(watcher.target)
        if kept is not None and kept.on_run is not None:
            kept.on_run[watcher.run_id, watcher.path, watcher.ix] = watcher
    for kept in found.values():
        looks.learn_run(kept)


def _around(on_run: list[WatcherRecord], row: Any) -> set[str]:
    """Runs that the server has added by itself, with all that belongs to them."""
    around = {one.run_id for one in on_run}
    around |= {child for _, child in decode_pairs(row["children"] or "[]")}
    for lists in (row["watching"], row["takers"]):
        around |= {one.run_id for part in _decode_watcher_lists(lists or "[]") for one in part}
    return around


def _answer(looks: Looks, asked: dict[str, list[Need]], row: Any) -> None:
    answers = looks.answers
    for kind in ("step", "key", "event", "event_at"):
        answers.update((need, None) for need in asked[kind])
    answers.update((need, []) for need in asked["children"])
    for step in decode_steps(row["steps"] or "[]"):
        answers["step", step.run_id, step.generation, step.path] = step
    for key in decode_keys(row["keys"] or "[]"):
        answers["key", key.scope, key.key] = key
    for event in decode_events(row["events"] or "[]"):
        answers["event", event.event_id] = event
        answers["event_at", event.position] = event
        if event.position in looks.known.fan_outs:
            looks.known.fan_out_events[event.position] = event
    for parent_id, run_id in decode_pairs(row["children"] or "[]"):
        answers["children", parent_id].append(run_id)
    answers.update(
        zip(asked["watching"], _decode_watcher_lists(row["watching"] or "[]"), strict=True)
    )
    items = _decode_item_lists(row["items"] or "[]")
    takers = _decode_watcher_lists(row["takers"] or "[]")
    for need, part, waiting in zip(asked["queue"], items, takers, strict=True):
        answers[need] = (part, waiting)


def _listed(pools: tuple[str, ...] | None) -> list[str] | None:
    return None if pools is None else list(pools)


def _names(needs: list[Need]) -> list[Any] | None:
    return [one[1] for one in needs] or None


def _rows(needs: list[Need], *names: str) -> str | None:
    return as_json(dict(zip(names, one[1:], strict=True)) for one in needs)


def _fill(found: dict[str, Slice], row: Any) -> None:
    """What belongs to the runs."""
    for kept in found.values():
        kept.watchers, kept.signals, kept.cursors, kept.on_run = {}, {}, {}, {}
    for watcher in decode_watchers(row["watchers"]):
        watchers = found[watcher.run_id].watchers
        assert watchers is not None
        watchers[watcher.path, watcher.ix] = watcher
    for signal in decode_signals(row["signals"]):
        signals = found[signal.run_id].signals
        assert signals is not None
        signals[signal.signal_id] = signal
    for cursor in decode_cursors(row["cursors"]):
        cursors = found[cursor.run_id].cursors
        assert cursors is not None
        cursors[cursor.branch, cursor.topic, cursor.entity, cursor.filter] = cursor
    for step in decode_steps(row["unfinished"]):
        found[step.run_id].steps[step.path] = step
