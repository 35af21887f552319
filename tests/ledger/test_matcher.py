"""The matcher of waits with filters: each event is asked about once, and what it keeps is bounded."""

from typing import Any

import pytest

from perdure import App, Context, Signal, TimedOut, Topic, timer
from perdure.ledger import filters
from perdure.ledger.expressions import Filter

number = Topic("n.t", int)
go = Signal("go", int)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions of the events that filters were asked about."""
    found: list[int] = []
    test = Filter.test

    def counted(self: Filter, event: Any) -> bool:
        found.append(event.position)
        return test(self, event)

    monkeypatch.setattr(Filter, "test", counted)
    return found


@pytest.mark.parametrize("ends", ["timeout", "signal"])
async def test_a_loop_of_waits_is_not_judged_from_the_beginning_each_time(
    world: Any, app: App, asked: list[int], ends: str
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> Any:
        rounds = 0
        while True:
            rounds += 1
            won = await ctx.wait(number.about(where="payload > 5", since="ever") | go | timer("1m"))
            if won == 9:
                return rounds

    async with world(app) as w:
        await w.app.emit_many([(number, 1) for _ in range(20)])
        run = await w.begin(flow)
        for n in range(5):
            if ends == "timeout":
                await w.advance("61s")
            else:
                await w.app.signal(run.id, go, n)
                await w.settle()
            await w.emit(number, 2)
        await w.emit(number, 9)
        assert await run.result() == 6
        assert len(asked) == len(set(asked)) == 26


async def test_an_event_after_a_deadline_is_left_for_the_next_wait(
    world: Any, app: App, asked: list[int]
) -> None:
    gate = Signal("gate", int)

    @app.workflow
    async def flow(ctx: Context) -> Any:
        first = await ctx.wait(number.about(where="payload > 5") | timer("1m"))
        await ctx.wait(gate)
        return isinstance(first, TimedOut), await ctx.wait(number.about(where="payload > 5"))

    async with world(app) as w:
        run = await w.begin(flow)
        await w.emit(number, 1)
        await w.app.run(run.id).pause()
        await w.advance("2m")
        await w.emit(number, 7)
        await w.app.run(run.id).resume()
        await w.settle()
        await w.app.signal(run.id, gate, 1)
        await w.settle()
        assert await run.result() == (True, 7)


async def test_an_event_costs_no_read_for_each_wait_that_it_does_not_concern(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.workflow
    async def flow(ctx: Context, n: int) -> int:
        return await ctx.wait(number.about(f"thing/{n}", where="payload > 5"))

    async with world(app) as w:
        runs = [await w.begin(flow, n) for n in range(30)]
        await w.emit(number, 1, entity="thing/0")
        reads: list[Any] = []
        store = w.app._engine().store
        events = store.events

        async def counted(*args: Any, **options: Any) -> Any:
            if "type" in options:
                reads.append(options["entity"])
            return await events(*args, **options)

        monkeypatch.setattr(store, "events", counted)
        await w.emit("another.topic", 7)
        await w.emit(number, 7)
        await w.emit(number, 7, entity="thing/elsewhere")
        assert reads == []
        await w.app.emit_many([(number, n, f"thing/{n}") for n in range(5, 8)])
        await w.settle()
        assert len(reads) == len(set(reads)) == 3
        ended = [n for n, run in enumerate(runs) if await run.status() == "completed"]
        assert ended == [6, 7]
        await w.emit(number, 8, entity="thing/5")
        assert await runs[5].result() == 8


async def test_what_is_remembered_of_waits_is_bounded(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "_passed_by_max", 10)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.wait(number.about(where="payload > 5") | timer("1m"))

    async with world(app) as w:
        for _ in range(30):
            await w.begin(flow)
        await w.emit(number, 1)
        await w.advance("2m")
        matcher = w.app._engine().matcher
        assert len(matcher._passed_by) == 10 and not matcher._known and not matcher._opened
