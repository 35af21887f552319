"""Sends from a workflow: signal, start, set. Each happens once, whatever crashes and replays."""

from typing import Any

import pytest
from worlds import Deadly

from perdure import (
    App,
    Buffered,
    Conflict,
    Context,
    Delivered,
    Duplicate,
    NotWaiting,
    Overloaded,
    PerdureError,
    RunFinished,
    RunNotFound,
    Signal,
    SignalTaken,
)

go = Signal("go", int)
line = Signal("line", int, buffer="all")
claim = Signal("claim", int, buffer="first")


@pytest.fixture
def target(app: App) -> Any:
    """A run that collects what is sent to it."""

    @app.workflow
    async def collector(ctx: Context, count: int) -> list[int]:
        return [await ctx.wait(line) for _ in range(count)]

    return collector


# --- once ----------------------------------------------------------------------------------------


async def test_a_signal_is_sent_once_though_the_sender_replays(
    world: Any, app: App, target: Any
) -> None:
    @app.workflow
    async def sender(ctx: Context) -> None:
        for n in range(3):
            await ctx.signal("target", line, n)
            await ctx.sleep("1s")

    async with world(app) as w:
        collected = await w.begin(target, 4, id="target")
        run = await w.begin(sender)
        for _ in range(3):
            await w.evict()
            await w.advance("1s")
        assert await run.status() == "completed"
        await w.app.signal("target", line, 99)
        await w.settle()
        assert await collected.result() == [0, 1, 2, 99]


@pytest.mark.parametrize("crash_after", range(6))
async def test_sends_happen_once_across_a_crash(
    world: Any, app: App, target: Any, crash_after: int
) -> None:
    """The process dies while the step after the n-th send is in flight; the next one goes on from there."""
    deadly = Deadly(crash_after)

    @app.workflow
    async def child(ctx: Context, n: int) -> int:
        return n

    @app.workflow
    async def sender(ctx: Context) -> list[int]:
        children = []
        for n in range(6):
            await ctx.signal("target", line, n)
            children.append(await ctx.start(child, n))
            await ctx.set("at", n)
            await ctx.step(deadly.work, n)
        return [await ctx.wait(one) for one in children]

    async with world(app) as w:
        await w.begin(target, 7, id="target")
        await w.app.start(sender, id="sender")
        await deadly.kill(w)
    async with world(app) as w:
        await w.settle()
        run = w.app.run("sender")
        assert await run.result() == list(range(6))
        assert await run.get("at") == 5
        assert len(await w.app.runs(workflow="child")) == 6
        await w.app.signal("target", line, 99)
        await w.settle()
        assert await w.app.run("target").result() == [0, 1, 2, 3, 4, 5, 99]


async def test_answers_are_the_same_on_replay(world: Any, app: App, target: Any) -> None:
    seen: list[list[Any]] = []

    @app.workflow
    async def sender(ctx: Context) -> None:
        answers: list[Any] = [
            await ctx.signal("target", line, 1),
            await ctx.signal("target", line, 2, key="k"),
            await ctx.signal("target", line, 2, key="k"),
        ]
        seen.append(answers)
        await ctx.wait(go)

    async with world(app) as w:
        await w.begin(target, 9, id="target")
        run = await w.begin(sender, id="s")
        await w.evict()
        await w.app.signal("s", go, 1)
        await w.settle()
        assert await run.status() == "completed"
        assert seen[0] == seen[1]
        assert isinstance(seen[0][0], Delivered)
        assert isinstance(seen[0][2], Duplicate)


# --- refusals ------------------------------------------------------------------------------------


