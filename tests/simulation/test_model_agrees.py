"""The memory store is the oracle: random ops give the same answers and the same rows on SQLite, Postgres and Redis.

One test drives the stores side by side, op by op, with clock jumps, crashes and a failing batch thrown in, and
holds them to the invariants after each. The others take what was planned that way and apply it fused, as one batch:
answers and rows must be those of the ops one by one.

Moves are planned against the memory store, the way an engine that read its rows would act: turn ops name the fence
and revision of the run (or stale ones, on purpose), waits that are open are opened again as known.
"""

import asyncio
import functools
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec.structs import replace
from redis.asyncio import Redis
from servers.namespaces import Namespaces
from servers.postgres import PostgresAddress
from servers.redis_indexes import drift
from servers.valkey import ValkeyAddress, new_namespace

from perdure.approvals import with_id
from perdure.model import limits, ops
from perdure.model.approvals import decode_asks
from perdure.model.ids import Ids
from perdure.model.keys import consumer_scope
from perdure.model.outbox import decode_send, encode_send
from perdure.model.pools import checked_limits, encode_limits
from perdure.model.records import (
    CANCEL_PATH,
    RUNNER,
    ChannelRecord,
    Condition,
    DeferredRecord,
    OutboxRecord,
    ParkedRecord,
    RunRecord,
    ScheduleRecord,
    StepRecord,
    SubscriptionRecord,
    WaitSpec,
)
from perdure.model.status import LIVE
from perdure.model.ticks import parse_every
from perdure.store.base import Applied, BatchFailed, RunFilter, Store
from perdure.store.memory import MemoryStore
from perdure.store.postgres.store import PostgresStore
from perdure.store.redis.layout import Layout
from perdure.store.redis.store import RedisStore
from perdure.store.sqlite.loading import LoadedRows
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.worker_rows import WorkerRows
from perdure.store.tables import Tables
from perdure.testing import VirtualClock
from perdure.testing.conformance import check_invariants, comparable, dump, normal
from perdure.testing.conformance.driver import everything
from perdure.testing.conformance.words import (
    SECOND,
    approval,
    declared,
    done,
    entry,
    error,
    failed,
    retrying,
)

Answer = TypeVar("Answer")

RUNS = ("r0", "r1", "r2", "r3", "r4", "r5")
NAMES = ("go", "go", "stop")
WORKERS = ("w1", "w2")
WORKFLOWS = (("orders", 1), ("refunds", 1))
LEASE_US = 20 * SECOND
# Few, so that they meet.
ENTITIES = (None, None, "sku/7", "run/r1")
QUEUES = ("q0", "q0", "q1")
CONSUMERS = ("c0", "c1", RUNNER)
SUBSCRIPTIONS = ("s0", "s1")
SCHEDULES = ("k0", "k1")
SENDS = ("emit", "put", "signal", "start")
CANCELLERS = (
    None,
    '[["t0",""]]',
    '[["t0","sku/7"],["t1",""]]',
    '[["workflow.run_failed",""],["t0","run/r1"]]',
)

# --- what may happen ---------------------------------------------------------------------------------


def _signal(name: str) -> Condition:
    return Condition("signal", name)


def _run(run_id: str) -> Condition:
    return Condition("run", run_id)


def _queue(name: str) -> Condition:
    return Condition("queue", name)


def _topic(name: str, entity: str = "", **more: Any) -> Condition:
    return Condition("topic", name, entity=entity, **more)


def _match(name: str, entity: str = "", **more: Any) -> Condition:
    return _topic(name, entity, filter="payload > 1", **more)


def _timer(seconds: int) -> Condition:
    return Condition("timer", delay_us=seconds * SECOND)


def _ask(name: str = "ok", **asks: Any) -> Condition:
    return approval(name, id="", **asks)


# Waits to open together, each as (branch, conditions).
WAITS: tuple[list[tuple[str, list[Condition]]], ...] = (
    [("", [_signal("go")])],
    [("", [_signal("go"), _timer(3)])],
    [("", [_signal("stop"), _signal("go"), _timer(9), _timer(6)])],
    [("", [_timer(2)])],
    [("", [_timer(0), _signal("go")])],
    [("", [_run("r0")])],
    [("", [_run("r1"), _signal("go"), _timer(4)])],
    [("", [_run("r2"), _run("r2"), _signal("stop"), _signal("stop")])],
    [("g[0]/", [_signal("go")]), ("g[1]/", [_signal("go")])],
    [("g[0]/", [_signal("go")]), ("g[1]/", [_timer(5)])],
    [("g[0]/", [_signal("stop"), _timer(2)]), ("g[1]/", [_run("r3"), _timer(2)])],
    [("", [_topic("t0")])],
    [("", [_topic("t0", "sku/7"), _timer(3)])],
    [("", [_topic("t0", "run/r1", since="ever"), _topic("t0"), _signal("go")])],
    [("", [_topic("t1", since="now"), _topic("t0", deliver="latest"), _timer(4)])],
    [("", [_topic("t0", code="picky"), _queue("q0"), _timer(5)])],
    [("", [_topic("workflow.run_failed"), _topic("signal.delivered", "run/r0")])],
    [("", [_queue("q0")])],
    [("", [_queue("q1"), _queue("q0"), _signal("go"), _timer(3)])],
    [("", [_match("t0")])],
    [("", [_match("t0", "sku/7"), _match("t1"), _timer(2)])],
    [("", [_match("t0", since="ever"), _topic("t1"), _queue("q1"), _signal("stop"), _timer(4)])],
    [("g[0]/", [_topic("t0")]), ("g[1]/", [_topic("t0", since="now"), _timer(6)])],
    [("g[0]/", [_queue("q0")]), ("g[1]/", [_queue("q0"), _topic("t0")])],
    [("g[0]/h[1]/", [_match("t0")]), ("g[0]/", [_topic("t0", "sku/7")])],
    [("", [_ask(), _timer(3)])],
    [
        (
            "",
            [
                _ask(remind=["1s", "2s", "9s"], expires="4s", who=("anna",)),
                _signal("go"),
                _timer(6),
            ],
        )
    ],
    [("", [_ask("a", every="2s"), _ask("b", every="3s", expires="5s"), _run("r1")])],
    [("", [_match("t0"), _ask(every="1s"), _timer(2)])],
    [("g[0]/", [_ask(expires="2s")]), ("g[1]/", [_topic("t0"), _ask("b", every="1s"), _timer(4)])],
)
STEPS: tuple[list[tuple[str, str]], ...] = (
    [],
    [("", "done")],
    [("", "failed")],
    [("", "retrying")],
    [("g[0]/", "retrying"), ("g[1]/", "failed")],
    [("g[0]/", "failed"), ("g[1]/", "done"), ("", "done")],
)
WHICH = tuple(range(12))  # one of what is there; 11 is anything, sense or not
AT = tuple(range(4))
POLICIES = (None, None, "latest", "first", "all", "all")
KEYS = (None, None, None, "k", "l")
RARELY = (False,) * 9 + (True,)
OFTEN = (True, True, True, False)

# What a move looks for: runs in these statuses, if there are any.
TURNS = (
    "record suspend leave send_from_run publish record_cancel reject finish continue_as park record_twice"
).split()
LOOKS_FOR: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TURNS, ("running",)),
    **dict.fromkeys(("signal", "cancel", "pause", "terminate", "release"), tuple(sorted(LIVE))),
    "resume": ("paused",),
    "retry": ("failed",),
}

POOLS = ("p0", "p1")
BOUNDS: tuple[dict[str, Any], ...] = (
    {},
    {"limit": 1},
    {"limit": 2, "per_key": 1},
    {"rate": "2/5s"},
    {"per_key_rate": "1/3s", "limit": 3},
)

