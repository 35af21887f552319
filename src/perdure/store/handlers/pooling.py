"""Pools: their limits, and who is let through from a line.

Slots that are taken are counted by an index, not kept as a number: whoever gives one back moves nothing that others
decide by, and a count that is too old can only be too high. Only admissions raise it, and they see each other: each
moves the state of its line, which the next one rests on.

Keys take turns, from the one after the last; within a key those that have begun come before new ones, then the higher
priority, then the oldest. A rate counts a run once, when it is first let through.
"""

from msgspec.structs import replace

from perdure.model import limits, ops
from perdure.model.outcomes import Admitted, Counted, Refusal, Wake
from perdure.model.pools import (
    UNLIMITED,
    PoolLimits,
    Rate,
    decode_limits,
    decode_state,
    encode_limits,
    encode_state,
    limits_of,
    line_scope,
    rate_scope,
)
from perdure.model.records import KeyRecord, PoolRecord, RunRecord
from perdure.store.handlers.facts import let_go, move
from perdure.store.tables import Tables

_none = encode_limits(UNLIMITED)


# --- rows ---


def declare_pools(tables: Tables, op: ops.DeclarePools) -> Counted:
    changed = 0
    for name, said in op.pools:
        known = tables.pool(name)
        if known is not None and op.only_new:
            continue
        new = known or _new_pool(tables, name)
        if said is not None and said != new.declared:
            new = replace(new, limits=said, declared=said)
        if new != known:
            _put(tables, new)
            changed += 1
    return Counted(changed)


def _new_pool(tables: Tables, name: str) -> PoolRecord:
    return PoolRecord(name=name, limits=_none, declared=None, created_at=tables.now)


def set_pool(tables: Tables, op: ops.SetPool) -> PoolRecord | Refusal:
    known = tables.pool(op.name)
    if known is None and op.limits is None:
        return Refusal("no_pool", op.name)
    new = known or _new_pool(tables, op.name)
    new = replace(new, limits=new.declared or _none if op.limits is None else _merged(new, op))
    if new != known:
        _put(tables, new)
    return new


def _merged(pool: PoolRecord, op: ops.SetPool) -> str:
    given = decode_limits(op.limits or _none)
    return encode_limits(
        replace(limits_of(pool), **{name: getattr(given, name) for name in op.fields})
    )


def _put(tables: Tables, pool: PoolRecord) -> None:
    tables.put_pool(pool)
    # More may be let through now; if there are no limits any more, all.
    tables.wakes.append(Wake("line", pool.name))


# --- admission ---


def admit_runs(tables: Tables, op: ops.AdmitRuns) -> Admitted:
    bounds = limits_of(tables.pool(op.pool))
    more = op.takes_back and not bounds.are_none and _take_back(tables, op)
    free = op.limit
    if bounds.limit is not None:
        free = min(free, bounds.limit - tables.slots_taken(op.pool, None))
    if free <= 0:
        return Admitted(0, more=more)
    admitted = _Admission(tables, op, bounds, free).made()
    return replace(admitted, more=admitted.more or more)


def _take_back(tables: Tables, op: ops.AdmitRuns) -> bool:
    """Put those in line who hold a slot and cannot use it; gives whether there may be more of them.

    Whoever was to start later when the pool had no limits yet does so until then; whoever was let through by a worker
    that is gone, and is of a workflow that nobody here knows, would do so for ever.
    """
    since = tables.now - limits.slot_unclaimed_us
    idle = tables.idle_slots(op.pool, op.workflows, since, op.limit)
    for run in idle:
        let_go(tables, run, run.ready_at or 0)
    return len(idle) == op.limit


