"""Life signs in a thread: when a lease counts as lost, and who is told."""

import asyncio
import threading

import pytest

from perdure.store.beating import Beating


class Store:
    """Answers beats as a test says."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.answer: bool | Exception = True
        self.lost = asyncio.Event()
        self.beaten = threading.Event()

    def beat(self) -> bool:
        self.beaten.set()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def beating(self, every_s: float = 2.0) -> Beating:
        return Beating(
            self.beat,
            lease_s=10,
            every_s=every_s,
            on_lost=self.lost.set,
            monotonic=lambda: self.now_s,
        )


@pytest.fixture
async def store() -> Store:
    return Store()


async def test_a_lease_holds_while_beats_are_answered(store: Store) -> None:
    beating = store.beating()
    for _ in range(20):
        store.now_s += 2
        assert beating.holds()


async def test_it_is_lost_when_its_row_is_gone(store: Store) -> None:
    beating = store.beating()
    store.answer = False
    assert not beating.holds()


async def test_a_store_out_of_reach_costs_it_only_when_the_lease_is_over(store: Store) -> None:
    beating = store.beating()
    store.answer = ConnectionError("no")
    store.now_s = 9
    assert beating.holds()
    store.answer = True
    store.now_s = 9.5
    assert beating.holds()
    store.answer = ConnectionError("no")
    store.now_s = 19
    assert beating.holds()
    store.now_s = 19.5
    assert not beating.holds()


async def test_the_thread_tells_the_loop_once_and_ends(store: Store) -> None:
    beating = store.beating(every_s=0.001)
    store.answer = False
    beating.start()
    await asyncio.wait_for(store.lost.wait(), 10)
    beating.stop()


async def test_a_blocked_loop_does_not_keep_it_from_beating(store: Store) -> None:
    beating = store.beating(every_s=0.001)
    beating.start()
    # Nothing else runs in this loop meanwhile.
    assert store.beaten.wait(10)
    beating.stop()


async def test_once_stopped_it_tells_nothing(store: Store) -> None:
    beating = store.beating(every_s=0.001)
    store.answer = False
    beating.start()
    assert store.beaten.wait(10)
    beating.stop()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not store.lost.is_set()
