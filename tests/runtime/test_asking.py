"""Questions to a run: a signal is sent, workflow code answers it, and the answer finds who asked."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from worlds import Deadly, Stage, Worlds

from perdure import (
    App,
    BadValue,
    Conflict,
    Context,
    InvalidPayload,
    NotAsked,
    NotRunning,
    Queue,
    RunFailed,
    RunFinished,
    RunHandle,
    RunNotFound,
    Signal,
    SignalLost,
    Topic,
    Undecodable,
    UnknownSignal,
    following,
    timer,
)
from perdure.model import limits
from perdure.model.streams import REPLIES
from perdure.testing import Crowd
from perdure.testing.conformance import check_invariants

question = Signal("question", int, buffer="all")
other = Signal("other", int, buffer="all")
latest = Signal("latest", int)
short = Signal("short", int, buffer="all", ttl="1s")
go = Signal("go", int, buffer="all")
jobs = Queue("jobs", int)
tick = Topic("tick", int)


@dataclass
class Price:
    amount: int
    currency: str


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody hears of is found soon."""
    monkeypatch.setattr(following, "_look_every_s", 0.02)
    monkeypatch.setattr(following, "_look_soon_s", 0.02)


@pytest.fixture
def oracle(app: App) -> Any:
    """A run that doubles what it is asked, until it is 0."""

    @app.workflow
    async def oracle(ctx: Context) -> str:
        while number := await ctx.wait(question):
            await ctx.reply(2 * number)
        return "over"

    return oracle


def asking(w: Any, *args: Any, **options: Any) -> "asyncio.Task[Any]":
    return asyncio.ensure_future(asyncio.wait_for(w.app.ask(*args, **options), 10))


# --- asking ------------------------------------------------------------------------------------------


async def test_a_question_is_answered(world: Worlds, app: App, oracle: Any) -> None:
    async with world(app) as w:
        run = await w.begin(oracle)
        assert await w.app.ask(run.id, question, 21) == 42
        assert await w.app.ask(run.id, "question", 4, timeout="10s") == 8
        assert await run.streams() == []  # the answers are not its users' affair


async def test_each_of_many_gets_the_answer_to_its_own(
    world: Worlds, app: App, oracle: Any
) -> None:
    async with world(app) as w:
        run = await w.begin(oracle)
        asked = [asking(w, run.id, question, number) for number in range(1, 21)]
        assert await asyncio.gather(*asked) == [2 * number for number in range(1, 21)]
        await w.settle()
        assert await check_invariants(w.store) == []


async def test_a_signal_that_is_only_buffered_is_answered_when_the_run_comes_to_it(
    world: Worlds, app: App
) -> None:
    @app.workflow
    async def later(ctx: Context) -> None:
        await ctx.wait(go)
        await ctx.reply(-await ctx.wait(question))

    async with world(app) as w:
        run = await w.begin(later)
        asked = asking(w, run.id, question, 7)
        await w.until(lambda: _buffered(run, 1))
        await w.app.signal(run.id, go, 1)
        assert await asked == -7


async def _buffered(run: RunHandle[Any], count: int) -> bool:
    return len(await run.buffered()) == count


async def test_code_may_work_before_it_answers(world: Worlds, app: App) -> None:
    @app.step
    async def look_up(number: int) -> str:
        return f"price of {number}"

    @app.workflow
    async def desk(ctx: Context) -> None:
        number = await ctx.wait(question)
        await ctx.sleep("1h")
        await ctx.reply(await ctx.step(look_up, number))

    async with world(app) as w:
        run = await w.begin(desk)
        asked = asking(w, run.id, question, 7)
        await w.until(lambda: _sleeps(run))
        await w.advance("1h")
        assert await asked == "price of 7"


async def _sleeps(run: RunHandle[Any]) -> bool:
    return await run.status() == "sleeping"


