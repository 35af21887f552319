"""Two apps on one SQLite file that do not tell each other what they do: each has to find out."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from perdure import App, Conflict, Context, Event, RunCancelled, Signal, upkeep

go = Signal("go", int, buffer="all")

shop = App("memory://")


@shop.workflow
async def waiter(ctx: Context) -> int:
    return await ctx.wait(go)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_endings_soon_s", 0.01)


@pytest_asyncio.fixture
async def ours(tmp_path: Path) -> AsyncIterator[App]:
    async with shop.copy(f"sqlite:///{tmp_path}/a.db?notify=0", resident=2) as app:
        yield app


@pytest_asyncio.fixture
async def theirs(tmp_path: Path, ours: App) -> AsyncIterator[App]:
    async with shop.copy(ours.url) as app:
        yield app


async def parked(app: App, run_id: str) -> Any:
    """A run that waits in this app's memory."""
    run = await app.start(waiter, id=run_id)
    await until(lambda: run_id in worker_of(app)._parked)
    return run


def worker_of(app: App) -> Any:
    return app._engine().worker


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 (another app's commit tells nobody here)
            await asyncio.sleep(0.001)


async def test_the_end_of_a_run_that_we_hold_is_heard_though_they_ended_it(
    ours: App, theirs: App
) -> None:
    run = await parked(ours, "a")
    result = asyncio.ensure_future(run.result(timeout="10s"))
    await theirs.run("a").terminate("enough")
    with pytest.raises(RunCancelled, match="enough"):
        await result


async def test_a_run_that_they_took_over_leaves_our_memory_and_its_place_is_free(
    ours: App, theirs: App
) -> None:
    await parked(ours, "a")
    await theirs.run("a").terminate()
    for name in ("b", "c"):
        await parked(ours, name)
    # One too many: the least recently used goes, and the store says that it is not ours to give back.
    await until(lambda: worker_of(ours)._executions.keys() == {"b", "c"})
    assert worker_of(ours)._active() == 0


async def test_a_subscription_of_code_is_not_changed_by_who_lacks_the_code(tmp_path: Path) -> None:
    """Else whoever looks after the store sends the events of a program elsewhere, until it is started anew."""
    app = App(f"sqlite:///{tmp_path}/a.db")

    @app.on("order.*")
    @app.workflow
    async def ship(ctx: Context, event: Event) -> None: ...

    async with app, App(app.url, worker=False) as operator:
        (row,) = await operator.subscriptions()
        assert (row.declared, row.code) == (True, False)
        with pytest.raises(Conflict, match="is declared in code; change it there"):
            await operator.subscribe("user.*", "ship", name=row.name)
        assert await operator.subscriptions() == [row]
        await operator.enable_subscription(row.name, False)
        assert await operator.unsubscribe(row.name)
        await operator.subscribe("user.*", "ship", name=row.name)  # it is nobody's code any more
        assert not (await operator.subscriptions())[0].declared
