"""From ops to a commit: look, decide, have it compared and written; if it was overtaken, look and decide anew.

A decision is made by the shared handlers and changes nothing, so it can be made as often as it takes. If a handler asks
for what nobody foresaw, the decision does not count; it is gone through to the end all the same, to learn what else
will be asked for, so that the number of looks does not grow with the batch.
"""

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from perdure.model import ops
from perdure.model.ids import Ids
from perdure.model.ops import Op
from perdure.model.outcomes import Claimed
from perdure.model.pools import line_scope
from perdure.model.ticks import schedule_of
from perdure.store.base import Applied, BatchFailed
from perdure.store.handlers import HANDLERS
from perdure.store.handlers.facts import FACTS
from perdure.store.optimistic.changes import Changes, Conflict, Written
from perdure.store.optimistic.known import FAN_OUTS, Known
from perdure.store.optimistic.needs import Incomplete, Looks, Need
from perdure.store.optimistic.placing import EXACT, Placing
from perdure.store.optimistic.tables import OptimisticTables
from perdure.store.optimistic.wait_rows import queue_part, watching
from perdure.store.prefetch import Wanted, wanted

log = logging.getLogger("perdure.store")

# A decision is made anew for each unforeseen look that depends on the one before: a handful.
_looks_max = 64
# Each time it is overtaken a batch has lost against one that was written: somebody got on. After so many times all
# others have to wait for it.
_overtaken_max = 8
_pause_s = 0.002


Commit = Callable[[Changes], Awaitable[Written | Conflict]]
Fetch = Callable[[Looks, Iterable[Need]], Awaitable[None]]


class Overtaken(BatchFailed):
    """Others were quicker each time: nothing was written."""


class Backend(ABC):
    """What a store that decides optimistically must be able to do."""

    worker_id: str | None
    sticky_us: int
    living: frozenset[str] | None = None  # the workers, as the last look said

    @abstractmethod
    async def fetch(self, looks: Looks, needs: Iterable[Need]) -> None:
        """Look all of this up and leave it in what is known, or among the answers."""

    @abstractmethod
    async def commit(self, changes: Changes) -> Written | Conflict:
        """Take the locks, compare, write and commit; or change nothing and tell what was overtaken."""

    @abstractmethod
    def alone(self) -> AbstractAsyncContextManager[None]:
        """Within it no other process writes, and what is written is committed at its end."""

    @abstractmethod
    def now(self) -> int:
        """The store's clock, as far as it is known here: never ahead of it."""


class Decider:
    """Applies batches, one after the other."""

    def __init__(self, backend: Backend, ids: Ids, lifecycle: bool) -> None:
        self.known = Known()
        self._backend = backend
        self._ids = ids
        self._lifecycle = lifecycle
        self.turn = asyncio.Lock()  # one batch at a time

    async def apply(
        self,
        batch_id: str,
        batch: Sequence[Op[Any]],
        decided: Callable[[], None] | None = None,
    ) -> list[Applied]:
        async with self.turn:
            try:
                written = await self.write(batch_id, batch, self._backend.commit, decided)
            except Overtaken:
                log.info(
                    "a batch of %d ops was overtaken again and again: it goes alone", len(batch)
                )
                async with self._backend.alone():
                    written = await self.write(batch_id, batch, self._backend.commit)
            return written.finish()

    async def write(
        self,
        batch_id: str,
        batch: Sequence[Op[Any]],
        commit: Commit,
        decided: Callable[[], None] | None = None,
        fetch: Fetch | None = None,
    ) -> "WrittenBatch":
        """Decide until it holds. Whoever calls has the turn, and finishes what was written once it is committed.

        Rows are looked up by `fetch` in place of the backend's own way, if one is given. Raises Overtaken if it never
        held.
        """
        fetch = fetch or self._backend.fetch
        for nth in range(_overtaken_max):
            tables, applied, changes = await self._decide(batch_id, batch, fetch)
            if decided is not None:
                asyncio.get_running_loop().call_soon(decided)
                decided = None
            answer = await self._commit(commit, changes)
            if isinstance(answer, Written):
                return WrittenBatch(self.known, tables, batch, applied, answer, changes.born)
            self._unlearn(answer)
            if nth:
                # Those who compete for the same rows must not meet again and again.
                await asyncio.sleep(random.random() * _pause_s * nth)
        raise Overtaken(f"overtaken {_overtaken_max} times by other processes")

    async def _commit(self, commit: Commit, changes: Changes) -> Written | Conflict:
        try:
            return await commit(changes)
        except BaseException:
            # Nobody knows what was written.
            self.known.forget()
            raise

    def _unlearn(self, conflict: Conflict) -> None:
        known = self.known
        for run_id in conflict.runs:
            known.runs.pop(run_id, None)
        for unit in conflict.units:
            known.drop_unit(unit)
        known.seq = max(known.seq, conflict.seq)
        known.head = max(known.head, conflict.head)

    # --- deciding ---

    async def _decide(
        self, batch_id: str, batch: Sequence[Op[Any]], fetch: Fetch
    ) -> tuple[OptimisticTables, list[Applied], Changes]:
        looks = Looks(self.known)
        exact = any(type(op) in EXACT for op in batch)
        needs: set[Need] = set(_foreseen(self.known, batch))
        now: int | None = None
        for _ in range(_looks_max):
            if needs:
                await fetch(looks, needs)
            if looks.are_overtaken:
                # What another process wrote between two looks. The newer is known by now; answers are asked for anew.
                looks = Looks(self.known)
                needs = set(_foreseen(self.known, batch))
                now = None
                continue
            if now is None:
                # One time for all looks: what is asked for may name it, and would be asked for anew for ever.
                now = self._backend.now()
            tables = OptimisticTables(
                looks,
                now=now,
                worker_id=self._backend.worker_id,
                lifecycle=self._lifecycle,
                sticky_us=self._backend.sticky_us,
                living=self._backend.living,
                ids=self._ids,
                exact=exact,
            )
            try:
                applied = _apply_ops(tables, batch)
                return tables, applied, tables.changes(batch_id)
            except Incomplete as incomplete:
                needs = incomplete.needs
            except Exception as error:
                raise BatchFailed(f"{type(error).__name__}: {error}") from error
        raise BatchFailed(f"a decision asked for more {_looks_max} times; last for {needs!r:.200}")


