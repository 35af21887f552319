"""Two apps on one file, as two processes would be: one owner for each consumer, and whoever is left goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from perdure import App, Batch, Context, Event


async def until(holds: Callable[[], Awaitable[bool] | bool]) -> None:
    async with asyncio.timeout(20):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)


def make(path: Path, seen: list[tuple[str, Any]], who: str) -> App:
    app = App(f"sqlite:///{path}/two.db")

    @app.consumer("c", "in.*")
    async def c(batch: Batch) -> None:
        for event in batch:
            seen.append((who, event.payload))
            batch.emit("out.a", event.payload)

    @app.on("in.*")
    @app.workflow
    async def flow(ctx: Context, event: Event) -> Any:
        return event.payload

    return app


async def look(app: App) -> None:
    """The slow poll, now."""
    worker = app._engine().worker
    assert worker is not None
    await worker.recovery.look(thorough=True)


async def outs(app: App) -> list[str]:
    return [one.payload for one in await app._engine().store.events(0, 1000, type="out.a")]


async def test_one_reads_and_the_other_takes_over(tmp_path: Path) -> None:
    seen: list[tuple[str, Any]] = []
    one, two = make(tmp_path, seen, "one"), make(tmp_path, seen, "two")
    async with two:
        async with one:
            for n in range(20):
                await (one if n % 2 else two).emit("in.a", n)
            await until(lambda: len(seen) == 20)
            assert {who for who, _ in seen} == {"two"}
            owners = {row.owner for row in await one.consumers()}
            assert owners == {two._engine().worker.worker_id}  # type: ignore[union-attr]
    async with one:
        async with two:
            await one.emit("in.a", 20)
            await until(lambda: len(seen) == 21)
            assert seen[-1] == ("one", 20)
            await one.__aexit__(None, None, None)
            await two.emit("in.a", 21)
            await look(two)
            await until(lambda: len(seen) == 22)
            assert seen[-1] == ("two", 21)

            async def all_done() -> bool:
                """The handlers have been called, and what they asked for is committed."""
                ended = await two.runs(status="completed")
                return len(await outs(two)) == len(ended) == 22

            await until(all_done)
            assert sorted(map(int, await outs(two))) == list(range(22))


async def test_what_one_steers_the_other_hears(tmp_path: Path) -> None:
    seen: list[tuple[str, Any]] = []
    one, two = make(tmp_path, seen, "one"), make(tmp_path, seen, "two")
    async with one, two:
        await two.pause_consumer("c")
        await look(one)
        await one.emit("in.a", 1)
        # Nobody tells that a handler is not called: time enough for one that would be.
        await asyncio.sleep(0.1)
        assert seen == []
        await two.resume_consumer("c")
        await look(one)
        await until(lambda: seen == [("one", 1)])
        await two.rewind("c", "beginning")
        await look(one)
        await until(lambda: seen == [("one", 1)] * 2)
        await two.subscribe("other.*", "flow", name="late")
        event = await two.emit("other.a", 7)

        async def started() -> bool:
            runs = await two.runs()
            found = [await two._engine().store.run(run.id) for run in runs]
            return any(run is not None and run.event_id == event.event_id for run in found)

        await until(started)
