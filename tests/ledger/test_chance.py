"""The same promises when chance decides: crashes at any turn of the loop, subscribers that come at any moment."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from perdure import App, Batch, Context, Event, Retry


@pytest.mark.parametrize("seed", range(15))
async def test_crashes_at_any_moment_lose_nothing_and_double_nothing(
    world: Any, app: App, seed: int
) -> None:
    chance = random.Random(seed)

    @app.consumer("c", "in.*", batch=chance.randint(1, 5), retry=Retry(attempts=1))
    async def c(batch: Batch) -> None:
        for event in batch:
            batch.emit("out.a", event.payload)
            await asyncio.sleep(0)

    @app.on("in.*")
    @app.workflow
    async def flow(ctx: Context, event: Event) -> int:
        return int(event.payload)

    sent: list[int] = []
    for _ in range(6):
        w = await world(app, fanout=1).__aenter__()
        for _ in range(chance.randint(0, 6)):
            await w.emit_only("in.a", len(sent))
            sent.append(len(sent))
        for _ in range(chance.randint(0, 40)):
            await asyncio.sleep(0)
        await w.crash()
    async with world(app) as w:
        await w.advance("1m")
        outs = Counter(int(one.payload) for one in await w.facts("out.a"))
        assert outs == Counter(sent)
        runs = await w.app.runs(limit=1000)
        results = Counter([await w.app.run(one.id).result() for one in runs])
        assert results == Counter(sent)
        assert not await w.app.parked() and not await w.app.deferred()


@pytest.mark.parametrize("seed", range(15))
async def test_whoever_subscribes_before_an_event_is_asked_about_it(
    world: Any, app: App, seed: int
) -> None:
    chance = random.Random(seed)
    started: Counter[tuple[str, int]] = Counter()
    for name in "abc":

        @app.workflow(name=name)
        async def flow(ctx: Context, given: dict[str, Any]) -> None:
            started[given["name"], given["n"]] += 1

    async with world(app) as w:
        expected: Counter[tuple[str, int]] = Counter()
        there: list[str] = []

        async def emitter() -> None:
            for n in range(30):
                known = list(there)
                await w.emit_only("in.a", n)
                expected.update((name, n) for name in known)
                for _ in range(chance.randint(0, 3)):
                    await asyncio.sleep(0)

        async def subscriber(name: str) -> None:
            for _ in range(chance.randint(0, 60)):
                await asyncio.sleep(0)
            map = f"{{'name': '{name}', 'n': payload}}"
            await w.app.subscribe("in.*", name, name=name, map=map, start="now")
            there.append(name)

        await asyncio.gather(emitter(), *(subscriber(name) for name in "abc"))
        await w.settle()
        assert all(started[at] == 1 for at in expected)
        assert all(count == 1 for count in started.values())


@pytest.mark.parametrize("seed", range(15))
async def test_a_subscription_from_the_beginning_sees_everything_once(
    world: Any, app: App, seed: int
) -> None:
    chance = random.Random(seed)
    started: Counter[int] = Counter()

    @app.workflow
    async def flow(ctx: Context, given: dict[str, int]) -> None:
        started[given["n"]] += 1

    @app.on("other")  # so that the runner has something to read for all the while
    @app.workflow
    async def other(ctx: Context) -> None: ...

    async with world(app) as w:

        async def emitter() -> None:
            for n in range(30):
                await w.emit_only("in.a", n)
                for _ in range(chance.randint(0, 3)):
                    await asyncio.sleep(0)

        async def subscriber() -> None:
            for _ in range(chance.randint(0, 80)):
                await asyncio.sleep(0)
            await w.app.subscribe("in.*", "flow", name="s", map="{'n': payload}", start="beginning")

        await asyncio.gather(emitter(), subscriber())
        await w.settle()
        assert started == Counter(range(30))


@pytest.mark.parametrize("seed", range(10))
async def test_operators_who_steer_at_any_moment(world: Any, app: App, seed: int) -> None:
    chance = random.Random(seed)
    seen: set[int] = set()

    @app.consumer("c", "in.*", batch=3, dedupe=True)
    async def c(batch: Batch) -> None:
        await asyncio.sleep(0)
        for event in batch:
            batch.emit("out.a", event.payload)
        seen.update(event.payload for event in batch)

    async with world(app) as w:
        for n in range(40):
            await w.emit_only("in.a", n, key=f"k{n}")
            match chance.randint(0, 6):
                case 0:
                    await w.app.pause_consumer("c")
                case 1:
                    await w.app.resume_consumer("c")
                case 2:
                    await w.app.rewind("c", chance.randint(0, n))
            for _ in range(chance.randint(0, 5)):
                await asyncio.sleep(0)
        await w.app.rewind("c", "beginning")
        await w.app.resume_consumer("c")
        await w.settle()
        assert seen == set(range(40))
        # Keys make each event count once, however often the cursor went back.
        assert Counter(int(one.payload) for one in await w.facts("out.a")) == Counter(range(40))