class WrittenBatch:
    """A batch that the store has taken: what it answers, and what is known by it, once it is committed."""

    def __init__(
        self,
        known: Known,
        tables: OptimisticTables,
        batch: Sequence[Op[Any]],
        applied: list[Applied],
        written: Written,
        born: int,
    ) -> None:
        self._known = known
        self._tables = tables
        self._batch = batch
        self.applied = applied  # as they were decided, with positions that have no place yet
        self._written = written
        self._born = born

    def finish(self) -> list[Applied]:
        """What follows a commit. Nothing here may make it look as if it had failed."""
        known, tables, written = self._known, self._tables, self._written
        placing = Placing(written.head)
        try:
            tables.remember(placing, self._born)
        except Exception:
            log.exception("after a commit")
            known.forget()
        known.head = max(known.head, placing.at(tables.last_position()))
        claims = iter(written.claimed)
        answers = []
        for op, answer in zip(self._batch, self.applied, strict=True):
            if op in tables.claims:
                slices, next_at = next(claims)
                for one in slices:
                    known.learn_run(one)
                answers.append(Applied(Claimed(tuple(one.run for one in slices), next_at), ()))
                continue
            outcome, wakes = placing.outcome(answer.outcome), placing.wakes(answer.wakes)
            if outcome is answer.outcome and wakes is answer.wakes:
                answers.append(answer)
            else:
                answers.append(Applied(outcome, wakes))
        return answers


def _apply_ops(tables: OptimisticTables, batch: Sequence[Op[Any]]) -> list[Applied]:
    applied: list[Applied] = []
    for op in batch:
        try:
            if type(op) is ops.ClaimRuns and not _is_built_on(op, batch):
                outcome: Any = tables.claim_at_the_end(op)
            else:
                outcome = HANDLERS[type(op)](tables, op)
        except Exception:
            # Where something is not known yet, the ops are only gone through to see what they ask for.
            if not tables.missing:
                raise
        else:
            applied.append(Applied(outcome, tuple(tables.wakes)))
        tables.wakes.clear()
    return applied


def _is_built_on(claim: ops.ClaimRuns, batch: Sequence[Op[Any]]) -> bool:
    """Whether another op of the batch acts on what a claim is still to bring; nobody but a test knows that so early."""
    return any(op is not claim and getattr(op, "fence", None) == claim.fence for op in batch)


# --- what is needed anyway ---


def _foreseen(known: Known, batch: Sequence[Op[Any]]) -> Iterable[Need]:
    """What the ops will ask for, judged from the ops alone; what is missed here is asked for by the handlers."""
    if FAN_OUTS not in known.units:
        yield ("fan_outs",)
        yield from (("topic", one) for one in FACTS if one not in known.topics)
    yield from _about_runs(known, wanted(batch))
    for op in batch:
        look = _looks.get(type(op))
        if look is not None:
            yield from look(known, op)