async def test_the_answer_comes_back_as_the_type_that_is_asked_for(world: Worlds, app: App) -> None:
    @app.workflow
    async def shop(ctx: Context) -> None:
        while await ctx.wait(question):
            await ctx.reply(Price(5, "EUR"))

    async with world(app) as w:
        run = await w.begin(shop)
        assert await w.app.ask(run.id, question, 1, type=Price) == Price(5, "EUR")
        assert await w.app.ask(run.id, question, 1) == {"amount": 5, "currency": "EUR"}
        with pytest.raises(Undecodable, match="the reply to signal 'question'"):
            await w.app.ask(run.id, question, 1, type=int)


async def test_the_first_reply_counts(world: Worlds, app: App) -> None:
    @app.workflow
    async def twice(ctx: Context) -> None:
        await ctx.wait(question)
        await ctx.reply("first")
        await ctx.reply("second")

    async with world(app) as w:
        run = await w.begin(twice)
        assert await w.app.ask(run.id, question, 1, key="k") == "first"
        await run.result()
        assert await w.app.ask(run.id, question, 1, key="k") == "first"


# --- which signal is answered ------------------------------------------------------------------------


async def test_a_branch_answers_what_it_received(world: Worlds, app: App) -> None:
    @app.workflow
    async def desks(ctx: Context) -> None:
        async def desk(signal: Signal[int], name: str) -> None:
            number = await ctx.wait(signal)
            await ctx.wait(go)
            await ctx.reply([name, number])

        await ctx.gather(desk(question, "a"), desk(other, "b"))

    async with world(app) as w:
        run = await w.begin(desks)
        first = asking(w, run.id, question, 1)
        second = asking(w, run.id, other, 2)
        await w.until(lambda: _waits_twice_for_go(run))
        await w.evict()
        for path in ("gather[1]/go", "gather[0]/go"):
            await w.app.signal(run.id, go, 0, path=path)
        # The signal that each received last is the nudge, which nobody asked by.
        await w.settle()
        assert await run.status() == "completed"
        for asked in (first, second):
            with pytest.raises(RunFinished, match="completed"):
                await asked


async def _waits_twice_for_go(run: RunHandle[Any]) -> bool:
    return [one.target for one in await run.waiting()] == ["go", "go"]


async def test_a_branch_begins_with_what_the_code_around_it_received(
    world: Worlds, app: App
) -> None:
    @app.workflow
    async def split(ctx: Context) -> None:
        async def one(say: str) -> None:
            await ctx.sleep("1s")
            await ctx.reply(say)

        async def listen() -> None:
            number = await ctx.wait(other)
            await ctx.reply(number + 1)

        await ctx.wait(question)
        await ctx.gather(one("asked before"), listen())
        await ctx.reply("what a branch received is its own affair")

    async with world(app) as w:
        run = await w.begin(split)
        first = asking(w, run.id, question, 1)
        await w.until(lambda: _waits_for(run, "other"))
        assert await w.app.ask(run.id, other, 1) == 2
        await w.evict()
        await w.advance("2s")
        assert await first == "asked before"
        await run.result()
        assert await _replies(run) == ["gather[1]/reply", "gather[0]/reply", "reply"]


async def _replies(run: RunHandle[Any]) -> list[str]:
    return [one.path for one in await run.history() if one.name == REPLIES]


async def _waits_for(run: RunHandle[Any], target: str) -> bool:
    return target in [one.target for one in await run.waiting()]


async def test_what_is_no_signal_changes_nothing(world: Worlds, app: App) -> None:
    @app.workflow
    async def mixed(ctx: Context) -> None:
        await ctx.wait(question)
        await ctx.wait(other | timer("1s"))
        await ctx.wait(jobs)
        await ctx.wait(tick)
        await ctx.reply("at last")

    async with world(app) as w:
        run = await w.begin(mixed)
        asked = asking(w, run.id, question, 1)
        await w.until(lambda: _waits_for(run, "other"))
        await w.advance("2s")
        await w.app.put(jobs, 1)
        await w.emit("tick", 1)
        assert await asked == "at last"