# Each move: its name, its weight in a long life, and what its parameters are chosen from.
MOVES: dict[str, tuple[int, dict[str, Sequence[Any]]]] = {
    "start": (
        3,
        {
            "run_id": RUNS,
            "workflow": WORKFLOWS,
            "owner": (None, "w1", "w1", "w1", "w2", "ghost"),
            "key": KEYS,
            "delay_s": (None, None, None, 3),
            "parent": (None, *RUNS),
        },
    ),
    # Of a long life only where there are schedules, see `Almanac`.
    "start_watched": (
        0,
        {
            "run_id": RUNS,
            "owner": (None, "w1", "w1", "w2"),
            "deadline_s": (None, 0, 2, 6),
            "cancel_on": CANCELLERS,
            "parent": (None, None, *RUNS),
        },
    ),
    "start_debounced": (
        0,
        {
            "key": ("k", "l"),
            "input": ("1", "2"),
            "seconds": (1, 3),
            "deadline_s": (None, None, 4),
            "cancel_on": CANCELLERS,
            "pool": ("", "", *POOLS),
        },
    ),
    "signal_with_start": (1, {"run_id": RUNS, "name": NAMES, "policy": POLICIES, "key": KEYS}),
    "claim": (6, {"worker": WORKERS, "limit": (1, 2, 3)}),
    "beat": (2, {"worker": WORKERS, "stopping": RARELY}),
    "recover": (2, {"limit": (1, 2, 3)}),
    "release": (1, {"which": WHICH, "stale": RARELY}),
    "record": (4, {"which": WHICH, "steps": STEPS, "stale": RARELY}),
    "suspend": (
        14,
        {"which": WHICH, "waits": WAITS, "park": OFTEN, "release": OFTEN, "stale": RARELY},
    ),
    "leave": (1, {"which": WHICH, "at": AT}),
    "send_from_run": (
        3,
        {
            "which": WHICH,
            "to": WHICH,
            "name": NAMES,
            "policy": POLICIES,
            "kind": ("signal", "start", "set", "emit", "emit", "put", "publish"),
        },
    ),
    "publish": (
        3,
        {
            "which": WHICH,
            "streams": (("a",), ("b", "a", "a"), ("a", "c"), ("a", "b") * 4, ("d",)),
            "size": (1, 1, 12),
            "stale": RARELY,
        },
    ),
    "record_cancel": (2, {"which": WHICH}),
    "reject": (1, {"which": WHICH, "at": AT}),
    "finish": (3, {"which": WHICH, "how": AT, "stale": RARELY}),
    "continue_as": (1, {"which": WHICH, "workflow": WORKFLOWS}),
    "park": (1, {"which": WHICH}),
    "fire": (6, {"limit": (1, 2, 4)}),
    "cancel": (1, {"which": WHICH}),
    "terminate": (1, {"which": WHICH}),
    "pause": (2, {"which": WHICH}),
    "resume": (3, {"which": WHICH}),
    "retry": (3, {"which": WHICH}),
    "signal": (
        8,
        {
            "which": WHICH,
            "name": NAMES,
            "policy": POLICIES,
            "key": KEYS,
            "payload": ("1", '{"ok":true}'),
            "where": tuple(range(6)),
            "ttl_s": (None, None, 2),
            "on_end": ("discard", "dead_letter"),
            "buffer": OFTEN,
        },
    ),
    "answer": (6, {"at": AT, "policy": POLICIES, "key": KEYS, "by_path": OFTEN}),
    "decide": (
        7,
        {
            "at": tuple(range(8)),
            "choice": ("approve", "approve", "reject", "maybe"),
            "by": ("anna", "anna", "bob"),
            "by_link": RARELY,
            "key": KEYS,
        },
    ),
    "resend": (2, {"at": AT, "to": (None, *RUNS)}),
    "declare": (1, {"policy": ("latest", "first", "all"), "strict": RARELY}),
    "prune": (1, {"age_s": (0, 5, 20), "limit": (1, 2)}),
    "emit": (
        9,
        {
            "topics": (("t0",), ("t0",), ("t1",), ("t0", "t1"), ("t1", "t0", "t0")),
            "entity": ENTITIES,
            "key": KEYS,
            "payload": ("1", "2"),
            "repeats": (None, None, "deliver", "ignore"),
            "named": (None, None, None, "event-a", "event-b"),
        },
    ),
    "fan_out": (5, {"limit": (1, 2, 5)}),
    "put": (6, {"queue": QUEUES, "key": KEYS, "payload": ("1", "2")}),
    "purge": (1, {"queue": QUEUES, "age_s": (None, 0, 4), "limit": (1, 2, 9)}),
    # Of a long life only where callers post something, see `Caller`.
    "apply_outbox": (0, {"at": AT, "unread": RARELY}),
    "resolve_wait": (6, {"at": AT, "fits": OFTEN, "fails": RARELY, "nth": (0, 0, 1)}),
    "declare_channels": (1, {"repeats": ("deliver", "ignore"), "strict": RARELY}),
    "claim_consumer": (
        2,
        {"name": CONSUMERS, "worker": WORKERS, "start": (None, 0, 3), "start_at": (None, None, 4)},
    ),
    "advance_cursor": (
        4,
        {
            "name": CONSUMERS,
            "by": (0, 1, 4),
            "effects": ((), ("emit",), ("put", "signal"), ("start",), ("start", "rule", "emit")),
            "parks": RARELY,
            "defers": RARELY,
            "catches_up": RARELY,
            "stale": RARELY,
        },
    ),
    "commit_effects": (1, {"name": CONSUMERS, "at": AT, "again": OFTEN}),
    "drop_parked": (1, {"at": AT}),
    "drain": (1, {"at": AT, "how": AT, "released": RARELY}),
    "steer_consumer": (
        1,
        {
            "name": CONSUMERS,
            "paused": (None, True, False),
            "position": (None, 0, 5),
            "at_s": (None, 3),
        },
    ),
    "drop_consumer": (1, {"name": CONSUMERS}),
    "put_subscription": (
        1,
        {"name": SUBSCRIPTIONS, "start": (None, 0, 4), "enabled": OFTEN, "keep_enabled": RARELY},
    ),
    "switch_subscription": (1, {"name": SUBSCRIPTIONS, "enabled": OFTEN}),
    "drop_subscription": (1, {"name": SUBSCRIPTIONS}),
    "trim": (1, {"keep": (None, 3, 10), "age_s": (None, 5), "limit": (1, 4, 50), "forced": RARELY}),
    # Of a long life only where there are schedules, see `Almanac`.
    "put_schedule": (
        0,
        {
            "name": SCHEDULES,
            "workflow": WORKFLOWS,
            "every": ("2s", "5s", "* * * * *"),
            "catch_up": ("none", "one", "all", "all"),
            "overlap": ("skip", "queue", "allow"),
            "code": RARELY,
        },
    ),
    "steer_schedule": (0, {"name": SCHEDULES, "paused": OFTEN}),
    "drop_schedule": (0, {"name": SCHEDULES}),
    "fire_schedules": (0, {"limit": (1, 2, 9), "workflows": (WORKFLOWS, WORKFLOWS, WORKFLOWS[:1])}),
    "trigger_schedule": (0, {"name": SCHEDULES, "run_id": ("r5", "k0@now", None)}),
    "backfill_schedule": (0, {"name": SCHEDULES, "ago_s": (4, 20), "limit": (1, 3, 9)}),
    # Likewise with pools.
    "set_pool": (0, {"name": POOLS, "bounds": BOUNDS}),
    "start_in_pool": (
        0,
        {
            "run_id": RUNS,
            "workflow": WORKFLOWS,
            "owner": (None, "w1"),
            "delay_s": (None, None, None, 3),
            "pool": POOLS,
            "pool_key": ("", "a", "b"),
            "priority": (0, 0, 5, -1),
            "deadline_s": (None, None, 2, 6),
            "parent": (None, None, *RUNS),
        },
    ),
    "admit": (
        0,
        {
            "pool": POOLS,
            "limit": (1, 2, 9),
            "workflows": (WORKFLOWS, WORKFLOWS, WORKFLOWS[:1]),
            "takes_back": OFTEN,
        },
    ),
    "claim_from": (0, {"worker": WORKERS, "limit": (1, 3), "pools": (POOLS, POOLS[:1], ("",))}),
}
# The likelier ones more than once.
ALMANAC = (
    "put_schedule put_schedule fire_schedules fire_schedules fire_schedules fire_schedules steer_schedule "
    "drop_schedule trigger_schedule backfill_schedule start_watched start_watched start_watched start_debounced "
    "start_debounced start_debounced set_pool set_pool start_in_pool start_in_pool start_in_pool start_in_pool admit "
    "admit admit admit claim_from"
).split()

Move = tuple[str, dict[str, Any]]
moves: st.SearchStrategy[Move] = st.one_of(
    [
        st.tuples(
            st.just(name),
            st.fixed_dictionaries({one: st.sampled_from(of) for one, of in params.items()}),
        )
        for name, (_, params) in MOVES.items()
    ]
)


def any_move(chance: random.Random) -> Move:
    """A move by its weight; now and then a jump of the clock."""
    if chance.random() < 0.08:
        return "advance", {"seconds": chance.choice((1, 2, 5, 15))}
    weights = [weight for weight, _ in MOVES.values()]
    (name,) = chance.choices(list(MOVES), weights)
    return name, {one: chance.choice(list(of)) for one, of in MOVES[name][1].items()}


