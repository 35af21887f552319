"""Sagas: what was done is undone, the last first, in code and in plays; and retries of what was rolled back."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from perdure import (
    App,
    Conflict,
    Context,
    ForeignAwait,
    Permanent,
    Retry,
    RunCancelled,
    RunFailed,
    Signal,
    StepFailed,
    StepInfo,
)
from perdure.model import limits
from perdure.model.limits import BadValue
from perdure.model.ops import RecordCancel
from perdure.play import Act, Chorus, Play, Scene

go = Signal("go", str)


class Town:
    """What is done there is noted; what is broken there raises."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.broken: set[str] = set()

    async def do(self, what: str) -> str:
        self.done.append(what)
        if what in self.broken:
            raise OSError(f"{what} is broken")
        return what


@pytest.fixture
def town() -> Town:
    return Town()


# --- in code ---


def trip_of(app: App, town: Town) -> Any:
    @app.step
    async def book(what: str) -> str:
        return await town.do(f"book {what}")

    @app.step
    async def cancel(what: str) -> str:
        return await town.do(f"cancel {what}")

    @app.workflow(signals=[go])
    async def trip(ctx: Context) -> str:
        async with ctx.saga() as saga:
            for what in ("flight", "hotel"):
                booked = await ctx.step(book, what)
                saga.on_rollback(cancel, booked)
            said = await ctx.wait(go, timeout="1h")
            return await ctx.step(book, said)

    return trip


_booked = ["book flight", "book hotel"]
_cancelled = ["cancel book hotel", "cancel book flight"]


async def test_a_saga_that_comes_through_undoes_nothing(world: Any, app: App, town: Town) -> None:
    trip = trip_of(app, town)
    async with world(app) as w:
        run = await w.begin(trip)
        await w.app.signal(run.id, go, "car")
        await w.settle()
        assert await run.result() == "book car"
        assert town.done == [*_booked, "book car"]
        paths = [one.path for one in await run.history()]
        assert paths == ["saga/book", "saga/book#2", "saga/go", "saga/book#3"]


async def test_a_failure_undoes_the_last_first(world: Any, app: App, town: Town) -> None:
    trip = trip_of(app, town)
    town.broken.add("book car")
    async with world(app) as w:
        run = await w.begin(trip)
        await w.evict()
        await w.app.signal(run.id, go, "car")
        await w.settle()
        with pytest.raises(RunFailed, match="book car is broken") as caught:
            await run.result()
        assert caught.value.path == "saga/book#3"
        assert town.done == [*_booked, "book car", *_cancelled]
        paths = [one.path for one in await run.history()]
        assert paths[4:] == ["saga/!rollback/cancel", "saga/!rollback/cancel#2"]


async def test_a_cancel_undoes_it_too(world: Any, app: App, town: Town) -> None:
    trip = trip_of(app, town)
    async with world(app) as w:
        run = await w.begin(trip)
        await run.cancel("no holiday")
        await w.settle()
        with pytest.raises(RunCancelled, match="no holiday"):
            await run.result()
        assert town.done == [*_booked, *_cancelled]


async def test_a_timeout_undoes_it_too(world: Any, app: App, town: Town) -> None:
    trip = trip_of(app, town)
    async with world(app) as w:
        run = await w.begin(trip)
        await w.advance("1h")
        with pytest.raises(RunFailed, match="WaitTimeout"):
            await run.result()
        assert town.done == [*_booked, *_cancelled]


async def test_a_crash_in_the_midst_of_a_roll_back_goes_on_with_it(
    world: Any, app: App, town: Town
) -> None:
    reached, through = asyncio.Event(), asyncio.Event()

    @app.step
    async def undo(what: str) -> None:
        if what == "a":
            reached.set()
            await through.wait()
        town.done.append(f"undo {what}")

    @app.workflow
    async def work(ctx: Context) -> None:
        async with ctx.saga() as saga:
            for what in ("a", "b"):
                saga.on_rollback(undo, what)
            raise ValueError("no")

    async with world(app) as w:
        run = await w.app.start(work)
        await reached.wait()
        await w.crash()
    through.set()
    async with world(app) as w:
        await w.settle()
        assert await w.app.run(run.id).status() == "failed"
        assert town.done == ["undo b", "undo a"]