async def test_the_same_signal_is_answered_on_replay(world: Worlds, app: App) -> None:
    @app.workflow
    async def slow(ctx: Context) -> None:
        await ctx.wait(question)
        await ctx.wait(go)
        await ctx.reply("to the nudge")
        number = await ctx.wait(question)
        await ctx.sleep("1h")
        await ctx.reply(number)

    async with world(app) as w:
        run = await w.begin(slow)
        first = asking(w, run.id, question, 1)
        await w.until(lambda: _waits_for(run, "go"))
        await w.evict()
        assert await w.app.ask(run.id, go, 1) == "to the nudge"
        second = asking(w, run.id, question, 5)
        await w.until(lambda: _sleeps(run))
        await w.evict()
        await w.advance("1h")
        assert await second == 5
        with pytest.raises(RunFinished):
            await first


async def test_a_reply_without_a_question_is_an_error_that_code_can_catch(
    world: Worlds, app: App
) -> None:
    @app.workflow
    async def hasty(ctx: Context, again: bool) -> str:
        if again:
            await ctx.wait(question)
            await ctx.continue_as(hasty, False)
        try:
            await ctx.reply(1)
        except NotAsked as error:
            return str(error)
        return "no"

    async with world(app) as w:
        run = await w.begin(hasty, False)
        assert "has received no signal" in await run.result()
        run = await w.begin(hasty, True)
        with pytest.raises(RunFinished):  # the next generation knows nothing of it
            await w.app.ask(run.id, question, 1)


# --- no answer ---------------------------------------------------------------------------------------


async def test_a_run_that_ends_without_an_answer(world: Worlds, app: App) -> None:
    @app.workflow
    async def rude(ctx: Context, fail: bool) -> None:
        await ctx.wait(question)
        if fail:
            raise ValueError("no")

    async with world(app) as w:
        for fail, status in ((False, "completed"), (True, "failed")):
            run = await w.begin(rude, fail)
            with pytest.raises(RunFinished) as ended:
                await w.app.ask(run.id, question, 1, timeout="10s")
            assert ended.value.status == status
            if fail:
                with pytest.raises(RunFailed):
                    await run.result()


async def test_too_late_says_what_was_done_and_how_to_ask_again(
    world: Worlds, app: App, oracle: Any
) -> None:
    async with world(app) as w:
        run = await w.begin(oracle)
        await run.pause()
        with pytest.raises(TimeoutError, match="the signal was sent, and the reply may still come"):
            await w.app.ask(run.id, question, 3, timeout=0.05, key="k")
        with pytest.raises(TimeoutError, match="with the same key, 'k'"):
            await w.app.ask(run.id, question, 3, timeout=0.05, key="k")
        with pytest.raises(TimeoutError, match="give a key="):
            await w.app.ask(run.id, question, 4, timeout=0.05)
        await run.resume()
        assert await w.app.ask(run.id, question, 3, key="k") == 6
        await w.settle()
        assert await run.buffered() == []
        assert len(await _replies(run)) == 2  # each question once


async def test_a_key_finds_the_answer_after_the_run_has_ended(
    world: Worlds, app: App, oracle: Any
) -> None:
    async with world(app) as w:
        run = await w.begin(oracle)
        assert await w.app.ask(run.id, question, 3, key="k") == 6
        await w.app.signal(run.id, question, 0)
        await run.result()
        assert await w.app.ask(run.id, question, 3, key="k") == 6
        with pytest.raises(Conflict):
            await w.app.ask(run.id, question, 4, key="k")
        with pytest.raises(RunFinished):
            await w.app.ask(run.id, question, 3)