async def test_refusals_are_recorded_and_raised_again(world: Any, app: App) -> None:
    seen: list[list[str]] = []

    @app.workflow
    async def over(ctx: Context) -> None:
        return None

    @app.workflow
    async def busy(ctx: Context) -> None:
        await ctx.sleep("1d")
        await ctx.wait(claim)

    @app.workflow
    async def sender(ctx: Context) -> None:
        told: list[str] = []
        seen.append(told)
        await ctx.signal("busy", claim, 1)
        calls = (
            lambda: ctx.signal("nobody", go, 1),
            lambda: ctx.signal("over", go, 1),
            lambda: ctx.signal("busy", claim, 2),
            lambda: ctx.signal("busy", go, 2, buffer=False),
            lambda: ctx.start(over, id="busy"),
        )
        for call in calls:
            try:
                await call()
            except PerdureError as error:
                told.append(f"{type(error).__name__}: {error}")
        await ctx.wait(go)

    async with world(app) as w:
        await w.begin(over, id="over")
        await w.begin(busy, id="busy")
        run = await w.begin(sender, id="s")
        await w.begin(busy, id="nobody")  # too late: the refusal is on record
        await w.evict()
        await w.app.signal("s", go, 1)
        await w.settle()
        assert await run.status() == "completed"
        assert seen[0] == seen[1]
        assert [one.split(":")[0] for one in seen[0]] == [
            kind.__name__ for kind in (RunNotFound, RunFinished, SignalTaken, NotWaiting, Conflict)
        ]
        assert "'nobody'" in seen[0][0]
        assert "completed" in seen[0][1]
        assert "'claim'" in seen[0][2]
        assert "'busy'" in seen[0][3]


async def test_an_ambiguous_send_names_the_paths_also_on_replay(world: Any, app: App) -> None:
    from perdure import AmbiguousSignal

    seen: list[tuple[str, ...]] = []

    @app.workflow
    async def double(ctx: Context) -> None:
        await ctx.gather(ctx.wait(line), ctx.wait(line))

    @app.workflow
    async def sender(ctx: Context) -> None:
        try:
            await ctx.signal("double", line, 1)
        except AmbiguousSignal as error:
            seen.append(error.paths)
        await ctx.wait(go)

    async with world(app) as w:
        await w.begin(double, id="double")
        await w.begin(sender, id="s")
        await w.evict()
        await w.app.signal("s", go, 1)
        await w.settle()
        assert seen == [("line", "line#2")] * 2


async def test_an_unknown_signal_is_refused_by_the_targets_declaration(
    world: Any, app: App
) -> None:
    from perdure import UnknownSignal

    seen: list[str] = []

    @app.workflow(signals=[go])
    async def strict(ctx: Context) -> None:
        await ctx.wait(go)

    @app.workflow
    async def sender(ctx: Context) -> None:
        try:
            await ctx.signal("strict", "other", 1)
        except UnknownSignal as error:
            seen.append(f"{error.name} {error.known}")
        await ctx.wait(go)

    async with world(app) as w:
        await w.begin(strict, id="strict")
        await w.begin(sender, id="s")
        await w.evict()
        await w.app.signal("s", go, 1)
        await w.settle()
        assert seen == ["other ['go']"] * 2


async def test_a_payload_is_checked_by_the_targets_declaration(world: Any, app: App) -> None:
    """By name, or with a signal of the sender's own: refused on record, and raised again on replay."""
    from perdure import InvalidPayload

    seen: list[str] = []

    @app.workflow(signals=[go])
    async def strict(ctx: Context) -> int:
        return await ctx.wait(go)

    @app.workflow
    async def sender(ctx: Context) -> None:
        for signal in ("go", Signal("go", str)):
            try:
                await ctx.signal("strict", signal, "perhaps")
            except InvalidPayload as error:
                seen.append(str(error))
        await ctx.wait(go)

    async with world(app) as w:
        strict_run = await w.begin(strict, id="strict")
        await w.begin(sender, id="s")
        await w.evict()
        await w.app.signal("s", go, 1)
        await w.settle()
        assert len(seen) == 4 and len(set(seen)) == 1
        assert "payload of signal 'go'" in seen[0]
        assert await strict_run.status() == "waiting"
        assert list(await w.app.dead_letters()) == []


async def test_a_key_is_looked_at_before_the_payload(world: Any, app: App, target: Any) -> None:
    from perdure import Conflict, InvalidPayload

    @app.workflow
    async def sender(ctx: Context) -> list[str]:
        answers: list[str] = []
        for key in ("k", "other"):
            try:
                await ctx.signal("target", line, "perhaps", key=key)  # type: ignore[arg-type]
            except (Conflict, InvalidPayload) as error:
                answers.append(type(error).__name__)
        return answers

    async with world(app) as w:
        await w.begin(target, 2, id="target")
        await w.app.signal("target", line, 1, key="k")
        run = await w.begin(sender)
        assert await run.result() == ["Conflict", "InvalidPayload"]