async def test_a_retry_begins_again_where_the_saga_began_and_asks_nobody_twice(
    world: Any, app: App, town: Town
) -> None:
    trip = trip_of(app, town)
    town.broken.add("book car")
    async with world(app) as w:
        run = await w.begin(trip)
        await w.app.signal(run.id, go, "car")
        await w.settle()
        assert await run.status() == "failed"
        town.broken.clear()
        town.done.clear()
        await run.retry()
        await w.settle()
        assert await run.result() == "book car"
        assert town.done == [*_booked, "book car"]
        await w.crash()
    async with world(app) as w:
        await w.settle()
        assert await w.app.run(run.id).result() == "book car"


async def test_a_roll_back_that_fails_undoes_the_rest_and_is_tried_again_alone(
    world: Any, app: App, town: Town
) -> None:
    trip = trip_of(app, town)
    town.broken |= {"book car", "cancel book hotel"}
    async with world(app) as w:
        run = await w.begin(trip)
        await w.app.signal(run.id, go, "car")
        await w.settle()
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert caught.value.type == "RollbackFailed"
        assert "cancel book hotel is broken" in caught.value.message
        assert "What had failed first: OSError: book car is broken" in caught.value.message
        assert caught.value.path == "saga/!rollback/cancel"
        assert town.done[3:] == _cancelled
        town.done.clear()
        town.broken.remove("cancel book hotel")
        await run.retry()
        await w.settle()
        assert town.done == ["cancel book hotel"]
        with pytest.raises(RunFailed, match="book car is broken"):
            await run.result()
        town.done.clear()
        town.broken.clear()
        await run.retry()  # and now all of it
        await w.settle()
        assert await run.result() == "book car"
        assert town.done == [*_booked, "book car"]


async def test_a_cancel_in_the_midst_of_a_roll_back_does_not_break_it(
    world: Any, app: App, town: Town
) -> None:
    reached = asyncio.Event()

    @app.step
    async def undo(what: str) -> None:
        town.done.append(f"undo {what}")
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()

    @app.workflow
    async def work(ctx: Context) -> None:
        async with ctx.saga() as saga:
            for what in ("a", "b"):
                saga.on_rollback(undo, what)
            raise ValueError("no")

    async with world(app) as w:
        run = await w.app.start(work)
        await reached.wait()
        await run.cancel("enough")
        await w.settle()
        assert await run.status() == "cancelled"
        assert town.done == ["undo b", "undo b", "undo a"]


def nested_of(app: App, town: Town, kind: str) -> tuple[Any, list[Any]]:
    """A saga in a saga, in code or as a play: `c` is broken, and so is what undoes `b`, inside."""
    town.broken |= {"c", "undo b"}
    once = Retry(attempts=1)
    if kind == "play":
        inner = Scene("inner", [act(town, "b", retry=once), act(town, "c")], saga=True)
        play = Play("nested", State, [act(town, "a", retry=once), inner])
        app.add(play)
        return play, [State()]

    do = app.step(name="do")(town.do)

    @app.workflow
    async def nested(ctx: Context) -> None:
        async with ctx.saga("outer") as outer:
            await ctx.step(do, "a")
            outer.on_rollback(do, "undo a")
            async with ctx.saga("inner") as inner:
                await ctx.step(do, "b")
                inner.on_rollback(do, "undo b")
                await ctx.step(do, "c")

    return nested, []