async def test_a_question_that_was_replaced_is_not_awaited_for_ever(
    world: Worlds, app: App
) -> None:
    @app.workflow
    async def slow(ctx: Context) -> None:
        await ctx.wait(go)
        await ctx.reply(await ctx.wait(latest))
        await ctx.wait(short)

    async with world(app) as w:
        run = await w.begin(slow)
        first = asking(w, run.id, latest, 1)
        await w.until(lambda: _buffered(run, 1))
        second = asking(w, run.id, latest, 2)
        with pytest.raises(SignalLost) as lost:
            await first
        assert (lost.value.state, lost.value.name) == ("replaced", "latest")
        await w.app.signal(run.id, go, 1)
        assert await second == 2


async def test_so_is_one_that_expires(world: Worlds, app: App) -> None:
    @app.workflow
    async def slow(ctx: Context) -> None:
        await ctx.wait(go)
        await ctx.wait(short)

    async with world(app) as w:
        run = await w.begin(slow)
        asked = asking(w, run.id, short, 1)
        await w.until(lambda: _buffered(run, 1))
        await w.advance("3s")
        with pytest.raises(SignalLost, match="expired"):
            await asked


async def test_all_errors_of_a_signal_are_those_of_a_question(
    world: Worlds, app: App, oracle: Any
) -> None:
    @app.workflow(signals=[question])
    async def strict(ctx: Context) -> None:
        await ctx.wait(question)

    async with world(app) as w:
        run = await w.begin(strict)
        with pytest.raises(UnknownSignal):
            await w.app.ask(run.id, other, 1)
        with pytest.raises(InvalidPayload):
            await w.app.ask(run.id, question, "no")  # type: ignore[call-overload]
        with pytest.raises(RunNotFound):
            await w.app.ask("nobody", question, 1)
        with pytest.raises(BadValue):
            await w.app.ask("", question, 1)
        with pytest.raises(BadValue, match="timeout"):
            await w.app.ask(run.id, question, 1, timeout="soon")
        assert await w.store.streams(run.id) == []


async def test_an_answer_that_cannot_be_stored_is_an_error_of_the_code(
    world: Worlds, app: App
) -> None:
    @app.workflow
    async def odd(ctx: Context) -> str:
        await ctx.wait(question)
        try:
            await ctx.reply(object())
        except InvalidPayload:
            await ctx.reply("sorry")
        return "over"

    async with world(app) as w:
        run = await w.begin(odd)
        assert await w.app.ask(run.id, question, 1) == "sorry"


