"""The verbs of an app that concern pools: to change their limits while they are in use, and to see who waits and why.

`Pooling` is the part of App that holds them. Limits are rows: a change counts for all processes from its commit on, and
takes nobody's slot away.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from perdure.engine import Engine
from perdure.errors import UnknownPool
from perdure.inputs import checked_limit
from perdure.model import limits, ops
from perdure.model.limits import BadValue, check_name
from perdure.model.outcomes import Refusal
from perdure.model.pools import checked_limits, encode_limits
from perdure.model.records import PoolRecord, RunRecord
from perdure.pools import Pool
from perdure.store.base import Store
from perdure.views import (
    Page,
    PoolInfo,
    SlotWait,
    decode_cursor,
    page,
    pool_info,
    slot_wait,
)

_kept: Final[Any] = object()  # stands for a limit that stays as it is


class Pooling:
    """What an App can do with pools."""

    _engine: Callable[[], Engine]

    async def set_pool(
        self,
        pool: str | Pool,
        *,
        limit: int | None = _kept,
        per_key: int | None = _kept,
        rate: str | None = _kept,
        per_key_rate: str | None = _kept,
    ) -> PoolInfo:
        """Change limits of a pool for all processes, from now on; None takes one away, those not named stay.

        A new pool is made. Lowered limits take nobody's slot away. The change stays until another one, `reset_pool`, or
        code that declares other limits than code declared before.
        """
        given: dict[str, Any] = {
            "limit": limit,
            "per_key": per_key,
            "rate": rate,
            "per_key_rate": per_key_rate,
        }
        said = {name: value for name, value in given.items() if value is not _kept}
        if not said:
            raise BadValue("set_pool", pool, "names no limit to be changed")
        engine = self._engine()
        name = _name_of(pool)
        await _check_room(engine.store, name)
        text = encode_limits(checked_limits(**said))
        row = await engine.coordinator.submit(
            ops.SetPool(name=name, limits=text, fields=tuple(said))
        )
        return await self._info(engine, name, row)

    async def reset_pool(self, pool: str | Pool) -> PoolInfo:
        """Set the limits of a pool back to what code declares."""
        engine = self._engine()
        name = _name_of(pool)
        row = await engine.coordinator.submit(ops.SetPool(name=name, limits=None))
        return await self._info(engine, name, row)

    async def _info(self, engine: Engine, name: str, row: PoolRecord | Refusal) -> PoolInfo:
        if isinstance(row, Refusal):
            raise UnknownPool(name)
        return pool_info(row, await engine.store.standing(name, []), engine.clock.now())

    async def pools(self) -> list[PoolInfo]:
        """All pools: their limits, slots that are taken, how many wait for one and since when."""
        engine = self._engine()
        store, now = engine.store, engine.clock.now()
        return [
            pool_info(row, await store.standing(row.name, []), now) for row in await store.pools()
        ]

    async def waiting_for_slot(
        self,
        pool: str | Pool,
        *,
        limit: int = limits.page_rows_default,
        after: str | None = None,
    ) -> Page[SlotWait]:
        """Who stands in the line of a pool, longest first, and why."""
        limit = checked_limit(limit)
        engine = self._engine()
        store = engine.store
        row = await pool_row(store, _name_of(pool))
        seen = decode_cursor(after, tuple[int, str]) if after is not None else None
        runs = await store.line(row.name, seen, limit + 1)
        waits = await slot_waits(store, row, runs, engine.clock.now())
        return page(
            runs, limit, lambda run: waits[run.run_id], lambda last: (last.line_at, last.run_id)
        )


def _name_of(pool: str | Pool) -> str:
    return pool.name if isinstance(pool, Pool) else check_name("pool", pool)


async def pool_row(store: Store, name: str) -> PoolRecord:
    """The row of a pool; raises UnknownPool."""
    for one in await store.pools():
        if one.name == name:
            return one
    raise UnknownPool(name)


async def _check_room(store: Store, name: str) -> None:
    names = {one.name for one in await store.pools()}
    if name not in names and len(names) >= limits.pools_max:
        most = f"a store has at most {limits.pools_max} (pools_max)"
        raise BadValue("pool", name, f"is one too many: {most}; use keys of a pool")


async def slot_waits(
    store: Store, pool: PoolRecord, runs: Sequence[RunRecord], now: int
) -> dict[str, SlotWait]:
    """Why each of these runs waits for a slot of its pool."""
    standing = await store.standing(pool.name, sorted({one.pool_key for one in runs}))
    return {one.run_id: slot_wait(one, pool, standing, now) for one in runs}
