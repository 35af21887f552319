"""Transactions: rows of one's own and the op that records them are committed together, or neither is.

For stores whose `transacts` is not None; such a one asks for it by name, beside the rest of the suite:

    from perdure.testing.conformance.transactions import Notes, TestTransactions

    @pytest.fixture
    def notes(d):
        return MyNotes(d.store)
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import pytest

from perdure.model import ops
from perdure.model.outcomes import Advanced, Fenced
from perdure.store.base import Applied, BatchFailed
from perdure.store.transaction import BodyFailed, Transaction, Withdrawn
from perdure.testing.conformance.driver import Driver
from perdure.testing.conformance.fixtures import Subject
from perdure.testing.conformance.words import done

Hook = Callable[[], None]


class Notes(Protocol):
    """A table of one's own in the store's database, that holds numbers."""

    def adding(self, number: int, then: Hook) -> Callable[[Any], Any]:
        """A body that adds a number, calls `then`, and gives the number: of the kind that the store runs."""
        ...

    async def kept(self) -> list[int]:
        """The numbers that are committed, in order."""
        ...


class Tried:
    """One transaction: what it asked for on the way, and its own batch."""

    def __init__(self, d: Driver, fence: int, body: Callable[[Any], Any], path: str) -> None:
        self.batch_id = d.fresh("batch")
        self.turns = 0
        self._d = d
        self._fence = fence
        self._path = path
        self.work = Transaction(body, self._made, self._turn)

    def _made(self, result: Any) -> tuple[ops.Op[Any], Any]:
        step = done(self._path, str(result))
        op = ops.RecordStep(run_id="r1", fence=self._fence, revision=0, steps=(step,))
        return op, result

    async def _turn(self) -> None:
        self.turns += 1
        assert (await self._d.store.load(["r1"]))[0][1] == [], "the turn comes before the commit"

    async def carry_out(self) -> Any:
        (applied,) = await self._d.store.transact(self.batch_id, self.work)
        assert isinstance(applied, Applied)
        self._d.heard.append(applied)
        return applied.outcome


def nothing() -> None:
    """Nothing happens in the midst of the body."""


@pytest.fixture
def notes() -> Notes:
    """To be overridden by the module that uses the suite."""
    raise pytest.UsageError("define a fixture notes: Notes, on the store that `d` drives")


class TestTransactions(Subject):
    @pytest.fixture
    def attempt(self, d: Driver, notes: Notes) -> Callable[..., Awaitable[Tried]]:
        """A transaction of the run r1 that adds a number to the notes."""

        async def made(
            number: int, then: Hook = nothing, *, path: str = "t", **stale: int
        ) -> Tried:
            if await d.store.run("r1") is None:
                await d.start("r1")
            fence = stale.get("fence", (await d.run("r1")).fence)
            return Tried(d, fence, notes.adding(number, then), path)

        return made

    async def test_rows_and_record_are_committed_together(
        self, d: Driver, notes: Notes, attempt: Any
    ) -> None:
        tried = await attempt(7)
        assert isinstance(await tried.carry_out(), Advanced)
        assert (await notes.kept(), (await d.step("r1", "t")).value) == ([7], "7")
        assert (tried.turns, tried.work.value) == (1, 7)
        assert await d.store.settle(tried.batch_id)

    async def test_what_the_body_raises_rolls_back_and_is_passed_on(
        self, d: Driver, notes: Notes, attempt: Any
    ) -> None:
        def fail() -> None:
            raise ZeroDivisionError("no")

        tried = await attempt(7, fail)
        with pytest.raises(BodyFailed) as failed:
            await tried.carry_out()
        assert isinstance(failed.value.error, ZeroDivisionError)
        assert (await notes.kept(), await d.store.history("r1")) == ([], [])
        assert not await d.store.settle(tried.batch_id)

    async def test_a_run_that_is_no_longer_the_senders_rolls_back(
        self, d: Driver, notes: Notes, attempt: Any
    ) -> None:
        tried = await attempt(7, fence=1)
        assert await tried.carry_out() == Fenced("r1", "running")
        assert (await notes.kept(), await d.store.history("r1")) == ([], [])
        assert not await d.store.settle(tried.batch_id)

    async def test_an_op_that_fails_rolls_back(self, d: Driver, notes: Notes, attempt: Any) -> None:
        tried = await attempt(7)
        second = Tried(d, (await d.run("r1")).fence, notes.adding(8, nothing), "t")
        await tried.carry_out()
        second.work.turn = _no_turn
        with pytest.raises(BatchFailed):
            await second.carry_out()
        assert (await notes.kept(), (await d.step("r1", "t")).value) == ([7], "7")

    async def test_one_that_is_withdrawn_leaves_nothing(
        self, d: Driver, notes: Notes, attempt: Any
    ) -> None:
        before = await attempt(7)
        assert before.work.withdraw()
        with pytest.raises(Withdrawn):
            await before.carry_out()
        within: Tried = await attempt(8, lambda: _withdraw(within))
        with pytest.raises(Withdrawn):
            await within.carry_out()
        assert (await notes.kept(), await d.store.history("r1")) == ([], [])

    async def test_once_it_is_committed_it_cannot_be_withdrawn(
        self, notes: Notes, attempt: Any
    ) -> None:
        tried = await attempt(7)
        await tried.carry_out()
        assert not tried.work.withdraw()
        assert await notes.kept() == [7]

    async def test_batches_before_and_after_it_see_each_other(
        self, d: Driver, notes: Notes, attempt: Any
    ) -> None:
        await d.start("r2")
        await (await attempt(7)).carry_out()
        await d.record("r2", done("a"))
        tried = await attempt(8, path="u")
        tried.work.turn = _no_turn
        await tried.carry_out()
        await d.finish("r1")
        await d.finish("r2")
        ((_, steps),) = await d.store.load(["r1"])
        first, second = sorted(steps, key=lambda one: one.path)
        assert first.seq < second.seq
        assert (await notes.kept(), await d.status("r1")) == ([7, 8], "completed")


def _withdraw(tried: Tried) -> None:
    assert tried.work.withdraw()


async def _no_turn() -> None:
    """Nobody else commits."""
