"""Code that raises what it should not, stores that fail for a moment, pauses from elsewhere: readers go on."""

import asyncio
import functools
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from perdure import App, Batch, Context, Event, OutcomeUnknown, Retry, StoreRefused, Topic
from perdure.model import ops
from perdure.store.base import RunFilter, StoreBusy

number = Topic("n.t", int)


class Mute(Exception):
    """An error that has no words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Odd(BaseException):
    """What is not meant to be caught, and must not kill the engine's own loops."""


@pytest.fixture(autouse=True)
def unlogged() -> Iterator[None]:
    """What is logged of these errors is no text, and whoever collects the logs of tests wants text."""
    logger = logging.getLogger("perdure.ledger")
    logger.disabled = True
    yield
    logger.disabled = False


bad = pytest.mark.parametrize(
    "error",
    [ValueError("caf\udce9.txt"), ValueError("a\0b"), Mute(), Odd("once")],
    ids=["surrogate", "zero", "mute", "odd"],
)


@bad
async def test_whatever_a_handler_raises_its_event_is_parked(
    world: Any, app: App, error: BaseException
) -> None:
    seen: list[Any] = []

    @app.consumer("c", "x.*", batch=1, retry=Retry(attempts=2, backoff="10ms"))
    async def handle(batch: Batch) -> None:
        for event in batch:
            if event.payload == 1:
                raise error
            seen.append(event.payload)

    async with world(app) as w:
        await w.emit("x.a", 1)
        await w.emit("x.a", 2)
        await w.advance("1s")
        assert seen == [2] and len(await w.app.parked("c")) == 1


@bad
async def test_whatever_a_rule_raises_the_others_go_on(
    world: Any, app: App, error: BaseException
) -> None:
    seen: list[Any] = []

    def where(event: Event) -> bool:
        if event.payload == 1:
            raise error
        return True

    @app.on("x.*", where=where)
    @app.workflow
    async def flow(ctx: Context, event: Event) -> None:
        seen.append(event.payload)

    async with world(app) as w:
        await w.emit("x.a", 1)
        await w.emit("x.a", 2)
        assert seen == [2] and len(await w.app.parked()) == 1


async def test_whatever_a_filter_of_a_wait_raises_goes_to_its_workflow(
    world: Any, app: App
) -> None:
    def where(payload: int) -> bool:
        raise Odd("x")

    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(number.about(where=where))

    async with world(app) as w:
        run = await w.begin(flow)
        await w.emit("n.t", 1)
        assert await run.status() == "failed"


async def test_a_handler_that_swallows_its_cancel_does_not_hold_up_the_close(
    world: Any, app: App
) -> None:
    began = asyncio.Event()

    @app.consumer("c", "x.*")
    async def handle(batch: Batch) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

    async with asyncio.timeout(10), world(app) as w:
        await w.app.emit("x.a", 1)
        await began.wait()


async def test_a_pause_that_its_own_commit_shows_stops_a_reader(world: Any, app: App) -> None:
    seen: list[int] = []

    @app.consumer("c", "x.*", batch=1)
    async def handle(batch: Batch) -> None:
        seen.append(batch[0].payload)
        if len(seen) == 3:  # as another process would, whose hint does not reach us
            store = w.app._engine().store
            pause = ops.SteerConsumer(name="c", paused=True)
            await store.apply("from-elsewhere", [pause])

    async with world(app) as w:
        await w.app.emit_many([("x.a", n) for n in range(20)])
        await w.settle()
        assert seen == [0, 1, 2]
        await w.app.resume_consumer("c")
        await w.settle()
        assert seen == list(range(20))


async def test_a_consumer_that_had_nothing_to_read_for_long_still_holds_the_ledger(
    world: Any, app: App
) -> None:
    gate = asyncio.Event()
    gate.set()
    seen: list[int] = []

    @app.consumer("c", "x.*", batch=1)
    async def handle(batch: Batch) -> None:
        await gate.wait()
        seen.extend(event.payload for event in batch)

    async with world(app) as w:
        await w.emit("x.a", -1)
        await w.advance("31d")
        gate.clear()
        await w.app.emit_many([("x.a", n) for n in range(50)])
        trimmed = await w.app.trim_ledger(keep=10)
        assert trimmed.held_by == "c"
        gate.set()
        await w.settle()
        assert seen == [-1, *range(50)]