class _Admission:
    """One look along the keys of a line, and who is let through."""

    def __init__(self, tables: Tables, op: ops.AdmitRuns, bounds: PoolLimits, free: int) -> None:
        self._tables = tables
        self._op = op
        self._bounds = bounds
        self._free = free
        kept = tables.key(line_scope(), op.pool)
        self._kept = self._state = decode_state(None if kept is None else kept.answer)
        rate = bounds.rate
        self._pool_tat = self._state.tat if rate is None else rate.held(self._state.tat, tables.now)
        self._next_at: int | None = None
        self._went_round = False

    def made(self) -> Admitted:
        # Where the rate is used up only those pass that it does not concern.
        begun = not self._is_due(self._bounds.rate, self._pool_tat)
        keys = self._keys_with_room(begun)
        quotas = _dealt(self._free, [room for _, room in keys])
        count, may_be_more = 0, not self._went_round
        for (key, room), quota in zip(keys, quotas, strict=True):
            if quota:
                admitted = self._admit_of(key, begun, quota)
                count += admitted
                may_be_more |= admitted == quota < room
                self._state = replace(self._state, key=key)
        self._keep_state(count)
        more = count == self._op.limit or (may_be_more and count < self._free)
        return Admitted(count, self._next_at, more)

    def _is_due(self, rate: Rate | None, tat: int) -> bool:
        """Whether a rate lets one more through now; if not, when is noted."""
        now = self._tables.now
        at = now if rate is None else rate.next_at(tat, now)
        if at <= now:
            return True
        self._next_at = at if self._next_at is None else min(self._next_at, at)
        return False

    # --- keys ---

    def _keys_with_room(self, begun: bool) -> list[tuple[str, int]]:
        """Keys with somebody in line, in the order of their turns, and how many of each may come; as many as needed."""
        found: list[tuple[str, int]] = []
        last, looked_at = self._state.key, 0
        after, upto = last, None
        while len(found) < self._free and looked_at < limits.admission_keys_max:
            part = min(max(self._free + 16, 64), limits.admission_keys_max - looked_at)
            page = self._tables.line_keys(self._op.pool, after, self._op.workflows, begun, part)
            held_back = set() if begun else self._held_back(page, after)
            for key, taken in page:
                if upto is not None and key > upto:
                    self._went_round = True
                    return found
                looked_at += 1
                room = 0 if key in held_back else self._room(taken)
                if room > 0:
                    found.append((key, room))
                elif len(found) < self._free:
                    self._state = replace(self._state, key=key)  # the next one goes on after it
            if len(page) == part:
                after = page[-1][0]
            elif last is None or upto is not None:
                self._went_round = True
                return found
            else:
                after, upto = None, last  # from the beginning, up to where it began
        return found[: self._free]

    def _room(self, taken: int) -> int:
        per_key = self._bounds.per_key
        return self._free if per_key is None else min(self._free, per_key - taken)

    def _held_back(self, page: list[tuple[str, int]], after: str | None) -> set[str]:
        """Keys of a page whose own rate is used up, with nobody in line whom it does not concern: they have no room.

        Asked of the whole page at once: a store may have to look each of them up.
        """
        rate = self._bounds.per_key_rate
        if rate is None:
            return set()
        used_up = {key for key, _ in page if not self._is_due(rate, self._bucket(rate, key))}
        if not used_up:
            return used_up
        op = self._op
        begun = self._tables.line_keys(op.pool, after, op.workflows, True, len(page))
        return used_up - {key for key, _ in begun}

    def _bucket(self, rate: Rate, key: str) -> int:
        """Where the bucket of a key stands. One that was left too far ahead is set right, or it would stay ahead."""
        kept = self._tables.key(rate_scope(self._op.pool), key)
        left = 0 if kept is None else int(kept.answer)
        tat = rate.held(left, self._tables.now)
        if tat != left:
            self._put_bucket(key, tat)
        return tat

    # --- runs ---

    def _admit_of(self, key: str, begun: bool, quota: int) -> int:
        tables, op, rate = self._tables, self._op, self._bounds.per_key_rate
        tat = before = 0 if rate is None else self._bucket(rate, key)
        only_begun = begun or not self._is_due(rate, tat)
        count = 0
        for run in tables.line_runs(op.pool, key, op.workflows, only_begun, quota):
            if not run.admitted:
                if not self._is_due(self._bounds.rate, self._pool_tat):
                    break
                if not self._is_due(rate, tat):
                    break
                if self._bounds.rate is not None:
                    self._pool_tat = self._bounds.rate.taken(self._pool_tat, tables.now)
                if rate is not None:
                    tat = rate.taken(tat, tables.now)
            self._admit(run)
            count += 1
        if tat != before:
            self._put_bucket(key, tat)
        return count

    def _admit(self, run: RunRecord) -> None:
        tables = self._tables
        move(tables, run, ready_at=tables.now, line_at=None, admitted=True)
        tables.wakes.append(Wake("ready", run.run_id))

    # --- what is kept ---

    def _keep_state(self, count: int) -> None:
        """Also when only the turn has moved on; nothing is written if nothing has."""
        state = replace(self._state, tat=self._pool_tat)
        if count or state != self._kept:
            self._tables.hold_line(self._op.pool)
            state = replace(state, turn=state.turn + 1)
            self._put_key(line_scope(), self._op.pool, encode_state(state), None)

    def _put_bucket(self, key: str, tat: int) -> None:
        self._put_key(rate_scope(self._op.pool), key, str(tat), tat)

    def _put_key(self, scope: str, key: str, answer: str, expires_at: int | None) -> None:
        tables = self._tables
        tables.delete_key(scope, key)
        tables.add_key(
            KeyRecord(
                scope=scope,
                key=key,
                digest=answer,
                answer=answer,
                run_id=None,
                created_at=tables.now,
                expires_at=expires_at,
            )
        )


def _dealt(free: int, rooms: list[int]) -> list[int]:
    """So many slots, dealt one by one by turns to those that have room."""
    quotas = [0] * len(rooms)
    while free > 0:
        open_ones = [nth for nth, room in enumerate(rooms) if quotas[nth] < room][:free]
        if not open_ones:
            break
        for nth in open_ones:
            quotas[nth] += 1
        free -= len(open_ones)
    return quotas
