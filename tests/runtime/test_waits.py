"""Waiting: every row of the design's table of semantics that speaks of signals, deadlines and winners."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    AmbiguousSignal,
    App,
    Buffered,
    Context,
    Delivered,
    InvalidPayload,
    NotWaiting,
    Overloaded,
    RunFinished,
    RunNotFound,
    Signal,
    SignalTaken,
    TimedOut,
    WaitTimeout,
    Won,
    timer,
)
from perdure.model import limits


@dataclass
class Approval:
    ok: bool
    by: str = ""


approval = Signal("approval", Approval)
number = Signal("number", int)
claim = Signal("claim", str, buffer="first")
line = Signal("line", int, buffer="all")


# --- delivered -----------------------------------------------------------------------------------


async def test_a_signal_to_a_waiting_run_is_delivered(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> Approval:
        return await ctx.wait(approval)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert await run.status() == "waiting"
        sent = await w.app.signal("a", approval, Approval(True, "ann"))
        assert isinstance(sent, Delivered)
        assert (sent.run_id, sent.path) == ("a", "approval")
        await w.settle()
        assert await run.result() == Approval(True, "ann")
        assert await w.app.buffered("a") == []
        (entry,) = await run.history()
        assert (entry.status, entry.winner) == ("done", "signal:approval")


async def test_delivery_wakes_the_run_in_the_same_commit(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(number)

    async with world(app) as w:
        await w.begin(flow, id="a")
        await w.app.signal("a", number, 1)
        counts = await w.store.counts()
        assert counts["watchers"] == 0
        assert counts["signals"] == 0
        assert "runs.waiting" not in counts


async def test_status_says_what_a_run_waits_for(world: Any, app: App) -> None:
    @app.workflow
    async def sleeper(ctx: Context) -> None:
        await ctx.sleep("1h")

    @app.workflow
    async def waiter(ctx: Context) -> int | TimedOut:
        return await ctx.wait(number | timer("1h"))

    async with world(app) as w:
        asleep = await w.begin(sleeper)
        waits = await w.begin(waiter)
        assert await asleep.status() == "sleeping"
        assert await waits.status() == "waiting"
        (open_wait,) = await waits.waiting()
        assert (open_wait.kind, open_wait.target) == ("signal", "number")
        assert open_wait.until == w.clock.moment + timedelta(hours=1)
        (nap,) = await asleep.waiting()
        assert nap.kind == "timer"


# --- buffered ------------------------------------------------------------------------------------


async def test_a_signal_before_the_wait_is_kept_and_taken(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.sleep("1h")
        return await ctx.wait(number)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        sent = await w.app.signal("a", number, 7)
        assert isinstance(sent, Buffered)
        assert sent.replaced is None
        (kept,) = await run.buffered()
        assert (kept.signal_id, kept.payload, kept.policy) == (sent.signal_id, 7, "latest")
        assert kept.received_at == w.clock.moment
        await w.advance("1h")
        assert await run.result() == 7
        assert await w.app.buffered("a") == []


async def test_a_signal_to_a_run_that_has_not_begun_is_kept(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(number)

    async with world(app) as w:
        run = await w.begin(flow, id="a", start_at="1h")
        assert await run.status() == "ready"
        assert isinstance(await w.app.signal("a", number, 1), Buffered)
        await w.advance("1h")
        assert await run.result() == 1


async def test_a_signal_to_a_run_with_a_step_in_flight_is_kept(world: Any, app: App) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await let_go.wait()

    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.step(work)
        return await ctx.wait(number)

    async with world(app) as w:
        run = await w.app.start(flow, id="a")
        await begun.wait()
        assert await run.status() == "running"
        assert isinstance(await w.app.signal("a", number, 1), Buffered)
        let_go.set()
        await w.settle()
        assert await run.result() == 1


async def test_a_wait_that_finds_its_signal_sets_no_timer(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.sleep("1s")
        return await ctx.wait(number, timeout="1h")

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", number, 1)
        await w.advance("1s")
        assert await run.status() == "completed"
        assert (await w.store.look()).deadline_at is None


async def test_latest_keeps_one_and_names_what_it_replaced(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        await ctx.sleep("1s")
        seen: list[Any] = [await ctx.wait(number)]
        seen.append(await ctx.wait(number | timer("1s")) == TimedOut())
        return seen

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        first = await w.app.signal("a", number, 1)
        second = await w.app.signal("a", number, 2)
        assert isinstance(first, Buffered)
        assert isinstance(second, Buffered)
        assert second.replaced == first.signal_id
        assert [one.payload for one in await run.buffered()] == [2]
        (fact,) = await w.facts("signal.replaced")
        assert fact.event_id == first.signal_id
        assert second.signal_id in fact.payload
        await w.advance("2s")
        assert await run.result() == [2, True]


async def test_first_keeps_the_first_and_refuses_the_next(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        await ctx.sleep("1s")
        return await ctx.wait(claim)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert isinstance(await w.app.signal("a", claim, "ann"), Buffered)
        with pytest.raises(SignalTaken, match="already answered"):
            await w.app.signal("a", claim, "bob")
        await w.advance("1s")
        assert await run.result() == "ann"


async def test_first_is_one_claim_also_after_it_was_taken(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        won = await ctx.wait(claim)
        await ctx.sleep("1h")
        return won

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert isinstance(await w.app.signal("a", claim, "ann"), Delivered)
        await w.settle()
        with pytest.raises(SignalTaken):
            await w.app.signal("a", claim, "bob")
        await w.advance("1h")
        assert await run.result() == "ann"


async def test_only_one_of_many_claims_at_once_wins(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        return await ctx.wait(claim)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        sends = [w.app.signal("a", claim, f"clerk {n}") for n in range(20)]
        answers = await asyncio.gather(*sends, return_exceptions=True)
        won = [one for one in answers if isinstance(one, Delivered)]
        refused = [one for one in answers if isinstance(one, SignalTaken | RunFinished)]
        assert (len(won), len(refused)) == (1, 19)
        assert await run.result() == "clerk 0"


async def test_all_keeps_every_one_in_order(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        await ctx.sleep("1s")
        return [await ctx.wait(line) for _ in range(5)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        for n in range(4):
            assert isinstance(await w.app.signal("a", line, n), Buffered)
        assert [one.payload for one in await run.buffered()] == [0, 1, 2, 3]
        await w.advance("1s")
        assert await run.status() == "waiting"
        await w.app.signal("a", line, 4)
        await w.settle()
        assert await run.result() == [0, 1, 2, 3, 4]


async def test_a_burst_to_a_waiting_run_loses_nothing(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return [await ctx.wait(line) for _ in range(30)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await asyncio.gather(*(w.app.signal("a", line, n) for n in range(30)))
        await w.settle()
        assert await run.result() == list(range(30))


async def test_the_buffer_of_a_run_is_bounded(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "buffered_per_run_max", 3)

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.sleep("1h")
        await ctx.wait(line)

    async with world(app) as w:
        await w.begin(flow, id="a")
        for n in range(3):
            await w.app.signal("a", line, n)
        with pytest.raises(Overloaded, match="3 signals are buffered"):
            await w.app.signal("a", line, 3)


async def test_latest_still_replaces_when_the_buffer_is_full(
    world: Any, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "buffered_per_run_max", 1)

    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.sleep("1h")
        return await ctx.wait(number)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", number, 1)
        sent = await w.app.signal("a", number, 2)
        assert isinstance(sent, Buffered)
        assert sent.replaced is not None
        await w.advance("1h")
        assert await run.result() == 2


async def test_buffer_false_wants_a_waiter(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        await ctx.sleep("1s")
        return await ctx.wait(number)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        before = await w.store.counts()
        with pytest.raises(NotWaiting, match="does not wait for 'number'"):
            await w.app.signal("a", number, 1, buffer=False)
        assert await w.store.counts() == before
        await w.advance("1s")
        assert isinstance(await w.app.signal("a", number, 2, buffer=False), Delivered)
        await w.settle()
        assert await run.result() == 2


async def test_a_refused_claim_that_nobody_waited_for_stays_free(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        await ctx.sleep("1s")
        return await ctx.wait(claim)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        with pytest.raises(NotWaiting):
            await w.app.signal("a", claim, "too early", buffer=False)
        assert isinstance(await w.app.signal("a", claim, "ann"), Buffered)
        await w.advance("1s")
        assert await run.result() == "ann"


# --- ttl -----------------------------------------------------------------------------------------

brief = Signal("brief", int, ttl="10s", buffer="all")


async def test_a_signal_past_its_ttl_is_gone_with_a_fact(world: Any, app: App) -> None:
    @app.workflow(signals=[brief])
    async def flow(ctx: Context) -> int:
        await ctx.sleep("1m")
        return await ctx.wait(brief)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        sent = await w.app.signal("a", brief, 1)
        assert isinstance(sent, Buffered)
        (kept,) = await run.buffered()
        assert kept.expires_at == w.clock.moment + timedelta(seconds=10)
        await w.advance("11s")
        assert await run.buffered() == []
        (fact,) = await w.facts("signal.expired")
        assert fact.event_id == sent.signal_id
        status = await w.app.signal_status(sent.signal_id)
        assert status is not None
        assert status.state == "expired"
        await w.advance("1m")
        assert await run.status() == "waiting"


async def test_a_signal_at_its_ttl_is_still_good(world: Any, app: App) -> None:
    @app.workflow(signals=[brief])
    async def flow(ctx: Context) -> int:
        await ctx.sleep("10s")
        return await ctx.wait(brief)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", brief, 1)
        await w.advance("10s")
        assert await run.result() == 1


async def test_a_wait_skips_what_expired_and_takes_the_next(world: Any, app: App) -> None:
    @app.workflow(signals=[brief])
    async def flow(ctx: Context) -> int:
        await ctx.sleep("15s")
        return await ctx.wait(brief)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", brief, 1)
        await w.advance("8s")
        await w.app.signal("a", brief, 2)
        await w.advance("7s")
        assert await run.result() == 2


# --- order ---------------------------------------------------------------------------------------


async def test_a_signal_to_the_path_comes_before_one_to_the_run(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        await ctx.sleep("1s")
        return [await ctx.wait(line), await ctx.wait(line)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", line, 1)
        await w.app.signal("a", line, 2, path="line")
        await w.advance("1s")
        assert await run.result() == [2, 1]


async def test_a_signal_to_another_path_is_left_alone(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        await ctx.sleep("1s")
        return [await ctx.wait(line), await ctx.wait(line)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", line, 2, path="line#2")
        await w.advance("1s")
        assert await run.status() == "waiting"
        await w.app.signal("a", line, 1)
        await w.settle()
        assert await run.result() == [1, 2]


async def test_the_oldest_accepted_wins_whatever_the_order_in_the_wait(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> Any:
        await ctx.sleep("1s")
        return [await ctx.wait(number | line), await ctx.wait(number | line)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", line, 1)
        await w.app.signal("a", number, 2)
        await w.advance("1s")
        assert await run.result() == [1, 2]


async def test_a_signal_comes_before_a_finished_run_and_both_before_the_timer(
    world: Any, app: App
) -> None:
    @app.workflow
    async def child(ctx: Context) -> int:
        return 5

    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        handle = await ctx.start(child)
        await ctx.sleep("1s")
        seen = []
        for _ in range(2):
            won = await ctx.first(late=timer(0), child=handle, sig=number)
            seen.append(won.name)
        return seen

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", number, 1)
        await w.advance("1s")
        assert await run.result() == ["sig", "child"]


async def test_losers_consume_nothing(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        won = await ctx.wait(number | line)
        await ctx.sleep("1s")
        return [won, await ctx.wait(line)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", number, 1)
        await w.settle()
        assert isinstance(await w.app.signal("a", line, 2), Buffered)
        await w.advance("1s")
        assert await run.result() == [1, 2]


# --- deadlines -----------------------------------------------------------------------------------


async def test_timeout_raises_wait_timeout(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.wait(number, timeout="2d")
        except WaitTimeout as error:
            assert isinstance(error, TimeoutError)
            await ctx.sleep("1s")
            return f"{error.path}: {error}"
        return "no"

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance("2d")
        await w.advance("1s")
        assert await run.result() == "number: the wait at 'number' ran out of time"


async def test_a_timer_in_the_condition_gives_timed_out(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        match await ctx.wait(approval | timer("48h")):
            case Approval(ok=True):
                return "approved"
            case TimedOut():
                return "late"
        return "no"

    async with world(app) as w:
        late = await w.begin(flow, id="late")
        good = await w.begin(flow, id="good")
        await w.app.signal("good", approval, Approval(True))
        await w.advance("48h")
        assert await late.result() == "late"
        assert await good.result() == "approved"
        (entry,) = await late.history()
        assert entry.winner == "timer"
        assert len(await w.facts("signal.timeout")) == 1


async def test_timeout_and_timer_together_the_earlier_decides(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context, wait: int, limit: int) -> str:
        try:
            value = await ctx.wait(number | timer(wait), timeout=limit)
        except WaitTimeout:
            return "raised"
        return type(value).__name__

    async with world(app) as w:
        raised = await w.begin(flow, 20, 10)
        valued = await w.begin(flow, 10, 20)
        await w.advance("30s")
        assert await raised.result() == "raised"
        assert await valued.result() == "TimedOut"


async def test_nothing_fires_before_its_time(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.sleep("1h")

    async with world(app) as w:
        run = await w.begin(flow)
        await w.advance(timedelta(hours=1) - timedelta(microseconds=1))
        assert await run.status() == "sleeping"
        await w.advance(timedelta(microseconds=1))
        assert await run.status() == "completed"


async def test_sleep_until_a_moment_and_one_in_the_past(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        await ctx.sleep_until(ctx.now() - timedelta(days=1))
        first = ctx.now()
        await ctx.sleep_until(first + timedelta(hours=3))
        return [str(ctx.now() - first)]

    async with world(app) as w:
        run = await w.begin(flow)
        assert await run.status() == "sleeping"
        await w.advance("3h")
        assert await run.result() == ["3:00:00"]


async def test_an_event_at_the_deadline_wins(world: Any, app: App) -> None:
    """The clock stands at the deadline; the timer has not been acted on yet."""

    @app.workflow
    async def flow(ctx: Context) -> Any:
        return await ctx.wait(number | timer("10s"))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        send = asyncio.ensure_future(w.app.signal("a", number, 1))
        w.clock.set(w.clock.now() + 10_000_000)
        assert isinstance(await send, Delivered)
        await w.settle()
        assert await run.result() == 1


async def test_an_event_after_the_deadline_stays_for_a_later_wait(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        first = await ctx.wait(number | timer("10s"))
        return [first == TimedOut(), await ctx.wait(number)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        # The timers are held back, so that the send finds the wait open but past its deadline.
        held, w.worker.timers._fire = w.worker.timers._fire, _nothing
        w.clock.set(w.clock.now() + 10_000_001)
        sent = await w.app.signal("a", number, 1)
        assert isinstance(sent, Buffered)
        w.worker.timers._fire = held
        w.worker.timers.note(w.clock.now())
        await w.settle()
        assert await run.result() == [True, 1]


async def _nothing() -> None:
    return None


async def test_a_late_event_is_not_swallowed_by_the_wait_that_ran_out_while_paused(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        first = await ctx.wait(number | timer("10s"))
        return [first == TimedOut(), await ctx.wait(number)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await run.pause()
        await w.advance("11s")
        assert isinstance(await w.app.signal("a", number, 1), Buffered)
        await run.resume()
        await w.settle()
        assert await run.result() == [True, 1]


async def test_an_event_in_time_wins_though_the_run_was_paused_past_the_deadline(
    world: Any, app: App
) -> None:
    @app.workflow
    async def flow(ctx: Context) -> Any:
        return await ctx.wait(number | timer("10s"))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await run.pause()
        await w.advance("5s")
        await w.app.signal("a", number, 1)
        await w.advance("1d")
        await run.resume()
        await w.settle()
        assert await run.result() == 1


async def test_zero_timeout_takes_what_is_there_or_nothing(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        await ctx.sleep("1s")
        seen: list[Any] = []
        while True:
            got = await ctx.wait(line | timer(0))
            if isinstance(got, TimedOut):
                return seen
            seen.append(got)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        for n in range(3):
            await w.app.signal("a", line, n)
        await w.advance("1s")
        assert await run.result() == [0, 1, 2]


async def test_deadlines_survive_a_crash(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> str:
        got = await ctx.wait(number | timer("1h"))
        return f"{got} {ctx.now():%H:%M}"

    async with world(app) as w:
        await w.begin(flow, id="a")
        await w.advance("20m")
        await w.crash()
    async with world(app) as w:
        await w.advance("39m")
        assert await w.app.run("a").status() == "waiting"
        await w.advance("1m")
        assert await w.app.run("a").result() == "TimedOut() 10:00"


async def test_a_deadline_that_passed_while_nobody_ran_fires_on_start(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> bool:
        return await ctx.wait(number | timer("1h")) == TimedOut()

    async with world(app) as w:
        await w.begin(flow, id="a")
    w.clock.set(w.clock.now() + 7_200_000_000)
    async with world(app) as w:
        await w.settle()
        assert await w.app.run("a").result() is True


# --- several conditions --------------------------------------------------------------------------


async def test_first_names_the_winner(world: Any, app: App) -> None:
    @app.workflow
    async def child(ctx: Context) -> int:
        await ctx.sleep("1h")
        return 9

    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        handle = await ctx.start(child)
        won = [
            await ctx.first(yes=approval, late=timer("1m")),
            await ctx.first(yes=approval, late=timer("1m"), child=handle),
            await ctx.first(yes=number | line, child=handle),
        ]
        assert isinstance(won[0], Won)
        return [won[0].name, won[0].value.by, won[1].name, str(won[1].value), won[2].name]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", approval, Approval(True, "ann"))
        await w.advance("1m")
        await w.advance("59m")
        assert await run.result() == ["yes", "ann", "late", "TimedOut()", "child"]


async def test_first_with_a_union_under_one_name(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[Any]:
        won = await ctx.first(word=claim, figure=number | line)
        return [won.name, won.value]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", line, 3)
        await w.settle()
        assert await run.result() == ["figure", 3]


async def test_a_union_gives_each_value_in_its_own_type(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        seen = []
        for _ in range(3):
            got = await ctx.wait(approval | number | claim)
            seen.append(type(got).__name__)
        return seen

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        for signal, payload in ((claim, "x"), (approval, Approval(False)), (number, 1)):
            await w.app.signal("a", signal, payload)
            await w.settle()
        assert await run.result() == ["str", "Approval", "int"]


async def test_the_same_signal_twice_in_a_union_is_one_waiter(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> int:
        return await ctx.wait(number | number)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert isinstance(await w.app.signal("a", number, 4), Delivered)
        await w.settle()
        assert await run.result() == 4


# --- addressing ----------------------------------------------------------------------------------


async def test_several_waiters_by_name_are_ambiguous(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return list(await ctx.gather(ctx.wait(number), ctx.wait(number)))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        before = await w.store.counts()
        with pytest.raises(AmbiguousSignal) as refused:
            await w.app.signal("a", number, 1)
        assert refused.value.paths == ("number", "number#2")
        assert await w.store.counts() == before
        await w.app.signal("a", number, 2, path="number#2")
        await w.settle()
        assert isinstance(await w.app.signal("a", number, 1), Delivered)
        await w.settle()
        assert await run.result() == [1, 2]


async def test_a_path_that_waits_for_something_else_buffers(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        return [await ctx.wait(number), await ctx.wait(number)]

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert isinstance(await w.app.signal("a", number, 2, path="number#2"), Buffered)
        assert await run.status() == "waiting"
        await w.app.signal("a", number, 1)
        await w.settle()
        assert await run.result() == [1, 2]


async def test_first_claims_count_per_path_if_addressed(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[str]:
        return list(await ctx.gather(ctx.wait(claim), ctx.wait(claim)))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await w.app.signal("a", claim, "ann", path="claim")
        with pytest.raises(SignalTaken):
            await w.app.signal("a", claim, "bob", path="claim")
        await w.app.signal("a", claim, "bob", path="claim#2")
        await w.settle()
        assert await run.result() == ["ann", "bob"]


async def test_a_named_wait_has_its_own_path(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> list[int]:
        left = ctx.wait(number, name="left")
        right = ctx.wait(number, name="right")
        return list(await ctx.gather(left, right))

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        assert sorted(one.path for one in await run.waiting()) == ["left", "right"]
        await w.app.signal("a", number, 2, path="right")
        await w.app.signal("a", number, 1, path="left")
        await w.settle()
        assert await run.result() == [1, 2]


# --- ends ----------------------------------------------------------------------------------------


async def test_a_signal_to_an_unknown_or_ended_run_is_refused(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> None:
        return None

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        await run.result()
        before = await w.store.counts()
        with pytest.raises(RunFinished) as refused:
            await w.app.signal("a", number, 1)
        assert refused.value.status == "completed"
        with pytest.raises(RunNotFound, match="no run 'nobody'"):
            await w.app.signal("nobody", number, 1)
        assert await w.store.counts() == before


async def test_what_a_run_never_took_is_discarded_with_a_fact(world: Any, app: App) -> None:
    kept = Signal("kept", int, on_end="dead_letter")

    @app.workflow
    async def flow(ctx: Context) -> None:
        await ctx.sleep("1s")

    async with world(app) as w:
        await w.begin(flow, id="a")
        gone = await w.app.signal("a", number, 1)
        letter = await w.app.signal("a", kept, 2)
        await w.advance("1s")
        assert await w.app.buffered("a") == []
        assert len(await w.facts("signal.discarded")) == 2
        (dead,) = await w.app.dead_letters()
        assert isinstance(letter, Buffered)
        assert (dead.id, dead.name, dead.payload) == (letter.signal_id, "kept", 2)
        assert isinstance(gone, Buffered)
        fate = await w.app.signal_status(gone.signal_id)
        assert fate is not None
        assert fate.state == "discarded"


async def test_a_payload_that_does_not_fit_changes_nothing(world: Any, app: App) -> None:
    @app.workflow
    async def flow(ctx: Context) -> Approval:
        return await ctx.wait(approval)

    async with world(app) as w:
        run = await w.begin(flow, id="a")
        before = await w.store.counts()
        with pytest.raises(InvalidPayload):
            await w.app.signal("a", approval, {"ok": "perhaps"})
        assert await w.store.counts() == before
        await w.app.signal("a", approval, {"ok": True})
        await w.settle()
        assert await run.result() == Approval(True)