class Planner:
    """Makes concrete ops out of moves, from what a store shows. None: the move makes no sense now."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self._count = 0

    async def plan(self, move: Move) -> ops.Op[Any] | None:
        name, params = move
        params = dict(params)
        if "which" in params:
            found = await self._one_of(name, params.pop("which"))
            if found is None:
                return await self._get_going()
            params["run_id"] = found
        if isinstance(params.get("to"), int):
            params["to"] = await self._one_of("signal", params["to"]) or RUNS[0]
        make: Callable[..., Awaitable[ops.Op[Any] | None]] = getattr(self, name)
        return await make(**params)

    async def _one_of(self, name: str, which: int) -> str | None:
        """The id of a run that this move looks for; any id at all for the last number."""
        runs = await self.store.runs(RunFilter(statuses=LOOKS_FOR[name]), None, 100)
        if which == 11:
            return RUNS[self._count % len(RUNS)]
        return sorted(one.run_id for one in runs)[which % len(runs)] if runs else None

    async def _get_going(self) -> ops.Op[Any]:
        """Nothing is there that a move could be about: claim what is ready, or start another run."""
        ready = await self.store.runs(RunFilter(statuses=("ready",)), None, 1)
        if ready:
            return await self.claim("w1", 3)
        return await self.start(RUNS[self._count % len(RUNS)], WORKFLOWS[0], "w1", None, None, None)

    def _fresh(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count:05}"

    def _fence(self) -> int:
        self._count += 1
        return 1_000_000 + self._count

    async def _running(self, run_id: str) -> RunRecord | None:
        run = await self.store.run(run_id)
        return run if run is not None and run.status == "running" else None

    async def _rows(self, run_id: str) -> list[StepRecord]:
        ((_, steps),) = await self.store.load([run_id])
        return sorted(steps, key=lambda one: one.path)

    async def _turn(
        self, op: Callable[..., ops.Op[Any]], run_id: str, /, *, stale: bool = False, **fields: Any
    ) -> ops.Op[Any] | None:
        run = await self.store.run(run_id)
        if run is None or (run.status != "running" and not stale):
            return None
        fence = run.fence + stale * (self._count % 2)
        revision = run.revision - stale * (1 - self._count % 2)
        return op(run_id=run_id, fence=fence or 7, revision=revision, **fields)

    # --- in the order of model/ops.py ---

    async def start(
        self,
        run_id: str,
        workflow: tuple[str, int],
        owner: str | None,
        key: str | None,
        delay_s: int | None,
        parent: str | None,
    ) -> ops.StartRun:
        return ops.StartRun(
            run_id=run_id,
            workflow=workflow[0],
            version=workflow[1],
            input="null",
            key=key,
            delay_us=None if delay_s is None else delay_s * SECOND,
            parent_run_id=parent if parent != run_id else None,
            owner=owner,
            fence=0 if owner is None else self._fence(),
        )

    async def start_watched(
        self,
        run_id: str,
        owner: str | None,
        deadline_s: int | None,
        cancel_on: str | None,
        parent: str | None,
    ) -> ops.StartRun:
        """With a deadline and what cancels it, or one of them."""
        start = await self.start(run_id, WORKFLOWS[0], owner, None, None, parent)
        deadline_us = None if deadline_s is None else deadline_s * SECOND
        return msgspec.structs.replace(start, deadline_us=deadline_us, cancel_on=cancel_on)

    async def start_debounced(
        self,
        key: str,
        input: str,
        seconds: int,
        deadline_s: int | None,
        cancel_on: str | None,
        pool: str,
    ) -> ops.StartRun:
        return ops.StartRun(
            run_id=self._fresh("run"),
            workflow=WORKFLOWS[0][0],
            version=1,
            input=input,
            fresh=True,
            key=key,
            debounce_us=seconds * SECOND,
            debounce_max_us=4 * SECOND,
            deadline_us=None if deadline_s is None else deadline_s * SECOND,
            cancel_on=cancel_on,
            pool=pool,
        )

    async def signal_with_start(
        self, run_id: str, name: str, policy: Any, key: str | None
    ) -> ops.SignalWithStart:
        return ops.SignalWithStart(
            start=await self.start(run_id, WORKFLOWS[0], "w1", key, None, None),
            signal=ops.SendSignal(
                signal_id=self._fresh("signal"),
                run_id=run_id,
                name=name,
                payload="1",
                policy=policy,
                key=key,
            ),
        )

    async def claim(self, worker: str, limit: int) -> ops.ClaimRuns:
        return ops.ClaimRuns(
            worker_id=worker, fence=self._fence(), limit=limit, workflows=WORKFLOWS
        )

    async def beat(self, worker: str, stopping: bool) -> ops.Beat:
        # A worker's id is new with each process: the one at home never stops and beats again.
        stopping = stopping and worker != "w1"
        return ops.Beat(worker_id=worker, lease_us=LEASE_US, stopping=stopping)

    async def recover(self, limit: int) -> ops.Recover:
        suspects = (await self.store.look(limit=100)).suspects
        return ops.Recover(limit=limit, suspects=(*suspects, "r0", "nobody"))

    async def release(self, run_id: str, stale: bool) -> ops.Op[Any] | None:
        run = await self.store.run(run_id)
        if run is None or (not stale and run.owner is None):
            return None
        return ops.Release(run_id=run_id, fence=(run.fence + stale) or 7, revision=run.revision)

    async def record(
        self, run_id: str, steps: list[tuple[str, str]], stale: bool
    ) -> ops.Op[Any] | None:
        made = []
        if await self._running(run_id):
            known = [one for one in await self._rows(run_id) if one.state == "retrying"]
            for branch, state in steps:
                step = known.pop() if known and not branch else None
                path = step.path if step else branch + self._fresh("s")
                attempt = step.attempt + 1 if step else 1
                match state:
                    case "done":
                        made.append(done(path, "1", attempt=attempt))
                    case "failed":
                        made.append(failed(path, attempt=attempt))
                    case _:
                        made.append(retrying(path, "3s", attempt=attempt))
        return await self._turn(ops.RecordStep, run_id, stale=stale, steps=tuple(made))

    async def record_twice(self, run_id: str) -> ops.Op[Any] | None:
        """A second checkpoint of a path: no engine may ask for it."""
        steps = await self._rows(run_id) if await self._running(run_id) else []
        if not steps:
            return None
        return await self._turn(ops.RecordStep, run_id, steps=(done(steps[0].path),))

    async def suspend(
        self,
        run_id: str,
        waits: list[tuple[str, list[Condition]]],
        park: bool,
        release: bool,
        stale: bool,
    ) -> ops.Op[Any] | None:
        if not stale and not await self._running(run_id):
            return None
        opened = [
            _wait(branch + self._fresh("w"), self._asked(on), known=False) for branch, on in waits
        ]
        if not stale:
            rows = await self._rows(run_id)
            opened += [
                _wait(one.path, self._asked(_spec(one).on, self._count % 2), known=True)
                for one in rows
                if one.state == "open"
            ]
            watched = {one.path for one in await self.store.waiting(run_id)}
            # One that is due again is under way: no engine parks beside a body.
            under_way = any(one.state == "retrying" and one.path not in watched for one in rows)
            park = park and bool(opened or watched) and not under_way
        return await self._turn(
            ops.Suspend, run_id, stale=stale, waits=tuple(opened), park=park, release=release
        )

    def _asked(self, on: Iterable[Condition], anew: int = 1) -> tuple[Condition, ...]:
        """What is asked of people has an id of its own, another one if a retry asks anew."""
        return tuple(
            with_id(one, self._fresh("ask")) if anew and one.kind == "approval" else one
            for one in on
        )

    async def leave(self, run_id: str, at: int) -> ops.Op[Any] | None:
        if not await self._running(run_id):
            return None
        waits = [one.path for one in await self._rows(run_id) if one.kind == "wait"]
        closed = tuple(waits[at % len(waits) :][:1]) if waits else ()
        return await self._turn(ops.RecordStep, run_id, closed=closed)

    async def send_from_run(
        self, run_id: str, to: str, name: str, policy: Any, kind: str
    ) -> ops.Op[Any] | None:
        send: Any = None
        if kind == "signal":
            send = await self.signal(to, name, policy, None, "1", 0, None, "discard", True)
        if kind == "start":
            send = await self.start(to, WORKFLOWS[1], None, None, None, run_id)
        if kind == "emit":
            send = await self.emit(
                ("t0", "t1"), "sku/7", "k" if to == "r0" else None, "1", None, None
            )
        if kind == "put":
            send = await self.put("q0", None, "3")
        path = self._fresh("x")
        return await self._turn(
            ops.RecordSend, run_id, path=path, kind=kind, name=name, send=send, value="1"
        )

    async def publish(
        self, run_id: str, streams: tuple[str, ...], size: int, stale: bool
    ) -> ops.Op[Any] | None:
        run = await self.store.run(run_id)
        if run is None or (run.status != "running" and not stale):
            return None
        items = tuple((stream, "1" * size) for stream in streams)
        fence = run.fence + stale * (self._count % 2)
        return ops.Publish(run_id=run_id, fence=fence, path="s", attempt=size, items=items)

    async def record_cancel(self, run_id: str) -> ops.Op[Any] | None:
        run = await self._running(run_id)
        if run is None or not run.cancel_requested:
            return None
        rows = await self._rows(run_id)
        if any(one.path == CANCEL_PATH for one in rows):
            return None
        paths = tuple(one.path for one in rows if one.state in ("open", "retrying"))
        return await self._turn(ops.RecordCancel, run_id, paths=paths)

    async def reject(self, run_id: str, at: int) -> ops.Op[Any] | None:
        if not await self._running(run_id):
            return None
        taken = [
            one
            for one in await self._rows(run_id)
            if one.state == "done"
            and one.wait is not None
            and one.winner is not None
            and _spec(one).on[one.winner].kind in ("signal", "queue", "topic", "approval")
        ]
        if not taken:
            return None
        step = taken[at % len(taken)]
        again = _wait(step.path, _spec(step).on, known=True)
        passed = bool(_spec(step).on[step.winner or 0].code)
        return await self._turn(
            ops.RejectSignal,
            run_id,
            path=step.path,
            wait=again,
            reason="it does not fit",
            passed=passed,
        )

    async def finish(self, run_id: str, how: int, stale: bool) -> ops.Op[Any] | None:
        ended: dict[str, Any] = {"status": "completed", "output": "7"}
        run = await self._running(run_id)
        if run is not None and how == 1 and run.cancel_requested:
            ended = {"status": "cancelled"}
        if run is not None and how > 1:
            failures = [one.path for one in await self._rows(run_id) if one.state == "failed"]
            ended = {
                "status": "failed",
                "error": error("no", path=failures[0] if failures else None),
            }
        return await self._turn(ops.Finish, run_id, stale=stale, **ended)

    async def continue_as(self, run_id: str, workflow: tuple[str, int]) -> ops.Op[Any] | None:
        return await self._turn(
            ops.ContinueAs, run_id, workflow=workflow[0], version=workflow[1], input="2"
        )

    async def park(self, run_id: str) -> ops.Op[Any] | None:
        return await self._turn(ops.Park, run_id, reason="other code")

    async def fire(self, limit: int) -> ops.FireTimers:
        return ops.FireTimers(limit=limit)

    async def cancel(self, run_id: str) -> ops.Cancel:
        return ops.Cancel(run_id=run_id, reason="late")

    async def terminate(self, run_id: str) -> ops.Terminate:
        return ops.Terminate(run_id=run_id)

    async def pause(self, run_id: str) -> ops.Pause:
        return ops.Pause(run_id=run_id, reason="audit")

    async def resume(self, run_id: str) -> ops.Resume:
        return ops.Resume(run_id=run_id)

    async def retry(self, run_id: str) -> ops.Retry:
        return ops.Retry(run_id=run_id)

    async def signal(
        self,
        run_id: str,
        name: str,
        policy: Any,
        key: str | None,
        payload: str,
        where: int,
        ttl_s: int | None,
        on_end: Any,
        buffer: bool,
    ) -> ops.SendSignal:
        watched = [one.path for one in await self.store.waiting(run_id)]
        paths: list[str | None] = [None, None, "elsewhere", *watched]
        return ops.SendSignal(
            signal_id=self._fresh("signal"),
            run_id=run_id,
            name=name,
            payload=payload,
            policy=policy,
            on_end=on_end,
            ttl_us=None if ttl_s is None else ttl_s * SECOND,
            path=paths[where % len(paths)],
            key=key,
            buffer=buffer,
        )

    async def answer(
        self, at: int, policy: Any, key: str | None, by_path: bool
    ) -> ops.SendSignal | None:
        """A signal that somebody waits for."""
        waits = [
            one
            for name in sorted(set(NAMES))
            for one in await self.store.find_waiting(name, None, None, 100)
        ]
        if not waits:
            return None
        watcher = waits[at % len(waits)]
        return ops.SendSignal(
            signal_id=self._fresh("signal"),
            run_id=watcher.run_id,
            name=watcher.target,
            payload="2",
            policy=policy,
            path=watcher.path if by_path else None,
            key=key,
        )

    async def decide(
        self, at: int, choice: str, by: str, by_link: bool, key: str | None
    ) -> ops.Decide | None:
        """An answer to what is open, or was set aside by a pause."""
        rows = list(await self.store.approvals(None, 100))
        for run_id in RUNS:
            rows += [one for one in await self.store.waiting(run_id) if one.kind == "asked"]
        if not rows:
            return None
        row = rows[at % len(rows)]
        return ops.Decide(
            run_id=row.run_id,
            approval_id=decode_asks(row.asks).id,
            choice=choice,
            by=by,
            people=(by,),
            link_id=self._fresh("link") if by_link else None,
            key=key,
        )

    async def resend(self, at: int, to: str | None) -> ops.ResendDeadLetter:
        letters = [one.dead_letter_id for one in await self.store.dead_letters(None, "", 100)]
        # Ids that a store made itself are not the same everywhere.
        ours = [one for one in letters if one.startswith(("signal-", "item-"))] or ["nothing"]
        return ops.ResendDeadLetter(
            dead_letter_id=ours[at % len(ours)], signal_id=self._fresh("signal"), run_id=to
        )

    async def declare(self, policy: Any, strict: bool) -> ops.Declare:
        line = declared(workflow="refunds", strict=strict, go=entry(policy, ttl="4s"))
        return ops.Declare(workflows=(line,))

    async def prune(self, age_s: int, limit: int) -> ops.Prune:
        return ops.Prune(finished_before=self.clock.now() - age_s * SECOND, limit=limit)

    # --- topics and queues ---

    async def emit(
        self,
        topics: tuple[str, ...],
        entity: str | None,
        key: str | None,
        payload: str,
        repeats: Any,
        named: str | None,
    ) -> ops.Emit:
        about = (None, None) if entity is None else tuple(entity.split("/", 1))
        made = [
            ops.NewEvent(
                event_id=named or self._fresh("event"),
                fresh=named is None,
                type=topic,
                payload=payload,
                entity_type=about[0],
                entity_id=about[1],
                key=key,
                repeats=repeats,
                occurred_at=None if nth == 0 else self.clock.now() - nth * SECOND,
            )
            for nth, topic in enumerate(topics)
        ]
        return ops.Emit(events=tuple(made))

    async def fan_out(self, limit: int) -> ops.FanOut:
        return ops.FanOut(limit=limit)

    async def put(self, queue: str, key: str | None, payload: str) -> ops.Put:
        return ops.Put(item_id=self._fresh("item"), queue=queue, payload=payload, key=key)

    async def purge(self, queue: str, age_s: int | None, limit: int) -> ops.PurgeQueue:
        before = None if age_s is None else self.clock.now() - age_s * SECOND
        return ops.PurgeQueue(queue=queue, put_before=before, limit=limit)

    async def resolve_wait(
        self, at: int, fits: bool, fails: bool, nth: int
    ) -> ops.ResolveWait | None:
        """What a matcher would say, or one that is behind."""
        watchers = await self.store.matches(None, 100)
        if not watchers:
            return None
        one = watchers[at % len(watchers)]
        found = await self.store.events(one.after, 10, type=one.target)
        _, last = await self.store.span()
        position = found[nth % len(found)].position if fits and found else None
        return ops.ResolveWait(
            run_id=one.run_id,
            generation=one.generation,
            path=one.path,
            ix=one.ix,
            position=position,
            examined=last if nth == 0 else one.after,
            error=error("it fails", path=one.path, kind="step") if fails and position else None,
        )

    async def apply_outbox(self, at: int, unread: bool) -> ops.ApplyOutbox | None:
        rows = await self.store.outbox("", 100)
        if not rows:
            return None
        row = rows[at % len(rows)]
        if unread:
            return ops.ApplyOutbox(outbox_id=row.outbox_id, send=None, text="x", reason="unread")
        return ops.ApplyOutbox(outbox_id=row.outbox_id, send=decode_send(row.op))

    async def row(self, kind: str) -> OutboxRecord:
        """Something that a caller sends with a transaction of its own."""
        effect = await self._effect(kind, 0)
        outbox_id = self._fresh("outbox")
        return OutboxRecord(outbox_id=outbox_id, op=encode_send(effect.op), created_at=7)

    async def declare_channels(self, repeats: Any, strict: bool) -> ops.Declare:
        schema = '{"type":"integer","maximum":1}' if strict else None
        lines = (
            ChannelRecord(kind="topic", name="t0", schema=schema, repeats=repeats),
            ChannelRecord(kind="queue", name="q0", schema=schema),
        )
        return ops.Declare(channels=lines)

    # --- consumers and subscriptions ---

    async def claim_consumer(
        self, name: str, worker: str, start: int | None, start_at: int | None
    ) -> ops.ClaimConsumer:
        return ops.ClaimConsumer(
            name=name,
            worker_id=worker,
            fence=self._fence(),
            patterns='["**"]',
            start=start,
            start_at=None if start_at is None else self.clock.now() - start_at * SECOND,
        )

    async def advance_cursor(
        self,
        name: str,
        by: int,
        effects: tuple[str, ...],
        parks: bool,
        defers: bool,
        catches_up: bool,
        stale: bool,
    ) -> ops.AdvanceCursor | None:
        known = {one.name: one for one in await self.store.consumers()}
        if name not in known:
            return None
        consumer = known[name]
        _, last = await self.store.span()
        position = max(consumer.position, min(consumer.position + by, last))
        seen = consumer.position - stale
        caught_up = None
        for rule_ in await self.store.subscriptions() if catches_up else []:
            if rule_.behind is not None:
                caught_up, seen, position = rule_.name, rule_.behind, rule_.behind + by
        aside = await self._event_id(position)
        return ops.AdvanceCursor(
            name=name,
            fence=consumer.fence,
            seen=seen,
            position=position,
            effects=tuple([await self._effect(one, position) for one in effects]),
            parked=(self._parked(name, position, aside),) if parks and aside else (),
            deferred=(
                DeferredRecord(
                    position=position,
                    subscription="s0",
                    event_id=aside,
                    reason="fanout",
                    deferred_at=0,
                ),
            )
            if defers and aside
            else (),
            finished=("done-1",) if by else (),
            caught_up=caught_up,
            error="it went wrong" if parks else None,
        )

    async def _event_id(self, position: int) -> str:
        """The id of the event at a place, if it is there and one that we made: others differ between stores."""
        found = await self.store.events(position - 1, 1) if position else []
        ours = found and found[0].position == position and found[0].event_id.startswith("event-")
        return found[0].event_id if ours else ""

    def _parked(self, name: str, position: int, event_id: str) -> ParkedRecord:
        return ParkedRecord(
            consumer=name,
            position=position,
            event_id=event_id,
            type="t0",
            reason="no",
            attempts=3,
            parked_at=0,
        )

    async def _effect(self, kind: str, position: int) -> ops.Effect:
        op: Any
        match kind:
            case "emit":
                op = await self.emit(("t1",), None, None, "2", None, None)
            case "put":
                op = await self.put("q0", None, "2")
            case "signal":
                op = await self.signal(RUNS[1], "go", None, None, "1", 0, None, "discard", True)
            case _:
                run_id = RUNS[self._count % len(RUNS)]
                op = await self.start(run_id, WORKFLOWS[0], None, None, None, None)
        return ops.Effect(op=op, position=position, subscription="s0" if kind == "rule" else "")

    async def commit_effects(self, name: str, at: int, again: bool) -> ops.CommitEffects | None:
        parked = await self.store.parked(None, None, 10)
        if not parked:
            return None
        one = parked[at % len(parked)]
        return ops.CommitEffects(
            consumer=one.consumer,
            effects=(await self._effect("emit", one.position),),
            unpark=(one.position, one.subscription),
            reason=None if again else "once more",
        )

    async def drop_parked(self, at: int) -> ops.DropParked | None:
        parked = await self.store.parked(None, None, 10)
        if not parked:
            return None
        one = parked[at % len(parked)]
        return ops.DropParked(consumer=one.consumer, events=((one.position, one.subscription),))

    async def drain(self, at: int, how: int, released: bool) -> ops.DrainDeferred | None:
        deferred = await self.store.deferred(None, 10)
        if not deferred:
            return None
        one = deferred[at % len(deferred)]
        start = await self.start(RUNS[at], WORKFLOWS[0], None, None, None, None)
        given = (start, None) if how < 2 else (None, "gone" if how == 2 else None)
        return ops.DrainDeferred(
            starts=((one.position, one.subscription, *given),), consumer="c0", released=released
        )

    async def steer_consumer(
        self, name: str, paused: bool | None, position: int | None, at_s: int | None
    ) -> ops.SteerConsumer:
        at = None if at_s is None else self.clock.now() - at_s * SECOND
        return ops.SteerConsumer(name=name, paused=paused, reason="audit", position=position, at=at)

    async def drop_consumer(self, name: str) -> ops.DropConsumer:
        return ops.DropConsumer(name=name)

    async def put_subscription(
        self, name: str, start: int | None, enabled: bool, keep_enabled: bool
    ) -> ops.PutSubscription:
        rule_ = SubscriptionRecord(name=name, pattern="t0", workflow="orders", enabled=enabled)
        return ops.PutSubscription(subscription=rule_, start=start, keep_enabled=keep_enabled)

    async def switch_subscription(self, name: str, enabled: bool) -> ops.SwitchSubscription:
        return ops.SwitchSubscription(name=name, enabled=enabled)

    async def drop_subscription(self, name: str) -> ops.DropSubscription:
        return ops.DropSubscription(name=name)

    async def put_schedule(
        self,
        name: str,
        workflow: tuple[str, int],
        every: str,
        catch_up: Any,
        overlap: Any,
        code: bool,
    ) -> ops.PutSchedule:
        cron, interval_us = parse_every(every)
        row = ScheduleRecord(
            name=name,
            workflow=workflow[0],
            input="null",
            cron=cron,
            interval_us=interval_us,
            catch_up=catch_up,
            overlap=overlap,
            code=code,
        )
        return ops.PutSchedule(schedule=row)

    async def set_pool(self, name: str, bounds: dict[str, Any]) -> ops.SetPool:
        fields = ("limit", "per_key", "rate", "per_key_rate")
        return ops.SetPool(name=name, limits=encode_limits(checked_limits(**bounds)), fields=fields)

    async def start_in_pool(
        self,
        run_id: str,
        workflow: tuple[str, int],
        owner: str | None,
        delay_s: int | None,
        deadline_s: int | None,
        parent: str | None,
        **where: Any,
    ) -> ops.StartRun:
        plain = await self.start(run_id, workflow, owner, None, delay_s, parent)
        deadline_us = None if deadline_s is None else deadline_s * SECOND
        return replace(plain, deadline_us=deadline_us, **where)

    async def admit(self, **what: Any) -> ops.AdmitRuns:
        return ops.AdmitRuns(**what)

    async def claim_from(self, worker: str, limit: int, pools: tuple[str, ...]) -> ops.ClaimRuns:
        return replace(await self.claim(worker, limit), pools=pools)

    async def steer_schedule(self, name: str, paused: bool) -> ops.SteerSchedule:
        return ops.SteerSchedule(name=name, paused=paused, reason="why")

    async def drop_schedule(self, name: str) -> ops.DropSchedule:
        return ops.DropSchedule(name=name)

    async def fire_schedules(
        self, limit: int, workflows: tuple[tuple[str, int], ...]
    ) -> ops.FireSchedules:
        return ops.FireSchedules(limit=limit, workflows=workflows)

    async def _workflow_of(self, name: str) -> str:
        row = await self.store.schedule(name)
        return "orders" if row is None else row.workflow

    async def trigger_schedule(self, name: str, run_id: str | None) -> ops.TriggerSchedule:
        return ops.TriggerSchedule(
            name=name,
            run_id=run_id or self._fresh(name),
            workflow=await self._workflow_of(name),
            version=1,
        )

    async def backfill_schedule(self, name: str, ago_s: int, limit: int) -> ops.BackfillSchedule:
        now = self.clock.now()
        return ops.BackfillSchedule(
            name=name,
            workflow=await self._workflow_of(name),
            version=1,
            after=now - ago_s * SECOND,
            until=now + 5 * SECOND,
            limit=limit,
        )

    async def trim(
        self, keep: int | None, age_s: int | None, limit: int, forced: bool
    ) -> ops.TrimLedger:
        now = self.clock.now()
        return ops.TrimLedger(
            recorded_before=None if age_s is None else now - age_s * SECOND,
            keep=keep,
            limit=limit,
            idle_before=now - 60 * SECOND,
            forced=forced,
        )


def _wait(path: str, on: tuple[Condition, ...], *, known: bool) -> ops.Wait:
    return ops.Wait(path=path, kind="wait", name="w", on=on, known=known)


def _spec(step: StepRecord) -> WaitSpec:
    return msgspec.json.decode(step.wait or "", type=WaitSpec)


# --- side by side ------------------------------------------------------------------------------------


class Server:
    """Where the servers are. Examples are made without fixtures, so it is told once for all of them."""

    url = ""
    namespaces: Namespaces
    valkey: ValkeyAddress


@pytest.fixture(scope="module", autouse=True)
def server(
    postgres_server: PostgresAddress,
    postgres_namespaces: Namespaces,
    valkey_server: ValkeyAddress,
) -> None:
    Server.url, Server.namespaces = postgres_server.url, postgres_namespaces
    Server.valkey = valkey_server


@pytest.fixture(scope="module", autouse=True)
def calls_any() -> Iterator[None]:
    """SQLite sees by itself which owners are dead, and does not call them; the others have to be shown."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkerRows, "is_called", Tables.is_called)
        yield