def _about_runs(known: Known, want: Wanted) -> Iterable[Need]:
    runs = known.runs
    yield from (("run", one) for one in want.runs - want.inside if one not in runs)
    for one in want.inside:
        kept = runs.get(one)
        if kept is None or kept.watchers is None:
            yield ("inside", one)
    for one in want.targets:
        kept = runs.get(one)
        if kept is None or kept.on_run is None:
            yield ("on_run", one)
    for one in want.streams:
        kept = runs.get(one)
        if kept is None or kept.streams is None:
            yield ("streams", one)
    yield from (("children", one) for one in want.parents)
    yield from (("key", *one) for one in want.keys)


def _emit(known: Known, op: ops.Emit) -> Iterable[Need]:
    for new in op.events:
        if new.type not in known.topics:
            yield ("topic", new.type)
        if not new.fresh:
            yield ("event", new.event_id)
        if ("topic", new.type) not in known.channels:
            yield ("channel", "topic", new.type)


def _put(known: Known, op: ops.Put) -> Iterable[Need]:
    yield ("queue", op.queue, queue_part)


def _suspend(known: Known, op: ops.Suspend) -> Iterable[Need]:
    for wait in op.waits:
        for condition in wait.on:
            if condition.kind == "topic" and condition.target not in known.topics:
                yield ("topic", condition.target)
            elif condition.kind == "queue":
                yield ("queue", condition.target, queue_part)


def _record_send(known: Known, op: ops.RecordSend) -> Iterable[Need]:
    look = _looks.get(type(op.send))
    if look is not None:
        yield from look(known, op.send)


def _apply_outbox(known: Known, op: ops.ApplyOutbox) -> Iterable[Need]:
    yield ("outbox", op.outbox_id)
    look = _looks.get(type(op.send))
    if look is not None:
        yield from look(known, op.send)


def _effects(known: Known, op: ops.AdvanceCursor | ops.CommitEffects) -> Iterable[Need]:
    yield ("consumer", op.name if isinstance(op, ops.AdvanceCursor) else op.consumer)
    for effect in op.effects:
        look = _looks.get(type(effect.op))
        if look is not None:
            yield from look(known, effect.op)


def _fan_out(known: Known, op: ops.FanOut) -> Iterable[Need]:
    for position in known.fan_outs[:1]:
        event = known.fan_out_events.get(position)
        if event is None:
            yield ("event_at", position)
        else:
            yield watching(event, op.limit + 1)


def _finish(known: Known, op: ops.Finish) -> Iterable[Need]:
    kept = known.runs.get(op.run_id)
    name = None if kept is None else schedule_of(kept.run.tags)
    if name is not None:
        yield ("schedule", name)


def _schedule(known: Known, op: Any) -> Iterable[Need]:
    yield ("schedule", op.name)


def _start_run(known: Known, op: ops.StartRun) -> Iterable[Need]:
    if op.pool and op.pool not in known.pools:
        yield ("pool", op.pool)


def _import_run(known: Known, op: ops.ImportRun) -> Iterable[Need]:
    if op.run.pool and op.run.pool not in known.pools:
        yield ("pool", op.run.pool)
    if op.forked_from is not None:
        yield from (("event", one.taken_id) for one in op.steps if one.taken_id is not None)


def _signal_with_start(known: Known, op: ops.SignalWithStart) -> Iterable[Need]:
    return _start_run(known, op.start)


def _admit_runs(known: Known, op: ops.AdmitRuns) -> Iterable[Need]:
    yield ("unit", "line", op.pool)
    yield ("key", line_scope(), op.pool)
    yield ("slots", op.pool, None)
    if op.pool not in known.pools:
        yield ("pool", op.pool)


_looks: dict[type, Callable[[Known, Any], Iterable[Need]]] = {
    ops.StartRun: _start_run,
    ops.SignalWithStart: _signal_with_start,
    ops.ImportRun: _import_run,
    ops.Suspend: _suspend,
    ops.RecordSend: _record_send,
    ops.Finish: _finish,
    ops.Emit: _emit,
    ops.Put: _put,
    ops.ApplyOutbox: _apply_outbox,
    ops.FanOut: _fan_out,
    ops.FireTimers: lambda known, op: [("deadlines", op.limit + 1), ("expiries", op.limit + 1)],
    ops.Recover: lambda known, op: [("orphans", (), op.limit), ("workers",)],
    ops.AdvanceCursor: _effects,
    ops.CommitEffects: _effects,
    ops.PutSchedule: lambda known, op: [("schedule", op.schedule.name)],
    ops.SteerSchedule: _schedule,
    ops.DropSchedule: _schedule,
    ops.TriggerSchedule: _schedule,
    ops.BackfillSchedule: _schedule,
    ops.AdmitRuns: _admit_runs,
}
