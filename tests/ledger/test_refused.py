"""Commits of readers that the store does not take, or whose outcome is not known: nothing is stuck, lost or doubled."""

from collections.abc import Callable
from typing import Any

import pytest

from perdure import App, Batch, Context, Event, Retry, service
from perdure.model import ops
from perdure.store.base import BatchFailed, BatchUnknown


def refuse(w: Any, monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[Any], bool]) -> None:
    """The store takes no batch with such an op."""
    apply = w.store.apply

    async def picky(batch_id: str, batch: Any, decided: Any = None) -> Any:
        if any(is_bad(op) for op in batch):
            raise BatchFailed("string or blob too big")
        return await apply(batch_id, batch, decided)

    monkeypatch.setattr(w.store, "apply", picky)


def effects_of(op: Any) -> tuple[Any, ...]:
    if isinstance(op, ops.AdvanceCursor | ops.CommitEffects):
        return tuple(one.op for one in op.effects)
    return tuple(one[2] for one in op.starts) if isinstance(op, ops.DrainDeferred) else ()


def has_input(text: str) -> Callable[[Any], bool]:
    return lambda op: any(
        isinstance(one, ops.StartRun) and text in one.input for one in effects_of(op)
    )


def echo(app: App, backoff: str) -> None:
    """A consumer "c" that emits what it reads."""

    @app.consumer("c", "x.*", retry=Retry(attempts=2, backoff=backoff))
    async def handle(batch: Batch) -> None:
        for event in batch:
            batch.emit("out", event.payload)


async def test_what_a_store_does_not_take_of_a_handler_is_parked(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo(app, backoff="10ms")

    def is_bad(op: Any) -> bool:
        return any(one.events[0].payload == "2" for one in effects_of(op))

    async with world(app) as w:
        refuse(w, monkeypatch, is_bad)
        await w.app.emit_many([("x.a", n) for n in range(4)])
        await w.settle()
        assert "too big" in next(one.error for one in await w.app.consumers() if one.name == "c")
        await w.advance("1s")
        assert [one.payload for one in await w.facts("out")] == ["0", "1", "3"]
        (parked,) = await w.app.parked("c")
        assert "too big" in parked.reason
        await w.emit("x.a", 5)
        assert len(await w.facts("out")) == 4


async def test_a_store_that_takes_nothing_for_a_while_parks_nothing(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Or each restart of a reader would take twice as long as the one before, by the real clock.
    monkeypatch.setattr(service, "_pause_first_s", 0.0)
    echo(app, backoff="0s")
    refused: list[Any] = []

    def is_bad(op: Any) -> bool:
        bad = isinstance(op, ops.AdvanceCursor | ops.CommitEffects) and len(refused) < 12
        if bad:
            refused.append(op)
        return bad

    @app.on("x.*")
    @app.workflow
    async def flow(ctx: Context, event: Event) -> None: ...

    async with world(app) as w:
        refuse(w, monkeypatch, is_bad)
        await w.app.emit("x.a", 1)

        async def is_done() -> bool:
            return len(await w.facts("out")) == len(await w.app.runs()) == 1

        await w.until(is_done)
        assert len(refused) == 12 and not await w.app.parked()


async def test_a_start_that_a_store_does_not_take_holds_up_no_other(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []

    @app.workflow
    async def flow(ctx: Context, event: Any) -> None:
        ran.append(event["payload"])

    async with world(app) as w:
        await w.emit("x.a", "old")
        refuse(w, monkeypatch, has_input("bad"))
        await w.app.subscribe("x.*", flow, name="s", start="beginning")
        await w.app.emit_many([("x.a", one) for one in ("a", "bad", "b")])
        await w.settle()
        assert sorted(ran) == ["a", "b", "old"]
        (parked,) = await w.app.parked("workflow_runner")
        assert parked.subscription == "s" and "too big" in parked.reason
        await w.emit("x.a", "c")
        assert sorted(ran) == ["a", "b", "c", "old"]


async def test_a_start_that_a_store_does_not_take_and_whose_event_is_gone_parks_no_other_event(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    @app.on("x.*")
    @app.workflow
    async def flow(ctx: Context, event: Any) -> None:
        seen.append(event["payload"])

    async with world(app) as w:
        refuse(w, monkeypatch, has_input("bad"))
        events = w.store.events

        async def trimmed(after: int, limit: int, **options: Any) -> Any:
            found = await events(after, max(limit, 2), **options)
            if limit == 1:  # one event is looked for, and retention was forced over the bad one
                found = [one for one in found if "bad" not in one.payload]
            return found[:limit]

        monkeypatch.setattr(w.store, "events", trimmed)
        await w.app.emit_many([("x.a", "bad"), ("x.a", "fine")])
        await w.settle()
        assert seen == ["fine"]
        assert list(await w.app.parked()) == []


async def test_a_start_that_was_put_off_and_that_a_store_does_not_take_holds_up_no_other(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    @app.workflow
    async def flow(ctx: Context, name: dict[str, str]) -> None:
        ran.append(name["n"])

    async with world(app, fanout=1) as w:
        for n in range(4):
            await w.app.subscribe("x.*", flow, name=f"s{n}", map=f"{{'n': 'n{n}'}}")
        refuse(w, monkeypatch, has_input("n2"))
        await w.emit("x.a")
        await w.emit("x.a")
        assert sorted(ran) == ["n0", "n0", "n1", "n1", "n3", "n3"]
        assert [one.subscription for one in await w.app.parked("workflow_runner")] == ["s2", "s2"]
        assert not await w.app.deferred()


@pytest.mark.parametrize("happened", [True, False])
async def test_an_unknown_outcome_of_a_commit_neither_loses_nor_doubles(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch, happened: bool
) -> None:
    calls: list[int] = []

    @app.consumer("c", "x.*", batch=1)
    async def handle(batch: Batch) -> None:
        calls.append(batch[0].payload)
        batch.emit("out", batch[0].payload)

    async with world(app) as w:
        apply, settle = w.store.apply, w.store.settle
        lost: list[int] = []

        async def unheard(batch_id: str, batch: Any, decided: Any = None) -> Any:
            cut = not lost and any(isinstance(op, ops.AdvanceCursor) and op.effects for op in batch)
            if not cut:
                return await apply(batch_id, batch, decided)
            lost.append(1)
            if happened:
                await apply(batch_id, batch, decided)
            raise BatchUnknown("the line is dead")

        async def unsettled(batch_id: str) -> bool:
            raise ConnectionError("the line is dead")

        monkeypatch.setattr(w.store, "apply", unheard)
        monkeypatch.setattr(w.store, "settle", unsettled)
        await w.app.emit_many([("x.a", n) for n in range(3)])

        async def is_done() -> bool:
            return len(await w.facts("out")) == 3

        await w.until(is_done)
        await w.settle()
        assert [one.payload for one in await w.facts("out")] == ["0", "1", "2"]
        assert calls == ([0, 1, 2] if happened else [0, 0, 1, 2])
        monkeypatch.setattr(w.store, "settle", settle)


async def test_an_app_closes_though_a_cursor_cannot_be_saved(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.consumer("c", "x.*")
    async def handle(batch: Batch) -> None: ...

    async with world(app) as w:
        await w.emit("y.a")  # passed over, in memory
        refuse(w, monkeypatch, lambda op: isinstance(op, ops.AdvanceCursor))
