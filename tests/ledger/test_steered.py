"""Readers that are steered while they work: what an operator did last is what counts, from whatever process."""

from typing import Any

import pytest

from perdure import App, Batch, Context, Event, Retry
from perdure.model import ops


async def look(w: Any) -> None:
    """The slow poll, now."""
    await w.worker.recovery.look(thorough=True)
    await w.settle()


@pytest.mark.parametrize("hinted", [True, False])
async def test_a_rewind_while_a_subscription_catches_up_is_not_lost(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch, hinted: bool
) -> None:
    ran: list[str] = []

    @app.workflow
    async def flow(ctx: Context, event: Event) -> None:
        ran.append(event.payload)

    @app.workflow
    async def other(ctx: Context, event: Event) -> None: ...

    async with world(app) as w:
        await w.app.subscribe("x.*", flow, name="s", where="false")
        for n in "abc":
            await w.emit("x.a", n)
        await w.app.subscribe("x.*", flow, name="s", where="true")
        await w.settle()
        submit, rewound = w.coordinator.submit, []

        def steered(op: Any, *rest: Any) -> Any:
            if isinstance(op, ops.AdvanceCursor) and op.caught_up and not rewound:
                rewound.append(True)
                return rewind_first(op)
            return submit(op, *rest)

        async def rewind_first(op: Any) -> Any:
            rewind = ops.SteerConsumer(name="workflow_runner", position=0)
            if hinted:
                await submit(rewind)
            else:  # as another process would
                await w.store.apply("from-elsewhere", [rewind])
            return await submit(op)

        monkeypatch.setattr(w.coordinator, "submit", steered)
        await w.app.subscribe("x.*", other, name="late", start="beginning")
        await w.settle()
        await look(w)
        assert rewound and ran == ["a", "b", "c"]


async def test_a_pause_while_a_rewind_is_being_read_is_not_lost(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    @app.consumer("c", "x.*", batch=1)
    async def handle(batch: Batch) -> None:
        seen.append(batch[0].payload)

    async with world(app) as w:
        for n in range(3):
            await w.emit("x.a", n)
        read, paused = w.store.consumers, []

        async def late() -> Any:
            rows = await read()
            if not paused:
                paused.append(True)
                await w.app.pause_consumer("c")
            return rows

        monkeypatch.setattr(w.store, "consumers", late)
        await w.app.rewind("c", "beginning")
        await w.settle()
        assert paused and seen == [0, 1, 2]
        await w.app.resume_consumer("c")
        await w.settle()
        assert seen == [0, 1, 2] * 2


async def test_a_pause_stops_a_batch_that_is_dealt_with_one_by_one(world: Any, app: App) -> None:
    calls: list[int] = []

    @app.consumer("c", "x.*", retry=Retry(attempts=1))
    async def handle(batch: Batch) -> None:
        calls.append(len(batch))
        if len(batch) > 1:
            raise ValueError("too many at once")
        if calls.count(1) == 2:
            await w.app.pause_consumer("c")

    async with world(app) as w:
        await w.app.emit_many([("x.a", n) for n in range(5)])
        await w.settle()
        assert calls == [5, 1, 1]
        await w.app.resume_consumer("c")
        await w.settle()
        assert calls == [5, 1, 1, 3, 1, 1, 1] and not await w.app.parked("c")


def failing(app: App, attempts: int) -> list[int]:
    """A consumer "c" that never succeeds; its calls."""
    calls: list[int] = []

    @app.consumer("c", "x.*", retry=Retry(attempts=attempts, backoff="1m", jitter=0))
    async def handle(batch: Batch) -> None:
        calls.append(1)
        raise ValueError("never")

    return calls


async def test_a_hint_that_proves_empty_costs_a_batch_no_tries(world: Any, app: App) -> None:
    calls = failing(app, 3)
    async with world(app) as w:
        await w.emit("x.a")
        await w.app.resume_consumer("c")  # it is not paused
        await w.settle()
        assert len(calls) == 1
        await w.advance("10m")
        assert len(calls) == 3 and len(await w.app.parked("c")) == 1


async def test_a_pause_ends_the_waiting_for_the_next_try(world: Any, app: App) -> None:
    calls = failing(app, 2)
    async with world(app) as w:
        await w.emit("x.a")
        await w.app.pause_consumer("c")
        await w.advance("10m")
        assert len(calls) == 1 and not await w.app.parked("c")
        await w.app.resume_consumer("c")
        await w.advance("10m")
        assert len(await w.app.parked("c")) == 1


@pytest.mark.parametrize("hinted", [True, False])
async def test_a_rewind_to_where_the_row_stands_reads_again_what_was_passed_over(
    world: Any, app: App, hinted: bool
) -> None:
    ran: list[str] = []

    @app.workflow
    async def flow(ctx: Context, event: Event) -> None:
        ran.append(event.payload)

    async with world(app) as w:
        await w.app.subscribe("x.*", flow, name="s", where="false")
        await w.emit("x.a", "a")
        await w.app.subscribe("x.*", flow, name="s", where="true")
        await w.settle()
        (row,) = await w.store.consumers()
        assert row.position == 0  # what nothing wants is passed over in memory
        if hinted:
            await w.app.rewind("workflow_runner", "beginning")
        else:
            rewind = ops.SteerConsumer(name="workflow_runner", position=0)
            await w.store.apply("from-elsewhere", [rewind])
        await look(w)
        assert ran == ["a"]


async def test_a_batch_under_way_when_its_consumer_is_rewound_is_not_committed(
    world: Any, app: App
) -> None:
    calls: list[list[int]] = []

    @app.consumer("c", "x.*")
    async def handle(batch: Batch) -> None:
        calls.append([event.payload for event in batch])
        batch.emit("out", len(calls))
        if len(calls) == 1:
            await w.app.rewind("c", "beginning")  # where its row stands

    async with world(app) as w:
        await w.emit("x.a", 1)
        assert calls == [[1], [1]]
        assert [one.payload for one in await w.facts("out")] == ["2"]


async def test_a_rewind_of_a_schedule_waits_for_its_tick(world: Any, app: App) -> None:
    calls: list[int] = []

    @app.consumer("c", "x.*", every="0 * * * *")
    async def handle(batch: Batch) -> None:
        calls.append(len(batch))

    async with world(app) as w:
        await w.emit("x.a")
        await w.advance("61m")
        assert calls == [1]
        await w.app.rewind("c", "beginning")
        await w.settle()
        assert calls == [1]
        await w.advance("1h")
        assert calls == [1, 1]


async def test_a_paused_runner_starts_nothing_in_a_process_that_does_not_own_it(
    world: Any, app: App
) -> None:
    ran: list[str] = []

    @app.on("x.*", name="s", where=lambda event: True)
    @app.workflow
    async def flow(ctx: Context, event: Event) -> None:
        ran.append(event.payload)

    async with world(app, worker=False) as w:
        await w.put_off_elsewhere(await w.emit("x.a", 1), "s")
        await w.app.pause_consumer("workflow_runner")
    async with world(app) as w:
        await look(w)
        assert ran == []
        await w.app.resume_consumer("workflow_runner")
        await look(w)
        assert ran == [1]
