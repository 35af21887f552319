"""Needs to questions, and the answers back to what is known: all of them in one call (lua/ask.lua)."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from perdure.model import limits
from perdure.model.records import (
    RUNNER,
    ChannelRecord,
    ConsumerRecord,
    DeadLetterRecord,
    DeferredRecord,
    EventRecord,
    ItemRecord,
    ParkedRecord,
    PoolRecord,
    ScheduleRecord,
    SignalRecord,
    StepRecord,
    SubscriptionRecord,
    WatcherRecord,
    WorkflowRecord,
)
from perdure.store.optimistic.known import Slice, Topic
from perdure.store.optimistic.needs import Looks, Need, units_of
from perdure.store.optimistic.wait_rows import by_age
from perdure.store.redis import rows
from perdure.store.redis.layout import (
    LAST,
    SEP,
    Layout,
    is_indexed,
    moment,
    place,
    ready_part,
    time_of,
)
from perdure.store.redis.rows import decode_event, decode_key, decode_run, decode_watcher, pairs

Question = tuple[Any, ...]
Answer = Any


class Reply(msgspec.Struct, gc=False):
    """What the script says."""

    clock: int
    head: int
    commits: int
    answers: list[Any]
    insides: list[Any]


Ask = Callable[[Sequence[Question]], Awaitable[Reply]]

# Rows that all walks of one call may look at: some milliseconds, in which the server does nothing else.
looked_max = 1000
# The limit of a walk that goes to the end.
EVERY: Final = 2**31


def walk(name: str, limit: int, *arguments: Any) -> Question:
    """A question that may pass over any number of rows: a walk of lua/ask.lua, from its beginning."""
    return ("walk", name, limit, (), *arguments)


class _Walk:
    """A walk that is asked again until it is at its end, or has found enough."""

    def __init__(self, question: Question) -> None:
        _, self._name, self._limit, self._places, *self._arguments = question
        self.found: list[Any] = []

    def take(self, answer: Any) -> None:
        found, places = answer
        self.found += found
        self._places = [one.decode() if isinstance(one, bytes) else one for one in places]

    @property
    def goes_on(self) -> bool:
        return bool(self._places) and len(self.found) < self._limit

    def question(self) -> Question:
        left = self._limit - len(self.found)
        return ("walk", self._name, left, self._places, *self._arguments)


async def answered(ask: Ask, questions: Sequence[Question]) -> Reply:
    """The answers to questions, those to walks whole: their ends are of a later moment than all else.

    That does no harm to a decision: who waits, what is in a queue or stands in a line, and where the newest event of a
    topic is, it rests on by a version that was read no later.
    """
    reply = await ask(questions)
    walks = {nth: _Walk(one) for nth, one in enumerate(questions) if one[0] == "walk"}
    for nth, one in walks.items():
        one.take(reply.answers[nth])
        reply.answers[nth] = one.found
    while going := [one for one in walks.values() if one.goes_on]:
        more = await ask([one.question() for one in going])
        reply.insides += more.insides
        for one, answer in zip(going, more.answers, strict=True):
            one.take(answer)
    return reply


decode_step = msgspec.json.Decoder(StepRecord).decode
decode_signal = msgspec.json.Decoder(SignalRecord).decode
_decode_item = msgspec.json.Decoder(ItemRecord).decode
decode_letter = msgspec.json.Decoder(DeadLetterRecord).decode
decode_consumer = msgspec.json.Decoder(ConsumerRecord).decode
decode_subscription = msgspec.json.Decoder(SubscriptionRecord).decode
decode_schedule = msgspec.json.Decoder(ScheduleRecord).decode
_decode_parked = msgspec.json.Decoder(ParkedRecord).decode
_decode_deferred = msgspec.json.Decoder(DeferredRecord).decode
decode_pool = msgspec.json.Decoder(PoolRecord).decode
decode_workflow = msgspec.json.Decoder(WorkflowRecord).decode
decode_channel = msgspec.json.Decoder(ChannelRecord).decode


def decode_item(value: bytes) -> ItemRecord:
    return _decode_item(rows.without_age(value))


def decode_parked(value: bytes) -> ParkedRecord:
    return _decode_parked(rows.without_age(value))


def decode_deferred(value: bytes) -> DeferredRecord:
    return _decode_deferred(rows.without_age(value))


def workflow_names(workflows: Iterable[tuple[str, int]]) -> list[str]:
    """As the index of runs that may be claimed is named."""
    return [f"{name}:{version}" for name, version in dict.fromkeys(workflows)]


def _served(pools: Sequence[str] | None) -> list[str] | bool:
    """Pools to be served, for a script: False for all."""
    return False if pools is None else list(pools)


def next_event(
    topic: str, entity: str, after: int, recorded_by: int | None, newest: bool, repeats: bool
) -> Question:
    """The first event of a topic after a place, or the newest; see `best_event`."""
    by = -1 if recorded_by is None else recorded_by
    if is_indexed(topic, entity):
        return walk("next_event", 1, topic, entity, after, by, newest, repeats)
    return walk("next_fact", EVERY, topic, entity, after, by, newest)


def best_event(found: Iterable[Any], *, newest: bool) -> EventRecord | None:
    """Of those that the parts of a walk have found."""
    events = sorted(map(decode_event, found), key=lambda one: one.position, reverse=newest)
    return next(iter(events), None)


class Fetcher:
    """Looks needs up: each becomes a question or two, and takes the answers to them."""

    def __init__(
        self, layout: Layout, now: Callable[[], int], who: Callable[[], str | None]
    ) -> None:
        self._layout = layout
        self._now = now
        self._who = who  # asks: the worker of this process

    async def fetch(self, ask: Ask, looks: Looks, needs: Iterable[Need]) -> None:
        """Leave what was asked for among what is known and the answers."""
        asked = list(needs)
        units = sorted({unit for need in asked for unit in units_of(need)})
        names = [f"{kind}{SEP}{name}" for kind, name in units]
        questions: list[Question] = []
        if names:
            questions.append(("units", names))
        places = []
        for need in asked:
            mine = self._questions(need)
            places.append((need, len(questions), len(mine)))
            questions += mine
        reply = await ask(questions)
        looks.known.head = max(looks.known.head, reply.head)
        if names:
            for unit, version in zip(units, reply.answers[0], strict=True):
                looks.learn_unit(unit, int(version))
        learn_insides(looks, reply.insides)
        for need, begin, count in places:
            self._learn(looks, need, reply.answers[begin : begin + count])

    # --- what is asked ---

    def _questions(self, need: Need) -> list[Question]:
        kind, *args = need
        key = self._layout.key
        match kind:
            case "run" | "inside" | "event":
                return [(kind, args[0])]
            case "on_run":
                return [("on_run", args[0]), ("run", args[0])]
            case "children":
                return [("children", args[0]), ("run", args[0])]
            case "streams":
                return [("HGETALL", key("streams", args[0])), ("run", args[0])]
            case "step":
                run_id, generation, path = args
                return [
                    ("HGET", key("open", run_id), rows.open_field(generation, path)),
                    ("HGET", key("steps", run_id, str(generation)), f"0:{path}"),
                    ("run", run_id),
                ]
            case "steps":
                run_id, generation = args
                return [
                    ("HVALS", key("open", run_id)),
                    ("decided", run_id, str(generation)),
                    ("run", run_id),
                ]
            case "key":
                return [("HGET", key("keys"), rows.key_field(*args))]
            case "letter":
                return [("HGET", key("letters"), args[0])]
            case "letters":
                return [
                    ("page", f"letters:of:{args[0]}", "letters", 0, "-", "+", -1),
                    ("run", args[0]),
                ]
            case "topic" | "queue" | "event_at" | "position_at" | "deadlines" | "expiries":
                return [(kind, *args)]
            case "watching":
                topic, entity, position, recorded_at, limit = args
                return [
                    walk("watching", limit, topic, about, position, recorded_at)
                    for about in dict.fromkeys(("", entity))
                ]
            case "items":
                queue, put_before, limit = args
                if put_before is None:
                    return [("items", queue, "-", limit)]
                return [walk("items_before", limit, queue, put_before)]
            case "next_event":
                return [next_event(*args)]
            case "first_position":
                return [("first",)]
            case "fan_outs":
                return [("HKEYS", key("fan_outs"))]
            case _:
                return self._seldom(need)

    def _seldom(self, need: Need) -> list[Question]:
        kind, *args = need
        key = self._layout.key
        match kind:
            case "unit":
                return []
            case "orphans":
                gone, limit = args
                return [("orphans", self._now(), self._who() or "", list(gone), limit)]
            case "ready":
                known, pools, now, limit = args
                return [("ready", workflow_names(known), _served(pools), moment(now), limit)]
            case "ready_later":
                known, pools, now = args
                return [("ready_later", workflow_names(known), _served(pools), moment(now))]
            case "pool":
                return [("HGET", key("pools"), args[0])]
            case "slots":
                pool, of = args
                return [("ZCARD", key("slots", pool if of is None else f"{pool}{SEP}{of}"))]
            case "line_keys":
                pool, after, known, begun, now, limit = args
                begin = "-" if after is None else f"({after}"
                names = workflow_names(known)
                return [walk("line_keys", limit, pool, begin, names, begun, moment(now))]
            case "line_runs":
                pool, of, known, begun, now, limit = args
                names = workflow_names(known)
                return [walk("line_runs", limit, pool, of, names, begun, moment(now))]
            case "idle_slots":
                pool, known, now, since, limit = args
                names = [ready_part(pool, *one) for one in known]
                return [("idle_slots", pool, names, moment(now), moment(since), limit)]
            case "finished":
                return [walk("finished", args[1], moment(args[0]))]
            case "expired_keys":
                return [
                    ("expired_keys", moment(self._now()), args[0], limits.expired_keys_bytes_max)
                ]
            case "started_under":
                return [("SCARD", key("root", args[0]))]
            case "consumer":
                return [("HGET", key("consumers"), args[0])]
            case "consumers":
                return [("HVALS", key("consumers"))]
            case "subscription":
                return [("HGET", key("subscriptions"), args[0])]
            case "schedule":
                return [("HGET", key("schedules"), args[0])]
            case "schedules_due":
                workflows, now, limit = args
                return [("due", list(workflows), f"({moment(now)}{LAST}", limit)]
            case "schedules_next":
                return [("due", list(args[0]), "+", args[1])]
            case "parked":
                consumer, position, subscription = args
                return [
                    ("HGET", key("parked"), SEP.join((consumer, place(position), subscription)))
                ]
            case "deferred":
                return [("HGET", key("deferred"), place(args[0]) + args[1])]
            case "oldest_needed":
                return [
                    walk("first_since", 1, "parked:age", "parked", 17, args[0]),
                    walk("first_since", 1, "deferred:all", "deferred", 0, args[0]),
                    ("HVALS", key("subscriptions")),
                    ("HGET", key("consumers"), RUNNER),
                ]
            case "workers":
                return [("HGETALL", key("workers"))]
            case "workflow":
                return [("HGET", key("workflows"), f"{args[0]}{SEP}{args[1]:06d}")]
            case "channel":
                return [("HGET", key("channels"), f"{args[0]}{SEP}{args[1]}")]
            case "outbox":
                return [("HEXISTS", key("outbox"), args[0])]
            case _:
                raise AssertionError(f"nobody knows how to look up {need!r}")

    # --- what is learnt ---

    def _learn(self, looks: Looks, need: Need, answers: list[Answer]) -> None:
        kind, *args = need
        if kind in _about_a_run:
            self._learn_of_run(looks, need, answers)
            return
        known = looks.known
        match kind:
            case "unit":
                pass
            case "topic":
                version, watched, newest = answers[0]
                looks.learn_unit(("topic", args[0]), int(version))
                known.topics[args[0]] = Topic(int(version), bool(watched), int(newest))
            case "workflow":
                known.workflows[args[0], args[1]] = _one(decode_workflow, answers[0])
            case "channel":
                known.channels[args[0], args[1]] = _one(decode_channel, answers[0])
            case "pool":
                known.pools[args[0]] = _one(decode_pool, answers[0])
            case "fan_outs":
                known.put_fan_outs(sorted(map(int, answers[0])))
            case "event" | "event_at":
                looks.answers[need] = found = _one(decode_event, answers[0])
                if found is not None and found.position in known.fan_outs:
                    known.fan_out_events[found.position] = found
            case _:
                looks.answers[need] = _answer(need, answers)

    def _learn_of_run(self, looks: Looks, need: Need, answers: list[Answer]) -> None:
        kind, run_id, *args = need
        if kind == "inside":
            return  # among the insides, unless there is no such run
        learn_run(looks, answers[-1])
        match kind:
            case "on_run":
                kept = looks.known.runs.get(run_id)
                if kept is not None:
                    kept.on_run = _by_place(map(decode_watcher, answers[0]))
            case "streams":
                kept = looks.known.runs.get(run_id)
                if kept is not None:
                    streams = (rows.decode_stream(run_id, *one) for one in pairs(answers[0]))
                    kept.streams = {one.stream: one for one in streams}
            case "children":
                looks.answers[need] = [one.decode() for one in answers[0]]
            case "step":
                looks.answers[need] = _one(decode_step, answers[0] or answers[1])
            case "steps":
                found = (decode_step(one) for one in (*answers[0], *answers[1]))
                looks.answers[need] = [one for one in found if one.generation == args[0]]
            case "letters":
                looks.answers[need] = list(map(decode_letter, answers[0]))


_about_a_run = frozenset(
    {"run", "inside", "on_run", "children", "streams", "step", "steps", "letters"}
)


def _answer(need: Need, answers: list[Answer]) -> Any:
    """The answer to a need that is about nothing remembered."""
    found = answers[0]
    match need[0]:
        case "key":
            return _one(decode_key, found)
        case "letter":
            return _one(decode_letter, found)
        case "deadlines":
            return list(map(decode_watcher, found))
        case "watching":
            waiting = sorted((decode_watcher(row) for one in answers for row in one), key=by_age)
            return waiting[: need[-1]]
        case "queue":
            items, waiting = found
            return list(map(decode_item, items)), list(map(decode_watcher, waiting))
        case "items":
            return list(map(decode_item, found))
        case "expiries":
            return list(map(decode_signal, found))
        case "next_event":
            return best_event(found, newest=need[5])
        case "first_position" | "position_at":
            return int(found)
        case "orphans" | "ready" | "ready_later" | "finished" | "line_runs" | "idle_slots":
            return [one.decode() for one in found]
        case "line_keys":
            return [(one.decode(), taken) for one, taken in found]
        case "slots":
            return found
        case "expired_keys":
            return list(map(decode_key, found))
        case "started_under":
            return min(found, need[2])
        case "consumer":
            return _one(decode_consumer, found)
        case "consumers":
            return sorted(map(decode_consumer, found), key=lambda one: one.name)
        case "subscription":
            return _one(decode_subscription, found)
        case "schedule":
            return _one(decode_schedule, found)
        case "schedules_due" | "schedules_next":
            due = [one.decode() for one in found]
            return [(time_of(one), one[18:]) for one in due]
        case "parked":
            return _one(decode_parked, found)
        case "deferred":
            return _one(decode_deferred, found)
        case "oldest_needed":
            return _oldest_needed(need[1], answers)
        case "workers":
            return [rows.decode_worker(*one) for one in pairs(found)]
        case "outbox":
            return bool(found)
        case _:
            raise AssertionError(f"nobody knows how to read {need!r}")


def _oldest_needed(idle_before: int, answers: list[Answer]) -> tuple[int, str] | None:
    """The first event that a parked or deferred row of some age still needs, or a rule that has to catch up with it."""
    parked, deferred, rules, runner = answers
    needed = [(one.position, one.consumer) for one in map(decode_parked, parked)]
    needed += [(one.position, one.subscription) for one in map(decode_deferred, deferred)]
    reader = _one(decode_consumer, runner)
    for rule in map(decode_subscription, rules):
        moved_at = max(rule.created_at, reader.advanced_at if reader else rule.created_at)
        if rule.behind is not None and rule.enabled and moved_at >= idle_before:
            needed.append((rule.behind + 1, rule.name))
    return min(needed, default=None)


def learn_run(looks: Looks, row: Sequence[bytes | None]) -> Slice | None:
    """A run alone, or that there is none."""
    found = decode_run(row)
    if found is None:
        assert row[0] is not None
        looks.learn_none(row[0].decode())
        return None
    kept, seq = found
    looks.known.seq = max(looks.known.seq, seq)
    looks.learn_run(kept)
    return kept


def learn_insides(looks: Looks, insides: Iterable[Any]) -> None:
    """Runs with all that belongs to them."""
    for row, waits, signals, cursors, unfinished, on_run in insides:
        found = decode_run(row)
        if found is None:
            looks.learn_none(row[0].decode())
            continue
        kept, seq = found
        run = kept.run
        kept.watchers = {(one.path, one.ix): one for one in map(decode_watcher, waits)}
        # Most runs have little of all else.
        kept.signals, kept.cursors, kept.on_run = {}, {}, {}
        if signals:
            kept.signals = {one.signal_id: one for one in map(decode_signal, signals)}
        if cursors:
            places = (rows.decode_cursor(run.run_id, *one) for one in pairs(cursors))
            kept.cursors = {(one.branch, one.topic, one.entity, one.filter): one for one in places}
        if unfinished:
            steps = map(decode_step, unfinished)
            kept.steps = {one.path: one for one in steps if one.generation == run.generation}
        if on_run:
            kept.on_run = _by_place(map(decode_watcher, on_run))
        looks.known.seq = max(looks.known.seq, seq)
        looks.learn_run(kept)


def _by_place(watchers: Iterable[WatcherRecord]) -> dict[tuple[str, str, int], WatcherRecord]:
    return {(one.run_id, one.path, one.ix): one for one in watchers}


def _one(decode: Callable[[Any], Any], found: Any) -> Any:
    """The one that was asked for, if it is there."""
    return None if found is None else decode(found)