@pytest.mark.parametrize("kind", ["code", "play"])
async def test_a_cancel_does_not_hide_that_a_saga_inside_could_not_be_rolled_back(
    world: Any, app: App, town: Town, kind: str
) -> None:
    reached, gate = asyncio.Event(), asyncio.Event()
    do = town.do

    async def slow(what: str) -> str:
        if what == "undo a":
            reached.set()
            await gate.wait()
        return await do(what)

    town.do = slow  # type: ignore[method-assign]
    nested, args = nested_of(app, town, kind)
    async with world(app) as w:
        run = await w.app.start(nested, *args)
        await reached.wait()
        await run.cancel("enough")
        await w.until(lambda: has_cancel(run))
        gate.set()
        await w.settle()
        with pytest.raises(RunFailed, match="undo b is broken") as caught:
            await run.result()
        assert caught.value.type == "RollbackFailed"
        town.broken.remove("undo b")
        town.done.clear()
        await run.retry()
        await w.settle()
        assert town.done == ["undo b"]
        assert await run.status() == "cancelled"


async def has_cancel(run: Any) -> bool:
    return any(one.kind == "cancel" for one in await run.history())


@pytest.mark.parametrize("kind", ["code", "play"])
async def test_one_retry_is_for_all_that_sagas_in_sagas_could_not_undo(
    world: Any, app: App, town: Town, kind: str
) -> None:
    nested, args = nested_of(app, town, kind)
    town.broken.add("undo a")
    async with world(app) as w:
        run = await w.begin(nested, *args)
        with pytest.raises(RunFailed) as caught:
            await run.result()
        for words in ("undo b is broken", "undo a is broken", "first: OSError: c is broken"):
            assert words in caught.value.message
        town.broken -= {"undo a", "undo b"}
        town.done.clear()
        await run.retry()
        await w.settle()
        assert town.done == ["undo b", "undo a"]
        with pytest.raises(RunFailed, match="c is broken") as caught:
            await run.result()
        assert caught.value.type == "OSError"


async def test_a_sibling_that_fails_does_not_hide_it_either(
    world: Any, app: App, town: Town
) -> None:
    """The branch is being rolled back, outside the saga that could not be, when it is cancelled for its sibling."""
    reached = asyncio.Event()

    @app.step
    async def do(what: str) -> None:
        await town.do(what)
        if what == "undo a" and not reached.is_set():
            reached.set()
            await asyncio.Event().wait()

    async def branch(ctx: Context) -> None:
        async with ctx.saga("outer") as outer:
            outer.on_rollback(do, "undo a")
            async with ctx.saga("inner") as inner:
                inner.on_rollback(do, "undo b")
                await ctx.step(do, "c")

    async def other(ctx: Context) -> None:
        await ctx.wait(go)
        await ctx.step(do, "d")

    @app.workflow(signals=[go])
    async def work(ctx: Context) -> None:
        await ctx.gather(branch(ctx), other(ctx))

    town.broken |= {"c", "undo b", "d"}
    async with world(app) as w:
        run = await w.app.start(work)
        await reached.wait()
        await w.app.signal(run.id, go, "on")
        await w.settle()
        with pytest.raises(RunFailed, match="undo b is broken"):
            await run.result()
        town.broken.remove("undo b")
        town.done.clear()
        await run.retry()
        await w.settle()
        assert town.done[0] == "undo b"


async def test_who_was_cancelled_for_a_failed_roll_back_stands_there_while_it_is_tried_again(
    world: Any, app: App, town: Town
) -> None:
    """What it had left is asked for anew, until the roll-back is through and it is cancelled again."""

    @app.step
    async def do(what: str) -> str:
        return await town.do(what)

    async def rolls_back(ctx: Context) -> None:
        async with ctx.saga() as saga:
            saga.on_rollback(do, "undo a")
            await ctx.step(do, "b")

    async def waits(ctx: Context) -> None:
        await ctx.wait(go)

    @app.workflow(signals=[go])
    async def work(ctx: Context) -> None:
        await ctx.gather(waits(ctx), rolls_back(ctx))

    town.broken |= {"b", "undo a"}
    async with world(app) as w:
        run = await w.begin(work)
        with pytest.raises(RunFailed, match="undo a is broken"):
            await run.result()
        town.broken.remove("undo a")
        await run.retry()
        await w.settle()
        with pytest.raises(RunFailed, match="b is broken"):
            await run.result()
        town.broken.clear()
        await run.retry()
        await w.settle()
        await w.app.signal(run.id, go, "on")
        await w.settle()
        assert await run.status() == "completed"