async def test_answers_are_no_stream(
    world: Worlds, app: App, oracle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams are trimmed, whoever reads them: who asks must not be too late for what was said to it."""
    monkeypatch.setattr(limits, "stream_items_max", 3)
    monkeypatch.setattr(limits, "stream_bytes_max", 3)
    monkeypatch.setattr(limits, "streams_per_run_max", 0)
    async with world(app) as w:
        run = await w.begin(oracle)
        for number in range(1, 8):
            assert await w.app.ask(run.id, question, number, key=f"k{number}") == 2 * number
        for number in range(1, 8):
            assert await w.app.ask(run.id, question, number, key=f"k{number}") == 2 * number


async def test_large_answers_that_are_given_at_once_are_all_heard(world: Worlds, app: App) -> None:
    """More of them than a stream keeps, all before anybody who asked has looked."""
    large = "x" * 900_000

    @app.workflow
    async def desks(ctx: Context) -> None:
        async def desk(number: int) -> None:
            await ctx.wait(Signal(f"q{number}", int))
            await ctx.wait(tick)
            await ctx.reply(f"{number}{large}")

        await ctx.gather(*map(desk, range(6)))
        await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(desks)
        asked = [asking(w, run.id, Signal(f"q{number}", int), 1) for number in range(6)]
        await w.until(lambda: _all_wait_for(run, "tick", 6))
        await w.emit("tick", 1)
        assert [len(one) for one in await asyncio.gather(*asked)] == [900_001] * 6


async def _all_wait_for(run: RunHandle[Any], target: str, count: int) -> bool:
    return [one.target for one in await run.waiting()] == [target] * count


async def test_an_answer_comes_back_as_it_was_given(world: Worlds, app: App) -> None:
    """Also one that looks as if the store had something to fill in."""
    said = {"position": 2**62, "after": 2**62 + 1, "answer": '{"position":4611686018427387905}'}

    @app.workflow
    async def odd(ctx: Context) -> None:
        await ctx.wait(question)
        await ctx.reply(said)

    async with world(app) as w:
        run = await w.begin(odd)
        assert await w.app.ask(run.id, question, 1) == said


async def test_an_answer_rouses_who_asked_for_it_and_nobody_else(
    world: Worlds, app: App, oracle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_look_every_s", 60.0)
    monkeypatch.setattr(following, "_look_soon_s", 60.0)
    async with world(app) as w:
        run = await w.begin(oracle)
        looks: list[str] = []
        look = w.store.used_key

        async def counted(scope: str, key: str, now: int) -> Any:
            looks.append(key)
            return await look(scope, key, now)

        monkeypatch.setattr(w.store, "used_key", counted)
        asked = [asking(w, run.id, question, number) for number in range(1, 51)]
        assert await asyncio.gather(*asked) == [2 * number for number in range(1, 51)]
        assert len(looks) <= 100  # each once after it was sent, and once when it was answered


async def test_an_answer_is_kept_for_a_day(
    world: Worlds, app: App, oracle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(app) as w:
        run = await w.begin(oracle)
        assert await w.app.ask(run.id, question, 3, key="k") == 6
        await w.advance("23h59m")
        assert await w.app.ask(run.id, question, 3, key="k") == 6
        await w.advance("2m")
        with pytest.raises(SignalLost, match="the answer to it is no longer kept") as lost:
            await asking(w, run.id, question, 3, key="k")
        assert lost.value.state == "forgotten"
        await w.settle()
        assert await check_invariants(w.store) == []


async def test_one_that_takes_longer_than_that_is_awaited_by_its_key(
    world: Worlds, app: App
) -> None:
    @app.workflow
    async def slow(ctx: Context) -> None:
        number = await ctx.wait(question)
        await ctx.sleep("30h")
        await ctx.reply(number)
        await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(slow)
        with pytest.raises(TimeoutError):
            await w.app.ask(run.id, question, 3, key="k", timeout=0.1)
        await w.advance("29h")
        again = asking(w, run.id, question, 3, key="k")
        await w.until(lambda: _listens(w))
        await w.advance("1h")
        assert await again == 3


async def test_what_a_generation_received_and_did_not_answer_nobody_will(
    world: Worlds, app: App
) -> None:
    @app.workflow
    async def forgetful(ctx: Context, again: bool) -> None:
        if again:
            await ctx.wait(question)
            await ctx.continue_as(forgetful, False)
        await ctx.reply(await ctx.wait(other))
        await ctx.wait(go)

    async with world(app) as w:
        run = await w.begin(forgetful, True)
        kept = asking(w, run.id, other, 5, key="kept")
        await w.until(lambda: _buffered(run, 1))
        with pytest.raises(SignalLost, match="generation of the run that received it") as lost:
            await asking(w, run.id, question, 1, key="k")
        assert lost.value.state == "left"
        assert await kept == 5  # buffered for whichever generation
        with pytest.raises(SignalLost):
            await asking(w, run.id, question, 1, key="k")


async def test_an_answer_survives_what_comes_after_it(world: Worlds, app: App) -> None:
    """The generation that gave it, its history, the run."""

    @app.workflow
    async def fickle(ctx: Context, again: bool) -> None:
        if not again:
            await ctx.wait(go)
            return
        await ctx.reply(await ctx.wait(question))
        await ctx.continue_as(fickle, False)

    async with world(app) as w:
        run = await w.begin(fickle, True)
        await w.app.signal(run.id, question, 4, key="k")
        await w.settle()
        assert await w.app.ask(run.id, question, 4, key="k") == 4
        await w.app.signal(run.id, go, 1)
        await run.result()
        assert await w.app.ask(run.id, question, 4, key="k") == 4


async def test_who_asks_is_told_when_the_app_closes(world: Worlds, app: App, oracle: Any) -> None:
    async with world(app) as w:
        run = await w.begin(oracle)
        await run.pause()
        asked = asking(w, run.id, question, 1)
        await w.until(lambda: _listens(w))
    with pytest.raises(NotRunning):
        await asked


async def _listens(w: Stage) -> bool:
    return bool(w.coordinator.hub._listeners)


async def test_an_answer_survives_a_crash(world: Worlds, app: App, oracle: Any) -> None:
    first = world(app)
    await first.__aenter__()
    run = await first.begin(oracle, id="r")
    assert await first.app.ask(run.id, question, 3, key="k") == 6
    await first.crash()
    async with world(app) as w:
        assert await w.app.ask("r", question, 3, key="k") == 6
        assert await w.app.ask("r", question, 4) == 8


async def test_a_run_that_dies_between_question_and_answer_answers(world: Worlds, app: App) -> None:
    """The signal is consumed, the answer is not given: the replay knows which signal it was."""
    deadly = Deadly(2)

    @app.step
    async def work(number: int) -> int:
        await deadly.work(number)
        return 10 * number

    @app.workflow
    async def slow(ctx: Context) -> None:
        while number := await ctx.wait(question):
            await ctx.reply(await ctx.step(work, number))

    first = world(app)
    await first.__aenter__()
    run = await first.begin(slow, id="r")
    assert await first.app.ask(run.id, question, 1, key="k1") == 10
    lost = asking(first, run.id, question, 2, key="k2")
    await deadly.kill(first)
    await asyncio.wait((lost,))
    async with world(app) as w:
        assert await asking(w, "r", question, 2, key="k2") == 20
        assert await asking(w, "r", question, 1, key="k1") == 10
        assert await asking(w, "r", question, 3) == 30
        run = w.app.run("r")
        assert await _replies(run) == ["reply", "reply#2", "reply#3"]
        await w.settle()
        assert await check_invariants(w.store) == []


# --- several processes -------------------------------------------------------------------------------


@pytest.fixture
def crowd(app: App, oracle: Any, place: dict[str, Any]) -> Crowd:
    return Crowd(app, **place, workers=2, seed=1)


async def test_another_process_asks(crowd: Crowd, oracle: Any) -> None:
    async with crowd:
        ours, theirs = crowd.apps
        run = await ours.start(oracle)
        await crowd.settle()
        asked = asyncio.ensure_future(asyncio.wait_for(theirs.ask(run.id, question, 21), 10))
        while not asked.done():
            await crowd.settle()
        assert await asked == 42


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def pair(
    request: pytest.FixtureRequest, tmp_path: Any, app: App, oracle: Any
) -> AsyncIterator[tuple[App, App]]:
    """Two apps on one store whose processes tell each other what they do, in real time."""
    options: dict[str, Any] = {"url": f"sqlite:///{tmp_path}/pair.db"}
    if request.param == "postgres":
        options = {"url": request.getfixturevalue("postgres_url")}
        options["namespace"] = request.getfixturevalue("lend_namespace")()
    elif request.param == "redis":
        options = {"url": request.getfixturevalue("redis_url")}
        options["namespace"] = request.getfixturevalue("lend_redis_namespace")()
    async with app.copy(**options) as ours, app.copy(**options, worker=False) as theirs:
        yield ours, theirs


async def test_a_client_elsewhere_is_told_of_the_answer(
    pair: tuple[App, App], oracle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hints, long before it would look for itself."""
    monkeypatch.setattr(following, "_look_every_s", 60.0)
    ours, theirs = pair
    run = await ours.start(oracle)
    for number in range(1, 6):
        asked = theirs.ask(run.id, question, number)
        assert await asyncio.wait_for(asked, 10) == 2 * number
