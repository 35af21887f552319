"""`Pool`: what runs share, as code declares it.

A pool is declared where it is used, `@app.workflow(pool=Pool("gpu", limit=4))`, or by the worker that serves it,
`App(pools=[Pool("gpu", limit=4)])`. A name alone says nothing about limits: whoever says more decides.
"""

from collections.abc import Iterable, Sequence

from perdure.model.limits import BadValue, check_name
from perdure.model.pools import PoolLimits, checked_limits, encode_limits


class Pool:
    """A pool of a name, and what bounds the runs in it.

    `limit` runs of it go at a time, `per_key` of each key; `rate` ("100/1m") bounds how many begin, `per_key_rate` how
    many of each key.
    """

    def __init__(
        self,
        name: str,
        *,
        limit: int | None = None,
        per_key: int | None = None,
        rate: str | None = None,
        per_key_rate: str | None = None,
    ) -> None:
        self.name = check_name("pool", name)
        self.limits: PoolLimits = checked_limits(limit, per_key, rate, per_key_rate)

    def __repr__(self) -> str:
        said = {name: value for name, value in self.limits.said().items() if value is not None}
        return f"Pool({', '.join([repr(self.name), *(f'{name}={value!r}' for name, value in said.items())])})"

    @property
    def declared(self) -> str | None:
        """The limits as they are stored; None if this is a name alone."""
        return None if self.limits.are_none else encode_limits(self.limits)


def checked_pool(value: Pool | str) -> Pool | None:
    """A pool as it is named in code; None for the empty name, that of no pool."""
    if isinstance(value, Pool):
        return value
    if value == "":
        return None
    if not isinstance(value, str):
        raise BadValue("pool", value, "must be a Pool or the name of one")
    return Pool(value)


def checked_pools(pools: Sequence[Pool | str]) -> tuple[Pool | str, ...]:
    """The pools of an app, as they were given; raises BadValue."""
    if isinstance(pools, str) or not isinstance(pools, Sequence):
        raise BadValue("pools", pools, "must be a list of Pool objects and names")
    declared_by(pools)
    return tuple(pools)


def served_by(pools: Iterable[Pool | str] | None) -> frozenset[str] | None:
    """The names of the pools that a worker serves, "" for the runs in none; None: all."""
    if pools is None:
        return None
    found = [checked_pool(one) for one in pools]
    return frozenset("" if one is None else one.name for one in found)


def declared_by(pools: Iterable[Pool | str | None]) -> tuple[tuple[str, str | None], ...]:
    """What code says about each pool that it names; raises BadValue if it says two things about one."""
    said: dict[str, str | None] = {}
    for one in pools:
        pool = None if one is None else checked_pool(one)
        if pool is None:
            continue
        before = said.get(pool.name)
        if before is not None and pool.declared not in (None, before):
            raise BadValue("pool", pool, "is declared twice, with other limits")
        said[pool.name] = before or pool.declared
    return tuple(sorted(said.items()))
