"""The memory store is the oracle: random ops give the same answers and the same rows on SQLite.

Two tests. One drives both stores side by side, op by op, with clock jumps, crashes and a failing batch thrown in, and
holds them to the invariants after each. The other takes what was planned that way and applies it fused, as one batch:
answers and rows must be those of the ops one by one.

Moves are planned against the memory store, the way an engine that read its rows would act: turn ops name the fence
and revision of the run (or stale ones, on purpose), waits that are open are opened again as known.
"""

import asyncio
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from perdure.model import ops
from perdure.model.ids import Ids
from perdure.model.records import CANCEL_PATH, Condition, RunRecord, StepRecord, WaitSpec
from perdure.model.status import LIVE
from perdure.store.base import Applied, BatchFailed, RunFilter, Store
from perdure.store.memory import MemoryStore
from perdure.store.sqlite.store import SqliteStore
from perdure.testing import VirtualClock
from perdure.testing.conformance import check_invariants, comparable, dump, normal
from perdure.testing.conformance.driver import (
    SECOND,
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
BRANCHES = ("", "g[0]/", "g[1]/")
WORKERS = ("w1", "w2")
WORKFLOWS = (("orders", 1), ("refunds", 1))
LEASE_US = 20 * SECOND

# --- what may happen ---------------------------------------------------------------------------------


def _signal(name: str) -> Condition:
    return Condition("signal", name)


def _run(run_id: str) -> Condition:
    return Condition("run", run_id)


def _timer(seconds: int) -> Condition:
    return Condition("timer", delay_us=seconds * SECOND)


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
    "record suspend leave send_from_run record_cancel reject finish continue_as park record_twice"
).split()
LOOKS_FOR: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TURNS, ("running",)),
    **dict.fromkeys(("signal", "cancel", "pause", "terminate", "release"), tuple(sorted(LIVE))),
    "resume": ("paused",),
    "retry": ("failed",),
}

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
            "kind": ("signal", "start", "set"),
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
    "resend": (2, {"at": AT, "to": (None, *RUNS)}),
    "declare": (1, {"policy": ("latest", "first", "all"), "strict": RARELY}),
    "prune": (1, {"age_s": (0, 5, 20), "limit": (1, 2)}),
}

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
        suspects, _ = await self.store.sweep("", 100)
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
        opened = [_wait(branch + self._fresh("w"), tuple(on), known=False) for branch, on in waits]
        if not stale:
            rows = await self._rows(run_id)
            opened += [
                _wait(one.path, _spec(one).on, known=True) for one in rows if one.state == "open"
            ]
            park = park and bool(opened or await self.store.waiting(run_id))
        return await self._turn(
            ops.Suspend, run_id, stale=stale, waits=tuple(opened), park=park, release=release
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
        path = self._fresh("x")
        return await self._turn(
            ops.RecordSend, run_id, path=path, kind=kind, name=name, send=send, value="1"
        )

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
            and _spec(one).on[one.winner].kind == "signal"
        ]
        if not taken:
            return None
        step = taken[at % len(taken)]
        again = _wait(step.path, _spec(step).on, known=True)
        return await self._turn(
            ops.RejectSignal, run_id, path=step.path, wait=again, reason="it does not fit"
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

    async def resend(self, at: int, to: str | None) -> ops.ResendDeadLetter:
        letters = [one.dead_letter_id for one in await self.store.dead_letters(None, "", 100)]
        # Ids that a store made itself are not the same everywhere.
        ours = [one for one in letters if one.startswith("signal-")] or ["nothing"]
        return ops.ResendDeadLetter(
            dead_letter_id=ours[at % len(ours)], signal_id=self._fresh("signal"), run_id=to
        )

    async def declare(self, policy: Any, strict: bool) -> ops.Declare:
        line = declared(workflow="refunds", strict=strict, go=entry(policy, ttl="4s"))
        return ops.Declare(workflows=(line,))

    async def prune(self, age_s: int, limit: int) -> ops.Prune:
        return ops.Prune(finished_before=self.clock.now() - age_s * SECOND, limit=limit)


def _wait(path: str, on: tuple[Condition, ...], *, known: bool) -> ops.Wait:
    return ops.Wait(path=path, kind="wait", name="w", on=on, known=known)


def _spec(step: StepRecord) -> WaitSpec:
    return msgspec.json.decode(step.wait or "", type=WaitSpec)


# --- side by side ------------------------------------------------------------------------------------


class World:
    """A loop, a clock and a directory for the length of one example."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.directory = Path(tempfile.mkdtemp(prefix="perdure-"))
        self._files = 0
        self._batches = 0

    def wait_for(self, awaited: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run_until_complete(awaited)

    def advance(self, seconds: int) -> None:
        self.clock.set(self.clock.now() + seconds * SECOND)

    def memory(self, home: str | None) -> MemoryStore:
        store = MemoryStore(clock=self.clock, ids=Ids(self.clock, random.Random(7)))
        store.worker_id = home
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
        store.worker_id = home
        self.wait_for(store.open())
        return store

    def apply(self, store: Store, *batch: ops.Op[Any]) -> Any:
        """The answers and wakes of a batch, comparable; or that it failed."""
        try:
            return comparable(self.answers(store, *batch))
        except BatchFailed:
            return "failed"

    def answers(self, store: Store, *batch: ops.Op[Any]) -> list[Applied]:
        self._batches += 1
        return self.wait_for(store.apply(f"batch-{self._batches}", batch))

    def shown(self, store: Store) -> Any:
        return normal(self.wait_for(dump(store)))

    def end(self, *stores: Store) -> None:
        for store in stores:
            self.wait_for(store.close())
        self.wait_for(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.directory)


def _rule(name: str) -> Any:
    def act(self: "Agreement", **params: Any) -> None:
        self.act((name, params))

    act.__name__ = name
    return rule(**{one: st.sampled_from(of) for one, of in MOVES[name][1].items()})(act)


class Agreement(RuleBasedStateMachine):
    """Memory and SQLite side by side."""

    @initialize(home=st.sampled_from((None, "w1")))
    def open(self, home: str | None) -> None:
        self.world = World()
        self.home = home
        self.memory = self.world.memory(home)
        self.sqlite = self.world.sqlite(home)
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
        self.check()

    def check(self) -> None:
        shown = self.world.shown(self.memory)
        assert self.world.shown(self.sqlite) == shown
        broken = self.world.wait_for(check_invariants(self.memory))
        assert not broken, broken
        orphans = [self.world.wait_for(store.has_orphans()) for store in (self.memory, self.sqlite)]
        assert orphans[0] == orphans[1]

    start = _rule("start")
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

    @rule(seconds=st.integers(1, 15))
    def advance(self, seconds: int) -> None:
        self.world.advance(seconds)

    @rule(which=st.sampled_from(WHICH))
    def record_twice(self, which: int) -> None:
        """A defect of ours must fail its batch and change nothing."""
        twice = self.world.wait_for(self.planner.plan(("record_twice", {"which": which})))
        if not isinstance(twice, ops.RecordStep):
            return
        for store in (self.memory, self.sqlite):
            assert self.world.apply(store, twice) == "failed"
        self.check()

    @rule()
    def crash(self) -> None:
        """What the files hold at this moment is all that is left."""
        crashed = self.sqlite
        self.sqlite = self.world.sqlite(self.home, copy_of=crashed.path)
        self.world.wait_for(crashed.close())
        self.both(ops.Beat(worker_id="w1", lease_us=LEASE_US))

    @rule()
    def reopen(self) -> None:
        self.world.wait_for(self.sqlite.close())
        self.world.wait_for(self.sqlite.open())
        self.both(ops.Beat(worker_id="w1", lease_us=LEASE_US))

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.end(self.memory, self.sqlite)


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(settings.default, stateful_step_count=30)


# --- fused and one by one ----------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32), home=st.sampled_from((None, "w1")))
def test_a_batch_is_its_ops_one_by_one(seed: int, home: str | None) -> None:
    """Long lives: batches of 1 to 20 moves, with the clock moving between them."""
    chance = random.Random(seed)
    world = World()
    oracle, memory = world.memory(home), world.memory(home)
    single, fused = world.sqlite(home), world.sqlite(home)
    planner = Planner(oracle, world.clock)
    try:
        for _ in range(12):
            planned: list[ops.Op[Any]] = []
            expected: list[Applied] = []
            for move in [any_move(chance) for _ in range(chance.randint(1, 20))]:
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
            broken = world.wait_for(check_invariants(oracle))
            assert not broken, broken
            world.advance(chance.choice((0, 0, 1, 3, 15)))
    finally:
        world.end(oracle, memory, single, fused)
