"""An idle worker asks its store seldom: counted over a minute of a loop whose time leaps instead of passing."""

import asyncio
import selectors
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from perdure import App, Batch, Context, Event, Signal
from perdure.store.base import Store
from perdure.testing import VirtualClock

go = Signal("go", int)

_reads = [name for name in Store.__abstractmethods__ if name not in ("open", "close", "apply")]


class _Leaping(selectors.DefaultSelector):
    """Where others wait for a time to pass, it has passed."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found and timeout:
            self.skipped_s += timeout
        return found


class LeapingLoop(asyncio.SelectorEventLoop):
    """A loop that never sleeps: when nothing is to be done, its clock leaps to what comes next."""

    def __init__(self) -> None:
        self._leaps = _Leaping()
        super().__init__(self._leaps)

    def time(self) -> float:
        return super().time() + self._leaps.skipped_s


def leap(main: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.run(main())  # type: ignore[arg-type]


def busy_app() -> App:
    """One with all that looks at the store: a worker, a consumer, a subscription."""
    app = App("memory://")

    @app.consumer("c", "in.*")
    async def c(batch: Batch) -> None: ...

    @app.on("in.*")
    @app.workflow
    async def flow(ctx: Context, event: Event) -> Any:
        return await ctx.wait(go)

    return app


def counted(app: App) -> Counter[str]:
    """Counts what the store of an open app is asked."""
    store: Any = app._engine().store
    asked: Counter[str] = Counter()

    def count(name: str) -> None:
        read = getattr(store, name)

        def ask(*args: Any, **options: Any) -> Any:
            asked[name] += 1
            return read(*args, **options)

        setattr(store, name, ask)

    for name in [*_reads, "apply"]:
        count(name)
    return asked


def test_an_idle_worker_asks_less_than_twice_a_second_and_writes_nothing() -> None:
    async def idle() -> None:
        async with busy_app() as app:
            await app.emit("in.a", 1)
            await asyncio.sleep(10)
            asked = counted(app)
            await asyncio.sleep(60)
            assert asked["look"] > 45
            assert asked.total() < 100, asked
            assert not asked["apply"], asked

    leap(idle)


def test_workers_that_were_opened_together_do_not_look_together() -> None:
    async def crowd() -> None:
        loop = asyncio.get_running_loop()
        looks: list[list[float]] = []
        apps = [App("memory://") for _ in range(3)]
        for app in apps:
            await app.__aenter__()
            looks.append([])
            worker = app._engine().worker
            assert worker is not None
            told = looks[-1].append
            worker.recovery.hearers.append(lambda *heard, told=told: told(loop.time()))
        await asyncio.sleep(60)
        for app in apps:
            await app.__aexit__(None, None, None)
        assert all(45 < len(one) < 75 for one in looks)
        rounded = [{round(at, 2) for at in one} for one in looks]
        assert len(rounded[0] & rounded[1] & rounded[2]) < 3

    leap(crowd)


def test_how_often_it_looked_does_not_change_what_a_seed_leads_to() -> None:
    fences: list[int] = []

    async def idle_for(seconds: float) -> None:
        async with App("memory://", seed=3, clock=VirtualClock()) as app:
            await asyncio.sleep(seconds)
            fences.append(app._engine().ids.fence())

    for seconds in (0, 0.5, 30):
        leap(lambda seconds=seconds: idle_for(seconds))  # type: ignore[misc]
    assert len(set(fences)) == 1