@pytest.fixture(scope="module", autouse=True)
def few_ticks() -> Iterator[None]:
    """So few that schedules reach their bounds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "schedule_starts_per_commit", 2)
        patch.setattr(limits, "schedule_missed_max", 4)
        patch.setattr(limits, "schedule_queue_max", 3)
        patch.setattr(limits, "schedule_late_us", SECOND)
        yield


@pytest.fixture(scope="module", autouse=True)
def short_streams() -> Iterator[None]:
    """So short that each of their bounds is reached."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "stream_items_max", 6)
        patch.setattr(limits, "stream_bytes_max", 20)
        patch.setattr(limits, "streams_per_run_max", 3)
        yield


class World:
    """A loop, a clock, a directory and a namespace for the length of one example."""

    def __init__(self, sticky_us: int = 0) -> None:
        self.sticky_us = sticky_us
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.directory = Path(tempfile.mkdtemp(prefix="perdure-"))
        self._files = 0
        self._batches = 0
        self._lent: list[str] = []
        self._lent_by_valkey: list[str] = []

    def wait_for(self, awaited: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run_until_complete(awaited)

    def advance(self, seconds: int) -> None:
        self.clock.set(self.clock.now() + seconds * SECOND)

    def memory(self, home: str | None) -> MemoryStore:
        store = MemoryStore(clock=self.clock, ids=Ids(self.clock, random.Random(7)))
        store.worker_id, store.sticky_us = home, self.sticky_us
        return store

    def sqlite(self, home: str | None, copy_of: str | None = None) -> SqliteStore:
        self._files += 1
        path = self.directory / f"{self._files}.db"
        for suffix in ("", "-wal"):
            if copy_of is not None and Path(copy_of + suffix).exists():
                shutil.copyfile(copy_of + suffix, f"{path}{suffix}")
        # Other chance than the memory store's: what two stores make up themselves is never equal.
        ids = Ids(self.clock, random.Random(self._files + 8))
        store = SqliteStore(str(path), clock=self.clock, ids=ids, synchronous="NORMAL")
        store.worker_id, store.sticky_us = home, self.sticky_us
        self.wait_for(store.open())
        return store

    def postgres(self, home: str | None, namespace: str | None = None) -> PostgresStore:
        if namespace is None:
            namespace = Server.namespaces.take()
            self._lent.append(namespace)
        ids = Ids(self.clock, random.Random(len(self._lent) + 100))
        store = PostgresStore(Server.url, namespace=namespace, clock=self.clock, ids=ids)
        store.worker_id, store.sticky_us = home, self.sticky_us
        # It would not call an owner that a look has shown to be dead; here all stores call any.
        store._note_workers = lambda workers: None  # type: ignore[method-assign]
        self.wait_for(store.open())
        return store

    def redis(self, home: str | None, namespace: str | None = None) -> RedisStore:
        if namespace is None:
            namespace = new_namespace()
            self._lent_by_valkey.append(namespace)
        ids = Ids(self.clock, random.Random(len(self._lent_by_valkey) + 200))
        store = RedisStore(Server.valkey.url, namespace=namespace, clock=self.clock, ids=ids)
        store.worker_id, store.sticky_us = home, self.sticky_us
        store._note_workers = lambda workers: None  # type: ignore[method-assign]
        self.wait_for(store.open())
        return store

    def again(self, store: PostgresStore | RedisStore) -> PostgresStore | RedisStore:
        """Another process on the same rows."""
        make = self.postgres if isinstance(store, PostgresStore) else self.redis
        return make(store.worker_id, store.namespace)

    def apply(self, store: Store, *batch: ops.Op[Any]) -> Any:
        """The answers and wakes of a batch, comparable; or that it failed."""
        try:
            return comparable(self.answers(store, *batch))
        except BatchFailed:
            return "failed"

    def answers(self, store: Store, *batch: ops.Op[Any]) -> list[Applied]:
        self._batches += 1
        return self.wait_for(store.apply(f"batch-{self._batches}", batch))

    def post(self, row: OutboxRecord, *stores: Store) -> None:
        """A caller commits a send."""
        for store in stores:
            if isinstance(store, MemoryStore):
                store.tables.outbox[row.outbox_id] = row
            elif isinstance(store, SqliteStore):
                with closing(sqlite3.connect(store.path)) as connection:
                    self.wait_for(store.write_outbox(connection, row))
                    connection.commit()
            elif isinstance(store, PostgresStore):
                self.wait_for(store._ask(functools.partial(_write, store, row)))
            elif isinstance(store, RedisStore):
                self.wait_for(_write_to_redis(store, row))

    def shown(self, store: Store) -> Any:
        return normal(self.wait_for(dump(store))), self.wait_for(_beside(store, self.clock.now()))

    def end(self, *stores: Store) -> None:
        for store in stores:
            self.wait_for(store.close())
        with Server.valkey.client() as client:
            for namespace in self._lent_by_valkey:
                assert drift(client, Layout(namespace)) == []
        self.wait_for(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.directory)
        Server.namespaces.give_back(*self._lent)
        Server.valkey.clear(*self._lent_by_valkey)


async def _write(store: PostgresStore, row: OutboxRecord, connection: Any) -> None:
    async with connection.transaction():
        await store.write_outbox(connection, row)


async def _write_to_redis(store: RedisStore, row: OutboxRecord) -> None:
    async with Redis.from_url(Server.valkey.url) as client:
        pipeline = client.pipeline(transaction=True)
        await store.write_outbox(pipeline, row)
        await pipeline.execute()


async def _broken(store: Store) -> list[str]:
    """The invariants that do not hold. Here the ledger may have been trimmed: it is dense from its first event on."""
    first, last = await store.span()
    positions = [one.position for one in await everything(store.events)]
    broken = [one for one in await check_invariants(store) if not one.startswith("L1")]
    dense = positions == list(range(first, last + 1))
    return broken if dense else [*broken, f"L1 the positions are not dense: {positions}"]


async def _beside(store: Store, now: int) -> Any:
    """What a dump leaves out: items in their order, readers of the ledger, what indexes say of it."""
    shown = {
        "items": [
            (one.item_id, one.queue, one.payload, one.put_at)
            for queue in ("q0", "q1")
            for one in await store.queue_items(queue, -(2**62), 1000)
        ],
        "queues": await store.queues(),
        "channels": sorted(await store.channels(), key=lambda one: (one.kind, one.name)),
        "consumers": sorted(await store.consumers(), key=lambda one: one.name),
        "subscriptions": sorted(await store.subscriptions(), key=lambda one: one.name),
        "parked": await store.parked(None, None, 100),
        "deferred": await store.deferred(None, 100),
        "matches": await store.matches(None, 100),
        "watchers": [await store.topic_watchers(name, None, 100) for name in ("t0", "t1")],
        "span": await store.span(),
        "places": [await store.position_at(now - ago * SECOND) for ago in (0, 5, 20)],
        "finished": [
            await store.known_keys(consumer_scope(one), ["done-1"], now) for one in CONSUMERS
        ],
        "expired": await store.keys_have_expired(now),
        "by_time": [one.position for one in await store.events_by_time(None, 1000)],
        "latest": [
            getattr(await store.latest(topic, entity), "position", None)
            for topic in ("t0", "t1")
            for entity in ("", "sku/7", "run/r1")
        ],
    }
    return comparable(shown)


def _rule(name: str) -> Any:
    def act(self: "Agreement", **params: Any) -> None:
        self.act((name, params))

    act.__name__ = name
    return rule(**{one: st.sampled_from(of) for one, of in MOVES[name][1].items()})(act)


# A look at every row takes a server long: it is taken after each so many moves, and at the end.
SHOWN_EVERY = 8


class Agreement(RuleBasedStateMachine):
    """Memory, SQLite, Postgres and Redis side by side."""

    @initialize(home=st.sampled_from((None, "w1")), sticky_s=st.sampled_from((0, 3)))
    def open(self, home: str | None, sticky_s: int) -> None:
        # So few that events are on their way to others all the time.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(limits, "resumed_per_commit_max", 2)
        self.world = World(sticky_s * SECOND)
        self.home = home
        self.memory = self.world.memory(home)
        self.sqlite = self.world.sqlite(home)
        self.servers = [self.world.postgres(home), self.world.redis(home)]
        self.moves = 0
        self.planner = Planner(self.memory, self.world.clock)
        self.both(ops.Beat(worker_id="w1", lease_us=LEASE_US))
        for run_id in RUNS[:3]:
            start = ("start", {"run_id": run_id, "workflow": WORKFLOWS[0], "owner": "w1"})
            self.act((start[0], {**start[1], "key": None, "delay_s": None, "parent": None}))

    def act(self, move: Move) -> None:
        op = self.world.wait_for(self.planner.plan(move))
        if op is not None:
            self.both(op)

    def both(self, *batch: ops.Op[Any]) -> None:
        expected = self.world.apply(self.memory, *batch)
        assert expected != "failed", batch
        assert self.world.apply(self.sqlite, *batch) == expected, batch
        told = [self.world.apply(store, *batch) for store in self.servers]
        if any(one != expected for one in told):
            assert all(_looked(one) == _looked(expected) for one in told), (told, batch)
            self.give_all()
        self.check()

    def give_all(self) -> None:
        """A run that ended may have been the last that waited for such a fact: who decides away from the store cannot
        see that in the same batch (see `is_watched`), looks, and finds nobody. Then all of them look."""
        more = True
        while more:
            for store in (self.memory, self.sqlite, *self.servers):
                told = self.world.apply(store, ops.FanOut(limit=1000))
                more = told[0]["outcome"]["more"]

    def check(self) -> None:
        shown = self.world.shown(self.memory)
        assert self.world.shown(self.sqlite) == shown
        broken = self.world.wait_for(_broken(self.memory))
        assert not broken, broken
        stores = (self.memory, self.sqlite, *self.servers)
        looks = [self.world.wait_for(store.look()) for store in stores]
        assert all(one == looks[0] for one in looks), looks
        self.moves += 1
        if self.moves % SHOWN_EVERY == 0:
            for store in self.servers:
                assert self.world.shown(store) == shown, store

    start = _rule("start")
    start_watched = _rule("start_watched")
    start_debounced = _rule("start_debounced")
    signal_with_start = _rule("signal_with_start")
    claim = _rule("claim")
    claim_again = _rule("claim")
    beat = _rule("beat")
    recover = _rule("recover")
    release = _rule("release")
    record = _rule("record")
    suspend = _rule("suspend")
    suspend_again = _rule("suspend")
    leave = _rule("leave")
    send_from_run = _rule("send_from_run")
    record_cancel = _rule("record_cancel")
    reject = _rule("reject")
    finish = _rule("finish")
    continue_as = _rule("continue_as")
    park = _rule("park")
    fire = _rule("fire")
    cancel = _rule("cancel")
    terminate = _rule("terminate")
    pause = _rule("pause")
    resume = _rule("resume")
    retry = _rule("retry")
    signal = _rule("signal")
    answer = _rule("answer")
    answer_again = _rule("answer")
    resend = _rule("resend")
    declare = _rule("declare")
    prune = _rule("prune")
    emit = _rule("emit")
    emit_again = _rule("emit")
    fan_out = _rule("fan_out")
    put = _rule("put")
    purge = _rule("purge")
    apply_outbox = _rule("apply_outbox")
    resolve_wait = _rule("resolve_wait")
    declare_channels = _rule("declare_channels")
    claim_consumer = _rule("claim_consumer")
    advance_cursor = _rule("advance_cursor")
    commit_effects = _rule("commit_effects")
    drop_parked = _rule("drop_parked")
    drain = _rule("drain")
    steer_consumer = _rule("steer_consumer")
    drop_consumer = _rule("drop_consumer")
    put_subscription = _rule("put_subscription")
    switch_subscription = _rule("switch_subscription")
    drop_subscription = _rule("drop_subscription")
    put_schedule = _rule("put_schedule")
    steer_schedule = _rule("steer_schedule")
    drop_schedule = _rule("drop_schedule")
    fire_schedules = _rule("fire_schedules")
    fire_schedules_again = _rule("fire_schedules")
    trigger_schedule = _rule("trigger_schedule")
    backfill_schedule = _rule("backfill_schedule")
    trim = _rule("trim")

    @rule(seconds=st.integers(1, 15))
    def advance(self, seconds: int) -> None:
        self.world.advance(seconds)

    @rule(kind=st.sampled_from(SENDS))
    def post(self, kind: str) -> None:
        row = self.world.wait_for(self.planner.row(kind))
        self.world.post(row, self.memory, self.sqlite, *self.servers)
        self.check()

    @rule(which=st.sampled_from(WHICH))
    def record_twice(self, which: int) -> None:
        """A defect of ours must fail its batch and change nothing."""
        twice = self.world.wait_for(self.planner.plan(("record_twice", {"which": which})))
        if not isinstance(twice, ops.RecordStep):
            return
        for store in (self.memory, self.sqlite, *self.servers):
            assert self.world.apply(store, twice) == "failed"
        self.check()

    @rule()
    def crash(self) -> None:
        """What the files hold at this moment is all that is left; on a server, another process goes on."""
        crashed = self.sqlite
        self.sqlite = self.world.sqlite(self.home, copy_of=crashed.path)
        self.world.wait_for(crashed.close())
        gone, self.servers = self.servers, [self.world.again(one) for one in self.servers]
        for store in gone:
            self.world.wait_for(store.close())
        self.both(ops.Beat(worker_id="w1", lease_us=LEASE_US))

    @rule()
    def reopen(self) -> None:
        for store in (self.sqlite, *self.servers):
            self.world.wait_for(store.close())
            self.world.wait_for(store.open())
        self.both(ops.Beat(worker_id="w1", lease_us=LEASE_US))

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            for store in self.servers:
                assert self.world.shown(store) == self.world.shown(self.memory), store
        finally:
            self.world.end(self.memory, self.sqlite, *self.servers)
            self.patch.undo()


TestAgreement = Agreement.TestCase
# Fewer than of the others: each move is a round trip or two to a server, and shown there as well.
TestAgreement.settings = settings(
    settings.default, stateful_step_count=30, max_examples=settings.default.max_examples // 5
)


# --- fused and one by one ----------------------------------------------------------------------------


class Caller:
    """Posts sends to several stores, if it does, and has them applied among other moves."""

    def __init__(self, world: World, oracle: Store, seed: int, posts: bool) -> None:
        self._world = world
        self._planner = Planner(oracle, world.clock)
        self._planner._count = 50_000  # ids of its own
        self._chance = random.Random(seed)
        self._posts = posts

    def post(self, *stores: Store) -> None:
        if self._posts:
            row = self._world.wait_for(self._planner.row(self._chance.choice(SENDS)))
            self._world.post(row, *stores)

    def and_apply(self, moves: list[Move]) -> list[Move]:
        """These moves, and between them perhaps that of a worker that has found something."""
        if not self._posts or self._chance.random() < 0.3:
            return moves
        params = {name: self._chance.choice(of) for name, of in MOVES["apply_outbox"][1].items()}
        at = self._chance.randint(0, len(moves))
        return [*moves[:at], ("apply_outbox", params), *moves[at:]]


class Almanac:
    """Moves of schedules, and starts of other kinds, among others, if there are any.

    By a chance of its own, so that seeds keep their meaning.
    """

    def __init__(self, seed: int, ticks: bool) -> None:
        self._chance = random.Random(~seed)
        self._ticks = ticks

    def among(self, moves: list[Move]) -> list[Move]:
        if not self._ticks:
            return moves
        mixed = list(moves)
        for _ in range(self._chance.randint(0, 4)):
            name = self._chance.choice(ALMANAC)
            params = {one: self._chance.choice(list(of)) for one, of in MOVES[name][1].items()}
            mixed.insert(self._chance.randint(0, len(mixed)), (name, params))
        return mixed


@settings(max_examples=settings.default.max_examples // 2)
@given(
    seed=st.integers(0, 2**32),
    home=st.sampled_from((None, "w1")),
    posts=st.booleans(),
    ticks=st.booleans(),
)
# One event for several branches of a run, in the order they have waited.
@example(seed=36879, home=None, posts=False, ticks=False)
# A run that asks two things, and ends.
@example(seed=2048, home=None, posts=False, ticks=False)
def test_a_batch_is_its_ops_one_by_one(
    seed: int, home: str | None, posts: bool, ticks: bool
) -> None:
    """Long lives: batches of 1 to 20 moves, with the clock moving between them."""
    chance = random.Random(seed)
    almanac = Almanac(seed, ticks)
    world = World()
    oracle, memory = world.memory(home), world.memory(home)
    single, fused = world.sqlite(home), world.sqlite(home)
    planner = Planner(oracle, world.clock)
    caller = Caller(world, oracle, seed, posts)
    try:
        for _ in range(12):
            caller.post(oracle, memory, single, fused)
            planned: list[ops.Op[Any]] = []
            expected: list[Applied] = []
            moves = [any_move(chance) for _ in range(chance.randint(1, 20))]
            for move in caller.and_apply(almanac.among(moves)):
                op = None if move[0] == "advance" else world.wait_for(planner.plan(move))
                if op is not None:
                    planned.append(op)
                    expected += world.answers(oracle, op)
            one_by_one = [one for op in planned for one in world.answers(single, op)]
            assert comparable(one_by_one) == comparable(expected)
            for store in (memory, fused):
                assert comparable(world.answers(store, *planned)) == comparable(expected)
            shown = world.shown(oracle)
            for store in (memory, single, fused):
                assert world.shown(store) == shown
            broken = world.wait_for(_broken(oracle))
            assert not broken, broken
            world.advance(chance.choice((0, 0, 1, 3, 15)))
    finally:
        world.end(oracle, memory, single, fused)


def _without_order(shown: Any) -> Any:
    """Only the process of its owner adds plain results to a run, so only it knows their order; here both do.

    Signals keep their order among themselves.
    """
    rows, beside = shown
    steps = {
        run_id: sorted(({**one, "seq": one["seq"] > 0} for one in of_run), key=lambda one: str(one))
        for run_id, of_run in rows["steps"].items()
    }
    signals = {
        run_id: [{**one, "position": at} for at, one in enumerate(_in_order(of_run))]
        for run_id, of_run in rows["signals"].items()
    }
    return {**rows, "steps": steps, "signals": signals}, beside


def _in_order(signals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(signals, key=lambda one: one["position"])


def _looked(told: Any) -> Any:
    """Without who is to give an event to those who wait for it; all else is to be the same."""
    if told == "failed":
        return told
    return [
        {**one, "wakes": [wake for wake in one["wakes"] if wake["kind"] != "fan_out"]}
        for one in told
    ]


def _less_eager(told: Any) -> Any:
    """Without who is to give an event to those who wait: of whom another process took away one may still believe that
    somebody waits there (see `is_watched`), and then finds nobody. While it looks, a run that an event both cancels and
    goes on with is told of once, and not twice."""
    if told == "failed":
        return told
    return [{**one, "wakes": _each_once(one["wakes"])} for one in _looked(told)]


def _each_once(wakes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [wake for nth, wake in enumerate(wakes) if wake not in wakes[:nth]]


def _as_servers_have_them(batch: list[ops.Op[Any]]) -> list[ops.Op[Any]]:
    """There claims are made after all else in a batch; and what somebody needed until this very batch, a run or an
    event, goes with a later one. Nobody who submits these can tell."""
    cleaning = (ops.Prune, ops.TrimLedger)
    return sorted(batch, key=lambda op: isinstance(op, ops.ClaimRuns) - isinstance(op, cleaning))


@pytest.mark.parametrize("kind", ["postgres", "redis"])
@settings(max_examples=settings.default.max_examples // 3)
@given(seed=st.integers(0, 2**32), home=st.sampled_from((None, "w1")), ticks=st.booleans())
# A run that was pruned and begun anew, of which the other process remembers the first one.
@example(seed=12474, home=None, ticks=False)
# A topic that somebody waited for: the other process has taken the watcher away.
@example(seed=231, home=None, ticks=False)
# One worker that is dead already and is seen off by the same batch.
@example(seed=5341, home=None, ticks=False)
# The ledger is trimmed twice in one batch.
@example(seed=1124724888, home=None, ticks=False)
# An event is trimmed, and its id used anew in one batch.
@example(seed=450159613, home=None, ticks=False)
# A look that needs less of a run finds it changed.
@example(seed=4409, home=None, ticks=False)
# Runs are pruned twice in one batch.
@example(seed=389, home=None, ticks=False)
# What a rule is to catch up with is trimmed by the same batch.
@example(seed=87844066, home=None, ticks=False)
# Two queues, put to by two processes, of which a run takes the item that was put first.
@example(seed=1334385665, home=None, ticks=False)
# A child that is older than its parent.
@example(seed=460890590, home=None, ticks=False)
# The ledger is trimmed while one believes that an event is on its way to somebody.
@example(seed=412, home=None, ticks=True)
@example(seed=2535, home=None, ticks=True)
def test_two_processes_on_a_server_are_as_one(
    kind: str, seed: int, home: str | None, ticks: bool
) -> None:
    """Batches by turns from two stores with what each remembers: what the other has written since is always seen.

    Planned from what was there before the batch, so that its ops meet; with little room to resume runs in.
    """
    chance = random.Random(seed)
    almanac = Almanac(seed, ticks)
    world = World()
    memory = world.memory(home)
    one = world.postgres(home) if kind == "postgres" else world.redis(home)
    other = world.again(one)
    planner = Planner(memory, world.clock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "resumed_per_commit_max", 3)
        patch.setattr(limits, "slot_unclaimed_us", 2 * SECOND)
        try:
            for _ in range(20):
                moves = almanac.among([any_move(chance) for _ in range(chance.randint(1, 8))])
                planned = [
                    world.wait_for(planner.plan(one)) for one in moves if one[0] != "advance"
                ]
                # Not a retry: what is later than the step that failed only the owner's process knows.
                kept = [one for one in planned if one and not isinstance(one, ops.Retry)]
                batch = _as_servers_have_them(_one_turn_each(kept))
                if any(isinstance(one, ops.TrimLedger) for one in batch):
                    # Events that are on their way to somebody, or are believed to be, are not trimmed.
                    for each in (memory, one):
                        world.apply(each, ops.FanOut(limit=1000))
                expected = _less_eager(world.apply(memory, *batch))
                store = one if chance.random() < 0.5 else other
                assert _less_eager(world.apply(store, *batch)) == expected, batch
                world.advance(chance.choice((0, 0, 1, 3, 15)))
                # What two processes do in the very same microsecond is in no order.
                world.clock.set(world.clock.now() + 1)
            for store in (memory, one):
                world.apply(store, ops.FanOut(limit=1000))
            assert world.shown(other) == world.shown(one)
            assert _without_order(world.shown(one)) == _without_order(world.shown(memory))
        finally:
            world.end(memory, one, other)


def _one_turn_each(batch: list[ops.Op[Any]]) -> list[ops.Op[Any]]:
    """An owner has one op of a run on its way that parks or ends it, never two."""
    kept: list[ops.Op[Any]] = []
    turns: set[str] = set()
    for op in batch:
        if isinstance(op, ops.TurnOp | ops.Release):
            if op.run_id in turns:
                continue
            turns.add(op.run_id)
        kept.append(op)
    return kept


@settings(max_examples=settings.default.max_examples // 2)
@given(
    seed=st.integers(0, 2**32),
    home=st.sampled_from((None, "w1")),
    prefetch=st.booleans(),
    posts=st.booleans(),
    ticks=st.booleans(),
)
# An event's id used anew after retention.
@example(seed=309777889, home=None, prefetch=False, posts=False, ticks=False)
def test_a_batch_that_nobody_can_foresee_is_the_same_on_both(
    seed: int, home: str | None, prefetch: bool, posts: bool, ticks: bool
) -> None:
    """Planned from what was there before the batch, so that its ops meet; with little room to resume runs in.

    Now and then another connection writes in between, and what was remembered is worth nothing. Without the prefetch
    every row is loaded when a handler asks for it: the answers are the same.
    """
    chance = random.Random(seed)
    almanac = Almanac(seed, ticks)
    world = World(sticky_us=3 * SECOND if seed % 2 else 0)
    memory, sqlite = world.memory(home), world.sqlite(home)
    other = SqliteStore(
        sqlite.path, clock=world.clock, ids=Ids(world.clock, random.Random(5)), synchronous="NORMAL"
    )
    other.worker_id, other.sticky_us = home, world.sticky_us
    world.wait_for(other.open())
    planner = Planner(memory, world.clock)
    caller = Caller(world, memory, seed, posts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "resumed_per_commit_max", 3)
        patch.setattr(limits, "slot_unclaimed_us", 2 * SECOND)
        if not prefetch:
            patch.setattr(LoadedRows, "prefetch", lambda rows, batch: None)
        try:
            for _ in range(25):
                caller.post(memory, sqlite)
                moves = [any_move(chance) for _ in range(chance.randint(1, 8))]
                moves = caller.and_apply(almanac.among(moves))
                planned = [
                    world.wait_for(planner.plan(one)) for one in moves if one[0] != "advance"
                ]
                batch = _one_turn_each([one for one in planned if one is not None])
                expected = world.apply(memory, *batch)
                # The life signs of workers are locks of the process that gave them.
                beats = any(isinstance(one, ops.Beat) for one in batch)
                store = other if chance.random() < 0.2 and not beats else sqlite
                assert world.apply(store, *batch) == expected, batch
                assert world.shown(sqlite) == world.shown(memory)
                broken = world.wait_for(_broken(memory))
                assert not broken, broken
                world.advance(chance.choice((0, 0, 1, 3, 15)))
        finally:
            world.end(memory, sqlite, other)
