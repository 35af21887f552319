"""What a handler is given, and what it may ask for."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from perdure import (
    App,
    BadValue,
    Batch,
    BatchClosed,
    Context,
    Event,
    InvalidPayload,
    Overloaded,
    Signal,
    UnknownWorkflow,
    workflow,
)
from perdure.model import limits


def handle(app: App, act: Callable[[Batch], object], **options: Any) -> list[Batch]:
    """A consumer of `in.*` that does this with each batch."""
    batches: list[Batch] = []

    @app.consumer("c", "in.*", **options)
    async def c(batch: Batch) -> None:
        batches.append(batch)
        act(batch)

    return batches


async def test_a_batch_is_a_sequence_of_events(world: Any, app: App) -> None:
    batches = handle(app, lambda batch: None)
    async with world(app) as w:
        for n in range(3):
            await w.emit_only("in.a", {"n": n}, entity=f"order/{n}", key=f"k{n}")
        await w.emit("out.a")
        events = [event for batch in batches for event in batch]
        assert [event.payload["n"] for event in events] == [0, 1, 2]
        assert events[1].entity == "order/1" and events[1].key == "k1"
        batch = batches[-1]
        assert batch.consumer == "c" and batch.replay is False
        assert batch[-1] == events[-1] and batch[-1:] == (events[-1],)
        assert len(batch) == len(list(batch))
        assert "c" in repr(batch)


async def test_everything_a_handler_can_send(world: Any, app: App) -> None:
    done: list[Any] = []
    go = Signal("go", int)

    @app.workflow
    async def child(ctx: Context, n: int) -> None:
        done.append(("child", n))

    @app.workflow
    async def waiter(ctx: Context) -> int:
        return await ctx.wait(go)

    def act(batch: Batch) -> None:
        for event in batch:
            batch.start(child, event.payload, id=f"child-{event.payload}", tags={"a": "b"})
            batch.signal("w", go, event.payload)
            batch.emit("out.b", {"n": event.payload}, entity="order/1", key="once")
            batch.put("jobs", {"n": event.payload})

    handle(app, act)
    async with world(app) as w:
        run = await w.begin(waiter, id="w")
        event = await w.emit("in.a", 7)
        assert await run.result() == 7
        assert done == [("child", 7)]
        (out,) = await w.facts("out.b")
        assert msgspec.json.decode(out.payload) == {"n": 7} and out.key == "once"
        assert msgspec.json.decode(out.caused_by) == {"event_id": event.event_id, "consumer": "c"}
        assert (out.root_id, out.depth) == (event.event_id, 1)
        record = await w.store.run("child-7")
        assert (record.event_id, record.root_id, record.depth) == (
            event.event_id,
            event.event_id,
            1,
        )
        assert await w.store.queues() == {"jobs": 1}


async def test_the_cause_is_the_one_named_or_the_one_the_loop_stands_at_or_the_deepest(
    world: Any, app: App
) -> None:
    def act(batch: Batch) -> None:
        events = list(batch)
        batch.emit("out.after")
        for event in batch:
            batch.emit("out.loop", event.payload)
        batch.emit("out.named", cause=events[0])

    handle(app, act, every="* * * * *")
    async with world(app) as w:
        first = await w.emit_only("in.a", 1)
        from perdure.model.events import event_of

        deep = await w.emit_only("in.a", 2, caused_by=event_of(first))
        last = await w.emit_only("in.a", 3)
        await w.advance("1m")

        async def caused(type: str) -> list[Any]:
            facts = await w.facts(type)
            return [msgspec.json.decode(one.caused_by)["event_id"] for one in facts]

        assert await caused("out.loop") == [first.event_id, deep.event_id, last.event_id]
        assert await caused("out.named") == [first.event_id]
        assert await caused("out.after") == [deep.event_id]
        assert [one.depth for one in await w.facts("out.after")] == [2]
        assert [one.root_id for one in await w.facts("out.after")] == [first.event_id]


async def test_what_is_wrong_is_raised_in_the_handler_and_holds_nothing_up(
    world: Any, app: App
) -> None:
    go = Signal("go", int)
    errors: list[type[Exception]] = []

    @workflow
    async def stranger(ctx: Context) -> None: ...

    @app.workflow
    async def flow(ctx: Context, n: int) -> None: ...

    def act(batch: Batch) -> None:
        foreign = msgspec.structs.replace(batch[0], position=10**9)
        for wrong in (
            lambda: batch.start(stranger),
            lambda: batch.start(flow, "x"),  # type: ignore[arg-type]
            lambda: batch.signal("r", go, "x"),
            lambda: batch.signal("", "go"),
            lambda: batch.emit("workflow.mine"),
            lambda: batch.emit("a..b"),
            lambda: batch.put("", 1),
            lambda: batch.emit("out.a", cause=foreign),
            lambda: batch.dep(int),
        ):
            with pytest.raises(Exception) as caught:
                wrong()  # type: ignore[no-untyped-call]
            errors.append(caught.type)
        batch.emit("out.a", 1)

    handle(app, act)
    async with world(app) as w:
        await w.emit("in.a")
        assert errors == [UnknownWorkflow, InvalidPayload, InvalidPayload, *[BadValue] * 6]
        assert len(await w.facts("out.a")) == 1


async def test_a_batch_that_is_over_takes_nothing(world: Any, app: App) -> None:
    batches = handle(app, lambda batch: None)
    async with world(app) as w:
        await w.emit("in.a")
        with pytest.raises(BatchClosed, match="'c'"):
            batches[0].emit("out.a")
        await w.settle()
        assert await w.facts("out.a") == []


async def test_deps(world: Any, app: App) -> None:
    class Pool: ...

    pool = Pool()
    got: list[Any] = []
    handle(app, lambda batch: got.append(batch.dep(Pool)))
    async with world(app, deps=(pool,)) as w:
        await w.emit("in.a")
    assert got == [pool]


async def test_a_batch_holds_so_many_sends_and_no_more(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "effects_per_commit_max", 3)

    def act(batch: Batch) -> None:
        for event in batch:
            batch.emit("out.a", event.payload)
            batch.emit("out.a", event.payload)

    # Over the bound as one batch, under it one by one.
    handle(app, act, every="* * * * *")
    async with world(app) as w:
        for n in range(3):
            await w.emit_only("in.a", n)
        await w.advance("5m")
        assert len(await w.facts("out.a")) == 6
        assert not await w.app.parked()
    with pytest.raises(Overloaded, match="effects_per_commit_max"):
        from perdure.ledger.batches import Desk

        batch = Batch(Desk(app.registry, w_ids(), ()), "c", [an_event()])
        for _ in range(4):
            batch.put("q", 1)


def w_ids() -> Any:
    import random

    from perdure.model.ids import Ids
    from perdure.testing import VirtualClock

    return Ids(VirtualClock(), random.Random(1))


def an_event() -> Event:
    from perdure.testing import VirtualClock

    moment = VirtualClock().moment
    return Event(
        position=1,
        event_id="e",
        type="in.a",
        entity_type=None,
        entity_id=None,
        payload=None,
        occurred_at=moment,
        recorded_at=moment,
        root_id="e",
    )


async def test_an_effect_that_the_store_refuses_leaves_a_fact(world: Any, app: App) -> None:
    handle(app, lambda batch: batch.signal("nobody", "go"))
    async with world(app) as w:
        await w.emit("in.a")
        (fact,) = await w.facts("ledger.effect_refused")
        assert "nobody" in fact.payload and '"consumer":"c"' in fact.payload