async def test_a_circle_through_the_cap_of_the_fan_out_ends(world: Any, app: App) -> None:
    async def leaf(ctx: Context, event: Event) -> None: ...

    for n in range(9):
        app.on("a.b", name=f"s{n}")(app.workflow(name=f"leaf{n}")(leaf))

    @app.on("ledger.fanout_capped")
    @app.workflow
    async def alarm(ctx: Context, event: Event) -> None:
        await ctx.emit("a.b")

    async with world(app) as w:
        await w.emit("a.b")
        assert 1 < len(await w.facts("ledger.fanout_capped")) <= 64


async def test_a_circle_through_refused_effects_ends(world: Any, app: App) -> None:
    @app.consumer("mender", "ledger.effect_refused", start="now")
    async def mend(batch: Batch) -> None:
        for _ in batch:
            batch.emit("x.go")

    @app.consumer("sender", "x.go", start="now")
    async def send(batch: Batch) -> None:
        for _ in batch:
            batch.signal("nobody", "hello", 1)

    async with world(app) as w:
        await w.emit("x.go")
        assert 1 < len(await w.facts("ledger.effect_refused")) <= 64


@pytest.mark.parametrize("error", [StoreRefused("full"), OutcomeUnknown("lost")], ids=str)
async def test_a_verdict_that_the_store_did_not_take_is_told_again(
    world: Any, app: App, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(number.about(where="payload > 5"))

    async with world(app) as w:
        run = await w.begin(flow)
        told = w.coordinator.submit_many
        failed: list[int] = []

        async def once(posted: list[ops.Op[Any]]) -> Any:
            if not failed and isinstance(posted[0], ops.ResolveWait):
                failed.append(1)
                return [error for _ in posted]
            return await told(posted)

        monkeypatch.setattr(w.coordinator, "submit_many", once)
        await w.app.emit(number, 9)
        await w.until(lambda: _has_ended(run))
        assert failed and await run.result() == 9


async def test_what_a_store_that_is_away_did_not_take_is_no_fault_of_the_event(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of the handler's nor of the start's: both are done when it is back."""
    seen: list[int] = []

    @app.consumer("c", "x.*", retry=Retry(attempts=1))
    async def handle(batch: Batch) -> None:
        seen.extend(event.payload for event in batch)

    @app.on("x.*")
    @app.workflow
    async def flow(ctx: Context, event: Event) -> None: ...

    async with world(app) as w:
        taken = w.store.apply
        away = ["x"] * 4

        async def refused(batch_id: str, batch: Any, *rest: Any) -> Any:
            cursors = [one for one in batch if isinstance(one, ops.AdvanceCursor)]
            if away and cursors:
                away.pop()
                raise StoreBusy("away")
            return await taken(batch_id, batch, *rest)

        monkeypatch.setattr(w.store, "apply", refused)
        await w.app.emit("x.a", 1)
        await w.until(lambda: _has_begun(w, away))
        await w.settle()
        assert await w.store.parked(None, None, 10) == []
        assert set(seen) == {1}
        assert [one.workflow for one in await w.store.runs(RunFilter(), None, 10)] == ["flow"]


async def _has_begun(w: Any, away: list[str]) -> bool:
    return not away and bool(await w.store.runs(RunFilter(), None, 1))


async def _has_ended(run: Any) -> bool:
    return bool(await run.status() == "completed")


def is_equal(wanted: int, payload: int) -> bool:
    return payload == wanted


@pytest.mark.parametrize("kind", ["closure", "default", "partial"])
async def test_filters_made_for_different_values_have_a_cursor_each(
    world: Any, app: App, kind: str
) -> None:
    def made(n: int) -> Any:
        if kind == "partial":
            return functools.partial(is_equal, n)
        return (lambda p: p == n) if kind == "closure" else (lambda p, n=n: p == n)

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return [await ctx.wait(number.about(where=made(n))) for n in (1, 2)]

    async with world(app) as w:
        run = await w.begin(flow)
        await w.emit("n.t", 2)
        await w.emit("n.t", 1)
        assert await run.result() == [1, 2]


async def test_what_comes_while_a_subscription_is_off_does_not_count_though_it_was_behind(
    world: Any, app: App
) -> None:
    ran: list[Any] = []

    @app.workflow
    async def flow(ctx: Context, event: Event) -> None:
        ran.append(event.payload)

    async with world(app) as w:
        await w.emit("x.a", "before")
        await w.app.pause_consumer("workflow_runner")
        await w.app.subscribe("x.*", flow, name="s", start="beginning")
        await w.app.enable_subscription("s", False)
        await w.emit("x.a", "while off")
        await w.app.enable_subscription("s", True)
        await w.app.resume_consumer("workflow_runner")
        await w.emit("x.a", "after")
        assert ran == ["before", "after"]