async def test_an_error_that_is_caught_outside_is_over(world: Any, app: App, town: Town) -> None:
    @app.step
    async def undo() -> None:
        await town.do("undo")

    @app.step
    async def break_down() -> None:
        raise Permanent("broken")

    @app.workflow
    async def work(ctx: Context) -> str:
        try:
            async with ctx.saga("first-try") as saga:
                saga.on_rollback(undo)
                await ctx.step(break_down)
        except StepFailed as failed:
            return failed.message
        return "never"

    async with world(app) as w:
        run = await w.begin(work)
        assert await run.result() == "broken"
        assert town.done == ["undo"]
        paths = [one.path for one in await run.history()]
        assert paths == ["first-try/break_down", "first-try/!rollback/undo"]


async def test_sagas_in_branches_undo_their_own(world: Any, app: App, town: Town) -> None:
    @app.step
    async def undo(what: str) -> None:
        await town.do(f"undo {what}")

    @app.workflow(signals=[go])
    async def work(ctx: Context) -> str:
        async def branch(what: str) -> str:
            async with ctx.saga() as saga:
                saga.on_rollback(undo, what)
                if what == "a":
                    raise ValueError("a fails")
                return await ctx.wait(go)

        await ctx.gather(branch("b"), branch("a"))
        return "never"

    async with world(app) as w:
        run = await w.begin(work)
        with pytest.raises(RunFailed, match="a fails"):
            await run.result()
        assert sorted(town.done) == ["undo a", "undo b"]


async def test_what_a_saga_refuses(world: Any, app: App, monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "rollbacks_max", 1)
    refused: list[str] = []

    @app.step
    async def undo() -> None: ...

    @app.workflow
    async def work(ctx: Context) -> None:
        outside = ctx.saga()
        with pytest.raises(ForeignAwait, match="counts inside its saga"):
            outside.on_rollback(undo)
        async with ctx.saga() as saga:
            with pytest.raises(BadValue, match="is not a function"):
                saga.on_rollback("undo")  # type: ignore[call-overload]
            saga.on_rollback(undo)
            with pytest.raises(BadValue, match="rollbacks_max"):
                saga.on_rollback(undo)
        with pytest.raises(BadValue, match="saga name"):
            ctx.saga("a/b")
        with pytest.raises(RuntimeError, match="entered before"):
            async with saga:
                refused.append("never")
        refused.append("all")

    async with world(app) as w:
        run = await w.begin(work)
        await run.result()
        assert set(refused) == {"all"}


# --- in plays ---


@dataclass
class State:
    log: list[str] = field(default_factory=list)
    left: str = ""
    right: str = ""


def act(town: Town, name: str, **options: Any) -> Act[State]:
    async def do(ctx: StepInfo, state: State) -> None:
        await town.do(name)
        state.log.append(name)

    async def undo(ctx: StepInfo, state: State) -> None:
        await town.do(f"undo {name}")
        state.log.append(f"undo {name}")

    return Act(name, do, compensate=undo, **options)


async def test_a_play_undoes_its_acts_in_reverse_and_the_state_shows_it(
    world: Any, app: App, town: Town
) -> None:
    town.broken.add("c")
    play = Play(
        "three",
        State,
        [act(town, "a"), Scene("inner", [act(town, "b"), act(town, "c")], saga=True)],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, State())
        with pytest.raises(RunFailed, match="c is broken") as caught:
            await run.result()
        assert caught.value.path == "inner/c"
        assert town.done == ["a", "b", "c", "undo b", "undo a"]
        assert (await run.get("state")).log == ["a", "b", "undo b", "undo a"]
        assert (await run.state_at("inner/b")).log == ["a", "b"]
        steps = {one.path: one.kind for one in await run.history()}
        assert steps["inner/b.compensate"] == steps["a.compensate"] == "act"