# --- to oneself, by name, many -------------------------------------------------------------------


async def test_a_run_may_signal_itself(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        async def listener() -> int:
            return await ctx.wait(line)

        async def speaker() -> str:
            sent = await ctx.signal(ctx.run_id, line, 5)
            return type(sent).__name__

        first = list(await ctx.gather(listener(), speaker()))
        await ctx.signal(ctx.run_id, line, 6)
        return [*first, await ctx.wait(line)]

    async with world(app) as w:
        heard, sent, later = await (await w.begin(flow)).result()
        assert (heard, later) == (5, 6)
        assert sent in ("Delivered", "Buffered")


async def test_a_signal_by_name_only(world: Any, app: App, target: Any) -> None:
    @app.workflow
    async def sender(ctx: Context) -> str:
        return type(await ctx.signal("target", "line", 3)).__name__

    async with world(app) as w:
        collected = await w.begin(target, 1, id="target")
        assert await (await w.begin(sender)).result() == "Delivered"
        await w.settle()
        assert await collected.result() == [3]


async def test_two_runs_play_ping_pong(world: Any, app: App) -> None:
    ping, pong = Signal("ping", int, buffer="all"), Signal("pong", int, buffer="all")

    @app.workflow
    async def left(ctx: Context) -> int:
        total = 0
        for n in range(10):
            await ctx.signal("right", ping, n)
            total += await ctx.wait(pong)
        return total

    @app.workflow
    async def right(ctx: Context) -> None:
        for _ in range(10):
            await ctx.signal("left", pong, 2 * await ctx.wait(ping))

    async with world(app) as w:
        await w.begin(right, id="right")
        run = await w.begin(left, id="left")
        assert await run.result() == 90


async def test_sends_from_branches(world: Any, app: App, target: Any) -> None:
    @app.workflow
    async def sender(ctx: Context) -> None:
        await ctx.gather(*(ctx.signal("target", line, n) for n in range(5)))

    async with world(app) as w:
        collected = await w.begin(target, 5, id="target")
        await (await w.begin(sender)).result()
        await w.settle()
        assert sorted(await collected.result()) == [0, 1, 2, 3, 4]


# --- published state -----------------------------------------------------------------------------


async def test_published_state_is_seen_from_outside(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.set("stage", "packing")
        await ctx.set("count", 1)
        await ctx.wait(go)
        await ctx.set("stage", {"name": "shipped"})

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert await run.get("stage") == "packing"
        assert await run.get("count") == 1
        assert await run.get("nothing") is None
        assert await run.get("nothing", "default") == "default"
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await w.app.run("a").get("stage") == {"name": "shipped"}


async def test_published_none_is_not_the_default(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.set("nothing", None)

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.get("nothing", "default") is None


async def test_too_much_published_is_refused_and_raised_again(world: Any, app: App) -> None:
    seen: list[str] = []

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.set("small", 1)
        try:
            await ctx.set("large", "x" * 70_000)
        except Overloaded as error:
            seen.append(str(error))
        await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.evict()
        await w.app.signal("a", go, 1)
        await w.settle()
        assert await run.status() == "completed"
        assert len(seen) == 2
        assert seen[0] == seen[1]
        assert await run.get("small") == 1
        assert await run.get("large") is None


async def test_a_buffered_answer_carries_its_signal_id(world: Any, app: App) -> None:
    @app.workflow
    async def busy(ctx: Context) -> None:
        await ctx.sleep("1d")

    @app.workflow
    async def sender(ctx: Context) -> str:
        sent = await ctx.signal("busy", go, 1)
        assert isinstance(sent, Buffered)
        return sent.signal_id

    async with world(app) as w:
        await w.begin(busy, id="busy")
        signal_id = await (await w.begin(sender)).result()
        status = await w.app.signal_status(signal_id)
        assert status is not None
        assert (status.state, status.run_id, status.name) == ("buffered", "busy", "go")
