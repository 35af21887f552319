"""Every key of a namespace on Redis, made anew from its rows: `drift` lists where what is there differs.

Written from the description in store/redis/layout.py, not from the code that keeps the indexes. Members that nobody
needs any more would never be found by a read, and would fill the memory: so all keys are looked at, and those that
nothing accounts for are drift as well.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
import redis

from perdure.model.records import (
    OutboxRecord,
    RunRecord,
    SignalRecord,
    WatcherRecord,
    entity_text,
)
from perdure.model.status import LIVE
from perdure.store.redis import fetching
from perdure.store.redis.layout import SEP, Layout, is_indexed, line_member, moment, place
from perdure.store.redis.rows import (
    RUN_FIELDS,
    decode_event,
    decode_key,
    decode_run,
    decode_stream,
    decode_watcher,
)

# Kept as they are: nothing leads to them.
_plain = frozenset(
    "meta head units counts commits commits:age alone consumers subscriptions pools workers workflows channels".split()
)


def drift(client: "redis.Redis[bytes]", layout: Layout) -> list[str]:
    """What differs, as lines; nothing may be written meanwhile."""
    return list(_Namespace(client, layout).drift())


class _Namespace:
    def __init__(self, client: Any, layout: Layout) -> None:
        prefix = layout.prefix
        keys = [one for one in client.scan_iter(count=1000) if one.startswith(prefix.encode())]
        self.there = {one.decode()[len(prefix) :]: _value(client, one) for one in keys}
        self.made: dict[str, dict[str, float]] = defaultdict(dict)
        self.counts: Counter[str] = Counter()
        self.rows: set[str] = set(_plain)  # keys of rows that something accounts for
        self.wrong: list[str] = []

    def drift(self) -> Iterator[str]:
        for make in (self._runs, self._ledger, self._queues, self._rest):
            make()
        yield from self.wrong
        for key, value in sorted(self.there.items()):
            if key in self.rows:
                continue
            found = {one: 0.0 for one in value} if isinstance(value, set) else value
            if not isinstance(found, dict) or found != self.made.get(key):
                yield f"{key!r} holds {found!r}, and should hold {self.made.get(key)!r}"
        for key in self.made.keys() - self.there.keys():
            yield f"{key!r} is not there, and should hold {self.made[key]!r}"
        counted = {name: int(n) for name, n in self.there.get("counts", {}).items() if int(n)}
        expected = {name: n for name, n in self.counts.items() if n}
        if counted != expected:
            yield f"counts are {counted}, and should be {expected}"

    def _put(self, key: str, member: str, score: float = 0) -> None:
        self.made[key][member] = score

    def _all(self, key: str, table: str | None = None) -> dict[str, bytes]:
        """The rows of a hash."""
        self.rows.add(key)
        found: dict[str, bytes] = self.there.get(key, {})
        self.counts[table or key] += len(found)
        return found

    # --- runs ---

    def _runs(self) -> None:
        runs = [one.removeprefix("run:") for one in self.there if one.startswith("run:")]
        for run_id in runs:
            fields = self.there[f"run:{run_id}"]
            row = [run_id.encode(), *(fields.get(one) for one in RUN_FIELDS)]
            found = decode_run(row)
            assert found is not None, run_id
            self._run(found[0].run, fields)
        del self.counts[""]

    def _run(self, run: RunRecord, fields: dict[str, bytes]) -> None:
        run_id, member = run.run_id, moment(run.created_at) + run.run_id
        self.rows.add(f"run:{run_id}")
        made_at, generation, _ = fields["made"].decode().split(":")
        if made_at != moment(run.created_at):
            self.wrong.append(f"run {run_id!r} was made at two times")
        if int(generation) != run.generation:
            self.wrong.append(f"run {run_id!r} is of two generations")
        for key in _listings(run):
            self._put(key, member)
        if run.root_id is not None:
            self._put(f"root:{run.root_id}", run_id)
        if run.parent_run_id is not None and run.status in LIVE:
            self._put(f"children:{run.parent_run_id}", run_id)
        if run.finished_at is not None:
            self._put("runs:finished", moment(run.finished_at) + run_id)
        self._owner(run)
        self._pool(run)
        self._inside(run, fields)

    def _owner(self, run: RunRecord) -> None:
        owner = run.owner or ""
        if run.status == "running":
            self._put(f"owned:{owner}", run.run_id)
            self._put("owners", owner)
        if owner:
            self._put(f"held:{owner}", run.run_id)
        if run.ready_at is not None:
            name = f"{run.workflow}:{run.version}"
            part = f"{run.pool}{SEP}{name}" if run.pool else name
            self._put(f"ready:{part}", moment(run.ready_at) + run.run_id)
            self._put("ready_names", part)

    def _pool(self, run: RunRecord) -> None:
        shared = f"{run.pool}{SEP}{run.pool_key}"
        if run.line_at is not None:
            self._put(f"line:{shared}", line_member(run, run.line_at, run.admitted))
            self._put(f"line_age:{run.pool}", moment(run.line_at) + run.run_id)
            self._put(f"line_keys:{run.pool}", run.pool_key)
            self._put("lines", run.pool)
            if run.admitted:
                self._put(f"begun:{run.pool}", run.run_id)
        elif run.pool and run.status in ("ready", "running"):
            self._put(f"slots:{run.pool}", run.run_id)
            self._put(f"slots:{shared}", run.run_id)

    def _inside(self, run: RunRecord, fields: dict[str, bytes]) -> None:
        run_id = run.run_id
        for field, row in self._all(f"waits:{run_id}", "watchers").items():
            self._watcher(decode_watcher(row), field)
        for row in self._all(f"signals:{run_id}", "signals").values():
            self._signal(fetching.decode_signal(row))
        self._all(f"cursors:{run_id}", "cursors")
        for name, value in self._all(f"streams:{run_id}", "streams").items():
            self._stream(f"stream:{run_id}{SEP}{name}", decode_stream(run_id, b"", value).last)
        for row in self._all(f"open:{run_id}", "steps").values():
            if fetching.decode_step(row).state not in ("open", "retrying"):
                self.wrong.append(f"run {run_id!r} has a decided step among the others: {row!r}")
        for generation in range(int(fields.get("kept", 0)), run.generation + 1):
            steps = self._all(f"steps:{run_id}:{generation}", "steps")
            self.counts["steps"] -= "!seq" in steps

    def _watcher(self, watcher: WatcherRecord, field: str) -> None:
        at = f"{watcher.run_id}{SEP}{field}"
        member = moment(watcher.opened_at) + at
        if watcher.target:
            self._put(f"watch:{watcher.kind}:{watcher.target}", member)
        if watcher.kind == "topic":
            self._put(f"watch:about:{watcher.target}{SEP}{watcher.entity}", member)
        if watcher.kind == "match":
            self._put("matches", SEP.join((watcher.target, watcher.entity, member)))
        if watcher.kind == "approval":
            self._put("approvals", member)
        if watcher.deadline_at is not None and not watcher.held:
            self._put("deadlines", moment(watcher.deadline_at) + at)

    def _signal(self, signal: SignalRecord) -> None:
        self.made["signal_ids"][signal.signal_id] = signal.run_id  # type: ignore[assignment]
        if signal.expires_at is not None:
            at = moment(signal.expires_at) + place(signal.position)
            self._put("expiries", SEP.join((at, signal.run_id, signal.signal_id)))

    def _stream(self, key: str, last: int) -> None:
        """What is kept of it, to its very end and without a gap."""
        kept = len(self.there.get(key, {}))
        self.counts["stream_items"] += kept
        for position in range(last - kept + 1, last + 1):
            self._put(key, str(position))

    # --- the ledger ---

    def _ledger(self) -> None:
        self.rows |= {"events", "event_ids"}
        found = [decode_event(one) for one in self.there.get("events", [])]
        self.counts["events"] = len(found)
        ids = {one.event_id: str(one.position).encode() for one in found}
        if ids != self.there.get("event_ids", {}):
            self.wrong.append(f"event_ids are {self.there.get('event_ids')}, not {ids}")
        last = int(self.there.get("head", {}).get("position", 0))
        if last != max((one.position for one in found), default=0):
            self.wrong.append(f"the ledger ends at {last}")
        for event in found:
            position, about = event.position, entity_text(event.entity_type, event.entity_id)
            member = moment(event.occurred_at) + place(position)
            self._put(f"type:{event.type}", str(position))
            self._put("times", member)
            if about:
                self._put("timelines", about + SEP + member)
                if is_indexed(event.type, about):
                    repeated = "1" if event.repeated else "0"
                    of_topic = f"topic:{event.type}{SEP}{about}"
                    self._put(of_topic, f"{repeated}{position}", position)
                    self._put(f"entity:{about}", str(position), position)
        for position in self._all("fan_outs"):
            if int(position) not in {one.position for one in found}:
                self.wrong.append(f"no event at {position}, and it is on its way to runs")

    # --- queues, keys, letters ---

    def _queues(self) -> None:
        for row in self._all("items", "queue_items").values():
            item = fetching.decode_item(row)
            self._put(f"queue:{item.queue}", place(item.position) + item.item_id)
            self._put("queues", item.queue)
        for field, row in self._all("keys").items():
            key = decode_key(row)
            if key.run_id is not None:
                self._put(f"keys_of:{key.run_id}", field)
            if key.expires_at is not None:
                self._put("keys:expiry", moment(key.expires_at) + field)
        for at, row in self._all("letters", "dead_letters").items():
            self._put("letters:all", at)
            self._put(f"letters:of:{fetching.decode_letter(row).run_id}", at)

    # --- all else ---

    def _rest(self) -> None:
        for name, row in self._all("schedules").items():
            schedule = fetching.decode_schedule(row)
            self._put("schedules:all", name)
            if schedule.due_at is not None:
                self._put("schedules:due", moment(schedule.due_at) + name)
                self._put(f"due:{schedule.workflow}", moment(schedule.due_at) + name)
        for at, row in self._all("parked").items():
            self._put("parked:all", at)
            self._put("parked:age", place(fetching.decode_parked(row).position) + SEP + at)
        for at, row in self._all("deferred").items():
            self._put("deferred:all", at)
            self._put(f"deferred:of:{fetching.decode_deferred(row).subscription}", at)
        outbox = self._all("outbox")
        del self.counts["outbox"]
        for at, row in outbox.items():
            assert msgspec.json.decode(row, type=OutboxRecord).outbox_id == at
            self._put("outbox:all", at)
        for table in ("consumers", "subscriptions", "pools", "workers", "workflows", "channels"):
            self._all(table)
        aged = {one[18:] for one in self.there.get("commits:age", {})}
        if aged != self.there.get("commits", {}).keys():
            self.wrong.append("commits are not those by age")


def _listings(run: RunRecord) -> Iterator[str]:
    yield "runs"
    yield f"runs:status:{run.status}"
    yield f"runs:workflow:{run.workflow}"
    if run.entity_type is not None:
        yield f"runs:entity:{entity_text(run.entity_type, run.entity_id)}"
    if run.parent_run_id is not None:
        yield f"runs:parent:{run.parent_run_id}"
    for name, value in msgspec.json.decode(run.tags or "{}").items():
        yield f"runs:tag:{name}"
        yield f"runs:tag:{name}{SEP}{value}"


def _value(client: Any, key: bytes) -> Any:
    """What is under a key: hashes with their values, zsets with their scores, of a stream of positions these."""
    match client.type(key):
        case b"hash":
            values = {at.decode(): one for at, one in client.hgetall(key).items()}
            if key.endswith(b":signal_ids"):
                return {at: one.decode() for at, one in values.items()}
            return values
        case b"zset":
            return {
                one.decode(): score for one, score in client.zrange(key, 0, -1, withscores=True)
            }
        case b"set":
            return {one.decode() for one in client.smembers(key)}
        case b"stream":
            entries = client.execute_command("XRANGE", key, "-", "+")
            if key.endswith(b":events"):
                return [
                    [at, [part for pair in row.items() for part in pair]] for at, row in entries
                ]
            return {at.decode().partition("-")[0]: 0.0 for at, _ in entries}
        case other:
            return other
