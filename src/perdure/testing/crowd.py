"""Several workers of one app on one store, in one test: what one does, the others find.

async with Crowd(app, workers=3) as crowd:
    run = await crowd.app.start(fulfil, order)
    await crowd.cut_off(crowd.app)               # its worker is taken for dead
    await crowd.advance("48h")
    assert await crowd.apps[1].run(run.id).status() == "completed"

Each has a store object of its own, as a process would. Where processes would hear of each other late, by looking at
the store now and then, a crowd looks at once: `settle` is over when every worker has looked and found nothing to do.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from perdure.app import App
from perdure.model import ops
from perdure.model.ids import Ids
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.testing.clock import VirtualClock
from perdure.testing.world import World

_lease = "366d"


class Crowd(World):
    """Copies of an app on one store (memory by default), with one clock. `apps` are all of them, `app` is the first."""

    def __init__(
        self,
        app: App,
        url: str = "memory://",
        *,
        workers: int = 2,
        clock: VirtualClock | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        # Time that a test moves must not make all of them look dead.
        options = {"lease": _lease, "grace": "5s", **options}
        super().__init__(app, url, clock=clock, seed=seed, **options)
        for number in range(1, workers):
            # Of one seed they would all make the same ids.
            own = None if seed is None else seed + number * 1_000_003
            self.apps.append(app.copy(url, clock=self.clock, seed=own, **options))
        self._kept: MemoryStore | None = None
        self._cut: dict[App, asyncio.Event] = {}
        self._commits = 0
        self._exit = AsyncExitStack()
        for one in self.apps:
            one._make_store = self._store_of(one)  # type: ignore[method-assign, assignment]

    def _store_of(self, app: App) -> Callable[[Ids], Store]:
        make = app._make_store

        def made(ids: Ids) -> Store:
            store = make(ids)
            if isinstance(store, MemoryStore):
                store = store if self._kept is None else self._kept.beside(ids)
                self._kept = store
            self._make_severable(app, store)
            return store

        return made

    def _make_severable(self, app: App, store: Store) -> None:
        """While the app is cut off, nothing of it reaches the store, and no answer comes back."""
        for name in sorted(Store.__abstractmethods__ - {"open", "close"}):
            setattr(store, name, self._through(app, getattr(store, name)))

    def _through(self, app: App, ask: Callable[..., Any]) -> Callable[..., Any]:
        async def asked(*args: Any, **options: Any) -> Any:
            if app in self._cut:
                await self._cut[app].wait()
            return await ask(*args, **options)

        return asked

    # --- life ---

    async def __aenter__(self) -> Self:
        try:
            for app in self.apps:
                await self._exit.enter_async_context(app)
                app._engine().coordinator.on_batch.append(self._count)
            await self.settle()
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for app in list(self._cut):
            self._cut.pop(app).set()
        await self._exit.aclose()

    def _count(self) -> None:
        self._commits += 1

    # --- time ---

    async def settle(self) -> None:
        """Let everything happen that can happen now, whoever has to find out what others did."""
        while True:
            await super().settle()
            before = self._commits
            for app in self.living:
                await _look(app)
            await super().settle()
            if self._commits == before:
                return

    @property
    def living(self) -> list[App]:
        """Those that are not cut off."""
        return [one for one in self.apps if one not in self._cut]

    # --- trouble ---

    async def cut_off(self, app: App) -> None:
        """Nothing that this app does reaches the store from now on, and its worker is taken for dead.

        So it is with a process that stands still, or a machine that lost its network, once the lease has run out. What
        it calls hangs. At least one worker must be left.
        """
        worker = app._engine().worker
        self._cut[app] = asyncio.Event()
        if worker is not None:
            farewell = ops.Beat(worker_id=worker.worker_id, lease_us=0, stopping=True)
            await self.living[0]._engine().coordinator.submit(farewell)
        await self.settle()

    async def mend(self, app: App) -> None:
        """It is back: what hung goes on, and is refused where others have taken over."""
        self._cut.pop(app).set()
        await self.settle()


async def _look(app: App) -> None:
    """What the slow polls would find by and by, now."""
    engine = app._engine()
    if engine.worker is not None:
        await engine.worker.recovery.look(thorough=True)
    await engine.upkeep.tell_endings(engine.coordinator.hub.awaited())