async def test_a_scene_that_came_through_is_undone_with_what_is_around_it(
    world: Any, app: App, town: Town
) -> None:
    town.broken.add("c")
    play = Play(
        "three",
        State,
        [Scene("inner", [act(town, "a"), act(town, "b")], saga=True), act(town, "c")],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, State())
        assert await run.status() == "failed"
        assert town.done == ["a", "b", "c", "undo b", "undo a"]


async def test_without_a_saga_around_nothing_is_undone(world: Any, app: App, town: Town) -> None:
    town.broken.add("c")

    async def do(ctx: StepInfo, state: State) -> None:
        await town.do("a")

    play = Play(
        "three",
        State,
        [Act("a", do), Scene("inner", [act(town, "b")], saga=True), Act("c", lambda ctx, s: 1 / 0)],
        saga=False,
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, State())
        assert await run.status() == "failed"
        assert town.done == ["a", "b"]


@pytest.mark.parametrize("how", ["cancel", "timeout"])
@pytest.mark.parametrize("where", ["play", "scene"])
async def test_cancel_and_timeout_undo_a_play(
    world: Any, app: App, town: Town, how: str, where: str
) -> None:
    parts = [act(town, "a"), Signal("ok", str, timeout="1h")]
    in_scene = where == "scene"
    play = Play(
        "wait", State, [Scene("s", parts, saga=True)] if in_scene else parts, saga=not in_scene
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, State())
        await w.evict()
        if how == "cancel":
            await run.cancel()
            await w.settle()
        else:
            await w.advance("1h")
        assert await run.status() == ("cancelled" if how == "cancel" else "failed")
        assert town.done == ["a", "undo a"]
        assert (await run.get("state")).log == ["a", "undo a"]


async def test_branches_of_a_chorus_are_undone_in_the_order_they_were_done(
    world: Any, app: App, town: Town
) -> None:
    def side(name: str) -> Act[State]:
        async def do(ctx: StepInfo, state: State) -> None:
            await town.do(name)
            setattr(state, name, name)

        async def undo(ctx: StepInfo, state: State) -> None:
            await town.do(f"undo {name}")
            setattr(state, name, f"undone {state.left} {state.right}")

        return Act(name, do, compensate=undo)

    def fail(ctx: StepInfo, state: State, said: str) -> None:
        raise Permanent(said)

    play = Play(
        "sides",
        State,
        [
            Chorus(
                "both",
                [
                    Scene("a", [side("left")]),
                    Scene("b", [side("right"), Signal("go", str, on_receive=fail)]),
                ],
            )
        ],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, State())
        done = list(town.done)
        assert sorted(done) == ["left", "right"]
        await w.app.signal(run.id, "go", "no")
        await w.settle()
        with pytest.raises(RunFailed, match="no"):
            await run.result()
        assert town.done[2:] == [f"undo {one}" for one in reversed(done)]
        # Each sees what both branches had come to.
        first = getattr(await run.get("state"), done[1])
        assert first == "undone left right"


async def test_a_compensation_is_tried_again_and_again(world: Any, app: App, town: Town) -> None:
    tried: list[int] = []

    def undo(ctx: StepInfo, state: State) -> None:
        tried.append(ctx.attempt)
        if ctx.attempt < 4:
            raise OSError("busy")

    def fail(ctx: StepInfo, state: State) -> None:
        raise Permanent("no")

    play = Play("busy", State, [Act("a", lambda ctx, s: None, compensate=undo), Act("b", fail)])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, State())
        await w.advance("5m")
        assert await run.status() == "failed"
        assert tried == [1, 2, 3, 4]


