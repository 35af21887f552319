"""Everything that the reads of a store show, as plain data: two stores with equal dumps are the same to any reader.

`normal` takes out what two right stores may number differently: sequence numbers keep their order only, and ids that
the store made itself are named by their first appearance on the ledger.
"""

import re
from typing import Any

import msgspec

from perdure.model.records import StreamSpan
from perdure.store.base import Store
from perdure.testing.conformance.driver import all_runs, everything

_ulid = re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b")
_seq = re.compile(r'"seq":\d+')
_item = re.compile(r'"item":\[\d+,')
_every_row = 1000

Dump = dict[str, Any]


async def dump(store: Store) -> Dump:
    """What the store holds, read through its contract only."""
    runs = sorted(await all_runs(store), key=lambda one: one.run_id)
    counts = await store.counts()
    # How long a dead worker's row is kept is the store's own affair.
    counts.pop("workers", None)
    return {
        "events": msgspec.to_builtins(await everything(store.events)),
        "runs": msgspec.to_builtins(runs),
        "steps": {one.run_id: msgspec.to_builtins(await store.history(one.run_id)) for one in runs},
        "loaded": {
            run.run_id: sorted(step.path for step in steps)
            for run, steps in await store.load([one.run_id for one in runs])
        },
        "watchers": {
            one.run_id: msgspec.to_builtins(await store.waiting(one.run_id)) for one in runs
        },
        "signals": {
            one.run_id: msgspec.to_builtins(await store.buffered(one.run_id)) for one in runs
        },
        "streams": {
            one.run_id: [await _stream(store, one.run_id, span) for span in spans]
            for one in runs
            if (spans := await store.streams(one.run_id))
        },
        "dead_letters": msgspec.to_builtins(await store.dead_letters(None, "", _every_row)),
        "catalogue": msgspec.to_builtins(await store.catalogue()),
        "channels": msgspec.to_builtins(await store.channels()),
        "span": list(await store.span()),
        "topic_watchers": await _topic_watchers(store, [one.run_id for one in runs]),
        "matches": msgspec.to_builtins(await store.matches(None, _every_row)),
        "approvals": msgspec.to_builtins(await store.approvals(None, _every_row)),
        "queues": {queue: await _items(store, queue) for queue in await store.queues()},
        "outbox": msgspec.to_builtins(await store.outbox("", _every_row)),
        "consumers": msgspec.to_builtins(await store.consumers()),
        "subscriptions": msgspec.to_builtins(await store.subscriptions()),
        "parked": msgspec.to_builtins(await store.parked(None, None, _every_row)),
        "deferred": msgspec.to_builtins(await store.deferred(None, _every_row)),
        "schedules": msgspec.to_builtins(await store.schedules("", _every_row)),
        "pools": msgspec.to_builtins(await store.pools()),
        "lines": msgspec.to_builtins(await store.lines()),
        "due": await _due(store),
        "counts": {name: count for name, count in counts.items() if count},
    }


async def _due(store: Store) -> list[Any]:
    look = await store.look()
    return [look.deadline_at, look.ready_at, look.fan_out, look.schedule_at]


async def _topic_watchers(store: Store, run_ids: list[str]) -> Dump:
    """Who waits for each topic, longest waiting first."""
    watchers = [one for run_id in run_ids for one in await store.waiting(run_id)]
    topics = sorted({one.target for one in watchers if one.kind in ("topic", "match")})
    return {
        topic: [(one.run_id, one.path, one.ix) for one in page]
        for topic in topics
        if (page := await store.topic_watchers(topic, None, _every_row))
    }


async def _items(store: Store, queue: str) -> list[Any]:
    """What is in a queue; their order says all that their positions do."""
    items = await store.queue_items(queue, 0, _every_row)
    return [[one.item_id, one.payload, one.put_at] for one in items]


async def _stream(store: Store, run_id: str, span: StreamSpan) -> list[Any]:
    """Where a stream begins and ends, and what is in it."""
    rows = await store.stream_items(run_id, span.stream, 0, _every_row)
    return [msgspec.to_builtins(span), *msgspec.to_builtins(rows)]


def normal(found: Dump) -> Dump:
    """The dump with sequence numbers as ranks within their run and the store's own ids as ordinals."""
    ranks = {run_id: _rank(found, run_id) for run_id in found["steps"]}
    ranked = {
        **found,
        "steps": {
            run_id: [_ranked_step(one, ranks[run_id]) for one in rows]
            for run_id, rows in found["steps"].items()
        },
        "signals": {
            run_id: [{**one, "position": ranks[run_id][one["position"]]} for one in rows]
            for run_id, rows in found["signals"].items()
        },
    }
    named: Dump = renamed(ranked)
    return named


def _rank(found: Dump, run_id: str) -> dict[int, int]:
    """What the numbers of one run mean: those of two runs are in no order."""
    numbers = {one["seq"] for one in found["steps"][run_id]} | {0}
    numbers |= {one["position"] for one in found["signals"][run_id]}
    return {number: at for at, number in enumerate(sorted(numbers))}


def _ranked_step(step: dict[str, Any], rank: dict[int, int]) -> dict[str, Any]:
    ranked = {**step, "seq": rank[step["seq"]]}
    # Of the item it took only the time: if it comes back its queue shows the rest.
    if step["wait"] is not None:
        ranked["wait"] = _item.sub('"item":[0,', step["wait"])
    if step["kind"] == "retry":  # its value is the sequence number from where on it counts
        ranked["value"] = rank.get(int(step["value"]), "gone")
    return ranked


def comparable(outcome: Any) -> Any:
    """An answer, or wakes, as plain data without what two right stores may number differently."""
    text = msgspec.json.encode(outcome).decode()
    return renamed(msgspec.json.decode(_seq.sub('"seq":0', text)))


def renamed(found: Any) -> Any:
    """The same data with every ULID named by its first appearance."""
    names: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"id-{len(names):04}")

    return msgspec.json.decode(_ulid.sub(name, msgspec.json.encode(found).decode()))
