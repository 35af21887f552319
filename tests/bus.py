"""A bus between the stores of a crowd: what one commits, the others hear as hints; some are lost, doubled or late."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from perdure import App
from perdure.model.ids import Ids
from perdure.model.ops import Op
from perdure.model.outcomes import Wake
from perdure.store.base import Applied, Store
from perdure.testing import Crowd
from perdure.testing.conformance import check_invariants

STICKY_US = 250_000


class Bus:
    """Joins the stores of a crowd, before it is opened. Chances are between 0 and 1."""

    def __init__(self, crowd: Crowd, *, lost: float = 0, doubled: float = 0, seed: int = 0) -> None:
        self.lost = lost
        self.doubled = doubled
        self.passed: list[Wake] = []
        self._chance = random.Random(seed)
        self._stores: dict[App, Store] = {}
        for app in crowd.apps:
            app._make_store = self._joined(app)  # type: ignore[method-assign, assignment]

    def _joined(self, app: App) -> Callable[[Ids], Store]:
        make = app._make_store

        def made(ids: Ids) -> Store:
            store = make(ids)
            store.sticky_us, store.sends_hints = STICKY_US, True
            self._stores[app] = store
            store.apply = self._telling(store)  # type: ignore[method-assign]
            return store

        return made

    def _telling(self, store: Store) -> Any:
        apply = store.apply

        async def applied(batch_id: str, ops: Sequence[Op[Any]], *rest: Any) -> list[Applied]:
            before = store.head
            answers = await apply(batch_id, ops, *rest)
            for wake in [one for answer in answers for one in answer.wakes]:
                # Neither the result nor the run travels: whoever hears must look.
                self._tell(store, replace(wake, completion=None, run=None))
            if store.head > before:
                self._tell(store, Wake("events", at=store.head))
            return answers

        return applied

    def _tell(self, sender: Store, wake: Wake) -> None:
        for store in self._stores.values():
            if store is not sender and wake.kind not in ("claimed", "deadline"):
                for _ in range(1 + (self._chance.random() < self.doubled)):
                    if self._chance.random() >= self.lost:
                        asyncio.get_running_loop().call_soon(self._hear, store, wake)

    def _hear(self, store: Store, wake: Wake) -> None:
        if store.on_hint is not None:
            self.passed.append(wake)
            store.on_hint(wake)


async def broken(crowd: Crowd) -> list[str]:
    """The invariants that do not hold."""
    return await check_invariants(crowd.living[0]._engine().store)