async def test_a_retried_play_does_again_what_was_undone(world: Any, app: App, town: Town) -> None:
    town.broken.add("c")
    play = Play(
        "three",
        State,
        [
            act(town, "a"),
            Signal("ok", str, on_receive=lambda ctx, s, said: s.log.append(said)),
            act(town, "b"),
            act(town, "c"),
        ],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, State())
        await w.app.signal(run.id, "ok", "yes")
        await w.settle()
        assert await run.status() == "failed"
        town.broken.clear()
        town.done.clear()
        await run.retry()
        await w.settle()
        assert (await run.result()).log == ["a", "yes", "b", "c"]
        assert town.done == ["a", "b", "c"]


async def test_a_retried_play_with_another_answer(world: Any, app: App, town: Town) -> None:
    town.broken.add("c")
    play = Play(
        "three",
        State,
        [
            act(town, "a"),
            Signal("ok", str, on_receive=lambda ctx, s, said: s.log.append(said)),
            act(town, "c"),
        ],
    )
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, State())
        await w.app.signal(run.id, "ok", "yes")
        await w.settle()
        town.broken.clear()
        await run.retry("ok", payload="no")
        await w.settle()
        assert (await run.result()).log == ["a", "no", "c"]
        await w.crash()
    async with world(app) as w:
        await w.settle()
        assert (await w.app.run(run.id).result())["log"] == ["a", "no", "c"]


# --- retry at a path, in code ---


async def test_a_retry_from_a_path_does_it_and_all_after_it_again(
    world: Any, app: App, town: Town
) -> None:
    @app.step
    async def do(what: str) -> str:
        return await town.do(what)

    @app.workflow(signals=[go])
    async def work(ctx: Context) -> list[str]:
        first = await ctx.step(do.options(name="one"), "one")
        said = await ctx.wait(go)
        second = await ctx.step(do.options(name="two"), said)
        return [first, second]

    town.broken.add("x")
    async with world(app) as w:
        run = await w.begin(work)
        await w.app.signal(run.id, go, "x")
        await w.settle()
        assert await run.status() == "failed"
        with pytest.raises(
            Conflict, match="no step at 'three' to begin with; it has: go, one, two"
        ):
            await run.retry("three")
        with pytest.raises(BadValue, match=r"no wait of run .* that a signal has ended"):
            await run.retry("one", payload="y")
        with pytest.raises(BadValue, match="without the path"):
            await run.retry(payload="y")
        assert await run.status() == "failed"
        await run.retry("go", payload="y")
        await w.settle()
        assert await run.result() == ["one", "y"]
        assert town.done == ["one", "x", "y"]


async def test_a_retry_from_a_wait_waits_again(world: Any, app: App, town: Town) -> None:
    @app.step(retry=Retry(attempts=1))
    async def do(what: str) -> str:
        return await town.do(what)

    @app.workflow(signals=[go])
    async def work(ctx: Context) -> str:
        return await ctx.step(do, await ctx.wait(go))

    town.broken.add("x")
    async with world(app) as w:
        run = await w.begin(work)
        await w.app.signal(run.id, go, "x")
        await w.settle()
        await run.retry("go")
        await w.settle()
        assert await run.status() == "waiting"
        await w.app.signal(run.id, go, "y")
        await w.settle()
        assert await run.result() == "y"


def siblings_of(app: App, town: Town) -> Any:
    @app.step
    async def do(what: str) -> str:
        return await town.do(what)

    @app.workflow(signals=[go])
    async def work(ctx: Context) -> list[str]:
        async def patient() -> str:
            async with ctx.saga() as saga:
                await ctx.step(do, "a")
                saga.on_rollback(do, "undo a")
                return await ctx.wait(go)

        return list(await ctx.gather(patient(), ctx.step(do, "b")))

    return work


async def test_a_retry_knows_what_a_sibling_has_undone(world: Any, app: App, town: Town) -> None:
    work = siblings_of(app, town)
    town.broken.add("b")
    async with world(app) as w:
        run = await w.begin(work)
        with pytest.raises(RunFailed, match="b is broken"):
            await run.result()
        assert sorted(town.done) == ["a", "b", "undo a"]
        town.broken.clear()
        town.done.clear()
        await run.retry()
        await w.settle()
        assert sorted(town.done) == ["a", "b"]
        await w.app.signal(run.id, go, "went")
        await w.settle()
        assert await run.result() == ["went", "b"]


