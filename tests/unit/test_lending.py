"""Connections that are used in turns: what becomes of those that are lent when all are to be closed."""

import asyncio
from typing import Any

import pytest

from perdure.store.postgres import lending
from perdure.store.postgres.lending import Pool


class Connection:
    """One whose resetting can hang."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def is_closed(self) -> bool:
        return "terminate" in self.said

    def terminate(self) -> None:
        self.said.append("terminate")

    async def close(self, **options: float) -> None:
        self.said.append("close")

    async def reset(self, **options: float) -> None:
        await self.gate.wait()
        self.said.append("reset")

    async def execute(self, text: str, **options: float) -> None:
        self.said.append(text)


def pool_of(made: list[Connection], size: int = 2, **options: Any) -> Pool:
    async def connect() -> Any:
        made.append(Connection())
        return made[-1]

    return Pool(connect, size, **options)


async def test_one_that_is_lent_for_too_long_does_not_keep_the_close_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lending, "_close_s", 0.01)
    made: list[Connection] = []
    pool = pool_of(made)
    async with pool.lent():
        async with pool.lent():
            pass
        await asyncio.wait_for(pool.close(), 5)
        assert [one.said for one in made] == [["terminate"], ["close"]]


async def test_it_is_given_to_the_next_only_when_it_was_reset() -> None:
    made: list[Connection] = []
    pool = pool_of(made, 1, resets=True)
    async with pool.lent():
        made[0].gate.clear()
    next_one = asyncio.ensure_future(pool.lent().__aenter__())
    await asyncio.sleep(0)
    assert not next_one.done()
    made[0].gate.set()
    await next_one
    assert made[0].said == ["reset", "discard temp"]


async def test_the_close_waits_for_a_reset_that_is_under_way() -> None:
    made: list[Connection] = []
    pool = pool_of(made, 1, resets=True)
    async with pool.lent():
        pass
    await pool.close()
    assert made[0].said == ["reset", "discard temp", "close"]
