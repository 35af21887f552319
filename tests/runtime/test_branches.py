"""Branches: gather, map, scopes and paths; they interleave the same way on every replay."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import (
    App,
    BadValue,
    Context,
    Delivered,
    ForeignAwait,
    RunFailed,
    Signal,
    StepFailed,
    TimedOut,
    WaitTimeout,
    step,
    timer,
)
from perdure.model import limits

left, right, more = Signal("left", int), Signal("right", int), Signal("more", int, buffer="all")


@step
async def double(x: int) -> int:
    return 2 * x


@step
async def broken() -> int:
    raise ValueError("no luck")


# --- gather --------------------------------------------------------------------------------------


async def test_gather_gives_all_results_in_order(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        a, b, c = await ctx.gather(ctx.step(double, 1), ctx.wait(left), ctx.step(double, 3))
        return [a, b, c]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert await run.status() == "waiting"
        await w.app.signal("a", left, 7)
        await w.settle()
        assert await run.result() == [2, 7, 6]


async def test_gather_of_nothing_and_of_one(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        none = await ctx.gather()
        (one,) = await ctx.gather(ctx.step(double, 4))
        return [list(none), one]

    async with world(app) as w:
        assert await (await w.begin(flow)).result() == [[], 8]


async def test_steps_of_branches_run_side_by_side(world: Any, app: App) -> None:
    meeting = asyncio.Barrier(3)

    async def meet(n: int) -> int:
        await meeting.wait()
        return n

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return list(await ctx.gather(*(ctx.step(meet, n) for n in range(3))))

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.result() == [0, 1, 2]


async def test_branches_are_coroutines_of_durable_calls(world: Any, app: App) -> None:
    async def branch(ctx: Context, signal: Signal[int]) -> int:
        one = await ctx.wait(signal)
        await ctx.sleep("1m")
        return await ctx.step(double, one)

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return list(await ctx.gather(branch(ctx, left), branch(ctx, right)))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", right, 2)
        await w.advance("1m")
        await w.app.signal("a", left, 1)
        await w.advance("1m")
        assert await run.result() == [2, 4]


async def test_nested_gathers(world: Any, app: App) -> None:
    async def pair(ctx: Context, x: int) -> list[int]:
        return list(await ctx.gather(ctx.step(double, x), ctx.wait(more)))

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        return list(await ctx.gather(pair(ctx, 1), pair(ctx, 2)))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        paths = sorted(one.path for one in await run.waiting())
        assert paths == ["gather[0]/more", "gather[1]/more"]
        await w.app.signal("a", more, 20, path=paths[1])
        await w.app.signal("a", more, 10, path=paths[0])
        await w.settle()
        assert await run.result() == [[2, 10], [4, 20]]


# --- map -----------------------------------------------------------------------------------------


async def test_map_keeps_the_order_of_the_items(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return await ctx.map(double, range(10))

    async with world(app) as w:
        assert await (await w.begin(flow)).result() == [2 * n for n in range(10)]


async def test_map_runs_at_most_so_many_at_a_time(world: Any, app: App) -> None:
    busy, peak = 0, 0

    async def work(n: int) -> int:
        nonlocal busy, peak
        busy += 1
        peak = max(peak, busy)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        busy -= 1
        return n

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return await ctx.map(step(work), range(12), concurrency=3)

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.result() == list(range(12))
        assert 1 < peak <= 3


async def test_map_over_a_coroutine_function(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        async def one(n: int) -> int:
            await ctx.sleep(n)
            return await ctx.step(double, n)

        return await ctx.map(one, [3, 1, 2], concurrency=2)

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("10s")
        assert await run.result() == [6, 2, 4]


async def test_map_over_nothing(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return await ctx.map(double, [])

    async with world(app) as w:
        assert await (await w.begin(flow)).result() == []


async def test_map_wants_room_for_one(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.map(double, [1], concurrency=0)
        except BadValue as error:
            return str(error)
        return "no"

    async with world(app) as w:
        assert "at least 1" in await (await w.begin(flow)).result()


async def test_branches_are_bounded(world: Any, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "branches_max", 5)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.map(double, range(6))

    async with world(app) as w:
        run = await w.begin(flow)
        with pytest.raises(RunFailed, match="at most 5"):
            await run.result()


# --- failure -------------------------------------------------------------------------------------


async def test_a_failing_branch_cancels_its_siblings_and_is_raised(world: Any, app: App) -> None:
    seen: list[str] = []

    async def sibling(ctx: Context) -> int:
        try:
            return await ctx.wait(left)
        except asyncio.CancelledError:
            seen.append("told")
            raise

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.gather(sibling(ctx), ctx.step(broken))
        except StepFailed as error:
            return f"{error.type}: {error.message}"
        return "no"

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert await run.result() == "ValueError: no luck"
        assert seen
        assert (await w.store.counts())["watchers"] == 0


async def test_cleanup_of_a_cancelled_sibling_may_run_steps(world: Any, app: App) -> None:
    undone: list[str] = []

    async def undo(what: str) -> None:
        undone.append(what)

    async def sibling(ctx: Context) -> None:
        try:
            await ctx.wait(left)
        finally:
            await ctx.step(undo, "sibling")

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.gather(sibling(ctx), ctx.step(broken))
        except StepFailed:
            await ctx.sleep("1s")
            return "failed first, cleaned up"
        return "no"

    async with world(app) as w:
        run = await w.begin(flow)
        await w.evict()
        await w.advance("1s")
        assert await run.result() == "failed first, cleaned up"
        assert undone == ["sibling"]


async def test_a_sibling_with_a_step_in_flight_is_cancelled(world: Any, app: App) -> None:
    begun, cut = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.set()
            raise

    async def after(ctx: Context) -> None:
        await ctx.wait(left)
        await ctx.step(broken)

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.gather(ctx.step(slow), after(ctx))
        except StepFailed as error:
            return error.type
        return "no"

    async with world(app) as w:
        run = await w.app.start(flow, id="a")
        await begun.wait()
        await w.app.signal("a", left, 1)
        await cut.wait()
        await w.settle()
        assert await run.result() == "ValueError"


async def test_branches_that_have_not_begun_never_begin(world: Any, app: App) -> None:
    began: list[int] = []

    async def work(n: int) -> None:
        began.append(n)
        if n == 1:
            raise ValueError("stop")

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.map(step(work), range(5), concurrency=1)
        except StepFailed as error:
            return error.message
        return "no"

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.result() == "stop"
        assert began == [0, 1]


async def test_a_timeout_in_one_branch_cancels_the_others(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.gather(ctx.wait(left, timeout="1h"), ctx.wait(right))
        except WaitTimeout as error:
            return error.path
        return "no"

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("1h")
        assert await run.result() == "left"
        assert (await w.store.counts())["watchers"] == 0


async def test_a_wait_that_a_cancelled_branch_left_is_closed_in_the_store(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        try:
            await ctx.gather(ctx.wait(more), ctx.step(broken))
        except StepFailed:
            pass
        return await ctx.wait(more)

    async with world(app) as w:
        run = await w.begin(flow)
        assert [one.path for one in await run.waiting()] == ["more#2"]
        sent = await w.app.signal(run.id, more, 5)
        assert isinstance(sent, Delivered) and sent.path == "more#2"
        await w.settle()
        assert await run.result() == 5
        assert {one.path: one.status for one in await run.history()}["more"] == "abandoned"


async def test_a_wait_that_is_left_by_a_replay_is_closed_in_the_store(world: Any, app: App) -> None:
    """It was opened before the run left memory; the branch leaves it in the turn that follows the replay."""

    async def fail(ctx: Context) -> None:
        await ctx.wait(left)
        raise ValueError("no")

    @app.workflow
    async def flow(ctx: Context) -> int:
        try:
            await ctx.gather(ctx.wait(more), fail(ctx))
        except ValueError:
            pass
        return await ctx.wait(more)

    async with world(app) as w:
        run = await w.begin(flow)
        await w.evict()
        await w.app.signal(run.id, left, 1)
        await w.settle()
        assert [one.path for one in await run.waiting()] == ["more#2"]
        await w.app.signal(run.id, more, 5)
        assert await run.result() == 5
        assert {one.path: one.status for one in await run.history()}["more"] == "abandoned"


async def test_the_first_failure_in_a_nested_gather_reaches_the_top(world: Any, app: App) -> None:
    async def inner(ctx: Context) -> None:
        await ctx.gather(ctx.wait(left), ctx.step(broken))

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.gather(inner(ctx), ctx.wait(right), ctx.sleep("1d"))
        except StepFailed as error:
            return error.path
        return "no"

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.result() == "gather[0]/broken"
        assert (await w.store.counts())["watchers"] == 0


async def test_a_branch_that_swallows_its_cancellation_goes_on(world: Any, app: App) -> None:
    async def stubborn(ctx: Context) -> int:
        try:
            await ctx.wait(left)
        except asyncio.CancelledError:
            pass
        return await ctx.step(double, 21)

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.gather(stubborn(ctx), ctx.step(broken))
        except StepFailed as error:
            return error.type
        return "no"

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.result() == "ValueError"
        assert "gather[0]/double" in [one.path for one in await run.history()]


# --- paths ---------------------------------------------------------------------------------------


async def test_paths_are_given_where_the_call_is_made(world: Any, app: App) -> None:
    async def branch(ctx: Context, n: int) -> int:
        await ctx.step(double, n)
        return await ctx.step(double, n)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.step(double, 1)
        await ctx.step(double, 1)
        await ctx.gather(ctx.step(double, 1), branch(ctx, 2), branch(ctx, 3))
        with ctx.scope("packing"):
            await ctx.step(double, 1)
            await ctx.sleep(0)
            with ctx.scope("inner"):
                await ctx.step(double, 1)
        with ctx.scope("packing"):
            await ctx.step(double, 1)
        await ctx.step(double.options(name="twice"), 1)

    async with world(app) as w:
        run = await w.begin(flow)
        await run.result()
        assert sorted(one.path for one in await run.history()) == sorted(
            [
                "double",
                "double#2",
                "double#3",
                "gather[1]/double",
                "gather[1]/double#2",
                "gather[2]/double",
                "gather[2]/double#2",
                "packing/double",
                "packing/sleep",
                "packing/inner/double",
                "packing#2/double",
                "twice",
            ]
        )


async def test_a_scope_in_a_branch_is_that_branchs_own(world: Any, app: App) -> None:
    async def branch(ctx: Context, name: str) -> int:
        with ctx.scope(name):
            first = await ctx.wait(more)
            return first + await ctx.step(double, 1)

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return list(await ctx.gather(branch(ctx, "a"), branch(ctx, "b")))

    async with world(app) as w:
        run = await w.begin(flow, id="r")
        await w.app.signal("r", more, 20, path="gather[1]/b/more")
        await w.app.signal("r", more, 10, path="gather[0]/a/more")
        await w.settle()
        assert await run.result() == [12, 22]
        paths = {one.path for one in await run.history()}
        assert {"gather[0]/a/double", "gather[1]/b/double"} <= paths


async def test_an_error_that_is_frozen_leaves_a_scope_as_it_is(world: Any, app: App) -> None:
    @dataclass(frozen=True)
    class Declined(Exception):
        why: str

    @step(raises=[Declined])
    async def charge() -> int:
        raise Declined("no cover")

    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            with ctx.scope("paying"):
                await ctx.step(charge)
        except Declined as declined:
            await ctx.step(double, 1)
            return declined.why
        return "paid"

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.result() == "no cover"
        assert [one.path for one in await run.history()] == ["paying/charge", "double"]


async def test_a_scope_that_is_open_is_not_entered_again(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        scope = ctx.scope("packing")
        with scope, pytest.raises(RuntimeError, match="'packing' is open"), scope:
            pass
        return await ctx.step(double, 1)

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.result() == 2
        assert [one.path for one in await run.history()] == ["double"]


# --- interleaving --------------------------------------------------------------------------------


async def test_branches_see_events_in_the_same_order_on_replay(world: Any, app: App) -> None:
    """The order seen first is the order seen again, though the steps then end in no time."""
    gates = {n: asyncio.Event() for n in range(4)}
    tellings: list[list[str]] = []

    async def work(n: int) -> int:
        await gates[n].wait()
        return n

    @app.workflow
    async def flow(ctx: Context) -> int:
        told: list[str] = []
        tellings.append(told)

        async def branch(n: int) -> None:
            await ctx.step(work, n)
            told.append(f"{n} worked")
            got = await ctx.wait(more, name=f"more-{n}")
            told.append(f"{n} got {got}")

        await ctx.gather(*(branch(n) for n in range(4)))
        told.append("joined")
        await ctx.wait(left)
        return len(told)

    async with world(app) as w:
        run = await w.app.start(flow, id="a")
        for nth, n in enumerate((2, 0, 3, 1)):
            gates[n].set()
            await _recorded(w, run, nth + 1)
        await w.settle()
        for n in (1, 3, 0, 2):
            await w.app.signal("a", more, n, path=f"gather[{n}]/more-{n}")
            await w.settle()
        await w.evict()
        await w.app.signal("a", left, 0)
        await w.settle()
        assert await run.result() == 9
        expected = [f"{n} worked" for n in (2, 0, 3, 1)]
        expected += [f"{n} got {n}" for n in (1, 3, 0, 2)] + ["joined"]
        assert tellings[-1] == expected
        assert len(tellings) >= 2
        assert all(told == expected[: len(told)] for told in tellings)


async def _recorded(w: Any, run: Any, count: int) -> None:
    async def enough() -> bool:
        return sum(one.kind == "step" for one in await run.history()) >= count

    await w.until(enough)


@pytest.mark.parametrize("turns", range(6))
async def test_a_result_and_a_signal_of_one_moment_are_heard_in_the_order_of_the_record(
    world: Any, app: App, turns: int
) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    @step
    async def slow() -> int:
        begun.set()
        await gate.wait()
        return 1

    @step
    async def note(what: str) -> str:
        return what

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        order: list[str] = []

        async def stepping() -> None:
            await ctx.step(slow)
            order.append("step")
            await ctx.step(note, "x")

        async def waiting() -> None:
            await ctx.wait(more)
            order.append("signal")

        await ctx.gather(stepping(), waiting())
        await ctx.step(note.options(name=f"{order[0]}-first"), order[0])
        await ctx.sleep("1h")
        return order

    async with world(app) as w:
        run = await w.app.start(flow)
        await begun.wait()

        async def opened() -> bool:
            return bool(await run.waiting())

        await w.until(opened)
        if turns % 2:
            gate.set()
        sending = asyncio.ensure_future(w.app.signal(run.id, more, 1))
        for _ in range(turns // 2):
            await asyncio.sleep(0)
        gate.set()
        await sending
        await w.settle()
        await w.evict()
        await w.advance("1h")
        info = await run.info()
        assert info.status == "completed", info.reason


async def test_a_signal_reaches_one_branch_while_another_steps(world: Any, app: App) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        await let_go.wait()
        return "slow"

    async def listener(ctx: Context) -> int:
        first = await ctx.wait(left)
        second = await ctx.wait(right)
        return first + second

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        return list(await ctx.gather(ctx.step(slow), listener(ctx)))

    async with world(app) as w:
        run = await w.app.start(flow, id="a")
        await begun.wait()
        await _waiting(w, run, "left")
        await w.app.signal("a", left, 1)
        await _waiting(w, run, "right")
        assert await run.status() == "running"
        await w.app.signal("a", right, 2)
        let_go.set()
        await w.settle()
        assert await run.result() == ["slow", 3]


async def _waiting(w: Any, run: Any, *targets: str) -> None:
    async def stands() -> bool:
        return [one.target for one in await run.waiting()] == list(targets)

    await w.until(stands)


async def test_a_timer_fires_in_one_branch_while_another_steps(world: Any, app: App) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        await let_go.wait()
        return "slow"

    async def impatient(ctx: Context) -> bool:
        return await ctx.wait(left | timer("1m")) == TimedOut()

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        return list(await ctx.gather(ctx.step(slow), impatient(ctx)))

    async with world(app) as w:
        run = await w.app.start(flow, id="a")
        await begun.wait()
        await _waiting(w, run, "left")
        w.clock.set(w.clock.now() + 60_000_000)
        await _waiting(w, run)
        let_go.set()
        await w.settle()
        assert await run.result() == ["slow", True]


async def test_many_signals_and_steps_at_once_in_one_run(world: Any, app: App) -> None:
    async def branch(ctx: Context, n: int) -> int:
        total = 0
        for _ in range(3):
            total += await ctx.wait(more, name=f"more-{n}")
            total += await ctx.step(double, n)
        return total

    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return list(await ctx.gather(*(branch(ctx, n) for n in range(6))))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        sends = [
            w.app.signal("a", more, 1, path=f"gather[{n}]/more-{n}" + (f"#{k}" if k > 1 else ""))
            for k in (1, 2, 3)
            for n in range(6)
        ]
        await asyncio.gather(*sends)
        await w.settle()
        assert await run.result() == [3 + 6 * n for n in range(6)]


async def test_a_coroutine_of_foreign_awaits_is_no_branch(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.gather(asyncio.Event().wait())
        except ForeignAwait as error:
            return str(error)
        return "no"

    async with world(app) as w:
        assert "not durable" in await (await w.begin(flow)).result()


async def test_what_is_no_awaitable_is_refused(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.gather(5)  # type: ignore[call-overload]
        except ForeignAwait as error:
            return str(error)
        return "no"

    async with world(app) as w:
        assert "not int" in await (await w.begin(flow)).result()


# --- one op, several waits -----------------------------------------------------------------------


async def test_a_sibling_of_a_branch_that_fails_first_is_cancelled_where_it_stands(
    world: Any, app: App
) -> None:
    """One op decides both waits. The first fails its branch, so of the second nothing may run, now or on replay."""
    charged: list[int] = []
    tellings: list[list[str]] = []

    async def charge(n: int) -> None:
        charged.append(n)

    @app.workflow
    async def flow(ctx: Context) -> str:
        told: list[str] = []
        tellings.append(told)
        await ctx.sleep("1s")

        async def first() -> None:
            await ctx.wait(left)
            raise ValueError("the first fails")

        async def second() -> None:
            try:
                await ctx.wait(right)
            except asyncio.CancelledError:
                told.append("cancelled at the wait")
                raise
            told.append("went on")
            await ctx.step(charge, 1)

        try:
            await ctx.gather(first(), second())
        except ValueError as error:
            told.append(str(error))
        await ctx.wait(more)
        return " | ".join(told)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal_many([("a", left, 1), ("a", right, 2)])
        await w.advance("1s")
        paths = [one.path for one in await run.history()]
        assert paths == ["sleep", "gather[0]/left", "gather[1]/right", "more"]
        await w.evict()
        await w.app.signal("a", more, 1)
        await w.settle()
        assert await run.result() == "cancelled at the wait | the first fails"
        assert charged == []
        assert all(told == tellings[-1][: len(told)] for told in tellings)


async def test_branches_interleave_the_same_way_when_one_op_decides_several_waits(
    world: Any, app: App
) -> None:
    tellings: list[list[str]] = []

    @app.workflow
    async def flow(ctx: Context) -> int:
        told: list[str] = []
        tellings.append(told)
        await ctx.sleep("1s")

        async def branch(n: int) -> None:
            told.append(f"{n} begins")
            if n < 2:
                await ctx.wait((left, right)[n])
            told.append(f"{n} ends")

        await ctx.map(branch, range(3), concurrency=2)
        await ctx.wait(more)
        return len(told)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal_many([("a", left, 1), ("a", right, 2)])
        await w.advance("1s")
        await w.evict()
        await w.app.signal("a", more, 1)
        await w.settle()
        assert await run.result() == 6
        assert sum(len(told) == 6 for told in tellings) == 2
        assert all(told == tellings[-1][: len(told)] for told in tellings)


# --- a cancelled run -----------------------------------------------------------------------------


async def test_branches_of_a_cancelled_run_clean_up_once_and_to_the_end(
    world: Any, app: App
) -> None:
    """They are told together. The first to be done with it does not cut the others short."""
    cleaned: list[str] = []

    async def clean(what: str) -> None:
        cleaned.append(what)

    async def branch(ctx: Context, n: int, signal: Signal[int]) -> None:
        try:
            await ctx.wait(signal)
        finally:
            await ctx.step(clean, f"{n} begins")
            await ctx.sleep(f"{n}m")
            await ctx.step(clean, f"{n} ends")

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.gather(ctx.wait(more), branch(ctx, 2, left), branch(ctx, 1, right))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await run.cancel()
        await w.settle()
        assert sorted(cleaned) == ["1 begins", "2 begins"]
        await w.advance("10m")
        assert await run.status() == "cancelled"
        assert sorted(cleaned) == ["1 begins", "1 ends", "2 begins", "2 ends"]


async def test_a_clean_up_in_flight_is_not_cut_by_a_quicker_one(world: Any, app: App) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def quick() -> None:
        done.append("quick")

    async def slow() -> None:
        begun.set()
        await let_go.wait()
        done.append("slow")

    async def branch(ctx: Context, signal: Signal[int], clean: Any) -> None:
        try:
            await ctx.wait(signal)
        finally:
            await ctx.step(clean)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.gather(branch(ctx, left, quick), branch(ctx, right, slow))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await run.cancel()
        await begun.wait()
        await _recorded(w, run, 1)
        for _ in range(20):  # whatever the quick one's end leads to happens within these
            await asyncio.sleep(0)
        let_go.set()
        await w.settle()
        assert await run.status() == "cancelled"
        assert done == ["quick", "slow"]


async def test_map_gives_every_item_a_path_of_its_own_number(world: Any, app: App) -> None:
    @app.workflow
    async def of_steps(ctx: Context) -> list[int]:
        return await ctx.map(double, range(5), concurrency=2)

    @app.workflow
    async def of_calls(ctx: Context) -> list[int]:
        return await ctx.map(lambda n: ctx.step(double, n), range(5), concurrency=2)

    async with world(app) as w:
        for flow in (of_steps, of_calls):
            run = await w.begin(flow)
            assert await run.result() == [0, 2, 4, 6, 8]
            values = {one.path: one.value for one in await run.history()}
            assert values == {f"map[{n}]/double": 2 * n for n in range(5)}