async def test_a_failed_roll_back_of_a_sibling_is_heard(world: Any, app: App, town: Town) -> None:
    work = siblings_of(app, town)
    town.broken |= {"b", "undo a"}
    async with world(app) as w:
        run = await w.begin(work)
        with pytest.raises(RunFailed, match="undo a is broken") as caught:
            await run.result()
        assert caught.value.type == "RollbackFailed"
        town.broken.remove("undo a")
        town.done.clear()
        await run.retry()
        await w.settle()
        assert town.done == ["undo a"]
        with pytest.raises(RunFailed, match="b is broken"):
            await run.result()
        town.broken.clear()
        await run.retry()
        await w.settle()
        await w.app.signal(run.id, go, "went")
        await w.settle()
        assert await run.result() == ["went", "b"]


# --- what is on record is known to the code that may have to undo it ---


async def test_what_was_done_while_a_sibling_failed_is_undone_if_it_is_on_record(
    world: Any, app: App, town: Town
) -> None:
    async def fail(ctx: StepInfo, state: State) -> None:
        raise Permanent("no")

    play = Play("both", State, [act(town, "a"), Chorus("c", [Act("f", fail), act(town, "g")])])
    app.add(play)
    async with world(app) as w:
        run = await w.begin(play, State())
        assert await run.status() == "failed"
        on_record = {one.path: one.status for one in await run.history()}
        assert ("undo g" in town.done) == (on_record.get("c[1]/g") == "done")
        assert "undo a" in town.done


async def test_a_saga_in_code_learns_of_what_its_sibling_has_on_record(
    world: Any, app: App, town: Town
) -> None:
    @app.step
    async def do(what: str) -> str:
        return await town.do(what)

    @app.workflow
    async def work(ctx: Context) -> None:
        async with ctx.saga() as saga:

            async def second() -> None:
                await ctx.step(do, "g")
                saga.on_rollback(do, "undo g")
                await ctx.sleep("1h")

            await ctx.gather(ctx.step(do, "f"), second())

    town.broken.add("f")
    async with world(app) as w:
        run = await w.begin(work)
        assert await run.status() == "failed"
        values = [one.value for one in await run.history() if one.status == "done"]
        assert ("undo g" in town.done) == ("g" in values)


async def test_a_step_that_ends_while_a_cancel_is_recorded_leaves_no_record(
    world: Any, app: App, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(ctx: StepInfo, state: State) -> None:
        begun.set()
        await ended.wait()

    async def undo(ctx: StepInfo, state: State) -> None:
        town.done.append("undone")

    play = Play("slow", State, [Act("slow", slow, compensate=undo)])
    app.add(play)
    async with world(app) as w:
        run = await w.app.start(play, State())
        await begun.wait()
        apply = w.store.apply

        async def apply_slowly(batch_id: str, batch: Any, *rest: Any) -> Any:
            if any(isinstance(op, RecordCancel) for op in batch):
                ended.set()
                for _ in range(5):
                    await asyncio.sleep(0)
            return await apply(batch_id, batch, *rest)

        monkeypatch.setattr(w.store, "apply", apply_slowly)
        await run.cancel()
        await w.settle()
        assert ended.is_set()
        assert await run.status() == "cancelled"
        on_record = [one.path for one in await run.history() if one.kind == "act"]
        assert (on_record, town.done) == ([], [])


# --- retries from a path, once more ---


async def test_a_retry_from_a_path_after_a_failed_roll_back_does_anew_what_was_undone(
    world: Any, app: App, town: Town
) -> None:
    once = Retry(attempts=1)
    play = Play(
        "p", State, [act(town, "a", retry=once), act(town, "b", retry=once), act(town, "c")]
    )
    app.add(play)
    town.broken |= {"c", "undo b"}
    async with world(app) as w:
        run = await w.begin(play, State())
        assert await run.status() == "failed"
        town.broken.clear()
        town.done.clear()
        await run.retry("c")
        await w.settle()
        assert (await run.result()).log == ["a", "b", "c"]
        assert town.done == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["rollback", "back"])
async def test_a_scene_may_be_called_as_one_likes(
    world: Any, app: App, town: Town, name: str
) -> None:
    plain = [Act(one.name, one.function) for one in (act(town, "b"), act(town, "c"))]
    play = Play("p", State, [Scene("s", [Scene(name, plain)]), Act("z", act(town, "z").function)])
    app.add(play)
    town.broken.add("z")
    async with world(app) as w:
        run = await w.begin(play, State())
        town.broken.clear()
        town.done.clear()
        await run.retry(f"s/{name}/c")
        await w.settle()
        assert town.done == ["c", "z"]
        assert (await run.result()).log == ["b", "c", "z"]


async def test_no_retry_begins_at_a_mark_of_another(world: Any, app: App, town: Town) -> None:
    play = Play("p", State, [act(town, "a")])
    app.add(play)
    town.broken.add("a")
    async with world(app) as w:
        run = await w.begin(play, State())
        await run.retry()
        await w.settle()
        with pytest.raises(Conflict, match="has no step at '!retry#1'") as refused:
            await run.retry("!retry#1")
        assert str(refused.value).endswith("it has: a")


async def test_a_new_answer_reaches_the_branches_after_it(world: Any, app: App, town: Town) -> None:
    def side(name: str) -> Act[State]:
        def do(ctx: StepInfo, state: State) -> None:
            setattr(state, name, state.log[-1])

        return Act(name, do)

    play = Play(
        "p",
        State,
        [
            Signal("ok", str, on_receive=lambda ctx, s, said: s.log.append(said)),
            Chorus("both", [side("left"), side("right")]),
            act(town, "c"),
        ],
    )
    app.add(play)
    town.broken.add("c")
    async with world(app) as w:
        run = await w.begin(play, State())
        await w.app.signal(run.id, "ok", "old")
        await w.settle()
        assert await run.status() == "failed"
        town.broken.clear()
        await run.retry("ok", payload="new")
        await w.settle()
        state = await run.result()
        assert (state.log, state.left, state.right) == (["new", "c"], "new", "new")


async def test_a_wait_that_is_asked_again_takes_another_first_one(
    world: Any, app: App, town: Town
) -> None:
    once = Signal("once", str, buffer="first")

    @app.step
    async def do(what: str) -> str:
        return await town.do(what)

    @app.workflow(signals=[once])
    async def work(ctx: Context) -> str:
        return await ctx.step(do, await ctx.wait(once))

    town.broken.add("x")
    async with world(app) as w:
        run = await w.begin(work)
        await w.app.signal(run.id, once, "x")
        await w.settle()
        await run.retry("once")
        await w.settle()
        await w.app.signal(run.id, once, "y")
        await w.settle()
        assert await run.result() == "y"


async def test_a_retry_into_a_saga_whose_failure_was_caught_does_the_saga_anew(
    world: Any, app: App, town: Town
) -> None:
    @app.step
    async def do(what: str) -> str:
        return await town.do(what)

    @app.workflow
    async def work(ctx: Context) -> str:
        try:
            async with ctx.saga() as saga:
                await ctx.step(do, "a")
                saga.on_rollback(do, "undo a")
                await ctx.step(do, "b")
        except StepFailed:
            pass
        return await ctx.step(do, "c")

    town.broken |= {"b", "c"}
    async with world(app) as w:
        run = await w.begin(work)
        assert town.done == ["a", "b", "undo a", "c"]
        town.broken.clear()
        town.done.clear()
        await run.retry("saga/do#2")
        await w.settle()
        assert await run.result() == "c"
        assert town.done == ["a", "b", "c"]
